package event_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// Events that share rows are listed, found, redacted and purged like those that do not.
func TestRows(t *testing.T) {
	seed := rand.Uint64()
	shared, separate := dbtest.New(t), dbtest.New(t)
	for _, d := range []*db.DB{shared, separate} {
		log := new(event.Log)
		log.SeparateRows.Store(d == separate)
		emitChanges(t, d, log, rand.New(rand.NewPCG(seed, 0)))
	}
	rows := func(d *db.DB) (n int) {
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM events").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if some, all := rows(shared), rows(separate); some > all*2/3 {
		t.Errorf("%d events are in %d rows", all, some)
	}
	compare := func(when string) {
		t.Helper()
		for _, names := range [][]event.Name{
			nil, {event.CustomerCreated}, {event.MessageCreated, event.TicketAssigned}, {event.ConversationCreated, event.CustomerCreated},
			{event.TicketAssigned}, {event.SLAWarning, event.TicketAssigned}, {event.CustomerCreated, event.SLAWarning},
		} {
			for _, ticket := range []string{"", "t3", "t17", "none"} {
				for _, ascending := range []bool{false, true} {
					query := event.Query{Names: names, TicketID: ticket, Ascending: ascending}
					want := pages(t, separate, query, 200)
					for _, limit := range []int{1, 2, 3, 7, 200} {
						if got := pages(t, shared, query, limit); !slices.Equal(got, want) {
							t.Fatalf("%s, seed %d, %+v by %d: got %d events\n%q\nwant %d\n%q", when, seed, query, limit, len(got), got, len(want), want)
						}
					}
				}
			}
		}
	}
	compare("written")
	for _, d := range []*db.DB{shared, separate} {
		changed := 0
		for i := range 20 {
			if err := event.Redact(t.Context(), d, "o", fmt.Sprint("c", i), []string{fmt.Sprint("t", i)}, func(_ context.Context, _ *db.Tx, ids []string) error {
				changed += len(ids)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if changed < 20 {
			t.Errorf("%d events redacted", changed)
		}
	}
	compare("redacted")
}

// emitChanges emits random changes of an organization, and reads each event back.
func emitChanges(t *testing.T, d *db.DB, log *event.Log, r *rand.Rand) {
	t.Helper()
	for i := range 60 {
		k := &event.Customer{ID: fmt.Sprint("c", i), Name: "Zoë"}
		ticket := &event.Ticket{ID: fmt.Sprint("t", i%20), Number: int64(i), Subject: "Lock", Customer: k}
		m := &event.Message{ID: fmt.Sprint("m", i), TicketID: ticket.ID, Text: "It does not open.", Author: event.Author{Type: "customer", ID: k.ID}}
		var events []event.Event
		add := func(name event.Name, data event.Data) {
			events = append(events, event.Event{OrganizationID: "o", Name: name, Data: data})
		}
		if r.IntN(2) == 0 {
			add(event.CustomerCreated, event.Data{Customer: k})
		}
		if r.IntN(3) > 0 {
			add(event.TicketCreated, event.Data{Ticket: ticket})
		}
		if r.IntN(4) == 0 {
			add(event.TicketAssigned, event.Data{Ticket: ticket, Changes: map[string]event.Change{"assignee": {To: "Ann"}}})
		}
		for range r.IntN(9) {
			add(event.ConversationCreated, event.Data{Ticket: ticket, Message: m})
			add(event.MessageCreated, event.Data{Ticket: ticket, Message: m})
		}
		if r.IntN(5) == 0 {
			add(event.SLAWarning, event.Data{Ticket: ticket, SLA: &event.SLA{Metric: "resolution"}})
		}
		if r.IntN(5) == 0 { // of another ticket: no record is the same
			add(event.TicketCreated, event.Data{Ticket: &event.Ticket{ID: "other"}})
		}
		if err := d.Write(t.Context(), func(tx *db.Tx) error { return log.EmitTx(t.Context(), tx, events...) }); err != nil {
			t.Fatal(err)
		}
		for j := range events {
			got, err := event.Find(t.Context(), d, events[j].ID)
			if err != nil || text(t, &got) != text(t, &events[j]) || j > 0 && got.ID <= events[j-1].ID {
				t.Fatalf("found %s, %v, want %s", text(t, &got), err, text(t, &events[j]))
			}
		}
	}
	for _, id := range []string{"", "none", "é", event.FirstID(time.Now())} {
		if _, err := event.Find(t.Context(), d, id); err != db.ErrNoRows {
			t.Errorf("an event with the id %q: %v", id, err)
		}
	}
}

// pages returns the events of all pages of a list, without ids and times.
func pages(t *testing.T, d *db.DB, query event.Query, limit int) (all []string) {
	t.Helper()
	for query.Limit = limit; ; {
		list, next, err := event.List(t.Context(), d, "o", query)
		if err != nil || len(list) > limit {
			t.Fatal(len(list), err)
		}
		for i := range list {
			all = append(all, text(t, &list[i]))
		}
		if query.After = next; next == "" {
			return all
		}
	}
}

func text(t *testing.T, e *event.Event) string {
	t.Helper()
	content, err := json.Marshal(e.Data)
	if err != nil {
		t.Fatal(err)
	}
	return string(e.Name) + " " + string(content)
}
