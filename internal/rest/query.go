package rest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/rfc3339"
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
	position   []byte // of the cursor, JSON; nil: the first page
}

// valueRange is a range with optional bounds.
type valueRange[T any] struct {
	low, high       T
	hasLow, hasHigh bool
}

// seal returns the cursor of the page after a position. It is valid only for the same list,
// filters and order.
func (q *query) seal(path string, position any) (string, error) {
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

// open parses a cursor.
func (q *query) open(path, cursor string) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(text) <= bindingSize || strings.ContainsAny(cursor, "\r\n") { // line breaks, which base64 decoding ignores
		return errCursor()
	}
	if want := q.binding(path); !bytes.Equal(text[:bindingSize], want[:]) {
		return errCursor()
	}
	// Cursors are not authenticated.
	if n, err := parseJSON(text[bindingSize:]); err != nil || n.holdsNUL() {
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
func (rt *Route) checkQuery(path string, raw url.Values, export bool) (query, error) {
	q := query{raw: raw, limit: defaultLimit}
	if rt.List {
		q.sort, q.descending = rt.order()
	}
	if len(raw) == 0 && !rt.hasRequired() {
		return q, nil
	}
	var fieldErrs []fieldError
	wrong := func(name, format string, args ...any) {
		if len(fieldErrs) < maxFieldErrors {
			fieldErrs = append(fieldErrs, fieldError{Code: "invalid_value", Detail: fmt.Sprintf(format, args...), Parameter: clip(name)})
		}
	}
	names := make([]string, 0, len(raw))
	for name := range raw {
		names = append(names, name)
	}
	slices.Sort(names)
	cursor := ""
	for _, name := range names {
		values := raw[name]
		if len(values) > 1 {
			wrong(name, "%s comes more than once.", clip(name))
			continue
		}
		value := values[0]
		if !utf8.ValidString(value) || strings.IndexByte(value, 0) >= 0 {
			wrong(name, "%s is not text.", clip(name))
			continue
		}
		switch {
		case export && (name == "limit" || name == "cursor"):
			wrong(name, "An export has no %s: it is the whole list.", name)
		case rt.List && name == "limit":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > maxLimit {
				wrong(name, "limit must be an integer from 1 to %d.", maxLimit)
				continue
			}
			q.limit = n
		case rt.List && name == "cursor":
			cursor = value
		case rt.List && len(rt.Sort) > 0 && name == "sort":
			member, descending := strings.CutPrefix(value, "-")
			if !slices.Contains(rt.Sort, member) {
				wrong(name, "sort must be %s, or one of them with - before it.", orList(rt.Sort))
				continue
			}
			q.sort, q.descending, q.sorted = member, descending, true
		case len(rt.Expand) > 0 && name == "expand[]":
			list := strings.Split(value, ",")
			if len(list) > maxExpand {
				wrong(name, "At most %d things can be expanded.", maxExpand)
			}
			for _, v := range list {
				switch {
				case !slices.ContainsFunc(rt.Expand, func(e Expansion) bool { return e.Name == v }):
					wrong(name, "%s cannot be expanded.", clip(v))
				case slices.Contains(q.expand, v):
					wrong(name, "%s comes more than once.", clip(v))
				default:
					q.expand = append(q.expand, v)
				}
			}
		default:
			rt.param(&q, name, value, wrong)
		}
	}
	for i := range rt.Query {
		if p := &rt.Query[i]; p.Required && q.values[p.Name] == nil && raw[p.Name] == nil {
			wrong(p.Name, "%s is required.", p.Name)
		}
	}
	if len(fieldErrs) > 0 {
		f := &apiError{code: "invalid_parameter", detail: fieldErrs[0].Detail, fieldErrs: fieldErrs}
		if len(fieldErrs) > 1 {
			f.detail = fmt.Sprintf("%d parameters are not valid.", len(fieldErrs))
		}
		return q, f
	}
	if raw["cursor"] != nil {
		if err := q.open(path, cursor); err != nil {
			return q, err
		}
	}
	return q, nil
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
		return p.Name == name && (p.Kind == StringsParam || p.Kind == EnumsParam)
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

// param parses one of the route's parameters.
func (rt *Route) param(q *query, name, value string, wrong func(name, format string, args ...any)) {
	base, bound := name, ""
	if head, tail, ok := strings.Cut(name, "["); ok && len(tail) > 1 && strings.HasSuffix(tail, "]") {
		base, bound = head, tail[:len(tail)-1]
	}
	i := slices.IndexFunc(rt.Query, func(p Param) bool { return p.Name == base })
	if i < 0 {
		wrong(name, "Unknown parameter %s.", clip(name))
		return
	}
	p := &rt.Query[i]
	if ranged := p.Kind == IntRange || p.Kind == TimeRange; ranged != (bound != "") || ranged && !slices.Contains([]string{"gte", "gt", "lte", "lt"}, bound) {
		if ranged {
			wrong(name, "%s is a range: %s[gte], [gt], [lte] or [lt].", base, base)
		} else {
			wrong(name, "Unknown parameter %s.", clip(name))
		}
		return
	}
	if q.values == nil {
		q.values = make(map[string]any, 4)
	}
	switch p.Kind {
	case StringParam:
		high := int64(maxParam)
		if p.Max > 0 {
			high = p.Max
		}
		if n := int64(utf8.RuneCountInString(value)); n < max(1, p.Min) || n > high {
			wrong(name, "%s has %d to %d characters.", name, max(1, p.Min), high)
			return
		}
		q.values[name] = value
	case EnumParam:
		if !slices.Contains(p.Values, value) {
			wrong(name, "%s must be %s.", name, orList(p.Values))
			return
		}
		q.values[name] = value
	case StringsParam, EnumsParam:
		list := strings.Split(value, ",")
		if len(list) > maxValues {
			wrong(name, "%s takes at most %d values.", name, maxValues)
			return
		}
		for _, v := range list {
			switch {
			case p.Kind == EnumsParam && !slices.Contains(p.Values, v):
				wrong(name, "%s must be %s; commas mean or.", name, orList(p.Values))
				return
			case v == "" || utf8.RuneCountInString(v) > maxParam:
				wrong(name, "Each value of %s has 1 to %d characters.", name, maxParam)
				return
			}
		}
		slices.Sort(list)
		q.values[name] = slices.Compact(list)
	case IntParam:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || p.Min < p.Max && (n < p.Min || n > p.Max) {
			if p.Min < p.Max {
				wrong(name, "%s must be an integer from %d to %d.", name, p.Min, p.Max)
			} else {
				wrong(name, "%s must be an integer.", name)
			}
			return
		}
		q.values[name] = n
	case NumberParam:
		f, ok := Decimal(value)
		if low, high := float64(p.Min), float64(p.Max); !ok || low < high && !(low <= f && f <= high) {
			if low < high {
				wrong(name, "%s must be a number from %d to %d.", name, p.Min, p.Max)
			} else {
				wrong(name, "%s must be a number.", name)
			}
			return
		}
		q.values[name] = f
	case BoolParam:
		if value != "true" && value != "false" {
			wrong(name, "%s must be true or false.", name)
			return
		}
		q.values[name] = value == "true"
	case TimeParam:
		t, err := rfc3339.Parse(value)
		if err != nil {
			wrong(name, "%s must be an RFC 3339 time, such as 2026-03-14T09:26:53Z; a + is written %%2B.", name)
			return
		}
		q.values[name] = t
	case TimeRange:
		t, err := rfc3339.Parse(value)
		if err != nil {
			wrong(name, "%s must be an RFC 3339 time, such as 2026-03-14T09:26:53Z; a + is written %%2B.", name)
			return
		}
		s, _ := q.values[base].(valueRange[time.Time])
		s.bound(bound, millis(t, bound), time.Time.Before)
		q.values[base] = s
	case IntRange:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n == math.MinInt64 || n == math.MaxInt64 {
			wrong(name, "%s must be an integer.", name)
			return
		}
		switch bound {
		case "gt":
			n++
		case "lt":
			n--
		}
		s, _ := q.values[base].(valueRange[int64])
		s.bound(bound, n, func(a, b int64) bool { return a < b })
		q.values[base] = s
	}
}

// bound narrows the span.
func (s *valueRange[T]) bound(which string, v T, less func(a, b T) bool) {
	if which == "gte" || which == "gt" {
		if !s.hasLow || less(s.low, v) {
			s.low, s.hasLow = v, true
		}
	} else if !s.hasHigh || less(v, s.high) {
		s.high, s.hasHigh = v, true
	}
}

// millis returns the bound of a half-open range, from included to until excluded, with the
// precision of milliseconds that clients see.
func millis(t time.Time, which string) time.Time {
	down := t.Truncate(time.Millisecond)
	switch {
	case which == "gt" || which == "lte":
		return down.Add(time.Millisecond)
	case down.Equal(t) && t.IsZero():
		return t.Add(time.Nanosecond) // zero means no bound
	case down.Equal(t):
		return t
	default:
		return down.Add(time.Millisecond)
	}
}

// clip shortens client input for messages.
func clip(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Decimal parses a finite decimal number. Unlike [strconv.ParseFloat] it refuses NaN, 0x10 and
// 1_000.
func Decimal(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) && !strings.ContainsAny(s, "xX_")
}
