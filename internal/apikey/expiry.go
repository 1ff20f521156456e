package apikey

import (
	"errors"
	"time"
)

// ParseExpiry reads when a key expires: the moment from which it no longer
// works. A date is its last day in loc, so the moment is the first of the day
// after; an RFC 3339 time is taken as it is. Empty is the zero time: never.
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

// firstInstant returns the first moment at which the clocks of loc show the day
// (given as its midnight in UTC) or a later one: there are days that have no
// midnight, days that have two, and days that were left out.
func firstInstant(day time.Time, loc *time.Location) time.Time {
	at := day.Add(-48 * time.Hour) // no clock is this far ahead
	for {
		_, offset := at.In(loc).Zone()
		_, end := at.In(loc).ZoneBounds()
		midnight := day.Add(-time.Duration(offset) * time.Second)
		if midnight.Before(at) {
			midnight = at // the clocks were put forward over it
		}
		if end.IsZero() || midnight.Before(end) {
			return midnight.UTC()
		}
		at = end
	}
}
