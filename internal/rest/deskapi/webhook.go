package deskapi

import (
	"context"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// eventNames are the events of the contract.
var eventNames = words(event.Names[:])

// deliveredNames are the events of deliveries of all sources.
var deliveredNames = func() []string {
	names := append(words(event.Names[:]), string(event.AuditRecorded))
	for _, name := range event.FleetNames {
		if !slices.Contains(names, string(name)) {
			names = append(names, string(name))
		}
	}
	return names
}()

var sourceNames = words(event.Sources[:])

var webhookRecord = &schema.Record{Name: "webhook", Doc: "A subscription: a URL and the events to post there.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("webhook")},
	{Name: "url", Type: schema.Formatted("uri", 2048), Access: schema.Required, Doc: "HTTPS, and publicly reachable.", Example: "https://example.com/hooks/helpdesk"},
	{Name: "events", Type: schema.Array(schema.Enum(append(deliveredNames[:len(deliveredNames):len(deliveredNames)], "*")...), 100), Access: schema.Required, Doc: "The subscribed events of the source. * is all, including future ones, except audit.recorded, which must be named and requires the permission settings.read.", Example: []string{"ticket.created", "message.customer_reply"}},
	{Name: "source", Type: schema.Enum(sourceNames...), Access: schema.CreateOnly, Doc: "Where the events come from: helpdesk (the default), fleet (production) or sandbox (of the fleet). It cannot be changed."},
	{Name: "enabled", Type: schema.Bool(), Access: schema.Writable, Doc: "Defaults to true. While false, events queue. Setting it to true sends all undelivered events at once, oldest first: queued ones, scheduled retries, and those that ran out of attempts since it was last enabled, each with a new retry schedule. Newer events follow."},
	{Name: "state", Type: schema.Enum("enabled", "disabled", "failed"), Doc: "failed: a delivery ran out of attempts. Enable the webhook again once the receiver works."},
	{Name: "secret", Type: schema.String(16, 500), Access: schema.Writable, Nullable: true, WriteOnly: true, Doc: "Signs the deliveries. Without it a new webhook gets one, returned as generated_secret. A replaced secret signs beside the new one for 24 hours. null: deliveries are not signed."},
	{Name: "has_secret", Type: schema.Bool(), Doc: "Whether deliveries are signed."},
	{Name: "payload_form", Type: schema.Enum("a", "b"), Access: schema.Writable, Doc: "Format of deliveries: a is flat with camelCase fields, b (the default) nested with snake_case fields. Events of the fleet have form b only."},
	{Name: "retry_schedule", Type: schema.Enum("one", "two"), Access: schema.Writable, Doc: "Times of the retries; defaults to two."},
	{Name: "ordered", Type: schema.Bool(), Access: schema.Writable, Doc: "One delivery at a time, in the order of the events. Always false for events of the fleet, which are in order for each vehicle."},
	{Name: "drain_rate", Type: schema.Int(0, webhook.MaxDrainRate), Access: schema.UpdateOnly, Nullable: true, Doc: "Deliveries per second of the backlog after enabling; set together with enabled: true. null or 0: as fast as the receiver answers. null again once the backlog is sent."},
	{Name: "queued_events", Type: schema.Integer(), Doc: "Deliveries that wait for an attempt."},
	{Name: "dropped_events", Type: schema.Integer(), Doc: "Deliveries dropped since creation because more than 10,000 waited."},
	{Name: "last_delivery_at", Type: schema.Timestamp(), Nullable: true, Doc: "Start of the newest attempt."},
	{Name: "last_error", Type: schema.Text(), Nullable: true, Doc: "Error of the newest attempt."},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "updated_at", Type: schema.Timestamp()},
	{Name: "generated_secret", Type: schema.Text(), Nullable: true, Doc: "The generated secret of a new webhook, only in this answer."},
}}

type wireWebhook struct {
	ID             string           `json:"id"`
	Object         string           `json:"object"`
	URL            string           `json:"url"`
	Events         []string         `json:"events"`
	Source         event.Source     `json:"source"`
	Enabled        bool             `json:"enabled"`
	State          webhook.State    `json:"state"`
	HasSecret      bool             `json:"has_secret"`
	PayloadForm    payload.Form     `json:"payload_form"`
	RetrySchedule  webhook.Schedule `json:"retry_schedule"`
	Ordered        bool             `json:"ordered"`
	DrainRate      *int             `json:"drain_rate"`
	QueuedEvents   int64            `json:"queued_events"`
	DroppedEvents  int64            `json:"dropped_events"`
	LastDeliveryAt rfc3339.Time     `json:"last_delivery_at"`
	LastError      *string          `json:"last_error"`
	CreatedAt      rfc3339.Time     `json:"created_at"`
	UpdatedAt      rfc3339.Time     `json:"updated_at"`
	Generated      *string          `json:"generated_secret"`
}

func wireOfWebhook(w *webhook.Webhook) wireWebhook {
	return wireWebhook{
		ID: w.ID, Object: "webhook", URL: w.URL, Source: w.Source, Events: w.Events, Enabled: w.State == webhook.Enabled, State: w.State, HasSecret: w.HasSecret,
		PayloadForm: w.PayloadForm, RetrySchedule: w.RetrySchedule, Ordered: w.Ordered, DrainRate: orNull(w.DrainRate),
		QueuedEvents: w.QueuedEvents, DroppedEvents: w.DroppedEvents, LastDeliveryAt: rfc3339.Time(w.LastDeliveryAt), LastError: orNull(w.LastError),
		CreatedAt: rfc3339.Time(w.CreatedAt), UpdatedAt: rfc3339.Time(w.UpdatedAt),
	}
}

type webhookBody struct {
	URL           optional.Value[string]           `json:"url"`
	Source        optional.Value[event.Source]     `json:"source"`
	Events        optional.Value[[]string]         `json:"events"`
	Secret        optional.Value[string]           `json:"secret"`
	Enabled       optional.Value[bool]             `json:"enabled"`
	PayloadForm   optional.Value[payload.Form]     `json:"payload_form"`
	RetrySchedule optional.Value[webhook.Schedule] `json:"retry_schedule"`
	Ordered       optional.Value[bool]             `json:"ordered"`
	DrainRate     optional.Value[int]              `json:"drain_rate"`
}

var webhookTestRecord = &schema.Record{Name: "webhook.test", Doc: "Result of a test delivery.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("webhook.test")},
	{Name: "delivery_id", Type: schema.ID()},
	{Name: "success", Type: schema.Bool(), Doc: "Whether the receiver accepted it."},
	{Name: "status_code", Type: schema.Integer(), Nullable: true, Doc: "null without an answer."},
	{Name: "duration_ms", Type: schema.Integer()},
	{Name: "error", Type: schema.Text(), Nullable: true},
}}

type wireWebhookTest struct {
	Object     string  `json:"object"`
	DeliveryID string  `json:"delivery_id"`
	Success    bool    `json:"success"`
	StatusCode *int    `json:"status_code"`
	DurationMs int64   `json:"duration_ms"`
	Error      *string `json:"error"`
}

var upcomingRecord = &schema.Record{Name: "webhook.upcoming", Doc: "Waiting deliveries of a webhook, in the planned order.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("webhook.upcoming")},
	{Name: "webhook_id", Type: schema.ID()},
	{Name: "data", Type: schema.Array(schema.Nested(upcomingDelivery), webhook.MaxPage)},
}}

var upcomingDelivery = &schema.Record{Name: "webhook.upcoming_delivery", Members: []schema.Member{
	{Name: "delivery_id", Type: schema.ID()},
	{Name: "event_id", Type: schema.ID()},
	{Name: "event", Type: schema.Enum(deliveredNames...)},
	{Name: "attempt", Type: schema.Integer(), Doc: "Number of the next attempt, from 1."},
	{Name: "waits_for", Type: schema.Enum("now", "time", "turn", "enabled"), Doc: "now: it is under way or about to be; time: its due time; turn: earlier deliveries; enabled: the webhook to be enabled."},
	{Name: "due_at", Type: schema.Timestamp(), Doc: "The earliest time of the next attempt."},
	{Name: "further", Type: schema.Array(schema.Timestamp(), 10), Doc: "Times of later attempts if each failed at once."},
	{Name: "created_at", Type: schema.Timestamp()},
}}

type wireUpcoming struct {
	Object    string       `json:"object"`
	WebhookID string       `json:"webhook_id"`
	Data      []wireComing `json:"data"`
}

type wireComing struct {
	DeliveryID string         `json:"delivery_id"`
	EventID    string         `json:"event_id"`
	Event      event.Name     `json:"event"`
	Attempt    int            `json:"attempt"`
	WaitsFor   webhook.Wait   `json:"waits_for"`
	DueAt      rfc3339.Time   `json:"due_at"`
	Further    []rfc3339.Time `json:"further"`
	CreatedAt  rfc3339.Time   `json:"created_at"`
}

func (a *API) webhookRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/webhooks", ID: "listWebhooks", Tag: "Webhooks", Summary: "List webhooks",
		Doc:   "An organization has at most 100.",
		Needs: needs("webhooks", apikey.Read), Sort: []string{"created_at"}, Export: true,
		Output: webhookRecord, List: true, Handle: a.listWebhooks,
	}, {
		Method: "POST", Path: "/webhooks", ID: "createWebhook", Tag: "Webhooks", Summary: "Create a webhook",
		Needs: needs("webhooks", apikey.Create), Input: webhookRecord, Output: webhookRecord,
		Codes: []string{"invalid_transition", quota.CodeExceeded}, Handle: a.createWebhook,
	}, {
		Method: "GET", Path: "/webhooks/{id}", ID: "getWebhook", Tag: "Webhooks", Summary: "Get a webhook",
		Needs: needs("webhooks", apikey.Read), Output: webhookRecord, Handle: a.getWebhook,
	}, {
		Method: "PUT", Path: "/webhooks/{id}", ID: "updateWebhook", Tag: "Webhooks", Summary: "Change a webhook",
		Doc:   "Waiting deliveries use the new settings.",
		Needs: needs("webhooks", apikey.Update), Input: webhookRecord, Output: webhookRecord, Handle: a.updateWebhook,
	}, {
		Method: "DELETE", Path: "/webhooks/{id}", ID: "deleteWebhook", Tag: "Webhooks", Summary: "Delete a webhook",
		Doc:   "Waiting deliveries are not sent.",
		Needs: needs("webhooks", apikey.Delete), Handle: a.deleteWebhook,
	}, {
		Method: "POST", Path: "/webhooks/{id}/test", ID: "testWebhook", Tag: "Webhooks", Summary: "Send a test delivery",
		Doc: "Posts a sample of a subscribed event, with `data.test` true and the header X-Service-Test, signed like any other, in any state of the webhook, and waits for the answer. " +
			"The attempt is stored; it is neither retried nor counted against the webhook.",
		Needs: needs("webhooks", apikey.Update), Output: webhookTestRecord, Status: 200, Claim: true, Handle: a.testWebhook,
	}, {
		Method: "GET", Path: "/webhooks/{id}/upcoming", ID: "listUpcomingDeliveries", Tag: "Webhooks", Summary: "List waiting deliveries",
		Doc:   "A forecast of this moment, and so without pages: the deliveries that go out next, and when.",
		Needs: needs("webhooks", apikey.Read), Query: []rest.Param{{Name: "count", Kind: rest.IntParam, Min: 1, Max: webhook.MaxPage, Doc: "How many are looked at; 50 unless said otherwise."}},
		Output: upcomingRecord, Handle: a.upcomingDeliveries,
	}}
}

// mayAudit reports whether a key may read the audit log.
func mayAudit(r *rest.Request) bool { return r.Can("settings", apikey.Read) }

// mayGet returns an error unless a key may have the events of a source sent. Permissions of the helpdesk
// show nothing of the fleet, except for that of an admin to read settings.
func mayGet(r *rest.Request, source event.Source) error {
	if !source.OfFleet() {
		return nil
	}
	return r.Require("settings", apikey.Read)
}

func (a *API) listWebhooks(ctx context.Context, r *rest.Request) (rest.Response, error) {
	list, err := a.Webhooks.List(ctx, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	return whole(r, wired(list, wireOfWebhook), func(w wireWebhook) string { return w.ID })
}

func (a *API) createWebhook(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in webhookBody
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	secret := in.secret()
	var generated *string
	if !in.Secret.Set {
		secret = new(payload.NewSecret())
		generated = secret
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		if err := mayGet(r, in.Source.Value); err != nil {
			return rest.Response{}, err
		}
		w, err := a.Webhooks.CreateTx(ctx, tx, r.Key.OrganizationID, webhook.New{
			URL: in.URL.Value, Source: in.Source.Value, Events: in.Events.Value, Secret: secret, Disabled: !in.Enabled.Or(true),
			PayloadForm: in.PayloadForm.Value, RetrySchedule: in.RetrySchedule.Value, Ordered: in.Ordered.Value, MayAudit: mayAudit(r),
		})
		if err != nil {
			return rest.Response{}, err
		}
		out := wireOfWebhook(&w)
		out.Generated = generated
		return rest.Created("/webhooks/"+w.ID, out), nil
	})
}

func (a *API) getWebhook(ctx context.Context, r *rest.Request) (rest.Response, error) {
	w, err := a.Webhooks.Find(ctx, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(wireOfWebhook(&w)), nil
}

func (a *API) updateWebhook(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		w, err := a.Webhooks.FindTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		if err := mayGet(r, w.Source); err != nil {
			return rest.Response{}, err
		}
		var in webhookBody
		if err := r.Update(wireOfWebhook(&w), &in); err != nil {
			return rest.Response{}, err
		}
		change := webhook.Change{
			URL: in.URL.Pointer(), Events: in.Events.Pointer(), Secret: in.secret(), Unsigned: in.Secret.Null, Enabled: in.Enabled.Pointer(),
			PayloadForm: in.PayloadForm.Pointer(), RetrySchedule: in.RetrySchedule.Pointer(), Ordered: in.Ordered.Pointer(), MayAudit: mayAudit(r),
		}
		change.Enabled, change.DrainRate = in.drain(&w)
		w, err = a.Webhooks.UpdateTx(ctx, tx, r.Key.OrganizationID, w.ID, change)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(wireOfWebhook(&w)), nil
	})
}

// secret returns the secret of the body; nil: absent or null.
func (in *webhookBody) secret() *string {
	if in.Secret.Null {
		return nil
	}
	return in.Secret.Pointer()
}

// drain returns the update for the service. A body that enables a webhook without a rate keeps
// the current one.
func (in *webhookBody) drain(w *webhook.Webhook) (enabled *bool, rate *int) {
	enabled = in.Enabled.Pointer()
	if !in.Enabled.Or(w.State == webhook.Enabled) {
		if in.DrainRate.Value != 0 && in.DrainRate.Value != w.DrainRate {
			rate = &in.DrainRate.Value // refused by the service
		}
		return enabled, rate
	}
	if !in.Enabled.Set && !in.DrainRate.Set {
		return nil, nil
	}
	keep := w.DrainRate
	if in.DrainRate.Set {
		keep = in.DrainRate.Value
	}
	return new(true), &keep
}

func (a *API) deleteWebhook(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		w, err := a.Webhooks.FindTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Match(wireOfWebhook(&w)); err != nil {
			return rest.Response{}, err
		}
		if err := a.Webhooks.DeleteTx(ctx, tx, r.Key.OrganizationID, w.ID); err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent(), nil
	})
}

func (a *API) testWebhook(ctx context.Context, r *rest.Request) (rest.Response, error) {
	got, err := a.Webhooks.Test(ctx, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(wireWebhookTest{
		Object: "webhook.test", DeliveryID: got.DeliveryID, Success: got.Error == "", StatusCode: orNull(got.StatusCode),
		DurationMs: got.Duration.Milliseconds(), Error: orNull(got.Error),
	}), nil
}

func (a *API) upcomingDeliveries(ctx context.Context, r *rest.Request) (rest.Response, error) {
	count, ok := r.Int("count")
	if !ok {
		count = 50
	}
	list, err := a.Webhooks.Upcoming(ctx, r.Key.OrganizationID, r.Path("id"), int(count))
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(wireUpcoming{"webhook.upcoming", r.Path("id"), wired(list, func(c *webhook.UpcomingDelivery) wireComing {
		return wireComing{
			DeliveryID: c.ID, EventID: c.EventID, Event: c.Event, Attempt: c.Attempts + 1, WaitsFor: c.Wait, DueAt: rfc3339.Time(c.Due),
			Further: wired(c.Further, func(t *time.Time) rfc3339.Time { return rfc3339.Time(*t) }), CreatedAt: rfc3339.Time(c.CreatedAt),
		}
	})}), nil
}
