package desk_test

import (
	"fmt"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/desk"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// model says where messages belong, in the plainest way.
type model struct {
	tickets  []*modelTicket          // by number - 1; nil once deleted
	threads  map[string]*modelTicket // of texts, by connection and number
	mails    map[string]*modelTicket // by Message-ID
	messages map[string]*modelTicket // texts, by connection, number and id
}

type modelTicket struct {
	id       string
	number   int64
	status   desk.Status
	customer string
	members  map[string]bool // who takes part beside the customer
	messages int
	deleted  bool
}

// Whatever comes in, in whatever order: every message is where the rules say,
// once, and numbers have no gaps.
func TestIntakeIsLikeTheModel(t *testing.T) {
	f := newFixture(t)
	rapid.Check(t, func(t *rapid.T) {
		org, connections := uuid.NewString(), []string{uuid.NewString(), uuid.NewString()}
		m := model{threads: map[string]*modelTicket{}, mails: map[string]*modelTicket{}, messages: map[string]*modelTicket{}}
		var ids []string // of mails that were sent

		intake := func(in desk.Inbound) desk.Result {
			in.OrganizationID = org
			r, err := f.tryIntake(in)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		start := func(r desk.Result, customer string) *modelTicket {
			if r.Outcome != desk.TicketCreated || r.TicketNumber != int64(len(m.tickets)+1) {
				t.Fatalf("got %+v, want ticket %d", r, len(m.tickets)+1)
			}
			ticket := &modelTicket{
				id: r.TicketID, number: r.TicketNumber, status: desk.StatusOpen,
				customer: customer, members: map[string]bool{}, messages: 1,
			}
			m.tickets = append(m.tickets, ticket)
			return ticket
		}
		appendTo := func(r desk.Result, ticket *modelTicket) {
			if r.Outcome != desk.Appended || r.TicketID != ticket.id || r.Reopened != (ticket.status != desk.StatusOpen) {
				t.Fatalf("got %+v, want it in ticket %d, which is %s", r, ticket.number, ticket.status)
			}
			ticket.messages++
			ticket.status = desk.StatusOpen
		}
		people := rapid.SampledFrom([]string{"ana@c.example", "bob@c.example", "eve@x.example"})

		t.Repeat(map[string]func(*rapid.T){
			"text": func(t *rapid.T) {
				connection := rapid.SampledFrom(connections).Draw(t, "connection")
				number := rapid.SampledFrom([]string{"+4915112345678", "+4915187654321"}).Draw(t, "number")
				in := text(number, fmt.Sprint("text ", rapid.IntRange(1, 9).Draw(t, "text")))
				in.ConnectionID = connection
				thread := connection + number
				r := intake(in)
				ticket := m.threads[thread]
				switch message := thread + in.Event.Message.ExternalID; {
				case ticket == nil:
					m.threads[thread] = start(r, number)
					m.messages[message] = m.threads[thread]
				case m.messages[message] == ticket:
					if r.Outcome != desk.Duplicate || r.TicketID != ticket.id {
						t.Fatalf("got %+v, want a duplicate", r)
					}
				default:
					appendTo(r, ticket)
					m.messages[message] = ticket
				}
			},
			"mail": func(t *rapid.T) {
				from := people.Draw(t, "from")
				id := fmt.Sprintf("%d@c.example", len(ids))
				in := mail(from, id)
				if rapid.Bool().Draw(t, "cc") {
					in.Event.Message.Cc = []channel.Party{{Email: people.Draw(t, "to")}}
				}
				details := in.Event.Message.Mail
				var to *modelTicket
				byIDs := false
				if len(ids) > 0 && rapid.Bool().Draw(t, "answers") {
					answered := rapid.SampledFrom(ids).Draw(t, "to")
					if rapid.Bool().Draw(t, "by references") {
						details.References = []string{answered, "unknown@c.example"}
					} else {
						details.InReplyTo = []string{answered}
					}
					to = m.mails[answered]
					byIDs = to != nil
				}
				if rapid.Bool().Draw(t, "tag") {
					n := rapid.IntRange(1, 5).Draw(t, "number")
					details.TicketTag = int64(n)
					if to == nil && n <= len(m.tickets) && !m.tickets[n-1].deleted &&
						(m.tickets[n-1].customer == from || m.tickets[n-1].members[from]) {
						to = m.tickets[n-1]
					}
				}
				r := intake(in)
				if to == nil || to.status == desk.StatusClosed {
					to = start(r, from)
				} else {
					appendTo(r, to)
					if byIDs && from != to.customer {
						to.members[from] = true
					}
				}
				for _, p := range in.Event.Message.Cc {
					if p.Email != to.customer && p.Email != from {
						to.members[p.Email] = true
					}
				}
				m.mails[id] = to
				ids = append(ids, id)
				if again := intake(in); again.Outcome != desk.Duplicate || again.MessageID != r.MessageID {
					t.Fatalf("again: %+v", again)
				}
			},
			"status": func(t *rapid.T) {
				ticket := m.draw(t)
				ticket.status = rapid.SampledFrom(desk.Statuses[:]).Draw(t, "status")
				if _, err := f.desk.Update(f.Context(), org, ticket.id, desk.Update{Status: &ticket.status}); err != nil {
					t.Fatal(err)
				}
			},
			"delete": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
					t.Skip("not this time")
				}
				ticket := m.draw(t)
				if err := f.desk.Delete(f.Context(), org, ticket.id); err != nil {
					t.Fatal(err)
				}
				ticket.deleted = true
				for _, index := range []map[string]*modelTicket{m.threads, m.mails, m.messages} {
					for key, of := range index {
						if of == ticket {
							delete(index, key)
						}
					}
				}
			},
			"": func(t *rapid.T) {
				for _, want := range m.tickets {
					got, err := f.desk.TicketByNumber(f.Context(), f.db, org, want.number)
					if want.deleted {
						if err == nil {
							t.Fatalf("ticket %d is still there", want.number)
						}
						continue
					}
					if err != nil || got.ID != want.id || got.Status != want.status {
						t.Fatalf("ticket %d: %+v, %v; want %s", want.number, got, err, want.status)
					}
					messages, err := f.desk.Messages(f.Context(), f.db, org, want.id)
					if err != nil || len(messages) != want.messages {
						t.Fatalf("ticket %d: %d messages, want %d (%v)", want.number, len(messages), want.messages, err)
					}
				}
			},
		})
	})
}

func (m *model) draw(t *rapid.T) *modelTicket {
	var alive []*modelTicket
	for _, ticket := range m.tickets {
		if !ticket.deleted {
			alive = append(alive, ticket)
		}
	}
	if len(alive) == 0 {
		t.Skip("no tickets yet")
	}
	return rapid.SampledFrom(alive).Draw(t, "ticket")
}
