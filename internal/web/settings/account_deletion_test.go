package settings_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// create creates a key and a webhook as a user, and returns the key's token and the
// webhook's id.
func (h *harness) create(t *testing.T, u account.User, name string) (token, hook string) {
	t.Helper()
	ctx := audit.WithSource(t.Context(), audit.Source{Actor: audit.Actor{Type: audit.User, ID: u.ID, Email: u.Email}})
	_, key, err := h.keys.Create(ctx, apikey.New{
		OrganizationID: u.OrganizationID, Service: apikey.Helpdesk, Environment: apikey.Live, Name: name, Permissions: apikey.Permissions{Level: apikey.ReadOnly},
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := h.hooks.Create(ctx, u.OrganizationID, webhook.New{URL: "https://93.184.215.14/" + name + "-secret", Events: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	return key.Reveal(), w.ID
}

// opens reports whether a key authenticates and a webhook is enabled.
func (h *harness) opens(t *testing.T, token, hook, organizationID string) (key, enabled bool) {
	t.Helper()
	_, err := h.keys.Authenticate(t.Context(), apikey.Request{Token: token, Service: apikey.Helpdesk, Environment: apikey.Live})
	w, found := h.hooks.Find(t.Context(), organizationID, hook)
	if found != nil {
		t.Fatal(found)
	}
	return err == nil, w.State == webhook.Enabled
}

// TestAttackKeyOfALeaver: a removed member tries to use an API key and a webhook created
// before. The removal lists both and ends them in the same transaction.
func TestAttackKeyOfALeaver(t *testing.T) {
	h := newHarness(t)
	admin := h.SignIn(h.Admin)
	eve := h.NewUser(h.Organization, "eve@example.com", "Eve", account.Admin)
	token, hook := h.create(t, eve, "export")
	ours, hookOfOurs := h.create(t, h.Admin, "ours")
	path := "/settings/members/" + eve.ID + "/remove"
	d := admin.Page(path)
	d.Want("API key export …"+token[len(token)-8:], "Webhook to 93.184.215.14", "Revoke these keys and disable these webhooks")
	if text := webtest.Text(d.Root); strings.Contains(text, "ours") || strings.Contains(text, "-secret") {
		t.Errorf("got page %s", text)
	}
	if got := d.Field("revoke"); got == nil {
		t.Fatal("nothing to choose")
	}
	// Refused without the typed address; then all at once.
	admin.WantRefused(admin.Post(path, url.Values{"revoke": {"on"}}), http.StatusUnprocessableEntity)
	if key, enabled := h.opens(t, token, hook, h.Organization.ID); !key || !enabled {
		t.Error("revoked without confirmation")
	}
	admin.Follow(admin.Post(path, url.Values{"confirm": {"eve@example.com"}, "revoke": {"on"}}))
	if key, enabled := h.opens(t, token, hook, h.Organization.ID); key || enabled {
		t.Errorf("after the removal: the key works %t, the webhook is enabled %t", key, enabled)
	}
	if key, enabled := h.opens(t, ours, hookOfOurs, h.Organization.ID); !key || !enabled {
		t.Errorf("of somebody else: the key works %t, the webhook is enabled %t", key, enabled)
	}

	// Keeping them is an explicit choice.
	cyn := h.NewUser(h.Organization, "cyn@example.com", "Cyn", account.Admin)
	kept, keptHook := h.create(t, cyn, "kept")
	admin.Follow(admin.Post("/settings/members/"+cyn.ID+"/remove", url.Values{"confirm": {"cyn@example.com"}}))
	if key, enabled := h.opens(t, kept, keptHook, h.Organization.ID); !key || !enabled {
		t.Errorf("kept: the key works %t, the webhook is enabled %t", key, enabled)
	}
}

func TestDeleteAccountPage(t *testing.T) {
	const path = "/settings/profile/delete"
	h := newHarness(t)
	only := h.SignIn(h.Admin)
	only.WantRefused(only.Post(path, url.Values{"confirm": {h.Admin.Email}}), http.StatusConflict).Want("last admin")
	ben, elsewhere := h.SignIn(h.Agent), h.SignIn(h.Agent)
	token, hook := h.create(t, h.Agent, "export")
	ben.Page(path).Want("Type ben@example.com to confirm", "API key export")
	ben.WantRefused(ben.Post(path, url.Values{"confirm": {"ben"}}), http.StatusUnprocessableEntity)
	w := ben.Post(path, url.Values{"confirm": {"ben@example.com"}, "revoke": {"on"}})
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/sign-in" {
		t.Fatalf("got %d to %q", w.Code, w.Header().Get("Location"))
	}
	ben.Page("/sign-in").Want("Account deleted.")
	if w := elsewhere.Get("/settings/profile"); w.Code != http.StatusSeeOther {
		t.Errorf("another session: got %d", w.Code)
	}
	if key, enabled := h.opens(t, token, hook, h.Organization.ID); key || enabled {
		t.Errorf("the key works %t, the webhook is enabled %t", key, enabled)
	}
	keys, err := h.keys.List(context.Background(), h.Organization.ID, "", "")
	if err != nil || len(keys) != 1 || keys[0].CreatedBy.Email != "" || keys[0].CreatedBy.ID != h.Agent.ID {
		t.Errorf("got keys %+v, error %v, want no address in them", keys, err)
	}
}
