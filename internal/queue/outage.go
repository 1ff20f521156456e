package queue

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// What a job waits that our own store kept from its work: a quarter of the time that
// the outage has lasted, within these bounds.
const (
	leastOutageWait = time.Second
	mostOutageWait  = time.Minute
	// outageEnd is how long after the last failure the next one begins another outage.
	outageEnd = 2 * mostOutageWait
	// outageLog is how often the log repeats that something goes on failing.
	outageLog = time.Minute
)

// isUnavailable reports whether err is a failure of our own database or files, which says
// nothing about the job.
func isUnavailable(err error) bool { return problem.Of(err) == problem.Unavailable }

// outage remembers since when our own store has kept jobs from their work. It is safe
// for concurrent use.
type outage struct {
	mu    sync.Mutex
	began time.Time
	last  time.Time
}

// wait notes a failure of a job, and returns how long the job waits and since when the
// outage lasts. A young job waits less than an old one, so that a store that fails now
// and then delays nothing for long.
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

// logLimiter lets one of many like events through in outageLog, and counts the others. It
// is safe for concurrent use.
type logLimiter struct {
	mu     sync.Mutex
	last   time.Time
	passed int // since last
}

// next counts an event. It reports whether to log it, and how many there were since the
// last that was logged, this one included.
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

// waitForStore has a job run again that our own store kept from its work. It counts no
// attempt, however often that happens.
func (r *runner) waitForStore(ctx context.Context, j *Job, err error) error {
	wait, since := r.outage.wait(j.CreatedAt, time.Now())
	wait += rand.N(wait/10 + 1)
	if count, log := r.outageLog.next(time.Now()); log {
		r.logger(j).Error("the database or the files cannot be used; jobs wait, and no attempt is counted",
			"error", err, "since", since, "jobs", count, "in", wait)
	}
	return r.writeEnd(ctx, func(ctx context.Context, tx *db.Tx) error { return j.Wait(ctx, tx, tx.Now.Add(wait)) })
}
