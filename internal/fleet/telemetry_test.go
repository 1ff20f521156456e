package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// clock returns the time of the yard's clock, in milliseconds.
func (y *yard) clock(t testing.TB) time.Time {
	t.Helper()
	now, err := y.Now(t.Context(), y.db, y.org)
	if err != nil {
		t.Fatal(err)
	}
	return now.Truncate(time.Millisecond)
}

// travel advances the clock.
func (y *yard) travel(t testing.TB, by time.Duration) {
	t.Helper()
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		now, err := y.Now(ctx, tx, y.org)
		if err != nil {
			return err
		}
		return y.AdvanceClockTx(ctx, tx, y.org, now.Add(by))
	})
}

// report is a report of a vehicle at a time, with some fields.
func report(v *fleet.Vehicle, at time.Time, values map[track.Field]int64) fleet.Report {
	r := fleet.Report{Vehicle: fleet.VehicleRef{ID: v.ID}, Data: track.Report{At: at.UnixMilli()}}
	for f, value := range values {
		r.Data.Set(f, value)
	}
	return r
}

// record records reports.
func (y *yard) record(t testing.TB, reports ...fleet.Report) (got fleet.TelemetryResult) {
	t.Helper()
	y.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		got, err = y.RecordTelemetryTx(ctx, tx, y.org, reports, func(string) bool { return true })
		return err
	})
	return got
}

// verdicts formats a result.
func verdicts(r fleet.TelemetryResult) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d %d %d", r.Accepted, r.Ignored, r.Rejected)
	for _, v := range r.Verdicts {
		fmt.Fprintf(&text, ", %d %s %s%s", v.Index, v.Status, v.Code, v.Pointer)
	}
	for _, c := range r.Clocks {
		fmt.Fprintf(&text, ", clock %s of %d", c.Ahead.Round(time.Minute), c.Reports)
	}
	return text.String()
}

// track returns the stored reports of a vehicle.
func (y *yard) track(t testing.TB, vehicleID string) (list []track.Report) {
	t.Helper()
	err := y.EachTrackReport(t.Context(), y.db, y.org, vehicleID, time.UnixMilli(0), time.UnixMilli(1<<42), func(r *track.Report) error {
		list = append(list, *r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestVerdicts(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t, func(n *fleet.NewVehicle) { n.DeviceID = "861234050000417" })
	other := y.vehicle(t)
	now := y.clock(t)
	battery := func(n int64) map[track.Field]int64 { return map[track.Field]int64{track.Battery: n} }
	first := report(&v, now, battery(70))
	for _, tt := range []struct {
		name    string
		reports []fleet.Report
		want    string
	}{
		{"a report", []fleet.Report{first}, "1 0 0"},
		{"the same again", []fleet.Report{first}, "0 1 0, 0 ignored duplicate"},
		{"twice in a call", []fleet.Report{report(&v, now.Add(time.Second), battery(69)), report(&v, now.Add(time.Second), battery(69))}, "1 1 0, 1 ignored duplicate"},
		{"an older one", []fleet.Report{report(&v, now.Add(-time.Hour), battery(90))}, "0 1 0, 0 ignored out_of_order"},
		{"another at the same time", []fleet.Report{report(&v, now.Add(time.Second), battery(68))}, "1 0 0"},
		{"a call that is not in order", []fleet.Report{report(&v, now.Add(9*time.Second), battery(60)), report(&v, now.Add(5*time.Second), battery(65))}, "2 0 0"},
		{"from the future", []fleet.Report{report(&v, now.Add(time.Hour), battery(1))}, "0 0 1, 0 rejected in_future/reported_at"},
		{"too old", []fleet.Report{report(&v, now.AddDate(0, 0, -91), battery(1)), report(&v, now.Add(10*time.Second), nil)}, "1 0 1, 0 rejected invalid_value/reported_at"},
		{"not valid", []fleet.Report{{Vehicle: fleet.VehicleRef{ID: v.ID}, Invalid: true, Pointer: "/location/lat"}}, "0 0 1, 0 rejected invalid_value/location/lat"},
		{"by code and device", []fleet.Report{
			{Vehicle: fleet.VehicleRef{Code: "b-0002"}, Data: first.Data}, {Vehicle: fleet.VehicleRef{DeviceID: "861234050000417"}, Data: report(&v, now.Add(11*time.Second), nil).Data},
		}, "2 0 0"},
		{"unknown ones", []fleet.Report{
			{Vehicle: fleet.VehicleRef{ID: "veh_1"}, Data: first.Data}, {Vehicle: fleet.VehicleRef{Code: "x"}, Data: first.Data}, {Vehicle: fleet.VehicleRef{DeviceID: "x"}, Data: first.Data},
		}, "0 0 3, 0 rejected not_found/vehicle/id, 1 rejected not_found/vehicle/code, 2 rejected not_found/vehicle/device_id"},
	} {
		if got := verdicts(y.record(t, tt.reports...)); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
	if w := y.storedVehicle(t, v.ID); *w.BatteryPercent != 60 || *w.CurrentRangeMeters != 27_000 || !w.LastReportedAt.Std().Equal(now.Add(11*time.Second)) {
		t.Errorf("got a battery of %d, a range of %d, reported %s", *w.BatteryPercent, *w.CurrentRangeMeters, w.LastReportedAt.Std())
	}
	if w := y.storedVehicle(t, other.ID); *w.BatteryPercent != 70 {
		t.Errorf("by code: got %d percent", *w.BatteryPercent)
	}
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		got, err := y.RecordTelemetryTx(ctx, tx, y.org, []fleet.Report{report(&v, now, nil)}, func(string) bool { return false })
		if want := "0 0 1, 0 rejected outside_scope/vehicle/id"; verdicts(got) != want {
			t.Errorf("outside the scope: got %s", verdicts(got))
		}
		return err
	})
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		if _, err := y.RecordTelemetryTx(ctx, tx, "org-2", []fleet.Report{report(&v, now, nil)}, func(string) bool { return true }); err == nil {
			t.Error("another organization records reports")
		}
		return nil
	})
}

// TestReportedStates: reports change states as a PUT does, each in its order.
func TestReportedStates(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	report := func(battery int64) fleet.Report {
		return report(&v, y.clock(t), map[track.Field]int64{track.Battery: battery})
	}
	y.record(t, report(50))
	y.travel(t, 20*time.Minute)
	y.record(t, report(50)) // the stored due time of its silence stays
	y.travel(t, 20*time.Minute)
	if got := y.storedVehicle(t, v.ID).State; got != fleet.Available {
		t.Errorf("20 minutes after a report: got %s", got)
	}
	y.travel(t, 20*time.Minute)
	low, charged := report(10), report(90)
	low.Data.At -= 1000
	y.record(t, charged, low)
	y.travel(t, 80*time.Hour)
	y.record(t, report(60))
	want := []string{"provider_drop_off available", "comms_lost non_contactable", "comms_restored available", "battery_low non_operational", "battery_charged available",
		"comms_lost non_contactable", "not_located missing", "located non_operational"}
	if got := y.history(t, v.ID); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestReportsThatWaited: contact is restored by a report that is not as old as a silence, once.
func TestReportsThatWaited(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.travel(t, 5*time.Hour)
	now := y.clock(t)
	for _, ago := range []time.Duration{4 * time.Hour, 3 * time.Hour, 31 * time.Minute, 20 * time.Minute, 0} {
		if got := verdicts(y.record(t, report(&v, now.Add(-ago), map[track.Field]int64{track.Battery: 50}))); got != "1 0 0" {
			t.Errorf("%s ago: got %s", ago, got)
		}
		y.travel(t, time.Second)
	}
	want := []string{"provider_drop_off available", "comms_lost non_contactable", "comms_restored available"}
	if got := y.history(t, v.ID); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestFullSegment: a quarter of an hour has a limited number of reports.
func TestFullSegment(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.travel(t, time.Hour)
	start := track.Start(y.clock(t).Add(-30 * time.Minute).UnixMilli())
	var list []fleet.Report
	for i := range track.MaxReports {
		list = append(list, report(&v, time.UnixMilli(start+1+int64(i)*80), nil))
	}
	if got := y.record(t, list...); got.Rejected > 0 {
		t.Fatalf("got %d rejected", got.Rejected)
	}
	got := verdicts(y.record(t, list[5], report(&v, time.UnixMilli(start), nil), report(&v, time.UnixMilli(start-1), nil)))
	if want := "0 2 1, 0 ignored duplicate, 1 rejected invalid_value/reported_at, 2 ignored out_of_order"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := len(y.track(t, v.ID)); got != track.MaxReports+1 {
		t.Errorf("got %d reports", got)
	}
}

// TestClocks: a wrong clock of a tracker heals by itself, one that is right is never corrected.
func TestClocks(t *testing.T) {
	const step = 2 * time.Minute
	for name, tt := range map[string]struct {
		ahead time.Duration
		calls int // until corrected
	}{
		"ahead":                  {3 * time.Hour, 2},
		"far ahead":              {20 * 365 * 24 * time.Hour, 2},
		"behind":                 {-2 * time.Hour, 6},
		"before satellites know": {-1024 * 7 * 24 * time.Hour, 2},
		"a little":               {4 * time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			v := y.vehicle(t)
			for call := 1; call <= 8; call++ {
				now := y.clock(t)
				sent := report(&v, now.Add(tt.ahead), map[track.Field]int64{track.Battery: int64(50 + call)})
				got := y.record(t, sent)
				corrected := tt.calls > 0 && call >= tt.calls
				if (len(got.Clocks) > 0) != corrected {
					t.Fatalf("call %d: got %s", call, verdicts(got))
				}
				if corrected {
					w := y.storedVehicle(t, v.ID)
					if off := w.LastReportedAt.Std().Sub(now); off.Abs() > 30*time.Second || *w.BatteryPercent != int64(50+call) || got.Accepted != 1 {
						t.Fatalf("call %d: reported %s from now, %d percent, %s", call, off, *w.BatteryPercent, verdicts(got))
					}
					if again := verdicts(y.record(t, sent)); again != fmt.Sprintf("0 1 0, 0 ignored duplicate, clock %s of 1", tt.ahead) {
						t.Fatalf("call %d again: got %s", call, again)
					}
				}
				y.travel(t, step)
			}
			if tt.calls == 0 {
				return
			}
			// The clock is put right.
			y.travel(t, 10*time.Minute)
			if got := verdicts(y.record(t, report(&v, y.clock(t), nil))); got != "1 0 0" {
				t.Errorf("after the clock is put right: got %s", got)
			}
		})
	}
	t.Run("reports that waited", func(t *testing.T) {
		t.Parallel()
		y := newYard(t)
		v := y.vehicle(t)
		at := y.clock(t)
		y.travel(t, 6*time.Hour)
		for y.clock(t).Sub(at) > clockToleranceOfTests {
			if got := y.record(t, report(&v, at, nil)); len(got.Clocks) > 0 {
				t.Fatalf("%s behind: got %s", y.clock(t).Sub(at), verdicts(got))
			}
			at = at.Add(10 * time.Minute)
			y.travel(t, time.Minute)
		}
	})
	t.Run("the newest report first", func(t *testing.T) {
		t.Parallel()
		y := newYard(t)
		v := y.vehicle(t)
		for call := range 6 { // enough for a clock that is behind
			y.travel(t, 10*time.Minute)
			var list []fleet.Report
			for i := range 20 {
				list = append(list, report(&v, y.clock(t).Add(-time.Duration(i)*29*time.Second), nil))
			}
			if got := verdicts(y.record(t, list...)); got != "20 0 0" {
				t.Errorf("call %d: got %s", call, got)
			}
		}
	})
	for step, want := range map[time.Duration][2]string{
		// The last report of a call would be right, by the clock of the tracker.
		2 * time.Minute: {"2 0 3, 0 rejected in_future/reported_at, 1 rejected in_future/reported_at, 2 rejected in_future/reported_at", "5 0 0, clock 10m0s of 5"},
		3 * time.Minute: {"3 0 2, 0 rejected in_future/reported_at, 1 rejected in_future/reported_at", "5 0 0, clock 10m0s of 5"},
	} {
		t.Run("the newest report first, ahead, "+step.String(), func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			v := y.vehicle(t)
			call := func() string {
				y.travel(t, 7*step)
				var list []fleet.Report
				for i := range 5 {
					list = append(list, report(&v, y.clock(t).Add(10*time.Minute-time.Duration(i)*step), nil))
				}
				return verdicts(y.record(t, list...))
			}
			for i := range 5 {
				if got, want := call(), want[min(i, 1)]; got != want {
					t.Errorf("call %d: got %s, want %s", i, got, want)
				}
			}
		})
	}
	for name, offsets := range map[string][]time.Duration{
		"newest first":     {time.Hour, 0, -30 * time.Second},
		"unordered":        {time.Hour, -30 * time.Second, 0, -10 * time.Second},
		"before the right": {time.Hour, -30 * time.Second, 0},
		"beside one":       {time.Hour, 0},
	} {
		t.Run("after a wrong clock, right reports and a fault: "+name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			v := y.vehicle(t)
			for range 3 {
				y.travel(t, time.Minute)
				y.record(t, report(&v, y.clock(t).Add(time.Hour), nil))
			}
			for call := range 3 {
				y.travel(t, 2*time.Minute)
				var list []fleet.Report
				for _, by := range offsets {
					list = append(list, report(&v, y.clock(t).Add(by), nil))
				}
				want := fmt.Sprintf("%d 0 1, 0 rejected in_future/reported_at", len(offsets)-1)
				if got := verdicts(y.record(t, list...)); got != want {
					t.Errorf("call %d: got %s, want %s", call, got, want)
				}
			}
		})
	}
	t.Run("faults before a right report", func(t *testing.T) {
		t.Parallel()
		y := newYard(t)
		v := y.vehicle(t)
		for call := range 4 {
			y.travel(t, time.Minute)
			now := y.clock(t)
			got := verdicts(y.record(t, report(&v, now.Add(time.Hour), nil), report(&v, now.Add(-30*time.Second), nil), report(&v, now, nil)))
			if got != "2 0 1, 0 rejected in_future/reported_at" {
				t.Errorf("call %d: got %s", call, got)
			}
		}
	})
	t.Run("a clock that gains", func(t *testing.T) {
		t.Parallel()
		y := newYard(t)
		v := y.vehicle(t)
		for call := range 40 {
			ahead := 3*time.Hour + time.Duration(call)*4*time.Second
			got := y.record(t, report(&v, y.clock(t).Add(ahead), nil))
			if call > 1 && (got.Accepted != 1 || y.storedVehicle(t, v.ID).LastReportedAt.Std().After(y.clock(t))) {
				t.Fatalf("call %d: got %s", call, verdicts(got))
			}
			y.travel(t, 5*time.Second)
		}
	})
	t.Run("repeated calls of a clock that gains", func(t *testing.T) {
		t.Parallel()
		y := newYard(t)
		v := y.vehicle(t)
		// Up to the end of a quarter of an hour, whose last report moves from one segment to another.
		y.travel(t, time.Duration(track.Start(y.clock(t).UnixMilli())+(2*track.Period).Milliseconds()-y.clock(t).UnixMilli())*time.Millisecond-2*time.Minute+5*time.Second)
		var calls [][]fleet.Report
		for call := range int64(5) {
			ahead := time.Hour + time.Duration(call)*10*time.Second
			var list []fleet.Report
			for i := range int64(6) {
				list = append(list, report(&v, y.clock(t).Add(ahead-time.Duration(5-i)*5*time.Second), map[track.Field]int64{track.Battery: 90 - 6*call - i}))
			}
			if got := y.record(t, list...); call > 0 && got.Accepted != 6 {
				t.Fatalf("call %d: got %s", call, verdicts(got))
			}
			if call > 0 {
				calls = append(calls, list)
			}
			y.travel(t, 40*time.Second)
		}
		stored := len(y.track(t, v.ID))
		for call, list := range calls {
			if got := y.record(t, list...); got.Ignored != 6 || got.Verdicts[0].Code != "duplicate" {
				t.Errorf("call %d again: got %s", call, verdicts(got))
			}
		}
		if got := len(y.track(t, v.ID)); got != stored {
			t.Errorf("the track has %d reports, want %d", got, stored)
		}
	})
	t.Run("calls from before the clock is corrected", func(t *testing.T) {
		t.Parallel()
		y := newYard(t)
		v := y.vehicle(t)
		var calls []fleet.Report
		for i := range 6 {
			calls = append(calls, report(&v, y.clock(t).Add(-2*time.Hour), map[track.Field]int64{track.Battery: int64(50 + i)}))
			y.record(t, calls[i])
			y.travel(t, 3*time.Minute)
		}
		if got, want := verdicts(y.record(t, calls[0], calls[5])), "0 2 0, 0 ignored duplicate, 1 ignored duplicate, clock -2h0m0s of 2"; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	})
	t.Run("a repeated call", func(t *testing.T) {
		t.Parallel()
		y := newYard(t)
		v := y.vehicle(t)
		sent := report(&v, y.clock(t).Add(time.Hour), nil)
		for range 3 {
			if got := verdicts(y.record(t, sent)); got != "0 0 1, 0 rejected in_future/reported_at" {
				t.Fatalf("got %s", got)
			}
			y.travel(t, time.Second)
		}
	})
}

// clockToleranceOfTests is well within the tolerance for clocks.
const clockToleranceOfTests = 5 * time.Minute

// TestTelemetryModel records random reports, in any order, repeatedly, and in calls of any size,
// of trackers some of which have wrong clocks, and compares tracks and vehicles with a model.
func TestTelemetryModel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 7))
			y := newYard(t)
			type tracker struct {
				fleet.Vehicle
				ahead   time.Duration
				made    []fleet.Report        // by the tracker's clock
				stored  map[track.Report]bool // of the model, at true times
				battery int64                 // of the latest
				latest  int64
			}
			var trackers []*tracker
			for i := range 6 {
				k := &tracker{Vehicle: y.vehicle(t), stored: make(map[track.Report]bool)}
				k.latest = k.LastReportedAt.Std().UnixMilli()
				if i%3 == 2 {
					// A clock that is known to be wrong: two calls from the future show it.
					k.ahead = time.Duration(1+random.IntN(1000)) * time.Hour
					for range 2 {
						r := report(&k.Vehicle, y.clock(t).Add(k.ahead), nil)
						if got := y.record(t, r); len(got.Clocks) > 0 {
							k.ahead = got.Clocks[0].Ahead
							k.stored[at(r.Data, k.ahead)] = true
							k.latest = r.Data.At - k.ahead.Milliseconds()
						}
						y.travel(t, time.Second)
					}
				}
				trackers = append(trackers, k)
			}
			for range 40 {
				var batch []fleet.Report
				var accepted, ignored int64
				now := y.clock(t)
				for range 1 + random.IntN(12) {
					k := trackers[random.IntN(len(trackers))]
					r := report(&k.Vehicle, now.Add(k.ahead-time.Duration(random.IntN(7200))*time.Second), map[track.Field]int64{track.Battery: 40 + random.Int64N(50)})
					switch {
					case len(k.made) > 0 && random.IntN(4) == 0:
						r = k.made[random.IntN(len(k.made))]
					case random.IntN(2) == 0:
						r.Data.Set(track.Lat, 52_000_000+random.Int64N(1000))
						r.Data.Set(track.Lng, 13_000_000+random.Int64N(1000))
					}
					k.made = append(k.made, r)
					batch = append(batch, r)
				}
				// Each tracker's latest report is of now, so that its clock is known to be right or wrong.
				for _, k := range trackers {
					r := report(&k.Vehicle, now.Add(k.ahead), map[track.Field]int64{track.Battery: 40 + random.Int64N(50)})
					batch = append(batch, r)
				}
				random.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
				// The model: in the order of true times, then of the call.
				for _, k := range trackers {
					var own []track.Report
					for _, r := range batch {
						if r.Vehicle.ID == k.ID {
							own = append(own, at(r.Data, k.ahead))
						}
					}
					slices.SortStableFunc(own, func(a, b track.Report) int { return int(a.At - b.At) })
					for _, r := range own {
						if k.stored[r] {
							ignored++
							continue
						}
						k.stored[r] = true
						if r.At < k.latest {
							ignored++
							continue
						}
						accepted++
						k.latest = r.At
						k.battery, _ = r.Get(track.Battery)
					}
				}
				got := y.record(t, batch...)
				if got.Accepted != accepted || got.Ignored != ignored || got.Rejected != 0 {
					t.Fatalf("got %s\nwant %d accepted and %d ignored", verdicts(got), accepted, ignored)
				}
				y.travel(t, time.Duration(random.IntN(600))*time.Second)
			}
			for i, k := range trackers {
				list := y.track(t, k.ID)
				model := slices.Collect(maps.Keys(k.stored))
				if len(list) != len(model) || slices.ContainsFunc(list, func(r track.Report) bool { return !k.stored[r] }) {
					t.Errorf("tracker %d: the track has %d reports, want %d", i, len(list), len(model))
				}
				if !slices.IsSortedFunc(list, func(a, b track.Report) int { return int(a.At - b.At) }) {
					t.Errorf("tracker %d: the track is not in order", i)
				}
				if w := y.storedVehicle(t, k.ID); *w.BatteryPercent != k.battery || w.LastReportedAt.Std().UnixMilli() != k.latest {
					t.Errorf("tracker %d: got %d percent at %s, want %d at %s", i, *w.BatteryPercent, w.LastReportedAt.Std(), k.battery, time.UnixMilli(k.latest).UTC())
				}
			}
		})
	}
}

// at returns a report of a tracker whose clock is ahead, at its true time.
func at(r track.Report, ahead time.Duration) track.Report {
	if ahead != 0 {
		r.At -= ahead.Milliseconds()
		r.Set(track.Shift, ahead.Milliseconds())
	}
	return r
}

// TestTrackRetention: tracks that are too old are deleted, those of other organizations stay.
func TestTrackRetention(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.record(t, report(&v, y.clock(t).Add(-time.Hour), nil), report(&v, y.clock(t), nil))
	y.travel(t, 2*24*time.Hour-30*time.Minute)
	if err := fleet.PruneTracks(t.Context(), y.Service); err != nil || len(y.track(t, v.ID)) != 2 {
		t.Errorf("after 2 days: got %d reports, %v", len(y.track(t, v.ID)), err)
	}
	y.changeSettings(t, fleet.SettingsChange{TrackRetentionDays: optional.Of(int64(2))})
	if err := fleet.PruneTracks(t.Context(), y.Service); err != nil || len(y.track(t, v.ID)) != 1 {
		t.Errorf("after 2 days of 2: got %d reports, %v", len(y.track(t, v.ID)), err)
	}
}

// TestTrackerPosition: a position comes with its heading and speed.
func TestTrackerPosition(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Lat: 52_520_008, track.Lng: 13_404_954, track.Speed: 180, track.Heading: 905, track.Accuracy: 65, track.Odometer: 1200}))
	w := y.storedVehicle(t, v.ID)
	want := geo.Position{Lat: 52.520008, Lng: 13.404954, AccuracyMeters: new(6.5), Heading: new(90.5), SpeedMPS: new(5.0)}
	if !w.Location.Equal(&want) || *w.OdometerMeters != 1200 {
		t.Errorf("got %+v, odometer %d", w.Location, *w.OdometerMeters)
	}
}

// TestPointsOfLateRides: a report belongs to a ride that an app sent as late as it may.
func TestPointsOfLateRides(t *testing.T) {
	y := newYard(t)
	y.changeSettings(t, fleet.SettingsChange{OfflineRideHours: optional.Of(int64(31 * 24)), ContactLostMinutes: optional.Of(int64(60 * 24 * 60)), MissingAfterHours: optional.Of(int64(60 * 24))})
	v := y.vehicle(t)
	at := y.clock(t).Add(time.Minute).Truncate(time.Second)
	y.travel(t, 2*time.Minute)
	y.record(t, report(&v, at, northBy(100)))
	start := at.Add(-time.Second)
	n := fleet.NewRide{VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(y.customer(t).ID), StartedAt: optional.Of(rfc3339.Time(start))}
	var r fleet.Ride
	y.write(t, func(ctx context.Context, tx *db.Tx) (err error) { // one transaction, as the clock runs on after it
		if err = y.AdvanceClockTx(ctx, tx, y.org, start.Add(31*24*time.Hour-500*time.Millisecond)); err == nil {
			r, err = y.StartRideTx(ctx, tx, y.org, n, testActor)
		}
		return err
	})
	ride := ""
	err := y.EachMDSPoint(t.Context(), &fleet.MDSArea{OrganizationID: y.org, Subaccount: y.sub}, at, at.Add(time.Second), func(p *fleet.MDSPoint) error {
		ride += p.RideID
		return nil
	})
	if err != nil || ride != r.ID {
		t.Errorf("got the ride %q, %v", ride, err)
	}
}

// TestPointsOfLongRides: a report belongs to its ride although no ride may take as long any more.
func TestPointsOfLongRides(t *testing.T) {
	y := newYard(t)
	y.changeSettings(t, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(20 * 24 * 60))})
	v := y.vehicle(t)
	r := y.ride(t, fleet.Active, v)
	y.travel(t, 10*24*time.Hour)
	at := y.clock(t).Add(-time.Hour).Truncate(time.Second)
	y.record(t, report(&v, at, northBy(100)))
	y.put(t, r.ID, to(fleet.Completed))
	for _, minutes := range []int64{20 * 24 * 60, 60} {
		y.changeSettings(t, fleet.SettingsChange{MaxRideMinutes: optional.Of(minutes)})
		ride := ""
		err := y.EachMDSPoint(t.Context(), &fleet.MDSArea{OrganizationID: y.org, Subaccount: y.sub}, at, at.Add(time.Second), func(p *fleet.MDSPoint) error {
			ride += p.RideID
			return nil
		})
		if err != nil || ride != r.ID {
			t.Errorf("with a limit of %d minutes: got the ride %q, %v", minutes, ride, err)
		}
	}
}
