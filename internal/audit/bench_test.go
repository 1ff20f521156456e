package audit_test

import (
	"context"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// BenchmarkRecord compares a change of one row without and with an entry, by one writer
// and by 16.
func BenchmarkRecord(b *testing.B) {
	d := dbtest.New(b)
	l := open(d, seal.NewKey())
	exec := func(ctx context.Context, statement string) error {
		return d.Write(ctx, func(tx *db.Tx) error { _, err := tx.Exec(ctx, statement); return err })
	}
	if err := exec(b.Context(), "CREATE TABLE changed (id BIGINT PRIMARY KEY, value TEXT NOT NULL)"); err != nil {
		b.Fatal(err)
	}
	if err := exec(b.Context(), "INSERT INTO changed VALUES (1, 'x')"); err != nil {
		b.Fatal(err)
	}
	ctx := audit.WithSource(b.Context(), alice)
	change := func(record bool) error {
		return d.Write(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE changed SET value = $1 WHERE id = 1", "y"); err != nil || !record {
				return err
			}
			return l.RecordTx(ctx, tx, audit.Entry{
				OrganizationID: "o1", Action: "test.done", Target: audit.Target{Type: "test", ID: "1"}, Changes: map[string]audit.Change{"value": {From: "x", To: "y"}},
			})
		})
	}
	for name, record := range map[string]bool{"change": false, "change and entry": true} {
		b.Run(name+"/1 writer", func(b *testing.B) {
			for b.Loop() {
				if err := change(record); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/16 writers", func(b *testing.B) {
			var running sync.WaitGroup
			for i := range 16 {
				running.Go(func() {
					for range b.N/16 + min(1, max(0, b.N%16-i)) {
						if err := change(record); err != nil {
							b.Error(err)
						}
					}
				})
			}
			running.Wait()
		})
	}
}
