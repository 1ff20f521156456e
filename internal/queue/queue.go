// Package queue is durable work in lanes.
//
// A job is enqueued in the transaction of the change that needs it: no commit,
// no job. It has a kind, which decides the code that runs it, and a lane, which
// decides what it must not run beside. A lane runs at most so many jobs at once
// across all processes that share the database; lanes do not wait for each
// other, so whatever happens in one costs the others nothing.
//
// The queue knows kinds, lanes and bytes; it does not know what the work is.
//
// # States
//
//	ready ──claim──▶ leased ──Finish──▶ (gone)
//	  ▲                │ │
//	  │◀──interrupted──┘ └─Delay, Wait, error──▶ scheduled
//	  │◀──lease expired──┘                           │
//	  └────────────────due───────────────────────────┘
//
// A claim is a lease that the process keeps extending while the job runs. What
// ends a job holds only while the lease is still ours, so work that a stalled
// process lost is recorded once. Running is at least once: a process that dies
// after the work and before the record leaves a job that runs again.
//
// # Finding work
//
// Each process keeps a list of lanes that may have ready jobs: those it was
// told about (by an enqueue's commit here, by a notification from elsewhere, by
// a retry that came due) and, as a safety net, those that a walk over the index
// finds, lane by lane, at start and every few seconds. Only listed lanes that
// have room are asked for jobs, many in one statement. So a lane with a million
// waiting jobs, or a thousand lanes that are full, slow the next claim for
// nobody.
//
// The processes' clocks must agree to within a fraction of a lease.
//
// docs/queue.md tells the same at more length, with figures.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"

	"github.com/google/uuid"
)

// ErrLeaseLost is returned by [Job.Finish], [Job.Delay] and [Job.Wait] when another
// process took the job over or its lane was deleted. The transaction must be rolled
// back: the work is somebody else's now.
var ErrLeaseLost = errors.New("the job is no longer ours")

// errStopping is the cause of a job's context that our own shutdown cancelled.
var errStopping = errors.New("the queue is stopping")

// New describes a job to enqueue.
type New struct {
	ID      string // UUIDv7; empty lets the queue make one
	Kind    string
	Lane    string
	Payload []byte
	RunAt   time.Time // zero: at once
}

// Worker is how the jobs of one kind are run.
type Worker struct {
	Kind string
	// Run does the work of one job. It may end the job itself, in the
	// transaction that records the work, with [Job.Finish], [Job.Delay] or [Job.Wait];
	// otherwise nil finishes it and an error delays or buries it.
	// When ctx ends before the job does, because the process stops or the
	// lease is lost, whatever Run returns does not count: the job, if it is
	// still ours, is made ready again, and the attempt is not counted.
	// An error of kind [problem.Unavailable] says that our own database or
	// files failed: the job runs again after a second to a minute, for as
	// long as it takes, and no attempt is counted.
	Run func(ctx context.Context, j *Job) error
	// PerLane is how many jobs of a lane run at once, over all processes.
	// 0 means 1.
	PerLane int
	// Concurrency is how many jobs run at once in this process. 0 means 16.
	Concurrency int
	// LaneCapacity returns how many jobs of a lane this process should have in hand,
	// at least 1 and at most PerLane, for work that knows when more would
	// only wait. It is asked when jobs are looked for and when one ends, and
	// must be quick. nil means PerLane.
	LaneCapacity func(lane string) int
	// Ordered lanes wait for a delayed job: those behind it in its lane do
	// not run before it. It implies PerLane 1.
	Ordered bool
	// Retry returns how long to wait after the attempt-th failure (from 1),
	// or false to give up. nil means [Backoff] with 8 attempts.
	Retry func(attempt int, err error) (time.Duration, bool)
	// Discard records that a job was given up; the queue deletes it in the same
	// transaction. When that fails, the job runs again. nil only logs.
	Discard func(ctx context.Context, tx *db.Tx, j *Job, err error) error
}

// Job is a claimed job. It belongs to the call of Run that received it.
type Job struct {
	ID        string
	Kind      string
	Lane      string
	Payload   []byte
	Attempt   int // failed attempts before this one
	CreatedAt time.Time

	queue  *Queue
	lease  string
	until  time.Time               // the lease holds at least so long; guarded by runner.mu
	cancel context.CancelCauseFunc // of the context of Run
	ending atomic.Bool             // Finish, Delay or Wait was called: they find out themselves whether the lease holds
	ended  bool                    // the end of the job is committed
}

// Backoff is the default wait after the attempt-th failure: 1 s, 4 s, 16 s …,
// at most 10 minutes.
func Backoff(attempt int) time.Duration {
	return min(time.Second<<min(2*(max(attempt, 1)-1), 20), 10*time.Minute)
}

// Config tunes a [Queue]. Zero values mean the defaults.
type Config struct {
	Logger *slog.Logger  // nil discards
	Lease  time.Duration // how long a claim holds without being extended; 10 s
	Poll   time.Duration // how often the safety net is cast; 2 s
}

// Queue enqueues jobs and, once started, runs them.
// It is safe for concurrent use.
type Queue struct {
	db       *db.DB
	log      *slog.Logger
	lease    time.Duration
	poll     time.Duration
	instance string

	inserts [maxInsert + 1]string // the statement for so many jobs

	mu             sync.Mutex
	runners        map[string]*runner // fixed once started
	started        bool
	stopped        bool
	stopBackground context.CancelFunc
	background     sync.WaitGroup

	// notifier is what this process has to tell the others that share the database.
	notifier *db.Notifier
}

// Open returns a queue over d. It runs nothing until [Queue.Start], but can
// enqueue.
func Open(d *db.DB, c Config) *Queue {
	q := &Queue{
		db: d, log: c.Logger, lease: c.Lease, poll: c.Poll,
		instance: uuid.NewString(),
		inserts:  insertStatements(),
		notifier: d.NewNotifier(notifyChannel),
		runners:  make(map[string]*runner),
	}
	if q.log == nil {
		q.log = slog.New(slog.DiscardHandler)
	}
	if q.lease == 0 {
		q.lease = 10 * time.Second
	}
	if q.poll == 0 {
		q.poll = 2 * time.Second
	}
	return q
}

// Handle registers how a kind is run. It must be called before Start, once a
// kind. A kind has no spaces.
func (q *Queue) Handle(w Worker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.started || q.runners[w.Kind] != nil || w.Run == nil || strings.Contains(w.Kind, " ") {
		panic("queue: Handle of " + w.Kind + " after Start, twice, without Run, or with a space")
	}
	q.runners[w.Kind] = newRunner(q, w)
}

// Start begins to run jobs and returns. ctx is only for the start itself. A
// start that failed has started nothing and may be tried again; a queue that
// was stopped stays so.
func (q *Queue) Start(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.started || q.stopped {
		return errors.New("start queue: it was started or stopped before")
	}
	if err := q.db.Ping(ctx); err != nil {
		return fmt.Errorf("start queue: %w", err)
	}
	q.started = true
	for _, r := range q.runners {
		r.start()
	}
	var hear context.Context
	hear, q.stopBackground = context.WithCancel(context.Background())
	q.background.Go(func() { q.pollKinds(hear) })
	if q.db.Postgres() {
		q.background.Go(func() { q.db.Listen(hear, notifyChannel, q.onNotification) })
	}
	return nil
}

// Stop claims no more, lets running jobs finish until ctx ends, then cancels
// them and waits for them to return; those are made ready again. Stop before
// Start, or twice, also at once, is fine.
func (q *Queue) Stop(ctx context.Context) {
	q.mu.Lock()
	q.stopped = true
	started, stopHear := q.started, q.stopBackground
	q.mu.Unlock()
	if started {
		var wg sync.WaitGroup
		for _, r := range q.runners {
			wg.Go(func() { r.stop(ctx) })
		}
		wg.Wait()
	}
	if stopHear != nil {
		stopHear()
		q.background.Wait()
	}
}

// maxInsert bounds the jobs of one INSERT.
const maxInsert = 32

// insertStatements returns, by the number of jobs, the statement that inserts
// so many.
func insertStatements() (texts [maxInsert + 1]string) {
	var values strings.Builder
	for n := 1; n <= maxInsert; n++ {
		if n > 1 {
			values.WriteByte(',')
		}
		for column := range 7 {
			values.WriteString([]string{" (", ", "}[min(column, 1)])
			values.WriteString("$" + strconv.Itoa(7*(n-1)+column+1))
		}
		values.WriteByte(')')
		texts[n] = "INSERT INTO jobs (id, kind, lane, state, payload, run_at, created_at) VALUES" + values.String()
	}
	return texts
}

// Enqueue adds jobs in the caller's transaction. They become visible to workers
// when it commits, in the order given within a lane.
func (q *Queue) Enqueue(ctx context.Context, tx *db.Tx, jobs ...New) error {
	jobs = slices.Clone(jobs) // needed after the commit, when the caller's may have changed
	args := make([]any, 0, 7*min(len(jobs), maxInsert))
	for some := range slices.Chunk(jobs, maxInsert) {
		args = args[:0]
		for _, j := range some {
			if j.ID == "" {
				j.ID = NewID()
			}
			state := ready
			if j.RunAt.After(tx.Now) {
				state = scheduled
			}
			if j.Payload == nil {
				j.Payload = []byte{}
			}
			args = append(args, j.ID, j.Kind, j.Lane, state, j.Payload, max(j.RunAt.UnixMicro(), 0), tx.Now.UnixMicro())
		}
		if _, err := tx.Exec(ctx, q.inserts[len(some)], args...); err != nil {
			return fmt.Errorf("enqueue %s jobs: %w", some[0].Kind, err)
		}
	}
	tx.AfterCommit(func() {
		for _, j := range jobs {
			if j.RunAt.After(tx.Now) {
				q.announceDue(j.Kind, j.Lane, j.RunAt)
			} else {
				q.announceReady(j.Kind, j.Lane, 1)
			}
		}
	})
	return nil
}

// NewID returns the id of a new job: a UUIDv7, so that ids of one process sort
// in the order in which they were made.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// HoldLane stops claims from a lane until [Queue.ReleaseLane]. Jobs that are
// already running go on. Holding twice is fine.
func (q *Queue) HoldLane(ctx context.Context, tx *db.Tx, kind, lane string) error {
	_, err := tx.Exec(ctx, "INSERT INTO held_lanes (kind, lane) VALUES ($1, $2) ON CONFLICT DO NOTHING", kind, lane)
	return err
}

// ReleaseLane lets a held lane run again.
func (q *Queue) ReleaseLane(ctx context.Context, tx *db.Tx, kind, lane string) error {
	_, err := tx.Exec(ctx, "DELETE FROM held_lanes WHERE kind = $1 AND lane = $2", kind, lane)
	tx.AfterCommit(func() { q.announceReady(kind, lane, unknownCount) })
	return err
}

// DeleteLane removes every job of a lane, running ones included, and its hold.
// What the running ones do is not recorded; their contexts are cancelled, here
// at once, in other processes when they next extend their leases.
func (q *Queue) DeleteLane(ctx context.Context, tx *db.Tx, kind, lane string) error {
	if _, err := tx.Exec(ctx, "DELETE FROM jobs WHERE kind = $1 AND state = ANY($3) AND lane = $2",
		kind, lane, []int64{ready, scheduled, leased}); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM held_lanes WHERE kind = $1 AND lane = $2", kind, lane)
	tx.AfterCommit(func() {
		if r := q.runners[kind]; r != nil {
			r.cancelLane(lane)
		}
	})
	return err
}

// Delete removes jobs by id, wherever they stand. Ids that are gone already
// do not matter. The contexts of running ones are cancelled when their leases
// are next extended.
func (q *Queue) Delete(ctx context.Context, tx *db.Tx, ids ...string) error {
	_, err := tx.Exec(ctx, "DELETE FROM jobs WHERE id = ANY($1)", ids)
	return err
}

// RunNow makes scheduled jobs of a lane ready at once.
func (q *Queue) RunNow(ctx context.Context, tx *db.Tx, kind, lane string) error {
	_, err := tx.Exec(ctx, "UPDATE jobs SET state = $3 WHERE kind = $1 AND lane = $2 AND state = $4", kind, lane, ready, scheduled)
	tx.AfterCommit(func() { q.announceReady(kind, lane, unknownCount) })
	return err
}

// MoveLane makes waiting jobs of a lane jobs of another kind, in which they keep
// their lane, their order and when they are due. Those that are running end as
// what they are, and stay of their kind if they are delayed; holds stay, too.
//
// It moves at most [MoveMax] of those that are ready and as many of those that
// are scheduled, the oldest first, and reports whether there may be more: who
// wants them all calls it again, in another transaction, so that a long lane does
// not hold up everybody else's.
func (q *Queue) MoveLane(ctx context.Context, tx *db.Tx, fromKind, toKind, lane string) (more bool, err error) {
	if err := q.disableSeqScan(ctx, tx); err != nil {
		return false, err
	}
	if q.db.Postgres() {
		// Not beside a claim, which may have chosen some of the jobs.
		kinds := []string{fromKind, toKind}
		slices.Sort(kinds)
		for _, kind := range kinds {
			if _, err := tx.Exec(ctx, sqlLockLanes, laneLockPrefix(kind), []string{lane}); err != nil {
				return false, err
			}
		}
	}
	var ids []string
	for _, query := range []string{sqlWaiting(ready), sqlWaiting(scheduled)} {
		some, err := db.All(ctx, tx, scanText, query, fromKind, lane, MoveMax)
		if err != nil {
			return false, err
		}
		ids = append(ids, some...)
		more = more || len(some) == MoveMax
	}
	if len(ids) == 0 {
		return false, nil
	}
	dues, err := db.All(ctx, tx, func(row db.Row) (due time.Time, err error) {
		err = row.Scan(db.IntoTime(&due))
		return due, err
	}, sqlMove, ids, toKind)
	if err != nil {
		return false, err
	}
	dues = slices.DeleteFunc(dues, time.Time.IsZero)
	tx.AfterCommit(func() {
		q.announceReady(toKind, lane, unknownCount)
		if len(dues) > 0 {
			q.announceDue(toKind, lane, slices.MinFunc(dues, time.Time.Compare))
		}
	})
	return more, nil
}

// MoveMax bounds what one [Queue.MoveLane] moves.
const MoveMax = 500

// Finish ends the job in the transaction that records its work.
// [ErrLeaseLost] must be returned from that transaction.
func (j *Job) Finish(ctx context.Context, tx *db.Tx) error {
	return j.endLease(ctx, tx, sqlFinish)
}

// Delay counts a failed attempt and has the job run again at the given time.
// [ErrLeaseLost] must be returned from the transaction.
func (j *Job) Delay(ctx context.Context, tx *db.Tx, at time.Time) error {
	return j.reschedule(ctx, tx, at, 1)
}

// Wait is Delay without counting an attempt, for work that was not tried, or that
// counts its attempts itself.
func (j *Job) Wait(ctx context.Context, tx *db.Tx, at time.Time) error {
	return j.reschedule(ctx, tx, at, 0)
}

func (j *Job) reschedule(ctx context.Context, tx *db.Tx, at time.Time, attempts int) error {
	tx.AfterCommit(func() { j.queue.announceDue(j.Kind, j.Lane, at) })
	return j.endLease(ctx, tx, sqlDelay, at.UnixMicro(), attempts)
}
