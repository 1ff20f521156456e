package desk

import (
	"context"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// undoneAtOnce bounds the records that one call of [Service.UndoImportTx] deletes.
const undoneAtOnce = 20

// Undone counts the records that [Service.UndoImportTx] handled.
type Undone struct {
	Tickets   int64 `json:"tickets"`
	Messages  int64 `json:"messages"` // in tickets that stay
	Customers int64 `json:"customers"`
	Left      int64 `json:"left"` // tickets that stay: there is more in them than the import
}

// Add adds n to u.
func (u *Undone) Add(n Undone) {
	u.Tickets += n.Tickets
	u.Messages += n.Messages
	u.Customers += n.Customers
	u.Left += n.Left
}

// UndoImportTx deletes the next records that an import wrote, in the caller's transaction and without
// events. more reports that there are further ones. Tickets with later messages, merged tickets, and
// customers who were merged, changed since, or have more than the import wrote, stay.
func (s *Service) UndoImportTx(ctx context.Context, tx *db.Tx, of Import) (done Undone, more bool, err error) {
	for _, step := range []struct {
		kind string
		undo func(ctx context.Context, tx *db.Tx, of Import, id string, done *Undone) error
	}{
		{importedTicket, s.undoTicket},
		{importedMessage, s.undoMessage},
		{importedFile, func(context.Context, *db.Tx, Import, string, *Undone) error { return nil }},
		{importedCustomer, s.undoCustomer},
	} {
		ids, err := db.All(ctx, tx, scanText, "SELECT record_id FROM import_records WHERE import_id = $1 AND kind = $2 AND NOT kept ORDER BY record_id LIMIT $3 FOR UPDATE",
			of.ID, step.kind, undoneAtOnce)
		if err != nil {
			return Undone{}, false, fmt.Errorf("find imported records: %w", err)
		}
		if len(ids) == 0 {
			continue
		}
		for _, id := range ids {
			if err := step.undo(ctx, tx, of, id, &done); err != nil {
				return Undone{}, false, err
			}
		}
		if err := tx.Queue(ctx, "DELETE FROM import_records WHERE import_id = $1 AND kind = $2 AND record_id = ANY($3) AND NOT kept", of.ID, step.kind, ids); err != nil {
			return Undone{}, false, fmt.Errorf("delete imported records: %w", err)
		}
		return done, true, nil
	}
	return Undone{}, false, nil
}

// undoTicket deletes a ticket, unless there is more in it than the import wrote.
func (s *Service) undoTicket(ctx context.Context, tx *db.Tx, of Import, id string, done *Undone) error {
	t, err := lockTicket(ctx, tx, of.OrganizationID, id)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load ticket: %w", err)
	}
	// A message that repeats an imported one either has marked its record, or waits, and is stored.
	if _, err := db.All(ctx, tx, scanText, `SELECT record_id FROM import_records WHERE import_id = $2
		AND record_id IN (SELECT id FROM messages WHERE ticket_id = $1) ORDER BY record_id FOR UPDATE`, id, of.ID); err != nil {
		return fmt.Errorf("lock imported records: %w", err)
	}
	var later bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM messages m WHERE m.ticket_id = $1
			AND NOT EXISTS (SELECT 1 FROM import_records r WHERE r.record_id = m.id AND r.import_id = $2 AND NOT r.kept))
		OR EXISTS (SELECT 1 FROM pending_replies p WHERE p.ticket_id = $1)`, id, of.ID).Scan(&later); err != nil {
		return fmt.Errorf("look for later messages: %w", err)
	}
	if later || !t.movedAt.IsZero() || t.MergedIntoID != "" {
		done.Left++
		// Its messages and customers stay with it, and a further run does not write them again.
		if err := tx.Queue(ctx, `UPDATE import_records SET kept = TRUE WHERE import_id = $1 AND record_id IN (
				SELECT id FROM tickets WHERE id = $2 UNION SELECT customer_id FROM tickets WHERE id = $2 UNION SELECT id FROM messages WHERE ticket_id = $2
				UNION SELECT author_id FROM messages WHERE ticket_id = $2 UNION SELECT id FROM attachments WHERE ticket_id = $2)`, of.ID, id); err != nil {
			return fmt.Errorf("keep imported records: %w", err)
		}
		return nil
	}
	if err := tx.Queue(ctx, `DELETE FROM import_records WHERE import_id = $1 AND record_id IN (
			SELECT id FROM messages WHERE ticket_id = $2 UNION SELECT id FROM attachments WHERE ticket_id = $2)`, of.ID, id); err != nil {
		return fmt.Errorf("delete imported records: %w", err)
	}
	done.Tickets++
	return s.deleteRows(ctx, tx, &t)
}

// markRepeated notes that a message was received again, so that the undo of its import leaves it: the
// repetition was not stored. An error means that an undo has deleted the message meanwhile.
func markRepeated(ctx context.Context, tx *db.Tx, organizationID string, r *Result) error {
	n, err := tx.Exec(ctx, "UPDATE import_records SET kept = TRUE WHERE record_id = $1 AND organization_id = $2 AND kind = $3", r.MessageID, organizationID, importedMessage)
	if err != nil {
		return fmt.Errorf("mark imported record: %w", err)
	}
	if n > 0 {
		return nil
	}
	var id string
	if err := tx.QueryRow(ctx, "SELECT id FROM messages WHERE ticket_id = $1 AND id = $2", r.TicketID, r.MessageID).Scan(&id); err != nil {
		return fmt.Errorf("find repeated message: %w", err)
	}
	return nil
}

// undoMessage deletes a message that the import added to a ticket which it did not create.
func (s *Service) undoMessage(ctx context.Context, tx *db.Tx, of Import, id string, done *Undone) error {
	var ticketID string
	err := tx.QueryRow(ctx, "SELECT m.ticket_id FROM messages m JOIN tickets t ON t.id = m.ticket_id WHERE m.id = $1 AND t.organization_id = $2", id, of.OrganizationID).Scan(&ticketID)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find message: %w", err)
	}
	t, err := lockTicket(ctx, tx, of.OrganizationID, ticketID)
	if err != nil {
		return fmt.Errorf("load ticket: %w", err)
	}
	if err := s.deleteFileRows(ctx, tx, &t, []string{"DELETE FROM attachments WHERE ticket_id = $1 AND message_id = $2"}, t.ID, id); err != nil {
		return err
	}
	for _, statement := range []string{
		"DELETE FROM message_ids WHERE ticket_id = $1 AND message_id = $2",
		"DELETE FROM messages WHERE ticket_id = $1 AND id = $2",
	} {
		if err := tx.Queue(ctx, statement, t.ID, id); err != nil {
			return fmt.Errorf("delete message: %w", err)
		}
	}
	done.Messages++
	s.notifyChanged(tx, of.OrganizationID, t.ID)
	return s.enqueueTicketIndexing(ctx, tx, &t)
}

// undoCustomer deletes a customer who has nothing but what the import wrote.
func (s *Service) undoCustomer(ctx context.Context, tx *db.Tx, of Import, id string, done *Undone) error {
	n, err := tx.Exec(ctx, `DELETE FROM customers WHERE id = $1 AND organization_id = $2 AND external_id IS NULL AND metadata IS NULL
		AND merged_into_id IS NULL AND merged_with IS NULL AND NOT EXISTS (SELECT 1 FROM customers m WHERE m.merged_into_id = $1)
		AND updated_at <= $3
		AND NOT EXISTS (SELECT 1 FROM tickets WHERE customer_id = $1)
		AND NOT EXISTS (SELECT 1 FROM messages WHERE author_id = $1 AND author_type = 'customer' AND channel <> 'sms')
		AND NOT EXISTS (SELECT 1 FROM contact_points WHERE customer_id = $1 AND (kind NOT IN ('email', 'phone') OR conversation_id IS NOT NULL))
		AND NOT EXISTS (SELECT 1 FROM shop_customers WHERE customer_id = $1) AND NOT EXISTS (SELECT 1 FROM shop_orders WHERE customer_id = $1)
		AND NOT EXISTS (SELECT 1 FROM calls WHERE organization_id = $2
			AND phone IN (SELECT coalesce(display, value) FROM contact_points WHERE customer_id = $1 AND kind = 'phone'))`,
		id, of.OrganizationID, of.EndedAt.UnixMicro())
	if err != nil {
		return fmt.Errorf("delete customer: %w", err)
	}
	if n == 0 {
		return nil
	}
	done.Customers++
	if err := tx.Queue(ctx, "DELETE FROM contact_points WHERE customer_id = $1", id); err != nil {
		return fmt.Errorf("delete contact points: %w", err)
	}
	return s.enqueueCustomer(ctx, tx, of.OrganizationID, id)
}
