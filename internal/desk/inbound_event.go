package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// Inbound is a parsed event on its way in.
type Inbound struct {
	OrganizationID string
	ConnectionID   string // of that organization; empty if it has none for the address
	Channel        string // what the ticket shows: sms, email
	Event          channel.Event
	Files          []blob.Ref // of the message's attachments, from [Service.StoreFiles]
	// FetchJobs say how the message's attachments are fetched that have no file yet, one
	// each; a zero one is of an attachment that is not fetched.
	FetchJobs  []FetchJob
	ReceivedAt time.Time // when the request came; zero: now
	// RefuseGenerated says that mail which a system made on its own starts no
	// ticket here.
	RefuseGenerated bool
}

func (in *Inbound) scope() string { return threadScope(in.OrganizationID, in.ConnectionID, in.Channel) }

// Outcome is what became of an inbound event.
type Outcome string

// The outcomes.
const (
	TicketCreated  Outcome = "ticket_created"
	Appended       Outcome = "appended"  // to an existing ticket
	Noted          Outcome = "noted"     // kept in a ticket for agents only
	ReceiptApplied Outcome = "receipt"   // the state of a message that we sent
	Annotated      Outcome = "annotated" // a message that is there
	Relinked       Outcome = "relinked"  // whom a thread is with is known by something else now
	Duplicate      Outcome = "duplicate" // of a message that is there already
	Recorded       Outcome = "recorded"  // classified, and nothing else; see Reason
)

// Result says what Intake did.
type Result struct {
	Outcome        Outcome       `json:"outcome"`
	Reason         string        `json:"reason,omitempty"` // why it was only recorded
	PlacedBy       Rule          `json:"placed_by,omitempty"`
	Class          channel.Class `json:"class,omitempty"` // of mail
	ClassRule      string        `json:"class_rule,omitempty"`
	TicketID       string        `json:"ticket_id,omitempty"`
	TicketNumber   int64         `json:"ticket_number,omitempty"`
	ConversationID string        `json:"conversation_id,omitempty"`
	MessageID      string        `json:"message_id,omitempty"`
	CustomerID     string        `json:"customer_id,omitempty"`
	Reopened       bool          `json:"reopened,omitempty"`
	// MayAnswer says that an automatic acknowledgement would be proper: the
	// first message of a ticket, from a person, who will not answer by machine.
	MayAnswer bool `json:"may_answer,omitempty"`
}

// Intake gives an event its effect, in the caller's transaction. The message's
// attachments must have been through [Service.StoreFiles]. An error undoes
// everything and the same event may be tried again.
func (s *Service) Intake(ctx context.Context, tx *db.Tx, in Inbound) (Result, error) {
	if in.OrganizationID == "" || in.Channel == "" {
		return Result{}, errors.New("desk: an inbound event needs an organization and a channel")
	}
	if in.ReceivedAt.IsZero() || in.ReceivedAt.After(tx.Now) {
		in.ReceivedAt = tx.Now
	}
	in.ReceivedAt = in.ReceivedAt.UTC().Truncate(time.Microsecond)
	res, err := s.applyEvent(ctx, tx, &in)
	if err == nil && res.Outcome != TicketCreated && res.Outcome != Duplicate {
		s.notifyChanged(tx, in.OrganizationID, res.TicketID)
	}
	return res, err
}

func (s *Service) applyEvent(ctx context.Context, tx *db.Tx, in *Inbound) (Result, error) {
	switch m := in.Event.Message; {
	case in.Event.Receipt != nil:
		return s.intakeReceipt(ctx, tx, in, in.Event.Receipt)
	case in.Event.Annotation != nil:
		return s.annotate(ctx, tx, in, in.Event.Annotation)
	case in.Event.IdentityChange != nil:
		return s.relink(ctx, tx, in, in.Event.IdentityChange)
	case m != nil && m.Mail != nil:
		return s.intakeMail(ctx, tx, in, m)
	case m != nil && m.ThreadKey != "" && m.Voicemail && m.From.Phone != "" && !m.Outbound:
		return s.intakeVoicemail(ctx, tx, in, m)
	case m != nil && m.ThreadKey != "":
		return s.intakeThreaded(ctx, tx, in, m)
	default:
		return Result{}, errors.New("desk: an inbound event needs a receipt, an annotation, a relink, or a message with a thread key or mail")
	}
}

// unsavedMessage is a message about to be written, with what goes beside it.
type unsavedMessage struct {
	Message
	ids          []string         // Message-IDs of the mail, under which others may name it
	participants []participant    // who takes part from now on
	customer     customerRef      // who wrote it, or whom it was written to
	optOut       bool             // no more messages, please
	optIn        bool             // messages again, please
	chosen       chosenRecipients // of a reply by mail
}

// destination is where a message goes.
type destination struct {
	ticket          Ticket
	conversationID  string
	customerID      string        // the conversation's
	newConversation *Conversation // written with the message: the conversation, if it is new in the ticket
}

// newInboundMessage is the message that came in, not placed yet.
func newInboundMessage(in *Inbound, m *channel.Message) *unsavedMessage {
	e := &unsavedMessage{Message: Message{
		ID: newID(), Direction: DirectionInbound, Channel: in.Channel, Kind: KindReply,
		Text: clean(m.Text), HTML: clean(m.HTML), ExternalID: boundedKey(m.ExternalID), CreatedAt: in.ReceivedAt,
	}}
	if m.Stripped != m.Text {
		e.Stripped = clean(m.Stripped)
	}
	e.Details.Metadata = boundMetadata(m.Metadata)
	if !m.SentAt.IsZero() && m.SentAt.Year() > 1900 && m.SentAt.Year() < 10000 {
		e.SentAt = m.SentAt.UTC().Truncate(time.Microsecond)
	}
	return e
}

// byCustomer makes k the author.
func (e *unsavedMessage) byCustomer(k customerRef) {
	e.customer = k
	e.Author = event.Author{Type: AuthorCustomer, ID: k.ID, Name: k.Name}
}

// byAgent makes e a message that somebody at our side sent to k with another program.
func (e *unsavedMessage) byAgent(agent event.Person) {
	e.Direction = DirectionOutbound
	e.Author = event.Author{Type: AuthorAgent, ID: agent.ID, Name: agent.Name}
	e.Delivery.State = channel.ReceiptSent
	e.Details.SentElsewhere = true
}

// start writes a new ticket with one conversation and its first message. Ids in p
// are used where they are set already.
func (s *Service) start(ctx context.Context, tx *db.Tx, in *Inbound, p *destination, c Conversation, subject string, e *unsavedMessage) (Result, error) {
	t := &p.ticket
	if t.ID == "" {
		t.ID, p.conversationID = newID(), newID()
	}
	t.OrganizationID, t.Subject, t.Channel = in.OrganizationID, subject, e.Channel
	t.Status, t.Priority = StatusOpen, PriorityNormal
	t.Customer = e.customer.Customer
	t.CreatedAt, t.UpdatedAt = tx.Now, tx.Now

	c.ID, c.TicketID, c.ConnectionID, c.Channel = p.conversationID, t.ID, in.ConnectionID, e.Channel
	c.CustomerID, c.CreatedAt = e.customer.ID, tx.Now
	switch {
	case e.optOut:
		c.OptedOutAt = e.CreatedAt
	case e.optIn:
		c.OptedOutAt = time.Time{}
	}
	if err := insertConversation(ctx, tx, &c); err != nil {
		return Result{}, err
	}
	if _, err := s.write(ctx, tx, in, p, e); err != nil {
		return Result{}, err
	}
	if err := s.insertTicket(ctx, tx, t, e.Author.Type == AuthorAgent); err != nil {
		return Result{}, err
	}
	snapshot, err := s.ticketSnapshot(ctx, tx, t)
	if err != nil {
		return Result{}, err
	}
	events := append(e.customer.events, event.Event{
		OrganizationID: in.OrganizationID, Name: event.TicketCreated, Data: event.Data{Ticket: snapshot},
	})
	events = append(events, s.messageEvents(in.OrganizationID, snapshot, e, true)...)
	if err := s.events.Emit(ctx, tx, events...); err != nil {
		return Result{}, err
	}
	r := e.result(TicketCreated, t)
	r.MayAnswer = e.Direction == DirectionInbound && !e.optOut && !e.Details.NoAutoAnswer && !e.Details.Unverified
	return r, nil
}

// append writes a public message into a ticket. A customer's reopens it.
func (s *Service) append(ctx context.Context, tx *db.Tx, in *Inbound, p *destination, e *unsavedMessage) (Result, error) {
	t := &p.ticket
	if e.Details.SentElsewhere { // it is a reply that others may cross, see checkCrossing
		newest, err := newestMessage(ctx, tx, t.ID)
		if err != nil {
			return Result{}, err
		}
		e.ID = newIDAfter(newest)
	}
	fresh, err := s.write(ctx, tx, in, p, e)
	if err != nil {
		return Result{}, err
	}
	if !fresh {
		return s.duplicate(ctx, tx, t, p.conversationID, e)
	}
	if e.optOut || e.optIn {
		var at time.Time
		if e.optOut {
			at = e.CreatedAt
		}
		if _, err := tx.Exec(ctx, "UPDATE conversations SET opted_out_at = $3 WHERE ticket_id = $1 AND id = $2",
			t.ID, p.conversationID, db.Time(at)); err != nil {
			return Result{}, fmt.Errorf("note opt-out: %w", err)
		}
	}
	reopens := e.Author.Type == AuthorCustomer && t.Status != StatusOpen
	responds := e.Author.Type == AuthorAgent && t.FirstRespondedAt.IsZero()
	at := tx.Now
	if responds {
		at = e.CreatedAt // however late we hear of it
	}
	clocks := (reopens || responds) && len(t.clocks) > 0
	if clocks {
		if err := s.catchUp(ctx, tx, t, at); err != nil {
			return Result{}, err
		}
	}
	var changes map[string]event.Change
	if reopens {
		changes = map[string]event.Change{"status": {From: string(t.Status), To: string(StatusOpen)}}
		if err := s.setStatus(ctx, tx, t, StatusOpen); err != nil {
			return Result{}, err
		}
	}
	if responds {
		t.FirstRespondedAt = e.CreatedAt
	}
	t.UpdatedAt = tx.Now
	heard := ""
	if e.Direction == DirectionInbound {
		heard = ", " + setHeardAt
	}
	if changes != nil {
		_, err = tx.Exec(ctx, "UPDATE tickets SET updated_at = $2, status = $3, resolved_at = $4, closed_at = $5"+heard+" WHERE id = $1",
			t.ID, t.UpdatedAt.UnixMicro(), string(t.Status), db.Time(t.ResolvedAt), db.Time(t.closedAt))
	} else {
		// Without the status, so that no index is touched.
		_, err = tx.Exec(ctx, "UPDATE tickets SET updated_at = $2, first_responded_at = $3"+heard+" WHERE id = $1",
			t.ID, t.UpdatedAt.UnixMicro(), db.Time(t.FirstRespondedAt))
	}
	if err != nil {
		return Result{}, fmt.Errorf("change ticket: %w", err)
	}
	if clocks {
		if err := s.syncClocks(ctx, tx, t, at, false); err != nil {
			return Result{}, err
		}
	}
	snapshot, err := s.ticketSnapshot(ctx, tx, t)
	if err != nil {
		return Result{}, err
	}
	events := append(e.customer.events, s.messageEvents(in.OrganizationID, snapshot, e, false)...)
	if changes != nil {
		events = append(events, updateEvents(snapshot, in.OrganizationID, changes)...)
	}
	if err := s.events.Emit(ctx, tx, events...); err != nil {
		return Result{}, err
	}
	r := e.result(Appended, t)
	r.Reopened = changes != nil
	return r, nil
}

// appendNote writes a message into a ticket for agents to see, and nothing else: it
// neither reopens the ticket nor emits events.
func (s *Service) appendNote(ctx context.Context, tx *db.Tx, in *Inbound, p *destination, e *unsavedMessage) (Result, error) {
	e.Kind = KindNote
	fresh, err := s.write(ctx, tx, in, p, e)
	if err != nil {
		return Result{}, err
	}
	if !fresh {
		return s.duplicate(ctx, tx, &p.ticket, p.conversationID, e)
	}
	return e.result(Noted, &p.ticket), nil
}

// write writes a message at its place, with its attachments, ids and
// participants. It reports false, and writes nothing, when the conversation has it.
func (s *Service) write(ctx context.Context, tx *db.Tx, in *Inbound, p *destination, e *unsavedMessage) (bool, error) {
	e.TicketID, e.ConversationID = p.ticket.ID, p.conversationID
	if m := in.Event.Message; m != nil {
		e.Attachments = nil
		s.attach(&e.Message, m.Attachments, in.Files, in.FetchJobs)
	}
	if p.newConversation != nil {
		if err := insertConversation(ctx, tx, p.newConversation); err != nil {
			return false, err
		}
	}
	if fresh, err := s.insertMessage(ctx, tx, &e.Message); err != nil || !fresh {
		return false, err
	}
	if err := insertAttachments(ctx, tx, in.OrganizationID, &e.Message); err != nil {
		return false, err
	}
	if err := s.enqueueFetches(ctx, tx, e.Attachments, in.FetchJobs); err != nil {
		return false, err
	}
	if err := insertParticipants(ctx, tx, p, e.participants); err != nil {
		return false, err
	}
	outbound := e.Direction == DirectionOutbound
	for _, id := range e.ids {
		if err := insertID(ctx, tx, in.OrganizationID, id, &e.Message); err != nil {
			return false, err
		}
	}
	if outbound {
		if err := insertID(ctx, tx, in.OrganizationID, e.ID, &e.Message); err != nil {
			return false, err
		}
	}
	if len(e.ids) == 0 && (outbound || hasProviderIDs(e.Channel)) {
		if err := insertID(ctx, tx, in.scope(), e.ExternalID, &e.Message); err != nil {
			return false, err
		}
	}
	return true, nil
}

// duplicate is the result for a message that its conversation has already.
func (s *Service) duplicate(ctx context.Context, tx *db.Tx, t *Ticket, conversationID string, e *unsavedMessage) (Result, error) {
	if err := s.events.Emit(ctx, tx, e.customer.events...); err != nil {
		return Result{}, err
	}
	r := e.result(Duplicate, t)
	if err := tx.QueryRow(ctx, "SELECT id FROM messages WHERE conversation_id = $1 AND external_id = $2", conversationID, e.ExternalID).
		Scan(&r.MessageID); err != nil {
		return Result{}, fmt.Errorf("find the message that is there: %w", err)
	}
	return r, nil
}

func (e *unsavedMessage) result(o Outcome, t *Ticket) Result {
	return Result{
		Outcome: o, PlacedBy: e.PlacedBy, Class: e.Details.Class, ClassRule: e.Details.ClassRule,
		TicketID: t.ID, TicketNumber: t.Number, ConversationID: e.ConversationID, MessageID: e.ID, CustomerID: e.customer.ID,
	}
}

// messageEvents tell of a new public message. The first of a ticket is no reply,
// unless it is an agent's.
func (s *Service) messageEvents(organizationID string, t *event.Ticket, e *unsavedMessage, first bool) []event.Event {
	m := s.messageSnapshot(&e.Message)
	names := []event.Name{event.ConversationCreated, event.MessageCreated}
	switch {
	case e.Author.Type == AuthorAgent:
		names = append(names, event.MessageAgentReply)
	case !first && e.Author.Type == AuthorCustomer:
		names = append(names, event.MessageCustomerReply)
	}
	events := make([]event.Event, len(names))
	for i, name := range names {
		events[i] = event.Event{OrganizationID: organizationID, Name: name, Data: event.Data{Ticket: t, Message: m}}
	}
	return events
}
