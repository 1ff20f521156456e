package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// distanceSource is how the distance of a ride was measured.
type distanceSource string

// The sources, in the order of precedence. All but the first can be corrected by late reports.
const (
	distanceGiven    distanceSource = "given"
	distanceOdometer distanceSource = "odometer"
	distanceTrack    distanceSource = "track"
	distanceLine     distanceSource = "line"
)

// odometerGrace is the time before the end of a ride in which a reading of the odometer stands for
// that at the end.
const odometerGrace = 2 * time.Minute

// odometerLag bounds the time between the measurement of an odometer and the use of its reading.
const odometerLag = time.Minute

// reading is a value of an odometer, in meters. The zero time means that there is none.
type reading struct {
	at     time.Time
	meters int64
}

// odometer returns the last reading of a vehicle's odometer.
func (v *Vehicle) odometer() reading {
	if v.OdometerMeters == nil {
		return reading{}
	}
	return reading{v.odometerAt, *v.OdometerMeters}
}

// topSpeed returns the speed that vehicles of a type, which may be unknown, do not exceed, in meters per
// second: twice the permitted one, because of slopes and errors of measurement.
func topSpeed(kind *VehicleType) float64 {
	if kind == nil || kind.MaxPermittedSpeed == nil {
		return track.MaxSpeed
	}
	return 2 * float64(*kind.MaxPermittedSpeed) / 3.6
}

// odometerDistance returns the meters of a ride of a type from one value of the odometer to a reading
// since the start and not after end, apart from the error of clocks; nil without such a reading, or
// if the vehicle cannot have gone so far.
func (r *Ride) odometerDistance(kind *VehicleType, from *int64, to reading, end time.Time) *int64 {
	if from == nil || to.meters < *from || to.at.Before(r.StartedAt.Std()) || to.at.After(end.Add(maxReportAhead)) {
		return nil
	}
	if to.at.After(end) {
		end = to.at
	}
	meters := to.meters - *from
	if float64(meters) > topSpeed(kind)*(end.Sub(r.StartedAt.Std())+odometerLag).Seconds() {
		return nil
	}
	return new(min(meters, tariff.MaxMeters))
}

// lineDistance returns the meters between two positions along the great circle; nil if one is
// unknown.
func lineDistance(from, to *geo.Position) *int64 {
	if from == nil || to == nil {
		return nil
	}
	return new(min(int64(math.Round(geo.Distance(from.Lat, from.Lng, to.Lat, to.Lng))), tariff.MaxMeters))
}

// measureDistance sets the distance of an ended ride of a type, which may be unknown: by the
// odometer, if it was read at the start or during the ride, and at its end; else along the track, else
// along the great circle. last is a reading of the odometer that may not be part of the track.
func (s *Service) measureDistance(ctx context.Context, q db.Querier, organizationID string, r *Ride, kind *VehicleType, last reading) error {
	end := r.EndedAt.Std()
	atEnd := end.Add(-odometerGrace)
	byOdometer := func(from *int64, to reading) bool {
		if to.at.Before(atEnd) {
			return false
		}
		r.DistanceMeters, r.distanceSource = r.odometerDistance(kind, from, to, end), distanceOdometer
		return r.DistanceMeters != nil
	}
	if byOdometer(r.startOdometer, last) {
		return nil
	}
	t, err := s.measureTrack(ctx, q, organizationID, r, kind)
	if err != nil {
		return err
	}
	if byOdometer(r.startOdometer, t.last) {
		return nil
	}
	if during := t.first; !during.at.IsZero() && during.at.Before(atEnd) && (byOdometer(&during.meters, last) || byOdometer(&during.meters, t.last)) {
		return nil
	}
	if r.DistanceMeters, r.distanceSource = t.meters, distanceTrack; t.meters == nil {
		if r.DistanceMeters, r.distanceSource = lineDistance(r.StartLocation, r.EndLocation), distanceLine; r.DistanceMeters == nil {
			r.distanceSource = ""
		}
	}
	return nil
}

// measuredTrack has the measures of the track of a ride.
type measuredTrack struct {
	meters      *int64  // along its positions; nil with fewer than two
	first, last reading // of the odometer
}

// measureTrack measures the track of an ended ride of a type, which may be unknown.
func (s *Service) measureTrack(ctx context.Context, q db.Querier, organizationID string, r *Ride, kind *VehicleType) (t measuredTrack, err error) {
	start, end := r.StartedAt.Std(), r.EndedAt.Std()
	path := track.Path{MaxSpeed: topSpeed(kind)}
	if p := r.StartLocation; p != nil {
		path.AddPosition(start.UnixMilli(), p.Lat, p.Lng, 0)
	}
	points := 0
	err = s.EachTrackReport(ctx, q, organizationID, r.VehicleID, start, end.Add(time.Millisecond), func(report *track.Report) error {
		if report.Located() {
			points++
		}
		path.Add(report)
		if n, ok := report.Get(track.Odometer); ok {
			t.last = reading{report.Time(), n}
			if t.first.at.IsZero() {
				t.first = t.last
			}
		}
		return nil
	})
	if err != nil || points < 2 {
		return t, err
	}
	if p := r.EndLocation; p != nil {
		path.AddPosition(end.UnixMilli(), p.Lat, p.Lng, 0)
	}
	if meters, known := path.Meters(); known {
		t.meters = new(min(meters, tariff.MaxMeters))
	}
	return t, nil
}

// correctable is the condition of rides whose distances late reports may change: those that were
// not paid for.
const correctable = "status = 'completed' AND distance_source IN ('odometer', 'track', 'line') AND payment_status IN ('due', 'not_due')"

// longestRide bounds the time from the creation of a ride to its end, longestReservation that to its
// start.
const (
	longestRide        = 400 * 24 * time.Hour
	longestReservation = 7 * 24 * time.Hour
)

// noteLateReports notes the ended rides of a vehicle that reports from first to last belong to, of
// those that were created at most longest before. Their distances are corrected later, since rides
// are locked before vehicles. A correction that runs meanwhile either sees the reports, or leaves the
// note.
func noteLateReports(ctx context.Context, tx *db.Tx, organizationID, vehicleID string, first, last time.Time, longest time.Duration) error {
	err := tx.Queue(ctx, "INSERT INTO late_distances (organization_id, ride_id) SELECT organization_id, id FROM rides WHERE organization_id = $1 AND vehicle_id = $2 AND id >= $3 AND "+
		correctable+" AND coalesce(started_at <= $5 AND ended_at >= $4, FALSE) "+ // coalesce: by the index of the vehicle, not of times
		"ON CONFLICT (organization_id, ride_id) DO UPDATE SET ride_id = excluded.ride_id", // not DO NOTHING, which neither locks a note nor waits for its deletion
		organizationID, vehicleID, idsFrom(ridePrefix, first.Add(-longest)), first.UnixMicro(), last.UnixMicro())
	if err != nil {
		return fmt.Errorf("note late reports: %w", err)
	}
	return nil
}

// correctDistances measures the distances of rides with late reports again.
func (s *Service) correctDistances(ctx context.Context) error {
	for {
		type late struct{ organization, ride string }
		list, err := db.All(ctx, s.db, func(row db.Row) (l late, err error) {
			err = row.Scan(&l.organization, &l.ride)
			return l, err
		}, "SELECT organization_id, ride_id FROM late_distances ORDER BY organization_id, ride_id LIMIT $1", dueBatch)
		if err != nil {
			return fmt.Errorf("list the rides with late reports: %w", err)
		}
		failed := 0
		for _, l := range list {
			err := s.db.Write(ctx, func(tx *db.Tx) error { return s.correctDistanceTx(ctx, tx, l.organization, l.ride) })
			if ctx.Err() != nil || problem.Of(err) == problem.Unavailable {
				return err
			}
			if err != nil {
				failed++
				s.log.LogAttrs(ctx, slog.LevelError, "correct the distance of a ride failed; retrying", slog.String("ride", l.ride), slog.Any("error", err))
			}
		}
		if len(list) < dueBatch || failed > 0 {
			return nil
		}
	}
}

// correctDistanceTx measures the distance of a ride again, and computes its price by it, unless it
// was paid for meanwhile.
func (s *Service) correctDistanceTx(ctx context.Context, tx *db.Tx, organizationID, rideID string) error {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return err
	}
	r, err := readRide(ctx, tx, organizationID, rideID, " FOR UPDATE")
	if err != nil && problem.Of(err) != problem.NotFound {
		return err
	}
	gone := err != nil
	if err := tx.Queue(ctx, "DELETE FROM late_distances WHERE organization_id = $1 AND ride_id = $2", organizationID, rideID); err != nil {
		return fmt.Errorf("delete a note of late reports: %w", err)
	}
	if gone || !r.correctable() {
		return nil
	}
	before := r
	p := new(rideContext)
	terms, err := s.readTerms(ctx, tx, a, &r, p)
	if err != nil {
		return err
	}
	if err := s.measureDistance(ctx, tx, organizationID, &r, p.subaccount.vehicleType(r.vehicleTypeID), reading{}); err != nil {
		return err
	}
	// The rest of a track would lower the price. The retention counts, too: a previous version of the
	// program stores no time of deletion.
	deleted, err := tracksDeletedBefore(ctx, tx, organizationID) // after the track was read
	if start := r.StartedAt.Std(); err != nil || start.Before(deleted) || start.Before(a.now.AddDate(0, 0, -int(a.settings.TrackRetentionDays))) {
		return err
	}
	if before.distanceSource == distanceOdometer && (r.distanceSource != distanceOdometer || *r.DistanceMeters < *before.DistanceMeters) {
		return nil // by a reading that is not part of the track
	}
	if r.DistanceMeters == nil || *r.DistanceMeters == *before.DistanceMeters {
		return nil
	}
	r.setPrice(terms, p.subaccount, r.Usage())
	price := r.Price.Adjusted(r.AdjustmentAmount)
	r.Price, r.PaymentStatus = &price, before.PaymentStatus
	if before.PaymentStatus == unpaid(*before.Price) { // else a request has set it
		r.PaymentStatus = unpaid(price)
	}
	return s.updateRide(ctx, tx, a, &before, &r)
}

// correctable reports the condition of that name.
func (r *Ride) correctable() bool {
	return r.Status == Completed && (r.distanceSource == distanceOdometer || r.distanceSource == distanceTrack || r.distanceSource == distanceLine) && (r.PaymentStatus == "due" || r.PaymentStatus == "not_due")
}
