package inbox_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// TestQuotas: a reply, a file and a ticket beyond a quota show the reason beside what was typed,
// which is saved as a draft.
func TestQuotas(t *testing.T) {
	h := newLimitedHarness(t, dispatcher{}, quota.Limits{quota.Messages: 1, quota.Storage: 100})
	r := h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	for _, c := range []struct {
		name  string
		form  url.Values
		files []web.File
		want  string
	}{
		{"a reply", reply("reply", "Here."), nil, "limited to 1 message a day, and today’s are used"},
		{"a file", reply("note", "see", "reply", "Here."), []web.File{{Name: "a", ContentType: "x/y", Data: make([]byte, 101)}}, "limited to 100 B of files, of which 0 B are used"},
	} {
		d := b.WantRefused(b.PostFiles("/tickets/1/write", c.form, c.files...), http.StatusUnprocessableEntity)
		if alert := strings.ReplaceAll(d.Alert(), "'", "’"); !strings.Contains(alert, c.want) || !strings.Contains(alert, "Nothing was sent.") {
			t.Errorf("%s: got %q, want %q in it", c.name, alert, c.want)
		}
	}
	if d := b.Page("/tickets/1"); value(d, "reply") != "Here." {
		t.Errorf("the draft is %q", value(d, "reply"))
	}
	b.Follow(b.PostFiles("/tickets/1/write", reply("note", "see"), web.File{Name: "a", ContentType: "x/y", Data: make([]byte, 100)}))
	if n := len(h.messages(r.TicketID)); n != 2 {
		t.Errorf("got %d messages, want 2", n)
	}
	form := url.Values{"customer.name": {"Ana"}, "channel": {"api"}, "subject": {"Flat tyre"}, "text": {"On the bridge."}}
	d := b.WantRefused(b.Post("/tickets/new", form), http.StatusUnprocessableEntity)
	d.Want("limited to 1 message a day", "On the bridge.")
	form.Del("text")
	b.Follow(b.Post("/tickets/new", form))
}
