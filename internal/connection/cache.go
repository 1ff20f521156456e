package connection

import (
	"sync"
	"time"
)

// CacheTTL is how long a connection is believed to be as it was read.
const CacheTTL = time.Second

// maxRemembered bounds the addresses in memory.
const maxRemembered = 10_000

// memory keeps connections that were just read, by medium and address. It also
// keeps that an address has none, but believes it only beside another that has
// one: a new connection must not wait.
type memory struct {
	mu       sync.RWMutex
	by       map[place]rememberedAt
	ids      map[string]remembered
	held     map[string]held       // by channels and the credential's name
	channels map[string]ofChannels // by names
	changes  int                   // how often something changed
}

type place struct{ medium, address string }

type remembered struct {
	connection *Connection
	read       time.Time
}

type rememberedAt struct {
	connections []*Connection // none: the address has none
	read        time.Time
}

// moment is when, and after how many changes, a reading began.
type moment struct {
	time    time.Time
	changes int
}

// recall returns the connections that are known, the addresses that must be
// asked for, and the moment, for [memory.keep].
func (m *memory) recall(medium string, addresses []string) (found []*Connection, missing []string, since moment) {
	now := time.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, address := range addresses {
		r, ok := m.by[place{medium, address}]
		switch {
		case !ok || now.Sub(r.read) >= CacheTTL:
			missing = append(missing, address)
		default:
			found = append(found, r.connections...)
		}
	}
	if len(found) == 0 {
		missing = addresses
	}
	return found, missing, moment{now, m.changes}
}

// keep remembers what was read at the addresses, unless something has changed
// since it began to be read.
func (m *memory) keep(medium string, addresses []string, read []*Connection, since moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != since.changes {
		return
	}
	if m.by == nil || len(m.by)+len(addresses) > maxRemembered {
		m.by = make(map[place]rememberedAt)
	}
	for _, address := range addresses {
		m.by[place{medium, address}] = rememberedAt{nil, since.time}
	}
	for _, c := range read {
		at := m.by[place{medium, c.Address}]
		m.by[place{medium, c.Address}] = rememberedAt{append(at.connections, c), since.time}
	}
}

// forget drops everything: something changed.
func (m *memory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	m.by, m.ids, m.held, m.channels = nil, nil, nil, nil
}
