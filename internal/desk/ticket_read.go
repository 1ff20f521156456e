package desk

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// setHeardAt sets tickets.heard_at for an event of the customer's at time $2. It
// grows every time, so that a read mark set between two messages of the same
// microsecond covers the first only.
const setHeardAt = "heard_at = CASE WHEN coalesce(heard_at, created_at) >= $2 THEN coalesce(heard_at, created_at) + 1 ELSE $2 END"

// markUnread marks a locked ticket as unread for all members.
func markUnread(ctx context.Context, tx *db.Tx, ticketID string) error {
	if err := tx.Queue(ctx, "UPDATE tickets SET "+setHeardAt+" WHERE id = $1", ticketID, tx.Now.UnixMicro()); err != nil {
		return fmt.Errorf("mark ticket unread: %w", err)
	}
	return nil
}

// MarkReadTx records, in the caller's transaction, that a member has read a ticket as
// the transaction sees it: a page marks first and reads then. Error: NotFound.
func (s *Service) MarkReadTx(ctx context.Context, tx *db.Tx, organizationID, userID, ticketID string) error {
	n, err := tx.Exec(ctx, `INSERT INTO ticket_reads (ticket_id, user_id, read_at)
		SELECT id, $3, coalesce(heard_at, created_at) FROM tickets WHERE id = $1 AND organization_id = $2 FOR KEY SHARE
		ON CONFLICT (ticket_id, user_id) DO UPDATE SET read_at = excluded.read_at`, ticketID, organizationID, userID)
	if err != nil {
		return fmt.Errorf("mark ticket as read: %w", err)
	}
	if n == 0 {
		return notFound(db.ErrNoRows, "ticket")
	}
	return nil
}

// MarkUnreadTx undoes [Service.MarkReadTx]. Error: NotFound.
func (s *Service) MarkUnreadTx(ctx context.Context, tx *db.Tx, organizationID, userID, ticketID string) error {
	if err := hasTicket(ctx, tx, organizationID, ticketID); err != nil {
		return err
	}
	if err := tx.Queue(ctx, "DELETE FROM ticket_reads WHERE ticket_id = $1 AND user_id = $2", ticketID, userID); err != nil {
		return fmt.Errorf("mark ticket as unread: %w", err)
	}
	return nil
}

// hasTicket returns a NotFound problem unless the organization has the ticket, which is not deleted
// before the transaction ends.
func hasTicket(ctx context.Context, tx *db.Tx, organizationID, ticketID string) error {
	var id string
	return notFound(tx.QueryRow(ctx, "SELECT id FROM tickets WHERE id = $1 AND organization_id = $2 FOR KEY SHARE", ticketID, organizationID).Scan(&id), "ticket")
}

// Unread returns the tickets that are unread for a member, by id: never read, or
// with a customer's message or a delivery failure since. An imported ticket is not,
// until there is one.
func (s *Service) Unread(ctx context.Context, q db.Querier, userID string, tickets []Ticket) (map[string]bool, error) {
	unread := make(map[string]bool, len(tickets))
	if len(tickets) == 0 {
		return unread, nil
	}
	ids := make([]string, len(tickets))
	heard := make(map[string]int64, len(tickets))
	for i := range tickets {
		t := &tickets[i]
		ids[i], unread[t.ID], heard[t.ID] = t.ID, t.heardAt.UnixMicro() != heardNever, t.heardAt.UnixMicro()
	}
	rows, err := q.Query(ctx, "SELECT ticket_id, read_at FROM ticket_reads WHERE ticket_id = ANY($1) AND user_id = $2", ids, userID)
	if err != nil {
		return nil, fmt.Errorf("load read marks: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var at int64
		if err := rows.Scan(&id, &at); err != nil {
			return nil, err
		}
		if at >= heard[id] {
			delete(unread, id)
		}
	}
	return unread, rows.Err()
}
