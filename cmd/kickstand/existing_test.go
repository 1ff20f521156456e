package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"

	"github.com/alecthomas/kong"
)

// creators are the commands that may create a database.
var creators = []string{"serve", "demo", "org create", "migrate", "restore"}

// withoutDatabase lists the commands that use none. The doctor reports a missing one as a
// finding.
var withoutDatabase = []string{"trigger", "listen", "mcp", "openapi", "config", "version", "ready", "doctor"}

// particular has arguments of commands that plausible cannot derive.
var particular = map[string][]string{
	"trigger":         {"sms", "--sms-secret=x", "--base-url=http://127.0.0.1:1"},
	"listen":          {"--address=127.0.0.1:0"},
	"org sign-in":     {"acme", "--second-factor=required"},
	"channel connect": {"sms", "--org=acme", "--address=+14155550100"},
	"key create":      {"--org=acme", "--service=helpdesk", "--environment=live", "--name=Report", "--level=read_only"},
	"fleet import":    {"-", "--org=acme", "--environment=live"},
	"fleet trigger":   {"zone.created", "--org=acme"},
	"sla set":         {"--org=acme", "--priority=urgent", "--first-response=15m"},
	"inbound route":   {"00000000-0000-7000-8000-000000000000", "--org=acme"},
	"ready":           {"http://127.0.0.1:1"},
}

// eachCommand calls fn with each command and valid arguments.
func eachCommand(t *testing.T, fn func(path string, command *kong.Node, args []string)) {
	t.Helper()
	parser, err := kong.New(new(commands))
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Leaves(false) {
		path := strings.TrimPrefix(command.Path(), parser.Model.Name+" ")
		args, known := particular[path]
		if !known {
			args = plausible(command)
		}
		fn(path, command, append(strings.Fields(path), args...))
	}
}

// plausible returns values for a command's required flags and arguments.
func plausible(command *kong.Node) []string {
	value := func(v *kong.Value) string {
		if v.Enum != "" {
			return v.EnumSlice()[0]
		}
		return "x@example.com"
	}
	var args []string
	for _, p := range command.Positional {
		args = append(args, value(p))
	}
	for _, f := range command.Flags {
		if f.Required {
			args = append(args, "--"+f.Name+"="+value(f.Value))
		}
	}
	return args
}

// TestOnlyTheseCreateDatabases: in an empty folder every other command fails with the
// path of the missing database and the flag to name another, and leaves the folder empty.
func TestOnlyTheseCreateDatabases(t *testing.T) {
	dbtest.OnlySQLite(t)
	backups := someBackup(t)
	eachCommand(t, func(path string, command *kong.Node, args []string) {
		if path == "restore" {
			args = []string{"restore", backups}
		}
		if got, want := createsDatabase(command), slices.Contains(creators, path); got != want {
			t.Errorf("%s may create a database: %t, want %t", path, got, want)
		}
		folder := t.TempDir()
		t.Chdir(folder)
		if slices.Contains(creators, path) {
			data := "kickstand-data"
			if path == "demo" {
				data = demoFolder
			}
			creates(t, args, filepath.Join(data, "kickstand.db"))
			return
		}
		ctx := t.Context()
		if path == "listen" {
			over, cancel := context.WithCancel(ctx)
			cancel()
			ctx = over
		}
		var out, trouble bytes.Buffer
		err := run(ctx, args, noEnvironment, strings.NewReader("{}"), &out, &trouble)
		if slices.Contains(withoutDatabase, path) {
			if path == "doctor" && !strings.Contains(out.String(), filepath.Join("kickstand-data", "kickstand.db")) {
				t.Errorf("the doctor does not name the database: %s", &out)
			}
		} else {
			namesDatabase(t, path, err, filepath.Join("kickstand-data", "kickstand.db"))
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%s left %v (%v)", path, left, err)
		}
	})
}

// someBackup returns a folder with a backup, which has its key.
func someBackup(t *testing.T) (folder string) {
	t.Helper()
	data, folder := "--data="+t.TempDir(), t.TempDir()
	for _, args := range [][]string{{"org", "create", "--name=Acme"}, {"backup", folder, "--with-key"}} {
		if err := run(t.Context(), append(args, data), noEnvironment, nil, io.Discard, t.Output()); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestRestoreFromNoFolder: a wrong path is not created.
func TestRestoreFromNoFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	err := run(t.Context(), []string{"restore", "backup"}, noEnvironment, nil, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "backup") || exists("backup") || exists("kickstand-data") {
		t.Errorf("%v; folder made: %t, data folder made: %t", err, exists("backup"), exists("kickstand-data"))
	}
}

// namesDatabase checks the error of a command without a database.
func namesDatabase(t *testing.T, path string, err error, database string) {
	t.Helper()
	for _, want := range []string{database, "--database-url", "KICKSTAND_DATABASE_URL"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %s", path, err, want)
		}
	}
}

// creates runs a command until the database file exists.
func creates(t *testing.T, args []string, database string) {
	t.Helper()
	if args[0] == "serve" || args[0] == "demo" {
		args = append(args, "--listen=127.0.0.1:0")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, args, noEnvironment, nil, t.Output(), t.Output()) }()
	for range poll(t, 30*time.Second) {
		if exists(database) {
			break
		}
	}
	if args[0] == "serve" || args[0] == "demo" {
		cancel()
	}
	err := <-ended
	cancel()
	if err != nil || !exists(database) {
		t.Errorf("%v: %v; database made: %t", args, err, exists(database))
	}
}

// TestNoTablesAreMade: no other command creates tables in an empty database, or in
// another program's.
func TestNoTablesAreMade(t *testing.T) {
	url := dbtest.URL(t)
	d := dbtest.Open(t, url)
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "DROP TABLE schema_migrations")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	at := strings.TrimPrefix(url, "sqlite:")
	if _, after, ok := strings.Cut(at, "@"); ok { // without credentials and parameters
		at, _, _ = strings.Cut(after, "?")
	}
	eachCommand(t, func(path string, _ *kong.Node, args []string) {
		if slices.Contains(creators, path) || slices.Contains(withoutDatabase, path) {
			return
		}
		folder := t.TempDir()
		t.Chdir(folder)
		err := run(t.Context(), append(args, "--database-url="+url), noEnvironment, strings.NewReader("{}"), io.Discard, io.Discard)
		namesDatabase(t, path, err, at)
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%s left %v (%v)", path, left, err)
		}
	})
	if state, err := d.Inspect(t.Context()); err != nil || state.Version != 0 {
		t.Errorf("schema %d (%v), want none", state.Version, err)
	}
}

// TestKeyOfAnotherFolder: a database in another folder does not get a new secret key,
// which could not open its secrets.
func TestKeyOfAnotherFolder(t *testing.T) {
	url := dbtest.URL(t)
	folder := t.TempDir()
	t.Chdir(folder)
	err := run(t.Context(), []string{"org", "list", "--database-url=" + url}, noEnvironment, nil, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "secret key") {
		t.Errorf("%v, want an error about the secret key", err)
	}
	if exists("kickstand-data") {
		t.Error("a data folder was made")
	}
}

// TestCommandsFindDemo: without configuration, commands use a running demo; a database in
// the folder, or a named one, comes first.
func TestCommandsFindDemo(t *testing.T) {
	dbtest.OnlySQLite(t)
	folder := t.TempDir()
	t.Chdir(folder)
	demo := startDemo(t)
	list := func(args ...string) (string, string, error) {
		var out, trouble bytes.Buffer
		err := run(t.Context(), append([]string{"org", "list"}, args...), noEnvironment, nil, &out, &trouble)
		return out.String(), trouble.String(), err
	}
	if out, _, err := list(); err != nil || !strings.Contains(out, "demo-wheels") {
		t.Errorf("beside the demo: %v, %s", err, out)
	}
	var found bytes.Buffer
	if err := run(t.Context(), []string{"inbound", "list", "--channel=sms"}, noEnvironment, nil, &found, t.Output()); err != nil || !strings.Contains(found.String(), "+14155550171") {
		t.Errorf("inbound list beside the demo: %v, %s", err, &found)
	}
	_, _, err := list("--data=elsewhere")
	namesDatabase(t, "org list", err, filepath.Join("elsewhere", "kickstand.db"))

	for _, args := range [][]string{{"org", "create", "--name=Another"}, {"migrate"}} {
		if err := run(t.Context(), args, noEnvironment, nil, io.Discard, t.Output()); err != nil {
			t.Fatal(err)
		}
		if own, want := exists("kickstand-data"), args[0] == "migrate"; own != want {
			t.Errorf("%v made a data folder: %t, want %t", args, own, want)
		}
	}
	out, note, err := list()
	if err != nil || strings.Contains(out, "demo-wheels") || strings.Contains(out, "another") || !strings.Contains(note, "--config=") {
		t.Errorf("with a database of the folder's own: %v, %s%s", err, out, note)
	}
	demo.stop()
	if err := os.RemoveAll("kickstand-data"); err != nil {
		t.Fatal(err)
	}
	_, _, err = list()
	namesDatabase(t, "org list", err, filepath.Join("kickstand-data", "kickstand.db"))
}
