package live

import (
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// burstLength is the time over which topics are collected.
	burstLength = 250 * time.Millisecond
	// burstTopics is the number of topics of a kind that are sent one by one.
	burstTopics = 16
)

// burst is the topics collected for an organization, by kind.
type burst map[string]map[string]struct{}

// PublishCoalesced is [Hub.Publish] for changes that occur thousands of times a second: immediate
// after a quiet period, else collected for a quarter of a second. More than 16 topics of a kind
// ("ride:1", "ride:2", ...) become "ride:*". Without subscribers it is nearly free.
func (h *Hub) PublishCoalesced(organizationID, topic string) {
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

// startBurst starts a burst. h.mu is held.
func (h *Hub) startBurst(organizationID string) {
	if h.bursts == nil {
		h.bursts = make(map[string]burst)
	}
	h.bursts[organizationID] = make(burst)
	time.AfterFunc(burstLength, func() { h.endBurst(organizationID) })
}

// endBurst publishes the collected topics, and starts the next burst if there were any.
func (h *Hub) endBurst(organizationID string) {
	h.mu.Lock()
	var topics []string
	for kind, collected := range h.bursts[organizationID] {
		if len(collected) > burstTopics {
			topics = append(topics, kind+":*")
			continue
		}
		topics = slices.AppendSeq(topics, maps.Keys(collected))
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
