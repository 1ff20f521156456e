package desk

import (
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/event"
)

func TestMentions(t *testing.T) {
	members := []event.Person{
		{ID: "ann", Name: "Ann", Email: "ann@a.example"},
		{ID: "anna", Name: "Anna Lee", Email: "a.lee@a.example"},
		{ID: "bo1", Name: "Bo Ek", Email: "bo.ek@a.example"},
		{ID: "bo2", Name: "Bo Alm", Email: "b.alm@a.example"},
		{ID: "åsa", Name: "Åsa Öberg"},
	}
	for text, want := range map[string][]string{
		"@Ann":                        {"ann"},
		"ask @ann, @ANNA LEE.":        {"ann", "anna"},
		"@anna and @Anna":             {"anna"},
		"(@a.lee)":                    {"anna"},
		"@annabel":                    nil,
		"mail ann@a.example or x@ann": nil,
		"@ann@b.example":              nil,
		"@bo":                         nil, // two members
		"@bo alm, not @bo.ek-else":    {"bo2"},
		"@bo.ek.":                     {"bo1"},
		"@åsa öberg and @@":           {"åsa"},
		"@":                           nil,
		"@\xff @ann\xff":              {"ann"},
		"@ann.lee":                    nil,
		"no mention":                  nil,
	} {
		var got []string
		for _, m := range Mentions(text, members) {
			if text[m.Start] != '@' {
				t.Errorf("%q: a mention is %q", text, text[m.Start:m.End])
			}
			if !slices.Contains(got, m.UserID) {
				got = append(got, m.UserID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q mentions %v, want %v", text, got, want)
		}
	}
}
