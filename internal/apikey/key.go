package apikey

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

// Status is the status of a key in lists.
type Status string

// The statuses. Lists do not include deleted keys.
const (
	Active  Status = "active"
	Revoked Status = "revoked"
	Expired Status = "expired"
)

// Key is an API key without its token.
type Key struct {
	ID             string
	OrganizationID string
	Service        ServiceName
	Environment    Environment
	Name           string
	PartialKey     string // the last 8 characters of the token
	Permissions
	Scope      Scope
	AllowedIPs AllowedIPs
	RateLimit  int64     // requests per minute; 0: the plan's
	ExpiresAt  time.Time // valid before; zero: never expires
	CreatedBy  audit.Actor
	CreatedAt  time.Time
	UpdatedAt  time.Time
	LastUsedAt time.Time // precise to a minute, stored within one; zero: never
	LastUsedIP string
	RevokedAt  time.Time // zero: not revoked
	RevokedBy  audit.Actor

	RotatedFrom string // id of the key that this one replaces
	ReplacedBy  string // id of the key that replaces this one

	version int64
}

// Status returns the key's status at a time.
func (k *Key) Status(at time.Time) Status {
	switch {
	case !k.RevokedAt.IsZero():
		return Revoked
	case !k.ExpiresAt.IsZero() && !at.Before(k.ExpiresAt):
		return Expired
	}
	return Active
}

// active returns a [problem.Conflict] unless the key can be changed.
func (k *Key) active(at time.Time) error {
	if status := k.Status(at); status != Active {
		return problem.New(problem.Conflict, "the key is %s", status)
	}
	return nil
}

// Actions in the audit log.
const (
	KeyCreated audit.Action = "api_key.created"
	KeyUpdated audit.Action = "api_key.updated"
	KeyRevoked audit.Action = "api_key.revoked"
	KeyExpired audit.Action = "api_key.expired"
	KeyDeleted audit.Action = "api_key.deleted"
	KeyRotated audit.Action = "api_key.rotated"
	KeyRefused audit.Action = "api_key.refused" // a request with a revoked or expired key, or from a disallowed address
)

// entry returns an audit entry about the key.
func (k *Key) entry(a audit.Action, changes map[string]audit.Change) audit.Entry {
	return audit.Entry{
		OrganizationID: k.OrganizationID, Service: string(k.Service), Environment: string(k.Environment), Action: a,
		Target: audit.Target{Type: "api_key", ID: k.ID, Name: k.Name, PartialKey: k.PartialKey}, Changes: changes,
	}
}

// settings returns the chosen fields, as the audit log shows them.
func (k *Key) settings() map[string]any {
	m := map[string]any{
		"name": k.Name, "level": nil, "resources": k.Resources, "subaccount_scope": k.Scope, "allowed_ips": k.AllowedIPs.Strings(),
		"rate_limit_per_minute": nil, "expires_at": nil,
	}
	if k.Level != "" {
		m["level"] = k.Level
	}
	if k.RateLimit != 0 {
		m["rate_limit_per_minute"] = k.RateLimit
	}
	if !k.ExpiresAt.IsZero() {
		m["expires_at"] = k.ExpiresAt
	}
	if k.RotatedFrom != "" {
		m["rotated_from"] = k.RotatedFrom
	}
	return m
}

// New describes a key to create.
type New struct {
	ID             string // unique UUID; empty: a new one
	OrganizationID string
	Service        ServiceName
	Environment    Environment
	Name           string
	Permissions
	Scope      Scope // zero: all subaccounts
	AllowedIPs []string
	RateLimit  *int64    // requests per minute; nil: the plan's
	ExpiresAt  time.Time // see [ParseExpiry]; zero: never
}

// Create creates a key and returns it with its token, which cannot be read again. A
// duplicate name within organization, service and environment is a [problem.Conflict]; so
// is an ID in use, so that a form sent twice creates one key.
func (s *Service) Create(ctx context.Context, n New) (Key, Token, error) {
	var v problem.Validation
	c, known := s.catalogues[n.Service]
	if !known {
		v.Add("service", "is not a service")
		return Key{}, Token{}, v.Err()
	}
	if n.Environment != Live && n.Environment != Test {
		v.Add("environment", "must be live or test")
	} else if n.Environment == Test && !c.Test {
		v.Add("environment", "must be live: the %s has no sandbox", n.Service)
	}
	if n.Scope.Mode == "" && n.Scope.SubaccountIDs == nil {
		n.Scope.Mode = AllSubaccounts
	}
	k := Key{
		OrganizationID: n.OrganizationID, Service: n.Service, Environment: n.Environment, Name: strings.TrimSpace(n.Name),
		Permissions: n.Permissions, Scope: n.Scope, ExpiresAt: n.ExpiresAt.UTC().Truncate(time.Microsecond), CreatedBy: audit.SourceOf(ctx).Actor,
	}
	checkName(&v, k.Name)
	c.check(&v, &k.Permissions)
	k.Scope.check(&v, c)
	k.AllowedIPs = checkAllowedIPs(&v, n.AllowedIPs)
	if n.RateLimit != nil {
		k.RateLimit = *n.RateLimit
		if err := s.checkRateLimit(ctx, &v, n.OrganizationID, k.RateLimit); err != nil {
			return Key{}, Token{}, err
		}
	}
	checkExpiry(&v, k.ExpiresAt, s.db.Now())
	if n.ID != "" {
		if id, err := uuid.Parse(n.ID); err != nil || id.String() != n.ID {
			v.Add("id", "must be a UUID")
		}
		k.ID = n.ID
	}
	if err := v.Err(); err != nil {
		return Key{}, Token{}, err
	}
	var t Token
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var v problem.Validation
		checkExpiry(&v, k.ExpiresAt, tx.Now) // may have passed during the wait for the lock
		if err := v.Err(); err != nil {
			return err
		}
		var made bool
		err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM api_keys WHERE id = $1)", k.ID).Scan(&made)
		if err != nil {
			return err
		}
		if made {
			return problem.New(problem.Conflict, "the key exists already")
		}
		t, err = s.insert(ctx, tx, &k)
		return err
	})
	if err != nil {
		return Key{}, Token{}, errNameTaken(err, k.Name)
	}
	return k, t, nil
}

func checkName(v *problem.Validation, name string) { v.Line("name", name, 1, 100) }

func checkExpiry(v *problem.Validation, at, now time.Time) {
	if !at.IsZero() && !at.After(now) {
		v.Add("expires_at", "must be in the future")
	}
}

// checkRateLimit records an issue if limit exceeds the plan's.
func (s *Service) checkRateLimit(ctx context.Context, v *problem.Validation, organizationID string, limit int64) error {
	plan, err := s.planLimit(ctx, organizationID)
	if err != nil {
		return fmt.Errorf("limit of the plan: %w", err)
	}
	if limit < 1 || limit > plan {
		v.Add("rate_limit_per_minute", "must be from 1 to %d, the plan's limit", plan)
	}
	return nil
}

// errNameTaken maps a unique violation to a [problem.Conflict].
func errNameTaken(err error, name string) error {
	if db.IsUnique(err) {
		return problem.New(problem.Conflict, "there is a key named %q already", name).Because(err)
	}
	return err
}

// insert sets a key's id, times and token, stores it and records it.
func (s *Service) insert(ctx context.Context, tx *db.Tx, k *Key) (Token, error) {
	t := NewToken(k.Environment)
	digest := t.digest()
	if k.ID == "" {
		k.ID = uuid.Must(uuid.NewV7()).String()
	}
	k.PartialKey, k.version = t.Partial(), 1
	k.CreatedAt, k.UpdatedAt = tx.Now, tx.Now
	_, err := tx.Exec(ctx, `INSERT INTO api_keys
		(id, digest, organization_id, service, environment, name, partial_key, level, resources, scope, allowed_ips, rate_limit,
		expires_at, created_by, created_at, updated_at, rotated_from, version)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $15, $16, 1)`,
		k.ID, digest[:], k.OrganizationID, string(k.Service), string(k.Environment), k.Name, k.PartialKey, db.Text(string(k.Level)),
		storedGrants(k.Resources), db.JSON(k.Scope), db.JSON(k.AllowedIPs.Strings()), storedNumber(k.RateLimit), db.Time(k.ExpiresAt),
		db.JSON(k.CreatedBy), tx.Now.UnixMicro(), db.Text(k.RotatedFrom))
	if err != nil {
		return Token{}, fmt.Errorf("insert key: %w", err)
	}
	changes := map[string]audit.Change{}
	for member, value := range k.settings() {
		changes[member] = audit.Change{To: value}
	}
	return t, s.audit.RecordTx(ctx, tx, k.entry(KeyCreated, changes))
}

// storedGrants returns the stored form of grants: NULL if not set.
func storedGrants(g Grants) any {
	if !g.Set() {
		return nil
	}
	return db.JSON(g)
}

// storedNumber returns the stored form of an optional number: NULL for 0.
func storedNumber(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

const columns = `id, organization_id, service, environment, name, partial_key, level, resources, scope, allowed_ips,
	coalesce(rate_limit, 0), expires_at, created_by, created_at, updated_at, last_used_at, last_used_ip, revoked_at, revoked_by,
	rotated_from, replaced_by, version`

func scan(row db.Row) (Key, error) {
	var k Key
	var ips []string
	err := row.Scan(&k.ID, &k.OrganizationID, &k.Service, &k.Environment, &k.Name, &k.PartialKey, db.IntoText((*string)(&k.Level)),
		db.IntoJSON(&k.Resources), db.IntoJSON(&k.Scope), db.IntoJSON(&ips), &k.RateLimit, db.IntoTime(&k.ExpiresAt),
		db.IntoJSON(&k.CreatedBy), db.IntoTime(&k.CreatedAt), db.IntoTime(&k.UpdatedAt), db.IntoTime(&k.LastUsedAt),
		db.IntoText(&k.LastUsedIP), db.IntoTime(&k.RevokedAt), db.IntoJSON(&k.RevokedBy), db.IntoText(&k.RotatedFrom),
		db.IntoText(&k.ReplacedBy), &k.version)
	if err != nil {
		return k, err
	}
	k.AllowedIPs, err = parseStored(ips)
	return k, err
}

// notFound maps [db.ErrNoRows] to a [problem.NotFound].
func notFound(err error) error {
	if errors.Is(err, db.ErrNoRows) {
		return problem.New(problem.NotFound, "there is no such key")
	}
	return err
}

// List returns an organization's keys, oldest first, optionally of one service or
// environment; empty: any.
func (s *Service) List(ctx context.Context, organizationID string, service ServiceName, environment Environment) ([]Key, error) {
	list, err := db.All(ctx, s.db, scan, "SELECT "+columns+` FROM api_keys WHERE organization_id = $1 AND deleted_at IS NULL
		AND ($2 = '' OR service = $2) AND ($3 = '' OR environment = $3) ORDER BY id`, organizationID, string(service), string(environment))
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return list, nil
}

// Find returns a key. A deleted one or another organization's is a [problem.NotFound].
func (s *Service) Find(ctx context.Context, organizationID, id string) (Key, error) {
	k, err := s.FindAnywhere(ctx, id)
	if err == nil && k.OrganizationID != organizationID {
		return Key{}, notFound(db.ErrNoRows)
	}
	return k, err
}

// Names returns the names of an organization's keys among ids, by id. Deleted keys are included.
func (s *Service) Names(ctx context.Context, q db.Querier, organizationID string, ids []string) (map[string]string, error) {
	names := make(map[string]string, len(ids))
	if len(ids) == 0 {
		return names, nil
	}
	list, err := db.All(ctx, q, func(row db.Row) (k Key, err error) {
		err = row.Scan(&k.ID, &k.Name)
		return k, err
	}, "SELECT id, name FROM api_keys WHERE id = ANY($1) AND organization_id = $2", ids, organizationID)
	if err != nil {
		return nil, fmt.Errorf("list names of keys: %w", err)
	}
	for _, k := range list {
		names[k.ID] = k.Name
	}
	return names, nil
}

// FindAnywhere is [Service.Find] across organizations, for the operator.
func (s *Service) FindAnywhere(ctx context.Context, id string) (Key, error) {
	k, err := db.One(ctx, s.db, scan, "SELECT "+columns+" FROM api_keys WHERE id = $1 AND deleted_at IS NULL", id)
	if err := notFound(err); err != nil {
		return Key{}, fmt.Errorf("find key: %w", err)
	}
	return k, nil
}

// change runs fn on a key locked against concurrent changes.
func (s *Service) change(ctx context.Context, organizationID, id string, fn func(tx *db.Tx, k *Key) error) (Key, error) {
	var k Key
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var err error
		k, err = db.One(ctx, tx, scan, "SELECT "+columns+` FROM api_keys WHERE id = $1 AND organization_id = $2 AND deleted_at IS NULL
			FOR UPDATE`, id, organizationID)
		if err != nil {
			return notFound(err)
		}
		return fn(tx, &k)
	})
	if err != nil {
		return Key{}, err
	}
	return k, nil
}

// Edit changes a key's settings. Nil fields stay as they are. Token, environment,
// expiration and scope never change.
type Edit struct {
	Name       *string
	Level      *Level  // empty: none
	Resources  *Grants // zero: not set
	AllowedIPs *[]string
	RateLimit  *int64 // 0: the plan's
}

// Edit changes an active key with effect from the next request and returns it. A key that
// is not active, or a duplicate name, is a [problem.Conflict].
func (s *Service) Edit(ctx context.Context, organizationID, id string, e Edit) (Key, error) {
	var v problem.Validation
	var ips AllowedIPs
	if e.AllowedIPs != nil {
		ips = checkAllowedIPs(&v, *e.AllowedIPs)
	}
	if e.Name != nil {
		e.Name = new(strings.TrimSpace(*e.Name))
		checkName(&v, *e.Name)
	}
	if e.RateLimit != nil && *e.RateLimit != 0 {
		if err := s.checkRateLimit(ctx, &v, organizationID, *e.RateLimit); err != nil {
			return Key{}, err
		}
	}
	k, err := s.change(ctx, organizationID, id, func(tx *db.Tx, k *Key) error {
		if err := k.active(tx.Now); err != nil {
			return err
		}
		before := k.settings()
		e.apply(k, ips)
		v := v // a copy per attempt
		if e.Level != nil || e.Resources != nil {
			s.catalogues[k.Service].check(&v, &k.Permissions)
		}
		if err := v.Err(); err != nil {
			return err
		}
		changes := changesOf(before, k.settings())
		if len(changes) == 0 {
			return nil
		}
		k.UpdatedAt, k.version = tx.Now, k.version+1
		_, err := tx.Exec(ctx, `UPDATE api_keys SET name = $2, level = $3, resources = $4, allowed_ips = $5, rate_limit = $6,
			updated_at = $7, version = $8 WHERE id = $1`,
			k.ID, k.Name, db.Text(string(k.Level)), storedGrants(k.Resources), db.JSON(k.AllowedIPs.Strings()), storedNumber(k.RateLimit),
			tx.Now.UnixMicro(), k.version)
		if err != nil {
			return err
		}
		return s.audit.RecordTx(ctx, tx, k.entry(KeyUpdated, changes))
	})
	if db.IsUnique(err) {
		return Key{}, errNameTaken(err, *e.Name) // the name is the only unique field of the change
	}
	if err != nil {
		return Key{}, fmt.Errorf("edit key: %w", err)
	}
	return k, nil
}

// apply sets the fields of a key. ips are the parsed AllowedIPs.
func (e *Edit) apply(k *Key, ips AllowedIPs) {
	if e.Name != nil {
		k.Name = *e.Name
	}
	if e.Level != nil {
		k.Level = *e.Level
	}
	if e.Resources != nil {
		k.Resources = *e.Resources
	}
	if e.AllowedIPs != nil {
		k.AllowedIPs = ips
	}
	if e.RateLimit != nil {
		k.RateLimit = *e.RateLimit
	}
}

// changesOf compares the settings of a key.
func changesOf(before, after map[string]any) map[string]audit.Change {
	changes := map[string]audit.Change{}
	for name, value := range after {
		if !reflect.DeepEqual(before[name], value) {
			changes[name] = audit.Change{From: before[name], To: value}
		}
	}
	return changes
}

// Revoke revokes an active key for good; it stays in lists. No request that begins after
// Revoke returns succeeds with it, on any node. A key that is not active is a
// [problem.Conflict].
func (s *Service) Revoke(ctx context.Context, organizationID, id string) (Key, error) {
	k, err := s.change(ctx, organizationID, id, func(tx *db.Tx, k *Key) error {
		if err := k.active(tx.Now); err != nil {
			return err
		}
		return s.revokeTx(ctx, tx, k)
	})
	if err != nil {
		return Key{}, fmt.Errorf("revoke key: %w", err)
	}
	return k, nil
}

// revokeTx revokes a key that tx has locked.
func (s *Service) revokeTx(ctx context.Context, tx *db.Tx, k *Key) error {
	before := k.Status(tx.Now)
	k.RevokedAt, k.RevokedBy, k.UpdatedAt, k.version = tx.Now, audit.SourceOf(ctx).Actor, tx.Now, k.version+1
	if err := tx.Queue(ctx, "UPDATE api_keys SET revoked_at = $2, revoked_by = $3, updated_at = $2, version = $4 WHERE id = $1",
		k.ID, tx.Now.UnixMicro(), db.JSON(audit.SourceOf(ctx).Actor), k.version); err != nil {
		return err
	}
	return s.audit.RecordTx(ctx, tx, k.entry(KeyRevoked, map[string]audit.Change{"status": {From: before, To: Revoked}}))
}

// Delete removes a key of any status for good, with its digest. Its audit entries remain.
func (s *Service) Delete(ctx context.Context, organizationID, id string) error {
	_, err := s.change(ctx, organizationID, id, func(tx *db.Tx, k *Key) error {
		if err := tx.Queue(ctx, "UPDATE api_keys SET digest = NULL, deleted_at = $2, updated_at = $2, version = version + 1 WHERE id = $1",
			k.ID, tx.Now.UnixMicro()); err != nil {
			return err
		}
		return s.audit.RecordTx(ctx, tx, k.entry(KeyDeleted, map[string]audit.Change{"status": {From: k.Status(tx.Now), To: "deleted"}}))
	})
	if err != nil {
		return fmt.Errorf("delete key: %w", err)
	}
	return nil
}

// Rotate creates a key with the settings of an active one, including its expiration, and
// returns it with its token, which cannot be read again. The old key works until it is
// revoked. The new name has a number: "Export" is followed by "Export (2)". A key that is
// not active, or has an active replacement, is a [problem.Conflict].
func (s *Service) Rotate(ctx context.Context, organizationID, id string) (Key, Token, error) {
	var made Key
	var t Token
	_, err := s.change(ctx, organizationID, id, func(tx *db.Tx, old *Key) error {
		if err := old.active(tx.Now); err != nil {
			return err
		}
		if old.ReplacedBy != "" {
			next, err := db.One(ctx, tx, scan, "SELECT "+columns+" FROM api_keys WHERE id = $1 AND deleted_at IS NULL", old.ReplacedBy)
			switch {
			case errors.Is(err, db.ErrNoRows): // deleted: it may be replaced again
			case err != nil:
				return err
			case next.Status(tx.Now) == Active:
				return problem.New(problem.Conflict, "the key was rotated already: %q replaces it", next.Name)
			}
		}
		names, err := db.All(ctx, tx, func(row db.Row) (string, error) {
			var name string
			err := row.Scan(&name)
			return name, err
		}, "SELECT name FROM api_keys WHERE organization_id = $1 AND service = $2 AND environment = $3 AND deleted_at IS NULL",
			organizationID, string(old.Service), string(old.Environment))
		if err != nil {
			return err
		}
		made = Key{
			OrganizationID: organizationID, Service: old.Service, Environment: old.Environment, Name: nextName(old.Name, names),
			Permissions: old.Permissions, Scope: old.Scope, AllowedIPs: old.AllowedIPs, RateLimit: old.RateLimit,
			ExpiresAt: old.ExpiresAt, CreatedBy: audit.SourceOf(ctx).Actor, RotatedFrom: old.ID,
		}
		if t, err = s.insert(ctx, tx, &made); err != nil {
			return err
		}
		if err := tx.Queue(ctx, "UPDATE api_keys SET replaced_by = $2, updated_at = $3, version = version + 1 WHERE id = $1",
			old.ID, made.ID, tx.Now.UnixMicro()); err != nil {
			return err
		}
		var before any
		if old.ReplacedBy != "" {
			before = old.ReplacedBy
		}
		return s.audit.RecordTx(ctx, tx, old.entry(KeyRotated, map[string]audit.Change{"replaced_by": {From: before, To: made.ID}}))
	})
	if err != nil {
		return Key{}, Token{}, fmt.Errorf("rotate key: %w", errNameTaken(err, made.Name))
	}
	return made, t, nil
}

// nextName returns name with the lowest number that others do not use.
func nextName(name string, others []string) string {
	stem, n := name, 1
	if head, tail, ok := strings.Cut(strings.TrimSuffix(name, ")"), " ("); ok && strings.HasSuffix(name, ")") {
		if number, err := strconv.Atoi(tail); err == nil && number > 1 && number < 1_000_000 {
			stem, n = head, number
		}
	}
	had := make(map[string]bool, len(others))
	for _, o := range others {
		had[o] = true
	}
	for {
		n++
		suffix := fmt.Sprintf(" (%d)", n)
		runes := []rune(stem)
		next := string(runes[:min(len(runes), 100-utf8.RuneCountInString(suffix))]) + suffix
		if !had[next] {
			return next
		}
	}
}

// OwnerOf returns the organization and type of a record; empty if the id is unknown.
func (s *Service) OwnerOf(ctx context.Context, id string) (organizationID, kind string, err error) {
	return audit.OwnerOf(ctx, s.db, "SELECT organization_id, 'api_key' FROM api_keys WHERE id = $1", id)
}
