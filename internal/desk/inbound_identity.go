package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// changeIdentity changes the identity of a thread's customer: the thread goes on under the
// new keys, and the old keys are free. If the new keys have a thread already, it
// stays separate, and a note says so: customers are never merged here.
func (s *Service) changeIdentity(ctx context.Context, tx *db.Tx, in *InboundEvent, r *channel.IdentityChange) (Result, error) {
	fresh := threadKeys("", r.ToKeys)
	if len(fresh) == 0 {
		return Result{Outcome: Recorded, Reason: "the event names no new number or id"}, nil
	}
	old := threadKeys(r.FromKey, []string{r.From.ID, r.From.Phone})
	gone := slices.DeleteFunc(threadKeys(r.FromKey, replacedKeys(r)), func(key string) bool { return slices.Contains(fresh, key) })
	p, err := findThread(ctx, tx, old, in.scope())
	if errors.Is(err, db.ErrNoRows) {
		return Result{Outcome: Recorded, Reason: "no customer has the old number or id"}, nil
	}
	if err != nil {
		return Result{}, fmt.Errorf("find thread: %w", err)
	}
	t := &p.ticket
	res := Result{
		Outcome: IdentityChanged, PlacedBy: RuleThreadKey, TicketID: t.ID, TicketNumber: t.Number, ConversationID: p.conversationID, CustomerID: p.customerID,
	}
	if len(gone) == 0 {
		res.Outcome = Duplicate
		return res, nil
	}
	note := Message{
		ID: newID(), TicketID: t.ID, ConversationID: p.conversationID, Direction: DirectionInbound, Author: event.Author{Type: AuthorSystem},
		Channel: in.Channel, Kind: KindNote, PlacedBy: RuleThreadKey, CreatedAt: in.ReceivedAt,
		ExternalID: boundedKey("relink:" + old[0] + ">" + fresh[0]),
	}
	number, err := s.otherThreadTicket(ctx, tx, in, fresh, &p)
	if err != nil {
		return Result{}, err
	}
	if number != 0 {
		note.Text = fmt.Sprintf("The customer's number or id is %s from now on, which has a conversation of its own in ticket #%d. The two stay separate.", displayIdentity(r.To, fresh[0]), number)
		return res, s.addNote(ctx, tx, in.OrganizationID, &note)
	}
	c, err := lockCustomer(ctx, tx, in.OrganizationID, p.customerID)
	if err != nil {
		return Result{}, fmt.Errorf("load customer: %w", err)
	}
	k := customerRef{Customer: *c.snapshot()}
	if err := s.releasePoints(ctx, tx, in, r, &k, gone, p.conversationID); err != nil {
		return Result{}, err
	}
	points := in.threadPoints(r.To, fresh)
	owners, err := claimPoints(ctx, tx, points, k.ID, t.ID, p.conversationID)
	if err != nil {
		return Result{}, err
	}
	k.mergeProfile(withoutForeign(r.To, points, owners, k.ID, ""))
	after, err := loadContacts(ctx, tx, k.ID, k.Email, k.Phone)
	if err != nil {
		return Result{}, err
	}
	changed := c
	changed.Name, changed.email, changed.phone = k.Name, k.Email, k.Phone
	changed.Emails, changed.Phones, changed.Identities = after.emails, after.phones, after.identities
	changes := make(map[string]event.Change)
	if c.Name != k.Name {
		changes["name"] = event.Change{From: c.Name, To: k.Name}
	}
	changed.changesFrom(&c, changes)
	if err := saveProfile(ctx, tx, in.OrganizationID, &k, changes); err != nil {
		return Result{}, err
	}
	if err := s.updateRecipients(ctx, tx, in, &p, gone, fresh[0]); err != nil {
		return Result{}, err
	}
	note.Text = fmt.Sprintf("The customer's number or id is %s from now on, instead of %s.", displayIdentity(r.To, fresh[0]), displayIdentity(r.From, old[0]))
	if err := s.addNote(ctx, tx, in.OrganizationID, &note); err != nil {
		return Result{}, err
	}
	return res, s.events.EmitTx(ctx, tx, k.events...)
}

// replacedKeys returns the old number and id that the change replaces.
func replacedKeys(r *channel.IdentityChange) []string {
	var list []string
	if r.To.ID != "" && r.To.ID != r.From.ID {
		list = append(list, r.From.ID)
	}
	if r.To.Phone != "" && phoneKey(r.To.Phone) != threadValue(r.From.Phone) {
		list = append(list, r.From.Phone)
	}
	return list
}

// displayIdentity returns a party's number or id for agents.
func displayIdentity(p channel.Party, key string) string {
	return line(cmp.Or(p.Phone, p.ID, key), maxKey)
}

// otherThreadTicket returns the ticket number of another thread with one of the
// keys; 0 if there is none.
func (s *Service) otherThreadTicket(ctx context.Context, tx *db.Tx, in *InboundEvent, keys []string, p *threadRef) (number int64, err error) {
	err = tx.QueryRow(ctx, `SELECT t.number FROM contact_points p JOIN tickets t ON t.id = p.ticket_id
		WHERE p.value = ANY($1) AND p.scope = $2 AND p.conversation_id <> $3 ORDER BY t.number LIMIT 1`,
		keys, in.scope(), p.conversationID).Scan(&number)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return 0, fmt.Errorf("look for a thread of the new number: %w", err)
	}
	return number, nil
}

// releasePoints removes replaced keys from a thread and its customer.
func (s *Service) releasePoints(ctx context.Context, tx *db.Tx, in *InboundEvent, r *channel.IdentityChange, k *customerRef, gone []string, conversationID string) error {
	if err := tx.Queue(ctx, `DELETE FROM contact_points WHERE value = ANY($1) AND scope = $2
		AND (conversation_id = $3 OR conversation_id IS NULL AND customer_id = $4)`, gone, in.scope(), conversationID, k.ID); err != nil {
		return fmt.Errorf("release contact points: %w", err)
	}
	if r.From.Phone == "" || r.To.Phone == "" {
		return nil
	}
	key := phoneKey(r.From.Phone)
	if key == phoneKey(r.To.Phone) {
		return nil
	}
	if err := tx.Queue(ctx, "DELETE FROM contact_points WHERE value = $1 AND scope = $2 AND customer_id = $3", key, in.OrganizationID, k.ID); err != nil {
		return fmt.Errorf("release number: %w", err)
	}
	if k.Phone != "" && phoneKey(k.Phone) == key {
		k.Phone = ""
	}
	return nil
}

// updateRecipients makes messages to a customer's replaced keys go to the new one,
// also in conversations that the thread has left.
func (s *Service) updateRecipients(ctx context.Context, tx *db.Tx, in *InboundEvent, p *threadRef, gone []string, key string) error {
	conversations, err := db.All(ctx, tx, scanConversation, selectConversation+`WHERE c.customer_id = $1 AND c.connection_id = $2 AND c.thread_key = ANY($3)
			AND c.ticket_id IN (SELECT id FROM tickets WHERE customer_id = $1 UNION SELECT $4)`,
		p.customerID, in.ConnectionID, gone, p.ticket.ID)
	if err != nil {
		return fmt.Errorf("find conversations: %w", err)
	}
	for i := range conversations {
		c := &conversations[i]
		c.ThreadKey = key
		if err := tx.Queue(ctx, "UPDATE conversations SET thread_key = $3 WHERE ticket_id = $1 AND id = $2", c.TicketID, c.ID, key); err != nil {
			return fmt.Errorf("change thread key: %w", err)
		}
		to, err := s.findRecipient(ctx, tx, in.OrganizationID, c)
		if err != nil {
			return err
		}
		recipient, id := outboxRecipient(to)
		// A message that was submitted is looked up by its former recipient.
		if err := tx.Queue(ctx, `UPDATE outbox SET recipient = $3, recipient_id = $4
			WHERE ticket_id = $1 AND conversation_id = $2 AND handed_at IS NULL`, c.TicketID, c.ID, recipient, id); err != nil {
			return fmt.Errorf("change recipient: %w", err)
		}
	}
	return nil
}
