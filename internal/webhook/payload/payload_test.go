package payload

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/event"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var at = time.Date(2026, 11, 21, 9, 30, 0, 123456000, time.UTC)

// samples has each event as its source would emit it, and a few with as little
// in them as possible.
func samples() map[string]event.Event {
	customer := &event.Customer{ID: "c0000000-0000-7000-8000-000000000001", Name: "Ada Lovelace", Email: "ada@example.com", Phone: "+4915112345678"}
	caller := &event.Customer{ID: "c0000000-0000-7000-8000-000000000002", Phone: "+4915112345679"}
	agent := &event.Person{ID: "a0000000-0000-7000-8000-000000000001", Name: "Bob", Email: "bob@acme.example"}
	ticket := &event.Ticket{
		ID: "b0000000-0000-7000-8000-000000000001", Number: 42, Subject: `Bike <4711> & "lock" – broken`, Status: "open", Priority: "normal",
		Channel: "email", Assignee: agent, Customer: customer, URL: "https://help.example.com/tickets/b0000000-0000-7000-8000-000000000001",
	}
	bare := &event.Ticket{ID: "b0000000-0000-7000-8000-000000000002", Number: 43, Status: "open", Priority: "normal", Customer: caller}
	reply := &event.Message{
		ID: "d0000000-0000-7000-8000-000000000001", TicketID: ticket.ID, ConversationID: "e0000000-0000-7000-8000-000000000001",
		Direction: "inbound", Author: event.Author{Type: "customer", ID: customer.ID, Name: customer.Name}, Channel: "email", Kind: "reply",
		Text: "It does not unlock.\n\u2028Really.", HTML: "<p>It does not unlock.</p>", ExternalID: "<1@example.com>",
		Attachments: []event.Attachment{{
			ID: "f0000000-0000-7000-8000-000000000001", Name: "lock.jpg", ContentType: "image/jpeg", Size: new(int64(52341)),
			URL: "https://help.example.com/attachments/f0000000-0000-7000-8000-000000000001",
		}},
		CreatedAt: at.Add(-time.Second),
	}
	text := &event.Message{
		ID: "d0000000-0000-7000-8000-000000000002", TicketID: bare.ID, Direction: "outbound",
		Author: event.Author{Type: "agent", ID: agent.ID, Name: agent.Name}, Channel: "sms", Kind: "reply", Text: "On my way.", CreatedAt: at,
	}
	files := &event.Message{
		ID: "d0000000-0000-7000-8000-000000000003", TicketID: bare.ID, Direction: "inbound", Author: event.Author{Type: "customer"}, Kind: "reply",
		Attachments: []event.Attachment{{ID: "f0000000-0000-7000-8000-000000000002"}}, CreatedAt: at, // could not be fetched
	}
	sla := &event.SLA{Metric: "first_response", DueAt: at.Add(12 * time.Minute)}
	change := func(field string, from, to any) map[string]event.Change {
		return map[string]event.Change{field: {From: from, To: to}}
	}
	out := map[string]event.Event{
		"ticket.created":          {Data: event.Data{Ticket: ticket}},
		"ticket.created.bare":     {Data: event.Data{Ticket: bare}},
		"ticket.updated":          {Data: event.Data{Ticket: ticket, Changes: map[string]event.Change{"subject": {From: "Lock", To: ticket.Subject}, "tags": {From: []string{}, To: []string{"lock"}}}}},
		"ticket.status_changed":   {Data: event.Data{Ticket: ticket, Changes: change("status", "pending", "open")}},
		"ticket.assigned":         {Data: event.Data{Ticket: ticket, Changes: change("assignee", nil, agent)}},
		"ticket.assigned.id":      {Data: event.Data{Ticket: bare, Changes: change("assignee_id", agent.ID, nil)}},
		"ticket.priority_changed": {Data: event.Data{Ticket: ticket, Changes: change("priority", "urgent", "normal")}},
		"ticket.deleted":          {Data: event.Data{Ticket: ticket}},
		"conversation.created":    {Data: event.Data{Ticket: ticket, Message: reply}},
		"message.created":         {Data: event.Data{Ticket: ticket, Message: reply}},
		"message.created.bare":    {Data: event.Data{Ticket: bare, Message: files}},
		"message.customer_reply":  {Data: event.Data{Ticket: ticket, Message: reply}},
		"message.agent_reply":     {Data: event.Data{Ticket: bare, Message: text}},
		"customer.created":        {Data: event.Data{Customer: customer}},
		"customer.created.bare":   {Data: event.Data{Customer: caller}},
		"customer.updated":        {Data: event.Data{Customer: customer, Changes: change("email", "ada@old.example", "ada@example.com")}},
		"customer.updated.bare":   {Data: event.Data{Customer: caller, Changes: change("phone", "", caller.Phone)}},
		"ticket.assigned.left":    {Data: event.Data{Ticket: bare, Changes: change("assignee", event.Person{ID: agent.ID}, nil)}},
		"sla.warning":             {Data: event.Data{Ticket: ticket, SLA: sla}},
		"sla.breached":            {Data: event.Data{Ticket: ticket, SLA: sla}},
	}
	for name, e := range out {
		parts := strings.Split(name, ".")
		e.Name = event.Name(parts[0] + "." + parts[1])
		e.ID, e.At = "e5000000-0000-7000-8000-000000000001", at
		out[name] = e
	}
	return out
}

func TestPayloads(t *testing.T) {
	list := samples()
	for _, name := range event.Names {
		if _, ok := list[string(name)]; !ok {
			t.Errorf("no sample of %s", name)
		}
	}
	for name, e := range list {
		for _, form := range []Form{Flat, Nested} {
			t.Run(name+"."+string(form), func(t *testing.T) {
				body, err := Render(form, &e)
				if err != nil {
					t.Fatal(err)
				}

				// The stored event renders the same.
				text, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				var stored event.Event
				if err := json.Unmarshal(text, &stored); err != nil {
					t.Fatal(err)
				}
				again, err := Render(form, &stored)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(again, body) {
					t.Errorf("rendered from the stored event:\n got %s\nwant %s", again, body)
				}

				var pretty bytes.Buffer
				if err := json.Indent(&pretty, body, "", "  "); err != nil {
					t.Fatal(err)
				}
				pretty.WriteByte('\n')
				golden := filepath.Join("testdata", name+"."+string(form)+".json")
				if *update {
					if err := os.WriteFile(golden, pretty.Bytes(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(pretty.Bytes(), want) {
					t.Errorf("got %s\nwant %s", pretty.Bytes(), want)
				}
			})
		}
	}
}

func TestBodyIsCompact(t *testing.T) {
	e := samples()["customer.created.bare"]
	for form, want := range map[Form]string{
		Flat:   `{"event":"customer.created","timestamp":"2026-11-21T09:30:00.123Z","data":{"customerId":"c0000000-0000-7000-8000-000000000002","email":null,"name":null,"phone":"+4915112345679"}}`,
		Nested: `{"id":"e5000000-0000-7000-8000-000000000001","event":"customer.created","created_at":"2026-11-21T09:30:00.123Z","data":{"customer":{"id":"c0000000-0000-7000-8000-000000000002","name":null,"email":null,"phone":"+4915112345679"}}}`,
	} {
		got, err := Render(form, &e)
		if err != nil || string(got) != want {
			t.Errorf("form %s:\n got %s, %v\nwant %s", form, got, err, want)
		}
	}
}
