package reference

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/kickstand-dev/kickstand/internal/clientgen"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// entry is a search result with the words that find it.
type entry struct {
	result
	title, body []string // lower case
}

// result is a link of a page of search results.
type result struct {
	Path, Title, Address, Text string
}

// maxResults bounds a page of results.
const maxResults = 30

// entries returns the operations, webhook events and error codes of an API.
func entries(api *clientgen.API, groups []group) []entry {
	var out []entry
	add := func(r result, body ...string) {
		out = append(out, entry{r, words(r.Title + " " + r.Address), words(r.Text + " " + strings.Join(body, " "))})
	}
	for _, g := range groups {
		for _, o := range g.Operations {
			var text strings.Builder
			text.WriteString(o.ID)
			for _, fields := range [][]field{o.Parameters, o.Body, o.Answer} {
				for _, f := range fields {
					text.WriteString(" " + f.Name)
				}
			}
			add(result{g.Path + "#" + o.ID, o.Summary, o.Method + " " + o.Template, strings.Join(o.Doc, " ")}, text.String(), o.Needs)
		}
	}
	for _, c := range rest.ErrorCodes() {
		if slices.Contains(api.Codes, c.Code) {
			add(result{"/problems/" + c.Code, c.Title, strconv.Itoa(c.Status) + " " + c.Code, c.Doc})
		}
	}
	return out
}

// find returns the entries that have all words of a query, by the start of a word. Entries
// with more of them in title and address come first.
func find(all []entry, query string) []result {
	type match struct {
		entry *entry
		score int
	}
	var matches []match
	wanted := words(query)
	for i := range all {
		e := &all[i]
		m := match{e, 0}
		found := len(wanted) > 0
		for _, w := range wanted {
			switch {
			case slices.Contains(e.title, w):
				m.score += 3
			case hasPrefix(e.title, w):
				m.score += 2
			case !hasPrefix(e.body, w):
				found = false
			}
		}
		if found {
			matches = append(matches, m)
		}
	}
	slices.SortStableFunc(matches, func(a, b match) int { return cmp.Compare(b.score, a.score) })
	var out []result
	for _, m := range matches[:min(len(matches), maxResults)] {
		out = append(out, m.entry.result)
	}
	return out
}

func hasPrefix(words []string, prefix string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, prefix) })
}

// words returns the words of a text in lower case; of "created_at" all of created_at, created
// and at.
func words(s string) []string {
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' }) {
		out = append(out, w)
		if strings.Contains(w, "_") {
			out = append(out, strings.Split(w, "_")...)
		}
	}
	return out
}
