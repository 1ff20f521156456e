package db

import (
	"context"
	"fmt"
)

// Try runs a part of the transaction. When fn fails, what it has done is undone,
// its AfterCommit functions included, and the transaction goes on as if it had
// not been tried: one bad line among many. A statement that fails still fails
// the transaction as a whole.
func (tx *Tx) Try(ctx context.Context, fn func() error) error {
	if _, err := tx.Exec(ctx, "SAVEPOINT try"); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	after := len(tx.after)
	failure := fn()
	if failure != nil {
		if tx.failed != nil {
			return failure
		}
		if tx.rows != nil {
			tx.rows.Close()
		}
		tx.after = tx.after[:after]
		if _, err := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT try"); err != nil {
			return fmt.Errorf("rollback to savepoint: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, "RELEASE SAVEPOINT try"); err != nil {
		return fmt.Errorf("release savepoint: %w", err)
	}
	return failure
}
