package queue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Several queues with connections of their own, as of several processes, run a backlog of jobs
// that do nothing: an operation is a job. On PostgreSQL, lock-% is the share of active server
// processes that wait for locks.
func BenchmarkProcesses(b *testing.B) {
	for _, lanes := range []int{64, 10_000} {
		for _, processes := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("lanes=%d/processes=%d", lanes, processes), func(b *testing.B) {
				benchProcesses(b, dbtest.URL(b), lanes, processes)
			})
		}
	}
}

func benchProcesses(b *testing.B, url string, lanes, processes int) {
	d := dbtest.Open(b, url)
	fill(b, d, b.N, lanes)
	if d.Postgres() {
		write(b, d, "ANALYZE jobs")
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	worker := queue.Worker{Kind: "k", PerLane: 8, Concurrency: 256, Run: func(context.Context, *queue.Job) error {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	}}
	var queues []*queue.Queue
	for range processes {
		queues = append(queues, queue.Open(dbtest.Open(b, url), queue.Config{}))
	}
	waits := watchLocks(b, d)
	b.ResetTimer()
	begin := time.Now()
	for _, q := range queues {
		start(b, q, worker)
	}
	<-done
	for _, q := range queues {
		q.Stop(context.Background())
	}
	b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "jobs/s")
	b.StopTimer()
	b.ReportMetric(waits(), "lock-%")
	if n := count(b, d, "1 = 1"); n != 0 {
		b.Errorf("%d jobs are left", n)
	}
}

// watchLocks samples the active processes of the database's server until the returned function is
// called, which returns the percentage that waited for locks.
func watchLocks(b *testing.B, d *db.DB) func() float64 {
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	var active, waiting int
	go func() {
		defer close(ended)
		for d.Postgres() && ctx.Err() == nil {
			var a, w int
			if err := d.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE wait_event_type = 'Lock') FROM pg_stat_activity
				WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()`).Scan(&a, &w); err == nil {
				active, waiting = active+a, waiting+w
			}
			loop.Pause(ctx, 5*time.Millisecond)
		}
	}()
	return func() float64 {
		cancel()
		<-ended
		return 100 * float64(waiting) / float64(max(active, 1))
	}
}
