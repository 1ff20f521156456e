package db

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"
)

// pool is a bounded set of connections. It closes connections that were idle for a while.
type pool[T any] struct {
	*puddle.Pool[T]
	spare int           // so many connections stay open
	idle  time.Duration // after which others are closed

	forever atomic.Bool // idle connections stay open
	mu      sync.Mutex
	sweeps  bool // a sweep is scheduled
}

func newPool[T any](limit, spare int, idle time.Duration, open func(context.Context) (T, error), shut func(T)) *pool[T] {
	p := &pool[T]{spare: spare, idle: idle}
	// The only error is a limit below 1.
	p.Pool, _ = puddle.NewPool(&puddle.Config[T]{Constructor: open, Destructor: shut, MaxSize: int32(limit)})
	return p
}

// acquire returns an idle or a new connection, waiting for one if all are in use.
func (p *pool[T]) acquire(ctx context.Context) (*puddle.Resource[T], error) {
	r, err := p.Acquire(ctx)
	if errors.Is(err, puddle.ErrClosedPool) {
		err = errClosed
	}
	return r, err
}

// release returns a connection, or closes a broken one.
func (p *pool[T]) release(r *puddle.Resource[T], broken bool) {
	if broken {
		r.Destroy()
		return
	}
	r.Release()
	p.schedule(p.idle)
}

// schedule calls sweep after a while, unless that is about to happen.
func (p *pool[T]) schedule(after time.Duration) {
	if p.forever.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sweeps {
		p.sweeps = true
		time.AfterFunc(after, p.sweep)
	}
}

// sweep closes the connections that were idle for too long.
func (p *pool[T]) sweep() {
	next := time.Duration(0)
	open := int(p.Stat().TotalResources())
	for _, r := range p.AcquireAllIdle() {
		left := p.idle - r.IdleDuration()
		switch {
		case open <= p.spare:
			r.ReleaseUnused()
		case left <= 0:
			r.Destroy()
			open--
		default:
			r.ReleaseUnused()
			next = max(next, left)
		}
	}
	p.mu.Lock()
	p.sweeps = false
	p.mu.Unlock()
	if next > 0 {
		p.schedule(next)
	}
}

// Stats are figures of the connections that read from SQLite, or of all connections to
// PostgreSQL.
type Stats struct {
	Open  int           // connections
	InUse int           // of these
	Limit int           // of Open
	Waits int64         // calls that waited for a connection, in total
	Wait  time.Duration // of these calls, in total
}

func (p *pool[T]) stats() Stats {
	s := p.Stat()
	return Stats{
		Open: int(s.TotalResources()), InUse: int(s.AcquiredResources()), Limit: int(s.MaxResources()),
		Waits: s.EmptyAcquireCount(), Wait: s.EmptyAcquireWaitTime(),
	}
}
