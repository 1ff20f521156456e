package fleetapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
)

// sumOf checks that the lines of an explained price add up to its total, and returns their
// codes and amounts.
func sumOf(t *testing.T, what string, explained fields) string {
	t.Helper()
	var sum float64
	var text strings.Builder
	for _, l := range explained["lines"].([]any) {
		line := l.(map[string]any)
		sum += line["amount"].(float64)
		text.WriteString(fmt.Sprintf("%v %v; ", line["code"], line["amount"]))
	}
	if sum != explained["total_amount"] {
		t.Errorf("%s: lines add up to %v, want %v: %v", what, sum, explained["total_amount"], explained["lines"])
	}
	return text.String()
}

func TestQuotes(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	for _, tt := range []struct {
		body fields
		want string
	}{
		{fields{"vehicle_id": p.vehicle().text("id"), "duration_seconds": 675, "distance_meters": 2140}, "unlock 100; time 300; "},
		{fields{"vehicle_type_id": p.scooter, "subaccount_id": p.sub.ID, "duration_seconds": 600, "reserved_seconds": 750, "out_of_zone": true}, "unlock 100; time 250; reservation 120; out_of_zone 1500; "},
		{fields{"vehicle_type_id": p.scooter, "subaccount_id": p.sub.ID, "pricing_plan_id": p.plan.ID, "duration_seconds": 0}, "unlock 100; "},
	} {
		got := send(t, p.Client, "POST", "/quotes", jsonOf(t, tt.body), 200)
		if lines := sumOf(t, tt.want, got); lines != tt.want || got["pricing_plan_id"] != p.plan.ID || got["vehicle_type_id"] != p.scooter {
			t.Errorf("%v: got %q of %v, want %q", tt.body, lines, got, tt.want)
		}
	}
	// The same key narrowed to the subaccount need not name it.
	send(t, p.Client, "POST", "/quotes", jsonOf(t, fields{"vehicle_type_id": p.scooter, "duration_seconds": 60}), 200, "X-Subaccount-Id: "+p.sub.ID)

	for name, tt := range map[string]struct {
		body fields
		want string // code and pointer
	}{
		"no vehicle":       {fields{"duration_seconds": 60}, "#/vehicle_id required"},
		"both":             {fields{"vehicle_id": p.vehicle().text("id"), "vehicle_type_id": p.scooter, "duration_seconds": 60}, "#/vehicle_type_id conflict"},
		"no subaccount":    {fields{"vehicle_type_id": p.scooter, "duration_seconds": 60}, "#/subaccount_id required"},
		"unknown vehicle":  {fields{"vehicle_id": "veh_01KKNTQ7XJEVR88Y42WDNGTN4V", "duration_seconds": 60}, "#/vehicle_id not_found"},
		"unknown type":     {fields{"vehicle_type_id": "vt_x", "subaccount_id": p.sub.ID, "duration_seconds": 60}, "#/vehicle_type_id not_found"},
		"unknown plan":     {fields{"vehicle_type_id": p.scooter, "subaccount_id": p.sub.ID, "pricing_plan_id": "plan_x", "duration_seconds": 60}, "#/pricing_plan_id not_found"},
		"too long":         {fields{"vehicle_type_id": p.scooter, "subaccount_id": p.sub.ID, "duration_seconds": 1440*60 + 1}, "#/duration_seconds too_large"},
		"too far":          {fields{"vehicle_type_id": p.scooter, "subaccount_id": p.sub.ID, "duration_seconds": 60, "distance_meters": 10_000_001}, "#/distance_meters too_large"},
		"more pause":       {fields{"vehicle_type_id": p.scooter, "subaccount_id": p.sub.ID, "duration_seconds": 60, "paused_seconds": 61}, "#/paused_seconds too_large"},
		"no reservations":  {fields{"vehicle_type_id": p.car, "subaccount_id": p.sub.ID, "duration_seconds": 60, "reserved_seconds": 0}, "#/reserved_seconds invalid_value"},
		"without duration": {fields{"vehicle_type_id": p.scooter, "subaccount_id": p.sub.ID}, "#/duration_seconds required"},
	} {
		refused(t, name, p.Do("POST", "/quotes", jsonOf(t, tt.body)), 422, "validation_failed", tt.want)
	}
	refused(t, "another subaccount", r.live.As(r.live.key(ours, apikey.Permissions{Level: apikey.Admin}, p.other.ID)).Do("POST", "/quotes",
		jsonOf(t, fields{"vehicle_id": p.vehicle().text("id"), "duration_seconds": 60})), 403, "subaccount_out_of_scope")
	r.live.write(func(ctx context.Context, tx *db.Tx) error {
		plan, err := p.fleet.LockPlanTx(ctx, tx, ours, p.plan.ID)
		if err != nil {
			return err
		}
		_, err = p.fleet.UpdatePlanTx(ctx, tx, ours, plan, fleet.PlanChange{Active: optional.Of(false), OutOfZoneAmount: optional.Value[int64]{Set: true, Null: true}})
		return err
	})
	refused(t, "a retired plan", p.Do("POST", "/quotes", jsonOf(t, fields{"vehicle_type_id": p.scooter, "subaccount_id": p.sub.ID, "duration_seconds": 60})), 409, "no_pricing_plan")
}

// TestRidePrices explains the price of a ride while it goes on, when it has ended under an older
// version of its plan, and after an adjustment.
func TestRidePrices(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	send(t, p.Client, "PUT", "/pricing/"+p.plan.ID, `{"per_min_pricing":[]}`, 200) // however long the test takes
	ride := "/rides/" + p.ride().text("id")
	open := send(t, p.Client, "GET", ride+"/price", "", 200)
	if lines := sumOf(t, "open", open); lines != "unlock 100; " || open["final"] != false {
		t.Errorf("open: %v", open)
	}
	send(t, p.Client, "PUT", "/pricing/"+p.plan.ID, `{"unlock_amount":900}`, 200)
	send(t, p.Client, "PUT", ride, `{"status":"completed","distance_meters":2140}`, 200)
	send(t, p.Client, "PUT", ride, `{"adjustment_amount":-5000,"adjustment_reason":"late"}`, 200)
	got := send(t, p.Client, "GET", ride+"/price", "", 200)
	if lines := sumOf(t, "ended", got); lines != "unlock 100; adjustment -5000; floor 4900; " || got["final"] != true || got["pricing_plan_version"] != 2.0 {
		t.Errorf("ended: %q of %v", lines, got)
	}
	moved := send(t, p.Client, "POST", "/rides", jsonOf(t, fields{"vehicle_id": p.vehicle().text("id"), "trip_type": "rebalance"}), 201)
	free := send(t, p.Client, "GET", "/rides/"+moved.text("id")+"/price", "", 200)
	if lines := sumOf(t, "free", free); lines != "" || free["currency"] != "EUR" || free["pricing_plan_id"] != nil {
		t.Errorf("free: %v", free)
	}
}
