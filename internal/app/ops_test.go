package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/ops"
)

// openEmpty opens the program over empty databases.
func openEmpty(t *testing.T, databaseURL string) *App {
	t.Helper()
	a, err := Open(t.Context(), Config{BaseURL: "http://localhost", Data: t.TempDir(), DatabaseURL: databaseURL, MailFrom: "desk@example.com", RetryTimeScale: 1}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// insertRow inserts a row with made-up values that are unique by n, except for the given ones.
func insertRow(t *testing.T, d *db.DB, table string, n int, values map[string]any) {
	t.Helper()
	tables, err := d.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(tables, func(has db.Table) bool { return has.Name == table })
	if i < 0 {
		t.Fatalf("there is no table %s", table)
	}
	insertInto(t, d, tables[i], n, values)
}

func insertInto(t *testing.T, d *db.DB, table db.Table, n int, values map[string]any) {
	t.Helper()
	var columns, places []string
	var args []any
	for _, c := range table.Columns {
		v, given := values[c.Name]
		if c.Nullable && !given {
			continue
		}
		if !given {
			switch c.Type {
			case db.IntegerType:
				v = int64(n)
			case db.FloatType:
				v = float64(n)
			case db.BooleanType:
				v = false
			case db.BytesType:
				v = fmt.Append(nil, table.Name, n)
			default:
				v = fmt.Sprint(table.Name, n)
			}
		}
		columns, args = append(columns, c.Name), append(args, v)
		places = append(places, fmt.Sprintf("$%d", len(args)))
	}
	execute(t, d, "INSERT INTO "+table.Name+" ("+strings.Join(columns, ", ")+") VALUES ("+strings.Join(places, ", ")+")", args...)
}

func execute(t *testing.T, d *db.DB, statement string, args ...any) {
	t.Helper()
	if err := d.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), statement, args...); return err }); err != nil {
		t.Fatal(err)
	}
}

// brokenRules returns the names of the rules that verify finds broken.
func brokenRules(t *testing.T, a *App, content bool) (broken, all []string) {
	t.Helper()
	err := a.Verify(t.Context(), content, func(c ops.Check) error {
		all = append(all, c.Database+": "+c.Name)
		if !c.OK() {
			broken = append(broken, c.Database+": "+c.Name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return broken, all
}

// Each rule that verify checks is broken on purpose, and found.
func TestVerifyFindsBrokenRecords(t *testing.T) {
	a := openEmpty(t, dbtest.URL(t))
	if broken, _ := brokenRules(t, a, true); len(broken) > 0 {
		t.Fatalf("in an empty database: %q", broken)
	}
	type row struct {
		d      *db.DB
		table  string
		values map[string]any
	}
	desk, fleet := a.DB, a.Fleet.DB
	execute(t, desk, "DROP INDEX tickets_number")
	execute(t, desk, "DROP INDEX inbound_events_fingerprint")
	execute(t, fleet, "DROP INDEX rides_open_vehicle")
	execute(t, fleet, "DROP INDEX rides_open_customer")
	orphan := map[string]any{"conversation_id": "none", "customer_id": "none", "ticket_id": "none"}
	accepted := map[string]any{"state": "accepted", "fingerprint": []byte("same"), "body_key": strings.Repeat("a", 64)}
	active := map[string]any{"organization_id": "o", "status": "active", "vehicle_id": "v", "customer_id": "c"}
	hook := map[string]any{"id": "hook"}
	for n, r := range []row{
		{desk, "tickets", nil}, {desk, "messages", orphan}, {desk, "conversations", nil}, {desk, "attachments", nil}, {desk, "message_ids", nil},
		{desk, "contact_points", orphan}, {desk, "outbox", nil}, {desk, "ticket_tags", nil}, {desk, "ticket_changes", nil}, {desk, "notices", nil}, {desk, "macro_files", nil}, {desk, "imports", nil}, {desk, "import_records", nil},
		{desk, "inbound_events", accepted}, {desk, "inbound_events", accepted}, {desk, "jobs", map[string]any{"state": int64(2)}},
		{desk, "webhooks", hook}, {desk, "quotas", nil}, {desk, "deliveries", map[string]any{"webhook_id": "hook", "state": int64(0), "is_test": int64(0)}},
		{desk, "delivery_attempts", map[string]any{"webhook_id": "hook"}}, {desk, "pending_replies", map[string]any{"state": "scheduled"}},
		{desk, "mailboxes", nil}, {desk, "mailbox_folders", map[string]any{"connection_id": "none"}},
		{fleet, "rides", active}, {fleet, "rides", active}, {fleet, "vehicles", nil}, {fleet, "zones", nil}, {fleet, "plans", nil}, {fleet, "events", nil}, {fleet, "alert_rules", nil}, {fleet, "alerts", map[string]any{"state": "raised"}},
		{fleet, "tasks", map[string]any{"organization_id": "o", "state": "open", "vehicle_id": "none"}}, {fleet, "task_photos", nil},
	} {
		insertRow(t, r.d, r.table, n+1, r.values)
	}
	execute(t, desk, "UPDATE messages SET ticket_id = 'none'")
	insertRow(t, desk, "messages", 99, map[string]any{"ticket_id": "tickets1", "conversation_id": ""})
	insertRow(t, desk, "messages", 100, map[string]any{"ticket_id": "tickets1", "conversation_id": ""})
	execute(t, desk, "UPDATE messages SET seq = 5 WHERE ticket_id = 'tickets1'")
	execute(t, desk, "UPDATE tickets SET created_at = $1", int64(1)<<52)
	execute(t, desk, "DELETE FROM search_pending")
	if !desk.Postgres() {
		execute(t, desk, "INSERT INTO search_docs (doc) VALUES (7)")
	}
	execute(t, desk, "INSERT INTO audit_heads (organization_id, sequence, hash, key_id, mac) VALUES ('o', 1, $1, 'k', $1)", []byte("x"))
	execute(t, fleet, "INSERT INTO audit_heads (organization_id, sequence, hash, key_id, mac) VALUES ('o', 1, $1, 'k', $1)", []byte("x"))

	broken, all := brokenRules(t, a, false)
	for _, name := range all {
		sound := strings.HasPrefix(name, "fleet_sandbox") || strings.HasSuffix(name, ": storage is undamaged")
		if sound == slices.Contains(broken, name) {
			t.Errorf("%s: broken is %t", name, !sound)
		}
	}
}

// Files that are missing, cut short or altered are found.
func TestVerifyFiles(t *testing.T) {
	a := openEmpty(t, dbtest.URL(t))
	put := func(text string) blob.Ref {
		t.Helper()
		ref, err := a.blobs.Put(t.Context(), strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	d := a.opsDatabases()[0]
	for n, ref := range []blob.Ref{put("good"), put("short"), put("altered"), {Key: strings.Repeat("0", 64), Size: 3}} {
		insertRow(t, a.DB, "attachments", n, map[string]any{"blob_key": ref.Key, "size": ref.Size})
	}
	overwriteBlob(t, a, put("short").Key, "shor")
	overwriteBlob(t, a, put("altered").Key, "alterex")
	store := a.files.(blob.Archive)
	for content, want := range map[bool]int64{false: 2, true: 3} {
		c, err := d.VerifyFiles(context.Background(), store, content)
		if err != nil || c.Records != 4 || c.Broken != want {
			t.Errorf("content %t: got %+v, %v, want %d broken of 4", content, c, err, want)
		}
	}
}

// The bodies of large requests, which are files, count as complete.
func TestVerifyLargeRequest(t *testing.T) {
	a := withDefaultOrganization(t)
	a.mail(t, "1", strings.Repeat("The lock does not open. ", 5000))
	var n int
	if err := a.DB.QueryRow(t.Context(), "SELECT count(*) FROM inbound_events WHERE body_key IS NOT NULL").Scan(&n); err != nil || n != 1 {
		t.Fatalf("%d bodies are files, %v", n, err)
	}
	if broken, _ := brokenRules(t, a, false); len(broken) > 0 {
		t.Errorf("broken: %q", broken)
	}
}

// overwriteBlob replaces the content of a file in the folder of attachments.
func overwriteBlob(t *testing.T, a *App, key, text string) {
	t.Helper()
	path := filepath.Join(a.config.Data, "attachments", key[:2], key[2:])
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
