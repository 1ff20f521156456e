package app

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/gbfs"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
)

// TestEveryAnswerHasSecurityHeaders requests every kind of response, including failures:
// none can be sniffed, framed, or executed, or leaks its URL as referrer.
func TestEveryAnswerHasSecurityHeaders(t *testing.T) {
	a := deployment(t, publicURL, quiet)
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/healthz", 200},
		{"GET", "/readyz", 200},
		{"GET", "/", 200},
		{"GET", "/sign-in", 200},
		{"GET", "/inbox", 303},
		{"GET", "/nowhere", 404},
		{"POST", "/nowhere", 404},
		{"GET", "/static/nothing", 404},
		{"GET", "/attachments/0", 401},
		{"GET", "/files/0", 404},
		{"GET", "/live", 401},
		{"PUT", "/sign-in", 405},
		{"GET", "/api/auth/callback", 400},
		{"GET", "/api/trpc/auth.getUser", 401},
		{"GET", "/api/trpc/nothing", 404},
		{"GET", deskapi.Base + "/tickets", 401},
		{"GET", deskapi.Base + "/openapi.json", 200},
		{"GET", "/v1/rides", 401},
		{"GET", deskDocs, 200},
		{"GET", "/problems/", 200},
		{"GET", gbfs.Path + "manifest.json", 200},
		{"POST", "/api/webhooks/sms", 401},
		{"GET", "/sign-in/", 404},
		{"GET", "//sign-in", 307}, // by the router
	} {
		w := a.request(tt.method, "help.example.com", tt.path)
		checkHeaders(t, tt.method+" "+tt.path, w)
		if w.Code != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, w.Code, tt.status)
		}
	}
	checkHeaders(t, "a foreign host", a.request("GET", "evil.example", "/"))
}

func checkHeaders(t *testing.T, what string, w *httptest.ResponseRecorder) {
	t.Helper()
	h := w.Header()
	for _, name := range []string{"Content-Security-Policy", "Permissions-Policy", "Referrer-Policy", "X-Content-Type-Options", "Strict-Transport-Security"} {
		if len(h.Values(name)) != 1 {
			t.Errorf("%s: %s is %q", what, name, h.Values(name))
		}
	}
	policy := h.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("%s: policy without %s: %s", what, part, policy)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("%s: policy %s", what, policy)
	}
	if kind := h.Get("Content-Type"); w.Body.Len() > 0 && (kind == "" || strings.HasPrefix(kind, "text/") && !strings.Contains(kind, "utf-8")) {
		t.Errorf("%s: content type %q", what, kind)
	}
	if cache := h.Get("Cache-Control"); strings.Contains(cache, "public") && len(h.Values("Set-Cookie")) > 0 {
		t.Errorf("%s: cached with cookies", what)
	}
	if origin := h.Get("Access-Control-Allow-Origin"); origin != "" && !strings.Contains(what, gbfs.Path) {
		t.Errorf("%s: %q may read it", what, origin)
	}
	for _, name := range []string{"Server", "X-Powered-By", "Via"} {
		if h.Get(name) != "" {
			t.Errorf("%s: %s is %q", what, name, h.Get(name))
		}
	}
}

// TestAttackReflectedFileDownload: a link to an API with an attacker's name in its path
// must not make a browser save or show the response under that name.
func TestAttackReflectedFileDownload(t *testing.T) {
	a := deployment(t, publicURL, quiet)
	for _, path := range []string{
		"/api/trpc/setup.bat?input=%22%7C%7Ccalc%7C%7C", "/api/trpc/auth.getUser;setup.bat",
		deskapi.Base + "/tickets/setup.bat", deskapi.Base + "/setup.bat?q=%7C%7Ccalc%7C%7C", "/v1/rides;setup.bat", "/sandbox/v1/setup.cmd",
	} {
		if got := a.request("GET", "help.example.com", path).Header().Get("Content-Disposition"); got != `attachment; filename="api.json"` {
			t.Errorf("%s: Content-Disposition is %q", path, got)
		}
	}
}

func TestOpenLinks(t *testing.T) {
	for _, tt := range []struct {
		database, redis string
		want            []string
	}{
		{"", "", nil},
		{"sqlite:kickstand.db", "", nil},
		{"postgres://u:p@127.0.0.1/k", "redis://localhost:6379/0", nil},
		{"postgres://u:p@[::1]:5432/k?sslmode=disable", "unix:///run/redis.sock", nil},
		{"postgres:///k?host=/run/postgresql", "", nil},
		{"postgres://u:p@db.example/k?sslmode=verify-full", "rediss://u:p@cache.example", nil},
		{"postgres://u:p@db.example/k", "", []string{"the database at db.example is reached without TLS, or with TLS that it may decline (sslmode=prefer)"}},
		{"postgresql://u:p@10.0.0.7:5432/k?sslmode=require", "", []string{"the database at 10.0.0.7:5432 is not verified (sslmode=require)"}},
		{"postgres://u:p@127.0.0.1:5432,localhost:5433/k", "", nil},
		{"postgres://u:p@127.0.0.1:5432,db.example:5433/k", "", []string{"the database at 127.0.0.1:5432,db.example:5433 is reached without TLS, or with TLS that it may decline (sslmode=prefer)"}},
		{"", "redis://u:p@cache.example:6379", []string{"Redis at cache.example:6379 is reached without TLS"}},
	} {
		c := Config{DatabaseURL: tt.database, RedisURL: tt.redis}
		if got := c.openLinks(); !slices.Equal(got, tt.want) {
			t.Errorf("%s %s: got %q, want %q", tt.database, tt.redis, got, tt.want)
		}
	}
}
