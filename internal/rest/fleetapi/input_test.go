package fleetapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// names returns the field names of an object in order.
func names(t testing.TB, text string) []string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	var list []string
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, name.(string))
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// TestHostile sends bodies and queries that must be refused, and similar ones that are valid.
func TestHostile(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	zone := func(geometry string) string {
		return `{"subaccount_id":"` + p.sub.ID + `","name":"Z","type":"parking","geometry":` + geometry + `}`
	}
	ring := func(points string) string { return zone(`{"type":"Polygon","coordinates":[[` + points + `]]}`) }
	for what, test := range map[string]struct{ path, body, want string }{
		"a bow tie":                {"/zones", ring("[0,0],[1,1],[1,0],[0,1],[0,0]"), "422 #/geometry invalid_geometry"},
		"an open ring":             {"/zones", ring("[0,0],[1,0],[1,1],[0,1]"), "422 #/geometry invalid_geometry"},
		"a ring of two":            {"/zones", ring("[0,0],[1,0],[0,0]"), "422 #/geometry invalid_geometry"},
		"no ring":                  {"/zones", zone(`{"type":"Polygon","coordinates":[]}`), "422 #/geometry invalid_geometry"},
		"a point":                  {"/zones", zone(`{"type":"Point","coordinates":[0,0]}`), "422 #/geometry invalid_geometry"},
		"text":                     {"/zones", zone(`"POLYGON((0 0))"`), "422 #/geometry invalid_geometry"},
		"null":                     {"/zones", zone(`null`), "422 #/geometry required"},
		"outside of the world":     {"/zones", ring("[0,0],[181,0],[181,1],[0,0]"), "422 #/geometry invalid_geometry"},
		"huge numbers":             {"/zones", ring("[0,0],[1e308,0],[1e308,1e308],[0,0]"), "422 #/geometry invalid_geometry"},
		"more than huge":           {"/zones", ring("[0,0],[1e999,0],[1,1],[0,0]"), "422 #/geometry invalid_geometry"},
		"an edge around the world": {"/zones", ring("[-179,0],[179,0],[179,1],[-179,0]"), "422 #/geometry invalid_geometry"},
		"both poles":               {"/zones", ring("[-90,-90],[90,-90],[90,90],[-90,90],[-90,-90]"), "201"},
		"at the antimeridian":      {"/zones", zone(`{"type":"MultiPolygon","coordinates":[[[[179,0],[180,0],[180,1],[179,1],[179,0]]],[[[-180,0],[-179,0],[-179,1],[-180,1],[-180,0]]]]}`), "201"},
		"NaN":                      {"/zones", ring("[0,0],[NaN,0],[1,1],[0,0]"), "400 invalid_json"},
		"a member twice":           {"/zones", `{"name":"a","name":"b"}`, "400 invalid_json"},
		"deep":                     {"/zones", strings.Repeat("[", 100_000), "400 invalid_json"},
		"deep and large":           {"/zones", strings.Repeat(`{"a":`, 2<<20), "413 body_too_large"},
		"too many values":          {"/zones", zone("[" + strings.Repeat("0,", 150_000) + "0]"), "413 body_too_large"},
		"not UTF-8":                {"/zones", "{\"name\":\"\xff\"}", "400 invalid_json"},
		"NUL":                      {"/zones", strings.Replace(ring("[0,0],[1,0],[1,1],[0,0]"), `"Z"`, `"\u0000"`, 1), "422 #/name invalid_format"},
		"no object":                {"/vehicles", `[]`, "422 # invalid_type"},
		"a latitude too large":     {"/vehicles", `{"code":"a","vehicle_type_id":"` + p.scooter + `","subaccount_id":"` + p.sub.ID + `","location":{"lat":91,"lng":0}}`, "422 #/location/lat too_large"},
		"a longitude of 1e308":     {"/vehicles", `{"code":"a","vehicle_type_id":"` + p.scooter + `","subaccount_id":"` + p.sub.ID + `","location":{"lat":0,"lng":1e308}}`, "422 #/location/lng too_large"},
		"half a position":          {"/vehicles", `{"code":"a","vehicle_type_id":"` + p.scooter + `","subaccount_id":"` + p.sub.ID + `","location":{"lat":0}}`, "422 #/location/lng required"},
		"a code with a space":      {"/vehicles", `{"code":"a b","vehicle_type_id":"` + p.scooter + `","subaccount_id":"` + p.sub.ID + `"}`, "422 #/code invalid_format"},
		"a charge of 101 percent":  {"/vehicles", `{"code":"a","vehicle_type_id":"` + p.scooter + `","subaccount_id":"` + p.sub.ID + `","battery_percent":101}`, "422 #/battery_percent too_large"},
		"all faults of a zone":     {"/zones", `{"name":"","type":"lake","geometry":{"type":"Point"},"priority":-1}`, "422 #/name too_short #/type invalid_value #/geometry invalid_geometry #/priority too_small #/subaccount_id required"},
		"all faults of a place":    {"/vehicles", `{"code":"a","vehicle_type_id":5,"subaccount_id":"` + p.sub.ID + `","location":{"lat":-91,"lng":1e999,"heading":361}}`, "422 #/vehicle_type_id invalid_type #/location/lat too_small #/location/lng too_large #/location/heading too_large"},
		"no subaccount":            {"/vehicles", `{"code":"a","vehicle_type_id":"` + p.scooter + `"}`, "422 #/subaccount_id required"},
		"an event when it is made": {"/vehicles", `{"code":"a","vehicle_type_id":"` + p.scooter + `","subaccount_id":"` + p.sub.ID + `","event":"maintenance"}`, "422 #/event read_only"},
	} {
		a := p.Do("POST", test.path, test.body)
		var got strings.Builder
		got.WriteString(fmt.Sprint(a.Status))
		switch problem := a.Problem(); {
		case len(problem.Errors) > 0:
			for _, e := range problem.Errors {
				got.WriteString(" " + e.Pointer + " " + e.Code)
			}
			if strings.Contains(a.Body, "geometry geometry") || strings.Contains(a.Body, "invalid: ") {
				t.Errorf("%s: it says twice what it is about: %s", what, a.Body)
			}
		case problem.Code != "":
			got.WriteString(" " + problem.Code)
		}
		if got.String() != test.want {
			t.Errorf("%s: got %s, want %s: %.300s", what, got.String(), test.want, a.Body)
		}
	}
}

// TestPlaces searches by location.
func TestPlaces(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	at := func(lat, lng float64) string {
		return p.vehicle(fields{"location": fields{"lat": lat, "lng": lng}}).text("id")
	}
	here, near, far, fiji := at(52.52, 13.405), at(52.523, 13.405), at(52.6, 13.405), at(-17, 179.999)
	list := func(query string) (ids []string, distances []any) {
		t.Helper()
		var page struct{ Data []fields }
		a := p.Get("/vehicles" + query)
		a.JSON(&page)
		if a.Status != 200 {
			t.Fatalf("%s: %d %s", query, a.Status, a.Body)
		}
		for _, v := range page.Data {
			ids = append(ids, v.text("id"))
			distances = append(distances, v["distance_meters"])
		}
		return ids, distances
	}
	for query, want := range map[string][]string{
		"?lat=52.52&lng=13.405":                                     {here, near},
		"?lat=52.52&lng=13.405&sort=-distance":                      {near, here},
		"?lat=52.52&lng=13.405&radius_meters=50000":                 {here, near, far},
		"?lat=52.52&lng=13.405&radius_meters=0":                     {here},
		"?lat=52.52&lng=13.405&sort=created_at&radius_meters=20000": {here, near, far},
		"?bbox=13,52,14,52.55&sort=created_at":                      {here, near},
		"?bbox=179,-18,-179,-16":                                    {fiji},
		"?lat=-17&lng=-179.999&radius_meters=500":                   {fiji},
	} {
		if got, distances := list(query); !slices.Equal(got, want) {
			t.Errorf("%s: got %q %v, want %q", query, got, distances, want)
		}
	}
	if _, distances := list("?lat=52.52&lng=13.405"); fmt.Sprint(distances) != "[0 334]" {
		t.Errorf("the distances are %v", distances)
	}
	// The same page by page.
	a := p.Get("/vehicles?lat=52.52&lng=13.405&radius_meters=50000&limit=2")
	next, _ := url.Parse(strings.Trim(strings.Split(a.Header.Get("Link"), ">")[0], "<"))
	var page struct{ Data []fields }
	p.Get(next.RequestURI()).JSON(&page)
	if len(page.Data) != 1 || page.Data[0].text("id") != far {
		t.Errorf("the second page has %v", page.Data)
	}
	for query, parameter := range map[string]string{
		"?lat=52": "lng", "?lng=13": "lat", "?radius_meters=5": "radius_meters", "?sort=distance": "sort", "?lat=91&lng=0": "lat", "?lat=0&lng=181": "lng",
		"?lat=NaN&lng=0": "lat", "?lat=0&lng=0&radius_meters=50001": "radius_meters", "?lat=0&lng=0&radius_meters=-1": "radius_meters",
		"?bbox=1,2,3": "bbox", "?bbox=1,2,3,x": "bbox", "?bbox=1,2,3,NaN": "bbox", "?bbox=0x1p1,2,3,4": "bbox", "?bbox=1,2,1_0,4": "bbox", "?lat=1_0&lng=0": "lat", "?lat=0x10&lng=0": "lat", "?bbox=1,3,2,2": "bbox", "?bbox=-181,0,0,0": "bbox", "?bbox=0,0,1e308,0": "bbox",
	} {
		refused(t, query, p.Get("/vehicles"+query), 400, "invalid_parameter", parameter+" invalid_value")
	}
	zone := p.zone("parking", 13.4, 52.5).text("id")
	for query, want := range map[string]int{"?lat=52.5&lng=13.4": 1, "?lat=0&lng=0": 0, "?bbox=13.44,52.54,14,53": 1, "?bbox=14,53,15,54": 0, "?in_force=true": 1, "?in_force=false": 0, "?type=slow": 0} {
		p.Get("/zones" + query).JSON(&page)
		if len(page.Data) != want {
			t.Errorf("zones%s: got %d, want %d (%s)", query, len(page.Data), want, zone)
		}
	}
}

// TestRidesInBox checks the range that a list of rides in a box needs.
func TestRidesInBox(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	want := p.ride().text("id")
	now := time.Now().UTC()
	day := func(n int) string { return now.AddDate(0, 0, n).Format(time.RFC3339) }
	const box = "/rides?bbox=-180,-90,180,90"
	for query, ok := range map[string]bool{
		"":                  true,
		"&sort=-created_at": true,
		"&sort=started_at":  true,
		"&sort=-started_at&started_at[gte]=" + day(-900):                               true,
		"&sort=total_amount":                                                           false,
		"&sort=-updated_at&started_at[gte]=" + day(-2):                                 false,
		"&sort=-updated_at&started_at[gte]=" + day(-91) + "&started_at[lt]=" + day(1):  true,
		"&sort=total_amount&created_at[gt]=" + day(-91) + "&created_at[lte]=" + day(1): true,
		"&sort=ended_at&created_at[gt]=" + day(-92) + "&created_at[lte]=" + day(1):     false,
	} {
		for _, accept := range []string{"application/json", "application/x-ndjson"} {
			a := p.Do("GET", box+query, "", "Accept: "+accept)
			if !ok {
				refused(t, accept+" "+query, a, 400, "range_too_large")
			} else if a.Status != 200 || strings.Count(string(a.Body), `"`+want+`"`) != 1 {
				t.Errorf("%s %s: got %d %s, want %s", accept, query, a.Status, a.Body, want)
			}
		}
	}
	send(t, p.Client, "GET", "/rides?sort=total_amount", "", 200)
}

// TestImports imports many records and reads them back.
func TestImports(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	var lines []string
	for i := range 5 {
		lines = append(lines, jsonOf(t, fields{"subaccount_id": p.sub.ID, "code": fmt.Sprint("I-", i), "vehicle_type_id": p.scooter, "state": "available", "location": fields{"lat": 52.5, "lng": 13.4}}))
	}
	lines[3] = strings.Replace(lines[3], "I-3", "i-0", 1) // duplicate of the first
	a := p.Do("POST", "/vehicles?atomic=true", strings.Join(lines, "\n"), "Content-Type: application/x-ndjson")
	refused(t, "all or none", a, 422, "validation_failed", "#/4 already_exists")
	a = p.Do("POST", "/vehicles", strings.Join(lines, "\n"), "Content-Type: application/x-ndjson")
	if a.Status != 200 || !strings.HasSuffix(a.Body, `{"summary":{"created":4,"failed":1}}`+"\n") || !strings.Contains(a.Body, `{"line":4,"status":409,`) {
		t.Errorf("got %d %s", a.Status, a.Body)
	}
	a = p.Do("POST", "/vehicles", "code,vehicle_type_id,subaccount_id,location.lat,location.lng\nC-1,"+p.scooter+","+p.sub.ID+",52.5,13.4\n", "Content-Type: text/csv")
	if a.Status != 200 || !strings.HasSuffix(a.Body, `{"summary":{"created":1,"failed":0}}`+"\n") {
		t.Errorf("CSV: got %d %s", a.Status, a.Body)
	}
	if n := strings.Count(p.Get("/vehicles", "Accept: application/x-ndjson").Body, "\n"); n != 5 {
		t.Errorf("there are %d vehicles, want 5", n)
	}

	p.zone("parking", 13.4, 52.5)
	p.zone("no_ride", 14, 53)
	out := p.Get("/zones", "Accept: application/geo+json")
	var collection struct {
		Type     string
		Features []struct {
			Type       string
			ID         string
			Geometry   map[string]any
			Properties fields
		}
	}
	out.JSON(&collection)
	if out.Status != 200 || collection.Type != "FeatureCollection" || len(collection.Features) != 2 || collection.Features[0].Geometry["type"] != "MultiPolygon" {
		t.Fatalf("GeoJSON: %d %s", out.Status, out.Body)
	}
	var features []any
	for _, f := range collection.Features {
		properties := fields{}
		for _, name := range []string{"name", "type", "rules", "priority"} {
			properties[name] = f.Properties[name]
		}
		properties["subaccount_id"] = p.other.ID
		features = append(features, fields{"type": "Feature", "geometry": f.Geometry, "properties": properties})
	}
	crossed := fields{"type": "Feature", "geometry": fields{"type": "Polygon", "coordinates": [][][2]float64{{{0, 0}, {1, 1}, {1, 0}, {0, 1}, {0, 0}}}},
		"properties": fields{"name": "Z", "type": "parking", "subaccount_id": p.other.ID}}
	a = p.Do("POST", "/zones", jsonOf(t, fields{"type": "FeatureCollection", "features": append(features, crossed)}), "Content-Type: application/geo+json")
	if a.Status != 200 || !strings.HasSuffix(a.Body, `{"summary":{"created":2,"failed":1}}`+"\n") || !strings.Contains(a.Body, "invalid_geometry") {
		t.Errorf("GeoJSON in: %d %s", a.Status, a.Body)
	}
	var back struct{ Data []fields }
	p.Get("/zones?sort=name&subaccount_id=" + p.other.ID).JSON(&back)
	if len(back.Data) != 2 || jsonOf(t, back.Data[0]["geometry"]) != jsonOf(t, collection.Features[0].Geometry) && jsonOf(t, back.Data[0]["geometry"]) != jsonOf(t, collection.Features[1].Geometry) {
		t.Errorf("what came back is %v", back.Data)
	}
}
