// Package apikey manages the API keys of both services: tokens, records, permissions,
// allowed addresses, expiry, and their audit entries.
//
// A key belongs to one organization, one service and one environment. Its token is shown
// once, at creation, and stored as a SHA-256 digest only: it is random, so a fast hash is
// as safe as a slow one. The package does not know the resources; each service declares
// its own in a [Catalogue].
//
// # No use after the commit
//
// A key that was revoked, deleted or edited is so for every request that begins after the
// commit of that change, on every node and next to every command. Messages between
// processes cannot guarantee that, and with SQLite there is no channel for them. So
// [Service.Authenticate] queries the database each time, for one number: the version of
// the key's row, by its digest. The parsed key is cached under that version. Measured on
// two shared cores, the query costs a request 12 µs on SQLite and 90 µs on a PostgreSQL
// server on the same machine; reading the whole row would cost 32 and 160.
//
// The last use of keys is collected in memory and stored once a minute by [Service.Run].
package apikey

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/cache"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// maxCached bounds the cached keys, and the cached plans.
const maxCached = 10_000

// Service manages API keys. It is safe for concurrent use.
type Service struct {
	db         *db.DB
	catalogues map[ServiceName]Catalogue
	planLimit  func(ctx context.Context, organizationID string) (int64, error)
	audit      *audit.Log
	log        *slog.Logger
	keys       *cache.Cache[[sha256.Size]byte, *Key] // by digest; callers compare the version with the database
	plans      *cache.Cache[string, int64]           // limits of plans by organization: every request needs one

	mu   sync.Mutex
	used map[string]use // by key id, not stored yet
}

// use is the last use of a key.
type use struct {
	at time.Time
	ip string
}

// Config configures a [Service].
type Config struct {
	DB         *db.DB
	Catalogues map[ServiceName]Catalogue
	// PlanLimit returns the requests per minute that an organization's plan allows each
	// key.
	PlanLimit func(ctx context.Context, organizationID string) (int64, error)
	Audit     *audit.Log   // nil: no audit log
	Logger    *slog.Logger // nil: no log
}

// Open returns the service. [Service.Run] stores uses and expirations.
func Open(c Config) *Service {
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Service{
		db: c.DB, catalogues: c.Catalogues, planLimit: c.PlanLimit, audit: c.Audit, log: log, used: make(map[string]use),
		keys: cache.New[[sha256.Size]byte, *Key](maxCached, 0), plans: cache.New[string, int64](maxCached, time.Second),
	}
}

// ServiceName is the service of a key.
type ServiceName string

// The services.
const (
	Helpdesk ServiceName = "helpdesk"
	Fleet    ServiceName = "fleet"
)

// Environment is the environment of a key's data: [Live] or [Test].
type Environment string

// The environments.
const (
	Live Environment = "live" // production
	Test Environment = "test" // sandbox
)

// Plan is the fleet tier that sets a key's rate limit (fleet.md 8).
type Plan uint8

// The plans.
const (
	Standard Plan = iota
	Professional
	Enterprise
)

// String returns the plan's name.
func (p Plan) String() string {
	switch p {
	case Professional:
		return "professional"
	case Enterprise:
		return "enterprise"
	default:
		return "standard"
	}
}

// Limit returns the requests per minute of each key under a plan. agreed applies to
// [Enterprise] only, with a minimum of 1000; 0: none agreed.
func (p Plan) Limit(agreed int64) int64 {
	switch p {
	case Professional:
		return 300
	case Enterprise:
		return max(agreed, 1000)
	default:
		return 60
	}
}

// Allows reports whether a key may perform an action on a resource of its service.
func (s *Service) Allows(k *Key, resource string, action Action) bool {
	return s.catalogues[k.Service].Allows(k.Permissions, resource, action)
}

// Catalogue returns a service's catalogue, which must not be modified; false if the
// service is unknown.
func (s *Service) Catalogue(service ServiceName) (Catalogue, bool) {
	c, ok := s.catalogues[service]
	return c, ok
}

// PlanLimit returns the requests per minute that an organization's plan allows each key:
// the default and the maximum of a key's own limit.
func (s *Service) PlanLimit(ctx context.Context, organizationID string) (int64, error) {
	return s.Limit(ctx, &Key{OrganizationID: organizationID})
}

// Limit returns a key's requests per minute under its organization's current plan, cached
// for a second.
func (s *Service) Limit(ctx context.Context, k *Key) (int64, error) {
	plan, err := s.plans.Load(k.OrganizationID, func() (int64, error) { return s.planLimit(ctx, k.OrganizationID) })
	if err != nil {
		return 0, fmt.Errorf("limit of the plan: %w", err)
	}
	return Limit(k.RateLimit, plan), nil
}

// Limit returns the effective limit of a key: the lower of its own and the plan's, or the
// plan's if own is 0. The plan may have been lowered since the key's creation.
func Limit(own, plan int64) int64 {
	if own == 0 {
		return plan
	}
	return min(own, plan)
}
