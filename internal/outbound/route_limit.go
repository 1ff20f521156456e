package outbound

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// perRoute is how many messages are on their way to one far side at once, in
	// this process.
	perRoute = 16
	// maxMemory bounds what the files of messages under way take in this process,
	// and routeMemory what those to one far side do, in bytes. One message may go
	// there however large it is.
	maxMemory   = 128 << 20
	routeMemory = maxMemory / 2
)

// routes are the far sides that messages are on their way to, or that asked for
// rest.
type routes struct {
	mu     sync.Mutex
	by     map[string]*route
	memory int64
}

type route struct {
	underWay int
	memory   int64
	rest     time.Time // nothing goes before
}

// acquire takes a place on the way to a far side for a message whose files take so
// much memory, at most maxMemory; leave gives both back. Without a place, it returns
// how long to wait before asking again. Nobody waits in it: what hangs would hold up
// those behind it, wherever they go.
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
		// Not all at once, and not so often that the waiting is work.
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

// pause lets nothing go to a far side for a while: it is asking for that.
func (r *routes) pause(to string, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.by[to]; w != nil {
		w.rest = time.Now().Add(d)
	}
}
