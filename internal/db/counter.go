package db

import (
	"context"
	"errors"
	"fmt"
)

// counter is the state of a table of one row whose column last is the last number that was
// taken, in the writer's running transaction.
type counter struct {
	table string
	last  int64
}

// NextNumbers takes the next n numbers of a counter and returns the first: table has one row, with
// the column last. Numbers of transactions that fail are lost. SQLite only, where the functions
// of a group take theirs from memory, and the table is read and written once for all of them;
// PostgreSQL has sequences.
func (tx *Tx) NextNumbers(ctx context.Context, table string, n int) (first int64, err error) {
	w, ok := tx.session.(*writer)
	if !ok {
		return 0, tx.note(errors.New("counters are of SQLite's writer"))
	}
	for i := range w.counters {
		if c := &w.counters[i]; c.table == table {
			c.last += int64(n)
			return c.last - int64(n) + 1, tx.ready()
		}
	}
	c := counter{table: table}
	if err := tx.QueryRow(ctx, "SELECT last FROM "+table).Scan(&c.last); err != nil {
		return 0, fmt.Errorf("read the counter %s: %w", table, err)
	}
	c.last += int64(n)
	w.counters = append(w.counters, c)
	return c.last - int64(n) + 1, nil
}

// storeCounters writes the counters of the transaction.
func (w *writer) storeCounters() error {
	for _, c := range w.counters {
		query := "UPDATE " + c.table + " SET last = max(last, $1)" // a restore raises it
		w.observer.run(query)
		if _, err := w.conn.exec(query, []any{c.last}); err != nil {
			return fmt.Errorf("write the counter %s: %w", c.table, err)
		}
	}
	return nil
}
