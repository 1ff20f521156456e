package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ChannelAPI is the channel of messages posted to the API. It has no provider:
// replies are stored and emitted as events for the integration to deliver.
const ChannelAPI = "api"

// The channels on which a ticket can start with an outbound message.
const (
	channelEmail = "email"
	channelSMS   = "sms"
)

// NewTicket describes a ticket created by a member or an API key.
type NewTicket struct {
	Subject      string
	Channel      string  // empty: [ChannelAPI]; email or sms writes to the customer
	ConnectionID string  // of that channel; empty: the organization's only one
	CustomerID   string  // or Customer
	Customer     *Person // matched or created, by the rules for messages
	Priority     Priority
	AssigneeID   string // a member of the organization; empty: unassigned
	Tags         []string
	ExternalID   string // unique among the organization's tickets; empty: none
	Metadata     MetadataUpdate
	By           Actor // the creator
	// Content is the customer's message, and may be empty; on a channel other than the
	// API's it is the message to the customer.
	Content Content
}

// Person describes the customer of a new ticket. At least one field is set.
type Person struct {
	Name  string
	Email string
	Phone string // in any international spelling
}

// Check implements [problem.Checker].
func (n *NewTicket) Check(v *problem.Validation) {
	v.Length("subject", strings.TrimSpace(n.Subject), 1, maxSubject)
	switch n.Channel {
	case "", ChannelAPI:
	case channelEmail, channelSMS:
		if n.Content.Empty() {
			v.AddCode("required", "text", "must be given: it is the message to the customer")
		}
	default:
		v.Add("channel", "must be one of api, email, sms")
	}
	switch {
	case n.CustomerID != "" && n.Customer != nil:
		v.AddCode("conflict", "customer", "must not be combined with customer_id")
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

// CreateTicketTx creates a ticket in the caller's transaction, with n.Content as its
// first message, and emits the events that the package comment lists; without
// content only ticket.created and, for an assigned ticket, ticket.assigned.
//
// On a channel other than the API's the message is sent to the customer, as by
// [Service.ReplyTx], and replies join the ticket. If a number's messages form one
// thread and it exists, the error is Conflict already_exists with the field
// customer, ticket_id and ticket_number.
//
// Errors: Invalid, with code not_found for an unknown customer or assignee;
// Conflict already_exists for an external id in use.
func (s *Service) CreateTicketTx(ctx context.Context, tx *db.Tx, organizationID string, n NewTicket) (Ticket, error) {
	if err := problem.Check(&n); err != nil {
		return Ticket{}, err
	}
	t := Ticket{
		ID: newID(), OrganizationID: organizationID, Subject: strings.TrimSpace(n.Subject), Status: StatusOpen,
		Priority: n.Priority, Channel: cmp.Or(n.Channel, ChannelAPI), AssigneeID: n.AssigneeID, Tags: tagSet(n.Tags), ExternalID: n.ExternalID,
		CreatedAt: tx.Now, UpdatedAt: tx.Now,
	}
	if t.Priority == "" {
		t.Priority = PriorityNormal
	}
	if _, err := n.Metadata.apply(&t.Metadata); err != nil {
		return Ticket{}, err
	}
	if _, err := s.checkAssignee(ctx, tx, organizationID, t.AssigneeID); err != nil {
		return Ticket{}, err
	}
	k, err := s.ticketCustomer(ctx, tx, organizationID, &n)
	if err != nil {
		return Ticket{}, err
	}
	t.Customer = k.Customer

	var e *unsavedMessage
	if !n.Content.Empty() {
		if e, err = s.writeFirstMessage(ctx, tx, &t, k, &n); err != nil {
			return Ticket{}, err
		}
	}
	if err := s.insertTicket(ctx, tx, &t, e != nil && e.Direction == DirectionOutbound); err != nil {
		return Ticket{}, err
	}
	if e == nil { // a message indexes the subject too
		if err := s.enqueueTicketIndexing(ctx, tx, &t); err != nil {
			return Ticket{}, err
		}
	}
	if err := recordCreation(ctx, tx, &t, originOf(ctx)); err != nil {
		return Ticket{}, err
	}
	if err := s.noticeAssigned(ctx, tx, &t); err != nil {
		return Ticket{}, err
	}
	t.showClocks()
	snapshot, err := s.ticketSnapshot(ctx, tx, &t)
	if err != nil {
		return Ticket{}, err
	}
	events := append(k.events, createEvents(snapshot, organizationID)...)
	if e != nil {
		events = append(events, s.messageEvents(organizationID, snapshot, e, true)...)
	}
	return t, s.events.EmitTx(ctx, tx, events...)
}

// writeFirstMessage writes the first message of a new ticket, with its
// conversation.
func (s *Service) writeFirstMessage(ctx context.Context, tx *db.Tx, t *Ticket, k customerRef, n *NewTicket) (*unsavedMessage, error) {
	c := Conversation{ID: newID(), TicketID: t.ID, ConnectionID: n.ConnectionID, Channel: t.Channel, CustomerID: k.ID, CreatedAt: tx.Now}
	e := s.newOutboundMessage(newID(), tx.Now, t, &c, &n.Content)
	e.customer = k
	if t.Channel == ChannelAPI {
		c.ConnectionID = ""
		e.Direction, e.PlacedBy = DirectionInbound, RuleNone
		e.byCustomer(k)
	} else {
		e.Author = n.By.author()
		if err := checkReachable(n, k); err != nil {
			return nil, err
		}
		if t.Channel == channelSMS {
			c.ThreadKey = threadValue(k.Phone)
		}
		err := s.enqueueSend(ctx, tx, t, &c, e)
		if err != nil {
			return nil, ofConnection(err, n)
		}
		if t.Channel == channelSMS {
			if err := claimThread(ctx, tx, t, &c); err != nil {
				return nil, err
			}
		} else {
			c.ThreadKey = boundedKey(e.ExternalID)
		}
	}
	_, err := s.writeMessage(ctx, tx, c.inbound(t), &threadRef{ticket: *t, conversationID: c.ID, newConversation: &c}, e)
	return e, err
}

// ofConnection returns the refusal of a message that begins a ticket, as Invalid where it
// is about the connection that n names, or should name.
func ofConnection(err error, n *NewTicket) error {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return err
	}
	var v problem.Validation
	switch p.Code {
	case ConnectionNeeded:
		v.AddCode("required", "channel_id", "must be given: %s", p.Message)
	case ConnectionUnfit:
		v.AddCode("not_found", "channel_id", "must be a connection of the channel %s", n.Channel)
	default:
		return err
	}
	return v.Err()
}

// checkReachable returns an Invalid problem if the customer has no address on the
// channel.
func checkReachable(n *NewTicket, k customerRef) error {
	field, value := "email", k.Email
	if n.Channel == channelSMS {
		field, value = "phone", k.Phone
	}
	if value != "" {
		return nil
	}
	var v problem.Validation
	if n.Customer != nil {
		v.AddCode("required", "customer."+field, "must be given for this channel")
	} else {
		v.Add("customer_id", "must be a customer with an address on this channel: this one has no %s", field)
	}
	return v.Err()
}

// claimThread claims the thread key of a new conversation. Error: Conflict
// already_exists if another ticket has the thread.
func claimThread(ctx context.Context, tx *db.Tx, t *Ticket, c *Conversation) error {
	thread := contactPoint{value: c.ThreadKey, scope: threadScope(t.OrganizationID, c.ConnectionID, c.Channel), kind: pointThread, thread: true}
	owners, err := claimPoints(ctx, tx, []contactPoint{thread}, "", t.ID, c.ID)
	if err != nil || owners[0].conversationID == c.ID {
		return err
	}
	var id string
	var number int64
	if err := tx.QueryRow(ctx, "SELECT t.id, t.number FROM contact_points p JOIN tickets t ON t.id = p.ticket_id WHERE p.value = $1 AND p.scope = $2",
		thread.value, thread.scope).Scan(&id, &number); err != nil {
		return fmt.Errorf("find the ticket of a thread: %w", err)
	}
	e := problem.New(problem.Conflict, "ticket #%d has the thread of this number; reply there", number)
	e.Code, e.Details = "already_exists", map[string]any{"member": "customer", "ticket_id": id, "ticket_number": number}
	return e
}

// createEvents returns the events of a new ticket.
func createEvents(t *event.Ticket, organizationID string) []event.Event {
	events := []event.Event{{OrganizationID: organizationID, Name: event.TicketCreated, Data: event.Data{Ticket: t}}}
	if t.Assignee != nil {
		events = append(events, event.Event{
			OrganizationID: organizationID, Name: event.TicketAssigned,
			Data: event.Data{Ticket: t, Changes: map[string]event.Change{"assignee": {From: nil, To: t.Assignee}}},
		})
	}
	return events
}

// checkAssignee returns the member with an id, nil for an empty id. Error: Invalid
// at assignee_id for a user outside the organization.
func (s *Service) checkAssignee(ctx context.Context, tx *db.Tx, organizationID, id string) (*event.Person, error) {
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

// ticketCustomer returns the customer of a new ticket, and creates one if none
// matches.
func (s *Service) ticketCustomer(ctx context.Context, tx *db.Tx, organizationID string, n *NewTicket) (customerRef, error) {
	if n.Customer == nil {
		id, err := survivorID(ctx, tx, organizationID, n.CustomerID)
		if err != nil {
			return customerRef{}, err
		}
		k, err := db.One(ctx, tx, func(row db.Row) (k customerRef, err error) {
			err = row.Scan(&k.ID, &k.Name, &k.Email, &k.Phone)
			return k, err
		}, "SELECT id, name, email, phone FROM customers WHERE id = $1 AND organization_id = $2 AND deleted_at IS NULL FOR KEY SHARE", id, organizationID)
		if problem.Of(notFound(err, "customer")) == problem.NotFound {
			var v problem.Validation
			v.AddCode("not_found", "customer_id", "must be a customer of the organization")
			return customerRef{}, v.Err()
		}
		return k, err
	}
	party := channel.Party{Name: n.Customer.Name, Email: strings.TrimSpace(n.Customer.Email)}
	if n.Customer.Phone != "" {
		party.Phone = e164(n.Customer.Phone)
	}
	return s.findOrCreateCustomer(ctx, tx, &InboundEvent{OrganizationID: organizationID, Channel: ChannelAPI}, party)
}
