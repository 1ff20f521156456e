package netguard_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/netguard"
)

// TestRetryAfter reads both forms of the header.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-5": 0, "1.5": 0, "0": 0,
		"90": 90 * time.Second, " 120 ": 2 * time.Minute, "86400": 24 * time.Hour, "86401": 24 * time.Hour,
		"9223372037":                    24 * time.Hour, // overflows a duration in nanoseconds
		"18446744073709551615":          24 * time.Hour,
		"18446744073709551616":          0,
		"Sat, 21 Nov 2026 10:00:00 GMT": 30 * time.Minute,
		"Sat, 21 Nov 2026 09:00:00 GMT": 0,
		"Tue, 24 Nov 2026 09:30:00 GMT": 24 * time.Hour,
	} {
		if got := netguard.RetryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("RetryAfter(%q) = %v, want %v", value, got, want)
		}
	}
	// By the clock of the server that answered.
	h := http.Header{"Retry-After": {"Sat, 21 Nov 2026 10:00:00 GMT"}, "Date": {"Sat, 21 Nov 2026 09:59:00 GMT"}}
	if got := netguard.RetryAfter(h, now); got != time.Minute {
		t.Errorf("RetryAfter() = %v with a Date header, want 1m", got)
	}
}
