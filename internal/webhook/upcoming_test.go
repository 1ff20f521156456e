package webhook_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// upcoming describes the waiting deliveries by ticket number: "2 turn, when 1 is due (3 more)".
func (r *rig) upcoming(id string) []string {
	r.t.Helper()
	list, err := r.hooks.Upcoming(r.t.Context(), org, id, 100)
	if err != nil {
		r.t.Fatal(err)
	}
	numbers := make([]int, len(list))
	due := map[time.Time]string{time.Now().UTC(): "at once"}
	for i, c := range list {
		body, err := r.hooks.Body(r.t.Context(), org, c.ID)
		if err != nil {
			r.t.Fatal(err)
		}
		numbers[i] = ticketNumber(body)
		if !c.NextAt.IsZero() {
			due[c.NextAt] = fmt.Sprintf("when %d is due", numbers[i])
		}
	}
	var out []string
	for i, c := range list {
		out = append(out, fmt.Sprintf("%d %s, %s (%d more)", numbers[i], c.Wait, due[c.Due], len(c.Further)))
	}
	return out
}

func TestUpcoming(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		working := false
		n.receive("receiver.example.com", func(_ int, w http.ResponseWriter, _ *http.Request) {
			if !working {
				w.WriteHeader(http.StatusBadGateway)
			}
		})
		want := func(id string, want ...string) {
			t.Helper()
			if got := r.upcoming(id); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		}
		w := r.create(webhook.New{RetrySchedule: webhook.LongSchedule})
		want(w.ID)
		r.emit(1)
		r.start()
		time.Sleep(2 * time.Minute) // it has been tried twice
		r.emit(2)
		time.Sleep(time.Second)
		r.stop()
		r.emit(3, 4)
		want(w.ID, "3 now, at once (5 more)", "4 now, at once (5 more)", "2 time, when 2 is due (4 more)", "1 time, when 1 is due (3 more)")
		list, err := r.hooks.Upcoming(t.Context(), org, w.ID, 1)
		if err != nil || len(list) != 1 {
			t.Fatalf("got %v, %v, want one", list, err)
		}
		at := list[0].Due
		for i, delay := range []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 24 * time.Hour} {
			at = at.Add(delay)
			if got := list[0].Further[i]; got != at {
				t.Errorf("attempt %d: got %v, want %v", i+2, got, at)
			}
		}

		// In order: each when the one before may be.
		r.update(w.ID, webhook.Change{Ordered: new(true)})
		want(w.ID, "1 time, when 1 is due (3 more)", "2 turn, when 1 is due (4 more)", "3 turn, when 1 is due (5 more)", "4 turn, when 1 is due (5 more)")
		r.update(w.ID, webhook.Change{Ordered: new(false), Enabled: new(false)})
		want(w.ID, "1 enabled, at once (5 more)", "2 enabled, at once (5 more)", "3 enabled, at once (5 more)", "4 enabled, at once (5 more)")

		// A backlog, followed by newer deliveries.
		r.update(w.ID, webhook.Change{Enabled: new(true)})
		r.emit(5)
		want(w.ID, "1 now, at once (5 more)", "2 turn, at once (5 more)", "3 turn, at once (5 more)", "4 turn, at once (5 more)", "5 turn, at once (5 more)")
		r.update(w.ID, webhook.Change{Enabled: new(true), DrainRate: new(1)})
		list, err = r.hooks.Upcoming(t.Context(), org, w.ID, 3)
		if err != nil || len(list) != 3 || list[0].Wait != webhook.WaitNothing || list[1].Wait != webhook.WaitTime || list[2].Wait != webhook.WaitTime ||
			list[1].Due.Sub(list[0].Due) != time.Second || list[2].Due.Sub(list[1].Due) != time.Second {
			t.Errorf("at a rate: got %+v, %v", list, err)
		}
		working = true
		r = newRig(t, d, n, nil)
		r.start()
		time.Sleep(time.Hour)
		want(w.ID)
	})
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	w := r.create(webhook.New{})
	for _, limit := range []int{0, -1, webhook.MaxPage + 1} {
		if _, err := r.hooks.Upcoming(t.Context(), org, w.ID, limit); issues(err) != "limit must be from 1 to 500" {
			t.Errorf("limit %d: got %v", limit, err)
		}
	}
}

func TestReplayMany(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	rc := n.receive("receiver.example.com", nil)
	other := n.receive("other.example.com", nil)
	a := r.create(webhook.New{})
	b := r.create(webhook.New{URL: "https://other.example.com/", Ordered: true})
	r.start()
	r.emit(1, 2, 3)
	rc.wait(t, 3)
	other.wait(t, 3)
	r.stop()
	old := append(r.deliveries(b.ID), r.deliveries(a.ID)...) // 3, 2, 1 of each
	var ids []string
	for _, d := range old[:5] {
		ids = append(ids, d.ID)
	}
	r = newRig(t, r.db, n, nil)
	made, err := r.hooks.Replay(t.Context(), org, ids)
	if err != nil || len(made) != 5 {
		t.Fatalf("got %v, %v", made, err)
	}
	for i, id := range made {
		d, _, err := r.hooks.Delivery(t.Context(), org, id)
		if err != nil || d.WebhookID != old[i].WebhookID || d.EventID != old[i].EventID || d.ID == old[i].ID || d.State != webhook.Pending {
			t.Errorf("replay %d: got %+v, %v, want a new delivery like %+v", i, d, err, old[i])
		}
	}
	r.start()
	rc.wait(t, 2)
	if got := other.wait(t, 3); got[0].number != 1 || got[1].number != 2 || got[2].number != 3 {
		t.Errorf("got %v, want the oldest first", got)
	}
	r.stop()

	r = newRig(t, r.db, n, nil)
	tested, err := r.hooks.Test(t.Context(), org, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	count := func() int { return r.count("SELECT count(*) FROM deliveries") }
	before := count()
	const missing = "00000000-0000-7000-8000-000000000000"
	for name, test := range map[string]struct {
		ids  []string
		want string
	}{
		"none":     {nil, "deliveryIds must name from 1 to 1000 deliveries"},
		"too many": {make([]string, 1001), "deliveryIds must name from 1 to 1000 deliveries"},
		"twice":    {[]string{ids[0], ids[1], ids[0]}, "deliveryIds.2 is there twice"},
		"a test":   {[]string{ids[0], tested.DeliveryID}, "deliveryIds.1 is a test delivery, which cannot be replayed; send another test"},
		"unknown":  {[]string{ids[0], missing}, `not found: there is no delivery "` + missing + `"`},
	} {
		_, err := r.hooks.Replay(t.Context(), org, test.ids)
		if got := issues(err); !strings.HasSuffix(got, test.want) && !strings.HasSuffix(test.want, got) || got == "" {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	if _, err := r.hooks.Replay(t.Context(), otherOrg, ids[:1]); problem.Of(err) != problem.NotFound {
		t.Errorf("another organization: got %v, want not found", err)
	}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "DELETE FROM events WHERE id = $1", old[0].EventID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.hooks.Replay(t.Context(), org, []string{ids[1], ids[0]}); problem.Of(err) != problem.NotFound {
		t.Errorf("of an event that is gone: got %v, want not found", err)
	}
	if got := count(); got != before {
		t.Errorf("got %d deliveries made by what was refused", got-before)
	}
}

func TestReplayRange(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	w := r.create(webhook.New{Disabled: true})
	warning := ticketCreated(4)
	warning.Name = event.SLAWarning
	r.emit(1, 2, 3)
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error { return r.log.EmitTx(t.Context(), tx, warning) }); err != nil {
		t.Fatal(err)
	}
	list := r.deliveries(w.ID) // 4 … 1
	set := func(id string, state webhook.DeliveryState) {
		t.Helper()
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE deliveries SET state = $2 WHERE id = $1", id, int64(state))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	set(list[0].ID, webhook.DeliveryFailed)
	set(list[1].ID, webhook.Dropped)
	set(list[2].ID, webhook.DeliveryFailed)
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for name, test := range map[string]struct {
		r    webhook.Range
		want []string // events of the new deliveries, newest first
	}{
		"failed":             {webhook.Range{States: webhook.FailedOnly(true)}, []string{list[0].EventID, list[1].EventID, list[2].EventID}},
		"failed of an event": {webhook.Range{States: webhook.FailedOnly(true), Event: event.TicketCreated}, []string{list[1].EventID, list[2].EventID}},
		"an event":           {webhook.Range{Event: event.SLAWarning}, []string{list[0].EventID}},
		"all but what waits": {webhook.Range{}, []string{list[0].EventID, list[1].EventID, list[2].EventID}},
		"dropped":            {webhook.Range{States: []webhook.DeliveryState{webhook.Dropped}}, []string{list[1].EventID}},
		"delivered":          {webhook.Range{States: []webhook.DeliveryState{webhook.Delivered}}, nil},
		"no event":           {webhook.Range{Event: event.CustomerCreated}, nil},
	} {
		test.r.WebhookID, test.r.From, test.r.To = w.ID, from, to
		dry := test.r
		dry.DryRun = true
		if n, err := r.hooks.ReplayRange(t.Context(), org, dry); err != nil || n != len(test.want) || r.deliveries(w.ID)[0].ID != list[0].ID {
			t.Errorf("%s, dry: got %d, %v, want %d and nothing sent", name, n, err, len(test.want))
		}
		got, err := r.hooks.ReplayRange(t.Context(), org, test.r)
		if err != nil || got != len(test.want) {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, len(test.want))
		}
		for i, d := range r.deliveries(w.ID)[:len(test.want)] {
			if d.EventID != test.want[i] {
				t.Errorf("%s: got event %s, want %s", name, d.EventID, test.want[i])
			}
		}
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "DELETE FROM deliveries WHERE id > $1", list[0].ID)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	// A range begins with its first moment and ends before its last, to the microsecond; it
	// leaves out tests.
	exec := func(query string, args ...any) {
		t.Helper()
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), query, args...); return err }); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now().Truncate(time.Microsecond)
	for i, d := range list[:3] {
		exec("UPDATE deliveries SET created_at = $2 WHERE id = $1", d.ID, at.Add(time.Duration(1-i)*time.Second).UnixMicro())
	}
	span := webhook.Range{WebhookID: w.ID, From: at, To: at.Add(time.Second), DryRun: true}
	if n, err := r.hooks.ReplayRange(t.Context(), org, span); n != 1 || err != nil {
		t.Errorf("of a second: got %d, %v, want 1", n, err)
	}
	span.From, span.To = at.Add(-time.Second), at.Add(time.Second+time.Microsecond)
	if n, err := r.hooks.ReplayRange(t.Context(), org, span); n != 3 || err != nil {
		t.Errorf("of two seconds and their ends: got %d, %v, want 3", n, err)
	}
	exec("UPDATE deliveries SET is_test = 1 WHERE id = $1", list[1].ID)
	if n, err := r.hooks.ReplayRange(t.Context(), org, span); n != 2 || err != nil {
		t.Errorf("with a test among them: got %d, %v, want 2", n, err)
	}
	waiting := webhook.Range{WebhookID: w.ID, From: from, To: to, States: []webhook.DeliveryState{webhook.Pending}}
	if _, err := r.hooks.ReplayRange(t.Context(), org, waiting); problem.Of(err) != problem.Invalid {
		t.Errorf("of what waits anyway: got %v, want invalid", err)
	}
	if _, err := r.hooks.ReplayRange(t.Context(), org, webhook.Range{WebhookID: w.ID, From: to, To: from, Event: "no"}); issues(err) != "to must be after from; event is not the name of an event" {
		t.Errorf("got %v", err)
	}
}

// Effects of an update on attempts under way.
func TestUpdateDuringAttempt(t *testing.T) {
	for name, test := range map[string]struct {
		change webhook.Change
		answer int
		state  webhook.State
		want   webhook.DeliveryState
		queued int64
	}{
		"disabled, and it succeeds":    {webhook.Change{Enabled: new(false)}, 200, webhook.Disabled, webhook.Delivered, 0},
		"disabled, and it is refused":  {webhook.Change{Enabled: new(false)}, 404, webhook.Disabled, webhook.DeliveryFailed, 0},
		"disabled, and it fails":       {webhook.Change{Enabled: new(false)}, 500, webhook.Disabled, webhook.Retrying, 1},
		"another URL, and it succeeds": {webhook.Change{URL: new("https://nobody.example.com/")}, 200, webhook.Enabled, webhook.Delivered, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			r := newRig(t, dbtest.New(t), n, nil)
			var w webhook.Webhook
			changed := make(chan struct{})
			n.receive("receiver.example.com", func(_ int, rw http.ResponseWriter, _ *http.Request) {
				r.update(w.ID, test.change)
				close(changed)
				rw.WriteHeader(test.answer)
			})
			w = r.create(webhook.New{})
			r.start()
			r.emit(1)
			<-changed
			r.stop()
			got, d := r.find(w.ID), r.deliveries(w.ID)[0]
			if got.State != test.state || got.QueuedEvents != test.queued || d.State != test.want {
				t.Errorf("got %s with %d queued, delivery %s; want %s with %d, %s", got.State, got.QueuedEvents, d.State, test.state, test.queued, test.want)
			}
		})
	}
}

// A webhook disabled by a user during its last attempt does not fail in addition, and no mail
// is sent.
func TestDisabledDuringLastAttempt(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, func(c *webhook.Config) { c.RetryTimeScale = 1e-9 })
	var w webhook.Webhook
	last := make(chan struct{})
	n.receive("receiver.example.com", func(count int, rw http.ResponseWriter, _ *http.Request) {
		if count == 6 {
			r.update(w.ID, webhook.Change{Enabled: new(false)})
			close(last)
		}
		rw.WriteHeader(http.StatusInternalServerError)
	})
	w = r.create(webhook.New{})
	r.start()
	r.emit(1)
	<-last
	r.stop()
	if got := r.find(w.ID); got.State != webhook.Disabled || len(r.mails.all()) != 0 {
		t.Errorf("got %s and %d mails, want it disabled and none", got.State, len(r.mails.all()))
	}
}
