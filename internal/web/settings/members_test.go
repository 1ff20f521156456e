package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

func TestProfile(t *testing.T) {
	const path = "/settings/profile"
	h := newHarness(t)
	b := h.SignIn(h.Admin)
	d := b.Page(path)
	d.Want("ada@example.com", "Current password")
	if got := webtest.Attr(d.Field("name"), "value"); got != h.Admin.Name {
		t.Errorf("got name %q", got)
	}
	_, notice := b.Follow(b.Post(path, url.Values{"name": {` Ada "L" <b> `}, "avatar_url": {"https://pictures.example/ada.png?a=1&b=2"}}))
	u, err := h.Accounts.User(t.Context(), h.Admin.ID)
	if err != nil || notice != "Profile saved." || u.Name != `Ada "L" <b>` || u.AvatarURL != "https://pictures.example/ada.png?a=1&b=2" {
		t.Errorf("got %+v, %v, notice %q", u, err, notice)
	}
	// The avatar is no image.
	if len(b.Page(path).All("img")) != 0 {
		t.Error("the page loads a picture")
	}
	for _, form := range []url.Values{{"name": {" "}}, {"name": {"a\u202eb"}}, {"name": {"Ada"}, "avatar_url": {"javascript:alert(1)"}}, {"name": {strings.Repeat("W", 256)}}} {
		d := b.WantRefused(b.Post(path, form), http.StatusUnprocessableEntity)
		if d.Alert() == "" || webtest.Attr(d.Field("name"), "value") != form.Get("name") || webtest.Attr(d.Field("avatar_url"), "value") != form.Get("avatar_url") {
			t.Errorf("%v: got alert %q", form, d.Alert())
		}
	}
	if u, err = h.Accounts.User(t.Context(), h.Admin.ID); err != nil || u.Name != `Ada "L" <b>` {
		t.Errorf("got %+v, %v", u, err)
	}

	// Narrow screens show the settings as a list first.
	d = b.Page("/settings")
	list := d.WithAttr("class", "settings-list")
	if len(list) != 1 || !strings.Contains(webtest.Text(list[0]), "Audit log") {
		t.Errorf("got %d lists", len(list))
	}
	d.Field("currentPassword")
}

func TestPassword(t *testing.T) {
	const path = "/settings/profile/password"
	h := newHarness(t)
	b, other := h.SignIn(h.Agent), h.SignIn(h.Agent)
	for _, tt := range []struct {
		current, next string
		code          int
		says          string
	}{
		{"wrong horse", "better horse", 422, "The current password is wrong."},
		{"correct horse", "short", 422, "New password must have at least 8 characters."},
		{"correct horse", "ben@example.com", 422, "New password must not be the e-mail address."},
		{"correct horse", "password1", 422, "is a common password"},
	} {
		w := b.Post(path, url.Values{"currentPassword": {tt.current}, "newPassword": {tt.next}})
		d := b.WantRefused(w, tt.code)
		if !strings.Contains(d.Alert(), tt.says) || strings.Contains(w.Body.String(), tt.current) {
			t.Errorf("%s, %s: got alert %q", tt.current, tt.next, d.Alert())
		}
	}
	if _, notice := b.Follow(b.Post(path, url.Values{"currentPassword": {"correct horse"}, "newPassword": {"better horse"}})); !strings.Contains(notice, "all other sessions were signed out") {
		t.Errorf("got notice %q", notice)
	}
	if w := other.Get("/settings/profile"); w.Code != http.StatusSeeOther {
		t.Errorf("the other session: got %d", w.Code)
	}
	for range 9 {
		b.Post(path, url.Values{"currentPassword": {"wrong horse"}, "newPassword": {"better horse"}})
	}
	w := b.Post(path, url.Values{"currentPassword": {"wrong horse"}, "newPassword": {"better horse"}})
	if d := b.WantRefused(w, http.StatusTooManyRequests); !strings.Contains(d.Alert(), "try again in ") || w.Header().Get("Retry-After") == "" {
		t.Errorf("got alert %q", d.Alert())
	}

	// A user without a password sets one, also without an organization.
	in, err := h.Accounts.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "new@example.com"}, "", account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(h.Mails[len(h.Mails)-1].Text, "token=")
	s, err := h.Accounts.FollowLink(t.Context(), strings.Fields(token)[0], in, account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	fresh := h.SignInWith(s.Tokens)
	fresh.Page("/settings/profile").Want("You sign in with e-mail links")
	fresh.WantRefused(fresh.Post(path, url.Values{"password": {"short"}}), 422).Want("Password must have at least 8 characters.")
	fresh.Follow(fresh.Post(path, url.Values{"password": {"correct horse"}}))
	fresh.Page("/settings/profile").Field("currentPassword")
}

func TestMembers(t *testing.T) {
	const path = "/settings/members"
	h := newHarness(t)
	elsewhere := h.NewOrganization("Elsewhere")
	stranger := h.NewUser(elsewhere, "eve@example.com", "Eve", account.Admin)
	admin, agent := h.SignIn(h.Admin), h.SignIn(h.Agent)

	// An agent sees the members and cannot change them.
	d := agent.Page(path)
	d.Want(h.Admin.Name, "ben@example.com", "Agent", "Admin")
	if len(d.WithAttr("href", path+"/"+h.Admin.ID)) != 0 || len(d.WithAttr("id", "invitations")) != 0 {
		t.Error("an agent is shown what only admins may do")
	}
	for _, p := range []string{path + "/" + h.Admin.ID, path + "/" + h.Admin.ID + "/remove", "/settings/invitations"} {
		agent.WantRefused(agent.Get(p), http.StatusForbidden)
		agent.WantRefused(agent.Post(p, url.Values{"role": {"admin"}, "confirm": {h.Admin.Email}, "email": {"x@example.com"}}), http.StatusForbidden)
	}
	// Other organizations' members are not found.
	for _, p := range []string{path + "/" + stranger.ID, path + "/" + stranger.ID + "/remove", path + "/x"} {
		admin.WantRefused(admin.Get(p), http.StatusNotFound)
		admin.WantRefused(admin.Post(p, url.Values{"role": {"agent"}, "confirm": {stranger.Email}}), http.StatusNotFound)
	}
	admin.WantRefused(admin.Post("/settings/invitations/x", url.Values{"do": {"revoke"}}), http.StatusNotFound)

	// Roles.
	to := path + "/" + h.Agent.ID
	admin.Page(to).Want("Role of Ben")
	admin.WantRefused(admin.Post(to, url.Values{"role": {"owner"}}), 422).Want("Role must be")
	d, notice := admin.Follow(admin.Post(to, url.Values{"role": {"admin"}}))
	if !strings.Contains(notice, "Ben is an admin now.") || len(d.WithAttr("action", to)) != 1 {
		t.Errorf("got notice %q", notice)
	}
	admin.Follow(admin.Post(to, url.Values{"role": {"agent"}})) // undone
	d = admin.WantRefused(admin.Post(path+"/"+h.Admin.ID, url.Values{"role": {"agent"}}), 422)
	if !strings.Contains(d.Alert(), "last admin") {
		t.Errorf("got alert %q", d.Alert())
	}

	// Removal requires the typed address and spares the last admin.
	d = admin.Page(to + "/remove")
	d.Want("Type ben@example.com to confirm")
	admin.WantRefused(admin.Post(to+"/remove", url.Values{"confirm": {"ben"}}), 422)
	if w := agent.Get(path); w.Code != 200 {
		t.Fatal("removed without a word")
	}
	admin.Follow(admin.Post(to+"/remove", url.Values{"confirm": {"ben@example.com"}}))
	if w := agent.Get(path); w.Code != http.StatusSeeOther || !strings.HasPrefix(w.Header().Get("Location"), "/sign-in") {
		t.Errorf("who was removed: got %d to %q", w.Code, w.Header().Get("Location"))
	}
	me := path + "/" + h.Admin.ID + "/remove"
	admin.WantRefused(admin.Post(me, url.Values{"confirm": {h.Admin.Email}}), http.StatusConflict).Want("last admin")
	second := h.SignIn(h.NewUser(h.Organization, "cyn@example.com", "Cyn", account.Admin))
	w := admin.Post(me, url.Values{"confirm": {h.Admin.Email}})
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/sign-in" {
		t.Errorf("got %d to %q", w.Code, w.Header().Get("Location"))
	}
	admin.Page("/sign-in").Want("You have left " + h.Organization.Name)
	second.Page(path).Want("Cyn")
}

func TestInvitations(t *testing.T) {
	const path = "/settings/invitations"
	h := newHarness(t)
	b := h.SignIn(h.Admin)
	b.Page("/settings/members").Want("No open invitations")
	for _, form := range []url.Values{{"email": {"x"}, "role": {"agent"}}, {"email": {"ben@example.com"}, "role": {"agent"}}, {"email": {"z@example.com"}, "role": {"owner"}}} {
		d := b.WantRefused(b.Post(path, form), 422)
		if d.Alert() == "" || webtest.Attr(d.Field("email"), "value") != form.Get("email") {
			t.Errorf("%v: got alert %q", form, d.Alert())
		}
	}
	d, notice := b.Follow(b.Post(path, url.Values{"email": {"zoe@example.com"}, "role": {"admin"}}))
	d.Want("zoe@example.com", "Expires")
	if !strings.HasPrefix(notice, "Invitation sent to zoe@example.com") || len(h.Mails) != 1 {
		t.Errorf("got notice %q and %d mails", notice, len(h.Mails))
	}
	form := func(d webtest.Document) string { return webtest.Attr(d.WithAttr("name", "do")[0].Parent, "action") }
	first := form(d)
	d, notice = b.Follow(b.Post(first, url.Values{"do": {"resend"}}))
	if !strings.HasPrefix(notice, "Invitation sent again") || len(h.Mails) != 2 || form(d) == first {
		t.Errorf("got notice %q and %d mails", notice, len(h.Mails))
	}
	b.WantRefused(b.Post(first, url.Values{"do": {"revoke"}}), http.StatusNotFound) // it was replaced
	second := form(d)
	d, _ = b.Follow(b.Post(second, url.Values{"do": {"revoke"}}))
	d.Want("No open invitations")

	// Rate limit.
	for range 3 {
		b.Post(path, url.Values{"email": {"zoe@example.com"}, "role": {"agent"}})
	}
	w := b.Post(path, url.Values{"email": {"zoe@example.com"}, "role": {"agent"}})
	if d := b.WantRefused(w, http.StatusTooManyRequests); !strings.Contains(d.Alert(), "Too many invitations to this address, try again in ") {
		t.Errorf("got alert %q", d.Alert())
	}
}

func TestOrganization(t *testing.T) {
	const path = "/settings/organization"
	h := newHarness(t)
	admin, agent := h.SignIn(h.Admin), h.SignIn(h.Agent)
	d := agent.Page(path)
	d.Want(h.Organization.Name, h.Organization.Slug, h.Organization.ID, "Free")
	if len(d.WithAttr("name", "name")) != 0 {
		t.Error("an agent may rename the organization")
	}
	agent.WantRefused(agent.Post(path, url.Values{"name": {"x"}}), http.StatusForbidden)
	admin.WantRefused(admin.Post(path, url.Values{"name": {""}}), 422).Want("Name must not be empty.")
	d, _ = admin.Follow(admin.Post(path, url.Values{"name": {`New "name" <script>`}}))
	d.Want(`Organization renamed to New "name" <script>.`)
	if o, err := h.Accounts.Organization(t.Context(), h.Organization.ID); err != nil || o.Name != `New "name" <script>` || o.Slug != h.Organization.Slug {
		t.Errorf("got %+v, %v", o, err)
	}
}

// TestTold checks that open pages show changes of the organization.
func TestTold(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Admin)
	news := h.Live.Subscribe(h.Organization.ID)
	defer news.Close()
	wait := h.NewUser(h.Organization, "cyn@example.com", "Cyn", account.Agent)
	for _, tt := range []struct {
		path string
		form url.Values
		want string
	}{
		{"/settings/invitations", url.Values{"email": {"zoe@example.com"}, "role": {"agent"}}, "member"},
		{"/settings/members/" + wait.ID, url.Values{"role": {"admin"}}, "member"},
		{"/settings/members/" + wait.ID, url.Values{"role": {"admin"}}, ""},
		{"/settings/members/" + wait.ID + "/remove", url.Values{"confirm": {"cyn@example.com"}}, "member"},
		{"/settings/organization", url.Values{"name": {"Lime"}}, "organization"},
		{"/settings/organization", url.Values{"name": {"Lime"}}, ""},
		{"/settings/organization", url.Values{"name": {""}}, ""},
		{"/settings/plan", url.Values{"plan": {"pro"}}, "organization"},
	} {
		b.Post(tt.path, tt.form)
		if got := strings.Join(news.Drain(), " "); got != tt.want {
			t.Errorf("%s %v: told %q, want %q", tt.path, tt.form, got, tt.want)
		}
	}
	for path, topic := range map[string]string{"/settings/members": "member", "/settings/plan": "organization", "/settings/organization": "organization"} {
		if len(b.Page(path).WithAttr("data-live", topic)) == 0 {
			t.Errorf("%s does not listen", path)
		}
	}
}

func TestPlan(t *testing.T) {
	const path = "/settings/plan"
	h := newHarness(t)
	agent := h.SignIn(h.Agent)
	agent.WantRefused(agent.Get(path), http.StatusForbidden)
	agent.WantRefused(agent.Post(path, url.Values{"plan": {"pro"}}), http.StatusForbidden)
	b := h.SignIn(h.Admin)
	d := b.Page(path)
	d.Want("60 requests per minute", "Change to Pro", "Change to Business", "no money is charged")
	for _, wrong := range []string{"", "free", "gold"} {
		b.WantRefused(b.Post(path, url.Values{"plan": {wrong}}), 422).Want("Plan must be pro or business.")
	}
	w := b.Post(path, url.Values{"plan": {"pro"}})
	to, ok := strings.CutPrefix(w.Header().Get("Location"), webtest.BaseURL+billing.DevCheckoutPath)
	if w.Code != http.StatusSeeOther || !ok {
		t.Fatalf("got %d to %q", w.Code, w.Header().Get("Location"))
	}
	b.Page(path).Want("Pro is not paid yet", "Pay for Pro")
	if w := b.Post(billing.DevCheckoutPath+to, nil); w.Code != http.StatusSeeOther {
		t.Fatalf("got %d", w.Code)
	}
	d = b.Page(path)
	d.Want("300 requests per minute", "active", "Paid until", "Change to Business")
	if strings.Contains(webtest.Text(d.Root), "not paid yet") {
		t.Error("it is paid")
	}
	// A subscriber cannot subscribe again.
	d = b.WantRefused(b.Post(path, url.Values{"plan": {"business"}}), 422)
	if !strings.Contains(d.Alert(), "has a subscription already") {
		t.Errorf("got alert %q", d.Alert())
	}
}
