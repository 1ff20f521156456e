package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"

	"github.com/google/uuid"
)

// DeliveryState is the stored state of a delivery.
type DeliveryState int64

// Delivery states. Deliveries below Delivered are waiting.
const (
	Pending        DeliveryState = 0 // waits for its first attempt, or the first since the webhook was enabled again
	Retrying       DeliveryState = 1 // waits for a further attempt
	Delivered      DeliveryState = 2
	DeliveryFailed DeliveryState = 3 // failed: refused, or the retry schedule is exhausted
	Dropped        DeliveryState = 4 // dropped from a full queue
)

func (s DeliveryState) String() string {
	switch s {
	case Pending:
		return "untried"
	case Retrying:
		return "retrying"
	case Delivered:
		return "delivered"
	case DeliveryFailed:
		return "failed"
	case Dropped:
		return "dropped"
	}
	return fmt.Sprintf("delivery state %d", int64(s))
}

// ParseDeliveryState is the inverse of [DeliveryState.String].
func ParseDeliveryState(name string) (DeliveryState, bool) {
	for s := Pending; s <= Dropped; s++ {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

// Delivery is one event for one webhook.
type Delivery struct {
	ID        string
	WebhookID string
	EventID   string
	Event     event.Name
	State     DeliveryState
	Test      bool
	CreatedAt time.Time
	NextAt    time.Time // when the next attempt is due, in state Retrying
	Attempts  int       // so far
	Scheduled int       // attempts within the current retry schedule
	Last      Attempt   // newest attempt; zero without attempts
}

// Attempt is one HTTP request of a delivery.
type Attempt struct {
	Number   int       // from 1
	At       time.Time // its start
	Status   int       // 0 without an answer
	Latency  time.Duration
	Error    string // empty after success
	Response string // the first 4 KiB of the answer's body
	// Request is the request as sent, set by [Service.Delivery]. It is nil if none was sent, or
	// for attempts from before requests were stored.
	Request *payload.Request
}

const selectDelivery = `SELECT d.id, d.webhook_id, d.event_id, d.event, d.state, d.is_test, d.created_at, d.next_at,
	d.attempts, d.attempts - d.schedule_start, d.attempted_at, coalesce(d.status, 0), coalesce(d.latency, 0), d.error, d.response FROM deliveries d`

const sqlFindDelivery = selectDelivery + " JOIN webhooks w ON w.id = d.webhook_id WHERE w.organization_id = $1 AND d.id = $2"

func scanDelivery(row db.Row) (Delivery, error) {
	var d Delivery
	var test, micros int64
	err := row.Scan(&d.ID, &d.WebhookID, &d.EventID, &d.Event, &d.State, &test, db.IntoTime(&d.CreatedAt), db.IntoTime(&d.NextAt),
		&d.Attempts, &d.Scheduled, db.IntoTime(&d.Last.At), &d.Last.Status, &micros, db.IntoText(&d.Last.Error), db.IntoText(&d.Last.Response))
	d.Test = test != 0
	d.Last.Number = d.Attempts
	d.Last.Latency = time.Duration(micros) * time.Microsecond
	return d, err
}

// Delivery returns a delivery of an organization with its attempts, oldest first, and their
// requests.
func (s *Service) Delivery(ctx context.Context, organizationID, id string) (d Delivery, attempts []Attempt, err error) {
	err = s.db.Read(ctx, func(tx *db.Tx) error {
		d, err = findDelivery(ctx, tx, organizationID, id)
		if err != nil {
			return err
		}
		attempts, err = s.attempts(ctx, tx, &d)
		if err != nil {
			return fmt.Errorf("list attempts: %w", err)
		}
		return nil
	})
	return d, attempts, err
}

func findDelivery(ctx context.Context, q db.Querier, organizationID, id string) (Delivery, error) {
	d, err := db.One(ctx, q, scanDelivery, sqlFindDelivery, organizationID, id)
	if errors.Is(err, db.ErrNoRows) {
		return d, problem.New(problem.NotFound, "there is no such delivery")
	}
	if err != nil {
		return d, fmt.Errorf("find delivery: %w", err)
	}
	return d, nil
}

// attempts returns the attempts of a delivery, and sets d.Last.
func (s *Service) attempts(ctx context.Context, q db.Querier, d *Delivery) ([]Attempt, error) {
	var sents []sent
	attempts, err := db.All(ctx, q, func(row db.Row) (Attempt, error) {
		var a Attempt
		var of sent
		var micros int64
		err := row.Scan(&a.Number, db.IntoTime(&a.At), &a.Status, &micros, db.IntoText(&a.Error), db.IntoText(&a.Response),
			&of.version, &of.sum, &of.signatures)
		a.Latency = time.Duration(micros) * time.Microsecond
		sents = append(sents, of)
		return a, err
	}, `SELECT attempt, attempted_at, coalesce(status, 0), latency, error, response, coalesce(version, 0), coalesce(body_sum, 0), signatures
		FROM delivery_attempts WHERE webhook_id = $1 AND delivery_id = $2 AND attempt < $3 ORDER BY attempt`, d.WebhookID, d.ID, d.Attempts)
	if err != nil || d.Attempts == 0 {
		return attempts, err
	}
	var of sent
	var body []byte
	err = q.QueryRow(ctx, "SELECT coalesce(version, 0), coalesce(body_sum, 0), signatures, body FROM deliveries WHERE webhook_id = $1 AND id = $2",
		d.WebhookID, d.ID).Scan(&of.version, &of.sum, &of.signatures, &body)
	if err != nil {
		return nil, err
	}
	attempts, sents = append(attempts, d.Last), append(sents, of)
	err = s.rebuild(ctx, q, d, attempts, sents, body)
	d.Last = attempts[len(attempts)-1]
	return attempts, err
}

// Body returns the body of the next attempt of a delivery: the webhook's payload form may have
// changed since the last one.
func (s *Service) Body(ctx context.Context, organizationID, id string) ([]byte, error) {
	d, err := findDelivery(ctx, s.db, organizationID, id)
	if err != nil {
		return nil, err
	}
	if d.Test {
		var body []byte
		if err := s.db.QueryRow(ctx, "SELECT body FROM deliveries WHERE webhook_id = $1 AND id = $2", d.WebhookID, id).Scan(&body); err != nil {
			return nil, fmt.Errorf("find body: %w", err)
		}
		return body, nil
	}
	w, err := s.Find(ctx, organizationID, d.WebhookID)
	if err != nil {
		return nil, err
	}
	e, err := findEvent(ctx, s.db, organizationID, d.EventID)
	if err != nil {
		return nil, err
	}
	return payload.Render(w.PayloadForm, &e)
}

func findEvent(ctx context.Context, q db.Querier, organizationID, id string) (event.Event, error) {
	e, err := event.Find(ctx, q, id)
	if errors.Is(err, db.ErrNoRows) || (err == nil && e.OrganizationID != organizationID) {
		return event.Event{}, problem.New(problem.NotFound, "the event does not exist or has been purged")
	}
	if err != nil {
		return event.Event{}, fmt.Errorf("find event: %w", err)
	}
	return e, nil
}

// clockSlack bounds the difference between the time in an id and the database's. Ids of previous
// versions have the time of the process's clock.
const clockSlack = db.SkewRefuse + time.Minute

// idAt returns a lower bound of UUIDv7s created at or after t.
func idAt(t time.Time) string {
	ms := max(t.UnixMilli(), 0)
	return fmt.Sprintf("%08x-%04x-", ms>>16, ms&0xffff)
}

// purgeBatch bounds the rows that one write of [Service.Purge] deletes.
const purgeBatch = 500

// Purge deletes deliveries with a newest attempt older than retention (0: none), the history of
// deleted webhooks, unused versions of webhooks, and expired secrets. It returns the number of
// deleted deliveries. Call it about hourly.
func (s *Service) Purge(ctx context.Context, retention time.Duration) (int, error) {
	before := s.db.Now().Add(-retention)
	if retention == 0 {
		before = time.Time{}
	}
	total := 0
	for webhook := ""; ; {
		var next *string
		if err := s.db.QueryRow(ctx, "SELECT min(webhook_id) FROM deliveries WHERE webhook_id > $1", webhook).Scan(&next); err != nil {
			return total, fmt.Errorf("purge deliveries: %w", err)
		}
		if next == nil {
			break
		}
		webhook = *next
		err := db.Steps(ctx, func() (more bool, err error) {
			n, err := s.purge(ctx, webhook, before)
			total += n
			return n == purgeBatch, err
		})
		if err != nil {
			return total, fmt.Errorf("purge deliveries: %w", err)
		}
	}
	if err := s.purgeVersions(ctx); err != nil {
		return total, fmt.Errorf("purge versions of webhooks: %w", err)
	}
	if err := s.purgeCounts(ctx, before); err != nil {
		return total, fmt.Errorf("purge counts of attempts: %w", err)
	}
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE webhooks SET old_secret = NULL, old_secret_until = NULL WHERE old_secret_until <= $1", tx.Now.UnixMicro())
		return err
	})
	if err != nil {
		return total, fmt.Errorf("purge secrets: %w", err)
	}
	return total, nil
}

func (s *Service) purge(ctx context.Context, webhookID string, before time.Time) (int, error) {
	var ids []string
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var exists bool
		err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM webhooks WHERE id = $1)", webhookID).Scan(&exists)
		if err != nil {
			return err
		}
		if exists {
			ids, err = db.All(ctx, tx, scanText, `SELECT id FROM deliveries WHERE webhook_id = $1 AND id < $2
				AND state >= 2 AND coalesce(attempted_at, created_at) < $3 ORDER BY id LIMIT $4`,
				webhookID, idAt(before.Add(clockSlack)), before.UnixMicro(), purgeBatch)
		} else {
			ids, err = db.All(ctx, tx, scanText, "SELECT id FROM deliveries WHERE webhook_id = $1 LIMIT $2", webhookID, purgeBatch)
		}
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := tx.Queue(ctx, "DELETE FROM delivery_attempts WHERE webhook_id = $1 AND delivery_id = ANY($2)", webhookID, ids); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM deliveries WHERE webhook_id = $1 AND id = ANY($2)", webhookID, ids)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(ids), nil
}

// purgeVersions deletes the versions of deleted webhooks, and versions replaced before the
// creation of the oldest retained delivery.
func (s *Service) purgeVersions(ctx context.Context) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Queue(ctx, `DELETE FROM webhook_versions WHERE NOT EXISTS (SELECT 1 FROM webhooks w WHERE w.id = webhook_versions.webhook_id)
			AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.webhook_id = webhook_versions.webhook_id)`); err != nil {
			return err
		}
		type oldest struct {
			webhookID string
			delivery  *string
		}
		list, err := db.All(ctx, tx, func(row db.Row) (o oldest, err error) {
			err = row.Scan(&o.webhookID, &o.delivery)
			return o, err
		}, `SELECT w.id, (SELECT min(d.id) FROM deliveries d WHERE d.webhook_id = w.id) FROM webhooks w WHERE w.version > 1 ORDER BY w.id`)
		if err != nil {
			return err
		}
		for _, o := range list {
			made := tx.Now
			if o.delivery != nil {
				id, err := uuid.Parse(*o.delivery)
				if err != nil {
					return err
				}
				made = time.Unix(id.Time().UnixTime())
			}
			// A process may use a cached version for a second after its replacement.
			if err := tx.Queue(ctx, `DELETE FROM webhook_versions WHERE webhook_id = $1 AND version < (
				SELECT max(later.version) FROM webhook_versions later WHERE later.webhook_id = $1 AND later.created_at < $2)`,
				o.webhookID, made.Add(-clockSlack).UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	})
}
