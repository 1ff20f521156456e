package inbox_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

func TestForward(t *testing.T) {
	h := newHarness(t)
	r := h.mail("ana@example.com", "m1", func(m *channel.Message) { m.Text = "Where is " + evil })
	b := h.SignIn(h.Agent)
	d := b.Page("/tickets/1/forward")
	if got := d.All("option"); len(got) != 2 || !strings.Contains(webtest.Text(got[1]), "Where is") {
		t.Errorf("the messages are %v", got)
	}
	refused := b.WantRefused(b.Post("/tickets/1/forward", url.Values{"to": {"nobody"}, "text": {"Is it there?"}}), http.StatusUnprocessableEntity)
	if !strings.Contains(refused.Alert(), "The address must be") || webtest.Attr(refused.Field("to"), "value") != "nobody" || !strings.Contains(webtest.Text(refused.Field("text")), "Is it there?") {
		t.Errorf("got %q", refused.Alert())
	}
	form := url.Values{"to": {"sam@supplier.example"}, "text": {"Is it **there**?"}, "once": {"key"}, "message": {h.messages(r.TicketID)[0].ID}}
	d, notice := b.Follow(b.PostFiles("/tickets/1/forward", form, web.File{Name: "list.txt", ContentType: "text/plain", Data: []byte("list")}))
	if notice != "Forwarded to sam@supplier.example." {
		t.Errorf("got notice %q", notice)
	}
	d.Want("Forwarded to sam@supplier.example", "Is it **there**?", "list.txt")
	b.Follow(b.PostFiles("/tickets/1/forward", form)) // the same form again
	list := h.messages(r.TicketID)
	if len(list) != 2 || list[1].Kind != desk.KindForward {
		t.Fatalf("got %d messages, the last a %s", len(list), list[len(list)-1].Kind)
	}
	h.mail("sam@supplier.example", "s1", func(m *channel.Message) { m.Mail.InReplyTo = []string{list[1].ExternalID} })
	d = b.Page("/tickets/1")
	d.Want("Answer to a forward", "Forwarded by E-mail")
	// The customer's conversation is the selected one.
	options := d.WithAttr("name", "conversation")
	if len(options) != 2 || !webtest.Has(options[0], "checked") || webtest.Attr(options[0], "value") != r.ConversationID || webtest.Has(options[1], "checked") {
		t.Errorf("got the conversations %v", options)
	}
	stranger := h.SignIn(h.NewUser(h.NewOrganization("Other"), "eve@other.example", "Eve", account.Admin))
	stranger.WantRefused(stranger.Post("/tickets/1/forward", form), http.StatusNotFound)
}
