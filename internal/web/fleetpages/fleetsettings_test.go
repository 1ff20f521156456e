package fleetpages_test

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestWholeNumbers: a decimal comma is refused, not dropped. Commas between thousands are accepted.
func TestWholeNumbers(t *testing.T) {
	y := newYard(t)
	const path = "/fleet/settings/edit"
	form := formOf(y.admin.Page(path))
	for _, number := range []string{"1,5", "12,50", "1.5", "0,125", "1,2345", ",500", "1,,000", "1 000"} {
		y.admin.WantRefused(y.admin.Post(path, with(form, "cancel_grace_meters", number)), http.StatusUnprocessableEntity).Want("Cancellation distance (meters) must be a whole number.")
	}
	y.admin.Follow(y.admin.Post(path, with(form, "cancel_grace_meters", "1,000")))
	if s, _, err := y.live.Settings(t.Context(), y.live.db, y.live.organization.ID); err != nil || s.CancelGraceMeters != 1000 {
		t.Errorf("got %d, %v", s.CancelGraceMeters, err)
	}
}

// TestUnedited: a value that its field cannot show stays as stored, unless the field is edited.
func TestUnedited(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	odd := map[string]string{"a:b": "c", "d": " e", "f": "g\nh", "i": "j\r\nk: l", "m": "n\ro"}
	var v fleet.Vehicle
	from := rfc3339.Time(time.Date(2026, 11, 28, 10, 42, 37, 0, time.UTC))
	l.write(func(ctx context.Context, tx *db.Tx) error {
		by := fleet.Actor{Type: "system"}
		now, err := l.LockSubaccountTx(ctx, tx, l.organization.ID, l.sub.ID)
		if err == nil {
			_, err = l.UpdateSubaccountTx(ctx, tx, l.organization.ID, now, fleet.SubaccountChange{Alerts: optional.Of([]fleet.Alert{{Type: "other", Summary: "Snow", StartsAt: from}})})
		}
		if err == nil {
			v, err = l.CreateVehicleTx(ctx, tx, l.organization.ID, fleet.NewVehicle{SubaccountID: l.sub.ID, Code: "ODD-1", VehicleTypeID: l.scooter, Metadata: odd}, by)
		}
		return err
	})
	path := "/fleet/vehicles/" + v.ID + "/edit"
	form := with(formOf(y.admin.Page(path)), "metadata", "a:b: c\r\nd:  e\r\nf: g⏎h\r\ni: j⏎k: l\r\nm: n⏎o") // as a browser sends the field
	y.admin.Follow(y.admin.Post(path, with(form, "vin", "1")))
	if got, err := l.Vehicle(t.Context(), l.db, l.organization.ID, v.ID); err != nil || got.VIN != "1" || !maps.Equal(got.Metadata, odd) {
		t.Errorf("got %+v, %v", got.Metadata, err)
	}
	path = "/fleet/subaccounts/" + l.sub.ID + "/alerts/" + l.subaccount().Alerts[0].ID
	y.admin.Follow(y.admin.Post(path, with(formOf(y.admin.Page(path)), "summary", "Ice")))
	if got := l.subaccount().Alerts[0]; got.Summary != "Ice" || got.StartsAt != from {
		t.Errorf("got %+v", got)
	}
	y.admin.WantRefused(y.admin.Post("/fleet/zones/new", url.Values{"name": {"Mitte"}, "type": {"parking"}, "geometry": {"52.5, 13.3"}}), http.StatusUnprocessableEntity).
		Want("Shape must have at least 3 different corners.")
}

// TestChangedByOthers: a form that was opened before somebody else changed the record replaces
// nothing of it unseen. It is shown again as typed, and saves when it is sent again.
func TestChangedByOthers(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	corners := url.Values{"name": {"Mitte"}, "type": {"parking"}, "geometry": {"52.5, 13.3\n52.5, 13.4\n52.6, 13.4"}}
	y.admin.Follow(y.admin.Post("/fleet/zones/new", corners))
	y.admin.Follow(y.admin.Post("/fleet/alert-rules/new?kind=silence", url.Values{"subaccount": {l.sub.ID}, "name": {"Silent"}, "threshold": {"60"}, "notify": {"nobody"}, "enabled": {"on"}}))
	rules, err := l.AlertRules(t.Context(), l.db, y.Organization.ID)
	if err != nil || len(rules) != 1 {
		t.Fatal(rules, err)
	}
	zone := y.soleZone().ID
	v := l.vehicle()
	var work fleet.Task
	l.write(func(ctx context.Context, tx *db.Tx) (err error) {
		work, err = l.CreateTaskTx(ctx, tx, l.organization.ID, fleet.NewTask{VehicleID: v.ID, Title: "Check"}, fleet.Actor{Type: "system"})
		return err
	})
	sub := "/fleet/subaccounts/" + l.sub.ID
	two := url.Values{}
	for _, at := range []string{"global_rules.0.", "global_rules.1."} {
		two[at+"vehicle_type_ids"], two[at+"ride_start_allowed"], two[at+"ride_end_allowed"], two[at+"maximum_speed_kph"] = []string{"*"}, []string{"on"}, []string{"on"}, []string{"10"}
	}
	y.admin.Follow(y.admin.Post(sub+"/rules", two))
	for path, fields := range map[string][2]string{
		"/fleet/settings/edit":                      {"max_ride_minutes", "cancel_grace_meters"},
		"/fleet/pricing/" + l.plan.ID + "/edit":     {"reservation_free_minutes", "fare_cap.duration_minutes"},
		"/fleet/riders/" + l.rider().ID + "/edit":   {"external_id", "name"},
		"/fleet/zones/" + zone + "/edit":            {"priority", "rules.0.maximum_speed_kph"},
		"/fleet/alert-rules/" + string(rules[0].ID): {"threshold", "name"},
		"/fleet/tasks/" + work.ID + "/edit":         {"title", "due_odometer_meters"},
		"/fleet/vehicles/" + v.ID + "/edit":         {"license_plate", "external_id"},
		sub + "/edit":                               {"gbfs.operator", "gbfs.license_id"},
		sub + "/types/" + l.scooter:                 {"reservation_minutes", "min_age"},
		sub + "/rules":                              {"global_rules.0.maximum_speed_kph", "global_rules.1.maximum_speed_kph"},
	} {
		open := func() url.Values {
			form := formOf(y.admin.Page(path))
			if form.Has("geometry") {
				form.Set("geometry", "52.5, 13.3\r\n52.5, 13.4\r\n52.6, 13.4")
			}
			if form.Has("fare_cap.amount") {
				form.Set("fare_cap.amount", "99")
				form.Set("fare_cap.duration_minutes", "900")
			}
			return form
		}
		value := func(name string) string { return webtest.Attr(y.admin.Page(path).Field(name), "value") }
		older, newer := open(), open()
		y.admin.Follow(y.admin.Post(path, with(newer, fields[0], "17")))
		older.Set(fields[1], "21")
		d := y.admin.WantRefused(y.admin.Post(path, older), http.StatusUnprocessableEntity)
		d.Want("This was changed since the form was opened. Nothing was saved. Save again to replace what is stored in: ")
		if got := webtest.Attr(d.Field(fields[1]), "value"); got != older.Get(fields[1]) {
			t.Errorf("%s: what was typed is %q", path, got)
		}
		if got := value(fields[0]); got != "17" {
			t.Errorf("%s: %s is %q again", path, fields[0], got)
		}
		y.admin.Follow(y.admin.Post(path, with(newer, fields[0], "17"))) // as stored
		again := formOf(d)
		if again.Has("geometry") {
			again.Set("geometry", older.Get("geometry"))
		}
		y.admin.Follow(y.admin.Post(path, again))
		if got := value(fields[0]); got == "17" {
			t.Errorf("%s: sent again, %s is still %q", path, fields[0], got)
		}
		if got := value(fields[1]); got != older.Get(fields[1]) {
			t.Errorf("%s: sent again, %s is %q", path, fields[1], got)
		}
	}

	// Rows that others have deleted are shown as typed.
	long := formOf(y.admin.Page(sub + "/rules"))
	y.admin.Follow(y.admin.Post(sub+"/rules", with(formOf(y.admin.Page(sub+"/rules")), "global_rules.0.vehicle_type_ids", "")))
	refused := y.admin.WantRefused(y.admin.Post(sub+"/rules", with(long, "global_rules.1.maximum_speed_kph", "23")), http.StatusUnprocessableEntity)
	if got := webtest.Attr(refused.Field("global_rules.1.maximum_speed_kph"), "value"); got != "23" {
		t.Errorf("the second rule has %q", got)
	}
	y.admin.Follow(y.admin.Post(sub+"/rules", formOf(refused)))
	if got := l.subaccount().GlobalRules; len(got) != 2 || *got[1].MaximumSpeed != 23 {
		t.Errorf("got %+v", got)
	}

	// A choice that the form has no more, such as types of a rule, stays.
	rule := "global_rules.0.vehicle_type_ids"
	y.admin.Follow(y.admin.Post(sub+"/types/new", url.Values{"name": {"Bike"}, "form_factor": {"bicycle"}, "propulsion_type": {"human"}}))
	bike := l.subaccount().VehicleTypes[1].ID
	l.write(func(ctx context.Context, tx *db.Tx) error {
		now, err := l.LockSubaccountTx(ctx, tx, l.organization.ID, l.sub.ID)
		if err == nil {
			_, err = l.UpdateSubaccountTx(ctx, tx, l.organization.ID, now, fleet.SubaccountChange{
				GlobalRules: optional.Of([]fleet.Rule{{VehicleTypeIDs: []string{l.scooter, bike}, StartAllowed: true, EndAllowed: true}}),
			})
		}
		return err
	})
	long = formOf(y.admin.Page(sub + "/rules"))
	y.admin.Follow(y.admin.Post(sub+"/rules", with(formOf(y.admin.Page(sub+"/rules")), rule, l.scooter)))
	refused = y.admin.WantRefused(y.admin.Post(sub+"/rules", with(long, "global_rules.0.maximum_speed_kph", "12")), http.StatusUnprocessableEntity)
	y.admin.Follow(y.admin.Post(sub+"/rules", formOf(refused)))
	if got := l.subaccount().GlobalRules; len(got) != 1 || len(got[0].VehicleTypeIDs) != 2 || *got[0].MaximumSpeed != 12 {
		t.Errorf("got %+v", got)
	}
	// A vehicle type that appears meanwhile is no change of a plan.
	plan := formOf(y.admin.Page("/fleet/pricing/" + l.plan.ID + "/edit"))
	y.admin.Follow(y.admin.Post(sub+"/types/new", url.Values{"name": {"Trike"}, "form_factor": {"bicycle"}, "propulsion_type": {"human"}}))
	y.admin.Follow(y.admin.Post("/fleet/pricing/"+l.plan.ID+"/edit", with(plan, "name", "Standard")))

	// A form with an error stays as old as it is.
	const path = "/fleet/settings/edit"
	older := formOf(y.admin.Page(path))
	y.admin.Follow(y.admin.Post(path, with(formOf(y.admin.Page(path)), "max_ride_minutes", "600")))
	d := y.admin.WantRefused(y.admin.Post(path, with(older, "name", "")), http.StatusUnprocessableEntity)
	form := with(formOf(d), "name", "Ours")
	y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity).Want("This was changed since the form was opened.", "replace what is stored in: Name; Maximum ride duration (minutes).")

	// The end of a ride of the rider is no change of the form.
	ride := l.ride(fleet.Active)
	rider := "/fleet/riders/" + string(ride.CustomerID) + "/edit"
	form = formOf(y.admin.Page(rider))
	y.admin.Follow(y.admin.Post("/fleet/rides/"+ride.ID+"/end", url.Values{"end_reason": {"operator"}}))
	y.admin.Follow(y.admin.Post(rider, with(form, "name", "Renamed")))
}
