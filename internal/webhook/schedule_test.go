package webhook

import (
	"net/http"
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	tests := []struct {
		schedule   Schedule
		attempt    int
		retryAfter time.Duration
		want       time.Duration
		again      bool
	}{
		{LongSchedule, 1, 0, 60 * time.Second, true},
		{LongSchedule, 2, 0, 300 * time.Second, true},
		{LongSchedule, 3, 0, 1800 * time.Second, true},
		{LongSchedule, 4, 0, 7200 * time.Second, true},
		{LongSchedule, 5, 0, 86400 * time.Second, true},
		{LongSchedule, 6, 0, 0, false},
		{ShortSchedule, 1, 0, 60 * time.Second, true},
		{ShortSchedule, 2, 0, 300 * time.Second, true},
		{ShortSchedule, 3, 0, 1800 * time.Second, true},
		{ShortSchedule, 4, 0, 7200 * time.Second, true},
		{ShortSchedule, 5, 0, 28800 * time.Second, true},
		{ShortSchedule, 6, 0, 0, false},
		{ShortSchedule, 0, 0, 0, false},
		{ShortSchedule, 1, 59 * time.Second, 60 * time.Second, true},
		{ShortSchedule, 1, 61 * time.Second, 61 * time.Second, true},
		{ShortSchedule, 5, 24 * time.Hour, 86400 * time.Second, true},
		{ShortSchedule, 1, 25 * time.Hour, 86400 * time.Second, true},
		{ShortSchedule, 6, 24 * time.Hour, 0, false},
	}
	for _, test := range tests {
		got, again := test.schedule.Delay(test.attempt, test.retryAfter)
		if got != test.want || again != test.again {
			t.Errorf("schedule %s, attempt %d, Retry-After %v: got %v, %t, want %v, %t",
				test.schedule, test.attempt, test.retryAfter, got, again, test.want, test.again)
		}
	}
}

func TestStretch(t *testing.T) {
	tests := []struct {
		delay         time.Duration
		scale, random float64
		want          time.Duration
	}{
		{time.Minute, 1, 0, time.Minute},
		{time.Minute, 1, 0.5, 63 * time.Second},
		{time.Minute, 0.5, 0, 30 * time.Second},
		{24 * time.Hour, 0.001, 0, 86400 * time.Millisecond},
	}
	for _, test := range tests {
		if got := withJitter(test.delay, test.scale, test.random); got != test.want {
			t.Errorf("stretch(%v, %v, %v): got %v, want %v", test.delay, test.scale, test.random, got, test.want)
		}
	}
	if got := withJitter(time.Minute, 1, 0.999999); got <= time.Minute || got > 66*time.Second {
		t.Errorf("got %v, want at most a tenth more than 1m0s", got)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	tests := []struct {
		status int
		value  string
		want   time.Duration
	}{
		{429, "120", 2 * time.Minute},
		{503, "120", 2 * time.Minute},
		{500, "120", 0},
		{502, "120", 0},
		{429, "soon", 0},
		{429, "", 0},
		{429, "86400", 24 * time.Hour},
		{503, "Sat, 21 Nov 2026 10:00:00 GMT", 30 * time.Minute},
	}
	for _, test := range tests {
		h := http.Header{"Retry-After": {test.value}}
		if got := retryAfter(test.status, h, now); got != test.want {
			t.Errorf("%d with Retry-After %q: got %v, want %v", test.status, test.value, got, test.want)
		}
	}
}

func TestClassify(t *testing.T) {
	want := map[int]outcome{
		200: accepted, 201: accepted, 204: accepted, 299: accepted,
		300: rejected, 301: rejected, 302: rejected, 304: rejected, 307: rejected, 308: rejected,
		400: rejected, 401: rejected, 404: rejected, 408: rejected, 410: rejected, 428: rejected, 430: rejected, 499: rejected,
		429: retryable,
		500: retryable, 502: retryable, 503: retryable, 504: retryable, 599: retryable,
		600: rejected, 999: rejected,
	}
	for status, want := range want {
		if got := classify(status); got != want {
			t.Errorf("%d: got %d, want %d", status, got, want)
		}
	}
}
