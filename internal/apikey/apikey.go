// Package apikey keeps the API keys of both services: what a token looks like,
// the records, what a key may do, from where, and until when, and the log of
// what was done with keys.
//
// A key belongs to one organization, one service and one environment. Its token
// is shown once, when it is made, and kept only as a SHA-256 digest: it is
// random, so a fast digest is as good as a slow one. What a resource is, the
// package does not know: each service declares its own as a [Catalogue].
//
// # Never once after the commit
//
// A key that was revoked, deleted or edited is so for every request that begins
// after the change was committed, on every node and beside every command. No
// message to other processes can promise that, and on SQLite there is nobody to
// send it to. So [Service.Authenticate] asks the database each time, for one
// number: the version of the key's row, by its digest. Memory holds the key in
// the form in which it is used, under that version. Measured on two shared
// cores, that costs a request 12 µs on SQLite and 90 µs on a PostgreSQL server
// beside it; reading the whole row would cost 32 and 160.
//
// What a key was used for last is gathered in memory and written once a minute
// by [Service.Run].
package apikey

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Service keeps keys. It is safe for concurrent use.
type Service struct {
	db         *db.DB
	catalogues map[ServiceName]Catalogue
	planLimit  func(ctx context.Context, organizationID string) (int64, error)
	audit      *audit.Log
	log        *slog.Logger
	keys       keyCache
	plans      planCache

	mu   sync.Mutex
	used map[string]use // by key id, not yet written
}

// use is when and from where a key was used last.
type use struct {
	at time.Time
	ip string
}

// Config is what [Open] needs.
type Config struct {
	DB         *db.DB
	Catalogues map[ServiceName]Catalogue
	// PlanLimit returns the requests a minute that an organization's plan gives
	// to each key.
	PlanLimit func(ctx context.Context, organizationID string) (int64, error)
	Audit     *audit.Log   // nil records nothing
	Logger    *slog.Logger // nil discards
}

// Open returns the service. [Service.Run] keeps its records up to date.
func Open(c Config) *Service {
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Service{db: c.DB, catalogues: c.Catalogues, planLimit: c.PlanLimit, audit: c.Audit, log: log, used: make(map[string]use)}
}

// ServiceName is the service that a key opens.
type ServiceName string

// The services.
const (
	Helpdesk ServiceName = "helpdesk"
	Fleet    ServiceName = "fleet"
)

// Environment is the data that a key reaches: [Live] or [Test].
type Environment string

// The environments.
const (
	Live Environment = "live" // production
	Test Environment = "test" // sandbox
)

// Plan is the tier that decides how many requests a minute a key has, as
// fleet.md 8 names them.
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

// Limit returns the requests a minute that a plan gives to each key. The agreed
// value counts for [Enterprise] only, and never below 1000; 0 means none.
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

// Allows reports whether a key may do something with a resource of its service.
func (s *Service) Allows(k *Key, resource string, action Action) bool {
	return s.catalogues[k.Service].Allows(k.Permissions, resource, action)
}

// Catalogue returns what a service declares of itself; false when there is no
// such service. It must not be changed.
func (s *Service) Catalogue(service ServiceName) (Catalogue, bool) {
	c, ok := s.catalogues[service]
	return c, ok
}

// PlanLimit returns the requests a minute that an organization's plan gives to
// each key, which is also the most that a key can have of its own.
func (s *Service) PlanLimit(ctx context.Context, organizationID string) (int64, error) {
	return s.Limit(ctx, &Key{OrganizationID: organizationID})
}

// Limit returns the requests a minute that a key has as its organization's plan
// is now, or was within the last second.
func (s *Service) Limit(ctx context.Context, k *Key) (int64, error) {
	now := time.Now()
	plan, ok := s.plans.get(k.OrganizationID, now)
	if !ok {
		var err error
		if plan, err = s.planLimit(ctx, k.OrganizationID); err != nil {
			return 0, fmt.Errorf("limit of the plan: %w", err)
		}
		s.plans.put(k.OrganizationID, plan, now)
	}
	return Limit(k.RateLimit, plan), nil
}

// planCache remembers for a second what the plans of organizations give, which is
// asked for with every request.
type planCache struct {
	mu sync.RWMutex
	by map[string]cachedLimit
}

type cachedLimit struct {
	limit int64
	until time.Time
}

func (p *planCache) get(organizationID string, now time.Time) (int64, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	got, ok := p.by[organizationID]
	return got.limit, ok && now.Before(got.until)
}

func (p *planCache) put(organizationID string, limit int64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil || len(p.by) >= maxCached {
		p.by = make(map[string]cachedLimit)
	}
	p.by[organizationID] = cachedLimit{limit, now.Add(time.Second)}
}

// Limit returns the limit of a key: the lower of its own and the plan's, and
// the plan's when it has none, which is 0. A plan may have been lowered since
// the key was made.
func Limit(own, plan int64) int64 {
	if own == 0 {
		return plan
	}
	return min(own, plan)
}
