package web

import (
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// zoneCookie holds the browser's time zone (an IANA name), set by times.js. It affects
// only how times are formatted.
const zoneCookie = "kickstand-zone"

// readerZone returns the time zone of the browser that sent r, or UTC if unknown.
func readerZone(r *http.Request) *time.Location {
	c, err := r.Cookie(zoneCookie)
	if err != nil {
		return time.UTC
	}
	name, err := url.QueryUnescape(c.Value)
	if err != nil || len(name) > 64 || name == "Local" {
		return time.UTC
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return zone
}

// Date formats a date: "2 Jan 2006".
func Date(t time.Time) string { return t.Format("2 Jan 2006") }

// ShortDate formats a date without its year: "2 Jan".
func ShortDate(t time.Time) string { return t.Format("2 Jan") }

// LongDate formats a date with its weekday: "Mon 2 Jan 2006".
func LongDate(t time.Time) string { return t.Format("Mon 2 Jan 2006") }

// DateTimeLocal formats a time as the value of a field of type datetime-local.
func DateTimeLocal(t time.Time) string { return t.Format("2006-01-02T15:04") }

// Time is a time in the user's zone. The template "when" renders it in full, "ago" and
// "clock" short with the full one on hover. The zero value renders nothing.
type Time struct {
	at, now time.Time
}

// At returns t in the zone of now, the time of the page.
func At(t, now time.Time) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{t.In(now.Location()), now}
}

func (t Time) IsZero() bool { return t.at.IsZero() }

// Machine formats the time for the datetime attribute.
func (t Time) Machine() string { return t.at.UTC().Format(time.RFC3339) }

// Exact formats the full time: "Sat 21 Nov 2026, 10:42:07 CET".
func (t Time) Exact() string { return LongDate(t.at) + t.at.Format(", 15:04:05 MST") }

// When formats date and time: "21 Nov 2026, 10:42".
func (t Time) When() string { return Date(t.at) + ", " + t.Clock() }

// Clock formats the time of day: "10:42".
func (t Time) Clock() string { return t.at.Format("15:04") }

// Day formats the date: "Today", "Yesterday", "Fri 20 Nov" or, in another year, "20 Nov
// 2025".
func (t Time) Day() string {
	y, m, d := t.now.Date()
	for back, name := range []string{"Today", "Yesterday"} {
		if ty, tm, td := t.at.Date(); time.Date(y, m, d-back, 0, 0, 0, 0, time.UTC).Equal(time.Date(ty, tm, td, 0, 0, 0, 0, time.UTC)) {
			return name
		}
	}
	if t.at.Year() == y {
		return t.at.Format("Mon 2 Jan")
	}
	return Date(t.at)
}

// Ago formats the distance from now in one unit: "now", "5 min", "in 3 h", "2 d"; from a
// month on the date. times.js must match.
func (t Time) Ago() string {
	d := t.now.Sub(t.at)
	format := "%d %s"
	if d < 0 {
		d, format = -d, "in %d %s"
	}
	switch {
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf(format, d/time.Minute, "min")
	case d < 24*time.Hour:
		return fmt.Sprintf(format, d/time.Hour, "h")
	case d < 30*24*time.Hour:
		return fmt.Sprintf(format, d/(24*time.Hour), "d")
	case t.at.Year() == t.now.Year():
		return ShortDate(t.at)
	}
	return Date(t.at)
}
