package apikey

import (
	"errors"
	"time"
)

// ParseExpiry parses an expiry: the instant from which the key no longer works. A date is
// the last valid day in loc, so the instant is the start of the next day; an RFC 3339
// time is used unchanged. Empty is the zero time: never.
func ParseExpiry(text string, loc *time.Location) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return firstInstant(day.AddDate(0, 0, 1), loc), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, errors.New("must be a date such as 2027-03-31 or a time such as 2027-03-31T18:00:00Z")
	}
	return t.UTC().Truncate(time.Microsecond), nil
}

// firstInstant returns the first instant at which the clocks of loc show day (given as
// midnight UTC) or a later date: some days have no midnight, some have two, and some were
// skipped.
func firstInstant(day time.Time, loc *time.Location) time.Time {
	at := day.Add(-48 * time.Hour) // no clock is that far ahead
	for {
		_, offset := at.In(loc).Zone()
		_, end := at.In(loc).ZoneBounds()
		midnight := day.Add(-time.Duration(offset) * time.Second)
		if midnight.Before(at) {
			midnight = at // midnight was skipped
		}
		if end.IsZero() || midnight.Before(end) {
			return midnight.UTC()
		}
		at = end
	}
}
