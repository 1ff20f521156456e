package rpc

import (
	"context"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// WebhookProcedures returns the procedures of helpdesk.md 4.3 for the webhooks of the
// caller's organization, and procedures to list and replay deliveries.
func WebhookProcedures(webhooks *webhook.Service) []Procedure {
	w := webhookProcedures{webhooks}
	return []Procedure{
		Query("webhooks.list", Admin, w.list),
		Mutation("webhooks.create", Admin, w.create),
		Mutation("webhooks.update", Admin, w.update),
		Mutation("webhooks.delete", Admin, w.delete),
		Mutation("webhooks.test", Admin, w.test),
		Query("webhooks.deliveries", Admin, w.deliveries),
		Query("webhooks.delivery", Admin, w.delivery),
		Query("webhooks.upcoming", Admin, w.upcoming),
		Mutation("webhooks.replay", Admin, w.replay),
	}
}

type webhookProcedures struct {
	webhooks *webhook.Service
}

// organization returns the caller's organization; Authorize has checked that there is
// one.
func organization(ctx context.Context) string {
	id, _ := account.FromContext(ctx)
	return id.OrganizationID
}

// webhookRecord is a webhook in the form of helpdesk-decisions.md 4.
type webhookRecord struct {
	ID             string           `json:"id"`
	URL            string           `json:"url"`
	Source         event.Source     `json:"source"`
	Events         []string         `json:"events"`
	Enabled        bool             `json:"enabled"`
	State          webhook.State    `json:"state"`
	HasSecret      bool             `json:"hasSecret"`
	PayloadForm    payload.Form     `json:"payloadForm"`
	RetrySchedule  webhook.Schedule `json:"retrySchedule"`
	Ordered        bool             `json:"ordered"`
	DrainRate      *int             `json:"drainRate"` // while a backlog drains
	QueuedEvents   int64            `json:"queuedEvents"`
	DroppedEvents  int64            `json:"droppedEvents"`
	LastDeliveryAt *time.Time       `json:"lastDeliveryAt"`
	LastError      *string          `json:"lastError"`
	CreatedAt      time.Time        `json:"created_at"`
	UpdatedAt      time.Time        `json:"updated_at"`
}

func newWebhookRecord(w webhook.Webhook) webhookRecord {
	r := webhookRecord{
		ID: w.ID, URL: w.URL, Source: w.Source, Events: w.Events, Enabled: w.State == webhook.Enabled, State: w.State, HasSecret: w.HasSecret,
		PayloadForm: w.PayloadForm, RetrySchedule: w.RetrySchedule, Ordered: w.Ordered, QueuedEvents: w.QueuedEvents, DroppedEvents: w.DroppedEvents,
		LastError: orNull(w.LastError), CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt,
	}
	if !w.LastDeliveryAt.IsZero() {
		r.LastDeliveryAt = &w.LastDeliveryAt
	}
	if w.DrainRate != 0 {
		r.DrainRate = &w.DrainRate
	}
	return r
}

func (p webhookProcedures) list(ctx context.Context, _ None) ([]webhookRecord, error) {
	list, err := p.webhooks.List(ctx, organization(ctx))
	if err != nil {
		return nil, err
	}
	out := make([]webhookRecord, len(list))
	for i, w := range list {
		out[i] = newWebhookRecord(w)
	}
	return out, nil
}

type createWebhook struct {
	URL           string           `json:"url"`
	Source        event.Source     `json:"source,omitempty"`
	Events        []string         `json:"events"`
	Secret        *string          `json:"secret"`
	Enabled       *bool            `json:"enabled"`
	PayloadForm   payload.Form     `json:"payloadForm,omitempty"`
	RetrySchedule webhook.Schedule `json:"retrySchedule,omitempty"`
	Ordered       bool             `json:"ordered,omitempty"`
}

func (p webhookProcedures) create(ctx context.Context, in createWebhook) (webhookRecord, error) {
	w, err := p.webhooks.Create(ctx, organization(ctx), webhook.New{
		URL: in.URL, Source: in.Source, Events: in.Events, Secret: in.Secret, Disabled: in.Enabled != nil && !*in.Enabled,
		PayloadForm: in.PayloadForm, RetrySchedule: in.RetrySchedule, Ordered: in.Ordered, MayAudit: true, // admins only
	})
	return newWebhookRecord(w), err
}

type updateWebhook struct {
	recordID
	URL           *string           `json:"url"`
	Events        *[]string         `json:"events"`
	Secret        *string           `json:"secret"`
	Unsigned      bool              `json:"unsigned,omitempty"`
	Enabled       *bool             `json:"enabled"`
	PayloadForm   *payload.Form     `json:"payloadForm"`
	RetrySchedule *webhook.Schedule `json:"retrySchedule"`
	Ordered       *bool             `json:"ordered"`
	DrainRate     *int              `json:"drainRate"`
}

func (p webhookProcedures) update(ctx context.Context, in updateWebhook) (webhookRecord, error) {
	w, err := p.webhooks.Update(ctx, organization(ctx), in.ID, webhook.Change{
		URL: in.URL, Events: in.Events, Secret: in.Secret, Unsigned: in.Unsigned, Enabled: in.Enabled,
		PayloadForm: in.PayloadForm, RetrySchedule: in.RetrySchedule, Ordered: in.Ordered, DrainRate: in.DrainRate, MayAudit: true,
	})
	return newWebhookRecord(w), err
}

func (p webhookProcedures) delete(ctx context.Context, in recordID) (successOutput, error) {
	err := p.webhooks.Delete(ctx, organization(ctx), in.ID)
	return successOutput{err == nil}, err
}

type testOutput struct {
	Success    bool    `json:"success"`
	DeliveryID string  `json:"deliveryId"`
	StatusCode *int    `json:"statusCode"`
	DurationMs int64   `json:"durationMs"`
	Error      *string `json:"error"`
}

func (p webhookProcedures) test(ctx context.Context, in recordID) (testOutput, error) {
	r, err := p.webhooks.Test(ctx, organization(ctx), in.ID)
	out := testOutput{Success: r.Error == "", DeliveryID: r.DeliveryID, DurationMs: r.Duration.Milliseconds(), Error: orNull(r.Error)}
	if r.StatusCode != 0 {
		out.StatusCode = &r.StatusCode
	}
	return out, err
}

// deliveryRecord is a delivery in lists.
type deliveryRecord struct {
	ID            string         `json:"id"`
	WebhookID     string         `json:"webhookId"`
	EventID       string         `json:"eventId"`
	Event         event.Name     `json:"event"`
	State         string         `json:"state"` // untried, retrying, delivered, failed or dropped
	Test          bool           `json:"test"`
	Attempts      int            `json:"attempts"`
	LastAttempt   *attemptRecord `json:"lastAttempt"`
	NextAttemptAt *time.Time     `json:"nextAttemptAt"` // while retrying
	CreatedAt     time.Time      `json:"created_at"`
}

type attemptRecord struct {
	Number     int       `json:"number"`
	At         time.Time `json:"at"`
	StatusCode *int      `json:"statusCode"` // null without a response
	DurationMs int64     `json:"durationMs"`
	Error      *string   `json:"error"`
	Response   *string   `json:"response"` // start of the response body
}

func newDeliveryRecord(d webhook.Delivery) deliveryRecord {
	r := deliveryRecord{
		ID: d.ID, WebhookID: d.WebhookID, EventID: d.EventID, Event: d.Event, State: d.State.String(), Test: d.Test,
		Attempts: d.Attempts, CreatedAt: d.CreatedAt,
	}
	if d.Attempts > 0 {
		r.LastAttempt = new(newAttemptRecord(d.Last))
	}
	if !d.NextAt.IsZero() {
		r.NextAttemptAt = &d.NextAt
	}
	return r
}

func newAttemptRecord(a webhook.Attempt) attemptRecord {
	r := attemptRecord{
		Number: a.Number, At: a.At, DurationMs: a.Latency.Milliseconds(), Error: orNull(a.Error), Response: orNull(a.Response),
	}
	if a.Status != 0 {
		r.StatusCode = &a.Status
	}
	return r
}

// uuidInput is an id; empty: none.
type uuidInput string

func (id uuidInput) check(v *problem.Validation, path string) {
	if id != "" {
		checkUUID(v, path, string(id))
	}
}

// eventIDInput is the id of an event of any source; empty: none.
type eventIDInput string

func (id eventIDInput) check(v *problem.Validation, path string) {
	if !event.IsFleetID(string(id)) {
		uuidInput(id).check(v, path)
	}
}

type findDeliveries struct {
	WebhookID    uuidInput    `json:"webhookId,omitempty"`
	Event        event.Name   `json:"event,omitempty"`
	EventID      eventIDInput `json:"eventId,omitempty"`
	TicketID     uuidInput    `json:"ticketId,omitempty"`
	TicketNumber *int64       `json:"ticketNumber"`
	States       []string     `json:"states,omitempty"`
	From         time.Time    `json:"from,omitzero"`
	To           time.Time    `json:"to,omitzero"`
	Before       string       `json:"before,omitempty"`
	Limit        *int         `json:"limit"`
}

// Check implements [problem.Checker].
func (in findDeliveries) Check(v *problem.Validation) {
	in.WebhookID.check(v, "webhookId")
	in.EventID.check(v, "eventId")
	in.TicketID.check(v, "ticketId")
	if in.TicketNumber != nil && *in.TicketNumber < 1 {
		v.Add("ticketNumber", "must be positive")
	}
	if in.Limit != nil && *in.Limit < 1 {
		v.Add("limit", "must be from 1 to %d", webhook.MaxPage)
	}
	for i, name := range in.States {
		if _, ok := webhook.ParseDeliveryState(name); !ok {
			v.Add(fmt.Sprintf("states.%d", i), "must be untried, retrying, delivered, failed or dropped")
		}
	}
}

type deliveriesOutput struct {
	Deliveries []deliveryRecord `json:"deliveries"`
	Next       *string          `json:"next"` // value of before for the next page
}

func (p webhookProcedures) deliveries(ctx context.Context, in findDeliveries) (deliveriesOutput, error) {
	q := webhook.Query{
		WebhookID: string(in.WebhookID), EventID: string(in.EventID), TicketID: string(in.TicketID),
		From: in.From, To: in.To, Before: in.Before,
	}
	if in.Event != "" {
		q.Events = []event.Name{in.Event}
	}
	if in.TicketNumber != nil {
		q.TicketNumber = *in.TicketNumber
	}
	if in.Limit != nil {
		q.Limit = *in.Limit
	}
	for _, name := range in.States {
		state, _ := webhook.ParseDeliveryState(name)
		q.States = append(q.States, state)
	}
	page, err := p.webhooks.Search(ctx, organization(ctx), q)
	out := deliveriesOutput{Deliveries: make([]deliveryRecord, len(page.Deliveries)), Next: orNull(page.Next)}
	for i, d := range page.Deliveries {
		out.Deliveries[i] = newDeliveryRecord(d)
	}
	return out, err
}

// deliveryDetail is a delivery with its attempts.
type deliveryDetail struct {
	deliveryRecord
	Attempts []attemptDetail `json:"attempts"`
}

type attemptDetail struct {
	attemptRecord
	Request *requestRecord `json:"request"` // null when nothing was sent
}

// requestRecord is the request that was sent. It has no secrets: signatures are none.
type requestRecord struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    *string           `json:"body"` // null if no longer stored
}

func (p webhookProcedures) delivery(ctx context.Context, in recordID) (deliveryDetail, error) {
	d, attempts, err := p.webhooks.Delivery(ctx, organization(ctx), in.ID)
	if err != nil {
		return deliveryDetail{}, err
	}
	out := deliveryDetail{newDeliveryRecord(d), make([]attemptDetail, len(attempts))}
	for i, a := range attempts {
		out.Attempts[i].attemptRecord = newAttemptRecord(a)
		if q := a.Request; q != nil {
			r := &requestRecord{Method: q.Method, URL: q.URL, Headers: make(map[string]string, len(q.Header))}
			for name, values := range q.Header {
				r.Headers[name] = values[0]
			}
			if q.Body != nil {
				r.Body = new(string(q.Body))
			}
			out.Attempts[i].Request = r
		}
	}
	return out, nil
}

type upcomingInput struct {
	WebhookID uuidInput `json:"webhookId"`
	Limit     *int      `json:"limit"`
}

// Check implements [problem.Checker].
func (in upcomingInput) Check(v *problem.Validation) { in.WebhookID.check(v, "webhookId") }

type upcomingRecord struct {
	ID        string       `json:"id"`
	EventID   string       `json:"eventId"`
	Event     event.Name   `json:"event"`
	Attempt   int          `json:"attempt"` // number of the next attempt
	WaitsFor  webhook.Wait `json:"waitsFor"`
	DueAt     time.Time    `json:"dueAt"`
	Further   []time.Time  `json:"further"`
	CreatedAt time.Time    `json:"created_at"`
}

func (p webhookProcedures) upcoming(ctx context.Context, in upcomingInput) ([]upcomingRecord, error) {
	limit := 50
	if in.Limit != nil {
		limit = *in.Limit
	}
	list, err := p.webhooks.Upcoming(ctx, organization(ctx), string(in.WebhookID), limit)
	if err != nil {
		return nil, err
	}
	out := make([]upcomingRecord, len(list))
	for i, c := range list {
		out[i] = upcomingRecord{c.ID, c.EventID, c.Event, c.Attempts + 1, c.Wait, c.Due, c.Further, c.CreatedAt}
		if c.Further == nil {
			out[i].Further = []time.Time{}
		}
	}
	return out, nil
}

// replayInput selects deliveries, an event, or a time range of one webhook.
type replayInput struct {
	DeliveryIDs []string     `json:"deliveryIds,omitempty"`
	EventID     eventIDInput `json:"eventId,omitempty"`
	WebhookID   uuidInput    `json:"webhookId,omitempty"`
	From        time.Time    `json:"from,omitzero"`
	To          time.Time    `json:"to,omitzero"`
	FailedOnly  *bool        `json:"failedOnly"`
	Event       event.Name   `json:"event,omitempty"`
}

// Check implements [problem.Checker].
func (in replayInput) Check(v *problem.Validation) {
	in.WebhookID.check(v, "webhookId")
	in.EventID.check(v, "eventId")
	ofTime := !in.From.IsZero() || !in.To.IsZero() || in.FailedOnly != nil || in.Event != ""
	switch {
	case in.DeliveryIDs != nil && (in.EventID != "" || in.WebhookID != "" || ofTime):
		v.Add("deliveryIds", "must be the only member")
	case in.EventID != "" && ofTime:
		v.Add("eventId", "must not be given beside from, to, failedOnly or event")
	case in.DeliveryIDs == nil && in.EventID == "":
		if in.WebhookID == "" {
			v.Add("", "must name deliveryIds, or an eventId, or a webhookId with from and to")
			return
		}
		if in.From.IsZero() {
			v.Add("from", "is required")
		}
		if in.To.IsZero() {
			v.Add("to", "is required")
		}
	}
}

type replayOutput struct {
	Replayed    int      `json:"replayed"`
	DeliveryIDs []string `json:"deliveryIds,omitempty"` // ids of the new deliveries; null for a range
}

func (p webhookProcedures) replay(ctx context.Context, in replayInput) (replayOutput, error) {
	var ids []string
	var err error
	switch {
	case in.DeliveryIDs != nil:
		ids, err = p.webhooks.Replay(ctx, organization(ctx), in.DeliveryIDs)
	case in.EventID != "":
		ids, err = p.webhooks.ReplayEvent(ctx, organization(ctx), string(in.EventID), string(in.WebhookID))
	default:
		n, err := p.webhooks.ReplayRange(ctx, organization(ctx), webhook.Range{
			WebhookID: string(in.WebhookID), From: in.From, To: in.To, States: webhook.FailedOnly(in.FailedOnly != nil && *in.FailedOnly), Event: in.Event,
		})
		return replayOutput{Replayed: n}, err
	}
	return replayOutput{Replayed: len(ids), DeliveryIDs: ids}, err
}
