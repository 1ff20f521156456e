package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// counterTable has the last number of the order of jobs on SQLite. PostgreSQL has a sequence.
const counterTable = "job_numbers"

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
RETURNING tenant, lane`

	// Makes jobs with expired leases ready.
	sqlReclaim = `
UPDATE jobs SET state = 0, lease = NULL, lease_until = NULL WHERE id IN (
	SELECT id FROM jobs WHERE kind = $1 AND state = 2 AND lease_until < $2 LIMIT $3 FOR UPDATE SKIP LOCKED)
RETURNING tenant, lane`

	// PostgreSQL only: waits for claims of lanes and excludes further ones. Locks are taken in one
	// order to avoid deadlocks.
	sqlLockLanes = `
SELECT pg_advisory_xact_lock(key) FROM (
	SELECT DISTINCT hashtextextended($1 || l.value, 0) AS key FROM unnest($2::text[]) AS l(value) ORDER BY 1) AS keys`

	// PostgreSQL only: locks lanes for a claim, without waiting: lanes that another process is
	// claiming are skipped. It returns the locked requests of $2 and the claim's number.
	// Sequential scans are disabled in the same round trip.
	sqlTryLanes = `
SELECT l.value, (SELECT nextval('jobs_seq')), (SELECT set_config('enable_seqscan', 'off', true)) FROM unnest($2::text[]) AS l(value)
WHERE pg_try_advisory_xact_lock(hashtextextended($1 || substr(l.value, 8), 0))`

	// sqlTryLanes for [Worker.Affinity]: it skips lanes of tenants whose jobs another process claims
	// or runs. $3 has the tenant of each request; empty: unknown. $4 is the pattern of this process's
	// leases, $5 the end of the leases of a process that extends them. CASE keeps PostgreSQL from locking
	// lanes before it has looked at their tenants. Sequential scans must be disabled before.
	sqlTryOwnLanes = `
WITH elsewhere AS MATERIALIZED (
	SELECT DISTINCT tenant FROM jobs WHERE kind = $6 AND state = 2 AND lease_until > $5 AND lease NOT LIKE $4
), free AS MATERIALIZED (
	SELECT t.value FROM (SELECT DISTINCT value FROM unnest($3::text[]) AS a(value)) AS t
	WHERE t.value = '' OR t.value NOT IN (SELECT tenant FROM elsewhere) AND pg_try_advisory_xact_lock(hashtextextended('tenant/' || $1 || t.value, 0))
)
SELECT l.value, (SELECT nextval('jobs_seq')), (SELECT set_config('enable_seqscan', 'off', true)) FROM unnest($2::text[], $3::text[]) AS l(value, tenant)
WHERE CASE WHEN l.tenant IN (SELECT value FROM free) THEN pg_try_advisory_xact_lock(hashtextextended($1 || substr(l.value, 8), 0)) ELSE FALSE END`

	// Extends leases, except of jobs whose rows are locked, such as by the transactions that end
	// them: these lock several jobs in another order, and waiting for them could deadlock.
	sqlExtend = `
UPDATE jobs SET lease_until = $2 WHERE id IN (
	SELECT id FROM jobs WHERE id = ANY($1) AND state = 2 AND lease LIKE $3 FOR UPDATE SKIP LOCKED)
RETURNING id, lease`

	sqlLeases = `
SELECT id, lease FROM jobs WHERE id = ANY($1) AND state = 2 AND lease LIKE $2`

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

const sqlDisableSeqScan = `SELECT set_config('enable_seqscan', 'off', true)`

// disableSeqScan makes PostgreSQL use indexes in the rest of the transaction.
func (q *Queue) disableSeqScan(ctx context.Context, tx *db.Tx) error {
	if !q.db.Postgres() {
		return nil
	}
	_, err := tx.Exec(ctx, sqlDisableSeqScan)
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

// ReleaseTx makes the job ready again at its place in the lane, without counting an attempt. The caller
// must return [ErrLeaseLost] from the transaction.
func (j *Job) ReleaseTx(ctx context.Context, tx *db.Tx) error {
	tx.AfterCommit(func() { j.queue.announceReady(j.Kind, j.tenant, j.Lane, unknownCount) })
	return j.endLease(ctx, tx, sqlRelease)
}

// noNumber precedes the numbers of all jobs.
const noNumber = "-9223372036854775807"

// sqlNext selects the number of the first job of a lane in a state, after a number.
//
// It reads the next index entry and checks that it belongs to the lane. Concatenating an empty
// string and adding zero remove SQLite's column affinity, with which it would not use all columns
// of the index.
func sqlNext(state int64, lane, after string) string {
	return fmt.Sprintf(`(SELECT CASE WHEN j.kind = $1 AND j.state = %[1]d AND j.lane = %[2]s THEN j.seq END
		FROM jobs j WHERE (j.kind, j.state, j.lane, j.seq) > ($1, %[1]d, %[2]s || '', %[3]s + 0)
		ORDER BY j.kind, j.state, j.lane, j.seq LIMIT 1)`, state, lane, after)
}

// sqlID selects the id of the job of a lane in a state with the number picked.seq. Equality would let
// PostgreSQL use another index, with a plan made for an almost empty table.
func sqlID(state int64, lane string) string {
	return fmt.Sprintf(`(SELECT j.id FROM jobs j WHERE (j.kind, j.state, j.lane, j.seq) >= ($1, %d, %s || '', picked.seq + 0)
		ORDER BY j.kind, j.state, j.lane, j.seq LIMIT 1)`, state, lane)
}

// sqlNextTenant selects the first tenant with ready jobs that compares by op with another, like
// [sqlNext].
func sqlNextTenant(op, tenant string) string {
	return fmt.Sprintf(`(SELECT CASE WHEN j.kind = $1 THEN j.tenant END
		FROM jobs j WHERE (j.kind, j.tenant) %s ($1, %s || '') AND j.state = 0 ORDER BY j.kind, j.tenant LIMIT 1)`, op, tenant)
}

// sqlNextLane selects the first lane of a tenant with ready jobs that compares by op with another,
// like [sqlNext].
func sqlNextLane(tenant, op, lane string) string {
	return fmt.Sprintf(`(SELECT CASE WHEN j.kind = $1 AND j.tenant = %[1]s THEN j.lane END
		FROM jobs j WHERE (j.kind, j.tenant, j.lane) %[2]s ($1, %[1]s || '', %[3]s || '') AND j.state = 0
		ORDER BY j.kind, j.tenant, j.lane LIMIT 1)`, tenant, op, lane)
}

// walked ends a statement with the common table expression walk: its lanes, and whether a claim
// would succeed for a limit of $5 jobs per lane.
func walked(ordered bool) string {
	open := `(SELECT count(*) FROM jobs r WHERE r.kind = $1 AND r.state = 2 AND r.lane = walk.lane) < $5
	AND (SELECT count(*) FROM held_lanes h WHERE h.kind = $1 AND h.lane = walk.lane) = 0`
	if ordered {
		delayed := sqlNext(scheduled, "walk.lane", noNumber)
		open += fmt.Sprintf("\n	AND (%s IS NULL OR %s > %s)", delayed, delayed, sqlNext(ready, "walk.lane", noNumber))
	}
	return `
SELECT tenant, lane, ` + open + `
FROM walk WHERE lane IS NOT NULL ORDER BY tenant, lane`
}

// sqlSurvey finds the first lanes, at most $3 each, of the next tenants with ready jobs from $2
// on, at most $4, by skipping from tenant to tenant and from lane to lane in the index.
func sqlSurvey(ordered bool) string {
	return `
WITH RECURSIVE tenants (tenant, steps) AS (
	SELECT ` + sqlNextTenant(">=", "$2") + `, 1
	UNION ALL
	SELECT ` + sqlNextTenant(">", "tenants.tenant") + `, steps + 1 FROM tenants WHERE tenant IS NOT NULL AND steps < $4
), walk (tenant, lane, steps) AS (
	SELECT tenant, ` + sqlNextLane("tenants.tenant", ">=", "''") + `, 1 FROM tenants WHERE tenant IS NOT NULL
	UNION ALL
	SELECT tenant, ` + sqlNextLane("walk.tenant", ">", "walk.lane") + `, steps + 1 FROM walk WHERE lane IS NOT NULL AND steps < $3
)` + walked(ordered)
}

// sqlWalk finds the next lanes with ready jobs of tenant $2 from $3 on, at most $4.
func sqlWalk(ordered bool) string {
	return `
WITH RECURSIVE walk (tenant, lane, steps) AS (
	SELECT $2 || '', ` + sqlNextLane("$2", ">=", "$3") + `, 1
	UNION ALL
	SELECT tenant, ` + sqlNextLane("walk.tenant", ">", "walk.lane") + `, steps + 1 FROM walk WHERE lane IS NOT NULL AND steps < $4
)` + walked(ordered)
}

// sqlLastLane selects the last lane with ready jobs of tenants before $2, and its tenant.
const sqlLastLane = `
SELECT CASE WHEN j.kind = $1 THEN j.tenant ELSE '' END, j.lane FROM jobs j WHERE (j.kind, j.tenant, j.lane) < ($1, $2 || '', '') AND j.state = 0
ORDER BY j.kind DESC, j.tenant DESC, j.lane DESC LIMIT 1`

// sqlPicked is the common table expression "picked": the numbers of the first ready jobs of each
// lane of the requests $2 ("000003 lane": at most three jobs, see [laneRequest.text]), and at most
// the rest of the lane's limit $3 over all processes. It steps from job to job in the index, so
// its cost depends on the jobs found, not on the jobs waiting. Held lanes are counted instead of
// tested by NOT EXISTS, for which PostgreSQL may read all of them.
const sqlPicked = `
WITH RECURSIVE requested (lane, want) AS (
	SELECT substr(l.value, 8), CAST(substr(l.value, 1, 6) AS BIGINT) FROM unnest($2::text[]) AS l(value)
), asked (lane, want, room) AS MATERIALIZED (
	SELECT q.lane, q.want, $3 - (SELECT count(*) FROM jobs r WHERE r.kind = $1 AND r.state = 2 AND r.lane = q.lane)
	FROM requested q
	WHERE (SELECT count(*) FROM held_lanes h WHERE h.kind = $1 AND h.lane = q.lane) = 0
), picked (lane, want, room, seq, nth) AS (
	SELECT lane, want, room, FIRST, 1 FROM asked WHERE room > 0
	UNION ALL
	SELECT lane, want, room, NEXT, nth + 1
	FROM picked WHERE seq IS NOT NULL AND nth < want AND nth < room
)`

// pickedIDs returns [sqlPicked] and the ids of its jobs as an operand of "id". A join would let
// PostgreSQL choose a plan that reads all ready jobs.
func pickedIDs(ordered, postgres bool) (with, ids string) {
	with = strings.NewReplacer(
		"FIRST", sqlNext(ready, "asked.lane", noNumber),
		"NEXT", sqlNext(ready, "picked.lane", "picked.seq"),
	).Replace(sqlPicked)
	ids = "SELECT " + sqlID(ready, "picked.lane") + " FROM picked WHERE seq IS NOT NULL"
	if ordered {
		ids += fmt.Sprintf("\n	AND NOT coalesce(%s < picked.seq, FALSE)", sqlNext(scheduled, "picked.lane", noNumber))
	}
	if postgres {
		return with, "= ANY(ARRAY(" + ids + "))"
	}
	return with, "IN (" + ids + ")"
}

// sqlHeads returns the times of picked jobs.
func sqlHeads(ordered, postgres bool) string {
	with, ids := pickedIDs(ordered, postgres)
	return with + `
SELECT id, run_at, created_at FROM jobs WHERE id ` + ids
}

// sqlLease leases picked jobs until $5, under the lease $4 and the number of the claim $6. With
// "state = 0" PostgreSQL may use the index of ready jobs instead of the primary key.
func sqlLease(ordered, postgres bool) string {
	with, ids := pickedIDs(ordered, postgres)
	return with + `
UPDATE jobs SET state = 2, lease = $4, lease_until = $5, fence = $6 WHERE state < 1 AND id ` + ids + `
RETURNING id, tenant, lane, payload, attempt, created_at, seq`
}

// sqlWaiting finds the first jobs of lane $2 in a state, at most $3.
func sqlWaiting(state int64) string {
	return `
WITH RECURSIVE picked (seq, nth) AS (
	SELECT ` + sqlNext(state, "$2", noNumber) + `, 1
	UNION ALL
	SELECT ` + sqlNext(state, "$2", "picked.seq") + `, nth + 1 FROM picked WHERE seq IS NOT NULL AND nth < $3
)
SELECT ` + sqlID(state, "$2") + ` FROM picked WHERE seq IS NOT NULL`
}

func scanText(row db.Row) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// promoteDue makes due jobs ready and, if leases is set, jobs with expired leases. It returns
// their lanes and when to call it again; zero means that no job is scheduled.
func (r *runner) promoteDue(leases bool) (lanes []laneOf, next time.Time, err error) {
	ctx, now := r.work, r.q.db.Now()
	expired := false
	err = r.q.db.Read(ctx, func(tx *db.Tx) error {
		now = tx.Now
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
			some, err := db.All(ctx, tx, scanLaneOf, query, r.Kind, tx.Now.UnixMicro(), promoteJobs)
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
	slices.SortFunc(lanes, func(a, b laneOf) int { return cmp.Compare(a.lane, b.lane) })
	return slices.Compact(lanes), now, nil // there may be more
}

// laneOf is a lane and its tenant.
type laneOf struct{ tenant, lane string }

func scanLaneOf(row db.Row) (l laneOf, err error) {
	err = row.Scan(&l.tenant, &l.lane)
	return l, err
}

// foundLane is a lane with ready jobs.
type foundLane struct {
	tenant string
	lane   string
	open   bool // not full, held or waiting for a delayed job
}

func scanLane(row db.Row) (f foundLane, err error) {
	err = row.Scan(&f.tenant, &f.lane, &f.open)
	return f, err
}

// readLanes returns the lanes with ready jobs that a statement finds, with its arguments $2 to $4.
func (r *runner) readLanes(query string, args ...any) (found []foundLane, err error) {
	err = r.q.db.Read(r.work, func(tx *db.Tx) error {
		if err := r.q.disableSeqScan(r.work, tx); err != nil {
			return err
		}
		if held, err := r.isHeld(r.work, tx); err != nil || held {
			found = nil
			return err
		}
		found, err = db.All(r.work, tx, scanLane, query, append(append([]any{r.Kind}, args...), r.PerLane)...)
		return err
	})
	return found, err
}

// lastLane returns the last lane with ready jobs of a tenant; empty: none.
func (r *runner) lastLane(tenant string) (string, error) {
	var l laneOf
	err := r.q.db.Read(r.work, func(tx *db.Tx) error {
		err := r.q.disableSeqScan(r.work, tx)
		if err == nil {
			l, err = db.One(r.work, tx, scanLaneOf, sqlLastLane, r.Kind, tenant+"\x01")
		}
		return err
	})
	if l.tenant != tenant {
		l.lane = ""
	}
	if errors.Is(err, db.ErrNoRows) {
		err = nil
	}
	return l.lane, err
}

// text returns the request as an argument of [sqlPicked].
func (a *laneRequest) text() string { return fmt.Sprintf("%06d %s", min(a.want, 999_999), a.lane) }

// leaseJobs leases up to the requested number of jobs of each lane. It returns them in their
// order. On PostgreSQL it skips lanes that another process is claiming, and marks them busy.
func (r *runner) leaseJobs(requests []laneRequest, lease string) (jobs []*Job, err error) {
	all := make([]string, len(requests))
	for i := range requests {
		all[i] = requests[i].text()
	}
	ctx := r.work
	locked := all
	err = r.q.db.Write(ctx, func(tx *db.Tx) error {
		jobs = nil
		if held, err := r.isHeld(ctx, tx); err != nil || held {
			locked = all
			return err
		}
		var fence int64
		if r.q.db.Postgres() {
			query, args := sqlTryLanes, []any{laneLockPrefix(r.Kind), all}
			if r.Affinity {
				if err := tx.Queue(ctx, sqlDisableSeqScan); err != nil {
					return err
				}
				tenants := make([]string, len(requests))
				for i := range requests {
					tenants[i] = requests[i].tenant
				}
				query, args = sqlTryOwnLanes, append(args, tenants, r.q.instance+"/%", tx.Now.Add(r.q.lease*2/3).UnixMicro(), r.Kind)
			}
			var err error
			locked, err = db.All(ctx, tx, func(row db.Row) (request string, err error) {
				err = row.Scan(&request, &fence, new(string))
				return request, err
			}, query, args...)
			if err != nil || len(locked) == 0 {
				return err
			}
		} else {
			var err error
			if fence, err = tx.NextNumbers(ctx, counterTable, 1); err != nil {
				return err
			}
		}
		var err error
		jobs, err = db.All(ctx, tx, func(row db.Row) (*Job, error) {
			j := &Job{Kind: r.Kind, queue: r.q, lease: lease, fence: fence}
			err := row.Scan(&j.ID, &j.tenant, &j.Lane, &j.Payload, &j.Attempt, db.IntoTime(&j.CreatedAt), &j.seq)
			return j, err
		}, r.sqlLease, r.Kind, locked, r.PerLane, lease, tx.Now.Add(r.q.lease).UnixMicro(), fence)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(locked) < len(all) {
		free := make(map[string]bool, len(locked))
		for _, request := range locked {
			free[request] = true
		}
		for i := range requests {
			requests[i].busy = !free[all[i]]
		}
	}
	slices.SortFunc(jobs, func(a, b *Job) int { return cmp.Compare(a.seq, b.seq) })
	return jobs, nil
}

// extendLeases extends the leases of jobs to end after lease. It returns the extended leases and,
// of jobs whose rows are locked at the moment, those that are still valid, by job id.
func (q *Queue) extendLeases(ctx context.Context, jobs []*Job, lease time.Duration) (extended, locked map[string]string, err error) {
	ids := make([]string, 0, len(jobs))
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	slices.Sort(ids)
	err = q.db.Write(ctx, func(tx *db.Tx) error {
		if err := q.disableSeqScan(ctx, tx); err != nil {
			return err
		}
		mine := q.instance + "/%"
		var err error
		if extended, err = readLeases(ctx, tx, sqlExtend, ids, tx.Now.Add(lease).UnixMicro(), mine); err != nil || len(extended) == len(ids) {
			return err
		}
		locked, err = readLeases(ctx, tx, sqlLeases, ids, mine)
		return err
	})
	return extended, locked, err
}

// readLeases returns the leases that a statement returns, by job id.
func readLeases(ctx context.Context, tx *db.Tx, query string, args ...any) (map[string]string, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	leases := make(map[string]string)
	for rows.Next() {
		var id, lease string
		if err := rows.Scan(&id, &lease); err != nil {
			return nil, err
		}
		leases[id] = lease
	}
	return leases, rows.Err()
}
