package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// Requests of browsers, the last one over a plain connection.
var browsers = map[string]func(*http.Request){
	"navigation": func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		r.Header.Set("Sec-Fetch-Dest", "document")
	},
	"frame": func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		r.Header.Set("Sec-Fetch-Dest", "iframe")
	},
	"image": func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "no-cors")
		r.Header.Set("Accept", "image/avif,image/webp,*/*")
	},
	"fetch": func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Sec-Fetch-Mode", "cors")
	},
	"plain connection": func(r *http.Request) {
		r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0")
		r.Header.Set("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
	},
}

// TestAttackSignInLinkOfAnother: an attacker sends a link to an account of the attacker,
// so that the victim enters data there (login CSRF). Opening it does not sign in: a form
// names the account first.
func TestAttackSignInLinkOfAnother(t *testing.T) {
	for name, as := range browsers {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			link, intent := f.requestLink("https://help.example.com/tickets?status=open")
			for range 2 { // repeatedly
				w := f.serve("GET", link, as)
				page := wantPage(t, w)
				if w.Code != 200 || len(w.Result().Cookies()) != 0 || w.Header().Get("Location") != "" {
					t.Fatalf("got %d to %q with cookies %v, want a form", w.Code, w.Header().Get("Location"), w.Result().Cookies())
				}
				page.Want("Sign in as ada@example.com", "requested in another browser")
			}
			// An intent of another link does not help.
			_, other := f.requestLink("")
			if w := f.serve("GET", link, as, cookie("svc-login-intent", other)); w.Code != 200 || len(w.Result().Cookies()) != 0 {
				t.Errorf("with another intent: got %d with cookies %v", w.Code, w.Result().Cookies())
			}
			// The form works once.
			page := wantPage(t, f.serve("GET", link, as))
			w := f.submit(page, nil, as)
			if w.Code != 303 || w.Header().Get("Location") != "https://help.example.com/tickets?status=open" || cookies(w)["svc-access-token"] == nil {
				t.Errorf("got %d to %q, want to be signed in", w.Code, w.Header().Get("Location"))
			}
			wantRefused(t, f.submit(page, nil, as), "was used already")
			wantRefused(t, f.serve("GET", link, as), "was used already")
			// The requesting browser needs no form.
			if w := f.serve("GET", link, as, cookie("svc-login-intent", intent)); w.Code != 303 || cookies(w)["svc-access-token"] == nil {
				t.Errorf("the browser that asked: got %d", w.Code)
			}
		})
	}
}

// TestAttackSignInLinkPosted: another site posts the form of a sign-in link.
func TestAttackSignInLinkPosted(t *testing.T) {
	f := newFixture(t)
	link, _ := f.requestLink("")
	_, token, _ := strings.Cut(link, "token=")
	protected := http.NewCrossOriginProtection().Handler(f.Handler)
	unprotected := f.Handler
	f.Handler = protected
	for name, from := range map[string]func(*http.Request){
		"another site":     header("Sec-Fetch-Site", "cross-site"),
		"another origin":   header("Origin", "https://evil.example"),
		"no origin":        header("Origin", "null"),
		"a sibling site":   header("Sec-Fetch-Site", "same-site"),
		"another port":     header("Origin", "https://example.com:8443"),
		"an older version": header("Origin", "http://evil.example"),
	} {
		if w := f.post("/sign-in/link", map[string][]string{"token": {token}}, from); w.Code != 403 || len(w.Result().Cookies()) != 0 {
			t.Errorf("%s: got %d with cookies %v, want 403", name, w.Code, w.Result().Cookies())
		}
	}
	f.Handler = unprotected
	if w := f.serve("GET", "/sign-in/link?token="+token); w.Code != 405 || len(w.Result().Cookies()) != 0 {
		t.Errorf("GET of the form's address: got %d with cookies %v", w.Code, w.Result().Cookies())
	}
}

// TestLinkFormSaysWhoIsSignedIn checks that the form names both the link's and the
// present account.
func TestLinkFormSaysWhoIsSignedIn(t *testing.T) {
	f := newFixture(t)
	link, _ := f.requestLink("")
	present := cookies(f.serve("GET", link))["svc-access-token"].Value
	link, _ = f.requestLink("")
	w := f.serve("GET", link, browsers["navigation"], cookie("svc-access-token", present))
	if page := wantPage(t, w); w.Code != 200 || !strings.Contains(webtest.Text(page.Root), "Currently signed in") {
		t.Errorf("got %d %s", w.Code, webtest.Text(page.Root))
	}
	for _, target := range []string{"/api/auth/callback", "/api/auth/callback?token=x"} {
		wantRefused(t, f.serve("GET", target, browsers["navigation"]), "unknown or has expired")
	}
	f.age("login_links", 15*60*1e9)
	wantRefused(t, f.serve("GET", link, browsers["navigation"]), "older than 15 minutes")
}
