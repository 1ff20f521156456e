package fleetapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
)

// telemetry is an answer to reports.
type telemetry struct {
	Object                             string
	Accepted, Ignored, Rejected, Taken int
	Results                            []struct {
		Index                 int
		Status, Code, Pointer string
	}
	Result *telemetry
	Clocks []struct {
		VehicleID string `json:"vehicle_id"`
		Ahead     int    `json:"ahead_seconds"`
		Corrected int
	}
}

func (w *telemetry) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d %d %d", w.Accepted, w.Ignored, w.Rejected)
	for _, r := range w.Results {
		fmt.Fprintf(&text, ", %d %s %s %s", r.Index, r.Status, r.Code, r.Pointer)
	}
	return text.String()
}

func telemetryOf(t testing.TB, a resttest.Answer, status int) *telemetry {
	t.Helper()
	var w telemetry
	if a.Status != status {
		t.Fatalf("got %d %s", a.Status, a.Body)
	}
	a.JSON(&w)
	return &w
}

func TestTelemetry(t *testing.T) {
	r := newSandbox(t)
	for _, e := range []*environment{r.live, r.sandbox} {
		p := e.tenant(t, ours)
		v := p.vehicle(fields{"device_id": "imei-1"})
		now := time.Now().UTC()
		report := func(seconds int, more string) string {
			return fmt.Sprintf(`{"vehicle":{"id":"%s"},"reported_at":"%s"%s}`, v.text("id"), now.Add(time.Duration(seconds)*time.Second).Format("2006-01-02T15:04:05.000Z"), more)
		}
		full := report(0, `,"location":{"lat":52.531677,"lng":13.381777,"accuracy_meters":6,"altitude_meters":34.5},"heading_degrees":90,"speed_kph":18.5,"battery_percent":73.0,"fuel_percent":null,"odometer_meters":1204330,"locked":false`)
		lines := []string{
			full,
			full,
			report(-60, ""),
			report(1, `,"battery_percent":101`),
			report(1, `,"location":{"lat":52.5}`),
			report(1, `,"location":{"lat":91,"lng":13}`),
			report(1, `,"colour":"red"`),
			`{"vehicle":{"id":"x","code":"y"},"reported_at":"2026-03-14T09:26:53Z"}`,
			`{"vehicle":{"code":"x"}}`,
			`{"vehicle":`,
			strings.Replace(full, v.text("id"), "veh_x", 1),
			strings.Replace(report(2, ""), `"id":"`+v.text("id"), `"device_id":"imei-1`, 1),
			report(4000, ""),
		}
		want := "2 2 9, 1 ignored duplicate , 2 ignored out_of_order , 3 rejected invalid_value #/battery_percent, 4 rejected invalid_value #/location, 5 rejected invalid_value #/location/lat, " +
			"6 rejected invalid_value #/colour, 7 rejected invalid_value #/vehicle, 8 rejected invalid_value #/reported_at, 9 rejected invalid_value #, 10 rejected not_found #/vehicle/id, 12 rejected in_future #/reported_at"
		a := p.Do("POST", "/telemetry", strings.Join(lines, "\n")+"\n", "Content-Type: "+rest.NDJSON)
		if got := telemetryOf(t, a, 200).String(); got != want {
			t.Errorf("%s: NDJSON:\n got %s\nwant %s", e.name, got, want)
		}
		if got := a.Header.Get("X-Telemetry-Limit") + " " + a.Header.Get("X-Telemetry-Remaining"); got != "100000000 99999987" || a.Header.Get("X-Telemetry-Reset") == "" {
			t.Errorf("%s: got the limit and remaining reports %s", e.name, got)
		}
		var got fields
		p.Get("/vehicles/" + v.text("id")).JSON(&got)
		if text := jsonOf(t, got["location"]); text != `{"accuracy_meters":6,"heading":90,"lat":52.531677,"lng":13.381777,"speed_mps":5.14}` || got["battery_percent"] != 73.0 || got["odometer_meters"] != 1204330.0 {
			t.Errorf("%s: got %s, %v, %v", e.name, text, got["battery_percent"], got["odometer_meters"])
		}

		lines[9] = `{"vehicle":7}`
		again := telemetryOf(t, p.Do("POST", "/telemetry", `{"reports":[`+strings.Join(lines, " ,\n")+`]}`), 200)
		if again.Accepted != 0 || again.Ignored != 4 || again.Rejected != 9 || again.Results[6].Pointer != "#/colour" || again.Results[9].Pointer != "#/vehicle" {
			t.Errorf("%s: as JSON, again: got %s", e.name, again)
		}
	}
}

// TestBlankLines: blank lines and a byte order mark are no reports, and leave the others their
// places.
func TestBlankLines(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	report := fmt.Sprintf(`{"vehicle":{"id":"%s"},"reported_at":"%s"}`, p.vehicle().text("id"), time.Now().Add(time.Second).UTC().Format(time.RFC3339))
	for body, want := range map[string]string{
		"\ufeff" + report + "\r\n\r\n \t\r\n{}\r\n\n" + report + "\n\n": "1 1 1, 3 rejected invalid_value #/vehicle, 5 ignored duplicate ",
		"\n\n":         "0 0 0",
		"\ufeff":       "0 0 0",
		"\n\ufeff{}\n": "0 0 1, 1 rejected invalid_value #",
	} {
		if got := telemetryOf(t, p.Do("POST", "/telemetry", body, "Content-Type: "+rest.NDJSON), 200).String(); got != want {
			t.Errorf("%q: got %s\nwant %s", body, got, want)
		}
	}
	// They do not count in the limit.
	if got := telemetryOf(t, p.Do("POST", "/telemetry", strings.Repeat("{}\n\n", fleet.MaxReports)+"\n", "Content-Type: "+rest.NDJSON), 200); got.Rejected != fleet.MaxReports {
		t.Errorf("got %d rejected", got.Rejected)
	}
	refused(t, "10,001 reports", p.Do("POST", "/telemetry", strings.Repeat("{}\n\n", fleet.MaxReports)+"{}", "Content-Type: "+rest.NDJSON), 413, "body_too_large")
}

func TestTelemetryRefused(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	for body, want := range map[string][]string{
		"":                            {"invalid_json"},
		"[]":                          {"validation_failed", "#/reports invalid_type"},
		"7":                           {"validation_failed", "#/reports invalid_type"},
		"{}":                          {"validation_failed", "#/reports invalid_type"},
		`{"reports":{}}`:              {"validation_failed", "#/reports invalid_type"},
		`{"reports":[],"more":1}`:     {"validation_failed", "#/more unknown_field"},
		`{"reports":[],"reports":[]}`: {"invalid_json"},
		`{"reports":[`:                {"invalid_json"},
		`{"reports":[` + strings.Repeat("1,", 10_000) + "1]}": {"body_too_large"},
	} {
		status := map[string]int{"invalid_json": 400, "validation_failed": 422, "body_too_large": 413}[want[0]]
		refused(t, fmt.Sprintf("%.40q", body), p.Do("POST", "/telemetry", body), status, want[0], want[1:]...)
	}
	refused(t, "CSV", p.Do("POST", "/telemetry", "a,b", "Content-Type: "+rest.CSV), 415, "unsupported_media_type")
	refused(t, "8 MB", p.Do("POST", "/telemetry", strings.Repeat(" ", 8<<20)+"[]"), 413, "body_too_large")
	if got := telemetryOf(t, p.Do("POST", "/telemetry", `{"reports":[]}`), 200); got.String() != "0 0 0" {
		t.Errorf("no reports: got %s", got)
	}
}

// TestTooManyLines: a body of short lines takes little more memory than the body.
func TestTooManyLines(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	for kind, body := range map[string]string{
		rest.NDJSON:        strings.Repeat("1\n", 7<<19) + "1",
		"application/json": `{"reports":[` + strings.Repeat("1,", 3<<20) + "1]}",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		refused(t, kind, p.Do("POST", "/telemetry", body, "Content-Type: "+kind), 413, "body_too_large")
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 100<<20 {
			t.Errorf("%s: took %d MB", kind, (after.TotalAlloc-before.TotalAlloc)>>20)
		}
	}
}

// TestTelemetryBudget: reports beyond the budget of a key are not taken; those before are.
func TestTelemetryBudget(t *testing.T) {
	e := newRig(t).live
	p := e.tenant(t, ours)
	_, token := e.makeKey(apikey.New{OrganizationID: ours, Permissions: apikey.Permissions{Level: apikey.ReadWrite}, RateLimit: new(int64(2))})
	narrow := e.As(token)
	v := p.vehicle()
	var lines []string
	for i := range 201 {
		lines = append(lines, fmt.Sprintf(`{"vehicle":{"id":"%s"},"reported_at":"%s"}`, v.text("id"), time.Now().Add(time.Duration(i)*time.Millisecond).UTC().Format("2006-01-02T15:04:05.000Z")))
	}
	// Blank lines take nothing of the budget, but have numbers.
	a := narrow.Do("POST", "/telemetry", strings.Join(lines, "\n\n"), "Content-Type: "+rest.NDJSON, "Idempotency-Key: one")
	refused(t, "201 reports", a, 429, "rate_limited")
	if w := telemetryOf(t, a, 429); w.Taken != 400 || w.Result.Accepted != 200 || a.Header.Get("Retry-After") == "" || a.Header.Get("X-Telemetry-Remaining") != "0" {
		t.Errorf("got %d taken, %d accepted, headers %v", w.Taken, w.Result.Accepted, a.Header)
	}
	a = narrow.Do("POST", "/telemetry", lines[200], "Content-Type: "+rest.NDJSON)
	refused(t, "another", a, 429, "rate_limited")
	if w := telemetryOf(t, a, 429); w.Taken != 0 {
		t.Errorf("got %d taken of no budget", w.Taken)
	}
	// Another key has its own window, and the reports are stored once.
	if got := telemetryOf(t, p.Do("POST", "/telemetry", strings.Join(lines, "\n"), "Content-Type: "+rest.NDJSON), 200); got.Accepted != 1 || got.Ignored != 200 {
		t.Errorf("with another key: got %d accepted, %d ignored", got.Accepted, got.Ignored)
	}
}

// TestTelemetryScope: a key reports only for vehicles of its subaccounts and its organization.
func TestTelemetryScope(t *testing.T) {
	e := newRig(t).live
	p, them := e.tenant(t, ours), e.tenant(t, theirs)
	body := func(v fields) string {
		return fmt.Sprintf(`{"reports":[{"vehicle":{"id":"%s"},"reported_at":"%s"}]}`, v.text("id"), time.Now().Add(time.Second).UTC().Format(time.RFC3339))
	}
	v := p.vehicle()
	other := e.As(e.key(ours, apikey.Permissions{Level: apikey.ReadWrite}, p.other.ID))
	if got := telemetryOf(t, other.Do("POST", "/telemetry", body(v)), 200).String(); got != "0 0 1, 0 rejected outside_scope #/vehicle/id" {
		t.Errorf("another subaccount: got %s", got)
	}
	if got := telemetryOf(t, p.Do("POST", "/telemetry", body(v), "X-Subaccount-Id: "+p.other.ID), 200).String(); got != "0 0 1, 0 rejected outside_scope #/vehicle/id" {
		t.Errorf("narrowed: got %s", got)
	}
	if got := telemetryOf(t, them.Do("POST", "/telemetry", body(v)), 200).String(); got != "0 0 1, 0 rejected not_found #/vehicle/id" {
		t.Errorf("another organization: got %s", got)
	}
	blind := e.As(e.key(ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"vehicles": {update}}}}))
	if got := telemetryOf(t, blind.Do("POST", "/telemetry", body(v)), 200); got.Object != "telemetry_result" || got.Accepted != 1 {
		t.Errorf("without the permission to read: got %+v", got)
	}
}

func TestTrack(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	v := p.vehicle()
	path := "/vehicles/" + v.text("id") + "/track"
	now := time.Now().UTC().Truncate(time.Hour)
	var lines []string
	for i := range 5 {
		lines = append(lines, fmt.Sprintf(`{"vehicle":{"id":"%s"},"reported_at":"%s","location":{"lat":%.6f,"lng":13.4},"speed_kph":%d}`,
			v.text("id"), now.Add(time.Duration(i-10)*10*time.Minute).Format(time.RFC3339), 52.5+float64(i)/1000, 10+i))
	}
	lines[4] = strings.Replace(lines[4], `,"speed_kph":14`, "", 1)
	telemetryOf(t, p.Do("POST", "/telemetry", strings.Join(lines, "\n"), "Content-Type: "+rest.NDJSON), 200)
	stamp := func(i int) string {
		return now.Add(time.Duration(i-10) * 10 * time.Minute).Format("2006-01-02T15:04:05.000Z")
	}

	query := "?from=" + stamp(1) + "&to=" + stamp(4)
	want := fmt.Sprintf(`{"object":"track","points":[{"at":"%s","lat":52.501,"lng":13.4,"speed_kph":11},{"at":"%s","lat":52.502,"lng":13.4,"speed_kph":12},{"at":"%s","lat":52.503,"lng":13.4,"speed_kph":13}],"next_from":null}`, stamp(1), stamp(2), stamp(3))
	if got := p.Get(path + query); got.Body != want {
		t.Errorf("got %s\nwant %s", got.Body, want)
	}
	want = fmt.Sprintf(`{"at":"%s","lat":52.5,"lng":13.4,"speed_kph":10}`+"\n"+`{"at":"%s","lat":52.504,"lng":13.4,"speed_kph":null}`+"\n", stamp(0), stamp(4))
	if got := p.Get(path+"?simplify_meters=1", "Accept: "+rest.NDJSON); got.Body != want {
		t.Errorf("simplified: got %s\nwant %s", got.Body, want)
	}
	want = `{"type":"FeatureCollection","features":[` + "\n" + `{"type":"Feature","id":"` + v.text("id") + `","geometry":{"type":"LineString","coordinates":[[13.4,52.501],[13.4,52.502],[13.4,52.503]]},` +
		`"properties":{"vehicle_id":"` + v.text("id") + `","from":"` + stamp(1) + `","to":"` + stamp(3) + `"}}` + "\n]}\n"
	if got := p.Get(path+query, "Accept: "+rest.GeoJSON); got.Body != want || got.Header.Get("Content-Type") != rest.GeoJSON {
		t.Errorf("GeoJSON: got %s\nwant %s", got.Body, want)
	}
	want = `{"type":"FeatureCollection","features":[` + "\n]}\n"
	for _, query := range []string{"?from=" + stamp(1) + "&to=" + stamp(2), "?from=" + stamp(6)} {
		if got := p.Get(path+query, "Accept: "+rest.GeoJSON); got.Body != want {
			t.Errorf("GeoJSON of no line: got %s\nwant %s", got.Body, want)
		}
	}
	refused(t, "32 days", p.Get(path+"?from=2026-01-01T00:00:00Z&to=2026-02-02T00:00:00Z"), 400, "range_too_large")
	refused(t, "backwards", p.Get(path+"?from=2026-02-01T00:00:00Z&to=2026-01-02T00:00:00Z"), 400, "invalid_parameter")
}

// TestTrackExport: an export has all pages of a track.
func TestTrackExport(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	v := p.vehicle()
	start := time.Now().UTC().Truncate(time.Hour).Add(-2 * time.Hour)
	const points = 10_050
	var lines []string
	for i := range points {
		lines = append(lines, fmt.Sprintf(`{"vehicle":{"id":"%s"},"reported_at":"%s","location":{"lat":52.5,"lng":%.6f}}`,
			v.text("id"), start.Add(time.Duration(i)*100*time.Millisecond).Format("2006-01-02T15:04:05.000Z"), 13.1+float64(i)/100_000))
	}
	for _, part := range [][]string{lines[:9000], lines[9000:]} {
		telemetryOf(t, p.Do("POST", "/telemetry", strings.Join(part, "\n"), "Content-Type: "+rest.NDJSON), 200)
	}
	path := "/vehicles/" + v.text("id") + "/track"
	if got := strings.Count(p.Get(path, "Accept: "+rest.NDJSON).Body, "\n"); got != points {
		t.Errorf("NDJSON: got %d points", got)
	}
	if got := p.Get(path, "Accept: "+rest.GeoJSON).Body; strings.Count(got, "[13.") != points || strings.Count(got, "LineString") != 1 || !strings.Contains(got, `"to":"`+start.Add((points-1)*100*time.Millisecond).Format("2006-01-02T15:04:05.000Z")) {
		t.Errorf("GeoJSON: got %d points, %d lines", strings.Count(got, "[13."), strings.Count(got, "LineString"))
	}
}

// storeTrack stores segments of a vehicle, each with so many points, and returns the start of the first.
func (p *tenant) storeTrack(vehicleID string, segments, points int64) (start int64) {
	p.t.Helper()
	start = track.Start(time.Now().Add(-48 * time.Hour).UnixMilli())
	step := track.Period.Milliseconds() / points
	var list track.Segment
	p.write(func(ctx context.Context, tx *db.Tx) error {
		for i := range segments {
			from := start + i*track.Period.Milliseconds()
			list = list[:0]
			for k := range points {
				point := track.Report{At: from + k*step}
				point.Set(track.Lat, 52_500_000+i)
				point.Set(track.Lng, 13_000_000+k)
				list = append(list, point)
			}
			if _, err := tx.Exec(ctx, "INSERT INTO tracks (organization_id, vehicle_id, start_at, reports) VALUES ($1, $2, $3, $4)", p.org, vehicleID, from*1000, list.Append(nil, from)); err != nil {
				return err
			}
		}
		return nil
	})
	return start
}

// TestTrackMemory: an export takes no more memory for a longer track.
func TestTrackMemory(t *testing.T) {
	e := newRig(t).live
	p := e.tenant(t, ours)
	id := p.vehicle().text("id")
	const segments, points = 150, 5000
	start := p.storeTrack(id, segments, points)
	r := httptest.NewRequest("GET", "http://api.example.com/v1/vehicles/"+id+"/track?from="+time.UnixMilli(start).UTC().Format(time.RFC3339), http.NoBody).WithContext(t.Context())
	r.Header.Set("Authorization", "Bearer "+p.Token)
	r.Header.Set("Accept", rest.GeoJSON)
	w := &weighing{ResponseRecorder: httptest.NewRecorder()}
	before := liveHeap()
	e.api.Wrap(http.NotFoundHandler()).ServeHTTP(w, r)
	if got := w.brackets - 2; w.Code != http.StatusOK || got != segments*points { // one of the features, one of the line
		t.Fatalf("got %d, %d points", w.Code, got)
	}
	if took := int64(w.most) - int64(before); took > 8<<20 {
		t.Errorf("%d points take %d MB", segments*points, took>>20)
	}
}

// TestTrackBreaks: a client can tell a track that broke off from a complete one.
func TestTrackBreaks(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	id := p.vehicle().text("id")
	start := p.storeTrack(id, 3, 9000)
	from := func(segment int64) string {
		return "/vehicles/" + id + "/track?from=" + time.UnixMilli(start+segment*track.Period.Milliseconds()).UTC().Format(time.RFC3339)
	}
	if a := p.Do("HEAD", from(0), "", "Accept: "+rest.GeoJSON); a.Status != 200 || a.Body != "" || a.Header.Get("Content-Type") != rest.GeoJSON {
		t.Errorf("HEAD: got %d %v", a.Status, a.Header)
	}
	p.write(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE tracks SET reports = $1 WHERE vehicle_id = $2 AND start_at = $3", []byte{1, 9}, id, (start+2*track.Period.Milliseconds())*1000)
		return err
	})
	if a := p.Get(from(0), "Accept: "+rest.GeoJSON); a.Status != 200 || a.Err != io.ErrUnexpectedEOF || strings.Contains(a.Body, "properties") {
		t.Errorf("midway: got %d, %d bytes, %v", a.Status, len(a.Body), a.Err)
	}
	if a := p.Get(from(2), "Accept: "+rest.GeoJSON); a.Status != 500 || a.Code() != "internal_error" {
		t.Errorf("at once: got %d %s", a.Status, a.Body)
	}
}

// weighing counts the brackets of an answer and measures the memory meanwhile.
type weighing struct {
	*httptest.ResponseRecorder
	brackets, size int
	most           uint64
}

func (w *weighing) Write(b []byte) (int, error) {
	if w.size/(2<<20) != (w.size+len(b))/(2<<20) {
		w.most = max(w.most, liveHeap())
	}
	w.size += len(b)
	w.brackets += bytes.Count(b, []byte("["))
	return len(b), nil
}

// liveHeap returns the size of the objects in use, in bytes.
func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestVehicleEvents(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	ride := p.ride()
	id := ride.text("vehicle_id")
	send(t, p.Client, "PUT", "/rides/"+ride.text("id"), `{"status":"completed"}`, 200)
	var got []string
	path := "/vehicles/" + id + "/events?limit=2"
	for path != "" {
		var page struct {
			Data []struct {
				ID, State  string
				LastEvent  string   `json:"last_event"`
				EventTypes []string `json:"event_types"`
				RideID     string   `json:"ride_id"`
			}
			NextCursor string `json:"next_cursor"`
		}
		p.Get(path).JSON(&page)
		for _, e := range page.Data {
			got = append(got, strings.Join(e.EventTypes, "+")+" "+e.State)
			if (e.RideID == ride.text("id")) != strings.HasPrefix(e.LastEvent, "trip_") {
				t.Errorf("%s has the ride %q", e.LastEvent, e.RideID)
			}
		}
		if path = ""; page.NextCursor != "" {
			path = "/vehicles/" + id + "/events?limit=2&cursor=" + page.NextCursor
		}
	}
	if want := "trip_end available, trip_start on_trip, provider_drop_off available"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
	if lines := strings.Count(p.Get("/vehicles/"+id+"/events", "Accept: "+rest.NDJSON).Body, "\n"); lines != 3 {
		t.Errorf("an export has %d lines", lines)
	}
}

// TestTracker: the address of a tracker needs the permissions to read and to update vehicles.
func TestTracker(t *testing.T) {
	e := newRig(t).live
	p := e.tenant(t, ours)
	path := "/vehicles/" + p.vehicle().text("id") + "/tracker"
	first, second := send(t, p.Client, "POST", path, "", 200), send(t, p.Client, "POST", path, "", 200)
	if !strings.HasPrefix(first.text("url"), "https://kickstand.example/osmand/") || first.text("url") == second.text("url") {
		t.Errorf("got %s and %s", first.text("url"), second.text("url"))
	}
	_, _, err := p.fleet.TrackerVehicle(t.Context(), p.db, strings.TrimPrefix(first.text("url"), "https://kickstand.example/osmand/"))
	if problem.Of(err) != problem.NotFound {
		t.Errorf("the former secret: got %v", err)
	}
	organizationID, _, err := p.fleet.TrackerVehicle(t.Context(), p.db, strings.TrimPrefix(second.text("url"), "https://kickstand.example/osmand/"))
	if err != nil || organizationID != ours {
		t.Errorf("got the organization %q, %v", organizationID, err)
	}
	blind := e.As(e.key(ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"vehicles": {update}}}}))
	refused(t, "without the permission to read", blind.Do("POST", path, ""), 403, "permission_denied")
}
