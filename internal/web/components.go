package web

import (
	"hash/fnv"
	"html/template"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Badge is a label of a state. The template "badge" renders it.
type Badge struct {
	Text string
	Tone Tone
	Icon string // of static/icons.svg; empty for none
}

// BadgeFor returns the badge of a state, or one with its name.
func BadgeFor[S ~string](badges map[S]Badge, state S) Badge {
	if b, ok := badges[state]; ok {
		return b
	}
	return Badge{Text: string(state)}
}

// Tone is a semantic colour; a word always accompanies it.
type Tone string

// Tones.
const (
	Neutral Tone = ""
	Good    Tone = "good"
	Warning Tone = "warning"
	Bad     Tone = "bad"
	Accent  Tone = "accent"
)

// Avatar represents a user or customer by initials. The template "avatar" renders it.
type Avatar struct {
	Name     string
	Initials string
	Shade    int // 0 to 7
}

// NewAvatar returns the avatar for a name, or for an e-mail address if there is no name.
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

// Filters is the form above a list, folded into one button on a narrow screen. The
// template "filters" renders it. Values are in the URL, so that lists can be bookmarked and shared.
type Filters struct {
	Fields Fields
	All    string // URL without filters; empty if none are set
	Label  string // of the button; empty: the default
}

// Empty is an empty state: a sentence and the next action. The template "empty" renders
// it.
type Empty struct {
	Text    string // one sentence
	Path    string // of the next action; empty: none
	Label   string // of the link
	Command string // to paste in a shell; empty: none
}

// newEmpty returns an [Empty] with its fields set in order; missing ones stay empty.
func newEmpty(members ...string) Empty {
	var e Empty
	for i, to := range []*string{&e.Text, &e.Path, &e.Label, &e.Command} {
		if i < len(members) {
			*to = members[i]
		}
	}
	return e
}

// Code is a text with a copy button. The template "code" renders it.
type Code struct {
	Label string // for screen readers
	Text  string
}

// Secret is a value that is shown once. The template "secret" renders it.
type Secret struct {
	Label string // "API key"
	Value string
	Note  string // how to use it
}

// Pager links to the previous and next page; an empty path means none. The template
// "pager" renders it.
type Pager struct {
	Newer, Older string
}

// Address returns path with query, if any.
func Address(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// icon returns an icon of static/icons.svg. It is hidden from screen readers: the text
// beside it, or the label around it, has its meaning.
func (a *assets) icon(name string) template.HTML {
	return template.HTML(`<svg class="icon" aria-hidden="true"><use href="` + a.path("icons.svg") + "#" + template.HTMLEscapeString(name) + `"></use></svg>`)
}
