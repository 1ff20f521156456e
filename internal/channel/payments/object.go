package payments

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// object is a JSON object with typed access to members. An absent member, or one of another
// type, reads as zero, so that a format change of other members does no harm. The nil object
// has no members.
type object map[string]any

// parse decodes an event.
func parse(body []byte) (object, error) {
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, fmt.Errorf("%w: not a JSON object: %v", channel.ErrUnreadable, err)
	}
	if o == nil {
		return nil, fmt.Errorf("%w: not a JSON object", channel.ErrUnreadable)
	}
	return o, nil
}

func (o object) object(name string) object {
	m, _ := o[name].(map[string]any)
	return m
}

// list returns the objects of a list, which the provider wraps in an object.
func (o object) list(name string) []object {
	items, _ := o.object(name)["data"].([]any)
	var out []object
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func (o object) text(name string) string {
	s, _ := o[name].(string)
	return channel.CleanText(s)
}

// maxID is the longest id, in bytes, that is stored unchanged.
const maxID = 200

// id returns an id, or that of an expanded object. Long ids are replaced by their digest.
func (o object) id(name string) string {
	s := o.text(name)
	if m := o.object(name); m != nil {
		s = m.text("id")
	}
	return channel.BoundedID(s, maxID)
}

func (o object) flag(name string) bool {
	b, _ := o[name].(bool)
	return b
}

// maxNumber exceeds every real amount, count and time, and is exact in a float64.
const maxNumber = 1 << 40

func (o object) number(name string) int64 {
	f, _ := o[name].(float64)
	if f < -maxNumber || f > maxNumber {
		return 0
	}
	return int64(f)
}

// maxTime is the last second of the year 9999; RFC 3339 cannot express later times.
const maxTime = 253402300799

// time returns a time in Unix seconds, or zero.
func (o object) time(name string) time.Time {
	seconds := o.number(name)
	if seconds <= 0 || seconds > maxTime {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// link returns a URL to show to users, or "".
func (o object) link(name string) string {
	s := o.text(name)
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || len(s) > 2000 {
		return ""
	}
	return s
}
