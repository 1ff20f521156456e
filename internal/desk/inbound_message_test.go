package desk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

const (
	chatA  = "0190c0de-0000-7000-8000-0000000000a5"
	number = "+4915112345678"
	userID = "DE.77aa"
)

// said is a message on a channel with numbers, ids, or both.
func said(phone, id, body string) desk.InboundEvent {
	m := &channel.Message{ExternalID: "w." + body, From: channel.Party{Phone: phone, ID: id}, Text: body, StaleAfter: 7 * 24 * time.Hour}
	for _, key := range []string{id, phone} {
		switch {
		case key == "":
		case m.ThreadKey == "":
			m.ThreadKey = key
		default:
			m.OtherKeys = append(m.OtherKeys, key)
		}
	}
	return desk.InboundEvent{OrganizationID: orgA, ConnectionID: chatA, Channel: "whatsapp", Event: channel.Event{Message: m}}
}

// about is another event of the same connection.
func about(e channel.Event) desk.InboundEvent {
	return desk.InboundEvent{OrganizationID: orgA, ConnectionID: chatA, Channel: "whatsapp", Event: e}
}

func (f *fixture) exec(query string, args ...any) {
	f.Helper()
	if err := f.db.Write(f.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(f.Context(), query, args...)
		return err
	}); err != nil {
		f.Fatal(err)
	}
}

// TestKeysOfAThread: a customer is identified by number, by id, or by both, in any
// order.
func TestKeysOfAThread(t *testing.T) {
	type who struct{ phone, id string }
	n, i, both := who{number, ""}, who{"", userID}, who{number, userID}
	for _, order := range [][]who{
		{both, n, i}, {both, i, n}, {n, both, i}, {i, both, n}, {n, both, n, i}, {i, both, i, n, both},
	} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			f := newFixture(t)
			var first desk.Result
			for k, w := range order {
				r := f.intake(said(w.phone, w.id, fmt.Sprint("text ", k)))
				if k == 0 {
					first = r
				}
				if r.ConversationID != first.ConversationID || r.CustomerID != first.CustomerID {
					t.Errorf("message %d: got %+v, want it beside %+v", k, r, first)
				}
			}
			for table, want := range map[string]int{"tickets": 1, "customers": 1, "conversations": 1, "messages": len(order), "contact_points": 3} {
				if got := f.count(table); got != want {
					t.Errorf("got %d %s, want %d", got, table, want)
				}
			}
			c := f.customer(first.CustomerID)
			if got, want := asJSON(c.Phones)+asJSON(c.Identities), `["`+number+`"][{"channel":"whatsapp","external_id":"`+userID+`"}]`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// TestParallelKeys: the same concurrently, with one message that links both.
func TestParallelKeys(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for k := range 32 {
		wg.Go(func() {
			in := said(number, userID, fmt.Sprint("text ", k))
			if k%2 == 0 {
				in = said(number, "", fmt.Sprint("text ", k))
			}
			if _, err := f.tryIntake(in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f.intake(said("", userID, "by id"))
	for table, want := range map[string]int{"tickets": 1, "customers": 1, "conversations": 1, "messages": 33, "contact_points": 3} {
		if got := f.count(table); got != want {
			t.Errorf("got %d %s, want %d", got, table, want)
		}
	}
}

// TestTwoThreadsStayTwo: keys of another customer are not joined.
func TestTwoThreadsStayTwo(t *testing.T) {
	f := newFixture(t)
	byNumber, byID := f.intake(said(number, "", "one")), f.intake(said("", userID, "two"))
	r := f.intake(said(number, userID, "three"))
	if byNumber.CustomerID == byID.CustomerID || r.ConversationID != byID.ConversationID || r.CustomerID != byID.CustomerID {
		t.Errorf("got %+v, want it in the thread of the id", r)
	}
	if got := f.intake(said(number, "", "four")); got.ConversationID != byNumber.ConversationID || got.CustomerID != byNumber.CustomerID {
		t.Errorf("got %+v, want it in the thread of the number", got)
	}
	if got := f.customer(byID.CustomerID); len(got.Phones) != 0 {
		t.Errorf("got phones %q, want none: the number is another's", got.Phones)
	}
}

// TestKeysMove: all keys of a thread follow it into a survivor and back, and are
// deleted with the ticket.
func TestKeysMove(t *testing.T) {
	f := newFixture(t)
	one := f.intake(said(number, userID, "one"))
	other := f.intake(text("+4915199999999", "other"))
	if _, err := f.merge(orgA, one.TicketID, other.TicketID); err != nil {
		t.Fatal(err)
	}
	for _, in := range []desk.InboundEvent{said(number, "", "two"), said("", userID, "three")} {
		if r := f.intake(in); r.TicketID != other.TicketID || r.ConversationID != one.ConversationID {
			t.Errorf("merged: got %+v", r)
		}
	}
	if _, err := f.unmerge(orgA, one.TicketID); err != nil {
		t.Fatal(err)
	}
	for _, in := range []desk.InboundEvent{said(number, "", "four"), said("", userID, "five")} {
		if r := f.intake(in); r.TicketID != one.TicketID || r.ConversationID != one.ConversationID {
			t.Errorf("taken out again: got %+v", r)
		}
	}
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.DeleteTx(t.Context(), tx, orgA, one.TicketID) }); err != nil {
		t.Fatal(err)
	}
	r := f.intake(said("", userID, "six"))
	if r.Outcome != desk.TicketCreated || r.CustomerID != one.CustomerID {
		t.Errorf("deleted: got %+v", r)
	}
	if r := f.intake(said(number, userID, "seven")); r.Outcome != desk.Appended || r.CustomerID != one.CustomerID {
		t.Errorf("after that: got %+v", r)
	}
}

// TestSeveralInOneThread: in a group thread, each message has its own customer.
func TestSeveralInOneThread(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	in := func(user, body string) desk.InboundEvent {
		return desk.InboundEvent{OrganizationID: orgA, ConnectionID: chatA, Channel: "chat", Event: channel.Event{Message: &channel.Message{
			ExternalID: "C9:" + body, ThreadKey: "C9:1763", From: channel.Party{ID: user, Name: "Name of " + user}, Text: body,
		}}}
	}
	one, two := f.intake(in("U1", "printer is down")), f.intake(in("U2", "for me too"))
	if one.ConversationID != two.ConversationID || one.CustomerID == two.CustomerID {
		t.Errorf("got %+v and %+v, want one thread of two customers", one, two)
	}
	if m := f.messages(one.TicketID); m[0].Author.Name != "Name of U1" || m[1].Author.Name != "Name of U2" {
		t.Errorf("got authors %q and %q", m[0].Author.Name, m[1].Author.Name)
	}
	to := new(messageRecorder)
	f = fixtureOn(t, f.db, func(c *desk.Config) { c.Dispatcher = to })
	f.reply(one.TicketID, "on it")
	if got := to.last; got.To.ID != "U1" || got.ThreadKey != "C9:1763" || got.LastInboundID != "C9:for me too" {
		t.Errorf("got %+v, want it to the customer, in the thread", got)
	}
}

// messageRecorder admits all messages and stores the last.
type messageRecorder struct{ last channel.Outgoing }

func (s *messageRecorder) PrepareSend(_ context.Context, _ db.Querier, _, connectionID, _ string, m *channel.Outgoing) (string, error) {
	s.last = *m
	return connectionID, nil
}

func (f *fixture) reply(ticketID, body string) desk.Message {
	f.Helper()
	says, err := f.desk.Compose(f.Context(), orgA, desk.Draft{Text: body})
	if err != nil {
		f.Fatal(err)
	}
	var m desk.Message
	if err := f.db.Write(f.Context(), func(tx *db.Tx) error {
		m, err = f.desk.ReplyTx(f.Context(), tx, orgA, ticketID, desk.Reply{By: desk.Actor{ID: graceID, Name: "Grace"}, Content: says})
		return err
	}); err != nil {
		f.Fatal(err)
	}
	return m
}

func (f *fixture) waiting(id string) desk.OutboxMessage {
	f.Helper()
	w, err := f.desk.OutboxMessage(f.Context(), f.db, id)
	if err != nil {
		f.Fatal(err)
	}
	return w
}

// TestWhomAReplyIsFor: a reply has all identities of its recipient in the thread,
// and the message it answers.
func TestWhomAReplyIsFor(t *testing.T) {
	to := new(messageRecorder)
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = to })
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
	in := said(number, "", "one")
	in.Event.Message.SentAt = at
	r := f.intake(in)
	f.intake(text(number, "by another channel"))

	m := f.reply(r.TicketID, "yes?")
	if to.last.To != (channel.Party{Phone: number}) || to.last.LastInboundID != "w.one" || !to.last.LastInboundAt.Equal(at) {
		t.Errorf("got %+v", to.last)
	}
	if w := f.waiting(m.ID); w.To != to.last.To || w.LastInboundID != "w.one" || !w.LastInboundAt.Equal(at) || w.ThreadKey != to.last.ThreadKey {
		t.Errorf("waiting: got %+v", w.Outgoing)
	}
	two := said(number, userID, "two")
	two.Event.Message.SentAt = at.Add(time.Minute)
	f.intake(two)
	if w := f.waiting(m.ID); w.LastInboundID != "w.two" || !w.LastInboundAt.Equal(at.Add(time.Minute)) {
		t.Errorf("waiting after another message: got %+v", w.Outgoing)
	}
	m = f.reply(r.TicketID, "yes!")
	want := channel.Party{Phone: number, ID: userID}
	if w := f.waiting(m.ID); to.last.To != want || w.To != want {
		t.Errorf("got %+v and %+v, want %+v", to.last.To, w.To, want)
	}
}

// TestStaleThread: a thread leaves a ticket that has been closed for long, once.
func TestStaleThread(t *testing.T) {
	f := newFixture(t)
	one := f.intake(said(number, userID, "one"))
	f.setStatus(one.TicketID, desk.StatusClosed)
	f.exec("UPDATE tickets SET closed_at = closed_at - $1", (7*24*time.Hour - time.Minute).Microseconds())
	if r := f.intake(said(number, "", "two")); r.TicketID != one.TicketID || !r.Reopened {
		t.Errorf("within the week: got %+v, want it to reopen the ticket", r)
	}
	f.setStatus(one.TicketID, desk.StatusClosed)
	f.exec("UPDATE tickets SET closed_at = closed_at - $1", (7*24*time.Hour + time.Minute).Microseconds())
	f.emitted()

	if r := f.intake(said(number, "", "two")); r.Outcome != desk.Duplicate {
		t.Errorf("what is there already: got %+v", r)
	}
	r := f.intake(said("", userID, "three"))
	if r.Outcome != desk.TicketCreated || r.TicketID == one.TicketID || r.CustomerID != one.CustomerID || r.PlacedBy != desk.RuleNone || !r.MayAnswer {
		t.Fatalf("got %+v, want another ticket", r)
	}
	if got, want := f.emitted(), "ticket.created conversation.created message.created"; got != want {
		t.Errorf("got events %s, want %s", got, want)
	}
	if got := f.ticket(r.TicketID); got.LinkedTicketID != one.TicketID || got.LinkReason != desk.LinkClosed {
		t.Errorf("got %+v, want it linked", got)
	}
	if got := f.ticket(one.TicketID); got.Status != desk.StatusClosed {
		t.Errorf("the old one is %s", got.Status)
	}
	for _, in := range []desk.InboundEvent{said(number, "", "four"), said(number, userID, "five")} {
		if got := f.intake(in); got.ConversationID != r.ConversationID {
			t.Errorf("after that: got %+v, want it in the new ticket", got)
		}
	}
	if got := f.intake(said(number, userID, "one")); got.Outcome != desk.Duplicate || got.TicketID != one.TicketID {
		t.Errorf("the first once more: got %+v", got)
	}
	// Without a limit, the thread never leaves.
	f.setStatus(r.TicketID, desk.StatusClosed)
	f.exec("UPDATE tickets SET closed_at = 1")
	in := said(number, userID, "six")
	in.Event.Message.StaleAfter = 0
	if got := f.intake(in); got.TicketID != r.TicketID || !got.Reopened {
		t.Errorf("without an end: got %+v", got)
	}
}

// TestStaleOptOut: an opt-out also holds in the next ticket.
func TestStaleOptOut(t *testing.T) {
	f := newFixture(t)
	in := said(number, userID, "stop")
	in.Event.Message.OptOut = true
	one := f.intake(in)
	f.setStatus(one.TicketID, desk.StatusClosed)
	f.exec("UPDATE tickets SET closed_at = 1")
	r := f.intake(said(number, userID, "hm"))
	list, err := f.desk.Conversations(t.Context(), f.db, orgA, r.TicketID)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].OptedOutAt.IsZero() {
		t.Errorf("got %+v, want them opted out", list)
	}
}

func TestParallelStale(t *testing.T) {
	f := newFixture(t)
	one := f.intake(said(number, userID, "one"))
	f.setStatus(one.TicketID, desk.StatusClosed)
	f.exec("UPDATE tickets SET closed_at = 1")
	var wg sync.WaitGroup
	for k := range 24 {
		wg.Go(func() {
			in := said(number, "", fmt.Sprint("text ", k))
			if k%2 == 0 {
				in = said("", userID, fmt.Sprint("text ", k))
			}
			if _, err := f.tryIntake(in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for table, want := range map[string]int{"tickets": 2, "customers": 1, "conversations": 2, "messages": 25} {
		if got := f.count(table); got != want {
			t.Errorf("got %d %s, want %d", got, table, want)
		}
	}
}

// permutations calls fn with every order of n things.
func permutations(n int, fn func(order []int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var from func(k int)
	from = func(k int) {
		if k == n {
			fn(slices.Clone(order))
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			from(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	from(0)
}

// TestAnnotations: every order, with repetitions, has the same result.
func TestAnnotations(t *testing.T) {
	f := newFixture(t)
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	ana := channel.Party{ID: userID, Name: "Ana"}
	list := []channel.Annotation{
		{Kind: channel.Reacted, By: ana, Text: "👍", At: at},
		{Kind: channel.Edited, By: ana, Text: "the first edit", At: at.Add(time.Second)},
		{Kind: channel.Edited, By: ana, Text: "the last edit", At: at.Add(2 * time.Second)},
		{Kind: channel.Unreacted, By: ana, Text: "👍", At: at.Add(3 * time.Second)},
	}
	want := `[{"kind":"reacted","by":"Ana","by_id":"DE.77aa","text":"👍","at":"2026-11-20T10:00:00Z"},` +
		`{"kind":"edited","by":"Ana","by_id":"DE.77aa","text":"the first edit","at":"2026-11-20T10:00:01Z"},` +
		`{"kind":"edited","by":"Ana","by_id":"DE.77aa","text":"the last edit","at":"2026-11-20T10:00:02Z"},` +
		`{"kind":"unreacted","by":"Ana","by_id":"DE.77aa","text":"👍","at":"2026-11-20T10:00:03Z"}]`
	n := 0
	permutations(len(list), func(order []int) {
		n++
		r := f.intake(said("", userID, fmt.Sprint("original ", n)))
		f.setStatus(r.TicketID, desk.StatusResolved)
		f.emitted()
		for _, i := range order {
			a := list[i]
			a.ExternalID = fmt.Sprint("w.original ", n)
			got := f.intake(about(channel.Event{Annotation: &a}))
			if got.Outcome != desk.Annotated || got.MessageID != r.MessageID || got.TicketID != r.TicketID {
				t.Fatalf("got %+v", got)
			}
			if got := f.intake(about(channel.Event{Annotation: &a})); got.Outcome != desk.Duplicate {
				t.Fatalf("again: got %+v", got)
			}
		}
		if got := f.emitted(); got != "" {
			t.Errorf("got events %s", got)
		}
		all := f.messages(r.TicketID)
		m := all[len(all)-1]
		if len(all) != n || f.ticket(r.TicketID).Status != desk.StatusResolved {
			t.Errorf("got %d messages, want %d and the ticket as it was", len(all), n)
		}
		if m.Text != "the last edit" || m.Details.OriginalText != fmt.Sprint("original ", n) || asJSON(m.Details.Annotations) != want {
			t.Fatalf("order %v: got %q, before %q, %s", order, m.Text, m.Details.OriginalText, asJSON(m.Details.Annotations))
		}
	})
	if r := f.intake(about(channel.Event{Annotation: &channel.Annotation{ExternalID: "w.nothing", Kind: channel.Reacted}})); r.Outcome != desk.Recorded || r.Reason == "" {
		t.Errorf("of nothing: got %+v", r)
	}
	elsewhere := about(channel.Event{Annotation: &channel.Annotation{ExternalID: "w.original 1", Kind: channel.Deleted}})
	elsewhere.ConnectionID = smsA
	if r := f.intake(elsewhere); r.Outcome != desk.Recorded {
		t.Errorf("on another connection: got %+v", r)
	}
}

// TestDeletedMessage: a deleted message has no content, in whichever order deletion
// and edit arrive.
func TestDeletedMessage(t *testing.T) {
	ana := channel.Party{ID: userID, Name: "Ana"}
	edit := channel.Annotation{ExternalID: "w.1", Kind: channel.Edited, By: ana, Text: "sesame", At: time.Now()}
	gone := channel.Annotation{ExternalID: edit.ExternalID, Kind: channel.Deleted, By: ana, At: time.Now().Add(time.Second)}
	for _, order := range [][]channel.Annotation{{edit, gone}, {gone, edit}, {gone, gone}} {
		f := newFixture(t)
		in := said("", userID, "tell nobody\nplease")
		in.Event.Message.ExternalID = edit.ExternalID
		in.Event.Message.Attachments = []channel.Attachment{{Name: "a.txt", Data: []byte("secret")}}
		r := f.intake(in)
		f.index()
		for _, a := range order {
			f.intake(about(channel.Event{Annotation: &a}))
		}
		f.index()
		m := f.messages(r.TicketID)[0]
		if m.Text != "" || !m.Details.Deleted || len(m.Attachments) != 0 || strings.Contains(asJSON(m), "sesame") || strings.Contains(asJSON(m), "nobody") {
			t.Errorf("got %s", asJSON(m))
		}
		if got := f.ticket(r.TicketID).Subject; got != "(deleted message)" {
			t.Errorf("got subject %q", got)
		}
		for _, word := range []string{"nobody", "sesame"} {
			if got := f.numbers(orgA, desk.TicketQuery{Text: word}); len(got) != 0 {
				t.Errorf("found %v by %s", got, word)
			}
		}
	}
}

func TestRelink(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	one := f.intake(said(number, "", "one"))
	waits := f.reply(one.TicketID, "yes?")
	f.emitted()
	const fresh = "+4915177777777"
	move := about(channel.Event{IdentityChange: &channel.IdentityChange{
		From: channel.Party{Phone: number}, To: channel.Party{Phone: fresh, ID: userID}, FromKey: number, ToKeys: []string{userID, fresh},
	}})
	r := f.intake(move)
	if r.Outcome != desk.IdentityChanged || r.ConversationID != one.ConversationID || r.CustomerID != one.CustomerID {
		t.Fatalf("got %+v", r)
	}
	if got, want := f.emitted(), "customer.updated"; got != want {
		t.Errorf("got events %s, want %s", got, want)
	}
	c := f.customer(one.CustomerID)
	if got, want := asJSON(c.Phones)+asJSON(c.Identities), `["`+fresh+`"][{"channel":"whatsapp","external_id":"`+userID+`"}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	m := f.messages(one.TicketID)
	if note := m[len(m)-1]; note.Kind != desk.KindNote || note.Text != "The customer's number or id is "+fresh+" from now on, instead of "+number+"." {
		t.Errorf("got %+v, want a note", note)
	}
	if got, want := f.waiting(waits.ID).To, (channel.Party{Phone: fresh, ID: userID}); got != want {
		t.Errorf("what waits goes to %+v, want %+v", got, want)
	}
	for _, in := range []desk.InboundEvent{said(fresh, "", "two"), said("", userID, "three")} {
		if got := f.intake(in); got.ConversationID != one.ConversationID || got.CustomerID != one.CustomerID {
			t.Errorf("by the new: got %+v", got)
		}
	}
	if r := f.intake(move); r.Outcome != desk.Recorded {
		t.Errorf("once more: got %+v", r)
	}
	// Another customer gets the number.
	other := f.intake(said(number, "", "hello"))
	if other.Outcome != desk.TicketCreated || other.CustomerID == one.CustomerID {
		t.Errorf("the next owner: got %+v", other)
	}
	if r := f.intake(move); r.ConversationID != other.ConversationID {
		t.Errorf("a replay: got %+v", r)
	}
	if got := f.intake(said(number, "", "still me")); got.CustomerID != other.CustomerID {
		t.Errorf("after a replay: got %+v, want nothing moved", got)
	}
	if r := f.intake(about(channel.Event{IdentityChange: &channel.IdentityChange{FromKey: "+4915100000000", ToKeys: []string{"X"}}})); r.Outcome != desk.Recorded {
		t.Errorf("of nobody: got %+v", r)
	}
}

// TestRelinkTooLate: a customer with messages under the new id stays separate.
func TestRelinkTooLate(t *testing.T) {
	f := newFixture(t)
	one, two := f.intake(said("", "DE.1", "one")), f.intake(said("", "DE.2", "two"))
	r := f.intake(about(channel.Event{IdentityChange: &channel.IdentityChange{
		From: channel.Party{ID: "DE.1"}, To: channel.Party{ID: "DE.2"}, FromKey: "DE.1", ToKeys: []string{"DE.2"},
	}}))
	m := f.messages(one.TicketID)
	if note := m[len(m)-1]; r.Outcome != desk.IdentityChanged || !strings.Contains(note.Text, fmt.Sprintf("ticket #%d", two.TicketNumber)) {
		t.Errorf("got %+v, %q, want a note that names the other ticket", r, note.Text)
	}
	if a, b := f.intake(said("", "DE.1", "three")), f.intake(said("", "DE.2", "four")); a.CustomerID != one.CustomerID || b.CustomerID != two.CustomerID {
		t.Error("they were joined")
	}
}

// TestThreadReceipts: a receipt for a thread until a time covers messages sent by
// then only.
func TestThreadReceipts(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	r := f.intake(said("", userID, "one"))
	echo := func(body string) string {
		in := said("", userID, body)
		in.Event.Message.Outbound, in.Event.Message.To = true, []channel.Party{{ID: userID}}
		return f.intake(in).MessageID
	}
	first, second := echo("a"), echo("b")
	between := time.Now()
	third := echo("c")
	waits := f.reply(r.TicketID, "not sent yet")
	f.emitted()
	report := func(state channel.ReceiptState, until time.Time) desk.Result {
		return f.intake(about(channel.Event{Receipt: &channel.Receipt{ThreadKey: userID, Until: until, State: state}}))
	}
	if got := report(channel.ReceiptRead, between); got.Outcome != desk.ReceiptApplied || got.MessageID != second {
		t.Errorf("read: got %+v", got)
	}
	if got := report(channel.ReceiptDelivered, time.Now()); got.Outcome != desk.ReceiptApplied || got.MessageID != third {
		t.Errorf("delivered: got %+v", got)
	}
	if got := report(channel.ReceiptDelivered, time.Now()); got.Outcome != desk.Recorded {
		t.Errorf("once more: got %+v", got)
	}
	states := map[string]channel.ReceiptState{}
	for _, m := range f.messages(r.TicketID) {
		states[m.ID] = m.Delivery.State
	}
	for id, want := range map[string]channel.ReceiptState{
		r.MessageID: "", first: channel.ReceiptRead, second: channel.ReceiptRead, third: channel.ReceiptDelivered, waits.ID: channel.ReceiptQueued,
	} {
		if states[id] != want {
			t.Errorf("got %s, want %s", states[id], want)
		}
	}
	if got := f.emitted(); got != "" {
		t.Errorf("got events %s", got)
	}
	if r := f.intake(about(channel.Event{Receipt: &channel.Receipt{ThreadKey: "nobody", State: channel.ReceiptRead}})); r.Outcome != desk.Recorded {
		t.Errorf("of no thread: got %+v", r)
	}
}

// TestThreadReceiptsByName: the messages named in a thread's receipt are covered at
// any time, also if the thread is unknown.
func TestThreadReceiptsByName(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	r := f.intake(said("", userID, "one"))
	var sent []string
	for _, body := range []string{"a", "b", "c"} { // w.a and so on by name
		in := said("", userID, body)
		in.Event.Message.Outbound, in.Event.Message.To = true, []channel.Party{{ID: userID}}
		sent = append(sent, f.intake(in).MessageID)
	}
	before := time.Now().Add(-time.Hour) // a clock that is behind
	report := func(thread string, ids ...string) desk.Result {
		return f.intake(about(channel.Event{Receipt: &channel.Receipt{ThreadKey: thread, Until: before, State: channel.ReceiptDelivered, ExternalIDs: ids}}))
	}
	if got := report(userID, "w.a", "w.c", "w.unknown"); got.Outcome != desk.ReceiptApplied || got.MessageID != sent[0] {
		t.Errorf("got %+v", got)
	}
	if got := report("nobody", "w.b"); got.Outcome != desk.ReceiptApplied || got.MessageID != sent[1] {
		t.Errorf("of no thread: got %+v", got)
	}
	for _, m := range f.messages(r.TicketID) {
		if m.ID != r.MessageID && m.Delivery.State != channel.ReceiptDelivered {
			t.Errorf("%s: got %s", m.Text, m.Delivery.State)
		}
	}
}

// TestEcho: an outbound message that the provider reports before we know its id is
// no second message.
func TestEcho(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	r := f.intake(said("", userID, "one"))
	m := f.reply(r.TicketID, "yes?")
	w := f.waiting(m.ID)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.RecordSubmissionTx(t.Context(), tx, &w, "a way") }); err != nil {
		t.Fatal(err)
	}
	in := said("", userID, "yes?")
	in.Event.Message.Outbound, in.Event.Message.To = true, []channel.Party{{ID: userID}}
	for range 2 {
		if got := f.intake(in); got.Outcome != desk.Duplicate || got.MessageID != m.ID {
			t.Errorf("got %+v, want the message that is on its way", got)
		}
	}
	if got := f.intake(about(channel.Event{Receipt: &channel.Receipt{ExternalIDs: []string{"w.yes?"}, State: channel.ReceiptRead}})); got.MessageID != m.ID {
		t.Errorf("got %+v, want the id known", got)
	}
}

func TestMetadataOfAMessage(t *testing.T) {
	f := newFixture(t)
	in := said("", userID, "Yes")
	in.Event.Message.Metadata = map[string]string{"payload": "YES\x00", strings.Repeat("k", 60): strings.Repeat("v", 600)}
	r := f.intake(in)
	want := map[string]string{"payload": "YES", strings.Repeat("k", 39) + "…": strings.Repeat("v", 499) + "…"}
	if got := f.messages(r.TicketID)[0].Details.Metadata; asJSON(got) != asJSON(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
