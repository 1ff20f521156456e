package rest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// Bounds of queries (fleet-api.md 4).
const (
	defaultLimit = 20
	maxLimit     = 100
	maxExpand    = 4
	maxValues    = 100 // of one list parameter
	maxParam     = 500 // characters
)

// query holds the parsed query of a request.
type query struct {
	raw        url.Values
	values     map[string]any // by parameter, typed by its kind
	limit      int
	sort       string
	descending bool
	sorted     bool // sort is set by the request
	expand     []string
	cursor     string
	position   []byte // of the cursor, JSON; nil: the first page
}

// encodeCursor returns the cursor of the page after a position. It is valid only for the same list,
// filters and order.
func (q *query) encodeCursor(path string, position any) (string, error) {
	text, err := json.Marshal(position)
	if err != nil {
		return "", fmt.Errorf("encode the position of a list: %w", err)
	}
	bound := q.binding(path)
	return base64.RawURLEncoding.EncodeToString(append(bound[:], text...)), nil
}

const bindingSize = 8

// binding hashes the list, filters and order of a cursor.
func (q *query) binding(path string) [bindingSize]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %v", path, q.sort, q.descending)
	names := make([]string, 0, len(q.raw))
	for name := range q.raw {
		switch name {
		case "limit", "cursor", "sort", "expand[]":
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(h, " %q=%q", name, q.raw[name])
	}
	return [bindingSize]byte(h.Sum(nil))
}

// decodeCursor parses a cursor.
func (q *query) decodeCursor(path, cursor string) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(text) <= bindingSize || strings.ContainsAny(cursor, "\r\n") { // line breaks, which base64 decoding ignores
		return errCursor()
	}
	if want := q.binding(path); !bytes.Equal(text[:bindingSize], want[:]) {
		return errCursor()
	}
	// Cursors are not authenticated.
	if n, err := schema.Parse(text[bindingSize:]); err != nil || n.HoldsNUL() {
		return errCursor()
	}
	q.position = text[bindingSize:]
	return nil
}

// next returns the URL of the page after this one.
func (q *query) next(path, cursor string) string {
	v := url.Values{"cursor": {cursor}}
	for name, values := range q.raw {
		if name != "cursor" {
			v[name] = values
		}
	}
	return path + "?" + v.Encode()
}

// expansions returns the route's expansions requested by a query. checkQuery refuses unknown
// ones.
func (rt *Route) expansions(raw url.Values) []Expansion {
	var out []Expansion
	for name := range strings.SplitSeq(raw.Get("expand[]"), ",") {
		for _, e := range rt.Expand {
			if e.Name == name {
				out = append(out, e)
			}
		}
	}
	return out
}

// checkQuery parses a query by the route's description. The error lists everything that is
// invalid.
func (rt *Route) checkQuery(q *query, path string, raw url.Values, export bool) error {
	*q = query{raw: raw, limit: defaultLimit}
	if rt.List {
		q.sort, q.descending = rt.order()
	}
	if len(raw) == 0 && !rt.hasRequired() {
		return nil
	}
	var fieldErrs []schema.FieldError
	wrong := func(name, detail string) {
		if len(fieldErrs) < schema.MaxFieldErrors {
			fieldErrs = append(fieldErrs, schema.FieldError{Code: "invalid_value", Detail: detail, Parameter: schema.Clip(name)})
		}
	}
	names := slices.AppendSeq(make([]string, 0, len(raw)), maps.Keys(raw))
	slices.Sort(names)
	for _, name := range names {
		for _, detail := range rt.readParam(q, name, raw[name], export) {
			wrong(name, detail)
		}
	}
	for i := range rt.Query {
		if p := &rt.Query[i]; p.Required && q.values[p.Name] == nil && raw[p.Name] == nil {
			wrong(p.Name, p.Name+" is required.")
		}
	}
	if len(fieldErrs) > 0 {
		f := &apiError{code: "invalid_parameter", detail: fieldErrs[0].Detail, fieldErrs: fieldErrs}
		if len(fieldErrs) > 1 {
			f.detail = fmt.Sprintf("%d parameters are not valid.", len(fieldErrs))
		}
		return f
	}
	if raw["cursor"] != nil {
		return q.decodeCursor(path, q.cursor)
	}
	return nil
}

// readParam stores a parameter in the query, and returns a sentence for each reason why it is
// invalid.
func (rt *Route) readParam(q *query, name string, values []string, export bool) (details []string) {
	if len(values) > 1 {
		return []string{schema.Clip(name) + " comes more than once."}
	}
	value := values[0]
	if !utf8.ValidString(value) || strings.IndexByte(value, 0) >= 0 {
		return []string{schema.Clip(name) + " is not text."}
	}
	switch {
	case export && (name == "limit" || name == "cursor"):
		return []string{"An export has no " + name + ": it is the whole list."}
	case rt.List && name == "limit":
		return q.readLimit(value)
	case rt.List && name == "cursor":
		q.cursor = value
		return nil
	case len(rt.Sort) > 0 && name == "sort":
		return q.readSort(rt.Sort, value)
	case len(rt.Expand) > 0 && name == "expand[]":
		return q.readExpand(rt.Expand, value)
	}
	if detail := rt.readOwnParam(q, name, value); detail != "" {
		return []string{detail}
	}
	return nil
}

// joinLists joins repeated list parameters with commas.
func (rt *Route) joinLists(raw url.Values) {
	for name, values := range raw {
		if len(values) > 1 && rt.isList(name) {
			raw[name] = []string{strings.Join(values, ",")}
		}
	}
}

// isList reports whether a parameter accepts several values, separated by commas or repeated.
func (rt *Route) isList(name string) bool {
	return len(rt.Expand) > 0 && name == "expand[]" || slices.ContainsFunc(rt.Query, func(p Param) bool {
		return p.Name == name && paramKinds[p.Kind].list
	})
}

// order returns the default order of a list.
func (rt *Route) order() (member string, descending bool) {
	if rt.Order == "" {
		return "created_at", true
	}
	member, descending = strings.CutPrefix(rt.Order, "-")
	return member, descending
}

func (rt *Route) hasRequired() bool {
	return slices.ContainsFunc(rt.Query, func(p Param) bool { return p.Required })
}

func (q *query) readLimit(value string) (details []string) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxLimit {
		return []string{fmt.Sprintf("limit must be an integer from 1 to %d.", maxLimit)}
	}
	q.limit = n
	return nil
}

func (q *query) readSort(fields []string, value string) (details []string) {
	field, descending := strings.CutPrefix(value, "-")
	if !slices.Contains(fields, field) {
		return []string{"sort must be " + schema.OrList(fields) + ", or one of them with - before it."}
	}
	q.sort, q.descending, q.sorted = field, descending, true
	return nil
}

func (q *query) readExpand(known []Expansion, value string) (details []string) {
	list := strings.Split(value, ",")
	if len(list) > maxExpand {
		details = append(details, fmt.Sprintf("At most %d things can be expanded.", maxExpand))
	}
	for _, name := range list {
		switch {
		case !slices.ContainsFunc(known, func(e Expansion) bool { return e.Name == name }):
			details = append(details, schema.Clip(name)+" cannot be expanded.")
		case slices.Contains(q.expand, name):
			details = append(details, schema.Clip(name)+" comes more than once.")
		default:
			q.expand = append(q.expand, name)
		}
	}
	return details
}

// readOwnParam is readParam for a parameter that the route declares.
func (rt *Route) readOwnParam(q *query, name, value string) (detail string) {
	base, bound := name, ""
	if head, tail, ok := strings.Cut(name, "["); ok && len(tail) > 1 && strings.HasSuffix(tail, "]") {
		base, bound = head, tail[:len(tail)-1]
	}
	i := slices.IndexFunc(rt.Query, func(p Param) bool { return p.Name == base })
	if i < 0 {
		return "Unknown parameter " + schema.Clip(name) + "."
	}
	p := &rt.Query[i]
	kind := &paramKinds[p.Kind]
	switch {
	case kind.narrow == nil && bound != "":
		return "Unknown parameter " + schema.Clip(name) + "."
	case kind.narrow != nil && !slices.Contains(bounds, bound):
		return base + " is a range: " + base + "[gte], [gt], [lte] or [lt]."
	}
	v, detail := kind.parse(p, name, value)
	if detail != "" {
		return detail
	}
	if kind.narrow != nil {
		v = kind.narrow(q.values[base], bound, v)
	}
	if q.values == nil {
		q.values = make(map[string]any, 4)
	}
	q.values[base] = v
	return ""
}

// Decimal parses a finite decimal number. Unlike [strconv.ParseFloat] it refuses NaN, 0x10 and
// 1_000.
func Decimal(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) && !strings.ContainsAny(s, "xX_")
}
