package settings

import (
	"net/http"
	"net/url"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

const deleteAccountPath = "/settings/profile/delete"

// revokeField is the checkbox that revokes the credentials of a leaving user.
const revokeField = "revoke"

// withCredentials adds the user's API keys and webhooks to the confirmation of the user's
// exit.
func (p *pages) withCredentials(r *web.Request, c web.Confirm, userID string) (web.Confirm, error) {
	if r.OrganizationID == "" {
		return c, nil
	}
	keys, err := p.Keys.CreatedBy(r.Context(), p.DB, r.OrganizationID, userID)
	if err != nil {
		return c, err
	}
	hooks, err := p.Webhooks.CreatedBy(r.Context(), r.OrganizationID, userID)
	if err != nil {
		return c, err
	}
	for _, k := range keys {
		c.List = append(c.List, "API key "+k.Name+" …"+k.PartialKey)
	}
	for _, w := range hooks {
		if w.State != webhook.Enabled {
			continue
		}
		host := w.URL // the rest may contain a secret
		if u, err := url.Parse(w.URL); err == nil {
			host = u.Host
		}
		c.List = append(c.List, "Webhook to "+host)
	}
	if len(c.List) > 0 {
		c.ListTitle = "API keys and webhooks created by this member"
		if userID == r.UserID {
			c.ListTitle = "API keys and webhooks you created"
		}
		c.Choice = &web.Field{Name: revokeField, Label: "Revoke these keys and disable these webhooks", Type: "checkbox", Value: "on",
			Help: "Integrations that use them stop working. If you don’t revoke them, anyone with a key can still use it."}
	}
	return c, nil
}

func (p *pages) accountDeletion(r *web.Request) (web.Confirm, error) {
	return p.withCredentials(r, web.Confirm{
		Text: "This permanently deletes your account and its credentials, and signs you out everywhere. Your open tickets become unassigned. " +
			"Your messages keep your name. The audit log keeps its entries.",
		Type: r.User.Email, Label: "Delete account", Cancel: "/settings/profile",
	}, r.UserID)
}

func (p *pages) confirmDeleteAccount(w http.ResponseWriter, r *web.Request) error {
	c, err := p.accountDeletion(r)
	if err != nil {
		return err
	}
	return p.Confirm(w, r, "Delete account", page(r, "/settings/profile", "", nil), c)
}

func (p *pages) deleteAccount(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	c, err := p.accountDeletion(r)
	if err != nil {
		return err
	}
	if !p.Confirmed(form, c) {
		return p.Confirm(w, r, "Delete account", page(r, "/settings/profile", "", nil), c)
	}
	err = p.Accounts.DeleteAccount(r.Context(), r.Identity, account.Deletion{Email: r.User.Email, RevokeCredentials: form.Get(revokeField) != ""})
	if err != nil {
		return err
	}
	p.SignOut(w)
	return p.Redirect(w, web.SignInPath, web.Notice{Text: "Account deleted."})
}
