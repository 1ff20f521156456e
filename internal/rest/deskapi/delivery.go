package deskapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// attemptMembers are the common fields of an attempt.
func attemptMembers(more ...schema.Member) []schema.Member {
	return append([]schema.Member{
		{Name: "number", Type: schema.Integer(), Doc: "From 1."},
		{Name: "at", Type: schema.Timestamp(), Doc: "Its start."},
		{Name: "status_code", Type: schema.Integer(), Nullable: true, Doc: "null without an answer."},
		{Name: "duration_ms", Type: schema.Integer()},
		{Name: "error", Type: schema.Text(), Nullable: true, Doc: "null when it was accepted."},
		{Name: "response", Type: schema.Text(), Nullable: true, Doc: "The first 4 KiB of the answer's body."},
	}, more...)
}

var deliveryRecord = &schema.Record{Name: "delivery", Doc: "One event on its way to one webhook. It is stored for 30 days after its newest attempt, unless the operator has set another retention.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("delivery")},
	{Name: "webhook_id", Type: schema.ID()},
	{Name: "event_id", Type: schema.ID()},
	{Name: "event", Type: schema.Enum(deliveredNames...)},
	{Name: "state", Type: schema.Enum(deliveryStates()...), Doc: "failed: refused, or its schedule is used up. dropped: pushed out of a full queue."},
	{Name: "test", Type: schema.Bool(), Doc: "A test delivery, of a sample event."},
	{Name: "attempt_count", Type: schema.Integer(), Doc: "Attempts so far."},
	{Name: "last_attempt", Type: schema.Object(attemptMembers()...), Nullable: true},
	{Name: "next_attempt_at", Type: schema.Timestamp(), Nullable: true, Doc: "While it is retried."},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "attempts", Sometimes: true, Doc: "All attempts, the oldest first; only in the answer about one delivery.", Type: schema.Array(schema.Object(attemptMembers(
		schema.Member{Name: "request", Nullable: true, Doc: "The request as sent; null if none was sent.", Type: schema.Object(
			schema.Member{Name: "method", Type: schema.Text()},
			schema.Member{Name: "url", Type: schema.Text()},
			schema.Member{Name: "headers", Type: schema.Map(schema.Text())},
			schema.Member{Name: "body", Type: schema.Text(), Nullable: true, Doc: "null if it is no longer known, and for audit.recorded without the permission settings.read."},
		)},
	)...), 100)},
}}

func deliveryStates() []string {
	var names []string
	for state := webhook.Pending; state <= webhook.Dropped; state++ {
		names = append(names, state.String())
	}
	return names
}

type wireDelivery struct {
	ID            string        `json:"id"`
	Object        string        `json:"object"`
	WebhookID     string        `json:"webhook_id"`
	EventID       string        `json:"event_id"`
	Event         event.Name    `json:"event"`
	State         string        `json:"state"`
	Test          bool          `json:"test"`
	AttemptCount  int           `json:"attempt_count"`
	LastAttempt   *wireAttempt  `json:"last_attempt"`
	NextAttemptAt rfc3339.Time  `json:"next_attempt_at"`
	CreatedAt     rfc3339.Time  `json:"created_at"`
	Attempts      []wireRequest `json:"attempts,omitzero"`
}

type wireAttempt struct {
	Number     int          `json:"number"`
	At         rfc3339.Time `json:"at"`
	StatusCode *int         `json:"status_code"`
	DurationMs int64        `json:"duration_ms"`
	Error      *string      `json:"error"`
	Response   *string      `json:"response"`
}

// wireRequest is an attempt with its request. It holds no secret: signatures are not secret.
type wireRequest struct {
	wireAttempt
	Request *wireSent `json:"request"`
}

type wireSent struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    *string           `json:"body"`
}

func wireOfDelivery(d *webhook.Delivery) wireDelivery {
	w := wireDelivery{
		ID: d.ID, Object: "delivery", WebhookID: d.WebhookID, EventID: d.EventID, Event: d.Event, State: d.State.String(), Test: d.Test,
		AttemptCount: d.Attempts, NextAttemptAt: rfc3339.Time(d.NextAt), CreatedAt: rfc3339.Time(d.CreatedAt),
	}
	if d.Attempts > 0 {
		w.LastAttempt = new(wireOfAttempt(&d.Last))
	}
	return w
}

func wireOfAttempt(a *webhook.Attempt) wireAttempt {
	return wireAttempt{
		Number: a.Number, At: rfc3339.Time(a.At), StatusCode: orNull(a.Status), DurationMs: a.Latency.Milliseconds(),
		Error: orNull(a.Error), Response: orNull(a.Response),
	}
}

func wireOfRequest(a *webhook.Attempt) wireRequest {
	w := wireRequest{wireAttempt: wireOfAttempt(a)}
	if q := a.Request; q != nil {
		w.Request = &wireSent{Method: q.Method, URL: q.URL, Headers: make(map[string]string, len(q.Header))}
		for name, values := range q.Header {
			w.Request.Headers[name] = values[0]
		}
		if q.Body != nil {
			w.Request.Body = new(string(q.Body))
		}
	}
	return w
}

var replayInput = &schema.Record{Name: "webhook.replay_request", Doc: "Either delivery_ids, or from and to.", Members: []schema.Member{
	{Name: "delivery_ids", Type: schema.Array(schema.ID(), webhook.MaxReplay), Access: schema.Writable, Doc: "Of this webhook. All are sent again, or none."},
	{Name: "from", Type: schema.Timestamp(), Access: schema.Writable, Doc: "Deliveries created at this time or later."},
	{Name: "to", Type: schema.Timestamp(), Access: schema.Writable, Doc: "Deliveries created before this time."},
	{Name: "failed_only", Type: schema.Bool(), Access: schema.Writable, Doc: "Only failed and dropped deliveries."},
	{Name: "event", Type: schema.Enum(deliveredNames...), Access: schema.Writable, Doc: "Only of this event."},
}}

type replayBody struct {
	DeliveryIDs optional.Value[[]string]     `json:"delivery_ids"`
	From        optional.Value[rfc3339.Time] `json:"from"`
	To          optional.Value[rfc3339.Time] `json:"to"`
	FailedOnly  optional.Value[bool]         `json:"failed_only"`
	Event       optional.Value[event.Name]   `json:"event"`
}

// check validates the combination of fields.
func (in *replayBody) check() error {
	var v problem.Validation
	switch {
	case in.DeliveryIDs.Set:
		if in.From.Set || in.To.Set || in.FailedOnly.Set || in.Event.Set {
			v.AddCode("conflict", "delivery_ids", "must be the only member")
		}
		if len(in.DeliveryIDs.Value) == 0 {
			v.AddCode("too_short", "delivery_ids", "must name at least one delivery")
		}
	case !in.From.Set && !in.To.Set:
		v.AddCode("required", "delivery_ids", "or from and to must be given")
	default:
		if !in.From.Set {
			v.AddCode("required", "from", "is required")
		}
		if !in.To.Set {
			v.AddCode("required", "to", "is required")
		}
	}
	return v.Err()
}

var replayRecord = &schema.Record{Name: "webhook.replay", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("webhook.replay")},
	{Name: "replayed", Type: schema.Integer(), Doc: "The number of new deliveries: one per event."},
}}

type wireReplay struct {
	Object   string `json:"object"`
	Replayed int    `json:"replayed"`
}

func (a *API) deliveryRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/webhooks/{id}/deliveries", ID: "listDeliveries", Tag: "Webhooks", Summary: "List a webhook's deliveries",
		Doc: "The newest first. Selective filters can return short or empty pages while has_more is true: continue with next_cursor.",
		Query: []rest.Param{
			{Name: "event", Kind: rest.EnumsParam, Values: deliveredNames},
			{Name: "event_id", Kind: rest.StringParam},
			{Name: "ticket_id", Kind: rest.StringParam, Doc: "Of the event's ticket."},
			{Name: "state", Kind: rest.EnumsParam, Values: deliveryStates()},
			{Name: "created_at", Kind: rest.TimeRange},
		},
		Needs: needs("webhooks", apikey.Read), Export: true, Output: deliveryRecord, List: true, Handle: a.listDeliveries,
	}, {
		Method: "GET", Path: "/webhooks/{id}/deliveries/{delivery_id}", ID: "getDelivery", Tag: "Webhooks", Summary: "Get a delivery",
		Doc:   "With every attempt: the request to the byte, and the start of the answer.",
		Needs: needs("webhooks", apikey.Read), Output: deliveryRecord, Handle: a.getDelivery,
	}, {
		Method: "POST", Path: "/webhooks/{id}/deliveries/{delivery_id}/replay", ID: "replayDelivery", Tag: "Webhooks", Summary: "Send a delivery again",
		Doc:   "Creates a new delivery of the same event. Test deliveries cannot be sent again.",
		Needs: needs("webhooks", apikey.Update), Output: deliveryRecord, Codes: []string{"invalid_transition"}, Handle: a.replayDelivery,
	}, {
		Method: "POST", Path: "/webhooks/{id}/replay", ID: "replayDeliveries", Tag: "Webhooks", Summary: "Send deliveries again",
		Doc:   "Sends the given deliveries again, or the events of the webhook's deliveries in a time range: each event once, oldest first, without waiting and test deliveries.",
		Needs: needs("webhooks", apikey.Update), Input: replayInput, Output: replayRecord, Status: 200, Claim: true, Handle: a.replayDeliveries,
	}}
}

// maxSearches bounds the searches for one page of a rare filter.
const maxSearches = 20

func (a *API) listDeliveries(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := webhook.Query{WebhookID: r.Path("id"), EventID: r.String("event_id"), TicketID: r.String("ticket_id")}
	for _, name := range r.Strings("event") {
		q.Events = append(q.Events, event.Name(name))
	}
	for _, name := range r.Strings("state") {
		state, _ := webhook.ParseDeliveryState(name)
		q.States = append(q.States, state)
	}
	q.From, q.To = r.Times("created_at")
	if !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To) {
		return a.noDeliveries(ctx, r)
	}
	if r.Exporting() {
		return rest.Export(exported(func(fn func(*webhook.Delivery) error) error {
			return a.Webhooks.Each(ctx, r.Key.OrganizationID, q, fn)
		}, plain(wireOfDelivery))), nil
	}
	var err error
	if q.Before, err = after(r); err != nil {
		return rest.Response{}, err
	}
	var found []wireDelivery
	for range maxSearches {
		q.Limit = r.Limit() - len(found)
		page, err := a.Webhooks.Search(ctx, r.Key.OrganizationID, q)
		if err != nil {
			return rest.Response{}, err
		}
		found = append(found, wired(page.Deliveries, wireOfDelivery)...)
		if q.Before = page.Next; q.Before == "" || len(found) == r.Limit() {
			break
		}
	}
	return rest.List(found, position(q.Before)), nil
}

// noDeliveries answers for a time range that cannot match.
func (a *API) noDeliveries(ctx context.Context, r *rest.Request) (rest.Response, error) {
	if _, err := a.Webhooks.Find(ctx, r.Key.OrganizationID, r.Path("id")); err != nil {
		return rest.Response{}, err
	}
	if r.Exporting() {
		return rest.Export(rest.All([]wireDelivery{})), nil
	}
	return rest.List([]wireDelivery{}, nil), nil
}

// delivery returns the delivery of the path.
func (a *API) delivery(ctx context.Context, r *rest.Request) (webhook.Delivery, []webhook.Attempt, error) {
	d, attempts, err := a.Webhooks.Delivery(ctx, r.Key.OrganizationID, r.Path("delivery_id"))
	if err == nil && d.WebhookID != r.Path("id") {
		err = problem.New(problem.NotFound, "there is no such delivery")
	}
	return d, attempts, err
}

func (a *API) getDelivery(ctx context.Context, r *rest.Request) (rest.Response, error) {
	d, attempts, err := a.delivery(ctx, r)
	if err != nil {
		return rest.Response{}, err
	}
	w := wireOfDelivery(&d)
	w.Attempts = wired(attempts, wireOfRequest)
	if !mayAudit(r) {
		hook, err := a.Webhooks.Find(ctx, r.Key.OrganizationID, d.WebhookID)
		if err != nil {
			return rest.Response{}, err
		}
		if d.Event == event.AuditRecorded || hook.Source.OfFleet() {
			for i := range w.Attempts {
				if q := w.Attempts[i].Request; q != nil {
					q.Body = nil
				}
			}
		}
	}
	return rest.OK(w), nil
}

func (a *API) replayDelivery(ctx context.Context, r *rest.Request) (rest.Response, error) {
	d, _, err := a.delivery(ctx, r)
	if err != nil {
		return rest.Response{}, err
	}
	if d.Test {
		return rest.Response{}, problem.New(problem.Precondition, "a test delivery cannot be sent again; send another test")
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		ids, err := a.Webhooks.ReplayOfTx(ctx, tx, r.Key.OrganizationID, d.WebhookID, []string{d.ID})
		if err != nil {
			return rest.Response{}, err
		}
		made := webhook.Delivery{ID: ids[0], WebhookID: d.WebhookID, EventID: d.EventID, Event: d.Event, CreatedAt: tx.Now}
		return rest.Created("/webhooks/"+d.WebhookID+"/deliveries/"+made.ID, wireOfDelivery(&made)), nil
	})
}

func (a *API) replayDeliveries(ctx context.Context, r *rest.Request) (rest.Response, error) {
	if _, err := a.Webhooks.Find(ctx, r.Key.OrganizationID, r.Path("id")); err != nil {
		return rest.Response{}, err
	}
	var in replayBody
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	if err := in.check(); err != nil {
		return rest.Response{}, err
	}
	if in.DeliveryIDs.Set {
		return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
			ids, err := a.Webhooks.ReplayOfTx(ctx, tx, r.Key.OrganizationID, r.Path("id"), in.DeliveryIDs.Value)
			if err != nil {
				return rest.Response{}, rest.AsUnprocessable(err, "delivery_ids")
			}
			return rest.OK(wireReplay{"webhook.replay", len(ids)}), nil
		})
	}
	n, err := a.Webhooks.ReplayRange(ctx, r.Key.OrganizationID, webhook.Range{
		WebhookID: r.Path("id"), From: in.From.Value.Std(), To: in.To.Value.Std(), States: webhook.FailedOnly(in.FailedOnly.Value), Event: in.Event.Value,
	})
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(wireReplay{"webhook.replay", n}), nil
}
