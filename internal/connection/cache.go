package connection

import (
	"sync"
	"time"
)

// CacheTTL is how long a connection is believed to be as it was read.
const CacheTTL = time.Second

// maxCached bounds the addresses in memory.
const maxCached = 10_000

// cache keeps connections that were just read, by medium and address. It also
// keeps that an address has none, but believes it only beside another that has
// one: a new connection must not wait.
type cache struct {
	mu       sync.RWMutex
	by       map[addressKey]cachedAddress
	ids      map[string]cachedConnection
	digests     map[string]cachedDigests       // by channels and the credential's name
	channels map[string]channelList // by names
	changes  int                   // how often something changed
}

type addressKey struct{ medium, address string }

type cachedConnection struct {
	connection *Connection
	read       time.Time
}

type cachedAddress struct {
	connections []*Connection // none: the address has none
	read        time.Time
}

// cacheVersion is when, and after how many changes, a reading began.
type cacheVersion struct {
	time    time.Time
	changes int
}

// get returns the connections that are known, the addresses that must be
// asked for, and the moment, for [cache.keep].
func (m *cache) get(medium string, addresses []string) (found []*Connection, missing []string, since cacheVersion) {
	now := time.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, address := range addresses {
		r, ok := m.by[addressKey{medium, address}]
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
	return found, missing, cacheVersion{now, m.changes}
}

// put remembers what was read at the addresses, unless something has changed
// since it began to be read.
func (m *cache) put(medium string, addresses []string, read []*Connection, since cacheVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != since.changes {
		return
	}
	if m.by == nil || len(m.by)+len(addresses) > maxCached {
		m.by = make(map[addressKey]cachedAddress)
	}
	for _, address := range addresses {
		m.by[addressKey{medium, address}] = cachedAddress{nil, since.time}
	}
	for _, c := range read {
		at := m.by[addressKey{medium, c.Address}]
		m.by[addressKey{medium, c.Address}] = cachedAddress{append(at.connections, c), since.time}
	}
}

// clear drops everything: something changed.
func (m *cache) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	m.by, m.ids, m.digests, m.channels = nil, nil, nil, nil
}
