package web

import "sync"

// The most open streams of news of one session, one person and one network. A
// browser needs one for all its tabs. A dead connection holds its place until the
// operating system gives it up, so the bounds leave room for some; that of networks
// also for an office behind one address.
const (
	sessionStreams = 6
	userStreams    = 24
	networkStreams = 500
)

// streams counts the open streams of news. The zero value is ready, and safe for
// concurrent use.
type streams struct {
	mu   sync.Mutex
	open map[string]int
}

// streamOwner identifies the owners of a stream, each with a bound of its own.
type streamOwner struct{ session, user, network string }

// enter counts a stream of an owner. The caller calls leave at its end. Beyond a
// bound ok is false, leave is nil and nothing is counted.
func (s *streams) enter(o streamOwner) (leave func(), ok bool) {
	keys := [...]string{"session " + o.session, "user " + o.user, "network " + o.network}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, most := range [...]int{sessionStreams, userStreams, networkStreams} {
		if s.open[keys[i]] >= most {
			return nil, false
		}
	}
	if s.open == nil {
		s.open = make(map[string]int)
	}
	for _, k := range keys {
		s.open[k]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, k := range keys {
			if s.open[k]--; s.open[k] == 0 {
				delete(s.open, k)
			}
		}
	}, true
}
