package outbound_test

import (
	"errors"
	"net/mail"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	smtp "github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// create creates a ticket with a text as Grace.
func (r *rig) create(text string, n desk.NewTicket) (desk.Ticket, error) {
	r.Helper()
	says, err := r.desk.Compose(r.Context(), "", desk.Draft{Text: text})
	if err != nil {
		r.Fatal(err)
	}
	n.Subject, n.Content, n.By = "Your car", says, desk.Actor{ID: graceID, Name: "Grace"}
	var ticket desk.Ticket
	err = r.db.Write(r.Context(), func(tx *db.Tx) (err error) {
		ticket, err = r.desk.CreateTicketTx(r.Context(), tx, org, n)
		return err
	})
	return ticket, err
}

// said returns the only message of a ticket.
func (r *rig) said(ticket desk.Ticket) desk.Message {
	r.Helper()
	list, err := r.desk.Messages(r.Context(), r.db, org, ticket.ID)
	if err != nil || len(list) != 1 {
		r.Fatalf("%d messages, %v; want one", len(list), err)
	}
	return list[0]
}

// names returns the events so far.
func (r *rig) names() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for _, e := range r.events {
		list = append(list, string(e.Name))
	}
	return strings.Join(list, " ")
}

func TestTicketBeginsWithAText(t *testing.T) {
	p := newProvider(t)
	r := newRig(t, func(r *rig) { r.apiURL = p.URL })
	c := r.connect("sms", ourNumber)
	ticket, err := r.create("We found it.", desk.NewTicket{Channel: "sms", Customer: &desk.Person{Phone: anasPhone}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.names(), "customer.created ticket.created conversation.created message.created message.agent_reply"; got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
	m := r.said(ticket)
	if m.Direction != "outbound" || m.Author.ID != graceID || m.Author.Type != "agent" || m.Delivery.State != channel.ReceiptQueued || ticket.Channel != "sms" {
		t.Errorf("message: %+v", m)
	}
	r.run()
	r.until(m, channel.ReceiptSent, "")
	if got := p.taken(); len(got) != 1 || got[0].Body != "We found it." || got[0].To != anasPhone || got[0].From != ourNumber {
		t.Errorf("the provider took %+v", got)
	}
	if again := r.texts(c, "SMin", anasPhone, "Thanks!"); again.Outcome != desk.Appended || again.TicketID != ticket.ID || again.CustomerID != ticket.Customer.ID {
		t.Errorf("the answer: %+v", again)
	}

	// All messages of a number are one thread.
	_, err = r.create("And another thing.", desk.NewTicket{Channel: "sms", CustomerID: ticket.Customer.ID})
	refusal, _ := errors.AsType[*problem.Error](err)
	if refusal == nil || refusal.Code != "already_exists" || refusal.Details["member"] != "customer" ||
		refusal.Details["ticket_id"] != ticket.ID || refusal.Details["ticket_number"] != ticket.Number {
		t.Errorf("a second thread: %v", err)
	}
}

func TestTicketBeginsWithAMail(t *testing.T) {
	server := mailtest.NewServer(t, mailtest.ServerConfig{})
	r := newRig(t, func(r *rig) {
		var err error
		if r.mail, err = smtp.OpenSMTP(server.URL); err != nil {
			t.Fatal(err)
		}
	})
	c := r.connect("email-raw", ourMail)
	ticket, err := r.create("We found it.", desk.NewTicket{Channel: "email", Customer: &desk.Person{Name: "Ana", Email: "ana@c.example"}})
	if err != nil {
		t.Fatal(err)
	}
	m := r.said(ticket)
	r.run()
	r.until(m, channel.ReceiptSent, "")
	deliveries := server.Deliveries()
	if len(deliveries) != 1 {
		t.Fatalf("the server took %d mails", len(deliveries))
	}
	sent, err := mail.ReadMessage(strings.NewReader(string(deliveries[0].Raw)))
	if err != nil {
		t.Fatal(err)
	}
	if to, subject := sent.Header.Get("To"), sent.Header.Get("Subject"); !strings.Contains(to, "ana@c.example") || !strings.HasPrefix(subject, "Your car") {
		t.Errorf("sent to %s: %s", to, subject)
	}
	again := r.mails(c, "From: Ana <ana@c.example>\nTo: support@a.example\nSubject: Thanks\nMessage-ID: <a2@c.example>\nIn-Reply-To: "+
		sent.Header.Get("Message-ID")+"\n\nThanks!\n")
	if again.TicketID != ticket.ID || again.CustomerID != ticket.Customer.ID {
		t.Errorf("the answer: %+v", again)
	}
}

func TestTicketCannotBegin(t *testing.T) {
	r := newRig(t)
	r.connect("sms", ourNumber)
	nobody, err := r.create("", desk.NewTicket{Customer: &desk.Person{Name: "Ana"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		n    desk.NewTicket
		kind problem.Kind
		path string
	}{
		{"", desk.NewTicket{Channel: "sms", Customer: &desk.Person{Phone: anasPhone}}, problem.Invalid, "text"},
		{"hi", desk.NewTicket{Channel: "sms", Customer: &desk.Person{Email: "ana@c.example"}}, problem.Invalid, "customer.phone"},
		{"hi", desk.NewTicket{Channel: "sms", CustomerID: nobody.Customer.ID}, problem.Invalid, "customer_id"},
		{"hi", desk.NewTicket{Channel: "email", CustomerID: nobody.Customer.ID}, problem.Invalid, "customer_id"},
		{"hi", desk.NewTicket{Channel: "email", Customer: &desk.Person{Email: "ana@c.example"}}, problem.Precondition, ""}, // without a connection
	} {
		_, err := r.create(c.text, c.n)
		refusal, _ := errors.AsType[*problem.Error](err)
		if refusal == nil || refusal.Kind != c.kind || c.path != "" && refusal.Issues[0].Path != c.path {
			t.Errorf("%+v: got %v, want %s at %s", c.n, err, c.kind, c.path)
		}
	}
}

// A queued message leaves from its ticket's survivor, for its own recipient only.
func TestReplyOfAMergedTicket(t *testing.T) {
	server := mailtest.NewServer(t, mailtest.ServerConfig{})
	r := newRig(t, func(r *rig) {
		var err error
		if r.mail, err = smtp.OpenSMTP(server.URL); err != nil {
			t.Fatal(err)
		}
	})
	c := r.connect("email-raw", ourMail)
	from := func(who, id, cc string) desk.Result {
		return r.mails(c, "From: "+who+"@c.example\nTo: support@a.example\nCc: "+cc+"\nSubject: Hi\nMessage-ID: <"+id+"@c.example>\n\nHelp!\n")
	}
	ana := from("ana", "a1", "carl@c.example")
	bob := from("bob", "b1", "dora@c.example")
	first := r.reply(ana.TicketID, "One.")
	var merged desk.Ticket
	if err := r.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		merged, err = r.desk.MergeTx(t.Context(), tx, org, ana.TicketID, bob.TicketID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	second := r.reply(ana.TicketID, "Two.", func(reply *desk.Reply) { reply.ConversationID = ana.ConversationID })
	third := r.reply(merged.ID, "Three.", func(reply *desk.Reply) { reply.ConversationID = bob.ConversationID })
	if first.TicketID = merged.ID; second.TicketID != merged.ID {
		t.Errorf("the second is in %s", second.TicketID)
	}
	r.run()
	for _, m := range []desk.Message{first, second, third} {
		r.until(m, channel.ReceiptSent, "")
	}
	got := make(map[string]string)
	for _, d := range server.Deliveries() {
		m, err := mail.ReadMessage(strings.NewReader(string(d.Raw)))
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"One.", "Two.", "Three."} {
			if strings.Contains(string(d.Raw), "\n"+what) {
				got[what] = m.Header.Get("To") + " " + m.Header.Get("Cc")
			}
		}
	}
	for what, want := range map[string][]string{"One.": {"ana@", "carl@"}, "Two.": {"ana@", "carl@"}, "Three.": {"bob@", "dora@"}} {
		if n := strings.Count(got[what], "@"); n != 2 || !strings.Contains(got[what], want[0]) || !strings.Contains(got[what], want[1]) {
			t.Errorf("%s went to %s, want %s", what, got[what], want)
		}
	}
}
