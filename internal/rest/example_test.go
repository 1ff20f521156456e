package rest_test

import (
	"context"
	"iter"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// reminderRecord describes the JSON object.
var reminderRecord = &schema.Record{Name: "reminder", Doc: "Something to remember.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("reminder")},
	{Name: "text", Type: schema.String(1, 500), Access: schema.Required, Doc: "What to remember.", Example: "Buy tyres"},
	{Name: "due_at", Type: schema.Timestamp(), Access: schema.Writable, Nullable: true, Doc: "When it must be done."},
	{Name: "metadata", Type: schema.Metadata(), Access: schema.Writable},
	{Name: "created_at", Type: schema.Timestamp()},
}}

// reminder is the record in answers.
type reminder struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`
	Text      string            `json:"text"`
	DueAt     rfc3339.Time      `json:"due_at"` // null when zero
	Metadata  map[string]string `json:"metadata"`
	CreatedAt rfc3339.Time      `json:"created_at"`
}

// reminderBody is the record in requests.
type reminderBody struct {
	Text     optional.Value[string]            `json:"text"`
	DueAt    optional.Value[rfc3339.Time]      `json:"due_at"`
	Metadata optional.Value[map[string]string] `json:"metadata"` // merged with the stored map
}

// reminderQuery selects a page of reminders.
type reminderQuery struct {
	From, Until time.Time
	Sort        string
	Descending  bool
	Limit       int
	After       *reminderCursor
}

// reminderCursor is the position after a record: any type that JSON encodes.
type reminderCursor struct {
	Value string `json:"value"`
	ID    string `json:"id"`
}

// reminderService holds the rules and the storage. Methods in Tx write in the caller's transaction.
type reminderService interface {
	Each(ctx context.Context, organizationID string, q reminderQuery) iter.Seq2[reminder, error]
	List(ctx context.Context, organizationID string, q reminderQuery) ([]reminder, *reminderCursor, error)
	FindTx(ctx context.Context, tx *db.Tx, organizationID, id string) (reminder, error)
	CreateTx(ctx context.Context, tx *db.Tx, organizationID string, in reminderBody) (reminder, error)
	UpdateTx(ctx context.Context, tx *db.Tx, r reminder, in reminderBody) (reminder, error)
}

// reminderRoutes returns a list with export, a create with import, an update and a delete.
func reminderRoutes(s reminderService) []rest.Route {
	needs := func(action apikey.Action) rest.Permission {
		return rest.Permission{Resource: "reminders", Action: action}
	}
	return []rest.Route{{
		Method: "GET", Path: "/reminders", ID: "listReminders", Tag: "Reminders", Summary: "List reminders",
		Needs:  needs(apikey.Read),
		Query:  []rest.Param{{Name: "created_at", Kind: rest.TimeRange}},
		Sort:   []string{"created_at", "due_at"}, // default: -created_at
		Export: true,
		Output: reminderRecord, List: true,
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			q := reminderQuery{Sort: r.Sort().Field, Descending: r.Sort().Descending, Limit: r.Limit()}
			q.From, q.Until = r.Times("created_at")
			if r.Exporting() {
				return rest.Export(s.Each(ctx, r.Key.OrganizationID, q)), nil
			}
			if _, err := r.Cursor(&q.After); err != nil {
				return rest.Response{}, err
			}
			page, next, err := s.List(ctx, r.Key.OrganizationID, q)
			if err != nil {
				return rest.Response{}, err
			}
			if next == nil { // not a nil pointer in an interface
				return rest.List(page, nil), nil
			}
			return rest.List(page, next), nil
		},
	}, {
		Method: "POST", Path: "/reminders", ID: "createReminder", Tag: "Reminders", Summary: "Create a reminder",
		Needs: needs(apikey.Create),
		Input: reminderRecord, Output: reminderRecord,
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			var in reminderBody
			if err := r.Decode(&in); err != nil { // 422 with all invalid fields
				return rest.Response{}, err
			}
			return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
				created, err := s.CreateTx(ctx, tx, r.Key.OrganizationID, in)
				if err != nil {
					return rest.Response{}, err
				}
				return rest.Created("/reminders/"+created.ID, created), nil
			})
		},
		Import: &rest.Import{
			Types: []string{rest.NDJSON, rest.CSV},
			Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
				return rest.ImportEach(ctx, r, func(tx *db.Tx, _ *rest.Line, in *reminderBody) (string, error) {
					created, err := s.CreateTx(ctx, tx, r.Key.OrganizationID, *in)
					return created.ID, err
				}, nil)
			},
		},
	}, {
		Method: "PUT", Path: "/reminders/{id}", ID: "updateReminder", Tag: "Reminders", Summary: "Change a reminder",
		Needs: needs(apikey.Update),
		Input: reminderRecord, Output: reminderRecord,
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
				current, err := s.FindTx(ctx, tx, r.Key.OrganizationID, r.Path("id")) // 404
				if err != nil {
					return rest.Response{}, err
				}
				var in reminderBody
				if err := r.Update(current, &in); err != nil { // 422, then 412
					return rest.Response{}, err
				}
				changed, err := s.UpdateTx(ctx, tx, current, in)
				if err != nil {
					return rest.Response{}, err
				}
				return rest.OK(changed), nil
			})
		},
	}}
}

// A record with a list, a create with import, and an update. Routes of a service are passed to
// [rest.New] in [rest.Config.Routes].
func Example() {
	var service reminderService // with storage
	routes := reminderRoutes(service)
	_ = rest.Config{Base: "/api/v1", Routes: routes} // and keys, limits and a database
}
