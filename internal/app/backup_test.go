package app

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/blob/blobtest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/ops"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// fillTables inserts rows with values of every kind into every table, by way of the catalogue, so
// that a new table is among them.
func fillTables(t *testing.T, a *App) {
	t.Helper()
	for _, d := range []*db.DB{a.DB, a.Fleet.DB, a.Sandbox.DB} {
		tables, err := d.Tables(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			if slices.Contains(copiedDatabases([3]*db.DB{})[0].Derived, table.Name) {
				continue
			}
			for n, odd := range []any{nil, "", "\u2028 <b>\"ü\" \\ 😀\n\t", int64(-1 << 63), 0.1 + 0.2, []byte{0, 255, '\n'}, true} {
				if n > 0 && len(table.Key) == 1 && table.Key[0] == "id" && table.Columns[0].Type == db.IntegerType {
					continue // it has one row
				}
				insertInto(t, d, table, n+1, oddValues(table, n, odd))
			}
		}
	}
}

// oddValues returns values for the columns of a table that take such a value, except those of
// keys, and references to rows of other tables.
func oddValues(table db.Table, n int, odd any) map[string]any {
	values := map[string]any{}
	for _, c := range table.Columns {
		text, isText := odd.(string)
		switch base, refers := strings.CutSuffix(c.Name, "_id"); {
		case slices.Contains(table.Key, c.Name) && !refers:
		case refers && c.Type == db.TextType && !c.Nullable:
			values[c.Name] = fmt.Sprint(base, "s", n+1)
		case refers:
		case odd == nil && c.Nullable:
			values[c.Name] = nil
		case c.Type == db.TextType && isText && text != "":
			values[c.Name] = fmt.Sprint(odd, n)
		case c.Type == db.TextType && isText && c.Nullable:
			values[c.Name] = ""
		}
		switch odd := odd.(type) {
		case float64:
			if c.Type == db.FloatType {
				values[c.Name] = odd
			}
		case []byte:
			if c.Type == db.BytesType {
				values[c.Name] = append([]byte(table.Name), odd...)
			}
		case bool:
			if c.Type == db.BooleanType {
				values[c.Name] = odd
			}
		}
	}
	return values
}

// noProgress ignores the progress.
func noProgress(string, int64, int64) {}

// tableSums returns the numbers of rows and the digests of all tables of a backup.
func tableSums(m ops.Manifest) []string {
	var list []string
	for _, d := range m.Databases {
		for _, t := range d.Tables {
			list = append(list, fmt.Sprint(d.Name, " ", t.Name, " ", t.Rows, " ", t.Digest))
		}
	}
	slices.Sort(list)
	return list
}

// backUp makes a backup in the archive at a URL.
func backUp(t *testing.T, c Config, target string) ops.Manifest {
	t.Helper()
	m, err := Backup(t.Context(), c, BackupOptions{Target: target, WithKey: true, Version: "test", Progress: noProgress}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// otherEngine returns the URL of an empty database of the engine that the tests do not run on; of
// SQLite if there is no PostgreSQL.
func otherEngine(t *testing.T) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "kickstand.db")
}

// emptyDatabase returns the URL of an empty database.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	return dbtest.EmptyURL(t)
}

func configOf(t *testing.T, databaseURL string) Config {
	return Config{BaseURL: "http://localhost", Data: t.TempDir(), DatabaseURL: databaseURL, MailFrom: "desk@example.com", RetryTimeScale: 1}
}

// changedByRestore are the tables that differ after a restore: it holds outgoing work, marks the
// replies, and is recorded in the audit log.
var changedByRestore = []string{"helpdesk outbox", "helpdesk pending_replies", "helpdesk outgoing_hold", "helpdesk audit_entries", "helpdesk audit_heads"}

// Every table of the three databases is backed up, restored and moved, on and to either engine.
// Rows come out as they went in.
func TestEveryTableIsCopied(t *testing.T) {
	c := configOf(t, dbtest.URL(t))
	a, err := Open(t.Context(), c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	fillTables(t, a)
	execute(t, a.DB, "DELETE FROM outgoing_hold")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	target := "file:" + t.TempDir()
	archive, err := blob.OpenArchive(target, blob.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	first := backUp(t, c, target)
	want := tableSums(first)
	if len(want) < 100 {
		t.Fatalf("only %d tables are in the backup", len(want))
	}
	for _, line := range want {
		if strings.Contains(line, " 0 ") && !strings.Contains(line, " outgoing_hold ") {
			t.Errorf("%s: the test fills no rows in", line)
		}
	}

	// Restored: the key comes with it, and outgoing work is held.
	restored := configOf(t, otherEngine(t))
	if err := Restore(t.Context(), restored, RestoreOptions{Archive: archive, Manifest: first, Progress: noProgress}, quiet); err != nil {
		t.Fatal(err)
	}
	// Moved on, and back to where the tests run.
	moved, back := configOf(t, emptyDatabase(t)), configOf(t, otherEngine(t))
	for _, step := range []struct{ from, to Config }{{restored, moved}, {moved, back}} {
		if _, err := Move(t.Context(), step.from, MoveOptions{To: step.to.DatabaseURL, Progress: noProgress}, quiet); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]Config{"restored": restored, "moved": moved, "moved back": back} {
		c.Data = restored.Data // which has the key
		got := tableSums(backUp(t, c, target))
		for i := range want {
			table := strings.Join(strings.Fields(want[i])[:2], " ")
			if got[i] != want[i] && !slices.Contains(changedByRestore, table) {
				t.Errorf("%s: got %s, want %s", name, got[i], want[i])
			}
		}
		d, _, err := openDatabases(t.Context(), c, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if hold, held, err := queue.OutgoingHold(t.Context(), d[0]); err != nil || !held || !hold.Restored {
			t.Errorf("%s: outgoing work is not held: %v, %v", name, hold, err)
		}
		closeAll(d)
	}
}

// A backup in a bucket has only what changed, refuses to be restored when it is damaged, and is not
// restored over other data or without its key.
func TestBackupInBucket(t *testing.T) {
	bucket := blobtest.NewS3(t)
	archive, err := blob.OpenArchive(bucket.URL, blob.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ops.OpenManifest(t.Context(), archive, ""); err == nil {
		t.Error("an empty bucket has a backup")
	}
	c := configOf(t, dbtest.URL(t))
	a, err := Open(t.Context(), c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	fillTables(t, a)
	ref, err := a.blobs.Put(t.Context(), strings.NewReader("an attachment"))
	if err != nil {
		t.Fatal(err)
	}
	execute(t, a.DB, "UPDATE attachments SET blob_key = NULL")
	for _, file := range helpdeskFiles() {
		execute(t, a.DB, "DELETE FROM "+file.Table)
	}
	insertRow(t, a.DB, "attachments", 1, map[string]any{"blob_key": ref.Key, "size": ref.Size})
	first := backUp(t, c, bucket.URL)
	before := bucket.Puts()
	execute(t, a.DB, "UPDATE customers SET name = 'Changed'")
	second := backUp(t, c, bucket.URL)
	if n := bucket.Puts() - before; n != 3 { // the table, the manifest and the key
		t.Errorf("a change of one table stores %d objects, want 3", n)
	}
	if second.Files.Count != 1 || len(second.Files.Missing) != 0 {
		t.Errorf("files: got %+v", second.Files)
	}
	a.Close()

	restore := func(c Config, m ops.Manifest) error {
		return Restore(t.Context(), c, RestoreOptions{Archive: archive, Manifest: m, Progress: noProgress}, quiet)
	}
	if err := restore(c, first); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("over other data: got %v", err)
	}
	newer := first
	newer.Databases = slices.Clone(first.Databases)
	newer.Databases[0].Version = 9999
	if err := restore(configOf(t, emptyDatabase(t)), newer); !errors.Is(err, db.ErrNewerSchema) {
		t.Errorf("of a newer version: got %v", err)
	}
	other := configOf(t, emptyDatabase(t))
	other.SecretKey = seal.NewKey().Encode()
	if err := restore(other, first); err == nil || !strings.Contains(err.Error(), "is not configured") {
		t.Errorf("with another key: got %v", err)
	}
	restored := configOf(t, emptyDatabase(t))
	if err := restore(restored, first); err != nil {
		t.Fatal(err)
	}
	store, err := blob.OpenArchive(restored.blobURL(), blob.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	if size, err := store.Size(t.Context(), ref.Key); err != nil || size != ref.Size {
		t.Errorf("the restored attachment: %d, %v", size, err)
	}

	// Each object is needed: without it the backup is not restored.
	for _, key := range bucket.Keys() {
		if strings.HasSuffix(key, ref.Key) {
			bucket.Delete(key)
		}
	}
	damaged := 0
	if err := ops.VerifyBackup(t.Context(), archive, second, func(c ops.Check) error { damaged += int(c.Broken); return nil }); err != nil || damaged != 1 {
		t.Errorf("a check of a backup without an attachment finds %d damages, %v", damaged, err)
	}
	if err := restore(configOf(t, emptyDatabase(t)), second); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("without an attachment: got %v", err)
	}
	// An unfinished backup does not count.
	bucket.Delete("kickstand/backups/" + second.ID + ".json")
	if m, err := ops.OpenManifest(t.Context(), archive, ""); err != nil || m.ID != first.ID {
		t.Errorf("the newest finished backup: got %s, %v, want %s", m.ID, err, first.ID)
	}
}
