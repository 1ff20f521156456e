package web

import (
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// zoneCookie is where a browser keeps the name of its time zone (IANA), which a
// script of ours finds out. It only changes how times are written.
const zoneCookie = "kickstand-zone"

// readerZone returns the zone of whoever sent r; UTC until it is known.
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

// Time is a moment as its reader is told it. The template "when" shows it whole,
// "ago" and "clock" shorter with the whole on hover. The zero value shows nothing.
type Time struct {
	at, now time.Time
}

// At returns t in the zone of now, which is when the page is made.
func At(t, now time.Time) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{t.In(now.Location()), now}
}

// IsZero reports whether there is nothing to show.
func (t Time) IsZero() bool { return t.at.IsZero() }

// Machine is the moment for the attribute datetime.
func (t Time) Machine() string { return t.at.UTC().Format(time.RFC3339) }

// Exact is the moment in full: "Sat 21 Nov 2026, 10:42:07 CET".
func (t Time) Exact() string { return t.at.Format("Mon 2 Jan 2006, 15:04:05 MST") }

// When is date and time: "21 Nov 2026, 10:42".
func (t Time) When() string { return t.at.Format("2 Jan 2006, 15:04") }

// Clock is the time of day: "10:42".
func (t Time) Clock() string { return t.at.Format("15:04") }

// Day is the date: "Today", "Yesterday", "Fri 20 Nov" or, of another year, "20 Nov 2025".
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
	return t.at.Format("2 Jan 2006")
}

// Ago is how long it is to or from now, in one unit: "now", "5 min", "in 3 h",
// "2 d"; from a month on the date. The script times.js writes the same.
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
		return t.at.Format("2 Jan")
	}
	return t.at.Format("2 Jan 2006")
}
