package gbfs_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/gbfs"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/tariff"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas is the folder of the official schemas, if present, with a folder per version.
const schemas = "../../../shared/gbfs"

const origin = "https://help.example.com"

// rig is a feed with one enabled system and its fleet.
type rig struct {
	t        *testing.T
	db       *db.DB
	fleet    *fleet.Service
	feed     *gbfs.Feed
	org      string
	sub      fleet.Subaccount
	secrets  []string // must not appear in files
	vehicles map[string]fleet.Vehicle
}

func newRig(t *testing.T) *rig { return newRigOf(t, true) }

// newRigOf is newRig for production or the sandbox.
func newRigOf(t *testing.T, live bool) *rig {
	t.Helper()
	d := dbtest.NewFleet(t)
	r := &rig{t: t, db: d, fleet: fleet.Open(fleet.Config{DB: d, Live: live}), org: "0192aaaa-0000-7000-8000-000000000001", vehicles: map[string]fleet.Vehicle{}}
	r.feed = gbfs.New(r.fleet, origin, gbfs.Path, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err := r.fleet.Provision(t.Context(), fleet.Organization{ID: r.org, Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	subs, err := r.fleet.Subaccounts(t.Context(), d, r.org)
	if err != nil || live && len(subs) != 1 {
		t.Fatalf("%d subaccounts, %v", len(subs), err)
	}
	r.sub = subs[0]
	return r
}

func (r *rig) write(fn func(tx *db.Tx) error) {
	r.t.Helper()
	if err := r.db.Write(r.t.Context(), fn); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) update(c fleet.SubaccountChange) {
	r.t.Helper()
	r.write(func(tx *db.Tx) (err error) {
		r.sub, err = r.fleet.UpdateSubaccountTx(r.t.Context(), tx, r.org, r.sub, c)
		return err
	})
}

// fill creates records for every element of the feed.
func (r *rig) fill() {
	r.t.Helper()
	ctx := r.t.Context()
	r.update(fleet.SubaccountChange{
		Name: optional.Of("Berlin"), TimeZone: optional.Of("Europe/Berlin"),
		VehicleTypes: optional.Of([]fleet.VehicleType{
			{Name: "Scooter", FormFactor: "scooter_standing", PropulsionType: "electric", MaxRangeMeters: new(int64(45000)), WheelCount: new(int64(2)),
				MaxPermittedSpeed: new(int64(20)), RiderCapacity: new(int64(1)), ReservationMinutes: 15, MinAge: 18},
			{Name: "Bicycle", FormFactor: "bicycle", PropulsionType: "human"},
		}),
		GBFS: optional.Of(fleet.GBFS{Enabled: true, SystemID: "acme_berlin", Operator: "Acme", OpeningHours: "24/7", ContactEmail: "feed@example.com", LicenseID: "CC0-1.0",
			WebRentalURI: "https://acme.example/rent/{vehicle_id}", AndroidRentalURI: "https://acme.example/android?v={vehicle_id}", AndroidStoreURI: "https://play.example/acme", AndroidDiscoveryURI: "com.acme.android://",
			IOSRentalURI: "acme://rent/{vehicle_id}", IOSStoreURI: "https://apps.example/acme", IOSDiscoveryURI: "acme://",
		}),
		Alerts: optional.Of([]fleet.Alert{
			{Type: "system_closure", Summary: "Marathon", Description: "Closed on Sunday.", URL: "https://acme.example/marathon",
				StartsAt: rfc3339.Time(time.Date(2026, 9, 27, 6, 0, 0, 0, time.UTC)), EndsAt: rfc3339.Time(time.Date(2126, 9, 27, 18, 0, 0, 0, time.UTC))},
			{Type: "other", Summary: "It is over", EndsAt: rfc3339.Time(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))},
		}),
	})
	scooter, bicycle := r.sub.VehicleTypes[0].ID, r.sub.VehicleTypes[1].ID
	var plan fleet.Plan
	r.write(func(tx *db.Tx) (err error) {
		plan, err = r.fleet.CreatePlanTx(ctx, tx, r.org, fleet.NewPlan{
			SubaccountID: r.sub.ID, Name: "Standard", Description: "1 EUR to unlock, 0.25 EUR a minute", URL: "https://acme.example/prices",
			Tariff: tariff.Tariff{
				Currency: "EUR", UnlockAmount: 100, PerMinute: []tariff.Segment{{Start: 0, Rate: 25, Interval: 1}}, PerKilometer: []tariff.Segment{{Start: 10, Rate: -5, Interval: 1, End: new(int64(25))}},
				ReservationPerMin: new(int64(15)), ReservationFreeMinutes: 5, FareCap: &tariff.FareCap{DurationMinutes: 1440, Amount: 3500},
				PausePerMinAmount: new(int64(0)), OutOfZoneAmount: new(int64(1500)),
			},
			VehicleTypeIDs: []string{scooter},
		})
		if err != nil {
			return err
		}
		_, err = r.fleet.CreatePlanTx(ctx, tx, r.org, fleet.NewPlan{
			SubaccountID: r.sub.ID, Name: "Retired", Tariff: tariff.Tariff{Currency: "EUR", UnlockAmount: 1}, Active: new(false),
		})
		return err
	})
	r.update(fleet.SubaccountChange{DefaultPricingPlanID: optional.Of(fleet.NullString(plan.ID))})
	square := func(size float64) geo.Area {
		var a geo.Area
		text, _ := json.Marshal(map[string]any{"type": "Polygon", "coordinates": [][][]float64{{{13, 52}, {13 + size, 52}, {13 + size, 52 + size}, {13, 52 + size}, {13, 52}}}})
		if err := json.Unmarshal(text, &a); err != nil {
			r.t.Fatal(err)
		}
		return a
	}
	r.write(func(tx *db.Tx) error {
		for _, z := range []fleet.NewZone{
			{Name: "All of it", Type: fleet.ServiceArea, Geometry: square(1)},
			{Name: "Park", Type: fleet.NoRide, Geometry: square(0.1)},
			{Name: "Slow for scooters", Type: fleet.CustomZone, Priority: new(int64(200)), Geometry: square(0.2), Rules: []fleet.Rule{{VehicleTypeIDs: []string{scooter}, StartAllowed: true, ThroughAllowed: true, MaximumSpeed: new(int64(6))}},
				StartsAt: rfc3339.Time(time.Date(2026, 1, 1, 0, 0, 0, 500e6, time.UTC)), EndsAt: rfc3339.Time(time.Date(2126, 1, 1, 0, 0, 0, 0, time.UTC))},
		} {
			z.SubaccountID = r.sub.ID
			if _, err := r.fleet.CreateZoneTx(ctx, tx, r.org, z); err != nil {
				return err
			}
		}
		return nil
	})
	by := fleet.Actor{Type: "system"}
	create := func(n fleet.NewVehicle) {
		n.SubaccountID, n.ExternalID, n.Metadata = r.sub.ID, fleet.NullString("ext-"+n.Code), map[string]string{"bay": "bay-" + n.Code}
		n.DeviceID, n.VIN, n.LicensePlate = fleet.NullString("imei-"+n.Code), fleet.NullString("vin-"+n.Code), fleet.NullString("plate-"+n.Code)
		r.write(func(tx *db.Tx) error {
			v, err := r.fleet.CreateVehicleTx(ctx, tx, r.org, n, by)
			r.vehicles[n.Code] = v
			return err
		})
		r.secrets = append(r.secrets, n.Code, string(n.ExternalID), string(n.DeviceID), string(n.VIN), string(n.LicensePlate), "bay-")
	}
	at := &geo.Position{Lat: 52.5200081, Lng: 13.5}
	create(fleet.NewVehicle{Code: "AAA-1", VehicleTypeID: scooter, State: fleet.Available, Location: at, BatteryPercent: new(int64(73)), PricingPlanID: fleet.NullString(plan.ID)})
	create(fleet.NewVehicle{Code: "BBB-2", VehicleTypeID: bicycle, State: fleet.Available, Location: at})
	create(fleet.NewVehicle{Code: "CCC-3", VehicleTypeID: scooter, State: fleet.Available, Location: at}) // will be ridden
	create(fleet.NewVehicle{Code: "DDD-4", VehicleTypeID: scooter, State: fleet.Available, Location: at}) // will be out of order
	create(fleet.NewVehicle{Code: "EEE-5", VehicleTypeID: scooter, State: fleet.Available, Location: at}) // will be reserved
	create(fleet.NewVehicle{Code: "FFF-6", VehicleTypeID: scooter, Location: at})                         // removed
	create(fleet.NewVehicle{Code: "GGG-7", VehicleTypeID: scooter})                                       // nowhere
	r.write(func(tx *db.Tx) error {
		c, err := r.fleet.CreateCustomerTx(ctx, tx, r.org, fleet.NewCustomer{SubaccountID: r.sub.ID, Name: "Ada Example", Email: "ada@example.com", ExternalID: "app-88213"})
		if err != nil {
			return err
		}
		other, err := r.fleet.CreateCustomerTx(ctx, tx, r.org, fleet.NewCustomer{SubaccountID: r.sub.ID, Name: "Bob Example"})
		if err != nil {
			return err
		}
		r.secrets = append(r.secrets, "Ada", "ada@", "app-88213", "Bob")
		if _, err := r.fleet.StartRideTx(ctx, tx, r.org, fleet.NewRide{CustomerID: fleet.NullString(c.ID), VehicleID: fleet.NullString(r.vehicles["CCC-3"].ID)}, by); err != nil {
			return err
		}
		_, err = r.fleet.StartRideTx(ctx, tx, r.org, fleet.NewRide{CustomerID: fleet.NullString(other.ID), VehicleID: fleet.NullString(r.vehicles["EEE-5"].ID), Status: fleet.Reserved}, by)
		if err != nil {
			return err
		}
		v, err := r.fleet.LockVehicleTx(ctx, tx, r.org, r.vehicles["DDD-4"].ID)
		if err != nil {
			return err
		}
		_, err = r.fleet.UpdateVehicleTx(ctx, tx, r.org, v, fleet.VehicleChange{State: optional.Of(fleet.NonOperational)}, by)
		return err
	})
}

func (r *rig) get(path string, headers ...string) *http.Response {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	r.feed.ServeHTTP(w, req)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var names = []string{"gbfs", "gbfs_versions", "system_information", "vehicle_types", "vehicle_status", "system_pricing_plans", "geofencing_zones", "system_alerts"}

// names23 are the files of GBFS 2.3.
var names23 = []string{"gbfs", "gbfs_versions", "system_information", "vehicle_types", "free_bike_status", "system_pricing_plans", "geofencing_zones", "system_alerts"}

// TestSchemas validates every file against the official JSON Schemas, for a full
// and for an empty system.
func TestSchemas(t *testing.T) {
	for _, v := range []struct {
		folder, path string
		names        []string
	}{{"v3.0", gbfs.Path, append([]string{"manifest"}, names...)}, {"v2.3", gbfs.Path23, names23}} {
		t.Run(v.folder, func(t *testing.T) {
			folder := filepath.Join(schemas, v.folder)
			if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
				t.Skipf("the official JSON Schemas (MobilityData gbfs-json-schema) are not at %s", folder)
			}
			testSchemas(t, folder, v.path, v.names)
		})
	}
}

func testSchemas(t *testing.T, folder, prefix string, names []string) {
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7)
	compiler.AssertFormat()
	check := func(t *testing.T, name, text string) error {
		t.Helper()
		schema, err := compiler.Compile(filepath.Join(folder, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(got)
	}
	r := newRig(t)
	r.update(fleet.SubaccountChange{GBFS: optional.Of(fleet.GBFS{Enabled: true, SystemID: "acme_berlin", OpeningHours: "Mo-Fr 08:00-18:00", ContactEmail: "feed@example.com"})})
	for _, filled := range []bool{false, true} {
		if filled {
			r.fill()
		}
		for _, name := range names {
			path := prefix + "acme_berlin/" + name + ".json"
			if name == "manifest" {
				path = prefix + "manifest.json"
			}
			got := r.get(path)
			text := body(t, got)
			if got.StatusCode != 200 {
				t.Fatalf("%s: %s: %s", path, got.Status, text)
			}
			if err := check(t, name, text); err != nil {
				t.Errorf("%s (filled: %v): %v\n%s", name, filled, err, text)
			}
		}
	}
	// The validator detects an error.
	for _, wrong := range []struct{ name, member string }{
		{"geofencing_zones", "geofencing_zones"}, {names[len(names)-4], "lon"}, {"system_pricing_plans", "description"}, {"system_alerts", "summary"},
	} {
		text := body(t, r.get(prefix+"acme_berlin/"+wrong.name+".json"))
		if err := check(t, wrong.name, strings.Replace(text, `"`+wrong.member+`"`, `"other"`, 1)); err == nil {
			t.Errorf("%s without %s passes", wrong.name, wrong.member)
		}
	}
}

// TestOlderReaders compares the files of GBFS 2.3 with those of 3.0.
func TestOlderReaders(t *testing.T) {
	r := newRig(t)
	r.fill()
	read := func(path string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(body(t, r.get(path))), into); err != nil {
			t.Fatal(path, err)
		}
	}
	var bikes struct {
		Updated int64 `json:"last_updated"`
		Version string
		Data    struct{ Bikes []map[string]any }
	}
	read(gbfs.Path23+"acme_berlin/free_bike_status.json", &bikes)
	var vehicles struct {
		Data struct{ Vehicles []map[string]any }
	}
	read(gbfs.Path+"acme_berlin/vehicle_status.json", &vehicles)
	if bikes.Version != "2.3" || bikes.Updated < time.Now().Add(-time.Hour).Unix() || len(bikes.Data.Bikes) != len(vehicles.Data.Vehicles) {
		t.Fatalf("version %q of %d, %d bikes, want %d", bikes.Version, bikes.Updated, len(bikes.Data.Bikes), len(vehicles.Data.Vehicles))
	}
	for i, b := range bikes.Data.Bikes {
		v := vehicles.Data.Vehicles[i]
		links := b["rental_uris"].(map[string]any)
		if b["bike_id"] != v["vehicle_id"] || b["vehicle_id"] != nil || b["is_reserved"] != v["is_reserved"] || b["is_disabled"] != v["is_disabled"] ||
			links["ios"] != "acme://rent/"+v["vehicle_id"].(string) || links["web"] != v["rental_uris"].(map[string]any)["web"] {
			t.Errorf("bike %v, want %v", b, v)
		}
	}
	var zones struct {
		Data struct {
			Zones struct {
				Features []struct {
					Properties struct{ Rules []map[string]any }
				}
			} `json:"geofencing_zones"`
		}
	}
	read(gbfs.Path23+"acme_berlin/geofencing_zones.json", &zones)
	features := zones.Data.Zones.Features
	if len(features) != 4 || features[1].Properties.Rules[0]["ride_allowed"] != true || features[2].Properties.Rules[0]["ride_allowed"] != false || features[3].Properties.Rules[0]["ride_allowed"] != false {
		t.Errorf("zones %+v", features)
	}
	var versions struct {
		Data struct {
			Versions []struct{ Version, URL string }
		}
	}
	for _, path := range []string{gbfs.Path, gbfs.Path23} {
		read(path+"acme_berlin/gbfs_versions.json", &versions)
		if got := versions.Data.Versions; len(got) != 2 || got[0].URL != origin+"/gbfs/2.3/acme_berlin/gbfs.json" || got[1].URL != origin+"/gbfs/v3/acme_berlin/gbfs.json" {
			t.Errorf("%s: versions %v", path, got)
		}
	}
	for _, path := range []string{"/gbfs/2.3/manifest.json", "/gbfs/2.3/acme_berlin/vehicle_status.json", "/gbfs/2.2/acme_berlin/gbfs.json", "/gbfs/v3/acme_berlin/free_bike_status.json"} {
		if got := r.get(path); got.StatusCode != 404 {
			t.Errorf("%s: %s", path, got.Status)
		}
	}
}

// TestLinks: links to apps and vehicles must be complete and absolute.
func TestLinks(t *testing.T) {
	r := newRig(t)
	for want, g := range map[string]fleet.GBFS{
		"":                                   {WebRentalURI: "https://acme.example/{vehicle_id}", IOSRentalURI: "acme:///rent?v={vehicle_id}", IOSStoreURI: "https://apps.example/acme", IOSDiscoveryURI: "acme://"},
		"gbfs.rental_uri_web invalid_format": {WebRentalURI: "acme.example"},
		"gbfs.store_uri_ios required, gbfs.discovery_uri_ios required":                                                 {IOSRentalURI: "acme://rent/{vehicle_id}"},
		"gbfs.store_uri_android required":                                                                              {AndroidDiscoveryURI: "com.acme.android://"},
		"gbfs.rental_uri_android invalid_format, gbfs.store_uri_android required, gbfs.discovery_uri_android required": {AndroidRentalURI: "javascript:alert(1)"},
		"gbfs.discovery_uri_android invalid_format":                                                                    {AndroidStoreURI: "https://play.example/acme", AndroidDiscoveryURI: "acme"},
	} {
		err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := r.fleet.UpdateSubaccountTx(t.Context(), tx, r.org, r.sub, fleet.SubaccountChange{GBFS: optional.Of(g)})
			return err
		})
		var got []string
		if e, ok := errors.AsType[*problem.Error](err); ok {
			for _, issue := range e.Issues {
				got = append(got, issue.Path+" "+issue.Code)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		if sub, err := r.fleet.Subaccount(t.Context(), r.db, r.org, r.sub.ID); err == nil {
			r.sub = sub
		}
	}
}

// TestContent checks the files as read by clients.
func TestContent(t *testing.T) {
	r := newRig(t)
	r.fill()
	data := func(name string) string {
		t.Helper()
		var envelope struct {
			LastUpdated string `json:"last_updated"`
			TTL         int    `json:"ttl"`
			Version     string `json:"version"`
			Data        json.RawMessage
		}
		if err := json.Unmarshal([]byte(body(t, r.get("/gbfs/v3/acme_berlin/"+name+".json"))), &envelope); err != nil {
			t.Fatal(err)
		}
		if _, err := time.Parse("2006-01-02T15:04:05Z", envelope.LastUpdated); err != nil || envelope.Version != "3.0" {
			t.Errorf("%s: last_updated %q, version %q", name, envelope.LastUpdated, envelope.Version)
		}
		return string(envelope.Data)
	}
	scooter, bicycle := r.sub.VehicleTypes[0].ID, r.sub.VehicleTypes[1].ID
	plan := string(r.sub.DefaultPricingPlanID)
	alert := r.sub.Alerts[0].ID
	for name, want := range map[string]string{
		"system_information": `{"system_id":"acme_berlin","languages":["en"],"name":[{"text":"Berlin","language":"en"}],"operator":[{"text":"Acme","language":"en"}],"opening_hours":"24/7","timezone":"Europe/Berlin","feed_contact_email":"feed@example.com","license_id":"CC0-1.0","rental_apps":{"android":{"store_uri":"https://play.example/acme","discovery_uri":"com.acme.android://"},"ios":{"store_uri":"https://apps.example/acme","discovery_uri":"acme://"}}}`,
		"vehicle_types": `{"vehicle_types":[{"vehicle_type_id":"` + scooter + `","name":[{"text":"Scooter","language":"en"}],"form_factor":"scooter_standing","propulsion_type":"electric","max_range_meters":45000,"wheel_count":2,"max_permitted_speed":20,"rider_capacity":1,"default_reserve_time":15,"return_constraint":"free_floating","default_pricing_plan_id":"` + plan + `","pricing_plan_ids":["` + plan + `"]},` +
			`{"vehicle_type_id":"` + bicycle + `","name":[{"text":"Bicycle","language":"en"}],"form_factor":"bicycle","propulsion_type":"human","default_reserve_time":0,"return_constraint":"free_floating","default_pricing_plan_id":"` + plan + `","pricing_plan_ids":["` + plan + `"]}]}`,
		"system_pricing_plans": `{"plans":[{"plan_id":"` + plan + `","url":"https://acme.example/prices","name":[{"text":"Standard","language":"en"}],"currency":"EUR","price":1,"is_taxable":false,"description":[{"text":"1 EUR to unlock, 0.25 EUR a minute","language":"en"}],` +
			`"per_km_pricing":[{"start":10,"rate":-0.05,"interval":1,"end":25}],"per_min_pricing":[{"start":0,"rate":0.25,"interval":1}],"_reservation_price_per_min":0.15,"_fare_capping":[{"duration":1440,"price":35}],"_pause_price_per_min":0,"_out_of_zone_price":15}]}`,
		"geofencing_zones": `{"geofencing_zones":{"type":"FeatureCollection","features":[` +
			`{"type":"Feature","geometry":{"type":"MultiPolygon","coordinates":[[[[13,52],[13.1,52],[13.1,52.1],[13,52.1],[13,52]]]]},"properties":{"name":[{"text":"Park","language":"en"}],"rules":[{"ride_start_allowed":false,"ride_end_allowed":false,"ride_through_allowed":false}]}},` +
			`{"type":"Feature","geometry":{"type":"MultiPolygon","coordinates":[[[[13,52],[14,52],[14,53],[13,53],[13,52]]]]},"properties":{"name":[{"text":"All of it","language":"en"}],"rules":[{"ride_start_allowed":true,"ride_end_allowed":true,"ride_through_allowed":true}]}},` +
			`{"type":"Feature","geometry":{"type":"MultiPolygon","coordinates":[[[[13,52],[13.2,52],[13.2,52.2],[13,52.2],[13,52]]]]},"properties":{"name":[{"text":"Slow for scooters","language":"en"}],"start":"2026-01-01T00:00:00Z","end":"2126-01-01T00:00:00Z","rules":[{"vehicle_type_ids":["` + scooter + `"],"ride_start_allowed":true,"ride_end_allowed":false,"ride_through_allowed":true,"maximum_speed_kph":6}]}}]},` +
			`"global_rules":[{"ride_start_allowed":false,"ride_end_allowed":false,"ride_through_allowed":true}]}`,
		"system_alerts": `{"alerts":[{"alert_id":"` + alert + `","type":"system_closure","times":[{"start":"2026-09-27T06:00:00Z","end":"2126-09-27T18:00:00Z"}],"url":[{"text":"https://acme.example/marathon","language":"en"}],"summary":[{"text":"Marathon","language":"en"}],"description":[{"text":"Closed on Sunday.","language":"en"}]}]}`,
	} {
		if got := data(name); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	var status struct {
		Vehicles []struct {
			ID       string      `json:"vehicle_id"`
			Lat, Lon json.Number `json:"-"`
			Type     string      `json:"vehicle_type_id"`
			Reserved bool        `json:"is_reserved"`
			Disabled bool        `json:"is_disabled"`
			Range    *int64      `json:"current_range_meters"`
			Fuel     json.Number `json:"current_fuel_percent"`
			Plan     string      `json:"pricing_plan_id"`
			Reported string      `json:"last_reported"`
		}
	}
	if err := json.Unmarshal([]byte(data("vehicle_status")), &status); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for i, v := range status.Vehicles {
		seen[v.ID] = i
	}
	if len(status.Vehicles) != 4 {
		t.Fatalf("%d vehicles, want 4: %+v", len(status.Vehicles), status.Vehicles)
	}
	at := func(code string) int {
		i, ok := seen[r.vehicles[code].PublicVehicleID]
		if !ok {
			t.Fatalf("%s is not in the feed", code)
		}
		return i
	}
	if v := status.Vehicles[at("AAA-1")]; v.Reserved || v.Disabled || v.Fuel != "0.73" || v.Range == nil || *v.Range != 32850 || v.Plan != plan || v.Reported == "" {
		t.Errorf("the available scooter is %+v", v)
	}
	if v := status.Vehicles[at("BBB-2")]; v.Range != nil || v.Fuel != "" || v.Type != bicycle {
		t.Errorf("the bicycle is %+v", v)
	}
	if v := status.Vehicles[at("DDD-4")]; v.Reserved || !v.Disabled || v.Range == nil || *v.Range != 0 {
		t.Errorf("the one out of order is %+v", v)
	}
	if v := status.Vehicles[at("EEE-5")]; !v.Reserved || v.Disabled {
		t.Errorf("the reserved one is %+v", v)
	}
}

// TestNothingInternal checks that no file contains internal data.
func TestNothingInternal(t *testing.T) {
	r := newRig(t)
	r.fill()
	var paths []string
	for _, name := range names {
		paths = append(paths, gbfs.Path+"acme_berlin/"+name+".json")
	}
	for _, name := range names23 {
		paths = append(paths, gbfs.Path23+"acme_berlin/"+name+".json")
	}
	for _, name := range paths {
		text := body(t, r.get(name))
		for _, secret := range append([]string{"veh_", "ride_0", "cus_", "sub_", "zone_0", r.org}, r.secrets...) {
			if strings.Contains(text, secret) {
				t.Errorf("%s tells %q", name, secret)
			}
		}
		for _, v := range r.vehicles {
			if strings.Contains(text, v.ID) {
				t.Errorf("%s tells the id of %s", name, v.Code)
			}
		}
	}
}

func TestHTTP(t *testing.T) {
	r := newRig(t)
	r.fill()
	const path = "/gbfs/v3/acme_berlin/vehicle_status.json"
	first := r.get(path)
	text := body(t, first)
	if got := first.Header.Get("Cache-Control"); got != "public, max-age=30" {
		t.Errorf("Cache-Control is %q", got)
	}
	tag := first.Header.Get("ETag")
	if again := r.get(path, "If-None-Match", `"other", `+tag); again.StatusCode != 304 || body(t, again) != "" {
		t.Errorf("If-None-Match: %s", again.Status)
	}
	packed := r.get(path, "Accept-Encoding", "br, gzip;q=0.5")
	if packed.Header.Get("Content-Encoding") != "gzip" || packed.Header.Get("ETag") == tag {
		t.Errorf("gzip: %v", packed.Header)
	}
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	if unpacked, err := io.ReadAll(z); err != nil || string(unpacked) != text {
		t.Errorf("gzip holds %q, %v", unpacked, err)
	}
	if plain := r.get(path, "Accept-Encoding", "gzip;q=0, identity"); plain.Header.Get("Content-Encoding") != "" {
		t.Error("gzip that was refused")
	}
	req := httptest.NewRequest(http.MethodHead, path, nil)
	w := httptest.NewRecorder()
	r.feed.ServeHTTP(w, req)
	if w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("ETag") != tag {
		t.Errorf("HEAD: %d, %d bytes, %v", w.Code, w.Body.Len(), w.Header())
	}
	w = httptest.NewRecorder()
	r.feed.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
	if w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d, %v", w.Code, w.Header())
	}
	for _, path := range []string{
		"/gbfs/v3/", "/gbfs/v3/acme_berlin", "/gbfs/v3/acme_berlin/", "/gbfs/v3/acme_berlin/station_status.json", "/gbfs/v3/acme_berlin/vehicle_status",
		"/gbfs/v3/nobody/gbfs.json", "/gbfs/v3/acme_berlin/x/gbfs.json", "/gbfs/v3/acme_berlin%00/gbfs.json",
	} {
		if got := r.get(path); got.StatusCode != 404 {
			t.Errorf("%s: %s", path, got.Status)
		}
	}
	// A change of the subaccount shows at once.
	r.update(fleet.SubaccountChange{Name: optional.Of("Hamburg")})
	if text := body(t, r.get("/gbfs/v3/acme_berlin/system_information.json")); !strings.Contains(text, "Hamburg") {
		t.Errorf("the name was changed: %s", text)
	}
	system := r.sub.GBFS
	system.Enabled = false
	r.update(fleet.SubaccountChange{GBFS: optional.Of(system)})
	if got := r.get(path); got.StatusCode != 404 {
		t.Errorf("a feed that was disabled: %s", got.Status)
	}
	if text := body(t, r.get("/gbfs/v3/acme_berlin/manifest.json")); strings.Contains(text, "acme_berlin") {
		t.Errorf("the manifest has it still: %s", text)
	}
}

// TestPublicIDChanges: the public ids do not link the start and the end of a ride.
func TestPublicIDChanges(t *testing.T) {
	r := newRig(t)
	r.fill()
	ctx := t.Context()
	var before, after fleet.Vehicle
	r.write(func(tx *db.Tx) error {
		var err error
		if before, err = r.fleet.Vehicle(ctx, tx, r.org, r.vehicles["CCC-3"].ID); err != nil {
			return err
		}
		ride, err := r.fleet.LockRideTx(ctx, tx, r.org, string(before.CurrentRideID))
		if err != nil {
			return err
		}
		if _, err = r.fleet.UpdateRideTx(ctx, tx, r.org, ride, fleet.RideChange{Status: optional.Of(fleet.Completed), EndReason: optional.Of[fleet.NullString]("operator")}, fleet.Actor{Type: "user"}); err != nil {
			return err
		}
		after, err = r.fleet.Vehicle(ctx, tx, r.org, before.ID)
		return err
	})
	if before.PublicVehicleID == after.PublicVehicleID {
		t.Error("the public id is as before")
	}
	if text := body(t, r.get("/gbfs/v3/acme_berlin/vehicle_status.json")); strings.Contains(text, before.PublicVehicleID) || !strings.Contains(text, after.PublicVehicleID) {
		t.Errorf("the feed has the old id, or not the new one")
	}
}

// TestSandboxSystemID: system ids of the sandbox differ from production's.
func TestSandboxSystemID(t *testing.T) {
	r := newRigOf(t, false)
	r.update(fleet.SubaccountChange{GBFS: optional.Of(fleet.GBFS{Enabled: true, SystemID: "acme_berlin", Operator: "Acme", OpeningHours: "24/7", ContactEmail: "feed@example.com", LicenseID: "CC0-1.0"})})
	if got := body(t, r.get(gbfs.Path+"manifest.json")); !strings.Contains(got, `"system_id":"test_acme_berlin"`) || !strings.Contains(got, "/test_acme_berlin/gbfs.json") {
		t.Errorf("the manifest is %s", got)
	}
	for path, want := range map[string]int{"test_acme_berlin": 200, "acme_berlin": 404, "test_test_acme_berlin": 404} {
		if got := r.get(gbfs.Path + path + "/system_information.json"); got.StatusCode != want {
			t.Errorf("%s: got %d, want %d", path, got.StatusCode, want)
		}
	}
	if got := body(t, r.get(gbfs.Path+"test_acme_berlin/system_information.json")); !strings.Contains(got, `"system_id":"test_acme_berlin"`) {
		t.Errorf("the system is %s", got)
	}
}

// TestLowVehicleIsNotRentable: a vehicle that was available before the battery
// limit was raised is not rentable.
func TestLowVehicleIsNotRentable(t *testing.T) {
	r := newRig(t)
	r.fill()
	id := r.vehicles["AAA-1"].PublicVehicleID
	disabled := func() bool {
		t.Helper()
		var list struct {
			Data struct {
				Vehicles []struct {
					ID       string `json:"vehicle_id"`
					Disabled bool   `json:"is_disabled"`
				} `json:"vehicles"`
			} `json:"data"`
		}
		feed := gbfs.New(r.fleet, origin, gbfs.Path, slog.New(slog.DiscardHandler)) // with an empty cache
		w := httptest.NewRecorder()
		feed.ServeHTTP(w, httptest.NewRequest(http.MethodGet, gbfs.Path+"acme_berlin/vehicle_status.json", nil))
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		for _, v := range list.Data.Vehicles {
			if v.ID == id {
				return v.Disabled
			}
		}
		t.Fatalf("the vehicle is not in %s", w.Body)
		return false
	}
	if disabled() {
		t.Error("at 73 percent it cannot be rented")
	}
	r.write(func(tx *db.Tx) error {
		_, _, err := r.fleet.UpdateSettingsTx(t.Context(), tx, r.org, fleet.SettingsChange{LowBatteryPercent: optional.Of(int64(74)), BatteryReadyPercent: optional.Of(int64(80))})
		return err
	})
	if !disabled() {
		t.Error("below the limit it can be rented")
	}
}

// TestOffered: vehicles of an archived subaccount, or whose plan is retired, are disabled, and no
// vehicle names a plan that is not in the feed.
func TestOffered(t *testing.T) {
	r := newRig(t)
	r.fill()
	ctx := t.Context()
	// offered lists the codes of the vehicles that can be rented now.
	offered := func() (codes string) {
		t.Helper()
		feed := gbfs.New(r.fleet, origin, gbfs.Path, slog.New(slog.DiscardHandler)) // with an empty cache
		read := func(name string, into any) {
			t.Helper()
			w := httptest.NewRecorder()
			feed.ServeHTTP(w, httptest.NewRequest(http.MethodGet, gbfs.Path+"acme_berlin/"+name+".json", nil))
			if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
				t.Fatal(err)
			}
		}
		var status struct {
			Data struct {
				Vehicles []struct {
					ID       string `json:"vehicle_id"`
					Disabled bool   `json:"is_disabled"`
					Plan     string `json:"pricing_plan_id"`
				} `json:"vehicles"`
			} `json:"data"`
		}
		read("vehicle_status", &status)
		var plans struct {
			Data struct {
				Plans []struct {
					ID string `json:"plan_id"`
				} `json:"plans"`
			} `json:"data"`
		}
		read("system_pricing_plans", &plans)
		for _, v := range status.Data.Vehicles {
			if v.Plan != "" && !strings.Contains(fmt.Sprint(plans.Data.Plans), v.Plan) {
				t.Errorf("vehicle %s has the plan %s, which is not in the feed", v.ID, v.Plan)
			}
		}
		for _, code := range []string{"AAA-1", "BBB-2", "DDD-4", "EEE-5"} {
			for _, v := range status.Data.Vehicles {
				if v.ID == r.vehicles[code].PublicVehicleID && !v.Disabled {
					codes += code + " "
				}
			}
		}
		return codes
	}
	want := func(what, codes string) {
		t.Helper()
		if got := offered(); got != codes {
			t.Errorf("%s: %q can be rented, want %q", what, got, codes)
		}
	}
	want("at first", "AAA-1 BBB-2 EEE-5 ")
	r.update(fleet.SubaccountChange{Status: optional.Of("archived")})
	want("archived", "")
	r.update(fleet.SubaccountChange{Status: optional.Of("active")})
	usual := r.sub.DefaultPricingPlanID
	r.update(fleet.SubaccountChange{DefaultPricingPlanID: optional.Of(fleet.NullString(""))})
	want("without a plan of the subaccount", "AAA-1 ")
	r.write(func(tx *db.Tx) error {
		plan, err := r.fleet.LockPlanTx(ctx, tx, r.org, string(usual))
		if err == nil {
			_, err = r.fleet.UpdatePlanTx(ctx, tx, r.org, plan, fleet.PlanChange{Active: optional.Of(false)})
		}
		return err
	})
	want("with a retired plan", "")

	// A vehicle cannot get the retired plan.
	err := r.db.Write(ctx, func(tx *db.Tx) error {
		v, err := r.fleet.LockVehicleTx(ctx, tx, r.org, r.vehicles["BBB-2"].ID)
		if err == nil {
			_, err = r.fleet.UpdateVehicleTx(ctx, tx, r.org, v, fleet.VehicleChange{PricingPlanID: optional.Of(usual)}, fleet.Actor{Type: "system"})
		}
		return err
	})
	if problem.Of(err) != problem.Invalid {
		t.Errorf("a vehicle with a retired plan: got %v", err)
	}
}
