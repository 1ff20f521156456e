package web

import (
	"hash/fnv"
	"html/template"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Badge is a short word about a state. The template "chip" shows it.
type Badge struct {
	Text string
	Tone Tone
	Icon string // of static/icons.svg; empty for none
}

// Tone is a colour with a meaning. Beside it there is always a word.
type Tone string

// The tones.
const (
	Neutral Tone = ""
	Good    Tone = "good"
	Warning Tone = "warning"
	Bad     Tone = "bad"
	Accent  Tone = "accent"
)

// Avatar stands for a person. The template "avatar" shows it.
type Avatar struct {
	Name     string
	Initials string
	Shade    int // 0 to 7
}

// NewAvatar returns the avatar of a person by name, or by address where they have none.
func NewAvatar(name string) Avatar {
	a := Avatar{Name: name}
	words := strings.FieldsFunc(name, func(c rune) bool { return strings.ContainsRune(" .-_@", c) })
	for i, w := range words {
		if i == 0 || i == len(words)-1 && !strings.Contains(name, "@") {
			c, _ := utf8.DecodeRuneInString(w)
			a.Initials += strings.ToUpper(string(c))
		}
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	a.Shade = int(h.Sum32() % 8)
	return a
}

// Empty says that there is nothing yet, and what to do about it. The template
// "empty" shows it.
type Empty struct {
	Text    string // one sentence
	Path    string // where the next action is; empty for none
	Label   string // what that link says
	Command string // a command to paste; empty for none
}

// newEmpty returns an [Empty] of as many of its members as there are, in order.
func newEmpty(members ...string) Empty {
	var e Empty
	for i, to := range []*string{&e.Text, &e.Path, &e.Label, &e.Command} {
		if i < len(members) {
			*to = members[i]
		}
	}
	return e
}

// Code is a text to copy. The template "code" shows it.
type Code struct {
	Label string // what it is, for who cannot see it
	Text  string
}

// Secret is a value that is shown this once. The template "secret" shows it.
type Secret struct {
	Label string // "API key"
	Value string
	Note  string // what to do with it
}

// Pager leads to the pages before and after; empty paths where there are none.
// The template "pager" shows it.
type Pager struct {
	Newer, Older string
}

// Address is a path with a query, if there is any.
func Address(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// icon returns an icon of static/icons.svg. It says nothing to who cannot see
// it: the word is beside it, or in the label around it.
func (a *assets) icon(name string) template.HTML {
	return template.HTML(`<svg class="icon" aria-hidden="true"><use href="` + a.path("icons.svg") + "#" + template.HTMLEscapeString(name) + `"></use></svg>`)
}
