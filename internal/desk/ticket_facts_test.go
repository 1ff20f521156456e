package desk_test

import (
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// A ticket is found by its number, its tags, the names of its files, and its customer's name,
// addresses and numbers, as they are now.
func TestFindByFacts(t *testing.T) {
	f := newFixture(t)
	in := mail("max@client.example", "m1@client.example")
	in.Event.Message.From.Name = "Max Weber"
	in.Event.Message.Subject = "The lock is stuck"
	in.Event.Message.Text = "It happened near the station."
	in.Event.Message.Attachments = []channel.Attachment{{Name: "invoice.pdf", ContentType: "application/pdf", Data: []byte("x")}}
	one := f.intake(in)
	other := f.intake(text("+4915123456789", "Where is my scooter? Order 4711"))
	find := func(search string, want ...int64) {
		t.Helper()
		f.index()
		got := f.numbers(orgA, desk.TicketQuery{Text: search})
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q: found %v, want %v", search, got, want)
		}
	}
	for _, search := range []string{"Max Weber", "weber max", "max@client.example", "client.example", `"max weber"`, "invoice.pdf", "weber lock", "#1", "Web"} {
		find(search, one.TicketNumber)
	}
	for _, search := range []string{"+4915123456789", "+49 151 234-567 89", "0151 23456789", "0049 151 23456789", "(0151) 23456789", "+49 (0)151 23456789", "6789", "56789", "#2", "4711", "4915123"} {
		find(search, other.TicketNumber)
	}
	third := f.intake(text("+4915100000001", "Hello"))
	find("0001", third.TicketNumber)
	find("00000 01", third.TicketNumber)
	find("#1 #2", one.TicketNumber, other.TicketNumber)
	find("#2 station")
	find("#4")
	find("789")
	find("vip")
	if _, err := f.update(orgA, one.TicketID, desk.Update{Tags: &[]string{"vip", "night shift"}}); err != nil {
		t.Fatal(err)
	}
	find("vip", one.TicketNumber)
	find("night shift", one.TicketNumber)
	if _, err := f.updateCustomer(orgA, one.CustomerID, desk.CustomerUpdate{Name: new("Zoë Grün"), Phones: &[]string{"+4930901820"}}); err != nil {
		t.Fatal(err)
	}
	find("030 901820", one.TicketNumber)
	find("zoe grun", one.TicketNumber)
	find("weber")
	// More tickets than a batch of the indexer.
	f.exec(`INSERT INTO tickets (id, organization_id, number, subject, status, priority, channel, customer_id, created_at, updated_at)
		WITH RECURSIVE n (i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 1700)
		SELECT 'many' || i, organization_id, i, 'Bell', 'open', 'normal', 'sms', customer_id, created_at, updated_at FROM n, tickets WHERE id = $1`, one.TicketID)
	if _, err := f.updateCustomer(orgA, one.CustomerID, desk.CustomerUpdate{Name: new("Ada Long")}); err != nil {
		t.Fatal(err)
	}
	find("ada #1000 #1299 #1300 #1700", 1000, 1299, 1300, 1700)
	if err := f.deleteCustomer(orgA, one.CustomerID); err != nil {
		t.Fatal(err)
	}
	find("ada")
	find("client.example")
	find("lock", one.TicketNumber)
}
