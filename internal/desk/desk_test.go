package desk_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// intake processes an event in a transaction of its own.
func (f *fixture) intake(in desk.InboundEvent) desk.Result {
	f.Helper()
	r, err := f.tryIntake(in)
	if err != nil {
		f.Fatal(err)
	}
	return r
}

func (f *fixture) tryIntake(in desk.InboundEvent) (r desk.Result, err error) {
	ctx := f.Context()
	if in.Files == nil {
		if in.Files, err = f.desk.StoreFiles(ctx, in.Event.Message); err != nil {
			return r, err
		}
	}
	err = f.db.WriteGrouped(ctx, in.OrganizationID, func(tx *db.Tx) error {
		r, err = f.desk.IngestTx(ctx, tx, in)
		return err
	})
	return r, err
}

// text is a text from a number to organization A.
func text(from, body string) desk.InboundEvent {
	return desk.InboundEvent{
		OrganizationID: orgA, ConnectionID: smsA, Channel: "sms",
		Event: channel.Event{Message: &channel.Message{
			ExternalID: "SM" + body, ThreadKey: from, From: channel.Party{Phone: from}, Text: body,
		}},
	}
}

func (f *fixture) ticket(id string) desk.Ticket {
	f.Helper()
	t, err := f.desk.Ticket(f.Context(), f.db, orgA, id)
	if err != nil {
		f.Fatal(err)
	}
	return t
}

func (f *fixture) messages(ticketID string) []desk.Message {
	f.Helper()
	m, err := f.desk.Messages(f.Context(), f.db, orgA, ticketID)
	if err != nil {
		f.Fatal(err)
	}
	return m
}

func (f *fixture) setStatus(ticketID string, s desk.Status) {
	f.Helper()
	if _, err := f.update(orgA, ticketID, desk.Update{Status: &s}); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) count(table string) int {
	f.Helper()
	number := "count(*)"
	if table == "events" { // a row holds several
		number = "coalesce(sum(CASE WHEN members IS NULL THEN 1 ELSE length(members) - length(replace(members, ':', '')) END), 0)"
	}
	var n int
	if err := f.db.QueryRow(f.Context(), "SELECT "+number+" FROM "+table).Scan(&n); err != nil {
		f.Fatal(err)
	}
	return n
}

// emitted returns the names of the events since the last call.
func (f *fixture) emitted() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, e := range f.log {
		names = append(names, string(e.Name))
	}
	f.log = nil
	return strings.Join(names, " ")
}

func TestTextIsOneTicketForEver(t *testing.T) {
	for _, status := range desk.Statuses {
		t.Run(string(status), func(t *testing.T) {
			f := newFixture(t)
			first := f.intake(text("+4915112345678", "hello"))
			if first.Outcome != desk.TicketCreated || first.PlacedBy != desk.RuleNone || !first.MayAnswer {
				t.Fatalf("first: %+v", first)
			}
			f.setStatus(first.TicketID, status)
			f.emitted()

			r := f.intake(text("+4915112345678", "again"))
			if r.Outcome != desk.Appended || r.PlacedBy != desk.RuleThreadKey || r.TicketID != first.TicketID || r.ConversationID != first.ConversationID {
				t.Fatalf("second: %+v", r)
			}
			if want := status != desk.StatusOpen; r.Reopened != want {
				t.Errorf("reopened %v, want %v", r.Reopened, want)
			}
			want := "conversation.created message.created message.customer_reply"
			if status != desk.StatusOpen {
				want += " ticket.updated ticket.status_changed"
			}
			if got := f.emitted(); got != want {
				t.Errorf("events\n got %s\nwant %s", got, want)
			}
			got := f.ticket(first.TicketID)
			if got.Status != desk.StatusOpen || !got.ResolvedAt.IsZero() {
				t.Errorf("ticket: %+v", got)
			}
			if n := len(f.messages(first.TicketID)); n != 2 {
				t.Errorf("%d messages, want 2", n)
			}
		})
	}
}

func TestFirstText(t *testing.T) {
	f := newFixture(t)
	in := text("+4915112345678", "the car does\nnot unlock")
	in.Event.Message.From.Name = "Ana"
	in.ReceivedAt = time.Now().Add(-time.Minute)
	r := f.intake(in)

	ticket := f.ticket(r.TicketID)
	if ticket.Number != 1 || ticket.Subject != "the car does" || ticket.Status != "open" || ticket.Priority != "normal" ||
		ticket.Channel != "sms" || ticket.Customer.Name != "Ana" || ticket.Customer.Phone != "+4915112345678" || ticket.Customer.ID != r.CustomerID {
		t.Errorf("ticket: %+v", ticket)
	}
	m := f.messages(r.TicketID)[0]
	if m.Text != "the car does\nnot unlock" || m.Direction != "inbound" || m.Author.Type != "customer" || m.Author.ID != r.CustomerID ||
		m.Author.Name != "Ana" || m.Kind != "reply" || m.ExternalID != "SMthe car does\nnot unlock" || m.ID != r.MessageID ||
		!m.CreatedAt.Equal(in.ReceivedAt.Truncate(time.Microsecond)) {
		t.Errorf("message: %+v", m)
	}
	c, err := f.desk.Customer(t.Context(), f.db, orgA, r.CustomerID)
	if err != nil || c.Name != "Ana" || !slices.Equal(c.Phones, []string{"+4915112345678"}) || len(c.Emails) != 0 || len(c.Identities) != 0 {
		t.Errorf("customer: %+v, %v", c, err)
	}
	if got, want := f.emitted(), "customer.created ticket.created conversation.created message.created"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
}

func TestEventsCarryTheirSnapshot(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text("+4915112345678", "hello"))
	e := f.log[3]
	if e.Name != event.MessageCreated || e.OrganizationID != orgA {
		t.Fatalf("fourth event: %+v", e)
	}
	tk, m := e.Data.Ticket, e.Data.Message
	if tk.ID != r.TicketID || tk.Number != 1 || tk.Status != "open" || tk.Customer.Phone != "+4915112345678" || tk.URL != "https://desk.example/tickets/1" || tk.Assignee != nil {
		t.Errorf("ticket: %+v", tk)
	}
	if m.ID != r.MessageID || m.TicketID != r.TicketID || m.ConversationID != r.ConversationID || m.Text != "hello" || m.Direction != "inbound" || m.ExternalID != "SMhello" {
		t.Errorf("message: %+v", m)
	}
	stored, err := event.Find(t.Context(), f.db, e.ID)
	if err != nil || stored.Data.Message.Text != "hello" {
		t.Errorf("stored: %+v, %v", stored, err)
	}
}

// The same text may arrive again from another source.
func TestTextTwiceIsOneMessage(t *testing.T) {
	f := newFixture(t)
	first := f.intake(text("+4915112345678", "hello"))
	f.emitted()
	r := f.intake(text("+4915112345678", "hello"))
	if r.Outcome != desk.Duplicate || r.MessageID != first.MessageID || r.TicketID != first.TicketID {
		t.Errorf("got %+v, want a duplicate of %+v", r, first)
	}
	if got := f.emitted(); got != "" {
		t.Errorf("events %s", got)
	}
	if n := f.count("messages"); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func TestNumbersAndConnections(t *testing.T) {
	f := newFixture(t)
	first := f.intake(text("+4915112345678", "one"))

	in := text("+4915112345678", "two")
	in.ConnectionID = smsA2
	r := f.intake(in)
	if r.TicketID == first.TicketID || r.CustomerID != first.CustomerID {
		t.Errorf("on another of our numbers: %+v, want another ticket of the same customer", r)
	}

	in = text("+4915112345678", "three")
	in.OrganizationID, in.ConnectionID = orgB, smsB
	r = f.intake(in)
	if r.TicketID == first.TicketID || r.CustomerID == first.CustomerID || r.TicketNumber != 1 {
		t.Errorf("in another organization: %+v, want nothing shared and number 1", r)
	}

	in = text("+4915112345678", "four")
	in.ConnectionID = ""
	noConnection := f.intake(in)
	in.OrganizationID, in.Event.Message.ExternalID = orgB, "SMfive"
	r = f.intake(in)
	if r.Outcome != desk.TicketCreated || r.TicketID == noConnection.TicketID {
		t.Errorf("without connections: %+v, want another ticket in each organization", r)
	}
}

// Mexican and Brazilian mobile numbers live on in abolished forms.
func TestBothFormsOfANumber(t *testing.T) {
	f := newFixture(t)
	first := f.intake(text("+525512345678", "new form"))
	r := f.intake(text("+5215512345678", "old form"))
	if r.TicketID != first.TicketID {
		t.Errorf("got %+v, want ticket %s", r, first.TicketID)
	}
	if c := f.ticket(first.TicketID).Customer; c.Phone != "+525512345678" {
		t.Errorf("phone %s", c.Phone)
	}
}

func TestShortCode(t *testing.T) {
	f := newFixture(t)
	in := text("", "your code is 1")
	in.Event.Message.ThreadKey, in.Event.Message.From = "ALERTS", channel.Party{ID: "ALERTS"}
	first := f.intake(in)
	in.Event.Message.ExternalID = "SM2"
	if r := f.intake(in); r.TicketID != first.TicketID {
		t.Errorf("got %+v, want ticket %s", r, first.TicketID)
	}
	in.ConnectionID, in.Event.Message.ExternalID = smsA2, "SM3"
	if r := f.intake(in); r.CustomerID == first.CustomerID {
		t.Error("a short code means somebody else on another connection")
	}
	c, err := f.desk.Customer(t.Context(), f.db, orgA, first.CustomerID)
	if err != nil || !slices.Equal(c.Identities, []desk.Identity{{Channel: "sms", ExternalID: "ALERTS"}}) {
		t.Errorf("customer: %+v, %v", c, err)
	}
	if known, err := f.desk.HasThread(t.Context(), f.db, smsA, "ALERTS"); err != nil || !known {
		t.Errorf("known: %v, %v", known, err)
	}
	if known, err := f.desk.HasThread(t.Context(), f.db, smsA, "OTHERS"); err != nil || known {
		t.Errorf("unknown: %v, %v", known, err)
	}
}

func TestOptOut(t *testing.T) {
	f := newFixture(t)
	in := text("+4915112345678", "STOP")
	in.Event.Message.OptOut = true
	first := f.intake(in)
	if first.MayAnswer {
		t.Error("may answer somebody who wants no messages")
	}
	c, err := f.desk.Conversations(t.Context(), f.db, orgA, first.TicketID)
	if err != nil || len(c) != 1 || c[0].OptedOutAt.IsZero() {
		t.Errorf("conversations: %+v, %v", c, err)
	}

	second := f.intake(text("+4915187654321", "hi"))
	in = text("+4915187654321", "stop")
	in.Event.Message.OptOut = true
	f.intake(in)
	c, err = f.desk.Conversations(t.Context(), f.db, orgA, second.TicketID)
	if err != nil || len(c) != 1 || c[0].OptedOutAt.IsZero() {
		t.Errorf("conversations: %+v, %v", c, err)
	}

	f.intake(text("+4915187654321", "one more thing"))
	c, err = f.desk.Conversations(t.Context(), f.db, orgA, second.TicketID)
	if err != nil || c[0].OptedOutAt.IsZero() {
		t.Errorf("a text undid it: %+v, %v", c, err)
	}
	in = text("+4915187654321", "start")
	in.Event.Message.OptIn = true
	f.intake(in)
	c, err = f.desk.Conversations(t.Context(), f.db, orgA, second.TicketID)
	if err != nil || !c[0].OptedOutAt.IsZero() {
		t.Errorf("opted in again: %+v, %v", c, err)
	}
}

func TestNameIsFilledInOnce(t *testing.T) {
	f := newFixture(t)
	f.intake(text("+4915112345678", "one"))
	f.emitted()
	in := text("+4915112345678", "two")
	in.Event.Message.From.Name = "Ana"
	r := f.intake(in)
	if got, want := f.emitted(), "customer.updated conversation.created message.created message.customer_reply"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
	in = text("+4915112345678", "three")
	in.Event.Message.From.Name = "Work phone"
	f.intake(in)
	if got := f.ticket(r.TicketID).Customer.Name; got != "Ana" {
		t.Errorf("name %q, want the first", got)
	}
}

// A message with a number and an e-mail address links two known contact points.
func TestOneHumanOverSeveralChannels(t *testing.T) {
	f := newFixture(t)
	a := f.intake(text("+4915112345678", "one"))
	in := text("", "two")
	in.Event.Message.ThreadKey = "user-7"
	in.Event.Message.From = channel.Party{ID: "user-7", Phone: "+4915112345678", Email: "Ana@c.example", Name: "Ana"}
	f.emitted()
	b := f.intake(in)
	if b.CustomerID != a.CustomerID || b.TicketID == a.TicketID {
		t.Errorf("got %+v, want another ticket of customer %s", b, a.CustomerID)
	}
	if got, want := f.emitted(), "customer.updated ticket.created conversation.created message.created"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
	c, err := f.desk.Customer(t.Context(), f.db, orgA, a.CustomerID)
	if err != nil || c.Name != "Ana" || !slices.Equal(c.Emails, []string{"Ana@c.example"}) || !slices.Equal(c.Phones, []string{"+4915112345678"}) ||
		!slices.Equal(c.Identities, []desk.Identity{{Channel: "sms", ExternalID: "user-7"}}) {
		t.Errorf("customer: %+v, %v", c, err)
	}
}

func TestParallelFirstTexts(t *testing.T) {
	f := newFixture(t)
	const n = 64
	var mu sync.Mutex
	outcomes := map[desk.Outcome]int{}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r, err := f.tryIntake(text("+4915112345678", fmt.Sprint("text ", i)))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[r.Outcome]++
		})
	}
	wg.Wait()
	if outcomes[desk.TicketCreated] != 1 || outcomes[desk.Appended] != n-1 {
		t.Errorf("outcomes: %v", outcomes)
	}
	for table, want := range map[string]int{"tickets": 1, "customers": 1, "conversations": 1, "messages": n, "events": 4 + 3*(n-1)} {
		if got := f.count(table); got != want {
			t.Errorf("%d %s, want %d", got, table, want)
		}
	}
}

// Simultaneous messages of one customer on two connections, and of one text many
// times.
func TestParallelTwins(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			in := text("+4915112345678", "hello")
			if i%2 == 0 {
				in.ConnectionID = smsA2
			}
			if _, err := f.tryIntake(in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for table, want := range map[string]int{"tickets": 2, "customers": 1, "messages": 2, "events": 7} {
		if got := f.count(table); got != want {
			t.Errorf("%d %s, want %d", got, table, want)
		}
	}
}

func TestParallelMailsOfOneSender(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if _, err := f.tryIntake(mail("ana@c.example", fmt.Sprintf("m%d@c.example", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for table, want := range map[string]int{"tickets": 16, "customers": 1, "contact_points": 1} {
		if got := f.count(table); got != want {
			t.Errorf("%d %s, want %d", got, table, want)
		}
	}
}

func TestNumbersHaveNoGaps(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			ctx := t.Context()
			in := text(fmt.Sprintf("+49151123456%02d", i), "hello")
			err := f.db.Write(ctx, func(tx *db.Tx) error {
				if _, err := f.desk.IngestTx(ctx, tx, in); err != nil {
					return err
				}
				if i%3 == 0 {
					return errUndo
				}
				return nil
			})
			if err != nil && err != errUndo {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, _, err := f.desk.FindTickets(t.Context(), f.db, orgA, desk.TicketQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i, ticket := range list {
		if want := int64(16 - i); ticket.Number != want {
			t.Errorf("ticket %d of the list has number %d, want %d", i, ticket.Number, want)
		}
	}
	if len(list) != 16 {
		t.Errorf("%d tickets, want 16", len(list))
	}
}

var errUndo = problem.New(problem.Conflict, "undo")

func TestSentElsewhere(t *testing.T) {
	f := newFixture(t)
	in := text("+4915112345678", "we called you")
	in.Event.Message.Outbound = true
	in.Event.Message.From, in.Event.Message.To = channel.Party{Name: "Front desk"}, []channel.Party{{Phone: "+4915112345678"}}
	r := f.intake(in)
	if got, want := f.emitted(), "customer.created ticket.created conversation.created message.created message.agent_reply"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
	m := f.messages(r.TicketID)[0]
	if m.Direction != "outbound" || m.Author.Type != "agent" || m.Author.Name != "Front desk" || !m.Details.SentElsewhere || m.Delivery.State != channel.ReceiptSent {
		t.Errorf("message: %+v", m)
	}
	if r.MayAnswer {
		t.Error("may answer our own message")
	}
	if c := f.ticket(r.TicketID).Customer; c.Phone != "+4915112345678" {
		t.Errorf("customer: %+v", c)
	}
	if r := f.intake(text("+4915112345678", "thanks")); r.Outcome != desk.Appended {
		t.Errorf("answer: %+v", r)
	}
}

func TestFirstResponse(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text("+4915112345678", "hello"))
	f.emitted()
	for _, body := range []string{"hi", "anything else?"} {
		in := text("+4915112345678", body)
		in.Event.Message.Outbound, in.Event.Message.To = true, []channel.Party{{Phone: "+4915112345678"}}
		f.intake(in)
		if got, want := f.emitted(), "conversation.created message.created message.agent_reply"; got != want {
			t.Errorf("events\n got %s\nwant %s", got, want)
		}
	}
	if got, want := f.ticket(r.TicketID).FirstRespondedAt, f.messages(r.TicketID)[1].CreatedAt; !got.Equal(want) {
		t.Errorf("first response at %v, want %v", got, want)
	}
}

func TestReceipts(t *testing.T) {
	const (
		queued    = channel.ReceiptQueued
		sent      = channel.ReceiptSent
		delayed   = channel.ReceiptDelayed
		delivered = channel.ReceiptDelivered
		read      = channel.ReceiptRead
		failed    = channel.ReceiptFailed
	)
	for _, c := range []struct {
		receipts []channel.ReceiptState
		want     channel.ReceiptState
		notes    int
	}{
		{nil, sent, 0},
		{[]channel.ReceiptState{queued}, sent, 0},
		{[]channel.ReceiptState{delivered}, delivered, 0},
		{[]channel.ReceiptState{read, delivered}, read, 0},
		{[]channel.ReceiptState{delivered, read}, read, 0},
		{[]channel.ReceiptState{failed}, failed, 1},
		{[]channel.ReceiptState{failed, failed}, failed, 1},
		{[]channel.ReceiptState{failed, delivered}, failed, 1},
		{[]channel.ReceiptState{delivered, failed}, delivered, 0},
		{[]channel.ReceiptState{read, failed}, read, 0},
		{[]channel.ReceiptState{delayed}, sent, 1},
		{[]channel.ReceiptState{delayed, delivered}, delivered, 1},
	} {
		t.Run(fmt.Sprint(c.receipts), func(t *testing.T) {
			f := newFixture(t)
			in := text("+4915112345678", "hi")
			in.Event.Message.Outbound, in.Event.Message.To = true, []channel.Party{{Phone: "+4915112345678"}}
			r := f.intake(in)
			f.emitted()
			for _, state := range c.receipts {
				in.Event = channel.Event{Receipt: &channel.Receipt{ExternalIDs: []string{"other", "SMhi"}, State: state}}
				if state == failed {
					in.Event.Receipt.Error = "unreachable"
				}
				if got := f.intake(in); got.Outcome != desk.ReceiptApplied || got.MessageID != r.MessageID {
					t.Errorf("%s: %+v", state, got)
				}
			}
			m := f.messages(r.TicketID)
			if m[0].Delivery.State != c.want || (m[0].Delivery.Error == "unreachable") != (c.want == failed) {
				t.Errorf("delivery %+v, want %s", m[0].Delivery, c.want)
			}
			if len(m) != 1+c.notes {
				t.Errorf("%d notes, want %d", len(m)-1, c.notes)
			}
			if got := f.emitted(); got != "" {
				t.Errorf("events %s", got)
			}
		})
	}
}

func TestReceiptForNothing(t *testing.T) {
	f := newFixture(t)
	f.intake(text("+4915112345678", "hi")) // inbound: nothing to deliver
	for _, in := range []desk.InboundEvent{
		{OrganizationID: orgA, ConnectionID: smsA, Channel: "sms"},
		{OrganizationID: orgB, ConnectionID: smsB, Channel: "sms"},
	} {
		in.Event.Receipt = &channel.Receipt{ExternalIDs: []string{"SMhi"}, State: channel.ReceiptFailed, Note: "x"}
		if r := f.intake(in); r.Outcome != desk.Recorded || r.Reason == "" {
			t.Errorf("got %+v", r)
		}
	}
	if n := f.count("messages"); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func TestWhatCannotBeTakenIn(t *testing.T) {
	f := newFixture(t)
	for _, in := range []desk.InboundEvent{
		{},
		{OrganizationID: orgA, Channel: "sms"},
		{OrganizationID: orgA, Channel: "sms", Event: channel.Event{Message: &channel.Message{Text: "x"}}},
		{OrganizationID: orgA, Channel: "sms", Event: channel.Event{Message: &channel.Message{ThreadKey: "x", Outbound: true}}},
	} {
		if r, err := f.tryIntake(in); err == nil {
			t.Errorf("%+v: %+v", in, r)
		}
	}
}

func TestHostileText(t *testing.T) {
	f := newFixture(t)
	in := text("+4915112345678", "a\x00b\xffc")
	in.Event.Message.From.Name = "A\x00na\r\n"
	in.Event.Message.ExternalID = strings.Repeat("x", 10_000)
	in.Event.Message.SentAt = time.Date(90000, 1, 1, 0, 0, 0, 0, time.UTC)
	r := f.intake(in)
	m := f.messages(r.TicketID)[0]
	if m.Text != "ab\uFFFDc" || m.Author.Name != "Ana" || len(m.ExternalID) > 255 || !m.SentAt.IsZero() {
		t.Errorf("message: %+v", m)
	}
	if again := f.intake(in); again.Outcome != desk.Duplicate {
		t.Errorf("again: %+v", again)
	}
}

func TestSubjectOfAText(t *testing.T) {
	f := newFixture(t)
	for i, c := range []struct{ text, name, want string }{
		{"hello", "", "hello"},
		{"\n  \n two\twords \nmore", "", "two words"},
		{strings.Repeat("word ", 30), "", strings.Repeat("word ", 15) + "word…"},
		{"", "Ana", "Message from Ana"},
		{" ", "", "Message from +491511234560"},
	} {
		in := text(fmt.Sprintf("+49151123456%d", 4-i), c.text)
		in.Event.Message.From.Name = c.name
		if got := f.ticket(f.intake(in).TicketID).Subject; got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}
