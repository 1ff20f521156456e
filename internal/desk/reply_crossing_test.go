package desk_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// replyHaving replies with Seen set; nil: no check.
func (f *fixture) replyHaving(ticketID string, by desk.Actor, seen *string) (desk.Message, error) {
	f.Helper()
	return write(f, func(tx *db.Tx) (desk.Message, error) {
		return f.desk.ReplyTx(f.Context(), tx, orgA, ticketID, desk.Reply{By: by, Content: f.compose(desk.Draft{Text: "From " + by.Name}), Seen: seen})
	})
}

// begin creates a ticket of the API, which always accepts replies, with a message.
func (f *fixture) begin(text string) (ticketID string, newest *string) {
	f.Helper()
	t, err := f.create(orgA, desk.NewTicket{By: grace, Subject: "Flat tyre", Content: f.compose(desk.Draft{Text: text}), Customer: &desk.Person{Email: "ana@c.example"}})
	if err != nil {
		f.Fatal(err)
	}
	return t.ID, f.newest(t.ID)
}

func (f *fixture) newest(ticketID string) *string {
	f.Helper()
	id := ""
	for _, m := range f.messages(ticketID) {
		id = m.ID
	}
	return &id
}

var (
	robin   = desk.Actor{ID: "0190c0de-0000-7000-8000-0000000000d3", Name: "Robin"}
	partner = desk.Actor{ID: "key", Name: "Partner"}
)

func TestCrossedReply(t *testing.T) {
	f := newFixture(t)
	ticket, seen := f.begin("It is flat.")
	first, err := f.replyHaving(ticket, robin, seen)
	if err != nil {
		t.Fatal(err)
	}
	f.emitted()
	_, err = f.replyHaving(ticket, grace, seen)
	refused(t, "a crossing reply", err, problem.Conflict, desk.CodeCrossedReply, "")
	if c, ok := desk.AsCrossedReply(err); !ok || c.ID != first.ID || c.Author.Name != "Robin" || !c.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("it crossed %+v, want %s", c, first.ID)
	}
	if n := len(f.messages(ticket)); n != 2 || f.emitted() != "" {
		t.Errorf("a refused reply left %d messages, and events", n)
	}

	for _, tt := range []struct {
		name string
		by   desk.Actor
		seen *string
		ok   bool
	}{
		{"nothing said about what was seen", grace, nil, true},
		{"one's own reply is newer", grace, &first.ID, true},
		{"a key's reply crosses", partner, seen, false},
		{"nothing seen", robin, new(""), false},
		{"everything seen", partner, nil, true},
	} {
		if tt.name == "everything seen" {
			tt.seen = f.newest(ticket)
		}
		if _, err := f.replyHaving(ticket, tt.by, tt.seen); (err == nil) != tt.ok || err != nil && problem.Of(err) != problem.Conflict {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}

	// Neither customers' messages nor notes cross, and the seen message must be of the
	// ticket.
	other, of := f.begin("Another one")
	if _, err := f.note(orgA, other, robin, desk.Draft{Text: "n"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.replyHaving(other, grace, of); err != nil {
		t.Errorf("a note crosses: %v", err)
	}
	asked, _ := f.begin("A third one") // its message is the customer's
	if _, err := f.replyHaving(asked, grace, new("")); err != nil {
		t.Errorf("a customer's message crosses: %v", err)
	}
	for _, id := range []string{*of, "nothing"} {
		_, err = f.replyHaving(ticket, grace, &id)
		refused(t, "a message from elsewhere", err, problem.Invalid, "not_found", "seen_message_id")
	}
}

// TestSimultaneousReplies: of many simultaneous replies with the same Seen, one is
// accepted.
func TestSimultaneousReplies(t *testing.T) {
	f := newFixture(t)
	for range 5 {
		ticket, seen := f.begin("It is flat.")
		var wg sync.WaitGroup
		errs := make([]error, 16)
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = f.replyHaving(ticket, desk.Actor{ID: fmt.Sprint("agent-", i), Name: "Agent"}, seen)
			})
		}
		wg.Wait()
		passed := 0
		for _, err := range errs {
			if _, crossed := desk.AsCrossedReply(err); err == nil {
				passed++
			} else if !crossed {
				t.Error(err)
			}
		}
		if n := len(f.messages(ticket)); passed != 1 || n != 2 {
			t.Fatalf("%d of %d replies passed, and there are %d messages", passed, len(errs), n)
		}
	}
}

// TestCrossingClocks: a reply counts as newer even if the clock of the seen
// message's process is ahead.
func TestCrossingClocks(t *testing.T) {
	f := newFixture(t)
	ticket, seen := f.begin("It is flat.")
	ahead := f.moveAhead(ticket, *seen)
	m, err := f.replyHaving(ticket, robin, &ahead)
	if err != nil {
		t.Fatal(err)
	}
	if list := f.messages(ticket); list[len(list)-1].ID != m.ID {
		t.Errorf("the reply %s is not the newest of %v", m.ID, list)
	}
	_, err = f.replyHaving(ticket, grace, &ahead)
	refused(t, "a crossing reply", err, problem.Conflict, desk.CodeCrossedReply, "")

	// So does an agent's message sent with another program.
	in := f.intake(text(number, "hello"))
	ahead = f.moveAhead(in.TicketID, in.MessageID)
	sent := text(number, "sent by telephone")
	sent.Event.Message.Outbound = true
	sent.Event.Message.From, sent.Event.Message.To = channel.Party{Name: "Front desk"}, []channel.Party{{Phone: number}}
	out := f.intake(sent)
	_, err = f.replyHaving(in.TicketID, grace, &ahead)
	refused(t, "a reply that crosses one sent elsewhere", err, problem.Conflict, desk.CodeCrossedReply, "")
	if c, _ := desk.AsCrossedReply(err); c.ID != out.MessageID {
		t.Errorf("it crossed %q, want %q", c.ID, out.MessageID)
	}
}

// moveAhead gives a message the id of a process with a clock an hour ahead.
func (f *fixture) moveAhead(ticketID, id string) string {
	f.Helper()
	ms := fmt.Sprintf("%012x", time.Now().Add(time.Hour).UnixMilli())
	ahead := ms[:8] + "-" + ms[8:] + id[13:]
	f.exec("UPDATE messages SET id = $1 WHERE ticket_id = $2 AND id = $3", ahead, ticketID, id)
	return ahead
}
