package webhook

import (
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/netguard"
)

// Schedule says how often and how late a delivery is tried again (helpdesk.md
// part 6, delivery rules 4 and 5).
type Schedule string

// The two schedules. Both make six attempts in all.
const (
	ScheduleOne Schedule = "one"
	ScheduleTwo Schedule = "two"
)

// Delay returns how long after the end of the attempt-th failed attempt (from 1)
// the next one is due, or false when there is none. A receiver's Retry-After
// that is longer counts instead, up to 24 hours.
func (s Schedule) Delay(attempt int, retryAfter time.Duration) (time.Duration, bool) {
	delays := [...]time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 8 * time.Hour}
	if s == ScheduleOne {
		delays[4] = 24 * time.Hour
	}
	if attempt < 1 || attempt > len(delays) {
		return 0, false
	}
	return max(delays[attempt-1], min(retryAfter, netguard.MaxRetryAfter)), true
}

// stretch applies the configured scale and the random addition of up to 10 %,
// which keeps deliveries that failed together from coming back together. random
// is from 0 up to 1.
func stretch(delay time.Duration, scale, random float64) time.Duration {
	return time.Duration(float64(delay) * scale * (1 + random/10))
}

// retryAfter returns the wait that an answer asks for, if its status is one of those
// where we listen; else 0.
func retryAfter(status int, h http.Header, now time.Time) time.Duration {
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return 0
	}
	return netguard.RetryAfter(h, now)
}
