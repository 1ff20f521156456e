package rpc

import (
	"context"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// WebhookProcedures are the procedures of helpdesk.md 4.3, on the webhooks of
// the caller's organization.
func WebhookProcedures(webhooks *webhook.Service) []Procedure {
	w := webhookProcedures{webhooks}
	return []Procedure{
		Query("webhooks.list", Admin, w.list),
		Mutation("webhooks.create", Admin, w.create),
		Mutation("webhooks.update", Admin, w.update),
		Mutation("webhooks.delete", Admin, w.delete),
		Mutation("webhooks.test", Admin, w.test),
	}
}

type webhookProcedures struct {
	webhooks *webhook.Service
}

// organization returns the caller's; Authorize has seen that there is one.
func organization(ctx context.Context) string {
	id, _ := account.FromContext(ctx)
	return id.OrganizationID
}

// webhookRecord is a webhook as helpdesk-decisions.md 4 has it.
type webhookRecord struct {
	ID             string           `json:"id"`
	URL            string           `json:"url"`
	Events         []string         `json:"events"`
	Enabled        bool             `json:"enabled"`
	State          webhook.State    `json:"state"`
	HasSecret      bool             `json:"hasSecret"`
	PayloadForm    webhook.Form     `json:"payloadForm"`
	RetrySchedule  webhook.Schedule `json:"retrySchedule"`
	QueuedEvents   int64            `json:"queuedEvents"`
	DroppedEvents  int64            `json:"droppedEvents"`
	LastDeliveryAt *time.Time       `json:"lastDeliveryAt"`
	LastError      *string          `json:"lastError"`
	CreatedAt      time.Time        `json:"created_at"`
	UpdatedAt      time.Time        `json:"updated_at"`
}

func newWebhookRecord(w webhook.Webhook) webhookRecord {
	r := webhookRecord{
		ID: w.ID, URL: w.URL, Events: w.Events, Enabled: w.State == webhook.Enabled, State: w.State, HasSecret: w.HasSecret,
		PayloadForm: w.PayloadForm, RetrySchedule: w.RetrySchedule, QueuedEvents: w.QueuedEvents, DroppedEvents: w.DroppedEvents,
		LastError: orNull(w.LastError), CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt,
	}
	if !w.LastDeliveryAt.IsZero() {
		r.LastDeliveryAt = &w.LastDeliveryAt
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
	Events        []string         `json:"events"`
	Secret        string           `json:"secret,omitempty"`
	Enabled       *bool            `json:"enabled"`
	PayloadForm   webhook.Form     `json:"payloadForm,omitempty"`
	RetrySchedule webhook.Schedule `json:"retrySchedule,omitempty"`
}

func (p webhookProcedures) create(ctx context.Context, in createWebhook) (webhookRecord, error) {
	w, err := p.webhooks.Create(ctx, organization(ctx), webhook.New{
		URL: in.URL, Events: in.Events, Secret: in.Secret, Disabled: in.Enabled != nil && !*in.Enabled,
		PayloadForm: in.PayloadForm, RetrySchedule: in.RetrySchedule,
	})
	return newWebhookRecord(w), err
}

type updateWebhook struct {
	recordID
	URL           *string           `json:"url"`
	Events        *[]string         `json:"events"`
	Secret        *string           `json:"secret"`
	Enabled       *bool             `json:"enabled"`
	PayloadForm   *webhook.Form     `json:"payloadForm"`
	RetrySchedule *webhook.Schedule `json:"retrySchedule"`
}

func (p webhookProcedures) update(ctx context.Context, in updateWebhook) (webhookRecord, error) {
	w, err := p.webhooks.Update(ctx, organization(ctx), in.ID, webhook.Change{
		URL: in.URL, Events: in.Events, Secret: in.Secret, Enabled: in.Enabled,
		PayloadForm: in.PayloadForm, RetrySchedule: in.RetrySchedule,
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
