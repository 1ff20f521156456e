package app

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/app/doctor"
)

// TestUntrustedProxyIsReported: behind an unlisted proxy all clients count as one
// network. The server's log says so once, and doctor names the remedy.
func TestUntrustedProxyIsReported(t *testing.T) {
	var out logged
	a := deployment(t, publicURL, out.logger(), func(c *Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	ask := func(peer, forwarded string) {
		r := httptest.NewRequest("GET", "/healthz", nil)
		r.Host, r.RemoteAddr = "help.example.com", peer
		if forwarded != "" {
			r.Header.Set("X-Forwarded-For", forwarded)
		}
		a.handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	finding := func() doctor.Finding { return doctor.Proxies(a.config.doctorSettings()) }
	ask("10.0.0.1:1", "198.51.100.1")
	ask("192.0.2.7:1", "")
	if f := finding(); f.Status != doctor.OK || strings.Contains(out.String(), "trusted-proxies") {
		t.Errorf("before: %+v, log %q", f, out.String())
	}
	for range 12 {
		ask("192.0.2.7:1", "198.51.100.1")
	}
	f := finding()
	if f.Status != doctor.Warn || !strings.Contains(f.Found, "10 requests") || !strings.Contains(f.Found, "192.0.2.7") || !strings.Contains(f.Remedy, "KICKSTAND_TRUSTED_PROXIES") {
		t.Errorf("got %+v", f)
	}
	if n := strings.Count(out.String(), "proxy.untrusted"); n != 1 {
		t.Errorf("the log says so %d times", n)
	}
	a.config.TrustedProxies = append(a.config.TrustedProxies, netip.MustParsePrefix("192.0.2.7/32"))
	if f := finding(); f.Status != doctor.OK {
		t.Errorf("once it is trusted: %+v", f)
	}
}
