package osmand_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/rest/osmand"
)

const org = "org-1"

// tracker is a vehicle with a tracker.
type tracker struct {
	*testing.T
	*fleet.Service
	db      *db.DB
	handler http.Handler
	vehicle string
	path    string // with the secret
}

func newTracker(t *testing.T) *tracker {
	d := dbtest.NewFleet(t)
	k := &tracker{T: t, Service: fleet.Open(fleet.Config{DB: d, Live: true}), db: d}
	k.handler = osmand.New(osmand.Config{Fleet: k.Service, DB: d, Limiter: ratelimit.NewMemory(time.Minute), Logger: slog.New(slog.DiscardHandler)})
	if err := k.Provision(t.Context(), fleet.Organization{ID: org, Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	k.write(func(ctx context.Context, tx *db.Tx) error {
		subs, err := k.Subaccounts(ctx, tx, org)
		if err != nil {
			return err
		}
		sub, err := k.LockSubaccountTx(ctx, tx, org, subs[0].ID)
		if err != nil {
			return err
		}
		sub, err = k.UpdateSubaccountTx(ctx, tx, org, sub, fleet.SubaccountChange{VehicleTypes: optional.Of([]fleet.VehicleType{{Name: "Bike", FormFactor: "bicycle", PropulsionType: "human"}})})
		if err != nil {
			return err
		}
		v, err := k.CreateVehicleTx(ctx, tx, org, fleet.NewVehicle{SubaccountID: sub.ID, Code: "B-1", VehicleTypeID: sub.VehicleTypes[0].ID}, fleet.Actor{Type: "system"})
		k.vehicle = v.ID
		return err
	})
	k.path = k.create()
	return k
}

func (k *tracker) write(fn func(ctx context.Context, tx *db.Tx) error) {
	k.Helper()
	if err := k.db.Write(k.Context(), func(tx *db.Tx) error { return fn(k.Context(), tx) }); err != nil {
		k.Fatal(err)
	}
}

// create creates a secret and returns the path with it.
func (k *tracker) create() (path string) {
	k.write(func(ctx context.Context, tx *db.Tx) error {
		secret, err := k.CreateTrackerTx(ctx, tx, org, k.vehicle)
		path = osmand.Path + secret
		return err
	})
	return path
}

// send sends a report and returns the status.
func (k *tracker) send(method, path, query, body string) int {
	r := httptest.NewRequest(method, path+"?"+query, strings.NewReader(body))
	switch {
	case strings.HasPrefix(body, "{"), strings.HasPrefix(body, "["):
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
	case body != "":
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	k.handler.ServeHTTP(w, r)
	return w.Code
}

// stored returns the vehicle's track.
func (k *tracker) stored() (list []track.Report) {
	k.Helper()
	err := k.EachTrackReport(k.Context(), k.db, org, k.vehicle, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), func(r *track.Report) error {
		list = append(list, *r)
		return nil
	})
	if err != nil {
		k.Fatal(err)
	}
	return list
}

func TestReports(t *testing.T) {
	k := newTracker(t)
	now := time.Now().Truncate(time.Second)
	query := fmt.Sprintf("id=123456&timestamp=%d&lat=52.520008&lon=13.404954&speed=10&bearing=90.5&altitude=34.2&accuracy=6.5&batt=73.4", now.Unix())
	if got := k.send("GET", k.path, query, ""); got != 200 {
		t.Fatalf("got %d", got)
	}
	if got := k.send("POST", k.path, query, ""); got != 200 {
		t.Errorf("again: got %d", got)
	}
	later := url.Values{"timestamp": {now.Add(time.Second).UTC().Format(time.RFC3339)}, "lat": {"52.53"}, "lon": {"13.4"}, "speed": {"-1"}, "bearing": {"-1"}}
	if got := k.send("POST", k.path, "", later.Encode()); got != 200 {
		t.Errorf("a form: got %d", got)
	}
	if got := k.send("GET", k.path, fmt.Sprintf("timestamp=%d&lat=52.54&lon=13.4", now.Add(-time.Minute).UnixMilli()), ""); got != 200 {
		t.Errorf("an older one: got %d", got)
	}
	list := k.stored()
	if len(list) != 3 || !list[1].Time().Equal(now) {
		t.Fatalf("got %d reports %v", len(list), list)
	}
	for f, want := range map[track.Field]int64{
		track.Lat: 52_520_008, track.Lng: 13_404_954, track.Speed: 185, track.Heading: 905, track.Altitude: 342, track.Accuracy: 65, track.Battery: 73,
	} {
		if got, ok := list[1].Get(f); !ok || got != want {
			t.Errorf("field %d: got %d, %v; want %d", f, got, ok, want)
		}
	}
	if _, ok := list[2].Get(track.Speed); ok {
		t.Error("a negative speed is known")
	}
	v, err := k.Vehicle(t.Context(), k.db, org, k.vehicle)
	if err != nil || v.Location.Lat != 52.53 || *v.BatteryPercent != 73 || !v.LastReportedAt.Std().Equal(now.Add(time.Second)) {
		t.Errorf("got %+v at %s, %v", v.Location, v.LastReportedAt.Std(), err)
	}
}

// TestForms: each form of a report has the same values.
func TestForms(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	const iso = "2006-01-02T15:04:05.000Z"
	whole := map[track.Field]int64{
		track.Lat: 52_520_008, track.Lng: 13_404_954, track.Speed: 288, track.Heading: 905, track.Altitude: 342, track.Accuracy: 65, track.Battery: 73, track.Odometer: 1204,
	}
	place := map[track.Field]int64{track.Lat: 52_520_008, track.Lng: 13_404_954}
	for name, tt := range map[string]struct {
		query, body string
		want        map[track.Field]int64
	}{
		"a document": {"", fmt.Sprintf(`{"location":{"timestamp":"%s","event":"motionchange","is_moving":true,"uuid":"8f2c","odometer":1204.2,
			"coords":{"latitude":52.520008,"longitude":13.404954,"accuracy":6.5,"speed":8,"speed_accuracy":0.4,"heading":90.5,"heading_accuracy":2,"altitude":34.2,"floor":null},
			"battery":{"level":0.73,"is_charging":false},"activity":{"type":"in_vehicle","confidence":100},"extras":{}},"device_id":"123456"}`, now.Format(iso)), whole},
		"a document with unknown values": {"", fmt.Sprintf(`{"location":{"timestamp":"%s","odometer":null,
			"coords":{"latitude":52.520008,"longitude":13.404954,"accuracy":-1,"speed":-1,"heading":-1,"altitude":1e300},
			"battery":{"level":-1}},"device_id":7}`, now.Format(iso)), place},
		"a document with values of other types": {"", fmt.Sprintf(`{"location":{"timestamp":%d,"odometer":"far",
			"coords":{"latitude":52.520008,"longitude":13.404954,"accuracy":{},"speed":1e999,"heading":true,"altitude":"34"},
			"battery":0.73}}`, now.UnixMilli()), place},
		"location":          {fmt.Sprintf("timestamp=%d&location=52.520008,%%2013.404954", now.Unix()), "", place},
		"a date and a time": {"lat=52.520008&lon=13.404954&timestamp=" + url.QueryEscape(now.Format("2006-01-02 15:04:05.000")), "", place},
		"unknown values": {
			fmt.Sprintf("timestamp=%d&lat=52.520008&lon=13.404954&batt=-1&bearing=361&accuracy=-1&altitude=NaN&speed=1e999&odometer=-1", now.Unix()), "", place,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newTracker(t)
			if got := k.send("POST", k.path, tt.query, tt.body); got != 200 {
				t.Fatalf("got %d", got)
			}
			list := k.stored()
			if len(list) != 1 || !list[0].Time().Equal(now) {
				t.Fatalf("got %v, want one of %s", list, now)
			}
			want := track.Report{At: list[0].At}
			for f, n := range tt.want {
				want.Set(f, n)
			}
			if list[0] != want {
				t.Errorf("got %v\nwant %v", list[0], want)
			}
		})
	}
}

// TestRefusedDocuments: a document needs a position and, if it has a time, a valid one.
func TestRefusedDocuments(t *testing.T) {
	k := newTracker(t)
	for body, want := range map[string]int{
		`{"location":{"coords":{"latitude":52.5,"longitude":13.4}}}`:                         200, // without a clock
		`{"location":{"timestamp":null,"coords":{"latitude":52.5,"longitude":13.4}}}`:        200,
		`{"location":{"timestamp":"yesterday","coords":{"latitude":52.5,"longitude":13.4}}}`: 400,
		`{"location":{"timestamp":true,"coords":{"latitude":52.5,"longitude":13.4}}}`:        400,
		`{"location":{"coords":{"latitude":52.5}}}`:                                          400,
		`{"location":{"coords":{"latitude":52.5,"longitude":181}}}`:                          400,
		`{"location":{"coords":{"latitude":52.5,"longitude":"east"}}}`:                       400,
		`{"location":{"event":"providerchange"}}`:                                            400,
		`{"location":[{"coords":{"latitude":52.5,"longitude":13.4}}]}`:                       400,
		`[]`:           400,
		`{"location":`: 400,
		`{"more":"` + strings.Repeat("x", 65<<10) + `"}`: 400,
	} {
		if got := k.send("POST", k.path, "", body); got != want {
			t.Errorf("%.90s: got %d, want %d", body, got, want)
		}
	}
	if got := k.send("POST", k.path, "lat=52.5&lon=13.4", "{}"); got != 400 {
		t.Errorf("a document without a position beside parameters: got %d", got)
	}
}

// TestWrongClock: the first report from the future is stored, since the tracker would repeat it.
func TestWrongClock(t *testing.T) {
	k := newTracker(t)
	for i := range 2 {
		if got := k.send("GET", k.path, fmt.Sprintf("timestamp=%d&lat=52.5%d&lon=13.4", time.Now().Add(5*time.Hour).UnixMilli(), i), ""); got != 200 {
			t.Errorf("got %d", got)
		}
	}
	if got := len(k.stored()); got != 2 {
		t.Errorf("%d reports are stored about now", got)
	}
}

// TestTooOld: a report that waited for longer than tracks are stored is neither of now nor repeated
// for ever. One from 1970 shows a wrong clock.
func TestTooOld(t *testing.T) {
	k := newTracker(t)
	k.write(func(ctx context.Context, tx *db.Tx) error {
		_, _, err := k.UpdateSettingsTx(ctx, tx, org, fleet.SettingsChange{TrackRetentionDays: optional.Of(int64(1))})
		return err
	})
	for i, at := range []time.Time{time.Now().Add(-25 * time.Hour), time.UnixMilli(1000)} {
		if got := k.send("GET", k.path, fmt.Sprintf("timestamp=%d&lat=52.5&lon=13.4", at.UnixMilli()), ""); got != 200 {
			t.Errorf("got %d", got)
		}
		if got := len(k.stored()); got != i {
			t.Errorf("%d reports are stored about now, want %d", got, i)
		}
	}
}

func TestRefused(t *testing.T) {
	k := newTracker(t)
	for query, want := range map[string]int{
		"lat=52.5&lon=13.4":                            200, // without a clock
		"lat=52.5":                                     400,
		"lat=91&lon=13.4":                              400,
		"lat=NaN&lon=13.4":                             400,
		"lat=52.5&lon=13.4&batt=full":                  400,
		"lat=52.5&lon=13.4&bearing=north":              400,
		"location=52.5":                                400,
		"location=52.5,181":                            400,
		"location=52.5,13.4,7":                         400,
		"lat=52.5&location=52.5,13.4":                  400,
		"lat=52.5&lon=13.4&timestamp=2026-03-14":       400,
		"lat=52.5&lon=13.4&timestamp=yesterday":        400,
		"lat=52.5&lon=13.4&timestamp=-5":               400,
		"lat=52.5&lon=13.4&timestamp=9999999999999999": 400,
		"lat=%zz&lon=13.4":                             400,
	} {
		if got := k.send("GET", k.path, query, ""); got != want {
			t.Errorf("%s: got %d, want %d", query, got, want)
		}
	}
	if got := k.send("PUT", k.path, "lat=52.5&lon=13.4", ""); got != 405 {
		t.Errorf("PUT: got %d", got)
	}
	if got := k.send("POST", k.path, "", strings.Repeat("x", 65<<10)); got != 400 {
		t.Errorf("a large form: got %d", got)
	}
	former := k.path
	k.path = k.create()
	if got := k.send("GET", former, "lat=52.5&lon=13.4", ""); got != 404 {
		t.Errorf("with the former secret: got %d", got)
	}
	k.write(func(ctx context.Context, tx *db.Tx) error { return k.DeleteTrackerTx(ctx, tx, org, k.vehicle) })
	if got := k.send("GET", k.path, "lat=52.5&lon=13.4", ""); got != 404 {
		t.Errorf("with a deleted secret: got %d", got)
	}
	for range 60 {
		k.send("GET", k.path, "", "")
	}
	if got := k.send("GET", k.path, "", ""); got != 429 {
		t.Errorf("after many refusals: got %d", got)
	}
}

func TestTooOften(t *testing.T) {
	k := newTracker(t)
	for i := range 600 {
		if got := k.send("GET", k.path, "lat=91", ""); got != 400 {
			t.Fatalf("request %d: got %d", i, got)
		}
	}
	if got := k.send("GET", k.path, "lat=52.5&lon=13.4", ""); got != 429 {
		t.Errorf("request 601: got %d", got)
	}
}
