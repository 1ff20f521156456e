package connection

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// ByID returns a connection, enabled or not, possibly cached, or nil. It must not be modified.
func (s *Service) ByID(ctx context.Context, id string) (*Connection, error) {
	c, err := s.cache.byID.Load(id, func() (*Connection, error) {
		read, err := s.Find(ctx, id)
		return &read, err
	})
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return c, nil
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
	digests, err := s.cache.digests.Load(key, func() ([][sha256.Size]byte, error) { return s.readDigests(ctx, channels, name) })
	if err != nil {
		return false, err
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

// readDigests returns the digests of the named credential of the channels' enabled and proven
// connections.
func (s *Service) readDigests(ctx context.Context, channels []string, name string) (digests [][sha256.Size]byte, err error) {
	list, err := db.All(ctx, s.db, s.scan, "SELECT "+columns+" FROM connections WHERE channel = ANY($1) AND enabled AND proof = 'proven' ORDER BY id DESC LIMIT $2", channels, maxListed)
	for i := range list {
		if held := list[i].credentials[name]; held != "" {
			digests = append(digests, sha256.Sum256([]byte(held)))
		}
	}
	return digests, err
}
