package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"

	"github.com/google/uuid"
)

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
			attempts, attempted_at, status, latency, error, response, version, body_sum, signatures, body)
			VALUES ($1, $2, $3, $4, $5, 1, $6, 1, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
			id, deliveryID, e.ID, string(e.Name), int64(state), created.UnixMicro(),
			a.at.UnixMicro(), orNil(a.status), a.latency.Microseconds(), db.Text(a.err), db.Text(a.response),
			a.sent.version, a.sent.sum, orNilBytes(a.sent.signatures), body)
		if err != nil {
			return err
		}
		c := Count{At: a.at.UTC().Truncate(CountedBy)}
		c.add(state)
		return tally(ctx, tx, []tallied{{id, c}})
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
