package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"

	"github.com/oklog/ulid/v2"
)

// fleetLog is a source in memory.
type fleetLog struct {
	mu       sync.Mutex
	source   event.Source
	recorded []string
	events   []event.Event
	relayed  int64
	failing  bool // EventsRelayed fails
}

func (f *fleetLog) EventSource() event.Source { return f.source }

func (f *fleetLog) RecordEvents(_ context.Context, organizationIDs []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recorded = organizationIDs
	return nil
}

func (f *fleetLog) WaitingEvents(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.relayed == int64(len(f.events)) {
		return nil, nil
	}
	return []string{org}, nil
}

func (f *fleetLog) NextEvents(_ context.Context, _ string, limit int) ([]event.Event, int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.events[f.relayed:]
	list = slices.Clone(list[:min(len(list), limit)])
	return list, f.relayed + int64(len(list)), nil
}

func (f *fleetLog) EventsRelayed(_ context.Context, _ string, position int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing {
		return errors.New("the process died")
	}
	f.relayed = position
	return nil
}

// add adds events ride.updated of vehicles, each with its number as the payment.
func (f *fleetLog) add(vehicles ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, vehicle := range vehicles {
		n := len(f.events) + 1
		id := ulid.MustNew(ulid.Now(), ulid.DefaultEntropy())
		f.events = append(f.events, event.Event{
			ID: "evt_" + id.String(), OrganizationID: org, Source: f.source, Name: event.RideUpdated, Subject: vehicle, At: time.Unix(int64(n), 0),
			Data: event.Data{Fleet: json.RawMessage(fmt.Sprintf(`{"livemode":true,"ride":{"vehicle_id":%q},"ticket":{"number":%d}}`, vehicle, n))},
		})
	}
}

func (r *rig) relay() {
	r.t.Helper()
	if err := r.hooks.RelaySources(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// withFleet adds a source to the configuration.
func withFleet(f *fleetLog) func(*webhook.Config) {
	return func(c *webhook.Config) { c.Sources = []webhook.Source{f} }
}

// Events of a vehicle are sent one after the other, also around a retry, and delay no other vehicle.
func TestFleetOrder(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		f := &fleetLog{source: event.Fleet}
		r := newRig(t, d, n, withFleet(f))
		attempts := 0
		var mu sync.Mutex
		rc := n.receive("receiver.example.com", nil)
		rc.answer = func(n int, w http.ResponseWriter, _ *http.Request) {
			number := rc.all()[n-1].number
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if number == 1 {
				if attempts++; attempts < 3 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}
		}
		other := n.receive("other.example.com", nil)
		w := r.create(webhook.New{Source: event.Fleet})
		r.create(webhook.New{URL: "https://other.example.com/"})
		if w.Source != event.Fleet || !slices.Equal(w.Events, []string{"*"}) {
			t.Errorf("the webhook has the source %s and the events %v", w.Source, w.Events)
		}
		r.start()
		f.add("a", "a", "b", "a", "b")
		r.relay()
		time.Sleep(5 * time.Second)
		if got := rc.numbers(); !slices.Equal(slices.Sorted(slices.Values(got)), []int{1, 3, 5}) {
			t.Fatalf("at once: %v, want 1, 3 and 5", got)
		}
		time.Sleep(time.Hour)
		got := rc.numbers()
		got = slices.DeleteFunc(got, func(n int) bool { return n == 3 || n == 5 })
		if want := []int{1, 1, 1, 2, 4}; !slices.Equal(got, want) {
			t.Errorf("vehicle a: got %v, want %v", got, want)
		}
		if n := len(other.all()); n > 0 {
			t.Errorf("the webhook of the helpdesk got %d events of the fleet", n)
		}
		p := rc.all()[0]
		if p.header.Get("X-Service-Event") != "ride.updated" || !strings.HasPrefix(p.header.Get("Webhook-Id"), "evt_") ||
			!strings.Contains(p.body, `"event":"ride.updated","created_at":"1970-01-01T00:00:0`) {
			t.Errorf("got %v %s", p.header, p.body)
		}
	})
}

// A webhook that failed sends its backlog in the order of each vehicle.
func TestFleetBacklog(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		f := &fleetLog{source: event.Fleet}
		r := newRig(t, d, n, withFleet(f))
		w := r.create(webhook.New{Source: event.Fleet}) // nobody listens
		r.start()
		for range 20 {
			f.add("a", "b")
		}
		r.relay()
		time.Sleep(24 * time.Hour)
		if got := r.find(w.ID); got.State != webhook.Failed || got.QueuedEvents != 38 && got.QueuedEvents != 39 {
			t.Fatalf("the webhook is %s with %d queued", got.State, got.QueuedEvents)
		}
		rc := n.receive("receiver.example.com", func(n int, w http.ResponseWriter, _ *http.Request) {
			if n == 3 || n == 7 {
				w.WriteHeader(http.StatusBadGateway)
			}
		})
		r.update(w.ID, webhook.Change{Enabled: new(true)})
		f.add("a", "b")
		r.relay()
		time.Sleep(24 * time.Hour)
		last := map[int]int{}
		for _, n := range rc.numbers() {
			if n < last[n%2] {
				t.Errorf("event %d came after %d of the same vehicle", n, last[n%2])
			}
			last[n%2] = n
		}
		if got := len(rc.numbers()); got != 44 {
			t.Errorf("got %d posts, want 42 and two retries", got)
		}
	})
}

// A delivery that was claimed before the webhook failed in another process waits: the failed one of its
// vehicle comes first, once the webhook is enabled again.
func TestFleetFailedElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		f := &fleetLog{source: event.Fleet}
		r := newRig(t, d, n, withFleet(f))
		rc := n.receive("receiver.example.com", nil)
		w := r.create(webhook.New{Source: event.Fleet})
		set := func(state webhook.State) {
			t.Helper()
			if err := d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), "UPDATE webhooks SET state = $2 WHERE id = $1", w.ID, string(state))
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		r.start()
		f.add("a")
		r.relay()
		time.Sleep(100 * time.Millisecond) // the process knows the webhook as enabled
		set(webhook.Failed)
		f.add("a")
		r.relay()
		time.Sleep(500 * time.Millisecond)
		if got := rc.numbers(); !slices.Equal(got, []int{1}) {
			t.Fatalf("got %v while the webhook was failed, want 1", got)
		}
		set(webhook.Enabled)
		time.Sleep(2 * time.Second)
		if got := rc.numbers(); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("got %v, want 1 and 2", got)
		}
	})
}

// busyFleets is a source of several organizations without webhooks.
type busyFleets struct {
	fleetLog
	left  map[string]int // events, by organization
	reads []string       // organizations, in the order of reads
}

func (b *busyFleets) WaitingEvents(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(b.left)), nil
}

func (b *busyFleets) NextEvents(_ context.Context, organizationID string, limit int) ([]event.Event, int64, error) {
	b.reads = append(b.reads, organizationID)
	n := min(b.left[organizationID], limit)
	b.left[organizationID] -= n
	return make([]event.Event, n), 0, nil
}

// An organization with many events does not delay those of others.
func TestFleetRelayInTurns(t *testing.T) {
	b := &busyFleets{fleetLog: fleetLog{source: event.Fleet}, left: map[string]int{"many": 250, "one": 1}}
	r := newRig(t, dbtest.New(t), newNetwork(t), func(c *webhook.Config) { c.Sources = []webhook.Source{b} })
	r.relay()
	if want := []string{"many", "one", "many", "many"}; !slices.Equal(b.reads, want) {
		t.Errorf("read events of %v, want %v", b.reads, want)
	}
}

// Events read again after a crash have no second deliveries.
func TestFleetRelayTwice(t *testing.T) {
	n := newNetwork(t)
	f := &fleetLog{source: event.Sandbox, failing: true}
	r := newRig(t, dbtest.New(t), n, withFleet(f))
	w := r.create(webhook.New{Source: event.Sandbox, Events: []string{"ride.updated"}})
	none := r.create(webhook.New{Source: event.Sandbox, Events: []string{"zone.deleted"}})
	live := r.create(webhook.New{Source: event.Fleet})
	f.add("a", "a")
	for range 2 {
		if err := r.hooks.RelaySources(t.Context()); err == nil {
			t.Fatal("no error")
		}
	}
	f.mu.Lock()
	f.failing = false
	f.mu.Unlock()
	f.add("b")
	r.relay()
	if !slices.Equal(f.recorded, []string{org}) {
		t.Errorf("events of %v are recorded", f.recorded)
	}
	list := r.deliveries(w.ID)
	if len(list) != 3 || len(r.deliveries(none.ID)) != 0 || len(r.deliveries(live.ID)) != 0 {
		t.Fatalf("%d, %d and %d deliveries", len(list), len(r.deliveries(none.ID)), len(r.deliveries(live.ID)))
	}
	// A replay needs a webhook of the same source.
	if _, err := r.hooks.ReplayEvent(t.Context(), org, list[0].EventID, w.ID); err != nil {
		t.Error(err)
	}
	if ids, err := r.hooks.ReplayEvent(t.Context(), org, list[0].EventID, live.ID); err != nil || len(ids) > 0 {
		t.Errorf("replayed to production: %v, %v", ids, err)
	}
	if n, err := event.Purge(t.Context(), r.db, time.Now().Add(time.Hour)); err != nil || n != 0 {
		t.Errorf("deleted %d events with deliveries, %v", n, err)
	}
	for _, id := range []string{w.ID, none.ID} {
		if err := r.hooks.Delete(t.Context(), org, id); err != nil {
			t.Fatal(err)
		}
	}
	r.relay()
	if len(f.recorded) > 0 {
		t.Errorf("events of %v are still recorded", f.recorded)
	}
}

// A webhook has the events and settings of its source.
func TestFleetSettings(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), withFleet(&fleetLog{source: event.Fleet}))
	w := r.create(webhook.New{Source: event.Fleet, Events: []string{"ride.started", "customer.created"}})
	for what, change := range map[string]webhook.Change{
		"events":      {Events: &[]string{"ticket.created"}},
		"payloadForm": {PayloadForm: new(payload.Flat)},
		"ordered":     {Ordered: new(true)},
	} {
		if _, err := r.hooks.Update(t.Context(), org, w.ID, change); problem.Of(err) != problem.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, n := range []webhook.New{
		{Source: event.Fleet, Events: []string{"audit.recorded"}, MayAudit: true},
		{Source: event.Helpdesk, Events: []string{"ride.started"}},
		{Source: "other", Events: []string{"*"}},
		{Source: event.Sandbox, Events: []string{"*"}, PayloadForm: payload.Flat},
	} {
		n.URL = "https://receiver.example.com/"
		if _, err := r.hooks.Create(t.Context(), org, n); problem.Of(err) != problem.Invalid {
			t.Errorf("%s %v: %v", n.Source, n.Events, err)
		}
	}
	if w = r.update(w.ID, webhook.Change{Events: &[]string{"*"}}); w.Source != event.Fleet || !slices.Equal(w.Events, []string{"*"}) {
		t.Errorf("got %s %v", w.Source, w.Events)
	}
	for _, source := range event.Sources {
		for _, name := range source.Names() {
			e := webhook.SampleOf(source, name, "https://help.example.com", time.Now())
			e.Data.Test = true
			body, err := payload.Render(payload.Nested, &e)
			if err != nil || !json.Valid(body) || !strings.Contains(string(body), `"test":true`) {
				t.Errorf("sample of %s %s: %s, %v", source, name, body, err)
			}
		}
	}
}
