package inbox_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// subjects returns the subjects of a list, in order.
func subjects(d webtest.Document) (list []string) {
	for _, n := range d.WithAttr("class", "subject") {
		list = append(list, webtest.Text(n))
	}
	return list
}

// rowOf returns the row of a ticket.
func rowOf(t testing.TB, d webtest.Document, number int64) *html.Node {
	t.Helper()
	found := d.WithAttr("id", fmt.Sprint("t", number))
	if len(found) != 1 {
		t.Fatalf("got %d rows of ticket %d", len(found), number)
	}
	return found[0]
}

// counts returns the counts of the sidebar by view.
func counts(d webtest.Document) map[string]string {
	found := make(map[string]string)
	for _, ul := range d.WithAttr("id", "views") {
		for n := range ul.Descendants() {
			if n.Data == "a" {
				label := ""
				for c := range n.ChildNodes() {
					if c.Data == "span" && webtest.Attr(c, "class") == "" {
						label = webtest.Text(c)
					}
					if webtest.Attr(c, "class") == "count" {
						found[label] = webtest.Text(c)
					}
				}
			}
		}
	}
	return found
}

func (h *harness) update(id string, u desk.Update) {
	h.t.Helper()
	if err := h.DB.Write(h.t.Context(), func(tx *db.Tx) error {
		_, err := h.desk.UpdateTx(h.t.Context(), tx, h.Organization.ID, id, u)
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
}

// hostile contains HTML and control characters.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "\u202egnp.exe & 'quotes' \"double\"", strings.Repeat("Donaudampfschifffahrt", 40), "</bdi></a></li>", "{{.}}",
}

// noView maps views to their empty states.
var noView = map[string]string{
	"/inbox": "No open tickets.", "/inbox/mine": "No open tickets are assigned to you.", "/inbox/unassigned": "All open tickets are assigned.",
	"/inbox/due": "No SLA targets are due.", "/inbox/all": "No tickets yet.",
	"/inbox/status/pending": "No tickets are pending.", "/inbox/status/on-hold": "No tickets are on hold.", "/inbox/status/resolved": "No tickets are resolved.",
	"/inbox/status/closed": "No tickets are closed.", "/inbox/priority/urgent": "No open tickets with this priority.", "/inbox/priority/normal": "No open tickets with this priority.",
	"/inbox/channel/business-messaging": "No open tickets from this channel.", "/inbox/all?q=nothing": "No tickets found.", "/inbox?after=5~": "No open tickets.", "/inbox?after=x": "No open tickets.",
}

func TestEmptyViews(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	for path, says := range noView {
		d := b.Page(path)
		d.Want(says)
		if len(d.WithAttr("name", "ticket")) != 0 {
			t.Errorf("%s: there is something to select", path)
		}
	}
	for _, path := range []string{"/inbox/nothing", "/inbox/status/open", "/inbox/status", "/inbox/mine/x", "/inbox/channel/carrier-pigeon", "/inbox/priority/"} {
		if w := b.Get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", path, w.Code)
		}
	}
	if w := h.SignIn(account.User{}).Get("/inbox/mine"); w.Code != http.StatusSeeOther {
		t.Errorf("nobody: got %d", w.Code)
	}
}

func TestViews(t *testing.T) {
	h := newHarness(t)
	if _, err := h.desk.SetSLAPolicy(t.Context(), desk.SLAPolicy{OrganizationID: h.Organization.ID, Priority: desk.PriorityUrgent, ResolutionMinutes: 60}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range 6 {
		ids = append(ids, h.text(fmt.Sprintf("+1415555010%d", i), fmt.Sprint("SM", i), fmt.Sprint("text ", i+1)).TicketID)
	}
	h.update(ids[1], desk.Update{AssigneeID: &h.Agent.ID, Tags: &[]string{"brake", "lock", "zürich", "<i>"}})
	h.update(ids[2], desk.Update{Priority: new(desk.PriorityUrgent), AssigneeID: &h.Admin.ID})
	h.update(ids[3], desk.Update{Status: new(desk.StatusOnHold)})
	h.update(ids[4], desk.Update{Status: new(desk.StatusClosed)})
	b := h.SignIn(h.Agent)
	for path, want := range map[string]string{
		"/inbox": "text 3, text 2, text 6, text 1", "/inbox/mine": "text 2", "/inbox/unassigned": "text 6, text 1", "/inbox/due": "text 3",
		"/inbox/all": "text 5, text 4, text 3, text 2, text 6, text 1", "/inbox/status/on-hold": "text 4", "/inbox/status/closed": "text 5", "/inbox/status/pending": "",
		"/inbox/priority/urgent": "text 3", "/inbox/priority/normal": "text 2, text 6, text 1", "/inbox/channel/sms": "text 3, text 2, text 6, text 1", "/inbox/channel/email": "",
	} {
		d := b.Page(path)
		if got := strings.Join(subjects(d), ", "); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
		if len(d.WithAttr("aria-current", "page")) != 1 {
			t.Errorf("%s: got %d present places", path, len(d.WithAttr("aria-current", "page")))
		}
	}
	d := b.Page("/inbox")
	want := map[string]string{"All open": "4", "Mine": "1", "Unassigned": "2", "SLA due": "1", "On hold": "1", "Closed": "1", "Urgent priority": "1", "SMS": "4"}
	if got := counts(d); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got counts %v, want %v", got, want)
	}
	text := func(number int64) string {
		var said strings.Builder
		said.WriteString(webtest.Text(rowOf(t, d, number)))
		for n := range rowOf(t, d, number).Descendants() {
			said.WriteString(" " + webtest.Attr(n, "aria-label"))
		}
		return said.String()
	}
	for number, parts := range map[int64][]string{
		1: {"Unread:", "+14155550100", "text 1", "SMS"}, 2: {"brake", "lock", "+2", "Assigned to Ben"}, 3: {"Urgent"},
	} {
		for _, part := range parts {
			if !strings.Contains(text(number), part) {
				t.Errorf("row %d is %q, want %q in it", number, text(number), part)
			}
		}
	}
	if bars := d.All("progress"); len(bars) != 1 || webtest.Attr(bars[0], "aria-label") != "Resolution is due in 59 min" {
		t.Errorf("got %d bars", len(bars))
	}
	if links := d.WithAttr("href", "/tickets/1"); len(links) != 1 {
		t.Errorf("got %d links to ticket 1", len(links))
	}
	if links := b.Page("/inbox/mine").WithAttr("href", "/tickets/2?in=mine"); len(links) != 1 {
		t.Errorf("got %d links to ticket 2 of the view", len(links))
	}
	if links := b.Page("/inbox/all?q=text+2").WithAttr("href", "/tickets/2?in=all&q=text+2"); len(links) != 0 {
		t.Error("what is not indexed is found")
	}
}

// TestUnreadRows checks that read and closed tickets are not bold.
func TestUnreadRows(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550101", "SM1", "one")
	h.text("+14155550102", "SM2", "two")
	three := h.text("+14155550103", "SM3", "three")
	h.update(three.TicketID, desk.Update{Status: new(desk.StatusClosed)})
	b := h.SignIn(h.Agent)
	w := b.Post("/inbox", url.Values{"ticket": {"1", "77", "x"}, "do": {"read"}, "back": {"/inbox/all"}})
	d, notice := b.Follow(w)
	if notice != "1 ticket marked as read." || w.Header().Get("Location") != "/inbox/all" {
		t.Errorf("got notice %q at %s", notice, w.Header().Get("Location"))
	}
	for number, unread := range map[int64]bool{1: false, 2: true, 3: false} {
		if got := webtest.Attr(rowOf(t, d, number), "class") == "trow unread"; got != unread {
			t.Errorf("ticket %d is unread: %t", number, got)
		}
	}
	if d := h.SignIn(h.Admin).Page("/inbox"); webtest.Attr(rowOf(t, d, 1), "class") != "trow unread" {
		t.Error("what one has read is read for another")
	}
	d, notice = b.Follow(b.Post("/inbox", url.Values{"ticket": {"1", "2"}, "do": {"unread"}}))
	if notice != "2 tickets marked as unread." || webtest.Attr(rowOf(t, d, 1), "class") != "trow unread" {
		t.Errorf("got notice %q", notice)
	}
}

// TestHostileRows checks that all texts are escaped.
func TestHostileRows(t *testing.T) {
	h := newHarness(t)
	for i, text := range hostile {
		phone := fmt.Sprintf("+1415555010%d", i)
		id := h.receive("sms", channel.Message{ExternalID: fmt.Sprint("SM", i), ThreadKey: phone, From: channel.Party{Phone: phone, Name: text}, Text: "subject\n" + text}).TicketID
		h.update(id, desk.Update{Subject: new(text[:min(len(text), 400)]), Tags: &[]string{strings.ToValidUTF8(text[:min(len(text), 40)], "")}})
	}
	b := h.SignIn(h.Agent)
	d := b.Page("/inbox")
	for _, text := range hostile {
		d.Want(strings.Join(strings.Fields(text[:min(len(text), 100)]), " "))
	}
	for i := range hostile {
		b.Page("/inbox/all?q=" + url.QueryEscape(hostile[i]))
	}
}

func TestPagesOfAList(t *testing.T) {
	h := newHarness(t)
	for i := range 35 {
		h.text(fmt.Sprintf("+1415555%04d", i), fmt.Sprint("SM", i), fmt.Sprint("text ", i+1))
	}
	b := h.SignIn(h.Agent)
	first := b.Page("/inbox/all")
	older := first.WithAttr("rel", "next")
	if got := subjects(first); len(got) != 25 || got[0] != "text 35" || len(older) != 1 || len(first.WithAttr("rel", "prev")) != 0 {
		t.Fatalf("got %q and %d ways on", got, len(older))
	}
	second := b.Page(webtest.Attr(older[0], "href"))
	if got := subjects(second); len(got) != 10 || got[0] != "text 10" || len(second.WithAttr("rel", "next")) != 0 {
		t.Errorf("got %q", got)
	}
	if newer := second.WithAttr("rel", "prev"); len(newer) != 1 || webtest.Attr(newer[0], "href") != "/inbox/all" {
		t.Errorf("got %d ways back", len(newer))
	}
	if back := second.Field("back"); webtest.Attr(back, "value") != webtest.Attr(older[0], "href") {
		t.Errorf("forms lead back to %q", webtest.Attr(back, "value"))
	}
}

func TestSearch(t *testing.T) {
	h := newHarness(t)
	one := h.text("+14155550101", "SM1", "the brake squeaks")
	h.text("+14155550102", "SM2", "the lock is stuck")
	h.update(one.TicketID, desk.Update{Status: new(desk.StatusClosed)})
	for {
		if n, err := h.desk.Index(t.Context()); err != nil || n == 0 {
			break
		}
	}
	b := h.SignIn(h.Agent)
	d := b.Page("/inbox/all?q=brake")
	if got := subjects(d); !slices.Equal(got, []string{"the brake squeaks"}) || webtest.Attr(d.Field("q"), "value") != "brake" {
		t.Errorf("got %q", got)
	}
	if links := d.WithAttr("href", "/tickets/1?in=all&q=brake"); len(links) != 1 {
		t.Error("the ticket does not know where it was found")
	}
	if got := subjects(b.Page("/inbox?q=brake")); len(got) != 0 {
		t.Errorf("within the open ones: got %q", got)
	}
	if got := subjects(b.Page("/inbox/all?q=status:open")); !slices.Equal(got, []string{"the lock is stuck"}) {
		t.Errorf("by status: got %q", got)
	}
	if got := subjects(b.Page("/inbox/all?q=assignee:me")); len(got) != 0 {
		t.Errorf("mine: got %q", got)
	}
	d = b.Page("/inbox/all?q=status:opne+brake")
	if d.Want("no such status: opne; did you mean open?"); len(subjects(d)) != 1 {
		t.Errorf("a wrong filter: got %q", subjects(d))
	}
	d = b.Page("/inbox/all?q=%2B14155550102")
	if links := d.WithAttr("href", "/customers/"+h.customerOf(2)); len(links) != 1 || !strings.Contains(webtest.Text(links[0]), "+14155550102") {
		t.Errorf("got %d links to the customer who has the number", len(links))
	}
	if got := subjects(b.Page("/inbox/all?q=" + strings.Repeat("x", 500))); len(got) != 2 {
		t.Errorf("too long a search: got %q", got)
	}
}

func (h *harness) customerOf(number int64) string {
	h.t.Helper()
	t, err := h.desk.TicketByNumber(h.t.Context(), h.DB, h.Organization.ID, number)
	if err != nil {
		h.t.Fatal(err)
	}
	return t.Customer.ID
}

func TestPreviewRows(t *testing.T) {
	h := newHarness(t)
	r := h.text("+14155550101", "SM1", "the brake squeaks")
	by := desk.Actor{ID: h.Agent.ID, Name: "Ben"}
	b, other := h.SignIn(h.Agent), h.SignIn(h.Admin)
	says := func(b *webtest.Browser, want string) {
		t.Helper()
		got := ""
		for _, n := range b.Page("/inbox").WithAttr("class", "preview") {
			got = webtest.Text(n)
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	write := func(fn func(tx *db.Tx, w desk.Content) error, d desk.Draft) {
		t.Helper()
		w, err := h.desk.Compose(t.Context(), "", d)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.DB.Write(t.Context(), func(tx *db.Tx) error { return fn(tx, w) }); err != nil {
			t.Fatal(err)
		}
	}
	says(b, "") // the subject has it
	write(func(tx *db.Tx, w desk.Content) error {
		_, err := h.desk.ReplyTx(t.Context(), tx, h.Organization.ID, r.TicketID, desk.Reply{By: by, Content: w})
		return err
	}, desk.Draft{Text: "We will\nlook."})
	says(b, "You: We will look.")
	says(other, "Ben: We will look.")
	note := func(tx *db.Tx, w desk.Content) error {
		_, err := h.desk.AddNoteTx(t.Context(), tx, h.Organization.ID, r.TicketID, by, w)
		return err
	}
	write(note, desk.Draft{Text: "which bike?"})
	says(b, "Note: which bike?")
	write(note, desk.Draft{Attachments: []channel.Attachment{{Name: "<b>.png", Data: []byte("x")}}})
	says(b, "Note: File: <b>.png")
	if err := h.DB.Write(t.Context(), func(tx *db.Tx) error {
		return h.desk.SaveDraftTx(t.Context(), tx, h.Organization.ID, desk.SavedDraft{TicketID: r.TicketID, UserID: h.Agent.ID, Kind: desk.KindReply, Text: "Dear"})
	}); err != nil {
		t.Fatal(err)
	}
	if got := webtest.Text(rowOf(t, b.Page("/inbox"), 1)); !strings.Contains(got, "Draft") {
		t.Errorf("got %q, want the draft marked", got)
	}
	if got := webtest.Text(rowOf(t, other.Page("/inbox"), 1)); strings.Contains(got, "Draft") {
		t.Errorf("got %q, with another's draft", got)
	}
}

func TestBulk(t *testing.T) {
	h := newHarness(t)
	var ids []string
	for i := range 3 {
		ids = append(ids, h.text(fmt.Sprintf("+1415555010%d", i), fmt.Sprint("SM", i), fmt.Sprint("text ", i+1)).TicketID)
	}
	h.update(ids[1], desk.Update{Status: new(desk.StatusPending), Tags: &[]string{"old"}})
	all := []string{"1", "2", "3"}
	b := h.SignIn(h.Agent)
	state := func(want ...string) {
		t.Helper()
		for i, id := range ids {
			ticket, err := h.desk.Ticket(t.Context(), h.DB, h.Organization.ID, id)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.TrimSpace(fmt.Sprint(ticket.Status, " ", ticket.Priority, " ", map[string]string{"": "", h.Agent.ID: "ben"}[ticket.AssigneeID], " ", strings.Join(ticket.Tags, ",")))
			if got = strings.Join(strings.Fields(got), " "); got != want[i] {
				t.Errorf("ticket %d is %q, want %q", i+1, got, want[i])
			}
		}
	}
	undo := func(d webtest.Document) url.Values {
		t.Helper()
		form := url.Values{}
		for _, toast := range d.WithAttr("id", "toasts") {
			for n := range toast.Descendants() {
				if n.Data == "input" {
					form.Set(webtest.Attr(n, "name"), webtest.Attr(n, "value"))
				}
			}
		}
		return form
	}
	d, notice := b.Follow(b.Post("/inbox", url.Values{"ticket": all, "do": {"change"}, "status": {"resolved"}, "assignee": {h.Agent.ID}, "back": {"/inbox/all?after=9~"}}))
	if notice != "3 tickets changed: resolved, assigned. Undo" {
		t.Errorf("got notice %q", notice)
	}
	state("resolved normal ben", "resolved normal ben old", "resolved normal ben")
	h.update(ids[2], desk.Update{Status: new(desk.StatusClosed)})
	form := undo(d)
	w := b.Post("/inbox", form)
	if _, notice := b.Follow(w); notice != "5 tickets are as before. 1 ticket had been changed since." && notice != "3 tickets are as before. 1 ticket had been changed since." {
		t.Errorf("got notice %q", notice)
	}
	if at := w.Header().Get("Location"); at != "/inbox/all?after=9~" {
		t.Errorf("it leads to %q", at)
	}
	state("open normal", "pending normal old", "closed normal")

	b.Follow(b.Post("/inbox", url.Values{"do": {"undo"}, "status": {"closed", "closed x"}, "from-status": {"open"}, "assignee": {"nobody ,x"}}))
	state("open normal", "pending normal old", "closed normal")

	d, notice = b.Follow(b.Post("/inbox", url.Values{"ticket": {"1", "2", "9"}, "do": {"change"}, "priority": {"high"}, "add": {"new, <b>,"}, "remove": {"old"}}))
	if notice != "2 tickets changed: high priority, tagged, without old. 1 is not there any more." || len(undo(d)) != 0 {
		t.Errorf("got notice %q, undone by %v", notice, undo(d))
	}
	state("open high new,<b>", "pending high new,<b>", "closed normal")

	for what, c := range map[string]struct {
		form   url.Values
		notice string
	}{
		"nothing selected": {url.Values{"do": {"change"}, "status": {"open"}}, "Select at least one ticket."},
		"nothing chosen":   {url.Values{"ticket": all, "do": {"change"}}, "Choose a change to apply."},
		"no such status":   {url.Values{"ticket": all, "do": {"change"}, "status": {"lost"}}, "Nothing was changed: status must be one of open, pending, on_hold, resolved, closed."},
		"no member":        {url.Values{"ticket": all, "do": {"change"}, "assignee": {"somebody"}}, "Nothing was changed: assignee must be a member of the organization."},
		"nothing there":    {url.Values{"ticket": {"9"}, "do": {"change"}, "status": {"open"}}, "0 tickets changed: open. 1 is not there any more."},
	} {
		d, notice := b.Follow(b.Post("/inbox", c.form))
		if notice != c.notice || len(d.WithAttr("class", "toast bad")) != 1 {
			t.Errorf("%s: got notice %q", what, notice)
		}
	}
	state("open high new,<b>", "pending high new,<b>", "closed normal")

	elsewhere := h.SignIn(h.NewUser(h.NewOrganization("Other"), "eve@example.com", "Eve", account.Admin))
	for _, do := range []string{"change", "read", "unread"} {
		elsewhere.Follow(elsewhere.Post("/inbox", url.Values{"ticket": all, "do": {do}, "status": {"resolved"}}))
	}
	elsewhere.Follow(elsewhere.Post("/inbox", form))
	state("open high new,<b>", "pending high new,<b>", "closed normal")
	if got := subjects(elsewhere.Page("/inbox/all")); len(got) != 0 {
		t.Errorf("another organization sees %q", got)
	}
}

// TestBack checks that forms redirect only to lists and tickets.
func TestBack(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	for back, want := range map[string]string{
		"/inbox/mine?q=a%20b": "/inbox/mine?q=a%20b", "/tickets/1": "/tickets/1", "": "/inbox", "https://evil.example/inbox": "/inbox", "//evil.example/inbox/": "/inbox",
		"/\\evil.example": "/inbox", "/settings": "/inbox", "/inboxes": "/inbox", "javascript:alert(1)": "/inbox", "/inbox\r\nX: y": "/inbox", "http:/inbox": "/inbox",
	} {
		w := b.Post("/inbox", url.Values{"back": {back}})
		if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != want {
			t.Errorf("%q: got %d to %q, want %q", back, w.Code, got, want)
		}
	}
}

// TestManyCounts checks the count of a view above its limit.
func TestManyCounts(t *testing.T) {
	h := newHarness(t)
	if err := h.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO tickets (id, organization_id, number, subject, status, priority, channel, customer_id, created_at, updated_at)
			SELECT 'id-' || i, $1, i, 'many', 'open', 'normal', 'sms', 'customer', $2, $2 FROM (
				WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < 1200) SELECT i FROM numbers) AS n`,
			h.Organization.ID, time.Now().UnixMicro())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := counts(h.SignIn(h.Agent).Page("/inbox/mine")); got["All open"] != "1,000+" || got["Unassigned"] != "1,000+" || got["Mine"] != "" {
		t.Errorf("got counts %v", got)
	}
}
