package desk_test

import (
	"fmt"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// house is an instance that sends acknowledgements.
type house struct {
	*fixture
	org, connection, address string
}

// hears processes a mail and returns the automatic reply, or nil.
func (h *house) hears(m *channel.Message) *channel.Outgoing {
	h.Helper()
	var answer *channel.Outgoing
	if err := h.db.Write(h.Context(), func(tx *db.Tx) error {
		r, err := h.desk.IngestTx(h.Context(), tx, desk.InboundEvent{OrganizationID: h.org, ConnectionID: h.connection, Channel: "email", Event: channel.Event{Message: m}})
		if err != nil {
			return err
		}
		did, err := h.desk.AcknowledgeTx(h.Context(), tx, h.org, r, "We have it.")
		if err != nil || !did {
			return err
		}
		list, err := h.desk.Messages(h.Context(), tx, h.org, r.TicketID)
		if err != nil {
			return err
		}
		w, err := h.desk.OutboxMessage(h.Context(), tx, list[len(list)-1].ID)
		answer = &w.Outgoing
		return err
	}); err != nil {
		h.Fatal(err)
	}
	return answer
}

// TestTwoThatAnswer: two instances with acknowledgements fall silent, even if
// headers are lost on the way.
func TestTwoThatAnswer(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(m *channel.Message, n int) // removes headers of the n-th mail on the way
		want int                             // replies
	}{
		{"as they are", func(m *channel.Message, _ int) {
			// The adapter's result for Auto-Submitted.
			m.Mail.Class, m.Mail.Rule, m.Mail.NoAutoAnswer = channel.ClassAutoReply, "auto-submitted: auto-replied", true
		}, 1},
		{"without a sign that nobody wrote them", func(*channel.Message, int) {}, 2},
		{"and without what they answer", func(m *channel.Message, n int) {
			m.Mail.InReplyTo, m.Mail.References, m.Mail.TicketTag, m.Subject = nil, nil, 0, fmt.Sprint("Mail ", n)
		}, 10},
		{"and with a tag of their own in each address", func(m *channel.Message, n int) {
			m.Mail.InReplyTo, m.Mail.References, m.Mail.TicketTag, m.Subject = nil, nil, 0, fmt.Sprint("Mail ", n)
			m.From.Email = fmt.Sprintf("support+%d@%s", n, m.From.Email[len("support@"):])
			m.Mail.Sender = m.From
		}, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			change := func(c *desk.Config) { c.Dispatcher = dispatcher{} }
			houses := []*house{
				{newFixture(t, change), orgA, mailA, "support@a.example"},
				{newFixture(t, change), orgB, mailB, "support@b.example"},
			}
			// Each instance is the other's customer.
			first := mail("support@b.example", "first@b.example").Event.Message
			next, from, to := first, houses[1], houses[0]
			n := 0
			for ; next != nil && n < 100; n++ {
				out := to.hears(next)
				if out == nil {
					break
				}
				from, to = to, from
				next = mail(from.address, out.MessageID+fmt.Sprint(n)).Event.Message
				next.To = []channel.Party{{Email: to.address}}
				next.Mail.Recipient = to.address
				next.Mail.InReplyTo, next.Mail.References, next.Subject, next.Text = []string{out.InReplyTo}, out.References, out.Subject, out.Text
				tt.lose(next, n)
			}
			if n != tt.want {
				t.Errorf("got %d answers, want %d", n, tt.want)
			}
		})
	}
}
