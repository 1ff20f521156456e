package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestBranding: an admin sets a color that can be read, and invitations to the organization, and to no other, have it.
func TestBranding(t *testing.T) {
	const path = "/settings/organization/branding"
	h := newHarness(t)
	agent, admin := h.SignIn(h.Agent), h.SignIn(h.Admin)
	agent.WantRefused(agent.Get(path), http.StatusForbidden)
	agent.WantRefused(agent.Post(path, url.Values{"accent": {"#5b21b6"}}), http.StatusForbidden)
	d := admin.WantRefused(admin.Post(path, url.Values{"accent": {"#ffcc00"}}), http.StatusUnprocessableEntity)
	if !strings.Contains(d.Alert(), "The nearest color with enough is #") || webtest.Attr(d.Field("accent"), "value") != "#ffcc00" {
		t.Errorf("got alert %q", d.Alert())
	}
	if _, notice := admin.Follow(admin.Post(path, url.Values{"accent": {"#5B21B6"}})); notice != "Color saved. Undo" {
		t.Errorf("got notice %q", notice)
	}
	admin.Page("/settings/organization").Want("#5b21b6")

	by := account.Identity{UserID: h.Admin.ID, OrganizationID: h.Organization.ID, Role: account.Admin, User: h.Admin}
	if _, err := h.Accounts.Invite(t.Context(), by, account.NewInvitation{Email: "new@example.com", Role: account.Agent}); err != nil {
		t.Fatal(err)
	}
	letter := h.Mails[len(h.Mails)-1]
	if !strings.Contains(letter.HTML, "background:#5b21b6;") {
		t.Errorf("the invitation has another color: %s", letter.HTML)
	}
	_, token, _ := strings.Cut(letter.Text, "/invitation?token=")
	token, _, _ = strings.Cut(token, "\n")
	w := admin.Get("/invitation?token=" + token)
	if !strings.Contains(w.Body.String(), `<link rel="stylesheet" href="/brand/5b21b6.css">`) {
		t.Errorf("the page of the invitation lacks the style sheet: %s", w.Body)
	}
	w = admin.Get("/brand/5b21b6.css")
	if !strings.HasPrefix(w.Body.String(), ":root{--accent:light-dark(#5b21b6,#") || w.Header().Get("Content-Type") != "text/css; charset=utf-8" ||
		!strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got %v %s", w.Header(), w.Body)
	}
	for _, wrong := range []string{"ffcc00.css", "5B21B6.css", "5b21b6", "55b.css", "%7D.css", ".css"} { // not readable, or another address of the same
		if w := admin.Get("/brand/" + wrong); w.Code != http.StatusNotFound {
			t.Errorf("/brand/%s: got %d", wrong, w.Code)
		}
	}
}
