package web_test

import (
	"math"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/web"
)

func TestText(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{web.Number(0), "0"},
		{web.Number(1234567), "1,234,567"},
		{web.Number(math.MinInt64), "−9,223,372,036,854,775,808"},
		{web.Money(1250, "EUR"), "€12.50"},
		{web.Money(-5, "USD"), "−$0.05"},
		{web.Money(-250, "JPY"), "−¥250"},
		{web.Money(123456789, "CHF"), "CHF\u00a01,234,567.89"},
		{web.Money(1005, "BHD"), "BHD\u00a01.005"},
		{web.Money(math.MinInt64, "GBP"), "−£92,233,720,368,547,758.08"},
		{web.Count(0, "%d ticket", "%d tickets"), "0 tickets"},
		{web.Count(1, "%d ticket", "%d tickets"), "1 ticket"},
		{web.Count(int64(12345), "%d ticket", "%d tickets"), "12,345 tickets"},
		{web.Count(-2, "%d ticket", "%d tickets"), "-2 tickets"},
		{web.Count(1, "One event.", "%d events."), "One event."},
		{web.Count(2, " is here", " are here"), " are here"},
		{web.Sprintf("%s: %d%%", "a", 1500), "a: 1,500%"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
