package connection

import (
	"sync"
	"time"
)

// CacheTTL is how long a cached connection may be stale.
const CacheTTL = time.Second

// maxCached bounds the cached addresses.
const maxCached = 10_000

// cache caches recently read connections by medium and address. It also caches that an address
// has none, but uses that only together with another address that has one, so that a new
// connection works at once.
type cache struct {
	mu       sync.RWMutex
	by       map[addressKey]cachedAddress
	ids      map[string]cachedConnection
	digests  map[string]cachedDigests // by channels and name of the credential
	channels map[string]channelList   // by names of the channels
	changes  int                      // number of changes
}

type addressKey struct{ medium, address string }

type cachedConnection struct {
	connection *Connection
	read       time.Time
}

type cachedAddress struct {
	connections []*Connection // empty if the address has none
	read        time.Time
}

// cacheVersion is the time and the number of changes at the start of a read.
type cacheVersion struct {
	time    time.Time
	changes int
}

// get returns the cached connections, the addresses to query, and the version for [cache.put].
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

// put caches connections read at the addresses, unless a connection has changed since the read
// began.
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

// clear evicts everything after a change.
func (m *cache) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	m.by, m.ids, m.digests, m.channels = nil, nil, nil, nil
}
