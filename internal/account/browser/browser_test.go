package browser_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
)

func TestCookies(t *testing.T) {
	tokens := account.Tokens{Access: "a", Refresh: "r", AccessLife: time.Hour, RefreshLife: 30 * 24 * time.Hour}
	plain, secure := &browser.SessionAuth{}, &browser.SessionAuth{Secure: true}
	for _, tt := range []struct {
		name    string
		cookies []*http.Cookie
		want    []string
	}{
		{"signed in", plain.SetSession(tokens), []string{
			"svc-access-token=a; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax",
			"svc-refresh-token=r; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax",
		}},
		{"signed in over TLS", secure.SetSession(tokens), []string{
			"svc-access-token=a; Path=/; Max-Age=3600; HttpOnly; Secure; SameSite=Lax",
			"svc-refresh-token=r; Path=/; Max-Age=2592000; HttpOnly; Secure; SameSite=Lax",
		}},
		{"signed out", secure.ClearSession(), []string{
			"svc-access-token=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax",
			"svc-refresh-token=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax",
		}},
		{"intent", []*http.Cookie{plain.SetIntent("i")}, []string{"svc-login-intent=i; Path=/; Max-Age=900; HttpOnly; SameSite=Lax"}},
		{"no intent", []*http.Cookie{plain.SetIntent("")}, []string{"svc-login-intent=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"}},
	} {
		for i, c := range tt.cookies {
			if got := c.String(); got != tt.want[i] {
				t.Errorf("%s: got %q, want %q", tt.name, got, tt.want[i])
			}
		}
	}
}

func TestClientIP(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, tt := range []struct {
		name      string
		remote    string
		forwarded []string
		trusted   []netip.Prefix
		want      string
	}{
		{"direct", "192.0.2.1:1234", nil, proxies, "192.0.2.1"},
		{"nobody is trusted", "10.0.0.1:1234", []string{"192.0.2.1"}, nil, "10.0.0.1"},
		{"a client that lies", "192.0.2.1:1234", []string{"198.51.100.1"}, proxies, "192.0.2.1"},
		{"one proxy", "10.0.0.1:1234", []string{"192.0.2.1"}, proxies, "192.0.2.1"},
		{"a client that lies to a proxy", "10.0.0.1:1234", []string{"198.51.100.1, 192.0.2.1"}, proxies, "192.0.2.1"},
		{"two proxies", "10.0.0.1:1234", []string{"192.0.2.1, 10.0.0.2"}, proxies, "192.0.2.1"},
		{"two lines", "10.0.0.1:1234", []string{"198.51.100.1, 192.0.2.1", "10.0.0.2"}, proxies, "192.0.2.1"},
		{"a lie in a line of its own", "10.0.0.1:1234", []string{"198.51.100.1", "192.0.2.1"}, proxies, "192.0.2.1"},
		{"only proxies", "10.0.0.1:1234", []string{"10.0.0.3,10.0.0.2"}, proxies, "10.0.0.3"},
		{"a proxy without the header", "10.0.0.1:1234", nil, proxies, "10.0.0.1"},
		{"nonsense", "10.0.0.1:1234", []string{"192.0.2.1, unknown"}, proxies, "10.0.0.1"},
		{"empty", "10.0.0.1:1234", []string{""}, proxies, "10.0.0.1"},
		{"with port", "10.0.0.1:1234", []string{"192.0.2.1:55"}, proxies, "192.0.2.1"},
		{"IPv6", "[fd00::1]:1234", []string{"2001:db8::1"}, proxies, "2001:db8::1"},
		{"IPv6 with port", "[fd00::1]:1234", []string{"[2001:db8::1]:55"}, proxies, "2001:db8::1"},
		{"mapped", "[::ffff:10.0.0.1]:1234", []string{"::ffff:192.0.2.1"}, proxies, "192.0.2.1"},
		{"no address at all", "@", []string{"192.0.2.1"}, proxies, "invalid IP"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tt.remote
		r.Header["X-Forwarded-For"] = tt.forwarded
		if got := browser.ClientIP(r, tt.trusted).String(); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// FuzzClientIP: without a trusted proxy the header has no effect; with one the result is
// still an address.
func FuzzClientIP(f *testing.F) {
	f.Add("10.0.0.1:1", "192.0.2.1, 10.0.0.2")
	f.Add("192.0.2.1:1", ",,[::1]:x,")
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, remote, forwarded string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = remote
		own := browser.ClientIP(r, nil)
		r.Header.Set("X-Forwarded-For", forwarded)
		got := browser.ClientIP(r, proxies)
		if got.IsValid() != own.IsValid() || !proxies[0].Contains(own) && got != own {
			t.Fatalf("remote %q, forwarded %q: got %v, own %v", remote, forwarded, got, own)
		}
	})
}
