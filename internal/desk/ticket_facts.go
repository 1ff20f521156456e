package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/textwords"
)

// The facts of a ticket identify it beside its texts: tags, the external id, names of
// files, and its customer's name, addresses and numbers. They are words of the ticket's first
// document, after the subject. A change of them adds a row to facts_pending, like a message to
// search_pending.

const (
	// maxFactPoints bounds the indexed addresses of a customer, maxFactFiles the files of a ticket.
	maxFactPoints = 50
	maxFactFiles  = 200
)

// enqueueChangedFacts enqueues the facts that the events of a transaction change.
func (s *Service) enqueueChangedFacts(ctx context.Context, tx *db.Tx, events []event.Event) error {
	for i := range events {
		e := &events[i]
		var err error
		switch {
		case e.Name == event.CustomerUpdated && hasChange(e, "name", "email", "phone", "emails", "phones", "identities", "external_id"):
			err = s.enqueueFacts(ctx, tx, e.OrganizationID, "", e.Data.Customer.ID)
		case e.Name == event.CustomerCreated && !createsTicket(events): // else its ticket indexes it
			err = s.enqueueCustomer(ctx, tx, e.OrganizationID, e.Data.Customer.ID)
		case e.Name == event.TicketUpdated && hasChange(e, "tags", "external_id"):
			err = s.enqueueFacts(ctx, tx, e.OrganizationID, e.Data.Ticket.ID, "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// createsTicket reports whether a ticket is created among events.
func createsTicket(events []event.Event) bool {
	return slices.ContainsFunc(events, func(e event.Event) bool { return e.Name == event.TicketCreated })
}

// enqueueFacts enqueues the facts of a ticket, or a customer and the facts of all its tickets.
func (s *Service) enqueueFacts(ctx context.Context, tx *db.Tx, organizationID, ticketID, customerID string) error {
	return s.queueFacts(ctx, tx, pendingFacts{organizationID: organizationID, ticketID: ticketID, customerID: customerID})
}

// enqueueCustomer enqueues a customer without its tickets.
func (s *Service) enqueueCustomer(ctx context.Context, tx *db.Tx, organizationID, customerID string) error {
	return s.queueFacts(ctx, tx, pendingFacts{organizationID: organizationID, customerID: customerID, last: customerAlone})
}

func (s *Service) queueFacts(ctx context.Context, tx *db.Tx, p pendingFacts) error {
	if err := tx.Queue(ctx, "INSERT INTO facts_pending (id, organization_id, ticket_id, customer_id, last) VALUES ($1, $2, $3, $4, $5)",
		newID(), p.organizationID, db.Text(p.ticketID), db.Text(p.customerID), p.last); err != nil {
		return fmt.Errorf("enqueue facts for indexing: %w", err)
	}
	s.wakeIndexer(tx)
	return nil
}

func hasChange(e *event.Event, fields ...string) bool {
	for _, field := range fields {
		if _, ok := e.Data.Changes[field]; ok {
			return true
		}
	}
	return false
}

// pendingFacts is a row of facts_pending.
type pendingFacts struct {
	id, organizationID   string
	ticketID, customerID string // one of them
	last                 int64  // number of the customer's last ticket that is indexed; customerAlone: none is to be
}

// customerAlone is the last of a row of a customer without its tickets.
const customerAlone = -1

// facts indexes the facts of pending rows, and returns the number of tickets and rows.
func (x *indexer) facts() (n int, err error) {
	rows, err := db.All(x.ctx, x.tx, func(row db.Row) (p pendingFacts, err error) {
		err = row.Scan(&p.id, &p.organizationID, db.IntoText(&p.ticketID), db.IntoText(&p.customerID), &p.last)
		return p, err
	}, "SELECT id, organization_id, ticket_id, customer_id, last FROM facts_pending ORDER BY id LIMIT "+strconv.Itoa(indexBatch))
	if err != nil {
		return 0, err
	}
	for i := range rows {
		if n >= indexBatch {
			break
		}
		tickets, err := x.factsOf(&rows[i])
		if err != nil {
			return 0, err
		}
		n += max(tickets, 1)
	}
	return n, nil
}

// factsOf indexes the next tickets of a row, and deletes or continues it. It returns their number.
func (x *indexer) factsOf(p *pendingFacts) (int, error) {
	type ticket struct {
		id     string
		number int64
	}
	where, value := "id", p.ticketID
	if p.customerID != "" {
		where, value = "customer_id", p.customerID
		if p.last <= 0 {
			if err := x.customer(p.organizationID, p.customerID); err != nil {
				return 0, err
			}
		}
		if p.last == customerAlone {
			_, err := x.tx.Exec(x.ctx, "DELETE FROM facts_pending WHERE id = $1", p.id)
			return 0, err
		}
	}
	tickets, err := db.All(x.ctx, x.tx, func(row db.Row) (t ticket, err error) {
		err = row.Scan(&t.id, &t.number)
		return t, err
	}, "SELECT id, number FROM tickets WHERE "+where+" = $1 AND number > $2 ORDER BY number LIMIT $3", value, p.last, indexBatch)
	if err != nil {
		return 0, err
	}
	for _, t := range tickets {
		if x.done[t.id] {
			continue
		}
		x.done[t.id] = true
		code, err := x.code(p.organizationID)
		if err != nil {
			return 0, err
		}
		doc, _ := documentRange(code, t.number, t.number)
		if err := x.remove(doc, doc); err != nil {
			return 0, err
		}
		if err := x.insertFacts(code, doc, t.id); err != nil {
			return 0, err
		}
	}
	if len(tickets) == indexBatch {
		_, err = x.tx.Exec(x.ctx, "UPDATE facts_pending SET last = $2 WHERE id = $1", p.id, tickets[indexBatch-1].number)
	} else {
		_, err = x.tx.Exec(x.ctx, "DELETE FROM facts_pending WHERE id = $1", p.id)
	}
	return len(tickets), err
}

// sqlFacts selects the facts of a ticket, each kind joined by spaces.
var sqlFacts = fmt.Sprintf(`SELECT t.organization_id, t.subject, t.tags, t.external_id, u.id, u.name,
	EXISTS (SELECT 1 FROM customer_docs d WHERE d.customer_id = u.id),
	(SELECT string_agg(name, ' ') FROM (SELECT name FROM attachments a WHERE ticket_id = t.id AND NOT inline
		AND NOT EXISTS (SELECT 1 FROM pending_replies p WHERE p.message_id = a.message_id) ORDER BY id DESC LIMIT %d) AS files),
	(SELECT string_agg(CASE kind WHEN 'email' THEN value || ' ' || coalesce(display, '') ELSE coalesce(display, '') END, ' ')
		FROM (SELECT kind, value, display FROM contact_points WHERE customer_id = u.id AND kind <> 'phone'
			ORDER BY CASE kind WHEN 'email' THEN 0 ELSE 1 END, value LIMIT %[2]d) AS points),
	(SELECT string_agg(coalesce(display, value), ' ')
		FROM (SELECT value, display FROM contact_points WHERE customer_id = u.id AND kind = 'phone' LIMIT %[2]d) AS phones)
	FROM tickets t JOIN customers u ON u.id = t.customer_id WHERE t.id = $1`, maxFactFiles, maxFactPoints)

// insertFacts writes the first document of a ticket, unless it was deleted.
func (x *indexer) insertFacts(code, doc int64, ticketID string) error {
	var organizationID, subject, externalID, customerID, name, files, addresses, phones string
	var tags []string
	var known bool
	err := x.tx.QueryRow(x.ctx, sqlFacts, ticketID).Scan(&organizationID, &subject, db.IntoJSON(&tags), db.IntoText(&externalID), &customerID, &name, &known,
		db.IntoText(&files), db.IntoText(&addresses), db.IntoText(&phones))
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if !known {
		if err := x.customer(organizationID, customerID); err != nil {
			return err
		}
	}
	facts := slices.Concat([]string{subject, externalID, name}, tags, []string{files, addresses})
	for number := range strings.FieldsSeq(phones) {
		digits := textwords.Digits(number)
		facts = append(facts, digits, lastDigits(digits))
	}
	return x.insert(code, doc, strings.Join(facts, " \n"))
}

// lastDigits returns the word by whose beginning a phone number is found by its last digits, so
// that it is found without its country and in the form of a country.
func lastDigits(digits string) string {
	word := []byte("tel" + digits)
	slices.Reverse(word[3:])
	return string(word)
}
