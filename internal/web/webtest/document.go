// Package webtest parses pages in tests and asserts the rules that hold for all of them.
package webtest

import (
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// Document is a parsed page.
type Document struct {
	T    testing.TB
	Root *html.Node
}

// Parse parses a page and asserts: tags balance, only known elements occur, no inline
// script and no foreign resource, ids are unique and references to ids resolve, each
// field has an accessible name, and there is one heading.
func Parse(t testing.TB, body string) Document {
	t.Helper()
	if !strings.HasPrefix(body, "<!doctype html>\n") {
		t.Fatalf("got a page that begins with %.40q", body)
	}
	checkBalance(t, body)
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	d := Document{t, root}
	d.checkReferences()
	for _, name := range []string{"input", "textarea", "select"} {
		for _, in := range d.All(name) {
			if Attr(in, "type") != "hidden" && !Has(in, "hidden") && !named(d, in) {
				t.Errorf("no label for the field %s", Attr(in, "name"))
			}
		}
	}
	if h1 := d.All("h1"); len(h1) != 1 || Text(h1[0]) == "" {
		t.Errorf("got %d headings in page %s", len(h1), body)
	}
	return d
}

// checkBalance asserts that tags balance.
func checkBalance(t testing.TB, body string) {
	t.Helper()
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
			if !slices.Contains(void, token.Data) {
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
}

// checkReferences asserts that ids are unique and references to them resolve.
func (d Document) checkReferences() {
	d.T.Helper()
	for n := range d.Root.Descendants() {
		refs := strings.Fields(Attr(n, "for") + " " + Attr(n, "aria-describedby") + " " + Attr(n, "aria-labelledby") + " " + Attr(n, "popovertarget") + " " + Attr(n, "form") + " " + Attr(n, "list"))
		if id := Attr(n, "id"); id != "" && n.Type == html.ElementNode {
			refs = append(refs, id)
		}
		if id, ok := strings.CutPrefix(Attr(n, "href"), "#"); ok && n.Data == "a" {
			refs = append(refs, id)
		}
		for _, id := range refs {
			if len(d.WithAttr("id", id)) != 1 {
				d.T.Errorf("%d elements have the id %q of %s", len(d.WithAttr("id", id)), id, n.Data)
			}
		}
	}
}

// void lists the elements without an end tag.
var void = []string{"meta", "link", "input", "br", "hr", "img", "wbr", "col"}

// elements lists the elements of the templates. HTML mails have frames of their own.
var elements = strings.Fields(`html head meta title link script body header footer main nav section article aside h1 h2 h3 h4
	p dl dt dd ul ol li div span a strong b em i code pre kbd bdi time small mark abbr blockquote q br hr wbr img figure figcaption
	form fieldset legend label input textarea select option optgroup button output progress meter datalist
	table caption colgroup col thead tbody tfoot tr th td details summary dialog iframe audio template
	svg use title desc defs g path rect circle ellipse line polyline polygon text tspan clippath pattern`)

func checkTag(t testing.TB, token html.Token) {
	t.Helper()
	if !slices.Contains(elements, token.Data) {
		t.Errorf("an element %s", token)
	}
	for _, a := range token.Attr {
		switch {
		case strings.HasPrefix(a.Key, "on") || slices.Contains([]string{"style", "srcdoc", "formaction", "ping", "background"}, a.Key):
			t.Errorf("an attribute %s in %s", a.Key, token)
		case a.Key == "href" && token.Data == "a":
			if u, err := url.Parse(a.Val); err != nil || u.Scheme == "" && !local(a.Val) || !slices.Contains([]string{"", "https", "http", "mailto", "tel"}, u.Scheme) {
				t.Errorf("a link to %q", a.Val)
			}
		case a.Key == "src" && token.Data == "img" && strings.HasPrefix(a.Val, "data:image/png;base64,"): // a preview
		case slices.Contains([]string{"src", "href", "action", "poster", "data"}, a.Key) && !local(a.Val):
			t.Errorf("a place %q in %s", a.Val, token)
		}
	}
	if token.Data == "script" && !slices.ContainsFunc(token.Attr, func(a html.Attribute) bool { return a.Key == "src" }) {
		t.Errorf("a script in the page: %s", token)
	}
}

// local reports whether an address is on this site.
func local(address string) bool {
	return strings.HasPrefix(address, "#") || strings.HasPrefix(address, "?") || strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "//")
}

// named reports whether a field has an accessible name: a label or an ARIA attribute.
func named(d Document, in *html.Node) bool {
	if Attr(in, "aria-label") != "" || Attr(in, "aria-labelledby") != "" {
		return true
	}
	if id := Attr(in, "id"); id != "" && len(d.WithAttr("for", id)) == 1 {
		return true
	}
	for n := in.Parent; n != nil; n = n.Parent {
		if n.Data == "label" && Text(n) != "" {
			return true
		}
	}
	return false
}

// Attr returns the value of an attribute, or "".
func Attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// Has reports whether an element has an attribute.
func Has(n *html.Node, key string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == key })
}

// Text returns the text of an element, with white space collapsed.
func Text(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// All returns the elements with a tag name.
func (d Document) All(name string) []*html.Node {
	var out []*html.Node
	for n := range d.Root.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			out = append(out, n)
		}
	}
	return out
}

// WithAttr returns the elements with an attribute of this value.
func (d Document) WithAttr(key, value string) []*html.Node {
	var out []*html.Node
	for n := range d.Root.Descendants() {
		if n.Type == html.ElementNode && Has(n, key) && Attr(n, key) == value {
			out = append(out, n)
		}
	}
	return out
}

// Field returns the input name.
func (d Document) Field(name string) *html.Node {
	d.T.Helper()
	found := d.WithAttr("name", name)
	if len(found) != 1 || !slices.Contains([]string{"input", "textarea", "select"}, found[0].Data) {
		d.T.Fatalf("got %d inputs %s in page %s", len(found), name, Text(d.Root))
	}
	return found[0]
}

// DescribedBy returns the texts that describe a field.
func (d Document) DescribedBy(name string) []string {
	d.T.Helper()
	var out []string
	for id := range strings.FieldsSeq(Attr(d.Field(name), "aria-describedby")) {
		for _, n := range d.WithAttr("id", id) {
			out = append(out, Text(n))
		}
	}
	return out
}

// Want asserts that the page contains each text.
func (d Document) Want(parts ...string) {
	d.T.Helper()
	all := Text(d.Root)
	for _, want := range parts {
		if !strings.Contains(all, want) {
			d.T.Errorf("got page %q, want %q in it", all, want)
		}
	}
}

// Alert returns the first error message of the page, or "".
func (d Document) Alert() string {
	for _, n := range d.WithAttr("role", "alert") {
		return Text(n)
	}
	return ""
}
