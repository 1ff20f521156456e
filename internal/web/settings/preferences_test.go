package settings_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestPreferences checks that the form shows and saves all preferences, and keeps the members of
// other clients.
func TestPreferences(t *testing.T) {
	const path = "/settings/preferences"
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	h.Prefer(h.Agent, `{"mine":{"a":1},"theme":"pink"}`)
	d := b.Page(path)
	d.Want("Preferences", "Time zone", "Empty: the zone of your browser.")
	want := account.Preferences{
		TimeZone: "Asia/Tokyo", DateForm: "2006-01-02", Clock: "12h", Theme: "dark", Density: "compact", UndoSend: 5, DefaultView: "/inbox/mine", AfterSend: "next",
		Signature: "*Ada*\nSupport",
	}
	form := url.Values{
		"time_zone": {" Asia/Tokyo "}, "date_form": {"2006-01-02"}, "clock": {"12h"}, "theme": {"dark"}, "density": {"compact"},
		"undo_send_seconds": {"5"}, "default_view": {"/inbox/mine"}, "after_send": {"next"}, "signature": {"*Ada*\r\nSupport\r\n"},
	}
	for name := range form {
		if d.Field(name) == nil {
			t.Errorf("there is no field %s", name)
		}
	}
	if _, notice := b.Follow(b.Post(path, form)); notice != "Preferences saved." {
		t.Errorf("got notice %q", notice)
	}
	stored := func() json.RawMessage {
		u, err := h.Accounts.User(t.Context(), h.Agent.ID)
		if err != nil {
			t.Fatal(err)
		}
		return u.Preferences
	}
	before := stored()
	if got := account.ReadPreferences(before); got != want || !strings.HasPrefix(string(before), `{"mine":{"a":1},`) {
		t.Errorf("got %s", before)
	}
	d = b.Page(path)
	if got := webtest.Attr(d.Field("time_zone"), "value"); got != "Asia/Tokyo" {
		t.Errorf("got time zone %q", got)
	}
	root := d.All("html")[0]
	if webtest.Attr(root, "data-theme") != "dark" || webtest.Attr(root, "data-density") != "compact" {
		t.Error("the page does not have the theme and the density")
	}
	for _, c := range []struct{ name, value, want string }{
		{"time_zone", "Mars/<Olympus>", "Time zone must be an IANA time zone such as Europe/Berlin."},
		{"undo_send_seconds", "ten", "Undo send must be one of"},
		{"default_view", "https://evil.example/", "Default view must be the path of a list below /inbox."},
		{"theme", "", "Theme must be one of"},
	} {
		d := b.WantRefused(b.Post(path, url.Values{c.name: {c.value}}), http.StatusUnprocessableEntity)
		d.Want(c.want)
	}
	if got := stored(); string(got) != string(before) {
		t.Errorf("refused forms changed the preferences to %s", got)
	}
}
