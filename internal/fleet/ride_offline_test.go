package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// TestOfflineRide: an app that was offline creates and ends a ride of the past, which is priced
// and measured as if it had been online.
func TestOfflineRide(t *testing.T) {
	y := newYard(t)
	y.changeSettings(t, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(60))})
	v := y.vehicle(t)
	c := y.customer(t)
	y.travel(t, 5*time.Hour)
	start := y.clock(t).Add(-3 * time.Hour)
	y.record(t,
		report(&v, start.Add(-time.Minute), northBy(0)), report(&v, start.Add(5*time.Minute), northBy(1000)), report(&v, start.Add(10*time.Minute), northBy(2000)),
		report(&v, start.Add(2*time.Hour), northBy(9000)), report(&v, start.Add(175*time.Minute), map[track.Field]int64{track.Battery: 5}),
	)
	if got := y.storedVehicle(t, v.ID).State; got != fleet.NonOperational {
		t.Fatalf("the vehicle is %s", got)
	}
	n := fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(c.ID), StartedAt: optional.Of(rfc3339.Time(start))}
	r, err := y.tryRide(t, n)
	if err != nil {
		t.Fatal(err)
	}
	end := to(fleet.Completed)
	end.EndedAt = optional.Of(rfc3339.Time(start.Add(10 * time.Minute)))
	r = y.put(t, r.ID, end)
	if !r.StartedAt.Std().Equal(start) || r.DurationSeconds != 600 || r.Price.TotalAmount != 100+10*25 || *r.DistanceMeters != 2000 {
		t.Errorf("got a start of %s, %d seconds, a price of %d, %d meters", r.StartedAt.Std(), r.DurationSeconds, r.Price.TotalAmount, *r.DistanceMeters)
	}
	if from, to := geo.Distance(r.StartLocation.Lat, r.StartLocation.Lng, inside().Lat, inside().Lng), geo.Distance(r.EndLocation.Lat, r.EndLocation.Lng, inside().Lat, inside().Lng); from > 1 || to < 1999 || to > 2001 {
		t.Errorf("got a start %f and an end %f meters from there", from, to)
	}
	w := y.storedVehicle(t, v.ID)
	if d := geo.Distance(w.Location.Lat, w.Location.Lng, inside().Lat, inside().Lng); w.State != fleet.NonOperational || w.CurrentRideID != "" || d < 8999 || d > 9001 {
		t.Errorf("afterwards the vehicle is %s, in the ride %q, %f meters away", w.State, w.CurrentRideID, d)
	}
	if got := y.storedCustomer(t, fleet.NullString(c.ID)); got.OpenRideID != "" || !got.LastRideAt.Std().Equal(start) {
		t.Errorf("the customer has the ride %q, the last at %s", got.OpenRideID, got.LastRideAt.Std())
	}
	// A repeated request is no change.
	if again := y.put(t, r.ID, end); !again.UpdatedAt.Std().Equal(r.UpdatedAt.Std()) {
		t.Error("a repeated request changed the ride")
	}
	end.EndedAt = optional.Of(rfc3339.Time(start.Add(11 * time.Minute)))
	_, err = y.tryPut(t, r.ID, end)
	wantFaults(t, "another end", err, "invalid_transition")

	// Nothing overlaps it.
	free := y.vehicle(t)
	at := func(v fleet.Vehicle, c fleet.Customer, after time.Duration) error {
		_, err := y.tryRide(t, fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(c.ID), StartedAt: optional.Of(rfc3339.Time(start.Add(after)))})
		return err
	}
	wantFaults(t, "before it, the vehicle", at(v, y.customer(t), -time.Minute), "started_at conflict")
	wantFaults(t, "within it, the customer", at(free, c, 5*time.Minute), "started_at conflict")
	wantFaults(t, "both", at(v, c, 9*time.Minute), "started_at conflict, started_at conflict")
	if err := at(free, c, 10*time.Minute); err != nil {
		t.Errorf("right after it: %v", err)
	}
}

func TestOfflineBounds(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.travel(t, 60*time.Hour)
	y.record(t, report(&v, y.clock(t), nil))
	y.putVehicle(t, v.ID, fleet.VehicleChange{State: optional.Of(fleet.Available), Event: optional.Of(fleet.VehicleEvent("on_hours"))})
	now := y.clock(t)
	n := fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(y.customer(t).ID)}
	start := func(after time.Duration, status fleet.RideStatus) error {
		n.StartedAt, n.Status = optional.Of(rfc3339.Time(now.Add(after))), status
		_, err := y.tryRide(t, n)
		return err
	}
	wantFaults(t, "in the future", start(time.Minute, ""), "started_at invalid_value")
	wantFaults(t, "25 hours ago", start(-25*time.Hour, ""), "started_at invalid_value")
	n.StartedAt = optional.Of(rfc3339.Time{})
	_, err := y.tryRide(t, n)
	wantFaults(t, "in the year 1", err, "started_at invalid_value")
	wantFaults(t, "a reservation", start(-time.Hour, fleet.Reserved), "started_at conflict")
	y.changeSettings(t, fleet.SettingsChange{OfflineRideHours: optional.Of(int64(0))})
	wantFaults(t, "not allowed", start(-time.Minute, ""), "started_at invalid_value")
	y.changeSettings(t, fleet.SettingsChange{OfflineRideHours: optional.Of(int64(24)), MaxRideMinutes: optional.Of(int64(60))})
	n.StartedAt, n.Status = optional.Of(rfc3339.Time(now.Add(-5*time.Hour))), ""
	r, err := y.tryRide(t, n)
	if err != nil {
		t.Fatal(err)
	}
	end := func(after time.Duration, status fleet.RideStatus) error {
		c := to(status)
		c.EndedAt = optional.Of(rfc3339.Time(now.Add(after)))
		_, err := y.tryPut(t, r.ID, c)
		return err
	}
	wantFaults(t, "an end in the future", end(time.Hour, fleet.Completed), "ended_at invalid_value")
	ancient := to(fleet.Completed)
	ancient.EndedAt = optional.Of(rfc3339.Time{})
	_, err = y.tryPut(t, r.ID, ancient)
	wantFaults(t, "an end in the year 1", err, "ended_at invalid_value")
	wantFaults(t, "an end before the start", end(-6*time.Hour, fleet.Completed), "ended_at too_small")
	wantFaults(t, "after the longest duration", end(-3*time.Hour, fleet.Completed), "ended_at too_large")
	wantFaults(t, "with another status", end(-4*time.Hour, fleet.Paused), "ended_at conflict")

	// Without an end the ride lasts as long as a ride may.
	y.travel(t, 16*time.Minute)
	if r = y.storedRide(t, r.ID); r.Status != fleet.Completed || r.EndReason != "max_duration" || r.DurationSeconds != 3600 {
		t.Errorf("without an end: got %s by %s after %d seconds", r.Status, r.EndReason, r.DurationSeconds)
	}
}

// TestOfflineEndBeforePause: a ride cannot have ended before a pause that the server has recorded.
func TestOfflineEndBeforePause(t *testing.T) {
	for name, tt := range map[string]struct {
		resumed bool
		refused time.Duration // an end after the start that is too early
		want    int64         // seconds of pauses, with an end after 25 minutes
	}{"paused": {false, 9 * time.Minute, 15 * 60}, "resumed": {true, 12 * time.Minute, 10 * 60}} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			r := y.ride(t, fleet.Active, y.vehicle(t))
			y.travel(t, 10*time.Minute)
			y.put(t, r.ID, to(fleet.Paused))
			y.travel(t, 10*time.Minute)
			if tt.resumed {
				y.put(t, r.ID, to(fleet.Active))
			}
			y.travel(t, 10*time.Minute)
			end := func(after time.Duration) (fleet.Ride, error) {
				c := to(fleet.Completed)
				c.EndedAt = optional.Of(rfc3339.Time(r.StartedAt.Std().Add(after)))
				return y.tryPut(t, r.ID, c)
			}
			_, err := end(tt.refused)
			wantFaults(t, "too early", err, "ended_at too_small")
			got, err := end(25 * time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if d := got.PausedSeconds - tt.want; d < -60 || d > 60 || got.DurationSeconds != 25*60 {
				t.Errorf("got %d seconds, %d of them paused; want %d", got.DurationSeconds, got.PausedSeconds, tt.want)
			}
		})
	}
}

// TestOfflineRideChanges: a ride of the past has the state changes since its start.
func TestOfflineRideChanges(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.travel(t, 20*time.Minute)
	r, err := y.tryRide(t, fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(y.customer(t).ID), StartedAt: optional.Of(rfc3339.Time(y.clock(t).Add(-10 * time.Minute)))})
	if err != nil {
		t.Fatal(err)
	}
	changes, err := y.RideChanges(t.Context(), y.db, y.org, &r)
	if err != nil || len(changes) != 1 || changes[0].Event != "trip_start" || !changes[0].At.Std().Equal(r.StartedAt.Std()) {
		t.Errorf("got %+v, %v", changes, err)
	}
}

// position is meters north of inside.
func position(meters float64) *geo.Position {
	at := northBy(meters)
	return &geo.Position{Lat: geo.Degrees(at[track.Lat]), Lng: geo.Degrees(at[track.Lng])}
}

// TestRideChangePlaces: the state changes of a ride are where it started and ended, although the
// vehicle has moved on, or stood elsewhere by its last report.
func TestRideChangePlaces(t *testing.T) {
	y := newYard(t)
	places := func(v fleet.Vehicle) string {
		t.Helper()
		list, err := y.VehicleChanges(t.Context(), y.db, y.org, v.ID, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, c := range list[:len(list)-1] { // but for its arrival
			text = fmt.Sprintf("%s %.0f, ", c.Event, geo.Distance(inside().Lat, inside().Lng, c.Location.Lat, c.Location.Lng)) + text
		}
		return text
	}
	v := y.vehicle(t)
	y.travel(t, time.Hour)
	start := y.clock(t).Add(-40 * time.Minute)
	y.record(t,
		report(&v, start.Add(-time.Minute), northBy(1000)), report(&v, start.Add(10*time.Minute), northBy(2000)),
		report(&v, start.Add(39*time.Minute), northBy(9000)),
	)
	r, err := y.tryRide(t, fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(y.customer(t).ID), StartedAt: optional.Of(rfc3339.Time(start))})
	if err != nil {
		t.Fatal(err)
	}
	end := to(fleet.Completed)
	end.EndedAt = optional.Of(rfc3339.Time(start.Add(11 * time.Minute)))
	y.put(t, r.ID, end)
	if got := places(v); !strings.Contains(got, "trip_start 1000, trip_end 2000, ") {
		t.Errorf("of a ride of the past: got %s", got)
	}

	for want, end := range map[string]fleet.RideChange{
		"trip_start 360, trip_end 700, ":    {Status: optional.Of(fleet.Completed), EndLocation: optional.Of(*position(700))},
		"trip_start 360, trip_cancel 400, ": to(fleet.Cancelled),
	} {
		v := y.vehicle(t, func(n *fleet.NewVehicle) { n.Location = position(400) })
		r, err := y.tryRide(t, fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(y.customer(t).ID), StartLocation: position(360)})
		if err != nil {
			t.Fatal(err)
		}
		y.put(t, r.ID, end)
		if got := places(v); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestOfflineRidePlan: a ride of an app that was offline has the version of the plan that was in force when
// it started, and needs one with which rides could start then.
func TestOfflineRidePlan(t *testing.T) {
	y := newYard(t)
	y.changeSettings(t, fleet.SettingsChange{ContactLostMinutes: optional.Of(int64(1000))})
	v := y.vehicle(t)
	n := fleet.NewRide{VehicleID: fleet.NullString(v.ID)}
	first := y.clock(t)
	y.travel(t, time.Hour)
	y.changePlan(t, fleet.PlanChange{UnlockAmount: optional.Of(int64(900))})
	second := y.clock(t)
	y.travel(t, time.Hour)
	y.changePlan(t, fleet.PlanChange{Active: optional.Of(false)})
	third := y.clock(t)
	y.travel(t, time.Hour)
	start := func(at time.Time, version *int64) (fleet.Ride, error) {
		n.StartedAt, n.CustomerID, n.PricingPlanVersion = optional.Of(rfc3339.Time(at)), fleet.NullString(y.customer(t).ID), version
		return y.tryRide(t, n)
	}
	_, err := start(third, nil)
	wantFaults(t, "an inactive plan", err, "no_pricing_plan")
	_, err = start(first, new(int64(2)))
	wantFaults(t, "another version", err, "pricing_changed")
	for _, tt := range []struct {
		at      time.Time
		version int64
		unlock  int64
	}{{first.Add(30 * time.Minute), 1, 100}, {second, 2, 900}} {
		r, err := start(tt.at, &tt.version)
		if err != nil {
			t.Fatal(err)
		}
		end := to(fleet.Completed)
		end.EndedAt = optional.Of(rfc3339.Time(tt.at.Add(10 * time.Minute)))
		end.EndLocation = optional.Of(*inside())
		if r = y.put(t, r.ID, end); *r.PricingPlanVersion != tt.version || r.Price.UnlockAmount != tt.unlock {
			t.Errorf("got version %d, %d to unlock; want %d, %d", *r.PricingPlanVersion, r.Price.UnlockAmount, tt.version, tt.unlock)
		}
	}
}

// TestOfflineRideHasItsPlan: a ride of an app that was offline has the plan that was assigned when it started,
// to the vehicle, its type or its subaccount. If there was none, it has the present one, even if that is newer.
func TestOfflineRideHasItsPlan(t *testing.T) {
	y := newYard(t)
	y.changeSettings(t, fleet.SettingsChange{ContactLostMinutes: optional.Of(int64(1000))})
	v := y.vehicle(t)
	newPlan := func(active bool) (p fleet.Plan) {
		y.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
			p, err = y.CreatePlanTx(ctx, tx, y.org, fleet.NewPlan{SubaccountID: y.sub.ID, Name: "Another", Active: &active})
			return err
		})
		return p
	}
	vehicles := func(id string) {
		y.putVehicle(t, v.ID, fleet.VehicleChange{PricingPlanID: optional.Of(fleet.NullString(id))})
	}
	types := func(id string) {
		list := slices.Clone(y.sub.VehicleTypes)
		list[0].DefaultPricingPlanID = fleet.NullString(id)
		y.changeSub(t, fleet.SubaccountChange{VehicleTypes: optional.Of(list)})
	}
	subaccounts := func(id string) {
		y.changeSub(t, fleet.SubaccountChange{DefaultPricingPlanID: optional.Of(fleet.NullString(id))})
	}
	list := append(slices.Clone(y.sub.VehicleTypes), fleet.VehicleType{Name: "Bike", FormFactor: "bicycle", PropulsionType: "human"})
	y.changeSub(t, fleet.SubaccountChange{VehicleTypes: optional.Of(list)})
	retyped := func(string) {
		y.putVehicle(t, v.ID, fleet.VehicleChange{VehicleTypeID: optional.Of(y.sub.VehicleTypes[1].ID)})
	}
	own := newPlan(true)
	never := newPlan(false) // not assigned to anything before it is active
	steps := []struct {
		assign func(id string)
		id     string
		want   string // the plan of a ride after the step
	}{
		{vehicles, own.ID, own.ID},
		{vehicles, "", y.plan.ID},
		{types, own.ID, own.ID},
		{retyped, "", y.plan.ID},
		{subaccounts, own.ID, own.ID},
		{subaccounts, "", ""},
	}
	times := make([]time.Time, len(steps))
	for i, step := range steps {
		step.assign(step.id)
		y.travel(t, 10*time.Minute)
		times[i] = y.clock(t)
		y.travel(t, 10*time.Minute)
	}
	newest := never
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		stored, err := y.LockPlanTx(ctx, tx, y.org, newest.ID)
		if err == nil {
			_, err = y.UpdatePlanTx(ctx, tx, y.org, stored, fleet.PlanChange{Active: optional.Of(true)})
		}
		return err
	})
	vehicles(newest.ID)
	steps[len(steps)-1].want = newest.ID
	if err := fleet.PruneFormerPlans(t.Context(), y.Service); err != nil {
		t.Fatal(err)
	}
	for i, step := range steps {
		r, err := y.tryRide(t, fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(y.customer(t).ID), StartedAt: optional.Of(rfc3339.Time(times[i]))})
		if err != nil {
			t.Fatal(err)
		}
		if string(r.PricingPlanID) != step.want {
			t.Errorf("after step %d the plan is %s, want %s", i, r.PricingPlanID, step.want)
		}
		end := to(fleet.Completed)
		end.EndedAt = optional.Of(rfc3339.Time(times[i].Add(time.Minute)))
		end.EndLocation = optional.Of(*inside())
		y.put(t, r.ID, end)
	}
	y.travel(t, 32*24*time.Hour)
	if err := fleet.PruneFormerPlans(t.Context(), y.Service); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := y.db.QueryRow(t.Context(), "SELECT count(*) FROM former_plans").Scan(&n); err != nil || n > 0 {
		t.Errorf("%d former plans are left after a month, %v", n, err)
	}
}

// TestOfflineRideEndsByItself: a ride that was created late ends after the longest duration where the vehicle
// was then, and not before its app could end it, also if the longest duration changes meanwhile.
func TestOfflineRideEndsByItself(t *testing.T) {
	y := newYard(t)
	y.changeSettings(t, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(60)), ContactLostMinutes: optional.Of(int64(1000))})
	v := y.vehicle(t)
	y.travel(t, 5*time.Hour)
	start := y.clock(t).Add(-4 * time.Hour)
	y.record(t, report(&v, start, northBy(0)), report(&v, start.Add(50*time.Minute), northBy(2000)), report(&v, start.Add(2*time.Hour), northBy(9000)))
	r, err := y.tryRide(t, fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(y.customer(t).ID), StartedAt: optional.Of(rfc3339.Time(start))})
	if err != nil {
		t.Fatal(err)
	}
	y.changeSettings(t, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(90))})
	y.travel(t, 14*time.Minute)
	if r = y.storedRide(t, r.ID); r.Status != fleet.Active {
		t.Fatalf("after 14 minutes the ride is %s", r.Status)
	}
	y.travel(t, 2*time.Minute)
	r = y.storedRide(t, r.ID)
	if d := geo.Distance(r.EndLocation.Lat, r.EndLocation.Lng, inside().Lat, inside().Lng); r.DurationSeconds != 90*60 || d < 1999 || d > 2001 || *r.DistanceMeters != 2000 {
		t.Errorf("it ended after %d seconds and %d meters, %f meters away", r.DurationSeconds, *r.DistanceMeters, d)
	}
}

// TestOfflineRideOutlivesGrace: a ride that goes on after its app could end it ends like others, also if the
// longest duration is lowered, then or at once, and not before the last request of its app.
func TestOfflineRideOutlivesGrace(t *testing.T) {
	y := newYard(t)
	y.changeSettings(t, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(600)), ContactLostMinutes: optional.Of(int64(1000))})
	v := y.vehicle(t)
	late := func(ago time.Duration) fleet.Ride {
		r, err := y.tryRide(t, fleet.NewRide{
			VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(y.customer(t).ID), StartedAt: optional.Of(rfc3339.Time(y.clock(t).Add(-ago))),
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	y.travel(t, time.Hour)
	r := late(5 * time.Minute)
	y.travel(t, 3*time.Hour)
	lowered := y.clock(t)
	y.changeSettings(t, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(120))})
	y.travel(t, time.Minute)
	if r = y.storedRide(t, r.ID); r.Status != fleet.Completed || r.EndedAt.Std().Before(lowered) {
		t.Errorf("it ended at %s, before %s", r.EndedAt.Std(), lowered)
	}

	y.travel(t, 5*time.Hour)
	y.changeSettings(t, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(600))})
	r = late(4 * time.Hour)
	lowered = y.clock(t)
	y.changeSettings(t, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(120))})
	y.travel(t, time.Second)
	if r = y.storedRide(t, r.ID); r.Status != fleet.Completed || r.EndedAt.Std().Before(lowered) {
		t.Errorf("it is %s, ended at %s, before %s", r.Status, r.EndedAt.Std(), lowered)
	}

	y.travel(t, 5*time.Hour)
	r = late(4 * time.Hour)
	y.travel(t, 2*time.Minute)
	r = y.put(t, r.ID, to(fleet.Paused))
	y.travel(t, 8*time.Minute)
	resuming := y.clock(t)
	y.put(t, r.ID, to(fleet.Active))
	y.travel(t, 10*time.Minute)
	if r = y.storedRide(t, r.ID); r.Status != fleet.Completed || r.EndedAt.Std().Before(resuming) || r.PausedSeconds < 8*60 || r.PausedSeconds > 9*60 {
		t.Errorf("it ended at %s, before %s, with a pause of %d seconds", r.EndedAt.Std(), resuming, r.PausedSeconds)
	}
}
