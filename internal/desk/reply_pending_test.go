package desk_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// later stores a reply by an agent that leaves later.
func (f *fixture) later(ticketID string, by desk.Actor, r desk.Reply, d desk.Draft) (desk.Message, error) {
	f.Helper()
	r.By, r.Content = by, f.compose(d)
	return write(f, func(tx *db.Tx) (desk.Message, error) { return f.desk.ReplyTx(f.Context(), tx, orgA, ticketID, r) })
}

func (f *fixture) cancel(org, messageID string) error {
	_, err := write(f, func(tx *db.Tx) (desk.CancelledReply, error) {
		return f.desk.CancelReplyTx(f.Context(), tx, org, messageID)
	})
	return err
}

// pending returns the texts and states of a ticket's pending replies.
func (f *fixture) pending(ticketID string) string {
	f.Helper()
	list, err := f.desk.PendingReplies(f.Context(), f.db, orgA, ticketID)
	if err != nil {
		f.Fatal(err)
	}
	var words []string
	for _, m := range list {
		words = append(words, m.Text+" "+string(m.Delivery.State))
	}
	return strings.Join(words, ", ")
}

// onClock runs a test on virtual time with a running queue.
func onClock(t *testing.T, test func(t *testing.T, f *fixture), change ...func(*desk.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t), change...)
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
		test(t, f)
	})
}

// pass lets time pass, and the jobs that fall due run.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestHeldReply(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		ticket, seen := f.begin("It is flat.")
		f.emitted()
		m, err := f.later(ticket, grace, desk.Reply{Seen: seen, Hold: 10 * time.Second},
			desk.Draft{Text: "We come.", Attachments: []channel.Attachment{{Name: "map.txt", Data: []byte("left")}}})
		if err != nil || m.Delivery.State != desk.DeliveryHeld {
			t.Fatalf("got %+v, %v", m.Delivery, err)
		}
		pass(9 * time.Second)
		if got := f.pending(ticket); got != "We come. held" || len(f.messages(ticket)) != 1 || f.emitted() != "" || !f.ticket(ticket).FirstRespondedAt.IsZero() {
			t.Errorf("while it is held: pending %q, %d messages", got, len(f.messages(ticket)))
		}
		pass(2 * time.Second)
		sent := f.messages(ticket)
		if len(sent) != 2 || sent[1].ID != m.ID || sent[1].Text != "We come." || len(sent[1].Attachments) != 1 || f.pending(ticket) != "" {
			t.Fatalf("after its time: %+v, pending %q", sent, f.pending(ticket))
		}
		if got := f.emitted(); got != "conversation.created message.created message.agent_reply" {
			t.Errorf("it emitted %q", got)
		}
		if at := f.ticket(ticket).FirstRespondedAt; at.Sub(m.CreatedAt) < 10*time.Second {
			t.Errorf("the first response was %v after it was written", at.Sub(m.CreatedAt))
		}
		if _, content, err := f.desk.OpenAttachment(t.Context(), orgA, sent[1].Attachments[0].ID); err != nil {
			t.Errorf("its file: %v", err)
		} else {
			content.Close()
		}
		refused(t, "undoing it too late", f.cancel(orgA, m.ID), problem.Conflict, "invalid_transition", "")
	})
}

func TestUndoReply(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		ticket, _ := f.begin("It is flat.")
		f.emitted()
		m, err := f.later(ticket, grace, desk.Reply{Hold: 10 * time.Second}, desk.Draft{Text: "No.", Attachments: []channel.Attachment{{Name: "a.txt", Data: []byte("a")}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.cancel(orgB, m.ID); problem.Of(err) != problem.NotFound {
			t.Errorf("another organization undoes it: %v", err)
		}
		if err := f.cancel(orgA, m.ID); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if len(f.messages(ticket)) != 1 || f.pending(ticket) != "" || f.emitted() != "" || f.count("attachments") != 0 || f.count("jobs") != 0 {
			t.Errorf("it left %d messages, %d files, %d jobs", len(f.messages(ticket)), f.count("attachments"), f.count("jobs"))
		}
		if err := f.cancel(orgA, m.ID); problem.Of(err) != problem.NotFound {
			t.Errorf("undone twice: %v", err)
		}
	})
}

// Replies that are due together leave in the order of their times.
func TestHeldRepliesInOrder(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		ticket, _ := f.begin("It is flat.")
		for _, text := range []string{"one", "two", "three", "four"} {
			if _, err := f.later(ticket, grace, desk.Reply{Hold: 10 * time.Second}, desk.Draft{Text: text}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		pass(time.Minute)
		if got := f.texts(ticket); got != "It is flat. one two three four" {
			t.Errorf("they left as %q", got)
		}
	})
}

func TestScheduledReplyCrossed(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		ticket, seen := f.begin("It is flat.")
		m, err := f.later(ticket, grace, desk.Reply{Seen: seen, SendAt: time.Now().Add(time.Hour)}, desk.Draft{Text: "Tomorrow."})
		if err != nil || m.Delivery.State != desk.DeliveryScheduled {
			t.Fatalf("got %+v, %v", m.Delivery, err)
		}
		_, err = f.replyHaving(ticket, robin, seen)
		refused(t, "a reply that crosses it", err, problem.Conflict, desk.CodeCrossedReply, "")
		if c, ok := desk.AsCrossedReply(err); !ok || c.ID != m.ID || c.Author.Name != "Grace" {
			t.Errorf("it crossed %+v", c)
		}
		if _, err := f.replyHaving(ticket, robin, &m.ID); err != nil {
			t.Fatalf("a reply by an agent who has seen it: %v", err)
		}
		f.read(graceID, ticket)
		pass(2 * time.Hour)
		if got := f.pending(ticket); got != "Tomorrow. failed" || len(f.messages(ticket)) != 2 {
			t.Fatalf("the scheduled reply is %q, and there are %d messages", got, len(f.messages(ticket)))
		}
		if p, err := f.desk.PendingReply(t.Context(), f.db, orgA, m.ID); err != nil || !strings.Contains(p.Delivery.Error, "Robin has replied") {
			t.Errorf("the reason is %q, %v", p.Delivery.Error, err)
		}
		if f.unread(graceID) != "1" {
			t.Error("its ticket is not unread")
		}
		if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.SendNowTx(t.Context(), tx, orgA, m.ID) }); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if got := f.texts(ticket); got != "It is flat. From Robin Tomorrow." || f.pending(ticket) != "" {
			t.Errorf("sent all the same: %q", got)
		}
	})
}

func TestScheduledReplyRefused(t *testing.T) {
	f := newFixture(t)
	ticket, _ := f.begin("It is flat.")
	for what, at := range map[string]time.Time{"now": time.Now(), "the past": time.Now().Add(-time.Hour), "two years": time.Now().AddDate(2, 0, 0)} {
		_, err := f.later(ticket, grace, desk.Reply{SendAt: at}, desk.Draft{Text: "x"})
		refused(t, what, err, problem.Invalid, "invalid_value", "send_at")
	}
	for range 20 {
		if _, err := f.later(ticket, grace, desk.Reply{SendAt: time.Now().Add(time.Hour)}, desk.Draft{Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.later(ticket, grace, desk.Reply{SendAt: time.Now().Add(time.Hour)}, desk.Draft{Text: "x"})
	if problem.Of(err) != problem.Precondition || f.count("pending_replies") != 20 {
		t.Errorf("one too many: %v", err)
	}
	if text := f.intake(text("+4915112345678", "hello")).TicketID; f.count("pending_replies") == 20 {
		if _, err := f.later(text, grace, desk.Reply{SendAt: time.Now().Add(time.Hour)}, desk.Draft{Text: "x"}); problem.Of(err) != problem.Precondition {
			t.Errorf("without a way to send: %v", err)
		}
	}
}

// A pending reply follows its conversation, and goes with its ticket.
func TestPendingReplyMoves(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	one, two := f.intake(text("+4915112345671", "one")).TicketID, f.intake(text("+4915112345672", "two")).TicketID
	m, err := f.later(one, grace, desk.Reply{SendAt: time.Now().Add(time.Hour)}, desk.Draft{Text: "later", Attachments: []channel.Attachment{{Name: "a.txt", Data: []byte("a")}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.merge(orgA, one, two); err != nil {
		t.Fatal(err)
	}
	if f.pending(one) != "" || f.pending(two) != "later scheduled" {
		t.Errorf("merged: %q and %q", f.pending(one), f.pending(two))
	}
	if _, err := f.unmerge(orgA, one); err != nil {
		t.Fatal(err)
	}
	if p, err := f.desk.PendingReply(t.Context(), f.db, orgA, m.ID); err != nil || p.TicketID != one || len(p.Attachments) != 1 {
		t.Errorf("unmerged: %+v, %v", p, err)
	}
	jobs := f.count("jobs")
	f.delete(one)
	if f.count("pending_replies") != 0 || f.count("attachments") != 0 || f.count("jobs WHERE kind = 'desk.send'") != 0 {
		t.Errorf("deleted with %d replies and %d of %d jobs left", f.count("pending_replies"), f.count("jobs"), jobs)
	}
}

// Replies leave on the present engine, too.
func TestHeldReplyLeaves(t *testing.T) {
	f := newFixture(t)
	if err := f.queue.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer f.queue.Stop(context.Background())
	id, seen := f.begin("It is flat.")
	if _, err := f.later(id, grace, desk.Reply{Hold: 20 * time.Millisecond, Seen: seen}, desk.Draft{Text: "soon"}); err != nil {
		t.Fatal(err)
	}
	f.waitForTimers(func() bool { return f.count("pending_replies") == 0 })
	if got := f.texts(id); got != "It is flat. soon" {
		t.Errorf("the thread is %q", got)
	}
}

// A person decides about replies that fell due after the backup of a restored database.
func TestPendingReplyRestored(t *testing.T) {
	f := newFixture(t)
	ticket, _ := f.begin("It is flat.")
	for text, in := range map[string]time.Duration{"due": 0, "later": time.Hour} {
		r := desk.Reply{SendAt: time.Now().Add(in)}
		if in == 0 {
			r = desk.Reply{Hold: time.Nanosecond}
		}
		if _, err := f.later(ticket, grace, r, desk.Draft{Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return desk.MarkRestoredTx(t.Context(), tx) }); err != nil {
		t.Fatal(err)
	}
	if got := f.pending(ticket); got != "due failed, later failed" {
		t.Errorf("got %q", got)
	}
}

// TestCrossedSends: of two agents who answer the same ticket at once, 100 times, one is refused
// each time, although no answer has left yet.
func TestCrossedSends(t *testing.T) {
	f := newFixture(t)
	ticket, seen := f.begin("It is flat.")
	for round := range 100 {
		var replies sync.WaitGroup
		errs := make([]error, 2)
		ids := make([]string, 2)
		for i, by := range []desk.Actor{grace, robin} {
			content := f.compose(desk.Draft{Text: "From " + by.Name})
			replies.Go(func() {
				var m desk.Message
				m, errs[i] = write(f, func(tx *db.Tx) (desk.Message, error) {
					return f.desk.ReplyTx(f.Context(), tx, orgA, ticket, desk.Reply{By: by, Content: content, Seen: seen, Hold: time.Minute})
				})
				ids[i] = m.ID
			})
		}
		replies.Wait()
		var passed strings.Builder
		for i, err := range errs {
			if _, crossed := desk.AsCrossedReply(err); err == nil {
				passed.WriteString(ids[i])
			} else if !crossed {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if len(passed.String()) != len(ids[0]+ids[1]) || passed.String() == "" || f.count("pending_replies") != 1 {
			t.Fatalf("round %d: both passed", round)
		}
		if err := f.cancel(orgA, passed.String()); err != nil {
			t.Fatal(err)
		}
	}
}

// seen returns what a reader of a ticket has seen last.
func (f *fixture) seen(ticketID string) *string {
	f.Helper()
	messages := f.messages(ticketID)
	id, err := f.desk.NewestSeen(f.Context(), f.db, ticketID, &messages[len(messages)-1])
	if err != nil {
		f.Fatal(err)
	}
	return &id
}

// A scheduled reply that waits does not make later replies cross, once they are seen.
func TestScheduledReplyWaits(t *testing.T) {
	f := newFixture(t)
	ticket, _ := f.begin("It is flat.")
	tomorrow := time.Now().Add(24 * time.Hour)
	m, err := f.later(ticket, grace, desk.Reply{Seen: f.seen(ticket), SendAt: tomorrow}, desk.Draft{Text: "Tomorrow."})
	if err != nil {
		t.Fatal(err)
	}
	if got := f.seen(ticket); *got != m.ID {
		t.Errorf("a reader has seen %s last, want the scheduled reply", *got)
	}
	for _, by := range []desk.Actor{robin, grace, robin, partner, grace} {
		if _, err := f.replyHaving(ticket, by, f.seen(ticket)); err != nil {
			t.Errorf("%s has seen everything: %v", by.Name, err)
		}
	}
}

// A pending reply without a conversation so far stays its customer's after a merge.
func TestPendingReplyOfItsOwn(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		empty, err := f.create(orgA, desk.NewTicket{By: grace, Subject: "For Ana", Customer: &desk.Person{Email: "ana@c.example"}})
		if err != nil {
			t.Fatal(err)
		}
		bob := f.intake(text("+4915112345671", "I am Bob")).TicketID
		m, err := f.later(empty.ID, grace, desk.Reply{SendAt: time.Now().Add(time.Hour)}, desk.Draft{Text: "Dear Ana"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.merge(orgA, empty.ID, bob); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Hour)
		if n := f.count("outbox"); n != 0 {
			t.Error("the reply to Ana goes to Bob")
		}
		if got, err := f.desk.OutboundMessage(t.Context(), f.db, orgA, m.ID); err != nil || got.Channel != desk.ChannelAPI || got.ConversationID != m.ConversationID {
			t.Errorf("it is %+v, %v", got, err)
		}
	}, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
}

// Data with pending replies is sound, and their files are found by a search only once they left.
func TestPendingReplyIsSound(t *testing.T) {
	f := newFixture(t)
	ticket, _ := f.begin("It is flat.")
	m, err := f.later(ticket, grace, desk.Reply{SendAt: time.Now().Add(time.Hour)}, desk.Draft{Text: "later", Attachments: []channel.Attachment{{Name: "zebra.txt", Data: []byte("z")}}})
	if err != nil {
		t.Fatal(err)
	}
	f.index()
	f.wantInvariants(t)
	if n := f.numbers(orgA, desk.TicketQuery{Text: "zebra"}); len(n) != 0 {
		t.Error("a search finds the file of a reply that has not left")
	}
	if err := f.cancel(orgA, m.ID); err != nil {
		t.Fatal(err)
	}
	f.index()
	f.wantInvariants(t)
}
