package desk_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

const (
	voiceA  = "0190c0de-0000-7000-8000-0000000000a5"
	caller  = "+17025550111"
	another = "+17025550122"
)

// noon is the time of the tests' voicemails.
var noon = time.Now().Add(-2 * time.Hour).UTC().Truncate(time.Second)

// voicemailCall is the message of a call's events.
func voicemailCall(id, from string, minutes int) desk.InboundEvent {
	return desk.InboundEvent{
		OrganizationID: orgA, ConnectionID: voiceA, Channel: "voice", ReceivedAt: noon.Add(time.Duration(minutes) * time.Minute),
		Event: channel.Event{Message: &channel.Message{
			ExternalID: id + " voicemail", ThreadKey: id, From: channel.Party{Name: "Ana", Phone: from}, Subject: "Voicemail from " + from,
			Text: "text of " + id, Voicemail: true,
		}},
	}
}

// voicemailMail is the provider's mail about the same call.
func voicemailMail(id, from string, minutes int) desk.InboundEvent {
	in := mail("no-reply@voice.example", id+"@voice.example")
	in.ReceivedAt = noon.Add(time.Duration(minutes) * time.Minute)
	m := in.Event.Message
	m.Text, m.Subject = "text of "+id, "New voicemail from "+from
	m.Mail.Class, m.Mail.Caller = channel.ClassVoicemail, from
	return in
}

// A voicemail reported by both a mail and the call's events makes one ticket, in
// either order.
func TestVoicemailToldTwice(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []desk.InboundEvent
		want  string // the ticket of each step
	}{
		{"the mail first", []desk.InboundEvent{voicemailMail("m1", caller, 0), voicemailCall("c1", caller, 5)}, "1 1"},
		{"the call first", []desk.InboundEvent{voicemailCall("c1", caller, 0), voicemailMail("m1", caller, 5)}, "1 1"},
		{"at the last moment", []desk.InboundEvent{voicemailCall("c1", caller, 0), voicemailMail("m1", caller, 15)}, "1 1"},
		{"too late", []desk.InboundEvent{voicemailCall("c1", caller, 0), voicemailMail("m1", caller, 16)}, "1 2"},
		{"the call too late", []desk.InboundEvent{voicemailMail("m1", caller, 0), voicemailCall("c1", caller, 16)}, "1 2"},
		{"another caller", []desk.InboundEvent{voicemailMail("m1", caller, 0), voicemailCall("c1", another, 1)}, "1 2"},
		{"two calls", []desk.InboundEvent{voicemailCall("c1", caller, 0), voicemailCall("c2", caller, 1)}, "1 2"},
		{"two mails", []desk.InboundEvent{voicemailMail("m1", caller, 0), voicemailMail("m2", caller, 1)}, "1 2"},
		{"two of each in turn", []desk.InboundEvent{
			voicemailCall("c1", caller, 0), voicemailMail("m1", caller, 1), voicemailCall("c2", caller, 2), voicemailMail("m2", caller, 3),
		}, "1 1 2 2"},
		{"two of each, mails first", []desk.InboundEvent{
			voicemailMail("m1", caller, 0), voicemailCall("c1", caller, 1), voicemailMail("m2", caller, 2), voicemailCall("c2", caller, 3),
		}, "1 1 2 2"},
		{"again and again", []desk.InboundEvent{
			voicemailMail("m1", caller, 0), voicemailMail("m1", caller, 0), voicemailCall("c1", caller, 1), voicemailCall("c1", caller, 1), voicemailMail("m1", caller, 2),
		}, "1 1 1 1 1"},
		{"a withheld number", []desk.InboundEvent{voicemailMail("m1", "", 0), voicemailCall("c1", "", 1)}, "1 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			var got []string
			for _, in := range tt.steps {
				r := f.intake(in)
				got = append(got, fmt.Sprint(f.ticket(r.TicketID).Number))
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("tickets %s, want %s", got, tt.want)
			}
		})
	}
}

// Both reports are in the ticket, as the caller's messages, and replies go to the
// caller.
func TestVoicemailToldTwiceTogether(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	first := f.intake(voicemailMail("m1", caller, 0))
	f.setStatus(first.TicketID, desk.StatusResolved)
	second := f.intake(voicemailCall("c1", caller, 1))
	if second.Outcome != desk.Appended || !second.Reopened || second.CustomerID != first.CustomerID || second.ConversationID == first.ConversationID {
		t.Errorf("the call %+v after the mail %+v", second, first)
	}
	messages := f.messages(first.TicketID)
	if len(messages) != 2 || messages[0].Text != "text of m1" || messages[1].Text != "text of c1" {
		t.Fatalf("messages %+v", messages)
	}
	for _, m := range messages {
		if m.Channel != "voice" || m.Author.ID != first.CustomerID || m.Direction != desk.DirectionInbound {
			t.Errorf("message %+v, want it of the caller by telephone", m)
		}
	}
	// Later messages of the call join the ticket.
	later := voicemailCall("c1", caller, 20)
	later.Event.Message.ExternalID, later.Event.Message.Voicemail = "c1 transcription", false
	if r := f.intake(later); r.TicketID != first.TicketID || r.ConversationID != second.ConversationID {
		t.Errorf("later news went to %+v", r)
	}
	if got := f.ticket(first.TicketID); got.Customer.Phone != caller || got.Channel != "voice" {
		t.Errorf("ticket %+v", got)
	}
}

// A call with a ticket for having been missed takes in the mail's ticket.
func TestVoicemailAfterMissed(t *testing.T) {
	f := newFixture(t)
	missed := voicemailCall("c1", caller, 0)
	missed.Event.Message.ExternalID, missed.Event.Message.Voicemail = "c1 missed", false
	first := f.intake(missed)
	mailed := f.intake(voicemailMail("m1", caller, 1))
	if mailed.TicketID == first.TicketID {
		t.Fatal("a missed call is taken for a voicemail")
	}
	if r := f.intake(voicemailCall("c1", caller, 2)); r.TicketID != first.TicketID {
		t.Errorf("the voicemail went to %+v, want the call's ticket", r)
	}
	if got := f.ticket(mailed.TicketID).MergedIntoID; got != first.TicketID {
		t.Errorf("the mail's ticket is merged into %q, want the call's", got)
	}
	if n := len(f.messages(first.TicketID)); n != 3 {
		t.Errorf("%d messages in the ticket, want 3", n)
	}
}

// The earlier ticket may be merged or deleted.
func TestVoicemailMovedOn(t *testing.T) {
	f := newFixture(t)
	other := f.intake(text("+4915112345678", "hello"))
	mailed := f.intake(voicemailMail("m1", caller, 0))
	if _, err := f.merge(orgA, mailed.TicketID, other.TicketID); err != nil {
		t.Fatal(err)
	}
	if r := f.intake(voicemailCall("c1", caller, 1)); r.TicketID != other.TicketID {
		t.Errorf("the call went to %+v, want the survivor", r)
	}
	called := f.intake(voicemailCall("c2", another, 1))
	f.delete(called.TicketID)
	if r := f.intake(voicemailMail("m2", another, 2)); r.Outcome != desk.TicketCreated {
		t.Errorf("the mail came to %+v after its ticket was deleted", r)
	}
	mailed = f.intake(voicemailMail("m3", "+17025550133", 0))
	f.delete(mailed.TicketID)
	if r := f.intake(voicemailCall("c3", "+17025550133", 2)); r.Outcome != desk.TicketCreated {
		t.Errorf("the call came to %+v after its ticket was deleted", r)
	}
}

// Both at the same moment, many times over.
func TestVoicemailToldTwiceAtOnce(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for i := range 10 {
		from := fmt.Sprintf("+170255501%02d", i)
		for _, in := range []desk.InboundEvent{voicemailMail(fmt.Sprint("m", i), from, 0), voicemailCall(fmt.Sprint("c", i), from, 1)} {
			wg.Go(func() {
				if _, err := f.tryIntake(in); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if n := f.count("tickets"); n != 10 {
		t.Errorf("%d tickets, want 10", n)
	}
	if n := f.count("customers"); n != 10 {
		t.Errorf("%d customers, want 10", n)
	}
	if n := f.count("voicemails"); n != 0 {
		t.Errorf("%d voicemails wait for the other to tell of them", n)
	}
}

// A call is answered by a text to the caller, from any of our numbers, and the
// reply joins the same ticket.
func TestAnswerToCall(t *testing.T) {
	to := new(messageRecorder)
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = to })
	if _, err := f.createCustomer(orgA, desk.NewCustomer{Name: "Ana", Phones: []string{another, caller}}); err != nil {
		t.Fatal(err)
	}
	r := f.intake(voicemailCall("c1", caller, 30))
	m := f.reply(r.TicketID, "We call you back.")
	w := f.waiting(m.ID)
	if w.To.Phone != caller || w.To.ID != "" {
		t.Errorf("the answer goes to %+v, want the caller", w.To)
	}
	f.write("submit", func(tx *db.Tx) error { return f.desk.RecordSubmissionTx(t.Context(), tx, &w, "a way") })
	// The provider reports the message before its response arrives.
	echo := desk.InboundEvent{OrganizationID: orgA, ConnectionID: w.ConnectionID, Channel: "voice", Event: channel.Event{Message: &channel.Message{
		ExternalID: "sms-1", ThreadKey: caller, Text: "We call you back.", Outbound: true, To: []channel.Party{{Phone: caller}},
	}}}
	if got := f.intake(echo); got.Outcome != desk.Duplicate || got.MessageID != m.ID {
		t.Errorf("the provider's news of our own text %+v", got)
	}
	f.write("sent", func(tx *db.Tx) error { return f.desk.RecordSentTx(t.Context(), tx, &w, []string{"sms-1"}) })
	if got := f.intake(echo); got.Outcome != desk.Duplicate || got.MessageID != m.ID {
		t.Errorf("the provider's news of our own text, later %+v", got)
	}
	back := desk.InboundEvent{OrganizationID: orgA, ConnectionID: w.ConnectionID, Channel: "voice", Event: channel.Event{Message: &channel.Message{
		ExternalID: "sms-2", ThreadKey: caller, Text: "Thanks", From: channel.Party{Phone: caller},
	}}}
	if got := f.intake(back); got.TicketID != r.TicketID || got.Outcome != desk.Appended {
		t.Errorf("the caller's text %+v, want it in the ticket of the call", got)
	}
}

// A call may be answered although its caller has a conversation by text: our
// message is stored once, and replies join the text conversation.
func TestAnswerToCallBesideTexts(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	says := func(id, text string, outbound bool) desk.InboundEvent {
		m := &channel.Message{ExternalID: id, ThreadKey: caller, Text: text, Outbound: outbound, From: channel.Party{Phone: caller}}
		if outbound {
			m.From, m.To = channel.Party{}, []channel.Party{{Phone: caller}}
		}
		return desk.InboundEvent{OrganizationID: orgA, ConnectionID: voiceA, Channel: "voice", Event: channel.Event{Message: m}}
	}
	texts := f.intake(says("sms-0", "Hello", false))
	r := f.intake(voicemailCall("c1", caller, 0))
	m := f.reply(r.TicketID, "We call you back.")
	w := f.waiting(m.ID)
	f.write("submit", func(tx *db.Tx) error { return f.desk.RecordSubmissionTx(t.Context(), tx, &w, "a way") })
	for _, when := range []string{"before", "after"} {
		if got := f.intake(says("sms-1", "We call you back.", true)); got.Outcome != desk.Duplicate || got.MessageID != m.ID {
			t.Errorf("the provider's news of our own text, %s its answer: %+v", when, got)
		}
		if when == "before" {
			f.write("sent", func(tx *db.Tx) error { return f.desk.RecordSentTx(t.Context(), tx, &w, []string{"sms-1"}) })
		}
	}
	if got := f.intake(says("sms-2", "Another", true)); got.TicketID != texts.TicketID || got.Outcome != desk.Appended {
		t.Errorf("a colleague's text %+v, want it in the conversation of texts", got)
	}
	if got := f.intake(says("sms-3", "Thanks", false)); got.TicketID != texts.TicketID {
		t.Errorf("the caller's text %+v, want it in their conversation", got)
	}
}
