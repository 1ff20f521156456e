package outbound

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// perRoute bounds the messages in flight on one route in this process.
	perRoute = 16
	// maxMemory bounds the file contents in memory of all routes, routeMemory of one,
	// in bytes. A single message may exceed routeMemory.
	maxMemory   = 128 << 20
	routeMemory = maxMemory / 2
)

// routes limits the messages in flight per route, and honours pauses that a
// provider asks for.
type routes struct {
	mu     sync.Mutex
	by     map[string]*route
	memory int64
}

type route struct {
	underWay int
	memory   int64
	rest     time.Time // no message before
}

// acquire takes a slot on a route for a message with files of memory bytes, at most
// maxMemory; release returns it. Without a free slot it returns the time to wait
// before the next try. It never blocks, so that a slow route does not delay other
// routes.
func (r *routes) acquire(to string, memory int64) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = make(map[string]*route)
	}
	w := r.by[to]
	if w == nil {
		w = new(route)
		r.by[to] = w
	}
	if rest := time.Until(w.rest); rest > 0 {
		return rest + rand.N(time.Second)
	}
	if w.underWay >= perRoute || w.memory > 0 && w.memory+memory > routeMemory || r.memory+memory > maxMemory {
		// Spread out, and seldom enough that waiting costs little.
		return 2*time.Second + rand.N(6*time.Second)
	}
	w.underWay++
	w.memory += memory
	r.memory += memory
	return 0
}

func (r *routes) release(to string, memory int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.by[to]
	w.memory -= memory
	r.memory -= memory
	if w.underWay--; w.underWay == 0 && !w.rest.After(time.Now()) {
		delete(r.by, to)
	}
}

// pause stops a route for d.
func (r *routes) pause(to string, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.by[to]; w != nil {
		w.rest = time.Now().Add(d)
	}
}
