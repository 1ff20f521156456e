package inbox_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// mention writes a note of the admin that mentions the agent.
func (h *harness) mention(ticketID string) {
	h.t.Helper()
	content, err := h.desk.Compose(h.t.Context(), h.Organization.ID, desk.Draft{Text: "@" + h.Agent.Name + ", can you?", Note: true})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.DB.Write(h.t.Context(), func(tx *db.Tx) error {
		_, err := h.desk.AddNoteTx(h.t.Context(), tx, h.Organization.ID, ticketID, desk.Actor{ID: h.Admin.ID, Name: h.Admin.Name}, content)
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
}

// title returns the title of a page.
func title(d webtest.Document) string {
	return webtest.Text(d.All("title")[0])
}

func TestNoticesPage(t *testing.T) {
	h := newHarness(t)
	ids := h.tickets(2)
	b, other := h.SignIn(h.Agent), h.SignIn(h.Admin)
	if d := b.Page("/notices"); title(d) != "Notices – Kickstand" || !strings.Contains(webtest.Text(d.WithAttr("id", "notice-list")[0]), "You have no notices") {
		t.Errorf("without notices: %q", title(d))
	}
	h.mention(ids[0])
	h.mention(ids[1])
	d := b.Page("/notices")
	if got := title(d); got != "(2) Notices – Kickstand" {
		t.Errorf("the title is %q", got)
	}
	list := webtest.Text(d.WithAttr("id", "notice-list")[0])
	if !strings.Contains(list, "#1 text 1, unread") || !strings.Contains(list, h.Admin.Name+" mentions you in a note.") || !strings.Contains(list, "can you?") {
		t.Errorf("the list is %q", list)
	}
	if item := d.WithAttr("id", "notices")[0]; webtest.Attr(item, "data-live") != "notices:"+h.Agent.ID || !strings.HasSuffix(webtest.Text(item), "2") {
		t.Errorf("the sidebar has %q", webtest.Text(item))
	}
	if got := title(other.Page("/notices")); got != "Notices – Kickstand" {
		t.Errorf("of the author: %q", got)
	}

	// Opening the ticket reads its notices.
	marks := b.Page("/tickets/1").All("mark")
	if len(marks) != 1 || webtest.Text(marks[0]) != "@"+h.Agent.Name {
		t.Errorf("%d marks in the note", len(marks))
	}
	if got := title(b.Page("/customers")); got != "(1) Customers – Kickstand" {
		t.Errorf("after reading one: %q", got)
	}
	if w := b.Post("/notices", url.Values{"do": {"read"}}); w.Code != http.StatusSeeOther {
		t.Fatal(w.Code)
	}
	if got := title(b.Page("/notices")); got != "Notices – Kickstand" {
		t.Errorf("after reading all: %q", got)
	}
}

func TestNoticeChoicesForm(t *testing.T) {
	h := newHarness(t)
	h.Prefer(h.Agent, `{"theme":"dark","notices":{"later":1}}`)
	id := h.tickets(1)[0]
	b := h.SignIn(h.Agent)
	form := url.Values{"assigned": {"page"}, "mentioned": {"none"}, "answered": {"page"}, "sla_warning": {"mail"}, "delivery_failed": {"both"}, "fleet_alert": {"page"}, "push": {"1"}, "push.assigned": {"on"}}
	if w := b.Post("/notices", form); w.Code != http.StatusSeeOther {
		t.Fatalf("answered %d %s", w.Code, w.Body)
	}
	u, err := h.Accounts.User(t.Context(), h.Agent.ID)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"notice_push":{"answered":false,"assigned":true,"delivery_failed":false,"fleet_alert":false,"mentioned":false,"sla_warning":false},"notices":{"answered":"page","assigned":"page","delivery_failed":"both","fleet_alert":"page","later":1,"mentioned":"none","sla_warning":"mail"},"theme":"dark"}`
	if string(u.Preferences) != want {
		t.Errorf("stored %s", u.Preferences)
	}
	h.mention(id)
	if got := title(b.Page("/notices")); got != "Notices – Kickstand" {
		t.Errorf("a notice that was not wanted: %q", got)
	}
	form.Set("answered", "loud")
	if w := b.Post("/notices", form); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("a wrong choice was answered %d", w.Code)
	}
}

func TestFollowForm(t *testing.T) {
	h := newHarness(t)
	h.tickets(1)
	b, stranger := h.SignIn(h.Agent), h.SignIn(h.NewUser(h.NewOrganization("Other"), "eve@other.example", "Eve", account.Admin))
	follows := func() bool {
		d := b.Page("/tickets/1")
		return strings.Contains(webtest.Text(d.WithAttr("id", "ticket-more")[0]), "Unfollow") && strings.Contains(webtest.Text(d.WithAttr("id", "ticket-properties")[0]), "Followers")
	}
	for _, do := range []string{"follow", "follow", "unfollow"} {
		if w := b.Post("/tickets/1/follow", url.Values{"do": {do}}); w.Code != http.StatusSeeOther {
			t.Fatalf("%s: %d", do, w.Code)
		}
		if follows() != (do == "follow") {
			t.Errorf("after %s: %t", do, follows())
		}
	}
	if w := stranger.Post("/tickets/1/follow", url.Values{"do": {"follow"}}); w.Code != http.StatusNotFound {
		t.Errorf("a stranger was answered %d", w.Code)
	}
}
