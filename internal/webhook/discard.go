package webhook

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// WaitingDeliveries are the deliveries of a webhook that wait for an attempt.
type WaitingDeliveries struct {
	OrganizationID string
	WebhookID      string
	URL            string
	State          State // of the webhook
	Count          int64
	Oldest         time.Time // creation of the oldest
}

// Waiting returns the waiting deliveries of all organizations by webhook; webhooks without are
// omitted.
func (s *Service) Waiting(ctx context.Context) ([]WaitingDeliveries, error) {
	list, err := db.All(ctx, s.db, func(row db.Row) (w WaitingDeliveries, err error) {
		err = row.Scan(&w.OrganizationID, &w.WebhookID, &w.URL, &w.State, &w.Count, db.IntoTime(&w.Oldest))
		return w, err
	}, `SELECT w.organization_id, w.id, w.url, w.state, count(*), min(d.created_at) FROM webhooks w
		JOIN deliveries d ON d.webhook_id = w.id AND d.state < 2
		GROUP BY w.organization_id, w.id, w.url, w.state ORDER BY w.organization_id, w.id`)
	if err != nil {
		return nil, fmt.Errorf("count waiting deliveries: %w", err)
	}
	return list, nil
}

// DiscardWaiting drops the waiting deliveries of all organizations that were created before a
// time, in steps, and returns their number. They can be replayed.
func (s *Service) DiscardWaiting(ctx context.Context, before time.Time) (total int64, err error) {
	webhooks, err := s.Waiting(ctx)
	if err != nil {
		return 0, err
	}
	for _, w := range webhooks {
		for {
			n, err := s.discardSome(ctx, w.WebhookID, before)
			if err != nil {
				return total, fmt.Errorf("discard deliveries of webhook %s: %w", w.WebhookID, err)
			}
			if total += n; n == 0 {
				break
			}
		}
	}
	return total, nil
}

func (s *Service) discardSome(ctx context.Context, id string, before time.Time) (n int64, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		n = 0
		var organizationID, rawURL string
		err := tx.QueryRow(ctx, "SELECT organization_id, url FROM webhooks WHERE id = $1 FOR UPDATE", id).Scan(&organizationID, &rawURL)
		if errors.Is(err, db.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		// SQLite must know the limit: otherwise it sorts all waiting deliveries for each batch.
		oldest, err := db.All(ctx, tx, scanText, "SELECT id FROM deliveries WHERE webhook_id = $1 AND state < 2 AND created_at < $2 ORDER BY id LIMIT "+strconv.Itoa(trimBatch),
			id, before.UnixMicro())
		if err != nil || len(oldest) == 0 {
			return err
		}
		if n, err = s.dropTx(ctx, tx, id, oldest); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE webhooks SET dropped = dropped + $2, held = CASE WHEN state = $3 THEN 0 ELSE ("+countWaiting+") END WHERE id = $1",
			id, n, string(Enabled), MaxQueued+1); err != nil {
			return err
		}
		s.changed(tx, organizationID, id)
		return s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: organizationID, Action: AuditDiscarded, Target: audit.Target{Type: "webhook", ID: id, Name: host(rawURL)}, Details: map[string]any{"deliveries": n},
		})
	})
	return n, err
}
