package fleet_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// TestUsageGivesPrice: usage and tariff of an ended ride give its price.
func TestUsageGivesPrice(t *testing.T) {
	holds := func(t *testing.T, s *fleet.Service, d *db.DB, org string, r *fleet.Ride) {
		t.Helper()
		want := tariff.Price{Currency: r.Price.Currency}
		if r.PricingPlanID != "" {
			terms, err := s.PlanTariff(t.Context(), d, org, string(r.PricingPlanID), *r.PricingPlanVersion)
			if err != nil {
				t.Fatal(err)
			}
			want = terms.Price(r.Usage())
		}
		if got := want.Adjusted(r.AdjustmentAmount); got != *r.Price {
			t.Errorf("%s %s ride: got %+v, want %+v", r.Status, r.CancelReason+r.EndReason, got, *r.Price)
		}
	}
	t.Run("made up", func(t *testing.T) {
		d := dbtest.NewFleet(t)
		s := fleet.Open(fleet.Config{DB: d})
		o := fleet.Organization{ID: "org-1", Name: "Acme"}
		if err := s.Provision(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		n := 0
		err := s.EachRide(t.Context(), o.ID, fleet.RideQuery{}, func(doc *fleet.Record) error {
			var r fleet.Ride
			if err := json.Unmarshal(doc.JSON, &r); err != nil {
				return err
			}
			if !r.Status.Open() {
				n++
				holds(t, s, d, o.ID, &r)
			}
			return nil
		})
		if err != nil || n < 100 {
			t.Errorf("got %d rides that have ended, %v", n, err)
		}
	})
	t.Run("ridden", func(t *testing.T) {
		y := newYard(t)
		y.write(t, func(ctx context.Context, tx *db.Tx) error {
			p, err := y.LockPlanTx(ctx, tx, y.org, y.plan.ID)
			if err == nil {
				_, err = y.UpdatePlanTx(ctx, tx, y.org, p, fleet.PlanChange{
					ReservationPerMin: optional.Of(int64(15)), OutOfZoneAmount: optional.Of(int64(900)), PausePerMinAmount: optional.Of(int64(7)),
				})
			}
			return err
		})
		end := func(status fleet.RideStatus, c fleet.RideChange) {
			t.Helper()
			r := y.ride(t, status, y.vehicle(t))
			y.after(t, r.CreatedAt, 130e9)
			if status == fleet.Reserved && c.Status.Value == fleet.Completed {
				if _, err := y.tryPut(t, r.ID, fleet.RideChange{Status: optional.Of(fleet.Active)}); err != nil {
					t.Fatal(err)
				}
			}
			r, err := y.tryPut(t, r.ID, c)
			if err != nil {
				t.Fatal(err)
			}
			holds(t, y.Service, y.db, y.org, &r)
		}
		completed, cancelled, operator := optional.Of(fleet.Completed), optional.Of(fleet.Cancelled), optional.Of(fleet.NullString("operator"))
		end(fleet.Active, fleet.RideChange{Status: completed})
		end(fleet.Active, fleet.RideChange{Status: completed, AdjustmentAmount: optional.Of(int64(-50))})
		end(fleet.Active, fleet.RideChange{Status: completed, EndReason: operator, EndLocation: optional.Of(*outside())})
		end(fleet.Active, fleet.RideChange{Status: completed, AcceptOutOfZoneFee: optional.Of(true), EndLocation: optional.Of(*outside())})
		end(fleet.Active, fleet.RideChange{Status: cancelled, CancelReason: operator})
		end(fleet.Reserved, fleet.RideChange{Status: completed})
		end(fleet.Reserved, fleet.RideChange{Status: cancelled})
		end(fleet.Reserved, fleet.RideChange{Status: cancelled, CancelReason: operator})
		if u := (&fleet.Ride{Status: fleet.Active}).Usage(); u != (tariff.Usage{}) {
			t.Errorf("an open ride: got %+v", u)
		}
		if _, err := y.PlanTariff(t.Context(), y.db, "org-2", y.plan.ID, 1); problem.Of(err) != problem.NotFound {
			t.Errorf("another organization's plan: got %v", err)
		}
	})
}

func TestRideChanges(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	first := y.ride(t, fleet.Reserved, v)
	if _, err := y.tryPut(t, first.ID, fleet.RideChange{Status: optional.Of(fleet.Cancelled)}); err != nil {
		t.Fatal(err)
	}
	second := y.ride(t, fleet.Active, v)
	for _, tt := range []struct {
		ride fleet.Ride
		want []fleet.VehicleEvent
	}{
		{first, []fleet.VehicleEvent{"reservation_start", "reservation_cancel"}},
		{second, []fleet.VehicleEvent{"trip_start"}},
	} {
		changes, err := y.RideChanges(t.Context(), y.db, y.org, &tt.ride)
		if err != nil {
			t.Fatal(err)
		}
		var got []fleet.VehicleEvent
		for _, c := range changes {
			got = append(got, c.Event)
			if c.Actor != testActor {
				t.Errorf("got %s by %+v", c.Event, c.Actor)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("got %v, want %v", got, tt.want)
		}
	}
	if events := fleet.Available.Events(fleet.NonOperational); events[0] != "maintenance" || fleet.OnTrip.Events(fleet.Removed) != nil {
		t.Errorf("got events %v", events)
	}
}
