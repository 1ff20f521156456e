package fleetapi_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/fleettest"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// TestModel compares the API of a sandbox with the independent model of fleettest over random
// requests and travels in time: statuses, problem codes, states, prices with their lines, and
// figures. On SQLite the time stands still between travels, so that limits are met to the
// millisecond. On PostgreSQL, whose clock runs, the model takes the times from answers.
//
// KICKSTAND_TEST_FLEET_STEPS sets the number of requests, KICKSTAND_TEST_FLEET_SEED the seed.
func TestModel(t *testing.T) {
	steps := 2000
	if testing.Short() {
		steps = 1000
	}
	if text := os.Getenv("KICKSTAND_TEST_FLEET_STEPS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		steps = n
	}
	seed := rand.Uint64()
	if text := os.Getenv("KICKSTAND_TEST_FLEET_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("%d steps, KICKSTAND_TEST_FLEET_SEED=%d", steps, seed)
	if os.Getenv("KICKSTAND_TEST_DATABASE_URL") != "" {
		newWalk(t, seed).run(min(steps, 500))
		return
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 3, 20, 9, 0, 0, 0, time.UTC))) // before a day of 23 hours in Berlin
		newWalk(t, seed).run(steps)
	})
}

// walk is a run of TestModel.
type walk struct {
	*tenant
	rng   *rand.Rand
	seed  uint64
	calls http.Handler
	token string
	model *fleettest.World
	types []*fleettest.Type
	plans []*fleettest.Plan
	exact bool // the time stands still
	set   time.Time
	setAt time.Time
	done  []string // the last requests
	count map[string]int
	made  int
}

func newWalk(t *testing.T, seed uint64) *walk {
	r := newSandbox(t)
	e := r.sandbox
	w := &walk{tenant: e.tenant(t, ours), rng: rand.New(rand.NewPCG(seed, 0)), seed: seed, calls: e.api.Wrap(http.NotFoundHandler()), exact: !e.db.Postgres(), count: map[string]int{}}
	w.token = e.key(ours, apikey.Permissions{Level: apikey.Admin})
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	w.types = []*fleettest.Type{{ID: w.scooter, ReservableFor: 15}, {ID: w.car, LicenseRequired: true, MinAge: 18}}
	w.model = &fleettest.World{
		Settings: fleettest.Settings{LowBattery: 15, ReadyBattery: 30, MaxRide: 197, GraceSeconds: 60, GraceMeters: 50, ContactLost: 61, MissingAfter: 5},
		Currency: "EUR", Zone: zone, Wrong: func(text string) { w.fail("%s", text) },
		Measured: func(ride *fleettest.Ride) *int64 {
			_, got := w.call("GET", "/rides/"+ride.ID, nil)
			return integer(got["distance_meters"])
		},
	}
	w.expect("PUT", "/settings", w.model.Settings, 200)
	w.setTime(w.clock())
	var second fleet.Plan
	w.write(func(ctx context.Context, tx *db.Tx) (err error) {
		second, err = w.fleet.CreatePlanTx(ctx, tx, ours, fleet.NewPlan{SubaccountID: w.sub.ID, Name: "Second", Tariff: tariff.Tariff{}})
		return err
	})
	for _, id := range []string{w.plan.ID, second.ID} {
		p := &fleettest.Plan{ID: id, Currency: "EUR"}
		w.plans = append(w.plans, p)
		w.price(p, true)
	}
	w.model.Plan = w.plans[0]
	for _, birth := range []string{"", "1990-01-01", "2008-03-24", "", "", "", "2008-02-29", ""} {
		c := &fleettest.Customer{ID: w.customer(), Status: "active", License: "none"}
		if birth != "" {
			w.expect("PUT", "/customers/"+c.ID, fields{"birth_date": birth}, 200)
			if c.Birth, err = time.Parse(time.DateOnly, birth); err != nil {
				t.Fatal(err)
			}
		}
		w.model.Customers = append(w.model.Customers, c)
	}
	return w
}

// run takes steps and compares the figures of all rides at the end.
func (w *walk) run(steps int) {
	for range 6 {
		w.addVehicle()
	}
	for range steps {
		w.step()
		if w.t.Failed() {
			w.t.FailNow()
		}
	}
	w.compareAll()
	w.compareFigures()
	w.compareHistories()
	names := slices.Sorted(maps.Keys(w.count))
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, " %s %d,", name, w.count[name])
	}
	w.t.Logf("%d rides; answers:%s", len(w.model.Rides), strings.TrimSuffix(b.String(), ","))
}

// fail ends the test with the seed and the last requests.
func (w *walk) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nKICKSTAND_TEST_FLEET_SEED=%d\n%s", fmt.Sprintf(format, args...), w.seed, strings.Join(w.done[max(0, len(w.done)-12):], "\n"))
}

// call sends a request.
func (w *walk) call(method, path string, body any) (int, fields) {
	w.t.Helper()
	text := ""
	if body != nil {
		text = jsonOf(w.t, body)
	}
	req := httptest.NewRequestWithContext(w.t.Context(), method, origin+"/sandbox/v1"+path, strings.NewReader(text))
	req.RemoteAddr = resttest.Peer + ":40000"
	req.Header.Set("Authorization", "Bearer "+w.token)
	if text != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	rec := httptest.NewRecorder()
	w.calls.ServeHTTP(rec, req)
	if method != "GET" {
		w.done = append(w.done, fmt.Sprintf("%s %s %s → %d %.200s", method, path, text, rec.Code, rec.Body))
	}
	var got fields
	if rec.Body.Len() > 0 {
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
			w.fail("%s %s: %v", method, path, err)
		}
	}
	return rec.Code, got
}

func (w *walk) expect(method, path string, body any, status int) fields {
	w.t.Helper()
	code, got := w.call(method, path, body)
	if code != status {
		w.fail("%s %s: got %d %v, want %d", method, path, code, got, status)
	}
	return got
}

// answered compares an answer with the model's and reports whether the request succeeded.
func (w *walk) answered(what string, status int, got fields, want fleettest.Answer) bool {
	w.t.Helper()
	code := got.text("code")
	if status < 400 {
		code = "ok"
	}
	w.count[strings.Fields(what)[0]+" "+code]++
	if status != want.Status || want.Refused() && !slices.Contains(want.Codes, code) {
		w.fail("%s: got %d %s, want %d %q", what, status, got.text("code"), want.Status, want.Codes)
	}
	return !want.Refused()
}

// clock reads the sandbox's clock.
func (w *walk) clock() time.Time {
	w.t.Helper()
	return instant(w.t, w.expect("GET", "/sandbox/clock", nil, 200)["now"])
}

func (w *walk) setTime(at time.Time) { w.set, w.setAt = at, time.Now() }

// now is the sandbox's time: exactly, or nearly.
func (w *walk) now() time.Time { return w.set.Add(time.Since(w.setAt)).Truncate(time.Millisecond) }

// stamp returns the time at which a change was made that was answered with a record.
func (w *walk) stamp(got fields, before time.Time) time.Time {
	w.t.Helper()
	at := instant(w.t, got["updated_at"])
	if w.exact && !at.Equal(before) || at.Sub(before).Abs() > time.Minute {
		w.fail("a record was changed at %v, want %v", at, before)
	}
	return at
}

func instant(t testing.TB, v any) time.Time {
	t.Helper()
	if v == nil {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, v.(string))
	if err != nil {
		t.Fatal(err)
	}
	return at.UTC()
}

func integer(v any) *int64 {
	n, ok := v.(float64)
	if !ok {
		return nil
	}
	return new(int64(n))
}

func pick[T any](w *walk, list []T) T { return list[w.rng.IntN(len(list))] }

// chance is true in n of 100 cases.
func (w *walk) chance(n int) bool { return w.rng.IntN(100) < n }

// point returns a point of a grid, whose lines are also the edges of zones.
func (w *walk) point() *fleettest.Point {
	return &fleettest.Point{Lat: float64(52_500+5*w.rng.IntN(9)) / 1000, Lng: float64(13_360+5*w.rng.IntN(9)) / 1000}
}

// level returns a battery level: low, in between, or ready.
func (w *walk) level() *int64 {
	return new(pick(w, []int64{0, 14, 15, 16, 29, 30, 31, 50, 80, 100}))
}

func (w *walk) step() {
	v := pick(w, w.model.Vehicles)
	for v.Deleted {
		v = pick(w, w.model.Vehicles)
	}
	switch {
	case v.Ride != nil && w.chance(60):
		w.moveRide(v.Ride)
		return
	case v.State != "available" && w.chance(25): // so that rides go on
		w.setState(v, "available")
		return
	case v.State == "available" && w.chance(40):
		w.begin(v)
		return
	}
	switch n := w.rng.IntN(100); {
	case n < 22:
		w.travel()
	case n < 45:
		w.begin(v)
	case n < 57:
		w.report(v)
	case n < 67:
		w.setState(v, pick(w, []string{"available", "available", "non_operational", "removed", "reserved", "on_trip", "non_contactable", "missing"}))
	case n < 75:
		w.afterwards()
	case n < 81:
		w.quote()
	case n < 85:
		w.zones()
	case n < 88:
		w.price(pick(w, w.plans), false)
	case n < 93:
		w.changeCustomer()
	case n < 95:
		w.addVehicle()
	case n < 97:
		w.delete(v)
	default:
		w.compareAll()
	}
}

// travel puts the clock forward: by little or much, to the next deadline or shortly before.
func (w *walk) travel() {
	now := w.now()
	to := now.Add(time.Duration(w.rng.IntN(120)) * time.Second)
	deadlines := w.model.Deadlines()
	switch n := w.rng.IntN(20); {
	case n < 6:
		to = now.Add(time.Duration(1+w.rng.IntN(20)) * time.Minute)
	case n < 8 && len(deadlines) > 0 && w.exact:
		to = pick(w, deadlines).Add(pick(w, []time.Duration{-time.Millisecond, 0, time.Millisecond}))
	case n == 9 && w.chance(30):
		to = now.Add(time.Duration(1+w.rng.IntN(30)) * time.Hour)
	case n == 10:
		to = now.Add(time.Duration(w.rng.IntN(90_000)) * time.Millisecond)
	}
	if to.Before(now) {
		to = now
	}
	for !w.exact && slices.ContainsFunc(w.model.Deadlines(), func(at time.Time) bool { return at.Sub(to).Abs() < 5*time.Second }) {
		to = to.Add(2 * time.Second) // a running clock must not reach it between two requests
	}
	w.travelTo(to)
}

// travelTo puts the clock forward and compares what happened meanwhile.
func (w *walk) travelTo(to time.Time) {
	w.expect("PUT", "/sandbox/clock", fields{"now": to.Format(time.RFC3339Nano)}, 200)
	w.setTime(to)
	open := map[*fleettest.Ride]bool{}
	for _, v := range w.model.Vehicles {
		if v.Ride != nil {
			open[v.Ride] = true
		}
	}
	w.model.Pass(to)
	for r := range open {
		w.compareRide(r)
	}
	w.compareVehicles()
	w.count["travel"]++
}

func (w *walk) addVehicle() {
	if len(slices.DeleteFunc(slices.Clone(w.model.Vehicles), func(v *fleettest.Vehicle) bool { return v.Deleted })) >= 8 {
		return
	}
	n := fleettest.NewVehicle{Type: w.types[min(1, w.rng.IntN(4)/3)], State: "available"}
	w.made++
	body := fields{"subaccount_id": w.sub.ID, "code": fmt.Sprint("M-", w.made), "vehicle_type_id": n.Type.ID}
	if w.chance(25) {
		n.State = "removed"
	}
	if n.State == "available" || w.chance(50) {
		body["state"] = n.State
	}
	if !w.chance(10) {
		n.At = w.point()
		body["location"] = n.At
	}
	if !w.chance(20) {
		n.Battery = w.level()
		body["battery_percent"] = *n.Battery
	}
	if w.chance(50) {
		n.Odometer = new(w.rng.Int64N(1_000_000))
		body["odometer_meters"] = *n.Odometer
	}
	if w.chance(30) {
		n.Plan = w.plans[1]
		body["pricing_plan_id"] = n.Plan.ID
	}
	now := w.now()
	status, got := w.call("POST", "/vehicles", body)
	if status < 400 {
		now = w.stamp(got, now)
	}
	v, want := w.model.AddVehicle(n, now)
	if w.answered("create a vehicle", status, got, want) {
		v.ID = got.text("id")
		w.compareVehicle(v, got)
	}
}

func (w *walk) delete(v *fleettest.Vehicle) {
	if !w.chance(30) {
		return
	}
	status, got := w.call("DELETE", "/vehicles/"+v.ID, nil)
	if w.answered("delete", status, got, w.model.Delete(v, w.now())) {
		w.expect("GET", "/vehicles/"+v.ID, nil, 404)
		w.addVehicle()
		if !slices.ContainsFunc(w.model.Vehicles, func(v *fleettest.Vehicle) bool { return !v.Deleted }) {
			w.fail("no vehicle is left")
		}
	}
}

func (w *walk) begin(v *fleettest.Vehicle) {
	n := fleettest.NewRide{Vehicle: v, Status: pick(w, []string{"active", "active", "reserved"}), Trip: "rider"}
	body := fields{"vehicle_id": v.ID, "status": n.Status}
	if w.chance(12) {
		n.Trip = pick(w, []string{"rebalance", "maintenance"})
		body["trip_type"] = n.Trip
	}
	if n.Trip == "rider" != w.chance(3) {
		n.Customer = pick(w, w.model.Customers)
		body["customer_id"] = n.Customer.ID
	}
	if w.chance(15) {
		n.Plan = pick(w, w.plans)
		body["pricing_plan_id"] = n.Plan.ID
		if w.chance(50) {
			n.Version = n.Plan.Version - int64(w.rng.IntN(2))
			body["pricing_plan_version"] = n.Version
			if n.Version == 0 {
				n.Version = n.Plan.Version
				body["pricing_plan_version"] = n.Version
			}
		}
	}
	if w.chance(10) {
		n.Start = w.point()
		body["start_location"] = n.Start
	}
	now := w.now()
	status, got := w.call("POST", "/rides", body)
	if status < 400 {
		now = w.stamp(got, now)
	}
	r, want := w.model.Begin(n, now)
	if w.answered("begin "+n.Status, status, got, want) {
		r.ID = got.text("id")
		w.compareRide(r)
	}
	w.read(v)
}

func (w *walk) moveRide(r *fleettest.Ride) {
	if limit := r.StartedAt.Add(time.Duration(w.model.Settings.GraceSeconds) * time.Second); w.exact && r.Status == "active" && w.now().Before(limit) && w.chance(30) {
		w.travelTo(limit.Add(pick(w, []time.Duration{-time.Millisecond, 0, 0, time.Millisecond})))
		w.moveRideTo(r, "cancelled")
		return
	}
	status := pick(w, []string{"active", "paused", "completed", "completed", "completed", "cancelled"})
	if r.Status == "reserved" && w.chance(60) {
		status = "active"
	}
	w.moveRideTo(r, status)
}

func (w *walk) moveRideTo(r *fleettest.Ride, status string) {
	u := fleettest.Update{Status: status}
	body := fields{"status": u.Status}
	if u.Status == "completed" && (r.Status == "active" || r.Status == "paused") {
		if w.chance(50) {
			u.At = w.point()
			body["end_location"] = u.At
		}
		if w.chance(60) {
			u.Meters = new(pick(w, []int64{0, 1, 999, 1000, 1001, w.rng.Int64N(60_000)}))
			body["distance_meters"] = *u.Meters
		}
		if w.chance(40) {
			u.AcceptFee = true
			body["accept_out_of_zone_fee"] = true
		}
		if w.chance(20) {
			u.EndReason = pick(w, []string{"operator", "rider"})
			body["end_reason"] = u.EndReason
		}
	}
	if u.Status == "cancelled" && (r.Status == "active" || r.Status == "reserved") && w.chance(40) {
		u.CancelReason = pick(w, []string{"operator", "rider"})
		body["cancel_reason"] = u.CancelReason
	}
	now := w.now()
	code, got := w.call("PUT", "/rides/"+r.ID, body)
	if code < 400 && got.text("status") != r.Status {
		now = w.stamp(got, now)
	}
	before := r.Status
	want := w.model.Update(r, u, now)
	w.answered(u.Status+" of "+before, code, got, want)
	if fee := want.Codes; len(fee) == 1 && fee[0] == "out_of_zone_fee_required" && (*integer(got["out_of_zone_amount"]) != *r.Plan.OutOfZone || got["currency"] != "EUR") {
		w.fail("the fee that is required is %v", got)
	}
	if len(want.Codes) == 1 && want.Codes[0] == "invalid_transition" && (got["from"] != before || got["to"] != u.Status) {
		w.fail("the transition that is refused is %v", got)
	}
	w.compareRide(r)
	w.read(r.Vehicle)
}

// afterwards adjusts a ride, sets its payment status, or repeats its last change.
func (w *walk) afterwards() {
	if len(w.model.Rides) == 0 {
		return
	}
	r := w.model.Rides[max(0, len(w.model.Rides)-1-w.rng.IntN(20))]
	switch w.rng.IntN(3) {
	case 0:
		amount := pick(w, []int64{0, -1, -100, 250, -1_000_000})
		status, got := w.call("PUT", "/rides/"+r.ID, fields{"adjustment_amount": amount})
		w.answered("adjust", status, got, w.model.Adjust(r, amount))
	case 1:
		to := pick(w, []string{"not_due", "due", "paid", "refunded", "waived"})
		status, got := w.call("PUT", "/rides/"+r.ID, fields{"payment_status": to})
		w.answered("pay", status, got, w.model.Pay(r, to))
	case 2:
		if r.Status != "reserved" {
			status, got := w.call("PUT", "/rides/"+r.ID, fields{"status": r.Status})
			w.answered("repeat", status, got, fleettest.Answer{Status: 200})
		}
	}
	w.compareRide(r)
}

func (w *walk) report(v *fleettest.Vehicle) {
	now := w.now()
	in := fleettest.Report{Time: now, Tracked: w.chance(40)}
	body := fields{}
	if w.chance(60) {
		in.At = w.point()
		body["location"] = in.At
	}
	if w.chance(70) {
		in.Battery = w.level()
		body["battery_percent"] = *in.Battery
	}
	if w.chance(30) {
		in.Odometer = new(w.rng.Int64N(100_000))
		if v.Odometer != nil && w.chance(90) {
			*in.Odometer = *v.Odometer + pick(w, []int64{0, 50, 51, 2500})
		}
		body["odometer_meters"] = *in.Odometer
	}
	if len(body) == 0 {
		in.Battery = new(int64(60))
		body["battery_percent"] = 60
	}
	if w.chance(8) {
		in.Time = now.Add(-time.Duration(1+w.rng.IntN(600)) * time.Second)
	}
	late := in.Time.Before(v.Reported)
	if in.Tracked {
		if !in.Time.After(v.Reported) {
			return // such reports are part of the track only, or duplicates
		}
		body["vehicle"], body["reported_at"] = fields{"id": v.ID}, in.Time.Format(time.RFC3339Nano)
		got := w.expect("POST", "/telemetry", fields{"reports": []fields{body}}, 200)
		if got["accepted"] != 1.0 {
			w.fail("a report was not accepted: %v", got)
		}
	} else {
		if !w.exact || !in.Time.Equal(now) {
			body["last_reported_at"] = in.Time.Format(time.RFC3339Nano)
		}
		got := w.expect("PUT", "/vehicles/"+v.ID, body, 200)
		if ignored, _ := got["ignored"].([]any); late != (len(ignored) > 0) {
			w.fail("a report of %v was answered with ignored %v, after one of %v", in.Time, ignored, v.Reported)
		}
	}
	w.count["report"]++
	w.model.Report(v, in, now)
	w.read(v)
}

func (w *walk) setState(v *fleettest.Vehicle, to string) {
	event := ""
	if w.chance(30) {
		event = pick(w, []string{"maintenance", "off_hours", "on_hours", "system_suspend", "battery_low", "battery_charged", "unspecified", "maintenance_pick_up", "agency_pick_up", "decommissioned", "provider_drop_off", "agency_drop_off", "located"})
	}
	body := fields{"state": to}
	if event != "" {
		body["event"] = event
	}
	now, before := w.now(), v.State
	status, got := w.call("PUT", "/vehicles/"+v.ID, body)
	if status < 400 && before != to {
		now = w.stamp(got, now)
	}
	w.answered(to+" of "+before, status, got, w.model.SetState(v, to, event, now))
	w.read(v)
}

func (w *walk) changeCustomer() {
	c := pick(w, w.model.Customers)
	if w.chance(50) {
		c.Status = pick(w, []string{"active", "active", "active", "active", "blocked"})
		w.expect("PUT", "/customers/"+c.ID, fields{"status": c.Status}, 200)
	} else {
		c.License = pick(w, []string{"none", "verified", "verified", "expired"})
		w.expect("PUT", "/customers/"+c.ID, fields{"driver_license_status": c.License}, 200)
	}
	w.compareCustomer(c)
}

// zones adds or deletes a zone.
func (w *walk) zones() {
	if n := len(w.model.Zones); n > 2 || n > 0 && w.chance(50) {
		i := w.rng.IntN(n)
		w.expect("DELETE", "/zones/"+w.model.Zones[i].ID, nil, 204)
		w.model.Zones = slices.Delete(w.model.Zones, i, i+1)
		return
	}
	a, b := w.point(), w.point()
	z := &fleettest.Zone{
		Type: pick(w, []string{"service_area", "service_area", "parking", "no_parking", "no_ride", "slow"}),
		Min:  fleettest.Point{Lat: min(a.Lat, b.Lat), Lng: min(a.Lng, b.Lng)}, Max: fleettest.Point{Lat: max(a.Lat, b.Lat), Lng: max(a.Lng, b.Lng)},
	}
	if z.Min.Lat == z.Max.Lat || z.Min.Lng == z.Max.Lng {
		return
	}
	body := fields{"subaccount_id": w.sub.ID, "name": "Z", "type": z.Type, "geometry": fields{"type": "Polygon", "coordinates": [][][2]float64{
		{{z.Min.Lng, z.Min.Lat}, {z.Max.Lng, z.Min.Lat}, {z.Max.Lng, z.Max.Lat}, {z.Min.Lng, z.Max.Lat}, {z.Min.Lng, z.Min.Lat}},
	}}}
	z.Priority = map[string]int64{"no_ride": 10, "no_parking": 20, "slow": 30, "parking": 40, "service_area": 100}[z.Type]
	if w.chance(30) {
		z.Priority = w.rng.Int64N(120)
		body["priority"] = z.Priority
	}
	if z.Type != "service_area" && w.chance(20) {
		z.OnlyType = pick(w, w.types).ID
		start, end := z.Type != "no_ride", z.Type != "no_ride" && z.Type != "no_parking"
		body["rules"] = []fields{{"vehicle_type_ids": []string{z.OnlyType}, "ride_start_allowed": start, "ride_end_allowed": end, "ride_through_allowed": true}}
	}
	got := w.expect("POST", "/zones", body, 201)
	if *integer(got["priority"]) != z.Priority {
		w.fail("a zone of type %s has priority %v, want %d", z.Type, got["priority"], z.Priority)
	}
	z.ID = got.text("id")
	w.model.Zones = append(w.model.Zones, z)
}

// price gives a plan other prices, or makes it inactive for a while.
func (w *walk) price(p *fleettest.Plan, active bool) {
	segments := func() []fleettest.Segment {
		list := []fleettest.Segment{}
		for range w.rng.IntN(3) {
			s := fleettest.Segment{Start: pick(w, []int64{0, 0, 1, 10, 30}), Rate: pick(w, []int64{25, 1, 100, 300, -10}), Interval: pick(w, []int64{1, 1, 0, 5, 30})}
			if w.chance(30) {
				s.End = new(s.Start + 1 + w.rng.Int64N(60))
			}
			list = append(list, s)
		}
		return list
	}
	maybe := func(percent int, values ...int64) *int64 {
		if !w.chance(percent) {
			return nil
		}
		return new(pick(w, values))
	}
	next := fleettest.Plan{
		Unlock: pick(w, []int64{0, 1, 100, 333}), PerMinute: segments(), PerKilometer: segments(), PausePerMinute: maybe(40, 0, 10, 7),
		OutOfZone: maybe(60, 1500, 0, 1), ReserveFreeMins: w.rng.Int64N(7), Active: active || w.chance(90),
		Taxable: w.chance(40), BasisPoints: pick(w, []int64{0, 1900, 700, 1, 10_000}),
		ID: p.ID, Currency: p.Currency, Version: p.Version,
	}
	if next.ReservePerMin = maybe(50, 15, 0, 3); next.ReservePerMin == nil {
		next.ReserveFlat = maybe(50, 50, 0)
	}
	if w.chance(40) {
		next.Cap = &fleettest.Cap{Minutes: pick(w, []int64{1, 30, 60, 720}), Amount: pick(w, []int64{0, 150, 1000})}
	}
	got := w.expect("PUT", "/pricing/"+p.ID, next, 200)
	next.Version = *integer(got["version"])
	if p.Version != 0 && next.Version != p.Version+1 && jsonOf(w.t, next) != jsonOf(w.t, *p) {
		w.fail("the plan has version %d after %d", next.Version, p.Version)
	}
	*p = next
}

// quote compares the price of a ride that is not ridden.
func (w *walk) quote() {
	p, kind := pick(w, w.plans), pick(w, w.types)
	if !p.Active {
		return
	}
	use := fleettest.Use{Ridden: true, Seconds: pick(w, []int64{0, 1, 59, 60, 61, 1800, 1801, w.rng.Int64N(197 * 60)}), Meters: pick(w, []int64{0, 1, 1000, 1001, w.rng.Int64N(100_000)})}
	body := fields{"subaccount_id": w.sub.ID, "vehicle_type_id": kind.ID, "pricing_plan_id": p.ID, "duration_seconds": use.Seconds, "distance_meters": use.Meters}
	if w.chance(40) {
		use.Paused = w.rng.Int64N(use.Seconds + 1)
		body["paused_seconds"] = use.Paused
	}
	if kind.ReservableFor > 0 && w.chance(40) {
		use.Reserved, use.ReservableMinutes, use.ReservedSeconds = true, kind.ReservableFor, w.rng.Int64N(kind.ReservableFor*60+1)
		body["reserved_seconds"] = use.ReservedSeconds
	}
	if p.OutOfZone != nil && w.chance(30) {
		use.Outside = true
		body["out_of_zone"] = true
	}
	got := w.expect("POST", "/quotes", body, 200)
	w.count["quote"]++
	w.comparePrice("a quote", p.PriceOf(use), got)
	w.compareLines("a quote", p.PriceOf(use), got)
}

// compare fails if a member of a record differs from the model's.
func (w *walk) compare(what, member string, got, want any) {
	w.t.Helper()
	if g, m := jsonOf(w.t, got), jsonOf(w.t, want); g != m {
		w.fail("%s: %s is %s, want %s", what, member, g, m)
	}
}

// moment is the wire format of a time.
func moment(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func (w *walk) read(v *fleettest.Vehicle) {
	w.t.Helper()
	if v.Deleted {
		return
	}
	w.compareVehicle(v, w.expect("GET", "/vehicles/"+v.ID, nil, 200))
}

func (w *walk) compareVehicle(v *fleettest.Vehicle, got fields) {
	w.t.Helper()
	what := "vehicle " + v.ID
	w.compare(what, "state", got["state"], v.State)
	if v.Event != "" {
		w.compare(what, "last_event", got["last_event"], v.Event)
	}
	if at := instant(w.t, got["state_changed_at"]); !w.exact && at.Sub(v.ChangedAt).Abs() < time.Minute {
		v.ChangedAt = at // as near as a running clock can be known
	}
	w.compare(what, "state_changed_at", got["state_changed_at"], moment(v.ChangedAt))
	w.compare(what, "location", withoutExtras(got["location"]), v.At)
	w.compare(what, "battery_percent", got["battery_percent"], v.Battery)
	w.compare(what, "odometer_meters", got["odometer_meters"], v.Odometer)
	w.compare(what, "last_reported_at", got["last_reported_at"], moment(v.Reported))
	ride := ""
	if v.Ride != nil {
		ride = v.Ride.ID
	}
	w.compare(what, "current_ride_id", got["current_ride_id"], orNull(ride))
}

// withoutExtras returns a position without members other than lat and lng.
func withoutExtras(v any) any {
	if at, ok := v.(map[string]any); ok {
		return fields{"lat": at["lat"], "lng": at["lng"]}
	}
	return v
}

func (w *walk) compareVehicles() {
	w.t.Helper()
	list := map[string]fields{}
	for _, v := range w.expect("GET", "/vehicles?limit=100&subaccount_id="+w.sub.ID, nil, 200)["data"].([]any) {
		list[v.(map[string]any)["id"].(string)] = v.(map[string]any)
	}
	for _, v := range w.model.Vehicles {
		if got := list[v.ID]; v.Deleted != (got == nil) {
			w.fail("vehicle %s is in the list: %v, deleted: %v", v.ID, got != nil, v.Deleted)
		} else if got != nil {
			w.compareVehicle(v, got)
		}
	}
}

func (w *walk) compareRide(r *fleettest.Ride) {
	w.t.Helper()
	got := w.expect("GET", "/rides/"+r.ID, nil, 200)
	what := "ride " + r.ID
	customer := ""
	if r.Customer != nil {
		customer = r.Customer.ID
		w.compareCustomer(r.Customer)
	}
	for member, want := range map[string]any{
		"status": r.Status, "trip_type": r.Trip, "vehicle_id": r.Vehicle.ID, "customer_id": orNull(customer), "payment_status": r.Payment,
		"reserved_at": moment(r.ReservedAt), "reservation_expires_at": moment(r.ExpiresAt), "started_at": moment(r.StartedAt), "ended_at": moment(r.EndedAt),
		"start_zone_id": orNull(r.StartZone), "end_zone_id": orNull(r.EndZone), "end_reason": orNull(r.EndReason), "cancel_reason": orNull(r.CancelReason),
		"start_location": r.Start, "end_location": r.End, "distance_meters": r.Meters,
	} {
		value := got[member]
		if strings.HasSuffix(member, "_location") {
			value = withoutExtras(value)
		}
		w.compare(what, member, value, want)
	}
	if r.Plan != nil {
		w.compare(what, "pricing_plan_id", got["pricing_plan_id"], r.Plan.ID)
		w.compare(what, "pricing_plan_version", got["pricing_plan_version"], r.Plan.Version)
	}
	if r.Price == nil {
		w.compare(what, "price", got["price"], nil)
		return
	}
	w.compare(what, "duration_seconds", got["duration_seconds"], r.Seconds)
	w.compare(what, "paused_seconds", got["paused_seconds"], r.Paused)
	w.comparePrice(what, *r.Price, fields(got["price"].(map[string]any)))
	w.compare(what, "adjustment_amount", got["adjustment_amount"], r.Price.Adjustment)
	explained := w.expect("GET", "/rides/"+r.ID+"/price", nil, 200)
	w.comparePrice(what+", explained", *r.Price, explained)
	w.compareLines(what, *r.Price, explained)
}

// comparePrice compares all members of a price.
func (w *walk) comparePrice(what string, want fleettest.Price, got fields) {
	w.t.Helper()
	var members fields
	if err := json.Unmarshal([]byte(jsonOf(w.t, want)), &members); err != nil {
		w.fail("%v", err)
	}
	for member, value := range members {
		if got[member] != value {
			w.fail("the price of %s has %s %v, want %v\ngot  %v\nwant %v", what, member, got[member], value, got, members)
		}
	}
}

// compareLines checks that the lines of an explained price have its amounts.
func (w *walk) compareLines(what string, want fleettest.Price, got fields) {
	w.t.Helper()
	sums := map[string]int64{}
	var total int64
	for _, l := range got["lines"].([]any) {
		line := fields(l.(map[string]any))
		amount := *integer(line["amount"])
		sums[line.text("code")] += amount
		total += amount
		if each := integer(line["unit_amount"]); each != nil && *each**integer(line["quantity"]) != amount {
			w.fail("%s: a line is not its quantity times its amount: %v", what, line)
		}
		if amount == 0 || line.text("explanation") == "" {
			w.fail("%s: an empty line %v", what, line)
		}
	}
	raised := want.Total - (want.Subtotal + want.Tax + want.Adjustment)
	for code, amount := range map[string]int64{
		"unlock": want.Unlock, "time": want.Time, "pause": want.Pause, "distance": want.Distance, "reservation": want.Reservation,
		"out_of_zone": want.OutOfZone, "tax": want.Tax, "adjustment": want.Adjustment,
	} {
		if sums[code] != amount {
			w.fail("%s: lines of %s add up to %d, want %d: %v", what, code, sums[code], amount, got["lines"])
		}
	}
	if fare := want.Unlock + want.Time + want.Pause + want.Distance + sums["cap"] + sums["floor"] - raised; total != want.Total || fare != want.Fare || sums["cap"] > 0 {
		w.fail("%s: lines add up to %d with a fare of %d, want %d and %d: %v", what, total, fare, want.Total, want.Fare, got["lines"])
	}
}

func (w *walk) compareCustomer(c *fleettest.Customer) {
	w.t.Helper()
	got := w.expect("GET", "/customers/"+c.ID, nil, 200)
	ride := ""
	if c.Ride != nil {
		ride = c.Ride.ID
	}
	for member, want := range map[string]any{
		"status": c.Status, "driver_license_status": c.License, "open_ride_id": orNull(ride), "ride_count": c.RideCount, "last_ride_at": moment(c.LastRide),
	} {
		w.compare("customer "+c.ID, member, got[member], want)
	}
}

func (w *walk) compareAll() {
	w.t.Helper()
	w.compareVehicles()
	for _, c := range w.model.Customers {
		w.compareCustomer(c)
	}
}

// compareHistories compares the stored state changes of the vehicles that are left.
func (w *walk) compareHistories() {
	for _, v := range w.model.Vehicles {
		if v.Deleted {
			continue
		}
		var got, want []string
		for cursor := ""; ; {
			page := w.expect("GET", "/vehicles/"+v.ID+"/events?limit=100"+cursor, nil, 200)
			for _, c := range page["data"].([]any) {
				change := c.(map[string]any)
				line := fmt.Sprint(change["state"], " ", change["last_event"], " ", change["event_types"], " ", jsonOf(w.t, withoutExtras(change["location"])))
				if w.exact {
					line += fmt.Sprint(" ", change["at"])
				}
				got = append(got, line)
			}
			if page["has_more"] != true {
				break
			}
			cursor = "&cursor=" + page.text("next_cursor")
		}
		for _, c := range v.Changes {
			line := fmt.Sprint(c.State, " ", c.Event, " ", append([]string{c.Event}, c.Missed...), " ", jsonOf(w.t, c.Place))
			if w.exact {
				line += fmt.Sprint(" ", moment(c.At))
			}
			want = append(want, line)
		}
		slices.Reverse(want)
		if !slices.Equal(got, want) {
			w.fail("vehicle %s has the history %q, want %q", v.ID, got, want)
		}
	}
}

// compareFigures compares analytics by day and vehicle type, and their totals, with sums over all
// rides of riders.
func (w *walk) compareFigures() {
	from, to := w.model.Rides[0].StartedAt, w.now()
	for _, r := range w.model.Rides {
		if at := cmp.Or(r.ReservedAt, r.StartedAt); from.IsZero() || at.Before(from) {
			from = at
		}
	}
	day := func(at time.Time) string {
		y, m, d := at.In(w.model.Zone).Date()
		return time.Date(y, m, d, 0, 0, 0, 0, w.model.Zone).Format(time.RFC3339)
	}
	query := "?granularity=day&timezone=Europe/Berlin&group_by=vehicle_type_id&subaccount_id=" + w.sub.ID +
		"&from=" + from.In(w.model.Zone).Format(time.DateOnly) + "&to=" + to.In(w.model.Zone).AddDate(0, 0, 1).Format(time.DateOnly)

	counts, money := map[string]map[string]int64{}, map[string]map[string]int64{}
	customers, vehicles := map[string]bool{}, map[string]bool{}
	add := func(to map[string]map[string]int64, at time.Time, r *fleettest.Ride, member string, n int64) {
		for _, key := range []string{"totals", day(at) + " " + r.Type.ID} {
			if to[key] == nil {
				to[key] = map[string]int64{}
			}
			to[key][member] += n
		}
	}
	for _, r := range w.model.Rides {
		if r.Trip != "rider" || r.Status == "reserved" {
			continue
		}
		at := cmp.Or(r.StartedAt, r.ReservedAt)
		add(counts, at, r, "ride_count", 1)
		customers[r.Customer.ID], vehicles[r.Vehicle.ID] = true, true
		switch r.Status {
		case "completed":
			add(counts, at, r, "completed_count", 1)
			add(counts, at, r, "duration_seconds", r.Seconds)
			if r.Meters != nil {
				add(counts, at, r, "distance_meters", *r.Meters)
			}
		case "cancelled":
			add(counts, at, r, "cancelled_count", 1)
		}
		if r.Price == nil {
			continue
		}
		add(money, r.EndedAt, r, "ride_count", 1)
		for member, n := range map[string]int64{
			"unlock_amount": r.Price.Unlock, "time_amount": r.Price.Time, "pause_amount": r.Price.Pause, "distance_amount": r.Price.Distance, "fare_amount": r.Price.Fare,
			"reservation_amount": r.Price.Reservation, "out_of_zone_amount": r.Price.OutOfZone, "subtotal_amount": r.Price.Subtotal, "tax_amount": r.Price.Tax,
			"adjustment_amount": r.Price.Adjustment, "total_amount": r.Price.Total, "net_amount": r.Price.Total - r.Price.Tax,
		} {
			add(money, r.EndedAt, r, member, n)
		}
	}
	check := func(path string, want map[string]map[string]int64, members []string) {
		report := w.expect("GET", path+query, nil, 200)
		seen := map[string]bool{"totals": true}
		compare := func(key string, got fields) {
			for _, member := range members {
				if n := integer(got[member]); n == nil || *n != want[key][member] {
					w.fail("%s of %s: %s is %v, want %d", path, key, member, got[member], want[key][member])
				}
			}
		}
		for _, line := range report["data"].([]any) {
			got := fields(line.(map[string]any))
			key := got.text("period_start") + " " + got["group"].(map[string]any)["vehicle_type_id"].(string)
			seen[key] = true
			compare(key, got)
		}
		if len(seen) != len(want) {
			w.fail("%s has %d rows, want %d", path, len(seen), len(want))
		}
		switch totals := report["totals"].(type) {
		case []any:
			compare("totals", totals[0].(map[string]any))
		case map[string]any:
			compare("totals", totals)
			if totals["unique_customers"] != float64(len(customers)) || totals["unique_vehicles"] != float64(len(vehicles)) {
				w.fail("%s: unique counts of %v, want %d and %d", path, totals, len(customers), len(vehicles))
			}
		}
	}
	check("/analytics/rides", counts, []string{"ride_count", "completed_count", "cancelled_count", "duration_seconds", "distance_meters"})
	check("/analytics/revenue", money, slices.Sorted(maps.Keys(money["totals"])))
}
