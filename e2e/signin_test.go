package e2e

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"

	"github.com/chromedp/chromedp/kb"
)

// readMail opens the mailbox page and follows the link in a mail that was not read
// yet, to an address that begins with path.
func (v *visitor) readMail(p *program, to, path string) {
	v.t.Helper()
	m, link := p.mailed(to, path) // it is on its way
	v.open("/dev/mailbox")
	v.click(`th a[href="/dev/mailbox/` + m.ID + `"]`)
	v.at("/dev/mailbox/" + m.ID)
	v.click(`main ul a[href="` + link + `"]`)
	v.wait("the page behind the link", `!location.pathname.startsWith("/dev/mailbox")`)
}

// TestResetPassword: who forgot a password chooses another one by a mailed link, and
// is told what is wrong with it where it is.
func TestResetPassword(t *testing.T) {
	t.Parallel()
	p := start(t)
	_, robin := p.organization("Acme Wheels")
	v := p.as(t, robin)
	v.open("/settings/sessions")
	v.see("Where you are signed in")
	if err := p.Accounts.SendPasswordReset(t.Context(), account.PasswordReset{Email: robin.Email}, account.Client{}); err != nil {
		t.Fatal(err)
	}
	v.readMail(p, robin.Email, "/reset-password")
	v.at("/reset-password")
	v.fill("#field-password", "a new secret")
	v.keys(kb.Tab + "a nwe secret" + kb.Enter)
	v.see("The two passwords are not the same")
	v.wait("the focus at the field", `document.activeElement.id === "field-repeat"`)
	if got := v.value("#field-password"); got != "" {
		t.Errorf("the page has the password %q", got)
	}
	v.checkLayout()
	v.checkAccess()
	v.fill("#field-password", "short")
	v.wait("a low estimate", `document.querySelector("meter").value === 0`)
	v.see("Too short")
	v.fill("#field-password", "a new secret")
	v.wait("a better estimate", `document.querySelector("meter").value === 2`)
	v.see("Fair")
	v.fill("#field-repeat", "a new secret")
	v.click("#show-field-password")
	v.wait("both passwords to be seen", `["password", "repeat"].every((name) => document.getElementById("field-" + name).type === "text")`)
	v.checkLayout()
	v.checkAccess()
	v.press("Save the new password")
	v.at("/reset-password/done")
	v.open("/")
	v.see("Sign up")
	v.look(narrow)
	v.checkLayout()
}

// TestJoin: who is invited joins, on a phone and without scripts, and the other tab
// knows it too.
func TestJoin(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.invite(robin, "new@client.example")
	v := p.visit(t)
	v.look(narrow)
	v.withoutScripts()
	other := v.tab()
	v.readMail(p, "new@client.example", "/invitation")
	v.see("Robin Berg invites you")
	v.fill("#field-name", "Kim <b>Ortiz</b>")
	v.press("Join Acme Wheels")
	v.at("/inbox*")
	other.open("/settings/sessions")
	other.see("Acme Wheels")
	members, err := p.Accounts.Members(t.Context(), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(members) != 2 || members[1].Name != "Kim <b>Ortiz</b>" && members[0].Name != "Kim <b>Ortiz</b>" {
		t.Errorf("got members %+v", members)
	}
}
