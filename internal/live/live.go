// Package live tells pages that are open that something they show has changed.
//
// News is a topic, such as "ticket:0198…", of one organization; it says that
// there is something to look at and never what. It is a hint: a page that misses
// some is out of date until it is looked at again, and nothing else. So the hub
// keeps none of it, waits for nobody, and gives a page that is slow to take its
// news the topic [Everything] in place of many. What it does keep is how much there
// was ([Hub.Mark]): whoever was away finds out whether something was missed.
//
// Processes that share a PostgreSQL database tell each other.
package live

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Everything is the topic of whoever may have missed some.
const Everything = "*"

// channel carries news between processes: "instance organization topic".
const channel = "kickstand_live"

// maxPending bounds the topics that wait for one subscriber.
const maxPending = 256

// maxCounted bounds for how many organizations the hub knows how much there was.
const maxCounted = 100_000

// Hub passes news on. It is safe for concurrent use.
type Hub struct {
	db       *db.DB
	notifier *db.Notifier
	instance string

	mu     sync.Mutex
	subs   map[string]map[*Subscription]struct{} // by organization
	bursts map[string]burst                      // by organization, see TellSoon
	counts map[string]uint64                     // how often, by organization
	age    uint64                                // how often told was forgotten
	closed bool
}

// Open returns a hub of what happens in d. It hears of other processes while
// [Hub.Run] runs.
func Open(d *db.DB) *Hub {
	return &Hub{
		db: d, notifier: d.NewNotifier(channel), instance: uuid.NewString(),
		subs: make(map[string]map[*Subscription]struct{}), counts: make(map[string]uint64),
	}
}

// Mark returns where an organization's news is. When it is the same later, in the
// same process, nothing was told in between; when it is not, something may have
// been.
func (h *Hub) Mark(organizationID string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.instance + "." + strconv.FormatUint(h.age, 36) + "." + strconv.FormatUint(h.counts[organizationID], 36)
}

// advanceMark moves an organization's mark on. The lock is held.
func (h *Hub) advanceMark(organizationID string) {
	if len(h.counts) >= maxCounted {
		h.resetMarks()
	}
	h.counts[organizationID]++
}

// resetMarks moves every mark on. The lock is held.
func (h *Hub) resetMarks() {
	clear(h.counts)
	h.age++
}

// Run hears what other processes tell, until ctx ends.
func (h *Hub) Run(ctx context.Context) { h.db.Listen(ctx, channel, h.receive) }

func (h *Hub) receive(payload string) {
	if payload == "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.resetMarks()
		for _, subs := range h.subs {
			for s := range subs {
				s.add([]string{Everything})
			}
		}
		return
	}
	fields := strings.SplitN(payload, " ", 3)
	if len(fields) == 3 && fields[0] != h.instance {
		h.dispatch(fields[1], fields[2:])
	}
}

// Publish passes news of an organization on, here and to the other processes. It
// waits for nothing, and is called after the commit of what it is about.
func (h *Hub) Publish(organizationID string, topics ...string) {
	h.dispatch(organizationID, topics)
	for _, t := range topics {
		h.notifier.Notify(h.instance + " " + organizationID + " " + t)
	}
}

func (h *Hub) dispatch(organizationID string, topics []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advanceMark(organizationID)
	for s := range h.subs[organizationID] {
		s.add(topics)
	}
}

// Close ends every subscription, so that a server can stop.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, subs := range h.subs {
		for s := range subs {
			close(s.signal)
		}
	}
	clear(h.subs)
}

// Subscription is one reader of an organization's news.
type Subscription struct {
	hub          *Hub
	organization string
	signal       chan struct{} // capacity 1; closed with the hub

	mu      sync.Mutex
	pending map[string]struct{}
}

// Subscribe returns a subscription to what is told from now on. The caller
// closes it.
func (h *Hub) Subscribe(organizationID string) *Subscription {
	s := &Subscription{hub: h, organization: organizationID, signal: make(chan struct{}, 1), pending: make(map[string]struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(s.signal)
		return s
	}
	if h.subs[organizationID] == nil {
		h.subs[organizationID] = make(map[*Subscription]struct{})
	}
	h.subs[organizationID][s] = struct{}{}
	return s
}

// Close ends the subscription. Closing twice is fine.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	subs := s.hub.subs[s.organization]
	delete(subs, s)
	if len(subs) == 0 {
		delete(s.hub.subs, s.organization)
	}
}

// add notes news. The hub's lock is held, so that signal is not closed meanwhile.
func (s *Subscription) add(topics []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range topics {
		s.pending[t] = struct{}{}
	}
	if len(s.pending) > maxPending {
		clear(s.pending)
		s.pending[Everything] = struct{}{}
	}
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// Ready is ready, or closed with the hub, when [Subscription.Drain] has something.
func (s *Subscription) Ready() <-chan struct{} { return s.signal }

// Drain returns the topics told since it was last called, sorted.
func (s *Subscription) Drain() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	topics := slices.Sorted(maps.Keys(s.pending))
	clear(s.pending)
	return topics
}
