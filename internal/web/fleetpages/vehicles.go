package fleetpages

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// vehicleRow is a vehicle in a list.
type vehicleRow struct {
	ID         string
	Path       string
	Code       string
	Type       string
	Subaccount string
	State      web.Badge
	Level      level
	Reports    web.Time
}

// level is a battery or fuel level. Its template is "battery".
type level struct {
	Known      bool
	Motor      bool // has a level
	Percent    int64
	Low, Ready int64 // limits: below Low no ride starts; from Ready it is sufficient
	What       string
}

// levelOf is a vehicle's battery level, or else its fuel level.
func levelOf(v *fleet.Vehicle, s *fleet.Settings) level {
	l := level{Motor: v.PropulsionType != "human", Low: s.LowBatteryPercent, Ready: s.BatteryReadyPercent, What: "Battery"}
	at := v.BatteryPercent
	if at == nil && v.FuelPercent != nil {
		at, l.What = v.FuelPercent, "Fuel"
	}
	if at != nil {
		l.Known, l.Percent = true, *at
	}
	return l
}

// vehicleList is the body of the list of vehicles.
type vehicleList struct {
	Filters     filters
	Topic       string
	Count       string
	Subaccounts bool // there are several subaccounts
	Rows        []vehicleRow
	Empty       web.Empty
	Pager       web.Pager
	Bulk        *bulkChoice
	New         string // link to create one; empty without permission
}

var vehicleOrders = []web.Option{
	{Value: "", Label: "Newest first"}, {Value: "code", Label: "Code"}, {Value: "battery_percent", Label: "Emptiest battery"},
	{Value: "last_reported_at", Label: "Least recently reported"}, {Value: "-last_reported_at", Label: "Recently reported"}, {Value: "-updated_at", Label: "Recently updated"},
}

// vehicleFilters are the filters of the list of vehicles.
func (p *pages) vehicleFilters(ctx context.Context, r *web.Request, subs []fleet.Subaccount, choice web.Fields) (filters, error) {
	zones, err := p.zoneOptions(ctx, r)
	if err != nil {
		return filters{}, err
	}
	f := filters{Fields: append(web.Fields{
		{Name: "code", Label: "Code", Type: "search", Placeholder: "B-0417"},
		{Name: "state", Label: "State", Type: "select", Options: options(mapStates[:], "All", func(s fleet.VehicleState) web.Option {
			return web.Option{Value: string(s), Label: web.BadgeFor(stateBadges, s).Text}
		})},
		{Name: "type", Label: "Type", Type: "select", Options: append([]web.Option{{Label: "All"}}, typeOptions(subs)...)},
		{Name: "zone", Label: "In zone", Type: "select", Options: zones},
		{Name: "battery", Label: "Maximum battery (%)", Type: "text", Mode: "numeric", Placeholder: "%"},
		{Name: "sort", Label: "Sort by", Type: "select", Options: vehicleOrders},
	}, choice...)}
	f.parse(r)
	return f, nil
}

// vehicles lists vehicles.
func (p *pages) vehicles(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	subs, choice, err := p.subaccountChoices(ctx, r)
	if err != nil {
		return err
	}
	f, err := p.vehicleFilters(ctx, r, subs, choice)
	if err != nil {
		return err
	}
	q := vehicleQuery(&f)
	q.After, q.Limit = after(r), perPage
	var docs []fleet.Record
	var next *keyset.Cursor
	if f.ok() {
		docs, next, err = p.Fleet.ListVehicles(ctx, p.DB, r.OrganizationID, q)
		if problem.Of(err) == problem.Invalid && q.Code != nil { // longer than any code
			docs, err = nil, nil
		}
		if err != nil {
			return err
		}
	}
	vehicles, err := decode[fleet.Vehicle](docs)
	if err != nil {
		return err
	}
	list := vehicleList{Filters: f, Bulk: p.bulkChoice(r, &f), Topic: p.topic("vehicle"), Count: resultCount(len(vehicles), q.After == nil, next, "%d vehicle", "%d vehicles"), Subaccounts: len(subs) > 1}
	settings, _, err := p.Fleet.Settings(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	for i := range vehicles {
		v := &vehicles[i]
		row := vehicleRow{
			ID: v.ID, Path: p.base + "/vehicles/" + v.ID, Code: v.Code, State: web.BadgeFor(stateBadges, v.State), Level: levelOf(v, &settings), Reports: r.Time(v.LastReportedAt.Std()),
		}
		if sub, t := typeOf(subs, v.VehicleTypeID); t != nil {
			row.Subaccount, row.Type = sub.Name, t.Name
		}
		list.Rows = append(list.Rows, row)
	}
	if list.Pager, err = pager(r, next); err != nil {
		return err
	}
	if r.Admin() {
		list.New = p.base + "/vehicles/new"
	}
	list.Empty = web.Empty{Text: "No vehicles match these filters.", Path: p.base + "/vehicles", Label: "All vehicles"}
	if f.All == "" {
		list.Empty = web.Empty{Text: "No vehicles yet. Create one here, or import many:", Path: list.New, Label: "New vehicle",
			Command: p.command("POST", "/vehicles", "", "Content-Type: text/csv") + " --data-binary @vehicles.csv"}
	}
	page := p.listPage(r, "/vehicles", "Vehicles", list)
	page.Scripts = []string{"select.js"}
	return p.Render(w, r, "vehicles", page)
}

// vehicleQuery is the query of [pages.vehicleFilters].
func vehicleQuery(f *filters) fleet.VehicleQuery {
	q := fleet.VehicleQuery{Code: f.list("code"), VehicleTypeID: f.list("type"), ZoneID: f.list("zone"), Subaccount: f.list("subaccount"), Sort: f.sort()}
	if state := f.get("state"); state != "" {
		q.State = []fleet.VehicleState{fleet.VehicleState(state)}
	}
	q.BatteryPercent.High = f.integer("battery")
	return q
}

// typeOf returns a vehicle type and its subaccount, nil if there is none.
func typeOf(subs []fleet.Subaccount, id string) (*fleet.Subaccount, *fleet.VehicleType) {
	for i := range subs {
		for j := range subs[i].VehicleTypes {
			if subs[i].VehicleTypes[j].ID == id {
				return &subs[i], &subs[i].VehicleTypes[j]
			}
		}
	}
	return nil, nil
}

// typeOptions lists the vehicle types, with their subaccounts if there are several.
func typeOptions(subs []fleet.Subaccount) []web.Option {
	var list []web.Option
	for i := range subs {
		for _, t := range subs[i].VehicleTypes {
			list = append(list, optionIn(subs, &subs[i], t.ID, t.Name))
		}
	}
	return list
}

// zoneOptions lists zones up to the limit of a select.
func (p *pages) zoneOptions(ctx context.Context, r *web.Request) ([]web.Option, error) {
	docs, _, err := p.Fleet.ListZones(ctx, p.DB, r.OrganizationID, fleet.ZoneQuery{Sort: keyset.Sort{Field: "name"}, Limit: 100})
	if err != nil {
		return nil, err
	}
	zones, err := decode[struct{ ID, Name string }](docs)
	return options(zones, "Anywhere", func(z struct{ ID, Name string }) web.Option { return web.Option{Value: z.ID, Label: z.Name} }), err
}

// vehiclePage is the body of the page of a vehicle.
type vehiclePage struct {
	*fleet.Vehicle
	Topic      string
	Path       string
	Chip       web.Badge
	Since      web.Time
	Why        string // reason of the state
	Type       string
	Subaccount namedLink
	Plan       namedLink
	Level      level
	Fuel       *level
	Range      string
	Odo        string
	Reports    web.Time
	Ride       string // link to the open ride
	Map        *smallMap
	Tasks      taskTable
	NewTask    string // link
	AllTasks   string // link
	Rides      rideTable
	All        string            // link to all rides
	Alerts     []vehicleAlertRow // raised
	Events     []historyEntry
	Earlier    string // link to earlier changes
	Change     bool   // the state can be changed
	Nowhere    web.Empty
}

// changesShown is the number of state changes on a page.
const changesShown = 8

// vehicle shows a vehicle.
func (p *pages) vehicle(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	v, err := p.Fleet.Vehicle(ctx, p.DB, r.OrganizationID, r.PathValue("id"))
	if problem.Of(err) == problem.NotFound {
		if code, _, gone := p.Fleet.DeletedVehicle(ctx, p.DB, r.OrganizationID, r.PathValue("id")); gone == nil {
			return problem.New(problem.Conflict, "The vehicle %s was deleted. Its rides remain.", code)
		}
	}
	if err != nil {
		return err
	}
	settings, _, err := p.Fleet.Settings(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	b := vehiclePage{
		Vehicle: &v, Topic: p.topic("vehicle", v.ID) + " " + p.topic(fleet.AlertRecordKind), Path: p.base + "/vehicles/" + v.ID, Chip: web.BadgeFor(stateBadges, v.State), Since: r.Time(v.StateChangedAt.Std()), Why: eventLabel(v.LastEvent),
		Level: levelOf(&v, &settings), Reports: r.Time(v.LastReportedAt.Std()), All: p.base + "/rides?vehicle=" + v.ID,
		Nowhere: web.Empty{Text: "Last location unknown."},
	}
	if v.BatteryPercent != nil && v.FuelPercent != nil {
		fuel := b.Level
		fuel.What, fuel.Percent = "Fuel", *v.FuelPercent
		b.Fuel = &fuel
	}
	if v.CurrentRangeMeters != nil {
		b.Range = distance(*v.CurrentRangeMeters)
	}
	if v.OdometerMeters != nil {
		b.Odo = distance(*v.OdometerMeters)
	}
	if err := p.vehicleLinks(ctx, r, &b); err != nil {
		return err
	}
	if v.CurrentRideID != "" {
		b.Ride = p.base + "/rides/" + string(v.CurrentRideID)
	} else if next := v.State.Next(); len(next) > 0 {
		b.Change = true
	}
	if b.Map, err = p.smallMap(ctx, r, v.SubaccountID, "Last location of the vehicle.", spot{v.Location, "at", v.Code}); err != nil {
		return err
	}
	if err := p.vehicleHistory(ctx, r, &b); err != nil {
		return err
	}
	raised, err := p.Fleet.RaisedAlerts(ctx, p.DB, r.OrganizationID, v.ID)
	if err != nil {
		return err
	}
	b.Alerts = p.alertRows(r, raised)
	if err := p.markAlertsRead(r, b.Path); err != nil {
		return err
	}
	page := p.page(r, "/vehicles", v.Code, b)
	page.Scripts = []string{"ticking.js"}
	return p.Render(w, r, "vehicle", page)
}

// vehicleLinks sets the subaccount, type and plan of a vehicle.
func (p *pages) vehicleLinks(ctx context.Context, r *web.Request, b *vehiclePage) error {
	sub, err := p.Fleet.Subaccount(ctx, p.DB, r.OrganizationID, b.SubaccountID)
	if err != nil {
		return err
	}
	b.Subaccount = namedLink{p.base + "/subaccounts/" + sub.ID, sub.Name}
	if _, t := typeOf([]fleet.Subaccount{sub}, b.VehicleTypeID); t != nil {
		b.Type = t.Name
	}
	if b.PricingPlanID != "" {
		plan, err := p.Fleet.Plan(ctx, p.DB, r.OrganizationID, string(b.PricingPlanID))
		if err != nil {
			return err
		}
		b.Plan = namedLink{p.base + "/pricing/" + plan.ID, plan.Name}
	}
	return nil
}

// vehicleHistory sets the latest rides, tasks and state changes of a vehicle.
func (p *pages) vehicleHistory(ctx context.Context, r *web.Request, b *vehiclePage) error {
	docs, _, err := p.Fleet.ListRides(ctx, p.DB, r.OrganizationID, fleet.RideQuery{VehicleID: []string{b.ID}, Limit: 10})
	if err != nil {
		return err
	}
	rides, err := decode[fleet.Ride](docs)
	if err != nil {
		return err
	}
	if b.Rides, err = p.rideTable(ctx, r, rides); err != nil {
		return err
	}
	b.Rides.Vehicles = false
	people, err := p.people(ctx, r)
	if err != nil {
		return err
	}
	tasks, _, err := p.Fleet.ListTasks(ctx, p.DB, r.OrganizationID, fleet.TaskQuery{VehicleID: []string{b.ID}, Limit: 5})
	if err != nil {
		return err
	}
	if b.Tasks, err = p.taskTable(ctx, r, tasks, false, people); err != nil {
		return err
	}
	b.NewTask, b.AllTasks = p.base+"/tasks/new?vehicle="+b.ID, p.base+"/tasks?state=all&vehicle="+b.Code
	changes, err := p.Fleet.VehicleChanges(ctx, p.DB, r.OrganizationID, b.ID, r.URL.Query().Get("before"), changesShown)
	if err != nil {
		return err
	}
	for _, c := range changes {
		h := historyEntry{At: r.Time(c.At.Std()), What: web.BadgeFor(stateBadges, c.State).Text, By: actor(r, c.Actor), Note: strings.ToLower(eventLabel(c.Event))}
		if c.BatteryPercent != nil {
			h.Note += ", battery at " + web.Number(*c.BatteryPercent) + "%"
		}
		b.Events = append(b.Events, h)
	}
	if len(changes) == changesShown {
		b.Earlier = b.Path + "?before=" + changes[changesShown-1].ID
	}
	return nil
}

// vehicleChoices returns the subaccounts and plans that a vehicle may have, those of all subaccounts
// for an empty id.
func (p *pages) vehicleChoices(ctx context.Context, r *web.Request, subaccountID string) ([]fleet.Subaccount, []fleet.Plan, error) {
	subs, err := p.Fleet.Subaccounts(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return nil, nil, err
	}
	plans, err := p.Fleet.Plans(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return nil, nil, err
	}
	if subaccountID != "" {
		subs = slices.DeleteFunc(subs, func(s fleet.Subaccount) bool { return s.ID != subaccountID })
		plans = slices.DeleteFunc(plans, func(plan fleet.Plan) bool { return plan.SubaccountID != subaccountID })
	}
	return subs, plans, nil
}

// vehicleFields are the editable fields of a vehicle. One without an id is new.
func vehicleFields(v *fleet.Vehicle, subs []fleet.Subaccount, plans []fleet.Plan) (web.Fields, []group) {
	fields := web.Fields{
		{Name: "code", Label: "Code", Type: "text", Most: 32, Value: v.Code, Help: "The code on the vehicle: letters, digits and hyphens."},
		{Name: "vehicle_type_id", Label: "Type", Type: "select", Value: v.VehicleTypeID, Options: typeOptions(subs), Help: "Create vehicle types on the page of their subaccount."},
		{Name: "pricing_plan_id", Label: "Pricing plan", Type: "select", Optional: true, Value: string(v.PricingPlanID), Options: options(plans, "Default of its type or subaccount", func(plan fleet.Plan) web.Option {
			return web.Option{Value: plan.ID, Label: plan.Name}
		})},
	}
	if v.ID == "" {
		fields = append(fields, web.Field{Name: "state", Label: "State", Type: "select", Value: "available", Options: []web.Option{
			{Value: "available", Label: "Available"}, {Value: "removed", Label: "Removed"},
		}})
	}
	head := len(fields)
	fields = append(fields, positionFields("location", v.Location, "")...)
	fields = append(fields,
		web.Field{Name: "battery_percent", Label: "Battery (%)", Type: "text", Mode: "numeric", Optional: true, Value: optionalInteger(v.BatteryPercent)},
		web.Field{Name: "odometer_meters", Label: "Odometer (meters)", Type: "text", Mode: "numeric", Optional: true, Value: optionalInteger(v.OdometerMeters)},
		web.Field{Name: "device_id", Label: "Device id", Type: "text", Optional: true, Most: 128, Value: string(v.DeviceID)},
		web.Field{Name: "license_plate", Label: "License plate", Type: "text", Optional: true, Most: 32, Value: string(v.LicensePlate)},
		web.Field{Name: "vin", Label: "VIN", Type: "text", Optional: true, Most: 64, Value: string(v.VIN)},
		externalField(v.ExternalID), metadataField(v.Metadata))
	return fields, layout(fields, part{"", "", head, false}, part{"Location and battery", "", 4, true}, part{"Identifiers", "", 4, true}, part{"", "", 0, false})
}

// newVehicle creates a vehicle.
func (p *pages) newVehicle(w http.ResponseWriter, r *web.Request) error {
	subs, plans, err := p.vehicleChoices(r.Context(), r, "")
	if err != nil {
		return err
	}
	fields, groups := vehicleFields(new(fleet.Vehicle), subs, plans)
	if r.Method == http.MethodPost {
		values, ok := p.Form(w, r)
		if !ok {
			return nil
		}
		t := &formInput{Values: values}
		n := fleet.NewVehicle{
			Code: t.text("code"), VehicleTypeID: t.text("vehicle_type_id"), PricingPlanID: fleet.NullString(t.text("pricing_plan_id")), State: fleet.VehicleState(t.text("state")),
			Location: t.position("location"), BatteryPercent: t.optional("battery_percent"), OdometerMeters: t.optional("odometer_meters"),
			DeviceID: fleet.NullString(t.text("device_id")), LicensePlate: fleet.NullString(t.text("license_plate")), VIN: fleet.NullString(t.text("vin")), ExternalID: fleet.NullString(t.text("external_id")),
			Metadata: t.metadata(nil),
		}
		if sub, _ := typeOf(subs, n.VehicleTypeID); sub != nil {
			n.SubaccountID = sub.ID
		} else {
			t.v.AddCode("required", "vehicle_type_id", "must be an existing vehicle type")
		}
		var v fleet.Vehicle
		made, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) (err error) {
			v, err = p.Fleet.CreateVehicleTx(ctx, tx, r.OrganizationID, n, by(r))
			return err
		})
		if err != nil {
			return err
		}
		if made {
			return p.Redirect(w, p.base+"/vehicles/"+v.ID, web.Notice{Text: v.Code + " created."})
		}
	}
	return p.showForm(w, r, p.page(r, "/vehicles", "New vehicle", nil), fields, form{Groups: groups, Label: "Create vehicle", Cancel: p.base + "/vehicles"})
}

// editVehicle updates a vehicle's fields.
func (p *pages) editVehicle(w http.ResponseWriter, r *web.Request) error {
	v, err := p.Fleet.Vehicle(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	back := p.base + "/vehicles/" + v.ID
	subs, plans, err := p.vehicleChoices(r.Context(), r, v.SubaccountID)
	if err != nil {
		return err
	}
	fields, groups := vehicleFields(&v, subs, plans)
	reported := []string{"location.lat", "location.lng", "battery_percent", "odometer_meters"}
	var was web.Fields
	for _, name := range reported {
		was = append(was, *fields.Field(name))
	}
	stored := func(v *fleet.Vehicle) web.Fields {
		fields, _ := vehicleFields(v, subs, plans)
		return slices.DeleteFunc(fields, func(f web.Field) bool { return slices.Contains(reported, f.Name) })
	}
	t := new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		for i := range was {
			was[i].Value = t.text("was." + was[i].Name)
		}
		c := fleet.VehicleChange{
			Code: optional.Of(t.text("code")), VehicleTypeID: optional.Of(t.text("vehicle_type_id")), PricingPlanID: optional.Of(fleet.NullString(t.text("pricing_plan_id"))),
			DeviceID: optional.Of(fleet.NullString(t.text("device_id"))), LicensePlate: optional.Of(fleet.NullString(t.text("license_plate"))), VIN: optional.Of(fleet.NullString(t.text("vin"))),
			ExternalID: optional.Of(fleet.NullString(t.text("external_id"))),
		}
		// Telemetry is written only if the user changed it: the vehicle may have
		// moved since the form was shown.
		if t.changed("location.lat", "location.lng") {
			c.Location = orNull(t.position("location"))
		}
		if t.changed("battery_percent") {
			c.BatteryPercent = orNull(t.optional("battery_percent"))
		}
		if t.changed("odometer_meters") {
			c.OdometerMeters = orNull(t.optional("odometer_meters"))
		}
		saved, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) error {
			now, err := p.Fleet.LockVehicleTx(ctx, tx, r.OrganizationID, v.ID)
			if err != nil {
				return err
			}
			if c.Metadata, err = t.changedMetadata(now.Metadata); err != nil {
				return err
			}
			after, err := p.Fleet.UpdateVehicleTx(ctx, tx, r.OrganizationID, now, c, by(r))
			if err != nil {
				return err
			}
			return t.checkStored(stored(&now), stored(&after))
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Vehicle saved."})
		}
	}
	return p.showForm(w, r, p.page(r, "/vehicles", "Edit "+v.Code, nil), fields, form{Groups: groups, Was: append(was, t.openedWith(stored(&v))...), Label: "Save", Cancel: back})
}

// orNull is a field that nil clears.
func orNull[T any](value *T) optional.Value[T] {
	if value == nil {
		return optional.Value[T]{Set: true, Null: true}
	}
	return optional.Of(*value)
}

// vehicleTransitions are the transitions allowed by a state, one option per event.
func vehicleTransitions(s fleet.VehicleState) []web.Option {
	var list []web.Option
	for _, next := range s.Next() {
		for _, event := range s.Events(next) {
			list = append(list, web.Option{Value: string(next) + "/" + string(event), Label: web.BadgeFor(stateBadges, next).Text + ": " + strings.ToLower(eventLabel(event))})
		}
	}
	return list
}

// setVehicleState changes a vehicle's state.
func (p *pages) setVehicleState(w http.ResponseWriter, r *web.Request) error {
	v, err := p.Fleet.Vehicle(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	from, err := p.origin(r, p.base+"/vehicles/"+v.ID)
	if err != nil {
		return err
	}
	moves := vehicleTransitions(v.State)
	if len(moves) == 0 || v.CurrentRideID != "" {
		return problem.New(problem.Conflict, "%s is %s. Its state changes with its ride.", v.Code, strings.ToLower(web.BadgeFor(stateBadges, v.State).Text))
	}
	fields := web.Fields{{Name: "move", Label: "New state", Type: "select", Options: moves, Value: moves[0].Value}}
	if r.Method == http.MethodPost {
		values, ok := p.Form(w, r)
		if !ok {
			return nil
		}
		to, event, _ := strings.Cut(values.Get("move"), "/")
		saved, err := p.change(r, fields, &formInput{Values: values}, func(ctx context.Context, tx *db.Tx) error {
			now, err := p.Fleet.LockVehicleTx(ctx, tx, r.OrganizationID, v.ID)
			if err == nil {
				_, err = p.Fleet.UpdateVehicleTx(ctx, tx, r.OrganizationID, now, fleet.VehicleChange{
					State: optional.Of(fleet.VehicleState(to)), Event: optional.Of(fleet.VehicleEvent(event)),
				}, by(r))
			}
			return err
		})
		if err != nil {
			return err
		}
		if saved {
			state := strings.ToLower(web.BadgeFor(stateBadges, fleet.VehicleState(to)).Text)
			return p.finish(w, r, from, v.Code+" is "+state+".", "Set vehicle "+v.Code+" to "+state+": "+strings.ToLower(eventLabel(fleet.VehicleEvent(event)))+".")
		}
	}
	return p.showForm(w, r, p.frame(r, from, "/vehicles", "Change state of "+v.Code), fields, form{
		Intro: "Current state: " + strings.ToLower(web.BadgeFor(stateBadges, v.State).Text) + ".", Label: "Change state", Cancel: from.path,
	})
}

// deleteVehicle deletes a vehicle.
func (p *pages) deleteVehicle(w http.ResponseWriter, r *web.Request) error {
	v, err := p.Fleet.Vehicle(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	yes, err := p.confirmed(w, r, p.page(r, "/vehicles", "Delete "+v.Code, nil), web.Confirm{
		Text: "This deletes the vehicle. Its rides remain. This can't be undone.", Type: v.Code, Label: "Delete vehicle", Cancel: p.base + "/vehicles/" + v.ID,
	})
	if err != nil || !yes {
		return err
	}
	err = p.write(r, func(ctx context.Context, tx *db.Tx) error {
		return p.Fleet.DeleteVehicleTx(ctx, tx, r.OrganizationID, v.ID, by(r))
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, p.base+"/vehicles", web.Notice{Text: v.Code + " was deleted."})
}
