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
	"unicode/utf8"
)

// maxResponse is the size of the largest answer, in bytes. Metadata and keys have
// a few thousand.
const maxResponse = 1 << 20

// transportError is why an answer of the provider is none: nobody there, a failure over
// there, or nothing that we could read.
type transportError struct{ cause error }

func (f *transportError) Error() string { return f.cause.Error() }
func (f *transportError) Unwrap() error { return f.cause }

// isTransportError reports whether err is of the way to the provider, as opposed to what
// it said.
func isTransportError(err error) bool {
	if _, ok := errors.AsType[*transportError](err); ok {
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// boundedTransport hands on complete answers of bounded size that are JSON, and turns
// all else into a [transportError]. What the libraries make of an answer after that
// cannot fail for want of the network, and of other statuses than 200 they see
// only the refusals of the token endpoint.
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
		return nil, &transportError{fmt.Errorf("read the answer: %w", err)}
	case res.StatusCode != http.StatusOK && !refusal:
		return nil, &transportError{fmt.Errorf("status %d", res.StatusCode)}
	case len(body) > maxResponse:
		return nil, &transportError{fmt.Errorf("the answer is larger than %d bytes", maxResponse)}
	case !json.Valid(body):
		return nil, &transportError{fmt.Errorf("status %d, and the answer is not JSON", res.StatusCode)}
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	res.ContentLength = int64(len(body))
	res.Header.Set("Content-Type", "application/json") // as it is, whatever was said
	return res, nil
}

func defaultTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 8
	t.IdleConnTimeout = time.Minute
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// truncate is the beginning of err's text in one line: some errors of the
// libraries repeat a whole answer.
func truncate(err error) string {
	const limit = 300
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) <= limit {
		return text
	}
	cut := limit
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
