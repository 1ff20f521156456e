package deskapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// Deliveries describes the bodies of webhooks: of each event in form b, and in form a under its
// name and ".a". Links of the examples are below baseURL.
func Deliveries(baseURL string) ([]rest.Webhook, error) {
	var all []rest.Webhook
	for _, name := range append(event.Names[:], event.AuditRecorded) {
		sample := webhook.Sample(name, baseURL, time.Date(2026, 3, 14, 9, 26, 53, 250e6, time.UTC))
		sample.ID = "00000000-0000-7000-8000-000000000000"
		for _, form := range []payload.Form{payload.Nested, payload.Flat} {
			w := rest.Webhook{Name: string(name), Summary: eventSummaries[name], Body: nestedBody(name)}
			if form == payload.Flat {
				w = rest.Webhook{Name: string(name) + ".a", Summary: eventSummaries[name] + ", in form a", Body: flatBody(name)}
			}
			var err error
			if w.Example, err = payload.Render(form, &sample); err != nil {
				return nil, fmt.Errorf("example of a webhook: %w", err)
			}
			all = append(all, w)
		}
	}
	return all, nil
}

var eventSummaries = map[event.Name]string{
	event.TicketCreated: "A new ticket", event.TicketUpdated: "Fields of a ticket changed", event.TicketStatusChanged: "The status of a ticket changed",
	event.TicketAssigned: "The assignee of a ticket changed", event.TicketPriorityChanged: "The priority of a ticket changed", event.TicketDeleted: "A ticket was deleted",
	event.ConversationCreated: "A new conversation, with its first message", event.MessageCreated: "A new public message",
	event.MessageCustomerReply: "A reply by a customer", event.MessageAgentReply: "A reply by an agent",
	event.CustomerCreated: "A new customer", event.CustomerUpdated: "Fields of a customer changed",
	event.SLAWarning: "An SLA target is near", event.SLABreached: "An SLA target has passed", event.AuditRecorded: "A new entry of the audit log",
}

// The records in bodies of form b, as of the event.
var (
	eventTicket = schema.Nested(&schema.Record{Name: "event.ticket", Doc: "A ticket as of the event.", Members: []schema.Member{
		{Name: "id", Type: schema.ID()},
		{Name: "number", Type: schema.Integer()},
		{Name: "subject", Type: schema.Text(), Example: "Where is my bicycle?"},
		{Name: "status", Type: schema.Enum(statuses...)},
		{Name: "priority", Type: schema.Enum(priorities...)},
		{Name: "channel", Type: schema.Text(), Nullable: true},
		{Name: "customer", Nullable: true, Type: schema.Object(
			schema.Member{Name: "id", Type: schema.ID()},
			schema.Member{Name: "email", Type: schema.Text(), Nullable: true},
		)},
		{Name: "assignee", Nullable: true, Type: schema.Object(
			schema.Member{Name: "id", Type: schema.ID()},
			schema.Member{Name: "name", Type: schema.Text(), Nullable: true},
			schema.Member{Name: "email", Type: schema.Text(), Nullable: true},
		)},
		{Name: "url", Type: schema.Text(), Nullable: true, Doc: "URL of the ticket in the inbox."},
	}})
	eventMessage = schema.Nested(&schema.Record{Name: "event.message", Doc: "A message as of the event.", Members: []schema.Member{
		{Name: "id", Type: schema.ID()},
		{Name: "ticket_id", Type: schema.ID()},
		{Name: "conversation_id", Type: schema.ID(), Nullable: true},
		{Name: "direction", Type: schema.Enum(desk.DirectionInbound, desk.DirectionOutbound)},
		{Name: "author", Type: schema.Object(
			schema.Member{Name: "type", Type: schema.Enum(desk.AuthorCustomer, desk.AuthorAgent, desk.AuthorSystem)},
			schema.Member{Name: "id", Type: schema.ID(), Nullable: true},
			schema.Member{Name: "name", Type: schema.Text(), Nullable: true},
		)},
		{Name: "channel", Type: schema.Text(), Nullable: true},
		{Name: "kind", Type: schema.Enum(desk.KindReply, desk.KindNote, desk.KindForward)},
		{Name: "text", Type: schema.Text(), Nullable: true},
		{Name: "html", Type: schema.Text(), Nullable: true},
		{Name: "attachments", Type: schema.Array(schema.Object(
			schema.Member{Name: "id", Type: schema.ID()},
			schema.Member{Name: "name", Type: schema.Text(), Nullable: true},
			schema.Member{Name: "content_type", Type: schema.Text(), Nullable: true},
			schema.Member{Name: "size", Type: schema.Integer(), Nullable: true, Doc: "Bytes; null until the file is stored, or if it could not be fetched."},
			schema.Member{Name: "url", Type: schema.Text(), Nullable: true, Doc: "Valid for seven days without an API key; null if the file could not be fetched."},
		), 1000)},
		{Name: "external_id", Type: schema.Text(), Nullable: true},
		{Name: "created_at", Type: schema.Timestamp()},
	}})
	eventCustomer = schema.Nested(&schema.Record{Name: "event.customer", Doc: "A customer as of the event.", Members: []schema.Member{
		{Name: "id", Type: schema.ID()},
		{Name: "name", Type: schema.Text(), Nullable: true},
		{Name: "email", Type: schema.Text(), Nullable: true},
		{Name: "phone", Type: schema.Text(), Nullable: true},
	}})
	eventSLA = schema.Nested(&schema.Record{Name: "event.sla", Doc: "The SLA target of the event.", Members: []schema.Member{
		{Name: "metric", Type: schema.Enum(string(desk.FirstResponse), string(desk.Resolution))},
		{Name: "due_at", Type: schema.Timestamp()},
	}})
	eventChanges = schema.Map(schema.Nested(&schema.Record{Name: "event.change", Doc: "A field before and after.", Members: []schema.Member{
		{Name: "from", Type: schema.JSON()},
		{Name: "to", Type: schema.JSON()},
	}}))
	eventEntry = schema.Nested(&schema.Record{Name: "event.audit_entry", Doc: "An entry of the audit log, as exported.", Members: []schema.Member{
		{Name: "id", Type: schema.ID()},
		{Name: "organization_id", Type: schema.Text()},
		{Name: "ledger", Type: schema.Text(), Sometimes: true, Doc: "The chain of the entry."},
		{Name: "at", Type: schema.Formatted("date-time", 40)},
		{Name: "service", Type: schema.Text()},
		{Name: "environment", Type: schema.Text()},
		{Name: "sequence", Type: schema.Integer(), Doc: "Increases by 1 within a ledger."},
		{Name: "action", Type: schema.Text(), Example: "api_key.created"},
		{Name: "outcome", Type: schema.Text(), Sometimes: true},
		{Name: "actor", Type: schema.Object(
			schema.Member{Name: "type", Type: schema.Text()},
			schema.Member{Name: "id", Type: schema.Text(), Sometimes: true},
			schema.Member{Name: "email", Type: schema.Text(), Sometimes: true},
		)},
		{Name: "target", Type: schema.Object(
			schema.Member{Name: "type", Type: schema.Text()},
			schema.Member{Name: "id", Type: schema.Text()},
			schema.Member{Name: "name", Type: schema.Text()},
			schema.Member{Name: "partial_key", Type: schema.Text(), Sometimes: true},
		)},
		{Name: "ip", Type: schema.Text(), Sometimes: true},
		{Name: "user_agent", Type: schema.Text(), Sometimes: true},
		{Name: "request_id", Type: schema.Text(), Sometimes: true},
		{Name: "surface", Type: schema.Text(), Sometimes: true},
		{Name: "changes", Type: eventChanges, Nullable: true},
		{Name: "details", Type: schema.Map(schema.JSON()), Nullable: true},
		{Name: "key_id", Type: schema.Text(), Sometimes: true, Doc: "The key of the hash."},
		{Name: "previous", Type: schema.Text(), Sometimes: true, Doc: "The hash of the entry before."},
		{Name: "hash", Type: schema.Text(), Sometimes: true},
	}})
)

// testMember marks test deliveries.
var testMember = schema.Member{Name: "test", Type: schema.Bool(), Sometimes: true, Doc: "true in a test delivery."}

// dataMembers returns the records of an event in form b.
func dataMembers(name event.Name) []schema.Member {
	var members []schema.Member
	add := func(name string, t schema.Type) { members = append(members, schema.Member{Name: name, Type: t}) }
	kind, _, _ := strings.Cut(string(name), ".")
	switch kind {
	case "ticket":
		add("ticket", eventTicket)
	case "conversation", "message":
		add("ticket", eventTicket)
		add("message", eventMessage)
	case "customer":
		add("customer", eventCustomer)
	case "sla":
		add("ticket", eventTicket)
		add("sla", eventSLA)
	case "audit":
		add("entry", eventEntry)
	}
	switch name {
	case event.TicketUpdated, event.CustomerUpdated:
		members = append(members, schema.Member{Name: "changes", Type: eventChanges, Sometimes: true, Doc: "The changed fields; absent if a change has none of them."})
	case event.TicketStatusChanged, event.TicketAssigned, event.TicketPriorityChanged:
		add("changes", eventChanges)
	}
	return append(members, testMember)
}

// nestedBody describes the body of form b.
func nestedBody(name event.Name) *schema.Record {
	return &schema.Record{Name: "event." + string(name), Doc: eventSummaries[name] + ".", Members: []schema.Member{
		{Name: "id", Type: schema.ID(), Doc: "The same for every delivery of the event, as in Webhook-Id."},
		{Name: "event", Type: schema.Enum(string(name))},
		{Name: "created_at", Type: schema.Timestamp()},
		{Name: "data", Type: schema.Object(dataMembers(name)...), Doc: "The records at the time of the event."},
	}}
}

// flatBody describes the body of form a.
func flatBody(name event.Name) *schema.Record {
	return &schema.Record{Name: "flat_event." + string(name), Doc: eventSummaries[name] + ", in form a.", Members: []schema.Member{
		{Name: "event", Type: schema.Enum(string(name))},
		{Name: "timestamp", Type: schema.Timestamp()},
		{Name: "data", Type: schema.Object(flatMembers(name)...), Doc: "The records at the time of the event."},
	}}
}

// flatMembers returns the fields of an event's records in form a.
func flatMembers(name event.Name) []schema.Member {
	var members []schema.Member
	add := func(nullable bool, t schema.Type, names ...string) {
		for _, n := range names {
			members = append(members, schema.Member{Name: n, Type: t, Nullable: nullable})
		}
	}
	kind, _, _ := strings.Cut(string(name), ".")
	switch kind {
	case "customer":
		add(false, schema.ID(), "customerId")
		add(true, schema.Text(), "name", "email", "phone")
	case "audit":
		add(false, eventEntry, "entry")
	default:
		add(false, schema.ID(), "ticketId")
		add(false, schema.Integer(), "ticketNumber")
		add(false, schema.Text(), "subject")
		add(false, schema.Enum(statuses...), "status")
		add(false, schema.Enum(priorities...), "priority")
		add(true, schema.Text(), "customerId", "customerEmail")
	}
	switch {
	case name == event.TicketUpdated || name == event.TicketAssigned:
		add(true, schema.Text(), "assigneeId", "assigneeName", "assigneeEmail")
	case kind == "conversation" || kind == "message":
		members = append(members, flatMessage()...)
	case kind == "sla":
		add(false, schema.Enum(string(desk.FirstResponse), string(desk.Resolution)), "metric")
		add(false, schema.Timestamp(), "dueAt")
	}
	return append(append(members, flatChanges(name)...), testMember)
}

// flatMessage returns the fields of a message in form a.
func flatMessage() []schema.Member {
	return []schema.Member{
		{Name: "messageId", Type: schema.ID()},
		{Name: "conversationId", Type: schema.ID(), Nullable: true},
		{Name: "direction", Type: schema.Enum(desk.DirectionInbound, desk.DirectionOutbound)},
		{Name: "authorType", Type: schema.Enum(desk.AuthorCustomer, desk.AuthorAgent, desk.AuthorSystem)},
		{Name: "authorId", Type: schema.ID(), Nullable: true},
		{Name: "authorName", Type: schema.Text(), Nullable: true},
		{Name: "channel", Type: schema.Text(), Nullable: true},
		{Name: "kind", Type: schema.Enum(desk.KindReply, desk.KindNote, desk.KindForward)},
		{Name: "text", Type: schema.Text(), Nullable: true},
		{Name: "html", Type: schema.Text(), Nullable: true},
		{Name: "attachments", Type: schema.Array(schema.Nested(flatAttachment), 1000)},
		{Name: "externalId", Type: schema.Text(), Nullable: true},
		{Name: "createdAt", Type: schema.Timestamp()},
	}
}

var flatAttachment = &schema.Record{Name: "flat_event.attachment", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "name", Type: schema.Text(), Nullable: true},
	{Name: "contentType", Type: schema.Text(), Nullable: true},
	{Name: "size", Type: schema.Integer(), Nullable: true},
	{Name: "url", Type: schema.Text(), Nullable: true},
}}

// flatChanges returns the fields of changes in form a: the former values and, unless the records
// have them, the new ones.
func flatChanges(name event.Name) []schema.Member {
	var fields, news []string
	switch name {
	case event.TicketStatusChanged:
		fields = []string{"Status"}
	case event.TicketPriorityChanged:
		fields = []string{"Priority"}
	case event.TicketAssigned:
		fields = []string{"AssigneeId"}
	case event.TicketUpdated:
		fields = []string{"Subject", "Status", "Priority", "AssigneeId", "CustomerId", "Tags", "SnoozedUntil", "ExternalId", "Metadata", "MergedIntoId", "MergedTicketId", "SplitTicketId"}
		news = []string{"tags", "snoozedUntil", "externalId", "metadata", "mergedIntoId", "mergedTicketId", "splitTicketId"}
	case event.CustomerUpdated:
		fields = []string{"Name", "Email", "Phone", "Emails", "Phones", "Identities", "ExternalId", "Metadata", "MergedIntoId", "MergedCustomerId"}
		news = []string{"emails", "phones", "identities", "externalId", "metadata", "mergedIntoId", "mergedCustomerId"}
	}
	var members []schema.Member
	for _, f := range fields {
		members = append(members, schema.Member{Name: "previous" + f, Type: schema.JSON(), Sometimes: true, Doc: "The value before; absent if it did not change."})
	}
	for _, f := range news {
		members = append(members, schema.Member{Name: f, Type: schema.JSON(), Sometimes: true, Doc: "The new value; absent if it did not change."})
	}
	return members
}
