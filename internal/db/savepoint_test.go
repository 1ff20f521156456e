package db_test

import (
	"errors"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestTry: a failed part is rolled back and the rest is committed.
func TestTry(t *testing.T) {
	d := dbtest.New(t)
	ctx, bad := t.Context(), errors.New("bad")
	var called, before []int
	err := d.Write(ctx, func(tx *db.Tx) error {
		called, before = nil, nil
		if _, err := tx.Exec(ctx, "CREATE TABLE tried (n BIGINT PRIMARY KEY)"); err != nil {
			return err
		}
		for n := range 4 {
			err := tx.Try(ctx, func() error {
				if _, err := tx.Exec(ctx, "INSERT INTO tried (n) VALUES ($1)", n); err != nil {
					return err
				}
				tx.AfterCommit(func() { called = append(called, n) })
				tx.BeforeCommit("", func() error {
					before = append(before, n)
					return nil
				})
				if n%2 == 1 {
					if _, err := tx.Query(ctx, "SELECT n FROM tried"); err != nil { // left open
						return err
					}
					return bad
				}
				return nil
			})
			if want := map[bool]error{true: bad}[n%2 == 1]; err != want {
				t.Errorf("try %d: got %v, want %v", n, err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var sum, count int
	if err := d.QueryRow(ctx, "SELECT sum(n), count(*) FROM tried").Scan(&sum, &count); err != nil || sum != 2 || count != 2 {
		t.Errorf("got %d rows, sum %d, %v, want 0 and 2", count, sum, err)
	}
	if len(called) != 2 || called[0] != 0 || called[1] != 2 {
		t.Errorf("after the commit: got %v, want [0 2]", called)
	}
	if len(before) != 2 || before[0] != 0 || before[1] != 2 {
		t.Errorf("before the commit: got %v, want [0 2]", before)
	}
	err = d.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Try(ctx, func() error {
			_, err := tx.Exec(ctx, "INSERT INTO tried (n) VALUES (0)")
			return err
		}); err == nil {
			t.Error("a statement failed, the try did not")
		}
		return nil
	})
	if err == nil {
		t.Error("a statement failed, the transaction did not")
	}
}
