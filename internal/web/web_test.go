package web_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

type fixture struct {
	http.Handler
	t        testing.TB
	accounts *account.Service
	db       *db.DB
	provider *provider
	mails    []mail.Message
}

func (f *fixture) EnqueueMailTx(_ context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() { f.mails = append(f.mails, m) })
	return nil
}

const baseURL = "https://help.example.com"

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, db: dbtest.New(t), provider: new(provider)}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var err error
	f.accounts, err = account.New(account.Config{
		DB: f.db, HashMemory: 8, Mailer: f, BaseURL: baseURL, RedirectOrigins: []string{"https://app.example.com"}, Provider: f.provider, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Handler = web.New(web.Config{
		Accounts: f.accounts,
		Gate:     &browser.SessionAuth{Accounts: f.accounts, Secure: true},
		Endpoints: []web.Endpoint{
			{Path: "/dev/mailbox", Link: true, Description: "mails that were <sent>"},
			{Path: "/api/trpc", Description: "procedures"},
		},
		Logger: log,
	})
	return f
}

// requestLink requests a sign-in link, and returns it with the browser's intent cookie.
func (f *fixture) requestLink(redirectTo string) (link, intent string) {
	f.t.Helper()
	intent, err := f.accounts.SignInWithEmail(f.t.Context(), account.EmailSignIn{Email: "ada@example.com", RedirectTo: redirectTo}, "", account.Client{})
	if err != nil {
		f.t.Fatal(err)
	}
	return f.link(), intent
}

// link returns the path of the last mail's link.
func (f *fixture) link() string {
	return regexp.MustCompile(`https://help\.example\.com(/\S+)`).FindStringSubmatch(f.mails[len(f.mails)-1].Text)[1]
}

// exec runs a statement.
func (f *fixture) exec(statement string, args ...any) {
	f.t.Helper()
	if err := f.db.Write(f.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(f.t.Context(), statement, args...)
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) age(table string, by time.Duration) {
	f.t.Helper()
	f.exec("UPDATE "+table+" SET created_at = created_at - $1", by.Microseconds())
}

func (f *fixture) serve(method, target string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	f.t.Helper()
	return f.send(httptest.NewRequest(method, target, nil), change...)
}

// post sends a form.
func (f *fixture) post(target string, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	f.t.Helper()
	r := httptest.NewRequest("POST", target, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return f.send(r, change...)
}

// submit posts the form of a page with fill as input.
func (f *fixture) submit(page webtest.Document, fill map[string]string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	f.t.Helper()
	forms := page.All("form")
	if len(forms) != 1 || webtest.Attr(forms[0], "method") != "post" {
		f.t.Fatalf("got %d forms in page %s", len(forms), webtest.Text(page.Root))
	}
	values := url.Values{}
	for _, in := range page.All("input") {
		values.Add(webtest.Attr(in, "name"), webtest.Attr(in, "value"))
	}
	for name, value := range fill {
		page.Field(name)
		values.Set(name, value)
	}
	return f.post(webtest.Attr(forms[0], "action"), values, change...)
}

func (f *fixture) send(r *http.Request, change ...func(*http.Request)) *httptest.ResponseRecorder {
	f.t.Helper()
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

// signedIn adds the cookies of a session.
func signedIn(in account.SignIn) func(*http.Request) {
	return func(r *http.Request) {
		cookie("svc-access-token", in.Tokens.Access)(r)
		cookie("svc-refresh-token", in.Tokens.Refresh)(r)
	}
}

func cookies(w *httptest.ResponseRecorder) map[string]*http.Cookie {
	set := map[string]*http.Cookie{}
	for _, c := range w.Result().Cookies() {
		set[c.Name] = c
	}
	return set
}

// wantRefused asserts status 400, a page with the reason and the next step, and no
// cookie.
func wantRefused(t *testing.T, w *httptest.ResponseRecorder, why string) {
	t.Helper()
	if w.Code != 400 || len(w.Result().Cookies()) != 0 || w.Header().Get("Location") != "" {
		t.Errorf("got %d with header %v, want 400 without cookies", w.Code, w.Header())
	}
	wantPage(t, w).Want(why, "Request a new link and open it in the same browser.")
}

func TestCallback(t *testing.T) {
	f := newFixture(t)
	link, intent := f.requestLink("https://help.example.com/tickets?status=open")
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

	link, _ = f.requestLink("")
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
		wantRefused(t, f.serve("GET", target), "unknown or has expired")
	}
	link, _ := f.requestLink("")
	f.age("login_links", 15*time.Minute)
	wantRefused(t, f.serve("GET", link), "older than 15 minutes")
	if w := f.serve("POST", link); w.Code == 303 {
		t.Error("a POST used the link")
	}
}

// TestScanner opens a link as mail scanners do.
func TestScanner(t *testing.T) {
	f := newFixture(t)
	link, intent := f.requestLink("")
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
		page := f.serve("GET", "/welcome", cookie("svc-access-token", access))
		if got := page.Code == 200 && strings.Contains(page.Body.String(), "ada@example.com"); got != want {
			t.Errorf("got signed in %t, want %t", got, want)
		}
	}
}

func TestIndex(t *testing.T) {
	f := newFixture(t)
	w := f.serve("GET", "/")
	wantPage(t, w)
	body := w.Body.String()
	for _, want := range []string{`<a href="/dev/mailbox">/dev/mailbox</a>`, "mails that were &lt;sent&gt;", "<code>/api/trpc</code>", `<a class="button" href="/sign-in">Sign in</a>`, `href="/sign-up"`} {
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

	// A session is refreshed here as on any page.
	link, _ := f.requestLink("")
	refresh := cookies(f.serve("GET", link))["svc-refresh-token"].Value
	w = f.serve("GET", "/", cookie("svc-refresh-token", refresh))
	if w.Code != 303 || w.Header().Get("Location") != "/welcome" || len(cookies(w)) != 2 {
		t.Errorf("got %d to %q with cookies %v", w.Code, w.Header().Get("Location"), cookies(w))
	}
	if w := f.serve("GET", "/", cookie("svc-access-token", "stale")); w.Code != 200 || !strings.Contains(w.Body.String(), `href="/sign-in"`) {
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
	link, _ := f.requestLink("")
	if err := f.db.Close(); err != nil {
		t.Fatal(err)
	}
	stale := cookie("svc-access-token", strings.Repeat("A", 43))
	for _, w := range []*httptest.ResponseRecorder{
		f.serve("GET", link), f.serve("GET", "/", stale), f.serve("GET", "/sign-in", stale), f.serve("GET", "/welcome", stale), f.post("/sign-out", nil, stale),
		f.post("/sign-in", url.Values{"email": {"ada@example.com"}}), f.post("/forgot-password", url.Values{"email": {"ada@example.com"}}),
	} {
		wantPage(t, w)
		if w.Code != 503 || len(w.Result().Cookies()) != 0 {
			t.Errorf("got %d with cookies %v, want 503 without", w.Code, w.Result().Cookies())
		}
	}
}
