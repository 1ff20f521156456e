package outbound_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
)

func TestText(t *testing.T) {
	p := newProvider(t)
	r := newRig(t, func(r *rig) { r.apiURL = p.URL })
	c := r.connect("sms", ourNumber)
	ticket := r.texts(c, "SMin", anasPhone, "Where is my car?").TicketID
	m := r.reply(ticket, "Behind the house.")
	if want := (desk.Delivery{State: channel.ReceiptQueued}); m.Delivery != want {
		t.Errorf("delivery of the reply is %+v, want %+v", m.Delivery, want)
	}
	r.run()
	r.until(m, channel.ReceiptSent, "")

	callback := "https://help.example/api/webhooks/sms?message=" + m.ID
	got := p.taken()
	want := text{SID: "SM00000000000000000000000000000001", Body: "Behind the house.", To: anasPhone, From: ourNumber, Callback: callback}
	if len(got) != 1 {
		t.Fatalf("the provider took %d texts, want 1", len(got))
	}
	want.at = got[0].at
	if got[0] != want {
		t.Errorf("the provider took %+v, want %+v", got[0], want)
	}
	if got := r.message(m); got.ExternalID != want.SID {
		t.Errorf("external id is %q, want %q", got.ExternalID, want.SID)
	}
	r.receipt(c, "https://help.example/api/webhooks/sms", want.SID, "delivered", "")
	r.until(m, channel.ReceiptDelivered, "")
}

func TestMail(t *testing.T) {
	server := mailtest.NewServer(t, mailtest.ServerConfig{})
	r := newRig(t, func(r *rig) {
		var err error
		if r.mail, err = mail.OpenSMTP(server.URL); err != nil {
			t.Fatal(err)
		}
	})
	c := r.connect("email-raw", ourMail)
	res := r.mails(c, "From: Ana <ana@c.example>\nTo: support@a.example\nSubject: RE: Lost key\nMessage-ID: <a1@c.example>\nReferences: <a0@c.example>\n\nHelp!\n")
	m := r.reply(res.TicketID, "Here it is.")
	r.run()
	r.until(m, channel.ReceiptSent, "")

	deliveries := server.Deliveries()
	if len(deliveries) != 1 {
		t.Fatalf("the server took %d mails, want 1", len(deliveries))
	}
	raw := string(deliveries[0].Raw)
	id := regexp.MustCompile(`(?m)^Message-ID:\s+<(t\.` + res.TicketID + `\.` + m.ID + `\.[0-9a-f]{10}@a\.example)>\r$`).FindStringSubmatch(raw)
	if id == nil {
		t.Fatalf("no Message-ID of ours in\n%s", raw)
	}
	// The customer's program replies; a relay has changed our Message-ID.
	again := r.mails(c, "From: Ana <ana@c.example>\nTo: support@a.example\nSubject: Thanks\nMessage-ID: <a2@c.example>\nIn-Reply-To: <other@relay.example>\nReferences: <a1@c.example> <"+
		id[1]+">\n\nThanks!\n")
	if again.TicketID != res.TicketID || again.PlacedBy != desk.RuleReference {
		t.Errorf("the answer is in ticket %s by %s, want %s by %s", again.TicketID, again.PlacedBy, res.TicketID, desk.RuleReference)
	}
	// Our own mail returns through a mailing list or as a copy.
	back := r.mails(c, strings.ReplaceAll(raw, "\r\n", "\n"))
	if back.Outcome != desk.Duplicate || back.MessageID != m.ID {
		t.Errorf("a copy of our mail is %s of %s, want %s of %s", back.Outcome, back.MessageID, desk.Duplicate, m.ID)
	}
}
