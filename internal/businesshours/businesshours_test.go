package businesshours_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // as in the program

	"github.com/kickstand-dev/kickstand/internal/businesshours"

	"pgregory.net/rapid"
)

func calendar(t testing.TB, zone, hours string, holidays ...string) *businesshours.Calendar {
	t.Helper()
	week, err := businesshours.ParseWeek(hours)
	if err != nil {
		t.Fatal(err)
	}
	c, err := (&businesshours.Hours{TimeZone: zone, Weekly: week, Holidays: holidays}).Calendar()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02T15:04:05.999999999Z07:00", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestWorkingTime(t *testing.T) {
	const office = "mon-fri 09:00-17:00, sat 10:00-14:00"
	for _, c := range []struct {
		name     string
		zone     string
		hours    string
		holidays string
		from     string
		add      time.Duration
		want     string
	}{
		{"within a day", "Europe/Berlin", office, "", "2026-06-15T10:00:00+02:00", 2 * time.Hour, "2026-06-15T12:00:00+02:00"},
		{"up to the evening", "Europe/Berlin", office, "", "2026-06-15T16:00:00+02:00", time.Hour, "2026-06-15T17:00:00+02:00"},
		{"over the evening", "Europe/Berlin", office, "", "2026-06-15T16:00:00+02:00", time.Hour + time.Microsecond, "2026-06-16T09:00:00.000001+02:00"},
		{"from the night", "Europe/Berlin", office, "", "2026-06-15T03:00:00+02:00", 30 * time.Minute, "2026-06-15T09:30:00+02:00"},
		{"from the very end", "Europe/Berlin", office, "", "2026-06-15T17:00:00+02:00", time.Nanosecond, "2026-06-16T09:00:00.000000001+02:00"},
		{"over a weekend", "Europe/Berlin", office, "", "2026-06-12T16:00:00+02:00", 6 * time.Hour, "2026-06-15T10:00:00+02:00"},
		{"over a holiday", "Europe/Berlin", office, "2026-06-16 2026-06-17", "2026-06-15T16:00:00+02:00", 2 * time.Hour, "2026-06-18T10:00:00+02:00"},
		{"from a holiday", "Europe/Berlin", office, "2026-06-15", "2026-06-15T10:00:00+02:00", time.Minute, "2026-06-16T09:01:00+02:00"},
		{"a holiday is of the zone", "Pacific/Auckland", "mon-sun 00:00-24:00", "2026-06-16", "2026-06-15T11:59:00Z", 2 * time.Minute, "2026-06-16T12:01:00Z"},
		{"a lunch break", "Europe/Berlin", "mon-fri 09:00-12:00 13:00-17:00", "", "2026-06-15T11:00:00+02:00", 2 * time.Hour, "2026-06-15T14:00:00+02:00"},
		{"through midnight", "Europe/Berlin", "mon 22:00-24:00, tue 00:00-06:00", "", "2026-06-15T23:00:00+02:00", 2 * time.Hour, "2026-06-16T01:00:00+02:00"},
		{"one hour a week", "UTC", "wed 00:00-01:00", "", "2026-06-17T00:30:00Z", 2 * time.Hour, "2026-07-01T00:30:00Z"},
		{"a year of it", "UTC", "wed 00:00-01:00", "", "2026-06-17T00:00:00Z", 8760 * time.Hour, "2194-04-30T01:00:00Z"},
		{"nothing", "Europe/Berlin", office, "", "2026-06-14T12:00:00+02:00", 0, "2026-06-14T12:00:00+02:00"},
		{"less than nothing", "Europe/Berlin", office, "", "2026-06-15T12:00:00+02:00", -time.Hour, "2026-06-15T12:00:00+02:00"},

		// Berlin sets its clocks forward at 02:00 on 29 March 2026, back at 03:00 on 25 October.
		{"forward, around", "Europe/Berlin", "sun 00:00-24:00", "", "2026-03-29T00:00:00+01:00", 23 * time.Hour, "2026-03-30T00:00:00+02:00"},
		{"forward, over", "Europe/Berlin", "sun 01:00-04:00", "", "2026-03-29T00:00:00+01:00", 2 * time.Hour, "2026-03-29T04:00:00+02:00"},
		{"forward, the hour that is skipped", "Europe/Berlin", "sun 02:00-03:00", "", "2026-03-29T00:00:00+01:00", time.Minute, "2026-04-05T02:01:00+02:00"},
		{"forward, from within the skipped hour", "Europe/Berlin", "sun 02:30-04:00", "", "2026-03-29T00:00:00+01:00", 30 * time.Minute, "2026-03-29T03:30:00+02:00"},
		{"back, around", "Europe/Berlin", "sun 00:00-24:00", "", "2026-10-25T00:00:00+02:00", 25 * time.Hour, "2026-10-26T00:00:00+01:00"},
		{"back, the hour that comes twice", "Europe/Berlin", "sun 02:00-03:00", "", "2026-10-25T00:00:00+02:00", 2 * time.Hour, "2026-10-25T03:00:00+01:00"},
		{"back, adjoining in it", "Europe/Berlin", "sun 00:00-02:30 02:30-24:00", "", "2026-10-25T00:00:00+02:00", 25 * time.Hour, "2026-10-26T00:00:00+01:00"},
		{"back, up to its middle", "Europe/Berlin", "sun 02:00-02:30", "", "2026-10-25T00:00:00+02:00", 30 * time.Minute, "2026-10-25T02:30:00+02:00"},
		{"the hours of next day", "Europe/Berlin", "sat-sun 09:00-17:00", "", "2026-03-28T16:00:00+01:00", 2 * time.Hour, "2026-03-29T10:00:00+02:00"},
		// Cairo goes from 24:00 back to 23:00, and forward from 00:00 to 01:00.
		{"back at midnight", "Africa/Cairo", "thu 22:00-24:00, fri 00:00-01:00", "", "2026-10-29T22:00:00+03:00", 4 * time.Hour, "2026-10-30T01:00:00+02:00"},
		{"forward at midnight", "Africa/Cairo", "fri 00:00-02:00", "", "2026-04-23T12:00:00+02:00", time.Hour, "2026-04-24T02:00:00+03:00"},
		// By half an hour, in the southern hemisphere.
		{"Lord Howe, back", "Australia/Lord_Howe", "sun 01:00-03:00", "", "2026-04-05T00:00:00+11:00", 150 * time.Minute, "2026-04-05T03:00:00+10:30"},
		{"the last day of a leap year", "Europe/Berlin", "sun 09:00-17:00", "", "2028-12-31T16:00:00+01:00", 2 * time.Hour, "2029-01-07T10:00:00+01:00"},
		// Samoa skipped 30 December 2011.
		{"a day that was not", "Pacific/Apia", "fri-sat 00:00-24:00", "", "2011-12-29T00:00:00-10:00", 24 * time.Hour, "2012-01-01T00:00:00+14:00"},
		{"before 1970", "Europe/Berlin", "wed 09:00-17:00", "", "1969-12-31T00:00:00+01:00", 9 * time.Hour, "1970-01-07T10:00:00+01:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cal := calendar(t, c.zone, c.hours, strings.Fields(c.holidays)...)
			from, want := instant(t, c.from), instant(t, c.want)
			if got := cal.Add(from, c.add); !got.Equal(want) {
				t.Errorf("Add(%s, %v)\n got %s\nwant %s", c.from, c.add, got.In(want.Location()).Format(time.RFC3339Nano), c.want)
			}
			if got := cal.Between(from, want); got != max(c.add, 0) {
				t.Errorf("Between(%s, %s) is %v, want %v", c.from, c.want, got, c.add)
			}
		})
	}
}

func TestDayAndNight(t *testing.T) {
	var c *businesshours.Calendar
	from := instant(t, "2026-03-29T00:00:00+01:00")
	to := instant(t, "2026-03-30T00:00:00+02:00")
	if got := c.Between(from, to); got != 23*time.Hour {
		t.Errorf("Between is %v, want 23h", got)
	}
	if got := c.Between(to, from); got != 0 {
		t.Errorf("backwards Between is %v, want 0", got)
	}
	if got := c.Add(from, 23*time.Hour); !got.Equal(to) {
		t.Errorf("Add is %v, want %v", got, to)
	}
}

// anyCalendar draws zones with every kind of clock change, and every kind of hours,
// with whole weeks of holidays.
func anyCalendar(t *rapid.T) *businesshours.Calendar {
	h := businesshours.Hours{
		TimeZone: rapid.SampledFrom([]string{
			"UTC", "Europe/Berlin", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "Africa/Casablanca",
		}).Draw(t, "zone"),
		Weekly: businesshours.Week{},
	}
	for _, day := range rapid.SliceOfNDistinct(rapid.SampledFrom(businesshours.Days[:]), 1, 7, rapid.ID).Draw(t, "days") {
		marks := rapid.SliceOfNDistinct(rapid.IntRange(0, 48), 2, 8, rapid.ID).Draw(t, day)
		slices.Sort(marks)
		for i := 0; i+1 < len(marks); i += 2 {
			clock := func(n int) string { return fmt.Sprintf("%02d:%02d", n/2, n%2*30) }
			h.Weekly[day] = append(h.Weekly[day], businesshours.Interval{From: clock(marks[i]), To: clock(marks[i+1])})
		}
	}
	for range rapid.IntRange(0, 20).Draw(t, "holidays") {
		h.Holidays = append(h.Holidays, time.Date(2026, 1, rapid.IntRange(1, 730).Draw(t, "holiday"), 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
	}
	c, err := h.Calendar()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// anyInstant draws an instant of two years, often near a clock change.
func anyInstant(t *rapid.T, label string) time.Time {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if rapid.Bool().Draw(t, label+" near a change") {
		begin = rapid.SampledFrom([]time.Time{
			time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC),
			time.Date(2026, 4, 23, 22, 0, 0, 0, time.UTC), time.Date(2026, 10, 29, 21, 0, 0, 0, time.UTC),
			time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC), time.Date(2026, 4, 4, 15, 0, 0, 0, time.UTC),
		}).Draw(t, label+" change")
		return begin.Add(time.Duration(rapid.Int64Range(-5*int64(time.Hour), 5*int64(time.Hour)).Draw(t, label)))
	}
	return begin.Add(time.Duration(rapid.Int64Range(0, int64(730*24*time.Hour)).Draw(t, label)))
}

func TestWorkingTimeAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyCalendar(t)
		at := anyInstant(t, "at")
		d := time.Duration(rapid.Int64Range(0, int64(500*time.Hour)).Draw(t, "d"))
		e := time.Duration(rapid.Int64Range(0, int64(500*time.Hour)).Draw(t, "e"))
		end := c.Add(at, d)
		if got := c.Between(at, end); got != d {
			t.Fatalf("Between(%v, Add(%v)) is %v", at, d, got)
		}
		if d > 0 {
			if got := c.Between(at, end.Add(-1)); got >= d {
				t.Fatalf("%v of %v have passed 1 ns before %v already", got, d, end)
			}
		}
		if once, twice := c.Add(at, d+e), c.Add(end, e); !once.Equal(twice) {
			t.Fatalf("Add of %v and %v at once is %v, one after the other %v", d, e, once, twice)
		}
		if d <= e && end.After(c.Add(at, e)) {
			t.Fatalf("Add of %v is later than of %v", d, e)
		}
		times := []time.Time{at, anyInstant(t, "b"), anyInstant(t, "c")}
		slices.SortFunc(times, time.Time.Compare)
		ab, bc, ac := c.Between(times[0], times[1]), c.Between(times[1], times[2]), c.Between(times[0], times[2])
		if ab+bc != ac {
			t.Fatalf("%v + %v are %v", ab, bc, ac)
		}
		if ab < 0 || ab > times[1].Sub(times[0]) {
			t.Fatalf("%v between %v and %v", ab, times[0], times[1])
		}
		if back := c.Between(times[2], times[0]); back != 0 {
			t.Fatalf("backwards: %v", back)
		}
		if c.Add(times[1], d).Before(c.Add(times[0], d)) {
			t.Fatal("a later beginning has an earlier end")
		}
	})
}

func TestHoursAreChecked(t *testing.T) {
	day := func(from, to string) businesshours.Week { return businesshours.Week{"mon": {{From: from, To: to}}} }
	for _, c := range []struct {
		name  string
		hours businesshours.Hours
		want  string
	}{
		{"no zone", businesshours.Hours{Weekly: day("09:00", "17:00")}, "businessHours.timeZone must be an IANA time zone such as Europe/Berlin"},
		{"unknown zone", businesshours.Hours{TimeZone: "Europe/Atlantis", Weekly: day("09:00", "17:00")}, "businessHours.timeZone must be an IANA time zone such as Europe/Berlin"},
		{"this machine's zone", businesshours.Hours{TimeZone: "Local", Weekly: day("09:00", "17:00")}, "businessHours.timeZone must be an IANA time zone such as Europe/Berlin"},
		{"the name of this machine's zone", businesshours.Hours{TimeZone: "localtime", Weekly: day("09:00", "17:00")}, "businessHours.timeZone must be an IANA time zone such as Europe/Berlin"},
		{"a zone with leap seconds", businesshours.Hours{TimeZone: "right/Europe/Berlin", Weekly: day("09:00", "17:00")}, "businessHours.timeZone must be an IANA time zone such as Europe/Berlin"},
		{"no hours", businesshours.Hours{TimeZone: "UTC"}, "businessHours.weekly must have hours on at least one day"},
		{"no hours on a day", businesshours.Hours{TimeZone: "UTC", Weekly: businesshours.Week{"mon": {}}}, "businessHours.weekly must have hours on at least one day"},
		{"unknown day", businesshours.Hours{TimeZone: "UTC", Weekly: businesshours.Week{"monday": {{From: "09:00", To: "17:00"}}}}, `businessHours.weekly may have mon, tue, wed, thu, fri, sat and sun, not "monday"`},
		{"empty interval", businesshours.Hours{TimeZone: "UTC", Weekly: day("09:00", "09:00")}, "businessHours.weekly.mon must end after it begins, at 24:00 at the latest, unlike 09:00-09:00; enter hours after midnight on the next day"},
		{"over midnight", businesshours.Hours{TimeZone: "UTC", Weekly: day("22:00", "06:00")}, "businessHours.weekly.mon must end after it begins, at 24:00 at the latest, unlike 22:00-06:00; enter hours after midnight on the next day"},
		{"no time", businesshours.Hours{TimeZone: "UTC", Weekly: day("9:00", "17:00")}, `businessHours.weekly.mon must have times such as 09:00 or 24:00, not "9:00"`},
		{"after 24:00", businesshours.Hours{TimeZone: "UTC", Weekly: day("09:00", "24:01")}, `businessHours.weekly.mon must have times such as 09:00 or 24:00, not "24:01"`},
		{"overlap", businesshours.Hours{TimeZone: "UTC", Weekly: businesshours.Week{"mon": {{From: "12:00", To: "17:00"}, {From: "09:00", To: "12:01"}}}}, "businessHours.weekly.mon must not have intervals that overlap"},
		{"too many", businesshours.Hours{TimeZone: "UTC", Weekly: businesshours.Week{"mon": make([]businesshours.Interval, 25)}}, "businessHours.weekly.mon must have at most 24 intervals"},
		{"no date", businesshours.Hours{TimeZone: "UTC", Weekly: day("09:00", "17:00"), Holidays: []string{"2026-02-29"}}, "businessHours.holidays.0 must be a date such as 2026-12-25"},
		{"too many holidays", businesshours.Hours{TimeZone: "UTC", Weekly: day("09:00", "17:00"), Holidays: make([]string, 1001)}, "businessHours.holidays must have at most 1000 dates"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.hours.Calendar()
			if err == nil || err.Error() != "invalid: "+c.want {
				t.Errorf("got %v\nwant invalid: %s", err, c.want)
			}
		})
	}
}

func TestParseWeek(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"mon-fri 09:00-17:00, sat 10:00-14:00", ""},
		{"mon 00:00-24:00", ""},
		{"fri-mon 08:00-09:00", "mon 08:00-09:00, fri-sun 08:00-09:00"},
		{"Mon 13:00-17:00 09:00-12:00,mon 18:00-19:00", "mon 09:00-12:00 13:00-17:00 18:00-19:00"},
		{"tue 09:00-17:00, mon 09:00-17:00", "mon-tue 09:00-17:00"},
	} {
		w, err := businesshours.ParseWeek(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if c.want == "" {
			c.want = c.text
		}
		if got := w.String(); got != c.want {
			t.Errorf("%q is %q, want %q", c.text, got, c.want)
		}
	}
	for text, want := range map[string]string{
		"":                                     `"" is not days and hours, such as mon-fri 09:00-17:00`,
		"mon":                                  `"mon" is not days and hours, such as mon-fri 09:00-17:00`,
		"monday 09:00-17:00":                   `"monday" is not a day or days, such as mon or mon-fri`,
		"mon- 09:00-17:00":                     `"mon-" is not a day or days, such as mon or mon-fri`,
		"mon 9-17":                             `mon must have times such as 09:00 or 24:00, not "9"`,
		"mon 09:00":                            `"09:00" is not hours, such as 09:00-17:00`,
		"mon-fri 09:00-17:00, fri 16:00-18:00": "fri must not have intervals that overlap",
	} {
		if _, err := businesshours.ParseWeek(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// A parsed week formats to a text that parses to the same week, and is valid for a
// calendar.
func FuzzParseWeek(f *testing.F) {
	f.Add("mon-fri 09:00-12:00 13:00-17:00, sat 10:00-14:00")
	f.Add("fri-mon 00:00-24:00")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := businesshours.ParseWeek(text)
		if err != nil {
			return
		}
		again, err := businesshours.ParseWeek(w.String())
		if err != nil || again.String() != w.String() {
			t.Errorf("%q became %q, then %q (%v)", text, w, again, err)
		}
		for day, list := range w {
			if len(list) > 24 {
				t.Skip(day, "is too much for a calendar")
			}
		}
		if _, err := (&businesshours.Hours{TimeZone: "UTC", Weekly: w}).Calendar(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func BenchmarkCalendar(b *testing.B) {
	from := instant(b, "2026-06-15T10:00:00Z")
	for _, c := range []struct {
		name, hours string
		d           time.Duration
	}{
		{"8 hours of an office", "mon-fri 09:00-17:00", 8 * time.Hour},
		{"a year of one hour a week", "wed 00:00-01:00", 8760 * time.Hour},
	} {
		b.Run(c.name, func(b *testing.B) {
			cal := calendar(b, "Europe/Berlin", c.hours)
			for b.Loop() {
				cal.Add(from, c.d)
			}
		})
	}
}
