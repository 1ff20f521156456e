package web_test

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"

	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// invite creates an invitation to a new organization, and returns the link.
func (f *fixture) invite(organization, inviter, email string, role account.Role) string {
	f.t.Helper()
	// Names that are invalid today may still be stored.
	o, err := f.accounts.CreateOrganization(f.t.Context(), account.NewOrganization{Name: cmp.Or(regexp.MustCompile(`^[A-Z][a-z]+$`).FindString(organization), "Organization")})
	if err != nil {
		f.t.Fatal(err)
	}
	f.exec("UPDATE organizations SET name = $2 WHERE id = $1", o.ID, organization)
	u, err := f.accounts.CreateUser(f.t.Context(), account.NewUser{Email: o.Slug + "@example.com", Organization: o.Slug, Role: account.Admin})
	if err != nil {
		f.t.Fatal(err)
	}
	u.Name = inviter
	if _, err := f.accounts.Invite(f.t.Context(), account.Identity{UserID: u.ID, OrganizationID: o.ID, User: u},
		account.NewInvitation{Email: email, Role: role}); err != nil {
		f.t.Fatal(err)
	}
	return f.link()
}

// wantEntered asserts a new session and a redirect.
func (f *fixture) wantEntered(t *testing.T, w *httptest.ResponseRecorder, location string) account.User {
	t.Helper()
	if w.Code != 303 || w.Header().Get("Location") != location || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Referrer-Policy") != "no-referrer" {
		t.Fatalf("got %d with header %v and page %s", w.Code, w.Header(), w.Body)
	}
	set := cookies(w)
	for name, life := range map[string]int{"svc-access-token": 3600, "svc-refresh-token": 2592000, "svc-login-intent": -1} {
		c := set[name]
		if c == nil || c.MaxAge != life || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
			t.Fatalf("got cookie %v, want %s for %d seconds", c, name, life)
		}
	}
	id, _, err := f.accounts.Authenticate(t.Context(), set["svc-access-token"].Value, "", account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	return id.User
}

func TestInvitation(t *testing.T) {
	f := newFixture(t)
	link := f.invite("Acme", "Ada", "Bob@example.com", account.Agent)
	for range 3 {
		for _, method := range []string{"HEAD", "GET"} {
			if w := f.serve(method, link); w.Code != 200 || len(w.Result().Cookies()) != 0 {
				t.Fatalf("%s: got %d with cookies %v", method, w.Code, w.Result().Cookies())
			}
		}
	}
	page := wantPage(t, f.serve("GET", link))
	page.Want("Ada invites you to work with Acme", "Agent", "Bob@example.com", "Join Acme")
	if name := page.Field("name"); webtest.Attr(name, "autocomplete") != "name" || webtest.Attr(name, "type") != "text" || page.Alert() != "" {
		t.Errorf("got field %v and alert %q", name.Attr, page.Alert())
	}

	// An invalid name is rendered again with its error.
	for name, want := range map[string]string{
		"":                             "Your name must not be empty.",
		" \u00a0 ":                     "Your name must not be empty.",
		"Bob\r\nSet-Cookie: a=b":       "Your name must not contain control characters.",
		"B\u2028ob":                    "Your name must not contain control characters.",
		`"><script>` + "\x00":          "Your name must not contain NUL characters.",
		strings.Repeat("\u202eé", 128): "Your name must have at most 255 characters.",
	} {
		w := f.submit(page, map[string]string{"name": name})
		if w.Code != 422 || len(w.Header().Values("Set-Cookie")) != 0 {
			t.Fatalf("name %q: got %d with header %v", name, w.Code, w.Header())
		}
		again := wantPage(t, w)
		again.Want("Ada invites you to work with Acme")
		typed := strings.NewReplacer("\r\n", "\n", "\x00", "\ufffd").Replace(strings.TrimSpace(name)) // as HTML transfers them
		if got := webtest.Attr(again.Field("name"), "value"); got != typed {
			t.Errorf("name %q: got it back as %q", name, got)
		}
		if got := again.Alert(); got != "There is a problem: "+want {
			t.Errorf("name %q: got alert %q", name, got)
		}
		if got := again.DescribedBy("name"); len(got) != 2 || got[0] != want {
			t.Errorf("name %q: got %q beside the field", name, got)
		}
	}

	w := f.submit(page, map[string]string{"name": " Bob <b> "})
	u := f.wantEntered(t, w, "/")
	if u.Email != "Bob@example.com" || u.Name != "Bob <b>" || u.Role != account.Agent || u.OrganizationID == "" {
		t.Errorf("got user %+v", u)
	}
	for _, w := range []*httptest.ResponseRecorder{f.submit(page, map[string]string{"name": "Bob"}), f.serve("GET", link)} {
		f.wantNotInvited(t, w, 400, "This invitation was accepted or revoked")
	}
}

// wantNotInvited asserts an error page with the reason and the next step, and no cookie.
func (f *fixture) wantNotInvited(t *testing.T, w *httptest.ResponseRecorder, status int, why string) {
	t.Helper()
	if w.Code != status || len(w.Header().Values("Set-Cookie")) != 0 || w.Header().Get("Location") != "" {
		t.Errorf("got %d with header %v, want %d without cookies", w.Code, w.Header(), status)
	}
	page := wantPage(t, w)
	page.Want(why)
	if len(page.WithAttr("href", "/sign-in")) != 1 {
		t.Errorf("no way to sign in in %s", webtest.Text(page.Root))
	}
	if status == 400 {
		page.Want("This invitation does not work", "already accepted it, sign in", "request a new invitation from an admin")
	} else {
		page.Want("You cannot join with this address", "remove you from it first", "an invitation to another e-mail address")
	}
}

// TestInvitationOfUser: a user with an account has no fields to fill in, and keeps the
// present name.
func TestInvitationOfUser(t *testing.T) {
	f := newFixture(t)
	link := f.invite("Acme", "Ada", "carol@example.com", account.Admin)
	f.provider.identity = account.ProviderIdentity{Email: "carol@example.com", EmailVerified: true, Name: "Carol"}
	callback, intent := f.startProviderSignIn("")
	if w := f.serve("GET", callback, cookie("svc-login-intent", intent)); w.Code != 303 {
		t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	page := wantPage(t, f.serve("GET", link))
	page.Want("Admin", "carol@example.com", "Your name Carol")
	if len(page.WithAttr("name", "name")) != 0 {
		t.Error("who has a name is asked for one")
	}
	token := webtest.Attr(page.Field("token"), "value")
	w := f.post("/invitation", url.Values{"token": {token}, "name": {"Mallory\r\n"}})
	if u := f.wantEntered(t, w, "/"); u.Name != "Carol" || u.Role != account.Admin {
		t.Errorf("got user %+v", u)
	}
}

func TestInvitationDoesNotWork(t *testing.T) {
	f := newFixture(t)
	for _, bad := range badTokens {
		f.wantNotInvited(t, f.serve("GET", "/invitation?"+url.Values{"token": {bad}}.Encode()), 400, "This invitation was accepted or revoked")
		f.wantNotInvited(t, f.post("/invitation", url.Values{"token": {bad}, "name": {"Bob"}}), 400, "This invitation was accepted or revoked")
	}

	// Members of this and of another organization.
	link := f.invite("Acme", "Ada", "bob@example.com", account.Agent)
	page := wantPage(t, f.serve("GET", link))
	other := f.invite("Zenith", "Zoe", "bob@example.com", account.Admin)
	f.wantEntered(t, f.submit(page, map[string]string{"name": "Bob"}), "/")
	f.wantNotInvited(t, f.submit(wantPage(t, f.serve("GET", other)), nil), 409, "You belong to another organization.")

	link = f.invite("Nadir", "Ned", "dora@example.com", account.Agent)
	page = wantPage(t, f.serve("GET", link))
	if _, err := f.accounts.CreateUser(t.Context(), account.NewUser{
		Email: "Dora@example.com", Organization: "nadir", Role: account.Agent,
	}); err != nil {
		t.Fatal(err)
	}
	f.wantNotInvited(t, f.submit(page, map[string]string{"name": "Dora"}), 409, "You are a member of Nadir already.")

	f.age("invitations", account.InvitationLife)
	for _, w := range []*httptest.ResponseRecorder{f.serve("GET", link), f.submit(page, map[string]string{"name": "Dora"})} {
		f.wantNotInvited(t, w, 400, "This invitation is older than 7 days.")
	}
}

// TestHostileNames checks that names are escaped and isolated from the direction of the
// text around them.
func TestHostileNames(t *testing.T) {
	f := newFixture(t)
	for i, name := range []string{
		"<script>alert(1)</script>",
		`"><img src=x onerror=alert(1)>`,
		"' autofocus onfocus='alert(1)",
		"</strong></p></main><h1>Signed out</h1>",
		"</title><meta http-equiv=refresh content=0>",
		"{{.Body.Token}} {{template \"layout\" .}} ${alert(1)} &amp; &#60;b&#62;",
		"javascript:alert(1)",
		"\u202eelpmaxe\u2066 \u2067\u200f",
		"<!-- ]]> --> <![CDATA[",
		strings.Repeat("\U0001F6F4", 255),
		strings.Repeat("W", 255),
	} {
		link := f.invite(name, name, "eve"+string(rune('a'+i))+"@example.com", account.Agent)
		w := f.serve("GET", link)
		if w.Code != 200 {
			t.Fatalf("%q: got %d", name, w.Code)
		}
		page := wantPage(t, w)
		said := 0
		for _, n := range page.All("bdi") {
			if webtest.Text(n) == strings.Join(strings.Fields(name), " ") {
				said++
			}
		}
		if said != 3 { // inviter, organization and button
			t.Errorf("%q: found it %d times in %s", name, said, w.Body)
		}

		// Neither may a refused name that is rendered again.
		page = wantPage(t, f.submit(page, map[string]string{"name": name + "\x01"}))
		if got := webtest.Attr(page.Field("name"), "value"); got != name+"\x01" {
			t.Errorf("got %q back, want %q", got, name+"\x01")
		}
		if strings.Contains(name, "\u202e") {
			continue // no longer valid
		}
		u := f.wantEntered(t, f.submit(page, map[string]string{"name": name}), "/")
		if u.Name != name {
			t.Errorf("got user %q, want %q", u.Name, name)
		}
	}
}
