// Package period divides time into the periods of analytics: hours, days, weeks and
// months of a time zone (fleet-api.md section 7).
//
// Edges are instants. A day runs from the first instant of a local date to that of the
// next, however the clocks change; a week from that of a Monday, a month from that of its
// first day. An hour runs between instants at which the local clock shows minute 00. So
// periods neither overlap nor leave gaps, and a date that a zone skipped has no period.
package period

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// Granularity is the length of periods.
type Granularity string

// The granularities. [Total] is a single period.
const (
	Hour  Granularity = "hour"
	Day   Granularity = "day"
	Week  Granularity = "week" // from Monday
	Month Granularity = "month"
	Total Granularity = "total"
)

// Granularities lists all, in order.
var Granularities = [...]Granularity{Hour, Day, Week, Month, Total}

// Period is a half-open interval: from Start to before End, both in the zone.
type Period struct {
	Start, End time.Time
}

// Max is the maximum number of periods that [Split] returns.
const Max = 5000

// The errors of [Split].
var (
	ErrEmpty   = errors.New("the end must be after the beginning")
	ErrTooMany = errors.New("the range has more than 5,000 periods")
	ErrUnknown = errors.New("the granularity must be one of hour, day, week, month, total")
)

// Split divides the time from from to before to into periods, in order. The first and the
// last are clipped to from and to.
func Split(from, to time.Time, g Granularity, loc *time.Location) ([]Period, error) {
	if !slices.Contains(Granularities[:], g) {
		return nil, ErrUnknown
	}
	from, to = from.In(loc), to.In(loc)
	if !from.Before(to) {
		return nil, ErrEmpty
	}
	var periods []Period
	for from.Before(to) {
		if len(periods) == Max {
			return nil, ErrTooMany
		}
		end := to
		if g != Total {
			if edge := next(from, g); edge.Before(to) {
				end = edge
			}
		}
		periods = append(periods, Period{from, end})
		from = end
	}
	return periods, nil
}

// next returns the first edge after t, in t's zone.
func next(t time.Time, g Granularity) time.Time {
	if g == Hour {
		return nextHour(t)
	}
	year, month, day := t.Date()
	var months, days int
	switch g {
	case Day:
		days = 1
	case Week:
		day -= (int(t.Weekday()) + 6) % 7
		days = 7
	case Month:
		day, months = 1, 1
	}
	for {
		month += time.Month(months)
		day += days
		// If clocks are set back across midnight, the date of t may begin, end and begin
		// again.
		if edge := StartOf(year, month, day, t.Location()); edge.After(t) {
			return edge
		}
	}
}

// StartOf returns the first instant of a local date or, if the zone skipped it, of the
// next. Month and day may be out of range, as in [time.Date].
func StartOf(year int, month time.Month, day int, loc *time.Location) time.Time {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
	// No zone is a whole day from UTC, so the date has not begun there.
	for t := time.Unix(midnight-24*3600-1, 0).In(loc); ; {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		if first := max(t.Unix(), midnight-int64(offset)); end.IsZero() || first < end.Unix() {
			return time.Unix(first, 0).In(loc)
		}
		t = end
	}
}

// nextHour returns the first instant after t at which the clock shows minute 00.
func nextHour(t time.Time) time.Time {
	for at, strictly := t.Unix(), int64(1); ; strictly = 0 {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		wall := at + int64(offset) + strictly + 3599
		edge := wall - mod(wall, 3600) - int64(offset)
		if end.IsZero() || edge < end.Unix() {
			return time.Unix(edge, 0).In(t.Location())
		}
		t, at = end, end.Unix()
	}
}

func mod(a, b int64) int64 { return (a%b + b) % b }

// Location is [time.LoadLocation] without names that depend on the machine.
func Location(name string) (*time.Location, error) {
	switch {
	case name == "", name == "Local", name == "Factory":
	case name == "localtime", name == "posixrules": // files next to the zones on many systems
	case strings.HasPrefix(name, "posix/"), strings.HasPrefix(name, "right/"):
	default:
		if loc, err := time.LoadLocation(name); err == nil {
			return loc, nil
		}
	}
	return nil, errors.New("must be an IANA time zone such as Europe/Berlin")
}
