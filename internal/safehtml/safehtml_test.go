package safehtml

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/safehtml/safehtmltest"
)

func TestSanitize(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"text", "a &lt; b", "a &lt; b"},
		{"script", "a<script>x</script>b", "ab"},
		{"handler", `<p onclick="x" ONMOUSEOVER=x>a</p>`, "<p>a</p>"},
		{"javascript", `<a href=" jAvascript:x">a</a>`, "a"},
		{"data", `<a href="data:text/html,x">a</a><img src="data:image/png;base64,AAAA" alt="b">`, `a<img alt="b">`},
		{"mail and telephone", `<a href="mailto:a@b.example">a</a>`, `<a href="mailto:a@b.example" rel="nofollow noreferrer">a</a>`},
		{"inline image", `<img src="CID:a%2Fb@c">`, `<img src="cid:a/b@c">`},
		{"remote image", `<img src="http://x.example/?a=1&amp;b=2" srcset="http://y.example 2x">`, `<img data-remote-src="http://x.example/?a=1&amp;b=2">`},
		{"a sender's own data-remote-src", `<img data-remote-src="x" src="cid:a">`, `<img src="cid:a">`},
		{"background", `<table background="http://x.example/a.png"><tr><td style="background-image:url(http://x.example/b.png);color:#f00">a</td></tr></table>`, `<table><tr><td style="color: #f00">a</td></tr></table>`},
		{"form", `<form action="http://x.example"><input name=a>b</form>`, "b"},
		{"style element", `<style>p{background:url(http://x.example)}</style><p>a</p>`, "<p>a</p>"},
		{"conditional comment", `<!--[if mso]><b>x</b><![endif]-->a`, "a"},
		{"svg", `<svg><script>x</script><text>y</text></svg>a`, "a"},
		{"NUL and bad bytes", "a\x00b\xffc", "ab\uFFFDc"},
		{"end tags of the page around", "</div></li></td></main>a</p></b>", "a"},
		{"left open", `<div><b>a<a href="https://x.example">b`, `<div><b>a<a href="https://x.example" rel="nofollow noreferrer noopener" target="_blank">b</a></b></div>`},
		{"end tags that may be left out", "<p>a<p>b<ul><li>c<li>d</ul>e", "<p>a<p>b<ul><li>c<li>d</ul>e"},
		{"crossed", "<div><b>a<i>b</b>c</i></div></div>", "<div><b>a<i>b</i></b>c</div>"},
		{"an end tag in a cell", "<p>a<table><tr><td>b</p></div>c</td></tr></table>", "<p>a<table><tr><td>bc</td></tr></table>"},
		{"a table left open", "<table><tr><td><b>a", "<table><tr><td><b>a</b></table>"},
		{"void elements", "a<br>b<br/>c</br><hr>d", "a<br>b<br/>c<hr>d"},
	} {
		got := NewSanitizer().Sanitize(tt.in)
		if got != tt.want {
			t.Errorf("%s: Sanitize(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
		}
		safehtmltest.Harmless(t, got)
	}
}

// TestSanitizeLongStyle: a long style attribute is removed, and the rest of its element stays.
func TestSanitizeLongStyle(t *testing.T) {
	long := `<p style="color:red;` + strings.Repeat("(", maxStyle) + `" title="b">a</p>`
	if got, want := NewSanitizer().Sanitize(long), `<p title="b">a</p>`; got != want {
		t.Errorf("Sanitize() = %q, want %q", got, want)
	}
	// This took minutes without the bound.
	if got := NewSanitizer().Sanitize(`<p style="` + strings.Repeat("(", 1<<20) + `">a`); got != "<p>a" {
		t.Errorf("Sanitize() = %.100q, want %q", got, "<p>a")
	}
}

func TestText(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"blocks", "<div>a</div><div>b<br>c</div><p>d</p><p>e</p>f", "a\nb\nc\n\nd\n\ne\n\nf"},
		{"space", "  a \n b&nbsp;c  <b> d</b>", "a b\u00a0c d"},
		{"entities", "a &amp;lt; b &euro;", "a &lt; b €"},
		{"list", "<ul><li>a</li><li>b</li></ul>c", "- a\n- b\n\nc"},
		{"table", "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\nc"},
		{"quote", "a<blockquote><p>b</p><blockquote>c</blockquote></blockquote>d", "a\n\n> b\n>\n> > c\n\nd"},
		{"pre", "<pre>a\n  b</pre>", "a\n  b"},
		{"link", `see <a href="https://x.example/y">this</a>.`, "see this <https://x.example/y>."},
		{"link that is its text", `<a href="https://x.example/">https://x.example</a> <a href="mailto:a@b.example">a@b.example</a> <a href="https://x.example">x.example</a>`, "https://x.example a@b.example x.example"},
		{"image", `a<img alt="lamp">b`, "a [lamp] b"},
		{"rule", "a<hr>b", "a\n---\nb"},
	} {
		if got := Text(tt.in, 1000); got != tt.want {
			t.Errorf("%s: Text(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

// TestExcerpt: an excerpt is bounded in size and depth, balanced, and harmless.
func TestExcerpt(t *testing.T) {
	for _, c := range []struct {
		in, want    string
		size, depth int
		more        bool
	}{
		{"<div><b>a</b></div>", "<div><b>a</b></div>", 100, 2, false},
		{"<div><b>a</b><i>b</i></div>c", "<div>ab</div>c", 100, 1, false},
		{"<div><b>abc</b></div>", "<div><b>a</b></div>", 9, 2, true},
		{"<p>a<p>b<p>c<br>d", "<p>a<p>b<p>c<br>d", 100, 1, false},
		{"<div><div><div>a</div></div><b>b</b></div>c", "<div><div>a</div><b>b</b></div>c", 100, 2, false},
		{"<table><tr><td><table><tr><td>a</td></tr></table>b</td></tr></table>c", "<table><tr><td>ab</td></tr></table>c", 100, 1, false},
		{strings.Repeat("<table><tr><td>", 14) + "<div>a</div>" + strings.Repeat("</td></tr></table>", 14) + "b", strings.Repeat("<table><tr><td>", 12) + "<div>a</div>" + strings.Repeat("</td></tr></table>", 12) + "b", 1000, 50, false},
		{"", "", 10, 1, false},
	} {
		if got, more := Excerpt(c.in, c.size, c.depth); got != c.want || more != c.more {
			t.Errorf("Excerpt(%q, %d, %d) = %q, %v, want %q, %v", c.in, c.size, c.depth, got, more, c.want, c.more)
		}
	}
	s := NewSanitizer()
	for _, unit := range []string{"<div>", "<table><tr><td>", "<b><p>", "<ul><li>", "<blockquote>x"} {
		got, _ := Excerpt(s.Sanitize(strings.Repeat(unit, 1<<20/len(unit))), 1<<18, 50)
		if len(got) > 1<<18+1000 || strings.Count(got, "</") > 2*50 {
			t.Errorf("%s nested without end: %d bytes, %d ends", unit, len(got), strings.Count(got, "</"))
		}
		safehtmltest.Harmless(t, got)
	}
}
