package fleet_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"pgregory.net/rapid"
)

// moments lists a vehicle's state changes with their times.
func (y *yard) moments(t testing.TB, v fleet.Vehicle) []string {
	t.Helper()
	list, err := y.VehicleChanges(t.Context(), y.db, y.org, v.ID, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range slices.Backward(list) {
		out = append(out, fmt.Sprintf("%v %s", c.At.Std().Sub(v.CreatedAt.Std()).Round(time.Minute), c.Event))
	}
	return out
}

// TestTravel advances the clock by a year: dependent changes apply at their due
// times, in order, before the call returns.
func TestTravel(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	idle := y.vehicle(t)
	ridden := y.ride(t, fleet.Active, v)
	taken := y.vehicle(t)
	reserved := y.ride(t, fleet.Reserved, taken)
	y.after(t, v.CreatedAt, 365*24*time.Hour)

	for _, tt := range []struct {
		v    fleet.Vehicle
		want []string
	}{
		{v, []string{"0s provider_drop_off", "0s trip_start", "30m0s comms_lost", "72h0m0s not_located"}},
		{idle, []string{"0s provider_drop_off", "30m0s comms_lost", "72h0m0s not_located"}},
		{taken, []string{"0s provider_drop_off", "0s reservation_start", "15m0s reservation_cancel", "30m0s comms_lost", "72h0m0s not_located"}},
	} {
		if got := y.moments(t, tt.v); !slices.Equal(got, tt.want) {
			t.Errorf("got %q\nwant %q", got, tt.want)
		}
	}
	r := y.storedRide(t, ridden.ID)
	if got := r.EndedAt.Std().Sub(r.StartedAt.Std()); got != 24*time.Hour || r.EndReason != "max_duration" || r.Price.TotalAmount != 100+1440*25 {
		t.Errorf("the ride took %v and costs %+v", got, r.Price)
	}
	if r.UpdatedAt != r.EndedAt {
		t.Errorf("changed at %v, ended at %v", r.UpdatedAt.Std(), r.EndedAt.Std())
	}
	if r := y.storedRide(t, reserved.ID); r.EndedAt != r.ReservationExpiresAt || r.CancelReason != "reservation_expired" {
		t.Errorf("got %+v", r)
	}

	now, err := y.Now(t.Context(), y.db, y.org)
	if err != nil {
		t.Fatal(err)
	}
	travel := func(to time.Time) error {
		return y.try(t, func(ctx context.Context, tx *db.Tx) error { return y.AdvanceClockTx(ctx, tx, y.org, to) })
	}
	wantFaults(t, "back", travel(now.Add(-time.Minute)), "clock_backwards")
	wantFaults(t, "too far", travel(now.AddDate(1, 0, 1)), "now too_large")
	wantFaults(t, "in production", newSite(t).try(t, func(ctx context.Context, tx *db.Tx) error {
		return fleet.Open(fleet.Config{DB: y.db, Live: true}).AdvanceClockTx(ctx, tx, y.org, now)
	}), "not found")
	now = time.Now().AddDate(199, 6, 0)
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE settings SET clock_offset = $1", time.Until(now).Microseconds())
		return err
	})
	wantFaults(t, "where no clock goes", travel(now.AddDate(0, 6, 1)), "now too_large")
	wantFaults(t, "not so far", travel(now.AddDate(0, 5, 0)), "none")
}

// TestTravelMany has so many timers that quadratic time would exceed the limit.
func TestTravelMany(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 2,000 vehicles")
	}
	y := newYard(t)
	const vehicles = 2000
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		for i := range vehicles {
			n := fleet.NewVehicle{SubaccountID: y.sub.ID, Code: fmt.Sprintf("M-%d", i), VehicleTypeID: y.scooter, State: fleet.Available, Location: inside()}
			if _, err := y.CreateVehicleTx(ctx, tx, y.org, n, testActor); err != nil {
				return err
			}
		}
		return nil
	})
	v := y.vehicle(t)
	begun := time.Now()
	y.after(t, v.CreatedAt, 100*time.Hour)
	t.Logf("%d changes took %v", 2*(vehicles+1), time.Since(begun))
	var missing int
	if err := y.db.QueryRow(t.Context(), "SELECT count(*) FROM vehicles WHERE state = 'missing'").Scan(&missing); err != nil || missing != vehicles+1 {
		t.Errorf("got %d that are missing, %v; want %d", missing, err, vehicles+1)
	}
}

// TestRun: due changes apply within a second, as of their due time, and before a
// record is locked.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := furnish(t, newSiteOn(t, dbtest.NewFleetSQLite(t), true))
		ctx, cancel := context.WithCancel(t.Context())
		v := y.vehicle(t)
		r := y.ride(t, fleet.Reserved, v)
		settled := y.ride(t, fleet.Reserved, y.vehicle(t))
		time.Sleep(15 * time.Minute)
		if got, err := y.tryPut(t, settled.ID, to(fleet.Active)); err == nil {
			t.Errorf("an expired reservation: got %s", got.Status)
		} else {
			wantFaults(t, "an expired reservation", err, "invalid_transition")
		}
		if _, err := y.tryRide(t, fleet.NewRide{VehicleID: fleet.NullString(settled.VehicleID), CustomerID: settled.CustomerID}); err != nil {
			t.Errorf("a ride on a vehicle whose reservation has expired: got %v", err)
		}
		if got := y.storedRide(t, r.ID).Status; got != fleet.Reserved {
			t.Errorf("nobody looked, and it is %s", got)
		}
		time.Sleep(time.Minute)
		go y.Run(ctx)
		synctest.Wait()
		r = y.storedRide(t, r.ID)
		if r.Status != fleet.Cancelled || r.EndedAt != r.ReservationExpiresAt || r.UpdatedAt.Std().Sub(r.EndedAt.Std()) != time.Minute {
			t.Errorf("got %+v", r)
		}
		time.Sleep(14*time.Minute + time.Second)
		synctest.Wait()
		if got := y.moments(t, v); !slices.Equal(got, []string{"0s provider_drop_off", "0s reservation_start", "15m0s reservation_cancel", "30m0s comms_lost"}) {
			t.Errorf("got %q", got)
		}
		cancel()
		synctest.Wait()
	})
}

// TestOneOpenRide concurrently starts rides on few vehicles for few customers.
func TestOneOpenRide(t *testing.T) {
	y := newYard(t)
	var vehicles []fleet.Vehicle
	var customers []fleet.Customer
	for range 4 {
		vehicles, customers = append(vehicles, y.vehicle(t)), append(customers, y.customer(t))
	}
	var begun atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			_, err := y.tryRide(t, fleet.NewRide{VehicleID: fleet.NullString(vehicles[i%4].ID), CustomerID: fleet.NullString(customers[i/4%4].ID)})
			switch got := faults(err); got {
			case "none":
				begun.Add(1)
			case "vehicle_unavailable", "customer_has_open_ride":
			default:
				t.Errorf("got %s", got)
			}
		})
	}
	wg.Wait()
	y.agree(t)
	if got := begun.Load(); got == 0 || got > 4 || got != int64(y.open(t)) {
		t.Errorf("got %d rides begun, and %d that are open", got, y.open(t))
	}
}

// open counts open rides.
func (y *yard) open(t testing.TB) (n int) {
	t.Helper()
	if err := y.db.QueryRow(context.Background(), "SELECT count(*) FROM rides WHERE status IN ('reserved', 'active', 'paused')").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// agree checks that rides, vehicles and customers are consistent.
func (y *yard) agree(t rapid.TB) {
	ctx := context.Background()
	ids := func(table string) []string {
		list, err := db.All(ctx, y.db, func(row db.Row) (id string, err error) { return id, row.Scan(&id) }, "SELECT id FROM "+table+" ORDER BY id")
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	open := map[string]fleet.Ride{}
	count := map[fleet.NullString]int64{}
	for _, id := range ids("rides") {
		r, err := y.Ride(ctx, y.db, y.org, id)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status == fleet.Completed {
			count[r.CustomerID]++
		}
		if (r.Price == nil) != r.Status.Open() || r.EndedAt.Std().IsZero() != r.Status.Open() {
			t.Errorf("ride %s is %s: price %v, ended at %v", id, r.Status, r.Price, r.EndedAt.Std())
		}
		if !r.Status.Open() {
			continue
		}
		if _, two := open[r.VehicleID]; two {
			t.Errorf("vehicle %s has two open rides", r.VehicleID)
		}
		open[r.VehicleID] = r
	}
	for _, id := range ids("vehicles") {
		v, err := y.Vehicle(ctx, y.db, y.org, id)
		if err != nil {
			t.Fatal(err)
		}
		r, riding := open[id]
		if string(v.CurrentRideID) != r.ID {
			t.Errorf("vehicle %s has ride %q, want %q", id, v.CurrentRideID, r.ID)
		}
		want := map[fleet.RideStatus]fleet.VehicleState{fleet.Reserved: fleet.VehicleReserved, fleet.Active: fleet.OnTrip, fleet.Paused: fleet.OnTrip}[r.Status]
		if riding && v.State != want && v.State != fleet.NonContactable || !riding && (v.State == fleet.OnTrip || v.State == fleet.VehicleReserved) {
			t.Errorf("vehicle %s is %s, its ride %q", id, v.State, r.Status)
		}
	}
	for _, id := range ids("customers") {
		c, err := y.Customer(ctx, y.db, y.org, id)
		if err != nil {
			t.Fatal(err)
		}
		var want fleet.NullString
		for _, r := range open {
			if r.CustomerID == fleet.NullString(id) {
				want = fleet.NullString(r.ID)
			}
		}
		if c.OpenRideID != want || c.RideCount != count[fleet.NullString(id)] {
			t.Errorf("customer %s has ride %q and %d behind, want %q and %d", id, c.OpenRideID, c.RideCount, want, count[fleet.NullString(id)])
		}
	}
}

// fewer reduces the checks of rapid unless a number was given: a check is dozens of
// transactions.
func fewer(t *testing.T, checks string) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	if f.Value.String() != f.DefValue {
		return
	}
	if err := f.Value.Set(checks); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Value.Set(f.DefValue) })
}

// TestAgree runs random operations: rides, vehicles and customers remain
// consistent.
func TestAgree(t *testing.T) {
	y := newYard(t)
	y.changePlan(t, fleet.PlanChange{OutOfZoneAmount: optional.Of(int64(500))})
	var vehicles, customers, rides []string
	for range 3 {
		vehicles, customers = append(vehicles, y.vehicle(t).ID), append(customers, y.customer(t).ID)
	}
	refused := func(rt *rapid.T, err error) bool {
		if err != nil && problem.Of(err) == problem.Internal {
			rt.Fatal(err)
		}
		return err != nil
	}
	fewer(t, "25")
	rapid.Check(t, func(rt *rapid.T) {
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) { y.agree(rt) },
			"start": func(rt *rapid.T) {
				r, err := y.tryRide(t, fleet.NewRide{
					Status:    rapid.SampledFrom([]fleet.RideStatus{fleet.Active, fleet.Reserved}).Draw(rt, "status"),
					VehicleID: fleet.NullString(rapid.SampledFrom(vehicles).Draw(rt, "vehicle")), CustomerID: fleet.NullString(rapid.SampledFrom(customers).Draw(rt, "customer")),
				})
				if !refused(rt, err) {
					rides = append(rides, r.ID)
				}
			},
			"put": func(rt *rapid.T) {
				if len(rides) == 0 {
					rt.Skip("no rides")
				}
				c := to(rapid.SampledFrom([]fleet.RideStatus{fleet.Active, fleet.Paused, fleet.Completed, fleet.Cancelled}).Draw(rt, "to"))
				if c.Status.Value == fleet.Completed && rapid.Bool().Draw(rt, "outside") {
					c.EndLocation, c.AcceptOutOfZoneFee = optional.Of(*outside()), optional.Of(rapid.Bool().Draw(rt, "accepted"))
				}
				recent := rides[max(0, len(rides)-5):]
				_, err := y.tryPut(t, rapid.SampledFrom(recent).Draw(rt, "ride"), c)
				refused(rt, err)
			},
			"vehicle": func(rt *rapid.T) {
				var c fleet.VehicleChange
				if rapid.Bool().Draw(rt, "report") {
					c.BatteryPercent, c.Location = optional.Of(rapid.Int64Range(0, 100).Draw(rt, "battery")), optional.Of(*inside())
				}
				if rapid.Bool().Draw(rt, "change") {
					c.State = optional.Of(rapid.SampledFrom([]fleet.VehicleState{fleet.Available, fleet.NonOperational, fleet.Removed}).Draw(rt, "state"))
				}
				_, err := y.tryPutVehicle(t, rapid.SampledFrom(vehicles).Draw(rt, "vehicle"), c)
				refused(rt, err)
			},
			"wait": func(rt *rapid.T) {
				d := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 20 * time.Minute, 40 * time.Minute, 25 * time.Hour, 80 * time.Hour}).Draw(rt, "wait")
				y.travel(t, d)
			},
		})
	})
}
