package desk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func TestUpdateEmitsEachChange(t *testing.T) {
	for _, c := range []struct {
		name    string
		update  desk.Update
		events  string
		changes string // of ticket.updated
	}{
		{"nothing", desk.Update{}, "", ""},
		{"what is so already", desk.Update{
			Subject: new("hello"), Status: new(desk.StatusOpen), Priority: new(desk.PriorityNormal), AssigneeID: new(""), Tags: new([]string{}),
		}, "", ""},
		{"subject", desk.Update{Subject: new("Lock")}, "ticket.updated", `{"subject":{"from":"hello","to":"Lock"}}`},
		{"tags", desk.Update{Tags: new([]string{" lock ", "app", "lock"})}, "ticket.updated", `{"tags":{"from":[],"to":["lock","app"]}}`},
		{
			"status", desk.Update{Status: new(desk.StatusPending)},
			"ticket.updated ticket.status_changed", `{"status":{"from":"open","to":"pending"}}`,
		},
		{
			"priority", desk.Update{Priority: new(desk.PriorityUrgent)},
			"ticket.updated ticket.priority_changed", `{"priority":{"from":"normal","to":"urgent"}}`,
		},
		{
			"assignee", desk.Update{AssigneeID: new(graceID)},
			"ticket.updated ticket.assigned",
			`{"assignee":{"from":null,"to":{"id":"` + graceID + `","name":"Grace","email":"grace@a.example"}}}`,
		},
		{
			"all at once", desk.Update{Status: new(desk.StatusResolved), Priority: new(desk.PriorityLow), AssigneeID: new(graceID), Subject: new("Lock")},
			"ticket.updated ticket.status_changed ticket.assigned ticket.priority_changed",
			`{"assignee":{"from":null,"to":{"id":"` + graceID + `","name":"Grace","email":"grace@a.example"}},` +
				`"priority":{"from":"normal","to":"low"},"status":{"from":"open","to":"resolved"},"subject":{"from":"hello","to":"Lock"}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			r := f.intake(text("+4915112345678", "hello"))
			f.emitted()
			got, err := f.update(orgA, r.TicketID, c.update)
			if err != nil {
				t.Fatal(err)
			}
			if len(f.log) > 0 {
				changes, err := json.Marshal(f.log[0].Data.Changes)
				if err != nil || string(changes) != c.changes {
					t.Errorf("changes\n got %s\nwant %s", changes, c.changes)
				}
				for _, e := range f.log {
					if e.Data.Ticket.Status != string(got.Status) || e.Data.Ticket.Subject != got.Subject {
						t.Errorf("%s tells of %+v, want the ticket after the change", e.Name, e.Data.Ticket)
					}
				}
				for _, e := range f.log[1:] {
					if len(e.Data.Changes) != 1 {
						t.Errorf("%s has changes %v, want its own field", e.Name, e.Data.Changes)
					}
				}
			}
			if got := f.emitted(); got != c.events {
				t.Errorf("events\n got %s\nwant %s", got, c.events)
			}
			if stored := f.ticket(r.TicketID); stored.Subject != got.Subject || stored.Status != got.Status || stored.Priority != got.Priority ||
				stored.AssigneeID != got.AssigneeID || !slices.Equal(stored.Tags, got.Tags) || !stored.UpdatedAt.Equal(got.UpdatedAt) {
				t.Errorf("stored %+v\nreturned %+v", stored, got)
			}
		})
	}
}

func TestUnassign(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text("+4915112345678", "hello"))
	for _, id := range []string{graceID, ""} {
		if _, err := f.update(orgA, r.TicketID, desk.Update{AssigneeID: &id}); err != nil {
			t.Fatal(err)
		}
		f.intake(text("+4915112345678", "again "+id))
		if a := f.log[len(f.log)-1].Data.Ticket.Assignee; (a != nil) != (id != "") {
			t.Errorf("assigned to %q: events tell of %+v", id, a)
		}
	}
}

func TestMemberLeaves(t *testing.T) {
	f := newFixture(t)
	grace := graceID
	var tickets []string
	for i, number := range []string{"+4915112345670", "+4915112345671", "+4915112345672"} {
		r := f.intake(text(number, "hello"))
		tickets = append(tickets, r.TicketID)
		if _, err := f.update(orgA, r.TicketID, desk.Update{AssigneeID: &grace}); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if _, err := f.update(orgA, r.TicketID, desk.Update{Status: new(desk.StatusClosed)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.emitted()
	leave := func(org string) {
		t.Helper()
		if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.UnassignTx(t.Context(), tx, org, graceID) }); err != nil {
			t.Fatal(err)
		}
	}
	leave(orgB)
	if got := f.emitted(); got != "" {
		t.Errorf("leaving another organization emitted %s", got)
	}
	leave(orgA)
	if got, want := f.emitted(), "ticket.updated ticket.assigned ticket.updated ticket.assigned"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
	for i, want := range []string{"", graceID, ""} {
		if got := f.ticket(tickets[i]).AssigneeID; got != want {
			t.Errorf("ticket %d is assigned to %q, want %q", i, got, want)
		}
	}
}

func TestUpdateRefuses(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text("+4915112345678", "hello"))
	f.emitted()
	for _, c := range []struct {
		update desk.Update
		path   string
	}{
		{desk.Update{Subject: new("")}, "subject"},
		{desk.Update{Subject: new(strings.Repeat("x", 501))}, "subject"},
		{desk.Update{Subject: new("a\x00")}, "subject"},
		{desk.Update{Status: new(desk.Status("done"))}, "status"},
		{desk.Update{Priority: new(desk.Priority("top"))}, "priority"},
		{desk.Update{AssigneeID: new("nobody")}, "assignee_id"},
		{desk.Update{AssigneeID: new(heidiID)}, "assignee_id"}, // of another organization
		{desk.Update{Tags: new([]string{"ok", " "})}, "tags.1"},
		{desk.Update{Tags: new(make([]string, 51))}, "tags"},
	} {
		_, err := f.update(orgA, r.TicketID, c.update)
		p, _ := err.(*problem.Error)
		if p == nil || p.Kind != problem.Invalid || p.Issues[0].Path != c.path {
			t.Errorf("%+v: got %v, want an issue with %s", c.update, err, c.path)
		}
	}
	if got := f.emitted(); got != "" {
		t.Errorf("events %s", got)
	}
}

func TestResolvedAt(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text("+4915112345678", "hello"))
	f.setStatus(r.TicketID, desk.StatusResolved)
	resolved := f.ticket(r.TicketID).ResolvedAt
	if resolved.IsZero() {
		t.Error("resolved: no time")
	}
	f.setStatus(r.TicketID, desk.StatusClosed)
	if got := f.ticket(r.TicketID).ResolvedAt; !got.Equal(resolved) {
		t.Errorf("closed: %v, want still %v", got, resolved)
	}
	f.setStatus(r.TicketID, desk.StatusPending)
	if got := f.ticket(r.TicketID).ResolvedAt; !got.IsZero() {
		t.Errorf("pending: %v", got)
	}
	f.setStatus(r.TicketID, desk.StatusClosed)
	if got := f.ticket(r.TicketID).ResolvedAt; got.IsZero() {
		t.Error("closed at once: no time")
	}
}

func TestOtherOrganizationsSeeNothing(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	in := text("+4915112345678", "hello")
	in.Event.Message.Attachments = []channel.Attachment{{Name: "a.txt", ContentType: "text/plain", Data: []byte("a")}}
	r := f.intake(in)
	file := f.messages(r.TicketID)[0].Attachments[0]
	for name, call := range map[string]func(org string) error{
		"Ticket":         func(org string) error { _, err := f.desk.Ticket(ctx, f.db, org, r.TicketID); return err },
		"TicketByNumber": func(org string) error { _, err := f.desk.TicketByNumber(ctx, f.db, org, 1); return err },
		"Messages":       func(org string) error { _, err := f.desk.Messages(ctx, f.db, org, r.TicketID); return err },
		"Conversations":  func(org string) error { _, err := f.desk.Conversations(ctx, f.db, org, r.TicketID); return err },
		"Customer":       func(org string) error { _, err := f.desk.Customer(ctx, f.db, org, r.CustomerID); return err },
		"Attachment":     func(org string) error { _, err := f.desk.Attachment(ctx, f.db, org, file.ID); return err },
		"Update":         func(org string) error { _, err := f.update(org, r.TicketID, desk.Update{}); return err },
		"AddNote": func(org string) error {
			_, err := f.note(org, r.TicketID, grace, desk.Draft{Text: "x"})
			return err
		},
		"Delete": func(org string) error {
			if org == orgA {
				return nil // would affect the other cases
			}
			return f.tryDelete(org, r.TicketID)
		},
	} {
		if err := call(orgB); problem.Of(err) != problem.NotFound {
			t.Errorf("%s of another organization: got %v, want not found", name, err)
		}
		if err := call(orgA); err != nil {
			t.Errorf("%s of its own: %v", name, err)
		}
	}
	if list, _, err := f.desk.FindTickets(ctx, f.db, orgB, desk.TicketQuery{}); err != nil || len(list) != 0 {
		t.Errorf("list: %v, %v", list, err)
	}
}

func TestNote(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text("+4915112345678", "hello"))
	f.setStatus(r.TicketID, desk.StatusPending)
	f.emitted()
	n, err := f.note(orgA, r.TicketID, grace, desk.Draft{
		HTML: `<p onclick="x">called <b>back</b></p><img src="cid:i">`,
		Attachments: []channel.Attachment{
			{Name: "a.txt", ContentType: "text/plain", Data: []byte("abc")},
			{Name: "i.png", ContentID: "i", Inline: true, Data: []byte("i")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := f.messages(r.TicketID)
	if len(m) != 2 || m[1].ID != n.ID || m[1].Kind != "note" || m[1].Author != (event.Author{Type: "agent", ID: graceID, Name: "Grace"}) ||
		m[1].Text != "called back" || m[1].HTML != `<p>called <b>back</b></p><img src="/attachments/`+n.Attachments[1].ID+`">` ||
		len(m[1].Attachments) != 2 || m[1].Attachments[0].Size != 3 {
		t.Errorf("messages: %+v", m)
	}
	ticket := f.ticket(r.TicketID)
	if ticket.Status != desk.StatusPending || !ticket.FirstRespondedAt.IsZero() {
		t.Errorf("a note changed the ticket: %+v", ticket)
	}
	if got := f.emitted(); got != "" {
		t.Errorf("events %s", got)
	}
	_, err = f.note(orgA, r.TicketID, grace, desk.Draft{})
	refused(t, "nothing said", err, problem.Invalid, "required", "text")
	_, err = f.desk.Compose(t.Context(), orgA, desk.Draft{
		Text: strings.Repeat("x", 100_001), HTML: "\x00", Attachments: make([]channel.Attachment, 51),
	})
	refused(t, "too long", err, problem.Invalid, "too_long", "text")
	refused(t, "NUL", err, problem.Invalid, "invalid_format", "html")
	refused(t, "files", err, problem.Invalid, "too_long", "attachments")
	refused(t, "names", err, problem.Invalid, "too_short", "attachments.50.name")
}

func TestMetadataAndExternalID(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text("+4915112345678", "hello"))
	other := f.intake(text("+4915112345679", "hello"))
	f.emitted()
	long := strings.Repeat("x", 501)
	for _, c := range []struct {
		update  desk.Update
		changes string
	}{
		{desk.Update{Metadata: desk.MetadataUpdate{"a": new("1"), "b": new("2"), "c": nil}}, `{"metadata":{"from":{},"to":{"a":"1","b":"2"}}}`},
		{desk.Update{Metadata: desk.MetadataUpdate{"b": new("3"), "a": nil}}, `{"metadata":{"from":{"a":"1","b":"2"},"to":{"b":"3"}}}`},
		{desk.Update{Metadata: desk.MetadataUpdate{"b": new("3")}}, ``},
		{desk.Update{ExternalID: new("T-1")}, `{"external_id":{"from":null,"to":"T-1"}}`},
		{desk.Update{ExternalID: new("")}, `{"external_id":{"from":"T-1","to":null}}`},
		{desk.Update{ExternalID: new("T-2"), Metadata: desk.MetadataUpdate{"b": nil}}, `{"external_id":{"from":null,"to":"T-2"},"metadata":{"from":{"b":"3"},"to":{}}}`},
	} {
		got, err := f.update(orgA, r.TicketID, c.update)
		if err != nil {
			t.Fatal(err)
		}
		changes := ""
		if len(f.log) > 0 {
			b, _ := json.Marshal(f.log[0].Data.Changes)
			changes = string(b)
		}
		if changes != c.changes {
			t.Errorf("changes\n got %s\nwant %s", changes, c.changes)
		}
		if names := f.emitted(); c.changes != "" && names != "ticket.updated" {
			t.Errorf("events %s", names)
		}
		if stored := f.ticket(r.TicketID); stored.ExternalID != got.ExternalID || !maps.Equal(stored.Metadata, got.Metadata) {
			t.Errorf("stored %+v, want %+v", stored, got)
		}
	}
	_, err := f.update(orgA, other.TicketID, desk.Update{ExternalID: new("T-2")})
	refused(t, "another's external id", err, problem.Conflict, "already_exists", "external_id")

	many := make(desk.MetadataUpdate)
	for i := range 51 {
		many[fmt.Sprint("k", i)] = new("v")
	}
	for path, u := range map[string]desk.Update{
		"metadata":    {Metadata: desk.MetadataUpdate{strings.Repeat("k", 41): new("v")}},
		"metadata.k":  {Metadata: desk.MetadataUpdate{"k": &long}},
		"external_id": {ExternalID: new(strings.Repeat("x", 129))},
	} {
		_, err := f.update(orgA, r.TicketID, u)
		refused(t, path, err, problem.Invalid, "too_long", path)
	}
	_, err = f.update(orgA, r.TicketID, desk.Update{Metadata: many})
	refused(t, "51 keys", err, problem.Invalid, "too_long", "metadata")
}

func TestDelete(t *testing.T) {
	f := newFixture(t)
	m := mail("ana@c.example", "m1@c.example")
	m.Event.Message.Cc = []channel.Party{{Email: "bob@c.example"}}
	m.Event.Message.Attachments = []channel.Attachment{{Name: "a.txt", Data: []byte("a")}}
	f.delete(f.intake(m).TicketID)

	short := text("", "code")
	short.Event.Message.ThreadKey, short.Event.Message.From = "ALERTS", channel.Party{ID: "ALERTS"}
	r := f.intake(short)
	f.delete(r.TicketID)
	short.Event.Message.ExternalID = "SM2"
	if again := f.intake(short); again.Outcome != desk.TicketCreated || again.CustomerID != r.CustomerID {
		t.Errorf("the next of the thread: %+v, want a new ticket of the same customer", again)
	} else {
		f.delete(again.TicketID)
	}

	r = f.intake(text("+4915112345678", "hello"))
	f.emitted()
	f.delete(r.TicketID)
	if got := f.emitted(); got != "ticket.deleted" {
		t.Errorf("events %s", got)
	}
	for _, table := range []string{"tickets", "conversations", "messages", "message_ids", "participants", "attachments"} {
		if n := f.count(table); n != 0 {
			t.Errorf("%d %s left", n, table)
		}
	}
	again := f.intake(text("+4915112345678", "hello again"))
	if again.Outcome != desk.TicketCreated || again.CustomerID != r.CustomerID || again.TicketNumber != 5 {
		t.Errorf("the next of the thread: %+v, want ticket 5 of the same customer", again)
	}
	reply := mail("ana@c.example", "m2@c.example")
	reply.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
	if r := f.intake(reply); r.Outcome != desk.TicketCreated {
		t.Errorf("an answer to a deleted mail: %+v", r)
	}
}

func (f *fixture) delete(ticketID string) {
	f.Helper()
	if err := f.tryDelete(orgA, ticketID); err != nil {
		f.Fatal(err)
	}
}

func TestResolvedTicketsAreClosedAfterAWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t))
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
		status := func(id string, want desk.Status) {
			t.Helper()
			synctest.Wait()
			if got := f.ticket(id).Status; got != want {
				t.Errorf("%v: got %s, want %s", time.Now(), got, want)
			}
		}
		const day = 24 * time.Hour
		left := f.intake(text("+4915112345671", "left alone"))
		back := f.intake(text("+4915112345672", "comes back"))
		gone := f.intake(text("+4915112345673", "deleted"))
		for _, r := range []desk.Result{left, back, gone} {
			f.setStatus(r.TicketID, desk.StatusResolved)
		}
		f.delete(gone.TicketID)
		time.Sleep(6 * day)
		status(left.TicketID, desk.StatusResolved)
		f.intake(text("+4915112345672", "not yet"))
		f.setStatus(back.TicketID, desk.StatusResolved)
		f.emitted()

		time.Sleep(2 * day) // of the second resolution, and 8 of the first
		status(left.TicketID, desk.StatusClosed)
		status(back.TicketID, desk.StatusResolved)
		if got, want := f.emitted(), "ticket.updated ticket.status_changed"; got != want {
			t.Errorf("events\n got %s\nwant %s", got, want)
		}
		if f.ticket(left.TicketID).ResolvedAt.IsZero() {
			t.Error("closing forgot when the ticket was resolved")
		}

		time.Sleep(6 * day)
		status(back.TicketID, desk.StatusClosed)
		if n := f.count("jobs"); n != 0 {
			t.Errorf("%d jobs left", n)
		}
	})
}
