package rest

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// Route declares one operation. The declaration is used for routing, permissions, parsing of
// query and body, and the OpenAPI document. See the package example for a record with list,
// create and update.
//
// A POST that also accepts many records has an [Import], with [ImportEach] as its Handle. A
// service that stores records in their wire format answers with a [Document]. With subaccounts,
// [Request.DecodeSole], [Request.Within] and [Request.Subaccounts] return the subaccounts of a
// create, of a record and of a list, and [Response.In] restricts the stored answer to clients
// that reach them.
//
// A DELETE finds the record, calls [Request.Match] (412) and answers [NoContent]. Operations
// that write use [Request.Write], or set Claim. Errors are [problem.Error] or come from
// [problem.Validation]; issue paths become JSON pointers, with customerId shown as customer_id.
type Route struct {
	Method string // GET, POST, PUT or DELETE; HEAD and OPTIONS are added
	Path   string // below the base: "/tickets/{id}/messages"
	ID     string // operationId, unique: "listTickets"
	Tag    string // group in the reference: "Tickets"

	Summary string // a few words
	Doc     string // further description; empty lines separate paragraphs

	Needs Permission // zero: any valid key

	// WholeScope marks operations on the whole account: keys for some subaccounts only, and
	// requests narrowed to one, are refused.
	WholeScope bool

	Query  []Param
	Sort   []string // sort fields of a list, ascending or with "-" descending
	Order  string   // default order of a list; empty: -created_at
	Expand []Expansion
	Export bool // the list can be exported as NDJSON or CSV
	// Parquet adds the columns of the CSV with types as a Parquet file.
	Parquet bool
	// GeoJSON permits exports as FeatureCollection, for records with a field "geometry".
	GeoJSON bool
	File    bool // a GET answered by [File] with any media type
	// Stream marks a GET answered by [Stream]. It is not part of the OpenAPI document: client
	// libraries and assistants read whole answers.
	Stream bool

	Input   *schema.Record // body; nil: none
	MaxBody int64          // bytes; 0: 1 MiB
	Import  *Import        // import of many records, by a POST that creates one; nil: none
	// Reports marks a POST of many reports, as the one list of a JSON object (Input) or as NDJSON.
	// The handler reads them by [Request.Reports]; a report that is not valid fails no other. The
	// answer does not need the read permission.
	Reports bool
	Output  *schema.Record // answer; nil: none
	Rows    *schema.Record // record of an export, if not Output: the rows within it
	List    bool           // the answer is a list of Output
	Status  int            // of success; 0: 200, for a POST with Output 201, without Output 204

	// Codes are the error codes of fleet-api.md 5 that the handler may return, beyond those
	// implied by the description.
	Codes []string

	// Claim marks changes that are not a single transaction of this database: the handler makes
	// outside calls, or its service uses separate transactions; and POSTs that change nothing,
	// which need no transaction. A claim then excludes retries
	// under the same Idempotency-Key; after a crash it remains for 60 seconds.
	Claim bool

	Deprecated *Deprecation // nil: the operation stays

	Handle func(ctx context.Context, r *Request) (Response, error)

	narrows bool // the service has subaccounts
}

// Deprecation announces the removal of an operation, by the headers Deprecation (RFC 9745) and
// Sunset (RFC 8594) of its answers.
type Deprecation struct {
	Since  time.Time // of the announcement
	Sunset time.Time // the earliest removal, at least a year after the announcement
}

// setHeaders announces the removal; d may be nil.
func (d *Deprecation) setHeaders(h http.Header) {
	if d != nil {
		h["Deprecation"] = []string{"@" + strconv.FormatInt(d.Since.Unix(), 10)}
		h["Sunset"] = []string{d.Sunset.UTC().Format(http.TimeFormat)}
	}
}

// Permission is the permission that an operation requires.
type Permission struct {
	Resource string
	Action   apikey.Action
}

// String returns the permission in its public form: "tickets.read".
func (p Permission) String() string { return p.Resource + "." + string(p.Action) }

// Expansion is a record that a request can include besides its id: customer for customer_id.
type Expansion struct {
	Name   string
	Needs  Permission
	Record *schema.Record
}

// bodyUse is the use of the route's Input, as for [schema.Components.Ref].
func (rt *Route) bodyUse() string {
	if rt.Method == "PUT" {
		return "update"
	}
	return "create"
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
