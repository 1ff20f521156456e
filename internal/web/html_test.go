package web_test

import (
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// document is a page as a browser reads it.
type document struct {
	t    testing.TB
	root *html.Node
}

// wantPage: what every page must be. It returns the page.
func wantPage(t testing.TB, w *httptest.ResponseRecorder) document {
	t.Helper()
	body := w.Body.String()
	d := parse(t, body)
	referrer := "no-referrer"
	if len(d.all("form")) > 0 {
		referrer = "strict-origin"
	}
	for name, want := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         referrer,
		"Cache-Control":           "no-store",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("got %s %q, want %q", name, got, want)
		}
	}
	if h1 := d.all("h1"); len(h1) != 1 || text(h1[0]) == "" {
		t.Errorf("got %d headings in page %s", len(h1), body)
	}
	return d
}

// parse reads a page and holds what must be so on each: tags balance, there are
// no other elements and attributes than our templates write, none of it runs or
// loads anything of others, and what refers to an id refers to one.
func parse(t testing.TB, body string) document {
	t.Helper()
	if !strings.HasPrefix(body, "<!doctype html>\n") {
		t.Fatalf("got a page that begins with %.40q", body)
	}
	var open []string
	for z := html.NewTokenizer(strings.NewReader(body)); ; {
		kind := z.Next()
		if kind == html.ErrorToken {
			if z.Err() != io.EOF {
				t.Fatal(z.Err())
			}
			break
		}
		token := z.Token()
		switch kind {
		case html.CommentToken, html.SelfClosingTagToken:
			t.Errorf("%s in page %s", token, body)
		case html.StartTagToken:
			if !slices.Contains([]string{"meta", "link", "input"}, token.Data) {
				open = append(open, token.Data)
			}
			checkTag(t, token)
		case html.EndTagToken:
			if len(open) == 0 || open[len(open)-1] != token.Data {
				t.Fatalf("</%s> closes %v in page %s", token.Data, open, body)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) != 0 {
		t.Errorf("page ends inside %v: %s", open, body)
	}
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	d := document{t, root}
	for n := range root.Descendants() {
		refs := strings.Fields(attr(n, "for") + " " + attr(n, "aria-describedby"))
		if id, ok := strings.CutPrefix(attr(n, "href"), "#"); ok {
			refs = append(refs, id)
		}
		for _, id := range refs {
			if len(d.with("id", id)) != 1 {
				t.Errorf("%d elements have the id %q of %s", len(d.with("id", id)), id, n.Data)
			}
		}
	}
	for _, in := range d.all("input") {
		if attr(in, "type") != "hidden" && !has(in, "hidden") && len(d.with("for", attr(in, "id"))) != 1 {
			t.Errorf("no label for the field %s", attr(in, "name"))
		}
	}
	return d
}

// attributes are those that the templates write, by element.
var attributes = map[string]string{
	"html": "lang", "head": "", "meta": "charset name content", "title": "", "link": "rel href",
	"body": "", "header": "", "main": "class", "h1": "", "h2": "", "p": "class id role", "dl": "class", "dt": "", "dd": "",
	"code": "", "strong": "", "bdi": "", "a": "href class", "ul": "", "li": "", "div": "class role", "form": "method action",
	"label": "for", "button": "",
	"input": "type name value autocomplete readonly hidden id required minlength spellcheck autocapitalize dir autofocus aria-invalid aria-describedby",
}

func checkTag(t testing.TB, token html.Token) {
	t.Helper()
	allowed, known := attributes[token.Data]
	if !known {
		t.Errorf("an element %s", token.Data)
	}
	for _, a := range token.Attr {
		if !slices.Contains(strings.Fields(allowed), a.Key) {
			t.Errorf("an attribute %s in %s", a.Key, token)
		}
		if a.Key == "href" && !strings.HasPrefix(a.Val, "#") && (!strings.HasPrefix(a.Val, "/") || strings.HasPrefix(a.Val, "//")) {
			t.Errorf("a link to %q", a.Val)
		}
	}
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, key string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == key })
}

// text is what an element says, with each run of white space as one space.
func text(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// all returns the elements of one kind.
func (d document) all(name string) []*html.Node {
	var out []*html.Node
	for n := range d.root.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			out = append(out, n)
		}
	}
	return out
}

// with returns the elements that have an attribute of this value.
func (d document) with(key, value string) []*html.Node {
	var out []*html.Node
	for n := range d.root.Descendants() {
		if n.Type == html.ElementNode && has(n, key) && attr(n, key) == value {
			out = append(out, n)
		}
	}
	return out
}

// field returns the input with a name.
func (d document) field(name string) *html.Node {
	d.t.Helper()
	found := d.with("name", name)
	if len(found) != 1 || found[0].Data != "input" {
		d.t.Fatalf("got %d inputs %s in page %s", len(found), name, text(d.root))
	}
	return found[0]
}

// described returns what is said about a field beside it.
func (d document) described(name string) []string {
	d.t.Helper()
	var out []string
	for id := range strings.FieldsSeq(attr(d.field(name), "aria-describedby")) {
		for _, n := range d.with("id", id) {
			out = append(out, text(n))
		}
	}
	return out
}

// want: the page says each of these.
func (d document) want(parts ...string) {
	d.t.Helper()
	all := text(d.root)
	for _, want := range parts {
		if !strings.Contains(all, want) {
			d.t.Errorf("got page %q, want %q in it", all, want)
		}
	}
}

// alert is what the page says first went wrong; empty when nothing did.
func (d document) alert() string {
	for _, n := range d.with("role", "alert") {
		return text(n)
	}
	return ""
}
