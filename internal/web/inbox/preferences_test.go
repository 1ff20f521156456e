package inbox_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestDefaultView checks that the inbox opens the member's default view, that a list which is gone
// opens none, and that the open tickets keep an address.
func TestDefaultView(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	w := b.Post("/inbox/views/new", url.Values{"name": {"Locks"}, "query": {"tag:lock"}, "sort": {"-updated_at"}})
	saved := w.Header().Get("Location")
	for _, tt := range []struct{ view, path, to string }{
		{"", "/inbox", ""},
		{"/inbox/mine", "/inbox", "/inbox/mine"},
		{"/inbox/status/on-hold", "/inbox", "/inbox/status/on-hold"},
		{saved, "/inbox", saved},
		{"/inbox/mine", "/inbox?q=hello", ""},
		{"/inbox/mine", "/inbox/open", ""},
		{"/inbox/views/01985ec5-8a60-7000-8000-5a7e1c0d2b3f", "/inbox", ""},
		{"/inbox/nowhere", "/inbox", ""},
		{"/inbox/open", "/inbox", ""},
	} {
		h.Prefer(h.Agent, `{"default_view":"`+tt.view+`"}`)
		w := b.Get(tt.path)
		if to := w.Header().Get("Location"); to != tt.to || (w.Code == http.StatusSeeOther) != (tt.to != "") {
			t.Errorf("%s with %q: got %d to %q, want %q", tt.path, tt.view, w.Code, to, tt.to)
		}
		if tt.to != "" {
			if open := b.Page(tt.to).WithAttr("href", "/inbox/open"); len(open) == 0 {
				t.Errorf("%s does not link to the open tickets", tt.to)
			}
		}
	}
	d := b.Page("/inbox/open")
	if title := webtest.Text(d.All("title")[0]); title != "All open – Kickstand" || len(subjects(d)) != 1 {
		t.Errorf("got %q with %q", title, subjects(d))
	}
}

// TestAfterSend checks where a sent reply leads: Send to the next ticket if the member prefers it,
// but not a note.
func TestAfterSend(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "One")
	h.text("+14155550112", "SM2", "Two")
	b := h.SignIn(h.Agent)
	for _, tt := range []struct{ preferences, kind, do, want string }{
		{`{}`, "reply", "send", "/tickets/2"},
		{`{"after_send":"stay"}`, "reply", "send", "/tickets/2"},
		{`{"after_send":"next"}`, "note", "send", "/tickets/2"},
		{`{"after_send":"next"}`, "reply", "draft", "/tickets/2"},
		{`{"after_send":"next"}`, "reply", "send", "/tickets/1"},
	} {
		h.Prefer(h.Agent, tt.preferences)
		w := b.Post("/tickets/2/write?in=unassigned", reply(tt.kind, "Done", "do", tt.do))
		if got, _, _ := strings.Cut(w.Header().Get("Location"), "?"); got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
}
