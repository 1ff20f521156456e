// Package fleettest is a model of a fleet for tests: states of vehicles and rides, rules of zones,
// prices and figures, written from the specification alone (fleet-api.md 1 to 8 and 12). It shares no code
// with the service, so that a test can compare both step by step.
//
// A [World] is one subaccount. Its methods take the time of the request and return what must be
// answered; they change the model only if the request succeeds. Times are whole milliseconds.
package fleettest

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Settings are the settings of the account that states depend on.
type Settings struct {
	LowBattery   int64 `json:"low_battery_percent"`
	ReadyBattery int64 `json:"battery_ready_percent"`
	MaxRide      int64 `json:"max_ride_minutes"`
	GraceSeconds int64 `json:"cancel_grace_seconds"`
	GraceMeters  int64 `json:"cancel_grace_meters"`
	ContactLost  int64 `json:"contact_lost_minutes"`
	MissingAfter int64 `json:"missing_after_hours"`
}

// Type is a vehicle type.
type Type struct {
	ID              string
	ReservableFor   int64 // minutes; 0: not at all
	LicenseRequired bool
	MinAge          int
}

// Point is a position in degrees.
type Point struct {
	Lat float64 `json:"lat"`
	Lng float64 `json:"lng"`
}

// Zone is a rectangle with the default rules of its type.
type Zone struct {
	ID       string
	Type     string
	Min, Max Point
	Priority int64
	OnlyType string // the vehicle type that its rule names; empty: all
}

// Customer is a rider.
type Customer struct {
	ID        string
	Status    string
	License   string
	Birth     time.Time // a date; zero: unknown
	Ride      *Ride     // the open one
	RideCount int64
	LastRide  time.Time
}

// Change is a state change of a vehicle.
type Change struct {
	State, Event string
	At           time.Time
	Place        *Point
	Missed       []string // the events of its ride, out of contact
}

// Vehicle is a vehicle.
type Vehicle struct {
	ID        string
	Type      *Type
	State     string
	Event     string // the last one; empty: none yet
	ChangedAt time.Time
	At        *Point
	Battery   *int64
	Odometer  *int64
	Plan      *Plan // its own
	Ride      *Ride // the open one
	Reported  time.Time
	Changes   []Change
	Deleted   bool

	former     string    // the state before contact was lost
	missed     []string  // the events of its ride since then
	flat       bool      // out of service because of its battery
	seen       time.Time // by a person
	freed      time.Time // the end of its last ride
	odometerAt time.Time
	located    fix // the last one in its track
}

// Ride is a ride.
type Ride struct {
	ID           string
	Status       string
	Trip         string
	Vehicle      *Vehicle
	Customer     *Customer
	Plan         *Plan // the version that it began with; nil: costs nothing
	Type         *Type
	ReservedAt   time.Time
	ExpiresAt    time.Time
	StartedAt    time.Time
	EndedAt      time.Time
	Seconds      int64
	Paused       int64
	Meters       *int64
	Start, End   *Point
	StartZone    string
	EndZone      string
	EndReason    string
	CancelReason string
	Price        *Price
	Payment      string

	pausedAt      time.Time
	startOdometer *int64
	positions     []fix     // in the track of the ride
	readings      []reading // of the odometer, in the track of the ride
}

// fix is a position at a time.
type fix struct {
	at time.Time
	Point
}

// reading is a value of an odometer.
type reading struct {
	at     time.Time
	meters int64
}

func (r *Ride) open() bool {
	return r.Status == "reserved" || r.Status == "active" || r.Status == "paused"
}

// Answer is the expected answer to a request.
type Answer struct {
	Status int
	Codes  []string // of a refusal: one of them
}

func ok(status int) Answer { return Answer{Status: status} }

func refused(status int, codes ...string) Answer { return Answer{Status: status, Codes: codes} }

// Refused reports whether the request must be refused.
func (a Answer) Refused() bool { return a.Status >= 400 }

// World is the model of a subaccount.
type World struct {
	Settings  Settings
	Vehicles  []*Vehicle
	Customers []*Customer
	Rides     []*Ride
	Zones     []*Zone
	Plan      *Plan // the subaccount's default
	Currency  string
	Zone      *time.Location

	// Measured returns the distance that the service measured for a ride which has just ended, nil for
	// none. The model checks it.
	Measured func(r *Ride) *int64
	// Wrong is called with each error that the model finds in a distance.
	Wrong func(text string)
}

// clockError is how late after a ride its odometer may be reported.
const clockError = 5 * time.Minute

// startReading and endReading are how long before the start and the end of a ride its odometer may be reported.
const (
	startReading = time.Hour
	endReading   = 2 * time.Minute
)

// topSpeed is the speed of vehicles of all types, in meters per second.
const topSpeed = 70

// Decide returns the rule for a point.
func (w *World) Decide(at *Point, kind *Type) (start, end bool, zoneID string) {
	var first *Zone
	areas := false
	for _, z := range w.Zones {
		areas = areas || z.Type == "service_area"
		if at == nil || z.OnlyType != "" && z.OnlyType != kind.ID ||
			at.Lat < z.Min.Lat || at.Lat > z.Max.Lat || at.Lng < z.Min.Lng || at.Lng > z.Max.Lng {
			continue
		}
		if first == nil || z.Priority < first.Priority || z.Priority == first.Priority && z.ID < first.ID {
			first = z
		}
	}
	if first == nil {
		return !areas, !areas, ""
	}
	switch first.Type {
	case "no_ride":
		return false, false, first.ID
	case "no_parking":
		return true, false, first.ID
	}
	return true, true, first.ID
}

// plan returns the plan of a new ride, nil if there is none.
func (w *World) plan(v *Vehicle) *Plan {
	p := w.Plan
	if v.Plan != nil {
		p = v.Plan
	}
	if p == nil || !p.Active {
		return nil
	}
	return p
}

func (w *World) low(v *Vehicle) bool { return v.Battery != nil && *v.Battery < w.Settings.LowBattery }

// change changes the state of a vehicle.
func (v *Vehicle) change(state, event string, at time.Time) {
	v.flat = state == "non_operational" && event == "battery_low"
	var missed []string
	if v.State == "non_contactable" && state == v.former {
		missed = v.missed
	}
	v.State, v.Event, v.ChangedAt, v.missed = state, event, at, nil
	switch event {
	case "provider_drop_off", "agency_drop_off", "located":
		v.seen = at
	}
	v.Changes = append(v.Changes, Change{state, event, at, v.At, missed})
}

// rideChange is change by a ride, where that started or ended: a vehicle out of contact changes its
// former state.
func (v *Vehicle) rideChange(state, event string, at time.Time, place *Point) {
	if v.State == "non_contactable" {
		v.former, v.flat = state, false
		v.missed = append(v.missed, event)
		return
	}
	v.change(state, event, at)
	v.Changes[len(v.Changes)-1].Place = place
}

// NewVehicle is a request for a vehicle.
type NewVehicle struct {
	Type     *Type
	State    string // removed or available
	At       *Point
	Battery  *int64
	Odometer *int64
	Plan     *Plan
}

// AddVehicle creates a vehicle.
func (w *World) AddVehicle(n NewVehicle, now time.Time) (*Vehicle, Answer) {
	v := &Vehicle{Type: n.Type, State: "removed", ChangedAt: now, At: n.At, Battery: n.Battery, Odometer: n.Odometer, Plan: n.Plan}
	switch {
	case n.State == "available" && n.At == nil:
		return nil, refused(422, "validation_failed")
	case n.State == "available" && w.low(v):
		return nil, refused(409, "vehicle_low_battery")
	case n.State == "available":
		v.change("available", "provider_drop_off", now)
	}
	if n.At != nil || n.Battery != nil || n.Odometer != nil {
		v.Reported = now
	}
	if n.Odometer != nil {
		v.odometerAt = now
	}
	w.Vehicles = append(w.Vehicles, v)
	return v, ok(201)
}

// events are the events of a change by request, the default first; none: no such change.
func events(from, to string) []string {
	switch from + ">" + to {
	case "available>non_operational":
		return []string{"maintenance", "off_hours", "system_suspend", "battery_low", "unspecified"}
	case "non_operational>available":
		return []string{"maintenance", "on_hours", "system_resume", "battery_charged", "unspecified"}
	case "available>removed", "non_operational>removed":
		return []string{"maintenance_pick_up", "rebalance_pick_up", "compliance_pick_up", "agency_pick_up", "decommissioned"}
	case "removed>available", "non_contactable>available", "missing>available":
		return []string{"provider_drop_off", "agency_drop_off"}
	case "missing>non_operational":
		return []string{"located"}
	case "missing>removed":
		return []string{"agency_pick_up", "decommissioned", "unspecified", "located"}
	case "non_contactable>removed":
		return []string{"agency_pick_up", "decommissioned", "unspecified"}
	}
	return nil
}

// SetState changes the state of a vehicle by request. event is empty for the default.
func (w *World) SetState(v *Vehicle, state, event string, now time.Time) Answer {
	if v.State == state {
		return ok(200)
	}
	valid := events(v.State, state)
	if event == "" && len(valid) > 0 {
		event = valid[0]
	}
	switch {
	case len(valid) > 0 && !slices.Contains(valid, event):
		return refused(422, "validation_failed")
	case v.Ride != nil:
		return refused(409, "vehicle_in_use")
	case len(valid) == 0, state == "available" && v.At == nil:
		return refused(409, "invalid_transition")
	case state == "available" && w.low(v):
		return refused(409, "vehicle_low_battery")
	}
	v.change(state, event, now)
	return ok(200)
}

// Report is telemetry of a vehicle; nil members were not reported.
type Report struct {
	At       *Point
	Battery  *int64
	Odometer *int64
	Time     time.Time
	Tracked  bool // part of the track
}

// Report applies telemetry. It returns false for a report that is older than the last one, which
// changes nothing.
func (w *World) Report(v *Vehicle, r Report, now time.Time) bool {
	if r.Tracked && r.At != nil {
		v.located = fix{r.Time, *r.At}
	}
	if r.Tracked && r.At != nil && v.Ride != nil && v.Ride.Status != "reserved" && !r.Time.Before(v.Ride.StartedAt) {
		v.Ride.positions = append(v.Ride.positions, v.located)
	}
	if r.Tracked && r.Odometer != nil && v.Ride != nil && v.Ride.Status != "reserved" && !r.Time.Before(v.Ride.StartedAt) {
		v.Ride.readings = append(v.Ride.readings, reading{r.Time, *r.Odometer})
	}
	if r.Time.Before(v.Reported) {
		return false
	}
	fresh := r.Time.After(v.Reported)
	v.Reported = r.Time
	if r.At != nil {
		v.At = r.At
	}
	if r.Battery != nil {
		v.Battery = r.Battery
	}
	if r.Odometer != nil {
		v.Odometer, v.odometerAt = r.Odometer, r.Time
	}
	switch {
	case !fresh:
	case v.State == "non_contactable":
		flat := v.flat
		v.change(v.former, "comms_restored", now)
		v.flat = flat
	case v.State == "missing":
		v.change("non_operational", "located", now)
	}
	if v.State == "available" && w.low(v) && (fresh || r.Battery != nil) {
		v.change("non_operational", "battery_low", now)
	}
	if r.Battery != nil && v.flat && v.State == "non_operational" && *v.Battery >= w.Settings.ReadyBattery {
		v.change("available", "battery_charged", now)
	}
	return true
}

// Delete deletes a vehicle.
func (w *World) Delete(v *Vehicle, now time.Time) Answer {
	if v.Ride != nil {
		return refused(409, "vehicle_in_use")
	}
	v.Deleted = true
	return ok(204)
}

// NewRide is a request for a ride.
type NewRide struct {
	Status   string // active or reserved
	Trip     string
	Vehicle  *Vehicle
	Customer *Customer
	Plan     *Plan // that the request names; nil: none
	Version  int64 // likewise; 0: none
	Start    *Point
}

// starts returns why a ride of a customer cannot start on a vehicle.
func (w *World) starts(v *Vehicle, c *Customer, at *Point, now time.Time) (codes []string) {
	if w.low(v) {
		codes = append(codes, "vehicle_low_battery")
	}
	if start, _, _ := w.Decide(at, v.Type); !start {
		codes = append(codes, "ride_start_not_allowed")
	}
	if c == nil {
		return codes
	}
	if v.Type.LicenseRequired && c.License != "verified" {
		codes = append(codes, "license_required")
	}
	if !c.Birth.IsZero() && w.age(c, now) < v.Type.MinAge {
		codes = append(codes, "age_required")
	}
	return codes
}

// age returns the age of a customer in years, by the date in the area.
func (w *World) age(c *Customer, now time.Time) int {
	today := now.In(w.Zone)
	years := today.Year() - c.Birth.Year()
	if today.Month() < c.Birth.Month() || today.Month() == c.Birth.Month() && today.Day() < c.Birth.Day() {
		years--
	}
	return years
}

// Begin starts or reserves a ride.
func (w *World) Begin(n NewRide, now time.Time) (*Ride, Answer) {
	v, c := n.Vehicle, n.Customer
	switch {
	case v.Deleted,
		n.Trip == "rider" && c == nil, n.Trip != "rider" && (c != nil || n.Plan != nil || n.Version != 0),
		n.Status == "reserved" && v.Type.ReservableFor == 0:
		return nil, refused(422, "validation_failed")
	}
	var codes []string
	if v.State != "available" || v.Ride != nil {
		codes = append(codes, "vehicle_unavailable")
	}
	if c != nil && c.Status != "active" {
		codes = append(codes, "customer_blocked")
	}
	if c != nil && c.Ride != nil {
		codes = append(codes, "customer_has_open_ride")
	}
	var plan *Plan
	if n.Trip == "rider" {
		plan = w.plan(v)
		if plan == nil {
			codes = append(codes, "no_pricing_plan")
		} else if n.Plan != nil && n.Plan.ID != plan.ID || n.Version != 0 && n.Version != plan.Version {
			codes = append(codes, "pricing_changed")
		}
	}
	if n.Status == "active" {
		codes = append(codes, w.starts(v, c, v.At, now)...)
	} else if w.low(v) {
		codes = append(codes, "vehicle_low_battery")
	}
	if len(codes) > 0 {
		return nil, refused(409, codes...)
	}
	r := &Ride{Trip: n.Trip, Vehicle: v, Customer: c, Type: v.Type, Payment: "not_due", Start: n.Start}
	if plan != nil {
		version := *plan
		r.Plan = &version
	}
	v.Ride = r
	if c != nil {
		c.Ride = r
	}
	if n.Status == "reserved" {
		r.Status, r.ReservedAt, r.ExpiresAt = "reserved", now, now.Add(time.Duration(v.Type.ReservableFor)*time.Minute)
		v.rideChange("reserved", "reservation_start", now, v.At)
	} else {
		w.start(r, now)
	}
	w.Rides = append(w.Rides, r)
	return r, ok(201)
}

func (w *World) start(r *Ride, now time.Time) {
	v := r.Vehicle
	_, _, r.StartZone = w.Decide(v.At, r.Type)
	r.Status, r.StartedAt = "active", now
	if !v.odometerAt.Before(now.Add(-startReading)) {
		r.startOdometer = v.Odometer
	}
	if v.located.at.Equal(now) { // a report of the moment of the start is part of the ride
		r.positions = append(r.positions, v.located)
	}
	if r.Start == nil {
		r.Start = v.At
	}
	if r.Customer != nil {
		r.Customer.LastRide = now
	}
	v.rideChange("on_trip", "trip_start", now, r.Start)
}

// Update is a request that changes a ride.
type Update struct {
	Status       string // empty: as it is
	At           *Point
	Meters       *int64
	EndReason    string // operator, or empty
	CancelReason string // likewise
	AcceptFee    bool
}

// Update moves a ride on.
func (w *World) Update(r *Ride, u Update, now time.Time) Answer {
	if u.Status == "" || u.Status == r.Status {
		return ok(200)
	}
	switch r.Status + ">" + u.Status {
	case "reserved>active":
		if r.Customer != nil && r.Customer.Status != "active" {
			return refused(409, append(w.starts(r.Vehicle, r.Customer, r.Vehicle.At, now), "customer_blocked")...)
		}
		if codes := w.starts(r.Vehicle, r.Customer, r.Vehicle.At, now); len(codes) > 0 {
			return refused(409, codes...)
		}
		w.start(r, now)
	case "reserved>cancelled":
		w.cancel(r, now, orRider(u.CancelReason))
	case "active>paused":
		r.Status, r.pausedAt = "paused", now
	case "paused>active":
		r.Status = "active"
		r.Paused += seconds(r.pausedAt, now)
	case "active>completed", "paused>completed":
		return w.complete(r, u, now)
	case "active>cancelled":
		moved := w.odometer(r, now)
		if moved == nil {
			moved = line(r.Start, r.Vehicle.At)
		}
		late := now.Sub(r.StartedAt) > time.Duration(w.Settings.GraceSeconds)*time.Second
		if u.CancelReason != "operator" && (late || moved != nil && *moved > w.Settings.GraceMeters) {
			return refused(409, "ride_not_cancellable")
		}
		w.cancel(r, now, orRider(u.CancelReason))
	default:
		return refused(409, "invalid_transition")
	}
	return ok(200)
}

func orRider(reason string) string {
	if reason == "" {
		return "rider"
	}
	return reason
}

func (w *World) complete(r *Ride, u Update, now time.Time) Answer {
	at := u.At
	if at == nil {
		at = r.Vehicle.At
	}
	_, end, _ := w.Decide(at, r.Type)
	outside := !end && u.EndReason != "operator"
	switch fee := r.Plan != nil && r.Plan.OutOfZone != nil; {
	case outside && !fee:
		return refused(409, "ride_end_not_allowed")
	case outside && !u.AcceptFee:
		return refused(409, "out_of_zone_fee_required")
	}
	w.finish(r, now, orRider(u.EndReason), at, u.Meters, outside)
	return ok(200)
}

// finish completes a ride.
func (w *World) finish(r *Ride, at time.Time, reason string, end *Point, meters *int64, outside bool) {
	v := r.Vehicle
	v.At, r.End = end, end
	_, _, r.EndZone = w.Decide(end, r.Type)
	r.close("completed", at)
	r.EndReason = reason
	if r.Meters = meters; meters == nil {
		w.measure(r, at)
	}
	use := r.reservation()
	use.Ridden, use.Seconds, use.Paused, use.Outside = true, r.Seconds, r.Paused, outside
	if r.Meters != nil {
		use.Meters = *r.Meters
	}
	w.price(r, use)
	if r.Customer != nil {
		r.Customer.RideCount++
	}
	w.free(r, "trip_end", at)
}

// close ends a ride and its pause.
func (r *Ride) close(status string, at time.Time) {
	if r.Status == "paused" {
		r.Paused += seconds(r.pausedAt, at)
	}
	if !r.StartedAt.IsZero() {
		r.Seconds = seconds(r.StartedAt, at)
	}
	r.Status, r.EndedAt = status, at
}

// free makes the vehicle of an ended ride available.
func (w *World) free(r *Ride, event string, at time.Time) {
	v := r.Vehicle
	v.Ride, v.freed = nil, at
	if r.Customer != nil {
		r.Customer.Ride = nil
	}
	place := v.At
	if place == nil {
		place = r.Start
	}
	v.rideChange("available", event, at, place)
	if v.State == "available" && w.low(v) {
		v.change("non_operational", "battery_low", at)
		v.Changes[len(v.Changes)-1].Place = place
	}
}

func (w *World) cancel(r *Ride, at time.Time, reason string) {
	event := "reservation_cancel"
	if r.Status != "reserved" {
		event = "trip_cancel"
	}
	r.close("cancelled", at)
	r.CancelReason = reason
	use := Use{}
	if reason != "operator" {
		use = r.reservation()
	}
	w.price(r, use)
	w.free(r, event, at)
}

// reservation returns the part of the use that a reservation is charged for.
func (r *Ride) reservation() Use {
	if r.ReservedAt.IsZero() {
		return Use{}
	}
	end := r.StartedAt
	if end.IsZero() {
		end = r.EndedAt
	}
	return Use{Reserved: true, ReservedSeconds: seconds(r.ReservedAt, end), ReservableMinutes: seconds(r.ReservedAt, r.ExpiresAt) / 60}
}

func (w *World) price(r *Ride, use Use) {
	p := Price{Currency: w.Currency}
	if r.Plan != nil {
		p = r.Plan.PriceOf(use)
	}
	r.Price = &p
	if r.Payment = "not_due"; p.Total > 0 {
		r.Payment = "due"
	}
}

// Adjust sets the adjustment of a ride.
func (w *World) Adjust(r *Ride, amount int64) Answer {
	switch {
	case r.Trip != "rider" && amount != 0:
		return refused(422, "validation_failed")
	case r.open() && amount != 0:
		return refused(409, "invalid_transition")
	case !r.open():
		r.Price.adjust(amount)
	}
	return ok(200)
}

// Pay sets the payment status of a ride.
func (w *World) Pay(r *Ride, status string) Answer {
	if r.open() && status != r.Payment {
		return refused(409, "invalid_transition")
	}
	r.Payment = status
	return ok(200)
}

// odometer returns the meters of a ride by the vehicle's odometer, nil if it was not reported during the ride.
func (w *World) odometer(r *Ride, end time.Time) *int64 {
	if r.startOdometer == nil || r.Vehicle.Odometer == nil {
		return nil
	}
	return r.between(*r.startOdometer, reading{r.Vehicle.odometerAt, *r.Vehicle.Odometer}, end)
}

// between returns the meters from a value of the odometer to one of a ride that ends.
func (r *Ride) between(from int64, to reading, end time.Time) *int64 {
	if to.at.Before(r.StartedAt) || to.at.After(end.Add(clockError)) || to.meters < from {
		return nil
	}
	meters := to.meters - from
	if to.at.After(end) {
		end = to.at
	}
	if float64(meters) > topSpeed*(end.Sub(r.StartedAt).Seconds()+60) {
		return nil
	}
	return &meters
}

// measured returns the meters of an ended ride by the odometer, nil unless it was reported at the start or during the
// ride, and at its end.
func (w *World) measured(r *Ride, end time.Time) *int64 {
	var starts []int64
	var ends []reading
	if r.startOdometer != nil {
		starts = append(starts, *r.startOdometer)
	}
	if v := r.Vehicle; v.Odometer != nil {
		ends = append(ends, reading{v.odometerAt, *v.Odometer})
	}
	slices.SortStableFunc(r.readings, func(a, b reading) int { return a.at.Compare(b.at) })
	readings := slices.DeleteFunc(slices.Clone(r.readings), func(o reading) bool { return o.at.After(end) })
	if len(readings) > 0 {
		ends = append(ends, readings[len(readings)-1])
		if readings[0].at.Before(end.Add(-endReading)) {
			starts = append(starts, readings[0].meters)
		}
	}
	for _, from := range starts {
		for _, to := range ends {
			if meters := r.between(from, to, end); meters != nil && !to.at.Before(end.Add(-endReading)) {
				return meters
			}
		}
	}
	return nil
}

// measure sets the distance of a ride that was not given.
func (w *World) measure(r *Ride, at time.Time) {
	want := w.measured(r, at)
	served := w.Measured(r)
	exact := want != nil
	if !exact {
		want = line(r.Start, r.End)
	}
	r.Meters = served
	switch {
	case want == nil && served == nil:
	case want == nil || served == nil:
		w.Wrong(fmt.Sprintf("ride %s has the distance %s, want %s", r.ID, text(served), text(want)))
	case exact && *served != *want:
		w.Wrong(fmt.Sprintf("ride %s has the distance %d, by the odometer %d", r.ID, *served, *want))
	case !exact && len(r.positions) < 2 && abs(*served-*want) > 1: // other arithmetic may round to another meter
		w.Wrong(fmt.Sprintf("ride %s has the distance %d, in a straight line %d", r.ID, *served, *want))
	case !exact && *served < *want-1 && r.isPossible(at):
		w.Wrong(fmt.Sprintf("ride %s has the distance %d along its track, in a straight line %d", r.ID, *served, *want))
	}
}

// isPossible reports whether the vehicle can have been at all positions of a ride at their times. If not,
// some do not count.
func (r *Ride) isPossible(end time.Time) bool {
	list := append([]fix{{r.StartedAt, *r.Start}}, r.positions...)
	slices.SortStableFunc(list, func(a, b fix) int { return a.at.Compare(b.at) })
	list = append(list, fix{end, *r.End})
	for i := range list[1:] {
		if from, to := &list[i], &list[i+1]; float64(*line(&from.Point, &to.Point)) > topSpeed*to.at.Sub(from.at).Seconds() {
			return false
		}
	}
	return true
}

func text(n *int64) string {
	if n == nil {
		return "null"
	}
	return fmt.Sprint(*n)
}

func abs(n int64) int64 { return max(n, -n) }

// line returns the meters between two points along the great circle, by the spherical law of
// cosines in vectors.
func line(a, b *Point) *int64 {
	if a == nil || b == nil {
		return nil
	}
	unit := func(p *Point) [3]float64 {
		lat, lng := p.Lat*math.Pi/180, p.Lng*math.Pi/180
		return [3]float64{math.Cos(lat) * math.Cos(lng), math.Cos(lat) * math.Sin(lng), math.Sin(lat)}
	}
	x, y := unit(a), unit(b)
	cross := [3]float64{x[1]*y[2] - x[2]*y[1], x[2]*y[0] - x[0]*y[2], x[0]*y[1] - x[1]*y[0]}
	dot := x[0]*y[0] + x[1]*y[1] + x[2]*y[2]
	angle := math.Atan2(math.Sqrt(cross[0]*cross[0]+cross[1]*cross[1]+cross[2]*cross[2]), dot)
	meters := int64(math.Round(angle * 6_371_008.8))
	return &meters
}

func seconds(from, to time.Time) int64 {
	return max(0, int64(to.Sub(from)/time.Second))
}

// due returns when a vehicle changes by itself; zero: never.
func (w *World) due(v *Vehicle) time.Time {
	if v.Deleted || v.Reported.IsZero() {
		return time.Time{}
	}
	silent := v.Reported
	if v.seen.After(silent) {
		silent = v.seen
	}
	switch v.State {
	case "removed", "missing":
		return time.Time{}
	case "non_contactable":
		if v.Ride != nil {
			return time.Time{}
		}
		silent = silent.Add(time.Duration(w.Settings.MissingAfter) * time.Hour)
	default:
		silent = silent.Add(time.Duration(w.Settings.ContactLost) * time.Minute)
	}
	for _, earliest := range []time.Time{v.ChangedAt, v.freed} {
		if silent.Before(earliest) {
			silent = earliest
		}
	}
	return silent
}

// due returns when a ride ends by itself; zero: never.
func (r *Ride) due(s Settings) time.Time {
	switch r.Status {
	case "reserved":
		return r.ExpiresAt
	case "active", "paused":
		return r.StartedAt.Add(time.Duration(s.MaxRide) * time.Minute)
	}
	return time.Time{}
}

// Deadlines returns the times from now on at which something happens by itself or becomes
// impossible.
func (w *World) Deadlines() (list []time.Time) {
	for _, v := range w.Vehicles {
		if at := w.due(v); !at.IsZero() {
			list = append(list, at)
		}
		if r := v.Ride; r != nil {
			list = append(list, r.due(w.Settings))
			if r.Status == "active" {
				list = append(list, r.StartedAt.Add(time.Duration(w.Settings.GraceSeconds)*time.Second))
			}
		}
	}
	return list
}

// Pass applies the changes due until a time, in the order of time.
func (w *World) Pass(until time.Time) {
	for {
		var next *Vehicle
		var at time.Time
		ofRide := false
		for _, v := range w.Vehicles {
			if due := w.due(v); !due.IsZero() && (next == nil || due.Before(at)) {
				next, at, ofRide = v, due, false
			}
			if v.Ride != nil {
				if due := v.Ride.due(w.Settings); next == nil || due.Before(at) {
					next, at, ofRide = v, due, true
				}
			}
		}
		if next == nil || at.After(until) {
			return
		}
		switch r := next.Ride; {
		case ofRide && r.Status == "reserved":
			w.cancel(r, at, "reservation_expired")
		case ofRide:
			w.finish(r, at, "max_duration", next.At, nil, false)
		case next.State == "non_contactable":
			next.change("missing", "not_located", at)
		default:
			former, flat := next.State, next.flat
			next.change("non_contactable", "comms_lost", at)
			next.former, next.flat = former, flat
		}
	}
}
