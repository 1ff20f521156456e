package desk

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// LockTicketTx is [Service.Ticket] with a lock until the caller's transaction ends.
func (s *Service) LockTicketTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Ticket, error) {
	t, err := lockTicket(ctx, tx, organizationID, id)
	return t, notFound(err, "ticket")
}

// LockCustomerTx is [Service.Customer] with a lock until the caller's transaction
// ends.
func (s *Service) LockCustomerTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Customer, error) {
	c, err := lockCustomer(ctx, tx, organizationID, id)
	return c.Customer, err
}

// inOrganization tests the organization $2 of rows that are looked up by their ids. It is not a bare
// column: for a list of ids, SQLite would walk all rows of the organization by another index.
const inOrganization = "coalesce(organization_id = $2, FALSE)"

// CustomersByID returns the organization's customers among ids, by id. Deleted
// customers are included, since tickets refer to them.
func (s *Service) CustomersByID(ctx context.Context, q db.Querier, organizationID string, ids []string) (map[string]Customer, error) {
	list, err := db.All(ctx, q, scanCustomer, selectCustomer+"WHERE id = ANY($1) AND "+inOrganization, ids, organizationID)
	if err != nil {
		return nil, fmt.Errorf("load customers: %w", err)
	}
	found := make(map[string]Customer, len(list))
	for i := range list {
		if err := list[i].loadContacts(ctx, q); err != nil {
			return nil, err
		}
		found[list[i].ID] = list[i].Customer
	}
	return found, nil
}

// Message returns a message of a ticket. Error: NotFound, also if it moved to
// another ticket.
func (s *Service) Message(ctx context.Context, q db.Querier, organizationID, ticketID, id string) (Message, error) {
	m, err := db.One(ctx, q, scanMessage, "SELECT "+messageColumns+` FROM messages WHERE ticket_id = $1 AND id = $2
		AND EXISTS (SELECT 1 FROM tickets t WHERE t.id = $1 AND t.organization_id = $3)`, ticketID, id, organizationID)
	if err != nil {
		return Message{}, notFound(err, "message")
	}
	m.Attachments, err = s.messageAttachments(ctx, q, ticketID, id)
	return m, err
}

// messageAttachments returns the attachments of a message.
func (s *Service) messageAttachments(ctx context.Context, q db.Querier, ticketID, messageID string) ([]Attachment, error) {
	list, err := db.All(ctx, q, s.scanAttachment, "SELECT "+attachmentColumns+` FROM attachments
		WHERE ticket_id = $1 AND message_id = $2 ORDER BY id`, ticketID, messageID)
	if err != nil {
		return nil, fmt.Errorf("load attachments: %w", err)
	}
	return list, nil
}
