package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

const (
	callTimeout = 30 * time.Second
	maxAnswer   = 4 << 20 // bytes; a list of a hundred messages is far smaller
	// inFlightTime is the time after the start of a call during which the provider may
	// still process it, even if the connection is lost, and may not list the message
	// yet.
	inFlightTime = callTimeout + 10*time.Second
	// submissionTime is the time after the record of a submission within which its last
	// byte is sent.
	submissionTime = callTimeout
	// maxPages bounds a search.
	maxPages = 20
)

// sendByAPI sends the message through the provider's API.
func (a *attempt) sendByAPI(ctx context.Context, c channel.APISender) error {
	route := "api/" + a.connection.ID
	if wait := a.routes.acquire(route, 0); wait > 0 {
		return a.postpone(ctx, "", wait)
	}
	defer a.routes.release(route, 0)
	credentials := a.connection.Credentials()
	a.w.ReceiptURL = a.receiptURL()
	a.w.Now = a.db.Now()
	tooLate := c.Check(&a.w.Outgoing, credentials)
	if tooLate != nil && !errors.Is(tooLate, channel.ErrTooLate) {
		// The credentials have changed since the message was written.
		return a.postpone(ctx, "the connection is not usable: "+problemText(tooLate), disabledWait)
	}
	if p, ok := c.(channel.PullSender); ok && p.Pulls(credentials) {
		if barred, err := a.isBlocked(ctx); barred || err != nil {
			return err
		}
		return a.conclude(ctx, outcome{verdict: p.ReadPulled(&a.w.Outgoing)})
	}
	call := c.SendCall(&a.w.Outgoing, credentials)
	if s, ok := c.(channel.CallSigner); ok {
		s.SignCall(&call, a.connection.Secrets(a.w.Now), a.w.Now)
	}
	by := callRoute(call)
	if !a.w.SubmittedAt.IsZero() && !a.submittedVia(by) {
		return a.conclude(ctx, outcome{verdict: refusedVerdict(a.mayHaveArrived())})
	}
	if !a.w.SubmittedAt.IsZero() {
		if wait := a.scaled(inFlightTime) - a.db.Now().Sub(a.w.SubmittedAt); wait > 0 {
			return a.postpone(ctx, "", wait)
		}
		switch c := c.(type) {
		case channel.Searcher:
			id, err := a.search(ctx, c, credentials)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case isInternal(err):
				return err
			case errors.Is(err, channel.ErrUnsearchable):
				return a.conclude(ctx, outcome{verdict: refusedVerdict(a.mayHaveArrived() + " (" + err.Error() + ")")})
			case err != nil:
				return a.retryOrFail(ctx, channel.SendResult{Verdict: channel.VerdictUnclear, Reason: err.Error()}, maxUnreachedRetries)
			case id != "":
				return a.conclude(ctx, outcome{verdict: channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{id}}})
			}
		case channel.IdempotentSender:
			if tooLate != nil || !a.canRepeat(by, c.IdempotencyWindow()) {
				return a.conclude(ctx, outcome{verdict: refusedVerdict(a.mayHaveArrived())})
			}
		default: // and there was no receipt meanwhile
			return a.conclude(ctx, outcome{verdict: refusedVerdict(a.mayHaveArrived())})
		}
	}
	if tooLate != nil {
		return a.conclude(ctx, outcome{verdict: refusedVerdict(problemText(tooLate))})
	}
	if barred, err := a.isBlocked(ctx); barred || err != nil {
		return err
	}
	if err := a.recordSubmission(ctx, by); err != nil {
		return err
	}
	answer, began, err := a.call(ctx, call, func() error { return a.checkSubmission(ctx) })
	switch {
	case err != nil && ctx.Err() != nil, errors.Is(err, queue.ErrLeaseLost):
		return a.interrupted(ctx, began)
	case err != nil && began:
		return a.retryOrFail(ctx, channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider did not respond: " + err.Error()}, maxUnreachedRetries)
	case errors.Is(err, errStalled):
		return a.retryOrFail(ctx, channel.SendResult{Verdict: channel.VerdictRetry, Reason: err.Error()}, maxUnreachedRetries)
	case err != nil:
		return a.retryOrFail(ctx, channel.SendResult{Verdict: channel.VerdictRetry, Reason: "the provider cannot be reached: " + err.Error()}, maxUnreachedRetries)
	}
	v := c.ReadSendResponse(&a.w.Outgoing, answer)
	switch v.Verdict {
	case channel.VerdictRetry, channel.VerdictUnclear:
		if v.RetryAfter > 0 {
			a.routes.pause(route, a.scaled(v.RetryAfter))
		}
		return a.retryOrFail(ctx, v, maxLaterRetries)
	}
	return a.conclude(ctx, outcome{verdict: v})
}

// callRoute names the target of a call: the provider, and the account if the URL
// names it.
func callRoute(c channel.APIRequest) string {
	where, _, _ := strings.Cut(c.URL, "?")
	return "call " + where
}

// retryOrFail concludes an attempt that may be repeated. If its effect is unclear,
// the next one starts by finding out, from the provider or a receipt.
func (a *attempt) retryOrFail(ctx context.Context, v channel.SendResult, tries int) error {
	wait := backoff(a.w.Attempts+1, v.RetryAfter)
	giveUp := a.w.Attempts+1 > len(backoffSchedule)+tries
	if v.Verdict == channel.VerdictUnclear {
		wait = max(wait, inFlightTime)
	}
	return a.conclude(ctx, outcome{verdict: v, wait: wait, giveUp: giveUp})
}

// receiptURL returns the URL for the message's receipts.
func (a *attempt) receiptURL() string {
	info := a.adapters[a.connection.Channel].Info()
	return a.baseURL + info.Path + "?message=" + url.QueryEscape(a.w.ID)
}

// search looks for the message at the provider and returns its id there; empty if
// it is not found.
func (a *attempt) search(ctx context.Context, c channel.Searcher, credentials channel.Credentials) (string, error) {
	call := c.SearchCall(&a.w.Outgoing, credentials, a.w.SubmittedAt)
	for range maxPages {
		answer, _, err := a.call(ctx, call, nil)
		if err != nil {
			return "", fmt.Errorf("the provider's search for the message failed: %w", err)
		}
		ids, more, err := c.ReadSearchResponse(&a.w.Outgoing, credentials, a.w.SubmittedAt, answer)
		if err != nil {
			return "", err
		}
		id, err := a.desk.FirstUnusedID(ctx, a.db, &a.w, ids)
		if err != nil || id != "" {
			return id, err
		}
		if more == nil {
			return "", nil
		}
		call = *more
	}
	return "", errors.New("the provider's list of messages does not end")
}

// call performs a request. check refuses its bytes; nil permits them. began reports that
// the provider may have received it. The error has neither URL nor credentials.
func (s *Service) call(ctx context.Context, c channel.APIRequest, check func() error) (a channel.Response, began bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})
	req, err := c.HTTPRequest(ctx)
	if err != nil {
		return a, false, err
	}
	transport := s.http
	if c.Public() {
		transport = s.publicHTTP
	}
	if transport == nil {
		return a, false, errors.New("calls to an organization's own URLs are not configured")
	}
	refused := func() error { return nil }
	if check != nil {
		if err := check(); err != nil {
			return a, false, err
		}
		refused = mail.GuardBody(req, c.Body, check)
	}
	// Not an http.Client: it would follow redirects.
	resp, err := transport.RoundTrip(req)
	if cause := refused(); err != nil && cause != nil {
		return a, false, cause
	}
	if err != nil {
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", callTimeout)
		}
		return a, wrote.Load(), err
	}
	defer resp.Body.Close()
	a = channel.Response{Status: resp.StatusCode, Header: resp.Header}
	if a.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return a, true, fmt.Errorf("the answer broke off: %w", err)
	}
	return a, true, nil
}

// typingTimeout bounds a report of typing, which is of no use later.
const typingTimeout = 3 * time.Second

// ReportTyping reports to the far side of a conversation that an agent writes there, if the channel
// has such reports. A report is neither stored nor repeated; the error is the reason why it failed.
func (s *Service) ReportTyping(ctx context.Context, conversation *desk.Conversation, agent string) error {
	c, err := s.connections.ByID(ctx, conversation.ConnectionID)
	if err != nil || c == nil || !c.Enabled {
		return err
	}
	reporter, ok := s.adapters[c.Channel].(channel.TypingReporter)
	if !ok || c.Credentials().BaseURL() == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, typingTimeout)
	defer cancel()
	m := channel.Outgoing{ID: uuid.NewString(), TicketID: conversation.TicketID, ThreadKey: conversation.ThreadKey, Now: s.db.Now()}
	call := reporter.TypingCall(&m, agent, c.Credentials())
	reporter.SignCall(&call, c.Secrets(m.Now), m.Now)
	_, _, err = s.call(ctx, call, nil)
	return err
}

// problemText returns the text of a problem for people.
func problemText(err error) string {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return "it is not known why"
	}
	if len(p.Issues) > 0 {
		return p.Issues[0].Path + " " + p.Issues[0].Message
	}
	return p.Message
}
