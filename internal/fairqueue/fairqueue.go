// Package fairqueue shares a bounded capacity between parties by round-robin, so that a busy party
// does not starve the rest.
//
// Requests of one party are served in their order; parties are served round-robin, one request
// each. So a party waits for at most one request of every other waiting party, however many
// each has queued. Both the queue of a party and all queues together are bounded, and when they
// are full the longest queue loses its newest request.
package fairqueue

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// ErrCrowded is the error of a request that was dropped, or refused, because the queues are
// full.
var ErrCrowded = errors.New("too many requests are waiting")

// Config configures a [Queue]. All numbers are positive.
type Config struct {
	Capacity int64 // of all requests served at the same time
	PerKey   int   // waiting requests of one party
	Waiting  int   // waiting requests of all parties
}

// Queue admits requests. It is safe for concurrent use.
type Queue struct {
	c Config

	mu      sync.Mutex
	free    int64
	waiting int
	parties map[string]*party
	turns   list.List // of *party: parties with waiting requests, next turn first
}

// party is a key with granted or waiting requests.
type party struct {
	key   string
	held  int64
	queue list.List     // of *request
	turn  *list.Element // in Queue.turns; nil while queue is empty
}

// request is a waiting request.
type request struct {
	n, most int64
	ready   chan struct{} // closed when it was granted or dropped
	granted bool
}

// New returns a queue. It panics unless c is valid.
func New(c Config) *Queue {
	if c.Capacity < 1 || c.PerKey < 1 || c.Waiting < 1 {
		panic("fairqueue: the configuration must be positive")
	}
	return &Queue{c: c, free: c.Capacity, parties: make(map[string]*party)}
}

// Capacity returns the shared capacity.
func (q *Queue) Capacity() int64 { return q.c.Capacity }

// Acquire waits for n units of the capacity for the party key, which may use at most most units
// at a time; 0 means no limit. The caller calls release once, when done; release is non-nil if
// the error is nil.
//
// The error is ctx's, or [ErrCrowded] if the queues are full. Acquire panics if n is below 1 or
// above the limits.
func (q *Queue) Acquire(ctx context.Context, key string, n, most int64) (release func(), err error) {
	if most == 0 {
		most = q.c.Capacity
	}
	if n < 1 || n > most || most > q.c.Capacity {
		panic("fairqueue: a request must fit")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &request{n: n, most: most, ready: make(chan struct{})}
	release = func() { q.release(key, n) }

	q.mu.Lock()
	p := q.parties[key]
	if p == nil {
		p = &party{key: key}
		q.parties[key] = p
	}
	if q.waiting == 0 && q.fits(p, r) {
		q.grant(p, r)
		q.mu.Unlock()
		return release, nil
	}
	if p.queue.Len() >= q.c.PerKey || q.waiting >= q.c.Waiting && !q.dropLongest(p) {
		q.removeIdle(p)
		q.mu.Unlock()
		return nil, ErrCrowded
	}
	at := q.enqueue(p, r)
	q.serve() // smaller requests may fit now
	q.mu.Unlock()

	select {
	case <-r.ready:
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		select {
		case <-r.ready: // concurrently
			if r.granted {
				return release, nil
			}
		default:
			q.dequeue(p, at)
			q.serve()
		}
		return nil, ctx.Err()
	}
	if !r.granted {
		return nil, ErrCrowded
	}
	return release, nil
}

// fits reports whether r can be granted now. q.mu is held here and below.
func (q *Queue) fits(p *party, r *request) bool { return r.n <= q.free && !q.full(p, r) }

// full reports whether a party is at its own limit.
func (q *Queue) full(p *party, r *request) bool {
	return p.held+r.n > r.most
}

func (q *Queue) grant(p *party, r *request) {
	q.free -= r.n
	p.held += r.n
	r.granted = true
	close(r.ready)
}

func (q *Queue) enqueue(p *party, r *request) *list.Element {
	q.waiting++
	if p.turn == nil {
		p.turn = q.turns.PushBack(p)
	}
	return p.queue.PushBack(r)
}

func (q *Queue) dequeue(p *party, at *list.Element) {
	q.waiting--
	p.queue.Remove(at)
	if p.queue.Len() == 0 {
		q.turns.Remove(p.turn)
		p.turn = nil
	}
	q.removeIdle(p)
}

// removeIdle removes a party without requests.
func (q *Queue) removeIdle(p *party) {
	if p.held == 0 && p.queue.Len() == 0 {
		delete(q.parties, p.key)
	}
}

// serve grants requests in turns. It skips parties at their own limit. It waits for a request
// that lacks only free capacity, so that small requests do not starve large ones.
func (q *Queue) serve() {
	for e := q.turns.Front(); e != nil; {
		p := e.Value.(*party)
		at := p.queue.Front()
		r := at.Value.(*request)
		if q.full(p, r) {
			e = e.Next()
			continue
		}
		if r.n > q.free {
			return
		}
		q.grant(p, r)
		q.turns.MoveToBack(e)
		q.dequeue(p, at)
		e = q.turns.Front()
	}
}

// dropLongest makes room for a request of p: the longest queue loses its newest request. It
// returns false if that is p's own queue.
func (q *Queue) dropLongest(p *party) bool {
	longest := p
	for e := q.turns.Front(); e != nil; e = e.Next() {
		if other := e.Value.(*party); other.queue.Len() > longest.queue.Len() {
			longest = other
		}
	}
	if longest == p {
		return false
	}
	at := longest.queue.Back()
	close(at.Value.(*request).ready)
	q.dequeue(longest, at)
	return true
}

func (q *Queue) release(key string, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.parties[key]
	p.held -= n
	q.free += n
	q.removeIdle(p)
	q.serve()
}
