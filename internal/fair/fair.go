// Package fair shares a bounded capacity between parties in turns, so that one
// that wants much does not keep the others waiting.
//
// Requests of one party are served in their order; parties are served round-robin,
// one request each. A party that waits at all therefore waits for at most one
// request of every other waiting party, however many those have queued. Both the
// queue of a party and all queues together are bounded, and when there is no room
// the longest queue loses its newest request.
package fair

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// ErrCrowded is the error of a request for which there is no room to wait.
var ErrCrowded = errors.New("too many requests are waiting")

// Config is what a [Queue] is made of. All numbers are positive.
type Config struct {
	Capacity int64 // of all requests that are served at the same time
	PerKey   int   // requests of one party that wait at the same time
	Waiting  int   // requests of all parties that wait at the same time
}

// Queue is safe for concurrent use.
type Queue struct {
	c Config

	mu      sync.Mutex
	free    int64
	waiting int
	parties map[string]*party
	turns   list.List // of *party: those with requests that wait, whose turn is next in front
}

// party is one that holds or waits.
type party struct {
	key   string
	held  int64
	queue list.List     // of *request
	turn  *list.Element // in Queue.turns; nil while queue is empty
}

// request waits.
type request struct {
	n, most int64
	ready   chan struct{} // closed when it was granted or dropped
	granted bool
}

// New returns a queue. It panics unless c is valid.
func New(c Config) *Queue {
	if c.Capacity < 1 || c.PerKey < 1 || c.Waiting < 1 {
		panic("fair: the configuration must be positive")
	}
	return &Queue{c: c, free: c.Capacity, parties: make(map[string]*party)}
}

// Capacity returns what is shared.
func (q *Queue) Capacity() int64 { return q.c.Capacity }

// Acquire waits for n of the capacity, on behalf of the party key, which holds at
// most most of it at once; 0 means no limit. The caller calls release once, when it
// is done. Without an error release is not nil.
//
// The error is ctx's when that ends first, and [ErrCrowded] when there is no room to
// wait. Acquire panics when n is not within 1 and the limits.
func (q *Queue) Acquire(ctx context.Context, key string, n, most int64) (release func(), err error) {
	if most == 0 {
		most = q.c.Capacity
	}
	if n < 1 || n > most || most > q.c.Capacity {
		panic("fair: a request must fit")
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
	q.serve() // others may wait for what does not fit them
	q.mu.Unlock()

	select {
	case <-r.ready:
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		select {
		case <-r.ready: // at the same time
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

// fits reports whether r can be granted now. The lock is held, as for all below.
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

// removeIdle drops what is not needed of a party.
func (q *Queue) removeIdle(p *party) {
	if p.held == 0 && p.queue.Len() == 0 {
		delete(q.parties, p.key)
	}
}

// serve grants what fits, in turns. A party at its own limit is passed over; one
// that only lacks free capacity is waited for, so that large requests are not
// starved by small ones.
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

// dropLongest makes room for a request of p: the longest queue loses its newest.
// It reports false when that is p's own.
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
