// Package live notifies open pages of changes.
//
// A change is published as a topic, such as "ticket:0198…", of one organization; it carries no
// data. Delivery is not guaranteed: a page that misses a topic is stale until its next load,
// nothing worse. So the hub stores no topics, never blocks, and replaces the topics of a slow
// subscriber by [Everything]. It does count publications ([Hub.Version]), so that a client that
// reconnects can detect whether it may have missed one.
//
// Processes that share a PostgreSQL database notify each other.
package live

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Everything is the topic of a subscriber that may have missed others.
const Everything = "*"

// channel is the PostgreSQL channel between processes. Payload: "instance organization topic".
const channel = "kickstand_live"

// maxPending bounds the pending topics of a subscriber.
const maxPending = 256

// maxCounted bounds the organizations with a count.
const maxCounted = 100_000

// Hub distributes topics. It is safe for concurrent use.
type Hub struct {
	db       *db.DB
	notifier *db.Notifier
	instance string

	mu     sync.Mutex
	subs   map[string]map[*Subscription]struct{} // by organization
	bursts map[string]burst                      // by organization, see PublishSoon
	counts map[string]uint64                     // publications by organization
	age    uint64                                // number of resets of counts
	typing map[string]time.Time                  // by organization and topic, see ReportTyping
	closed bool
}

// Open returns a hub. It receives from other processes while [Hub.Run] runs.
func Open(d *db.DB) *Hub {
	return &Hub{
		db: d, notifier: d.NewNotifier(channel), instance: uuid.NewString(),
		subs: make(map[string]map[*Subscription]struct{}), counts: make(map[string]uint64),
	}
}

// Version returns a marker of an organization's publications. An equal marker later, of the same
// process, means that nothing was published in between; a different one means that something
// may have been.
func (h *Hub) Version(organizationID string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.instance + "." + strconv.FormatUint(h.age, 36) + "." + strconv.FormatUint(h.counts[organizationID], 36)
}

// advanceMark changes an organization's mark. h.mu is held.
func (h *Hub) advanceMark(organizationID string) {
	if len(h.counts) >= maxCounted {
		h.resetMarks()
	}
	h.counts[organizationID]++
}

// resetMarks changes all marks. h.mu is held.
func (h *Hub) resetMarks() {
	clear(h.counts)
	h.age++
}

// Run receives topics from other processes until ctx ends.
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

// Publish sends topics to an organization's subscribers, in this process and in others. Call it
// after the commit of the change. It does not block.
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
	h.recordTyping(organizationID, topics)
	for s := range h.subs[organizationID] {
		s.add(topics)
	}
}

// Close ends all subscriptions, so that a server can stop.
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

// Subscription receives the topics of an organization.
type Subscription struct {
	hub          *Hub
	organization string
	signal       chan struct{} // capacity 1; closed with the hub

	mu      sync.Mutex
	pending map[string]struct{}
}

// Subscribe returns a subscription to the topics published from now on. The caller
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

// Close ends the subscription. It is idempotent.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	subs := s.hub.subs[s.organization]
	delete(subs, s)
	if len(subs) == 0 {
		delete(s.hub.subs, s.organization)
	}
}

// add adds pending topics. The hub's lock is held, so that signal is not closed meanwhile.
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

// Ready returns a channel that receives when [Subscription.Drain] has topics, and is closed
// with the hub.
func (s *Subscription) Ready() <-chan struct{} { return s.signal }

// Drain returns the topics published since its last call, sorted.
func (s *Subscription) Drain() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	topics := slices.Sorted(maps.Keys(s.pending))
	clear(s.pending)
	return topics
}
