package audit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// define runs DDL statements in one transaction.
func define(t *testing.T, d *db.DB, statements ...string) {
	t.Helper()
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		for _, s := range statements {
			if _, err := tx.Exec(t.Context(), s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// problems verifies one chain, or all if organizationID is empty, and returns a line
// "organization:first bad: problem" for each broken chain and "organization: empty" for
// each empty one.
func problems(t *testing.T, l *audit.Log, organizationID string) string {
	t.Helper()
	v := audit.Verification{}
	if organizationID != "" {
		v.OrganizationID = &organizationID
	}
	var found strings.Builder
	n := 0
	err := l.Verify(t.Context(), v, func(r audit.Report) error {
		switch {
		case r.Empty && r.OK:
			fmt.Fprintf(&found, "%s: empty\n", r.OrganizationID)
		case !r.OK:
			fmt.Fprintf(&found, "%s:%d: %s\n", r.OrganizationID, r.FirstBad, r.Problem)
		}
		if n++; n > 20 {
			return errors.New("the verification does not end")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v after\n%s", err, &found)
	}
	return found.String()
}

// suppress returns the triggers or rules that suppress entries about API keys, and the
// head updates after them.
func suppress(postgres bool) map[string][]string {
	const behind = "NEW.sequence > coalesce((SELECT max(sequence) FROM audit_entries e WHERE e.organization_id = NEW.organization_id), 0)"
	if !postgres {
		return map[string][]string{"trigger": {
			"CREATE TRIGGER x1 BEFORE INSERT ON audit_entries WHEN NEW.action LIKE 'api_key.%' BEGIN SELECT RAISE(IGNORE); END",
			"CREATE TRIGGER x2 BEFORE UPDATE ON audit_heads WHEN " + behind + " BEGIN SELECT RAISE(IGNORE); END",
		}}
	}
	return map[string][]string{
		"trigger": {
			"CREATE FUNCTION f1() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.action LIKE ''api_key.%'' THEN RETURN NULL; END IF; RETURN NEW; END'",
			"CREATE FUNCTION f2() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF " + behind + " THEN RETURN NULL; END IF; RETURN NEW; END'",
			"CREATE TRIGGER x1 BEFORE INSERT ON audit_entries FOR EACH ROW EXECUTE FUNCTION f1()",
			"CREATE TRIGGER x2 BEFORE UPDATE ON audit_heads FOR EACH ROW EXECUTE FUNCTION f2()",
		},
		"rule": {
			"CREATE RULE x1 AS ON INSERT TO audit_entries WHERE NEW.action LIKE 'api_key.%' DO INSTEAD NOTHING",
			"CREATE RULE x2 AS ON UPDATE TO audit_heads WHERE " + behind + " DO INSTEAD NOTHING",
		},
	}
}

// TestAttackTriggerSuppressesEntries: no action goes unrecorded if the database drops
// entries, and a verification names the reason.
func TestAttackTriggerSuppressesEntries(t *testing.T) {
	for kind, attack := range suppress(dbtest.New(t).Postgres()) {
		t.Run(kind, func(t *testing.T) {
			d := dbtest.New(t)
			l := open(d, seal.NewKey())
			record(t, l, 2)
			define(t, d, "CREATE TABLE made (id TEXT PRIMARY KEY)")
			define(t, d, attack...)
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				if _, err := tx.Exec(t.Context(), "INSERT INTO made (id) VALUES ('k1')"); err != nil {
					return err
				}
				return l.RecordTx(t.Context(), tx, audit.Entry{OrganizationID: "o1", Action: "api_key.created"})
			})
			if err == nil || !strings.Contains(err.Error(), "wrote 0 rows instead of 1") {
				t.Errorf("a change whose entry was suppressed: %v", err)
			}
			var made int
			if err := d.QueryRow(t.Context(), "SELECT count(*) FROM made").Scan(&made); err != nil || made != 0 {
				t.Errorf("%d changes without an entry, %v", made, err)
			}
			want := fmt.Sprintf(":0: the database has the %s \"x1\" on audit_entries, the %s \"x2\" on audit_heads, which can hide or suppress entries\n", kind, kind)
			if got := problems(t, l, ""); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			org := "o1"
			err = l.Verify(t.Context(), audit.Verification{OrganizationID: &org, Limit: 10}, func(r audit.Report) error {
				if r.OK || r.OrganizationID != "o1" {
					t.Errorf("in steps: %+v", r)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAttackTriggerSuppressesHeads suppresses only the head update.
func TestAttackTriggerSuppressesHeads(t *testing.T) {
	for kind, attack := range suppress(dbtest.New(t).Postgres()) {
		t.Run(kind, func(t *testing.T) {
			d := dbtest.New(t)
			l := open(d, seal.NewKey())
			record(t, l, 2)
			for _, s := range attack {
				if strings.Contains(s, "f2()") || strings.Contains(s, " x2 ") {
					define(t, d, strings.Replace(s, "NEW.sequence > coalesce", "NEW.sequence >= coalesce", 1))
				}
			}
			if err := l.Record(t.Context(), audit.Entry{OrganizationID: "o1", Action: "test.done"}); err == nil {
				t.Error("a change whose head was suppressed was committed")
			}
		})
	}
}

// TestAttackViewInPlaceOfLog replaces the table of entries by a view that shows all of
// them for now.
func TestAttackViewInPlaceOfLog(t *testing.T) {
	d := dbtest.New(t)
	l := open(d, seal.NewKey())
	record(t, l, 2)
	define(t, d, "ALTER TABLE audit_entries RENAME TO hidden", "CREATE VIEW audit_entries AS SELECT * FROM hidden")
	want := ":0: the database has the view \"audit_entries\" on audit_entries, which can hide or suppress entries\n"
	if got := problems(t, l, ""); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := problems(t, l, "o1"); got != want {
		t.Errorf("of one organization: got %s, want %s", got, want)
	}
	if d.Postgres() {
		return
	}
	define(t, d, "CREATE TRIGGER x3 INSTEAD OF INSERT ON audit_entries BEGIN SELECT 1; END")
	if err := l.Record(t.Context(), audit.Entry{OrganizationID: "o1", Action: "api_key.created"}); err == nil {
		t.Error("a change whose entry went into a view was committed")
	}
}

// TestAttackChainRemovedWhole removes a chain, its head and the record of its start.
func TestAttackChainRemovedWhole(t *testing.T) {
	d := dbtest.New(t)
	l := audit.Open(audit.Config{DB: d, Box: seal.New(seal.NewKey()), Ledger: "helpdesk", Required: "SELECT id FROM organizations"})
	for _, id := range []string{"o1", "o2"} {
		exec(t, d, "INSERT INTO organizations (id, name, slug, plan, created_at, updated_at) VALUES ($1, $1, $1, 'free', 1, 1)", id)
	}
	record(t, l, 2)
	if got := problems(t, l, "o1"); got != "" {
		t.Errorf("before the attack: %s", got)
	}
	exec(t, d, "DELETE FROM audit_entries WHERE organization_id = 'o1'")
	exec(t, d, "DELETE FROM audit_heads WHERE organization_id = 'o1'")
	exec(t, d, "DELETE FROM audit_entries WHERE organization_id = '' AND action = 'audit.chain_started' AND target_id = 'o1'")
	want := ":2: entry 2 is missing; the next one is 3\no1:1: the chain is missing: the creation of the organization was recorded in it\n"
	for _, of := range []string{"o1", ""} {
		if got := problems(t, l, of); got != want {
			t.Errorf("of %q: got %s, want %s", of, got, want)
		}
	}
	// An organization without entries is reported as empty, not as OK.
	if got := problems(t, l, "o3"); got != ":2: entry 2 is missing; the next one is 3\no3: empty\n" {
		t.Errorf("an organization without entries: %s", got)
	}
	// In steps the deployment's chain is left out.
	org := "o1"
	err := l.Verify(t.Context(), audit.Verification{OrganizationID: &org, Limit: 10}, func(r audit.Report) error {
		if r.OK || r.OrganizationID != "o1" || r.FirstBad != 1 {
			t.Errorf("in steps: %+v", r)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	exec(t, d, "DELETE FROM audit_entries")
	exec(t, d, "DELETE FROM audit_heads")
	if got := broken(t, l); got != "o1:1 o2:1" {
		t.Errorf("with all chains removed: %s", got)
	}
}

// TestAttackBlobOrganization stores organization ids as BLOBs, which sort after text: the
// verification must end and report them.
func TestAttackBlobOrganization(t *testing.T) {
	dbtest.OnlySQLite(t)
	for _, tt := range []struct{ attack, want string }{
		{"UPDATE audit_entries SET organization_id = CAST(organization_id AS BLOB) WHERE organization_id = 'o1' AND sequence = 2", ":0 o1:2 o1:0"},
		{"UPDATE audit_entries SET organization_id = CAST(organization_id AS BLOB) WHERE organization_id = 'o2'", ":0 o2:1 o2:0"},
		{"UPDATE audit_heads SET organization_id = CAST(organization_id AS BLOB) WHERE organization_id = 'o1'", ":0 o1:4 o1:0"},
		{"UPDATE audit_entries SET organization_id = x'' WHERE organization_id = '' AND sequence = 6", ":6"},
		{"UPDATE audit_entries SET target_id = CAST(target_id AS BLOB) WHERE organization_id = '' AND target_id = 'o1'", ":2 o1:1 o1:0"},
	} {
		t.Run(tt.attack, func(t *testing.T) {
			d := dbtest.New(t)
			l := open(d, seal.NewKey())
			record(t, l, 3)
			exec(t, d, tt.attack)
			var got []string
			for line := range strings.Lines(problems(t, l, "")) {
				t.Log(line)
				got = append(got, strings.Join(strings.SplitN(line, ":", 3)[:2], ":"))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("broken %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAttackColumnOfAnotherType stores columns as BLOBs, which read and hash the same,
// and which filters on the column skip.
func TestAttackColumnOfAnotherType(t *testing.T) {
	dbtest.OnlySQLite(t)
	for column := range strings.FieldsSeq(`id at action outcome service environment surface actor_type actor_id actor_email target_type target_id
		target_name partial_key address user_agent request_id changes details key_id previous hash`) {
		t.Run(column, func(t *testing.T) {
			d := dbtest.New(t)
			l := open(d, seal.NewKey())
			record(t, l, 3)
			kind := "BLOB"
			if column == "previous" || column == "hash" {
				kind = "TEXT"
			}
			exec(t, d, "UPDATE audit_entries SET "+column+" = CAST("+column+" AS "+kind+") WHERE organization_id = 'o1' AND sequence = 2")
			if got := broken(t, l); got != "o1:2" {
				t.Errorf("broken %q, want o1:2", got)
			}
		})
	}
}
