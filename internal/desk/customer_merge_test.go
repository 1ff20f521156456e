package desk_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

func (f *fixture) mergeCustomers(org, id, into string) (desk.Customer, error) {
	return write(f, func(tx *db.Tx) (desk.Customer, error) { return f.desk.MergeCustomersTx(f.Context(), tx, org, id, into) })
}

func (f *fixture) unmergeCustomer(org, id string) (desk.Customer, error) {
	return write(f, func(tx *db.Tx) (desk.Customer, error) { return f.desk.UnmergeCustomerTx(f.Context(), tx, org, id) })
}

func (f *fixture) mustMergeCustomers(id, into string) desk.Customer {
	f.Helper()
	c, err := f.mergeCustomers(orgA, id, into)
	if err != nil {
		f.Fatal(err)
	}
	return c
}

func (f *fixture) mustUnmergeCustomer(id string) desk.Customer {
	f.Helper()
	c, err := f.unmergeCustomer(orgA, id)
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// people returns the rows of customers, and the owner of each row of theirs, as lines.
func (f *fixture) people() string {
	f.Helper()
	var lines []string
	for _, query := range []string{
		`SELECT id || ' ' || name || ' ' || email || ' ' || phone || ' ' || coalesce(external_id, '-') || ' ' || coalesce(metadata, '-') || ' ' || coalesce(merged_into_id, '-')
			|| ' ' || coalesce(merged_fields, '-') || CASE WHEN deleted_at IS NULL THEN '' ELSE ' gone' END FROM customers ORDER BY id`,
		"SELECT scope || ' ' || value || ' ' || coalesce(customer_id, '-') || ' ' || coalesce(conversation_id, '-') || ' ' || coalesce(home_customer_id, '-') FROM contact_points ORDER BY scope, value",
		"SELECT id || ' ' || customer_id || ' ' || coalesce(home_customer_id, '-') FROM tickets ORDER BY id",
		"SELECT id || ' ' || customer_id || ' ' || coalesce(home_customer_id, '-') FROM conversations ORDER BY id",
		"SELECT id || ' ' || coalesce(author_id, '-') || ' ' || coalesce(home_author_id, '-') FROM messages ORDER BY id",
	} {
		rows, err := db.All(f.Context(), f.db, func(row db.Row) (line string, err error) {
			err = row.Scan(&line)
			return line, err
		}, query)
		if err != nil {
			f.Fatal(err)
		}
		lines = append(lines, rows...)
	}
	return strings.Join(lines, "\n")
}

// two creates a customer known by mail, with the name Ana, and one known by number, each with a ticket;
// and a ticket of the second with a mail of the first.
func (f *fixture) two() (ana, num desk.Result) {
	f.Helper()
	in := mail("ana@client.example", "1@client.example")
	in.Event.Message.From.Name = "Ana"
	ana, num = f.intake(in), f.intake(text(number, "hello"))
	return ana, num
}

func TestMergeCustomers(t *testing.T) {
	f := newFixture(t)
	ana, num := f.two()
	chat := f.intake(said("", userID, "chat"))
	if _, err := f.updateCustomer(orgA, ana.CustomerID, desk.CustomerUpdate{ExternalID: new("crm-1"), Metadata: desk.MetadataUpdate{"plan": new("gold"), "city": new("Berlin")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.updateCustomer(orgA, num.CustomerID, desk.CustomerUpdate{Metadata: desk.MetadataUpdate{"plan": new("free")}}); err != nil {
		t.Fatal(err)
	}
	before := f.people()
	preview, err := f.desk.PreviewCustomerMerge(t.Context(), f.db, orgA, ana.CustomerID, num.CustomerID)
	if err != nil {
		t.Fatal(err)
	}
	f.emitted()
	kept := f.mustMergeCustomers(ana.CustomerID, num.CustomerID)
	if kept.ID != num.CustomerID || kept.Name != "Ana" || asJSON(kept.Emails) != `["ana@client.example"]` || asJSON(kept.Phones) != `["`+number+`"]` ||
		kept.ExternalID != "crm-1" || asJSON(kept.Metadata) != `{"city":"Berlin","plan":"free"}` {
		t.Errorf("merged into %+v", kept)
	}
	preview.Result.UpdatedAt = kept.UpdatedAt
	if asJSON(preview.Result) != asJSON(kept) || preview.Tickets != 1 || preview.Merged.ID != ana.CustomerID {
		t.Errorf("preview\n got %s, %d tickets\nwant %s", asJSON(preview.Result), preview.Tickets, asJSON(kept))
	}
	if got, want := f.emitted(), "customer.updated customer.updated ticket.updated"; got != want {
		t.Errorf("got events %s, want %s", got, want)
	}
	if got := f.timeline(ana.TicketID, ana.CustomerID, "ANA", num.CustomerID, "NUM"); !strings.HasSuffix(got, `system  system ticket.updated {"customer":{"from":"ANA","to":"NUM"}}`) {
		t.Errorf("timeline\n%s", got)
	}
	// The former id leads to the survivor, but is not changed through.
	if got := f.customer(ana.CustomerID); got.ID != num.CustomerID {
		t.Errorf("the merged customer is %+v", got)
	}
	for what, err := range map[string]error{"delete": f.deleteCustomer(orgA, ana.CustomerID), "update": func() error {
		_, err := f.updateCustomer(orgA, ana.CustomerID, desk.CustomerUpdate{Name: new("B")})
		return err
	}()} {
		wantCode(t, what, err, "invalid_transition")
	}
	if list, _, err := f.desk.FindCustomers(t.Context(), f.db, orgA, desk.CustomerQuery{}); err != nil || len(list) != 2 {
		t.Errorf("got %d customers, %v", len(list), err)
	}
	if got := f.numbers(orgA, desk.TicketQuery{CustomerID: []string{ana.CustomerID}}); len(got) != 2 {
		t.Errorf("tickets by the former id: %v", got)
	}
	if got := f.ticket(ana.TicketID); got.Customer.ID != num.CustomerID || got.Customer.Name != "Ana" {
		t.Errorf("the ticket is of %+v", got.Customer)
	}
	// Later messages of both are the survivor's.
	if r := f.intake(mail("ana@client.example", "2@client.example")); r.CustomerID != num.CustomerID {
		t.Errorf("a mail is of %s", r.CustomerID)
	}
	if r := f.intake(reply("ana@client.example", "3@client.example", "1@client.example")); r.CustomerID != num.CustomerID || r.TicketID != ana.TicketID {
		t.Errorf("an answer is of %+v", r)
	}
	f.wantInvariants(t)

	// Later records stay; all others are as before.
	f.mustMergeCustomers(chat.CustomerID, num.CustomerID)
	later := f.intake(said("", userID, "more"))
	back := f.mustUnmergeCustomer(ana.CustomerID)
	if back.ID != ana.CustomerID || back.Name != "Ana" || back.ExternalID != "crm-1" || asJSON(back.Emails) != `["ana@client.example"]` || asJSON(back.Metadata) != `{"city":"Berlin","plan":"gold"}` {
		t.Errorf("undone: %+v", back)
	}
	if got := f.customer(num.CustomerID); got.Name != "" || len(got.Emails) != 0 || got.ExternalID != "" || asJSON(got.Metadata) != `{"plan":"free"}` || len(got.Identities) != 1 {
		t.Errorf("the survivor is %+v", got)
	}
	if later.TicketID != chat.TicketID || f.ticket(chat.TicketID).Customer.ID != num.CustomerID {
		t.Errorf("the chat is %+v", later)
	}
	f.mustUnmergeCustomer(chat.CustomerID)
	after := f.people()
	for line := range strings.SplitSeq(before, "\n") {
		if !slices.Contains(strings.Split(after, "\n"), line) {
			t.Errorf("changed: %s", line)
		}
	}
	wantCode(t, "undo again", func() error { _, err := f.unmergeCustomer(orgA, ana.CustomerID); return err }(), "invalid_transition")
	if r := f.intake(mail("ana@client.example", "4@client.example")); r.CustomerID != ana.CustomerID {
		t.Errorf("a mail after the undo is of %s", r.CustomerID)
	}
	f.wantInvariants(t)
}

func TestRefusedMergesOfCustomers(t *testing.T) {
	f := newFixture(t)
	ana, num := f.two()
	chat := f.intake(said("", userID, "chat"))
	try := func(org, id, into string) error { _, err := f.mergeCustomers(org, id, into); return err }
	refused(t, "unknown", try(orgA, uuid.NewString(), num.CustomerID), problem.NotFound, "", "")
	refused(t, "another organization's", try(orgB, ana.CustomerID, num.CustomerID), problem.NotFound, "", "")
	refused(t, "into an unknown one", try(orgA, ana.CustomerID, uuid.NewString()), problem.Invalid, "not_found", "into")
	wantCode(t, "into itself", try(orgA, ana.CustomerID, ana.CustomerID), "invalid_transition")
	f.mustMergeCustomers(ana.CustomerID, num.CustomerID)
	wantCode(t, "again", try(orgA, ana.CustomerID, chat.CustomerID), "invalid_transition")
	wantCode(t, "into a merged one", try(orgA, chat.CustomerID, ana.CustomerID), "invalid_transition")
	if err := f.deleteCustomer(orgA, num.CustomerID); err != nil {
		t.Fatal(err)
	}
	refused(t, "undo after deletion", func() error { _, err := f.unmergeCustomer(orgA, ana.CustomerID); return err }(), problem.NotFound, "", "")
	refused(t, "read after deletion", func() error { _, err := f.desk.Customer(t.Context(), f.db, orgA, ana.CustomerID); return err }(), problem.NotFound, "", "")
}

// TestChainOfMergedCustomers undoes merges in both orders.
func TestChainOfMergedCustomers(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			f := newFixture(t)
			ana, num := f.two()
			chat := f.intake(said("", userID, "chat"))
			if _, err := f.updateCustomer(orgA, ana.CustomerID, desk.CustomerUpdate{ExternalID: new("crm-1"), Metadata: desk.MetadataUpdate{"a": new("1")}}); err != nil {
				t.Fatal(err)
			}
			before := f.people()
			f.mustMergeCustomers(ana.CustomerID, num.CustomerID)
			end := f.mustMergeCustomers(num.CustomerID, chat.CustomerID)
			if end.Name != "Ana" || end.ExternalID != "crm-1" || len(end.Emails)+len(end.Phones)+len(end.Identities) != 3 || end.Metadata["a"] != "1" {
				t.Errorf("merged into %+v", end)
			}
			if got := f.customer(ana.CustomerID); got.ID != chat.CustomerID {
				t.Errorf("the first is %+v", got)
			}
			if list, err := f.desk.MergedCustomers(t.Context(), f.db, orgA, chat.CustomerID); err != nil || len(list) != 2 || list[0].ID != num.CustomerID {
				t.Errorf("got %+v, %v", list, err)
			}
			ids := []string{ana.CustomerID, num.CustomerID}
			f.mustUnmergeCustomer(ids[order[0]])
			f.wantInvariants(t)
			f.mustUnmergeCustomer(ids[order[1]])
			if got := f.people(); got != before {
				t.Errorf("got\n%s\nwant\n%s", got, before)
			}
		})
	}
}

// TestThreadSinceMergeOfCustomers: a thread that began while its sender was merged stays with the
// survivor, but the sender's next message is the sender's own.
func TestThreadSinceMergeOfCustomers(t *testing.T) {
	f := newFixture(t)
	ana, _ := f.two()
	other, err := f.createCustomer(orgA, desk.NewCustomer{Name: "Bo", Phones: []string{"+4915199999999"}})
	if err != nil {
		t.Fatal(err)
	}
	f.mustMergeCustomers(other.ID, ana.CustomerID)
	during := f.intake(text("+4915199999999", "during"))
	if during.CustomerID != ana.CustomerID {
		t.Errorf("during the merge: %+v", during)
	}
	f.mustUnmergeCustomer(other.ID)
	after := f.intake(text("+4915199999999", "after"))
	if after.CustomerID != other.ID || after.TicketID == during.TicketID || f.ticket(during.TicketID).Customer.ID != ana.CustomerID {
		t.Errorf("after the undo: %+v", after)
	}
	f.wantInvariants(t)
}

// TestRedactMergedCustomers: the data of a merged customer goes with the survivor's, by either id,
// and there is nothing to undo.
func TestRedactMergedCustomers(t *testing.T) {
	for _, byMerged := range []bool{false, true} {
		f := newFixture(t)
		ana, num := f.two()
		undone := f.intake(said("", userID, "chat"))
		f.mustMergeCustomers(undone.CustomerID, num.CustomerID)
		f.mustUnmergeCustomer(undone.CustomerID)
		f.mustMergeCustomers(ana.CustomerID, num.CustomerID)
		d, err := f.desk.ExportCustomer(t.Context(), f.db, orgA, ana.CustomerID)
		if err != nil || d.CustomerID != num.CustomerID || len(d.TicketIDs) != 2 || len(d.Contacts) != 2 || len(d.EventIDs) != 3 || len(d.EventTicketIDs) != 3 {
			t.Fatalf("got export %+v, %v", d, err)
		}
		id := num.CustomerID
		if byMerged {
			id = ana.CustomerID
		}
		if err := f.desk.Redact(t.Context(), orgA, id); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(f.people(), "\n") {
			if strings.Contains(line, "ana@") || strings.Contains(line, "Ana") || strings.Contains(line, number) || strings.Contains(line, "merged_into") {
				t.Errorf("left: %s", line)
			}
		}
		for _, ticket := range []string{ana.TicketID, num.TicketID} {
			if m := f.messages(ticket); !m[0].Details.Redacted {
				t.Errorf("left: %+v", m[0])
			}
		}
		if m := f.messages(undone.TicketID); m[0].Details.Redacted {
			t.Error("a customer whose merge was undone is redacted, too")
		}
	}
}

// TestCrossingMergesOfCustomers merges customers into each other at the same time, beside their
// messages. One merge wins, and every ticket is of a customer that exists.
func TestCrossingMergesOfCustomers(t *testing.T) {
	f := newFixture(t)
	ana, num := f.two()
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			var err error
			switch i % 4 {
			case 0:
				_, err = f.mergeCustomers(orgA, ana.CustomerID, num.CustomerID)
			case 1:
				_, err = f.mergeCustomers(orgA, num.CustomerID, ana.CustomerID)
			case 2:
				_, err = f.tryIntake(mail("ana@client.example", fmt.Sprintf("x%d@client.example", i)))
			default:
				_, err = f.tryIntake(text(number, fmt.Sprint("x", i)))
			}
			if err != nil && problem.Of(err) != problem.Conflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	c := f.customer(ana.CustomerID)
	if other := f.customer(num.CustomerID); other.ID != c.ID || len(c.Emails) != 1 || len(c.Phones) != 1 {
		t.Errorf("got %+v and %+v", c, other)
	}
	var astray int
	if err := f.db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM tickets WHERE customer_id <> $1) + (SELECT count(*) FROM conversations WHERE customer_id <> $1)
		+ (SELECT count(*) FROM messages WHERE author_id <> $1)`, c.ID).Scan(&astray); err != nil || astray != 0 {
		t.Errorf("%d rows are of the merged customer, %v", astray, err)
	}
	f.wantInvariants(t)
}

// TestMatchAfterMergeOfCustomers: records of a shop find the survivor.
func TestMatchAfterMergeOfCustomers(t *testing.T) {
	f := newFixture(t)
	ana, num := f.two()
	f.mustMergeCustomers(ana.CustomerID, num.CustomerID)
	if id, made := f.matchCustomer(channel.Party{ID: "77", Email: "ana@client.example"}, channel.Party{}); id != num.CustomerID || made {
		t.Errorf("got %s, %v", id, made)
	}
	ticket, err := f.create(orgA, desk.NewTicket{Subject: "By the former id", CustomerID: ana.CustomerID})
	if err != nil || ticket.Customer.ID != num.CustomerID {
		t.Errorf("got %+v, %v", ticket.Customer, err)
	}
}

// TestExternalIDOfMerged: the external id of a merged customer leads to the survivor, which has its own.
func TestExternalIDOfMerged(t *testing.T) {
	f := newFixture(t)
	ana, num := f.two()
	chat := f.intake(said("", userID, "chat"))
	for id, externalID := range map[string]string{ana.CustomerID: "A1", num.CustomerID: "A2", chat.CustomerID: "A3"} {
		if _, err := f.updateCustomer(orgA, id, desk.CustomerUpdate{ExternalID: &externalID}); err != nil {
			t.Fatal(err)
		}
	}
	f.mustMergeCustomers(ana.CustomerID, num.CustomerID)
	f.mustMergeCustomers(num.CustomerID, chat.CustomerID)
	for _, ids := range [][]string{{"A1"}, {"A2"}, {"A3"}, {"A1", "A2", "A3"}} {
		list, _, err := f.desk.FindCustomers(t.Context(), f.db, orgA, desk.CustomerQuery{ExternalID: ids})
		if err != nil || len(list) != 1 || list[0].ID != chat.CustomerID {
			t.Errorf("%v: %d customers, %v", ids, len(list), err)
		}
	}
	for org, id := range map[string]string{orgA: "A4", orgB: "A1"} {
		if list, _, err := f.desk.FindCustomers(t.Context(), f.db, org, desk.CustomerQuery{ExternalID: []string{id}}); err != nil || len(list) != 0 {
			t.Errorf("%s: %d customers, %v", id, len(list), err)
		}
	}
	f.mustUnmergeCustomer(ana.CustomerID)
	if list, _, err := f.desk.FindCustomers(t.Context(), f.db, orgA, desk.CustomerQuery{ExternalID: []string{"A1"}}); err != nil || len(list) != 1 || list[0].ID != ana.CustomerID {
		t.Errorf("after the merge was undone: %v, %v", list, err)
	}
}
