package kickstand

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	maxAnswer  = 64 << 20 // bytes of a JSON answer
	maxProblem = 1 << 20  // bytes of another one
)

// request is one call: all its attempts are the same request.
type request struct {
	method     string
	path       escapedPath
	params     any // a struct with tags query; nil: none
	body       any // nil: none
	accept     string
	idempotent bool // the request carries an Idempotency-Key
	options    []CallOption

	stream     io.ReadCloser // of an import, instead of body
	streamType string
}

// Response is the part of an answer that a callback of [WithOnResponse] receives.
type Response struct {
	Status    int
	Header    http.Header
	ETag      string
	RequestID string
	Replayed  bool // the answer is that of an earlier request with the same Idempotency-Key
	RateLimit RateLimit
}

// RateLimit is the state of the key's limit after a request. It is zero if the answer has none.
type RateLimit struct {
	Limit, Remaining int // requests of the window
	Reset            time.Time
}

// prepared is a request with all its parts encoded.
type prepared struct {
	callOptions
	method, url string
	header      http.Header
	body        []byte
	stream      io.ReadCloser
}

// escapedPath is a path with its ids escaped, or the error of one.
type escapedPath struct {
	text string
	err  error
}

// path puts ids into a template.
func path(template string, ids ...string) escapedPath {
	var b strings.Builder
	for _, id := range ids {
		if id == "" || id == "." || id == ".." {
			return escapedPath{err: fmt.Errorf("kickstand: %q is not an id", id)}
		}
		before, rest, _ := strings.Cut(template, "{")
		_, template, _ = strings.Cut(rest, "}")
		b.WriteString(before + strings.ReplaceAll(url.QueryEscape(id), "+", "%20"))
	}
	return escapedPath{text: b.String() + template}
}

// prepare encodes a request.
func (c *client) prepare(r request) (*prepared, error) {
	p := &prepared{method: r.method, stream: r.stream, callOptions: callOptions{timeout: c.timeout, maxRetries: c.maxRetries}}
	for _, o := range r.options {
		o(&p.callOptions)
	}
	if r.path.err != nil {
		return nil, r.path.err
	}
	query, err := encodeQuery(r.params)
	if err != nil {
		return nil, err
	}
	for _, name := range p.expand {
		query.Add("expand[]", name)
	}
	p.url = c.base + r.path.text
	if len(query) > 0 {
		p.url += "?" + query.Encode()
	}
	if r.accept == "" {
		r.accept = "application/json"
	}
	p.header = http.Header{"Accept": {r.accept}, "Authorization": {c.authorization}, "User-Agent": {"kickstand-go/" + version}}
	if r.stream != nil {
		p.header.Set("Content-Type", r.streamType)
		p.maxRetries = 0
	}
	if r.body != nil {
		if p.body, err = json.Marshal(r.body); err != nil {
			return nil, fmt.Errorf("kickstand: encode the body: %w", err)
		}
		p.header.Set("Content-Type", "application/json")
	}
	if r.idempotent && p.idempotencyKey == "" {
		p.idempotencyKey = newUUID()
	}
	return p, p.addHeaders()
}

// addHeaders adds the headers of the call's options.
func (p *prepared) addHeaders() error {
	for name, value := range map[string]string{
		"Idempotency-Key": p.idempotencyKey, "If-Match": p.ifMatch, "If-None-Match": p.ifNoneMatch,
		"X-Subaccount-Id": p.subaccount, "X-Request-Id": p.requestID,
	} {
		if value == "" {
			continue
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return fmt.Errorf("kickstand: %s has a control character", name)
		}
		p.header.Set(name, value)
	}
	return nil
}

// newUUID returns a random UUID (version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// call sends a request and decodes its answer into out, which is nil for none. It reports
// errUnchanged for an answer 304.
func (c *client) call(ctx context.Context, r request, out any) error {
	return c.do(ctx, r, func(resp *http.Response, body *stream) error {
		text, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
		switch {
		case err != nil:
			return err
		case len(text) > maxAnswer:
			return otherProblem(resp, "The answer is too large.")
		case out == nil:
			return nil
		case !json.Valid(text):
			return otherProblem(resp, "The answer is not JSON.")
		}
		if err := json.Unmarshal(text, out); err != nil {
			return fmt.Errorf("kickstand: decode the answer: %w", err)
		}
		return nil
	})
}

// errUnchanged is an answer 304 to If-None-Match.
var errUnchanged = errors.New("kickstand: the record is unchanged")

// call sends a request and returns its record, or nil if it is unchanged.
func call[T any](ctx context.Context, c *client, r request) (*T, error) {
	var out T
	if err := c.call(ctx, r, &out); err != nil {
		if err == errUnchanged {
			err = nil
		}
		return nil, err
	}
	return &out, nil
}

// do sends a request, again after failures that may pass. read reads an answer of success; the
// body is closed after it unless it takes the stream.
func (c *client) do(ctx context.Context, r request, read func(*http.Response, *stream) error) error {
	p, err := c.prepare(r)
	if err != nil {
		if r.stream != nil {
			r.stream.Close()
		}
		return err
	}
	for n := 0; ; n++ {
		err := c.attempt(ctx, p, read)
		if err == nil {
			return nil
		}
		wait, ok := c.retryWait(err, n)
		if !ok || n >= p.maxRetries {
			return err
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// attempt sends a request once.
func (c *client) attempt(ctx context.Context, p *prepared, read func(*http.Response, *stream) error) error {
	body := newStream(ctx, p.timeout)
	defer body.done()
	req, err := http.NewRequestWithContext(body.attempt, p.method, p.url, nil)
	if err != nil {
		return err
	}
	req.Header = p.header
	switch {
	case p.stream != nil:
		req.Body, req.ContentLength = p.stream, -1
	case p.body != nil:
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(p.body)), int64(len(p.body))
		// Connections that the server has closed are replaced without counting as an attempt.
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(p.body)), nil }
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var broken *url.Error
		if errors.As(err, &broken) {
			err = broken.Err
		}
		return body.failure(err)
	}
	body.from = resp.Body
	for _, f := range p.observers {
		f(responseOf(resp))
	}
	switch {
	case resp.StatusCode == http.StatusNotModified && p.ifNoneMatch != "":
		return errUnchanged
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		text, err := io.ReadAll(io.LimitReader(body, maxProblem))
		if err != nil {
			return err
		}
		return problemOf(resp, text)
	}
	return read(resp, body)
}

func responseOf(resp *http.Response) *Response {
	h := resp.Header
	out := &Response{
		Status: resp.StatusCode, Header: h, ETag: h.Get("ETag"), RequestID: h.Get("X-Request-Id"), Replayed: h.Get("Idempotent-Replayed") == "true",
	}
	limit, err := strconv.Atoi(h.Get("X-RateLimit-Limit"))
	remaining, err2 := strconv.Atoi(h.Get("X-RateLimit-Remaining"))
	reset, err3 := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	if errors.Join(err, err2, err3) == nil {
		out.RateLimit = RateLimit{limit, remaining, time.Unix(reset, 0)}
	}
	return out
}

// retryWait returns the wait before retry n, from 0, and whether there is one.
func (c *client) retryWait(err error, n int) (time.Duration, bool) {
	base := min(8*time.Second, 500*time.Millisecond<<min(n, 10))
	part := func(d time.Duration) time.Duration { return time.Duration(c.random() * float64(d)) }
	var problem *Problem
	var timeout *TimeoutError
	var connection *ConnectionError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return 0, false
	case errors.As(err, &timeout), errors.As(err, &connection):
	case errors.As(err, &problem):
		switch problem.Status {
		case 408, 429, 500, 502, 503, 504:
		case 409:
			if problem.Code != "idempotency_in_progress" {
				return 0, false
			}
		default:
			return 0, false
		}
		if problem.RetryAfter != nil {
			if *problem.RetryAfter > c.maxRetryWait {
				return 0, false
			}
			return *problem.RetryAfter + part(min(time.Second, base)), true
		}
	default:
		return 0, false
	}
	return base/2 + part(base/2), true
}

// sleep waits, or returns the error of the context.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
