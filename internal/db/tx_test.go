package db_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestGather: the values of an order are passed at once, in the order of all functions before the
// commit, and an error fails the transaction.
func TestGather(t *testing.T) {
	d := dbtest.New(t)
	ctx, bad := t.Context(), errors.New("bad")
	var ran []string
	err := d.Write(ctx, func(tx *db.Tx) error {
		ran = nil
		gather := func(order string) func([]any) error {
			return func(values []any) error {
				ran = append(ran, fmt.Sprint(order, values))
				if order == "b" && len(values) == 2 {
					tx.Gather("a", 9, func(values []any) error {
						ran = append(ran, fmt.Sprint("later", values))
						return nil
					})
				}
				return nil
			}
		}
		tx.Gather("b", 1, gather("b"))
		tx.Gather("a", 2, gather("a"))
		tx.BeforeCommit("aa", func() error {
			ran = append(ran, "aa")
			return nil
		})
		tx.Gather("b", 3, gather("b"))
		return nil
	})
	if got, want := fmt.Sprint(ran), "[a[2] aa b[1 3] later[9]]"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	err = d.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "CREATE TABLE gathered (n BIGINT PRIMARY KEY)"); err != nil {
			return err
		}
		tx.Gather("a", 1, func([]any) error { return bad })
		return nil
	})
	if !errors.Is(err, bad) {
		t.Errorf("got %v, want %v", err, bad)
	}
	if err := d.QueryRow(ctx, "SELECT count(*) FROM gathered").Scan(new(int)); err == nil {
		t.Error("the refused transaction was committed")
	}
}
