package tariff_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/tariff"

	"pgregory.net/rapid"
)

// TestLinesAddUp: the sum of the lines is the total, with and without an adjustment, and the
// explained price is the price.
func TestLinesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, u := anyTariff(t, -500), anyUsage(t)
		u.Ridden = rapid.Bool().Draw(t, "ridden")
		adjustment := rapid.Int64Range(-100_000, 100_000).Draw(t, "adjustment")
		price := p.Price(u).Adjusted(adjustment)
		explained := p.Explain(u).Adjusted(adjustment, "goodwill")
		for name, got := range map[string]tariff.Explanation{"explained": explained, "by amounts": tariff.ExplainAmounts(price)} {
			if got.Price != price {
				t.Errorf("%s: %+v, want %+v", name, got.Price, price)
			}
			var sum int64
			for _, l := range got.Lines {
				sum += l.Amount
				if l.UnitAmount != nil && *l.UnitAmount*l.Quantity != l.Amount {
					t.Errorf("%s: %d times %d is not %d", name, l.Quantity, *l.UnitAmount, l.Amount)
				}
				if l.Amount == 0 || l.Explanation == "" || !slices.Contains(tariff.LineCodes, string(l.Code)) || !slices.Contains(tariff.Units, string(l.Unit)) {
					t.Errorf("%s: line %+v", name, l)
				}
			}
			if sum != price.TotalAmount {
				t.Errorf("%s: lines add up to %d, want %d: %+v", name, sum, price.TotalAmount, got.Lines)
			}
		}
	})
}

func TestExplain(t *testing.T) {
	euro := func(p tariff.Tariff) tariff.Tariff {
		p.Currency = "EUR"
		return p
	}
	for _, tt := range []struct {
		name  string
		plan  tariff.Tariff
		usage tariff.Usage
		want  []string // code, quantity, unit, amount, explanation, rounding
	}{
		{"nothing", euro(planA), tariff.Usage{}, nil},
		{"A, 675 s", euro(planA), rode(675), []string{
			"unlock 1 once 100 Unlocking", "time 12 minute 300 Riding: €0.25 a minute (11 min 15 s rounded up to 12 minutes)",
		}},
		{"C capped", euro(planC), rodeFar(60*minute, 9001), []string{
			"unlock 1 once 300 Unlocking", "time 60 minute 3000 Riding: €0.50 a minute", "distance 10 kilometer 250 Distance: €0.25 a kilometer (9,001 m rounded up to 10 kilometers)",
			"cap 1 window -2050 At most €15.00 in each 12 hours",
		}},
		{"D by intervals", planD, rode(46 * minute), []string{"unlock 1 once 130 Unlocking", "time 2 interval 200 Riding: ¥100 every 15 minutes after 30 minutes"}},
		{"F paused", euro(planF), tariff.Usage{Ridden: true, Seconds: 25 * minute, PausedSeconds: 430}, []string{
			"unlock 1 once 100 Unlocking", "time 18 minute 450 Riding: €0.25 a minute (17 min 50 s rounded up to 18 minutes)",
			"pause 8 minute 80 Pauses: €0.10 a minute (7 min 10 s rounded up to 8 minutes)",
		}},
		{"G reserved", euro(planG), reserved(12*minute+30, rode(10*minute)), []string{
			"unlock 1 once 100 Unlocking", "time 10 minute 250 Riding: €0.25 a minute",
			"reservation 8 minute 120 Reservation: €0.15 a minute after the first 5 minutes, up to 15 minutes (12 min 30 s rounded up to 13 minutes)",
			"tax 1900 basis_point 89 Tax, 19% of €4.70 (rounded half up to €0.89)",
		}},
		{"L below nothing", euro(planL), rode(5 * minute), []string{
			"unlock 1 once 50 Unlocking", "time 1 once -100 Riding: €1.00 less once", "time 5 minute 25 Riding: €0.05 a minute", "floor 1 once 25 Raised to the minimum fare of 0",
		}},
		{"H flat", euro(planH), reserved(minute, tariff.Usage{}), []string{"reservation 1 once 50 Reservation"}},
	} {
		var got []string
		for _, l := range tt.plan.Explain(tt.usage).Lines {
			got = append(got, textOf(l))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
	}
	refunded := tariff.Explanation{Price: tariff.Price{Currency: "EUR", SubtotalAmount: 100}}.Adjusted(-250, "late bus")
	if got := []string{textOf(refunded.Lines[0]), textOf(refunded.Lines[1])}; !slices.Equal(got, []string{"adjustment 1 once -250 Adjustment: late bus", "floor 1 once 150 Raised to the minimum total of 0"}) {
		t.Errorf("refunded %q", got)
	}
}

func textOf(l tariff.Line) string {
	text := fmt.Sprintf("%s %d %s %d %s", l.Code, l.Quantity, l.Unit, l.Amount, l.Explanation)
	if l.Rounding != nil {
		text += " (" + *l.Rounding + ")"
	}
	return text
}
