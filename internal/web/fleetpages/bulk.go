package fleetpages

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// bulkAction is an action on many vehicles.
type bulkAction struct {
	name   string
	label  string // of the option: "Set out of service"
	button string // with the vehicles between its two halves: "Set %s out of service"
	done   string // with the vehicles before it: "set out of service"
	member string // of the vehicle that it sets: "state", "plan" or "type"
	to     fleet.VehicleState
	events []fleet.VehicleEvent // offered as reasons
	admin  bool
	danger bool
}

// bulkActions are the actions on many vehicles.
var bulkActions = []bulkAction{
	{name: "out_of_service", label: "Set out of service", button: "Set %s out of service", done: "set out of service", member: "state", to: fleet.NonOperational, events: []fleet.VehicleEvent{"maintenance", "off_hours", "system_suspend", "unspecified"}},
	{name: "in_service", label: "Return to service", button: "Return %s to service", done: "returned to service", member: "state", to: fleet.Available, events: []fleet.VehicleEvent{"maintenance", "on_hours", "system_resume", "provider_drop_off", "unspecified"}},
	{name: "remove", label: "Remove from the street", button: "Remove %s", done: "removed", member: "state", to: fleet.Removed, events: []fleet.VehicleEvent{"maintenance_pick_up", "rebalance_pick_up", "compliance_pick_up", "agency_pick_up", "decommissioned"}, danger: true},
	{name: "plan", label: "Change pricing plan", button: "Change the plan of %s", done: "changed to another plan", member: "plan", admin: true},
	{name: "type", label: "Change vehicle type", button: "Change the type of %s", done: "changed to another type", member: "type", admin: true},
}

// findBulkAction returns an action that the reader may carry out.
func findBulkAction(r *web.Request, name string) (*bulkAction, error) {
	i := slices.IndexFunc(bulkActions, func(a bulkAction) bool { return a.name == name })
	if i < 0 {
		return nil, problem.New(problem.NotFound, "There is no such action on vehicles.")
	}
	if bulkActions[i].admin && !r.Admin() {
		return nil, problem.New(problem.Forbidden, "Only admins of %s can change this. Ask an admin.", r.Organization.Name)
	}
	return &bulkActions[i], nil
}

// bulkChoice is the choice of an action in the list of vehicles.
type bulkChoice struct {
	Path    string
	Kept    map[string]string // the filters of the list
	All     string            // label of the choice of all vehicles
	Options []web.Option
}

// bulkChoice returns the actions that a list with filters offers.
func (p *pages) bulkChoice(r *web.Request, f *filters) *bulkChoice {
	c := &bulkChoice{Path: p.base + "/vehicles/bulk", Kept: make(map[string]string), All: "All vehicles"}
	if f.All != "" {
		c.All = "All of these filters"
	}
	for _, field := range f.Fields {
		if field.Value != "" && field.Name != "sort" {
			c.Kept[field.Name] = field.Value
		}
	}
	for _, a := range bulkActions {
		if !a.admin || r.Admin() {
			c.Options = append(c.Options, web.Option{Value: a.name, Label: a.label})
		}
	}
	return c
}

// selected returns the vehicles that a request selects: those named, or all of the filters.
func (p *pages) selected(ctx context.Context, r *web.Request) ([]fleet.Vehicle, error) {
	if !r.URL.Query().Has("all") {
		ids := slices.Compact(slices.Sorted(slices.Values(r.URL.Query()["vehicle"])))
		docs, err := p.Fleet.VehiclesByID(ctx, p.DB, r.OrganizationID, ids[:min(len(ids), perPage)])
		if err != nil {
			return nil, err
		}
		list, err := decode[fleet.Vehicle](docs)
		slices.SortFunc(list, func(a, b fleet.Vehicle) int { return strings.Compare(a.Code, b.Code) })
		return list, err
	}
	subs, choice, err := p.subaccountChoices(ctx, r)
	if err != nil {
		return nil, err
	}
	f, err := p.vehicleFilters(ctx, r, subs, choice)
	if err != nil {
		return nil, err
	}
	q := vehicleQuery(&f)
	if !f.ok() {
		return nil, nil
	}
	// Without a filter that is gone, the selection would be larger.
	for _, name := range []string{"state", "type", "zone", "subaccount"} {
		if field := f.Fields.Field(name); r.URL.Query().Get(name) != "" && (field == nil || field.Value == "") {
			return nil, problem.New(problem.Precondition, "the filter %s of this selection does not exist any more; select the vehicles again", name)
		}
	}
	q.Sort, q.Limit = keyset.Sort{Field: "code"}, 100
	var all []fleet.Vehicle
	for {
		docs, next, err := p.Fleet.ListVehicles(ctx, p.DB, r.OrganizationID, q)
		if problem.Of(err) == problem.Invalid {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		list, err := decode[fleet.Vehicle](docs)
		if err != nil {
			return nil, err
		}
		if all = append(all, list...); next == nil {
			return all, nil
		}
		if len(all) >= fleet.MaxBulk {
			return nil, problem.New(problem.TooLarge, "at most %s vehicles can be changed at once, and these are more; narrow the filters", web.Number(fleet.MaxBulk))
		}
		q.After = next
	}
}

// changeVehicles confirms and carries out an action on the vehicles that the URL selects.
func (p *pages) changeVehicles(w http.ResponseWriter, r *web.Request) error {
	action, err := findBulkAction(r, r.URL.Query().Get("act"))
	if err != nil {
		return err
	}
	vehicles, err := p.selected(r.Context(), r)
	if err != nil {
		return err
	}
	back := p.base + "/vehicles"
	if len(vehicles) == 0 {
		return p.Redirect(w, back, web.Notice{Text: "Select vehicles first.", Bad: true})
	}
	fields, err := p.bulkFields(r.Context(), r, action, vehicles)
	if err != nil {
		return err
	}
	count := web.Count(len(vehicles), "%d vehicle", "%d vehicles")
	f := form{
		Intro: "Selected: " + vehicleCodes(vehicles, 12) + ".", Was: web.Fields{{Name: "selection", Value: selectionMark(vehicles)}},
		Label: strings.Replace(action.button, "%s", count, 1), Danger: action.danger, Cancel: back,
	}
	page := p.page(r, "/vehicles", action.label, nil)
	if r.Method != http.MethodPost {
		return p.showForm(w, r, page, fields, f)
	}
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	fields.Fill(values)
	value := values.Get(action.member)
	options := fields[0].Options
	switch {
	case values.Get("was.selection") != f.Was[0].Value:
		fields[0].Error = "The selection has changed: now it is " + count + ". Check it and send the form again."
	case !slices.ContainsFunc(options, func(o web.Option) bool { return o.Value == value }):
		fields[0].Error = fields[0].Label + " must be one of the list."
	default:
		return p.runBulk(w, r, action, value, vehicles)
	}
	return p.showForm(w, r, page, fields, f)
}

func vehicleIDs(vehicles []fleet.Vehicle) []string {
	ids := make([]string, len(vehicles))
	for i := range vehicles {
		ids[i] = vehicles[i].ID
	}
	return ids
}

// selectionMark differs between different selections.
func selectionMark(vehicles []fleet.Vehicle) string {
	ids := vehicleIDs(vehicles)
	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, " ")))
	return hex.EncodeToString(sum[:16])
}

// bulkFields returns the field of an action.
func (p *pages) bulkFields(ctx context.Context, r *web.Request, action *bulkAction, vehicles []fleet.Vehicle) (web.Fields, error) {
	subs, err := p.Fleet.Subaccounts(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return nil, err
	}
	// Only those of the vehicles' subaccounts.
	subs = slices.DeleteFunc(subs, func(s fleet.Subaccount) bool {
		return !slices.ContainsFunc(vehicles, func(v fleet.Vehicle) bool { return v.SubaccountID == s.ID })
	})
	switch action.member {
	case "plan":
		plans, err := p.Fleet.Plans(ctx, p.DB, r.OrganizationID)
		if err != nil {
			return nil, err
		}
		list := []web.Option{{Label: "Default of its type or subaccount"}}
		for _, plan := range plans {
			if i := slices.IndexFunc(subs, func(s fleet.Subaccount) bool { return s.ID == plan.SubaccountID }); i >= 0 {
				list = append(list, optionIn(subs, &subs[i], plan.ID, plan.Name))
			}
		}
		return web.Fields{{Name: "plan", Label: "Pricing plan", Type: "select", Options: list, Help: "Applies to new rides. A plan is for the vehicles of its subaccount."}}, nil
	case "type":
		return web.Fields{{Name: "type", Label: "Type", Type: "select", Options: typeOptions(subs), Help: "A type is for the vehicles of its subaccount."}}, nil
	}
	return web.Fields{{Name: "state", Label: "Reason", Type: "select", Options: options(action.events, "", func(e fleet.VehicleEvent) web.Option {
		return web.Option{Value: string(e), Label: eventLabel(e)}
	})}}, nil
}

// optionIn is the option of a record of a subaccount, with its name if there are several.
func optionIn(subs []fleet.Subaccount, of *fleet.Subaccount, id, name string) web.Option {
	if len(subs) > 1 {
		name = of.Name + ": " + name
	}
	return web.Option{Value: id, Label: name}
}

// vehicleCodes lists up to some vehicles by their codes.
func vehicleCodes(vehicles []fleet.Vehicle, most int) string {
	var codes []string
	for _, v := range vehicles[:min(len(vehicles), most)] {
		codes = append(codes, v.Code)
	}
	text := strings.Join(codes, ", ")
	if n := len(vehicles) - len(codes); n > 0 {
		text += " and " + web.Number(int64(n)) + " more"
	}
	return text
}

// bulkResult is the body of the page with the result of an action. Its template is "bulk".
type bulkResult struct {
	Done    string // "12 vehicles set out of service."
	Codes   []namedLink
	More    int // vehicles without a link
	Refused []refusal
	Undo    *bulkUndo
	Path    string // of the list
}

// refusal is a reason for which vehicles were left as they are.
type refusal struct {
	Why   string
	Count string
	Codes []namedLink
	More  int
}

// bulkUndo is the form that restores the vehicles of an action.
type bulkUndo struct {
	Path   string
	Act    string
	Value  string
	Former []formerValue
	Count  string // of vehicles, if the state table allows less than all
}

// formerValue is a value that vehicles had before, with their ids.
type formerValue struct {
	Value string
	At    int64 // of the change, in Unix milliseconds, if the value is a state
	IDs   string
}

// resultCodes bounds the vehicles that a result names.
const resultCodes = 60

// runBulk carries out an action and shows the result.
func (p *pages) runBulk(w http.ResponseWriter, r *web.Request, action *bulkAction, value string, vehicles []fleet.Vehicle) error {
	outcomes, err := p.Fleet.UpdateVehicles(r.Context(), r.OrganizationID, vehicleIDs(vehicles), by(r), func(v *fleet.Vehicle) ([]fleet.VehicleChange, error) {
		return action.changes(v, value)
	})
	if err != nil {
		return err
	}
	b := p.bulkResult(outcomes, action.done)
	b.Undo = p.undoOf(action, value, outcomes)
	return p.Render(w, r, "bulk", p.page(r, "/vehicles", action.label, b))
}

// changes returns the changes of a vehicle by an action, or why there is none.
func (a *bulkAction) changes(v *fleet.Vehicle, value string) ([]fleet.VehicleChange, error) {
	if former := a.valueOf(v); a.member != "state" && former == value {
		return nil, problem.New(problem.Conflict, "It has this %s already", a.member)
	}
	switch a.member {
	case "plan":
		return []fleet.VehicleChange{{PricingPlanID: optional.Of(fleet.NullString(value))}}, nil
	case "type":
		return []fleet.VehicleChange{{VehicleTypeID: optional.Of(value)}}, nil
	}
	state := strings.ToLower(web.BadgeFor(stateBadges, v.State).Text)
	event := fleet.VehicleEvent(value)
	switch {
	case v.State == a.to:
		return nil, problem.New(problem.Conflict, "It is %s already", state)
	case v.CurrentRideID != "":
		return nil, problem.New(problem.Conflict, "It has an open ride")
	case !slices.Contains(v.State.Events(a.to), event):
		return nil, problem.New(problem.Conflict, "It is %s, which this reason does not change", state)
	}
	return []fleet.VehicleChange{stateChange(a.to, event)}, nil
}

// valueOf returns the value of a vehicle that an action sets.
func (a *bulkAction) valueOf(v *fleet.Vehicle) string {
	switch a.member {
	case "plan":
		return string(v.PricingPlanID)
	case "type":
		return v.VehicleTypeID
	}
	return string(v.State)
}

func stateChange(to fleet.VehicleState, event fleet.VehicleEvent) fleet.VehicleChange {
	c := fleet.VehicleChange{State: optional.Of(to)}
	if event != "" {
		c.Event = optional.Of(event)
	}
	return c
}

// bulkResult describes outcomes. done follows the number of vehicles.
func (p *pages) bulkResult(outcomes []fleet.VehicleOutcome, done string) bulkResult {
	b := bulkResult{Path: p.base + "/vehicles"}
	n := 0
	byReason := make(map[string]*refusal)
	count := make(map[string]int)
	for i := range outcomes {
		o := &outcomes[i]
		link := namedLink{p.base + "/vehicles/" + o.ID, cmp.Or(o.Before.Code, o.ID)}
		if o.Err == nil {
			if n++; n <= resultCodes {
				b.Codes = append(b.Codes, link)
			}
			continue
		}
		why := reasonOf(o)
		if byReason[why] == nil {
			byReason[why] = &refusal{Why: why}
		}
		f := byReason[why]
		if count[why]++; count[why] <= resultCodes {
			f.Codes = append(f.Codes, link)
		}
	}
	b.Done, b.More = web.Count(n, "%d vehicle ", "%d vehicles ")+done+".", n-len(b.Codes)
	for why, f := range byReason {
		f.Count, f.More = web.Count(count[why], "%d vehicle", "%d vehicles"), count[why]-len(f.Codes)
		b.Refused = append(b.Refused, *f)
	}
	slices.SortFunc(b.Refused, func(x, y refusal) int {
		return cmp.Or(cmp.Compare(count[y.Why], count[x.Why]), strings.Compare(x.Why, y.Why))
	})
	return b
}

// reasonOf says why a vehicle was left as it is.
func reasonOf(o *fleet.VehicleOutcome) string {
	e, ok := errors.AsType[*problem.Error](o.Err)
	switch {
	case !ok:
		return "The server failed before it was changed. Try again"
	case e.Kind == problem.NotFound:
		return "It was deleted"
	case e.Code == "vehicle_low_battery":
		return "Its battery is too low"
	case e.Code == "vehicle_in_use":
		return "It has an open ride"
	case e.Kind == problem.Invalid && len(e.Issues) > 0:
		if e.Issues[0].Code == "not_found" {
			return "It belongs to another subaccount"
		}
		return "Its " + e.Issues[0].Path + " " + e.Issues[0].Message
	case e.Code == "invalid_transition" && e.Details["to"] == string(fleet.Available):
		if o.Before.Location == nil {
			return "It has no location"
		}
		return "It has an open task that takes it out of service"
	}
	return e.Message
}

// undoOf returns the form that restores the vehicles that an action has changed, as far as their
// states allow; nil if it restores none.
func (p *pages) undoOf(action *bulkAction, value string, outcomes []fleet.VehicleOutcome) *bulkUndo {
	ids := make(map[formerValue][]string)
	changed, n := 0, 0
	for i := range outcomes {
		o := &outcomes[i]
		if o.Err != nil {
			continue
		}
		changed++
		if action.member == "state" && len(restore(action.to, o.Before.State, fleet.VehicleEvent(value))) == 0 {
			continue
		}
		n++
		former := formerValue{Value: action.valueOf(&o.Before)}
		if action.member == "state" {
			former.At = stateTime(&o.After)
		}
		ids[former] = append(ids[former], o.ID)
	}
	if n == 0 {
		return nil
	}
	u := &bulkUndo{Path: p.base + "/vehicles/bulk/undo", Act: action.name, Value: value}
	for former, list := range ids {
		former.IDs = strings.Join(list, " ")
		u.Former = append(u.Former, former)
	}
	slices.SortFunc(u.Former, func(x, y formerValue) int {
		return cmp.Or(strings.Compare(x.Value, y.Value), cmp.Compare(x.At, y.At))
	})
	if n < changed {
		u.Count = web.Count(n, "%d vehicle", "%d vehicles")
	}
	return u
}

// stateTime is the time of the last state change, in Unix milliseconds.
func stateTime(v *fleet.Vehicle) int64 { return v.StateChangedAt.Std().UnixMilli() }

// restore returns the changes by request that lead from a state back to the former one; none if
// the state table has no way. A transition has the same reason, if that is valid.
func restore(from, former fleet.VehicleState, event fleet.VehicleEvent) []fleet.VehicleChange {
	step := func(from, to fleet.VehicleState) (fleet.VehicleChange, bool) {
		events := from.Events(to)
		if len(events) == 0 {
			return fleet.VehicleChange{}, false
		}
		if slices.Contains(events, event) {
			return stateChange(to, event), true
		}
		return stateChange(to, events[0]), true
	}
	if direct, ok := step(from, former); ok {
		return []fleet.VehicleChange{direct}
	}
	first, ok := step(from, fleet.Available)
	if !ok || former != fleet.NonOperational {
		return nil
	}
	second, _ := step(fleet.Available, former)
	return []fleet.VehicleChange{first, second}
}

// undoBulk restores the vehicles of an action that nobody has changed since.
func (p *pages) undoBulk(w http.ResponseWriter, r *web.Request) error {
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	action, err := findBulkAction(r, values.Get("act"))
	if err != nil {
		return err
	}
	former, ids := formerValues(values)
	set := values.Get("value")
	if action.member == "state" {
		set = string(action.to)
	}
	outcomes, err := p.Fleet.UpdateVehicles(r.Context(), r.OrganizationID, ids, by(r), func(v *fleet.Vehicle) ([]fleet.VehicleChange, error) {
		was := former[v.ID]
		if action.valueOf(v) != set || action.member == "state" && stateTime(v) != was.At {
			return nil, problem.New(problem.Conflict, "It has changed since")
		}
		if action.member != "state" {
			return action.changes(v, was.Value)
		}
		list := restore(action.to, fleet.VehicleState(was.Value), fleet.VehicleEvent(values.Get("value")))
		if len(list) == 0 {
			return nil, problem.New(problem.Conflict, "Its former state can't be restored")
		}
		return list, nil
	})
	if err != nil {
		return err
	}
	return p.Render(w, r, "bulk", p.page(r, "/vehicles", "Undo", p.bulkResult(outcomes, "restored")))
}

// formerValues reads the values of [bulkUndo], by vehicle.
func formerValues(values url.Values) (former map[string]formerValue, ids []string) {
	former = make(map[string]formerValue)
	for name, list := range values {
		name, ok := strings.CutPrefix(name, "former.")
		if !ok {
			continue
		}
		value, at, _ := strings.Cut(name, ".")
		was := formerValue{Value: value}
		was.At, _ = strconv.ParseInt(at, 10, 64) // 0 is no time of a change
		for id := range strings.FieldsSeq(strings.Join(list, " ")) {
			if _, ok := former[id]; !ok {
				ids = append(ids, id)
			}
			former[id] = was
		}
	}
	return former, ids
}
