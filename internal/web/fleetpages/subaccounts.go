package fleetpages

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// subaccountList is the body of the list of subaccounts.
type subaccountList struct {
	Rows []subaccountRow
	New  string
}

// subaccountRow is a subaccount in the list.
type subaccountRow struct {
	*fleet.Subaccount
	Path   string
	Status web.Badge
	Plan   namedLink
	Types  int
	Feed   web.Badge
}

func subaccountBadge(status string) web.Badge {
	if status == "active" {
		return web.Badge{Text: "Active", Tone: web.Good, Icon: "check"}
	}
	return web.Badge{Text: "Archived"}
}

func feedBadge(on bool) web.Badge {
	if on {
		return web.Badge{Text: "Public", Tone: web.Good, Icon: "eye"}
	}
	return web.Badge{Text: "Off"}
}

// subaccounts lists subaccounts.
func (p *pages) subaccounts(w http.ResponseWriter, r *web.Request) error {
	subs, err := p.Fleet.Subaccounts(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	plans, err := p.Fleet.Plans(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	var list subaccountList
	for i := range subs {
		s := &subs[i]
		list.Rows = append(list.Rows, subaccountRow{s, p.base + "/subaccounts/" + s.ID, subaccountBadge(s.Status), p.planLinkIn(plans, s.DefaultPricingPlanID), len(s.VehicleTypes), feedBadge(s.GBFS.Enabled)})
	}
	if r.Admin() {
		list.New = p.base + "/subaccounts/new"
	}
	return p.Render(w, r, "subaccounts", p.page(r, "/subaccounts", "Subaccounts", list))
}

// planLinkIn links to a plan by name.
func (p *pages) planLinkIn(plans []fleet.Plan, id fleet.NullString) namedLink {
	for _, plan := range plans {
		if plan.ID == string(id) {
			return namedLink{p.base + "/pricing/" + plan.ID, plan.Name}
		}
	}
	return namedLink{Name: string(id)}
}

// subaccountPage is the body of the page of a subaccount.
type subaccountPage struct {
	*fleet.Subaccount
	Path      string
	Chip      web.Badge
	Plan      namedLink
	Types     []typeRow
	Rules     []string
	Open      bool // without rules and zones, rides start and end anywhere
	AlertRows []alertRow
	Agencies  []agencyRow
	Data      web.Badge // for agencies
	DataURL   string    // empty: disabled
	Feed      string    // URL of the public feed; empty: none
	Shown     web.Badge
	Edit      bool
	Audit     []auditRow
}

// typeRow is a vehicle type.
type typeRow struct {
	*fleet.VehicleType
	Path  string
	Form  string
	Range string
	Plan  namedLink
	Rules string // requirements for riders
}

// alertRow is an alert for riders.
type alertRow struct {
	*fleet.Alert
	Path     string
	From, To web.Time
}

// agencyRow is an agency that may read the data.
type agencyRow struct {
	*fleet.MDSAgency
	Path string
}

// subaccount shows a subaccount.
func (p *pages) subaccount(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	s, err := p.Fleet.Subaccount(ctx, p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	plans, err := p.Fleet.Plans(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	b := subaccountPage{
		Subaccount: &s, Path: p.base + "/subaccounts/" + s.ID, Chip: subaccountBadge(s.Status), Plan: p.planLinkIn(plans, s.DefaultPricingPlanID), Shown: feedBadge(s.GBFS.Enabled), Edit: r.Admin(),
	}
	for i := range s.VehicleTypes {
		t := &s.VehicleTypes[i]
		row := typeRow{VehicleType: t, Path: b.Path + "/types/" + t.ID, Form: label(t.FormFactor) + ", " + strings.ToLower(label(t.PropulsionType)), Plan: p.planLinkIn(plans, t.DefaultPricingPlanID)}
		if t.MaxRangeMeters != nil {
			row.Range = distance(*t.MaxRangeMeters)
		}
		var rules []string
		if t.ReservationMinutes > 0 {
			rules = append(rules, "reserved for up to "+web.Count(t.ReservationMinutes, "%d minute", "%d minutes"))
		}
		if t.MinAge > 0 {
			rules = append(rules, "from "+web.Number(t.MinAge)+" years")
		}
		if t.LicenseRequired {
			rules = append(rules, "with a verified license")
		}
		row.Rules = strings.Join(rules, ", ")
		b.Types = append(b.Types, row)
	}
	for _, rule := range s.GlobalRules {
		b.Rules = append(b.Rules, ruleLabel(rule, &s))
	}
	for i := range s.Alerts {
		a := &s.Alerts[i]
		b.AlertRows = append(b.AlertRows, alertRow{a, b.Path + "/alerts/" + a.ID, r.Time(a.StartsAt.Std()), r.Time(a.EndsAt.Std())})
	}
	for i := range s.MDS.Agencies {
		a := &s.MDS.Agencies[i]
		b.Agencies = append(b.Agencies, agencyRow{a, b.Path + "/agencies/" + a.ID})
	}
	b.Data = web.Badge{Text: "Off"}
	if s.MDS.Enabled {
		b.Data, b.DataURL = web.Badge{Text: "On", Tone: web.Good}, p.Agencies
	}
	if s.GBFS.Enabled {
		b.Feed = p.Feed + s.PublicSystemID() + "/gbfs.json"
	}
	if b.Audit, err = p.audit(ctx, r, s.ID); err != nil {
		return err
	}
	return p.Render(w, r, "subaccount", p.page(r, "/subaccounts", s.Name, b))
}

// label formats a value of an enumeration: "Scooter standing".
func label(value string) string {
	text := strings.ReplaceAll(value, "_", " ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// ruleLabel describes a rule and its vehicle types.
func ruleLabel(rule fleet.Rule, s *fleet.Subaccount) string {
	may := func(yes bool, what string) string {
		if yes {
			return what
		}
		return "not " + what
	}
	text := "All vehicles"
	if len(rule.VehicleTypeIDs) > 0 {
		text = typeNames([]fleet.Subaccount{*s}, rule.VehicleTypeIDs)
	}
	text += ": rides can " + may(rule.StartAllowed, "start") + ", " + may(rule.EndAllowed, "end") + ", " + may(rule.ThroughAllowed, "pass through")
	if rule.MaximumSpeed != nil {
		text += ", at up to " + web.Number(*rule.MaximumSpeed) + " km/h"
	}
	return text + "."
}

// newSubaccount creates a subaccount.
func (p *pages) newSubaccount(w http.ResponseWriter, r *web.Request) error {
	settings, _, err := p.Fleet.Settings(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	fields := append(placeFields(&fleet.Subaccount{TimeZone: settings.TimeZone}), externalField(""))
	if r.Method == http.MethodPost {
		values, ok := p.Form(w, r)
		if !ok {
			return nil
		}
		t := &formInput{Values: values}
		var s fleet.Subaccount
		made, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) (err error) {
			s, err = p.Fleet.CreateSubaccountTx(ctx, tx, r.OrganizationID, fleet.NewSubaccount{
				Name: t.text("name"), ExternalID: fleet.NullString(t.text("external_id")), TimeZone: t.text("timezone"), Currency: strings.ToUpper(t.text("currency")), CountryCode: fleet.NullString(strings.ToUpper(t.text("country_code"))),
			})
			return err
		})
		if err != nil {
			return err
		}
		if made {
			return p.Redirect(w, p.base+"/subaccounts/"+s.ID, web.Notice{Text: s.Name + " created. Add a vehicle type and a plan next."})
		}
	}
	return p.showForm(w, r, p.page(r, "/subaccounts", "New subaccount", nil), fields, form{
		Intro: "A subaccount is a part of your fleet, such as a city, with its own time zone, currency and vehicle types.", Label: "Create subaccount", Cancel: p.base + "/subaccounts",
	})
}

// placeFields are the fields of a new subaccount.
func placeFields(s *fleet.Subaccount) web.Fields {
	return web.Fields{
		{Name: "name", Label: "Name", Type: "text", Most: 256, Value: s.Name},
		{Name: "timezone", Label: "Time zone", Type: "text", Most: 100, Value: s.TimeZone, Help: "Such as Europe/Berlin."},
		{Name: "currency", Label: "Currency", Type: "text", Least: 3, Most: 3, Value: s.Currency, Help: "Such as EUR. Can't be changed once there are plans, riders or rides."},
		{Name: "country_code", Label: "Country", Type: "text", Optional: true, Least: 2, Most: 2, Value: string(s.CountryCode), Help: "Two letters, such as DE."},
	}
}

// changeSubaccount updates a subaccount in a transaction. change returns the change and the path of the
// element that the fields are of, empty for the subaccount itself. stored returns the fields of a subaccount
// as they are stored; nil checks nothing ([formInput.checkStored]).
func (p *pages) changeSubaccount(r *web.Request, fields web.Fields, stored func(*fleet.Subaccount) web.Fields, t *formInput, id string, change func(s *fleet.Subaccount) (fleet.SubaccountChange, string, error)) (bool, error) {
	return p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) error {
		before, err := p.Fleet.LockSubaccountTx(ctx, tx, r.OrganizationID, id)
		if err != nil {
			return err
		}
		c, element, err := change(&before)
		if err != nil {
			return err
		}
		after, err := p.Fleet.UpdateSubaccountTx(ctx, tx, r.OrganizationID, before, c)
		if err != nil {
			return withPaths(err, func(path string) string { return strings.TrimPrefix(path, element+".") })
		}
		if stored == nil {
			return nil
		}
		return t.checkStored(stored(&before), stored(&after))
	})
}

// subaccountFields are the fields of a subaccount except for its lists.
func subaccountFields(s *fleet.Subaccount, plans []fleet.Plan) web.Fields {
	return append(placeFields(s),
		planField("default_pricing_plan_id", "Pricing plan", "None", plans, s.ID, s.DefaultPricingPlanID),
		web.Field{Name: "status", Label: "Status", Type: "select", Value: s.Status, Options: []web.Option{{Value: "active", Label: "Active"}, {Value: "archived", Label: "Archived: no new records or rides"}}},
		externalField(s.ExternalID),
		web.Field{Name: "gbfs.enabled", Label: "Publish available vehicles", Type: "checkbox", Optional: true, Value: checked(s.GBFS.Enabled)},
		web.Field{Name: "gbfs.system_id", Label: "Feed id (system_id)", Type: "text", Optional: true, Most: 64, Value: string(s.GBFS.SystemID), Help: "Such as acme_berlin. Part of the feed's URL."},
		web.Field{Name: "gbfs.opening_hours", Label: "Opening hours", Type: "text", Optional: true, Most: 256, Value: string(s.GBFS.OpeningHours), Help: "Such as 24/7."},
		web.Field{Name: "gbfs.feed_contact_email", Label: "Contact for the feed", Type: "email", Optional: true, Most: 254, Value: string(s.GBFS.ContactEmail)},
		web.Field{Name: "gbfs.operator", Label: "Operator", Type: "text", Optional: true, Most: 256, Value: string(s.GBFS.Operator)},
		web.Field{Name: "gbfs.license_id", Label: "License of the data", Type: "text", Optional: true, Most: 64, Value: string(s.GBFS.LicenseID), Help: "Such as CC0-1.0."},
		web.Field{Name: "gbfs.rental_uri_web", Label: "Page to rent a vehicle", Type: "text", Optional: true, Most: 2048, Value: string(s.GBFS.WebRentalURI), Help: "Such as https://example.com/rent/{vehicle_id}; {vehicle_id} stands for the public id."},
		web.Field{Name: "gbfs.rental_uri_android", Label: "Link into the Android app", Type: "text", Optional: true, Most: 2048, Value: string(s.GBFS.AndroidRentalURI)},
		web.Field{Name: "gbfs.store_uri_android", Label: "Android app in the store", Type: "url", Optional: true, Most: 2048, Value: string(s.GBFS.AndroidStoreURI)},
		web.Field{Name: "gbfs.discovery_uri_android", Label: "Link that the Android app handles", Type: "text", Optional: true, Most: 2048, Value: string(s.GBFS.AndroidDiscoveryURI), Help: "Such as com.example.android://. Others use it to detect the app."},
		web.Field{Name: "gbfs.rental_uri_ios", Label: "Link into the iOS app", Type: "text", Optional: true, Most: 2048, Value: string(s.GBFS.IOSRentalURI)},
		web.Field{Name: "gbfs.store_uri_ios", Label: "iOS app in the store", Type: "url", Optional: true, Most: 2048, Value: string(s.GBFS.IOSStoreURI)},
		web.Field{Name: "gbfs.discovery_uri_ios", Label: "Link that the iOS app handles", Type: "text", Optional: true, Most: 2048, Value: string(s.GBFS.IOSDiscoveryURI)},
		web.Field{Name: "mds.enabled", Label: "Agencies may read vehicles, trips and events", Type: "checkbox", Optional: true, Value: checked(s.MDS.Enabled)},
		web.Field{Name: "mds.provider_id", Label: "Provider id", Type: "text", Optional: true, Most: 36, Value: string(s.MDS.ProviderID), Help: "Your UUID in the list of the Open Mobility Foundation."})
}

// editSubaccount updates a subaccount except for its lists.
func (p *pages) editSubaccount(w http.ResponseWriter, r *web.Request) error {
	s, err := p.Fleet.Subaccount(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	plans, err := p.Fleet.Plans(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	back := p.base + "/subaccounts/" + s.ID
	stored := func(s *fleet.Subaccount) web.Fields { return subaccountFields(s, plans) }
	fields, t := stored(&s), new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		text := func(name string) fleet.NullString { return fleet.NullString(t.text(name)) }
		saved, err := p.changeSubaccount(r, fields, stored, t, s.ID, func(now *fleet.Subaccount) (fleet.SubaccountChange, string, error) {
			return fleet.SubaccountChange{
				MDS:  optional.Of(fleet.MDS{Enabled: t.on("mds.enabled"), ProviderID: text("mds.provider_id"), Agencies: now.MDS.Agencies}),
				Name: optional.Of(t.text("name")), TimeZone: optional.Of(t.text("timezone")), Currency: optional.Of(strings.ToUpper(t.text("currency"))),
				CountryCode: optional.Of(fleet.NullString(strings.ToUpper(t.text("country_code")))), DefaultPricingPlanID: optional.Of(text("default_pricing_plan_id")),
				Status: optional.Of(t.text("status")), ExternalID: optional.Of(text("external_id")),
				GBFS: optional.Of(fleet.GBFS{
					Enabled: t.on("gbfs.enabled"), SystemID: text("gbfs.system_id"), OpeningHours: text("gbfs.opening_hours"), ContactEmail: text("gbfs.feed_contact_email"),
					Operator: text("gbfs.operator"), LicenseID: text("gbfs.license_id"), WebRentalURI: text("gbfs.rental_uri_web"),
					AndroidRentalURI: text("gbfs.rental_uri_android"), AndroidStoreURI: text("gbfs.store_uri_android"), AndroidDiscoveryURI: text("gbfs.discovery_uri_android"),
					IOSRentalURI: text("gbfs.rental_uri_ios"), IOSStoreURI: text("gbfs.store_uri_ios"), IOSDiscoveryURI: text("gbfs.discovery_uri_ios"),
				}),
			}, "", nil
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Subaccount saved."})
		}
	}
	return p.showForm(w, r, p.page(r, "/subaccounts", "Edit "+s.Name, nil), fields, form{
		Groups: layout(fields, part{"", "", 7, false}, part{"Public feed (GBFS)", "", 13, false}, part{"Data for agencies (MDS)", "", 0, false}), Was: t.openedWith(fields), Label: "Save", Cancel: back,
	})
}

// planField selects a plan of a subaccount.
func planField(name, label, none string, plans []fleet.Plan, subaccountID string, id fleet.NullString) web.Field {
	own := slices.DeleteFunc(slices.Clone(plans), func(plan fleet.Plan) bool { return plan.SubaccountID != subaccountID })
	return web.Field{Name: name, Label: label, Type: "select", Optional: true, Value: string(id), Options: options(own, none, func(plan fleet.Plan) web.Option { return web.Option{Value: plan.ID, Label: plan.Name} })}
}

// Form factors and propulsion types (GBFS).
var (
	formFactors     = []string{"scooter_standing", "scooter_seated", "bicycle", "cargo_bicycle", "moped", "car", "other"}
	propulsionTypes = []string{"electric", "electric_assist", "human", "combustion", "combustion_diesel", "hybrid", "plug_in_hybrid", "hydrogen_fuel_cell"}
)

// labelOptions are the options of an enumeration.
func labelOptions(values []string) []web.Option {
	return options(values, "", func(v string) web.Option { return web.Option{Value: v, Label: label(v)} })
}

// typeFields are the fields of a vehicle type of a subaccount. One without an id is new.
func typeFields(kind *fleet.VehicleType, subaccountID string, plans []fleet.Plan) web.Fields {
	fields := web.Fields{{Name: "name", Label: "Name", Type: "text", Most: 256, Value: kind.Name}}
	if kind.ID == "" {
		fields = append(fields,
			web.Field{Name: "form_factor", Label: "Form", Type: "select", Value: kind.FormFactor, Options: labelOptions(formFactors), Help: "Cannot be changed later."},
			web.Field{Name: "propulsion_type", Label: "Propulsion", Type: "select", Value: kind.PropulsionType, Options: labelOptions(propulsionTypes), Help: "Cannot be changed later."})
	}
	return append(fields,
		planField("default_pricing_plan_id", "Pricing plan", "Subaccount default", plans, subaccountID, kind.DefaultPricingPlanID),
		web.Field{Name: "max_range_meters", Label: "Maximum range (meters)", Type: "text", Mode: "numeric", Optional: true, Value: optionalInteger(kind.MaxRangeMeters), Help: "Required with a motor."},
		web.Field{Name: "reservation_minutes", Label: "Maximum reservation (minutes)", Type: "text", Mode: "numeric", Value: optionalInteger(&kind.ReservationMinutes), Help: "0: no reservations."},
		web.Field{Name: "min_age", Label: "Minimum age (years)", Type: "text", Mode: "numeric", Value: optionalInteger(&kind.MinAge), Help: "0: no minimum."},
		web.Field{Name: "license_required", Label: "Requires a verified driver's license", Type: "checkbox", Optional: true, Value: checked(kind.LicenseRequired)},
		web.Field{Name: "max_permitted_speed_kph", Label: "Maximum speed (km/h)", Type: "text", Mode: "numeric", Optional: true, Value: optionalInteger(kind.MaxPermittedSpeed)},
		web.Field{Name: "rider_capacity", Label: "Rider capacity", Type: "text", Mode: "numeric", Optional: true, Value: optionalInteger(kind.RiderCapacity)},
		web.Field{Name: "wheel_count", Label: "Wheels", Type: "text", Mode: "numeric", Optional: true, Value: optionalInteger(kind.WheelCount)})
}

// vehicleType creates or updates a vehicle type.
func (p *pages) vehicleType(w http.ResponseWriter, r *web.Request) error {
	s, err := p.Fleet.Subaccount(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	plans, err := p.Fleet.Plans(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	id, title := r.PathValue("type"), "New vehicle type"
	is := func(t fleet.VehicleType) bool { return t.ID == id }
	kind := fleet.VehicleType{ReservationMinutes: 15}
	if id != "" {
		if kind, err = element(r, s.VehicleTypes, is, "vehicle type"); err != nil {
			return err
		}
		kind.ID, title = id, strings.TrimSpace("Edit "+kind.Name)
	}
	back := p.base + "/subaccounts/" + s.ID
	show := func(kind *fleet.VehicleType) web.Fields { return typeFields(kind, s.ID, plans) }
	stored := func(s *fleet.Subaccount) web.Fields { return elementFields(s.VehicleTypes, is, show) }
	fields, t := show(&kind), new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		n := fleet.VehicleType{
			ID: id, Name: t.text("name"), FormFactor: kind.FormFactor, PropulsionType: kind.PropulsionType, DefaultPricingPlanID: fleet.NullString(t.text("default_pricing_plan_id")),
			MaxRangeMeters: t.optional("max_range_meters"), ReservationMinutes: t.integer("reservation_minutes"), MinAge: t.integer("min_age"), LicenseRequired: t.on("license_required"),
			MaxPermittedSpeed: t.optional("max_permitted_speed_kph"), RiderCapacity: t.optional("rider_capacity"), WheelCount: t.optional("wheel_count"),
		}
		if id == "" {
			n.FormFactor, n.PropulsionType = t.text("form_factor"), t.text("propulsion_type")
		}
		saved, err := p.changeSubaccount(r, fields, stored, t, s.ID, func(now *fleet.Subaccount) (fleet.SubaccountChange, string, error) {
			list, at, err := replaceOrAppend(now.VehicleTypes, n, id, is)
			return fleet.SubaccountChange{VehicleTypes: optional.Of(list)}, "vehicle_types." + strconv.Itoa(at), err
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Vehicle type saved."})
		}
	}
	return p.showForm(w, r, p.page(r, "/subaccounts", title, nil), fields, form{Was: t.opened(id, fields), Label: "Save", Cancel: back})
}

// deleteType deletes an unused vehicle type.
func (p *pages) deleteType(w http.ResponseWriter, r *web.Request) error {
	return p.removeFromSubaccount(w, r, "vehicle type", func(s *fleet.Subaccount) (string, fleet.SubaccountChange) {
		i := slices.IndexFunc(s.VehicleTypes, func(t fleet.VehicleType) bool { return t.ID == r.PathValue("type") })
		if i < 0 {
			return "", fleet.SubaccountChange{}
		}
		name := s.VehicleTypes[i].Name
		return name, fleet.SubaccountChange{VehicleTypes: optional.Of(slices.Delete(slices.Clone(s.VehicleTypes), i, i+1))}
	})
}

// replaceOrAppend returns a list with v in place of the element with an id, or appended if that is empty, and
// its index. The error is Conflict if others have deleted the element.
func replaceOrAppend[E any](list []E, v E, id string, replaced func(E) bool) (_ []E, at int, err error) {
	list = slices.Clone(list)
	if id == "" {
		return append(list, v), len(list), nil
	}
	at = slices.IndexFunc(list, replaced)
	if at < 0 {
		return nil, 0, problem.New(problem.Conflict, "others have deleted this, or changed its id, since the form was opened")
	}
	list[at] = v
	return list, at, nil
}

// element returns the element of a list with an id that a form is for. One that others have deleted since
// the form was opened is zero, so that the form is shown again with its values.
func element[E any](r *web.Request, list []E, is func(E) bool, what string) (e E, err error) {
	at := slices.IndexFunc(list, is)
	switch {
	case at >= 0:
		return list[at], nil
	case r.Method == http.MethodPost:
		return e, nil
	default:
		return e, problem.New(problem.NotFound, "there is no such %s", what)
	}
}

// removeFromSubaccount confirms and removes an element of a list of a subaccount.
// drop returns its name, empty if there is none, and the change.
func (p *pages) removeFromSubaccount(w http.ResponseWriter, r *web.Request, what string, drop func(s *fleet.Subaccount) (string, fleet.SubaccountChange)) error {
	s, err := p.Fleet.Subaccount(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	name, _ := drop(&s)
	if name == "" {
		return problem.New(problem.NotFound, "there is no such %s", what)
	}
	back := p.base + "/subaccounts/" + s.ID
	yes, err := p.confirmed(w, r, p.page(r, "/subaccounts", "Delete the "+what+" "+name, nil), web.Confirm{
		Text: "This can't be undone. It fails while it is in use.", Label: "Delete the " + what, Cancel: back,
	})
	if err != nil || !yes {
		return err
	}
	_, err = p.changeSubaccount(r, nil, nil, &formInput{}, s.ID, func(now *fleet.Subaccount) (fleet.SubaccountChange, string, error) {
		_, change := drop(now)
		return change, "", nil
	})
	if e, ok := errors.AsType[*problem.Error](err); ok && len(e.Issues) > 0 && what == "vehicle type" {
		return p.Redirect(w, back, web.Notice{Text: name + " was not deleted, since vehicles, rides, pricing plans, zones or rules use it.", Bad: true})
	}
	if err != nil {
		return err
	}
	return p.Redirect(w, back, web.Notice{Text: "The " + what + " was deleted."})
}

// alertFields are the fields of an alert for riders.
func alertFields(a *fleet.Alert, zone *time.Location) web.Fields {
	return web.Fields{
		{Name: "type", Label: "Type", Type: "select", Value: a.Type, Options: []web.Option{{Value: "other", Label: "Notice"}, {Value: "system_closure", Label: "System closure"}}},
		{Name: "summary", Label: "Summary", Type: "text", Most: 256, Value: a.Summary},
		{Name: "description", Label: "Description", Type: "textarea", Rows: 3, Optional: true, Most: 5000, Value: string(a.Description)},
		{Name: "url", Label: "Link", Type: "url", Optional: true, Most: 2048, Value: string(a.URL)},
		{Name: "starts_at", Label: "From", Type: "datetime-local", Optional: true, Value: localTime(a.StartsAt, zone), Help: "Time zone " + zone.String() + "."},
		{Name: "ends_at", Label: "Until", Type: "datetime-local", Optional: true, Value: localTime(a.EndsAt, zone)},
	}
}

// alert creates or updates an alert.
func (p *pages) alert(w http.ResponseWriter, r *web.Request) error {
	s, err := p.Fleet.Subaccount(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	id, title := r.PathValue("alert"), "New alert"
	is := func(a fleet.Alert) bool { return a.ID == id }
	a := fleet.Alert{Type: "other"}
	if id != "" {
		if a, err = element(r, s.Alerts, is, "alert"); err != nil {
			return err
		}
		title = "Edit alert"
	}
	back := p.base + "/subaccounts/" + s.ID
	zone := r.Now.Location()
	show := func(a *fleet.Alert) web.Fields { return alertFields(a, zone) }
	stored := func(s *fleet.Subaccount) web.Fields { return elementFields(s.Alerts, is, show) }
	fields, t := show(&a), new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		n := fleet.Alert{
			ID: id, Type: t.text("type"), Summary: t.text("summary"), Description: fleet.NullString(t.text("description")), URL: fleet.NullString(t.text("url")),
			StartsAt: t.moment("starts_at", zone), EndsAt: t.moment("ends_at", zone),
		}
		saved, err := p.changeSubaccount(r, fields, stored, t, s.ID, func(now *fleet.Subaccount) (fleet.SubaccountChange, string, error) {
			// Fields have whole minutes; unchanged ones retain the stored time.
			if at := slices.IndexFunc(now.Alerts, is); at >= 0 {
				if from := now.Alerts[at].StartsAt; t.text("starts_at") == localTime(from, zone) {
					n.StartsAt = from
				}
				if until := now.Alerts[at].EndsAt; t.text("ends_at") == localTime(until, zone) {
					n.EndsAt = until
				}
			}
			list, at, err := replaceOrAppend(now.Alerts, n, id, is)
			return fleet.SubaccountChange{Alerts: optional.Of(list)}, "alerts." + strconv.Itoa(at), err
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Alert saved."})
		}
	}
	return p.showForm(w, r, p.page(r, "/subaccounts", title, nil), fields, form{Intro: "Shown to riders in the public feed.", Was: t.opened(id, fields), Label: "Save", Cancel: back})
}

// deleteAlert deletes an alert.
func (p *pages) deleteAlert(w http.ResponseWriter, r *web.Request) error {
	return p.removeFromSubaccount(w, r, "alert", func(s *fleet.Subaccount) (string, fleet.SubaccountChange) {
		i := slices.IndexFunc(s.Alerts, func(a fleet.Alert) bool { return a.ID == r.PathValue("alert") })
		if i < 0 {
			return "", fleet.SubaccountChange{}
		}
		return s.Alerts[i].Summary, fleet.SubaccountChange{Alerts: optional.Of(slices.Delete(slices.Clone(s.Alerts), i, i+1))}
	})
}

// localTime formats a time for a field.
func localTime(t rfc3339.Time, zone *time.Location) string {
	if t.Std().IsZero() {
		return ""
	}
	return web.DateTimeLocal(t.Std().In(zone))
}

// moment parses a time in a zone, zero if empty.
func (t *formInput) moment(name string, zone *time.Location) rfc3339.Time {
	text := t.text(name)
	if text == "" {
		return rfc3339.Time{}
	}
	for _, form := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04"} {
		if at, err := time.ParseInLocation(form, text, zone); err == nil {
			return rfc3339.Time(at)
		}
	}
	t.v.AddCode("invalid_format", name, "must be a date and a time such as 2026-11-21 10:42")
	return rfc3339.Time{}
}

// rules updates the rules outside of zones.
func (p *pages) rules(w http.ResponseWriter, r *web.Request) error {
	s, err := p.Fleet.Subaccount(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	back := p.base + "/subaccounts/" + s.ID
	stored := func(s *fleet.Subaccount) web.Fields {
		fields, _ := ruleFields(s, len(s.GlobalRules))
		return fields
	}
	fields, groups := ruleFields(&s, len(s.GlobalRules)+1)
	t := new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		list := []fleet.Rule{}
		rows := t.rows("global_rules", "vehicle_type_ids")
		for i := range rows {
			at := "global_rules." + strconv.Itoa(i) + "."
			types := t.text(at + "vehicle_type_ids")
			if types == "" {
				continue
			}
			t.use("global_rules", i)
			rule := fleet.Rule{
				StartAllowed: t.on(at + "ride_start_allowed"), EndAllowed: t.on(at + "ride_end_allowed"), ThroughAllowed: t.on(at + "ride_through_allowed"), MaximumSpeed: t.optional(at + "maximum_speed_kph"),
			}
			if types != everyType {
				rule.VehicleTypeIDs = strings.Split(types, ",")
			}
			list = append(list, rule)
		}
		// The form is shown again with its own rows, not with those that others have added.
		shown := s
		shown.GlobalRules = s.GlobalRules[:min(rows, len(s.GlobalRules))]
		fields, groups = ruleFields(&shown, max(rows, len(list)+1))
		saved, err := p.changeSubaccount(r, fields, stored, t, s.ID, func(*fleet.Subaccount) (fleet.SubaccountChange, string, error) {
			return fleet.SubaccountChange{GlobalRules: optional.Of(list)}, "", nil
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Rules saved."})
		}
	}
	return p.showForm(w, r, p.page(r, "/subaccounts", "Default rules", nil), fields, form{
		Intro: "These rules apply outside of zones. The first one for the vehicle type applies. Without rules, rides can start and end anywhere, or only in service areas if there are any.", Groups: groups, Was: t.openedWith(stored(&s)), Label: "Save", Cancel: back,
	})
}

// everyType is the option for all vehicle types.
const everyType = "*"

// ruleFields are the fields of so many rules. Those beyond the stored ones are new.
func ruleFields(s *fleet.Subaccount, rows int) (web.Fields, []group) {
	var fields web.Fields
	var parts []part
	for i := range rows {
		at := "global_rules." + strconv.Itoa(i) + "."
		choice := web.Field{Name: at + "vehicle_type_ids", Label: "For", Type: "select", Options: []web.Option{{Value: "", Label: "No such rule"}, {Value: everyType, Label: "All vehicles"}}}
		for _, kind := range s.VehicleTypes {
			choice.Options = append(choice.Options, web.Option{Value: kind.ID, Label: kind.Name})
		}
		rule := fleet.Rule{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}
		if i < len(s.GlobalRules) {
			rule = s.GlobalRules[i]
			choice.Value = everyType
			if ids := strings.Join(rule.VehicleTypeIDs, ","); ids != "" {
				choice.Value = ids
				if len(rule.VehicleTypeIDs) > 1 {
					choice.Options = append(choice.Options, web.Option{Value: ids, Label: typeNames([]fleet.Subaccount{*s}, rule.VehicleTypeIDs)})
				}
			}
		}
		fields = append(fields, choice,
			web.Field{Name: at + "ride_start_allowed", Label: "Ride start allowed", Type: "checkbox", Optional: true, Value: checked(rule.StartAllowed)},
			web.Field{Name: at + "ride_end_allowed", Label: "Ride end allowed", Type: "checkbox", Optional: true, Value: checked(rule.EndAllowed)},
			web.Field{Name: at + "ride_through_allowed", Label: "Riding through allowed", Type: "checkbox", Optional: true, Value: checked(rule.ThroughAllowed)},
			web.Field{Name: at + "maximum_speed_kph", Label: "Maximum speed (km/h)", Type: "text", Mode: "numeric", Optional: true, Value: optionalInteger(rule.MaximumSpeed)})
		legend := "Rule " + strconv.Itoa(i+1)
		if i >= len(s.GlobalRules) {
			legend = "New rule"
		}
		parts = append(parts, part{legend, "", 5, false})
	}
	return fields, layout(fields, parts...)
}
