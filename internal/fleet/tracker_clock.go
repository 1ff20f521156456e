package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
)

// The clock of a tracker is known to be wrong when its last reports are consistently too early
// or too late. One report is no evidence: it may be a fault of the tracker, or have waited in its
// memory.
const (
	// clockTolerance is the greatest error of a clock that is right.
	clockTolerance = maxReportAhead
	// clockJitter bounds the differences of consistent reports.
	clockJitter = 30 * time.Second
	// clockAheadCalls is the number of consistent calls with reports from the future, or from
	// before anything that may have waited, that show a wrong clock.
	clockAheadCalls = 2
	// clockBehindCalls and clockBehindFor are the evidence for other clocks that are behind:
	// reports that waited would catch up meanwhile.
	clockBehindCalls = 3
	clockBehindFor   = 10 * time.Minute
	// trackerMemoryDays is the time that reports may wait in a tracker, even if tracks are deleted
	// sooner.
	trackerMemoryDays = 30
)

// trackerClock is what is known about the clock of a vehicle's tracker. The zero value is a
// clock that is right.
type trackerClock struct {
	ahead time.Duration // of the tracker's clock, or negative; 0: right

	// The present run of consistent reports that are not explained by ahead.
	seen   time.Duration // ahead of now, of the first
	seenAt time.Time     // of the first
	count  int64         // 0: no run
	sentAt time.Time     // of the latest, by the tracker's clock
}

// evidence returns the report of a call that the clock is judged by: the last one if its time is right, since
// other times are faults then, else that with the latest time, which waited least.
func evidence(reports []timedReport, now time.Time) timedReport {
	last := lastReport(reports)
	if last.Time().Sub(now).Abs() <= clockTolerance {
		return last
	}
	return slices.MaxFunc(reports, func(r, o timedReport) int { return cmp.Compare(r.At, o.At) })
}

// lastReport returns the last report of a call: the first one if they are from the newest to the oldest, unless
// it is far from the others, as by a fault.
func lastReport(reports []timedReport) timedReport {
	last := reports[len(reports)-1]
	if len(reports) < 3 || !slices.IsSortedFunc(reports, func(r, o timedReport) int { return cmp.Compare(o.At, r.At) }) {
		return last
	}
	longest := int64(0)
	for i := 2; i < len(reports); i++ {
		longest = max(longest, reports[i-1].At-reports[i].At)
	}
	if reports[0].At-reports[1].At > 2*longest {
		return last
	}
	return reports[0]
}

// observe updates the clock by the time of a report of a call. Reports from before oldest cannot have
// waited in a tracker's memory. A direct report needs no second one as evidence, if it is from the
// future or from before oldest.
func (c *trackerClock) observe(sentAt, now, oldest time.Time, direct bool) {
	ahead := sentAt.Sub(now)
	if ahead.Abs() <= clockTolerance {
		*c = trackerClock{}
		return
	}
	if c.ahead != 0 && (ahead-c.ahead).Abs() <= clockJitter {
		// No report comes before it was sent, so a clock that is further ahead gains. The correction follows
		// at once: a late one would set times back, and the next reports would be out of order.
		c.ahead = max(c.ahead, ahead)
		c.seen, c.seenAt, c.count, c.sentAt = 0, time.Time{}, 0, time.Time{}
		return
	}
	switch {
	case c.count == 0 || (ahead-c.seen).Abs() > clockJitter:
		c.seen, c.seenAt, c.count, c.sentAt = ahead, now, 1, sentAt
	case sentAt.After(c.sentAt): // else a repeated call
		c.count++
		c.sentAt = sentAt
	}
	impossible := ahead > 0 || sentAt.Before(oldest)
	if impossible && (direct || c.count >= clockAheadCalls) || c.count >= clockBehindCalls && now.Sub(c.seenAt) >= clockBehindFor {
		*c = trackerClock{ahead: ahead}
	}
}

// segmentsOf returns the starts of the n segments that may have a report: first its own one. A clock
// that gains had a smaller correction, so the report may be stored in the next segment; and before
// the clock was known to be wrong, it was stored without any.
func (c *trackerClock) segmentsOf(r *track.Report) (starts [3]int64, n int) {
	starts[0] = track.Start(r.At)
	if c.ahead == 0 {
		return starts, 1
	}
	starts[1], starts[2] = starts[0]+track.Period.Milliseconds(), track.Start(r.SentAt())
	return starts, 3
}

// manyVehicles is the number of vehicles from which on it is faster to read all clocks of an
// organization, since few are wrong.
const manyVehicles = 100

// trackerClocks returns the stored clocks of vehicles, and perhaps of others, by id.
func trackerClocks(ctx context.Context, tx *db.Tx, organizationID string, vehicleIDs []string) (map[string]trackerClock, error) {
	query, args := "SELECT vehicle_id, ahead, seen, seen_at, seen_count, last_sent_at FROM tracker_clocks WHERE organization_id = $1", []any{organizationID}
	if len(vehicleIDs) < manyVehicles {
		query, args = query+" AND vehicle_id = ANY($2)", append(args, vehicleIDs)
	}
	clocks := make(map[string]trackerClock)
	type stored struct {
		id    string
		clock trackerClock
	}
	list, err := db.All(ctx, tx, func(row db.Row) (s stored, err error) {
		var ahead, seen int64
		err = row.Scan(&s.id, &ahead, &seen, db.IntoTime(&s.clock.seenAt), &s.clock.count, db.IntoTime(&s.clock.sentAt))
		s.clock.ahead, s.clock.seen = time.Duration(ahead)*time.Millisecond, time.Duration(seen)*time.Millisecond
		if s.clock.count == 0 {
			s.clock.seenAt, s.clock.sentAt = time.Time{}, time.Time{}
		}
		return s, err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read the clocks of trackers: %w", err)
	}
	for _, s := range list {
		clocks[s.id] = s.clock
	}
	return clocks, nil
}

// save stores the clock of a vehicle's tracker; no row stands for one that is right.
func (c trackerClock) save(ctx context.Context, tx *db.Tx, organizationID, vehicleID string) error {
	var err error
	if c == (trackerClock{}) {
		err = tx.Queue(ctx, "DELETE FROM tracker_clocks WHERE organization_id = $1 AND vehicle_id = $2", organizationID, vehicleID)
	} else {
		var seenAt, sentAt int64
		if c.count > 0 {
			seenAt, sentAt = c.seenAt.UnixMicro(), c.sentAt.UnixMicro()
		}
		err = tx.Queue(ctx, `INSERT INTO tracker_clocks (organization_id, vehicle_id, ahead, seen, seen_at, seen_count, last_sent_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (organization_id, vehicle_id) DO UPDATE SET ahead = excluded.ahead, seen = excluded.seen, seen_at = excluded.seen_at,
				seen_count = excluded.seen_count, last_sent_at = excluded.last_sent_at`,
			organizationID, vehicleID, c.ahead.Milliseconds(), c.seen.Milliseconds(), seenAt, c.count, sentAt)
	}
	if err != nil {
		return fmt.Errorf("store the clock of a tracker: %w", err)
	}
	return nil
}
