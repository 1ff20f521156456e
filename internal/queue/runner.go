package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// The states as stored.
const (
	ready     int64 = 0
	scheduled int64 = 1
	leased    int64 = 2
)

// unknown stands for "some ready jobs, nobody counted".
const unknown = -1

// claimLanes bounds the lanes of one claim, and so how long its transaction
// holds up others.
const claimLanes = 128

// walkLanes bounds the lanes of one walk over the index.
const walkLanes = 1000

// runner finds and runs the jobs of one kind. One goroutine (loop) claims; each
// job runs in its own.
type runner struct {
	q *Queue
	Worker

	mu      sync.Mutex
	lanes   map[string]*lane
	listed  []string // lanes that may have work, oldest first
	running int
	due     time.Time // when the next scheduled job is due, as far as known
	jobs    map[*Job]context.CancelCauseFunc
	claims  uint64
	cursor  string // where the walk goes on
	walking bool   // the walk has not reached the end yet
	closing bool

	signal chan struct{}  // capacity 1: something changed
	done   chan struct{}  // loop has ended
	wg     sync.WaitGroup // running jobs
}

// lane is what this process knows of a lane that may have work or is running
// some.
type lane struct {
	running int
	waiting int  // ready jobs we were told of
	unsure  bool // there may be more than waiting says
	listed  bool
}

func newRunner(q *Queue, w Worker) *runner {
	if w.Ordered || w.PerLane == 0 {
		w.PerLane = 1
	}
	if w.Concurrency == 0 {
		w.Concurrency = 16
	}
	if w.Retry == nil {
		w.Retry = func(attempt int, _ error) (time.Duration, bool) { return Backoff(attempt), attempt < 8 }
	}
	return &runner{
		q: q, Worker: w,
		lanes:   make(map[string]*lane),
		jobs:    make(map[*Job]context.CancelCauseFunc),
		signal:  make(chan struct{}, 1),
		done:    make(chan struct{}),
		walking: true,
	}
}

func (r *runner) start() { go r.loop() }

func (r *runner) stop(ctx context.Context) {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	r.nudge()
	<-r.done
	finished := make(chan struct{})
	go func() { r.wg.Wait(); close(finished) }()
	select {
	case <-finished:
		return
	case <-ctx.Done():
	}
	r.mu.Lock()
	for _, cancel := range r.jobs {
		cancel(errStopping)
	}
	r.mu.Unlock()
	// The lease must outlive the wait, or another process would run the job
	// beside its last moments here.
	beat := time.NewTicker(r.q.lease / 3)
	defer beat.Stop()
	for {
		select {
		case <-finished:
			return
		case <-beat.C:
			r.extend(context.Background())
		}
	}
}

func (r *runner) nudge() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// wake notes that a lane has n more ready jobs.
func (r *runner) wake(name string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lane(name)
	if n == unknown {
		l.unsure = true
	} else {
		l.waiting += n
	}
	r.list(name, l)
}

// wakeAt notes that a job is due at a time.
func (r *runner) wakeAt(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due.IsZero() || at.Before(r.due) {
		r.due = at
		r.nudge()
	}
}

// look has the index walked from the start.
func (r *runner) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cursor, r.walking = "", true
	r.nudge()
}

func (r *runner) cancelLane(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for j, cancel := range r.jobs {
		if j.Lane == name {
			cancel(ErrLeaseLost)
		}
	}
}

// lane returns what is known of a lane. r.mu is held.
func (r *runner) lane(name string) *lane {
	l := r.lanes[name]
	if l == nil {
		l = new(lane)
		r.lanes[name] = l
	}
	return l
}

// list puts a lane on the list if it may have work and has room; a full lane
// comes back when one of its jobs ends. A lane nobody knows anything about is
// forgotten. r.mu is held.
func (r *runner) list(name string, l *lane) {
	switch hasWork := l.waiting > 0 || l.unsure; {
	case l.listed:
	case hasWork && l.running < r.PerLane:
		l.listed = true
		r.listed = append(r.listed, name)
		r.nudge()
	case !hasWork && l.running == 0:
		delete(r.lanes, name)
	}
}

func (r *runner) loop() {
	defer close(r.done)
	ctx := context.Background()
	poll := time.NewTimer(0)
	beat := time.NewTicker(r.q.lease / 3)
	due := time.NewTimer(time.Hour)
	defer poll.Stop()
	defer beat.Stop()
	defer due.Stop()
	look := true // ask the database what is due
	for {
		var at time.Time
		r.mu.Lock()
		closing := r.closing
		at = r.due
		r.mu.Unlock()
		if closing {
			return
		}
		if look || (!at.IsZero() && !at.After(time.Now())) {
			look = false
			if err := r.promote(ctx); err != nil {
				r.failed("looking for due jobs", err)
				r.pause()
				continue
			}
		}
		more, err := r.claim(ctx)
		if err != nil {
			r.failed("claiming jobs", err)
			r.pause()
			continue
		}
		if more {
			continue
		}
		if walked, err := r.walk(ctx); err != nil {
			r.failed("looking for lanes with work", err)
			r.pause()
		} else if walked {
			continue
		}
		r.mu.Lock()
		at = r.due
		r.mu.Unlock()
		if at.IsZero() {
			due.Reset(time.Hour)
		} else {
			due.Reset(max(0, time.Until(at)))
		}
		select {
		case <-r.signal:
		case <-due.C:
		case <-beat.C:
			r.extend(ctx)
		case <-poll.C:
			look = true
			r.mu.Lock()
			if !r.walking {
				r.cursor, r.walking = "", true
			}
			r.mu.Unlock()
			poll.Reset(r.q.poll + time.Duration(rand.Int64N(int64(r.q.poll/4)+1)))
		}
	}
}

func (r *runner) failed(doing string, err error) {
	r.q.log.Error(doing, "kind", r.Kind, "error", err)
}

// pause keeps a lost database from being asked in a tight loop.
func (r *runner) pause() {
	t := time.NewTimer(200 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			r.nudge()
			return
		case <-r.signal:
			r.mu.Lock()
			closing := r.closing
			r.mu.Unlock()
			if closing {
				r.nudge()
				return
			}
		}
	}
}

// ask is what a claim wants from one lane, and what was known of it before.
type ask struct {
	name   string
	want   int
	told   int
	unsure bool
	got    int
}

// plan takes lanes off the list, as many as there is room for. What is known of
// their waiting jobs moves into the asks, so that what comes in during the
// claim is counted apart.
func (r *runner) plan() []ask {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := r.Concurrency - r.running
	var asks []ask
	taken := 0
	for _, name := range r.listed {
		if free <= 0 || len(asks) == claimLanes {
			break
		}
		taken++
		l := r.lanes[name]
		l.listed = false
		want := min(r.PerLane-l.running, free)
		if !l.unsure {
			want = min(want, l.waiting)
		}
		if want <= 0 {
			continue
		}
		free -= want
		asks = append(asks, ask{name: name, want: want, told: l.waiting, unsure: l.unsure})
		l.waiting, l.unsure = 0, false
	}
	r.listed = r.listed[:copy(r.listed, r.listed[taken:])]
	// In one order for all processes, so that their locks cannot cross.
	slices.SortFunc(asks, func(a, b ask) int { return strings.Compare(a.name, b.name) })
	return asks
}

// claim takes jobs from listed lanes, as far as there is room, and starts them.
// It reports whether there may be more to claim at once.
func (r *runner) claim(ctx context.Context) (more bool, err error) {
	asks := r.plan()
	if len(asks) == 0 {
		return false, nil
	}
	r.claims++
	lease := r.q.instance + "/" + strconv.FormatUint(r.claims, 36)
	var jobs []*Job
	err = r.q.db.Write(ctx, func(tx *db.Tx) error {
		jobs = jobs[:0]
		for i := range asks {
			a := &asks[i]
			before := len(jobs)
			// Two processes must not count a lane's running jobs at once.
			if err := tx.Lock(ctx, "lane/"+r.Kind+"/"+a.name); err != nil {
				return err
			}
			var err error
			if jobs, err = r.take(ctx, tx, jobs, a, lease); err != nil {
				return err
			}
			a.got = len(jobs) - before
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range asks {
		l := r.lane(a.name)
		switch {
		case err != nil:
			l.waiting += a.told
			l.unsure = l.unsure || a.unsure
		case a.got == a.want:
			l.waiting += max(0, a.told-a.got)
			l.unsure = l.unsure || a.unsure
		default:
			// Fewer than asked for: there are no more, whatever was told.
		}
		if err == nil {
			l.running += a.got
			r.running += a.got
		}
		r.list(a.name, l)
	}
	if err != nil {
		return false, err
	}
	for _, j := range jobs {
		r.run(j)
	}
	return len(r.listed) > 0 && r.running < r.Concurrency, nil
}

// The first ready jobs of a lane, as many as the lane's limit leaves over all
// processes. Reading by (kind, state, lane, id) makes it cost what it takes,
// however many jobs wait.
const (
	takeJobs = `UPDATE jobs SET state = 2, lease = $5, lease_until = $6
		WHERE id IN (
			SELECT j.id FROM jobs j
			WHERE j.kind = $1 AND j.state = 0 AND j.lane = $2
				AND NOT EXISTS (SELECT 1 FROM held_lanes h WHERE h.kind = $1 AND h.lane = $2)`
	notBehindDelayed = `
				AND NOT EXISTS (SELECT 1 FROM jobs s WHERE s.kind = $1 AND s.state = 1 AND s.lane = $2 AND s.id < j.id)`
	takeLimit = `
			ORDER BY j.id
			LIMIT (SELECT CASE WHEN count(*) >= $4 THEN 0 WHEN $4 - count(*) < $3 THEN $4 - count(*) ELSE $3 END
				FROM jobs l WHERE l.kind = $1 AND l.state = 2 AND l.lane = $2))
		RETURNING id, payload, attempt, created_at`
)

func (r *runner) take(ctx context.Context, tx *db.Tx, jobs []*Job, a *ask, lease string) ([]*Job, error) {
	query := takeJobs + takeLimit
	if r.Ordered {
		query = takeJobs + notBehindDelayed + takeLimit
	}
	rows, err := tx.Query(ctx, query, r.Kind, a.name, a.want, r.PerLane, lease, tx.Now.Add(r.q.lease).UnixMicro())
	if err != nil {
		return jobs, err
	}
	defer rows.Close()
	first := len(jobs)
	for rows.Next() {
		j := &Job{Kind: r.Kind, Lane: a.name, lease: lease, queue: r.q}
		if err := rows.Scan(&j.ID, &j.Payload, &j.Attempt, db.IntoTime(&j.CreatedAt)); err != nil {
			return jobs, err
		}
		jobs = append(jobs, j)
	}
	// RETURNING promises no order.
	slices.SortFunc(jobs[first:], func(a, b *Job) int { return strings.Compare(a.ID, b.ID) })
	return jobs, rows.Err()
}

// walk lists the next lanes that have ready jobs, going from lane to lane by
// the index. It reports whether it listed any.
func (r *runner) walk(ctx context.Context) (bool, error) {
	r.mu.Lock()
	cursor, walking := r.cursor, r.walking && r.running < r.Concurrency
	r.mu.Unlock()
	if !walking {
		return false, nil
	}
	names, err := db.All(ctx, r.q.db, func(row db.Row) (name string, err error) {
		err = row.Scan(&name)
		return name, err
	}, `WITH RECURSIVE walk (lane, steps) AS (
			SELECT (SELECT min(lane) FROM jobs WHERE kind = $1 AND state = 0 AND lane >= $2), 1
			UNION ALL
			SELECT (SELECT min(j.lane) FROM jobs j WHERE j.kind = $1 AND j.state = 0 AND j.lane > walk.lane), steps + 1
			FROM walk WHERE walk.lane IS NOT NULL AND steps < $3
		)
		SELECT lane FROM walk WHERE lane IS NOT NULL
			AND NOT EXISTS (SELECT 1 FROM held_lanes h WHERE h.kind = $1 AND h.lane = walk.lane)`, r.Kind, cursor, walkLanes)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.walking = false // until the next poll
		return false, err
	}
	listed := len(r.listed)
	for _, name := range names {
		l := r.lane(name)
		l.unsure = true
		r.list(name, l)
	}
	r.walking = len(names) == walkLanes
	r.cursor = ""
	if r.walking {
		r.cursor = names[len(names)-1] + "\x00" // the least string after it
	}
	return len(r.listed) > listed, nil
}

// promote makes ready what is due and what a lost process left behind, and
// notes when the next job is due.
func (r *runner) promote(ctx context.Context) error {
	now := time.Now()
	var due, expiry time.Time
	err := r.q.db.QueryRow(ctx, `SELECT
		(SELECT min(run_at) FROM jobs WHERE kind = $1 AND state = 1),
		(SELECT min(lease_until) FROM jobs WHERE kind = $1 AND state = 2)`, r.Kind).Scan(db.IntoTime(&due), db.IntoTime(&expiry))
	if err != nil {
		return err
	}
	if (due.IsZero() || due.After(now)) && (expiry.IsZero() || expiry.After(now)) {
		r.mu.Lock()
		// Kept when another was announced that the look above did not see.
		if r.due.IsZero() || !r.due.After(now) || (!due.IsZero() && due.Before(r.due)) {
			r.due = due
		}
		r.mu.Unlock()
		return nil
	}
	var lanes []string
	err = r.q.db.Write(ctx, func(tx *db.Tx) error {
		scan := func(row db.Row) (lane string, err error) { err = row.Scan(&lane); return lane, err }
		late, err := db.All(ctx, tx, scan, `UPDATE jobs SET state = 0, lease = NULL, lease_until = NULL
			WHERE kind = $1 AND state = 2 AND lease_until < $2 RETURNING lane`, r.Kind, tx.Now.UnixMicro())
		if err != nil {
			return err
		}
		on, err := db.All(ctx, tx, scan, `UPDATE jobs SET state = 0 WHERE id IN (
				SELECT id FROM jobs WHERE kind = $1 AND state = 1 AND run_at <= $2 ORDER BY run_at LIMIT 1000 FOR UPDATE SKIP LOCKED)
			RETURNING lane`, r.Kind, tx.Now.UnixMicro())
		lanes = append(late, on...)
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range lanes {
		r.wake(name, unknown) // in an ordered lane, others waited behind it
	}
	r.mu.Lock()
	r.due = now // look again at once: there may be more than a batch
	if len(lanes) == 0 {
		r.due = now.Add(100 * time.Millisecond) // another process was faster
	}
	r.mu.Unlock()
	return nil
}

// extend renews the leases of all running jobs.
func (r *runner) extend(ctx context.Context) {
	r.mu.Lock()
	ids := make([]string, 0, len(r.jobs))
	for j := range r.jobs {
		ids = append(ids, j.ID)
	}
	r.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	err := r.q.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE jobs SET lease_until = $1 WHERE id = ANY($2) AND state = 2 AND lease LIKE $3`,
			tx.Now.Add(r.q.lease).UnixMicro(), ids, r.q.instance+"/%")
		return err
	})
	if err != nil {
		r.failed("extending leases", err)
	}
}

// run starts a job. r.mu is held.
func (r *runner) run(j *Job) {
	ctx, cancel := context.WithCancelCause(context.Background())
	r.jobs[j] = cancel
	r.wg.Go(func() {
		err := r.attempt(ctx, j)
		if !j.ended {
			r.settle(ctx, j, err)
		}
		cancel(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.jobs, j)
		r.running--
		l := r.lane(j.Lane)
		l.running--
		r.list(j.Lane, l)
		if len(r.listed) > 0 || r.walking {
			r.nudge() // there is room again
		}
	})
}

// attempt runs the job; a panic is an error like others.
func (r *runner) attempt(ctx context.Context, j *Job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return r.Run(ctx, j)
}

// settle records the end of a job that did not record its own. It is not
// cancelled with the work, so that the outcome is not lost.
func (r *runner) settle(ctx context.Context, j *Job, err error) {
	log := r.q.log.With("kind", r.Kind, "lane", j.Lane, "job", j.ID, "attempt", j.Attempt+1)
	interrupted := context.Cause(ctx)
	work := ctx
	ctx = context.WithoutCancel(ctx)
	var end func(tx *db.Tx) error
	switch {
	case errors.Is(err, ErrLeaseLost) || errors.Is(interrupted, ErrLeaseLost):
		log.Warn("a job was taken over or deleted while it ran")
		return
	case err == nil:
		end = func(tx *db.Tx) error { return j.Finish(ctx, tx) }
	case work.Err() != nil:
		end = func(tx *db.Tx) error { return j.giveBack(ctx, tx) }
	default:
		wait, again := r.Retry(j.Attempt+1, err)
		if again {
			log.Warn("a job failed and will run again", "in", wait, "error", err)
			end = func(tx *db.Tx) error { return j.Delay(ctx, tx, tx.Now.Add(wait)) }
			break
		}
		log.Error("a job failed for the last time", "error", err)
		end = func(tx *db.Tx) error {
			if r.Bury != nil {
				if err := r.Bury(ctx, tx, j, err); err != nil {
					return fmt.Errorf("bury job: %w", err)
				}
			}
			return j.Finish(ctx, tx)
		}
	}
	if err := r.q.db.Write(ctx, end); err != nil && !errors.Is(err, ErrLeaseLost) {
		// The lease runs out and the job runs again.
		log.Error("recording the end of a job", "error", err)
	}
}

// giveBack makes an interrupted job ready again, without counting the attempt.
func (j *Job) giveBack(ctx context.Context, tx *db.Tx) error {
	_, err := tx.Exec(ctx, "UPDATE jobs SET state = 0, lease = NULL, lease_until = NULL WHERE id = $1 AND lease = $2", j.ID, j.lease)
	return err
}
