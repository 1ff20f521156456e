package desk

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// maxSplit bounds the messages of one split.
const maxSplit = 1000

// SplitTx moves messages and notes of a ticket into a new one, in the caller's
// transaction, and returns the new ticket. Its customer is the author of the first
// moved customer message; priority, tags and assignee are copied, and it links to
// the old ticket. Replies to the moved messages join it. Threads of numbers stay:
// the next message from there joins the old ticket. Split emits ticket.created, as
// [Service.CreateTicketTx] does, and ticket.updated of the old ticket.
//
// Errors: NotFound; Invalid, with code not_found for an id that is no message of
// the ticket; Conflict invalid_transition if no message would stay, or the ticket
// is merged.
func (s *Service) SplitTx(ctx context.Context, tx *db.Tx, organizationID, ticketID string, messageIDs []string) (Ticket, error) {
	var v problem.Validation
	if len(messageIDs) == 0 {
		v.AddCode("required", "message_ids", "must name a message")
	} else if len(messageIDs) > maxSplit {
		v.AddCode("too_long", "message_ids", "must have at most %d values", maxSplit)
	}
	if err := v.Err(); err != nil {
		return Ticket{}, err
	}
	from, err := lockTicket(ctx, tx, organizationID, ticketID)
	if err != nil {
		return Ticket{}, notFound(err, "ticket")
	}
	if from.MergedIntoID != "" {
		return Ticket{}, mergedError(&from)
	}
	list, err := db.All(ctx, tx, scanMessage, "SELECT "+messageColumns+" FROM messages WHERE ticket_id = $1 AND id = ANY($2) ORDER BY "+threadOrder, from.ID, messageIDs)
	if err != nil {
		return Ticket{}, fmt.Errorf("load messages: %w", err)
	}
	for i, id := range messageIDs {
		if !slices.ContainsFunc(list, func(m Message) bool { return m.ID == id }) {
			v.AddCode("not_found", fmt.Sprintf("message_ids.%d", i), "must be a message of the ticket")
		}
	}
	if err := v.Err(); err != nil {
		return Ticket{}, err
	}
	var total int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM messages WHERE ticket_id = $1", from.ID).Scan(&total); err != nil {
		return Ticket{}, fmt.Errorf("count messages: %w", err)
	}
	if total == len(list) {
		return Ticket{}, transitionError("at least one message must stay in the ticket", nil)
	}

	t := Ticket{
		ID: newID(), OrganizationID: organizationID, Subject: from.Subject, Status: StatusOpen, Priority: from.Priority,
		Channel: from.Channel, Customer: from.Customer, AssigneeID: from.AssigneeID, Tags: from.Tags,
		LinkedTicketID: from.ID, LinkReason: LinkSplit, CreatedAt: tx.Now, UpdatedAt: tx.Now, movedAt: tx.Now,
	}
	spoken, err := splitInto(ctx, tx, &t, list)
	if err != nil {
		return Ticket{}, err
	}
	if err := moveMessages(ctx, tx, &from, &t, list); err != nil {
		return Ticket{}, err
	}
	if err := s.insertTicket(ctx, tx, &t, spoken); err != nil {
		return Ticket{}, err
	}
	if err := s.enqueueTicketIndexing(ctx, tx, &t); err != nil {
		return Ticket{}, err
	}
	t.showClocks()
	if err := s.touchMoved(ctx, tx, &from); err != nil {
		return Ticket{}, err
	}
	snapshot, err := s.ticketSnapshot(ctx, tx, &t)
	if err != nil {
		return Ticket{}, err
	}
	left, err := s.ticketSnapshot(ctx, tx, &from)
	if err != nil {
		return Ticket{}, err
	}
	if err := s.recordTicketTx(ctx, tx, AuditTicketSplit, &from, map[string]any{"new_ticket": t.ID, "new_number": t.Number, "messages": len(list)}); err != nil {
		return Ticket{}, err
	}
	if err := recordCreation(ctx, tx, &t, originOf(ctx)); err != nil {
		return Ticket{}, err
	}
	changes := map[string]event.Change{"split_ticket_id": {From: nil, To: t.ID}}
	if err := recordChange(ctx, tx, &from, originOf(ctx), ChangeSplit, changes); err != nil {
		return Ticket{}, err
	}
	events := append(createEvents(snapshot, organizationID), updateEvents(left, organizationID, changes)...)
	return t, s.events.EmitTx(ctx, tx, events...)
}

// splitInto sets the customer, channel and subject of a new ticket from its
// messages, and reports whether an agent's message is the first.
func splitInto(ctx context.Context, tx *db.Tx, t *Ticket, list []Message) (spoken bool, err error) {
	asked, begun := false, false
	for _, m := range list {
		if m.Kind != KindReply {
			continue
		}
		if !begun {
			begun, spoken = true, m.Author.Type == AuthorAgent
			t.Channel = m.Channel
			if title := messageTitle(&m); title != "" {
				t.Subject = title
			}
		}
		switch {
		case m.Author.Type == AuthorCustomer && m.Author.ID != "" && !asked:
			asked = true
			k, err := loadCustomer(ctx, tx, m.Author.ID)
			if err != nil {
				return false, err
			}
			t.Customer = k.Customer
		case m.Author.Type == AuthorAgent && !spoken && t.FirstRespondedAt.IsZero():
			t.FirstRespondedAt = m.CreatedAt
		}
	}
	return spoken, nil
}

// messageTitle returns the subject of a ticket that starts with m.
func messageTitle(m *Message) string {
	if m.Details.Subject != "" {
		return m.Details.Subject
	}
	return title(m.Text)
}

// moveMessages moves messages to a new ticket, each conversation's into a copy of
// it.
func moveMessages(ctx context.Context, tx *db.Tx, from, to *Ticket, list []Message) error {
	conversations, err := db.All(ctx, tx, scanConversation, selectConversation+"WHERE c.ticket_id = $1", from.ID)
	if err != nil {
		return fmt.Errorf("load conversations: %w", err)
	}
	ids := make(map[string][]string) // by conversation
	emails := make(map[string]bool)
	for _, m := range list {
		ids[m.ConversationID] = append(ids[m.ConversationID], m.ID)
		emails[m.Details.Sender] = true
		for _, a := range slices.Concat(m.Details.To, m.Details.Cc, m.Details.Bcc) {
			emails[emailKey(a.Email)] = true
		}
	}
	for _, old := range slices.Sorted(maps.Keys(ids)) {
		fresh := ""
		if i := slices.IndexFunc(conversations, func(c Conversation) bool { return c.ID == old }); i >= 0 {
			if fresh, err = copyConversation(ctx, tx, conversations[i], to, list); err != nil {
				return err
			}
		}
		for _, move := range []string{
			"UPDATE messages SET ticket_id = $2, conversation_id = $3, home_id = NULL WHERE ticket_id = $1 AND id = ANY($4)",
			"UPDATE message_ids SET ticket_id = $2, conversation_id = $3 WHERE ticket_id = $1 AND message_id = ANY($4)",
			"UPDATE outbox SET ticket_id = $2, conversation_id = $3 WHERE ticket_id = $1 AND message_id = ANY($4)",
		} {
			if err := tx.Queue(ctx, move, from.ID, to.ID, fresh, ids[old]); err != nil {
				return fmt.Errorf("move messages: %w", err)
			}
		}
		if err := tx.Queue(ctx, "UPDATE attachments SET ticket_id = $2 WHERE ticket_id = $1 AND message_id = ANY($3)", from.ID, to.ID, ids[old]); err != nil {
			return fmt.Errorf("move attachments: %w", err)
		}
	}
	if err := tx.Queue(ctx, `INSERT INTO participants (ticket_id, email, name, role, created_at, unconfirmed)
		SELECT $2, email, name, role, created_at, unconfirmed FROM participants WHERE ticket_id = $1 AND email = ANY($3)`,
		from.ID, to.ID, slices.Sorted(maps.Keys(emails))); err != nil {
		return fmt.Errorf("write participants: %w", err)
	}
	return nil
}

// copyConversation copies conversation c, of which messages move, to another ticket, and
// returns the id of the copy.
func copyConversation(ctx context.Context, tx *db.Tx, c Conversation, to *Ticket, moved []Message) (string, error) {
	old := c.ID
	c.ID, c.TicketID, c.CreatedAt = newID(), to.ID, tx.Now
	threaded := c.ThreadKey != "" && c.Channel != channelEmail
	if !threaded {
		c.CustomerID = to.Customer.ID
	}
	if err := insertConversation(ctx, tx, &c); err != nil || !threaded {
		return c.ID, err
	}
	for _, m := range moved {
		if m.ConversationID != old {
			continue
		}
		// The thread goes on elsewhere, and must recognize repeated messages.
		m.TicketID, m.ConversationID = to.ID, c.ID
		if err := insertID(ctx, tx, threadScope(to.OrganizationID, c.ConnectionID, c.Channel), m.ExternalID, &m); err != nil {
			return "", err
		}
	}
	return c.ID, nil
}
