package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// The delivery states of a reply that leaves later; see [Reply.SendAt] and [Reply.Hold]. One that
// could not be sent at its time has [channel.ReceiptFailed].
const (
	DeliveryHeld      channel.ReceiptState = "held"
	DeliveryScheduled channel.ReceiptState = "scheduled"
)

// Bounds of pending replies: per ticket, and the time ahead.
const (
	maxPending  = 20
	maxSchedule = 366 * 24 * time.Hour
)

// sendKind is the queue's kind of jobs that send a pending reply. The payload is its id.
const sendKind = "desk.send"

// pendingReply is a reply that leaves later. It is no message yet: it has no event and meets no
// SLA target until it leaves.
type pendingReply struct {
	Message
	organizationID string
	jobID          string
	recipients     chosenRecipients
	place          int64 // number of the ticket's newest message when it was written
	ordinal        int64 // its place among the ticket's pending replies
	forced         bool
}

const pendingColumns = `message_id, organization_id, ticket_id, conversation_id, channel, state, error, send_at, job_id,
	author_id, author_name, body, html, recipient, cc, place, ordinal, forced, created_at, bcc, dropped, markdown`

// selectPending selects pending replies, for scanPending.
const selectPending = "SELECT " + pendingColumns + `, EXISTS (SELECT 1 FROM conversations c
	WHERE c.ticket_id = pending_replies.ticket_id AND c.id = pending_replies.conversation_id AND c.forwarded) FROM pending_replies `

func scanPending(row db.Row) (pendingReply, error) {
	var in Conversation
	p := pendingReply{Message: Message{Direction: DirectionOutbound, PlacedBy: RuleWritten, Attachments: []Attachment{}}}
	p.Author.Type = AuthorAgent
	err := row.Scan(&p.ID, &p.organizationID, &p.TicketID, &p.ConversationID, &p.Channel, &p.Delivery.State, db.IntoText(&p.Delivery.Error),
		db.IntoTime(&p.SendAt), &p.jobID, &p.Author.ID, &p.Author.Name, &p.Text, db.IntoText(&p.HTML), db.IntoText(&p.recipients.to),
		db.IntoJSON(&p.recipients.cc), &p.place, &p.ordinal, &p.forced, db.IntoTime(&p.CreatedAt),
		db.IntoJSON(&p.recipients.bcc), db.IntoJSON(&p.recipients.drop), &p.Details.Markdown, &in.Forwarded)
	p.Kind = in.messageKind()
	return p, err
}

// checkSchedule validates a time at which something is to happen; zero: none.
func checkSchedule(v *problem.Validation, path string, at, now time.Time) {
	switch {
	case at.IsZero():
	case !at.After(now):
		v.Add(path, "must be in the future")
	case at.Sub(now) > maxSchedule:
		v.Add(path, "must be within a year")
	}
}

// addPending stores a reply that leaves later, and enqueues the job that sends it.
func (s *Service) addPending(ctx context.Context, tx *db.Tx, t *Ticket, r *Reply) (Message, error) {
	var v problem.Validation
	checkSchedule(&v, "send_at", r.SendAt, tx.Now)
	if err := v.Err(); err != nil {
		return Message{}, err
	}
	p := pendingReply{
		Message: Message{
			ID: newID(), TicketID: t.ID, Direction: DirectionOutbound, Author: r.By.author(),
			PlacedBy: RuleWritten, CreatedAt: tx.Now, SendAt: r.SendAt, Delivery: Delivery{State: DeliveryScheduled},
		},
		jobID: newID(),
	}
	if p.SendAt.IsZero() {
		p.SendAt, p.Delivery.State = tx.Now.Add(r.Hold), DeliveryHeld
	}
	if err := s.tryConversations(ctx, tx, t, r.ConversationID, func(c *Conversation) error {
		if c.ID == "" { // so that it stays the customer's if the ticket is merged
			c.ID, c.CreatedAt = newID(), tx.Now
			if err := insertConversation(ctx, tx, c); err != nil {
				return err
			}
		}
		p.ConversationID, p.Channel, p.Kind = c.ID, c.Channel, c.messageKind()
		s.setContent(&p.Message, &r.Content)
		return s.checkRoute(ctx, tx, t, c, &p.Message, r.chosen())
	}); err != nil {
		return Message{}, err
	}
	var waiting int
	if err := tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM pending_replies WHERE ticket_id = $1),
			coalesce((SELECT max(seq) FROM messages WHERE ticket_id = $1), 0),
			coalesce((SELECT max(ordinal) FROM pending_replies WHERE ticket_id = $1), 0) + 1`, t.ID).Scan(&waiting, &p.place, &p.ordinal); err != nil {
		return Message{}, fmt.Errorf("count pending replies: %w", err)
	}
	if waiting >= maxPending {
		return Message{}, problem.New(problem.Precondition, "%d replies of this ticket wait already: send or delete one first", waiting)
	}
	if err := tx.Queue(ctx, "INSERT INTO pending_replies ("+pendingColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, NULL, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`,
		p.ID, t.OrganizationID, t.ID, p.ConversationID, p.Channel, string(p.Delivery.State), p.SendAt.UnixMicro(), p.jobID,
		p.Author.ID, p.Author.Name, p.Text, db.Text(p.HTML), db.Text(r.To), addressList(r.Cc), p.place, p.ordinal, r.Seen == nil, p.CreatedAt.UnixMicro(),
		addressList(r.Bcc), addressList(r.Drop), p.Details.Markdown); err != nil {
		return Message{}, fmt.Errorf("write pending reply: %w", err)
	}
	if err := s.insertAttachments(ctx, tx, t.OrganizationID, &p.Message, quota.Enforced); err != nil {
		return Message{}, err
	}
	s.notifyChanged(tx, t.OrganizationID, t.ID)
	return p.Message, s.enqueuePending(ctx, tx, t.OrganizationID, &p)
}

// addressList returns the column of addresses.
func addressList(list []string) any {
	if len(list) == 0 {
		return nil
	}
	return db.JSON(list)
}

func (s *Service) enqueuePending(ctx context.Context, tx *db.Tx, organizationID string, p *pendingReply) error {
	return s.queue.EnqueueTx(ctx, tx, queue.New{
		ID: p.jobID, Kind: sendKind, Lane: p.ID, Tenant: organizationID, Payload: []byte(p.ID), RunAt: p.SendAt,
	})
}

// checkRoute returns the problem that forbids a message in a conversation now.
func (s *Service) checkRoute(ctx context.Context, q db.Querier, t *Ticket, c *Conversation, m *Message, pick chosenRecipients) error {
	if c.Channel == ChannelAPI {
		return nil
	}
	_, err := s.route(ctx, q, t, c, s.newOutgoing(t, c, m, m.CreatedAt), m.Details, pick)
	return err
}

// PendingReplies returns the replies of a ticket that leave later, or could not be sent at their
// time, in the order of their times.
func (s *Service) PendingReplies(ctx context.Context, q db.Querier, organizationID, ticketID string) ([]Message, error) {
	list, err := db.All(ctx, q, scanPending, selectPending+"WHERE ticket_id = $1 AND organization_id = $2 ORDER BY send_at, message_id",
		ticketID, organizationID)
	if err != nil {
		return nil, fmt.Errorf("list pending replies: %w", err)
	}
	if len(list) == 0 {
		return nil, nil
	}
	messages := make([]Message, len(list))
	for i := range list {
		messages[i] = list[i].Message
	}
	return messages, s.fillAttachments(ctx, q, ticketID, messages)
}

// NewestSeen returns the id of what a reader of the newest message and all pending replies of a
// ticket saw last; see [Reply.Seen]. newest is nil if the ticket has no message.
func (s *Service) NewestSeen(ctx context.Context, q db.Querier, ticketID string, newest *Message) (id string, err error) {
	place := int64(0)
	if newest != nil {
		id, place = newest.ID, newest.seq
	}
	err = q.QueryRow(ctx, `SELECT coalesce((SELECT message_id FROM pending_replies WHERE ticket_id = $1 AND place >= $2 AND state <> $3
		ORDER BY ordinal DESC LIMIT 1), $4)`, ticketID, place, string(channel.ReceiptFailed), id).Scan(&id)
	if err != nil {
		return "", fmt.Errorf("find the newest reply: %w", err)
	}
	return id, nil
}

// PendingReply returns a reply that leaves later. Error: NotFound.
func (s *Service) PendingReply(ctx context.Context, q db.Querier, organizationID, messageID string) (Message, error) {
	p, err := findPending(ctx, q, organizationID, messageID)
	if err != nil {
		return Message{}, notFound(err, "message")
	}
	list := []Message{p.Message}
	err = s.fillAttachments(ctx, q, p.TicketID, list)
	return list[0], err
}

// OutboundMessage returns an outbound message by id, pending or not. Error: NotFound.
func (s *Service) OutboundMessage(ctx context.Context, q db.Querier, organizationID, id string) (m Message, err error) {
	err = s.snapshot(ctx, q, func(q db.Querier) error {
		if m, err = s.PendingReply(ctx, q, organizationID, id); err == nil || !isNotFound(err) {
			return err
		}
		ticketID, err := outboundTicket(ctx, q, organizationID, id)
		if err != nil {
			return notFound(err, "message")
		}
		m, err = s.Message(ctx, q, organizationID, ticketID, id)
		return err
	})
	return m, err
}

// outboundTicket returns the ticket of an outbound message that has left. Error: [db.ErrNoRows].
func outboundTicket(ctx context.Context, q db.Querier, organizationID, messageID string) (ticketID string, err error) {
	err = q.QueryRow(ctx, "SELECT ticket_id FROM message_ids WHERE folded = $1 AND scope = $2 AND message_id = $3 AND outbound",
		foldID(messageID), organizationID, messageID).Scan(&ticketID)
	return ticketID, err
}

func findPending(ctx context.Context, q db.Querier, organizationID, messageID string) (pendingReply, error) {
	return db.One(ctx, q, scanPending, selectPending+"WHERE message_id = $1 AND organization_id = $2", messageID, organizationID)
}

// lockPending returns a pending reply, with its ticket locked, so that it does not change until
// the transaction ends. Error: [db.ErrNoRows].
func lockPending(ctx context.Context, tx *db.Tx, organizationID, messageID string) (pendingReply, Ticket, error) {
	for {
		p, err := findPending(ctx, tx, organizationID, messageID)
		if err != nil {
			return p, Ticket{}, err
		}
		t, err := lockTicket(ctx, tx, organizationID, p.TicketID)
		if err != nil {
			return p, t, err
		}
		// A merge may have moved it, or its time may have come, before the lock was had.
		now, err := findPending(ctx, tx, organizationID, messageID)
		if err != nil || now.TicketID == t.ID {
			return now, t, err
		}
	}
}

// CancelledReply is a reply that did not leave, with the recipients that its author selected; see
// [Reply].
type CancelledReply struct {
	Message
	To            string
	Cc, Drop, Bcc []string
}

// CancelReplyTx deletes a reply that has not left, and returns it: nothing was sent. Errors:
// NotFound; Conflict invalid_transition if it has left.
func (s *Service) CancelReplyTx(ctx context.Context, tx *db.Tx, organizationID, messageID string) (CancelledReply, error) {
	p, t, err := s.lockPendingReply(ctx, tx, organizationID, messageID)
	if err != nil {
		return CancelledReply{}, err
	}
	list := []Message{p.Message}
	if err := s.fillAttachments(ctx, tx, t.ID, list); err != nil {
		return CancelledReply{}, err
	}
	s.notifyChanged(tx, organizationID, t.ID)
	r := p.recipients
	return CancelledReply{list[0], r.to, r.cc, r.drop, r.bcc}, s.deletePending(ctx, tx, &t, []pendingReply{p})
}

// SendNowTx lets a pending reply leave at once; also one that has failed. Errors: those of
// [Service.CancelReplyTx].
func (s *Service) SendNowTx(ctx context.Context, tx *db.Tx, organizationID, messageID string) error {
	p, t, err := s.lockPendingReply(ctx, tx, organizationID, messageID)
	if err != nil {
		return err
	}
	if err := s.queue.DeleteTx(ctx, tx, p.jobID); err != nil {
		return err
	}
	p.jobID, p.SendAt = newID(), tx.Now
	// Its sender has seen the ticket as it is.
	if err := tx.Queue(ctx, `UPDATE pending_replies SET job_id = $2, send_at = $3, state = $4, error = NULL,
			place = coalesce((SELECT max(seq) FROM messages WHERE ticket_id = $5), 0) WHERE message_id = $1`,
		p.ID, p.jobID, p.SendAt.UnixMicro(), string(DeliveryScheduled), t.ID); err != nil {
		return fmt.Errorf("change pending reply: %w", err)
	}
	s.notifyChanged(tx, organizationID, t.ID)
	return s.enqueuePending(ctx, tx, organizationID, &p)
}

// lockPendingReply is lockPending with the problems of callers from outside.
func (s *Service) lockPendingReply(ctx context.Context, tx *db.Tx, organizationID, messageID string) (pendingReply, Ticket, error) {
	p, t, err := lockPending(ctx, tx, organizationID, messageID)
	if !errors.Is(err, db.ErrNoRows) {
		return p, t, err
	}
	if _, err := outboundTicket(ctx, tx, organizationID, messageID); err != nil {
		return p, t, notFound(err, "message")
	}
	return p, t, transitionError("the message has been sent", nil)
}

// deletePending deletes pending replies of a locked ticket, with their files and jobs.
func (s *Service) deletePending(ctx context.Context, tx *db.Tx, t *Ticket, list []pendingReply) error {
	if len(list) == 0 {
		return nil
	}
	ids, jobs := make([]string, len(list)), make([]string, len(list))
	for i := range list {
		ids[i], jobs[i] = list[i].ID, list[i].jobID
	}
	if err := tx.Queue(ctx, "DELETE FROM pending_replies WHERE message_id = ANY($1)", ids); err != nil {
		return fmt.Errorf("delete pending replies: %w", err)
	}
	if err := s.deleteFiles(ctx, tx, t, ids); err != nil {
		return err
	}
	return s.queue.DeleteTx(ctx, tx, jobs...)
}

// deleteTicketPending deletes the pending replies of a locked ticket; those to a customer, or all
// for an empty id.
func (s *Service) deleteTicketPending(ctx context.Context, tx *db.Tx, t *Ticket, customerID string) error {
	list, err := db.All(ctx, tx, scanPending, selectPending+`WHERE ticket_id = $1
		AND ($2 = '' OR conversation_id IN (SELECT id FROM conversations WHERE ticket_id = $1 AND customer_id = $2))`, t.ID, customerID)
	if err != nil {
		return fmt.Errorf("find pending replies: %w", err)
	}
	return s.deletePending(ctx, tx, t, list)
}

// runSend sends the pending reply of a job, after those of its ticket that were due before. A reply
// that cannot be sent stays, with the reason.
func (s *Service) runSend(ctx context.Context, j *queue.Job) error {
	last := string(j.Payload)
	for {
		id, organizationID, err := s.nextPending(ctx, last)
		if errors.Is(err, db.ErrNoRows) {
			return nil // sent or deleted
		}
		if err != nil {
			return fmt.Errorf("find pending reply: %w", err)
		}
		end := func(tx *db.Tx) error {
			if id == last {
				return j.FinishTx(ctx, tx)
			}
			return nil
		}
		err = s.db.Write(ctx, func(tx *db.Tx) error {
			if err := s.sendPending(ctx, tx, organizationID, id); err != nil {
				return err
			}
			return end(tx)
		})
		if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind != problem.Unavailable {
			err = s.db.Write(ctx, func(tx *db.Tx) error {
				if err := s.failPending(ctx, tx, organizationID, id, p.Message); err != nil {
					return err
				}
				return end(tx)
			})
		}
		if err != nil || id == last {
			return err
		}
	}
}

// nextPending returns the first of the ticket's pending replies that are due up to one of them.
func (s *Service) nextPending(ctx context.Context, last string) (id, organizationID string, err error) {
	err = s.db.QueryRow(ctx, `SELECT p.message_id, p.organization_id FROM pending_replies l
		JOIN pending_replies p ON p.ticket_id = l.ticket_id AND (p.send_at, p.message_id) <= (l.send_at, l.message_id)
		WHERE l.message_id = $1 AND l.state <> $2 AND p.state <> $2 ORDER BY p.send_at, p.message_id LIMIT 1`,
		last, string(channel.ReceiptFailed)).Scan(&id, &organizationID)
	return id, organizationID, err
}

// sendPending turns a pending reply into a message that is queued on its channel. A scheduled one
// is refused if another agent has replied since; a held one had its check when it was written.
func (s *Service) sendPending(ctx context.Context, tx *db.Tx, organizationID, id string) error {
	p, t, err := lockPending(ctx, tx, organizationID, id)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if p.Delivery.State == DeliveryScheduled && !p.forced && p.Kind == KindReply {
		if err := refuseCrossing(ctx, tx, &t, Actor{ID: p.Author.ID}, p.place, lastAt); err != nil {
			return err
		}
	}
	if p.Attachments, err = s.messageAttachments(ctx, tx, t.ID, p.ID); err != nil {
		return err
	}
	if err := tx.Queue(ctx, "DELETE FROM pending_replies WHERE message_id = $1", p.ID); err != nil {
		return fmt.Errorf("delete pending reply: %w", err)
	}
	_, err = s.sendReply(ctx, tx, &t, p.ConversationID, func(c *Conversation) *unsavedMessage {
		e := s.newOutboundMessage(p.ID, tx.Now, &t, c, nil)
		e.Text, e.HTML, e.Attachments, e.filesWritten = p.Text, p.HTML, p.Attachments, true
		e.Author, e.chosen, e.signed, e.Details.Markdown = p.Author, p.recipients, true, p.Details.Markdown
		return e
	})
	return err
}

// failPending records why a pending reply cannot be sent, opens the ticket and marks it unread.
func (s *Service) failPending(ctx context.Context, tx *db.Tx, organizationID, id, reason string) error {
	p, t, err := lockPending(ctx, tx, organizationID, id)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := tx.Queue(ctx, "UPDATE pending_replies SET state = $2, error = $3 WHERE message_id = $1",
		p.ID, string(channel.ReceiptFailed), line(reason, 500)); err != nil {
		return fmt.Errorf("record failure: %w", err)
	}
	if t.Status != StatusOpen && t.MergedIntoID == "" { // somebody has to look at it
		if err := s.applyUpdate(ctx, tx, &t, Update{Status: new(StatusOpen)}); err != nil {
			return err
		}
	}
	if err := markUnread(ctx, tx, t.ID); err != nil {
		return err
	}
	s.notifyChanged(tx, organizationID, t.ID)
	return nil
}
