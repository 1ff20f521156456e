package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestUseAnalytics compares the use of the sandbox's vehicles with a count of each second that
// an independent walk over the state changes makes, over days of 24 and 25 hours.
func TestUseAnalytics(t *testing.T) {
	s := &site{db: dbtest.NewFleet(t), org: acme.ID}
	s.Service = fleet.Open(fleet.Config{DB: s.db})
	if err := s.Provision(t.Context(), acme); err != nil {
		t.Fatal(err)
	}
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now, err := s.Now(t.Context(), s.db, s.org)
	if err != nil {
		t.Fatal(err)
	}
	vehicles, err := db.All(t.Context(), s.db, func(row db.Row) (v fleet.Vehicle, err error) { return v, row.Scan(db.IntoJSON(&v)) },
		"SELECT doc FROM vehicles WHERE organization_id = $1 ORDER BY id", s.org)
	if err != nil || len(vehicles) == 0 {
		t.Fatalf("%d vehicles, %v", len(vehicles), err)
	}
	changes := map[string][]fleet.StateChange{}
	for _, v := range vehicles {
		list, err := s.VehicleChanges(t.Context(), s.db, s.org, v.ID, "", 100_000)
		if err != nil {
			t.Fatal(err)
		}
		changes[v.ID] = list // the latest first
	}
	// timeIn is the time of a vehicle in states between two times.
	timeIn := func(id string, from, to time.Time, states ...fleet.VehicleState) (sum time.Duration) {
		end := to
		for _, c := range changes[id] {
			start := c.At.Std()
			for _, state := range states {
				if c.State == state && start.Before(end) && end.After(from) {
					if start.Before(from) {
						sum += end.Sub(from)
					} else {
						sum += end.Sub(start)
					}
				}
			}
			if start.Before(end) {
				end = start
			}
		}
		return sum
	}
	y, m, d := now.In(zone).Date()
	q := fleet.UseQuery{From: period.StartOf(y, m, d-60, zone), To: period.StartOf(y, m, d+1, zone), Granularity: period.Day, Location: zone, GroupBy: []string{"subaccount_id", "vehicle_type_id"}}
	got, err := s.UseAnalytics(t.Context(), s.org, q)
	if err != nil || len(got.Rows) == 0 {
		t.Fatalf("%d rows, %v", len(got.Rows), err)
	}
	seconds := func(d time.Duration) int64 { return d.Milliseconds() / 1000 }
	var onTrip int64
	for _, row := range got.Rows {
		to := row.Period.End
		if to.After(got.GeneratedAt) {
			to = got.GeneratedAt.Truncate(time.Millisecond)
		}
		var ridden, reserved, idle, away time.Duration
		var n int64
		for _, v := range vehicles {
			if v.SubaccountID != string(row.Group[0]) || v.VehicleTypeID != string(row.Group[1]) {
				continue
			}
			before := ridden + reserved + idle + away
			ridden += timeIn(v.ID, row.Period.Start, to, fleet.OnTrip)
			reserved += timeIn(v.ID, row.Period.Start, to, fleet.VehicleReserved)
			idle += timeIn(v.ID, row.Period.Start, to, fleet.Available)
			away += timeIn(v.ID, row.Period.Start, to, fleet.NonOperational, fleet.NonContactable)
			if ridden+reserved+idle+away > before {
				n++
			}
		}
		want := fleet.UseFigures{VehicleCount: n, OnTripSeconds: seconds(ridden), ReservedSeconds: seconds(reserved), IdleSeconds: seconds(idle), UnavailableSeconds: seconds(away)}
		want.DeployedSeconds = want.OnTripSeconds + want.ReservedSeconds + want.IdleSeconds + want.UnavailableSeconds
		f := row.UseFigures
		if f.UtilizationBasisPoints == nil || *f.UtilizationBasisPoints != (f.OnTripSeconds*20000+f.DeployedSeconds)/(2*f.DeployedSeconds) {
			t.Errorf("%s: utilization of %+v", row.Period.Start, f)
		}
		f.UtilizationBasisPoints, f.IdleSecondsPerDay = nil, nil
		if fmt.Sprint(f) != fmt.Sprint(want) {
			t.Errorf("%s %v: got %+v, want %+v", row.Period.Start, row.Group, f, want)
		}
		onTrip += f.OnTripSeconds
	}
	if total := got.Totals; onTrip > total.OnTripSeconds || total.OnTripSeconds-onTrip > int64(len(got.Rows)) || total.VehicleCount > int64(len(vehicles)) {
		t.Errorf("totals %+v, of rows %d", total, onTrip)
	}
	// Without groups each day has a row; filters exclude vehicles.
	q.GroupBy, q.VehicleTypes = nil, []string{vehicles[0].VehicleTypeID}
	if got, err = s.UseAnalytics(t.Context(), s.org, q); err != nil || len(got.Rows) != 61 || got.Totals.VehicleCount == 0 || got.Totals.VehicleCount >= int64(len(vehicles)) {
		t.Errorf("%d rows, totals %+v, %v", len(got.Rows), got.Totals, err)
	}
	for _, bad := range []fleet.UseQuery{
		{From: q.To, To: q.From, Granularity: period.Day}, {From: q.From, To: q.To, Granularity: "year"}, {From: q.From, To: q.To, Granularity: period.Day, GroupBy: []string{"status"}},
	} {
		if _, err := s.UseAnalytics(t.Context(), s.org, bad); problem.Of(err) != problem.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	restore := fleet.LimitUseChanges(3)
	_, err = s.UseAnalytics(t.Context(), s.org, q)
	restore()
	if e, ok := errors.AsType[*problem.Error](err); !ok || e.Code != "range_too_large" {
		t.Errorf("more changes than allowed: %v", err)
	}
}

// TestUseOfDeletedVehicles: deleting a vehicle changes no past figures of its type.
func TestUseOfDeletedVehicles(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.vehicle(t)
	r := y.ride(t, fleet.Active, v)
	y.travel(t, 20*time.Minute)
	y.put(t, r.ID, to(fleet.Completed))
	y.travel(t, 5*time.Minute)
	q := fleet.UseQuery{
		From: r.StartedAt.Std().Add(time.Second), To: y.clock(t).Truncate(time.Second), Granularity: period.Total,
		GroupBy: []string{"vehicle_type_id"}, VehicleTypes: []string{y.scooter},
	}
	use := func() string {
		t.Helper()
		got, err := y.UseAnalytics(t.Context(), y.org, q)
		if err != nil || got.Totals.VehicleCount != 2 || got.Totals.OnTripSeconds == 0 {
			t.Fatalf("got %+v, %v", got.Totals, err)
		}
		f := got.Totals
		return fmt.Sprint(got.Rows[0].Group, f.VehicleCount, f.DeployedSeconds, f.OnTripSeconds, *f.UtilizationBasisPoints)
	}
	before := use()
	y.write(t, func(ctx context.Context, tx *db.Tx) error { return y.DeleteVehicleTx(ctx, tx, y.org, v.ID, testActor) })
	if after := use(); after != before {
		t.Errorf("got %s, before %s", after, before)
	}
}
