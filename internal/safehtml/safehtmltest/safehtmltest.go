// Package safehtmltest checks the invariants of sanitized markup.
package safehtmltest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// Harmless checks that sanitized markup does nothing when a page shows it. It parses like a
// browser rather than like the sanitizer.
func Harmless(t testing.TB, markup string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(markup))
	if err != nil {
		return // beyond the parser's depth limit
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
			case a.Key == "style":
				harmlessStyle(t, a.Val)
			case a.Key == "src" && !strings.HasPrefix(value, "cid:"):
				t.Errorf("src %q would load by itself", a.Val)
			case a.Key == "href" && !strings.HasPrefix(value, "http:") && !strings.HasPrefix(value, "https:") && !strings.HasPrefix(value, "mailto:") && !strings.HasPrefix(value, "tel:") && !strings.HasPrefix(value, "cid:"):
				t.Errorf("href %q", a.Val)
			}
		}
	}
}

// number is a number with sign and unit.
var number = regexp.MustCompile(`(-?)([0-9]+)(?:\.[0-9]+)?(px|pt|rem|em|%|[a-z]+)?`)

// harmlessStyle checks that a style attribute loads nothing, moves and hides nothing, and has
// no size that could cover other content.
func harmlessStyle(t testing.TB, style string) {
	t.Helper()
	if strings.ContainsAny(style, `\<>{}@!`) || strings.Contains(style, "/*") {
		t.Errorf("style %q", style)
	}
	for declaration := range strings.SplitSeq(strings.ToLower(style), ";") {
		property, value, _ := strings.Cut(declaration, ":")
		property = strings.TrimSpace(property)
		switch {
		case property == "":
			continue
		case strings.Contains(value, "url"), strings.Contains(value, "expression"), strings.Contains(value, "var("), strings.Contains(value, "calc"),
			strings.Contains(property, "position"), strings.Contains(property, "content"), strings.Contains(property, "transform") && property != "text-transform",
			slices.Contains([]string{"float", "z-index", "height", "max-height", "top", "left", "right", "bottom", "overflow", "opacity", "visibility", "filter",
				"clip", "clip-path", "animation", "transition", "behavior", "-moz-binding", "cursor", "text-indent", "letter-spacing", "font"}, property),
			property == "display" && strings.Contains(value, "none"):
			t.Errorf("style %q", declaration)
		}
		if strings.Contains(property, "color") || property == "background" || property == "font-family" {
			continue
		}
		for _, n := range number.FindAllStringSubmatch(value, -1) {
			size, _ := strconv.Atoi(n[2])
			if n[1] != "" || n[3] == "px" && size > 1999 || n[3] == "px" && strings.HasPrefix(property, "font") && size > 48 ||
				n[3] == "em" || property == "line-height" && (n[3] != "" || size > 3 || size < 1) {
				t.Errorf("style %q", declaration)
			}
		}
	}
}
