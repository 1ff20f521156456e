package webhook

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// subscription is what the fan-out needs to know of a webhook.
type subscription struct {
	id      string
	enabled bool
	form    Form
	events  string
}

const selectSubscription = "SELECT id, state = 'enabled', payload_form, events FROM webhooks"

func scanSubscription(row db.Row) (subscription, error) {
	var s subscription
	err := row.Scan(&s.id, &s.enabled, &s.form, &s.events)
	return s, err
}

// fanOut writes a delivery and its job for every event and every subscription
// to it, in the transaction that writes the events.
func (s *Service) fanOut(ctx context.Context, tx *db.Tx, events []event.Event) error {
	subs, err := db.All(ctx, tx, scanSubscription, selectSubscription+" WHERE organization_id = $1 ORDER BY id", events[0].OrganizationID)
	if err != nil {
		return fmt.Errorf("find webhooks: %w", err)
	}
	if len(subs) == 0 {
		return nil
	}
	var batch batch
	for i := range events {
		for _, sub := range subs {
			if matches(sub.events, events[i].Name) {
				if err := batch.add(sub, &events[i]); err != nil {
					return err
				}
			}
		}
	}
	return s.enqueue(ctx, tx, &batch)
}

// batch is deliveries to write together.
type batch struct {
	deliveries []newDelivery
	rendered   []rendering
}

type newDelivery struct {
	subscription
	event *event.Event
	job   queue.New
}

// rendering is a payload that several deliveries of the batch may share.
type rendering struct {
	event   *event.Event
	form    Form
	payload []byte
}

// add has e delivered to a subscription.
func (b *batch) add(sub subscription, e *event.Event) error {
	payload, err := b.payload(sub.form, e)
	if err != nil {
		return err
	}
	b.deliveries = append(b.deliveries, newDelivery{
		subscription: sub, event: e,
		job: queue.New{ID: queue.NewID(), Kind: JobKind, Lane: sub.id, Payload: payload},
	})
	return nil
}

func (b *batch) payload(f Form, e *event.Event) ([]byte, error) {
	for _, r := range b.rendered {
		if r.event == e && r.form == f {
			return r.payload, nil
		}
	}
	body, err := render(f, e)
	if err != nil {
		return nil, err
	}
	payload := encodePayload(f, e, body)
	b.rendered = append(b.rendered, rendering{e, f, payload})
	return payload, nil
}

func (s *Service) enqueue(ctx context.Context, tx *db.Tx, b *batch) error {
	jobs := make([]queue.New, len(b.deliveries))
	for i, d := range b.deliveries {
		jobs[i] = d.job
		if _, err := tx.Exec(ctx, "INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
			d.id, d.job.ID, d.event.ID, string(d.event.Name), int64(Untried), tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("write delivery: %w", err)
		}
	}
	if err := s.queue.Enqueue(ctx, tx, jobs...); err != nil {
		return err
	}
	for _, d := range b.deliveries {
		if !d.enabled {
			if err := s.bound(ctx, tx, d.id); err != nil {
				return fmt.Errorf("bound the queue of webhook %s: %w", d.id, err)
			}
		}
	}
	return nil
}

// bound counts a delivery that was just added to a webhook that is not enabled,
// and drops the oldest when too many wait. The count starts when the webhook is
// suspended; deliveries that were then under way may end without it, so it is
// made again before anything is dropped for the first time.
func (s *Service) bound(ctx context.Context, tx *db.Tx, id string) error {
	var held int64
	if err := tx.QueryRow(ctx, "UPDATE webhooks SET held = held + 1 WHERE id = $1 RETURNING held", id).Scan(&held); err != nil {
		return err
	}
	switch {
	case held < MaxHeld:
		return nil
	case held == MaxHeld:
		_, err := tx.Exec(ctx, "UPDATE webhooks SET held = (SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE webhook_id = $1 AND state < 2 LIMIT $2) AS waiting) WHERE id = $1",
			id, MaxHeld)
		return err
	}
	var oldest string
	if err := tx.QueryRow(ctx, "SELECT min(id) FROM deliveries WHERE webhook_id = $1 AND state < 2", id).Scan(&oldest); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE deliveries SET state = $3 WHERE webhook_id = $1 AND id = $2", id, oldest, int64(Dropped)); err != nil {
		return err
	}
	if err := s.queue.Delete(ctx, tx, oldest); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE webhooks SET held = $2, dropped = dropped + 1 WHERE id = $1", id, MaxHeld)
	return err
}

// maxInline is the longest body that travels in the job. A longer one is
// rendered at each attempt, so that a big message is not stored once per
// receiver.
const maxInline = 8 << 10

// The payload of a job: form, event id and event name, separated by spaces, a
// line feed, and the body unless it is longer than maxInline.

func encodePayload(f Form, e *event.Event, body []byte) []byte {
	if len(body) > maxInline {
		body = nil
	}
	p := make([]byte, 0, len(f)+len(e.ID)+len(e.Name)+3+len(body))
	p = append(p, f...)
	p = append(p, ' ')
	p = append(p, e.ID...)
	p = append(p, ' ')
	p = append(p, e.Name...)
	p = append(p, '\n')
	return append(p, body...)
}

type payload struct {
	form    Form
	eventID string
	event   string
	body    []byte // empty: to be rendered
}

func decodePayload(raw []byte) payload {
	head, body, _ := bytes.Cut(raw, []byte{'\n'})
	form, rest, _ := strings.Cut(string(head), " ")
	eventID, name, _ := strings.Cut(rest, " ")
	return payload{Form(form), eventID, name, body}
}
