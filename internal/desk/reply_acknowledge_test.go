package desk_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// dispatcher admits every message, or refuses all.
type dispatcher struct{ refuses bool }

func (p dispatcher) PrepareSend(_ context.Context, _ db.Querier, _, connectionID, _ string, m *channel.Outgoing) (string, error) {
	if p.refuses {
		return "", problem.New(problem.Precondition, "nothing leaves today")
	}
	m.MessageID = m.ID + "@a.example"
	return connectionID, nil
}

// acknowledge processes a mail and answers it, like the worker for inbound events.
func (f *fixture) acknowledge(in desk.InboundEvent) (desk.Result, bool) {
	f.Helper()
	var r desk.Result
	var did bool
	err := f.db.Write(f.Context(), func(tx *db.Tx) (err error) {
		if r, err = f.desk.IngestTx(f.Context(), tx, in); err != nil {
			return err
		}
		did, err = f.desk.AcknowledgeTx(f.Context(), tx, in.OrganizationID, r, "We have it.")
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	return r, did
}

// TestAcknowledge is the table of channels.md 11 "Loop prevention".
func TestAcknowledge(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(m *channel.Message)
		want bool
	}{
		{"a person", func(*channel.Message) {}, true},
		{"who wants answers elsewhere", func(m *channel.Message) { m.From.Email = "ana@home.example" }, true},
		{"what is made by a system", func(m *channel.Message) {
			m.Mail.Class, m.Mail.Rule, m.Mail.Generated = channel.ClassAutoReply, "auto-submitted: auto-generated", true
		}, false},
		{"list, bulk or suppressing mail", func(m *channel.Message) { m.Mail.NoAutoAnswer = true }, false},
		{"a null sender", func(m *channel.Message) { m.Mail.HasEnvelope = true }, false},
		{"noreply", func(m *channel.Message) {
			m.Mail.Sender.Email, m.From.Email = "No-Reply@c.example", "No-Reply@c.example"
		}, false},
		{"noreply with more to it", func(m *channel.Message) {
			m.Mail.Sender.Email, m.From.Email = "noreply-orders@c.example", "noreply-orders@c.example"
		}, false},
		{"answers to noreply", func(m *channel.Message) { m.From.Email = "do_not_reply@c.example" }, false},
		{"mailer-daemon", func(m *channel.Message) {
			m.Mail.Sender.Email, m.From.Email = "MAILER-DAEMON@c.example", "MAILER-DAEMON@c.example"
		}, false},
		{"postmaster", func(m *channel.Message) {
			m.Mail.Sender.Email, m.From.Email = "postmaster@c.example", "postmaster@c.example"
		}, false},
		{"our own address", func(m *channel.Message) { m.Mail.Sender.Email, m.From.Email = "sales@a.example", "sales@a.example" }, false},
		{"our own header", func(m *channel.Message) { m.Mail.CopyHeader = "forged" }, false},
		{"a forged sender", func(m *channel.Message) { m.Mail.Proof.Verdict = mailauth.Failed }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, func(c *desk.Config) { c.Dispatcher = dispatcher{} })
			in := mail("ana@c.example", "a1@c.example")
			tt.edit(in.Event.Message)
			r, did := f.acknowledge(in)
			if did != tt.want {
				t.Fatalf("acknowledged: %t, want %t", did, tt.want)
			}
			if !did {
				return
			}
			list, err := f.desk.Messages(t.Context(), f.db, orgA, r.TicketID)
			if err != nil {
				t.Fatal(err)
			}
			m := list[len(list)-1]
			to := in.Event.Message.Mail.Sender.Email // an unproven Reply-To is ignored
			if len(list) != 2 || m.Author.Type != desk.AuthorSystem || !m.Details.Automatic || len(m.Details.To) != 1 || m.Details.To[0].Email != to ||
				m.Delivery.State != channel.ReceiptQueued || m.Details.InReplyTo != "a1@c.example" || m.Details.Subject != "Re: Lost key" {
				t.Errorf("the last of %d messages is %+v", len(list), m)
			}
			ticket, err := f.desk.Ticket(t.Context(), f.db, orgA, r.TicketID)
			if err != nil {
				t.Fatal(err)
			}
			if !ticket.FirstRespondedAt.IsZero() {
				t.Error("an acknowledgement counts as a response")
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, e := range f.log {
				if e.Name == event.MessageAgentReply || e.Name == event.MessageCustomerReply {
					t.Errorf("%s was emitted", e.Name)
				}
			}
		})
	}
}

// TestAcknowledgeOnce: only the first mail of a ticket is answered, and one without
// a valid address is not.
func TestAcknowledgeOnce(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = dispatcher{} })
	if _, did := f.acknowledge(mail("ana@c.example", "a1@c.example")); !did {
		t.Error("the first mail was not acknowledged")
	}
	second := mail("ana@c.example", "a2@c.example")
	second.Event.Message.Mail.InReplyTo = []string{"a1@c.example"}
	if r, did := f.acknowledge(second); did || r.Outcome != desk.Appended {
		t.Errorf("the second mail is %s, acknowledged: %t", r.Outcome, did)
	}
	f = newFixture(t, func(c *desk.Config) { c.Dispatcher = dispatcher{refuses: true} })
	if r, did := f.acknowledge(mail("ana@c.example", "a1@c.example")); did || r.Outcome != desk.TicketCreated {
		t.Errorf("where nothing leaves, the mail is %s, acknowledged: %t", r.Outcome, did)
	}
}

// TestAcknowledgeLimit: one address starts many tickets, slowly.
func TestAcknowledgeLimit(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = dispatcher{} })
	start := time.Now().Add(-48 * time.Hour)
	n := 0
	for i := range 8 {
		// Other helpdesks use one address per ticket.
		in := mail(fmt.Sprintf("Ana+%d@c.example", i%3), fmt.Sprintf("a%d@c.example", i))
		in.ReceivedAt = start.Add(time.Duration(i) * time.Hour)
		if _, did := f.acknowledge(in); did {
			n++
		}
	}
	if n != 5 {
		t.Errorf("%d acknowledgements, want 5", n)
	}
	if _, did := f.acknowledge(mail("bob@c.example", "b1@c.example")); !did {
		t.Error("somebody else was not acknowledged")
	}
	// A day later.
	err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE acknowledgements SET sent_at = sent_at - $1", (24 * time.Hour).Microseconds())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, did := f.acknowledge(mail("ana@c.example", "a9@c.example")); !did {
		t.Error("a day later there is no acknowledgement")
	}
}

// TestFlood: one address sends more than ten mails in ten minutes.
func TestFlood(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = dispatcher{} })
	start := time.Now().Add(-3 * time.Hour)
	var flooded []int
	for i := range 14 {
		in := mail(fmt.Sprintf("ana+%d@c.example", i%3), fmt.Sprintf("a%d@c.example", i))
		in.ReceivedAt = start.Add(time.Duration(i) * 50 * time.Second)
		if i == 13 {
			in.ReceivedAt = in.ReceivedAt.Add(20 * time.Minute)
		}
		r, _ := f.acknowledge(in)
		list, err := f.desk.Messages(t.Context(), f.db, orgA, r.TicketID)
		if err != nil {
			t.Fatal(err)
		}
		if m := list[0]; m.Details.Flood {
			flooded = append(flooded, i)
			if !m.Details.NoAutoAnswer {
				t.Errorf("mail %d is one of a flood and may be answered automatically", i)
			}
		}
	}
	if got, want := fmt.Sprint(flooded), "[10 11 12]"; got != want {
		t.Errorf("mails %s are of a flood, want %s", got, want)
	}
}

// TestForgetCounts: deleting a customer deletes the counts of their mails.
func TestForgetCounts(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = dispatcher{} })
	r, _ := f.acknowledge(mail("ana+1@c.example", "a1@c.example"))
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.DeleteCustomerTx(t.Context(), tx, orgA, r.CustomerID) }); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := f.db.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM mail_senders) + (SELECT count(*) FROM acknowledgements)").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n != 0 {
		t.Errorf("%d rows are left, want none", n)
	}
}
