package fleetapi_test

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// audited are the audit actions of routes.
var audited = map[string]audit.Action{
	"createZone": "zone.created", "updateZone": "zone.updated", "deleteZone": "zone.deleted",
	"updatePricingPlan": "pricing.updated", "updateSettings": "settings.updated", "updateSubaccount": "subaccount.updated",
	"createAlertRule": "alert_rule.created", "updateAlertRule": "alert_rule.updated", "deleteAlertRule": "alert_rule.deleted", "acknowledgeAlert": "alert.acknowledged",
	"createTask": "task.created", "updateTask": "task.updated", "createTaskPhoto": "task.updated", "deleteTaskPhoto": "task.updated",
	"createVehicleTracker": "tracker.created", "deleteVehicleTracker": "tracker.deleted",
	"deleteVehicle": "vehicle.deleted", "resetSandbox": "sandbox.reset", "updateSandboxClock": "sandbox.clock_advanced",
	"updateCustomer": "customer.blocked", "updateRide": "ride.ended_by_operator",
}

// notAudited are the routes without an audit entry, with the reason.
var notAudited = map[string]string{
	"createQuote":   "nothing is stored",
	"createRide":    "the ride's own history",
	"createVehicle": "the vehicle's own history; imports are recorded",
	"updateVehicle": "the vehicle's own history",

	"createTelemetry": "the vehicle's own history",
}

// TestEveryRouteIsAudited calls every writing route and checks its audit entry.
func TestEveryRouteIsAudited(t *testing.T) {
	r := newSandbox(t)
	us := r.sandbox.tenant(t, ours) // has all routes
	known := map[string]bool{}
	for i := range us.routes {
		rt := &us.routes[i]
		known[rt.ID] = true
		if rt.Method == "GET" || notAudited[rt.ID] != "" {
			continue
		}
		t.Run(rt.ID, func(t *testing.T) {
			action := audited[rt.ID]
			if action == "" {
				t.Fatal("records nothing: add its action, or the reason")
			}
			us := *us
			us.t = t
			path, body := us.sample(rt), us.body(rt)
			switch rt.ID {
			case "updateCustomer":
				body = `{"status":"blocked"}`
			case "updateRide":
				body = `{"status":"completed","end_reason":"operator"}`
			}
			before := us.entries(action)
			if a := us.Do(rt.Method, path, body); a.Status != success(rt) {
				t.Fatalf("%s %s: got %d %s", rt.Method, path, a.Status, a.Body)
			}
			if after := us.entries(action); len(after) != len(before)+1 {
				t.Fatalf("%d entries of %s, want one more than %d", len(after), action, len(before))
			} else if s := after[0].Source; s.Actor.Type != audit.Key || s.Actor.ID == "" || s.Surface != audit.REST || s.RequestID == "" {
				t.Errorf("source %+v", s)
			}
		})
	}
	for id := range audited {
		if !known[id] {
			t.Errorf("there is no route %s", id)
		}
	}
	for id := range notAudited {
		if !known[id] || audited[id] != "" {
			t.Errorf("%s is no route that records nothing", id)
		}
	}
}

func (p *tenant) entries(a audit.Action) []audit.Entry {
	p.t.Helper()
	return audittest.List(p.t, p.audit, p.org, audit.Query{Action: a})
}

// TestTransfersAreAudited exports vehicles and imports one.
func TestTransfersAreAudited(t *testing.T) {
	r := newRig(t)
	us := r.live.tenant(t, ours)
	if a := us.Get("/vehicles", "Accept: text/csv"); a.Status != 200 {
		t.Fatal(a.Status, a.Body)
	}
	if list := us.entries(rest.AuditExported); len(list) != 1 || list[0].Target.ID != "listVehicles" || list[0].Details["format"] != "csv" {
		t.Errorf("exports %+v", list)
	}
	line := jsonOf(t, fields{"subaccount_id": us.sub.ID, "code": "IMPORTED-1", "vehicle_type_id": us.scooter})
	if a := us.Do("POST", "/vehicles", line+"\n{}\n", "Content-Type: application/x-ndjson", "Accept: application/x-ndjson"); a.Status != 200 {
		t.Fatal(a.Status, a.Body)
	}
	if list := us.entries(rest.AuditImported); len(list) != 1 || list[0].Details["created"] != 1.0 || list[0].Details["failed"] != 1.0 {
		t.Errorf("imports %+v", list)
	}
}
