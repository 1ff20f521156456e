package webhook

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// RedactEventsTx removes data derived from events out of their deliveries, in the caller's
// transaction, which redacts the events: the stored answers of receivers, which may repeat the
// sent data. Waiting deliveries are rendered from the redacted event. Other processes may send
// cached bodies for some minutes more.
func (s *Service) RedactEventsTx(ctx context.Context, tx *db.Tx, eventIDs []string) error {
	for _, change := range []string{
		`UPDATE delivery_attempts SET response = NULL
			WHERE (webhook_id, delivery_id) IN (SELECT webhook_id, id FROM deliveries WHERE event_id = ANY($1))`,
		"UPDATE deliveries SET response = NULL WHERE event_id = ANY($1)",
	} {
		if err := tx.Queue(ctx, change, eventIDs); err != nil {
			return fmt.Errorf("forget deliveries: %w", err)
		}
	}
	tx.AfterCommit(s.bodies.Clear)
	return nil
}
