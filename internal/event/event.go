// Package event records events in the transaction of the change that they describe:
// an event exists exactly if its change does.
//
// An event carries a snapshot of its records in one canonical form. Surfaces that
// publish events (webhooks, live pages) derive theirs from it and never load the
// records again, so an event has the same content however late it is delivered.
//
// Listeners are registered once, when the program is composed. Listeners of
// [Log.BeforeCommit] run in the transaction and can refuse it; listeners of
// [Log.AfterCommit] run once it is durable.
package event

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/telemetry"

	"go.opentelemetry.io/otel/attribute"
)

// Name is the name of an event (helpdesk.md part 6).
type Name string

// The events of the contract.
const (
	TicketCreated         Name = "ticket.created"
	TicketUpdated         Name = "ticket.updated"
	TicketStatusChanged   Name = "ticket.status_changed"
	TicketAssigned        Name = "ticket.assigned"
	TicketPriorityChanged Name = "ticket.priority_changed"
	TicketDeleted         Name = "ticket.deleted"
	ConversationCreated   Name = "conversation.created"
	MessageCreated        Name = "message.created"
	MessageCustomerReply  Name = "message.customer_reply"
	MessageAgentReply     Name = "message.agent_reply"
	CustomerCreated       Name = "customer.created"
	CustomerUpdated       Name = "customer.updated"
	SLAWarning            Name = "sla.warning"
	SLABreached           Name = "sla.breached"
)

// AuditRecorded announces a new audit log entry. It is not part of the contract:
// "*" does not include it, lists do not show it, and listeners do not get it.
// Package webhook writes and delivers it.
const AuditRecorded Name = "audit.recorded"

// Names lists every event of the contract, in its order.
var Names = [...]Name{
	TicketCreated, TicketUpdated, TicketStatusChanged, TicketAssigned, TicketPriorityChanged, TicketDeleted,
	ConversationCreated, MessageCreated, MessageCustomerReply, MessageAgentReply,
	CustomerCreated, CustomerUpdated, SLAWarning, SLABreached,
}

// Event is one event.
type Event struct {
	ID             string    `json:"id"` // UUIDv7, set by EmitTx
	OrganizationID string    `json:"organization_id"`
	Name           Name      `json:"event"`
	At             time.Time `json:"created_at"` // the transaction's time, set by EmitTx; of a fleet, by its clock
	Data           Data      `json:"data"`

	Source  Source `json:"-"` // empty: the helpdesk
	Subject string `json:"-"` // of a fleet: the record within which its events are in order
}

// Data is the snapshot of an event; fields that do not apply are nil. Its JSON is
// the stored form: fields are only ever added.
type Data struct {
	Ticket   *Ticket           `json:"ticket,omitempty"`
	Message  *Message          `json:"message,omitempty"`
	Customer *Customer         `json:"customer,omitempty"`
	SLA      *SLA              `json:"sla,omitempty"`
	Changes  map[string]Change `json:"changes,omitempty"` // by field name, on update events
	Entry    json.RawMessage   `json:"entry,omitempty"`   // of the audit log, as exported
	Test     bool              `json:"test,omitempty"`    // a sample event of a test delivery
	Fleet    json.RawMessage   `json:"fleet,omitempty"`   // all data of an event of a fleet, as sent
}

// Ticket is a snapshot of a ticket.
type Ticket struct {
	ID       string    `json:"id"`
	Number   int64     `json:"number"`
	Subject  string    `json:"subject"`
	Status   string    `json:"status"`
	Priority string    `json:"priority"`
	Channel  string    `json:"channel"`
	Assignee *Person   `json:"assignee"`
	Customer *Customer `json:"customer"`
	URL      string    `json:"url"`
}

// Message is a snapshot of a public message.
type Message struct {
	ID             string       `json:"id"`
	TicketID       string       `json:"ticket_id"`
	ConversationID string       `json:"conversation_id"`
	Direction      string       `json:"direction"`
	Author         Author       `json:"author"`
	Channel        string       `json:"channel"`
	Kind           string       `json:"kind"`
	Text           string       `json:"text"`
	HTML           string       `json:"html"`
	Attachments    []Attachment `json:"attachments"`
	ExternalID     string       `json:"external_id"`
	CreatedAt      time.Time    `json:"created_at"`
}

// Author is the author of a message.
type Author struct {
	Type string `json:"type"` // customer, agent or system
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Attachment describes a file of a message.
type Attachment struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	ContentType string `json:"content_type"`
	Size        *int64 `json:"size"` // bytes; nil: the content could not be fetched, or, with a URL, not yet
	URL         string `json:"url"`  // empty: the content could not be fetched
}

// Customer is a snapshot of a customer.
type Customer struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"` // the preferred one; may be empty
	Phone string `json:"phone"` // the preferred one; may be empty
}

// Person is an agent.
type Person struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

// SLA is the target of an SLA event.
type SLA struct {
	Metric string    `json:"metric"` // first_response or resolution
	DueAt  time.Time `json:"due_at"`
}

// Change is the old and new value of one field.
type Change struct {
	From any `json:"from"`
	To   any `json:"to"`
}

// Log writes events and calls the listeners. Register listeners before the first
// EmitTx; then it is safe for concurrent use.
type Log struct {
	// SeparateRows makes EmitTx write each event in a row of its own, for programs that do not know the
	// migration [MembersSince].
	SeparateRows atomic.Bool

	beforeCommit []func(ctx context.Context, tx *db.Tx, events []Event) error
	afterCommit  []func(events []Event)
}

// BeforeCommit registers a listener that runs in the transaction. Its error rolls
// back the change.
func (l *Log) BeforeCommit(fn func(ctx context.Context, tx *db.Tx, events []Event) error) {
	l.beforeCommit = append(l.beforeCommit, fn)
}

// AfterCommit registers a listener that runs after the commit. It must not block.
func (l *Log) AfterCommit(fn func(events []Event)) { l.afterCommit = append(l.afterCommit, fn) }

// insertRows holds statements by number of rows. Most changes have no more.
var insertRows = func() (statements [maxRows + 1]string) {
	var rows []string
	for n := 1; n <= maxRows; n++ {
		var values []string
		for i := range rowColumns {
			values = append(values, fmt.Sprintf("$%d", rowColumns*(n-1)+i+1))
		}
		rows = append(rows, "("+strings.Join(values, ", ")+")")
		statements[n] = "INSERT INTO events (id, organization_id, name, ticket_id, data, created_at, customer_id, members) VALUES " + strings.Join(rows, ", ")
	}
	return statements
}()

const (
	maxRows    = 5
	rowColumns = 8
)

// EmitTx writes the events of one change, in order, and sets their ID and At. All
// must be of one organization.
func (l *Log) EmitTx(ctx context.Context, tx *db.Tx, events ...Event) (err error) {
	if len(events) == 0 {
		return nil
	}
	ctx, span := telemetry.Start(ctx, "events")
	if span.IsRecording() {
		names := make([]string, len(events))
		for i, e := range events {
			names[i] = string(e.Name)
		}
		span.SetAttributes(attribute.StringSlice("kickstand.events", names))
	}
	defer func() { telemetry.End(span, err) }()
	if err := l.write(ctx, tx, events); err != nil {
		return fmt.Errorf("write event %s: %w", events[0].Name, err)
	}
	for _, fn := range l.beforeCommit {
		if err := fn(ctx, tx, events); err != nil {
			return err
		}
	}
	if len(l.afterCommit) > 0 {
		tx.AfterCommit(func() {
			for _, fn := range l.afterCommit {
				fn(events)
			}
		})
	}
	return nil
}

// write writes events and sets their ID and At.
func (l *Log) write(ctx context.Context, tx *db.Tx, events []Event) error {
	args := make([]any, 0, rowColumns*maxRows)
	for len(events) > 0 {
		n, data := 1, events[0].Data
		if !l.SeparateRows.Load() {
			n, data = shareRow(events)
		}
		id := tx.NewID()
		if n > 1 {
			id = rowID(id)
		}
		for i := range n {
			events[i].ID, events[i].At = id, tx.Now
			if n > 1 {
				events[i].ID = memberID(id, i)
			}
		}
		var ticket, customer string
		if data.Ticket != nil {
			ticket = data.Ticket.ID
		}
		if data.Customer != nil && (ticket == "" || n > 1) {
			customer = data.Customer.ID
		}
		args = append(args, id, events[0].OrganizationID, string(events[0].Name), db.Text(ticket), db.JSON(data), tx.Now.UnixMicro(), db.Text(customer), db.Text(members(events[:n])))
		events = events[n:]
		if rows := len(args) / rowColumns; rows == maxRows || len(events) == 0 {
			if err := tx.Queue(ctx, insertRows[rows], args...); err != nil {
				return err
			}
			args = make([]any, 0, rowColumns*maxRows)
		}
	}
	return nil
}

// WriteTx writes an [AuditRecorded] event without calling listeners, unless its id
// exists already.
func WriteTx(ctx context.Context, tx *db.Tx, e Event) error {
	if err := tx.Queue(ctx, `INSERT INTO events (id, organization_id, name, data, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT DO NOTHING`, e.ID, e.OrganizationID, string(e.Name), db.JSON(e.Data), e.At.UnixMicro()); err != nil {
		return fmt.Errorf("write event %s: %w", e.Name, err)
	}
	return nil
}

// Find returns an event; [db.ErrNoRows] if there is none.
func Find(ctx context.Context, q db.Querier, id string) (Event, error) {
	events, err := FindAll(ctx, q, []string{id})
	if err == nil && len(events) == 0 {
		err = db.ErrNoRows
	}
	if err != nil {
		return Event{}, err
	}
	return events[0], nil
}

// FindAll returns the events with the given ids that are stored, in any order.
func FindAll(ctx context.Context, q db.Querier, ids []string) ([]Event, error) {
	ids, fleetIDs := split(ids)
	var list []Event
	if len(ids) > 0 {
		rows, err := db.All(ctx, q, scanRow, selectRows+"WHERE id = ANY($1)", WithRows(ids))
		if err != nil {
			return nil, err
		}
		wanted := make(map[string]bool, len(ids))
		for _, id := range ids {
			wanted[id] = true
		}
		list = expand(rows, func(e *Event) bool { return wanted[e.ID] })
	}
	if len(fleetIDs) > 0 {
		events, err := findFleet(ctx, q, fleetIDs)
		if err != nil {
			return nil, err
		}
		list = append(list, events...)
	}
	return list, nil
}
