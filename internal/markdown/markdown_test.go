package markdown

import (
	"strings"
	"testing"
	"time"
)

func noPicture(string) string { return "" }

func TestRender(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"paragraphs and line breaks", "Dear Ana,\nthank you.\n\nBest", "<p>Dear Ana,<br>\nthank you.</p>\n<p>Best</p>\n"},
		{"emphasis", "**now** *or* ~~never~~", "<p><strong>now</strong> <em>or</em> <del>never</del></p>\n"},
		{"list", "- one\n- two", "<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n"},
		{"bare link", "See https://example.com/a_b_c.", `<p>See <a href="https://example.com/a_b_c">https://example.com/a_b_c</a>.</p>` + "\n"},
		{"HTML is text", "<b>x</b> & <script>alert(1)</script>", "<p>&lt;b&gt;x&lt;/b&gt; &amp; &lt;script&gt;alert(1)&lt;/script&gt;</p>\n"},
		{"HTML block is text", "<div>\n*x*\n</div>", "<p>&lt;div&gt;<br>\n<em>x</em><br>\n&lt;/div&gt;</p>\n"},
		{"script link", "[x](javascript:alert(1))", "<p><a href=\"\">x</a></p>\n"},
		{"a line of dashes is no heading", "Best\n-- \nAna", "<p>Best<br>\n--<br>\nAna</p>\n"},
		{"indented lines", "a\n\n    <b>", "<p>a</p>\n<pre><code>&lt;b&gt;\n</code></pre>\n"},
		{"table", "| a | b |\n|---|--:|\n| 1 | 2 |", "<table>\n<thead>\n<tr>\n<th>a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td align=\"right\">2</td>\n</tr>\n</tbody>\n</table>\n"},
		{"unknown picture", "![a map](attachment:map.png)", "<p>[a map]</p>\n"},
		{"text of an unknown picture", "![<b>](attachment:map.png)", "<p>[&lt;b&gt;]</p>\n"},
		{"empty", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := Render(test.text, noPicture); got != test.want {
				t.Errorf("Render(%q) = %q, want %q", test.text, got, test.want)
			}
		})
	}
}

func TestRenderPlacesPictures(t *testing.T) {
	t.Parallel()
	picture := func(name string) string {
		if name == "a map.png" {
			return "cid:1@example.com"
		}
		return ""
	}
	got := Render("See ![the map](attachment:a%20map.png)", picture)
	if want := `<p>See <img src="cid:1@example.com" alt="the map"></p>` + "\n"; got != want {
		t.Errorf("Render = %q, want %q", got, want)
	}
}

func TestWithoutPictures(t *testing.T) {
	t.Parallel()
	has := func(name string) bool { return name == "a b.png" || name == "c.png" }
	const text = "One ![the map](attachment:a%20b.png) two ![](attachment:c.png) ![gone](attachment:d.png)"
	if got, want := WithoutPictures(text, true, has), "One [the map] two [c.png] ![gone](attachment:d.png)"; got != want {
		t.Errorf("described: %q, want %q", got, want)
	}
	if got, want := WithoutPictures("Hi\n\n![x](attachment:c.png)", false, has), "Hi"; got != want {
		t.Errorf("removed: %q, want %q", got, want)
	}
	const code = "![x](attachment:c.png) `![x](attachment:c.png)`\n\n```\n![x](attachment:c.png)\n```\n\n    ![x](attachment:c.png)"
	if got, want := WithoutPictures(code, true, has), "[x]"+code[len("![x](attachment:c.png)"):]; got != want {
		t.Errorf("with code: %q, want %q", got, want)
	}
	if got := WithoutPictures(" plain ", true, has); got != " plain " {
		t.Errorf("text without pictures became %q", got)
	}
}

func TestRenderRefusesComplexText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("> ", 21) + "a", strings.Repeat("1. ", 21) + "a", strings.Repeat("[", 5001)} {
		if got := Render(text, noPicture); got != "" {
			t.Errorf("Render(%.30q…) = %.60q, want nothing", text, got)
		}
	}
	for _, text := range []string{strings.Repeat("-", 60) + " Original", strings.Repeat(".", 60) + " a", strings.Repeat("> ", 20) + "a"} {
		if got := Render(text, noPicture); got == "" {
			t.Errorf("Render(%.30q…) is empty", text)
		}
	}
}

// TestRenderBoundsWork renders the largest texts that are hard for a parser.
func TestRenderBoundsWork(t *testing.T) {
	t.Parallel()
	const most = 100_000
	for _, unit := range []string{
		">", "> ", "- ", "* ", "1. ", "[", "![", "[a](", "![a](", "*a ", "_a_", "**a", "`", "a`", "<", "<a", "\\", "~", "|", "|-", "\n>", "- a\n", "&", "&#", "[a]: b\n",
		"[a]\n\n[a]: b\n\n", "a**b", "***", "~~a", "www.", "http://a", "a@b.c ", "  - a\n", "a|b\n-|-\n", "```\n", "# ", "\n\n", "*_", "[[]]", "](", "!", "| a ", "<http://a", "-\n", "+ + ",
	} {
		text := strings.Repeat(unit, most/len(unit))
		began := time.Now()
		Render(text, noPicture)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%q repeated took %v", unit, took)
		}
	}
}
