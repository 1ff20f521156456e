package fleet

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/tariff"

	"github.com/oklog/ulid/v2"
)

// simulator generates a deterministic demo fleet: two cities with vehicles in every
// state, customers, and the rides that led there. It replays rides in start order,
// each with a free vehicle and customer, from the vehicle's place to a place where
// the ride may end, priced by the plan. So the result satisfies every rule in
// fleet-api.md.
//
// Ids depend on the organization and the environment; those of rides and events
// also on the day. Past rides depend on the day, open ones on the time.
type simulator struct {
	organization Organization
	live         bool
	now          time.Time // in whole milliseconds
	today        time.Time // start of the day, UTC; past rides end at least two hours before
	settings     *Settings
	size         SeedSize
	history      bool // record state changes of vehicles

	salt    uint64
	random  *rand.Rand
	rideIDs idSequence
	changes idSequence
	cities  []*simCity
}

// SeedSize is the number of records to generate.
type SeedSize struct {
	Vehicles  int
	Customers int
	Rides     int
	Days      int // before today with rides
}

// sandboxSize is the size of a new sandbox (fleet-api.md 6.10).
var sandboxSize = SeedSize{Vehicles: 40, Customers: 30, Rides: 500, Days: 90}

// simCity is a subaccount with its records.
type simCity struct {
	sub       Subaccount
	plans     []*Plan
	zones     []*Zone
	vehicles  []*simVehicle
	customers []*simCustomer

	template *cityTemplate
	clock    *time.Location
	fences   *fences
}

// simVehicle is a vehicle with its simulation state.
type simVehicle struct {
	Vehicle
	kind  *VehicleType
	plan  *Plan
	fate  fate
	free  time.Time // when it is available again
	until time.Time // when it stops being available
	level float64   // battery level in percent
	task  *Task     // nil: none
}

// simCustomer is a customer with its simulation state.
type simCustomer struct {
	Customer
	free  time.Time
	until time.Time
}

// idSequence generates reproducible ids of one kind.
type idSequence struct {
	salt uint64
	next uint64
	same *ulid.MonotonicEntropy // ascending within a millisecond
}

func (n *idSequence) Read(p []byte) (int, error) {
	n.next++
	e := entropy{n.salt ^ n.next*0xd1342543de82ef95}
	return e.Read(p)
}

func (f *simulator) newIDSequence(prefix string) idSequence {
	return idSequence{salt: hashOf(f.organization.ID, fmt.Sprint(f.live), prefix)}
}

func (n *idSequence) id(prefix string, at time.Time) string {
	if n.same == nil {
		n.same = ulid.Monotonic(n, 1)
	}
	return newID(prefix, at, n.same)
}

func hashOf(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		io.WriteString(h, p)
		h.Write([]byte{0})
	}
	return h.Sum64()
}

// newSimulator generates cities, vehicles and customers.
func newSimulator(o Organization, live bool, settings *Settings, now time.Time, size SeedSize) *simulator {
	f := &simulator{organization: o, live: live, now: now.UTC().Truncate(time.Millisecond), settings: settings, size: size, history: true}
	f.today = f.now.Truncate(24 * time.Hour)
	f.salt = hashOf(o.ID, fmt.Sprint(live))
	f.random = rand.New(rand.NewPCG(f.salt, uint64(f.today.Unix())))
	f.rideIDs, f.changes = f.newIDSequence(ridePrefix), f.newIDSequence(eventPrefix)
	f.makeCities()
	f.makeVehicles()
	f.makeCustomers()
	return f
}

// id returns a reproducible id.
func (f *simulator) id(prefix string, at time.Time, number int) string {
	return newID(prefix, at, &entropy{hashOf(f.organization.ID, fmt.Sprint(f.live), prefix) ^ uint64(number+1)*0xd1342543de82ef95})
}

func (f *simulator) head(prefix, object, subaccountID string, at time.Time, number int) RecordHeader {
	return RecordHeader{ID: f.id(prefix, at, number), Object: object, Live: f.live, SubaccountID: subaccountID}
}

func timestampsAt(at time.Time) Timestamps {
	return Timestamps{Metadata: map[string]string{}, CreatedAt: rfc3339.Time(at), UpdatedAt: rfc3339.Time(at)}
}

// slug is the prefix of feed ids: the organization's name, abbreviated, and a hash
// that makes it unique.
func (f *simulator) slug() string {
	var b strings.Builder
	for _, r := range strings.ToLower(f.organization.Name) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	name := strings.Trim(b.String()[:min(b.Len(), 24)], "_")
	if name != "" {
		name += "_"
	}
	return fmt.Sprintf("%s%08x", name, uint32(hashOf(f.organization.ID)))
}

func (f *simulator) makeCities() {
	zones, plans, types := 0, 0, 0
	for n := range cityTemplates {
		p := &cityTemplates[n]
		founded := time.Date(2025, time.January, 7+n, 9, 0, 0, 0, time.UTC)
		clock, err := time.LoadLocation(p.timeZone)
		if err != nil {
			clock = time.UTC // affects only the rush hours
		}
		c := &simCity{template: p, clock: clock}
		c.sub = Subaccount{
			ID: f.id(subaccountPrefix, founded, n), Object: "subaccount", Live: f.live, Name: p.name, Status: "active",
			TimeZone: p.timeZone, Currency: p.currency, CountryCode: NullString(p.country), GlobalRules: []Rule{}, Alerts: []Alert{},
			GBFS: GBFS{
				Enabled: true, SystemID: NullString(f.slug() + "_" + strings.ToLower(p.name)), Operator: NullString(nameOf(f.organization)),
				OpeningHours: "24/7", ContactEmail: "feed@example.com", LicenseID: "CC0-1.0",
			},
			CreatedAt: rfc3339.Time(founded), UpdatedAt: rfc3339.Time(founded), revision: 1,
		}
		for _, t := range p.types {
			t.ID = f.id(typePrefix, founded, types)
			c.sub.VehicleTypes = append(c.sub.VehicleTypes, t)
			types++
		}
		for i, plan := range p.plans {
			at := founded.Add(time.Duration(i+1) * time.Minute)
			plan.RecordHeader, plan.Timestamps = f.head(planPrefix, "pricing_plan", c.sub.ID, at, plans), timestampsAt(at)
			plan.Active, plan.Version, plan.revision = true, 1, 1
			plan.VehicleTypeIDs = []string{}
			for _, t := range p.planTypes[i] {
				plan.VehicleTypeIDs = append(plan.VehicleTypeIDs, c.sub.VehicleTypes[t].ID)
				if i > 0 {
					c.sub.VehicleTypes[t].DefaultPricingPlanID = NullString(plan.ID)
				}
			}
			c.plans = append(c.plans, &plan)
			plans++
		}
		c.sub.DefaultPricingPlanID = NullString(c.plans[0].ID)
		if p.alert != "" {
			at := founded.Add(time.Hour)
			c.sub.Alerts = append(c.sub.Alerts, Alert{ID: f.id(alertPrefix, at, n), Type: "other", Summary: p.alert, StartsAt: rfc3339.Time(at)})
		}
		var around []fence
		for _, shape := range p.zones {
			at := founded.Add(time.Duration(zones+30) * time.Minute)
			z := &Zone{
				RecordHeader: f.head(zonePrefix, "zone", c.sub.ID, at, zones), Name: shape.name, Description: NullString(shape.description), Type: shape.kind,
				Geometry: shape.area(), Timestamps: timestampsAt(at), revision: 1,
			}
			z.Priority, z.Rules = shape.kind.defaults()
			if shape.kind == CustomZone {
				z.Priority = 25
				z.Rules = []Rule{
					{VehicleTypeIDs: []string{c.sub.VehicleTypes[shape.only].ID}, StartAllowed: true, EndAllowed: true, ThroughAllowed: true},
					{ThroughAllowed: true},
				}
			}
			c.zones = append(c.zones, z)
			around = append(around, fence{id: z.ID, kind: z.Type, area: z.Geometry, rules: z.Rules, priority: z.Priority})
			zones++
		}
		c.fences = newFences(around)
		f.cities = append(f.cities, c)
	}
}

// makeVehicles creates the vehicles at their first locations.
func (f *simulator) makeVehicles() {
	every := 0 // vehicles of one round through all cities
	for _, c := range f.cities {
		every += len(c.template.kinds)
	}
	for n := range f.size.Vehicles {
		c, at := f.cities[0], n%every
		if at >= len(c.template.kinds) {
			c, at = f.cities[1], at-len(c.template.kinds)
		}
		made := time.Date(2025, time.February, 3, 8, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Minute)
		m := &simVehicle{fate: fate(c.template.fates[at]), kind: &c.sub.VehicleTypes[c.template.kinds[at]-'0'], free: made.Add(time.Hour)}
		m.plan = c.planOf(m.kind)
		m.Vehicle = Vehicle{
			RecordHeader: f.head(vehiclePrefix, "vehicle", c.sub.ID, made, n), Code: fmt.Sprintf("%s-%04d", c.template.letter, len(c.vehicles)+101),
			VehicleTypeID: m.kind.ID, FormFactor: m.kind.FormFactor, PropulsionType: m.kind.PropulsionType,
			PublicVehicleID: f.uuid(), OdometerMeters: new(int64(300_000 + f.random.IntN(900_000))), Timestamps: timestampsAt(made),
		}
		if m.kind.FormFactor == "moped" {
			m.LicensePlate = NullString(fmt.Sprintf("%s-KS %d", c.template.letter, len(c.vehicles)+101))
		}
		m.level = float64(60 + f.random.IntN(40))
		here := c.randomPosition(f.random, m.kind.ID)
		m.Location = &here
		f.setVehicleState(m, made, Available, "provider_drop_off", "")
		switch m.fate {
		case endsAvailable, endsReserved, endsOnTrip, endsPaused:
			m.until = f.now.AddDate(1, 0, 0)
		case endsDischarged, endsOutOfContact:
			m.until = f.today.Add(-13 * time.Hour)
		case endsInRepair:
			m.until = f.today.Add(-25 * time.Hour)
		case endsMissing:
			m.until = f.today.AddDate(0, 0, -5)
		case endsRemoved:
			m.until = f.today.AddDate(0, 0, -10)
		}
		c.vehicles = append(c.vehicles, m)
	}
}

func (c *simCity) planOf(t *VehicleType) *Plan {
	for _, p := range c.plans {
		if NullString(p.ID) == t.DefaultPricingPlanID {
			return p
		}
	}
	return c.plans[0]
}

// makeCustomers creates the customers. Of thirty, two are blocked and one is
// anonymised.
func (f *simulator) makeCustomers() {
	for n := range f.size.Customers {
		c, at := f.cities[0], n%30
		if at >= 20 {
			c, at = f.cities[1], at-20
		}
		made := time.Date(2025, time.March, 1, 7, 0, 0, 0, time.UTC).Add(time.Duration(n) * 11 * time.Minute)
		first, last := c.template.first[at%len(c.template.first)], c.template.last[(at+n/30*7)%len(c.template.last)]
		r := &simCustomer{Customer: Customer{
			RecordHeader: f.head(customerPrefix, "customer", c.sub.ID, made, n), Name: NullString(first + " " + last),
			Email: NullString(strings.ToLower(ascii.Replace(first + "." + last))), Phone: NullString(fmt.Sprintf(c.template.phone, n%100)),
			Language: NullString(c.template.languages[at%len(c.template.languages)]), Status: CustomerActive,
			BirthDate:        NullString(time.Date(1964+(n*7)%40, time.Month(1+n*5%12), 1+n*11%28, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)),
			LicenseStatus:    []string{"verified", "none", "verified", "pending", "none", "verified", "rejected", "none", "expired", "none"}[n%10],
			MarketingConsent: n%3 == 0, DefaultCurrency: c.template.currency, Timestamps: timestampsAt(made), revision: 1,
		}, free: made, until: f.now.AddDate(1, 0, 0)}
		r.ExternalID = NullString(fmt.Sprintf("app-%05d", n+1))
		if n >= 30 {
			r.Email += NullString(fmt.Sprint(n))
		}
		r.Email += "@example.com"
		switch n % 30 {
		case 7, 23:
			r.until = f.today.AddDate(0, 0, -30)
		case 18:
			r.until = f.today.AddDate(0, 0, -60)
		}
		c.customers = append(c.customers, r)
	}
}

// setFormerCustomers blocks or anonymises the customers that have stopped riding.
func (f *simulator) setFormerCustomers() {
	for _, c := range f.cities {
		for i, r := range c.customers {
			if r.until.After(f.now) {
				continue
			}
			at := r.until.Add(26 * time.Hour)
			r.revision++
			r.UpdatedAt = rfc3339.Time(at)
			if r.until.After(f.today.AddDate(0, 0, -45)) {
				r.Status, r.BlockReason = CustomerBlocked, NullString([]string{"Left a vehicle in the canal", "Chargeback"}[i%2])
			} else {
				r.Status, r.Name, r.Email, r.Phone, r.Language, r.BirthDate, r.ExternalID = CustomerAnonymised, "", "", "", "", "", ""
				r.LicenseStatus, r.MarketingConsent = "none", false
			}
		}
	}
}

// uuid returns a random UUID, version 4.
func (f *simulator) uuid() string {
	a, b := f.random.Uint64(), f.random.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
}

// randomPosition returns a position near a hotspot where rides of a vehicle type
// may start and end.
func (c *simCity) randomPosition(random *rand.Rand, vehicleTypeID string) geo.Position {
	for {
		spot := c.template.hotspots[random.IntN(len(c.template.hotspots))]
		p := spot.near(random)
		if rule, _ := c.ruleAt(p, vehicleTypeID); rule.StartAllowed && rule.EndAllowed {
			return p
		}
	}
}

func (c *simCity) ruleAt(p geo.Position, vehicleTypeID string) (Rule, string) {
	return c.fences.decide(c.sub.GlobalRules, &p, vehicleTypeID, time.Time{})
}

// hotspot is a busy place of a city.
type hotspot struct{ lat, lng float64 }

// near returns a position within about 250 m.
func (s hotspot) near(random *rand.Rand) geo.Position {
	off := func(scale float64) float64 { return (random.Float64() + random.Float64() - 1) * scale }
	return geo.Position{Lat: geo.Degrees(geo.Millionths(s.lat + off(0.0022))), Lng: geo.Degrees(geo.Millionths(s.lng + off(0.0033)))}
}

// setVehicleState changes a vehicle's state, and returns the state change if
// f.history.
func (f *simulator) setVehicleState(m *simVehicle, at time.Time, to VehicleState, event VehicleEvent, rideID string) []StateChange {
	m.State, m.LastEvent, m.StateChangedAt = to, event, rfc3339.Time(at)
	m.UpdatedAt = rfc3339.Time(at)
	m.revision++
	m.charge()
	if !f.history {
		return nil
	}
	return []StateChange{{
		ID: f.changes.id(eventPrefix, at), VehicleID: m.ID, State: to, Event: event, At: rfc3339.Time(at), Location: m.Location,
		BatteryPercent: m.BatteryPercent, RideID: NullString(rideID), Actor: systemActor,
	}}
}

// charge sets battery percent and range of the record.
func (m *simVehicle) charge() {
	if m.kind.MaxRangeMeters == nil {
		return
	}
	percent := int64(m.level)
	m.BatteryPercent, m.CurrentRangeMeters = new(percent), new(*m.kind.MaxRangeMeters*percent/100)
}

// run generates the rides, past ones first, in order of their start. It calls emit
// with each ride and the state changes of its vehicle; r is nil for changes without
// a ride. Afterwards vehicles and customers are in their present state.
func (f *simulator) run(emit func(r *Ride, changes []StateChange) error) error {
	open := 0
	for _, c := range f.cities {
		for _, m := range c.vehicles {
			if m.fate.hasRide() {
				open++
			}
		}
	}
	over := max(0, f.size.Rides-open)
	var slots []scheduledRide
	for day := range f.size.Days {
		slots = slots[:0]
		date := f.today.AddDate(0, 0, day-f.size.Days)
		for range over*(day+1)/f.size.Days - over*day/f.size.Days {
			c := f.cities[0]
			if f.random.IntN(100) >= 65 {
				c = f.cities[1]
			}
			slots = append(slots, scheduledRide{f.startTime(c, date, day == f.size.Days-1), c})
		}
		slices.SortFunc(slots, func(a, b scheduledRide) int { return a.at.Compare(b.at) })
		for _, s := range slots {
			r, changes := f.pastRide(s.city, s.at)
			if err := emit(r, changes); err != nil {
				return err
			}
		}
	}
	return f.setCurrentStates(emit)
}

type scheduledRide struct {
	at   time.Time
	city *simCity
}

// hours weights the starts of rides by local hour.
var hours = [24]int{12, 8, 5, 3, 3, 6, 18, 48, 72, 55, 42, 45, 56, 55, 50, 54, 68, 88, 86, 70, 54, 44, 36, 22}

// startTime returns a random start of a ride on a day, in UTC.
func (f *simulator) startTime(c *simCity, date time.Time, last bool) time.Time {
	for {
		at := date.Add(time.Duration(f.random.Int64N(int64(24*time.Hour/time.Millisecond)) * int64(time.Millisecond)))
		if last && at.Sub(date) >= 19*time.Hour {
			continue
		}
		if f.random.IntN(90) < hours[at.In(c.clock).Hour()] {
			return at
		}
	}
}

// pastRide generates a ride that starts at a time, or as soon after it as a vehicle
// and a customer are free.
func (f *simulator) pastRide(c *simCity, at time.Time) (*Ride, []StateChange) {
	kind := f.random.IntN(1000)
	var m *simVehicle
	var rider *simCustomer
	for {
		if m = f.freeVehicle(c, at, kind); kind < 15 {
			rider = nil
		} else {
			rider = f.freeCustomer(c, at, m)
		}
		if m != nil && (rider != nil || kind < 15) {
			break
		}
		kind = f.random.IntN(1000)
		at = at.Add(time.Minute)
	}
	j := f.newRide(c, m, rider, at)
	switch {
	case kind < 15:
		j.TripType = RebalanceTrip
		if kind < 5 {
			j.TripType = MaintenanceTrip
		}
		j.start(at)
		j.complete(1)
	case kind < 45: // cancelled after the start
		if kind < 25 && m.kind.ReservationMinutes > 0 {
			at = j.reserve(at, time.Duration(60+f.random.IntN(500))*time.Second)
		}
		j.start(at)
		j.cancel(at.Add(time.Duration(15_000+f.random.IntN(40_000))*time.Millisecond), "rider")
	case kind < 60:
		at = j.reserve(at, time.Duration(60+f.random.IntN(700))*time.Second)
		j.cancel(at, "rider")
	case kind < 75:
		at = j.reserve(at, time.Duration(m.kind.ReservationMinutes)*time.Minute)
		j.cancel(at, "reservation_expired")
	default:
		if kind < 190 && m.kind.ReservationMinutes > 0 {
			at = j.reserve(at, time.Duration(60+f.random.IntN(600))*time.Second)
		}
		j.start(at)
		j.complete(kind)
	}
	return &j.Ride, j.changes
}

// reservationOnly reports whether a ride of a kind never starts.
func reservationOnly(kind int) bool { return kind >= 45 && kind < 75 }

// freeVehicle returns a vehicle that can be ridden, or nil.
func (f *simulator) freeVehicle(c *simCity, at time.Time, kind int) *simVehicle {
	if len(c.vehicles) == 0 {
		return nil
	}
	for range 4 * min(len(c.vehicles), 100) {
		m := c.vehicles[f.random.IntN(len(c.vehicles))]
		switch {
		case at.Before(m.free) || !at.Before(m.until):
		case reservationOnly(kind) && m.kind.ReservationMinutes == 0:
		case m.kind.MaxRangeMeters != nil && m.level < 45:
			if at.Sub(m.free) > 2*time.Hour {
				m.level = float64(92 + f.random.IntN(9)) // a changed battery
				return m
			}
		default:
			return m
		}
	}
	return nil
}

// freeCustomer returns a customer that can ride a vehicle, or nil.
func (f *simulator) freeCustomer(c *simCity, at time.Time, m *simVehicle) *simCustomer {
	if len(c.customers) == 0 || m == nil {
		return nil
	}
	for range 4 * min(len(c.customers), 100) {
		r := c.customers[f.random.IntN(len(c.customers))]
		if !at.Before(r.free) && at.Before(r.until) && (!m.kind.LicenseRequired || r.LicenseStatus == "verified") {
			return r
		}
	}
	return nil
}

// simRide is a ride being generated.
type simRide struct {
	Ride
	simulator *simulator
	city      *simCity
	vehicle   *simVehicle
	customer  *simCustomer // nil without a rider
	usage     tariff.Usage
	changes   []StateChange
}

func (f *simulator) newRide(c *simCity, m *simVehicle, rider *simCustomer, at time.Time) *simRide {
	j := &simRide{simulator: f, city: c, vehicle: m, customer: rider}
	j.Ride = Ride{
		RecordHeader: RecordHeader{ID: f.rideIDs.id(ridePrefix, at), Object: "ride", Live: f.live, SubaccountID: c.sub.ID}, TripType: RiderTrip,
		VehicleID: m.ID, PaymentStatus: "not_due", Timestamps: timestampsAt(at), revision: 1, vehicleTypeID: m.kind.ID,
	}
	j.usage.ReservationMinutes = m.kind.ReservationMinutes
	if rider != nil {
		j.CustomerID, j.PricingPlanID, j.PricingPlanVersion = NullString(rider.ID), NullString(m.plan.ID), new(m.plan.Version)
	}
	return j
}

func (j *simRide) setVehicleState(at time.Time, to VehicleState, event VehicleEvent) {
	j.changes = append(j.changes, j.simulator.setVehicleState(j.vehicle, at, to, event, j.ID)...)
	j.vehicle.CurrentRideID = ""
	if to == VehicleReserved || to == OnTrip {
		j.vehicle.CurrentRideID = NullString(j.ID)
	}
}

// reserve starts a reservation and returns its end.
func (j *simRide) reserve(at time.Time, lasts time.Duration) time.Time {
	j.Status, j.ReservedAt = Reserved, rfc3339.Time(at)
	j.ReservationExpiresAt = rfc3339.Time(at.Add(time.Duration(j.vehicle.kind.ReservationMinutes) * time.Minute))
	j.usage.Reserved, j.usage.ReservedSeconds = true, int64(lasts/time.Second)
	j.setVehicleState(at, VehicleReserved, "reservation_start")
	return at.Add(lasts)
}

// start starts the ride.
func (j *simRide) start(at time.Time) {
	if j.Status == Reserved {
		j.revision++
	}
	here := *j.vehicle.Location
	_, zoneID := j.city.ruleAt(here, j.vehicle.kind.ID)
	j.Status, j.StartedAt, j.StartLocation, j.StartZoneID = Active, rfc3339.Time(at), &here, NullString(zoneID)
	j.UpdatedAt, j.startOdometer = rfc3339.Time(at), new(*j.vehicle.OdometerMeters)
	if j.customer != nil {
		j.customer.LastRideAt = rfc3339.Time(at)
	}
	j.setVehicleState(at, OnTrip, "trip_start")
}

// complete rides to a random position and ends the ride there.
func (j *simRide) complete(kind int) {
	random, m := j.simulator.random, j.vehicle
	var there geo.Position
	var meters float64
	for {
		there = j.city.randomPosition(random, m.kind.ID)
		meters = geo.Distance(m.Location.Lat, m.Location.Lng, there.Lat, there.Lng)
		if meters < 7000 {
			break
		}
	}
	rule, zoneID := j.city.ruleAt(there, m.kind.ID)
	if outside := j.city.template.outside; j.customer != nil && kind >= 985 && outside.lat != 0 && m.plan.OutOfZoneAmount != nil {
		p := outside.near(random)
		if rule, zoneID = j.city.ruleAt(p, m.kind.ID); !rule.EndAllowed && rule.StartAllowed {
			there, meters = p, geo.Distance(m.Location.Lat, m.Location.Lng, p.Lat, p.Lng)
			j.usage.OutOfZone = true
		} else {
			rule, zoneID = j.city.ruleAt(there, m.kind.ID)
		}
	}
	meters = 120 + meters*(1.2+0.3*random.Float64())
	speed := float64(*m.kind.MaxPermittedSpeed) / 3.6 * (0.55 + 0.2*random.Float64())
	seconds := int64(meters/speed) + 40 + random.Int64N(160)
	if kind >= 800 && kind < 880 { // with a pause
		j.PausedSeconds = 120 + random.Int64N(600)
		seconds += j.PausedSeconds
		j.revision += 2
	}
	j.Status, j.EndReason = Completed, "rider"
	if j.customer == nil {
		j.EndReason = "operator"
	}
	j.usage.Ridden, j.usage.Seconds, j.usage.PausedSeconds, j.usage.Meters = true, seconds, j.PausedSeconds, int64(meters)
	j.EndLocation, j.EndZoneID = &there, NullString(zoneID)
	m.Location = &there
	if m.kind.MaxRangeMeters != nil {
		m.level = max(16, m.level-100*meters/float64(*m.kind.MaxRangeMeters)*1.1)
	}
	j.DistanceMeters = new(int64(meters))
	*m.OdometerMeters += int64(meters)
	j.end(j.StartedAt.Std().Add(time.Duration(seconds)*time.Second + time.Duration(random.IntN(1000))*time.Millisecond))
	j.setVehicleState(j.EndedAt.Std(), Available, "trip_end")
	if j.customer != nil {
		j.customer.RideCount++
		j.ParkingCategory = NullString([]string{"curb", "rack", "corral", "other_valid"}[random.IntN(4)])
	}
	j.recordPayment(random)
}

// cancel cancels the ride.
func (j *simRide) cancel(at time.Time, reason NullString) {
	event := VehicleEvent("reservation_cancel")
	if j.Status == Active {
		event = "trip_cancel"
	}
	j.Status, j.CancelReason = Cancelled, reason
	j.end(at)
	j.setVehicleState(at, Available, event)
}

// end sets the fields that every ended ride has.
func (j *simRide) end(at time.Time) {
	j.revision++
	j.EndedAt, j.UpdatedAt = rfc3339.Time(at), rfc3339.Time(at)
	if !j.StartedAt.Std().IsZero() {
		j.DurationSeconds = int64(at.Sub(j.StartedAt.Std()) / time.Second)
		j.vehicle.PublicVehicleID = j.simulator.uuid()
	}
	price := tariff.Price{Currency: j.vehicle.plan.Currency}
	if j.customer != nil {
		price = j.vehicle.plan.Price(j.usage)
		j.customer.free, j.customer.UpdatedAt = at.Add(time.Minute), rfc3339.Time(at)
		j.customer.revision += 2
	}
	j.Price = &price
	if price.TotalAmount > 0 {
		j.PaymentStatus = "due"
	}
	j.vehicle.free = at.Add(time.Minute)
}

// recordPayment sets payment and adjustments of the following days.
func (j *simRide) recordPayment(random *rand.Rand) {
	if j.PaymentStatus != "due" || j.EndedAt.Std().After(j.simulator.today.AddDate(0, 0, -2)) {
		return
	}
	j.PaymentStatus = "paid"
	at := j.EndedAt.Std().Add(90 * time.Second)
	adjust := func(amount int64, reason NullString) {
		j.AdjustmentAmount, j.AdjustmentReason = amount, reason
		*j.Price = j.Price.Adjusted(amount)
		at = j.EndedAt.Std().Add(26 * time.Hour)
		j.revision++
	}
	switch random.IntN(100) {
	case 0:
		j.PaymentStatus = "refunded"
		adjust(-j.Price.TotalAmount, "The brake was broken")
	case 1, 2:
		adjust(-min(j.Price.TotalAmount, j.city.template.goodwill), "Goodwill")
	case 3:
		j.PaymentStatus = "waived"
	}
	j.revision++
	j.UpdatedAt = rfc3339.Time(at)
}

// A fate is the state of a vehicle at the end of the simulation.
type fate byte

const (
	endsAvailable    fate = 'a'
	endsReserved     fate = 'r'
	endsOnTrip       fate = 't'
	endsPaused       fate = 'p'
	endsInRepair     fate = 'n'
	endsDischarged   fate = 'l'
	endsOutOfContact fate = 'c'
	endsMissing      fate = 'x'
	endsRemoved      fate = 'z'
)

// hasRide reports whether the vehicle ends with an open ride.
func (e fate) hasRide() bool { return e == endsReserved || e == endsOnTrip || e == endsPaused }

// setCurrentStates applies the fates of the vehicles, and starts the open rides.
func (f *simulator) setCurrentStates(emit func(*Ride, []StateChange) error) error {
	open := 0
	for _, c := range f.cities {
		for n, m := range c.vehicles {
			if !m.fate.hasRide() {
				if changes := f.applyFate(c, n, m); len(changes) > 0 {
					if err := emit(nil, changes); err != nil {
						return err
					}
				}
				continue
			}
			if j := f.openRide(c, m, open); j != nil {
				if err := emit(&j.Ride, j.changes); err != nil {
					return err
				}
			}
			open++
		}
	}
	f.setFormerCustomers()
	f.makeTasks()
	return nil
}

// applyFate applies a fate without a ride to vehicle n of a city.
func (f *simulator) applyFate(c *simCity, n int, m *simVehicle) []StateChange {
	device := NullString(fmt.Sprintf("86123405%07d", n*len(f.cities)+slices.Index(f.cities, c)))
	lately := f.now.Add(-time.Duration(1+n%7) * time.Minute)
	switch m.fate {
	case endsAvailable:
		if n%5 == 0 && m.kind.MaxRangeMeters != nil {
			m.DeviceID = device
			m.report(lately)
		}
	case endsInRepair:
		return f.setVehicleState(m, f.today.Add(-20*time.Hour), NonOperational, "maintenance", "")
	case endsDischarged:
		m.DeviceID, m.level = device, float64(5+n%8)
		changes := f.setVehicleState(m, f.today.Add(-8*time.Hour), NonOperational, "battery_low", "")
		m.report(lately)
		return changes
	case endsOutOfContact:
		m.DeviceID = device
		return f.loseContact(m, f.today.Add(-8*time.Hour-time.Duration(n%50)*time.Minute))
	case endsMissing:
		m.DeviceID = device
		last := f.today.AddDate(0, 0, -4).Add(-time.Duration(n%50) * time.Minute)
		changes := f.loseContact(m, last)
		changes = append(changes, f.setVehicleState(m, last.Add(time.Duration(f.settings.MissingAfterHours)*time.Hour), Missing, "not_located", "")...)
		m.formerState, m.formerEvent = "", ""
		return changes
	case endsRemoved:
		return f.setVehicleState(m, f.today.AddDate(0, 0, -9), Removed, "maintenance_pick_up", "")
	}
	return nil
}

// report is a telemetry report.
func (m *simVehicle) report(at time.Time) {
	m.LastReportedAt = rfc3339.Time(at)
	m.UpdatedAt = rfc3339.Time(maxTime(at, m.UpdatedAt.Std()))
	m.revision++
	m.charge()
}

// loseContact makes a vehicle non-contactable after its last report.
func (f *simulator) loseContact(m *simVehicle, last time.Time) []StateChange {
	m.report(last)
	m.formerState, m.formerEvent = Available, m.LastEvent
	return f.setVehicleState(m, last.Add(time.Duration(f.settings.ContactLostMinutes)*time.Minute), NonContactable, "comms_lost", "")
}

// openRide starts the ride of a vehicle, the n-th open one; nil if no customer is
// free.
func (f *simulator) openRide(c *simCity, m *simVehicle, n int) *simRide {
	minutes := 3 + n%4*5
	if m.fate == endsReserved {
		minutes = 2 + n%4
	}
	at := f.now.Add(-time.Duration(minutes)*time.Minute - time.Duration(n%50)*time.Second)
	customer := f.freeCustomer(c, at, m)
	if customer == nil {
		return nil
	}
	customer.free = customer.until // for the whole ride
	j := f.newRide(c, m, customer, at)
	if m.kind.MaxRangeMeters != nil && m.level < 45 {
		m.level = 88
	}
	switch m.fate {
	case endsReserved:
		j.reserve(at, 0)
	case endsOnTrip:
		j.start(at)
	case endsPaused:
		j.start(at)
		j.Status, j.pauseAt = Paused, rfc3339.Time(at.Add(2*time.Minute))
		j.UpdatedAt = j.pauseAt
		j.revision++
	}
	customer.OpenRideID, customer.UpdatedAt = NullString(j.ID), rfc3339.Time(at)
	customer.revision++
	return j
}

func maxTime(a, b time.Time) time.Time {
	if cmp.Compare(a.UnixMicro(), b.UnixMicro()) > 0 {
		return a
	}
	return b
}

// ascii transliterates names for e-mail addresses.
var ascii = strings.NewReplacer("ä", "ae", "ö", "oe", "ü", "ue", "ß", "ss", " ", "", "é", "e", "ı", "i", "ş", "s", "ğ", "g", "Ö", "Oe")
