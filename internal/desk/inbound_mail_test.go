package desk_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
)

// mail is a mail to organization A's support address.
func mail(from, id string) desk.InboundEvent {
	return desk.InboundEvent{
		OrganizationID: orgA, ConnectionID: mailA, Channel: "email",
		Event: channel.Event{Message: &channel.Message{
			ExternalID: id, Subject: "Lost key", Text: "text of " + id,
			From: channel.Party{Email: from}, To: []channel.Party{{Email: "support@a.example"}},
			Mail: &channel.Mail{
				MessageID: id, Class: channel.ClassInbound, Rule: "none of the others",
				Recipient: "support@a.example", Sender: channel.Party{Email: from},
			},
		}},
	}
}

// Threading cases: ticket 1 was started by Ana's mail m1@c.example, Cc
// bob@c.example, and its number is public. The mail of edit comes next.
func TestMailThreading(t *testing.T) {
	const (
		appended = desk.Appended
		created  = desk.TicketCreated
	)
	for _, c := range []struct {
		name    string
		from    string
		status  desk.Status // of ticket 1 before; empty: open
		edit    func(m *channel.Message)
		outcome desk.Outcome
		rule    desk.ThreadingRule
		link    string // of a new ticket to ticket 1
	}{
		{"nothing joins them", "ana@c.example", "", func(*channel.Message) {}, created, desk.RuleNone, ""},
		{
			"(1) In-Reply-To", "ana@c.example", "", func(m *channel.Message) { m.Mail.InReplyTo = []string{"m1@c.example"} },
			appended, desk.RuleInReplyTo, "",
		},
		{
			"(1) any id in it", "ana@c.example", "", func(m *channel.Message) { m.Mail.InReplyTo = []string{"x@x", "m1@c.example", "y@y"} },
			appended, desk.RuleInReplyTo, "",
		},
		{
			"(1) in other case", "ana@c.example", "", func(m *channel.Message) { m.Mail.InReplyTo = []string{"M1@C.Example"} },
			appended, desk.RuleInReplyTo, "",
		},
		{
			"(1) comes before the others", "ana@c.example", "", func(m *channel.Message) {
				m.Mail.InReplyTo, m.Mail.References, m.Mail.TicketTag = []string{"m1@c.example"}, []string{"m1@c.example"}, 1
			},
			appended, desk.RuleInReplyTo, "",
		},
		{
			"(1) from somebody new", "eve@x.example", "", func(m *channel.Message) { m.Mail.InReplyTo = []string{"m1@c.example"} },
			appended, desk.RuleInReplyTo, "",
		},
		{
			"(1) from somebody new who wants the answers to go to the customer", "eve@x.example", "", func(m *channel.Message) {
				m.From.Email, m.Mail.InReplyTo = "ana@c.example", []string{"m1@c.example"}
			},
			appended, desk.RuleInReplyTo, "",
		},
		{
			"(1) from the customer who wants the answers elsewhere", "ana@c.example", "", func(m *channel.Message) {
				m.From.Email, m.Mail.InReplyTo = "bob@c.example", []string{"m1@c.example"}
			},
			appended, desk.RuleInReplyTo, "",
		},
		{
			"(1) from a domain that disowns it", "ana@c.example", "", func(m *channel.Message) {
				m.Mail.InReplyTo, m.Mail.Proof.Verdict = []string{"m1@c.example"}, mailauth.Failed
			},
			appended, desk.RuleInReplyTo, "",
		},
		{
			"(2) References", "ana@c.example", "", func(m *channel.Message) {
				m.Mail.InReplyTo, m.Mail.References = []string{"x@x"}, []string{"a@a", "m1@c.example", "b@b"}
			},
			appended, desk.RuleReference, "",
		},
		{
			"(3) from the customer", "ana@c.example", "", func(m *channel.Message) { m.Mail.TicketTag = 1 },
			appended, desk.RuleTicketTag, "",
		},
		{
			"(3) from the customer, in other case", "ANA@C.example", "", func(m *channel.Message) { m.Mail.TicketTag = 1 },
			appended, desk.RuleTicketTag, "",
		},
		{
			"(3) from one of the Cc", "bob@c.example", "", func(m *channel.Message) { m.Mail.TicketTag = 1 },
			appended, desk.RuleTicketTag, "",
		},
		{
			"(3) in the name of an agent", "grace@a.example", "", func(m *channel.Message) { m.Mail.TicketTag = 1 },
			created, desk.RuleNone, desk.LinkTicketTag,
		},
		{
			"(3) guessed by a stranger", "eve@x.example", "", func(m *channel.Message) { m.Mail.TicketTag = 1 },
			created, desk.RuleNone, desk.LinkTicketTag,
		},
		{
			"(3) by a stranger who wants the answers to go to the customer", "eve@x.example", "", func(m *channel.Message) {
				m.From.Email, m.Mail.TicketTag = "ana@c.example", 1
			},
			created, desk.RuleNone, desk.LinkTicketTag,
		},
		{
			"(3) in the name of the customer, disowned by the domain", "ana@c.example", "", func(m *channel.Message) {
				m.Mail.TicketTag, m.Mail.Proof.Verdict = 1, mailauth.Failed
			},
			created, desk.RuleNone, desk.LinkTicketTag,
		},
		{
			"(3) in the name of an agent, disowned by the domain", "grace@a.example", "", func(m *channel.Message) {
				m.Mail.TicketTag, m.Mail.Proof.Verdict = 1, mailauth.Failed
			},
			created, desk.RuleNone, desk.LinkTicketTag,
		},
		{
			"(3) of another organization's agent", "heidi@b.example", "", func(m *channel.Message) { m.Mail.TicketTag = 1 },
			created, desk.RuleNone, desk.LinkTicketTag,
		},
		{
			"(3) of no sender", "", "", func(m *channel.Message) { m.Mail.TicketTag = 1 },
			created, desk.RuleNone, desk.LinkTicketTag,
		},
		{
			"(3) of a ticket that is not there", "ana@c.example", "", func(m *channel.Message) { m.Mail.TicketTag = 99 },
			created, desk.RuleNone, "",
		},
		{
			"(4) a mail inside it", "eve@x.example", "", func(m *channel.Message) { m.Mail.EmbeddedIDs = []string{"m1@c.example"} },
			appended, desk.RuleMessageID, "",
		},
		{
			"(4) its own id, which the sender repeats", "ana@c.example", "", func(m *channel.Message) {
				m.Mail.MessageID, m.ExternalID = "m1@c.example", "m1@c.example"
			},
			appended, desk.RuleMessageID, "",
		},
		{
			"(4) also where (3) was guessed", "eve@x.example", "", func(m *channel.Message) {
				m.Mail.TicketTag, m.Mail.EmbeddedIDs = 1, []string{"m1@c.example"}
			},
			appended, desk.RuleMessageID, "",
		},
		{
			"closed", "ana@c.example", desk.StatusClosed, func(m *channel.Message) { m.Mail.InReplyTo = []string{"m1@c.example"} },
			created, desk.RuleNone, desk.LinkClosed,
		},
		{
			"closed, by number", "ana@c.example", desk.StatusClosed, func(m *channel.Message) { m.Mail.TicketTag = 1 },
			created, desk.RuleNone, desk.LinkClosed,
		},
		{
			"resolved", "ana@c.example", desk.StatusResolved, func(m *channel.Message) { m.Mail.InReplyTo = []string{"m1@c.example"} },
			appended, desk.RuleInReplyTo, "",
		},
		{
			"pending", "bob@c.example", desk.StatusPending, func(m *channel.Message) { m.Mail.TicketTag = 1 },
			appended, desk.RuleTicketTag, "",
		},
		{
			"on hold", "ana@c.example", desk.StatusOnHold, func(m *channel.Message) { m.Mail.References = []string{"m1@c.example"} },
			appended, desk.RuleReference, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			in := mail("ana@c.example", "m1@c.example")
			in.Event.Message.Cc = []channel.Party{{Email: "Bob@c.example", Name: "Bob"}}
			one := f.intake(in)
			// Another organization has the same ids.
			in.OrganizationID, in.ConnectionID = orgB, mailB
			f.intake(in)
			if c.status != "" {
				f.setStatus(one.TicketID, c.status)
			}
			f.emitted()

			in = mail(c.from, "m2@c.example")
			c.edit(in.Event.Message)
			r := f.intake(in)
			if r.Outcome != c.outcome || r.PlacedBy != c.rule || r.Class != channel.ClassInbound {
				t.Fatalf("got %+v, want %s by %s", r, c.outcome, c.rule)
			}
			if (r.TicketID == one.TicketID) != (c.outcome == appended) {
				t.Fatalf("got ticket %d", r.TicketNumber)
			}
			ticket := f.ticket(r.TicketID)
			if link := ticket.LinkReason; link != c.link || (ticket.LinkedTicketID == one.TicketID) != (c.link != "") {
				t.Errorf("link %q to %q, want %q", ticket.LinkReason, ticket.LinkedTicketID, c.link)
			}
			reopened := c.outcome == appended && c.status != ""
			if ticket.Status != desk.StatusOpen || r.Reopened != reopened {
				t.Errorf("status %s, reopened %v, want %v", ticket.Status, r.Reopened, reopened)
			}
			if c.link == desk.LinkClosed && f.ticket(one.TicketID).Status != desk.StatusClosed {
				t.Error("the closed ticket was reopened")
			}
			messages := f.messages(r.TicketID)
			last := messages[len(messages)-1]
			if last.PlacedBy != c.rule || last.Details.Class != channel.ClassInbound || last.Details.ClassRule == "" {
				t.Errorf("message: %+v", last)
			}
			if want := c.outcome == appended && strings.HasPrefix(c.from, "eve"); last.Details.NewParticipant != want {
				t.Errorf("new participant %v, want %v", last.Details.NewParticipant, want)
			}
		})
	}
}

// A sender that joined a thread by its ids is a participant from then on.
func TestNewParticipantTakesPart(t *testing.T) {
	f := newFixture(t)
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	in := mail("eve@x.example", "m2@x.example")
	in.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
	first := f.intake(in)
	if first.CustomerID == one.CustomerID {
		t.Error("a stranger became the customer")
	}
	for i, id := range []string{"m3@x.example", "m4@x.example"} {
		in = mail("eve@x.example", id)
		in.Event.Message.Mail.TicketTag = 1
		r := f.intake(in)
		if r.TicketID != one.TicketID || r.CustomerID != first.CustomerID {
			t.Errorf("got %+v", r)
		}
		if f.messages(one.TicketID)[2+i].Details.NewParticipant {
			t.Error("marked as new again")
		}
	}
	if c := f.ticket(one.TicketID).Customer; c.Email != "ana@c.example" {
		t.Errorf("the ticket's customer is %+v", c)
	}
}

// References are followed from the last one.
func TestLastReferenceWins(t *testing.T) {
	f := newFixture(t)
	f.intake(mail("ana@c.example", "m1@c.example"))
	two := f.intake(mail("ana@c.example", "m2@c.example"))
	in := mail("ana@c.example", "m3@c.example")
	in.Event.Message.Mail.References = []string{"m1@c.example", "m2@c.example", "unknown@x"}
	if r := f.intake(in); r.TicketID != two.TicketID {
		t.Errorf("got ticket %d, want 2", r.TicketNumber)
	}
}

// Two ids may differ by case only; then the exact one matches.
func TestExactIDWins(t *testing.T) {
	f := newFixture(t)
	tickets := make(map[string]string)
	for i, wire := range []string{"AbC@relay.example", "aBc@relay.example"} {
		sent := mail("grace@a.example", fmt.Sprintf("sent%d@a.example", i))
		sent.Event.Message.To, sent.Event.Message.Mail.Proof.Verdict = []channel.Party{{Email: "ana@c.example"}}, mailauth.Proven
		r := f.intake(sent)
		seen := mail("grace@a.example", wire)
		seen.Event.Message.Mail.CopyHeader = r.MessageID + ".mac-of-" + orgA
		f.intake(seen)
		tickets[wire] = r.TicketID
	}
	for wire, want := range tickets {
		in := mail("ana@c.example", "answer-to-"+want)
		in.Event.Message.Mail.InReplyTo = []string{wire}
		if r := f.intake(in); r.TicketID != want || r.PlacedBy != desk.RuleInReplyTo {
			t.Errorf("%s: %+v, want ticket %s", wire, r, want)
		}
	}
}

func TestAnswerToAnAnswer(t *testing.T) {
	f := newFixture(t)
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	answer := mail("ana@c.example", "m2@c.example")
	answer.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
	f.intake(answer)
	third := mail("ana@c.example", "m3@c.example")
	third.Event.Message.Mail.InReplyTo = []string{"m2@c.example"} // the reply's own
	if r := f.intake(third); r.TicketID != one.TicketID || r.ConversationID != one.ConversationID {
		t.Errorf("got %+v", r)
	}
}

func TestMailTicket(t *testing.T) {
	f := newFixture(t)
	in := mail("ana@c.example", "m1@c.example")
	m := in.Event.Message
	m.From.Name, m.Mail.Sender.Name = "Ana", "Ana"
	m.Cc = []channel.Party{{Email: "bob@c.example"}, {Email: "sales@a.example"}}
	m.Stripped = "text"
	m.SentAt = time.Date(2026, 11, 20, 10, 0, 0, 0, time.FixedZone("", 3600))
	r := f.intake(in)
	if !r.MayAnswer {
		t.Error("may not be answered")
	}
	if got, want := f.emitted(), "customer.created ticket.created conversation.created message.created"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
	ticket := f.ticket(r.TicketID)
	if ticket.Subject != "Lost key" || ticket.Channel != "email" || ticket.Customer.Email != "ana@c.example" || ticket.Customer.Name != "Ana" {
		t.Errorf("ticket: %+v", ticket)
	}
	got := f.messages(r.TicketID)[0]
	if got.Stripped != "text" || got.ExternalID != "m1@c.example" || !got.SentAt.Equal(m.SentAt) || got.Details.Subject != "Lost key" ||
		got.Details.Sender != "ana@c.example" || len(got.Details.To) != 1 || len(got.Details.Cc) != 2 {
		t.Errorf("message: %+v", got)
	}
	if n := f.count("participants"); n != 1 { // neither Ana nor the organization's addresses
		t.Errorf("%d participants, want Bob", n)
	}
	in = mail("ana@c.example", "m2@c.example")
	in.Event.Message.Subject = " \r\n"
	if got := f.ticket(f.intake(in).TicketID).Subject; got != "(no subject)" {
		t.Errorf("subject %q", got)
	}
}

// A mail to two of the organization's addresses is delivered twice, perhaps at
// once.
func TestMailToTwoAddresses(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for _, connection := range []string{mailA, saleA, mailA, saleA} {
		wg.Go(func() {
			in := mail("ana@c.example", "m1@c.example")
			in.ConnectionID = connection
			if _, err := f.tryIntake(in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for table, want := range map[string]int{"tickets": 1, "customers": 1, "messages": 1, "events": 4} {
		if got := f.count(table); got != want {
			t.Errorf("%d %s, want %d", got, table, want)
		}
	}
	answer := mail("ana@c.example", "m2@c.example")
	answer.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
	f.intake(answer)
	answer.ConnectionID = saleA
	if r := f.intake(answer); r.Outcome != desk.Duplicate || r.TicketNumber != 0 && r.TicketNumber != 1 {
		t.Errorf("the answer's second delivery: %+v", r)
	}
	if got := f.count("messages"); got != 2 {
		t.Errorf("%d messages, want 2", got)
	}
}

// Some programs reuse one id for every mail. No mail is lost.
func TestRepeatedMessageID(t *testing.T) {
	f := newFixture(t)
	for i, body := range []string{"first", "second", "third", "third"} {
		in := mail("meter@x.example", "same@x.example")
		in.Event.Message.Text = body
		in.Event.Message.SentAt = time.Date(2026, 11, 20, 10, i, 0, 0, time.UTC)
		f.intake(in)
	}
	if n := f.count("messages"); n != 4 {
		t.Errorf("%d messages, want all", n)
	}
	if n := f.count("tickets"); n != 1 {
		t.Errorf("%d tickets, want 1", n)
	}
}

func TestMailWithoutAnything(t *testing.T) {
	f := newFixture(t)
	for range 2 {
		in := mail("", "")
		*in.Event.Message = channel.Message{Mail: &channel.Mail{Class: channel.ClassInbound}}
		if r := f.intake(in); r.Outcome != desk.TicketCreated || r.MayAnswer {
			t.Errorf("got %+v", r)
		}
	}
	if n := f.count("customers"); n != 2 {
		t.Errorf("%d customers; two without an address may be two people", n)
	}
}

func TestTagFindsTicketOfAnotherChannel(t *testing.T) {
	f := newFixture(t)
	one := f.intake(text("+4915112345678", "hello"))
	in := mail("grace@a.example", "m1@a.example")
	in.Event.Message.Mail.TicketTag, in.Event.Message.Mail.Proof.Verdict = 1, mailauth.Proven
	for i := range 2 {
		in.Event.Message.Mail.MessageID = fmt.Sprintf("m%d@a.example", i)
		in.Event.Message.Text = fmt.Sprint("text ", i)
		if r := f.intake(in); r.TicketID != one.TicketID || r.ConversationID == one.ConversationID {
			t.Errorf("got %+v, want another conversation of ticket 1", r)
		}
	}
	c, err := f.desk.Conversations(t.Context(), f.db, orgA, one.TicketID)
	if err != nil || len(c) != 2 || c[1].Channel != "email" {
		t.Errorf("conversations: %+v, %v", c, err)
	}
}

// A mail that starts a new ticket adds no conversation to the closed ticket of
// another channel that it names.
func TestTagOfClosedTicketOfAnotherChannel(t *testing.T) {
	f := newFixture(t)
	in := text("+4915112345678", "hello")
	in.Event.Message.From.Email = "ana@c.example"
	one := f.intake(in)
	f.setStatus(one.TicketID, desk.StatusClosed)
	tagged := mail("ana@c.example", "m1@c.example")
	tagged.Event.Message.Mail.TicketTag = 1
	r := f.intake(tagged)
	if r.Outcome != desk.TicketCreated || f.ticket(r.TicketID).LinkedTicketID != one.TicketID {
		t.Errorf("got %+v", r)
	}
	c, err := f.desk.Conversations(t.Context(), f.db, orgA, one.TicketID)
	if err != nil || len(c) != 1 {
		t.Errorf("conversations of the closed ticket: %+v, %v", c, err)
	}
}

// Replies never go to an agent, despite Reply-To.
func TestReplyToOneOfUs(t *testing.T) {
	for _, replyTo := range []string{"sales@a.example", "Sales+x@a.example", "grace@a.example"} {
		f := newFixture(t)
		in := mail("eve@x.example", "m1@x.example")
		in.Event.Message.From.Email = replyTo
		r := f.intake(in)
		if c := f.ticket(r.TicketID).Customer; c.Email != "eve@x.example" {
			t.Errorf("%s: the customer is %+v", replyTo, c)
		}
	}
}

func TestMayAnswer(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(m *channel.Message)
		want bool
	}{
		{"a person", func(*channel.Message) {}, true},
		{"a list", func(m *channel.Message) { m.Mail.NoAutoAnswer = true }, false},
		{"no envelope sender", func(m *channel.Message) { m.Mail.HasEnvelope = true }, false},
		{"an envelope sender", func(m *channel.Message) { m.Mail.HasEnvelope, m.Mail.EnvelopeFrom = true, "ana@c.example" }, true},
		{"nobody's address", func(m *channel.Message) { m.From.Email = "No-Reply@c.example" }, false},
		{"a mail server", func(m *channel.Message) { m.Mail.Sender.Email = "mailer-daemon@c.example" }, false},
		{"another help desk of this kind", func(m *channel.Message) { m.Mail.CopyHeader = "id.mac-of-another" }, false},
		{"ourselves", func(m *channel.Message) { m.From.Email, m.Mail.Sender.Email = "sales@a.example", "sales@a.example" }, false},
		{"a tagged address of ours", func(m *channel.Message) { m.Mail.Sender.Email = "sales+x@a.example" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			in := mail("ana@c.example", "m1@c.example")
			c.edit(in.Event.Message)
			r := f.intake(in)
			if r.Outcome != desk.TicketCreated || r.MayAnswer != c.want {
				t.Errorf("got %+v, want may answer %v", r, c.want)
			}
		})
	}
}

func TestOutboundCopy(t *testing.T) {
	const (
		created   = desk.TicketCreated
		appended  = desk.Appended
		noted     = desk.Noted
		duplicate = desk.Duplicate
		replies   = "conversation.created message.created message.agent_reply"
		starts    = "customer.created ticket.created conversation.created message.created message.agent_reply"
	)
	toAna := []channel.Party{{Email: "ana@c.example"}}
	for _, c := range []struct {
		name    string
		from    string
		edit    func(m *channel.Message)
		class   channel.Class
		outcome desk.Outcome
		events  string
	}{
		{
			"agent to somebody, us in Bcc", "grace@a.example",
			func(m *channel.Message) { m.To, m.Mail.Proof.Verdict = toAna, mailauth.Proven },
			channel.ClassOutboundCopy, created, starts,
		},
		{
			"agent to somebody and us", "grace@a.example",
			func(m *channel.Message) {
				m.To, m.Mail.Proof.Verdict = append(toAna, channel.Party{Email: "support@a.example"}), mailauth.Proven
			},
			channel.ClassOutboundCopy, created, starts,
		},
		{
			"agent answers on the thread", "grace@a.example",
			func(m *channel.Message) {
				m.To, m.Mail.Proof.Verdict, m.Mail.InReplyTo = toAna, mailauth.Proven, []string{"m1@c.example"}
			},
			channel.ClassOutboundCopy, appended, replies,
		},
		{
			"our own address to somebody", "sales@a.example",
			func(m *channel.Message) {
				m.To, m.Mail.Proof.Verdict, m.Mail.InReplyTo = toAna, mailauth.Proven, []string{"m1@c.example"}
			},
			channel.ClassOutboundCopy, appended, replies,
		},
		{
			"not authenticated", "grace@a.example",
			func(m *channel.Message) { m.To, m.Mail.InReplyTo = toAna, []string{"m1@c.example"} },
			channel.ClassInbound, appended, "customer.created conversation.created message.created message.customer_reply",
		},
		{
			"agent to us alone, on a thread", "grace@a.example",
			func(m *channel.Message) {
				m.Mail.Proof.Verdict, m.Mail.InReplyTo = mailauth.Proven, []string{"m1@c.example"}
			},
			channel.ClassInbound, noted, "",
		},
		{
			"agent to us alone, about something new", "grace@a.example",
			func(m *channel.Message) { m.Mail.Proof.Verdict = mailauth.Proven },
			channel.ClassInbound, created, "customer.created ticket.created conversation.created message.created",
		},
		{
			"one of us to nobody who is visible", "grace@a.example",
			func(m *channel.Message) { m.To, m.Mail.Proof.Verdict = nil, mailauth.Proven },
			channel.ClassOutboundCopy, created, "customer.created ticket.created conversation.created message.created",
		},
		{
			"another organization's agent", "heidi@b.example",
			func(m *channel.Message) { m.To, m.Mail.Proof.Verdict = toAna, mailauth.Proven },
			channel.ClassInbound, created, "customer.created ticket.created conversation.created message.created",
		},
		{
			"our header, unknown message", "support@a.example",
			func(m *channel.Message) {
				m.To, m.Mail.CopyHeader, m.Mail.InReplyTo = nil, "gone.mac-of-"+orgA, []string{"m1@c.example"}
				m.Mail.Proof.Verdict = mailauth.Proven
			},
			channel.ClassOutboundCopy, appended, replies,
		},
		{
			"our header, unknown message, in the name of our address", "support@a.example",
			func(m *channel.Message) {
				m.To, m.Mail.CopyHeader, m.Mail.InReplyTo = toAna, "gone.mac-of-"+orgA, []string{"m1@c.example"}
			},
			channel.ClassInbound, appended, "customer.created conversation.created message.created message.customer_reply",
		},
		{
			"our header, known message, copied into an answer", "eve@x.example",
			func(m *channel.Message) {
				m.Mail.CopyHeader, m.Mail.InReplyTo = "SENT.mac-of-"+orgA, []string{"m1@c.example"}
			},
			channel.ClassInbound, appended, "customer.created conversation.created message.created message.customer_reply",
		},
		{
			"our header, unknown message, from somebody who got it", "eve@x.example",
			func(m *channel.Message) {
				m.To, m.Mail.CopyHeader, m.Mail.InReplyTo = toAna, "gone.mac-of-"+orgA, []string{"m1@c.example"}
			},
			channel.ClassInbound, appended, "customer.created conversation.created message.created message.customer_reply",
		},
		{
			"our header, unknown message, disowned by our domain", "support@a.example",
			func(m *channel.Message) {
				m.To, m.Mail.CopyHeader, m.Mail.InReplyTo = toAna, "gone.mac-of-"+orgA, []string{"m1@c.example"}
				m.Mail.Proof.Verdict = mailauth.Failed
			},
			channel.ClassInbound, appended, "customer.created conversation.created message.created message.customer_reply",
		},
		{
			"our header, forged", "eve@x.example",
			func(m *channel.Message) {
				m.To, m.Mail.CopyHeader, m.Mail.InReplyTo = toAna, "gone.mac-of-"+orgB, []string{"m1@c.example"}
			},
			channel.ClassInbound, appended, "customer.created conversation.created message.created message.customer_reply",
		},
		{
			"our message seen again", "grace@a.example",
			func(m *channel.Message) { m.Mail.MessageID, m.Text = "sent@a.example", "altered on the way" },
			channel.ClassOutboundCopy, duplicate, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.intake(mail("first@c.example", "m1@c.example"))
			sent := mail("grace@a.example", "sent@a.example")
			sent.Event.Message.To, sent.Event.Message.Mail.Proof.Verdict, sent.Event.Message.Mail.InReplyTo = []channel.Party{{Email: "first@c.example"}}, mailauth.Proven, []string{"m1@c.example"}
			id := f.intake(sent).MessageID
			f.emitted()

			in := mail(c.from, "m2@x.example")
			c.edit(in.Event.Message)
			in.Event.Message.Mail.CopyHeader = strings.Replace(in.Event.Message.Mail.CopyHeader, "SENT", id, 1)
			r := f.intake(in)
			if r.Class != c.class || r.Outcome != c.outcome {
				t.Fatalf("got %+v, want %s of class %s", r, c.outcome, c.class)
			}
			if got := f.emitted(); got != c.events {
				t.Errorf("events\n got %s\nwant %s", got, c.events)
			}
			if r.MayAnswer != (c.class == channel.ClassInbound && c.outcome == created) {
				t.Errorf("may answer: %v", r.MayAnswer)
			}
			if c.outcome == duplicate {
				return
			}
			m := f.messages(r.TicketID)
			last := m[len(m)-1]
			ours := strings.HasSuffix(c.events, "message.agent_reply")
			if last.Details.SentElsewhere != ours || (last.Direction == "outbound") != ours {
				t.Errorf("message: %+v", last)
			}
			if c.from == "grace@a.example" && (ours || c.outcome == noted) && (last.Author.Type != "agent" || last.Author.ID != graceID) {
				t.Errorf("author: %+v", last.Author)
			}
			if ours && c.outcome == created && f.ticket(r.TicketID).Customer.Email != "ana@c.example" {
				t.Errorf("customer: %+v", f.ticket(r.TicketID).Customer)
			}
		})
	}
}

// An agent's mail to the organization only, about a closed ticket, is a note on it,
// and no new ticket.
func TestAgentsNoteOnClosedTicket(t *testing.T) {
	f := newFixture(t)
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	f.setStatus(one.TicketID, desk.StatusClosed)
	f.emitted()
	in := mail("grace@a.example", "m2@a.example")
	in.Event.Message.Mail.Proof.Verdict, in.Event.Message.Mail.InReplyTo = mailauth.Proven, []string{"m1@c.example"}
	if r := f.intake(in); r.Outcome != desk.Noted || r.TicketID != one.TicketID {
		t.Errorf("got %+v", r)
	}
	if got, status := f.emitted(), f.ticket(one.TicketID).Status; got != "" || status != desk.StatusClosed {
		t.Errorf("status %s, events %s", status, got)
	}
}

// A relay changed our Message-ID. A copy with our header reveals the new id, and
// replies to it find their ticket.
func TestCopyTeachesTheWireID(t *testing.T) {
	f := newFixture(t)
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	sent := mail("grace@a.example", "ours@a.example")
	sent.Event.Message.To, sent.Event.Message.Mail.Proof.Verdict, sent.Event.Message.Mail.InReplyTo = []channel.Party{{Email: "ana@c.example"}}, mailauth.Proven, []string{"m1@c.example"}
	reply := f.intake(sent)

	seen := mail("support@a.example", "rewritten@relay.example")
	seen.Event.Message.Mail.CopyHeader = reply.MessageID + ".mac-of-" + orgA
	if r := f.intake(seen); r.Outcome != desk.Duplicate || r.MessageID != reply.MessageID || r.Class != channel.ClassOutboundCopy {
		t.Errorf("the copy: %+v", r)
	}
	answer := mail("ana@c.example", "m2@c.example")
	answer.Event.Message.Mail.InReplyTo = []string{"rewritten@relay.example"}
	if r := f.intake(answer); r.TicketID != one.TicketID {
		t.Errorf("the answer: %+v", r)
	}
	if n := len(f.messages(one.TicketID)); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}

	// Another organization ignores the header: there it is a mail from a customer with
	// the same program.
	seen.OrganizationID, seen.ConnectionID = orgB, mailB
	if r := f.intake(seen); r.Outcome != desk.TicketCreated || r.MayAnswer {
		t.Errorf("elsewhere: %+v", r)
	}
}

func TestOutboundCopyLeavesTheStatus(t *testing.T) {
	for _, status := range desk.Statuses {
		f := newFixture(t)
		one := f.intake(mail("ana@c.example", "m1@c.example"))
		f.setStatus(one.TicketID, status)
		sent := mail("grace@a.example", "ours@a.example")
		sent.Event.Message.To, sent.Event.Message.Mail.Proof.Verdict, sent.Event.Message.Mail.InReplyTo = []channel.Party{{Email: "ana@c.example"}}, mailauth.Proven, []string{"m1@c.example"}
		if r := f.intake(sent); r.TicketID != one.TicketID {
			t.Errorf("%s: %+v", status, r)
		}
		if got := f.ticket(one.TicketID); got.Status != status || got.FirstRespondedAt.IsZero() {
			t.Errorf("%s: %+v", status, got)
		}
	}
}

func TestAutoReply(t *testing.T) {
	auto := func(edit func(in *desk.InboundEvent)) desk.InboundEvent {
		in := mail("away@c.example", "auto@c.example")
		in.Event.Message.Mail.Class, in.Event.Message.Mail.Rule = channel.ClassAutoReply, "auto-submitted: auto-replied"
		edit(&in)
		return in
	}
	for _, c := range []struct {
		name    string
		in      desk.InboundEvent
		outcome desk.Outcome
	}{
		{"to nothing", auto(func(*desk.InboundEvent) {}), desk.Recorded},
		{"to a message", auto(func(in *desk.InboundEvent) { in.Event.Message.Mail.InReplyTo = []string{"m1@c.example"} }), desk.Noted},
		{"by the number, from a stranger", auto(func(in *desk.InboundEvent) { in.Event.Message.Mail.TicketTag = 1 }), desk.Recorded},
		{"generated", auto(func(in *desk.InboundEvent) { in.Event.Message.Mail.Generated = true }), desk.TicketCreated},
		{"generated, refused", auto(func(in *desk.InboundEvent) { in.Event.Message.Mail.Generated, in.RefuseGenerated = true, true }), desk.Recorded},
	} {
		for _, status := range []desk.Status{desk.StatusPending, desk.StatusClosed} {
			t.Run(c.name+" "+string(status), func(t *testing.T) {
				f := newFixture(t)
				one := f.intake(mail("ana@c.example", "m1@c.example"))
				f.setStatus(one.TicketID, status)
				before := f.ticket(one.TicketID)
				f.emitted()
				r := f.intake(c.in)
				if r.Outcome != c.outcome || r.Class != channel.ClassAutoReply || r.ClassRule == "" || r.MayAnswer {
					t.Fatalf("got %+v, want %s", r, c.outcome)
				}
				if after := f.ticket(one.TicketID); after.Status != before.Status || !after.UpdatedAt.Equal(before.UpdatedAt) {
					t.Errorf("the ticket changed: %+v", after)
				}
				customers, events := 1, ""
				switch c.outcome {
				case desk.TicketCreated:
					customers, events = 2, "customer.created ticket.created conversation.created message.created"
				case desk.Noted:
					m := f.messages(one.TicketID)
					if last := m[len(m)-1]; r.TicketID != one.TicketID || !last.Details.Collapsed || last.Kind != "note" || last.Author.Name != "away@c.example" {
						t.Errorf("message: %+v", last)
					}
					if again := f.intake(c.in); again.Outcome != desk.Duplicate {
						t.Errorf("again: %+v", again)
					}
				}
				if got := f.emitted(); got != events {
					t.Errorf("events\n got %s\nwant %s", got, events)
				}
				if n := f.count("customers"); n != customers {
					t.Errorf("%d customers, want %d", n, customers)
				}
			})
		}
	}
}

func TestBounce(t *testing.T) {
	f := newFixture(t)
	f.intake(mail("ana@c.example", "m1@c.example"))
	sent := mail("grace@a.example", "sent@a.example")
	sent.Event.Message.To, sent.Event.Message.Mail.Proof.Verdict, sent.Event.Message.Mail.InReplyTo = []channel.Party{{Email: "ana@c.example"}}, mailauth.Proven, []string{"m1@c.example"}
	reply := f.intake(sent)
	f.setStatus(reply.TicketID, desk.StatusResolved)
	f.emitted()

	bounce := mail("mailer-daemon@c.example", "b1@c.example")
	bounce.Event.Message.HTML, bounce.Event.Message.Stripped = "<p>Sorry</p>", "Sorry"
	m := bounce.Event.Message.Mail
	m.Class, m.Rule = channel.ClassBounce, "multipart/report"
	m.Receipt = &channel.Receipt{
		ExternalIDs: []string{"sent@a.example"}, State: channel.ReceiptFailed, Error: "mailbox unavailable",
		Recipient: "Ana@C.example", Permanent: true, Note: "550 5.1.1 no such user",
	}
	for i, want := range []desk.Outcome{desk.ReceiptApplied, desk.Duplicate} {
		if r := f.intake(bounce); r.Outcome != want || r.Class != channel.ClassBounce || r.TicketID != reply.TicketID {
			t.Errorf("delivery %d: %+v, want %s", i+1, r, want)
		}
	}
	if got := f.emitted(); got != "" {
		t.Errorf("events %s", got)
	}
	messages := f.messages(reply.TicketID)
	if len(messages) != 3 {
		t.Fatalf("%d messages, want 3", len(messages))
	}
	if d := messages[1].Delivery; d.State != channel.ReceiptFailed || d.Error != "mailbox unavailable" {
		t.Errorf("delivery: %+v", d)
	}
	note := messages[2]
	want := "The message could not be delivered (Ana@C.example): mailbox unavailable\n\n550 5.1.1 no such user"
	if note.Kind != "note" || note.Author.Type != "system" || note.Text != want || note.HTML != "" || note.Stripped != "" || note.PlacedBy != desk.RuleReceipt || note.Details.Class != channel.ClassBounce {
		t.Errorf("note: %+v", note)
	}
	ticket := f.ticket(reply.TicketID)
	if ticket.Status != desk.StatusResolved {
		t.Errorf("a bounce reopened the ticket: %s", ticket.Status)
	}
	c, err := f.desk.Customer(t.Context(), f.db, orgA, ticket.Customer.ID)
	if err != nil || len(c.Undeliverable) != 1 || c.Undeliverable[0] != "ana@c.example" {
		t.Errorf("customer: %+v, %v", c, err)
	}
	if n := f.count("customers"); n != 1 {
		t.Errorf("%d customers; a mail server is none", n)
	}
}

// A bounce flags only addresses that the message was sent to: any recipient can
// forge one.
func TestBounceOfAnotherAddress(t *testing.T) {
	f := newFixture(t)
	bob := f.intake(mail("bob@c.example", "m0@c.example"))
	first := mail("eve@x.example", "m1@x.example")
	f.intake(first)
	sent := mail("grace@a.example", "sent@a.example")
	sent.Event.Message.To, sent.Event.Message.Mail.Proof.Verdict, sent.Event.Message.Mail.InReplyTo = []channel.Party{{Email: "eve@x.example"}}, mailauth.Proven, []string{"m1@x.example"}
	f.intake(sent)

	bounce := mail("mailer-daemon@x.example", "b1@x.example")
	bounce.Event.Message.Mail.Class = channel.ClassBounce
	bounce.Event.Message.Mail.Receipt = &channel.Receipt{
		ExternalIDs: []string{"sent@a.example"}, State: channel.ReceiptFailed, Recipient: "bob@c.example", Permanent: true,
	}
	if r := f.intake(bounce); r.Outcome != desk.ReceiptApplied {
		t.Errorf("got %+v", r)
	}
	c, err := f.desk.Customer(t.Context(), f.db, orgA, bob.CustomerID)
	if err != nil || len(c.Undeliverable) != 0 {
		t.Errorf("customer: %+v, %v", c, err)
	}
}

func TestBounceOfWhat(t *testing.T) {
	f := newFixture(t)
	f.intake(mail("ana@c.example", "m1@c.example"))
	sent := mail("grace@a.example", "sent@a.example")
	sent.Event.Message.To, sent.Event.Message.Mail.Proof.Verdict, sent.Event.Message.Mail.InReplyTo = []channel.Party{{Email: "ana@c.example"}}, mailauth.Proven, []string{"m1@c.example"}
	f.intake(sent)
	for i, c := range []struct {
		name string
		edit func(in *desk.InboundEvent)
		want desk.Outcome
	}{
		{"the returned mail's id", func(in *desk.InboundEvent) { in.Event.Message.Mail.EmbeddedIDs = []string{"SENT@a.example"} }, desk.ReceiptApplied},
		{"an answer to it", func(in *desk.InboundEvent) { in.Event.Message.Mail.InReplyTo = []string{"sent@a.example"} }, desk.ReceiptApplied},
		{"a customer's own mail", func(in *desk.InboundEvent) { in.Event.Message.Mail.EmbeddedIDs = []string{"m1@c.example"} }, desk.Recorded},
		{"nothing", func(*desk.InboundEvent) {}, desk.Recorded},
		{"no report", func(in *desk.InboundEvent) {
			in.Event.Message.Mail.Receipt, in.Event.Message.Mail.EmbeddedIDs = nil, []string{"sent@a.example"}
		}, desk.Recorded},
		{"another organization's", func(in *desk.InboundEvent) {
			in.OrganizationID, in.ConnectionID, in.Event.Message.Mail.EmbeddedIDs = orgB, mailB, []string{"sent@a.example"}
		}, desk.Recorded},
	} {
		bounce := mail("mailer-daemon@c.example", fmt.Sprintf("b%d@c.example", i))
		bounce.Event.Message.Mail.Class = channel.ClassBounce
		bounce.Event.Message.Mail.Receipt = &channel.Receipt{State: channel.ReceiptDelayed}
		c.edit(&bounce)
		if r := f.intake(bounce); r.Outcome != c.want || (r.Reason != "") != (c.want == desk.Recorded) {
			t.Errorf("%s: %+v, want %s", c.name, r, c.want)
		}
	}
	if n := f.count("tickets"); n != 1 {
		t.Errorf("%d tickets, want 1", n)
	}
}

func TestVoicemail(t *testing.T) {
	f := newFixture(t)
	caller := f.intake(text("+4915112345678", "hello"))
	in := mail("no-reply@voice.example", "v1@voice.example")
	in.Event.Message.Mail.Class, in.Event.Message.Mail.Caller = channel.ClassVoicemail, "+4915112345678"
	in.Event.Message.Mail.TicketTag = 1
	in.Event.Message.Attachments = []channel.Attachment{{Name: "voicemail.mp3", ContentType: "audio/mpeg", Data: []byte("ID3")}}
	r := f.intake(in)
	if r.Outcome != desk.TicketCreated || r.CustomerID != caller.CustomerID || r.TicketID == caller.TicketID || r.MayAnswer {
		t.Errorf("got %+v, want a new ticket of the caller", r)
	}
	if again := f.intake(in); again.Outcome != desk.Duplicate {
		t.Errorf("again: %+v", again)
	}
	ticket, m := f.ticket(r.TicketID), f.messages(r.TicketID)[0]
	if ticket.Channel != "voice" || m.Channel != "voice" || len(m.Attachments) != 1 || m.Author.ID != caller.CustomerID {
		t.Errorf("ticket %+v, message %+v", ticket, m)
	}
	in = mail("no-reply@voice.example", "v2@voice.example")
	in.Event.Message.Mail.Class = channel.ClassVoicemail
	if r := f.intake(in); r.Outcome != desk.TicketCreated || r.CustomerID == caller.CustomerID {
		t.Errorf("of a withheld number: %+v", r)
	}
}

func TestAttachments(t *testing.T) {
	f := newFixture(t)
	in := mail("ana@c.example", "m1@c.example")
	in.Event.Message.HTML = `<p>see <img src="cid:logo@x"><img src="cid:sp%20ace"><img src="cid:a&amp;b"><img src="cid:none"> cid:logo@x</p>`
	in.Event.Message.Attachments = []channel.Attachment{
		{Name: "logo.png", ContentType: "image/png", ContentID: "logo@x", Inline: true, Data: []byte("png")},
		{ContentID: "sp ace", Data: []byte("png")},
		{Name: "b.bin", ContentID: "a&b", Data: []byte("")},
		{Name: "lost.jpg", URL: "https://media.example/1", Error: "gone"},
	}
	r := f.intake(in)
	m := f.messages(r.TicketID)[0]
	if len(m.Attachments) != 4 {
		t.Fatalf("%d attachments", len(m.Attachments))
	}
	a := m.Attachments
	want := `<p>see <img src="/attachments/` + a[0].ID + `"><img src="/attachments/` + a[1].ID + `"><img src="/attachments/` + a[2].ID +
		`"><img src="cid:none"> cid:logo@x</p>`
	if m.HTML != want {
		t.Errorf("html\n got %s\nwant %s", m.HTML, want)
	}
	if a[0].Name != "logo.png" || a[0].Size != 3 || !a[0].Inline || a[0].URL != "https://desk.example/attachments/"+a[0].ID ||
		a[1].Name != "attachment-2" || a[1].ContentType != "application/octet-stream" || a[2].Size != 0 || a[2].Error != "" ||
		a[3].Error != "gone" || a[3].BlobKey != "" || a[0].BlobKey != a[1].BlobKey {
		t.Errorf("attachments: %+v", a)
	}
	found, err := f.desk.Attachment(t.Context(), f.db, orgA, a[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	file, err := f.blob.Open(t.Context(), found.BlobKey)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if data, err := io.ReadAll(file); err != nil || string(data) != "png" {
		t.Errorf("content %q, %v", data, err)
	}
	e := f.log[len(f.log)-1].Data.Message
	if !strings.Contains(e.HTML, `<img src="https://desk.example/attachments/`+a[0].ID+`">`) || len(e.Attachments) != 4 || e.Attachments[0].URL != a[0].URL {
		t.Errorf("event: %+v", e)
	}
}

// TestDoubtfulAutoReply covers mail that only its subject marks as an automatic
// reply.
func TestDoubtfulAutoReply(t *testing.T) {
	doubtful := func(answers ...string) desk.InboundEvent {
		in := mail("away@c.example", "auto@c.example")
		m := in.Event.Message.Mail
		m.Class, m.Rule, m.Doubtful, m.InReplyTo = channel.ClassAutoReply, "subject: out of office", true, answers
		return in
	}
	f := newFixture(t)
	f.intake(mail("ana@c.example", "m1@c.example"))
	if r := f.intake(doubtful("m1@c.example")); r.Outcome != desk.Noted || r.Class != channel.ClassAutoReply {
		t.Errorf("in answer to ours: %+v", r)
	}
	f = newFixture(t)
	if r := f.intake(doubtful("unknown@elsewhere.example")); r.Outcome != desk.TicketCreated || r.Class != channel.ClassInbound {
		t.Errorf("in answer to nothing of ours: %+v", r)
	}
}
