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

// object is an event, or an object inside one. Numbers keep their text, because ids exceed the
// precision of a float.
type object map[string]any

// read decodes the event of a request, which may be unverified.
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

// scalar returns a string or number as text, else "".
func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(channel.CleanText(v))
	case json.Number:
		return v.String()
	}
	return ""
}

// text returns the first nonempty member.
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

// maxItems bounds the elements read from a list.
const maxItems = 100

// list returns a member that may be one value or a list.
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

// ends returns the phone numbers of a member.
func (o object) ends(name string) []string {
	var list []string
	for _, v := range o.list(name) {
		if s := scalar(v); s != "" {
			list = append(list, s)
		}
	}
	return list
}

// milliseconds is the value from which an epoch timestamp counts as milliseconds: as seconds it
// would be the year 33658.
const milliseconds = 1_000_000_000_000

// time returns the first member that is a time: epoch seconds or milliseconds, or RFC 3339.
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

// number returns the first member that is a number.
func (o object) number(names ...string) float64 {
	for _, name := range names {
		if n, err := strconv.ParseFloat(scalar(o[name]), 64); err == nil && n > 0 && n < 1e12 {
			return n
		}
	}
	return 0
}

// digest distinguishes events without a time of the same call and state. Claims of the token
// itself are excluded.
func (o object) digest() string {
	rest := make(object, len(o))
	for name, v := range o {
		if !slices.Contains([]string{"iat", "exp", "nbf", "jti"}, name) {
			rest[name] = v
		}
	}
	b, _ := json.Marshal(rest) // decoded from JSON; members sorted by name
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

func (o object) outbound() bool { return strings.EqualFold(o.text("direction"), "outbound") }

// isText reports whether the event is about a text message rather than a call.
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
