package fleetapi_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
)

// columns are the permissions of the table in fleet-api.md 3.2, in order.
var columns = []rest.Permission{
	{Resource: "rides", Action: apikey.Read}, {Resource: "rides", Action: apikey.Create}, {Resource: "rides", Action: apikey.Update},
	{Resource: "vehicles", Action: apikey.Read}, {Resource: "vehicles", Action: apikey.Create}, {Resource: "vehicles", Action: apikey.Update}, {Resource: "vehicles", Action: apikey.Delete},
	{Resource: "customers", Action: apikey.Read}, {Resource: "customers", Action: apikey.Update},
	{Resource: "pricing", Action: apikey.Read}, {Resource: "pricing", Action: apikey.Update},
	{Resource: "analytics", Action: apikey.Read},
	{Resource: "zones", Action: apikey.Read}, {Resource: "zones", Action: apikey.Create}, {Resource: "zones", Action: apikey.Update}, {Resource: "zones", Action: apikey.Delete},
	{Resource: "settings", Action: apikey.Read}, {Resource: "settings", Action: apikey.Update},
}

const (
	read, create, update, remove = apikey.Read, apikey.Create, apikey.Update, apikey.Delete
)

// kinds are the keys of that table with the expected results. K1, with neither level nor
// resources, cannot be created.
var kinds = []struct {
	name    string
	level   apikey.Level
	grants  apikey.Grants
	allowed string
}{
	{"K2", apikey.ReadOnly, apikey.Grants{}, "+-- +--- +- +- + +--- --"},
	{"K3", apikey.ReadWrite, apikey.Grants{}, "+++ ++++ ++ ++ + ++++ --"},
	{"K4", apikey.Admin, apikey.Grants{}, "+++ ++++ ++ ++ + ++++ ++"},
	{"K5", "", apikey.Grants{All: true}, "+++ ++++ ++ ++ + ++++ --"},
	{"K6", apikey.ReadOnly, apikey.Grants{All: true}, "+-- +--- +- +- + +--- --"},
	{"K7", apikey.ReadWrite, apikey.Grants{All: true}, "+++ ++++ ++ ++ + ++++ --"},
	{"K8", apikey.Admin, apikey.Grants{All: true}, "+++ ++++ ++ ++ + ++++ ++"},
	{"K9", "", apikey.Grants{Named: map[string][]apikey.Action{"rides": {read}}}, "+-- ---- -- -- - ---- --"},
	{"K10", "", apikey.Grants{Named: map[string][]apikey.Action{"rides": {read, create, update}, "vehicles": {read}, "customers": {read, update}}}, "+++ +--- ++ -- - ---- --"},
	{"K11", "", apikey.Grants{Named: map[string][]apikey.Action{"rides": {read}, "vehicles": {read}, "customers": {read}, "analytics": {read}}}, "+-- +--- +- -- + ---- --"},
	{"K12", apikey.ReadOnly, apikey.Grants{Named: map[string][]apikey.Action{"rides": {read, create, update}}}, "+-- ---- -- -- - ---- --"},
	{"K13", apikey.ReadOnly, apikey.Grants{Named: map[string][]apikey.Action{"vehicles": {remove}}}, "--- ---- -- -- - ---- --"},
	{"K14", apikey.ReadWrite, apikey.Grants{Named: map[string][]apikey.Action{"vehicles": {read, create, update, remove}, "pricing": {read, update}}}, "--- ++++ -- ++ - ---- --"},
	{"K15", apikey.Admin, apikey.Grants{Named: map[string][]apikey.Action{"analytics": {read}}}, "--- ---- -- -- + ---- --"},
	{"K16", "", apikey.Grants{Named: map[string][]apikey.Action{"rides": {read, create, update}, "vehicles": {read, create, update, remove}, "customers": {read, update}, "pricing": {read, update}, "analytics": {read}}}, "+++ ++++ ++ ++ + ---- --"},
	{"K17", apikey.ReadWrite, apikey.Grants{Named: map[string][]apikey.Action{"rides": {create}}}, "-+- ---- -- -- - ---- --"},
	{"K18", "", apikey.Grants{Named: map[string][]apikey.Action{}}, "--- ---- -- -- - ---- --"},
}

// samples create a record and return its path, by the path of its list.
var samples = map[string]func(p *tenant) string{
	"/rides/{id}":            func(p *tenant) string { return "/rides/" + p.ride().text("id") },
	"/rides/{id}/price":      func(p *tenant) string { return "/rides/" + p.ride().text("id") + "/price" },
	"/vehicles/{id}":         func(p *tenant) string { return "/vehicles/" + p.vehicle().text("id") },
	"/vehicles/{id}/track":   func(p *tenant) string { return "/vehicles/" + p.vehicle().text("id") + "/track" },
	"/vehicles/{id}/tracker": func(p *tenant) string { return "/vehicles/" + p.vehicle().text("id") + "/tracker" },
	"/vehicles/{id}/events":  func(p *tenant) string { return "/vehicles/" + p.vehicle().text("id") + "/events" },
	"/tasks/{id}":            func(p *tenant) string { return "/tasks/" + p.task().text("id") },
	"/tasks/{id}/photos":     func(p *tenant) string { return "/tasks/" + p.task().text("id") + "/photos" },
	"/tasks/{id}/photos/{photo_id}": func(p *tenant) string {
		path := "/tasks/" + p.task().text("id") + "/photos"
		photos := send(p.t, p.Client, "POST", path, jsonOf(p.t, fields{"photo": picture}), 200)["photos"].([]any)
		return path + "/" + photos[0].(map[string]any)["id"].(string)
	},
	"/customers/{id}": func(p *tenant) string { return "/customers/" + p.customer() },
	"/zones/{id}":     func(p *tenant) string { return "/zones/" + p.zone("parking", 13.4, 52.5).text("id") },
	"/pricing/{id}": func(p *tenant) string {
		var plan fleet.Plan
		p.write(func(ctx context.Context, tx *db.Tx) (err error) {
			plan, err = p.fleet.CreatePlanTx(ctx, tx, p.org, fleet.NewPlan{SubaccountID: p.sub.ID, Name: "Other"})
			return err
		})
		return "/pricing/" + plan.ID
	},
	"/alert_rules/{id}":          func(p *tenant) string { return "/alert_rules/" + p.alertRule().text("id") },
	"/alerts/{id}":               func(p *tenant) string { return "/alerts/" + p.alert() },
	"/alerts/{id}/acknowledge":   func(p *tenant) string { return "/alerts/" + p.alert() + "/acknowledge" },
	"/settings/subaccounts/{id}": func(p *tenant) string { return "/settings/subaccounts/" + p.sub.ID },
}

// sample returns the path of a route on a new record.
func (p *tenant) sample(rt *rest.Route) string {
	p.t.Helper()
	if !strings.Contains(rt.Path, "{") {
		return rt.Path
	}
	of := samples[rt.Path]
	if of == nil {
		p.t.Fatalf("%s: add a sample", rt.Path)
	}
	return of(p)
}

// bodies are valid bodies of routes.
var bodies = map[string]func(p *tenant) any{
	"createRide":      func(p *tenant) any { return fields{"vehicle_id": p.vehicle().text("id"), "customer_id": p.customer()} },
	"createQuote":     func(p *tenant) any { return fields{"vehicle_id": p.vehicle().text("id"), "duration_seconds": 675} },
	"createTask":      func(p *tenant) any { return fields{"vehicle_id": p.vehicle().text("id"), "title": "Replace the brake"} },
	"updateTask":      func(p *tenant) any { return fields{"state": "in_progress"} },
	"createTaskPhoto": func(p *tenant) any { return fields{"photo": picture} },
	"updateRide":      func(p *tenant) any { return fields{"status": "paused"} },
	"createVehicle": func(p *tenant) any {
		return fields{"subaccount_id": p.sub.ID, "code": fmt.Sprint("R-", time.Now().UnixNano()), "vehicle_type_id": p.scooter}
	},
	"updateVehicle": func(p *tenant) any { return fields{"battery_percent": 50} },
	"createTelemetry": func(p *tenant) any {
		return fields{"reports": []fields{{"vehicle": fields{"id": p.vehicle().text("id")}, "reported_at": time.Now().UTC().Format(time.RFC3339)}}}
	},
	"updateCustomer":     func(p *tenant) any { return fields{"name": "Grace Example"} },
	"updatePricingPlan":  func(p *tenant) any { return fields{"unlock_amount": 150} },
	"updateZone":         func(p *tenant) any { return fields{"name": "Kreuzberg"} },
	"updateSettings":     func(p *tenant) any { return fields{"low_battery_percent": 10} },
	"updateSubaccount":   func(p *tenant) any { return fields{"external_id": "berlin"} },
	"updateSandboxClock": func(p *tenant) any { return fields{"now": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)} },
	"createAlertRule": func(p *tenant) any {
		return fields{"subaccount_id": p.sub.ID, "name": "Battery low", "kind": "battery_low", "threshold_percent": 15}
	},
	"updateAlertRule": func(p *tenant) any { return fields{"threshold_percent": 20} },
	"createZone": func(p *tenant) any {
		return fields{"subaccount_id": p.sub.ID, "name": "Mitte", "type": "service_area", "geometry": square(13.3, 52.4, 13.5, 52.6)}
	},
}

func square(west, south, east, north float64) fields {
	return fields{"type": "Polygon", "coordinates": [][][2]float64{{{west, south}, {east, south}, {east, north}, {west, north}, {west, south}}}}
}

func (p *tenant) body(rt *rest.Route) string {
	p.t.Helper()
	if rt.Input == nil {
		return ""
	}
	of := bodies[rt.ID]
	if of == nil {
		p.t.Fatalf("%s: add a body", rt.ID)
	}
	return jsonOf(p.t, of(p))
}

// queries are required queries of routes.
var queries = map[string]string{
	"getRideAnalytics":    "?from=2026-01-01&to=2026-01-08",
	"getVehicleAnalytics": "?from=2026-01-01&to=2026-01-08",
	"getRevenueAnalytics": "?from=2026-01-01&to=2026-01-08",
}

// nowhere returns the path of a route on a missing record.
func nowhere(rt *rest.Route) string {
	return strings.NewReplacer("{id}", "x_01KKNTQ7XJEVR88Y42WDNGTN4V", "{photo_id}", "photo_01KKNTQ7XJEVR88Y42WDNGTN4V").Replace(rt.Path)
}

func sep(path string) string {
	if strings.Contains(path, "?") {
		return "&"
	}
	return "?"
}

func success(rt *rest.Route) int {
	switch {
	case rt.Status != 0:
		return rt.Status
	case rt.File || rt.Method != "POST" && rt.Output != nil:
		return 200
	case rt.Output == nil:
		return 204
	}
	return 201
}

// TestRoutes tries every route with every kind of key, with invalid keys, and with keys of
// other organizations.
func TestRoutes(t *testing.T) {
	r := newSandbox(t)
	for _, e := range []*environment{r.live, r.sandbox} {
		t.Run(string(e.name), func(t *testing.T) { testRoutes(t, e) })
	}
}

func testRoutes(t *testing.T, e *environment) {
	us, them := e.tenant(t, ours), e.tenant(t, theirs)
	tokens := map[string]string{}
	for _, k := range kinds {
		tokens[k.name] = e.key(ours, apikey.Permissions{Level: k.level, Resources: k.grants})
	}
	elsewhere := e.key(ours, apikey.Permissions{Level: apikey.Admin}, us.other.ID) // another subaccount
	bad := e.badTokens()
	failures := 0
	for i := range e.routes {
		rt := &e.routes[i]
		if rt.Stream {
			continue // TestEventStream
		}
		t.Run(rt.ID, func(t *testing.T) {
			us, them := *us, *them
			us.t, them.t = t, t
			call := func(token, path, body string, headers ...string) resttest.Answer {
				return e.As(token).Do(rt.Method, path, body, headers...)
			}
			path := us.sample(rt) + queries[rt.ID]

			for _, b := range bad {
				// An address with many failures would be refused.
				failures++
				refused(t, b.name, call(b.token, path, "", fmt.Sprintf("X-Forwarded-For: 203.0.%d.%d", failures/200, 1+failures%200)), b.status, b.code)
			}
			// An unknown query parameter is refused after permissions and before any change.
			for _, k := range kinds {
				at := slices.Index(columns, rt.Needs)
				if at < 0 {
					t.Fatalf("%s is not in the table", rt.Needs)
				}
				a := call(tokens[k.name], nowhere(rt)+"?nonsense=1", "{}")
				if strings.ReplaceAll(k.allowed, " ", "")[at] == '+' {
					refused(t, k.name, a, 400, "invalid_parameter")
					continue
				}
				refused(t, k.name, a, 403, "permission_denied")
				if got := a.Problem().Required; got != rt.Needs.String() {
					t.Errorf("%s: required is %q, want %q", k.name, got, rt.Needs)
				}
			}
			for _, x := range rt.Expand {
				without := apikey.Grants{Named: map[string][]apikey.Action{rt.Needs.Resource: {read}}}
				if rt.Needs.Resource == x.Needs.Resource {
					continue
				}
				refused(t, "expanding "+x.Name, call(e.key(ours, apikey.Permissions{Resources: without}), nowhere(rt)+"?expand[]="+x.Name, ""), 403, "permission_denied")
			}
			us.others(rt, path, them.Client, e.As(elsewhere))
			us.tried(rt, path)
		})
	}
}

// others calls a route on one of our records with keys out of scope.
func (p *tenant) others(rt *rest.Route, path string, them, elsewhere *resttest.Client) {
	t := p.t
	t.Helper()
	if rt.WholeScope {
		refused(t, "a key of one subaccount", elsewhere.Do(rt.Method, path, p.body(rt)), 403, "subaccount_out_of_scope")
	}
	if !strings.Contains(rt.Path, "{") {
		return
	}
	body := p.body(rt)
	before := p.Do("GET", path, "")
	refused(t, "another's key", them.Do(rt.Method, path, body), 404, "not_found")
	if rt.Input != nil {
		refused(t, "another's key with a bad body", them.Do(rt.Method, path, `{"nonsense":1}`), 404, "not_found")
	}
	refused(t, "what is not there", p.Do(rt.Method, nowhere(rt), body), 404, "not_found")
	refused(t, "a key of another subaccount", elsewhere.Do(rt.Method, path, body), 403, "subaccount_out_of_scope")
	refused(t, "narrowed to another subaccount", p.Do(rt.Method, path, body, "X-Subaccount-Id: "+p.other.ID), 403, "subaccount_out_of_scope")
	if after := p.Do("GET", path, ""); after.Header.Get("Etag") != before.Header.Get("Etag") {
		t.Errorf("others changed\n%s to\n%s", before.Body, after.Body)
	}
}

// tried calls a route correctly, and with input that every route refuses.
func (p *tenant) tried(rt *rest.Route, path string) {
	t := p.t
	t.Helper()
	a := p.Do(rt.Method, path, p.body(rt))
	if a.Status != success(rt) {
		t.Fatalf("%s %s: got %d %s, want %d", rt.Method, path, a.Status, a.Body, success(rt))
	}
	switch {
	case rt.List:
		if !strings.Contains(a.Body, `"object":"list"`) {
			t.Errorf("a list is %s", a.Body)
		}
		if a := p.Get(path, "Accept: text/csv"); a.Status != 200 || !strings.Contains(a.Body, "object,") {
			t.Errorf("as CSV: %d %s", a.Status, a.Body)
		}
		refused(t, "a cursor of another list", p.Get(path+sep(path)+"cursor=AAAAAAAAAAAxMg"), 400, "invalid_cursor")
	case a.Status == 201:
		where := a.Header.Get("Location")
		if got := p.Get(where); got.Status != 200 || got.Header.Get("Etag") != `"1"` || a.Header.Get("Etag") != `"1"` {
			t.Errorf("made at %q: %d, ETag %s, then %s", where, got.Status, a.Header.Get("Etag"), got.Header.Get("Etag"))
		}
	case rt.Method == "GET" && strings.Contains(rt.Path, "{") && !rt.File:
		tag := a.Header.Get("Etag")
		if again := p.Get(path, "If-None-Match: "+tag); tag == "" || again.Status != 304 {
			t.Errorf("If-None-Match %s: got %d", tag, again.Status)
		}
	case rt.Method == "PUT" && strings.Contains(rt.Path, "{"):
		refused(t, "an old ETag", p.Do("PUT", path, p.body(rt), `If-Match: "0"`), 412, "precondition_failed")
	}
	if rt.Method != "GET" {
		refused(t, "a bad Idempotency-Key", p.Do(rt.Method, path, p.body(rt), "Idempotency-Key: a b"), 400, "invalid_idempotency_key")
	}
	if rt.Input != nil {
		refused(t, "an unknown member", p.Do(rt.Method, p.sample(rt), `{"nonsense":1}`), 422, "validation_failed")
		refused(t, "no JSON", p.Do(rt.Method, path, `{`), 400, "invalid_json")
		refused(t, "no JSON type", p.Do(rt.Method, path, `{}`, "Content-Type: text/plain"), 415, "unsupported_media_type")
	}
	if !rt.File {
		refused(t, "a picture", p.Do(rt.Method, path, "", "Accept: image/png"), 406, "not_acceptable")
	}
}

// badToken is an invalid token with the expected refusal.
type badToken struct {
	name, token string
	status      int
	code        string
}

func (e *environment) badTokens() []badToken {
	e.rig.Helper()
	admin := apikey.Permissions{Level: apikey.Admin}
	revoked, revokedToken := e.makeKey(apikey.New{OrganizationID: ours, Permissions: admin})
	if _, err := e.keys.Revoke(e.rig.Context(), ours, revoked.ID); err != nil {
		e.rig.Fatal(err)
	}
	deleted, deletedToken := e.makeKey(apikey.New{OrganizationID: ours, Permissions: admin})
	if _, err := e.keys.Revoke(e.rig.Context(), ours, deleted.ID); err != nil {
		e.rig.Fatal(err)
	}
	if err := e.keys.Delete(e.rig.Context(), ours, deleted.ID); err != nil {
		e.rig.Fatal(err)
	}
	expired, expiredToken := e.makeKey(apikey.New{OrganizationID: ours, Permissions: admin, ExpiresAt: time.Now().Add(time.Hour)})
	err := e.desk.Write(e.rig.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(e.rig.Context(), "UPDATE api_keys SET expires_at = $2 WHERE id = $1", expired.ID, tx.Now.Add(-time.Second).UnixMicro())
		return err
	})
	if err != nil {
		e.rig.Fatal(err)
	}
	_, helpdesk := e.makeKey(apikey.New{OrganizationID: ours, Service: apikey.Helpdesk, Environment: apikey.Live, Permissions: admin})
	other := map[apikey.Environment]apikey.Environment{apikey.Live: apikey.Test, apikey.Test: apikey.Live}[e.name]
	_, wrong := e.makeKey(apikey.New{OrganizationID: ours, Service: apikey.Fleet, Environment: other, Permissions: admin})
	_, narrow := e.makeKey(apikey.New{OrganizationID: ours, Permissions: admin, AllowedIPs: []string{"198.51.100.7"}})
	mistyped := []byte(e.key(ours, admin))
	mistyped[12] ^= 1
	list := []badToken{
		{"no key", "", 401, "missing_credentials"},
		{"a mistyped key", string(mistyped), 401, "invalid_api_key"},
		{"a revoked key", revokedToken, 401, "api_key_revoked"},
		{"a deleted key", deletedToken, 401, "invalid_api_key"},
		{"an expired key", expiredToken, 401, "api_key_expired"},
		{"a key of the other environment", wrong, 401, "wrong_environment"},
		{"a refused address", narrow, 403, "ip_not_allowed"},
	}
	if e.name == apikey.Live {
		list = append(list, badToken{"a key of the helpdesk", helpdesk, 401, "invalid_api_key"})
	}
	return list
}

// TestMethods calls every path with every method: exactly the routes of fleet-api.md 3.1 exist.
func TestMethods(t *testing.T) {
	r := newSandbox(t)
	const table = `
/rides GET POST
/rides/x GET PUT
/rides/x/price GET
/quotes POST
/vehicles GET POST
/vehicles/x GET PUT DELETE
/vehicles/x/track GET
/vehicles/x/events GET
/vehicles/x/tracker POST DELETE
/telemetry POST
/tasks GET POST
/tasks/x GET PUT
/tasks/x/photos POST
/tasks/x/photos/y GET DELETE
/customers GET
/customers/x GET PUT
/pricing GET
/pricing/x GET PUT
/analytics/rides GET
/analytics/revenue GET
/analytics/vehicles GET
/zones GET POST
/zones/x GET PUT DELETE
/settings GET PUT
/settings/subaccounts GET
/settings/subaccounts/x GET PUT
/settings/audit-log GET
/key GET
/sandbox/clock GET PUT
/sandbox/reset POST`
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		path, methods, _ := strings.Cut(line, " ")
		for _, e := range []*environment{r.live, r.sandbox} {
			for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
				a := e.Do(method, path+"?nonsense=1", "")
				switch {
				case strings.HasPrefix(path, "/sandbox") && e == r.live:
					refused(t, method+" "+path, a, 404, "route_not_found")
				case slices.Contains(strings.Fields(methods), method):
					if a.Status == 404 || a.Status == 405 {
						t.Errorf("%s %s: got %d", method, path, a.Status)
					}
				default:
					refused(t, method+" "+path, a, http.StatusMethodNotAllowed, "method_not_allowed")
				}
			}
			if a := e.Do("OPTIONS", path, ""); a.Status == 204 {
				allow := a.Header.Get("Allow")
				want := append(strings.Fields(methods), "OPTIONS")
				if slices.Contains(want, "GET") {
					want = append(want, "HEAD")
				}
				for _, m := range want {
					if !strings.Contains(allow, m) {
						t.Errorf("%s allows %s, want %s", path, allow, want)
					}
				}
			}
		}
	}
}
