package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// Request is a call of an operation that has passed all checks of the route's description. It
// must be used by one goroutine.
type Request struct {
	Key       *apikey.Key // read-only
	ID        string      // X-Request-Id
	IP        netip.Addr  // of the client; zero if unknown
	UserAgent string
	Body      []byte // unparsed

	api    *API
	route  *Route
	http   *http.Request
	header http.Header // of the answer
	path   [maxPathParams]string
	query  query
	body   schema.Node
	format format

	importing importing
	ndjson    bool // of a route with Reports

	scope            apikey.Scope
	named            namedSubaccounts
	known            []string           // existing subaccounts; nil: not loaded
	recordSubaccount string             // subaccount of the record, once known
	retry            *idempotentRequest // nil without an Idempotency-Key
	wrote            bool               // Write was called
	answerStarted    bool               // part of the answer has been sent
	lines            [8]string
	surface          string // of the audit log
	callRecorded     bool   // by an MCP client, in the audit log

	// For the request log.
	start   time.Time
	refused *apikey.Key // of a request that was refused before Key was set; nil: unknown
	status  int         // of the answer
	code    string      // of the problem
	refusal requestlog.Refusal
}

// listKey identifies the list of a cursor: path, and subaccount of the header.
func (r *Request) listKey() string {
	if r.named.header == nil {
		return r.http.URL.Path
	}
	return r.http.URL.Path + " " + r.named.header[0]
}

// Path returns a path parameter: "id" of "/tickets/{id}".
func (r *Request) Path(name string) string {
	for i, n := range r.api.names[r.route] {
		if n == name {
			return r.path[i]
		}
	}
	return ""
}

// Can reports whether the key has a permission.
func (r *Request) Can(resource string, action apikey.Action) bool {
	return r.api.c.Keys.Allows(r.Key, resource, action)
}

// Require returns nil if the key has a permission, else 403 permission_denied.
func (r *Request) Require(resource string, action apikey.Action) error {
	if r.Can(resource, action) {
		return nil
	}
	return r.api.denied(Permission{resource, action})
}

// source returns key and request for the audit log.
func (r *Request) source() audit.Source {
	actor := audit.Actor{Type: audit.Anonymous}
	if r.Key != nil {
		actor = audit.Actor{Type: audit.Key, ID: r.Key.ID}
	}
	return audit.Source{
		Actor: actor, Address: r.IP, UserAgent: r.UserAgent, RequestID: r.ID, Surface: r.surface,
	}
}

// Decode decodes the body of a create into a struct. Its error (422) lists all invalid fields.
// Optional fields of the struct are [optional.Value].
func (r *Request) Decode(into any) error { return r.decode(nil, into, false, nil) }

// DecodeSole is [Request.Decode] for a record of a subaccount. It returns the id of the one
// that the request names, or the only one in its scope. With several in scope, the errors
// include required at #/subaccount_id.
func (r *Request) DecodeSole(ctx context.Context, into any) (subaccountID string, err error) {
	id, lacks, err := r.sole(ctx, r.scope)
	if err != nil {
		return "", err
	}
	r.recordSubaccount = id
	return id, r.decode(nil, into, false, lacks)
}

// Update decodes the body of a PUT into a struct. Its error lists all invalid fields (422), or
// reports that If-Match does not match (412). current is the record as a GET answers it:
// read-only fields must equal it, and metadata is merged into it. Call it within
// [Request.Write], with current read there. passing names read-only fields that change with
// time; their values in the body are ignored.
func (r *Request) Update(current, into any, passing ...string) error {
	text, err := encode(current)
	if err != nil {
		return err
	}
	stored, err := schema.Parse(text)
	if err != nil {
		return fmt.Errorf("read the stored record: %w", err)
	}
	if len(passing) > 0 {
		r.body.Members = slices.DeleteFunc(slices.Clone(r.body.Members), func(m schema.NodeMember) bool { return slices.Contains(passing, m.Name) })
	}
	stale := r.match(tagOf(current, text))
	if err := r.decode(&stored, into, stale != nil, nil); err != nil {
		return err
	}
	return stale
}

// Match returns 412 if If-Match does not match the record, given as a GET answers it. Call it
// within [Request.Write].
func (r *Request) Match(current any) error {
	if len(r.http.Header["If-Match"]) == 0 {
		return nil
	}
	text, err := encode(current)
	if err != nil {
		return err
	}
	return r.match(tagOf(current, text))
}

func (r *Request) match(tag string) error {
	lines := r.http.Header["If-Match"]
	if len(lines) == 0 || anyTag(lines, tag, false) {
		return nil
	}
	return apiErrorf("precondition_failed", "The record is no longer the one that If-Match names.")
}

// decode decodes the body. If the body is stale, made from an older record, differing read-only
// fields are not errors. lacks are further errors.
func (r *Request) decode(stored *schema.Node, into any, stale bool, lacks []schema.FieldError) error {
	var members []schema.Member
	if r.route.Input != nil {
		members = r.route.Input.Members
	}
	c := schema.Check{Put: r.http.Method == http.MethodPut}
	text := c.Body(members, &r.body, stored)
	fieldErrs := c.Errors
	if stale {
		fieldErrs = slices.DeleteFunc(fieldErrs, func(f schema.FieldError) bool { return f.Code == "read_only" })
	}
	if fieldErrs = appendMissing(fieldErrs, lacks); len(fieldErrs) > 0 {
		return invalid(fieldErrs)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the struct of %s does not match its record: %w", r.route.ID, err)
	}
	return nil
}

// Write runs a change in one transaction, which also stores the answer under the request's
// Idempotency-Key, if any, so that retries are safe. If fn fails, nothing is changed. As in
// [db.DB.Write], fn may run more than once and must wait only for the database.
func (r *Request) Write(ctx context.Context, fn func(tx *db.Tx) (Response, error)) (Response, error) {
	r.wrote = true
	var answer Response
	err := r.api.c.DB.Write(ctx, func(tx *db.Tx) error {
		answer = Response{}
		if r.retry != nil && !r.route.Claim {
			prior, err := r.retry.enter(ctx, tx)
			if err != nil {
				return err
			}
			if prior != nil {
				answer = *prior
				return nil
			}
		}
		got, err := fn(tx)
		if err != nil {
			return err
		}
		if err := r.finish(&got); err != nil {
			return err
		}
		if r.retry != nil && !r.route.Claim {
			if err := r.retry.store(ctx, tx, &got); err != nil {
				return err
			}
		}
		answer = got
		return nil
	})
	if err != nil {
		return Response{}, err
	}
	if r.retry != nil && !r.route.Claim {
		r.retry.stored = true
	}
	return answer, nil
}

// String returns a query parameter, empty if absent.
func (r *Request) String(name string) string {
	s, _ := r.query.values[name].(string)
	return s
}

// Has reports whether the query contains a parameter.
func (r *Request) Has(name string) bool {
	_, ok := r.query.values[name]
	return ok
}

// Strings returns the values of a list parameter, nil if absent.
func (r *Request) Strings(name string) []string {
	s, _ := r.query.values[name].([]string)
	return s
}

// Int returns an integer parameter; false if absent.
func (r *Request) Int(name string) (int64, bool) {
	n, ok := r.query.values[name].(int64)
	return n, ok
}

// Number returns a numeric parameter; false if absent.
func (r *Request) Number(name string) (float64, bool) {
	f, ok := r.query.values[name].(float64)
	return f, ok
}

// Bool returns a boolean parameter; ok is false if absent.
func (r *Request) Bool(name string) (value, ok bool) {
	value, ok = r.query.values[name].(bool)
	return value, ok
}

// Time returns a time parameter, zero if absent.
func (r *Request) Time(name string) time.Time {
	t, _ := r.query.values[name].(time.Time)
	return t
}

// Times returns a range of times: t with !t.Before(from) and t.Before(until). A zero time is no
// bound. Bounds have the precision of answers, whole milliseconds.
func (r *Request) Times(name string) (from, until time.Time) {
	s, _ := r.query.values[name].(valueRange[time.Time])
	return s.low, s.high
}

// Range is [Request.Times] as a [period.Range].
func (r *Request) Range(name string) period.Range {
	from, until := r.Times(name)
	var p period.Range
	if !from.IsZero() {
		p.Low = &from
	}
	if !until.IsZero() {
		p.High, p.HighOpen = &until, true
	}
	return p
}

// Typed converts the values of a parameter to a service's string type.
func Typed[T ~string](values []string) []T {
	var list []T
	for _, v := range values {
		list = append(list, T(v))
	}
	return list
}

// Ints returns a range of integers, both bounds included. nil is no bound.
func (r *Request) Ints(name string) (low, high *int64) {
	s, ok := r.query.values[name].(valueRange[int64])
	if !ok {
		return nil, nil
	}
	if s.hasLow {
		low = &s.low
	}
	if s.hasHigh {
		high = &s.high
	}
	return low, high
}

// Limit returns the page size: 1 to 100.
func (r *Request) Limit() int { return r.query.limit }

// Sort returns the sort order of the list.
func (r *Request) Sort() keyset.Sort {
	return keyset.Sort{Field: r.query.sort, Descending: r.query.descending}
}

// Sorted reports whether the request sets the sort order.
func (r *Request) Sorted() bool { return r.query.sorted }

// Expanded reports whether the request asks for an expansion; the key has the permission.
func (r *Request) Expanded(name string) bool { return slices.Contains(r.query.expand, name) }

// Expands reports whether the request asks for any expansion.
func (r *Request) Expands() bool { return len(r.query.expand) > 0 }

// Exporting reports whether the client requests the whole list, to be answered with [Export].
func (r *Request) Exporting() bool { return r.format != formatJSON }

// ExportingGeoJSON reports whether the client requests GeoJSON, of records with a field "geometry".
func (r *Request) ExportingGeoJSON() bool { return r.format == formatGeoJSON }

// Cursor decodes the position of the previous page, its next argument of [List], into position;
// false for the first page. A position of another type is 400 invalid_cursor.
func (r *Request) Cursor(position any) (bool, error) {
	if r.query.position == nil {
		return false, nil
	}
	d := json.NewDecoder(bytes.NewReader(r.query.position))
	d.DisallowUnknownFields()
	if err := d.Decode(position); err != nil {
		return false, errCursor()
	}
	return true, nil
}

// After is [Request.Cursor] for lists of package keyset; nil for the first page.
func (r *Request) After() (*keyset.Cursor, error) {
	var c keyset.Cursor
	more, err := r.Cursor(&c)
	if err != nil || !more {
		return nil, err
	}
	return &c, nil
}

// AsCursorError converts an error of a service's list: only the position in the cursor has not been
// checked, so it is 400 invalid_cursor.
func AsCursorError(err error) error {
	if problem.Of(err) == problem.Invalid {
		return BadParameter("cursor", "The cursor does not belong to this list.")
	}
	return err
}

func errCursor() error {
	f := apiErrorf("invalid_cursor", "The cursor does not belong to this list, these filters and this order.")
	f.fieldErrs = []schema.FieldError{{Code: "invalid_value", Detail: f.detail, Parameter: "cursor"}}
	return f
}

// AsUnprocessable converts NotFound of a record referenced in the body to 422 not_found. The service's
// 404 is for records in the path.
func AsUnprocessable(err error, name string) error {
	if problem.Of(err) != problem.NotFound {
		return err
	}
	var v problem.Validation
	v.AddCode("not_found", name, "does not exist")
	if e, ok := errors.AsType[*problem.Error](v.Err()); ok {
		return e.Because(err)
	}
	return err
}

// Entity tags of If-Match and If-None-Match.

// anyTag reports whether a list of entity tags contains tag, or is "*". Weak tags match only
// with weak, for If-None-Match.
func anyTag(lines []string, tag string, weak bool) bool {
	for _, line := range lines {
		rest := strings.TrimSpace(line)
		if rest == "*" {
			return true
		}
		for rest != "" {
			rest = strings.TrimLeft(rest, " \t,")
			isWeak := strings.HasPrefix(rest, "W/")
			rest = strings.TrimPrefix(rest, "W/")
			if !strings.HasPrefix(rest, `"`) {
				break
			}
			end := strings.IndexByte(rest[1:], '"')
			if end < 0 {
				break
			}
			if rest[:end+2] == tag && (weak || !isWeak) {
				return true
			}
			rest = rest[end+2:]
		}
	}
	return false
}
