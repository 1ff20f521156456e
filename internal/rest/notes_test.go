package rest_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

const (
	ours   = "0190c0de-0000-7000-8000-000000000001"
	theirs = "0190c0de-0000-7000-8000-000000000002"
)

// notebook is a service small enough to be read at a glance, and its API.
type notebook struct {
	db   *db.DB
	keys *apikey.Service
	api  *rest.API
	*resttest.Client
	requests *requestlog.Log

	logged    *strings.Builder
	logMu     sync.Mutex
	enter     chan struct{} // if not nil, create and ring signal here that they run, and
	leave     chan struct{} // wait for this
	rings     int
	ring      func() // called by ring, if not nil
	failMake  error  // of POST /notes, after the change
	planLimit int64
}

func (n *notebook) Write(p []byte) (int, error) {
	n.logMu.Lock()
	defer n.logMu.Unlock()
	return n.logged.Write(p)
}

func (n *notebook) log() string {
	n.logMu.Lock()
	defer n.logMu.Unlock()
	return n.logged.String()
}

var author = &schema.Record{Name: "author", Doc: "Who writes.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("author")},
	{Name: "name", Type: schema.Text()},
}}

var note = &schema.Record{Name: "note", Doc: "Something to remember.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("note")},
	{Name: "text", Type: schema.String(1, 20), Access: schema.Required, Doc: "What to remember.", Example: "Buy tyres"},
	{Name: "kind", Type: schema.Enum("plain", "loud"), Access: schema.CreateOnly, Doc: "How it is told."},
	{Name: "stars", Type: schema.Int(0, 5), Access: schema.Writable},
	{Name: "due_at", Type: schema.Timestamp(), Access: schema.Writable, Nullable: true},
	{Name: "tags", Type: schema.Array(schema.String(1, 5), 3), Access: schema.Writable},
	{Name: "place", Access: schema.Writable, Nullable: true, Type: schema.Object(
		schema.Member{Name: "lat", Type: schema.Number(), Access: schema.Required},
		schema.Member{Name: "label", Type: schema.String(0, 10), Access: schema.Writable, Nullable: true},
	)},
	{Name: "done", Type: schema.Bool(), Access: schema.UpdateOnly},
	{Name: "pin", Type: schema.String(4, 4), Access: schema.Writable, WriteOnly: true},
	{Name: "author_id", Type: schema.ID()},
	{Name: "metadata", Type: schema.Metadata(), Access: schema.Writable},
	{Name: "created_at", Type: schema.Timestamp()},
}}

type place struct {
	Lat   json.Number `json:"lat"`
	Label *string     `json:"label"`
}

type wireNote struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`
	Text      string            `json:"text"`
	Kind      string            `json:"kind"`
	Stars     int64             `json:"stars"`
	DueAt     rfc3339.Time      `json:"due_at"`
	Tags      []string          `json:"tags"`
	Place     *place            `json:"place"`
	Done      bool              `json:"done"`
	AuthorID  string            `json:"author_id"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt rfc3339.Time      `json:"created_at"`
	Author    *wireAuthor       `json:"author,omitempty"`
}

type wireAuthor struct {
	ID     string `json:"id"`
	Object string `json:"object"`
	Name   string `json:"name"`
}

type noteBody struct {
	Text     optional.Value[string]            `json:"text"`
	Kind     optional.Value[string]            `json:"kind"`
	Stars    optional.Value[int64]             `json:"stars"`
	DueAt    optional.Value[rfc3339.Time]      `json:"due_at"`
	Tags     optional.Value[[]string]          `json:"tags"`
	Place    optional.Value[*place]            `json:"place"`
	Done     optional.Value[bool]              `json:"done"`
	Pin      optional.Value[string]            `json:"pin"`
	Metadata optional.Value[map[string]string] `json:"metadata"`
}

func (b *noteBody) apply(n *wireNote) {
	n.Text = b.Text.Or(n.Text)
	n.Kind = b.Kind.Or(n.Kind)
	n.Stars = b.Stars.Or(n.Stars)
	n.Done = b.Done.Or(n.Done)
	if b.DueAt.Set {
		n.DueAt = b.DueAt.Value
	}
	if b.Tags.Set {
		n.Tags = b.Tags.Value
	}
	if b.Place.Set {
		n.Place = b.Place.Value
	}
	if b.Metadata.Set {
		n.Metadata = b.Metadata.Value
	}
}

func scanNote(row db.Row) (n wireNote, err error) {
	err = row.Scan(db.IntoJSON(&n))
	return n, err
}

func (n *notebook) find(ctx context.Context, q db.Querier, organization, id string) (wireNote, error) {
	got, err := db.One(ctx, q, scanNote, "SELECT record FROM notes WHERE organization_id = $1 AND id = $2", organization, id)
	if errors.Is(err, db.ErrNoRows) {
		return got, problem.New(problem.NotFound, "there is no such note")
	}
	return got, err
}

type after struct {
	ID string `json:"id"`
}

// each walks over a list in either order.
func (n *notebook) each(ctx context.Context, organization string, r *rest.Request, from string) iter.Seq2[wireNote, error] {
	return func(yield func(wireNote, error) bool) {
		from0, until := r.Times("created_at")
		low, high := r.Ints("stars")
		query := "SELECT record FROM notes WHERE organization_id = $1 AND id > $2 ORDER BY id"
		if r.Sort().Descending {
			query = "SELECT record FROM notes WHERE organization_id = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC"
		}
		err := n.db.Read(ctx, func(tx *db.Tx) error {
			rows, err := tx.Query(ctx, query, organization, from)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				got, err := scanNote(rows)
				if err != nil {
					return err
				}
				at := got.CreatedAt.Std()
				if !from0.IsZero() && at.Before(from0) || !until.IsZero() && !at.Before(until) ||
					low != nil && got.Stars < *low || high != nil && got.Stars > *high {
					continue
				}
				if done, ok := r.Bool("done"); ok && done != got.Done {
					continue
				}
				if kinds := r.Strings("kind"); kinds != nil && !strings.Contains(strings.Join(kinds, " "), got.Kind) {
					continue
				}
				if got.Text == "fatal" {
					panic("something secret")
				}
				if got.Text == "broken" {
					return errors.New("the disk said something secret")
				}
				if r.Expanded("author") {
					got.Author = &wireAuthor{got.AuthorID, "author", "Ada"}
				}
				if !yield(got, nil) {
					return nil
				}
			}
			return rows.Err()
		})
		if err != nil {
			yield(wireNote{}, err)
		}
	}
}

func (n *notebook) list(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var from after
	if _, err := r.Cursor(&from); err != nil {
		return rest.Response{}, err
	}
	all := n.each(ctx, r.Key.OrganizationID, r, from.ID)
	if r.Exporting() {
		return rest.Export(all), nil
	}
	var page []wireNote
	for got, err := range all {
		if err != nil {
			return rest.Response{}, err
		}
		if len(page) == r.Limit() {
			return rest.List(page, after{page[len(page)-1].ID}), nil
		}
		page = append(page, got)
	}
	return rest.List(page, nil), nil
}

func (n *notebook) create(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in noteBody
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		if n.enter != nil {
			n.enter <- struct{}{}
			<-n.leave
		}
		id, err := uuid.NewV7()
		if err != nil {
			return rest.Response{}, err
		}
		got := wireNote{ID: id.String(), Object: "note", Kind: "plain", Tags: []string{}, AuthorID: "a1", Metadata: map[string]string{}, CreatedAt: rfc3339.Time(tx.Now)}
		in.apply(&got)
		if got.Text == "taken" {
			return rest.Response{}, &problem.Error{Kind: problem.Conflict, Code: "already_exists", Message: "there is such a note", Details: map[string]any{"member": "text"}}
		}
		if _, err := tx.Exec(ctx, "INSERT INTO notes (id, organization_id, record) VALUES ($1, $2, $3)", got.ID, r.Key.OrganizationID, db.JSON(got)); err != nil {
			return rest.Response{}, err
		}
		if n.failMake != nil {
			return rest.Response{}, n.failMake
		}
		return rest.Created("/notes/"+got.ID, got), nil
	})
}

func (n *notebook) routes() []rest.Route {
	may := func(a apikey.Action) rest.Permission { return rest.Permission{Resource: "notes", Action: a} }
	return []rest.Route{{
		Method: "GET", Path: "/notes", ID: "listNotes", Tag: "Notes", Summary: "List notes", Needs: may(apikey.Read),
		Query: []rest.Param{
			{Name: "q", Kind: rest.StringParam, Max: 10}, {Name: "kind", Kind: rest.EnumsParam, Values: []string{"plain", "loud"}},
			{Name: "done", Kind: rest.BoolParam}, {Name: "stars", Kind: rest.IntRange}, {Name: "created_at", Kind: rest.TimeRange},
		},
		Sort: []string{"created_at"}, Export: true, Output: note, List: true,
		Expand: []rest.Expansion{{Name: "author", Needs: rest.Permission{Resource: "authors", Action: apikey.Read}, Record: author}},
		Handle: n.list,
	}, {
		Method: "POST", Path: "/notes", ID: "createNote", Tag: "Notes", Summary: "Create a note", Needs: may(apikey.Create),
		Input: note, Output: note, Codes: []string{"already_exists"}, Handle: n.create,
	}, {
		Method: "GET", Path: "/notes/{id}", ID: "getNote", Tag: "Notes", Summary: "Read a note", Needs: may(apikey.Read), Output: note,
		Expand: []rest.Expansion{{Name: "author", Needs: rest.Permission{Resource: "authors", Action: apikey.Read}, Record: author}},
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			got, err := n.find(ctx, n.db, r.Key.OrganizationID, r.Path("id"))
			if err != nil {
				return rest.Response{}, err
			}
			if r.Expanded("author") {
				got.Author = &wireAuthor{got.AuthorID, "author", "Ada"}
			}
			return rest.OK(got), nil
		},
	}, {
		Method: "PUT", Path: "/notes/{id}", ID: "updateNote", Tag: "Notes", Summary: "Change a note", Needs: may(apikey.Update),
		Input: note, Output: note, Codes: []string{"invalid_transition"},
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
				got, err := n.find(ctx, tx, r.Key.OrganizationID, r.Path("id"))
				if err != nil {
					return rest.Response{}, err
				}
				var in noteBody
				if err := r.Update(got, &in); err != nil {
					return rest.Response{}, err
				}
				if in.Text.Value == "stuck" {
					return rest.Response{}, problem.New(problem.Precondition, "the note is stuck")
				}
				in.apply(&got)
				if _, err := tx.Exec(ctx, "UPDATE notes SET record = $1 WHERE id = $2", db.JSON(got), got.ID); err != nil {
					return rest.Response{}, err
				}
				return rest.OK(got), nil
			})
		},
	}, {
		Method: "DELETE", Path: "/notes/{id}", ID: "deleteNote", Tag: "Notes", Summary: "Delete a note", Needs: may(apikey.Delete),
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
				got, err := n.find(ctx, tx, r.Key.OrganizationID, r.Path("id"))
				if err != nil {
					return rest.Response{}, err
				}
				if err := r.Match(got); err != nil {
					return rest.Response{}, err
				}
				_, err = tx.Exec(ctx, "DELETE FROM notes WHERE id = $1", got.ID)
				return rest.NoContent(), err
			})
		},
	}, {
		Method: "POST", Path: "/notes/{id}/ring", ID: "ringNote", Tag: "Notes", Summary: "Ring", Needs: may(apikey.Update),
		Output: note, Status: 200, Claim: true,
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			got, err := n.find(ctx, n.db, r.Key.OrganizationID, r.Path("id"))
			if err != nil {
				return rest.Response{}, err
			}
			if n.enter != nil {
				n.enter <- struct{}{}
				<-n.leave
			}
			if n.ring != nil {
				n.ring()
			}
			n.rings++
			if got.Text == "mute" {
				return rest.Response{}, problem.New(problem.Unavailable, "the bell is broken")
			}
			return rest.OK(got), nil
		},
	}, {
		// The overhead of the API: a record in memory.
		Method: "GET", Path: "/fixed", ID: "getFixed", Tag: "Notes", Summary: "Read a note that is not stored", Needs: may(apikey.Read), Output: note,
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			return rest.OK(wireNote{ID: "n1", Object: "note", Text: "one", Kind: "plain", Tags: []string{}, AuthorID: "a1", Metadata: map[string]string{}, CreatedAt: rfc3339.Time(time.Unix(1_790_000_000, 0))}), nil
		},
	}, {
		Method: "GET", Path: "/faults/{kind}", ID: "fault", Tag: "Faults", Summary: "Fail", Output: author,
		Codes: []string{"range_too_large", "permission_denied", "body_too_large", "already_exists", "invalid_transition", "validation_failed"},
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			switch kind := r.Path("kind"); kind {
			case "panic":
				panic("something secret")
			case "unknown":
				return rest.Response{}, fmt.Errorf("something secret")
			case "unavailable":
				return rest.Response{}, problem.New(problem.Unavailable, "the store is full").Because(errors.New("something secret"))
			case "range":
				return rest.Response{}, &problem.Error{Kind: problem.Invalid, Code: "range_too_large", Message: "ask for less"}
			case "parameter":
				return rest.Response{}, rest.BadParameter("to", "to must be after from.")
			case "forbidden":
				return rest.Response{}, r.Require("authors", apikey.Read)
			case "large":
				return rest.Response{}, problem.New(problem.TooLarge, "too large")
			case "limited":
				return rest.Response{}, &problem.Error{Kind: problem.RateLimited, Message: "too often", RetryAfter: 1500 * time.Millisecond}
			case "issues":
				var v problem.Validation
				v.AddCode("too_long", "firstName", "has at most 10 characters")
				v.Add("emails.0", "is no address")
				return rest.Response{}, v.Err()
			case "reference":
				return rest.Response{}, rest.AsUnprocessable(problem.New(problem.NotFound, "there is no such author"), "author_id")
			default:
				return rest.Response{}, problem.New(problem.NotFound, "there is no fault %s", kind)
			}
		},
	}}
}

// open returns a notebook with 300 requests per minute and organization.
func open(t testing.TB) *notebook {
	t.Helper()
	return openOn(t, dbtest.New(t))
}

func openOn(t testing.TB, d *db.DB) *notebook {
	t.Helper()
	n := &notebook{db: d, logged: &strings.Builder{}, planLimit: 100_000}
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, organization_id TEXT NOT NULL, record TEXT NOT NULL)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := []apikey.Action{apikey.Read, apikey.Create, apikey.Update, apikey.Delete}
	n.keys = apikey.Open(apikey.Config{
		DB: d,
		Catalogues: map[apikey.ServiceName]apikey.Catalogue{
			apikey.Helpdesk: {Resources: []apikey.Resource{{Name: "notes", Actions: all}, {Name: "authors", Actions: all}, {Name: "settings", Actions: all[:1], Settings: true}}},
			apikey.Fleet:    {Resources: []apikey.Resource{{Name: "notes", Actions: all}}, Test: true},
		},
		PlanLimit: func(context.Context, string) (int64, error) { return n.planLimit, nil },
	})
	// One key for all, as nodes on one database have.
	key, err := seal.ParseKey(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	box := seal.New(key)
	n.requests = requestlog.Open(requestlog.Config{DB: d})
	n.api, err = rest.New(rest.Config{
		Base: "/api/v1", Origin: "http://api.example.com", Service: apikey.Helpdesk, Environment: apikey.Live, Realm: "helpdesk",
		Title: "Notebook", Description: "Notes.", Version: "1.0",
		Keys: n.keys, KeyLimiter: ratelimit.NewMemory(time.Minute), AddressLimiter: ratelimit.NewMemory(time.Minute), DB: d, Box: box, Requests: n.requests,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix(resttest.Peer + "/32")},
		Log:            slog.New(slog.NewTextHandler(n, nil)), Routes: n.routes(), Addresses: map[apikey.API]string{{Service: apikey.Fleet, Environment: apikey.Test}: "http://api.example.com/sandbox/v1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Client = resttest.New(t, n.api, "/api/v1").As(n.key(t, ours, apikey.Permissions{Level: apikey.ReadWrite}))
	return n
}

// key creates a key and returns its token.
func (n *notebook) key(t testing.TB, organization string, p apikey.Permissions) string {
	t.Helper()
	_, token := n.make(t, apikey.New{OrganizationID: organization, Service: apikey.Helpdesk, Environment: apikey.Live, Permissions: p})
	return token
}

func (n *notebook) make(t testing.TB, k apikey.New) (apikey.Key, string) {
	t.Helper()
	k.Name = uuid.NewString()
	if k.Service == "" {
		k.Service, k.Environment = apikey.Helpdesk, apikey.Live
	}
	key, token, err := n.keys.Create(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return key, token.Reveal()
}

func (n *notebook) add(t testing.TB, text string) wireNote {
	t.Helper()
	var got wireNote
	a := n.Do("POST", "/notes", `{"text":"`+text+`"}`)
	if a.Status != 201 {
		t.Fatalf("POST /notes: got %d %s", a.Status, a.Body)
	}
	a.JSON(&got)
	return got
}

func (n *notebook) count(t testing.TB) (got int) {
	t.Helper()
	if err := n.db.QueryRow(t.Context(), "SELECT count(*) FROM notes").Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}
