package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
)

var byUser = fleet.Actor{Type: "user", ID: "user-1"}

// goodFile links its records by its own ids.
const goodFile = `{
	"subaccounts": [{"id": "berlin", "object": "subaccount", "livemode": false, "name": "Berlin", "external_id": "b", "status": "active", "timezone": "Europe/Berlin",
		"currency": "EUR", "country_code": "DE", "default_pricing_plan_id": "standard", "global_rules": [{"vehicle_type_ids": ["bike"], "ride_start_allowed": true, "ride_end_allowed": false, "ride_through_allowed": true}],
		"vehicle_types": [{"id": "scooter", "name": "Scooter", "form_factor": "scooter_standing", "propulsion_type": "electric", "max_range_meters": 45000, "reservation_minutes": 15, "min_age": 18, "default_pricing_plan_id": "standard"}],
		"gbfs": {"enabled": true, "system_id": "acme_berlin", "opening_hours": "24/7", "feed_contact_email": "feed@example.com"},
		"alerts": [{"id": "alert", "type": "other", "summary": "Marathon"}], "created_at": "2020-01-01T00:00:00.000Z"},
		{"id": "old", "name": "Old", "status": "archived", "timezone": "Asia/Tokyo", "currency": "JPY"}],
	"vehicle_types": [{"subaccount_id": "berlin", "id": "bike", "name": "Bike", "form_factor": "bicycle", "propulsion_type": "human"}],
	"pricing_plans": [{"subaccount_id": "berlin", "id": "standard", "name": "Standard", "currency": "EUR", "unlock_amount": 100, "per_min_pricing": [{"start": 0, "rate_amount": 25, "interval": 1, "end": null}],
		"vehicle_type_ids": ["scooter", "bike"], "version": 3}],
	"customers": [{"subaccount_id": "berlin", "id": "ada", "external_id": "app-1", "name": "Ada", "phone": "+49 30 901820"}],
	"zones": [{"subaccount_id": "berlin", "name": "Mitte", "type": "service_area", "geometry": {"type": "Polygon", "coordinates": [[[13, 52], [14, 52], [14, 53], [13, 52]]]}},
		{"subaccount_id": "old", "name": "Ginza", "type": "custom", "rules": [{"ride_start_allowed": true, "ride_end_allowed": true, "ride_through_allowed": true}],
		"geometry": {"type": "Polygon", "coordinates": [[[139, 35], [140, 35], [140, 36], [139, 35]]]}}],
	"vehicles": [{"subaccount_id": "berlin", "code": "B-1", "vehicle_type_id": "bike", "pricing_plan_id": "standard"}]}`

func (s *site) importText(t testing.TB, text string) (made fleet.Imported, err error) {
	t.Helper()
	f, err := fleet.ParseFile([]byte(text))
	if err != nil {
		return made, err
	}
	err = s.try(t, func(ctx context.Context, tx *db.Tx) (err error) {
		made, err = s.ImportTx(ctx, tx, s.org, f, byUser)
		return err
	})
	return made, err
}

func TestImport(t *testing.T) {
	s := newSite(t)
	made, err := s.importText(t, goodFile)
	if want := (fleet.Imported{Subaccounts: 2, VehicleTypes: 2, Plans: 1, Customers: 1, Zones: 2, Vehicles: 1}); err != nil || made != want {
		t.Fatalf("got %+v, %v; want %+v", made, faults(err), want)
	}
	subs, err := s.Subaccounts(t.Context(), s.db, s.org)
	if err != nil || len(subs) != 3 {
		t.Fatalf("got %d subaccounts, %v; want 3", len(subs), err)
	}
	var berlin, old fleet.Subaccount
	for _, sub := range subs {
		switch sub.Name {
		case "Berlin":
			berlin = sub
		case "Old":
			old = sub
		}
	}
	plans, err := s.Plans(t.Context(), s.db, s.org)
	if err != nil || len(plans) != 2 {
		t.Fatalf("got %d plans, %v; want 2", len(plans), err)
	}
	standard := plans[1]
	if old.Status != "archived" || berlin.Status != "active" {
		t.Errorf("got statuses %q and %q, want archived and active", old.Status, berlin.Status)
	}
	if len(berlin.VehicleTypes) != 2 || !strings.HasPrefix(berlin.VehicleTypes[0].ID, "vt_0") || standard.Version != 1 ||
		string(berlin.DefaultPricingPlanID) != standard.ID || string(berlin.VehicleTypes[0].DefaultPricingPlanID) != standard.ID ||
		standard.VehicleTypeIDs[1] != berlin.VehicleTypes[1].ID || berlin.GlobalRules[0].VehicleTypeIDs[0] != berlin.VehicleTypes[1].ID ||
		!strings.HasPrefix(berlin.Alerts[0].ID, "alert_0") || berlin.GBFS.SystemID != "acme_berlin" || berlin.CreatedAt.Std().Year() < 2021 {
		t.Errorf("got subaccount %+v\nand plan %+v", berlin, standard)
	}

	// Existing ids are linked; external ids and unique fields conflict with a
	// second import.
	known, _ := json.Marshal(map[string]any{
		"subaccounts":   []fleet.Subaccount{berlin},
		"pricing_plans": plans[1:],
		"zones":         []map[string]any{{"name": "Again", "type": "parking", "geometry": json.RawMessage(`{"type": "Polygon", "coordinates": [[[13, 52], [14, 52], [14, 53], [13, 52]]]}`)}},
	})
	made, err = s.importText(t, string(known))
	if want := (fleet.Imported{Zones: 1}); err != nil || made != want {
		t.Errorf("again by their ids: got %+v, %v; want %+v", made, faults(err), want)
	}
	_, err = s.importText(t, goodFile)
	if got, want := faults(err), "subaccounts.0.external_id conflict"; !strings.Contains(got, want) {
		t.Errorf("again: got %s, want it to have %q", got, want)
	}
}

// TestImportFaults: an import reports all issues at once and creates nothing.
func TestImportFaults(t *testing.T) {
	s := newSite(t)
	_, err := s.importText(t, `{
		"subaccounts": [{"id": "a", "name": "", "timezone": "Mars/Olympus", "currency": "EURO", "status": "closed", "default_pricing_plan_id": "none",
			"gbfs": {"enabled": true}, "vehicle_types": [{"id": "x", "name": "X", "form_factor": "rocket", "propulsion_type": "electric", "default_pricing_plan_id": "none"}]}, {"id": "a", "name": "A", "timezone": "UTC", "currency": "EUR"}],
		"vehicle_types": [{"subaccount_id": "a", "id": "x", "name": "Y", "form_factor": "other", "propulsion_type": "human"}, {"subaccount_id": "b", "name": "Z", "form_factor": "other", "propulsion_type": "human"}],
		"pricing_plans": [{"subaccount_id": "a", "id": "p", "name": "P", "per_min_pricing": [{"start": 0}, {"start": 5, "end": 2}]}, {"name": "Q"}],
		"customers": [{"subaccount_id": "a", "email": "nobody"}, {"subaccount_id": "a", "external_id": "1"}, {"subaccount_id": "a", "external_id": "1"}],
		"zones": [{"subaccount_id": "a", "name": "Z", "type": "custom", "rules": [{"vehicle_type_ids": ["x", "y"]}]}]}`)
	wantFaults(t, "all that is wrong", err, strings.Join([]string{
		"customers.0.email invalid_format",
		"customers.2.external_id conflict",
		"pricing_plans.0.per_min_pricing.1.end too_small",
		"pricing_plans.1.subaccount_id required",
		"subaccounts.0.currency invalid_value",
		"subaccounts.0.default_pricing_plan_id not_found",
		"subaccounts.0.gbfs.feed_contact_email required",
		"subaccounts.0.gbfs.opening_hours required",
		"subaccounts.0.gbfs.system_id required",
		"subaccounts.0.name required",
		"subaccounts.0.status invalid_value",
		"subaccounts.0.timezone invalid_value",
		"subaccounts.0.vehicle_types.0.default_pricing_plan_id not_found",
		"subaccounts.0.vehicle_types.0.form_factor invalid_value",
		"subaccounts.0.vehicle_types.0.max_range_meters required",
		"subaccounts.1.id conflict",
		"vehicle_types.0.id conflict",
		"vehicle_types.1.subaccount_id not_found",
		"zones.0.geometry required",
		"zones.0.rules.0.vehicle_type_ids.1 not_found",
	}, ", "))
	if subs, err := s.Subaccounts(t.Context(), s.db, s.org); err != nil || len(subs) != 1 {
		t.Errorf("got %d subaccounts, %v; want the 1 there was", len(subs), err)
	}
}

func TestParseFile(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"empty", `{}`, "none"},
		{"not JSON", `{`, " invalid_format"},
		{"null", `null`, " invalid_format"},
		{"a list", `[]`, " invalid_format"},
		{"unknown list", `{"rides":[]}`, "rides unknown_field"},
		{"no list", `{"zones":{}}`, "zones invalid_type"},
		{"no object", `{"zones":[null,1,{}]}`, "zones.0 invalid_type, zones.1 invalid_type"},
		{"wrong types", `{"customers":[{"name":7},{},{"metadata":{"a":1}}],"vehicles":[{"location":{"lat":"1"}}]}`,
			"customers.0.name invalid_type, customers.2.metadata invalid_type, vehicles.0.location.lat invalid_type"},
		{"a shape", `{"zones":[{"geometry":{"type":"Point"}}]}`, "zones.0.geometry invalid_geometry"},
		{"a time", `{"zones":[{"starts_at":"noon"}]}`, "zones.0 invalid_format"},
	} {
		_, err := fleet.ParseFile([]byte(tt.text))
		wantFaults(t, tt.name, err, tt.want)
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte(goodFile))
	f.Add([]byte(`{"zones":[{"geometry":{"type":"Point"}}],"vehicles":[{"location":null}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := fleet.ParseFile(text)
		if err == nil && !json.Valid(text) {
			t.Fatalf("took %q: %+v", text, file)
		}
		if got := faults(err); strings.HasPrefix(got, "not a problem") {
			t.Fatal(got)
		}
	})
}

// BenchmarkImport imports 10,000 vehicles.
func BenchmarkImport(b *testing.B) {
	var text strings.Builder
	text.WriteString(`{"vehicles":[`)
	for i := range 10_000 {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `{"code":"B-%d","vehicle_type_id":"scooter","state":"available","location":{"lat":52.%06d,"lng":13.%06d},"battery_percent":%d,"device_id":"86%013d"}`, i, i, i, 20+i%81, i)
	}
	text.WriteString(`],"vehicle_types":[{"id":"scooter","name":"Scooter","form_factor":"scooter_standing","propulsion_type":"electric","max_range_meters":45000}]}`)
	for b.Loop() {
		b.StopTimer()
		s := newSite(b)
		b.StartTimer()
		start := time.Now()
		if made, err := s.importText(b, text.String()); err != nil || made.Vehicles != 10_000 {
			b.Fatal(made, faults(err))
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/import")
	}
}

// TestImportStates checks the state of imported vehicles, and why they are in it, by their records in
// the file.
func TestImportStates(t *testing.T) {
	s := newSite(t)
	var vehicles []string
	type state struct {
		state fleet.VehicleState
		event fleet.VehicleEvent
	}
	want := map[string]state{}
	available, low, removed := state{fleet.Available, "provider_drop_off"}, state{fleet.NonOperational, "battery_low"}, state{fleet.Removed, "unspecified"}
	for i, tt := range []struct {
		state, event, location, battery string
		want                            state
	}{
		{"available", "trip_end", here, "80", available},
		{"available", "trip_end", here, "null", available},
		{"available", "trip_end", here, "15", available},
		{"available", "trip_end", here, "14", low}, // the limit was lower where it comes from
		{"reserved", "reservation_start", here, "80", available},
		{"reserved", "reservation_start", here, "8", low},
		{"on_trip", "trip_start", here, "80", available},
		{"on_trip", "trip_start", here, "8", low},
		{"on_trip", "trip_start", "null", "8", removed},
		{"non_operational", "maintenance", here, "80", state{fleet.NonOperational, "maintenance"}},
		{"non_operational", "maintenance", here, "8", state{fleet.NonOperational, "maintenance"}},
		{"non_operational", "system_suspend", here, "80", state{fleet.NonOperational, "system_suspend"}},
		{"non_operational", "battery_low", here, "8", low},
		{"non_operational", "battery_low", here, "20", low}, // not ready yet
		{"non_operational", "comms_restored", here, "80", state{fleet.NonOperational, "maintenance"}},
		{"non_operational", "", here, "8", state{fleet.NonOperational, "maintenance"}},
		{"non_operational", "located", "null", "80", removed},
		{"non_contactable", "comms_lost", here, "80", removed},
		{"non_contactable", "comms_lost", here, "8", removed},
		{"missing", "not_located", here, "80", removed},
		{"missing", "not_located", "null", "8", removed},
		{"removed", "maintenance_pick_up", here, "80", removed},
		{"removed", "maintenance_pick_up", here, "8", removed},
		{"", "", "null", "null", removed},
	} {
		code := fmt.Sprintf("S-%d", i)
		vehicles = append(vehicles, fmt.Sprintf(`{"code": %q, "vehicle_type_id": %q, "state": %q, "last_event": %q, "location": %s, "battery_percent": %s}`,
			code, s.scooter, tt.state, tt.event, tt.location, tt.battery))
		want[code] = tt.want
	}
	if _, err := s.importText(t, `{"vehicles": [`+strings.Join(vehicles, ",")+"]}"); err != nil {
		t.Fatal(faults(err))
	}
	list := s.vehicles(t)
	if len(list) != len(want) {
		t.Fatalf("got %d vehicles, want %d", len(list), len(want))
	}
	for _, v := range list {
		if got := (state{v.State, v.LastEvent}); got != want[v.Code] {
			t.Errorf("%s: got %s, want %s", v.Code, got, want[v.Code])
		}
	}
	_, err := s.importText(t, fmt.Sprintf(`{"vehicles": [{"code": "S-99", "vehicle_type_id": %q, "state": "gone"}]}`, s.scooter))
	wantFaults(t, "no such state", err, "vehicles.0.state invalid_value")
	if got := err.Error(); !strings.Contains(got, "on_trip") {
		t.Errorf("the error does not name the states: %s", got)
	}
	_, err = s.importText(t, fmt.Sprintf(`{"vehicles": [{"code": "S-99", "vehicle_type_id": %q, "state": "available", "location": %s, "battery_percent": -1}]}`, s.scooter, here))
	wantFaults(t, "a level below 0", err, "vehicles.0.battery_percent too_small")
}

// vehicles returns all vehicles.
func (s *site) vehicles(t *testing.T) []fleet.Vehicle {
	t.Helper()
	list, err := db.All(t.Context(), s.db, func(row db.Row) (v fleet.Vehicle, err error) {
		return v, row.Scan(db.IntoJSON(&v))
	}, "SELECT doc FROM vehicles ORDER BY code")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestImportOfExport imports an export with a vehicle in each state, with a low battery and without, and
// then the export of the imported fleet.
func TestImportOfExport(t *testing.T) {
	y := newYard(t)
	type state struct {
		state fleet.VehicleState
		event fleet.VehicleEvent
	}
	want := map[string]state{}
	available, low, removed := state{fleet.Available, "provider_drop_off"}, state{fleet.NonOperational, "battery_low"}, state{fleet.Removed, "unspecified"}
	level := func(percent int64) fleet.VehicleChange {
		return fleet.VehicleChange{BatteryPercent: optional.Of(percent)}
	}
	becomes := func(to fleet.VehicleState, event fleet.VehicleEvent) fleet.VehicleChange {
		return fleet.VehicleChange{State: optional.Of(to), Event: optional.Of(event)}
	}
	nowhere := fleet.VehicleChange{Location: optional.Value[geo.Position]{Set: true, Null: true}}
	wait := func(d time.Duration) func(v fleet.Vehicle) {
		return func(v fleet.Vehicle) { y.after(t, v.CreatedAt, d) }
	}
	put := func(changes ...fleet.VehicleChange) func(v fleet.Vehicle) {
		return func(v fleet.Vehicle) {
			for _, c := range changes {
				y.putVehicle(t, v.ID, c)
			}
		}
	}
	ride := func(status fleet.RideStatus, changes ...fleet.VehicleChange) func(v fleet.Vehicle) {
		return func(v fleet.Vehicle) {
			y.ride(t, status, v)
			put(changes...)(v)
		}
	}
	// The first ones wait: the vehicles after them are new.
	for _, tt := range []struct {
		act  func(v fleet.Vehicle)
		is   fleet.VehicleState
		want state
	}{
		{wait(73 * time.Hour), fleet.Missing, removed},
		{wait(time.Hour), fleet.NonContactable, removed},
		{func(v fleet.Vehicle) {
			ride(fleet.Active, level(8))(v)
			wait(time.Hour)(v)
		}, fleet.NonContactable, removed},
		{func(v fleet.Vehicle) {
			put(becomes(fleet.NonOperational, "off_hours"))(v)
			wait(time.Hour)(v)
			put(level(80))(v)
		}, fleet.NonOperational, state{fleet.NonOperational, "maintenance"}}, // the last event is comms_restored
		{put(), fleet.Available, available},
		{put(level(15)), fleet.Available, available},
		{put(nowhere), fleet.Available, removed},
		{ride(fleet.Reserved), fleet.VehicleReserved, available},
		{ride(fleet.Reserved, level(8)), fleet.VehicleReserved, low},
		{ride(fleet.Active), fleet.OnTrip, available},
		{ride(fleet.Active, level(8)), fleet.OnTrip, low},
		{ride(fleet.Active, nowhere), fleet.OnTrip, removed},
		{put(level(8)), fleet.NonOperational, low},
		{put(level(8), level(20)), fleet.NonOperational, low},
		{put(level(8), nowhere), fleet.NonOperational, removed},
		{put(becomes(fleet.NonOperational, "maintenance")), fleet.NonOperational, state{fleet.NonOperational, "maintenance"}},
		{put(becomes(fleet.NonOperational, "maintenance"), level(8)), fleet.NonOperational, state{fleet.NonOperational, "maintenance"}},
		{put(becomes(fleet.NonOperational, "system_suspend")), fleet.NonOperational, state{fleet.NonOperational, "system_suspend"}},
		{put(becomes(fleet.Removed, "rebalance_pick_up")), fleet.Removed, removed},
		{put(becomes(fleet.Removed, "rebalance_pick_up"), level(8)), fleet.Removed, removed},
	} {
		v := y.vehicle(t)
		tt.act(v)
		if is := y.storedVehicle(t, v.ID).State; is != tt.is {
			t.Fatalf("%s is %s, want %s", v.Code, is, tt.is)
		}
		want[v.Code] = tt.want
	}

	from := y.site
	for _, name := range []string{"the export", "the export of the import"} {
		to := newSiteOn(t, dbtest.NewFleet(t), false)
		(&yard{site: to}).after(t, y.sub.CreatedAt, 100*time.Hour) // no report is from the future
		made, err := to.importText(t, from.exportText(t))
		if err != nil || made.Vehicles != len(want) {
			t.Fatalf("%s: got %+v, %v", name, made, faults(err))
		}
		before, after := from.vehicles(t), to.vehicles(t)
		if len(after) != len(before) {
			t.Fatalf("%s: got %d vehicles, want %d", name, len(after), len(before))
		}
		for i, v := range after {
			if got := (state{v.State, v.LastEvent}); got != want[v.Code] {
				t.Errorf("%s: %s: got %s, want %s", name, v.Code, got, want[v.Code])
			}
			if b := before[i]; v.Code != b.Code || *v.BatteryPercent != *b.BatteryPercent || (v.Location == nil) != (b.Location == nil) {
				t.Errorf("%s: got %+v, want %+v", name, v, b)
			}
		}
		from = to
	}
}

// exportText returns the subaccount, the plan and the vehicles of a fleet as a file to import.
func (s *site) exportText(t *testing.T) string {
	t.Helper()
	file := map[string][]json.RawMessage{}
	subs, err := s.Subaccounts(t.Context(), s.db, s.org)
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range subs {
		file["subaccounts"] = append(file["subaccounts"], mustEncode(t, sub))
	}
	plans, err := s.Plans(t.Context(), s.db, s.org)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plans {
		file["pricing_plans"] = append(file["pricing_plans"], mustEncode(t, p))
	}
	err = s.EachVehicle(t.Context(), s.org, fleet.VehicleQuery{}, func(r *fleet.Record) error {
		file["vehicles"] = append(file["vehicles"], bytes.Clone(r.JSON))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(mustEncode(t, file))
}

const here = `{"lat": 52.5, "lng": 13.4}`
