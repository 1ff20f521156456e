package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// TestResult is the result of a test delivery.
type TestResult struct {
	DeliveryID string
	StatusCode int // 0 without an answer
	Duration   time.Duration
	Error      string // empty if accepted
}

// Test sends a sample event of the webhook's subscription, signed like any other, in any state
// of the webhook, and waits for the answer. The header X-Service-Test and the field data.test
// mark it. The attempt is stored but neither retried nor counted against the webhook.
func (s *Service) Test(ctx context.Context, organizationID, id string) (TestResult, error) {
	w, err := s.Find(ctx, organizationID, id)
	if err != nil {
		return TestResult{}, err
	}
	t, err := s.loadCached(ctx, id)
	if errors.Is(err, errDeleted) {
		return TestResult{}, errNotFound()
	}
	if err != nil {
		return TestResult{}, fmt.Errorf("test webhook: %w", err)
	}
	created := s.db.Now()
	e := SampleOf(w.Source, subscribed(w.Source, w.Events), s.baseURL, created)
	e.ID, e.OrganizationID, e.Data.Test = s.db.NewID(), organizationID, true
	body, err := payload.Render(t.form, &e)
	if err != nil {
		return TestResult{}, fmt.Errorf("test webhook: %w", err)
	}
	deliveryID := s.db.NewID()
	a := s.post(ctx, t, payload.Header(string(e.Name), deliveryID, e.ID, true), body)
	if a.status == 0 && ctx.Err() != nil {
		return TestResult{}, fmt.Errorf("test webhook: %w", ctx.Err())
	}
	state := Delivered
	if a.outcome != accepted {
		state = DeliveryFailed
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
		if err := s.recordTx(ctx, tx, AuditTested, organizationID, id, t.url.String(), nil, map[string]any{"status": a.status}); err != nil {
			return err
		}
		c := Count{At: a.at.UTC().Truncate(CountInterval)}
		c.add(state)
		return addToCounts(ctx, tx, []countDelta{{id, c}})
	})
	if err != nil {
		return TestResult{}, fmt.Errorf("record test: %w", err)
	}
	return TestResult{DeliveryID: deliveryID, StatusCode: a.status, Duration: a.latency, Error: a.err}, nil
}

// subscribed returns the first event of a subscription.
func subscribed(source event.Source, names []string) event.Name {
	if len(names) == 0 || names[0] == "*" {
		return source.Names()[0]
	}
	return event.Name(names[0])
}

// Sample returns an event with sample records and links below baseURL. The ids refer to no records.
func Sample(name event.Name, baseURL string, at time.Time) event.Event {
	customer := &event.Customer{ID: "00000000-0000-7000-8000-000000000002", Name: "Test Customer", Email: "customer@example.com"}
	agent := &event.Person{ID: "00000000-0000-7000-8000-000000000003", Name: "Test Agent", Email: "agent@example.com"}
	ticket := &event.Ticket{
		ID: "00000000-0000-7000-8000-000000000001", Number: 1, Subject: "Test delivery from Kickstand",
		Status: "open", Priority: "normal", Channel: "api", Customer: customer, URL: baseURL + "/",
	}
	e := event.Event{Name: name, At: at, Data: event.Data{Ticket: ticket}}
	change := func(field string, from, to any) {
		e.Data.Changes = map[string]event.Change{field: {From: from, To: to}}
	}
	message := func(direction string, author event.Author) {
		e.Data.Message = &event.Message{
			ID: "00000000-0000-7000-8000-000000000004", TicketID: ticket.ID, ConversationID: "00000000-0000-7000-8000-000000000005",
			Direction: direction, Author: author, Channel: "api", Kind: "reply", Text: "This is a test delivery from Kickstand.", CreatedAt: at,
		}
	}
	switch name {
	case event.TicketUpdated:
		change("subject", "Test", ticket.Subject)
	case event.TicketStatusChanged:
		change("status", "pending", ticket.Status)
	case event.TicketAssigned:
		ticket.Assignee = agent
		change("assignee", nil, agent)
	case event.TicketPriorityChanged:
		change("priority", "high", ticket.Priority)
	case event.ConversationCreated, event.MessageCreated, event.MessageCustomerReply:
		message("inbound", event.Author{Type: "customer", ID: customer.ID, Name: customer.Name})
	case event.MessageAgentReply:
		message("outbound", event.Author{Type: "agent", ID: agent.ID, Name: agent.Name})
	case event.CustomerCreated:
		e.Data.Ticket, e.Data.Customer = nil, customer
	case event.CustomerUpdated:
		e.Data.Ticket, e.Data.Customer = nil, customer
		change("email", "old@example.com", customer.Email)
	case event.SLAWarning, event.SLABreached:
		e.Data.SLA = &event.SLA{Metric: "first_response", DueAt: at}
	case event.AuditRecorded:
		e.Data.Ticket, e.Data.Entry = nil, sampleEntry(at)
	}
	return e
}

// sampleEntry returns a sample audit entry, as exported. It is not part of a chain.
func sampleEntry(at time.Time) json.RawMessage {
	entry := audit.Entry{
		ID: "00000000-0000-7000-8000-000000000006", At: at, Action: AuditTested,
		Target: audit.Target{Type: "webhook", ID: "00000000-0000-7000-8000-000000000007", Name: "Test delivery from Kickstand"},
	}
	text, err := json.Marshal(entry.Record())
	if err != nil {
		panic(err) // a fixed value
	}
	return text
}
