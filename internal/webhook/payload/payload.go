// Package payload is the wire form of deliveries: bodies, headers and signatures
// (helpdesk.md part 6).
//
// A body is a function of the stored event and the [Form], so that every attempt sends the same
// bytes, however late. Signatures follow Standard Webhooks, beside a header of the form's own;
// [Verify] is the receiver's side. A [Request] is rebuilt byte for byte from an event, its
// headers and the stored MACs.
package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/event"
)

// Form is the payload form of a delivery's body (helpdesk.md part 6).
type Form string

// The forms.
const (
	Flat   Form = "a" // flat, camelCase
	Nested Form = "b" // nested records, snake_case
)

// timeLayout is ISO 8601 with milliseconds, for times in UTC.
const timeLayout = "2006-01-02T15:04:05.000Z"

func timestamp(t time.Time) string { return t.UTC().Format(timeLayout) }

// Render returns the body of e in form f. Fields without a value are null. The bytes are the
// same for a new event and for the stored one.
func Render(f Form, e *event.Event) ([]byte, error) {
	changes, err := canonical(e.Data.Changes)
	if err != nil {
		return nil, fmt.Errorf("changes of event %s: %w", e.ID, err)
	}
	var body any
	if f == Flat {
		body = flatBody{Event: e.Name, Timestamp: timestamp(e.At), Data: flatData(e, changes)}
	} else {
		body = nestedBody{ID: e.ID, Event: e.Name, CreatedAt: timestamp(e.At), Data: data(e, changes)}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, fmt.Errorf("render event %s: %w", e.ID, err)
	}
	return buf.Bytes()[:buf.Len()-1], nil // Encode ends with a newline
}

// EventData returns the data of an event in form [Nested], as JSON.
func EventData(e *event.Event) ([]byte, error) {
	changes, err := canonical(e.Data.Changes)
	if err != nil {
		return nil, fmt.Errorf("changes of event %s: %w", e.ID, err)
	}
	return json.Marshal(data(e, changes))
}

// data returns the data of an event in form [Nested].
func data(e *event.Event, changes map[string]event.Change) any {
	if e.Data.Fleet == nil {
		return nestedData(e, changes)
	}
	if !e.Data.Test {
		return e.Data.Fleet
	}
	// The members are written one after the other.
	return json.RawMessage(`{"test":true,` + string(e.Data.Fleet[1:]))
}

// canonical returns changes as they read back from storage: fresh values may be of any Go type,
// with different JSON. Empty strings become null, as in the records.
func canonical(changes map[string]event.Change) (map[string]event.Change, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(changes)
	if err != nil {
		return nil, err
	}
	var out map[string]event.Change
	err = json.Unmarshal(text, &out)
	for field, c := range out {
		out[field] = event.Change{From: emptyToNull(c.From), To: emptyToNull(c.To)}
	}
	return out, err
}

// emptyToNull returns nil for the empty string, and replaces empty strings in a record.
func emptyToNull(value any) any {
	switch v := value.(type) {
	case string:
		if v == "" {
			return nil
		}
	case map[string]any:
		for name, member := range v {
			v[name] = emptyToNull(member)
		}
	}
	return value
}

// orNull returns nil, marshalled as null, for the empty string.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

type nestedBody struct {
	ID        string     `json:"id"`
	Event     event.Name `json:"event"`
	CreatedAt string     `json:"created_at"`
	Data      any        `json:"data"`
}

type nestedRecords struct {
	Ticket   *ticketB                `json:"ticket,omitempty"`
	Message  *messageB               `json:"message,omitempty"`
	Customer *customerB              `json:"customer,omitempty"`
	SLA      *slaB                   `json:"sla,omitempty"`
	Changes  map[string]event.Change `json:"changes,omitempty"`
	Entry    json.RawMessage         `json:"entry,omitempty"`
	Test     bool                    `json:"test,omitempty"`
}

type ticketB struct {
	ID       string           `json:"id"`
	Number   int64            `json:"number"`
	Subject  string           `json:"subject"`
	Status   string           `json:"status"`
	Priority string           `json:"priority"`
	Channel  *string          `json:"channel"`
	Customer *ticketCustomerB `json:"customer"`
	Assignee *personB         `json:"assignee"`
	URL      *string          `json:"url"`
}

type ticketCustomerB struct {
	ID    string  `json:"id"`
	Email *string `json:"email"`
}

type personB struct {
	ID    string  `json:"id"`
	Name  *string `json:"name"`
	Email *string `json:"email"`
}

type messageB struct {
	ID             string        `json:"id"`
	TicketID       string        `json:"ticket_id"`
	ConversationID *string       `json:"conversation_id"`
	Direction      string        `json:"direction"`
	Author         authorB       `json:"author"`
	Channel        *string       `json:"channel"`
	Kind           string        `json:"kind"`
	Text           *string       `json:"text"`
	HTML           *string       `json:"html"`
	Attachments    []attachmentB `json:"attachments"`
	ExternalID     *string       `json:"external_id"`
	CreatedAt      string        `json:"created_at"`
}

type authorB struct {
	Type string  `json:"type"`
	ID   *string `json:"id"`
	Name *string `json:"name"`
}

type attachmentB struct {
	ID          string  `json:"id"`
	Name        *string `json:"name"`
	ContentType *string `json:"content_type"`
	Size        *int64  `json:"size"`
	URL         *string `json:"url"`
}

type customerB struct {
	ID    string  `json:"id"`
	Name  *string `json:"name"`
	Email *string `json:"email"`
	Phone *string `json:"phone"`
}

type slaB struct {
	Metric string `json:"metric"`
	DueAt  string `json:"due_at"`
}

func nestedData(e *event.Event, changes map[string]event.Change) nestedRecords {
	d := nestedRecords{Changes: changes, Entry: e.Data.Entry, Test: e.Data.Test}
	if t := e.Data.Ticket; t != nil {
		d.Ticket = &ticketB{
			ID: t.ID, Number: t.Number, Subject: t.Subject, Status: t.Status, Priority: t.Priority,
			Channel: orNull(t.Channel), URL: orNull(t.URL),
		}
		if c := t.Customer; c != nil {
			d.Ticket.Customer = &ticketCustomerB{ID: c.ID, Email: orNull(c.Email)}
		}
		if p := t.Assignee; p != nil {
			d.Ticket.Assignee = &personB{ID: p.ID, Name: orNull(p.Name), Email: orNull(p.Email)}
		}
	}
	if m := e.Data.Message; m != nil {
		d.Message = &messageB{
			ID: m.ID, TicketID: m.TicketID, ConversationID: orNull(m.ConversationID), Direction: m.Direction,
			Author:  authorB{Type: m.Author.Type, ID: orNull(m.Author.ID), Name: orNull(m.Author.Name)},
			Channel: orNull(m.Channel), Kind: m.Kind, Text: orNull(m.Text), HTML: orNull(m.HTML),
			Attachments: make([]attachmentB, len(m.Attachments)), ExternalID: orNull(m.ExternalID), CreatedAt: timestamp(m.CreatedAt),
		}
		for i, a := range m.Attachments {
			d.Message.Attachments[i] = attachmentB{ID: a.ID, Name: orNull(a.Name), ContentType: orNull(a.ContentType), Size: a.Size, URL: orNull(a.URL)}
		}
	}
	if c := e.Data.Customer; c != nil {
		d.Customer = &customerB{ID: c.ID, Name: orNull(c.Name), Email: orNull(c.Email), Phone: orNull(c.Phone)}
	}
	if s := e.Data.SLA; s != nil {
		d.SLA = &slaB{Metric: s.Metric, DueAt: timestamp(s.DueAt)}
	}
	return d
}

type flatBody struct {
	Event     event.Name     `json:"event"`
	Timestamp string         `json:"timestamp"`
	Data      map[string]any `json:"data"` // members are written in alphabetical order
}

// flatData returns the data of form [Flat]. Its only nested records are attachments. Fields of a
// changed record's former state are named previous….
func flatData(e *event.Event, changes map[string]event.Change) map[string]any {
	d := make(map[string]any, 16)
	if e.Data.Test {
		d["test"] = true
	}
	if t := e.Data.Ticket; t != nil {
		d["ticketId"] = t.ID
		d["ticketNumber"] = t.Number
		d["subject"] = t.Subject
		d["status"] = t.Status
		d["priority"] = t.Priority
		d["customerId"], d["customerEmail"] = nil, nil
		if c := t.Customer; c != nil {
			d["customerId"], d["customerEmail"] = c.ID, orNull(c.Email)
		}
		if e.Name == event.TicketAssigned || e.Name == event.TicketUpdated {
			d["assigneeId"], d["assigneeName"], d["assigneeEmail"] = nil, nil, nil
			if p := t.Assignee; p != nil {
				d["assigneeId"], d["assigneeName"], d["assigneeEmail"] = p.ID, orNull(p.Name), orNull(p.Email)
			}
		}
	}
	if m := e.Data.Message; m != nil {
		attachments := make([]map[string]any, len(m.Attachments))
		for i, a := range m.Attachments {
			attachments[i] = map[string]any{
				"id": a.ID, "name": orNull(a.Name), "contentType": orNull(a.ContentType), "size": a.Size, "url": orNull(a.URL),
			}
		}
		d["messageId"] = m.ID
		d["ticketId"] = m.TicketID
		d["conversationId"] = orNull(m.ConversationID)
		d["direction"] = m.Direction
		d["authorType"] = m.Author.Type
		d["authorId"] = orNull(m.Author.ID)
		d["authorName"] = orNull(m.Author.Name)
		d["channel"] = orNull(m.Channel)
		d["kind"] = m.Kind
		d["text"] = orNull(m.Text)
		d["html"] = orNull(m.HTML)
		d["attachments"] = attachments
		d["externalId"] = orNull(m.ExternalID)
		d["createdAt"] = timestamp(m.CreatedAt)
	}
	if c := e.Data.Customer; c != nil {
		d["customerId"] = c.ID
		if e.Data.Ticket == nil {
			d["name"], d["email"], d["phone"] = orNull(c.Name), orNull(c.Email), orNull(c.Phone)
		} else {
			d["customerEmail"] = orNull(c.Email)
		}
	}
	if s := e.Data.SLA; s != nil {
		d["metric"], d["dueAt"] = s.Metric, timestamp(s.DueAt)
	}
	if e.Data.Entry != nil {
		d["entry"] = e.Data.Entry
	}
	for field, c := range changes {
		name, from := flatten(field, c.From)
		d["previous"+strings.ToUpper(name[:1])+name[1:]] = from
		name, to := flatten(field, c.To)
		if _, ok := d[name]; !ok {
			d[name] = to
		}
	}
	return d
}

// flatten returns the flat name and value of a changed field. Users are given by id.
func flatten(field string, value any) (string, any) {
	record, isRecord := value.(map[string]any)
	isRecord = isRecord && field != "metadata" // a map of the client's
	if isRecord {
		value = record["id"]
	}
	if isRecord || field == "assignee" || field == "customer" {
		field += "_id"
	}
	return camel(field), value
}

// camel converts first_responded_at to firstRespondedAt.
func camel(s string) string {
	var b strings.Builder
	for i, part := range strings.Split(s, "_") {
		if i > 0 && part != "" {
			part = strings.ToUpper(part[:1]) + part[1:]
		}
		b.WriteString(part)
	}
	if b.Len() == 0 {
		return "value"
	}
	return b.String()
}
