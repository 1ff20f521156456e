package fleetpages

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// planRow is a plan in a list.
type planRow struct {
	ID         string
	Path       string
	Name       string
	Says       string
	Subaccount namedLink
	Types      string
	Status     web.Badge
}

// planList is the body of the list of plans.
type planList struct {
	Rows        []planRow
	Count       string
	Subaccounts bool
	Empty       web.Empty
	New         string
}

func planBadge(active bool) web.Badge {
	if active {
		return web.Badge{Text: "Active", Tone: web.Good, Icon: "check"}
	}
	return web.Badge{Text: "Inactive"}
}

// plans lists pricing plans.
func (p *pages) plans(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	plans, err := p.Fleet.Plans(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	subs, err := p.Fleet.Subaccounts(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	list := planList{Subaccounts: len(subs) > 1, Count: web.Count(len(plans), "%d plan", "%d plans")}
	for i := range plans {
		plan := &plans[i]
		list.Rows = append(list.Rows, planRow{
			ID: plan.ID, Path: p.base + "/pricing/" + plan.ID, Name: plan.Name, Says: plan.Summary(), Subaccount: p.subaccountLinkIn(subs, plan.SubaccountID),
			Types: typeNames(subs, plan.VehicleTypeIDs), Status: planBadge(plan.Active),
		})
	}
	if r.Admin() {
		list.New = p.base + "/pricing/new"
	}
	list.Empty = web.Empty{Text: "No pricing plans yet. Rides can't start without one.", Path: list.New, Label: "New plan"}
	return p.Render(w, r, "plans", p.page(r, "/pricing", "Pricing", list))
}

// subaccountLinkIn is subaccountLink with the subaccounts already read.
func (p *pages) subaccountLinkIn(subs []fleet.Subaccount, id string) namedLink {
	for _, s := range subs {
		if s.ID == id {
			return namedLink{p.base + "/subaccounts/" + id, s.Name}
		}
	}
	return namedLink{Name: id}
}

// typeNames formats the names of vehicle types.
func typeNames(subs []fleet.Subaccount, ids []string) string {
	var list []string
	for _, id := range ids {
		if _, t := typeOf(subs, id); t != nil {
			list = append(list, t.Name)
		}
	}
	return strings.Join(list, ", ")
}

// planPage is the body of the page of a plan.
type planPage struct {
	*fleet.Plan
	Path       string
	Chip       web.Badge
	Says       string
	Terms      []string
	Subaccount namedLink
	Types      string
	Changed    web.Time
	Edit       bool
	Sample     filters // price calculator
	Receipt    []line
	Audit      []auditRow
}

// plan shows a plan with a price calculator.
func (p *pages) plan(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	plan, err := p.Fleet.Plan(ctx, p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	sub, err := p.Fleet.Subaccount(ctx, p.DB, r.OrganizationID, plan.SubaccountID)
	if err != nil {
		return err
	}
	b := planPage{
		Plan: &plan, Path: p.base + "/pricing/" + plan.ID, Chip: planBadge(plan.Active), Says: plan.Summary(), Terms: plan.Tariff.Terms(), Subaccount: namedLink{p.base + "/subaccounts/" + sub.ID, sub.Name},
		Types: typeNames([]fleet.Subaccount{sub}, plan.VehicleTypeIDs), Changed: r.Time(plan.UpdatedAt.Std()), Edit: r.Admin(),
	}
	b.Sample, b.Receipt = sample(r, &plan.Tariff, &sub)
	if b.Audit, err = p.audit(ctx, r, plan.ID); err != nil {
		return err
	}
	return p.Render(w, r, "plan", p.page(r, "/pricing", plan.Name, b))
}

// Maximum values of the calculator, above any ride.
const (
	sampleMinutes = 366 * 24 * 60
	sampleMeters  = 10_000_000
)

// sample parses the calculator's values and computes the price.
func sample(r *web.Request, t *tariff.Tariff, sub *fleet.Subaccount) (filters, []line) {
	f := filters{Fields: web.Fields{
		{Name: "minutes", Label: "Minutes", Type: "text", Mode: "numeric", Value: "12"},
		{Name: "km", Label: "Kilometers", Type: "text", Mode: "decimal", Value: "2.5"},
		{Name: "paused", Label: "Minutes paused", Type: "text", Mode: "numeric", Value: "0"},
		{Name: "reserved", Label: "Minutes reserved", Type: "text", Mode: "numeric", Value: "0"},
		{Name: "outside", Label: "Ends", Type: "select", Options: []web.Option{{Value: "", Label: "where that is allowed"}, {Value: "yes", Label: "elsewhere, for the fee"}}},
	}}
	f.parse(r)
	f.All, f.Label = "", "Calculate"
	minutes := func(name string) int64 {
		n := f.integer(name)
		switch {
		case n == nil:
			return 0
		case *n < 0:
			f.fail(name, "Must not be negative.")
			return 0
		case *n > sampleMinutes:
			f.fail(name, "Must be at most "+web.Number(sampleMinutes)+".")
			return 0
		}
		return *n
	}
	u := tariff.Usage{Ridden: true, Seconds: minutes("minutes") * 60, PausedSeconds: minutes("paused") * 60, OutOfZone: f.get("outside") != ""}
	if reserved := minutes("reserved"); reserved > 0 {
		// The maximum over all vehicle types.
		longest := int64(0)
		for _, kind := range sub.VehicleTypes {
			longest = max(longest, kind.ReservationMinutes)
		}
		u.Reserved, u.ReservedSeconds, u.ReservationMinutes = true, reserved*60, longest
		if longest == 0 {
			u.ReservationMinutes = reserved
		}
	}
	switch km, ok := parseKilometers(f.get("km")); {
	case !ok:
		f.fail("km", "Must be a number such as 2.5.")
	case km < 0:
		f.fail("km", "Must not be negative.")
	case km > sampleMeters/1000:
		f.fail("km", "Must be at most "+web.Number(sampleMeters/1000)+".")
	default:
		u.Meters = int64(km*1000 + .5)
	}
	if u.PausedSeconds > u.Seconds {
		f.fail("paused", "Exceeds the duration of the ride.")
	}
	if !f.ok() {
		return f, nil
	}
	return f, receipt(t.Explain(u))
}

// parseKilometers parses a number with a point or a comma before its decimals. Three digits after a
// comma may as well be thousands.
func parseKilometers(text string) (float64, bool) {
	if units, decimals, ok := strings.Cut(text, ","); ok && len(decimals) < 3 {
		text = units + "." + decimals
	}
	km, err := strconv.ParseFloat(text, 64)
	return km, err == nil && km == km
}

// spareSegments is the number of empty segment rows of a form.
const spareSegments = 2

// planForm returns the fields of a plan.
func planForm(plan *fleet.Plan, subs []fleet.Subaccount, made bool, minutes, kilometers int) (web.Fields, []group) {
	currency := plan.Currency
	amountOf := func(name, label string, sample int64, value *int64, help string) web.Field {
		return amountField(name, label, currency, sample, value, help)
	}
	var fields web.Fields
	var groups []part
	add := func(p part, some ...web.Field) {
		p.Take = len(some)
		groups, fields = append(groups, p), append(fields, some...)
	}
	add(part{}, planHeadFields(plan, subs, made)...)
	unlock := amountOf("unlock_amount", "Unlocking", sampleUnlock, &plan.UnlockAmount, "Once per ride. Empty: free.")
	if !made {
		unlock.Value = ""
	}
	add(part{}, unlock)
	segments := func(name, legend, unit string, rate int64, list []tariff.Segment, rows int) {
		for i := range max(rows, len(list)) {
			p := part{Row: true}
			if i == 0 {
				p.Legend = legend
				p.Help = "Rows add up. The first row is the usual price; add rows for other prices after some " + unit + ", such as a lower one after 60. Every 0 " + unit + " charges once."
			}
			row := segmentFields(name+"."+strconv.Itoa(i)+".", unit, plain(rate, cmp.Or(currency, "EUR")), i == 0)
			if i < len(list) {
				s := &list[i]
				row[0].Value, row[1].Value, row[2].Value, row[3].Value = plain(s.Rate, currency), optionalInteger(&s.Interval), optionalInteger(&s.Start), optionalInteger(s.End)
			}
			add(p, row...)
		}
	}
	segments("per_min_pricing", "Price by time", "minutes", samplePerMinute, plan.PerMinute, minutes)
	segments("per_km_pricing", "Price by distance", "kilometers", samplePerKilometer, plan.PerKilometer, kilometers)
	var capAmount, capMinutes *int64
	if plan.FareCap != nil {
		capAmount, capMinutes = &plan.FareCap.Amount, &plan.FareCap.DurationMinutes
	}
	add(part{Legend: "Fare cap", Help: "Riding costs no more than this in each period, such as a day of 1440 minutes.", Row: true},
		amountOf("fare_cap.amount", "At most", sampleCap, capAmount, ""), web.Field{Name: "fare_cap.duration_minutes", Label: "In each … minutes", Type: "text", Mode: "numeric", Optional: true, Value: optionalInteger(capMinutes), Placeholder: "1440"})
	add(part{Legend: "Reservations", Help: "A price per minute or a flat fee. Both empty: free.", Row: true},
		amountOf("reservation_per_min_amount", "A minute", sampleReservation, plan.ReservationPerMin, ""),
		web.Field{Name: "reservation_free_minutes", Label: "Free minutes", Type: "text", Mode: "numeric", Optional: true, Value: optionalInteger(&plan.ReservationFreeMinutes), Placeholder: "5"},
		amountOf("reservation_flat_amount", "Flat fee", sampleFlat, plan.ReservationFlat, ""))
	add(part{Legend: "Other fees", Row: true},
		amountOf("pause_per_min_amount", "Pause, per minute", samplePause, plan.PausePerMinAmount, "Empty: same as riding."),
		amountOf("out_of_zone_amount", "Out-of-zone fee", sampleOutOfZone, plan.OutOfZoneAmount, "Empty: riders can't end there."))
	tax := "added"
	if !plan.Taxable {
		tax = "included"
	}
	add(part{Legend: "Tax", Row: true},
		web.Field{Name: "tax_basis_points", Label: "Percent", Type: "text", Mode: "decimal", Optional: true, Value: strings.TrimSuffix(tariff.Percent(plan.TaxBasisPoints), "%"), Placeholder: strings.TrimSuffix(tariff.Percent(sampleTaxPoints), "%")},
		web.Field{Name: "is_taxable", Label: "Amounts", Type: "select", Value: tax, Options: []web.Option{{Value: "included", Label: "include tax"}, {Value: "added", Label: "exclude tax"}}})
	if made {
		if kinds := publicTypeFields(plan, subs); len(kinds) > 0 {
			add(part{Legend: "Vehicle types in the public feed"}, kinds...)
		}
	}
	add(part{Legend: "More"},
		web.Field{Name: "active", Label: "Active (inactive plans can't start rides)", Type: "checkbox", Optional: true, Value: checked(plan.Active)},
		web.Field{Name: "url", Label: "Information page for riders", Type: "url", Optional: true, Most: 2048, Value: string(plan.URL)},
		externalField(plan.ExternalID), metadataField(plan.Metadata))
	return fields, layout(fields, groups...)
}

// planHeadFields name a plan and, of a new one, its subaccount.
func planHeadFields(plan *fleet.Plan, subs []fleet.Subaccount, made bool) (head []web.Field) {
	if !made {
		head = append(head, web.Field{Name: "subaccount_id", Label: "Subaccount", Type: "select", Options: options(subs, "", func(s fleet.Subaccount) web.Option {
			return web.Option{Value: s.ID, Label: s.Name + ", in " + s.Currency}
		}), Help: "Amounts are in the subaccount's currency."})
	}
	return append(head,
		web.Field{Name: "name", Label: "Name", Type: "text", Most: 256, Value: plan.Name, Placeholder: "Scooters by the minute"},
		web.Field{Name: "description", Label: "Description", Type: "textarea", Rows: 2, Optional: true, Most: 5000, Value: plan.Description, Placeholder: "1 to unlock, then 0.25 a minute; at most 25 a day", Help: "Shown to riders in the public feed."})
}

// amountField edits an amount of a currency, which may be unknown yet. sample is the placeholder.
func amountField(name, label, currency string, sample int64, value *int64, help string) web.Field {
	f := web.Field{Name: name, Label: label, Type: "text", Mode: "decimal", Optional: true, Help: help, Placeholder: plain(sample, cmp.Or(currency, "EUR"))}
	if currency != "" {
		f.Label += ", in " + currency
		f.Value = plainOr(value, currency)
	}
	return f
}

// segmentFields is an empty row of a segment: rate, interval, start, end. Those of the first one
// have an example.
func segmentFields(at, unit, rate string, first bool) []web.Field {
	row := []web.Field{
		{Name: at + "rate_amount", Label: "Costs", Type: "text", Mode: "decimal", Optional: true}, {Name: at + "interval", Label: "Every … " + unit, Type: "text", Mode: "numeric", Optional: true, Placeholder: "1"},
		{Name: at + "start", Label: "After … " + unit, Type: "text", Mode: "numeric", Optional: true, Placeholder: "0"}, {Name: at + "end", Label: "Until", Type: "text", Mode: "numeric", Optional: true, Placeholder: "end"},
	}
	if first {
		row[0].Placeholder = rate
	}
	return row
}

// publicTypeFields select the vehicle types of a plan in the public feed.
func publicTypeFields(plan *fleet.Plan, subs []fleet.Subaccount) []web.Field {
	var list []web.Field
	for _, s := range subs {
		if s.ID != plan.SubaccountID {
			continue
		}
		for _, t := range s.VehicleTypes {
			list = append(list, web.Field{Name: "type." + t.ID, Label: "For " + t.Name, Type: "checkbox", Optional: true, Value: checked(slices.Contains(plan.VehicleTypeIDs, t.ID))})
		}
	}
	return list
}

// segmentsOf parses the non-empty rows of segments. It first moves them together,
// so that errors show in the right row.
func segmentsOf(t *formInput, name, currency string) []tariff.Segment {
	members := []string{"rate_amount", "interval", "start", "end"}
	n := 0
	for i := range t.rows(name, "rate_amount") {
		from, to := name+"."+strconv.Itoa(i)+".", name+"."+strconv.Itoa(n)+"."
		empty := true
		for _, m := range members {
			empty = empty && t.text(from+m) == ""
		}
		if empty {
			continue
		}
		for _, m := range members {
			value := t.text(from + m)
			t.Del(from + m)
			t.Set(to+m, value)
		}
		n++
	}
	list := []tariff.Segment{}
	for i := range n {
		at := name + "." + strconv.Itoa(i) + "."
		s := tariff.Segment{Start: t.integer(at + "start"), Interval: t.integer(at + "interval"), End: t.optional(at + "end")}
		if rate := t.amount(at+"rate_amount", currency); rate != nil {
			s.Rate = *rate
		} else if !t.v.Has(at + "rate_amount") {
			t.v.AddCode("required", at+"rate_amount", "is missing")
		}
		if t.text(at+"interval") == "" {
			s.Interval = 1
		}
		list = append(list, s)
	}
	return list
}

// tariffOf parses the tariff of a form.
func tariffOf(t *formInput, currency string) tariff.Tariff {
	terms := tariff.Tariff{
		Currency: currency, PerMinute: segmentsOf(t, "per_min_pricing", currency), PerKilometer: segmentsOf(t, "per_km_pricing", currency),
		PausePerMinAmount: t.amount("pause_per_min_amount", currency), ReservationPerMin: t.amount("reservation_per_min_amount", currency),
		ReservationFlat: t.amount("reservation_flat_amount", currency), ReservationFreeMinutes: t.integer("reservation_free_minutes"),
		OutOfZoneAmount: t.amount("out_of_zone_amount", currency), Taxable: t.text("is_taxable") == "added",
	}
	if unlock := t.amount("unlock_amount", currency); unlock != nil {
		terms.UnlockAmount = *unlock
	}
	amount, minutes := t.amount("fare_cap.amount", currency), t.optional("fare_cap.duration_minutes")
	switch {
	case amount != nil && minutes != nil:
		terms.FareCap = &tariff.FareCap{Amount: *amount, DurationMinutes: *minutes}
	case amount != nil && !t.v.Has("fare_cap.duration_minutes"):
		t.v.AddCode("required", "fare_cap.duration_minutes", "is required with an amount")
	case minutes != nil && !t.v.Has("fare_cap.amount"):
		t.v.AddCode("required", "fare_cap.amount", "is required with minutes")
	}
	if text := strings.TrimSuffix(t.text("tax_basis_points"), "%"); text != "" {
		// A percentage has two decimals, like EUR.
		points, ok := parseAmount(text, "EUR")
		if !ok {
			t.v.AddCode("invalid_value", "tax_basis_points", "must be a number such as 19 or 7.7")
		} else if points < 0 || points > 100_00 {
			t.v.AddCode("invalid_value", "tax_basis_points", "must be from 0 to 100")
		}
		terms.TaxBasisPoints = points
	}
	return terms
}

// typesOf returns the selected vehicle types.
func typesOf(t *formInput, sub *fleet.Subaccount) []string {
	ids := []string{}
	for _, kind := range sub.VehicleTypes {
		if t.on("type." + kind.ID) {
			ids = append(ids, kind.ID)
		}
	}
	return ids
}

// newPlan creates a plan.
func (p *pages) newPlan(w http.ResponseWriter, r *web.Request) error {
	subs, err := p.Fleet.Subaccounts(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	if len(subs) == 0 {
		return problem.New(problem.Precondition, "A plan belongs to a subaccount. Create one first.")
	}
	minutes, kilometers := spareSegments, 1
	blank := &fleet.Plan{Active: true}
	if len(subs) == 1 || slices.IndexFunc(subs, func(s fleet.Subaccount) bool { return s.Currency != subs[0].Currency }) < 0 {
		blank.Currency = subs[0].Currency
	}
	fields, groups := planForm(blank, subs, false, minutes, kilometers)
	settings, _, err := p.Fleet.Settings(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	t, sub := new(formInput), &subs[0]
	if r.Method == http.MethodPost {
		values, ok := p.Form(w, r)
		if !ok {
			return nil
		}
		t.Values = values
		if i := slices.IndexFunc(subs, func(s fleet.Subaccount) bool { return s.ID == t.text("subaccount_id") }); i >= 0 {
			sub = &subs[i]
		} else {
			t.v.AddCode("required", "subaccount_id", "must be chosen")
		}
		if t.on("more") || t.on("preview") {
			return p.morePlan(w, r, t, blank, subs, false, "New plan", p.base+"/pricing", examplesOf(t, sub.Currency, &settings))
		}
		n := fleet.NewPlan{
			SubaccountID: sub.ID, Name: t.text("name"), Description: t.text("description"), URL: fleet.NullString(t.text("url")), ExternalID: fleet.NullString(t.text("external_id")),
			Tariff: tariffOf(t, sub.Currency), Active: new(t.on("active")), Metadata: t.metadata(nil),
		}
		fields, groups = planForm(blank, subs, false, max(minutes, t.rows("per_min_pricing", "rate_amount")), max(kilometers, t.rows("per_km_pricing", "rate_amount")))
		var plan fleet.Plan
		made, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) (err error) {
			plan, err = p.Fleet.CreatePlanTx(ctx, tx, r.OrganizationID, n)
			return err
		})
		if err != nil {
			return err
		}
		if made {
			return p.Redirect(w, p.base+"/pricing/"+plan.ID, web.Notice{Text: "Plan created. Assign it to a subaccount, vehicle type or vehicle."})
		}
	}
	return p.showPlan(w, r, "New plan", p.base+"/pricing", fields, nil, groups, examplesOf(t, sub.Currency, &settings))
}

func (p *pages) showPlan(w http.ResponseWriter, r *web.Request, title, cancel string, fields, was web.Fields, groups []group, examples *priceExamples) error {
	page := p.page(r, "/pricing", title, nil)
	page.Scripts = []string{"examples.js"}
	return p.showForm(w, r, page, fields, form{Groups: groups, Was: was, Label: "Save", Cancel: cancel, More: "Add rows", Examples: examples})
}

// morePlan renders the submitted form with the prices of examples, and with more segment rows if
// these are asked for.
func (p *pages) morePlan(w http.ResponseWriter, r *web.Request, t *formInput, plan *fleet.Plan, subs []fleet.Subaccount, made bool, title, cancel string, examples *priceExamples) error {
	more := 0
	if t.on("more") {
		more = spareSegments
	}
	own, minutes, kilometers := t.ownSegments(plan)
	fields, groups := planForm(own, subs, made, min(maxRows, minutes+more), min(maxRows, kilometers+more))
	fill(fields, t.Values)
	var was web.Fields
	if made {
		was = t.openedWith(fields)
	}
	return p.showPlan(w, r, title, cancel, fields, was, groups, examples)
}

// ownSegments returns a plan without the segments that others have added since the form was opened, and the
// numbers of submitted rows: the form is shown again with these.
func (t *formInput) ownSegments(plan *fleet.Plan) (own *fleet.Plan, minutes, kilometers int) {
	own = new(*plan)
	minutes, kilometers = t.rows("per_min_pricing", "rate_amount"), t.rows("per_km_pricing", "rate_amount")
	own.PerMinute = plan.PerMinute[:min(minutes, len(plan.PerMinute))]
	own.PerKilometer = plan.PerKilometer[:min(kilometers, len(plan.PerKilometer))]
	return own, minutes, kilometers
}

// editPlan updates a plan, which creates a version.
func (p *pages) editPlan(w http.ResponseWriter, r *web.Request) error {
	plan, err := p.Fleet.Plan(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	sub, err := p.Fleet.Subaccount(r.Context(), p.DB, r.OrganizationID, plan.SubaccountID)
	if err != nil {
		return err
	}
	subs, back, title := []fleet.Subaccount{sub}, p.base+"/pricing/"+plan.ID, "Edit "+plan.Name
	fields, groups := planForm(&plan, subs, true, len(plan.PerMinute)+1, len(plan.PerKilometer)+1)
	settings, _, err := p.Fleet.Settings(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	examples, t := pricedExamples(&plan.Tariff, &settings), new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		examples = examplesOf(t, plan.Currency, &settings)
		if t.on("more") || t.on("preview") {
			return p.morePlan(w, r, t, &plan, subs, true, title, back, examples)
		}
		n := tariffOf(t, plan.Currency)
		c := fleet.PlanChange{
			Name: optional.Of(t.text("name")), Description: optional.Of(t.text("description")), URL: optional.Of(fleet.NullString(t.text("url"))), ExternalID: optional.Of(fleet.NullString(t.text("external_id"))),
			UnlockAmount: optional.Of(n.UnlockAmount), PerMinute: optional.Of(n.PerMinute), PerKilometer: optional.Of(n.PerKilometer),
			PausePerMinAmount: orNull(n.PausePerMinAmount), ReservationPerMin: orNull(n.ReservationPerMin), ReservationFlat: orNull(n.ReservationFlat),
			ReservationFreeMinutes: optional.Of(n.ReservationFreeMinutes), FareCap: orNull(n.FareCap), OutOfZoneAmount: orNull(n.OutOfZoneAmount),
			Taxable: optional.Of(n.Taxable), TaxBasisPoints: optional.Of(n.TaxBasisPoints), Active: optional.Of(t.on("active")),
		}
		own, minutes, kilometers := t.ownSegments(&plan)
		fields, groups = planForm(own, subs, true, max(minutes, len(n.PerMinute)+1), max(kilometers, len(n.PerKilometer)+1))
		saved, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) error {
			before, err := p.Fleet.LockPlanTx(ctx, tx, r.OrganizationID, plan.ID)
			if err != nil {
				return err
			}
			if c.Metadata, err = t.changedMetadata(before.Metadata); err != nil {
				return err
			}
			sub, err := p.Fleet.Subaccount(ctx, tx, r.OrganizationID, plan.SubaccountID) // others may have added vehicle types
			if err != nil {
				return err
			}
			c.VehicleTypeIDs = optional.Of(typesOf(t, &sub))
			after, err := p.Fleet.UpdatePlanTx(ctx, tx, r.OrganizationID, before, c)
			if err != nil {
				return err
			}
			stored := func(plan *fleet.Plan) web.Fields {
				fields, _ := planForm(plan, []fleet.Subaccount{sub}, true, len(plan.PerMinute)+1, len(plan.PerKilometer)+1)
				return fields
			}
			return t.checkStored(stored(&before), stored(&after))
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Plan saved as a new version, which applies to new rides."})
		}
	}
	return p.showPlan(w, r, title, back, fields, t.openedWith(fields), groups, examples)
}
