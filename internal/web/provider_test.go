package web_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// provider is an identity provider with one user.
type provider struct {
	identity account.ProviderIdentity
	err      error
	asked    []string // code and issuer of each exchange
}

func (p *provider) AuthorizationURL(_ context.Context, s account.ProviderSecrets) (string, error) {
	return "https://id.example.com/authorize?" + url.Values{"state": {s.State}}.Encode(), nil
}

func (p *provider) Exchange(_ context.Context, code, issuer string, _ account.ProviderSecrets) (account.ProviderIdentity, error) {
	p.asked = append(p.asked, code+" "+issuer)
	who := p.identity
	who.Issuer, who.Subject = "https://id.example.com", "subject of "+who.Email
	return who, p.err
}

// startProviderSignIn starts a sign-in, and returns the callback path and the intent
// cookie.
func (f *fixture) startProviderSignIn(redirectTo string) (callback, intent string) {
	f.t.Helper()
	authorize, intent, err := f.accounts.SignInWithProvider(f.t.Context(), account.ProviderSignIn{RedirectTo: redirectTo}, "", account.Client{})
	if err != nil {
		f.t.Fatal(err)
	}
	u, err := url.Parse(authorize)
	if err != nil {
		f.t.Fatal(err)
	}
	return "/api/auth/provider/callback?code=c-1&iss=https%3A%2F%2Fid.example.com&state=" + u.Query().Get("state"), intent
}

func TestProviderCallback(t *testing.T) {
	f := newFixture(t)
	f.provider.identity = account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true, Name: "Ada"}
	for redirectTo, want := range map[string]string{
		"":                                "/",
		"/tickets?status=open":            "/tickets?status=open",
		"https://app.example.com/a//b?c#": "https://app.example.com/a//b?c#",
	} {
		callback, intent := f.startProviderSignIn(redirectTo)
		keep := cookie("svc-login-intent", intent)
		// A prefetch does not use it up.
		if w := f.serve("HEAD", callback, keep); w.Code != 200 || len(w.Result().Cookies()) != 0 || w.Body.Len() != 0 || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("HEAD: got %d with header %v", w.Code, w.Header())
		}
		w := f.serve("GET", callback, keep, header("Sec-Purpose", "prefetch;prerender"))
		if w.Code != 503 || len(w.Result().Cookies()) != 0 {
			t.Errorf("prefetch: got %d with header %v", w.Code, w.Header())
		}
		wantPage(t, w).Want("Not opened yet")

		if u := f.wantEntered(t, f.serve("GET", callback, keep), want); u.Email != "ada@example.com" {
			t.Errorf("got user %+v", u)
		}
		wantNotSignedIn(t, f.serve("GET", callback, keep), 400, "was not started in this browser, or it was completed already")
	}
	for _, got := range f.provider.asked {
		if got != "c-1 https://id.example.com" {
			t.Errorf("the provider was asked with %q", got)
		}
	}
	if len(f.provider.asked) != 3 {
		t.Errorf("the provider was asked %d times, want 3", len(f.provider.asked))
	}
}

// wantNotSignedIn asserts an error page with the reason and the next step, and no cookie.
func wantNotSignedIn(t *testing.T, w *httptest.ResponseRecorder, status int, why string) {
	t.Helper()
	if w.Code != status || len(w.Header().Values("Set-Cookie")) != 0 || w.Header().Get("Location") != "" {
		t.Errorf("got %d with header %v, want %d without cookies", w.Code, w.Header(), status)
	}
	page := wantPage(t, w)
	page.Want("You are not signed in", why, "Start again in", "a sign-in link by e-mail")
	if len(page.WithAttr("href", "/sign-in")) != 1 {
		t.Errorf("no way to sign in in %s", webtest.Text(page.Root))
	}
}

func TestProviderCallbackRefusals(t *testing.T) {
	const foreign = "was not started in this browser, or it was completed already"
	known := account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true}
	for _, tt := range []struct {
		name     string
		identity account.ProviderIdentity
		err      error
		change   func(callback string) string // the callback as manipulated
		intent   bool
		status   int
		want     string
	}{
		{name: "another browser", identity: known, status: 400, want: foreign},
		{name: "no state", identity: known, intent: true, status: 400, want: foreign,
			change: func(string) string { return "/api/auth/provider/callback" }},
		{name: "another state", identity: known, intent: true, status: 400, want: foreign,
			change: func(s string) string { return s[:len(s)-43] + strings.Repeat("A", 43) }},
		{name: "broken query", identity: known, intent: true, status: 400, want: foreign,
			change: func(string) string { return "/api/auth/provider/callback?state=%zz;code=%00" }},
		{name: "cancelled", identity: known, intent: true, status: 400, want: "The sign-in was cancelled.",
			change: func(s string) string { return s + "&error=access_denied" }},
		{name: "refused", identity: known, intent: true, status: 400, want: "The identity provider refused the sign-in.",
			change: func(s string) string { return s + "&error=" + strings.Repeat("%3Cscript%3E%0d%0a", 1000) }},
		{name: "not believed", intent: true, status: 400, want: "could not be verified",
			err: problem.New(problem.Invalid, "The answer could not be verified.").Because(errors.New("a secret"))},
		{name: "not verified", identity: account.ProviderIdentity{Email: "ada@example.com"}, intent: true, status: 400, want: "has not verified your e-mail address"},
		{name: "no address", identity: account.ProviderIdentity{EmailVerified: true}, intent: true, status: 400, want: "sent no valid e-mail address"},
		{name: "away", intent: true, status: 503, want: "cannot be reached at the moment",
			err: problem.New(problem.Unavailable, "The identity provider cannot be reached at the moment.").Because(errors.New("a secret"))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.provider.identity, f.provider.err = tt.identity, tt.err
			callback, intent := f.startProviderSignIn("")
			if tt.change != nil {
				callback = tt.change(callback)
			}
			if !tt.intent {
				intent = ""
			}
			w := f.serve("GET", callback, cookie("svc-login-intent", intent))
			wantNotSignedIn(t, w, tt.status, tt.want)
			if strings.Contains(w.Body.String(), "a secret") {
				t.Errorf("the cause is told: %s", w.Body)
			}
		})
	}
	t.Run("a fault", func(t *testing.T) {
		f := newFixture(t)
		f.provider.err = errors.New("a secret")
		callback, intent := f.startProviderSignIn("")
		w := f.serve("GET", callback, cookie("svc-login-intent", intent))
		if w.Code != 500 || len(w.Result().Cookies()) != 0 || strings.Contains(w.Body.String(), "a secret") {
			t.Errorf("got %d with page %s", w.Code, w.Body)
		}
		wantPage(t, w).Want("Something went wrong", "the id")
	})
}

func TestNoProvider(t *testing.T) {
	accounts, err := account.New(account.Config{DB: dbtest.New(t), BaseURL: baseURL})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, Handler: web.New(web.Config{Accounts: accounts, Gate: &browser.SessionAuth{Accounts: accounts}})}
	w := f.serve("GET", "/api/auth/provider/callback?code=c&state="+strings.Repeat("A", 43))
	if w.Code != 404 || len(w.Result().Cookies()) != 0 {
		t.Errorf("got %d with cookies %v, want 404", w.Code, w.Result().Cookies())
	}
	wantPage(t, w).Want("Not found")
}
