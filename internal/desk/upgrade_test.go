package desk_test

import (
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// execute runs a statement.
func (f *fixture) execute(statement string, args ...any) {
	f.Helper()
	if err := f.db.Write(f.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(f.Context(), statement, args...)
		return err
	}); err != nil {
		f.Fatal(err)
	}
}

// TestUpgraded: customers are merged, and macros get files, once older programs have been refused for a
// while.
func TestUpgraded(t *testing.T) {
	f := newFixture(t)
	if !f.db.Postgres() {
		t.Skip("SQLite has one server, so no older program runs beside it")
	}
	ana, num := f.two()
	m := f.macro(desk.Macro{Name: "Manual", Text: "See the file."})
	f.execute("DELETE FROM schema_floor_raised")
	f.execute("UPDATE schema_floor SET version = 68")
	refused := func(when string) {
		t.Helper()
		if _, err := f.mergeCustomers(orgA, ana.CustomerID, num.CustomerID); problem.Of(err) != problem.Conflict {
			t.Errorf("%s: %v", when, err)
		}
		if _, err := f.desk.PreviewCustomerMerge(t.Context(), f.db, orgA, ana.CustomerID, num.CustomerID); problem.Of(err) != problem.Conflict {
			t.Errorf("%s: preview: %v", when, err)
		}
		if _, err := f.addFiles(m, attached(10)...); problem.Of(err) != problem.Conflict {
			t.Errorf("%s: file: %v", when, err)
		}
	}
	refused("beside older programs")
	if err := f.db.FinishUpgrade(t.Context(), db.Helpdesk); err != nil {
		t.Fatal(err)
	}
	refused("just after older programs were refused")
	f.execute("UPDATE schema_floor_raised SET at = at - $1", time.Minute.Microseconds())
	if _, err := f.mergeCustomers(orgA, ana.CustomerID, num.CustomerID); err != nil {
		t.Errorf("a minute later: %v", err)
	}
	if _, err := f.addFiles(m, attached(10)...); err != nil {
		t.Errorf("a minute later: file: %v", err)
	}
}

// TestReconcileCustomers: a customer whose document an older program did not write is found, and the
// document of a deleted one goes.
func TestReconcileCustomers(t *testing.T) {
	f := newFixture(t)
	ana, num := f.two()
	f.index()
	f.execute("DELETE FROM customer_docs WHERE customer_id = $1", ana.CustomerID)
	f.execute("UPDATE customers SET deleted_at = 1 WHERE id = $1", num.CustomerID)
	docs := func() (anas, nums int) {
		t.Helper()
		if err := f.db.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM customer_docs WHERE customer_id = $1), (SELECT count(*) FROM customer_docs WHERE customer_id = $2)",
			ana.CustomerID, num.CustomerID).Scan(&anas, &nums); err != nil {
			t.Fatal(err)
		}
		return anas, nums
	}
	if anas, nums := docs(); anas != 0 || nums != 1 {
		t.Fatalf("%d, %d documents", anas, nums)
	}
	if err := f.desk.ReconcileCustomers(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.index()
	if anas, nums := docs(); anas != 1 || nums != 0 {
		t.Errorf("after: %d, %d documents", anas, nums)
	}
	if err := f.desk.ReconcileCustomers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := f.desk.Index(t.Context()); n != 0 || err != nil {
		t.Errorf("a second time: %d rows, %v", n, err)
	}
}
