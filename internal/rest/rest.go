// Package rest is the REST conventions, once, for every API of the house: who is
// let in and in which order that is found out, problem details, lists and
// cursors, filters and sorts, bodies, entity tags, retries that are safe,
// exports, limits, and the OpenAPI document. What there is to call is data: a
// [Route] describes an operation, a [Record] what it takes and gives, and the
// same description checks requests, writes the document and the pages for
// people. The routes themselves are in the packages below this folder.
//
// An [API] is one base address for one service and environment. The order of its
// checks is that of fleet-api.md 3.3, and [API.ServeHTTP] reads like that table.
// Every answer below the base has the headers of a limit: of the key's window,
// or, when the request did not get past the key's own checks, of the bucket of
// failed authentications of its address.
//
// What a handler changes it changes inside of [Request.Write], in one
// transaction with the answer that is stored for the request's Idempotency-Key:
// after a crash there are both or neither.
//
// Where a service has subaccounts, step 7 also narrows the key's scope to what the
// request names, and [Request.Scope] is what is left of it.
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

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// Windows count what keys or addresses do within a minute. They are safe for
// concurrent use.
type Windows interface {
	// Acquire counts one more under key, if the limit is not reached, and reports
	// whether it did.
	Acquire(ctx context.Context, key string, limit int64) (ratelimit.State, bool, error)
	// Peek looks without counting.
	Peek(ctx context.Context, key string, limit int64) (ratelimit.State, error)
}

// Config is what [New] needs.
type Config struct {
	Base string // "/api/v1"
	// Host is the only one at which the API answers, "api.example.com", with a port
	// if it is to matter. Empty: any.
	Host        string
	Origin      string // "https://help.example.com"
	Service     apikey.ServiceName
	Environment apikey.Environment
	Realm       string // of WWW-Authenticate: "helpdesk"

	// Addresses are the base URLs of all APIs of the deployment, for keys that are
	// sent to the wrong one.
	Addresses map[apikey.API]string

	Title       string // of the document
	Description string
	Version     string // of the API: "1.0"

	Keys           *apikey.Service
	KeyWindows     Windows
	AddressWindows Windows // of failed authentications
	DB             *db.DB  // where what the routes change is, and the Idempotency-Keys
	Box            *seal.Box
	TrustedProxies []netip.Prefix
	Audit          *audit.Log // of DB; nil records nothing
	// NotFound is called with each id in the path of a request that was answered
	// not_found, in case it is another organization's. Nil: nothing is.
	NotFound func(ctx context.Context, organizationID, id string)
	Log      *slog.Logger // nil discards
	Routes   []Route

	// Subaccounts returns the ids of an organization's subaccounts. Nil: the
	// service has none, and nothing is narrowed.
	Subaccounts func(ctx context.Context, organizationID string) ([]string, error)
}

// API answers everything below one base address. It is safe for concurrent use.
type API struct {
	c       Config
	log     *slog.Logger
	routes  []Route
	tree    pathNode
	names   map[*Route][]string // of the parts of its path that vary
	running inFlight

	openAPI func() (document, error) // makes it once, when it is first wanted
}

// document is the OpenAPI document as it is sent.
type document struct {
	text []byte
	tag  string // the entity tag
}

// New returns the API of some routes. The error says what is wrong with their
// description.
func New(c Config) (*API, error) {
	a := &API{c: c, log: c.Log, names: make(map[*Route][]string)}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.routes = append(a.routes, c.Routes...)
	a.routes = append(a.routes, a.keyRoute())
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
	// It is answered before there is a key; its other methods are refused with one.
	if _, err := a.tree.add(&Route{Method: http.MethodGet, Path: documentPath}); err != nil {
		return nil, fmt.Errorf("route %s: %w", documentPath, err)
	}
	a.openAPI = sync.OnceValues(func() (document, error) {
		text, err := a.document31()
		return document{text, etag(text)}, err
	})
	return a, nil
}

// documentPath is where the OpenAPI document is, below the base.
const documentPath = "/openapi.json"

// Wrap returns a handler that answers what belongs to the API itself, with the
// paths as they were sent, and leaves the rest to next. [http.ServeMux] would
// redirect what it wants written otherwise, without the API's headers.
func (a *API) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.Path, a.c.Base); ok && (rest == "" || rest[0] == '/') && a.isHost(r.Host) {
			a.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isHost reports whether the API answers at a host.
func (a *API) isHost(host string) bool {
	if a.c.Host == "" || strings.EqualFold(host, a.c.Host) {
		return true
	}
	name, _, err := net.SplitHostPort(host)
	return err == nil && strings.EqualFold(name, strings.Trim(a.c.Host, "[]"))
}

// ServeHTTP implements [http.Handler] for everything below the base.
func (a *API) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	r := &Request{api: a, http: hr, ID: browser.RequestID(hr.Header), UserAgent: hr.UserAgent()}
	w.Header()["X-Request-Id"] = r.headerLine(r.ID)
	w.Header()["Cache-Control"] = noStore
	defer a.recover(w, r)
	ip, whole := browser.Trace(hr, a.c.TrustedProxies)
	if whole {
		r.IP = ip
	}
	bucket := bucketOf(ip)
	path := strings.TrimPrefix(hr.URL.Path, a.c.Base)
	if path == documentPath && (hr.Method == http.MethodGet || hr.Method == http.MethodHead) {
		a.serveOpenAPI(w, r, bucket)
		return
	}

	// Steps 1 to 4: who asks.
	token, err := bearer(hr.Header)
	if err == nil {
		r.Key, err = a.c.Keys.Authenticate(audit.WithSource(hr.Context(), r.source()), apikey.Request{
			Token: token, Service: a.c.Service, Environment: a.c.Environment, IP: r.IP,
		})
	}
	if err != nil {
		a.refuse(w, r, bucket, err)
		return
	}
	// Step 5: the key's window.
	if !a.allowRequest(w, r) {
		return
	}
	if err := a.serve(w, r, path); err != nil {
		a.writeError(w, r, err)
	}
}

// serve does the steps from 6 on. What it returns was not answered.
func (a *API) serve(w http.ResponseWriter, r *Request, path string) error {
	hr := r.http
	// Step 6: path and method.
	at := a.tree.find(path, &r.path)
	if at == nil {
		return apiErrorf("route_not_found", "There is nothing at %s.", clip(hr.URL.Path))
	}
	if hr.Method == http.MethodOptions {
		w.Header()["Allow"] = []string{at.allow}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if r.route = at.route(hr.Method); r.route == nil {
		f := apiErrorf("method_not_allowed", "%s has %s.", clip(hr.URL.Path), at.allow)
		f.headers = [][2]string{{"Allow", at.allow}}
		return f
	}
	rt := r.route
	// Step 7: permissions, of the operation and of what it expands.
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
	// Step 8: what is sent and what is wanted.
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
	if err := r.reachBody(hr.Context()); err != nil { // the rest of step 7
		return err
	}
	if badQuery != nil {
		return &apiError{code: "invalid_parameter", detail: "The query is not well formed."}
	}
	if r.query, err = rt.checkQuery(r.place(), raw, r.Exporting()); err != nil {
		return err
	}
	if r.format == formatCSV && len(r.query.expand) > 0 {
		return BadParameter("expand[]", "CSV has no expansions; NDJSON has.")
	}
	// Step 9: a retry.
	changes := hr.Method != http.MethodGet && hr.Method != http.MethodHead
	if changes && len(hr.Header["Idempotency-Key"]) > 0 {
		return a.serveOnce(w, r)
	}
	// Step 10: the operation itself.
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
		return Response{}, fmt.Errorf("%s answers an export when none is asked for, or the reverse", r.route.ID)
	}
	if (got.file != nil) != r.route.File {
		return Response{}, fmt.Errorf("%s answers a file and does not say so, or the reverse", r.route.ID)
	}
	changes := r.http.Method != http.MethodGet && r.http.Method != http.MethodHead
	if changes && !r.wrote && !r.route.Claim {
		return Response{}, fmt.Errorf("%s did not change anything in Request.Write", r.route.ID)
	}
	err = r.finish(&got)
	return got, err
}

// noStore keeps answers about somebody's records out of caches that are shared.
var noStore = []string{"private, no-cache"}

// writeError answers with what an error is here.
func (a *API) writeError(w http.ResponseWriter, r *Request, err error) {
	var input *Record
	if r.route != nil {
		input = r.route.Input
	}
	f := toAPIError(err, input)
	if f.code == "permission_denied" && f.details == nil && r.route != nil {
		f = a.denied(r.route.Needs) // a service refused; it knows no resources
	}
	if f.code == "not_found" && a.c.NotFound != nil && r.Key != nil {
		ctx := audit.WithSource(r.http.Context(), r.source())
		for _, name := range a.names[r.route] {
			a.c.NotFound(ctx, r.Key.OrganizationID, r.Path(name))
		}
	}
	if f.code == "internal_error" || f.code == "unavailable" {
		if r.http.Context().Err() != nil && errors.Is(err, context.Canceled) {
			w.WriteHeader(499) // the client is gone; nobody reads this
			return
		}
		a.log.ErrorContext(r.http.Context(), "request failed", "request", r.ID, "method", r.http.Method, "path", clip(r.http.URL.Path), "error", err)
	}
	a.fail(w, r, f)
}

// recover answers for a handler that panicked. An answer that was begun is cut
// off.
func (a *API) recover(w http.ResponseWriter, r *Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	a.log.ErrorContext(r.http.Context(), "request panicked", "request", r.ID, "method", r.http.Method, "path", clip(r.http.URL.Path), "panic", v, "stack", string(debug.Stack()))
	if r.begun {
		panic(http.ErrAbortHandler)
	}
	a.fail(w, r, apiErrorf("internal_error", "The request could not be answered."))
}

// headerLine returns a header's values without an allocation of their own.
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

// defaultMaxBody is the largest JSON body (fleet-api.md 5).
const defaultMaxBody int64 = 1 << 20

// grownAtOnce is the most memory that a body gets for what it announces; the rest
// grows as bytes arrive.
const grownAtOnce = 64 << 10

// readBody reads and parses the body, if there is one.
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
	if hr.ContentLength < 0 { // chunked: whether there is one shows only when it is read
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
	if err != nil || kind != "application/json" && r.importing.kind == "" {
		return rt.unsupported("The body must be " + orList(rt.bodyTypes()) + ".")
	}
	if enc := hr.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return rt.unsupported("The body must not be compressed.")
	}
	if hr.ContentLength > limit {
		return tooLarge(limit)
	}
	if hr.Method == http.MethodGet || hr.Method == http.MethodHead {
		return nil // it means nothing there
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
	if r.body, err = parseJSON(r.Body); errors.Is(err, errTooMany) {
		return apiErrorf("body_too_large", "The body may have at most %d values.", maxNodes)
	} else if err != nil {
		return apiErrorf("invalid_json", "%s", sentence(err.Error()))
	}
	return nil
}

func tooLarge(limit int64) *apiError {
	return apiErrorf("body_too_large", "The body may have at most %d bytes.", limit)
}

// emptyBody makes an empty object of no body, where that could be meant.
func (r *Request) emptyBody(takes bool) error {
	if !takes {
		return nil
	}
	r.body = jsonNode{kind: '{'}
	if r.route.Input == nil {
		return nil
	}
	required := r.http.Method == http.MethodPut
	for _, m := range r.route.Input.Members {
		required = required || m.Access == Required || m.Access == CreateRequired
	}
	if required {
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
