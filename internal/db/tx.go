package db

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
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
	conn      txConn
	before    []beforeCommit
	after     []func()
	failed    error     // the first error of a statement
	rows      *sql.Rows // of the last Query
	row       *sql.Row  // of the last QueryRow
}

// txConn runs the statements of a transaction: a pool's transaction or the SQLite writer's
// connection.
type txConn interface {
	// usable returns an error after the engine has rolled the transaction back.
	usable() error
	exec(ctx context.Context, query string, args []any) (int64, error)
	query(ctx context.Context, query string, args []any) (*sql.Rows, error)
	queryRow(ctx context.Context, query string, args []any) *sql.Row
}

var errRowsOpen = errors.New("the rows of the previous statement are still open")

// Exec runs a statement and returns the number of changed rows.
func (tx *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := tx.ready(); err != nil {
		return 0, err
	}
	n, err := tx.conn.exec(ctx, query, args)
	return n, tx.note(err)
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
func (tx *Tx) Query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := tx.ready(); err != nil {
		return nil, err
	}
	rows, err := tx.conn.query(ctx, query, args)
	tx.rows = rows
	return rows, tx.note(err)
}

// QueryRow runs a statement that returns at most one row. Errors come from
// Scan.
func (tx *Tx) QueryRow(ctx context.Context, query string, args ...any) *sql.Row {
	if err := tx.ready(); err != nil {
		return errorRow(err)
	}
	tx.row = tx.conn.queryRow(ctx, query, args)
	tx.note(tx.row.Err())
	return tx.row
}

func (tx *Tx) note(err error) error {
	if err != nil && tx.failed == nil {
		tx.failed = err
	}
	return err
}

// ready returns an error unless another statement may run. SQLite would accept it while rows
// are open; PostgreSQL does not.
func (tx *Tx) ready() error {
	if tx.failed != nil {
		return tx.failed
	}
	if tx.rows != nil {
		if _, err := tx.rows.Columns(); err == nil { // an error means that they are closed
			return tx.note(errRowsOpen)
		}
		tx.rows = nil
	}
	tx.closeRow()
	return tx.note(tx.conn.usable())
}

// closeRow closes the last row by scanning it, which is harmless a second time.
func (tx *Tx) closeRow() {
	if tx.row != nil {
		tx.row.Scan()
		tx.row = nil
	}
}

// end closes open rows, so that the connection is free, and returns the error of a failed
// statement, wrapped.
func (tx *Tx) end() error {
	if tx.rows != nil {
		tx.rows.Close()
	}
	tx.closeRow()
	failed := tx.failed
	tx.failed = sql.ErrTxDone
	if failed != nil {
		return fmt.Errorf("a statement had failed: %w", failed)
	}
	return nil
}

// errorRow returns a row with a Scan that returns err.
func errorRow(err error) *sql.Row {
	pool := sql.OpenDB(noConnection{err})
	defer pool.Close()
	return pool.QueryRow("")
}

type noConnection struct{ err error }

func (n noConnection) Connect(context.Context) (driver.Conn, error) { return nil, n.err }
func (n noConnection) Driver() driver.Driver                        { return nil }

// beforeCommit is a function that [Tx.BeforeCommit] registered.
type beforeCommit struct {
	order string
	fn    func() error
}

// BeforeCommit registers fn to run at the end of the transaction, after the function of Write
// has returned nil. An error of fn fails the transaction. Functions run sorted by order, then
// in order of registration. So rows that many transactions lock are locked last, briefly and in
// one order.
func (tx *Tx) BeforeCommit(order string, fn func() error) {
	tx.before = append(tx.before, beforeCommit{order, fn})
}

// runBefore runs the functions of [Tx.BeforeCommit], including functions registered meanwhile.
func (tx *Tx) runBefore() error {
	for len(tx.before) > 0 {
		now := tx.before
		tx.before = nil
		slices.SortStableFunc(now, func(a, b beforeCommit) int { return cmp.Compare(a.order, b.order) })
		for _, b := range now {
			if err := b.fn(); err != nil {
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
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", tx.lockID(key))
	return err
}

// TryLock is [Tx.Lock] without waiting. It reports whether the lock was free.
func (tx *Tx) TryLock(ctx context.Context, key string) (bool, error) {
	if tx.engine == sqliteEngine {
		return true, nil
	}
	var ok bool
	err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", tx.lockID(key)).Scan(&ok)
	return ok, err
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

// poolTx runs the statements of a transaction of the pool.
type poolTx struct{ tx *sql.Tx }

func (p poolTx) usable() error { return nil } // database/sql checks it

func (p poolTx) exec(ctx context.Context, query string, args []any) (int64, error) {
	res, err := p.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (p poolTx) query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	return p.tx.QueryContext(ctx, query, args...)
}

func (p poolTx) queryRow(ctx context.Context, query string, args []any) *sql.Row {
	return p.tx.QueryRowContext(ctx, query, args...)
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
	sqlTx, now, err := d.beginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer sqlTx.Rollback()
	tx := &Tx{Now: now, engine: postgresEngine, namespace: d.namespace, conn: poolTx{sqlTx}}
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
	if err := sqlTx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	d.observer.committed(1, start)
	tx.committed()
	return nil
}
