package inbox_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// saveView fills and sends the form of a new view, and returns its path.
func saveView(t testing.TB, b *webtest.Browser, form url.Values) string {
	t.Helper()
	w := b.Post("/inbox/views/new", form)
	if w.Code != http.StatusSeeOther {
		t.Fatalf("the form was answered %d %s", w.Code, w.Body)
	}
	return w.Header().Get("Location")
}

// chips returns the filters above a list, with the address that removes each.
func chips(d webtest.Document) map[string]string {
	found := map[string]string{}
	for _, list := range d.WithAttr("class", "chips") {
		for n := range list.Descendants() {
			if n.Data == "a" {
				found[webtest.Text(n)] = webtest.Attr(n, "href")
			}
		}
	}
	return found
}

// tickets receives n text messages.
func (h *harness) tickets(n int) (ids []string) {
	h.t.Helper()
	for i := range n {
		ids = append(ids, h.text(fmt.Sprintf("+1415555%04d", i), fmt.Sprint("SM", i), fmt.Sprint("text ", i+1)).TicketID)
	}
	return ids
}

func TestSavedViews(t *testing.T) {
	h := newHarness(t)
	ids := h.tickets(4)
	h.update(ids[0], desk.Update{Tags: &[]string{"lock"}, AssigneeID: &h.Agent.ID})
	h.update(ids[1], desk.Update{Tags: &[]string{"lock"}})
	b, admin := h.SignIn(h.Agent), h.SignIn(h.Admin)

	// From a search.
	d := b.Page("/inbox?q=tag:lock&sort=created_at")
	save := d.WithAttr("href", "/inbox/views/new?q=status%3Aopen+tag%3Alock&sort=created_at")
	if got := subjects(d); !slices.Equal(got, []string{"text 1", "text 2"}) || len(save) != 1 {
		t.Fatalf("got %q, and %d ways to save it", got, len(save))
	}
	form := b.Page(webtest.Attr(save[0], "href"))
	if q := webtest.Attr(form.Field("query"), "value"); q != "status:open tag:lock" || len(form.WithAttr("name", "shared")) != 0 {
		t.Errorf("the form has the query %q", q)
	}
	path := saveView(t, b, url.Values{"name": {"Locks"}, "query": {"status:open tag:lock"}, "sort": {"created_at"}, "columns": {"tags, Created"}})
	d = b.Page(path)
	if got := subjects(d); !slices.Equal(got, []string{"text 1", "text 2"}) || webtest.Attr(d.Field("q"), "value") != "status:open tag:lock" {
		t.Errorf("the view has %q", got)
	}
	if got := counts(d)["Locks"]; got != "2" {
		t.Errorf("the count is %q", got)
	}
	want := map[string]string{"status:open": path + "?q=tag%3Alock", "tag:lock": path + "?q=status%3Aopen"}
	if got := chips(d); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got chips %v, want %v", got, want)
	}
	if got := subjects(b.Page(want["tag:lock"])); len(got) != 4 || got[0] != "text 1" {
		t.Errorf("without a chip: got %q", got)
	}
	if text := webtest.Text(rowOf(t, d, 1)); !strings.Contains(text, "lock") || !strings.Contains(text, "Created") || len(d.WithAttr("class", "by")) != 0 {
		t.Errorf("the row is %q", text)
	}
	in := "/tickets/1?in=" + url.QueryEscape(strings.TrimPrefix(path, "/inbox/"))
	if len(d.WithAttr("href", in)) != 1 {
		t.Errorf("no link to %s", in)
	}
	if got := subjects(b.Page(in)); !slices.Equal(got, []string{"text 1", "text 2"}) {
		t.Errorf("beside the ticket: %q", got)
	}
	// It is the member's own.
	if w := admin.Get(path); w.Code != http.StatusNotFound {
		t.Errorf("another member gets %d", w.Code)
	}
	if _, ok := counts(admin.Page("/inbox"))["Locks"]; ok {
		t.Error("another member sees it")
	}
	if got := subjects(admin.Page(in)); len(got) != 4 {
		t.Errorf("the ticket is shown beside %q", got)
	}
	for _, form := range []url.Values{{"name": {""}, "sort": {"number"}}, {"name": {"X"}, "query": {"status:opne"}, "sort": {"number"}}, {"name": {"X"}, "sort": {"subject"}}, {"name": {"X"}, "sort": {"number"}, "columns": {"colour"}}} {
		d := b.WantRefused(b.Post("/inbox/views/new", form), http.StatusUnprocessableEntity)
		if webtest.Attr(d.Field("name"), "value") != form.Get("name") {
			t.Errorf("%v: the form has lost what was typed", form)
		}
	}

	// Shared.
	b.WantRefused(b.Post("/inbox/views/new", url.Values{"name": {"S"}, "sort": {"number"}, "shared": {"on"}}), http.StatusForbidden)
	shared := saveView(t, admin, url.Values{"name": {"Mine, shared"}, "query": {"assignee:me"}, "sort": {"-updated_at"}, "columns": {""}, "shared": {"on"}})
	if got := subjects(b.Page(shared)); !slices.Equal(got, []string{"text 1"}) {
		t.Errorf("mine: %q", got)
	}
	if got := subjects(admin.Page(shared)); len(got) != 0 {
		t.Errorf("theirs: %q", got)
	}
	b.WantRefused(b.Get(shared+"/edit"), http.StatusForbidden)
	b.WantRefused(b.Post(shared+"/edit", url.Values{"name": {"S"}, "sort": {"number"}}), http.StatusForbidden)
	id := func(path string) string { return path[strings.LastIndex(path, "/")+1:] }
	b.WantRefused(b.Post("/inbox/views", url.Values{"do": {"delete"}, "id": {id(shared)}}), http.StatusForbidden)
	if len(b.Page(shared).WithAttr("href", shared+"/edit")) != 0 || len(admin.Page(shared).WithAttr("href", shared+"/edit")) != 1 {
		t.Error("the wrong members can edit it")
	}
	if _, notice := admin.Follow(admin.Post(shared+"/edit", url.Values{"name": {"To do"}, "query": {"assignee:me"}, "sort": {"number"}, "columns": {"status"}, "shared": {"on"}})); notice != "View saved." {
		t.Errorf("got notice %q", notice)
	}
	b.Page("/inbox").Want("To do")

	// Order.
	saveView(t, b, url.Values{"name": {"Second"}, "sort": {"number"}})
	names := func() string {
		var list []string
		for _, n := range b.Page("/inbox/views").WithAttr("data-label", "Name") {
			list = append(list, webtest.Text(n))
		}
		return strings.Join(list, ", ")
	}
	if got := names(); got != "Locks, Second, To do" {
		t.Errorf("the views are %s", got)
	}
	for do, want := range map[string]string{"down": "Second, Locks, To do"} {
		b.Post("/inbox/views", url.Values{"do": {do}, "id": {id(path)}})
		if got := names(); got != want {
			t.Errorf("%s: the views are %s", do, got)
		}
	}
	// Deletion and undo.
	d, notice := b.Follow(b.Post("/inbox/views", url.Values{"do": {"delete"}, "id": {id(path)}}))
	if notice != "View deleted. Undo" || names() != "Second, To do" || b.Get(path).Code != http.StatusNotFound {
		t.Errorf("got notice %q, and the views %s", notice, names())
	}
	undo := url.Values{}
	for _, n := range d.WithAttr("class", "toasts") {
		for c := range n.Descendants() {
			if c.Data == "input" {
				undo.Set(webtest.Attr(c, "name"), webtest.Attr(c, "value"))
			}
		}
	}
	if _, notice := b.Follow(b.Post("/inbox/views", undo)); notice != "View restored." || names() != "Second, Locks, To do" {
		t.Errorf("got notice %q, and the views %s", notice, names())
	}
	// Another organization has none of them.
	stranger := h.NewUser(h.NewOrganization("Other"), "eve@other.example", "Eve", account.Admin)
	if w := h.SignIn(stranger).Get(shared); w.Code != http.StatusNotFound {
		t.Errorf("a stranger gets %d", w.Code)
	}
	h.SignIn(stranger).WantRefused(h.SignIn(stranger).Post("/inbox/views", url.Values{"do": {"delete"}, "id": {id(shared)}}), http.StatusNotFound)
}

// TestFaultyView shows a view whose search has lost its meaning.
func TestFaultyView(t *testing.T) {
	h := newHarness(t)
	h.tickets(1)
	gone := h.NewUser(h.Organization, "gone@example.com", "Gone", account.Agent)
	b := h.SignIn(h.Agent)
	path := saveView(t, b, url.Values{"name": {"Theirs"}, "query": {"assignee:gone@example.com"}, "sort": {"number"}})
	if err := h.Accounts.RemoveMember(account.NewContext(t.Context(), account.Identity{UserID: h.Admin.ID, OrganizationID: h.Organization.ID, Role: account.Admin, User: h.Admin}), h.Organization.ID, gone.ID); err != nil {
		t.Fatal(err)
	}
	b.Page(path).Want("no member has this e-mail address")
	b.Page("/inbox").Want("Theirs")
}

func TestOrderOfLists(t *testing.T) {
	h := newHarness(t)
	ids := h.tickets(3)
	h.update(ids[1], desk.Update{Priority: new(desk.PriorityUrgent)})
	h.update(ids[0], desk.Update{Tags: &[]string{"lock"}})
	b := h.SignIn(h.Agent)
	for path, want := range map[string]string{
		"/inbox": "text 1, text 2, text 3", "/inbox?sort=updated_at": "text 3, text 2, text 1", "/inbox?sort=-created_at": "text 3, text 2, text 1", "/inbox?sort=created_at": "text 1, text 2, text 3",
		"/inbox?sort=-priority": "text 2, text 3, text 1", "/inbox?sort=priority": "text 1, text 3, text 2", "/inbox?sort=-number": "text 3, text 2, text 1", "/inbox?sort=due_at": "",
		"/inbox?sort=subject": "text 1, text 2, text 3",
	} {
		if got := strings.Join(subjects(b.Page(path)), ", "); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	d := b.Page("/inbox?q=tag:lock&sort=-priority")
	var words []string
	for _, n := range d.WithAttr("id", "orders") {
		for c := range n.ChildNodes() {
			words = append(words, webtest.Text(c)+": "+webtest.Attr(c, "href"))
		}
	}
	want := []string{
		"Updated, newest first: /inbox/open?q=tag%3Alock", "Created, newest first: /inbox/open?q=tag%3Alock&sort=-created_at", "Priority, low first: /inbox/open?q=tag%3Alock&sort=priority",
		"SLA due, soonest first: /inbox/open?q=tag%3Alock&sort=due_at", "Number, highest first: /inbox/open?q=tag%3Alock&sort=-number",
	}
	if !slices.Equal(words, want) {
		t.Errorf("got %q, want %q", words, want)
	}
	if got := chips(d); fmt.Sprint(got) != "map[tag:lock:/inbox/open?sort=-priority]" {
		t.Errorf("got chips %v", got)
	}
	if got := chips(b.Page("/inbox/all?q=" + url.QueryEscape(`flat "big bike" -channel:email tag:"old lock",x`))); got[`tag:"old lock",x`] != "/inbox/all?q="+url.QueryEscape(`flat "big bike" -channel:email`) {
		t.Errorf("got chips %v", got)
	}
}

// TestLongList renders the rows of a list that has been scrolled.
func TestLongList(t *testing.T) {
	h := newHarness(t)
	h.tickets(60)
	b := h.SignIn(h.Agent)
	d := b.Page("/inbox/all?rows=55")
	if got := subjects(d); len(got) != 55 || got[54] != "text 6" || len(d.WithAttr("href", "/tickets/60?in=all&rows=55")) != 1 {
		t.Errorf("got %d rows, the last %q", len(got), got[len(got)-1])
	}
	older := d.WithAttr("rel", "next")
	if len(older) != 1 || strings.Contains(webtest.Attr(older[0], "href"), "rows") {
		t.Fatalf("got %d ways on", len(older))
	}
	if got := subjects(b.Page(webtest.Attr(older[0], "href"))); len(got) != 5 || got[0] != "text 5" {
		t.Errorf("the next page has %q", got)
	}
	for query, want := range map[string]int{"?rows=100000": 60, "?rows=1": 25, "?rows=x": 25, "?rows=-5": 25} {
		if got := subjects(b.Page("/inbox/all" + query)); len(got) != want {
			t.Errorf("%s: got %d rows, want %d", query, len(got), want)
		}
	}
}

// TestWholeList changes all tickets of a list, of which a page shows some.
func TestWholeList(t *testing.T) {
	h := newHarness(t)
	ids := h.tickets(240)
	h.update(ids[0], desk.Update{Tags: &[]string{"lock"}})
	if err := h.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := h.desk.MergeTx(t.Context(), tx, h.Organization.ID, ids[3], ids[4])
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b := h.SignIn(h.Agent)
	d := b.Page("/inbox/all?q=-tag:lock")
	if len(d.WithAttr("name", "all")) != 1 {
		t.Fatal("all cannot be selected")
	}
	d.Want("All 239 in this list")
	form := url.Values{"all": {"1"}, "ticket": {"7"}, "do": {"change"}, "assignee": {h.Agent.ID}, "back": {"/inbox/all?q=-tag:lock"}}
	for _, n := range d.All("input") {
		if name := webtest.Attr(n, "name"); name == "in" || name == "q" || name == "sort" {
			form.Set(name, webtest.Attr(n, "value"))
		}
	}
	if form.Get("in") != "all" || form.Get("q") != "-tag:lock" {
		t.Errorf("the form has %v", form)
	}
	d, notice := b.Follow(b.Post("/inbox", form))
	if !strings.HasPrefix(notice, "238 tickets changed: assigned. 1 stays as it was: ") {
		t.Errorf("got notice %q", notice)
	}
	if got := counts(d)["Mine"]; got != "238" {
		t.Errorf("%s are mine", got)
	}
	undo := url.Values{}
	for _, n := range d.WithAttr("class", "toasts") {
		for c := range n.Descendants() {
			if c.Data == "input" {
				undo.Set(webtest.Attr(c, "name"), webtest.Attr(c, "value"))
			}
		}
	}
	if _, notice := b.Follow(b.Post("/inbox", undo)); notice != "238 tickets are as before." {
		t.Errorf("undo: got notice %q", notice)
	}
	form.Set("do", "read")
	if _, notice := b.Follow(b.Post("/inbox", form)); notice != "239 tickets marked as read." {
		t.Errorf("got notice %q", notice)
	}
	if got := len(b.Page("/inbox/all?rows=250").WithAttr("class", "trow unread")); got != 1 {
		t.Errorf("%d are unread", got)
	}
	for _, c := range [][2]string{{"q", "status:opne"}, {"in", "views/x"}} {
		wrong := url.Values{"all": {"1"}, "do": {"change"}, "status": {"closed"}, c[0]: {c[1]}}
		if w := b.Post("/inbox", wrong); w.Code == http.StatusSeeOther {
			if _, notice := b.Follow(w); !strings.HasPrefix(notice, "Nothing was changed. no such status: opne") {
				t.Errorf("%v: got notice %q", wrong, notice)
			}
		} else if w.Code != http.StatusNotFound {
			t.Errorf("%v: got %d", wrong, w.Code)
		}
	}
	if got := counts(b.Page("/inbox"))["Closed"]; got != "1" { // the merged one
		t.Errorf("%s are closed", strconv.Quote(got))
	}
	if d := b.Page("/inbox/all?q=tag:lock"); len(d.WithAttr("name", "all")) != 0 {
		t.Error("a list of one page has a selection of all")
	}
}
