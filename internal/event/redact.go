package event

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// redactBatch bounds the rows that one transaction changes.
const redactBatch = 200

// RedactedText replaces a subject.
const RedactedText = "(redacted)"

// Redact removes a customer's data from an organization's events for good: names,
// addresses, subjects, texts and files. tickets are the ids of tickets that involve
// the customer. It works in batches and is idempotent. changed is called with the
// ids of changed events, in their transaction, to redact derived data.
func Redact(ctx context.Context, d *db.DB, organizationID, customerID string, tickets []string, changed func(ctx context.Context, tx *db.Tx, ids []string) error) error {
	r := redaction{organizationID, customerID, changed}
	if err := r.redactWhere(ctx, d, "customer_id", customerID); err != nil {
		return fmt.Errorf("redact events: %w", err)
	}
	for _, id := range tickets {
		if err := r.redactWhere(ctx, d, "ticket_id", id); err != nil {
			return fmt.Errorf("redact events: %w", err)
		}
	}
	return nil
}

// redaction has the arguments of Redact.
type redaction struct {
	organizationID, customerID string
	changed                    func(ctx context.Context, tx *db.Tx, ids []string) error
}

// redactWhere redacts the events with a value in a column.
func (r *redaction) redactWhere(ctx context.Context, d *db.DB, column, value string) error {
	for after := ""; ; {
		var rows []eventRow
		err := d.Write(ctx, func(tx *db.Tx) (err error) {
			rows, err = db.All(ctx, tx, scanRow, selectRows+"WHERE "+column+" = $1 AND id > $2 ORDER BY id LIMIT $3", value, after, redactBatch)
			if err != nil {
				return err
			}
			return r.redactTx(ctx, tx, rows)
		})
		if err != nil || len(rows) < redactBatch {
			return err
		}
		after = rows[len(rows)-1].ID
	}
}

// redactTx redacts and writes rows.
func (r *redaction) redactTx(ctx context.Context, tx *db.Tx, rows []eventRow) error {
	var ids []string
	for i := range rows {
		e := &rows[i]
		if e.OrganizationID != r.organizationID || !e.redact(r.customerID) {
			continue
		}
		if err := tx.Queue(ctx, "UPDATE events SET data = $2 WHERE id = $1", e.ID, db.JSON(e.Data)); err != nil {
			return err
		}
		ids = append(ids, IDs(e.ID, e.members, "")...)
	}
	if len(ids) == 0 {
		return nil
	}
	return r.changed(ctx, tx, ids)
}

// redact removes a customer's data from e, and reports whether there was any.
func (e *Event) redact(customerID string) bool {
	d, found := &e.Data, false
	if c := d.Customer; c != nil && c.ID == customerID && *c != (Customer{ID: customerID}) {
		d.Customer, found = &Customer{ID: customerID}, true
	}
	if d.Customer != nil && d.Customer.ID == customerID {
		found = e.clearChanges(slices.Collect(maps.Keys(d.Changes))...) || found
	}
	if m := d.Message; m != nil && (m.Text != "" || m.HTML != "" || len(m.Attachments) > 0) && (m.Author.ID == customerID || d.Ticket != nil && d.Ticket.Customer != nil && d.Ticket.Customer.ID == customerID) {
		found = true
		m.Text, m.HTML, m.ExternalID, m.Attachments = "", "", "", []Attachment{}
		if m.Author.Type == "customer" {
			m.Author.Name = ""
		}
	}
	if t := d.Ticket; t != nil && t.Customer != nil && t.Customer.ID == customerID {
		if t.Subject != RedactedText || *t.Customer != (Customer{ID: customerID}) {
			t.Subject, t.Customer, found = RedactedText, &Customer{ID: customerID}, true
		}
		found = e.clearChanges("subject", "metadata", "external_id") || found
	}
	return found
}

// clearChanges clears the values of changes, and reports whether there was an old
// value.
func (e *Event) clearChanges(names ...string) bool {
	found := false
	for _, name := range names {
		if c, ok := e.Data.Changes[name]; ok && c.From != nil {
			e.Data.Changes[name], found = Change{}, true
		}
	}
	return found
}
