package deskapi

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

var eventRecord = &schema.Record{Name: "event", Doc: "An event as delivered to webhooks.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("event")},
	{Name: "event", Type: schema.Enum(eventNames...)},
	{Name: "ticket_id", Type: schema.Text(), Nullable: true},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "data", Type: schema.JSONOf(eventData), Doc: "The records at the time of the event: ticket, message, customer, sla and changes, as applicable. Same as the data of a webhook with payload_form b."},
}}

// eventData has the records of any event.
var eventData = &schema.Record{Name: "event.data", Members: []schema.Member{
	{Name: "ticket", Type: eventTicket, Sometimes: true, Example: map[string]any{
		"id": "019aa0f2-8c1d-7a10-8a0b-2f8f3f6f7a90", "number": 42, "subject": "Where is my bicycle?", "status": "open", "priority": "normal", "channel": "email",
		"customer": map[string]any{"id": "019aa0f2-8c1d-7b44-b1c8-90a0b7f5e2c1", "email": "alex@example.com"}, "assignee": nil, "url": "https://help.example.com/tickets/42",
	}},
	{Name: "message", Type: eventMessage, Sometimes: true},
	{Name: "customer", Type: eventCustomer, Sometimes: true},
	{Name: "sla", Type: eventSLA, Sometimes: true},
	{Name: "changes", Type: eventChanges, Sometimes: true},
}}

type wireEvent struct {
	ID        string          `json:"id"`
	Object    string          `json:"object"`
	Event     event.Name      `json:"event"`
	TicketID  *string         `json:"ticket_id"`
	CreatedAt rfc3339.Time    `json:"created_at"`
	Data      json.RawMessage `json:"data"`
}

func wireOfEvent(e *event.Event) (wireEvent, error) {
	data, err := payload.EventData(e)
	w := wireEvent{ID: e.ID, Object: "event", Event: e.Name, CreatedAt: rfc3339.Time(e.At), Data: data}
	if e.Data.Ticket != nil {
		w.TicketID = &e.Data.Ticket.ID
	}
	return w, err
}

var eventReplayInput = &schema.Record{Name: "event.replay_request", Members: []schema.Member{
	{Name: "webhook_id", Type: schema.ID(), Access: schema.Writable, Doc: "Send only to this webhook, subscribed or not; if absent, to all subscribed webhooks."},
}}

var eventReplayRecord = &schema.Record{Name: "event.replay", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("event.replay")},
	{Name: "delivery_ids", Type: schema.Array(schema.ID(), webhook.MaxPerOrganization), Doc: "The new deliveries."},
}}

type wireEventReplay struct {
	Object      string   `json:"object"`
	DeliveryIDs []string `json:"delivery_ids"`
}

func (a *API) eventRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/events", ID: "listEvents", Tag: "Events", Summary: "List events",
		Query: []rest.Param{
			{Name: "event", Kind: rest.EnumsParam, Values: eventNames},
			{Name: "ticket_id", Kind: rest.StringParam},
			{Name: "created_at", Kind: rest.TimeRange},
		},
		Needs: needs("events", apikey.Read), Sort: []string{"created_at"}, Export: true,
		Output: eventRecord, List: true, Handle: a.listEvents,
	}, {
		Method: "GET", Path: "/events/{id}", ID: "getEvent", Tag: "Events", Summary: "Get an event",
		Needs: needs("events", apikey.Read), Output: eventRecord, Handle: a.getEvent,
	}, {
		Method: "POST", Path: "/events/{id}/replay", ID: "replayEvent", Tag: "Events", Summary: "Send an event again",
		Doc:   "Sends a new delivery to all subscribed webhooks, or to one webhook.",
		Needs: needs("events", apikey.Create), Input: eventReplayInput, Output: eventReplayRecord, Handle: a.replayEvent,
	}}
}

func (a *API) listEvents(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := event.Query{TicketID: r.String("ticket_id"), CreatedAt: r.Range("created_at"), Ascending: !r.Sort().Descending}
	for _, name := range r.Strings("event") {
		q.Names = append(q.Names, event.Name(name))
	}
	if r.Exporting() {
		return rest.Export(exported(func(fn func(*event.Event) error) error {
			return event.Each(ctx, a.DB, r.Key.OrganizationID, q, fn)
		}, wireOfEvent)), nil
	}
	var err error
	if q.After, err = after(r); err != nil {
		return rest.Response{}, err
	}
	q.Limit = r.Limit()
	list, next, err := event.List(ctx, a.DB, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, err
	}
	events := make([]wireEvent, len(list))
	for i := range list {
		if events[i], err = wireOfEvent(&list[i]); err != nil {
			return rest.Response{}, err
		}
	}
	return rest.List(events, position(next)), nil
}

// event returns the event of the path.
func (a *API) event(ctx context.Context, q db.Querier, r *rest.Request) (event.Event, error) {
	e, err := event.Find(ctx, q, r.Path("id"))
	if errors.Is(err, db.ErrNoRows) || err == nil && (e.OrganizationID != r.Key.OrganizationID || e.Name == event.AuditRecorded) {
		err = problem.New(problem.NotFound, "there is no such event")
	}
	return e, err
}

func (a *API) getEvent(ctx context.Context, r *rest.Request) (rest.Response, error) {
	e, err := a.event(ctx, a.DB, r)
	if err == nil && e.Source.OfFleet() { // can be sent again, but is no record of this API
		err = problem.New(problem.NotFound, "there is no such event")
	}
	if err != nil {
		return rest.Response{}, err
	}
	w, err := wireOfEvent(&e)
	return rest.OK(w), err
}

func (a *API) replayEvent(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		e, err := a.event(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		var in struct {
			WebhookID optional.Value[string] `json:"webhook_id"`
		}
		if err := r.Decode(&in); err != nil {
			return rest.Response{}, err
		}
		// The event exists, so the webhook does not.
		ids, err := a.Webhooks.ReplayEventTx(ctx, tx, r.Key.OrganizationID, e.ID, in.WebhookID.Value)
		if err != nil {
			return rest.Response{}, rest.AsUnprocessable(err, "webhook_id")
		}
		return rest.WithStatus(201, wireEventReplay{"event.replay", append([]string{}, ids...)}), nil
	})
}
