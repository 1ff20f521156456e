package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// OutboxMessage is a message in the outbox.
type OutboxMessage struct {
	channel.Outgoing // without the fields set by [Dispatcher.PrepareSend], except MessageID
	OrganizationID   string
	ConversationID   string
	ConnectionID     string
	Channel          string
	State            channel.ReceiptState // a receipt may arrive before the provider's response
	Attempts         int                  // failed ones
	SubmittedAt      time.Time            // the last submission with an unknown outcome; zero: none
	UncertainSince   time.Time            // the first of consecutive such submissions
	SubmittedVia     string               // the route of the last submission
	Fence            int64                // of the claim that handles the message: see [queue.Job.Fence]

	blobs []string // keys of the files
}

// ErrRecalled reports that a message is not in the outbox as it was read: its
// ticket was deleted, or another process sends it.
var ErrRecalled = errors.New("desk: the message left the outbox, or another process sends it")

// OutboxMessage returns a message of the outbox; [db.ErrNoRows] if it is not there.
func (s *Service) OutboxMessage(ctx context.Context, q db.Querier, messageID string) (OutboxMessage, error) {
	var d Details
	var sign signature
	w, err := db.One(ctx, q, func(row db.Row) (w OutboxMessage, err error) {
		var html, externalID, recipient, recipientID string
		err = row.Scan(&w.ID, &w.OrganizationID, &w.TicketID, &w.ConversationID, &w.ConnectionID, &recipient, &w.Attempts, db.IntoTime(&w.SubmittedAt),
			&w.Channel, &w.Text, db.IntoText(&html), db.IntoText(&externalID), db.IntoText((*string)(&w.State)), db.IntoJSON(&d), &w.TicketNumber,
			db.IntoText(&recipientID), db.IntoText(&w.ThreadKey), db.IntoTime(&w.UncertainSince), db.IntoText(&w.SubmittedVia),
			db.IntoText(&sign.text), db.IntoText(&sign.html))
		w.HTML = html
		w.Automatic = d.Automatic
		if w.Channel == channelEmail {
			w.MessageID, w.ThreadKey = externalID, ""
			d.fillOutgoing(&w.Outgoing)
		} else if w.To = recipientParty(recipient); recipientID != "" {
			w.To.ID = recipientID
		}
		return w, err
	}, `SELECT o.message_id, o.organization_id, o.ticket_id, o.conversation_id, o.connection_id, o.recipient, o.attempts, o.handed_at,
			m.channel, m.body, m.html, m.external_id, m.delivery_state, m.details, t.number,
			o.recipient_id, (SELECT c.thread_key FROM conversations c WHERE c.ticket_id = o.ticket_id AND c.id = o.conversation_id), o.doubted_at, o.handed_by,
			o.signature, o.signature_html
		FROM outbox o
		JOIN messages m ON m.ticket_id = o.ticket_id AND m.id = o.message_id
		JOIN tickets t ON t.id = o.ticket_id
		WHERE o.message_id = $1`, messageID)
	if err != nil {
		return w, err
	}
	if err := loadLastInbound(ctx, q, w.TicketID, w.ConversationID, &w.Outgoing); err != nil {
		return w, err
	}
	attachments, err := db.All(ctx, q, s.scanAttachment, "SELECT "+attachmentColumns+` FROM attachments
		WHERE ticket_id = (SELECT ticket_id FROM outbox WHERE message_id = $1) AND message_id = $1 ORDER BY id`, w.ID)
	if err != nil {
		return w, fmt.Errorf("load attachments: %w", err)
	}
	since := w.SubmittedAt
	if since.IsZero() {
		since = s.db.Now()
	}
	w.Files = s.outgoingFiles(w.Channel, attachments, since)
	for _, a := range attachments {
		w.blobs = append(w.blobs, a.BlobKey)
	}
	if w.Channel == channelEmail {
		if d.Markdown {
			w.Text = plainText(w.Text, attachments, true)
		}
		inlinePictures(&w.Outgoing, attachments)
		sign.appendTo(&w.Outgoing)
	}
	return w, nil
}

// SendBlock returns the reason why a message must not be sent: its customer has
// opted out, or was deleted, since it was written. Empty: it may be sent.
func (s *Service) SendBlock(ctx context.Context, q db.Querier, w *OutboxMessage) (string, error) {
	c, err := db.One(ctx, q, scanConversation, selectConversation+"WHERE c.ticket_id = $1 AND c.id = $2", w.TicketID, w.ConversationID)
	if errors.Is(err, db.ErrNoRows) {
		return "", ErrRecalled // moved or deleted meanwhile
	}
	if err != nil {
		return "", fmt.Errorf("load conversation: %w", err)
	}
	barred, err := sendBlock(ctx, q, w.OrganizationID, &c)
	if err != nil || barred == nil {
		return "", err
	}
	return barred.Message, nil
}

// File returns the blob key of the i-th file.
func (w *OutboxMessage) File(i int) string { return w.blobs[i] }

func (w *OutboxMessage) scope() string {
	return threadScope(w.OrganizationID, w.ConnectionID, w.Channel)
}

// RecordSubmissionTx records, ahead of the request, that a message is submitted by a
// route: until RecordSent, RecordFailure or RecordRetry, its outcome is unknown.
// Error: [ErrRecalled] if another process has the message, or a later claim had it.
func (s *Service) RecordSubmissionTx(ctx context.Context, tx *db.Tx, w *OutboxMessage, by string) error {
	at := tx.Now.UTC().Truncate(time.Microsecond)
	n, err := tx.Exec(ctx, "UPDATE outbox SET handed_at = $2, doubted_at = coalesce(doubted_at, $2), handed_by = $5, fence = $6 WHERE message_id = $1 AND attempts = $3 AND coalesce(handed_at, 0) = $4 AND fence <= $6",
		w.ID, at.UnixMicro(), w.Attempts, max(w.SubmittedAt.UnixMicro(), 0), by, w.Fence)
	if err != nil {
		return fmt.Errorf("record submission: %w", err)
	}
	if n == 0 {
		return ErrRecalled
	}
	tx.AfterCommit(func() {
		w.SubmittedAt, w.SubmittedVia = at, by
		if w.UncertainSince.IsZero() {
			w.UncertainSince = at
		}
	})
	return s.claimReplyThread(ctx, tx, w)
}

// RecordSentTx records that the provider has accepted a message, and the ids it
// assigned.
func (s *Service) RecordSentTx(ctx context.Context, tx *db.Tx, w *OutboxMessage, externalIDs []string) error {
	if err := s.removeFromOutbox(ctx, tx, w); err != nil {
		return err
	}
	if err := tx.Queue(ctx, `UPDATE messages SET delivery_state = CASE WHEN delivery_state = $4 THEN $3 ELSE delivery_state END,
			delivery_error = CASE WHEN delivery_state = $4 THEN NULL ELSE delivery_error END, sent_at = $5 WHERE ticket_id = $1 AND id = $2`,
		w.TicketID, w.ID, string(channel.ReceiptSent), string(channel.ReceiptQueued), db.Time(w.SubmittedAt)); err != nil {
		return fmt.Errorf("change delivery state: %w", err)
	}
	for i, id := range externalIDs {
		if err := insertID(ctx, tx, w.scope(), id, w.message()); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		if err := tx.Queue(ctx, `UPDATE messages SET external_id = $3 WHERE ticket_id = $1 AND id = $2 AND external_id IS NULL
			AND NOT EXISTS (SELECT 1 FROM messages o WHERE o.conversation_id = $4 AND o.external_id = $3)`,
			w.TicketID, w.ID, boundedKey(id), w.ConversationID); err != nil {
			return fmt.Errorf("write external id: %w", err)
		}
	}
	return nil
}

// RecordFailureTx records that a message has failed permanently, as v describes, and
// adds a note.
func (s *Service) RecordFailureTx(ctx context.Context, tx *db.Tx, w *OutboxMessage, v channel.SendResult) error {
	if err := s.removeFromOutbox(ctx, tx, w); err != nil {
		return err
	}
	for _, id := range v.ExternalIDs {
		if err := insertID(ctx, tx, w.scope(), id, w.message()); err != nil {
			return err
		}
	}
	in := &InboundEvent{OrganizationID: w.OrganizationID, ConnectionID: w.ConnectionID, Channel: w.Channel, ReceivedAt: tx.Now}
	k := messageRef{ticketID: w.TicketID, conversationID: w.ConversationID, messageID: w.ID, outbound: true}
	_, err := s.applyReceipt(ctx, tx, in, k, &channel.Receipt{
		State: channel.ReceiptFailed, Error: v.Reason, Recipient: v.Recipient, Permanent: v.Unreachable, OptedOut: v.OptedOut,
	}, nil)
	return err
}

// submissionBefore restores the state before a submission that did not take place: an
// earlier one may have.
const submissionBefore = "CASE WHEN doubted_at < handed_at THEN doubted_at END"

// RecordRetryTx records a failed attempt that will be repeated, and shows the reason.
// unclear reports that the provider may have accepted the message.
func (s *Service) RecordRetryTx(ctx context.Context, tx *db.Tx, w *OutboxMessage, reason string, unclear bool) error {
	n, err := tx.Exec(ctx, `UPDATE outbox SET attempts = attempts + 1, handed_at = CASE WHEN $3 THEN handed_at ELSE `+submissionBefore+` END,
			doubted_at = CASE WHEN $3 THEN doubted_at ELSE `+submissionBefore+` END WHERE message_id = $1 AND attempts = $2`,
		w.ID, w.Attempts, unclear)
	if err != nil {
		return fmt.Errorf("record attempt: %w", err)
	}
	if n == 0 {
		return ErrRecalled
	}
	return s.SetDelayReasonTx(ctx, tx, w, reason)
}

// RemoveCcTx removes a copy to an address that the mail server refuses permanently,
// and adds a note, so that the other recipients get the mail. The message was not
// submitted.
func (s *Service) RemoveCcTx(ctx context.Context, tx *db.Tx, w *OutboxMessage, address, reason string) error {
	err := tx.QueryRow(ctx, "SELECT ticket_id, conversation_id FROM outbox WHERE message_id = $1 FOR UPDATE", w.ID).Scan(&w.TicketID, &w.ConversationID)
	if errors.Is(err, db.ErrNoRows) {
		return ErrRecalled
	}
	if err != nil {
		return fmt.Errorf("find message: %w", err)
	}
	var d Details
	if err := tx.QueryRow(ctx, "SELECT details FROM messages WHERE ticket_id = $1 AND id = $2 FOR UPDATE", w.TicketID, w.ID).Scan(db.IntoJSON(&d)); err != nil {
		return fmt.Errorf("load message: %w", err)
	}
	key := emailKey(address)
	refused := func(a Address) bool { return emailKey(a.Email) == key }
	d.Cc, d.Bcc = slices.DeleteFunc(d.Cc, refused), slices.DeleteFunc(d.Bcc, refused)
	if err := tx.Queue(ctx, "UPDATE messages SET details = $3 WHERE ticket_id = $1 AND id = $2", w.TicketID, w.ID, db.JSON(d)); err != nil {
		return fmt.Errorf("remove copy: %w", err)
	}
	w.Cc, w.Bcc = nil, nil
	d.fillOutgoing(&w.Outgoing)
	m := Message{
		ID: newID(), TicketID: w.TicketID, ConversationID: w.ConversationID, Direction: DirectionInbound, Author: event.Author{Type: AuthorSystem},
		Channel: w.Channel, Kind: KindNote, PlacedBy: RuleReceipt, CreatedAt: tx.Now,
		Text: fmt.Sprintf("No copy was sent to %s: %s", line(address, maxKey), line(reason, 500)),
	}
	s.notifyChanged(tx, w.OrganizationID, w.TicketID)
	return s.addNote(ctx, tx, w.OrganizationID, &m)
}

// CancelSubmissionTx records that a submission did not take place, unless a later claim
// has the message.
func (s *Service) CancelSubmissionTx(ctx context.Context, tx *db.Tx, w *OutboxMessage) error {
	n, err := tx.Exec(ctx, "UPDATE outbox SET handed_at = "+submissionBefore+", doubted_at = "+submissionBefore+" WHERE message_id = $1 AND attempts = $2 AND handed_at = $3 AND fence <= $4",
		w.ID, w.Attempts, w.SubmittedAt.UnixMicro(), w.Fence)
	if err == nil && n == 0 {
		return ErrRecalled
	}
	return err
}

// SetDelayReasonTx shows the reason for a delay beside a queued message.
func (s *Service) SetDelayReasonTx(ctx context.Context, tx *db.Tx, w *OutboxMessage, reason string) error {
	if err := tx.Queue(ctx, "UPDATE messages SET delivery_error = $2 WHERE id = $1 AND delivery_state = $3 AND ticket_id = (SELECT ticket_id FROM outbox WHERE message_id = $1)",
		w.ID, db.Text(line(reason, 500)), string(channel.ReceiptQueued)); err != nil {
		return fmt.Errorf("set delay reason: %w", err)
	}
	s.notifyChanged(tx, w.OrganizationID, w.TicketID)
	return nil
}

// removeFromOutbox removes a message from the outbox, and updates its ticket, which
// may have been merged since w was read.
func (s *Service) removeFromOutbox(ctx context.Context, tx *db.Tx, w *OutboxMessage) error {
	err := tx.QueryRow(ctx, "DELETE FROM outbox WHERE message_id = $1 RETURNING ticket_id, conversation_id", w.ID).
		Scan(&w.TicketID, &w.ConversationID)
	if errors.Is(err, db.ErrNoRows) {
		return ErrRecalled
	}
	if err != nil {
		return fmt.Errorf("remove from outbox: %w", err)
	}
	s.notifyChanged(tx, w.OrganizationID, w.TicketID)
	return nil
}

// message returns the part of w's message that ids refer to.
func (w *OutboxMessage) message() *Message {
	return &Message{ID: w.ID, TicketID: w.TicketID, ConversationID: w.ConversationID, Direction: DirectionOutbound}
}

// FirstUnusedID returns the first of the provider's ids that no other message has;
// empty if all are in use.
func (s *Service) FirstUnusedID(ctx context.Context, q db.Querier, w *OutboxMessage, ids []string) (string, error) {
	found, err := findMessageIDs(ctx, q, []string{w.scope(), w.OrganizationID}, ids)
	if err != nil {
		return "", err
	}
	for _, id := range ids {
		if k, ok := found.find(id); !ok || k.messageID == w.ID {
			return id, nil
		}
	}
	return "", nil
}

// deleteQueuedMessages removes the messages of a deleted ticket from the outbox.
func (s *Service) deleteQueuedMessages(ctx context.Context, tx *db.Tx, ticketID string) error {
	ids, err := db.All(ctx, tx, func(row db.Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, "SELECT message_id FROM outbox WHERE ticket_id = $1", ticketID)
	if err != nil || len(ids) == 0 {
		return err
	}
	if err := tx.Queue(ctx, "DELETE FROM outbox WHERE ticket_id = $1", ticketID); err != nil {
		return fmt.Errorf("empty outbox: %w", err)
	}
	return s.queue.DeleteTx(ctx, tx, ids...)
}
