// Package queuetest is the conformance suite of package queue. It runs on both engines; tests
// that need the fake clock are in package queue.
package queuetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Run checks the queue. url returns the address of a migrated database that
// only its caller uses; the cases open it several times, as several processes
// would.
func Run(t *testing.T, url func(testing.TB) string) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"what was enqueued runs", testRuns},
		{"rolled back is not enqueued", testRollback},
		{"a lane's limit", testLimit},
		{"limits under load", testLimitsUnderLoad},
		{"order with retries", testOrder},
		{"an ordered lane waits for its head", testOrderedHead},
		{"order of acceptance", testAcceptance},
		{"jobs in the place of earlier ones", testPlace},
		{"numbers after a copy", testRenumber},
		{"a flood of one tenant", testFlood},
		{"delay", testDelay},
		{"retries and discard", testRetry},
		{"discard that fails", testDiscardFails},
		{"failures of our own", testOwnFailure},
		{"panics", testPanics},
		{"hold and release", testHold},
		{"move a lane", testMoveLane},
		{"delete a lane", testDeleteLane},
		{"delete jobs", testDelete},
		{"run now", testRunNow},
		{"taken over", testTakenOver},
		{"leases are kept", testLeaseKept},
		{"graceful stop", testStopGraceful},
		{"stop gives back", testStopReleases},
		{"start and stop", testStartStop},
		{"thousands of lanes and some held", testWalk},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, &suite{t: t, url: url(t)}) })
	}
}

// suite is one database and the processes that use it.
type suite struct {
	t   *testing.T
	url string
}

// process stands for one process: a database handle and a queue of its own.
type process struct {
	*suite
	*queue.Queue
	db *db.DB
}

// fast is for cases that wait for a lease to end or for the safety net.
var fast = queue.Config{Lease: 400 * time.Millisecond, Poll: 20 * time.Millisecond}

// process opens one more process; it ends with the test.
func (s *suite) process(c queue.Config) *process {
	s.t.Helper()
	d := dbtest.Open(s.t, s.url)
	p := &process{s, queue.Open(d, c), d}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.Stop(ctx)
	})
	return p
}

// start starts the process with the workers.
func (p *process) start(workers ...queue.Worker) *process {
	p.t.Helper()
	for _, w := range workers {
		p.Handle(w)
	}
	if err := p.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	return p
}

func (p *process) write(fn func(ctx context.Context, tx *db.Tx) error) {
	p.t.Helper()
	// Cleanups write too, when the test's context has ended.
	if err := p.db.Write(context.Background(), func(tx *db.Tx) error { return fn(context.Background(), tx) }); err != nil {
		p.t.Error(err)
	}
}

func (p *process) enqueue(jobs ...queue.New) {
	p.t.Helper()
	p.write(func(ctx context.Context, tx *db.Tx) error { return p.EnqueueTx(ctx, tx, jobs...) })
}

// count counts the rows of jobs for which a condition holds.
func (p *process) count(where string, args ...any) int {
	p.t.Helper()
	var n int
	if err := p.db.QueryRow(context.Background(), "SELECT count(*) FROM jobs WHERE "+where, args...).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// patience is how long a test waits for an event.
const patience = time.Minute

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("it did not come")
		panic("unreachable")
	}
}

// step runs a job of a separate kind to its end: every claim possible before it has been made.
func (p *process) step(steps <-chan string) {
	p.t.Helper()
	p.enqueue(queue.New{Kind: "step", Lane: "step"})
	receive(p.t, steps)
}

func stepper() (queue.Worker, <-chan string) {
	steps := make(chan string)
	return queue.Worker{Kind: "step", Run: func(ctx context.Context, j *queue.Job) error {
		steps <- j.ID
		return nil
	}}, steps
}

// gate is a worker with jobs that block until the test releases them.
type gate struct {
	entered chan *queue.Job
	open    chan struct{}
}

func newGate() *gate {
	return &gate{make(chan *queue.Job, 1000), make(chan struct{})}
}

func (g *gate) run(ctx context.Context, j *queue.Job) error {
	g.entered <- j
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func testRuns(t *testing.T, s *suite) {
	ran := make(chan *queue.Job, 100)
	p := s.process(queue.Config{}).start(queue.Worker{Kind: "k", Ordered: true, Run: func(_ context.Context, j *queue.Job) error {
		ran <- j
		return nil
	}})
	var jobs []queue.New
	for i := range 100 { // more than one INSERT
		jobs = append(jobs, queue.New{Kind: "k", Lane: "l", Payload: fmt.Appendf(nil, "%d", i)})
	}
	jobs[1].Payload = nil
	jobs[2].Payload = []byte("\x00\xff'")
	before := time.Now().Add(-time.Second)
	p.enqueue(jobs...)
	if jobs[0].ID != "" {
		t.Errorf("the caller's jobs were changed: got id %q", jobs[0].ID)
	}
	for i := range 100 {
		j := receive(t, ran)
		want := fmt.Sprint(i)
		switch i {
		case 1:
			want = ""
		case 2:
			want = "\x00\xff'"
		}
		if string(j.Payload) != want || j.Kind != "k" || j.Lane != "l" || j.Attempt != 0 || j.ID == "" {
			t.Errorf("job %d: got %+v, want the payload %q", i, j, want)
		}
		if j.CreatedAt.Before(before) || time.Since(j.CreatedAt) > patience {
			t.Errorf("job %d: created at %v", i, j.CreatedAt)
		}
	}
	p.Stop(t.Context())
	if n := p.count("1 = 1"); n != 0 {
		t.Errorf("got %d jobs after the end, want none", n)
	}
}

func testRollback(t *testing.T, s *suite) {
	w, steps := stepper()
	never := queue.Worker{Kind: "k", Run: func(context.Context, *queue.Job) error {
		t.Error("a job ran that was rolled back")
		return nil
	}}
	p := s.process(queue.Config{}).start(w, never)
	refused := errors.New("refused")
	err := p.db.Write(t.Context(), func(tx *db.Tx) error {
		if err := p.EnqueueTx(t.Context(), tx, queue.New{Kind: "k", Lane: "l"}); err != nil {
			return err
		}
		return refused
	})
	if err != refused {
		t.Errorf("got %v, want %v", err, refused)
	}
	p.step(steps)
	p.Stop(t.Context())
	if n := p.count("kind = 'k'"); n != 0 {
		t.Errorf("got %d jobs, want none", n)
	}
}

// A lane with a limit of three runs three jobs over two processes; the fourth starts when one
// ends.
func testLimit(t *testing.T, s *suite) {
	g := newGate()
	worker := queue.Worker{Kind: "k", PerLane: 3, Run: g.run}
	w, stepsA := stepper()
	a := s.process(fast).start(worker, w)
	w, stepsB := stepper()
	b := s.process(fast).start(worker, w)
	job := queue.New{Kind: "k", Lane: "l"}
	a.enqueue(job, job)
	receive(t, g.entered)
	receive(t, g.entered)
	b.enqueue(job, job, job, job) // b knows of four ready jobs and runs none
	a.enqueue(job, job, job, job)
	receive(t, g.entered)
	for range 10 { // the net is cast meanwhile, too
		a.enqueue(queue.New{Kind: "step", Lane: "step", RunAt: time.Now().Add(20 * time.Millisecond)})
		select {
		case <-stepsA:
		case <-stepsB:
		case <-g.entered:
			t.Fatal("a fourth job ran beside three")
		}
	}
	if n := a.count("kind = 'k' AND state = 2"); n != 3 {
		t.Errorf("got %d leased jobs, want 3", n)
	}
	g.open <- struct{}{}
	receive(t, g.entered)
	close(g.open)
	for range 6 {
		receive(t, g.entered)
	}
}

// ledger records concurrent jobs by lane, and how often each job did its work.
type ledger struct {
	mu      sync.Mutex
	running map[string]int // by lane
	most    map[string]int
	done    map[string]int // by job
	order   map[string][]string
	all     chan struct{} // closed when the wanted number of jobs is done
	left    int
}

func newLedger(jobs int) *ledger {
	return &ledger{
		running: make(map[string]int), most: make(map[string]int), done: make(map[string]int),
		order: make(map[string][]string), all: make(chan struct{}), left: jobs,
	}
}

func (l *ledger) enter(j *queue.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[j.Lane]++
	l.most[j.Lane] = max(l.most[j.Lane], l.running[j.Lane])
}

func (l *ledger) leave(j *queue.Job, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[j.Lane]--
	if done {
		l.done[j.ID]++
		l.order[j.Lane] = append(l.order[j.Lane], j.ID)
		if l.left--; l.left == 0 {
			close(l.all)
		}
	}
}

// Two processes enqueue into and serve the same lanes, and some jobs fail at first: no lane
// exceeds its limit, and every job succeeds once.
func testLimitsUnderLoad(t *testing.T, s *suite) {
	for _, perLane := range []int{1, 3} {
		t.Run(fmt.Sprint(perLane), func(t *testing.T) {
			const lanes, rounds = 20, 30
			l := newLedger(2 * lanes * rounds)
			kind := fmt.Sprintf("k%d", perLane)
			worker := queue.Worker{Kind: kind, PerLane: perLane, Concurrency: 30,
				Retry: func(int, error) (time.Duration, bool) { return time.Millisecond, true },
				Run: func(ctx context.Context, j *queue.Job) error {
					l.enter(j)
					fails := j.Attempt == 0 && j.ID[len(j.ID)-1] < '4'
					l.leave(j, !fails)
					if fails {
						return errors.New("not yet")
					}
					return nil
				}}
			var enqueuers sync.WaitGroup
			var processes []*process
			for range 2 {
				p := s.process(queue.Config{}).start(worker)
				processes = append(processes, p)
				for range 2 {
					enqueuers.Go(func() {
						for range rounds / 2 {
							var jobs []queue.New
							for lane := range lanes {
								jobs = append(jobs, queue.New{Kind: kind, Lane: fmt.Sprint("lane ", lane)})
							}
							p.enqueue(jobs...)
						}
					})
				}
			}
			enqueuers.Wait()
			receive(t, l.all)
			for _, p := range processes {
				p.Stop(t.Context())
			}
			if n := processes[0].count("1 = 1"); n != 0 {
				t.Errorf("got %d jobs after the end, want none", n)
			}
			for lane, most := range l.most {
				if most > perLane {
					t.Errorf("%s: got %d at once, want at most %d", lane, most, perLane)
				}
			}
			for id, n := range l.done {
				if n != 1 {
					t.Errorf("job %s: done %d times, want once", id, n)
				}
			}
			if len(l.done) != 2*lanes*rounds {
				t.Errorf("got %d jobs done, want %d", len(l.done), 2*lanes*rounds)
			}
		})
	}
}

// In ordered lanes jobs succeed in their order, over two processes and with
// jobs that fail at first.
func testOrder(t *testing.T, s *suite) {
	const lanes, jobs = 10, 20
	l := newLedger(lanes * jobs)
	worker := queue.Worker{Kind: "k", Ordered: true, PerLane: 5, Concurrency: 20,
		Retry: func(int, error) (time.Duration, bool) { return time.Millisecond, true },
		Run: func(ctx context.Context, j *queue.Job) error {
			l.enter(j)
			fails := j.Attempt < int(j.ID[len(j.ID)-1])%3
			l.leave(j, !fails)
			if fails {
				return errors.New("not yet")
			}
			return nil
		}}
	a, b := s.process(queue.Config{}), s.process(queue.Config{})
	want := make(map[string][]string)
	for i := range jobs { // half of it waits at the start
		if i == jobs/2 {
			a.start(worker)
			b.start(worker)
		}
		for lane := range lanes {
			j := queue.New{ID: queue.NewID(), Kind: "k", Lane: fmt.Sprint("lane ", lane)}
			want[j.Lane] = append(want[j.Lane], j.ID)
			[]*process{a, b}[i%2].enqueue(j)
		}
	}
	receive(t, l.all)
	for lane, ids := range want {
		if got := l.order[lane]; !slices.Equal(got, ids) {
			t.Errorf("%s: got %v, want %v", lane, got, ids)
		}
		if l.most[lane] != 1 {
			t.Errorf("%s: got %d at once, want 1", lane, l.most[lane])
		}
	}
}

func testOrderedHead(t *testing.T, s *suite) {
	w, steps := stepper()
	ran := make(chan string, 10)
	p := s.process(fast).start(w, queue.Worker{Kind: "k", Ordered: true, Run: func(_ context.Context, j *queue.Job) error {
		ran <- string(j.Payload)
		return nil
	}})
	p.enqueue(
		queue.New{Kind: "k", Lane: "l", Payload: []byte("head"), RunAt: time.Now().Add(time.Hour)},
		queue.New{Kind: "k", Lane: "l", Payload: []byte("second")},
		queue.New{Kind: "k", Lane: "other", Payload: []byte("elsewhere")},
	)
	if got := receive(t, ran); got != "elsewhere" {
		t.Errorf("got %q first, want what is in another lane", got)
	}
	p.step(steps)
	p.write(func(ctx context.Context, tx *db.Tx) error { return p.RunNowTx(ctx, tx, "k", "l") })
	for _, want := range []string{"head", "second"} {
		if got := receive(t, ran); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// collector is an ordered worker that sends the payloads of its jobs.
func collector(ordered bool) (queue.Worker, <-chan string) {
	ran := make(chan string, 100)
	return queue.Worker{Kind: "k", Ordered: ordered, Run: func(_ context.Context, j *queue.Job) error {
		ran <- string(j.Payload)
		return nil
	}}, ran
}

func (p *process) expect(ran <-chan string, want ...string) {
	p.t.Helper()
	for _, w := range want {
		if got := receive(p.t, ran); got != w {
			p.t.Errorf("got %q, want %q", got, w)
		}
	}
}

// A lane's jobs run in the order in which they were accepted, whatever the order of their ids,
// also if a previous version of the program inserts some.
func testAcceptance(t *testing.T, s *suite) {
	a, b := s.process(queue.Config{}), s.process(queue.Config{})
	ids := make([]string, 6)
	for i := range ids {
		ids[len(ids)-1-i] = queue.NewID()
	}
	for i, id := range ids {
		p := []*process{a, b}[i%2]
		if i == 2 || i == 3 {
			p.write(func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO jobs (id, kind, lane, state, payload, run_at, created_at) VALUES ($1, 'k', 'l', 0, $2, 0, 0)",
					id, fmt.Append(nil, i))
				return err
			})
			continue
		}
		p.enqueue(queue.New{ID: id, Kind: "k", Lane: "l", Payload: fmt.Append(nil, i)})
	}
	w, ran := collector(true)
	a.start(w)
	a.expect(ran, "0", "1", "2", "3", "4", "5")
}

// Jobs with the numbers of earlier jobs run in their places, also before jobs that wait for a
// time.
func testPlace(t *testing.T, s *suite) {
	p := s.process(queue.Config{})
	p.enqueue(
		queue.New{Kind: "k", Lane: "l", Payload: []byte("1")},
		queue.New{Kind: "k", Lane: "l", Payload: []byte("2")},
	)
	earlier := make(chan *queue.Job, 2)
	first := s.process(queue.Config{}).start(queue.Worker{Kind: "k", Ordered: true, Run: func(_ context.Context, j *queue.Job) error {
		earlier <- j
		return nil
	}})
	one, two := receive(t, earlier), receive(t, earlier)
	first.Stop(t.Context())
	p.enqueue(
		queue.New{Kind: "k", Lane: "l", Payload: []byte("scheduled"), RunAt: time.Now().Add(time.Hour)},
		queue.New{Kind: "k", Lane: "l", Payload: []byte("last")},
	)
	p.enqueue(
		queue.New{Kind: "k", Lane: "l", Payload: []byte("2 again"), Order: two.Order()},
		queue.New{Kind: "k", Lane: "l", Payload: []byte("very last")},
		queue.New{Kind: "k", Lane: "l", Payload: []byte("1 again"), Order: one.Order()},
	)
	w, ran := collector(true)
	p.start(w)
	p.expect(ran, "1 again", "2 again")
	p.write(func(ctx context.Context, tx *db.Tx) error { return p.RunNowTx(ctx, tx, "k", "l") })
	p.expect(ran, "scheduled", "last", "very last")
}

// After a copy of a database, tokens exceed all that the original gave out, and jobs keep their
// order.
func testRenumber(t *testing.T, s *suite) {
	p := s.process(queue.Config{})
	p.enqueue(queue.New{Kind: "k", Lane: "l", Payload: []byte("copied")})
	var at time.Time
	p.write(func(ctx context.Context, tx *db.Tx) error {
		at = tx.Now
		return queue.RenumberTx(ctx, tx, p.db.Postgres())
	})
	p.enqueue(queue.New{Kind: "k", Lane: "l", Payload: []byte("new")})
	ran := make(chan *queue.Job, 10)
	p.start(queue.Worker{Kind: "k", Ordered: true, Run: func(_ context.Context, j *queue.Job) error {
		ran <- j
		return nil
	}})
	first, second := receive(t, ran), receive(t, ran)
	if string(first.Payload) != "copied" || string(second.Payload) != "new" {
		t.Errorf("ran %q, then %q", first.Payload, second.Payload)
	}
	if first.Fence() <= at.UnixMicro() || second.Fence() <= first.Fence() {
		t.Errorf("got the tokens %d and %d, want them above %d", first.Fence(), second.Fence(), at.UnixMicro())
	}
}

// A tenant with thousands of lanes delays another by few jobs, whether the lanes are announced or
// found by walks, over two processes.
func testFlood(t *testing.T, s *suite) {
	const flood, small, concurrency = 6000, 20, 4
	job := func(tenant, lane string, i int) queue.New {
		return queue.New{Kind: "k", Lane: fmt.Sprint(lane, i), Tenant: tenant, Payload: []byte(tenant)}
	}
	for _, announced := range []bool{false, true} {
		t.Run(fmt.Sprint("announced ", announced), func(t *testing.T) {
			enqueuer := s.process(queue.Config{})
			var mu sync.Mutex
			// The jobs of the flood that ran between the first and the last of the other tenant. When the
			// first is found depends on the time of a walk.
			passed, left := 0, small
			begin, done := make(chan struct{}), make(chan struct{})
			worker := queue.Worker{Kind: "k", Concurrency: concurrency, Run: func(_ context.Context, j *queue.Job) error {
				<-begin
				mu.Lock()
				defer mu.Unlock()
				if string(j.Payload) == "flood" {
					if left > 0 && left < small {
						passed++
					}
				} else if left--; left == 0 {
					close(done)
				}
				return nil
			}}
			fill := func(p *process) {
				var jobs []queue.New
				for i := range flood {
					jobs = append(jobs, job("flood", "a", i))
				}
				p.enqueue(jobs...)
				jobs = nil
				for i := range small {
					jobs = append(jobs, job("other", "b", i))
				}
				p.enqueue(jobs...)
			}
			if !announced {
				fill(enqueuer)
			}
			processes := []*process{s.process(queue.Config{}).start(worker), s.process(queue.Config{}).start(worker)}
			if announced {
				fill(processes[0])
			}
			close(begin)
			receive(t, done)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			for _, p := range processes {
				p.Stop(ended)
			}
			// In turns, half of the jobs are of the flood, and some run already.
			if limit := 2*small + 2*2*concurrency; passed > limit {
				t.Errorf("%d jobs of the flood ran between the first and the last of %d others, want at most %d", passed, small, limit)
			}
			enqueuer.write(func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.Exec(ctx, "DELETE FROM jobs")
				return err
			})
		})
	}
}

func testDelay(t *testing.T, s *suite) {
	type run struct {
		attempt int
		at      time.Time
	}
	runs := make(chan run, 10)
	var p *process
	var due time.Time // of the second attempt
	p = s.process(queue.Config{}).start(queue.Worker{Kind: "k", Run: func(ctx context.Context, j *queue.Job) error {
		runs <- run{j.Attempt, time.Now()}
		if j.Attempt == 1 {
			return nil
		}
		return p.db.Write(ctx, func(tx *db.Tx) error {
			due = tx.Now.Add(70 * time.Millisecond)
			return j.RetryTx(ctx, tx, due)
		})
	}})
	first := time.Now().Add(50 * time.Millisecond)
	p.enqueue(queue.New{Kind: "k", Lane: "l", RunAt: first})
	if r := receive(t, runs); r.attempt != 0 || r.at.Before(first.Truncate(time.Microsecond)) {
		t.Errorf("got attempt %d at %v, want 0 from %v on", r.attempt, r.at, first)
	}
	if r := receive(t, runs); r.attempt != 1 || r.at.Before(due) {
		t.Errorf("got attempt %d at %v, want 1 from %v on", r.attempt, r.at, due)
	}
	p.Stop(t.Context())
	if n := p.count("1 = 1"); n != 0 {
		t.Errorf("got %d jobs after the end, want none", n)
	}
}

func testRetry(t *testing.T, s *suite) {
	attempts := make(chan int, 10)
	type discard struct {
		attempt int
		cause   error
	}
	discarded := make(chan discard, 10)
	broken := errors.New("broken")
	p := s.process(queue.Config{}).start(queue.Worker{
		Kind: "k",
		Run: func(_ context.Context, j *queue.Job) error {
			attempts <- j.Attempt
			return broken
		},
		Retry: func(attempt int, err error) (time.Duration, bool) {
			if err != broken {
				t.Errorf("Retry got %v, want %v", err, broken)
			}
			return time.Millisecond, attempt < 3
		},
		Discard: func(_ context.Context, tx *db.Tx, j *queue.Job, err error) error {
			tx.AfterCommit(func() { discarded <- discard{j.Attempt, err} })
			return nil
		},
	})
	p.enqueue(queue.New{Kind: "k", Lane: "l"})
	for want := range 3 {
		if got := receive(t, attempts); got != want {
			t.Errorf("got attempt %d, want %d", got, want)
		}
	}
	if got, want := receive(t, discarded), (discard{2, broken}); got != want {
		t.Errorf("got discard %v, want %v", got, want)
	}
	p.Stop(t.Context())
	if n := p.count("1 = 1"); n != 0 || len(attempts) != 0 || len(discarded) != 0 {
		t.Errorf("got %d jobs, %d more attempts, %d more discards, want none", n, len(attempts), len(discarded))
	}
}

// After a failed Discard a job runs again, like a failed job.
func testDiscardFails(t *testing.T, s *suite) {
	attempts := make(chan int, 10)
	p := s.process(queue.Config{}).start(queue.Worker{
		Kind: "k",
		Run: func(_ context.Context, j *queue.Job) error {
			attempts <- j.Attempt
			return errors.New("broken")
		},
		Retry: func(int, error) (time.Duration, bool) { return 0, false },
		Discard: func(_ context.Context, _ *db.Tx, j *queue.Job, _ error) error {
			if j.Attempt == 0 {
				panic("no room")
			}
			return nil
		},
	})
	p.enqueue(queue.New{Kind: "k", Lane: "l"})
	for want := range 2 {
		if got := receive(t, attempts); got != want {
			t.Errorf("got attempt %d, want %d", got, want)
		}
	}
	p.Stop(t.Context())
	if n := p.count("1 = 1"); n != 0 {
		t.Errorf("got %d jobs after the end, want none", n)
	}
}

func testPanics(t *testing.T, s *suite) {
	failures := make(chan string, 10)
	ended := make(chan struct{})
	var p *process
	p = s.process(queue.Config{}).start(queue.Worker{
		Kind: "k",
		Run: func(ctx context.Context, j *queue.Job) error {
			if j.Attempt == 0 {
				panic("boom")
			}
			defer close(ended)
			if err := p.db.Write(ctx, func(tx *db.Tx) error { return j.FinishTx(ctx, tx) }); err != nil {
				return err
			}
			panic("too late to matter")
		},
		Retry: func(attempt int, err error) (time.Duration, bool) {
			failures <- err.Error()
			return 0, true
		},
	})
	p.enqueue(queue.New{Kind: "k", Lane: "l"})
	if got, want := receive(t, failures), "panic: boom"; got != want {
		t.Errorf("got failure %q, want %q", got, want)
	}
	receive(t, ended)
	p.Stop(t.Context())
	if n := p.count("1 = 1"); n != 0 || len(failures) != 0 {
		t.Errorf("got %d jobs and %d more failures, want none", n, len(failures))
	}
}

func testHold(t *testing.T, s *suite) {
	g := newGate()
	w, steps := stepper()
	p := s.process(fast).start(w, queue.Worker{Kind: "k", PerLane: 2, Run: g.run})
	hold := func(ctx context.Context, tx *db.Tx) error { return p.HoldLaneTx(ctx, tx, "k", "l") }
	p.enqueue(queue.New{Kind: "k", Lane: "l"})
	receive(t, g.entered)
	p.write(hold)
	p.write(hold)
	p.enqueue(queue.New{Kind: "k", Lane: "l"}, queue.New{Kind: "k", Lane: "l", RunAt: time.Now().Add(time.Millisecond)})
	p.enqueue(queue.New{Kind: "step", Lane: "step", RunAt: time.Now().Add(2 * fast.Poll)})
	receive(t, steps)
	p.step(steps)
	if n := p.count("kind = 'k' AND state = 2"); n != 1 || len(g.entered) != 0 {
		t.Errorf("got %d running jobs in a held lane, want the 1 from before", n)
	}
	close(g.open) // jobs that run already go on to their end
	p.write(func(ctx context.Context, tx *db.Tx) error { return p.ReleaseLaneTx(ctx, tx, "k", "l") })
	receive(t, g.entered)
	receive(t, g.entered)
}

// Waiting jobs of a lane change their kind and keep their order and due times; running jobs and
// other lanes keep theirs.
func testMoveLane(t *testing.T, s *suite) {
	g := newGate()
	ran := make(chan string, 10)
	p := s.process(queue.Config{}).start(
		queue.Worker{Kind: "k", Run: g.run},
		queue.Worker{Kind: "to", Ordered: true, Run: func(_ context.Context, j *queue.Job) error {
			ran <- j.Kind + " " + j.Lane + " " + string(j.Payload)
			return nil
		}},
	)
	due := time.Now().Add(100 * time.Millisecond)
	for _, lane := range []string{"l", "other"} {
		p.enqueue(queue.New{Kind: "k", Lane: lane, Payload: []byte("runs")})
		receive(t, g.entered)
		p.enqueue(
			queue.New{Kind: "k", Lane: lane, Payload: []byte("first")},
			queue.New{Kind: "k", Lane: lane, Payload: []byte("second"), RunAt: due},
			queue.New{Kind: "k", Lane: lane, Payload: []byte("third")},
		)
	}
	err := p.db.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := p.MoveLaneTx(t.Context(), tx, "k", "to", "l"); err != nil {
			return err
		}
		return errors.New("no")
	})
	if err == nil || p.count("kind = 'to'") != 0 {
		t.Errorf("rolled back: got %v and %d jobs moved, want none", err, p.count("kind = 'to'"))
	}
	p.write(func(ctx context.Context, tx *db.Tx) error {
		more, err := p.MoveLaneTx(ctx, tx, "k", "to", "l")
		if more {
			t.Error("there is more to move, want that all was")
		}
		return err
	})
	for _, want := range []string{"to l first", "to l second", "to l third"} {
		if got := receive(t, ran); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if time.Now().Before(due) {
		t.Error("a scheduled job ran too early")
	}
	if l, other := p.count("kind = 'k' AND lane = 'l' AND state = 2"), p.count("kind = 'k' AND lane = 'other'"); l != 1 || other != 4 {
		t.Errorf("got %d running jobs in the lane and %d in the other, want 1 and 4 where they were", l, other)
	}
	close(g.open)
	for range 3 {
		receive(t, g.entered)
	}
	p.Stop(t.Context())
	if n := p.count("1 = 1"); n != 0 {
		t.Errorf("got %d jobs left, want none", n)
	}
}

func testDeleteLane(t *testing.T, s *suite) {
	g := newGate()
	finish := make(chan error, 2)
	var a *process
	run := func(ctx context.Context, j *queue.Job) error {
		err := g.run(ctx, j)
		if j.Lane == "kept" {
			return err
		}
		if err != queue.ErrLeaseLost {
			t.Errorf("the context ended with %v, want %v", err, queue.ErrLeaseLost)
		}
		err = a.db.Write(context.Background(), func(tx *db.Tx) error { return j.FinishTx(context.Background(), tx) })
		finish <- err
		return err
	}
	a = s.process(fast).start(queue.Worker{Kind: "k", Run: run})
	b := s.process(fast)
	for _, lane := range []string{"here", "elsewhere", "kept"} {
		for range 3 {
			a.enqueue(queue.New{Kind: "k", Lane: lane}, queue.New{Kind: "k", Lane: lane, RunAt: time.Now().Add(time.Hour)})
		}
		receive(t, g.entered)
	}
	for lane, p := range map[string]*process{"here": a, "elsewhere": b} {
		p.write(func(ctx context.Context, tx *db.Tx) error {
			if err := p.HoldLaneTx(ctx, tx, "k", lane); err != nil {
				return err
			}
			return p.DeleteLaneTx(ctx, tx, "k", lane)
		})
		if err := receive(t, finish); err != queue.ErrLeaseLost {
			t.Errorf("lane %s: Finish got %v, want %v", lane, err, queue.ErrLeaseLost)
		}
	}
	if n := a.count("lane <> 'kept'"); n != 0 {
		t.Errorf("got %d jobs of deleted lanes, want none", n)
	}
	if n := a.count("lane = 'kept'"); n != 6 {
		t.Errorf("got %d jobs of the other lane, want 6", n)
	}
	a.enqueue(queue.New{Kind: "k", Lane: "here"}) // neither held nor deleted for good
	receive(t, g.entered)
	a.write(func(ctx context.Context, tx *db.Tx) error { return a.DeleteLaneTx(ctx, tx, "k", "here") })
	receive(t, finish)
	close(g.open)
}

func testDelete(t *testing.T, s *suite) {
	g := newGate()
	ended := make(chan error, 1)
	p := s.process(fast).start(queue.Worker{Kind: "k", Run: func(ctx context.Context, j *queue.Job) error {
		err := g.run(ctx, j)
		ended <- err
		return err
	}})
	ids := []string{queue.NewID(), queue.NewID(), queue.NewID(), queue.NewID()}
	for _, id := range ids {
		p.enqueue(queue.New{ID: id, Kind: "k", Lane: "l"})
	}
	receive(t, g.entered)
	p.write(func(ctx context.Context, tx *db.Tx) error { return p.DeleteTx(ctx, tx, ids[0], ids[2], "never was") })
	if err := receive(t, ended); err != queue.ErrLeaseLost {
		t.Errorf("the context ended with %v, want %v", err, queue.ErrLeaseLost)
	}
	close(g.open)
	for _, want := range []string{ids[1], ids[3]} {
		if j := receive(t, g.entered); j.ID != want {
			t.Errorf("got job %s, want %s", j.ID, want)
		}
		if err := receive(t, ended); err != nil {
			t.Error(err)
		}
	}
}

func testRunNow(t *testing.T, s *suite) {
	ran := make(chan string, 10)
	p := s.process(queue.Config{}).start(queue.Worker{Kind: "k", Run: func(_ context.Context, j *queue.Job) error {
		ran <- j.Lane
		return nil
	}})
	p.enqueue(
		queue.New{Kind: "k", Lane: "a", RunAt: time.Now().Add(time.Hour)},
		queue.New{Kind: "k", Lane: "b", RunAt: time.Now().Add(time.Hour)},
	)
	p.write(func(ctx context.Context, tx *db.Tx) error { return p.RunNowTx(ctx, tx, "k", "b") })
	if got := receive(t, ran); got != "b" {
		t.Errorf("got lane %q, want b", got)
	}
	p.Stop(t.Context())
	if n := p.count("lane = 'a' AND state = 1"); n != 1 || len(ran) != 0 {
		t.Errorf("got %d scheduled jobs in the other lane, want 1", n)
	}
}

// A process loses its database without noticing: its job is claimed by another process, and its
// late transaction, with the job's end, is rolled back.
func testTakenOver(t *testing.T, s *suite) {
	var mu sync.Mutex
	effects := make(map[string]int)
	record := func(d *db.DB, j *queue.Job, who string) error {
		return d.Write(context.Background(), func(tx *db.Tx) error {
			tx.AfterCommit(func() {
				mu.Lock()
				defer mu.Unlock()
				effects[who]++
			})
			// A row in the same transaction: another job.
			if err := tx.Queue(context.Background(), `INSERT INTO jobs (id, kind, lane, state, payload, run_at, created_at)
				VALUES ($1, 'effect', $2, 1, $3, $4, $4)`, queue.NewID(), who, []byte{}, time.Now().Add(time.Hour).UnixMicro()); err != nil {
				return err
			}
			return j.FinishTx(context.Background(), tx)
		})
	}
	b := s.process(fast)
	lost, late := make(chan *queue.Job, 1), make(chan error, 1)
	release := make(chan struct{})
	a := s.process(fast).start(queue.Worker{Kind: "k", Run: func(ctx context.Context, j *queue.Job) error {
		lost <- j
		<-ctx.Done() // our own lease's end is noticed without the database
		if err := context.Cause(ctx); err != queue.ErrLeaseLost {
			t.Errorf("the context ended with %v, want %v", err, queue.ErrLeaseLost)
		}
		<-release
		err := record(b.db, j, "first")
		late <- err
		return err
	}})
	a.enqueue(queue.New{Kind: "k", Lane: "l"})
	claimed := time.Now()
	first := receive(t, lost)
	if err := a.db.Close(); err != nil {
		t.Fatal(err)
	}
	taken, finish := make(chan *queue.Job, 1), make(chan struct{})
	b.start(queue.Worker{Kind: "k", Run: func(_ context.Context, j *queue.Job) error {
		taken <- j
		<-finish
		return record(b.db, j, "second")
	}})
	j := receive(t, taken)
	if j.Fence() <= first.Fence() || first.Fence() <= 0 {
		t.Errorf("the fencing tokens are %d and then %d, want a higher one", first.Fence(), j.Fence())
	}
	if after := time.Since(claimed); after < fast.Lease-fast.Lease/10 || j.Attempt != 0 {
		t.Errorf("taken over after %v as attempt %d, want not before %v and 0", after, j.Attempt, fast.Lease)
	}
	close(release)
	if err := receive(t, late); err != queue.ErrLeaseLost {
		t.Errorf("the late end got %v, want %v", err, queue.ErrLeaseLost)
	}
	close(finish)
	a.Stop(t.Context())
	b.Stop(t.Context())
	if want := map[string]int{"second": 1}; !maps.Equal(effects, want) {
		t.Errorf("got effects %v, want %v", effects, want)
	}
	if first, second := b.count("lane = 'first'"), b.count("lane = 'second'"); first != 0 || second != 1 {
		t.Errorf("got %d and %d rows of effects, want 0 and 1", first, second)
	}
}

// A job that runs for several leases stays where it is.
func testLeaseKept(t *testing.T, s *suite) {
	g := newGate()
	w, steps := stepper()
	a := s.process(fast).start(w, queue.Worker{Kind: "k", Run: g.run})
	a.enqueue(queue.New{Kind: "k", Lane: "l"})
	receive(t, g.entered)
	b := s.process(fast).start(queue.Worker{Kind: "k", Run: g.run})
	a.enqueue(queue.New{Kind: "step", Lane: "step", RunAt: time.Now().Add(3 * fast.Lease)})
	receive(t, steps)
	close(g.open)
	a.Stop(t.Context())
	b.Stop(t.Context())
	if n := a.count("1 = 1"); n != 0 || len(g.entered) != 0 {
		t.Errorf("got %d jobs after the end and %d more runs, want none", n, len(g.entered))
	}
}

// A stop waits for running jobs, also longer than a lease, and starts none.
func testStopGraceful(t *testing.T, s *suite) {
	g := newGate()
	w, steps := stepper()
	b := s.process(fast).start(w)
	a := s.process(fast).start(queue.Worker{Kind: "k", Run: g.run})
	a.enqueue(queue.New{Kind: "k", Lane: "l"}, queue.New{Kind: "k", Lane: "l"})
	receive(t, g.entered)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.Stop(t.Context())
	}()
	b.enqueue(queue.New{Kind: "step", Lane: "step", RunAt: time.Now().Add(2 * fast.Lease)})
	receive(t, steps)
	select {
	case <-stopped:
		t.Error("stopped while a job ran")
	default:
	}
	if n := b.count("kind = 'k' AND state = 2 AND lease_until > $1", time.Now().UnixMicro()); n != 1 {
		t.Errorf("got %d leases kept during the stop, want 1", n)
	}
	close(g.open)
	receive(t, stopped)
	if ready, all := b.count("kind = 'k' AND state = 0"), b.count("kind = 'k'"); ready != 1 || all != 1 {
		t.Errorf("got %d ready jobs of %d, want the second one ready", ready, all)
	}
}

// Jobs that do not finish in time are cancelled and released without counting an attempt,
// regardless of their result.
func testStopReleases(t *testing.T, s *suite) {
	g := newGate()
	a := s.process(queue.Config{}).start(queue.Worker{Kind: "k", PerLane: 4,
		Run: func(ctx context.Context, j *queue.Job) error {
			err := g.run(ctx, j)
			switch string(j.Payload) {
			case "nil":
				return nil
			case "panic":
				panic(err)
			case "other":
				return errors.New("other")
			}
			return err
		},
		Retry: func(int, error) (time.Duration, bool) {
			t.Error("an interruption counted as a failure")
			return 0, true
		},
	})
	for _, payload := range []string{"cause", "nil", "panic", "other"} {
		a.enqueue(queue.New{Kind: "k", Lane: "l", Payload: []byte(payload)})
		receive(t, g.entered)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.Stop(ctx)
	if n := a.count("state = 0 AND attempt = 0 AND lease IS NULL AND lease_until IS NULL"); n != 4 {
		t.Errorf("got %d jobs given back, want 4", n)
	}
	close(g.open)
	b := s.process(queue.Config{}).start(queue.Worker{Kind: "k", Run: g.run})
	for range 4 {
		if j := receive(t, g.entered); j.Attempt != 0 {
			t.Errorf("got attempt %d, want 0", j.Attempt)
		}
	}
	b.Stop(t.Context())
}

// A failure of our own database or files counts no attempt.
func testOwnFailure(t *testing.T, s *suite) {
	attempts := make(chan int)
	p := s.process(queue.Config{}).start(queue.Worker{Kind: "k",
		Run: func(_ context.Context, j *queue.Job) error {
			attempts <- j.Attempt
			return fmt.Errorf("load: %w", problem.New(problem.Unavailable, "away"))
		},
		Retry: func(int, error) (time.Duration, bool) {
			t.Error("a failure of our own counted as an attempt")
			return 0, true
		},
	})
	p.enqueue(queue.New{Kind: "k", Lane: "l"})
	for range 3 {
		if n := receive(t, attempts); n != 0 {
			t.Errorf("got attempt %d, want 0", n)
		}
		for p.count("state = 1 AND attempt = 0") == 0 { // it is being recorded
			runtime.Gosched()
		}
		p.write(func(ctx context.Context, tx *db.Tx) error { return p.RunNowTx(ctx, tx, "k", "l") })
	}
	go func() {
		for range attempts { // until the process has stopped
		}
	}()
	p.Stop(t.Context())
	close(attempts)
}

func testStartStop(t *testing.T, s *suite) {
	w, steps := stepper()
	a := s.process(queue.Config{})
	a.Handle(w)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Start(ended); err == nil {
		t.Error("started with an ended context")
	}
	a.start() // after the one that failed
	if err := a.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
	a.step(steps)
	var stops sync.WaitGroup
	for range 3 {
		stops.Go(func() { a.Stop(t.Context()) })
	}
	stops.Wait()
	a.Stop(t.Context())
	if err := a.Start(t.Context()); err == nil {
		t.Error("started after a stop")
	}
	a.enqueue(queue.New{Kind: "step", Lane: "step"}) // for the other process
	b := s.process(queue.Config{})
	b.Stop(t.Context())
	if err := b.Start(t.Context()); err == nil {
		t.Error("started after a stop")
	}
	w, steps = stepper()
	s.process(queue.Config{}).start(w)
	receive(t, steps)
}

// A walk finds lanes that nobody announced, however many, also behind more held lanes than one
// page of the walk.
func testWalk(t *testing.T, s *suite) {
	const lanes, held = 2500, 1200
	p := s.process(queue.Config{Poll: time.Hour})
	var jobs []queue.New
	for i := range lanes {
		jobs = append(jobs, queue.New{Kind: "k", Lane: fmt.Sprintf("lane %04d", i)})
	}
	jobs[0].Lane = "" // sorts first
	p.enqueue(jobs...)
	p.write(func(ctx context.Context, tx *db.Tx) error {
		for _, j := range jobs[100 : 100+held] {
			if err := p.HoldLaneTx(ctx, tx, "k", j.Lane); err != nil {
				return err
			}
		}
		return nil
	})
	l := newLedger(lanes - held)
	p.start(queue.Worker{Kind: "k", Concurrency: 100, Run: func(_ context.Context, j *queue.Job) error {
		l.enter(j)
		l.leave(j, true)
		return nil
	}})
	receive(t, l.all)
	p.Stop(t.Context())
	if n := p.count("state = 0 AND lane >= 'lane 0100' AND lane < 'lane 1300'"); n != held || p.count("1 = 1") != held {
		t.Errorf("got %d jobs of held lanes, want %d and no others", n, held)
	}
}
