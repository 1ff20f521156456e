package fleetapi_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
)

// TestConflicts causes each refusal that depends on the state of records.
func TestConflicts(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	post := func(code string, body fields) fields {
		t.Helper()
		a := p.Do("POST", "/rides", jsonOf(t, body))
		refused(t, code, a, 409, code)
		var f fields
		a.JSON(&f)
		return f
	}
	put := func(code, path string, body fields) fields {
		t.Helper()
		a := p.Do("PUT", path, jsonOf(t, body))
		refused(t, code, a, 409, code)
		var f fields
		a.JSON(&f)
		return f
	}
	riding := p.ride()
	ride, vehicle := "/rides/"+riding.text("id"), riding.text("vehicle_id")

	got := put("invalid_transition", ride, fields{"status": "reserved"})
	if fmt.Sprint(got["from"], got["to"], got["allowed"]) != "activereserved[paused completed cancelled]" {
		t.Errorf("a transition that is not: %v", got)
	}
	post("vehicle_unavailable", fields{"vehicle_id": vehicle, "customer_id": p.customer()})
	put("vehicle_in_use", "/vehicles/"+vehicle, fields{"state": "removed"})
	refused(t, "vehicle_in_use", p.Do("DELETE", "/vehicles/"+vehicle, ""), 409, "vehicle_in_use")
	post("customer_has_open_ride", fields{"vehicle_id": p.vehicle().text("id"), "customer_id": riding.text("customer_id")})
	// A vehicle with this battery is out of service unless the request sets a state.
	low := p.vehicle(fields{"state": "removed", "battery_percent": 5})
	put("invalid_transition", "/vehicles/"+low.text("id"), fields{"state": "non_operational"})
	blocked := p.customer()
	send(t, p.Client, "PUT", "/customers/"+blocked, `{"status":"blocked","block_reason":"Vandalism"}`, 200)
	post("customer_blocked", fields{"vehicle_id": p.vehicle().text("id"), "customer_id": blocked})
	car := p.vehicle(fields{"vehicle_type_id": p.car}).text("id")
	driver := p.customer()
	post("license_required", fields{"vehicle_id": car, "customer_id": driver})
	send(t, p.Client, "PUT", "/customers/"+driver, `{"driver_license_status":"verified","birth_date":"2015-05-02"}`, 200)
	post("age_required", fields{"vehicle_id": car, "customer_id": driver})
	post("pricing_changed", fields{"vehicle_id": p.vehicle().text("id"), "customer_id": p.customer(), "pricing_plan_id": p.plan.ID, "pricing_plan_version": 7})
	v := p.vehicle()
	a := p.Do("POST", "/vehicles", jsonOf(t, fields{"subaccount_id": p.sub.ID, "code": strings.ToUpper(v.text("code")), "vehicle_type_id": p.scooter}))
	refused(t, "already_exists", a, 409, "already_exists")
	if a.Problem().Member != "code" {
		t.Errorf("already_exists: member is %q", a.Problem().Member)
	}

	// Zones, far from the others of this test.
	p.zone("no_ride", 10, 50)
	post("ride_start_not_allowed", fields{"vehicle_id": p.vehicle(fields{"location": fields{"lat": 50, "lng": 10}}).text("id"), "customer_id": p.customer()})
	got = put("out_of_zone_fee_required", ride, fields{"status": "completed", "end_location": fields{"lat": 50, "lng": 10}})
	if got["out_of_zone_amount"] != 1500.0 || got["currency"] != "EUR" {
		t.Errorf("a fee: %v", got)
	}
	send(t, p.Client, "PUT", "/pricing/"+p.plan.ID, `{"out_of_zone_amount":null}`, 200)
	free := "/rides/" + p.ride().text("id")
	put("ride_end_not_allowed", free, fields{"status": "completed", "end_location": fields{"lat": 50, "lng": 10}})
	send(t, p.Client, "PUT", "/vehicles/"+p.Ride(free).text("vehicle_id"), `{"location":{"lat":52.6,"lng":13.5}}`, 200)
	put("ride_not_cancellable", free, fields{"status": "cancelled"})

	r.live.write(func(ctx context.Context, tx *db.Tx) error {
		sub, err := p.fleet.LockSubaccountTx(ctx, tx, ours, p.sub.ID)
		if err != nil {
			return err
		}
		_, err = p.fleet.UpdateSubaccountTx(ctx, tx, ours, sub, fleet.SubaccountChange{DefaultPricingPlanID: optional.Of(fleet.NullString(""))})
		return err
	})
	post("no_pricing_plan", fields{"vehicle_id": p.vehicle().text("id"), "customer_id": p.customer()})
}

// Ride returns a ride.
func (p *tenant) Ride(path string) fields {
	p.t.Helper()
	return send(p.t, p.Client, "GET", path, "", 200)
}

// TestRide follows a ride from start to end, as an app would.
func TestRide(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	v := p.vehicle()
	code := strings.ToLower(v.text("code"))
	ride := p.created("/rides", fields{"vehicle_code": code, "customer_id": p.customer(), "status": "reserved"})
	path := "/rides/" + ride.text("id")
	if ride.text("vehicle_id") != v.text("id") || ride.text("subaccount_id") != p.sub.ID || ride["vehicle_code"] != nil {
		t.Errorf("by its code: %v", ride)
	}
	// A GET may be sent back unchanged, although time has passed.
	for _, status := range []string{"active", "paused", "active", "completed"} {
		got := p.Ride(path)
		got["status"] = status
		got["duration_seconds"] = 12345
		if status == "completed" {
			delete(got, "duration_seconds")
			got["distance_meters"] = 2140
			got["parking_category"] = "rack"
		}
		send(t, p.Client, "PUT", path, jsonOf(t, got), 200)
	}
	done := p.Ride(path)
	done["metadata"] = fields{"seen": "yes"}
	done["adjustment_amount"] = -100
	done["adjustment_reason"] = "Rain"
	done["payment_status"] = "paid"
	after := send(t, p.Client, "PUT", path, jsonOf(t, done), 200)
	if after.text("status") != "completed" || after["distance_meters"] != 2140.0 || after.text("payment_status") != "paid" || after["price"].(map[string]any)["adjustment_amount"] != -100.0 {
		t.Errorf("a ride that is over is %v", after)
	}
	after["duration_seconds"] = 12345
	refused(t, "another duration", p.Do("PUT", path, jsonOf(t, after)), 422, "validation_failed", "#/duration_seconds read_only")
	refused(t, "neither vehicle nor customer", p.Do("POST", "/rides", `{}`), 422, "validation_failed")
	refused(t, "a vehicle that is not", p.Do("POST", "/rides", jsonOf(t, fields{"vehicle_id": "veh_x", "customer_id": p.customer()})), 422, "validation_failed", "#/vehicle_id not_found")

	// Expanded.
	all := "?expand[]=customer&expand[]=vehicle&expand[]=pricing_plan"
	got := p.Get(path + all)
	var f fields
	got.JSON(&f)
	sub := func(f fields, name, member string) any { m, _ := f[name].(map[string]any); return m[member] }
	if got.Status != 200 || got.Header.Get("Etag") != "" || sub(f, "customer", "name") != "Ada Example" || sub(f, "vehicle", "code") != v.text("code") || sub(f, "pricing_plan", "name") != "Standard" {
		t.Errorf("expanded: %d %s", got.Status, got.Body)
	}
	send(t, p.Client, "DELETE", "/vehicles/"+v.text("id"), "", 204)
	p.Get(path + all).JSON(&f)
	if want := fmt.Sprintf(`{"code":%q,"deleted":true,"id":%q,"object":"vehicle"}`, v.text("code"), v.text("id")); jsonOf(t, f["vehicle"]) != want {
		t.Errorf("a deleted vehicle is %s, want %s", jsonOf(t, f["vehicle"]), want)
	}
	open := p.ride()
	send(t, p.Client, "GET", "/rides"+all+"&limit=1", "", 200)
	lines := p.Get("/rides"+all, "Accept: application/x-ndjson")
	if n := strings.Count(lines.Body, `"pricing_plan":{`); n != 2 {
		t.Errorf("%d of 2 are expanded in an export: %s", n, lines.Body)
	}
	p.Get("/vehicles/" + open.text("vehicle_id") + "?expand[]=vehicle_type&expand[]=current_ride&expand[]=pricing_plan").JSON(&f)
	if sub(f, "vehicle_type", "name") != "Scooter" || sub(f, "current_ride", "id") != open.text("id") || f["pricing_plan"] != nil {
		t.Errorf("a vehicle, expanded: %v", f)
	}

	// A key that may start rides but not read them gets only their ids.
	starter := p.As(r.live.key(ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"rides": {create}}}}))
	made := send(t, starter, "POST", "/rides", jsonOf(t, fields{"vehicle_id": p.vehicle().text("id"), "customer_id": p.customer()}), 201)
	if len(made) != 2 || made.text("object") != "ride" {
		t.Errorf("who may not read gets %v", made)
	}
	// A key of another subaccount learns nothing about the vehicle, not even its state.
	elsewhere := p.As(r.live.key(ours, apikey.Permissions{Level: apikey.ReadWrite}, p.other.ID))
	for _, body := range []fields{
		{"vehicle_id": p.vehicle().text("id"), "customer_id": p.customer()}, {"vehicle_code": p.vehicle().text("code")}, {"vehicle_id": open.text("vehicle_id")},
	} {
		refused(t, jsonOf(t, body), elsewhere.Do("POST", "/rides", jsonOf(t, body)), 403, "subaccount_out_of_scope")
	}
	refused(t, "another subaccount in the body", p.Do("POST", "/rides", jsonOf(t, fields{"vehicle_id": p.vehicle().text("id"), "customer_id": p.customer(), "subaccount_id": p.other.ID})), 403, "subaccount_out_of_scope")
	var list struct{ Data []fields }
	elsewhere.Get("/rides").JSON(&list)
	if len(list.Data) != 0 {
		t.Errorf("another subaccount lists %v", list.Data)
	}

	// The operator ends a ride against the rules.
	p.zone("no_ride", 10, 50)
	send(t, p.Client, "PUT", "/rides/"+open.text("id"), `{"status":"completed","end_location":{"lat":50,"lng":10},"end_reason":"operator"}`, 200)
	entry := send(t, p.Client, "GET", "/settings/audit-log?target_id="+open.text("id"), "", 200)
	if want := `{"status":{"from":"active","to":"completed"}}`; !strings.Contains(jsonOf(t, entry), want) || !strings.Contains(jsonOf(t, entry), "ride.ended_by_operator") {
		t.Errorf("the audit log has %s", jsonOf(t, entry))
	}
}

// TestYearOne: a time that has the value of an absent one is refused like any other that is too long ago.
func TestYearOne(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	const yearOne = "0001-01-01T00:00:00Z"
	start := fields{"vehicle_id": p.vehicle().text("id"), "customer_id": p.customer(), "started_at": yearOne}
	refused(t, "started_at", p.Do("POST", "/rides", jsonOf(t, start)), 422, "validation_failed")
	end := fields{"status": "completed", "ended_at": yearOne}
	refused(t, "ended_at", p.Do("PUT", "/rides/"+p.ride().text("id"), jsonOf(t, end)), 422, "validation_failed")
}

// TestOnce sends a create twice under one Idempotency-Key.
func TestOnce(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	body := jsonOf(t, fields{"vehicle_id": p.vehicle().text("id"), "customer_id": p.customer()})
	first := p.Do("POST", "/rides", body, "Idempotency-Key: k")
	again := p.Do("POST", "/rides", body, "Idempotency-Key: k")
	if first.Status != 201 || again.Status != 201 || again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" || again.Header.Get("Etag") != `"1"` {
		t.Errorf("got %d %s, then %d %s %v", first.Status, first.Body, again.Status, again.Body, again.Header)
	}
	elsewhere := p.As(r.live.key(ours, apikey.Permissions{Level: apikey.Admin}, p.other.ID))
	refused(t, "replayed to another subaccount", elsewhere.Do("POST", "/rides", body, "Idempotency-Key: k"), 403, "subaccount_out_of_scope")
	lower := p.As(r.live.key(ours, apikey.Permissions{Level: apikey.ReadWrite}))
	refused(t, "replayed to other permissions", lower.Do("POST", "/rides", body, "Idempotency-Key: k"), 422, "idempotency_key_reused")
}

// TestMembers: records have the fields of fleet-api.md 1, in its order.
func TestMembers(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	for path, want := range map[string]string{
		"/rides/" + p.ride().text("id"): "id object livemode subaccount_id external_id status trip_type customer_id vehicle_id pricing_plan_id pricing_plan_version reserved_at reservation_expires_at " +
			"started_at ended_at duration_seconds paused_seconds distance_meters start_location end_location start_zone_id end_zone_id end_reason cancel_reason " +
			"parking_verification_url parking_category price adjustment_amount adjustment_reason payment_status metadata created_at updated_at",
		"/vehicles/" + p.vehicle().text("id"): "id object livemode subaccount_id external_id code vehicle_type_id form_factor propulsion_type state last_event " +
			"state_changed_at location battery_percent fuel_percent current_range_meters odometer_meters last_reported_at pricing_plan_id device_id vin license_plate " +
			"current_ride_id public_vehicle_id metadata created_at updated_at",
		"/customers/" + p.customer(): "id object livemode subaccount_id external_id name email phone language status block_reason birth_date driver_license_status " +
			"marketing_consent default_currency ride_count last_ride_at open_ride_id metadata created_at updated_at",
		"/zones/" + p.zone("parking", 1, 1).text("id"): "id object livemode subaccount_id external_id name description type geometry rules priority starts_at ends_at metadata created_at updated_at",
		"/pricing/" + p.plan.ID: "id object livemode subaccount_id external_id name description url currency unlock_amount per_min_pricing per_km_pricing pause_per_min_amount " +
			"reservation_per_min_amount reservation_flat_amount reservation_free_minutes fare_cap out_of_zone_amount is_taxable tax_basis_points vehicle_type_ids active version metadata created_at updated_at",
		"/settings/subaccounts/" + p.sub.ID: "id object livemode name external_id status timezone currency country_code default_pricing_plan_id global_rules vehicle_types gbfs mds alerts created_at updated_at",
		"/settings":                         "object livemode name plan rate_limit_per_minute timezone default_language low_battery_percent battery_ready_percent max_ride_minutes cancel_grace_seconds cancel_grace_meters contact_lost_minutes missing_after_hours track_retention_days offline_ride_hours alert_retention_days updated_at",
	} {
		a := p.Get(path)
		if got := names(t, a.Body); a.Status != 200 || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
	s := send(t, p.Client, "GET", "/settings", "", 200)
	if s["plan"] != "professional" || s["rate_limit_per_minute"] != 300.0 || s["livemode"] != true || s["name"] != "Acme Mobility" {
		t.Errorf("the settings are %v", s)
	}
	s["plan"] = "enterprise"
	refused(t, "another plan", p.Do("PUT", "/settings", jsonOf(t, s)), 422, "validation_failed", "#/plan read_only")
}
