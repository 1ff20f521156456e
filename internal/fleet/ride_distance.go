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

// The sources, in the order of precedence. Only the last two can be corrected by late reports.
const (
	distanceGiven    distanceSource = "given"
	distanceOdometer distanceSource = "odometer"
	distanceTrack    distanceSource = "track"
	distanceLine     distanceSource = "line"
)

// odometerDistance returns the meters of a ride by the odometer, if it was reported since the
// start and not after end, apart from the error of clocks; else nil.
func (r *Ride) odometerDistance(v *Vehicle, end time.Time) *int64 {
	if r.startOdometer == nil || v.OdometerMeters == nil || *v.OdometerMeters < *r.startOdometer || v.odometerAt.Before(r.StartedAt.Std()) || v.odometerAt.After(end.Add(maxReportAhead)) {
		return nil
	}
	return new(min(*v.OdometerMeters-*r.startOdometer, tariff.MaxMeters))
}

// lineDistance returns the meters between two positions along the great circle; nil if one is
// unknown.
func lineDistance(from, to *geo.Position) *int64 {
	if from == nil || to == nil {
		return nil
	}
	return new(min(int64(math.Round(geo.Distance(from.Lat, from.Lng, to.Lat, to.Lng))), tariff.MaxMeters))
}

// measureDistance sets the distance of a ride that has just ended: by the odometer, else along
// the track, else along the great circle.
func (s *Service) measureDistance(ctx context.Context, tx *db.Tx, organizationID string, r *Ride, v *Vehicle) error {
	if r.DistanceMeters = r.odometerDistance(v, r.EndedAt.Std()); r.DistanceMeters != nil {
		r.distanceSource = distanceOdometer
		return nil
	}
	return s.measureTrack(ctx, tx, organizationID, r)
}

// measureTrack sets the distance of an ended ride along its track, else along the great circle.
func (s *Service) measureTrack(ctx context.Context, tx *db.Tx, organizationID string, r *Ride) error {
	meters, err := s.trackDistance(ctx, tx, organizationID, r)
	if err != nil {
		return err
	}
	r.DistanceMeters, r.distanceSource = meters, distanceTrack
	if meters == nil {
		if r.DistanceMeters, r.distanceSource = lineDistance(r.StartLocation, r.EndLocation), distanceLine; r.DistanceMeters == nil {
			r.distanceSource = ""
		}
	}
	return nil
}

// trackDistance returns the meters of an ended ride along the positions that its vehicle reported
// meanwhile; nil with fewer than two.
func (s *Service) trackDistance(ctx context.Context, q db.Querier, organizationID string, r *Ride) (*int64, error) {
	start, end := r.StartedAt.Std(), r.EndedAt.Std()
	var path track.Path
	if p := r.StartLocation; p != nil {
		path.AddPosition(start.UnixMilli(), p.Lat, p.Lng, 0)
	}
	points := 0
	err := s.EachTrackReport(ctx, q, organizationID, r.VehicleID, start, end.Add(time.Millisecond), func(report *track.Report) error {
		if report.Located() {
			points++
		}
		path.Add(report)
		return nil
	})
	if err != nil || points < 2 {
		return nil, err
	}
	if p := r.EndLocation; p != nil {
		path.AddPosition(end.UnixMilli(), p.Lat, p.Lng, 0)
	}
	meters, known := path.Meters()
	if !known {
		return nil, nil
	}
	return new(min(meters, tariff.MaxMeters)), nil
}

// correctable is the condition of rides whose distances late reports may change: those that were
// not paid for.
const correctable = "status = 'completed' AND distance_source IN ('track', 'line') AND payment_status IN ('due', 'not_due')"

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
	if err := s.measureTrack(ctx, tx, organizationID, &r); err != nil {
		return err
	}
	if r.DistanceMeters == nil || *r.DistanceMeters == *before.DistanceMeters {
		return nil
	}
	p := new(rideContext)
	terms, err := s.readTerms(ctx, tx, a, &r, p)
	if err != nil {
		return err
	}
	r.setPrice(terms, p.subaccount, r.Usage())
	price := r.Price.Adjusted(r.AdjustmentAmount)
	r.Price, r.PaymentStatus = &price, unpaid(price)
	return s.updateRide(ctx, tx, a, &before, &r)
}

// correctable reports the condition of that name.
func (r *Ride) correctable() bool {
	return r.Status == Completed && (r.distanceSource == distanceTrack || r.distanceSource == distanceLine) && (r.PaymentStatus == "due" || r.PaymentStatus == "not_due")
}
