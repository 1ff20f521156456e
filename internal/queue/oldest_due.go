package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// DueJob is a job that is due and that nobody runs.
type DueJob struct {
	ID   string
	Kind string
	At   time.Time // since when
}

// dueLanes bounds the lanes of a kind that [Queue.OldestDue] looks at.
const dueLanes = 200

// OldestDue returns the job that has been due for longest and that nobody runs, although its
// lane has room; ok is false where there is none. Jobs that wait for a time, for a lane
// that is held, or for others of their lane are not due. It looks at some lanes of each
// kind only, so that a backlog does not make it slow: with more, it may miss the oldest.
func (q *Queue) OldestDue(ctx context.Context) (oldest DueJob, ok bool, err error) {
	err = q.db.Read(ctx, func(tx *db.Tx) error {
		if err := q.disableSeqScan(ctx, tx); err != nil {
			return err
		}
		for _, r := range q.runners {
			list, err := r.dueJobs(ctx, tx)
			if err != nil {
				return fmt.Errorf("look for due jobs of %s: %w", r.Kind, err)
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

// dueJobs returns jobs of the kind that are due: the first of those that should have become
// ready, and the first of each of some lanes.
func (r *runner) dueJobs(ctx context.Context, tx *db.Tx) ([]DueJob, error) {
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
	found, err := db.All(ctx, tx, scanLane, r.sqlWalk, r.Kind, "", dueLanes, r.PerLane)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(f foundLane) bool { return !f.open })
	if len(found) == 0 {
		return list, nil
	}
	lanes := make([]string, len(found))
	for i, f := range found {
		lanes[i] = f.lane
	}
	ids, err := db.All(ctx, tx, scanText, r.sqlPick, r.Kind, lanes, 1, r.PerLane)
	if err != nil {
		return nil, err
	}
	heads, err := db.All(ctx, tx, scan, "SELECT id, run_at, created_at FROM jobs WHERE id = ANY($1)", ids)
	return append(list, heads...), err
}
