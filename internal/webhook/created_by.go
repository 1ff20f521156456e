package webhook

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// CreatedBy returns the webhooks of an organization created by a user, oldest first.
func (s *Service) CreatedBy(ctx context.Context, organizationID, userID string) ([]Webhook, error) {
	list, err := db.All(ctx, s.db, scanWebhook, selectWebhook+" WHERE w.organization_id = $1 AND w.created_by = $2 ORDER BY w.id", organizationID, userID)
	if err != nil {
		return nil, fmt.Errorf("list webhooks of a creator: %w", err)
	}
	return list, nil
}

// DisableCreatedTx disables the enabled webhooks of an organization created by a user. Their
// events queue, as after [Service.Update].
func (s *Service) DisableCreatedTx(ctx context.Context, tx *db.Tx, organizationID, userID string) error {
	ids, err := db.All(ctx, tx, func(row db.Row) (string, error) {
		var id string
		err := row.Scan(&id)
		return id, err
	}, "SELECT id FROM webhooks WHERE organization_id = $1 AND created_by = $2 AND state = $3 ORDER BY id FOR UPDATE",
		organizationID, userID, string(Enabled))
	if err != nil {
		return fmt.Errorf("find webhooks of a creator: %w", err)
	}
	disabled := false
	for _, id := range ids {
		if _, err := s.UpdateTx(ctx, tx, organizationID, id, Change{Enabled: &disabled}); err != nil {
			return err
		}
	}
	return nil
}
