package desk

import (
	"context"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ChannelAPI is the channel of what was handed to the API. It has no far side: what
// is said there is kept and told of by events, and whoever integrates carries it
// further.
const ChannelAPI = "api"

// NewTicket is a ticket that somebody makes here, rather than by a message that
// comes in.
type NewTicket struct {
	Subject    string
	Channel    string  // empty: [ChannelAPI]
	CustomerID string  // or Customer
	Customer   *Person // found or made, by the rules that hold for messages
	Priority   Priority
	AssigneeID string // a member of the organization; empty: nobody
	Tags       []string
	ExternalID string // unique among the organization's tickets; empty: none
	Metadata   Changed
	Says       Written // what the customer wrote; may say nothing
}

// Person is who a new ticket is for. At least one member is set.
type Person struct {
	Name  string
	Email string
	Phone string // in any international spelling
}

// Check implements [problem.Checker].
func (n *NewTicket) Check(v *problem.Validation) {
	v.Length("subject", strings.TrimSpace(n.Subject), 1, maxSubject)
	if n.Channel != "" && n.Channel != ChannelAPI {
		v.Add("channel", "must be one that tickets can be made on: api")
	}
	switch {
	case n.CustomerID != "" && n.Customer != nil:
		v.AddCode("conflict", "customer", "must not be given beside customer_id")
	case n.CustomerID == "" && n.Customer == nil:
		v.AddCode("required", "customer_id", "or customer must be given")
	case n.Customer != nil:
		n.Customer.check(v)
	}
	if n.Priority != "" {
		checkPriority(v, n.Priority)
	}
	checkTags(v, n.Tags)
	checkExternalID(v, n.ExternalID)
	n.Metadata.check(v)
}

func (p *Person) check(v *problem.Validation) {
	if *p == (Person{}) {
		v.AddCode("required", "customer", "must have a name, an email or a phone")
	}
	v.Line("customer.name", p.Name, 0, maxName)
	if p.Email != "" {
		checkEmail(v, "customer.email", p.Email)
	}
	if p.Phone != "" {
		checkPhone(v, "customer.phone", p.Phone)
	}
}

// CreateTicket makes a ticket in the caller's transaction, with what n says as its
// first message, and emits what the package comment lists; ticket.created alone
// where nothing is said, followed by ticket.assigned where it is somebody's.
//
// Errors: Invalid, with code not_found for a customer or an assignee whom the
// organization does not have; Conflict already_exists for an external id that
// another ticket has.
func (s *Service) CreateTicket(ctx context.Context, tx *db.Tx, organizationID string, n NewTicket) (Ticket, error) {
	if err := problem.Check(&n); err != nil {
		return Ticket{}, err
	}
	t := Ticket{
		ID: newID(), OrganizationID: organizationID, Subject: strings.TrimSpace(n.Subject), Status: StatusOpen,
		Priority: n.Priority, Channel: ChannelAPI, AssigneeID: n.AssigneeID, Tags: tagSet(n.Tags), ExternalID: n.ExternalID,
		CreatedAt: tx.Now, UpdatedAt: tx.Now,
	}
	if t.Priority == "" {
		t.Priority = PriorityNormal
	}
	if _, err := n.Metadata.apply(&t.Metadata); err != nil {
		return Ticket{}, err
	}
	assignee, err := s.member(ctx, tx, organizationID, t.AssigneeID)
	if err != nil {
		return Ticket{}, err
	}
	k, err := s.whose(ctx, tx, organizationID, &n)
	if err != nil {
		return Ticket{}, err
	}
	t.Customer = k.Customer

	var e *entry
	if !n.Says.Empty() {
		c := Conversation{ID: newID(), TicketID: t.ID, Channel: t.Channel, CustomerID: k.ID, CreatedAt: tx.Now}
		if err := insertConversation(ctx, tx, &c); err != nil {
			return Ticket{}, err
		}
		e = &entry{Message: Message{
			ID: newID(), TicketID: t.ID, ConversationID: c.ID, Direction: DirectionInbound, Channel: t.Channel,
			Kind: KindReply, PlacedBy: RuleNone, CreatedAt: tx.Now,
		}}
		e.byCustomer(k)
		s.says(&e.Message, &n.Says)
		if _, err := insertMessage(ctx, tx, &e.Message); err != nil {
			return Ticket{}, err
		}
		if err := insertAttachments(ctx, tx, organizationID, &e.Message); err != nil {
			return Ticket{}, err
		}
	}
	if err := s.insertTicket(ctx, tx, &t, false); err != nil {
		return Ticket{}, err
	}
	t.showClocks()
	snapshot, err := s.ticketSnapshot(ctx, tx, &t)
	if err != nil {
		return Ticket{}, err
	}
	events := append(k.events, event.Event{
		OrganizationID: organizationID, Name: event.TicketCreated, Data: event.Data{Ticket: snapshot},
	})
	if assignee != nil {
		events = append(events, event.Event{
			OrganizationID: organizationID, Name: event.TicketAssigned,
			Data: event.Data{Ticket: snapshot, Changes: map[string]event.Change{"assignee": {From: nil, To: assignee}}},
		})
	}
	if e != nil {
		events = append(events, s.messageEvents(organizationID, snapshot, e, true)...)
	}
	return t, s.events.Emit(ctx, tx, events...)
}

// member returns somebody to whom a ticket may be given; nil for nobody. Whoever
// is not a member is Invalid at assignee_id.
func (s *Service) member(ctx context.Context, tx *db.Tx, organizationID, id string) (*event.Person, error) {
	if id == "" {
		return nil, nil
	}
	p, ok, err := s.directory.Agent(ctx, tx, organizationID, id)
	if err != nil {
		return nil, fmt.Errorf("look up assignee: %w", err)
	}
	if !ok {
		var v problem.Validation
		v.AddCode("not_found", "assignee_id", "must be a member of the organization")
		return nil, v.Err()
	}
	return &p, nil
}

// whose finds or makes the customer of a new ticket.
func (s *Service) whose(ctx context.Context, tx *db.Tx, organizationID string, n *NewTicket) (known, error) {
	if n.Customer == nil {
		k, err := db.One(ctx, tx, func(row db.Row) (k known, err error) {
			err = row.Scan(&k.ID, &k.Name, &k.Email, &k.Phone)
			return k, err
		}, "SELECT id, name, email, phone FROM customers WHERE id = $1 AND organization_id = $2 AND deleted_at IS NULL", n.CustomerID, organizationID)
		if problem.Of(notFound(err, "customer")) == problem.NotFound {
			var v problem.Validation
			v.AddCode("not_found", "customer_id", "must be a customer of the organization")
			return known{}, v.Err()
		}
		return k, err
	}
	party := channel.Party{Name: n.Customer.Name, Email: strings.TrimSpace(n.Customer.Email)}
	if n.Customer.Phone != "" {
		party.Phone = e164(n.Customer.Phone)
	}
	return s.customer(ctx, tx, &Inbound{OrganizationID: organizationID, Channel: ChannelAPI}, party)
}
