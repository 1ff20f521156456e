// Package rfc3339 provides [Time], a time in JSON: RFC 3339 with any offset as input, UTC with
// milliseconds as output, null for the zero time. Stored records and API answers share it, so
// they format times alike.
package rfc3339

import (
	"fmt"
	"strings"
	"time"
)

// Layout is the output format, for times in UTC.
const Layout = "2006-01-02T15:04:05.000Z"

// Time is a time in JSON. The zero time is null.
type Time time.Time

// Std returns the time as a [time.Time].
func (t Time) Std() time.Time { return time.Time(t) }

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	b := make([]byte, 0, len(Layout)+2)
	b = append(b, '"')
	b = time.Time(t).UTC().AppendFormat(b, Layout)
	return append(b, '"'), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Time) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*t = Time{}
		return nil
	}
	parsed, err := Parse(strings.Trim(string(text), `"`))
	*t = Time(parsed)
	return err
}

// Parse parses strict RFC 3339 and returns the time in UTC. Unlike [time.Parse] it refuses
// hours of one digit, a comma before the fraction, and offsets of more than a day. It also
// refuses times with a year in UTC that does not have four digits, because they cannot be
// formatted.
func Parse(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || s[len("2006-01-02T1")] == ':' || strings.IndexByte(s, ',') >= 0 || !strings.HasSuffix(s, "Z") && (s[len(s)-5:len(s)-3] > "23" || s[len(s)-2:] > "59") {
		return time.Time{}, fmt.Errorf("%.40q is not an RFC 3339 time", s)
	}
	t = t.UTC()
	if t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}, fmt.Errorf("%.40q is not in the years 0000 to 9999", s)
	}
	return t, nil
}
