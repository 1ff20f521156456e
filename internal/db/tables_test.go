package db_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

func TestTables(t *testing.T) {
	onEachEngine(t, func(t *testing.T, rawURL string) {
		d := dbtest.Open(t, rawURL)
		if _, err := db.MigrateScripts(t.Context(), d, `
			CREATE TABLE z (id TEXT PRIMARY KEY) WITHOUT ROWID;
			CREATE TABLE a (z_id TEXT NOT NULL REFERENCES z (id), n BIGINT NOT NULL, body BLOB, flag BOOLEAN NOT NULL, x DOUBLE PRECISION,
				PRIMARY KEY (n, z_id)) WITHOUT ROWID;`); err != nil {
			t.Fatal(err)
		}
		got, err := d.Tables(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const want = "[{z [{id text false}] [id]} {a [{z_id text false} {n integer false} {body bytes true} {flag boolean false} {x float true}] [n z_id]}]"
		if fmt.Sprint(got) != want {
			t.Errorf("got  %v\nwant %s", got, want)
		}
	})
}

// Litestream adds tables, one of them without a primary key. They are not copied.
func TestTablesOfLitestream(t *testing.T) {
	d := dbtest.Open(t, emptySQLite(t))
	if _, err := db.MigrateScripts(t.Context(), d, `
		CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER);
		CREATE TABLE _litestream_lock (id INTEGER);`); err != nil {
		t.Fatal(err)
	}
	if tables, err := d.Tables(t.Context()); err != nil || len(tables) != 0 {
		t.Errorf("got %v, %v, want no tables", tables, err)
	}
}

// A database is used by nobody while rows are copied into it.
func TestCopyMarksDatabase(t *testing.T) {
	onEachEngine(t, func(t *testing.T, rawURL string) {
		d := dbtest.Open(t, rawURL)
		newest, err := db.Fleet.Newest()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.BeginCopy(t.Context(), db.Fleet, newest+1, "x"); !errors.Is(err, db.ErrNewerSchema) {
			t.Errorf("a newer schema: got %v", err)
		}
		for range 2 {
			if err := d.BeginCopy(t.Context(), db.Fleet, newest-1, "backup 1"); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.BeginCopy(t.Context(), db.Fleet, newest-1, "backup 2"); !errors.Is(err, db.ErrUnfinishedCopy) {
			t.Errorf("another source: got %v", err)
		}
		if state, err := d.Inspect(t.Context()); err != nil || state.Version != newest-1 {
			t.Errorf("got version %d, %v, want %d", state.Version, err, newest-1)
		}
		if _, err := d.Migrate(t.Context(), db.Fleet); !errors.Is(err, db.ErrUnfinishedCopy) {
			t.Errorf("a server starts: got %v", err)
		}
		if err := d.Write(t.Context(), func(tx *db.Tx) error { return tx.SetCopied(t.Context(), "rides", db.Copied{Rows: 7, Last: "[1]"}) }); err != nil {
			t.Fatal(err)
		}
		if c, err := d.Copied(t.Context(), "rides"); err != nil || c != (db.Copied{Rows: 7, Last: "[1]"}) {
			t.Errorf("progress: got %v, %v", c, err)
		}
		if err := d.FinishCopy(t.Context(), db.Fleet, func(*db.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if done, err := d.Migrate(t.Context(), db.Fleet); err != nil || len(done) != 0 {
			t.Errorf("afterwards: migrated %v, %v", done, err)
		}
		if state, err := d.Inspect(t.Context()); err != nil || state.Version != newest {
			t.Errorf("finished: version %d, %v, want %d", state.Version, err, newest)
		}
		if err := d.BeginCopy(t.Context(), db.Fleet, newest, "backup 1"); err == nil {
			t.Error("a copy into a database with tables begins")
		}
	})
}

// Each table of both schemas is the same on both engines, so that rows can be copied.
func TestTablesOfSchemas(t *testing.T) {
	types := []db.Type{db.TextType, db.IntegerType, db.FloatType, db.BooleanType, db.BytesType}
	for _, schema := range []db.Schema{db.Helpdesk, db.Fleet} {
		onEachEngine(t, func(t *testing.T, rawURL string) {
			d := dbtest.Open(t, rawURL)
			if _, err := d.Migrate(t.Context(), schema); err != nil {
				t.Fatal(err)
			}
			tables, err := d.Tables(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(tables) < 10 {
				t.Fatalf("found only %d tables", len(tables))
			}
			for _, table := range tables {
				if len(table.Key) == 0 {
					t.Errorf("%s has no primary key, by which its rows can be copied in order", table.Name)
				}
				for _, c := range table.Columns {
					if !slices.Contains(types, c.Type) && table.Name != "search_docs" {
						t.Errorf("%s.%s: values of type %s cannot be copied", table.Name, c.Name, c.Type)
					}
				}
			}
		})
	}
}
