package importer_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/importer"
)

func (r *rig) undo(run importer.Run) importer.Run {
	r.Helper()
	run, err := r.imports.Undo(r.Context(), org, run.ID, nil)
	if err != nil {
		r.Fatal(err)
	}
	return run
}

// execute runs a statement.
func (r *rig) execute(statement string, args ...any) {
	r.Helper()
	if err := r.db.Write(r.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(r.Context(), statement, args...)
		return err
	}); err != nil {
		r.Fatal(err)
	}
}

// TestUndoAfterRepetition: a mail that is received after its import is not stored again, so the undo
// leaves the imported one.
func TestUndoAfterRepetition(t *testing.T) {
	r := newRig(t)
	run := r.run(imported(importer.Mbox, org))
	text := r.rows("SELECT body FROM messages WHERE external_id = 'bill-1@rider.example'")[0]
	res := r.receive(&channel.Mail{MessageID: "bill-1@rider.example"}, channel.Party{Email: "bob@rider.example"}, "Rechnung", text)
	if res.Outcome != desk.Duplicate {
		t.Fatalf("the repetition is %+v", res)
	}
	run = r.undo(run)
	if got := r.rows("SELECT id FROM messages WHERE id = $1", res.MessageID); len(got) != 1 || run.Counts.Removed.Left != 1 {
		t.Errorf("messages %q, run %+v", got, run.Counts.Removed)
	}
	if got := r.rows("SELECT email FROM customers"); !slices.Equal(got, []string{"bob@rider.example"}) {
		t.Errorf("customers %q are left", got)
	}
}

// TestUndoLeavesCustomers: a customer who wrote in the ticket of another one since the import, or whom a
// member changed, stays.
func TestUndoLeavesCustomers(t *testing.T) {
	r := newRig(t)
	live := r.receive(&channel.Mail{MessageID: "live@rider.example"}, channel.Party{Email: "live@rider.example"}, "Live", "Text")
	run := r.run(imported(importer.Mbox, org))
	res := r.receive(&channel.Mail{MessageID: "more@rider.example", InReplyTo: []string{"live@rider.example"}}, channel.Party{Email: "ada@rider.example"}, "Re: Live", "I see it, too.")
	if res.TicketID != live.TicketID {
		t.Fatalf("the mail is in another ticket: %+v", res)
	}
	bob := r.rows("SELECT id FROM customers WHERE email = 'bob@rider.example'")[0]
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := r.desk.UpdateCustomerTx(t.Context(), tx, org, bob, desk.CustomerUpdate{Name: new("Robert")})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.undo(run)
	if got, want := r.rows("SELECT email FROM customers ORDER BY email"), []string{"ada@rider.example", "bob@rider.example", "live@rider.example"}; !slices.Equal(got, want) {
		t.Errorf("customers %q are left, want %q", got, want)
	}
	if broken := r.rows("SELECT id FROM messages m WHERE author_type = 'customer' AND NOT EXISTS (SELECT 1 FROM customers c WHERE c.id = m.author_id)"); len(broken) > 0 {
		t.Errorf("messages without an author: %q", broken)
	}
}

// TestUndoResumed: an undo whose job failed for good says why, and starts again.
func TestUndoResumed(t *testing.T) {
	r := newRig(t)
	run := r.run(imported(importer.Mbox, org))
	if _, err := r.imports.StartUndo(t.Context(), org, run.ID, graceID); err != nil {
		t.Fatal(err)
	}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		return r.imports.DiscardTx(t.Context(), tx, run.ID, errors.New("the database is damaged"))
	}); err != nil {
		t.Fatal(err)
	}
	r.execute("DELETE FROM jobs")
	stopped, err := r.imports.Get(t.Context(), r.db, org, run.ID)
	if err != nil || stopped.State != importer.Undoing || stopped.Error != "the database is damaged" || !stopped.Stalled(r.db.Now()) {
		t.Fatalf("discarded: %+v, %v", stopped, err)
	}
	for range 2 { // the second finds it in progress
		if again, err := r.imports.StartUndo(t.Context(), org, run.ID, graceID); err != nil || again.Error != "" {
			t.Fatalf("resumed: %+v, %v", again, err)
		}
	}
	if n := len(r.rows("SELECT id FROM jobs")); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}
