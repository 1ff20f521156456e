package tariff_test

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/tariff"
)

func TestPriced(t *testing.T) {
	minutes := func(list ...tariff.Segment) tariff.Tariff {
		return tariff.Tariff{Currency: "EUR", PerMinute: list}
	}
	with := func(t tariff.Tariff, change func(*tariff.Tariff)) tariff.Tariff {
		change(&t)
		return t
	}
	always := tariff.Segment{Rate: 25, Interval: 1}
	for want, terms := range map[string]tariff.Tariff{
		"Free":           minutes(),
		"€0.25 a minute": minutes(always),
		"€1.00 to unlock, then €0.25 a minute": with(minutes(always), func(t *tariff.Tariff) { t.UnlockAmount = 100 }),
		"€1.00 to unlock, then free for the first 2 minutes, then €0.25 a minute, at most €12.00 in each 24 hours": with(minutes(tariff.Segment{Start: 2, Rate: 25, Interval: 1}), func(t *tariff.Tariff) {
			t.UnlockAmount, t.FareCap = 100, &tariff.FareCap{DurationMinutes: 1440, Amount: 1200}
		}),
		"€2.00 to unlock, then €3.00 once after 30 minutes, plus €0.10 a minute after 60 minutes": with(minutes(tariff.Segment{Start: 30, End: new(int64(60)), Rate: 300}, tariff.Segment{Start: 60, Rate: 10, Interval: 1}),
			func(t *tariff.Tariff) { t.UnlockAmount = 200 }),
		"¥130 to unlock, then free for the first 30 minutes, then ¥100 every 15 minutes, at most ¥1,800 in each 12 hours": {
			Currency: "JPY", UnlockAmount: 130, PerMinute: []tariff.Segment{{Start: 30, Rate: 100, Interval: 15}}, FareCap: &tariff.FareCap{DurationMinutes: 720, Amount: 1800}},
		"€3.00 to unlock, then €0.50 a minute, and €0.25 a kilometer": with(minutes(tariff.Segment{Rate: 50, Interval: 1}), func(t *tariff.Tariff) {
			t.UnlockAmount, t.PerKilometer = 300, []tariff.Segment{always}
		}),
		"€0.30 a minute, plus €0.10 less a minute after 20 minutes":                             minutes(tariff.Segment{Rate: 30, Interval: 1}, tariff.Segment{Start: 20, Rate: -10, Interval: 1}),
		"€0.20 a minute for the first 60 minutes, plus €3.00 every 30 minutes after 60 minutes": minutes(tariff.Segment{End: new(int64(60)), Rate: 20, Interval: 1}, tariff.Segment{Start: 60, Rate: 300, Interval: 30}),
		"€1.00 a minute after 10 and until 25 minutes, plus €1.00 less once":                    minutes(tariff.Segment{Start: 10, End: new(int64(25)), Rate: 100, Interval: 1}, tariff.Segment{Rate: -100}),
		"KWD\u00a00.250 to unlock, at most KWD\u00a09.000 in each hour":                         {Currency: "KWD", UnlockAmount: 250, FareCap: &tariff.FareCap{DurationMinutes: 60, Amount: 9000}},
		"€0.25 a minute, at most €9.00 in each 90 minutes":                                      with(minutes(always), func(t *tariff.Tariff) { t.FareCap = &tariff.FareCap{DurationMinutes: 90, Amount: 900} }),
		"€0.25 a minute, at most €9.00 in each 7 days":                                          with(minutes(always), func(t *tariff.Tariff) { t.FareCap = &tariff.FareCap{DurationMinutes: 7 * 1440, Amount: 900} }),
	} {
		if got := terms.Summary(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTerms(t *testing.T) {
	for _, tt := range []struct {
		tariff tariff.Tariff
		want   string
	}{
		{tariff.Tariff{Currency: "EUR"}, "Free. Pauses cost the same as riding. Reservations are free. Rides can't end out of zone."},
		{tariff.Tariff{Currency: "EUR", PausePerMinAmount: new(int64(0)), ReservationFlat: new(int64(50)), OutOfZoneAmount: new(int64(0)), TaxBasisPoints: 1900},
			"Free. Pauses are free. A reservation costs €0.50. Rides can end anywhere. Amounts include 19% tax."},
		{tariff.Tariff{Currency: "EUR", PausePerMinAmount: new(int64(10)), ReservationPerMin: new(int64(15)), ReservationFreeMinutes: 5, OutOfZoneAmount: new(int64(1500)), Taxable: true, TaxBasisPoints: 770},
			"Free. Pauses cost €0.10 a minute. A reservation costs €0.15 a minute after the first 5 minutes. The out-of-zone fee is €15.00. 7.7% tax is added."},
		{tariff.Tariff{Currency: "EUR", ReservationPerMin: new(int64(15)), ReservationFreeMinutes: 1}, "Free. Pauses cost the same as riding. A reservation costs €0.15 a minute after the first 1 minute. Rides can't end out of zone."},
	} {
		if got := strings.Join(tt.tariff.Terms(), " "); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
