package web_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"

	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestForms checks that anything but a form of the site is refused without effect.
func TestForms(t *testing.T) {
	const urlencoded = "application/x-www-form-urlencoded"
	f := newFixture(t)
	_, link := f.requestReset("ada@example.com")
	reset := wantPage(t, f.serve("GET", link))
	invitation := wantPage(t, f.serve("GET", f.invite("Zenith", "Zoe", "bob@example.com", account.Agent)))
	for path, good := range map[string]url.Values{
		"/reset-password": {"token": {webtest.Attr(reset.Field("token"), "value")}, "password": {newPassword}, "repeat": {newPassword}},
		"/invitation":     {"token": {webtest.Attr(invitation.Field("token"), "value")}, "name": {"Bob"}},
	} {
		for _, tt := range []struct {
			name, contentType, body string
			status                  int
		}{
			{"no type", "", good.Encode(), 415},
			{"broken type", ";", good.Encode(), 415},
			{"JSON", "application/json", `{"token":"x"}`, 415},
			{"plain text", "text/plain", good.Encode(), 415},
			{"with files", "multipart/form-data; boundary=b", "--b--", 415},
			{"another charset", urlencoded + "; charset=iso-8859-1", good.Encode(), 415},
			{"too large", urlencoded, good.Encode() + "&x=" + strings.Repeat("x", 64<<10), 413},
			{"bytes", urlencoded, good.Encode() + "&x=\xff\xfe", 400},
			{"escaped bytes", urlencoded, good.Encode() + "&x=%ff", 400},
			{"a name of bytes", urlencoded, good.Encode() + "&%ff=x", 400},
			{"half a character", urlencoded, good.Encode() + "&name=%c3", 400},
			{"a broken escape", urlencoded, good.Encode() + "&x=%zz", 400},
			{"semicolons", urlencoded, strings.ReplaceAll(good.Encode(), "&", ";"), 400},
			{"nothing", urlencoded, "", 400},
		} {
			r := httptest.NewRequest("POST", path, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.contentType)
			w := f.send(r)
			if w.Code != tt.status || len(w.Header().Values("Set-Cookie")) != 0 || w.Header().Get("Location") != "" {
				t.Errorf("%s, %s: got %d with header %v, want %d", path, tt.name, w.Code, w.Header(), tt.status)
			}
			if d := wantPage(t, w); len(d.WithAttr("class", "button")) != 1 {
				t.Errorf("%s, %s: no way on in %s", path, tt.name, webtest.Text(d.Root))
			}
		}
		r := httptest.NewRequest("POST", path, io.MultiReader(strings.NewReader("token="), broken{}))
		r.Header.Set("Content-Type", urlencoded)
		w := f.send(r)
		if w.Code != 400 {
			t.Errorf("%s, a broken connection: got %d, want 400", path, w.Code)
		}
		wantPage(t, w).Want("The form is incomplete")

		// Unknown fields, query parameters and repeated values are ignored.
		good["redirectTo"] = []string{"https://evil.example.com/"}
		good["next"] = []string{"//evil.example.com"}
		good["token"] = append(good["token"], "another")
		w = f.post(path+"?token=x&redirectTo=https%3A%2F%2Fevil.example.com&%zz;", good, header("Content-Type", urlencoded+"; Charset=UTF-8"))
		if got := w.Header().Get("Location"); w.Code != 303 || got != map[string]string{"/reset-password": "/reset-password/done", "/invitation": "/"}[path] {
			t.Errorf("%s: got %d to %q", path, w.Code, got)
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// TestCrossSite checks, with the protection of package app, that forms work from the
// site's own pages in any browser, and from no other site.
func TestCrossSite(t *testing.T) {
	f := newFixture(t)
	protection := http.NewCrossOriginProtection()
	if err := protection.AddTrustedOrigin(baseURL); err != nil {
		t.Fatal(err)
	}
	pages := f.Handler
	f.Handler = protection.Handler(pages)

	// origin returns the Origin header of a page's form, by the Fetch standard ("append a
	// request Origin header").
	origin := func(w *httptest.ResponseRecorder, page string) string {
		if w.Header().Get("Referrer-Policy") == "no-referrer" {
			return "null"
		}
		return page
	}
	host := func(r *http.Request) { r.Host = "help.example.com" }
	for _, tt := range []struct {
		name   string
		change []func(*http.Request)
		from   string // origin of the page; empty: not sent
		want   bool
	}{
		{"our page", []func(*http.Request){host, header("Sec-Fetch-Site", "same-origin")}, baseURL, true},
		{"our page, no Sec-Fetch-Site", []func(*http.Request){host}, baseURL, true},
		{"our page over plain http", []func(*http.Request){host}, "http://help.example.com", true},
		{"our page behind a proxy", nil, baseURL, true},
		{"a program", []func(*http.Request){host}, "", true},
		{"another site", []func(*http.Request){host, header("Sec-Fetch-Site", "cross-site")}, "https://evil.example.net", false},
		{"a sibling", []func(*http.Request){host, header("Sec-Fetch-Site", "same-site")}, "https://shop.example.com", false},
		{"another site, no Sec-Fetch-Site", []func(*http.Request){host}, "https://evil.example.net", false},
		{"a sandboxed frame", []func(*http.Request){host}, "null", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			email := strings.NewReplacer(" ", "-", ",", "").Replace(tt.name) + "@example.com"
			in, link := f.requestReset(email)
			invitation := f.invite(tt.name, "Zoe", "new-"+email, account.Agent)
			for path, fill := range map[string]map[string]string{
				link: {"password": newPassword, "repeat": newPassword}, invitation: {"name": "Bob"},
			} {
				shown := f.serve("GET", path)
				change := slices.Concat(tt.change, []func(*http.Request){signedIn(in)})
				if tt.from != "" {
					change = append(change, header("Origin", origin(shown, tt.from)))
				}
				w := f.submit(wantPage(t, shown), fill, change...)
				if got := w.Code == 303; got != tt.want || !got && (w.Code != 403 || len(w.Result().Cookies()) != 0) {
					t.Errorf("%s: got %d with header %v, want success %t", path, w.Code, w.Header(), tt.want)
				}
			}
			if f.opens(email, oldPassword) == tt.want {
				t.Errorf("the password was changed: %t, want %t", !tt.want, tt.want)
			}
		})
	}
}

func TestMethods(t *testing.T) {
	f := newFixture(t)
	for path, allow := range map[string]string{
		"/":                                  "GET, HEAD",
		"/api/auth/callback?token=x":         "GET, HEAD",
		"/api/auth/provider/callback?code=x": "GET, HEAD",
		"/attachments/x":                     "GET, HEAD",
		"/reset-password/done":               "GET, HEAD",
		"/reset-password?token=x":            "GET, HEAD, POST",
		"/invitation?token=x":                "GET, HEAD, POST",
	} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"} {
			if method == "POST" && strings.HasSuffix(allow, "POST") {
				continue
			}
			w := f.serve(method, path)
			if w.Code != 405 || w.Header().Get("Allow") != allow || len(w.Result().Cookies()) != 0 {
				t.Errorf("%s %s: got %d with Allow %q, want 405 with %q", method, path, w.Code, w.Header().Get("Allow"), allow)
			}
			wantPage(t, w)
		}
	}
	for _, path := range []string{"/reset-password/", "/reset-password/x", "/invitation/", "/dev/checkout", "/dev/checkout/", "/dev/checkout/x/y"} {
		if w := f.serve("GET", path); w.Code != 404 {
			t.Errorf("%s: got %d, want 404", path, w.Code)
		}
	}
}

// FuzzForms asserts that any post results in a page or a redirect within the site, that
// only successes set cookies, and that nothing is an internal error. TOKEN stands for a
// valid token.
func FuzzForms(f *testing.F) {
	const urlencoded = "application/x-www-form-urlencoded"
	f.Add(true, urlencoded, "token=TOKEN&password=staple+of+the+house&repeat=staple+of+the+house")
	f.Add(true, urlencoded, "token=TOKEN&password=short&repeat=short")
	f.Add(true, urlencoded, "token=TOKEN&password=%00&repeat=%ff&username=%3Cscript%3E")
	f.Add(false, urlencoded, "token=TOKEN&name=Bob")
	f.Add(false, urlencoded, "token=TOKEN&name=%22%3E%3Cscript%3E%0d%0aSet-Cookie:+a%3Db")
	f.Add(false, urlencoded+"; charset=utf-8", "token=TOKEN&name=%E2%80%AE&redirectTo=%2F%2Fevil.example.com")
	f.Add(false, "text/plain", "token=TOKEN&name=Bob")
	fix := newFixture(f)
	_, link := fix.requestReset("ada@example.com")
	invitation := fix.invite("Zenith", "Zoe", "bob@example.com", account.Agent)
	f.Fuzz(func(t *testing.T, reset bool, contentType, body string) {
		path, from, done := "/invitation", invitation, "/"
		if reset {
			path, from, done = "/reset-password", link, "/reset-password/done"
		}
		_, token, _ := strings.Cut(from, "token=")
		r := httptest.NewRequestWithContext(context.Background(), "POST", path, strings.NewReader(strings.ReplaceAll(body, "TOKEN", token)))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		fix.ServeHTTP(w, r)
		switch w.Code {
		case 303:
			if got := w.Header().Get("Location"); got != done || len(w.Result().Cookies()) < 2 {
				t.Errorf("got %d to %q with %d cookies", w.Code, got, len(w.Result().Cookies()))
			}
			return
		case 400, 413, 415, 422:
			if len(w.Header().Values("Set-Cookie")) != 0 || w.Header().Get("Location") != "" {
				t.Errorf("got %d with header %v", w.Code, w.Header())
			}
		default:
			t.Errorf("got %d", w.Code)
		}
		wantPage(t, w)
	})
}
