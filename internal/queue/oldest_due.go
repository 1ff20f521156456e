package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// DueJob is a job that is due and not running.
type DueJob struct {
	ID   string
	Kind string
	At   time.Time // since when
}

// dueTenants and dueLanes bound the tenants of a kind, and the lanes of each, that
// [Queue.OldestDue] reads.
const (
	dueTenants = 20
	dueLanes   = 100
)

// OldestDue returns the job that has been due for longest without running although its lane has
// room; ok is false if there is none. Scheduled jobs, held lanes, held outgoing jobs and
// jobs behind others of their lane do not count. It reads at most [dueLanes] lanes of [dueTenants]
// tenants of each kind, so that a backlog does not slow it down; with more it may miss the oldest.
func (q *Queue) OldestDue(ctx context.Context) (oldest DueJob, ok bool, err error) {
	err = q.db.Read(ctx, func(tx *db.Tx) error {
		if err := q.disableSeqScan(ctx, tx); err != nil {
			return err
		}
		for _, r := range q.runners {
			list, err := r.dueJobs(ctx, tx)
			if err != nil {
				return fmt.Errorf("find due jobs of %s: %w", r.Kind, err)
			}
			for _, d := range list {
				if !ok || d.At.Before(oldest.At) {
					oldest, ok = d, true
				}
			}
		}
		return nil
	})
	return oldest, ok, err
}

// dueJobs returns due jobs of the kind: the first overdue scheduled job, and the first ready
// job of each of some lanes.
func (r *runner) dueJobs(ctx context.Context, tx *db.Tx) ([]DueJob, error) {
	if held, err := r.isHeld(ctx, tx); err != nil || held {
		return nil, err
	}
	scan := func(row db.Row) (d DueJob, err error) {
		var created time.Time
		err = row.Scan(&d.ID, db.IntoTime(&d.At), db.IntoTime(&created))
		if d.Kind = r.Kind; d.At.Before(created) {
			d.At = created
		}
		return d, err
	}
	list, err := db.All(ctx, tx, scan, `SELECT id, run_at, created_at FROM jobs WHERE kind = $1 AND state = 1 AND run_at <= $2
		ORDER BY run_at LIMIT 1`, r.Kind, tx.Now.UnixMicro())
	if err != nil {
		return nil, err
	}
	found, err := db.All(ctx, tx, scanLane, r.sqlSurvey, r.Kind, "", dueLanes, dueTenants, r.PerLane)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(f foundLane) bool { return !f.open })
	if len(found) == 0 {
		return list, nil
	}
	lanes := make([]string, len(found))
	for i, f := range found {
		lanes[i] = (&laneRequest{lane: f.lane, want: 1}).text()
	}
	heads, err := db.All(ctx, tx, scan, sqlHeads(r.Ordered, r.q.db.Postgres()), r.Kind, lanes, r.PerLane)
	return append(list, heads...), err
}
