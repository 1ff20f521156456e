package reference_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/rest/reference"
)

// open returns the reference of one of the documents in docs/api.
func open(t *testing.T, document string, c reference.Config) http.Handler {
	t.Helper()
	c.Document = func() ([]byte, error) { return os.ReadFile("../../../docs/api/" + document + ".openapi.json") }
	return reference.New(c)
}

func helpdesk(t *testing.T) http.Handler {
	return open(t, "helpdesk", reference.Config{Path: "/api/docs", Name: "helpdesk", Base: "/api/v1", Key: "sk_live_…"})
}

func sandbox(t *testing.T) http.Handler {
	return open(t, "sandbox", reference.Config{Path: "/docs/sandbox", Name: "fleet", Base: "/sandbox/v1", Key: "sk_test_…", Runs: true, NewKey: "/settings/keys/new?of=sandbox"})
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestPages(t *testing.T) {
	problems, err := reference.Problems()
	if err != nil {
		t.Fatal(err)
	}
	desk, fleet := helpdesk(t), sandbox(t)
	for _, test := range []struct {
		h      http.Handler
		path   string
		status int
		want   []string
		not    []string
	}{
		{desk, "/api/docs", 200, []string{"<h1>Kickstand Helpdesk</h1>", `href="/api/docs/tickets#createTicket"`, `href="/api/v1/openapi.json"`, "https://kickstand.example/api/v1/key"}, []string{"data-keys"}},
		{desk, "/api/docs/tickets", 200, []string{
			`id="createTicket"`, "https://kickstand.example/api/v1/tickets", "tickets.create", `href="/problems/validation_failed"`,
			"<code>created_at[gte], [gt], [lte], [lt]</code>", "<code>created:&gt;=2026-01-01</code>", "<code>expand[]</code>", "<code>customer.email</code>", "text/csv", "<code>If-Match</code>", `aria-current="page"`,
		}, []string{"data-run", "`#6`"}},
		{desk, "/api/docs/nothing", 302, nil, nil},
		{fleet, "/docs/sandbox", 200, []string{"data-keys", `href="/settings/keys/new?of=sandbox"`}, nil},
		{fleet, "/docs/sandbox/rides", 200, []string{`data-path="/sandbox/v1/rides/{id}"`, `name="id" data-in-path`, `name="?"`, `name="body"`, "Bearer sk_test_…"}, nil},
		{fleet, "/docs/sandbox/vehicles", 200, []string{"<h3>Import</h3>", "<code>location.lat</code>", "application/x-ndjson"}, nil},
		{desk, "/api/docs", 200, []string{`id="errors"`, `href="/problems/rate_limited"`}, []string{`href="/problems/validation_failed"`}},
		{problems, "/problems/validation_failed", 200, []string{"422", "<h1>The request body is not valid</h1>", "JSON pointer", `href="/problems/style.css?`}, nil},
		{problems, "/problems/", 200, []string{`href="/problems/ip_not_allowed"`, `href="/problems/style.css?`}, nil},
		{problems, "/problems/nothing", 404, []string{`href="/problems/ip_not_allowed"`}, nil},
		{problems, "/problems/style.css", 200, []string{"color-scheme"}, nil},
	} {
		w := get(test.h, test.path)
		if w.Code != test.status {
			t.Errorf("%s: got %d, want %d", test.path, w.Code, test.status)
		}
		body := w.Body.String()
		for _, s := range test.want {
			if !strings.Contains(body, s) {
				t.Errorf("%s: has no %q", test.path, s)
			}
		}
		for _, s := range test.not {
			if strings.Contains(body, s) {
				t.Errorf("%s: has %q", test.path, s)
			}
		}
		isPage := strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") && w.Code != 302
		if csp := w.Header().Get("Content-Security-Policy"); isPage && !strings.HasPrefix(csp, "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';") {
			t.Errorf("%s: Content-Security-Policy %q", test.path, csp)
		}
		for _, s := range []string{`src="http`, `href="http`, "style=", "onclick="} {
			if isPage && strings.Contains(body, s) {
				t.Errorf("%s: has %q", test.path, s)
			}
		}
	}
}

// TestAssets: the style sheet and the module of a page exist at its addresses.
func TestAssets(t *testing.T) {
	h := sandbox(t)
	page := get(h, "/docs/sandbox").Body.String()
	for _, attribute := range []string{`href="/docs/sandbox/style.css?`, `src="/docs/sandbox/reference.js?`} {
		_, rest, found := strings.Cut(page, attribute)
		if !found {
			t.Fatalf("the page has no %s", attribute)
		}
		digest, _, _ := strings.Cut(rest, `"`)
		path := attribute[strings.IndexByte(attribute, '/'):] + digest
		if w := get(h, path); w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: got %d with Cache-Control %q", path, w.Code, w.Header().Get("Cache-Control"))
		}
	}
}

func TestSearch(t *testing.T) {
	h := sandbox(t)
	for _, test := range []struct{ query, want string }{
		{"start ride", `href="/docs/sandbox/rides#createRide"`},
		{"Battery", `href="/problems/vehicle_low_battery"`},
		{"battery_percent", `href="/docs/sandbox/vehicles#`},
		{"rides.read", `href="/docs/sandbox/rides#listRides"`},
		{"429", `href="/problems/rate_limited"`},
		{"<script>", "No results for “&lt;script&gt;”"},
		{"zebra crossing", "No results for “zebra crossing”"},
		{strings.Repeat("x", 1000), "No results for"},
	} {
		w := get(h, "/docs/sandbox?q="+strings.ReplaceAll(test.query, " ", "+"))
		if w.Code != 200 || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%.30q: got %d without %s", test.query, w.Code, test.want)
		}
	}
	first := get(h, "/docs/sandbox?q=list+rides").Body.String()
	_, first, _ = strings.Cut(first, `<ol class="results">`)
	if first, _, _ = strings.Cut(first, "</li>"); !strings.Contains(first, "#listRides") {
		t.Errorf("the first result of \"list rides\" is %s", first)
	}
}

// TestUnreadable: a document that cannot be read is an error of this page only.
func TestUnreadable(t *testing.T) {
	h := reference.New(reference.Config{Path: "/docs", Name: "fleet", Document: func() ([]byte, error) { return []byte("{"), nil }})
	if w := get(h, "/docs"); w.Code != 500 || !strings.Contains(w.Body.String(), "the server's log has the reason") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
