package telemetry

import (
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Edge is the outermost handler: it gives each request its id, measures it, begins its trace and
// writes its line of the access log.
type Edge struct {
	Metrics *Metrics
	Tracer  *Tracer    // nil: no traces
	Access  *AccessLog // nil: none
	// TrustedProxies are the networks of proxies with a trusted X-Request-Id and traceparent.
	TrustedProxies []netip.Prefix
	Next           http.Handler
}

// ServeHTTP implements [http.Handler].
func (e *Edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	id, parent := "", ""
	if e.trusted(r.RemoteAddr) {
		if v := r.Header["X-Request-Id"]; len(v) == 1 && IsRequestID(v[0]) {
			id = v[0]
		}
		parent = r.Header.Get("Traceparent")
	}
	if id == "" {
		id = NewRequestID()
	}
	info := NewRequest(id)
	ctx := WithRequest(r.Context(), info)
	var span trace.Span
	if e.Tracer != nil {
		ctx, span = e.Tracer.Continue(ctx, parent, r.Method, trace.SpanKindServer)
	}
	w.Header()["X-Request-Id"] = []string{id}
	seen := &response{ResponseWriter: w}
	e.Metrics.inFlight.Inc()
	aborted := true
	defer func() {
		e.Metrics.inFlight.Dec()
		e.finish(info, r, seen, span, time.Since(start), aborted)
	}()
	e.Next.ServeHTTP(seen, r.WithContext(ctx))
	aborted = false
}

// finish records the end of a request. aborted means that the handler panicked, which ends the
// connection.
func (e *Edge) finish(info *Request, r *http.Request, seen *response, span trace.Span, took time.Duration, aborted bool) {
	status := seen.status
	if status == 0 && !aborted {
		status = http.StatusOK
	}
	surface, route := info.labels()
	if !seen.stream() {
		code := "aborted"
		if !aborted {
			code = statusClass(status)
		}
		e.Metrics.requests.WithLabelValues(surface, route, code).Observe(took.Seconds())
	}
	if span != nil {
		span.SetName(r.Method + " " + withoutMethod(route))
		span.SetAttributes(attribute.String("http.request.method", r.Method), attribute.String("http.route", withoutMethod(route)),
			attribute.Int("http.response.status_code", status), attribute.String("kickstand.surface", surface), attribute.String("kickstand.request_id", info.ID()))
		if status >= 500 || aborted {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
	if e.Access != nil {
		e.Access.write(info, r.Method, surface, withoutMethod(route), status, seen.bytes, took)
	}
}

// withoutMethod returns the path of a pattern such as "GET /tickets/{id}".
func withoutMethod(route string) string {
	if method, path, ok := strings.Cut(route, " "); ok && method == strings.ToUpper(method) {
		return path
	}
	return route
}

func (e *Edge) trusted(peer string) bool {
	if len(e.TrustedProxies) == 0 {
		return false
	}
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return false
	}
	ip := at.Addr().Unmap().WithZone("")
	for _, p := range e.TrustedProxies {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// response notes the status and the length of a response.
type response struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// Unwrap supports [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets the server send files without copying them.
func (w *response) ReadFrom(src io.Reader) (int64, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := io.Copy(w.ResponseWriter, src)
	w.bytes += n
	return n, err
}

// Flush implements [http.Flusher].
func (w *response) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// stream reports whether the response is an event stream, which lasts as long as its page.
func (w *response) stream() bool { return w.Header().Get("Content-Type") == "text/event-stream" }

// AccessLog writes a line of JSON per request. It has routes instead of paths: paths and queries
// contain tokens and addresses of customers.
type AccessLog struct {
	mu  sync.Mutex
	out io.Writer
}

// NewAccessLog returns a log on out.
func NewAccessLog(out io.Writer) *AccessLog { return &AccessLog{out: out} }

type accessLine struct {
	Time         string  `json:"time"`
	RequestID    string  `json:"request_id"`
	Method       string  `json:"method"`
	Surface      string  `json:"surface"`
	Route        string  `json:"route"`
	Status       int     `json:"status"` // 0: the connection was ended without a response
	Bytes        int64   `json:"bytes"`
	Milliseconds float64 `json:"duration_ms"`
	Organization string  `json:"organization_id,omitempty"`
	Key          string  `json:"key_id,omitempty"`
}

func (l *AccessLog) write(info *Request, method, surface, route string, status int, bytes int64, took time.Duration) {
	info.mu.Lock()
	line := accessLine{
		Time: time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), RequestID: info.id, Method: knownMethod(method), Surface: surface, Route: route,
		Status: status, Bytes: bytes, Milliseconds: float64(took.Microseconds()) / 1000, Organization: info.organization, Key: info.key,
	}
	info.mu.Unlock()
	l.writeLine(line)
}

// Mail is a mail that was received by SMTP, for the access log.
type Mail struct {
	ID           string // empty: none was assigned
	Status       int    // SMTP reply code
	Result       string // accepted, duplicate, or the reason of a refusal
	Bytes        int64
	Recipients   int
	TLS          string // version and cipher; empty: none
	Took         time.Duration
	Organization string // if all copies are of one
}

type mailLine struct {
	Time         string  `json:"time"`
	MailID       string  `json:"mail_id,omitempty"`
	Surface      string  `json:"surface"`
	Status       int     `json:"status"`
	Result       string  `json:"result"`
	Bytes        int64   `json:"bytes"`
	Recipients   int     `json:"recipients"`
	TLS          string  `json:"tls,omitempty"`
	Milliseconds float64 `json:"duration_ms"`
	Organization string  `json:"organization_id,omitempty"`
}

// Mail writes the line of a mail.
func (l *AccessLog) Mail(m Mail) {
	l.writeLine(mailLine{
		Time: time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), MailID: m.ID, Surface: "smtp", Status: m.Status, Result: m.Result,
		Bytes: m.Bytes, Recipients: m.Recipients, TLS: m.TLS, Milliseconds: float64(m.Took.Microseconds()) / 1000, Organization: m.Organization,
	})
}

func (l *AccessLog) writeLine(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		return // cannot happen: all fields are text and numbers
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.Write(append(text, '\n'))
}

// knownMethod returns a standard method, or "other".
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// Routed serves by next, a surface, and notes the pattern that the mux in it chose for a request,
// unless an inner handler knows the route better.
func Routed(surface string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { RequestFrom(r.Context()).SetRoute(surface, r.Pattern) }()
		next.ServeHTTP(w, r)
	})
}
