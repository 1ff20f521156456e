package deskapi

import (
	"context"
	"maps"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var ticketChangeRecord = &schema.Record{Name: "ticket_change", Doc: "A change of a ticket, or its creation.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("ticket_change")},
	{Name: "ticket_id", Type: schema.ID()},
	{Name: "number", Type: schema.Integer(), Doc: "In the order of the ticket's changes, from 1; its creation has 0.", Example: 3},
	{Name: "at", Type: schema.Timestamp()},
	{Name: "actor", Doc: "The member, API key or customer that made the change; system for rules, such as closing after a time.", Type: schema.Object(
		schema.Member{Name: "type", Type: schema.Enum(string(audit.User), string(audit.Key), string(desk.ActorCustomer), string(audit.System))},
		schema.Member{Name: "id", Type: schema.Text(), Nullable: true, Doc: "null for the system."},
		schema.Member{Name: "name", Type: schema.Text(), Nullable: true, Doc: "The present name; null after a member has left.", Example: "Robin Demo"},
	)},
	{Name: "action", Type: schema.Enum(words(desk.ChangeActions[:])...), Example: "ticket.updated"},
	{Name: "changes", Type: eventChanges, Doc: "By field, as in the event ticket.updated: among others subject, status, snoozed_until, priority, assignee, customer (its id, by a merge of customers), tags, external_id, metadata, " +
		"merged_into_id, merged_ticket_id and split_ticket_id. A breach of an SLA target is by its metric. Values that were erased are null.",
		Example: map[string]any{"status": map[string]any{"from": "open", "to": "pending"}}},
	{Name: "surface", Type: schema.Enum(desk.Surfaces[:]...), Doc: "Where the change was made: web is the dashboard, rest this API, rpc the tRPC procedures, mcp the tools for assistants, " +
		"cli a command on the server, inbound a message of a channel, and system a rule.", Example: audit.Web},
}}

type ticketChange struct {
	Object   string                  `json:"object"`
	TicketID string                  `json:"ticket_id"`
	Number   int64                   `json:"number"`
	At       rfc3339.Time            `json:"at"`
	Actor    changeActor             `json:"actor"`
	Action   desk.ChangeAction       `json:"action"`
	Changes  map[string]event.Change `json:"changes"`
	Surface  string                  `json:"surface"`
}

type changeActor struct {
	Type audit.ActorType `json:"type"`
	ID   *string         `json:"id"`
	Name *string         `json:"name"`
}

func (a *API) timelineRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/tickets/{id}/timeline", ID: "listTimeline", Tag: "Timeline", Summary: "List the changes of a ticket",
		Doc: "The creation of the ticket and every change of its fields since: who made it, when, from what to what, and where. " +
			"Messages and notes are in a list of their own. A merge leaves each ticket its own timeline.\n\n" +
			"Changes made before this list existed are not in it.",
		Needs: needs("tickets", apikey.Read),
		Query: []rest.Param{
			{Name: "action", Kind: rest.EnumsParam, Values: words(desk.ChangeActions[:])},
			{Name: "at", Kind: rest.TimeRange},
		},
		Sort: []string{desk.ByAt}, Order: desk.ByAt,
		Export: true, Output: ticketChangeRecord, List: true, Handle: a.listTimeline,
	}}
}

func (a *API) listTimeline(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := desk.ChangeQuery{At: r.Range("at"), Sort: r.Sort()}
	for _, action := range r.Strings("action") {
		q.Action = append(q.Action, desk.ChangeAction(action))
	}
	wire := func(changes []desk.TicketChange) ([]ticketChange, error) { return a.wireChanges(ctx, r, changes) }
	if r.Exporting() {
		return rest.Export(inChunks(func(fn func(*desk.TicketChange) error) error {
			return a.Desk.EachChange(ctx, r.Key.OrganizationID, r.Path("id"), q, fn)
		}, wire)), nil
	}
	q.Limit = r.Limit()
	var err error
	if q.After, err = r.After(); err != nil {
		return rest.Response{}, err
	}
	changes, next, err := a.Desk.FindChanges(ctx, a.DB, r.Key.OrganizationID, r.Path("id"), q)
	if err != nil {
		return rest.Response{}, rest.AsCursorError(err)
	}
	list, err := wire(changes)
	if err != nil {
		return rest.Response{}, err
	}
	return paged(list, next), nil
}

// wireChanges returns changes in wire format, with the names of their actors and assignees.
func (a *API) wireChanges(ctx context.Context, r *rest.Request, changes []desk.TicketChange) ([]ticketChange, error) {
	var users, keys []string
	for i := range changes {
		c := &changes[i]
		switch c.Actor.Type {
		case audit.User:
			users = append(users, c.Actor.ID)
		case audit.Key:
			keys = append(keys, c.Actor.ID)
		}
		for _, id := range []any{c.Changes["assignee"].From, c.Changes["assignee"].To} {
			if id, ok := id.(string); ok {
				users = append(users, id)
			}
		}
	}
	names, err := a.Keys.Names(ctx, a.DB, r.Key.OrganizationID, slices.Compact(slices.Sorted(slices.Values(keys))))
	if err != nil {
		return nil, err
	}
	people := make(map[string]event.Person)
	if len(users) > 0 {
		members, err := a.Accounts.Members(ctx, r.Key.OrganizationID)
		if err != nil {
			return nil, err
		}
		for _, u := range members {
			people[u.ID] = event.Person{ID: u.ID, Name: u.Name, Email: u.Email}
		}
	}
	list := make([]ticketChange, len(changes))
	for i := range changes {
		list[i] = wireChange(&changes[i], people, names)
	}
	return list, nil
}

// wireChange returns a change in wire format. people are the organization's members, and keys the
// names of its keys.
func wireChange(c *desk.TicketChange, people map[string]event.Person, keys map[string]string) ticketChange {
	name := c.Actor.Name
	switch c.Actor.Type {
	case audit.User:
		name = people[c.Actor.ID].Name
	case audit.Key:
		name = keys[c.Actor.ID]
	}
	w := ticketChange{
		Object: "ticket_change", TicketID: c.TicketID, Number: c.Number, At: rfc3339.Time(c.At),
		Actor: changeActor{c.Actor.Type, orNull(c.Actor.ID), orNull(name)}, Action: c.Action, Changes: c.Changes, Surface: c.Surface,
	}
	if change, ok := c.Changes["assignee"]; ok {
		w.Changes = maps.Clone(c.Changes)
		w.Changes["assignee"] = event.Change{From: wireAssignee(change.From, people), To: wireAssignee(change.To, people)}
	}
	return w
}

// wireAssignee returns the assignee with an id, as in events; nil for nil.
func wireAssignee(id any, people map[string]event.Person) any {
	text, ok := id.(string)
	if !ok {
		return nil
	}
	p := people[text]
	return &assignee{text, orNull(p.Name), orNull(p.Email)}
}
