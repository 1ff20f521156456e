// Package clientgen generates the types and methods of the client libraries in clients/ from
// the OpenAPI documents in docs/api.
//
// [Read] turns the documents into [API] values, which name every group, method and type once
// for all languages. [Generate] passes them to one emitter per language. Emitters write
// no code that sends requests: that part of each library is written by hand.
package clientgen

import "encoding/json"

// API is one of the two APIs: "helpdesk" or "fleet".
type API struct {
	Name    string
	Title   string // "Kickstand Helpdesk"
	Doc     string // empty lines separate paragraphs
	Version string
	Server  string   // base URL: "https://kickstand.example/api/v1"
	Groups  []Group  // in the order of the document's tags
	Records []Record // sorted by name
	Enums   []Enum   // sorted by name
	Codes   []string // of problems, sorted
	Events  []Event  // of webhooks, sorted by name
}

// Group is a tag of the document: the operations that a client has as client.tickets.
type Group struct {
	Name       string // snake case: "inbound_events"
	Singular   string // of its noun: "inbound_event"
	Title      string // the tag: "Inbound events"
	Doc        string
	Operations []Operation
}

// Operation is one method of a group.
type Operation struct {
	ID, Method, Path string // "listTickets", "GET", "/tickets"
	Summary, Doc     string
	Name             string // within its group, snake case: "list", "get", "list_conversations"
	PathParams       []Param
	Query            []Param // with cursor, limit and sort; without expand
	Body             *Type   // nil: none
	BodyRequired     bool
	Answer           *Type // nil: none. For a list, the item; for a file, none
	List             bool  // the answer is a page with data, has_more and next_cursor
	Sandbox          bool  // exists in the sandbox only
	File             bool  // the answer is bytes of any media type
	Exports          []string
	Imports          []string // media types, sorted
	Row              *Type    // of an NDJSON export, or nil
	Expand           []string // names that the query parameter expand[] may have

	// Request headers that the operation accepts.
	Idempotent, IfMatch, IfNoneMatch, Subaccount bool

	Permission string // "tickets.read"; "": any valid key
	Status     int    // of success
	Codes      []string
	Deprecated bool
	Example    json.RawMessage // of the body, or nil

	AnswerExample json.RawMessage // of success, or nil
}

// Param is a parameter of a path or a query.
type Param struct {
	Name     string // on the wire: "created_at[gte]"
	Doc      string
	Type     Type // an array is sent as one value, joined by commas
	Required bool
	Example  json.RawMessage // or nil
}

// Record is an object with named members.
type Record struct {
	Name    string // snake case, unique in both APIs: "ticket", "fleet_customer", "message_author"
	Schema  string // of the document: "analytics.tickets"; of a nested object, "message.author"
	Doc     string
	Members []Member
	Input   bool // part of request bodies; other records are part of answers
	Event   bool // only part of the data of webhook events
}

// Member is a member of a record. An answer always has a required member. A body may have
// others absent, which differs from null.
type Member struct {
	Name, Doc string
	Type      Type
	Required  bool
	Nullable  bool
	Example   json.RawMessage // or nil
}

// Enum is a list of values that a string can have.
type Enum struct {
	Name   string // snake case, unique in both APIs: "ticket_status"
	Values []string
}

// Event is an event of webhooks: "ticket.created".
type Event struct {
	Name, Doc string
	Data      Type            // of the member data
	Example   json.RawMessage // a whole body in form B, or nil
}

// Type is the type of a value.
type Type struct {
	Kind     Kind
	Of       *Type    // items of an array, values of a map
	Record   string   // name of the record
	EnumName string   // name of the enum
	Enum     []string // values of an enum, or the only value of a string
	Format   string   // of the document, such as "uri", "byte" or "int64"
	Nullable bool     // items and values only; of a member, Member.Nullable
}

// Kind is a kind of value.
type Kind string

// The kinds. A time is RFC 3339, a date "2006-01-02", bytes are in base64, and "any" is any JSON
// value.
const (
	KindString  Kind = "string"
	KindInteger Kind = "integer"
	KindNumber  Kind = "number"
	KindBoolean Kind = "boolean"
	KindTime    Kind = "time"
	KindDate    Kind = "date"
	KindEnum    Kind = "enum"
	KindArray   Kind = "array"
	KindRecord  Kind = "record"
	KindMap     Kind = "map"
	KindAny     Kind = "any"
	KindBytes   Kind = "bytes"
)

// File is a generated file. Its path is relative to the folder clients.
type File struct {
	Path    string
	Content []byte
}

// RecordNamed returns the record of a name. It panics if there is none: a Type of this API
// names only its records.
func (a *API) RecordNamed(name string) *Record {
	for i := range a.Records {
		if a.Records[i].Name == name {
			return &a.Records[i]
		}
	}
	panic("clientgen: no record " + name)
}

// Operation returns the operation of an id, or nil.
func (a *API) Operation(id string) *Operation {
	for g := range a.Groups {
		for o := range a.Groups[g].Operations {
			if a.Groups[g].Operations[o].ID == id {
				return &a.Groups[g].Operations[o]
			}
		}
	}
	return nil
}

// Find returns the operation of a name, or nil.
func (g *Group) Find(name string) *Operation {
	for i := range g.Operations {
		if g.Operations[i].Name == name {
			return &g.Operations[i]
		}
	}
	return nil
}

// Modifiable reports whether the group's records can be read, changed and written back under
// their ETag: the methods get and update exist, and update accepts If-Match.
func (g *Group) Modifiable() bool {
	get, update := g.Find("get"), g.Find("update")
	return get != nil && update != nil && update.IfMatch
}
