package deskapi_test

import (
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// audited are the audit actions of routes.
var audited = map[string]audit.Action{
	"deleteTicket": "ticket.deleted", "mergeTicket": "ticket.merged", "unmergeTicket": "ticket.unmerged", "splitTicket": "ticket.split",
	"deleteCustomer": "customer.deleted", "mergeCustomer": "customer.merged", "unmergeCustomer": "customer.unmerged",
	"createWebhook": "webhook.created", "updateWebhook": "webhook.updated", "deleteWebhook": "webhook.deleted", "testWebhook": "webhook.tested",
	"replayDelivery": "webhook.replayed", "replayDeliveries": "webhook.replayed", "replayEvent": "webhook.replayed",
	"createChannel": "channel.connected", "updateChannel": "channel.updated", "deleteChannel": "channel.disconnected", "proveChannel": "channel.proof_started", "rotateChannelSecret": "channel.secret_rotated",
	"setSLAPolicy": "sla_policy.updated", "deleteSLAPolicy": "sla_policy.deleted",
	"createMacro": "macro.created", "updateMacro": "macro.updated", "deleteMacro": "macro.deleted", "addMacroAttachment": "macro.updated", "deleteMacroAttachment": "macro.updated",
	"createView": "view.created", "updateView": "view.updated", "deleteView": "view.deleted",
	"getRawInboundEvent": "inbound_event.viewed", "replayInboundEvent": "inbound_event.replayed",
}

// notAudited are the routes without an audit entry, with the reason.
var notAudited = map[string]string{
	"createTicket":   "timeline of the ticket",
	"updateTicket":   "timeline of the ticket",
	"createMessage":  "message of the ticket",
	"applyMacro":     "timeline of the ticket",
	"deleteMessage":  "message of the ticket",
	"addFollower":    "list of followers",
	"removeFollower": "list of followers",
	"readNotice":     "list of notices",
	"createCustomer": "customer events",

	"createChannelMessage": "message of the ticket",
	"reportChannelReceipt": "state of the message",
	"reportChannelTyping":  "stores nothing",
	"identifyChannelUser":  "customer events",

	"updateCustomer": "customer events",
}

// changing are bodies that change the sample of a route.
var changing = map[string]string{
	"updateWebhook": `{"url":"http://127.0.0.1:2/","events":["ticket.created"]}`,
	"updateChannel": `{"name":"Another name"}`,
	"setSLAPolicy":  `{"first_response_minutes":45}`,
	"updateMacro":   `{"note":"Seen"}`,
	"updateView":    `{"name":"Another name"}`,
}

// TestEveryRouteIsAudited calls every writing route and checks its audit entry.
func TestEveryRouteIsAudited(t *testing.T) {
	r := newRig(t)
	us := r.tenant(r.ours)
	known := map[string]bool{}
	for i := range r.routes {
		rt := &r.routes[i]
		known[rt.ID] = true
		action := audited[rt.ID]
		if action == "" && (rt.Method == "GET" || notAudited[rt.ID] != "") {
			continue
		}
		t.Run(rt.ID, func(t *testing.T) {
			if action == "" {
				t.Fatal("records nothing: add its action, or the reason")
			}
			us := us
			us.t = t
			path := us.changeable(rt)
			body := changing[rt.ID]
			if body == "" {
				body = us.body(rt, path)
			}
			before := r.entries(t, action)
			if a := us.Do(rt.Method, path, body); a.Status != success(rt) {
				t.Fatalf("%s %s: got %d %s", rt.Method, path, a.Status, a.Body)
			}
			if after := r.entries(t, action); len(after) <= len(before) {
				t.Fatalf("%d entries of %s, want more than %d", len(after), action, len(before))
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

// changeable returns the path of a route on a record that the route can change.
func (p tenant) changeable(rt *rest.Route) string {
	p.t.Helper()
	states := map[string][]string{
		"replayInboundEvent": {"UPDATE inbound_events SET state = 'processed'", "DELETE FROM jobs"},
		"replayDelivery":     {"UPDATE deliveries SET state = 2"},
		"replayDeliveries":   {"UPDATE deliveries SET state = 2"},
	}
	path := ""
	switch rt.ID {
	case "replayDelivery": // a test delivery cannot be replayed
		w := p.webhook()
		p.ticket()
		list := send(p.t, p.Client, "GET", w+"/deliveries", "", 200)
		path = w + "/deliveries/" + list["data"].([]any)[0].(map[string]any)["id"].(string) + "/replay"
	case "replayDeliveries", "replayEvent":
		w := p.webhook()
		p.ticket()
		if path = w + "/replay"; rt.ID == "replayEvent" {
			path = p.sample(rt)
		}
	default:
		path = p.sample(rt)
	}
	for _, s := range states[rt.ID] {
		if err := p.db.Write(p.t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(p.t.Context(), s)
			return err
		}); err != nil {
			p.t.Fatal(err)
		}
	}
	return path
}

func (r *rig) entries(t *testing.T, a audit.Action) []audit.Entry {
	return audittest.List(t, r.audit, r.ours.ID, audit.Query{Action: a})
}

// TestExportsAreAudited exports tickets, and the audit log itself.
func TestExportsAreAudited(t *testing.T) {
	r := newRig(t)
	us := r.tenant(r.ours)
	for path, action := range map[string]audit.Action{"/tickets": rest.AuditExported, "/settings/audit-log": audit.Exported} {
		if a := us.Do("GET", path, ""); a.Status != 200 {
			t.Fatalf("%s: %d %s", path, a.Status, a.Body)
		}
		if n := len(r.entries(t, action)); n != 0 {
			t.Errorf("a list of %s left %d entries", path, n)
		}
		if a := us.Do("GET", path, "", "Accept: application/x-ndjson"); a.Status != 200 {
			t.Fatalf("%s: %d %s", path, a.Status, a.Body)
		}
		list := r.entries(t, action)
		if len(list) != 1 || list[0].Details["format"] != "ndjson" || !slices.Contains([]string{"listTickets", "listAuditLog"}, list[0].Target.ID) {
			t.Errorf("%s: entries %+v", path, list)
		}
	}
}
