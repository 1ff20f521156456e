package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// mailedLink returns the path of the last mail's link.
func mailedLink(h *webtest.Harness) string {
	return regexp.MustCompile(`https://help\.example\.com(/\S+)`).FindStringSubmatch(h.Mails[len(h.Mails)-1].Text)[1]
}

func wantLocation(t *testing.T, w *httptest.ResponseRecorder, want string) {
	t.Helper()
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != want {
		t.Errorf("got %d to %q, want 303 to %q: %s", w.Code, w.Header().Get("Location"), want, w.Body)
	}
}

// TestSignUp signs up a new user with links and forms only.
func TestSignUp(t *testing.T) {
	h := webtest.NewHarness(t)
	b := h.SignIn(account.User{})
	d := b.Page("/sign-up?next=%2Finbox%3Fa%3D1")
	if len(d.WithAttr("name", "password")) != 0 || webtest.Attr(d.Field("next"), "value") != "/inbox?a=1" {
		t.Errorf("got page %s", webtest.Text(d.Root))
	}
	w := b.Post("/sign-up", url.Values{"email": {" new@example.com "}, "next": {"/inbox?a=1"}})
	wantLocation(t, w, "/sign-in/sent")
	d = b.Page("/sign-in/sent")
	d.Want("We sent a link to new@example.com.", "for 15 minutes", "mails are stored in the local mailbox")
	if len(d.WithAttr("href", "/dev/mailbox")) != 1 || len(d.WithAttr("href", "/sign-in")) != 1 {
		t.Error("the page leads nowhere")
	}
	if text := webtest.Text(b.Page("/sign-in/sent").Root); strings.Contains(text, "new@example.com") {
		t.Errorf("told twice: %s", text)
	}

	// Used in the same browser, it leads to the next step.
	wantLocation(t, b.Get(mailedLink(h)), "/welcome/passkey?next=%2Finbox%3Fa%3D1")
	for _, a := range b.Page("/welcome/passkey?next=%2Finbox%3Fa%3D1").All("a") {
		if webtest.Text(a) == "Not now" && webtest.Attr(a, "href") != "/inbox?a=1" {
			t.Errorf("got a way on to %q", webtest.Attr(a, "href"))
		}
	}
	for _, path := range []string{"/", "/sign-in", "/sign-up"} {
		w := b.Get(path)
		if w.Code != http.StatusSeeOther || path == "/" && w.Header().Get("Location") != "/welcome" || path != "/" && w.Header().Get("Location") != "/" {
			t.Errorf("%s: got %d to %q", path, w.Code, w.Header().Get("Location"))
		}
	}
	d = b.Page("/welcome")
	d.Want("new@example.com", "Free", "60 requests a minute", "Pro", "300 requests a minute", "Business", "1,000 requests a minute")
	for _, tt := range []struct {
		form  url.Values
		field string
		says  string
	}{
		{url.Values{"name": {" "}, "organizationName": {"<b>New</b>"}, "planTier": {"free"}}, "name", "Your name must not be empty."},
		{url.Values{"name": {"Ada <i>"}, "organizationName": {strings.Repeat("W", 256)}}, "organizationName", "Organization must have at most 255 characters."},
		{url.Values{"name": {"Ada\u202e"}, "organizationName": {"New"}}, "name", "Your name must not contain control characters."},
		{url.Values{"name": {"Ada"}, "organizationName": {"New"}, "planTier": {"gold"}}, "", "Plan must be"},
	} {
		d := b.WantRefused(b.Post("/welcome", tt.form), http.StatusUnprocessableEntity)
		if !strings.Contains(d.Alert(), tt.says) || tt.field != "" && len(d.DescribedBy(tt.field)) != 2 {
			t.Errorf("%v: got alert %q", tt.form, d.Alert())
		}
		for _, name := range []string{"name", "organizationName"} {
			if got := webtest.Attr(d.Field(name), "value"); got != tt.form.Get(name) {
				t.Errorf("%s is %q now", name, got)
			}
		}
	}
	wantLocation(t, b.Post("/welcome", url.Values{"name": {"Ada <b>"}, "organizationName": {"New & Co"}, "planTier": {"free"}}), "/inbox")
	wantLocation(t, b.Get("/"), "/inbox")
	wantLocation(t, b.Get("/welcome"), "/inbox")
	wantLocation(t, b.Post("/welcome", url.Values{"name": {"Ada"}, "organizationName": {"Another"}}), "/inbox")
	list, err := h.Accounts.Organizations(t.Context())
	if err != nil || len(list) != 2 || list[1].Name != "New & Co" || list[1].Plan != account.Free {
		t.Errorf("got organizations %+v, %v", list, err)
	}
}

// TestSignUpClosed checks that the refusal has the reason and the next step.
func TestSignUpClosed(t *testing.T) {
	h := webtest.NewHarness(t, func(c *account.Config) { c.SignUp = account.InvitedSignUp })
	b := h.SignIn(account.User{})
	b.Page("/sign-up").Want("Sign-up is restricted.")
	wantLocation(t, b.Post("/sign-up", url.Values{"email": {"new@example.com"}}), "/sign-in/sent")
	b.Page("/sign-in/sent").Want("We sent a link to new@example.com.")
	if text := h.Mails[len(h.Mails)-1].Text; strings.Contains(text, "token=") {
		t.Errorf("got mail %q, want no link that signs in", text)
	}

	// A removed member can sign in and gets the refusal.
	if err := h.Accounts.RemoveMember(t.Context(), h.Organization.ID, h.Agent.ID); err != nil {
		t.Fatal(err)
	}
	b = h.SignIn(h.Agent)
	for _, w := range []*httptest.ResponseRecorder{b.Get("/welcome"), b.Post("/welcome", url.Values{"name": {"Ben"}, "organizationName": {"Mine"}})} {
		d := b.WantRefused(w, http.StatusForbidden)
		d.Want("You don’t belong to an organization", h.Agent.Email, "by invitation only", "Ask an admin of your organization", "the operator of this server")
		if len(d.WithAttr("action", "/sign-out")) != 1 || len(d.WithAttr("name", "organizationName")) != 0 {
			t.Error("the page does not let go")
		}
	}
	if list, err := h.Accounts.Organizations(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("got organizations %+v, %v", list, err)
	}

	// A link that was mailed before the policy changed.
	open, err := account.New(account.Config{DB: h.DB, Mailer: h, BaseURL: webtest.BaseURL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "late@example.com"}, "", account.Client{}); err != nil {
		t.Fatal(err)
	}
	d := b.WantRefused(b.Get(mailedLink(h)), http.StatusForbidden)
	d.Want("You can’t sign up with this address", "by invitation only")
}

// TestSignUpPaid checks the redirect to a paid plan's checkout, and back.
func TestSignUpPaid(t *testing.T) {
	h := webtest.NewHarness(t)
	b := h.SignIn(account.User{})
	wantLocation(t, b.Get("/welcome"), "/sign-in?next=%2Fwelcome")
	b.WantRefused(b.Post("/welcome", url.Values{"name": {"x"}}), http.StatusUnauthorized).Want("Nothing was changed")
	b.Post("/sign-in", url.Values{"email": {"new@example.com"}})
	wantLocation(t, b.Get(mailedLink(h)), "/")
	w := b.Post("/welcome", url.Values{"name": {"Ada"}, "organizationName": {"New"}, "planTier": {"pro"}})
	to, ok := strings.CutPrefix(w.Header().Get("Location"), webtest.BaseURL)
	if w.Code != http.StatusSeeOther || !ok {
		t.Fatalf("got %d to %q", w.Code, w.Header().Get("Location"))
	}
	b.Page(to).Want("Pay for Kickstand Pro", "New")
	wantLocation(t, b.Post(to, nil), "/?checkout=paid")
	wantLocation(t, b.Get("/?checkout=paid"), "/settings/plan")
	list, err := h.Accounts.Organizations(t.Context())
	if err != nil || len(list) != 2 || list[1].Plan != account.Pro {
		t.Errorf("got organizations %+v, %v", list, err)
	}
	agent := h.SignIn(h.Agent)
	wantLocation(t, agent.Get("/?checkout=cancelled"), "/inbox")
}

func TestSignIn(t *testing.T) {
	h := webtest.NewHarness(t)
	form := func(email, password, next string) url.Values {
		return url.Values{"email": {email}, "password": {password}, "next": {next}}
	}
	const good = "correct horse"
	seen := map[string]bool{}
	for asked, leads := range map[string]string{
		"": "/", "/inbox?view=mine&q=%20": "/inbox?view=mine&q=%20", "/settings/profile": "/settings/profile",
		"//evil.example/": "/", "https://evil.example/": "/", `/\evil.example`: "/", "/\t/evil.example": "/", "javascript:alert(1)": "/",
		"/sign-out": "/", "/sign-in?next=/sign-in": "/", "/sign-upper": "/sign-upper", "/ä": "/", "/" + strings.Repeat("a", 1024): "/",
	} {
		b := h.SignIn(account.User{})
		d := b.Page("/sign-in?" + url.Values{"next": {asked}}.Encode())
		seen[asked] = true
		kept := webtest.Attr(d.Field("next"), "value")
		if leads == "/" && kept != "" || leads != "/" && kept != leads {
			t.Errorf("%q: the form keeps %q", asked, kept)
		}
		u := h.NewUser(h.Organization, fmt.Sprintf("u%d@example.com", len(seen)), "U", account.Agent)
		wantLocation(t, b.Post("/sign-in", form(strings.ToUpper(u.Email), good, asked)), leads)
		wantLocation(t, b.Get("/sign-in?"+url.Values{"next": {asked}}.Encode()), leads)
		wantLocation(t, b.Get("/"), "/inbox")
		// After sign-out the session is closed.
		wantLocation(t, b.Post("/sign-out", nil), "/sign-in")
		b.Page("/sign-in").Want("You are signed out.")
		if d := b.Page("/"); len(d.WithAttr("href", "/sign-in")) != 1 {
			t.Error("still signed in")
		}
	}
	b := h.SignIn(account.User{})
	wantLocation(t, b.Post("/sign-out", nil), "/sign-in")
	if w := b.Get("/sign-out"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: got %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

// TestSignInRefused checks that responses do not reveal whether an account exists, and
// that input other than passwords stays.
func TestSignInRefused(t *testing.T) {
	h := webtest.NewHarness(t)
	b := h.SignIn(account.User{})
	same := func(a, b string) bool {
		hide := func(s string) string { // the challenge of a passkey is random
			return regexp.MustCompile(`(ada|nobody)@example\.com|challenge&#34;:&#34;[\w-]+`).ReplaceAllString(s, "X")
		}
		return hide(a) == hide(b)
	}
	wrong := func(email string) *httptest.ResponseRecorder {
		return b.Post("/sign-in", url.Values{"email": {email}, "password": {"wrong horse"}, "next": {"/inbox"}})
	}
	known, unknown := wrong("ada@example.com"), wrong("nobody@example.com")
	d := b.WantRefused(known, http.StatusUnprocessableEntity)
	d.Want("The e-mail address or the password is wrong.")
	if webtest.Attr(d.Field("email"), "value") != "ada@example.com" || webtest.Attr(d.Field("password"), "value") != "" || webtest.Attr(d.Field("next"), "value") != "/inbox" {
		t.Errorf("got page %s", known.Body)
	}
	if unknown.Code != known.Code || !same(known.Body.String(), unknown.Body.String()) {
		t.Errorf("it shows who is known: %s and %s", known.Body, unknown.Body)
	}
	for _, address := range []string{"", "x", "Ada <ada@example.com>", `"><script>@example.com`, "ada@example.com, eve@example.com"} {
		for _, path := range []string{"/sign-in", "/sign-up", "/forgot-password"} {
			d := b.WantRefused(b.Post(path, url.Values{"email": {address}}), http.StatusUnprocessableEntity)
			if d.Alert() == "" || webtest.Attr(d.Field("email"), "value") != address {
				t.Errorf("%s, %q: got alert %q", path, address, d.Alert())
			}
		}
	}
	d = b.WantRefused(b.Post("/sign-in", url.Values{"email": {"x"}, "password": {"short"}}), http.StatusUnprocessableEntity)
	d.Want("Password must have at least 6 characters.", "E-mail address must be an e-mail address.")

	// Mail requests get the same response for both, too. A password is ignored.
	n := len(h.Mails)
	for _, path := range []string{"/sign-in", "/forgot-password"} {
		for _, email := range []string{"ada@example.com", "nobody@example.com"} {
			w := b.Post(path, url.Values{"email": {email}, "password": {"correct horse"}, "method": {"link"}})
			wantLocation(t, w, path+"/sent")
			b.Page(path + "/sent").Want(map[bool]string{true: "We sent a link to ", false: "We sent an e-mail to "}[path != "/forgot-password"] + email)
		}
	}
	if len(h.Mails) != n+4 {
		t.Errorf("got %d mails, want 4", len(h.Mails)-n)
	}

	// Rate limits.
	for path, form := range map[string]url.Values{
		"/sign-in": {"email": {"ada@example.com"}, "password": {"wrong horse"}}, "/sign-up": {"email": {"ada@example.com"}}, "/forgot-password": {"email": {"ada@example.com"}},
	} {
		var w *httptest.ResponseRecorder
		for range 6 {
			w = b.Post(path, form)
		}
		d := b.WantRefused(w, http.StatusTooManyRequests)
		if !strings.Contains(d.Alert(), "Too many sign-in attempts, try again in ") || w.Header().Get("Retry-After") == "" || webtest.Attr(d.Field("email"), "value") != "ada@example.com" {
			t.Errorf("%s: got alert %q with header %v", path, d.Alert(), w.Header())
		}
	}
}

func TestForgotPassword(t *testing.T) {
	h := webtest.NewHarness(t)
	b := h.SignIn(account.User{})
	b.Page("/forgot-password")
	b.Page("/forgot-password/sent").Want("for 30 minutes")
	b.Post("/forgot-password", url.Values{"email": {"ada@example.com"}})
	link := mailedLink(h)
	token, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	b.Page(link).Want("ada@example.com")
	wantLocation(t, b.Post("/reset-password", url.Values{"token": {token.Query().Get("token")}, "password": {"another horse"}, "repeat": {"another horse"}}), "/reset-password/done")
	if d := b.Page("/reset-password/done"); len(d.WithAttr("href", "/sign-in")) != 1 {
		t.Error("the page does not lead to the door")
	}
	wantLocation(t, b.Post("/sign-in", url.Values{"email": {"ada@example.com"}, "password": {"another horse"}}), "/")
}

func TestSignInWithProvider(t *testing.T) {
	f := newFixture(t)
	f.provider.identity = account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true}
	page := wantPage(t, f.serve("GET", "/sign-in?next=/inbox%3Fa%3D1"))
	if len(page.WithAttr("action", "/sign-in/provider")) != 1 {
		t.Fatal("no way to the provider")
	}
	w := f.post("/sign-in/provider", url.Values{"next": {"/inbox?a=1"}})
	to := strings.TrimPrefix(w.Header().Get("Refresh"), "0; url=")
	if w.Code != http.StatusOK || !strings.HasPrefix(to, "https://id.example.com/authorize?state=") {
		t.Fatalf("got %d with header %v", w.Code, w.Header())
	}
	// Browsers without refresh use the link.
	if d := wantPage(t, w); len(d.WithAttr("href", to)) != 1 {
		t.Errorf("no link in %s", w.Body)
	}
	intent := cookies(w)["svc-login-intent"].Value
	_, state, _ := strings.Cut(to, "state=")
	f.wantEntered(t, f.serve("GET", "/api/auth/provider/callback?code=c-1&state="+state, cookie("svc-login-intent", intent)), "/inbox?a=1")
	for range 5 {
		w = f.post("/sign-in/provider", nil)
	}
	if w.Code != http.StatusTooManyRequests {
		t.Errorf("got %d at the sixth attempt", w.Code)
	}
	wantPage(t, w).Want("Too many sign-in attempts, try again in ")

	// Without a provider nothing links to it.
	plain := fixture{t: t, db: f.db}
	var err error
	if plain.accounts, err = account.New(account.Config{DB: f.db, Mailer: f, BaseURL: baseURL}); err != nil {
		t.Fatal(err)
	}
	plain.Handler = web.New(web.Config{Accounts: plain.accounts, Gate: &browser.SessionAuth{Accounts: plain.accounts}})
	if page := wantPage(t, plain.serve("GET", "/sign-in")); len(page.WithAttr("action", "/sign-in/provider")) != 0 {
		t.Error("a way to a provider that there is not")
	}
	if w := plain.post("/sign-in/provider", nil); w.Code != http.StatusNotFound {
		t.Errorf("got %d without a provider", w.Code)
	}
	if page := wantPage(t, plain.serve("GET", "/sign-in/sent")); len(page.WithAttr("href", "/dev/mailbox")) != 0 {
		t.Error("a mailbox where mails are sent")
	}
}
