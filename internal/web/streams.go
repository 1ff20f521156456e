package web

import (
	"strings"
	"sync"
)

// Limits of open event streams per session, user and network. A browser needs one for all
// tabs. A dead connection counts until the operating system closes it, so the limits
// leave room; that of networks also for an office behind one address.
const (
	sessionStreams = 6
	userStreams    = 24
	networkStreams = 500
)

// streams counts open event streams. The zero value is ready, and safe for concurrent
// use.
type streams struct {
	mu   sync.Mutex
	open map[string]int
}

// streamOwner holds the keys of a stream's three limits.
type streamOwner struct{ session, user, network string }

// total returns the number of open streams.
func (s *streams) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := 0
	for k, n := range s.open {
		if strings.HasPrefix(k, "session ") {
			total += n
		}
	}
	return total
}

// enter counts a stream of an owner; the caller calls leave when it ends. At a limit ok
// is false, leave is nil and the stream is not counted.
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
