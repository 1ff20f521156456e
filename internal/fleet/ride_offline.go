package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// An app that was offline creates its rides later, with the time at which they started
// ([NewRide.StartedAt]), and may end rides with the time at which they ended
// ([RideChange.EndedAt]).

const (
	// offlineGrace is the time in which a ride that was created late can be ended by a request,
	// however long ago it started.
	offlineGrace = 15 * time.Minute
	// lookBack bounds the age of a position, or of a reading of the odometer, that stands for that at a time.
	lookBack = time.Hour
)

// backdated reports whether the ride started before it was created.
func (r *Ride) backdated() bool {
	return !r.StartedAt.Std().IsZero() && r.StartedAt.Std().Before(r.CreatedAt.Std())
}

// checkPast adds an issue if a time of a ride is in the future, or longer ago than the settings
// allow.
func (a *orgContext) checkPast(v *problem.Validation, member string, at time.Time) {
	switch hours := a.settings.OfflineRideHours; {
	case at.After(a.now):
		v.AddCode("invalid_value", member, "must not be in the future; the time is %s", a.now.UTC().Format(rfc3339.Layout))
	case at.Before(a.now.Add(-time.Duration(hours) * time.Hour)):
		v.AddCode("invalid_value", member, "must be at most %d hours ago", hours)
	}
}

// checkOverlap adds an issue if the vehicle or the customer of a ride, which are locked, had
// another ride after its start.
func checkOverlap(ctx context.Context, tx *db.Tx, v *problem.Validation, organizationID, vehicleID string, customerID NullString, start time.Time) error {
	for _, of := range []struct{ column, id string }{{"vehicle", vehicleID}, {"customer", string(customerID)}} {
		var id string
		err := tx.QueryRow(ctx, "SELECT id FROM rides WHERE organization_id = $1 AND "+of.column+"_id = $2 AND id >= $3 AND started_at IS NOT NULL AND ended_at > $4 ORDER BY id DESC LIMIT 1",
			organizationID, of.id, idsFrom(ridePrefix, start.Add(-longestRide)), start.UnixMicro()).Scan(&id)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return fmt.Errorf("look up other rides: %w", err)
		}
		if err == nil {
			v.AddCode("conflict", "started_at", "overlaps the ride %s of the %s", id, of.column)
		}
	}
	return nil
}

// positionAt returns the last position that a vehicle reported in the hour before a time; nil
// without one.
func (s *Service) positionAt(ctx context.Context, q db.Querier, organizationID, vehicleID string, at time.Time) (*geo.Position, error) {
	var last *geo.Position
	err := s.EachTrackReport(ctx, q, organizationID, vehicleID, at.Add(-lookBack), at.Add(time.Millisecond), func(r *track.Report) error {
		if r.Located() {
			last = positionOf(r)
		}
		return nil
	})
	return last, err
}

// checkEnd adds an issue if a locked ride cannot have ended at a time.
func (a *orgContext) checkEnd(v *problem.Validation, r *Ride, at time.Time) {
	a.checkPast(v, "ended_at", at)
	switch {
	case v.Has("ended_at"):
	case at.Before(r.StartedAt.Std()):
		v.AddCode("too_small", "ended_at", "must not be before started_at")
	case r.Status == Paused && at.Before(r.pauseAt.Std()):
		v.AddCode("too_small", "ended_at", "must not be before the pause that began at %s", r.pauseAt.Std().Format(rfc3339.Layout))
	case at.Before(r.pauseAt.Std()):
		v.AddCode("too_small", "ended_at", "must not be before the pause that ended at %s", r.pauseAt.Std().Format(rfc3339.Layout))
	case at.After(r.StartedAt.Std().Add(time.Duration(a.settings.MaxRideMinutes) * time.Minute)):
		v.AddCode("too_large", "ended_at", "must be at most %d minutes after started_at", a.settings.MaxRideMinutes)
	}
}
