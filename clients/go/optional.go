package kickstand

import (
	"encoding/json"
	"time"
)

// Optional is a member of a request's body that can be absent, null or a value. The zero
// Optional is absent.
type Optional[T any] struct {
	value T
	state optionalState
}

type optionalState uint8

const (
	absent optionalState = iota
	null
	present
)

// Some returns a member with a value.
func Some[T any](value T) Optional[T] { return Optional[T]{value, present} }

// Null returns a member that is null, which clears the field of a record.
func Null[T any]() Optional[T] { return Optional[T]{state: null} }

// Get returns the value, and whether there is one.
func (o Optional[T]) Get() (T, bool) { return o.value, o.state == present }

// IsNull reports whether the member is null.
func (o Optional[T]) IsNull() bool { return o.state == null }

// IsZero reports whether the member is absent.
func (o Optional[T]) IsZero() bool { return o.state == absent }

// MarshalJSON implements [json.Marshaler].
func (o Optional[T]) MarshalJSON() ([]byte, error) {
	if o.state != present {
		return []byte("null"), nil
	}
	if at, ok := any(o.value).(time.Time); ok {
		return json.Marshal(timeText(at))
	}
	return json.Marshal(o.value)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (o *Optional[T]) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*o = Null[T]()
		return nil
	}
	o.state = present
	return json.Unmarshal(text, &o.value)
}

// timeText returns a time as requests have it: in UTC, with milliseconds.
func timeText(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
