package inbox_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/remoteimage"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/inbox"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// evil must be escaped on every page.
const evil = `<script>alert(1)</script>"'&<img src=x onerror=alert(2)>` + "\u202eevil\u2066"

// mail receives a mail from a customer.
func (h *harness) mail(from, id string, change ...func(*channel.Message)) desk.Result {
	h.t.Helper()
	m := channel.Message{
		ExternalID: id, Subject: "A key is lost", Text: "Where is " + id + "?", From: channel.Party{Name: "Ana", Email: from}, To: []channel.Party{{Email: "support@example.com"}},
		Mail: &channel.Mail{MessageID: id, Class: channel.ClassInbound, Recipient: "support@example.com", Sender: channel.Party{Email: from}},
	}
	for _, fn := range change {
		fn(&m)
	}
	return h.receive("email", m)
}

// write runs fn in a transaction.
func (h *harness) write(fn func(tx *db.Tx) error) {
	h.t.Helper()
	if err := h.DB.Write(h.t.Context(), fn); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) messages(ticketID string) []desk.Message {
	h.t.Helper()
	list, err := h.desk.Messages(h.t.Context(), h.DB, h.Organization.ID, ticketID)
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

func (h *harness) ticket(number int64) desk.Ticket {
	h.t.Helper()
	t, err := h.desk.TicketByNumber(h.t.Context(), h.DB, h.Organization.ID, number)
	if err != nil {
		h.t.Fatal(err)
	}
	return t
}

// shown returns the text of the element with an id.
func shown(t testing.TB, d webtest.Document, id string) string {
	t.Helper()
	found := d.WithAttr("id", id)
	if len(found) != 1 {
		t.Fatalf("got %d elements %s in page %s", len(found), id, webtest.Text(d.Root))
	}
	return webtest.Text(found[0])
}

// value returns the value of a field.
func value(d webtest.Document, name string) string { return valueOf(d.Field(name)) }

// property returns the value of a property's field.
func property(d webtest.Document, name string) string {
	return valueOf(d.WithAttr("id", "field-"+name)[0])
}

func valueOf(n *html.Node) string {
	switch n.Data {
	case "textarea":
		for c := range n.ChildNodes() {
			return c.Data
		}
		return ""
	case "select":
		for c := range n.ChildNodes() {
			if webtest.Has(c, "selected") {
				return webtest.Attr(c, "value")
			}
		}
	}
	return webtest.Attr(n, "value")
}

// TestTicket checks all parts of a ticket's page, and that they are escaped.
func TestTicket(t *testing.T) {
	h := newHarness(t)
	r := h.mail("ana@example.com", "m1", func(m *channel.Message) {
		m.Subject, m.Text, m.From.Name = "Lost "+evil, evil+" see https://help.example/a?b=1&c=2.", evil
		m.Attachments = []channel.Attachment{
			{Name: evil + ".png", ContentType: "image/png", Error: "it was <too> large"}, {Name: "x.svg", ContentType: "image/svg+xml", Error: "gone"},
		}
		m.Cc = []channel.Party{{Name: "Bob", Email: "bob@example.com"}}
	})
	h.mail("ana@example.com", "m2", func(m *channel.Message) {
		m.Text, m.Mail.InReplyTo = "Yes.\n\n> And did you look?", []string{"m1"}
		m.Stripped = "Yes."
	})
	b := h.SignIn(h.Agent)
	d := b.Page("/tickets/1")
	thread := shown(t, d, "thread")
	for _, want := range []string{"Today", "alert(1)", "Started this ticket", "Replies to a message of this ticket", "Quoted text", "it was <too> large", "Bob <bob@example.com>"} {
		if !strings.Contains(thread, want) {
			t.Errorf("the thread has no %q: %s", want, thread)
		}
	}
	var links []string
	for _, a := range d.All("a") {
		if strings.HasPrefix(webtest.Attr(a, "href"), "https:") {
			links = append(links, webtest.Attr(a, "href")+" "+webtest.Attr(a, "rel"))
		}
	}
	if fmt.Sprint(links) != "[https://help.example/a?b=1&c=2 noopener noreferrer nofollow]" {
		t.Errorf("got links %q", links)
	}
	for _, img := range d.All("img") {
		t.Errorf("a picture %q of what is not there", webtest.Attr(img, "src"))
	}
	if h := webtest.Text(d.All("h1")[0]); !strings.HasPrefix(h, "Lost <script>") {
		t.Errorf("got heading %q", h)
	}
	if got := property(d, "status") + property(d, "priority") + property(d, "assignee"); got != "opennormal" {
		t.Errorf("got properties %q", got)
	}
	if live := webtest.Attr(d.WithAttr("id", "thread")[0], "data-live"); live != "ticket:"+r.TicketID {
		t.Errorf("the thread is live by %q", live)
	}
	if unread, err := h.desk.Unread(t.Context(), h.DB, h.Agent.ID, []desk.Ticket{h.ticket(1)}); err != nil || len(unread) != 0 {
		t.Errorf("opening it left it unread: %v, %v", unread, err)
	}
	if unread, err := h.desk.Unread(t.Context(), h.DB, h.Admin.ID, []desk.Ticket{h.ticket(1)}); err != nil || len(unread) != 1 {
		t.Errorf("opening it marked it read for somebody else: %v, %v", unread, err)
	}
}

// TestEmptyTicket: a ticket without messages, of a customer without a name.
func TestEmptyTicket(t *testing.T) {
	h := newHarness(t)
	h.write(func(tx *db.Tx) error {
		_, err := h.desk.CreateTicketTx(t.Context(), tx, h.Organization.ID, desk.NewTicket{Subject: "Call back", Customer: &desk.Person{Phone: "+14155550123"}})
		return err
	})
	d := h.SignIn(h.Agent).Page("/tickets/1")
	d.Want("No messages yet.", "Call back", "+14155550123")
	if value(d, "reply") != "" || value(d, "note") != "" {
		t.Error("there is a draft of nothing")
	}
}

// TestTicketOfOthers checks that another organization's tickets are not found by any
// path.
func TestTicketOfOthers(t *testing.T) {
	h := newHarness(t)
	h.mail("ana@example.com", "m1", func(m *channel.Message) { m.HTML = "<p>secret</p>" })
	m := h.messages(h.ticket(1).ID)[0]
	other := h.SignIn(h.NewUser(h.NewOrganization("Others"), "eve@example.com", "Eve", account.Admin))
	message := "/messages/" + m.TicketID + "/" + m.ID
	for _, path := range []string{"/tickets/1", "/tickets/1/merge", "/tickets/1/split", "/tickets/1/delete", message + "/html", message + "/text"} {
		d := other.WantRefused(other.Get(path), http.StatusNotFound)
		if strings.Contains(webtest.Text(d.Root), "secret") {
			t.Errorf("%s tells", path)
		}
	}
	for path, form := range map[string]url.Values{
		"/tickets/1/properties": {"status": {"closed"}}, "/tickets/1/write": {"kind": {"note"}, "note": {"hi"}}, "/tickets/1/merge": {"into": {m.TicketID}},
		"/tickets/1/unmerge": {}, "/tickets/1/split": {"message": {m.ID}}, "/tickets/1/delete": {"confirm": {"1"}}, "/tickets/1/here": {"state": {"open"}},
	} {
		other.WantRefused(other.Post(path, form), http.StatusNotFound)
	}
	if got := h.ticket(1); got.Status != desk.StatusOpen || len(h.messages(got.ID)) != 1 {
		t.Error("another organization changed the ticket")
	}
	b := h.SignIn(h.Agent)
	for _, path := range []string{"/tickets/0", "/tickets/01", "/tickets/2", "/tickets/x", "/tickets/99999999999999999999", "/messages/x/y/html"} {
		b.WantRefused(b.Get(path), http.StatusNotFound)
	}
}

// TestMailHTML checks that a mail's HTML is a document of its own, without scripts and
// remote content.
func TestMailHTML(t *testing.T) {
	h := newHarness(t)
	clean := safehtml.NewSanitizer().Sanitize
	for i, markup := range []string{
		`<p style="color:red">Hi</p><script>alert(1)</script><style>body{background:url(https://evil.example)}</style><form action="https://evil.example"><input></form>` +
			`<svg onload="alert(1)"></svg><img src="https://evil.example/a.png"><img src="http://evil.example/b.png"><img src="cid:no"><a href="javascript:alert(1)">x</a></body></html></iframe>`,
		strings.Repeat("<div>", 1<<16) + "deep",
		`<p>plain</p>`,
		"<p>" + strings.Repeat("long ", 1<<18) + "</p>",
	} {
		h.mail(fmt.Sprintf("a%d@example.com", i), fmt.Sprint("m", i), func(m *channel.Message) { m.HTML = clean(markup) })
	}
	b := h.SignIn(h.Agent)
	for number, want := range map[int64]struct{ has, not string }{
		1: {`<img data-remote-src="https://evil.example/a.png">`, "<script"},
		2: {"deep", strings.Repeat("<div>", 101)},
		3: {"light dark", "only light"},
		4: {"This mail is longer than can be shown.", strings.Repeat("long ", 1<<18)},
	} {
		m := h.messages(h.ticket(number).ID)[0]
		w := b.Get("/messages/" + m.TicketID + "/" + m.ID + "/html")
		body := w.Body.String()
		if w.Code != http.StatusOK || !strings.Contains(body, want.has) || strings.Contains(body, want.not) {
			t.Errorf("mail %d: got %d, %d bytes: %.1500s", number, w.Code, len(body), body)
		}
		if len(body) > 1<<20+5000 {
			t.Errorf("mail %d has %d bytes", number, len(body))
		}
		policy := w.Header().Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "img-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'self'", "sandbox allow-same-origin allow-popups"} {
			if !strings.Contains(policy, part) {
				t.Errorf("mail %d: no %q in policy %q", number, part, policy)
			}
		}
		if strings.Contains(policy, "script") || strings.Contains(policy, "allow-forms") || strings.Contains(policy, "allow-top") {
			t.Errorf("mail %d: policy %q", number, policy)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Content-Type": "text/html; charset=utf-8"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("mail %d: got %s %q", number, name, got)
			}
		}
	}
	d := b.Page("/tickets/1")
	frames := d.All("iframe")
	if len(frames) != 1 || webtest.Attr(frames[0], "sandbox") != "allow-same-origin allow-popups allow-popups-to-escape-sandbox" || webtest.Attr(frames[0], "loading") != "lazy" {
		t.Errorf("got %d frames", len(frames))
	}
	d.Want("2 remote images are blocked")
	if len(b.Page("/tickets/2").All("iframe")) != 1 {
		t.Error("no frame for the deep mail")
	}
	m := h.messages(h.ticket(3).ID)[0]
	if w := b.Get("/messages/" + m.TicketID + "/" + m.ID + "/text"); w.Code != http.StatusOK || w.Body.String() != m.Text || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("text: got %d %q", w.Code, w.Body)
	}
	plain := h.text("+14155550111", "SM1", "no HTML")
	b.WantRefused(b.Get("/messages/"+plain.TicketID+"/"+plain.MessageID+"/html"), http.StatusNotFound)
}

// TestLongText checks that a long text is truncated, with a link to all of it.
func TestLongText(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", strings.Repeat("ä", 50_000))
	b := h.SignIn(h.Agent)
	w := b.Get("/tickets/1")
	if w.Body.Len() > 60_000 {
		t.Errorf("the page has %d bytes", w.Body.Len())
	}
	b.Page("/tickets/1").Want("Show full text")
}

// reply returns the composer's form.
func reply(kind, text string, more ...string) url.Values {
	form := url.Values{"kind": {kind}, kind: {text}, "do": {"send"}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return form
}

// TestWrite checks that replies are sent, notes are not, and both can set the status.
func TestWrite(t *testing.T) {
	h := newHarness(t)
	r := h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	d, notice := b.Follow(b.PostFiles("/tickets/1/write", reply("reply", "It is "+evil), web.File{Name: "a.png", ContentType: "image/png", Data: []byte("png")}))
	if notice != "Reply sent." {
		t.Errorf("got notice %q", notice)
	}
	d.Want("Waiting to be sent", "a.png", "alert(1)")
	if imgs := d.All("img"); len(imgs) != 1 || webtest.Attr(imgs[0], "loading") != "lazy" || !strings.HasPrefix(webtest.Attr(imgs[0], "src"), "/attachments/") {
		t.Errorf("got %d pictures", len(imgs))
	}
	d, notice = b.Follow(b.Post("/tickets/1/write", reply("note", "Careful.", "do", "resolved")))
	if !strings.HasPrefix(notice, "Note added. Only your team can see it. Status set to resolved now.") {
		t.Errorf("got notice %q", notice)
	}
	if s := h.ticket(1).Status; s != desk.StatusResolved {
		t.Errorf("the ticket is %s", s)
	}
	undo(t, b, d)
	if s := h.ticket(1).Status; s != desk.StatusOpen {
		t.Errorf("after the undoing the ticket is %s", s)
	}
	var got []string
	for _, m := range h.messages(r.TicketID) {
		got = append(got, m.Kind+" "+m.Author.ID)
	}
	if want := fmt.Sprintf("reply %s,reply %s,note %s", h.ticket(1).Customer.ID, h.Agent.ID, h.Agent.ID); strings.Join(got, ",") != want {
		t.Errorf("got messages %q, want %q", got, want)
	}

	// A repeated form is ignored.
	form := reply("note", "Twice?", "once", "a key")
	for range 2 {
		b.Follow(b.Post("/tickets/1/write", form))
	}
	if n := len(h.messages(r.TicketID)); n != 4 {
		t.Errorf("got %d messages after a form that was sent twice, want 4", n)
	}
}

// undo posts the notice's undo form.
func undo(t testing.TB, b *webtest.Browser, d webtest.Document) (webtest.Document, string) {
	t.Helper()
	form, action := url.Values{}, ""
	for n := range d.WithAttr("id", "toasts")[0].Descendants() {
		if n.Data == "form" {
			action = webtest.Attr(n, "action")
		}
		if n.Data == "input" {
			form.Set(webtest.Attr(n, "name"), webtest.Attr(n, "value"))
		}
	}
	if action == "" {
		t.Fatal("there is no undoing")
	}
	return b.Follow(b.Post(action, form))
}

// TestRefusedWriting checks the errors of a refused form, and that its text is saved.
func TestRefusedWriting(t *testing.T) {
	h := newHarness(t)
	r := h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	for _, c := range []struct {
		name  string
		form  url.Values
		files []web.File
		want  string
	}{
		{"nothing", reply("reply", "  \n"), nil, "There is nothing written yet."},
		{"too long", reply("note", strings.Repeat("x", 100_001)), nil, "The text"},
		{"a name", reply("reply", "Here.", "note", "and a note"), []web.File{{Name: strings.Repeat("n", 256), ContentType: "text/plain"}}, "The name of file 1"},
		{"too large", reply("reply", "Here <b>.", "note", "and a note"), []web.File{{Name: "a", ContentType: "x/y", Data: make([]byte, 25<<20+1)}}, "larger than 25 MB"},
		{"a conversation", reply("reply", "Here.", "conversation", "0190c0de-0000-7000-8000-0000000000a1"), nil, "choose another one"},
	} {
		d := b.WantRefused(b.PostFiles("/tickets/1/write", c.form, c.files...), http.StatusUnprocessableEntity)
		if alert := d.Alert(); !strings.Contains(alert, c.want) {
			t.Errorf("%s: got %q, want %q in it", c.name, alert, c.want)
		}
		if len(c.files) > 0 && !strings.Contains(d.Alert(), "Attach the files again.") {
			t.Errorf("%s: got %q, nothing of the files", c.name, d.Alert())
		}
		if value(d, "reply") != c.form.Get("reply") || value(d, "note") != c.form.Get("note") {
			t.Errorf("%s: the form has %.20q and %.20q in it", c.name, value(d, "reply"), value(d, "note"))
		}
		for _, in := range d.WithAttr("name", "kind") {
			if webtest.Has(in, "checked") != (webtest.Attr(in, "value") == c.form.Get("kind")) {
				t.Errorf("%s: the other of reply and note is in front", c.name)
			}
		}
	}
	if n := len(h.messages(r.TicketID)); n != 1 {
		t.Errorf("got %d messages, want 1", n)
	}
	if d := b.Page("/tickets/1"); value(d, "reply") != "Here." {
		t.Errorf("the draft is %q", value(d, "reply"))
	}
	if d := h.SignIn(h.Admin).Page("/tickets/1"); value(d, "reply") != "" {
		t.Error("somebody else has the draft")
	}
}

// TestDrafts checks that both drafts are saved, by button and by script, until they are
// sent.
func TestDrafts(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	_, notice := b.Follow(b.Post("/tickets/1/write", reply("reply", "half a", "note", "half b", "do", "draft")))
	if notice != "Draft saved. Only you can see it." {
		t.Errorf("got notice %q", notice)
	}
	d := b.Page("/tickets/1")
	if value(d, "reply") != "half a" || value(d, "note") != "half b" {
		t.Errorf("got drafts %q, %q", value(d, "reply"), value(d, "note"))
	}
	d.Want("Draft saved")
	b.Follow(b.Post("/tickets/1/write", reply("reply", "all of a", "note", "half b")))
	if d := b.Page("/tickets/1"); value(d, "reply") != "" || value(d, "note") != "half b" {
		t.Errorf("after the reply: got drafts %q, %q", value(d, "reply"), value(d, "note"))
	}
	b.Follow(b.Post("/tickets/1/write", reply("note", "", "do", "draft")))
	if d := b.Page("/tickets/1"); value(d, "note") != "" {
		t.Errorf("an empty draft is kept: %q", value(d, "note"))
	}
}

// TestProperties checks that each property is updated and undone alone, with its error
// beside it.
func TestProperties(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	read := func() string {
		k := h.ticket(1)
		return fmt.Sprintf("%s %s %t %v %s", k.Status, k.Priority, k.AssigneeID == h.Agent.ID, k.Tags, k.Subject)
	}
	before := read()
	for _, c := range []struct{ name, value, says, after string }{
		{"status", "pending", "Status set to pending.", "pending normal false [] Hello?"},
		{"priority", "urgent", "Priority set to urgent.", "open urgent false [] Hello?"},
		{"assignee", h.Agent.ID, "Ticket assigned.", "open normal true [] Hello?"},
		{"tags", "b, a,,b , c d", "Tags updated.", "open normal false [b a c d] Hello?"},
		{"subject", " New <b> ", "Subject updated.", "open normal false [] New <b>"},
	} {
		d, notice := b.Follow(b.Post("/tickets/1/properties?in=mine", url.Values{c.name: {c.value}}))
		if !strings.HasPrefix(notice, c.says) || read() != c.after {
			t.Errorf("%s: got %q, %q, want %q", c.name, notice, read(), c.after)
		}
		undo(t, b, d)
		if read() != before {
			t.Errorf("%s: after the undoing got %q, want %q", c.name, read(), before)
		}
	}
	if _, notice := b.Follow(b.Post("/tickets/1/properties", url.Values{"status": {"open"}})); notice != "No changes." {
		t.Errorf("got notice %q", notice)
	}
	for name, bad := range map[string]string{"status": "done", "priority": "", "assignee": "somebody", "subject": " ", "tags": strings.Repeat("x", 51)} {
		d := b.WantRefused(b.Post("/tickets/1/properties", url.Values{name: {bad}}), http.StatusUnprocessableEntity)
		beside := shown(t, d, "field-"+name+"-error")
		if beside == "" || !strings.Contains(d.Alert(), beside) || webtest.Attr(d.WithAttr("id", "field-"+name)[0], "aria-describedby") != "field-"+name+"-error" {
			t.Errorf("%s: got %q beside the field and %q above", name, beside, d.Alert())
		}
		if n := d.WithAttr("id", "field-"+name)[0]; n.Data == "input" && property(d, name) != bad {
			t.Errorf("%s: the form has %q in it", name, property(d, name))
		}
	}
	if read() != before {
		t.Errorf("refused forms changed it to %q", read())
	}
}

// TestStaleProperties checks that neither a stale form nor a late undo overwrites a
// colleague's change.
func TestStaleProperties(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	b, colleague := h.SignIn(h.Agent), h.SignIn(h.Admin)
	b.Follow(b.Post("/tickets/1/properties", url.Values{"tags": {"a, b"}}))
	for _, c := range []struct{ name, first, mine, theirs, left string }{
		{"status", "open", "pending", "resolved", "resolved"},
		{"priority", "normal", "low", "urgent", "urgent"},
		{"assignee", "", h.Agent.ID, h.Admin.ID, h.Admin.ID},
		{"subject", "Hello?", "Mine", "Theirs", "Theirs"},
	} {
		read := func() string {
			k := h.ticket(1)
			return map[string]string{"status": string(k.Status), "priority": string(k.Priority), "assignee": k.AssigneeID, "subject": k.Subject}[c.name]
		}
		page := b.Page("/tickets/1")
		if got := webtest.Attr(page.WithAttr("name", "was."+c.name)[0], "value"); got != c.first {
			t.Errorf("%s: the form says that it was %q, want %q", c.name, got, c.first)
		}
		late, _ := b.Follow(b.Post("/tickets/1/properties", url.Values{c.name: {c.mine}, "was." + c.name: {c.first}}))
		colleague.Follow(colleague.Post("/tickets/1/properties", url.Values{c.name: {c.theirs}, "was." + c.name: {c.mine}}))
		if _, notice := undo(t, b, late); !strings.HasPrefix(notice, "Undo failed. It has been changed since by another member") || read() != c.left {
			t.Errorf("%s: undone late: got %q and %q", c.name, notice, read())
		}
		d := b.WantRefused(b.Post("/tickets/1/properties", url.Values{c.name: {c.mine}, "was." + c.name: {c.first}}), http.StatusUnprocessableEntity)
		if !strings.Contains(shown(t, d, "field-"+c.name+"-error"), "by another member") || read() != c.left {
			t.Errorf("%s: got %q beside the field, and %q", c.name, shown(t, d, "field-"+c.name+"-error"), read())
		}
		if got := webtest.Attr(d.WithAttr("name", "was."+c.name)[0], "value"); got != c.left {
			t.Errorf("%s: the form that comes back says that it was %q", c.name, got)
		}
		b.Follow(b.Post("/tickets/1/properties", url.Values{c.name: {c.theirs}, "was." + c.name: {c.first}})) // the same value is no conflict
	}
	late, _ := b.Follow(b.Post("/tickets/1/properties", url.Values{"tags": {"b, mine"}, "was.tags": {"a, b"}}))
	colleague.Follow(colleague.Post("/tickets/1/properties", url.Values{"tags": {"a, theirs"}, "was.tags": {"a, b"}}))
	if got := strings.Join(h.ticket(1).Tags, " "); got != "mine theirs" {
		t.Errorf("after two forms of one state the tags are %s", got)
	}
	undo(t, b, late)
	if got := strings.Join(h.ticket(1).Tags, " "); got != "theirs a" {
		t.Errorf("after the undoing of one of them the tags are %s", got)
	}
}

// TestBothKinds: without scripts the form carries the draft of the other kind too.
func TestBothKinds(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	d, _ := b.Follow(b.PostFiles("/tickets/1/write", reply("reply", "Yes.", "note", "half a note", "once", strings.Repeat("x", 1<<20))))
	if value(d, "note") != "half a note" || value(d, "reply") != "" {
		t.Errorf("got drafts %q, %q", value(d, "reply"), value(d, "note"))
	}
	d, _ = b.Follow(b.Post("/tickets/1/write", reply("note", "A note.", "reply", "half a reply")))
	if value(d, "reply") != "half a reply" || value(d, "note") != "" {
		t.Errorf("got drafts %q, %q", value(d, "reply"), value(d, "note"))
	}
}

// TestMergeAndSplit checks the redirects of both and their undo.
func TestMergeAndSplit(t *testing.T) {
	h := newHarness(t)
	one := h.mail("ana@example.com", "m1")
	h.mail("ana@example.com", "m2")
	h.mail("bob@example.com", "m3", func(m *channel.Message) { m.Subject = "Another " + evil })
	b := h.SignIn(h.Agent)
	d := b.Page("/tickets/1/merge")
	d.Want("#2 A key is lost")
	if strings.Contains(webtest.Text(d.Root), "#3") {
		t.Error("another customer's ticket is offered first")
	}
	b.Page("/tickets/1/merge?find=3").Want("#3 Another <script>")
	b.Page("/tickets/1/merge?find=%231").Want("No other ticket")
	b.Page("/tickets/1/merge?find=nothing+like+it").Want("No other ticket")
	b.WantRefused(b.Post("/tickets/1/merge", url.Values{"into": {one.TicketID}}), http.StatusConflict)
	b.WantRefused(b.Post("/tickets/1/merge", url.Values{"into": {"gone"}}), http.StatusConflict)

	d, notice := b.Follow(b.Post("/tickets/2/merge", url.Values{"into": {one.TicketID}}))
	if !strings.HasPrefix(notice, "Ticket #2 merged into this ticket.") {
		t.Errorf("got notice %q", notice)
	}
	d.Want("Where is m1?", "Where is m2?", "Merged in #2")
	gone := b.Page("/tickets/2")
	gone.Want("This ticket was merged.")
	if len(gone.WithAttr("name", "reply")) != 0 || len(gone.WithAttr("id", "field-status")) != 0 {
		t.Error("a merged ticket can be written in or changed")
	}
	b.WantRefused(b.Get("/tickets/2/merge"), http.StatusConflict)
	d, notice = undo(t, b, d)
	if notice != "Merge undone. This ticket has its messages back." {
		t.Errorf("got notice %q", notice)
	}
	d.Want("Where is m2?")
	b.WantRefused(b.Post("/tickets/2/unmerge", nil), http.StatusConflict)

	h.mail("ana@example.com", "m4", func(m *channel.Message) { m.Mail.InReplyTo = []string{"m1"} })
	list := h.messages(one.TicketID)
	d = b.Page("/tickets/1/split?message=" + list[1].ID)
	if boxes := d.WithAttr("name", "message"); len(boxes) != 2 || webtest.Has(boxes[0], "checked") || !webtest.Has(boxes[1], "checked") {
		t.Errorf("got %d messages to choose from", len(boxes))
	}
	for name, form := range map[string]url.Values{"none": {}, "all": {"message": {list[0].ID, list[1].ID}}, "another's": {"message": {list[0].ID, "x"}}} {
		d := b.WantRefused(b.Post("/tickets/1/split", form), http.StatusUnprocessableEntity)
		if !strings.HasSuffix(d.Alert(), "Nothing was changed.") {
			t.Errorf("%s: got %q", name, d.Alert())
		}
	}
	d, notice = b.Follow(b.Post("/tickets/1/split", url.Values{"message": {list[1].ID}}))
	if !strings.HasPrefix(notice, "New ticket with the messages split from #1.") {
		t.Errorf("got notice %q", notice)
	}
	d.Want("Where is m4?", "Split from #1")
	b.Page("/tickets/1").Want("Split to #4")
	undo(t, b, d)
	if n := len(h.messages(one.TicketID)); n != 2 {
		t.Errorf("after the undoing ticket 1 has %d messages", n)
	}
}

// TestDelete checks that deletion is for admins and requires the number.
func TestDelete(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	agent, admin := h.SignIn(h.Agent), h.SignIn(h.Admin)
	agent.WantRefused(agent.Get("/tickets/1/delete"), http.StatusForbidden)
	agent.WantRefused(agent.Post("/tickets/1/delete", url.Values{"confirm": {"1"}}), http.StatusForbidden)
	links := func(b *webtest.Browser) int { return len(b.Page("/tickets/1").WithAttr("href", "/tickets/1/delete")) }
	if links(agent) != 0 || links(admin) != 1 {
		t.Errorf("got %d links of an agent and %d of an admin", links(agent), links(admin))
	}
	admin.Page("/tickets/1/delete").Want("Hello?", "Type 1 to confirm")
	admin.WantRefused(admin.Post("/tickets/1/delete", url.Values{"confirm": {"2"}}), http.StatusUnprocessableEntity)
	h.ticket(1)
	if _, notice := admin.Follow(admin.Post("/tickets/1/delete", url.Values{"confirm": {"1"}})); notice != "Ticket #1 deleted." {
		t.Errorf("got notice %q", notice)
	}
	agent.WantRefused(agent.Get("/tickets/1"), http.StatusNotFound)
}

// TestPresence checks that viewers see each other while their heartbeats last.
func TestPresence(t *testing.T) {
	h := newHarness(t)
	r := h.text("+14155550111", "SM1", "Hello?")
	ada, ben := h.SignIn(h.Admin), h.SignIn(h.Agent)
	sub := h.Live.Subscribe(h.Organization.ID)
	defer sub.Close()
	say := func(b *webtest.Browser, state string, told bool) {
		t.Helper()
		if w := b.Post("/tickets/1/here", url.Values{"state": {state}}); w.Code != http.StatusNoContent {
			t.Fatalf("got %d", w.Code)
		}
		if got := strings.Join(sub.Drain(), " "); got != map[bool]string{true: "presence:" + r.TicketID}[told] {
			t.Errorf("%s: told %q", state, got)
		}
	}
	sees := func(b *webtest.Browser, want string) {
		t.Helper()
		if got := shown(t, b.Page("/tickets/1"), "colleagues"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	sees(ada, "")
	say(ben, "open", true)
	say(ben, "open", false)
	sees(ada, "Ben has this ticket open.")
	sees(ben, "")
	say(ben, "writing", true)
	sees(ada, "Ben is writing here.")
	say(ada, "open", true)
	sees(ben, "Ada <script>alert(1)</script> has this ticket open.")
	say(ben, "gone", true)
	say(ben, "gone", false)
	sees(ada, "")
}

// TestDelivery checks the labels of delivery states, with advice.
func TestDelivery(t *testing.T) {
	h := newHarness(t)
	r := h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	b.Follow(b.Post("/tickets/1/write", reply("reply", "It is here.")))
	id := h.messages(r.TicketID)[1].ID
	w, err := h.desk.OutboxMessage(t.Context(), h.DB, id)
	if err != nil {
		t.Fatal(err)
	}
	h.write(func(tx *db.Tx) error { return h.desk.RecordRetryTx(t.Context(), tx, &w, "the line <is> busy", false) })
	b.Page("/tickets/1").Want("Not sent yet: the line <is> busy", "retried automatically")
	w, err = h.desk.OutboxMessage(t.Context(), h.DB, id)
	if err != nil {
		t.Fatal(err)
	}
	h.write(func(tx *db.Tx) error {
		return h.desk.RecordFailureTx(t.Context(), tx, &w, channel.SendResult{Reason: "the number is not in use"})
	})
	d := b.Page("/tickets/1")
	d.Want("Not delivered: the number is not in use", "Send it again")
	d = b.Page("/tickets/1?again=" + id)
	if value(d, "reply") != "It is here." {
		t.Errorf("written again it is %q", value(d, "reply"))
	}
	if d := b.Page("/tickets/1?again=x"); value(d, "reply") != "" {
		t.Errorf("nothing written again is %q", value(d, "reply"))
	}
}

// TestPagesOfAThread checks that the pages have all messages, in order.
func TestPagesOfAThread(t *testing.T) {
	h := newHarness(t)
	for i := range 60 {
		h.text("+14155550111", fmt.Sprint("SM", i), fmt.Sprintf("message %02d.", i))
	}
	pages := h.pagesOfThread("/tickets/1?in=all")
	all := slices.Concat(pages[1], pages[0])
	if len(pages) != 2 || len(pages[0]) != 50 || len(all) != 60 || all[0] != "message 00." || all[59] != "message 59." {
		t.Errorf("got %d messages on %d pages: %q", len(all), len(pages), pages)
	}
}

// TestLongTextsEndAPage: a page ends before its texts exceed the limit.
func TestLongTextsEndAPage(t *testing.T) {
	h := newHarness(t)
	long := strings.Repeat("x", 11_000)
	for i := range 11 {
		h.text("+14155550111", fmt.Sprint("SM", i), fmt.Sprintf("%02d %s", i, long))
	}
	var sizes []int
	last := 10
	for _, page := range h.pagesOfThread("/tickets/1?in=all") {
		sizes = append(sizes, len(page))
		for _, text := range slices.Backward(page) {
			if want := fmt.Sprintf("%02d %s", last, long); text != want {
				t.Errorf("got %.20s, want message %d", text, last)
			}
			last--
		}
	}
	if want := []int{5, 5, 1}; !slices.Equal(sizes, want) {
		t.Errorf("pages have %d messages, want %d", sizes, want)
	}
}

// pagesOfThread returns the texts of each page of a thread, the newest page first.
func (h *harness) pagesOfThread(path string) (pages [][]string) {
	h.t.Helper()
	b := h.SignIn(h.Agent)
	for path != "" {
		d := b.Page(path)
		var page []string
		for _, n := range d.WithAttr("class", "text") {
			page = append(page, webtest.Text(n))
		}
		pages = append(pages, page)
		path = ""
		for _, a := range d.All("a") {
			if webtest.Text(a) == "Earlier messages" {
				path = webtest.Attr(a, "href")
			}
		}
		if path != "" && !strings.Contains(path, "in=all") {
			h.t.Errorf("the path %q has forgotten the list", path)
		}
	}
	return pages
}

// TestComposerAsks: a mail without authenticated sender that redirects replies makes the
// composer ask for the recipient; the default is the previous one.
func TestComposerAsks(t *testing.T) {
	h := newHarness(t)
	r := h.mail("ana@example.com", "m1", func(m *channel.Message) {
		m.Mail.Proof = mailauth.Result{Verdict: mailauth.Proven, Reason: "DKIM signature of example.com matches the From address"}
	})
	h.mail("ana@example.com", "m2", func(m *channel.Message) {
		m.Mail.InReplyTo, m.From.Email, m.Cc = []string{"m1"}, "eve@evil.example", []channel.Party{{Name: evil, Email: "mallory@evil.example"}}
		m.Mail.Proof = mailauth.Result{Verdict: mailauth.Unproven, Reason: "there is no DKIM signature of example.com"}
	})
	h.mail("ana@example.com", "m3", func(m *channel.Message) {
		m.Mail.InReplyTo = []string{"m1"}
		m.Mail.Proof = mailauth.Result{Verdict: mailauth.Failed, Reason: "mx.example.com says that DMARC failed for example.com"}
	})
	b := h.SignIn(h.Agent)
	d := b.Page("/tickets/1")
	text := webtest.Text(d.All("body")[0])
	for _, want := range []string{
		"Sender verified", "Sender not verified", "Sender may be forged", "Reply-To differs",
		"DKIM signature of example.com matches the From address.", "Recipient", "eve@evil.example", "as before", "Send copies?",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has nothing of %q", want)
		}
	}
	to, cc := "to."+r.ConversationID, "cc."+r.ConversationID
	if got := d.WithAttr("name", to); len(got) != 2 || !webtest.Has(got[0], "checked") || webtest.Has(got[1], "checked") || webtest.Attr(got[1], "value") != "eve@evil.example" {
		t.Fatalf("the question is %v", got)
	}
	for _, c := range []struct {
		form url.Values
		want string
	}{
		{reply("reply", "Here.", "conversation", r.ConversationID, to, ""), "ana@example.com"},
		{reply("reply", "There.", "conversation", r.ConversationID, to, "eve@evil.example", cc, "mallory@evil.example"), "eve@evil.example ana@example.com mallory@evil.example"},
	} {
		b.Follow(b.Post("/tickets/1/write", c.form))
		list := h.messages(r.TicketID)
		var got []string
		for _, a := range append(list[len(list)-1].Details.To, list[len(list)-1].Details.Cc...) {
			got = append(got, a.Email)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("the reply goes to %q, want %s", got, c.want)
		}
	}
	if d := b.Page("/tickets/1"); len(d.WithAttr("name", to)) != 0 || len(d.WithAttr("name", cc)) != 0 {
		t.Error("still asked after the choice")
	}
	refused := b.WantRefused(b.Post("/tickets/1/write", reply("reply", "No.", "conversation", r.ConversationID, to, "x@evil.example")), http.StatusUnprocessableEntity)
	if !strings.Contains(refused.Alert(), "The recipients have changed") {
		t.Errorf("got %q", refused.Alert())
	}
}

// TestCrossedReply: a reply written before the author saw a colleague's needs a
// confirmation, which a further reply invalidates. The text is saved.
func TestCrossedReply(t *testing.T) {
	h := newHarness(t)
	r := h.text("+14155550111", "SM1", "Hello?")
	a, b := h.SignIn(h.Agent), h.SignIn(h.Admin)
	seen := value(a.Page("/tickets/1"), "seen")
	if seen != r.MessageID {
		t.Fatalf("the page has seen %q, want %q", seen, r.MessageID)
	}
	b.Follow(b.Post("/tickets/1/write", reply("reply", "I am on it.", "seen", seen)))
	form := reply("reply", "Half <b>of</b> mine", "seen", seen, "note", "and a note", "do", "resolved")
	d := b.WantRefused(a.Post("/tickets/1/write", form), http.StatusConflict)
	d.Want("Send anyway?", " s ago", "I am on it.", h.Admin.Name)
	if value(d, "reply") != "Half <b>of</b> mine" || value(d, "note") != "and a note" || d.Alert() != "" {
		t.Errorf("the form has %q and %q in it, and says %q", value(d, "reply"), value(d, "note"), d.Alert())
	}
	if n := len(h.messages(r.TicketID)); n != 2 || h.ticket(1).Status != desk.StatusOpen {
		t.Errorf("there are %d messages, and the ticket is %s", n, h.ticket(1).Status)
	}
	b.Follow(b.Post("/tickets/1/write", reply("reply", "One more.", "seen", seen)))
	form.Set("seen", value(d, "seen"))
	d = a.WantRefused(a.Post("/tickets/1/write", form), http.StatusConflict)
	form.Set("seen", value(d, "seen"))
	a.Follow(a.Post("/tickets/1/write", form))
	if n := len(h.messages(r.TicketID)); n != 4 || h.ticket(1).Status != desk.StatusResolved {
		t.Errorf("there are %d messages, and the ticket is %s", n, h.ticket(1).Status)
	}
	// Notes need no confirmation.
	a.Follow(a.Post("/tickets/1/write", reply("note", "n", "seen", seen)))
	// A page of earlier messages has the id of the newest message too.
	if d := a.Page("/tickets/1?before=1"); value(d, "seen") != h.messages(r.TicketID)[4].ID {
		t.Errorf("got %q", value(d, "seen"))
	}
}

// TestPendingFiles checks that a message appears before its files are fetched.
func TestPendingFiles(t *testing.T) {
	h := newHarness(t)
	var r desk.Result
	h.write(func(tx *db.Tx) (err error) {
		r, err = h.desk.IngestTx(t.Context(), tx, desk.InboundEvent{
			OrganizationID: h.Organization.ID, Channel: "sms",
			Event: channel.Event{Message: &channel.Message{
				ExternalID: "1", ThreadKey: "+14155550111", From: channel.Party{Phone: "+14155550111"}, Text: "Look!", HTML: `<p>Look! <img src="cid:1"></p>`,
				Attachments: []channel.Attachment{{Name: "a.png", ContentType: "image/png", ContentID: "1", Inline: true, URL: "https://far.example/a"}, {Name: "b.png", URL: "https://far.example/b"}},
			}},
			FetchJobs: []desk.FetchJob{{Lane: "l", Payload: []byte("{}")}, {Lane: "l", Payload: []byte("{}")}},
		})
		return err
	})
	b := h.SignIn(h.Agent)
	htmlPath := "/messages/" + r.TicketID + "/" + r.MessageID + "/html"
	frame := func(d webtest.Document) string { return webtest.Attr(d.All("iframe")[0], "id") }
	d := b.Page("/tickets/1")
	d.Want("Look!", "b.png fetching")
	before := frame(d)
	if got := b.Get(htmlPath).Body.String(); strings.Contains(got, " src=") {
		t.Errorf("the mail requests missing images: %s", got)
	}
	files := h.messages(r.TicketID)[0].Attachments
	h.write(func(tx *db.Tx) error {
		if err := h.desk.FailFileTx(t.Context(), tx, files[1].ID, "the provider answered 404 Not Found"); err != nil {
			return err
		}
		says, err := h.desk.Compose(t.Context(), "", desk.Draft{Attachments: []channel.Attachment{{Name: "x", Data: []byte("PNG")}}})
		if err != nil {
			return err
		}
		m, err := h.desk.AddNoteTx(t.Context(), tx, h.Organization.ID, r.TicketID, desk.Actor{ID: h.Agent.ID}, says)
		if err != nil {
			return err
		}
		return h.desk.CompleteFileTx(t.Context(), tx, files[0].ID, desk.File{Ref: blob.Ref{Key: m.Attachments[0].BlobKey, Size: 3}, ContentType: "image/png"})
	})
	d = b.Page("/tickets/1")
	d.Want("b.png could not be fetched: the provider answered 404 Not Found")
	if after := frame(d); after == before {
		t.Errorf("the frame is %s as before, and would stay as it was", after)
	}
	if got := b.Get(htmlPath).Body.String(); !strings.Contains(got, ` src="/attachments/`+files[0].ID+`"`) {
		t.Errorf("the mail is %s", got)
	}
}

// senders is the web server of a sender with remote images.
type senders struct{ asked []*http.Request }

func (s *senders) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, r)
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("\x89PNG\r\n\x1a\nx")), Request: r}, nil
}

// TestLoadPictures checks that remote images are fetched on request, by this server.
func TestLoadPictures(t *testing.T) {
	far := new(senders)
	h := newHarness(t, func(c *inbox.Config) {
		files, err := blob.OpenDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { files.Close() })
		c.Pictures = remoteimage.New(remoteimage.Config{DB: c.DB, Desk: c.Desk, Blob: files, Box: seal.New(seal.NewKey()), Transport: far, Logger: slog.New(slog.DiscardHandler)})
	})
	clean := safehtml.NewSanitizer().Sanitize
	h.mail("ana@example.com", "m1", func(m *channel.Message) {
		m.HTML = clean(`<h1 style="color:#c00">News</h1><img src="https://sender.example/1.png?who=you" alt="One"><img src="http://sender.example/2.png"><img src="cid:no">`)
	})
	b := h.SignIn(h.Agent)
	d := b.Page("/tickets/1")
	d.Want("2 remote images are blocked", "Load images")
	link, frame := d.WithAttr("data-pictures", "")[0], d.All("iframe")[0]
	htmlPath := webtest.Attr(frame, "src")
	if webtest.Attr(link, "target") != webtest.Attr(frame, "name") || webtest.Attr(link, "href") != htmlPath+"?pictures=1" {
		t.Errorf("the link leads to %s in %s, the frame is %s", webtest.Attr(link, "href"), webtest.Attr(link, "target"), webtest.Attr(frame, "name"))
	}
	if got := b.Get(htmlPath).Body.String(); strings.Contains(got, " src=") || len(far.asked) > 0 {
		t.Errorf("without being asked: %d requests, %s", len(far.asked), got)
	}
	w := b.Get(htmlPath + "?pictures=1")
	if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "img-src 'self';") || strings.Contains(w.Body.String(), `src="http`) {
		t.Errorf("policy %q, %s", policy, w.Body)
	}
	paths := regexp.MustCompile(`src="(/messages/[^"]+)"`).FindAllStringSubmatch(w.Body.String(), -1)
	if len(paths) != 2 || len(far.asked) > 0 {
		t.Fatalf("%d pictures, %d requests", len(paths), len(far.asked))
	}
	path := html.UnescapeString(paths[0][1])
	for range 2 {
		got := b.Get(path)
		if got.Code != http.StatusOK || got.Header().Get("Content-Type") != "image/png" || got.Header().Get("X-Content-Type-Options") != "nosniff" ||
			got.Header().Get("Content-Security-Policy") != "default-src 'none'; sandbox" || got.Header().Get("Cache-Control") != "private, no-store" {
			t.Errorf("got %d %v", got.Code, got.Header())
		}
	}
	if len(far.asked) != 1 || far.asked[0].URL.String() != "https://sender.example/1.png?who=you" || far.asked[0].Header.Get("Cookie") != "" || far.asked[0].Header.Get("Referer") != "" {
		t.Fatalf("asked %d times: %+v", len(far.asked), far.asked)
	}
	// Other users and other addresses are refused.
	b.WantRefused(b.Get(path+"0"), http.StatusNotFound)
	b.WantRefused(b.Get(path[:strings.Index(path, "?")]), http.StatusNotFound)
	b.WantRefused(b.Get(strings.TrimSuffix(htmlPath, "html")+"pictures/https:%2F%2Fevil.example%2F?sig="+path[strings.Index(path, "=")+1:]), http.StatusNotFound)
	if w := h.SignInWith(account.Tokens{}).Get(path); w.Code == http.StatusOK {
		t.Error("a picture is served without a session")
	}
	other := h.SignIn(h.NewUser(h.NewOrganization("Others"), "eve@example.com", "Eve", account.Admin))
	other.WantRefused(other.Get(path), http.StatusNotFound)
	if len(far.asked) != 1 {
		t.Errorf("asked %d times", len(far.asked))
	}
}

// TestTypingWaitsForNobody: colleagues see who writes before the report to the far side, which may
// take seconds.
func TestTypingWaitsForNobody(t *testing.T) {
	var hub *live.Hub
	var sub *live.Subscription
	var before []string
	h := newHarness(t, func(c *inbox.Config) {
		hub = c.Live
		c.AgentTyping = func(context.Context, *desk.Ticket, string) { before = sub.Drain() }
	})
	first := h.receive(desk.ChannelAPI, channel.Message{ExternalID: "u/m", ThreadKey: "u/c", From: channel.Party{ID: "u"}, Text: "Hello"})
	sub = hub.Subscribe(h.Organization.ID)
	defer sub.Close()
	h.SignIn(h.Agent).Post("/tickets/1/here", url.Values{"state": {"writing"}})
	if !slices.Contains(before, "presence:"+first.TicketID) {
		t.Errorf("published before the report: %q, want the presence", before)
	}
}

// TestAgentTyping: a member who writes a reply is reported, one who writes a note or reads is not;
// and a customer who types is shown.
func TestAgentTyping(t *testing.T) {
	var reports []string
	h := newHarness(t, func(c *inbox.Config) {
		c.AgentTyping = func(_ context.Context, t *desk.Ticket, name string) { reports = append(reports, t.ID+" "+name) }
	})
	first := h.receive(desk.ChannelAPI, channel.Message{ExternalID: "u/m", ThreadKey: "u/c", From: channel.Party{ID: "u"}, Text: "Hello"})
	b := h.SignIn(h.Agent)
	for _, form := range []url.Values{{"state": {"open"}}, {"state": {"writing"}, "note": {"1"}}, {"state": {"writing"}}, {"state": {"gone"}}} {
		if w := b.Post("/tickets/1/here", form); w.Code != http.StatusNoContent {
			t.Fatalf("%v: got %d", form, w.Code)
		}
	}
	if want := []string{first.TicketID + " " + h.Agent.Name}; !slices.Equal(reports, want) {
		t.Errorf("reports %q, want %q", reports, want)
	}
	if got := shown(t, b.Page("/tickets/1"), "colleagues"); got != "" {
		t.Errorf("nobody types: %q", got)
	}
	h.Live.ReportTyping(h.Organization.ID, first.TicketID)
	if got := shown(t, b.Page("/tickets/1"), "colleagues"); got != "The customer is typing." {
		t.Errorf("the customer types: %q", got)
	}
	h.Live.StopTyping(h.Organization.ID, first.TicketID)
	if got := shown(t, b.Page("/tickets/1"), "colleagues"); got != "" {
		t.Errorf("the customer has written: %q", got)
	}
}
