package fleetapi_test

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
)

// A key that may only change vehicles neither creates nor changes rules that create tickets, but may
// end one.
func TestAlertRuleTickets(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	plain, tickets := p.alertRule(), p.alertRule(fields{"name": "With a ticket", "create_ticket": true})
	low := p.As(p.key(ours, apikey.Permissions{Level: apikey.ReadWrite}))
	const on = `{"create_ticket":true}`
	path := "/alert_rules/" + tickets.text("id")
	refused(t, "create", low.Do("POST", "/alert_rules", jsonOf(t, fields{"subaccount_id": plain["subaccount_id"], "name": "Low", "kind": "battery_low", "threshold_percent": 20, "create_ticket": true})), 403, "permission_denied")
	refused(t, "switch on", low.Do("PUT", "/alert_rules/"+plain.text("id"), on), 403, "permission_denied")
	refused(t, "change", low.Do("PUT", path, `{"name":"More"}`), 403, "permission_denied")
	if got := send(t, p.Client, "GET", path, "", 200); got.text("name") != "With a ticket" {
		t.Errorf("a refused change: %v", got)
	}
	if got := send(t, p.Client, "GET", "/alert_rules/"+plain.text("id"), "", 200); got["create_ticket"] != false {
		t.Errorf("a refused change: %v", got)
	}
	send(t, p.Client, "PUT", "/alert_rules/"+plain.text("id"), on, 200)
	send(t, low, "PUT", path, `{"create_ticket":false}`, 200)
	send(t, low, "PUT", path, `{"name":"More"}`, 200)
}
