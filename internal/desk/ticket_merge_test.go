package desk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

func (f *fixture) merge(org, id, into string) (desk.Ticket, error) {
	return write(f, func(tx *db.Tx) (desk.Ticket, error) { return f.desk.MergeTx(f.Context(), tx, org, id, into) })
}

func (f *fixture) unmerge(org, id string) (desk.Ticket, error) {
	return write(f, func(tx *db.Tx) (desk.Ticket, error) { return f.desk.UnmergeTx(f.Context(), tx, org, id) })
}

func (f *fixture) split(org, id string, messages ...string) (desk.Ticket, error) {
	return write(f, func(tx *db.Tx) (desk.Ticket, error) { return f.desk.SplitTx(f.Context(), tx, org, id, messages) })
}

// texts returns the messages of a ticket, in order.
func (f *fixture) texts(ticketID string) string {
	f.Helper()
	var list []string
	for _, m := range f.messages(ticketID) {
		list = append(list, m.Text)
	}
	return strings.Join(list, " ")
}

// reply is a reply by mail.
func reply(from, id, to string) desk.InboundEvent {
	in := mail(from, id)
	in.Event.Message.Mail.InReplyTo = []string{to}
	in.Event.Message.Text = id
	return in
}

// tagged is a mail with a ticket's number in its subject.
func tagged(from, id string, number int64) desk.InboundEvent {
	in := mail(from, id)
	in.Event.Message.Mail.TicketTag = number
	in.Event.Message.Text = id
	return in
}

func TestMerge(t *testing.T) {
	f := newFixture(t)
	m := mail("ana@c.example", "a1")
	m.Event.Message.Text = "a1"
	m.Event.Message.Attachments = []channel.Attachment{{Name: "a.txt", Data: []byte("a")}}
	m.Event.Message.Cc = []channel.Party{{Email: "carl@c.example"}}
	a := f.intake(m)
	m = mail("bob@c.example", "b1")
	m.Event.Message.Text = "b1"
	b := f.intake(m)
	if _, err := f.note(orgA, a.TicketID, grace, desk.Draft{Text: "a-note"}); err != nil {
		t.Fatal(err)
	}
	f.setStatus(a.TicketID, desk.StatusPending)
	f.emitted()

	survivor, err := f.merge(orgA, a.TicketID, b.TicketID)
	if err != nil || survivor.ID != b.TicketID {
		t.Fatalf("got %+v, %v", survivor, err)
	}
	if got, want := asJSON(f.log[0].Data.Changes), `{"merged_into_id":{"from":null,"to":"`+b.TicketID+`"},"status":{"from":"pending","to":"closed"}}`; got != want {
		t.Errorf("changes\n got %s\nwant %s", got, want)
	}
	if got, want := asJSON(f.log[2].Data.Changes), `{"merged_ticket_id":{"from":null,"to":"`+a.TicketID+`"}}`; got != want || f.log[2].Data.Ticket.ID != b.TicketID {
		t.Errorf("changes\n got %s\nwant %s", got, want)
	}
	if got, want := f.emitted(), "ticket.updated ticket.status_changed ticket.updated"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
	merged := f.ticket(a.TicketID)
	if merged.MergedIntoID != b.TicketID || merged.MergedAt.IsZero() || merged.Status != desk.StatusClosed {
		t.Errorf("merged: %+v", merged)
	}
	if got := f.texts(a.TicketID); got != "" {
		t.Errorf("the merged ticket still says %s", got)
	}
	if got := f.texts(b.TicketID); got != "a1 b1 a-note" {
		t.Errorf("the survivor says %s", got)
	}
	file := f.messages(b.TicketID)[0].Attachments
	if len(file) != 1 || file[0].Size != 1 {
		t.Errorf("attachments: %+v", file)
	}

	// All references to either ticket lead to the survivor.
	for _, in := range []desk.InboundEvent{
		reply("ana@c.example", "a2", "a1"), reply("bob@c.example", "b2", "b1"),
		tagged("ana@c.example", "a3", 1), tagged("ana@c.example", "a4", 2), tagged("bob@c.example", "b3", 1),
		tagged("carl@c.example", "c1", 1), tagged("carl@c.example", "c2", 2),
	} {
		if r := f.intake(in); r.Outcome != desk.Appended || r.TicketID != b.TicketID {
			t.Errorf("%s: %+v, want it in the survivor", in.Event.Message.Text, r)
		}
	}
	if r := f.intake(tagged("eve@x.example", "e1", 1)); r.Outcome != desk.TicketCreated || f.ticket(r.TicketID).LinkedTicketID != b.TicketID {
		t.Errorf("a stranger's mail: %+v, want a new ticket that points at the survivor", r)
	}
	if _, err := f.note(orgA, a.TicketID, grace, desk.Draft{Text: "b-note"}); err != nil {
		t.Error(err)
	}
	if got, want := f.texts(b.TicketID), "a1 b1 a-note a2 b2 a3 a4 b3 c1 c2 b-note"; got != want {
		t.Errorf("the survivor says\n got %s\nwant %s", got, want)
	}
	_, err = f.update(orgA, a.TicketID, desk.Update{Status: new(desk.StatusOpen)})
	refused(t, "a change of the merged ticket", err, problem.Conflict, "invalid_transition", "")
	_, err = f.split(orgA, a.TicketID, a.MessageID)
	refused(t, "a split of the merged ticket", err, problem.Conflict, "invalid_transition", "")
	f.emitted()

	// And back.
	back, err := f.unmerge(orgA, a.TicketID)
	if err != nil || back.ID != a.TicketID || back.MergedIntoID != "" || !back.MergedAt.IsZero() || back.Status != desk.StatusOpen {
		t.Fatalf("got %+v, %v; want it open, because its customer has written since", back, err)
	}
	if got, want := asJSON(f.log[0].Data.Changes), `{"merged_into_id":{"from":"`+b.TicketID+`","to":null},"status":{"from":"closed","to":"open"}}`; got != want {
		t.Errorf("changes\n got %s\nwant %s", got, want)
	}
	if got, want := f.emitted(), "ticket.updated ticket.status_changed ticket.updated"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
	// A ticket number places a mail in the first conversation.
	if got, want := f.texts(a.TicketID)+" | "+f.texts(b.TicketID), "a1 a-note a2 a3 a4 b3 c1 c2 | b1 b2 b-note"; got != want {
		t.Errorf("they say\n got %s\nwant %s", got, want)
	}
	if len(f.messages(a.TicketID)[0].Attachments) != 1 {
		t.Error("the attachment did not come back")
	}
	if stored := f.ticket(a.TicketID); asJSON(stored) != asJSON(back) {
		t.Errorf("stored\n got %s\nwant %s", asJSON(stored), asJSON(back))
	}
	if r := f.intake(reply("ana@c.example", "a5", "a2")); r.TicketID != a.TicketID {
		t.Errorf("an answer: %+v", r)
	}
	// A participant through the merge is none any more.
	if r := f.intake(tagged("carl@c.example", "c3", 2)); r.Outcome != desk.TicketCreated {
		t.Errorf("a mail of who takes part in the other: %+v", r)
	}
	_, err = f.unmerge(orgA, a.TicketID)
	refused(t, "undone twice", err, problem.Conflict, "invalid_transition", "")
}

func TestUnmergeRestoresTheStatus(t *testing.T) {
	for _, status := range desk.Statuses {
		f := newFixture(t)
		a, b := f.intake(text("+4915112345671", "a")), f.intake(text("+4915112345672", "b"))
		f.setStatus(a.TicketID, status)
		if _, err := f.merge(orgA, a.TicketID, b.TicketID); err != nil {
			t.Fatal(err)
		}
		f.emitted()
		back, err := f.unmerge(orgA, a.TicketID)
		if err != nil || back.Status != status {
			t.Errorf("got %+v, %v; want %s", back, err, status)
		}
		want := "ticket.updated ticket.status_changed ticket.updated"
		if status == desk.StatusClosed {
			want = "ticket.updated ticket.updated"
		}
		if got := f.emitted(); got != want {
			t.Errorf("%s: events\n got %s\nwant %s", status, got, want)
		}
	}
}

func TestMergeRefuses(t *testing.T) {
	f := newFixture(t)
	a, b, c := f.intake(text("+4915112345671", "a")).TicketID, f.intake(text("+4915112345672", "b")).TicketID, f.intake(text("+4915112345673", "c")).TicketID
	in := text("+4915112345671", "other")
	in.OrganizationID, in.ConnectionID = orgB, smsB
	other := f.intake(in).TicketID
	if _, err := f.merge(orgA, a, b); err != nil {
		t.Fatal(err)
	}
	f.emitted()
	for _, r := range []struct{ what, org, id, into string }{
		{"itself", orgA, b, b}, {"a cycle", orgA, b, a}, {"what is merged", orgA, a, c}, {"into what is merged", orgA, c, a},
	} {
		_, err := f.merge(r.org, r.id, r.into)
		refused(t, r.what, err, problem.Conflict, "invalid_transition", "")
	}
	for _, id := range []string{other, "nothing"} {
		_, err := f.merge(orgA, c, id)
		refused(t, "into nothing", err, problem.Invalid, "not_found", "into")
		_, err = f.merge(orgA, id, c)
		refused(t, "nothing", err, problem.NotFound, "", "")
		_, err = f.unmerge(orgA, id)
		refused(t, "undo of nothing", err, problem.NotFound, "", "")
		_, err = f.split(orgA, id, "x")
		refused(t, "split of nothing", err, problem.NotFound, "", "")
	}
	if got := f.emitted(); got != "" {
		t.Errorf("events %s", got)
	}
}

func TestMergeChain(t *testing.T) {
	f := newFixture(t)
	numbers := []string{"+4915112345671", "+4915112345672", "+4915112345673"}
	var id []string
	for i, number := range numbers {
		id = append(id, f.intake(text(number, fmt.Sprint(i))).TicketID)
	}
	say := func(i int, what string) string {
		t.Helper()
		return f.intake(text(numbers[i], what)).TicketID
	}
	for i := range 2 {
		if _, err := f.merge(orgA, id[i], id[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if got := say(0, "3"); got != id[2] || f.texts(id[2]) != "0 1 2 3" {
		t.Errorf("in the chain: %s says %s", got, f.texts(id[2]))
	}
	// The middle ticket takes its merged ticket along.
	if _, err := f.unmerge(orgA, id[1]); err != nil {
		t.Fatal(err)
	}
	if got := say(0, "4"); got != id[1] || f.texts(id[1]) != "0 1 3 4" || f.texts(id[2]) != "2" {
		t.Errorf("half undone: %s, %s | %s", got, f.texts(id[1]), f.texts(id[2]))
	}
	if _, err := f.merge(orgA, id[1], id[2]); err != nil {
		t.Fatal(err)
	}
	// The first of them comes from the last.
	if _, err := f.unmerge(orgA, id[0]); err != nil {
		t.Fatal(err)
	}
	if f.texts(id[0]) != "0 3 4" || f.texts(id[1]) != "" || f.texts(id[2]) != "1 2" {
		t.Errorf("undone: %s | %s | %s", f.texts(id[0]), f.texts(id[1]), f.texts(id[2]))
	}
}

func TestDeleteMerged(t *testing.T) {
	f := newFixture(t)
	var id []string
	for i := range 4 {
		id = append(id, f.intake(mail("ana@c.example", fmt.Sprint("m", i))).TicketID)
	}
	for i := range 3 {
		if _, err := f.merge(orgA, id[i], id[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	f.emitted()
	f.delete(id[1])
	if got := f.emitted(); got != "ticket.deleted" {
		t.Errorf("events %s", got)
	}
	if n := len(f.messages(id[3])); n != 4 {
		t.Errorf("%d messages in the survivor, want all", n)
	}
	if got := f.ticket(id[0]).MergedIntoID; got != id[2] {
		t.Errorf("what was merged into the deleted is in %s", got)
	}
	if r := f.intake(reply("ana@c.example", "r", "m1")); r.TicketID != id[3] {
		t.Errorf("an answer to what came from it: %+v", r)
	}
	if _, err := f.unmerge(orgA, id[2]); err != nil {
		t.Fatal(err)
	}
	if n, left := len(f.messages(id[2])), len(f.messages(id[3])); n != 4 || left != 1 {
		t.Errorf("%d went back and %d stayed, want 4 and 1", n, left)
	}
	f.emitted()
	f.delete(id[2])
	if got := f.emitted(); got != "ticket.deleted ticket.deleted" {
		t.Errorf("events %s", got)
	}
	f.delete(id[3])
	for _, table := range []string{"tickets", "conversations", "messages", "message_ids", "participants", "attachments"} {
		if n := f.count(table); n != 0 {
			t.Errorf("%d %s left", n, table)
		}
	}
}

// The clocks of a merged ticket pause until the unmerge.
func TestMergeStopsClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t))
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(t.Context())
		f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 60})
		a := f.intake(text("+4915112345671", "a"))
		f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 6000})
		b := f.intake(text("+4915112345672", "b"))
		if _, err := f.merge(orgA, a.TicketID, b.TicketID); err != nil {
			t.Fatal(err)
		}
		f.emitted()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := f.emitted(); got != "" {
			t.Errorf("while merged: %s", got)
		}
		if _, err := f.unmerge(orgA, a.TicketID); err != nil {
			t.Fatal(err)
		}
		f.emitted()
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		if got := f.emitted(); got != "sla.warning sla.breached" {
			t.Errorf("after: %s", got)
		}
	})
}

// ccRecorder records the Cc of each queued mail.
type ccRecorder [][]string

func (c *ccRecorder) PrepareSend(_ context.Context, _ db.Querier, _, connectionID, _ string, m *channel.Outgoing) (string, error) {
	var list []string
	for _, p := range m.Cc {
		list = append(list, p.Email)
	}
	*c = append(*c, list)
	m.MessageID = m.ID + "@a.example"
	return connectionID, nil
}

// A person takes part in both of two merged tickets by messages in each, in either
// order.
func TestParticipantOfBoth(t *testing.T) {
	with := func(in desk.InboundEvent) desk.InboundEvent {
		in.Event.Message.Cc, in.Event.Message.Mail.Proof.Verdict = []channel.Party{{Email: "carl@c.example"}}, mailauth.Proven
		return in
	}
	for _, first := range []string{"a", "b"} {
		var sent ccRecorder
		f := newFixture(t, func(c *desk.Config) { c.Dispatcher = &sent })
		tickets := map[string]desk.Result{"a": f.intake(mail("ana@c.example", "a1")), "b": f.intake(mail("bob@c.example", "b1"))}
		a, b := tickets["a"], tickets["b"]
		if _, err := f.merge(orgA, a.TicketID, b.TicketID); err != nil {
			t.Fatal(err)
		}
		f.intake(with(reply("ana@c.example", first+"2", first+"1")))
		other := map[string]string{"a": "b", "b": "a"}[first]
		f.intake(with(reply("bob@c.example", other+"2", other+"1")))
		for name, r := range tickets {
			sent = nil
			if _, err := write(f, func(tx *db.Tx) (desk.Message, error) {
				return f.desk.ReplyTx(t.Context(), tx, orgA, b.TicketID, desk.Reply{By: grace, Content: f.compose(desk.Draft{Text: "x"}), ConversationID: r.ConversationID})
			}); err != nil {
				t.Fatal(err)
			}
			if len(sent) != 1 || !slices.Contains(sent[0], "carl@c.example") {
				t.Errorf("first in %s: copies of an answer in %s go to %q, want Carl among them", first, name, sent)
			}
		}
		if _, err := f.unmerge(orgA, a.TicketID); err != nil {
			t.Fatal(err)
		}
		for n, r := range []desk.Result{a, b} {
			if got := f.intake(tagged("carl@c.example", fmt.Sprint("c", n), int64(n+1))); got.TicketID != r.TicketID {
				t.Errorf("first in %s: a mail to #%d afterwards: %+v", first, n+1, got)
			}
		}
	}
}

// A reply during a merge counts after the unmerge.
func TestUnmergeAnswered(t *testing.T) {
	f := newFixture(t)
	f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 60})
	a, b := f.intake(text("+4915112345671", "a")), f.intake(text("+4915112345672", "b"))
	if _, err := f.merge(orgA, a.TicketID, b.TicketID); err != nil {
		t.Fatal(err)
	}
	f.intake(answer("+4915112345671", "answered"))
	back, err := f.unmerge(orgA, a.TicketID)
	if err != nil {
		t.Fatal(err)
	}
	if at := f.messages(a.TicketID)[1].CreatedAt; !back.FirstRespondedAt.Equal(at) || back.SLA[0].State != desk.SLAMet {
		t.Errorf("first response at %v, %+v; want it at %v, and met", back.FirstRespondedAt, back.SLA, at)
	}
	if stored := f.ticket(a.TicketID); asJSON(stored) != asJSON(back) {
		t.Errorf("stored\n got %s\nwant %s", asJSON(stored), asJSON(back))
	}
}

// Merges in opposite directions, while messages come in.
func TestParallelMerges(t *testing.T) {
	f := newFixture(t)
	for round := range 10 {
		numbers := []string{fmt.Sprintf("+4915112345%03d", 2*round), fmt.Sprintf("+4915112345%03d", 2*round+1)}
		ids := []string{f.intake(text(numbers[0], "0")).TicketID, f.intake(text(numbers[1], "1")).TicketID}
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for i := range 2 {
			wg.Go(func() {
				_, err := f.merge(orgA, ids[i], ids[1-i])
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else {
					refused(t, "the loser", err, problem.Conflict, "invalid_transition", "")
				}
			})
			for n := range 3 {
				wg.Go(func() {
					if _, err := f.tryIntake(text(numbers[i], fmt.Sprint("x", n))); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if won != 1 {
			t.Fatalf("%d won", won)
		}
		if n, m := len(f.messages(ids[0])), len(f.messages(ids[1])); n+m != 8 || n*m != 0 {
			t.Fatalf("%d and %d messages, want all in the survivor", n, m)
		}
		id := ids[0]
		if f.ticket(id).MergedIntoID == "" {
			id = ids[1]
		}
		for i := range 2 {
			wg.Go(func() {
				if i == 0 {
					if _, err := f.unmerge(orgA, id); err != nil {
						t.Error(err)
					}
					return
				}
				for n := range 3 {
					if _, err := f.tryIntake(text(numbers[0], fmt.Sprint("y", n))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for i := range 2 {
			for _, m := range f.messages(ids[i]) {
				if m.Author.ID != f.ticket(ids[i]).Customer.ID {
					t.Errorf("%s of the other is in ticket %d", m.Text, i)
				}
			}
		}
		if n := len(f.messages(ids[0])); n != 7 {
			t.Errorf("%d messages, want 7", n)
		}
	}
}

func TestSplit(t *testing.T) {
	f := newFixture(t)
	first := mail("ana@c.example", "a1")
	first.Event.Message.Cc = []channel.Party{{Email: "carl@c.example"}}
	a := f.intake(first)
	in := reply("bob@c.example", "b1", "a1")
	in.Event.Message.Subject = "Another matter"
	in.Event.Message.Cc = []channel.Party{{Email: "carl@c.example"}}
	in.Event.Message.Attachments = []channel.Attachment{{Name: "b.txt", Data: []byte("b")}}
	b := f.intake(in)
	note, err := f.note(orgA, a.TicketID, grace, desk.Draft{Text: "note"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.update(orgA, a.TicketID, desk.Update{Priority: new(desk.PriorityHigh), Tags: new([]string{"x"})}); err != nil {
		t.Fatal(err)
	}
	f.emitted()
	for _, c := range []struct {
		ids        []string
		code, path string
	}{
		{nil, "required", "message_ids"},
		{[]string{b.MessageID, "nothing"}, "not_found", "message_ids.1"},
		{make([]string, 1001), "too_long", "message_ids"},
	} {
		_, err := f.split(orgA, a.TicketID, c.ids...)
		refused(t, c.path, err, problem.Invalid, c.code, c.path)
	}
	_, err = f.split(orgA, a.TicketID, a.MessageID, b.MessageID, note.ID)
	refused(t, "everything", err, problem.Conflict, "invalid_transition", "")
	if got := f.emitted(); got != "" {
		t.Errorf("events %s", got)
	}

	split, err := f.split(orgA, a.TicketID, note.ID, b.MessageID, b.MessageID)
	if err != nil {
		t.Fatal(err)
	}
	if split.Number != 2 || split.Subject != "Another matter" || split.Customer.Email != "bob@c.example" || split.Priority != desk.PriorityHigh ||
		!slices.Equal(split.Tags, []string{"x"}) || split.LinkedTicketID != a.TicketID || split.LinkReason != "split" || split.Channel != "email" {
		t.Errorf("got %+v", split)
	}
	if got, want := asJSON(f.ticket(split.ID)), asJSON(split); got != want {
		t.Errorf("stored\n got %s\nwant %s", got, want)
	}
	if got, want := f.changes(), `{"split_ticket_id":{"from":null,"to":"`+split.ID+`"}}`; got != want {
		t.Errorf("changes\n got %s\nwant %s", got, want)
	}
	if got := f.emitted(); got != "ticket.created ticket.updated" {
		t.Errorf("events %s", got)
	}
	m := f.messages(split.ID)
	if got := f.texts(split.ID); got != "b1 note" || len(m[0].Attachments) != 1 || m[0].ConversationID == b.ConversationID || m[0].ConversationID == "" {
		t.Errorf("it says %s: %+v", got, m)
	}
	if n := len(f.messages(a.TicketID)); n != 1 {
		t.Errorf("%d messages are left", n)
	}
	for _, c := range []struct {
		in   desk.InboundEvent
		want string
	}{
		{reply("bob@c.example", "b2", "b1"), split.ID},
		{reply("ana@c.example", "a2", "a1"), a.TicketID},
		{tagged("bob@c.example", "b3", 2), split.ID},
		{tagged("carl@c.example", "c1", 2), split.ID},
	} {
		if r := f.intake(c.in); r.TicketID != c.want {
			t.Errorf("%s: %+v, want %s", c.in.Event.Message.Text, r, c.want)
		}
	}
	if r := f.intake(in); r.Outcome != desk.Duplicate || r.TicketID != split.ID {
		t.Errorf("what was moved, again: %+v", r)
	}
}

// A number's thread stays in the old ticket, and recognizes the messages split off.
func TestSplitThread(t *testing.T) {
	f := newFixture(t)
	a := f.intake(text("+4915112345678", "one"))
	b := f.intake(text("+4915112345678", "two"))
	answered := f.intake(answer("+4915112345678", "answered"))
	split, err := f.split(orgA, a.TicketID, b.MessageID, answered.MessageID)
	if err != nil {
		t.Fatal(err)
	}
	if split.FirstRespondedAt.IsZero() || split.Customer.ID != a.CustomerID || split.Subject != "two" {
		t.Errorf("got %+v", split)
	}
	for _, again := range []string{"two", "one"} {
		if r := f.intake(text("+4915112345678", again)); r.Outcome != desk.Duplicate {
			t.Errorf("%s again: %+v", again, r)
		}
	}
	if r := f.intake(text("+4915112345678", "three")); r.TicketID != a.TicketID {
		t.Errorf("the next: %+v", r)
	}
	if got := f.texts(a.TicketID) + " | " + f.texts(split.ID); got != "one three | two answered" {
		t.Errorf("they say %s", got)
	}
	if _, err := f.merge(orgA, split.ID, a.TicketID); err != nil {
		t.Fatal(err)
	}
	if got := f.texts(a.TicketID); got != "one two answered three" {
		t.Errorf("merged again: %s", got)
	}
}

// An opt-out in a number's thread also holds for messages split off.
func TestSplitThreadOptOut(t *testing.T) {
	var sent ccRecorder
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = &sent })
	a := f.intake(text("+4915112345678", "one"))
	b := f.intake(text("+4915112345678", "two"))
	split, err := f.split(orgA, a.TicketID, b.MessageID)
	if err != nil {
		t.Fatal(err)
	}
	say := func() error {
		_, err := write(f, func(tx *db.Tx) (desk.Message, error) {
			return f.desk.ReplyTx(t.Context(), tx, orgA, split.ID, desk.Reply{By: grace, Content: f.compose(desk.Draft{Text: "x"})})
		})
		return err
	}
	if err := say(); err != nil {
		t.Error(err)
	}
	stop := text("+4915112345678", "STOP")
	stop.Event.Message.OptOut = true
	f.intake(stop)
	refused(t, "an answer after STOP", say(), problem.Conflict, "invalid_transition", "")
	if len(sent) != 1 {
		t.Errorf("%d messages left, want the one before", len(sent))
	}
}

// All replies to a closed ticket go to one continuation.
func TestAnswersToAClosedTicket(t *testing.T) {
	f := newFixture(t)
	a := f.intake(mail("ana@c.example", "a1")).TicketID
	f.setStatus(a, desk.StatusClosed)
	b := f.intake(reply("ana@c.example", "a2", "a1"))
	if b.Outcome != desk.TicketCreated || f.ticket(b.TicketID).LinkedTicketID != a {
		t.Fatalf("the first answer: %+v", b)
	}
	for _, in := range []desk.InboundEvent{reply("ana@c.example", "a3", "a1"), tagged("ana@c.example", "a4", 1)} {
		if r := f.intake(in); r.Outcome != desk.Appended || r.TicketID != b.TicketID {
			t.Errorf("another: %+v, want it in the ticket that continues", r)
		}
	}
	f.setStatus(b.TicketID, desk.StatusClosed)
	c := f.intake(reply("ana@c.example", "a5", "a1"))
	if c.Outcome != desk.TicketCreated || f.ticket(c.TicketID).LinkedTicketID != b.TicketID {
		t.Errorf("when that is closed too: %+v", c)
	}
	if r := f.intake(reply("ana@c.example", "a6", "a3")); r.TicketID != c.TicketID {
		t.Errorf("the next: %+v", r)
	}
	// The continuation was merged into the closed ticket.
	if _, err := f.merge(orgA, c.TicketID, a); err != nil {
		t.Fatal(err)
	}
	if r := f.intake(reply("ana@c.example", "a7", "a1")); r.Outcome != desk.TicketCreated || f.ticket(r.TicketID).LinkedTicketID != a {
		t.Errorf("in a circle: %+v", r)
	}
}

// mergeModel has the expected place of each message: its home, or that ticket's
// survivor.
type mergeModel struct {
	tickets  []*mergeTicket
	messages []*mergeMessage
	threads  map[string]*mergeThread
}

type mergeTicket struct {
	id      string
	into    *mergeTicket
	deleted bool
}

type mergeThread struct{ home *mergeTicket }

type mergeMessage struct {
	id, name string       // name: the Message-ID of mail
	thread   *mergeThread // nil for notes
	home     *mergeTicket // of notes
}

func (t *mergeTicket) end() *mergeTicket {
	for t.into != nil {
		t = t.into
	}
	return t
}

func (m *mergeMessage) at() *mergeTicket {
	if m.thread != nil {
		return m.thread.home.end()
	}
	return m.home.end()
}

// For any sequence of merges, unmerges and splits: every message is in one ticket,
// and the next one joins the expected ticket.
func TestMergeIsLikeTheModel(t *testing.T) {
	f := newFixture(t)
	rapid.Check(t, func(t *rapid.T) {
		org, connection := uuid.NewString(), uuid.NewString()
		m := mergeModel{threads: map[string]*mergeThread{}}
		n := 0
		intake := func(in desk.InboundEvent) desk.Result {
			in.OrganizationID = org
			r, err := f.tryIntake(in)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		alive := func(t *rapid.T) *mergeTicket {
			var list []*mergeTicket
			for _, ticket := range m.tickets {
				if !ticket.deleted {
					list = append(list, ticket)
				}
			}
			if len(list) == 0 {
				t.Skip("no tickets yet")
			}
			return rapid.SampledFrom(list).Draw(t, "ticket")
		}
		// said records a message of a thread, or one that started a ticket.
		said := func(t *rapid.T, r desk.Result, name string, thread *mergeThread) *mergeThread {
			if thread == nil {
				if r.Outcome != desk.TicketCreated {
					t.Fatalf("got %+v, want a new ticket", r)
				}
				ticket := &mergeTicket{id: r.TicketID}
				m.tickets = append(m.tickets, ticket)
				thread = &mergeThread{home: ticket}
			} else if want := thread.home.end(); r.Outcome != desk.Appended || r.TicketID != want.id {
				t.Fatalf("got %+v, want it in %s", r, want.id)
			}
			m.messages = append(m.messages, &mergeMessage{id: r.MessageID, name: name, thread: thread})
			return thread
		}
		refuse := func(t *rapid.T, err error) {
			if p, _ := err.(*problem.Error); p == nil || p.Code != "invalid_transition" {
				t.Fatalf("got %v, want it refused", err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"text": func(t *rapid.T) {
				n++
				number := rapid.SampledFrom([]string{"+4915112345671", "+4915112345672", "+4915112345673"}).Draw(t, "number")
				in := text(number, fmt.Sprint("text ", n))
				in.ConnectionID = connection
				m.threads[number] = said(t, intake(in), "", m.threads[number])
			},
			"mail": func(t *rapid.T) {
				n++
				in := mail("ana@c.example", fmt.Sprint("m", n))
				var thread *mergeThread
				var mails []*mergeMessage
				for _, message := range m.messages {
					if message.name != "" {
						mails = append(mails, message)
					}
				}
				if len(mails) > 0 && rapid.IntRange(0, 3).Draw(t, "answers") > 0 {
					to := rapid.SampledFrom(mails).Draw(t, "to")
					in.Event.Message.Mail.InReplyTo, thread = []string{to.name}, to.thread
				}
				said(t, intake(in), fmt.Sprint("m", n), thread)
			},
			"note": func(t *rapid.T) {
				ticket := alive(t)
				note, err := f.note(org, ticket.id, grace, desk.Draft{Text: "note"})
				if err != nil || note.TicketID != ticket.end().id {
					t.Fatalf("got %+v, %v", note, err)
				}
				m.messages = append(m.messages, &mergeMessage{id: note.ID, home: ticket.end()})
			},
			"merge": func(t *rapid.T) {
				a, b := alive(t), alive(t)
				_, err := f.merge(org, a.id, b.id)
				if a == b || a.into != nil || b.into != nil {
					refuse(t, err)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				a.into = b
			},
			"unmerge": func(t *rapid.T) {
				a := alive(t)
				_, err := f.unmerge(org, a.id)
				if a.into == nil {
					refuse(t, err)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				a.into = nil
			},
			"split": func(t *rapid.T) {
				a := alive(t)
				var there, moved []*mergeMessage
				var ids []string
				for _, message := range m.messages {
					if message.at() == a {
						there = append(there, message)
						if rapid.Bool().Draw(t, "moves") {
							moved = append(moved, message)
							ids = append(ids, message.id)
						}
					}
				}
				if len(moved) == 0 {
					t.Skip("nothing to split off")
				}
				split, err := f.split(org, a.id, ids...)
				if a.into != nil || len(moved) == len(there) {
					refuse(t, err)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				ticket := &mergeTicket{id: split.ID}
				m.tickets = append(m.tickets, ticket)
				threads := make(map[*mergeThread]*mergeThread)
				for _, message := range moved {
					if message.thread == nil {
						message.home = ticket
						continue
					}
					if threads[message.thread] == nil {
						threads[message.thread] = &mergeThread{home: ticket}
					}
					message.thread = threads[message.thread]
				}
			},
			"delete": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "rarely") > 0 {
					t.Skip("not this time")
				}
				a := alive(t)
				if err := f.tryDelete(org, a.id); err != nil {
					t.Fatal(err)
				}
				if into := a.into; into != nil {
					for _, ticket := range m.tickets {
						if ticket.into == a {
							ticket.into = into
						}
					}
					for _, message := range m.messages {
						if message.thread != nil && message.thread.home == a {
							message.thread.home = into
						}
						if message.home == a {
							message.home = into
						}
					}
					for _, thread := range m.threads {
						if thread.home == a {
							thread.home = into
						}
					}
					a.deleted = true
					return
				}
				m.messages = slices.DeleteFunc(m.messages, func(message *mergeMessage) bool { return message.at() == a })
				for number, thread := range m.threads {
					if thread.home.end() == a {
						delete(m.threads, number)
					}
				}
				for _, ticket := range m.tickets {
					ticket.deleted = ticket.deleted || ticket.end() == a
				}
			},
			"": func(t *rapid.T) {
				want := make(map[string][]string)
				for _, message := range m.messages {
					id := message.at().id
					want[id] = append(want[id], message.id)
				}
				for _, ticket := range m.tickets {
					messages, err := f.desk.Messages(f.Context(), f.db, org, ticket.id)
					if ticket.deleted {
						if problem.Of(err) != problem.NotFound {
							t.Fatalf("ticket %s is still there: %v", ticket.id, err)
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					var got []string
					for _, message := range messages {
						got = append(got, message.ID)
					}
					slices.Sort(want[ticket.id])
					if !slices.Equal(got, want[ticket.id]) {
						t.Fatalf("ticket %s\n got %q\nwant %q", ticket.id, got, want[ticket.id])
					}
				}
			},
		})
	})
}
