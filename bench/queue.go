package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// noopJobs measures a backlog of jobs that do nothing, claimed, run and finished by one process.
// The ceiling is no ceiling but a peer: river, on the same PostgreSQL, after the same backlog.
func noopJobs(ctx context.Context, b *bench) ([]row, error) {
	n := b.scale(50_000)
	s, err := b.newStore(ctx, postgres, "queue")
	if err != nil {
		return nil, err
	}
	defer b.remove(s)
	ours, err := runJobs(ctx, s, n)
	if err != nil {
		return nil, err
	}
	const what = "jobs that do nothing, one process, PostgreSQL (ceiling: river)"
	theirs, err := b.river(ctx, n)
	if err != nil {
		fmt.Fprintf(os.Stderr, "postgres queue: without river: %v\n", err)
		return []row{{What: what, Got: rate(ours), Aim: "≥ 1"}}, nil
	}
	return []row{besideCeiling(what, ours, theirs, "≥ 1")}, nil
}

// runJobs returns the rate of n jobs in 10,000 lanes, from the start of the queue to its stop.
func runJobs(ctx context.Context, s *store, n int) (float64, error) {
	d, err := db.Open(ctx, s.url, db.Options{})
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if _, err := d.Migrate(ctx, db.Helpdesk); err != nil {
		return 0, err
	}
	q := queue.Open(d, queue.Config{Logger: errorLogger()})
	defer q.Stop(context.WithoutCancel(ctx))
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	q.Handle(queue.Worker{Kind: "bench", PerLane: 8, Concurrency: 512, Run: func(context.Context, *queue.Job) error {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	}})
	const batch = 1000
	for first := 0; first < n; first += batch {
		var jobs []queue.New
		for i := first; i < min(first+batch, n); i++ {
			jobs = append(jobs, queue.New{Kind: "bench", Lane: strconv.Itoa(i % 10_000), Payload: make([]byte, 200)})
		}
		if err := d.Write(ctx, func(tx *db.Tx) error { return q.EnqueueTx(ctx, tx, jobs...) }); err != nil {
			return 0, err
		}
	}
	if err := s.exec(ctx, "ANALYZE"); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := q.Start(ctx); err != nil {
		return 0, err
	}
	select {
	case <-done:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	q.Stop(ctx)
	took := time.Since(start)
	unfinished, err := count(ctx, d, "SELECT count(*) FROM jobs")
	if err == nil && unfinished > 0 {
		err = fmt.Errorf("%d jobs are left", unfinished)
	}
	return perSecond(n, took), err
}

// river builds and runs bench/river, and returns river's rate.
func (b *bench) river(ctx context.Context, n int) (float64, error) {
	program := filepath.Join(b.dir, "river")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir = filepath.Join("bench", "river")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build bench/river: %w: %s", err, out)
	}
	s, err := b.newStore(ctx, postgres, "queue-river")
	if err != nil {
		return 0, err
	}
	defer b.remove(s)
	cmd := exec.CommandContext(ctx, program, "-url", s.url, "-jobs", strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("bench/river: %w", err)
	}
	var got struct{ PerSecond float64 }
	err = json.Unmarshal(out, &got)
	return got.PerSecond, err
}
