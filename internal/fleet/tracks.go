package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
)

const (
	// pruneEvery is the interval between deletions of expired tracks.
	pruneEvery = time.Hour
	// pruneBatch bounds the segments that a transaction deletes.
	pruneBatch = 1000
)

// EachTrackReport calls fn with the stored reports of a vehicle from a time until before another,
// in the order of time. The report is valid during the call only. An error of fn ends it.
func (s *Service) EachTrackReport(ctx context.Context, q db.Querier, organizationID, vehicleID string, from, until time.Time, fn func(r *track.Report) error) error {
	rows, err := q.Query(ctx, "SELECT start_at, reports FROM tracks WHERE organization_id = $1 AND vehicle_id = $2 AND start_at >= $3 AND start_at < $4 ORDER BY start_at",
		organizationID, vehicleID, track.Start(from.UnixMilli())*1000, until.UnixMicro())
	if err != nil {
		return fmt.Errorf("read a track: %w", err)
	}
	defer rows.Close()
	var list track.Segment
	var encoded []byte
	for rows.Next() {
		var start int64
		if err := rows.Scan(&start, &encoded); err != nil {
			return fmt.Errorf("read a track: %w", err)
		}
		if list, err = list[:0].Decode(encoded, start/1000); err != nil {
			return err
		}
		for i := range list {
			if at := list[i].Time(); at.Before(from) || !at.Before(until) {
				continue
			}
			if err := fn(&list[i]); err != nil {
				return err
			}
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read a track: %w", err)
	}
	return nil
}

// Track returns the reports of a vehicle with a position, from a time until before another. With a
// limit, 0 for none, it stops after so many and those of the same millisecond, and returns the
// time at which to continue; zero at the end.
func (s *Service) Track(ctx context.Context, q db.Querier, organizationID, vehicleID string, from, until time.Time, limit int) (list []track.Report, next time.Time, err error) {
	err = s.EachTrackReport(ctx, q, organizationID, vehicleID, from, until, func(r *track.Report) error {
		if !r.Located() {
			return nil
		}
		if limit > 0 && len(list) >= limit && r.At > list[len(list)-1].At {
			next = r.Time()
			return errEnough
		}
		list = append(list, *r)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return list, next, err
}

// errEnough ends an iteration.
var errEnough = errors.New("fleet: no more records are needed")

// pruneTracks deletes the tracks that are older than their organizations keep them.
func (s *Service) pruneTracks(ctx context.Context) error {
	return s.eachFleet(ctx, func(a orgContext) error {
		err := db.Steps(ctx, func() (more bool, err error) {
			err = s.db.Write(ctx, func(tx *db.Tx) error {
				more, err = s.pruneSomeTracksTx(ctx, tx, a.id)
				return err
			})
			return more, err
		})
		if err != nil {
			return fmt.Errorf("delete expired tracks: %w", err)
		}
		return nil
	})
}

// pruneSomeTracksTx deletes expired tracks of an organization and reports whether there may be more.
func (s *Service) pruneSomeTracksTx(ctx context.Context, tx *db.Tx, organizationID string) (more bool, err error) {
	settings, _, err := s.LockSettingsTx(ctx, tx, organizationID) // before the tracks, as a reset of the sandbox does
	if err != nil {
		return false, ignoreAbsent(err)
	}
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return false, err
	}
	before := track.Start(a.now.AddDate(0, 0, -int(settings.TrackRetentionDays)).UnixMilli()) * 1000
	n, err := tx.Exec(ctx, `DELETE FROM tracks WHERE (organization_id, vehicle_id, start_at) IN
		(SELECT organization_id, vehicle_id, start_at FROM tracks WHERE organization_id = $1 AND start_at < $2 ORDER BY start_at LIMIT $3)`, organizationID, before, pruneBatch)
	if err != nil {
		return false, err
	}
	return n == pruneBatch, tx.Queue(ctx, "UPDATE settings SET tracks_deleted_before = $2 WHERE organization_id = $1 AND tracks_deleted_before < $2", organizationID, before)
}

// tracksDeletedBefore returns the time before which tracks have been deleted. A track that was read before
// this call has all its reports since that time.
func tracksDeletedBefore(ctx context.Context, q db.Querier, organizationID string) (before time.Time, err error) {
	err = q.QueryRow(ctx, "SELECT tracks_deleted_before FROM settings WHERE organization_id = $1", organizationID).Scan(db.IntoTime(&before))
	return before, wrapReadError(err, "fleet")
}

// eachFleet calls fn for all fleets until it returns an error.
func (s *Service) eachFleet(ctx context.Context, fn func(a orgContext) error) error {
	ids, err := db.All(ctx, s.db, scanID, "SELECT organization_id FROM settings ORDER BY organization_id")
	if err != nil {
		return fmt.Errorf("list the fleets: %w", err)
	}
	for _, id := range ids {
		a, err := s.orgContext(ctx, s.db, s.db.Now(), id)
		if err != nil {
			return err
		}
		if err := fn(a); err != nil {
			return err
		}
	}
	return nil
}
