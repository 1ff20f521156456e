package desk

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	Files          []blob.Ref // of the message's attachments, from [Service.Prepare]
	ReceivedAt     time.Time  // when the request came; zero: now
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
// attachments must have been through [Service.Prepare]. An error undoes
// everything and the same event may be tried again.
func (s *Service) Intake(ctx context.Context, tx *db.Tx, in Inbound) (Result, error) {
	if in.OrganizationID == "" || in.Channel == "" {
		return Result{}, errors.New("desk: an inbound event needs an organization and a channel")
	}
	if in.ReceivedAt.IsZero() || in.ReceivedAt.After(tx.Now) {
		in.ReceivedAt = tx.Now
	}
	in.ReceivedAt = in.ReceivedAt.UTC().Truncate(time.Microsecond)
	switch m := in.Event.Message; {
	case in.Event.Receipt != nil:
		return s.intakeReceipt(ctx, tx, &in, in.Event.Receipt)
	case m != nil && m.Mail != nil:
		return s.intakeMail(ctx, tx, &in, m)
	case m != nil && m.ThreadKey != "":
		return s.intakeThreaded(ctx, tx, &in, m)
	default:
		return Result{}, errors.New("desk: an inbound event needs a receipt, or a message with a thread key or mail")
	}
}

// entry is a message about to be written, with what goes beside it.
type entry struct {
	Message
	ids          []string      // Message-IDs of the mail, under which others may name it
	participants []participant // who takes part from now on
	customer     known         // who wrote it, or whom it was written to
	optOut       bool          // no more messages, please
	optIn        bool          // messages again, please
}

// place is where a message goes.
type place struct {
	ticket         Ticket
	conversationID string
	customerID     string        // the conversation's
	begins         *Conversation // written with the message: the conversation, if it is new in the ticket
}

// newEntry is the message that came in, not placed yet.
func newEntry(in *Inbound, m *channel.Message) *entry {
	e := &entry{Message: Message{
		ID: newID(), Direction: DirectionInbound, Channel: in.Channel, Kind: KindReply,
		Text: clean(m.Text), HTML: clean(m.HTML), ExternalID: short(m.ExternalID), CreatedAt: in.ReceivedAt,
	}}
	if m.Stripped != m.Text {
		e.Stripped = clean(m.Stripped)
	}
	if !m.SentAt.IsZero() && m.SentAt.Year() > 1900 && m.SentAt.Year() < 10000 {
		e.SentAt = m.SentAt.UTC().Truncate(time.Microsecond)
	}
	return e
}

// byCustomer makes k the author.
func (e *entry) byCustomer(k known) {
	e.customer = k
	e.Author = event.Author{Type: AuthorCustomer, ID: k.ID, Name: k.Name}
}

// byAgent makes e a message that somebody at our side sent to k with another program.
func (e *entry) byAgent(agent event.Person) {
	e.Direction = DirectionOutbound
	e.Author = event.Author{Type: AuthorAgent, ID: agent.ID, Name: agent.Name}
	e.Delivery.State = channel.ReceiptSent
	e.Details.SentElsewhere = true
}

// intakeThreaded places a message by its thread key.
func (s *Service) intakeThreaded(ctx context.Context, tx *db.Tx, in *Inbound, m *channel.Message) (Result, error) {
	e := newEntry(in, m)
	e.PlacedBy, e.optOut, e.optIn = RuleThreadKey, m.OptOut, m.OptIn
	party := m.From
	if m.Outbound {
		if len(m.To) == 0 {
			return Result{}, errors.New("desk: an outbound message needs a recipient")
		}
		party = m.To[0]
		e.byAgent(event.Person{Name: line(m.From.Name, maxName)})
	}
	key, scope := threadValue(m.ThreadKey), in.scope()

	p, err := findThread(ctx, tx, key, scope)
	if errors.Is(err, db.ErrNoRows) {
		points := in.points(party)
		thread := -1
		for i := range points {
			if points[i].value == key && points[i].scope == scope {
				thread = i
			}
		}
		if thread < 0 {
			thread = len(points)
			points = append(points, point{value: key, scope: scope, kind: pointThread})
		}
		points[thread].thread = true
		p = place{ticket: Ticket{ID: newID()}, conversationID: newID()}
		customerID := newID()
		owners, err := claim(ctx, tx, points, customerID, p.ticket.ID, p.conversationID)
		if err != nil {
			return Result{}, err
		}
		k, err := s.settle(ctx, tx, in, party, customerID, points, owners)
		if err != nil {
			return Result{}, err
		}
		if !m.Outbound {
			e.byCustomer(k)
		}
		e.customer = k
		if owners[thread].conversationID == p.conversationID {
			e.PlacedBy = RuleNone
			return s.start(ctx, tx, in, &p, Conversation{ThreadKey: key}, subject(m, party), e)
		}
		// Somebody else's first message was quicker.
		if p, err = findThread(ctx, tx, key, scope); err != nil {
			return Result{}, fmt.Errorf("find the thread that was just made: %w", err)
		}
		return s.append(ctx, tx, in, &p, e)
	}
	if err != nil {
		return Result{}, fmt.Errorf("find thread: %w", err)
	}
	k := known{Customer: p.ticket.Customer}
	if p.customerID != k.ID {
		if k, err = loadCustomer(ctx, tx, p.customerID); err != nil {
			return Result{}, err
		}
	}
	if k.Name == "" && party.Name != "" {
		if err := fillIn(ctx, tx, in.OrganizationID, &k, channel.Party{Name: party.Name}); err != nil {
			return Result{}, err
		}
		if p.customerID == p.ticket.Customer.ID {
			p.ticket.Customer = k.Customer
		}
	}
	if !m.Outbound {
		e.byCustomer(k)
	}
	e.customer = k
	if !p.ticket.movedAt.IsZero() {
		// It may have been split off since it came first.
		if ids, err := lookUp(ctx, tx, []string{scope}, []string{e.ExternalID}); err != nil {
			return Result{}, err
		} else if there, ok := ids.find(e.ExternalID); ok && there.conversationID != p.conversationID {
			r := e.result(Duplicate, &Ticket{ID: there.ticketID})
			r.ConversationID, r.MessageID = there.conversationID, there.messageID
			return r, s.events.Emit(ctx, tx, k.events...)
		}
	}
	return s.append(ctx, tx, in, &p, e)
}

// findThread finds a thread and locks its ticket.
func findThread(ctx context.Context, tx *db.Tx, key, scope string) (place, error) {
	for {
		p, err := readThread(ctx, tx, key, scope)
		if err != nil {
			return place{}, err
		}
		// A merge may have been quicker.
		if ok, err := p.holds(ctx, tx); err != nil || ok {
			return p, err
		}
	}
}

func readThread(ctx context.Context, tx *db.Tx, key, scope string) (place, error) {
	var p place
	err := tx.QueryRow(ctx, "SELECT "+ticketColumns+`, c.id, c.customer_id
		FROM contact_points p
		JOIN tickets t ON t.id = p.ticket_id
		JOIN conversations c ON c.ticket_id = p.ticket_id AND c.id = p.conversation_id
		JOIN customers u ON u.id = t.customer_id
		WHERE p.value = $1 AND p.scope = $2 FOR UPDATE OF t`, key, scope).
		Scan(ticketFields(&p.ticket, &p.conversationID, &p.customerID)...)
	return p, err
}

// KnowsThread reports whether a sender has a thread on a connection, and so a
// ticket: whether whoever writes is not new there.
func (s *Service) KnowsThread(ctx context.Context, q db.Querier, connectionID, sender string) (bool, error) {
	var n int
	err := q.QueryRow(ctx, "SELECT count(*) FROM contact_points WHERE value = $1 AND scope = $2 AND conversation_id IS NOT NULL",
		threadValue(sender), connectionID).Scan(&n)
	return n > 0, err
}

// subject is what a ticket is called whose channel has no subjects.
func subject(m *channel.Message, p channel.Party) string {
	if text := line(m.Subject, maxSubject); text != "" {
		return text
	}
	for text := range strings.SplitSeq(m.Text[:min(len(m.Text), 1000)], "\n") {
		if text = line(text, 80); text != "" {
			return text
		}
	}
	for _, who := range []string{p.Name, p.Phone, p.Email, p.ID} {
		if who != "" {
			return "Message from " + line(who, 80)
		}
	}
	return "Message"
}

// start writes a new ticket with one conversation and its first message. Ids in p
// are used where they are set already.
func (s *Service) start(ctx context.Context, tx *db.Tx, in *Inbound, p *place, c Conversation, subject string, e *entry) (Result, error) {
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
	if e.optOut {
		c.OptedOutAt = e.CreatedAt
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
func (s *Service) append(ctx context.Context, tx *db.Tx, in *Inbound, p *place, e *entry) (Result, error) {
	t := &p.ticket
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
	if changes != nil {
		_, err = tx.Exec(ctx, "UPDATE tickets SET updated_at = $2, status = $3, resolved_at = $4 WHERE id = $1",
			t.ID, t.UpdatedAt.UnixMicro(), string(t.Status), db.Time(t.ResolvedAt))
	} else {
		// Without the status, so that no index is touched.
		_, err = tx.Exec(ctx, "UPDATE tickets SET updated_at = $2, first_responded_at = $3 WHERE id = $1",
			t.ID, t.UpdatedAt.UnixMicro(), db.Time(t.FirstRespondedAt))
	}
	if err != nil {
		return Result{}, fmt.Errorf("change ticket: %w", err)
	}
	if clocks {
		if err := s.followTicket(ctx, tx, t, at, false); err != nil {
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

// keep writes a message into a ticket for agents to see, and nothing else: it
// neither reopens the ticket nor emits events.
func (s *Service) keep(ctx context.Context, tx *db.Tx, in *Inbound, p *place, e *entry) (Result, error) {
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
func (s *Service) write(ctx context.Context, tx *db.Tx, in *Inbound, p *place, e *entry) (bool, error) {
	e.TicketID, e.ConversationID = p.ticket.ID, p.conversationID
	if m := in.Event.Message; m != nil {
		e.Attachments = nil
		s.attach(&e.Message, m.Attachments, in.Files)
	}
	if p.begins != nil {
		if err := insertConversation(ctx, tx, p.begins); err != nil {
			return false, err
		}
	}
	if fresh, err := insertMessage(ctx, tx, &e.Message); err != nil || !fresh {
		return false, err
	}
	if err := insertAttachments(ctx, tx, in.OrganizationID, &e.Message); err != nil {
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
		if len(e.ids) == 0 && e.ExternalID != "" {
			if err := insertID(ctx, tx, in.scope(), e.ExternalID, &e.Message); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// duplicate is the result for a message that its conversation has already.
func (s *Service) duplicate(ctx context.Context, tx *db.Tx, t *Ticket, conversationID string, e *entry) (Result, error) {
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

func (e *entry) result(o Outcome, t *Ticket) Result {
	return Result{
		Outcome: o, PlacedBy: e.PlacedBy, Class: e.Details.Class, ClassRule: e.Details.ClassRule,
		TicketID: t.ID, TicketNumber: t.Number, ConversationID: e.ConversationID, MessageID: e.ID, CustomerID: e.customer.ID,
	}
}

// messageEvents tell of a new public message. The first of a ticket is no reply,
// unless it is an agent's.
func (s *Service) messageEvents(organizationID string, t *event.Ticket, e *entry, first bool) []event.Event {
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
