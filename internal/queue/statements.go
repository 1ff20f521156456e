package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// The states as stored.
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

	// Whether a lease has ended. There are no more leased jobs than run, so
	// that looking through them needs no index of its own.
	sqlExpired = `
SELECT EXISTS (SELECT 1 FROM jobs WHERE kind = $1 AND state = 2 AND lease_until < $2)`

	// Jobs that are due become ready. Those that another process is moving
	// right now are left to it.
	sqlPromote = `
UPDATE jobs SET state = 0 WHERE id IN (
	SELECT id FROM jobs WHERE kind = $1 AND state = 1 AND run_at <= $2 ORDER BY run_at LIMIT $3 FOR UPDATE SKIP LOCKED)
RETURNING lane`

	// So do jobs whose lease has ended.
	sqlTakeBack = `
UPDATE jobs SET state = 0, lease = NULL, lease_until = NULL WHERE id IN (
	SELECT id FROM jobs WHERE kind = $1 AND state = 2 AND lease_until < $2 LIMIT $3 FOR UPDATE SKIP LOCKED)
RETURNING lane`

	// The next lanes with ready jobs, found by going from lane to lane in the
	// index, and whether a claim would get something from them.
	sqlWalk = `
WITH RECURSIVE walk (lane, steps) AS (
	SELECT (SELECT min(j.lane) FROM jobs j WHERE j.kind = $1 AND j.state = 0 AND j.lane >= $2), 1
	UNION ALL
	SELECT (SELECT min(j.lane) FROM jobs j WHERE j.kind = $1 AND j.state = 0 AND j.lane > walk.lane), steps + 1
	FROM walk WHERE walk.lane IS NOT NULL AND steps < $3
)
SELECT lane, (SELECT count(*) FROM jobs r WHERE r.kind = $1 AND r.state = 2 AND r.lane = walk.lane) < $4
	AND NOT EXISTS (SELECT 1 FROM held_lanes h WHERE h.kind = $1 AND h.lane = walk.lane)`
	sqlWalkEnd = `
FROM walk WHERE lane IS NOT NULL ORDER BY lane`
	// In an ordered lane also: no job that waits for its time is first.
	sqlWalkOrdered = `
	AND NOT EXISTS (SELECT 1 FROM jobs s WHERE s.kind = $1 AND s.state = 1 AND s.lane = walk.lane
		AND s.id < (SELECT min(j.id) FROM jobs j WHERE j.kind = $1 AND j.state = 0 AND j.lane = walk.lane))`

	// From each of the lanes the first ready jobs, at most $3, and at most as
	// many as its limit of $4 leaves over all processes. Going from job to job
	// in the index makes it cost what it takes, however many jobs wait.
	sqlClaim = `
WITH RECURSIVE asked (lane, room) AS MATERIALIZED (
	SELECT l.value, $4 - (SELECT count(*) FROM jobs r WHERE r.kind = $1 AND r.state = 2 AND r.lane = l.value)
	FROM unnest($2::text[]) AS l(value)
	WHERE NOT EXISTS (SELECT 1 FROM held_lanes h WHERE h.kind = $1 AND h.lane = l.value)
), picked (lane, room, id, nth) AS (
	SELECT lane, room, (SELECT min(j.id) FROM jobs j WHERE j.kind = $1 AND j.state = 0 AND j.lane = asked.lane), 1
	FROM asked WHERE room > 0
	UNION ALL
	SELECT lane, room, (SELECT min(j.id) FROM jobs j WHERE j.kind = $1 AND j.state = 0 AND j.lane = picked.lane AND j.id > picked.id), nth + 1
	FROM picked WHERE id IS NOT NULL AND nth < $3 AND nth < room
)
UPDATE jobs SET state = 2, lease = $5, lease_until = $6
WHERE state = 0 AND id IN (SELECT id FROM picked WHERE id IS NOT NULL`
	sqlClaimOrdered = `
	AND NOT EXISTS (SELECT 1 FROM jobs s WHERE s.kind = $1 AND s.state = 1 AND s.lane = picked.lane AND s.id < picked.id)`
	sqlClaimEnd = `)
RETURNING id, lane, payload, attempt, created_at`

	// Two processes must not count a lane's running jobs at once. The locks
	// are taken in one order, so that they cannot cross.
	sqlLockLanes = `
SELECT pg_advisory_xact_lock(key) FROM (
	SELECT DISTINCT hashtextextended($1 || l.value, 0) AS key FROM unnest($2::text[]) AS l(value) ORDER BY 1) AS keys`

	sqlExtend = `
UPDATE jobs SET lease_until = $1 WHERE id = ANY($2) AND state = 2 AND lease LIKE $3 RETURNING id, lease`

	sqlGiveBack = `
UPDATE jobs SET state = 0, lease = NULL, lease_until = NULL WHERE id = $1 AND lease = $2`
)

// promote makes jobs ready that are due and, if leases is set, those whose lease
// has ended. It returns their lanes and when to call it again; zero means never
// as far as the jobs go that are scheduled now.
func (q *Queue) promote(ctx context.Context, kind string, leases bool) (lanes []string, next time.Time, err error) {
	now := time.Now()
	if err := q.db.QueryRow(ctx, sqlDue, kind).Scan(db.IntoTime(&next)); err != nil {
		return nil, now, err
	}
	expired := false
	if leases {
		if err := q.db.QueryRow(ctx, sqlExpired, kind, now.UnixMicro()).Scan(&expired); err != nil {
			return nil, now, err
		}
	}
	due := !next.IsZero() && !next.After(now)
	if !due && !expired {
		return nil, next, nil
	}
	err = q.db.Write(ctx, func(tx *db.Tx) error {
		lanes = nil
		move := func(query string) error {
			some, err := db.All(ctx, tx, scanText, query, kind, tx.Now.UnixMicro(), promoteJobs)
			lanes = append(lanes, some...)
			return err
		}
		if due {
			if err := move(sqlPromote); err != nil {
				return err
			}
		}
		if expired {
			return move(sqlTakeBack)
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

func scanText(row db.Row) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// foundLane is a lane with ready jobs.
type foundLane struct {
	lane string
	open bool // neither full nor held nor waiting for a delayed job
}

// walk returns lanes with ready jobs in their order, from a lane on, at most
// walkLanes.
func (q *Queue) walk(ctx context.Context, w *Worker, from string) ([]foundLane, error) {
	query := sqlWalk + sqlWalkEnd
	if w.Ordered {
		query = sqlWalk + sqlWalkOrdered + sqlWalkEnd
	}
	return db.All(ctx, q.db, func(row db.Row) (f foundLane, err error) {
		err = row.Scan(&f.lane, &f.open)
		return f, err
	}, query, w.Kind, from, walkLanes, w.PerLane)
}

// claim leases what the asks want, as far as it is there, in the order of the
// jobs' ids.
func (q *Queue) claim(ctx context.Context, w *Worker, asks []ask, lease string) ([]*Job, error) {
	query := sqlClaim + sqlClaimEnd
	if w.Ordered {
		query = sqlClaim + sqlClaimOrdered + sqlClaimEnd
	}
	// Lanes of which the same number is wanted are asked together.
	lanes := make(map[int][]string)
	for _, a := range asks {
		lanes[a.want] = append(lanes[a.want], a.lane)
	}
	var jobs []*Job
	err := q.db.Write(ctx, func(tx *db.Tx) error {
		jobs = jobs[:0]
		if q.db.Postgres() {
			all := make([]string, 0, len(asks))
			for _, a := range asks {
				all = append(all, a.lane)
			}
			if _, err := tx.Exec(ctx, sqlLockLanes, "lane/"+w.Kind+"/", all); err != nil {
				return err
			}
		}
		for want, some := range lanes {
			claimed, err := db.All(ctx, tx, func(row db.Row) (*Job, error) {
				j := &Job{Kind: w.Kind, queue: q, lease: lease}
				err := row.Scan(&j.ID, &j.Lane, &j.Payload, &j.Attempt, db.IntoTime(&j.CreatedAt))
				return j, err
			}, query, w.Kind, some, want, w.PerLane, lease, tx.Now.Add(q.lease).UnixMicro())
			if err != nil {
				return err
			}
			jobs = append(jobs, claimed...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(jobs, func(a, b *Job) int { return cmp.Compare(a.ID, b.ID) })
	return jobs, nil
}

// extend renews the leases of jobs. It returns, by id, the leases that hold.
func (q *Queue) extend(ctx context.Context, jobs []*Job) (kept map[string]string, err error) {
	ids := make([]string, 0, len(jobs))
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	slices.Sort(ids)
	err = q.db.Write(ctx, func(tx *db.Tx) error {
		kept = make(map[string]string, len(ids))
		rows, err := tx.Query(ctx, sqlExtend, tx.Now.Add(q.lease).UnixMicro(), ids, q.instance+"/%")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id, lease string
			if err := rows.Scan(&id, &lease); err != nil {
				return err
			}
			kept[id] = lease
		}
		return rows.Err()
	})
	return kept, err
}

// giveBack makes an interrupted job ready again, without counting the attempt.
func (j *Job) giveBack(ctx context.Context, tx *db.Tx) error {
	n, err := tx.Exec(ctx, sqlGiveBack, j.ID, j.lease)
	if err != nil {
		return err
	}
	if n == 0 {
		return ErrLeaseLost
	}
	tx.AfterCommit(func() {
		j.ended = true
		j.queue.wake(j.Kind, j.Lane, unknown)
	})
	return nil
}
