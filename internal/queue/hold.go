package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Hold is the hold of outgoing work: while it lasts, no process of the deployment claims a job of
// a worker with [Worker.Outgoing]. Such jobs can be enqueued, and wait.
type Hold struct {
	Reason   string    // one line for people
	Since    time.Time // by the database's clock
	Restored bool      // a restore set it: the waiting jobs may have run after the backup
}

// HoldOutgoingTx starts the hold. Running jobs continue. A hold that exists keeps its time and
// reason, and is Restored if one of both is.
func HoldOutgoingTx(ctx context.Context, tx *db.Tx, h Hold) error {
	_, err := tx.Exec(ctx, `INSERT INTO outgoing_hold (id, reason, since, restored) VALUES (1, $1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET restored = outgoing_hold.restored OR excluded.restored`,
		h.Reason, tx.Now.UnixMicro(), h.Restored)
	if err != nil {
		return fmt.Errorf("hold outgoing work: %w", err)
	}
	return nil
}

// OutgoingHold returns the hold; false if there is none.
func OutgoingHold(ctx context.Context, q db.Querier) (Hold, bool, error) {
	h, err := db.One(ctx, q, func(row db.Row) (h Hold, err error) {
		err = row.Scan(&h.Reason, db.IntoTime(&h.Since), &h.Restored)
		return h, err
	}, "SELECT reason, since, restored FROM outgoing_hold WHERE id = 1")
	if errors.Is(err, db.ErrNoRows) {
		return Hold{}, false, nil
	}
	if err != nil {
		return Hold{}, false, fmt.Errorf("read the hold of outgoing work: %w", err)
	}
	return h, true, nil
}

// ReleaseOutgoingTx ends the hold. Lanes keep their order. Other processes notice it at their next
// walk over the lanes, after a few seconds.
func (q *Queue) ReleaseOutgoingTx(ctx context.Context, tx *db.Tx) error {
	if err := tx.Queue(ctx, "DELETE FROM outgoing_hold WHERE id = 1"); err != nil {
		return fmt.Errorf("release outgoing work: %w", err)
	}
	tx.AfterCommit(func() {
		for _, r := range q.runners {
			if r.Outgoing {
				r.requestScan()
			}
		}
	})
	return nil
}

// isHeld reports whether the runner's jobs are held.
func (r *runner) isHeld(ctx context.Context, tx *db.Tx) (held bool, err error) {
	if !r.Outgoing {
		return false, nil
	}
	err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM outgoing_hold WHERE id = 1)").Scan(&held)
	return held, err
}

// WaitingKind is the waiting and running work of a kind.
type WaitingKind struct {
	Kind   string
	Jobs   int64
	Oldest time.Time // creation of the oldest job
}

// OutgoingJobs counts the jobs of the workers with [Worker.Outgoing], by kind; kinds without jobs
// are omitted.
func (q *Queue) OutgoingJobs(ctx context.Context) ([]WaitingKind, error) {
	var list []WaitingKind
	for _, r := range q.runners {
		if !r.Outgoing {
			continue
		}
		w := WaitingKind{Kind: r.Kind}
		err := q.db.QueryRow(ctx, "SELECT count(*), min(created_at) FROM jobs WHERE kind = $1", r.Kind).Scan(&w.Jobs, db.IntoTime(&w.Oldest))
		if err != nil {
			return nil, fmt.Errorf("count outgoing jobs: %w", err)
		}
		if w.Jobs > 0 {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b WaitingKind) int { return strings.Compare(a.Kind, b.Kind) })
	return list, nil
}

// DeleteOlderTx removes jobs of a kind that do not run and were created before a time, at most
// max, and returns their number.
func (q *Queue) DeleteOlderTx(ctx context.Context, tx *db.Tx, kind string, before time.Time, max int) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE kind = $1 AND state < 2 AND created_at < $2 LIMIT $3)",
		kind, before.UnixMicro(), max)
}
