package account

import (
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

func TestSlug(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"Acme", "acme"},
		{"Acme Rentals, Inc.", "acme-rentals-inc"},
		{"  Joe's  Vans ", "joes-vans"},
		{"a 'b", "a-b"},
		{"Müller & Söhne GmbH", "mueller-soehne-gmbh"},
		{"Čižek Půjčovna", "cizek-pujcovna"},
		{"ÅRHUS", "arhus"},
		{"東京レンタカー", "organization"},
		{"東京 Cars", "cars"},
		{"--", "organization"},
		{"4x4", "4x4"},
		{strings.Repeat("abc ", 100), "abc-abc-abc-abc-abc-abc-abc-abc-abc-abc-abc-abc"},
	} {
		if got := slug(tt.name); got != tt.want {
			t.Errorf("slug(%q): got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCheckEmail(t *testing.T) {
	for _, tt := range []struct {
		email string
		ok    bool
	}{
		{"ada@example.com", true},
		{" Ada@Example.com ", true},
		{"a+b.c@sub.example.com", true},
		{"root@localhost", true},
		{"müller@example.com", true},
		{"", false},
		{"ada", false},
		{"ada@", false},
		{"@example.com", false},
		{"Ada <ada@example.com>", false},
		{"<ada@example.com>", false},
		{"ada@example.com, eve@example.com", false},
		{"ada@example.com\r\nBcc: eve@example.com", false},
		{"ada@exam\x00ple.com", false},
		{"\u212aarl@example.com", false}, // Kelvin sign: lower-cases to k
		{"ad\u0130@example.com", false},  // dotted capital I: lower-cases to i
		{strings.Repeat("a", 250) + "@example.com", false},
	} {
		var v problem.Validation
		checkEmail(&v, "email", tt.email)
		if got := v.Err() == nil; got != tt.ok {
			t.Errorf("%q: got ok %t, want %t", tt.email, got, tt.ok)
		}
	}
}

// TestEmailKey: addresses have the same key exactly if they are the same mailbox, letter
// case aside.
func TestEmailKey(t *testing.T) {
	for _, tt := range []struct{ email, want string }{
		{" Ada@Example.COM ", "ada@example.com"},
		{"MÜLLER@example.com", "müller@example.com"},
		{"ada@bücher.example", "ada@xn--bcher-kva.example"},
		{"ada@BÜCHER.example", "ada@xn--bcher-kva.example"},
		{"ada@bu\u0308cher.example", "ada@xn--bcher-kva.example"},
		{"ada@XN--bcher-kva.example", "ada@xn--bcher-kva.example"},
		{"ada@ｅxample.com", "ada@example.com"},
		{"ada@exam\u00adple.com", "ada@example.com"},
		{"ada@example。com", "ada@example.com"},
		{"Ada <ada@example.com", "ada <ada@example.com"}, // not an address
	} {
		if got := emailKey(tt.email); got != tt.want {
			t.Errorf("%q: got key %q, want %q", tt.email, got, tt.want)
		}
	}
}

// RedirectTarget is a requested target of a sign-in at the base URL
// https://help.example.com with the origins https://app.example.com and
// http://localhost:3000/.
type RedirectTarget struct {
	Name, Target string
	OK           bool
}

// RedirectTargets are the cases for every way to sign in.
var RedirectTargets = []RedirectTarget{
	{"base", "https://help.example.com", true},
	{"base with slash", "https://help.example.com/", true},
	{"below base", "https://help.example.com/tickets?status=open#top", true},
	{"base in capitals", "HTTPS://HELP.example.com/", true},
	{"default port", "https://help.example.com:443/", true},
	{"path", "/tickets/7", true},
	{"allowed origin", "https://app.example.com/welcome", true},
	{"allowed origin with port", "http://localhost:3000/", true},
	{"query that looks like a URL", "/login?next=//evil.example", true},

	{"other host", "https://evil.example/", false},
	{"other scheme", "http://help.example.com/", false},
	{"other port", "https://help.example.com:444/", false},
	{"subdomain", "https://x.help.example.com/", false},
	{"host as prefix", "https://help.example.com.evil.example/", false},
	{"trailing dot", "https://help.example.com./", false},
	{"allowed origin at other port", "http://localhost:3001/", false},
	{"no scheme", "//evil.example/", false},
	{"no scheme, own host", "//help.example.com/", false},
	{"three slashes", "///evil.example/", false},
	{"scheme and three slashes", "https:///evil.example/", false},
	{"scheme without slashes", "https:evil.example", false},
	{"scheme with one slash", "https:/evil.example", false},
	{"backslashes", `\\evil.example/`, false},
	{"slash and backslash", `/\evil.example/`, false},
	{"backslash before own host", `https://evil.example\@help.example.com/`, false},
	{"userinfo", "https://help.example.com@evil.example/", false},
	{"userinfo of own host", "https://user:pass@help.example.com/", false},
	{"empty userinfo", "https://@help.example.com/", false},
	{"tab", "/\t/evil.example/", false},
	{"newline", "/tickets\r\nSet-Cookie: a=b", false},
	{"leading space", " https://help.example.com/", false},
	{"not ASCII", "https://help.example.com/ü", false},
	{"script", "javascript:alert(1)", false},
	{"data", "data:text/html,hello", false},
	{"relative path", "tickets", false},
	{"only a query", "?a=b", false},
	{"bad escape", "https://help.example.com/%zz", false},
	{"too long", "/" + strings.Repeat("a", 2048), false},
}

func TestRedirects(t *testing.T) {
	atRoot, err := newRedirects("https://help.example.com", []string{"https://app.example.com", "http://localhost:3000/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range RedirectTargets {
		if got := atRoot.allowed(tt.Target); got != tt.OK {
			t.Errorf("%s: %q: got %t, want %t", tt.Name, tt.Target, got, tt.OK)
		}
	}

	below, err := newRedirects("https://example.com:8443/help/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []RedirectTarget{
		{"below a path", "https://example.com:8443/help/tickets", true},
		{"that path", "https://example.com:8443/help", true},
		{"path below it", "/help/", true},
		{"beside it", "https://example.com:8443/helpless", false},
		{"above it", "https://example.com:8443/", false},
		{"out of it by dots", "https://example.com:8443/help/../admin", false},
		{"out of it by escaped dots", "/help/%2e%2E/admin", false},
	} {
		if got := below.allowed(tt.Target); got != tt.OK {
			t.Errorf("%s: %q: got %t, want %t", tt.Name, tt.Target, got, tt.OK)
		}
	}
}

func TestRedirectsConfig(t *testing.T) {
	for _, base := range []string{"", "help.example.com", "ftp://help.example.com", "https://", "https://u@help.example.com", "https://help.example.com/?a"} {
		if _, err := newRedirects(base, nil); err == nil {
			t.Errorf("base URL %q: got no error", base)
		}
	}
	for _, origin := range []string{"", "app.example.com", "https://app.example.com/path", "https://*" + "@x"} {
		if _, err := newRedirects("https://help.example.com", []string{origin}); err == nil {
			t.Errorf("origin %q: got no error", origin)
		}
	}
}

// FuzzRedirect: the literal start of an allowed target shows that a browser, independent
// of [url.Parse], stays on an allowed origin.
func FuzzRedirect(f *testing.F) {
	for _, seed := range []string{
		"/", "/a/b?c#d", "//evil.example", `/\evil.example`, "https://help.example.com/x", "https://help.example.com:443",
		"https://help.example.com@evil.example", "https://app.example.com/", "https:evil.example", "/%2e%2e//evil", "HTTPS://help.EXAMPLE.com#x",
	} {
		f.Add(seed)
	}
	r, err := newRedirects("https://help.example.com", []string{"https://app.example.com"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, target string) {
		if !r.allowed(target) {
			return
		}
		if strings.ContainsFunc(target, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '\\' }) {
			t.Fatalf("%q: allowed with a character that browsers change", target)
		}
		if strings.HasPrefix(target, "/") {
			if strings.HasPrefix(target, "//") {
				t.Fatalf("%q: names another host", target)
			}
			return
		}
		rest, ok := strings.CutPrefix(strings.ToLower(target), "https://")
		if !ok {
			t.Fatalf("%q: neither a path nor https", target)
		}
		host, _, _ := strings.Cut(rest, "/")
		host, _, _ = strings.Cut(host, "?")
		host, _, _ = strings.Cut(host, "#")
		switch strings.TrimSuffix(strings.TrimSuffix(host, ":443"), ":") {
		case "help.example.com", "app.example.com":
		default:
			t.Fatalf("%q: leads to %q", target, host)
		}
		if _, err := url.Parse(target); err != nil {
			t.Fatalf("%q: %v", target, err)
		}
	})
}

// FuzzToken: a token has one spelling.
func FuzzToken(f *testing.F) {
	f.Add(newToken().encode())
	f.Add(strings.Repeat("A", 43))
	f.Add(strings.Repeat("A", 42) + "B")
	f.Add(strings.Repeat("A", 40) + "\n\n\n")
	f.Fuzz(func(t *testing.T, s string) {
		if parsed, ok := parseToken(s); ok && parsed.encode() != s {
			t.Fatalf("%q is also spelled %q", s, parsed.encode())
		}
	})
}

// FuzzParseHash: a parsed hash encodes to the same text.
func FuzzParseHash(f *testing.F) {
	f.Add("$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add("$argon2id$v=19$m=8,t=1,p=255$$AAAAAAAAAAAAAAAAAAAAAA")
	f.Add("$argon2i$v=19$m=8,t=1,p=1$AA$AAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := parseHash(s)
		if err != nil {
			return
		}
		if h.memory > maxHashMemory || h.passes == 0 || h.threads == 0 || len(h.sum) < 16 {
			t.Fatalf("%q: got %+v", s, h)
		}
		if again, err := parseHash(h.String()); err != nil || again.String() != h.String() {
			t.Fatalf("%q: written as %q, which reads as %+v, %v", s, h.String(), again, err)
		}
	})
}

func TestMask(t *testing.T) {
	by, other := newToken(), newToken()
	p := pair{newToken(), newToken()}
	hidden := p.mask(by)
	if hidden == p || hidden.access == p.access || hidden.refresh == p.refresh {
		t.Error("the mask hides nothing")
	}
	if got := hidden.mask(by); got != p {
		t.Error("the mask cannot be taken off")
	}
	if got := hidden.mask(other); got == p {
		t.Error("another token takes the mask off")
	}
}

// FuzzDevice: no user agent yields a name that breaks the list of sessions or is no text.
func FuzzDevice(f *testing.F) {
	for _, seed := range []string{
		"", "(", ";", "/", "Android;", "curl/8.5.0", "Instagram 1 (iPhone; iOS 1_2)", "XiaoMi/MiuiBrowser", "FBAN/", "+http://a",
		"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
		"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 Version/17.5 Mobile/15E148 Safari/604.1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, userAgent string) {
		got := device(shortAgent(userAgent))
		if len(got) > 124 || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune("<>\"'/", r) }) {
			t.Fatalf("%q: got %q", userAgent, got)
		}
	})
}
