package fleet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/period"
)

// TestAnalyticsFollowRides: every change of a ride shows in analytics at once, even
// if all chunks were packed.
func TestAnalyticsFollowRides(t *testing.T) {
	s := newSite(t)
	by := fleet.Actor{Type: "key"}
	var rides []string
	want := func(rideStatus fleet.RideStatus, count, completed, cancelled int64) {
		t.Helper()
		var total int64
		for _, id := range rides {
			r, err := s.Ride(t.Context(), s.db, s.org, id)
			if err != nil {
				t.Fatal(err)
			}
			if r.Price != nil {
				total += r.Price.TotalAmount
			}
		}
		now := time.Now()
		q := fleet.AnalyticsQuery{From: now.Add(-time.Hour), To: now.Add(time.Hour), Granularity: period.Total, Location: time.UTC}
		got, err := s.RideAnalytics(t.Context(), s.org, q)
		if err != nil {
			t.Fatal(err)
		}
		if g := got.Totals; g.RideCount != count || g.CompletedCount != completed || g.CancelledCount != cancelled || g.UniqueCustomers != count {
			t.Errorf("%s: got %+v, want %d rides and customers, %d completed, %d cancelled", rideStatus, g, count, completed, cancelled)
		}
		revenue, err := s.RevenueAnalytics(t.Context(), s.org, q)
		if err != nil || len(revenue.Totals) != 1 || revenue.Totals[0].TotalAmount != total || revenue.Totals[0].RideCount != completed+cancelled {
			t.Errorf("%s: got %+v, %v, want %d of %d rides", rideStatus, revenue.Totals, err, total, completed+cancelled)
		}
		if err := s.PackRollups(t.Context(), s.org); err != nil {
			t.Fatal(err)
		}
	}
	start := func(status fleet.RideStatus) {
		t.Helper()
		s.write(t, func(ctx context.Context, tx *db.Tx) error {
			n := newCustomer(s.sub.ID)
			n.Email, n.Phone = "", ""
			customer, err := s.CreateCustomerTx(ctx, tx, s.org, n)
			if err != nil {
				return err
			}
			vehicle, err := s.CreateVehicleTx(ctx, tx, s.org, fleet.NewVehicle{SubaccountID: s.sub.ID, Code: fmt.Sprintf("B-%d", len(rides)), VehicleTypeID: s.scooter, State: fleet.Available,
				Location: &geo.Position{Lat: 52.5, Lng: 13.4}}, by)
			if err != nil {
				return err
			}
			r, err := s.StartRideTx(ctx, tx, s.org, fleet.NewRide{Status: status, CustomerID: fleet.NullString(customer.ID), VehicleID: fleet.NullString(vehicle.ID)}, by)
			rides = append(rides, r.ID)
			return err
		})
	}
	change := func(i int, c fleet.RideChange) {
		t.Helper()
		s.write(t, func(ctx context.Context, tx *db.Tx) error {
			r, err := s.LockRideTx(ctx, tx, s.org, rides[i])
			if err == nil {
				_, err = s.UpdateRideTx(ctx, tx, s.org, r, c, by)
			}
			return err
		})
	}
	to := func(status fleet.RideStatus) fleet.RideChange {
		return fleet.RideChange{Status: optional.Of(status)}
	}
	want("none", 0, 0, 0)
	start(fleet.Active)
	want("active", 1, 0, 0)
	start(fleet.Reserved)
	want("reserved", 1, 0, 0)
	change(0, to(fleet.Completed))
	want("completed", 1, 1, 0)
	change(0, fleet.RideChange{AdjustmentAmount: optional.Of(int64(-30)), AdjustmentReason: optional.Of(fleet.NullString("a flat tyre"))})
	want("adjusted", 1, 1, 0)
	change(1, to(fleet.Active))
	want("started", 2, 1, 0)
	change(1, to(fleet.Paused))
	want("paused", 2, 1, 0)
	change(1, to(fleet.Completed))
	want("completed", 2, 2, 0)
	start(fleet.Reserved)
	change(2, to(fleet.Cancelled))
	want("cancelled", 3, 2, 1)
}
