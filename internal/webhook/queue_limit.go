package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// trimKind is the kind of jobs that reduce the queue of a suspended webhook to [MaxQueued]; their
// lanes are webhook ids.
const trimKind = "webhook-trim"

// trimBatch bounds the deliveries dropped in one transaction.
const trimBatch = 500

// trim drops the oldest deliveries of a webhook that is not enabled until at most [MaxQueued]
// wait. It works in steps, because there may be a million.
func (s *Service) trim(ctx context.Context, j *queue.Job) error {
	for {
		var waiting int64
		if err := s.db.QueryRow(ctx, "SELECT count(*) FROM deliveries WHERE webhook_id = $1 AND state < 2", j.Lane).Scan(&waiting); err != nil {
			return fmt.Errorf("count deliveries: %w", err)
		}
		over := waiting - MaxQueued
		if over <= 0 {
			return nil
		}
		for over > 0 {
			n, err := s.dropOldest(ctx, j.Lane, min(over, trimBatch))
			if err != nil {
				return fmt.Errorf("trim the queue of webhook %s: %w", j.Lane, err)
			}
			if n == 0 {
				return nil // enabled again, or deleted
			}
			over -= n
		}
	}
}

// dropOldest drops at most n deliveries of a webhook that is not enabled.
func (s *Service) dropOldest(ctx context.Context, id string, n int64) (dropped int64, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		dropped = 0
		var state State
		var organizationID string
		err := tx.QueryRow(ctx, "SELECT state, organization_id FROM webhooks WHERE id = $1 FOR UPDATE", id).Scan(&state, &organizationID)
		if errors.Is(err, db.ErrNoRows) || err == nil && state == Enabled {
			return nil
		}
		if err != nil {
			return err
		}
		s.changed(tx, organizationID, id)
		dropped, err = s.drop(ctx, tx, id, n)
		return err
	})
	return dropped, err
}

// drop drops the n oldest waiting deliveries of a webhook, or all if fewer, and returns their
// number.
func (s *Service) drop(ctx context.Context, tx *db.Tx, id string, n int64) (int64, error) {
	oldest, err := db.All(ctx, tx, scanText, `SELECT id FROM (
			SELECT id FROM (SELECT id FROM deliveries WHERE webhook_id = $1 AND state < 2 AND state = 0 ORDER BY id LIMIT $2) AS untried
			UNION ALL
			SELECT id FROM (SELECT id FROM deliveries WHERE webhook_id = $1 AND state < 2 AND state = 1 ORDER BY id LIMIT $2) AS retrying
		) AS oldest ORDER BY id LIMIT $2`, id, n)
	if err != nil || len(oldest) == 0 {
		return 0, err
	}
	dropped, err := s.dropTx(ctx, tx, id, oldest)
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, "UPDATE webhooks SET held = $2, dropped = dropped + $3 WHERE id = $1", id, MaxQueued, dropped)
	return dropped, err
}

// dropTx drops waiting deliveries of a webhook and their jobs, and returns their number.
func (s *Service) dropTx(ctx context.Context, tx *db.Tx, id string, deliveries []string) (int64, error) {
	dropped, err := tx.Exec(ctx, "UPDATE deliveries SET state = $3, next_at = NULL WHERE webhook_id = $1 AND id = ANY($2)",
		id, deliveries, int64(Dropped))
	if err != nil {
		return 0, err
	}
	return dropped, s.queue.DeleteTx(ctx, tx, deliveries...)
}
