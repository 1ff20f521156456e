package desk_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// fred is another member of organization A, for reads only.
const fredID = "0190c0de-0000-7000-8000-0000000000d3"

// unread lists the numbers of a member's unread tickets, in order.
func (f *fixture) unread(userID string) string {
	f.Helper()
	tickets, _, err := f.desk.FindTickets(f.Context(), f.db, orgA, desk.TicketQuery{Sort: keyset.Sort{Field: desk.ByNumber}})
	if err != nil {
		f.Fatal(err)
	}
	unread, err := f.desk.Unread(f.Context(), f.db, userID, tickets)
	if err != nil {
		f.Fatal(err)
	}
	var numbers []string
	for _, t := range tickets {
		if unread[t.ID] {
			numbers = append(numbers, fmt.Sprint(t.Number))
		}
	}
	return strings.Join(numbers, " ")
}

func (f *fixture) read(userID string, ticketIDs ...string) {
	f.Helper()
	for _, id := range ticketIDs {
		if err := f.db.Write(f.Context(), func(tx *db.Tx) error { return f.desk.MarkReadTx(f.Context(), tx, orgA, userID, id) }); err != nil {
			f.Fatal(err)
		}
	}
}

func TestUnread(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	one, two := f.intake(text("+4915112345671", "one")), f.intake(text("+4915112345672", "two"))
	want := func(what, grace, fred string) {
		t.Helper()
		if g, h := f.unread(graceID), f.unread(fredID); g != grace || h != fred {
			t.Errorf("%s: got %q and %q, want %q and %q", what, g, h, grace, fred)
		}
	}
	want("never opened", "1 2", "1 2")
	f.read(graceID, one.TicketID)
	want("read", "2", "1 2")
	f.read(graceID, one.TicketID, two.TicketID)
	f.read(fredID, one.TicketID)
	want("read again", "", "2")

	m := f.reply(one.TicketID, "an answer")
	if _, err := f.note(orgA, one.TicketID, grace, desk.Draft{Text: "a note"}); err != nil {
		t.Fatal(err)
	}
	f.setStatus(one.TicketID, desk.StatusPending)
	want("what we do ourselves", "", "2")
	f.intake(text("+4915112345671", "again"))
	want("the customer again", "1", "1 2")
	f.read(graceID, one.TicketID)
	w := f.waiting(m.ID)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		return f.desk.RecordFailureTx(t.Context(), tx, &w, channel.SendResult{Reason: "no such number"})
	}); err != nil {
		t.Fatal(err)
	}
	want("an answer that fails", "1", "1 2")
	f.read(graceID, one.TicketID)

	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.MarkUnreadTx(t.Context(), tx, orgA, graceID, one.TicketID) }); err != nil {
		t.Fatal(err)
	}
	want("marked as unread", "1", "1 2")

	for what, err := range map[string]error{
		"read":   f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.MarkReadTx(t.Context(), tx, orgB, heidiID, one.TicketID) }),
		"unread": f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.MarkUnreadTx(t.Context(), tx, orgB, heidiID, one.TicketID) }),
	} {
		if problem.Of(err) != problem.NotFound {
			t.Errorf("another organization's, %s: got %v, want not found", what, err)
		}
	}
	f.delete(one.TicketID)
	f.delete(two.TicketID)
	if n := f.count("ticket_reads"); n != 0 {
		t.Errorf("%d marks are left of deleted tickets", n)
	}
}

// Two messages of the same microsecond: a mark between them covers the first only.
func TestUnreadWithinAMoment(t *testing.T) {
	f := newFixture(t)
	now := time.Now().UTC().Truncate(time.Microsecond)
	say := func(body string) (r desk.Result) {
		t.Helper()
		if err := f.db.Write(t.Context(), func(tx *db.Tx) (err error) {
			tx.Now = now
			r, err = f.desk.IngestTx(t.Context(), tx, text(number, body))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	id := say("one").TicketID
	for _, body := range []string{"two", "three", "four"} {
		f.read(graceID, id)
		if got := f.unread(graceID); got != "" {
			t.Errorf("before %s: unread are %q", body, got)
		}
		say(body)
		if got := f.unread(graceID); got != "1" {
			t.Errorf("after %s: unread are %q, want 1", body, got)
		}
	}
}

// TestUnreadWhenMerged: a merge makes the survivor unread if the merged ticket was.
func TestUnreadWhenMerged(t *testing.T) {
	f := newFixture(t)
	one, two := f.intake(text("+4915112345671", "one")), f.intake(text("+4915112345672", "two"))
	f.read(graceID, one.TicketID, two.TicketID)
	f.read(fredID, two.TicketID)
	if _, err := f.merge(orgA, one.TicketID, two.TicketID); err != nil {
		t.Fatal(err)
	}
	if g, h := f.unread(graceID), f.unread(fredID); g != "" || h != "1 2" {
		t.Errorf("merged: got %q and %q, want it unread for who had not read what came", g, h)
	}
	f.read(fredID, one.TicketID, two.TicketID)
	f.intake(text("+4915112345671", "more"))
	if g, h := f.unread(graceID), f.unread(fredID); g != "2" || h != "2" {
		t.Errorf("then a message: got %q and %q, want 2", g, h)
	}
	f.read(graceID, two.TicketID)
	if _, err := f.unmerge(orgA, one.TicketID); err != nil {
		t.Fatal(err)
	}
	if g := f.unread(graceID); g != "1" {
		t.Errorf("undone: got %q, want what its customer wrote since to be unread", g)
	}
}

func (f *fixture) saveDraft(org string, d desk.SavedDraft) error {
	return f.db.Write(f.Context(), func(tx *db.Tx) error { return f.desk.SaveDraftTx(f.Context(), tx, org, d) })
}

// drafts lists a member's drafts in a ticket, by kind.
func (f *fixture) drafts(userID, ticketID string) string {
	f.Helper()
	kept, err := f.desk.SavedDrafts(f.Context(), f.db, orgA, userID, ticketID)
	if err != nil {
		f.Fatal(err)
	}
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(kept)) {
		list = append(list, kind+": "+kept[kind].Text)
	}
	return strings.Join(list, ", ")
}

func TestDrafts(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	r := f.intake(text(number, "one"))
	id := r.TicketID
	keep := func(d desk.SavedDraft) {
		t.Helper()
		d.TicketID = id
		if err := f.saveDraft(orgA, d); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what, user, want string) {
		t.Helper()
		if got := f.drafts(user, id); got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	keep(desk.SavedDraft{UserID: graceID, Kind: desk.KindReply, Text: "Dear", ConversationID: r.ConversationID})
	keep(desk.SavedDraft{UserID: graceID, Kind: desk.KindNote, Text: "who?"})
	keep(desk.SavedDraft{UserID: fredID, Kind: desk.KindReply, Text: "Hi"})
	keep(desk.SavedDraft{UserID: graceID, Kind: desk.KindReply, Text: "Dear Ana", ConversationID: r.ConversationID})
	want("kept", graceID, "note: who?, reply: Dear Ana")
	want("somebody else's", fredID, "reply: Hi")
	kept, err := f.desk.SavedDrafts(t.Context(), f.db, orgA, graceID, id)
	if d := kept[desk.KindReply]; err != nil || d.ConversationID != r.ConversationID || d.UpdatedAt.IsZero() || d.TicketID != id || d.UserID != graceID {
		t.Errorf("got %+v, %v", d, err)
	}
	if kept, err := f.desk.SavedDrafts(t.Context(), f.db, orgB, graceID, id); err != nil || len(kept) != 0 {
		t.Errorf("of another organization: got %+v, %v", kept, err)
	}
	other := f.intake(text("+4915112345672", "two"))
	drafted, err := f.desk.TicketsWithDrafts(t.Context(), f.db, graceID, []desk.Ticket{f.ticket(id), f.ticket(other.TicketID)})
	if err != nil || len(drafted) != 1 || !drafted[id] {
		t.Errorf("got drafts in %v, %v", drafted, err)
	}

	for what, d := range map[string]desk.SavedDraft{
		"no kind":  {TicketID: id, UserID: graceID, Text: "x"},
		"too long": {TicketID: id, UserID: graceID, Kind: desk.KindNote, Text: strings.Repeat("é", 100_001)},
	} {
		if err := f.saveDraft(orgA, d); problem.Of(err) != problem.Invalid {
			t.Errorf("%s: got %v, want invalid", what, err)
		}
	}
	if err := f.saveDraft(orgB, desk.SavedDraft{TicketID: id, UserID: heidiID, Kind: desk.KindNote, Text: "x"}); problem.Of(err) != problem.NotFound {
		t.Errorf("another organization's ticket: got %v, want not found", err)
	}

	f.reply(id, "Dear Ana, yes.")
	want("after the reply", graceID, "note: who?")
	if _, err := f.note(orgA, id, grace, desk.Draft{Text: "Ana"}); err != nil {
		t.Fatal(err)
	}
	want("after the note", graceID, "")
	want("after another's reply", fredID, "reply: Hi")

	keep(desk.SavedDraft{UserID: graceID, Kind: desk.KindReply, Text: "x"})
	says, failure := f.compose(desk.Draft{Text: "x"}), problem.New(problem.Conflict, "changed my mind")
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := f.desk.ReplyTx(t.Context(), tx, orgA, id, desk.Reply{By: grace, Content: says}); err != nil {
			return err
		}
		return failure
	}); err != failure {
		t.Fatal(err)
	}
	want("after a reply that was not written", graceID, "reply: x")
	keep(desk.SavedDraft{UserID: graceID, Kind: desk.KindReply, Text: " \n"})
	want("after an empty one", graceID, "")

	keep(desk.SavedDraft{UserID: graceID, Kind: desk.KindReply, Text: "x"})
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.UnassignTx(t.Context(), tx, orgA, graceID) }); err != nil {
		t.Fatal(err)
	}
	want("after she has left", graceID, "")
	f.delete(id)
	if n := f.count("ticket_drafts"); n != 0 {
		t.Errorf("%d drafts are left of a deleted ticket", n)
	}
}

// TestDraftsWhenMerged: a draft moves to the survivor, unless there is one already;
// a reply deletes it in either place.
func TestDraftsWhenMerged(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	one, two := f.intake(text("+4915112345671", "one")), f.intake(text("+4915112345672", "two"))
	for _, d := range []desk.SavedDraft{
		{TicketID: one.TicketID, UserID: graceID, Kind: desk.KindReply, Text: "1"}, {TicketID: one.TicketID, UserID: graceID, Kind: desk.KindNote, Text: "1"},
		{TicketID: two.TicketID, UserID: graceID, Kind: desk.KindReply, Text: "2"},
	} {
		if err := f.saveDraft(orgA, d); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.merge(orgA, one.TicketID, two.TicketID); err != nil {
		t.Fatal(err)
	}
	if a, b := f.drafts(graceID, one.TicketID), f.drafts(graceID, two.TicketID); a != "reply: 1" || b != "note: 1, reply: 2" {
		t.Errorf("got %q and %q", a, b)
	}
	f.reply(one.TicketID, "to the survivor")
	if a, b := f.drafts(graceID, one.TicketID), f.drafts(graceID, two.TicketID); a != "" || b != "note: 1" {
		t.Errorf("after the reply: got %q and %q", a, b)
	}
}

// A redacted customer's tickets have no drafts.
func TestDraftsAreRedacted(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text(number, "I am Ana"))
	if err := f.saveDraft(orgA, desk.SavedDraft{TicketID: r.TicketID, UserID: graceID, Kind: desk.KindReply, Text: "Dear Ana"}); err != nil {
		t.Fatal(err)
	}
	if err := f.desk.Redact(t.Context(), orgA, r.CustomerID); err != nil {
		t.Fatal(err)
	}
	if got := f.drafts(graceID, r.TicketID); got != "" {
		t.Errorf("got %q", got)
	}
}

func (f *fixture) preview(ticketID string) desk.Preview {
	f.Helper()
	previews, err := f.desk.Previews(f.Context(), f.db, []desk.Ticket{f.ticket(ticketID)})
	if err != nil {
		f.Fatal(err)
	}
	return previews[ticketID]
}

func TestPreviews(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	r := f.intake(mail("ana@c.example", "m1"))
	id := r.TicketID
	want := func(what string, want desk.Preview) {
		t.Helper()
		got := f.preview(id)
		list := f.messages(id)
		if i := slices.IndexFunc(list, func(m desk.Message) bool { return m.ID == got.MessageID }); i < 0 || !got.At.Equal(list[i].CreatedAt) || got.Author != list[i].Author {
			t.Errorf("%s: got %+v, not one of the messages", what, got)
		}
		if got.TicketID != id {
			t.Errorf("%s: got it of ticket %q", what, got.TicketID)
		}
		got.TicketID, got.MessageID, got.Author, got.At = "", "", want.Author, time.Time{}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	in := reply("ana@c.example", "m2", "m1")
	in.Event.Message.Text = "It  is\r\n\tbroken <b>&\n\nOn Monday you wrote:\n> what is it?"
	in.Event.Message.Stripped = "It  is\r\n\tbroken <b>&"
	f.intake(in)
	said := desk.Preview{Text: "It is broken <b>&", Direction: desk.DirectionInbound, Kind: desk.KindReply, Channel: "email"}
	want("a mail", said)
	away := reply("ana@c.example", "m3", "m2")
	away.Event.Message.Text = "I am away"
	away.Event.Message.Mail.Class, away.Event.Message.Mail.Rule = channel.ClassAutoReply, "x-autoreply"
	f.intake(away)
	if list := f.messages(id); len(list) != 3 || !list[2].Details.Collapsed {
		t.Fatalf("got %+v, want an automatic reply", list)
	}
	want("an automatic reply later", said)

	f.reply(id, "Sorry!")
	want("an answer", desk.Preview{Text: "Sorry!", Direction: desk.DirectionOutbound, Kind: desk.KindReply, Channel: "email"})
	if _, err := f.note(orgA, id, grace, desk.Draft{Text: "> quoted\n\nhm " + strings.Repeat("ö", 300)}); err != nil {
		t.Fatal(err)
	}
	want("a note", desk.Preview{Text: "hm " + strings.Repeat("ö", 136) + "…", Direction: desk.DirectionOutbound, Kind: desk.KindNote, Channel: "email"})
	if _, err := f.note(orgA, id, grace, desk.Draft{Attachments: []channel.Attachment{{Name: "a.png", Data: []byte("a")}, {Name: "b.png", Data: []byte("b")}}}); err != nil {
		t.Fatal(err)
	}
	want("files", desk.Preview{Direction: desk.DirectionOutbound, Kind: desk.KindNote, Channel: "email", Files: 2, FileName: "a.png"})
	in = reply("ana@c.example", "m4", "m2")
	in.Event.Message.Text, in.Event.Message.Stripped = "> only\n> a quotation", ""
	f.intake(in)
	want("nothing but a quotation", desk.Preview{Text: "> only > a quotation", Direction: desk.DirectionInbound, Kind: desk.KindReply, Channel: "email"})

	silent, err := f.create(orgA, desk.NewTicket{Subject: "x", CustomerID: r.CustomerID})
	if err != nil {
		t.Fatal(err)
	}
	if got := f.preview(silent.ID); got != (desk.Preview{}) {
		t.Errorf("without a message: got %+v", got)
	}
	if err := f.desk.Redact(t.Context(), orgA, r.CustomerID); err != nil {
		t.Fatal(err)
	}
	if got := f.preview(id); !got.Redacted || got.Text != "" || got.Files != 0 {
		t.Errorf("redacted: got %+v", got)
	}
}

// due is the time from creation to DueAt; -1: none.
func (f *fixture) due(id string) time.Duration {
	f.Helper()
	t := f.ticket(id)
	if t.DueAt.IsZero() {
		return -1
	}
	return t.DueAt.Sub(t.CreatedAt)
}

func TestDueAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t))
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
		nothing := f.intake(text("+4915112345671", "nothing is promised")).TicketID
		f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 60, ResolutionMinutes: 300})
		id := f.intake(text(ana, "hello")).TicketID
		want := func(what string, want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := f.due(id); got != want {
				t.Errorf("%s: due after %v, want %v", what, got, want)
			}
			if listed := f.numbers(orgA, desk.TicketQuery{Sort: keyset.Sort{Field: desk.ByDueAt}}); (len(listed) == 1) != (want >= 0) {
				t.Errorf("%s: the list by due time has %v", what, listed)
			}
		}
		if got := f.due(nothing); got != -1 {
			t.Errorf("nothing is promised, and it is due after %v", got)
		}
		want("new", time.Hour)
		f.setStatus(id, desk.StatusPending) // only the first response is due
		want("pending", time.Hour)
		time.Sleep(2 * time.Hour)
		want("late", time.Hour)
		f.intake(answer(ana, "we look into it"))
		want("answered late, pending", -1)
		f.setStatus(id, desk.StatusOpen)
		want("open again", 7*time.Hour) // paused for two hours
		f.setPriority(id, desk.PriorityLow)
		want("nothing is promised any more", -1)
		f.setPriority(id, desk.PriorityNormal)
		want("promised again", 7*time.Hour)
		time.Sleep(6 * time.Hour)
		want("broken", 7*time.Hour)
		f.setStatus(id, desk.StatusOnHold)
		want("broken, on hold", 7*time.Hour)
		f.setStatus(id, desk.StatusResolved)
		want("resolved", -1)
		f.intake(text(ana, "no!"))
		want("reopened", 7*time.Hour)
	})
}

// A ticket closed without a reply has no due time.
func TestDueAtOfAClosedTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t))
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
		f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 60})
		id := f.intake(text(ana, "hello")).TicketID
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for _, s := range []struct {
			status desk.Status
			due    time.Duration
		}{{desk.StatusClosed, -1}, {desk.StatusPending, time.Hour}, {desk.StatusResolved, -1}, {desk.StatusOpen, time.Hour}} {
			f.setStatus(id, s.status)
			if got := f.due(id); got != s.due {
				t.Errorf("%s: due after %v, want %v", s.status, got, s.due)
			}
		}
	})
}

func TestTally(t *testing.T) {
	f := newFixture(t)
	w := newWorld(f)
	r := newRand(9)
	w.add(r, 150)
	w.base = time.Now().Add(time.Hour) // of future due times
	w.add(r, 150)
	for _, most := range []int{5, 1000} {
		got, err := f.desk.TicketCounts(t.Context(), f.db, w.org, graceID, most)
		if err != nil {
			t.Fatal(err)
		}
		want := desk.TicketCounts{Status: map[desk.Status]int{}, Channel: map[string]int{}, Priority: map[desk.Priority]int{}}
		for _, p := range w.tickets {
			want.Status[p.Status]++
			if !p.DueAt.IsZero() {
				want.Due++
				if p.DueAt.Before(time.Now()) {
					want.Overdue++
				}
			}
			if p.Status != desk.StatusOpen {
				continue
			}
			want.Channel[p.Channel]++
			want.Priority[p.Priority]++
			switch p.AssigneeID {
			case "":
				want.Unassigned++
			case graceID:
				want.Mine++
			}
		}
		for s := range want.Status {
			want.Status[s] = min(want.Status[s], most)
		}
		want.Due, want.Overdue = min(want.Due, most), min(want.Overdue, most)
		if fmt.Sprint(got) != fmt.Sprint(want) || want.Overdue == 0 || want.Due == want.Overdue && most > 5 {
			t.Errorf("up to %d:\n got %+v\nwant %+v", most, got, want)
		}
	}
}

// TestTallyOfMany: More is set if there are more open tickets than are examined.
func TestTallyOfMany(t *testing.T) {
	f := newFixture(t)
	f.desk.SmallSteps()
	for i := range 9 {
		f.intake(text(fmt.Sprintf("+491511234567%d", i), "hello"))
		got, err := f.desk.TicketCounts(t.Context(), f.db, orgA, graceID, 100)
		want := min(i+1, 7)
		if err != nil || got.More != (i >= 7) || got.Unassigned != want || got.Status[desk.StatusOpen] != want || got.Channel["sms"] != want {
			t.Errorf("of %d: got %+v, %v", i+1, got, err)
		}
	}
}

func (f *fixture) updateAll(org string, u desk.BulkUpdate, ids ...string) ([]desk.UpdateResult, error) {
	return write(f, func(tx *db.Tx) ([]desk.UpdateResult, error) {
		return f.desk.UpdateTicketsTx(f.Context(), tx, org, ids, u)
	})
}

func TestUpdateTickets(t *testing.T) {
	f := newFixture(t)
	var ids []string
	for i := range 4 {
		ids = append(ids, f.intake(text(fmt.Sprintf("+491511234567%d", i), "hello")).TicketID)
	}
	if _, err := f.update(orgA, ids[1], desk.Update{Tags: &[]string{"lock", "old"}, Status: new(desk.StatusPending)}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.merge(orgA, ids[3], ids[2]); err != nil {
		t.Fatal(err)
	}
	f.emitted()
	done, err := f.updateAll(orgA, desk.BulkUpdate{
		Update: desk.Update{Status: new(desk.StatusPending), AssigneeID: new(graceID)}, AddTags: []string{"lock", "brake"}, RemoveTags: []string{"old"},
	}, ids[1], ids[3], "nothing", ids[0])
	if err != nil || len(done) != 4 {
		t.Fatalf("got %+v, %v", done, err)
	}
	if problem.Of(done[1].Err) != problem.Conflict || problem.Of(done[2].Err) != problem.NotFound || done[0].Err != nil || done[3].Err != nil {
		t.Errorf("got errors %v, %v, %v, %v", done[0].Err, done[1].Err, done[2].Err, done[3].Err)
	}
	for i, id := range map[int]string{0: ids[1], 3: ids[0]} {
		if got := f.ticket(id); asJSON(got) != asJSON(done[i].After) || got.Status != desk.StatusPending || got.AssigneeID != graceID || strings.Join(got.Tags, " ") != "lock brake" {
			t.Errorf("ticket %d is %s, reported as %s", i, asJSON(got), asJSON(done[i].After))
		}
	}
	if b := done[0].Before; b.Status != desk.StatusPending || b.AssigneeID != "" || strings.Join(b.Tags, " ") != "lock old" {
		t.Errorf("before, it was %+v", b)
	}
	if got := f.ticket(ids[2]); got.AssigneeID != "" {
		t.Errorf("the survivor was changed: %+v", got)
	}
	if got, want := f.emitted(), "ticket.updated ticket.assigned ticket.updated ticket.status_changed ticket.assigned"; got != want {
		t.Errorf("emitted %s\nwant %s", got, want)
	}
	for what, c := range map[string]struct {
		u    desk.BulkUpdate
		ids  []string
		path string
	}{
		"none":        {desk.BulkUpdate{}, nil, "tickets"},
		"too many":    {desk.BulkUpdate{}, slices.Repeat([]string{"x"}, 201), "tickets"},
		"nobody":      {desk.BulkUpdate{Update: desk.Update{AssigneeID: new(heidiID)}}, ids, "assignee_id"},
		"both":        {desk.BulkUpdate{Update: desk.Update{Tags: &[]string{}}, AddTags: []string{"x"}}, ids, "tags"},
		"external id": {desk.BulkUpdate{Update: desk.Update{ExternalID: new("x")}}, ids, "external_id"},
		"status":      {desk.BulkUpdate{Update: desk.Update{Status: new(desk.Status("x"))}}, ids, "status"},
	} {
		_, err := f.updateAll(orgA, c.u, c.ids...)
		if p, _ := err.(*problem.Error); p == nil || p.Kind != problem.Invalid || p.Issues[0].Path != c.path {
			t.Errorf("%s: got %v, want invalid at %s", what, err, c.path)
		}
	}
	other, err := f.updateAll(orgB, desk.BulkUpdate{Update: desk.Update{Subject: new("x")}}, ids...)
	if err != nil || slices.ContainsFunc(other, func(u desk.UpdateResult) bool { return problem.Of(u.Err) != problem.NotFound }) {
		t.Errorf("another organization's: got %+v, %v", other, err)
	}
}

// TestDueAtOfOlderTickets: a migration computes the due times of older tickets.
func TestDueAtOfOlderTickets(t *testing.T) {
	f := newFixture(t)
	f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 60, ResolutionMinutes: 300})
	ids := make(map[string]string)
	for i, name := range []string{"new", "answered", "pending", "paused", "late", "late and paused", "late and resolved", "resolved"} {
		who := fmt.Sprintf("+491511234567%d", i)
		id := f.intake(text(who, name)).TicketID
		ids[name] = id
		if strings.HasPrefix(name, "late") {
			f.exec(`UPDATE tickets SET sla = replace(replace(sla, '"since":', '"breached":'), '"minutes":60,', '"minutes":60,"warned":1,') WHERE id = $1`, id)
		}
		if name == "answered" || name == "paused" {
			f.intake(answer(who, "yes"))
		}
	}
	for name, s := range map[string]desk.Status{
		"pending": desk.StatusPending, "paused": desk.StatusPending, "late and paused": desk.StatusOnHold, "late and resolved": desk.StatusResolved, "resolved": desk.StatusResolved,
	} {
		f.setStatus(ids[name], s)
	}
	want := make(map[string]time.Duration)
	for name, id := range ids {
		want[name] = f.due(id)
	}
	if want["new"] != time.Hour || want["answered"] != 5*time.Hour || want["paused"] != -1 || want["late and paused"] != time.Hour || want["late and resolved"] != -1 {
		t.Fatalf("due are %v", want)
	}
	script, err := os.ReadFile("../db/migrations/helpdesk/0025_inbox.sql")
	if err != nil {
		t.Fatal(err)
	}
	engine := map[bool]string{false: "-- [sqlite]\n", true: "-- [postgres]\n"}[f.db.Postgres()]
	_, after, _ := strings.Cut(string(script), engine)
	statement, _, _ := strings.Cut(after, ";")
	f.exec("UPDATE tickets SET due_at = NULL")
	f.exec(statement)
	for name, id := range ids {
		if got := f.due(id); got != want[name] {
			t.Errorf("%s: due after %v, want %v", name, got, want[name])
		}
	}
}
