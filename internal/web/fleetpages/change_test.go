package fleetpages

import "testing"

func TestChange(t *testing.T) {
	for _, tt := range []struct {
		now, before int64
		text, class string
	}{{0, 0, "no change", ""}, {5, 0, "from zero", "up"}, {0, 5, "↓ 100%", "down"}, {15, 10, "↑ 50%", "up"}, {1000, 1001, "no change", ""}, {5, -5, "↑ 200%", "up"}} {
		if got := changeOf(tt.now, tt.before); got != (change{tt.text, tt.class}) {
			t.Errorf("%d after %d: got %+v", tt.now, tt.before, got)
		}
	}
}
