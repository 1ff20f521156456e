// Command river runs a backlog of jobs that do nothing on github.com/riverqueue/river and
// prints their rate, as JSON. It is the peer of Kickstand's queue in `go run ./bench`, and a
// module of its own so that the program does not depend on it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

// noop is a job with a payload of 200 bytes.
type noop struct {
	Payload string `json:"payload"`
}

func (noop) Kind() string { return "noop" }

// worker does nothing, and closes done after the last job.
type worker struct {
	river.WorkerDefaults[noop]
	left atomic.Int64
	done chan struct{}
}

func (w *worker) Work(context.Context, *river.Job[noop]) error {
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
	return nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("river", flag.ContinueOnError)
	url := f.String("url", "", "`URL` of an empty PostgreSQL database")
	jobs := f.Int("jobs", 10_000, "`number` of jobs")
	if err := f.Parse(args); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(*url)
	if err != nil {
		return err
	}
	config.MaxConns = 24 // as Kickstand's
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New[pgx.Tx](driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	w := &worker{done: make(chan struct{})}
	w.left.Store(int64(*jobs))
	workers := river.NewWorkers()
	river.AddWorker[noop](workers, w)
	// As river's own benchmark configures it.
	client, err := river.NewClient(driver, &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2_000}},
		Workers:           workers,
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	if err := insert(ctx, client, *jobs); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "ANALYZE"); err != nil {
		return err
	}
	start := time.Now()
	if err := client.Start(ctx); err != nil {
		return err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := client.Stop(ctx); err != nil { // writes the last completions
		return err
	}
	took := time.Since(start)
	var left int
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state <> 'completed'").Scan(&left); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%d jobs are not completed", left)
	}
	return json.NewEncoder(out).Encode(map[string]float64{"PerSecond": float64(*jobs) / took.Seconds()})
}

func insert(ctx context.Context, client *river.Client[pgx.Tx], n int) error {
	const batch = 1000
	payload := strings.Repeat("x", 200)
	for first := 0; first < n; first += batch {
		list := make([]river.InsertManyParams, min(batch, n-first))
		for i := range list {
			list[i].Args = noop{payload}
		}
		if _, err := client.InsertManyFast(ctx, list); err != nil {
			return err
		}
	}
	return nil
}
