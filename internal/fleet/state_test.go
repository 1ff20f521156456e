package fleet_test

import (
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// TestRideStatuses is the table of rides in fleet-api.md 2, for requests.
func TestRideStatuses(t *testing.T) {
	for _, tt := range []struct {
		from fleet.RideStatus
		open bool
		next []fleet.RideStatus
	}{
		{fleet.Reserved, true, []fleet.RideStatus{fleet.Active, fleet.Cancelled}},
		{fleet.Active, true, []fleet.RideStatus{fleet.Paused, fleet.Completed, fleet.Cancelled}},
		{fleet.Paused, true, []fleet.RideStatus{fleet.Active, fleet.Completed}},
		{fleet.Completed, false, nil},
		{fleet.Cancelled, false, nil},
	} {
		if got := tt.from.Next(); !slices.Equal(got, tt.next) || tt.from.Open() != tt.open {
			t.Errorf("%s: got %v, open %v; want %v, %v", tt.from, got, tt.from.Open(), tt.next, tt.open)
		}
	}
}

// TestVehicleMoves is the table of vehicles in fleet-api.md 2, for requests: every
// pair with its default event.
func TestVehicleMoves(t *testing.T) {
	usual := map[[2]fleet.VehicleState]fleet.VehicleEvent{
		{fleet.Available, fleet.NonOperational}: "maintenance",
		{fleet.NonOperational, fleet.Available}: "maintenance",
		{fleet.Available, fleet.Removed}:        "maintenance_pick_up",
		{fleet.NonOperational, fleet.Removed}:   "maintenance_pick_up",
		{fleet.Removed, fleet.Available}:        "provider_drop_off",
		{fleet.NonContactable, fleet.Available}: "provider_drop_off",
		{fleet.Missing, fleet.Available}:        "provider_drop_off",
		{fleet.Missing, fleet.NonOperational}:   "located",
		{fleet.NonContactable, fleet.Removed}:   "agency_pick_up",
		{fleet.Missing, fleet.Removed}:          "agency_pick_up",
	}
	states := []fleet.VehicleState{fleet.Available, fleet.VehicleReserved, fleet.OnTrip, fleet.NonOperational, fleet.NonContactable, fleet.Missing, fleet.Removed}
	for _, from := range states {
		for _, to := range states {
			want, can := usual[[2]fleet.VehicleState{from, to}]
			got := from.Events(to)
			if can && (len(got) == 0 || got[0] != want) || !can && got != nil {
				t.Errorf("%s to %s: got %v, want %q first", from, to, got, want)
			}
			if slices.Contains(from.Next(), to) != can {
				t.Errorf("%s: %v, and %s is %v", from, from.Next(), to, can)
			}
		}
	}
}
