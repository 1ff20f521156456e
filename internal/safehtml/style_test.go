package safehtml

import (
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/safehtml/safehtmltest"
)

// TestStyles: harmless styles are preserved.
func TestStyles(t *testing.T) {
	s := NewSanitizer()
	for _, style := range []string{
		"color: #c00", "color: rgb(10, 20, 30)", "color: rgba(0,0,0,.5)", "color: rebeccapurple", "background-color: #fff", "background: #f5f5f5", "background: transparent",
		"font-size: 28px", "font-size: 10.5pt", "font-size: 1.5rem", "font-size: x-large", "font-weight: 600", "font-style: italic",
		"font-family: Arial, 'Helvetica Neue', sans-serif", "line-height: 1.4", "line-height: normal", "text-align: center", "text-decoration: underline",
		"text-transform: uppercase", "vertical-align: top", "white-space: nowrap", "list-style-type: none", "display: inline-block",
		"padding: 12px 24px", "padding: 0", "padding-left: 8px", "margin: 0 auto", "margin-top: 16px", "width: 600px", "max-width: 100%", "width: 33.3%",
		"border: 1px solid #ddd", "border-top: 2px dashed red", "border-radius: 6px", "border-collapse: collapse", "border-spacing: 0 4px", "border-color: red blue",
	} {
		if got, want := s.Sanitize(`<p style="`+style+`">a</p>`), `<p style="`+strings.ReplaceAll(style, "'", "&#39;")+`">a</p>`; got != want {
			t.Errorf("Sanitize() = %q, want %q", got, want)
		}
	}
	table := `<table width="600" bgcolor="#eeeeee" cellpadding="4" border="1"><tr bgcolor="white"><td width="50%" align="right" valign="top" colspan="2"><font color="red" size="4">a</font></td></tr></table>`
	if got := s.Sanitize(table); got != table {
		t.Errorf("Sanitize() = %q, want %q", got, table)
	}
}

// TestHostileStyles: no element leaves its place, covers others, hides, or loads.
func TestHostileStyles(t *testing.T) {
	s := NewSanitizer()
	for _, style := range []string{
		"position: fixed; top: 0; left: 0", "position:absolute", "float: left", "z-index: 99", "margin: -40px", "margin-top:-1px", "margin: 0 0 0 -9999px", "text-indent: -999px",
		"height: 1px", "max-height: 0", "overflow: hidden", "display: none", "display: flex", "display:contents", "visibility: hidden", "opacity: 0", "clip-path: inset(50%)",
		"font-size: 1px", "font-size: 0", "font-size: 999px", "font-size: 3em", "font-size: 900%", "font-size: larger", "font: 14px/1px x",
		"line-height: 0", "line-height: 20px", "line-height: 10%", "line-height: .1", "line-height: 99", "letter-spacing: -9px", "width: 99999px", "width: 200%", "width: calc(1px)", "padding: 999px", "border: 99px solid red",
		"background: url(https://evil.example/a.png)", "background-image: url(//evil.example)", "background: red url(x)", "background: image-set('x' 1x)", "list-style: url(x)", "list-style-image: url(x)",
		"border-image: url(x)", "cursor: url(x), auto", "content: 'x'", "behavior: url(x)", "-moz-binding: url(x)", "filter: progid:x", "color: expression(alert(1))", "color: var(--x)", "color: env(x)", "--x: red",
		"transform: scale(9)", "animation: x 1s", "transition: all 1s", "color: red; position: fixed", `color: r\65 d`, `background: u\72l(https://evil.example)`, "co/**/lor: red", "background: url/**/(x)",
		"color:red}body{display:none", "color:red;@import 'x'", "font-family: x; background: url(y)", "font-family: x</style><script>",
		"color: attr(x url)", "width: 1e9px", "width:-1px", "padding: +9px",
	} {
		got := s.Sanitize(`<div style="` + strings.ReplaceAll(style, `"`, "&quot;") + `">a</div>`)
		safehtmltest.Harmless(t, got)
		if rest := strings.TrimSuffix(strings.TrimPrefix(got, "<div"), ">a</div>"); rest != "" && rest != ` style="color: red"` && rest != ` style="font-family: x"` {
			t.Errorf("%s: left %q", style, got)
		}
	}
	for _, markup := range []string{
		`<table width="99999999" border="9999" cellpadding="99999"><tr><td colspan="100000" height="99999">a</td></tr></table>`,
		`<font size="99" color="expression(1)">a</font>`, `<td bgcolor="url(x)">a</td>`, `<table background="https://evil.example">a</table>`,
	} {
		got := s.Sanitize(markup)
		safehtmltest.Harmless(t, got)
		if strings.Contains(got, "=") {
			t.Errorf("left %q", got)
		}
	}
}

// TestRemote: unloaded images are listed by URL, and loaded from another URL.
func TestRemote(t *testing.T) {
	markup := NewSanitizer().Sanitize(`<p>a<img src="https://x.example/a?b=1&amp;c=2" alt="A"><img src="cid:in"><img src="http://y.example/b"><img src="https://x.example/a?b=1&c=2"></p>`)
	const first, second = "https://x.example/a?b=1&c=2", "http://y.example/b"
	if got := RemoteImages(markup); !slices.Equal(got, []string{first, second}) {
		t.Errorf("Remote() = %q", got)
	}
	got := RewriteImages(markup, func(address string) string {
		if address == first {
			return `/p?"1`
		}
		return ""
	})
	if want := `<p>a<img src="/p?&#34;1" alt="A"><img src="cid:in"><img data-remote-src="http://y.example/b"><img src="/p?&#34;1"></p>`; got != want {
		t.Errorf("WithRemote() = %q, want %q", got, want)
	}
	for markup, want := range map[string]bool{
		`<p style="color: red">a</p>`: true, `<td bgcolor="#fff">a</td>`: true, `<font color="red">a</font>`: true, `<p style="background: #eee">a</p>`: true,
		`<p style="border: 1px solid #ddd">a</p>`: false, `<p>a colour</p>`: false,
	} {
		if SetsColors(markup) != want {
			t.Errorf("Coloured(%q) = %t", markup, !want)
		}
	}
}

func FuzzSanitize(f *testing.F) {
	for _, seed := range []string{
		`<p style="color:red;position:fixed">a</p>`, `<img src=x onerror=alert(1)>`, `<table bgcolor=red><td style="width:9999999px">`, `<a href="java&#10;script:x">`,
		`<style>@import x</style><math><mtext><table><mglyph><style><img src=x onerror=alert(1)>`, `<p style="font-family:'&quot;;background:url(x)">`,
	} {
		f.Add(seed)
	}
	s := NewSanitizer()
	f.Fuzz(func(t *testing.T, markup string) {
		got := s.Sanitize(markup)
		safehtmltest.Harmless(t, got)
		safehtmltest.Harmless(t, RewriteImages(got, func(string) string { return "" }))
	})
}
