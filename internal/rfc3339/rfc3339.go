// Package rfc3339 is a time as it is written in JSON: RFC 3339, any offset in, UTC
// with milliseconds out, and null where there is none. Records that are stored
// as they are answered are made of it, so they and the surfaces that answer them
// write times the same.
package rfc3339

import (
	"fmt"
	"strings"
	"time"
)

// Layout is how times are written, once they are in UTC.
const Layout = "2006-01-02T15:04:05.000Z"

// Time is a time on the wire. The zero one is null.
type Time time.Time

// Std returns the time as the standard library has it.
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

// Parse reads RFC 3339 to the letter, and returns the time in UTC. [time.Parse]
// takes hours of one digit, a comma before the fraction, and offsets of more
// than a day. A time whose year in UTC does not have four digits is refused:
// it could not be written again.
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
