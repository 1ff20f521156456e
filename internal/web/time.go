package web

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/period"
)

// zoneCookie holds the browser's time zone (an IANA name), set by times.js. It affects
// only how times are formatted.
const zoneCookie = "kickstand-zone"

// readerZone returns the time zone of the user's preferences, else of the browser that
// sent r; UTC and false if both are unknown.
func readerZone(r *http.Request, p *account.Preferences) (zone *time.Location, known bool) {
	if zone, err := period.Location(p.TimeZone); err == nil {
		return zone, true
	}
	c, err := r.Cookie(zoneCookie)
	if err != nil {
		return time.UTC, false
	}
	name, err := url.QueryUnescape(c.Value)
	if err != nil || len(name) > 64 {
		return time.UTC, false
	}
	if zone, err = period.Location(name); err != nil {
		return time.UTC, false
	}
	return zone, true
}

// dateForm is a form of dates and times: layouts of package time.
type dateForm struct {
	date    string // "2 Jan 2006"
	short   string // without the year, if the form has such dates
	clock   string // "15:04"
	seconds string // the clock with seconds
}

// newDateForm returns the form of preferences; the default for the zero value.
func newDateForm(p *account.Preferences) dateForm {
	f := dateForm{date: cmp.Or(p.DateForm, account.DateForms[0]), clock: "15:04", seconds: "15:04:05"}
	switch f.date {
	case "2 Jan 2006":
		f.short = "2 Jan"
	case "02.01.2006":
		f.short = "02.01."
	case "01/02/2006":
		f.short = "01/02"
	default:
		f.short = f.date
	}
	if p.Clock == account.Clock12 {
		f.clock, f.seconds = "3:04 PM", "3:04:05 PM"
	}
	return f
}

// Date formats a date in the user's form: "2 Jan 2006".
func (r *Request) Date(t time.Time) string { return t.Format(newDateForm(&r.Preferences).date) }

// ShortDate formats a date without its year: "2 Jan".
func (r *Request) ShortDate(t time.Time) string { return t.Format(newDateForm(&r.Preferences).short) }

// LongDate formats a date with its weekday: "Mon 2 Jan 2006".
func (r *Request) LongDate(t time.Time) string {
	return t.Format("Mon " + newDateForm(&r.Preferences).date)
}

// DateTimeLocal formats a time as the value of a field of type datetime-local.
func DateTimeLocal(t time.Time) string { return t.Format("2006-01-02T15:04") }

// Time is a time in the user's zone and form. The template "when" renders it in full, "ago" and
// "clock" short with the full one on hover. The zero value renders nothing.
type Time struct {
	at, now time.Time
	form    dateForm
}

// Time returns t in the user's time zone and form.
func (r *Request) Time(t time.Time) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{t.In(r.Now.Location()), r.Now, newDateForm(&r.Preferences)}
}

func (t Time) IsZero() bool { return t.at.IsZero() }

// Machine formats the time for the datetime attribute.
func (t Time) Machine() string { return t.at.UTC().Format(time.RFC3339) }

// Exact formats the full time: "Sat 21 Nov 2026, 10:42:07 CET".
func (t Time) Exact() string {
	return t.at.Format("Mon " + t.form.date + ", " + t.form.seconds + " MST")
}

// When formats date and time: "21 Nov 2026, 10:42".
func (t Time) When() string { return t.at.Format(t.form.date + ", " + t.form.clock) }

// Clock formats the time of day: "10:42".
func (t Time) Clock() string { return t.at.Format(t.form.clock) }

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
		return t.at.Format("Mon " + t.form.short)
	}
	return t.at.Format(t.form.date)
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
		return t.at.Format(t.form.short)
	}
	return t.at.Format(t.form.date)
}
