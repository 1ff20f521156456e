package fleet_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// TestBulkHalfWay: if an update of many vehicles ends half-way, each has its outcome. If it ends
// before any is updated, there is an error alone.
func TestBulkHalfWay(t *testing.T) {
	y := newYard(t)
	var ids []string
	for range 150 {
		ids = append(ids, y.vehicle(t).ID)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	update := func(v *fleet.Vehicle) ([]fleet.VehicleChange, error) {
		if calls++; calls == 60 { // the transaction may still be committed
			cancel()
		}
		return []fleet.VehicleChange{battery(41)}, nil
	}
	outcomes, err := y.UpdateVehicles(ctx, y.org, ids, fleet.Actor{}, update)
	if err != nil || len(outcomes) != len(ids) {
		t.Fatalf("got %d outcomes, %v", len(outcomes), err)
	}
	updated := 0
	for _, o := range outcomes {
		v, err := y.Vehicle(t.Context(), y.db, y.org, o.ID)
		if err != nil {
			t.Fatal(err)
		}
		is := v.BatteryPercent != nil && *v.BatteryPercent == 41
		if is != (o.Err == nil) || o.Err != nil && !errors.Is(o.Err, context.Canceled) {
			t.Errorf("vehicle %s is updated: %t, outcome %v", o.ID, is, o.Err)
		}
		if is {
			updated++
		}
	}
	if updated != 50 && updated != 100 {
		t.Errorf("%d are updated, want one or two transactions of 50", updated)
	}
	if outcomes, err := y.UpdateVehicles(ctx, y.org, ids, fleet.Actor{}, update); !errors.Is(err, context.Canceled) || outcomes != nil {
		t.Errorf("got %d outcomes, %v", len(outcomes), err)
	}
}
