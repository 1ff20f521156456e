package app

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

func TestParseRetention(t *testing.T) {
	for text, want := range map[string]Retention{
		"":                         DefaultRetention,
		"events=1d":                {day, 30 * day, 30 * day, 7 * day},
		"events=never,audit=never": {0, 30 * day, 30 * day, 7 * day},
		"attempts=12h, inbound=3650d,requests=1h": {90 * day, 12 * time.Hour, 3650 * day, time.Hour},
	} {
		var list []string
		if text != "" {
			list = strings.Split(text, ",")
		}
		if got, err := ParseRetention(list); got != want || err != nil {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"events":                "KIND=TIME",
		"mails=1d":              "not one of events",
		"events=1d,events=2d":   "twice",
		"events=soon":           "not a time such as 90d",
		"events=":               "not a time such as 90d",
		"events=59m":            "not from 1h to 3650d",
		"events=-1d":            "not from 1h to 3650d",
		"events=0d":             "not from 1h to 3650d",
		"inbound=3651d":         "not from 1h to 3650d",
		"inbound=999999999999d": "not from 1h to 3650d",
		"inbound=213505d":       "not from 1h to 3650d", // in nanoseconds it overflows int64 to a day
		"audit=90d":             "audit must be never",
	} {
		if _, err := ParseRetention(strings.Split(text, ",")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// TestHistoryEnds: a running program deletes exactly the history past its retention.
func TestHistoryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		a := &App{DB: d, log: quiet}
		a.current.Store(&Config{Retention: Retention{Events: 3 * day}})
		emit := func() {
			t.Helper()
			// Ids contain the time; the generator does not go back to the bubble's.
			now := time.Now()
			e := event.Event{ID: event.FirstID(now), OrganizationID: "o", Name: event.TicketCreated, At: now}
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return event.WriteTx(t.Context(), tx, e) }); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			emit()
			time.Sleep(day)
			if err := a.purgeEvents(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		var count int
		var oldest time.Time
		if err := d.QueryRow(t.Context(), "SELECT count(*), min(created_at) FROM events").Scan(&count, db.IntoTime(&oldest)); err != nil {
			t.Fatal(err)
		}
		if age := time.Since(oldest); count != 3 || age > 3*day {
			t.Errorf("after ten days %d events are left, the oldest from %s ago; want those of three days", count, age)
		}
		a.current.Load().Retention.Events = 0
		time.Sleep(1000 * day)
		if err := a.purgeEvents(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM events").Scan(&count); err != nil || count != 3 {
			t.Errorf("with never, %d events are left, %v; want 3", count, err)
		}
	})
}

// TestMaintenance: maintenance deletes events, deliveries and inbound events past their
// retention, and no others; with a retention of never it deletes none of them.
func TestMaintenance(t *testing.T) {
	a := deployment(t, "http://localhost:8080", quiet)
	o := signUp(t, a, "Acme")
	w, err := a.Webhooks.Create(t.Context(), o.ID, webhook.New{URL: "https://93.184.215.14/", Events: []string{"*"}, Disabled: true})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	err = a.DB.Write(t.Context(), func(tx *db.Tx) error {
		for i, age := range []time.Duration{3 * day, 20 * day, 40 * day} {
			at := now.Add(-age)
			e := event.Event{ID: event.FirstID(at), OrganizationID: o.ID, Name: event.TicketCreated, At: at}
			if err := event.WriteTx(t.Context(), tx, e); err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), "INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at) VALUES ($1, $2, $3, 'ticket.created', 2, $4)", w.ID, e.ID, fmt.Sprint("gone", i), at.UnixMicro()); err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), `INSERT INTO inbound_events (id, fingerprint, connection_id, channel, external_key, kind, sender, address, verified_by, state, received_at, body_size, url, headers)
				VALUES ($1, $2, '', 'sms', '', '', '', '', '', 'processed', $3, 0, '', '')`, e.ID, []byte(e.ID), at.UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		retention Retention
		want      string // numbers of events, deliveries and inbound events
	}{
		{Retention{}, "3 3 3"},
		{Retention{Events: 10 * day}, "1 3 3"},
		{Retention{Attempts: 30 * day}, "1 2 3"},
		{Retention{Attempts: 10 * day, Inbound: 30 * day}, "1 1 2"},
		{Retention{Events: day, Attempts: day, Inbound: day}, "0 0 0"},
	} {
		a.current.Load().Retention = tt.retention
		if err := a.maintain(t.Context(), now); err != nil {
			t.Error(err)
		}
		var events, deliveries, inbound int
		if err := a.DB.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM deliveries), (SELECT count(*) FROM inbound_events)").Scan(&events, &deliveries, &inbound); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(events, deliveries, inbound); got != tt.want {
			t.Errorf("%+v: %s events, deliveries and inbound events are left, want %s", tt.retention, got, tt.want)
		}
	}
}
