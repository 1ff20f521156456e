package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// TripType is the purpose of a trip.
type TripType string

// Types of trips. Only rider trips have a customer and a price.
const (
	RiderTrip       TripType = "rider"
	RebalanceTrip   TripType = "rebalance"
	MaintenanceTrip TripType = "maintenance"
)

// Ride is a trip or a reservation (fleet-api.md 1.1).
type Ride struct {
	RecordHeader
	Status               RideStatus    `json:"status"`
	TripType             TripType      `json:"trip_type"`
	CustomerID           NullString    `json:"customer_id"`
	VehicleID            string        `json:"vehicle_id"`
	PricingPlanID        NullString    `json:"pricing_plan_id"` // null unless a rider trip
	PricingPlanVersion   *int64        `json:"pricing_plan_version"`
	ReservedAt           rfc3339.Time  `json:"reserved_at"`
	ReservationExpiresAt rfc3339.Time  `json:"reservation_expires_at"`
	StartedAt            rfc3339.Time  `json:"started_at"`
	EndedAt              rfc3339.Time  `json:"ended_at"`
	DurationSeconds      int64         `json:"duration_seconds"` // of an open ride computed on read, not stored
	PausedSeconds        int64         `json:"paused_seconds"`
	DistanceMeters       *int64        `json:"distance_meters"`
	StartLocation        *geo.Position `json:"start_location"`
	EndLocation          *geo.Position `json:"end_location"`
	StartZoneID          NullString    `json:"start_zone_id"`
	EndZoneID            NullString    `json:"end_zone_id"`
	EndReason            NullString    `json:"end_reason"`
	CancelReason         NullString    `json:"cancel_reason"`
	ParkingURL           NullString    `json:"parking_verification_url"`
	ParkingCategory      NullString    `json:"parking_category"`
	Price                *tariff.Price `json:"price"`
	AdjustmentAmount     int64         `json:"adjustment_amount"`
	AdjustmentReason     NullString    `json:"adjustment_reason"`
	PaymentStatus        string        `json:"payment_status"`
	Timestamps

	// Not in the JSON.
	revision       int64
	vehicleTypeID  string         // of the vehicle at the start
	pauseAt        rfc3339.Time   // start of the current pause; of an active ride, end of the last one
	startOdometer  *int64         // meters
	distanceSource distanceSource // of DistanceMeters; empty: unknown
	dueAt          time.Time      // of expiry or the maximum duration; zero: none
	doc            []byte         // as stored; nil if unknown
	org            orgContext     // of the transaction that read it
}

// NewRide has the fields of a ride to create (fleet-api.md 1.1, R, O and C).
type NewRide struct {
	SubaccountID       string                       `json:"subaccount_id"` // must be the vehicle's; empty: not checked
	ExternalID         NullString                   `json:"external_id"`
	Status             RideStatus                   `json:"status"`    // empty: active
	TripType           TripType                     `json:"trip_type"` // empty: rider
	CustomerID         NullString                   `json:"customer_id"`
	VehicleID          NullString                   `json:"vehicle_id"`
	VehicleCode        NullString                   `json:"vehicle_code"` // instead of the id
	PricingPlanID      NullString                   `json:"pricing_plan_id"`
	PricingPlanVersion *int64                       `json:"pricing_plan_version"`
	StartedAt          optional.Value[rfc3339.Time] `json:"started_at"` // of an active ride of an app that was offline; absent or null: now
	StartLocation      *geo.Position                `json:"start_location"`
	Metadata           map[string]string            `json:"metadata"`
}

// RideChange has the fields that a PUT sets. Absent fields remain.
type RideChange struct {
	Status             optional.Value[RideStatus]        `json:"status"`
	ExternalID         optional.Value[NullString]        `json:"external_id"`
	DistanceMeters     optional.Value[int64]             `json:"distance_meters"`
	EndedAt            optional.Value[rfc3339.Time]      `json:"ended_at"` // with completion
	EndLocation        optional.Value[geo.Position]      `json:"end_location"`
	EndReason          optional.Value[NullString]        `json:"end_reason"`
	CancelReason       optional.Value[NullString]        `json:"cancel_reason"`
	AcceptOutOfZoneFee optional.Value[bool]              `json:"accept_out_of_zone_fee"`
	ParkingURL         optional.Value[NullString]        `json:"parking_verification_url"`
	ParkingCategory    optional.Value[NullString]        `json:"parking_category"`
	AdjustmentAmount   optional.Value[int64]             `json:"adjustment_amount"`
	AdjustmentReason   optional.Value[NullString]        `json:"adjustment_reason"`
	PaymentStatus      optional.Value[string]            `json:"payment_status"`
	Metadata           optional.Value[map[string]string] `json:"metadata"` // the merged result
}

// Record returns the ride's stored form; of an open ride, with the durations at the
// time it was read.
func (r *Ride) Record() (Record, error) {
	shown := r.asOf(r.org.now)
	doc, err := r.doc, error(nil)
	if doc == nil || shown.DurationSeconds != r.DurationSeconds || shown.PausedSeconds != r.PausedSeconds {
		doc, err = encode(&shown)
	}
	return Record{ID: r.ID, SubaccountID: r.SubaccountID, Revision: r.revision, JSON: doc, Distance: -1}, err
}

// asOf returns an open ride with its durations at now. Any other ride is unchanged.
func (r *Ride) asOf(now time.Time) Ride {
	shown := *r
	if r.Status == Active || r.Status == Paused {
		shown.DurationSeconds = seconds(r.StartedAt, now)
	}
	if r.Status == Paused {
		shown.PausedSeconds += seconds(r.pauseAt, now)
	}
	return shown
}

// seconds returns the whole seconds from one time to another, at least 0.
func seconds(from rfc3339.Time, to time.Time) int64 {
	return max(0, int64(to.Sub(from.Std())/time.Second))
}

// columns are the columns stored beside the document.
func (r *Ride) columns() []column {
	var cell, total, duration any
	if !r.StartedAt.Std().IsZero() {
		cell = cellValue(r.StartLocation)
	}
	if r.Price != nil {
		total, duration = r.Price.TotalAmount, r.DurationSeconds
	}
	return []column{
		{"id", r.ID},
		{"subaccount_id", r.SubaccountID},
		{"revision", r.revision},
		{"external_id", idValue(r.ExternalID)},
		{"status", string(r.Status)},
		{"trip_type", string(r.TripType)},
		{"customer_id", idValue(r.CustomerID)},
		{"vehicle_id", r.VehicleID},
		{"vehicle_type_id", r.vehicleTypeID},
		{"pricing_plan_id", idValue(r.PricingPlanID)},
		{"payment_status", r.PaymentStatus},
		{"start_zone_id", idValue(r.StartZoneID)},
		{"start_cell", cell},
		{"reserved_at", db.Time(r.ReservedAt.Std())},
		{"started_at", db.Time(r.StartedAt.Std())},
		{"ended_at", db.Time(r.EndedAt.Std())},
		{"paused_at", db.Time(r.pauseAt.Std())},
		{"due_at", db.Time(r.dueAt)},
		{"start_odometer", integerValue(r.startOdometer)},
		{"distance_source", db.Text(string(r.distanceSource))},
		{"total_amount", total},
		{"duration_seconds", duration},
		{"updated_at", db.Time(r.UpdatedAt.Std())},
		{"doc", string(r.doc)},
	}
}

// due returns the time at which the ride ends without a request; zero: none.
func (r *Ride) due(settings *Settings) time.Time {
	switch r.Status {
	case Reserved:
		return r.ReservationExpiresAt.Std()
	case Active, Paused:
		due := r.StartedAt.Std().Add(time.Duration(settings.MaxRideMinutes) * time.Minute)
		if grace := r.CreatedAt.Std().Add(offlineGrace); r.backdated() && due.Before(grace) {
			return grace
		}
		return due
	}
	return time.Time{}
}

// encode sets the document and the due time.
func (r *Ride) encode(settings *Settings) (err error) {
	r.dueAt = r.due(settings)
	r.doc, err = encode(r)
	return err
}

// insertRide inserts a ride. Only insertRide and updateRide write rides, since they
// maintain the indexes and rollups.
func (s *Service) insertRide(ctx context.Context, tx *db.Tx, a orgContext, r *Ride) error {
	if err := r.encode(a.settings); err != nil {
		return err
	}
	row := r.columns()
	added, err := insertRow(ctx, tx, "rides", a.id, row)
	if err != nil {
		return err
	}
	if !added {
		if err := claimUnique(ctx, tx, "rides", a.id, r.SubaccountID, r.ID, "external_id", r.ExternalID); err != nil {
			return err
		}
		// Locks prevent this while records are consistent.
		return fmt.Errorf("vehicle %s or its customer has an open ride that is not recorded with them", r.VehicleID)
	}
	if err := s.indexRide(ctx, tx, a.id, nil, row); err != nil {
		return err
	}
	s.notifyRide(tx, a.id, r)
	if err := s.emitRide(ctx, tx, a, nil, r); err != nil {
		return err
	}
	s.invalidateRollups(ctx, tx, a.id, nil, r)
	return nil
}

func (s *Service) updateRide(ctx context.Context, tx *db.Tx, a orgContext, before, r *Ride) error {
	r.revision = before.revision + 1
	r.UpdatedAt = nextUpdatedAt(before.UpdatedAt, a.now)
	if err := r.encode(a.settings); err != nil {
		return err
	}
	was, is := before.columns(), r.columns()
	err := updateRow(ctx, tx, "rides", a.id, r.ID, was, is)
	if db.IsUnique(err) { // by a concurrent transaction
		return alreadyExistsError("external_id")
	}
	if err != nil {
		return err
	}
	if err := s.indexRide(ctx, tx, a.id, was, is); err != nil {
		return err
	}
	s.notifyRide(tx, a.id, r)
	if err := s.emitRide(ctx, tx, a, before, r); err != nil {
		return err
	}
	s.invalidateRollups(ctx, tx, a.id, before, r)
	return nil
}

// notifyRide notifies of a ride and its customer, which changes with it.
func (s *Service) notifyRide(tx *db.Tx, organizationID string, r *Ride) {
	s.notify(tx, organizationID, RideKind, r.ID)
	if r.CustomerID != "" {
		s.notify(tx, organizationID, CustomerKind, string(r.CustomerID))
	}
}

// Ride returns a ride with its durations as of now. Error: NotFound.
func (s *Service) Ride(ctx context.Context, q db.Querier, organizationID, id string) (Ride, error) {
	r, err := readRide(ctx, q, organizationID, id, "")
	if err == nil && r.Status.Open() {
		r.org, err = s.orgContext(ctx, q, s.db.Now(), organizationID)
	}
	return r, err
}

func readRide(ctx context.Context, q db.Querier, organizationID, id, lock string) (Ride, error) {
	var r Ride
	var pauseAt, dueAt time.Time
	var source string
	err := q.QueryRow(ctx, "SELECT doc, revision, vehicle_type_id, paused_at, due_at, start_odometer, distance_source FROM rides WHERE organization_id = $1 AND id = $2"+lock, organizationID, id).
		Scan(&r.doc, &r.revision, &r.vehicleTypeID, db.IntoTime(&pauseAt), db.IntoTime(&dueAt), &r.startOdometer, db.IntoText(&source))
	if err != nil {
		return r, wrapReadError(err, "ride")
	}
	if err := json.Unmarshal(r.doc, &r); err != nil {
		return r, fmt.Errorf("decode a ride: %w", err)
	}
	r.pauseAt, r.dueAt, r.distanceSource = rfc3339.Time(pauseAt), dueAt, distanceSource(source)
	return r, nil
}

// LockRideTx locks a ride and ends it if it is due, for [Service.UpdateRideTx] in the
// same transaction. Error: NotFound.
func (s *Service) LockRideTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Ride, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Ride{}, err
	}
	r, err := readRide(ctx, tx, organizationID, id, " FOR UPDATE")
	if err != nil {
		return r, err
	}
	r.org = a
	return s.expireRide(ctx, tx, a, r)
}

// reuseOrgContext returns the context of a locked record, or reads it if the record
// has none of this organization.
func (s *Service) reuseOrgContext(ctx context.Context, tx *db.Tx, as orgContext, organizationID string) (orgContext, error) {
	if as.id == organizationID {
		return as, nil
	}
	return s.orgContext(ctx, tx, tx.Now, organizationID)
}

// expireRide ends a locked ride that is due, as of its due time.
func (s *Service) expireRide(ctx context.Context, tx *db.Tx, a orgContext, r Ride) (Ride, error) {
	if !r.Status.Open() {
		return r, nil
	}
	// The stored time: new settings do not move a time that is past.
	due := r.dueAt
	if due.IsZero() || due.After(a.now) {
		return r, nil
	}
	before := r
	end := rideEnd{at: due, reason: "max_duration", by: systemActor}
	// The app of a late ride could end it until now. It ends as if it had been on time, but not before the
	// last request of the app.
	if longest := r.StartedAt.Std().Add(time.Duration(a.settings.MaxRideMinutes) * time.Minute); r.backdated() && due.Equal(r.CreatedAt.Std().Add(offlineGrace)) && longest.Before(due) {
		end.at, end.late = longest, true
		if longest.Before(r.pauseAt.Std()) {
			end.at = r.pauseAt.Std()
		}
	}
	var err error
	if r.Status == Reserved {
		end.reason = "reservation_expired"
		err = s.cancel(ctx, tx, a, &r, end)
	} else {
		err = s.complete(ctx, tx, a, &r, end)
	}
	if err != nil {
		return r, fmt.Errorf("end ride %s, which is due: %w", r.ID, err)
	}
	return r, s.updateRide(ctx, tx, a, &before, &r)
}

// openRides is the predicate of the partial indexes of open rides.
const openRides = "status IN ('reserved', 'active', 'paused')"

// expireDueRides ends the rides of a vehicle and of a customer that are due. Call
// it before locking either: rides are locked first.
func (s *Service) expireDueRides(ctx context.Context, tx *db.Tx, a orgContext, vehicleID, customerID string) error {
	var due [2]string
	err := tx.QueryRow(ctx, "SELECT "+dueRides, a.id, vehicleID, customerID, a.now.UnixMicro()).Scan(db.IntoText(&due[0]), db.IntoText(&due[1]))
	if err != nil {
		return fmt.Errorf("look up due rides: %w", err)
	}
	return s.expireRides(ctx, tx, a, due[:], []string{vehicleID}, customerID)
}

// dueRides selects the rides of vehicle $2 and of customer $3 that are due at $4.
const dueRides = "(SELECT id FROM rides WHERE organization_id = $1 AND vehicle_id = $2 AND due_at <= $4 AND " + openRides + "), " +
	"(SELECT id FROM rides WHERE organization_id = $1 AND customer_id = $3 AND due_at <= $4 AND " + openRides + ")"

// expireRides ends rides that are due; empty ids are none. The caller locks the vehicles and the customers afterwards;
// they are locked before the rides end, because these are of other vehicles and customers too.
func (s *Service) expireRides(ctx context.Context, tx *db.Tx, a orgContext, due, vehicleIDs []string, customerIDs ...string) error {
	slices.Sort(due)
	ids := slices.DeleteFunc(slices.Compact(due), func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return nil
	}
	if err := s.lockRecords(ctx, tx, a.id, ids, vehicleIDs, customerIDs...); err != nil {
		return err
	}
	for _, id := range ids {
		r, err := readRide(ctx, tx, a.id, id, " FOR UPDATE")
		if err != nil {
			return err
		}
		if _, err := s.expireRide(ctx, tx, a, r); err != nil {
			return err
		}
	}
	return nil
}

// rideCustomer is a locked customer, as stored and as changed by the ride.
type rideCustomer struct{ stored, now Customer }

// lockRideCustomer locks the customer of a ride. It returns nil without an id.
func lockRideCustomer(ctx context.Context, tx *db.Tx, organizationID string, id NullString) (*rideCustomer, error) {
	if id == "" {
		return nil, nil
	}
	c, err := readCustomer(ctx, tx, organizationID, string(id), " FOR UPDATE")
	return &rideCustomer{c, c}, err
}

// save writes the changed customer. A nil receiver is valid.
func (r *rideCustomer) save(ctx context.Context, tx *db.Tx, a orgContext) error {
	if r == nil {
		return nil
	}
	r.now.revision = r.stored.revision + 1
	r.now.UpdatedAt = nextUpdatedAt(r.stored.UpdatedAt, a.now)
	doc, err := encode(&r.now)
	if err != nil {
		return err
	}
	columns := func(c *Customer, doc string) []column {
		return []column{
			{"revision", c.revision},
			{"last_ride_at", db.Time(c.LastRideAt.Std())},
			{"updated_at", db.Time(c.UpdatedAt.Std())},
			{"doc", doc},
		}
	}
	return updateRow(ctx, tx, "customers", a.id, r.now.ID, columns(&r.stored, ""), columns(&r.now, string(doc)))
}

// StartRideTx creates a ride or a reservation in the caller's transaction. Errors:
// Invalid; Conflict already_exists; the codes of fleet-api.md 5 for a vehicle,
// customer or place that does not allow it.
func (s *Service) StartRideTx(ctx context.Context, tx *db.Tx, organizationID string, n NewRide, by Actor) (Ride, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Ride{}, err
	}
	status, trip := n.Status, n.TripType
	if status == "" {
		status = Active
	}
	if trip == "" {
		trip = RiderTrip
	}
	var faults problem.Validation
	checkCommon(&faults, n.ExternalID, n.Metadata)
	checkOneOf(&faults, "status", status, Active, Reserved)
	checkOneOf(&faults, "trip_type", trip, RiderTrip, RebalanceTrip, MaintenanceTrip)
	n.StartLocation.Check(&faults, "start_location")
	start := a.now.Truncate(time.Millisecond)
	past := n.StartedAt.Set && !n.StartedAt.Null
	if at := n.StartedAt.Value.Std(); past {
		start = at.Truncate(time.Millisecond)
		a.checkPast(&faults, "started_at", at)
		if status == Reserved {
			faults.AddCode("conflict", "started_at", "must not be given for a reservation")
		}
	}
	switch {
	case faults.Has("trip_type"):
	case trip == RiderTrip && n.CustomerID == "":
		faults.AddCode("required", "customer_id", "is required for a rider trip")
	case trip != RiderTrip && n.CustomerID != "":
		faults.AddCode("conflict", "customer_id", "must not be given for a %s trip", trip)
	}
	if trip != RiderTrip && !faults.Has("trip_type") && (n.PricingPlanID != "" || n.PricingPlanVersion != nil) {
		faults.AddCode("conflict", "pricing_plan_id", "must not be given for a %s trip", trip)
	}
	p, err := s.lockNewRideContext(ctx, tx, a, n, &faults)
	if err != nil {
		return Ride{}, err
	}
	if err := faults.Err(); err != nil {
		return Ride{}, err
	}
	kind := p.subaccount.vehicleType(p.vehicle.VehicleTypeID)
	if kind == nil {
		return Ride{}, fmt.Errorf("vehicle %s has a type that is not in its subaccount", p.vehicle.ID)
	}
	if status == Reserved && kind.ReservationMinutes == 0 {
		faults.Add("status", "must not be reserved: vehicles of this type allow no reservations")
		return Ride{}, faults.Err()
	}

	// A ride that was created late may have emptied the battery.
	available := p.vehicle.State == Available || past && p.vehicle.disabledByBattery()
	if !available || p.vehicle.CurrentRideID != "" {
		return Ride{}, unavailableError(&p.vehicle)
	}
	if p.rider != nil {
		switch c := &p.rider.now; {
		case c.Status != CustomerActive:
			return Ride{}, conflict("customer_blocked", "the customer is %s", c.Status)
		case c.OpenRideID != "":
			e := conflict("customer_has_open_ride", "the customer has an open ride")
			e.Details = map[string]any{"ride_id": string(c.OpenRideID)}
			return Ride{}, e
		}
	}
	var r Ride
	r.RecordHeader, r.Timestamps = s.newRecord(ridePrefix, "ride", p.vehicle.SubaccountID, a.now)
	r.ExternalID, r.TripType, r.CustomerID, r.VehicleID = n.ExternalID, trip, n.CustomerID, p.vehicle.ID
	r.PaymentStatus, r.StartLocation = "not_due", n.StartLocation
	r.Metadata = metadataOf(n.Metadata)
	r.revision, r.vehicleTypeID, r.org = 1, kind.ID, a
	if past {
		if err := checkOverlap(ctx, tx, &faults, a.id, p.vehicle.ID, n.CustomerID, start); err != nil {
			return Ride{}, err
		}
		if err := faults.Err(); err != nil {
			return Ride{}, err
		}
		if r.StartLocation == nil {
			if r.StartLocation, err = s.positionAt(ctx, tx, a.id, p.vehicle.ID, start); err != nil {
				return Ride{}, err
			}
		}
	}
	if trip == RiderTrip {
		if err := s.assignPlan(ctx, tx, a, &r, p, kind, n, start); err != nil {
			return Ride{}, err
		}
	}
	if status == Reserved {
		if p.vehicle.batteryBelow(a.settings.LowBatteryPercent) {
			return Ride{}, lowBatteryError(&p.vehicle, a.settings)
		}
		r.reserve(p, kind, by)
	} else if err := s.activate(ctx, tx, a, &r, p, kind, start, by); err != nil {
		return Ride{}, err
	}
	p.vehicle.CurrentRideID = NullString(r.ID)
	if p.rider != nil {
		p.rider.now.OpenRideID = NullString(r.ID)
	}
	if err := s.insertRide(ctx, tx, a, &r); err != nil {
		return Ride{}, err
	}
	return r, s.saveRideContext(ctx, tx, a, p)
}

// unavailableError is the error of a ride on a vehicle that is not available.
func unavailableError(v *Vehicle) error {
	e := conflict("vehicle_unavailable", "the vehicle is %s", v.State)
	e.Details = map[string]any{"state": string(v.State)}
	return e
}

// rideContext has the records that a ride depends on. All but the subaccount are
// locked.
type rideContext struct {
	subaccount    *Subaccount
	stamp         int64 // of the subaccount
	vehicle       Vehicle
	storedVehicle Vehicle
	rider         *rideCustomer // nil unless a rider trip
}

// lockNewRideContext locks the vehicle and customer of a new ride, after expiring
// their due rides. It adds issues for missing records; the result may then be nil.
func (s *Service) lockNewRideContext(ctx context.Context, tx *db.Tx, a orgContext, n NewRide, faults *problem.Validation) (*rideContext, error) {
	member, condition, value := "vehicle_id", "v.id = $2", string(n.VehicleID)
	switch {
	case n.VehicleID == "" && n.VehicleCode == "":
		faults.AddCode("required", "vehicle_id", "is required, or vehicle_code")
		return nil, nil
	case n.VehicleID == "":
		member, condition, value = "vehicle_code", "v.code = $2", strings.ToLower(string(n.VehicleCode))
	}
	p := new(rideContext)
	var due [2]string
	var vehicleID, code, subID string
	var revision int64
	err := tx.QueryRow(ctx, "SELECT v.id, v.code, s.id, s.revision, s.stamp, "+
		"(SELECT r.id FROM rides r WHERE r.organization_id = $1 AND r.vehicle_id = v.id AND r.due_at <= $4 AND r."+openRides+"), "+
		"(SELECT id FROM rides WHERE organization_id = $1 AND customer_id = $3 AND due_at <= $4 AND "+openRides+") "+
		"FROM vehicles v JOIN subaccounts s ON s.organization_id = v.organization_id AND s.id = v.subaccount_id WHERE v.organization_id = $1 AND "+condition,
		a.id, value, string(n.CustomerID), a.now.UnixMicro()).Scan(&vehicleID, &code, &subID, &revision, &p.stamp, db.IntoText(&due[0]), db.IntoText(&due[1]))
	if err != nil {
		if err = wrapReadError(err, "vehicle"); problem.Of(err) != problem.NotFound {
			return nil, err
		}
		faults.AddCode("not_found", member, "does not exist")
		return nil, nil
	}
	if n.SubaccountID != "" && subID != n.SubaccountID {
		faults.AddCode("not_found", member, "does not exist in the subaccount")
	} else if n.VehicleCode != "" && code != strings.ToLower(string(n.VehicleCode)) {
		faults.AddCode("conflict", "vehicle_code", "is not the code of the vehicle with vehicle_id")
	}
	if p.subaccount, err = s.subaccountAt(ctx, tx, a.id, subID, revision, p.stamp); err != nil {
		return nil, err
	}
	if p.subaccount.Status == subaccountArchived {
		faults.AddCode("conflict", member, "is in an archived subaccount")
	}
	if err := s.expireRides(ctx, tx, a, due[:], []string{vehicleID}, string(n.CustomerID)); err != nil {
		return nil, err
	}
	if p.vehicle, p.storedVehicle, err = lockVehicle(ctx, tx, a, vehicleID, a.now); err != nil {
		if problem.Of(err) != problem.NotFound {
			return nil, err
		}
		faults.AddCode("not_found", member, "does not exist") // deleted meanwhile
		return nil, nil
	}
	if p.rider, err = lockRideCustomer(ctx, tx, a.id, n.CustomerID); err != nil {
		if problem.Of(err) != problem.NotFound {
			return nil, err
		}
		faults.AddCode("not_found", "customer_id", "does not exist")
	} else if p.rider != nil && p.rider.now.SubaccountID != subID {
		faults.AddCode("not_found", "customer_id", "does not exist in the subaccount of the vehicle")
	}
	return p, nil
}

// saveRideContext writes the vehicle and the customer.
func (s *Service) saveRideContext(ctx context.Context, tx *db.Tx, a orgContext, p *rideContext) error {
	if err := s.saveVehicle(ctx, tx, a, &p.storedVehicle, &p.vehicle); err != nil {
		return err
	}
	return p.rider.save(ctx, tx, a)
}

// assignPlan sets the plan of a new ride: the vehicle's, else the type's, else the
// subaccount's, with the assignments and in the version of the start. It must be active and equal the
// requested one, if any.
func (s *Service) assignPlan(ctx context.Context, tx *db.Tx, a orgContext, r *Ride, p *rideContext, kind *VehicleType, n NewRide, start time.Time) error {
	id := applicablePlan(p.vehicle.PricingPlanID, kind, p.subaccount)
	late := start.Before(r.CreatedAt.Std())
	if late {
		then, err := applicablePlanAt(ctx, tx, a.id, &p.vehicle, kind, p.subaccount, start)
		if err != nil {
			return err
		}
		if then != "" {
			id = then
		} else {
			late = false // the present one counts, as it is now
		}
	}
	if n.PricingPlanID != "" && n.PricingPlanID != id {
		asked, err := s.plan(ctx, tx, a.id, string(n.PricingPlanID))
		if err != nil && problem.Of(err) != problem.NotFound {
			return err
		}
		if err != nil || asked.SubaccountID != p.subaccount.ID {
			var faults problem.Validation
			faults.AddCode("not_found", "pricing_plan_id", "does not exist in the subaccount of the vehicle")
			return faults.Err()
		}
	}
	if id == "" {
		return conflict("no_pricing_plan", "the vehicle, its type and its subaccount have no pricing plan")
	}
	plan, err := s.plan(ctx, tx, a.id, string(id))
	if err != nil {
		return err
	}
	version, active := plan.Version, plan.Active
	if late {
		if version, active, err = planVersionAt(ctx, tx, a.id, plan, start); err != nil {
			return err
		}
	}
	if !active && version != plan.Version {
		return conflict("no_pricing_plan", "the applicable pricing plan was not active when the ride started")
	}
	if !active {
		return conflict("no_pricing_plan", "the applicable pricing plan is not active")
	}
	if n.PricingPlanID != "" && n.PricingPlanID != id || n.PricingPlanVersion != nil && *n.PricingPlanVersion != version {
		e := conflict("pricing_changed", "a different pricing plan or version applies")
		e.Details = map[string]any{"pricing_plan_id": string(id), "pricing_plan_version": version}
		return e
	}
	r.PricingPlanID, r.PricingPlanVersion = id, &version
	return nil
}

// reserve turns a new ride into a reservation.
func (r *Ride) reserve(p *rideContext, kind *VehicleType, by Actor) {
	r.Status = Reserved
	r.ReservedAt = r.CreatedAt
	r.ReservationExpiresAt = rfc3339.Time(r.CreatedAt.Std().Add(time.Duration(kind.ReservationMinutes) * time.Minute))
	p.vehicle.setRideState(VehicleReserved, "reservation_start", r.CreatedAt.Std(), p.vehicle.Location, NullString(r.ID), by)
}

// activate starts a new or reserved ride at a time, in milliseconds, which is in the past for an
// app that was offline. Errors: vehicle_low_battery, ride_start_not_allowed, license_required,
// age_required.
func (s *Service) activate(ctx context.Context, tx *db.Tx, a orgContext, r *Ride, p *rideContext, kind *VehicleType, now time.Time, by Actor) error {
	v, late := &p.vehicle, now.Before(r.CreatedAt.Std())
	if !late && v.batteryBelow(a.settings.LowBatteryPercent) {
		return lowBatteryError(v, a.settings)
	}
	at := v.Location
	if at == nil || late && r.StartLocation != nil {
		at = r.StartLocation
	}
	zones, err := s.fencesIn(ctx, tx, a.id, p.subaccount.ID, p.stamp)
	if err != nil {
		return err
	}
	rule, zoneID := zones.decide(p.subaccount.GlobalRules, at, kind.ID, now)
	if !rule.StartAllowed {
		e := conflict("ride_start_not_allowed", "a ride cannot start at the vehicle's location")
		e.Details = map[string]any{"zone_id": NullString(zoneID)}
		return e
	}
	if p.rider != nil {
		if kind.LicenseRequired && p.rider.now.LicenseStatus != "verified" {
			return conflict("license_required", "vehicles of this type need a verified driver's license")
		}
		if err := oldEnough(p.rider.now.BirthDate, kind.MinAge, p.subaccount.TimeZone, now); err != nil {
			return err
		}
		if now.After(p.rider.now.LastRideAt.Std()) {
			p.rider.now.LastRideAt = rfc3339.Time(now)
		}
	}
	r.Status, r.StartedAt, r.StartZoneID, r.startOdometer = Active, rfc3339.Time(now), NullString(zoneID), v.OdometerMeters
	if late && v.odometerAt.After(now) || v.odometerAt.Before(now.Add(-lookBack)) {
		r.startOdometer = nil // the vehicle has moved on, or may have
	}
	if r.StartLocation == nil {
		r.StartLocation = v.Location
	}
	v.rideStart = now
	v.setRideState(OnTrip, "trip_start", now, r.StartLocation, NullString(r.ID), by)
	return nil
}

// oldEnough returns age_required if the birth date is known and below age, by the
// date in the time zone.
func oldEnough(birthDate NullString, age int64, timeZone string, now time.Time) error {
	if birthDate == "" || age == 0 {
		return nil
	}
	born, err := time.Parse(time.DateOnly, string(birthDate))
	if err != nil {
		return fmt.Errorf("read a birth date: %w", err)
	}
	from := time.Date(born.Year()+int(age), born.Month(), born.Day(), 0, 0, 0, 0, time.UTC)
	if now.After(from.AddDate(0, 0, 1)) {
		return nil // in every time zone
	}
	zone, err := locationOf(timeZone)
	if err != nil {
		return err
	}
	year, month, day := now.In(zone).Date()
	if time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Before(from) {
		return conflict("age_required", "riders of vehicles of this type must be %d years old", age)
	}
	return nil
}

// lockRideContext locks the vehicle of a ride, as of at, and its customer. The
// subaccount remains unset.
func (s *Service) lockRideContext(ctx context.Context, tx *db.Tx, a orgContext, r *Ride, at time.Time) (*rideContext, error) {
	p := new(rideContext)
	var err error
	if p.vehicle, p.storedVehicle, err = lockVehicle(ctx, tx, a, r.VehicleID, at); err != nil {
		return nil, err
	}
	if p.rider, err = lockRideCustomer(ctx, tx, a.id, r.CustomerID); err != nil {
		return nil, err
	}
	return p, nil
}

// readTerms sets the subaccount of p and returns the tariff of the ride, nil unless
// it is a rider trip.
func (s *Service) readTerms(ctx context.Context, tx *db.Tx, a orgContext, r *Ride, p *rideContext) (*tariff.Tariff, error) {
	var subRevision int64
	var planRevision, planStamp *int64
	err := tx.QueryRow(ctx, "SELECT s.revision, s.stamp, p.revision, p.stamp FROM subaccounts s LEFT JOIN plans p ON p.organization_id = s.organization_id AND p.id = $3 WHERE s.organization_id = $1 AND s.id = $2",
		a.id, r.SubaccountID, string(r.PricingPlanID)).Scan(&subRevision, &p.stamp, &planRevision, &planStamp)
	if err != nil {
		return nil, fmt.Errorf("read the terms of a ride: %w", err)
	}
	if p.subaccount, err = s.subaccountAt(ctx, tx, a.id, r.SubaccountID, subRevision, p.stamp); err != nil {
		return nil, err
	}
	if r.PricingPlanID == "" {
		return nil, nil
	}
	if planStamp == nil {
		return nil, fmt.Errorf("ride %s has a pricing plan that does not exist", r.ID)
	}
	plan, err := s.planAt(ctx, tx, a.id, string(r.PricingPlanID), *planRevision, *planStamp)
	if err != nil {
		return nil, err
	}
	if plan.Version == *r.PricingPlanVersion {
		return &plan.Tariff, nil
	}
	return s.PlanTariff(ctx, tx, a.id, string(r.PricingPlanID), *r.PricingPlanVersion)
}

// rideEnd describes how a ride ends.
type rideEnd struct {
	at        time.Time
	reason    NullString
	late      bool          // at is a time in the past, of an app that was offline
	location  *geo.Position // nil: the vehicle's
	meters    *int64        // nil: see measureDistance
	acceptFee bool
	by        Actor
}

// complete ends a locked ride that has started. The caller writes the ride. Errors:
// ride_end_not_allowed, out_of_zone_fee_required.
func (s *Service) complete(ctx context.Context, tx *db.Tx, a orgContext, r *Ride, e rideEnd) error {
	p, err := s.lockRideContext(ctx, tx, a, r, e.at)
	if err != nil {
		return err
	}
	terms, err := s.readTerms(ctx, tx, a, r, p)
	if err != nil {
		return err
	}
	v, place := &p.vehicle, e.location
	if place == nil && e.late {
		if place, err = s.positionAt(ctx, tx, a.id, v.ID, e.at); err != nil {
			return err
		}
	}
	switch moved := e.late && v.reportedAt().After(e.at); {
	case place == nil:
		place = v.Location
	case !moved:
		v.Location = place
	}
	zones, err := s.fencesIn(ctx, tx, a.id, p.subaccount.ID, p.stamp)
	if err != nil {
		return err
	}
	rule, zoneID := zones.decide(p.subaccount.GlobalRules, place, r.vehicleTypeID, e.at)
	outside := e.reason == "rider" && !rule.EndAllowed
	if outside && (terms == nil || terms.OutOfZoneAmount == nil) {
		refusal := conflict("ride_end_not_allowed", "a ride cannot end here")
		refusal.Details = map[string]any{"zone_id": NullString(zoneID)}
		return refusal
	}
	if outside && !e.acceptFee {
		refusal := conflict("out_of_zone_fee_required", "ending a ride here requires a fee; set accept_out_of_zone_fee to accept it")
		refusal.Details = map[string]any{"out_of_zone_amount": *terms.OutOfZoneAmount, "currency": terms.Currency}
		return refusal
	}

	r.end(Completed, e.at)
	r.EndReason, r.EndLocation, r.EndZoneID = e.reason, place, NullString(zoneID)
	if r.DistanceMeters, r.distanceSource = e.meters, distanceGiven; e.meters == nil {
		if err := s.measureDistance(ctx, tx, a.id, r, p.subaccount.vehicleType(r.vehicleTypeID), v.odometer()); err != nil {
			return err
		}
	}
	usage := r.reservationUsage()
	usage.Ridden, usage.Seconds, usage.PausedSeconds, usage.OutOfZone = true, r.DurationSeconds, r.PausedSeconds, outside
	if r.DistanceMeters != nil {
		usage.Meters = *r.DistanceMeters
	}
	r.setPrice(terms, p.subaccount, usage)
	v.endRide("trip_end", e.at, place, NullString(r.ID), e.by, a.settings)
	if p.rider != nil {
		p.rider.now.OpenRideID = ""
		p.rider.now.RideCount++
	}
	return s.saveRideContext(ctx, tx, a, p)
}

// cancel cancels a locked ride. The caller writes the ride. Error:
// ride_not_cancellable.
func (s *Service) cancel(ctx context.Context, tx *db.Tx, a orgContext, r *Ride, e rideEnd) error {
	p, err := s.lockRideContext(ctx, tx, a, r, e.at)
	if err != nil {
		return err
	}
	terms, err := s.readTerms(ctx, tx, a, r, p)
	if err != nil {
		return err
	}
	event := VehicleEvent("reservation_cancel")
	if r.Status != Reserved {
		event = "trip_cancel"
		if e.reason != "operator" && !r.cancellable(&p.vehicle, p.subaccount.vehicleType(r.vehicleTypeID), e.at, a.settings) {
			return conflict("ride_not_cancellable", "a ride can be cancelled within %d seconds and %d meters", a.settings.CancelGraceSeconds, a.settings.CancelGraceMeters)
		}
	}
	var usage tariff.Usage
	if e.reason != "operator" {
		usage = r.reservationUsage()
		if r.StartedAt.Std().IsZero() {
			usage.ReservedSeconds = seconds(r.ReservedAt, e.at)
		}
	}
	r.end(Cancelled, e.at)
	r.CancelReason = e.reason
	r.setPrice(terms, p.subaccount, usage)
	p.vehicle.endRide(event, e.at, cmp.Or(p.vehicle.Location, r.StartLocation), NullString(r.ID), e.by, a.settings)
	if p.rider != nil {
		p.rider.now.OpenRideID = ""
	}
	return s.saveRideContext(ctx, tx, a, p)
}

// cancellable reports whether a started ride is within the grace of the settings.
func (r *Ride) cancellable(v *Vehicle, kind *VehicleType, at time.Time, settings *Settings) bool {
	if at.Sub(r.StartedAt.Std()) > time.Duration(settings.CancelGraceSeconds)*time.Second {
		return false
	}
	meters := r.odometerDistance(kind, r.startOdometer, v.odometer(), at)
	if meters == nil {
		meters = lineDistance(r.StartLocation, v.Location)
	}
	return meters == nil || *meters <= settings.CancelGraceMeters
}

// end sets status, end and durations, and ends a pause.
func (r *Ride) end(status RideStatus, at time.Time) {
	at = at.Truncate(time.Millisecond)
	if r.Status == Paused {
		r.PausedSeconds += seconds(r.pauseAt, at)
	}
	r.pauseAt = rfc3339.Time{}
	if !r.StartedAt.Std().IsZero() {
		r.DurationSeconds = seconds(r.StartedAt, at)
	}
	r.PausedSeconds = min(r.PausedSeconds, r.DurationSeconds)
	r.Status, r.EndedAt = status, rfc3339.Time(at)
}

// reservationUsage is the chargeable reservation of a ride. The reserved minutes
// come from the ride, since the type may have changed.
func (r *Ride) reservationUsage() tariff.Usage {
	if r.ReservedAt.Std().IsZero() {
		return tariff.Usage{}
	}
	return tariff.Usage{
		Reserved:           true,
		ReservedSeconds:    seconds(r.ReservedAt, r.StartedAt.Std()),
		ReservationMinutes: seconds(r.ReservedAt, r.ReservationExpiresAt.Std()) / 60,
	}
}

// Usage returns the billable use of an ended ride.
func (r *Ride) Usage() tariff.Usage {
	switch {
	case r.Status == Cancelled && r.CancelReason == "operator", r.Status.Open():
		return tariff.Usage{}
	case r.Status == Cancelled:
		u := r.reservationUsage()
		if r.StartedAt.Std().IsZero() && u.Reserved {
			u.ReservedSeconds = seconds(r.ReservedAt, r.EndedAt.Std())
		}
		return u
	}
	u := r.reservationUsage()
	u.Ridden, u.Seconds, u.PausedSeconds = true, r.DurationSeconds, r.PausedSeconds
	if r.DistanceMeters != nil {
		u.Meters = *r.DistanceMeters
	}
	u.OutOfZone = r.Price != nil && r.Price.OutOfZoneAmount > 0
	return u
}

// setPrice sets the price of an ended ride: 0 without a tariff.
func (r *Ride) setPrice(terms *tariff.Tariff, sub *Subaccount, usage tariff.Usage) {
	p := tariff.Price{Currency: sub.Currency}
	if terms != nil {
		p = terms.Price(usage)
	}
	r.Price = &p
	r.PaymentStatus = unpaid(p)
}

// unpaid returns the initial payment status of an ended ride.
func unpaid(p tariff.Price) string {
	if p.TotalAmount > 0 {
		return "due"
	}
	return "not_due"
}

// UpdateRideTx updates a ride returned by [Service.LockRideTx], in the caller's
// transaction. An update without a difference creates no revision. Errors: Invalid;
// Conflict already_exists; the codes of fleet-api.md 5.
func (s *Service) UpdateRideTx(ctx context.Context, tx *db.Tx, organizationID string, r Ride, c RideChange, by Actor) (Ride, error) {
	a, err := s.reuseOrgContext(ctx, tx, r.org, organizationID)
	if err != nil {
		return r, err
	}
	r.org = a
	before := r
	to := r.Status
	if c.Status.Set {
		to = c.Status.Value
	}
	if err := c.check(&r, to); err != nil {
		return r, err
	}
	if to != r.Status {
		if !slices.Contains(r.Status.Next(), to) {
			return r, invalidTransition(r.Status, to, r.Status.Next())
		}
		if err := s.setStatus(ctx, tx, a, &r, to, c, by); err != nil {
			return r, err
		}
	} else if !r.Status.Open() && c.changesOutcome(&r) {
		e := invalidTransition(r.Status, to, r.Status.Next())
		e.Message = "the end of a ride cannot be changed"
		return r, e
	}
	if err := c.applyPayment(&r); err != nil {
		return r, err
	}
	if before.Status.Open() && !r.Status.Open() && c.PaymentStatus.Or(before.PaymentStatus) == before.PaymentStatus {
		r.PaymentStatus = unpaid(*r.Price) // the status of an open ride does not apply to its end
	}
	c.ExternalID.Into(&r.ExternalID)
	if r.ExternalID != before.ExternalID {
		if err := claimUnique(ctx, tx, "rides", a.id, r.SubaccountID, r.ID, "external_id", r.ExternalID); err != nil {
			return r, err
		}
	}
	c.ParkingURL.Into(&r.ParkingURL)
	c.ParkingCategory.Into(&r.ParkingCategory)
	if c.Metadata.Set {
		r.Metadata = metadataOf(c.Metadata.Value)
	}
	if r.Status == before.Status {
		if doc, err := encode(&r); err != nil || string(doc) == string(before.doc) {
			return r, err
		}
	}
	if err := s.recordRide(ctx, tx, organizationID, &before, &r, by); err != nil {
		return r, err
	}
	return r, s.updateRide(ctx, tx, a, &before, &r)
}

// setStatus applies a transition that r.Status.Next allows.
func (s *Service) setStatus(ctx context.Context, tx *db.Tx, a orgContext, r *Ride, to RideStatus, c RideChange, by Actor) error {
	now := a.now.Truncate(time.Millisecond)
	switch {
	case to == Active && r.Status == Reserved:
		return s.startReserved(ctx, tx, a, r, by)
	case to == Active:
		r.PausedSeconds += seconds(r.pauseAt, now)
		r.Status, r.pauseAt = Active, rfc3339.Time(now)
		return nil
	case to == Paused:
		r.Status, r.pauseAt = Paused, rfc3339.Time(now)
		return nil
	case to == Cancelled:
		reason := c.CancelReason.Or("")
		if reason == "" {
			reason = "rider"
		}
		return s.cancel(ctx, tx, a, r, rideEnd{at: now, reason: reason, by: by})
	}
	end := rideEnd{at: now, reason: c.EndReason.Or(""), acceptFee: c.AcceptOutOfZoneFee.Or(false), by: by}
	if end.reason == "" {
		end.reason = "rider"
	}
	c.EndLocation.IntoPointer(&end.location)
	c.DistanceMeters.IntoPointer(&end.meters)
	if at := c.EndedAt.Value.Std(); c.EndedAt.Set && !c.EndedAt.Null {
		end.at, end.late = at.Truncate(time.Millisecond), true
		var faults problem.Validation
		if a.checkEnd(&faults, r, at); faults.Err() != nil {
			return faults.Err()
		}
	}
	return s.complete(ctx, tx, a, r, end)
}

// startReserved starts a locked reservation. Errors: as of activate;
// vehicle_unavailable, customer_blocked.
func (s *Service) startReserved(ctx context.Context, tx *db.Tx, a orgContext, r *Ride, by Actor) error {
	p, err := s.lockRideContext(ctx, tx, a, r, a.now)
	if err != nil {
		return err
	}
	if p.subaccount, p.stamp, err = s.subaccount(ctx, tx, a.id, r.SubaccountID); err != nil {
		return err
	}
	kind := p.subaccount.vehicleType(r.vehicleTypeID)
	if kind == nil {
		return fmt.Errorf("ride %s has a vehicle type that is not in its subaccount", r.ID)
	}
	if v := &p.vehicle; v.CurrentRideID != NullString(r.ID) || v.State != VehicleReserved && (v.State != NonContactable || v.formerState != VehicleReserved) {
		return unavailableError(v)
	}
	if p.vehicle.outTasks > 0 {
		e := conflict("vehicle_unavailable", "a task takes the vehicle out of service")
		e.Details = map[string]any{"state": string(p.vehicle.State)}
		return e
	}
	if p.rider != nil && p.rider.now.Status != CustomerActive {
		return conflict("customer_blocked", "the customer is %s", p.rider.now.Status)
	}
	if err := s.activate(ctx, tx, a, r, p, kind, a.now.Truncate(time.Millisecond), by); err != nil {
		return err
	}
	return s.saveRideContext(ctx, tx, a, p)
}

// check returns the issues of a change that sets status to. Fields with their
// stored value are valid, so that a client can send back the record it read.
func (c *RideChange) check(r *Ride, to RideStatus) error {
	var v problem.Validation
	checkCommon(&v, c.ExternalID.Or(""), c.Metadata.Or(nil))
	checkOneOf(&v, "status", to, Reserved, Active, Paused, Completed, Cancelled)
	checkRange(&v, "distance_meters", c.DistanceMeters.Or(0), 0, tariff.MaxMeters)
	if c.EndLocation.Set && !c.EndLocation.Null {
		c.EndLocation.Value.Check(&v, "end_location")
	}
	checkURL(&v, "parking_verification_url", c.ParkingURL.Or(""))
	if category := c.ParkingCategory.Or(""); category != "" {
		checkOneOf(&v, "parking_category", category, "corral", "curb", "rack", "other_valid", "invalid")
	}
	if c.AdjustmentAmount.Set {
		checkRange(&v, "adjustment_amount", c.AdjustmentAmount.Value, -tariff.MaxAmount, tariff.MaxAmount)
	}
	v.Length("adjustment_reason", string(c.AdjustmentReason.Or("")), 0, maxValue)
	if c.PaymentStatus.Set {
		checkOneOf(&v, "payment_status", c.PaymentStatus.Value, "not_due", "due", "paid", "refunded", "waived")
	}
	if c.AdjustmentAmount.Or(0) != 0 && r.TripType != RiderTrip {
		v.AddCode("conflict", "adjustment_amount", "must be 0 for a %s trip, which has no price", r.TripType)
	}

	// Fields of an end are valid only with the end.
	completing := to == Completed && r.Status != Completed
	cancelling := to == Cancelled && r.Status != Cancelled
	if reason := c.EndReason.Or(""); reason != "" && reason != r.EndReason {
		checkOneOf(&v, "end_reason", reason, "rider", "operator")
	}
	if reason := c.CancelReason.Or(""); reason != "" && reason != r.CancelReason {
		checkOneOf(&v, "cancel_reason", reason, "rider", "operator")
	}
	if r.Status.Open() {
		only := func(member string, given, when bool, status RideStatus) {
			if given && !when {
				v.AddCode("conflict", member, "is only given with status %s", status)
			}
		}
		only("distance_meters", c.DistanceMeters.Set && !c.DistanceMeters.Null, completing, Completed)
		only("ended_at", c.EndedAt.Set && !c.EndedAt.Null, completing, Completed)
		only("end_location", c.EndLocation.Set && !c.EndLocation.Null, completing, Completed)
		only("end_reason", c.EndReason.Or("") != "", completing, Completed)
		only("cancel_reason", c.CancelReason.Or("") != "", cancelling, Cancelled)
	}
	return v.Err()
}

// changesOutcome reports whether c changes how the ride ended. In a repeated
// request with a status, null stands for the value the server chose.
func (c *RideChange) changesOutcome(r *Ride) bool {
	other := func(reason optional.Value[NullString], was NullString) bool {
		return reason.Set && reason.Value != was && !(reason.Value == "" && c.Status.Set)
	}
	meters, location := r.DistanceMeters, r.EndLocation
	if !c.DistanceMeters.Null || !c.Status.Set {
		c.DistanceMeters.IntoPointer(&meters)
	}
	if !c.EndLocation.Null || !c.Status.Set {
		c.EndLocation.IntoPointer(&location)
	}
	endedAt := c.EndedAt.Or(r.EndedAt).Std().Truncate(time.Millisecond)
	return !endedAt.Equal(r.EndedAt.Std()) || integerValue(meters) != integerValue(r.DistanceMeters) || !location.Equal(r.EndLocation) || other(c.EndReason, r.EndReason) || other(c.CancelReason, r.CancelReason)
}

// applyPayment applies the adjustment and the payment status, which only an ended
// ride can have.
func (c *RideChange) applyPayment(r *Ride) error {
	amount, reason, payment := r.AdjustmentAmount, r.AdjustmentReason, r.PaymentStatus
	c.AdjustmentAmount.Into(&amount)
	c.AdjustmentReason.Into(&reason)
	c.PaymentStatus.Into(&payment)
	if amount == r.AdjustmentAmount && reason == r.AdjustmentReason && payment == r.PaymentStatus {
		return nil
	}
	if r.Price == nil {
		e := invalidTransition(r.Status, r.Status, r.Status.Next())
		e.Message = "adjustment and payment require an ended ride"
		return e
	}
	if price := r.Price.Adjusted(amount); amount != r.AdjustmentAmount {
		if price.TotalAmount > tariff.MaxAmount {
			var v problem.Validation
			v.AddCode("too_large", "adjustment_amount", "must not lead to a total of more than %d", int64(tariff.MaxAmount))
			return v.Err()
		}
		r.Price = &price
	}
	r.AdjustmentAmount, r.AdjustmentReason, r.PaymentStatus = amount, reason, payment
	return nil
}
