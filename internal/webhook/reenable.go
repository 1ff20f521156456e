package webhook

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// requeueUndelivered resets the undelivered deliveries of a webhook to untried, with a new
// retry schedule: deliveries that wait for a retry, and deliveries that exhausted their
// schedule since the webhook was last enabled. Events delivered by a replay meanwhile are not
// sent again. Refused deliveries (4xx) keep their state. The caller holds the lock of the
// webhook's row.
func (s *Service) requeueUndelivered(ctx context.Context, tx *db.Tx, id string) error {
	if err := tx.Queue(ctx, `UPDATE deliveries SET state = 0, next_at = NULL, schedule_start = attempts
		WHERE webhook_id = $1 AND state < 2 AND state = 1`, id); err != nil {
		return fmt.Errorf("restart schedules: %w", err)
	}
	lost, err := db.All(ctx, tx, scanExhausted, "SELECT d.id, d.event_id, d.event, d.exhausted FROM deliveries d WHERE "+exhausted+" ORDER BY d.id", id)
	if err != nil {
		return fmt.Errorf("find exhausted deliveries: %w", err)
	}
	var ordered bool
	var organizationID, events string
	if err := tx.QueryRow(ctx, "SELECT ordered, organization_id, events FROM webhooks WHERE id = $1", id).Scan(&ordered, &organizationID, &events); err != nil {
		return err
	}
	source, _ := splitEvents(events)
	ids, jobs := make([]string, len(lost)), make([]queue.New, len(lost))
	for i, d := range lost {
		ids[i] = d.id
		jobs[i] = queue.New{ID: d.id, Kind: kindOf(source, ordered), Lane: id, Tenant: organizationID, Payload: encodePayload(d.jobPayload), Order: max(d.order, int64(i)+1)}
	}
	if len(ids) > 0 {
		if err := tx.Queue(ctx, "UPDATE deliveries SET state = 0, schedule_start = attempts WHERE webhook_id = $1 AND id = ANY($2)", id, ids); err != nil {
			return fmt.Errorf("restart schedules: %w", err)
		}
		if err := s.queue.EnqueueTx(ctx, tx, jobs...); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, "UPDATE deliveries SET exhausted = NULL WHERE webhook_id = $1 AND exhausted IS NOT NULL", id)
	return err
}

// exhausted is the condition of deliveries d of webhook $1 that exhausted their schedule since
// it was last enabled, unless a replay delivered the event.
const exhausted = `d.webhook_id = $1 AND d.exhausted IS NOT NULL AND NOT EXISTS (SELECT 1 FROM deliveries r
	WHERE r.event_id = d.event_id AND r.webhook_id = d.webhook_id AND r.state = 2)`

// exhaustedDelivery is a delivery with an exhausted schedule.
type exhaustedDelivery struct {
	id    string
	order int64 // of its last job; 1 if a previous version of the program ended that
	jobPayload
}

func scanExhausted(row db.Row) (exhaustedDelivery, error) {
	d := exhaustedDelivery{jobPayload: jobPayload{recovered: true}}
	err := row.Scan(&d.id, &d.eventID, &d.event, &d.order)
	return d, err
}
