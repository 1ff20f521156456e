package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kickstand-dev/kickstand/internal/loop"
)

// Tx is a running transaction. It is valid during one call of [DB.Read] or [DB.Write], for one
// goroutine.
//
// A failed statement fails the transaction: later statements return the same error, and so does
// Write, even if the function returns nil. For expected conflicts use ON CONFLICT.
type Tx struct {
	// Now is the time shared by all rows of the transaction: the database's clock at its begin,
	// UTC, whole microseconds.
	Now time.Time

	engine    engine
	namespace string // of the DB
	ids       *ids   // of the DB
	session   session
	observer  *Observer // nil: none
	before    []beforeCommit
	after     []func()
	failed    error // the first error of a statement
	rows      *Rows // of the last Query or QueryRow; nil: none
}

// session runs the statements of a transaction: a connection, or the SQLite writer.
type session interface {
	// usable returns an error after the engine has rolled the transaction back.
	usable() error
	exec(ctx context.Context, query string, args []any) (int64, error)
	query(ctx context.Context, query string, args []any) (cursor, error)
	queue(ctx context.Context, query string, args []any) error
}

var errRowsOpen = errors.New("the rows of the previous statement are still open")

// Exec runs a statement and returns the number of changed rows.
func (tx *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := tx.ready(); err != nil {
		return 0, err
	}
	tx.observer.run(query)
	n, err := tx.session.exec(ctx, query, args)
	return n, tx.note(err)
}

// Queue is [Tx.Exec] for a statement whose result the function does not need. PostgreSQL gets it
// with the next statement or the commit, in the same round trip. So its error may be that of a
// later call, or of [DB.Write], and what its arguments point to must not change meanwhile.
func (tx *Tx) Queue(ctx context.Context, query string, args ...any) error {
	if err := tx.ready(); err != nil {
		return err
	}
	tx.observer.run(query)
	return tx.note(tx.session.queue(ctx, query, args))
}

// ExecPlanned is [Tx.Exec] with a plan for these arguments. PostgreSQL may cache the plan of a
// prepared statement from when the table was small; this plans it each time. On SQLite it is
// the same as Exec.
func (tx *Tx) ExecPlanned(ctx context.Context, query string, args ...any) (int64, error) {
	if tx.engine == postgresEngine {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	return tx.Exec(ctx, query, args...)
}

// Query runs a statement that returns rows. They must be read to the end or
// closed before the next statement.
func (tx *Tx) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	if err := tx.ready(); err != nil {
		return nil, err
	}
	tx.observer.run(query)
	c, err := tx.session.query(ctx, query, args)
	if err != nil {
		return nil, tx.note(err)
	}
	tx.rows = newRows(c, tx.note)
	return tx.rows, nil
}

// QueryRow runs a statement that returns at most one row. Errors come from
// Scan.
func (tx *Tx) QueryRow(ctx context.Context, query string, args ...any) Row {
	rows, err := tx.Query(ctx, query, args...)
	if rows != nil {
		rows.single = true
	}
	return firstOf(rows, err)
}

func (tx *Tx) note(err error) error {
	if err != nil && tx.failed == nil {
		tx.failed = err
	}
	return err
}

// ready returns an error unless another statement may run. SQLite would accept it while rows
// are open; PostgreSQL does not. A row that was not scanned is skipped.
func (tx *Tx) ready() error {
	if tx.failed != nil {
		return tx.failed
	}
	if tx.rows != nil {
		if tx.rows.open && !tx.rows.single {
			return tx.note(errRowsOpen)
		}
		tx.rows.Close()
		tx.rows = nil
	}
	return tx.note(tx.session.usable())
}

// end closes open rows, so that the connection is free, and returns the error of a failed
// statement, wrapped.
func (tx *Tx) end() error {
	if tx.rows != nil {
		tx.rows.Close()
	}
	failed := tx.failed
	tx.failed = errTxEnded
	if failed != nil {
		return fmt.Errorf("a statement had failed: %w", failed)
	}
	return nil
}

var errTxEnded = errors.New("the transaction has ended")

// beforeCommit is a function that [Tx.BeforeCommit] registered, or a value with the function that
// [Tx.Gather] registered.
type beforeCommit struct {
	order  string
	fn     func() error
	value  any
	gather func(values []any) error // nil without Gather
}

// BeforeCommit registers fn to run at the end of the transaction, after the function of Write
// has returned nil. An error of fn fails the transaction. Functions run sorted by order, then
// in order of registration. So rows that many transactions lock are locked last, briefly and in
// one order.
func (tx *Tx) BeforeCommit(order string, fn func() error) {
	tx.before = append(tx.before, beforeCommit{order: order, fn: fn})
}

// Gather is [Tx.BeforeCommit] for changes that are added up: fn runs once, with the values of all
// calls with this order. All calls with an order must pass the same function.
func (tx *Tx) Gather(order string, value any, fn func(values []any) error) {
	tx.before = append(tx.before, beforeCommit{order: order, value: value, gather: fn})
}

// runBefore runs the functions of [Tx.BeforeCommit] and [Tx.Gather], including functions
// registered meanwhile.
func (tx *Tx) runBefore() error {
	for len(tx.before) > 0 {
		now := tx.before
		tx.before = nil
		slices.SortStableFunc(now, func(a, b beforeCommit) int { return cmp.Compare(a.order, b.order) })
		for i := 0; i < len(now); i++ {
			b := &now[i]
			if b.gather == nil {
				if err := b.fn(); err != nil {
					return err
				}
				continue
			}
			values := []any{b.value}
			for ; i+1 < len(now) && now[i+1].order == b.order && now[i+1].gather != nil; i++ {
				values = append(values, now[i+1].value)
			}
			if err := b.gather(values); err != nil {
				return err
			}
		}
	}
	return nil
}

// AfterCommit registers fn to run once the transaction is durable, before Write returns; it
// does not run if the transaction fails. fn must be quick and must not write.
func (tx *Tx) AfterCommit(fn func()) { tx.after = append(tx.after, fn) }

// Lock locks key until the end of the transaction, waiting for other holders. On SQLite it does
// nothing: writers exclude each other.
func (tx *Tx) Lock(ctx context.Context, key string) error {
	if tx.engine == sqliteEngine {
		return nil
	}
	tx.willLock(key)
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", tx.lockID(key))
	return err
}

// TryLock is [Tx.Lock] without waiting. It reports whether the lock was free.
func (tx *Tx) TryLock(ctx context.Context, key string) (bool, error) {
	if tx.engine == sqliteEngine {
		return true, nil
	}
	tx.willLock(key)
	var ok bool
	err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", tx.lockID(key)).Scan(&ok)
	return ok, err
}

// willLock notes in a group that the next statement takes a lock.
func (tx *Tx) willLock(key string) {
	if m, ok := tx.session.(*member); ok {
		m.lock = key
	}
}

// lockID returns the advisory lock number of key. Namespaces have different numbers.
func (tx *Tx) lockID(key string) int64 {
	h := fnv.New64a()
	if tx.namespace != "" {
		h.Write([]byte(tx.namespace + "\x00"))
	}
	h.Write([]byte(key))
	return int64(h.Sum64())
}

// committed runs the functions of [Tx.AfterCommit].
func (tx *Tx) committed() {
	for _, fn := range tx.after {
		fn()
	}
}

// maxAttempts bounds the retries of a PostgreSQL transaction. Deadlocks and serialization
// failures need a concurrent opponent each time, so this many in a row have another cause.
const maxAttempts = 10

func (d *DB) writePostgres(ctx context.Context, fn func(*Tx) error) error {
	if !d.begin() {
		return errClosed
	}
	defer d.work.Done()
	for attempt := 1; ; attempt++ {
		err := d.writePostgresOnce(ctx, fn)
		if err == nil || !mustRetry(err) || attempt == maxAttempts {
			return err
		}
		if ended := loop.Pause(ctx, time.Duration(rand.Int64N(int64(attempt)*int64(5*time.Millisecond)))); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

func (d *DB) writePostgresOnce(ctx context.Context, fn func(*Tx) error) error {
	start := time.Now()
	r, now, err := d.beginPostgres(ctx, false)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	c := r.Value()
	defer func() { d.connections.release(r, c.endTransaction(ctx)) }()
	tx := d.postgresTx(now, c)
	if err = tx.setLongTimeouts(ctx); err == nil {
		err = fn(tx)
	}
	if err == nil {
		err = tx.runBefore()
	}
	if failed := tx.end(); err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	if err := c.commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	d.observer.committed(1, start)
	tx.committed()
	return nil
}
