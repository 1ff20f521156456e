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

// maxAnswer is the size of the largest answer, in bytes. Metadata and keys have
// a few thousand.
const maxAnswer = 1 << 20

// fault is why an answer of the provider is none: nobody there, a failure over
// there, or nothing that we could read.
type fault struct{ cause error }

func (f *fault) Error() string { return f.cause.Error() }
func (f *fault) Unwrap() error { return f.cause }

// isFault reports whether err is of the way to the provider, as opposed to what
// it said.
func isFault(err error) bool {
	if _, ok := errors.AsType[*fault](err); ok {
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// bounded hands on complete answers of bounded size that are JSON, and turns
// all else into a [fault]. What the libraries make of an answer after that
// cannot fail for want of the network, and of other statuses than 200 they see
// only the refusals of the token endpoint.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, &fault{err}
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	res.Body.Close()
	refusal := r.Method == http.MethodPost && (res.StatusCode == http.StatusBadRequest || res.StatusCode == http.StatusUnauthorized)
	switch {
	case err != nil:
		return nil, &fault{fmt.Errorf("read the answer: %w", err)}
	case res.StatusCode != http.StatusOK && !refusal:
		return nil, &fault{fmt.Errorf("status %d", res.StatusCode)}
	case len(body) > maxAnswer:
		return nil, &fault{fmt.Errorf("the answer is larger than %d bytes", maxAnswer)}
	case !json.Valid(body):
		return nil, &fault{fmt.Errorf("status %d, and the answer is not JSON", res.StatusCode)}
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

// brief is the beginning of err's text in one line: some errors of the
// libraries repeat a whole answer.
func brief(err error) string {
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
