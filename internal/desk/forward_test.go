package desk_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func (f *fixture) forward(org, ticketID string, w desk.Forward) (desk.Message, error) {
	w.By = grace
	return write(f, func(tx *db.Tx) (desk.Message, error) { return f.desk.ForwardTx(f.Context(), tx, org, ticketID, w) })
}

// answerTo is a mail that answers a message.
func answerTo(m desk.Message, from, id string) desk.InboundEvent {
	in := mail(from, id)
	in.Event.Message.Mail.InReplyTo = []string{m.ExternalID}
	in.Event.Message.Text = "It is in stock."
	return in
}

func TestForward(t *testing.T) {
	f := guarded(t)
	in := mail("ana@c.example", "m1@c.example")
	in.Event.Message.Text, in.Event.Message.HTML = "Where is it?", `<p>Where <img src="cid:p1"> is it?</p>`
	in.Event.Message.Attachments = []channel.Attachment{
		{Name: "bike.png", ContentType: "image/png", ContentID: "p1", Inline: true, Data: []byte("bike")}, {Name: "bill.pdf", ContentType: "application/pdf", Data: []byte("bill")},
	}
	one := f.intake(in)
	if _, err := f.note(orgA, one.TicketID, grace, desk.Draft{Note: true, Text: "secret"}); err != nil {
		t.Fatal(err)
	}
	f.reply(one.TicketID, "We ask.")
	f.setStatus(one.TicketID, desk.StatusPending)
	f.emitted()
	m, err := f.forward(orgA, one.TicketID, desk.Forward{
		To: "parts@supplier.example", Content: f.compose(desk.Draft{Text: "Is it **there**?", Attachments: []channel.Attachment{{Name: "list.txt", Data: []byte("list")}}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.Kind != desk.KindForward || m.ConversationID == one.ConversationID || m.Stripped != "Is it **there**?" || m.Details.Subject != "Fwd: "+f.ticket(one.TicketID).Subject {
		t.Errorf("forwarded as %+v", m)
	}
	for _, want := range []string{"Is it **there**?\n\n---------- Forwarded message ----------\nFrom: <ana@c.example>\nDate: ", "Where is it?", "We ask."} {
		if !strings.Contains(m.Text, want) {
			t.Errorf("the text %q lacks %q", m.Text, want)
		}
	}
	w := f.waiting(m.ID)
	if w.To.Email != "parts@supplier.example" || w.Cc != nil || strings.Contains(w.Text+w.HTML, "secret") || len(w.Files) != 3 || w.Files[1].ContentID == "" {
		t.Errorf("it leaves to %+v with %+v: %s", w.To, w.Files, w.Text)
	}
	if want := `<p>Where <img src="cid:` + w.Files[1].ContentID + `"> is it?</p>`; !strings.Contains(w.HTML, want) || !strings.HasPrefix(w.HTML, "<p>Is it <strong>there</strong>?</p>") {
		t.Errorf("its HTML %q lacks %q", w.HTML, want)
	}
	for i, want := range []string{"list", "bike", "bill"} {
		if got := f.content(w.File(i)); got != want {
			t.Errorf("file %d has %q, want %q", i, got, want)
		}
	}
	if got := f.emitted(); got != "" {
		t.Errorf("it emitted %q", got)
	}

	// The answer joins, from somebody who is no customer and no participant.
	customers := f.count("customers")
	in = answerTo(m, "sam@supplier.example", "s1@supplier.example")
	proven(in.Event.Message)
	in.Event.Message.Mail.Sender.Name = "Sam"
	in.Event.Message.Cc = []channel.Party{{Email: "boss@supplier.example"}}
	r := f.intake(in)
	got := f.last(one.TicketID)
	if r.TicketID != one.TicketID || r.ConversationID != m.ConversationID || got.Kind != desk.KindForward || got.Direction != desk.DirectionInbound || got.Author.Name != "Sam" || got.Author.ID != "" {
		t.Errorf("the answer is %+v", got)
	}
	if n := f.count("customers"); n != customers {
		t.Errorf("it made %d customers", n-customers)
	}
	if ticket := f.ticket(one.TicketID); ticket.Status != desk.StatusOpen || ticket.Customer.Email != "ana@c.example" {
		t.Errorf("the ticket is %s of %s", ticket.Status, ticket.Customer.Email)
	}
	if got := f.emitted(); strings.Contains(got, "message") {
		t.Errorf("it emitted %q", got)
	}
	// Replies go to the customer alone, unless the conversation is selected.
	if got := f.recipients(one.TicketID, desk.Reply{}); got != "ana@c.example |" {
		t.Errorf("a reply goes to %s", got)
	}
	if got := f.recipients(one.TicketID, desk.Reply{ConversationID: m.ConversationID}); got != "sam@supplier.example |" {
		t.Errorf("a reply to the answer goes to %s", got)
	}
	if got := f.last(one.TicketID); got.Kind != desk.KindForward || got.Details.InReplyTo != "s1@supplier.example" || !strings.HasPrefix(got.Details.Subject, "Re: ") {
		t.Errorf("it is %+v", got)
	}
	options, err := f.desk.ReplyOptions(t.Context(), f.db, orgA, one.TicketID)
	if err != nil || len(options) != 2 || options[0].Forwarded || !options[1].Forwarded || options[1].To.Email != "sam@supplier.example" {
		t.Errorf("options %+v, %v", options, err)
	}
	// A customer's mail without a reference is not of that conversation.
	in = mail("ana@c.example", "m9@c.example")
	in.Event.Message.Mail.TicketTag = f.ticket(one.TicketID).Number
	if r := f.intake(in); r.ConversationID != one.ConversationID {
		t.Errorf("a mail with the ticket's number joins %s", r.ConversationID)
	}
}

// A forward answers nobody: it meets no target of the SLA.
func TestForwardIsNoResponse(t *testing.T) {
	f := guarded(t)
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	m, err := f.forward(orgA, one.TicketID, desk.Forward{To: "parts@supplier.example"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.answer(one.TicketID, desk.Reply{ConversationID: m.ConversationID}); err != nil {
		t.Fatal(err)
	}
	if at := f.ticket(one.TicketID).FirstRespondedAt; !at.IsZero() {
		t.Errorf("the first response was at %v", at)
	}
}

func TestForwardOneMessage(t *testing.T) {
	f := guarded(t)
	sms := f.intake(said(number, "", "Where is it?"))
	first := f.last(sms.TicketID)
	f.reply(sms.TicketID, "We ask.")
	m, err := f.forward(orgA, sms.TicketID, desk.Forward{To: "parts@supplier.example", MessageID: first.ID, WithoutFiles: true})
	if err != nil {
		t.Fatal(err)
	}
	if m.Stripped != "" || !strings.HasPrefix(m.Text, "---------- Forwarded") || strings.Contains(m.Text, "We ask.") || m.Channel != "email" {
		t.Errorf("forwarded %+v", m)
	}
	// The customer is reached on their channel as before.
	if m, err := f.answer(sms.TicketID, desk.Reply{}); err != nil || m.Channel != first.Channel {
		t.Errorf("a reply goes by %s, %v", m.Channel, err)
	}
	// An answer to a ticket that was closed since stays in it.
	f.setStatus(sms.TicketID, desk.StatusClosed)
	if r := f.intake(answerTo(m, "sam@supplier.example", "s1@supplier.example")); r.TicketID != sms.TicketID || f.ticket(sms.TicketID).Status != desk.StatusClosed {
		t.Errorf("an answer joins %s, which is %s", r.TicketID, f.ticket(sms.TicketID).Status)
	}
	// One without a proof does not move the conversation.
	if got := f.recipients(sms.TicketID, desk.Reply{ConversationID: m.ConversationID}); got != "parts@supplier.example |" {
		t.Errorf("the next goes to %s", got)
	}
}

func TestForwardRefused(t *testing.T) {
	f := guarded(t)
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	note, err := f.note(orgA, one.TicketID, grace, desk.Draft{Note: true, Text: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	two := f.intake(mail("bob@c.example", "m2@c.example"))
	for i, c := range []struct {
		org  string
		with desk.Forward
		kind problem.Kind
		path string
	}{
		{orgA, desk.Forward{To: "nobody"}, problem.Invalid, "to"},
		{orgA, desk.Forward{To: "a@b.example, c@d.example"}, problem.Invalid, "to"},
		{orgA, desk.Forward{To: "Support@a.example"}, problem.Invalid, "to"},
		{orgA, desk.Forward{To: "x@d.example", MessageID: note.ID}, problem.Invalid, "message_id"},
		{orgA, desk.Forward{To: "x@d.example", MessageID: f.last(two.TicketID).ID}, problem.Invalid, "message_id"},
		{orgB, desk.Forward{To: "x@d.example"}, problem.NotFound, ""},
	} {
		_, err := f.forward(c.org, one.TicketID, c.with)
		if problem.Of(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.path) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if n := len(f.messages(one.TicketID)); n != 2 || f.count("outbox") != 0 {
		t.Errorf("%d messages, %d in the outbox", n, f.count("outbox"))
	}
}

// Merged and split tickets keep the conversations apart.
func TestForwardMoves(t *testing.T) {
	f := guarded(t)
	one, two := f.intake(mail("ana@c.example", "m1@c.example")), f.intake(mail("bob@c.example", "m2@c.example"))
	m, err := f.forward(orgA, one.TicketID, desk.Forward{To: "parts@supplier.example"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.merge(orgA, one.TicketID, two.TicketID); err != nil {
		t.Fatal(err)
	}
	if r := f.intake(answerTo(m, "sam@supplier.example", "s1@supplier.example")); r.TicketID != two.TicketID {
		t.Errorf("an answer joins %s", r.TicketID)
	}
	fresh, err := f.split(orgA, two.TicketID, f.last(two.TicketID).ID)
	if err != nil {
		t.Fatal(err)
	}
	options, err := f.desk.ReplyOptions(t.Context(), f.db, orgA, fresh.ID)
	if err != nil || len(options) != 1 || !options[0].Forwarded {
		t.Errorf("options %+v, %v", options, err)
	}
}

// content returns a stored file.
func (f *fixture) content(key string) string {
	f.Helper()
	r, err := f.blob.Open(f.Context(), key)
	if err != nil {
		f.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		f.Fatal(err)
	}
	return string(data)
}

// TestCustomerAnswersForward: the customer, whom the recipient of a forward put in copy, writes to
// the organization as always. Those with whom she writes get no copies of replies to her.
func TestCustomerAnswersForward(t *testing.T) {
	f := guarded(t)
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	m, err := f.forward(orgA, one.TicketID, desk.Forward{To: "sam@supplier.example"})
	if err != nil {
		t.Fatal(err)
	}
	in := answerTo(m, "sam@supplier.example", "s1@supplier.example")
	in.Event.Message.Cc = []channel.Party{{Email: "ana@c.example"}}
	f.intake(in)
	f.setStatus(one.TicketID, desk.StatusPending)
	f.emitted()
	in = answerTo(f.last(one.TicketID), "ana@c.example", "m2@c.example")
	in.Event.Message.Cc = []channel.Party{{Email: "sam@supplier.example"}, {Email: "max@supplier.example"}}
	proven(in.Event.Message)
	r := f.intake(in)
	got := f.last(one.TicketID)
	if r.TicketID != one.TicketID || r.ConversationID != one.ConversationID || got.Kind != desk.KindReply || got.Author.ID != one.CustomerID {
		t.Errorf("her answer is %+v", got)
	}
	if got := f.emitted(); !strings.Contains(got, "message.customer_reply") || f.ticket(one.TicketID).Status != desk.StatusOpen {
		t.Errorf("it emitted %q", got)
	}
	if got := f.recipients(one.TicketID, desk.Reply{}); got != "ana@c.example |" {
		t.Errorf("a reply goes to %s", got)
	}
}

// TestForwardNewest: of a long ticket the newest messages are forwarded.
func TestForwardNewest(t *testing.T) {
	f := guarded(t)
	in := mail("ana@c.example", "m1@c.example")
	in.Event.Message.Text = "first " + strings.Repeat("a", 90_000)
	one := f.intake(in)
	for i := range 2 {
		f.reply(one.TicketID, fmt.Sprintf("reply %d ", i)+strings.Repeat("b", 90_000))
	}
	m, err := f.forward(orgA, one.TicketID, desk.Forward{To: "sam@supplier.example"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(m.Text, "first a") || strings.Index(m.Text, "reply 0") > strings.Index(m.Text, "reply 1") || len(m.Details.Forwarded) != 2 {
		t.Errorf("forwarded are %d bytes of %q", len(m.Text), m.Details.Forwarded)
	}
}

// TestHeldForwardReply: a reply in the conversation of a forward that waits crosses no reply to the
// customer, and the other way round.
func TestHeldForwardReply(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		one := f.intake(mail("ana@c.example", "m1@c.example"))
		m, err := f.forward(orgA, one.TicketID, desk.Forward{To: "sam@supplier.example"})
		if err != nil {
			t.Fatal(err)
		}
		seen := f.newest(one.TicketID)
		held, err := f.later(one.TicketID, grace, desk.Reply{ConversationID: m.ConversationID, SendAt: time.Now().Add(time.Hour)}, desk.Draft{Text: "When?"})
		if err != nil || held.Kind != desk.KindForward {
			t.Fatalf("held is a %s, %v", held.Kind, err)
		}
		if p, err := f.desk.PendingReply(t.Context(), f.db, orgA, held.ID); err != nil || p.Kind != desk.KindForward {
			t.Errorf("waiting is a %s, %v", p.Kind, err)
		}
		if _, err := f.replyHaving(one.TicketID, robin, seen); err != nil {
			t.Errorf("a reply to the customer: %v", err)
		}
		pass(2 * time.Hour)
		if got := f.last(one.TicketID); got.ID != held.ID || got.Kind != desk.KindForward || f.pending(one.TicketID) != "" {
			t.Errorf("the last is %+v, waiting %q", got, f.pending(one.TicketID))
		}
	}, func(c *desk.Config) { c.Dispatcher = dispatcher{} })
}
