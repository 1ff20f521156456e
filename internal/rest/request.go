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
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Request is one call of an operation, after everything that the description
// tells about it was checked. It belongs to one goroutine.
type Request struct {
	Key       *apikey.Key // must not be changed
	ID        string      // X-Request-Id
	IP        netip.Addr  // of the client; zero when it is not known
	UserAgent string
	Body      []byte // as it came

	api    *API
	route  *Route
	http   *http.Request
	path   [maxPathParams]string
	query  query
	body   jsonNode
	format format

	importing importing

	scope apikey.Scope
	named namedSubaccounts
	known []string           // subaccounts that there are; nil: not looked up
	met   string             // the subaccount of the record that it is about, once that is known
	retry *idempotentRequest // nil without an Idempotency-Key
	wrote bool               // went through Write
	begun bool               // a part of the answer is on its way
	lines [8]string
}

// place is the list that a cursor belongs to: the path, and the subaccount that the
// header narrows it to.
func (r *Request) place() string {
	if r.named.header == nil {
		return r.http.URL.Path
	}
	return r.http.URL.Path + " " + r.named.header[0]
}

// Path returns a part of the path: the id of "/tickets/{id}".
func (r *Request) Path(name string) string {
	for i, n := range r.api.names[r.route] {
		if n == name {
			return r.path[i]
		}
	}
	return ""
}

// Can reports whether the key is allowed something beside what the route needs.
func (r *Request) Can(resource string, action apikey.Action) bool {
	return r.api.c.Keys.Allows(r.Key, resource, action)
}

// Require returns nil when the key is allowed something, else 403
// permission_denied.
func (r *Request) Require(resource string, action apikey.Action) error {
	if r.Can(resource, action) {
		return nil
	}
	return r.api.denied(Permission{resource, action})
}

// source is the key and the request, for the audit log.
func (r *Request) source() audit.Source {
	actor := audit.Actor{Type: audit.Anonymous}
	if r.Key != nil {
		actor = audit.Actor{Type: audit.Key, ID: r.Key.ID}
	}
	return audit.Source{
		Actor: actor, Address: r.IP, UserAgent: r.UserAgent, RequestID: r.ID, Surface: audit.REST,
	}
}

// Decode reads the body of a request that makes something into a struct: an
// error lists everything that is wrong with it (422). Members of the struct that
// may be absent are [Optional].
func (r *Request) Decode(into any) error { return r.decode(nil, into, false, nil) }

// DecodeSole is [Request.Decode] for a record of a subaccount, whose id it returns:
// the one that the request names, or else the only one that it reaches. When it
// reaches several, that too is among what is wrong: required at #/subaccount_id.
func (r *Request) DecodeSole(ctx context.Context, into any) (subaccountID string, err error) {
	id, lacks, err := r.sole(ctx, r.scope)
	if err != nil {
		return "", err
	}
	r.met = id
	return id, r.decode(nil, into, false, lacks)
}

// Update reads the body of a PUT into a struct: an error lists everything that is
// wrong with it (422), or says that If-Match does not match (412). Current is the
// record as a GET answers it; read-only members must equal its, and metadata is
// merged into it. It belongs inside of [Request.Write], so that current is.
// Passing are read-only members that time alone changes: what a body has of them
// was true when it was read, and means nothing.
func (r *Request) Update(current, into any, passing ...string) error {
	text, err := encode(current)
	if err != nil {
		return err
	}
	stored, err := parseJSON(text)
	if err != nil {
		return fmt.Errorf("read the stored record: %w", err)
	}
	if len(passing) > 0 {
		r.body.members = slices.DeleteFunc(slices.Clone(r.body.members), func(m jsonMember) bool { return slices.Contains(passing, m.name) })
	}
	stale := r.match(tagOf(current, text))
	if err := r.decode(&stored, into, stale != nil, nil); err != nil {
		return err
	}
	return stale
}

// Match returns 412 when If-Match does not match the record, which is given as a
// GET answers it. It belongs inside of [Request.Write].
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

// decode reads the body. That read-only members differ says nothing about one
// that was made from an older record, which is stale. Lacks is what else is wrong.
func (r *Request) decode(stored *jsonNode, into any, stale bool, lacks []fieldError) error {
	var members []Member
	if r.route.Input != nil {
		members = r.route.Input.Members
	}
	text, fieldErrs := checkBody(members, &r.body, stored, r.http.Method == http.MethodPut)
	if stale {
		fieldErrs = slices.DeleteFunc(fieldErrs, func(f fieldError) bool { return f.Code == "read_only" })
	}
	if fieldErrs = appendMissing(fieldErrs, lacks); len(fieldErrs) > 0 {
		return invalid(fieldErrs)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the struct of %s does not take what its record does: %w", r.route.ID, err)
	}
	return nil
}

// Write runs a change in one transaction, together with what makes a retry safe:
// the answer is stored under the request's Idempotency-Key, if it has one. When
// fn fails, nothing is changed. As in [db.DB.Write], fn may run more than once,
// and waits for nothing but the database.
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

// String returns a parameter of the query, empty when it is not there.
func (r *Request) String(name string) string {
	s, _ := r.query.values[name].(string)
	return s
}

// Has reports whether the query has a parameter.
func (r *Request) Has(name string) bool {
	_, ok := r.query.values[name]
	return ok
}

// Strings returns the values of a parameter that takes several, nil when it is
// not there.
func (r *Request) Strings(name string) []string {
	s, _ := r.query.values[name].([]string)
	return s
}

// Int returns an integer parameter; false when it is not there.
func (r *Request) Int(name string) (int64, bool) {
	n, ok := r.query.values[name].(int64)
	return n, ok
}

// Number returns a parameter that is a number; false when it is not there.
func (r *Request) Number(name string) (float64, bool) {
	f, ok := r.query.values[name].(float64)
	return f, ok
}

// Bool returns a boolean parameter; false twice when it is not there.
func (r *Request) Bool(name string) (value, ok bool) {
	value, ok = r.query.values[name].(bool)
	return value, ok
}

// Time returns a time parameter, zero when it is not there.
func (r *Request) Time(name string) time.Time {
	t, _ := r.query.values[name].(time.Time)
	return t
}

// Times returns a range of times: those t for which !t.Before(from) and
// t.Before(until), either of which is zero when there is no bound. Answers show
// whole milliseconds, and so does a range compare.
func (r *Request) Times(name string) (from, until time.Time) {
	s, _ := r.query.values[name].(valueRange[time.Time])
	return s.low, s.high
}

// Range is [Request.Times] as services take a range.
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

// Typed are words of a parameter as a service has them.
func Typed[T ~string](values []string) []T {
	var list []T
	for _, v := range values {
		list = append(list, T(v))
	}
	return list
}

// Ints returns a range of integers, both ends included, either of which is nil
// when there is no bound.
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

// Limit returns how many records the page may have: 1 to 100.
func (r *Request) Limit() int { return r.query.limit }

// Sort returns the member that the list is sorted by.
func (r *Request) Sort() string { return r.query.sort }

// Sorted reports whether the request itself says how to sort.
func (r *Request) Sorted() bool { return r.query.sorted }

// Descending reports whether the largest comes first.
func (r *Request) Descending() bool { return r.query.descending }

// Expanded reports whether the request asks for an expansion, which the key may
// read.
func (r *Request) Expanded(name string) bool { return slices.Contains(r.query.expand, name) }

// Expands reports whether the request asks for any expansion.
func (r *Request) Expands() bool { return len(r.query.expand) > 0 }

// Exporting reports whether the whole list is asked for, which is answered with
// [Export].
func (r *Request) Exporting() bool { return r.format != formatJSON }

// Cursor reads into position what the list before gave as its next one; false
// when this is the first page. A position that does not fit is 400
// invalid_cursor.
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

// Misplaced is an error of a service's list: all of the query was checked here but
// what is inside of its cursor.
func Misplaced(err error) error {
	if problem.Of(err) == problem.Invalid {
		return BadParameter("cursor", "The cursor does not belong to this list.")
	}
	return err
}

func errCursor() error {
	f := apiErrorf("invalid_cursor", "The cursor does not belong to this list, these filters and this order.")
	f.fieldErrs = []fieldError{{Code: "invalid_value", Detail: f.detail, Parameter: "cursor"}}
	return f
}

// NotIn is the error of a reference in the body to a record that does not exist:
// 422 not_found. What the service says of a record in the path, which is
// 404, would be wrong there.
func NotIn(err error, name string) error {
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

// tags of If-Match and If-None-Match.

// anyTag reports whether lists of entity tags have one, or are "*". Weak tags
// match only where that is enough: in If-None-Match.
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
