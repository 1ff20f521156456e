package event

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"

	"github.com/oklog/ulid/v2"
)

// Source is the service and environment that events come from. Names are unique within a source.
type Source string

// The sources. Events of fleets are recorded in the databases of the fleets. Package webhook copies
// those with deliveries into the table fleet_events.
const (
	Helpdesk Source = "helpdesk"
	Fleet    Source = "fleet"   // production
	Sandbox  Source = "sandbox" // of the fleet
)

// Sources lists all sources.
var Sources = [...]Source{Helpdesk, Fleet, Sandbox}

// Events of fleets, beside [CustomerCreated] and [CustomerUpdated], which both services have.
const (
	RideReserved         Name = "ride.reserved"
	RideStarted          Name = "ride.started"
	RidePaused           Name = "ride.paused"
	RideResumed          Name = "ride.resumed"
	RideCompleted        Name = "ride.completed"
	RideCancelled        Name = "ride.cancelled"
	RideUpdated          Name = "ride.updated"
	RidePriceAdjusted    Name = "ride.price_adjusted"
	RidePaymentUpdated   Name = "ride.payment_updated"
	VehicleCreated       Name = "vehicle.created"
	VehicleUpdated       Name = "vehicle.updated"
	VehicleStateChanged  Name = "vehicle.state_changed"
	VehicleCommsLost     Name = "vehicle.comms_lost"
	VehicleCommsRestored Name = "vehicle.comms_restored"
	VehicleDeleted       Name = "vehicle.deleted"
	ZoneCreated          Name = "zone.created"
	ZoneUpdated          Name = "zone.updated"
	ZoneDeleted          Name = "zone.deleted"
	AlertRaised          Name = "alert.raised"
	AlertCleared         Name = "alert.cleared"
	CustomerBlocked      Name = "customer.blocked"
	CustomerUnblocked    Name = "customer.unblocked"
	CustomerAnonymised   Name = "customer.anonymised"
	TaskCreated          Name = "task.created"
	TaskUpdated          Name = "task.updated"
	TaskOverdue          Name = "task.overdue"
	TaskDone             Name = "task.done"
)

// FleetEvent describes an event of fleets.
type FleetEvent struct {
	Name    Name
	Summary string // of documents: "A ride started"
}

// FleetEvents describes every event of fleets. Names that begin with the same word have data of one kind
// (package fleetapi).
var FleetEvents = [...]FleetEvent{
	{RideReserved, "A vehicle was reserved"},
	{RideStarted, "A ride started"},
	{RidePaused, "A ride was paused"},
	{RideResumed, "A paused ride went on"},
	{RideCompleted, "A ride was completed"},
	{RideCancelled, "A ride or reservation was cancelled, or expired"},
	{RideUpdated, "Fields of a ride changed: adjustment, payment, distance or others"},
	{RidePriceAdjusted, "The price of an ended ride changed, by an adjustment or a corrected distance"},
	{RidePaymentUpdated, "The payment status of an ended ride changed"},
	{VehicleCreated, "A new vehicle"},
	{VehicleUpdated, "Fields that describe a vehicle changed"},
	{VehicleStateChanged, "The state of a vehicle changed"},
	{VehicleCommsLost, "A vehicle has not reported for the time that the settings allow"},
	{VehicleCommsRestored, "A vehicle out of contact reported again"},
	{VehicleDeleted, "A vehicle was deleted"},
	{ZoneCreated, "A new zone"},
	{ZoneUpdated, "Fields of a zone changed"},
	{ZoneDeleted, "A zone was deleted"},
	{AlertRaised, "An alert of a vehicle was raised"},
	{AlertCleared, "The condition of an alert ended"},
	{CustomerCreated, "A new customer"},
	{CustomerUpdated, "Fields of a customer changed"},
	{CustomerBlocked, "A customer was blocked"},
	{CustomerUnblocked, "A blocked customer became active again"},
	{CustomerAnonymised, "The personal data of a customer were erased"},
	{TaskCreated, "A new task"},
	{TaskUpdated, "Fields of a task changed, it became overdue, or it was cancelled"},
	{TaskOverdue, "A task became overdue, once for each due time or odometer"},
	{TaskDone, "A task was done"},
}

// FleetNames lists every event of fleets.
var FleetNames = func() (names [len(FleetEvents)]Name) {
	for i, e := range FleetEvents {
		names[i] = e.Name
	}
	return names
}()

// Names returns the events of a source that "*" includes.
func (s Source) Names() []Name {
	if s.OfFleet() {
		return FleetNames[:]
	}
	return Names[:]
}

// OfFleet reports whether the source is an environment of the fleet.
func (s Source) OfFleet() bool { return s == Fleet || s == Sandbox }

// Valid reports whether the source exists.
func (s Source) Valid() bool { return slices.Contains(Sources[:], s) }

// fleetPrefix begins the ids of events of fleets. Those of the helpdesk are UUIDs.
const fleetPrefix = "evt_"

// NewFleetID returns the id of an event of a fleet.
func NewFleetID(at time.Time, entropy ulid.MonotonicReader) (string, error) {
	id, err := ulid.New(ulid.Timestamp(at), entropy)
	return fleetPrefix + id.String(), err
}

// IsFleetID reports whether an id has the form of those of [NewFleetID].
func IsFleetID(id string) bool {
	rest, ok := strings.CutPrefix(id, fleetPrefix)
	_, err := ulid.ParseStrict(rest)
	return ok && err == nil
}

// StoreTx stores copies of events of a fleet and returns those that were not stored before.
func StoreTx(ctx context.Context, tx *db.Tx, events []Event) ([]Event, error) {
	var fresh []Event
	for _, e := range events {
		n, err := tx.Exec(ctx, `INSERT INTO fleet_events (id, organization_id, source, name, subject, data, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
			e.ID, e.OrganizationID, string(e.Source), string(e.Name), e.Subject, string(e.Data.Fleet), e.At.UnixMicro())
		if err != nil {
			return nil, fmt.Errorf("store event %s: %w", e.Name, err)
		}
		if n == 1 {
			fresh = append(fresh, e)
		}
	}
	return fresh, nil
}

// findFleet returns the stored events of fleets with the given ids.
func findFleet(ctx context.Context, q db.Querier, ids []string) ([]Event, error) {
	return db.All(ctx, q, func(row db.Row) (e Event, err error) {
		var data string
		err = row.Scan(&e.ID, &e.OrganizationID, &e.Source, &e.Name, &e.Subject, &data, db.IntoTime(&e.At))
		e.Data.Fleet = []byte(data)
		return e, err
	}, "SELECT id, organization_id, source, name, subject, data, created_at FROM fleet_events WHERE id = ANY($1)", ids)
}

// split returns the ids of events of the helpdesk and of fleets.
func split(ids []string) (helpdesk, fleet []string) {
	for _, id := range ids {
		if strings.HasPrefix(id, fleetPrefix) {
			fleet = append(fleet, id)
		} else {
			helpdesk = append(helpdesk, id)
		}
	}
	return helpdesk, fleet
}

// purgeFleetSome is purgeSome for events of fleets.
func purgeFleetSome(ctx context.Context, d *db.DB, after string, before time.Time) (n int, last string, err error) {
	var first ulid.ULID
	if err := first.SetTime(ulid.Timestamp(before)); err != nil {
		return 0, "", err
	}
	err = d.Write(ctx, func(tx *db.Tx) error {
		n, last = 0, ""
		ids, err := db.All(ctx, tx, func(row db.Row) (id string, err error) {
			err = row.Scan(&id)
			return id, err
		}, "SELECT id FROM fleet_events WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3", after, fleetPrefix+first.String(), purgeStep)
		if err != nil || len(ids) == 0 {
			return err
		}
		deleted, err := tx.Exec(ctx, `DELETE FROM fleet_events WHERE id = ANY($1)
			AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = fleet_events.id)`, ids)
		if n = int(deleted); len(ids) == purgeStep {
			last = ids[purgeStep-1]
		}
		return err
	})
	if err != nil {
		return 0, "", err
	}
	return n, last, nil
}
