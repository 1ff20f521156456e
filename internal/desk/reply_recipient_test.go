package desk_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// proven marks a mail as proven, without coverage of some headers.
func proven(m *channel.Message, uncovered ...string) {
	m.Mail.Proof = mailauth.Result{Verdict: mailauth.Proven, Reason: "DKIM", Uncovered: uncovered}
}

// guarded is a fixture with outbound mail.
func guarded(t *testing.T) *fixture {
	return newFixture(t, func(c *desk.Config) { c.Dispatcher = dispatcher{} })
}

// answer replies as Grace, and returns the queued message.
func (f *fixture) answer(ticketID string, r desk.Reply) (desk.Message, error) {
	r.By, r.Content = grace, f.compose(desk.Draft{Text: "x"})
	return write(f, func(tx *db.Tx) (desk.Message, error) { return f.desk.ReplyTx(f.Context(), tx, orgA, ticketID, r) })
}

// recipients lists the recipients of a reply, copies after a bar.
func (f *fixture) recipients(ticketID string, r desk.Reply) string {
	f.Helper()
	m, err := f.answer(ticketID, r)
	if err != nil {
		f.Fatal(err)
	}
	var list []string
	for _, a := range slices.Concat(m.Details.To, []desk.Address{{Email: "|"}}, m.Details.Cc) {
		list = append(list, a.Email)
	}
	return strings.Join(list, " ")
}

// last is the newest message of a ticket.
func (f *fixture) last(ticketID string) desk.Message {
	list := f.messages(ticketID)
	return list[len(list)-1]
}

// change returns the recipient change of a message, in one line.
func change(m desk.Message) string {
	if c := m.Details.RecipientChanged; c != nil && c.Reason != "" {
		return c.From + " > " + c.To
	}
	return ""
}

// offered returns the choices of the first reply option.
func (f *fixture) offered(ticketID string) (offers, withheld []string) {
	f.Helper()
	ways, err := f.desk.ReplyOptions(f.Context(), f.db, orgA, ticketID)
	if err != nil {
		f.Fatal(err)
	}
	for _, o := range ways[0].Offers {
		offers = append(offers, o.To)
	}
	for _, a := range ways[0].Withheld {
		withheld = append(withheld, a.Email)
	}
	return offers, withheld
}

// TestForgedAgentMail: an agent's unproven address has no privileges. Such a mail
// is no agent's message, does not follow a ticket number, is no copy of an outbound
// message, and stops no clock.
func TestForgedAgentMail(t *testing.T) {
	forged := func(edit func(m *channel.Message)) desk.InboundEvent {
		in := mail("grace@a.example", "forged@evil.example")
		edit(in.Event.Message)
		return in
	}
	toAna := func(m *channel.Message) { m.To = []channel.Party{{Email: "ana@c.example"}} }
	replies := func(m *channel.Message) { m.Mail.InReplyTo = []string{"m1@c.example"} }
	for name, tt := range map[string]struct {
		in     desk.InboundEvent
		joined bool
	}{
		"by number":            {forged(func(m *channel.Message) { m.Mail.TicketTag = 1 }), false},
		"in the thread":        {forged(replies), true},
		"to the customer":      {forged(func(m *channel.Message) { toAna(m); replies(m) }), true},
		"of its own":           {forged(toAna), false},
		"disowned":             {forged(func(m *channel.Message) { replies(m); m.Mail.Proof.Verdict = mailauth.Failed }), true},
		"replayed by number":   {forged(func(m *channel.Message) { m.Mail.TicketTag = 1; proven(m, "cc") }), false},
		"replayed, other Cc":   {forged(func(m *channel.Message) { toAna(m); replies(m); proven(m, "cc") }), true},
		"replayed into thread": {forged(func(m *channel.Message) { toAna(m); replies(m); proven(m, "in-reply-to") }), true},
		"replayed as a note":   {forged(func(m *channel.Message) { replies(m); proven(m, "in-reply-to") }), true},
	} {
		f := guarded(t)
		one := f.intake(mail("ana@c.example", "m1@c.example"))
		f.emitted()
		r := f.intake(tt.in)
		m := f.last(r.TicketID)
		if (r.TicketID == one.TicketID) != tt.joined || r.Class != channel.ClassInbound || m.Direction != desk.DirectionInbound ||
			m.Author.Type != desk.AuthorCustomer || m.Author.ID == graceID || m.Kind != desk.KindReply || m.Details.SentElsewhere {
			t.Errorf("%s: %+v, %+v", name, r, m)
		}
		if got := f.emitted(); strings.Contains(got, "agent_reply") {
			t.Errorf("%s: emitted %s", name, got)
		}
		if !f.ticket(one.TicketID).FirstRespondedAt.IsZero() {
			t.Errorf("%s: counts as a response", name)
		}
		if got := f.recipients(one.TicketID, desk.Reply{}); got != "ana@c.example |" {
			t.Errorf("%s: an answer goes to %s", name, got)
		}
	}
}

// TestTicketNumberNeverChangesRecipient: a number can be guessed, so a mail placed
// by it changes neither the recipient nor the conversation nor the copies, even if
// proven.
func TestTicketNumberNeverChangesRecipient(t *testing.T) {
	for _, verdict := range []mailauth.Verdict{mailauth.Unproven, mailauth.Proven} {
		for name, tt := range map[string]struct {
			from string
			edit func(m *channel.Message)
			want string
		}{
			"the customer, Reply-To":   {"ana@c.example", func(m *channel.Message) { m.From.Email = "eve@c.example" }, "ana@c.example > eve@c.example"},
			"the customer, Cc":         {"ana@c.example", func(m *channel.Message) { m.Cc = []channel.Party{{Email: "eve@evil.example"}} }, ""},
			"a participant":            {"bob@c.example", func(*channel.Message) {}, "ana@c.example > bob@c.example"},
			"a participant's Reply-To": {"bob@c.example", func(m *channel.Message) { m.From.Email = "eve@evil.example" }, "ana@c.example > eve@evil.example"},
		} {
			f := guarded(t)
			first := mail("ana@c.example", "m1@c.example")
			first.Event.Message.Cc = []channel.Party{{Email: "bob@c.example"}}
			one := f.intake(first)
			in := mail(tt.from, "m2@c.example")
			tt.edit(in.Event.Message)
			in.Event.Message.Mail.TicketTag, in.Event.Message.Mail.Proof.Verdict = 1, verdict
			if r := f.intake(in); r.TicketID != one.TicketID || r.PlacedBy != desk.RuleTicketTag {
				t.Fatalf("%s: %+v", name, r)
			}
			if got := change(f.last(one.TicketID)); got != tt.want {
				t.Errorf("%s, %s: change %q, want %q", name, verdict, got, tt.want)
			}
			if got := f.recipients(one.TicketID, desk.Reply{}); got != "ana@c.example | bob@c.example" {
				t.Errorf("%s, %s: an answer goes to %s", name, verdict, got)
			}
		}
	}
	// The reply to a text stays a text.
	f := guarded(t)
	sms := text("+4915112345678", "hello")
	sms.Event.Message.From.Email = "ana@c.example"
	one := f.intake(sms)
	in := mail("ana@c.example", "m1@c.example")
	in.Event.Message.Mail.TicketTag = 1
	f.intake(in)
	if m, err := f.answer(one.TicketID, desk.Reply{}); err != nil || m.Channel != "sms" {
		t.Errorf("answered by %s, %v", m.Channel, err)
	}
}

// TestReplyToNeverChangesRecipientSilently: an unproven Reply-To must not redirect
// an agent's reply.
func TestReplyToNeverChangesRecipientSilently(t *testing.T) {
	for _, tt := range []struct {
		name        string
		from, reply string
		edit        func(m *channel.Message)
		first       bool   // it starts the ticket
		to          string // the recipient of replies
		change      string
		customer    string // of the first mail; from by default
	}{
		{"unproven, first", "ana@c.example", "eve@evil.example", func(*channel.Message) {}, true, "ana@c.example", "ana@c.example > eve@evil.example", ""},
		{"unproven, same domain, first", "ana@c.example", "eve@c.example", func(*channel.Message) {}, true, "ana@c.example", "ana@c.example > eve@c.example", ""},
		{"proven, elsewhere, first", "ana@c.example", "ana@home.example", func(m *channel.Message) { proven(m) }, true, "ana@c.example", "ana@c.example > ana@home.example", ""},
		{"proven, same organization, first", "ana@c.example", "ana+1@mail.c.example", func(m *channel.Message) { proven(m) }, true, "ana+1@mail.c.example", "", "ana+1@mail.c.example"},
		{"proven, Reply-To added to a replay, first", "ana@c.example", "eve@c.example", func(m *channel.Message) { proven(m, "reply-to") }, true, "ana@c.example", "ana@c.example > eve@c.example", ""},
		{"a contact form of ours, first", "web@a.example", "ana@c.example", func(*channel.Message) {}, true, "ana@c.example", "", "ana@c.example"},
		{"a form that nobody reads, first", "noreply@forms.example", "ana@c.example", func(*channel.Message) {}, true, "ana@c.example", "", "ana@c.example"},
		{"to one of us, first", "ana@c.example", "grace@a.example", func(*channel.Message) {}, true, "ana@c.example", "", ""},

		{"unproven", "ana@c.example", "eve@evil.example", func(*channel.Message) {}, false, "ana@c.example", "ana@c.example > eve@evil.example", ""},
		{"failed", "ana@c.example", "eve@evil.example", func(m *channel.Message) { m.Mail.Proof.Verdict = mailauth.Failed }, false, "ana@c.example", "ana@c.example > eve@evil.example", ""},
		{"proven, elsewhere", "ana@c.example", "eve@evil.example", func(m *channel.Message) { proven(m) }, false, "ana@c.example", "ana@c.example > eve@evil.example", ""},
		{"proven, added to a replay", "ana@c.example", "eve@c.example", func(m *channel.Message) { proven(m, "reply-to") }, false, "ana@c.example", "ana@c.example > eve@c.example", ""},
		{"proven, same organization", "ana@c.example", "ana2@c.example", func(m *channel.Message) { proven(m) }, false, "ana2@c.example", "", ""},
		{"a form of ours has no say in a thread", "web@a.example", "eve@evil.example", func(*channel.Message) {}, false, "ana@c.example", "ana@c.example > eve@evil.example", ""},
		{"to whom gets copies", "ana@c.example", "bob@c.example", func(*channel.Message) {}, false, "bob@c.example", "", ""},
		{"back to the customer", "eve@evil.example", "ana@c.example", func(*channel.Message) {}, false, "ana@c.example", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := guarded(t)
			id := "m1@c.example"
			if !tt.first {
				first := mail("ana@c.example", id)
				first.Event.Message.Cc = []channel.Party{{Email: "bob@c.example"}}
				f.intake(first)
				id = "m2@c.example"
			}
			in := mail(tt.from, id)
			in.Event.Message.From.Email = tt.reply
			if !tt.first {
				in.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
			}
			tt.edit(in.Event.Message)
			r := f.intake(in)
			if got := change(f.last(r.TicketID)); got != tt.change {
				t.Errorf("change %q, want %q", got, tt.change)
			}
			if to, _, _ := strings.Cut(f.recipients(r.TicketID, desk.Reply{}), " |"); to != tt.to {
				t.Errorf("an answer goes to %s, want %s", to, tt.to)
			}
			want := tt.customer
			if want == "" {
				want = tt.from
			}
			if got := f.ticket(r.TicketID).Customer.Email; tt.first && got != want {
				t.Errorf("customer %s, want %s", got, want)
			}
		})
	}
}

// TestForgedFromInThread: a sender with a known message id may write into the
// thread, but neither the sender nor the mail's recipients get replies or copies
// until an agent selects them or the address is proven.
func TestForgedFromInThread(t *testing.T) {
	f := guarded(t)
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	in := mail("eve@evil.example", "m2@evil.example")
	in.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
	in.Event.Message.Subject = "Your new invoice"
	in.Event.Message.Cc = []channel.Party{{Email: "mallory@evil.example"}}
	f.intake(in)
	m := f.last(one.TicketID)
	if !m.Details.NewParticipant || change(m) != "ana@c.example > eve@evil.example" {
		t.Errorf("message %+v", m)
	}
	sent, err := f.answer(one.TicketID, desk.Reply{})
	if d := sent.Details; err != nil || len(d.To) != 1 || d.To[0].Email != "ana@c.example" || len(d.Cc) != 0 || d.Subject != "Re: Lost key" || d.InReplyTo != "m1@c.example" {
		t.Errorf("the answer %+v, %v", d, err)
	}
	// In the customer's name, with an additional Cc.
	in = mail("ana@c.example", "m3@evil.example")
	in.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
	in.Event.Message.Cc = []channel.Party{{Email: "eve2@evil.example"}}
	f.intake(in)
	if got := f.recipients(one.TicketID, desk.Reply{}); got != "ana@c.example |" {
		t.Errorf("an answer goes to %s", got)
	}
	offers, withheld := f.offered(one.TicketID)
	slices.Sort(withheld)
	if !slices.Equal(offers, []string{"eve@evil.example"}) || !slices.Equal(withheld, []string{"eve2@evil.example", "mallory@evil.example"}) {
		t.Errorf("offered %q, withheld %q", offers, withheld)
	}
	// A merge and an unmerge confirm nobody.
	two := f.intake(mail("zoe@c.example", "z1@c.example"))
	if _, err := f.merge(orgA, one.TicketID, two.TicketID); err != nil {
		t.Fatal(err)
	}
	if got := f.recipients(two.TicketID, desk.Reply{ConversationID: one.ConversationID}); strings.Contains(got, "evil") {
		t.Errorf("after a merge an answer goes to %s", got)
	}
	if _, err := f.unmerge(orgA, one.TicketID); err != nil {
		t.Fatal(err)
	}
	if got := f.recipients(one.TicketID, desk.Reply{}); strings.Contains(got, "evil") {
		t.Errorf("after its end an answer goes to %s", got)
	}
	// Once proven, the stranger gets the reply, and the customer a copy.
	in = mail("eve@evil.example", "m4@evil.example")
	in.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
	proven(in.Event.Message)
	f.intake(in)
	if got := f.recipients(one.TicketID, desk.Reply{}); got != "eve@evil.example | ana@c.example" {
		t.Errorf("proven: an answer goes to %s", got)
	}
}

// An agent may select the other address, which holds from then on.
func TestChosenRecipient(t *testing.T) {
	f := guarded(t)
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	in := mail("ana@home.example", "m2@home.example")
	in.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
	in.Event.Message.Cc = []channel.Party{{Email: "bob@home.example", Name: "Bob"}}
	f.intake(in)
	for i, r := range []desk.Reply{{To: "eve@evil.example"}, {To: "nobody"}, {Cc: []string{"nobody"}}, {Bcc: []string{"a@b.example, c@d.example"}}, {Cc: []string{"Sales@a.example"}},
		{Bcc: []string{"support@a.example"}}, {Cc: slices.Repeat([]string{"x@c.example"}, 21)}} {
		if _, err := f.answer(one.TicketID, r); problem.Of(err) != problem.Invalid {
			t.Errorf("choice %d: %v", i, err)
		}
	}
	if got := f.recipients(one.TicketID, desk.Reply{To: "ANA@c.example"}); got != "ana@c.example |" {
		t.Errorf("the known recipient, chosen: %s", got)
	}
	if offers, withheld := f.offered(one.TicketID); !slices.Equal(offers, []string{"ana@home.example"}) || !slices.Equal(withheld, []string{"bob@home.example"}) {
		t.Errorf("offered %q, withheld %q", offers, withheld)
	}
	if got := f.recipients(one.TicketID, desk.Reply{To: "Ana@home.example", Cc: []string{"Bob@home.example"}}); got != "ana@home.example | ana@c.example bob@home.example" {
		t.Errorf("chosen: %s", got)
	}
	if m := f.last(one.TicketID); !m.Details.Chosen || m.Details.InReplyTo != "m2@home.example" {
		t.Errorf("the answer %+v", m.Details)
	}
	for i := range 2 {
		if got := f.recipients(one.TicketID, desk.Reply{}); got != "ana@home.example | ana@c.example bob@home.example" {
			t.Errorf("from then on: %s", got)
		}
		if offers, withheld := f.offered(one.TicketID); offers != nil || withheld != nil {
			t.Errorf("still offered %q, withheld %q", offers, withheld)
		}
		in := mail("ana@home.example", fmt.Sprintf("m%d@home.example", 3+i))
		in.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
		f.intake(in)
		if got := change(f.last(one.TicketID)); got != "" {
			t.Errorf("asked again: %s", got)
		}
	}
	// A text has no choices.
	sms := f.intake(text("+4915112345678", "hello"))
	if _, err := f.answer(sms.TicketID, desk.Reply{To: "ana@c.example"}); problem.Of(err) != problem.Invalid {
		t.Errorf("by text: %v", err)
	}
}

// An agent may add and drop copies, which holds from then on, and add blind copies, which do not.
func TestCopies(t *testing.T) {
	f := guarded(t)
	in := mail("ana@c.example", "m1@c.example")
	in.Event.Message.Cc = []channel.Party{{Email: "bob@c.example", Name: "Bob"}}
	proven(in.Event.Message)
	one := f.intake(in)
	if got := f.recipients(one.TicketID, desk.Reply{Cc: []string{" Eve@d.example", "eve@d.example", "ana@c.example"}, Bcc: []string{"eve@d.example", "law@d.example"}}); got != "ana@c.example | bob@c.example Eve@d.example" {
		t.Errorf("with more copies: %s", got)
	}
	if m := f.last(one.TicketID); len(m.Details.Bcc) != 1 || m.Details.Bcc[0].Email != "law@d.example" {
		t.Errorf("blind copies %+v", m.Details.Bcc)
	} else if w := f.waiting(m.ID); len(w.Bcc) != 1 || w.Bcc[0].Email != "law@d.example" || len(w.Cc) != 2 {
		t.Errorf("it leaves with copies %+v, blind %+v", w.Cc, w.Bcc)
	}
	if got := f.recipients(one.TicketID, desk.Reply{Drop: []string{"BOB@c.example"}}); got != "ana@c.example | eve@d.example" {
		t.Errorf("without Bob: %s", got)
	}
	if got := f.recipients(one.TicketID, desk.Reply{}); got != "ana@c.example | eve@d.example" {
		t.Errorf("from then on: %s", got)
	}
	if _, withheld := f.offered(one.TicketID); !slices.Equal(withheld, []string{"bob@c.example"}) {
		t.Errorf("offered are %q", withheld)
	}
	if got := f.recipients(one.TicketID, desk.Reply{Cc: []string{"bob@c.example"}}); got != "ana@c.example | eve@d.example bob@c.example" {
		t.Errorf("with Bob again: %s", got)
	}
	if m := f.last(one.TicketID); m.Details.Cc[1].Name != "Bob" || m.Details.Bcc != nil {
		t.Errorf("copies %+v, blind %+v", m.Details.Cc, m.Details.Bcc)
	}
}

// TestBlindCopyAnswers: whoever got a blind copy does not become the recipient by answering, and the
// number of the ticket lets them in no more than anybody else, until an agent selects them.
func TestBlindCopyAnswers(t *testing.T) {
	f := guarded(t)
	in := mail("ana@c.example", "m1@c.example")
	proven(in.Event.Message)
	one := f.intake(in)
	sent, err := f.answer(one.TicketID, desk.Reply{Bcc: []string{"Law@d.example"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"l1@d.example", "l2@d.example"} {
		in = answerTo(sent, "law@d.example", id)
		proven(in.Event.Message)
		in.Event.Message.Cc = []channel.Party{{Email: "clerk@d.example"}}
		if id == "l2@d.example" { // replies elsewhere, as the domain proves
			in.Event.Message.From.Email = "office@d.example"
		}
		if r := f.intake(in); r.TicketID != one.TicketID {
			t.Fatalf("the answer joins %+v", r)
		}
		if got := f.last(one.TicketID); !strings.HasPrefix(change(got), "ana@c.example > ") || !strings.Contains(got.Details.RecipientChanged.Reason, "blind copy") {
			t.Errorf("it asks for %+v", got.Details.RecipientChanged)
		}
		if got := f.recipients(one.TicketID, desk.Reply{}); got != "ana@c.example |" {
			t.Errorf("after %s a reply goes to %s", id, got)
		}
	}
	if _, withheld := f.offered(one.TicketID); slices.Contains(withheld, "law@d.example") {
		t.Errorf("copies are offered for %q", withheld)
	}
	in = mail("law@d.example", "l3@d.example")
	proven(in.Event.Message)
	in.Event.Message.Mail.TicketTag = f.ticket(one.TicketID).Number
	if r := f.intake(in); r.TicketID == one.TicketID {
		t.Error("the number in the subject lets them in")
	}
	// As a copy they take part.
	if got := f.recipients(one.TicketID, desk.Reply{Cc: []string{"law@d.example"}}); got != "ana@c.example | law@d.example" {
		t.Errorf("with a copy it goes to %s", got)
	}
	in = answerTo(f.last(one.TicketID), "law@d.example", "l4@d.example")
	f.intake(in)
	if got := f.recipients(one.TicketID, desk.Reply{}); got != "law@d.example | ana@c.example" {
		t.Errorf("after that a reply goes to %s", got)
	}
}
