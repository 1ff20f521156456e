package mail

import (
	"regexp"
	"strings"
	"testing"
)

// TestPlainNameCarriesNoLink: a name chosen by a stranger reaches a third party's inbox, and no
// mail program may find a link in it.
func TestPlainNameCarriesNoLink(t *testing.T) {
	tests := []struct{ name, want string }{
		{"Acme", "Acme"},
		{"Müller & Söhne, Inc.", "Müller & Söhne, Inc."},
		{"J. R. Hartley", "J. R. Hartley"},
		{"東京レンタル", "東京レンタル"},
		{"Visit http://evil.example now", "Visit http evil example now"},
		{"HTTPS://EVIL.EXAMPLE/a?b=c", "HTTPS EVIL EXAMPLE a?b=c"},
		{"www.evil.example", "www evil example"},
		{"evil.example", "evil example"},
		{"evil。example and evil．example", "evil example and evil example"},
		{"ｈｔｔｐ：／／evil", "http evil"},
		{"evil\u200b.\u200bexample", "evil example"},
		{"\u202egro.live\u202c", "gro live"},
		{"mailto:a@evil.example", "mailto a evil example"},
		{"javascript:alert(1)", "javascript alert(1)"},
		{"192.0.2.1", "192 0 2 1"},
		{"🚲👩\u200d🔧", "🚲👩\u200d🔧"},
		{`\\evil\share`, `\ evil share`},
		{"[click](http://evil.example)", "[click](http evil example)"},
		{"<a href=http://evil.example>", "<a href=http evil example>"},
		{"two\r\nBcc: x@evil.example", "two Bcc: x evil example"},
		{"a\x00b\x1bc", "a b c"},
		{"\xff\xfe", "somebody"},
		{"...", "somebody"},
		{"", "somebody"},
		{strings.Repeat("long ", 30), "long long long long long long long long long long long long…"},
	}
	for _, tt := range tests {
		if got := PlainName(tt.name, "somebody"); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

var inWord = regexp.MustCompile(`[^\s\p{Z}][.:/\\@][^…\s\p{Z}]`)

func FuzzPlainName(f *testing.F) {
	f.Add("Visit http://evil.example now")
	f.Add("a\u202eb.\u3002c")
	f.Fuzz(func(t *testing.T, name string) {
		got := PlainName(name, "x")
		if got == "" || len([]rune(got)) > maxName || strings.ContainsAny(got, "\r\n\t\x00") || strings.Contains(got, "://") || strings.Contains(got, "www.") {
			t.Errorf("%q: got %q", name, got)
		}
		if inWord.MatchString(got) {
			t.Errorf("%q: got %q, which may be a link", name, got)
		}
	})
}
