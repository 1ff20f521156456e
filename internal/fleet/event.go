package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// Events of rides, vehicles, zones, customers and tasks are written in the transactions of their changes, for
// webhooks and for streams. They have the record as it is after the change, except for
// personal data and the geometry of zones: a receiver that needs them reads the record.
//
// Only organizations that somebody listens to have events, so that others pay a look-up by key in a
// statement that they run anyway.

// StreamMemory is how long after the end of a stream or of the last webhook an organization's events
// are still recorded, so that the stream can be resumed. Events are kept at least that long.
const StreamMemory = 24 * time.Hour

// Event is a recorded event.
type Event struct {
	Sequence     int64 // from 1, without gaps, in the order of the commits
	ID           string
	Name         event.Name
	Subject      string // the record within which events are in order: the vehicle of a ride or task
	SubaccountID string
	At           time.Time // by the organization's clock
	Data         json.RawMessage
}

// eventData is the data of an event. Records are JSON in their stored form.
type eventData struct {
	Live        bool            `json:"livemode"`
	Ride        json.RawMessage `json:"ride,omitempty"`
	Vehicle     json.RawMessage `json:"vehicle,omitempty"`
	StateChange *StateChange    `json:"state_change,omitempty"`
	Zone        json.RawMessage `json:"zone,omitempty"`
	Alert       json.RawMessage `json:"alert,omitempty"`
	Customer    *eventCustomer  `json:"customer,omitempty"`
	Task        json.RawMessage `json:"task,omitempty"`
	Changed     []string        `json:"changed,omitempty"` // members of the record that an update changed
}

// eventCustomer is a customer without personal data. Name and addresses are always null: client
// libraries read a customer.created of either service.
type eventCustomer struct {
	ID            string         `json:"id"`
	Object        string         `json:"object"`
	Live          bool           `json:"livemode"`
	SubaccountID  string         `json:"subaccount_id"`
	Status        CustomerStatus `json:"status"`
	LicenseStatus string         `json:"driver_license_status"`
	RideCount     int64          `json:"ride_count"`
	OpenRideID    NullString     `json:"open_ride_id"`
	Name          NullString     `json:"name"`
	Email         NullString     `json:"email"`
	Phone         NullString     `json:"phone"`
}

// EventSource returns the source of the environment's events.
func (s *Service) EventSource() event.Source {
	if s.live {
		return event.Fleet
	}
	return event.Sandbox
}

// emit records an event of a change, if the organization's events are recorded.
func (s *Service) emit(ctx context.Context, tx *db.Tx, a orgContext, name event.Name, subject, subaccountID string, at time.Time, data eventData) error {
	if !a.recorded {
		return nil
	}
	data.Live = s.live
	doc, err := encode(data)
	if err != nil {
		return err
	}
	// The numbering is locked until the commit: last.
	tx.BeforeCommit("fleet sequence "+a.id, func() error {
		id, err := event.NewFleetID(tx.Now, s.entropy)
		if err != nil {
			return fmt.Errorf("id of an event: %w", err)
		}
		var sequence int64
		if err := tx.QueryRow(ctx, "UPDATE event_logs SET sequence = sequence + 1 WHERE organization_id = $1 RETURNING sequence", a.id).Scan(&sequence); err != nil {
			return fmt.Errorf("number an event: %w", err)
		}
		if err := tx.Queue(ctx, `INSERT INTO events (organization_id, sequence, id, name, subject, subaccount_id, data, at, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			a.id, sequence, id, string(name), subject, subaccountID, string(doc), at.UnixMicro(), tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("write event %s: %w", name, err)
		}
		return nil
	})
	if s.emitted != nil {
		tx.AfterCommit(func() { s.emitted(a.id) })
	}
	return nil
}

// emitRide records the events of a ride that is new (before is nil) or changed: that of its status or
// of an update, and after it those of its price and payment, which only an ended ride has.
func (s *Service) emitRide(ctx context.Context, tx *db.Tx, a orgContext, before, r *Ride) error {
	if !a.recorded {
		return nil
	}
	data := eventData{Ride: r.doc}
	from := RideStatus("")
	if before != nil {
		var err error
		if data.Changed, err = changedMembers(before.doc, r.doc); err != nil {
			return err
		}
		from = before.Status
	}
	names := []event.Name{rideEvent(from, r.Status)}
	if from == r.Status && before.Price != nil && r.Price != nil {
		if before.Price.TotalAmount != r.Price.TotalAmount || before.AdjustmentAmount != r.AdjustmentAmount || before.AdjustmentReason != r.AdjustmentReason {
			names = append(names, event.RidePriceAdjusted)
		}
		if before.PaymentStatus != r.PaymentStatus {
			names = append(names, event.RidePaymentUpdated)
		}
	}
	for _, name := range names {
		if err := s.emit(ctx, tx, a, name, r.VehicleID, r.SubaccountID, a.now, data); err != nil {
			return err
		}
	}
	return nil
}

// rideEvent returns the event of a ride that had the status from, empty for a new one.
func rideEvent(from, to RideStatus) event.Name {
	switch {
	case from == to:
		return event.RideUpdated
	case to == Reserved:
		return event.RideReserved
	case to == Active && from == Paused:
		return event.RideResumed
	case to == Active:
		return event.RideStarted
	case to == Paused:
		return event.RidePaused
	case to == Completed:
		return event.RideCompleted
	}
	return event.RideCancelled
}

// notDescribed are the members of vehicles without an event of their own: telemetry, and what
// follows from rides and state changes, which have events.
var notDescribed = []string{
	"location", "battery_percent", "fuel_percent", "current_range_meters", "odometer_meters", "last_reported_at",
	"current_ride_id", "public_vehicle_id", "state", "last_event", "state_changed_at",
}

// emitVehicle records the events of a changed vehicle: its state changes, which are stored, and a
// change of what describes it.
func (s *Service) emitVehicle(ctx context.Context, tx *db.Tx, a orgContext, stored, v *Vehicle, changes []StateChange) error {
	if !a.recorded {
		return nil
	}
	for i := range changes {
		names := []event.Name{event.VehicleStateChanged}
		switch changes[i].Event {
		case "comms_lost":
			names = append(names, event.VehicleCommsLost)
		case "comms_restored":
			names = append(names, event.VehicleCommsRestored)
		}
		for _, name := range names {
			err := s.emit(ctx, tx, a, name, v.ID, v.SubaccountID, changes[i].At.Std(), eventData{Vehicle: json.RawMessage(v.doc), StateChange: &changes[i]})
			if err != nil {
				return err
			}
		}
	}
	changed, err := changedMembers([]byte(stored.doc), []byte(v.doc))
	if err != nil {
		return err
	}
	changed = slices.DeleteFunc(changed, func(member string) bool { return slices.Contains(notDescribed, member) })
	if len(changed) == 0 {
		return nil
	}
	return s.emit(ctx, tx, a, event.VehicleUpdated, v.ID, v.SubaccountID, a.now, eventData{Vehicle: json.RawMessage(v.doc), Changed: changed})
}

// emitZone records an event of a zone. before is the zone before an update, else nil.
func (s *Service) emitZone(ctx context.Context, tx *db.Tx, a orgContext, name event.Name, before, z *Zone) error {
	if !a.recorded {
		return nil
	}
	doc, err := encode(z)
	if err != nil {
		return err
	}
	var data eventData
	if before != nil {
		former, err := encode(before)
		if err != nil {
			return err
		}
		if data.Changed, err = changedMembers(former, doc); err != nil {
			return err
		}
	}
	if data.Zone, err = withoutGeometry(doc); err != nil {
		return err
	}
	return s.emit(ctx, tx, a, name, z.ID, z.SubaccountID, a.now, data)
}

// withoutGeometry returns a zone's JSON without its geometry, which may have thousands of positions.
func withoutGeometry(doc []byte) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(doc, &members); err != nil {
		return nil, fmt.Errorf("decode a zone: %w", err)
	}
	delete(members, "geometry")
	return encode(members)
}

// emitCustomer records an event of a customer that is new (before is nil) or changed.
func (s *Service) emitCustomer(ctx context.Context, tx *db.Tx, a orgContext, before, c *Customer) error {
	if !a.recorded {
		return nil
	}
	name := event.CustomerCreated
	data := eventData{Customer: &eventCustomer{
		ID: c.ID, Object: c.Object, Live: c.Live, SubaccountID: c.SubaccountID, Status: c.Status,
		LicenseStatus: c.LicenseStatus, RideCount: c.RideCount, OpenRideID: c.OpenRideID,
	}}
	if before != nil {
		name = customerEvent(before.Status, c.Status)
		former, err := encode(before)
		if err != nil {
			return err
		}
		doc, err := encode(c)
		if err != nil {
			return err
		}
		if data.Changed, err = changedMembers(former, doc); err != nil {
			return err
		}
	}
	return s.emit(ctx, tx, a, name, c.ID, c.SubaccountID, a.now, data)
}

func customerEvent(from, to CustomerStatus) event.Name {
	switch {
	case from == to:
		return event.CustomerUpdated
	case to == CustomerBlocked:
		return event.CustomerBlocked
	case to == CustomerAnonymised:
		return event.CustomerAnonymised
	}
	return event.CustomerUnblocked
}

// changedMembers returns the names of the members that differ between two versions of a record,
// sorted, except updated_at.
func changedMembers(before, after []byte) ([]string, error) {
	var from, to map[string]json.RawMessage
	if err := json.Unmarshal(before, &from); err != nil {
		return nil, fmt.Errorf("decode a record: %w", err)
	}
	if err := json.Unmarshal(after, &to); err != nil {
		return nil, fmt.Errorf("decode a record: %w", err)
	}
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if name != "updated_at" && !bytes.Equal(from[name], to[name]) {
			changed = append(changed, name)
		}
	}
	return changed, nil
}

// recordedUntil selects the real time until which the events of an organization are recorded;
// NULL: they are not.
const recordedUntil = "(SELECT CASE WHEN e.webhooks THEN 9223372036854775807 ELSE e.streams_until END FROM event_logs e WHERE e.organization_id = s.organization_id)"

// RecordEvents makes the service record the events of exactly these organizations for webhooks. Those of
// others are recorded for [StreamMemory] more: a process that was slow may not know a new webhook yet,
// whose events must not be lost until the next call.
func (s *Service) RecordEvents(ctx context.Context, organizationIDs []string) error {
	have, err := db.All(ctx, s.db, scanID, "SELECT organization_id FROM event_logs WHERE webhooks ORDER BY organization_id")
	if err != nil {
		return fmt.Errorf("read which events are recorded: %w", err)
	}
	wanted := slices.Sorted(slices.Values(organizationIDs))
	if slices.Equal(have, wanted) {
		return nil
	}
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		for _, id := range wanted {
			if err := tx.Queue(ctx, `INSERT INTO event_logs (organization_id, sequence, relayed, webhooks, streams_until) VALUES ($1, 0, 0, TRUE, 0)
				ON CONFLICT (organization_id) DO UPDATE SET webhooks = TRUE`, id); err != nil {
				return err
			}
		}
		for _, id := range have {
			if _, ok := slices.BinarySearch(wanted, id); !ok {
				if err := tx.Queue(ctx, `UPDATE event_logs SET webhooks = FALSE, streams_until = CASE WHEN streams_until > $2 THEN streams_until ELSE $2 END
					WHERE organization_id = $1`, id, tx.Now.Add(StreamMemory).UnixMicro()); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("change which events are recorded: %w", err)
	}
	return nil
}

func scanID(row db.Row) (id string, err error) {
	err = row.Scan(&id)
	return id, err
}

// WaitingEvents returns the organizations with events that are not relayed to webhooks.
func (s *Service) WaitingEvents(ctx context.Context) ([]string, error) {
	list, err := db.All(ctx, s.db, scanID, "SELECT organization_id FROM event_logs WHERE sequence > relayed ORDER BY organization_id")
	if err != nil {
		return nil, fmt.Errorf("look for new events: %w", err)
	}
	return list, nil
}

// NextEvents returns the next events of an organization that are not relayed, at most limit, and the
// position after them for [Service.EventsRelayed].
func (s *Service) NextEvents(ctx context.Context, organizationID string, limit int) ([]event.Event, int64, error) {
	var position int64
	if err := s.db.QueryRow(ctx, "SELECT relayed FROM event_logs WHERE organization_id = $1", organizationID).Scan(&position); err != nil {
		return nil, 0, fmt.Errorf("read the position in events: %w", err)
	}
	list, err := s.EventsAfter(ctx, s.db, organizationID, position, limit)
	if err != nil {
		return nil, 0, err
	}
	events := make([]event.Event, len(list))
	for i, e := range list {
		events[i] = event.Event{
			ID: e.ID, OrganizationID: organizationID, Name: e.Name, At: e.At, Data: event.Data{Fleet: e.Data},
			Source: s.EventSource(), Subject: e.Subject,
		}
		position = e.Sequence
	}
	return events, position, nil
}

// EventsRelayed notes that the events of an organization up to a position are relayed.
func (s *Service) EventsRelayed(ctx context.Context, organizationID string, position int64) error {
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		if s.relayed != nil {
			tx.AfterCommit(func() { s.relayed(organizationID) })
		}
		return tx.Queue(ctx, "UPDATE event_logs SET relayed = $2 WHERE organization_id = $1 AND relayed < $2", organizationID, position)
	})
	if err != nil {
		return fmt.Errorf("note relayed events: %w", err)
	}
	return nil
}

// EventsAfter returns the events of an organization after a sequence, in order, at most limit.
func (s *Service) EventsAfter(ctx context.Context, q db.Querier, organizationID string, sequence int64, limit int) ([]Event, error) {
	list, err := db.All(ctx, q, func(row db.Row) (e Event, err error) {
		var data string
		err = row.Scan(&e.Sequence, &e.ID, &e.Name, &e.Subject, &e.SubaccountID, &data, db.IntoTime(&e.At))
		e.Data = json.RawMessage(data)
		return e, err
	}, `SELECT sequence, id, name, subject, subaccount_id, data, at FROM events
		WHERE organization_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3`, organizationID, sequence, limit)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return list, nil
}

// OpenStream makes the service record the events of an organization for a stream, and returns the
// sequences of the events that are stored: after first, up to last. Call it again at least every
// half of [StreamMemory] while the stream is open.
func (s *Service) OpenStream(ctx context.Context, organizationID string) (first, last int64, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		until := tx.Now.Add(StreamMemory).UnixMicro()
		err := tx.QueryRow(ctx, `INSERT INTO event_logs (organization_id, sequence, relayed, webhooks, streams_until) VALUES ($1, 0, 0, FALSE, $2)
			ON CONFLICT (organization_id) DO UPDATE SET streams_until = $2 RETURNING sequence`, organizationID, until).Scan(&last)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT coalesce(min(sequence) - 1, $2) FROM events WHERE organization_id = $1", organizationID, last).Scan(&first)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("open a stream of events: %w", err)
	}
	return first, last, nil
}

// purgeStep bounds the events that one transaction of [Service.PurgeEvents] deletes of an organization.
const purgeStep = 500

// PurgeEvents deletes relayed events older than [StreamMemory], in small steps.
func (s *Service) PurgeEvents(ctx context.Context) error {
	organizations, err := db.All(ctx, s.db, scanID, "SELECT organization_id FROM event_logs ORDER BY organization_id")
	if err != nil {
		return fmt.Errorf("look for old events: %w", err)
	}
	for _, id := range organizations {
		err := db.Steps(ctx, func() (more bool, err error) {
			err = s.db.Write(ctx, func(tx *db.Tx) error {
				n, err := tx.Exec(ctx, `DELETE FROM events WHERE organization_id = $1 AND sequence <= (SELECT relayed FROM event_logs WHERE organization_id = $1)
					AND sequence < (SELECT coalesce(min(sequence), 0) + $3 FROM events WHERE organization_id = $1) AND created_at < $2`,
					id, tx.Now.Add(-StreamMemory).UnixMicro(), purgeStep)
				more = n == purgeStep
				return err
			})
			return more, err
		})
		if err != nil {
			return fmt.Errorf("delete old events: %w", err)
		}
	}
	return nil
}

// isRecorded reports whether events are recorded at a real time, until a time in microseconds.
func isRecorded(until *int64, now time.Time) bool {
	return until != nil && (*until == math.MaxInt64 || now.UnixMicro() < *until)
}
