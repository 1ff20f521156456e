package clientgen

import (
	"strings"
	"testing"
)

func TestSample(t *testing.T) {
	apis := readAPIs(t)
	for _, c := range []struct{ id, language, want string }{
		{"listTickets", "curl", `curl -sS 'https://kickstand.example/api/v1/tickets?status=open' \
  -H "Authorization: Bearer $KICKSTAND_KEY"
`},
		{"createTicket", "curl", `curl -sS 'https://kickstand.example/api/v1/tickets' \
  -H "Authorization: Bearer $KICKSTAND_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"subject":"Where is my bicycle?","channel":"api","customer":{"email":"alex@example.com","name":"Alex Rider","phone":"+4915112345678"}}'
`},
		{"createTicket", "typescript", `import { Helpdesk } from "@kickstand/client";

const helpdesk = new Helpdesk({ baseUrl: "https://kickstand.example" });
const ticket = await helpdesk.tickets.create({
  subject: "Where is my bicycle?",
  channel: "api",
  customer: { email: "alex@example.com", name: "Alex Rider", phone: "+4915112345678" },
});
console.log(ticket);
`},
		{"createTicket", "python", `from kickstand import Helpdesk

helpdesk = Helpdesk(base_url="https://kickstand.example")
ticket = helpdesk.tickets.create(
    subject="Where is my bicycle?",
    channel="api",
    customer={"email": "alex@example.com", "name": "Alex Rider", "phone": "+4915112345678"},
)
print(ticket)
`},
		{"createTicket", "ruby", `require "kickstand"

helpdesk = Kickstand::Helpdesk.new(base_url: "https://kickstand.example")
ticket = helpdesk.tickets.create(
  subject: "Where is my bicycle?",
  channel: "api",
  customer: { email: "alex@example.com", name: "Alex Rider", phone: "+4915112345678" },
)
puts ticket.inspect
`},
		{"createTicket", "php", `<?php

require 'vendor/autoload.php';

use Kickstand\Helpdesk;

$helpdesk = new Helpdesk(baseUrl: 'https://kickstand.example');
$ticket = $helpdesk->tickets->create([
    'subject' => 'Where is my bicycle?',
    'channel' => 'api',
    'customer' => ['email' => 'alex@example.com', 'name' => 'Alex Rider', 'phone' => '+4915112345678'],
]);
print_r($ticket->toArray());
`},
		{"createTicket", "go", `package main

import (
	"context"
	"fmt"
	"log"

	kickstand "github.com/kickstand-dev/kickstand/clients/go"
)

func main() {
	ctx := context.Background()
	helpdesk, err := kickstand.NewHelpdesk(kickstand.Options{BaseURL: "https://kickstand.example"})
	if err != nil {
		log.Fatal(err)
	}
	ticket, err := helpdesk.Tickets.Create(ctx, kickstand.TicketCreate{
		Subject: "Where is my bicycle?",
		Channel: kickstand.Some("api"),
		Customer: kickstand.Some(kickstand.TicketCustomerInput{
			Email: kickstand.Some("alex@example.com"),
			Name:  kickstand.Some("Alex Rider"),
			Phone: kickstand.Some("+4915112345678"),
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", ticket.Raw())
}
`},
		{"listTickets", "python", `from kickstand import Helpdesk

helpdesk = Helpdesk(base_url="https://kickstand.example")
for ticket in helpdesk.tickets.list(status=["open"]):
    print(ticket)
`},
		{"getAttachment", "typescript", `import { writeFile } from "node:fs/promises";
import { Helpdesk } from "@kickstand/client";

const helpdesk = new Helpdesk({ baseUrl: "https://kickstand.example" });
const file = helpdesk.messages.getAttachment("MESSAGE_ID");
await writeFile("file", file);
`},
		{"deleteTicket", "typescript", `import { Helpdesk } from "@kickstand/client";

const helpdesk = new Helpdesk({ baseUrl: "https://kickstand.example" });
await helpdesk.tickets.delete("TICKET_ID");
`},
		{"getAttachment", "ruby", `require "kickstand"

helpdesk = Kickstand::Helpdesk.new(base_url: "https://kickstand.example")
file = helpdesk.messages.get_attachment("MESSAGE_ID")
File.binwrite("file", file.read)
`},
	} {
		op := *apis[0].Operation(c.id)
		if c.id == "createTicket" {
			op.Example = []byte(`{"subject":"Where is my bicycle?","channel":"api","customer":{"email":"alex@example.com","name":"Alex Rider","phone":"+4915112345678"}}`)
		}
		got, err := apis[0].Sample(&op, c.language, SampleAccess{Origin: "https://kickstand.example"})
		if err != nil || got != c.want {
			t.Errorf("%s in %s, error %v:\n%s\nexpected:\n%s", c.id, c.language, err, got, c.want)
		}
	}
}

// A key is part of the program, and quotes of a value cannot end a text.
func TestSampleValues(t *testing.T) {
	a := &API{Name: "helpdesk", Server: "https://kickstand.example/api/v1", Groups: []Group{{
		Name: "notes", Singular: "note", Operations: []Operation{{
			ID: "createNote", Method: "POST", Path: "/notes/{id}", Name: "create", PathParams: []Param{{Name: "id", Type: Type{Kind: KindString}}},
			Body: &Type{Kind: KindRecord, Record: "note_create"}, Answer: &Type{Kind: KindRecord, Record: "note"}, Status: 201,
		}},
	}}, Records: []Record{{Name: "note_create", Input: true, Members: []Member{
		{Name: "text", Type: Type{Kind: KindString}, Required: true, Example: []byte(`"it's \"#{1}\" $a \\"`)},
	}}}}
	for language, want := range map[string]string{
		"curl":       `-d '{"text":"it'\''s \"#{1}\" $a \\"}'`,
		"typescript": `"it's \"#{1}\" $a \\"`,
		"python":     `"it's \"#{1}\" $a \\"`,
		"ruby":       `"it's \"\#{1}\" $a \\"`,
		"php":        `'it\'s "#{1}" $a \\'`,
		"go":         `"it's \"#{1}\" $a \\"`,
	} {
		got, err := a.Sample(a.Operation("createNote"), language, SampleAccess{Key: "sk_test_" + "k"})
		if err != nil || !strings.Contains(got, want) || !strings.Contains(got, "sk_test_k") || !strings.Contains(got, "NOTE_ID") {
			t.Errorf("%s, error %v:\n%s", language, err, got)
		}
	}
	if _, err := a.Sample(a.Operation("createNote"), "cobol", SampleAccess{}); err == nil {
		t.Error("an unknown language")
	}
}
