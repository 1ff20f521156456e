package inbound

import (
	"context"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// Bodies in the blob store are part of an organization's storage (package quota). They are
// counted, and never refused.

// countsBody reports whether the body of an event is to be counted.
func (s *Service) countsBody(ctx context.Context, q db.Querier, e *StoredEvent) (bool, error) {
	if e.bodyKey == "" {
		return false, nil
	}
	return s.quotas.Counts(ctx, q, e.OrganizationID, quota.Storage)
}

// countedBody are columns of an event: its organization and the bytes of its body that are
// counted.
const countedBody = "coalesce(organization_id, ''), CASE WHEN counted THEN body_size ELSE 0 END"

// storedBody is the body of an event in the blob store.
type storedBody struct {
	key            string // empty: none
	organizationID string
	counted        int64 // bytes
}

func scanBody(row db.Row) (b storedBody, err error) {
	err = row.Scan(db.IntoText(&b.key), &b.organizationID, &b.counted)
	return b, err
}

// uncountBody locks an event and subtracts its body from its organization's use.
func (s *Service) uncountBody(ctx context.Context, tx *db.Tx, eventID string) error {
	b, err := db.One(ctx, tx, scanBody, "SELECT body_key, "+countedBody+" FROM inbound_events WHERE id = $1 FOR UPDATE", eventID)
	if errors.Is(err, db.ErrNoRows) || err == nil && b.counted == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the body of an event: %w", err)
	}
	s.quotas.AddStorageTx(ctx, tx, b.organizationID, -b.counted, quota.Counted)
	if _, err := tx.Exec(ctx, "UPDATE inbound_events SET counted = FALSE WHERE id = $1", eventID); err != nil {
		return fmt.Errorf("count the body of an event: %w", err)
	}
	return nil
}

// countBody counts the body of an event that has got an organization.
func (s *Service) countBody(ctx context.Context, tx *db.Tx, e *StoredEvent) error {
	counts, err := s.countsBody(ctx, tx, e)
	if err != nil || !counts {
		return err
	}
	s.quotas.AddStorageTx(ctx, tx, e.OrganizationID, e.Size, quota.Counted)
	if _, err := tx.Exec(ctx, "UPDATE inbound_events SET counted = TRUE WHERE id = $1", e.ID); err != nil {
		return fmt.Errorf("count the body of an event: %w", err)
	}
	return nil
}

// CountBodies adds an organization's bodies in the blob store to its use of storage, if they are
// not counted yet, in small transactions.
func (s *Service) CountBodies(ctx context.Context, organizationID string) error {
	err := db.Steps(ctx, func() (more bool, err error) {
		err = s.db.Write(ctx, func(tx *db.Tx) error {
			list, err := db.All(ctx, tx, scanBody, `UPDATE inbound_events SET counted = TRUE WHERE id IN (SELECT id FROM inbound_events
				WHERE organization_id = $1 AND body_key IS NOT NULL AND NOT counted LIMIT $2 FOR UPDATE SKIP LOCKED)
				RETURNING body_key, `+countedBody, organizationID, purgeBatch)
			for _, b := range list {
				s.quotas.AddStorageTx(ctx, tx, organizationID, b.counted, quota.Counted)
			}
			more = len(list) > 0
			return err
		})
		return more, err
	})
	if err != nil {
		return fmt.Errorf("count bodies: %w", err)
	}
	return nil
}
