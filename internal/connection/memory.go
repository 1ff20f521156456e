package connection

import (
	"sync"
	"time"
)

// Fresh is how long a connection is believed to be as it was read.
const Fresh = time.Second

// maxRemembered bounds the connections in memory. Only addresses that exist are
// remembered, so strangers cannot fill it.
const maxRemembered = 10_000

// memory keeps connections that were just read, by medium and address.
type memory struct {
	mu      sync.RWMutex
	by      map[place]remembered
	changes int // how often something changed
}

type place struct{ medium, address string }

type remembered struct {
	connection *Connection
	read       time.Time
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
		if ok && now.Sub(r.read) < Fresh {
			found = append(found, r.connection)
		} else {
			missing = append(missing, address)
		}
	}
	return found, missing, moment{now, m.changes}
}

// keep remembers a connection, unless something has changed since it began to
// be read.
func (m *memory) keep(medium string, c *Connection, since moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != since.changes {
		return
	}
	if m.by == nil || len(m.by) >= maxRemembered {
		m.by = make(map[place]remembered)
	}
	m.by[place{medium, c.Address}] = remembered{c, since.time}
}

// forget drops everything: something changed.
func (m *memory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	m.by = nil
}
