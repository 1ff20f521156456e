package desk_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func (f *fixture) createCustomer(org string, n desk.NewCustomer) (desk.Customer, error) {
	return write(f, func(tx *db.Tx) (desk.Customer, error) { return f.desk.CreateCustomerTx(f.Context(), tx, org, n) })
}

func (f *fixture) updateCustomer(org, id string, u desk.CustomerUpdate) (desk.Customer, error) {
	return write(f, func(tx *db.Tx) (desk.Customer, error) { return f.desk.UpdateCustomerTx(f.Context(), tx, org, id, u) })
}

func (f *fixture) deleteCustomer(org, id string) error {
	return f.db.Write(f.Context(), func(tx *db.Tx) error { return f.desk.DeleteCustomerTx(f.Context(), tx, org, id) })
}

func (f *fixture) customer(id string) desk.Customer {
	f.Helper()
	c, err := f.desk.Customer(f.Context(), f.db, orgA, id)
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// changes returns the changes of the last event, as JSON.
func (f *fixture) changes() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.log) == 0 {
		return ""
	}
	b, err := json.Marshal(f.log[len(f.log)-1].Data.Changes)
	if err != nil {
		f.Fatal(err)
	}
	return string(b)
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestCreateCustomer(t *testing.T) {
	f := newFixture(t)
	c, err := f.createCustomer(orgA, desk.NewCustomer{
		Name: " Ana ", Emails: []string{"Zoe@C.example", "ana@c.example", "ANA@c.example"}, Phones: []string{"+49 1511 2345678"},
		ExternalID: "C-1", Metadata: desk.MetadataUpdate{"tier": new("gold"), "x": nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "Ana" || !slices.Equal(c.Emails, []string{"Zoe@C.example", "ana@c.example"}) || !slices.Equal(c.Phones, []string{"+4915112345678"}) ||
		c.ExternalID != "C-1" || len(c.Metadata) != 1 || c.Metadata["tier"] != "gold" {
		t.Errorf("got %+v", c)
	}
	if got, want := asJSON(f.customer(c.ID)), asJSON(c); got != want {
		t.Errorf("stored\n got %s\nwant %s", got, want)
	}
	if e := f.log[0].Data.Customer; e.ID != c.ID || e.Email != "Zoe@C.example" || e.Phone != "+4915112345678" {
		t.Errorf("event tells of %+v", e)
	}
	if got := f.emitted(); got != "customer.created" {
		t.Errorf("events %s", got)
	}

	// Later messages belong to the customer.
	if r := f.intake(text("+4915112345678", "hello")); r.CustomerID != c.ID {
		t.Errorf("a text from the number is of %s", r.CustomerID)
	}
	if r := f.intake(mail("zoe@c.example", "m1@c.example")); r.CustomerID != c.ID {
		t.Errorf("a mail from the address is of %s", r.CustomerID)
	}
	// Another organization has its own addresses.
	if _, err := f.createCustomer(orgB, desk.NewCustomer{Emails: []string{"ana@c.example"}, ExternalID: "C-1"}); err != nil {
		t.Error(err)
	}
	f.emitted()
	for member, n := range map[string]desk.NewCustomer{
		"emails":      {Emails: []string{"new@c.example", "ana@C.EXAMPLE"}},
		"phones":      {Emails: []string{"new@c.example"}, Phones: []string{"+4915112345678"}},
		"external_id": {ExternalID: "C-1"},
	} {
		_, err := f.createCustomer(orgA, n)
		refused(t, member, err, problem.Conflict, "already_exists", member)
	}
	// A refused call leaves nothing behind.
	if _, err := f.createCustomer(orgA, desk.NewCustomer{Emails: []string{"new@c.example"}}); err != nil {
		t.Error(err)
	}
	for path, n := range map[string]desk.NewCustomer{
		"emails.1": {Emails: []string{"a@b.example", "Ana <a@c.example>"}},
		"phones.0": {Phones: []string{"0151 12345678"}},
		"name":     {Name: "a\nb"},
	} {
		_, err := f.createCustomer(orgA, n)
		refused(t, path, err, problem.Invalid, "invalid_format", path)
	}
	for path, n := range map[string]desk.NewCustomer{
		"name":        {Name: strings.Repeat("x", 201)},
		"emails":      {Emails: slices.Repeat([]string{"a@b.example"}, 21)},
		"external_id": {ExternalID: strings.Repeat("x", 129)},
		"metadata":    {Metadata: desk.MetadataUpdate{"": new("x")}},
	} {
		_, err := f.createCustomer(orgA, n)
		refused(t, path, err, problem.Invalid, "too_long", path)
	}
	if got := f.emitted(); got != "customer.created" {
		t.Errorf("events %s", got)
	}
}

func TestUpdateCustomer(t *testing.T) {
	f := newFixture(t)
	c, err := f.createCustomer(orgA, desk.NewCustomer{Name: "Ana", Emails: []string{"ana@c.example"}, Phones: []string{"+4915112345678"}})
	if err != nil {
		t.Fatal(err)
	}
	f.emitted()
	for _, step := range []struct {
		update  desk.CustomerUpdate
		changes string
		want    string // emails and phones
	}{
		{desk.CustomerUpdate{}, ``, "[ana@c.example] [+4915112345678]"},
		{desk.CustomerUpdate{Name: new("Ana"), Emails: new([]string{"ana@c.example"}), Phones: new([]string{"+4915112345678"})}, ``, "[ana@c.example] [+4915112345678]"},
		{desk.CustomerUpdate{Name: new("Anna")}, `{"name":{"from":"Ana","to":"Anna"}}`, "[ana@c.example] [+4915112345678]"},
		{
			desk.CustomerUpdate{Emails: new([]string{"b@c.example", "Ana@c.example"})},
			`{"email":{"from":"ana@c.example","to":"b@c.example"},"emails":{"from":["ana@c.example"],"to":["b@c.example","Ana@c.example"]}}`,
			"[b@c.example Ana@c.example] [+4915112345678]",
		},
		{
			desk.CustomerUpdate{Emails: new([]string{"Ana@c.example"}), Phones: new([]string{})},
			`{"email":{"from":"b@c.example","to":"Ana@c.example"},"emails":{"from":["b@c.example","Ana@c.example"],"to":["Ana@c.example"]},` +
				`"phone":{"from":"+4915112345678","to":""},"phones":{"from":["+4915112345678"],"to":[]}}`,
			"[Ana@c.example] []",
		},
		{
			desk.CustomerUpdate{ExternalID: new("C-1"), Metadata: desk.MetadataUpdate{"a": new("1")}},
			`{"external_id":{"from":null,"to":"C-1"},"metadata":{"from":{},"to":{"a":"1"}}}`, "[Ana@c.example] []",
		},
	} {
		got, err := f.updateCustomer(orgA, c.ID, step.update)
		if err != nil {
			t.Fatal(err)
		}
		if changes := f.changes(); changes != step.changes {
			t.Errorf("changes\n got %s\nwant %s", changes, step.changes)
		}
		if names := f.emitted(); step.changes != "" && names != "customer.updated" {
			t.Errorf("events %s", names)
		}
		if have := fmt.Sprint(got.Emails, " ", got.Phones); have != step.want {
			t.Errorf("got %s, want %s", have, step.want)
		}
		if stored := f.customer(c.ID); asJSON(stored) != asJSON(got) {
			t.Errorf("stored\n got %s\nwant %s", asJSON(stored), asJSON(got))
		}
	}
	other, err := f.createCustomer(orgA, desk.NewCustomer{Emails: []string{"b@c.example"}, Phones: []string{"+4915112345678"}, ExternalID: "C-2"})
	if err != nil {
		t.Fatalf("what was given up is not free: %v", err)
	}
	for member, u := range map[string]desk.CustomerUpdate{
		"emails":      {Emails: new([]string{"Ana@c.example", "b@c.example"})},
		"phones":      {Phones: new([]string{"+4915112345678"})},
		"external_id": {ExternalID: new("C-2")},
	} {
		_, err := f.updateCustomer(orgA, c.ID, u)
		refused(t, member, err, problem.Conflict, "already_exists", member)
	}
	_, err = f.updateCustomer(orgA, c.ID, desk.CustomerUpdate{Phones: new([]string{"12"})})
	refused(t, "a bad number", err, problem.Invalid, "invalid_format", "phones.0")
	_, err = f.updateCustomer(orgB, other.ID, desk.CustomerUpdate{})
	refused(t, "another organization's", err, problem.NotFound, "", "")
}

// A thread outlives the number of its customer.
func TestThreadOfARemovedPhone(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text("+4915112345678", "hello"))
	if _, err := f.updateCustomer(orgA, r.CustomerID, desk.CustomerUpdate{Phones: new([]string{})}); err != nil {
		t.Fatal(err)
	}
	if again := f.intake(text("+4915112345678", "again")); again.Outcome != desk.Appended || again.TicketID != r.TicketID || again.CustomerID != r.CustomerID {
		t.Errorf("the next text: %+v", again)
	}
	in := text("+4915112345678", "elsewhere")
	in.ConnectionID = smsA2
	if other := f.intake(in); other.Outcome != desk.TicketCreated || other.CustomerID == r.CustomerID {
		t.Errorf("a text to another number: %+v, want a new customer", other)
	}
}

// A message from a known customer may bring a further address.
func TestFurtherAddressIsTold(t *testing.T) {
	f := newFixture(t)
	first := f.intake(mail("ana@c.example", "m1@c.example"))
	f.emitted()
	in := text("+4915112345678", "hello")
	in.Event.Message.From = channel.Party{Email: "ana@c.example", Phone: "+4915112345678"}
	if r := f.intake(in); r.CustomerID != first.CustomerID {
		t.Fatalf("got %+v", r)
	}
	if got, want := asJSON(f.log[0].Data.Changes), `{"phone":{"from":"","to":"+4915112345678"},"phones":{"from":[],"to":["+4915112345678"]}}`; got != want {
		t.Errorf("changes\n got %s\nwant %s", got, want)
	}
	if got, want := f.emitted(), "customer.updated ticket.created conversation.created message.created"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
	in.ConnectionID = smsA2
	in.Event.Message.ThreadKey, in.Event.Message.From.Email = "+4915112345678", "second@c.example"
	in.Event.Message.From.Phone = "+4915112345678"
	if r := f.intake(in); r.CustomerID != first.CustomerID {
		t.Fatalf("got %+v", r)
	}
	if got, want := asJSON(f.log[0].Data.Changes), `{"emails":{"from":["ana@c.example"],"to":["ana@c.example","second@c.example"]}}`; got != want {
		t.Errorf("changes\n got %s\nwant %s", got, want)
	}
}

func TestDeleteCustomer(t *testing.T) {
	f := newFixture(t)
	in := text("+4915112345678", "hello")
	in.Event.Message.From.Name = "Ana"
	r := f.intake(in)
	if _, err := f.updateCustomer(orgA, r.CustomerID, desk.CustomerUpdate{
		Emails: new([]string{"ana@c.example"}), ExternalID: new("C-1"), Metadata: desk.MetadataUpdate{"a": new("1")},
	}); err != nil {
		t.Fatal(err)
	}
	mailed := f.intake(mail("ana@c.example", "m1@c.example"))
	f.emitted()
	refused(t, "another organization's", f.deleteCustomer(orgB, r.CustomerID), problem.NotFound, "", "")
	if err := f.deleteCustomer(orgA, r.CustomerID); err != nil {
		t.Fatal(err)
	}
	if got, want := f.changes(), `{"email":{"from":"ana@c.example","to":""},"emails":{"from":["ana@c.example"],"to":[]},"external_id":{"from":"C-1","to":null},`+
		`"metadata":{"from":{"a":"1"},"to":{}},"name":{"from":"Ana","to":""},"phone":{"from":"+4915112345678","to":""},"phones":{"from":["+4915112345678"],"to":[]}}`; got != want {
		t.Errorf("changes\n got %s\nwant %s", got, want)
	}
	if got := f.emitted(); got != "customer.updated" {
		t.Errorf("events %s", got)
	}
	_, err := f.desk.Customer(t.Context(), f.db, orgA, r.CustomerID)
	refused(t, "the deleted", err, problem.NotFound, "", "")
	refused(t, "deleted twice", f.deleteCustomer(orgA, r.CustomerID), problem.NotFound, "", "")
	_, err = f.updateCustomer(orgA, r.CustomerID, desk.CustomerUpdate{Name: new("x")})
	refused(t, "changed after", err, problem.NotFound, "", "")

	ticket := f.ticket(r.TicketID)
	if c := ticket.Customer; c.ID != r.CustomerID || c.Name != "" || c.Email != "" || c.Phone != "" {
		t.Errorf("the ticket's customer is %+v", c)
	}
	if m := f.messages(r.TicketID)[0]; m.Text != "hello" || m.Author.Name != "" {
		t.Errorf("message: %+v", m)
	}
	again := f.intake(text("+4915112345678", "again"))
	if again.Outcome != desk.TicketCreated || again.CustomerID == r.CustomerID {
		t.Errorf("the next text: %+v, want a new customer with a new ticket", again)
	}
	reply := mail("ana@c.example", "m2@c.example")
	reply.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
	if got := f.intake(reply); got.TicketID != mailed.TicketID || got.CustomerID == r.CustomerID {
		t.Errorf("an answer to the old mail: %+v, want it there, of a new customer", got)
	}
	if _, err := f.createCustomer(orgA, desk.NewCustomer{ExternalID: "C-1"}); err != nil {
		t.Errorf("the external id is not free: %v", err)
	}
	_, err = f.create(orgA, desk.NewTicket{Subject: "x", CustomerID: r.CustomerID})
	refused(t, "a ticket for the deleted", err, problem.Invalid, "not_found", "customer_id")
}

// No key leads to a deleted customer from the survivor of their merged ticket, even
// if the ticket is gone.
func TestDeleteCustomerOfAMergedTicket(t *testing.T) {
	for _, gone := range []bool{false, true} {
		f := newFixture(t)
		in := text("+4915112345671", "a")
		in.Event.Message.From.Name = "Ana"
		a, b := f.intake(in), f.intake(text("+4915112345672", "b"))
		if _, err := f.merge(orgA, a.TicketID, b.TicketID); err != nil {
			t.Fatal(err)
		}
		if gone {
			f.delete(a.TicketID)
		}
		if err := f.deleteCustomer(orgA, a.CustomerID); err != nil {
			t.Fatal(err)
		}
		if m := f.messages(b.TicketID)[0]; m.Text != "a" || m.Author.Name != "" {
			t.Errorf("gone %t: the message is of %q", gone, m.Author.Name)
		}
		if r := f.intake(text("+4915112345671", "again")); r.Outcome != desk.TicketCreated || r.CustomerID == a.CustomerID {
			t.Errorf("gone %t: the next text: %+v, want a new customer with a new ticket", gone, r)
		}
	}
}

// A customer is deleted during a merge of their ticket: no key leads to them
// afterwards.
func TestParallelDeleteCustomer(t *testing.T) {
	f := newFixture(t)
	b := f.intake(text("+4915112345670", "b")).TicketID
	for round := range 20 {
		number := fmt.Sprintf("+49151123457%02d", round)
		a := f.intake(text(number, "a"))
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := f.deleteCustomer(orgA, a.CustomerID); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := f.merge(orgA, a.TicketID, b); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if r := f.intake(text(number, "again")); r.CustomerID == a.CustomerID {
			t.Fatalf("round %d: the next text is of the deleted: %+v", round, r)
		}
	}
}

// Of concurrent creations with the same addresses, in any order, one succeeds.
func TestParallelCustomers(t *testing.T) {
	f := newFixture(t)
	for round := range 10 {
		emails := []string{fmt.Sprintf("a%d@c.example", round), fmt.Sprintf("b%d@c.example", round), fmt.Sprintf("c%d@c.example", round)}
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for i := range 8 {
			wg.Go(func() {
				list := slices.Concat(emails[i%3:], emails[:i%3])
				if i%2 == 0 {
					slices.Reverse(list)
				}
				_, err := f.createCustomer(orgA, desk.NewCustomer{Emails: list})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else {
					refused(t, "a loser", err, problem.Conflict, "already_exists", "emails")
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Fatalf("%d won", won)
		}
	}
	if n := f.count("customers"); n != 10 {
		t.Errorf("%d customers", n)
	}
}

// Two customers exchange an address: it ends with one of them.
func TestParallelExchange(t *testing.T) {
	f := newFixture(t)
	ids := make([]string, 2)
	for i := range ids {
		c, err := f.createCustomer(orgA, desk.NewCustomer{Emails: []string{fmt.Sprintf("%d@c.example", i)}})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = c.ID
	}
	for range 20 {
		var wg sync.WaitGroup
		for i, id := range ids {
			wg.Go(func() {
				_, err := f.updateCustomer(orgA, id, desk.CustomerUpdate{Emails: new([]string{fmt.Sprintf("%d@c.example", 1-i)})})
				if err != nil && problem.Of(err) != problem.Conflict {
					t.Error(err)
				}
				if _, err = f.updateCustomer(orgA, id, desk.CustomerUpdate{Emails: new([]string{})}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if n := f.count("contact_points"); n != 0 {
		t.Errorf("%d contact points are left", n)
	}
}
