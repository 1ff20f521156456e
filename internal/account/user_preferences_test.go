package account_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// chosen are preferences that are no defaults.
var chosen = account.Preferences{
	TimeZone: "Europe/Berlin", DateForm: "02.01.2006", Clock: "12h", Theme: "dark", Density: "compact",
	UndoSend: 30, DefaultView: "/inbox/status/on-hold", AfterSend: "next", Signature: "*Ada*\nSupport",
}

// TestReadPreferences checks that each member of a stored object that is missing or invalid has
// its default, independent of the others.
func TestReadPreferences(t *testing.T) {
	for _, tt := range []struct {
		stored string
		set    func(p *account.Preferences)
	}{
		{``, nil},
		{`{}`, nil},
		{`null`, nil},
		{`[1]`, nil},
		{`{"theme":"dark"`, nil},
		{`{"theme":"dark","a":{"theme":"light"}}`, func(p *account.Preferences) { p.Theme = "dark" }},
		{`{"theme":"pink","density":"compact"}`, func(p *account.Preferences) { p.Density = "compact" }},
		{`{"theme":null,"date_form":7,"clock":{},"undo_send_seconds":"5"}`, nil},
		{`{"undo_send_seconds":0}`, func(p *account.Preferences) { p.UndoSend = 0 }},
		{`{"undo_send_seconds":7}`, nil},
		{`{"undo_send_seconds":-1e99,"after_send":"next"}`, func(p *account.Preferences) { p.AfterSend = "next" }},
		{`{"time_zone":"Asia/Tokyo"}`, func(p *account.Preferences) { p.TimeZone = "Asia/Tokyo" }},
		{`{"time_zone":"Local"}`, nil},
		{`{"time_zone":"../../etc/passwd"}`, nil},
		{`{"default_view":"/inbox/mine"}`, func(p *account.Preferences) { p.DefaultView = "/inbox/mine" }},
		{`{"default_view":"//evil.example/"}`, nil},
		{`{"default_view":"/settings"}`, nil},
		{`{"default_view":"/inbox/../settings"}`, nil},
	} {
		want := account.DefaultPreferences()
		if tt.set != nil {
			tt.set(&want)
		}
		if got := account.ReadPreferences(json.RawMessage(tt.stored)); got != want {
			t.Errorf("%s: got %+v, want %+v", tt.stored, got, want)
		}
	}
}

// TestSetPreferences checks that other members are kept byte for byte.
func TestSetPreferences(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	o := f.organization(t, "Acme")
	ada, _ := f.member(t, o, "ada@example.com", account.Agent)
	bob, _ := f.member(t, o, "bob@example.com", account.Agent)
	const set = `"time_zone":"Europe/Berlin","date_form":"02.01.2006","clock":"12h","theme":"dark","density":"compact","undo_send_seconds":30,"default_view":"/inbox/status/on-hold","after_send":"next","signature":"*Ada*\nSupport"}`
	for _, tt := range []struct{ stored, want string }{
		{`{}`, `{` + set},
		{`{"theme":"light"}`, `{` + set},
		{`{"theme":{"a":1},"\u0074heme":2}`, `{` + set},
		{`{ "n" : 1e999 , "theme":"light", "\ud800<": {"theme":"light", "b":[1, null]} , "e":"" }`, `{"n":1e999,"\ud800<":{"theme":"light", "b":[1, null]},"e":"",` + set},
	} {
		if _, err := f.UpdateProfile(t.Context(), ada.UserID, account.Profile{Preferences: json.RawMessage(tt.stored)}); err != nil {
			t.Fatal(err)
		}
		got, err := f.SetPreferences(t.Context(), ada.UserID, chosen)
		if err != nil || string(got.Preferences) != tt.want {
			t.Errorf("%s: got %s, error %v, want %s", tt.stored, got.Preferences, err, tt.want)
		}
		stored, err := f.User(t.Context(), ada.UserID)
		if err != nil || !sameUser(stored, got) || account.ReadPreferences(stored.Preferences) != chosen {
			t.Errorf("%s: got stored %+v, error %v", tt.stored, stored, err)
		}
	}
	if got, err := f.User(t.Context(), bob.UserID); err != nil || !sameUser(got, bob.User) {
		t.Errorf("got another user %+v, error %v, want %+v", got, err, bob.User)
	}
	_, err := f.SetPreferences(t.Context(), "nobody", chosen)
	wantKind(t, err, problem.Unauthorized)
}

// TestPreferencesInput checks that invalid preferences change nothing.
func TestPreferencesInput(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	in := f.signIn(t, "ada@example.com")
	for path, change := range map[string]func(p *account.Preferences){
		"time_zone":         func(p *account.Preferences) { p.TimeZone = "Mars/Olympus" },
		"date_form":         func(p *account.Preferences) { p.DateForm = "" },
		"clock":             func(p *account.Preferences) { p.Clock = "13h" },
		"theme":             func(p *account.Preferences) { p.Theme = "Dark" },
		"density":           func(p *account.Preferences) { p.Density = "dense" },
		"undo_send_seconds": func(p *account.Preferences) { p.UndoSend = 60 },
		"default_view":      func(p *account.Preferences) { p.DefaultView = "https://evil.example/inbox/" },
		"after_send":        func(p *account.Preferences) { p.AfterSend = "sleep" },
		"signature":         func(p *account.Preferences) { p.Signature = strings.Repeat("x", account.MaxSignature+1) },
	} {
		p := chosen
		change(&p)
		_, err := f.SetPreferences(t.Context(), in.User.ID, p)
		e, ok := errors.AsType[*problem.Error](err)
		if !ok || e.Kind != problem.Invalid || len(e.Issues) != 1 || e.Issues[0].Path != path {
			t.Errorf("%s: got error %v", path, err)
		}
	}
	full := `{"a":"` + strings.Repeat("x", 16<<10-8) + `"}`
	if _, err := f.UpdateProfile(t.Context(), in.User.ID, account.Profile{Preferences: json.RawMessage(full)}); err != nil {
		t.Fatal(err)
	}
	_, err := f.SetPreferences(t.Context(), in.User.ID, chosen)
	wantKind(t, err, problem.TooLarge)
	if u, err := f.User(t.Context(), in.User.ID); err != nil || string(u.Preferences) != full {
		t.Errorf("the preferences are changed, error %v", err)
	}
}
