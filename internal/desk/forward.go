package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Forward describes messages of a ticket to send to somebody outside it.
type Forward struct {
	By           Actor
	To           string  // an e-mail address
	Content      Content // what the author writes above the messages; may be empty
	MessageID    string  // the message; empty: all messages between the customer and the organization
	WithoutFiles bool    // leave out the files of the messages, except pictures in their HTML
	ConnectionID string  // of a mail channel; empty: the ticket's, or the organization's only one
}

// Bounds of forwarded messages: the bytes of their text, and their number. The newest ones go first.
const (
	maxForwarded      = 200_000
	maxForwardedCount = 200
)

// ForwardTx sends messages of a ticket, or of a merged ticket's survivor, by mail, in the caller's
// transaction. The mail is a message of kind [KindForward] in a conversation of its own: it is no
// response to the customer, who never gets it nor its answers. Answers by its recipients join that
// conversation. Errors: NotFound; Invalid at to, message_id or channel_id; Precondition if there is
// nothing to forward, or the mail cannot be sent; TooLarge.
func (s *Service) ForwardTx(ctx context.Context, tx *db.Tx, organizationID, ticketID string, f Forward) (Message, error) {
	t, err := lockSurvivor(ctx, tx, organizationID, ticketID)
	if err != nil {
		return Message{}, notFound(err, "ticket")
	}
	var v problem.Validation
	checkEmail(&v, "to", f.To)
	if err := v.Err(); err != nil {
		return Message{}, err
	}
	if own, err := s.isOwnAddress(ctx, tx, organizationID, emailKey(f.To)); err != nil {
		return Message{}, err
	} else if own {
		v.AddCode("invalid_value", "to", "must not be an address of the organization")
		return Message{}, v.Err()
	}
	list, err := s.forwardedMessages(ctx, tx, &t, f.MessageID)
	if err != nil {
		return Message{}, err
	}
	c := Conversation{
		ID: newID(), TicketID: t.ID, ConnectionID: f.ConnectionID, Channel: channelEmail, CustomerID: t.Customer.ID, CreatedAt: tx.Now, Forwarded: true,
	}
	if c.ConnectionID == "" {
		if c.ConnectionID, err = mailConnection(ctx, tx, t.ID); err != nil {
			return Message{}, err
		}
	}
	w := forwardContent(&t, &f, list)
	e := s.newOutboundMessage(newID(), tx.Now, &t, &c, &w)
	e.Author, e.Stripped = f.By.author(), strings.TrimSpace(f.Content.text)
	e.Details.To, e.Details.Subject = []Address{{Email: strings.TrimSpace(f.To)}}, forwardSubject(&t, list)
	for i := range list {
		e.Details.Forwarded = append(append(e.Details.Forwarded, list[i].ID), list[i].Details.Forwarded...)
	}
	if err := s.enqueueSend(ctx, tx, &t, &c, e); err != nil {
		return Message{}, ofConnection(err, &NewTicket{Channel: channelEmail})
	}
	c.ThreadKey = boundedKey(e.ExternalID)
	_, err = s.appendMessage(ctx, tx, c.inbound(&t), &threadRef{ticket: t, conversationID: c.ID, newConversation: &c}, e)
	return e.Message, err
}

// forwardedMessages returns the messages of a ticket to forward, in order. Notes never leave.
func (s *Service) forwardedMessages(ctx context.Context, q db.Querier, t *Ticket, messageID string) ([]Message, error) {
	ids := []string{messageID}
	if messageID == "" {
		var err error
		if ids, err = newestToForward(ctx, q, t); err != nil {
			return nil, err
		}
	}
	all, err := db.All(ctx, q, scanMessage, "SELECT "+messageColumns+" FROM messages WHERE ticket_id = $1 AND kind <> $2 AND id = ANY($3) ORDER BY "+threadOrder,
		t.ID, KindNote, ids)
	if err != nil {
		return nil, fmt.Errorf("load messages: %w", err)
	}
	list := slices.DeleteFunc(all, func(m Message) bool { return m.Details.Deleted || m.Details.Redacted })
	if len(list) == 0 && messageID != "" {
		var v problem.Validation
		v.AddCode("not_found", "message_id", "must be a message of the ticket, and no note")
		return nil, v.Err()
	}
	if len(list) == 0 {
		return nil, problem.New(problem.Precondition, "this ticket has no message to forward")
	}
	return list, s.fillAttachments(ctx, q, t.ID, list)
}

// newestToForward returns the ids of the newest messages of a ticket that fit into a forward.
func newestToForward(ctx context.Context, q db.Querier, t *Ticket) ([]string, error) {
	type message struct {
		id         string
		text, html int
	}
	newest, err := db.All(ctx, q, func(row db.Row) (m message, err error) {
		err = row.Scan(&m.id, &m.text, &m.html)
		return m, err
	}, "SELECT id, length(body), coalesce(length(html), 0) FROM messages WHERE ticket_id = $1 AND kind = $2 ORDER BY seq DESC, id DESC LIMIT $3",
		t.ID, KindReply, maxForwardedCount)
	if err != nil {
		return nil, fmt.Errorf("find messages: %w", err)
	}
	var ids []string
	size := 0
	for i, m := range newest {
		if size += max(m.text, m.html); size > maxForwarded && i > 0 {
			break
		}
		ids = append(ids, m.id)
	}
	return ids, nil
}

// mailConnection returns the connection of the newest mail conversation of a ticket; empty: none.
func mailConnection(ctx context.Context, q db.Querier, ticketID string) (id string, err error) {
	err = q.QueryRow(ctx, "SELECT connection_id FROM conversations WHERE ticket_id = $1 AND channel = $2 AND connection_id <> '' ORDER BY forwarded, created_at DESC, id DESC LIMIT 1",
		ticketID, channelEmail).Scan(&id)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return "", fmt.Errorf("find mail connection: %w", err)
	}
	return id, nil
}

// forwardSubject returns the subject of forwarded messages.
func forwardSubject(t *Ticket, list []Message) string {
	subject := t.Subject
	if len(list) == 1 {
		subject = cmp.Or(list[0].Details.Subject, subject)
	}
	return "Fwd: " + line(subject, maxSubject)
}

// forwardContent returns the content of a mail that forwards messages, with copies of their files.
func forwardContent(t *Ticket, f *Forward, list []Message) Content {
	note := &f.Content
	w := Content{attachments: slices.Clone(note.attachments), files: slices.Clone(note.files)}
	if note.markup != "" {
		w.attachments = slices.Clone(note.inline)
	}
	var text, markup strings.Builder
	text.WriteString(note.text)
	markup.WriteString(cmp.Or(note.markup, note.html))
	for i := range list {
		m := &list[i]
		head := forwardHead(t, m)
		fmt.Fprintf(&text, "\n\n%s\n\n%s", head, m.Text)
		body := cmp.Or(m.HTML, textHTML(m.Text))
		for j := range m.Attachments {
			body = w.addForwardedFile(&m.Attachments[j], body, f.WithoutFiles)
		}
		fmt.Fprintf(&markup, "<br><div>%s</div><br><div>%s</div>", textHTML(head), body)
	}
	w.text, w.html = strings.TrimSpace(text.String()), markup.String()
	return w
}

// forwardHead describes a forwarded message.
func forwardHead(t *Ticket, m *Message) string {
	from := m.Author.Name
	if m.Author.Type == AuthorCustomer && m.Kind == KindReply {
		from = cmp.Or(from, t.Customer.Name)
	}
	if address := m.Details.Sender; address != "" && address != from {
		from = strings.TrimSpace(from + " <" + address + ">")
	}
	lines := []string{"---------- Forwarded message ----------"}
	if from != "" {
		lines = append(lines, "From: "+line(from, 2*maxName))
	}
	lines = append(lines, "Date: "+m.CreatedAt.UTC().Format("2 Jan 2006 15:04 MST"))
	if m.Details.Subject != "" {
		lines = append(lines, "Subject: "+line(m.Details.Subject, maxSubject))
	}
	return strings.Join(lines, "\n")
}

// textHTML returns text as HTML.
func textHTML(text string) string {
	return strings.ReplaceAll(html.EscapeString(text), "\n", "<br>")
}

// addForwardedFile copies a file of a forwarded message, and returns the message's HTML with its
// picture.
func (w *Content) addForwardedFile(a *Attachment, markup string, without bool) string {
	path := `="` + AttachmentPath + a.ID + `"`
	shown := strings.Contains(markup, path)
	if a.BlobKey == "" || len(w.attachments) == maxFiles || without && !shown {
		return strings.ReplaceAll(markup, " src"+path, "")
	}
	file := channel.Attachment{Name: a.Name, ContentType: a.ContentType}
	if shown {
		file.Inline, file.ContentID = true, newID()+"@picture"
		markup = strings.ReplaceAll(markup, path, `="cid:`+file.ContentID+`"`)
	}
	w.attachments, w.files = append(w.attachments, file), append(w.files, blob.Ref{Key: a.BlobKey, Size: a.Size})
	return markup
}

// isForwarded reports whether an inbound mail belongs to a conversation about forwarded messages.
func isForwarded(ctx context.Context, q db.Querier, p *threadRef) (forwarded bool, err error) {
	err = q.QueryRow(ctx, "SELECT forwarded FROM conversations WHERE ticket_id = $1 AND id = $2", p.ticket.ID, p.conversationID).Scan(&forwarded)
	if errors.Is(err, db.ErrNoRows) { // a note on the ticket as a whole
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up conversation: %w", err)
	}
	return forwarded, nil
}

// intakeForwarded stores an answer to forwarded messages. Its sender becomes neither a customer nor
// a participant. Further messages to them go to the sender of a proven answer.
func (s *Service) intakeForwarded(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage, p *threadRef) (Result, error) {
	c, err := db.One(ctx, tx, scanConversation, selectConversation+"WHERE c.ticket_id = $1 AND c.id = $2", p.ticket.ID, p.conversationID)
	if err != nil {
		return Result{}, fmt.Errorf("load conversation: %w", err)
	}
	if e.Details.Class == channel.ClassOutboundCopy {
		agent := m.agent
		if !m.isAgent {
			agent = event.Person{Name: line(m.sender.Name, maxName)}
		}
		e.byAgent(agent)
	} else {
		e.Author = event.Author{Type: AuthorCustomer, Name: cmp.Or(line(m.sender.Name, maxName), line(m.sender.Email, maxName))}
		known, err := loadMailThread(ctx, tx, &p.ticket, &c)
		if err != nil {
			return Result{}, err
		}
		e.Details.Recipient = &known.recipient
		if m.Mail.Proof.Proven() && !m.own && !m.isAgent {
			e.Details.Recipient = &Address{Name: line(m.sender.Name, maxName), Email: line(m.sender.Email, maxKey)}
		}
	}
	e.participants = m.recipients(p.ticket.Customer)
	for i := range e.participants {
		e.participants[i].role, e.participants[i].unconfirmed = roleHidden, true
	}
	if !m.own && !m.isAgent {
		e.participants = append(e.participants, hiddenParticipants(Address{Email: m.sender.Email}, Address{Email: m.replyTo.Email})...)
	}
	e.Kind, e.customer = KindForward, customerRef{Customer: p.ticket.Customer}
	return s.appendMessage(ctx, tx, in, p, e)
}

// appendForwarded writes a message about forwarded messages into a ticket, which is locked. Like a
// note it emits no event and meets no SLA target. An answer marks the ticket as unread, notifies
// its followers, and opens it unless it is closed.
func (s *Service) appendForwarded(ctx context.Context, tx *db.Tx, in *InboundEvent, p *threadRef, e *unsavedMessage) (Result, error) {
	t := &p.ticket
	fresh, err := s.writeMessage(ctx, tx, in, p, e)
	if err != nil {
		return Result{}, err
	}
	if !fresh {
		return s.duplicateResult(ctx, tx, t, p.conversationID, e)
	}
	r := e.result(Appended, t)
	if e.Direction == DirectionInbound {
		if t.Status != StatusOpen && t.Status != StatusClosed {
			if err := s.applyUpdate(ctx, tx, t, Update{Status: new(StatusOpen)}); err != nil {
				return Result{}, err
			}
			r.Reopened = true
		}
		if err := markUnread(ctx, tx, t.ID); err != nil {
			return Result{}, err
		}
	}
	if err := tx.Queue(ctx, "UPDATE tickets SET updated_at = $2 WHERE id = $1", t.ID, tx.Now.UnixMicro()); err != nil {
		return Result{}, fmt.Errorf("touch ticket: %w", err)
	}
	s.notifyChanged(tx, in.OrganizationID, t.ID)
	return r, s.noticePublicMessage(ctx, tx, t, &e.Message)
}

// forwardedConversations returns the conversations about forwarded messages of a ticket, newest
// first.
func forwardedConversations(ctx context.Context, q db.Querier, t *Ticket) ([]Conversation, error) {
	return db.All(ctx, q, scanConversation, selectConversation+"WHERE c.ticket_id = $1 AND c.forwarded ORDER BY c.created_at DESC, c.id DESC", t.ID)
}

// messageKind returns the kind of an agent's messages in a conversation.
func (c *Conversation) messageKind() string {
	if c.Forwarded {
		return KindForward
	}
	return KindReply
}
