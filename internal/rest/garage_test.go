package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// garage is a service that stores records in their wire format.
type garage struct {
	db   *db.DB
	keys *apikey.Service
	api  *rest.API
	*resttest.Client

	config rest.Config
}

var owner = &schema.Record{Name: "owner", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("owner")},
}}

var bike = &schema.Record{Name: "bike", Doc: "It has two wheels.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("bike")},
	{Name: "subaccount_id", Type: schema.ID(), Access: schema.CreateOnly},
	{Name: "code", Type: schema.String(1, 10), Access: schema.Required},
	{Name: "gears", Type: schema.Int(1, 30), Access: schema.Writable, Nullable: true},
	{Name: "electric", Type: schema.Bool(), Access: schema.Writable},
	{Name: "weight", Type: schema.Number(), Access: schema.Writable, Nullable: true},
	{Name: "bought_at", Type: schema.Timestamp(), Access: schema.Writable, Nullable: true},
	{Name: "tags", Type: schema.Array(schema.String(1, 10), 3), Access: schema.Writable},
	{Name: "place", Access: schema.Writable, Nullable: true, Type: schema.Object(
		schema.Member{Name: "lat", Type: schema.Number(), Access: schema.Required},
		schema.Member{Name: "label", Type: schema.String(0, 20), Access: schema.Writable, Nullable: true},
	)},
	{Name: "geometry", Type: schema.JSON(), Access: schema.Writable, Nullable: true},
	{Name: "metadata", Type: schema.Metadata(), Access: schema.Writable},
	{Name: "distance_meters", Type: schema.Integer(), Sometimes: true},
	{Name: "created_at", Type: schema.Timestamp()},
}}

type wireBike struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`
	Sub       string            `json:"subaccount_id"`
	Code      string            `json:"code"`
	Gears     *int64            `json:"gears"`
	Electric  bool              `json:"electric"`
	Weight    *json.Number      `json:"weight"`
	BoughtAt  rfc3339.Time      `json:"bought_at"`
	Tags      []string          `json:"tags"`
	Place     *place            `json:"place"`
	Geometry  json.RawMessage   `json:"geometry"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt rfc3339.Time      `json:"created_at"`
}

type bikeBody struct {
	Sub      optional.Value[string]            `json:"subaccount_id"`
	Code     optional.Value[string]            `json:"code"`
	Gears    optional.Value[*int64]            `json:"gears"`
	Electric optional.Value[bool]              `json:"electric"`
	Weight   optional.Value[*json.Number]      `json:"weight"`
	BoughtAt optional.Value[rfc3339.Time]      `json:"bought_at"`
	Tags     optional.Value[[]string]          `json:"tags"`
	Place    optional.Value[*place]            `json:"place"`
	Geometry optional.Value[json.RawMessage]   `json:"geometry"`
	Metadata optional.Value[map[string]string] `json:"metadata"`
}

func (b *bikeBody) apply(w *wireBike) {
	w.Code = b.Code.Or(w.Code)
	w.Electric = b.Electric.Or(w.Electric)
	if b.Gears.Set {
		w.Gears = b.Gears.Value
	}
	if b.Weight.Set {
		w.Weight = b.Weight.Value
	}
	if b.BoughtAt.Set {
		w.BoughtAt = b.BoughtAt.Value
	}
	if b.Tags.Set {
		w.Tags = b.Tags.Value
	}
	if b.Place.Set {
		w.Place = b.Place.Value
	}
	if b.Geometry.Set {
		w.Geometry = b.Geometry.Value
	}
	if b.Metadata.Set {
		w.Metadata = b.Metadata.Value
	}
}

// storedBike is a row.
type storedBike struct {
	id, sub string
	doc     rest.Document
}

func scanBike(row db.Row) (b storedBike, err error) {
	var text string
	err = row.Scan(&b.id, &b.sub, &b.doc.Revision, &text)
	b.doc.JSON = []byte(text)
	return b, err
}

func (g *garage) find(ctx context.Context, q db.Querier, r *rest.Request) (storedBike, error) {
	b, err := g.byID(ctx, q, r, r.Path("id"))
	if err == nil {
		err = r.Within(b.sub)
	}
	return b, err
}

func (g *garage) byID(ctx context.Context, q db.Querier, r *rest.Request, id string) (storedBike, error) {
	got, err := db.One(ctx, q, scanBike, "SELECT id, subaccount_id, revision, record FROM bikes WHERE organization_id = $1 AND id = $2", r.Key.OrganizationID, id)
	if errors.Is(err, db.ErrNoRows) {
		return got, problem.New(problem.NotFound, "there is no such bike")
	}
	return got, err
}

func (g *garage) each(ctx context.Context, r *rest.Request, after string) iter.Seq2[storedBike, error] {
	return func(yield func(storedBike, error) bool) {
		err := g.db.Read(ctx, func(tx *db.Tx) error {
			all, err := db.All(ctx, tx, scanBike, "SELECT id, subaccount_id, revision, record FROM bikes WHERE organization_id = $1 AND id > $2 ORDER BY id", r.Key.OrganizationID, after)
			for _, b := range all {
				if only := r.Subaccounts(); only != nil && !slices.Contains(only, b.sub) {
					continue
				}
				if r.Has("near") && !r.Sorted() {
					b.doc = b.doc.With("distance_meters", strconv.AppendInt(nil, 7, 10))
				}
				if r.Expanded("owner") {
					b.doc = b.doc.With("owner", []byte(`{"id":"o1","object":"owner"}`))
				}
				if !yield(b, nil) {
					return nil
				}
			}
			return err
		})
		if err != nil {
			yield(storedBike{}, err)
		}
	}
}

// fixedBike has the size of a vehicle.
var fixedBike = rest.Document{Revision: 7, JSON: []byte(`{"id":"0190c0de-0000-7000-8000-000000000003","object":"bike","subaccount_id":"sub_a","code":"B-0417","gears":27,"electric":true,` +
	`"weight":18.25,"bought_at":"2026-01-08T11:00:00.000Z","tags":["red","fast"],"place":{"lat":52.531677,"label":"in the yard, \"left\""},` +
	`"geometry":{"type":"Point","coordinates":[13.381777,52.531677]},"metadata":{"tier":"gold","depot":"north"},"created_at":"2026-01-08T11:00:00.000Z"}`)}

func (g *garage) list(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var from after
	if _, err := r.Cursor(&from); err != nil {
		return rest.Response{}, err
	}
	all := g.each(ctx, r, from.ID)
	if r.Exporting() {
		return rest.Export(func(yield func(rest.Document, error) bool) {
			for b, err := range all {
				if !yield(b.doc, err) {
					return
				}
			}
		}), nil
	}
	var page []rest.Document
	last := ""
	for b, err := range all {
		if err != nil {
			return rest.Response{}, err
		}
		if len(page) == r.Limit() {
			return rest.List(page, after{last}), nil
		}
		page, last = append(page, b.doc), b.id
	}
	return rest.List(page, nil), nil
}

// make inserts a bike.
func (g *garage) make(ctx context.Context, tx *db.Tx, r *rest.Request, sub string, in *bikeBody) (storedBike, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return storedBike{}, err
	}
	w := wireBike{ID: id.String(), Object: "bike", Sub: sub, Tags: []string{}, Metadata: map[string]string{}, CreatedAt: rfc3339.Time(tx.Now)}
	in.apply(&w)
	if w.Code == "taken" {
		return storedBike{}, &problem.Error{Kind: problem.Conflict, Code: "already_exists", Message: "there is such a bike", Details: map[string]any{"member": "code"}}
	}
	text, err := json.Marshal(w)
	if err != nil {
		return storedBike{}, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO bikes (id, organization_id, subaccount_id, revision, record) VALUES ($1, $2, $3, 1, $4)", w.ID, r.Key.OrganizationID, sub, string(text))
	return storedBike{w.ID, sub, rest.Document{JSON: text, Revision: 1}}, err
}

// change applies a body to a bike, and returns its record.
func (g *garage) change(ctx context.Context, tx *db.Tx, b storedBike, in *bikeBody) ([]byte, error) {
	var w wireBike
	if err := json.Unmarshal(b.doc.JSON, &w); err != nil {
		return nil, err
	}
	in.apply(&w)
	text, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, "UPDATE bikes SET revision = revision + 1, record = $1 WHERE id = $2", string(text), b.id)
	return text, err
}

func (g *garage) at(t *testing.T, host string) *rest.API {
	t.Helper()
	c := g.config
	c.Host = host
	api, err := rest.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// TestHost holds that bases that are the same can be at hosts of their own.
func TestHost(t *testing.T) {
	g := openGarage(t)
	for _, test := range []struct {
		host, asked string
		want        int
	}{
		{"", "anything", 401}, {"api.example.com", "api.example.com", 401}, {"api.example.com", "API.example.com:8080", 401}, {"api.example.com", "sandbox.example.com", 418},
		{"api.example.com", "", 418}, {"api.example.com:8080", "api.example.com:8080", 401}, {"api.example.com:8080", "api.example.com", 418}, {"api.example.com:8080", "api.example.com:80", 418},
		{"[::1]", "[::1]:8080", 401}, {"[::1]", "[::1]", 401}, {"[::1]", "[::2]", 418},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/v1/bikes", nil)
		r.Host = test.asked
		g.at(t, test.host).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(418) })).ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("host %q, asked %q: got %d, want %d", test.host, test.asked, w.Code, test.want)
		}
	}
}

func (g *garage) routes() []rest.Route {
	may := func(a apikey.Action) rest.Permission { return rest.Permission{Resource: "bikes", Action: a} }
	expand := []rest.Expansion{{Name: "owner", Needs: may(apikey.Read), Record: owner}}
	return []rest.Route{{
		Method: "GET", Path: "/bikes", ID: "listBikes", Tag: "Bikes", Summary: "List bikes", Needs: may(apikey.Read),
		Query: []rest.Param{{Name: "near", Kind: rest.BoolParam}, {Name: "lat", Kind: rest.NumberParam, Min: -90, Max: 90, Example: "52.5"}, {Name: "weight", Kind: rest.NumberParam}, {Name: "subaccount_id", Kind: rest.StringsParam}}, Expand: expand,
		Sort: []string{"created_at"}, Order: "created_at", Export: true, GeoJSON: true, Output: bike, List: true, Handle: g.list,
	}, {
		Method: "POST", Path: "/bikes", ID: "createBike", Tag: "Bikes", Summary: "Create a bike", Needs: may(apikey.Create),
		Input: bike, Output: bike, Codes: []string{"already_exists"},
		Import: &rest.Import{Types: []string{rest.NDJSON, rest.CSV, rest.GeoJSON}, Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			return rest.ImportEach(ctx, r, func(tx *db.Tx, l *rest.Line, in *bikeBody) (string, error) {
				b, err := g.make(ctx, tx, r, l.Subaccount, in)
				if in.Code.Value == "late" { // after it was written
					return "", problem.New(problem.Precondition, "it is too late for bike %d", l.N)
				}
				if in.Code.Value == "disk" {
					return "", errors.New("the disk said something secret")
				}
				return b.id, err
			}, func(tx *db.Tx, l *rest.Line) (*rest.Existing, error) {
				b, err := g.byID(ctx, tx, r, l.ID)
				return &rest.Existing{ID: b.id, Subaccount: b.sub, Current: b.doc, Change: func(decode func(any) error) ([]string, error) {
					var in bikeBody
					if err := decode(&in); err != nil {
						return nil, err
					}
					if in.Code.Value == "stuck" {
						return nil, problem.New(problem.Precondition, "the bike is stuck")
					}
					_, err := g.change(ctx, tx, b, &in)
					return nil, err
				}}, err
			})
		}},
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			var in bikeBody
			sub, err := r.DecodeSole(ctx, &in)
			if err != nil {
				return rest.Response{}, err
			}
			return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
				b, err := g.make(ctx, tx, r, sub, &in)
				return rest.Created("/bikes/"+b.id, b.doc).In(b.sub), err
			})
		},
	}, {
		Method: "GET", Path: "/bikes/{id}", ID: "getBike", Tag: "Bikes", Summary: "Read a bike", Needs: may(apikey.Read), Output: bike, Expand: expand,
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			b, err := g.find(ctx, g.db, r)
			if err != nil {
				return rest.Response{}, err
			}
			if r.Expanded("owner") {
				b.doc = b.doc.With("owner", nil)
			}
			return rest.OK(b.doc), nil
		},
	}, {
		Method: "PUT", Path: "/bikes/{id}", ID: "updateBike", Tag: "Bikes", Summary: "Change a bike", Needs: may(apikey.Update), Input: bike, Output: bike,
		Codes: []string{"invalid_transition"},
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
				b, err := g.find(ctx, tx, r)
				if err != nil {
					return rest.Response{}, err
				}
				var in bikeBody
				if err := r.Update(b.doc, &in, "distance_meters"); err != nil {
					return rest.Response{}, err
				}
				if in.Code.Value == "stuck" {
					return rest.Response{}, problem.New(problem.Precondition, "the bike is stuck")
				}
				text, err := g.change(ctx, tx, b, &in)
				return rest.OK(rest.Document{JSON: text, Revision: b.doc.Revision + 1}).In(b.sub), err
			})
		},
	}, {
		Method: "DELETE", Path: "/bikes/{id}", ID: "deleteBike", Tag: "Bikes", Summary: "Delete a bike", Needs: may(apikey.Delete),
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
				b, err := g.find(ctx, tx, r)
				if err == nil {
					err = r.Match(b.doc)
				}
				if err != nil {
					return rest.Response{}, err
				}
				_, err = tx.Exec(ctx, "DELETE FROM bikes WHERE id = $1", b.id)
				return rest.NoContent().In(b.sub), err
			})
		},
	}, {
		// The overhead of the API: records in memory.
		Method: "GET", Path: "/fixed", ID: "getFixed", Tag: "Bikes", Summary: "Read a bike that is not stored", Needs: may(apikey.Read), Output: bike,
		Deprecated: &rest.Deprecation{Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Sunset: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)},
		Handle:     func(ctx context.Context, r *rest.Request) (rest.Response, error) { return rest.OK(fixedBike), nil },
	}, {
		Method: "GET", Path: "/parked", ID: "listParked", Tag: "Bikes", Summary: "List 100,000 bikes that are not stored", Needs: may(apikey.Read), Output: bike,
		List: true, Export: true, GeoJSON: true,
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			if !r.Exporting() {
				return rest.List([]rest.Document{fixedBike, fixedBike}, nil), nil
			}
			return rest.Export(func(yield func(rest.Document, error) bool) {
				for range 100_000 {
					if !yield(fixedBike, nil) {
						return
					}
				}
			}), nil
		},
	}, {
		Method: "GET", Path: "/owner", ID: "getOwner", Tag: "Owner", Summary: "Read the owner", Needs: may(apikey.Read), Output: owner, WholeScope: true,
		Handle: func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			return rest.OK(rest.Document{JSON: []byte(`{"id":"o1","object":"owner"}`)}), nil
		},
	}}
}

func openGarage(t testing.TB) *garage {
	t.Helper()
	return openGarageOn(t, dbtest.New(t))
}

func openGarageOn(t testing.TB, d *db.DB) *garage {
	t.Helper()
	g := &garage{db: d}
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "CREATE TABLE bikes (id TEXT PRIMARY KEY, organization_id TEXT NOT NULL, subaccount_id TEXT NOT NULL, revision BIGINT NOT NULL, record TEXT NOT NULL)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := []apikey.Action{apikey.Read, apikey.Create, apikey.Update, apikey.Delete}
	g.keys = apikey.Open(apikey.Config{
		DB: d,
		Catalogues: map[apikey.ServiceName]apikey.Catalogue{
			apikey.Fleet: {Resources: []apikey.Resource{{Name: "bikes", Actions: all}}, Test: true, Subaccounts: true},
		},
		PlanLimit: func(context.Context, string) (int64, error) { return 1 << 40, nil },
	})
	key, err := seal.ParseKey("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=")
	if err != nil {
		t.Fatal(err)
	}
	g.config = rest.Config{
		Base: "/v1", Origin: "http://api.example.com", Service: apikey.Fleet, Environment: apikey.Live, Realm: "fleet",
		Title: "Garage", Description: "Bikes.", Version: "1.0",
		Keys: g.keys, KeyLimiter: ratelimit.NewMemory(time.Minute), AddressLimiter: ratelimit.NewMemory(time.Minute), DB: d, Box: seal.New(key),
		Routes: g.routes(),
		Subaccounts: func(_ context.Context, organizationID string) ([]string, error) {
			if organizationID != ours {
				return []string{"sub_x"}, nil
			}
			return []string{"sub_a", "sub_b", "sub_c"}, nil
		},
	}
	if g.api, err = rest.New(g.config); err != nil {
		t.Fatal(err)
	}
	g.Client = resttest.New(t, g.api, "/v1").As(g.key(t, ours, apikey.Permissions{Level: apikey.ReadWrite}, "sub_a"))
	return g
}

// key creates a key for the given subaccounts, or all without any, and returns its token.
func (g *garage) key(t testing.TB, organization string, p apikey.Permissions, subaccounts ...string) string {
	t.Helper()
	_, token, err := g.keys.Create(t.Context(), apikey.New{
		OrganizationID: organization, Service: apikey.Fleet, Environment: apikey.Live, Permissions: p, Name: uuid.NewString(), Scope: apikey.ScopeOf(subaccounts),
	})
	if err != nil {
		t.Fatal(err)
	}
	return token.Reveal()
}

// id returns the id of an answer's record.
func id(a resttest.Answer) string {
	var record struct{ ID string }
	a.JSON(&record)
	return record.ID
}

// TestDeprecated: every answer of a deprecated operation announces its removal, a refusal, too.
func TestDeprecated(t *testing.T) {
	g := openGarage(t)
	for _, a := range []resttest.Answer{g.Get("/fixed"), g.As("").Get("/fixed"), g.Get("/fixed?wrong=1")} {
		want := a.Status != 401 // which precedes routing
		if got := a.Header.Get("Deprecation") == "@1767225600" && a.Header.Get("Sunset") == "Fri, 01 Jan 2027 00:00:00 GMT"; got != want {
			t.Errorf("answer %d has Deprecation %q and Sunset %q", a.Status, a.Header.Get("Deprecation"), a.Header.Get("Sunset"))
		}
	}
	if a := g.Get("/bikes"); a.Header.Get("Deprecation") != "" {
		t.Error("an operation that stays is deprecated")
	}
	if doc := string(resttest.OpenAPI(t, g.api)); strings.Count(doc, `"deprecated":true`) != 1 || !strings.Contains(doc, "Deprecated since 2026-01-01, and removed on 2027-01-01 or later.") {
		t.Error("the document does not have the deprecation once")
	}
}

// TestDocument holds that a record that is encoded already is answered as it is
// wherever a record can be.
func TestDocument(t *testing.T) {
	g := openGarage(t)
	a := g.Do("POST", "/bikes", `{"code":"a<b>&","gears":3,"place":{"lat":1.50},"metadata":{"k":"v"}}`)
	where := a.Header.Get("Location")
	if a.Status != 201 || a.Header.Get("ETag") != `"1"` || !strings.Contains(a.Body, `"code":"a\u003cb\u003e\u0026"`) || !strings.Contains(a.Body, `"lat":1.50`) {
		t.Fatalf("POST: got %d %v %s", a.Status, a.Header, a.Body)
	}
	if got := g.Get(where); got.Body != a.Body || got.Header.Get("ETag") != `"1"` {
		t.Errorf("GET: got %s %s, want %s", got.Header.Get("ETag"), got.Body, a.Body)
	}
	if got := g.Get(where, `If-None-Match: "0", W/"1"`); got.Status != 304 || got.Header.Get("ETag") != `"1"` {
		t.Errorf("If-None-Match: got %d", got.Status)
	}
	if got := g.Do("PUT", where, `{"gears":4}`, `If-Match: "2"`); got.Status != 412 {
		t.Errorf("PUT of another revision: got %d %s", got.Status, got.Body)
	}
	put := g.Do("PUT", where, strings.Replace(a.Body, `"gears":3`, `"gears":4`, 1), `If-Match: "1"`, "Idempotency-Key: k1")
	if put.Status != 200 || put.Header.Get("ETag") != `"2"` || !strings.Contains(put.Body, `"gears":4`) {
		t.Fatalf("PUT: got %d %s %s", put.Status, put.Header.Get("ETag"), put.Body)
	}
	if again := g.Do("PUT", where, strings.Replace(a.Body, `"gears":3`, `"gears":4`, 1), "Idempotency-Key: k1"); again.Body != put.Body || again.Header.Get("ETag") != `"2"` {
		t.Errorf("replay: got %d %s %s", again.Status, again.Header.Get("ETag"), again.Body)
	}
	if got := g.Get(where + "?expand[]=owner"); got.Status != 200 || got.Header.Get("ETag") != "" || got.Body != strings.TrimSuffix(put.Body, "}")+`,"owner":null}` {
		t.Errorf("expanded: got %s %s", got.Header.Get("ETag"), got.Body)
	}
	second := g.Do("POST", "/bikes", `{"code":"two"}`)
	page := g.Get("/bikes?limit=1")
	var list struct {
		Next string `json:"next_cursor"`
	}
	page.JSON(&list)
	if want := `{"object":"list","url":"/v1/bikes","data":[` + put.Body + `],"has_more":true,"next_cursor":"` + list.Next + `"}`; page.Body != want || list.Next == "" {
		t.Errorf("list: got %s, want %s", page.Body, want)
	}
	if got, want := g.Get("/bikes?limit=1&cursor="+list.Next).Body, `{"object":"list","url":"/v1/bikes","data":[`+second.Body+`],"has_more":false,"next_cursor":null}`; got != want {
		t.Errorf("last page: got %s, want %s", got, want)
	}
	if got := g.Get("/bikes?near=true&expand[]=owner&limit=1"); !strings.Contains(got.Body, `Z","distance_meters":7,"owner":{"id":"o1","object":"owner"}}]`) {
		t.Errorf("list with members more: got %s", got.Body)
	}
	if got := g.Get("/bikes?near=true&sort=created_at&limit=1"); strings.Contains(got.Body, "distance_meters") {
		t.Errorf("a list that is sorted by request: got %s", got.Body)
	}
	if got := g.Get("/bikes", "Accept: application/x-ndjson"); got.Body != put.Body+"\n"+second.Body+"\n" {
		t.Errorf("NDJSON: got %s", got.Body)
	}
	if got, want := g.Get("/bikes", "Accept: text/csv").Body, "id,object,subaccount_id,code,gears,electric,weight,bought_at,tags,place.lat,place.label,geometry,metadata,distance_meters,created_at\r\n"+
		id(put)+",bike,sub_a,a<b>&,4,false,,,[],1.50,,,"+`"{""k"":""v""}",,`; !strings.HasPrefix(got, want) {
		t.Errorf("CSV: got %s, want %s", got, want)
	}
	writer := g.As(g.key(t, ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"bikes": {apikey.Create}}}}, "sub_a"))
	if got := writer.Do("POST", "/bikes", `{"code":"three"}`); got.Status != 201 || got.Body != `{"id":"`+id(got)+`","object":"bike"}` {
		t.Errorf("a key that may not read: got %d %s", got.Status, got.Body)
	}
	if got := g.Do("DELETE", where, "", `If-Match: "1"`); got.Status != 412 {
		t.Errorf("DELETE of another revision: got %d %s", got.Status, got.Body)
	}
	if got := g.Do("DELETE", where, "", `If-Match: "2"`); got.Status != 204 {
		t.Errorf("DELETE: got %d %s", got.Status, got.Body)
	}
}

func TestDocumentWith(t *testing.T) {
	for doc, want := range map[string]string{`{}`: `{"a\"":1,"b":null}`, `{"x":{}}`: `{"x":{},"a\"":1,"b":null}`} {
		d := rest.Document{JSON: []byte(doc), Revision: 7}
		got := d.With(`a"`, []byte("1")).With("b", nil)
		if string(got.JSON) != want || got.Revision != 0 || string(d.JSON) != doc {
			t.Errorf("%s: got %s of revision %d, want %s of 0", doc, got.JSON, got.Revision, want)
		}
	}
	// One inside of another record.
	text, err := json.Marshal(map[string]any{"a": []any{rest.Document{JSON: []byte(`{"b":1}`)}}})
	if err != nil || string(text) != `{"a":[{"b":1}]}` {
		t.Errorf("got %s, %v", text, err)
	}
}
