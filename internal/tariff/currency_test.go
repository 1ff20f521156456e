package tariff_test

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// TestMinorDigits checks the examples of fleet-api.md 8.
func TestMinorDigits(t *testing.T) {
	for digits, list := range map[int]string{
		0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
		2: "EUR USD AFN ALL IDR CHF GBP",
		3: "BHD IQD JOD KWD LYD OMR TND",
		4: "CLF UYW",
	} {
		for currency := range strings.SplitSeq(list, " ") {
			if got, ok := tariff.MinorDigits(currency); got != digits || !ok {
				t.Errorf("%s: got %d, %v; want %d", currency, got, ok, digits)
			}
		}
	}
	for _, none := range []string{"", "eur", "EU", "EURO", "XXX", "XTS", "XAU", "DEM", "R S", " EU", "EU "} {
		if got, ok := tariff.MinorDigits(none); ok || got != 0 {
			t.Errorf("%q: got %d, %v; want none", none, got, ok)
		}
	}
}
