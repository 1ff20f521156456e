package fleet

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// MDS configures the data of a subaccount for agencies, by the Mobility Data
// Specification.
type MDS struct {
	Enabled    bool        `json:"enabled"`
	ProviderID NullString  `json:"provider_id"` // UUID of the operator in the list of the Open Mobility Foundation
	Agencies   MDSAgencies `json:"agencies"`
}

// MDSAgency is a public authority that may read the data of a subaccount.
type MDSAgency struct {
	ID        string `json:"id"` // the issuer of its tokens; unique in the subaccount
	Name      string `json:"name"`
	PublicKey string `json:"public_key"` // PEM, RSA or ECDSA P-256; verifies its tokens
}

// MDSAgencies is a list of agencies; nil is encoded as an empty one.
type MDSAgencies []MDSAgency

// MarshalJSON implements [json.Marshaler].
func (l MDSAgencies) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]MDSAgency(l))
}

const (
	maxAgencies     = 20
	maxPublicKey    = 10_000 // characters
	minModulusBits  = 2048
	maxModulusBits  = 8192  // verification with more is slow
	idMDSAgency     = "_.-" // punctuation of ids of agencies
	maxMDSAgencyID  = 64
	pathMDSAgencies = "mds.agencies."
)

// Key returns the parsed public key. Other text is refused, also between its lines: it may be the private key.
func (a *MDSAgency) Key() (crypto.PublicKey, error) {
	text := strings.TrimSpace(a.PublicKey)
	block, rest := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("must be a public key in PEM form")
	}
	if block.Type != "PUBLIC KEY" {
		return nil, errors.New("must be a public key in PEM form, which begins with BEGIN PUBLIC KEY")
	}
	if len(rest) > 0 || len(block.Headers) > 0 || !strings.HasPrefix(text, "-----BEGIN") || strings.Count(text, "-----BEGIN") > 1 {
		return nil, errors.New("must be a single public key in PEM form, without other text")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, errors.New("is not a valid public key")
	}
	switch k := key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n >= minModulusBits && n <= maxModulusBits {
			return k, nil
		}
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return k, nil
		}
	}
	return nil, fmt.Errorf("must be an RSA key of %d to %d bits or an ECDSA key of the curve P-256", minModulusBits, maxModulusBits)
}

func (m *MDS) check(v *problem.Validation) {
	if m.Enabled && m.ProviderID == "" {
		v.AddCode("required", "mds.provider_id", "is required for the data of agencies")
	}
	if id, err := uuid.Parse(string(m.ProviderID)); m.ProviderID != "" && (err != nil || id.String() != string(m.ProviderID)) {
		v.AddCode("invalid_format", "mds.provider_id", "must be a UUID in lower case")
	}
	if len(m.Agencies) > maxAgencies {
		v.AddCode("too_long", "mds.agencies", "must have at most %d values", maxAgencies)
		return
	}
	seen := make(map[string]bool)
	for i := range m.Agencies {
		a, path := &m.Agencies[i], pathMDSAgencies+strconv.Itoa(i)
		if !isName(a.ID, idMDSAgency, maxMDSAgencyID) {
			v.AddCode("invalid_format", path+".id", "must be 1 to %d of A-Z, a-z, 0-9, dot, underscore and hyphen, a letter or digit first", maxMDSAgencyID)
		} else if seen[a.ID] {
			v.AddCode("conflict", path+".id", "is repeated")
		}
		seen[a.ID] = true
		checkLine(v, path+".name", a.Name, maxName)
		if len(a.PublicKey) > maxPublicKey {
			v.AddCode("too_long", path+".public_key", "must have at most %d characters", maxPublicKey)
		} else if _, err := a.Key(); err != nil {
			v.AddCode("invalid_format", path+".public_key", "%s", err)
		}
	}
}

// MDSArea is a subaccount whose data agencies may read.
type MDSArea struct {
	OrganizationID string
	Subaccount     Subaccount
	Now            time.Time // by the organization's clock, at the read
}

// MDSArea returns an area with data for agencies. Error: NotFound.
func (s *Service) MDSArea(ctx context.Context, subaccountID string) (MDSArea, error) {
	got, err := db.One(ctx, s.db, func(row db.Row) (a MDSArea, err error) {
		var offset int64
		err = row.Scan(&a.OrganizationID, db.IntoJSON(&a.Subaccount), &offset)
		a.Now = s.db.Now().Add(time.Duration(offset) * time.Microsecond)
		return a, err
	}, `SELECT u.organization_id, u.doc, s.clock_offset FROM subaccounts u
		JOIN settings s ON s.organization_id = u.organization_id WHERE u.id = $1 ORDER BY u.organization_id LIMIT 1`, subaccountID)
	if err == nil && !got.Subaccount.MDS.Enabled {
		err = db.ErrNoRows
	}
	return got, wrapReadError(err, "area")
}

// MDSVehicle is a vehicle with its last state change.
type MDSVehicle struct {
	Vehicle
	Last *StateChange // nil: none stored
}

const mdsVehicles = `SELECT doc, (SELECT e.doc FROM vehicle_events e WHERE e.organization_id = v.organization_id AND e.vehicle_id = v.id ORDER BY e.id DESC LIMIT 1)
	FROM vehicles v WHERE organization_id = $1 AND subaccount_id = $2 AND id `

func scanMDSVehicle(row db.Row) (MDSVehicle, error) {
	var v MDSVehicle
	var last string
	if err := row.Scan(db.IntoJSON(&v.Vehicle), db.IntoText(&last)); err != nil {
		return v, err
	}
	if last == "" {
		return v, nil
	}
	v.Last = new(StateChange)
	return v, json.Unmarshal([]byte(last), v.Last)
}

// MDSVehicles returns up to limit vehicles of an area by id, after a vehicle's id;
// empty: from the first.
func (s *Service) MDSVehicles(ctx context.Context, of *MDSArea, after string, limit int) ([]MDSVehicle, error) {
	list, err := db.All(ctx, s.db, scanMDSVehicle, mdsVehicles+"> $3 ORDER BY id LIMIT $4", of.OrganizationID, of.Subaccount.ID, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read the vehicles of an area: %w", err)
	}
	changes := make([]*StateChange, len(list))
	for i := range list {
		changes[i] = list[i].Last
	}
	return list, withoutReservations(ctx, s.db, of.OrganizationID, changes)
}

// MDSVehicle returns a vehicle of an area. Error: NotFound.
func (s *Service) MDSVehicle(ctx context.Context, of *MDSArea, id string) (MDSVehicle, error) {
	v, err := db.One(ctx, s.db, scanMDSVehicle, mdsVehicles+"= $3", of.OrganizationID, of.Subaccount.ID, id)
	if err != nil {
		return v, wrapReadError(err, "vehicle")
	}
	return v, withoutReservations(ctx, s.db, of.OrganizationID, []*StateChange{v.Last})
}

// withoutReservations removes the rides of state changes, some of them nil, that had not started when
// contact with their vehicles was lost, or had already ended, as an app reported later.
func withoutReservations(ctx context.Context, q db.Querier, organizationID string, changes []*StateChange) error {
	var lost []*StateChange
	var rides []string
	for _, c := range changes {
		if c != nil && c.State == NonContactable && c.RideID != "" {
			lost, rides = append(lost, c), append(rides, string(c.RideID))
		}
	}
	if len(lost) == 0 {
		return nil
	}
	type times struct{ start, end time.Time }
	of := make(map[string]times)
	_, err := db.All(ctx, q, func(row db.Row) (id string, err error) {
		var t times
		if err = row.Scan(&id, db.IntoTime(&t.start), db.IntoTime(&t.end)); err == nil {
			of[id] = t
		}
		return id, err
	}, "SELECT id, started_at, ended_at FROM rides WHERE organization_id = $1 AND id = ANY($2)", organizationID, rides)
	if err != nil {
		return fmt.Errorf("read the rides of vehicles out of contact: %w", err)
	}
	for _, c := range lost {
		t, at := of[string(c.RideID)], c.At.Std()
		if t.start.IsZero() || t.start.After(at) || !t.end.IsZero() && t.end.Before(at) {
			c.RideID = ""
		}
	}
	return nil
}

// MDSTrips returns the trips of an area that ended in a time, by end. Rides that never
// started are none. Cancelled ones have an end and a distance, too.
func (s *Service) MDSTrips(ctx context.Context, of *MDSArea, from, to time.Time) ([]Ride, error) {
	list, err := db.All(ctx, s.db, func(row db.Row) (r Ride, err error) {
		err = row.Scan(db.IntoJSON(&r), &r.vehicleTypeID, &r.startOdometer)
		return r, err
	}, `SELECT doc, vehicle_type_id, start_odometer FROM rides WHERE organization_id = $1 AND ended_at >= $2 AND ended_at < $3
		AND coalesce(subaccount_id = $4, FALSE) AND started_at IS NOT NULL ORDER BY ended_at, id`,
		of.OrganizationID, from.UnixMicro(), to.UnixMicro(), of.Subaccount.ID)
	if err != nil {
		return nil, fmt.Errorf("read the trips of an area: %w", err)
	}
	for i := range list {
		if list[i].Status == Cancelled {
			if err := s.measureCancelled(ctx, of, &list[i]); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// measureCancelled sets the end and the distance of a cancelled ride, which is stored without: it ended
// where its vehicle was, as the vehicle's state change has it. A vehicle out of contact has no change of
// the end, but the one when contact was lost, which has its last known place.
func (s *Service) measureCancelled(ctx context.Context, of *MDSArea, r *Ride) error {
	var last StateChange
	err := s.db.QueryRow(ctx, "SELECT doc FROM vehicle_events WHERE organization_id = $1 AND vehicle_id = $2 AND id < $3 ORDER BY id DESC LIMIT 1",
		of.OrganizationID, r.VehicleID, idsFrom(eventPrefix, r.EndedAt.Std().Add(time.Millisecond))).Scan(db.IntoJSON(&last))
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("read the end of a cancelled ride: %w", err)
	}
	r.EndLocation = last.Location
	return s.measureDistance(ctx, s.db, of.OrganizationID, r, of.Subaccount.vehicleType(r.vehicleTypeID), reading{})
}

// MDSChanges returns up to limit state changes of an area's vehicles in a time, by time
// and id; limit 0: all. after is the id of the change to continue after; empty: none.
func (s *Service) MDSChanges(ctx context.Context, of *MDSArea, from, to time.Time, after string, limit int) ([]StateChange, error) {
	query := `SELECT e.doc FROM vehicle_events e
		LEFT JOIN vehicles v ON v.organization_id = e.organization_id AND v.id = e.vehicle_id
		LEFT JOIN deleted_vehicles d ON d.organization_id = e.organization_id AND d.id = e.vehicle_id
		WHERE e.organization_id = $1 AND e.id >= $2 AND e.id < $3 AND e.id > $4 AND coalesce(v.subaccount_id, d.subaccount_id) = $5 ORDER BY e.id`
	args := []any{of.OrganizationID, idsFrom(eventPrefix, from), idsFrom(eventPrefix, to), after, of.Subaccount.ID}
	if limit > 0 {
		query, args = query+" LIMIT $6", append(args, limit)
	}
	list, err := db.All(ctx, s.db, func(row db.Row) (c StateChange, err error) {
		err = row.Scan(db.IntoJSON(&c))
		return c, err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read the state changes of an area: %w", err)
	}
	changes := make([]*StateChange, len(list))
	for i := range list {
		changes[i] = &list[i]
	}
	return list, withoutReservations(ctx, s.db, of.OrganizationID, changes)
}

// MDSPoint is where a vehicle was at a time: a stored report, or a state change.
type MDSPoint struct {
	VehicleID      string
	At             time.Time
	Change         *StateChange // nil: a report
	N              int          // of earlier reports of the vehicle at the same time
	RideID         string       // of a report during a trip; empty: none
	Location       *geo.Position
	AltitudeMeters *float64
	BatteryPercent *int64
	FuelPercent    *int64
}

// mdsVehiclesAtOnce bounds the vehicles whose points of an hour are in memory.
const mdsVehiclesAtOnce = 50

// EachMDSPoint calls fn with the points of an area's vehicles in a time, of one vehicle after
// the other, each in the order of time. It reads some vehicles at a time, in a snapshot for each
// of these groups; fn is called between them and may take its time. The first error of fn ends it.
func (s *Service) EachMDSPoint(ctx context.Context, of *MDSArea, from, to time.Time, fn func(p *MDSPoint) error) error {
	a, err := s.orgContext(ctx, s.db, s.db.Now(), of.OrganizationID)
	if err != nil {
		return err
	}
	usual := time.Duration(a.settings.MaxRideMinutes) * time.Minute
	longer, err := s.mdsRidesOver(ctx, of, from, to, usual)
	if err != nil {
		return err
	}
	longest := usual + longestReservation
	for after := ""; ; {
		g := mdsGroup{of: of, from: from, to: to, longest: longest, rides: make(map[string][]mdsRide), changes: make(map[string][]MDSPoint), segments: make(map[string][]mdsSegment)}
		if err := s.db.Read(ctx, func(tx *db.Tx) error { return g.read(ctx, tx, after) }); err != nil {
			return fmt.Errorf("read the tracks of an area: %w", err)
		}
		for _, id := range g.vehicles {
			g.rides[id] = append(g.rides[id], longer[id]...)
			points, err := g.points(id)
			if err != nil {
				return err
			}
			for i := range points {
				if err := fn(&points[i]); err != nil {
					return err
				}
			}
		}
		if len(g.vehicles) < mdsVehiclesAtOnce {
			return nil
		}
		after = g.vehicles[len(g.vehicles)-1]
	}
}

// mdsRidesOver returns the rides of an area in a time that were longer than the settings allow now, by
// vehicle: rides of a time before the limit was lowered.
func (s *Service) mdsRidesOver(ctx context.Context, of *MDSArea, from, to time.Time, limit time.Duration) (map[string][]mdsRide, error) {
	rides := make(map[string][]mdsRide)
	_, err := db.All(ctx, s.db, func(row db.Row) (r mdsRide, err error) {
		if err = row.Scan(&r.vehicleID, &r.id, db.IntoTime(&r.start), db.IntoTime(&r.end)); err == nil {
			rides[r.vehicleID] = append(rides[r.vehicleID], r)
		}
		return r, err
	}, `SELECT vehicle_id, id, started_at, ended_at FROM rides WHERE organization_id = $1 AND duration_seconds > $2
		AND coalesce(subaccount_id = $3, FALSE) AND coalesce(started_at < $5, FALSE) AND coalesce(ended_at >= $4, FALSE)`,
		of.OrganizationID, int64(limit/time.Second), of.Subaccount.ID, from.UnixMicro(), to.UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("read the long rides of an area: %w", err)
	}
	return rides, nil
}

// mdsGroup is the stored data of some vehicles about a time. The maps are by vehicle.
type mdsGroup struct {
	of       *MDSArea
	from, to time.Time
	longest  time.Duration // from the creation of a ride to its end, by the settings of now
	vehicles []string      // also deleted ones
	rides    map[string][]mdsRide
	changes  map[string][]MDSPoint
	segments map[string][]mdsSegment
}

type mdsRide struct {
	vehicleID, id string
	start, end    time.Time // end is zero while it is open
}

type mdsSegment struct {
	vehicleID string
	startAt   int64 // milliseconds
	encoded   []byte
}

// read reads the group after a vehicle.
func (g *mdsGroup) read(ctx context.Context, tx db.Querier, after string) (err error) {
	org := g.of.OrganizationID
	g.vehicles, err = db.All(ctx, tx, func(row db.Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, `SELECT id FROM vehicles WHERE organization_id = $1 AND subaccount_id = $2 AND id > $3
		UNION ALL SELECT id FROM deleted_vehicles WHERE organization_id = $1 AND coalesce(subaccount_id = $2, FALSE) AND id > $3
		ORDER BY id LIMIT $4`, org, g.of.Subaccount.ID, after, mdsVehiclesAtOnce)
	if err != nil || len(g.vehicles) == 0 {
		return err
	}
	_, err = db.All(ctx, tx, func(row db.Row) (m mdsSegment, err error) {
		if err = row.Scan(&m.vehicleID, &m.startAt, &m.encoded); err == nil {
			m.startAt /= 1000
			g.segments[m.vehicleID] = append(g.segments[m.vehicleID], m)
		}
		return m, err
	}, "SELECT vehicle_id, start_at, reports FROM tracks WHERE organization_id = $1 AND vehicle_id = ANY($2) AND start_at >= $3 AND start_at < $4 ORDER BY vehicle_id, start_at",
		org, g.vehicles, track.Start(g.from.UnixMilli())*1000, g.to.UnixMicro())
	if err != nil {
		return err
	}
	_, err = db.All(ctx, tx, func(row db.Row) (r mdsRide, err error) {
		if err = row.Scan(&r.vehicleID, &r.id, db.IntoTime(&r.start), db.IntoTime(&r.end)); err == nil {
			g.rides[r.vehicleID] = append(g.rides[r.vehicleID], r)
		}
		return r, err
	}, `SELECT vehicle_id, id, started_at, ended_at FROM rides WHERE organization_id = $1 AND vehicle_id = ANY($2) AND id >= $3 AND id < $6
		AND coalesce(started_at < $5, FALSE) AND coalesce(ended_at >= $4, TRUE) ORDER BY vehicle_id, id`,
		org, g.vehicles, idsFrom(ridePrefix, g.from.Add(-g.longest)), g.from.UnixMicro(), g.to.UnixMicro(), idsFrom(ridePrefix, g.to.Add(maxOfflineRideHours*time.Hour)))
	if err != nil {
		return err
	}
	changes, err := db.All(ctx, tx, func(row db.Row) (*StateChange, error) {
		var c StateChange
		err := row.Scan(db.IntoJSON(&c))
		if err == nil && c.Location != nil {
			g.changes[c.VehicleID] = append(g.changes[c.VehicleID], MDSPoint{VehicleID: c.VehicleID, At: c.At.Std(), Change: &c, Location: c.Location, BatteryPercent: c.BatteryPercent})
		}
		return &c, err
	}, "SELECT doc FROM vehicle_events WHERE organization_id = $1 AND vehicle_id = ANY($2) AND id >= $3 AND id < $4 ORDER BY vehicle_id, id",
		org, g.vehicles, idsFrom(eventPrefix, g.from), idsFrom(eventPrefix, g.to))
	if err != nil {
		return err
	}
	return withoutReservations(ctx, tx, org, changes)
}

// points returns the points of a vehicle.
func (g *mdsGroup) points(vehicleID string) ([]MDSPoint, error) {
	points := g.changes[vehicleID]
	var list track.Segment
	for _, m := range g.segments[vehicleID] {
		var err error
		if list, err = list[:0].Decode(m.encoded, m.startAt); err != nil {
			return nil, err
		}
		n := 0
		for i := range list {
			r := &list[i]
			if n++; i == 0 || list[i-1].At != r.At {
				n = 0
			}
			if at := r.Time(); r.Located() && !at.Before(g.from) && at.Before(g.to) {
				points = append(points, g.point(vehicleID, r, n))
			}
		}
	}
	slices.SortStableFunc(points, func(p, o MDSPoint) int { return p.At.Compare(o.At) })
	return points, nil
}

func (g *mdsGroup) point(vehicleID string, r *track.Report, n int) MDSPoint {
	p := MDSPoint{VehicleID: vehicleID, At: r.Time(), N: n, Location: positionOf(r)}
	if decimeters, ok := r.Get(track.Altitude); ok {
		p.AltitudeMeters = new(float64(decimeters) / 10)
	}
	if percent, ok := r.Get(track.Battery); ok {
		p.BatteryPercent = &percent
	}
	if percent, ok := r.Get(track.Fuel); ok {
		p.FuelPercent = &percent
	}
	for _, ride := range g.rides[vehicleID] {
		if !p.At.Before(ride.start) && (ride.end.IsZero() || !p.At.After(ride.end)) {
			p.RideID = ride.id
		}
	}
	return p
}

// commitTime is the time in which transactions that have begun may still commit.
const commitTime = time.Minute

// MDSComplete reports whether all timed changes up to a time have been applied, so that
// the data of an hour before it does not change any more.
func (s *Service) MDSComplete(ctx context.Context, of *MDSArea, to time.Time) (bool, error) {
	if of.Now.Before(to.Add(commitTime)) {
		return false, nil
	}
	var pending bool
	err := s.db.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM rides WHERE organization_id = $1 AND due_at <= $2)
		OR EXISTS (SELECT 1 FROM vehicles WHERE organization_id = $1 AND due_at <= $2)`, of.OrganizationID, to.UnixMicro()).Scan(&pending)
	if err != nil {
		return false, fmt.Errorf("look up due changes: %w", err)
	}
	return !pending, nil
}

// MDSRidesComplete reports whether all rides of riders in an area that started before a time are known and
// have ended: none is open, and apps that were offline can no longer send one.
func (s *Service) MDSRidesComplete(ctx context.Context, of *MDSArea, to time.Time) (bool, error) {
	a, err := s.orgContext(ctx, s.db, s.db.Now(), of.OrganizationID)
	if err != nil {
		return false, err
	}
	if of.Now.Before(to.Add(time.Duration(a.settings.OfflineRideHours)*time.Hour + commitTime)) {
		return false, nil
	}
	var open bool
	err = s.db.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM rides WHERE organization_id = $1 AND status IN ('reserved', 'active', 'paused') AND trip_type = $4
		AND coalesce(subaccount_id = $2, FALSE) AND coalesce(started_at < $3, FALSE))`, of.OrganizationID, of.Subaccount.ID, to.UnixMicro(), RiderTrip).Scan(&open)
	if err != nil {
		return false, fmt.Errorf("look up open rides: %w", err)
	}
	return !open, nil
}
