package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// unknownCount is a number of ready jobs that nobody counted.
const unknownCount = -1

const (
	// claimLanes bounds the lanes of one claim, and so the time of its transaction.
	claimLanes = 128
	// affinityLanes is the number of lanes of a tenant that are claimed in its turn with
	// [Worker.Affinity]: a process serves few tenants at once, and leaves others to its peers.
	affinityLanes = 16
	// probeEvery is the number of claims of which one looks for tenants that other processes no longer
	// serve, although there are tenants of this process.
	probeEvery = 4
	// walkLanes bounds the lanes of one walk over the index.
	walkLanes = 1000
	// maxListed bounds the listed lanes. Walks find the lanes beyond it, so a backlog of lanes
	// uses the database's space instead of memory.
	maxListed = 4096
)

// crowdedPause is about the time of another process's claim. It doubles this many times while a
// runner finds only lanes, or with [Worker.Affinity] tenants, of other processes.
const (
	crowdedPause     = 2 * time.Millisecond
	crowdedByLanes   = 3
	crowdedByTenants = 6
)

// Bounds of the pause after consecutive failures to read the database.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = time.Second
)

// runner finds and runs the jobs of one kind. One goroutine (loop) claims, one (heartbeat)
// extends leases; each job runs in its own.
type runner struct {
	q *Queue
	Worker
	sqlSurvey, sqlWalk, sqlLease string
	maxCrowded                   int
	perTurn                      int // lanes of a tenant that it gets in its turn

	// work is cancelled to interrupt running jobs; claims end with it.
	work      context.Context
	interrupt context.CancelCauseFunc
	signal    chan struct{} // capacity 1: something changed
	began     chan struct{} // capacity 1: a job began since the last heartbeat
	stopped   chan struct{} // closed when nothing runs

	finisher finisher
	outage   outage

	mu      sync.Mutex
	open    bool // started and not stopping
	lanes   map[string]*lane
	list    laneList // lanes that may have work and have room
	running int
	jobs    map[*Job]struct{} // those that run
	claims  uint64
	crowded int       // claims in a row that found only busy lanes; of loop
	dueAt   time.Time // when the next known scheduled job is due, by the database's clock; zero: none
	scanDue bool      // check for due jobs and expired leases

	walkAgain bool   // start another survey after the current one
	surveying bool   // a survey of the tenants is under way
	cursor    string // where it continues
}

// lane is the state of a lane that may have ready jobs or has running ones.
type lane struct {
	tenant  string
	running int
	waiting int  // announced ready jobs
	unsure  bool // there may be more than waiting
	listed  bool
	busy    bool // another process had it, or its tenant, at the last claim
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
		sqlSurvey: sqlSurvey(w.Ordered), sqlWalk: sqlWalk(w.Ordered), sqlLease: sqlLease(w.Ordered, q != nil && q.db.Postgres()),
		maxCrowded: crowdedByLanes, perTurn: 1,
		signal:  make(chan struct{}, 1),
		began:   make(chan struct{}, 1),
		stopped: make(chan struct{}),
		lanes:   make(map[string]*lane),
		jobs:    make(map[*Job]struct{}),
	}
	if w.Affinity {
		r.maxCrowded, r.perTurn = crowdedByTenants, affinityLanes
	}
	if q != nil {
		r.finisher.db = q.db
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
		// Extend leases until the last job ends, or another process would run it at the same
		// time.
		for r.busy() {
			<-r.signal
		}
		r.notifyPeers()
		stop()
		beating.Wait()
	}()
}

// notifyPeers notifies other processes about lanes with ready jobs that this process no longer
// serves.
func (r *runner) notifyPeers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, l := range r.lanes {
		if l.waiting > 0 || l.unsure {
			r.q.notifyPeers(notice{kind: r.Kind, tenant: l.tenant, lane: name})
		}
	}
}

func (r *runner) isOpen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

func (r *runner) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.jobs) > 0
}

// stop ends claims, cancels running jobs when ctx ends, and returns after they have returned.
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

// addReady adds n ready jobs to a lane of a tenant; empty: unknown. It reports whether this process can claim them at once,
// so that no notification is needed.
func (r *runner) addReady(tenant, name string, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return false
	}
	l := r.lanes[name]
	if l == nil {
		if r.list.full(tenant) {
			r.walkAgain = true
			return false
		}
		l = r.lane(name)
	}
	if tenant != "" {
		l.tenant = tenant
	}
	if n == unknownCount {
		l.unsure = true
	} else {
		l.waiting += n
	}
	r.listLane(name, l)
	return r.running+r.list.size <= r.Concurrency
}

// wakeAt schedules a check for due jobs. It reports whether this process will run it.
func (r *runner) wakeAt(at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open && (r.dueAt.IsZero() || at.Before(r.dueAt)) {
		r.dueAt = at
		r.wake()
	}
	return r.open
}

// requestScan requests a check for due jobs and expired leases, and a walk over the lanes.
func (r *runner) requestScan() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scanDue, r.walkAgain = true, true
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

// lane returns the state of a lane, creating it if necessary. r.mu is held.
func (r *runner) lane(name string) *lane {
	l := r.lanes[name]
	if l == nil {
		l = new(lane)
		r.lanes[name] = l
	}
	return l
}

// laneCapacity returns how many jobs of a lane this process may claim.
func (r *runner) laneCapacity(name string) int {
	if r.LaneCapacity == nil {
		return r.PerLane
	}
	return max(1, min(r.LaneCapacity(name), r.PerLane))
}

// listLane lists a lane that may have ready jobs and has room. A full lane is listed again when
// one of its jobs ends; an idle lane is removed. r.mu is held.
func (r *runner) listLane(name string, l *lane) {
	switch hasWork := l.waiting > 0 || l.unsure; {
	case l.listed:
	case hasWork && l.running < r.laneCapacity(name):
		l.listed = true
		r.list.add(l.tenant, name)
		if !l.busy {
			r.wake()
		}
	case !hasWork && l.running == 0:
		delete(r.lanes, name)
	}
}

// loop claims jobs until the runner is stopped.
func (r *runner) loop() {
	r.requestScan()
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if r.q.db.CheckClock() != nil { // logged by the server
			if open, _ := r.idleTime(); !open {
				return
			}
			r.pause(maxPause)
			continue
		}
		err := r.poll()
		if failures++; err == nil {
			failures = 0
		}
		if r.work.Err() == nil {
			r.q.troubles.finding.Observe(r.work, err, "kind", r.Kind)
		}
		open, wait := r.idleTime()
		if !open {
			return
		}
		if err != nil {
			r.pause(min(firstPause<<min(failures-1, 10), maxPause))
			continue
		}
		if r.crowded > 0 && wait <= 0 {
			r.pause(crowdedPause/2 + rand.N(crowdedPause)) // whatever is announced
			wait = crowdedPause << min(r.crowded-1, r.maxCrowded) / 2
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

// maxIdle is the longest sleep of an idle runner.
const maxIdle = time.Hour

// idleTime returns how long the loop may sleep unless it is woken, and whether the runner is
// open.
func (r *runner) idleTime() (open bool, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.scanDue || r.running < r.Concurrency && r.looking() {
		return r.open, 0
	}
	if !r.dueAt.IsZero() {
		return r.open, min(r.dueAt.Sub(r.q.db.Now()), maxIdle)
	}
	return r.open, maxIdle
}

// looking reports whether there are lanes to claim from or to find. r.mu is held.
func (r *runner) looking() bool {
	return r.list.size > 0 || r.surveying || r.walkAgain || r.list.walking > 0
}

// pause waits d after a database failure. Only the end of the runner shortens it.
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

// poll promotes due jobs, walks the lanes and claims jobs, each if necessary.
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

// promote makes due jobs ready and, on a scan, jobs with expired leases. It notes when the
// next job is due.
func (r *runner) promote() error {
	r.mu.Lock()
	cast, due := r.scanDue, !r.dueAt.IsZero() && !r.dueAt.After(r.q.db.Now())
	if !cast && !due {
		r.mu.Unlock()
		return nil
	}
	r.scanDue, r.dueAt = false, time.Time{} // later announcements set them again
	r.mu.Unlock()

	lanes, next, err := r.promoteDue(cast)
	if err != nil && cast {
		r.requestScan()
	}
	if !next.IsZero() {
		r.wakeAt(next)
	}
	for _, l := range lanes {
		// In an ordered lane other jobs may have waited behind it.
		r.q.announceReady(r.Kind, l.tenant, l.lane, unknownCount)
	}
	return err
}

// walk lists further lanes with ready jobs, if there is room for them: the first lanes of the next
// tenants of a survey, and the further lanes of a tenant.
func (r *runner) walk() error {
	r.mu.Lock()
	if r.walkAgain && !r.surveying {
		r.walkAgain, r.surveying, r.cursor = false, true, ""
	}
	room := r.running < r.Concurrency
	survey, from := r.surveying && room && r.list.waiting < maxTenants, r.cursor
	var name, lane string
	next := r.list.nextWalk()
	if next != nil {
		name, lane = next.name, next.cursor
	}
	r.mu.Unlock()
	if survey {
		if err := r.survey(from); err != nil {
			return err
		}
	}
	if next == nil || !room {
		return nil
	}
	found, err := r.readLanes(r.sqlWalk, name, lane, walkLanes)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listFound(found)
	t := r.list.tenant(name)
	if !t.advance(found, len(found) == walkLanes) {
		return nil
	}
	if t.again {
		t.begin("")
	} else {
		r.list.setWalking(t, false)
	}
	return nil
}

// survey lists the first lanes of the next tenants with ready jobs.
func (r *runner) survey(from string) error {
	found, err := r.readLanes(r.sqlSurvey, from, surveyLanes, surveyTenants)
	if err != nil {
		return err
	}
	tenants, lanes := 0, 0
	starts := make(map[string]string) // of walks, by tenant
	for i, f := range found {
		if i == 0 || f.tenant != found[i-1].tenant {
			tenants, lanes = tenants+1, 0
		}
		if lanes++; lanes < surveyLanes {
			continue
		}
		starts[f.tenant] = ""
		if r.isWalking(f.tenant) {
			continue
		}
		last, err := r.lastLane(f.tenant)
		if err != nil {
			return err
		}
		starts[f.tenant] = middle(found[i+1-lanes].lane, last)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listFound(found)
	for name, start := range starts {
		t := r.list.tenant(name)
		if t.walking {
			t.again = true
		} else {
			t.begin(start)
			r.list.setWalking(t, true)
		}
	}
	if r.surveying = tenants == surveyTenants; r.surveying {
		r.cursor = found[len(found)-1].tenant // read once more
	}
	return nil
}

func (r *runner) isWalking(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.list.tenants[name]
	return t != nil && t.walking
}

// listFound lists lanes. r.mu is held.
func (r *runner) listFound(found []foundLane) {
	found = slices.Clone(found)
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] }) // others may list them too
	for _, f := range found {
		// Another process serves a lane that is full there.
		if l := r.lanes[f.lane]; l != nil || f.open {
			l = r.lane(f.lane)
			l.tenant = f.tenant
			l.unsure = true
			r.listLane(f.lane, l)
		}
	}
}

// laneRequest is the share of a claim for one lane, and the lane's state before it.
type laneRequest struct {
	lane   string
	want   int
	known  int
	unsure bool
	got    int
	tenant string // empty: unknown
	busy   bool   // another process was claiming the lane, or has its tenant
}

// planClaim removes as many lanes from the list as there is room for. The counts of waiting
// jobs move into the requests, so that jobs announced during the claim are counted separately.
func (r *runner) planClaim() []laneRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return nil
	}
	free := r.Concurrency - r.running
	var requests []laneRequest
	r.list.serve(r.perTurn, r.claims%probeEvery == 0, func() bool { return free > 0 && len(requests) < claimLanes }, func(name string, share int) int {
		l := r.lanes[name]
		l.listed = false
		want := min(r.laneCapacity(name)-l.running, (free+share-1)/share)
		if !l.unsure {
			want = min(want, l.waiting)
		}
		if want <= 0 {
			return 0 // filled by an earlier claim, or its capacity shrank; a job's end lists it again
		}
		free -= want
		requests = append(requests, laneRequest{lane: name, want: want, known: l.waiting, unsure: l.unsure, tenant: l.tenant})
		l.waiting, l.unsure = 0, false
		return want
	})
	return requests
}

// claim leases jobs of listed lanes, as far as there is room, and starts them.
func (r *runner) claim() error {
	requests := r.planClaim()
	if len(requests) == 0 {
		r.crowded = 0
		return nil
	}
	r.claims++
	until := time.Now().Add(r.q.lease) // before the claim, so that the lease ends here first
	jobs, err := r.leaseJobs(requests, fmt.Sprintf("%s/%d", r.q.instance, r.claims))
	byLane := make(map[string]*laneRequest, len(requests))
	for i := range requests {
		byLane[requests[i].lane] = &requests[i]
	}
	for _, j := range jobs {
		byLane[j.Lane].got++
		byLane[j.Lane].tenant = j.tenant
	}
	prepared := r.prepare(jobs)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteClaim(requests, err)
	for _, j := range jobs {
		j.until = until
		r.list.run(j.tenant, 1)
		r.run(j, prepared)
	}
	if err == nil && len(jobs) == 0 && slices.ContainsFunc(requests, func(a laneRequest) bool { return a.busy }) {
		r.crowded++
	} else {
		r.crowded = 0
	}
	return err
}

// prepare calls [Worker.Prepare] beside the next claims, for a part of the lease at most. It returns a
// channel that is closed afterwards; nil if there is nothing to do.
func (r *runner) prepare(jobs []*Job) <-chan struct{} {
	if r.Prepare == nil || len(jobs) < 2 {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(r.work, r.q.lease/4)
		defer cancel()
		if err := recoverPanic(func() error { r.Prepare(ctx, jobs); return nil }); err != nil {
			r.q.log.Error("preparing jobs", append(errorAttrs(err), "kind", r.Kind)...)
		}
	}()
	return done
}

// noteClaim lists the lanes of a claim again, as far as they may have more jobs. r.mu is held.
func (r *runner) noteClaim(requests []laneRequest, err error) {
	for _, a := range requests {
		l := r.lane(a.lane)
		switch {
		case err != nil || a.busy:
			l.waiting += a.known
			l.unsure = l.unsure || a.unsure
		case a.got == a.want:
			l.waiting += max(0, a.known-a.got)
			l.unsure = l.unsure || a.unsure
		case a.got < a.known:
			// Other processes hold the lane's leases and may not know about its ready jobs.
			r.q.notifyPeers(notice{kind: r.Kind, tenant: l.tenant, lane: a.lane})
		}
		if a.got > 0 {
			l.tenant = a.tenant
		}
		l.running += a.got
		r.running += a.got
		l.busy = a.busy
		r.listLane(a.lane, l)
		l.busy = false // announcements wake the loop
	}
	if !r.Affinity || err != nil {
		return
	}
	for _, busy := range []bool{true, false} { // another process may claim only some lanes of a tenant
		for _, a := range requests {
			if t := r.list.tenants[a.tenant]; t != nil && a.tenant != "" && a.busy == busy {
				t.away = busy
			}
		}
	}
}

// run starts a job once prepared is closed; nil: at once. r.mu is held.
func (r *runner) run(j *Job, prepared <-chan struct{}) {
	ctx, cancel := context.WithCancelCause(r.work)
	j.cancel = cancel
	r.jobs[j] = struct{}{}
	select {
	case r.began <- struct{}{}:
	default:
	}
	go func() {
		defer r.jobEnded(j)
		if prepared != nil {
			<-prepared
		}
		err := context.Cause(ctx)
		if err == nil {
			err = recoverPanic(func() error { return r.Run(ctx, j) })
		}
		err = recoverPanic(func() error { return r.recordOutcome(ctx, j, err) })
		switch {
		case err == nil:
			r.q.troubles.ended(r.work)
		case errors.Is(err, ErrLeaseLost):
			r.q.troubles.lost.Failed(r.work, err, "kind", r.Kind, "lane", j.Lane, "job", j.ID)
		case isUnavailable(err):
			// The lease will expire and the job run again.
			r.q.troubles.ends.Failed(r.work, err, "kind", r.Kind, "lane", j.Lane, "job", j.ID)
		default:
			r.logger(j).Error("recording the end of a job", errorAttrs(err)...)
		}
	}()
}

func (r *runner) logger(j *Job) *slog.Logger {
	return r.q.log.With("kind", r.Kind, "lane", j.Lane, "job", j.ID, "attempt", j.Attempt+1)
}

// jobEnded releases the job's slot and lists its lane again.
func (r *runner) jobEnded(j *Job) {
	j.cancel(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, j)
	r.running--
	r.list.run(j.tenant, -1)
	l := r.lane(j.Lane)
	l.running--
	r.listLane(j.Lane, l)
	if r.looking() || !r.open {
		r.wake()
	}
}

// panicked is the error of a worker that panicked.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprint("panic: ", p.value) }

// recoverPanic calls fn and returns a panic as an error.
func recoverPanic(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{v, debug.Stack()}
		}
	}()
	return fn()
}

// errorAttrs returns the log attributes of err, with the stack of a panic.
func errorAttrs(err error) []any {
	if p, ok := errors.AsType[*panicked](err); ok {
		return []any{"error", err, "stack", string(p.stack)}
	}
	return []any{"error", err}
}

// recordOutcome records the end of a job unless Run did; err is the result of Run.
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
		return r.writeEnd(ctx, j.ReleaseTx)
	case err == nil:
		if r.finisher.finish(j) == nil {
			return nil
		}
		return r.writeEnd(ctx, j.FinishTx)
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
		r.logger(j).Error("a job could not be discarded and will run again", append(errorAttrs(failed), "in", wait)...)
	}
	return r.writeEnd(ctx, func(ctx context.Context, tx *db.Tx) error { return j.RetryTx(ctx, tx, tx.Now.Add(wait)) })
}

// discard deletes a job that failed for the last time.
func (r *runner) discard(ctx context.Context, j *Job, cause error) error {
	return r.writeEnd(ctx, func(ctx context.Context, tx *db.Tx) error {
		if r.Discard != nil {
			if err := r.Discard(ctx, tx, j, cause); err != nil {
				return err
			}
		}
		return j.FinishTx(ctx, tx)
	})
}

// writeEnd writes the end of a job, also after cancellation. While the database is unavailable
// it retries until the work is cancelled.
func (r *runner) writeEnd(work context.Context, end func(ctx context.Context, tx *db.Tx) error) error {
	return r.q.db.WriteUntilDone(work, func(tx *db.Tx) error { return end(context.WithoutCancel(work), tx) })
}

// heartbeat extends the leases of running jobs. It cancels a job if its lease is lost, or could
// not be extended and is about to expire: another process may claim it then.
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

// heartbeatWhileBusy extends leases until no job runs.
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
			return // the next job signals began
		}
		limited, cancel := context.WithTimeout(ctx, beat)
		lease := r.q.lease
		if !r.isOpen() {
			lease = lease * 2 / 3 // so that others take its tenants, see sqlTryOwnLanes
		}
		until := time.Now().Add(lease)
		extended, locked, err := r.q.extendLeases(limited, jobs, lease)
		cancel()
		if ctx.Err() != nil {
			return
		}
		r.q.troubles.leases.Observe(ctx, err, "kind", r.Kind)
		r.mu.Lock()
		for _, j := range jobs {
			switch {
			case err == nil && extended[j.ID] == j.lease:
				j.until = until
			case err == nil && locked[j.ID] == j.lease && time.Until(j.until) > beat: // the next beat extends it
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
