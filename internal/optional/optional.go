// Package optional has the member of a JSON object that can be absent, null or a
// value, which a change of a record must tell apart (fleet-api.md 0, PUT): what
// is absent stays, what is null is cleared.
package optional

import (
	"bytes"
	"encoding/json"
)

// Value is such a member. The zero one is absent.
type Value[T any] struct {
	Set   bool // it is there
	Null  bool // as null: it is to be cleared
	Value T    // zero unless Set and not Null
}

// Of returns a value that is there.
func Of[T any](v T) Value[T] { return Value[T]{Set: true, Value: v} }

// UnmarshalJSON implements [json.Unmarshaler].
func (o *Value[T]) UnmarshalJSON(text []byte) error {
	*o = Value[T]{Set: true}
	if bytes.Equal(text, []byte("null")) {
		o.Null = true
		return nil
	}
	return json.Unmarshal(text, &o.Value)
}

// Or returns the value, or other when there is none.
func (o Value[T]) Or(other T) T {
	if !o.Set || o.Null {
		return other
	}
	return o.Value
}

// Pointer returns nil when the object does not have the member, else its value,
// which for null is the zero one.
func (o Value[T]) Pointer() *T {
	if !o.Set {
		return nil
	}
	return &o.Value
}

// Into puts a value that is there, and for null the zero one, into what is at to.
func (o Value[T]) Into(to *T) {
	if o.Set {
		*to = o.Value
	}
}

// IntoPointer is [Value.Into] for what is nil when there is no value.
func (o Value[T]) IntoPointer(to **T) {
	switch {
	case o.Set && o.Null:
		*to = nil
	case o.Set:
		*to = new(o.Value)
	}
}
