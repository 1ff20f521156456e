package inbox_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web/inbox"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// changeLines returns the lines of changes on a ticket's page, without their times.
func changeLines(d webtest.Document) []string {
	lines := []string{}
	for _, li := range d.WithAttr("class", "log") {
		var text strings.Builder
		for c := range li.ChildNodes() {
			if c.Data != "time" {
				text.WriteString(" " + webtest.Text(c))
			}
		}
		lines = append(lines, strings.Join(strings.Fields(text.String()), " "))
	}
	return lines
}

func wantLines(t *testing.T, d webtest.Document, want ...string) {
	t.Helper()
	if got := changeLines(d); !slices.Equal(got, want) {
		t.Errorf("got lines\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// undoForms returns the fields of the undo forms in the thread.
func undoForms(d webtest.Document) []url.Values {
	var forms []url.Values
	for _, li := range d.WithAttr("class", "log") {
		for form := range li.ChildNodes() {
			if form.Data != "form" {
				continue
			}
			fields := url.Values{}
			for input := range form.Descendants() {
				if input.Type == html.ElementNode && input.Data == "input" {
					fields.Add(webtest.Attr(input, "name"), webtest.Attr(input, "value"))
				}
			}
			forms = append(forms, fields)
		}
	}
	return forms
}

// changeBy changes ticket 1 as a request of a key would.
func (h *harness) changeBy(source audit.Source, u desk.Update) {
	h.t.Helper()
	ctx := audit.WithSource(h.t.Context(), source)
	id := h.ticket(1).ID
	h.write(func(tx *db.Tx) error {
		_, err := h.desk.UpdateTx(ctx, tx, h.Organization.ID, id, u)
		return err
	})
}

// TestTimeline checks the lines of changes, their order among messages, and that they are escaped.
func TestTimeline(t *testing.T) {
	var keys *apikey.Service
	h := newHarness(t, func(c *inbox.Config) {
		keys = apikey.Open(apikey.Config{
			DB: c.DB, PlanLimit: func(context.Context, string) (int64, error) { return 1000, nil },
			Catalogues: map[apikey.ServiceName]apikey.Catalogue{apikey.Helpdesk: {Resources: []apikey.Resource{{Name: "tickets", Actions: []apikey.Action{apikey.Update}}}}},
		})
		c.Keys = keys
	})
	k, _, err := keys.Create(t.Context(), apikey.New{OrganizationID: h.Organization.ID, Name: "Shop", Service: apikey.Helpdesk, Environment: apikey.Live, Permissions: apikey.Permissions{Level: apikey.Admin}})
	if err != nil {
		t.Fatal(err)
	}
	h.text("+14155550111", "SM1", "Hello?")
	ben, ada := h.SignIn(h.Agent), h.SignIn(h.Admin)
	change := func(b *webtest.Browser, form url.Values) {
		t.Helper()
		b.Follow(b.Post("/tickets/1/properties", form))
	}
	change(ben, url.Values{"status": {"pending"}})
	change(ben, url.Values{"assignee": {h.Agent.ID}, "tags": {"lock, <b>x</b>"}})
	change(ada, url.Values{"assignee": {""}, "priority": {"urgent"}})
	h.text("+14155550111", "SM2", "Are you there?")
	change(ben, url.Values{"tags": {"app"}, "subject": {"Lost " + evil}})
	key := audit.Actor{Type: audit.Key, ID: k.ID}
	h.changeBy(audit.Source{Actor: key, Surface: audit.REST}, desk.Update{AssigneeID: &h.Agent.ID, ExternalID: new("T-1")})
	h.changeBy(audit.Source{Actor: key, Surface: audit.MCP}, desk.Update{Metadata: desk.MetadataUpdate{"ride": new("7")}})
	h.changeBy(audit.Source{Actor: audit.Actor{Type: audit.System}}, desk.Update{Status: new(desk.StatusClosed)})

	d := ben.Page("/tickets/1")
	plain := strings.Join(strings.Fields(evil), " ")
	wantLines(t, d,
		"Ben set status to Pending, took the ticket, added tags lock, <b>x</b>",
		"Ada <script>alert(1)</script> set priority to Urgent, unassigned the ticket Undo",
		"+14155550111 reopened the ticket",
		"Ben added tag app and removed tags lock, <b>x</b>, changed the subject to “Lost "+plain+"” Undo",
		"API key Shop assigned the ticket to Ben, changed the external id Undo",
		"API key Shop changed the metadata by MCP",
		"Kickstand set status to Closed Undo",
	)
	thread := shown(t, d, "thread")
	at := func(text string) int { return strings.Index(thread, text) }
	if !(at("Hello?") < at("set status to Pending") && at("unassigned") < at("Are you there?") && at("Are you there?") < at("reopened") && at("reopened") < at("added tag app")) {
		t.Errorf("the thread is in another order: %s", thread)
	}
	for _, s := range d.All("script") {
		if webtest.Attr(s, "src") == "" {
			t.Error("a script in the page")
		}
	}
}

// TestTimelineFilter checks the parts of a thread, and that forms return to the selected one.
func TestTimelineFilter(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	d, _ := b.Follow(b.Post("/tickets/1/properties?show=changes", url.Values{"status": {"pending"}}))
	wantLines(t, d, "+14155550111 created the ticket", "Ben set status to Pending Undo")
	if thread := shown(t, d, "thread"); strings.Contains(thread, "Hello?") {
		t.Errorf("among the changes: %s", thread)
	}
	if got := webtest.Attr(d.WithAttr("id", "thread")[0], "data-newest"); got != h.messages(h.ticket(1).ID)[0].ID {
		t.Errorf("the newest message is %q", got)
	}
	for show, want := range map[string][]string{"": {"Ben set status to Pending Undo"}, "messages": {}, "changes": {"+14155550111 created the ticket", "Ben set status to Pending Undo"}, "x": {"Ben set status to Pending Undo"}} {
		d := b.Page("/tickets/1?in=all&show=" + show)
		wantLines(t, d, want...)
		if (show != "changes") != strings.Contains(shown(t, d, "thread"), "Hello?") {
			t.Errorf("%q: %s", show, shown(t, d, "thread"))
		}
		var links []string
		for a := range d.WithAttr("id", "show")[0].Descendants() {
			if a.Data == "a" {
				links = append(links, webtest.Attr(a, "href")+" "+webtest.Attr(a, "aria-current"))
			}
		}
		current := map[string]int{"messages": 1, "changes": 2}[show]
		for i, path := range []string{"/tickets/1?in=all", "/tickets/1?in=all&show=messages", "/tickets/1?in=all&show=changes"} {
			if want := path + " " + map[bool]string{true: "true"}[i == current]; links[i] != want {
				t.Errorf("%q: link %d is %q, want %q", show, i, links[i], want)
			}
		}
	}
}

// TestTimelineUndo undoes changes from their lines, unless the ticket has changed since.
func TestTimelineUndo(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	set := func(form url.Values) webtest.Document {
		t.Helper()
		d, _ := b.Follow(b.Post("/tickets/1/properties", form))
		return d
	}
	set(url.Values{"tags": {"lock"}})
	set(url.Values{"status": {"pending"}, "priority": {"high"}, "assignee": {h.Agent.ID}, "subject": {"Lock"}})
	d := set(url.Values{"tags": {"lock, app"}})
	forms := undoForms(d)
	want := url.Values{
		"undo": {"1"}, "status": {"open"}, "was.status": {"pending"}, "priority": {"normal"}, "was.priority": {"high"},
		"assignee": {""}, "was.assignee": {h.Agent.ID}, "subject": {"Hello?"}, "was.subject": {"Lock"}, "tags": {"lock"}, "was.tags": {"lock, app"},
	}
	if len(forms) != 1 || forms[0].Encode() != want.Encode() {
		t.Fatalf("got forms %v, want %v", forms, want)
	}
	set(url.Values{"tags": {"lock, app, bike"}}) // a colleague's change is kept
	set(forms[0])
	got := h.ticket(1)
	if got.Status != desk.StatusOpen || got.Priority != desk.PriorityNormal || got.AssigneeID != "" || got.Subject != "Hello?" || !slices.Equal(got.Tags, []string{"lock", "bike"}) {
		t.Errorf("after the undoing the ticket is %+v", got)
	}
	// A stale form is refused.
	set(url.Values{"status": {"resolved"}})
	if _, notice := b.Follow(b.Post("/tickets/1/properties", forms[0])); !strings.HasPrefix(notice, "Undo failed.") {
		t.Errorf("got notice %q", notice)
	}
	if got := h.ticket(1).Status; got != desk.StatusResolved {
		t.Errorf("a stale form set status %s", got)
	}

	h.text("+14155550112", "SM2", "Another")
	if w := b.Post("/tickets/1/merge", url.Values{"into": {h.ticket(2).ID}}); w.Code != http.StatusSeeOther {
		t.Fatalf("got %d", w.Code)
	}
	d = b.Page("/tickets/1")
	if forms := undoForms(d); len(forms) != 0 {
		t.Errorf("a merged ticket has forms %v", forms)
	}
	if lines := changeLines(d); !strings.HasSuffix(lines[len(lines)-1], ", merged the ticket into #2") {
		t.Errorf("got lines %q", lines)
	}
	wantLines(t, b.Page("/tickets/2"), "Ben merged #1 into this ticket")
}

// TestTimelinePages: old changes are on the pages of their messages, or of the changes.
func TestTimelinePages(t *testing.T) {
	h := newHarness(t)
	for i := range 60 {
		h.text("+14155550111", fmt.Sprint("SM", i), fmt.Sprint("text ", i, "."))
		if i == 5 || i == 55 {
			h.changeBy(audit.Source{}, desk.Update{Subject: new(fmt.Sprint("Subject ", i))})
		}
	}
	b := h.SignIn(h.Agent)
	d := b.Page("/tickets/1")
	wantLines(t, d, "Kickstand changed the subject to “Subject 55” Undo")
	earlier := ""
	for _, a := range d.All("a") {
		if webtest.Text(a) == "Earlier messages" {
			earlier = webtest.Attr(a, "href")
		}
	}
	wantLines(t, b.Page(earlier), "Kickstand changed the subject to “Subject 5”")

	for i := range 120 {
		h.changeBy(audit.Source{}, desk.Update{Priority: new(desk.Priorities[i%2])})
	}
	d = b.Page("/tickets/1?show=changes")
	if lines := changeLines(d); len(lines) != 13 { // 100 changes, 8 in a line
		t.Errorf("got %d lines: %q", len(lines), lines)
	}
	for _, a := range d.All("a") {
		if webtest.Text(a) == "Earlier changes" {
			earlier = webtest.Attr(a, "href")
		}
	}
	d = b.Page(earlier)
	if lines := changeLines(d); len(lines) != 4 || lines[0] != "+14155550111 created the ticket" || len(undoForms(d)) != 0 {
		t.Errorf("got lines %q, %v", lines, undoForms(d))
	}
	d.Want("Newest changes")
}
