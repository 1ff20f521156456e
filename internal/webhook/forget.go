package webhook

import (
	"context"
	"fmt"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// forgetBatch is how many events' deliveries one transaction changes.
const forgetBatch = 100

// Forget takes what was made of some events out of their deliveries: what receivers
// answered, which may repeat what they were sent. What still waits is written from
// its event, as that is by now. Another process may send what it has in memory
// for some minutes yet.
func (s *Service) Forget(ctx context.Context, eventIDs []string) error {
	s.bodies.clear()
	for ids := range slices.Chunk(eventIDs, forgetBatch) {
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			for _, change := range []string{
				"UPDATE deliveries SET response = NULL WHERE event_id = ANY($1)",
				`UPDATE delivery_attempts SET response = NULL
					WHERE delivery_id IN (SELECT id FROM deliveries WHERE event_id = ANY($1))
						AND webhook_id IN (SELECT webhook_id FROM deliveries WHERE event_id = ANY($1))`,
			} {
				if _, err := tx.Exec(ctx, change, ids); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("forget deliveries: %w", err)
		}
	}
	return nil
}

// clear forgets all.
func (b *bodies) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.young, b.old, b.size = nil, nil, 0
}
