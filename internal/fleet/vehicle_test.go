package fleet_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// TestVehicles is the table of vehicles in fleet-api.md 2 except rides: every row
// with its event. TestRides has the rest.
func TestVehicles(t *testing.T) {
	battery := func(percent int64) fleet.VehicleChange {
		return fleet.VehicleChange{BatteryPercent: optional.Of(percent)}
	}
	state := func(to fleet.VehicleState, event fleet.VehicleEvent) fleet.VehicleChange {
		c := fleet.VehicleChange{State: optional.Of(to)}
		if event != "" {
			c.Event = optional.Of(event)
		}
		return c
	}
	const lost, missing = 31 * time.Minute, 73 * time.Hour
	type step struct {
		change fleet.VehicleChange
		wait   time.Duration // instead of a change
	}
	for _, tt := range []struct {
		row   string
		first fleet.VehicleState
		steps []step
		want  []string // the last events and states
	}{
		{"POST removed", fleet.Removed, nil, nil},
		{"POST available", fleet.Available, nil, []string{"provider_drop_off available"}},
		{"available, report below low_battery_percent", fleet.Available, []step{{change: battery(14)}}, []string{"battery_low non_operational"}},
		{"available, report of low_battery_percent", fleet.Available, []step{{change: battery(15)}}, []string{"provider_drop_off available"}},
		{"after battery_low, report of battery_ready_percent", fleet.Available, []step{{change: battery(14)}, {change: battery(30)}},
			[]string{"battery_low non_operational", "battery_charged available"}},
		{"after battery_low, report below battery_ready_percent", fleet.Available, []step{{change: battery(14)}, {change: battery(29)}}, []string{"battery_low non_operational"}},
		{"after battery_low and silence, report of battery_ready_percent", fleet.Available, []step{{change: battery(14)}, {wait: lost}, {change: battery(90)}},
			[]string{"battery_low non_operational", "comms_lost non_contactable", "comms_restored non_operational", "battery_charged available"}},
		{"non_operational otherwise, report of battery_ready_percent", fleet.Available, []step{{change: state(fleet.NonOperational, "")}, {change: battery(90)}}, []string{"maintenance non_operational"}},
		{"available, PUT non_operational", fleet.Available, []step{{change: state(fleet.NonOperational, "")}}, []string{"maintenance non_operational"}},
		{"available, PUT non_operational, off_hours", fleet.Available, []step{{change: state(fleet.NonOperational, "off_hours")}}, []string{"off_hours non_operational"}},
		{"non_operational, PUT available", fleet.Available, []step{{change: state(fleet.NonOperational, "")}, {change: state(fleet.Available, "")}}, []string{"maintenance non_operational", "maintenance available"}},
		{"available, PUT removed", fleet.Available, []step{{change: state(fleet.Removed, "")}}, []string{"maintenance_pick_up removed"}},
		{"non_operational, PUT removed", fleet.Available, []step{{change: state(fleet.NonOperational, "")}, {change: state(fleet.Removed, "agency_pick_up")}}, []string{"agency_pick_up removed"}},
		{"removed, PUT available", fleet.Removed, []step{{change: state(fleet.Available, "")}}, []string{"provider_drop_off available"}},
		{"non_contactable, PUT available", fleet.Available, []step{{wait: lost}, {change: state(fleet.Available, "agency_drop_off")}}, []string{"comms_lost non_contactable", "agency_drop_off available"}},
		{"missing, PUT available", fleet.Available, []step{{wait: missing}, {change: state(fleet.Available, "")}}, []string{"not_located missing", "provider_drop_off available"}},
		{"put into service long ago, and silent", fleet.Removed, []step{{wait: missing}, {change: state(fleet.Available, "")}, {wait: missing + time.Hour}},
			[]string{"provider_drop_off available", "comms_lost non_contactable"}},
		{"available, no report for contact_lost_minutes", fleet.Available, []step{{wait: lost}}, []string{"comms_lost non_contactable"}},
		{"non_operational, no report for contact_lost_minutes", fleet.Available, []step{{change: state(fleet.NonOperational, "")}, {wait: lost}}, []string{"comms_lost non_contactable"}},
		{"removed, no report", fleet.Removed, []step{{wait: missing}}, nil},
		{"non_contactable, report", fleet.Available, []step{{change: state(fleet.NonOperational, "off_hours")}, {wait: lost}, {change: battery(50)}}, []string{"comms_lost non_contactable", "comms_restored non_operational"}},
		{"non_contactable, report of a low battery", fleet.Available, []step{{wait: lost}, {change: battery(5)}}, []string{"comms_restored available", "battery_low non_operational"}},
		{"non_contactable, missing_after_hours without a report", fleet.Available, []step{{wait: missing}}, []string{"comms_lost non_contactable", "not_located missing"}},
		{"missing, report", fleet.Available, []step{{wait: missing}, {change: battery(80)}}, []string{"not_located missing", "located non_operational"}},
		{"missing, PUT non_operational", fleet.Available, []step{{wait: missing}, {change: state(fleet.NonOperational, "")}}, []string{"located non_operational"}},
		{"non_contactable, PUT removed", fleet.Available, []step{{wait: lost}, {change: state(fleet.Removed, "unspecified")}}, []string{"unspecified removed"}},
		{"missing, PUT removed", fleet.Available, []step{{wait: missing}, {change: state(fleet.Removed, "")}}, []string{"agency_pick_up removed"}},
		{"the same state", fleet.Available, []step{{change: state(fleet.Available, "provider_drop_off")}}, []string{"provider_drop_off available"}},
	} {
		t.Run(tt.row, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			v := y.vehicle(t, func(n *fleet.NewVehicle) { n.State = tt.first })
			for _, s := range tt.steps {
				if s.wait > 0 {
					y.after(t, v.CreatedAt, s.wait)
				} else {
					y.putVehicle(t, v.ID, s.change)
				}
			}
			got := y.history(t, v.ID)
			if len(got) < len(tt.want) || !slices.Equal(got[len(got)-len(tt.want):], tt.want) {
				t.Errorf("got %q, want %q at the end", got, tt.want)
			}
			w := y.storedVehicle(t, v.ID)
			if last := len(got) - 1; last >= 0 && got[last] != string(w.LastEvent)+" "+string(w.State) {
				t.Errorf("got %s %s, and the last change was %s", w.LastEvent, w.State, got[last])
			}
		})
	}
}

// TestContactDuringRide: rides of vehicles out of contact continue.
func TestContactDuringRide(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	r := y.ride(t, fleet.Reserved, v)
	y.put(t, r.ID, to(fleet.Active))
	y.after(t, r.CreatedAt, 100*time.Hour/5) // 20 hours
	y.putVehicle(t, v.ID, fleet.VehicleChange{Location: optional.Of(*inside())})
	y.after(t, r.CreatedAt, 21*time.Hour)
	if got := y.storedVehicle(t, v.ID).State; got != fleet.NonContactable {
		t.Fatalf("got %s, want non_contactable", got)
	}
	_, err := y.tryPutVehicle(t, v.ID, fleet.VehicleChange{State: optional.Of(fleet.Available)})
	wantFaults(t, "a change of state", err, "vehicle_in_use")
	r = y.put(t, r.ID, to(fleet.Completed))
	if w := y.storedVehicle(t, v.ID); w.State != fleet.NonContactable || w.PublicVehicleID == v.PublicVehicleID || r.EndLocation == nil {
		t.Errorf("got %s after the ride, want non_contactable", w.State)
	}
	if w := y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(10))}); w.State != fleet.NonOperational || w.LastEvent != "battery_low" {
		t.Errorf("got %s, %s after a report", w.State, w.LastEvent)
	}
	want := []string{"provider_drop_off available", "reservation_start reserved", "trip_start on_trip", "comms_lost non_contactable",
		"comms_restored on_trip", "comms_lost non_contactable", "comms_restored available", "battery_low non_operational"}
	if got := y.history(t, v.ID); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	list, err := y.VehicleChanges(t.Context(), y.db, y.org, v.ID, "", 4)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(list[1].EventTypes(), list[1].RideID, list[3].EventTypes()); got != "[comms_restored trip_end]"+r.ID+"[comms_restored]" {
		t.Errorf("back in contact, got %s", got)
	}
}

// TestMissedEvents: a ride starts and ends while its vehicle is out of contact, which has both with the
// state that they led to.
func TestMissedEvents(t *testing.T) {
	for want, wait := range map[string]time.Duration{"[comms_restored trip_start trip_end]": time.Second, "[not_located]": 200 * time.Hour} {
		y := newYard(t)
		y.changeSettings(t, fleet.SettingsChange{ContactLostMinutes: optional.Of(int64(5))})
		v := y.vehicle(t)
		r := y.ride(t, fleet.Reserved, v)
		y.after(t, r.CreatedAt, 10*time.Minute)
		y.put(t, r.ID, to(fleet.Active))
		y.put(t, r.ID, to(fleet.Completed))
		if got := y.storedVehicle(t, v.ID).State; got != fleet.NonContactable {
			t.Fatalf("got %s, want non_contactable", got)
		}
		y.after(t, r.CreatedAt, 10*time.Minute+wait)
		y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(79))})
		list, err := y.VehicleChanges(t.Context(), y.db, y.org, v.ID, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(list[slices.IndexFunc(list, func(c fleet.StateChange) bool { return c.Event == "comms_lost" })-1].EventTypes())
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestBatteryWaits: a battery that runs low during a ride.
func TestBatteryWaits(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	r := y.ride(t, fleet.Active, v)
	if w := y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(5))}); w.State != fleet.OnTrip || *w.CurrentRangeMeters != 2250 {
		t.Errorf("got %s with %d meters to go", w.State, *w.CurrentRangeMeters)
	}
	y.put(t, r.ID, to(fleet.Completed))
	w := y.storedVehicle(t, v.ID)
	list, err := y.VehicleChanges(t.Context(), y.db, y.org, v.ID, "", 2)
	if err != nil || len(list) != 2 || list[0].Event != "battery_low" || list[1].Event != "trip_end" || list[1].RideID != fleet.NullString(r.ID) || list[1].Actor != testActor || list[0].Actor.Type != "system" {
		t.Errorf("got %+v, %v", list, err)
	}
	older, err := y.VehicleChanges(t.Context(), y.db, y.org, v.ID, list[1].ID, 10)
	if err != nil || len(older) != 2 || older[0].Event != "trip_start" {
		t.Errorf("before that: got %+v, %v", older, err)
	}
	_, err = y.tryPutVehicle(t, v.ID, fleet.VehicleChange{State: optional.Of(fleet.Available)})
	wantFaults(t, "back into service", err, "vehicle_low_battery")
	if w.State != fleet.NonOperational {
		t.Errorf("got %s", w.State)
	}
	w = y.putVehicle(t, v.ID, fleet.VehicleChange{State: optional.Of(fleet.Available), BatteryPercent: optional.Of(int64(15))})
	if w.State != fleet.Available {
		t.Errorf("with a battery reported at the limit: got %s", w.State)
	}
}

// TestVehicleRefusals has the errors of vehicles.
func TestVehicleRefusals(t *testing.T) {
	y := newYard(t)
	other := elsewhere(t, y)
	create := func(change func(*fleet.NewVehicle)) error {
		n := fleet.NewVehicle{SubaccountID: y.sub.ID, Code: "N-1", VehicleTypeID: y.scooter}
		change(&n)
		return y.try(t, func(ctx context.Context, tx *db.Tx) error {
			_, err := y.CreateVehicleTx(ctx, tx, y.org, n, testActor)
			return err
		})
	}
	v := y.vehicle(t, func(n *fleet.NewVehicle) { n.DeviceID, n.ExternalID = "imei-1", "x-1" })
	for _, tt := range []struct {
		name   string
		change func(*fleet.NewVehicle)
		want   string
	}{
		{"nothing", func(n *fleet.NewVehicle) { *n = fleet.NewVehicle{} }, "code required, subaccount_id required"},
		{"no type", func(n *fleet.NewVehicle) { n.VehicleTypeID = "" }, "vehicle_type_id required"},
		{"another type", func(n *fleet.NewVehicle) { n.VehicleTypeID = "vt_0" }, "vehicle_type_id not_found"},
		{"no subaccount", func(n *fleet.NewVehicle) { n.SubaccountID = "sub_0" }, "subaccount_id not_found"},
		{"another subaccount's plan", func(n *fleet.NewVehicle) { n.PricingPlanID = fleet.NullString(other.plan.ID) }, "pricing_plan_id not_found"},
		{"available nowhere", func(n *fleet.NewVehicle) { n.State = fleet.Available }, "location required"},
		{"another state", func(n *fleet.NewVehicle) { n.State = fleet.Missing }, "state invalid_value"},
		{"values", func(n *fleet.NewVehicle) {
			n.Code, n.BatteryPercent, n.OdometerMeters, n.Location = "A 1", new(int64(101)), new(int64(-1)), &geo.Position{Lng: 181}
		}, "battery_percent too_large, code invalid_format, location.lng too_large, odometer_meters too_small"},
		{"a code once more", func(n *fleet.NewVehicle) { n.Code = "b-0001" }, "already_exists code"},
		{"a device once more", func(n *fleet.NewVehicle) { n.DeviceID = "imei-1" }, "already_exists device_id"},
		{"an external id once more", func(n *fleet.NewVehicle) { n.ExternalID = "x-1" }, "already_exists external_id"},
		{"all right", func(*fleet.NewVehicle) {}, "none"},
	} {
		wantFaults(t, tt.name, create(tt.change), tt.want)
	}

	w := y.vehicle(t)
	_, err := y.tryPutVehicle(t, w.ID, fleet.VehicleChange{Code: optional.Of("B-0001")})
	wantFaults(t, "another's code", err, "already_exists code")
	_, err = y.tryPutVehicle(t, w.ID, fleet.VehicleChange{DeviceID: optional.Of(fleet.NullString("imei-1"))})
	wantFaults(t, "another's device", err, "already_exists device_id")
	_, err = y.tryPutVehicle(t, w.ID, fleet.VehicleChange{State: optional.Of(fleet.OnTrip)})
	wantFaults(t, "on a trip without one", err, "invalid_transition")
	_, err = y.tryPutVehicle(t, w.ID, fleet.VehicleChange{State: optional.Of(fleet.NonOperational), Event: optional.Of(fleet.VehicleEvent("located"))})
	wantFaults(t, "another event", err, "event invalid_value")
	away := y.vehicle(t, func(n *fleet.NewVehicle) { n.State, n.Location = fleet.Removed, nil })
	_, err = y.tryPutVehicle(t, away.ID, fleet.VehicleChange{State: optional.Of(fleet.Available)})
	wantFaults(t, "available nowhere", err, "invalid_transition")

	r := y.ride(t, fleet.Active, v)
	_, err = y.tryPutVehicle(t, v.ID, fleet.VehicleChange{State: optional.Of(fleet.NonOperational)})
	wantFaults(t, "a change of state in a ride", err, "vehicle_in_use")
	remove := func() error {
		return y.try(t, func(ctx context.Context, tx *db.Tx) error { return y.DeleteVehicleTx(ctx, tx, y.org, v.ID, testActor) })
	}
	wantFaults(t, "DELETE in a ride", remove(), "vehicle_in_use")
	y.put(t, r.ID, to(fleet.Completed))
	wantFaults(t, "DELETE", remove(), "none")
	wantFaults(t, "DELETE once more", remove(), "not found")
	code, sub, err := y.DeletedVehicle(t.Context(), y.db, y.org, v.ID)
	if code != v.Code || sub != y.sub.ID || err != nil {
		t.Errorf("deleted: got %q, %q, %v", code, sub, err)
	}
	if got := y.history(t, v.ID); got[len(got)-1] != "decommissioned removed" {
		t.Errorf("deleted: got %q", got)
	}
	wantFaults(t, "the code of a deleted one", create(func(n *fleet.NewVehicle) { n.Code = v.Code }), "none")
}

// TestTelemetry checks the effects of reports, and outdated ones.
func TestTelemetry(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	at := func(d time.Duration) optional.Value[rfc3339.Time] {
		return optional.Of(rfc3339.Time(v.LastReportedAt.Std().Add(d)))
	}
	w := y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(33)), OdometerMeters: optional.Of(int64(7)), LastReportedAt: at(time.Second)})
	if *w.BatteryPercent != 33 || *w.CurrentRangeMeters != 14850 || *w.OdometerMeters != 7 || w.LastReportedAt != at(time.Second).Value {
		t.Errorf("got %+v", w)
	}
	late := y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(5)), Location: optional.Of(*outside()), LastReportedAt: at(0), LicensePlate: optional.Of(fleet.NullString("B-X 1"))})
	w.LicensePlate = "B-X 1"
	if got, want := members(t, late), members(t, w); !reflect.DeepEqual(got, want) {
		t.Errorf("a late report: got %v\nwant %v", got, want)
	}
	w = y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(50)), CurrentRangeMeters: optional.Of(int64(1)), LastReportedAt: at(2 * time.Second)})
	if *w.CurrentRangeMeters != 1 {
		t.Errorf("a range that was reported: got %d", *w.CurrentRangeMeters)
	}
	y.after(t, v.CreatedAt, time.Minute)
	w = y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Value[int64]{Set: true, Null: true}})
	if w.BatteryPercent != nil || w.CurrentRangeMeters != nil || w.LastReportedAt.Std().Before(v.CreatedAt.Std().Add(time.Minute)) {
		t.Errorf("cleared: got %+v", w)
	}
}

// members decodes a vehicle without the times of its change.
func members(t *testing.T, v fleet.Vehicle) (m map[string]any) {
	t.Helper()
	v.UpdatedAt = rfc3339.Time{}
	text := mustEncode(t, v)
	decode(t, text, &m)
	return m
}

// TestReportInMilliseconds: vehicles are found by the time of the report as
// returned.
func TestReportInMilliseconds(t *testing.T) {
	y := newYard(t)
	reported := time.Date(2026, 3, 14, 9, 0, 0, 250_400_000, time.UTC)
	y.vehicle(t, func(n *fleet.NewVehicle) { n.LastReportedAt = rfc3339.Time(reported) })
	shown := reported.Truncate(time.Millisecond)
	docs, _, err := y.ListVehicles(t.Context(), y.db, y.org, fleet.VehicleQuery{LastReportedAt: period.Range{Low: &shown, High: &shown}})
	if err != nil || len(docs) != 1 {
		t.Errorf("got %d vehicles, %v, want 1", len(docs), err)
	}
}
