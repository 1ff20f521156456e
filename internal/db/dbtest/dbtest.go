// Package dbtest opens databases for tests: SQLite in a temporary folder, or a separate
// database on the PostgreSQL server of KICKSTAND_TEST_DATABASE_URL. It migrates a database once
// and then copies it.
//
// With PostgreSQL it skips tests that are about SQLite or run in a bubble of package synctest,
// which allows no real socket: they run without the variable.
package dbtest

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Variable names the environment variable that moves the tests to PostgreSQL.
const Variable = "KICKSTAND_TEST_DATABASE_URL"

// New returns a migrated database, closed and removed at the end of the test.
func New(t testing.TB) *db.DB {
	t.Helper()
	return Open(t, URL(t))
}

// NewSQLite is New on SQLite; elsewhere it skips the test.
func NewSQLite(t testing.TB) *db.DB {
	t.Helper()
	return Open(t, SQLiteURL(t))
}

// NewFleet returns a database of one environment of the fleet, migrated, closed
// and removed at the end of the test.
func NewFleet(t testing.TB) *db.DB {
	t.Helper()
	return Open(t, urlOf(t, db.Fleet))
}

// NewFleetSQLite is NewFleet on SQLite; elsewhere it skips the test.
func NewFleetSQLite(t testing.TB) *db.DB {
	t.Helper()
	OnlySQLite(t)
	return Open(t, sqliteURL(t, db.Fleet))
}

// Open opens the database at rawURL and closes it at the end of the test.
func Open(t testing.TB, rawURL string) *db.DB {
	t.Helper()
	d, err := db.Open(context.Background(), rawURL, db.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// URL returns the address of a migrated database that only this test uses.
func URL(t testing.TB) string {
	t.Helper()
	return urlOf(t, db.Helpdesk)
}

// FleetURL is [URL] with the fleet's schema.
func FleetURL(t testing.TB) string {
	t.Helper()
	return urlOf(t, db.Fleet)
}

func urlOf(t testing.TB, schema db.Schema) string {
	t.Helper()
	if server := os.Getenv(Variable); server != "" {
		return postgresURL(t, server, schema)
	}
	return sqliteURL(t, schema)
}

// EmptyURL returns the address of a database without tables that only this test uses.
func EmptyURL(t testing.TB) string {
	t.Helper()
	if server := os.Getenv(Variable); server != "" {
		return emptyPostgresURL(t, server)
	}
	return "sqlite:" + filepath.Join(t.TempDir(), "kickstand.db")
}

// migrated are the files that tests get copies of.
var migrated = map[db.Schema]func() ([]byte, error){
	db.Helpdesk: sync.OnceValues(func() ([]byte, error) { return migratedFile(db.Helpdesk) }),
	db.Fleet:    sync.OnceValues(func() ([]byte, error) { return migratedFile(db.Fleet) }),
}

func migratedFile(schema db.Schema) ([]byte, error) {
	dir, err := os.MkdirTemp("", "kickstand-dbtest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "migrated.db")
	if err := migrate("sqlite:"+path, schema); err != nil {
		return nil, err
	}
	return os.ReadFile(path) // closing has merged the write-ahead log into it
}

func migrate(rawURL string, schema db.Schema) error {
	ctx := context.Background()
	d, err := db.Open(ctx, rawURL, db.Options{})
	if err != nil {
		return err
	}
	_, err = d.Migrate(ctx, schema)
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// SQLiteURL returns the address of a migrated SQLite database of this test;
// elsewhere it skips the test.
func SQLiteURL(t testing.TB) string {
	t.Helper()
	OnlySQLite(t)
	return sqliteURL(t, db.Helpdesk)
}

// OnlySQLite skips the test when the tests are moved to PostgreSQL. Within a bubble
// that would skip only the rest of the bubble.
func OnlySQLite(t testing.TB) {
	t.Helper()
	if os.Getenv(Variable) != "" {
		t.Skip("only on SQLite")
	}
}

// Hold has every deletion of a row of a table with an id fail from now on.
func Hold(t testing.TB, d *db.DB, table, id string) {
	t.Helper()
	statements := []string{"CREATE TRIGGER held BEFORE DELETE ON " + table + " WHEN OLD.id = '" + id + "' BEGIN SELECT RAISE(ABORT, 'held'); END"}
	if d.Postgres() {
		statements = []string{
			"CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''held''; END'",
			"CREATE TRIGGER held BEFORE DELETE ON " + table + " FOR EACH ROW WHEN (OLD.id = '" + id + "') EXECUTE FUNCTION held()",
		}
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(t.Context(), statement); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Release undoes [Hold] on a table.
func Release(t testing.TB, d *db.DB, table string) {
	t.Helper()
	statement := "DROP TRIGGER held"
	if d.Postgres() {
		statement += " ON " + table
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), statement); return err }); err != nil {
		t.Fatal(err)
	}
}

func sqliteURL(t testing.TB, schema db.Schema) string {
	t.Helper()
	data, err := migrated[schema]()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kickstand.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path
}

// postgresURL copies the migrated template, making it first if no process has.
// The template's name holds a digest of the migrations, so that it can serve
// every test binary, and a changed schema gets a new one.
func postgresURL(t testing.TB, server string, schema db.Schema) string {
	t.Helper()
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("%s: %v", Variable, err)
	}
	defer admin.Close(ctx)
	digest, err := schema.Digest()
	if err != nil {
		t.Fatal(err)
	}
	template := "kickstand_template_" + digest[:16]
	name := "kickstand_test_" + strings.ReplaceAll(uuid.NewString(), "-", "")

	run := func(format string, args ...any) {
		t.Helper()
		if _, err := admin.Exec(ctx, fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	run("SELECT pg_advisory_lock(7226374)")
	var exists bool
	if err := admin.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", template).Scan(&exists); err != nil {
		t.Fatal(err)
	}
	if !exists {
		building := template + "_building"
		run("DROP DATABASE IF EXISTS %s", building)
		run("CREATE DATABASE %s", building)
		if err := migrate(withDatabase(t, server, building), schema); err != nil {
			t.Fatal(err)
		}
		run("ALTER DATABASE %s RENAME TO %s", building, template)
	}
	// Copying its files is twice as fast as writing their pages into the log.
	run("CREATE DATABASE %s TEMPLATE %s STRATEGY FILE_COPY", name, template)
	run("SELECT pg_advisory_unlock(7226374)")
	dropAfter(t, server, name)
	return withDatabase(t, server, name)
}

func emptyPostgresURL(t testing.TB, server string) string {
	t.Helper()
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("%s: %v", Variable, err)
	}
	defer admin.Close(ctx)
	name := "kickstand_test_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	dropAfter(t, server, name)
	return withDatabase(t, server, name)
}

// dropAfter drops a database at the end of the test.
func dropAfter(t testing.TB, server, name string) {
	t.Cleanup(func() {
		ctx := context.Background()
		admin, err := pgx.Connect(ctx, server)
		if err != nil {
			t.Error(err)
			return
		}
		defer admin.Close(ctx)
		if _, err := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
}

func withDatabase(t testing.TB, server, name string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("%s: %v", Variable, err)
	}
	u.Path = "/" + name
	return u.String()
}
