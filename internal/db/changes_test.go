package db_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// A poller notices commits of this process at once, of another process within two seconds, and
// nothing else.
func TestChanges(t *testing.T) {
	url := dbtest.SQLiteURL(t)
	synctest.Test(t, func(t *testing.T) {
		open := func() *db.DB {
			d, err := db.Open(t.Context(), url, db.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			return d
		}
		ours, theirs := open(), open()
		write := func(d *db.DB, query string) {
			t.Helper()
			if err := d.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), query); return err }); err != nil {
				t.Fatal(err)
			}
		}
		changes := ours.Changes()
		if !changes.Any(t.Context()) {
			t.Error("the first look is left out")
		}
		if changes.Any(t.Context()) {
			t.Error("there is a change without a commit")
		}
		write(ours, "CREATE TABLE seen (n INTEGER)")
		if !changes.Any(t.Context()) {
			t.Error("a commit of ours is missed")
		}
		time.Sleep(2 * time.Second)
		changes.Any(t.Context()) // the same commit, as seen by the remote counter
		write(theirs, "INSERT INTO seen VALUES (2)")
		time.Sleep(2 * time.Second)
		if !changes.Any(t.Context()) {
			t.Error("a commit of another process is missed")
		}
		if err := ours.Read(t.Context(), func(tx *db.Tx) error {
			_, err := db.One(t.Context(), tx, func(row db.Row) (n int, err error) { return n, row.Scan(&n) }, "SELECT count(*) FROM seen")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if changes.Any(t.Context()) {
			t.Error("reading is a change")
		}
		if err := ours.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if !changes.Any(t.Context()) {
			t.Error("a database that fails has no changes")
		}
	})
}

// On PostgreSQL every call reports a change.
func TestChangesOfPostgres(t *testing.T) {
	d := dbtest.New(t)
	changes := d.Changes()
	changes.Any(t.Context())
	if got := changes.Any(t.Context()); got != d.Postgres() {
		t.Errorf("got %t", got)
	}
}
