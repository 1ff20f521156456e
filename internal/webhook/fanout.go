package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// subscription is the part of a webhook that the fan-out needs.
type subscription struct {
	id      string
	enabled bool
	ordered bool
	form    payload.Form
	events  string // as stored
}

// source returns the source of the subscribed events.
func (s *subscription) source() event.Source {
	source, _ := splitEvents(s.events)
	return source
}

const selectSubscription = "SELECT id, state = 'enabled', ordered, payload_form, events FROM webhooks"

func scanSubscription(row db.Row) (subscription, error) {
	var s subscription
	err := row.Scan(&s.id, &s.enabled, &s.ordered, &s.form, &s.events)
	return s, err
}

// fanOut writes a delivery and its job for every pair of event and subscription, in the
// transaction that writes the events.
func (s *Service) fanOut(ctx context.Context, tx *db.Tx, events []event.Event) error {
	subs, err := db.All(ctx, tx, scanSubscription, selectSubscription+" WHERE organization_id = $1 ORDER BY id", events[0].OrganizationID)
	if err != nil {
		return fmt.Errorf("find webhooks: %w", err)
	}
	return s.deliverTx(ctx, tx, subs, events)
}

// deliverTx writes a delivery and its job for every pair of event and subscription.
func (s *Service) deliverTx(ctx context.Context, tx *db.Tx, subs []subscription, events []event.Event) error {
	if len(subs) == 0 || len(events) == 0 {
		return nil
	}
	var all []newDelivery
	for i := range events {
		e := &events[i]
		for _, sub := range subs {
			if !matches(sub.events, e.Source, e.Name) {
				continue
			}
			all = append(all, newDelivery{sub, e, tx.NewID()})
		}
	}
	// Most deliveries are sent by this process a moment later. Bodies are rendered after the commit,
	// since others wait for the transaction, and not stored if an event was redacted meanwhile.
	start := s.bodies.Start()
	tx.AfterCommit(func() {
		for _, d := range all {
			s.render(d.event, d.form, start)
		}
	})
	return s.enqueue(ctx, tx, all)
}

// newDelivery is an event to deliver to a subscription.
type newDelivery struct {
	subscription
	event *event.Event
	id    string
}

// insertRows bounds the deliveries of one statement.
const insertRows = 16

// insertDeliveries holds statements by number of rows.
var insertDeliveries = func() (statements [insertRows + 1]string) {
	var rows []string
	for n := 1; n <= insertRows; n++ {
		rows = append(rows, fmt.Sprintf("($%d, $%d, $%d, $%d, 0, $%d, $%d)", 6*n-5, 6*n-4, 6*n-3, 6*n-2, 6*n-1, 6*n))
		statements[n] = "INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at, subject) VALUES " + strings.Join(rows, ", ")
	}
	return statements
}()

// enqueue writes deliveries and their jobs.
func (s *Service) enqueue(ctx context.Context, tx *db.Tx, all []newDelivery) error {
	jobs := make([]queue.New, len(all))
	args := make([]any, 0, 6*min(len(all), insertRows))
	for some := range slices.Chunk(all, insertRows) {
		args = args[:0]
		for _, d := range some {
			args = append(args, d.subscription.id, d.id, d.event.ID, string(d.event.Name), tx.Now.UnixMicro(), db.Text(d.event.Subject))
		}
		if err := tx.Queue(ctx, insertDeliveries[len(some)], args...); err != nil {
			return fmt.Errorf("write deliveries: %w", err)
		}
	}
	for i, d := range all {
		jobs[i] = queue.New{ID: d.id, Kind: kindOf(d.event.Source, d.ordered), Lane: d.subscription.id, Tenant: d.event.OrganizationID, Payload: encodePayload(jobPayload{eventID: d.event.ID, event: string(d.event.Name)})}
	}
	if err := s.queue.EnqueueTx(ctx, tx, jobs...); err != nil {
		return err
	}
	for i, d := range all {
		if i == 0 || d.subscription.id != all[i-1].subscription.id {
			s.changed(tx, d.event.OrganizationID, d.subscription.id)
		}
		if !d.enabled {
			if err := s.boundQueue(ctx, tx, d.subscription.id); err != nil {
				return fmt.Errorf("bound the queue of webhook %s: %w", d.subscription.id, err)
			}
		}
	}
	return nil
}

// boundQueue counts a delivery just added to a webhook that is not enabled, and drops the
// oldest ones beyond [MaxQueued]. The count starts when the webhook is suspended. Deliveries
// under way at that time may end without being subtracted, so it counts again before the first
// drop.
func (s *Service) boundQueue(ctx context.Context, tx *db.Tx, id string) error {
	var held int64
	if err := tx.QueryRow(ctx, "UPDATE webhooks SET held = held + 1 WHERE id = $1 RETURNING held", id).Scan(&held); err != nil {
		return err
	}
	switch {
	case held < MaxQueued:
		return nil
	case held == MaxQueued:
		_, err := tx.Exec(ctx, "UPDATE webhooks SET held = (SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE webhook_id = $1 AND state < 2 LIMIT $2) AS waiting) WHERE id = $1",
			id, MaxQueued)
		return err
	}
	_, err := s.drop(ctx, tx, id, 1)
	return err
}

// jobPayload is the payload of a delivery's job. It excludes the body: the row of a job is written
// three times, and a row larger than a quarter of a page costs a page each time.
type jobPayload struct {
	eventID   string
	event     string // name
	recovered bool   // the delivery has attempts of an earlier job
}

func encodePayload(p jobPayload) []byte {
	text := p.eventID + " " + p.event
	if p.recovered {
		text += " recovered"
	}
	return []byte(text)
}

func decodePayload(raw []byte) jobPayload {
	var p jobPayload
	var rest string
	p.eventID, rest, _ = strings.Cut(string(raw), " ")
	p.event, _, p.recovered = strings.Cut(rest, " ")
	return p
}
