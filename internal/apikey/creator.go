package apikey

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// CreatedBy returns an organization's active keys that a user created, oldest
// first.
func (s *Service) CreatedBy(ctx context.Context, q db.Querier, organizationID, userID string) ([]Key, error) {
	return createdBy(ctx, q, organizationID, userID, "")
}

func createdBy(ctx context.Context, q db.Querier, organizationID, userID, lock string) ([]Key, error) {
	list, err := db.All(ctx, q, scan, "SELECT "+columns+` FROM api_keys WHERE organization_id = $1 AND deleted_at IS NULL
		AND revoked_at IS NULL ORDER BY id`+lock, organizationID)
	if err != nil {
		return nil, fmt.Errorf("list keys of a creator: %w", err)
	}
	var out []Key
	for _, k := range list {
		if k.CreatedBy.Type == audit.User && k.CreatedBy.ID == userID {
			out = append(out, k)
		}
	}
	return out, nil
}

// RevokeCreatedTx revokes an organization's keys that a user created, as [Service.Revoke]
// does, and returns their number. It includes expired ones.
func (s *Service) RevokeCreatedTx(ctx context.Context, tx *db.Tx, organizationID, userID string) (int, error) {
	list, err := createdBy(ctx, tx, organizationID, userID, " FOR UPDATE")
	if err != nil {
		return 0, err
	}
	for i := range list {
		if err := s.revokeTx(ctx, tx, &list[i]); err != nil {
			return 0, fmt.Errorf("revoke key: %w", err)
		}
	}
	return len(list), nil
}

// RedactUserTx removes a user's e-mail address from keys that they created or revoked, in
// every organization.
func (s *Service) RedactUserTx(ctx context.Context, tx *db.Tx, userID string) error {
	type record struct {
		id               string
		created, revoked audit.Actor
	}
	mention := `%"` + userID + `"%`
	list, err := db.All(ctx, tx, func(row db.Row) (record, error) {
		var r record
		err := row.Scan(&r.id, db.IntoJSON(&r.created), db.IntoJSON(&r.revoked))
		return r, err
	}, "SELECT id, created_by, revoked_by FROM api_keys WHERE created_by LIKE $1 OR revoked_by LIKE $1 ORDER BY id FOR UPDATE", mention)
	if err != nil {
		return fmt.Errorf("find keys of a user: %w", err)
	}
	for _, r := range list {
		var revoked any
		if r.revoked != (audit.Actor{}) {
			revoked = db.JSON(redacted(r.revoked, userID))
		}
		if err := tx.Queue(ctx, "UPDATE api_keys SET created_by = $2, revoked_by = $3 WHERE id = $1",
			r.id, db.JSON(redacted(r.created, userID)), revoked); err != nil {
			return fmt.Errorf("redact key: %w", err)
		}
	}
	return nil
}

func redacted(a audit.Actor, userID string) audit.Actor {
	if a.Type == audit.User && a.ID == userID {
		a.Email = ""
	}
	return a
}
