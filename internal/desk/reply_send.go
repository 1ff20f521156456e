package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// Reply is an agent's message to a customer.
type Reply struct {
	By      Actor
	Content Content // not empty
	// ConversationID selects a conversation of the ticket. Empty: the one with the
	// customer's newest message in which a reply is possible.
	ConversationID string
	// To selects the recipient of a reply by mail if a message asks for another one:
	// either of the two. Empty: the present one. The selection holds from then on.
	To string
	// Cc are addresses that get copies of replies by mail from now on; Drop are those that no
	// longer do. Bcc get a blind copy of this one.
	Cc, Drop, Bcc []string
	// Seen is the id of the newest message that the author has seen; empty if there
	// was none. A later reply by another agent or API key refuses this one. nil: no
	// check.
	Seen *string
	// SendAt is when a scheduled reply leaves; zero: at once. Hold delays one that is not
	// scheduled, so that its author can undo it. Until then it is no message of the ticket: see
	// [Service.PendingReplies].
	SendAt time.Time
	Hold   time.Duration
}

// ReplyTx writes an agent's message to the customer, in the caller's transaction, and
// queues it on its conversation's channel with delivery state queued. For a merged
// ticket it uses the survivor. In a conversation of [ChannelAPI] without a connection the
// message is only stored and emitted, and its state is empty. The ticket's status stays. The
// member's draft of a reply is deleted. A reply that leaves later is checked like one that leaves
// at once, and again at its time; its delivery state is [DeliveryHeld] or [DeliveryScheduled]. Errors: NotFound; Invalid; TooLarge;
// Conflict crossed_reply, see [CrossedReply]; Conflict invalid_transition if the
// customer has opted out; Precondition, with the reason, if no conversation can
// send. A quota refuses it as the transaction ends.
func (s *Service) ReplyTx(ctx context.Context, tx *db.Tx, organizationID, ticketID string, r Reply) (Message, error) {
	if r.Content.Empty() {
		var v problem.Validation
		v.AddCode("required", "text", "must be given")
		return Message{}, v.Err()
	}
	t, err := lockSurvivor(ctx, tx, organizationID, ticketID)
	if err != nil {
		return Message{}, notFound(err, "ticket")
	}
	if r.Seen != nil {
		if err := checkCrossing(ctx, tx, &t, r.By, *r.Seen); err != nil {
			return Message{}, err
		}
	}
	var m Message
	if r.Hold > 0 || !r.SendAt.IsZero() {
		m, err = s.addPending(ctx, tx, &t, &r)
	} else {
		m, err = s.sendReply(ctx, tx, &t, r.ConversationID, func(c *Conversation) *unsavedMessage {
			e := s.newOutboundMessage(newID(), tx.Now, &t, c, &r.Content)
			e.Author, e.chosen = r.By.author(), r.chosen()
			return e
		})
	}
	if err != nil {
		return Message{}, err
	}
	return m, deleteDraft(ctx, tx, r.By, KindReply, ticketID, t.ID)
}

// sendReply writes a message to the customer of a locked ticket, and queues it. compose returns
// the message for a conversation.
func (s *Service) sendReply(ctx context.Context, tx *db.Tx, t *Ticket, conversationID string, compose func(c *Conversation) *unsavedMessage) (m Message, err error) {
	err = s.tryConversations(ctx, tx, t, conversationID, func(c *Conversation) error {
		isNew := c.ID == ""
		if isNew {
			c.ID, c.CreatedAt = newID(), tx.Now
		}
		e := compose(c)
		if err := s.enqueueSend(ctx, tx, t, c, e); err != nil {
			return err
		}
		p := threadRef{ticket: *t, conversationID: c.ID}
		if isNew {
			p.newConversation = c
		}
		if c.Channel == channelEmail && !c.Forwarded {
			if err := confirmParticipants(ctx, tx, &p, e.chosen, ""); err != nil {
				return err
			}
		}
		_, err := s.appendMessage(ctx, tx, c.inbound(t), &p, e)
		m = e.Message
		return err
	})
	return m, err
}

// tryConversations calls try with the conversations for a reply, the likeliest first, until one
// accepts the reply: try then returns no Precondition or Conflict. The error is the first refusal.
func (s *Service) tryConversations(ctx context.Context, q db.Querier, t *Ticket, conversationID string, try func(c *Conversation) error) error {
	candidates, err := replyCandidates(ctx, q, t, conversationID)
	if err != nil {
		return err
	}
	var refused error
	for i := range candidates {
		err := try(&candidates[i])
		if kind := problem.Of(err); err == nil || kind != problem.Precondition && kind != problem.Conflict {
			return err
		}
		if refused == nil {
			refused = err
		}
	}
	if refused == nil {
		refused = problem.New(problem.Precondition, "this ticket has no conversation to reply in")
	}
	return refused
}

// inbound returns the coordinates of c as an Inbound.
func (c *Conversation) inbound(t *Ticket) *InboundEvent {
	return &InboundEvent{OrganizationID: t.OrganizationID, ConnectionID: c.ConnectionID, Channel: c.Channel}
}

const selectConversation = "SELECT c.id, c.ticket_id, c.connection_id, c.channel, c.thread_key, c.customer_id, c.opted_out_at, c.created_at, c.home_id, c.forwarded FROM conversations c "

func scanConversation(row db.Row) (Conversation, error) {
	var c Conversation
	err := row.Scan(&c.ID, &c.TicketID, &c.ConnectionID, &c.Channel, db.IntoText(&c.ThreadKey), &c.CustomerID,
		db.IntoTime(&c.OptedOutAt), db.IntoTime(&c.CreatedAt), db.IntoText(&c.home), &c.Forwarded)
	return c, err
}

// replyCandidates returns the conversations for a reply, the likeliest first: the
// selected one, or all by their customer's newest message. A ticket of the API
// without a conversation has one without an id, which the first reply creates.
// Conversations about forwarded messages must be selected.
func replyCandidates(ctx context.Context, q db.Querier, t *Ticket, conversationID string) ([]Conversation, error) {
	if conversationID != "" {
		c, err := db.One(ctx, q, scanConversation, selectConversation+"WHERE c.ticket_id = $1 AND c.id = $2", t.ID, conversationID)
		if errors.Is(err, db.ErrNoRows) {
			var v problem.Validation
			v.AddCode("not_found", "conversation_id", "must be a conversation of the ticket")
			return nil, v.Err()
		}
		return []Conversation{c}, err
	}
	const heard = `FROM messages m WHERE m.ticket_id = c.ticket_id AND m.conversation_id = c.id
		AND m.direction = 'inbound' AND m.kind = 'reply' AND m.placed_by <> 'ticket_tag'`
	all, err := db.All(ctx, q, scanConversation, selectConversation+`WHERE c.ticket_id = $1 AND NOT c.forwarded
		ORDER BY coalesce((SELECT max(m.seq) `+heard+`), -1) DESC, coalesce((SELECT max(m.id) `+heard+`), '') DESC,
			c.created_at DESC, c.id DESC`, t.ID)
	if err == nil && len(all) == 0 && t.Channel == ChannelAPI {
		all = []Conversation{{TicketID: t.ID, Channel: ChannelAPI, CustomerID: t.Customer.ID}}
	}
	return all, err
}

// newOutboundMessage returns an outbound message in a conversation, without its
// author, and without content for nil. Quotas are enforced for it.
func (s *Service) newOutboundMessage(id string, now time.Time, t *Ticket, c *Conversation, w *Content) *unsavedMessage {
	e := &unsavedMessage{Message: Message{
		ID: id, TicketID: t.ID, ConversationID: c.ID, Direction: DirectionOutbound, Channel: c.Channel, Kind: c.messageKind(),
		PlacedBy: RuleWritten, CreatedAt: now,
	}, quota: quota.Enforced}
	if w != nil {
		s.setContent(&e.Message, w)
		e.signed = w.composed
	}
	e.customer = customerRef{Customer: t.Customer}
	return e
}

// enqueueSend addresses e, an outbound message of conversation c of t, writes it to
// the outbox and enqueues its job. Call it before the message is written, in the
// same transaction, with a message of newOutboundMessage; c and t need not be
// written yet, nor t have its number. If it returns a problem it has changed
// nothing. It sets the connection of a conversation without one.
func (s *Service) enqueueSend(ctx context.Context, tx *db.Tx, t *Ticket, c *Conversation, e *unsavedMessage) error {
	if c.Channel == ChannelAPI && c.ConnectionID == "" {
		return nil
	}
	out := s.newOutgoing(t, c, &e.Message, tx.Now)
	r, err := s.route(ctx, tx, t, c, out, e.Details, e.chosen)
	if err != nil {
		return err
	}
	connectionID := r.connectionID
	c.ConnectionID = connectionID
	e.Details, e.Delivery.State, e.Delivery.Error = r.details, channel.ReceiptQueued, r.warning
	hidden := r.details.Bcc
	if c.Forwarded {
		hidden = slices.Concat(r.details.To, r.details.Cc, r.details.Bcc)
	}
	e.participants = append(e.participants, hiddenParticipants(hidden...)...)
	if out.MessageID != "" {
		e.ExternalID, e.ids = out.MessageID, []string{out.MessageID}
	}
	if c.Channel == ChannelAPI {
		e.ExternalID = channel.ReplyID(e.ID) // a receipt may arrive before the result of sending
	}
	recipient, id := "", any(nil)
	var sign signature
	if c.Channel != channelEmail {
		recipient, id = outboxRecipient(out.To)
	} else if e.signed {
		if sign, err = s.loadSignature(ctx, tx, t.OrganizationID, e.Author, out.Signature); err != nil {
			return err
		}
	}
	if err := tx.Queue(ctx, `INSERT INTO outbox (message_id, organization_id, ticket_id, conversation_id, connection_id, recipient, recipient_id, signature, signature_html)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, e.ID, t.OrganizationID, t.ID, c.ID, connectionID, recipient, id, db.Text(sign.text), db.Text(sign.html)); err != nil {
		return fmt.Errorf("write outbox: %w", err)
	}
	return s.queue.EnqueueTx(ctx, tx, queue.New{ID: e.ID, Kind: SendKind(c.Channel), Lane: c.ID, Tenant: t.OrganizationID})
}

// newOutgoing returns a message of a conversation for its channel, without its route.
func (s *Service) newOutgoing(t *Ticket, c *Conversation, m *Message, now time.Time) *channel.Outgoing {
	return &channel.Outgoing{
		ID: m.ID, TicketID: t.ID, TicketNumber: t.Number, Text: m.Text, HTML: m.HTML, Files: s.outgoingFiles(c.Channel, m.Attachments, now), Automatic: m.Details.Automatic,
	}
}

// sendRoute is the result of routing a message.
type sendRoute struct {
	details      Details // of mail: recipients and references
	connectionID string
	warning      string // an earlier failure of the address; empty: none
}

// route completes out, a message for conversation c of t, or refuses it with a
// problem. It writes nothing.
func (s *Service) route(ctx context.Context, q db.Querier, t *Ticket, c *Conversation, out *channel.Outgoing, d Details, pick chosenRecipients) (r sendRoute, err error) {
	if barred, err := sendBlock(ctx, q, t.OrganizationID, c); err != nil {
		return r, err
	} else if barred != nil {
		return r, barred
	}
	if s.dispatcher == nil {
		return r, problem.New(problem.Precondition, "this server cannot send messages")
	}
	key := ""
	if err := pick.check(c); err != nil {
		return r, err
	}
	if r.details = d; c.Channel == channelEmail {
		if r.details, err = s.addressMail(ctx, q, t, c, d, pick); err != nil {
			return r, err
		}
		r.details.fillOutgoing(out)
		key = emailKey(out.To.Email)
	} else {
		if out.To, err = s.findRecipient(ctx, q, t.OrganizationID, c); err != nil {
			return r, err
		}
		out.ThreadKey = c.ThreadKey
		key = threadValue(cmp.Or(out.To.Phone, out.To.ID))
	}
	if err := loadLastInbound(ctx, q, t.ID, c.ID, out); err != nil {
		return r, err
	}
	if r.connectionID, err = s.dispatcher.PrepareSend(ctx, q, t.OrganizationID, c.ConnectionID, c.Channel, out); err != nil {
		return r, err
	}
	failedAt, err := undeliverable(ctx, q, t.OrganizationID, key)
	if err == nil && !failedAt.IsZero() {
		r.warning = fmt.Sprintf("an earlier message to %s could not be delivered", line(cmp.Or(out.To.Phone, out.To.ID, out.To.Email), maxKey))
	}
	return r, err
}

// sendBlock returns the problem that forbids messages in a conversation: the
// customer has opted out or was deleted. An opt-out of a thread also holds for
// conversations split off it.
func sendBlock(ctx context.Context, q db.Querier, organizationID string, c *Conversation) (*problem.Error, error) {
	var deletedAt, optedOutAt time.Time
	err := q.QueryRow(ctx, `SELECT u.deleted_at, (SELECT o.opted_out_at FROM contact_points p
			JOIN conversations o ON o.ticket_id = p.ticket_id AND o.id = p.conversation_id WHERE p.value = $2 AND p.scope = $3)
		FROM customers u WHERE u.id = $1`, c.CustomerID, c.ThreadKey, threadScope(organizationID, c.ConnectionID, c.Channel)).
		Scan(db.IntoTime(&deletedAt), db.IntoTime(&optedOutAt))
	switch {
	case err != nil:
		return nil, fmt.Errorf("look up customer: %w", err)
	case !deletedAt.IsZero():
		return problem.New(problem.Precondition, "the customer was deleted, so there is no address to send to"), nil
	case !c.OptedOutAt.IsZero() || !optedOutAt.IsZero():
		return transitionError("the customer has opted out: no more messages may be sent in this conversation", nil), nil
	}
	return nil, nil
}

// SendKind returns the queue's kind of jobs that send the messages of a channel.
// Their lane is the conversation, their id the message's. Mail has a kind that programs before
// signatures, Markdown and blind copies do not run: they would leave them out.
func SendKind(channel string) string {
	if channel == channelEmail {
		return "outbound/mail"
	}
	return "outbound/" + channel
}

// SendKinds returns the kinds of jobs that send the messages of a channel, also of those that earlier
// programs enqueued.
func SendKinds(channel string) []string {
	if channel == channelEmail {
		return []string{SendKind(channel), "outbound/email"}
	}
	return []string{SendKind(channel)}
}

// outgoingFiles returns the files of a message for a channel.
func (s *Service) outgoingFiles(channelName string, attachments []Attachment, now time.Time) []channel.OutgoingFile {
	var files []channel.OutgoingFile
	for i := range attachments {
		a := &attachments[i]
		f := channel.OutgoingFile{Name: a.Name, ContentType: a.ContentType, Size: a.Size}
		if channelName != channelEmail {
			f.URL = s.shareFile(a.ID, now)
		}
		files = append(files, f)
	}
	return files
}

// recipientParty returns the party with a number or an id, as stored in the outbox.
func recipientParty(recipient string) channel.Party {
	if len(recipient) > 1 && recipient[0] == '+' {
		return channel.Party{Phone: recipient}
	}
	return channel.Party{ID: recipient}
}

// findRecipient returns the recipient of a conversation: number and id if both are
// known, as the channel gave them. In a group thread it is the conversation's
// customer.
func (s *Service) findRecipient(ctx context.Context, q db.Querier, organizationID string, c *Conversation) (channel.Party, error) {
	if c.ThreadKey == "" && c.Channel != channelVoice {
		return channel.Party{}, problem.New(problem.Precondition, "the recipient of this conversation is unknown")
	}
	// In order: the owner of the key itself, owners of other keys of the thread, and
	// other identities of the customer on the connection.
	const byCustomer = 2
	type known struct {
		kind, shown string
		by          int
	}
	list, err := db.All(ctx, q, func(row db.Row) (k known, err error) {
		err = row.Scan(&k.kind, &k.shown, &k.by)
		return k, err
	}, `SELECT kind, coalesce(display, value) AS shown, 0 AS rank FROM contact_points WHERE value = $1 AND scope IN ($2, $3)
		UNION ALL
		SELECT p.kind, coalesce(p.display, p.value), CASE WHEN EXISTS (
				SELECT 1 FROM contact_points k JOIN contact_points t ON t.conversation_id = k.conversation_id
				WHERE k.value = $1 AND k.scope = $3 AND t.value = p.value AND t.scope = $3) THEN 1 ELSE 2 END
			FROM contact_points p WHERE p.customer_id = $4 AND p.value <> $1 AND (p.scope = $3 OR p.kind = 'phone')
		ORDER BY rank, shown`, c.ThreadKey, organizationID, threadScope(organizationID, c.ConnectionID, c.Channel), c.CustomerID)
	if err != nil {
		return channel.Party{}, fmt.Errorf("look up recipient: %w", err)
	}
	var to channel.Party
	found := false
	for _, k := range list {
		switch {
		case k.kind == pointThread || k.by == byCustomer && (found || k.kind == pointPhone):
		case k.kind == pointPhone && to.Phone == "":
			to.Phone, found = k.shown, true
		case k.kind != pointPhone && to.ID == "":
			to.ID, found = k.shown, true
		}
	}
	switch {
	case found:
		return to, nil
	case c.Channel == channelVoice && !strings.HasPrefix(c.ThreadKey, "+"):
		return callRecipient(ctx, q, c, threadScope(organizationID, c.ConnectionID, c.Channel))
	}
	return recipientParty(c.ThreadKey), nil
}

// outboxRecipient returns the outbox columns of a recipient.
func outboxRecipient(to channel.Party) (recipient string, id any) {
	if to.Phone == "" {
		return to.ID, nil
	}
	return to.Phone, db.Text(to.ID)
}

// loadLastInbound sets the time and the id of the customer's last message in a
// conversation. The time is the provider's, if known.
func loadLastInbound(ctx context.Context, q db.Querier, ticketID, conversationID string, out *channel.Outgoing) error {
	err := q.QueryRow(ctx, `SELECT CASE WHEN sent_at < created_at THEN sent_at ELSE created_at END AS at, external_id FROM messages
		WHERE ticket_id = $1 AND conversation_id = $2 AND direction = 'inbound' AND kind = 'reply' ORDER BY at DESC, seq DESC, id DESC LIMIT 1`,
		ticketID, conversationID).Scan(db.IntoTime(&out.LastInboundAt), db.IntoText(&out.LastInboundID))
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("find the message to answer: %w", err)
	}
	return nil
}

// undeliverable returns the time since when an address fails; zero: it does not.
func undeliverable(ctx context.Context, q db.Querier, organizationID, key string) (at time.Time, err error) {
	err = q.QueryRow(ctx, "SELECT undeliverable_at FROM contact_points WHERE value = $1 AND scope = $2", key, organizationID).Scan(db.IntoTime(&at))
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return at, fmt.Errorf("look up address: %w", err)
	}
	return at, nil
}

// maxCc bounds the copies of a reply, and its blind copies.
const maxCc = 20

// addressMail sets the recipients of a mail in conversation c, and the mail it
// answers: the newest one there, if any. Participants get a copy, except the
// organization's own addresses, unattended ones, and participants without copies,
// unless pick has them. Error: Invalid at to, cc or bcc.
func (s *Service) addressMail(ctx context.Context, q db.Querier, t *Ticket, c *Conversation, d Details, pick chosenRecipients) (Details, error) {
	if c.Forwarded && len(d.To) > 0 {
		return d, nil // the first mail
	}
	past, err := loadMailThread(ctx, q, t, c)
	if err != nil {
		return d, err
	}
	to, picked, err := past.chosenRecipient(pick)
	if err != nil {
		return d, err
	}
	d.Subject, d.Chosen = t.Subject, picked
	if m := past.mailToAnswer(to.Email); m != nil {
		if m.details.Subject != "" {
			d.Subject = m.details.Subject
		}
		d.Subject = "Re: " + line(d.Subject, maxSubject)
		if id := m.externalID; id != "" && len(id) < maxKey {
			d.InReplyTo = id
		}
		d.References = m.details.References
	}
	if own, err := s.isOwnOrEmpty(ctx, q, t, to.Email); err != nil {
		return d, err
	} else if own && !c.Forwarded {
		of := customerRef{Customer: t.Customer}
		if c.CustomerID != of.ID {
			if of, err = loadCustomer(ctx, q, c.CustomerID); err != nil {
				return d, err
			}
		}
		to = Address{Name: of.Name, Email: of.Email}
	}
	d.To, d.Cc = nil, nil
	if to.Email != "" {
		d.To = []Address{to}
	}
	if d.Automatic {
		return d, nil
	}
	for i, list := range [][]string{pick.cc, pick.bcc} {
		if err := s.refuseOwn(ctx, q, t, [...]string{"cc", "bcc"}[i], list); err != nil {
			return d, err
		}
	}
	participants, err := mailParticipants(ctx, q, t, c)
	if err != nil {
		return d, err
	}
	participants = slices.DeleteFunc(participants, func(a Address) bool { return hasAddress(pick.drop, a.Email) })
	if d.Cc, err = s.copiesFor(ctx, q, t, to, participants); err != nil {
		return d, err
	}
	named, err := unconfirmedParticipants(ctx, q, t.ID, c.home)
	if err != nil {
		return d, err
	}
	d.Cc = addAddresses(d.Cc, to, pick.cc, named...)
	if len(d.Cc) > maxCc {
		var v problem.Validation
		v.AddCode("too_long", "cc", "must have at most %d addresses with those who get copies already", maxCc)
		return d, v.Err()
	}
	d.Bcc = slices.DeleteFunc(addAddresses(nil, to, pick.bcc), func(a Address) bool {
		return slices.ContainsFunc(d.Cc, func(b Address) bool { return emailKey(a.Email) == emailKey(b.Email) })
	})
	return d, nil
}

// mailParticipants returns the participants that get copies of mails in conversation c.
func mailParticipants(ctx context.Context, q db.Querier, t *Ticket, c *Conversation) ([]Address, error) {
	if c.Forwarded {
		return nil, nil
	}
	list, err := db.All(ctx, q, func(row db.Row) (a Address, err error) {
		err = row.Scan(&a.Email, &a.Name)
		return a, err
	}, `SELECT p.email, p.name FROM participants p WHERE p.ticket_id = $1 AND p.role <> $2 AND NOT p.unconfirmed
			AND (coalesce(p.home_id, '') = $3 OR p.email IN (SELECT h.email FROM participants h WHERE h.ticket_id = $3 AND h.role <> $4))
		ORDER BY p.created_at, p.email LIMIT 100`, t.ID, roleCustomer, c.home, roleHidden)
	if err != nil {
		return nil, fmt.Errorf("find participants: %w", err)
	}
	if c.home == "" { // the survivor's customer has no part in a merged conversation
		list = append([]Address{{Name: t.Customer.Name, Email: t.Customer.Email}}, list...)
	}
	return list, nil
}

// copiesFor returns the participants that get a copy of a mail, each once.
func (s *Service) copiesFor(ctx context.Context, q db.Querier, t *Ticket, to Address, participants []Address) ([]Address, error) {
	var cc []Address
	for _, a := range participants {
		key := emailKey(a.Email)
		known := key == emailKey(to.Email) || slices.ContainsFunc(cc, func(b Address) bool { return emailKey(b.Email) == key })
		if key == "" || known || channel.IsUnattended(key) || len(cc) == maxCc {
			continue
		}
		own, err := s.isOwnOrEmpty(ctx, q, t, key)
		if err != nil {
			return nil, err
		}
		if !own {
			cc = append(cc, a)
		}
	}
	return cc, nil
}

// isOwnOrEmpty reports whether an e-mail address is empty or a channel address of
// the organization.
func (s *Service) isOwnOrEmpty(ctx context.Context, q db.Querier, t *Ticket, address string) (bool, error) {
	if address == "" {
		return true, nil
	}
	return s.isOwnAddress(ctx, q, t.OrganizationID, address)
}

// fillOutgoing copies the mail fields of d to out.
func (d *Details) fillOutgoing(out *channel.Outgoing) {
	for _, a := range d.To {
		out.To = channel.Party{Name: a.Name, Email: a.Email}
	}
	for _, a := range d.Cc {
		out.Cc = append(out.Cc, channel.Party{Name: a.Name, Email: a.Email})
	}
	for _, a := range d.Bcc {
		out.Bcc = append(out.Bcc, channel.Party{Email: a.Email})
	}
	out.Subject, out.InReplyTo, out.References = d.Subject, d.InReplyTo, d.References
}
