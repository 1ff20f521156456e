package inbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

const (
	// maxEnrichCalls bounds the calls for one part.
	maxEnrichCalls = 20
	// maxEnrichRetries is how often a failed call delays the event; after that it is parsed
	// without the response.
	maxEnrichRetries = 3
	providerTimeout  = 30 * time.Second
	// optionalWait bounds the total wait for an event's optional responses.
	optionalWait = 3 * time.Second
	// maxProviderWait caps the wait that a provider asks for.
	maxProviderWait = 15 * time.Minute
	// smallResponse is the total size in bytes of a part's responses up to which no memory is
	// reserved, maxResponses their maximum: a mail with its metadata.
	smallResponse = 1 << 20
	maxResponses  = 40 << 20
	// maxResponseMemory bounds the memory of all large responses.
	maxResponseMemory = 2 * maxResponses
)

// responses are a provider's responses for one part.
type responses struct {
	list    []channel.Response
	size    int64 // bytes of all bodies
	reserve func(ctx context.Context) error
	held    func() // frees the reserved memory; nil if none is reserved
}

func (a *responses) release() {
	if a.held != nil {
		a.held()
	}
}

// providerError is a failed call that may succeed later.
type providerError struct {
	cause error
	wait  time.Duration // requested by the provider; 0 if not
}

func (e *providerError) Error() string { return "call the provider: " + e.cause.Error() }
func (e *providerError) Unwrap() error { return e.cause }

// retry returns the backoff of a failed event and whether to retry it.
func retry(attempt int, err error) (time.Duration, bool) {
	wait := queue.Backoff(attempt)
	if asked, ok := errors.AsType[*providerError](err); ok {
		wait = max(wait, min(asked.wait, maxProviderWait))
	}
	return wait, attempt < 8
}

// newResponses returns an empty set. The caller releases it.
func (s *Service) newResponses() *responses {
	got := new(responses)
	got.reserve = func(ctx context.Context) error {
		if err := s.responseMemory.Acquire(ctx, maxResponses); err != nil {
			return err
		}
		got.held = func() { s.responseMemory.Release(maxResponses) }
		return nil
	}
	return got
}

// retryLater returns the error for a response that asks for a later retry.
func retryLater(a channel.Response, now time.Time) error {
	return &providerError{cause: fmt.Errorf("it asked to retry later with the status %d", a.Status), wait: netguard.RetryAfter(a.Header, now)}
}

// enrich makes the calls for data that the request only refers to.
func (s *Service) enrich(ctx context.Context, w *work, asker channel.Enricher, got *responses) error {
	req, part := w.event.request(), w.event.part()
	until := time.Now().Add(optionalWait)
	for range maxEnrichCalls {
		call := asker.EnrichCall(req, part, got.list, s.credentials(w))
		if call == nil {
			return nil
		}
		limit := time.Now().Add(providerTimeout)
		if call.Optional {
			limit = until
		}
		answer, err := s.call(ctx, call, limit, got)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if d, ok := asker.(channel.RetryDecider); ok && err == nil && w.attempt < maxEnrichRetries && d.ShouldRetry(answer) {
			return retryLater(answer, s.db.Now())
		}
		if err == nil {
			got.list = append(got.list, answer)
			continue
		}
		if w.attempt < maxEnrichRetries && !call.Optional {
			return err
		}
		s.log.WarnContext(ctx, "the provider did not return the data of an event", "event", w.event.ID, "error", err)
		got.list = append(got.list, channel.Response{})
	}
	s.log.WarnContext(ctx, "a channel exceeded the limit of provider calls", "event", w.event.ID, "channel", w.event.Channel)
	return nil
}

// call calls the provider's API before the deadline until. The error is a [*providerError]
// without address and credentials.
func (s *Service) call(ctx context.Context, c *channel.APIRequest, until time.Time, got *responses) (channel.Response, error) {
	var none channel.Response
	transport := s.api
	if c.Public() {
		transport = s.media
	}
	if transport == nil {
		return none, &providerError{cause: errors.New("provider calls are not configured")}
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	req, err := c.HTTPRequest(ctx)
	if err != nil {
		return none, &providerError{cause: err}
	}
	resp, err := transport.RoundTrip(req) // not an http.Client, which would follow redirects
	if err != nil {
		return none, &providerError{cause: withoutURL(err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		return none, &providerError{cause: fmt.Errorf("it answered %s", resp.Status), wait: netguard.RetryAfter(resp.Header, s.db.Now())}
	}
	answer := channel.Response{Status: resp.StatusCode, Header: resp.Header}
	if answer.Body, err = got.read(ctx, resp.Body); err != nil {
		return none, &providerError{cause: err}
	}
	return answer, nil
}

// read reads a response body and reserves memory for a large one.
func (a *responses) read(ctx context.Context, from io.Reader) ([]byte, error) {
	limit := int64(maxResponses)
	if a.held == nil {
		limit = smallResponse
	}
	body, err := io.ReadAll(io.LimitReader(from, limit-a.size+1))
	if err == nil && a.size+int64(len(body)) > limit && a.held == nil {
		if err := a.reserve(ctx); err != nil {
			return nil, err
		}
		var rest []byte
		rest, err = io.ReadAll(io.LimitReader(from, maxResponses-a.size-int64(len(body))+1))
		body = append(body, rest...)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the response: %w", err)
	case a.size+int64(len(body)) > maxResponses:
		return nil, fmt.Errorf("the responses exceed %d MB", maxResponses>>20)
	}
	a.size += int64(len(body))
	return body, nil
}

// credentials returns the credentials for calls of an event, all of one owner: the
// connection's, or, if it has none for the API, the deployment's, provided that the
// deployment's secret verified the event. A request signed only with a tenant's secret never
// reads from the deployment's account.
func (s *Service) credentials(w *work) channel.Credentials {
	return s.credentialsOf(w.connection, w.event.Channel, strings.HasPrefix(w.event.VerifiedBy, byDeployment))
}

// credentialsOf is [Service.credentials] for a connection, which may be nil.
func (s *Service) credentialsOf(c *connection.Connection, channelName string, byDeployment bool) channel.Credentials {
	var own channel.Credentials
	if c != nil {
		own = c.Credentials()
	}
	if own.HasAPI() || !byDeployment {
		return own
	}
	if shared, ok := (*s.deploymentCredentials.Load())[channelName]; ok {
		return shared
	}
	return own
}
