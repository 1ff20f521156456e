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

// insertFacts writes the first document of a ticket, unless it was deleted.
func (x *indexer) insertFacts(code, doc int64, ticketID string) error {
	var subject, externalID, customerID, name string
	var tags []string
	err := x.tx.QueryRow(x.ctx, `SELECT t.subject, t.tags, t.external_id, u.id, u.name
		FROM tickets t JOIN customers u ON u.id = t.customer_id WHERE t.id = $1`, ticketID).
		Scan(&subject, db.IntoJSON(&tags), db.IntoText(&externalID), &customerID, &name)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	files, err := db.All(x.ctx, x.tx, func(row db.Row) (name string, err error) {
		err = row.Scan(&name)
		return name, err
	}, "SELECT name FROM attachments WHERE ticket_id = $1 AND NOT inline ORDER BY id DESC LIMIT $2", ticketID, maxFactFiles)
	if err != nil {
		return err
	}
	facts := slices.Concat([]string{subject, externalID, name}, tags, files)
	points, err := db.All(x.ctx, x.tx, func(row db.Row) (fact string, err error) {
		var value, kind, display string
		err = row.Scan(&value, &kind, db.IntoText(&display))
		switch kind {
		case pointPhone:
			return phoneWords(value), err
		case pointEmail:
			return value + " " + display, err
		}
		return display, err
	}, "SELECT value, kind, display FROM contact_points WHERE customer_id = $1 LIMIT $2", customerID, maxFactPoints)
	if err != nil {
		return err
	}
	return x.insert(code, doc, strings.Join(append(facts, points...), " \n"))
}

// phoneWords returns a phone number and its last digits, so that it is found without its country and in
// the form of a country.
func phoneWords(number string) string {
	digits := onlyDigits(number)
	words := []string{digits}
	for i := 1; i <= len(digits)-minSuffix; i++ {
		words = append(words, digits[i:])
	}
	return strings.Join(words, " ")
}

func onlyDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, text)
}
