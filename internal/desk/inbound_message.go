package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// maxThreadKeys bounds the keys of a message's thread; further ones are ignored.
const maxThreadKeys = 4

// threadKeys returns the distinct keys of a thread in comparable form, the most
// significant first.
func threadKeys(first string, others []string) []string {
	var keys []string
	for _, key := range append([]string{first}, others...) {
		if key = threadValue(key); key != "" && !slices.Contains(keys, key) && len(keys) < maxThreadKeys {
			keys = append(keys, key)
		}
	}
	return keys
}

// threadPoints returns the contact points of a message in a thread: its party's and
// its keys', in the common locking order: e-mail, phone, then the connection's own
// by value.
func (in *InboundEvent) threadPoints(p channel.Party, keys []string) []contactPoint {
	points, scope := in.contactPoints(p), in.scope()
	for _, key := range keys {
		i := slices.IndexFunc(points, func(p contactPoint) bool { return p.value == key && p.scope == scope })
		if i < 0 {
			i = len(points)
			pt := contactPoint{value: key, scope: scope, kind: pointThread}
			if in.Channel == channelVoice {
				pt.display = p.Phone // the thread is a call, the number the caller's
			}
			points = append(points, pt)
		}
		points[i].thread = true
	}
	if i := slices.IndexFunc(points, func(p contactPoint) bool { return p.scope == scope }); i >= 0 {
		slices.SortFunc(points[i:], func(a, b contactPoint) int { return strings.Compare(a.value, b.value) })
	}
	return points
}

// isPersonal reports whether the number or id of p is a key of the thread, so that
// it has one person rather than a group.
func isPersonal(p channel.Party, keys []string) bool {
	return p.Phone != "" && slices.Contains(keys, threadValue(p.Phone)) || p.ID != "" && slices.Contains(keys, boundedKey(p.ID))
}

// hasProviderIDs reports whether later events may reference messages on this
// channel by id: annotations, or repetitions after the thread moved.
func hasProviderIDs(channel string) bool { return channel != channelSMS && channel != channelEmail }

// intakeThreaded places a message by the keys of its thread.
func (s *Service) intakeThreaded(ctx context.Context, tx *db.Tx, in *InboundEvent, m *channel.Message) (Result, error) {
	e := newInboundMessage(in, m)
	e.PlacedBy, e.optOut, e.optIn = RuleThreadKey, m.OptOut, m.OptIn
	party := m.From
	if m.Outbound {
		if len(m.To) == 0 {
			return Result{}, errors.New("desk: an outbound message needs a recipient")
		}
		party = m.To[0]
		e.byAgent(event.Person{Name: line(m.From.Name, maxName)})
	}
	keys, scope := threadKeys(m.ThreadKey, m.OtherKeys), in.scope()

	p, err := findThread(ctx, tx, keys, scope)
	if errors.Is(err, db.ErrNoRows) {
		return s.beginThread(ctx, tx, in, m, e, party, keys)
	}
	if err != nil {
		return Result{}, fmt.Errorf("find thread: %w", err)
	}
	there, known, err := s.findDuplicate(ctx, tx, in, e, &p)
	if err != nil {
		return Result{}, err
	}
	if known {
		r := e.result(Duplicate, &Ticket{ID: there.ticketID})
		r.ConversationID, r.MessageID = there.conversationID, there.messageID
		return r, nil
	}
	p, next, err := s.leaveClosedTicket(ctx, tx, in, m.StaleAfter, keys, p)
	if err != nil {
		return Result{}, err
	}
	k, err := s.threadCustomer(ctx, tx, in, m, party, keys, &p)
	if err != nil {
		return Result{}, err
	}
	if !m.Outbound {
		e.byCustomer(k)
	}
	e.customer = k
	if next != nil {
		e.PlacedBy = RuleNone
		return s.startTicket(ctx, tx, in, &next.place, next.conversation, subject(m, party), e)
	}
	return s.appendMessage(ctx, tx, in, &p, e)
}

// findDuplicate finds the message that e repeats in another conversation, or the
// queued message reported by e: the provider's event may arrive before the result
// of sending is recorded.
func (s *Service) findDuplicate(ctx context.Context, tx *db.Tx, in *InboundEvent, e *unsavedMessage, p *threadRef) (messageRef, bool, error) {
	if e.ExternalID == "" {
		return messageRef{}, false, nil
	}
	if hasProviderIDs(in.Channel) || !p.ticket.movedAt.IsZero() {
		ids, err := findMessageIDs(ctx, tx, []string{in.scope()}, []string{e.ExternalID})
		if err != nil {
			return messageRef{}, false, err
		}
		if k, ok := ids.find(e.ExternalID); ok && k.exact == e.ExternalID && (hasProviderIDs(in.Channel) || k.conversationID != p.conversationID) {
			return k, true, nil
		}
	}
	if e.Direction != DirectionOutbound {
		return messageRef{}, false, nil
	}
	k := messageRef{ticketID: p.ticket.ID, conversationID: p.conversationID, outbound: true}
	err := tx.QueryRow(ctx, `SELECT m.id FROM outbox o JOIN messages m ON m.ticket_id = o.ticket_id AND m.id = o.message_id
		WHERE o.ticket_id = $1 AND o.conversation_id = $2 AND o.handed_at IS NOT NULL AND m.body = $3 ORDER BY m.seq, m.id LIMIT 1`,
		k.ticketID, k.conversationID, e.Text).Scan(&k.messageID)
	if errors.Is(err, db.ErrNoRows) && in.Channel == channelVoice {
		// Replies to calls are text messages, in a thread of their own.
		err = tx.QueryRow(ctx, `SELECT m.id, o.ticket_id, o.conversation_id FROM outbox o
			JOIN messages m ON m.ticket_id = o.ticket_id AND m.id = o.message_id
			WHERE o.connection_id = $1 AND o.recipient = $2 AND o.handed_at IS NOT NULL AND m.body = $3 ORDER BY m.seq, m.id LIMIT 1`,
			in.ConnectionID, in.Event.Message.To[0].Phone, e.Text).Scan(&k.messageID, &k.ticketID, &k.conversationID)
	}
	if errors.Is(err, db.ErrNoRows) {
		return messageRef{}, false, nil
	}
	if err != nil {
		return messageRef{}, false, fmt.Errorf("find queued message: %w", err)
	}
	return k, true, insertID(ctx, tx, in.scope(), e.ExternalID, &Message{
		ID: k.messageID, TicketID: k.ticketID, ConversationID: k.conversationID, Direction: DirectionOutbound,
	})
}

// beginThread starts a ticket with the first message of a thread, or joins the
// thread of a simultaneous first message.
func (s *Service) beginThread(ctx context.Context, tx *db.Tx, in *InboundEvent, m *channel.Message, e *unsavedMessage, party channel.Party, keys []string) (Result, error) {
	points := in.threadPoints(party, keys)
	p := threadRef{ticket: Ticket{ID: newID()}, conversationID: newID()}
	customerID := newID()
	owners, err := claimPoints(ctx, tx, points, customerID, p.ticket.ID, p.conversationID)
	if err != nil {
		return Result{}, err
	}
	k, err := s.resolveCustomer(ctx, tx, in, party, customerID, points, owners)
	if err != nil {
		return Result{}, err
	}
	if !m.Outbound {
		e.byCustomer(k)
	}
	e.customer = k
	ours := p.conversationID
	var theirs []string
	for _, key := range keys {
		i := slices.IndexFunc(points, func(p contactPoint) bool { return p.thread && p.value == key })
		if owners[i].conversationID != ours {
			theirs = append(theirs, key)
		}
	}
	if theirs == nil {
		e.PlacedBy = RuleNone
		return s.startTicket(ctx, tx, in, &p, Conversation{ThreadKey: keys[0]}, subject(m, party), e)
	}
	if p, err = findThread(ctx, tx, theirs, in.scope()); err != nil {
		return Result{}, fmt.Errorf("find new thread: %w", err)
	}
	if len(theirs) < len(keys) {
		if _, err := moveKeys(ctx, tx, ours, &p); err != nil {
			return Result{}, err
		}
	}
	return s.appendMessage(ctx, tx, in, &p, e)
}

// moveKeys moves the keys of a conversation to another one, and reports whether it
// had any.
func moveKeys(ctx context.Context, tx *db.Tx, conversationID string, to *threadRef) (bool, error) {
	n, err := tx.Exec(ctx, "UPDATE contact_points SET ticket_id = $2, conversation_id = $3 WHERE conversation_id = $1",
		conversationID, to.ticket.ID, to.conversationID)
	if err != nil {
		return false, fmt.Errorf("move thread: %w", err)
	}
	return n > 0, nil
}

// followUp is the new ticket of a thread that left a closed one.
type followUp struct {
	place        threadRef
	conversation Conversation
}

// leaveClosedTicket moves a thread to a new ticket if its ticket has been closed
// for longer than after; 0 means never. Otherwise it returns the thread's present
// destination. Of two simultaneous calls the second one returns the first one's
// ticket.
func (s *Service) leaveClosedTicket(ctx context.Context, tx *db.Tx, in *InboundEvent, after time.Duration, keys []string, p threadRef) (threadRef, *followUp, error) {
	for {
		t := &p.ticket
		since := t.closedAt
		if since.IsZero() {
			since = t.ResolvedAt
		}
		if after == 0 || t.Status != StatusClosed || in.ReceivedAt.Sub(since) <= after {
			return p, nil, nil
		}
		old, err := db.One(ctx, tx, scanConversation, selectConversation+"WHERE c.ticket_id = $1 AND c.id = $2", t.ID, p.conversationID)
		if err != nil {
			return threadRef{}, nil, fmt.Errorf("load conversation: %w", err)
		}
		next := followUp{
			threadRef{ticket: Ticket{ID: newID(), LinkedTicketID: t.ID, LinkReason: LinkClosed}, conversationID: newID()},
			Conversation{ThreadKey: old.ThreadKey, OptedOutAt: old.OptedOutAt},
		}
		first, err := moveKeys(ctx, tx, p.conversationID, &next.place)
		if err != nil {
			return threadRef{}, nil, err
		}
		if first {
			return p, &next, nil
		}
		if p, err = findThread(ctx, tx, keys, in.scope()); err != nil {
			return threadRef{}, nil, fmt.Errorf("find continued thread: %w", err)
		}
	}
}

// threadCustomer returns the customer of a message in a thread. For a personal
// thread it is the conversation's customer, linked to all keys.
func (s *Service) threadCustomer(ctx context.Context, tx *db.Tx, in *InboundEvent, m *channel.Message, party channel.Party, keys []string, p *threadRef) (customerRef, error) {
	one := isPersonal(party, keys)
	if !one && !m.Outbound && len(in.contactPoints(party)) > 0 {
		if len(keys) > 1 {
			if _, err := claimPoints(ctx, tx, in.threadPoints(channel.Party{}, keys), "", p.ticket.ID, p.conversationID); err != nil {
				return customerRef{}, err
			}
		}
		return s.findOrCreateCustomer(ctx, tx, in, party)
	}
	k := customerRef{Customer: p.ticket.Customer}
	if p.customerID != k.ID {
		var err error
		if k, err = loadCustomer(ctx, tx, p.customerID); err != nil {
			return customerRef{}, err
		}
	}
	var err error
	if one && len(keys) > 1 {
		err = s.addIdentities(ctx, tx, in, &k, party, keys, p)
	} else if k.Name == "" && party.Name != "" {
		err = updateProfile(ctx, tx, in.OrganizationID, &k, channel.Party{Name: party.Name})
	}
	if err == nil && p.customerID == p.ticket.Customer.ID {
		p.ticket.Customer = k.Customer
	}
	return k, err
}

// addIdentities links every free contact point of party and keys to the thread and
// its customer. Points of other customers are skipped.
func (s *Service) addIdentities(ctx context.Context, tx *db.Tx, in *InboundEvent, k *customerRef, party channel.Party, keys []string, p *threadRef) error {
	points := in.threadPoints(party, keys)
	values := make([]string, len(points))
	for i, pt := range points {
		values[i] = pt.value
	}
	type has struct {
		value, scope             string
		customerID, conversation string
	}
	found, err := db.All(ctx, tx, func(row db.Row) (h has, err error) {
		err = row.Scan(&h.value, &h.scope, db.IntoText(&h.customerID), db.IntoText(&h.conversation))
		return h, err
	}, "SELECT value, scope, customer_id, conversation_id FROM contact_points WHERE value = ANY($1) AND scope IN ($2, $3)",
		values, in.OrganizationID, in.scope())
	if err != nil {
		return fmt.Errorf("look up contact points: %w", err)
	}
	owners := make([]pointOwner, len(points))
	free := false
	for i, pt := range points {
		for _, h := range found {
			if h.value == pt.value && h.scope == pt.scope {
				owners[i] = pointOwner{h.customerID, h.conversation}
			}
		}
		free = free || pt.customer && owners[i].customerID == "" || pt.thread && owners[i].conversationID == ""
	}
	if !free {
		return updateProfile(ctx, tx, in.OrganizationID, k, withoutForeign(party, points, owners, k.ID, ""))
	}
	before, err := loadContacts(ctx, tx, k.ID, k.Email, k.Phone)
	if err != nil {
		return err
	}
	if owners, err = claimPoints(ctx, tx, points, k.ID, p.ticket.ID, p.conversationID); err != nil {
		return err
	}
	changes := k.mergeProfile(withoutForeign(party, points, owners, k.ID, ""))
	after, err := loadContacts(ctx, tx, k.ID, k.Email, k.Phone)
	if err != nil {
		return err
	}
	before.changes(&after, changes)
	return saveProfile(ctx, tx, in.OrganizationID, k, changes)
}

// findThread finds the thread of the first key that has one, and locks its ticket;
// [db.ErrNoRows] if none has.
func findThread(ctx context.Context, tx *db.Tx, keys []string, scope string) (threadRef, error) {
	for _, key := range keys {
		for {
			p, err := readThread(ctx, tx, key, scope)
			if errors.Is(err, db.ErrNoRows) {
				break
			}
			if err != nil {
				return threadRef{}, err
			}
			// The ticket may have been merged meanwhile.
			if ok, err := p.isCurrent(ctx, tx); err != nil || ok {
				return p, err
			}
		}
	}
	return threadRef{}, db.ErrNoRows
}

func readThread(ctx context.Context, tx *db.Tx, key, scope string) (threadRef, error) {
	var p threadRef
	err := tx.QueryRow(ctx, "SELECT "+ticketColumns+`, c.id, c.customer_id
		FROM contact_points p
		JOIN tickets t ON t.id = p.ticket_id
		JOIN conversations c ON c.ticket_id = p.ticket_id AND c.id = p.conversation_id
		JOIN customers u ON u.id = t.customer_id
		WHERE p.value = $1 AND p.scope = $2 FOR UPDATE OF t`, key, scope).
		Scan(ticketFields(&p.ticket, &p.conversationID, &p.customerID)...)
	return p, err
}

// HasThread reports whether a sender has a thread, and so a ticket, on a
// connection.
func (s *Service) HasThread(ctx context.Context, q db.Querier, connectionID, sender string) (bool, error) {
	var n int
	err := q.QueryRow(ctx, "SELECT count(*) FROM contact_points WHERE value = $1 AND scope = $2 AND conversation_id IS NOT NULL",
		threadValue(sender), connectionID).Scan(&n)
	return n > 0, err
}

// subject returns the subject of a ticket from a channel without subjects.
func subject(m *channel.Message, p channel.Party) string {
	if text := line(m.Subject, maxSubject); text != "" {
		return text
	}
	if text := title(m.Text); text != "" {
		return text
	}
	for _, who := range []string{p.Name, p.Phone, p.Email, p.ID} {
		if who != "" {
			return "Message from " + line(who, 80)
		}
	}
	return "Message"
}

// title returns the first line of a text, as a subject.
func title(text string) string {
	for text := range strings.SplitSeq(text[:min(len(text), 1000)], "\n") {
		if text = line(text, 80); text != "" {
			return text
		}
	}
	return ""
}
