package rest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// Param is a query parameter, besides limit, cursor, sort and expand[].
type Param struct {
	Name     string
	Kind     ParamKind
	Values   []string // of an enum
	Required bool
	Min, Max int64 // of integers and numbers, if they differ; of a string's length if Max is not 0 (else 500)
	Doc      string
	Example  string
}

// ParamKind is the syntax of a parameter, and implies the method that reads it.
type ParamKind uint8

// Parameter kinds. Ranges have the form created_at[gte], [gt], [lte] and [lt].
const (
	StringParam  ParamKind = iota // Request.String
	StringsParam                  // Request.Strings; commas mean "or"
	EnumParam                     // Request.String
	EnumsParam                    // Request.Strings; commas mean "or"
	IntParam                      // Request.Int
	BoolParam                     // Request.Bool; true or false
	TimeParam                     // Request.Time; RFC 3339
	NumberParam                   // Request.Number
	IntRange                      // Request.Ints
	TimeRange                     // Request.Times
)

// paramKind parses and describes the parameters of one kind.
type paramKind struct {
	// parse converts a value. detail is empty, or a sentence on why the value is invalid.
	parse  func(p *Param, name, value string) (v any, detail string)
	schema func(p *Param) object // in OpenAPI
	list   bool                  // several values, separated by commas or repeated

	// narrow adds a bound to a range, which is nil at first. nil: the kind is no range.
	narrow func(valueRange any, bound string, v any) any
	words  map[string]string // describe the bounds
}

var paramKinds = [...]paramKind{
	StringParam:  {parse: parseString, schema: stringSchema},
	StringsParam: {parse: parseList, schema: listOf(stringSchema), list: true},
	EnumParam:    {parse: parseEnum, schema: enumSchema},
	EnumsParam:   {parse: parseList, schema: listOf(enumSchema), list: true},
	IntParam:     {parse: parseInt, schema: integerSchema},
	BoolParam:    {parse: parseBool, schema: func(*Param) object { return object{"type": "boolean"} }},
	TimeParam:    {parse: parseTime, schema: timeSchema},
	NumberParam:  {parse: parseNumber, schema: func(p *Param) object { return p.bounded(object{"type": "number"}) }},
	IntRange: {
		parse: parseInt, schema: integerSchema, narrow: narrowWith(inclusive, cmp.Less),
		words: map[string]string{"gte": "at least", "gt": "more than", "lte": "at most", "lt": "less than"},
	},
	TimeRange: {
		parse: parseTime, schema: timeSchema, narrow: narrowWith(millis, time.Time.Before),
		words: map[string]string{"gte": "at or after", "gt": "after", "lte": "at or before", "lt": "before"},
	},
}

// bounds are the forms of a range, as in created_at[gte].
var bounds = []string{"gte", "gt", "lte", "lt"}

func parseString(p *Param, name, value string) (any, string) {
	low, high := max(1, p.Min), cmp.Or(p.Max, maxParam)
	if n := int64(utf8.RuneCountInString(value)); n < low || n > high {
		return nil, fmt.Sprintf("%s has %d to %d characters.", name, low, high)
	}
	return value, ""
}

func parseEnum(p *Param, name, value string) (any, string) {
	if !slices.Contains(p.Values, value) {
		return nil, fmt.Sprintf("%s must be %s.", name, schema.OrList(p.Values))
	}
	return value, ""
}

// parseList parses a list of strings or, if the parameter has Values, of these.
func parseList(p *Param, name, value string) (any, string) {
	list := strings.Split(value, ",")
	if len(list) > maxValues {
		return nil, fmt.Sprintf("%s takes at most %d values.", name, maxValues)
	}
	for _, v := range list {
		switch {
		case p.Kind == EnumsParam && !slices.Contains(p.Values, v):
			return nil, fmt.Sprintf("%s must be %s; commas mean or.", name, schema.OrList(p.Values))
		case v == "" || utf8.RuneCountInString(v) > maxParam:
			return nil, fmt.Sprintf("Each value of %s has 1 to %d characters.", name, maxParam)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), ""
}

func parseInt(p *Param, name, value string) (any, string) {
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case p.Min < p.Max && (err != nil || n < p.Min || n > p.Max):
		return nil, fmt.Sprintf("%s must be an integer from %d to %d.", name, p.Min, p.Max)
	case err != nil || n == math.MinInt64 || n == math.MaxInt64: // a bound needs neighbours
		return nil, name + " must be an integer."
	}
	return n, ""
}

func parseNumber(p *Param, name, value string) (any, string) {
	f, ok := Decimal(value)
	switch low, high := float64(p.Min), float64(p.Max); {
	case low < high && !(ok && low <= f && f <= high):
		return nil, fmt.Sprintf("%s must be a number from %d to %d.", name, p.Min, p.Max)
	case !ok:
		return nil, name + " must be a number."
	}
	return f, ""
}

func parseBool(_ *Param, name, value string) (any, string) {
	if value != "true" && value != "false" {
		return nil, name + " must be true or false."
	}
	return value == "true", ""
}

func parseTime(_ *Param, name, value string) (any, string) {
	t, err := rfc3339.Parse(value)
	if err != nil {
		return nil, name + " must be an RFC 3339 time, such as 2026-03-14T09:26:53Z; a + is written %2B."
	}
	return t, ""
}

func stringSchema(*Param) object { return object{"type": "string"} }

func enumSchema(p *Param) object { return object{"type": "string", "enum": p.Values} }

func listOf(item func(*Param) object) func(*Param) object {
	return func(p *Param) object { return object{"type": "array", "items": item(p)} }
}

func timeSchema(*Param) object { return object{"type": "string", "format": "date-time"} }

func integerSchema(p *Param) object { return p.bounded(object{"type": "integer"}) }

// bounded adds the bounds of an integer or number to its schema.
func (p *Param) bounded(s object) object {
	if p.Min < p.Max {
		s["minimum"], s["maximum"] = p.Min, p.Max
	}
	return s
}

// valueRange is a range with optional bounds.
type valueRange[T any] struct {
	low, high       T
	hasLow, hasHigh bool
}

// narrowWith returns the function that narrows a range. edge converts a bound to the range's own
// form of it.
func narrowWith[T any](edge func(v T, bound string) T, less func(a, b T) bool) func(any, string, any) any {
	return func(before any, bound string, value any) any {
		r, _ := before.(valueRange[T])
		v := edge(value.(T), bound)
		if bound == "gte" || bound == "gt" {
			if !r.hasLow || less(r.low, v) {
				r.low, r.hasLow = v, true
			}
		} else if !r.hasHigh || less(v, r.high) {
			r.high, r.hasHigh = v, true
		}
		return r
	}
}

// inclusive returns the bound of a closed range of integers.
func inclusive(n int64, bound string) int64 {
	switch bound {
	case "gt":
		return n + 1
	case "lt":
		return n - 1
	}
	return n
}

// millis returns the bound of a half-open range, from included to until excluded, with the
// precision of milliseconds that clients see.
func millis(t time.Time, bound string) time.Time {
	down := t.Truncate(time.Millisecond)
	switch {
	case bound == "gt" || bound == "lte":
		return down.Add(time.Millisecond)
	case down.Equal(t) && t.IsZero():
		return t.Add(time.Nanosecond) // zero means no bound
	case down.Equal(t):
		return t
	default:
		return down.Add(time.Millisecond)
	}
}
