package event_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"

	"github.com/google/uuid"
)

// idOf returns an id of an event that was written at a time.
func idOf(t *testing.T, at time.Time, n int) string {
	t.Helper()
	id, err := uuid.Parse(event.FirstID(at))
	if err != nil {
		t.Fatal(err)
	}
	id[14], id[15] = byte(n>>8), byte(n)
	return id.String()
}

// TestPurge: events before a time are deleted, in any number of steps, except those
// with stored deliveries.
func TestPurge(t *testing.T) {
	d := dbtest.New(t)
	ctx := t.Context()
	now := time.Now().Truncate(time.Millisecond)
	write := func(fn func(tx *db.Tx) error) {
		t.Helper()
		if err := d.Write(ctx, fn); err != nil {
			t.Fatal(err)
		}
	}
	const old, young = 1203, 4 // more than two steps of them
	var kept []string
	write(func(tx *db.Tx) error {
		for i := range old + young {
			at := now.Add(-91 * 24 * time.Hour).Add(time.Duration(i) * time.Millisecond)
			if i >= old {
				at = now.Add(-89 * 24 * time.Hour)
			}
			e := event.Event{ID: idOf(t, at, i), OrganizationID: "o", Name: event.TicketCreated, At: at}
			if err := event.WriteTx(ctx, tx, e); err != nil {
				return err
			}
			if i%400 != 0 && i < old {
				continue
			}
			kept = append(kept, e.ID)
			if i >= old {
				continue
			}
			// New, waiting for a retry, delivered, exhausted: an event stays as long as its
			// delivery.
			if _, err := tx.Exec(ctx, `INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at, exhausted)
				VALUES ('w', $1, $2, 'ticket.created', $3, 0, $4)`, fmt.Sprint("d", i), e.ID, i/400, i/400/3); err != nil {
				return err
			}
		}
		return nil
	})
	// The age of an event is that of created_at, even if its process had a slow clock.
	behind := event.Event{ID: idOf(t, now.Add(-95*24*time.Hour), 0), OrganizationID: "o", Name: event.TicketCreated, At: now.Add(-89 * 24 * time.Hour)}
	write(func(tx *db.Tx) error { return event.WriteTx(ctx, tx, behind) })
	kept = append([]string{behind.ID}, kept...)

	n, err := event.Purge(ctx, d, now.Add(-90*24*time.Hour))
	if want := old + young + 1 - len(kept); n != want || err != nil {
		t.Errorf("Purge() = %d, %v; want %d", n, err, want)
	}
	left, err := db.All(ctx, d, func(row db.Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, "SELECT id FROM events ORDER BY id")
	if err != nil || !slices.Equal(left, kept) {
		t.Errorf("%d events are left, %v; want the %d that are young or of deliveries", len(left), err, len(kept))
	}
	write(func(tx *db.Tx) error { _, err := tx.Exec(ctx, "DELETE FROM deliveries"); return err })
	if n, err := event.Purge(ctx, d, now.Add(-90*24*time.Hour)); n != len(kept)-young-1 || err != nil {
		t.Errorf("Purge() without the deliveries = %d, %v; want %d", n, err, len(kept)-young-1)
	}
}

// TestPurgeInSteps: a step that fails takes none before it back, and each is small.
func TestPurgeInSteps(t *testing.T) {
	d := dbtest.New(t)
	long := time.Now().Add(-24 * time.Hour)
	last := ""
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		for i := range 501 {
			last = idOf(t, long, i)
			if err := event.WriteTx(t.Context(), tx, event.Event{ID: last, OrganizationID: "o", Name: event.TicketCreated, At: long}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	dbtest.Hold(t, d, "events", last)
	if n, err := event.Purge(t.Context(), d, time.Now()); n != 500 || err == nil {
		t.Errorf("Purge() = %d, %v; want 500 and an error", n, err)
	}
	var left int
	if err := d.QueryRow(t.Context(), "SELECT count(*) FROM events").Scan(&left); err != nil || left != 1 {
		t.Errorf("%d events are left, %v; want 1", left, err)
	}
}

// A row of several events stays as long as one of them has a delivery.
func TestPurgeSharedRow(t *testing.T) {
	d := dbtest.New(t)
	write := func(fn func(tx *db.Tx) error) {
		t.Helper()
		if err := d.Write(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	ticket := &event.Ticket{ID: "t"}
	var kept string
	for i := range 2 {
		events := []event.Event{{OrganizationID: "o", Name: event.TicketCreated, Data: event.Data{Ticket: ticket}}, {OrganizationID: "o", Name: event.MessageCreated, Data: event.Data{Ticket: ticket}}}
		write(func(tx *db.Tx) error { return new(event.Log).EmitTx(t.Context(), tx, events...) })
		if i == 0 {
			kept = events[1].ID
			write(func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), "INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at) VALUES ('w', 'd', $1, 'message.created', 2, 0)", kept)
				return err
			})
		}
	}
	if n, err := event.Purge(t.Context(), d, time.Now().Add(time.Hour)); err != nil || n != 1 {
		t.Errorf("purged %d rows, %v, want 1", n, err)
	}
	if _, err := event.Find(t.Context(), d, kept); err != nil {
		t.Errorf("the event of a delivery: %v", err)
	}
}
