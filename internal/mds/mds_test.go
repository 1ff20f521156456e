package mds_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/mds"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// schemas is the folder of the official OpenAPI documents, if present.
const schemas = "../../../shared/mds"

const (
	origin   = "https://help.example.com"
	provider = "c8051767-4b14-4794-abc1-85aad48baff1"
	accept   = "application/vnd.mds+json;version=2.0"
)

// rig is the API of a sandbox with its data.
type rig struct {
	t     *testing.T
	db    *db.DB
	fleet *fleet.Service
	api   *mds.Provider
	org   string
	area  fleet.Subaccount // with data for agencies
	other fleet.Subaccount // without
	key   *rsa.PrivateKey
	ec    *ecdsa.PrivateKey

	official *jsonschema.Compiler // of the official schemas
}

func newRig(t *testing.T) *rig {
	t.Helper()
	d := dbtest.NewFleet(t)
	r := &rig{t: t, db: d, fleet: fleet.Open(fleet.Config{DB: d}), org: "0192aaaa-0000-7000-8000-000000000001"}
	r.api = mds.New(r.fleet, origin, mds.Path, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err := r.fleet.Provision(t.Context(), fleet.Organization{ID: r.org, Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	subs, err := r.fleet.Subaccounts(t.Context(), d, r.org)
	if err != nil || len(subs) < 2 {
		t.Fatalf("%d subaccounts, %v", len(subs), err)
	}
	r.area, r.other = subs[0], subs[1]
	if r.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	if r.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	if err := r.update(fleet.MDS{Enabled: true, ProviderID: provider, Agencies: fleet.MDSAgencies{
		{ID: "city", Name: "City", PublicKey: public(t, r.key.Public())}, {ID: "county", Name: "County", PublicKey: public(t, r.ec.Public())},
	}}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) update(m fleet.MDS) error {
	return r.db.Write(r.t.Context(), func(tx *db.Tx) (err error) {
		_, err = r.fleet.UpdateSubaccountTx(r.t.Context(), tx, r.org, r.area, fleet.SubaccountChange{MDS: optional.Of(m)})
		return err
	})
}

func public(t *testing.T, key crypto.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// token returns a token of the city; changes replace claims, nil removes one.
func (r *rig) token(changes jwt.MapClaims) string {
	return r.sign(jwt.SigningMethodRS256, r.key, changes)
}

func (r *rig) sign(method jwt.SigningMethod, key any, changes jwt.MapClaims) string {
	r.t.Helper()
	claims := jwt.MapClaims{"iss": "city", "aud": r.area.ID, "provider_id": provider, "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range changes {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	text, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// get requests a path with a token, by default the city's.
func (r *rig) get(path, token string, accepts ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodGet, mds.Path+path, nil)
	if token == "" {
		token = r.token(nil)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if accepts == nil {
		accepts = []string{accept}
	}
	for _, a := range accepts {
		req.Header.Add("Accept", a)
	}
	w := httptest.NewRecorder()
	r.api.ServeHTTP(w, req)
	return w
}

// read decodes an answer, which must be 200.
func (r *rig) read(path string, into any) {
	r.t.Helper()
	w := r.get(path, "")
	if w.Code != 200 || w.Header().Get("Content-Type") != accept {
		r.t.Fatalf("%s: got %d %s %.300s", path, w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
}

// record is an object of an answer.
type record map[string]any

// rides returns the rides of the area that have ended, as stored.
func (r *rig) rides() []fleet.Ride {
	r.t.Helper()
	list, err := db.All(r.t.Context(), r.db, func(row db.Row) (ride fleet.Ride, err error) {
		return ride, row.Scan(db.IntoJSON(&ride))
	}, "SELECT doc FROM rides WHERE organization_id = $1 AND subaccount_id = $2 AND ended_at IS NOT NULL AND started_at IS NOT NULL ORDER BY id", r.org, r.area.ID)
	if err != nil || len(list) == 0 {
		r.t.Fatalf("%d rides, %v", len(list), err)
	}
	return list
}

func hourOf(at time.Time) string { return at.UTC().Format("2006-01-02T15") }

func uuidOf(t *testing.T, id string) string {
	t.Helper()
	u, err := ulid.ParseStrict(id[strings.Index(id, "_")+1:])
	if err != nil {
		t.Fatal(err)
	}
	return uuid.UUID(u).String()
}

// TestTrips compares the trips of all hours with the rides.
func TestTrips(t *testing.T) {
	r := newRig(t)
	hours := map[string][]string{}
	for _, ride := range r.rides() {
		hours[hourOf(ride.EndedAt.Std())] = append(hours[hourOf(ride.EndedAt.Std())], ride.ID)
	}
	for hour, rides := range hours {
		var got struct{ Trips []record }
		r.read("trips?end_time="+hour, &got)
		var ids, want []string
		for _, trip := range got.Trips {
			ids = append(ids, trip["trip_id"].(string))
			if trip["provider_id"] != provider {
				t.Errorf("provider %v", trip["provider_id"])
			}
		}
		for _, id := range rides {
			want = append(want, uuidOf(t, id))
		}
		slices.Sort(ids)
		slices.Sort(want)
		if !slices.Equal(ids, want) {
			t.Errorf("%s: got %v, want %v", hour, ids, want)
		}
	}
	// The trips of an hour are in the events and have points.
	ride := r.rides()[0]
	var events struct{ Events []record }
	r.read("events/historical?event_time="+hourOf(ride.EndedAt.Std()), &events)
	var points struct{ Telemetry []record }
	r.read("telemetry?telemetry_time="+hourOf(ride.EndedAt.Std()), &points)
	for name, list := range map[string][]record{"events": events.Events, "telemetry": points.Telemetry} {
		if !slices.ContainsFunc(list, func(e record) bool { return strings.Contains(fmt.Sprint(e["trip_ids"]), uuidOf(t, ride.ID)) }) {
			t.Errorf("%s of the hour lack the trip %s: %v", name, uuidOf(t, ride.ID), list)
		}
	}
}

// report returns a report of a vehicle; more are pairs of a field and its value.
func report(vehicleID string, at time.Time, more ...any) fleet.Report {
	report := fleet.Report{Vehicle: fleet.VehicleRef{ID: vehicleID}, Data: track.Report{At: at.UnixMilli()}}
	for i := 0; i < len(more); i += 2 {
		report.Data.Set(more[i].(track.Field), int64(more[i+1].(int)))
	}
	return report
}

// record stores reports.
func (r *rig) record(reports ...fleet.Report) {
	r.t.Helper()
	if err := r.db.Write(r.t.Context(), func(tx *db.Tx) error {
		got, err := r.fleet.RecordTelemetryTx(r.t.Context(), tx, r.org, reports, func(string) bool { return true })
		if err == nil && got.Rejected > 0 {
			err = fmt.Errorf("reports are rejected: %+v", got)
		}
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
}

// points returns the telemetry of an hour by id.
func (r *rig) points(hour string) map[string]record {
	r.t.Helper()
	var got struct{ Telemetry []record }
	r.read("telemetry?telemetry_time="+hour, &got)
	byID := map[string]record{}
	for _, p := range got.Telemetry {
		byID[p["telemetry_id"].(string)] = p
	}
	if len(byID) != len(got.Telemetry) {
		r.t.Errorf("%d points have %d ids", len(got.Telemetry), len(byID))
	}
	return byID
}

// TestTelemetry has the stored reports of an hour, with the trips that they belong to.
func TestTelemetry(t *testing.T) {
	r := newRig(t)
	var ride fleet.Ride // the last one within one hour that is over
	for _, one := range r.rides() {
		if hourOf(one.StartedAt.Std()) == hourOf(one.EndedAt.Std().Add(2*time.Second)) && time.Since(one.EndedAt.Std()) > 2*time.Hour {
			ride = one
		}
	}
	hour := hourOf(ride.StartedAt.Std())
	before := r.points(hour)
	other, err := db.One(t.Context(), r.db, func(row db.Row) (id string, err error) { return id, row.Scan(&id) },
		"SELECT id FROM vehicles WHERE organization_id = $1 AND subaccount_id = $2 ORDER BY id LIMIT 1", r.org, r.other.ID)
	if err != nil {
		t.Fatal(err)
	}
	during, after := ride.StartedAt.Std().Add(time.Second), ride.EndedAt.Std().Add(time.Second)
	r.record(
		report(ride.VehicleID, during, track.Lat, 52_500_001, track.Lng, 13_400_001, track.Speed, 180, track.Altitude, 345, track.Battery, 50, track.Accuracy, 55),
		report(ride.VehicleID, during, track.Lat, 52_500_002, track.Lng, 13_400_001), // in the same millisecond
		report(ride.VehicleID, after, track.Lat, 52_500_003, track.Lng, 13_400_001, track.Fuel, 7),
		report(ride.VehicleID, after.Add(time.Second), track.Battery, 49),                                        // nowhere
		report(ride.VehicleID, during.Truncate(time.Hour).Add(-1), track.Lat, 52_500_004, track.Lng, 13_400_001), // in the hour before
		report(other, during, track.Lat, 52_500_005, track.Lng, 13_400_001),
	)
	added := map[float64]record{} // by latitude
	for id, p := range r.points(hour) {
		if before[id] == nil {
			added[p["location"].(map[string]any)["lat"].(float64)] = p
		}
	}
	if len(added) != 3 {
		t.Fatalf("got %d new points, want 3: %v", len(added), added)
	}
	trip := fmt.Sprintf("[%s]", uuidOf(t, ride.ID))
	for lat, want := range map[float64]struct {
		at    time.Time
		trips string
	}{52.500001: {during, trip}, 52.500002: {during, trip}, 52.500003: {after, "<nil>"}} {
		p := added[lat]
		if p == nil || p["device_id"] != uuidOf(t, ride.VehicleID) || p["timestamp"] != float64(want.at.UnixMilli()) || fmt.Sprint(p["trip_ids"]) != want.trips || p["journey_id"] != nil {
			t.Errorf("point at %v: got %v, want %+v", lat, p, want)
		}
	}
	location := added[52.500001]["location"].(map[string]any)
	if location["speed"] != 5.0 || location["altitude"] != 34.5 || location["horizontal_accuracy"] != 5.5 || added[52.500001]["battery_percent"] != 50.0 || added[52.500003]["fuel_percent"] != 7.0 {
		t.Errorf("got %v, %v", added[52.500001], added[52.500003])
	}
	if _, err := os.Stat(schemas); err == nil {
		validate(t, r, "/telemetry", "telemetry?telemetry_time="+hour)
	}
}

// TestTelemetryOfManyVehicles reads more vehicles than are read at once, one of them deleted.
func TestTelemetryOfManyVehicles(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	at := time.Now().Add(-2 * time.Hour)
	const vehicles = 120
	want := map[string]bool{}
	if err := r.db.Write(ctx, func(tx *db.Tx) error {
		for i := range vehicles {
			v, err := r.fleet.CreateVehicleTx(ctx, tx, r.org, fleet.NewVehicle{SubaccountID: r.area.ID, Code: fmt.Sprintf("M-%d", i), VehicleTypeID: r.area.VehicleTypes[0].ID}, fleet.Actor{Type: "system"})
			if err != nil {
				return err
			}
			want[v.ID] = true
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var reports []fleet.Report
	for id := range want {
		reports = append(reports, report(id, at, track.Lat, 52_500_000, track.Lng, 13_400_000))
	}
	r.record(reports...)
	deleted := reports[0].Vehicle.ID
	if err := r.db.Write(ctx, func(tx *db.Tx) error {
		return r.fleet.DeleteVehicleTx(ctx, tx, r.org, deleted, fleet.Actor{Type: "system"})
	}); err != nil {
		t.Fatal(err)
	}
	found := map[any]int{}
	for _, p := range r.points(hourOf(at)) {
		found[p["device_id"]]++
	}
	for id := range want {
		if n := found[uuidOf(t, id)]; n != 1 {
			t.Errorf("%s has %d points, want 1", id, n)
		}
	}
	// HEAD has no body and no length.
	req := httptest.NewRequest(http.MethodHead, mds.Path+"telemetry?telemetry_time="+hourOf(at), nil)
	req.Header.Set("Authorization", "Bearer "+r.token(nil))
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	if r.api.ServeHTTP(w, req); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Type") != accept {
		t.Errorf("HEAD: got %d, %d bytes of %s", w.Code, w.Body.Len(), w.Header().Get("Content-Type"))
	}
}

// TestVehicles compares vehicles and their status with the records.
func TestVehicles(t *testing.T) {
	r := newRig(t)
	vehicles, err := db.All(t.Context(), r.db, func(row db.Row) (v fleet.Vehicle, err error) { return v, row.Scan(db.IntoJSON(&v)) },
		"SELECT doc FROM vehicles WHERE organization_id = $1 AND subaccount_id = $2 ORDER BY id", r.org, r.area.ID)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Vehicles []record
		Links    record
	}
	r.read("vehicles", &got)
	if len(got.Vehicles) != len(vehicles) || got.Links["next"] != nil {
		t.Errorf("%d vehicles, want %d; links %v", len(got.Vehicles), len(vehicles), got.Links)
	}
	var statuses struct {
		Statuses []record `json:"vehicles_status"`
	}
	r.read("vehicles/status", &statuses)
	for i, v := range vehicles {
		id := uuidOf(t, v.ID)
		if got.Vehicles[i]["device_id"] != id || got.Vehicles[i]["vehicle_id"] != v.Code {
			t.Errorf("vehicle %v, want %s %s", got.Vehicles[i], id, v.Code)
		}
		at := slices.IndexFunc(statuses.Statuses, func(s record) bool { return s["device_id"] == id })
		gone := (v.State == fleet.Removed || v.State == fleet.Missing) && time.Since(v.StateChangedAt.Std()) > 90*time.Minute
		if (at >= 0) != (!gone && v.Location != nil) {
			t.Errorf("%s %s has a status: %t", v.State, v.Code, at >= 0)
		}
		if at >= 0 {
			if e := statuses.Statuses[at]["last_event"].(map[string]any); e["vehicle_state"] != string(v.State) {
				t.Errorf("%s has the status %v", v.Code, e)
			}
		}
	}
	var one struct{ Vehicles []record }
	r.read("vehicles/"+uuidOf(t, vehicles[0].ID), &one)
	if len(one.Vehicles) != 1 || one.Vehicles[0]["vehicle_id"] != vehicles[0].Code {
		t.Errorf("one vehicle: %v", one)
	}
}

// TestReport counts the trips of a month by form factor, and hides low counts.
func TestReport(t *testing.T) {
	r := newRig(t)
	zone, err := time.LoadLocation(r.area.TimeZone)
	if err != nil {
		t.Fatal(err)
	}
	r.advance(time.Now().AddDate(0, 0, 2)) // so that the former month is complete
	trips, month := map[string]int{}, ""
	for _, ride := range r.rides() {
		if ride.Status == fleet.Completed && ride.TripType == fleet.RiderTrip {
			m := ride.StartedAt.Std().In(zone).Format("2006-01")
			trips[m]++
			if m < time.Now().In(zone).Format("2006-01") && trips[m] > trips[month] {
				month = m
			}
		}
	}
	w := r.get("reports/"+month+".csv", "", "text/vnd.mds+csv;version=2.0")
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/vnd.mds+csv;version=2.0" || lines[0] != "provider_id,start_date,duration,special_group_type,geography_id,vehicle_type,trip_count,rider_count" {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	sum := 0
	for _, line := range lines[1:] {
		var count, riders int
		cells := strings.Split(line, ",")
		if _, err := fmt.Sscan(cells[6], &count); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(cells[7], &riders); err != nil {
			t.Fatal(err)
		}
		if cells[1] != month+"-01" || count < 10 && count != -1 || riders < 10 && riders != -1 {
			t.Errorf("line %s", line)
		}
		sum += max(0, count)
	}
	if sum > trips[month] || sum < trips[month]-9*len(lines) {
		t.Errorf("%d trips, want %d: %s", sum, trips[month], w.Body)
	}

	// It does not exist while a ride of the month is open, or may come from an app that was offline.
	now, err := r.fleet.Now(t.Context(), r.db, r.org)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Date(now.In(zone).Year(), now.In(zone).Month()+2, 1, 0, 0, 0, 0, zone)
	recent := "reports/" + end.AddDate(0, 0, -1).Format("2006-01") + ".csv"
	r.advance(end.Add(-time.Minute))
	ride := r.start(r.vehicle("M-1"), fleet.Active)
	moved := r.vehicle("M-2") // its trip, which goes on, is not part of the report
	r.write(func(tx *db.Tx) error {
		if _, _, err := r.fleet.UpdateSettingsTx(t.Context(), tx, r.org, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(10_000))}); err != nil {
			return err
		}
		_, err := r.fleet.StartRideTx(t.Context(), tx, r.org, fleet.NewRide{VehicleID: fleet.NullString(moved.ID), TripType: fleet.RebalanceTrip}, fleet.Actor{Type: "system"})
		return err
	})
	for _, step := range []struct {
		after time.Duration
		ends  bool
		want  int
	}{{time.Minute, false, 404}, {23 * time.Hour, true, 404}, {24*time.Hour + time.Minute, false, 200}} {
		r.advance(end.Add(step.after))
		if step.ends {
			r.put(ride.ID, fleet.RideChange{Status: optional.Of(fleet.Completed), EndReason: optional.Of[fleet.NullString]("operator")})
		}
		if w := r.get(recent, "", "text/vnd.mds+csv;version=2.0"); w.Code != step.want {
			t.Errorf("%s after the month: got %d %s, want %d", step.after, w.Code, w.Body, step.want)
		}
	}

	// Trips of a type that is removed remain, without its form factor.
	best, name := "", ""
	for _, line := range lines[1:] {
		if cells := strings.Split(line, ","); cells[6] != "-1" {
			best, name = line, cells[5]
		}
	}
	if best == "" {
		t.Fatalf("no form factor has 10 trips: %s", w.Body)
	}
	sub := r.area
	if err := r.db.QueryRow(t.Context(), "SELECT doc FROM subaccounts WHERE id = $1", sub.ID).Scan(db.IntoJSON(&sub)); err != nil {
		t.Fatal(err)
	}
	sub.VehicleTypes = slices.DeleteFunc(sub.VehicleTypes, func(k fleet.VehicleType) bool { return k.FormFactor == name })
	doc, err := json.Marshal(&sub)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE subaccounts SET doc = $2 WHERE id = $1", sub.ID, string(doc))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := r.get("reports/"+month+".csv", "", "text/vnd.mds+csv;version=2.0").Body.String(); !strings.Contains(got, strings.Replace(best, ","+name+",", ",other,", 1)) {
		t.Errorf("without the type: got %s, want the line %s as other", got, best)
	}
}

func TestAuthorization(t *testing.T) {
	r := newRig(t)
	for name, token := range map[string]string{
		"the city's": r.token(nil), "the county's": r.sign(jwt.SigningMethodES256, r.ec, jwt.MapClaims{"iss": "county"}),
		"one that is just over": r.token(jwt.MapClaims{"exp": time.Now().Add(-10 * time.Second).Unix()}),
	} {
		if w := r.get("vehicles", token); w.Code != 200 {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
	}
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"nothing": "x", "another's key": r.sign(jwt.SigningMethodRS256, stranger, nil), "another agency's key": r.token(jwt.MapClaims{"iss": "county"}),
		"an unknown agency": r.token(jwt.MapClaims{"iss": "state"}), "no agency": r.token(jwt.MapClaims{"iss": nil}),
		"an expired one": r.token(jwt.MapClaims{"exp": time.Now().Add(-time.Minute).Unix()}), "without an end": r.token(jwt.MapClaims{"exp": nil}),
		"of the future":       r.token(jwt.MapClaims{"nbf": time.Now().Add(time.Hour).Unix()}),
		"issued later":        r.token(jwt.MapClaims{"iat": time.Now().Add(time.Hour).Unix()}),
		"another provider":    r.token(jwt.MapClaims{"provider_id": uuid.NewString()}),
		"no provider":         r.token(jwt.MapClaims{"provider_id": nil}),
		"another area":        r.token(jwt.MapClaims{"aud": r.other.ID}),
		"several areas":       r.token(jwt.MapClaims{"aud": []string{r.area.ID, r.other.ID}}),
		"no area":             r.token(jwt.MapClaims{"aud": nil}),
		"the public key, MAC": r.sign(jwt.SigningMethodHS256, []byte(public(t, r.key.Public())), nil),
		"unsigned":            r.sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil),
		"another algorithm":   r.sign(jwt.SigningMethodRS512, r.key, nil),
		"a long one":          r.token(jwt.MapClaims{"note": strings.Repeat("x", 10_000)}),
	} {
		w := r.get("vehicles", token)
		if w.Code != 401 || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") || strings.Contains(w.Body.String(), provider) {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
	}
	req := httptest.NewRequest(http.MethodGet, mds.Path+"vehicles", nil)
	w := httptest.NewRecorder()
	if r.api.ServeHTTP(w, req); w.Code != 401 {
		t.Errorf("without a token: got %d", w.Code)
	}
	if err := r.update(fleet.MDS{ProviderID: provider}); err != nil {
		t.Fatal(err)
	}
	if w := r.get("vehicles", ""); w.Code != 401 {
		t.Errorf("disabled: got %d", w.Code)
	}
}

// TestCommitTime: an hour is not complete while transactions that began in it may commit.
func TestCommitTime(t *testing.T) {
	r := newRig(t)
	hour := time.Now().UTC().Truncate(time.Hour).Add(2 * time.Hour)
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{-time.Minute, 404}, {10 * time.Second, 202}, {2 * time.Minute, 200}} {
		err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			return r.fleet.AdvanceClockTx(t.Context(), tx, r.org, hour.Add(step.after))
		})
		if err != nil {
			t.Fatal(err)
		}
		if w := r.get("trips?end_time="+hourOf(hour.Add(-time.Hour)), ""); w.Code != step.want {
			t.Errorf("%s after the hour: got %d %s, want %d", step.after, w.Code, w.Body, step.want)
		}
	}
}

func TestRequests(t *testing.T) {
	r := newRig(t)
	now := time.Now()
	ms := func(ago time.Duration) string { return fmt.Sprint(now.Add(-ago).UnixMilli()) }
	for path, want := range map[string]int{
		"trips": 400, "trips?end_time=2026-10-25": 400, "trips?end_time=2026-10-25T24": 400, "trips?end_time=2026-10-25T7": 400, "trips?end_time=2026-10-25T07&end_time=2026-10-25T08": 400,
		"trips?end_time=" + hourOf(now.Add(time.Minute)): 404, "trips?end_time=1999-01-01T00": 404, "telemetry": 400, "events/historical": 400,
		"events/recent?start_time=" + ms(time.Hour): 400, "events/recent?start_time=x&end_time=" + ms(0): 400,
		"events/recent?start_time=" + ms(time.Hour) + "&end_time=" + ms(2*time.Hour): 400,
		"events/recent?start_time=" + ms(15*24*time.Hour) + "&end_time=" + ms(0):     400, "events/recent?cursor=x&start_time=" + ms(time.Hour) + "&end_time=" + ms(0): 400,
		"vehicles?cursor=x": 400, "vehicles/x": 400, "vehicles/" + uuid.NewString(): 404, "vehicles/status/" + uuid.NewString(): 404, "stops": 404, "": 404, "nothing": 404,
	} {
		w := r.get(path, "")
		var e struct {
			Error, ErrorDescription string
			Details                 []string `json:"error_details"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != want || e.Error == "" || len(e.Details) == 0 {
			t.Errorf("%s: got %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	for _, a := range []string{"", "*/*", "application/json", "application/vnd.mds+json", "application/vnd.mds+json;version=1.2", "text/vnd.mds+csv;version=2.0"} {
		if w := r.get("vehicles", "", a); w.Code != 406 {
			t.Errorf("Accept %q: got %d", a, w.Code)
		}
	}
	if w := r.get("vehicles", "", "application/vnd.mds+json;version=1.2, application/vnd.mds+json; version=2.0;q=0.9"); w.Code != 200 {
		t.Errorf("one of two versions: got %d", w.Code)
	}
	for path, want := range map[string]int{"reports/" + now.Format("2006-01") + ".csv": 404, "reports/1999-01.csv": 404, "reports/2026-1.csv": 404, "reports/2026-10": 404} {
		if w := r.get(path, "", "text/vnd.mds+csv;version=2.0"); w.Code != want {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodHead} {
		req := httptest.NewRequest(method, mds.Path+"vehicles", nil)
		req.Header.Set("Authorization", "Bearer "+r.token(nil))
		req.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		w.Header().Set("Vary", "Accept-Encoding") // of the compression around it
		r.api.ServeHTTP(w, req)
		if got := strings.Join(w.Header().Values("Vary"), ", "); got != "Accept-Encoding, Accept, Authorization" {
			t.Errorf("%s: Vary is %q", method, got)
		}
		if want := map[string]int{"POST": 405, "HEAD": 200}[method]; w.Code != want || method == "HEAD" && w.Body.Len() > 0 {
			t.Errorf("%s: got %d, %d bytes", method, w.Code, w.Body.Len())
		}
	}
}

// TestRecentPages reads all recent events in pages: none is missing or doubled.
func TestRecentPages(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	vehicle, err := db.One(ctx, r.db, func(row db.Row) (v fleet.Vehicle, err error) { return v, row.Scan(db.IntoJSON(&v)) },
		"SELECT doc FROM vehicles WHERE organization_id = $1 AND subaccount_id = $2 AND state = 'available' LIMIT 1", r.org, r.area.ID)
	if err != nil {
		t.Fatal(err)
	}
	const changes = 1100
	if err := r.db.Write(ctx, func(tx *db.Tx) error {
		for i := range changes {
			v, err := r.fleet.LockVehicleTx(ctx, tx, r.org, vehicle.ID)
			if err != nil {
				return err
			}
			state := []fleet.VehicleState{fleet.NonOperational, fleet.Available}[i%2]
			if _, err := r.fleet.UpdateVehicleTx(ctx, tx, r.org, v, fleet.VehicleChange{State: optional.Of(state)}, fleet.Actor{Type: "system"}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	seen, pages := map[string]bool{}, 0
	path := fmt.Sprintf("events/recent?start_time=%d&end_time=%d", time.Now().Add(-time.Hour).UnixMilli(), time.Now().Add(time.Hour).UnixMilli())
	for path != "" {
		var got struct {
			Events []record
			Links  struct{ Next *string }
		}
		r.read(path, &got)
		pages++
		for _, e := range got.Events {
			id := e["event_id"].(string)
			if seen[id] {
				t.Errorf("event %s twice", id)
			}
			seen[id] = true
		}
		path = ""
		if got.Links.Next != nil {
			path = strings.TrimPrefix(*got.Links.Next, origin+mds.Path)
		}
	}
	if len(seen) < changes || pages < 2 {
		t.Errorf("%d events in %d pages", len(seen), pages)
	}
}

func TestSettings(t *testing.T) {
	r := newRig(t)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(r.key)
	if err != nil {
		t.Fatal(err)
	}
	private := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	huge := rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 8192, 1), E: 65537}
	good := fleet.MDSAgency{ID: "city", Name: "City", PublicKey: public(t, r.key.Public())}
	with := func(key string) fleet.MDSAgencies {
		return fleet.MDSAgencies{{ID: "city", Name: "City", PublicKey: key}}
	}
	for want, m := range map[string]fleet.MDS{
		"required mds.provider_id":                        {Enabled: true},
		"invalid_format mds.provider_id":                  {ProviderID: "acme"},
		"conflict mds.agencies.1.id":                      {Agencies: fleet.MDSAgencies{good, good}},
		"invalid_format mds.agencies.0.id":                {Agencies: fleet.MDSAgencies{{ID: "the city", Name: "City", PublicKey: good.PublicKey}}},
		"invalid_format mds.agencies.0.public_key":        {Agencies: with("none")},
		"invalid_format mds.agencies.0.public_key (key)":  {Agencies: with(private)},
		"invalid_format mds.agencies.0.public_key (1024)": {Agencies: with(public(t, small.Public()))},
		"invalid_format mds.agencies.0.public_key (8193)": {Agencies: with(public(t, &huge))},
		"invalid_format mds.agencies.0.public_key (pair)": {Agencies: with(good.PublicKey + "\n" + private)},
		"invalid_format mds.agencies.0.public_key (text)": {Agencies: with(strings.Replace(private, "-----BEGIN", "BEGIN", 1) + good.PublicKey)},
		"invalid_format mds.agencies.0.public_key (open)": {Agencies: with(strings.Replace(private, "-----END", "END", 1) + good.PublicKey)},
		"invalid_format mds.agencies.0.public_key (note)": {Agencies: with(strings.Replace(good.PublicKey, "KEY-----\n", "KEY-----\nNote: mine\n\n", 1))},
	} {
		err := r.update(m)
		var got string
		if e, ok := err.(*problem.Error); ok && len(e.Issues) > 0 {
			got = e.Issues[0].Code + " " + e.Issues[0].Path
		}
		if want, _, _ := strings.Cut(want, " ("); got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// validate validates an answer by the official schema of a path, and returns both.
func validate(t *testing.T, r *rig, name, path string) (*jsonschema.Schema, *httptest.ResponseRecorder) {
	t.Helper()
	if r.official == nil {
		r.official = jsonschema.NewCompiler()
		r.official.DefaultDraft(jsonschema.Draft2020)
		r.official.AssertFormat()
		r.official.UseLoader(documents{})
	}
	root, err := filepath.Abs(filepath.Join(schemas, "reference", "provider.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	schema, err := r.official.Compile("file://" + root + "#/paths/" + url.PathEscape(strings.ReplaceAll(name, "/", "~1")) + "/get/responses/200/content/application~1json/schema")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	w := r.get(path, "")
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(w.Body.Bytes()))
	if err != nil || w.Code != 200 {
		t.Fatalf("%s: %d %s, %v", path, w.Code, w.Body, err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %v\n%.2000s", path, err, w.Body)
	}
	return schema, w
}

// TestSchemas validates all answers by the official OpenAPI document.
func TestSchemas(t *testing.T) {
	if _, err := os.Stat(schemas); err != nil {
		t.Skip("the official documents of MDS are not beside the project: ", schemas)
	}
	r := newRig(t)
	var vehicles struct{ Vehicles []record }
	r.read("vehicles", &vehicles)
	device := vehicles.Vehicles[0]["device_id"].(string)
	ms := func(ago time.Duration) string { return fmt.Sprint(time.Now().Add(-ago).UnixMilli()) }
	paths := map[string][]string{
		"/vehicles": {"vehicles"}, "/vehicles/{device_id}": {"vehicles/" + device}, "/vehicles/status": {"vehicles/status"},
		"/events/recent": {"events/recent?start_time=" + ms(13*24*time.Hour) + "&end_time=" + ms(0)},
	}
	var statuses struct {
		Statuses []record `json:"vehicles_status"`
	}
	r.read("vehicles/status", &statuses)
	paths["/vehicles/status/{device_id}"] = []string{"vehicles/status/" + statuses.Statuses[0]["device_id"].(string)}
	for i, ride := range r.rides() {
		if i%10 == 0 {
			hour := hourOf(ride.EndedAt.Std())
			paths["/trips"] = append(paths["/trips"], "trips?end_time="+hour)
			paths["/telemetry"] = append(paths["/telemetry"], "telemetry?telemetry_time="+hour)
			paths["/events/historical"] = append(paths["/events/historical"], "events/historical?event_time="+hour)
		}
	}
	for name, list := range paths {
		for _, path := range list {
			schema, w := validate(t, r, name, path)
			for _, member := range []string{"version", "device_id", "distance", "event_types", "trip_ids", "location"} {
				if text := w.Body.String(); strings.Contains(text, `"`+member+`":`) && (member != "trip_ids" || name == "/telemetry") {
					broken, err := jsonschema.UnmarshalJSON(strings.NewReader(strings.Replace(text, `"`+member+`":`, `"`+member+`_":`, 1)))
					if err != nil {
						t.Fatal(err)
					}
					if schema.Validate(broken) == nil {
						t.Errorf("%s: the schema accepts an answer without a %s", path, member)
					}
				}
			}
			text := strings.Replace(w.Body.String(), `"event_types":["trip_start"]`, `"event_types":["trip_end"]`, 1)
			if broken, err := jsonschema.UnmarshalJSON(strings.NewReader(text)); text != w.Body.String() && (err != nil || schema.Validate(broken) == nil) {
				t.Errorf("%s: the schema accepts a trip that ends in the state on_trip, %v", path, err)
			}
		}
	}
}

// documents loads the official documents. Two of their constructs are read as they are meant:
// a choice between modes is the mode micromobility, since a record without attributes of a mode
// matches several, and contains with a list is contains with one of the list.
type documents struct{}

// Load implements [jsonschema.URLLoader].
func (documents) Load(address string) (any, error) {
	text, err := os.ReadFile(strings.TrimPrefix(address, "file://"))
	if err != nil {
		return nil, err
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	if text, err = json.Marshal(repaired(value)); err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(text))
}

func repaired(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = repaired(v[i])
		}
	case map[string]any:
		if list, ok := v["oneOf"].([]any); ok {
			for _, choice := range list {
				if m, ok := choice.(map[string]any); ok {
					if ref, ok := m["$ref"].(string); ok && strings.Contains(ref, "modes/micromobility/") {
						return map[string]any{"$ref": ref}
					}
				}
			}
		}
		if list, ok := v["contains"].([]any); ok {
			v["contains"] = map[string]any{"enum": list}
		}
		for name := range v {
			v[name] = repaired(v[name])
		}
	}
	return v
}

// heldWriter is an answer whose client does not receive until released.
type heldWriter struct {
	*httptest.ResponseRecorder
	begun    chan<- bool
	released <-chan bool
}

func (h heldWriter) Write(part []byte) (int, error) {
	select {
	case h.begun <- true:
	case <-h.released: // the rest of an answer
	}
	<-h.released
	return h.ResponseRecorder.Write(part)
}

// TestTelemetryAtOnce refuses more answers at the same time than an organization may have, until
// one of them is complete.
func TestTelemetryAtOnce(t *testing.T) {
	r := newRig(t)
	path := "telemetry?telemetry_time=" + hourOf(time.Now().Add(-2*time.Hour))
	begun, released := make(chan bool), make(chan bool)
	var reading sync.WaitGroup
	for range 4 {
		req := httptest.NewRequest(http.MethodGet, mds.Path+path, nil)
		req.Header.Set("Authorization", "Bearer "+r.token(nil))
		req.Header.Set("Accept", accept)
		w := heldWriter{httptest.NewRecorder(), begun, released}
		reading.Go(func() {
			if r.api.ServeHTTP(w, req); w.Code != 200 {
				t.Errorf("got %d", w.Code)
			}
		})
		<-begun
	}
	if w := r.get(path, ""); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	if w := r.get("vehicles", ""); w.Code != 200 {
		t.Errorf("vehicles: got %d", w.Code)
	}
	close(released)
	reading.Wait()
	if w := r.get(path, ""); w.Code != 200 {
		t.Errorf("after the others: got %d", w.Code)
	}
}

// TestTripEndsOutOfContact: the event with which a vehicle is back has the end of its trip.
func TestTripEndsOutOfContact(t *testing.T) {
	r := newRig(t)
	ctx, by := t.Context(), fleet.Actor{Type: "system"}
	var ride fleet.Ride
	write := func(fn func(tx *db.Tx) error) {
		t.Helper()
		if err := r.db.Write(ctx, fn); err != nil {
			t.Fatal(err)
		}
	}
	write(func(tx *db.Tx) error {
		now, err := r.fleet.Now(ctx, tx, r.org)
		if err != nil {
			return err
		}
		c, err := r.fleet.CreateCustomerTx(ctx, tx, r.org, fleet.NewCustomer{SubaccountID: r.area.ID, Name: "Ada Example"})
		if err != nil {
			return err
		}
		v, err := r.fleet.CreateVehicleTx(ctx, tx, r.org, fleet.NewVehicle{
			SubaccountID: r.area.ID, Code: "OUT-1", VehicleTypeID: r.area.VehicleTypes[0].ID, State: fleet.Available, Location: &geo.Position{Lat: 52.52, Lng: 13.4}, BatteryPercent: new(int64(80)),
		}, by)
		if err != nil {
			return err
		}
		if ride, err = r.fleet.StartRideTx(ctx, tx, r.org, fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(c.ID)}, by); err != nil {
			return err
		}
		return r.fleet.AdvanceClockTx(ctx, tx, r.org, now.Add(3*time.Hour))
	})
	write(func(tx *db.Tx) error {
		got, err := r.fleet.LockRideTx(ctx, tx, r.org, ride.ID)
		if err != nil {
			return err
		}
		_, err = r.fleet.UpdateRideTx(ctx, tx, r.org, got, fleet.RideChange{Status: optional.Of(fleet.Completed), EndReason: optional.Of[fleet.NullString]("operator")}, by)
		return err
	})
	write(func(tx *db.Tx) error {
		v, err := r.fleet.LockVehicleTx(ctx, tx, r.org, ride.VehicleID)
		if err == nil {
			_, err = r.fleet.UpdateVehicleTx(ctx, tx, r.org, v, fleet.VehicleChange{BatteryPercent: optional.Of(int64(70))}, by)
		}
		return err
	})
	now, err := r.fleet.Now(ctx, r.db, r.org)
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("events/recent?start_time=%d&end_time=%d", ride.StartedAt.Std().UnixMilli(), now.Add(time.Minute).UnixMilli())
	var got struct{ Events []record }
	r.read(path, &got)
	trip, text := uuidOf(t, ride.ID), ""
	for _, e := range got.Events {
		if strings.Contains(fmt.Sprint(e["trip_ids"]), trip) {
			text += fmt.Sprint(e["vehicle_state"], e["event_types"], " ")
		}
	}
	if text != "on_trip[trip_start] non_contactable[comms_lost] available[comms_restored trip_end] " {
		t.Errorf("the events of the trip are %s", text)
	}
	if _, err := os.Stat(schemas); err == nil {
		validate(t, r, "/events/recent", path)
	}
}

func (r *rig) write(fn func(tx *db.Tx) error) {
	r.t.Helper()
	if err := r.db.Write(r.t.Context(), fn); err != nil {
		r.t.Fatal(err)
	}
}

// advance sets the clock.
func (r *rig) advance(to time.Time) {
	r.t.Helper()
	r.write(func(tx *db.Tx) error { return r.fleet.AdvanceClockTx(r.t.Context(), tx, r.org, to) })
}

// vehicle returns a new available vehicle.
func (r *rig) vehicle(code string) (v fleet.Vehicle) {
	r.t.Helper()
	r.write(func(tx *db.Tx) (err error) {
		v, err = r.fleet.CreateVehicleTx(r.t.Context(), tx, r.org, fleet.NewVehicle{
			SubaccountID: r.area.ID, Code: code, VehicleTypeID: r.area.VehicleTypes[0].ID, State: fleet.Available, Location: &geo.Position{Lat: 52.52, Lng: 13.4}, BatteryPercent: new(int64(80)),
		}, fleet.Actor{Type: "system"})
		return err
	})
	return v
}

// start starts or reserves a ride of a new customer.
func (r *rig) start(v fleet.Vehicle, status fleet.RideStatus) (ride fleet.Ride) {
	r.t.Helper()
	r.write(func(tx *db.Tx) error {
		c, err := r.fleet.CreateCustomerTx(r.t.Context(), tx, r.org, fleet.NewCustomer{SubaccountID: r.area.ID, Name: "Ada Example"})
		if err == nil {
			ride, err = r.fleet.StartRideTx(r.t.Context(), tx, r.org, fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(c.ID), Status: status}, fleet.Actor{Type: "system"})
		}
		return err
	})
	return ride
}

func (r *rig) put(rideID string, c fleet.RideChange) (ride fleet.Ride) {
	r.t.Helper()
	r.write(func(tx *db.Tx) error {
		locked, err := r.fleet.LockRideTx(r.t.Context(), tx, r.org, rideID)
		if err == nil {
			ride, err = r.fleet.UpdateRideTx(r.t.Context(), tx, r.org, locked, c, fleet.Actor{Type: "system"})
		}
		return err
	})
	return ride
}

func (r *rig) putVehicle(id string, c fleet.VehicleChange) {
	r.t.Helper()
	r.write(func(tx *db.Tx) error {
		v, err := r.fleet.LockVehicleTx(r.t.Context(), tx, r.org, id)
		if err == nil {
			_, err = r.fleet.UpdateVehicleTx(r.t.Context(), tx, r.org, v, c, fleet.Actor{Type: "system"})
		}
		return err
	})
}

func (r *rig) loseContact(vehicleID string) {
	r.t.Helper()
	r.write(func(tx *db.Tx) error { return r.fleet.LoseContactTx(r.t.Context(), tx, r.org, vehicleID) })
}

// eventsOf returns the events of a vehicle since a time, and their path.
func (r *rig) eventsOf(vehicleID string, since time.Time) (list []record, path string) {
	r.t.Helper()
	now, err := r.fleet.Now(r.t.Context(), r.db, r.org)
	if err != nil {
		r.t.Fatal(err)
	}
	path = fmt.Sprintf("events/recent?start_time=%d&end_time=%d", since.UnixMilli(), now.Add(time.Minute).UnixMilli())
	var got struct{ Events []record }
	r.read(path, &got)
	for _, e := range got.Events {
		if e["device_id"] == uuidOf(r.t, vehicleID) {
			list = append(list, e)
		}
	}
	return list, path
}

// status returns the status of a vehicle.
func (r *rig) status(vehicleID string) record {
	r.t.Helper()
	var got struct {
		Statuses []record `json:"vehicles_status"`
	}
	r.read("vehicles/status/"+uuidOf(r.t, vehicleID), &got)
	return got.Statuses[0]
}

// TestMissedEvents: the event with which a vehicle is back has those events of its ride that MDS
// allows in the state that they led to.
func TestMissedEvents(t *testing.T) {
	r := newRig(t)
	v := r.vehicle("OUT-1")
	ride := r.start(v, fleet.Reserved)
	r.loseContact(v.ID)
	r.put(ride.ID, fleet.RideChange{Status: optional.Of(fleet.Active)})
	r.put(ride.ID, fleet.RideChange{Status: optional.Of(fleet.Completed), EndReason: optional.Of[fleet.NullString]("operator")})
	r.putVehicle(v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(70))})
	list, _ := r.eventsOf(v.ID, ride.CreatedAt.Std())
	last := list[len(list)-1]
	if got := fmt.Sprint(last["vehicle_state"], last["event_types"], last["trip_ids"]); got != "available[comms_restored trip_end] ["+uuidOf(t, ride.ID)+"]" {
		t.Errorf("got %s", got)
	}

	if _, err := os.Stat(schemas); err != nil {
		t.Skip("the official documents of MDS are not beside the project: ", schemas)
	}
	events := map[fleet.VehicleState]fleet.VehicleEvent{
		fleet.Available: "comms_restored", fleet.VehicleReserved: "comms_restored", fleet.OnTrip: "comms_restored", fleet.NonOperational: "comms_restored",
		fleet.Removed: "comms_restored", fleet.NonContactable: "comms_lost", fleet.Missing: "not_located",
	}
	missed := []fleet.VehicleEvent{"reservation_start", "reservation_cancel", "trip_start", "trip_end", "trip_cancel"}
	at := time.Now().Truncate(time.Millisecond)
	r.write(func(tx *db.Tx) error {
		for state, event := range events {
			for i := range missed {
				for j := i; j < len(missed); j++ {
					c := fleet.StateChange{
						ID: "evt_" + ulid.MustNew(ulid.Timestamp(at), rand.Reader).String(), VehicleID: v.ID, State: state, Event: event, At: rfc3339.Time(at),
						Location: v.Location, RideID: fleet.NullString(ride.ID), RideEvents: slices.Compact([]fleet.VehicleEvent{missed[i], missed[j]}),
					}
					doc, err := json.Marshal(&c)
					if err != nil {
						return err
					}
					if _, err := tx.Exec(t.Context(), "INSERT INTO vehicle_events (organization_id, vehicle_id, id, doc) VALUES ($1, $2, $3, $4)", r.org, v.ID, c.ID, string(doc)); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	list, path := r.eventsOf(v.ID, at)
	if len(list) < len(events)*len(missed) {
		t.Errorf("got %d events", len(list))
	}
	validate(t, r, "/events/recent", path)
}

// TestTripBeforeLoss: the loss of contact after a trip, which its app ended later, has no trip.
func TestTripBeforeLoss(t *testing.T) {
	r := newRig(t)
	v := r.vehicle("OUT-1")
	ride := r.start(v, fleet.Active)
	at := func(after time.Duration) time.Time { return ride.StartedAt.Std().Add(after) }
	r.advance(at(10 * time.Minute))
	r.loseContact(v.ID)
	trips := func() string {
		list, _ := r.eventsOf(v.ID, at(9*time.Minute))
		return fmt.Sprint(list[0]["event_types"], list[0]["trip_ids"])
	}
	if got, want := trips(), "[comms_lost] ["+uuidOf(t, ride.ID)+"]"; got != want {
		t.Errorf("during the trip: got %s, want %s", got, want)
	}
	r.put(ride.ID, fleet.RideChange{Status: optional.Of(fleet.Completed), EndedAt: optional.Of(rfc3339.Time(at(5 * time.Minute))), EndReason: optional.Of[fleet.NullString]("operator")})
	if got, want := trips(), "[comms_lost] <nil>"; got != want {
		t.Errorf("after its end: got %s, want %s", got, want)
	}
}

// TestReservationOutOfContact: the loss of contact during a reservation has no trip, also if it becomes one.
func TestReservationOutOfContact(t *testing.T) {
	r := newRig(t)
	began := time.Now()
	since := began.Add(-time.Minute)
	reserved, starting, riding := r.vehicle("OUT-1"), r.vehicle("OUT-2"), r.vehicle("OUT-3")
	r.start(reserved, fleet.Reserved)
	later := r.start(starting, fleet.Reserved)
	trip := uuidOf(t, r.start(riding, fleet.Active).ID)
	for _, v := range []fleet.Vehicle{reserved, starting, riding} {
		r.loseContact(v.ID)
	}
	now, err := r.fleet.Now(t.Context(), r.db, r.org)
	if err != nil {
		t.Fatal(err)
	}
	r.advance(now.Add(time.Minute))
	r.put(later.ID, fleet.RideChange{Status: optional.Of(fleet.Active)})
	want := map[string]string{reserved.ID: "<nil>", starting.ID: "<nil>", riding.ID: "[" + trip + "]"}
	for id, want := range want {
		list, _ := r.eventsOf(id, since)
		last := list[len(list)-1]
		if got := fmt.Sprint(last["trip_ids"]); got != want || last["vehicle_state"] != "non_contactable" {
			t.Errorf("event: got %s of %v, want %s", got, last, want)
		}
		if got := fmt.Sprint(r.status(id)["last_event"].(map[string]any)["trip_ids"]); got != want {
			t.Errorf("status: got %s, want %s", got, want)
		}
	}
	var all struct {
		Statuses []record `json:"vehicles_status"`
	}
	r.read("vehicles/status", &all)
	for _, s := range all.Statuses {
		for id, want := range want {
			if got := fmt.Sprint(s["last_event"].(map[string]any)["trip_ids"]); s["device_id"] == uuidOf(t, id) && got != want {
				t.Errorf("status in the list: got %s, want %s", got, want)
			}
		}
	}
	r.advance(now.Add(2 * time.Hour))
	lost := 0
	for _, hour := range slices.Compact([]string{hourOf(began), hourOf(now)}) {
		for _, p := range r.points(hour) {
			for id, want := range want {
				at := int64(p["timestamp"].(float64))
				if p["device_id"] != uuidOf(t, id) || want != "<nil>" || at > now.UnixMilli() {
					continue
				}
				if lost++; p["trip_ids"] != nil {
					t.Errorf("telemetry has the reservation as a trip: %v", p)
				}
			}
		}
	}
	if lost < 4 {
		t.Errorf("%d points of the reserved vehicles, want at least two of each", lost)
	}
}

// TestCancelledTrips end where their vehicles were, and have a distance.
func TestCancelledTrips(t *testing.T) {
	r := newRig(t)
	far := geo.Position{Lat: 52.592, Lng: 13.4} // 8 km to the north
	for _, code := range []string{"FAR", "FAR-AND-SILENT"} {
		v, silent := r.vehicle(code), code != "FAR"
		ride := r.start(v, fleet.Active)
		now, err := r.fleet.Now(t.Context(), r.db, r.org)
		if err != nil {
			t.Fatal(err)
		}
		r.advance(now.Add(20 * time.Minute))
		r.putVehicle(v.ID, fleet.VehicleChange{Location: optional.Of(far)})
		if silent {
			r.loseContact(v.ID)
			r.advance(now.Add(25 * time.Minute))
		}
		ride = r.put(ride.ID, fleet.RideChange{Status: optional.Of(fleet.Cancelled), CancelReason: optional.Of[fleet.NullString]("operator")})
		if silent { // back, and elsewhere
			r.advance(ride.EndedAt.Std().Add(time.Minute))
			r.putVehicle(v.ID, fleet.VehicleChange{Location: optional.Of(geo.Position{Lat: 52.7, Lng: 13.4})})
		}
		r.advance(ride.EndedAt.Std().Add(2 * time.Hour))
		var got struct{ Trips []record }
		r.read("trips?end_time="+hourOf(ride.EndedAt.Std()), &got)
		at := slices.IndexFunc(got.Trips, func(p record) bool { return p["trip_id"] == uuidOf(t, ride.ID) })
		if at < 0 {
			t.Fatalf("the trip of %s is missing", v.Code)
		}
		trip := got.Trips[at]
		end := trip["end_location"].(map[string]any)
		if distance := trip["distance"].(float64); end["lat"] != far.Lat || end["lng"] != far.Lng || distance < 7900 || distance > 8100 {
			t.Errorf("the trip of %s ends at %v after %v meters", v.Code, end, distance)
		}
		if ride.EndLocation != nil || ride.DistanceMeters != nil {
			t.Errorf("the ride of %s has %v, %v", v.Code, ride.EndLocation, ride.DistanceMeters)
		}
	}
}
