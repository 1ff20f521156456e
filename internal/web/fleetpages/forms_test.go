package fleetpages

import "testing"

func TestAmounts(t *testing.T) {
	for _, tt := range []struct {
		text, currency string
		want           int64
		ok             bool
	}{
		{"1", "EUR", 100, true}, {"1.5", "EUR", 150, true}, {"1,50", "EUR", 150, true}, {" -0.05 ", "EUR", -5, true}, {"−2", "EUR", -200, true}, {"+3.10", "EUR", 310, true},
		{"250", "JPY", 250, true}, {"2.5", "JPY", 0, false}, {"0.530", "KWD", 530, true}, {"1.234", "EUR", 0, false}, {"", "EUR", 0, false}, {".5", "EUR", 0, false}, {"5.", "EUR", 0, false},
		{"1.2.3", "EUR", 0, false}, {"--1", "EUR", 0, false}, {"1e3", "EUR", 0, false}, {"9999999999999999999", "EUR", 0, false}, {"1", "XXX", 0, false}, {"٣", "EUR", 0, false},
	} {
		got, ok := parseAmount(tt.text, tt.currency)
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("%q in %s: got %d, %t", tt.text, tt.currency, got, ok)
		}
	}
	for _, amount := range []int64{0, 5, -5, 100, -12345, 1 << 52} {
		for _, currency := range []string{"EUR", "JPY", "KWD"} {
			if got, ok := parseAmount(plain(amount, currency), currency); !ok || got != amount {
				t.Errorf("%d %s came back as %d", amount, currency, got)
			}
		}
	}
}
