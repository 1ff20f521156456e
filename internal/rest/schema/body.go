package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// MaxFieldErrors bounds the field errors of one answer.
const MaxFieldErrors = 100

// FieldError is one invalid field or parameter of a request.
type FieldError struct {
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Pointer   string `json:"pointer,omitempty"`
	Parameter string `json:"parameter,omitempty"`
	Header    string `json:"header,omitempty"`
}

// Check is the check of one body against its record. Set Put and Import before [Check.Body].
type Check struct {
	Put bool // an update; else a create
	// Import is set for an import, which often repeats an export: read-only fields are
	// skipped.
	Import bool

	// Results.
	Errors  []FieldError
	Skipped []string // names of skipped fields, with dots for nested ones
	Differs bool     // a field differs from the stored record
}

func (c *Check) add(code, pointer, format string, args ...any) {
	if len(c.Errors) < MaxFieldErrors {
		c.Errors = append(c.Errors, FieldError{Code: code, Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
	}
}

// Pointer returns the JSON pointer of a field below pointer.
func Pointer(pointer, name string) string {
	if len(name) > 200 {
		name = strings.ToValidUTF8(name[:200], "") // of an unknown field; enough to find it
	}
	if strings.ContainsAny(name, "~/") {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
	}
	return pointer + "/" + url.PathEscape(name)
}

// Body checks a body and returns it for decoding into the handler's struct: without read-only
// fields that equal the stored record's, and with metadata merged into the stored map. current is
// nil for a create.
func (c *Check) Body(members []Member, body, current *Node) []byte {
	put := c.Put
	if body.Kind != '{' {
		c.add("invalid_type", "#", "The body must be an object.")
		return nil
	}
	var out bytes.Buffer
	out.WriteByte('{')
	keep := func(name string, value []byte) {
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		out.Write(Quote(name))
		out.WriteByte(':')
		out.Write(value)
	}
	for i := range body.Members {
		name, v := body.Members[i].Name, &body.Members[i].Value
		m := findMember(members, name)
		pointer := Pointer("#", name)
		if m == nil {
			c.add("unknown_field", pointer, "Unknown field %.60s.", name)
			continue
		}
		stored := current.Find(name)
		locked := m.Access.locked(put) || !put && m.Access == UpdateOnly
		switch {
		case c.Import && m.Access == ReadOnly:
			c.Skipped = append(c.Skipped, name)
		case locked && put && v.equal(stored):
		case locked && !put && m.Access == UpdateOnly:
			c.add("read_only", pointer, "%s can only be set by PUT.", name)
		case locked && m.Access != ReadOnly:
			c.add("read_only", pointer, "%s cannot be changed once it is set.", name)
		case locked:
			c.add("read_only", pointer, "%s cannot be set.", name)
		case m.Type.kind == kindMetadata:
			c.Differs = c.Differs || !v.within(stored)
			keep(name, c.metadata(pointer, name, v, stored))
		case v.Kind == 'n' && !m.Nullable && !m.Access.required() && m.Type.kind == kindArray:
			c.Differs = c.Differs || stored == nil || len(stored.items) > 0
			keep(name, []byte("[]")) // null clears a list
		default:
			c.Differs = c.Differs || !v.equal(stored)
			c.member(pointer, m, v, stored)
			keep(name, v.raw)
		}
	}
	if !put {
		c.required("#", members, body)
	}
	out.WriteByte('}')
	return out.Bytes()
}

// required adds errors for missing required fields of an object.
func (c *Check) required(pointer string, members []Member, n *Node) {
	for i := range members {
		m := &members[i]
		if m.Access.required() && n.Find(m.Name) == nil {
			c.add("required", Pointer(pointer, m.Name), "%s is required.", m.Name)
		}
	}
}

// member checks a value that may be null.
func (c *Check) member(pointer string, m *Member, v, stored *Node) {
	if v.Kind == 'n' {
		switch {
		case m.Nullable:
		case m.Access.required():
			c.add("required", pointer, "%s is required.", m.Name)
		default:
			c.add("invalid_type", pointer, "%s cannot be null.", m.Name)
		}
		return
	}
	c.Value(pointer, m.Name, &m.Type, v, stored)
}

var kindWords = map[kind]string{
	kindString: "a string", kindInt: "an integer", kindNumber: "a number", kindBool: "true or false",
	kindTime: "an RFC 3339 time in a string", kindDate: "a date in a string", kindEnum: "a string",
	kindArray: "an array", kindObject: "an object", kindMap: "an object", kindMetadata: "an object",
}

func (k kind) accepts(v *Node) bool {
	switch k {
	case kindString, kindTime, kindDate, kindEnum:
		return v.Kind == '"'
	case kindInt, kindNumber:
		return v.Kind == '0'
	case kindBool:
		return v.Kind == 't' || v.Kind == 'f'
	case kindArray:
		return v.Kind == '['
	case kindObject, kindMap, kindMetadata:
		return v.Kind == '{'
	}
	return true
}

// Value checks a value for which null is an error. stored is nil if there is none.
func (c *Check) Value(pointer, name string, t *Type, v, stored *Node) {
	if !t.kind.accepts(v) {
		c.add("invalid_type", pointer, "%s must be %s.", name, kindWords[t.kind])
		return
	}
	switch t.kind {
	case kindString:
		c.text(pointer, name, t, v.Text)
	case kindInt:
		c.integer(pointer, name, t, v)
	case kindNumber:
		c.number(pointer, name, t, v)
	case kindTime:
		if _, err := rfc3339.Parse(v.Text); err != nil {
			c.add("invalid_format", pointer, "%s must be an RFC 3339 time, such as 2026-03-14T09:26:53Z.", name)
		}
	case kindDate:
		if _, err := time.Parse(time.DateOnly, v.Text); err != nil {
			c.add("invalid_format", pointer, "%s must be a date, such as 2026-03-14.", name)
		}
	case kindEnum:
		if !slices.Contains(t.values, v.Text) {
			c.add("invalid_value", pointer, "%s must be %s.", name, OrList(t.values))
		}
	case kindArray:
		if t.bounded && int64(len(v.items)) > t.max {
			c.add("too_long", pointer, "%s has at most %d items.", name, t.max)
			return
		}
		for i := range v.items {
			var before *Node
			if stored != nil && i < len(stored.items) {
				before = &stored.items[i]
			}
			at := pointer + "/" + strconv.Itoa(i)
			c.Value(at, fmt.Sprintf("%s[%d]", name, i), t.of, &v.items[i], before)
		}
	case kindObject:
		c.object(pointer, name, t.members, v, stored)
	case kindAny:
		if t.check != nil {
			c.checked(pointer, name, t.check(v.raw))
		}
	case kindMap:
		for i := range v.Members {
			m := &v.Members[i]
			c.Value(Pointer(pointer, m.Name), fmt.Sprintf("%s.%.60s", name, m.Name), t.of, &m.Value, stored.Find(m.Name))
		}
	}
}

// checked adds the errors of a [Checked] type.
func (c *Check) checked(pointer, name string, err error) {
	if err == nil {
		return
	}
	e, ok := errors.AsType[*problem.Error](err)
	if !ok || len(e.Issues) == 0 {
		c.add("invalid_value", pointer, "%s is not valid.", name)
		return
	}
	for _, i := range e.Issues {
		c.add(cmp.Or(i.Code, "invalid_value"), pointer, "%s %s", name, EndSentence(i.Message))
	}
}

func (c *Check) integer(pointer, name string, t *Type, v *Node) {
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	if t.bounded {
		low, high = t.min, t.max
	}
	v.trimFraction()
	n, err := strconv.ParseInt(v.Text, 10, 64) // out of range: the nearest
	switch {
	case strings.ContainsAny(v.Text, ".eE"):
		c.add("invalid_type", pointer, "%s must be an integer.", name)
	case n < low, err != nil && n < 0:
		c.add("too_small", pointer, "%s is at least %d.", name, low)
	case n > high, err != nil:
		c.add("too_large", pointer, "%s is at most %d.", name, high)
	}
}

func (c *Check) number(pointer, name string, t *Type, v *Node) {
	f, err := strconv.ParseFloat(v.Text, 64)
	switch {
	case t.bounded && f < float64(t.min):
		c.add("too_small", pointer, "%s is at least %d.", name, t.min)
	case t.bounded && f > float64(t.max):
		c.add("too_large", pointer, "%s is at most %d.", name, t.max)
	case err != nil || math.IsInf(f, 0):
		c.add("too_large", pointer, "%s is too large.", name)
	}
}

// object checks a nested object. It is replaced as a whole, so create and update do not differ.
func (c *Check) object(pointer, name string, members []Member, v, stored *Node) {
	for i := range v.Members {
		key, value := v.Members[i].Name, &v.Members[i].Value
		at := Pointer(pointer, key)
		m := findMember(members, key)
		switch {
		case m == nil:
			c.add("unknown_field", at, "%.60s is not a field of %s.", key, name)
		case m.Access == ReadOnly && c.Import:
			c.Skipped = append(c.Skipped, name+"."+key)
		case m.Access == ReadOnly:
			if !value.equal(stored.Find(key)) {
				c.add("read_only", at, "%s.%s cannot be set.", name, key)
			}
		default:
			c.member(at, m, value, stored.Find(key))
		}
	}
	c.required(pointer, members, v)
}

func (c *Check) text(pointer, name string, t *Type, s string) {
	if strings.IndexByte(s, 0) >= 0 {
		c.add("invalid_format", pointer, "%s must not contain NUL characters.", name)
		return
	}
	if !t.bounded {
		return
	}
	switch n := int64(utf8.RuneCountInString(s)); {
	case n < t.min && t.min == 1:
		c.add("too_short", pointer, "%s must not be empty.", name)
	case n < t.min:
		c.add("too_short", pointer, "%s has at least %d characters.", name, t.min)
	case n > t.max:
		c.add("too_long", pointer, "%s has at most %d characters.", name, t.max)
	}
}

// Bounds of metadata (fleet-api.md 0).
const (
	maxMetadata      = 50
	maxMetadataKey   = 40
	maxMetadataValue = 500
)

// metadata checks a change of metadata and returns the merged map.
func (c *Check) metadata(pointer, name string, v, stored *Node) []byte {
	merged := map[string]string{}
	if v.Kind == 'n' {
		return []byte("{}")
	}
	if v.Kind != '{' {
		c.add("invalid_type", pointer, "%s must be an object of strings.", name)
		return []byte("{}")
	}
	if stored != nil {
		for _, m := range stored.Members {
			merged[m.Name] = m.Value.Text
		}
	}
	for i := range v.Members {
		key, value := v.Members[i].Name, &v.Members[i].Value
		at := Pointer(pointer, key)
		switch n := utf8.RuneCountInString(key); {
		case n == 0:
			c.add("too_short", at, "A key of %s must not be empty.", name)
		case n > maxMetadataKey:
			c.add("too_long", at, "A key of %s has at most %d characters.", name, maxMetadataKey)
		case strings.IndexByte(key, 0) >= 0:
			c.add("invalid_format", at, "A key of %s must not contain NUL characters.", name)
		}
		if value.Kind == 'n' {
			delete(merged, key)
			continue
		}
		c.Value(at, fmt.Sprintf("%s.%.40s", name, key), &Type{kind: kindString, max: maxMetadataValue, bounded: true}, value, nil)
		merged[key] = value.Text
	}
	if len(merged) > maxMetadata {
		c.add("too_long", pointer, "%s has at most %d keys.", name, maxMetadata)
	}
	text, err := json.Marshal(merged)
	if err != nil {
		return []byte("{}") // strings always marshal
	}
	return text
}
