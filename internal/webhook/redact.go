package webhook

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// RedactEvents takes what was made of some events out of their deliveries, in the caller's
// transaction, which changes the events: what receivers answered, which may repeat
// what they were sent. What still waits is written from its event, as that is by
// now. Another process may send what it has in memory for some minutes yet.
func (s *Service) RedactEvents(ctx context.Context, tx *db.Tx, eventIDs []string) error {
	for _, change := range []string{
		`UPDATE delivery_attempts SET response = NULL
			WHERE (webhook_id, delivery_id) IN (SELECT webhook_id, id FROM deliveries WHERE event_id = ANY($1))`,
		"UPDATE deliveries SET response = NULL WHERE event_id = ANY($1)",
	} {
		if _, err := tx.Exec(ctx, change, eventIDs); err != nil {
			return fmt.Errorf("forget deliveries: %w", err)
		}
	}
	tx.AfterCommit(s.bodies.clear)
	return nil
}

// clear forgets all.
func (b *bodyCache) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.young, b.old, b.size = nil, nil, 0
}
