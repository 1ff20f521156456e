package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Processes with wrong clocks keep leases and due times: the database's clock decides.
func TestWrongClocks(t *testing.T) {
	needPostgres(t)
	rawURL := dbtest.URL(t)
	fast := queue.Config{Lease: 400 * time.Millisecond, Poll: 20 * time.Millisecond}
	open := func(skew time.Duration) (*db.DB, *queue.Queue) {
		d, err := db.Open(t.Context(), rawURL, db.Options{MaxConns: 4, Wall: func() time.Time { return time.Now().Add(skew) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		q := queue.Open(d, fast)
		t.Cleanup(func() { stop(q) })
		return d, q
	}
	d, enqueuer := open(0)
	for _, test := range []struct {
		name          string
		holder, other time.Duration
	}{
		{"slow", -2 * time.Minute, 2 * time.Minute},
		{"fast", 2 * time.Minute, -2 * time.Minute},
	} {
		entered, release, stepped := make(chan *queue.Job, 10), make(chan struct{}), make(chan time.Time, 1)
		worker := queue.Worker{Kind: test.name, Run: func(ctx context.Context, j *queue.Job) error {
			entered <- j
			<-release
			return ctx.Err()
		}}
		_, holder := open(test.holder)
		start(t, holder, worker)
		enqueue(t, d, enqueuer, queue.New{Kind: test.name, Lane: "l"})
		receive(t, entered)
		// Meanwhile the other process looks for expired leases, for several leases.
		skewed, other := open(test.other)
		start(t, other, worker, queue.Worker{Kind: "step-" + test.name, Run: func(context.Context, *queue.Job) error {
			stepped <- d.Now()
			return nil
		}})
		due := skewed.Now().Add(3 * fast.Lease)
		enqueue(t, skewed, other, queue.New{Kind: "step-" + test.name, Lane: "l", RunAt: due})
		if at := receive(t, stepped); at.Sub(due) < -10*time.Millisecond || at.Sub(due) > 30*time.Second {
			t.Errorf("%s: a job due at %v ran at %v", test.name, due, at)
		}
		if len(entered) != 0 {
			t.Errorf("%s: the job was taken over from a process with another clock", test.name)
		}
		close(release)
		stop(holder)
		stop(other)
	}
}
