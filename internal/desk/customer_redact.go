package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// CustomerExport is all data of a customer.
type CustomerExport struct {
	CustomerID string // of the survivor, if the customer is merged
	// EventIDs are the customers of whose stored events it may be the subject: itself, and those of
	// merges, also of undone ones. EventTicketIDs are likewise tickets.
	EventIDs, EventTicketIDs []string

	Record    json.RawMessage // the customer, the tickets and the messages
	TicketIDs []string        // tickets with the customer's messages
	Contacts  []string        // addresses, numbers and ids of the customer
	Files     []Attachment    // of the messages, if their content exists
}

// dossierTicket is a ticket with the customer's part of it.
type dossierTicket struct {
	Ticket
	Conversations []Conversation `json:"conversations"`
	Messages      []Message      `json:"messages"`
}

// ExportCustomer returns all data of a customer: the record, the customer's tickets with
// all messages, and the customer's messages in other tickets. For a merged customer it is
// the data of the one that it is merged into. Error: NotFound, also for a deleted customer.
func (s *Service) ExportCustomer(ctx context.Context, q db.Querier, organizationID, customerID string) (*CustomerExport, error) {
	var d *CustomerExport
	err := s.snapshot(ctx, q, func(q db.Querier) (err error) {
		d, err = s.dossier(ctx, q, organizationID, customerID)
		return err
	})
	return d, err
}

func (s *Service) dossier(ctx context.Context, q db.Querier, organizationID, customerID string) (*CustomerExport, error) {
	c, err := s.Customer(ctx, q, organizationID, customerID)
	if err != nil {
		return nil, err
	}
	customerID = c.ID
	d := &CustomerExport{CustomerID: customerID, TicketIDs: []string{}, Contacts: slices.Concat(c.Emails, c.Phones)}
	for _, i := range c.Identities {
		d.Contacts = append(d.Contacts, i.ExternalID)
	}
	ids, err := ticketsInvolving(ctx, q, customerID)
	if err != nil {
		return nil, err
	}
	tickets := []dossierTicket{}
	for _, id := range ids {
		t, err := s.Ticket(ctx, q, organizationID, id)
		if err != nil {
			return nil, err
		}
		theirs, err := s.loadCustomerPart(ctx, q, &t, customerID)
		if err != nil {
			return nil, err
		}
		of := dossierTicket{Ticket: t, Conversations: theirs.conversations, Messages: theirs.messages}
		if t.Customer.ID != customerID {
			if len(of.Messages) == 0 {
				continue // merged into it, without a message of the customer
			}
			// The rest of it belongs to another customer.
			of.Ticket = Ticket{ID: t.ID, OrganizationID: t.OrganizationID, Number: t.Number, Channel: t.Channel, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt}
		}
		if err := s.fillAttachments(ctx, q, t.ID, of.Messages); err != nil {
			return nil, err
		}
		for i := range of.Messages {
			m := &of.Messages[i]
			m.withoutOthers()
			for _, a := range m.Attachments {
				if a.BlobKey != "" {
					d.Files = append(d.Files, a)
				}
			}
		}
		tickets = append(tickets, of)
		d.TicketIDs = append(d.TicketIDs, t.ID)
	}
	if err := d.loadMerges(ctx, q, organizationID); err != nil {
		return nil, err
	}
	merged, err := s.MergedCustomers(ctx, q, organizationID, customerID)
	if err != nil {
		return nil, err
	}
	d.Record, err = json.Marshal(struct {
		Customer Customer         `json:"customer"`
		Merged   []MergedCustomer `json:"merged_customers,omitempty"`
		Tickets  []dossierTicket  `json:"tickets"`
	}{c, merged, tickets})
	return d, err
}

// withoutOthers removes the addresses of people whom the customer does not see in a message.
func (m *Message) withoutOthers() {
	d := &m.Details
	d.Recipient, d.RecipientChanged, d.Bcc = nil, nil, nil
	if m.Kind != KindForward {
		return
	}
	m.Details = Details{Subject: d.Subject, Deleted: d.Deleted, Redacted: d.Redacted}
	if m.Author.Type == AuthorCustomer {
		m.Author, m.ExternalID = event.Author{Type: AuthorCustomer}, ""
	}
}

// loadMerges sets EventIDs and EventTicketIDs, from TicketIDs.
func (d *CustomerExport) loadMerges(ctx context.Context, q db.Querier, organizationID string) error {
	var err error
	if d.EventIDs, err = mergedDown(ctx, q, "customers", organizationID, d.CustomerID); err != nil {
		return err
	}
	lists, err := db.All(ctx, q, func(row db.Row) (ids []string, err error) {
		err = row.Scan(db.IntoJSON(&ids))
		return ids, err
	}, "SELECT merged_with FROM customers WHERE id = ANY($1) AND merged_with IS NOT NULL ORDER BY id", d.EventIDs)
	if err != nil {
		return fmt.Errorf("find undone merges: %w", err)
	}
	d.EventTicketIDs = slices.Clone(d.TicketIDs)
	for _, id := range withIDs(nil, slices.Concat(lists...)) {
		if slices.Contains(d.EventIDs, id) {
			continue
		}
		tickets, err := ticketsInvolving(ctx, q, id)
		if err != nil {
			return err
		}
		d.EventIDs, d.EventTicketIDs = append(d.EventIDs, id), withIDs(d.EventTicketIDs, tickets)
	}
	return nil
}

// ticketsInvolving returns the ids of tickets that may have data of a customer, in
// order: the customer's own, their survivors, and tickets with a message of the
// customer.
func ticketsInvolving(ctx context.Context, q db.Querier, customerID string) ([]string, error) {
	ids, err := db.All(ctx, q, scanText, `WITH RECURSIVE up(id, merged_into_id) AS (
			SELECT id, merged_into_id FROM tickets WHERE customer_id = $1
			UNION SELECT t.id, t.merged_into_id FROM tickets t JOIN up ON t.id = up.merged_into_id
		) SELECT id FROM up
		UNION SELECT ticket_id FROM messages WHERE author_id = $1 AND author_type = 'customer' AND channel <> 'sms'
		UNION SELECT c.ticket_id FROM contact_points p JOIN conversations c ON c.ticket_id = p.ticket_id AND c.id = p.conversation_id
			WHERE p.customer_id = $1 AND c.customer_id = $1
		ORDER BY id`, customerID)
	if err != nil {
		return nil, fmt.Errorf("find tickets: %w", err)
	}
	return ids, nil
}

// customerPart is a customer's part of a ticket.
type customerPart struct {
	conversations []Conversation
	messages      []Message
}

// loadCustomerPart returns a customer's part of a ticket: the messages of the
// customer's conversations, except other customers' in a shared thread, the
// customer's own messages anywhere, and the notes on the customer's ticket.
func (s *Service) loadCustomerPart(ctx context.Context, q db.Querier, t *Ticket, customerID string) (customerPart, error) {
	p := customerPart{conversations: []Conversation{}, messages: []Message{}}
	all, err := db.All(ctx, q, scanConversation, selectConversation+"WHERE c.ticket_id = $1 ORDER BY c.created_at, c.id", t.ID)
	if err != nil {
		return p, fmt.Errorf("load conversations: %w", err)
	}
	with := make(map[string]bool)
	for _, c := range all {
		if c.CustomerID == customerID {
			with[c.ID] = true
			p.conversations = append(p.conversations, c)
		}
	}
	noted, err := db.All(ctx, q, scanText, `SELECT m.id FROM messages m WHERE m.ticket_id = $1 AND m.conversation_id = ''
		AND coalesce(m.home_id, m.ticket_id) IN (SELECT id FROM tickets WHERE customer_id = $2)`, t.ID, customerID)
	if err != nil {
		return p, fmt.Errorf("find notes: %w", err)
	}
	messages, err := db.All(ctx, q, scanMessage, "SELECT "+messageColumns+" FROM messages WHERE ticket_id = $1 ORDER BY "+threadOrder, t.ID)
	if err != nil {
		return p, fmt.Errorf("load messages: %w", err)
	}
	for _, m := range messages {
		byOther := m.Author.Type == AuthorCustomer && m.Author.ID != "" && m.Author.ID != customerID
		switch {
		case with[m.ConversationID] && (!byOther || m.Channel == channelEmail),
			m.Author.Type == AuthorCustomer && m.Author.ID == customerID,
			slices.Contains(noted, m.ID):
			p.messages = append(p.messages, m)
		}
	}
	return p, nil
}

// redactedSubject replaces the subject of a redacted customer's ticket.
const redactedSubject = "(redacted)"

// Redact removes a customer's personal data for good: names, addresses, texts,
// files, queued messages and search entries. Tickets and messages stay, empty, with
// side and time. Customers merged into the customer, and the one that it is merged into, are the
// same person: their data goes, too. It emits customer.updated and ticket.updated without old values.
// It works ticket by ticket and is idempotent; an unknown customer is no error.
// Stored events and raw requests are redacted by their own packages.
func (s *Service) Redact(ctx context.Context, organizationID, customerID string) error {
	customerID, err := survivorID(ctx, s.db, organizationID, customerID)
	if err != nil {
		return err
	}
	// Twice, for messages received during the first pass.
	for range 2 {
		if customerID, err = s.redactOnce(ctx, organizationID, customerID); err != nil {
			return err
		}
	}
	return nil
}

// redactOnce redacts a customer and returns their id: another one if they were merged meanwhile.
func (s *Service) redactOnce(ctx context.Context, organizationID, customerID string) (string, error) {
	for {
		if err := s.redactImports(ctx, organizationID, customerID); err != nil { // by subjects, which go below
			return "", fmt.Errorf("redact imports: %w", err)
		}
		ids, err := ticketsInvolving(ctx, s.db, customerID)
		if err != nil {
			return "", err
		}
		addresses, known, err := s.redactMentions(ctx, organizationID, customerID)
		if err != nil {
			return "", err
		}
		var messages []string // of the customer
		for _, id := range ids {
			var theirs []string
			err := s.db.Write(ctx, func(tx *db.Tx) error {
				t, err := lockTicket(ctx, tx, organizationID, id)
				if errors.Is(err, db.ErrNoRows) {
					return nil // deleted meanwhile, or another organization's
				}
				if err != nil {
					return fmt.Errorf("load ticket: %w", err)
				}
				if err := redactAnnotations(ctx, tx, t.ID, known); err != nil {
					return err
				}
				theirs, err = s.redactTicket(ctx, tx, &t, customerID, addresses)
				return err
			})
			if err != nil {
				return "", fmt.Errorf("redact ticket: %w", err)
			}
			messages = append(messages, theirs...)
		}
		if err := s.redactForwards(ctx, organizationID, ids, messages); err != nil {
			return "", err
		}
		survivor := customerID
		if err := s.db.Write(ctx, func(tx *db.Tx) (err error) {
			if survivor, err = survivorID(ctx, tx, organizationID, customerID); err != nil || survivor != customerID {
				return err
			}
			c, err := lockCustomer(ctx, tx, organizationID, customerID)
			if isNotFound(err) {
				return nil
			}
			if err != nil {
				return err
			}
			return s.deleteCustomer(ctx, tx, c, false)
		}); err != nil && problem.Of(err) != problem.Conflict { // merged in this moment
			return "", fmt.Errorf("redact customer: %w", err)
		} else if err == nil && survivor == customerID {
			return customerID, nil
		}
		customerID = survivor
	}
}

// redactTicket removes a customer's part of a locked ticket, and returns the ids of its messages.
func (s *Service) redactTicket(ctx context.Context, tx *db.Tx, t *Ticket, customerID string, addresses []string) (all []string, err error) {
	if err := s.deleteTicketPending(ctx, tx, t, customerID); err != nil {
		return nil, err
	}
	p, err := s.loadCustomerPart(ctx, tx, t, customerID)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, m := range p.messages {
		all = append(all, m.ID)
		if !m.Details.Redacted {
			ids = append(ids, m.ID)
		}
	}
	own := t.Customer.ID == customerID
	renamed := own && (t.Subject != redactedSubject || t.ExternalID != "" || len(t.Metadata) > 0)
	if len(ids) == 0 && !renamed {
		return all, nil
	}
	if err := s.clearMessages(ctx, tx, t, ids); err != nil {
		return nil, err
	}
	if err := tx.Queue(ctx, "DELETE FROM ticket_drafts WHERE ticket_id = $1", t.ID); err != nil {
		return nil, fmt.Errorf("delete drafts: %w", err)
	}
	if len(addresses) > 0 {
		if err := tx.Queue(ctx, "DELETE FROM participants WHERE ticket_id = $1 AND email = ANY($2)", t.ID, addresses); err != nil {
			return nil, fmt.Errorf("remove participants: %w", err)
		}
	}
	if renamed {
		if err := s.redactTicketFields(ctx, tx, t); err != nil {
			return nil, err
		}
	}
	return all, s.enqueueTicketIndexing(ctx, tx, t)
}

// redactForwards clears forwards of messages in tickets that messages of some tickets were split off,
// or that were split off those.
func (s *Service) redactForwards(ctx context.Context, organizationID string, ticketIDs, messageIDs []string) error {
	if len(messageIDs) == 0 {
		return nil
	}
	known, next := slices.Clone(ticketIDs), ticketIDs
	for len(next) > 0 {
		near, err := db.All(ctx, s.db, scanText, `SELECT id FROM tickets WHERE linked_ticket_id = ANY($1) AND link_reason = $2
			UNION SELECT linked_ticket_id FROM tickets WHERE id = ANY($1) AND link_reason = $2
			UNION SELECT merged_into_id FROM tickets WHERE id = ANY($1) AND merged_into_id IS NOT NULL`, next, LinkSplit)
		if err != nil {
			return fmt.Errorf("find split tickets: %w", err)
		}
		next = slices.DeleteFunc(near, func(id string) bool { return slices.Contains(known, id) })
		known = append(known, next...)
	}
	for _, id := range known[len(ticketIDs):] {
		if err := s.db.Write(ctx, func(tx *db.Tx) error {
			t, err := lockTicket(ctx, tx, organizationID, id)
			if errors.Is(err, db.ErrNoRows) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("load ticket: %w", err)
			}
			copies, err := forwardsOf(ctx, tx, &t, messageIDs)
			if err != nil || len(copies) == 0 {
				return err
			}
			if err := s.clearMessages(ctx, tx, &t, copies); err != nil {
				return err
			}
			return s.enqueueTicketIndexing(ctx, tx, &t)
		}); err != nil {
			return fmt.Errorf("redact forwards: %w", err)
		}
	}
	return nil
}

// clearMessages removes the content, recipients and ids of messages of a ticket,
// and removes queued ones from the outbox; likewise the conversations about forwards of them, whose
// messages have copies and quote them.
func (s *Service) clearMessages(ctx context.Context, tx *db.Tx, t *Ticket, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	copies, err := forwardsOf(ctx, tx, t, ids)
	if err != nil {
		return err
	}
	ids = append(ids, copies...)
	waiting, err := db.All(ctx, tx, scanText, "DELETE FROM outbox WHERE ticket_id = $1 AND message_id = ANY($2) RETURNING message_id", t.ID, ids)
	if err != nil {
		return fmt.Errorf("empty outbox: %w", err)
	}
	if len(waiting) > 0 {
		if err := s.queue.DeleteTx(ctx, tx, waiting...); err != nil {
			return err
		}
		if err := tx.Queue(ctx, "UPDATE messages SET delivery_state = $3 WHERE ticket_id = $1 AND id = ANY($2)",
			t.ID, waiting, string(channel.ReceiptFailed)); err != nil {
			return fmt.Errorf("change delivery state: %w", err)
		}
	}
	if err := s.deleteFiles(ctx, tx, t, ids); err != nil {
		return err
	}
	for _, change := range []struct {
		statement string
		args      []any
	}{
		{`UPDATE messages SET body = '', stripped = NULL, html = NULL, external_id = NULL, delivery_error = NULL, details = $3,
			author_name = CASE WHEN author_type = 'customer' THEN '' ELSE author_name END WHERE ticket_id = $1 AND id = ANY($2)`,
			[]any{t.ID, ids, db.JSON(Details{Redacted: true})}},
		{"DELETE FROM message_ids WHERE ticket_id = $1 AND message_id = ANY($2)", []any{t.ID, ids}},
	} {
		if err := tx.Queue(ctx, change.statement, change.args...); err != nil {
			return fmt.Errorf("empty messages: %w", err)
		}
	}
	return nil
}

// forwardsOf returns the ids of the messages in conversations about forwards of some messages of a
// ticket.
func forwardsOf(ctx context.Context, q db.Querier, t *Ticket, ids []string) ([]string, error) {
	type forward struct {
		id, conversationID string
		details            Details
	}
	all, err := db.All(ctx, q, func(row db.Row) (f forward, err error) {
		err = row.Scan(&f.id, &f.conversationID, db.IntoJSON(&f.details))
		return f, err
	}, "SELECT id, conversation_id, details FROM messages WHERE ticket_id = $1 AND kind = $2", t.ID, KindForward)
	if err != nil {
		return nil, fmt.Errorf("find forwards: %w", err)
	}
	about := make(map[string]bool) // conversations
	for _, f := range all {
		if slices.ContainsFunc(f.details.Forwarded, func(id string) bool { return slices.Contains(ids, id) }) {
			about[f.conversationID] = true
		}
	}
	var found []string
	for _, f := range all {
		if about[f.conversationID] && !f.details.Redacted && !slices.Contains(ids, f.id) {
			found = append(found, f.id)
		}
	}
	return found, nil
}

// redactTicketFields removes a ticket's subject, external id and metadata.
func (s *Service) redactTicketFields(ctx context.Context, tx *db.Tx, t *Ticket) error {
	changes := make(map[string]event.Change)
	if t.Subject != redactedSubject {
		changes["subject"] = event.Change{From: nil, To: redactedSubject}
	}
	if t.ExternalID != "" {
		changes["external_id"] = event.Change{From: nil, To: nil}
	}
	if len(t.Metadata) > 0 {
		changes["metadata"] = event.Change{From: nil, To: map[string]string{}}
	}
	t.Subject, t.ExternalID, t.Metadata, t.UpdatedAt = redactedSubject, "", nil, tx.Now
	// The customer's own record may not be redacted yet.
	t.Customer = event.Customer{ID: t.Customer.ID}
	if err := tx.Queue(ctx, "UPDATE tickets SET subject = $2, external_id = NULL, metadata = NULL, updated_at = $3 WHERE id = $1",
		t.ID, t.Subject, t.UpdatedAt.UnixMicro()); err != nil {
		return fmt.Errorf("change ticket: %w", err)
	}
	if err := clearChanges(ctx, tx, t.ID, "subject", "external_id", "metadata"); err != nil {
		return err
	}
	if err := recordChange(ctx, tx, t, originOf(ctx), ChangeUpdated, changes); err != nil {
		return err
	}
	snapshot, err := s.ticketSnapshot(ctx, tx, t)
	if err != nil {
		return err
	}
	return s.events.EmitTx(ctx, tx, updateEvents(snapshot, t.OrganizationID, changes)...)
}

// redactMentions removes a customer's addresses from the recipients of other
// customers' mails, also of those that have not left, and the customer's answers to forwards. It returns the addresses as keys, and all contacts of the
// customer.
func (s *Service) redactMentions(ctx context.Context, organizationID, customerID string) (keys, known []string, err error) {
	c, err := s.Customer(ctx, s.db, organizationID, customerID)
	if isNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	known = slices.Concat(c.Emails, c.Phones)
	for _, i := range c.Identities {
		known = append(known, i.ExternalID)
	}
	for _, p := range emailPoints(organizationID, c.Emails) {
		keys = append(keys, p.value)
	}
	if len(keys) == 0 {
		return nil, known, nil
	}
	tickets, err := db.All(ctx, s.db, scanText, `SELECT DISTINCT p.ticket_id FROM participants p JOIN tickets t ON t.id = p.ticket_id
		WHERE p.email = ANY($1) AND t.organization_id = $2 ORDER BY p.ticket_id`, keys, organizationID)
	if err != nil {
		return nil, nil, fmt.Errorf("find tickets: %w", err)
	}
	for _, id := range tickets {
		if err := s.db.Write(ctx, func(tx *db.Tx) error {
			t, err := lockTicket(ctx, tx, organizationID, id)
			if err != nil {
				if errors.Is(err, db.ErrNoRows) {
					return nil
				}
				return fmt.Errorf("load ticket: %w", err)
			}
			return s.removeMentions(ctx, tx, &t, keys)
		}); err != nil {
			return nil, nil, fmt.Errorf("redact ticket: %w", err)
		}
	}
	return keys, known, s.redactPending(ctx, organizationID, keys)
}

// redactPending removes addresses, given by their keys, from the recipients of replies that have not
// left. One that is for such an address itself fails.
func (s *Service) redactPending(ctx context.Context, organizationID string, keys []string) error {
	list, err := db.All(ctx, s.db, scanPending, selectPending+`WHERE organization_id = $1 AND (recipient IS NOT NULL OR cc IS NOT NULL OR bcc IS NOT NULL OR dropped IS NOT NULL)`, organizationID)
	if err != nil {
		return fmt.Errorf("find pending replies: %w", err)
	}
	theirs := func(address string) bool { return slices.Contains(keys, emailKey(address)) }
	for i := range list {
		r := &list[i].recipients
		if !slices.ContainsFunc(slices.Concat([]string{r.to}, r.cc, r.bcc, r.drop), theirs) {
			continue
		}
		if err := s.db.Write(ctx, func(tx *db.Tx) error {
			p, t, err := lockPending(ctx, tx, organizationID, list[i].ID)
			if errors.Is(err, db.ErrNoRows) {
				return nil // sent or deleted
			}
			if err != nil {
				return err
			}
			if r := &p.recipients; theirs(r.to) {
				r.to, p.Delivery.State, p.Delivery.Error = "", channel.ReceiptFailed, "the data of its recipient was erased"
			}
			r := &p.recipients
			if err := tx.Queue(ctx, "UPDATE pending_replies SET recipient = $2, cc = $3, bcc = $4, dropped = $5, state = $6, error = $7 WHERE message_id = $1",
				p.ID, db.Text(r.to), addressList(slices.DeleteFunc(r.cc, theirs)), addressList(slices.DeleteFunc(r.bcc, theirs)),
				addressList(slices.DeleteFunc(r.drop, theirs)), string(p.Delivery.State), db.Text(p.Delivery.Error)); err != nil {
				return fmt.Errorf("change pending reply: %w", err)
			}
			s.notifyChanged(tx, organizationID, t.ID)
			return nil
		}); err != nil {
			return fmt.Errorf("redact pending reply: %w", err)
		}
	}
	return nil
}

// redactAnnotations removes the author from the annotations of a ticket's messages
// if it is one of ids.
func redactAnnotations(ctx context.Context, tx *db.Tx, ticketID string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	messages, err := db.All(ctx, tx, scanMessage, "SELECT "+messageColumns+` FROM messages WHERE ticket_id = $1 AND details LIKE '%"annotations"%'`, ticketID)
	if err != nil {
		return fmt.Errorf("load messages: %w", err)
	}
	for _, m := range messages {
		found := false
		for i := range m.Details.Annotations {
			if a := &m.Details.Annotations[i]; a.ByID != "" && slices.Contains(ids, a.ByID) {
				a.By, a.ByID, found = "", "", true
			}
		}
		if !found {
			continue
		}
		if err := tx.Queue(ctx, "UPDATE messages SET details = $3 WHERE ticket_id = $1 AND id = $2", ticketID, m.ID, db.JSON(m.Details)); err != nil {
			return fmt.Errorf("change message: %w", err)
		}
	}
	return nil
}

// removeMentions removes addresses, given by their keys, from the mails of a locked ticket, and clears
// answers from them to forwards: the author of those is nobody's customer.
func (s *Service) removeMentions(ctx context.Context, tx *db.Tx, t *Ticket, keys []string) error {
	ticketID := t.ID
	messages, err := db.All(ctx, tx, scanMessage, "SELECT "+messageColumns+" FROM messages WHERE ticket_id = $1 AND channel = 'email' AND details IS NOT NULL", ticketID)
	if err != nil {
		return fmt.Errorf("load messages: %w", err)
	}
	var answers []string
	theirs := func(a Address) bool { return slices.Contains(keys, emailKey(a.Email)) }
	for _, m := range messages {
		d := &m.Details
		if m.Author.Type == AuthorCustomer && m.Author.ID == "" && slices.Contains(keys, emailKey(d.Sender)) {
			answers = append(answers, m.ID)
			continue
		}
		before := len(d.To) + len(d.Cc) + len(d.Bcc)
		d.To, d.Cc, d.Bcc = slices.DeleteFunc(d.To, theirs), slices.DeleteFunc(d.Cc, theirs), slices.DeleteFunc(d.Bcc, theirs)
		changed := len(d.To)+len(d.Cc)+len(d.Bcc) < before
		if d.Recipient != nil && theirs(*d.Recipient) {
			d.Recipient, changed = &Address{}, true
		}
		if r := d.RecipientChanged; r != nil && (theirs(Address{Email: r.To}) || theirs(Address{Email: r.From})) {
			d.RecipientChanged, changed = nil, true
		}
		if !changed {
			continue
		}
		if err := tx.Queue(ctx, "UPDATE messages SET details = $3 WHERE ticket_id = $1 AND id = $2", ticketID, m.ID, db.JSON(d)); err != nil {
			return fmt.Errorf("change message: %w", err)
		}
	}
	if err := tx.Queue(ctx, "DELETE FROM participants WHERE ticket_id = $1 AND email = ANY($2)", ticketID, keys); err != nil {
		return fmt.Errorf("remove participants: %w", err)
	}
	if len(answers) == 0 {
		return nil
	}
	if err := s.clearMessages(ctx, tx, t, answers); err != nil {
		return err
	}
	return s.enqueueTicketIndexing(ctx, tx, t)
}

// withoutOldValues returns changes without the values before.
func withoutOldValues(changes map[string]event.Change) map[string]event.Change {
	for _, name := range slices.Collect(maps.Keys(changes)) {
		changes[name] = event.Change{From: nil, To: changes[name].To}
	}
	return changes
}
