package webhook

import (
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/netguard"
)

// Schedule is a retry schedule (helpdesk.md part 6, delivery rules 4 and 5).
type Schedule string

// The two schedules, with six attempts each.
const (
	LongSchedule  Schedule = "one"
	ShortSchedule Schedule = "two"
)

// Delay returns the wait from the end of the given failed attempt (from 1) to the next one, or
// false after the last attempt. A longer Retry-After of the receiver replaces it, up to 24
// hours.
func (s Schedule) Delay(attempt int, retryAfter time.Duration) (time.Duration, bool) {
	delays := [...]time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 8 * time.Hour}
	if s == LongSchedule {
		delays[4] = 24 * time.Hour
	}
	if attempt < 1 || attempt > len(delays) {
		return 0, false
	}
	return max(delays[attempt-1], min(retryAfter, netguard.MaxRetryAfter)), true
}

// withJitter multiplies a delay by the configured scale and adds up to 10 % at random, so that
// deliveries that failed together do not retry together. random is in [0, 1).
func withJitter(delay time.Duration, scale, random float64) time.Duration {
	return time.Duration(float64(delay) * scale * (1 + random/10))
}

// retryAfter returns the wait requested by a Retry-After header, or 0 if the status does not
// permit one.
func retryAfter(status int, h http.Header, now time.Time) time.Duration {
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return 0
	}
	return netguard.RetryAfter(h, now)
}
