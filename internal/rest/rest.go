// Package rest implements the REST conventions shared by all public APIs: authentication and
// the order of checks, problem details, lists and cursors, filters and sort orders, bodies,
// entity tags, idempotent retries, exports, rate limits, and the OpenAPI document. Operations
// are data: a [Route] describes an operation, a [schema.Record] its input and output. The same
// description validates requests and generates the document and the reference pages. The routes
// are declared by the packages below this folder.
//
// An [API] serves one base path for one service and environment. It checks requests in the
// order of fleet-api.md 3.3, and [API.ServeHTTP] follows that table. Every answer below the
// base has rate limit headers: of the key's window or, if authentication failed, of the
// address's bucket of failed authentications.
//
// Handlers write inside [Request.Write], in one transaction with the answer stored for the
// request's Idempotency-Key: after a crash either both exist or neither.
//
// For services with subaccounts, step 7 also narrows the key's scope to the subaccounts that
// the request names; [Request.Scope] is the result.
package rest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

// RateLimiter limits the actions per key in a window of a minute. It is safe for concurrent use.
type RateLimiter interface {
	// Acquire counts one action of key and returns true, or returns false if the limit is reached.
	Acquire(ctx context.Context, key string, limit int64) (ratelimit.State, bool, error)
	// AcquireUpTo counts up to n actions of key, as many as limit leaves, and returns their number.
	AcquireUpTo(ctx context.Context, key string, limit, n int64) (ratelimit.State, int64, error)
	// Peek returns the state without counting.
	Peek(ctx context.Context, key string, limit int64) (ratelimit.State, error)
}

// Config configures an [API].
type Config struct {
	Base string // "/api/v1"
	// Host is the only host, "api.example.com", that the API answers, with the port if it must
	// match. Empty: any.
	Host        string
	Origin      string // "https://help.example.com"
	Service     apikey.ServiceName
	Environment apikey.Environment
	Realm       string // of WWW-Authenticate: "helpdesk"

	// Addresses are the base URLs of all APIs of the deployment, to help clients that use a key
	// at the wrong one.
	Addresses map[apikey.API]string

	Title       string // of the document
	Description string
	Version     string // of the API: the date of its last change, "2026-11-23"
	Docs        string // path of the reference: "/api/docs"
	// Tags describes the groups of operations, by tag.
	Tags map[string]string
	// Webhooks are the requests that the service sends.
	Webhooks []Webhook
	// ExampleID returns the id of a record ("ticket") in examples of the document. nil: a UUID.
	ExampleID func(of string) string

	Keys           *apikey.Service
	KeyLimiter     RateLimiter
	AddressLimiter RateLimiter // of failed authentications
	DB             *db.DB      // of the routes' data and the Idempotency-Keys
	Box            *seal.Box
	TrustedProxies []netip.Prefix
	Audit          *audit.Log      // of DB; nil records nothing
	Requests       *requestlog.Log // nil: no log, and no routes for it
	// NotFound is called with each id in the path of a request answered not_found, which may
	// belong to another organization. nil: not called.
	NotFound func(ctx context.Context, organizationID, id string)
	Log      *slog.Logger // nil discards
	Routes   []Route

	// Subaccounts returns the ids of an organization's subaccounts. nil: the service has none,
	// and scopes are not narrowed.
	Subaccounts func(ctx context.Context, organizationID string) ([]string, error)
}

// API serves all requests below one base path. It is safe for concurrent use.
type API struct {
	c       Config
	log     *slog.Logger
	routes  []Route
	tree    pathNode
	names   map[*Route][]string // names of path parameters
	running inFlight

	openAPI func() (document, error) // built on first use
}

// document is the encoded OpenAPI document.
type document struct {
	text []byte
	tag  string // the entity tag
}

// New returns an API with the given routes. The error reports an invalid description.
func New(c Config) (*API, error) {
	a := &API{c: c, log: c.Log, names: make(map[*Route][]string)}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.routes = append(a.routes, c.Routes...)
	a.routes = append(a.routes, a.keyRoute())
	if c.Requests != nil {
		a.routes = append(a.routes, a.requestRoutes()...)
	}
	ids := map[string]bool{}
	for i := range a.routes {
		rt := &a.routes[i]
		rt.narrows = c.Subaccounts != nil
		if rt.Import != nil {
			rt.Query = append(slices.Clip(rt.Query), importParam, conflictParam)
		}
		if err := rt.check(); err != nil {
			return nil, fmt.Errorf("route %s %s: %w", rt.Method, rt.Path, err)
		}
		if ids[rt.ID] {
			return nil, fmt.Errorf("route %s %s: the operation id %q is taken", rt.Method, rt.Path, rt.ID)
		}
		ids[rt.ID] = true
		names, err := a.tree.add(rt)
		if err != nil {
			return nil, fmt.Errorf("route %s %s: %w", rt.Method, rt.Path, err)
		}
		a.names[rt] = names
	}
	// Its GET needs no key; other methods are refused like any other, with one.
	if _, err := a.tree.add(&Route{Method: http.MethodGet, Path: documentPath}); err != nil {
		return nil, fmt.Errorf("route %s: %w", documentPath, err)
	}
	a.openAPI = sync.OnceValues(func() (document, error) {
		text, err := a.document31()
		return document{text, etag(text)}, err
	})
	return a, nil
}

// documentPath is the path of the OpenAPI document below the base.
const documentPath = "/openapi.json"

// Wrap returns a handler that serves requests of the API with unmodified paths and passes the
// rest to next. [http.ServeMux] would redirect unclean paths without the API's headers.
func (a *API) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.Path, a.c.Base); ok && (rest == "" || rest[0] == '/') && a.isHost(r.Host) {
			a.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isHost reports whether the API serves a host.
func (a *API) isHost(host string) bool {
	if a.c.Host == "" || strings.EqualFold(host, a.c.Host) {
		return true
	}
	name, _, err := net.SplitHostPort(host)
	return err == nil && strings.EqualFold(name, strings.Trim(a.c.Host, "[]"))
}

// ServeHTTP implements [http.Handler] for all requests below the base.
func (a *API) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	r, bucket := a.begin(w, hr)
	defer a.logRequest(r)
	defer a.recover(w, r)
	path := strings.TrimPrefix(hr.URL.Path, a.c.Base)
	if path == documentPath && (hr.Method == http.MethodGet || hr.Method == http.MethodHead) {
		a.serveOpenAPI(w, r, bucket)
		return
	}
	if !a.admit(w, r, bucket) {
		return
	}
	if err := a.serve(w, r, path); err != nil {
		a.writeError(w, r, err)
	}
}

// begin returns a request, and the bucket of its address.
func (a *API) begin(w http.ResponseWriter, hr *http.Request) (r *Request, bucket string) {
	r = &Request{api: a, http: hr, header: w.Header(), ID: requestID(hr), UserAgent: hr.UserAgent(), start: time.Now(), surface: audit.REST}
	if audit.SourceOf(hr.Context()).Surface == audit.MCP {
		r.surface = audit.MCP
	}
	w.Header()["X-Request-Id"] = r.headerLine(r.ID)
	w.Header()["Cache-Control"] = noStore
	ip, whole := browser.Trace(hr, a.c.TrustedProxies)
	if whole {
		r.IP = ip
	}
	return r, bucketOf(ip)
}

// requestID returns the X-Request-Id of a request if it has an acceptable form, which clients may
// choose (fleet-api.md 0), and makes it the id of the request everywhere; else the id that the
// request has.
func requestID(hr *http.Request) string {
	if v := hr.Header["X-Request-Id"]; len(v) == 1 && telemetry.IsRequestID(v[0]) {
		telemetry.RequestFrom(hr.Context()).SetID(v[0])
		return v[0]
	}
	return browser.RequestID(hr)
}

// admit executes the steps 1 to 5. It returns false if it has answered.
func (a *API) admit(w http.ResponseWriter, r *Request, bucket string) bool {
	// Steps 1 to 4: authentication.
	token, err := bearer(r.http.Header)
	if err == nil {
		r.Key, err = a.c.Keys.Authenticate(audit.WithSource(r.http.Context(), r.source()), apikey.Request{
			Token: token, Service: a.c.Service, Environment: a.c.Environment, IP: r.IP,
		})
	}
	if err != nil {
		a.refuse(w, r, bucket, err)
		return false
	}
	// Step 5: rate limit of the key.
	return a.allowRequest(w, r)
}

// Admit executes the steps 1 to 5 for a request to another endpoint that accepts the keys of
// this API, and returns the key, which must not be modified. If it returns nil, it has answered.
func (a *API) Admit(w http.ResponseWriter, hr *http.Request) *apikey.Key {
	r, bucket := a.begin(w, hr)
	if !a.admit(w, r, bucket) {
		a.logRequest(r)
		return nil
	}
	return r.Key
}

// ServeAdmitted executes the steps from 6 on for a request with a key of [API.Admit].
func (a *API) ServeAdmitted(w http.ResponseWriter, hr *http.Request, k *apikey.Key) {
	r, _ := a.begin(w, hr)
	r.Key = k
	defer a.logRequest(r)
	defer a.recover(w, r)
	if err := a.serve(w, r, strings.TrimPrefix(hr.URL.Path, a.c.Base)); err != nil {
		a.writeError(w, r, err)
	}
	if r.surface == audit.MCP && !r.callRecorded && r.route != nil {
		e := r.call()
		e.Details["code"] = r.code
		a.c.Audit.Refuse(audit.WithSource(hr.Context(), r.source()), e)
	}
}

// Base returns the base path.
func (a *API) Base() string { return a.c.Base }

// ToolCalled is the action of the audit log for each operation that an MCP client calls.
const ToolCalled audit.Action = "tool.called"

// recordCall records a call by an MCP client in the audit log before it runs: a call that cannot
// be recorded must not happen. A call that is refused before is recorded as a refusal.
func (a *API) recordCall(r *Request) error {
	if r.surface != audit.MCP || a.c.Audit == nil {
		return nil
	}
	err := a.c.Audit.Record(audit.WithSource(r.http.Context(), r.source()), r.call())
	r.callRecorded = err == nil
	return err
}

// call returns the entry of the audit log about the request of an MCP client.
func (r *Request) call() audit.Entry {
	return audit.Entry{
		OrganizationID: r.Key.OrganizationID, Action: ToolCalled, Target: audit.Target{Type: "operation", ID: r.route.ID, Name: r.route.ID},
		Details: map[string]any{"method": r.http.Method, "path": r.loggedPath()},
	}
}

// serve executes the steps from 6 on. It returns an error if it has not answered.
func (a *API) serve(w http.ResponseWriter, r *Request, path string) error {
	hr := r.http
	// Step 6: path and method.
	at := a.tree.find(path, &r.path)
	if at == nil {
		return apiErrorf("route_not_found", "The API has no path %s.", schema.Clip(hr.URL.Path))
	}
	if hr.Method == http.MethodOptions {
		w.Header()["Allow"] = []string{at.allow}
		r.writeStatus(w, http.StatusNoContent)
		return nil
	}
	if r.route = at.route(hr.Method); r.route == nil {
		f := apiErrorf("method_not_allowed", "%s supports only the methods %s.", schema.Clip(hr.URL.Path), at.allow)
		f.headers = [][2]string{{"Allow", at.allow}}
		return f
	}
	rt := r.route
	rt.Deprecated.setHeaders(w.Header())
	// Step 7: permissions of the operation and its expansions.
	if rt.Needs != (Permission{}) && !r.Can(rt.Needs.Resource, rt.Needs.Action) {
		return a.denied(rt.Needs)
	}
	var raw url.Values
	var badQuery error
	if hr.URL.RawQuery != "" {
		raw, badQuery = url.ParseQuery(hr.URL.RawQuery)
		rt.joinLists(raw)
		for _, e := range rt.expansions(raw) {
			if !r.Can(e.Needs.Resource, e.Needs.Action) {
				return a.denied(e.Needs)
			}
		}
	}
	if err := r.reach(hr.Context(), raw); err != nil {
		return err
	}
	// Step 8: media types, body and query.
	kind, badType := rt.importType(hr.Header)
	r.importing.kind = kind
	var err error
	if r.format, err = rt.chooseFormat(hr.Header["Accept"]); err != nil && (kind == "" || quality(hr.Header["Accept"], NDJSON) == 0) {
		return err
	}
	if badType != nil {
		return badType
	}
	if err := a.readBody(w, r); err != nil {
		return err
	}
	if err := r.reachBody(hr.Context()); err != nil { // rest of step 7
		return err
	}
	if badQuery != nil {
		return &apiError{code: "invalid_parameter", detail: "The query is not well formed."}
	}
	if err := rt.checkQuery(&r.query, r.listKey(), raw, r.Exporting()); err != nil {
		return err
	}
	if (r.format == formatCSV || r.format == formatParquet) && len(r.query.expand) > 0 {
		return BadParameter("expand[]", "CSV and Parquet have no expansions; NDJSON has.")
	}
	if err := a.recordCall(r); err != nil {
		return problem.New(problem.Unavailable, "the audit log is unavailable").Because(err)
	}
	// Step 9: idempotent retries.
	changes := hr.Method != http.MethodGet && hr.Method != http.MethodHead
	if changes && len(hr.Header["Idempotency-Key"]) > 0 {
		return a.serveOnce(w, r)
	}
	// Step 10: the operation.
	got, err := a.handle(r)
	if err != nil {
		return err
	}
	if got.rows != nil {
		return a.export(w, r, &got)
	}
	if got.file != nil {
		a.sendFile(w, r, got.file)
		return nil
	}
	if got.stream != nil {
		r.sendStream(w, got.stream)
		return nil
	}
	a.answer(w, r, &got)
	return nil
}

// handle runs the operation and encodes its answer.
func (a *API) handle(r *Request) (Response, error) {
	handle := r.route.Handle
	if r.importing.kind != "" {
		handle = r.route.Import.Handle
	}
	got, err := handle(audit.WithSource(r.http.Context(), r.source()), r)
	if err != nil {
		return Response{}, err
	}
	if (got.rows != nil) != r.Exporting() {
		return Response{}, fmt.Errorf("%s answers with an export that was not requested, or the reverse", r.route.ID)
	}
	if got.line && !r.ExportingGeoJSON() {
		return Response{}, fmt.Errorf("%s answers with a line without a request for GeoJSON", r.route.ID)
	}
	if (got.file != nil) != r.route.File {
		return Response{}, fmt.Errorf("%s answers with a file without File in its route, or the reverse", r.route.ID)
	}
	if (got.stream != nil) != r.route.Stream {
		return Response{}, fmt.Errorf("%s answers with a stream without Stream in its route, or the reverse", r.route.ID)
	}
	changes := r.http.Method != http.MethodGet && r.http.Method != http.MethodHead
	if changes && !r.wrote && !r.route.Claim {
		return Response{}, fmt.Errorf("%s did not change anything in Request.Write", r.route.ID)
	}
	err = r.finish(&got)
	return got, err
}

// noStore keeps private answers out of shared caches.
var noStore = []string{"private, no-cache"}

// writeError answers with the error of a request.
func (a *API) writeError(w http.ResponseWriter, r *Request, err error) {
	var input *schema.Record
	if r.route != nil {
		input = r.route.Input
	}
	f := toAPIError(err, input)
	if f.code == "permission_denied" && f.details == nil && r.route != nil {
		f = a.denied(r.route.Needs) // refused by a service, which does not know permissions
	}
	if f.code == "not_found" && a.c.NotFound != nil && r.Key != nil {
		ctx := audit.WithSource(r.http.Context(), r.source())
		for _, name := range a.names[r.route] {
			a.c.NotFound(ctx, r.Key.OrganizationID, r.Path(name))
		}
	}
	if f.code == "internal_error" || f.code == "unavailable" {
		if r.http.Context().Err() != nil && errors.Is(err, context.Canceled) {
			r.writeStatus(w, 499) // the client has gone
			return
		}
		level := slog.LevelError
		if f.code == "unavailable" {
			level = slog.LevelDebug // logged by the database or the store of files
		}
		a.log.Log(r.http.Context(), level, "request failed", "request", r.ID, "method", r.http.Method, "path", schema.Clip(r.http.URL.Path), "error", err)
	}
	a.fail(w, r, f)
}

// recover answers 500 for a handler that panicked, or aborts an answer under way.
func (a *API) recover(w http.ResponseWriter, r *Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	a.log.ErrorContext(r.http.Context(), "request panicked", "request", r.ID, "method", r.http.Method, "path", schema.Clip(r.http.URL.Path), "panic", v, "stack", string(debug.Stack()))
	if r.answerStarted {
		panic(http.ErrAbortHandler)
	}
	a.fail(w, r, apiErrorf("internal_error", "The request could not be answered."))
}

// headerLine returns the values of a header without a separate allocation.
func (r *Request) headerLine(s string) []string {
	for i := range r.lines {
		if r.lines[i] == "" {
			r.lines[i] = s
			return r.lines[i : i+1 : i+1]
		}
	}
	return []string{s}
}

// bearer returns the token of the Authorization header.
func bearer(h http.Header) (string, error) {
	lines := h["Authorization"]
	if len(lines) == 0 {
		return "", apiErrorf("missing_credentials", "The header Authorization is missing; it is Bearer and an API key.")
	}
	scheme, token, ok := strings.Cut(lines[0], " ")
	token = strings.TrimLeft(token, " ")
	if len(lines) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t,") {
		return "", apiErrorf("malformed_authorization", "The header Authorization must come once, as Bearer and one API key.")
	}
	return token, nil
}

// defaultMaxBody bounds JSON bodies (fleet-api.md 5).
const defaultMaxBody int64 = 1 << 20

// grownAtOnce bounds the memory allocated for an announced Content-Length; the rest grows as
// bytes arrive.
const grownAtOnce = 64 << 10

// readBody reads and parses the body, if any.
func (a *API) readBody(w http.ResponseWriter, r *Request) error {
	hr, rt := r.http, r.route
	takes := hr.Method == http.MethodPost || hr.Method == http.MethodPut
	if hr.ContentLength == 0 || hr.Body == nil || hr.Body == http.NoBody {
		return r.emptyBody(takes)
	}
	limit := cmp.Or(rt.MaxBody, defaultMaxBody)
	if r.importing.kind != "" {
		limit = maxImport
	}
	if hr.ContentLength < 0 { // chunked: read to detect an empty body
		text, err := a.slurp(w, r, limit)
		if err != nil {
			return err
		}
		if len(text) == 0 {
			return r.emptyBody(takes)
		}
		r.Body = text
	}
	kind, _, err := mime.ParseMediaType(hr.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && r.importing.kind == "" && !(rt.Reports && kind == NDJSON) {
		return rt.unsupported("The body must be " + schema.OrList(rt.bodyTypes()) + ".")
	}
	if enc := hr.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return rt.unsupported("The body must not be compressed.")
	}
	if hr.ContentLength > limit {
		return tooLarge(limit)
	}
	if hr.Method == http.MethodGet || hr.Method == http.MethodHead {
		return nil // the operation has no body
	}
	if r.Body == nil {
		if r.Body, err = a.slurp(w, r, limit); err != nil {
			return err
		}
	}
	if r.importing.kind != "" {
		if f := r.cut(); f != nil {
			return f
		}
		return nil
	}
	if rt.Reports {
		r.ndjson = kind == NDJSON
		return nil
	}
	if r.body, err = schema.Parse(r.Body); errors.Is(err, schema.ErrTooMany) {
		return apiErrorf("body_too_large", "The body may have at most %d values.", schema.MaxNodes)
	} else if err != nil {
		return apiErrorf("invalid_json", "%s", sentence(err.Error()))
	}
	return nil
}

func tooLarge(limit int64) *apiError {
	return apiErrorf("body_too_large", "The body may have at most %d bytes.", limit)
}

// emptyBody turns a missing body into an empty object, where the operation accepts one.
func (r *Request) emptyBody(takes bool) error {
	if !takes {
		return nil
	}
	r.body = schema.Node{Kind: '{'}
	if r.route.Input == nil {
		return nil
	}
	if r.http.Method == http.MethodPut || r.route.Input.HasRequired() {
		return apiErrorf("invalid_json", "The body is empty; an object is expected.")
	}
	return nil
}

func (a *API) slurp(w http.ResponseWriter, r *Request, limit int64) ([]byte, error) {
	var b bytes.Buffer
	if n := r.http.ContentLength; n > 0 && n <= limit {
		b.Grow(int(min(n, grownAtOnce)) + bytes.MinRead)
	}
	_, err := b.ReadFrom(http.MaxBytesReader(w, r.http.Body, limit))
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(e.Limit)
	}
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, apiErrorf("invalid_json", "The body ends too early.")
		}
		return nil, problem.New(problem.Unavailable, "the body could not be read").Because(err)
	}
	return b.Bytes(), nil
}
