package apikey

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Refusal is why a token does not open anything. It is in the chain of what
// [Service.Authenticate] returns: errors.AsType[Refusal].
type Refusal uint8

// The refusals, in the order in which they are looked for.
const (
	Missing          Refusal = iota + 1 // there is no token
	Malformed                           // shape or checksum
	WrongEnvironment                    // of the prefix
	Unknown                             // or deleted, or another service's
	KeyIsRevoked
	KeyIsExpired
	IPNotAllowed
)

func (r Refusal) Error() string {
	switch r {
	case Missing:
		return "there is no API key"
	case Malformed:
		return "the API key is mistyped or incomplete"
	case WrongEnvironment:
		return "the API key belongs to the other environment"
	case Unknown:
		return "the API key is not known"
	case KeyIsRevoked:
		return "the API key is revoked"
	case KeyIsExpired:
		return "the API key is expired"
	case IPNotAllowed:
		return "the API key does not work from this address"
	}
	return fmt.Sprintf("refusal %d", uint8(r))
}

// refuse returns the refusal as a problem.
func refuse(r Refusal) error {
	kind := problem.Unauthorized
	if r == IPNotAllowed {
		kind = problem.Forbidden
	}
	return &problem.Error{Kind: kind, Message: r.Error(), Cause: r}
}

// Request is what a caller shows of itself.
type Request struct {
	Token       string
	Service     ServiceName // that is asked for
	Environment Environment // that is asked for
	IP          netip.Addr  // of the client; zero when it is not known
}

// Authenticate returns the key that a request's token opens, or a problem whose
// cause is a [Refusal]: the steps 2 to 4 of fleet-api.md 3.3. The key must not
// be changed; its last use may be an older one's. That it is used now is written
// down later. Other errors are the database's.
func (s *Service) Authenticate(ctx context.Context, r Request) (*Key, error) {
	if r.Token == "" {
		return nil, refuse(Missing)
	}
	t, err := Parse(r.Token)
	if err != nil {
		return nil, refuse(Malformed)
	}
	if t.Environment() != r.Environment {
		return nil, refuse(WrongEnvironment)
	}
	k, err := s.current(ctx, t.digest())
	if errors.Is(err, db.ErrNoRows) || err == nil && (k.Service != r.Service || k.Environment != r.Environment) {
		return nil, refuse(Unknown)
	}
	if err != nil {
		return nil, fmt.Errorf("look up key: %w", err)
	}
	now := time.Now()
	switch k.Status(now) {
	case Revoked:
		return nil, s.recordRefusal(ctx, k, KeyIsRevoked)
	case Expired:
		return nil, s.recordRefusal(ctx, k, KeyIsExpired)
	}
	if !k.AllowedIPs.Allow(r.IP) {
		return nil, s.recordRefusal(ctx, k, IPNotAllowed)
	}
	s.recordUse(k.ID, now, r.IP)
	return k, nil
}

// API is where a key works: the API of a service in an environment.
type API struct {
	Service     ServiceName
	Environment Environment
}

// APIOf returns where the key of a token works; false if the token is malformed or
// opens nothing. It serves answers to requests that came to the wrong address.
func (s *Service) APIOf(ctx context.Context, token string) (API, bool) {
	t, err := Parse(token)
	if err != nil {
		return API{}, false
	}
	k, err := s.current(ctx, t.digest())
	if err != nil || k.Status(time.Now()) != Active {
		return API{}, false
	}
	return API{k.Service, k.Environment}, true
}

// recordRefusal records that a known key was refused, and returns the refusal.
func (s *Service) recordRefusal(ctx context.Context, k *Key, r Refusal) error {
	e := k.entry(KeyRefused, nil)
	e.Details = map[string]any{"reason": r.Error()}
	s.audit.Refuse(ctx, e)
	return refuse(r)
}

// current returns the key with a digest as it is now.
func (s *Service) current(ctx context.Context, digest [sha256.Size]byte) (*Key, error) {
	var version int64
	if err := s.db.Lookup(ctx, "SELECT version FROM api_keys WHERE digest = $1", digest[:]).Scan(&version); err != nil {
		return nil, err
	}
	if k := s.keys.get(digest); k != nil && k.version == version {
		return k, nil
	}
	k, err := scan(s.db.Lookup(ctx, "SELECT "+columns+" FROM api_keys WHERE digest = $1", digest[:]))
	if err != nil {
		return nil, err
	}
	s.keys.put(digest, &k)
	return &k, nil
}

// maxCached bounds the keys in memory.
const maxCached = 10_000

// keyCache keeps keys as they were at their version. Whether that is still theirs
// is for the database to say.
type keyCache struct {
	mu sync.RWMutex
	by map[[sha256.Size]byte]*Key
}

func (m *keyCache) get(digest [sha256.Size]byte) *Key {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.by[digest]
}

func (m *keyCache) put(digest [sha256.Size]byte, k *Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil || len(m.by) >= maxCached {
		m.by = make(map[[sha256.Size]byte]*Key)
	}
	m.by[digest] = k
}
