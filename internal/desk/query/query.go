// Package query parses searches of pages, the API and saved views: words and quoted phrases beside
// filters, such as
//
//	flat tyre status:open,pending -channel:sms created:>=2026-01-01
//
// A filter is the name of a field, a colon, and values with commas between them, which match any
// of them; a value with spaces is quoted. A minus before it negates it. A value of time or number
// may follow >, >=, < or <=, or be a range a..b, which includes both. The package knows the form of
// filters; the meaning of fields and values is the caller's.
package query

import (
	"slices"
	"strings"
	"unicode"
)

// Op compares a field with a value.
type Op string

// The comparisons.
const (
	Is      Op = ""
	After   Op = ">"
	From    Op = ">="
	Before  Op = "<"
	To      Op = "<="
	Between Op = ".."
)

// Filter is a condition on a field.
type Filter struct {
	Field  string
	Not    bool
	Op     Op
	Values []string // alternatives of Is; both ends of Between; otherwise one
	Text   string   // as written
}

// Query is a parsed search.
type Query struct {
	Words   string // all but the filters, as written
	Filters []Filter
}

// Parse parses text. Only the given fields have filters: a colon after another word is part of the
// words, as in "Re: lock".
func Parse(text string, fields ...string) Query {
	var q Query
	var words []string
	for rest := strings.TrimLeftFunc(text, unicode.IsSpace); rest != ""; rest = strings.TrimLeftFunc(rest, unicode.IsSpace) {
		token := rest[:tokenEnd(rest)]
		rest = rest[len(token):]
		if f, ok := parseFilter(token, fields); ok {
			q.Filters = append(q.Filters, f)
		} else {
			words = append(words, token)
		}
	}
	q.Words = strings.Join(words, " ")
	return q
}

// tokenEnd returns the end of the first token: the first space outside of quotes.
func tokenEnd(text string) int {
	quoted := false
	for i, r := range text {
		switch {
		case r == '"':
			quoted = !quoted
		case unicode.IsSpace(r) && !quoted:
			return i
		}
	}
	return len(text)
}

// parseFilter reads a token as a filter; false if it is none.
func parseFilter(token string, fields []string) (Filter, bool) {
	text, not := strings.CutPrefix(token, "-")
	field, value, ok := strings.Cut(text, ":")
	if field = strings.ToLower(field); !ok || value == "" || !slices.Contains(fields, field) {
		return Filter{}, false
	}
	f := Filter{Field: field, Not: not, Text: token}
	for _, op := range []Op{From, To, After, Before} { // the longer ones first
		if rest, ok := strings.CutPrefix(value, string(op)); ok {
			f.Op, f.Values = op, []string{unquote(rest)}
			return f, true
		}
	}
	if low, high, ok := strings.Cut(value, ".."); ok && !strings.Contains(value, `"`) {
		f.Op, f.Values = Between, []string{low, high}
		return f, true
	}
	f.Values = splitValues(value)
	return f, true
}

// splitValues splits at commas outside of quotes. Empty values are dropped.
func splitValues(text string) []string {
	var values []string
	quoted, start := false, 0
	add := func(value string) {
		if value = unquote(value); value != "" {
			values = append(values, value)
		}
	}
	for i, r := range text {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ',' && !quoted:
			add(text[start:i])
			start = i + 1
		}
	}
	add(text[start:])
	return values
}

func unquote(value string) string { return strings.ReplaceAll(value, `"`, "") }
