package rest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
)

// logged is a request of the log.
type logged struct {
	ID         string
	RequestID  string `json:"request_id"`
	Method     string
	Path       string
	Status     int
	Code       *string
	DurationMS float64 `json:"duration_ms"`
	Key        struct {
		ID, Name   string
		PartialKey string `json:"partial_key"`
	}
	Address   *string
	RefusedBy *struct {
		Rule   string
		Needed *string
	} `json:"refused_by"`
}

// String returns status, code, rule and the needed value.
func (l logged) String() string {
	out := fmt.Sprint(l.Status)
	if l.Code != nil {
		out += " " + *l.Code
	}
	if l.RefusedBy != nil {
		out += " " + l.RefusedBy.Rule
		if l.RefusedBy.Needed != nil {
			out += " " + *l.RefusedBy.Needed
		}
	}
	return out
}

// last returns the newest logged request of a path of the log.
func last(t *testing.T, reader *resttest.Client, path string) logged {
	t.Helper()
	var list struct{ Data []logged }
	reader.Get(path).JSON(&list)
	if len(list.Data) == 0 {
		t.Fatalf("%s has no requests", path)
	}
	return list.Data[0]
}

func (n *notebook) flush(t *testing.T) {
	t.Helper()
	if err := n.requests.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestRefusedBy: the log names the rule that refused a request and a value that it accepts.
func TestRefusedBy(t *testing.T) {
	n := open(t)
	all := []apikey.Action{apikey.Read, apikey.Create}
	named := func(actions ...apikey.Action) apikey.Grants {
		return apikey.Grants{Named: map[string][]apikey.Action{"notes": actions}}
	}
	admin := n.As(n.key(t, ours, apikey.Permissions{Level: apikey.Admin}))
	rate := int64(1)
	for _, tt := range []struct {
		what   string
		key    apikey.New
		change func(id string) error
		method string
		path   string
		want   string
	}{
		{what: "nothing", method: "GET", path: "/notes", want: "200"},
		{what: "level", key: apikey.New{Permissions: apikey.Permissions{Level: apikey.ReadOnly}}, method: "DELETE", path: "/notes/1", want: "403 permission_denied level read_write"},
		{what: "level beside resources", key: apikey.New{Permissions: apikey.Permissions{Level: apikey.ReadOnly, Resources: named(all...)}}, method: "POST", path: "/notes", want: "403 permission_denied level read_write"},
		{what: "resource", key: apikey.New{Permissions: apikey.Permissions{Resources: named(all...)}}, method: "DELETE", path: "/notes/1", want: "403 permission_denied resource notes.delete"},
		{what: "both", key: apikey.New{Permissions: apikey.Permissions{Level: apikey.ReadOnly, Resources: named(apikey.Read)}}, method: "POST", path: "/notes", want: "403 permission_denied resource notes.create"},
		{what: "expansion", key: apikey.New{Permissions: apikey.Permissions{Resources: named(all...)}}, method: "GET", path: "/notes?expand[]=author", want: "403 permission_denied resource authors.read"},
		{what: "address", key: apikey.New{AllowedIPs: []string{"203.0.113.1"}}, method: "GET", path: "/notes", want: "403 ip_not_allowed address 198.51.100.7"},
		{what: "limit", key: apikey.New{RateLimit: &rate}, method: "GET", path: "/notes", want: "429 rate_limited limit more than 1 requests a minute"},
		{what: "environment", key: apikey.New{Service: apikey.Fleet, Environment: apikey.Test}, method: "GET", path: "/notes", want: "401 wrong_environment environment http://api.example.com/sandbox/v1"},
		{what: "revoked", change: func(id string) error { _, err := n.keys.Revoke(t.Context(), ours, id); return err }, method: "GET", path: "/notes", want: "401 api_key_revoked revoked"},
		{what: "no rule", method: "GET", path: "/notes/1", want: "404 not_found"},
		{what: "no path", method: "GET", path: "/nothing", want: "404 route_not_found"},
		{what: "options", method: "OPTIONS", path: "/notes", want: "204"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if tt.key.Permissions.Level == "" && !tt.key.Permissions.Resources.Set() {
				tt.key.Permissions.Level = apikey.ReadWrite
			}
			tt.key.OrganizationID = ours
			k, token := n.make(t, tt.key)
			if tt.change != nil {
				if err := tt.change(k.ID); err != nil {
					t.Fatal(err)
				}
			}
			c := n.As(token)
			if tt.key.RateLimit != nil {
				c.Get("/notes")
			}
			answer := c.Do(tt.method, tt.path, "", "X-Forwarded-For: 198.51.100.7")
			n.flush(t)
			if k.Service == apikey.Fleet {
				found, err := n.requests.Find(t.Context(), ours, answer.Header.Get("X-Request-Id"), requestlog.Query{KeyID: k.ID})
				if got := fmt.Sprint(found.Status, " ", found.Code, " ", found.Refusal.Rule, " ", found.Refusal.Needed); err != nil || got != tt.want {
					t.Errorf("got %s, %v; want %s", got, err, tt.want)
				}
				return
			}
			got := last(t, admin, "/requests?key_id="+k.ID)
			if got.String() != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got.Method != tt.method || got.Key.ID != k.ID || got.Key.PartialKey != k.PartialKey || got.RequestID != answer.Header.Get("X-Request-Id") || *got.Address != "198.51.100.7" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestRequestRoutes(t *testing.T) {
	n := open(t)
	n.add(t, "one")
	admin := n.As(n.key(t, ours, apikey.Permissions{Level: apikey.Admin}))
	theirs := n.As(n.key(t, theirs, apikey.Permissions{Level: apikey.Admin}))
	answer := admin.Get("/notes", "X-Request-Id: mine.1")
	n.As("sk_live_unknown").Get("/notes")
	n.flush(t)
	ids := func(c *resttest.Client, path string) string {
		var list struct{ Data []logged }
		c.Get(path).JSON(&list)
		var out []string
		for _, l := range list.Data {
			out = append(out, l.Method+" "+l.Path+" "+l.String())
		}
		return strings.Join(out, ", ")
	}
	const created, listed = "POST /api/v1/notes 201", "GET /api/v1/notes 200"
	for _, tt := range []struct {
		who  *resttest.Client
		path string
		want string
	}{
		{admin, "/requests", listed + ", " + created},
		{admin, "/requests?failed=true", ""},
		{admin, "/requests?code=not_found", ""},
		{n.Client, "/requests", created}, // only its own
		{n.Client, "/requests?key_id=" + last(t, admin, "/requests").Key.ID, ""},
		{theirs, "/requests", ""},
	} {
		if got := ids(tt.who, tt.path); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.path, got, tt.want)
		}
	}
	var first struct {
		Data       []logged
		NextCursor string `json:"next_cursor"`
	}
	admin.Get("/requests?limit=1").JSON(&first)
	if got := ids(admin, "/requests?limit=1&cursor="+first.NextCursor); got != created {
		t.Errorf("the second page has %s", got)
	}
	var one logged
	admin.Get("/requests/mine.1").JSON(&one)
	if one.RequestID != answer.Header.Get("X-Request-Id") || one.DurationMS <= 0 || one.DurationMS > float64(time.Minute.Milliseconds()) {
		t.Errorf("got %+v", one)
	}
	for who, want := range map[*resttest.Client]int{admin: 200, n.Client: 404, theirs: 404} {
		if a := who.Get("/requests/" + one.ID); a.Status != want {
			t.Errorf("got %d %s, want %d", a.Status, a.Body, want)
		}
	}
}

// TestLoggedPath: the log has no values that may be personal, and bounded paths.
func TestLoggedPath(t *testing.T) {
	n := open(t)
	admin := n.As(n.key(t, ours, apikey.Permissions{Level: apikey.Admin}))
	long := strings.Repeat("x", 5000)
	for _, tt := range []struct{ path, want string }{
		{"/notes?q=ana&limit=5&kind=loud,plain&done=true&sort=-created_at&stars%5Bgte%5D=3", "/notes?done=true&kind=loud%2Cplain&limit=5&q=*&sort=-created_at&stars%5Bgte%5D=3"},
		{"/notes?limit=ana&kind=ana&done=ana&sort=ana&created_at%5Bgte%5D=ana&ana@client.example=1", "/notes?ana%40client.example=*&created_at%5Bgte%5D=*&done=*&kind=*&limit=*&sort=*"},
		{"/nothing?limit=5", "/nothing?limit=*"},
		{"/notes/" + long, ("/notes/" + long)[:300-len("/api/v1")]},
		{"/notes?q=" + long, "/notes?q=*"},
		{"/notes?limit=" + strings.Repeat("0", 5000) + "5", "/notes?limit=*"},
	} {
		n.Get(tt.path)
		n.flush(t)
		got := last(t, admin, "/requests?limit=1").Path
		n.flush(t) // the reader's own request comes before the next
		if got != "/api/v1"+tt.want {
			t.Errorf("%.80s: got %s, want /api/v1%s", tt.path, got, tt.want)
		}
	}
}

// TestReplayedProblem: a stored answer is logged with its code.
func TestReplayedProblem(t *testing.T) {
	n := open(t)
	note := n.add(t, "one")
	for range 2 {
		if a := n.Do("PUT", "/notes/"+note.ID, `{"text":"stuck"}`, "Idempotency-Key: k"); a.Status != 409 {
			t.Fatalf("got %d %s", a.Status, a.Body)
		}
		n.flush(t)
	}
	var list struct{ Data []logged }
	n.Get("/requests?code=invalid_transition").JSON(&list)
	if len(list.Data) != 2 || list.Data[0].String() != "409 invalid_transition" {
		t.Errorf("got %v", list.Data)
	}
}
