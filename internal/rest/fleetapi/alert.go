package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

var (
	alertKinds      = []string{"battery_low", "silence", "left_zone", "ride_too_long", "idle_too_long"}
	alertStates     = []string{"raised", "cleared"}
	alertRecipients = []string{"nobody", "admins", "users"}
)

var alertRuleRecord = record("alert_rule", "A rule that raises alerts for vehicles of its subaccount.",
	schema.Member{Name: "name", Type: schema.String(1, 256), Access: schema.Required, Example: "Battery below 15 %"},
	schema.Member{Name: "kind", Type: schema.Enum(alertKinds...), Access: schema.CreateOnly, Doc: "The condition. battery_low: battery or tank is below threshold_percent. silence: neither a report nor a sighting for threshold_minutes. " +
		"left_zone: outside the zones of zone_ids, or without these outside all service areas. ride_too_long: the open ride started threshold_minutes ago. idle_too_long: available, and neither rented nor moved by 100 m for threshold_minutes."},
	schema.Member{Name: "threshold_percent", Type: schema.Int(1, 95), Access: schema.Writable, Nullable: true, Doc: "Required for battery_low, null for others. The alert is cleared 5 points above it."},
	schema.Member{Name: "threshold_minutes", Type: schema.Int(1, 366*24*60), Access: schema.Writable, Nullable: true, Doc: "Required for silence, ride_too_long and idle_too_long, null for others."},
	schema.Member{Name: "vehicle_type_ids", Type: schema.Array(schema.ID(), 100), Access: schema.Writable, Doc: "Only vehicles of these types; defaults to all."},
	schema.Member{Name: "zone_ids", Type: schema.Array(schema.ID(), 100), Access: schema.Writable, Doc: "For left_zone, the zones to stay in. Otherwise only vehicles in these zones count; defaults to any place."},
	schema.Member{Name: "enabled", Type: schema.Bool(), Access: schema.Writable, Doc: "Defaults to true. Disabling a rule clears its alerts."},
	schema.Member{Name: "notify", Type: schema.Enum(alertRecipients...), Access: schema.Writable, Doc: "Who gets a notice in the helpdesk; defaults to nobody. Alerts of the sandbox send none."},
	schema.Member{Name: "notify_user_ids", Type: schema.Array(schema.String(1, 128), 50), Access: schema.Writable, Doc: "Members of the organization, if notify is users. They are not checked; if none of them is a member, the admins get the notice."},
	schema.Member{Name: "create_task", Type: schema.Bool(), Access: schema.Writable, Doc: "Creates a task for each alert, unless the one that the rule created for the vehicle before is still open; defaults to false."},
	schema.Member{Name: "create_ticket", Type: schema.Bool(), Access: schema.Writable, Doc: "Creates a ticket in the helpdesk for each alert, unless the one of the former alert of the vehicle by the rule is not yet resolved; defaults to false. Alerts of the sandbox create none."},
)

var alertRecord = &schema.Record{Name: "alert", Doc: "An alert of a vehicle. A vehicle has at most one raised alert by a rule.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("alert")},
	{Name: "livemode", Type: schema.Bool(), Doc: "true for production, false for the sandbox."},
	{Name: "subaccount_id", Type: schema.ID()},
	{Name: "alert_rule_id", Type: schema.ID(), Doc: "The rule may be deleted."},
	{Name: "name", Type: schema.Text(), Doc: "The rule's name when the alert was raised."},
	{Name: "kind", Type: schema.Enum(alertKinds...)},
	{Name: "vehicle_id", Type: schema.ID()},
	{Name: "vehicle_code", Type: schema.Text(), Doc: "The vehicle's code when the alert was raised.", Example: "B-0417"},
	{Name: "ride_id", Type: schema.ID(), Nullable: true, Doc: "The ride that was open when the alert was raised."},
	{Name: "state", Type: schema.Enum(alertStates...)},
	{Name: "value", Type: schema.Integer(), Nullable: true, Doc: "When the alert was raised: percent for battery_low, minutes for the kinds that limit a duration."},
	{Name: "location", Type: position(), Nullable: true, Doc: "Of the vehicle when the alert was raised."},
	{Name: "raised_at", Type: schema.Timestamp()},
	{Name: "cleared_at", Type: schema.Timestamp(), Nullable: true},
	{Name: "clear_reason", Type: schema.Enum("ended", "vehicle_removed", "rule_disabled"), Nullable: true, Doc: "rule_disabled also stands for a deleted rule."},
	{Name: "acknowledged_at", Type: schema.Timestamp(), Nullable: true},
	{Name: "acknowledged_by", Type: schema.Nested(actorRecord), Nullable: true},
	{Name: "task_id", Type: schema.ID(), Nullable: true, Doc: "Of the task that the rule created."},
	{Name: "ticket_number", Type: schema.Integer(), Nullable: true, Doc: "Of the ticket that the rule created."},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "updated_at", Type: schema.Timestamp()},
}}

func (a *API) alertRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/alert_rules", ID: "listAlertRules", Tag: "Alerts", Summary: "List alert rules",
		Needs: needs("vehicles", apikey.Read),
		Query: []rest.Param{{Name: "subaccount_id", Kind: rest.StringsParam}},
		Sort:  []string{"created_at", "name"}, Export: true, Output: alertRuleRecord, List: true, Handle: a.listAlertRules,
	}, {
		Method: "POST", Path: "/alert_rules", ID: "createAlertRule", Tag: "Alerts", Summary: "Create an alert rule",
		Doc:   "Vehicles that meet the condition already have their alerts within seconds. A rule with create_ticket needs settings.update too.",
		Needs: needs("vehicles", apikey.Update), Input: alertRuleRecord, Output: alertRuleRecord, Codes: []string{"already_exists"}, Handle: a.createAlertRule,
	}, {
		Method: "GET", Path: "/alert_rules/{id}", ID: "getAlertRule", Tag: "Alerts", Summary: "Read an alert rule",
		Needs: needs("vehicles", apikey.Read), Output: alertRuleRecord, Handle: a.getAlertRule,
	}, {
		Method: "PUT", Path: "/alert_rules/{id}", ID: "updateAlertRule", Tag: "Alerts", Summary: "Change an alert rule",
		Doc:   "A rule that has create_ticket after the change needs settings.update too.",
		Needs: needs("vehicles", apikey.Update), Input: alertRuleRecord, Output: alertRuleRecord, Codes: []string{"already_exists"}, Handle: a.updateAlertRule,
	}, {
		Method: "DELETE", Path: "/alert_rules/{id}", ID: "deleteAlertRule", Tag: "Alerts", Summary: "Delete an alert rule",
		Doc:   "Its raised alerts are cleared. Alerts stay.",
		Needs: needs("vehicles", apikey.Update), Handle: a.deleteAlertRule,
	}, {
		Method: "GET", Path: "/alerts", ID: "listAlerts", Tag: "Alerts", Summary: "List alerts",
		Needs: needs("vehicles", apikey.Read),
		Query: []rest.Param{
			{Name: "state", Kind: rest.EnumsParam, Values: alertStates},
			{Name: "alert_rule_id", Kind: rest.StringsParam},
			{Name: "vehicle_id", Kind: rest.StringsParam},
			{Name: "subaccount_id", Kind: rest.StringsParam},
		},
		Sort: []string{"created_at"}, Export: true, Output: alertRecord, List: true, Handle: a.listAlerts,
	}, {
		Method: "GET", Path: "/alerts/{id}", ID: "getAlert", Tag: "Alerts", Summary: "Read an alert",
		Needs: needs("vehicles", apikey.Read), Output: alertRecord, Handle: a.getAlert,
	}, {
		Method: "POST", Path: "/alerts/{id}/acknowledge", ID: "acknowledgeAlert", Tag: "Alerts", Summary: "Acknowledge an alert",
		Doc:   "Notes who acknowledged it first. It stays raised until its condition ends.",
		Needs: needs("vehicles", apikey.Update), Output: alertRecord, Status: 200, Handle: a.acknowledgeAlert,
	}}
}

func (a *API) listAlertRules(ctx context.Context, r *rest.Request) (rest.Response, error) {
	rules, err := a.Fleet.AlertRules(ctx, a.DB, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	var list []*fleet.AlertRule
	for i := range rules {
		if r.Covers(rules[i].SubaccountID) {
			list = append(list, &rules[i])
		}
	}
	return whole(r, list, func(rule *fleet.AlertRule) listPosition {
		if r.Sort().Field == "name" {
			return listPosition{rule.Name, rule.ID}
		}
		return listPosition{"", rule.ID}
	})
}

func (a *API) getAlertRule(ctx context.Context, r *rest.Request) (rest.Response, error) {
	rule, err := a.Fleet.AlertRule(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := r.Within(rule.SubaccountID); err != nil {
		return rest.Response{}, err
	}
	return ok(&rule)
}

func (a *API) createAlertRule(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in fleet.NewAlertRule
	subaccountID, err := r.DecodeSole(ctx, &in)
	if err != nil {
		return rest.Response{}, err
	}
	in.SubaccountID = subaccountID
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		rule, err := a.Fleet.CreateAlertRuleTx(ctx, tx, r.Key.OrganizationID, in)
		if err != nil {
			return rest.Response{}, err
		}
		if err := mayCreateTickets(r, &rule); err != nil {
			return rest.Response{}, err
		}
		return created("/alert_rules/", rule.ID, rule.SubaccountID, &rule)
	})
}

func (a *API) updateAlertRule(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		rule, current, err := a.lockAlertRule(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		var in fleet.AlertRuleChange
		if err := r.Update(current, &in); err != nil {
			return rest.Response{}, err
		}
		if rule, err = a.Fleet.UpdateAlertRuleTx(ctx, tx, r.Key.OrganizationID, rule, in); err != nil {
			return rest.Response{}, err
		}
		if err := mayCreateTickets(r, &rule); err != nil {
			return rest.Response{}, err
		}
		return changed(rule.SubaccountID, &rule)
	})
}

// mayCreateTickets returns 403 for a new or changed rule that creates tickets, unless the key may
// change settings: keys of the fleet have no permission for tickets.
func mayCreateTickets(r *rest.Request, rule *fleet.AlertRule) error {
	if !rule.CreateTicket {
		return nil
	}
	return r.Require("settings", apikey.Update)
}

func (a *API) deleteAlertRule(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		rule, current, err := a.lockAlertRule(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Match(current); err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent().In(rule.SubaccountID), a.Fleet.DeleteAlertRuleTx(ctx, tx, r.Key.OrganizationID, rule.ID)
	})
}

// lockAlertRule returns the rule of the path, locked and in scope, and its wire format.
func (a *API) lockAlertRule(ctx context.Context, tx *db.Tx, r *rest.Request) (rule fleet.AlertRule, current rest.Document, err error) {
	if rule, err = a.Fleet.LockAlertRuleTx(ctx, tx, r.Key.OrganizationID, r.Path("id")); err == nil {
		current, err = reached(r, rule.SubaccountID, &rule)
	}
	return rule, current, err
}

func (a *API) listAlerts(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := fleet.AlertQuery{
		Subaccounts: r.Subaccounts(), RuleID: r.Strings("alert_rule_id"), VehicleID: r.Strings("vehicle_id"),
		State: rest.Typed[fleet.AlertState](r.Strings("state")), Sort: r.Sort(), Limit: r.Limit(),
	}
	if r.Exporting() {
		return exported(ctx, r, func(fn func(*fleet.Record) error) error {
			return a.Fleet.EachAlert(ctx, r.Key.OrganizationID, q, fn)
		}, plain, false), nil
	}
	var err error
	if q.After, err = r.After(); err != nil {
		return rest.Response{}, err
	}
	docs, after, err := a.Fleet.ListAlerts(ctx, a.DB, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, rest.AsCursorError(err)
	}
	return listed(ctx, r, docs, after, plain)
}

func (a *API) getAlert(ctx context.Context, r *rest.Request) (rest.Response, error) {
	alert, err := a.Fleet.VehicleAlert(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := r.Within(alert.SubaccountID); err != nil {
		return rest.Response{}, err
	}
	return ok(&alert)
}

func (a *API) acknowledgeAlert(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		alert, err := a.Fleet.LockAlertTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Within(alert.SubaccountID); err != nil {
			return rest.Response{}, err
		}
		if alert, err = a.Fleet.AcknowledgeAlertTx(ctx, tx, r.Key.OrganizationID, alert, actorOf(r)); err != nil {
			return rest.Response{}, err
		}
		return changed(alert.SubaccountID, &alert)
	})
}
