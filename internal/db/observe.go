package db

import (
	"context"
	"sync/atomic"
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

	statement atomic.Pointer[func(query string)] // nil: none
}

// OnStatement calls fn with the text of each statement, before it runs, until the next call of
// OnStatement; nil ends it. Statements that begin and end transactions are not among them. Many
// goroutines may call fn at once, also some time after its end.
func (o *Observer) OnStatement(fn func(query string)) {
	if fn == nil {
		o.statement.Store(nil)
		return
	}
	o.statement.Store(&fn)
}

// run calls the function of [Observer.OnStatement].
func (o *Observer) run(query string) {
	if o == nil {
		return
	}
	if fn := o.statement.Load(); fn != nil {
		(*fn)(query)
	}
}

// Observer returns the observer of d, nil without one.
func (d *DB) Observer() *Observer { return d.observer }

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
