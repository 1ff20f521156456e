package audit_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// record adds n entries to the chains of o1, o2 and the deployment.
func record(t *testing.T, l *audit.Log, n int) {
	t.Helper()
	ctx := audit.WithSource(t.Context(), alice)
	for i := range n {
		for _, o := range []string{"o1", "o2", ""} {
			err := l.Record(ctx, audit.Entry{
				OrganizationID: o, Action: "member.role_changed", Outcome: audit.Refused,
				Target:  audit.Target{Type: "member", ID: fmt.Sprint("u", i), Name: "Bob", PartialKey: "12345678"},
				Changes: map[string]audit.Change{"role": {From: "agent", To: "admin"}}, Details: map[string]any{"n": i},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// exec runs one statement, as an attacker with access to the database.
func exec(t *testing.T, d *db.DB, query string, args ...any) {
	t.Helper()
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		n, err := tx.Exec(t.Context(), query, args...)
		if err == nil && n == 0 {
			err = fmt.Errorf("no row changed by %s", query)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// broken verifies a log and returns the broken chains as "organization:first bad".
func broken(t *testing.T, l *audit.Log, known ...audit.Head) string {
	t.Helper()
	var list []string
	err := l.Verify(t.Context(), audit.Verification{Known: known}, func(r audit.Report) error {
		if r.OK != (r.Problem == "") {
			t.Errorf("report %+v", r)
		}
		if !r.OK {
			t.Logf("%s: %s", r.OrganizationID, r.Problem)
			list = append(list, fmt.Sprintf("%s:%d", r.OrganizationID, r.FirstBad))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}

func heads(t *testing.T, l *audit.Log) (list []audit.Head) {
	t.Helper()
	if err := l.Verify(t.Context(), audit.Verification{}, func(r audit.Report) error { list = append(list, r.Head); return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestVerify(t *testing.T) {
	d := dbtest.New(t)
	l := open(d, seal.NewKey())
	if got := broken(t, l); got != "" {
		t.Errorf("an empty log: %s", got)
	}
	record(t, l, 3)
	known := heads(t, l)
	record(t, l, 2)
	if got := broken(t, l, known...); got != "" {
		t.Errorf("broken: %s", got)
	}
	var got []string
	for _, h := range heads(t, l) {
		got = append(got, fmt.Sprintf("%s/%s:%d:%d", h.Ledger, h.OrganizationID, h.Sequence, len(h.Hash)))
	}
	// The deployment's chain has five entries and three chain starts.
	if want := "helpdesk/:8:64 helpdesk/o1:5:64 helpdesk/o2:5:64"; strings.Join(got, " ") != want {
		t.Errorf("heads %v, want %s", got, want)
	}
}

// TestLongChain exceeds one batch of entries.
func TestLongChain(t *testing.T) {
	d := dbtest.New(t)
	l := open(d, seal.NewKey())
	const n = 1003
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		for range n {
			if err := l.RecordTx(t.Context(), tx, audit.Entry{OrganizationID: "o1", Action: "test.done"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var seen []int64
	org := "o1"
	err = l.Verify(t.Context(), audit.Verification{OrganizationID: &org, Progress: func(id string, done, total int64) {
		if id == "" { // the deployment's chain is first
			return
		}
		if total != n {
			t.Errorf("progress of %d, want %d", total, n)
		}
		seen = append(seen, done)
	}}, func(r audit.Report) error {
		if !r.OK || r.OrganizationID == org && r.Sequence != n {
			t.Errorf("report %+v", r)
		}
		return nil
	})
	if err != nil || fmt.Sprint(seen) != "[500 1000 1003]" {
		t.Errorf("progress %v, %v", seen, err)
	}
}

// TestAttackAlteredByte changes each column of an entry and of a head; each change is
// detected.
func TestAttackAlteredByte(t *testing.T) {
	for _, tt := range []struct{ set, broken string }{
		{"organization_id = 'o3'", "o1:3 o3:1"},
		{"sequence = 1000", "o1:3"},
		{"sequence = -7", "o1:0"},
		{"id = '00000000-0000-7000-8000-000000000000'", "o1:3"},
		{"at = at + 1", "o1:3"},
		{"action = 'member.added'", "o1:3"},
		{"outcome = ''", "o1:3"},
		{"service = 'fleet'", "o1:3"},
		{"environment = 'test'", "o1:3"},
		{"surface = 'rpc'", "o1:3"},
		{"actor_type = 'key'", "o1:3"},
		{"actor_id = 'u9'", "o1:3"},
		{"actor_email = 'mallory@example.com'", "o1:3"},
		{"target_type = 'user'", "o1:3"},
		{"target_id = 'u9'", "o1:3"},
		{"target_name = 'Bob '", "o1:3"},
		{"partial_key = '12345679'", "o1:3"},
		{"address = '192.0.2.8'", "o1:3"},
		{"user_agent = 'Browser/1.1'", "o1:3"},
		{"request_id = 'r2'", "o1:3"},
		{"changes = '{}'", "o1:3"},
		{"details = '{\"n\": 2}'", "o1:3"},
		{"key_id = '00000000'", "o1:3"},
		{"previous = hash", "o1:3"},
		{"hash = previous", "o1:3"},
	} {
		t.Run(tt.set, func(t *testing.T) {
			d := dbtest.New(t)
			l := open(d, seal.NewKey())
			record(t, l, 5)
			exec(t, d, "UPDATE audit_entries SET "+tt.set+" WHERE organization_id = 'o1' AND sequence = 3")
			if got := broken(t, l); got != tt.broken {
				t.Errorf("broken %q, want %q", got, tt.broken)
			}
		})
	}
	for _, tt := range []struct{ set, broken string }{
		{"organization_id = 'o3'", "o1:6 o3:1"},
		{"sequence = 4", "o1:6"},
		{"hash = mac", "o1:6"},
		{"key_id = '00000000'", "o1:6"},
		{"mac = hash", "o1:6"},
	} {
		t.Run("head "+tt.set, func(t *testing.T) {
			d := dbtest.New(t)
			l := open(d, seal.NewKey())
			record(t, l, 5)
			exec(t, d, "UPDATE audit_heads SET "+tt.set+" WHERE organization_id = 'o1'")
			if got := broken(t, l); got != tt.broken {
				t.Errorf("broken %q, want %q", got, tt.broken)
			}
		})
	}
}

// TestAttackOnRows removes, swaps, copies and forges rows.
func TestAttackOnRows(t *testing.T) {
	const columns = `id, at, action, outcome, service, environment, surface, actor_type, actor_id, actor_email,
		target_type, target_id, target_name, partial_key, address, user_agent, request_id, changes, details, key_id, previous, hash`
	remove := func(where string) []string {
		return []string{"DELETE FROM audit_entries WHERE organization_id = 'o1' AND " + where}
	}
	for _, tt := range []struct {
		name, broken string
		attack       []string
	}{
		{"removed row first", "o1:1", remove("sequence = 1")},
		{"removed row in the middle", "o1:3", remove("sequence = 3")},
		{"removed row last", "o1:5", remove("sequence = 5")},
		{"cut tail", "o1:3", remove("sequence >= 3")},
		{"cut tail with the head put back as far as can be known", "o1:5", append(remove("sequence = 5"),
			`UPDATE audit_heads SET sequence = 4, hash = (SELECT hash FROM audit_entries WHERE organization_id = 'o1' AND sequence = 4) WHERE organization_id = 'o1'`)},
		{"removed head", "o1:6", []string{"DELETE FROM audit_heads WHERE organization_id = 'o1'"}},
		{"removed chain", "o1:1", append(remove("1 = 1"), "DELETE FROM audit_heads WHERE organization_id = 'o1'")},
		{"removed row and those behind it moved up", "o1:3", append(remove("sequence = 3"),
			"UPDATE audit_entries SET sequence = 3 WHERE organization_id = 'o1' AND sequence = 4",
			"UPDATE audit_entries SET sequence = 4 WHERE organization_id = 'o1' AND sequence = 5")},
		{"two swapped rows", "o1:2", []string{
			"UPDATE audit_entries SET sequence = 99 WHERE organization_id = 'o1' AND sequence = 2",
			"UPDATE audit_entries SET sequence = 2 WHERE organization_id = 'o1' AND sequence = 4",
			"UPDATE audit_entries SET sequence = 4 WHERE organization_id = 'o1' AND sequence = 99"}},
		{"row copied from another organization's chain", "o1:3", append(remove("sequence = 3"),
			"INSERT INTO audit_entries (organization_id, sequence, "+columns+") SELECT 'o1', 3, "+columns+" FROM audit_entries WHERE organization_id = 'o2' AND sequence = 3")},
		{"row repeated at the end", "o1:6", []string{
			"INSERT INTO audit_entries (organization_id, sequence, " + columns + ") SELECT 'o1', 6, 'x'||" + columns + " FROM audit_entries WHERE organization_id = 'o1' AND sequence = 3"}},
		{"chain of an organization that has none", "o3:1", []string{
			"INSERT INTO audit_entries (organization_id, sequence, " + columns + ") SELECT 'o3', sequence, " + columns + " FROM audit_entries WHERE organization_id = 'o1'",
			"INSERT INTO audit_heads (organization_id, sequence, hash, key_id, mac) SELECT 'o3', sequence, hash, key_id, mac FROM audit_heads WHERE organization_id = 'o1'"}},
		{"row before the chain", "o1:0", []string{
			"INSERT INTO audit_entries (organization_id, sequence, " + columns + ") SELECT 'o1', 0, 'x'||" + columns + " FROM audit_entries WHERE organization_id = 'o1' AND sequence = 3"}},
		{"removed start of a chain", ":2 o1:1", []string{
			"DELETE FROM audit_entries WHERE organization_id = '' AND target_id = 'o1'"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := dbtest.New(t)
			l := open(d, seal.NewKey())
			record(t, l, 5)
			for _, query := range tt.attack {
				exec(t, d, query)
			}
			if got := broken(t, l); got != tt.broken {
				t.Errorf("broken %q, want %q", got, tt.broken)
			}
		})
	}
}

// TestAttackLostHead removes the end of a chain with its head. Then more is recorded,
// also by a process that has not used the chain before.
func TestAttackLostHead(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprintf("fresh process %t, whole chain %t", fresh, whole), func(t *testing.T) {
				d := dbtest.New(t)
				key := seal.NewKey()
				l := open(d, key)
				record(t, l, 5)
				want, where := "o1:4", "sequence > 3"
				if whole {
					want, where = "o1:1", "1 = 1"
				}
				exec(t, d, "DELETE FROM audit_entries WHERE organization_id = 'o1' AND "+where)
				exec(t, d, "DELETE FROM audit_heads WHERE organization_id = 'o1'")
				if fresh {
					l = open(d, key)
				}
				record(t, l, 1)
				if got := broken(t, l); got != want {
					t.Errorf("broken %q, want %q", got, want)
				}
			})
		}
	}
}

// TestAttackOldState restores rows and head, which only heads stored elsewhere reveal.
func TestAttackOldState(t *testing.T) {
	d := dbtest.New(t)
	l := open(d, seal.NewKey())
	record(t, l, 3)
	const query = "SELECT hash, mac FROM audit_heads WHERE organization_id = 'o1'"
	var hash, mac []byte
	if err := d.QueryRow(t.Context(), query).Scan(&hash, &mac); err != nil {
		t.Fatal(err)
	}
	record(t, l, 2)
	known := heads(t, l)
	exec(t, d, "DELETE FROM audit_entries WHERE organization_id = 'o1' AND sequence > 3")
	exec(t, d, "UPDATE audit_heads SET sequence = 3, hash = $1, mac = $2 WHERE organization_id = 'o1'", hash, mac)
	if got := broken(t, l, known...); got != "o1:4" {
		t.Errorf("broken %q, want o1:4", got)
	}
	// New entries differ from the known ones.
	record(t, l, 4)
	if got := broken(t, l, known...); got != "o1:5" {
		t.Errorf("broken %q, want o1:5", got)
	}
	exec(t, d, "DELETE FROM audit_entries WHERE organization_id = 'o1'")
	exec(t, d, "DELETE FROM audit_heads WHERE organization_id = 'o1'")
	exec(t, d, "DELETE FROM audit_entries WHERE organization_id = ''")
	exec(t, d, "DELETE FROM audit_heads WHERE organization_id = ''")
	if got := broken(t, l, known...); got != ":1 o1:1 o2:1" {
		t.Errorf("broken %q, want :1 o1:1 o2:1", got)
	}
}

// TestAttackFork replaces an entry by another one with the same sequence. The deployment
// signed both: the first before an old state was restored, the second after.
func TestAttackFork(t *testing.T) {
	d := dbtest.New(t)
	l := open(d, seal.NewKey())
	record(t, l, 3)
	const query = "SELECT hash, mac FROM audit_heads WHERE organization_id = 'o1'"
	var hash, mac []byte
	if err := d.QueryRow(t.Context(), query).Scan(&hash, &mac); err != nil {
		t.Fatal(err)
	}
	record(t, l, 3)
	const o1 = " WHERE organization_id = 'o1'"
	exec(t, d, "CREATE TABLE other AS SELECT * FROM audit_entries"+o1+" AND sequence = 5")
	exec(t, d, "DELETE FROM audit_entries"+o1+" AND sequence > 3")
	exec(t, d, "UPDATE audit_heads SET sequence = 3, hash = $1, mac = $2"+o1, hash, mac)
	record(t, l, 3)
	if got := broken(t, l); got != "" {
		t.Fatalf("broken %q before the attack", got)
	}
	exec(t, d, "DELETE FROM audit_entries"+o1+" AND sequence = 5")
	exec(t, d, "INSERT INTO audit_entries SELECT * FROM other")
	if got := broken(t, l); got != "o1:5" {
		t.Errorf("broken %q, want o1:5", got)
	}
}

// TestAttackForgedEntry writes a well-formed chain with another key.
func TestAttackForgedEntry(t *testing.T) {
	d := dbtest.New(t)
	key := seal.NewKey()
	record(t, open(d, key), 2)
	forger := open(d, seal.NewKey())
	record(t, forger, 1)
	if got := broken(t, open(d, key)); got != ":6 o1:3 o2:3" {
		t.Errorf("broken %q, want :6 o1:3 o2:3", got)
	}
}

// TestAttackOtherLedger moves a chain, with its head, to another database.
func TestAttackOtherLedger(t *testing.T) {
	d := dbtest.New(t)
	box := seal.New(seal.NewKey())
	record(t, audit.Open(audit.Config{DB: d, Box: box, Ledger: "fleet_sandbox"}), 2)
	if got := broken(t, audit.Open(audit.Config{DB: d, Box: box, Ledger: "fleet_live"})); got != ":1 o1:1 o2:1" {
		t.Errorf("broken %q, want :1 o1:1 o2:1", got)
	}
}

// TestKeyRotation: entries signed with an old key verify while it is configured, and are
// reported otherwise.
func TestKeyRotation(t *testing.T) {
	d := dbtest.New(t)
	old, key := seal.NewKey(), seal.NewKey()
	record(t, open(d, old), 2)
	record(t, open(d, key, old), 2)
	if got := broken(t, open(d, key, old)); got != "" {
		t.Errorf("broken %q after the rotation", got)
	}
	err := open(d, key).Verify(t.Context(), audit.Verification{}, func(r audit.Report) error {
		if r.OK || r.FirstBad != 1 || !strings.Contains(r.Problem, "which is not configured: put the old key back") {
			t.Errorf("without the old key: %+v", r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestBeforeChain: the chain covers the entries older than it.
func TestBeforeChain(t *testing.T) {
	const insert = `INSERT INTO audit_entries (organization_id, sequence, id, at, action, outcome, service, environment, surface, actor_type, actor_id,
		actor_email, target_type, target_id, target_name, partial_key, address, user_agent, request_id, changes, details, key_id, previous, hash)
		VALUES ('o1', $1, $2, 1, 'api_key.created', '', 'helpdesk', 'live', '', 'user', 'u1', '', 'api_key', 'k1', 'Key', '', '', '', '', '{}', '{}', '', $3, $3)`
	for _, tt := range []struct{ name, attack, want string }{
		{"untouched", "", ""},
		{"altered", "UPDATE audit_entries SET actor_id = 'u2' WHERE sequence = -1", "o1:0"},
		{"removed", "DELETE FROM audit_entries WHERE sequence = 0", "o1:0"},
		{"moved", "UPDATE audit_entries SET sequence = -9 WHERE sequence = -1", "o1:0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := dbtest.New(t)
			l := open(d, seal.NewKey())
			exec(t, d, insert, -1, "a", []byte{})
			exec(t, d, insert, 0, "b", []byte{})
			if got := broken(t, l); got != "" {
				t.Errorf("without a chain: %s", got)
			}
			record(t, l, 2)
			if tt.attack != "" {
				exec(t, d, tt.attack)
			}
			if got := broken(t, l); got != tt.want {
				t.Errorf("broken %q, want %q", got, tt.want)
			}
		})
	}
}

func TestHeadIsHex(t *testing.T) {
	l := open(dbtest.New(t), seal.NewKey())
	record(t, l, 1)
	for _, h := range heads(t, l) {
		if b, err := hex.DecodeString(h.Hash); err != nil || len(b) != 32 {
			t.Errorf("hash %q", h.Hash)
		}
	}
}

// TestVerifyInSteps verifies a chain in several steps, each from the end of the previous
// one, and detects an alteration after that.
func TestVerifyInSteps(t *testing.T) {
	d := dbtest.New(t)
	l := open(d, seal.NewKey())
	const entries = 2300
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		for range entries {
			if err := l.RecordTx(t.Context(), tx, audit.Entry{OrganizationID: "o1", Action: "test.done"}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	id := "o1"
	walk := func() (steps int, last audit.Report) {
		t.Helper()
		for from := (audit.Head{}); ; from = last.Head {
			steps++
			err := l.Verify(t.Context(), audit.Verification{OrganizationID: &id, From: from, Limit: 1000}, func(r audit.Report) error { last = r; return nil })
			if err != nil || steps > 10 {
				t.Fatal(steps, err)
			}
			if !last.Partial {
				return steps, last
			}
			if last.OK {
				t.Error("a part is called whole")
			}
		}
	}
	if steps, last := walk(); steps < 2 || !last.OK || last.Sequence != entries {
		t.Errorf("%d steps, %+v", steps, last)
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE audit_entries SET action = 'test.altered' WHERE organization_id = 'o1' AND sequence = 2200")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, last := walk(); last.OK || last.FirstBad != 2200 {
		t.Errorf("after an alteration: %+v", last)
	}
}
