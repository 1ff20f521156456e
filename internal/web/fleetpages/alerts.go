package fleetpages

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// vehicleAlertRow is an alert in a list. Its template is "alert-table".
type vehicleAlertRow struct {
	ID              string
	Name            string // with the code of the vehicle
	Vehicle         string // link; empty: the vehicle is deleted
	Sentence        string
	State           web.Badge
	Raised, Cleared web.Time
	Ride, Task      string // links
	Ticket          string // number; empty: none
	Acknowledged    string // by whom
	Acknowledge     string // address of the form
	Back            string // the page of the row, to which the form returns
}

// alertBadges are the badges of alerts.
var alertBadges = map[fleet.AlertState]web.Badge{
	fleet.AlertRaised:  {Text: "Raised", Tone: web.Bad, Icon: "alert"},
	fleet.AlertCleared: {Text: "Cleared"},
}

// alertRows returns the rows of alerts.
func (p *pages) alertRows(r *web.Request, list []fleet.VehicleAlert) []vehicleAlertRow {
	var rows []vehicleAlertRow
	for i := range list {
		l := &list[i]
		row := vehicleAlertRow{
			ID: l.ID, Name: l.VehicleCode + ": " + l.Name, Sentence: l.Sentence(), State: web.BadgeFor(alertBadges, l.State),
			Raised: r.Time(l.RaisedAt.Std()), Cleared: r.Time(l.ClearedAt.Std()), Vehicle: p.base + "/vehicles/" + l.VehicleID,
		}
		if l.RideID != "" {
			row.Ride = p.base + "/rides/" + string(l.RideID)
		}
		if l.TaskID != "" {
			row.Task = p.base + "/tasks/" + string(l.TaskID)
		}
		if l.TicketNumber != nil {
			row.Ticket = strconv.FormatInt(*l.TicketNumber, 10)
		}
		switch {
		case l.AcknowledgedBy != nil:
			row.Acknowledged = actor(r, *l.AcknowledgedBy)
		case l.State == fleet.AlertRaised:
			row.Acknowledge, row.Back = p.base+"/alerts/"+l.ID+"/acknowledge", r.URL.RequestURI()
		}
		rows = append(rows, row)
	}
	return rows
}

// alertList is the body of the list of alerts.
type alertList struct {
	Filters filters
	Topic   string
	Count   string
	Rows    []vehicleAlertRow
	Empty   web.Empty
	Pager   web.Pager
}

// alerts lists alerts, by default those that are raised.
func (p *pages) alerts(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	_, choice, err := p.subaccountChoices(ctx, r)
	if err != nil {
		return err
	}
	b := alertList{Topic: p.topic(fleet.AlertRecordKind), Filters: filters{Fields: append(web.Fields{
		{Name: "state", Label: "State", Type: "select", Options: []web.Option{{Value: "", Label: "Raised"}, {Value: "cleared", Label: "Cleared"}}},
	}, choice...)}}
	b.Filters.parse(r)
	q := fleet.AlertQuery{State: []fleet.AlertState{fleet.AlertRaised}, Subaccount: b.Filters.list("subaccount"), After: after(r), Limit: perPage}
	if b.Filters.get("state") == string(fleet.AlertCleared) {
		q.State[0] = fleet.AlertCleared
	}
	docs, next, err := p.Fleet.ListAlerts(ctx, p.DB, r.OrganizationID, q)
	if err != nil {
		return err
	}
	list, err := decode[fleet.VehicleAlert](docs)
	if err != nil {
		return err
	}
	b.Rows = p.alertRows(r, list)
	b.Count = resultCount(len(list), q.After == nil, next, "%d alert", "%d alerts")
	if b.Pager, err = pager(r, next); err != nil {
		return err
	}
	b.Empty = web.Empty{Text: "No alerts. Rules watch the vehicles and raise them.", Path: p.base + "/alert-rules", Label: "View rules"}
	return p.Render(w, r, "alerts", p.listPage(r, "/alerts", "Alerts", b))
}

// raisedAlerts returns the newest raised alerts for the overview.
func (p *pages) raisedAlerts(ctx context.Context, r *web.Request) ([]vehicleAlertRow, error) {
	docs, _, err := p.Fleet.ListAlerts(ctx, p.DB, r.OrganizationID, fleet.AlertQuery{State: []fleet.AlertState{fleet.AlertRaised}, Limit: 5})
	if err != nil {
		return nil, err
	}
	list, err := decode[fleet.VehicleAlert](docs)
	return p.alertRows(r, list), err
}

// acknowledgeAlert acknowledges an alert, and marks the reader's notices of it as read. It returns
// to the page of the form.
func (p *pages) acknowledgeAlert(w http.ResponseWriter, r *web.Request) error {
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	id := r.PathValue("id")
	if err := p.write(r, func(ctx context.Context, tx *db.Tx) error {
		l, err := p.Fleet.LockAlertTx(ctx, tx, r.OrganizationID, id)
		if err == nil {
			_, err = p.Fleet.AcknowledgeAlertTx(ctx, tx, r.OrganizationID, l, by(r))
		}
		return err
	}); err != nil {
		return err
	}
	if err := p.DeskDB.Write(r.Context(), func(tx *db.Tx) error {
		return p.Desk.MarkAlertNoticesSeenTx(r.Context(), tx, r.OrganizationID, r.UserID, id)
	}); err != nil {
		return err
	}
	return p.Redirect(w, p.backTo(values.Get("back"), p.base+"/alerts"), web.Notice{Text: "Alert acknowledged."})
}

// backTo returns the path and query of a page of this environment, or otherwise.
func (p *pages) backTo(address, otherwise string) string {
	u, err := url.Parse(address)
	if err != nil || u.IsAbs() || u.Host != "" || u.Path != p.base && !strings.HasPrefix(u.Path, p.base+"/") || strings.Contains(u.Path, "..") {
		return otherwise
	}
	return u.RequestURI()
}

// markAlertsRead marks the reader's notices of the alerts of a vehicle, or of an overdue task, as read,
// by the path of its page. It writes only if there are unread ones.
func (p *pages) markAlertsRead(r *web.Request, path string) error {
	if !p.Fleet.Live() || !r.Viewed() {
		return nil
	}
	unread, err := p.Desk.HasUnseenAlerts(r.Context(), p.DeskDB, r.OrganizationID, r.UserID, path)
	if err != nil || !unread {
		return err
	}
	err = p.DeskDB.Write(r.Context(), func(tx *db.Tx) error {
		return p.Desk.MarkAlertsSeenTx(r.Context(), tx, r.OrganizationID, r.UserID, path)
	})
	if problem.Of(err) == problem.Unavailable { // the vehicle is readable all the same
		return nil
	}
	return err
}

// alertKind describes the rules of a kind.
type alertKind struct {
	Kind    fleet.AlertKind
	Icon    string
	Label   string
	Example string
	Path    string
	pattern string // the sentence with the names of its fields in braces
	unit    string // of the threshold; empty: none
	usual   int64
	scale   int64 // minutes of the unit
}

// alertKinds are the kinds of rules, in order.
var alertKinds = [...]alertKind{
	{Kind: fleet.BatteryLow, Icon: "battery", Label: "Battery low", pattern: "When the battery falls below {threshold} % ({type}, {zone})", unit: "percent", usual: 15, scale: 1,
		Example: "When the battery falls below 15 %, create a task to swap it."},
	{Kind: fleet.Silence, Icon: "plug", Label: "Silence", pattern: "When a vehicle has not reported for {threshold} minutes ({type}, {zone})", unit: "minutes", usual: 60, scale: 1,
		Example: "When a vehicle has not reported for 60 minutes, notify the admins."},
	{Kind: fleet.LeftZone, Icon: "zone", Label: "Left the zone", pattern: "When a vehicle is outside {zone} ({type})",
		Example: "When a vehicle is outside the service area, create a ticket."},
	{Kind: fleet.RideTooLong, Icon: "route", Label: "Ride too long", pattern: "When a ride has lasted {threshold} minutes ({type}, {zone})", unit: "minutes", usual: 180, scale: 1,
		Example: "When a ride has lasted 180 minutes, create a ticket."},
	{Kind: fleet.IdleTooLong, Icon: "clock", Label: "Idle too long", pattern: "When an available vehicle was neither rented nor moved for {threshold} hours ({type}, {zone})", unit: "hours", usual: 72, scale: 60,
		Example: "When an available vehicle was neither rented nor moved for 72 hours, create a task to move it."},
}

// kindOf returns the description of a kind, nil for an unknown one.
func kindOf(kind fleet.AlertKind) *alertKind {
	i := slices.IndexFunc(alertKinds[:], func(k alertKind) bool { return k.Kind == kind })
	if i < 0 {
		return nil
	}
	return &alertKinds[i]
}

// alertActions is the part of a sentence about actions, with the names of fields in braces.
const alertActions = ", raise an alert and notify {notify}{create_task?, create a task}{create_ticket?, create a ticket}."

// alertScope names the vehicle types and the zones of a rule.
type alertScope struct{ types, zones string }

// alertScope returns the names of the vehicle types and zones of a rule, of zones the first ones by
// the options of the form.
func (p *pages) alertScope(ctx context.Context, r *web.Request, rule *fleet.AlertRule, subs []fleet.Subaccount, zones []web.Option) (alertScope, error) {
	scope := alertScope{"all vehicles", "anywhere"}
	if rule.Kind == fleet.LeftZone {
		scope.zones = "all service areas"
	}
	if len(rule.VehicleTypeIDs) > 0 {
		var names []string
		for _, id := range rule.VehicleTypeIDs[:min(len(rule.VehicleTypeIDs), scopeNames)] {
			name := "a deleted vehicle type"
			if _, t := typeOf(subs, id); t != nil {
				name = t.Name
			}
			names = append(names, name)
		}
		scope.types = andMore(names, len(rule.VehicleTypeIDs))
	}
	if len(rule.ZoneIDs) > 0 {
		var names []string
		for _, id := range rule.ZoneIDs[:min(len(rule.ZoneIDs), scopeNames)] {
			name := labelOf(zones, id)
			if name == id { // not among the first
				switch z, err := p.Fleet.Zone(ctx, p.DB, r.OrganizationID, id); {
				case problem.Of(err) == problem.NotFound:
					name = "a deleted zone"
				case err != nil:
					return scope, err
				default:
					name = z.Name
				}
			}
			names = append(names, name)
		}
		scope.zones = andMore(names, len(rule.ZoneIDs))
	}
	return scope, nil
}

// scopeNames is the number of types, and of zones, that a sentence names.
const scopeNames = 3

// andMore lists the first names of some.
func andMore(names []string, of int) string {
	text := strings.Join(names, ", ")
	if more := of - len(names); more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

// alertSentence describes a rule.
func alertSentence(k *alertKind, rule *fleet.AlertRule, scope alertScope) string {
	threshold, unit, notify := k.usual, k.unit, "nobody"
	if n := rule.ThresholdPercent; n != nil {
		threshold = *n
	}
	if n := rule.ThresholdMinutes; n != nil {
		threshold = *n / k.scale
		if *n%k.scale != 0 {
			threshold, unit = *n, "minutes"
		}
	}
	if threshold == 1 {
		unit = strings.TrimSuffix(unit, "s")
	}
	switch rule.Notify {
	case fleet.NotifyAdmins:
		notify = "all admins"
	case fleet.NotifyUsers:
		notify = "chosen members"
	}
	number := strconv.FormatInt(threshold, 10)
	text := strings.NewReplacer("{threshold} "+k.unit, number+" "+unit, "{threshold}", number, "{type}", scope.types, "{zone}", scope.zones).Replace(k.pattern) + ", raise an alert and notify " + notify
	if rule.CreateTask {
		text += ", create a task"
	}
	if rule.CreateTicket {
		text += ", create a ticket"
	}
	return text + "."
}

// alertRuleRow is a rule in the list.
type alertRuleRow struct {
	ID, Path, Name, Subaccount, Sentence string
	State                                web.Badge
}

// alertRulesPage is the body of the list of rules.
type alertRulesPage struct {
	Rows  []alertRuleRow
	Kinds []alertKind // of a new rule; empty without permission
}

// alertRules lists the rules, and the kinds of new ones.
func (p *pages) alertRules(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	subs, err := p.Fleet.Subaccounts(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	rules, err := p.Fleet.AlertRules(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	zones, err := p.zoneOptions(ctx, r)
	if err != nil {
		return err
	}
	var b alertRulesPage
	for i := range rules {
		rule := &rules[i]
		scope, err := p.alertScope(ctx, r, rule, subs, zones)
		if err != nil {
			return err
		}
		row := alertRuleRow{ID: rule.ID, Name: rule.Name, Sentence: alertSentence(kindOf(rule.Kind), rule, scope), State: web.Badge{Text: "Off"}}
		if rule.Enabled {
			row.State = web.Badge{Text: "On", Tone: web.Good, Icon: "check"}
		}
		if r.Admin() {
			row.Path = p.base + "/alert-rules/" + rule.ID
		}
		if i := slices.IndexFunc(subs, func(s fleet.Subaccount) bool { return s.ID == rule.SubaccountID }); i >= 0 && len(subs) > 1 {
			row.Subaccount = subs[i].Name
		}
		b.Rows = append(b.Rows, row)
	}
	if r.Admin() {
		b.Kinds = slices.Clone(alertKinds[:])
		for i := range b.Kinds {
			b.Kinds[i].Path = p.base + "/alert-rules/new?kind=" + string(b.Kinds[i].Kind)
		}
	}
	return p.Render(w, r, "alert_rules", p.page(r, "/alerts", "Alert rules", b))
}

// alertRuleForm is the body of the form of a rule.
type alertRuleForm struct {
	Groups   []group
	Was      web.Fields // see [form]
	Sentence string
	Pattern  string // of the sentence, for the script
	Cancel   string
	Delete   string
}

// alertRule creates a rule of a kind, or changes one.
func (p *pages) alertRule(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	var rule fleet.AlertRule
	title, id := "New rule", r.PathValue("id")
	if id == "" {
		rule = fleet.AlertRule{Kind: fleet.AlertKind(r.URL.Query().Get("kind")), Enabled: true, Notify: fleet.NotifyAdmins}
	} else {
		var err error
		if rule, err = p.Fleet.AlertRule(ctx, p.DB, r.OrganizationID, id); err != nil {
			return err
		}
		title = "Edit rule"
	}
	k := kindOf(rule.Kind)
	if k == nil {
		return problem.New(problem.NotFound, "there is no such kind of rules")
	}
	subs, err := p.Fleet.Subaccounts(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	zones, err := p.zoneOptions(ctx, r)
	if err != nil {
		return err
	}
	scope, err := p.alertScope(ctx, r, &rule, subs, zones)
	if err != nil {
		return err
	}
	stored := func(rule *fleet.AlertRule) (web.Fields, []group) {
		return p.alertRuleFields(k, rule, scope, slices.Clone(subs), zones)
	}
	fields, groups := stored(&rule)
	back, t := p.base+"/alert-rules", new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		saved, err := p.saveAlertRule(r, k, fields, t, id, func(rule *fleet.AlertRule) web.Fields {
			fields, _ := stored(rule)
			return fields
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Rule saved. Vehicles are examined within seconds."})
		}
	}
	b := alertRuleForm{Groups: groups, Was: t.opened(id, fields), Sentence: alertSentence(k, &rule, scope), Pattern: k.pattern + alertActions, Cancel: back}
	if id != "" {
		b.Delete = back + "/" + id + "/delete"
	}
	page := p.page(r, "/alerts", title, b)
	page.Fields, page.Scripts = fields, []string{"rule.js"}
	if len(fields.Wrong()) > 0 {
		page.Status = http.StatusUnprocessableEntity
	}
	return p.Render(w, r, "alert_rule", page)
}

// alertRuleFields are the fields of a rule. A new one has an id of "".
func (p *pages) alertRuleFields(k *alertKind, rule *fleet.AlertRule, scope alertScope, subs []fleet.Subaccount, zones []web.Option) (web.Fields, []group) {
	if rule.ID != "" {
		subs = slices.DeleteFunc(subs, func(s fleet.Subaccount) bool { return s.ID != rule.SubaccountID })
	}
	name := rule.Name
	if name == "" {
		name = k.Label
	}
	what := web.Fields{{Name: "name", Label: "Name", Type: "text", Most: 256, Value: name}}
	if len(subs) > 1 {
		what = append(what, web.Field{Name: "subaccount", Label: "Subaccount", Type: "select", Options: options(subs, "", func(s fleet.Subaccount) web.Option {
			return web.Option{Value: s.ID, Label: s.Name}
		})})
	}
	if k.unit != "" {
		threshold := k.usual
		if n := rule.ThresholdPercent; n != nil {
			threshold = *n
		} else if n := rule.ThresholdMinutes; n != nil {
			threshold = *n / k.scale
		}
		what = append(what, web.Field{Name: "threshold", Label: "Threshold (" + k.unit + ")", Type: "text", Mode: "numeric", Value: strconv.FormatInt(threshold, 10)})
	}
	label, help, everywhere := "In zone", "Only vehicles there.", "anywhere"
	if k.Kind == fleet.LeftZone {
		label, help, everywhere = "Zone to stay in", "", "all service areas"
	}
	what = append(what,
		web.Field{Name: "type", Label: "Vehicle type", Type: "select", Optional: true, Value: strings.Join(rule.VehicleTypeIDs, ","), Options: limits("all vehicles", scope.types, rule.VehicleTypeIDs, typeOptions(subs))},
		web.Field{Name: "zone", Label: label, Type: "select", Optional: true, Value: strings.Join(rule.ZoneIDs, ","), Options: limits(everywhere, scope.zones, rule.ZoneIDs, zones[1:]), Help: help},
	)
	recipients := string(rule.Notify)
	notify := []web.Option{{Value: string(fleet.NotifyAdmins), Label: "all admins"}, {Value: string(fleet.NotifyNobody), Label: "nobody"}}
	if rule.Notify == fleet.NotifyUsers {
		ids, _ := json.Marshal(rule.NotifyUserIDs) // of any characters
		recipients = string(ids)
		notify = append(notify, web.Option{Value: recipients, Label: "chosen members"})
	}
	notify = append(notify, web.Option{Value: selfRecipient, Label: "me"})
	actions := web.Fields{
		{Name: "notify", Label: "Notify", Type: "select", Value: recipients, Options: notify, Help: "Each member chooses on the page Notices how fleet alerts reach them. The API can set any members."},
		{Name: "create_task", Label: "Create a task", Type: "checkbox", Value: checked(rule.CreateTask)},
		{Name: "create_ticket", Label: "Create a ticket", Type: "checkbox", Value: checked(rule.CreateTicket)},
		{Name: "enabled", Label: "Rule is on", Type: "checkbox", Value: checked(rule.Enabled)},
	}
	if !p.Fleet.Live() {
		actions[0].Help = "Alerts of the sandbox send no notices and create no tickets."
	}
	fields := slices.Concat(what, actions)
	return fields, layout(fields, part{"", "", len(what), false}, part{"Actions", "", 0, false})
}

// limits are the options of a field that limits a rule to one of list. has are the ids that limit it
// now, and names their names: several by the API have one option together, and one that is not in the
// list has its own.
func limits(none, names string, has []string, list []web.Option) []web.Option {
	all := append([]web.Option{{Label: none}}, list...)
	if now := strings.Join(has, ","); !slices.ContainsFunc(all, func(o web.Option) bool { return o.Value == now }) {
		all = append(all, web.Option{Value: now, Label: names})
	}
	return all
}

// selfRecipient is the choice of the reader as the only recipient of notices.
const selfRecipient = "me"

// saveAlertRule stores the rule of a form; id is empty for a new one, and the fields of another are
// by stored. It returns false with errors in the fields.
func (p *pages) saveAlertRule(r *web.Request, k *alertKind, fields web.Fields, t *formInput, id string, stored func(*fleet.AlertRule) web.Fields) (bool, error) {
	var percent, minutes *int64
	if n := t.optional("threshold"); k.Kind == fleet.BatteryLow {
		percent = n
	} else if n != nil && k.unit != "" {
		minutes = new(min(max(*n, -1), 1<<32) * k.scale)
	}
	if k.unit != "" && t.text("threshold") == "" {
		t.v.AddCode("required", "threshold", "is required")
	}
	ids := func(name string) []string {
		if value := t.text(name); value != "" {
			return strings.Split(value, ",")
		}
		return nil
	}
	notify, users := fleet.AlertRecipients(t.text("notify")), []string(nil)
	if notify == selfRecipient {
		notify, users = fleet.NotifyUsers, []string{r.UserID}
	} else if err := json.Unmarshal([]byte(notify), &users); err == nil {
		notify = fleet.NotifyUsers
	}
	saved, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) error {
		if id == "" {
			subaccount := t.text("subaccount")
			if subaccount == "" {
				subs, err := p.Fleet.Subaccounts(ctx, tx, r.OrganizationID)
				if err != nil {
					return err
				}
				subaccount = subs[0].ID
			}
			_, err := p.Fleet.CreateAlertRuleTx(ctx, tx, r.OrganizationID, fleet.NewAlertRule{
				SubaccountID: subaccount, Name: t.text("name"), Kind: k.Kind, ThresholdPercent: percent, ThresholdMinutes: minutes, VehicleTypeIDs: ids("type"), ZoneIDs: ids("zone"),
				Enabled: new(t.on("enabled")), Notify: notify, NotifyUserIDs: users, CreateTask: t.on("create_task"), CreateTicket: t.on("create_ticket"),
			})
			return renameIssues(err)
		}
		rule, err := p.Fleet.LockAlertRuleTx(ctx, tx, r.OrganizationID, id)
		if err != nil {
			return err
		}
		c := fleet.AlertRuleChange{
			Name: optional.Of(t.text("name")), Enabled: optional.Of(t.on("enabled")), VehicleTypeIDs: optional.Of(ids("type")), ZoneIDs: optional.Of(ids("zone")),
			Notify: optional.Of(notify), NotifyUserIDs: optional.Of(users), CreateTask: optional.Of(t.on("create_task")), CreateTicket: optional.Of(t.on("create_ticket")),
		}
		if percent != nil {
			c.ThresholdPercent = optional.Of(*percent)
		}
		if before := rule.ThresholdMinutes; minutes != nil && (before == nil || *minutes/k.scale != *before/k.scale) { // else as the form shows it
			c.ThresholdMinutes = optional.Of(*minutes)
		}
		after, err := p.Fleet.UpdateAlertRuleTx(ctx, tx, r.OrganizationID, rule, c)
		if err != nil {
			return renameIssues(err)
		}
		return t.checkStored(stored(&rule), stored(&after))
	})
	return saved, err
}

// renameIssues names the fields of the form in a validation error.
func renameIssues(err error) error {
	return withPaths(err, func(path string) string {
		member, _, _ := strings.Cut(path, ".")
		switch member {
		case "threshold_percent", "threshold_minutes":
			return "threshold"
		case "zone_ids":
			return "zone"
		case "vehicle_type_ids":
			return "type"
		case "subaccount_id":
			return "subaccount"
		case "notify_user_ids":
			return "notify"
		}
		return path
	})
}

// deleteAlertRule deletes a rule.
func (p *pages) deleteAlertRule(w http.ResponseWriter, r *web.Request) error {
	rule, err := p.Fleet.AlertRule(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	back := p.base + "/alert-rules"
	ok, err := p.confirmed(w, r, p.page(r, "/alerts", "Delete rule "+rule.Name+"?", nil), web.Confirm{
		Text: "Its raised alerts are cleared. The list of alerts remains.", Label: "Delete rule", Cancel: back,
	})
	if err != nil || !ok {
		return err
	}
	if err := p.write(r, func(ctx context.Context, tx *db.Tx) error {
		return p.Fleet.DeleteAlertRuleTx(ctx, tx, r.OrganizationID, rule.ID)
	}); err != nil {
		return err
	}
	return p.Redirect(w, back, web.Notice{Text: "Rule deleted."})
}
