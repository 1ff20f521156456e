package oidc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxResponse is the maximum size of a response in bytes. Metadata and keys have a few
// thousand.
const maxResponse = 1 << 20

// transportError is the failure to get a usable response: no connection, an error status,
// or an unreadable body.
type transportError struct{ cause error }

func (f *transportError) Error() string { return f.cause.Error() }
func (f *transportError) Unwrap() error { return f.cause }

// isTransportError reports whether err is a [transportError], as opposed to a refusal by
// the provider.
func isTransportError(err error) bool {
	if _, ok := errors.AsType[*transportError](err); ok {
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// boundedTransport returns complete JSON responses of bounded size and turns everything
// else into a [transportError]. So later errors of the libraries are never network
// errors, and the only statuses besides 200 that they see are refusals of the token
// endpoint.
type boundedTransport struct{ next http.RoundTripper }

func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, &transportError{err}
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxResponse+1))
	res.Body.Close()
	refusal := r.Method == http.MethodPost && (res.StatusCode == http.StatusBadRequest || res.StatusCode == http.StatusUnauthorized)
	switch {
	case err != nil:
		return nil, &transportError{fmt.Errorf("read the response: %w", err)}
	case res.StatusCode != http.StatusOK && !refusal:
		return nil, &transportError{fmt.Errorf("status %d", res.StatusCode)}
	case len(body) > maxResponse:
		return nil, &transportError{fmt.Errorf("the response is larger than %d bytes", maxResponse)}
	case !json.Valid(body):
		return nil, &transportError{fmt.Errorf("status %d, and the response is not JSON", res.StatusCode)}
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	res.ContentLength = int64(len(body))
	res.Header.Set("Content-Type", "application/json") // whatever the provider sent
	return res, nil
}

func defaultTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 8
	t.IdleConnTimeout = time.Minute
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// truncate returns the start of err's text in one line: some errors of the libraries
// quote a whole response.
func truncate(err error) string {
	const limit = 300
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
