package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// yard is a sandbox fleet with a controllable clock and the service area Mitte
// (longitude 13 to 14, latitude 52 to 53).
type yard struct {
	*site
	zone fleet.Zone
	n    int // number of vehicles
}

// testActor is the actor of tests.
var testActor = fleet.Actor{Type: "key", ID: "key_1"}

// inside is a position in the service area, outside one beyond it.
func inside() *geo.Position  { return &geo.Position{Lat: 52.5, Lng: 13.4} }
func outside() *geo.Position { return &geo.Position{Lat: 48.1, Lng: 11.5} }

func newYard(t testing.TB) *yard {
	t.Helper()
	return furnish(t, newSiteOn(t, dbtest.NewFleet(t), false))
}

func furnish(t testing.TB, s *site) *yard {
	t.Helper()
	y := &yard{site: s}
	y.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		y.zone, err = y.CreateZoneTx(ctx, tx, y.org, newZone(t, y.sub.ID))
		return err
	})
	return y
}

// after sets the clock to a time since another. It runs on, so later changes are
// some milliseconds later.
func (y *yard) after(t testing.TB, from rfc3339.Time, since time.Duration) {
	t.Helper()
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		return y.AdvanceClockTx(ctx, tx, y.org, from.Std().Add(since))
	})
}

// putAfter changes a ride at exactly a time since another: between transactions the clock runs on.
func (y *yard) putAfter(t testing.TB, from rfc3339.Time, since time.Duration, id string, c fleet.RideChange) (r fleet.Ride) {
	t.Helper()
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		if err := y.AdvanceClockTx(ctx, tx, y.org, from.Std().Add(since)); err != nil {
			return err
		}
		locked, err := y.LockRideTx(ctx, tx, y.org, id)
		if err == nil {
			r, err = y.UpdateRideTx(ctx, tx, y.org, locked, c, testActor)
		}
		return err
	})
	return r
}

// vehicle creates a vehicle: available, inside, and at 80 percent.
func (y *yard) vehicle(t testing.TB, change ...func(*fleet.NewVehicle)) fleet.Vehicle {
	t.Helper()
	y.n++
	n := fleet.NewVehicle{SubaccountID: y.sub.ID, Code: fmt.Sprintf("B-%04d", y.n), VehicleTypeID: y.scooter, State: fleet.Available, Location: inside(), BatteryPercent: new(int64(80))}
	for _, fn := range change {
		fn(&n)
	}
	var v fleet.Vehicle
	y.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		v, err = y.CreateVehicleTx(ctx, tx, y.org, n, testActor)
		return err
	})
	return v
}

func (y *yard) customer(t testing.TB, change ...func(*fleet.NewCustomer)) fleet.Customer {
	t.Helper()
	n := newCustomer(y.sub.ID)
	for _, fn := range change {
		fn(&n)
	}
	var c fleet.Customer
	y.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		c, err = y.CreateCustomerTx(ctx, tx, y.org, n)
		return err
	})
	return c
}

func (y *yard) tryRide(t testing.TB, n fleet.NewRide) (r fleet.Ride, err error) {
	err = y.try(t, func(ctx context.Context, tx *db.Tx) (err error) {
		r, err = y.StartRideTx(ctx, tx, y.org, n, testActor)
		return err
	})
	return r, err
}

// ride starts or reserves a ride of a new customer.
func (y *yard) ride(t testing.TB, status fleet.RideStatus, v fleet.Vehicle) fleet.Ride {
	t.Helper()
	r, err := y.tryRide(t, fleet.NewRide{Status: status, VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(y.customer(t).ID)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (y *yard) tryPut(t testing.TB, id string, c fleet.RideChange) (r fleet.Ride, err error) {
	err = y.try(t, func(ctx context.Context, tx *db.Tx) error {
		if r, err = y.LockRideTx(ctx, tx, y.org, id); err != nil {
			return err
		}
		r, err = y.UpdateRideTx(ctx, tx, y.org, r, c, testActor)
		return err
	})
	return r, err
}

func (y *yard) put(t testing.TB, id string, c fleet.RideChange) fleet.Ride {
	t.Helper()
	r, err := y.tryPut(t, id, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// to is a change of only the status.
func to(status fleet.RideStatus) fleet.RideChange {
	return fleet.RideChange{Status: optional.Of(status)}
}

func (y *yard) tryPutVehicle(t testing.TB, id string, c fleet.VehicleChange) (v fleet.Vehicle, err error) {
	err = y.try(t, func(ctx context.Context, tx *db.Tx) error {
		if v, err = y.LockVehicleTx(ctx, tx, y.org, id); err != nil {
			return err
		}
		v, err = y.UpdateVehicleTx(ctx, tx, y.org, v, c, testActor)
		return err
	})
	return v, err
}

func (y *yard) putVehicle(t testing.TB, id string, c fleet.VehicleChange) fleet.Vehicle {
	t.Helper()
	v, err := y.tryPutVehicle(t, id, c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// storedRide reads a ride as stored.
func (y *yard) storedRide(t testing.TB, id string) fleet.Ride {
	t.Helper()
	r, err := y.Ride(t.Context(), y.db, y.org, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (y *yard) storedVehicle(t testing.TB, id string) fleet.Vehicle {
	t.Helper()
	v, err := y.Vehicle(t.Context(), y.db, y.org, id)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (y *yard) storedCustomer(t testing.TB, id fleet.NullString) fleet.Customer {
	t.Helper()
	c, err := y.Customer(t.Context(), y.db, y.org, string(id))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// history lists a vehicle's state changes as "event state", the earliest first.
func (y *yard) history(t testing.TB, vehicleID string) []string {
	t.Helper()
	list, err := y.VehicleChanges(t.Context(), y.db, y.org, vehicleID, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, len(list))
	for i, c := range list {
		out[len(list)-1-i] = string(c.Event) + " " + string(c.State)
	}
	return out
}

// changeSettings updates the settings.
func (y *yard) changeSettings(t testing.TB, c fleet.SettingsChange) {
	t.Helper()
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		_, _, err := y.UpdateSettingsTx(ctx, tx, y.org, c)
		return err
	})
}

// changePlan updates the plan.
func (y *yard) changePlan(t testing.TB, c fleet.PlanChange) {
	t.Helper()
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		plan, err := y.LockPlanTx(ctx, tx, y.org, y.plan.ID)
		if err == nil {
			y.plan, err = y.UpdatePlanTx(ctx, tx, y.org, plan, c)
		}
		return err
	})
}

// changeCustomer updates a customer.
func (y *yard) changeCustomer(t testing.TB, id fleet.NullString, c fleet.CustomerChange) {
	t.Helper()
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		customer, err := y.LockCustomerTx(ctx, tx, y.org, string(id))
		if err == nil {
			_, err = y.UpdateCustomerTx(ctx, tx, y.org, customer, c)
		}
		return err
	})
}

// elsewhere returns a second subaccount of the same fleet.
func elsewhere(t testing.TB, y *yard) *yard {
	t.Helper()
	s := *y.site
	s.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		s.sub, err = s.CreateSubaccountTx(ctx, tx, s.org, fleet.NewSubaccount{Name: "Elsewhere", TimeZone: "Asia/Tokyo", Currency: "JPY"})
		if err == nil {
			s.plan, err = s.CreatePlanTx(ctx, tx, s.org, newPlan(s.sub.ID))
		}
		return err
	})
	return &yard{site: &s}
}

func decode(t testing.TB, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func mustEncode(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
