package webhook

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Wait is the reason why a delivery waits.
type Wait string

// Reasons to wait.
const (
	WaitNothing Wait = "now"     // it is under way or about to be
	WaitTime    Wait = "time"    // its due time
	WaitTurn    Wait = "turn"    // earlier deliveries, and its due time
	WaitEnabled Wait = "enabled" // the webhook to be enabled, and earlier deliveries
)

// UpcomingDelivery is a waiting delivery.
type UpcomingDelivery struct {
	Delivery
	Wait Wait
	// Due is the earliest time of the next attempt, if nothing else delays it; for a webhook
	// that is not enabled, now.
	Due time.Time
	// Further are the times of later attempts if every one failed at once, without the random
	// addition.
	Further []time.Time
}

// Upcoming returns up to limit (at most [MaxPage]) waiting deliveries of a webhook, in the
// order in which they are currently planned.
func (s *Service) Upcoming(ctx context.Context, organizationID, webhookID string, limit int) ([]UpcomingDelivery, error) {
	var v problem.Validation
	if limit < 1 || limit > MaxPage {
		v.Add("limit", "must be from 1 to %d", MaxPage)
		return nil, v.Err()
	}
	var out []UpcomingDelivery
	err := s.read(ctx, func(tx *db.Tx) error {
		w, err := find(ctx, tx, organizationID, webhookID)
		if err != nil {
			return err
		}
		var backlog string
		var start time.Time
		err = tx.QueryRow(ctx, "SELECT ordered_until, drain_at FROM webhooks WHERE id = $1", webhookID).Scan(db.IntoText(&backlog), db.IntoTime(&start))
		if err != nil {
			return err
		}
		list, err := waiting(ctx, tx, &w, tx.Now, limit)
		if err != nil {
			return err
		}
		plan := planner{webhook: &w, backlog: backlog, scale: s.scale, now: tx.Now, place: start}
		for _, d := range list {
			out = append(out, plan.upcoming(d))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list coming attempts: %w", err)
	}
	return out, nil
}

const (
	sqlUntried      = selectDelivery + " WHERE d.webhook_id = $1 AND d.state < 2 AND d.state = 0 ORDER BY d.id LIMIT $2"
	sqlRetrying     = selectDelivery + " WHERE d.webhook_id = $1 AND d.state < 2 AND d.state = 1 ORDER BY d.id LIMIT $2"
	sqlRetryingSoon = selectDelivery + " WHERE d.webhook_id = $1 AND d.next_at IS NOT NULL ORDER BY d.next_at LIMIT $2"
	sqlExhausted    = selectDelivery + " WHERE " + exhausted + " ORDER BY d.id LIMIT $2"
)

// waiting returns waiting deliveries in sending order. Ordered webhooks send by id. Other
// webhooks send due deliveries by id, then retries by due time. For a webhook that is not
// enabled these are the deliveries that enabling it sends: see [Service.requeueUndelivered].
func waiting(ctx context.Context, q db.Querier, w *Webhook, now time.Time, limit int) ([]Delivery, error) {
	list, err := db.All(ctx, q, scanDelivery, sqlUntried, w.ID, limit)
	if err != nil {
		return nil, err
	}
	byID := w.Ordered || w.State != Enabled
	queries := []string{sqlRetryingSoon}
	if byID {
		queries[0] = sqlRetrying
	}
	if w.State != Enabled {
		queries = append(queries, sqlExhausted)
	}
	for _, query := range queries {
		some, err := db.All(ctx, q, scanDelivery, query, w.ID, limit)
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	slices.SortStableFunc(list, func(a, b Delivery) int {
		if byID {
			return cmp.Compare(a.ID, b.ID)
		}
		return cmp.Or(later(a.NextAt, now).Compare(later(b.NextAt, now)), cmp.Compare(a.ID, b.ID))
	})
	return list[:min(len(list), limit)], nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// planner computes due times of waiting deliveries, called in sending order.
type planner struct {
	webhook *Webhook
	backlog string    // ends with this delivery
	scale   float64   // of the delays
	now     time.Time // current time
	place   time.Time // when the drain rate permits the next of the backlog
	before  time.Time // latest due time of deliveries that block others
	any     bool      // a delivery came before
	pending bool      // a delivery of the backlog came before
}

func (p *planner) upcoming(d Delivery) UpcomingDelivery {
	if p.webhook.State != Enabled {
		d.NextAt, d.Scheduled = time.Time{}, 0 // as after enabling
	}
	c := UpcomingDelivery{Delivery: d, Due: later(p.now, d.NextAt)}
	ofBacklog := d.State == Pending && d.ID <= p.backlog && p.webhook.State == Enabled
	paced := ofBacklog && p.webhook.DrainRate > 0
	if p.webhook.Ordered || p.pending {
		c.Due = later(c.Due, p.before)
	}
	if paced {
		c.Due = later(c.Due, p.place)
		p.place = c.Due.Add(time.Second / time.Duration(p.webhook.DrainRate))
	}
	switch {
	case p.webhook.State != Enabled:
		c.Wait = WaitEnabled
	case p.webhook.Ordered && p.any, !p.webhook.Ordered && p.pending && !paced && !d.NextAt.After(p.now):
		c.Wait = WaitTurn
	case c.Due.After(p.now):
		c.Wait = WaitTime
	default:
		c.Wait = WaitNothing
	}
	p.any, p.pending = true, p.pending || ofBacklog
	if p.webhook.Ordered || ofBacklog {
		p.before = c.Due
	}

	at := c.Due
	for n := d.Scheduled + 1; ; n++ {
		delay, again := p.webhook.RetrySchedule.Delay(n, 0)
		if !again {
			return c
		}
		at = at.Add(withJitter(delay, p.scale, 0))
		c.Further = append(c.Further, at)
	}
}
