package fleetpages_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/web/mapview"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// maxPage is the maximum size of a page in bytes, for a total of 100 KB with styles
// and scripts.
const maxPage = 42 << 10

func TestMap(t *testing.T) {
	y := newYard(t)
	y.agent.Page("/fleet/map").Want("No vehicle has a location yet", "0 vehicles in view")
	d := y.agent.Page("/sandbox/fleet/map")
	d.Want("Berlin", "Out of contact", "Service area")
	if len(d.WithAttr("class", "sandbox")) != 1 {
		t.Error("nothing says that it is the sandbox")
	}
	if live := webtest.Attr(d.WithAttr("id", "map")[0], "data-live"); live != "test/vehicle test/alert test/zone" {
		t.Errorf("it hears of %q", live)
	}
	// Zoom in from the city to a vehicle.
	for range 12 {
		clusters := d.WithAttr("class", "cluster")
		if len(clusters) == 0 {
			break
		}
		d = y.agent.Page("/sandbox/fleet/map" + webtest.Attr(clusters[0].Parent, "href"))
	}
	var chosen string
	for _, a := range d.All("a") {
		if href := webtest.Attr(a, "href"); strings.Contains(href, "vehicle=") && chosen == "" {
			chosen = href
		}
	}
	if chosen == "" {
		t.Fatal("no vehicle on the map")
	}
	y.agent.Page("/sandbox/fleet/map"+chosen).Want("Last report", "Battery", "Close")
	y.agent.Page("/sandbox/fleet/map?vehicle=veh_nobody")
	y.agent.Page("/sandbox/fleet/map?state=missing&type=nothing&subaccount=nowhere").Want("Missing")
	for _, odd := range []string{"?z=2&lat=0&lng=180", "?z=20&lat=85&lng=-180", "?z=20&lat=-90&lng=0", "?z=9&lat=0&lng=179.9", "?z=NaN&lat=x", "?z=1&lat=900&lng=1"} {
		y.agent.Page("/sandbox/fleet/map" + odd)
	}
}

// TestMapTiles: members get the tiles of a map, with a policy of their own; nobody else does.
func TestMapTiles(t *testing.T) {
	y := newYard(t)
	y.agent.Page("/sandbox/fleet/map").Want("Natural Earth")
	d := y.agent.Page("/sandbox/fleet/map?z=11&lat=52.5&lng=13.4")
	var shapes, names int
	for _, use := range d.All("use") {
		path, part, _ := strings.Cut(webtest.Attr(use, "href"), "#")
		switch {
		case !strings.HasPrefix(path, "/map/tiles/"):
			continue
		case part == "t":
			shapes++
		case part == "l":
			names++
		}
		w := y.agent.Get(path)
		h := w.Header()
		if w.Code != 200 || h.Get("Content-Type") != "image/svg+xml" || h.Get("Content-Security-Policy") != "default-src 'none'" || h.Get("Cache-Control") != "private, max-age=86400" {
			t.Errorf("%s: got %d %v", path, w.Code, h)
		}
		if w := y.SignInWith(account.Tokens{}).Get(path); w.Code != 303 || strings.Contains(w.Body.String(), "<svg") {
			t.Errorf("a stranger gets %d", w.Code)
		}
	}
	if shapes == 0 || shapes != names || shapes > 20 {
		t.Errorf("got %d tiles, %d of names", shapes, names)
	}
	at := "/map/tiles/" + y.tiles.Tileset().Version()
	for _, odd := range []string{at + "/99/0/0", at + "/2/4/0", at + "/2/-1/0", at + "/x/0/0", "/map/tiles/other/99/0/0"} {
		if w := y.agent.Get(odd); w.Code != 404 {
			t.Errorf("%s: got %d", odd, w.Code)
		}
	}
	if w := y.agent.Get("/map/tiles/other/0/0/0"); w.Code != 200 || w.Header().Get("Cache-Control") != "private, max-age=60" {
		t.Errorf("a page of another version gets %d, for %s", w.Code, w.Header().Get("Cache-Control"))
	}
}

// TestFindPlace: the map moves to a city or a position, and says what it does not know.
func TestFindPlace(t *testing.T) {
	y := newYard(t)
	at := func(d webtest.Document, z, lat, lng float64) {
		t.Helper()
		m := d.WithAttr("id", "map")[0]
		x, fy := mapview.Project(lat, lng)
		for name, want := range map[string]float64{"data-z": z, "data-x": x, "data-y": fy} {
			if got, err := strconv.ParseFloat(webtest.Attr(m, name), 64); err != nil || math.Abs(got-want) > 1e-6 {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	}
	d := y.agent.Page("/fleet/map?place=sao+paulo&heat=ends")
	at(d, 12, -23.56, -46.63)
	d = y.agent.Page("/fleet/map?place=San+Francisco")
	at(d, 12, 37.77, -122.42)
	d.Want("Also:", "San Francisco, AR")
	at(y.agent.Page("/fleet/map?place=52.51,+13.39"), 16, 52.51, 13.39)
	at(y.agent.Page("/fleet/map?place=san+francisco&z=9&lat=38&lng=-122"), 9, 38, -122) // moved since
	y.agent.Page("/fleet/map?place=" + url.QueryEscape(hostile)).Want("No city of this name")
	y.agent.Page("/fleet/map?place=91,+500").Want("No city of this name")
}

// TestHeat: starts and ends of rides have squares by their number.
func TestHeat(t *testing.T) {
	y := newYard(t)
	for _, kind := range []string{"starts", "ends"} {
		d := y.agent.Page("/sandbox/fleet/map?z=12&lat=52.52&lng=13.405&heat=" + kind)
		d.Want("of the last 30 days")
		if n := len(d.WithAttr("class", "level-5")); n != 1 {
			t.Errorf("%s: got %d squares of the highest level", kind, n)
		}
	}
	if d := y.agent.Page("/sandbox/fleet/map?z=12&lat=52.52&lng=13.405&heat=other"); len(d.WithAttr("class", "heat")) > 0 {
		t.Error("an unknown kind has a heat map")
	}
	y.agent.Page("/sandbox/fleet/map?heat=ends&state=available").Want("of the last 30 days, by vehicles of any state and type.")
	y.agent.Page("/sandbox/fleet/map?z=12&lat=-33&lng=13.405&heat=ends").Want("0 ride ends of the last 30 days")
}

// TestLargeFleet: pages stay small for any number of vehicles.
func TestLargeFleet(t *testing.T) {
	y := newYard(t)
	y.live.sole()
	if err := y.live.BulkLoad(t.Context(), y.live.organization, fleet.SeedSize{Vehicles: 3000, Customers: 40, Rides: 300, Days: 40}); err != nil {
		t.Fatal(err)
	}
	area := geo.Area{}
	if err := area.UnmarshalJSON(manyCorners(13.4, 52.5)); err != nil {
		t.Fatal(err)
	}
	sub := y.live.sole()
	y.live.write(func(ctx context.Context, tx *db.Tx) error {
		for range 60 {
			if _, err := y.live.CreateZoneTx(ctx, tx, y.Organization.ID, fleet.NewZone{SubaccountID: sub.ID, Name: hostile, Type: fleet.Slow, Geometry: area}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, path := range []string{"/fleet", "/fleet?days=7", "/fleet?days=90", "/fleet?days=365&view=table", "/fleet?days=365", "/fleet/map", "/fleet/map?z=2&lat=30&lng=10", "/fleet/map?z=11&lat=52.5&lng=13.4", "/fleet/map?z=13&lat=52.5&lng=13.4", "/fleet/map?z=13&lat=52.5&lng=13.4&heat=starts", "/fleet/zones"} {
		w := y.agent.Get(path)
		webtest.Parse(t, w.Body.String())
		if w.Body.Len() > maxPage {
			t.Errorf("%s: %d bytes", path, w.Body.Len())
		}
	}
	d := y.agent.Page("/fleet/map?z=2&lat=30&lng=10")
	if n := len(d.WithAttr("class", "cluster")); n == 0 || n > 200 {
		t.Errorf("got %d clusters", n)
	}
}

// TestScattered: more isolated vehicles than the map draws are clusters of one, the same ones each time.
func TestScattered(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	const degree = 360 / 256.0 / 1024 // of a unit at zoom 10
	l.write(func(ctx context.Context, tx *db.Tx) error {
		for i := range 84 {
			at := geo.Position{Lat: (260 - 80*float64(i/12)) * degree, Lng: (80*float64(i%12) - 440) * degree}
			if _, err := l.CreateVehicleTx(ctx, tx, l.organization.ID, fleet.NewVehicle{
				SubaccountID: l.sub.ID, Code: fmt.Sprintf("D-%03d", i), VehicleTypeID: l.scooter, State: fleet.Available, Location: &at,
			}, fleet.Actor{Type: "system"}); err != nil {
				return err
			}
		}
		return nil
	})
	body := func() string { return y.agent.Get("/fleet/map?z=10&lat=0&lng=0").Body.String() }
	first := body()
	if !strings.Contains(first, ">1 vehicle<") || strings.Contains(first, ">1 vehicles<") {
		t.Error("a cluster of one has no name of its own")
	}
	for range 3 {
		if body() != first {
			t.Error("the same view has other vehicles")
		}
	}
}

// TestDepot: all vehicles of one spot are on the map, in pages where no zoom divides them.
func TestDepot(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	const count = 150
	l.write(func(ctx context.Context, tx *db.Tx) error {
		for i := range count {
			if _, err := l.CreateVehicleTx(ctx, tx, l.organization.ID, fleet.NewVehicle{
				SubaccountID: l.sub.ID, Code: fmt.Sprintf("D-%03d", i), VehicleTypeID: l.scooter, State: fleet.Available, Location: &geo.Position{Lat: 52.52, Lng: 13.405},
			}, fleet.Actor{Type: "system"}); err != nil {
				return err
			}
		}
		return nil
	})
	d := y.agent.Page("/fleet/map")
	for range 20 { // zoom in by the clusters
		clusters := d.WithAttr("class", "cluster")
		if len(clusters) == 0 {
			break
		}
		d = y.agent.Page("/fleet/map" + webtest.Attr(clusters[0].Parent, "href"))
	}
	seen := map[string]bool{}
	link := func(label string) string {
		for _, a := range d.All("a") {
			if webtest.Text(a) == label {
				return webtest.Attr(a, "href")
			}
		}
		return ""
	}
	for pages := 1; ; pages++ {
		d.Want("150 vehicles in view")
		var vehicle string
		for _, a := range d.All("bdi") {
			if code := webtest.Text(a); strings.HasPrefix(code, "D-") {
				seen[code] = true
				vehicle = webtest.Attr(a.Parent, "href")
			}
		}
		if dots := len(d.WithAttr("class", "dot available")); dots < 30 || dots > 61 {
			t.Errorf("page %d has %d dots", pages, dots)
		}
		if len(y.agent.Page("/fleet/map"+vehicle).WithAttr("class", "dot available chosen")) != 1 {
			t.Errorf("the page of %s does not show it", vehicle)
		}
		if (link("First vehicles") != "") != (pages > 1) {
			t.Errorf("page %d: the link to the first page is %q", pages, link("First vehicles"))
		}
		next := link("Next vehicles")
		if next == "" {
			break
		}
		d = y.agent.Page("/fleet/map" + next)
	}
	if len(seen) != count {
		t.Errorf("got %d vehicles, want %d", len(seen), count)
	}
}

// manyCorners is a circle in GeoJSON.
func manyCorners(lng, lat float64) []byte {
	var ring [][2]float64
	for i := range 500 {
		turn := float64(i) / 500 * 2 * math.Pi
		ring = append(ring, [2]float64{lng + 0.1*math.Cos(turn), lat + 0.06*math.Sin(turn)})
	}
	text, err := json.Marshal(map[string]any{"type": "Polygon", "coordinates": [][][2]float64{append(ring, ring[0])}})
	if err != nil {
		panic(err)
	}
	return text
}
