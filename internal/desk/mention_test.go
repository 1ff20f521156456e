package desk

import (
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/event"
)

func TestFindMentions(t *testing.T) {
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
		if got := findMentions(text, members); !slices.Equal(got, want) {
			t.Errorf("%q mentions %v, want %v", text, got, want)
		}
	}
}
