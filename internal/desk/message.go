package desk

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// ThreadingRule is the reason for a message's ticket.
type ThreadingRule string

// The rules. The four for mail are the contract's, in its order.
const (
	RuleNone      ThreadingRule = "new_ticket"  // no other rule applied: it started its ticket
	RuleThreadKey ThreadingRule = "thread_key"  // the thread of its number or id
	RuleInReplyTo ThreadingRule = "in_reply_to" // it answers a message of the ticket
	RuleReference ThreadingRule = "references"  // it references one
	RuleTicketTag ThreadingRule = "ticket_tag"  // "[Ticket #n]", from a participant
	RuleMessageID ThreadingRule = "message_id"  // its own id, or that of an embedded mail, is a message's
	RuleReceipt   ThreadingRule = "receipt"     // it reports on a message
	RuleWritten   ThreadingRule = "written"     // an agent wrote it here
)

// The values of Message.Direction, Kind and Author.Type.
const (
	DirectionInbound  = "inbound"
	DirectionOutbound = "outbound"

	KindReply = "reply"
	KindNote  = "note" // for agents only; never leaves
	// KindForward is a mail that forwards messages to somebody outside the ticket, or one of the
	// mails that follow it; see [Service.ForwardTx].
	KindForward = "forward"

	AuthorCustomer = "customer"
	AuthorAgent    = "agent"
	AuthorSystem   = "system"
)

// Message is a message or note of a ticket.
type Message struct {
	ID             string        `json:"id"`
	TicketID       string        `json:"ticket_id"`
	ConversationID string        `json:"conversation_id"` // empty for notes on the ticket as a whole
	Direction      string        `json:"direction"`
	Author         event.Author  `json:"author"`
	Channel        string        `json:"channel"`
	Kind           string        `json:"kind"`
	Text           string        `json:"text"`
	Stripped       string        `json:"stripped,omitempty"` // Text without quoted mail; empty if there is none
	HTML           string        `json:"html"`               // sanitized; links to attachments are paths
	Attachments    []Attachment  `json:"attachments"`
	ExternalID     string        `json:"external_id"`
	Delivery       Delivery      `json:"delivery,omitzero"` // of outbound messages
	PlacedBy       ThreadingRule `json:"placed_by"`
	Details        Details       `json:"details,omitzero"`
	SentAt         time.Time     `json:"sent_at,omitzero"` // by the sender's clock; of outbound messages: the submission
	SendAt         time.Time     `json:"send_at,omitzero"` // of a pending reply: when it leaves
	CreatedAt      time.Time     `json:"created_at"`       // when it reached us

	seq int64 // its place in its ticket; see [threadOrder]
}

// Delivery is the delivery state of an outbound message.
type Delivery struct {
	State channel.ReceiptState `json:"state"`
	Error string               `json:"error,omitempty"`
}

// Details are optional properties of a message. Their JSON is the stored form:
// fields are only ever added.
type Details struct {
	Class          channel.Class `json:"class,omitempty"`      // of mail
	ClassRule      string        `json:"class_rule,omitempty"` // the rule that classified it
	Subject        string        `json:"subject,omitempty"`
	Sender         string        `json:"sender,omitempty"`   // the From header's address, lower-case
	ReplyTo        string        `json:"reply_to,omitempty"` // the requested address for replies, if different
	To             []Address     `json:"to,omitempty"`
	Cc             []Address     `json:"cc,omitempty"`
	Unverified     bool          `json:"unverified,omitempty"`      // the sender's domain disowns it; see Message.Authentication
	NoAutoAnswer   bool          `json:"no_auto_answer,omitempty"`  // must never be answered automatically
	NewParticipant bool          `json:"new_participant,omitempty"` // its sender was no participant before
	SentElsewhere  bool          `json:"sent_elsewhere,omitempty"`  // by an agent, with another program
	Collapsed      bool          `json:"collapsed,omitempty"`       // an automatic reply
	Flood          bool          `json:"flood,omitempty"`           // beyond the sender's limit; see [maxMails]
	Automatic      bool          `json:"automatic,omitempty"`       // of outbound messages: an automatic reply
	InReplyTo      string        `json:"in_reply_to,omitempty"`     // of outbound mail: the id of the mail it answers
	References     []string      `json:"references,omitempty"`      // of mail, the first and the last ones
	// Authentication is the result of checking a mail's sender; read it by
	// [Message.Authentication], since older messages have none.
	Authentication *Authentication `json:"authentication,omitempty"`
	// Recipient is the address for replies after this mail; nil for older messages:
	// ReplyTo, or Sender.
	Recipient        *Address         `json:"recipient,omitempty"`
	RecipientChanged *RecipientChange `json:"recipient_changed,omitempty"` // the mail asks for another recipient, unproven
	Chosen           bool             `json:"chosen,omitempty"`            // of outbound mail: an agent selected the recipient
	Bcc              []Address        `json:"bcc,omitempty"`               // of outbound mail: blind copies
	Markdown         bool             `json:"markdown,omitempty"`          // of outbound mail: HTML is Text, rendered
	Forwarded        []string         `json:"forwarded,omitempty"`         // of forwards: the ids of the copied messages, also of those in copied forwards
	Mentions         []string         `json:"mentions,omitempty"`          // of notes: the ids of the mentioned members
	// Metadata has further fields of the channel, such as the payload of a button.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Annotations are later changes of the message and reactions to it, in order.
	Annotations  []Annotation `json:"annotations,omitempty"`
	OriginalText string       `json:"original_text,omitempty"` // before the first edit
	Deleted      bool         `json:"deleted,omitempty"`       // deleted by its author; its content is gone
	Redacted     bool         `json:"redacted,omitempty"`      // its customer's data was redacted
}

// Authentication is the result of checking a mail's sender, with a reason in plain
// words.
type Authentication struct {
	Verdict mailauth.Verdict `json:"verdict"`
	Reason  string           `json:"reason"`
	Domain  string           `json:"domain,omitempty"` // of the From address
}

func newAuthentication(r mailauth.Result) *Authentication {
	if r.Verdict == "" {
		return nil
	}
	return &Authentication{r.Verdict, line(r.Reason, 500), line(r.Domain, maxKey)}
}

// Authentication returns the result of checking a received mail's sender; nil for
// other messages, and for mail received before the check existed.
func (m *Message) Authentication() *Authentication {
	d := &m.Details
	if d.Authentication == nil && d.Unverified {
		_, domain, _ := strings.Cut(d.Sender, "@")
		return &Authentication{mailauth.Failed, "the receiving mail server reports that DMARC failed", domain}
	}
	return d.Authentication
}

// Annotation is a reaction, an edit or a deletion at the provider.
type Annotation struct {
	Kind channel.AnnotationKind `json:"kind"`
	By   string                 `json:"by,omitempty"`    // the name, or ByID
	ByID string                 `json:"by_id,omitempty"` // the number, address or id on the channel
	Text string                 `json:"text,omitempty"`  // the reaction, or the text as edited
	At   time.Time              `json:"at"`
}

// Address is an e-mail address with its name, as given.
type Address struct {
	Name  string `json:"name,omitempty"`
	Email string `json:"email"`
}

const messageColumns = `id, ticket_id, conversation_id, direction, author_type, author_id, author_name, channel, kind,
	body, stripped, html, external_id, delivery_state, delivery_error, placed_by, details, sent_at, created_at, seq`

// threadOrder is the order of a ticket's messages: that of their acceptance. The database numbers
// messages as they are inserted, under the lock of their ticket, so a message is never inserted
// before one that was shown. Messages of one lane are in its order, also in merged tickets.
// Messages from before the numbers have 0, and the order of their ids.
const threadOrder = "seq, id"

// sqlNewest is the id of the newest message of a ticket that meets a condition on n; NULL if none
// does.
func sqlNewest(ticket, condition string) string {
	return fmt.Sprintf(`coalesce(
		(SELECT n.id FROM messages n WHERE n.ticket_id = %[1]s AND n.seq > 0 AND %[2]s ORDER BY n.seq DESC LIMIT 1),
		(SELECT n.id FROM messages n WHERE n.ticket_id = %[1]s AND n.seq = 0 AND %[2]s ORDER BY n.id DESC LIMIT 1))`, ticket, condition)
}

func scanMessage(row db.Row) (Message, error) {
	m := Message{Attachments: []Attachment{}}
	err := row.Scan(&m.ID, &m.TicketID, &m.ConversationID, &m.Direction, &m.Author.Type, db.IntoText(&m.Author.ID), &m.Author.Name,
		&m.Channel, &m.Kind, &m.Text, db.IntoText(&m.Stripped), db.IntoText(&m.HTML), db.IntoText(&m.ExternalID),
		db.IntoText((*string)(&m.Delivery.State)), db.IntoText(&m.Delivery.Error), &m.PlacedBy, db.IntoJSON(&m.Details),
		db.IntoTime(&m.SentAt), db.IntoTime(&m.CreatedAt), &m.seq)
	return m, err
}

// Messages returns the messages and notes of a ticket, in order. Error: NotFound
// for another organization's ticket.
func (s *Service) Messages(ctx context.Context, q db.Querier, organizationID, ticketID string) ([]Message, error) {
	if _, err := s.Ticket(ctx, q, organizationID, ticketID); err != nil {
		return nil, err
	}
	messages, err := db.All(ctx, q, scanMessage, "SELECT "+messageColumns+" FROM messages WHERE ticket_id = $1 ORDER BY "+threadOrder, ticketID)
	if err != nil {
		return nil, err
	}
	return messages, s.fillAttachments(ctx, q, ticketID, messages)
}

// fillAttachments loads the attachments of messages of a ticket.
func (s *Service) fillAttachments(ctx context.Context, q db.Querier, ticketID string, messages []Message) error {
	attachments, err := db.All(ctx, q, s.scanAttachment, "SELECT "+attachmentColumns+" FROM attachments WHERE ticket_id = $1 ORDER BY id", ticketID)
	if err != nil {
		return err
	}
	at := make(map[string]*Message, len(messages))
	for i := range messages {
		at[messages[i].ID] = &messages[i]
	}
	for _, a := range attachments {
		if m := at[a.MessageID]; m != nil {
			m.Attachments = append(m.Attachments, a)
		}
	}
	return nil
}

// insertMessage writes m and reports whether it is new: false if its conversation
// has a message with the same external id. Its ticket is new, or locked.
func (s *Service) insertMessage(ctx context.Context, tx *db.Tx, organizationID string, m *Message) (bool, error) {
	var details any
	if !m.Details.isZero() {
		details = db.JSON(m.Details)
	}
	next := "(SELECT last + 1 FROM message_numbers)"
	if s.db.Postgres() {
		next = "DEFAULT"
	}
	n, err := tx.Exec(ctx, "INSERT INTO messages ("+messageColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, `+next+") ON CONFLICT DO NOTHING",
		m.ID, m.TicketID, m.ConversationID, m.Direction, m.Author.Type, db.Text(m.Author.ID), m.Author.Name, m.Channel, m.Kind,
		m.Text, db.Text(m.Stripped), db.Text(m.HTML), db.Text(m.ExternalID), db.Text(string(m.Delivery.State)), db.Text(m.Delivery.Error),
		string(m.PlacedBy), details, db.Time(m.SentAt), m.CreatedAt.UnixMicro())
	if err != nil {
		return false, fmt.Errorf("write message: %w", err)
	}
	if n == 0 {
		return false, nil
	}
	return true, s.enqueueMessageIndexing(ctx, tx, organizationID, m)
}

func (d *Details) isZero() bool {
	return d.Class == "" && d.ClassRule == "" && d.Subject == "" && d.Sender == "" && d.ReplyTo == "" && len(d.To) == 0 && len(d.Cc) == 0 &&
		!d.Unverified && !d.NoAutoAnswer && !d.NewParticipant && !d.SentElsewhere && !d.Collapsed && !d.Flood &&
		!d.Automatic && d.InReplyTo == "" && len(d.References) == 0 &&
		d.Authentication == nil && d.Recipient == nil && d.RecipientChanged == nil && !d.Chosen && len(d.Bcc) == 0 && !d.Markdown && len(d.Forwarded) == 0 && len(d.Mentions) == 0 && len(d.Metadata) == 0 && len(d.Annotations) == 0 && d.OriginalText == "" && !d.Deleted && !d.Redacted
}

// messageSnapshot returns m in the form of events. Links to files are absolute and
// signed, since receivers have no session.
func (s *Service) messageSnapshot(m *Message) *event.Message {
	e := &event.Message{
		ID: m.ID, TicketID: m.TicketID, ConversationID: m.ConversationID, Direction: m.Direction, Author: m.Author,
		Channel: m.Channel, Kind: m.Kind, Text: m.Text, HTML: m.HTML, Attachments: []event.Attachment{},
		ExternalID: m.ExternalID, CreatedAt: m.CreatedAt,
	}
	for i := range m.Attachments {
		a := &m.Attachments[i]
		file := event.Attachment{ID: a.ID, Name: a.Name, ContentType: a.ContentType}
		if a.BlobKey != "" {
			file.Size = &a.Size
		}
		// No event announces the arrival of a pending file: its link works from then on.
		if a.BlobKey != "" || a.Pending {
			file.URL = cmp.Or(s.shareFile(a.ID, m.CreatedAt), a.URL)
			e.HTML = strings.ReplaceAll(e.HTML, `="`+AttachmentPath+a.ID+`"`, `="`+html.EscapeString(file.URL)+`"`)
		}
		e.Attachments = append(e.Attachments, file)
	}
	return e
}

// Conversation is one thread with one customer on one channel inside a ticket.
type Conversation struct {
	ID           string    `json:"id"`
	TicketID     string    `json:"ticket_id"`
	ConnectionID string    `json:"connection_id"` // empty: the organization has none for it
	Channel      string    `json:"channel"`
	ThreadKey    string    `json:"thread_key"`
	CustomerID   string    `json:"customer_id"`
	OptedOutAt   time.Time `json:"opted_out_at,omitzero"` // no more messages may be sent here
	CreatedAt    time.Time `json:"created_at"`
	// Forwarded: with somebody to whom messages were forwarded, not with the customer.
	Forwarded bool `json:"forwarded,omitempty"`

	home string // the ticket before a merge into this one; empty: none
}

// Conversations returns the conversations of a ticket, in order. Another
// organization's ticket is NotFound.
func (s *Service) Conversations(ctx context.Context, q db.Querier, organizationID, ticketID string) ([]Conversation, error) {
	if _, err := s.Ticket(ctx, q, organizationID, ticketID); err != nil {
		return nil, err
	}
	return db.All(ctx, q, scanConversation, selectConversation+"WHERE c.ticket_id = $1 ORDER BY c.created_at, c.id", ticketID)
}

func insertConversation(ctx context.Context, tx *db.Tx, c *Conversation) error {
	if err := tx.Queue(ctx, `INSERT INTO conversations (ticket_id, id, connection_id, channel, thread_key, customer_id, opted_out_at, created_at, forwarded)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		c.TicketID, c.ID, c.ConnectionID, c.Channel, db.Text(c.ThreadKey), c.CustomerID, db.Time(c.OptedOutAt), c.CreatedAt.UnixMicro(), c.Forwarded); err != nil {
		return fmt.Errorf("write conversation: %w", err)
	}
	return nil
}

// AddNoteTx writes a note on a ticket, or on a merged ticket's survivor, in the
// caller's transaction, and deletes the member's draft of a note. It emits no
// event. Errors: NotFound; Invalid if the note is empty. The quota of storage
// refuses its files as the transaction ends.
func (s *Service) AddNoteTx(ctx context.Context, tx *db.Tx, organizationID, ticketID string, by Actor, w Content) (Message, error) {
	m, err := s.writeNote(ctx, tx, organizationID, ticketID, by, w)
	if err != nil {
		return Message{}, err
	}
	return m, deleteDraft(ctx, tx, by, KindNote, ticketID, m.TicketID)
}

// AddActionNoteTx is [Service.AddNoteTx] for a note about what the member did elsewhere: the
// member's draft remains.
func (s *Service) AddActionNoteTx(ctx context.Context, tx *db.Tx, organizationID, ticketID string, by Actor, w Content) (Message, error) {
	return s.writeNote(ctx, tx, organizationID, ticketID, by, w)
}

// writeNote is [Service.AddNoteTx] without the deletion of the draft.
func (s *Service) writeNote(ctx context.Context, tx *db.Tx, organizationID, ticketID string, by Actor, w Content) (Message, error) {
	if w.Empty() {
		var v problem.Validation
		v.AddCode("required", "text", "must be given")
		return Message{}, v.Err()
	}
	t, err := lockSurvivor(ctx, tx, organizationID, ticketID)
	if err != nil {
		return Message{}, notFound(err, "ticket")
	}
	m := Message{
		ID: newID(), TicketID: t.ID, Direction: DirectionOutbound, Author: by.author(),
		Channel: t.Channel, Kind: KindNote, PlacedBy: RuleWritten, CreatedAt: tx.Now,
	}
	s.setContent(&m, &w)
	if m.Details.Mentions, err = s.mentionedIn(ctx, tx, organizationID, m.Text); err != nil {
		return Message{}, err
	}
	if err := s.addNote(ctx, tx, organizationID, &m); err != nil {
		return Message{}, err
	}
	if err := s.noticeNote(ctx, tx, organizationID, &m); err != nil {
		return Message{}, err
	}
	s.notifyChanged(tx, organizationID, t.ID)
	return m, s.insertAttachments(ctx, tx, organizationID, &m, quota.Enforced)
}

// notifyChanged calls Config.Changed after the commit of a change without an event.
func (s *Service) notifyChanged(tx *db.Tx, organizationID, ticketID string) {
	if s.onChanged != nil && ticketID != "" {
		tx.AfterCommit(func() { s.onChanged(organizationID, ticketID) })
	}
}

// addNote writes a note into a ticket, which the update of the ticket locks.
func (s *Service) addNote(ctx context.Context, tx *db.Tx, organizationID string, m *Message) error {
	heard := ""
	if m.Direction == DirectionInbound {
		heard = ", " + setHeardAt
	}
	if err := tx.Queue(ctx, "UPDATE tickets SET updated_at = $2"+heard+" WHERE id = $1", m.TicketID, tx.Now.UnixMicro()); err != nil {
		return fmt.Errorf("touch ticket: %w", err)
	}
	_, err := s.insertMessage(ctx, tx, organizationID, m)
	return err
}
