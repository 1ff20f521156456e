package apikey

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Refusal is the reason why a token is refused. It is in the error chain of
// [Service.Authenticate]: errors.AsType[Refusal].
type Refusal uint8

// The refusals, in the order of the checks.
const (
	Missing          Refusal = iota + 1 // no token
	Malformed                           // wrong shape or checksum
	WrongEnvironment                    // by prefix
	Unknown                             // unknown, deleted, or of another service
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

// refuse returns the refusal as a [problem.Error].
func refuse(r Refusal) error {
	kind := problem.Unauthorized
	if r == IPNotAllowed {
		kind = problem.Forbidden
	}
	return &problem.Error{Kind: kind, Message: r.Error(), Cause: r}
}

// Request holds the credentials and target of a request.
type Request struct {
	Token       string
	Service     ServiceName // of the requested API
	Environment Environment // of the requested API
	IP          netip.Addr  // of the client; zero: unknown
}

// Authenticate returns the key of a request's token, or a [problem.Error] caused by a
// [Refusal]: steps 2 to 4 of fleet-api.md 3.3. The key must not be modified; its last use
// may be out of date. The use is recorded asynchronously. Other errors come from the
// database.
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
	k, err := s.loadCurrent(ctx, t.digest())
	if errors.Is(err, db.ErrNoRows) || err == nil && (k.Service != r.Service || k.Environment != r.Environment) {
		return nil, refuse(Unknown)
	}
	if err != nil {
		return nil, fmt.Errorf("look up key: %w", err)
	}
	now := s.db.Now()
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

// API is the API that a key opens: a service in an environment.
type API struct {
	Service     ServiceName
	Environment Environment
}

// Identify returns the key of a token in any status; false if there is none. Use it to
// explain and log a request that Authenticate refuses, never to allow one.
func (s *Service) Identify(ctx context.Context, token string) (*Key, bool) {
	t, err := Parse(token)
	if err != nil {
		return nil, false
	}
	k, err := s.loadCurrent(ctx, t.digest())
	return k, err == nil
}

// recordRefusal records the refusal of a known key and returns it as an error.
func (s *Service) recordRefusal(ctx context.Context, k *Key, r Refusal) error {
	e := k.entry(KeyRefused, nil)
	e.Details = map[string]any{"reason": r.Error()}
	s.audit.Refuse(ctx, e)
	return refuse(r)
}

// loadCurrent returns the current version of the key with a digest.
func (s *Service) loadCurrent(ctx context.Context, digest [sha256.Size]byte) (*Key, error) {
	var version int64
	if err := s.db.Lookup(ctx, "SELECT version FROM api_keys WHERE digest = $1", digest[:]).Scan(&version); err != nil {
		return nil, err
	}
	if k, ok := s.keys.Get(digest); ok && k.version == version {
		return k, nil
	}
	start := s.keys.Start()
	k, err := scan(s.db.Lookup(ctx, "SELECT "+columns+" FROM api_keys WHERE digest = $1", digest[:]))
	if err != nil {
		return nil, err
	}
	s.keys.Put(digest, &k, start)
	return &k, nil
}
