package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// messageRef is a row of message_ids.
type messageRef struct {
	folded, exact                       string
	ticketID, conversationID, messageID string
	outbound                            bool
}

// messageRefs are rows by folded id.
type messageRefs map[string][]messageRef

// find returns the message with an id: an exact match, else the newest one that
// differs in case only.
func (s messageRefs) find(id string) (messageRef, bool) {
	if id == "" {
		return messageRef{}, false
	}
	exact, folded := boundedKey(id), foldID(id)
	var best messageRef
	for _, k := range s[folded] {
		if k.exact == exact {
			return k, true
		}
		if k.messageID > best.messageID {
			best = k
		}
	}
	return best, best.messageID != ""
}

// foldID returns the form in which ids are looked up.
func foldID(id string) string { return boundedKey(strings.ToLower(clean(id))) }

// maxIDs bounds the ids of one list that are looked up, from its end.
const maxIDs = 100

// findMessageIDs returns the messages with any of the ids in scopes.
func findMessageIDs(ctx context.Context, q db.Querier, scopes []string, lists ...[]string) (messageRefs, error) {
	var folded []string
	for _, list := range lists {
		for _, id := range list[max(0, len(list)-maxIDs):] {
			if id != "" {
				folded = append(folded, foldID(id))
			}
		}
	}
	if len(folded) == 0 {
		return nil, nil
	}
	slices.Sort(folded)
	rows, err := db.All(ctx, q, func(row db.Row) (k messageRef, err error) {
		err = row.Scan(&k.folded, &k.exact, &k.ticketID, &k.conversationID, &k.messageID, &k.outbound)
		return k, err
	}, `SELECT folded, exact, ticket_id, conversation_id, message_id, outbound FROM message_ids
		WHERE folded = ANY($1) AND scope = ANY($2)`, slices.Compact(folded), scopes)
	if err != nil {
		return nil, fmt.Errorf("look up message ids: %w", err)
	}
	found := make(messageRefs, len(rows))
	for _, k := range rows {
		found[k.folded] = append(found[k.folded], k)
	}
	return found, nil
}

// insertID records an id of m. If it is in use, the first message keeps it.
func insertID(ctx context.Context, tx *db.Tx, scope, id string, m *Message) error {
	if id == "" {
		return nil
	}
	if err := tx.Queue(ctx, `INSERT INTO message_ids (folded, scope, exact, ticket_id, conversation_id, message_id, outbound)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
		foldID(id), scope, boundedKey(id), m.TicketID, m.ConversationID, m.ID, m.Direction == DirectionOutbound); err != nil {
		return fmt.Errorf("write message id: %w", err)
	}
	return nil
}

// intakeReceipt updates the delivery state of an outbound message, or of all in a
// thread up to a time; then ids may name further messages.
func (s *Service) intakeReceipt(ctx context.Context, tx *db.Tx, in *InboundEvent, r *channel.Receipt) (Result, error) {
	ids, err := findMessageIDs(ctx, tx, []string{in.scope(), in.OrganizationID}, r.ExternalIDs)
	if err != nil {
		return Result{}, err
	}
	res := Result{Outcome: Recorded, Reason: "the receipt is for an unknown message"}
	if r.ThreadKey != "" {
		if res, err = s.applyThreadReceipt(ctx, tx, in, r); err != nil {
			return Result{}, err
		}
	}
	for _, id := range r.ExternalIDs {
		k, ok := ids.find(id)
		if !ok || !k.outbound {
			continue
		}
		one, err := s.applyReceipt(ctx, tx, in, k, r, nil)
		if err != nil || r.ThreadKey == "" {
			return one, err
		}
		if res.Outcome == Recorded {
			res = one
		}
	}
	return res, nil
}

// applyThreadReceipt applies a receipt to the messages sent in a thread until its
// time, if it advances their state. Messages queued or submitted later are not
// affected.
func (s *Service) applyThreadReceipt(ctx context.Context, tx *db.Tx, in *InboundEvent, r *channel.Receipt) (Result, error) {
	p, err := findThread(ctx, tx, threadKeys(r.ThreadKey, nil), in.scope())
	if errors.Is(err, db.ErrNoRows) {
		return Result{Outcome: Recorded, Reason: "the receipt is for an unknown thread"}, nil
	}
	if err != nil {
		return Result{}, fmt.Errorf("find thread: %w", err)
	}
	until := r.Until
	if until.IsZero() {
		until = in.ReceivedAt
	}
	type sent struct {
		id    string
		state channel.ReceiptState
	}
	list, err := db.All(ctx, tx, func(row db.Row) (m sent, err error) {
		err = row.Scan(&m.id, (*string)(&m.state))
		return m, err
	}, `SELECT m.id, m.delivery_state FROM messages m LEFT JOIN outbox o ON o.message_id = m.id
		WHERE m.ticket_id = $1 AND m.conversation_id = $2 AND m.direction = $3 AND m.delivery_state IS NOT NULL
			AND (o.message_id IS NULL AND coalesce(m.sent_at, m.created_at) <= $4 OR o.handed_at <= $4)
		ORDER BY m.seq, m.id`, p.ticket.ID, p.conversationID, DirectionOutbound, until.UnixMicro())
	if err != nil {
		return Result{}, fmt.Errorf("find sent messages: %w", err)
	}
	res := Result{
		Outcome: Recorded, Reason: "the receipt changes no message of the thread",
		PlacedBy: RuleReceipt, TicketID: p.ticket.ID, TicketNumber: p.ticket.Number, ConversationID: p.conversationID,
	}
	for _, m := range list {
		if !advances(m.state, r.State) {
			continue
		}
		k := messageRef{ticketID: p.ticket.ID, conversationID: p.conversationID, messageID: m.id, outbound: true}
		if _, err := s.applyReceipt(ctx, tx, in, k, r, nil); err != nil {
			return Result{}, err
		}
		res.Outcome, res.Reason, res.MessageID = ReceiptApplied, "", m.id
	}
	return res, nil
}

// receiptRank orders the states; a state only moves forward.
func receiptRank(s channel.ReceiptState) int {
	switch s {
	case channel.ReceiptQueued:
		return 1
	case channel.ReceiptSent:
		return 2
	case channel.ReceiptDelivered:
		return 3
	case channel.ReceiptRead:
		return 4
	default:
		return 0
	}
}

// advances reports whether a receipt changes the state: failed is final, and a
// delivered message cannot fail.
func advances(from, to channel.ReceiptState) bool {
	switch {
	case from == channel.ReceiptFailed || to == channel.ReceiptDelayed:
		return false
	case to == channel.ReceiptFailed:
		return receiptRank(from) < receiptRank(channel.ReceiptDelivered)
	default:
		return receiptRank(to) > receiptRank(from)
	}
}

// applyReceipt applies a receipt to the message ref. A failure, a delay or a
// receipt with a note adds a note to the ticket; a failure also notifies the
// assignee. For a receipt that is a mail itself, mail is the note's message.
func (s *Service) applyReceipt(ctx context.Context, tx *db.Tx, in *InboundEvent, k messageRef, r *channel.Receipt, mail *unsavedMessage) (Result, error) {
	var state channel.ReceiptState
	var chn string
	var details Details
	var authorID string
	if err := tx.QueryRow(ctx, "SELECT id, delivery_state, channel, details, author_id FROM messages WHERE ticket_id = $1 AND id = $2 FOR UPDATE", k.ticketID, k.messageID).
		Scan(new(string), db.IntoText((*string)(&state)), &chn, db.IntoJSON(&details), db.IntoText(&authorID)); err != nil {
		return Result{}, fmt.Errorf("load message: %w", err)
	}
	moved := advances(state, r.State)
	if moved {
		reason := ""
		if r.State == channel.ReceiptFailed {
			reason = line(r.Error, 500)
		}
		if err := tx.Queue(ctx, "UPDATE messages SET delivery_state = $3, delivery_error = $4 WHERE ticket_id = $1 AND id = $2",
			k.ticketID, k.messageID, string(r.State), db.Text(reason)); err != nil {
			return Result{}, fmt.Errorf("change delivery state: %w", err)
		}
	}
	if moved && r.State == channel.ReceiptFailed {
		if err := s.noticeFailure(ctx, tx, in.OrganizationID, k, authorID, r); err != nil {
			return Result{}, err
		}
	}
	if r.OptedOut {
		if err := tx.Queue(ctx, "UPDATE conversations SET opted_out_at = $3 WHERE ticket_id = $1 AND id = $2 AND opted_out_at IS NULL",
			k.ticketID, k.conversationID, tx.Now.UnixMicro()); err != nil {
			return Result{}, fmt.Errorf("record opt-out: %w", err)
		}
	}
	if r.Permanent && r.Recipient != "" {
		value := emailKey(r.Recipient)
		if !strings.Contains(value, "@") {
			value = threadValue(strings.TrimSpace(r.Recipient))
		}
		sentTo := slices.ContainsFunc(slices.Concat(details.To, details.Cc, details.Bcc), func(a Address) bool { return emailKey(a.Email) == value })
		// Any recipient of a mail can forge its bounce, so a bounce flags only addresses
		// of this conversation.
		if err := tx.Queue(ctx, `UPDATE contact_points SET undeliverable_at = $3
			WHERE value = $1 AND scope = $2 AND undeliverable_at IS NULL
				AND ($4 OR customer_id = (SELECT customer_id FROM conversations WHERE ticket_id = $5 AND id = $6))`,
			value, in.OrganizationID, tx.Now.UnixMicro(), sentTo, k.ticketID, k.conversationID); err != nil {
			return Result{}, fmt.Errorf("flag address: %w", err)
		}
	}
	res := Result{Outcome: ReceiptApplied, PlacedBy: RuleReceipt, TicketID: k.ticketID, ConversationID: k.conversationID, MessageID: k.messageID}
	note := moved && r.State == channel.ReceiptFailed || r.State == channel.ReceiptDelayed || r.Note != ""
	if !note {
		return res, nil
	}
	e := mail
	if e == nil {
		e = &unsavedMessage{Message: Message{ID: newID(), Direction: DirectionInbound, CreatedAt: in.ReceivedAt}}
	}
	e.TicketID, e.ConversationID, e.Channel = k.ticketID, k.conversationID, chn
	e.Author.Type, e.Kind, e.PlacedBy = AuthorSystem, KindNote, RuleReceipt
	e.Text, e.Stripped, e.HTML = noteText(r), "", "" // replaces the bounce's own text
	if err := s.addNote(ctx, tx, in.OrganizationID, &e.Message); err != nil {
		return Result{}, err
	}
	for _, id := range e.ids {
		if err := insertID(ctx, tx, in.OrganizationID, id, &e.Message); err != nil {
			return Result{}, err
		}
	}
	return res, nil
}

// noteText describes a receipt in a sentence.
func noteText(r *channel.Receipt) string {
	text := map[channel.ReceiptState]string{
		channel.ReceiptFailed:  "The message could not be delivered",
		channel.ReceiptDelayed: "The message is delayed",
		channel.ReceiptRead:    "The message was read",
	}[r.State]
	if text == "" {
		text = "The message was " + string(r.State)
	}
	var b strings.Builder
	b.WriteString(text)
	if r.Recipient != "" {
		b.WriteString(" (" + line(r.Recipient, maxKey) + ")")
	}
	if r.Error != "" {
		b.WriteString(": " + line(r.Error, 500))
	} else {
		b.WriteString(".")
	}
	if r.Note != "" {
		b.WriteString("\n\n" + clean(r.Note))
	}
	return b.String()
}
