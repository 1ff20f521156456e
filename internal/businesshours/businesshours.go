// Package businesshours computes in business time: an organization's weekly hours in its time
// zone, without its holidays.
//
// [Hours] are the stored settings; a [Calendar] is computed from valid ones and never changes,
// so that any number of goroutines may use it.
package businesshours

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Hours are the business hours of an organization.
type Hours struct {
	TimeZone string   `json:"time_zone"` // IANA: Europe/Berlin
	Weekly   Week     `json:"weekly"`
	Holidays []string `json:"holidays,omitempty"` // 2026-12-25; a day without business hours
}

// Week has the hours of each weekday: mon, tue, wed, thu, fri, sat, sun. A missing
// day has none. The intervals of a day do not overlap.
type Week map[string][]Interval

// Interval is a range of local time: from 00:00 up to 24:00.
type Interval struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Days are the names of the weekdays, in the order of a [Week].
var Days = [...]string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

// Bounds of the arithmetic.
const (
	maxIntervals = 24 // a day
	maxHolidays  = 1000
)

// Check adds the issues of h to v; path is the field of h in the input.
func (h *Hours) Check(v *problem.Validation, path string) {
	if _, err := period.Location(h.TimeZone); err != nil {
		v.Add(path+".timeZone", "%v", err)
	}
	some := false
	for _, name := range sortedDays(h.Weekly) {
		at := path + ".weekly." + name
		list := h.Weekly[name]
		some = some || len(list) > 0
		switch {
		case !slices.Contains(Days[:], name):
			v.Add(path+".weekly", "may have mon, tue, wed, thu, fri, sat and sun, not %.20q", name)
			continue
		case len(list) > maxIntervals:
			v.Add(at, "must have at most %d intervals", maxIntervals)
			continue
		}
		if _, err := spans(list); err != nil {
			v.Add(at, "%v", err)
		}
	}
	if !some {
		v.Add(path+".weekly", "must have hours on at least one day")
	}
	if len(h.Holidays) > maxHolidays {
		v.Add(path+".holidays", "must have at most %d dates", maxHolidays)
		return
	}
	for i, day := range h.Holidays {
		if _, err := time.Parse(time.DateOnly, day); err != nil {
			v.Add(path+".holidays."+strconv.Itoa(i), "must be a date such as 2026-12-25")
		}
	}
}

// sortedDays returns the keys of w: valid days in order, then invalid ones.
func sortedDays(w Week) []string {
	names := make([]string, 0, len(w))
	for name := range w {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(uint(slices.Index(Days[:], a)), uint(slices.Index(Days[:], b))), strings.Compare(a, b))
	})
	return names
}

// WeeklyMinutes returns the business minutes of a week, apart from clock changes.
// Invalid intervals count nothing.
func (h *Hours) WeeklyMinutes() int64 {
	var seconds int64
	for _, list := range h.Weekly {
		day, _ := spans(list)
		for _, s := range day {
			seconds += s.to - s.from
		}
	}
	return seconds / 60
}

// Normalized returns h with sorted intervals and sorted, distinct holidays.
func (h Hours) Normalized() Hours {
	week := make(Week, len(h.Weekly))
	for name, list := range h.Weekly {
		if len(list) > 0 {
			week[name] = slices.SortedFunc(slices.Values(list), func(a, b Interval) int { return strings.Compare(a.From, b.From) })
		}
	}
	h.Weekly = week
	h.Holidays = slices.Compact(slices.Sorted(slices.Values(h.Holidays)))
	return h
}

// span is an interval in seconds since midnight.
type span struct{ from, to int64 }

// spans returns the intervals of a day in order, or an error that describes the
// invalid one.
func spans(list []Interval) ([]span, error) {
	out := make([]span, len(list))
	for i, in := range list {
		from, err := timeOfDay(in.From)
		if err != nil {
			return nil, err
		}
		to, err := timeOfDay(in.To)
		if err != nil {
			return nil, err
		}
		if from >= to {
			return nil, fmt.Errorf("must end after it begins, at 24:00 at the latest, unlike %s-%s; enter hours after midnight on the next day", in.From, in.To)
		}
		out[i] = span{from, to}
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for i := 1; i < len(out); i++ {
		if out[i].from < out[i-1].to {
			return nil, errors.New("must not have intervals that overlap")
		}
	}
	return out, nil
}

// timeOfDay parses "09:30" to seconds since midnight; 24:00 is the end of the day.
func timeOfDay(s string) (int64, error) {
	digit := func(i int) int64 { return int64(s[i]) - '0' }
	if len(s) == 5 && s[2] == ':' && strings.Trim(s[:2]+s[3:], "0123456789") == "" {
		hour, minute := 10*digit(0)+digit(1), 10*digit(3)+digit(4)
		if hour < 24 && minute < 60 || hour == 24 && minute == 0 {
			return hour*3600 + minute*60, nil
		}
	}
	return 0, fmt.Errorf("must have times such as 09:00 or 24:00, not %.20q", s)
}

// ParseWeek parses the notation of people: "mon-fri 09:00-12:00 13:00-17:00, sat
// 10:00-14:00". It validates as [Hours] do.
func ParseWeek(text string) (Week, error) {
	week := make(Week)
	for part := range strings.SplitSeq(text, ",") {
		fields := strings.Fields(part)
		if len(fields) < 2 {
			return nil, fmt.Errorf("%q is not days and hours, such as mon-fri 09:00-17:00", strings.TrimSpace(part))
		}
		first, last, isRange := strings.Cut(strings.ToLower(fields[0]), "-")
		from, to := slices.Index(Days[:], first), slices.Index(Days[:], last)
		if !isRange {
			to = from
		}
		if from < 0 || to < 0 {
			return nil, fmt.Errorf("%q is not a day or days, such as mon or mon-fri", fields[0])
		}
		var list []Interval
		for _, f := range fields[1:] {
			a, b, ok := strings.Cut(f, "-")
			if !ok {
				return nil, fmt.Errorf("%q is not hours, such as 09:00-17:00", f)
			}
			list = append(list, Interval{a, b})
		}
		for day := from; ; day = (day + 1) % 7 {
			week[Days[day]] = append(week[Days[day]], list...)
			if day == to {
				break
			}
		}
	}
	for _, name := range Days {
		if _, err := spans(week[name]); err != nil {
			return nil, fmt.Errorf("%s %w", name, err)
		}
	}
	return Hours{Weekly: week}.Normalized().Weekly, nil
}

// String formats the week for [ParseWeek], and groups days with the same hours.
func (w Week) String() string {
	hours := func(day int) string {
		var b strings.Builder
		for _, in := range w[Days[day]] {
			b.WriteString(" " + in.From + "-" + in.To)
		}
		return b.String()
	}
	var parts []string
	for day := 0; day < 7; {
		last, text := day, hours(day)
		for last < 6 && hours(last+1) == text {
			last++
		}
		switch {
		case text == "":
		case last == day:
			parts = append(parts, Days[day]+text)
		default:
			parts = append(parts, Days[day]+"-"+Days[last]+text)
		}
		day = last + 1
	}
	return strings.Join(parts, ", ")
}

// Calendar computes in business time. The nil Calendar is always open.
//
// Clock changes: an interval begins at the first instant at which local time
// reaches its beginning, and ends likewise. So a skipped hour has no business time,
// a repeated hour counts twice, and a day open from 00:00 to 24:00 then has 23 or
// 25 hours.
type Calendar struct {
	loc      *time.Location
	week     [7][]span // Sunday first, like time.Weekday
	holidays []int64   // days since 1970, in order
}

// Calendar returns the calendar of h; of nil it is nil. Its error is a
// [problem.Invalid] one.
func (h *Hours) Calendar() (*Calendar, error) {
	if h == nil {
		return nil, nil
	}
	var v problem.Validation
	h.Check(&v, "businessHours")
	if err := v.Err(); err != nil {
		return nil, err
	}
	c := new(Calendar)
	c.loc, _ = period.Location(h.TimeZone) // checked
	for i, name := range Days {
		c.week[(i+1)%7], _ = spans(h.Weekly[name])
	}
	for _, day := range h.Holidays {
		t, _ := time.Parse(time.DateOnly, day)
		c.holidays = append(c.holidays, t.Unix()/daySeconds)
	}
	slices.Sort(c.holidays)
	return c, nil
}

// Add returns the first instant by which d of business time has passed since t; t
// itself if d is not positive.
func (c *Calendar) Add(t time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return t
	}
	if c == nil {
		return t.Add(d)
	}
	for from, to := range c.openIntervals(t) {
		if left := to.Sub(from); left < d {
			d -= left
		} else {
			return from.Add(d).In(t.Location())
		}
	}
	return t // not reached: open intervals never end
}

// Between returns the business time from a to b; 0 if b is not after a.
func (c *Calendar) Between(a, b time.Time) time.Duration {
	switch {
	case !a.Before(b):
		return 0
	case c == nil:
		return b.Sub(a)
	}
	var sum time.Duration
	for from, to := range c.openIntervals(a) {
		if !from.Before(b) {
			break
		}
		if to.After(b) {
			to = b
		}
		sum += to.Sub(from)
	}
	return sum
}

const daySeconds = 24 * 60 * 60

// openIntervals yields the open intervals from t on, without end, in order and
// never empty.
func (c *Calendar) openIntervals(t time.Time) iter.Seq2[time.Time, time.Time] {
	return func(yield func(from, to time.Time) bool) {
		z := zone{loc: c.loc}
		z.load(t.Unix())
		// Start a day early: clocks may have been set back over midnight.
		for day := floorDiv(t.Unix()+z.offset, daySeconds) - 1; ; day++ {
			list := c.week[((day+4)%7+7)%7] // day 0 was a Thursday
			if len(list) == 0 {
				continue
			}
			if _, free := slices.BinarySearch(c.holidays, day); free {
				continue
			}
			for _, s := range list {
				to := time.Unix(z.first(day*daySeconds+s.to), 0)
				if !to.After(t) {
					continue
				}
				from := time.Unix(z.first(day*daySeconds+s.from), 0)
				if from.Before(t) {
					from = t
				}
				if from.Before(to) && !yield(from, to) {
					return
				}
			}
		}
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// zone converts local time to instants. It caches the last period without a clock
// change.
type zone struct {
	loc                *time.Location
	start, end, offset int64 // of the period, in Unix seconds, and seconds east of UTC
}

// load caches the period around a time.
func (z *zone) load(at int64) {
	t := time.Unix(at, 0).In(z.loc)
	start, end := t.ZoneBounds()
	z.start, z.end = -1<<62, 1<<62
	if !start.IsZero() {
		z.start = start.Unix()
	}
	if !end.IsZero() {
		z.end = end.Unix()
	}
	z.offset = z.offsetAt(at)
	if z.end <= at {
		// If the zone's rules continue the table, package time ends leap years a day
		// early.
		z.end = at + int64(sort.Search(daySeconds, func(n int) bool { return z.offsetAt(at+int64(n)) != z.offset }))
	}
}

func (z *zone) offsetAt(at int64) int64 {
	_, offset := time.Unix(at, 0).In(z.loc).Zone()
	return int64(offset)
}

// first returns the first instant, in Unix seconds, at which local time is at least
// wall, given as if it were UTC.
func (z *zone) first(wall int64) int64 {
	// Offsets differ by less than two days, so local times that far into a period have
	// not occurred before it.
	const far = 2 * daySeconds
	if at := wall - z.offset; z.start+far <= at && at < z.end {
		return at
	}
	for z.load(wall - far); ; z.load(z.end) {
		if at := max(wall-z.offset, z.start); at < z.end {
			return at
		}
	}
}
