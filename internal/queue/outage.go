package queue

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Bounds of the wait of a job that failed because our database or files are unavailable. The
// wait is a quarter of the outage so far.
const (
	leastOutageWait = time.Second
	mostOutageWait  = time.Minute
	// outageEnd is the time without failures after which the next one starts a new outage.
	outageEnd = 2 * mostOutageWait
)

// isUnavailable reports whether err comes from our own database or files, so that the job is
// not to blame.
func isUnavailable(err error) bool { return problem.Of(err) == problem.Unavailable }

// outage measures how long our database or files have been failing. It is safe for concurrent
// use.
type outage struct {
	mu    sync.Mutex
	began time.Time
	last  time.Time
}

// wait records a failure and returns the wait of a job created at the given time. Young jobs wait less than old ones, so an intermittent failure delays nothing
// for long.
func (o *outage) wait(created, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.last) > outageEnd {
		o.began = now
	}
	o.last = now
	lasted := min(now.Sub(o.began), now.Sub(created))
	return min(max(lasted/4, leastOutageWait), mostOutageWait)
}

// troubles log work of the queue that fails repeatedly, of all kinds together.
type troubles struct {
	finding *loop.Trouble // jobs
	leases  *loop.Trouble // that could not be extended
	lost    *loop.Trouble // jobs that lost their lease
	waiting *loop.Trouble // jobs that wait for the database or files
	ends    *loop.Trouble // outcomes that could not be written
}

func newTroubles(log *slog.Logger) troubles {
	return troubles{
		finding: loop.NewTrouble(log, "finding jobs"),
		leases:  loop.NewTrouble(log, "extending leases"),
		lost:    loop.NewTrouble(log, "running jobs were claimed by another process or deleted"),
		waiting: loop.NewTrouble(log, "database or files unavailable; jobs wait without counting attempts"),
		ends:    loop.NewTrouble(log, "recording the end of jobs"),
	}
}

// ended notes that a job ended as it should.
func (t *troubles) ended(ctx context.Context) {
	t.lost.Succeeded(ctx)
	t.waiting.Succeeded(ctx)
	t.ends.Succeeded(ctx)
}

// waitForStore schedules a job again after our database or files failed. It never counts an
// attempt.
func (r *runner) waitForStore(ctx context.Context, j *Job, err error) error {
	wait := r.outage.wait(j.CreatedAt, r.q.db.Now())
	wait += rand.N(wait/10 + 1)
	r.q.troubles.waiting.Failed(ctx, err, "kind", r.Kind, "lane", j.Lane, "job", j.ID)
	return r.writeEnd(ctx, func(ctx context.Context, tx *db.Tx) error { return j.RescheduleTx(ctx, tx, tx.Now.Add(wait)) })
}
