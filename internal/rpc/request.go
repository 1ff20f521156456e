package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

const (
	maxCalls   = 20      // calls in one batch
	maxRefused = 1000    // calls in one batch that are refused one by one, rather than as a whole
	maxInput   = 1 << 20 // bytes of a body
)

// MaxQuery is the maximum length of a query string in bytes. A server in front of a
// [Router] should accept headers of twice that, so that a longer query gets the router's
// response, but not many times that: unlike a body, headers stay in memory while a call
// waits.
const MaxQuery = 32 << 10

// errGone means that the client has disconnected.
var errGone = errors.New("client went away")

// request is the state of one HTTP request, served by one goroutine.
type request struct {
	rt       *Router
	w        http.ResponseWriter
	r        *http.Request
	response *response

	batch  bool
	params string // ?input=, undecoded

	plain   context.Context                 // context of public procedures
	session func() (context.Context, error) // context of other procedures; authenticates once

	read     bool // the next three fields are set
	input    json.RawMessage
	inputs   map[string]json.RawMessage // of a batch
	inputErr error
}

// ServeHTTP serves one call, or the calls of a batch in order.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := newResponse()
	defer a.release()
	q := &request{rt: rt, w: w, r: r, response: a}
	q.batch, q.params = parseQuery(r.URL.RawQuery)
	q.plain = &callContext{Context: r.Context(), w: w, r: r}
	q.session = sync.OnceValues(q.authenticate)

	path := strings.TrimPrefix(r.URL.Path, Prefix)
	switch {
	case !q.batch:
		q.serve(0, path)
	case strings.Count(path, ",") >= maxRefused:
		q.fail(path, errManyCalls()) // one error, which the client reports for every call
	default:
		a.lines = r.Header.Get("Trpc-Accept") == "application/jsonl"
		q.serveBatch(strings.Split(path, ","))
	}
	a.send(w)
}

// serveBatch serves the calls in order, or refuses each one if they are too many. Their
// answers are an array. For httpBatchStreamLink they are the first line of its stream, in
// which no value is left for a later line.
func (q *request) serveBatch(names []string) {
	a := q.response
	open, end := "[", "]"
	if a.lines {
		open, end = `{"json":{`, "}}\n"
	}
	a.body.WriteString(open)
	for i, name := range names {
		if i > 0 {
			a.body.WriteByte(',')
		}
		if a.lines {
			fmt.Fprintf(&a.body, `"%d":[[`, i)
		}
		if len(names) > maxCalls {
			q.fail(name, errManyCalls())
		} else {
			q.serve(i, name)
		}
		if a.lines {
			a.body.WriteString("]]")
		}
	}
	a.body.WriteString(end)
}

func errManyCalls() error {
	return problem.New(problem.Invalid, "a batch holds at most %d calls", maxCalls)
}

// Refuse responds to r with err without calling a procedure, for handlers in front of the
// router.
func (rt *Router) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	a := newResponse()
	defer a.release()
	q := &request{rt: rt, w: w, r: r, response: a}
	q.fail(strings.TrimPrefix(r.URL.Path, Prefix), err)
	a.send(w)
}

// serve adds the result of call i to the response.
func (q *request) serve(i int, name string) {
	start := q.response.body.Len()
	if err := q.call(i, name); err != nil {
		q.response.body.Truncate(start) // drops a partial result
		q.fail(name, err)
		return
	}
	q.response.addStatus(http.StatusOK)
}

// maxRetainedInput is the maximum size, in bytes, of an input that is searched for the id
// of a record that was not found.
const maxRetainedInput = 1 << 10

// call runs call i. It is the only place that recovers from panics.
func (q *request) call(i int, name string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	p, ok := q.rt.procedures[name]
	if !ok {
		return problem.New(problem.NotFound, "there is no procedure %q", name)
	}
	telemetry.RequestFrom(q.r.Context()).SetRoute("rpc", name)
	if q.r.Method != p.method {
		q.response.allow(p.method)
		return problem.New(problem.MethodNotAllowed, "%s is called with %s", name, p.method)
	}
	ctx := q.plain
	if p.auth != Public { // before reading the body: unauthenticated clients must not keep the server waiting for one
		if ctx, err = q.session(); err != nil {
			return err
		}
		if err := q.rt.authorize(ctx, p.auth); err != nil {
			return err
		}
		if p.proof != NoProof && q.rt.requireProof != nil {
			if err := q.rt.requireProof(ctx, p.proof); err != nil {
				return err
			}
		}
	}
	input, err := q.inputOf(i)
	if err != nil {
		return err
	}
	var short []byte // a long input is released while the call waits
	if p.auth != Public && q.rt.onNotFound != nil && len(input) <= maxRetainedInput {
		short = bytes.Clone(input)
	}
	err = p.run(ctx, input, q.response)
	if short != nil && problem.Of(err) == problem.NotFound {
		var in struct{ ID string }
		if json.Unmarshal(short, &in) == nil && in.ID != "" {
			q.rt.onNotFound(ctx, in.ID)
		}
	}
	return err
}

func (q *request) authenticate() (context.Context, error) {
	ctx, err := q.rt.authenticate(q.w, q.r)
	if err != nil {
		return nil, err
	}
	return &callContext{Context: ctx, w: q.w, r: q.r}, nil
}

// inputOf returns the input of call i without its envelope, nil if there is none, and
// releases it. The first call that needs input reads the request for the whole batch; if
// that fails, no call has an input.
func (q *request) inputOf(i int) (json.RawMessage, error) {
	if !q.read {
		q.read = true
		q.inputErr = q.readInput()
	}
	if q.inputErr != nil {
		return nil, q.inputErr
	}
	envelope := q.input
	if q.batch {
		key := strconv.Itoa(i)
		envelope = q.inputs[key]
		delete(q.inputs, key)
	}
	if len(envelope) == 0 {
		return nil, nil
	}
	members, err := parseObject(envelope)
	if !q.batch {
		q.input = nil
		q.response.clearRequest()
	}
	if err != nil {
		return nil, err
	}
	if input := members["json"]; !isNull(input) {
		return input, nil
	}
	return nil, nil
}

// readInput reads the input of all calls.
func (q *request) readInput() error {
	raw, err := q.readBytes()
	if err != nil || len(raw) == 0 {
		return err
	}
	if !utf8.Valid(raw) {
		return problem.New(problem.Unparseable, "the input is not valid UTF-8")
	}
	if !q.batch {
		q.input = raw
		return nil
	}
	q.inputs, err = parseObject(raw)
	q.response.clearRequest()
	return err
}

func (q *request) readBytes() ([]byte, error) {
	if q.r.Method == http.MethodGet {
		if len(q.r.URL.RawQuery) > MaxQuery {
			return nil, errTooLarge(MaxQuery)
		}
		input, err := url.QueryUnescape(q.params)
		if err != nil {
			return nil, problem.New(problem.Unparseable, "the input is not valid percent-encoding")
		}
		return []byte(input), nil
	}

	mediaType := q.r.Header.Get("Content-Type")
	if mediaType != "" && !isJSON(mediaType) {
		return nil, problem.New(problem.UnsupportedMedia, "the content type must be application/json, not %q", mediaType)
	}
	if q.r.ContentLength > maxInput {
		return nil, errTooLarge(maxInput)
	}
	body := &q.response.request
	if _, err := body.ReadFrom(http.MaxBytesReader(q.w, q.r.Body, maxInput)); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, errTooLarge(maxInput)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) || q.r.Context().Err() != nil {
			return nil, fmt.Errorf("%w while sending: %w", errGone, err)
		}
		return nil, problem.New(problem.Unparseable, "the body could not be read").Because(err)
	}
	if mediaType == "" && body.Len() > 0 {
		return nil, problem.New(problem.UnsupportedMedia, "the content type must be application/json, but there is none")
	}
	return body.Bytes(), nil
}

func errTooLarge(limit int) error {
	return problem.New(problem.TooLarge, "the input is larger than %d bytes", limit)
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/json"
}

// parseQuery returns the two parameters of the protocol; of a repeated one the first
// counts. Unlike [url.ParseQuery] it accepts a raw semicolon, which JSON may contain, and
// leaves the input undecoded, so that an invalid encoding is an error instead of a
// missing input.
func parseQuery(raw string) (batch bool, input string) {
	var hasBatch, hasInput bool
	for pair := range strings.SplitSeq(raw, "&") {
		key, value, _ := strings.Cut(pair, "=")
		switch {
		case key == "batch" && !hasBatch:
			hasBatch, batch = true, value == "1"
		case key == "input" && !hasInput:
			hasInput, input = true, value
		}
	}
	return batch, input
}

// parseObject splits an envelope into its fields; null has none.
func parseObject(raw []byte) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	err := json.Unmarshal(raw, &members)
	if err == nil {
		return members, nil
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil, problem.New(problem.Invalid, `the input must be an object like {"json": …}`)
	}
	return nil, problem.New(problem.Unparseable, "the input is not valid JSON: %v", err)
}

// isNull reports whether raw is absent or null.
func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// panicError is the panic of a procedure, for the log.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }
