// Package schema describes the JSON objects of the REST APIs. A [Record] is data: the same
// description checks bodies ([Check]), generates the OpenAPI schemas ([Components]), and converts
// records from and to CSV.
//
// Bodies are parsed by [Parse], which is stricter than encoding/json: it refuses duplicate names,
// invalid UTF-8, and deep or very large values. Stored records are trusted, so an export only
// iterates over their text ([MembersOf], [ItemsOf]). The package knows no routes and no HTTP.
package schema

import (
	"slices"
)

// Record describes a JSON object. Bodies are checked by it; the OpenAPI document and CSV
// columns are generated from it. It must not change once a route uses it.
type Record struct {
	Name    string // schema name; for records with a field "object", its value
	Doc     string
	Members []Member
}

// Has reports whether the record has a field; false for nil.
func (r *Record) Has(name string) bool { return r != nil && findMember(r.Members, name) != nil }

// HasRequired reports whether a create requires a field.
func (r *Record) HasRequired() bool {
	return slices.ContainsFunc(r.Members, func(m Member) bool { return m.Access.required() })
}

func findMember(members []Member, name string) *Member {
	for i := range members {
		if members[i].Name == name {
			return &members[i]
		}
	}
	return nil
}

// Member is one field of an object. Answers contain every field that is not write-only.
type Member struct {
	Name     string
	Type     Type
	Access   Access
	Nullable bool // null is a value; as input it clears the field
	// WriteOnly fields, such as secrets, are in no answer.
	WriteOnly bool
	// Sometimes marks fields of some answers only, such as distance_meters of a search.
	Sometimes bool
	// OnCreate and OnUpdate are the values of an enum that a create and an update can set, if not
	// all of them.
	OnCreate, OnUpdate []string
	Doc                string
	Example            any
}

// settable returns the values of an enum that a body ("create", "update") can set; nil for all,
// or another use.
func (m *Member) settable(as string) []string {
	switch as {
	case "create":
		return m.OnCreate
	case "update":
		return m.OnUpdate
	}
	return nil
}

// Access is the write access to a field, in the terms of fleet-api.md 1.
type Access uint8

// Access modes. In nested objects, which are replaced as a whole, Required is required,
// ReadOnly is read-only and all others are optional.
const (
	ReadOnly       Access = iota // ro: ignored in a body if equal to the stored value
	Required                     // R: required on create, writable later
	Writable                     // O: optional on create, writable later
	CreateOnly                   // C: optional on create, read-only later
	CreateRequired               // R and C: required on create, read-only later
	UpdateOnly                   // W: writable by PUT only
)

// required reports whether a create must have the field.
func (a Access) required() bool { return a == Required || a == CreateRequired }

// locked reports whether a body cannot set the field.
func (a Access) locked(update bool) bool {
	return a == ReadOnly || update && (a == CreateOnly || a == CreateRequired)
}

// Type is the type of a field, created by the functions of this file.
type Type struct {
	kind     kind
	min, max int64 // of characters, items or numbers, if bounded
	bounded  bool
	id       bool // an identifier
	values   []string
	format   string // OpenAPI format of strings
	of       *Type
	members  []Member
	record   *Record
	check    func(text []byte) error // additional check; nil: none
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

// ID is an identifier. The service checks whether it exists.
func ID() Type { return Type{kind: kindString, min: 1, max: 128, bounded: true, id: true} }

// String is a string of low to high characters.
func String(low, high int64) Type {
	return Type{kind: kindString, min: low, max: high, bounded: true}
}

// Text is a string of any length.
func Text() Type { return Type{kind: kindString} }

// Formatted is a string with an OpenAPI format: "email", "uri", "byte", "uuid". Services check
// the format.
func Formatted(format string, high int64) Type {
	return Type{kind: kindString, max: high, bounded: true, format: format}
}

// Int is an integer from low to high.
func Int(low, high int64) Type { return Type{kind: kindInt, min: low, max: high, bounded: true} }

// Integer is any 64-bit integer.
func Integer() Type { return Type{kind: kindInt} }

// Number is any number.
func Number() Type { return Type{kind: kindNumber} }

// NumberIn is a number from low to high.
func NumberIn(low, high int64) Type {
	return Type{kind: kindNumber, min: low, max: high, bounded: true}
}

// Bool is true or false.
func Bool() Type { return Type{kind: kindBool} }

// Timestamp is an RFC 3339 time with any offset as input, UTC with milliseconds as output. In
// Go it is a [rfc3339.Time].
func Timestamp() Type { return Type{kind: kindTime} }

// Date is a calendar day: "2026-03-14".
func Date() Type { return Type{kind: kindDate} }

// Enum is one of the given strings.
func Enum(values ...string) Type { return Type{kind: kindEnum, values: values} }

// Array is a list of at most high items.
func Array(of Type, high int64) Type {
	return Type{kind: kindArray, of: &of, max: high, bounded: true}
}

// Object is an object with these members.
func Object(members ...Member) Type { return Type{kind: kindObject, members: members} }

// Nested is an object with a record's fields.
func Nested(r *Record) Type { return Type{kind: kindObject, members: r.Members, record: r} }

// Map is an object with arbitrary names and values of one type.
func Map(of Type) Type { return Type{kind: kindMap, of: &of} }

// Metadata is the client's map of strings: at most 50 keys of 40 characters with values of 500.
// PUT merges it key by key.
func Metadata() Type { return Type{kind: kindMetadata} }

// JSON is any JSON value.
func JSON() Type { return Type{kind: kindAny} }

// JSONOf is an object with a record's fields that is one cell of CSV.
func JSONOf(r *Record) Type { return Type{kind: kindAny, record: r} }

// Checked is any JSON value that check accepts. Issues of its error apply to the field,
// whatever their paths.
func Checked(check func(text []byte) error) Type { return Type{kind: kindAny, check: check} }
