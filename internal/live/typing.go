package live

import (
	"maps"
	"strings"
	"time"
)

const (
	typingTopic = "typing:"
	// typingLife is how long a report of typing counts.
	typingLife = 10 * time.Second
	// typingPause is the least time between reports about a ticket that are published.
	typingPause = 3 * time.Second
	// maxTyping bounds the reports in memory.
	maxTyping = 10_000
)

// ReportTyping records that a ticket's customer types, in all processes, and publishes the topic
// presence:TICKET now and when the report ends. Frequent reports are coalesced.
func (h *Hub) ReportTyping(organizationID, ticketID string) {
	now, key := h.db.Now(), organizationID+" "+typingTopic+ticketID
	h.mu.Lock()
	recent := h.closed || now.Sub(h.typing[key]) < typingPause
	h.mu.Unlock()
	if recent {
		return
	}
	h.Publish(organizationID, typingTopic+ticketID, "presence:"+ticketID)
	time.AfterFunc(typingLife+time.Second, func() { h.Publish(organizationID, "presence:"+ticketID) })
}

// StopTyping ends a report: the customer's message has arrived.
func (h *Hub) StopTyping(organizationID, ticketID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.typing, organizationID+" "+typingTopic+ticketID)
}

// Typing reports whether a ticket's customer types.
func (h *Hub) Typing(organizationID, ticketID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.typing[organizationID+" "+typingTopic+ticketID]
	return ok && h.db.Now().Sub(at) < typingLife
}

// recordTyping records the reports among topics. h.mu is held.
func (h *Hub) recordTyping(organizationID string, topics []string) {
	for _, topic := range topics {
		if !strings.HasPrefix(topic, typingTopic) {
			continue
		}
		now := h.db.Now()
		if h.typing == nil {
			h.typing = make(map[string]time.Time)
		}
		if len(h.typing) >= maxTyping {
			maps.DeleteFunc(h.typing, func(_ string, at time.Time) bool { return now.Sub(at) >= typingLife })
		}
		if len(h.typing) < maxTyping {
			h.typing[organizationID+" "+topic] = now
		}
	}
}
