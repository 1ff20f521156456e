package tariff_test

import (
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/tariff"

	"pgregory.net/rapid"
)

// TestItemsAddUp: the sum of the items is the price.
func TestItemsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, u := anyTariff(t, -500), anyUsage(t)
		u.Ridden = rapid.Bool().Draw(t, "ridden")
		price := p.Price(u)
		var sum int64
		for _, item := range p.Items(u) {
			sum += item.Amount
			if item.Rate != 0 && item.Rate*item.Times != item.Amount {
				t.Errorf("%d times %d is not %d", item.Times, item.Rate, item.Amount)
			}
		}
		if want := price.SubtotalAmount + price.TaxAmount; sum != want {
			t.Errorf("got %d, want %d of %+v", sum, want, p.Items(u))
		}
	})
}

func TestItems(t *testing.T) {
	type line struct {
		kind   tariff.ItemKind
		times  int64
		amount int64
	}
	for _, tt := range []struct {
		name  string
		plan  tariff.Tariff
		usage tariff.Usage
		want  []line
	}{
		{"nothing", planA, tariff.Usage{}, nil},
		{"C capped", planC, rodeFar(60*minute, 9000), []line{
			{tariff.ItemUnlock, 0, 300}, {tariff.ItemTime, 60, 3000}, {tariff.ItemDistance, 9, 225}, {tariff.ItemCap, 0, -2025},
		}},
		{"G reserved", planG, reserved(12*minute+30, rode(10*minute)), []line{
			{tariff.ItemUnlock, 0, 100}, {tariff.ItemTime, 10, 250}, {tariff.ItemReservation, 8, 120}, {tariff.ItemTax, 0, 89},
		}},
		{"L below nothing", planL, rode(5 * minute), []line{
			{tariff.ItemUnlock, 0, 50}, {tariff.ItemTime, 1, -100}, {tariff.ItemTime, 5, 25}, {tariff.ItemFloor, 0, 25},
		}},
		{"H flat", planH, reserved(minute, tariff.Usage{}), []line{{tariff.ItemReservation, 0, 50}}},
	} {
		var got []line
		for _, item := range tt.plan.Items(tt.usage) {
			got = append(got, line{item.Kind, item.Times, item.Amount})
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n got %v\nwant %v", tt.name, got, tt.want)
		}
	}
}
