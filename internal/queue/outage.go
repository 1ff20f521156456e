package queue

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Bounds of the wait of a job that failed because our database or files are unavailable. The
// wait is a quarter of the outage so far.
const (
	leastOutageWait = time.Second
	mostOutageWait  = time.Minute
	// outageEnd is the time without failures after which the next one starts a new outage.
	outageEnd = 2 * mostOutageWait
	// outageLog is the least time between log lines about the same failure.
	outageLog = time.Minute
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

// wait records a failure and returns the wait of a job created at the given time, and the start
// of the outage. Young jobs wait less than old ones, so an intermittent failure delays nothing
// for long.
func (o *outage) wait(created, now time.Time) (wait time.Duration, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.last) > outageEnd {
		o.began = now
	}
	o.last = now
	lasted := min(now.Sub(o.began), now.Sub(created))
	return min(max(lasted/4, leastOutageWait), mostOutageWait), o.began
}

// logLimiter limits a repeated log line to one per [outageLog] and counts the suppressed ones.
// It is safe for concurrent use.
type logLimiter struct {
	mu     sync.Mutex
	last   time.Time
	passed int // since last
}

// next counts an event. It reports whether to log it, and how many occurred since the last
// logged one, including this one.
func (s *logLimiter) next(now time.Time) (count int, log bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passed++
	if !s.last.IsZero() && now.Sub(s.last) < outageLog {
		return s.passed, false
	}
	count, s.passed, s.last = s.passed, 0, now
	return count, true
}

// waitForStore schedules a job again after our database or files failed. It never counts an
// attempt.
func (r *runner) waitForStore(ctx context.Context, j *Job, err error) error {
	wait, since := r.outage.wait(j.CreatedAt, time.Now())
	wait += rand.N(wait/10 + 1)
	if count, log := r.outageLog.next(time.Now()); log {
		r.logger(j).Error("database or files unavailable; jobs wait without counting attempts",
			"error", err, "since", since, "jobs", count, "in", wait)
	}
	return r.writeEnd(ctx, func(ctx context.Context, tx *db.Tx) error { return j.RescheduleTx(ctx, tx, tx.Now.Add(wait)) })
}
