package desk

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ChangeAction is the kind of a [TicketChange].
type ChangeAction string

// The actions.
const (
	ChangeCreated     ChangeAction = "ticket.created"
	ChangeUpdated     ChangeAction = "ticket.updated"
	ChangeMerged      ChangeAction = "ticket.merged" // in both tickets
	ChangeUnmerged    ChangeAction = "ticket.unmerged"
	ChangeSplit       ChangeAction = "ticket.split" // messages moved to a new ticket
	ChangeSLABreached ChangeAction = "sla.breached"
)

// ChangeActions lists all actions.
var ChangeActions = [...]ChangeAction{ChangeCreated, ChangeUpdated, ChangeMerged, ChangeUnmerged, ChangeSplit, ChangeSLABreached}

// ActorCustomer is the actor of a change by a customer's message. The others are
// [audit.User], [audit.Key] and [audit.System].
const ActorCustomer audit.ActorType = "customer"

// SurfaceSystem is the surface of changes by rules of time. The others are those of package
// audit.
const SurfaceSystem = "system"

// Surfaces lists the surfaces of changes.
var Surfaces = [...]string{audit.Web, audit.REST, audit.RPC, audit.MCP, audit.CLI, audit.Inbound, SurfaceSystem}

// TicketChange is an entry of a ticket's timeline.
type TicketChange struct {
	TicketID string
	Number   int64 // in the ticket, from 1; 0: its creation
	At       time.Time
	Actor    ChangeActor
	Surface  string // one of Surfaces
	Action   ChangeAction
	// Changes has the changed fields as in events, except that the assignee is an id or nil.
	// Redacted values are nil.
	Changes map[string]event.Change
}

// ChangeActor is the user, key, customer or system that made a change.
type ChangeActor struct {
	Type audit.ActorType
	ID   string // empty: the system, or unknown
	Name string // of a customer: the name or an address; empty for others
}

// changeOrigin is the actor and the surface of a change.
type changeOrigin struct {
	actorType audit.ActorType
	actorID   string
	surface   string
}

// originOf returns the origin of changes in a context, which the surface has put there for
// the audit log.
func originOf(ctx context.Context) changeOrigin {
	source := audit.SourceOf(ctx)
	o := changeOrigin{audit.System, "", cmp.Or(source.Surface, SurfaceSystem)}
	if a := source.Actor; a.Type == audit.User || a.Type == audit.Key {
		o.actorType, o.actorID = a.Type, a.ID
	}
	return o
}

// origin returns the origin of changes by a received message.
func (e *unsavedMessage) origin() changeOrigin {
	switch e.Author.Type {
	case AuthorCustomer:
		return changeOrigin{ActorCustomer, e.Author.ID, audit.Inbound}
	case AuthorAgent:
		return changeOrigin{audit.User, e.Author.ID, audit.Inbound}
	}
	return changeOrigin{audit.System, "", audit.Inbound}
}

// recordCreation writes the creation of a ticket into its timeline. Tickets that a customer's
// message creates need no row; see selectChanges.
func recordCreation(ctx context.Context, tx *db.Tx, t *Ticket, by changeOrigin) error {
	if err := tx.Queue(ctx, `INSERT INTO ticket_changes (ticket_id, number, organization_id, changed_at, actor_type, actor_id, surface, action, changes)
		VALUES ($1, 0, $2, $3, $4, $5, $6, $7, '{}')`,
		t.ID, t.OrganizationID, t.CreatedAt.UnixMicro(), string(by.actorType), db.Text(by.actorID), by.surface, string(ChangeCreated)); err != nil {
		return fmt.Errorf("record creation of ticket: %w", err)
	}
	return nil
}

// recordChange writes a change of a locked ticket into its timeline.
func recordChange(ctx context.Context, tx *db.Tx, t *Ticket, by changeOrigin, action ChangeAction, changes map[string]event.Change) error {
	if err := tx.Queue(ctx, `INSERT INTO ticket_changes (ticket_id, number, organization_id, changed_at, actor_type, actor_id, surface, action, changes)
		SELECT $1, coalesce(max(number), 0) + 1, $2, CAST($3 AS BIGINT), $4, $5, $6, $7, $8 FROM ticket_changes WHERE ticket_id = $1`,
		t.ID, t.OrganizationID, tx.Now.UnixMicro(), string(by.actorType), db.Text(by.actorID), by.surface, string(action), db.JSON(withoutNames(changes))); err != nil {
		return fmt.Errorf("record change of ticket: %w", err)
	}
	return nil
}

// withoutNames returns changes with the id of the assignee only, so that the name of a deleted
// user does not stay.
func withoutNames(changes map[string]event.Change) map[string]event.Change {
	c, ok := changes["assignee"]
	if !ok {
		return changes
	}
	id := func(v any) any {
		if p, ok := v.(*event.Person); ok && p != nil {
			return p.ID
		}
		return nil
	}
	changes = maps.Clone(changes)
	changes["assignee"] = event.Change{From: id(c.From), To: id(c.To)}
	return changes
}

// clearChanges removes the values of fields from the timeline of a locked ticket.
func clearChanges(ctx context.Context, tx *db.Tx, ticketID string, fields ...string) error {
	type row struct {
		number  int64
		changes map[string]event.Change
	}
	rows, err := db.All(ctx, tx, func(from db.Row) (r row, err error) {
		err = from.Scan(&r.number, db.IntoJSON(&r.changes))
		return r, err
	}, "SELECT number, changes FROM ticket_changes WHERE ticket_id = $1 ORDER BY number", ticketID)
	if err != nil {
		return fmt.Errorf("load changes of ticket: %w", err)
	}
	for _, r := range rows {
		found := false
		for _, field := range fields {
			if c, ok := r.changes[field]; ok && (c.From != nil || c.To != nil) {
				r.changes[field], found = event.Change{}, true
			}
		}
		if !found {
			continue
		}
		if err := tx.Queue(ctx, "UPDATE ticket_changes SET changes = $3 WHERE ticket_id = $1 AND number = $2", ticketID, r.number, db.JSON(r.changes)); err != nil {
			return fmt.Errorf("redact changes of ticket: %w", err)
		}
	}
	return nil
}

// ByAt sorts a timeline.
const ByAt = "at"

// ChangeQuery describes a list of a ticket's changes; see [TicketQuery].
type ChangeQuery struct {
	Action []ChangeAction
	At     period.Range
	Sort   keyset.Sort // by at, newest first by default
	After  *keyset.Cursor
	Limit  int // 0: 30; at most 200
}

// Check implements [problem.Checker].
func (q ChangeQuery) Check(v *problem.Validation) {
	keyset.CheckValues(v, "action", q.Action)
	keyset.CheckPage(v, q.Sort, q.After, q.Limit, maxPage, ByAt)
}

// FindChanges is [Service.FindTickets] for the timeline of a ticket: its creation and its
// changes, in their order. Changes from before migration 58 were not recorded, and those of
// a ticket merged into it are in that ticket's own. Error: NotFound for another
// organization's ticket.
func (s *Service) FindChanges(ctx context.Context, q db.Querier, organizationID, ticketID string, query ChangeQuery) ([]TicketChange, *keyset.Cursor, error) {
	if err := problem.Check(query); err != nil {
		return nil, nil, err
	}
	query.Limit = cmp.Or(query.Limit, defaultPage)
	return findPage(ctx, s, q, "changes", func(q db.Querier) ([]TicketChange, *keyset.Cursor, error) {
		if _, err := s.Ticket(ctx, q, organizationID, ticketID); err != nil {
			return nil, nil, err
		}
		return findChanges(ctx, q, ticketID, &query)
	})
}

// EachChange is [Service.EachTicket] for the timeline of a ticket. Error: NotFound for another
// organization's ticket.
func (s *Service) EachChange(ctx context.Context, organizationID, ticketID string, query ChangeQuery, fn func(*TicketChange) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(query); err != nil {
		return err
	}
	query.Limit = keyset.ExportPage
	return s.export(ctx, func(ctx context.Context, q db.Querier) error {
		if _, err := s.Ticket(ctx, q, organizationID, ticketID); err != nil {
			return err
		}
		return keyset.EachPage("changes", fn, func(after *keyset.Cursor) ([]TicketChange, *keyset.Cursor, error) {
			query.After = after
			return findChanges(ctx, q, ticketID, &query)
		})
	})
}

// selectChanges selects the changes of ticket $1. A ticket without a row of its creation was
// created by its customer's message or, on the API's channel, before there were rows.
const selectChanges = `SELECT c.number, c.changed_at, c.actor_type, c.actor_id, u.name, u.email, u.phone, c.surface, c.action, c.changes FROM (
		SELECT number, changed_at, actor_type, actor_id, surface, action, changes FROM ticket_changes WHERE ticket_id = $1
		UNION ALL SELECT 0, created_at, CASE channel WHEN '` + ChannelAPI + `' THEN 'system' ELSE 'customer' END,
			CASE channel WHEN '` + ChannelAPI + `' THEN NULL ELSE customer_id END,
			CASE channel WHEN '` + ChannelAPI + `' THEN 'system' ELSE 'inbound' END, 'ticket.created', '{}'
		FROM tickets WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM ticket_changes WHERE ticket_id = $1 AND number = 0)
	) c LEFT JOIN customers u ON u.id = c.actor_id AND c.actor_type = 'customer' WHERE 1 = 1`

func scanChange(row db.Row) (TicketChange, error) {
	var c TicketChange
	var name, email, phone string
	err := row.Scan(&c.Number, db.IntoTime(&c.At), &c.Actor.Type, db.IntoText(&c.Actor.ID), db.IntoText(&name), db.IntoText(&email), db.IntoText(&phone),
		&c.Surface, &c.Action, db.IntoJSON(&c.Changes))
	c.Actor.Name = cmp.Or(name, email, phone)
	return c, err
}

func findChanges(ctx context.Context, q db.Querier, ticketID string, query *ChangeQuery) ([]TicketChange, *keyset.Cursor, error) {
	if query.Sort.Field == "" {
		query.Sort = keyset.Sort{Field: ByAt, Descending: true}
	}
	order, later := query.Sort.SQL()
	st := &keyset.Statement{Args: []any{ticketID}}
	// A ticket's changes are stored together, and few enough to filter.
	st.WriteString(selectChanges)
	if len(query.Action) > 0 {
		st.Addf(" AND c.action IN (%s)", keyset.Placeholders(st, query.Action))
	}
	if !query.At.Whole() {
		first, last := query.At.Micros()
		st.Addf(" AND c.changed_at >= %s AND c.changed_at <= %s", st.Arg(first), st.Arg(last))
	}
	if query.After != nil {
		n, err := query.After.Integer()
		if err != nil {
			return nil, nil, err
		}
		st.Addf(" AND c.number %s %s", later, st.Arg(n))
	}
	st.Addf(" ORDER BY c.number %s LIMIT %d", order, query.Limit+1)
	list, err := db.All(ctx, q, scanChange, st.String(), st.Args...)
	if err != nil {
		return nil, nil, err
	}
	for i := range list {
		list[i].TicketID = ticketID
	}
	list, next := keyset.TrimPage(list, query.Limit, func(last *TicketChange) *keyset.Cursor {
		return &keyset.Cursor{Value: strconv.FormatInt(last.Number, 10)}
	})
	return list, next, nil
}
