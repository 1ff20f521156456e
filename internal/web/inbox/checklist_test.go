package inbox_test

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/web/inbox"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestChecklist follows an admin from the empty inbox to the first reply. The steps are in the
// fragment of the list, which is replaced when a ticket arrives.
func TestChecklist(t *testing.T) {
	var connections *connection.Service
	h := newHarness(t, func(c *inbox.Config) {
		connections = connection.Open(c.DB, seal.New(seal.NewKey()), []channel.Adapter{sms.New(sms.Config{})})
		c.Connections = connections
	})
	b := h.SignIn(h.Admin)
	expect := func(when, want string) {
		t.Helper()
		var list []string
		for _, s := range b.Page("/inbox").WithAttr("aria-label", "First steps") {
			list = append(list, strings.Join(strings.Fields(webtest.Text(s)), " "))
		}
		if got := strings.Join(list, " | "); got != want {
			t.Errorf("%s: %q\nwant %q", when, got, want)
		}
	}
	expect("at first", "First steps Next Connect a channel: Channels Open Waiting for your first message Done Invite a colleague Open Reply to a customer")
	if _, _, err := connections.Connect(t.Context(), connection.New{OrganizationID: h.Organization.ID, Channel: "sms", Address: "+14155550100"}); err != nil {
		t.Fatal(err)
	}
	expect("connected", "First steps Done Connect a channel Next Waiting for your first message: Test channel Done Invite a colleague Open Reply to a customer")
	if d := h.SignIn(h.Agent).Page("/inbox"); len(d.WithAttr("aria-label", "First steps")) != 0 {
		t.Error("an agent sees steps of admins")
	}
	first := h.text("+4915112345678", "m1", "Hello")
	expect("with a message", "First steps Done Connect a channel Done First message received Done Invite a colleague Next Reply to a customer")
	err := h.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE tickets SET first_responded_at = created_at WHERE id = $1", first.TicketID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	expect("with a reply", "")
	err = h.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE users SET organization_id = NULL WHERE id = $1", h.Agent.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	expect("with a reply, alone", "First steps Done Connect a channel Done First message received Next Invite a colleague: Members Done Reply to a customer")
}
