package fleetpages_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestZones creates, shows, updates and deletes a zone.
func TestZones(t *testing.T) {
	y := newYard(t)
	y.admin.Page("/fleet/zones").Want("No zones", "Create zone")
	if d := y.agent.Page("/fleet/zones"); len(d.WithAttr("href", "/fleet/zones/new")) != 0 {
		t.Error("an agent is offered to draw a zone")
	}
	y.admin.Page("/fleet/zones/new").Want("One corner per line")
	form := url.Values{"name": {hostile}, "type": {"parking"}, "geometry": {"52.5, 13.3\n52.5, 13.4\r\n52.6 13.4\n"}, "description": {hostile}, "priority": {""}}
	d, notice := y.admin.Follow(y.admin.Post("/fleet/zones/new", form))
	if notice != "Zone created." {
		t.Errorf("got notice %q", notice)
	}
	d.Want(hostile, "Parking", "In force", "Corners3")
	y.agent.Page("/fleet/zones").Want(hostile, "1 zone")
	path := "/fleet/zones/" + y.soleZone().ID
	if len(y.agent.Page(path).WithAttr("href", path+"/edit")) != 0 {
		t.Error("an agent is offered to change a zone")
	}
	edit := y.admin.Page(path + "/edit")
	if got := webtest.Text(edit.Field("geometry")); got != "52.5, 13.3 52.5, 13.4 52.6, 13.4" {
		t.Errorf("got shape %q", got)
	}

	// A new type changes the rules unless they are edited.
	change := maps.Clone(form)
	maps.Copy(change, url.Values{"name": {"Park"}, "type": {"no_ride"}, "priority": {"40"},
		"rules.0": {"on"}, "rules.0.vehicle_type_ids": {""}, "rules.0.ride_start_allowed": {"on"}, "rules.0.ride_end_allowed": {"on"}, "rules.0.ride_through_allowed": {"on"}})
	y.admin.Follow(y.admin.Post(path+"/edit", change))
	if z := y.soleZone(); z.Name != "Park" || z.Priority != 10 || z.Rules[0].StartAllowed {
		t.Errorf("got %+v", z)
	}
	change.Set("rules.0.maximum_speed_kph", "7")
	change.Set("priority", "3")
	change.Set("starts_at", "2031-01-02T03:04")
	y.admin.Follow(y.admin.Post(path+"/edit", change))
	if z := y.soleZone(); z.Priority != 3 || *z.Rules[0].MaximumSpeed != 7 || z.StartsAt.Std().Year() != 2031 {
		t.Errorf("got %+v", z)
	}
	y.admin.Page(path).Want("7 km/h", "Scheduled")
	if d := y.admin.WantRefused(y.admin.Post(path+"/edit", with(change, "more", "1")), http.StatusOK); webtest.Text(d.All("h1")[0]) != "Edit Park" {
		t.Error("no place for another rule")
	} else {
		d.Field("rules.1.maximum_speed_kph")
		for _, name := range []string{"rules.1", "rules.1.ride_start_allowed", "rules.1.ride_end_allowed", "rules.1.ride_through_allowed"} {
			if !webtest.Has(d.Field(name), "checked") {
				t.Errorf("a new rule does not have %s", name)
			}
		}
		d.Want("All vehicles: rides may start and end; riding through is allowed.")
	}

	y.admin.Page(path+"/delete").Want("Delete Park", "Type Park to confirm")
	y.admin.WantRefused(y.admin.Post(path+"/delete", url.Values{"confirm": {"park"}}), http.StatusUnprocessableEntity)
	if _, notice := y.admin.Follow(y.admin.Post(path+"/delete", url.Values{"confirm": {"Park"}})); notice != "Zone deleted." {
		t.Errorf("got notice %q", notice)
	}
	y.admin.WantRefused(y.admin.Get(path), http.StatusNotFound)
}

func with(form url.Values, name, value string) url.Values {
	form = maps.Clone(form)
	form.Set(name, value)
	return form
}

// TestLargeZone: a shape with all the positions of the contract is explained and saved.
func TestLargeZone(t *testing.T) {
	y := newYard(t)
	const count = 9999 // and the first again
	var corners, ring strings.Builder
	for i := range count {
		turn := float64(i) / count * 2 * math.Pi
		lat, lng := 52.5+0.06*math.Sin(turn), 13.4+0.1*math.Cos(turn)
		fmt.Fprintf(&corners, "%.6f, %.6f\r\n", lat, lng)
		fmt.Fprintf(&ring, "[%.15f, %.15f],\n", lng, lat)
	}
	first := "[13.5, 52.5]"
	for kind, shape := range map[string]string{"corners": corners.String(), "GeoJSON": `{"type": "Polygon", "coordinates": [[` + ring.String() + first + `]]}`} {
		form := url.Values{"name": {kind}, "type": {"parking"}, "geometry": {shape}, "check_at": {"52.5, 13.4"}}
		if d := y.admin.WantRefused(y.admin.Post("/fleet/zones/new", with(form, "check", "1")), http.StatusOK); !strings.Contains(webtest.Text(d.WithAttr("id", "zone-words")[0]), "May a ride end here? Yes") {
			t.Errorf("%s: no answer: %s", kind, webtest.Text(d.WithAttr("id", "zone-words")[0]))
		}
		if _, notice := y.admin.Follow(y.admin.Post("/fleet/zones/new", form)); notice != "Zone created." {
			t.Errorf("%s: got notice %q", kind, notice)
		}
	}
	huge := url.Values{"name": {"Huge"}, "type": {"parking"}, "geometry": {strings.Repeat("52.5, 13.4\r\n", 100_000)}}
	y.admin.WantRefused(y.admin.Post("/fleet/zones/new", huge), http.StatusRequestEntityTooLarge)
}

// soleZone returns the only zone of production.
func (y *yard) soleZone() fleet.Zone {
	y.live.tb.Helper()
	docs, _, err := y.live.ListZones(y.live.tb.Context(), y.live.db, y.live.organization.ID, fleet.ZoneQuery{})
	if err != nil || len(docs) != 1 {
		y.live.tb.Fatalf("got %d zones, %v", len(docs), err)
	}
	z, err := y.live.Zone(y.live.tb.Context(), y.live.db, y.live.organization.ID, docs[0].ID)
	if err != nil {
		y.live.tb.Fatal(err)
	}
	return z
}

// TestZoneWords: the form says what its rules mean and whether a ride may end at a place, as the
// fleet decides, before and without saving.
func TestZoneWords(t *testing.T) {
	y := newYard(t)
	words := func(d webtest.Document) string { return webtest.Text(d.WithAttr("id", "zone-words")[0]) }
	check := func(form url.Values) string {
		t.Helper()
		return words(y.admin.WantRefused(y.admin.Post("/fleet/zones/new", with(form, "check", "1")), http.StatusOK))
	}
	if got, want := words(y.admin.Page("/fleet/zones/new")), "All vehicles: rides may start and end; riding through is allowed."; got != want {
		t.Errorf("got %q", got)
	}
	form := url.Values{"name": {"Mitte"}, "type": {"service_area"}, "geometry": {"52.5, 13.3\n52.5, 13.4\n52.6, 13.4\n52.6, 13.3"}}
	inside, outside := with(form, "check_at", "52.55, 13.35"), with(form, "check_at", "52.7, 13.35")
	for want, form := range map[string]url.Values{
		"May a ride end here? Yes Rides may start and end; riding through is allowed. By this zone.":                         inside,
		"May a ride end here? No Rides may neither start nor end; riding through is allowed. Outside of every service area.": outside,
		"May a ride end here? Yes Rides may start and end; riding through is allowed. No zone here.":                         with(outside, "type", "parking"),
		"Rides may start, but not end; riding through is allowed. By this zone.":                                             with(inside, "type", "no_parking"),
		"rides may start and end; riding through is allowed at up to 10 km/h.":                                               with(form, "type", "slow"),
		"Shape has an edge longer than 180 degrees: draw one part on each side of the antimeridian.":                         with(inside, "geometry", `{"type":"Polygon","coordinates":[[[-170,0],[170,0],[170,9],[-170,0]]]}`),
		"Enter a position": with(form, "check_at", hostile),
		"A zone with custom rules needs at least one rule.": with(form, "type", "custom"),
	} {
		if got := check(form); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	y.admin.Page("/fleet/zones").Want("No zones")
	y.agent.WantRefused(y.agent.Post("/fleet/zones/new", with(inside, "check", "1")), http.StatusForbidden)

	// The zone that decides is named, and an edited zone takes the place of the stored one.
	y.admin.Follow(y.admin.Post("/fleet/zones/new", with(inside, "type", "no_parking")))
	if got := check(inside); !strings.Contains(got, "May a ride end here? No") || !strings.Contains(got, "By the zone Mitte.") {
		t.Errorf("got %q", got)
	}
	path := "/fleet/zones/" + y.soleZone().ID
	d := y.admin.WantRefused(y.admin.Post(path+"/edit", with(with(inside, "type", "parking"), "check", "1")), http.StatusOK)
	if got := words(d); !strings.Contains(got, "May a ride end here? Yes") || !strings.Contains(got, "By this zone.") {
		t.Errorf("got %q", got)
	}
	if z := y.soleZone(); z.Type != fleet.NoParking {
		t.Errorf("the zone is now %s", z.Type)
	}
	y.agent.Page(path).Want("All vehicles: rides may start, but not end; riding through is allowed.")

	// As a file, for members only.
	w := y.agent.Get(path + "/geojson")
	if h := w.Header(); w.Code != 200 || h.Get("Content-Type") != "application/geo+json" || !strings.Contains(w.Body.String(), `"type":"MultiPolygon"`) && !strings.Contains(w.Body.String(), `"type":"Polygon"`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	y.admin.Follow(y.admin.Post(path+"/edit", with(form, "geometry", `{"type":"FeatureCollection","features":[`+w.Body.String()+`]}`)))
	stranger := y.SignIn(y.NewUser(y.NewOrganization("Other"), "eve@example.com", "Eve", "admin"))
	stranger.WantRefused(stranger.Get(path+"/geojson"), http.StatusNotFound)
}

// TestZoneRefused: errors show beside the fields, values remain, and nothing
// changes.
func TestZoneRefused(t *testing.T) {
	y := newYard(t)
	good := url.Values{"name": {"Mitte"}, "type": {"parking"}, "geometry": {"52.5, 13.3\n52.5, 13.4\n52.6, 13.4"}}
	for _, tt := range []struct{ field, value, want string }{
		{"name", "", "Name"},
		{"name", strings.Repeat("x", 300), "Name"},
		{"type", "lake", "Type"},
		{"type", "custom", "There is a problem: A zone with custom rules needs at least one rule."},
		{"geometry", "", "Shape is required"},
		{"geometry", "here, there", "Shape must be lines such as"},
		{"geometry", "52.5, 13.3\n52.5, 13.4", "Shape must have at least 3 different corners."},
		{"geometry", "NaN, 13.3\n52.5, 13.4\n52.6, 13.4", "Shape must be degrees"},
		{"geometry", "52.5, 13.3\n52.6, 13.4\n52.5, 13.4\n52.6, 13.3", "Shape has an outline that crosses or touches itself near 52."},
		{"geometry", "95, 13.3\n52.5, 13.4\n52.6, 13.4", "Shape has a corner out of range: longitudes are"},
		{"geometry", `{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,9],[0,0]],[[1,1],[20,1],[1,2],[1,1]]]}`, "Shape has an outline and a hole, or two holes, that cross near "},
		{"geometry", `{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,9],[0,0]],[[20,1],[30,1],[20,2],[20,1]]]}`, "Shape has a hole outside of its outline."},
		{"geometry", `{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,9],[0,0]],[[1,1],[8,1],[8,8],[1,8],[1,1]],[[2,2],[3,2],[3,3],[2,2]]]}`, "Shape has a hole in another hole."},
		{"geometry", `{"type":"MultiPolygon","coordinates":[[[[0,0],[9,0],[9,9],[0,0]]],[[[5,1],[20,1],[20,2],[5,1]]]]}`, "Shape has two parts that cross near "},
		{"geometry", `{"type":"MultiPolygon","coordinates":[[[[0,0],[9,0],[9,9],[0,0]]],[[[5,1],[6,1],[6,2],[5,1]]]]}`, "Shape has two parts that overlap."},
		{"geometry", `{"type":"MultiPolygon","coordinates":[]}`, "Shape has no corners."},
		{"geometry", `{"type":"MultiPolygon","coordinates":[[]]}`, "Shape has a part without corners."},
		{"geometry", `{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,9]]]}`, "Shape has an outline that does not end where it starts."},
		{"geometry", `{"type":"Polygon","coordinates":[[[0],[9,0],[9,9],[0,0]]]}`, "Shape has a position that is not [longitude, latitude]."},
		{"geometry", `{"type":"Polygon","coordinates":[[[-170,0],[170,0],[170,9],[-170,0]]]}`, "Shape has an edge longer than 180 degrees: draw"},
		{"geometry", `{"type":"Point","coordinates":[1,2]}`, "Shape must be a GeoJSON Polygon"},
		{"geometry", `{"type":`, "Shape must be a GeoJSON Polygon"},
		{"priority", "high", "Priority must be a whole number"},
		{"priority", "1001", "Priority"},
		{"starts_at", "soon", "In force from must be a date"},
	} {
		d := y.admin.WantRefused(y.admin.Post("/fleet/zones/new", with(good, tt.field, tt.value)), http.StatusUnprocessableEntity)
		if !strings.Contains(d.Alert(), tt.want) {
			t.Errorf("%s %.20q: got %q, want %q", tt.field, tt.value, d.Alert(), tt.want)
		}
		if len(d.DescribedBy("name")) > 0 != (tt.field == "name") {
			t.Errorf("%s %.20q: the name is described by %q", tt.field, tt.value, d.DescribedBy("name"))
		}
		if tt.field != "name" && webtest.Attr(d.Field("name"), "value") != "Mitte" {
			t.Errorf("%s %.20q: the name is gone", tt.field, tt.value)
		}
	}
	y.admin.WantRefused(y.admin.Post("/fleet/zones/new", with(with(good, "starts_at", "2031-01-02T03:04"), "ends_at", "2031-01-02T03:03")), http.StatusUnprocessableEntity).Want("Until must be after “In force from”.")
	y.agent.WantRefused(y.agent.Post("/fleet/zones/new", good), http.StatusForbidden)
	y.agent.WantRefused(y.agent.Get("/fleet/zones/new"), http.StatusForbidden)
	y.admin.Page("/fleet/zones").Want("No zones")

	// GeoJSON is accepted, also in the form of other tools.
	feature := `{"type":"Feature","properties":{},"geometry":{"type":"MultiPolygon","coordinates":[[[[1,1],[2,1],[2,2],[1,1]]],[[[179,1],[180,1],[180,2],[179,1]]]]}}`
	y.admin.Follow(y.admin.Post("/fleet/zones/new", with(good, "geometry", feature)))
	path := "/fleet/zones/" + y.soleZone().ID
	if got := webtest.Text(y.admin.Page(path + "/edit").Field("geometry")); !strings.HasPrefix(got, `{"type":"MultiPolygon"`) {
		t.Errorf("got shape %q", got)
	}
	other := y.NewOrganization("Other")
	stranger := y.SignIn(y.NewUser(other, "eve@example.com", "Eve", "admin"))
	for _, of := range []string{path, path + "/edit", path + "/delete"} {
		stranger.WantRefused(stranger.Get(of), http.StatusNotFound)
		stranger.WantRefused(stranger.Post(path+"/edit", good), http.StatusNotFound)
		stranger.WantRefused(stranger.Post(path+"/delete", url.Values{"confirm": {"Mitte"}}), http.StatusNotFound)
	}
	// The zone does not exist in the sandbox.
	y.admin.WantRefused(y.admin.Get("/sandbox"+path), http.StatusNotFound)
	if y.soleZone().Name != "Mitte" {
		t.Error("the zone has changed")
	}
	y.live.write(func(ctx context.Context, tx *db.Tx) error {
		return y.live.DeleteZoneTx(ctx, tx, y.Organization.ID, y.soleZone().ID)
	})
}
