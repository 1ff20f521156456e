package inbox

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/web"
)

// presence records the members that have a ticket open, from the heartbeats of their
// browsers. It is in memory, for this process only.
type presence struct {
	mu      sync.Mutex
	tickets map[string]map[string]sighting // by ticket and member
}

type sighting struct {
	name    string
	writing bool
	at      time.Time
}

// presenceLife is the time after its last heartbeat for which a member is present.
const presenceLife = 45 * time.Second

// see records a heartbeat and reports whether the set of viewers changed.
func (p *presence) see(ticketID, userID, name string, writing bool, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tickets == nil {
		p.tickets = make(map[string]map[string]sighting)
	}
	there := p.tickets[ticketID]
	if there == nil {
		there = make(map[string]sighting)
		p.tickets[ticketID] = there
	}
	before, was := there[userID]
	there[userID] = sighting{name, writing, now}
	changed := !was || before.writing != writing
	for id, s := range there {
		if now.Sub(s.at) > presenceLife {
			delete(there, id)
			changed = true
		}
	}
	if len(p.tickets) > 1000 {
		maps.DeleteFunc(p.tickets, func(_ string, there map[string]sighting) bool {
			maps.DeleteFunc(there, func(_ string, s sighting) bool { return now.Sub(s.at) > presenceLife })
			return len(there) == 0
		})
	}
	return changed
}

// leave removes a member and reports whether they were present.
func (p *presence) leave(ticketID, userID string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, was := p.tickets[ticketID][userID]
	delete(p.tickets[ticketID], userID)
	if len(p.tickets[ticketID]) == 0 {
		delete(p.tickets, ticketID)
	}
	return was
}

// others describes the other viewers: "Ben is writing. Ada has it open too."
func (p *presence) others(ticketID, userID string, now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var writing, looking []string
	for id, s := range p.tickets[ticketID] {
		switch {
		case id == userID || now.Sub(s.at) > presenceLife:
		case s.writing:
			writing = append(writing, s.name)
		default:
			looking = append(looking, s.name)
		}
	}
	slices.Sort(writing)
	slices.Sort(looking)
	var text []string
	if len(writing) > 0 {
		text = append(text, joinNames(writing)+web.Count(len(writing), " is writing here.", " are writing here."))
	}
	if len(looking) > 0 {
		text = append(text, joinNames(looking)+web.Count(len(looking), " has this ticket open.", " have this ticket open."))
	}
	return strings.Join(text, " ")
}

// joinNames joins names with commas and "and".
func joinNames(list []string) string {
	switch {
	case len(list) > 3:
		return strings.Join(list[:2], ", ") + " and others"
	case len(list) > 1:
		return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
	}
	return list[0]
}
