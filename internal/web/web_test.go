package web_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/web"
)

type fixture struct {
	http.Handler
	t        *testing.T
	accounts *account.Service
	db       *db.DB
	mails    []mail.Message
}

func (f *fixture) EnqueueMail(_ context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() { f.mails = append(f.mails, m) })
	return nil
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, db: dbtest.New(t)}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var err error
	f.accounts, err = account.New(account.Config{DB: f.db, Mailer: f, BaseURL: "https://help.example.com", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	f.Handler = web.New(web.Config{
		Accounts: f.accounts,
		Gate:     &browser.Gate{Accounts: f.accounts, Secure: true},
		Places: []web.Place{
			{Path: "/dev/mailbox", Link: true, What: "mails that were <sent>"},
			{Path: "/api/trpc", What: "procedures"},
		},
		Logger: log,
	})
	return f
}

// ask has a link mailed and returns it with the intent of the browser that asked.
func (f *fixture) ask(redirectTo string) (link, intent string) {
	f.t.Helper()
	intent, err := f.accounts.SignInWithEmail(f.t.Context(), account.EmailSignIn{Email: "ada@example.com", RedirectTo: redirectTo}, "")
	if err != nil {
		f.t.Fatal(err)
	}
	link = regexp.MustCompile(`https://help\.example\.com(/\S+)`).FindStringSubmatch(f.mails[len(f.mails)-1].Text)[1]
	return link, intent
}

func (f *fixture) serve(method, target string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	f.t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for _, fn := range change {
		fn(r)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func cookie(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: name, Value: value}) }
}

func cookies(w *httptest.ResponseRecorder) map[string]*http.Cookie {
	set := map[string]*http.Cookie{}
	for _, c := range w.Result().Cookies() {
		set[c.Name] = c
	}
	return set
}

// wantRefused: status 400, a page that says why and what next, and no cookie.
func wantRefused(t *testing.T, w *httptest.ResponseRecorder, why string) {
	t.Helper()
	if w.Code != 400 || len(w.Result().Cookies()) != 0 || w.Header().Get("Location") != "" {
		t.Errorf("got %d with header %v, want 400 without cookies", w.Code, w.Header())
	}
	for _, want := range []string{why, "Ask for a new link"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("got page %s, want %q in it", w.Body, want)
		}
	}
	wantPage(t, w)
}

// wantPage: what every page must be.
func wantPage(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "no-referrer",
		"Cache-Control":           "no-store",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("got %s %q, want %q", name, got, want)
		}
	}
	body := w.Body.String()
	for _, never := range []string{"<script", "<style", " style=", " onclick=", "javascript:"} {
		if strings.Contains(body, never) {
			t.Errorf("%q in page %s", never, body)
		}
	}
	var open []string
	for _, tag := range regexp.MustCompile(`<(/?)([a-z0-9]+)[^>]*>`).FindAllStringSubmatch(body, -1) {
		switch {
		case slices.Contains([]string{"meta", "link"}, tag[2]):
		case tag[1] == "":
			open = append(open, tag[2])
		case len(open) == 0 || open[len(open)-1] != tag[2]:
			t.Fatalf("</%s> closes %v in page %s", tag[2], open, body)
		default:
			open = open[:len(open)-1]
		}
	}
	if len(open) != 0 {
		t.Errorf("page ends inside %v: %s", open, body)
	}
}

func TestCallback(t *testing.T) {
	f := newFixture(t)
	link, intent := f.ask("https://help.example.com/tickets?status=open")
	w := f.serve("GET", link, cookie("svc-login-intent", intent))
	if w.Code != 303 || w.Header().Get("Location") != "https://help.example.com/tickets?status=open" {
		t.Fatalf("got %d to %q", w.Code, w.Header().Get("Location"))
	}
	set := cookies(w)
	for name, life := range map[string]int{"svc-access-token": 3600, "svc-refresh-token": 2592000, "svc-login-intent": -1} {
		c := set[name]
		if c == nil || c.MaxAge != life || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" {
			t.Errorf("got cookie %v, want %s for %d seconds", c, name, life)
		}
	}
	wantRefused(t, f.serve("GET", link, cookie("svc-login-intent", intent)), "was used already")

	link, _ = f.ask("")
	if w := f.serve("GET", link); w.Code != 303 || w.Header().Get("Location") != "/" {
		t.Errorf("got %d to %q without redirectTo, want 303 to /", w.Code, w.Header().Get("Location"))
	}
}

func TestCallbackRefusals(t *testing.T) {
	f := newFixture(t)
	for _, target := range []string{
		"/api/auth/callback",
		"/api/auth/callback?token=",
		"/api/auth/callback?token=x%3Cscript%3E",
		"/api/auth/callback?token=" + strings.Repeat("A", 43),
		"/api/auth/callback?token=%zz",
	} {
		wantRefused(t, f.serve("GET", target), "not one of ours")
	}
	link, _ := f.ask("")
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE login_links SET created_at = created_at - $1", (15 * time.Minute).Microseconds())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, f.serve("GET", link), "older than 15 minutes")
	if w := f.serve("POST", link); w.Code == 303 {
		t.Error("a POST used the link")
	}
}

// TestScanner is what happens to a link on its way to a person.
func TestScanner(t *testing.T) {
	f := newFixture(t)
	link, intent := f.ask("")
	if w := f.serve("HEAD", link); w.Code != 200 || len(w.Result().Cookies()) != 0 || w.Body.Len() != 0 {
		t.Errorf("HEAD: got %d with cookies %v", w.Code, w.Result().Cookies())
	}
	for _, h := range [][2]string{
		{"Sec-Purpose", "prefetch"}, {"Sec-Purpose", "prefetch;prerender"}, {"Purpose", "prefetch"}, {"X-Purpose", "preview"}, {"X-Moz", "prefetch"},
	} {
		w := f.serve("GET", link, header(h[0], h[1]), cookie("svc-login-intent", intent))
		if w.Code == 303 || w.Code < 300 || len(w.Result().Cookies()) != 0 {
			t.Errorf("%s %s: got %d with cookies %v", h[0], h[1], w.Code, w.Result().Cookies())
		}
		wantPage(t, w)
	}

	scanner := f.serve("GET", link)
	if scanner.Code != 303 {
		t.Fatalf("got %d for the scanner", scanner.Code)
	}
	wantRefused(t, f.serve("GET", link), "was used already")
	person := f.serve("GET", link, cookie("svc-login-intent", intent))
	if person.Code != 303 {
		t.Fatalf("got %d for the browser that asked", person.Code)
	}
	for w, want := range map[*httptest.ResponseRecorder]bool{scanner: false, person: true} {
		access := cookies(w)["svc-access-token"].Value
		page := f.serve("GET", "/", cookie("svc-access-token", access))
		if got := strings.Contains(page.Body.String(), "ada@example.com"); got != want {
			t.Errorf("got signed in %t, want %t", got, want)
		}
	}
}

func TestIndex(t *testing.T) {
	f := newFixture(t)
	w := f.serve("GET", "/")
	wantPage(t, w)
	body := w.Body.String()
	for _, want := range []string{`<a href="/dev/mailbox">/dev/mailbox</a>`, "mails that were &lt;sent&gt;", "<code>/api/trpc</code>", "You are not signed in"} {
		if w.Code != 200 || !strings.Contains(body, want) {
			t.Errorf("got %d %s, want %q in it", w.Code, body, want)
		}
	}
	style := regexp.MustCompile(`<link rel="stylesheet" href="([^"]+)">`).FindStringSubmatch(body)
	if style == nil {
		t.Fatalf("no style sheet in %s", body)
	}
	if w := f.serve("GET", style[1]); w.Code != 200 || w.Header().Get("Content-Type") != "text/css; charset=utf-8" || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("got %d with header %v for the style sheet", w.Code, w.Header())
	}

	// A session that has to be refreshed is, here as anywhere.
	link, _ := f.ask("")
	refresh := cookies(f.serve("GET", link))["svc-refresh-token"].Value
	w = f.serve("GET", "/", cookie("svc-refresh-token", refresh))
	wantPage(t, w)
	if !strings.Contains(w.Body.String(), "ada@example.com") || len(cookies(w)) != 2 {
		t.Errorf("got page %s with cookies %v", w.Body, cookies(w))
	}
	if w := f.serve("GET", "/", cookie("svc-access-token", "stale")); w.Code != 200 || !strings.Contains(w.Body.String(), "You are not signed in") {
		t.Errorf("got %d %s with a stale cookie", w.Code, w.Body)
	}
}

func TestOtherPaths(t *testing.T) {
	f := newFixture(t)
	w := f.serve("GET", "/nothing")
	wantPage(t, w)
	if w.Code != 404 {
		t.Errorf("got %d, want 404", w.Code)
	}
}

func TestStoreGone(t *testing.T) {
	f := newFixture(t)
	link, _ := f.ask("")
	if err := f.db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*httptest.ResponseRecorder{f.serve("GET", link), f.serve("GET", "/", cookie("svc-access-token", strings.Repeat("A", 43)))} {
		wantPage(t, w)
		if w.Code != 503 || len(w.Result().Cookies()) != 0 {
			t.Errorf("got %d with cookies %v, want 503 without", w.Code, w.Result().Cookies())
		}
	}
}
