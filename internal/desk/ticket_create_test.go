package desk_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func (f *fixture) create(org string, n desk.NewTicket) (desk.Ticket, error) {
	return write(f, func(tx *db.Tx) (desk.Ticket, error) { return f.desk.CreateTicketTx(f.Context(), tx, org, n) })
}

func TestCreateTicket(t *testing.T) {
	f := newFixture(t)
	ticket, err := f.create(orgA, desk.NewTicket{
		Subject: " Lock ", Customer: &desk.Person{Name: "Ana", Email: " Ana@c.example ", Phone: "+49 1511 2345678"},
		Priority: desk.PriorityHigh, AssigneeID: graceID, Tags: []string{"app", " app"}, ExternalID: "T-1", Metadata: desk.MetadataUpdate{"ride": new("7")},
		Content: f.compose(desk.Draft{
			Text: "It does not open.", HTML: "<b>It does not open.</b><script>x</script>",
			Attachments: []channel.Attachment{{Name: "lock.jpg", ContentType: "image/jpeg", Data: []byte("jpg")}},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if ticket.Number != 1 || ticket.Subject != "Lock" || ticket.Status != desk.StatusOpen || ticket.Priority != desk.PriorityHigh || ticket.Channel != "api" ||
		ticket.AssigneeID != graceID || len(ticket.Tags) != 1 || ticket.ExternalID != "T-1" || ticket.Metadata["ride"] != "7" ||
		ticket.Customer.Name != "Ana" || ticket.Customer.Email != "Ana@c.example" || ticket.Customer.Phone != "+4915112345678" {
		t.Errorf("ticket: %+v", ticket)
	}
	if got, want := asJSON(f.ticket(ticket.ID)), asJSON(ticket); got != want {
		t.Errorf("stored\n got %s\nwant %s", got, want)
	}
	m := f.messages(ticket.ID)
	if len(m) != 1 || m[0].Text != "It does not open." || m[0].HTML != "<b>It does not open.</b>" || m[0].Direction != "inbound" || m[0].Kind != "reply" ||
		m[0].Author != (event.Author{Type: "customer", ID: ticket.Customer.ID, Name: "Ana"}) || len(m[0].Attachments) != 1 || m[0].Attachments[0].Size != 3 {
		t.Errorf("messages: %+v", m)
	}
	if m := f.log[4].Data.Message; m.Text != "It does not open." || len(m.Attachments) != 1 || f.log[1].Data.Ticket.Number != 1 {
		t.Errorf("events tell of %+v", m)
	}
	if got, want := f.emitted(), "customer.created ticket.created ticket.assigned conversation.created message.created"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}

	// The same person again, without content.
	second, err := f.create(orgA, desk.NewTicket{Subject: "Bill", Customer: &desk.Person{Email: "ana@c.example"}})
	if err != nil {
		t.Fatal(err)
	}
	if second.Number != 2 || second.Customer.ID != ticket.Customer.ID || second.Priority != desk.PriorityNormal || len(f.messages(second.ID)) != 0 {
		t.Errorf("second: %+v", second)
	}
	if got := f.emitted(); got != "ticket.created" {
		t.Errorf("events %s", got)
	}
	third, err := f.create(orgA, desk.NewTicket{Subject: "Bill", CustomerID: ticket.Customer.ID, Content: f.compose(desk.Draft{HTML: "<p>a</p><p>b</p>"})})
	if err != nil {
		t.Fatal(err)
	}
	if third.Customer != ticket.Customer || f.messages(third.ID)[0].Text != "a\n\nb" {
		t.Errorf("third: %+v", third)
	}
	if got, want := f.emitted(), "ticket.created conversation.created message.created"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
	// A text of theirs starts a ticket of its own, for the known customer.
	if r := f.intake(text("+4915112345678", "hello")); r.Outcome != desk.TicketCreated || r.CustomerID != ticket.Customer.ID {
		t.Errorf("a text: %+v", r)
	}
}

func TestCreateTicketRefuses(t *testing.T) {
	f := newFixture(t)
	ana := &desk.Person{Name: "Ana"}
	if _, err := f.create(orgA, desk.NewTicket{Subject: "x", Customer: ana, ExternalID: "T-1"}); err != nil {
		t.Fatal(err)
	}
	theirs, err := f.createCustomer(orgB, desk.NewCustomer{Name: "Bob"})
	if err != nil {
		t.Fatal(err)
	}
	f.emitted()
	for _, c := range []struct {
		n          desk.NewTicket
		code, path string
	}{
		{desk.NewTicket{Subject: " ", Customer: ana}, "too_short", "subject"},
		{desk.NewTicket{Subject: strings.Repeat("x", 501), Customer: ana}, "too_long", "subject"},
		{desk.NewTicket{Subject: "x"}, "required", "customer_id"},
		{desk.NewTicket{Subject: "x", Customer: new(desk.Person)}, "required", "customer"},
		{desk.NewTicket{Subject: "x", Customer: ana, CustomerID: theirs.ID}, "conflict", "customer"},
		{desk.NewTicket{Subject: "x", Customer: &desk.Person{Email: "x"}}, "invalid_format", "customer.email"},
		{desk.NewTicket{Subject: "x", Customer: &desk.Person{Phone: "x"}}, "invalid_format", "customer.phone"},
		{desk.NewTicket{Subject: "x", CustomerID: theirs.ID}, "not_found", "customer_id"},
		{desk.NewTicket{Subject: "x", CustomerID: "nobody"}, "not_found", "customer_id"},
		{desk.NewTicket{Subject: "x", Customer: ana, AssigneeID: heidiID}, "not_found", "assignee_id"},
		{desk.NewTicket{Subject: "x", Customer: ana, Channel: "voice"}, "invalid_value", "channel"},
		{desk.NewTicket{Subject: "x", Customer: ana, Priority: "top"}, "invalid_value", "priority"},
		{desk.NewTicket{Subject: "x", Customer: ana, Tags: []string{""}}, "too_short", "tags.0"},
		{desk.NewTicket{Subject: "x", Customer: ana, ExternalID: strings.Repeat("x", 129)}, "too_long", "external_id"},
		{desk.NewTicket{Subject: "x", Customer: ana, Metadata: desk.MetadataUpdate{"k": new(strings.Repeat("x", 501))}}, "too_long", "metadata.k"},
	} {
		_, err := f.create(orgA, c.n)
		refused(t, c.path, err, problem.Invalid, c.code, c.path)
	}
	_, err = f.create(orgA, desk.NewTicket{Subject: "x", Customer: ana, ExternalID: "T-1"})
	refused(t, "another's external id", err, problem.Conflict, "already_exists", "external_id")
	if got := f.emitted(); got != "" {
		t.Errorf("events %s", got)
	}
	if n := f.count("tickets"); n != 1 {
		t.Errorf("%d tickets", n)
	}
}

// Concurrent tickets with the same external id, or for the same new customer.
func TestParallelTickets(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	customers := make(map[string]bool)
	won := 0
	for i := range 16 {
		wg.Go(func() {
			n := desk.NewTicket{Subject: "x", Customer: &desk.Person{Email: "ana@c.example", Phone: "+4915112345678"}}
			if i%2 == 0 {
				n.ExternalID = "T-1"
			}
			ticket, err := f.create(orgA, n)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && n.ExternalID != "":
				won++
				fallthrough
			case err == nil:
				customers[ticket.Customer.ID] = true
			case n.ExternalID != "":
				refused(t, "a loser", err, problem.Conflict, "already_exists", "external_id")
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 || len(customers) != 1 {
		t.Errorf("%d of one external id, %d customers", won, len(customers))
	}
	if n := f.count("tickets"); n != 9 {
		t.Errorf("%d tickets, want 9", n)
	}
}

// Another customer's address stays theirs, and is not used for this one.
func TestCreateTicketForTwo(t *testing.T) {
	f := newFixture(t)
	ana, err := f.createCustomer(orgA, desk.NewCustomer{Emails: []string{"ana@c.example"}})
	if err != nil {
		t.Fatal(err)
	}
	bob, err := f.createCustomer(orgA, desk.NewCustomer{Phones: []string{"+4915112345678"}})
	if err != nil {
		t.Fatal(err)
	}
	f.emitted()
	ticket, err := f.create(orgA, desk.NewTicket{Subject: "x", Customer: &desk.Person{Email: "ana@c.example", Phone: "+4915112345678"}})
	if err != nil || ticket.Customer.ID != ana.ID || ticket.Customer.Phone != "" {
		t.Errorf("the customer is %+v, %v; want Ana without Bob's number", ticket.Customer, err)
	}
	if got := f.emitted(); got != "ticket.created" {
		t.Errorf("events %s", got)
	}
	if got := f.customer(bob.ID).Phones; len(got) != 1 {
		t.Errorf("Bob has %q", got)
	}
}
