package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Jobs that end at the same time are finished together. One that was deleted or claimed again
// meanwhile spoils nothing for the others, and is not deleted if it was claimed again.
func TestFinishTogether(t *testing.T) {
	const jobs = 300
	d := dbtest.New(t)
	q := queue.Open(d, queue.Config{})
	var entered sync.WaitGroup
	entered.Add(jobs)
	release := make(chan struct{})
	start(t, q, queue.Worker{Kind: "k", Concurrency: jobs, Run: func(context.Context, *queue.Job) error {
		entered.Done()
		<-release
		return nil
	}})
	var list []queue.New
	for i := range jobs {
		list = append(list, queue.New{Kind: "k", Lane: fmt.Sprint(i)})
	}
	enqueue(t, d, q, list...)
	entered.Wait()
	write(t, d, "DELETE FROM jobs WHERE lane = '17'")
	write(t, d, "UPDATE jobs SET lease = 'another' WHERE lane = '18'")
	close(release)
	q.Stop(t.Context())
	if n, other := count(t, d, "1 = 1"), count(t, d, "lane = '18'"); n != 1 || other != 1 {
		t.Errorf("got %d jobs left, %d of them claimed again; want only that one", n, other)
	}
}

// A lane that another process is claiming, also a previous version that waits for the lane's lock,
// delays no other lane and runs afterwards.
func TestLaneClaimedElsewhere(t *testing.T) {
	needPostgres(t)
	d := dbtest.New(t)
	q := queue.Open(d, queue.Config{})
	ran := make(chan *queue.Job, 10)
	start(t, q, queue.Worker{Kind: "k", Run: func(_ context.Context, j *queue.Job) error {
		ran <- j
		return nil
	}})
	defer stop(q)
	refused := errors.New("refused")
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(hashtextextended('lane/k/locked', 0))"); err != nil {
			return err
		}
		enqueue(t, d, q, queue.New{Kind: "k", Lane: "locked"}, queue.New{Kind: "k", Lane: "free"})
		if j := receive(t, ran); j.Lane != "free" {
			t.Errorf("a job of lane %q ran, want the free one", j.Lane)
		}
		enqueue(t, d, q, queue.New{Kind: "k", Lane: "free too"})
		if j := receive(t, ran); j.Lane != "free too" {
			t.Errorf("a job of lane %q ran, want the free one", j.Lane)
		}
		return refused
	})
	if err != refused {
		t.Fatal(err)
	}
	if j := receive(t, ran); j.Lane != "locked" {
		t.Errorf("a job of lane %q ran, want the other one", j.Lane)
	}
}

// A transaction that holds the row of a running job delays the leases of no other job, and the job
// keeps its lease meanwhile.
func TestLeasesBesideLockedJob(t *testing.T) {
	needPostgres(t)
	d := dbtest.New(t)
	q := queue.Open(d, queue.Config{Lease: 4 * time.Second})
	leasedUntil := func() (at int64) {
		if err := d.QueryRow(t.Context(), "SELECT coalesce(max(lease_until), 0) FROM jobs WHERE lane = 'other' AND state = 2").Scan(&at); err != nil {
			t.Error(err)
		}
		return at
	}
	ended, release := make(chan error, 2), make(chan struct{})
	start(t, q, queue.Worker{Kind: "k", Run: func(ctx context.Context, j *queue.Job) error {
		if j.Lane == "other" {
			<-release
			ended <- context.Cause(ctx)
			return nil
		}
		err := d.Write(ctx, func(tx *db.Tx) error {
			if err := j.CheckLeaseTx(ctx, tx); err != nil {
				return err
			}
			for leasedUntil() == 0 && ctx.Err() == nil {
			}
			for first := leasedUntil(); leasedUntil() == first && ctx.Err() == nil; {
			}
			return context.Cause(ctx)
		})
		close(release)
		ended <- err
		return nil
	}})
	defer stop(q)
	enqueue(t, d, q, queue.New{Kind: "k", Lane: "locked"}, queue.New{Kind: "k", Lane: "other"})
	for range 2 {
		if err := receive(t, ended); err != nil {
			t.Errorf("a job ended with %v", err)
		}
	}
}

// The jobs of a claim are prepared together, before they run. One that was not prepared runs as
// well, and so do all if preparing panics.
func TestPrepare(t *testing.T) {
	const jobs = 40
	for _, panics := range []bool{false, true} {
		d := dbtest.New(t)
		q := queue.Open(d, queue.Config{})
		var list []queue.New
		for i := range jobs {
			list = append(list, queue.New{Kind: "k", Lane: fmt.Sprint(i % 10)})
		}
		enqueue(t, d, q, list...)
		var mu sync.Mutex
		got := make(map[any]int)
		var ran sync.WaitGroup
		ran.Add(jobs)
		start(t, q, queue.Worker{
			Kind: "k", PerLane: 4, Concurrency: jobs,
			Prepare: func(_ context.Context, some []*queue.Job) {
				for i, j := range some {
					if i > 0 {
						j.Prepared = j.ID
					}
				}
				if panics {
					panic("refused")
				}
			},
			Run: func(_ context.Context, j *queue.Job) error {
				defer ran.Done()
				mu.Lock()
				defer mu.Unlock()
				got[j.Prepared == j.ID]++
				if j.Prepared != nil && j.Prepared != j.ID {
					t.Errorf("job %s got what was prepared for %v", j.ID, j.Prepared)
				}
				return nil
			},
		})
		ran.Wait()
		q.Stop(t.Context())
		if got[true] < jobs/2 || got[false] == 0 {
			t.Errorf("panics %t: got %v, want most jobs prepared", panics, got)
		}
	}
}
