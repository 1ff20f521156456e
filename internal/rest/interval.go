package rest

import (
	"cmp"
	"errors"
	"time"

	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// Interval holds the common parameters of analytics requests (fleet-api.md 7).
type Interval struct {
	From, To    time.Time // whole milliseconds; To is excluded
	TimeZone    string    // IANA
	Location    *time.Location
	Granularity period.Granularity
	GroupBy     []string
}

// MaxGroupBy bounds the fields by which figures are grouped.
const MaxGroupBy = 2

// IntervalParams returns the parameters that [Request.Interval] reads. zone describes the
// default time zone; counted names the counted records, for which groups have rows.
func IntervalParams(zone string, groups []string, counted string) []Param {
	var granularities []string
	for _, g := range period.Granularities {
		granularities = append(granularities, string(g))
	}
	return []Param{
		{Name: "from", Kind: StringParam, Required: true, Doc: "Included: a date, which begins at its first instant in the time zone, or an RFC 3339 time.", Example: "2026-03-01"},
		{Name: "to", Kind: StringParam, Required: true, Doc: "Excluded; likewise.", Example: "2026-04-01"},
		{Name: "granularity", Kind: EnumParam, Values: granularities, Doc: "day unless said otherwise. Weeks begin on Monday. At most 5,000 periods."},
		{Name: "timezone", Kind: StringParam, Doc: "IANA; " + zone + " unless said otherwise.", Example: "Europe/Berlin"},
		{Name: "group_by", Kind: EnumsParam, Values: groups, Doc: "Up to two; then there are rows only for groups that have " + counted + "."},
	}
}

// Interval reads the parameters of [IntervalParams]. zone is the default time zone.
func (r *Request) Interval(zone string) (Interval, error) {
	i := Interval{
		TimeZone: cmp.Or(r.String("timezone"), zone), Granularity: cmp.Or(period.Granularity(r.String("granularity")), period.Day),
		GroupBy: append([]string{}, r.Strings("group_by")...),
	}
	var err error
	if i.Location, err = period.Location(i.TimeZone); err != nil {
		return i, BadParameter("timezone", "timezone %v.", err)
	}
	if i.From, err = r.instant("from", i.Location); err != nil {
		return i, err
	}
	if i.To, err = r.instant("to", i.Location); err != nil {
		return i, err
	}
	if len(i.GroupBy) > MaxGroupBy {
		return i, BadParameter("group_by", "group_by takes at most %d members.", MaxGroupBy)
	}
	switch _, err := period.Split(i.From, i.To, i.Granularity, i.Location); {
	case errors.Is(err, period.ErrTooMany):
		e := problem.New(problem.Unparseable, "%v", err)
		e.Code = "range_too_large"
		return i, e
	case err != nil:
		return i, BadParameter("to", "to must be after from.")
	}
	return i, nil
}

// instant reads a parameter that is a date or a time, truncated to milliseconds.
func (r *Request) instant(name string, loc *time.Location) (time.Time, error) {
	text := r.String(name)
	var t time.Time
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		t = period.StartOf(day.Year(), day.Month(), day.Day(), loc)
	} else if t, err = rfc3339.Parse(text); err != nil {
		return t, BadParameter(name, "%s must be a date or an RFC 3339 time, such as 2026-03-14 or 2026-03-14T09:26:53Z; a + is written %%2B.", name)
	}
	// The answer shows it in UTC and in loc, both with years of four digits.
	for _, year := range []int{t.UTC().Year(), t.In(loc).Year()} {
		if year < 0 || year > 9999 {
			return t, BadParameter(name, "%s must be in the years 0000 to 9999.", name)
		}
	}
	return t.Truncate(time.Millisecond), nil
}

// Local formats a time in its zone, without offset.
func Local(t time.Time) string {
	if t.Nanosecond() != 0 {
		return t.Format("2006-01-02T15:04:05.000Z07:00")
	}
	return t.Format(time.RFC3339)
}
