package db_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// onEachEngine runs test on an empty SQLite database, and on an empty one of
// PostgreSQL when there is a server.
func onEachEngine(t *testing.T, test func(t *testing.T, rawURL string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, emptySQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, emptyPostgres(t)) })
}

func emptySQLite(t *testing.T) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "test.db")
}

func emptyPostgres(t *testing.T) string {
	t.Helper()
	needPostgres(t)
	rawURL := dbtest.URL(t)
	d := dbtest.Open(t, rawURL)
	write(t, d, "DROP SCHEMA public CASCADE")
	write(t, d, "CREATE SCHEMA public")
	return rawURL
}

func texts(t testing.TB, d *db.DB, query string) []string {
	t.Helper()
	list, err := db.All(t.Context(), d, func(r db.Row) (text string, err error) {
		err = r.Scan(&text)
		return text, err
	}, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return list
}

// schema describes everything in the database, so that two can be compared.
func schema(t testing.TB, d *db.DB) []string {
	t.Helper()
	if !d.Postgres() {
		return texts(t, d, "SELECT type || ' ' || name || ': ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1")
	}
	return slices.Concat(
		texts(t, d, `SELECT table_name || '.' || column_name || ': ' || data_type || ' ' || is_nullable || ' ' ||
			coalesce(column_default, '') || ' ' || coalesce(collation_name, '')
			FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1`),
		texts(t, d, "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"),
		texts(t, d, `SELECT conrelid::regclass || ': ' || pg_get_constraintdef(oid)
			FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1`))
}

// A database migrated version by version has the same schema as a new one.
func TestMigrateStepByStep(t *testing.T) {
	scripts, err := db.Helpdesk.Scripts()
	if err != nil {
		t.Fatal(err)
	}
	for engine, empty := range map[string]func(*testing.T) string{"sqlite": emptySQLite, "postgres": emptyPostgres} {
		t.Run(engine, func(t *testing.T) {
			stepwise, once := empty(t), dbtest.Open(t, empty(t))
			for n := range scripts {
				d, err := db.Open(t.Context(), stepwise, db.Options{})
				if err != nil {
					t.Fatal(err)
				}
				done, err := db.MigrateScripts(t.Context(), d, scripts[:n+1]...)
				if err != nil || len(done) != 1 {
					t.Fatalf("version %d: applied %v, %v, want one", n+1, done, err)
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
			}
			done, err := once.Migrate(t.Context(), db.Helpdesk)
			if err != nil || len(done) != len(scripts) {
				t.Fatalf("at once: applied %d, %v, want %d", len(done), err, len(scripts))
			}
			if done, err := once.Migrate(t.Context(), db.Helpdesk); err != nil || len(done) != 0 {
				t.Errorf("again: applied %v, %v, want none", done, err)
			}
			updated := dbtest.Open(t, stepwise)
			for d, want := range map[*db.DB]bool{updated: false, once: true} {
				state, err := d.Inspect(t.Context())
				if refuses := state.Floor == state.Version; err != nil || refuses != want {
					t.Errorf("got %+v, %v; a new database refuses older programs, an updated one does not", state, err)
				}
			}
			got, want := schema(t, updated), schema(t, once)
			if !slices.Equal(got, want) {
				t.Errorf("step by step:\n%s\nat once:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// Rides from before the tiles are found by place like later ones.
func TestRidesBeforeTiles(t *testing.T) {
	scripts, err := db.Fleet.Scripts()
	if err != nil {
		t.Fatal(err)
	}
	onEachEngine(t, func(t *testing.T, rawURL string) {
		d := dbtest.Open(t, rawURL)
		if _, err := db.MigrateScripts(t.Context(), d, scripts[:3]...); err != nil {
			t.Fatal(err)
		}
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			for id, cell := range map[string]any{"ride_1": 7, "ride_2": nil} {
				_, err := tx.Exec(t.Context(), `INSERT INTO rides (organization_id, id, subaccount_id, revision, status, trip_type, vehicle_id, vehicle_type_id, payment_status,
					start_cell, started_at, ended_at, total_amount, duration_seconds, updated_at, doc)
					VALUES ('org_1', $1, 'sub_1', 3, 'completed', 'rider', 'veh_1', 'vt_1', 'paid', $2, 10, 20, 100, 60, 30, '{}')`, id, cell)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if done, err := db.MigrateScripts(t.Context(), d, scripts...); err != nil || len(done) != len(scripts)-3 {
			t.Fatalf("got %v, %v, want the rest of the migrations", done, err)
		}
		got, err := db.All(t.Context(), d, func(row db.Row) (got [6]any, err error) {
			err = row.Scan(&got[0], &got[1], &got[2], &got[3], &got[4], &got[5])
			return got, err
		}, "SELECT id, start_cell, revision, payment_status, ended_at, total_amount FROM untiled_rides")
		if want := [6]any{"ride_1", int64(7), int64(3), "paid", int64(20), int64(100)}; err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	})
}

// Audit entries from before the chain stay in front of it, in order.
func TestAuditLogBeforeChain(t *testing.T) {
	for _, of := range []db.Schema{db.Helpdesk, db.Fleet} {
		scripts, err := of.Scripts()
		if err != nil {
			t.Fatal(err)
		}
		before := slices.IndexFunc(scripts, func(s string) bool { return strings.Contains(s, "CREATE TABLE audit_entries") })
		onEachEngine(t, func(t *testing.T, rawURL string) {
			d := dbtest.Open(t, rawURL)
			if _, err := db.MigrateScripts(t.Context(), d, scripts[:before]...); err != nil {
				t.Fatal(err)
			}
			for id, organization := range map[string]string{"1": "o1", "2": "o2", "3": "o1"} {
				write(t, d, `INSERT INTO audit_log (id, organization_id, service, environment, at, action, actor, target_id, target, ip, user_agent, request_id, changes)
					VALUES ('`+id+`', '`+organization+`', 'fleet', 'test', 7, 'api_key.updated', '{"type":"user","id":"u1","email":"\u00e4@example.com"}', 'k1',
					'{"type":"api_key","id":"k1","name":"Ex\"port","partial_key":"abcd1234"}', '192.0.2.1', 'curl/8', 'r1', '{"name":{"from":"A","to":"B"}}')`)
			}
			write(t, d, `INSERT INTO audit_log (id, organization_id, service, environment, at, action, actor, target_id, target, ip, user_agent, request_id, changes)
				VALUES ('4', 'o1', 'fleet', 'test', 7, 'sandbox.reset', '{"type":"system"}', '', '{"type":"sandbox","id":"","name":""}', '', '', '', '{}')`)
			if _, err := db.MigrateScripts(t.Context(), d, scripts[:before+1]...); err != nil {
				t.Fatal(err)
			}
			got := texts(t, d, `SELECT organization_id || ' ' || sequence || ' ' || id || ' ' || at || ' ' || action || ' ' || service || ' ' || environment || ' ' || actor_type || ' ' ||
				actor_id || ' ' || actor_email || ' ' || target_type || ' ' || target_id || ' ' || target_name || ' ' || partial_key || ' ' || address || ' ' || user_agent || ' ' ||
				request_id || ' ' || changes || ' ' || details || ' ' || key_id || length(hash) || length(previous) FROM audit_entries ORDER BY organization_id, sequence`)
			const key = ` 7 api_key.updated fleet test user u1 ä@example.com api_key k1 Ex"port abcd1234 192.0.2.1 curl/8 r1 {"name":{"from":"A","to":"B"}} {} 00`
			want := []string{"o1 -2 1" + key, "o1 -1 3" + key, "o1 0 4 7 sandbox.reset fleet test system   sandbox       {} {} 00", "o2 0 2" + key}
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// Both engines have the same tables, columns and indexes, except for the full-text indexes and the
// numbers of jobs, for which PostgreSQL has a sequence.
func TestEnginesHaveSameSchema(t *testing.T) {
	needPostgres(t)
	names := func(d *db.DB) []string {
		t.Helper()
		if _, err := d.Migrate(t.Context(), db.Helpdesk); err != nil {
			t.Fatal(err)
		}
		var list []string
		if d.Postgres() {
			// Indexes of constraints have generated names.
			list = slices.Concat(
				texts(t, d, `SELECT table_name || '.' || column_name || CASE is_nullable WHEN 'NO' THEN ' NOT NULL' ELSE '' END
					FROM information_schema.columns WHERE table_schema = 'public'`),
				texts(t, d, `SELECT 'index ' || indexname FROM pg_indexes WHERE schemaname = 'public'
					AND NOT EXISTS (SELECT FROM pg_constraint WHERE conname = indexname)`))
		} else {
			// The columns of a primary key are NOT NULL without saying so.
			list = slices.Concat(
				texts(t, d, `SELECT t.name || '.' || c.name || CASE WHEN c."notnull" OR c.pk > 0 THEN ' NOT NULL' ELSE '' END
					FROM sqlite_schema AS t, pragma_table_info(t.name) AS c WHERE t.type = 'table'`),
				texts(t, d, "SELECT 'index ' || name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"))
		}
		list = slices.DeleteFunc(list, func(name string) bool {
			return strings.HasPrefix(name, "ticket_words") || strings.HasPrefix(name, "search_docs.words") || name == "index search_docs_words" ||
				strings.HasPrefix(name, "job_numbers.") || strings.HasPrefix(name, "message_numbers.")
		})
		slices.Sort(list)
		return list
	}
	lite, pg := names(dbtest.Open(t, emptySQLite(t))), names(dbtest.Open(t, emptyPostgres(t)))
	for _, name := range lite {
		if !slices.Contains(pg, name) {
			t.Errorf("%s: on SQLite, not on PostgreSQL", name)
		}
	}
	for _, name := range pg {
		if !slices.Contains(lite, name) {
			t.Errorf("%s: on PostgreSQL, not on SQLite", name)
		}
	}
}

// Several processes start at once on a new database.
func TestMigrateTogether(t *testing.T) {
	scripts, err := db.Helpdesk.Scripts()
	if err != nil {
		t.Fatal(err)
	}
	onEachEngine(t, func(t *testing.T, rawURL string) {
		var mu sync.Mutex
		var versions []int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				d, err := db.Open(t.Context(), rawURL, db.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				defer d.Close()
				done, err := d.Migrate(t.Context(), db.Helpdesk)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, m := range done {
					versions = append(versions, m.Version)
				}
			})
		}
		wg.Wait()
		slices.Sort(versions)
		if len(versions) != len(scripts) || len(slices.Compact(versions)) != len(scripts) {
			t.Errorf("applied versions %v, want each of %d once", versions, len(scripts))
		}
	})
}

// TestMigrateBesideNewer: a program runs on a database that a newer version has expanded, and
// ends when a newer version announces a contract.
func TestMigrateBesideNewer(t *testing.T) {
	onEachEngine(t, func(t *testing.T, rawURL string) {
		one := "CREATE TABLE a (id TEXT)"
		two := "ALTER TABLE a ADD COLUMN other TEXT"
		three := "-- Version 2 does not read it any more.\n-- contract: 2\nALTER TABLE a DROP COLUMN id"
		old, middle, latest := dbtest.Open(t, rawURL), dbtest.Open(t, rawURL), dbtest.Open(t, rawURL)
		migrate := func(d *db.DB, want int, scripts ...string) {
			t.Helper()
			if done, err := db.MigrateScripts(t.Context(), d, scripts...); err != nil || len(done) != want {
				t.Fatalf("applied %v, %v, want %d", done, err, want)
			}
		}
		migrate(old, 1, one)
		migrate(middle, 1, one, two)
		again := dbtest.Open(t, rawURL)
		migrate(again, 0, one) // restarted beside it
		for name, d := range map[string]*db.DB{"old": old, "restarted": again, "middle": middle} {
			if err := d.CheckFence(t.Context()); err != nil {
				t.Errorf("%s, beside an expanded schema: %v", name, err)
			}
		}
		before := schema(t, old)
		ended := make(chan error, 1)
		go func() {
			for err := old.CheckFence(t.Context()); ; err = old.CheckFence(t.Context()) {
				if err != nil {
					ended <- err
					return
				}
			}
		}()
		migrated := make(chan error, 1)
		go func() {
			_, err := db.MigrateScripts(t.Context(), latest, one, two, three)
			migrated <- err
		}()
		if err := <-ended; !errors.Is(err, db.ErrNewerSchema) {
			t.Errorf("the old version got %v, want ErrNewerSchema", err)
		}
		begun := time.Now()
		second, beside := make(chan error, 1), dbtest.Open(t, rawURL)
		go func() {
			_, err := db.MigrateScripts(t.Context(), beside, one, two, three)
			second <- err
		}()
		if old.Postgres() { // the contract waits until the old version must have noticed
			if got := schema(t, middle); !slices.Equal(got, before) {
				t.Errorf("the schema changed as soon as the contract was announced")
			}
		}
		wantUnavailable(t, "a write by the old version", tryWrite(old, "INSERT INTO a (id) VALUES ('x')"))
		wantUnavailable(t, "a read by the old version", old.QueryRow(t.Context(), "SELECT 1").Scan(new(int)))
		if err := old.ProbeWrite(t.Context()); db.FailureReason(err) != "a newer version of Kickstand has removed what this version uses" {
			t.Errorf("a probe by the old version: %v", err)
		}
		if err := errors.Join(<-migrated, <-second); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); old.Postgres() && waited < db.FencePause {
			t.Errorf("a second process has migrated after %s", waited)
		}
		if err := middle.CheckFence(t.Context()); err != nil {
			t.Errorf("version 2, beside the contract: %v", err)
		}
		after := schema(t, latest)
		done, err := db.MigrateScripts(t.Context(), dbtest.Open(t, rawURL), one)
		if !errors.Is(err, db.ErrNewerSchema) || len(done) != 0 {
			t.Errorf("got %v, %v, want ErrNewerSchema", done, err)
		}
		if got := schema(t, latest); !slices.Equal(got, after) {
			t.Errorf("touched: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(after, "\n"))
		}
	})
}

// TestMigrationDoesNotBlock: a migration that waits for a table in use lets others pass, and
// tries again.
func TestMigrationDoesNotBlock(t *testing.T) {
	d := dbtest.Open(t, emptyPostgres(t))
	one := "CREATE TABLE a (id TEXT)"
	if _, err := db.MigrateScripts(t.Context(), d, one); err != nil {
		t.Fatal(err)
	}
	reading, done := make(chan struct{}), make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		d.Read(t.Context(), func(tx *db.Tx) error {
			err := tx.QueryRow(t.Context(), "SELECT count(*) FROM a").Scan(new(int))
			close(reading)
			<-done
			return err
		})
	})
	<-reading
	migrated := make(chan error, 1)
	go func() {
		_, err := db.MigrateScripts(t.Context(), d, one, "ALTER TABLE a ADD COLUMN other TEXT")
		migrated <- err
	}()
	eventually(t, 10*time.Second, "the migration waits", func() bool {
		var waiting int
		err := d.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'a'::regclass").Scan(&waiting)
		return err == nil && waiting == 1
	})
	write(t, d, "INSERT INTO a (id) VALUES ('behind it')")
	close(done)
	reader.Wait()
	if err := <-migrated; err != nil {
		t.Error(err)
	}
}

func TestMigrateFailure(t *testing.T) {
	onEachEngine(t, func(t *testing.T, rawURL string) {
		d := dbtest.Open(t, rawURL)
		good := "CREATE TABLE good (id TEXT); INSERT INTO good (id) VALUES ('first');"
		done, err := db.MigrateScripts(t.Context(), d, good,
			"CREATE TABLE half (id TEXT); UPDATE good SET id = 'second'; CREATE TABLE good (id TEXT);", "CREATE TABLE never (id TEXT)")
		if err == nil || !strings.Contains(err.Error(), "migration 0002_script") {
			t.Errorf("got %v, want the migration's name", err)
		}
		if len(done) != 1 || done[0].Version != 1 {
			t.Errorf("applied %v, want version 1", done)
		}
		if got := fmt.Sprint(texts(t, d, "SELECT id FROM good")); got != "[first]" {
			t.Errorf("got rows %s, want [first]", got)
		}
		for _, line := range schema(t, d) {
			if strings.Contains(line, "half") || strings.Contains(line, "never") {
				t.Errorf("left behind: %s", line)
			}
		}
		// The corrected version continues from there.
		done, err = db.MigrateScripts(t.Context(), d, good, "CREATE TABLE half (id TEXT)", "CREATE TABLE never (id TEXT)")
		if err != nil || len(done) != 2 {
			t.Errorf("mended: applied %v, %v, want two", done, err)
		}
	})
}

// A shared migration means the same on both engines.
func TestMigratedTypes(t *testing.T) {
	onEachEngine(t, func(t *testing.T, rawURL string) {
		d := dbtest.Open(t, rawURL)
		_, err := db.MigrateScripts(t.Context(), d, `
			CREATE TABLE things (
				id   TEXT PRIMARY KEY, -- TEXT and BLOB in a comment; so be it
				body BLOB NOT NULL,
				flag BOOLEAN NOT NULL DEFAULT FALSE,
				n    BIGINT NOT NULL DEFAULT 0
			) WITHOUT ROWID;
			CREATE UNIQUE INDEX things_n ON things (n) WHERE flag;
			CREATE INDEX things_order ON things (n DESC, id);`)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"b", "a b", "B", "ab", "ä"} {
			write(t, d, "INSERT INTO things (id, body) VALUES ($1, $2)", id, []byte{0, 255})
		}
		if got := fmt.Sprint(texts(t, d, "SELECT id FROM things WHERE NOT flag AND id >= 'B' ORDER BY id")); got != "[B a b ab b ä]" {
			t.Errorf("got %s, want [B a b ab b ä]", got)
		}
		write(t, d, "UPDATE things SET flag = TRUE WHERE id = 'b'")
		if err := tryWrite(d, "UPDATE things SET flag = TRUE WHERE id = 'B'"); !db.IsUnique(err) {
			t.Errorf("partial unique index: got %v, want a conflict", err)
		}
	})
}

func TestDigest(t *testing.T) {
	a, err := db.Helpdesk.Digest()
	if err != nil || len(a) != 64 {
		t.Errorf("got %q, %v, want 64 hex digits", a, err)
	}
	if _, err := db.Schema("nonesuch").Digest(); err == nil {
		t.Error("an unknown schema: got no error")
	}
	d, _ := openSQLite(t)
	if _, err := d.Migrate(t.Context(), "nonesuch"); err == nil {
		t.Error("an unknown schema: got no error")
	}
}
