package e2e

import (
	"regexp"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/connection"
)

// TestOwnership proves an address by a mailed code, after a wrong one. The page is
// accessible in every state.
func TestOwnership(t *testing.T) {
	t.Parallel()
	needChromium(t)
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	c, _, err := p.Connections.Connect(t.Context(), connection.New{OrganizationID: o.ID, Channel: "email-raw", Address: "help@acme-wheels.example", Name: "New mailbox"})
	if err != nil {
		t.Fatal(err)
	}
	v := p.as(t, robin)
	check := func() {
		for _, s := range []screen{{width: wide.width, height: 4000}, {width: narrow.width, height: 4000, dark: true}} {
			v.setScreen(s)
			v.checkLayout()
			v.checkAccess()
		}
		v.setScreen(wide)
	}
	v.open("/settings/channels")
	v.waitText("Pending: proof required")
	v.click(`a[href="/settings/channels/` + c.ID + `"]`)
	v.waitText("Ownership", "By mail", "By DNS", "_kickstand-challenge.acme-wheels.example")
	v.press("Test channel")
	v.waitText("Receiving", "Credentials")
	check()
	v.press("Send challenge")
	v.waitText("5 attempts left")
	v.allow("422")
	v.fill("#proof input[name=code]", "0000 0000")
	v.press("Confirm")
	v.waitText("The code is wrong; you have 4 attempts left.")
	check()
	var code string
	p.until("the challenge", func() bool {
		for _, m := range p.mailbox() {
			if len(m.To) == 1 && m.To[0] == c.Address {
				code = regexp.MustCompile(`\d{4} \d{4}`).FindString(m.Text)
			}
		}
		return code != ""
	})
	v.fill("#proof input[name=code]", code)
	v.press("Confirm")
	v.waitText("help@acme-wheels.example is proven to be yours.", "Proven by a message to the address.")
	check()
}
