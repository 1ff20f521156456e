// Package bodypool reads request bodies within bounded memory, so that clients that send much, or
// announce much and send little, do not block other clients.
//
// Memory is reserved as bytes arrive, never for an announced length. A body must arrive at a
// minimum rate. When memory is short, the client with the most memory gives way: its longest
// idle body is evicted. A body of that client itself waits. When all bodies wait for each
// other, the newest is evicted, so that the oldest always makes progress.
package bodypool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	// firstChunk is the initial reservation in bytes; each further one doubles it.
	firstChunk = 64 << 10
	// A body must arrive within grace plus one second per minRate bytes, or the rate of the pool,
	// without a pause longer than grace.
	grace   = 10 * time.Second
	minRate = 256 << 10
	// stalled is the pause after which a body gives way to another one of its client.
	stalled = time.Second
	// maxWait is how long a body waits for memory.
	maxWait = 10 * time.Second
)

// RetryAfter is how long a refused client should wait.
const RetryAfter = 5 * time.Second

// The errors of [Pool.Read], beside [*http.MaxBytesError] and errors of the connection.
var (
	ErrSlow    = errors.New("the body arrived too slowly")
	ErrCrowded = errors.New("too many large requests at once")
)

// Pool is the memory of all bodies. It is safe for concurrent use.
type Pool struct {
	total, perClient int64
	rate             int64 // bytes per second

	mu       sync.Mutex
	used     int64
	complete int // number of completely read bodies that hold memory
	clients  map[string]*client
	last     uint64        // number of the last body
	changed  chan struct{} // closed and replaced when waiting bodies should check again
}

// client is a source address with its bodies.
type client struct {
	used    int64
	reading map[*Body]struct{}
}

// Body is a request body with its reserved memory.
type Body struct {
	Bytes []byte

	pool     *Pool
	key      string
	number   uint64 // in order of arrival
	held     int64
	conn     *http.ResponseController
	start    time.Time
	progress time.Time // time of the last byte, or the last wait for memory
	waiting  bool
	evicted  bool
	complete bool
}

// New returns a pool of total bytes, of which one client holds at most perClient. A larger body
// can never be read.
func New(total, perClient int64) *Pool {
	if perClient < firstChunk || total < perClient {
		panic("bodypool: the bounds are too small")
	}
	return &Pool{total: total, perClient: perClient, rate: minRate, clients: make(map[string]*client), changed: make(chan struct{})}
}

// NewSlow returns a pool like [New] for bodies that may arrive at a lower rate, in bytes per second.
func NewSlow(total, perClient, rate int64) *Pool {
	p := New(total, perClient)
	p.rate = rate
	return p
}

// Read reads the body of r, up to limit bytes, on behalf of the client key. The caller calls
// [Body.Release] when it no longer needs the bytes, also after an error.
func (p *Pool) Read(w http.ResponseWriter, r *http.Request, key string, limit int64) (*Body, error) {
	now := time.Now()
	b := &Body{pool: p, key: key, conn: http.NewResponseController(w), start: now, progress: now}
	if r.ContentLength > limit {
		return b, &http.MaxBytesError{Limit: limit}
	}
	if r.Body == nil || r.ContentLength == 0 {
		return b, nil
	}
	p.enter(b)
	err := b.fill(r.Context(), http.MaxBytesReader(w, r.Body, limit), r.ContentLength, limit)
	if err == nil {
		// After an error the deadline stays: the server still reads to the end of the body
		// before it closes the connection.
		_ = b.conn.SetReadDeadline(time.Time{}) // in-memory connections have none
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ErrSlow
	}
	if p.finish(b) {
		err = ErrCrowded
	}
	return b, err
}

// fill reads the body. announced is negative if unknown.
func (b *Body) fill(ctx context.Context, from io.Reader, announced, limit int64) error {
	want := announced
	if want < 0 {
		want = limit + 1 // one more, to detect the end
	}
	for {
		if len(b.Bytes) == cap(b.Bytes) {
			size := min(want, max(firstChunk, 2*int64(cap(b.Bytes))))
			if size == int64(cap(b.Bytes)) {
				return b.end(from)
			}
			if err := b.pool.reserve(ctx, b, size); err != nil {
				return err
			}
			b.Bytes = append(make([]byte, 0, size), b.Bytes...)
		}
		if !b.pool.extend(b) {
			return ErrCrowded
		}
		n, err := from.Read(b.Bytes[len(b.Bytes):cap(b.Bytes)])
		b.Bytes = b.Bytes[:len(b.Bytes)+n]
		b.pool.advance(b, n)
		if err == io.EOF {
			if int64(len(b.Bytes)) < announced {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the body: %w", err)
		}
	}
}

// end expects the end of a body after all announced bytes.
func (b *Body) end(from io.Reader) error {
	if !b.pool.extend(b) {
		return ErrCrowded
	}
	var one [1]byte
	_, err := io.ReadFull(from, one[:])
	if err == io.EOF {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	return errors.New("the body is longer than announced")
}

// Release frees the memory. The bytes must not be used afterwards. It is idempotent.
func (b *Body) Release() {
	p := b.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	b.Bytes = nil
	if b.complete {
		b.complete = false
		p.complete--
	}
	p.free(b)
}

// enter registers a body.
func (p *Pool) enter(b *Body) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	b.number = p.last
	c := p.clients[b.key]
	if c == nil {
		c = &client{reading: make(map[*Body]struct{})}
		p.clients[b.key] = c
	}
	c.reading[b] = struct{}{}
}

// finish unregisters b and reports whether it was evicted.
func (p *Pool) finish(b *Body) (evicted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clients[b.key]
	delete(c.reading, b)
	if !b.evicted {
		b.complete = true
		p.complete++
	}
	p.removeIdle(b.key, c)
	return b.evicted
}

func (p *Pool) removeIdle(key string, c *client) {
	if c.used == 0 && len(c.reading) == 0 {
		delete(p.clients, key)
	}
}

// free releases b's memory. The lock is held, as for all methods below that do not lock.
func (p *Pool) free(b *Body) {
	if b.held == 0 {
		return
	}
	c := p.clients[b.key]
	p.used -= b.held
	c.used -= b.held
	b.held = 0
	p.removeIdle(b.key, c)
	p.signal()
}

func (p *Pool) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// extend sets the read deadline for further bytes. It returns false if b was evicted.
func (p *Pool) extend(b *Body) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.evicted {
		return false
	}
	line := b.start.Add(grace + time.Duration(len(b.Bytes))*time.Second/time.Duration(p.rate))
	if pause := b.progress.Add(grace); pause.Before(line) {
		line = pause
	}
	_ = b.conn.SetReadDeadline(line) // in-memory connections have none
	return true
}

// advance records progress.
func (p *Pool) advance(b *Body, n int) {
	if n == 0 {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	b.progress = now
}

// reserve waits until b holds size bytes.
func (p *Pool) reserve(ctx context.Context, b *Body, size int64) error {
	began := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() {
		waited := time.Since(began)
		b.waiting, b.progress, b.start = false, time.Now(), b.start.Add(waited) // the wait does not count against the sender
	}()
	for {
		if b.evicted {
			return ErrCrowded
		}
		c, n := p.clients[b.key], size-b.held
		if p.used+n <= p.total && c.used+n <= p.perClient {
			p.used += n
			c.used += n
			b.held = size
			return nil
		}
		if other := p.victim(b, c, n); other != nil {
			p.evict(other)
			continue
		}
		left := maxWait - time.Since(began)
		if left <= 0 {
			return ErrCrowded
		}
		if !b.waiting {
			b.waiting = true
			p.signal() // another body's turn may depend on it
		}
		if err := p.wait(ctx, min(left, stalled)); err != nil {
			return err
		}
	}
}

// wait releases the lock until a change, at most for d.
func (p *Pool) wait(ctx context.Context, d time.Duration) error {
	changed := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// victim returns the body to evict for b, which needs n more bytes, or nil if b waits.
func (p *Pool) victim(b *Body, own *client, n int64) *Body {
	greediest := own
	if own.used+n <= p.perClient {
		most := own.used + n
		for _, c := range p.clients {
			if c.used > most {
				greediest, most = c, c.used
			}
		}
	}
	if greediest != own {
		return idlest(greediest, nil)
	}
	if other := idlest(own, b); other != nil && !other.waiting && time.Since(other.progress) >= stalled {
		return other
	}
	// Bodies being processed will release memory. If there are none, the oldest continues.
	if p.complete > 0 {
		return nil
	}
	if own.used+n > p.perClient {
		return newestWaiting(own, b)
	}
	var newest *Body
	for _, c := range p.clients {
		other := newestWaiting(c, b)
		if other == nil && !(c == own && len(c.reading) == 1) {
			return nil
		}
		if other != nil && (newest == nil || other.number > newest.number) {
			newest = other
		}
	}
	return newest
}

// newestWaiting returns the newest of a client's bodies, if all of them except b are newer than
// b and wait for memory, or else nil.
func newestWaiting(c *client, b *Body) *Body {
	var newest *Body
	for other := range c.reading {
		if other == b {
			continue
		}
		if !other.waiting || other.number < b.number {
			return nil
		}
		if other.held > 0 && (newest == nil || other.number > newest.number) {
			newest = other
		}
	}
	return newest
}

// idlest returns the client's body without progress for longest, except one; waiting ones come
// last.
func idlest(c *client, except *Body) *Body {
	var found *Body
	for b := range c.reading {
		if b == except || b.held == 0 {
			continue
		}
		if found == nil || found.waiting && !b.waiting || found.waiting == b.waiting && b.progress.Before(found.progress) {
			found = b
		}
	}
	return found
}

// evict ends b and frees its memory.
func (p *Pool) evict(b *Body) {
	b.evicted = true
	_ = b.conn.SetReadDeadline(time.Unix(1, 0)) // unblocks a pending read
	p.free(b)
}
