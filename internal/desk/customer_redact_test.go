package desk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const shopA = "0190c0de-0000-7000-8000-0000000000a6"

var shopOrigin = channel.Source{OrganizationID: orgA, ConnectionID: shopA, Channel: "storefront", TicketChannel: "storefront"}

func (f *fixture) matchCustomer(p, was channel.Party) (id string, made bool) {
	f.Helper()
	if err := f.db.Write(f.Context(), func(tx *db.Tx) (err error) {
		id, made, err = f.desk.MatchCustomerTx(f.Context(), tx, shopOrigin, p, was)
		return err
	}); err != nil {
		f.Fatal(err)
	}
	return id, made
}

func TestKnow(t *testing.T) {
	f := newFixture(t)
	one := f.intake(text(number, "hello")).CustomerID
	f.emitted()
	ana := channel.Party{ID: "191167", Name: "Ana", Email: "Ana@client.example", Phone: "+49 1511 2345678"}
	id, made := f.matchCustomer(ana, channel.Party{})
	if id != one || made {
		t.Errorf("by number: got %s, %v, want %s", id, made, one)
	}
	if got := f.emitted(); got != "customer.updated" {
		t.Errorf("got events %s", got)
	}
	f.matchCustomer(ana, channel.Party{})
	if got := f.emitted(); got != "" {
		t.Errorf("the same again: got events %s", got)
	}
	// The id takes precedence over the address; and only values that the shop itself
	// reported before are replaced.
	other, made := f.matchCustomer(channel.Party{ID: "2", Name: "Bo", Email: "bo@client.example"}, channel.Party{})
	if !made || other == one {
		t.Errorf("somebody else: got %s, %v", other, made)
	}
	if id, _ := f.matchCustomer(channel.Party{ID: "2", Name: "Ana M", Email: "ana@client.example"}, channel.Party{}); id != other {
		t.Errorf("by id: got %s, want %s", id, other)
	}
	if got := f.customer(other); got.Name != "Bo" || asJSON(got.Emails) != `["bo@client.example"]` {
		t.Errorf("got %+v, want them as they were", got)
	}
	f.matchCustomer(channel.Party{ID: "2", Name: "Bob", Email: "bob@client.example", Phone: "call me"}, channel.Party{Name: "Bo", Email: "bo@client.example"})
	if got := f.customer(other); got.Name != "Bob" || asJSON(got.Emails) != `["bob@client.example","bo@client.example"]` || len(got.Phones) != 0 {
		t.Errorf("got %+v, want what the shop has now first", got)
	}
	if id, made := f.matchCustomer(channel.Party{}, channel.Party{}); !made || id == "" {
		t.Errorf("nobody: got %s, %v", id, made)
	}
	for _, tt := range []struct {
		p    channel.Party
		want string
	}{
		{channel.Party{Email: "BOB@client.example"}, other},
		{channel.Party{Phone: number}, one},
		{channel.Party{ID: "191167"}, ""},
		{channel.Party{Email: "nobody@client.example"}, ""},
	} {
		if got, err := f.desk.CustomerByContact(t.Context(), f.db, orgA, tt.p); err != nil || got != tt.want {
			t.Errorf("%+v is %q, %v, want %q", tt.p, got, err, tt.want)
		}
		if got, err := f.desk.CustomerByContact(t.Context(), f.db, orgB, tt.p); err != nil || got != "" {
			t.Errorf("%+v is %q, %v in another organization", tt.p, got, err)
		}
	}
	unlink := func(org string) error {
		return f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.RemoveIdentitiesTx(t.Context(), tx, org, shopA, one) })
	}
	if err := unlink(orgB); problem.Of(err) != problem.NotFound {
		t.Errorf("got %v, want not found", err)
	}
	if err := unlink(orgA); err != nil {
		t.Fatal(err)
	}
	if got := f.customer(one); len(got.Identities) != 0 || len(got.Emails) != 1 {
		t.Errorf("got %+v, want no id", got)
	}
}

func TestParallelKnow(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			p := channel.Party{ID: "191167", Email: "ana@client.example"}
			if i%3 == 0 {
				p.Phone = number
			}
			if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
				_, _, err := f.desk.MatchCustomerTx(t.Context(), tx, shopOrigin, p, channel.Party{})
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for table, want := range map[string]int{"customers": 1, "contact_points": 3} {
		if got := f.count(table); got != want {
			t.Errorf("got %d %s, want %d", got, table, want)
		}
	}
}

// TestRedact: afterwards no table, search or file of the desk has data of the
// customer, and other customers' data is unchanged.
func TestRedact(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = dispatcher{} })
	// The word must not be found anywhere afterwards.
	const word = "zanzibar"
	first := mail("ana."+word+"@client.example", "1."+word+"@client.example")
	m := first.Event.Message
	m.From.Name, m.Subject, m.Text, m.HTML = "Ana "+word, "My "+word, "Hello\n"+word, "<p>"+word+"</p>"
	m.Cc = []channel.Party{{Name: "Other", Email: "other@client.example"}}
	m.Attachments = []channel.Attachment{{Name: word + ".txt", Data: []byte("a file of " + word)}}
	one := f.intake(first)
	waits := f.reply(one.TicketID, "Dear "+word)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		says, err := f.desk.Compose(t.Context(), orgA, desk.Draft{Text: word + " is a good customer"})
		if err == nil {
			_, err = f.desk.AddNoteTx(t.Context(), tx, orgA, one.TicketID, desk.Actor{Name: "Grace"}, says)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	sms := said(number, userID, "text "+word)
	sms.Event.Message.From.Name = "Ana " + word
	sms.Event.Message.From.Email = "ana." + word + "@client.example"
	chat := f.intake(sms)
	// In another customer's ticket.
	of := f.intake(mail("bob@client.example", "2@client.example"))
	answer := reply("ana."+word+"@client.example", "3."+word+"@client.example", "2@client.example")
	answer.Event.Message.Text = "me too, says " + word
	in := f.intake(answer)
	bobs := reply("bob@client.example", "4@client.example", "2@client.example")
	bobs.Event.Message.Cc = []channel.Party{{Email: "ana." + word + "@client.example"}}
	f.intake(bobs)
	for _, u := range []desk.Update{
		{Subject: new("Still " + word), ExternalID: new(word), Metadata: desk.MetadataUpdate{"name": new(word)}},
		{ExternalID: new(""), Metadata: desk.MetadataUpdate{"name": nil}},
	} {
		if _, err := f.update(orgA, one.TicketID, u); err != nil {
			t.Fatal(err)
		}
	}
	f.index()

	customer := one.CustomerID
	if chat.CustomerID != customer || in.TicketID != of.TicketID || in.CustomerID != customer {
		t.Fatalf("the customer is not one: %+v, %+v, %+v", one, chat, in)
	}
	d, err := f.desk.ExportCustomer(t.Context(), f.db, orgA, customer)
	if err != nil {
		t.Fatal(err)
	}
	if asJSON(d.TicketIDs) != asJSON([]string{one.TicketID, chat.TicketID, of.TicketID}) || len(d.Files) != 1 || len(d.Contacts) != 3 {
		t.Errorf("got dossier %v, %v, %d files", d.TicketIDs, d.Contacts, len(d.Files))
	}
	if text := string(d.Record); !strings.Contains(text, "a good customer") || !strings.Contains(text, "me too") || strings.Contains(text, "bob@client") {
		t.Errorf("got record %s", text)
	}
	if _, err := f.desk.ExportCustomer(t.Context(), f.db, orgB, customer); problem.Of(err) != problem.NotFound {
		t.Errorf("another organization's: %v", err)
	}
	if err := f.desk.Redact(t.Context(), orgB, customer); err != nil || !strings.Contains(f.customer(customer).Name, word) {
		t.Errorf("another organization redacts: %v", err)
	}

	f.emitted()
	for range 2 {
		if err := f.desk.Redact(t.Context(), orgA, customer); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := f.emitted(), "ticket.updated ticket.updated customer.updated"; got != want {
		t.Errorf("got events %s, want %s", got, want)
	}
	f.index()
	f.wantNoTrace(word, number, userID)
	if got := f.numbers(orgA, desk.TicketQuery{Text: word}); len(got) != 0 {
		t.Errorf("found tickets %v", got)
	}
	if got := f.messages(one.TicketID); len(got) != 3 || got[0].Text != "" || !got[0].Details.Redacted || got[1].ID != waits.ID || got[1].Delivery.State != channel.ReceiptFailed {
		t.Errorf("got %s", asJSON(got))
	}
	if got := f.ticket(one.TicketID); got.Subject != "(redacted)" || got.Customer.Name != "" {
		t.Errorf("got %+v", got)
	}
	if got := f.messages(of.TicketID); len(got) != 3 || got[0].Text == "" || got[1].Text != "" || got[2].Text == "" {
		t.Errorf("of others: got %s", asJSON(got))
	}
	if got := f.intake(said("", userID, "back")); got.Outcome != desk.TicketCreated || got.CustomerID == customer {
		t.Errorf("who writes again: got %+v, want somebody new", got)
	}
}

// TestForgottenFile: a file is deleted when no message uses it any more.
func TestForgottenFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t))
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
		sent := func(from string, text string) (desk.Result, string) {
			in := said("", from, text)
			in.Event.Message.Attachments = []channel.Attachment{{Name: "a.txt", Data: []byte("shared")}}
			r := f.intake(in)
			return r, f.messages(r.TicketID)[0].Attachments[0].BlobKey
		}
		one, key := sent("DE.1", "one")
		two, _ := sent("DE.2", "two")
		for _, tt := range []struct {
			customer string
			want     error
		}{{one.CustomerID, nil}, {two.CustomerID, blob.ErrNotFound}} {
			if err := f.desk.Redact(t.Context(), orgA, tt.customer); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			r, err := f.blob.Open(t.Context(), key)
			if err == nil {
				r.Close()
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		}
	})
}

// TestRedactReactions: a redacted customer's name is removed from reactions to
// another's message; other reactions stay.
func TestRedactReactions(t *testing.T) {
	f := newFixture(t)
	in := func(user string, e channel.Event) desk.Result {
		t.Helper()
		if m := e.Message; m != nil {
			m.ThreadKey, m.From = "C9:1763", channel.Party{ID: user, Name: "Name of " + user}
		}
		return f.intake(desk.InboundEvent{OrganizationID: orgA, ConnectionID: chatA, Channel: "chat", Event: e})
	}
	one := in("U1", channel.Event{Message: &channel.Message{ExternalID: "C9:1", Text: "printer is down"}})
	two := in("U2", channel.Event{Message: &channel.Message{ExternalID: "C9:2", Text: "for me too"}})
	for _, user := range []string{"U2", "U3"} {
		in(user, channel.Event{Annotation: &channel.Annotation{Kind: channel.Reacted, ExternalID: "C9:1", By: channel.Party{ID: user, Name: "Name of " + user}, Text: "+1"}})
	}
	for range 2 {
		if err := f.desk.Redact(t.Context(), orgA, two.CustomerID); err != nil {
			t.Fatal(err)
		}
	}
	m := f.messages(one.TicketID)
	if m[0].Text != "printer is down" || m[1].Text != "" || len(m[0].Details.Annotations) != 2 {
		t.Fatalf("got %s", asJSON(m))
	}
	if a := m[0].Details.Annotations; a[0].By != "" || a[0].ByID != "" || a[0].Text != "+1" || a[1].By != "Name of U3" || a[1].ByID != "U3" {
		t.Errorf("got annotations %s, want only the redacted customer's without a name", asJSON(a))
	}
}

// wantNoTrace checks that no table has any of some texts, in any case.
func (f *fixture) wantNoTrace(traces ...string) {
	f.Helper()
	for _, table := range []string{
		"customers", "contact_points", "tickets", "ticket_changes", "conversations", "messages", "message_ids", "participants", "attachments", "outbox", "pending_replies", "mail_senders", "acknowledgements",
	} {
		rows, err := f.db.Query(f.Context(), "SELECT * FROM "+table)
		if err != nil {
			f.Fatal(err)
		}
		columns := rows.Columns()
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				f.Fatal(err)
			}
			for i, v := range values {
				text, _ := v.(string)
				if b, ok := v.([]byte); ok {
					text = string(b)
				}
				for _, trace := range traces {
					if strings.Contains(strings.ToLower(text), strings.ToLower(trace)) {
						f.Errorf("%s.%s still has %s", table, columns[i], text)
					}
				}
			}
		}
		if err := rows.Close(); err != nil {
			f.Fatal(err)
		}
	}
}

// TestRedactBystander: a customer who got blind copies of another's ticket, or forwards of it, is
// erased there, too.
func TestRedactBystander(t *testing.T) {
	f := guarded(t)
	const word = "zanzibar"
	own := mail("bob@"+word+".example", "b1@"+word+".example")
	own.Event.Message.From.Name = "Bob " + word
	bob := f.intake(own)
	ana := f.intake(mail("ana@c.example", "m1@c.example"))
	blind, err := f.answer(ana.TicketID, desk.Reply{Bcc: []string{"bob@" + word + ".example", "law@d.example"}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := f.forward(orgA, ana.TicketID, desk.Forward{To: "Bob@" + word + ".example"})
	if err != nil {
		t.Fatal(err)
	}
	in := answerTo(m, "bob@"+word+".example", "b2@"+word+".example")
	in.Event.Message.Mail.Sender.Name, in.Event.Message.Text = "Bob "+word, "Bob of "+word+" has it."
	in.Event.Message.Attachments = []channel.Attachment{{Name: word + ".txt", Data: []byte("a")}}
	if r := f.intake(in); r.ConversationID != m.ConversationID {
		t.Fatalf("the answer is %+v", r)
	}
	again, err := f.forward(orgA, ana.TicketID, desk.Forward{To: "sam@supplier.example", MessageID: f.last(ana.TicketID).ID})
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := f.later(ana.TicketID, grace, desk.Reply{
		SendAt: time.Now().Add(time.Hour), Cc: []string{"bob@" + word + ".example", "eve@d.example"}, Bcc: []string{"Bob@" + word + ".example"},
	}, desk.Draft{Text: "later"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.desk.Redact(t.Context(), orgA, bob.CustomerID); err != nil {
			t.Fatal(err)
		}
	}
	f.index()
	f.wantNoTrace(word)
	for _, got := range f.messages(ana.TicketID) {
		switch {
		case got.ID == blind.ID && (got.Text != "x" || len(got.Details.Bcc) != 1 || len(got.Details.To) != 1),
			got.ID == m.ID && (got.Text == "" || got.Details.Redacted), got.ID == again.ID && !got.Details.Redacted:
			t.Errorf("left is %s", asJSON(got))
		}
	}
	if got := f.pending(ana.TicketID); got != "later scheduled" {
		t.Errorf("waiting are %q", got)
	}
	var cc string
	if err := f.db.QueryRow(t.Context(), "SELECT cc FROM pending_replies WHERE message_id = $1", waiting.ID).Scan(&cc); err != nil || cc != `["eve@d.example"]` {
		t.Errorf("it waits with copies to %s, %v", cc, err)
	}
}

// TestRedactForwards: copies of a redacted message in forwards of it go with it, and the answers,
// which quote it. Other forwards stay.
func TestRedactForwards(t *testing.T) {
	for _, moved := range []bool{false, true} {
		t.Run(fmt.Sprintf("moved %t", moved), func(t *testing.T) { testRedactForwards(t, moved) })
	}
}

// testRedactForwards moves the message to another ticket before.
func testRedactForwards(t *testing.T, moved bool) {
	f := guarded(t)
	const word = "zanzibar"
	ana := f.intake(mail("ana@c.example", "m1@c.example"))
	first := f.last(ana.TicketID)
	in := reply("bob@"+word+".example", "b1@"+word+".example", "m1@c.example")
	in.Event.Message.Text = "me too, says " + word
	in.Event.Message.Attachments = []channel.Attachment{{Name: word + ".txt", Data: []byte("a")}}
	bob := f.intake(in)
	if bob.TicketID != ana.TicketID {
		t.Fatalf("the answer is %+v", bob)
	}
	all, err := f.forward(orgA, ana.TicketID, desk.Forward{To: "sam@supplier.example"})
	if err != nil {
		t.Fatal(err)
	}
	in = answerTo(all, "sam@supplier.example", "s1@supplier.example")
	in.Event.Message.Text = "Yes.\n> me too, says " + word
	f.intake(in)
	nested, err := f.forward(orgA, ana.TicketID, desk.Forward{To: "max@supplier.example", MessageID: all.ID})
	if err != nil {
		t.Fatal(err)
	}
	other, err := f.forward(orgA, ana.TicketID, desk.Forward{To: "max@supplier.example", MessageID: first.ID})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(all.Text+nested.Text, word) || len(all.Attachments) != 1 || strings.Contains(other.Text, word) {
		t.Fatalf("forwarded are %q, %q, %q", all.Text, nested.Text, other.Text)
	}
	if moved {
		if _, err := f.split(orgA, ana.TicketID, bob.MessageID); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.desk.Redact(t.Context(), orgA, bob.CustomerID); err != nil {
		t.Fatal(err)
	}
	f.index()
	f.wantNoTrace(word)
	if w := f.waiting(other.ID); f.count("outbox") != 1 || !strings.Contains(w.Text, first.Text) || f.last(ana.TicketID).Details.Redacted {
		t.Errorf("the other forward is %+v, %d wait", w, f.count("outbox"))
	}
}

// TestExportWithoutBystanders: the export for a customer names no blind copies, and nobody to whom
// messages were forwarded.
func TestExportWithoutBystanders(t *testing.T) {
	f := guarded(t)
	ana := f.intake(mail("ana@c.example", "m1@c.example"))
	if _, err := f.answer(ana.TicketID, desk.Reply{Cc: []string{"eve@d.example"}, Bcc: []string{"law@d.example"}}); err != nil {
		t.Fatal(err)
	}
	m, err := f.forward(orgA, ana.TicketID, desk.Forward{To: "sam@supplier.example"})
	if err != nil {
		t.Fatal(err)
	}
	in := answerTo(m, "sam@supplier.example", "s1@supplier.example")
	in.Event.Message.Mail.Sender.Name = "Sam"
	proven(in.Event.Message)
	f.intake(in)
	d, err := f.desk.ExportCustomer(t.Context(), f.db, orgA, ana.CustomerID)
	if err != nil {
		t.Fatal(err)
	}
	record := string(d.Record)
	for text, want := range map[string]bool{"law@d.example": false, "supplier.example": false, "Sam": false, "eve@d.example": true, "It is in stock.": true} {
		if strings.Contains(record, text) != want {
			t.Errorf("%q in %s, want %t", text, record, want)
		}
	}
}
