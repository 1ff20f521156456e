package query_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/desk/query"
)

func TestParse(t *testing.T) {
	type filters = []query.Filter
	for text, want := range map[string]query.Query{
		"":                   {},
		" flat  tyre ":       {Words: "flat tyre"},
		`"flat tyre" status`: {Words: `"flat tyre" status`},
		"Re: lock http://x":  {Words: "Re: lock http://x"},
		"12:30 status:":      {Words: "12:30 status:"},
		"lock status:open":   {Words: "lock", Filters: filters{{Field: "status", Values: []string{"open"}, Text: "status:open"}}},
		"STATUS:open,closed": {Filters: filters{{Field: "status", Values: []string{"open", "closed"}, Text: "STATUS:open,closed"}}},
		`-tag:"night shift",vip x`: {Words: "x", Filters: filters{
			{Field: "tag", Not: true, Values: []string{"night shift", "vip"}, Text: `-tag:"night shift",vip`},
		}},
		"created:>=2026-01-01 created:<2026-02-01": {Filters: filters{
			{Field: "created", Op: query.From, Values: []string{"2026-01-01"}, Text: "created:>=2026-01-01"},
			{Field: "created", Op: query.Before, Values: []string{"2026-02-01"}, Text: "created:<2026-02-01"},
		}},
		"created:2026-01-01..2026-02-01": {Filters: filters{
			{Field: "created", Op: query.Between, Values: []string{"2026-01-01", "2026-02-01"}, Text: "created:2026-01-01..2026-02-01"},
		}},
		"tag:,":         {Filters: filters{{Field: "tag", Text: "tag:,"}}},
		`"status:open"`: {Words: `"status:open"`},
		`tag:"open`:     {Filters: filters{{Field: "tag", Values: []string{"open"}, Text: `tag:"open`}}},
	} {
		if got := query.Parse(text, "status", "tag", "created"); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
}

// FuzzParse: no text panics, and nothing of it is lost.
func FuzzParse(f *testing.F) {
	f.Add(`a "b c" -status:open,"d e" created:>1..2`)
	f.Fuzz(func(t *testing.T, text string) {
		q := query.Parse(text, "status", "created")
		length := len(q.Words)
		for _, filter := range q.Filters {
			length += len(filter.Text)
		}
		if spaces := len(text) - len(strings.Join(strings.Fields(text), "")); length+spaces < len(strings.Join(strings.Fields(text), "")) {
			t.Errorf("%q: got %+v", text, q)
		}
	})
}
