package rest_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// TestOrderOfChecks is the table of fleet-api.md 3.3: each request is wrong in
// the way of its row and in ways of later ones.
func TestOrderOfChecks(t *testing.T) {
	n := open(t)
	kept := n.add(t, "keep")
	one := "/notes/" + kept.ID
	rw := apikey.Permissions{Level: apikey.ReadWrite}
	full := int64(1)
	mint := func(k apikey.New) string {
		k.OrganizationID = ours
		if !k.Resources.Set() && k.Level == "" {
			k.Permissions = rw
		}
		_, token := n.make(t, k)
		return token
	}
	revoked, revokedToken := n.make(t, apikey.New{OrganizationID: ours, Permissions: rw, AllowedIPs: []string{"203.0.113.1"}})
	if _, err := n.keys.Revoke(t.Context(), ours, revoked.ID); err != nil {
		t.Fatal(err)
	}
	soon, soonToken := n.make(t, apikey.New{OrganizationID: ours, Permissions: rw, AllowedIPs: []string{"203.0.113.1"}, ExpiresAt: time.Now().Add(20 * time.Millisecond)})
	for soon.Status(time.Now()) != apikey.Expired {
		<-time.After(time.Until(soon.ExpiresAt))
	}
	deleted, deletedToken := n.make(t, apikey.New{OrganizationID: ours, Permissions: rw})
	if err := n.keys.Delete(t.Context(), ours, deleted.ID); err != nil {
		t.Fatal(err)
	}
	fleet := mint(apikey.New{Service: apikey.Fleet, Environment: apikey.Live})
	test := mint(apikey.New{Service: apikey.Fleet, Environment: apikey.Test})
	elsewhere := mint(apikey.New{AllowedIPs: []string{"203.0.113.1"}, RateLimit: &full})
	n.As(elsewhere).Get("/key", "X-Forwarded-For: 203.0.113.1") // its window is full now
	spent := mint(apikey.New{RateLimit: &full})
	n.As(spent).Get("/key")
	nothing := mint(apikey.New{Permissions: apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{}}}})
	notes := mint(apikey.New{Permissions: apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"notes": {apikey.Read}}}}})
	good := mint(apikey.New{})
	zeros := "sk_live_" + strings.Repeat("0", 32)
	unknown := apikey.NewToken(apikey.Live).Reveal()
	big := `{"text":"` + strings.Repeat("x", 1<<20) + `"}`

	const window, address, free = "key", "address", ""
	for _, row := range []struct {
		step    int
		what    string
		token   string
		method  string
		path    string
		body    string
		headers []string
		status  int
		code    string
		policy  string // that the headers describe
		costs   int64  // of its remaining
	}{
		{1, "no header", "", "PATCH", "/nowhere", "{", nil, 401, "missing_credentials", address, 1},
		{1, "another scheme", "", "GET", "/nowhere", "", []string{"Authorization: Basic x"}, 401, "malformed_authorization", address, 1},
		{1, "no token", "", "GET", "/nowhere", "", []string{"Authorization: Bearer"}, 401, "malformed_authorization", address, 1},
		{1, "two tokens", "", "GET", "/nowhere", "", []string{"Authorization: Bearer " + good + " " + good}, 401, "malformed_authorization", address, 1},
		{1, "two headers", "", "GET", "/nowhere", "", []string{"Authorization: Bearer " + good, "Authorization: Bearer " + good}, 401, "malformed_authorization", address, 1},
		{2, "not the shape", "sk_live_1", "GET", "/nowhere", "", nil, 401, "invalid_api_key", address, 1},
		{2, "a wrong checksum", zeros + "000000", "GET", "/nowhere", "", nil, 401, "invalid_api_key", address, 1},
		{2, "a wrong checksum of the other environment", "sk_test_" + strings.Repeat("0", 38), "GET", "/nowhere", "", nil, 401, "invalid_api_key", address, 1},
		{2, "the other environment", test, "GET", "/nowhere", "", nil, 401, "wrong_environment", address, 1},
		{3, "unknown", unknown, "GET", "/nowhere", "", nil, 401, "invalid_api_key", address, 1},
		{3, "another service's", fleet, "GET", "/nowhere", "", nil, 401, "invalid_api_key", address, 1},
		{3, "deleted", deletedToken, "GET", "/nowhere", "", nil, 401, "invalid_api_key", address, 1},
		{3, "revoked, from a wrong address", revokedToken, "GET", "/nowhere", "", nil, 401, "api_key_revoked", address, 1},
		{3, "expired, from a wrong address", soonToken, "GET", "/nowhere", "", nil, 401, "api_key_expired", address, 1},
		{4, "a wrong address, with a full window", elsewhere, "GET", "/nowhere", "", nil, 403, "ip_not_allowed", address, 1},
		{4, "an address that is none", elsewhere, "GET", "/nowhere", "", []string{"X-Forwarded-For: 203.0.113.1, unknown"}, 403, "ip_not_allowed", address, 1},
		{5, "a full window", spent, "PATCH", "/nowhere", "{", nil, 429, "rate_limited", window, 0},
		{6, "a path that is not, with a key that may nothing", nothing, "GET", "/nowhere?x=1", "", []string{"Accept: image/png"}, 404, "route_not_found", window, 1},
		{6, "a slash too many", good, "GET", "/notes/", "", nil, 404, "route_not_found", window, 1},
		{6, "a method that is not, with a key that may nothing", nothing, "DELETE", "/notes?x=1", "{", []string{"Accept: image/png"}, 405, "method_not_allowed", window, 1},
		{6, "PATCH", good, "PATCH", one, `{}`, nil, 405, "method_not_allowed", window, 1},
		{7, "no permission", nothing, "POST", "/notes?x=1", "{", []string{"Accept: image/png", "Content-Type: text/plain", "Idempotency-Key: ä"}, 403, "permission_denied", window, 1},
		{7, "no permission for another's record", notes, "DELETE", "/notes/none", "", []string{"If-Match: \"x\""}, 403, "permission_denied", window, 1},
		{7, "no permission to expand", notes, "GET", "/notes?x=1&expand[]=author&expand[]=nobody", "", []string{"Accept: image/png"}, 403, "permission_denied", window, 1},
		{8, "Accept", good, "POST", "/notes?x=1", big, []string{"Accept: image/png", "Content-Type: text/plain"}, 406, "not_acceptable", window, 1},
		{8, "Content-Type", good, "POST", "/notes?x=1", big, []string{"Content-Type: text/plain"}, 415, "unsupported_media_type", window, 1},
		{8, "no Content-Type", good, "POST", "/notes", `{"text":"x"}`, []string{"Content-Type:"}, 415, "unsupported_media_type", window, 1},
		{8, "size", good, "POST", "/notes?x=1", big, nil, 413, "body_too_large", window, 1},
		{8, "JSON", good, "POST", "/notes?x=1", `{"text":}`, []string{"Idempotency-Key: ä"}, 400, "invalid_json", window, 1},
		{8, "query", good, "POST", "/notes?x=1", `{}`, []string{"Idempotency-Key: ä"}, 400, "invalid_parameter", window, 1},
		{9, "idempotency key", good, "PUT", "/notes/none", `{"nothing":1}`, []string{"Idempotency-Key: ä"}, 400, "invalid_idempotency_key", window, 1},
		{10, "no such record", good, "PUT", "/notes/none", `{"nothing":1}`, []string{`If-Match: "x"`}, 404, "not_found", window, 1},
		{10, "the body", good, "PUT", one, `{"nothing":1,"text":"stuck"}`, []string{`If-Match: "x"`}, 422, "validation_failed", window, 1},
		{10, "If-Match", good, "PUT", one, `{"text":"stuck"}`, []string{`If-Match: "x"`}, 412, "precondition_failed", window, 1},
		{10, "If-Match, with a body made from an older record", good, "PUT", one, `{"text":"stuck","created_at":"2020-01-01T00:00:00Z"}`, []string{`If-Match: "x"`}, 412, "precondition_failed", window, 1},
		{10, "the body, though it is of this record", good, "PUT", one, `{"text":"stuck","created_at":"2020-01-01T00:00:00Z"}`, []string{`If-Match: *`}, 422, "validation_failed", window, 1},
		{10, "the state", good, "PUT", one, `{"text":"stuck"}`, []string{`If-Match: *`}, 409, "invalid_transition", window, 1},
		{10, "nothing", good, "PUT", one, `{"text":"keep"}`, []string{`If-Match: *`}, 200, "", window, 1},
	} {
		before := remaining(t, n, row.token, row.policy)
		headers := row.headers
		if !slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(h, "X-Forwarded-For") }) {
			headers = append(slices.Clone(headers), "X-Forwarded-For: 198.51.100.1")
		}
		a := n.As(row.token).Do(row.method, row.path, row.body, headers...)
		what := fmt.Sprintf("step %d, %s", row.step, row.what)
		if a.Status != row.status || a.Code() != row.code {
			t.Errorf("%s: got %d %s, want %d %s", what, a.Status, a.Body, row.status, row.code)
		}
		if got := a.Header.Get("RateLimit-Policy"); !strings.HasPrefix(got, `"`+row.policy+`";`) {
			t.Errorf("%s: RateLimit-Policy %s, want policy %s", what, got, row.policy)
		}
		if strings.HasPrefix(row.what, "an address that is none") {
			continue // of another bucket: the proxy's own
		}
		if row.policy == window && row.costs == 1 {
			before-- // remaining itself costs one
		}
		if got := number(t, a, "X-RateLimit-Remaining"); got != max(0, before-row.costs) && row.policy == address || row.policy == window && got != max(0, before) {
			t.Errorf("%s: %d remain, want one less than %d", what, got, before)
		}
	}
	if n.count(t) != 1 {
		t.Errorf("there are %d notes, want 1", n.count(t))
	}
}

// remaining returns the requests left in a limit. For a key's window that costs one.
func remaining(t *testing.T, n *notebook, token, policy string) int64 {
	t.Helper()
	if policy == "address" {
		return number(t, n.As("").Get("/openapi.json", "X-Forwarded-For: 198.51.100.1"), "X-RateLimit-Remaining")
	}
	return number(t, n.As(token).Get("/key", "X-Forwarded-For: 198.51.100.1"), "X-RateLimit-Remaining")
}

func number(t *testing.T, a resttest.Answer, header string) (v int64) {
	t.Helper()
	if _, err := fmt.Sscan(a.Header.Get(header), &v); err != nil {
		t.Fatalf("header %s of answer %d: %v", header, a.Status, err)
	}
	return v
}

func TestChallenges(t *testing.T) {
	n := open(t)
	nothing := n.key(t, ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{}}})
	for _, test := range []struct{ authorization, want string }{
		{"", `Bearer realm="helpdesk"`},
		{"Basic x", `Bearer realm="helpdesk", error="invalid_request"`},
		{"Bearer x", `Bearer realm="helpdesk", error="invalid_token", error_description="The API key is mistyped or incomplete."`},
		{"bEaReR " + nothing, `Bearer realm="helpdesk", error="insufficient_scope", scope="notes.create"`},
		{"Bearer " + n.Token, ""},
	} {
		var headers []string
		if test.authorization != "" {
			headers = []string{"Authorization: " + test.authorization}
		}
		a := n.As("").Do("POST", "/notes", `{"text":"a"}`, headers...)
		if got := a.Header.Get("WWW-Authenticate"); got != test.want {
			t.Errorf("Authorization %.12q: got %d with WWW-Authenticate %s, want %s", test.authorization, a.Status, got, test.want)
		}
		if a.Status == 403 && a.Problem().Required != "notes.create" {
			t.Errorf("got %s, want required notes.create", a.Body)
		}
	}
}

func TestRequestID(t *testing.T) {
	n := open(t)
	for sent, kept := range map[string]bool{
		"a.B_9-": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false, "a b": false, "ä": false, "": false,
	} {
		a := n.Get("/nowhere", "X-Request-Id: "+sent)
		if got := a.Header.Get("X-Request-Id"); (got == sent) != kept || got == "" {
			t.Errorf("X-Request-Id %q: got %q back, want it kept: %t", sent, got, kept)
		}
	}
}

func TestAddressBucket(t *testing.T) {
	n := open(t)
	from := func(ip string) string { return "X-Forwarded-For: " + ip }
	bad := n.As("sk_live_0")
	for i := range 60 {
		if a := bad.Get("/key", from("2001:db8::1")); a.Status != 401 || number(t, a, "X-RateLimit-Remaining") != int64(59-i) {
			t.Fatalf("failure %d: got %d with %s remaining", i+1, a.Status, a.Header.Get("X-RateLimit-Remaining"))
		}
	}
	for _, ip := range []string{"2001:db8::1", "2001:db8::ffff:0:0:1"} {
		a := bad.Get("/key", from(ip))
		if p := a.Problem(); a.Status != 429 || p.Code != "rate_limited" || p.Policy != "address" || a.Header.Get("WWW-Authenticate") != "" {
			t.Errorf("from %s: got %d %s, want 429", ip, a.Status, a.Body)
		}
		if wait := number(t, a, "Retry-After"); wait < 1 || wait > 60 || !strings.HasSuffix(a.Header.Get("RateLimit"), fmt.Sprintf(";t=%d", wait)) {
			t.Errorf("Retry-After %d beside RateLimit %s", wait, a.Header.Get("RateLimit"))
		}
	}
	if a := n.Get("/key", from("2001:db8::1")); a.Status != 200 {
		t.Errorf("a good key: got %d, want 200", a.Status)
	}
	if a := bad.Get("/key", from("2001:db8:0:1::1")); a.Status != 401 {
		t.Errorf("another network: got %d, want 401", a.Status)
	}
	for range 3 {
		a := n.As("").Get("/openapi.json", from("198.51.100.9"))
		if a.Status != 200 || a.Header.Get("RateLimit") != `"address";r=60;t=60` {
			t.Errorf("openapi.json: got %d with RateLimit %s", a.Status, a.Header.Get("RateLimit"))
		}
	}
}

func TestKeyWindow(t *testing.T) {
	n := open(t)
	_, token := n.make(t, apikey.New{OrganizationID: ours, Permissions: apikey.Permissions{Level: apikey.ReadOnly}, RateLimit: new(int64(3))})
	c := n.As(token)
	for i, want := range []string{`"key";r=2;t=60`, `"key";r=1;t=60`, `"key";r=0;t=60`} {
		if a := c.Get("/key"); a.Status != 200 || a.Header.Get("RateLimit") != want || a.Header.Get("RateLimit-Policy") != `"key";q=3;w=60` {
			t.Errorf("request %d: got %d with %s and %s, want %s", i+1, a.Status, a.Header.Get("RateLimit"), a.Header.Get("RateLimit-Policy"), want)
		}
	}
	a := c.Get("/key")
	if p := a.Problem(); a.Status != 429 || p.Policy != "key" || a.Header.Get("X-RateLimit-Remaining") != "0" || a.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: got %d %s", a.Status, a.Body)
	}
}

func TestParallelCallsPassExactlyTheLimit(t *testing.T) {
	n := open(t)
	const limit = 40
	_, token := n.make(t, apikey.New{OrganizationID: ours, Permissions: apikey.Permissions{Level: apikey.ReadOnly}, RateLimit: new(int64(limit))})
	var wg sync.WaitGroup
	statuses := make([]int, 4*limit)
	for i := range statuses {
		wg.Go(func() { statuses[i] = n.As(token).Get("/key").Status })
	}
	wg.Wait()
	passed := 0
	for _, s := range statuses {
		if s == 200 {
			passed++
		} else if s != 429 {
			t.Errorf("got %d, want 200 or 429", s)
		}
	}
	if passed != limit {
		t.Errorf("%d passed, want %d", passed, limit)
	}
}

// TestFaults produces the codes that only a handler can cause.
func TestFaults(t *testing.T) {
	n := open(t)
	for _, test := range []struct {
		kind   string
		status int
		code   string
		detail string
		retry  string
	}{
		{"panic", 500, "internal_error", "The request could not be answered.", ""},
		{"unknown", 500, "internal_error", "The request could not be answered.", ""},
		{"unavailable", 503, "unavailable", "The store is full.", "5"},
		{"range", 400, "range_too_large", "Ask for less.", ""},
		{"parameter", 400, "invalid_parameter", "to must be after from.", ""},
		{"forbidden", 403, "permission_denied", "The API key is not allowed authors.read.", ""},
		{"large", 413, "body_too_large", "Too large.", ""},
		{"limited", 429, "rate_limited", "Too often.", "2"},
		{"issues", 422, "validation_failed", "2 fields are not valid.", ""},
		{"reference", 422, "validation_failed", "author_id does not exist.", ""},
		{"none", 404, "not_found", "There is no fault none.", ""},
	} {
		client := n.Client
		if test.kind == "forbidden" {
			client = n.As(n.key(t, ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{}}}))
		}
		a := client.Get("/faults/" + test.kind)
		p := a.Problem()
		if a.Status != test.status || p.Code != test.code || p.Detail != test.detail || a.Header.Get("Retry-After") != test.retry {
			t.Errorf("%s: got %d %s, Retry-After %q; want %d %s %q, %q", test.kind, a.Status, a.Body, a.Header.Get("Retry-After"), test.status, test.code, test.detail, test.retry)
		}
		if strings.Contains(a.Body, "secret") {
			t.Errorf("%s: the answer tells too much: %s", test.kind, a.Body)
		}
		switch test.kind {
		case "issues":
			if len(p.Errors) != 2 || p.Errors[0].Pointer != "#/first_name" || p.Errors[0].Code != "too_long" || p.Errors[0].Detail != "first_name has at most 10 characters." || p.Errors[1].Pointer != "#/emails/0" || p.Errors[1].Code != "invalid_value" {
				t.Errorf("issues: got %s", a.Body)
			}
		case "reference":
			if len(p.Errors) != 1 || p.Errors[0].Pointer != "#/author_id" || p.Errors[0].Code != "not_found" {
				t.Errorf("reference: got %s", a.Body)
			}
		case "panic", "unknown":
			if got := strings.Count(n.log(), p.RequestID); got != 1 {
				t.Errorf("%s: logged %d times, want once:\n%s", test.kind, got, n.log())
			}
		}
	}
	a := n.Do("POST", "/notes", `{"text":"taken"}`)
	if p := a.Problem(); a.Status != 409 || p.Code != "already_exists" || p.Member != "text" {
		t.Errorf("taken: got %d %s", a.Status, a.Body)
	}
}

func TestMethods(t *testing.T) {
	n := open(t)
	made := n.add(t, "one")
	nothing := n.As(n.key(t, ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{}}}))
	for path, allow := range map[string]string{
		"/notes": "GET, HEAD, OPTIONS, POST", "/notes/" + made.ID: "DELETE, GET, HEAD, OPTIONS, PUT",
		"/notes/x/ring": "OPTIONS, POST", "/key": "GET, HEAD, OPTIONS",
	} {
		a := nothing.Do("OPTIONS", path, "")
		if a.Status != 204 || a.Header.Get("Allow") != allow || a.Body != "" {
			t.Errorf("OPTIONS %s: got %d with Allow %q, want 204 with %q", path, a.Status, a.Header.Get("Allow"), allow)
		}
		if a := nothing.Do("PATCH", path, ""); a.Status != 405 || a.Header.Get("Allow") != allow {
			t.Errorf("PATCH %s: got %d with Allow %q, want 405 with %q", path, a.Status, a.Header.Get("Allow"), allow)
		}
	}
	if a := n.As("").Do("OPTIONS", "/notes", ""); a.Status != 401 {
		t.Errorf("OPTIONS without a key: got %d, want 401", a.Status)
	}
	for _, path := range []string{"/notes", "/notes/" + made.ID, "/key", "/openapi.json"} {
		get, head := n.Get(path), n.Do("HEAD", path, "")
		if head.Status != 200 || head.Body != "" {
			t.Errorf("HEAD %s: got %d %q", path, head.Status, head.Body)
		}
		for _, name := range []string{"Content-Type", "Content-Length", "ETag"} {
			if path != "/key" && get.Header.Get(name) != head.Header.Get(name) { // the key was used meanwhile
				t.Errorf("HEAD %s: %s is %q, GET's %q", path, name, head.Header.Get(name), get.Header.Get(name))
			}
		}
	}
	if a := n.Do("HEAD", "/notes/none", ""); a.Status != 404 || a.Body != "" {
		t.Errorf("HEAD of nothing: got %d %q", a.Status, a.Body)
	}
	if a := n.Do("HEAD", "/notes", "", "Accept: text/csv"); a.Status != 200 || a.Header.Get("Content-Type") != "text/csv; charset=utf-8; header=present" {
		t.Errorf("HEAD of an export: got %d %q", a.Status, a.Header.Get("Content-Type"))
	}
	if a := n.As("").Do("POST", "/openapi.json", ""); a.Status != 401 {
		t.Errorf("POST /openapi.json without a key: got %d, want 401", a.Status)
	}
	if a := n.Do("POST", "/openapi.json", ""); a.Status != 405 || a.Header.Get("Allow") != "GET, HEAD, OPTIONS" {
		t.Errorf("POST /openapi.json: got %d %s", a.Status, a.Body)
	}
	if a := n.Do("PUT", "/faults/"+strings.Repeat("x", 10_000), `{}`); a.Status != 405 || len(a.Body) > 1000 {
		t.Errorf("PUT of a long path: got %d and %d bytes", a.Status, len(a.Body))
	}
}

func TestPaths(t *testing.T) {
	n := open(t)
	made := n.add(t, "one")
	for path, want := range map[string]int{
		"/api/v1": 404, "/api/v1/": 404, "/api/v1//notes": 404, "/api/v1/notes//": 404, "/api/v1/notes/../notes": 404,
		"/api/v1/notes/%00": 404, "/api/v1/notes/%ff": 404, "/api/v1/Notes": 404,
		"/api/v1/notes/" + made.ID + "%2Fring": 405,
	} {
		if a := n.Get(path); a.Status != want {
			t.Errorf("GET %s: got %d %s, want %d", path, a.Status, a.Body, want)
		}
	}
}

func TestConditionalRequests(t *testing.T) {
	n := open(t)
	a := n.Do("POST", "/notes", `{"text":"one"}`)
	tag, where := a.Header.Get("ETag"), a.Header.Get("Location")
	if a.Status != 201 || !strings.HasPrefix(where, "/api/v1/notes/") || len(tag) < 10 || tag[0] != '"' {
		t.Fatalf("POST: got %d with ETag %s and Location %s", a.Status, tag, where)
	}
	if got := n.Get(where).Header.Get("ETag"); got != tag {
		t.Errorf("GET has ETag %s, POST had %s", got, tag)
	}
	if got := n.Get(where + "?expand[]=author").Header.Get("ETag"); got != "" {
		t.Errorf("expanded, it has ETag %s, want none", got)
	}
	for lines, want := range map[string]int{
		tag: 304, "W/" + tag: 304, `"x", ` + tag: 304, "*": 304, `"x"`: 200, "x": 200, tag[1 : len(tag)-1]: 200,
	} {
		a := n.Get(where, "If-None-Match: "+lines)
		if a.Status != want || a.Header.Get("ETag") != tag || want == 304 && a.Body != "" {
			t.Errorf("If-None-Match %s: got %d with ETag %s, want %d", lines, a.Status, a.Header.Get("ETag"), want)
		}
	}
	if a := n.Get(where+"?expand[]=author", "If-None-Match: "+tag); a.Status != 200 {
		t.Errorf("If-None-Match, expanded: got %d, want 200", a.Status)
	}
	if a := n.Do("HEAD", where, "", "If-None-Match: "+tag); a.Status != 304 {
		t.Errorf("HEAD with If-None-Match: got %d, want 304", a.Status)
	}
	a = n.Do("PUT", where, `{"stars":3}`, "If-Match: "+tag)
	second := a.Header.Get("ETag")
	if a.Status != 200 || second == tag || second == "" {
		t.Fatalf("PUT: got %d with ETag %s", a.Status, second)
	}
	for _, lines := range []string{tag, "W/" + second, `"x"`, "x", second + "x"} {
		want := 412
		if lines == second+"x" {
			want = 200 // a list with a valid first value
		}
		if a := n.Do("PUT", where, `{"stars":3}`, "If-Match: "+lines); a.Status != want {
			t.Errorf("PUT with If-Match %s: got %d %s, want %d", lines, a.Status, a.Body, want)
		}
	}
	if a := n.Do("DELETE", where, "", "If-Match: "+tag); a.Status != 412 {
		t.Errorf("DELETE with If-Match: got %d, want 412", a.Status)
	}
	if a := n.Do("DELETE", where, "", "If-Match: \"x\", "+second); a.Status != 204 || a.Body != "" || a.Header.Get("ETag") != "" {
		t.Errorf("DELETE: got %d %q", a.Status, a.Body)
	}
	if a := n.Get(where); a.Status != 404 {
		t.Errorf("GET after DELETE: got %d, want 404", a.Status)
	}
	doc := n.As("").Get("/openapi.json")
	if a := n.As("").Get("/openapi.json", "If-None-Match: "+doc.Header.Get("ETag")); a.Status != 304 || a.Body != "" {
		t.Errorf("openapi.json with If-None-Match: got %d", a.Status)
	}
}

// TestOthersRecords tries every path with another organization's key.
func TestOthersRecords(t *testing.T) {
	n := open(t)
	made := n.add(t, "one")
	stranger := n.As(n.key(t, theirs, apikey.Permissions{Level: apikey.Admin}))
	for _, call := range []struct{ method, path, body string }{
		{"GET", "/notes/" + made.ID, ""}, {"PUT", "/notes/" + made.ID, `{"stars":1}`}, {"DELETE", "/notes/" + made.ID, ""}, {"POST", "/notes/" + made.ID + "/ring", ""},
	} {
		if a := stranger.Do(call.method, call.path, call.body); a.Status != 404 || a.Code() != "not_found" {
			t.Errorf("%s %s: got %d %s, want 404", call.method, call.path, a.Status, a.Body)
		}
	}
	var list struct{ Data []wireNote }
	stranger.Get("/notes").JSON(&list)
	if len(list.Data) != 0 {
		t.Errorf("a stranger lists %d notes", len(list.Data))
	}
}

// TestKeysThatMayNotRead: without read permission a change answers with the id only.
func TestKeysThatMayNotRead(t *testing.T) {
	n := open(t)
	write := n.As(n.key(t, ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"notes": {apikey.Create, apikey.Update}}}}))
	a := write.Do("POST", "/notes", `{"text":"secret"}`, "Idempotency-Key: k")
	var got wireNote
	a.JSON(&got)
	if want := `{"id":"` + got.ID + `","object":"note"}`; a.Status != 201 || a.Body != want {
		t.Errorf("POST: got %d %s, want 201 %s", a.Status, a.Body, want)
	}
	if b := write.Do("POST", "/notes", `{"text":"secret"}`, "Idempotency-Key: k"); b.Body != a.Body || b.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("replayed: got %s", b.Body)
	}
	if a := write.Do("PUT", "/notes/"+got.ID, `{"stars":1}`); a.Status != 200 || strings.Contains(a.Body, "secret") {
		t.Errorf("PUT: got %d %s", a.Status, a.Body)
	}
	if a := write.Get("/notes/" + got.ID); a.Status != 403 || a.Problem().Required != "notes.read" {
		t.Errorf("GET: got %d %s", a.Status, a.Body)
	}
}

func TestKeyRoute(t *testing.T) {
	n := open(t)
	k, token := n.make(t, apikey.New{OrganizationID: ours, Permissions: apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"notes": {apikey.Read}}}}, RateLimit: new(int64(7)), AllowedIPs: []string{"198.51.100.0/24"}})
	a := n.As(token).Get("/key", "X-Forwarded-For: 198.51.100.7")
	var got struct {
		ID, Name, PartialKey string
		Level                *string
		Resources            map[string][]string
		Limit                int64    `json:"rate_limit_per_minute"`
		IPs                  []string `json:"allowed_ips"`
	}
	a.JSON(&got)
	if a.Status != 200 || got.ID != k.ID || got.Name != k.Name || got.Level != nil || got.Limit != 7 || !slices.Equal(got.Resources["notes"], []string{"read"}) || !slices.Equal(got.IPs, []string{"198.51.100.0/24"}) {
		t.Errorf("got %d %s", a.Status, a.Body)
	}
	if !strings.Contains(a.Body, `"rotated_from":null,"replaced_by":null`) {
		t.Errorf("the key that replaces none and that none replaces is %s", a.Body)
	}
	next, nextToken, err := n.keys.Rotate(t.Context(), ours, k.ID)
	if err != nil {
		t.Fatal(err)
	}
	if old := n.As(token).Get("/key", "X-Forwarded-For: 198.51.100.7").Body; !strings.Contains(old, `"rotated_from":null,"replaced_by":"`+next.ID+`"`) {
		t.Errorf("the replaced key is %s", old)
	}
	if a := n.As(nextToken.Reveal()).Get("/key", "X-Forwarded-For: 198.51.100.7").Body; !strings.Contains(a, `"rotated_from":"`+k.ID+`","replaced_by":null`) {
		t.Errorf("its replacement is %s", a)
	}
	if strings.Contains(a.Body, token) || strings.Contains(a.Body, token[8:30]) {
		t.Errorf("the key gives itself away: %s", a.Body)
	}
}

func TestUnavailable(t *testing.T) {
	d := dbtest.New(t)
	n := openOn(t, d)
	made := n.add(t, "one")
	d.Close()
	a := n.Get("/notes/" + made.ID)
	if a.Status != 503 || a.Header.Get("Retry-After") != "5" || a.Header.Get("RateLimit-Policy") != `"address";q=60;w=60` || a.Header.Get("X-RateLimit-Remaining") != "60" {
		t.Errorf("without a database: got %d %s with %s", a.Status, a.Body, a.Header.Get("RateLimit"))
	}
}

func TestNewRefuses(t *testing.T) {
	good := rest.Route{Method: "GET", Path: "/a", ID: "a", Tag: "A", Summary: "A", Output: author, Handle: (&notebook{}).list}
	for _, test := range []struct {
		change func(r *rest.Route)
		want   string
	}{
		{func(r *rest.Route) { r.Method = "PATCH" }, "not supported"},
		{func(r *rest.Route) { r.Path = "a" }, "begin with a slash"},
		{func(r *rest.Route) { r.Path = "/a/" }, "begin with a slash"},
		{func(r *rest.Route) { r.ID = "" }, "needs an ID"},
		{func(r *rest.Route) { r.ID = "getKey" }, "is taken"},
		{func(r *rest.Route) { r.Path = "/key" }, "one already"},
		{func(r *rest.Route) { r.Path = "/{a}/{b}/{c}/{d}" }, "more than 3 parameters"},
		{func(r *rest.Route) { r.Handle = nil }, "needs a Handle"},
		{func(r *rest.Route) { r.GeoJSON = true }, "GeoJSON is a form"},
		{func(r *rest.Route) { r.Import = &rest.Import{Types: []string{rest.CSV}, Handle: r.Handle} }, "an import is of the Input of a POST"},
		{func(r *rest.Route) {
			r.Method, r.Input, r.Import = "POST", note, &rest.Import{Types: []string{"text/plain"}, Handle: r.Handle}
		}, "an import is NDJSON"},
		{func(r *rest.Route) {
			r.Method, r.Input, r.Claim, r.Import = "POST", note, true, &rest.Import{Types: []string{rest.CSV}, Handle: r.Handle}
		}, "nothing to claim"},
		{func(r *rest.Route) { r.Needs.Resource = "a" }, "a resource and an action"},
		{func(r *rest.Route) { r.Output, r.List = nil, true }, "a list needs"},
		{func(r *rest.Route) { r.Output, r.Export = nil, true }, "an export needs"},
		{func(r *rest.Route) { r.Input = author }, "have a body"},
		{func(r *rest.Route) { r.Sort = []string{"name"} }, "only a list"},
		{func(r *rest.Route) { r.List, r.Sort = true, []string{"name"} }, "set Order"},
		{func(r *rest.Route) { r.Query = []rest.Param{{Name: "limit"}} }, "duplicate or predefined"},
		{func(r *rest.Route) { r.Codes = []string{"oops"} }, "is unknown"},
		{func(r *rest.Route) { r.Output = &schema.Record{Name: "api_key"} }, "two records"},
	} {
		r := good
		test.change(&r)
		api, err := rest.New(rest.Config{Base: "/v1", Routes: []rest.Route{r}})
		if err == nil {
			_, err = api.OpenAPI()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want an error with %q", err, test.want)
		}
	}
	if _, err := rest.New(rest.Config{Base: "/v1", Routes: []rest.Route{good}}); err != nil {
		t.Errorf("a good route: %v", err)
	}
}

// TestWindowEnds holds that a new window opens after a minute.
func TestWindowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openOn(t, dbtest.NewSQLite(t))
		_, token := n.make(t, apikey.New{OrganizationID: ours, Permissions: apikey.Permissions{Level: apikey.ReadOnly}, RateLimit: new(int64(1))})
		c := n.As(token)
		c.Get("/key")
		time.Sleep(20*time.Second + time.Millisecond)
		a := c.Get("/key")
		if a.Status != 429 || a.Header.Get("Retry-After") != "40" || a.Header.Get("RateLimit") != `"key";r=0;t=40` || a.Header.Get("X-RateLimit-Reset") != "946684860" {
			t.Errorf("within the window: got %d, Retry-After %s, RateLimit %s, reset %s", a.Status, a.Header.Get("Retry-After"), a.Header.Get("RateLimit"), a.Header.Get("X-RateLimit-Reset"))
		}
		time.Sleep(40 * time.Second)
		if a := c.Get("/key"); a.Status != 200 || a.Header.Get("RateLimit") != `"key";r=0;t=60` {
			t.Errorf("after it: got %d, RateLimit %s", a.Status, a.Header.Get("RateLimit"))
		}
	})
}
