package rpc

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// code is the tRPC code of a kind of error.
type code struct {
	name   string
	number int
	status int
}

// codes maps kinds to tRPC codes. The numbers are tRPC's, except TOO_MANY_REQUESTS, which
// helpdesk.md section 7 defines.
var codes = [...]code{
	problem.Internal:         {"INTERNAL_SERVER_ERROR", -32603, http.StatusInternalServerError},
	problem.Invalid:          {"BAD_REQUEST", -32600, http.StatusBadRequest},
	problem.Unparseable:      {"PARSE_ERROR", -32700, http.StatusBadRequest},
	problem.Unauthorized:     {"UNAUTHORIZED", -32001, http.StatusUnauthorized},
	problem.Forbidden:        {"FORBIDDEN", -32003, http.StatusForbidden},
	problem.NotFound:         {"NOT_FOUND", -32004, http.StatusNotFound},
	problem.MethodNotAllowed: {"METHOD_NOT_SUPPORTED", -32005, http.StatusMethodNotAllowed},
	problem.Conflict:         {"CONFLICT", -32009, http.StatusConflict},
	problem.Precondition:     {"PRECONDITION_FAILED", -32012, http.StatusPreconditionFailed},
	problem.TooLarge:         {"PAYLOAD_TOO_LARGE", -32013, http.StatusRequestEntityTooLarge},
	problem.UnsupportedMedia: {"UNSUPPORTED_MEDIA_TYPE", -32015, http.StatusUnsupportedMediaType},
	problem.RateLimited:      {"TOO_MANY_REQUESTS", -32600, http.StatusTooManyRequests},
	problem.Unavailable:      {"SERVICE_UNAVAILABLE", -32603, http.StatusServiceUnavailable},
}

// gone is the code for a client that disconnected: proxies log this status.
var gone = code{"CLIENT_CLOSED_REQUEST", -32099, 499}

// reasons are the codes of errors that clients handle. They are sent next to the tRPC
// code.
var reasons = []string{account.SecondFactorRequired, account.SecondFactorSetupRequired, account.FreshProofRequired}

// maxIssues bounds the size of a response relative to its request.
const maxIssues = 100

// wireError is the error of an envelope.
type wireError struct {
	Message string    `json:"message"`
	Code    int       `json:"code"`
	Data    errorData `json:"data"`
}

type errorData struct {
	Code       string          `json:"code"`
	HTTPStatus int             `json:"httpStatus"`
	Path       string          `json:"path"`
	Reason     string          `json:"reason,omitempty"` // one of [reasons]
	Issues     []problem.Issue `json:"issues,omitempty"`
}

// response collects the response to one request, and has the buffer for reading it.
// Responses are pooled.
type response struct {
	request bytes.Buffer
	body    bytes.Buffer
	enc     *json.Encoder // writes to body

	status     int           // the common status of all calls so far, else 207; 0 before the first
	retryAfter time.Duration // the longest wait; 0: none
	allowed    []string      // methods for the Allow header

	// lines is the form of httpBatchStreamLink: superjson's envelope surrounds the whole
	// answer instead of each value, and the status is always 200.
	lines bool
}

// maxPooledBuffer is the maximum size of a buffer in the pool, so that one large request
// does not pin its memory.
const maxPooledBuffer = 64 << 10

var responsePool = sync.Pool{New: func() any {
	a := new(response)
	a.enc = json.NewEncoder(&a.body)
	a.enc.SetEscapeHTML(false)
	return a
}}

func newResponse() *response { return responsePool.Get().(*response) }

// release returns the response to the pool. Decoded input does not refer to its buffer:
// encoding/json copies.
func (a *response) release() {
	if a.request.Cap() > maxPooledBuffer || a.body.Cap() > maxPooledBuffer {
		return
	}
	a.request.Reset()
	a.body.Reset()
	a.status, a.retryAfter, a.allowed, a.lines = 0, 0, nil, false
	responsePool.Put(a)
}

// clearRequest releases the request's bytes after decoding: a call may wait long, and
// waiting requests must not fill the memory.
func (a *response) clearRequest() {
	if a.request.Cap() > maxPooledBuffer {
		a.request = bytes.Buffer{}
	}
}

// addStatus merges the status of one call.
func (a *response) addStatus(status int) {
	if a.status != 0 && a.status != status {
		status = http.StatusMultiStatus
	}
	a.status = status
}

func (a *response) allow(method string) {
	if !slices.Contains(a.allowed, method) {
		a.allowed = append(a.allowed, method)
	}
}

// result writes a success. After an error or a panic the body has a partial result, which
// the caller truncates.
func (a *response) result(out any) error {
	a.body.WriteString(`{"result":{"data":`)
	if err := a.value(out); err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	a.body.WriteString(`}}`)
	return nil
}

// value writes a value in superjson's envelope, unless that surrounds the whole answer.
func (a *response) value(v any) error {
	if !a.lines {
		a.body.WriteString(`{"json":`)
	}
	if err := a.enc.Encode(v); err != nil {
		return err
	}
	a.body.Truncate(a.body.Len() - 1) // Encode ends with a newline
	if !a.lines {
		a.body.WriteByte('}')
	}
	return nil
}

func (a *response) error(name string, c code, message, reason string, issues []problem.Issue) {
	if !slices.Contains(reasons, reason) {
		reason = ""
	}
	a.addStatus(c.status)
	a.body.WriteString(`{"error":`)
	// Strings and integers always encode, and a bytes.Buffer takes everything.
	_ = a.value(wireError{message, c.number, errorData{c.name, c.status, name, reason, issues[:min(len(issues), maxIssues)]}})
	a.body.WriteByte('}')
}

func (a *response) send(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Disposition", `attachment; filename="api.json"`) // a fixed name, in case a browser saves it
	h.Set("Content-Length", strconv.Itoa(a.body.Len()))
	h.Set("Cache-Control", "no-store")
	if a.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(a.retryAfter), 10))
	}
	if a.lines {
		a.status = http.StatusOK
	}
	if a.status == http.StatusMethodNotAllowed {
		slices.Sort(a.allowed)
		h.Set("Allow", strings.Join(a.allowed, ", "))
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // fails only if the client has disconnected
}

// seconds rounds up, so that a client that waits as told is not refused again.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// fail adds an error to the response and, if an operator should see it, to the log.
func (q *request) fail(name string, err error) {
	ctx := q.r.Context()
	if _, panicked := errors.AsType[*panicError](err); !panicked && q.interrupted(err) {
		// The server's shutdown has its own cause, unlike a client's disconnect.
		if cause := context.Cause(ctx); cause == nil || cause == context.Canceled {
			q.rt.log.InfoContext(ctx, "client went away", "procedure", name, "status", gone.status, "error", err)
			q.response.error(name, gone, errGone.Error(), "", nil)
			return
		}
		err = problem.New(problem.Unavailable, "the request was interrupted, try again").Because(err)
	}

	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind == problem.Internal || int(p.Kind) >= len(codes) {
		id := rand.Text()[:12]
		attrs := []slog.Attr{slog.String("id", id), slog.String("procedure", name), slog.Any("error", err)}
		if p, ok := errors.AsType[*panicError](err); ok {
			attrs = append(attrs, slog.String("stack", string(p.stack)))
		}
		q.rt.log.LogAttrs(ctx, slog.LevelError, "procedure failed", attrs...)
		q.response.error(name, codes[problem.Internal], "internal error (id "+id+")", "", nil)
		return
	}

	if p.Kind == problem.Forbidden {
		if q.session != nil {
			if known, err := q.session(); err == nil {
				ctx = known // names the user
			}
		}
		audit.LogSecurityEvent(ctx, q.rt.log, "request.refused", slog.String("procedure", name[:min(len(name), 100)]))
	}
	if p.Kind == problem.Unavailable {
		q.rt.log.DebugContext(ctx, "procedure unavailable", "procedure", name, "error", err)
	} else if p.Cause != nil {
		q.rt.log.DebugContext(ctx, "procedure refused", "procedure", name, "error", err)
	}
	q.response.retryAfter = max(q.response.retryAfter, p.RetryAfter)
	q.response.error(name, codes[p.Kind], p.Message, p.Code, p.Issues)
}

// interrupted reports whether err results from the end of the request. Drivers do not
// always say so, so any internal error after it counts.
func (q *request) interrupted(err error) bool {
	over := q.r.Context().Err()
	return errors.Is(err, errGone) || over != nil && (problem.Of(err) == problem.Internal || errors.Is(err, over))
}
