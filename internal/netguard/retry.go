package netguard

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter bounds [RetryAfter].
const MaxRetryAfter = 24 * time.Hour

// RetryAfter returns the wait of a Retry-After header (RFC 9110 section 10.2.3), at most
// [MaxRetryAfter]; 0 if it is missing or malformed. A time in it is compared with the Date of
// the same response, else with now.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(n, uint64(MaxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		return max(0, min(at.Sub(now), MaxRetryAfter))
	}
	return 0
}
