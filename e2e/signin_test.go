package e2e

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"

	"github.com/chromedp/chromedp/kb"
)

// readMail opens the built-in mailbox and follows an unread link that starts with path.
func (v *visitor) readMail(p *program, to, path string) {
	v.t.Helper()
	m, link := p.mailed(to, path) // wait for the mail
	v.open("/dev/mailbox")
	v.click(`th a[href="/dev/mailbox/` + m.ID + `"]`)
	v.at("/dev/mailbox/" + m.ID)
	v.click(`main ul a[href="` + link + `"]`)
	v.wait("the page behind the link", `!location.pathname.startsWith("/dev/mailbox")`)
}

// TestResetPassword sets a new password by a mailed link, with errors beside their
// fields.
func TestResetPassword(t *testing.T) {
	t.Parallel()
	p := start(t)
	_, robin := p.organization("Acme Wheels")
	v := p.as(t, robin)
	v.open("/settings/sessions")
	v.waitText("Sessions")
	if err := p.Accounts.SendPasswordReset(t.Context(), account.PasswordReset{Email: robin.Email}, account.Client{}); err != nil {
		t.Fatal(err)
	}
	v.readMail(p, robin.Email, "/reset-password")
	v.at("/reset-password")
	v.fill("#field-password", "a new secret")
	v.keys(kb.Tab + "a nwe secret" + kb.Enter)
	v.waitText("The passwords don’t match")
	v.wait("the focus at the field", `document.activeElement.id === "field-repeat"`)
	if got := v.value("#field-password"); got != "" {
		t.Errorf("the page has the password %q", got)
	}
	v.checkLayout()
	v.checkAccess()
	v.fill("#field-password", "short")
	v.wait("a low estimate", `document.querySelector("meter").value === 0`)
	v.waitText("Too short")
	v.fill("#field-password", "a new secret")
	v.wait("a better estimate", `document.querySelector("meter").value === 2`)
	v.waitText("Fair")
	v.fill("#field-repeat", "a new secret")
	v.click("#show-field-password")
	v.wait("both passwords to be seen", `["password", "repeat"].every((name) => document.getElementById("field-" + name).type === "text")`)
	v.checkLayout()
	v.checkAccess()
	v.press("Save password")
	v.at("/reset-password/done")
	v.open("/")
	v.waitText("Sign up")
	v.setScreen(narrow)
	v.checkLayout()
}

// TestJoin accepts an invitation on a phone without scripts; the admin's open page shows
// the member.
func TestJoin(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.invite(robin, "new@client.example")
	v := p.visit(t)
	v.setScreen(narrow)
	v.withoutScripts()
	other := v.tab()
	v.readMail(p, "new@client.example", "/invitation")
	v.waitText("Robin Berg invites you")
	v.fill("#field-name", "Kim <b>Ortiz</b>")
	v.press("Join Acme Wheels")
	v.at("/inbox*")
	other.open("/settings/sessions")
	other.waitText("Acme Wheels")
	members, err := p.Accounts.Members(t.Context(), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(members) != 2 || members[1].Name != "Kim <b>Ortiz</b>" && members[0].Name != "Kim <b>Ortiz</b>" {
		t.Errorf("got members %+v", members)
	}
}
