package rest

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
)

// Route is one operation, as data: the same description finds it, checks who
// may, reads the query and the body, and writes the OpenAPI document.
//
// A record and three routes, complete:
//
//	var note = &rest.Record{Name: "note", Doc: "Something to remember.", Members: []rest.Member{
//		{Name: "id", Type: rest.ID()},
//		{Name: "object", Type: rest.Enum("note")},
//		{Name: "text", Type: rest.String(1, 500), Access: rest.Required, Doc: "What to remember.", Example: "Buy tyres"},
//		{Name: "due_at", Type: rest.Timestamp(), Access: rest.Writable, Nullable: true, Doc: "When it must be done."},
//		{Name: "metadata", Type: rest.Metadata(), Access: rest.Writable},
//		{Name: "created_at", Type: rest.Timestamp()},
//	}}
//
//	// wireNote is the record as it is answered; noteBody as it is sent.
//	type wireNote struct {
//		ID        string            `json:"id"`
//		Object    string            `json:"object"`
//		Text      string            `json:"text"`
//		DueAt     rest.Time         `json:"due_at"` // null when zero
//		Metadata  map[string]string `json:"metadata"`
//		CreatedAt rest.Time         `json:"created_at"`
//	}
//
//	type noteBody struct {
//		Text     rest.Optional[string]            `json:"text"`
//		DueAt    rest.Optional[rest.Time]         `json:"due_at"`
//		Metadata rest.Optional[map[string]string] `json:"metadata"` // merged already
//	}
//
//	routes := []rest.Route{{
//		Method: "GET", Path: "/notes", ID: "listNotes", Tag: "Notes", Summary: "List notes",
//		Needs:  rest.Permission{Resource: "notes", Action: apikey.Read},
//		Query:  []rest.Param{
//			{Name: "done", Kind: rest.BoolParam, Doc: "Only those that are done, or not."},
//			{Name: "created_at", Kind: rest.TimeRange},
//		},
//		Sort:   []string{"created_at", "due_at"}, // -created_at unless asked otherwise
//		Export: true,
//		Output: note, List: true,
//		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
//			q := notes.Query{Sort: r.Sort(), Descending: r.Descending()}
//			q.From, q.Until = r.Times("created_at")
//			if r.Exporting() {
//				return rest.Export(wired(s.Each(ctx, r.Key.OrganizationID, q))), nil
//			}
//			q.Limit = r.Limit()
//			if _, err := r.Cursor(&q.After); err != nil { // q.After: any type that is JSON
//				return rest.Response{}, err
//			}
//			page, err := s.List(ctx, r.Key.OrganizationID, q)
//			if err != nil {
//				return rest.Response{}, err
//			}
//			if page.Next == nil {
//				return rest.List(wire(page.Notes), nil), nil
//			}
//			return rest.List(wire(page.Notes), page.Next), nil
//		},
//	}, {
//		Method: "POST", Path: "/notes", ID: "createNote", Tag: "Notes", Summary: "Create a note",
//		Needs:  rest.Permission{Resource: "notes", Action: apikey.Create},
//		Input:  note, Output: note,
//		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
//			var in noteBody
//			if err := r.Decode(&in); err != nil { // 422 with every fault
//				return rest.Response{}, err
//			}
//			return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
//				n, err := s.CreateIn(ctx, tx, r.Key.OrganizationID, in.Text.Value, in.DueAt.Value.Std())
//				if err != nil {
//					return rest.Response{}, err
//				}
//				return rest.Created("/notes/"+n.ID, wireOf(n)), nil
//			})
//		},
//	}, {
//		Method: "PUT", Path: "/notes/{id}", ID: "updateNote", Tag: "Notes", Summary: "Change a note",
//		Needs:  rest.Permission{Resource: "notes", Action: apikey.Update},
//		Input:  note, Output: note,
//		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
//			return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
//				n, err := s.FindIn(ctx, tx, r.Key.OrganizationID, r.Path("id")) // 404
//				if err != nil {
//					return rest.Response{}, err
//				}
//				var in noteBody
//				if err := r.Update(wireOf(n), &in); err != nil { // 422, then 412
//					return rest.Response{}, err
//				}
//				n, err = s.EditIn(ctx, tx, n, in.Text.Pointer(), in.DueAt.Pointer())
//				if err != nil {
//					return rest.Response{}, err
//				}
//				return rest.OK(wireOf(n)), nil
//			})
//		},
//	}}
//
// A POST that also takes many at once has an [Import], whose Handle is all of
//
//	return rest.ImportEach(ctx, r, func(tx *db.Tx, l *rest.Line, in *noteBody) (string, error) {
//		n, err := s.CreateIn(ctx, tx, r.Key.OrganizationID, in.Text.Value, in.DueAt.Value.Std())
//		return n.ID, err
//	})
//
// A service that stores its records as they are answered gives them as a
// [Document]; where there are subaccounts, [Request.Sole], [Request.Within] and
// [Request.Subaccounts] say which of them a POST, one record and a list are
// about, and [Response.In] keeps the answer to those who reach it.
//
// A DELETE finds the record likewise, calls r.Match with it (412), and answers
// rest.NoContent(). Everything that changes something goes through
// [Request.Write], or the route says Claim. Errors are [problem.Error] and what
// [problem.Validation] makes; their paths name members, and become JSON
// pointers. A path "customerId" is shown as customer_id.
type Route struct {
	Method string // GET, POST, PUT or DELETE; HEAD and OPTIONS come with them
	Path   string // below the base: "/tickets/{id}/messages"
	ID     string // of the operation, unique: "listTickets"
	Tag    string // the group it is shown in: "Tickets"

	Summary string // a few words
	Doc     string // the rest; paragraphs are separated by empty lines

	Needs Permission // zero: any valid key

	// WholeScope says that the operation is about the account as a whole: a key
	// for some subaccounts only is refused, and so is a request narrowed to one.
	WholeScope bool

	Query  []Param
	Sort   []string // members a list can be sorted by; each also with "-"
	Order  string   // of a list unless asked otherwise; empty: -created_at
	Expand []Expansion
	Export bool // a list that is also had whole, as NDJSON or CSV
	// GeoJSON says that an export can also be a FeatureCollection, for records
	// with a member "geometry".
	GeoJSON bool
	File    bool // a GET that is answered with a file of any type, by [File]

	Input   *Record // the body; nil: there is none
	MaxBody int64   // bytes; 0: 1 MiB
	Import  *Import // of many records at once, by a POST that makes one; nil: there is none
	Output  *Record // the answer; nil: there is none
	Rows    *Record // what an export has, where that is not the Output: the rows in it
	List    bool    // the answer is a list of Output
	Status  int     // of success; 0: 200, for a POST with Output 201, without Output 204

	// Codes are those of fleet-api.md 5 that the handler may answer with, beyond
	// what follows from the rest of the description.
	Codes []string

	// Claim says that the change is not one transaction of this database: the
	// handler calls out, or its service has transactions of its own. A retry
	// under the same Idempotency-Key is then kept off by a claim, which a crash
	// leaves behind for 60 seconds.
	Claim bool

	Handle func(ctx context.Context, r *Request) (Response, error)

	narrows bool // the service has subaccounts
}

// Permission is what a key must be allowed.
type Permission struct {
	Resource string
	Action   apikey.Action
}

// String returns the permission as it is shown: "tickets.read".
func (p Permission) String() string { return p.Resource + "." + string(p.Action) }

// Param is a parameter of the query, beside limit, cursor, sort and expand[].
type Param struct {
	Name     string
	Kind     ParamKind
	Values   []string // of an enum
	Required bool
	Min, Max int64 // of integers and numbers, when they differ; characters of a string when Max is not 0 (else 500)
	Doc      string
	Example  string
}

// ParamKind says what a parameter looks like, and how a handler gets at it.
type ParamKind uint8

// The kinds. Ranges are asked for by created_at[gte], [gt], [lte] and [lt].
const (
	StringParam  ParamKind = iota // Request.String
	StringsParam                  // Request.Strings; commas mean "or"
	EnumParam                     // Request.String
	EnumsParam                    // Request.Strings; commas mean "or"
	IntParam                      // Request.Int
	BoolParam                     // Request.Bool; true or false
	TimeParam                     // Request.Time; RFC 3339
	NumberParam                   // Request.Number
	IntRange                      // Request.Ints
	TimeRange                     // Request.Times
)

// Expansion is a record that a request can ask to have beside its id: customer
// beside customer_id.
type Expansion struct {
	Name   string
	Needs  Permission
	Record *Record
}

func (rt *Route) success() int {
	switch {
	case rt.Status != 0:
		return rt.Status
	case rt.File:
		return 200
	case rt.Output == nil:
		return 204
	case rt.Method == "POST":
		return 201
	default:
		return 200
	}
}
