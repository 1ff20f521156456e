package desk_test

import (
	"context"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	mails "github.com/kickstand-dev/kickstand/internal/mail"
)

// mailRecorder records the mails to assignees.
type mailRecorder struct{ sent []mails.Message }

// EnqueueMailTx implements [desk.Mailer].
func (r *mailRecorder) EnqueueMailTx(_ context.Context, _ *db.Tx, m mails.Message) error {
	r.sent = append(r.sent, m)
	return nil
}

// TestAssigneeIsNotified: an assignee gets one mail for a failed reply, whether the
// provider reports the failure later or refuses the reply at once.
func TestAssigneeIsNotified(t *testing.T) {
	mailer := new(mailRecorder)
	f := newFixture(t, func(c *desk.Config) { c.Mailer, c.Dispatcher = mailer, new(messageRecorder) })
	in := text("+4915112345678", "hi")
	in.Event.Message.Outbound, in.Event.Message.To = true, []channel.Party{{Phone: "+4915112345678"}}
	r := f.intake(in)
	report := func(state channel.ReceiptState) {
		t.Helper()
		in := in
		in.Event = channel.Event{Receipt: &channel.Receipt{
			ExternalIDs: []string{"SMhi"}, State: state, Recipient: "+4915112345678", Error: "the number cannot be reached", Note: "code 30003\r\nand more",
		}}
		f.intake(in)
	}
	if _, err := f.update(orgA, r.TicketID, desk.Update{AssigneeID: new(graceID)}); err != nil {
		t.Fatal(err)
	}
	report(channel.ReceiptDelayed)
	if len(mailer.sent) != 0 {
		t.Errorf("%d mails of a delay, want none", len(mailer.sent))
	}
	report(channel.ReceiptFailed)
	report(channel.ReceiptFailed)
	if len(mailer.sent) != 1 {
		t.Fatalf("%d mails of one failure, want 1", len(mailer.sent))
	}
	m := mailer.sent[0]
	if len(m.To) != 1 || m.To[0] != (mails.Address{Name: "Grace", Address: "grace@a.example"}) || m.Subject != "A message in ticket #1 could not be delivered" {
		t.Errorf("the mail is to %v about %q, want it to Grace about ticket #1", m.To, m.Subject)
	}
	for _, want := range []string{"the number cannot be reached", "+4915112345678", "https://desk.example/tickets/1"} {
		if !strings.Contains(m.Text, want) {
			t.Errorf("the mail has no %q:\n%s", want, m.Text)
		}
	}

	w := f.waiting(f.reply(r.TicketID, "hello?").ID)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		return f.desk.RecordFailureTx(t.Context(), tx, &w, channel.SendResult{Verdict: channel.VerdictRefused, Reason: "they have opted out"})
	}); err != nil {
		t.Fatal(err)
	}
	if len(mailer.sent) != 2 || !strings.Contains(mailer.sent[1].Text, "they have opted out") {
		t.Errorf("%d mails, want one of the refusal", len(mailer.sent)-1)
	}

	// An unassigned ticket.
	if _, err := f.update(orgA, r.TicketID, desk.Update{AssigneeID: new("")}); err != nil {
		t.Fatal(err)
	}
	w = f.waiting(f.reply(r.TicketID, "anybody?").ID)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		return f.desk.RecordFailureTx(t.Context(), tx, &w, channel.SendResult{Verdict: channel.VerdictRefused, Reason: "no"})
	}); err != nil {
		t.Fatal(err)
	}
	if len(mailer.sent) != 2 {
		t.Errorf("%d mails about a ticket that is nobody's, want none", len(mailer.sent)-2)
	}
}
