package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// In these tests time advances only when every goroutine waits: durations are exact, to the
// microsecond of the database's clock.

// write runs one statement in a transaction.
func write(t testing.TB, d *db.DB, query string, args ...any) {
	t.Helper()
	if err := d.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), query, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func enqueue(t testing.TB, d *db.DB, q *queue.Queue, jobs ...queue.New) {
	t.Helper()
	if err := d.Write(context.Background(), func(tx *db.Tx) error { return q.EnqueueTx(context.Background(), tx, jobs...) }); err != nil {
		t.Fatal(err)
	}
}

func start(t testing.TB, q *queue.Queue, workers ...queue.Worker) {
	t.Helper()
	for _, w := range workers {
		q.Handle(w)
	}
	if err := q.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// stop stops at once.
func stop(q *queue.Queue) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	q.Stop(ctx)
}

func count(t testing.TB, d *db.DB, where string) int {
	t.Helper()
	var n int
	if err := d.QueryRow(context.Background(), "SELECT count(*) FROM jobs WHERE "+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWakeTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		q := queue.Open(d, queue.Config{})
		ran := make(chan string)
		start(t, q, queue.Worker{Kind: "k", Concurrency: 2, Run: func(ctx context.Context, j *queue.Job) error {
			ran <- string(j.Payload)
			return nil
		}})
		defer stop(q)
		synctest.Wait()
		begin := time.Now()
		// More than run at once, in one lane and in several.
		for range 10 {
			enqueue(t, d, q,
				queue.New{Kind: "k", Lane: "a"}, queue.New{Kind: "k", Lane: "a"},
				queue.New{Kind: "k", Lane: "b"}, queue.New{Kind: "k", Lane: "c"})
		}
		for range 40 {
			<-ran
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("40 jobs took %v, want no time", took)
		}
	})
}

func TestDelayIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		ran := make(chan time.Time, 10)
		open := func() *queue.Queue {
			q := queue.Open(d, queue.Config{})
			start(t, q, queue.Worker{Kind: "k", Run: func(ctx context.Context, j *queue.Job) error {
				ran <- time.Now()
				if j.Attempt > 0 {
					return nil
				}
				return d.Write(ctx, func(tx *db.Tx) error { return j.RetryTx(ctx, tx, tx.Now.Add(7*time.Second)) })
			}})
			return q
		}
		q := open()
		begin := time.Now()
		expect := func(after time.Duration) {
			t.Helper()
			if got := (<-ran).Sub(begin).Truncate(time.Microsecond); got != after {
				t.Errorf("ran after %v, want %v", got, after)
			}
		}
		enqueue(t, d, q,
			queue.New{Kind: "k", Lane: "late", RunAt: begin.Add(90 * time.Second)},
			queue.New{Kind: "k", Lane: "early", RunAt: begin.Add(10*time.Second + time.Microsecond)})
		expect(10*time.Second + time.Microsecond)
		expect(17*time.Second + time.Microsecond)
		// Down while it is due.
		stop(q)
		time.Sleep(2 * time.Minute)
		back := time.Since(begin)
		q = open()
		expect(back)
		expect(back + 7*time.Second)
		// While both processes are down, without a notification.
		enqueue(t, d, queue.Open(d, queue.Config{}), queue.New{Kind: "k", Lane: "far", RunAt: begin.Add(time.Hour)})
		expect(time.Hour)
		expect(time.Hour + 7*time.Second)
		stop(q)
	})
}

// Hundreds of jobs due at different times each run at theirs.
func TestManyDelays(t *testing.T) {
	const jobs = 300
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		q := queue.Open(d, queue.Config{})
		var mu sync.Mutex
		late, ran := 0, 0
		start(t, q, queue.Worker{Kind: "k", Run: func(ctx context.Context, j *queue.Job) error {
			due := new(time.Time)
			if err := due.UnmarshalBinary(j.Payload); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			ran++
			if after := time.Since(*due); after < 0 || after >= time.Microsecond {
				late++
			}
			return nil
		}})
		defer stop(q)
		for i := range jobs {
			due := time.Now().Add(time.Duration(i*7919%jobs+1) * 13 * time.Millisecond)
			payload, err := due.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			enqueue(t, d, q, queue.New{Kind: "k", Lane: fmt.Sprint(i), Payload: payload, RunAt: due})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if ran != jobs || late != 0 {
			t.Errorf("got %d runs, %d at another time than due; want %d and 0", ran, late, jobs)
		}
	})
}

func TestMissedNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		q := queue.Open(d, queue.Config{})
		ran := make(chan time.Time, 10)
		start(t, q, queue.Worker{Kind: "k", Run: func(context.Context, *queue.Job) error {
			ran <- time.Now()
			return nil
		}})
		defer stop(q)
		time.Sleep(time.Minute)
		for i := range 5 {
			begin := time.Now()
			write(t, d, `INSERT INTO jobs (id, kind, lane, state, payload, run_at, created_at) VALUES ($1, 'k', 'l', 0, $2, 0, 0)`,
				fmt.Sprint(i), []byte{})
			if took := (<-ran).Sub(begin); took > 2500*time.Millisecond {
				t.Errorf("found after %v, want within 2.5 s", took)
			}
			time.Sleep(777 * time.Millisecond)
		}
	})
}

// No other process claims a job that runs for many leases.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := dbtest.SQLiteURL(t)
		a, b := dbtest.Open(t, url), dbtest.Open(t, url)
		runs := 0
		worker := queue.Worker{Kind: "k", Run: func(ctx context.Context, j *queue.Job) error {
			runs++
			time.Sleep(10 * time.Minute)
			return ctx.Err()
		}}
		qa, qb := queue.Open(a, queue.Config{}), queue.Open(b, queue.Config{})
		start(t, qa, worker)
		enqueue(t, a, qa, queue.New{Kind: "k", Lane: "l"})
		synctest.Wait()
		start(t, qb, worker)
		time.Sleep(5 * time.Minute)
		qa.Stop(context.Background()) // waits for the job while extending its lease
		stop(qb)
		if n := count(t, b, "1 = 1"); runs != 1 || n != 0 {
			t.Errorf("got %d runs and %d jobs left, want 1 and 0", runs, n)
		}
	})
}

// A process that has lost the database gives up its lease before another process may claim the
// job.
func TestLostProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := dbtest.SQLiteURL(t)
		a, b := dbtest.Open(t, url), dbtest.Open(t, url)
		qa, qb := queue.Open(a, queue.Config{}), queue.Open(b, queue.Config{})
		cancelled, again := make(chan time.Time, 1), make(chan time.Time, 1)
		start(t, qa, queue.Worker{Kind: "k", Run: func(ctx context.Context, j *queue.Job) error {
			<-ctx.Done()
			cancelled <- time.Now()
			return nil // too late: it does not count
		}})
		start(t, qb, queue.Worker{Kind: "other", Run: func(context.Context, *queue.Job) error { return nil }},
			queue.Worker{Kind: "k", Run: func(_ context.Context, j *queue.Job) error {
				if j.Attempt != 0 {
					t.Errorf("got attempt %d, want 0", j.Attempt)
				}
				again <- time.Now()
				return nil
			}})
		synctest.Wait() // both have finished their first scan, so only the first learns of the job
		enqueue(t, a, qa, queue.New{Kind: "k", Lane: "l"})
		time.Sleep(time.Minute)
		synctest.Wait()
		var extended time.Time
		if err := b.QueryRow(t.Context(), "SELECT lease_until FROM jobs").Scan(db.IntoTime(&extended)); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		c, r := <-cancelled, <-again
		if c.After(extended) || extended.Sub(c) > 5*time.Second {
			t.Errorf("cancelled at %v, want shortly before the lease's end at %v", c, extended)
		}
		if r.Before(extended) || r.Sub(extended) > 2500*time.Millisecond {
			t.Errorf("taken over at %v, want within 2.5 s from %v", r, extended)
		}
		stop(qa)
		stop(qb)
		if n := count(t, b, "1 = 1"); n != 0 {
			t.Errorf("got %d jobs left, want none", n)
		}
	})
}

func TestSoftLimit(t *testing.T) {
	for _, test := range []struct {
		needs, limit, took time.Duration
		left               int
	}{
		{needs: 3 * time.Second, limit: 5 * time.Second, took: 3 * time.Second, left: 0},
		{needs: time.Minute, limit: 5 * time.Second, took: 5 * time.Second, left: 1},
		{needs: time.Minute, limit: 5 * time.Minute, took: time.Minute, left: 0},
	} {
		t.Run(fmt.Sprintf("%v of %v", test.needs, test.limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := dbtest.NewSQLite(t)
				q := queue.Open(d, queue.Config{})
				start(t, q, queue.Worker{Kind: "k", Run: func(ctx context.Context, j *queue.Job) error {
					select {
					case <-time.After(test.needs):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}})
				enqueue(t, d, q, queue.New{Kind: "k", Lane: "l"})
				synctest.Wait()
				begin := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), test.limit)
				defer cancel()
				q.Stop(ctx)
				if took := time.Since(begin); took != test.took {
					t.Errorf("stopped after %v, want %v", took, test.took)
				}
				if n := count(t, d, "state = 0 AND attempt = 0"); n != test.left || count(t, d, "1 = 1") != test.left {
					t.Errorf("got %d jobs given back, want %d and no others", n, test.left)
				}
			})
		})
	}
}

func TestRetrySchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		q := queue.Open(d, queue.Config{})
		var begin time.Time
		var at []string
		var last error
		discarded := make(chan struct{})
		start(t, q, queue.Worker{
			Kind: "k",
			Run: func(context.Context, *queue.Job) error {
				at = append(at, time.Since(begin).String())
				return fmt.Errorf("attempt %d", len(at))
			},
			Discard: func(_ context.Context, tx *db.Tx, _ *queue.Job, err error) error {
				if len(at) == 8 {
					return errors.New("not now") // it has another try
				}
				last = err
				tx.AfterCommit(func() { close(discarded) })
				return nil
			},
		})
		defer stop(q)
		begin = time.Now()
		enqueue(t, d, q, queue.New{Kind: "k", Lane: "l"})
		<-discarded
		want := []string{"0s", "1s", "5s", "21s", "1m25s", "5m41s", "15m41s", "25m41s", "35m41s"}
		if !slices.Equal(at, want) {
			t.Errorf("got attempts at %v, want %v", at, want)
		}
		if last.Error() != "attempt 9" {
			t.Errorf("discarded for %q, want the last failure", last)
		}
	})
}

func TestBackoff(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		-1: time.Second, 0: time.Second, 1: time.Second, 2: 4 * time.Second, 3: 16 * time.Second,
		5: 256 * time.Second, 6: 10 * time.Minute, 7: 10 * time.Minute, 1000: 10 * time.Minute,
	} {
		if got := queue.Backoff(attempt); got != want {
			t.Errorf("Backoff(%d): got %v, want %v", attempt, got, want)
		}
	}
}

// Behind a delayed job, an ordered lane waits, and costs nothing; afterwards
// everything runs in order.
func TestOrderedLaneWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		q := queue.Open(d, queue.Config{})
		begin := time.Now()
		var mu sync.Mutex
		var got []string
		start(t, q, queue.Worker{
			Kind: "k", Ordered: true,
			Run: func(_ context.Context, j *queue.Job) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprintf("%s %v", j.Payload, time.Since(begin).Truncate(time.Microsecond)))
				if string(j.Payload) == "b" && j.Attempt == 0 {
					return errors.New("not yet")
				}
				return nil
			},
			Retry: func(int, error) (time.Duration, bool) { return time.Hour, true },
		})
		defer stop(q)
		for _, payload := range []string{"a", "b", "c"} {
			enqueue(t, d, q, queue.New{Kind: "k", Lane: "l", Payload: []byte(payload)})
		}
		time.Sleep(time.Minute)
		enqueue(t, d, q, queue.New{Kind: "k", Lane: "l", Payload: []byte("d")}, queue.New{Kind: "k", Lane: "m", Payload: []byte("x")})
		time.Sleep(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"a 0s", "b 0s", "x 1m0s", "b 1h0m0s", "c 1h0m0s", "d 1h0m0s"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// While the database is down, queries are spaced; afterwards work continues.
func TestDatabaseGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		var log bytes.Buffer
		q := queue.Open(d, queue.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ran, release := make(chan time.Time, 10), make(chan struct{})
		start(t, q, queue.Worker{Kind: "k", Run: func(ctx context.Context, j *queue.Job) error {
			if string(j.Payload) == "long" && len(release) == 0 && j.Attempt == 0 {
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			ran <- time.Now()
			return nil
		}})
		defer stop(q)
		enqueue(t, d, q, queue.New{Kind: "k", Lane: "l", Payload: []byte("long")}, queue.New{Kind: "k", Lane: "l", RunAt: time.Now().Add(time.Minute)})
		synctest.Wait()

		write(t, d, "ALTER TABLE jobs RENAME TO elsewhere")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := bytes.Count(log.Bytes(), []byte("\n")); n < 1 || n > 6 {
			t.Errorf("got %d lines about ten minutes of trouble, want one for each part of the work", n)
		}
		if len(ran) != 1 {
			t.Errorf("got %d ends, want the 1 of the job whose lease could not be kept", len(ran))
		}
		<-ran
		close(release)
		write(t, d, "ALTER TABLE elsewhere RENAME TO jobs")
		back := time.Now()
		for range 2 {
			if took := (<-ran).Sub(back); took > 3500*time.Millisecond {
				t.Errorf("ran %v after the database was back, want within a pause and a cast of the net", took)
			}
		}
	})
}

// A backlog of lanes uses space in the database, not in memory, and drains.
func TestBacklog(t *testing.T) {
	lanes := 100_000
	if queue.RaceDetector {
		lanes = 3000
	}
	d := dbtest.NewSQLite(t)
	fill(t, d, lanes, lanes)
	q := queue.Open(d, queue.Config{Poll: time.Hour})
	var mu sync.Mutex
	left, done := lanes+10, make(chan struct{})
	start(t, q, queue.Worker{Kind: "k", Concurrency: 256, Run: func(context.Context, *queue.Job) error {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			close(done)
		}
		return nil
	}})
	for range 10 { // jobs added meanwhile run too
		enqueue(t, d, q, queue.New{Kind: "k", Lane: queue.NewID()})
	}
	begin := time.Now()
	<-done
	t.Logf("%d lanes took %v", lanes, time.Since(begin))
	q.Stop(context.Background())
	if n := count(t, d, "1 = 1"); n != 0 {
		t.Errorf("got %d jobs left, want none", n)
	}
}

// More lanes are announced than can be listed; the rest is found before the next poll.
func TestMoreLanesThanListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lanes = 5000
		d := dbtest.NewSQLite(t)
		q := queue.Open(d, queue.Config{Poll: time.Hour})
		var mu sync.Mutex
		left, release := lanes, make(chan struct{})
		start(t, q, queue.Worker{Kind: "k", Concurrency: 50, Run: func(context.Context, *queue.Job) error {
			<-release
			mu.Lock()
			defer mu.Unlock()
			left--
			return nil
		}})
		synctest.Wait()
		begin := time.Now()
		var jobs []queue.New
		for i := range lanes {
			jobs = append(jobs, queue.New{Kind: "k", Lane: fmt.Sprint(i)})
		}
		enqueue(t, d, q, jobs...)
		close(release)
		synctest.Wait()
		if took := time.Since(begin); left != 0 || took != 0 {
			t.Errorf("got %d jobs left after %v, want none in no time", left, took)
		}
		stop(q)
	})
}

// fill inserts ready jobs, spread over lanes, without announcing them.
func fill(t testing.TB, d *db.DB, jobs, lanes int) {
	t.Helper()
	write(t, d, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		INSERT INTO jobs (id, kind, lane, state, payload, run_at, created_at)
		SELECT 'job ' || (1000000000 + i), 'k', 'lane ' || (i % $2), 0, $3, 0, 0 FROM n`, jobs, lanes, []byte("payload"))
}

// TestLaneCapacity: a lane runs as many jobs as its capacity, which may change whenever a job ends; a
// smaller capacity loses no jobs.
func TestLaneCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		q := queue.Open(d, queue.Config{})
		var mu sync.Mutex
		room, running, most, done := 1, 0, 0, 0
		start(t, q, queue.Worker{
			Kind: "k", PerLane: 8, Concurrency: 100,
			LaneCapacity: func(lane string) int {
				mu.Lock()
				defer mu.Unlock()
				return map[string]int{"a": room, "b": 0, "c": 1000}[lane]
			},
			Run: func(_ context.Context, j *queue.Job) error {
				if j.Lane != "a" {
					time.Sleep(time.Second)
					return nil
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				running--
				done++
				return nil
			},
		})
		defer stop(q)
		var jobs []queue.New
		for _, lane := range []string{"a", "b", "c"} {
			for range 40 {
				jobs = append(jobs, queue.New{Kind: "k", Lane: lane})
			}
		}
		enqueue(t, d, q, jobs...)
		step := func(newRoom int, wait time.Duration, wantMost, wantDone int) {
			t.Helper()
			mu.Lock()
			room, most = newRoom, 0
			mu.Unlock()
			time.Sleep(wait)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if most != wantMost || done != wantDone {
				t.Errorf("room %d: got %d at once, %d done, want %d, %d", newRoom, most, done, wantMost, wantDone)
			}
		}
		step(1, 3500*time.Millisecond, 1, 3)
		step(4, 3*time.Second, 4, 12)
		step(1000, 2*time.Second, 8, 24)
		step(0, 3*time.Second, 1, 34) // at least one
		step(3, time.Minute, 3, 40)
		for lane, want := range map[string]int{"b": 0, "c": 0} {
			if got := count(t, d, "lane = '"+lane+"'"); got != want {
				t.Errorf("got %d jobs left in lane %s, want %d", got, lane, want)
			}
		}
	})
}

// Jobs that fail because of our database or files wait as long as necessary, in order, without
// counting attempts, and without flooding the log.
func TestOwnFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		var log bytes.Buffer
		q := queue.Open(d, queue.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		const outage = 6 * time.Hour // the default schedule ends after half an hour
		begin := time.Now()
		var ran []string
		var tried []time.Duration
		done := make(chan struct{})
		start(t, q, queue.Worker{
			Kind: "k", Ordered: true,
			Run: func(_ context.Context, j *queue.Job) error {
				if j.Attempt != 0 {
					t.Errorf("got attempt %d, want 0", j.Attempt)
				}
				if since := time.Since(begin); since < outage {
					tried = append(tried, since)
					return fmt.Errorf("load: %w", problem.New(problem.Unavailable, "away").Because(errors.New("disk full")))
				}
				if ran = append(ran, string(j.Payload)); len(ran) == 3 {
					close(done)
				}
				return nil
			},
			Discard: func(context.Context, *db.Tx, *queue.Job, error) error {
				t.Error("a job was discarded")
				return nil
			},
		})
		defer stop(q)
		for _, payload := range []string{"a", "b", "c"} {
			enqueue(t, d, q, queue.New{Kind: "k", Lane: "l", Payload: []byte(payload)})
		}
		<-done
		if late := time.Since(begin) - outage; late > 67*time.Second {
			t.Errorf("done %v after the outage, want at most a minute and a tenth", late)
		}
		if !slices.Equal(ran, []string{"a", "b", "c"}) {
			t.Errorf("ran %q, want a, b, c once each", ran)
		}
		if wait := tried[1] - tried[0]; wait < time.Second || wait > 1100*time.Millisecond {
			t.Errorf("the first wait was %v, want about a second", wait)
		}
		for i := range tried[1:] {
			want := min(max((tried[i]-tried[0])/4, time.Second), time.Minute)
			if wait := tried[i+1] - tried[i]; wait < want || wait > want+want/10+time.Second {
				t.Errorf("waited %v after %v, want a quarter of that, from a second to a minute", wait, tried[i]-tried[0])
			}
		}
		if begin, end := bytes.Count(log.Bytes(), []byte("disk full")), bytes.Count(log.Bytes(), []byte("recovered")); begin != 1 || end != 1 {
			t.Errorf("%d lines about the outage and %d about its end, want one each", begin, end)
		}
	})
}
