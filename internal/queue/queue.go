// Package queue runs durable background jobs in lanes.
//
// A job is enqueued in the transaction of the change that needs it: no commit, no job. Its kind
// selects the worker; its lane bounds concurrency: a lane runs at most [Worker.PerLane] jobs at
// once across all processes that share the database. Lanes are independent: a slow, full or
// failing lane delays no other.
//
// The queue knows kinds, lanes and bytes, not the meaning of the payload.
//
// # States
//
//	ready ──claim──▶ leased ──Finish──▶ (gone)
//	  ▲                │ │
//	  │◀──interrupted──┘ └─Delay, Wait, error──▶ scheduled
//	  │◀──lease expired──┘                           │
//	  └────────────────due───────────────────────────┘
//
// A claim is a lease that a heartbeat extends while the job runs. Finish, Delay and Wait
// succeed only under a valid lease, so the outcome of a job is recorded once even if a stalled
// process lost it to another. Jobs run at least once: if a process dies between the work and
// its record, the job runs again.
//
// # Finding work
//
// Each process lists the lanes that may have ready jobs. A lane is listed by a local commit, a
// notification of another process, a due retry, or, as a safety net, an index walk from lane to
// lane at start and every few seconds. A claim reads only listed lanes with room, many in one
// statement. So neither a lane with a million waiting jobs nor a thousand full lanes slow the
// next claim.
//
// Due times and leases are by the database's clock ([db.DB.Now]); the clocks of processes decide
// nothing.
//
// See docs/queue.md for details and figures.
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
	"github.com/kickstand-dev/kickstand/internal/telemetry"

	"github.com/google/uuid"
)

// ErrLeaseLost is returned by [Job.FinishTx], [Job.RetryTx] and [Job.RescheduleTx] if another process
// claimed the job or its lane was deleted. The caller must roll back the transaction.
var ErrLeaseLost = errors.New("the lease of the job is lost")

// errStopping cancels the context of a job when its process stops.
var errStopping = errors.New("the queue is stopping")

// New describes a job to enqueue.
type New struct {
	ID      string // UUIDv7; empty: the queue assigns one
	Kind    string
	Lane    string
	Payload []byte
	RunAt   time.Time // zero: at once
	// Tenant is the party for which the job runs, such as an organization, without spaces. Workers
	// share their capacity between tenants with jobs. All jobs of a lane have the same tenant.
	Tenant string
	// Order is the number of an earlier job ([Job.Order]), for work that goes on in that job's
	// place. 0: the job is the last of its lane.
	Order int64
}

// Worker runs the jobs of one kind.
type Worker struct {
	Kind string
	// Run processes one job. It may end the job in the transaction that records the work, by
	// [Job.FinishTx], [Job.RetryTx] or [Job.RescheduleTx]. Otherwise nil finishes the job; an error delays
	// or discards it.
	//
	// When ctx ends first, because the process stops or the lease is lost, the result of Run is
	// ignored: a job that is still leased becomes ready again and the attempt does not count.
	//
	// An error of kind [problem.Unavailable] means that our own database or files failed: the
	// job runs again after 1 s to 1 min, any number of times, and no attempt counts.
	Run func(ctx context.Context, j *Job) error
	// Prepare reads the data of a claim's jobs before they run: one statement for all of them
	// instead of one for each. It may set [Job.Prepared]. Its failures are left to Run, which reads
	// missing data. It is not called for a single job, and must end with ctx. May be nil.
	Prepare func(ctx context.Context, jobs []*Job)
	// PerLane limits the running jobs of a lane over all processes. 0 means 1.
	PerLane int
	// Concurrency limits the running jobs of the kind in this process. 0 means 16.
	Concurrency int
	// LaneCapacity returns how many jobs of a lane this process should claim at once, from 1 to
	// PerLane. It is called before each claim and when a job ends, and must be quick. nil means
	// PerLane.
	LaneCapacity func(lane string) int
	// Ordered lanes stay in order: a delayed job blocks the jobs behind it. It implies PerLane
	// 1.
	Ordered bool
	// Affinity keeps the jobs of a tenant in one process at a time, as far as that is known: their
	// transactions change the same rows, and would wait for each other. On SQLite it does nothing.
	Affinity bool
	// Outgoing jobs send something to others. They wait during a [Hold].
	Outgoing bool
	// Retry returns the wait after the given failed attempt (from 1), or false to discard the
	// job. nil means [Backoff] with 8 attempts.
	Retry func(attempt int, err error) (time.Duration, bool)
	// Discard records that a job failed for the last time, in the transaction that deletes it.
	// If it fails, the job runs again. nil only logs.
	Discard func(ctx context.Context, tx *db.Tx, j *Job, err error) error
}

// Job is a claimed job. It is valid during the call of Run that received it.
type Job struct {
	ID        string
	Kind      string
	Lane      string
	Payload   []byte
	Attempt   int // failed attempts before this one
	CreatedAt time.Time
	Prepared  any // set by [Worker.Prepare]

	seq    int64 // position in its lane
	tenant string
	fence  int64
	queue  *Queue
	lease  string
	until  time.Time               // end of the lease by the monotonic clock; guarded by runner.mu
	cancel context.CancelCauseFunc // of the context of Run
	ending atomic.Bool             // Finish, Delay or Wait was called, which detect a lost lease themselves
	ended  bool                    // the outcome is committed
}

// Fence returns the fencing token of the claim: each later claim of any job has a higher one. A
// party that remembers the highest token it has seen can refuse a process that lost its lease
// without noticing.
func (j *Job) Fence() int64 { return j.fence }

// Order is the job's number in the order of its lane: earlier jobs have lower ones.
func (j *Job) Order() int64 { return j.seq }

// Backoff is the default wait after the attempt-th failure: 1 s, 4 s, 16 s …,
// at most 10 minutes.
func Backoff(attempt int) time.Duration {
	return min(time.Second<<min(2*(max(attempt, 1)-1), 20), 10*time.Minute)
}

// Config tunes a [Queue]. Zero values mean the defaults.
type Config struct {
	Logger *slog.Logger  // nil discards
	Lease  time.Duration // how long a claim holds without being extended; 10 s
	Poll   time.Duration // interval of the safety net; 2 s
	// Observe is called after each run of a job, with its outcome; see [Queue.observed]. nil: no
	// one.
	Observe func(kind, outcome string, took time.Duration)
	// Tracer continues the trace of the transaction that enqueued a job in its run; nil: no traces.
	Tracer *telemetry.Tracer
}

// Queue enqueues jobs and, once started, runs them. It is safe for concurrent use.
type Queue struct {
	db       *db.DB
	log      *slog.Logger
	lease    time.Duration
	poll     time.Duration
	instance string
	troubles troubles
	observe  func(kind, outcome string, took time.Duration) // nil: none
	tracer   *telemetry.Tracer                              // nil: none

	inserts [maxInsert + 1]string // INSERT statements by number of jobs

	mu             sync.Mutex
	runners        map[string]*runner // fixed once started
	started        bool
	stopped        bool
	stopBackground context.CancelFunc
	background     sync.WaitGroup

	// notifier announces lanes to the other processes.
	notifier *db.Notifier
}

// Open returns a queue over d. It can enqueue at once, and runs jobs after [Queue.Start].
func Open(d *db.DB, c Config) *Queue {
	q := &Queue{
		db: d, log: c.Logger, lease: c.Lease, poll: c.Poll, observe: c.Observe, tracer: c.Tracer,
		instance: uuid.NewString(),
		inserts:  insertStatements(d.Postgres()),
		notifier: d.NewNotifier(notifyChannel),
		runners:  make(map[string]*runner),
	}
	if q.log == nil {
		q.log = slog.New(slog.DiscardHandler)
	}
	q.troubles = newTroubles(q.log)
	if q.lease == 0 {
		q.lease = 10 * time.Second
	}
	if q.poll == 0 {
		q.poll = 2 * time.Second
	}
	return q
}

// Handle registers the worker of a kind. It panics after Start, for a second worker of a kind,
// without Run, or if the kind contains a space.
func (q *Queue) Handle(w Worker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.started || q.runners[w.Kind] != nil || w.Run == nil || strings.Contains(w.Kind, " ") {
		panic("queue: Handle of " + w.Kind + " after Start, twice, without Run, or with a space")
	}
	q.runners[w.Kind] = newRunner(q, q.observed(w))
}

// Start starts the workers and returns. ctx bounds the start only. A failed start has started
// nothing and may be tried again; a stopped queue cannot be started again.
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
	if q.db.Notifies() {
		q.background.Go(func() { q.db.Listen(hear, notifyChannel, q.onNotification) })
	}
	return nil
}

// Stop ends claims, waits for running jobs until ctx ends, then cancels them and waits for
// their return; cancelled jobs become ready again. It may be called before Start, several
// times, and concurrently.
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

// insertColumns are the columns of a new job.
var insertColumns = []string{"id", "kind", "lane", "tenant", "state", "payload", "run_at", "created_at", "seq"}

// insertStatements returns INSERT statements indexed by the number of jobs. On PostgreSQL a job
// without a number gets the next one.
func insertStatements(postgres bool) (texts [maxInsert + 1]string) {
	var values strings.Builder
	for n := 1; n <= maxInsert; n++ {
		if n > 1 {
			values.WriteByte(',')
		}
		for i, column := range insertColumns {
			value := "$" + strconv.Itoa(len(insertColumns)*(n-1)+i+1)
			if postgres && column == "seq" {
				value = "coalesce(" + value + "::bigint, nextval('jobs_seq'))"
			}
			values.WriteString([]string{" (", ", "}[min(i, 1)] + value)
		}
		values.WriteByte(')')
		texts[n] = "INSERT INTO jobs (" + strings.Join(insertColumns, ", ") + ") VALUES" + values.String()
	}
	return texts
}

// EnqueueTx adds jobs in the caller's transaction. Workers see them after the commit, in the
// given order within a lane.
func (q *Queue) EnqueueTx(ctx context.Context, tx *db.Tx, jobs ...New) error {
	jobs = slices.Clone(jobs) // used after the commit, when the caller may have changed it
	seqs, err := q.positions(ctx, tx, jobs)
	if err != nil {
		return fmt.Errorf("enqueue jobs: %w", err)
	}
	args := make([]any, 0, len(insertColumns)*min(len(jobs), maxInsert))
	for some := range slices.Chunk(jobs, maxInsert) {
		args = args[:0]
		for i := range some {
			j := &some[i]
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
			args = append(args, j.ID, j.Kind, j.Lane, j.Tenant, state, j.Payload, max(j.RunAt.UnixMicro(), 0), tx.Now.UnixMicro(), seqs[0])
			seqs = seqs[1:]
		}
		if err := tx.Queue(ctx, q.inserts[len(some)], args...); err != nil {
			return fmt.Errorf("enqueue %s jobs: %w", some[0].Kind, err)
		}
	}
	if err := q.storeTraceTx(ctx, tx, jobs); err != nil {
		return err
	}
	tx.AfterCommit(func() {
		for _, j := range jobs {
			if j.RunAt.After(tx.Now) {
				q.announceDue(j.Kind, j.Lane, j.RunAt)
			} else {
				q.announceReady(j.Kind, j.Tenant, j.Lane, 1)
			}
		}
	})
	return nil
}

// positions returns the numbers of new jobs in their order; nil means the next one.
func (q *Queue) positions(ctx context.Context, tx *db.Tx, jobs []New) ([]any, error) {
	seqs := make([]any, len(jobs))
	if !q.db.Postgres() && len(jobs) > 0 {
		first, err := tx.NextNumbers(ctx, counterTable, len(jobs))
		if err != nil {
			return nil, err
		}
		for i := range seqs {
			seqs[i] = first + int64(i)
		}
	}
	for i, j := range jobs {
		if j.Order != 0 {
			seqs[i] = j.Order
		}
	}
	return seqs, nil
}

// NewID returns a job id: a UUIDv7, so that ids sort in order of creation within a process.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// HoldLaneTx stops claims from a lane until [Queue.ReleaseLaneTx]. Running jobs continue. It is
// idempotent.
func (q *Queue) HoldLaneTx(ctx context.Context, tx *db.Tx, kind, lane string) error {
	_, err := tx.Exec(ctx, "INSERT INTO held_lanes (kind, lane) VALUES ($1, $2) ON CONFLICT DO NOTHING", kind, lane)
	return err
}

// ReleaseLaneTx allows claims from a held lane again.
func (q *Queue) ReleaseLaneTx(ctx context.Context, tx *db.Tx, kind, lane string) error {
	_, err := tx.Exec(ctx, "DELETE FROM held_lanes WHERE kind = $1 AND lane = $2", kind, lane)
	tx.AfterCommit(func() { q.announceReady(kind, "", lane, unknownCount) })
	return err
}

// DeleteLaneTx removes every job of a lane, including running ones, and its hold. Running jobs
// lose their lease: their contexts are cancelled at once in this process and at the next
// heartbeat in others.
func (q *Queue) DeleteLaneTx(ctx context.Context, tx *db.Tx, kind, lane string) error {
	if err := tx.Queue(ctx, "DELETE FROM jobs WHERE kind = $1 AND state = ANY($3) AND lane = $2",
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

// DeleteTx removes jobs by id, in any state. Unknown ids are ignored. The contexts of running
// jobs are cancelled at the next heartbeat.
func (q *Queue) DeleteTx(ctx context.Context, tx *db.Tx, ids ...string) error {
	_, err := tx.Exec(ctx, "DELETE FROM jobs WHERE id = ANY($1)", ids)
	return err
}

// RunNowTx makes scheduled jobs of a lane ready at once.
func (q *Queue) RunNowTx(ctx context.Context, tx *db.Tx, kind, lane string) error {
	_, err := tx.Exec(ctx, "UPDATE jobs SET state = $3 WHERE kind = $1 AND lane = $2 AND state = $4", kind, lane, ready, scheduled)
	tx.AfterCommit(func() { q.announceReady(kind, "", lane, unknownCount) })
	return err
}

// MoveLaneTx changes the kind of a lane's waiting jobs. They keep their lane, order and due
// times. Running jobs keep their kind, also if they are delayed; so do holds.
//
// One call moves at most [MoveMax] ready and as many scheduled jobs, oldest first, and reports
// whether more may remain. To move a whole lane, call it repeatedly in separate transactions,
// so that long lanes do not block other writers.
func (q *Queue) MoveLaneTx(ctx context.Context, tx *db.Tx, fromKind, toKind, lane string) (more bool, err error) {
	if err := q.disableSeqScan(ctx, tx); err != nil {
		return false, err
	}
	if q.db.Postgres() {
		// A claim may have chosen some of the jobs already.
		kinds := []string{fromKind, toKind}
		slices.Sort(kinds)
		for _, kind := range kinds {
			if err := tx.Queue(ctx, sqlLockLanes, laneLockPrefix(kind), []string{lane}); err != nil {
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
		q.announceReady(toKind, "", lane, unknownCount)
		if len(dues) > 0 {
			q.announceDue(toKind, lane, slices.MinFunc(dues, time.Time.Compare))
		}
	})
	return more, nil
}

// MoveMax bounds the jobs of each state that one [Queue.MoveLaneTx] moves.
const MoveMax = 500

// FinishTx deletes the job in the transaction that records its work. The caller must return
// [ErrLeaseLost] from that transaction.
func (j *Job) FinishTx(ctx context.Context, tx *db.Tx) error {
	return j.endLease(ctx, tx, sqlFinish)
}

// RetryTx counts a failed attempt and schedules the job for the given time. The caller must
// return [ErrLeaseLost] from the transaction.
func (j *Job) RetryTx(ctx context.Context, tx *db.Tx, at time.Time) error {
	return j.reschedule(ctx, tx, at, 1)
}

// RescheduleTx is [Job.RetryTx] without counting an attempt, for work that was not tried or that counts
// its own attempts.
func (j *Job) RescheduleTx(ctx context.Context, tx *db.Tx, at time.Time) error {
	return j.reschedule(ctx, tx, at, 0)
}

func (j *Job) reschedule(ctx context.Context, tx *db.Tx, at time.Time, attempts int) error {
	tx.AfterCommit(func() { j.queue.announceDue(j.Kind, j.Lane, at) })
	return j.endLease(ctx, tx, sqlDelay, at.UnixMicro(), attempts)
}
