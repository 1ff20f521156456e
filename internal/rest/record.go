package rest

import (
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// Record describes a JSON object: bodies are checked by it, the OpenAPI document
// and the columns of a CSV export are made from it. It is not changed once
// routes name it.
type Record struct {
	Name    string // in the document; for records with a member "object", its value
	Doc     string
	Members []Member
}

// Member is one member of an object. Answers have every member, except those that
// are write-only.
type Member struct {
	Name     string
	Type     Type
	Access   Access
	Nullable bool // null is a value; on input it clears
	// WriteOnly members are in no answer: secrets.
	WriteOnly bool
	// Sometimes members are only in some answers: distance_meters of a search.
	Sometimes bool
	Doc       string
	Example   any
}

// Access says who writes a member, in the words of fleet-api.md 1.
type Access uint8

// The accesses. In objects inside of a record, which are replaced whole, Required
// means what it says and the others mean optional, but for ReadOnly.
const (
	ReadOnly       Access = iota // ro: ignored in a body when equal to what is stored
	Required                     // R: required on create, writable later
	Writable                     // O: optional on create, writable later
	CreateOnly                   // C: optional on create, read-only later
	CreateRequired               // R and C: required on create, read-only later
	UpdateOnly                   // W: writable by PUT only
)

// Type is the type of a member. The functions of this file make them.
type Type struct {
	kind     kind
	min, max int64 // characters, items or numbers; they count when bounded
	bounded  bool
	values   []string
	format   string // of strings, in OpenAPI's words
	of       *Type
	members  []Member
	record   *Record
	check    func(text []byte) error // of any value; nil: none
}

type kind uint8

const (
	kindString kind = iota
	kindInt
	kindNumber
	kindBool
	kindTime
	kindDate
	kindEnum
	kindArray
	kindObject
	kindMap
	kindMetadata
	kindAny
)

// ID is an identifier. What does not exist is for the service to say.
func ID() Type { return Type{kind: kindString, min: 1, max: 128, bounded: true} }

// String is text of from low to high characters.
func String(low, high int64) Type {
	return Type{kind: kindString, min: low, max: high, bounded: true}
}

// Text is text of any length.
func Text() Type { return Type{kind: kindString} }

// Formatted is text that the document says more about: "email", "uri", "byte",
// "uuid". The format is not checked here: services know better.
func Formatted(format string, high int64) Type {
	return Type{kind: kindString, max: high, bounded: true, format: format}
}

// Int is an integer from low to high.
func Int(low, high int64) Type { return Type{kind: kindInt, min: low, max: high, bounded: true} }

// Integer is any integer of 64 bits.
func Integer() Type { return Type{kind: kindInt} }

// Number is any number.
func Number() Type { return Type{kind: kindNumber} }

// NumberIn is a number from low to high.
func NumberIn(low, high int64) Type {
	return Type{kind: kindNumber, min: low, max: high, bounded: true}
}

// Bool is true or false.
func Bool() Type { return Type{kind: kindBool} }

// Timestamp is a time: any RFC 3339 offset in, UTC with milliseconds out. In Go it
// is a [Time].
func Timestamp() Type { return Type{kind: kindTime} }

// Date is a calendar day: "2026-03-14".
func Date() Type { return Type{kind: kindDate} }

// Enum is one of some words.
func Enum(values ...string) Type { return Type{kind: kindEnum, values: values} }

// Array is a list of at most high items.
func Array(of Type, high int64) Type {
	return Type{kind: kindArray, of: &of, max: high, bounded: true}
}

// Object is an object with these members.
func Object(members ...Member) Type { return Type{kind: kindObject, members: members} }

// Nested is an object that is a record of its own.
func Nested(r *Record) Type { return Type{kind: kindObject, members: r.Members, record: r} }

// Map is an object with any member names, whose values are of one type.
func Map(of Type) Type { return Type{kind: kindMap, of: &of} }

// Metadata is the integrator's own map of strings: at most 50 keys of 40
// characters with values of 500. PUT merges it key by key.
func Metadata() Type { return Type{kind: kindMetadata} }

// JSON is any value.
func JSON() Type { return Type{kind: kindAny} }

// Checked is any value that check takes. The issues of its error are those of the
// member, whatever their paths.
func Checked(check func(text []byte) error) Type { return Type{kind: kindAny, check: check} }

// Time is a time on the wire. The zero one is null.
type Time = rfc3339.Time

// Optional is a member of a body that can be absent, null or a value.
type Optional[T any] = optional.Value[T]
