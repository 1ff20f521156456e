package web_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

const (
	oldPassword = "correct horse battery"
	newPassword = "staple of the \"new\" <house>"
)

// requestReset creates a user with a session, and returns the session and a reset link.
func (f *fixture) requestReset(email string) (in account.SignIn, link string) {
	f.t.Helper()
	ctx := f.t.Context()
	if _, err := f.accounts.OrganizationBySlug(ctx, "acme"); problem.Of(err) == problem.NotFound {
		if _, err := f.accounts.CreateOrganization(ctx, account.NewOrganization{Name: "Acme"}); err != nil {
			f.t.Fatal(err)
		}
	}
	if _, err := f.accounts.CreateUser(ctx, account.NewUser{
		Email: email, Password: oldPassword, Organization: "acme", Role: account.Admin,
	}); err != nil {
		f.t.Fatal(err)
	}
	in, err := f.accounts.SignInWithPassword(ctx, account.PasswordSignIn{Email: email, Password: oldPassword}, account.Client{})
	if err != nil {
		f.t.Fatal(err)
	}
	return in, f.reset(email)
}

// reset returns another reset link.
func (f *fixture) reset(email string) string {
	f.t.Helper()
	if err := f.accounts.SendPasswordReset(f.t.Context(), account.PasswordReset{Email: email}, account.Client{}); err != nil {
		f.t.Fatal(err)
	}
	return f.link()
}

// opens reports whether a password signs in.
func (f *fixture) opens(email, password string) bool {
	f.t.Helper()
	_, err := f.accounts.SignInWithPassword(f.t.Context(), account.PasswordSignIn{Email: email, Password: password}, account.Client{})
	if err != nil && problem.Of(err) != problem.Unauthorized {
		f.t.Fatal(err)
	}
	return err == nil
}

// clearedCookies are the deleted session cookies.
var clearedCookies = []string{
	"svc-access-token=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax",
	"svc-refresh-token=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax",
}

func TestResetPassword(t *testing.T) {
	f := newFixture(t)
	in, link := f.requestReset("ada@example.com")
	// Scanners and previews open a link more than once.
	for range 3 {
		for _, change := range []func(*http.Request){header("Sec-Purpose", "prefetch"), header("User-Agent", "scanner"), signedIn(in)} {
			for _, method := range []string{"HEAD", "GET"} {
				if w := f.serve(method, link, change); w.Code != 200 || len(w.Result().Cookies()) != 0 {
					t.Fatalf("%s: got %d with cookies %v", method, w.Code, w.Result().Cookies())
				}
			}
		}
	}

	page := wantPage(t, f.serve("GET", link))
	page.Want("Choose a new password", "ada@example.com", "At least 8 characters")
	if page.Alert() != "" || webtest.Attr(page.All("form")[0], "action") != "/reset-password" {
		t.Errorf("got alert %q and form to %q", page.Alert(), webtest.Attr(page.All("form")[0], "action"))
	}
	for name, want := range map[string]map[string]string{
		"token":    {"type": "hidden", "autocomplete": "off", "value": link[strings.Index(link, "=")+1:]},
		"username": {"autocomplete": "username", "value": "ada@example.com"},
		"password": {"type": "password", "autocomplete": "new-password", "value": "", "minlength": "8"},
		"repeat":   {"type": "password", "autocomplete": "new-password", "value": ""},
	} {
		for key, want := range want {
			if got := webtest.Attr(page.Field(name), key); got != want {
				t.Errorf("field %s: got %s %q, want %q", name, key, got, want)
			}
		}
	}
	if !webtest.Has(page.Field("username"), "hidden") || !webtest.Has(page.Field("password"), "autofocus") {
		t.Error("the e-mail address is not hidden, or typing does not begin at the password")
	}

	w := f.submit(page, map[string]string{"password": newPassword, "repeat": newPassword}, signedIn(in))
	if w.Code != 303 || w.Header().Get("Location") != "/reset-password/done" || w.Header().Get("Referrer-Policy") != "no-referrer" || w.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("got %d with header %v and page %s", w.Code, w.Header(), w.Body)
	}
	if got := w.Header().Values("Set-Cookie"); !slices.Equal(got, clearedCookies) {
		t.Errorf("got cookies %q, want %q", got, clearedCookies)
	}
	wantPage(t, f.serve("GET", w.Header().Get("Location"))).Want("Password changed", "You were signed out on all devices", "Sign in with the new password")
	if _, _, err := f.accounts.Authenticate(t.Context(), in.Tokens.Access, in.Tokens.Refresh, account.Client{}); problem.Of(err) != problem.Unauthorized {
		t.Errorf("got error %v for the session from before, want it ended", err)
	}
	if f.opens("ada@example.com", oldPassword) || !f.opens("ada@example.com", newPassword) {
		t.Error("the old password opens the account, or the new one does not")
	}

	// A double click, and a reload of the page.
	const another = "another one of these"
	w = f.submit(page, map[string]string{"password": another, "repeat": another}, signedIn(in))
	f.wantDead(t, w, "This link was used already")
	f.wantDead(t, f.serve("GET", link), "This link was used already")
	if f.opens("ada@example.com", another) {
		t.Error("a link was good for two passwords")
	}
}

// badTokens are invalid.
var badTokens = []string{"", "x", strings.Repeat("A", 43), `"><script>alert(1)</script>`, "a\r\nSet-Cookie: a=b", "\ufffd", strings.Repeat("x", 5000)}

// wantDead asserts status 400, a page with the reason and the next step, and no cookie.
func (f *fixture) wantDead(t *testing.T, w *httptest.ResponseRecorder, why string) {
	t.Helper()
	if w.Code != 400 || len(w.Result().Cookies()) != 0 || w.Header().Get("Location") != "" {
		t.Errorf("got %d with header %v, want 400 without cookies", w.Code, w.Header())
	}
	wantPage(t, w).Want("This link does not work", why, "If you have just set a new password, sign in with it. Otherwise request a new link.")
}

func TestResetPasswordRefusals(t *testing.T) {
	f := newFixture(t)
	in, link := f.requestReset("ada.lovelace@example.com")
	for _, tt := range []struct {
		name, password, repeat string
		field, want            string
	}{
		{"empty", "", "", "password", "New password must have at least 8 characters."},
		{"too short", "häuser7", "häuser7", "password", "New password must have at least 8 characters."},
		{"too long", strings.Repeat("é", 513), strings.Repeat("é", 513), "password", "New password must have at most 1024 bytes."},
		{"common", "Password1", "Password1", "password", "New password is a common password; choose another."},
		{"the address", " ADA.lovelace@example.com", " ADA.lovelace@example.com", "password", "New password must not be the e-mail address."},
		{"NUL", "nul\x00nul\x00nul", "nul\x00nul\x00nul", "password", "New password must not contain NUL characters."},
		{"a slip", newPassword, newPassword + " ", "repeat", "The passwords don’t match. Enter both again."},
		{"once", newPassword, "", "repeat", "The passwords don’t match. Enter both again."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := f.submit(wantPage(t, f.serve("GET", link)), map[string]string{"password": tt.password, "repeat": tt.repeat}, signedIn(in))
			if w.Code != 422 || len(w.Result().Cookies()) != 0 {
				t.Errorf("got %d with cookies %v, want 422 without", w.Code, w.Result().Cookies())
			}
			page := wantPage(t, w)
			if got, want := page.Alert(), "There is a problem: "+tt.want; got != want {
				t.Errorf("got alert %q, want %q", got, want)
			}
			if got := page.DescribedBy(tt.field); len(got) == 0 || got[0] != tt.want {
				t.Errorf("got %q beside the field, want %q", got, tt.want)
			}
			if in := page.Field(tt.field); webtest.Attr(in, "aria-invalid") != "true" || !webtest.Has(in, "autofocus") {
				t.Errorf("the field %s is not marked", tt.field)
			}
			if title := webtest.Text(page.All("title")[0]); title != "Error: Choose a new password – Kickstand" {
				t.Errorf("got title %q", title)
			}
			for _, name := range []string{"password", "repeat"} {
				if got := webtest.Attr(page.Field(name), "value"); got != "" {
					t.Errorf("got back %q in the field %s", got, name)
				}
			}
		})
	}
	if !f.opens("ada.lovelace@example.com", oldPassword) {
		t.Error("the old password does not open the account any more")
	}
	// The link is still unused.
	w := f.submit(wantPage(t, f.serve("GET", link)), map[string]string{"password": newPassword, "repeat": newPassword})
	if w.Code != 303 || !f.opens("ada.lovelace@example.com", newPassword) {
		t.Errorf("got %d in the end", w.Code)
	}
}

func TestResetLinkDoesNotWork(t *testing.T) {
	f := newFixture(t)
	in, link := f.requestReset("ada@example.com")
	token := strings.TrimPrefix(link, "/reset-password?token=")
	for _, bad := range append(badTokens, in.Tokens.Access, token+"=", token[:42]) {
		query := "?" + url.Values{"token": {bad}}.Encode()
		f.wantDead(t, f.serve("GET", "/reset-password"+query), "This link is unknown")
		f.wantDead(t, f.post("/reset-password", url.Values{"token": {bad}, "password": {newPassword}, "repeat": {newPassword}}), "This link is unknown")
	}
	// Only the token in the form is read, not the one in the address.
	f.wantDead(t, f.post(link, url.Values{"password": {newPassword}, "repeat": {newPassword}}), "This link is unknown")
	f.age("password_resets", account.ResetLife)
	f.wantDead(t, f.serve("GET", link), "This link is older than 30 minutes.")
	f.wantDead(t, f.post("/reset-password", url.Values{"token": {token}, "password": {newPassword}, "repeat": {newPassword}}), "This link is older than 30 minutes.")
	if !f.opens("ada@example.com", oldPassword) {
		t.Error("the password was changed")
	}
}
