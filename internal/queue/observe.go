package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

// observed returns a worker whose runs are measured and traced. The outcomes of a run are:
//
//   - finished: it returned nil, which includes jobs that delayed themselves
//   - failed: it counts as an attempt
//   - discarded: counted beside the failure that was the last
//   - unavailable: our database or files failed; no attempt
//   - interrupted: the process stopped or the lease was lost; no attempt
func (q *Queue) observed(w Worker) Worker {
	if q.observe == nil && q.tracer == nil {
		return w
	}
	run, discard := w.Run, w.Discard
	observe := q.observe
	if observe == nil {
		observe = func(string, string, time.Duration) {}
	}
	w.Run = func(ctx context.Context, j *Job) (err error) {
		start := time.Now()
		if q.tracer != nil {
			var span trace.Span
			ctx, span = q.tracer.Continue(ctx, q.traceOf(ctx, j), "job "+w.Kind, trace.SpanKindConsumer)
			defer func() { telemetry.End(span, err) }()
		}
		outcome := "failed" // of a panic
		defer func() { observe(w.Kind, outcome, time.Since(start)) }()
		err = run(ctx, j)
		switch {
		case err == nil:
			outcome = "finished"
		case ctx.Err() != nil || errors.Is(err, ErrLeaseLost):
			outcome = "interrupted"
		case isUnavailable(err):
			outcome = "unavailable"
		}
		return err
	}
	w.Discard = func(ctx context.Context, tx *db.Tx, j *Job, err error) error {
		tx.AfterCommit(func() { observe(w.Kind, "discarded", 0) })
		if discard == nil {
			return nil
		}
		return discard(ctx, tx, j, err)
	}
	return w
}

// storeTraceTx stores the trace of a context with new jobs. Without a sampled span it does nothing.
func (q *Queue) storeTraceTx(ctx context.Context, tx *db.Tx, jobs []New) error {
	if q.tracer == nil {
		return nil
	}
	parent := telemetry.Parent(ctx)
	if parent == "" {
		return nil
	}
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	if err := tx.Queue(ctx, "UPDATE jobs SET trace = $1 WHERE id = ANY($2)", parent, ids); err != nil {
		return fmt.Errorf("store the trace of jobs: %w", err)
	}
	return nil
}

// traceOf returns the W3C traceparent stored with a job; empty: none.
func (q *Queue) traceOf(ctx context.Context, j *Job) string {
	var parent sql.NullString
	if err := q.db.Lookup(ctx, "SELECT trace FROM jobs WHERE id = $1", j.ID).Scan(&parent); err != nil {
		return "" // the run will meet the same failure
	}
	return parent.String
}

// KindStats has figures of the jobs of a kind.
type KindStats struct {
	Kind                      string
	Ready, Scheduled, Running int           // counted up to [StatsMax]
	Lanes                     int           // with ready jobs, counted up to [StatsMax]
	OldestDue                 time.Duration // since when the first due job that could run has been due; 0: there is none
}

// StatsMax bounds what [Queue.Stats] counts of a kind, and so its cost.
const StatsMax = 10_000

// sqlStats counts the jobs of each kind of $1 by state, each up to $2.
const sqlStats = `
SELECT k.value,
	(SELECT count(*) FROM (SELECT 1 FROM jobs j WHERE j.kind = k.value AND j.state = 0 LIMIT $2) AS found),
	(SELECT count(*) FROM (SELECT 1 FROM jobs j WHERE j.kind = k.value AND j.state = 1 LIMIT $2) AS found),
	(SELECT count(*) FROM (SELECT 1 FROM jobs j WHERE j.kind = k.value AND j.state = 2 LIMIT $2) AS found)
FROM unnest($1::text[]) AS k(value) ORDER BY k.value`

// sqlCountLanes counts the lanes of kind $1 with ready jobs, up to $2.
const sqlCountLanes = `
WITH RECURSIVE walk (lane, steps) AS (
	SELECT (SELECT min(j.lane) FROM jobs j WHERE j.kind = $1 AND j.state = 0), 1
	UNION ALL
	SELECT (SELECT min(j.lane) FROM jobs j WHERE j.kind = $1 AND j.state = 0 AND j.lane > walk.lane), steps + 1
	FROM walk WHERE walk.lane IS NOT NULL AND steps < $2
)
SELECT count(*) FROM walk WHERE lane IS NOT NULL`

// Kinds returns the kinds with a worker, sorted.
func (q *Queue) Kinds() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(q.runners))
}

// Stats returns figures of all kinds with a worker, sorted, of all processes.
func (q *Queue) Stats(ctx context.Context) (list []KindStats, err error) {
	kinds := q.Kinds()
	err = q.db.Read(ctx, func(tx *db.Tx) error {
		if err := q.disableSeqScan(ctx, tx); err != nil {
			return err
		}
		var err error
		list, err = db.All(ctx, tx, func(row db.Row) (s KindStats, err error) {
			err = row.Scan(&s.Kind, &s.Ready, &s.Scheduled, &s.Running)
			return s, err
		}, sqlStats, kinds, StatsMax)
		if err != nil {
			return err
		}
		for i := range list {
			if err := q.addDue(ctx, tx, &list[i]); err != nil {
				return fmt.Errorf("due jobs of %s: %w", list[i].Kind, err)
			}
		}
		return nil
	})
	return list, err
}

// addDue adds the lanes and the age of the oldest due job of a kind.
func (q *Queue) addDue(ctx context.Context, tx *db.Tx, s *KindStats) error {
	if s.Ready+s.Scheduled == 0 {
		return nil
	}
	if s.Ready > 0 {
		if err := tx.QueryRow(ctx, sqlCountLanes, s.Kind, StatsMax).Scan(&s.Lanes); err != nil {
			return err
		}
	}
	due, err := q.runners[s.Kind].dueJobs(ctx, tx)
	for _, d := range due {
		s.OldestDue = max(s.OldestDue, tx.Now.Sub(d.At))
	}
	return err
}
