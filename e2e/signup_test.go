package e2e

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
)

// signUp signs a new user up, from the start page by the mailed link to the inbox.
func (v *visitor) signUp(p *program, email, name, organization string) account.User {
	v.t.Helper()
	v.open("/")
	v.press("Sign up")
	v.at("/sign-up")
	v.fill("#field-email", email)
	v.press("Send link")
	v.at("/sign-in/sent")
	v.press("Open the mailbox")
	v.at("/dev/mailbox")
	v.readMail(p, email, account.CallbackPath)
	v.at("/welcome")
	v.fill("#field-name", name)
	v.fill("#field-organizationName", organization)
	v.do(clickIn(`document.querySelector("input[name=planTier][value=free]")`))
	v.press("Create organization")
	v.at("/inbox*")
	o, err := p.Accounts.OrganizationBySlug(p.t.Context(), "acme-wheels")
	if err != nil {
		v.fatal(err)
	}
	members, err := p.Accounts.Members(p.t.Context(), o.ID)
	if err != nil || len(members) != 1 {
		v.fatal("got members", members, err)
	}
	return members[0]
}

// TestSignUp signs up by mail, signs out and signs in again, with scripts and without.
func TestSignUp(t *testing.T) {
	t.Parallel()
	withAndWithoutScripts(t, func(t *testing.T, p *program, v *visitor, scripts bool) {
		u := v.signUp(p, "ana@acme.example", "Ana Lind", "Acme Wheels")
		v.click(`form[action="/sign-out"] button`)
		v.at("/sign-in")
		v.waitText("You are signed out.")
		if status := v.open("/settings/sessions?a=1&b=2"); status != 200 {
			v.fatal("got status", status)
		}
		v.at("/sign-in")
		v.fill("#field-email", u.Email)
		v.press("Send sign-in link")
		v.at("/sign-in/sent")
		v.readMail(p, u.Email, account.CallbackPath)
		v.at("/settings/sessions?a=1&b=2")
	})
}
