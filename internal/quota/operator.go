package quota

import (
	"context"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Actions in the audit log.
const (
	AuditUpdated   audit.Action = "quota.updated"
	AuditReached   audit.Action = "quota.reached"
	AuditRecounted audit.Action = "quota.recounted"
)

// lockOrder is the order of an organization's row among the locks that a transaction takes last.
// It is after the chains of the audit log.
func lockOrder(organizationID string) string { return "quota/" + organizationID }

// SetLimits sets limits of an organization on behalf of the operator; nil means the plan's. Other
// quotas are unchanged. target is the organization, for the audit log.
func (s *Service) SetLimits(ctx context.Context, organizationID string, target audit.Target, set map[Quota]*int64) error {
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		before, err := s.load(ctx, tx, organizationID)
		if err != nil {
			return err
		}
		args, changes := []any{organizationID}, make(map[string]audit.Change)
		for _, q := range All {
			limit, given := set[q]
			args = append(args, given, limit)
			if was := before.limit(q); given && !equal(was, limit) {
				changes[string(q)] = audit.Change{From: was, To: limit}
			}
		}
		if len(changes) == 0 {
			return nil
		}
		if err := s.c.Audit.RecordTx(ctx, tx, audit.Entry{OrganizationID: organizationID, Action: AuditUpdated, Target: target, Changes: changes}); err != nil {
			return err
		}
		tx.BeforeCommit(lockOrder(organizationID), func() error {
			_, err := tx.Exec(ctx, `INSERT INTO quotas (organization_id, storage, day, messages, max_storage, max_messages, max_webhooks)
				VALUES ($1, 0, 0, 0, CASE WHEN $2 THEN CAST($3 AS BIGINT) END, CASE WHEN $4 THEN CAST($5 AS BIGINT) END, CASE WHEN $6 THEN CAST($7 AS BIGINT) END)
				ON CONFLICT (organization_id) DO UPDATE SET max_storage = CASE WHEN $2 THEN excluded.max_storage ELSE quotas.max_storage END,
					max_messages = CASE WHEN $4 THEN excluded.max_messages ELSE quotas.max_messages END,
					max_webhooks = CASE WHEN $6 THEN excluded.max_webhooks ELSE quotas.max_webhooks END`, args...)
			return err
		})
		tx.AfterCommit(func() { s.limits.Delete(organizationID) })
		return nil
	})
	if err != nil {
		return fmt.Errorf("set quotas: %w", err)
	}
	return nil
}

// limit returns the limit that the operator set; nil: none.
func (r *row) limit(q Quota) *int64 {
	if n, ok := r.own[q]; ok {
		return &n
	}
	return nil
}

func equal(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

// Recount computes an organization's use of storage anew, on behalf of the operator. It repairs
// sums that break [Invariants], and blocks the organization's changes of files meanwhile. target
// is the organization, for the audit log.
func (s *Service) Recount(ctx context.Context, organizationID string, target audit.Target) error {
	ctx = db.LongRunning(ctx, "recount")
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		tx.BeforeCommit(lockOrder(organizationID), func() error {
			if _, err := tx.Exec(ctx, `INSERT INTO quotas (organization_id, storage, day, messages) VALUES ($1, 0, 0, 0)
				ON CONFLICT (organization_id) DO UPDATE SET storage = 0`, organizationID); err != nil {
				return err
			}
			// Only a statement that begins after the lock sees all that was committed before it.
			_, err := tx.Exec(ctx, "UPDATE quotas SET storage = (SELECT coalesce(sum(size), 0) FROM ("+union(s.c.Files)+
				") AS files WHERE organization_id = $1) WHERE organization_id = $1", organizationID)
			return err
		})
		return s.c.Audit.RecordTx(ctx, tx, audit.Entry{OrganizationID: organizationID, Action: AuditRecounted, Target: target})
	})
	if err != nil {
		return fmt.Errorf("recount storage: %w", err)
	}
	return nil
}

func union(queries []string) string { return strings.Join(queries, " UNION ALL ") }

// Invariants returns the rules of stored use. files are those of [Config].
func Invariants(files ...string) []db.Invariant {
	return []db.Invariant{
		{Name: "storage of organizations is the sum of their counted files", Table: "quotas",
			Broken: `SELECT organization_id FROM (SELECT organization_id, -storage AS size FROM quotas UNION ALL ` + union(files) + `) AS sums
				GROUP BY organization_id HAVING sum(size) <> 0`},
		{Name: "quotas belong to organizations", Table: "quotas",
			Broken: "SELECT q.organization_id FROM quotas q LEFT JOIN organizations o ON o.id = q.organization_id WHERE o.id IS NULL"},
	}
}
