package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// The facts of a ticket are what it is known by beside its texts: tags, the external id, names of
// files, and its customer's name, addresses and numbers. They are words of the ticket's first
// document, after the subject. A change of them adds a row to facts_pending, like a message to
// search_pending.

const (
	// maxFactPoints bounds the indexed addresses of a customer, maxFactFiles the files of a ticket.
	maxFactPoints = 50
	maxFactFiles  = 200
	// minSuffix is the least number of last digits by which a phone number is found.
	minSuffix = 4
)

// enqueueFacts enqueues tickets whose facts the events of a transaction change.
func (s *Service) enqueueFacts(ctx context.Context, tx *db.Tx, events []event.Event) error {
	for i := range events {
		e := &events[i]
		var err error
		switch {
		case e.Name == event.CustomerUpdated:
			err = s.enqueueFactsWhere(ctx, tx, "customer_id", e.Data.Customer.ID)
		case e.Name == event.TicketUpdated && hasChange(e, "tags", "external_id"):
			err = s.enqueueFactsWhere(ctx, tx, "id", e.Data.Ticket.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enqueueFactsWhere enqueues the facts of the tickets with a value in a column.
func (s *Service) enqueueFactsWhere(ctx context.Context, tx *db.Tx, column, value string) error {
	if err := tx.Queue(ctx, `INSERT INTO facts_pending (id, ticket_id, organization_id, number)
		SELECT CAST($1 AS TEXT) || '/' || id, id, organization_id, number FROM tickets WHERE `+column+" = $2", newID(), value); err != nil {
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

// facts indexes the first document of a ticket anew.
func (x *indexer) facts(e pendingEntry) error {
	code, err := x.code(e.organizationID)
	if err != nil {
		return err
	}
	doc, _ := documentRange(code, e.number, e.number)
	if err := x.remove(doc, doc); err != nil {
		return err
	}
	return x.insertFacts(code, doc, e.ticketID)
}

// sqlFacts selects the facts of a ticket, each kind joined by spaces.
var sqlFacts = fmt.Sprintf(`SELECT t.subject, t.tags, t.external_id, u.name,
	(SELECT string_agg(name, ' ') FROM (SELECT name FROM attachments WHERE ticket_id = t.id AND NOT inline ORDER BY id DESC LIMIT %d) AS files),
	(SELECT string_agg(CASE kind WHEN 'email' THEN value || ' ' || coalesce(display, '') WHEN 'phone' THEN '' ELSE coalesce(display, '') END, ' ')
		FROM (SELECT kind, value, display FROM contact_points WHERE customer_id = u.id LIMIT %[2]d) AS points),
	(SELECT string_agg(coalesce(display, value), ' ')
		FROM (SELECT value, display FROM contact_points WHERE customer_id = u.id AND kind = 'phone' LIMIT %[2]d) AS phones)
	FROM tickets t JOIN customers u ON u.id = t.customer_id WHERE t.id = $1`, maxFactFiles, maxFactPoints)

// insertFacts writes the first document of a ticket, unless it was deleted.
func (x *indexer) insertFacts(code, doc int64, ticketID string) error {
	var subject, externalID, name, files, addresses, phones string
	var tags []string
	err := x.tx.QueryRow(x.ctx, sqlFacts, ticketID).Scan(&subject, db.IntoJSON(&tags), db.IntoText(&externalID), &name,
		db.IntoText(&files), db.IntoText(&addresses), db.IntoText(&phones))
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	facts := slices.Concat([]string{subject, externalID, name}, tags, []string{files, addresses})
	for number := range strings.FieldsSeq(phones) {
		digits := onlyDigits(number)
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

func onlyDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, text)
}
