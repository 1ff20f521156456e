package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Job states as stored.
const (
	ready     int64 = 0
	scheduled int64 = 1
	leased    int64 = 2
)

// promoteJobs bounds the jobs that become ready in one transaction.
const promoteJobs = 1000

const (
	// When the first job is due.
	sqlDue = `
SELECT min(run_at) FROM jobs WHERE kind = $1 AND state = 1`

	// Whether a lease has expired. Leased jobs are as few as running ones, so this needs no
	// index.
	sqlExpired = `
SELECT EXISTS (SELECT 1 FROM jobs WHERE kind = $1 AND state = 2 AND lease_until < $2)`

	// Makes due jobs ready, except jobs that another process is promoting.
	sqlPromote = `
UPDATE jobs SET state = 0 WHERE id IN (
	SELECT id FROM jobs WHERE kind = $1 AND state = 1 AND run_at <= $2 ORDER BY run_at LIMIT $3 FOR UPDATE SKIP LOCKED)
RETURNING lane`

	// Makes jobs with expired leases ready.
	sqlReclaim = `
UPDATE jobs SET state = 0, lease = NULL, lease_until = NULL WHERE id IN (
	SELECT id FROM jobs WHERE kind = $1 AND state = 2 AND lease_until < $2 LIMIT $3 FOR UPDATE SKIP LOCKED)
RETURNING lane`

	// PostgreSQL only: serializes claims of a lane, so that its running jobs are counted
	// correctly. Locks are taken in one order to avoid deadlocks.
	sqlLockLanes = `
SELECT pg_advisory_xact_lock(key) FROM (
	SELECT DISTINCT hashtextextended($1 || l.value, 0) AS key FROM unnest($2::text[]) AS l(value) ORDER BY 1) AS keys`

	sqlLease = `
UPDATE jobs SET state = 2, lease = $2, lease_until = $3 WHERE id = ANY($1)
RETURNING id, lane, payload, attempt, created_at`

	sqlExtend = `
UPDATE jobs SET lease_until = $2 WHERE id = ANY($1) AND state = 2 AND lease LIKE $3 RETURNING id, lease`

	sqlMove = `
UPDATE jobs SET kind = $2 WHERE id = ANY($1) AND state < 2 RETURNING CASE WHEN state = 1 THEN run_at END`

	sqlFinish = `
DELETE FROM jobs WHERE id = $1 AND lease = $2`

	sqlDelay = `
UPDATE jobs SET state = 1, run_at = $3, attempt = attempt + $4, lease = NULL, lease_until = NULL WHERE id = $1 AND lease = $2`

	sqlRelease = `
UPDATE jobs SET state = 0, lease = NULL, lease_until = NULL WHERE id = $1 AND lease = $2`
)

// PostgreSQL caches plans. A plan made for an almost empty table scans the whole table, also
// after a backlog has filled it. So statements about lanes run with sequential scans disabled,
// and statements about one job are planned each time.

// laneLockPrefix is the common prefix of the names of a kind's lane locks.
func laneLockPrefix(kind string) string { return "lane/" + kind + "/" }

// disableSeqScan makes PostgreSQL use indexes in the rest of the transaction.
func (q *Queue) disableSeqScan(ctx context.Context, tx *db.Tx) error {
	if !q.db.Postgres() {
		return nil
	}
	_, err := tx.Exec(ctx, "SELECT set_config('enable_seqscan', 'off', true)")
	return err
}

// endLease runs a statement that ends the lease of a job.
func (j *Job) endLease(ctx context.Context, tx *db.Tx, query string, args ...any) error {
	j.ending.Store(true)
	n, err := tx.ExecPlanned(ctx, query, append([]any{j.ID, j.lease}, args...)...)
	if err != nil {
		return err
	}
	if n == 0 {
		return ErrLeaseLost
	}
	tx.AfterCommit(func() { j.ended = true })
	return nil
}

// release makes an interrupted job ready again without counting an attempt.
func (j *Job) release(ctx context.Context, tx *db.Tx) error {
	tx.AfterCommit(func() { j.queue.announceReady(j.Kind, j.Lane, unknownCount) })
	return j.endLease(ctx, tx, sqlRelease)
}

// sqlNext selects the id of the first job of a lane in a state, after an id.
//
// It reads the next index entry and checks that it belongs to the lane: for a min(id) of the
// lane, PostgreSQL may scan the ids of all lanes. Concatenating empty strings removes SQLite's
// column affinity, with which it would not use all columns of the index.
func sqlNext(state int64, lane, after string) string {
	return fmt.Sprintf(`(SELECT CASE WHEN j.kind = $1 AND j.state = %[1]d AND j.lane = %[2]s THEN j.id END
		FROM jobs j WHERE (j.kind, j.state, j.lane, j.id) > ($1, %[1]d, %[2]s || '', %[3]s || '')
		ORDER BY j.kind, j.state, j.lane, j.id LIMIT 1)`, state, lane, after)
}

// sqlWalk finds the next lanes with ready jobs from $2 on, at most $3, by skipping from lane to
// lane in the index, and whether a claim would succeed.
func sqlWalk(ordered bool) string {
	open := `(SELECT count(*) FROM jobs r WHERE r.kind = $1 AND r.state = 2 AND r.lane = walk.lane) < $4
	AND (SELECT count(*) FROM held_lanes h WHERE h.kind = $1 AND h.lane = walk.lane) = 0`
	if ordered {
		open += fmt.Sprintf("\n	AND NOT coalesce(%s < %s, FALSE)",
			sqlNext(scheduled, "walk.lane", "''"), sqlNext(ready, "walk.lane", "''"))
	}
	return `
WITH RECURSIVE walk (lane, steps) AS (
	SELECT (SELECT min(j.lane) FROM jobs j WHERE j.kind = $1 AND j.state = 0 AND j.lane >= $2), 1
	UNION ALL
	SELECT (SELECT min(j.lane) FROM jobs j WHERE j.kind = $1 AND j.state = 0 AND j.lane > walk.lane), steps + 1
	FROM walk WHERE walk.lane IS NOT NULL AND steps < $3
)
SELECT lane, ` + open + `
FROM walk WHERE lane IS NOT NULL ORDER BY lane`
}

// sqlPick finds the first ready jobs of each lane in $2: at most $3 per lane, and at most the
// rest of its limit $4 over all processes. It steps from job to job in the index, so its cost
// depends on the jobs found, not on the jobs waiting. Held lanes are counted instead of tested
// by NOT EXISTS, for which PostgreSQL may read all of them.
func sqlPick(ordered bool) string {
	first := sqlNext(ready, "asked.lane", "''")
	where := ""
	if ordered {
		where = fmt.Sprintf("\n	AND NOT coalesce(%s < id, FALSE)", sqlNext(scheduled, "picked.lane", "''"))
	}
	return `
WITH RECURSIVE asked (lane, room) AS MATERIALIZED (
	SELECT l.value, $4 - (SELECT count(*) FROM jobs r WHERE r.kind = $1 AND r.state = 2 AND r.lane = l.value)
	FROM unnest($2::text[]) AS l(value)
	WHERE (SELECT count(*) FROM held_lanes h WHERE h.kind = $1 AND h.lane = l.value) = 0
), picked (lane, room, id, nth) AS (
	SELECT lane, room, ` + first + `, 1 FROM asked WHERE room > 0
	UNION ALL
	SELECT lane, room, ` + sqlNext(ready, "picked.lane", "picked.id") + `, nth + 1
	FROM picked WHERE id IS NOT NULL AND nth < $3 AND nth < room
)
SELECT id FROM picked WHERE id IS NOT NULL` + where
}

// sqlWaiting finds the first jobs of lane $2 in a state, at most $3.
func sqlWaiting(state int64) string {
	return `
WITH RECURSIVE picked (id, nth) AS (
	SELECT ` + sqlNext(state, "$2", "''") + `, 1
	UNION ALL
	SELECT ` + sqlNext(state, "$2", "picked.id") + `, nth + 1 FROM picked WHERE id IS NOT NULL AND nth < $3
)
SELECT id FROM picked WHERE id IS NOT NULL`
}

func scanText(row db.Row) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// promoteDue makes due jobs ready and, if leases is set, jobs with expired leases. It returns
// their lanes and when to call it again; zero means that no job is scheduled.
func (r *runner) promoteDue(leases bool) (lanes []string, next time.Time, err error) {
	ctx, now := r.work, time.Now()
	expired := false
	err = r.q.db.Read(ctx, func(tx *db.Tx) error {
		if err := r.q.disableSeqScan(ctx, tx); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, sqlDue, r.Kind).Scan(db.IntoTime(&next))
		if err != nil || !leases {
			return err
		}
		return tx.QueryRow(ctx, sqlExpired, r.Kind, now.UnixMicro()).Scan(&expired)
	})
	if err != nil {
		return nil, now, err
	}
	due := !next.IsZero() && !next.After(now)
	if !due && !expired {
		return nil, next, nil
	}
	err = r.q.db.Write(ctx, func(tx *db.Tx) error {
		if err := r.q.disableSeqScan(ctx, tx); err != nil {
			return err
		}
		lanes = nil
		move := func(query string) error {
			some, err := db.All(ctx, tx, scanText, query, r.Kind, tx.Now.UnixMicro(), promoteJobs)
			lanes = append(lanes, some...)
			return err
		}
		if due {
			if err := move(sqlPromote); err != nil {
				return err
			}
		}
		if expired {
			return move(sqlReclaim)
		}
		return nil
	})
	if err != nil {
		return nil, now, err
	}
	if len(lanes) == 0 {
		return nil, now.Add(firstPause), nil // another process is at it
	}
	slices.Sort(lanes)
	return slices.Compact(lanes), now, nil // there may be more
}

// foundLane is a lane with ready jobs.
type foundLane struct {
	lane string
	open bool // not full, held or waiting for a delayed job
}

func scanLane(row db.Row) (f foundLane, err error) {
	err = row.Scan(&f.lane, &f.open)
	return f, err
}

// readLanes returns lanes with ready jobs in order, starting at from, at most walkLanes.
func (r *runner) readLanes(from string) (found []foundLane, err error) {
	err = r.q.db.Read(r.work, func(tx *db.Tx) error {
		if err := r.q.disableSeqScan(r.work, tx); err != nil {
			return err
		}
		found, err = db.All(r.work, tx, scanLane, r.sqlWalk, r.Kind, from, walkLanes, r.PerLane)
		return err
	})
	return found, err
}

// leaseJobs leases up to the requested number of jobs of each lane. It returns them ordered by
// id.
func (r *runner) leaseJobs(requests []laneRequest, lease string) (jobs []*Job, err error) {
	// Lanes that want the same number of jobs share a statement.
	lanes := make(map[int][]string)
	all := make([]string, 0, len(requests))
	for _, a := range requests {
		lanes[a.want] = append(lanes[a.want], a.lane)
		all = append(all, a.lane)
	}
	ctx := r.work
	err = r.q.db.Write(ctx, func(tx *db.Tx) error {
		jobs = nil
		if err := r.q.disableSeqScan(ctx, tx); err != nil {
			return err
		}
		if r.q.db.Postgres() {
			if _, err := tx.Exec(ctx, sqlLockLanes, laneLockPrefix(r.Kind), all); err != nil {
				return err
			}
		}
		var ids []string
		for want, some := range lanes {
			picked, err := db.All(ctx, tx, scanText, r.sqlPick, r.Kind, some, want, r.PerLane)
			if err != nil {
				return err
			}
			ids = append(ids, picked...)
		}
		if len(ids) == 0 {
			return nil
		}
		var err error
		jobs, err = db.All(ctx, tx, func(row db.Row) (*Job, error) {
			j := &Job{Kind: r.Kind, queue: r.q, lease: lease}
			err := row.Scan(&j.ID, &j.Lane, &j.Payload, &j.Attempt, db.IntoTime(&j.CreatedAt))
			return j, err
		}, sqlLease, ids, lease, tx.Now.Add(r.q.lease).UnixMicro())
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(jobs, func(a, b *Job) int { return cmp.Compare(a.ID, b.ID) })
	return jobs, nil
}

// extendLeases extends the leases of jobs. It returns the valid leases by job id.
func (q *Queue) extendLeases(ctx context.Context, jobs []*Job) (extended map[string]string, err error) {
	ids := make([]string, 0, len(jobs))
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	slices.Sort(ids)
	err = q.db.Write(ctx, func(tx *db.Tx) error {
		if err := q.disableSeqScan(ctx, tx); err != nil {
			return err
		}
		extended = make(map[string]string, len(ids))
		rows, err := tx.Query(ctx, sqlExtend, ids, tx.Now.Add(q.lease).UnixMicro(), q.instance+"/%")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id, lease string
			if err := rows.Scan(&id, &lease); err != nil {
				return err
			}
			extended[id] = lease
		}
		return rows.Err()
	})
	return extended, err
}
