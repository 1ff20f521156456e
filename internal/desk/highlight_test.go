package desk_test

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/desk"
)

// marked returns an excerpt with its matches in brackets.
func marked(spans []desk.Span) string {
	var b strings.Builder
	for _, s := range spans {
		if s.Hit {
			b.WriteString("[" + s.Text + "]")
		} else {
			b.WriteString(s.Text)
		}
	}
	return b.String()
}

func TestHighlighter(t *testing.T) {
	long := strings.Repeat("before ", 30) + "the needle is here " + strings.Repeat("after ", 60)
	for _, tt := range []struct {
		search, text, excerpt string
		matches               bool
	}{
		{"zoe", "Hello Zoë,\nhow are you?", "Hello [Zoë], how are you?", true},
		{"tyre flat", "A flat tyre, quite flat.", "A [flat] [tyre], quite [flat].", true},
		{`"flat tyre"`, "the tyre is flat", "the [tyre] is [flat]", false},
		{"need", "a needle", "a [needle]", true},
		{"ne", "a needle", "", false},
		{"need ", "a needle", "", false},
		{"status:open lock", "the lock", "the [lock]", true},
		{"lock bike", "the lock", "the [lock]", false},
		{"0151 12345678", "call +4915112345678 now", "call +[4915112345678] now", false},
		{"needle", long, "… " + strings.Repeat("before ", 5) + "the [needle] is here " + strings.Repeat("after ", 17) + " …", true},
		{"東京", "私は東京に", "[私は東京に]", true},
		{"", "anything", "", false},
		{"ﬁle", "a FILE", "a [FILE]", true},
	} {
		h := desk.NewHighlighter(tt.search)
		got := marked(h.Excerpt(tt.text))
		if tt.search == "needle" { // its end is cut at a number of characters
			if !strings.HasPrefix(got, tt.excerpt[:80]) || !strings.HasSuffix(got, " …") || len(got) > 200 {
				t.Errorf("%q: got %q", tt.search, got)
			}
		} else if got != tt.excerpt {
			t.Errorf("%q in %q: got %q, want %q", tt.search, tt.text, got, tt.excerpt)
		}
		if got := h.Matches(tt.text); got != tt.matches {
			t.Errorf("%q in %q: matches %v", tt.search, tt.text, got)
		}
	}
}

func FuzzExcerpt(f *testing.F) {
	f.Add("zoe", "Hello Zoë")
	f.Add("\"a b", "a\xff b́")
	f.Fuzz(func(t *testing.T, search, text string) {
		h := desk.NewHighlighter(search)
		excerpt := strings.Trim(marked(h.Excerpt(text)), "… ")
		_ = h.Matches(text)
		if clean := strings.NewReplacer("[", "", "]", "").Replace(excerpt); len(clean) > 4*len(text)+16 {
			t.Errorf("the excerpt of %q is %q", text, clean)
		}
	})
}
