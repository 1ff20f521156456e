package voice

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// object is an event, or an object inside one. Numbers are as written: ids are
// larger than a float is exact.
type object map[string]any

// read returns the event that a request holds. It is a stranger's until the request
// was verified.
func read(r *channel.Request) (object, error) {
	body := r.Body
	if t, ok := parseToken(body); ok {
		body = t.payload
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil || o == nil {
		return nil, errNoEvent
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errNoEvent
	}
	return o, nil
}

// scalar is a value as text; empty for what is neither text nor a number.
func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(channel.CleanText(v))
	case json.Number:
		return v.String()
	}
	return ""
}

// text returns the first of the named members that is there.
func (o object) text(names ...string) string {
	for _, name := range names {
		if s := scalar(o[name]); s != "" {
			return s
		}
	}
	return ""
}

func (o object) object(name string) object {
	m, _ := o[name].(map[string]any)
	return m
}

// maxItems bounds what is read of a list.
const maxItems = 100

// list returns a member that may be one value or several.
func (o object) list(name string) []any {
	switch v := o[name].(type) {
	case nil:
		return nil
	case []any:
		return v[:min(len(v), maxItems)]
	default:
		return []any{v}
	}
}

// ends are the numbers of a member, one or several.
func (o object) ends(name string) []string {
	var list []string
	for _, v := range o.list(name) {
		if s := scalar(v); s != "" {
			list = append(list, s)
		}
	}
	return list
}

// milliseconds is the number from which on an epoch timestamp is in milliseconds:
// as seconds it would be the year 33658.
const milliseconds = 1_000_000_000_000

// time returns the first of the named members that is a time: epoch seconds or
// milliseconds, or a date as RFC 3339 writes it.
func (o object) time(names ...string) time.Time {
	for _, name := range names {
		s := scalar(o[name])
		if at, err := time.Parse(time.RFC3339, s); err == nil && at.Year() > 1970 {
			return at.UTC()
		}
		n, err := strconv.ParseFloat(s, 64)
		switch {
		case err != nil || n < 1 || n >= milliseconds*10:
			continue
		case n >= milliseconds:
			return time.UnixMilli(int64(n)).UTC()
		case n < milliseconds/10:
			return time.UnixMilli(int64(n * 1000)).UTC()
		}
	}
	return time.Time{}
}

// number returns the first of the named members that is a number.
func (o object) number(names ...string) float64 {
	for _, name := range names {
		if n, err := strconv.ParseFloat(scalar(o[name]), 64); err == nil && n > 0 && n < 1e12 {
			return n
		}
	}
	return 0
}

// digest tells an event without a time from others of the same call and state. What
// a token says of itself does not count.
func (o object) digest() string {
	rest := make(object, len(o))
	for name, v := range o {
		if !slices.Contains([]string{"iat", "exp", "nbf", "jti"}, name) {
			rest[name] = v
		}
	}
	b, _ := json.Marshal(rest) // it came from JSON; members in order of their names
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

func (o object) outbound() bool { return strings.EqualFold(o.text("direction"), "outbound") }

// isText reports whether the event is of a text rather than a call.
func (o object) isText() bool {
	switch strings.ToLower(o.text("event_type")) {
	case "sms", "mms":
		return true
	case "":
	default:
		return false
	}
	if o.text("call_id") != "" && o.text("state") != "" {
		return false
	}
	_, hasText := o["text"].(string)
	return hasText || o.text("message_status") != "" || o.text("state") == "" && o.text("from_number") != ""
}
