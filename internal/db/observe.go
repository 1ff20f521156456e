package db

import (
	"context"
	"time"
)

// Observer measures a database. Its functions must be quick.
type Observer struct {
	// Operation is called after each operation that waits for the database: query (a statement
	// outside of a transaction, until its first row), read or write (a transaction).
	Operation func(name string, took time.Duration)
	// Commit is called after each commit, with the number of changes that shared it and the time
	// of the transaction.
	Commit func(changes int, took time.Duration)
}

// observe measures an operation that began at start.
func (d *DB) observe(name string, start time.Time) {
	if d.observer != nil {
		d.observer.Operation(name, time.Since(start))
	}
}

// committed measures a commit of changes in a transaction that began at start.
func (o *Observer) committed(changes int, start time.Time) {
	if o != nil {
		o.Commit(changes, time.Since(start))
	}
}

// Stats returns figures of the connections.
func (d *DB) Stats() Stats {
	if d.engine == postgresEngine {
		return d.connections.stats()
	}
	return d.readers.stats()
}

// note logs the begin and the end of an outage of the database.
func (d *DB) note(ctx context.Context, err error) {
	if d.trouble == nil {
		return // a simulation
	}
	if err == nil {
		d.trouble.Succeeded(ctx)
	} else if ctx.Err() == nil && !d.isClosed() {
		d.trouble.Failed(ctx, err)
	}
}
