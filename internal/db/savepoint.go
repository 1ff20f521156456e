package db

import (
	"context"
	"fmt"
)

// Try runs fn in a savepoint. If fn fails, its changes and its functions for before and after the
// commit are rolled back and the transaction continues, for example with the next line of an
// import. A failed statement still fails the whole transaction.
func (tx *Tx) Try(ctx context.Context, fn func() error) error {
	if _, grouped := tx.session.(*member); grouped {
		return tx.note(errInGroup)
	}
	if _, err := tx.Exec(ctx, "SAVEPOINT try"); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	before, after := len(tx.before), len(tx.after)
	failure := fn()
	if failure != nil {
		if tx.failed != nil {
			return failure
		}
		if tx.rows != nil {
			tx.rows.Close()
		}
		tx.before, tx.after = tx.before[:before], tx.after[:after]
		if _, err := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT try"); err != nil {
			return fmt.Errorf("rollback to savepoint: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, "RELEASE SAVEPOINT try"); err != nil {
		return fmt.Errorf("release savepoint: %w", err)
	}
	return failure
}
