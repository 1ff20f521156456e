package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// unknownCount stands for "some ready jobs, nobody counted".
const unknownCount = -1

const (
	// claimLanes bounds the lanes of one claim, and so how long its
	// transaction holds up others.
	claimLanes = 128
	// walkLanes bounds the lanes of one walk over the index.
	walkLanes = 1000
	// maxListed bounds the lanes that are listed because somebody told of
	// them. Those beyond are found by walking, so that a backlog of lanes
	// takes up the database's room and not ours.
	maxListed = 4096
)

// What a runner waits after so many failures in a row before it asks the
// database again.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = time.Second
)

// runner finds and runs the jobs of one kind. One goroutine (loop) claims, one
// (beat) keeps the leases; each job runs in its own.
type runner struct {
	q *Queue
	Worker
	sqlWalk, sqlPick string

	// work ends when running jobs are cancelled; claims end with it.
	work      context.Context
	interrupt context.CancelCauseFunc
	signal    chan struct{} // capacity 1: something changed
	began     chan struct{} // capacity 1: a job began since the leases were last looked at
	stopped   chan struct{} // closed when nothing runs any more

	outage    outage
	outageLog logLimiter // of jobs that our own store kept from their work
	findLog   logLimiter // of failures to find jobs
	endLog    logLimiter // of ends that our own store did not record
	leaseLog  logLimiter // of failures to extend leases

	mu      sync.Mutex
	open    bool // started and not told to stop
	lanes   map[string]*lane
	listed  []string // lanes that may have work and have room, oldest first
	running int
	jobs    map[*Job]struct{} // those that run
	claims  uint64
	dueAt   time.Time // when the next scheduled job is due, as far as known; zero: none
	scanDue bool      // look for what is due and for ended leases

	walkAgain bool   // walk from the start once the walk under way has ended
	walking   bool   // a walk has not reached the end yet
	cursor    string // where it goes on
	walkFirst bool   // it is the walk's turn, however many lanes are listed
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
	r := &runner{
		q: q, Worker: w,
		sqlWalk: sqlWalk(w.Ordered), sqlPick: sqlPick(w.Ordered),
		signal:  make(chan struct{}, 1),
		began:   make(chan struct{}, 1),
		stopped: make(chan struct{}),
		lanes:   make(map[string]*lane),
		jobs:    make(map[*Job]struct{}),
	}
	r.work, r.interrupt = context.WithCancelCause(context.Background())
	return r
}

func (r *runner) start() {
	r.mu.Lock()
	r.open = true
	r.mu.Unlock()
	go func() {
		defer close(r.stopped)
		beat, stop := context.WithCancel(context.Background())
		var beating sync.WaitGroup
		beating.Go(func() { r.heartbeat(beat) })
		r.loop()
		r.notifyPeers()
		// Leases are kept to the last job's end: another process would
		// run it beside its last moments here.
		for r.busy() {
			<-r.signal
		}
		r.notifyPeers()
		stop()
		beating.Wait()
	}()
}

// notifyPeers tells the other processes what this one will not see to any more.
func (r *runner) notifyPeers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, l := range r.lanes {
		if l.waiting > 0 || l.unsure {
			r.q.notifyPeers(notice{kind: r.Kind, lane: name})
		}
	}
}

func (r *runner) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.jobs) > 0
}

// stop ends the claims, and when ctx ends the running jobs, and returns when
// they have returned.
func (r *runner) stop(ctx context.Context) {
	r.mu.Lock()
	r.open = false
	r.wake()
	r.mu.Unlock()
	select {
	case <-r.stopped:
	case <-ctx.Done():
		r.interrupt(errStopping)
		<-r.stopped
	}
}

func (r *runner) wake() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// addReady notes that a lane has n more ready jobs. It reports whether this process
// can see to it without delay, so that no other need hear of it.
func (r *runner) addReady(name string, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return false
	}
	l := r.lanes[name]
	if l == nil {
		if len(r.listed) >= maxListed {
			r.walkAgain = true
			return false
		}
		l = r.lane(name)
	}
	if n == unknownCount {
		l.unsure = true
	} else {
		l.waiting += n
	}
	r.listLane(name, l)
	return r.running+len(r.listed) <= r.Concurrency
}

// wakeAt notes that a job is due at a time. It reports whether this process
// will look then.
func (r *runner) wakeAt(at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open && (r.dueAt.IsZero() || at.Before(r.dueAt)) {
		r.dueAt = at
		r.wake()
	}
	return r.open
}

// requestScan casts the safety net: the database is asked what is due, and the lanes
// are walked.
func (r *runner) requestScan() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scanDue, r.walkAgain, r.walkFirst = true, true, true
	r.wake()
}

// cancelLane cancels the jobs of a lane that was deleted.
func (r *runner) cancelLane(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for j := range r.jobs {
		if j.Lane == name {
			j.cancel(ErrLeaseLost)
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

// laneCapacity is how many jobs of a lane may be in hand here.
func (r *runner) laneCapacity(name string) int {
	if r.LaneCapacity == nil {
		return r.PerLane
	}
	return max(1, min(r.LaneCapacity(name), r.PerLane))
}

// listLane puts a lane on the list if it may have work and has room; a full lane
// comes back when one of its jobs ends. A lane nobody knows anything about is
// forgotten. r.mu is held.
func (r *runner) listLane(name string, l *lane) {
	switch hasWork := l.waiting > 0 || l.unsure; {
	case l.listed:
	case hasWork && l.running < r.laneCapacity(name):
		l.listed = true
		r.listed = append(r.listed, name)
		r.wake()
	case !hasWork && l.running == 0:
		delete(r.lanes, name)
	}
}

// loop looks for work until the runner is stopped.
func (r *runner) loop() {
	r.requestScan()
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		err := r.poll()
		if err == nil {
			failures = 0
		} else if failures++; r.work.Err() == nil {
			if count, log := r.findLog.next(time.Now()); log {
				r.q.log.Error("looking for jobs", "kind", r.Kind, "error", err, "failures", count)
			}
		}
		open, wait := r.idleTime()
		if !open {
			return
		}
		if err != nil {
			r.pause(min(firstPause<<min(failures-1, 10), maxPause))
			continue
		}
		if wait <= 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-r.signal:
		case <-timer.C:
		}
	}
}

// maxIdle is how long a runner without work rests unless somebody nudges.
const maxIdle = time.Hour

// idleTime returns how long there is nothing to do unless somebody nudges, and
// whether the runner is still to run.
func (r *runner) idleTime() (open bool, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.scanDue || r.running < r.Concurrency && (len(r.listed) > 0 || r.walking || r.walkAgain) {
		return r.open, 0
	}
	if !r.dueAt.IsZero() {
		return r.open, min(time.Until(r.dueAt), maxIdle)
	}
	return r.open, maxIdle
}

// pause lets a database that fails alone for a while. Nothing but the end of
// the runner shortens it.
func (r *runner) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for open := true; open; {
		select {
		case <-timer.C:
			return
		case <-r.signal:
			open, _ = r.idleTime()
		}
	}
}

// poll does one thing after the other that may be due.
func (r *runner) poll() error {
	if err := r.promote(); err != nil {
		return fmt.Errorf("make due jobs ready: %w", err)
	}
	if err := r.walk(); err != nil {
		return fmt.Errorf("walk the lanes: %w", err)
	}
	if err := r.claim(); err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	return nil
}

// promote, when something is due, makes ready what is, and at a cast of the net
// what a lost process left behind, and notes when the next job is due.
func (r *runner) promote() error {
	r.mu.Lock()
	cast, due := r.scanDue, !r.dueAt.IsZero() && !r.dueAt.After(time.Now())
	if !cast && !due {
		r.mu.Unlock()
		return nil
	}
	r.scanDue, r.dueAt = false, time.Time{} // what is announced from here on is kept
	r.mu.Unlock()

	lanes, next, err := r.promoteDue(cast)
	if err != nil && cast {
		r.requestScan()
	}
	if !next.IsZero() {
		r.wakeAt(next)
	}
	for _, name := range lanes {
		// Not just one: in an ordered lane, others waited behind it.
		r.q.announceReady(r.Kind, name, unknownCount)
	}
	return err
}

// walk, when one is wanted and there is room for what it would find, lists the
// next lanes that have ready jobs.
func (r *runner) walk() error {
	r.mu.Lock()
	if r.walkAgain && !r.walking {
		r.walkAgain, r.walking, r.cursor = false, true, ""
	}
	wanted := r.walking && r.running < r.Concurrency && (r.walkFirst || len(r.listed) < claimLanes)
	cursor := r.cursor
	r.mu.Unlock()
	if !wanted {
		return nil
	}
	found, err := r.readLanes(cursor)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range found {
		// A lane that is full elsewhere is somebody else's to go on with.
		if l := r.lanes[f.lane]; l != nil || f.open {
			l = r.lane(f.lane)
			l.unsure = true
			r.listLane(f.lane, l)
		}
	}
	r.walkFirst = false
	if r.walking = len(found) == walkLanes; r.walking {
		r.cursor = found[walkLanes-1].lane // again, because there is no "next" string in both engines
	}
	return nil
}

// laneRequest is what a claim wants from one lane, and what was known of it before.
type laneRequest struct {
	lane   string
	want   int
	known  int
	unsure bool
	got    int
}

// planClaim takes lanes off the list, as many as there is room for. What is known of
// their waiting jobs moves into the asks, so that what comes in during the
// claim is counted apart.
func (r *runner) planClaim() []laneRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return nil
	}
	free := r.Concurrency - r.running
	var asks []laneRequest
	taken := 0
	for _, name := range r.listed {
		if free <= 0 || len(asks) == claimLanes {
			break
		}
		taken++
		l := r.lanes[name]
		l.listed = false
		want := min(r.laneCapacity(name)-l.running, free)
		if !l.unsure {
			want = min(want, l.waiting)
		}
		if want <= 0 {
			continue // listed during a claim that filled it, or its room shrank; it comes back when a job ends
		}
		free -= want
		asks = append(asks, laneRequest{lane: name, want: want, known: l.waiting, unsure: l.unsure})
		l.waiting, l.unsure = 0, false
	}
	r.listed = r.listed[:copy(r.listed, r.listed[taken:])]
	return asks
}

// claim takes jobs from listed lanes, as far as there is room, and starts them.
func (r *runner) claim() error {
	asks := r.planClaim()
	if len(asks) == 0 {
		return nil
	}
	r.claims++
	until := time.Now().Add(r.q.lease)
	jobs, err := r.leaseJobs(asks, fmt.Sprintf("%s/%d", r.q.instance, r.claims))
	byLane := make(map[string]*laneRequest, len(asks))
	for i := range asks {
		byLane[asks[i].lane] = &asks[i]
	}
	for _, j := range jobs {
		byLane[j.Lane].got++
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range asks {
		l := r.lane(a.lane)
		switch {
		case err != nil:
			l.waiting += a.known
			l.unsure = l.unsure || a.unsure
		case a.got == a.want:
			l.waiting += max(0, a.known-a.got)
			l.unsure = l.unsure || a.unsure
		case a.got < a.known:
			// Others hold the lane's places, and may not know that there
			// is more.
			r.q.notifyPeers(notice{kind: r.Kind, lane: a.lane})
		}
		l.running += a.got
		r.running += a.got
		r.listLane(a.lane, l)
	}
	for _, j := range jobs {
		j.until = until
		r.run(j)
	}
	return err
}

// run starts a job. r.mu is held.
func (r *runner) run(j *Job) {
	ctx, cancel := context.WithCancelCause(r.work)
	j.cancel = cancel
	r.jobs[j] = struct{}{}
	select {
	case r.began <- struct{}{}:
	default:
	}
	go func() {
		defer r.jobEnded(j)
		err := context.Cause(ctx)
		if err == nil {
			err = recoverPanic(func() error { return r.Run(ctx, j) })
		}
		err = recoverPanic(func() error { return r.recordOutcome(ctx, j, err) })
		switch {
		case errors.Is(err, ErrLeaseLost):
			r.logger(j).Warn("a job was taken over or deleted while it ran")
		case isUnavailable(err):
			// The lease runs out and the job runs again.
			if count, log := r.endLog.next(time.Now()); log {
				r.logger(j).Error("recording the end of a job", "error", err, "jobs", count)
			}
		case err != nil:
			r.logger(j).Error("recording the end of a job", errorAttrs(err)...)
		}
	}()
}

func (r *runner) logger(j *Job) *slog.Logger {
	return r.q.log.With("kind", r.Kind, "lane", j.Lane, "job", j.ID, "attempt", j.Attempt+1)
}

// jobEnded makes room for the next job.
func (r *runner) jobEnded(j *Job) {
	j.cancel(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, j)
	r.running--
	l := r.lane(j.Lane)
	l.running--
	r.listLane(j.Lane, l)
	if len(r.listed) > 0 || r.walking || r.walkAgain || !r.open {
		r.wake()
	}
}

// panicked is a panic of a worker as an error.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprint("panic: ", p.value) }

// recoverPanic calls fn; a panic is an error like others.
func recoverPanic(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{v, debug.Stack()}
		}
	}()
	return fn()
}

// errorAttrs is err as attributes for the log.
func errorAttrs(err error) []any {
	if p, ok := errors.AsType[*panicked](err); ok {
		return []any{"error", err, "stack", string(p.stack)}
	}
	return []any{"error", err}
}

// recordOutcome records the end of a job that did not record its own; err is what Run
// returned.
func (r *runner) recordOutcome(ctx context.Context, j *Job, err error) error {
	switch {
	case j.ended && err != nil:
		r.logger(j).Warn("a job failed after it had ended", errorAttrs(err)...)
		return nil
	case j.ended:
		return nil
	case errors.Is(err, ErrLeaseLost):
		return err
	case ctx.Err() != nil:
		r.logger(j).Info("a job was interrupted", "because", context.Cause(ctx))
		return r.writeEnd(ctx, j.release)
	case err == nil:
		return r.writeEnd(ctx, j.Finish)
	case isUnavailable(err):
		return r.waitForStore(ctx, j, err)
	}
	wait, again := r.Retry(j.Attempt+1, err)
	if again {
		r.logger(j).Warn("a job failed and will run again", append(errorAttrs(err), "in", wait)...)
	} else {
		r.logger(j).Error("a job failed for the last time", errorAttrs(err)...)
		failed := recoverPanic(func() error { return r.discard(ctx, j, err) })
		if failed == nil || errors.Is(failed, ErrLeaseLost) {
			return failed
		}
		wait = Backoff(j.Attempt + 1)
		r.logger(j).Error("a job could not be buried and will run again", append(errorAttrs(failed), "in", wait)...)
	}
	return r.writeEnd(ctx, func(ctx context.Context, tx *db.Tx) error { return j.Delay(ctx, tx, tx.Now.Add(wait)) })
}

// discard gives a job up.
func (r *runner) discard(ctx context.Context, j *Job, cause error) error {
	return r.writeEnd(ctx, func(ctx context.Context, tx *db.Tx) error {
		if r.Discard != nil {
			if err := r.Discard(ctx, tx, j, cause); err != nil {
				return err
			}
		}
		return j.Finish(ctx, tx)
	})
}

// writeEnd writes the end of a job, even if the work was cancelled. While the
// database cannot be used it tries again, as long as the lease is kept and
// nobody stops the work.
func (r *runner) writeEnd(work context.Context, end func(ctx context.Context, tx *db.Tx) error) error {
	ctx := context.WithoutCancel(work)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		last := work.Err() != nil
		err := r.q.db.Write(ctx, func(tx *db.Tx) error { return end(ctx, tx) })
		if last || !isUnavailable(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-work.Done():
			timer.Stop()
		}
	}
}

// heartbeat keeps the leases of running jobs. It cancels a job whose lease was lost,
// or could not be extended and is about to end: nobody may hold it against
// whoever takes the job over.
func (r *runner) heartbeat(ctx context.Context) {
	for {
		select {
		case <-r.began:
			r.heartbeatWhileBusy(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// heartbeatWhileBusy keeps leases until nothing runs.
func (r *runner) heartbeatWhileBusy(ctx context.Context) {
	beat := r.q.lease / 4
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		jobs := r.snapshot()
		if len(jobs) == 0 {
			return // the next job to begin says so
		}
		limited, cancel := context.WithTimeout(ctx, beat)
		until := time.Now().Add(r.q.lease)
		kept, err := r.q.extendLeases(limited, jobs)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if count, log := r.leaseLog.next(time.Now()); log {
				r.q.log.Error("extending leases", "kind", r.Kind, "error", err, "failures", count)
			}
		}
		r.mu.Lock()
		for _, j := range jobs {
			switch {
			case err == nil && kept[j.ID] == j.lease:
				j.until = until
			case err == nil && !j.ending.Load(),
				err != nil && time.Until(j.until) <= beat:
				j.cancel(ErrLeaseLost)
			}
		}
		r.mu.Unlock()
	}
}

func (r *runner) snapshot() []*Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	jobs := make([]*Job, 0, len(r.jobs))
	for j := range r.jobs {
		jobs = append(jobs, j)
	}
	return jobs
}
