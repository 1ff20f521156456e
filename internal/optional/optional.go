// Package optional provides [Value], a JSON field that distinguishes absent, null and set, as
// updates need it (fleet-api.md 0, PUT): an absent field is unchanged, null clears it.
package optional

import (
	"bytes"
	"encoding/json"
)

// Value is an optional field. The zero value is absent.
type Value[T any] struct {
	Set   bool // the field is present
	Null  bool // as null
	Value T    // zero unless Set and not Null
}

// Of returns a set value.
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

// Or returns the value, or other if it is absent or null.
func (o Value[T]) Or(other T) T {
	if !o.Set || o.Null {
		return other
	}
	return o.Value
}

// Pointer returns nil if the field is absent, else a pointer to its value, zero for null.
func (o Value[T]) Pointer() *T {
	if !o.Set {
		return nil
	}
	return &o.Value
}

// Into stores the value in *to, zero for null, unless it is absent.
func (o Value[T]) Into(to *T) {
	if o.Set {
		*to = o.Value
	}
}

// IntoPointer is [Value.Into] for a pointer: null stores nil.
func (o Value[T]) IntoPointer(to **T) {
	switch {
	case o.Set && o.Null:
		*to = nil
	case o.Set:
		*to = new(o.Value)
	}
}
