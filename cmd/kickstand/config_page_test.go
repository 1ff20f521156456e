package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/setting"
)

// TestConfigShowsSources: each value has its source, and one of the page shows below what overrides it,
// without secrets.
func TestConfigShowsSources(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "kickstand.toml")
	if err := os.WriteFile(file, []byte("mail-from = \"file@help.example\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := dbtest.URL(t)
	environment := map[string]string{
		"KICKSTAND_CONFIG": file, "KICKSTAND_DATA": folder, "KICKSTAND_DATABASE_URL": at, "KICKSTAND_SIGN_UP": "invited",
	}
	lookup := func(name string) (string, bool) { v, ok := environment[name]; return v, ok }
	shown := func(args ...string) (values map[string]any, sources map[string]string) {
		t.Helper()
		var out bytes.Buffer
		if err := run(t.Context(), append([]string{"config", "--json"}, args...), lookup, nil, &out, t.Output()); err != nil {
			t.Fatal(err)
		}
		var record struct{ Sources map[string]string }
		if err := json.Unmarshal(out.Bytes(), &values); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &record); err != nil {
			t.Fatal(err)
		}
		return values, record.Sources
	}
	if _, sources := shown(); sources["smtp-url"] != "default" {
		t.Errorf("without a value: %q", sources["smtp-url"])
	}

	a, err := app.Open(t.Context(), app.Config{BaseURL: "http://localhost", Data: folder, DatabaseURL: at, MailFrom: "no-reply@help.example", RetryTimeScale: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.SaveSettings(t.Context(), map[string]string{
		setting.SMTPURL: "smtp://desk:hunter2@mail.example.com", setting.MailFrom: "page@help.example", setting.SignUp: "open", setting.Retention: "events=5d",
	}); err != nil {
		t.Fatal(err)
	}
	values, sources := shown("--retention=events=6d")
	for name, want := range map[string][2]string{
		"smtp-url": {"smtp://********@mail.example.com", "page"}, "mail-from": {"file@help.example", "file " + file},
		"sign-up": {"invited", "variable KICKSTAND_SIGN_UP"}, "stop-timeout": {"15s", "default"},
	} {
		if values[name] != want[0] || sources[name] != want[1] {
			t.Errorf("%s: got %v from %q, want %q", name, values[name], sources[name], want)
		}
	}
	if sources["retention"] != "flag --retention" {
		t.Errorf("retention is from %q", sources["retention"])
	}
	// A mail server of the page suffices for a public base URL.
	set := app.Config{BaseURL: "https://help.example.com", Data: folder, DatabaseURL: at}
	if err := app.CheckServe(t.Context(), set); err != nil {
		t.Errorf("CheckServe() = %v", err)
	}
	set.DatabaseURL = "sqlite:" + filepath.Join(folder, "none.db")
	if err := app.CheckServe(t.Context(), set); err == nil {
		t.Error("CheckServe() accepts a public base URL without mail")
	}
}

// TestDescribedDemo: what the demo sets has it as its source, and addresses of tiles have no key.
func TestDescribedDemo(t *testing.T) {
	e := &env{commands: new(commands), sources: &sources{lookup: func(string) (string, bool) { return "", false }}}
	e.SessionLifetime, e.MailFrom = 90*24*time.Hour, "desk@help.example"
	e.given = new(e.config)
	e.AllowNoMail, e.MapTiles = true, "https://tiles.example/s3cret/{z}/{x}/{y}.png?key=s3cret"
	found := make(map[string]setting.Setting)
	for _, s := range e.described("http://localhost") {
		found[s.Name] = s
	}
	for name, want := range map[string][2]string{
		"allow-no-mail": {"true", "kickstand demo"}, "mail-from": {"desk@help.example", ""}, "session-lifetime": {"2160h", ""},
		"map-tiles": {"https://tiles.example/********", "kickstand demo"},
	} {
		if s := found[name]; s.Value != want[0] || s.By != want[1] || s.Source != setting.Default {
			t.Errorf("%s: got %q from %q %s, want %q", name, s.Value, s.Source, s.By, want)
		}
	}
}
