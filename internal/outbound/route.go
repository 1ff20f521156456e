package outbound

import (
	"math/rand/v2"
	"sync"
	"time"
)

// perRoute is how many messages are on their way to one far side at once, in this
// process.
const perRoute = 16

// routes are the far sides that messages are on their way to, or that asked for
// rest.
type routes struct {
	mu sync.Mutex
	by map[string]*route
}

type route struct {
	underWay int
	rest     time.Time // nothing goes before
}

// enter takes a place on the way to a far side, for leave to give back. Without
// one, it returns how long to wait before asking again.
func (r *routes) enter(to string) (wait time.Duration) {
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
	if w.underWay >= perRoute {
		// Not all at once, and not so often that the waiting is work.
		return 2*time.Second + rand.N(6*time.Second)
	}
	w.underWay++
	return 0
}

func (r *routes) leave(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.by[to]
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
