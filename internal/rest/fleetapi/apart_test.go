package fleetapi_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// dump returns the content of all tables of an environment that routes write.
func (e *environment) dump() string {
	e.rig.Helper()
	var b strings.Builder
	for _, table := range []string{"settings", "subaccounts", "plans", "customers", "vehicles", "rides", "zones", "tasks", "alert_rules", "alerts", "idempotency_keys", "audit_entries"} {
		var n int
		if err := e.db.QueryRow(e.rig.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			e.rig.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d\n", table, n)
		if table == "idempotency_keys" || table == "audit_entries" {
			continue
		}
		list, err := db.All(e.rig.Context(), e.db, func(row db.Row) (s string, err error) { return s, row.Scan(&s) }, "SELECT doc FROM "+table+" ORDER BY doc")
		if err != nil {
			e.rig.Fatal(err)
		}
		b.WriteString(strings.Join(list, "\n"))
	}
	return b.String()
}

// TestProductionAndSandboxCannotTouchEachOther calls every route of each environment with keys
// and ids of the other.
func TestProductionAndSandboxCannotTouchEachOther(t *testing.T) {
	r := newSandbox(t)
	both := []*tenant{r.live.tenant(t, ours), r.sandbox.tenant(t, ours)}
	for i, here := range both {
		there := both[1-i]
		for j := range here.routes {
			rt := &here.routes[j]
			foreign := rt.Path
			if samples[rt.Path] != nil {
				foreign = there.sample(rt)
			}
			body := here.body(rt)
			before := there.dump()
			what := string(here.name) + " " + rt.ID
			refused(t, what+" with the other's key", here.As(there.Token).Do(rt.Method, here.sample(rt), body), 401, "wrong_environment")
			if strings.Contains(rt.Path, "{") {
				refused(t, what+" on the other's record", here.Do(rt.Method, foreign, body), 404, "not_found")
			}
			if rt.ID == "createRide" {
				a := here.Do("POST", "/rides", jsonOf(t, fields{"vehicle_id": there.vehicle().text("id"), "customer_id": here.customer()}))
				refused(t, what+" on the other's vehicle", a, 422, "validation_failed", "#/vehicle_id not_found")
				a = here.Do("POST", "/rides", jsonOf(t, fields{"vehicle_id": here.vehicle().text("id"), "customer_id": there.customer()}))
				refused(t, what+" of the other's customer", a, 422, "validation_failed", "#/customer_id not_found")
				before = there.dump()
			}
			if rt.Method != "GET" && rt.ID != "resetSandbox" {
				if a := here.Do(rt.Method, here.sample(rt), here.body(rt)); a.Status >= 300 {
					t.Errorf("%s: got %d %s", what, a.Status, a.Body)
				}
			}
			if after := there.dump(); after != before {
				t.Fatalf("%s changed the other environment", what)
			}
		}
		refused(t, "the other's subaccount", here.Do("GET", "/vehicles", "", "X-Subaccount-Id: "+there.sub.ID), 403, "subaccount_out_of_scope")
	}
	// A stored answer belongs to its environment.
	body := jsonOf(t, fields{"subaccount_id": both[0].sub.ID, "code": "K-1", "vehicle_type_id": both[0].scooter})
	if a := both[0].Do("POST", "/vehicles", body, "Idempotency-Key: k"); a.Status != 201 {
		t.Errorf("got %d %s", a.Status, a.Body)
	}
	refused(t, "the same retry in the sandbox", both[1].Do("POST", "/vehicles", body, "Idempotency-Key: k"), 403, "subaccount_out_of_scope")
}

// TestSettings changes settings with an admin key and checks the audit log.
func TestSettings(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	one := p.As(r.live.key(ours, apikey.Permissions{Level: apikey.Admin}, p.other.ID))
	for _, path := range []string{"/settings", "/settings/audit-log"} {
		refused(t, path, one.Get(path), 403, "subaccount_out_of_scope")
	}
	refused(t, "another subaccount", one.Get("/settings/subaccounts/"+p.sub.ID), 403, "subaccount_out_of_scope")
	refused(t, "no subaccount", one.Get("/settings/subaccounts/sub_x"), 404, "not_found")
	var list struct{ Data []fields }
	one.Get("/settings/subaccounts").JSON(&list)
	if len(list.Data) != 1 || list.Data[0].text("id") != p.other.ID {
		t.Errorf("a key of one subaccount lists %v", list.Data)
	}
	send(t, one, "PUT", "/settings/subaccounts/"+p.other.ID, `{"name":"Tōkyō","country_code":"JP"}`, 200)
	got := send(t, p.Client, "GET", "/settings", "", 200)
	got["low_battery_percent"] = 20
	send(t, p.Client, "PUT", "/settings", jsonOf(t, got), 200)
	send(t, p.Client, "PUT", "/settings", `{"low_battery_percent":20}`, 200) // which changes nothing
	send(t, p.Client, "PUT", "/pricing/"+p.plan.ID, `{"unlock_amount":150}`, 200)
	c := p.customer()
	send(t, p.Client, "PUT", "/customers/"+c, `{"name":"Grace Secret","status":"blocked","block_reason":"A secret"}`, 200)
	r.live.key(ours, apikey.Permissions{Level: apikey.ReadOnly})

	var log []string
	for cursor := ""; ; {
		var page struct {
			Data []struct {
				Action  string
				Actor   struct{ Type, ID string }
				Target  struct{ Type, ID, Name string }
				Changes map[string]any
			}
			Next string `json:"next_cursor"`
		}
		a := p.Get("/settings/audit-log?limit=2" + cursor)
		a.JSON(&page)
		if strings.Contains(strings.ToLower(a.Body), "secret") {
			t.Errorf("the log has what is personal: %s", a.Body)
		}
		for _, e := range page.Data {
			log = append(log, strings.TrimSpace(e.Action+" "+e.Actor.Type+" "+e.Target.Type+" "+e.Target.Name))
			if e.Action == "settings.updated" && jsonOf(t, e.Changes) != `{"low_battery_percent":{"from":15,"to":20}}` {
				t.Errorf("the settings changed by %v", e.Changes)
			}
		}
		if cursor = "&cursor=" + page.Next; page.Next == "" {
			break
		}
	}
	if len(log) < 5 {
		t.Fatalf("the log is %q", log)
	}
	const want = "customer.blocked key customer; pricing.updated key pricing_plan Standard; settings.updated key settings Acme Mobility; subaccount.updated key subaccount Tōkyō"
	if got := strings.Join(log[1:5], "; "); got != want || !strings.HasPrefix(log[0], "api_key.created system api_key") {
		t.Errorf("the log is %q, want after a key %q", log, want)
	}
	export := p.Get("/settings/audit-log", "Accept: application/x-ndjson")
	if n := strings.Count(export.Body, "\n"); export.Status != 200 || n != len(log) {
		t.Errorf("the export has %d lines, want %d: %d", n, len(log), export.Status)
	}
}

// TestClock advances the sandbox clock.
func TestClock(t *testing.T) {
	r := newSandbox(t)
	p := r.sandbox.tenant(t, ours)
	ride := "/rides/" + p.ride(fields{"status": "reserved"}).text("id")
	now, err := time.Parse(time.RFC3339, send(t, p.Client, "GET", "/sandbox/clock", "", 200).text("now"))
	if err != nil || time.Since(now).Abs() > time.Minute {
		t.Fatalf("it is %v, %v", now, err)
	}
	forward := func(d time.Duration) string { return fmt.Sprintf(`{"now":%q}`, now.Add(d).Format(time.RFC3339)) }
	send(t, p.Client, "PUT", "/sandbox/clock", forward(time.Hour), 200)
	if got := p.Ride(ride); got.text("status") != "cancelled" || got.text("cancel_reason") != "reservation_expired" {
		t.Errorf("after an hour the reservation is %v", got)
	}
	back := p.Do("PUT", "/sandbox/clock", forward(time.Minute))
	refused(t, "back", back, 409, "clock_backwards")
	var present struct{ Now string }
	if back.JSON(&present); !regexp.MustCompile(`^[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z$`).MatchString(present.Now) {
		t.Errorf("it says that it is %q: %s", present.Now, back.Body)
	}
	refused(t, "nothing", p.Do("PUT", "/sandbox/clock", "{}"), 422, "validation_failed", "#/now required")
	refused(t, "more than a year", p.Do("PUT", "/sandbox/clock", forward(367*24*time.Hour)), 422, "validation_failed")
	log := send(t, p.Client, "GET", "/settings/audit-log?action=sandbox.clock_advanced", "", 200)
	if n := len(log["data"].([]any)); n != 1 {
		t.Errorf("the log has %d, want 1", n)
	}
	reader := p.As(r.sandbox.key(ours, apikey.Permissions{Level: apikey.ReadOnly}))
	refused(t, "a reader", reader.Do("PUT", "/sandbox/clock", forward(2*time.Hour)), 403, "permission_denied")
	send(t, reader, "GET", "/sandbox/clock", "", 200)
}
