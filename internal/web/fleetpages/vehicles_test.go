package fleetpages_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// ids joins the ids of a page's rows.
func ids(d webtest.Document) string {
	var got strings.Builder
	for _, row := range rows(d) {
		got.WriteString(webtest.Attr(row, "id"))
	}
	return got.String()
}

// choices are the values of a select.
func choices(d webtest.Document, name string) []string {
	var list []string
	for n := range d.Field(name).Descendants() {
		if n.Data == "option" {
			list = append(list, webtest.Attr(n, "value"))
		}
	}
	return list
}

func TestVehicles(t *testing.T) {
	y := newYard(t)
	y.admin.Page("/fleet/vehicles").Want("No vehicles yet", "New vehicle", "--data-binary @vehicles.csv")
	if d := y.agent.Page("/fleet/vehicles"); len(links(d, "/fleet/vehicles/new")) != 0 {
		t.Error("an agent is offered to make a vehicle")
	}
	l := furnish(y)
	first := l.vehicle()
	ride := l.ride(fleet.Active)
	d := y.agent.Page("/fleet/vehicles")
	d.Want("2 vehicles.", "Scooter <script>", "80%", "On a trip", "Available")
	// Records of one millisecond sort by id.
	newest := max(ride.VehicleID, first.ID) + min(ride.VehicleID, first.ID)
	if got := ids(d); got != newest {
		t.Errorf("got %s", got)
	}
	for query, want := range map[string]string{
		"code=b-b": first.ID, "state=on_trip": ride.VehicleID, "state=flying": newest, "type=" + l.scooter: newest, "battery=79": "",
		"battery=80&sort=code": first.ID + ride.VehicleID, "code=" + strings.Repeat("x", 3000): "", "battery=much": "",
	} {
		if got := ids(y.agent.Page("/fleet/vehicles?" + query)); got != want {
			t.Errorf("%.40s: got %s, want %s", query, got, want)
		}
	}
	y.agent.Page("/fleet/vehicles?battery=much").Want("Must be a whole number.")
	y.agent.Page("/fleet/vehicles/"+ride.VehicleID).Want("Open ride", "Zoë 1", "ride started", "by the API", hostile)
	y.agent.WantRefused(y.agent.Get("/sandbox/fleet/vehicles/"+first.ID), http.StatusNotFound)
	d = y.agent.Page("/sandbox/fleet/vehicles")
	d.Want("40 vehicles.", "Fukuoka", "no motor")
	for _, state := range []string{"available", "reserved", "on_trip", "non_operational", "non_contactable", "missing", "removed"} {
		list := rows(y.agent.Page("/sandbox/fleet/vehicles?state=" + state))
		if len(list) == 0 {
			t.Errorf("none is %s", state)
			continue
		}
		d := y.agent.Page("/sandbox/fleet/vehicles/" + webtest.Attr(list[0], "id"))
		if earlier := links(d, "/sandbox/fleet/vehicles/"+webtest.Attr(list[0], "id")+"?before="); len(earlier) == 1 {
			y.agent.Page(earlier[0])
		}
	}
}

// TestVehicleMoves: pages offer the transitions of the state table.
func TestVehicleMoves(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	moved := 0
	for _, state := range []fleet.VehicleState{fleet.Available, fleet.NonOperational, fleet.Removed} {
		v := l.vehicle()
		path := "/fleet/vehicles/" + v.ID + "/state"
		if state != fleet.Available {
			y.agent.Follow(y.agent.Post(path, url.Values{"move": {string(state) + "/" + string(fleet.Available.Events(state)[0])}}))
		}
		var want []string
		for _, next := range state.Next() {
			for _, event := range state.Events(next) {
				want = append(want, string(next)+"/"+string(event))
			}
		}
		got := choices(y.agent.Page(path), "move")
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", state, got, want)
		}
		y.agent.WantRefused(y.agent.Post(path, url.Values{"move": {"on_trip/trip_start"}}), http.StatusUnprocessableEntity)
		for _, move := range got {
			y.agent.Follow(y.agent.Post(path, url.Values{"move": {move}}))
			moved++
			l.put(v.ID, state)
		}
	}
	if moved < 15 {
		t.Errorf("got %d moves", moved)
	}
	ridden := l.ride(fleet.Active).VehicleID
	y.agent.WantRefused(y.agent.Get("/fleet/vehicles/"+ridden+"/state"), http.StatusConflict).Want("Its state changes with its ride")
	if d := y.admin.Page("/fleet/vehicles/" + ridden); len(links(d, "/fleet/vehicles/"+ridden+"/state"))+len(links(d, "/fleet/vehicles/"+ridden+"/delete")) != 0 {
		t.Error("what cannot be done to a vehicle with a ride is offered")
	}
}

// put changes a vehicle's state, through intermediate states if necessary.
func (l *lot) put(id string, state fleet.VehicleState) {
	l.tb.Helper()
	l.write(func(ctx context.Context, tx *db.Tx) error {
		v, err := l.LockVehicleTx(ctx, tx, l.organization.ID, id)
		if err != nil || v.State == state {
			return err
		}
		if !slices.Contains(v.State.Next(), state) {
			if v, err = l.UpdateVehicleTx(ctx, tx, l.organization.ID, v, fleet.VehicleChange{State: optional.Of(fleet.Available)}, fleet.Actor{}); err != nil {
				return err
			}
		}
		_, err = l.UpdateVehicleTx(ctx, tx, l.organization.ID, v, fleet.VehicleChange{State: optional.Of(state)}, fleet.Actor{})
		return err
	})
}

func TestVehicleForms(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	const path = "/fleet/vehicles/new"
	y.agent.WantRefused(y.agent.Get(path), http.StatusForbidden)
	y.agent.WantRefused(y.agent.Post(path, nil), http.StatusForbidden)
	form := url.Values{
		"code": {"X 1"}, "vehicle_type_id": {l.scooter}, "state": {"available"}, "location.lat": {"north"}, "location.lng": {"13.4"}, "battery_percent": {"full"}, "metadata": {"depot"}, "vin": {hostile},
	}
	d := y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity)
	d.Want("Latitude must be degrees", "Battery (%) must be a whole number", "Metadata must be lines")
	if got := webtest.Attr(d.Field("vin"), "value"); got != hostile {
		t.Errorf("what was typed came back as %q", got)
	}
	form.Set("location.lat", "52.5")
	form.Set("battery_percent", "101")
	form.Set("metadata", "depot: north\n\nteam:a:b")
	y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity).Want("Code must consist of letters", "Battery (%) must be at most 100")
	form.Set("code", "X-1")
	form.Set("battery_percent", "50")
	y.admin.WantRefused(y.admin.Post(path, url.Values{"code": {"X-2"}}), http.StatusUnprocessableEntity).Want("Type must be an existing vehicle type")
	d, notice := y.admin.Follow(y.admin.Post(path, form))
	d.Want("X-1", "50%", hostile, "north", "a:b")
	if notice != "X-1 created." {
		t.Errorf("got %q", notice)
	}
	y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity).Want("Code is already in use")

	id := strings.TrimPrefix(links(d, "/fleet/vehicles/veh_")[0], "/fleet/vehicles/")
	id, _, _ = strings.Cut(id, "/")
	edit := "/fleet/vehicles/" + id + "/edit"
	d = y.admin.Page(edit)
	form = url.Values{}
	for _, name := range []string{"code", "location.lat", "location.lng", "battery_percent", "odometer_meters"} {
		form.Set(name, webtest.Attr(d.Field(name), "value"))
		for _, was := range d.WithAttr("name", "was."+name) {
			form.Set("was."+name, webtest.Attr(was, "value"))
		}
	}
	form.Set("vehicle_type_id", l.scooter)
	form.Set("license_plate", "B <script>'\"&")
	// The vehicle moves after the form was shown.
	l.write(func(ctx context.Context, tx *db.Tx) error {
		v, err := l.LockVehicleTx(ctx, tx, l.organization.ID, id)
		if err == nil {
			_, err = l.UpdateVehicleTx(ctx, tx, l.organization.ID, v, fleet.VehicleChange{BatteryPercent: optional.Of(int64(49))}, fleet.Actor{})
		}
		return err
	})
	form.Set("odometer_meters", "1,500")
	y.admin.Follow(y.admin.Post(edit, form))
	v, err := l.Vehicle(t.Context(), l.db, l.organization.ID, id)
	if err != nil || *v.OdometerMeters != 1500 || v.LicensePlate != "B <script>'\"&" || *v.BatteryPercent != 49 || v.VIN != "" {
		t.Errorf("got %+v, %v", v, err)
	}
	form.Set("code", "B--")
	form.Set("location.lat", "")
	y.admin.WantRefused(y.admin.Post(edit, form), http.StatusUnprocessableEntity).Want("Latitude is required with a longitude")

	drop := "/fleet/vehicles/" + id + "/delete"
	y.agent.WantRefused(y.agent.Post(drop, url.Values{"confirm": {"X-1"}}), http.StatusForbidden)
	y.admin.WantRefused(y.admin.Post(drop, url.Values{"confirm": {"X-2"}}), http.StatusUnprocessableEntity).Want("does not match")
	y.admin.Page(drop).Want("Type X-1 to confirm")
	d, _ = y.admin.Follow(y.admin.Post(drop, url.Values{"confirm": {" X-1 "}}))
	if strings.Contains(ids(d), id) {
		t.Error("it is there still")
	}
	y.admin.WantRefused(y.admin.Get("/fleet/vehicles/"+id), http.StatusConflict).Want("The vehicle X-1 was deleted")
	y.admin.Page("/fleet/rides?vehicle=" + id).Want("No rides match these filters")
	for _, path := range []string{"", "/edit", "/state", "/delete"} {
		y.admin.WantRefused(y.admin.Get("/fleet/vehicles/veh_nothing"+path), http.StatusNotFound)
	}
}
