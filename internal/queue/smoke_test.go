package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

func TestSmoke(t *testing.T) {
	d := dbtest.New(t)
	q := queue.Open(d, queue.Config{})
	const n = 2000
	var mu sync.Mutex
	seen := map[string]int{}
	done := make(chan struct{})
	total := 0
	q.Handle(queue.Worker{Kind: "k", Concurrency: 256, PerLane: 4, Run: func(ctx context.Context, j *queue.Job) error {
		return d.Write(ctx, func(tx *db.Tx) error {
			tx.AfterCommit(func() {
				mu.Lock()
				defer mu.Unlock()
				seen[j.ID]++
				if total++; total == n {
					close(done)
				}
			})
			return j.Finish(ctx, tx)
		})
	}})
	ctx := t.Context()
	for i := range n / 2 {
		if err := d.Write(ctx, func(tx *db.Tx) error {
			return q.Enqueue(ctx, tx, queue.New{Kind: "k", Lane: fmt.Sprint("lane", i%100), RunAt: tx.Now.Add(time.Duration(i%3) * 100 * time.Millisecond)})
		}); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	if err := q.Start(ctx); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range n / 16 {
				if err := d.Write(ctx, func(tx *db.Tx) error {
					return q.Enqueue(ctx, tx, queue.New{Kind: "k", Lane: fmt.Sprint("b", w, i)})
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("stuck", total)
	}
	t.Log(time.Since(start))
	q.Stop(ctx)
	for id, n := range seen {
		if n != 1 {
			t.Error(id, n)
		}
	}
	var left int
	d.QueryRow(ctx, "SELECT count(*) FROM jobs").Scan(&left)
	if left != 0 {
		t.Error(left)
	}
}
