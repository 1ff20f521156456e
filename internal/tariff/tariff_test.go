package tariff_test

import (
	"errors"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"

	"pgregory.net/rapid"
)

// The plans of fleet-api.md 8.
var (
	always = func(rate int64) []tariff.Segment { return []tariff.Segment{{Rate: rate, Interval: 1}} }

	planA = tariff.Tariff{UnlockAmount: 100, PerMinute: always(25)}
	planB = tariff.Tariff{UnlockAmount: 200, PerMinute: []tariff.Segment{
		{Start: 30, End: new(int64(60)), Rate: 300}, {Start: 60, Rate: 10, Interval: 1},
	}}
	planC = tariff.Tariff{UnlockAmount: 300, PerMinute: always(50), PerKilometer: always(25), FareCap: &tariff.FareCap{DurationMinutes: 720, Amount: 1500}}
	planD = tariff.Tariff{Currency: "JPY", UnlockAmount: 130, PerMinute: []tariff.Segment{{Start: 30, Rate: 100, Interval: 15}},
		FareCap: &tariff.FareCap{DurationMinutes: 720, Amount: 1800}}
	planE = tariff.Tariff{PerMinute: []tariff.Segment{{Start: 10, Rate: 20, Interval: 1}}}
	planF = tariff.Tariff{UnlockAmount: 100, PerMinute: always(25), PausePerMinAmount: new(int64(10))}
	planG = tariff.Tariff{UnlockAmount: 100, PerMinute: always(25), ReservationPerMin: new(int64(15)), ReservationFreeMinutes: 5,
		OutOfZoneAmount: new(int64(1500)), Taxable: true, TaxBasisPoints: 1900}
	planH = tariff.Tariff{UnlockAmount: 100, PerMinute: always(25), ReservationFlat: new(int64(50))}
	planI = tariff.Tariff{
		PerMinute: []tariff.Segment{{End: new(int64(60)), Rate: 20, Interval: 1}, {Start: 60, Rate: 300, Interval: 30}},
		PerKilometer: []tariff.Segment{
			{Start: 10, End: new(int64(25)), Rate: 100, Interval: 1}, {Start: 25, Rate: 50, Interval: 1}, {Start: 25, Rate: 300, Interval: 5},
		},
	}
	planJ = tariff.Tariff{UnlockAmount: 500, PerMinute: []tariff.Segment{{Rate: 30, Interval: 1}, {Start: 20, Rate: -10, Interval: 1}}}
	planL = tariff.Tariff{UnlockAmount: 50, PerMinute: []tariff.Segment{{Rate: -100}, {Rate: 5, Interval: 1}}}
	planY = tariff.Tariff{Currency: "JPY", UnlockAmount: 50, PerMinute: always(15), Taxable: true, TaxBasisPoints: 1000}
	planZ = tariff.Tariff{Currency: "KWD", UnlockAmount: 250, PerMinute: always(35)}
)

const minute, hour = 60, 3600

func rode(seconds int64) tariff.Usage { return tariff.Usage{Ridden: true, Seconds: seconds} }

func rodeFar(seconds, meters int64) tariff.Usage {
	return tariff.Usage{Ridden: true, Seconds: seconds, Meters: meters}
}

func reserved(seconds int64, u tariff.Usage) tariff.Usage {
	u.Reserved, u.ReservedSeconds, u.ReservationMinutes = true, seconds, 15
	return u
}

// TestWorkedPrices is the table of fleet-api.md 8.
func TestWorkedPrices(t *testing.T) {
	paused := tariff.Usage{Ridden: true, Seconds: 25 * minute, PausedSeconds: 7*minute + 10}
	outside := rode(10 * minute)
	outside.OutOfZone = true
	for _, tt := range []struct {
		name  string
		plan  tariff.Tariff
		usage tariff.Usage
		want  int64
	}{
		{"1 A 0 s", planA, rode(0), 100},
		{"1 A 60 s", planA, rode(60), 125},
		{"1 A 61 s", planA, rode(61), 150},
		{"2 A 5 min 36 s", planA, rode(5*minute + 36), 250},
		{"2 A 675 s", planA, rode(675), 400},
		{"3 B 30:00", planB, rode(30 * minute), 200},
		{"3 B 30:01", planB, rode(30*minute + 1), 500},
		{"3 B 75:00", planB, rode(75 * minute), 650},
		{"4 C 20 min 4.2 km", planC, rodeFar(20*minute, 4200), 1425},
		{"5 C 60 min 9 km", planC, rodeFar(60*minute, 9000), 1500},
		{"5 C 20 min 30 km", planC, rodeFar(20*minute, 30000), 1500},
		{"6 C 750 min 12.5 km", planC, rodeFar(750*minute, 12500), 3000},
		{"7 D 30 min", planD, rode(30 * minute), 130},
		{"7 D 10 h", planD, rode(10 * hour), 1800},
		{"7 D 13 h", planD, rode(13 * hour), 2200},
		{"8 D 720:00", planD, rode(720 * minute), 1800},
		{"8 D 720:01", planD, rode(720*minute + 1), 1900},
		{"9 E 10:00", planE, rode(10 * minute), 0},
		{"9 E 10:01", planE, rode(10*minute + 1), 20},
		{"9 E 27:00", planE, rode(27 * minute), 340},
		{"10 F 25 min, 7 min 10 s paused", planF, paused, 630},
		{"11 A the same ride", planA, paused, 725},
		{"12 G 10 min, reserved 4 min", planG, reserved(4*minute, rode(10*minute)), 417},
		{"13 G 10 min, reserved 12 min 30 s", planG, reserved(12*minute+30, rode(10*minute)), 559},
		{"14 G reservation expires", planG, reserved(15*minute, tariff.Usage{}), 179},
		{"15 G 10 min, ended outside", planG, outside, 2202},
		{"16 H reserved 1 min then 5 min", planH, reserved(minute, rode(5*minute)), 275},
		{"16 H cancelled by the rider", planH, reserved(minute, tariff.Usage{}), 50},
		{"17 I 91 min 26 km", planI, rodeFar(91*minute, 26000), 3650},
		{"18 I 61 min 10.000 km", planI, rodeFar(61*minute, 10000), 1500},
		{"18 I 60 s 10.001 km", planI, rodeFar(60, 10001), 120},
		{"19 I 60 min 36.2 km", planI, rodeFar(60*minute, 36200), 4200},
		{"20 J 30 min", planJ, rode(30 * minute), 1300},
		{"21 L 5 min", planL, rode(5 * minute), 0},
		{"21 L 30 min", planL, rode(30 * minute), 100},
		{"22 Y 13 min 1 s", planY, rode(13*minute + 1), 286},
		{"23 Z 8 min", planZ, rode(8 * minute), 530},
	} {
		if got := tt.plan.Price(tt.usage); got.TotalAmount != tt.want {
			t.Errorf("%s: got %d, want %d: %+v", tt.name, got.TotalAmount, tt.want, got)
		}
	}
	price := planG.Price(rode(10 * minute))
	if got := price.Adjusted(-100).TotalAmount; got != 317 {
		t.Errorf("24 G adjustment -100: got %d, want 317", got)
	}
	if got := price.Adjusted(-100000).TotalAmount; got != 0 {
		t.Errorf("24 G adjustment -100000: got %d, want 0", got)
	}
	if got := price.Adjusted(-100).Adjusted(0); got != price {
		t.Errorf("an adjustment taken back: got %+v, want %+v", got, price)
	}
}

// TestParts checks the items of some totals.
func TestParts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plan  tariff.Tariff
		usage tariff.Usage
		want  tariff.Price
	}{
		{"C capped", planC, rodeFar(60*minute, 9000), tariff.Price{
			UnlockAmount: 300, TimeAmount: 3000, DistanceAmount: 225, FareAmount: 1500, SubtotalAmount: 1500, TotalAmount: 1500,
			BilledMinutes: 60, BilledKilometers: 9,
		}},
		{"F paused", planF, tariff.Usage{Ridden: true, Seconds: 25 * minute, PausedSeconds: 430}, tariff.Price{
			UnlockAmount: 100, TimeAmount: 450, PauseAmount: 80, FareAmount: 630, SubtotalAmount: 630, TotalAmount: 630,
			BilledMinutes: 18, BilledPausedMinutes: 8,
		}},
		{"A pauses that cost as riding", planA, tariff.Usage{Ridden: true, Seconds: 25 * minute, PausedSeconds: 430}, tariff.Price{
			UnlockAmount: 100, TimeAmount: 625, FareAmount: 725, SubtotalAmount: 725, TotalAmount: 725, BilledMinutes: 25,
		}},
		{"G reserved", planG, reserved(12*minute+30, rode(10*minute)), tariff.Price{
			UnlockAmount: 100, TimeAmount: 250, FareAmount: 350, ReservationAmount: 120, SubtotalAmount: 470, TaxAmount: 89, TotalAmount: 559,
			BilledMinutes: 10, BilledReservationMinutes: 8,
		}},
		{"G reserved within the free minutes", planG, reserved(5*minute, rode(0)), tariff.Price{
			UnlockAmount: 100, FareAmount: 100, SubtotalAmount: 100, TaxAmount: 19, TotalAmount: 119,
		}},
		{"H flat", planH, reserved(minute, tariff.Usage{}), tariff.Price{ReservationAmount: 50, SubtotalAmount: 50, TotalAmount: 50}},
	} {
		if got := tt.plan.Price(tt.usage); got != tt.want {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}

func anySegments(t *rapid.T, label string, lowest int64) []tariff.Segment {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) tariff.Segment {
		s := tariff.Segment{
			Start: rapid.Int64Range(0, 200).Draw(t, "start"), Rate: rapid.Int64Range(lowest, 500).Draw(t, "rate"),
			Interval: rapid.Int64Range(0, 60).Draw(t, "interval"),
		}
		if rapid.Bool().Draw(t, "ends") {
			s.End = new(s.Start + rapid.Int64Range(1, 300).Draw(t, "length"))
		}
		return s
	}), 0, 4).Draw(t, label)
}

func anyTariff(t *rapid.T, lowest int64) tariff.Tariff {
	amount := rapid.Ptr(rapid.Int64Range(0, 1000), true)
	p := tariff.Tariff{
		UnlockAmount: rapid.Int64Range(0, 1000).Draw(t, "unlock"), PerMinute: anySegments(t, "minutes", lowest), PerKilometer: anySegments(t, "kilometers", lowest),
		PausePerMinAmount: amount.Draw(t, "pause"), ReservationPerMin: amount.Draw(t, "reservation"), ReservationFreeMinutes: rapid.Int64Range(0, 10).Draw(t, "free"),
		OutOfZoneAmount: amount.Draw(t, "outside"), Taxable: rapid.Bool().Draw(t, "taxable"), TaxBasisPoints: rapid.Int64Range(0, 10000).Draw(t, "tax"),
	}
	if rapid.Bool().Draw(t, "capped") {
		p.FareCap = &tariff.FareCap{DurationMinutes: rapid.Int64Range(1, 300).Draw(t, "window"), Amount: rapid.Int64Range(0, 3000).Draw(t, "cap")}
	}
	return p
}

func anyUsage(t *rapid.T) tariff.Usage {
	u := tariff.Usage{
		Ridden: true, Seconds: rapid.Int64Range(0, 50_000).Draw(t, "seconds"), Meters: rapid.Int64Range(0, 300_000).Draw(t, "meters"),
		Reserved: rapid.Bool().Draw(t, "reserved"), ReservedSeconds: rapid.Int64Range(0, 2000).Draw(t, "reserved seconds"), ReservationMinutes: 15,
		OutOfZone: rapid.Bool().Draw(t, "outside"),
	}
	u.PausedSeconds = rapid.Int64Range(0, u.Seconds).Draw(t, "paused")
	return u
}

func TestPriceIsNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, u := anyTariff(t, -500), anyUsage(t)
		got := p.Price(u).Adjusted(rapid.Int64Range(-10_000, 10_000).Draw(t, "adjustment"))
		for what, amount := range map[string]int64{
			"fare": got.FareAmount, "reservation": got.ReservationAmount, "subtotal": got.SubtotalAmount, "tax": got.TaxAmount, "total": got.TotalAmount,
		} {
			if amount < 0 {
				t.Errorf("%s is %d", what, amount)
			}
		}
	})
}

// TestLongerCostsNoLess: with rates of at least 0, a longer ride is never cheaper.
func TestLongerCostsNoLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, u := anyTariff(t, 0), anyUsage(t)
		before := p.Price(u).TotalAmount
		longer := u
		longer.Seconds += rapid.Int64Range(0, 5000).Draw(t, "more seconds")
		longer.Meters += rapid.Int64Range(0, 20_000).Draw(t, "more meters")
		longer.ReservedSeconds += rapid.Int64Range(0, 500).Draw(t, "longer reserved")
		if after := p.Price(longer).TotalAmount; after < before {
			t.Errorf("%+v costs %d, %+v costs %d", u, before, longer, after)
		}
	})
}

// TestChargesOneByOne compares with a loop over every charge.
func TestChargesOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, u := anyTariff(t, -500), anyUsage(t)
		riding := u.Seconds
		var pause int64
		if p.PausePerMinAmount != nil {
			riding -= u.PausedSeconds
			pause = (u.PausedSeconds + 59) / 60 * *p.PausePerMinAmount
		}
		minutes, all, kilometers := (riding+59)/60, (u.Seconds+59)/60, (u.Meters+999)/1000
		points := func(list []tariff.Segment, length int64, charge func(at, rate int64)) {
			for _, s := range list {
				for at := s.Start; at < length && (s.End == nil || at < *s.End); at += s.Interval {
					charge(at, s.Rate)
					if s.Interval == 0 {
						break
					}
				}
			}
		}
		var distance int64
		points(p.PerKilometer, kilometers, func(_, rate int64) { distance += rate })
		windows := []int64{0}
		if p.FareCap != nil {
			windows = make([]int64, max(1, (all+p.FareCap.DurationMinutes-1)/p.FareCap.DurationMinutes))
		}
		windows[0] += p.UnlockAmount
		points(p.PerMinute, minutes, func(at, rate int64) {
			w := 0
			if p.FareCap != nil {
				w = min(int(at/p.FareCap.DurationMinutes), len(windows)-1)
			}
			windows[w] += rate
		})
		want := pause + distance
		if p.FareCap == nil {
			want = max(0, want+windows[0])
		} else {
			for _, w := range windows {
				want += min(max(0, w), p.FareCap.Amount)
			}
			want = max(0, min(int64(len(windows))*p.FareCap.Amount, want))
		}
		if got := p.Price(u).FareAmount; got != want {
			t.Errorf("got a fare of %d, want %d", got, want)
		}
	})
}

func TestTariffsRefused(t *testing.T) {
	one := func(s tariff.Segment) tariff.Tariff { return tariff.Tariff{PerMinute: []tariff.Segment{s}} }
	const most = 1<<53 - 1
	for _, tt := range []struct {
		name string
		plan tariff.Tariff
		want string // code and path; empty: valid
	}{
		{"A", planA, ""}, {"B", planB, ""}, {"C", planC, ""}, {"D", planD, ""}, {"E", planE, ""}, {"F", planF, ""}, {"G", planG, ""},
		{"H", planH, ""}, {"I", planI, ""}, {"J", planJ, ""}, {"L", planL, ""}, {"Y", planY, ""}, {"Z", planZ, ""},
		{"negative unlock", tariff.Tariff{UnlockAmount: -1}, "too_small unlock_amount"},
		{"negative pause", tariff.Tariff{PausePerMinAmount: new(int64(-1))}, "too_small pause_per_min_amount"},
		{"both reservations", tariff.Tariff{ReservationPerMin: new(int64(1)), ReservationFlat: new(int64(1))}, "conflict reservation_flat_amount"},
		{"no window", tariff.Tariff{FareCap: &tariff.FareCap{Amount: 1}}, "too_small fare_cap.duration_minutes"},
		{"more tax than all", tariff.Tariff{TaxBasisPoints: 10_001}, "too_large tax_basis_points"},
		{"a negative start", one(tariff.Segment{Start: -1}), "too_small per_min_pricing.0.start"},
		{"a negative interval", one(tariff.Segment{Interval: -1}), "too_small per_min_pricing.0.interval"},
		{"an end at the start", one(tariff.Segment{Start: 5, End: new(int64(5))}), "too_small per_min_pricing.0.end"},
		{"a start beyond all rides", one(tariff.Segment{Start: 1 << 62}), "too_large per_min_pricing.0.start"},
		{"an interval beyond all rides", one(tariff.Segment{Interval: 1 << 62}), "too_large per_min_pricing.0.interval"},
		{"too many segments", tariff.Tariff{PerKilometer: make([]tariff.Segment, 101)}, "too_long per_km_pricing"},
		{"the most there is", tariff.Tariff{UnlockAmount: most}, ""},
		{"more than a number holds, by tax", tariff.Tariff{UnlockAmount: most, TaxBasisPoints: 1, Taxable: true}, "too_large "},
		{"more than a number holds, by the minute", one(tariff.Segment{Rate: most / 1000, Interval: 1}), "too_large "},
		{"less than a number holds", one(tariff.Segment{Rate: -most / 1000, Interval: 1}), "too_large "},
	} {
		var got string
		var v problem.Validation
		tt.plan.Check(&v, 1440, 15)
		if err, ok := errors.AsType[*problem.Error](v.Err()); ok {
			got = err.Issues[0].Code + " " + err.Issues[0].Path
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
