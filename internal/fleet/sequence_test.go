package fleet_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// TestClosed: no ride starts with an inactive plan or in an archived subaccount.
// Open rides continue.
func TestClosed(t *testing.T) {
	y := newYard(t)
	v, w := y.vehicle(t), y.vehicle(t)
	open := y.ride(t, fleet.Reserved, w)
	another := func(status fleet.RideStatus) error {
		_, err := y.tryRide(t, fleet.NewRide{Status: status, VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(y.customer(t).ID)})
		return err
	}
	customer := fleet.NullString(y.customer(t).ID)
	y.changePlan(t, fleet.PlanChange{Active: optional.Of(false)})
	wantFaults(t, "a plan that is not active", another(fleet.Active), "no_pricing_plan")
	wantFaults(t, "a plan that is not active, reserved", another(fleet.Reserved), "no_pricing_plan")
	_, err := y.tryRide(t, fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: customer, PricingPlanID: fleet.NullString(y.plan.ID)})
	wantFaults(t, "a plan that is not active, asked for", err, "no_pricing_plan")
	if r := y.put(t, open.ID, to(fleet.Active)); *r.PricingPlanVersion != 1 {
		t.Errorf("got version %d", *r.PricingPlanVersion)
	}
	y.changePlan(t, fleet.PlanChange{Active: optional.Of(true)})

	y.changeSub(t, fleet.SubaccountChange{Status: optional.Of("archived")})
	for _, n := range []fleet.NewRide{
		{VehicleID: fleet.NullString(v.ID), CustomerID: customer},
		{VehicleID: fleet.NullString(v.ID), CustomerID: customer, Status: fleet.Reserved},
		{VehicleID: fleet.NullString(v.ID), TripType: fleet.MaintenanceTrip},
	} {
		_, err := y.tryRide(t, n)
		wantFaults(t, "archived", err, "vehicle_id conflict")
	}
	_, err = y.tryRide(t, fleet.NewRide{VehicleCode: fleet.NullString(v.Code), CustomerID: customer})
	wantFaults(t, "archived, by code", err, "vehicle_code conflict")
	if r := y.put(t, open.ID, to(fleet.Completed)); r.Price.UnlockAmount != 100 {
		t.Errorf("got %+v", r.Price)
	}
}

// TestEndOnceMore repeats the request that ended a ride, also with fields left to
// the server.
func TestEndOnceMore(t *testing.T) {
	y := newYard(t)
	null := optional.Value[fleet.NullString]{Set: true, Null: true}
	end := fleet.RideChange{
		Status: optional.Of(fleet.Completed), EndReason: null, CancelReason: null,
		DistanceMeters: optional.Value[int64]{Set: true, Null: true}, EndLocation: optional.Value[geo.Position]{Set: true, Null: true},
	}
	r := y.ride(t, fleet.Active, y.vehicle(t))
	r = y.put(t, r.ID, end)
	again, err := y.tryPut(t, r.ID, end)
	wantFaults(t, "completed once more", err, "none")
	if again.UpdatedAt != r.UpdatedAt || again.EndLocation == nil || again.EndReason != "rider" || again.DistanceMeters == nil {
		t.Errorf("got %+v", again)
	}
	end.Status = optional.Value[fleet.RideStatus]{}
	_, err = y.tryPut(t, r.ID, end)
	wantFaults(t, "an end that is taken away", err, "invalid_transition")

	r = y.ride(t, fleet.Active, y.vehicle(t))
	cancel := fleet.RideChange{Status: optional.Of(fleet.Cancelled), CancelReason: null}
	y.put(t, r.ID, cancel)
	_, err = y.tryPut(t, r.ID, cancel)
	wantFaults(t, "cancelled once more", err, "none")
}

// TestPaymentStatus: the payment status at the end ignores earlier values.
func TestPaymentStatus(t *testing.T) {
	y := newYard(t)
	for _, tt := range []struct {
		name   string
		change fleet.RideChange
		want   string
	}{
		{"nothing else", fleet.RideChange{}, "due"},
		{"as it was read", fleet.RideChange{PaymentStatus: optional.Of("not_due"), AdjustmentAmount: optional.Of(int64(0))}, "due"},
		{"paid", fleet.RideChange{PaymentStatus: optional.Of("paid")}, "paid"},
		{"for nothing", fleet.RideChange{AdjustmentAmount: optional.Of(int64(-125))}, "not_due"},
		{"for nothing, as it was read", fleet.RideChange{AdjustmentAmount: optional.Of(int64(-500)), PaymentStatus: optional.Of("not_due")}, "not_due"},
	} {
		r := y.ride(t, fleet.Active, y.vehicle(t))
		tt.change.Status = optional.Of(fleet.Completed)
		if r = y.put(t, r.ID, tt.change); r.PaymentStatus != tt.want {
			t.Errorf("%s: got %s of %d, want %s", tt.name, r.PaymentStatus, r.Price.TotalAmount, tt.want)
		}
		if r = y.put(t, r.ID, fleet.RideChange{PaymentStatus: optional.Of("not_due")}); r.PaymentStatus != "not_due" {
			t.Errorf("%s: got %s later", tt.name, r.PaymentStatus)
		}
	}
}

// TestSentBack: a vehicle out of contact or missing that is sent back unchanged is
// not a report.
func TestSentBack(t *testing.T) {
	for _, tt := range []struct {
		silent time.Duration
		state  fleet.VehicleState
	}{{time.Hour, fleet.NonContactable}, {80 * time.Hour, fleet.Missing}} {
		y := newYard(t)
		v := y.vehicle(t)
		y.after(t, v.CreatedAt, tt.silent)
		v = y.storedVehicle(t, v.ID)
		back := fleet.VehicleChange{
			State: optional.Of(v.State), Location: optional.Of(*v.Location), BatteryPercent: optional.Of(*v.BatteryPercent),
			CurrentRangeMeters: optional.Of(*v.CurrentRangeMeters), LastReportedAt: optional.Of(v.LastReportedAt),
		}
		if w := y.putVehicle(t, v.ID, back); w.State != tt.state || w.UpdatedAt != v.UpdatedAt {
			t.Errorf("the same: got %s at %v, want %s at %v", w.State, w.UpdatedAt.Std(), tt.state, v.UpdatedAt.Std())
		}
		back.LicensePlate = optional.Of(fleet.NullString("B-X 1"))
		if w := y.putVehicle(t, v.ID, back); w.State != tt.state || w.LicensePlate != "B-X 1" {
			t.Errorf("another plate: got %s, %s; want %s", w.State, w.LicensePlate, tt.state)
		}
		back.LastReportedAt = optional.Of(rfc3339.Time(v.LastReportedAt.Std().Add(tt.silent)))
		if w := y.putVehicle(t, v.ID, back); w.State == tt.state {
			t.Errorf("a report: got %s", w.State)
		}
	}
}

// TestSilentRide: a vehicle that is silent during a ride becomes missing after the
// ride.
func TestSilentRide(t *testing.T) {
	y := newYard(t)
	y.changeSettings(t, fleet.SettingsChange{MissingAfterHours: optional.Of(int64(10))})
	v := y.vehicle(t)
	r := y.ride(t, fleet.Active, v)
	y.after(t, v.CreatedAt, 25*time.Hour)
	want := []string{"0s provider_drop_off", "0s trip_start", "30m0s comms_lost", "24h0m0s not_located"}
	if got := y.moments(t, v); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	w, ended := y.storedVehicle(t, v.ID), y.storedRide(t, r.ID).EndedAt
	if w.StateChangedAt != ended || w.UpdatedAt.Std().Before(ended.Std()) {
		t.Errorf("missing at %v, changed at %v, and the ride ended at %v", w.StateChangedAt.Std(), w.UpdatedAt.Std(), ended.Std())
	}
}

// TestLocated checks both transitions of a missing vehicle by request.
func TestLocated(t *testing.T) {
	y := newYard(t)
	for _, state := range []fleet.VehicleState{fleet.NonOperational, fleet.Removed} {
		v := y.vehicle(t)
		y.after(t, v.CreatedAt, 80*time.Hour)
		if w := y.putVehicle(t, v.ID, fleet.VehicleChange{State: optional.Of(state), Event: optional.Of(fleet.VehicleEvent("located"))}); w.State != state || w.LastEvent != "located" {
			t.Errorf("got %s, %s", w.State, w.LastEvent)
		}
	}
	v := y.vehicle(t)
	y.after(t, v.CreatedAt, time.Hour)
	_, err := y.tryPutVehicle(t, v.ID, fleet.VehicleChange{State: optional.Of(fleet.Removed), Event: optional.Of(fleet.VehicleEvent("located"))})
	wantFaults(t, "out of contact", err, "event invalid_value")
}

// TestClaimMeanwhile gives records the unique values of uncommitted ones: one of
// each pair fails with already_exists.
func TestClaimMeanwhile(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	r := y.ride(t, fleet.Active, v)
	for _, tt := range []struct {
		member string
		make   func(ctx context.Context, tx *db.Tx) error
		change func() error
	}{
		{"code", func(ctx context.Context, tx *db.Tx) error {
			_, err := y.CreateVehicleTx(ctx, tx, y.org, fleet.NewVehicle{SubaccountID: y.sub.ID, VehicleTypeID: y.scooter, Code: "NEW-1"}, testActor)
			return err
		}, func() error {
			_, err := y.tryPutVehicle(t, v.ID, fleet.VehicleChange{Code: optional.Of("new-1")})
			return err
		}},
		{"device_id", func(ctx context.Context, tx *db.Tx) error {
			_, err := y.CreateVehicleTx(ctx, tx, y.org, fleet.NewVehicle{SubaccountID: y.sub.ID, VehicleTypeID: y.scooter, Code: "NEW-2", DeviceID: "imei"}, testActor)
			return err
		}, func() error {
			_, err := y.tryPutVehicle(t, v.ID, fleet.VehicleChange{DeviceID: optional.Of(fleet.NullString("imei"))})
			return err
		}},
		{"external_id", func(ctx context.Context, tx *db.Tx) error {
			_, err := y.CreateVehicleTx(ctx, tx, y.org, fleet.NewVehicle{SubaccountID: y.sub.ID, VehicleTypeID: y.scooter, Code: "NEW-3", ExternalID: "x"}, testActor)
			return err
		}, func() error {
			_, err := y.tryPutVehicle(t, v.ID, fleet.VehicleChange{ExternalID: optional.Of(fleet.NullString("x"))})
			return err
		}},
		{"external_id", func(ctx context.Context, tx *db.Tx) error {
			_, err := y.StartRideTx(ctx, tx, y.org, fleet.NewRide{VehicleCode: "NEW-4", TripType: fleet.RebalanceTrip, ExternalID: "x"}, testActor)
			return err
		}, func() error {
			_, err := y.tryPut(t, r.ID, fleet.RideChange{ExternalID: optional.Of(fleet.NullString("x"))})
			return err
		}},
	} {
		if tt.member == "external_id" {
			y.write(t, func(ctx context.Context, tx *db.Tx) error {
				n := fleet.NewVehicle{SubaccountID: y.sub.ID, VehicleTypeID: y.scooter, Code: "NEW-4", State: fleet.Available, Location: inside()}
				_, err := y.CreateVehicleTx(ctx, tx, y.org, n, testActor)
				if faults(err) == "already_exists code" {
					return nil
				}
				return err
			})
		}
		made := make(chan struct{})
		begin := sync.OnceFunc(func() { close(made) })
		changed := make(chan error, 1)
		go func() {
			<-made
			changed <- tt.change()
		}()
		y.write(t, func(ctx context.Context, tx *db.Tx) error {
			err := tt.make(ctx, tx)
			begin()
			y.waitedFor(t, tx)
			return err
		})
		wantFaults(t, tt.member, <-changed, "already_exists "+tt.member)
	}
}

// waitedFor returns when another transaction waits for tx; on SQLite at once, since
// all writers do.
func (y *yard) waitedFor(t testing.TB, tx *db.Tx) {
	t.Helper()
	if !y.db.Postgres() {
		return
	}
	for waiting := false; !waiting; {
		if err := tx.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))").Scan(&waiting); err != nil {
			t.Error(err)
			return
		}
	}
}

// TestAllAtOnce runs random operations concurrently on two services with one
// database: they fail only with expected errors, and the records agree afterwards.
func TestAllAtOnce(t *testing.T) {
	y := newYard(t)
	other := *y
	site := *y.site
	site.Service = fleet.Open(fleet.Config{DB: y.db})
	other.site = &site
	var vehicles []fleet.Vehicle
	var customers []fleet.Customer
	for range 3 {
		vehicles, customers = append(vehicles, y.vehicle(t)), append(customers, y.customer(t))
	}
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(worker)))
			y := []*yard{y, &other}[worker%2]
			var rides []string
			for range 30 {
				v, c := vehicles[rng.IntN(3)], customers[rng.IntN(3)]
				var err error
				switch rng.IntN(7) {
				case 0, 1:
					var r fleet.Ride
					r, err = y.tryRide(t, fleet.NewRide{Status: []fleet.RideStatus{fleet.Active, fleet.Reserved}[rng.IntN(2)], VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(c.ID)})
					if err == nil {
						rides = append(rides, r.ID)
					}
				case 2, 3:
					if len(rides) > 0 {
						_, err = y.tryPut(t, rides[len(rides)-1], to([]fleet.RideStatus{fleet.Active, fleet.Paused, fleet.Completed, fleet.Cancelled}[rng.IntN(4)]))
					}
				case 4:
					_, err = y.tryPutVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(rng.Int64N(101)), Location: optional.Of(*inside())})
				case 5:
					err = y.try(t, func(ctx context.Context, tx *db.Tx) error {
						now, err := y.Now(ctx, tx, y.org)
						if err != nil {
							return err
						}
						return y.AdvanceClockTx(ctx, tx, y.org, now.Add(20*time.Minute))
					})
				case 6:
					err = y.try(t, func(ctx context.Context, tx *db.Tx) error {
						_, _, err := y.UpdateSettingsTx(ctx, tx, y.org, fleet.SettingsChange{MaxRideMinutes: optional.Of(10 + rng.Int64N(100)), ContactLostMinutes: optional.Of(10 + rng.Int64N(100))})
						return err
					})
				}
				if kind := problem.Of(err); err != nil && kind != problem.Precondition {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	wg.Wait()
	y.agree(t)
}
