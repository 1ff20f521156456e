package live

import (
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// burstLength is for how long news is gathered.
	burstLength = 250 * time.Millisecond
	// burstTopics is how many topics of a kind are told of one by one.
	burstTopics = 16
)

// burst is what was told of an organization a moment ago: topics by their kind.
type burst map[string]map[string]struct{}

// PublishSoon is [Hub.Publish] for what changes thousands of times a second: at once
// after a quiet time, and else gathered for a quarter of a second, in which many
// topics of a kind ("ride:1", "ride:2", ...) become "ride:*", any of them. When
// nobody can hear it, it costs next to nothing.
func (h *Hub) PublishSoon(organizationID, topic string) {
	h.mu.Lock()
	if h.closed || len(h.subs[organizationID]) == 0 && !h.db.Postgres() {
		h.advanceMark(organizationID)
		h.mu.Unlock()
		return
	}
	if b, gathering := h.bursts[organizationID]; gathering {
		kind, _, _ := strings.Cut(topic, ":")
		if b[kind] == nil {
			b[kind] = make(map[string]struct{})
		}
		if len(b[kind]) <= burstTopics {
			b[kind][topic] = struct{}{}
		}
		h.advanceMark(organizationID)
		h.mu.Unlock()
		return
	}
	h.startBurst(organizationID)
	h.mu.Unlock()
	h.Publish(organizationID, topic)
}

// startBurst begins a burst. The lock is held.
func (h *Hub) startBurst(organizationID string) {
	if h.bursts == nil {
		h.bursts = make(map[string]burst)
	}
	h.bursts[organizationID] = make(burst)
	time.AfterFunc(burstLength, func() { h.endBurst(organizationID) })
}

// endBurst tells what was gathered, and begins the next burst unless there was
// nothing.
func (h *Hub) endBurst(organizationID string) {
	h.mu.Lock()
	var topics []string
	for kind, told := range h.bursts[organizationID] {
		if len(told) > burstTopics {
			topics = append(topics, kind+":*")
			continue
		}
		topics = slices.AppendSeq(topics, maps.Keys(told))
	}
	delete(h.bursts, organizationID)
	if len(topics) > 0 && !h.closed {
		h.startBurst(organizationID)
	}
	h.mu.Unlock()
	if len(topics) > 0 {
		h.Publish(organizationID, topics...)
	}
}
