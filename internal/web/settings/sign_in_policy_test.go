package settings_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// provider is an identity provider with one user.
type provider struct{ who account.ProviderIdentity }

func (p provider) AuthorizationURL(_ context.Context, s account.ProviderSecrets) (string, error) {
	return "https://id.example.com/?state=" + s.State, nil
}

func (p provider) Exchange(context.Context, string, string, account.ProviderSecrets) (account.ProviderIdentity, error) {
	return p.who, nil
}

func TestSignInPolicy(t *testing.T) {
	const path = "/settings/organization/sign-in"
	h := newHarness(t, func(c *account.Config) {
		c.Provider = provider{account.ProviderIdentity{Issuer: "https://id.example.com", Subject: "1", Email: "ada@example.com", EmailVerified: true}}
	})
	agent := h.SignIn(h.Agent)
	agent.WantRefused(agent.Get(path), http.StatusForbidden)
	agent.WantRefused(agent.Post(path, url.Values{"provider": {"all"}}), http.StatusForbidden)

	// Refused from a session that the policy would end.
	byPassword := h.SignIn(h.Admin)
	byPassword.Page("/settings/organization").Want("Members choose how to sign in")
	d := byPassword.WantRefused(byPassword.Post(path, url.Values{"provider": {"all"}}), http.StatusUnprocessableEntity)
	if !strings.Contains(d.Alert(), "Sign in with the identity provider yourself first") {
		t.Errorf("got alert %q", d.Alert())
	}

	to, intent, err := h.Accounts.SignInWithProvider(t.Context(), account.ProviderSignIn{}, "", account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	_, state, _ := strings.Cut(to, "state=")
	in, err := h.Accounts.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	admin := h.SignInWith(in.Tokens)
	for _, domains := range []string{"", "not a domain", "localhost"} {
		d := admin.WantRefused(admin.Post(path, url.Values{"provider": {"domains"}, "domains": {domains}}), http.StatusUnprocessableEntity)
		if webtest.Attr(d.Field("domains"), "value") != domains || !strings.Contains(d.Alert(), "must be mail domains") {
			t.Errorf("%q: got alert %q", domains, d.Alert())
		}
	}
	d, _ = admin.Follow(admin.Post(path, url.Values{"provider": {"domains"}, "domains": {"Example.com, example.org"}}))
	d.Want("Members of example.com, example.org sign in with the identity provider only")
	if got := webtest.Attr(admin.Page(path).Field("domains"), "value"); got != "example.com, example.org" {
		t.Errorf("got domains %q", got)
	}
	if w := agent.Get("/settings/organization"); w.Code != http.StatusSeeOther || !strings.HasPrefix(w.Header().Get("Location"), "/sign-in") {
		t.Errorf("a session by password: got %d", w.Code)
	}
	admin.Follow(admin.Post(path, url.Values{"provider": {"off"}}))
	agent.Page("/settings/organization").Want("Members choose how to sign in")

	// Without a provider there is no policy.
	h = newHarness(t)
	admin = h.SignIn(h.Admin)
	admin.WantRefused(admin.Get(path), http.StatusNotFound)
	admin.WantRefused(admin.Post(path, url.Values{"provider": {"all"}}), http.StatusUnprocessableEntity)
}
