package period_test

import (
	"errors"
	"testing"
	"time"
	_ "time/tzdata" // for tests on any machine

	"github.com/kickstand-dev/kickstand/internal/period"

	"pgregory.net/rapid"
)

func location(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := period.Location(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestDays has the table of fleet-api.md section 7 and rarer dates.
func TestDays(t *testing.T) {
	for _, c := range []struct {
		zone             string
		year, month, day int
		first            string
		length           time.Duration
		hours            int
	}{
		{"Europe/Berlin", 2026, 3, 29, "2026-03-28T23:00:00Z", 23 * time.Hour, 23},
		{"Europe/Berlin", 2026, 10, 25, "2026-10-24T22:00:00Z", 25 * time.Hour, 25},
		{"America/Santiago", 2026, 9, 6, "2026-09-06T04:00:00Z", 23 * time.Hour, 23},
		{"America/Havana", 2026, 3, 8, "2026-03-08T05:00:00Z", 23 * time.Hour, 23},
		{"America/Havana", 2026, 11, 1, "2026-11-01T04:00:00Z", 25 * time.Hour, 25},
		{"Australia/Lord_Howe", 2026, 4, 5, "2026-04-04T13:00:00Z", 24*time.Hour + 30*time.Minute, 24},
		{"Australia/Lord_Howe", 2026, 10, 4, "2026-10-03T13:30:00Z", 23*time.Hour + 30*time.Minute, 23},
		{"UTC", 2026, 2, 28, "2026-02-28T00:00:00Z", 24 * time.Hour, 24},
		{"Asia/Kathmandu", 2026, 5, 1, "2026-04-30T18:15:00Z", 24 * time.Hour, 24},
		// The clocks were set back from 00:01 to 23:01 of the previous day.
		{"America/St_Johns", 2010, 11, 7, "2010-11-07T02:30:00Z", 25 * time.Hour, 25},
		// Samoa skipped 30 December.
		{"Pacific/Apia", 2011, 12, 31, "2011-12-30T10:00:00Z", 24 * time.Hour, 24},
		{"Pacific/Apia", 2011, 12, 30, "2011-12-30T10:00:00Z", 0, 0},
	} {
		loc := location(t, c.zone)
		from := period.StartOf(c.year, time.Month(c.month), c.day, loc)
		to := period.StartOf(c.year, time.Month(c.month), c.day+1, loc)
		if !from.Equal(instant(t, c.first)) || to.Sub(from) != c.length {
			t.Errorf("%s %d-%d-%d: begins %v and lasts %v, want %s and %v", c.zone, c.year, c.month, c.day, from.UTC(), to.Sub(from), c.first, c.length)
		}
		hours, err := period.Split(from, to, period.Hour, loc)
		if len(hours) != c.hours || (err != nil) != (c.hours == 0) {
			t.Errorf("%s %d-%d-%d: got %d hours, %v, want %d", c.zone, c.year, c.month, c.day, len(hours), err, c.hours)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		zone, from, to string
		granularity    period.Granularity
		want           []string // edges
	}{
		{"Europe/Berlin", "2026-10-25T00:30:00+02:00", "2026-10-25T03:30:00+01:00", period.Hour, []string{
			"2026-10-25T00:30:00+02:00", "2026-10-25T01:00:00+02:00", "2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00",
			"2026-10-25T03:00:00+01:00", "2026-10-25T03:30:00+01:00"}},
		{"Australia/Lord_Howe", "2026-04-05T00:00:00+11:00", "2026-04-05T03:00:00+10:30", period.Hour, []string{
			"2026-04-05T00:00:00+11:00", "2026-04-05T01:00:00+11:00", "2026-04-05T02:00:00+10:30", "2026-04-05T03:00:00+10:30"}},
		{"Europe/Berlin", "2026-03-28T12:00:00+01:00", "2026-03-31T00:00:00+02:00", period.Day, []string{
			"2026-03-28T12:00:00+01:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", "2026-03-31T00:00:00+02:00"}},
		{"Europe/Berlin", "2025-12-31T00:00:00+01:00", "2026-01-13T00:00:00+01:00", period.Week, []string{
			"2025-12-31T00:00:00+01:00", "2026-01-05T00:00:00+01:00", "2026-01-12T00:00:00+01:00", "2026-01-13T00:00:00+01:00"}},
		{"America/Santiago", "2026-08-31T00:00:00-04:00", "2026-09-14T00:00:00-03:00", period.Week, []string{
			"2026-08-31T00:00:00-04:00", "2026-09-07T00:00:00-03:00", "2026-09-14T00:00:00-03:00"}},
		{"Europe/Berlin", "2026-01-31T00:00:00+01:00", "2026-05-01T00:00:00+02:00", period.Month, []string{
			"2026-01-31T00:00:00+01:00", "2026-02-01T00:00:00+01:00", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00", "2026-05-01T00:00:00+02:00"}},
		{"Pacific/Apia", "2011-12-29T00:00:00-10:00", "2012-01-01T00:00:00+14:00", period.Day, []string{
			"2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"}},
		{"UTC", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", period.Total, []string{"2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"}},
	} {
		periods, err := period.Split(instant(t, c.from), instant(t, c.to), c.granularity, location(t, c.zone))
		if err != nil || len(periods) != len(c.want)-1 {
			t.Errorf("%s of %s to %s: got %v, %v, want %v", c.granularity, c.from, c.to, periods, err, c.want)
			continue
		}
		for i, p := range periods {
			if start, end := p.Start.Format(time.RFC3339), p.End.Format(time.RFC3339); start != c.want[i] || end != c.want[i+1] {
				t.Errorf("%s %d of %s to %s: got %s to %s, want %s to %s", c.granularity, i, c.from, c.to, start, end, c.want[i], c.want[i+1])
			}
		}
	}
}

func TestSplitRefuses(t *testing.T) {
	at := instant(t, "2026-01-01T00:00:00Z")
	for _, c := range []struct {
		to          time.Time
		granularity period.Granularity
		want        error
	}{
		{at, period.Day, period.ErrEmpty},
		{at.Add(-time.Second), period.Day, period.ErrEmpty},
		{at.Add(5000 * time.Hour), period.Hour, nil},
		{at.Add(5000*time.Hour + 1), period.Hour, period.ErrTooMany},
		{at.AddDate(1000, 0, 0), period.Day, period.ErrTooMany},
		{at.Add(time.Hour), "minute", period.ErrUnknown},
	} {
		if _, err := period.Split(at, c.to, c.granularity, time.UTC); !errors.Is(err, c.want) {
			t.Errorf("%s to %v: got %v, want %v", c.granularity, c.to, err, c.want)
		}
	}
}

// TestSplitProperties: periods are contiguous, and each but the first begins at an edge.
func TestSplitProperties(t *testing.T) {
	zones := []string{"Europe/Berlin", "America/Santiago", "America/Havana", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia", "Asia/Kathmandu", "Africa/Casablanca", "UTC"}
	rapid.Check(t, func(rt *rapid.T) {
		loc := location(t, rapid.SampledFrom(zones).Draw(rt, "zone"))
		g := rapid.SampledFrom(period.Granularities[:]).Draw(rt, "granularity")
		from := time.UnixMilli(rapid.Int64Range(1e12, 2e12).Draw(rt, "from"))
		to := from.Add(time.Duration(rapid.Int64Range(1, 2000).Draw(rt, "hours")) * time.Hour)
		periods, err := period.Split(from, to, g, loc)
		if err != nil {
			rt.Fatal(err)
		}
		for i, p := range periods {
			if !p.Start.Equal(from) || !p.Start.Before(p.End) {
				rt.Fatalf("period %d is %v to %v, want it to begin at %v", i, p.Start, p.End, from)
			}
			if from = p.End; i == 0 {
				continue
			}
			before := p.Start.Add(-time.Nanosecond)
			var ok bool
			switch g {
			case period.Hour:
				ok = p.Start.Minute() == 0 && p.Start.Second() == 0
			case period.Day:
				ok = p.Start.Day() != before.Day()
			case period.Week:
				ok = p.Start.Weekday() == time.Monday && before.Weekday() != time.Monday
			case period.Month:
				ok = p.Start.Day() == 1 && before.Day() != 1
			}
			if !ok {
				rt.Fatalf("%s %d begins at %v", g, i, p.Start)
			}
		}
		if !from.Equal(to) {
			rt.Fatalf("the last ends at %v, want %v", from, to)
		}
	})
}

func TestRange(t *testing.T) {
	at := time.UnixMicro(5)
	between := at.Add(500) // nanoseconds
	for _, c := range []struct {
		r           period.Range
		first, last int64
	}{
		{period.Range{Low: &at, High: &at}, 5, 5},
		{period.Range{Low: &at, High: &at, LowOpen: true, HighOpen: true}, 6, 4},
		{period.Range{Low: &between, High: &between}, 6, 5},
		{period.Range{Low: &between, High: &between, LowOpen: true, HighOpen: true}, 6, 5},
	} {
		if first, last := c.r.Micros(); first != c.first || last != c.last {
			t.Errorf("%+v: got %d to %d, want %d to %d", c.r, first, last, c.first, c.last)
		}
		for micro := int64(3); micro < 9; micro++ {
			if got, want := c.r.Contains(time.UnixMicro(micro)), micro >= c.first && micro <= c.last; got != want {
				t.Errorf("%+v contains %d: got %t, want %t", c.r, micro, got, want)
			}
		}
	}
}

func TestLocationRefuses(t *testing.T) {
	for _, name := range []string{"", "Local", "localtime", "posixrules", "Factory", "posix/UTC", "right/UTC", "Mars/Olympus", "../etc"} {
		if loc, err := period.Location(name); err == nil {
			t.Errorf("%q: got %v, want an error", name, loc)
		}
	}
}
