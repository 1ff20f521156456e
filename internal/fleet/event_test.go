package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/optional"
)

// listen starts the recording of the organization's events.
func (y *yard) listen(t testing.TB) {
	t.Helper()
	if err := y.RecordEvents(t.Context(), []string{y.org}); err != nil {
		t.Fatal(err)
	}
}

// emitted returns all events of the organization.
func (y *yard) emitted(t testing.TB) []fleet.Event {
	t.Helper()
	list, err := y.EventsAfter(t.Context(), y.db, y.org, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range list {
		if e.Sequence != int64(i+1) {
			t.Fatalf("event %d has the sequence %d", i+1, e.Sequence)
		}
	}
	return list
}

func eventNames(list []fleet.Event) []string {
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = string(e.Name)
	}
	return names
}

// Each change has its event, once, with the record and without personal data.
func TestEvents(t *testing.T) {
	y := newYard(t)
	y.listen(t)
	v := y.vehicle(t)
	r := y.ride(t, fleet.Reserved, v)
	y.put(t, r.ID, to(fleet.Active))
	y.put(t, r.ID, to(fleet.Paused))
	y.put(t, r.ID, to(fleet.Active))
	y.put(t, r.ID, to(fleet.Completed))
	y.put(t, r.ID, fleet.RideChange{PaymentStatus: optional.Of("paid")})
	y.put(t, r.ID, fleet.RideChange{PaymentStatus: optional.Of("paid")}) // no difference
	y.put(t, r.ID, fleet.RideChange{AdjustmentAmount: optional.Of(int64(-100)), PaymentStatus: optional.Of("due")})
	y.put(t, r.ID, fleet.RideChange{Metadata: optional.Of(map[string]string{"k": "v"})})
	y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(70))})
	y.putVehicle(t, v.ID, fleet.VehicleChange{VIN: optional.Of(fleet.NullString("W-1"))})
	y.putVehicle(t, v.ID, fleet.VehicleChange{State: optional.Of(fleet.NonOperational)})
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		z, err := y.CreateZoneTx(ctx, tx, y.org, newZone(t, y.sub.ID))
		if err != nil {
			return err
		}
		if z, err = y.UpdateZoneTx(ctx, tx, y.org, z, fleet.ZoneChange{Name: optional.Of("Kiez")}); err != nil {
			return err
		}
		return y.DeleteZoneTx(ctx, tx, y.org, z.ID)
	})
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		for _, change := range []fleet.CustomerChange{
			{Email: optional.Of(fleet.NullString("grace@example.com"))},
			{Status: optional.Of(fleet.CustomerBlocked)},
			{Status: optional.Of(fleet.CustomerActive)},
		} {
			c, err := y.LockCustomerTx(ctx, tx, y.org, string(r.CustomerID))
			if err != nil {
				return err
			}
			if _, err := y.UpdateCustomerTx(ctx, tx, y.org, c, change); err != nil {
				return err
			}
		}
		if _, err := y.AnonymiseCustomerTx(ctx, tx, y.org, string(r.CustomerID)); err != nil {
			return err
		}
		return y.DeleteVehicleTx(ctx, tx, y.org, v.ID, testActor)
	})
	list := y.emitted(t)
	want := []string{
		"vehicle.created", "customer.created", "ride.reserved", "vehicle.state_changed", "vehicle.state_changed", "ride.started", "ride.paused", "ride.resumed",
		"vehicle.state_changed", "ride.completed", "ride.updated", "ride.payment_updated", "ride.updated", "ride.price_adjusted", "ride.payment_updated", "ride.updated",
		"vehicle.updated", "vehicle.state_changed",
		"zone.created", "zone.updated", "zone.deleted",
		"customer.updated", "customer.blocked", "customer.unblocked", "customer.anonymised", "vehicle.deleted",
	}
	if got := eventNames(list); !slices.Equal(got, want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
	for _, e := range list {
		if !slices.Contains(event.FleetNames[:], e.Name) {
			t.Errorf("%s is not a listed event", e.Name)
		}
		for _, personal := range []string{"Ada", "ada@", "grace@", "+4930", "coordinates"} {
			if strings.Contains(strings.ReplaceAll(string(e.Data), `"location":{"type":"Point","coordinates"`, ""), personal) && !strings.HasPrefix(string(e.Name), "ride.") {
				t.Errorf("%s has %q: %s", e.Name, personal, e.Data)
			}
		}
		kind, _, _ := strings.Cut(string(e.Name), ".")
		var data map[string]json.RawMessage
		if err := json.Unmarshal(e.Data, &data); err != nil || data[kind] == nil || string(data["livemode"]) != "false" {
			t.Errorf("data of %s: %s, %v", e.Name, e.Data, err)
		}
		wantSubject := v.ID
		if kind == "customer" || kind == "zone" {
			wantSubject = kind[:3]
		}
		if !strings.HasPrefix(e.Subject, wantSubject) || e.SubaccountID != y.sub.ID {
			t.Errorf("%s has the subject %s and the subaccount %s", e.Name, e.Subject, e.SubaccountID)
		}
	}
	for i, want := range map[int]string{10: `"changed":["payment_status"]`, 13: `"changed":["adjustment_amount","payment_status","price"]`, 16: `"changed":["vin"]`, 19: `"changed":["name"]`, 21: `"changed":["email"]`} {
		if !strings.Contains(string(list[i].Data), want) {
			t.Errorf("%s has no %s: %s", list[i].Name, want, list[i].Data)
		}
	}
}

// Nothing is recorded for an organization without listeners, or of a change that is rolled back.
func TestEventsNotRecorded(t *testing.T) {
	y := newYard(t)
	y.ride(t, fleet.Active, y.vehicle(t))
	if list := y.emitted(t); len(list) > 0 {
		t.Fatalf("got %v without a listener", eventNames(list))
	}
	first, last, err := y.OpenStream(t.Context(), y.org)
	if err != nil || first != 0 || last != 0 {
		t.Fatalf("got %d to %d, %v", first, last, err)
	}
	failed := errors.New("no")
	if err := y.try(t, func(ctx context.Context, tx *db.Tx) error {
		if _, err := y.CreateCustomerTx(ctx, tx, y.org, newCustomer(y.sub.ID)); err != nil {
			return err
		}
		return failed
	}); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	y.customer(t)
	if got := eventNames(y.emitted(t)); !slices.Equal(got, []string{"customer.created"}) {
		t.Fatalf("got %v", got)
	}
	// A webhook comes and goes; the stream's events are still recorded.
	y.listen(t)
	if err := y.RecordEvents(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	y.customer(t)
	if n := len(y.emitted(t)); n != 2 {
		t.Errorf("got %d events, want 2", n)
	}
}

// A process that does not know a new webhook yet loses none of its events.
func TestEventsOfNewWebhook(t *testing.T) {
	y := newYard(t)
	y.listen(t)
	if err := y.RecordEvents(t.Context(), nil); err != nil { // what the process knows
		t.Fatal(err)
	}
	y.customer(t)
	if got := eventNames(y.emitted(t)); !slices.Equal(got, []string{"customer.created"}) {
		t.Fatalf("got %v", got)
	}
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE event_logs SET streams_until = streams_until - $1", (fleet.StreamMemory + time.Second).Microseconds())
		return err
	})
	y.customer(t)
	if n := len(y.emitted(t)); n != 1 {
		t.Errorf("got %d events a day after the last webhook, want 1", n)
	}
}

// An advance of the clock records the events of exactly the changes that were due, at their due times.
func TestEventsOfTimeTravel(t *testing.T) {
	y := newYard(t)
	y.listen(t)
	reserved := y.ride(t, fleet.Reserved, y.vehicle(t))
	active := y.ride(t, fleet.Active, y.vehicle(t))
	before := len(y.emitted(t))
	y.after(t, reserved.CreatedAt, 14*time.Minute)
	if n := len(y.emitted(t)); n != before {
		t.Fatalf("nothing was due, and %d events were recorded", n-before)
	}
	for i := range 2 {
		y.after(t, reserved.CreatedAt, time.Duration(16+i)*time.Minute)
		list := y.emitted(t)[before:]
		if got := eventNames(list); !slices.Equal(got, []string{"vehicle.state_changed", "ride.cancelled"}) {
			t.Fatalf("got %v", got)
		}
		due := reserved.CreatedAt.Std().Add(15 * time.Minute)
		for _, e := range list {
			if !e.At.Truncate(time.Millisecond).Equal(due) || e.Subject != reserved.VehicleID {
				t.Errorf("%s is of %s at %v, want %v", e.Name, e.Subject, e.At, due)
			}
		}
	}
	y.after(t, active.CreatedAt, 30*24*time.Hour)
	// Both vehicles are silent for a month, too.
	got := eventNames(y.emitted(t)[before+2:])
	slices.Sort(got)
	want := []string{"ride.completed", "vehicle.comms_lost", "vehicle.comms_lost", "vehicle.state_changed", "vehicle.state_changed", "vehicle.state_changed", "vehicle.state_changed"}
	if !slices.Equal(got, want) {
		t.Errorf("after the maximum duration: got %v, want %v", got, want)
	}
}

// Events are relayed in order, and deleted only after that.
func TestRelayedEvents(t *testing.T) {
	y := newYard(t)
	y.listen(t)
	for range 3 {
		y.customer(t)
	}
	waiting := func(want ...string) {
		t.Helper()
		if got, err := y.WaitingEvents(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Fatalf("waiting: %v, %v; want %v", got, err, want)
		}
	}
	waiting(y.org)
	var ids []string
	for range 2 {
		list, position, err := y.NextEvents(t.Context(), y.org, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.Source != event.Sandbox || e.OrganizationID != y.org {
				t.Errorf("got %+v", e)
			}
			ids = append(ids, e.ID)
		}
		if err := y.EventsRelayed(t.Context(), y.org, position); err != nil {
			t.Fatal(err)
		}
	}
	waiting()
	var stored []string
	for _, e := range y.emitted(t) {
		stored = append(stored, e.ID)
	}
	if !slices.Equal(ids, stored) || len(ids) != 3 {
		t.Fatalf("relayed %v, stored %v", ids, stored)
	}
	y.customer(t) // not relayed
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE events SET created_at = created_at - $1", (fleet.StreamMemory + time.Hour).Microseconds())
		return err
	})
	if err := y.PurgeEvents(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := y.EventsAfter(t.Context(), y.db, y.org, 0, 10)
	if err != nil || len(list) != 1 || list[0].Sequence != 4 {
		t.Errorf("left: %s, %v", fmt.Sprint(eventNames(list)), err)
	}
	if first, last, err := y.OpenStream(t.Context(), y.org); first != 3 || last != 4 || err != nil {
		t.Errorf("a stream is of events after %d up to %d, %v", first, last, err)
	}
}

// Streams of a process learn of another one's events when these are relayed, which relays nothing again.
func TestRelayWakesStreams(t *testing.T) {
	y := newYard(t)
	y.listen(t)
	y.customer(t)
	var woken []string
	other := fleet.Open(fleet.Config{
		DB: y.db, Live: y.Live(), Emitted: func(string) { t.Error("relayed again") },
		Relayed: func(organizationID string) { woken = append(woken, organizationID) },
	})
	if err := other.EventsRelayed(t.Context(), y.org, 1); err != nil || !slices.Equal(woken, []string{y.org}) {
		t.Errorf("woken %q, %v", woken, err)
	}
}

// TestReportedEvents: the changes of state that reports cause have events, in their order.
func TestReportedEvents(t *testing.T) {
	y := newYard(t)
	y.listen(t)
	v := y.vehicle(t)
	y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Battery: 79}))
	y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Battery: 5}), report(&v, y.clock(t).Add(time.Second), map[track.Field]int64{track.Battery: 90}))
	y.travel(t, time.Hour)
	y.record(t, report(&v, y.clock(t), nil))
	list := y.emitted(t)
	want := []string{
		"vehicle.created", "vehicle.state_changed", "vehicle.state_changed",
		"vehicle.state_changed", "vehicle.comms_lost", "vehicle.state_changed", "vehicle.comms_restored",
	}
	if got := eventNames(list); !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i, want := range []string{"battery_low", "battery_charged", "comms_lost", "comms_lost", "comms_restored", "comms_restored"} {
		if e := list[i+1]; e.Subject != v.ID || !strings.Contains(string(e.Data), `"event":"`+want+`"`) {
			t.Errorf("event %d of %s: got %s, want %s", i+1, e.Subject, e.Data, want)
		}
	}
}
