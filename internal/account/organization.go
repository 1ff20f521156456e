package account

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Plan is the plan of an organization.
type Plan string

// The plans.
const (
	Free     Plan = "free"
	Pro      Plan = "pro"
	Business Plan = "business"
)

// minFleetRateLimit is the lowest rate limit that a Business plan can have.
const minFleetRateLimit = 1000

// Organization is a tenant.
type Organization struct {
	ID             string
	Name           string
	Slug           string // ASCII, unique
	Plan           Plan
	PendingPlan    Plan  // chosen but not paid yet; empty: none
	PastDue        bool  // a payment failed and is still open
	FleetRateLimit int64 // agreed fleet requests a minute; 0: the plan's
	CreatedBy      Creator
	CreatedAt      time.Time
	UpdatedAt      time.Time

	Accent               Accent         // on pages and in mails that people outside of it see
	Logo                 Logo           // at the same places
	ReplyLogo            bool           // replies by mail end with the logo
	TimeZone             string         // of its reports, an IANA name
	SecondFactorRequired bool           // members work only in sessions with two factors
	ProviderOnly         ProviderPolicy // members who must sign in by the identity provider
}

const organizationColumns = `id, name, slug, plan, pending_plan, past_due, coalesce(fleet_rate_limit, 0), second_factor_required, made_by, provider_only, time_zone, accent, logo, reply_logo, created_at, updated_at`

func scanOrganization(row db.Row) (Organization, error) {
	var o Organization
	err := row.Scan(&o.ID, &o.Name, &o.Slug, &o.Plan, db.IntoText((*string)(&o.PendingPlan)), &o.PastDue, &o.FleetRateLimit, &o.SecondFactorRequired, &o.CreatedBy,
		db.IntoText((*string)(&o.ProviderOnly)), &o.TimeZone, (*string)(&o.Accent), (*string)(&o.Logo), &o.ReplyLogo,
		db.IntoTime(&o.CreatedAt), db.IntoTime(&o.UpdatedAt))
	if errors.Is(err, db.ErrNoRows) {
		err = problem.New(problem.NotFound, "there is no such organization")
	}
	return o, err
}

// Organization returns one organization, or a [problem.NotFound].
func (s *Service) Organization(ctx context.Context, id string) (Organization, error) {
	return db.One(ctx, s.db, scanOrganization, "SELECT "+organizationColumns+" FROM organizations WHERE id = $1", id)
}

// Slug returns an organization's slug, or a [problem.NotFound].
func (s *Service) Slug(ctx context.Context, q db.Querier, id string) (string, error) {
	o, err := db.One(ctx, q, scanOrganization, "SELECT "+organizationColumns+" FROM organizations WHERE id = $1", id)
	return o.Slug, err
}

// Plan returns an organization's plan, or a [problem.NotFound].
func (s *Service) Plan(ctx context.Context, q db.Querier, id string) (Plan, error) {
	o, err := db.One(ctx, q, scanOrganization, "SELECT "+organizationColumns+" FROM organizations WHERE id = $1", id)
	return o.Plan, err
}

// OrganizationBySlug returns one organization, or a [problem.NotFound].
func (s *Service) OrganizationBySlug(ctx context.Context, slug string) (Organization, error) {
	return organizationBySlug(ctx, s.db, slug)
}

func organizationBySlug(ctx context.Context, q db.Querier, slug string) (Organization, error) {
	return db.One(ctx, q, scanOrganization, "SELECT "+organizationColumns+" FROM organizations WHERE slug = $1", slug)
}

// CountOrganizations returns the number of organizations in a database.
func CountOrganizations(ctx context.Context, q db.Querier) (n int, err error) {
	if err := q.QueryRow(ctx, "SELECT count(*) FROM organizations").Scan(&n); err != nil {
		return 0, fmt.Errorf("count organizations: %w", err)
	}
	return n, nil
}

// HasSlug reports whether an organization has the slug.
func HasSlug(ctx context.Context, q db.Querier, slug string) (has bool, err error) {
	if err := q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM organizations WHERE slug = $1)", slug).Scan(&has); err != nil {
		return false, fmt.Errorf("find slug %s: %w", slug, err)
	}
	return has, nil
}

// Location returns the time zone. A name that this machine does not know is UTC.
func (o *Organization) Location() *time.Location {
	zone, err := period.Location(o.TimeZone)
	if err != nil {
		return time.UTC
	}
	return zone
}

// NewOrganization describes an organization to create.
type NewOrganization struct {
	Name           string
	Plan           Plan  // empty means Free
	FleetRateLimit int64 // only with Business; 0 for the plan's own
	Default        bool  // receives the inbound events of no connection
}

// Check implements [problem.Checker].
func (n NewOrganization) Check(v *problem.Validation) {
	v.Line("name", strings.TrimSpace(n.Name), 1, 255)
	checkPlan(v, "plan", n.Plan)
	switch {
	case n.FleetRateLimit == 0:
	case n.Plan != Business:
		v.Add("fleet rate limit", "can only be agreed on with the plan business")
	case n.FleetRateLimit < minFleetRateLimit:
		v.Add("fleet rate limit", "must be at least %d", minFleetRateLimit)
	}
}

func checkPlan(v *problem.Validation, path string, p Plan) {
	switch p {
	case "", Free, Pro, Business:
	default:
		v.Add(path, "must be free, pro or business")
	}
}

// CreateOrganization creates an organization on behalf of the operator, with its plan
// active without payment.
func (s *Service) CreateOrganization(ctx context.Context, n NewOrganization) (Organization, error) {
	if err := problem.Check(n); err != nil {
		return Organization{}, err
	}
	if n.Plan == "" {
		n.Plan = Free
	}
	o := Organization{ID: newID(), Name: strings.TrimSpace(n.Name), Plan: n.Plan, FleetRateLimit: n.FleetRateLimit, CreatedBy: CreatedByOperator}
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		if err := insertOrganization(ctx, tx, &o); err != nil {
			return err
		}
		if err := s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: o.ID, Action: AuditFounded, Target: organizationTarget(o), Details: map[string]any{"plan": o.Plan},
		}); err != nil || !n.Default {
			return err
		}
		return s.setDefaultTx(ctx, tx, &o)
	})
	if err != nil {
		return Organization{}, err
	}
	return o, nil
}

// RenameOrganization sets an organization's name. The slug stays: scripts use it. Errors:
// [problem.Invalid], [problem.NotFound].
func (s *Service) RenameOrganization(ctx context.Context, id, name string) (Organization, error) {
	name = strings.TrimSpace(name)
	var v problem.Validation
	v.Line("name", name, 1, 255)
	if err := v.Err(); err != nil {
		return Organization{}, err
	}
	var o Organization
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var err error
		if o, err = lockOrganization(ctx, tx, id); err != nil || o.Name == name {
			return err
		}
		former := o.Name
		o.Name, o.UpdatedAt = name, tx.Now
		if err := tx.Queue(ctx, "UPDATE organizations SET name = $2, updated_at = $3 WHERE id = $1", id, o.Name, o.UpdatedAt.UnixMicro()); err != nil {
			return fmt.Errorf("rename organization: %w", err)
		}
		s.notifyAfterCommit(tx, id, "organization")
		return s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: id, Action: AuditOrganization, Target: organizationTarget(o), Changes: map[string]audit.Change{"name": {From: former, To: name}},
		})
	})
	return o, err
}

// SetTimeZone sets the time zone of an organization's reports, an IANA name. Errors:
// [problem.Invalid], [problem.NotFound].
func (s *Service) SetTimeZone(ctx context.Context, id, zone string) (Organization, error) {
	zone = strings.TrimSpace(zone)
	if _, err := period.Location(zone); err != nil {
		var v problem.Validation
		v.Add("timeZone", "%v", err)
		return Organization{}, v.Err()
	}
	var o Organization
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var err error
		if o, err = lockOrganization(ctx, tx, id); err != nil || o.TimeZone == zone {
			return err
		}
		former := o.TimeZone
		o.TimeZone, o.UpdatedAt = zone, tx.Now
		if err := tx.Queue(ctx, "UPDATE organizations SET time_zone = $2, updated_at = $3 WHERE id = $1", id, o.TimeZone, o.UpdatedAt.UnixMicro()); err != nil {
			return fmt.Errorf("set time zone: %w", err)
		}
		s.notifyAfterCommit(tx, id, "organization")
		return s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: id, Action: AuditOrganization, Target: organizationTarget(o), Changes: map[string]audit.Change{"time_zone": {From: former, To: zone}},
		})
	})
	return o, err
}

// insertOrganization stores o, with slug and times filled in.
func insertOrganization(ctx context.Context, tx *db.Tx, o *Organization) error {
	var err error
	if o.Slug, err = freeSlug(ctx, tx, o.Name); err != nil {
		return err
	}
	o.CreatedAt, o.UpdatedAt, o.TimeZone = tx.Now, tx.Now, "UTC"
	var limit any
	if o.FleetRateLimit != 0 {
		limit = o.FleetRateLimit
	}
	if _, err = tx.Exec(ctx, `INSERT INTO organizations
			(id, name, slug, plan, pending_plan, fleet_rate_limit, made_by, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		o.ID, o.Name, o.Slug, string(o.Plan), db.Text(string(o.PendingPlan)), limit, string(o.CreatedBy),
		o.CreatedAt.UnixMicro(), o.UpdatedAt.UnixMicro()); err != nil {
		return fmt.Errorf("insert organization: %w", err)
	}
	return nil
}

// freeSlug returns an unused slug for name. A lock keeps other transactions from choosing
// the same one before this one ends.
func freeSlug(ctx context.Context, tx *db.Tx, name string) (string, error) {
	if err := tx.Lock(ctx, "organization slug"); err != nil {
		return "", err
	}
	base := slug(name)
	candidate := base
	for n := 2; ; n++ {
		var taken bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM organizations WHERE slug = $1)", candidate).Scan(&taken); err != nil {
			return "", fmt.Errorf("find slug %s: %w", candidate, err)
		}
		if !taken {
			return candidate, nil
		}
		suffix := n
		if n > 20 { // stop numbering a popular name
			suffix = 1000 + rand.IntN(1_000_000_000)
		}
		candidate = base + "-" + strconv.Itoa(suffix)
	}
}

// maxSlug is the maximum length of a slug in bytes, without its suffix.
const maxSlug = 48

// slug spells name in lower-case ASCII letters, digits and single hyphens.
func slug(name string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(name) {
		spelled := string(r)
		if r > 0x7f {
			spelled = latin[r]
		} else if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			spelled = ""
		}
		if spelled == "" {
			gap = gap || r != '\'' && r != '’' // "Joe's" is one word
			continue
		}
		if b.Len() > 0 && gap {
			b.WriteByte('-')
		}
		gap = false
		b.WriteString(spelled)
		if b.Len() >= maxSlug {
			break
		}
	}
	if b.Len() == 0 {
		return "organization"
	}
	return strings.TrimRight(b.String()[:min(b.Len(), maxSlug)], "-")
}

// latin spells the letters of languages written in Latin script.
var latin = map[rune]string{
	'à': "a", 'á': "a", 'â': "a", 'ã': "a", 'å': "a", 'ā': "a", 'ă': "a", 'ą': "a", 'ä': "ae", 'æ': "ae",
	'ç': "c", 'ć': "c", 'č': "c", 'ď': "d", 'đ': "d", 'ð': "d",
	'è': "e", 'é': "e", 'ê': "e", 'ë': "e", 'ē': "e", 'ė': "e", 'ę': "e", 'ě': "e",
	'ğ': "g", 'ģ': "g", 'ì': "i", 'í': "i", 'î': "i", 'ï': "i", 'ī': "i", 'į': "i", 'ı': "i",
	'ķ': "k", 'ļ': "l", 'ľ': "l", 'ł': "l", 'ñ': "n", 'ń': "n", 'ņ': "n", 'ň': "n",
	'ò': "o", 'ó': "o", 'ô': "o", 'õ': "o", 'ō': "o", 'ő': "o", 'ø': "o", 'ö': "oe", 'œ': "oe",
	'ŕ': "r", 'ř': "r", 'ś': "s", 'š': "s", 'ş': "s", 'ș': "s", 'ß': "ss",
	'ţ': "t", 'ț': "t", 'ť': "t", 'þ': "th",
	'ù': "u", 'ú': "u", 'û': "u", 'ū': "u", 'ů': "u", 'ű': "u", 'ų': "u", 'ü': "ue",
	'ý': "y", 'ÿ': "y", 'ź': "z", 'ż': "z", 'ž': "z",
}
