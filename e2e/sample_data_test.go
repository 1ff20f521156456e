package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// Addresses of the test organizations.
const (
	ourNumber  = "+14155550100"
	ourMailbox = "support@acme-wheels.example"
)

// connect connects a number and a mailbox, and returns the ids of the connections.
func (p *program) connect(o account.Organization) (number, mailbox string) {
	p.t.Helper()
	ids := make([]string, 2)
	for i, n := range []connection.New{
		{Channel: "sms", Address: ourNumber, Name: "Main number", Credentials: map[string]string{"account_sid": "AC" + strings.Repeat("0", 32), "auth_token": "token"}},
		{Channel: "email-raw", Address: ourMailbox, Name: "Support mailbox"},
	} {
		n.OrganizationID, n.ByOperator = o.ID, true
		c, _, err := p.Connections.Connect(p.t.Context(), n)
		if err != nil {
			p.t.Fatal(err)
		}
		ids[i] = c.ID
	}
	return ids[0], ids[1]
}

// receiveText posts an SMS as the provider does.
func (p *program) receiveText(id, from, text string) {
	p.t.Helper()
	const path = "/api/webhooks/sms"
	form := url.Values{
		"MessageSid": {id}, "SmsSid": {id}, "AccountSid": {"AC" + strings.Repeat("0", 32)},
		"From": {from}, "To": {ourNumber}, "Body": {text}, "NumSegments": {"1"}, "NumMedia": {"0"},
	}
	status, answer := p.call("POST", path, http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"}, "X-Sms-Signature": {sms.Sign(p.base+path, form, textSecret)},
	}, []byte(form.Encode()))
	if status != http.StatusOK {
		p.t.Fatalf("the text message was answered %d %s", status, answer)
	}
}

// receiveMail posts a raw mail as a converter does.
func (p *program) receiveMail(from string, raw []byte) {
	p.t.Helper()
	signature, at := email.SignRaw(raw, time.Now(), mailSecret)
	status, answer := p.call("POST", "/api/webhooks/inbound-email?style=raw", http.Header{
		"Content-Type": {"message/rfc822"}, "X-Envelope-From": {from}, "X-Envelope-To": {ourMailbox},
		"X-Webhook-Timestamp": {at}, "X-Webhook-Signature": {signature},
	}, raw)
	if status != http.StatusOK {
		p.t.Fatalf("the mail was answered %d %s", status, answer)
	}
}

// markup returns a mail with an HTML part only.
func markup(from, subject, text string) []byte {
	return fmt.Appendf(nil, "From: %s\r\nTo: %s\r\nSubject: %s\r\nDate: %s\r\nMessage-ID: <%x@client.example>\r\nMIME-Version: 1.0\r\nContent-Type: text/html; charset=utf-8\r\n\r\n%s\r\n",
		from, ourMailbox, subject, time.Now().Format(time.RFC1123Z), len(text)+len(subject)*1000003, text)
}

// write runs change in a transaction.
func (p *program) write(change func(tx *db.Tx) error) {
	p.t.Helper()
	if err := p.DB.Write(p.t.Context(), change); err != nil {
		p.t.Fatal(err)
	}
}

// sampleTicket describes a ticket: the customer's messages and the agents' changes.
type sampleTicket struct {
	name, phone, mail string // of the customer
	ago               time.Duration
	subject, text     string // of the first message
	html              string
	reply, note       string // of an agent; empty: none
	again             string // the customer's second message
	elsewhere         string // its unauthenticated Reply-To
	status            desk.Status
	priority          desk.Priority
	to                persona // the assignee; anonymous: none
	tags              []string
}

// sampleTickets are the tickets of the populated organization. Some contain HTML or very
// long texts.
var sampleTickets = []sampleTicket{
	{name: "Ana Lind", mail: "ana@client.example", ago: 26 * time.Hour, subject: "Invoice for October", text: "Hello,\n\ncould you send me the invoice for October again? My accountant lost it.\n\nAna",
		reply: "Hello Ana,\n\nhere it is again. It is also in the app under Account.\n\nRobin", again: "Thank you, that was quick!\n\n> Hello Ana,\n>\n> here it is again.", status: desk.StatusPending, to: admin, tags: []string{"billing"}},
	{name: "Jo Rider", mail: "jo@client.example", ago: 20 * time.Hour, subject: "Parking zone at the station", text: "Is it allowed to end a ride in front of the station? The app says no.",
		note: "The zone was redrawn last week; ask operations.", again: "Please write to my private address.", elsewhere: "jo@private-mail.example",
		priority: desk.PriorityHigh, to: agent},
	{phone: "+14155550171", ago: 9 * time.Hour, text: "Hi, scooter B-0417 beeps but does not start. I am at Market Street.",
		reply: "Sorry about that. Please try B-0112, ten metres away; the first ride is on us.", again: "Works, thanks!", status: desk.StatusResolved, to: agent, tags: []string{"hardware", "b-0417"}},
	{phone: "+14155550172", ago: 5 * time.Hour, text: "I was charged twice for my ride this morning.", priority: desk.PriorityUrgent, tags: []string{"billing", "refund"}},
	{name: "Kim Adeyemi", mail: "kim@client.example", ago: 4 * time.Hour, subject: "Helmet box", text: "The helmet box of scooter B-0112 is jammed.", to: admin},
	{name: "Lee Ortiz", mail: "lee@client.example", ago: 3 * time.Hour, subject: "Cargo bikes for a weekend", text: "Do you rent cargo bikes for a weekend?\nWe are moving.", status: desk.StatusOnHold, reply: "We will have some from December on."},
	{name: `Max <script>alert("x")</script> & "Söhne"`, mail: "max@client.example", ago: 2 * time.Hour, subject: `</title><script>alert(1)</script> & 'quotes' "too"`, text: `<img src=x onerror=alert(1)> {{.Body}} ${7*7} javascript:alert(1)`, tags: []string{`<b>"tag"`}},
	{name: "ليلى حداد", mail: "layla@client.example", ago: 90 * time.Minute, subject: "السكوتر لا يعمل", text: "مرحبا، السكوتر رقم B-0417 لا يعمل.", priority: desk.PriorityLow},
	{name: "Rechtsanwältin Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaftsvorsitzende", mail: "a-very-long-address-that-nobody-would-type-twice@a-very-long-domain-name-of-somebody.example", ago: time.Hour,
		subject: "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft und noch ein paar Wörter mehr, damit es nirgends passt", text: "https://client.example/" + strings.Repeat("a/very/long/path/", 20)},
	{name: "Nina Berg", mail: "nina@client.example", ago: 40 * time.Minute, subject: "Photos of the broken brake", text: "See below.", html: `<p>Hello,</p><p>the <b>brake</b> is <span style="color:#a00">broken</span>.</p><table border="1"><tr><td>Ride</td><td>R-1</td></tr></table><p><img src="https://tracker.example/p.gif" alt=""></p><blockquote>You wrote something</blockquote>`},
	{phone: "+4915112345678", ago: 12 * time.Minute, text: "Kann ich die Fahrt am Bahnhof beenden?", to: admin},
}

// fill populates the world's organization.
func (w *world) fill() {
	w.t.Helper()
	ctx := w.t.Context()
	number, mailbox := w.connect(w.acme)
	var err error
	if w.pending, _, err = w.Connections.Connect(ctx, connection.New{OrganizationID: w.acme.ID, Channel: "email-raw", Address: "help@acme-wheels.example", Name: "New mailbox"}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.Connections.Prove(ctx, w.acme.ID, w.pending.ID, channel.ProveByMail); err != nil {
		w.t.Fatal(err)
	}
	for priority, minutes := range map[desk.Priority]int64{desk.PriorityUrgent: 30, desk.PriorityHigh: 240, desk.PriorityNormal: 480} {
		if _, err := w.Desk.SetSLAPolicy(ctx, desk.SLAPolicy{OrganizationID: w.acme.ID, Priority: priority, FirstResponseMinutes: minutes, ResolutionMinutes: minutes * 6}); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.DB.Write(ctx, func(tx *db.Tx) error {
		m, err := w.Desk.CreateMacroTx(ctx, tx, desk.Macro{
			OrganizationID: w.acme.ID, Name: "Lock does not open", Text: "Hello {{customer.first_name|there}},\n\nplease hold the phone close to the lock, and try again.",
			Note: "Check the battery of the lock.", Actions: desk.MacroActions{Status: desk.StatusPending, Priority: desk.PriorityHigh, Assignee: desk.AssigneeMe, AddTags: []string{"lock"}},
		})
		w.macro = m.ID
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	far := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	}))
	w.t.Cleanup(far.Close)
	for _, n := range []webhook.New{
		{URL: far.URL + "/good", Events: []string{"*"}, Secret: new("whsec_" + strings.Repeat("MDAw", 8))},
		{URL: far.URL + "/broken", Events: []string{"ticket.created", "message.created"}},
	} {
		hook, err := w.Webhooks.Create(ctx, w.acme.ID, n)
		if err != nil {
			w.t.Fatal(err)
		}
		w.webhooks = append(w.webhooks, hook.ID)
	}
	for i, tale := range sampleTickets {
		w.tickets = append(w.tickets, w.createTicket(i, tale, number, mailbox))
	}
	// Inbound events are stored as well.
	w.receiveText("SM1", "+14155550123", "Hello, the scooter at the station does not unlock.")
	w.receiveMail("pia@client.example", markup("Pia Sorel <pia@client.example>", "Your prices", "<p>What is a day <i>at most</i>?</p>"))
	asAdmin := audit.WithActor(ctx, audit.Actor{Type: audit.User, ID: w.people[admin].ID})
	for _, n := range []apikey.New{
		{Service: apikey.Helpdesk, Environment: apikey.Live, Name: "Back office", Permissions: apikey.Permissions{Level: apikey.Admin}},
		{Service: apikey.Helpdesk, Environment: apikey.Live, Name: `Reports <b>&</b> figures`, Permissions: apikey.Permissions{Level: apikey.ReadOnly}, AllowedIPs: []string{"192.0.2.0/24"}, ExpiresAt: time.Now().Add(90 * 24 * time.Hour)},
		{Service: apikey.Fleet, Environment: apikey.Live, Name: "City partner", Permissions: apikey.Permissions{Level: apikey.ReadWrite}},
		{Service: apikey.Fleet, Environment: apikey.Test, Name: "Trying things out", Permissions: apikey.Permissions{Level: apikey.Admin}},
	} {
		n.OrganizationID = w.acme.ID
		k, _, err := w.Keys.Create(asAdmin, n)
		if err != nil {
			w.t.Fatal(err)
		}
		w.keys = append(w.keys, k.ID)
		w.useKey(k)
	}
	if err := w.Requests.Flush(ctx); err != nil {
		w.t.Fatal(err)
	}
	o := fleet.Organization{ID: w.acme.ID, Name: w.acme.Name}
	if err := w.Fleet.Seed(ctx, o); err != nil {
		w.t.Fatal(err)
	}
	if err := w.Sandbox.Provision(ctx, o); err != nil {
		w.t.Fatal(err)
	}
}

// useKey records requests of a key: more than a page has, with a refusal by each rule.
func (w *world) useKey(k apikey.Key) {
	for i := range 30 {
		r := requestlog.Request{
			RequestID: fmt.Sprint("request-", i), Key: requestlog.Key{ID: k.ID, OrganizationID: k.OrganizationID, Service: string(k.Service), Environment: string(k.Environment)},
			At: time.Now().Add(-time.Duration(30-i) * time.Minute), Duration: time.Duration(i) * time.Millisecond, Method: "GET", Status: 200,
			Path: "/api/v1/tickets?cursor=*&limit=100&q=*&sort=-created_at&status=open%2Cpending", Address: netip.MustParseAddr("2001:db8:85a3:8d3:1319:8a2e:370:7348"),
		}
		if rules := requestlog.Rules(); i >= 20 && i-20 < len(rules) {
			r.Method, r.Path, r.Status, r.Code = "POST", "/api/v1/tickets/0198f3a2-7c41-7e6b-9f0d-3b5a1c2d4e6f/messages", 403, "permission_denied"
			r.Refusal = requestlog.Refusal{Rule: rules[i-20], Needed: "tickets.create"}
		}
		w.Requests.Record(r)
	}
}

// createTicket creates a ticket and returns its number.
func (w *world) createTicket(i int, tale sampleTicket, number, mailbox string) int64 {
	w.t.Helper()
	ctx := w.t.Context()
	in := desk.InboundEvent{OrganizationID: w.acme.ID, ConnectionID: number, Channel: "sms", ReceivedAt: time.Now().Add(-tale.ago)}
	from := channel.Party{Name: tale.name, Phone: tale.phone, Email: tale.mail}
	message := func(n int, text string) *channel.Message {
		m := &channel.Message{ExternalID: fmt.Sprintf("%d-%d@client.example", i, n), From: from, ThreadKey: tale.phone, Text: text, HTML: tale.html}
		if tale.mail != "" {
			in.ConnectionID, in.Channel = mailbox, "email"
			m.Subject = tale.subject
			_, domain, _ := strings.Cut(tale.mail, "@")
			m.Mail = &channel.Mail{MessageID: m.ExternalID, Recipient: ourMailbox, EnvelopeFrom: tale.mail, HasEnvelope: true, Sender: from}
			m.Mail.Proof = mailauth.Result{Verdict: mailauth.Proven, Reason: "DKIM signature of " + domain + " matches the From address", Domain: domain}
			if n > 0 && tale.elsewhere != "" {
				m.From.Email, m.Cc = tale.elsewhere, []channel.Party{{Name: "Kim Rider", Email: "kim@private-mail.example"}}
				m.Mail.Proof = mailauth.Result{Verdict: mailauth.Unproven, Reason: "there is no DKIM signature of " + domain + ", and no trusted server reports SPF", Domain: domain}
			}
			if n > 0 {
				m.Mail.InReplyTo = []string{fmt.Sprintf("%d-0@client.example", i)}
				m.Stripped, _, _ = strings.Cut(text, "\n\n>")
			}
		}
		return m
	}
	in.Event = channel.Event{Message: message(0, tale.text)}
	var first desk.Result
	w.write(func(tx *db.Tx) (err error) {
		first, err = w.Desk.IngestTx(ctx, tx, in)
		return err
	})
	robin := desk.Actor{ID: w.people[admin].ID, Name: w.people[admin].Name}
	say := func(text string) desk.Content {
		says, err := w.Desk.Compose(ctx, "", desk.Draft{Text: text})
		if err != nil {
			w.t.Fatal(err)
		}
		return says
	}
	if tale.note != "" {
		says := say(tale.note)
		w.write(func(tx *db.Tx) error {
			_, err := w.Desk.AddNoteTx(ctx, tx, w.acme.ID, first.TicketID, robin, says)
			return err
		})
	}
	if tale.reply != "" {
		says := say(tale.reply)
		w.write(func(tx *db.Tx) error {
			_, err := w.Desk.ReplyTx(ctx, tx, w.acme.ID, first.TicketID, desk.Reply{By: robin, Content: says})
			return err
		})
	}
	if tale.again != "" {
		in.ReceivedAt = time.Now().Add(-tale.ago / 2)
		in.Event = channel.Event{Message: message(1, tale.again)}
		w.write(func(tx *db.Tx) error {
			_, err := w.Desk.IngestTx(ctx, tx, in)
			return err
		})
	}
	u := desk.Update{}
	if tale.status != "" {
		u.Status = &tale.status
	}
	if tale.priority != "" {
		u.Priority = &tale.priority
	}
	if tale.to != anonymous {
		id := w.people[tale.to].ID
		u.AssigneeID = &id
	}
	if tale.tags != nil {
		u.Tags = &tale.tags
	}
	w.write(func(tx *db.Tx) error {
		_, err := w.Desk.UpdateTx(ctx, tx, w.acme.ID, first.TicketID, u)
		return err
	})
	return first.TicketNumber
}
