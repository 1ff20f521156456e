package payments

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// object is a JSON object whose members are looked up one by one. One that is
// absent, or of another type than asked for, reads as zero: an event in which
// something that we do not need has changed its form still counts. The nil
// object has no members.
type object map[string]any

// parse reads an event.
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

// maxID is the longest id, in bytes, that is kept as it is.
const maxID = 200

// id returns a member that is an id, or an object that has one. What is too long
// for an id stands by its digest, so that it stays unlike others.
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

// maxNumber is beyond every amount, count and time that is meant, and exact in a
// float64.
const maxNumber = 1 << 40

func (o object) number(name string) int64 {
	f, _ := o[name].(float64)
	if f < -maxNumber || f > maxNumber {
		return 0
	}
	return int64(f)
}

// maxTime is the last second of the year 9999, after which times have no common
// text form.
const maxTime = 253402300799

// time returns a member in Unix seconds; the zero time when there is none.
func (o object) time(name string) time.Time {
	seconds := o.number(name)
	if seconds <= 0 || seconds > maxTime {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// link returns a member that is an address to send a person to.
func (o object) link(name string) string {
	s := o.text(name)
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || len(s) > 2000 {
		return ""
	}
	return s
}
