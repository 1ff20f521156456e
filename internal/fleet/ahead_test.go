package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
)

// TestBefore changes records after they were read ahead: a ride is made and ended
// of what they are when its turn comes.
func TestBefore(t *testing.T) {
	y := newYard(t)
	marked := optional.Of(map[string]string{"seen": "late"})
	parked := fleet.Text("rack")
	for _, meanwhile := range []bool{false, true} {
		v, c := y.vehicle(t), y.customer(t)
		start := func(ctx context.Context, n fleet.NewRide) (r fleet.Ride, err error) {
			return r, y.db.Write(ctx, func(tx *db.Tx) (err error) {
				r, err = y.StartRide(ctx, tx, y.org, n, key)
				return err
			})
		}
		n := fleet.NewRide{VehicleCode: fleet.Text(v.Code), CustomerID: fleet.Text(c.ID)}
		ctx := y.BeforeStart(t.Context(), y.org, n)
		if meanwhile {
			y.putVehicle(t, v.ID, fleet.VehicleChange{Metadata: marked, Location: optional.Of(fleet.Position{Lat: 52.25, Lng: 13.25})})
			y.changeCustomer(t, fleet.Text(c.ID), fleet.CustomerChange{Metadata: marked})
		}
		r, err := start(ctx, n)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := start(ctx, n); err == nil {
			t.Error("what was read ahead is used twice: a second ride began")
		}
		if at := 52.5; meanwhile != (r.StartLocation.Lat != at) {
			t.Errorf("changed meanwhile: %v, and the ride starts at %v", meanwhile, r.StartLocation)
		}

		ctx = y.BeforeRide(t.Context(), y.org, r.ID)
		if meanwhile {
			y.put(t, r.ID, fleet.RideChange{ParkingCategory: optional.Of(parked)})
			y.putVehicle(t, v.ID, fleet.VehicleChange{Location: optional.Of(*inside())})
			y.changeCustomer(t, fleet.Text(c.ID), fleet.CustomerChange{Language: optional.Of(fleet.Text("fr"))})
		}
		err = y.db.Write(ctx, func(tx *db.Tx) error {
			if r, err = y.LockRide(ctx, tx, y.org, r.ID); err != nil {
				return err
			}
			r, err = y.UpdateRide(ctx, tx, y.org, r, to(fleet.Completed), key)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		r, v, c = y.storedRide(t, r.ID), y.storedVehicle(t, v.ID), y.storedCustomer(t, r.CustomerID)
		if r.Status != fleet.Completed || *r.EndLocation != *inside() || v.State != fleet.Available || c.RideCount != 1 || c.OpenRideID != "" {
			t.Errorf("got %+v, %+v and %+v, want a ride that is over", r, v, c)
		}
		if meanwhile && (r.ParkingCategory != parked || v.Metadata["seen"] != "late" || c.Metadata["seen"] != "late" || c.Language != "fr") {
			t.Errorf("got %+v, %+v and %+v, want what was changed meanwhile to be there", r, v, c)
		}
		y.after(t, r.CreatedAt, time.Minute)
	}
	ctx := t.Context()
	if y.BeforeRide(ctx, y.org, "ride_none") != ctx {
		t.Error("something was read ahead of a ride that does not exist")
	}
}
