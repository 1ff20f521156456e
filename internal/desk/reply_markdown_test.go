package desk_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// signers is staff of whom Grace has a signature.
type signers struct {
	staff
	signature *string
}

func (s signers) Preferences(_ context.Context, _ db.Querier, org string, ids []string) (map[string]json.RawMessage, error) {
	found := make(map[string]json.RawMessage)
	for _, id := range ids {
		if _, ok := people[org+id]; ok {
			object, err := json.Marshal(map[string]string{"signature": *s.signature})
			if err != nil {
				return nil, err
			}
			found[id] = object
		}
	}
	return found, nil
}

// signingDispatcher sends by a connection with a signature.
type signingDispatcher struct {
	dispatcher
	signature string
}

func (d signingDispatcher) PrepareSend(ctx context.Context, q db.Querier, organizationID, connectionID, ticketChannel string, m *channel.Outgoing) (string, error) {
	m.Signature = d.signature
	return d.dispatcher.PrepareSend(ctx, q, organizationID, connectionID, ticketChannel, m)
}

// signed returns a fixture with the signatures of Grace and of the connection, and a way to change
// Grace's.
func signed(t *testing.T, own, ofConnection string) (f *fixture, change *string) {
	change = &own
	return newFixture(t, func(c *desk.Config) {
		c.Directory, c.Dispatcher = signers{signature: change}, signingDispatcher{signature: ofConnection}
	}), change
}

// replyBy writes a reply, and returns its message and what leaves.
func (f *fixture) replyBy(by desk.Actor, ticketID string, d desk.Draft) (desk.Message, desk.OutboxMessage) {
	f.Helper()
	m, err := f.later(ticketID, by, desk.Reply{}, d)
	if err != nil {
		f.Fatal(err)
	}
	return m, f.waiting(m.ID)
}

func TestMarkdownReply(t *testing.T) {
	f := guarded(t)
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	const text = "Dear **Ana**,\nsee https://a.example & <b>this</b>"
	m, w := f.replyBy(grace, one.TicketID, desk.Draft{Text: text})
	const markup = `<p>Dear <strong>Ana</strong>,<br>` + "\n" + `see <a href="https://a.example" rel="nofollow noreferrer noopener" target="_blank">https://a.example</a> &amp; &lt;b&gt;this&lt;/b&gt;</p>`
	if m.Text != text || m.HTML != markup || !m.Details.Markdown {
		t.Errorf("stored %q, %q, %v", m.Text, m.HTML, m.Details.Markdown)
	}
	if w.Text != text || w.HTML != markup {
		t.Errorf("it leaves as %q, %q", w.Text, w.HTML)
	}
	// HTML by the API is its own.
	m, _ = f.replyBy(grace, one.TicketID, desk.Draft{Text: "*a*", HTML: "<p>a</p>"})
	if m.HTML != "<p>a</p>" || m.Details.Markdown {
		t.Errorf("HTML became %q", m.HTML)
	}
	// Other channels have the text alone, and so have notes.
	sms := f.intake(said(number, "", "hello"))
	m, w = f.replyBy(grace, sms.TicketID, desk.Draft{Text: "*a*"})
	if m.Text != "*a*" || m.HTML != "" || m.Details.Markdown || w.Text != "*a*" || w.HTML != "" {
		t.Errorf("by text: %q, %q", m.Text, m.HTML)
	}
	note, err := f.note(orgA, one.TicketID, grace, desk.Draft{Note: true, Text: "*a*"})
	if err != nil || note.HTML != "" {
		t.Errorf("a note: %q, %v", note.HTML, err)
	}
}

func TestMarkdownTicket(t *testing.T) {
	f := guarded(t)
	ticket, err := f.create(orgA, desk.NewTicket{
		Subject: "Hello", Channel: "email", Customer: &desk.Person{Email: "ana@c.example"}, By: grace, Content: f.compose(desk.Draft{Text: "- one"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if m := f.messages(ticket.ID)[0]; m.HTML != "<ul>\n<li>one</li>\n</ul>" {
		t.Errorf("the first message is %q", m.HTML)
	}
}

func TestInlinePicture(t *testing.T) {
	f := guarded(t)
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	files := []channel.Attachment{
		{Name: "map.png", ContentType: "image/png", Data: []byte("map")}, {Name: "a b.png", ContentType: "image/png", Data: []byte("other")},
		{Name: "page.svg", ContentType: "image/svg+xml", Data: []byte("<svg/>")},
	}
	const text = "See ![the map](attachment:map.png) and ![](attachment:page.svg) and ![x](attachment:gone.png)"
	m, w := f.replyBy(grace, one.TicketID, desk.Draft{Text: text, Attachments: files})
	if m.Text != text || !strings.Contains(m.HTML, `<img src="/attachments/`+m.Attachments[0].ID+`" alt="the map">`) || !strings.Contains(m.HTML, "and [] and [x]") {
		t.Errorf("stored %q, %q", m.Text, m.HTML)
	}
	id := m.Attachments[0].ContentID
	if !m.Attachments[0].Inline || m.Attachments[1].Inline || m.Attachments[2].Inline || !regexp.MustCompile(`^[0-9a-f-]{36}@picture$`).MatchString(id) {
		t.Errorf("files %+v", m.Attachments)
	}
	if w.Files[0].ContentID != id || w.Files[1].ContentID != "" || !strings.Contains(w.HTML, `<img src="cid:`+id+`" alt="the map">`) {
		t.Errorf("it leaves with %+v in %q", w.Files, w.HTML)
	}
	if want := "See [the map] and ![](attachment:page.svg) and ![x](attachment:gone.png)"; w.Text != want {
		t.Errorf("as text %q, want %q", w.Text, want)
	}
	// By another channel it is a file.
	sms := f.intake(said(number, "", "hello"))
	m, w = f.replyBy(grace, sms.TicketID, desk.Draft{Text: "See it.\n\n![the map](attachment:map.png)", Attachments: files[:1]})
	if m.Text != "See it." || m.Attachments[0].Inline || w.Text != "See it." || len(w.Files) != 1 {
		t.Errorf("by text: %q with %+v", m.Text, m.Attachments)
	}
}

func TestMailSignatures(t *testing.T) {
	f, own := signed(t, "{{agent.first_name}}\n_Support_", "Acme & Co")
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	m, w := f.replyBy(desk.Actor{ID: graceID, Name: "Grace Hopper"}, one.TicketID, desk.Draft{Text: "Yes."})
	if m.Text != "Yes." || m.HTML != "<p>Yes.</p>" {
		t.Errorf("stored %q, %q", m.Text, m.HTML)
	}
	const text, markup = "Yes.\n\n-- \nGrace\n_Support_\n\nAcme & Co", "<p>Yes.</p><div>-- </div><p>Grace<br>\n<em>Support</em></p>\n<p>Acme &amp; Co</p>"
	if w.Text != text || w.HTML != markup {
		t.Errorf("it leaves as %q, %q", w.Text, w.HTML)
	}
	// A mail that waits stays as it was queued.
	*own = "Grace, on leave"
	if again := f.waiting(m.ID); again.Text != text || again.HTML != markup {
		t.Errorf("another attempt has %q, %q", again.Text, again.HTML)
	}
	*own = ""
	if _, w := f.replyBy(grace, one.TicketID, desk.Draft{Text: "Yes."}); w.Text != "Yes.\n\n-- \nAcme & Co" {
		t.Errorf("without one of her own: %q", w.Text)
	}
	// An API key has the connection's only.
	*own = "Grace"
	if _, w := f.replyBy(desk.Actor{ID: "key", Name: "Sync"}, one.TicketID, desk.Draft{Text: "Yes.", HTML: "<p>Yes.</p>"}); w.Text != "Yes.\n\n-- \nAcme & Co" || w.HTML != "<p>Yes.</p><div>-- </div><p>Acme &amp; Co</p>" {
		t.Errorf("by a key: %q, %q", w.Text, w.HTML)
	}
	// Nor does a text have any.
	sms := f.intake(said(number, "", "hello"))
	if _, w := f.replyBy(grace, sms.TicketID, desk.Draft{Text: "Yes."}); w.Text != "Yes." {
		t.Errorf("by text: %q", w.Text)
	}
}

// A held reply is rendered as it was written, and signed as it leaves.
func TestHeldMarkdown(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		one := f.intake(mail("ana@c.example", "m1@c.example"))
		m, err := f.later(one.TicketID, grace, desk.Reply{Hold: 10 * time.Second, Bcc: []string{"audit@c.example"}, Cc: []string{"bob@c.example"}}, desk.Draft{
			Text: "![](attachment:a.png) **x**", Attachments: []channel.Attachment{{Name: "a.png", ContentType: "image/png", Data: []byte("a")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		pass(11 * time.Second)
		sent := f.last(one.TicketID)
		if sent.ID != m.ID || !sent.Details.Markdown || sent.HTML != `<p><img src="/attachments/`+m.Attachments[0].ID+`" alt=""> <strong>x</strong></p>` {
			t.Errorf("it left as %q, %+v", sent.HTML, sent.Details)
		}
		if d := sent.Details; len(d.Bcc) != 1 || d.Bcc[0].Email != "audit@c.example" || len(d.Cc) != 1 || d.Cc[0].Email != "bob@c.example" {
			t.Errorf("copies %+v, blind %+v", sent.Details.Cc, sent.Details.Bcc)
		}
		if w := f.waiting(m.ID); w.Text != "[a.png] **x**" || w.Files[0].ContentID == "" {
			t.Errorf("it leaves as %q with %+v", w.Text, w.Files)
		}
	}, func(c *desk.Config) { c.Dispatcher = dispatcher{} })
}

func TestPreviewReply(t *testing.T) {
	f, _ := signed(t, "Grace", "Acme")
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	p, err := f.desk.PreviewReply(t.Context(), f.db, orgA, one.TicketID, one.ConversationID, grace, desk.Draft{
		Text: "*a* <b> ![p](attachment:p.png)", Attachments: []channel.Attachment{{Name: "p.png", ContentType: "image/png"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, name := range p.Pictures {
		if want := `<p><em>a</em> &lt;b&gt; <img src="cid:` + id + `" alt="p"></p><div>-- </div><p>Grace</p>` + "\n" + `<p>Acme</p>`; p.HTML != want || name != "p.png" {
			t.Errorf("preview %q, want %q", p.HTML, want)
		}
	}
	if len(p.Pictures) != 1 || len(f.messages(one.TicketID)) != 1 {
		t.Errorf("pictures %v, %d messages", p.Pictures, len(f.messages(one.TicketID)))
	}
	sms := f.intake(said(number, "", "hello"))
	if p, err := f.desk.PreviewReply(t.Context(), f.db, orgA, sms.TicketID, sms.ConversationID, grace, desk.Draft{Text: "*a*"}); err != nil || p.HTML != "" || p.Text != "*a*" {
		t.Errorf("by text: %+v, %v", p, err)
	}
	if _, err := f.desk.PreviewReply(t.Context(), f.db, orgB, one.TicketID, one.ConversationID, grace, desk.Draft{Text: "a"}); problem.Of(err) != problem.NotFound {
		t.Errorf("another organization: %v", err)
	}
}
