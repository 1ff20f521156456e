package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"

	"github.com/google/uuid"
)

// Vehicle is a vehicle (fleet-api.md 1.2).
type Vehicle struct {
	RecordHeader
	Code               string        `json:"code"` // unique in the organization, ignoring case
	VehicleTypeID      string        `json:"vehicle_type_id"`
	FormFactor         string        `json:"form_factor"`
	PropulsionType     string        `json:"propulsion_type"`
	State              VehicleState  `json:"state"`
	LastEvent          VehicleEvent  `json:"last_event"`
	StateChangedAt     rfc3339.Time  `json:"state_changed_at"`
	Location           *geo.Position `json:"location"`
	BatteryPercent     *int64        `json:"battery_percent"`
	FuelPercent        *int64        `json:"fuel_percent"`
	CurrentRangeMeters *int64        `json:"current_range_meters"`
	OdometerMeters     *int64        `json:"odometer_meters"`
	LastReportedAt     rfc3339.Time  `json:"last_reported_at"`
	PricingPlanID      NullString    `json:"pricing_plan_id"`
	DeviceID           NullString    `json:"device_id"` // unique in the organization
	VIN                NullString    `json:"vin"`
	LicensePlate       NullString    `json:"license_plate"`
	CurrentRideID      NullString    `json:"current_ride_id"`
	PublicVehicleID    string        `json:"public_vehicle_id"` // a UUID, replaced after each ride
	Timestamps

	// Not in the JSON.
	revision     int64
	formerState  VehicleState  // the state before NonContactable
	formerEvent  VehicleEvent  // the event before NonContactable; remains after contact is restored
	missed       *missedEvents // nil: none
	seenAt       time.Time     // of the last sighting other than a report
	odometerAt   time.Time     // of the report that set OdometerMeters
	outTasks     int64         // tasks that take it out of service now
	taskOdometer *int64        // at which its next task becomes overdue; not stored with the vehicle
	ignored      []string      // telemetry fields that an update skipped as outdated
	dueAt        time.Time     // of the next time-based transition; zero: none
	freedAt      time.Time     // end of its ride; set only while the vehicle is unsaved
	rideStart    time.Time     // of a ride that has just started; set only while the vehicle is unsaved
	alertAt      time.Time     // when alert rules are examined next; zero: only after a change
	idleFrom     *idleFrom     // nil: it does not stand available
	changes      []StateChange // not yet stored
	doc          string        // as stored; empty if unknown
	org          orgContext    // of the transaction that locked it
}

// NewVehicle has the fields of a vehicle to create.
type NewVehicle struct {
	SubaccountID       string            `json:"subaccount_id"`
	ExternalID         NullString        `json:"external_id"`
	Code               string            `json:"code"`
	VehicleTypeID      string            `json:"vehicle_type_id"`
	State              VehicleState      `json:"state"` // empty: removed
	Location           *geo.Position     `json:"location"`
	BatteryPercent     *int64            `json:"battery_percent"`
	FuelPercent        *int64            `json:"fuel_percent"`
	CurrentRangeMeters *int64            `json:"current_range_meters"`
	OdometerMeters     *int64            `json:"odometer_meters"`
	LastReportedAt     rfc3339.Time      `json:"last_reported_at"`
	PricingPlanID      NullString        `json:"pricing_plan_id"`
	DeviceID           NullString        `json:"device_id"`
	VIN                NullString        `json:"vin"`
	LicensePlate       NullString        `json:"license_plate"`
	Metadata           map[string]string `json:"metadata"`
}

// VehicleChange has the fields that a PUT sets. Absent fields remain.
type VehicleChange struct {
	ExternalID         optional.Value[NullString]        `json:"external_id"`
	Code               optional.Value[string]            `json:"code"`
	VehicleTypeID      optional.Value[string]            `json:"vehicle_type_id"`
	State              optional.Value[VehicleState]      `json:"state"`
	Event              optional.Value[VehicleEvent]      `json:"event"`
	Location           optional.Value[geo.Position]      `json:"location"`
	BatteryPercent     optional.Value[int64]             `json:"battery_percent"`
	FuelPercent        optional.Value[int64]             `json:"fuel_percent"`
	CurrentRangeMeters optional.Value[int64]             `json:"current_range_meters"`
	OdometerMeters     optional.Value[int64]             `json:"odometer_meters"`
	LastReportedAt     optional.Value[rfc3339.Time]      `json:"last_reported_at"`
	PricingPlanID      optional.Value[NullString]        `json:"pricing_plan_id"`
	DeviceID           optional.Value[NullString]        `json:"device_id"`
	VIN                optional.Value[NullString]        `json:"vin"`
	LicensePlate       optional.Value[NullString]        `json:"license_plate"`
	Metadata           optional.Value[map[string]string] `json:"metadata"` // the merged result
}

// StateChange is a stored transition of a vehicle.
type StateChange struct {
	ID             string        `json:"id"`
	VehicleID      string        `json:"vehicle_id"`
	State          VehicleState  `json:"state"`
	Event          VehicleEvent  `json:"event"`
	At             rfc3339.Time  `json:"at"`
	Location       *geo.Position `json:"location"`
	BatteryPercent *int64        `json:"battery_percent"`
	RideID         NullString    `json:"ride_id"`
	Actor          Actor         `json:"actor"`
	// Of the ride, before the change: the vehicle was out of contact.
	RideEvents []VehicleEvent `json:"ride_events,omitempty"`
}

// EventTypes returns the event of the change, and those of its ride while the vehicle was out of contact.
func (c *StateChange) EventTypes() []VehicleEvent {
	return append([]VehicleEvent{c.Event}, c.RideEvents...)
}

// missedEvents are the events of a ride while its vehicle is out of contact, which has no state changes
// of them.
type missedEvents struct {
	RideID string         `json:"ride_id"`
	Events []VehicleEvent `json:"events"` // in order
	Since  rfc3339.Time   `json:"since"`  // the vehicle's last state change
}

// Record returns the vehicle's stored form.
func (v *Vehicle) Record() (Record, error) {
	doc, err := v.doc, error(nil)
	if doc == "" {
		doc, err = encodeVehicle(v)
	}
	return Record{ID: v.ID, SubaccountID: v.SubaccountID, Revision: v.revision, JSON: []byte(doc), Distance: -1}, err
}

// Ignored returns the telemetry fields that [Service.UpdateVehicleTx] skipped because
// the report was older than the stored one.
func (v *Vehicle) Ignored() []string { return v.ignored }

// maxReportAhead bounds how far in the future a report may be.
const maxReportAhead = 5 * time.Minute

// reportedAt is the time of the last report. A stored time too far in the future
// counts as of the vehicle's last change.
func (v *Vehicle) reportedAt() time.Time {
	at := v.LastReportedAt.Std()
	if updated := v.UpdatedAt.Std(); at.After(updated.Add(maxReportAhead)) {
		return updated
	}
	return at
}

// checkReportTime adds an issue if a report is from the future.
func checkReportTime(faults *problem.Validation, at, now time.Time) {
	if at.After(now.Add(maxReportAhead)) {
		faults.AddCode("invalid_value", "last_reported_at", "must not be more than 5 minutes in the future; the time is %s", now.UTC().Format(time.RFC3339))
	}
}

// Bounds of a vehicle's fields.
const (
	maxCode     = 32
	maxDevice   = 128
	maxVIN      = 64
	maxPlate    = 32
	maxOdometer = 10_000_000_000 // meters
)

// check adds issues of the vehicle's own fields. References are not checked.
func (v *Vehicle) check(faults *problem.Validation) {
	checkCommon(faults, v.ExternalID, v.Metadata)
	checkLine(faults, "code", v.Code, maxCode)
	if strings.ContainsFunc(v.Code, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) && !faults.Has("code") {
		faults.AddCode("invalid_format", "code", "must consist of letters, digits and hyphens")
	}
	v.Location.Check(faults, "location")
	checkOptional(faults, "battery_percent", v.BatteryPercent, 0, 100)
	checkOptional(faults, "fuel_percent", v.FuelPercent, 0, 100)
	checkOptional(faults, "current_range_meters", v.CurrentRangeMeters, 0, maxMeters)
	checkOptional(faults, "odometer_meters", v.OdometerMeters, 0, maxOdometer)
	faults.Line("device_id", string(v.DeviceID), 0, maxDevice)
	faults.Line("vin", string(v.VIN), 0, maxVIN)
	faults.Line("license_plate", string(v.LicensePlate), 0, maxPlate)
}

// columns are the columns stored beside the document.
func (v *Vehicle) columns() []column { return v.appendColumns(nil) }

// appendColumns appends the columns to a slice, so that several vehicles in turn can use its memory.
func (v *Vehicle) appendColumns(to []column) []column {
	var cell, inPlace, inRegion any
	if p := v.Location; p != nil {
		at := geo.CellAt(geo.Millionths(p.Lat), geo.Millionths(p.Lng))
		cell, inPlace, inRegion = at, geo.PlaceOf(at), geo.RegionOf(at)
	}
	return append(to,
		column{"id", v.ID},
		column{"subaccount_id", v.SubaccountID},
		column{"revision", v.revision},
		column{"external_id", idValue(v.ExternalID)},
		column{"code", strings.ToLower(v.Code)},
		column{"device_id", idValue(v.DeviceID)},
		column{"vehicle_type_id", v.VehicleTypeID},
		column{"form_factor", v.FormFactor},
		column{"state", string(v.State)},
		column{"former_state", db.Text(string(v.formerState))},
		column{"former_event", db.Text(string(v.formerEvent))},
		column{"missed", v.missedValue()},
		column{"battery_percent", integerValue(v.BatteryPercent)},
		column{"last_reported_at", db.Time(v.LastReportedAt.Std())},
		column{"cell", cell},
		column{place, inPlace},
		column{region, inRegion},
		column{"due_at", db.Time(v.dueAt)},
		column{"seen_at", db.Time(v.seenAt)},
		column{"odometer_at", db.Time(v.odometerAt)},
		column{"alert_at", db.Time(v.alertAt)},
		column{"idle_from", v.idleValue()},
		column{"updated_at", db.Time(v.UpdatedAt.Std())},
		column{"doc", v.doc},
	)
}

// misplaced selects the vehicles whose places a previous version of the program did not set.
const misplaced = "place IS NOT (cell >> 22)"

// placeVehicles sets the places of vehicles that a previous version moved. On PostgreSQL a trigger
// does.
func (s *Service) placeVehicles(ctx context.Context) error {
	if s.db.Postgres() {
		return nil
	}
	var any bool
	if err := s.db.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM vehicles WHERE "+misplaced+")").Scan(&any); err != nil || !any {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE vehicles SET place = cell >> 22, region = cell >> 40 WHERE "+misplaced)
		return err
	})
}

// level is the charge of the battery or tank, whichever is higher; known is false
// if neither is reported.
func (v *Vehicle) level() (percent int64, known bool) {
	for _, p := range []*int64{v.BatteryPercent, v.FuelPercent} {
		if p != nil && (!known || *p > percent) {
			percent, known = *p, true
		}
	}
	return percent, known
}

// batteryBelow reports whether the level is known and below a percentage. No ride starts below
// [Settings.LowBatteryPercent].
func (v *Vehicle) batteryBelow(limit int64) bool {
	percent, known := v.level()
	return known && percent < limit
}

// disabledByBattery reports whether the vehicle is out of service because of its low battery.
func (v *Vehicle) disabledByBattery() bool {
	return v.State == NonOperational && (v.LastEvent == "battery_low" || v.formerEvent == "battery_low")
}

// missedValue is the stored form of missed; nil: NULL.
func (v *Vehicle) missedValue() any {
	if v.missed == nil {
		return nil
	}
	text, _ := json.Marshal(v.missed)
	return string(text)
}

// setState applies a transition and appends it to v.changes. Back in contact, in the state that the
// vehicle's ride has made of it, the change has the events of the ride meanwhile, too.
func (v *Vehicle) setState(to VehicleState, event VehicleEvent, at time.Time, rideID NullString, by Actor) {
	if at.Before(v.StateChangedAt.Std()) {
		at = v.StateChangedAt.Std() // of an offline ride, which arrives late; or the clock was set back
	}
	var rideEvents []VehicleEvent
	if v.missed != nil && to == v.formerState {
		rideID, rideEvents = NullString(v.missed.RideID), v.missed.Events
	}
	v.State, v.LastEvent, v.StateChangedAt = to, event, rfc3339.Time(at.Truncate(time.Millisecond))
	v.formerState, v.formerEvent, v.missed = "", "", nil
	if event.sighting() {
		v.seenAt = v.StateChangedAt.Std()
	}
	v.changes = append(v.changes, StateChange{
		VehicleID: v.ID, State: to, Event: event, At: v.StateChangedAt, Location: v.Location,
		BatteryPercent: v.BatteryPercent, RideID: rideID, Actor: by, RideEvents: rideEvents,
	})
}

// setRideState applies a transition of the vehicle's ride, which happened at a place: after an app
// was offline, not where the vehicle is now. A vehicle out of contact changes its former state instead.
func (v *Vehicle) setRideState(to VehicleState, event VehicleEvent, at time.Time, place *geo.Position, rideID NullString, by Actor) {
	if v.State == NonContactable {
		missed := missedEvents{RideID: string(rideID), Events: []VehicleEvent{event}, Since: v.StateChangedAt}
		if v.missed != nil { // of the same ride
			missed.Events = append(slices.Clone(v.missed.Events), event)
		}
		v.formerState, v.formerEvent, v.missed = to, event, &missed
		return
	}
	v.setState(to, event, at, rideID, by)
	v.changes[len(v.changes)-1].Location = place
}

// endRide clears the current ride, which ended at a place. It renews the public id unless event
// is "reservation_cancel".
func (v *Vehicle) endRide(event VehicleEvent, at time.Time, place *geo.Position, rideID NullString, by Actor, settings *Settings) {
	v.CurrentRideID, v.freedAt = "", at
	if event != "reservation_cancel" {
		v.PublicVehicleID = uuid.NewString()
	}
	v.setRideState(Available, event, at, place, rideID, by)
	ended := len(v.changes)
	v.disableIfUnfit(at, settings)
	for i := range v.changes[ended:] {
		v.changes[ended+i].Location = place
	}
}

// disableIfUnfit takes an available vehicle out of service by its tasks or its low battery.
func (v *Vehicle) disableIfUnfit(at time.Time, settings *Settings) {
	switch {
	case v.State != Available:
	case v.outTasks > 0:
		v.setState(NonOperational, "maintenance", at, "", systemActor)
	case v.batteryBelow(settings.LowBatteryPercent):
		v.setState(NonOperational, "battery_low", at, "", systemActor)
	}
}

// loseContact applies the transition to NonContactable; restoreContact reverts it.
func (v *Vehicle) loseContact(at time.Time) {
	former, event := v.State, v.LastEvent
	if v.formerEvent != "" {
		event = v.formerEvent
	}
	v.setState(NonContactable, "comms_lost", at, v.CurrentRideID, systemActor)
	v.formerState, v.formerEvent = former, event
}

func (v *Vehicle) restoreContact(at time.Time) {
	event := v.formerEvent
	v.setState(v.formerState, "comms_restored", at, v.CurrentRideID, systemActor)
	v.formerEvent = event
}

// due returns the time of the next time-based transition, zero for none. Silence is
// measured from the last report or sighting.
func (v *Vehicle) due(settings *Settings) time.Time {
	seen := v.lastSeen()
	if seen.IsZero() {
		return time.Time{}
	}
	switch v.State {
	case Available, VehicleReserved, OnTrip, NonOperational:
		return seen.Add(time.Duration(settings.ContactLostMinutes) * time.Minute)
	case NonContactable:
		if v.CurrentRideID != "" {
			return time.Time{}
		}
		return seen.Add(time.Duration(settings.MissingAfterHours) * time.Hour)
	}
	return time.Time{}
}

// lastSeen is the time of the last report or sighting; zero if the vehicle never reported.
func (v *Vehicle) lastSeen() time.Time {
	seen := v.reportedAt()
	if !seen.IsZero() && seen.Before(v.seenAt) {
		return v.seenAt
	}
	return seen
}

// sighting reports whether the event implies that a person saw the vehicle.
func (e VehicleEvent) sighting() bool {
	return e == "provider_drop_off" || e == "agency_drop_off" || e == "located"
}

// applyTimers applies all transitions due by until, each as of its due time, and
// reports whether any applied.
func (v *Vehicle) applyTimers(settings *Settings, until time.Time) (changed bool) {
	for {
		due := v.due(settings)
		if due.IsZero() || due.After(until) {
			return changed
		}
		// The last change may have made it due at once.
		if stored := v.dueAt; due.Before(stored) {
			due = stored
		}
		if due.After(until) {
			return changed
		}
		if v.State == NonContactable {
			v.setState(Missing, "not_located", due, "", systemActor)
		} else {
			v.loseContact(due)
		}
		changed = true
	}
}

// Vehicle returns a vehicle as stored. Error: NotFound.
func (s *Service) Vehicle(ctx context.Context, q db.Querier, organizationID, id string) (Vehicle, error) {
	return readVehicle(ctx, q, organizationID, id, "")
}

func readVehicle(ctx context.Context, q db.Querier, organizationID, id, lock string) (Vehicle, error) {
	var v Vehicle
	err := v.scan(q.QueryRow(ctx, "SELECT "+vehicleColumns+" FROM vehicles WHERE organization_id = $1 AND id = $2"+lock, organizationID, id))
	return v, wrapReadError(err, "vehicle")
}

// vehicleColumns are the columns of [Vehicle.scan].
const vehicleColumns = "doc, revision, former_state, former_event, missed, due_at, seen_at, odometer_at, alert_at, idle_from, out_tasks, task_odometer_meters"

// scan reads a vehicle from a row of vehicleColumns.
func (v *Vehicle) scan(row db.Row) error {
	var former, formerEvent, missed, idle string
	var dueAt, seenAt, odometerAt, alertAt time.Time
	err := row.Scan(&v.doc, &v.revision, db.IntoText(&former), db.IntoText(&formerEvent), db.IntoText(&missed), db.IntoTime(&dueAt), db.IntoTime(&seenAt), db.IntoTime(&odometerAt),
		db.IntoTime(&alertAt), db.IntoText(&idle), &v.outTasks, &v.taskOdometer)
	if err != nil {
		return err
	}
	if err := decodeVehicle(v.doc, v); err != nil {
		return err
	}
	v.formerState, v.formerEvent, v.dueAt, v.seenAt, v.odometerAt, v.alertAt = VehicleState(former), VehicleEvent(formerEvent), dueAt, seenAt, odometerAt, alertAt
	if missed != "" {
		if err := json.Unmarshal([]byte(missed), &v.missed); err != nil {
			return fmt.Errorf("decode what a vehicle out of contact missed: %w", err)
		}
		if !v.missed.Since.Std().Equal(v.StateChangedAt.Std()) { // a previous version has changed the state
			v.missed = nil
		}
	}
	if idle != "" {
		if err := json.Unmarshal([]byte(idle), &v.idleFrom); err != nil {
			return fmt.Errorf("decode since when a vehicle is idle: %w", err)
		}
	}
	if v.seenAt.IsZero() && v.LastEvent.sighting() { // stored by a version without seen_at
		v.seenAt = v.StateChangedAt.Std()
	}
	return nil
}

// lockVehicle locks a vehicle and applies its transitions due by until, unsaved.
// The caller must have expired its rides due before that.
func lockVehicle(ctx context.Context, tx *db.Tx, a orgContext, id string, until time.Time) (v, stored Vehicle, err error) {
	v, err = readVehicle(ctx, tx, a.id, id, " FOR UPDATE")
	if err != nil {
		return v, v, err
	}
	v.org, stored = a, v
	v.applyTimers(a.settings, until)
	return v, stored, nil
}

// LockVehicleTx locks a vehicle and applies its due transitions, for
// [Service.UpdateVehicleTx] in the same transaction. Error: NotFound.
func (s *Service) LockVehicleTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Vehicle, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Vehicle{}, err
	}
	if err := s.expireDueRides(ctx, tx, a, id, ""); err != nil {
		return Vehicle{}, err
	}
	v, stored, err := lockVehicle(ctx, tx, a, id, a.now)
	if err != nil || len(v.changes) == 0 {
		return v, err
	}
	return v, s.saveVehicle(ctx, tx, a, &stored, &v)
}

// LoseContactTx makes a vehicle of the sandbox lose contact, as silence does in time. Errors: NotFound,
// also in production; invalid_transition.
func (s *Service) LoseContactTx(ctx context.Context, tx *db.Tx, organizationID, id string) error {
	if s.live {
		return notFoundError("vehicle")
	}
	v, err := s.LockVehicleTx(ctx, tx, organizationID, id)
	if err != nil {
		return err
	}
	a, err := s.reuseOrgContext(ctx, tx, v.org, organizationID)
	if err != nil {
		return err
	}
	if !slices.Contains([]VehicleState{Available, VehicleReserved, OnTrip, NonOperational}, v.State) {
		return invalidTransition(v.State, NonContactable, v.State.Next())
	}
	stored := v
	stored.changes, v.changes = nil, nil
	v.loseContact(a.now)
	return s.saveVehicle(ctx, tx, a, &stored, &v)
}

// saveVehicle writes v, stored until now as stored, and its state changes.
func (s *Service) saveVehicle(ctx context.Context, tx *db.Tx, a orgContext, stored, v *Vehicle) error {
	v.revision = stored.revision + 1
	v.UpdatedAt = nextUpdatedAt(stored.UpdatedAt, a.now)
	if err := v.encode(a); err != nil {
		return err
	}
	facts, err := s.alertFacts(ctx, tx, a, v)
	if err != nil {
		return err
	}
	alerts, err := s.applyAlertRules(ctx, tx, a, facts, v, a.now)
	if err != nil {
		return err
	}
	s.notify(tx, a.id, VehicleKind, v.ID)
	if v.PricingPlanID != stored.PricingPlanID || v.VehicleTypeID != stored.VehicleTypeID {
		if err := storeFormerPlan(ctx, tx, a.id, v.ID, v.UpdatedAt, stored.PricingPlanID, stored.VehicleTypeID); err != nil {
			return err
		}
	}
	err = updateRow(ctx, tx, "vehicles", a.id, v.ID, stored.columns(), v.columns())
	switch {
	case !db.IsUnique(err):
	case !strings.EqualFold(v.Code, stored.Code): // by a concurrent transaction
		return alreadyExistsError("code")
	case v.DeviceID != stored.DeviceID:
		return alreadyExistsError("device_id")
	default:
		return alreadyExistsError("external_id")
	}
	if err != nil {
		return err
	}
	changes := v.changes
	if err := v.insertStateChanges(ctx, tx, a.id); err != nil {
		return err
	}
	if err := s.emitVehicle(ctx, tx, a, stored, v, changes); err != nil {
		return err
	}
	if err := s.finishAlerts(ctx, tx, a, alerts); err != nil {
		return err
	}
	return s.applyOdometer(ctx, tx, a, v)
}

// encode sets the document and the due time.
func (v *Vehicle) encode(a orgContext) (err error) {
	v.dueAt = v.due(a.settings)
	for _, earliest := range [...]time.Time{v.StateChangedAt.Std(), v.freedAt} {
		if !v.dueAt.IsZero() && v.dueAt.Before(earliest) {
			v.dueAt = earliest
		}
	}
	v.doc, err = encodeVehicle(v)
	return err
}

// insertStateChanges stores and clears v.changes. Their ids contain the revision,
// so changes of the same millisecond sort in order.
func (v *Vehicle) insertStateChanges(ctx context.Context, tx *db.Tx, organizationID string) error {
	for i := range v.changes {
		c := &v.changes[i]
		var entropy [10]byte
		rand.Read(entropy[:])
		binary.BigEndian.PutUint32(entropy[:], uint32(v.revision))
		entropy[4] = byte(i)
		c.ID = newID(eventPrefix, c.At.Std(), bytes.NewReader(entropy[:]))
		doc, err := encode(c)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO vehicle_events (organization_id, vehicle_id, id, doc) VALUES ($1, $2, $3, $4)", organizationID, v.ID, c.ID, string(doc))
		if err != nil {
			return fmt.Errorf("insert a state change: %w", err)
		}
	}
	v.changes = nil
	return nil
}

// CreateVehicleTx creates a vehicle in the caller's transaction. Errors: Invalid;
// Conflict already_exists; vehicle_low_battery.
func (s *Service) CreateVehicleTx(ctx context.Context, tx *db.Tx, organizationID string, n NewVehicle, by Actor) (Vehicle, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Vehicle{}, err
	}
	return s.createVehicle(ctx, tx, a, n, "", by)
}

// createVehicle is [Service.CreateVehicleTx] for a vehicle that an event takes out of service at once, when
// it has become available; empty: none does.
func (s *Service) createVehicle(ctx context.Context, tx *db.Tx, a orgContext, n NewVehicle, out VehicleEvent, by Actor) (Vehicle, error) {
	var v Vehicle
	v.RecordHeader, v.Timestamps = s.newRecord(vehiclePrefix, "vehicle", n.SubaccountID, a.now)
	v.ExternalID, v.Code, v.VehicleTypeID = n.ExternalID, n.Code, n.VehicleTypeID
	v.Location, v.BatteryPercent, v.FuelPercent = n.Location, n.BatteryPercent, n.FuelPercent
	v.CurrentRangeMeters, v.OdometerMeters = n.CurrentRangeMeters, n.OdometerMeters
	v.LastReportedAt = rfc3339.Time(n.LastReportedAt.Std().Truncate(time.Millisecond))
	v.PricingPlanID, v.DeviceID, v.VIN, v.LicensePlate = n.PricingPlanID, n.DeviceID, n.VIN, n.LicensePlate
	v.Metadata = metadataOf(n.Metadata)
	v.State, v.LastEvent, v.StateChangedAt = Removed, "unspecified", v.CreatedAt
	v.PublicVehicleID = uuid.NewString()
	v.revision, v.org = 1, a

	var faults problem.Validation
	v.check(&faults)
	switch n.State {
	case "", Removed:
	case Available:
		if n.Location == nil {
			faults.AddCode("required", "location", "is required for an available vehicle")
		}
		v.setState(Available, "provider_drop_off", a.now, "", by)
		if out != "" {
			v.setState(NonOperational, out, a.now, "", by)
		}
	default:
		checkOneOf(&faults, "state", n.State, Removed, Available)
	}
	sub, err := s.subaccountForNew(ctx, tx, &faults, a.id, n.SubaccountID)
	if err != nil {
		return v, err
	}
	if sub != nil {
		kind := v.setType(sub, &faults)
		if err := s.checkVehiclePlan(ctx, tx, a.id, &v, &faults); err != nil {
			return v, err
		}
		if kind != nil && n.CurrentRangeMeters == nil {
			v.CurrentRangeMeters = v.estimatedRange(kind)
		}
	}
	checkReportTime(&faults, v.LastReportedAt.Std(), a.now)
	if err := faults.Err(); err != nil {
		return v, err
	}
	if v.State == Available && v.batteryBelow(a.settings.LowBatteryPercent) {
		return v, lowBatteryError(&v, a.settings)
	}
	reported := n.Location != nil || n.BatteryPercent != nil || n.FuelPercent != nil || n.CurrentRangeMeters != nil || n.OdometerMeters != nil
	if v.LastReportedAt.Std().IsZero() && reported {
		v.LastReportedAt = rfc3339.Time(a.now.Truncate(time.Millisecond))
	}
	if n.OdometerMeters != nil {
		v.odometerAt = v.LastReportedAt.Std()
	}
	if err := v.encode(a); err != nil {
		return v, err
	}
	if a.alerts != nil {
		v.alertAt = alertSoon
	}
	added, err := insertRow(ctx, tx, "vehicles", a.id, v.columns())
	if err != nil {
		return v, err
	}
	if !added {
		return v, s.claimVehicleKeys(ctx, tx, a.id, &Vehicle{}, &v)
	}
	s.notify(tx, a.id, VehicleKind, v.ID)
	if err := v.insertStateChanges(ctx, tx, a.id); err != nil {
		return v, err
	}
	return v, s.emit(ctx, tx, a, event.VehicleCreated, v.ID, v.SubaccountID, a.now, eventData{Vehicle: json.RawMessage(v.doc)})
}

// setType copies form factor and propulsion from the vehicle type. It returns the
// type; if there is none, it adds an issue and returns nil.
func (v *Vehicle) setType(sub *Subaccount, faults *problem.Validation) *VehicleType {
	if v.VehicleTypeID == "" {
		faults.AddCode("required", "vehicle_type_id", "is required")
		return nil
	}
	kind := sub.vehicleType(v.VehicleTypeID)
	if kind == nil {
		faults.AddCode("not_found", "vehicle_type_id", "must be a vehicle type of the subaccount")
		return nil
	}
	v.FormFactor, v.PropulsionType = kind.FormFactor, kind.PropulsionType
	return kind
}

// estimatedRange is the range in meters by the type's maximum and the level,
// rounded down; nil if either is unknown.
func (v *Vehicle) estimatedRange(kind *VehicleType) *int64 {
	percent, known := v.level()
	if !known || kind.MaxRangeMeters == nil {
		return nil
	}
	return new(*kind.MaxRangeMeters * percent / 100)
}

// checkVehiclePlan adds an issue unless the vehicle's plan belongs to its
// subaccount.
func (s *Service) checkVehiclePlan(ctx context.Context, tx *db.Tx, organizationID string, v *Vehicle, faults *problem.Validation) error {
	if v.PricingPlanID == "" {
		return nil
	}
	plan, err := s.plan(ctx, tx, organizationID, string(v.PricingPlanID))
	if err != nil && problem.Of(err) != problem.NotFound {
		return err
	}
	if err != nil || plan.SubaccountID != v.SubaccountID {
		faults.AddCode("not_found", "pricing_plan_id", "must be a pricing plan of the subaccount")
	}
	return nil
}

// claimVehicleKeys returns a Conflict error if a changed unique field has the value
// of another vehicle.
func (s *Service) claimVehicleKeys(ctx context.Context, tx *db.Tx, organizationID string, before, v *Vehicle) error {
	if code := strings.ToLower(v.Code); code != strings.ToLower(before.Code) {
		if err := claimUnique(ctx, tx, "vehicles", organizationID, "", v.ID, "code", NullString(code)); err != nil {
			return err
		}
	}
	if v.DeviceID != before.DeviceID {
		if err := claimUnique(ctx, tx, "vehicles", organizationID, "", v.ID, "device_id", v.DeviceID); err != nil {
			return err
		}
	}
	if v.ExternalID != before.ExternalID {
		return claimUnique(ctx, tx, "vehicles", organizationID, v.SubaccountID, v.ID, "external_id", v.ExternalID)
	}
	return nil
}

// hasTelemetry reports whether c sets a telemetry field.
func (c *VehicleChange) hasTelemetry() bool {
	return c.Location.Set || c.BatteryPercent.Set || c.FuelPercent.Set || c.CurrentRangeMeters.Set || c.OdometerMeters.Set || c.LastReportedAt.Set
}

// UpdateVehicleTx updates a vehicle returned by [Service.LockVehicleTx], in the
// caller's transaction. An update without a difference creates no revision. Errors:
// Invalid; Conflict already_exists; invalid_transition; vehicle_in_use;
// vehicle_low_battery.
func (s *Service) UpdateVehicleTx(ctx context.Context, tx *db.Tx, organizationID string, v Vehicle, c VehicleChange, by Actor) (Vehicle, error) {
	a, err := s.reuseOrgContext(ctx, tx, v.org, organizationID)
	if err != nil {
		return v, err
	}
	u := vehicleUpdate{before: v, after: v, change: c, org: a, at: a.now.Truncate(time.Millisecond), by: by}
	u.applyFields()
	u.applyReport()
	if err := s.checkVehicleReferences(ctx, tx, &u); err != nil {
		return u.after, err
	}
	u.resolveTransition()
	if err := u.faults.Err(); err != nil {
		return u.after, err
	}
	if err := u.applyTransition(); err != nil {
		return u.after, err
	}
	u.applyLevel()
	if err := s.claimVehicleKeys(ctx, tx, a.id, &u.before, &u.after); err != nil {
		return u.after, err
	}
	if len(u.after.changes) == 0 && !u.reportIsNew {
		if doc, err := encodeVehicle(&u.after); err != nil || doc == u.before.doc {
			return u.after, err
		}
	}
	if err := s.recordVehicle(ctx, tx, organizationID, &u.before, &u.after, by); err != nil {
		return u.after, err
	}
	return u.after, s.saveVehicle(ctx, tx, a, &u.before, &u.after)
}

// vehicleUpdate is an update by request. Its methods apply the change step by step.
type vehicleUpdate struct {
	before, after Vehicle
	change        VehicleChange
	org           orgContext
	at            time.Time // of the update, in milliseconds
	by            Actor
	faults        problem.Validation

	reportIsNew bool // the report is later than the stored one
	hasLevel    bool // a level of battery or fuel applied

	// The requested transition. events is nil if there is no such transition.
	to     VehicleState
	event  VehicleEvent
	events []VehicleEvent
}

// applyFields applies the change except for telemetry and state.
func (u *vehicleUpdate) applyFields() {
	c, v := &u.change, &u.after
	c.ExternalID.Into(&v.ExternalID)
	c.Code.Into(&v.Code)
	c.VehicleTypeID.Into(&v.VehicleTypeID)
	c.PricingPlanID.Into(&v.PricingPlanID)
	c.DeviceID.Into(&v.DeviceID)
	c.VIN.Into(&v.VIN)
	c.LicensePlate.Into(&v.LicensePlate)
	if c.Metadata.Set {
		v.Metadata = metadataOf(c.Metadata.Value)
	}
}

// applyReport applies the telemetry of the change unless it is older than the stored
// report; then it sets ignored. A null time clears the stored one. A record sent back
// unchanged, with the time of the last report, is not a new report.
func (u *vehicleUpdate) applyReport() {
	c, v := &u.change, &u.after
	at := c.LastReportedAt.Or(rfc3339.Time(u.at)).Std()
	checkReportTime(&u.faults, at, u.at)
	checked := *v
	c.applyTelemetry(&checked) // ignored telemetry must be valid, too
	checked.check(&u.faults)
	v.ignored = nil
	switch {
	case !c.hasTelemetry():
		return
	case c.LastReportedAt.Null:
		c.applyTelemetry(v)
		v.LastReportedAt = rfc3339.Time{}
		if c.OdometerMeters.Set {
			v.odometerAt = u.at
		}
	case at.Before(v.reportedAt()):
		v.ignored = c.telemetryFields()
		return
	default:
		u.reportIsNew = at.After(v.reportedAt())
		if c.OdometerMeters.Set && (u.reportIsNew || checked.OdometerMeters == nil || v.OdometerMeters == nil || *checked.OdometerMeters != *v.OdometerMeters) {
			v.odometerAt = at
		}
		c.applyTelemetry(v)
		v.LastReportedAt = rfc3339.Time(at.Truncate(time.Millisecond))
	}
	u.hasLevel = c.BatteryPercent.Set || c.FuelPercent.Set
}

// checkVehicleReferences checks the type and the plan if they changed, and estimates
// the range by the type if a level came without one.
func (s *Service) checkVehicleReferences(ctx context.Context, tx *db.Tx, u *vehicleUpdate) error {
	v := &u.after
	estimate := u.hasLevel && !u.change.CurrentRangeMeters.Set
	if v.VehicleTypeID != u.before.VehicleTypeID || estimate {
		sub, _, err := s.subaccount(ctx, tx, u.org.id, v.SubaccountID)
		if err != nil {
			return err
		}
		if kind := v.setType(sub, &u.faults); kind != nil && estimate {
			v.CurrentRangeMeters = v.estimatedRange(kind)
		}
	}
	if v.PricingPlanID != u.before.PricingPlanID {
		return s.checkNewPlan(ctx, tx, u.org.id, v, &u.faults)
	}
	return nil
}

// checkNewPlan is [Service.checkVehiclePlan] for another plan than before, which must be active. A
// vehicle that is created may have a retired one: a fleet is imported as it was.
func (s *Service) checkNewPlan(ctx context.Context, tx *db.Tx, organizationID string, v *Vehicle, faults *problem.Validation) error {
	if err := s.checkVehiclePlan(ctx, tx, organizationID, v, faults); err != nil || v.PricingPlanID == "" || faults.Has("pricing_plan_id") {
		return err
	}
	plan, err := s.plan(ctx, tx, organizationID, string(v.PricingPlanID))
	if err == nil && !plan.Active {
		faults.AddCode("conflict", "pricing_plan_id", "must be an active pricing plan")
	}
	return err
}

// resolveTransition determines the requested transition. The default event is the
// first one of the transition.
func (u *vehicleUpdate) resolveTransition() {
	from := u.after.State
	u.to = from
	if u.change.State.Set {
		u.to = u.change.State.Value
		checkOneOf(&u.faults, "state", u.to, Available, VehicleReserved, OnTrip, NonOperational, NonContactable, Missing, Removed)
	}
	u.events = from.Events(u.to)
	u.event = u.change.Event.Or("")
	if u.event == "" && len(u.events) > 0 {
		u.event = u.events[0]
	}
	// A repeated request has an event and the present state.
	if u.to != from && u.events != nil && !slices.Contains(u.events, u.event) || u.to == from && u.event != "" && !isEvent(u.event) {
		u.faults.AddCode("invalid_value", "event", "is not valid for a transition from %s to %s", from, u.to)
	}
}

// applyTransition applies the requested transition or, without one, that of a
// vehicle that reports again.
func (u *vehicleUpdate) applyTransition() error {
	v := &u.after
	if (u.to != v.State || v.VehicleTypeID != u.before.VehicleTypeID) && v.CurrentRideID != "" {
		return vehicleInUseError(v)
	}
	switch {
	case u.to != v.State:
		return u.applyRequestedTransition()
	case u.reportIsNew:
		v.regainContact(u.at, u.org.settings)
	}
	return nil
}

// regainContact applies the transition of a vehicle that reports again, if it was out of contact.
func (v *Vehicle) regainContact(at time.Time, settings *Settings) {
	switch v.State {
	case NonContactable:
		v.restoreContact(at)
		v.disableIfUnfit(at, settings)
	case Missing:
		v.setState(NonOperational, "located", at, "", systemActor)
	}
}

func (u *vehicleUpdate) applyRequestedTransition() error {
	v := &u.after
	if u.events == nil {
		return invalidTransition(v.State, u.to, v.State.Next())
	}
	if u.to == Available && v.Location == nil {
		e := invalidTransition(v.State, u.to, v.State.Next())
		e.Message = "a vehicle without a location cannot be available"
		return e
	}
	if u.to == Available && v.outTasks > 0 {
		e := invalidTransition(v.State, u.to, v.State.Next())
		e.Message = "a vehicle with an open task that takes it out of service cannot be available"
		return e
	}
	if u.to == Available && v.batteryBelow(u.org.settings.LowBatteryPercent) {
		return lowBatteryError(v, u.org.settings)
	}
	v.setState(u.to, u.event, u.at, "", u.by)
	return nil
}

// applyLevel applies the transition that a new level of battery or fuel causes.
func (u *vehicleUpdate) applyLevel() {
	switch v := &u.after; {
	case !u.hasLevel:
	case u.change.State.Set && u.to == NonOperational: // requested: the vehicle stays out of service
		v.disableIfUnfit(u.at, u.org.settings)
	default:
		v.applyLevel(u.at, u.org.settings)
	}
}

// applyLevel takes the vehicle out of service if its level is low, and back into service when it
// is charged again.
func (v *Vehicle) applyLevel(at time.Time, settings *Settings) {
	v.disableIfUnfit(at, settings)
	level, known := v.level()
	if known && v.outTasks == 0 && v.disabledByBattery() && level >= settings.BatteryReadyPercent && level >= settings.LowBatteryPercent {
		v.setState(Available, "battery_charged", at, "", systemActor)
	}
}

// telemetryFields lists the telemetry fields that c sets.
func (c *VehicleChange) telemetryFields() []string {
	var names []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"location", c.Location.Set}, {"battery_percent", c.BatteryPercent.Set}, {"fuel_percent", c.FuelPercent.Set},
		{"current_range_meters", c.CurrentRangeMeters.Set}, {"odometer_meters", c.OdometerMeters.Set}, {"last_reported_at", c.LastReportedAt.Set},
	} {
		if f.set {
			names = append(names, f.name)
		}
	}
	return names
}

// applyTelemetry copies the telemetry of c to v.
func (c *VehicleChange) applyTelemetry(v *Vehicle) {
	c.Location.IntoPointer(&v.Location)
	c.BatteryPercent.IntoPointer(&v.BatteryPercent)
	c.FuelPercent.IntoPointer(&v.FuelPercent)
	c.CurrentRangeMeters.IntoPointer(&v.CurrentRangeMeters)
	c.OdometerMeters.IntoPointer(&v.OdometerMeters)
}

func vehicleInUseError(v *Vehicle) error {
	e := conflict("vehicle_in_use", "the vehicle has an open ride")
	e.Details = map[string]any{"ride_id": string(v.CurrentRideID)}
	return e
}

func lowBatteryError(v *Vehicle, settings *Settings) error {
	percent, _ := v.level()
	return conflict("vehicle_low_battery", "the vehicle is at %d percent and needs at least %d", percent, settings.LowBatteryPercent)
}

// DeleteVehicleTx deletes a vehicle in the caller's transaction. Its rides, tasks and state
// changes remain; open tasks are cancelled. Errors: NotFound; vehicle_in_use.
func (s *Service) DeleteVehicleTx(ctx context.Context, tx *db.Tx, organizationID, id string, by Actor) error {
	v, err := s.LockVehicleTx(ctx, tx, organizationID, id)
	if err != nil {
		return err
	}
	if v.CurrentRideID != "" {
		return vehicleInUseError(&v)
	}
	if err := s.cancelTasks(ctx, tx, v.org, id, by); err != nil {
		return err
	}
	v.revision++
	v.setState(Removed, "decommissioned", v.org.now, "", by)
	if err := v.insertStateChanges(ctx, tx, organizationID); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO deleted_vehicles (organization_id, id, subaccount_id, code, vehicle_type_id) VALUES ($1, $2, $3, $4, $5)",
		organizationID, id, v.SubaccountID, v.Code, v.VehicleTypeID)
	if err != nil {
		return fmt.Errorf("insert a deleted vehicle: %w", err)
	}
	if err := tx.Queue(ctx, "DELETE FROM vehicles WHERE organization_id = $1 AND id = $2", organizationID, id); err != nil {
		return fmt.Errorf("delete a vehicle: %w", err)
	}
	if err := deleteTracker(ctx, tx, organizationID, id); err != nil {
		return err
	}
	s.notify(tx, organizationID, VehicleKind, id)
	if err := s.clearAlertsOfVehicle(ctx, tx, v.org, id); err != nil {
		return err
	}
	if err := s.emit(ctx, tx, v.org, event.VehicleDeleted, v.ID, v.SubaccountID, v.org.now, eventData{Vehicle: json.RawMessage(v.doc)}); err != nil {
		return err
	}
	return s.record(ctx, tx, organizationID, VehicleDeleted, audit.Target{Type: "vehicle", ID: id, Name: v.Code}, nil)
}

// DeletedVehicle returns the code and subaccount of a deleted vehicle. Error:
// NotFound.
func (s *Service) DeletedVehicle(ctx context.Context, q db.Querier, organizationID, id string) (code, subaccountID string, err error) {
	err = q.QueryRow(ctx, "SELECT code, subaccount_id FROM deleted_vehicles WHERE organization_id = $1 AND id = $2", organizationID, id).Scan(&code, &subaccountID)
	return code, subaccountID, wrapReadError(err, "vehicle")
}

// VehicleChanges returns up to limit state changes of a vehicle, the latest first.
// A non-empty before is the id of the change to continue after.
func (s *Service) VehicleChanges(ctx context.Context, q db.Querier, organizationID, vehicleID, before string, limit int) ([]StateChange, error) {
	if before == "" {
		before = eventPrefix + "_~" // greater than any id
	}
	list, err := db.All(ctx, q, func(row db.Row) (c StateChange, err error) {
		err = row.Scan(db.IntoJSON(&c))
		return c, err
	}, "SELECT doc FROM vehicle_events WHERE organization_id = $1 AND vehicle_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4", organizationID, vehicleID, before, limit)
	if err != nil {
		return nil, fmt.Errorf("read the state changes of a vehicle: %w", err)
	}
	return list, nil
}

// EachVehicleChange calls fn with the state changes of a vehicle, the latest first, from one
// snapshot. An error of fn ends it.
func (s *Service) EachVehicleChange(ctx context.Context, organizationID, vehicleID string, fn func(c *StateChange) error) error {
	return s.db.ReadBulk(ctx, func(ctx context.Context, tx *db.Tx) error {
		rows, err := tx.Query(ctx, "SELECT doc FROM vehicle_events WHERE organization_id = $1 AND vehicle_id = $2 ORDER BY id DESC", organizationID, vehicleID)
		if err != nil {
			return fmt.Errorf("read the state changes of a vehicle: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			var c StateChange
			if err := rows.Scan(db.IntoJSON(&c)); err != nil {
				return fmt.Errorf("read the state changes of a vehicle: %w", err)
			}
			if err := fn(&c); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("read the state changes of a vehicle: %w", err)
		}
		return nil
	})
}

// RideChanges returns the state changes of the vehicle caused by a ride, the first
// one first, at most 100.
func (s *Service) RideChanges(ctx context.Context, q db.Querier, organizationID string, r *Ride) ([]StateChange, error) {
	from := r.CreatedAt.Std()
	if r.backdated() {
		from = r.StartedAt.Std()
	}
	list, err := db.All(ctx, q, func(row db.Row) (c StateChange, err error) {
		err = row.Scan(db.IntoJSON(&c))
		return c, err
	}, "SELECT doc FROM vehicle_events WHERE organization_id = $1 AND vehicle_id = $2 AND id >= $3 ORDER BY id LIMIT 100",
		organizationID, r.VehicleID, idsFrom(eventPrefix, from))
	if err != nil {
		return nil, fmt.Errorf("read the state changes of a ride: %w", err)
	}
	var own []StateChange
	for _, c := range list {
		if c.RideID == NullString(r.ID) {
			own = append(own, c)
		}
	}
	return own, nil
}
