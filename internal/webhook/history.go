package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"

	"github.com/google/uuid"
)

// DeliveryState is the state of a delivery, as stored.
type DeliveryState int64

// The states. Waiting deliveries are those below Delivered.
const (
	Untried     DeliveryState = 0 // waits for its first attempt
	Retrying    DeliveryState = 1 // waits for a further attempt
	Delivered   DeliveryState = 2
	Undelivered DeliveryState = 3 // failed: refused, or its schedule is used up
	Dropped     DeliveryState = 4 // pushed out of a full queue
)

func (s DeliveryState) String() string {
	switch s {
	case Untried:
		return "untried"
	case Retrying:
		return "retrying"
	case Delivered:
		return "delivered"
	case Undelivered:
		return "failed"
	case Dropped:
		return "dropped"
	}
	return fmt.Sprintf("delivery state %d", int64(s))
}

// Delivery is one event on its way to one webhook.
type Delivery struct {
	ID        string
	WebhookID string
	EventID   string
	Event     event.Name
	State     DeliveryState
	Test      bool
	CreatedAt time.Time
	NextAt    time.Time // when the next attempt is due, while retrying
	Attempts  int       // made so far
	Last      Attempt   // the newest; zero when Attempts is 0
}

// Attempt is one post of a delivery.
type Attempt struct {
	Number   int       // from 1
	At       time.Time // its start
	Status   int       // 0 when there was no answer
	Latency  time.Duration
	Error    string // empty when it succeeded
	Response string // the first 4 KiB of the answer's body
}

const selectDelivery = `SELECT id, webhook_id, event_id, event, state, is_test, created_at, next_at,
	attempts, attempted_at, coalesce(status, 0), coalesce(latency, 0), error, response FROM deliveries`

func scanDelivery(row db.Row) (Delivery, error) {
	var d Delivery
	var test, micros int64
	err := row.Scan(&d.ID, &d.WebhookID, &d.EventID, &d.Event, &d.State, &test, db.IntoTime(&d.CreatedAt), db.IntoTime(&d.NextAt),
		&d.Attempts, db.IntoTime(&d.Last.At), &d.Last.Status, &micros, db.IntoText(&d.Last.Error), db.IntoText(&d.Last.Response))
	d.Test = test != 0
	d.Last.Number = d.Attempts
	d.Last.Latency = time.Duration(micros) * time.Microsecond
	return d, err
}

// Deliveries returns up to limit deliveries of a webhook, newest first, that
// are older than the one called before (empty: from the newest).
func (s *Service) Deliveries(ctx context.Context, organizationID, webhookID, before string, limit int) ([]Delivery, error) {
	if _, err := s.Find(ctx, organizationID, webhookID); err != nil {
		return nil, err
	}
	if before == "" {
		before = "~" // after every id
	}
	list, err := db.All(ctx, s.db, scanDelivery, selectDelivery+" WHERE webhook_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
		webhookID, before, limit)
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	return list, nil
}

// Delivery returns one delivery and its attempts, oldest first.
func (s *Service) Delivery(ctx context.Context, organizationID, webhookID, id string) (Delivery, []Attempt, error) {
	if _, err := s.Find(ctx, organizationID, webhookID); err != nil {
		return Delivery{}, nil, err
	}
	d, err := findDelivery(ctx, s.db, webhookID, id)
	if err != nil {
		return d, nil, err
	}
	attempts, err := db.All(ctx, s.db, func(row db.Row) (Attempt, error) {
		var a Attempt
		var micros int64
		err := row.Scan(&a.Number, db.IntoTime(&a.At), &a.Status, &micros, db.IntoText(&a.Error), db.IntoText(&a.Response))
		a.Latency = time.Duration(micros) * time.Microsecond
		return a, err
	}, `SELECT attempt, attempted_at, coalesce(status, 0), latency, error, response FROM delivery_attempts
		WHERE webhook_id = $1 AND delivery_id = $2 AND attempt < $3 ORDER BY attempt`, webhookID, id, d.Attempts)
	if err != nil {
		return d, nil, fmt.Errorf("list attempts: %w", err)
	}
	if d.Attempts > 0 {
		attempts = append(attempts, d.Last)
	}
	return d, attempts, nil
}

func findDelivery(ctx context.Context, q db.Querier, webhookID, id string) (Delivery, error) {
	d, err := db.One(ctx, q, scanDelivery, selectDelivery+" WHERE webhook_id = $1 AND id = $2", webhookID, id)
	if errors.Is(err, db.ErrNoRows) {
		return d, problem.New(problem.NotFound, "there is no such delivery")
	}
	if err != nil {
		return d, fmt.Errorf("find delivery: %w", err)
	}
	return d, nil
}

// Body returns the bytes that an attempt of a delivery posts, in the webhook's
// present form.
func (s *Service) Body(ctx context.Context, organizationID, webhookID, id string) ([]byte, error) {
	w, err := s.Find(ctx, organizationID, webhookID)
	if err != nil {
		return nil, err
	}
	d, err := findDelivery(ctx, s.db, webhookID, id)
	if err != nil {
		return nil, err
	}
	if d.Test {
		e := s.sample(d.EventID, organizationID, d.CreatedAt)
		return render(w.PayloadForm, &e)
	}
	e, err := findEvent(ctx, s.db, organizationID, d.EventID)
	if err != nil {
		return nil, err
	}
	return render(w.PayloadForm, &e)
}

func findEvent(ctx context.Context, q db.Querier, organizationID, id string) (event.Event, error) {
	e, err := event.Find(ctx, q, id)
	if errors.Is(err, db.ErrNoRows) || (err == nil && e.OrganizationID != organizationID) {
		return event.Event{}, problem.New(problem.NotFound, "the event is not stored, or no longer")
	}
	if err != nil {
		return event.Event{}, fmt.Errorf("find event: %w", err)
	}
	return e, nil
}

// Replay sends the event of a delivery to its webhook again, as a new delivery,
// whose id it returns.
func (s *Service) Replay(ctx context.Context, organizationID, webhookID, id string) (string, error) {
	d, _, err := s.Delivery(ctx, organizationID, webhookID, id)
	if err != nil {
		return "", err
	}
	if d.Test {
		return "", problem.New(problem.Invalid, "a test delivery cannot be replayed; send another test")
	}
	ids, err := s.ReplayEvent(ctx, organizationID, d.EventID, webhookID)
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// ReplayEvent sends an event again: to one webhook, whether or not it subscribes
// to it, or with an empty webhookID to all that do. It returns the ids of the
// new deliveries.
func (s *Service) ReplayEvent(ctx context.Context, organizationID, eventID, webhookID string) ([]string, error) {
	if webhookID != "" {
		if _, err := s.Find(ctx, organizationID, webhookID); err != nil {
			return nil, err
		}
	}
	e, err := findEvent(ctx, s.db, organizationID, eventID)
	if err != nil {
		return nil, err
	}
	var ids []string
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		ids, err = s.replay(ctx, tx, []event.Event{e}, webhookID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("replay event: %w", err)
	}
	return ids, nil
}

func (s *Service) replay(ctx context.Context, tx *db.Tx, events []event.Event, webhookID string) ([]string, error) {
	subs, err := db.All(ctx, tx, scanSubscription, selectSubscription+" WHERE organization_id = $1 ORDER BY id", events[0].OrganizationID)
	if err != nil {
		return nil, err
	}
	var all []newDelivery
	var ids []string
	for i := range events {
		for _, sub := range subs {
			if sub.id == webhookID || webhookID == "" && matches(sub.events, events[i].Name) {
				d := newDelivery{sub, &events[i], queue.NewID()}
				all, ids = append(all, d), append(ids, d.id)
			}
		}
	}
	return ids, s.enqueue(ctx, tx, all)
}

// replayPage is how many deliveries [Service.ReplayRange] looks at in one step.
const replayPage = 200

// ReplayRange sends again what a webhook's deliveries made from from up to to
// were about, each event once, oldest first; with failedOnly only those that
// failed or were dropped. It returns how many it sent. A range that is cut
// short by an error was sent in part.
func (s *Service) ReplayRange(ctx context.Context, organizationID, webhookID string, from, to time.Time, failedOnly bool) (int, error) {
	if _, err := s.Find(ctx, organizationID, webhookID); err != nil {
		return 0, err
	}
	// What is replayed makes deliveries too: they come after this one.
	var end string
	if err := s.db.QueryRow(ctx, "SELECT coalesce(max(id), '') FROM deliveries WHERE webhook_id = $1", webhookID).Scan(&end); err != nil {
		return 0, fmt.Errorf("replay deliveries: %w", err)
	}
	sent := make(map[string]bool)
	after := idAt(from.Add(-clockSlack))
	for {
		page, err := db.All(ctx, s.db, scanDelivery, selectDelivery+` WHERE webhook_id = $1 AND id > $2 AND id <= $3 AND id < $4
			ORDER BY id LIMIT $5`, webhookID, after, end, idAt(to.Add(clockSlack)), replayPage)
		if err != nil {
			return len(sent), fmt.Errorf("replay deliveries: %w", err)
		}
		var events []event.Event
		for _, d := range page {
			after = d.ID
			failed := d.State == Undelivered || d.State == Dropped
			if d.Test || sent[d.EventID] || failedOnly && !failed || d.CreatedAt.Before(from) || !d.CreatedAt.Before(to) {
				continue
			}
			e, err := event.Find(ctx, s.db, d.EventID)
			if errors.Is(err, db.ErrNoRows) {
				continue
			}
			if err != nil {
				return len(sent), fmt.Errorf("replay deliveries: %w", err)
			}
			sent[d.EventID] = true
			events = append(events, e)
		}
		if len(events) > 0 {
			if err := s.db.Write(ctx, func(tx *db.Tx) error {
				_, err := s.replay(ctx, tx, events, webhookID)
				return err
			}); err != nil {
				return len(sent) - len(events), fmt.Errorf("replay deliveries: %w", err)
			}
		}
		if len(page) < replayPage {
			return len(sent), nil
		}
	}
}

// clockSlack is by how much ids, which a process never lets run backwards, may
// be ahead of the clock.
const clockSlack = time.Minute

// idAt returns a lower bound of the UUIDv7s made from t on.
func idAt(t time.Time) string {
	ms := max(t.UnixMilli(), 0)
	return fmt.Sprintf("%08x-%04x-", ms>>16, ms&0xffff)
}

// purgeBatch bounds the rows that one write of [Service.Purge] deletes.
const purgeBatch = 500

// Purge deletes deliveries whose newest attempt is older than [Keep], the
// history of deleted webhooks, and secrets that no longer sign. It returns how
// many deliveries it deleted. It is meant to be called every hour or so.
func (s *Service) Purge(ctx context.Context) (int, error) {
	before := time.Now().Add(-Keep)
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
		for {
			n, err := s.purge(ctx, webhook, before)
			total += n
			if err != nil {
				return total, fmt.Errorf("purge deliveries: %w", err)
			}
			if n < purgeBatch {
				break
			}
		}
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
		scan := func(row db.Row) (id string, err error) { err = row.Scan(&id); return id, err }
		if exists {
			ids, err = db.All(ctx, tx, scan, `SELECT id FROM deliveries WHERE webhook_id = $1 AND id < $2
				AND state >= 2 AND coalesce(attempted_at, created_at) < $3 ORDER BY id LIMIT $4`,
				webhookID, idAt(before.Add(clockSlack)), before.UnixMicro(), purgeBatch)
		} else {
			ids, err = db.All(ctx, tx, scan, "SELECT id FROM deliveries WHERE webhook_id = $1 LIMIT $2", webhookID, purgeBatch)
		}
		if err != nil || len(ids) == 0 {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM delivery_attempts WHERE webhook_id = $1 AND delivery_id = ANY($2)", webhookID, ids); err != nil {
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

// TestResult says how a test delivery went.
type TestResult struct {
	DeliveryID string
	StatusCode int // 0 when there was no answer
	Duration   time.Duration
	Error      string // empty when it was accepted
}

// Test sends a made-up ticket.created event to a webhook, signed like any other
// and whatever events it wants and state it is in, and waits for the answer. The
// attempt is kept, but neither repeated nor held against the webhook.
func (s *Service) Test(ctx context.Context, organizationID, id string) (TestResult, error) {
	if _, err := s.Find(ctx, organizationID, id); err != nil {
		return TestResult{}, err
	}
	t, err := s.loadTarget(ctx, id)
	if errors.Is(err, errDeleted) {
		return TestResult{}, errNotFound()
	}
	if err != nil {
		return TestResult{}, fmt.Errorf("test webhook: %w", err)
	}
	created := time.Now().UTC().Truncate(time.Microsecond)
	e := s.sample(uuid.Must(uuid.NewV7()).String(), organizationID, created)
	body, err := render(t.form, &e)
	if err != nil {
		return TestResult{}, fmt.Errorf("test webhook: %w", err)
	}
	deliveryID := uuid.Must(uuid.NewV7()).String()
	a := s.post(ctx, t, deliveryID, e.ID, string(e.Name), body)
	if a.status == 0 && ctx.Err() != nil {
		return TestResult{}, fmt.Errorf("test webhook: %w", ctx.Err())
	}
	state := Delivered
	if a.outcome != accepted {
		state = Undelivered
	}
	ctx = context.WithoutCancel(ctx)
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		if ok, err := s.noteNewest(ctx, tx, id, &a); err != nil {
			return err
		} else if !ok {
			return errNotFound()
		}
		_, err := tx.Exec(ctx, `INSERT INTO deliveries (webhook_id, id, event_id, event, state, is_test, created_at,
			attempts, attempted_at, status, latency, error, response) VALUES ($1, $2, $3, $4, $5, 1, $6, 1, $7, $8, $9, $10, $11)`,
			id, deliveryID, e.ID, string(e.Name), int64(state), created.UnixMicro(),
			a.at.UnixMicro(), orNil(a.status), a.latency.Microseconds(), db.Text(a.err), db.Text(a.response))
		return err
	})
	if err != nil {
		return TestResult{}, fmt.Errorf("record test: %w", err)
	}
	return TestResult{DeliveryID: deliveryID, StatusCode: a.status, Duration: a.latency, Error: a.err}, nil
}

// sample is the event of a test delivery. Its ids name nothing that exists.
func (s *Service) sample(id, organizationID string, at time.Time) event.Event {
	customer := &event.Customer{ID: "00000000-0000-7000-8000-000000000002", Name: "Test Customer", Email: "customer@example.com"}
	return event.Event{
		ID: id, OrganizationID: organizationID, Name: event.TicketCreated, At: at,
		Data: event.Data{Ticket: &event.Ticket{
			ID: "00000000-0000-7000-8000-000000000001", Number: 1, Subject: "Test delivery from Kickstand",
			Status: "open", Priority: "normal", Channel: "api", Customer: customer, URL: s.baseURL + "/",
		}},
	}
}
