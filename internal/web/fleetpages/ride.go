package fleetpages

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// ridePage is the body of the page of a ride.
type ridePage struct {
	*fleet.Ride
	Topic      string
	Path       string
	State      web.Badge
	Payment    web.Badge
	Trip       string // empty for a rider trip
	Rider      namedLink
	Vehicle    namedLink
	Plan       namedLink
	Subaccount namedLink
	From, To   namedLink // zones of start and end
	Lasted     rideDuration
	Paused     string // total; empty for none
	Distance   string
	Parking    string
	Expires    web.Time // of a reservation
	Due        web.Time // maximum duration reached
	Terms      []string // by the version of its plan
	Receipt    []line
	SoFar      string // price at present, without distance
	Moves      []action
	Adjust     bool
	Nearest    string // link to the vehicles nearest to its end or vehicle; empty: unknown
	Map        *smallMap
	Replay     *replay // nil: no track
	Events     []historyEntry
	Audit      []auditRow
}

// parkingCategories are the labels of parking categories.
var parkingCategories = map[string]string{
	"corral": "Corral", "curb": "Curb", "rack": "Rack", "other_valid": "Elsewhere, allowed", "invalid": "Not allowed",
}

// action is an action offered for a ride.
type action struct {
	Status string // resulting status
	Label  string
	Icon   string
	Path   string // of the form; empty if the button suffices
	Danger bool
}

// historyEntry is an entry of the timeline.
type historyEntry struct {
	At   web.Time
	What string
	By   string
	Note string
}

// auditRow is an audit entry.
type auditRow struct {
	At   web.Time
	What string
	By   string
}

// rideActions are the actions allowed by the status, other conditions aside.
func rideActions(s fleet.RideStatus, path string) []action {
	var list []action
	for _, next := range s.Next() {
		m := action{Status: string(next)}
		switch next {
		case fleet.Active:
			m.Label, m.Icon = "Start", "play"
			if s == fleet.Paused {
				m.Label = "Resume"
			}
		case fleet.Paused:
			m.Label, m.Icon = "Pause", "pause"
		case fleet.Completed:
			m.Label, m.Icon, m.Path = "End ride", "check", path+"/end"
		case fleet.Cancelled:
			m.Label, m.Icon, m.Path, m.Danger = "Cancel", "x", path+"/cancel", true
		}
		list = append(list, m)
	}
	return list
}

// ride shows a ride.
func (p *pages) ride(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	read, err := p.Fleet.Ride(ctx, p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	doc, err := read.Record() // as of now
	if err != nil {
		return err
	}
	list, err := decode[fleet.Ride]([]fleet.Record{doc})
	if err != nil {
		return err
	}
	ride := &list[0]
	b := ridePage{
		Ride: ride, Topic: p.topic("ride", ride.ID), Path: p.base + "/rides/" + ride.ID, State: web.BadgeFor(rideBadges, ride.Status), Payment: web.BadgeFor(paymentBadges, ride.PaymentStatus),
		Lasted: durationOf(ride), Adjust: ride.Price != nil,
	}
	b.Moves = rideActions(ride.Status, b.Path)
	if ride.TripType != fleet.RiderTrip {
		b.Trip = tripTypeLabel(ride.TripType)
	}
	if category := string(ride.ParkingCategory); category != "" {
		b.Parking = cmp.Or(parkingCategories[category], category)
	}
	if ride.PausedSeconds > 0 {
		b.Paused = formatDuration(ride.PausedSeconds)
	}
	if ride.DistanceMeters != nil {
		b.Distance = distance(*ride.DistanceMeters)
	}
	if ride.Status == fleet.Reserved {
		b.Expires = r.Time(ride.ReservationExpiresAt.Std())
	}
	if err := p.setRideLinks(ctx, r, list, &b); err != nil {
		return err
	}
	if err := p.price(ctx, r, ride, &b); err != nil {
		return err
	}
	if err := p.drawRide(ctx, r, ride, &b); err != nil {
		return err
	}
	if b.Events, err = p.rideEvents(ctx, r, &read, ride); err != nil {
		return err
	}
	if b.Audit, err = p.audit(ctx, r, ride.ID); err != nil {
		return err
	}
	title := "Ride on " + b.Vehicle.Name
	if b.Rider.Name != "" {
		title = "Ride of " + b.Rider.Name + " on " + b.Vehicle.Name
	}
	page := p.page(r, "/rides", title, b)
	page.Scripts = []string{"ticking.js"}
	if b.Replay != nil {
		page.Scripts = append(page.Scripts, "replay.js")
	}
	return p.Render(w, r, "ride", page)
}

// setRideLinks sets the links of a ride to other records.
func (p *pages) setRideLinks(ctx context.Context, r *web.Request, rides []fleet.Ride, b *ridePage) error {
	ride := &rides[0]
	riders, vehicles, err := p.rideLinks(ctx, r, rides)
	if err != nil {
		return err
	}
	b.Rider, b.Vehicle = riders[string(ride.CustomerID)], vehicles[ride.VehicleID]
	if b.Subaccount, err = p.subaccountLink(ctx, r, ride.SubaccountID); err != nil {
		return err
	}
	if b.From, err = p.zoneLink(ctx, r, string(ride.StartZoneID)); err != nil {
		return err
	}
	if b.To, err = p.zoneLink(ctx, r, string(ride.EndZoneID)); err != nil {
		return err
	}
	return nil
}

// price sets the price, or the price so far, with its receipt.
func (p *pages) price(ctx context.Context, r *web.Request, ride *fleet.Ride, b *ridePage) error {
	explained, err := p.Fleet.ExplainRide(ctx, p.DB, r.OrganizationID, ride)
	if err != nil {
		return err
	}
	switch {
	case explained.Final:
		b.Receipt = receipt(explained.Explanation)
	case ride.TripType == fleet.RiderTrip && ride.Status != fleet.Reserved:
		b.SoFar = web.Money(explained.TotalAmount, explained.Currency)
	}
	if ride.PricingPlanID == "" || ride.PricingPlanVersion == nil {
		return nil
	}
	plan, err := p.Fleet.Plan(ctx, p.DB, r.OrganizationID, string(ride.PricingPlanID))
	if err != nil {
		return err
	}
	b.Plan = namedLink{p.base + "/pricing/" + plan.ID, plan.Name}
	terms, err := p.Fleet.PlanTariff(ctx, p.DB, r.OrganizationID, plan.ID, *ride.PricingPlanVersion)
	if err != nil {
		return err
	}
	b.Terms = terms.Terms()
	return nil
}

// drawRide draws start and end of a ride, or its vehicle's location, and its track if there is one.
func (p *pages) drawRide(ctx context.Context, r *web.Request, ride *fleet.Ride, b *ridePage) (err error) {
	spots := []spot{{ride.StartLocation, "from", "Start"}, {ride.EndLocation, "to", "End"}}
	what := "Start and end of the ride, connected by a straight line: the route is unknown."
	if ride.Status.Open() {
		v, err := p.Fleet.Vehicle(ctx, p.DB, r.OrganizationID, ride.VehicleID)
		if err != nil {
			return err
		}
		spots[1] = spot{v.Location, "at", "Current location"}
		what = "Start of the ride and last location of the vehicle."
	}
	b.Nearest = p.nearestPath(spots[1].At)
	if b.Replay, err = p.replay(ctx, r, ride); err != nil {
		return err
	}
	var line []geo.Position
	if b.Replay != nil {
		line, what = b.Replay.line, "The track of the ride, as its vehicle reported it. The table below has its positions."
	}
	m, v, err := p.trackMap(ctx, r, ride.SubaccountID, what, line, spots...)
	if err != nil {
		return err
	}
	if b.Map = m; m == nil {
		b.Replay = nil
	} else if b.Replay != nil {
		b.Replay.draw(v)
	}
	return nil
}

// rideEvents returns the timeline of a ride, with actors from the vehicle's state
// changes. stored is the ride without current durations.
func (p *pages) rideEvents(ctx context.Context, r *web.Request, stored, ride *fleet.Ride) ([]historyEntry, error) {
	changes, err := p.Fleet.RideChanges(ctx, p.DB, r.OrganizationID, stored)
	if err != nil {
		return nil, err
	}
	who := func(events ...fleet.VehicleEvent) string {
		for _, c := range changes {
			if slices.Contains(events, c.Event) {
				return actor(r, c.Actor)
			}
		}
		return ""
	}
	var list []historyEntry
	add := func(h historyEntry) {
		if !h.At.IsZero() {
			list = append(list, h)
		}
	}
	add(historyEntry{At: r.Time(ride.ReservedAt.Std()), What: "Reserved", By: who("reservation_start")})
	add(historyEntry{At: r.Time(ride.StartedAt.Std()), What: "Started", By: who("trip_start")})
	for _, c := range changes {
		if c.Event == "comms_lost" || c.Event == "comms_restored" {
			add(historyEntry{At: r.Time(c.At.Std()), What: eventLabel(c.Event)})
		}
	}
	end := historyEntry{At: r.Time(ride.EndedAt.Std()), What: "Ended", By: who("trip_end")}
	if ride.Status == fleet.Cancelled {
		end.What, end.By = "Cancelled", who("trip_cancel", "reservation_cancel")
	}
	switch ride.EndReason + ride.CancelReason {
	case "rider":
		end.Note = "on behalf of the rider"
	case "operator":
		end.Note = "by support, without zone checks or fees"
		if ride.Status == fleet.Cancelled {
			end.Note = "by support, free of charge"
		}
	case "max_duration":
		end.Note = "automatically: maximum duration reached"
	case "reservation_expired":
		end.Note = "automatically: reservation expired"
	}
	add(end)
	return list, nil
}

// actor is the name of an actor for the reader.
func actor(r *web.Request, by fleet.Actor) string {
	switch {
	case by.Type == string(audit.User) && string(by.ID) == r.UserID:
		return "you"
	case by.Type == string(audit.User):
		return "a member of " + r.Organization.Name
	case by.Type == string(audit.Key):
		return "the API"
	}
	return "" // system
}

// audit returns a record's audit entries, if the reader may see them.
func (p *pages) audit(ctx context.Context, r *web.Request, id string) ([]auditRow, error) {
	if !r.Admin() {
		return nil, nil
	}
	log, err := audit.List(ctx, []*audit.Log{p.Log}, r.OrganizationID, audit.Query{TargetID: id, Limit: 20})
	if err != nil {
		return nil, err
	}
	var list []auditRow
	for _, e := range log.Entries {
		actor := e.Source.Actor
		by := cmp.Or(actor.Email, string(actor.Type))
		if actor.Type == audit.Key {
			by = "an API key"
		}
		list = append(list, auditRow{r.Time(e.At), auditLabel(e.Action), by})
	}
	return list, nil
}

// auditLabel is the label of an audit action.
func auditLabel(a audit.Action) string {
	switch a {
	case fleet.RideEndedByOperator:
		return "Ended by support"
	case fleet.RideUpdated:
		return "Changed from a ticket"
	case fleet.VehicleUpdated:
		return "Changed from a ticket or with others"
	case fleet.CustomerWasBlocked:
		return "Blocked"
	case fleet.CustomerUnblocked:
		return "Unblocked"
	case fleet.CustomerAnonymized:
		return "Anonymized"
	case fleet.PricingCreated, fleet.SubaccountCreated, fleet.ZoneCreated:
		return "Created"
	case fleet.PricingUpdated, fleet.SubaccountUpdated, fleet.ZoneUpdated, fleet.SettingsUpdated:
		return "Updated"
	case fleet.SandboxReset:
		return "Reset"
	case fleet.SandboxClockAdvanced:
		return "Clock advanced"
	}
	return string(a)
}

// subaccountLink links to a subaccount by name.
func (p *pages) subaccountLink(ctx context.Context, r *web.Request, id string) (namedLink, error) {
	s, err := p.Fleet.Subaccount(ctx, p.DB, r.OrganizationID, id)
	return namedLink{p.base + "/subaccounts/" + id, s.Name}, err
}

// zoneLink links to a zone by name, if it still exists.
func (p *pages) zoneLink(ctx context.Context, r *web.Request, id string) (namedLink, error) {
	if id == "" {
		return namedLink{}, nil
	}
	z, err := p.Fleet.Zone(ctx, p.DB, r.OrganizationID, id)
	if problem.Of(err) == problem.NotFound {
		return namedLink{Name: id + " (deleted)"}, nil
	}
	return namedLink{p.base + "/zones/" + id, z.Name}, err
}

// setRideStatus pauses, resumes or starts a ride.
func (p *pages) setRideStatus(w http.ResponseWriter, r *web.Request) error {
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	to := fleet.RideStatus(values.Get("status"))
	if to != fleet.Active && to != fleet.Paused {
		return problem.New(problem.Invalid, "Must be active or paused.")
	}
	id := r.PathValue("id")
	if _, err := p.updateRide(r, id, fleet.RideChange{Status: optional.Of(to)}); err != nil {
		return err
	}
	text := "Ride resumed."
	if to == fleet.Paused {
		text = "Ride paused."
	}
	return p.Redirect(w, p.base+"/rides/"+id, web.Notice{Text: text})
}

// updateRide updates a ride in a transaction.
func (p *pages) updateRide(r *web.Request, id string, c fleet.RideChange) (updated fleet.Ride, err error) {
	err = p.write(r, func(ctx context.Context, tx *db.Tx) error {
		ride, err := p.Fleet.LockRideTx(ctx, tx, r.OrganizationID, id)
		if err != nil {
			return err
		}
		if c.Status.Set && !ride.Status.Open() {
			return problem.New(problem.Conflict, "The ride is already %s.", ride.Status)
		}
		updated, err = p.Fleet.UpdateRideTx(ctx, tx, r.OrganizationID, ride, c, by(r))
		return err
	})
	return updated, err
}

// rideNote is the note on a ticket about an ended ride.
func rideNote(done string, ride *fleet.Ride) string {
	text := done + " ride " + ride.ID + "."
	if ride.Price != nil {
		text += " Price: " + web.Money(ride.Price.TotalAmount, ride.Price.Currency)
		if n := ride.AdjustmentAmount; n != 0 {
			text += ", with an adjustment of " + web.Money(n, ride.Price.Currency)
		}
		text += ". Payment: " + strings.ToLower(web.BadgeFor(paymentBadges, ride.PaymentStatus).Text) + "."
	}
	return text
}

// openRide returns a ride that can become to. Errors: NotFound; Conflict.
func (p *pages) openRide(r *web.Request, to fleet.RideStatus) (fleet.Ride, error) {
	ride, err := p.Fleet.Ride(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return ride, err
	}
	if !slices.Contains(ride.Status.Next(), to) {
		return ride, problem.New(problem.Conflict, "The ride is %s and can't become %s.", ride.Status, to)
	}
	return ride, nil
}

// endRide completes a ride.
func (p *pages) endRide(w http.ResponseWriter, r *web.Request) error {
	ride, err := p.openRide(r, fleet.Completed)
	if err != nil {
		return err
	}
	from, err := p.origin(r, p.base+"/rides/"+ride.ID)
	if err != nil {
		return err
	}
	fields := append(web.Fields{
		{Name: "end_reason", Label: "Ended by", Type: "select", Value: "operator", Options: []web.Option{
			{Value: "operator", Label: "Support: anywhere, without an out-of-zone fee"}, {Value: "rider", Label: "The rider: zone rules and fees apply"},
		}},
		{Name: "accept_out_of_zone_fee", Label: "Charge the out-of-zone fee to the rider", Type: "checkbox", Optional: true},
		{Name: "distance_meters", Label: "Distance (meters)", Type: "text", Mode: "numeric", Optional: true, Help: "Empty: by the odometer, or else the straight line."},
	}, positionFields("end_location", nil, "Default: the vehicle's last location.")...)
	page := p.frame(r, from, "/rides", "End ride")
	f := form{
		Intro: "The rider is charged for the time until now. The vehicle becomes available.", Label: "End ride", Cancel: from.path,
		Groups: layout(fields, part{"", "", 3, false}, part{"Where it ended", "", 0, true}),
	}
	if r.Method == http.MethodPost {
		values, ok := p.Form(w, r)
		if !ok {
			return nil
		}
		t := &formInput{Values: values}
		c := fleet.RideChange{Status: optional.Of(fleet.Completed), EndReason: optional.Of(fleet.NullString(t.text("end_reason"))), AcceptOutOfZoneFee: optional.Of(t.on("accept_out_of_zone_fee"))}
		if n := t.optional("distance_meters"); n != nil {
			c.DistanceMeters = optional.Of(*n)
		}
		if at := t.position("end_location"); at != nil {
			c.EndLocation = optional.Of(*at)
		}
		fields.Fill(values)
		var ended fleet.Ride
		err := t.v.Err()
		if err == nil {
			ended, err = p.updateRide(r, ride.ID, c)
		}
		if err == nil {
			return p.finish(w, r, from, "Ride ended.", rideNote("Ended", &ended))
		}
		if e, ok := errors.AsType[*problem.Error](err); ok {
			if e.Code == "ride_end_not_allowed" || e.Code == "out_of_zone_fee_required" {
				err = &problem.Error{Kind: problem.Invalid, Issues: []problem.Issue{endRefusal(e)}}
			}
		}
		if !refused(fields, err) {
			return err
		}
	}
	return p.showForm(w, r, page, fields, f)
}

// endRefusal turns a refusal of the end into the issue of a field.
func endRefusal(e *problem.Error) problem.Issue {
	amount, ok := e.Details["out_of_zone_amount"].(int64)
	if currency, _ := e.Details["currency"].(string); ok {
		return problem.Issue{Path: "accept_out_of_zone_fee", Message: "must be checked: ending there costs " + web.Money(amount, currency)}
	}
	return problem.Issue{Path: "end_reason", Message: "must be support: riders can't end a ride there"}
}

// cancelRide cancels a ride.
func (p *pages) cancelRide(w http.ResponseWriter, r *web.Request) error {
	ride, err := p.openRide(r, fleet.Cancelled)
	if err != nil {
		return err
	}
	from, err := p.origin(r, p.base+"/rides/"+ride.ID)
	if err != nil {
		return err
	}
	fields := web.Fields{{Name: "cancel_reason", Label: "Cancelled by", Type: "select", Value: "operator", Options: []web.Option{
		{Value: "operator", Label: "Support: free of charge"}, {Value: "rider", Label: "The rider: the reservation is charged"},
	}, Help: "Riders can only cancel a ride shortly after its start."}}
	if r.Method == http.MethodPost {
		values, ok := p.Form(w, r)
		if !ok {
			return nil
		}
		fields.Fill(values)
		ended, err := p.updateRide(r, ride.ID, fleet.RideChange{Status: optional.Of(fleet.Cancelled), CancelReason: optional.Of(fleet.NullString(values.Get("cancel_reason")))})
		if err == nil {
			return p.finish(w, r, from, "Ride cancelled.", rideNote("Cancelled", &ended))
		}
		if !refused(fields, err) {
			return err
		}
	}
	return p.showForm(w, r, p.frame(r, from, "/rides", "Cancel ride"), fields, form{
		Intro: "The vehicle becomes available. This can't be undone.", Label: "Cancel ride", Danger: true, Cancel: from.path,
	})
}

// adjustRide updates adjustment and payment status of an ended ride.
func (p *pages) adjustRide(w http.ResponseWriter, r *web.Request) error {
	ride, err := p.Fleet.Ride(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	if ride.Price == nil {
		return problem.New(problem.Conflict, "The price can be adjusted after the ride has ended.")
	}
	from, err := p.origin(r, p.base+"/rides/"+ride.ID)
	if err != nil {
		return err
	}
	currency := ride.Price.Currency
	fields, mark, t := adjustmentFields(&ride), adjustmentMark(&ride), new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		c := fleet.RideChange{PaymentStatus: optional.Of(t.text("payment_status"))}
		if ride.TripType == fleet.RiderTrip {
			if n := t.amount("adjustment_amount", currency); n != nil {
				c.AdjustmentAmount = optional.Of(*n)
			}
			c.AdjustmentReason = optional.Of(fleet.NullString(t.text("adjustment_reason")))
		}
		var adjusted fleet.Ride
		saved, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) error {
			before, err := p.Fleet.LockRideTx(ctx, tx, r.OrganizationID, ride.ID)
			if err != nil {
				return err
			}
			if adjusted, err = p.Fleet.UpdateRideTx(ctx, tx, r.OrganizationID, before, c, by(r)); err != nil {
				return err
			}
			return t.checkStored(adjustmentMark(&before), adjustmentMark(&adjusted))
		})
		if err != nil {
			return err
		}
		if saved {
			return p.finish(w, r, from, "Adjustment saved.", rideNote("Adjusted", &adjusted))
		}
	}
	return p.showForm(w, r, p.frame(r, from, "/rides", "Adjust price"), fields, form{
		Intro: "The ride costs " + web.Money(ride.Price.TotalAmount, currency) + ". This only updates the record; no money is transferred.", Was: t.openedWith(mark), Label: "Save", Cancel: from.path,
	})
}

// adjustmentMark are the fields of the adjustment with the price that it adjusts, which late reports correct.
func adjustmentMark(ride *fleet.Ride) web.Fields {
	p := ride.Price
	return append(adjustmentFields(ride), web.Field{Name: "price", Label: "Price", Value: plain(p.SubtotalAmount+p.TaxAmount, p.Currency)})
}

// adjustmentFields are the fields of the adjustment and the payment of an ended ride.
func adjustmentFields(ride *fleet.Ride) web.Fields {
	fields := web.Fields{{Name: "payment_status", Label: "Payment", Type: "select", Value: ride.PaymentStatus, Options: paymentStatuses}}
	if ride.TripType != fleet.RiderTrip {
		return fields
	}
	currency := ride.Price.Currency
	return append(fields,
		web.Field{Name: "adjustment_amount", Label: "Adjustment, in " + currency, Type: "text", Value: plain(ride.AdjustmentAmount, currency),
			Help: "Negative amounts are refunds: -" + plain(150, currency) + ". Replaces the previous adjustment. The total is at least 0."},
		web.Field{Name: "adjustment_reason", Label: "Reason", Type: "text", Optional: true, Most: 500, Value: string(ride.AdjustmentReason)})
}
