package queue_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// The benchmarks enqueue jobs that do nothing and run them to their end, with
// everything durable: an operation is a job.

// Jobs that are enqueued in one transaction, and clients that do so at once.
const (
	benchGroup   = 64
	benchClients = 8
)

func BenchmarkLanes64(b *testing.B)    { benchLanes(b, dbtest.URL(b), 64) }
func BenchmarkLanes10000(b *testing.B) { benchLanes(b, dbtest.URL(b), 10_000) }

func benchLanes(b *testing.B, url string, lanes int) {
	d := dbtest.Open(b, url)
	q := queue.Open(d, queue.Config{Poll: time.Hour})
	// Enough to saturate a runner that makes two commits per job, without piling up a backlog.
	waiting := make(chan struct{}, 8*benchGroup*benchClients)
	q.Handle(queue.Worker{Kind: "bench", PerLane: 8, Concurrency: 512, Run: func(context.Context, *queue.Job) error {
		<-waiting
		return nil
	}})
	if err := q.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 200)
	work := make(chan int)
	var clients sync.WaitGroup
	for range benchClients {
		clients.Go(func() {
			jobs := make([]queue.New, benchGroup)
			for first := range work {
				for i := range jobs {
					jobs[i] = queue.New{Kind: "bench", Lane: strconv.Itoa((first + i) % lanes), Payload: payload}
					waiting <- struct{}{}
				}
				if err := d.Write(context.Background(), func(tx *db.Tx) error { return q.EnqueueTx(context.Background(), tx, jobs...) }); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.ReportAllocs()
	n, start := 0, time.Now()
	for b.Loop() {
		if n++; n%benchGroup == 0 {
			work <- n
		}
	}
	close(work)
	clients.Wait()
	for range cap(waiting) { // until every job has run
		waiting <- struct{}{}
	}
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "jobs/s")
	q.Stop(context.Background())
	var left int
	if err := d.QueryRow(context.Background(), "SELECT count(*) FROM jobs").Scan(&left); err != nil || left != 0 {
		b.Errorf("%d jobs are left, %v", left, err)
	}
}

// An operation is one job, from before it is enqueued until it runs, when
// nothing else does.
func BenchmarkOneAtATime(b *testing.B) {
	d := dbtest.Open(b, dbtest.URL(b))
	q := queue.Open(d, queue.Config{Poll: time.Hour})
	ran := make(chan struct{})
	start(b, q, queue.Worker{Kind: "bench", Run: func(context.Context, *queue.Job) error {
		ran <- struct{}{}
		return nil
	}})
	for b.Loop() {
		enqueue(b, d, q, queue.New{Kind: "bench", Lane: "lane"})
		<-ran
	}
	q.Stop(context.Background())
}
