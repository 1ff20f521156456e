// Package safehtmltest holds what is true of all markup that was sanitized, as an
// assertion for tests.
package safehtmltest

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// Harmless asserts that sanitized markup does nothing when a page shows it. It
// parses as a browser does, not as the sanitizer did.
func Harmless(t testing.TB, markup string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(markup))
	if err != nil {
		return // deeper than this parser goes
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "script", "style", "iframe", "object", "embed", "form", "input", "button", "link", "meta", "base", "svg", "math", "video", "audio", "textarea", "select":
			t.Errorf("element %s in %.200q", n.Data, markup)
		}
		for _, a := range n.Attr {
			value := strings.ToLower(strings.TrimSpace(a.Val))
			switch {
			case strings.HasPrefix(a.Key, "on"), a.Key == "srcset", a.Key == "background", a.Key == "srcdoc", a.Key == "formaction":
				t.Errorf("attribute %s in %.200q", a.Key, markup)
			case a.Key == "style" && (strings.Contains(value, "url") || strings.Contains(value, "expression") || strings.Contains(value, "position")):
				t.Errorf("style %q", a.Val)
			case a.Key == "src" && !strings.HasPrefix(value, "cid:"):
				t.Errorf("src %q would load by itself", a.Val)
			case a.Key == "href" && !strings.HasPrefix(value, "http:") && !strings.HasPrefix(value, "https:") && !strings.HasPrefix(value, "mailto:") && !strings.HasPrefix(value, "tel:") && !strings.HasPrefix(value, "cid:"):
				t.Errorf("href %q", a.Val)
			}
		}
	}
}
