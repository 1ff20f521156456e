package connection

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// ByID returns a connection, enabled or not, possibly cached, or nil. It must not be modified.
func (s *Service) ByID(ctx context.Context, id string) (*Connection, error) {
	c, since := s.cache.getID(id)
	if c != nil {
		return c, nil
	}
	read, err := s.Find(ctx, id)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.cache.putID(&read, since)
	return &read, nil
}

// maxListed bounds the connections read for a credential, newest first, because providers
// verify a connection when it is created. Older ones are found by id.
const maxListed = 1000

// HasCredential reports whether an enabled and proven connection of one of the channels has
// value as the named credential. Unproven ones are found only by id, so that a stranger's
// claims cannot hide a connection from its provider. An empty value never matches. It compares
// in constant time and reads the connections at most once per [CacheTTL].
func (s *Service) HasCredential(ctx context.Context, channels []string, name, value string) (bool, error) {
	if value == "" {
		return false, nil
	}
	channels = slices.Sorted(slices.Values(channels))
	key := strings.Join(channels, " ") + " " + name
	s.digestsMu.Lock() // concurrent callers share one read
	defer s.digestsMu.Unlock()
	digests, ok, since := s.cache.getDigests(key)
	if !ok {
		list, err := db.All(ctx, s.db, s.scan, "SELECT "+columns+" FROM connections WHERE channel = ANY($1) AND enabled AND proof = 'proven' ORDER BY id DESC LIMIT $2", channels, maxListed)
		if err != nil {
			return false, err
		}
		for i := range list {
			if held := list[i].credentials[name]; held != "" {
				digests = append(digests, sha256.Sum256([]byte(held)))
			}
		}
		s.cache.putDigests(key, digests, since)
	}
	presented := sha256.Sum256([]byte(value))
	found := false
	for i := range digests {
		if hmac.Equal(digests[i][:], presented[:]) {
			found = true
		}
	}
	return found, nil
}

// cachedDigests are digests of one credential of several connections.
type cachedDigests struct {
	digests [][sha256.Size]byte
	read    time.Time
}

func (m *cache) getID(id string) (*Connection, cacheVersion) {
	now := time.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	if r, ok := m.ids[id]; ok && now.Sub(r.read) < CacheTTL {
		return r.connection, cacheVersion{now, m.changes}
	}
	return nil, cacheVersion{now, m.changes}
}

func (m *cache) putID(c *Connection, since cacheVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != since.changes {
		return
	}
	if m.ids == nil || len(m.ids) >= maxCached {
		m.ids = make(map[string]cachedConnection)
	}
	m.ids[c.ID] = cachedConnection{c, since.time}
}

func (m *cache) getDigests(key string) ([][sha256.Size]byte, bool, cacheVersion) {
	now := time.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	h, ok := m.digests[key]
	return h.digests, ok && now.Sub(h.read) < CacheTTL, cacheVersion{now, m.changes}
}

func (m *cache) putDigests(key string, digests [][sha256.Size]byte, since cacheVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != since.changes {
		return
	}
	if m.digests == nil {
		m.digests = make(map[string]cachedDigests)
	}
	m.digests[key] = cachedDigests{digests, since.time}
}
