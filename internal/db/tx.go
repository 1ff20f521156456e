package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Tx is a transaction under way. It lives inside one call of [DB.Read] or
// [DB.Write] and must not be used by several goroutines or after that call.
type Tx struct {
	// Now is the time that every row of the transaction shares: UTC, whole
	// microseconds.
	Now time.Time

	engine engine
	conn   txConn
	after  []func()
}

// txConn is where the statements of a transaction run: a pool's transaction or
// the SQLite writer's connection.
type txConn interface {
	exec(ctx context.Context, query string, args []any) (sql.Result, error)
	query(ctx context.Context, query string, args []any) (*sql.Rows, error)
	queryRow(ctx context.Context, query string, args []any) *sql.Row
}

// Exec runs a statement and returns how many rows it changed.
func (tx *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := tx.conn.exec(ctx, query, tx.engine.args(args))
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Query runs a statement that returns rows. They must be read to the end or
// closed before the next statement.
func (tx *Tx) Query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return tx.conn.query(ctx, query, tx.engine.args(args))
}

// QueryRow runs a statement that returns at most one row.
func (tx *Tx) QueryRow(ctx context.Context, query string, args ...any) *sql.Row {
	return tx.conn.queryRow(ctx, query, tx.engine.args(args))
}

// AfterCommit has fn called once the transaction is durable, before Write
// returns; never when it fails. fn must be quick and must not write.
func (tx *Tx) AfterCommit(fn func()) { tx.after = append(tx.after, fn) }

// Lock waits until no other transaction holds key, and holds it to the end of
// this one. On SQLite every writer already excludes every other.
func (tx *Tx) Lock(ctx context.Context, key string) error {
	if tx.engine == sqliteEngine {
		return nil
	}
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockID(key))
	return err
}

// TryLock is [Tx.Lock] without waiting: it reports whether the lock was free.
func (tx *Tx) TryLock(ctx context.Context, key string) (bool, error) {
	if tx.engine == sqliteEngine {
		return true, nil
	}
	var ok bool
	err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", lockID(key)).Scan(&ok)
	return ok, err
}

func lockID(key string) int64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	return int64(h.Sum64())
}

// committed calls what waited for the commit.
func (tx *Tx) committed() {
	for _, fn := range tx.after {
		fn()
	}
}

// poolTx runs the statements of a transaction of the pool. On SQLite it uses
// the statements that are already prepared.
type poolTx struct {
	tx *sql.Tx
	db *DB
}

func (p poolTx) exec(ctx context.Context, query string, args []any) (sql.Result, error) {
	if s, err := p.db.readStmt(ctx, query); err != nil {
		return nil, err
	} else if s != nil {
		return p.tx.StmtContext(ctx, s).ExecContext(ctx, args...)
	}
	return p.tx.ExecContext(ctx, query, args...)
}

func (p poolTx) query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	if s, err := p.db.readStmt(ctx, query); err != nil {
		return nil, err
	} else if s != nil {
		return p.tx.StmtContext(ctx, s).QueryContext(ctx, args...)
	}
	return p.tx.QueryContext(ctx, query, args...)
}

func (p poolTx) queryRow(ctx context.Context, query string, args []any) *sql.Row {
	if s, err := p.db.readStmt(ctx, query); err == nil && s != nil {
		return p.tx.StmtContext(ctx, s).QueryRowContext(ctx, args...)
	}
	return p.tx.QueryRowContext(ctx, p.db.engine.rewrite(query), args...)
}

// maxAttempts bounds how often PostgreSQL may ask for a transaction again.
// Deadlocks and serialization failures need an opponent each time, so this
// many in a row means something else is wrong.
const maxAttempts = 10

func (d *DB) writePostgres(ctx context.Context, fn func(*Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := d.writePostgresOnce(ctx, fn)
		if err == nil || !mustRetry(err) || attempt == maxAttempts {
			return err
		}
		select {
		case <-time.After(time.Duration(rand.Int64N(int64(attempt) * int64(5*time.Millisecond)))):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func (d *DB) writePostgresOnce(ctx context.Context, fn func(*Tx) error) error {
	sqlTx, err := d.pool.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer sqlTx.Rollback()
	tx := &Tx{Now: now(), engine: postgresEngine, conn: poolTx{tx: sqlTx, db: d}}
	if err := fn(tx); err != nil {
		return err
	}
	if err := sqlTx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	tx.committed()
	return nil
}
