package kickstand

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code is the code of a [Problem].
type Code string

// Problem is an answer of the server that is not a success: an RFC 9457 problem document, or
// another answer, which has the code "".
type Problem struct {
	Status    int    `json:"status"`
	Code      Code   `json:"code"`
	Type      string `json:"type"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
	// Errors are the fields and parameters that are not valid.
	Errors []FieldError `json:"errors"`
	// RetryAfter is the time of the header Retry-After, from the answer on.
	RetryAfter *time.Duration `json:"-"`

	raw json.RawMessage
}

// FieldError is the error of one field or parameter. Pointer is a JSON pointer into the body;
// of the others at most one is set.
type FieldError struct {
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Pointer   string `json:"pointer"`
	Parameter string `json:"parameter"`
	Header    string `json:"header"`
}

// Error returns the detail, the code and the request id, as far as they are known.
func (p *Problem) Error() string {
	var of []string
	if p.Code != "" {
		of = append(of, string(p.Code))
	}
	if p.RequestID != "" {
		of = append(of, "request "+p.RequestID)
	}
	if len(of) == 0 {
		return p.Detail
	}
	return p.Detail + " (" + strings.Join(of, ", ") + ")"
}

// Raw returns the problem document, with members that this version does not know. It is nil for
// other answers.
func (p *Problem) Raw() json.RawMessage { return p.raw }

// UnmarshalJSON implements [json.Unmarshaler].
func (p *Problem) UnmarshalJSON(text []byte) error {
	type plain Problem
	return unmarshal(text, (*plain)(p), &p.raw)
}

// ConnectionError is a connection that could not be opened, or that broke before the whole answer
// arrived. The server may have carried out the request.
type ConnectionError struct{ Err error }

// Error describes the failure.
func (e *ConnectionError) Error() string { return "kickstand: the connection failed: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// TimeoutError is an attempt that took longer than its timeout. The server may have carried out
// the request.
type TimeoutError struct{ After time.Duration }

// Error describes the failure.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("kickstand: no answer within %v", e.After)
}

// Timeout reports true, like the timeouts of package net.
func (e *TimeoutError) Timeout() bool { return true }

// problemOf returns the problem of an answer.
func problemOf(resp *http.Response, body []byte) *Problem {
	p := &Problem{}
	if json.Unmarshal(body, p) != nil || p.Code == "" {
		p = otherProblem(resp, fmt.Sprintf("The server answered with status %d.", resp.StatusCode))
	}
	p.Status = resp.StatusCode
	if wait, ok := retryAfter(resp.Header, time.Now()); ok {
		p.RetryAfter = &wait
	}
	return p
}

// otherProblem returns the problem of an answer that is no problem document.
func otherProblem(resp *http.Response, detail string) *Problem {
	return &Problem{Status: resp.StatusCode, Detail: detail, RequestID: resp.Header.Get("X-Request-Id")}
}

// retryAfter returns the wait that an answer asks for.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	text := h.Get("Retry-After")
	n, err := strconv.ParseUint(text, 10, 63)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, math.MaxInt64/uint64(time.Second))) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return max(at.Sub(now), 0), true
}
