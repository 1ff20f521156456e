package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// now returns the time of the organization's clock.
func (y *yard) now(t testing.TB) time.Time {
	t.Helper()
	now, err := y.Now(t.Context(), y.db, y.org)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// tryVehicle creates a vehicle and returns the error.
func (y *yard) tryVehicle(t testing.TB, change func(*fleet.NewVehicle)) error {
	t.Helper()
	y.n++
	n := fleet.NewVehicle{SubaccountID: y.sub.ID, Code: fmt.Sprintf("T-%04d", y.n), VehicleTypeID: y.scooter, State: fleet.Available, Location: inside()}
	change(&n)
	return y.try(t, func(ctx context.Context, tx *db.Tx) error {
		_, err := y.CreateVehicleTx(ctx, tx, y.org, n, testActor)
		return err
	})
}

func reportOf(percent int64, at time.Time) fleet.VehicleChange {
	return fleet.VehicleChange{BatteryPercent: optional.Of(percent), LastReportedAt: optional.Of(rfc3339.Time(at))}
}

// TestReportFromTheFuture: a report from the future is refused, but a clock may be
// slightly fast.
func TestReportFromTheFuture(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	_, err := y.tryPutVehicle(t, v.ID, reportOf(50, y.now(t).Add(6*time.Minute)))
	wantFaults(t, "six minutes ahead", err, "last_reported_at invalid_value")
	err = y.tryVehicle(t, func(n *fleet.NewVehicle) { n.LastReportedAt = rfc3339.Time(y.now(t).Add(6 * time.Minute)) })
	wantFaults(t, "a new vehicle", err, "last_reported_at invalid_value")
	if got := y.storedVehicle(t, v.ID); *got.BatteryPercent != 80 {
		t.Errorf("the refused report changed the battery to %d", *got.BatteryPercent)
	}
	if got := y.putVehicle(t, v.ID, reportOf(50, y.now(t).Add(4*time.Minute))); *got.BatteryPercent != 50 || len(got.Ignored()) != 0 {
		t.Errorf("four minutes ahead: got %d percent, ignored %v", *got.BatteryPercent, got.Ignored())
	}
}

// TestOldReportIsIgnored: a report older than the stored one changes nothing, and
// its fields are listed.
func TestOldReportIsIgnored(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	old := reportOf(20, v.LastReportedAt.Std().Add(-time.Minute))
	old.Location, old.VIN = optional.Of(*outside()), optional.Of(fleet.NullString("WVW"))
	got := y.putVehicle(t, v.ID, old)
	if want := []string{"location", "battery_percent", "last_reported_at"}; !slices.Equal(got.Ignored(), want) {
		t.Errorf("ignored %v, want %v", got.Ignored(), want)
	}
	if *got.BatteryPercent != 80 || *got.Location != *inside() || got.VIN != "WVW" {
		t.Errorf("got %d percent at %v, VIN %s", *got.BatteryPercent, *got.Location, got.VIN)
	}
	// A record sent back unchanged is accepted.
	same := reportOf(80, got.LastReportedAt.Std())
	if got = y.putVehicle(t, v.ID, same); len(got.Ignored()) != 0 {
		t.Errorf("sent back: ignored %v", got.Ignored())
	}
}

// TestReportTimeCleared: null clears the time, so that any next report applies.
func TestReportTimeCleared(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	got := y.putVehicle(t, v.ID, fleet.VehicleChange{LastReportedAt: optional.Value[rfc3339.Time]{Set: true, Null: true}})
	if !got.LastReportedAt.Std().IsZero() || !y.storedVehicle(t, v.ID).LastReportedAt.Std().IsZero() {
		t.Errorf("the time is %v, want none", got.LastReportedAt.Std())
	}
	long := v.LastReportedAt.Std().Add(-24 * time.Hour)
	if got = y.putVehicle(t, v.ID, reportOf(40, long)); *got.BatteryPercent != 40 || !got.LastReportedAt.Std().Equal(long) {
		t.Errorf("got %d percent of %v", *got.BatteryPercent, got.LastReportedAt.Std())
	}
}

// TestWrongReportTimeRecovers: a vehicle with a stored time years ahead accepts the
// next report and loses contact as usual.
func TestWrongReportTimeRecovers(t *testing.T) {
	y := newYard(t)
	wrong := func() string {
		v := y.vehicle(t)
		at := v.LastReportedAt.Std().AddDate(10, 0, 0)
		y.write(t, func(ctx context.Context, tx *db.Tx) error {
			stored := v
			stored.LastReportedAt = rfc3339.Time(at)
			doc, err := json.Marshal(&stored)
			if err == nil {
				_, err = tx.Exec(ctx, "UPDATE vehicles SET doc = $2, last_reported_at = $3, due_at = $4 WHERE id = $1", v.ID, string(doc), at.UnixMicro(), v.CreatedAt.Std().Add(30*time.Minute).UnixMicro())
			}
			return err
		})
		return v.ID
	}
	id := wrong()
	if got := y.putVehicle(t, id, fleet.VehicleChange{BatteryPercent: optional.Of(int64(60))}); *got.BatteryPercent != 60 || got.LastReportedAt.Std().After(y.now(t)) {
		t.Errorf("got %d percent of %v", *got.BatteryPercent, got.LastReportedAt.Std())
	}
	silent := wrong()
	y.after(t, rfc3339.Time(y.now(t)), time.Hour)
	if got := y.storedVehicle(t, silent).State; got != fleet.NonContactable {
		t.Errorf("an hour later it is %s, want non_contactable", got)
	}
}

// TestLowBatteryIsNeverAvailable: a vehicle with a low battery cannot become
// available in any way.
func TestLowBatteryIsNeverAvailable(t *testing.T) {
	y := newYard(t)
	low := func(n *fleet.NewVehicle) { n.BatteryPercent = new(int64(14)) }
	wantFaults(t, "created available", y.tryVehicle(t, low), "vehicle_low_battery")
	v := y.vehicle(t, low, func(n *fleet.NewVehicle) { n.State = fleet.Removed })
	toAvailable := fleet.VehicleChange{State: optional.Of(fleet.Available)}
	_, err := y.tryPutVehicle(t, v.ID, toAvailable)
	wantFaults(t, "dropped off", err, "vehicle_low_battery")
	lost := y.vehicle(t)
	y.after(t, lost.CreatedAt, 40*time.Minute)
	toAvailable.BatteryPercent = optional.Of(int64(3))
	_, err = y.tryPutVehicle(t, lost.ID, toAvailable)
	wantFaults(t, "dropped off with a report", err, "vehicle_low_battery")
	toAvailable.BatteryPercent = optional.Of(int64(15))
	if got := y.putVehicle(t, lost.ID, toAvailable); got.State != fleet.Available {
		t.Errorf("with 15 percent it is %s", got.State)
	}
}

// TestReservationKeepsSighting: dropping off a silent vehicle is a sighting, which
// a reservation retains.
func TestReservationKeepsSighting(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.after(t, v.CreatedAt, 2*time.Hour)
	seen := y.putVehicle(t, v.ID, fleet.VehicleChange{State: optional.Of(fleet.Available)}).StateChangedAt.Std()
	y.ride(t, fleet.Reserved, v)
	y.after(t, rfc3339.Time(y.now(t)), time.Minute)
	if got := y.storedVehicle(t, v.ID).State; got != fleet.VehicleReserved {
		t.Errorf("a minute after it was reserved it is %s", got)
	}
	y.changeSettings(t, fleet.SettingsChange{ContactLostMinutes: optional.Of(int64(20))})
	var due time.Time
	if err := y.db.QueryRow(t.Context(), "SELECT due_at FROM vehicles WHERE id = $1", v.ID).Scan(db.IntoTime(&due)); err != nil || !due.Equal(seen.Add(20*time.Minute)) {
		t.Errorf("after a change of the limit it is lost at %s, %v; want 20 minutes after %s", due, err, seen)
	}
	y.after(t, rfc3339.Time(y.now(t)), time.Minute)
	if got := y.storedVehicle(t, v.ID).State; got != fleet.VehicleReserved {
		t.Errorf("after a change of the limit it is %s", got)
	}
	y.after(t, rfc3339.Time(y.now(t)), 20*time.Minute)
	if got := y.history(t, v.ID); !slices.Contains(got[3:], "comms_lost non_contactable") {
		t.Errorf("it never fell silent: %q", got)
	}
}

// TestOdometerCountsOnlyIfReported: an odometer not reported during the ride does
// not determine its distance.
func TestOdometerCountsOnlyIfReported(t *testing.T) {
	y := newYard(t)
	ridden := func(report fleet.VehicleChange) int64 {
		t.Helper()
		v := y.vehicle(t, func(n *fleet.NewVehicle) {
			n.OdometerMeters, n.LastReportedAt = new(int64(1000)), rfc3339.Time(y.now(t).Add(-time.Minute).Truncate(time.Millisecond))
		})
		r := y.ride(t, fleet.Active, v)
		report.Location = optional.Of(geo.Position{Lat: 52.51, Lng: 13.4})
		y.putVehicle(t, v.ID, report)
		r = y.put(t, r.ID, to(fleet.Completed))
		if r.DistanceMeters == nil {
			t.Fatal("the ride has no distance")
		}
		return *r.DistanceMeters
	}
	if got := ridden(fleet.VehicleChange{}); got < 1100 || got > 1125 {
		t.Errorf("by positions alone: %d m, want some 1112", got)
	}
	if got := ridden(fleet.VehicleChange{OdometerMeters: optional.Of(int64(1777))}); got != 777 {
		t.Errorf("by the odometer: %d m, want 777", got)
	}
	if got := ridden(fleet.VehicleChange{OdometerMeters: optional.Of(int64(1000))}); got != 0 {
		t.Errorf("by an odometer that stood still: %d m, want 0", got)
	}
}
