package db_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestNamespaces: databases in namespaces of one server's database have nothing in
// common, neither tables, on whichever connection, nor locks.
func TestNamespaces(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("there is no server")
	}
	ctx := t.Context()
	url := dbtest.URL(t) // the helpdesk is there already
	names := []string{"fleet_live", `it's "; DROP SCHEMA public; --, $1`}
	var dbs []*db.DB
	for _, name := range names {
		d, err := db.Open(ctx, url, db.Options{Namespace: name, MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		dbs = append(dbs, d)
		applied, err := d.Migrate(ctx, db.Fleet)
		if err != nil || len(applied) == 0 || applied[0].Version != 1 {
			t.Fatalf("migrate %s: got %v, %v, want all", name, applied, err)
		}
		if again, err := d.Migrate(ctx, db.Fleet); err != nil || len(again) != 0 {
			t.Fatalf("migrate %s again: got %v, %v, want nothing", name, again, err)
		}
		err = d.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO settings (organization_id, revision, stamp, clock_offset, doc) VALUES ($1, 1, 1, 0, '{}')", name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, d := range dbs {
		var readers, here sync.WaitGroup
		here.Add(4)
		for range 4 {
			readers.Go(func() {
				err := d.Read(ctx, func(tx *db.Tx) error {
					here.Done() // each on a separate connection
					here.Wait()
					var got string
					err := tx.QueryRow(ctx, "SELECT string_agg(organization_id, '|') FROM settings").Scan(&got)
					if err == nil && got != names[i] {
						t.Errorf("%s has the settings of %s", names[i], got)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		readers.Wait()
		if err := d.QueryRow(ctx, "SELECT count(*) FROM tickets").Scan(new(int)); err == nil {
			t.Errorf("%s has the helpdesk's tables", names[i])
		}
	}
	err := dbs[0].Write(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "held"); err != nil {
			return err
		}
		for i, want := range []bool{false, true} {
			err := dbs[i].Write(context.WithoutCancel(ctx), func(other *db.Tx) error {
				if free, err := other.TryLock(ctx, "held"); err != nil || free != want {
					t.Errorf("lock in %s: got free %t, %v, want %t", names[i], free, err, want)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
