// Package db gives the rest of Kickstand one way to talk to either engine:
// SQLite inside the process, or a PostgreSQL server.
//
// # Statements
//
// A statement is written once, in the subset both engines share, with
// PostgreSQL's placeholders. What differs is rewritten in one place (see
// [rewrite]): placeholders, row-lock suffixes, "= ANY($n)" over a slice, and in
// migrations the two type names that differ. Time is always an argument, taken
// from [Tx.Now]; never now().
//
// # Writing
//
// [DB.Write] runs a function in a transaction. On SQLite there is one writer,
// which takes whatever functions are waiting, runs each in a savepoint of its
// own inside one transaction, commits once, and only then answers: many callers
// share one flush to disk, and a function that fails takes nobody with it. On
// PostgreSQL each function is a transaction of its own, run again when the
// server asks for it (serialization failure, deadlock).
//
// So a function may run more than once, and must not wait for anything but the
// database, nor change anything outside of it: what shall happen once the
// change is durable goes into [Tx.AfterCommit].
//
// When Write returns nil, the change is on disk. When it returns an error,
// nothing was changed, with one exception that no database can avoid: a server
// that is lost while it commits may have done so.
//
// What PostgreSQL refuses, SQLite refuses too, so that tests on the one tell
// about the other: a statement after a failed one, a statement beside rows that
// are still open, a time as an argument.
package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/jackc/pgx/v5"
)

// idleReader is how long a connection of SQLite's that reads stays open without use: each
// has a copy of the schema in memory.
const idleReader = 15 * time.Second

// ErrNoRows is what a single-row scan returns when there is none.
var ErrNoRows = sql.ErrNoRows

// DB is an open database. It is safe for concurrent use.
type DB struct {
	engine engine
	url    string
	log    *slog.Logger
	// namespace is the schema of PostgreSQL's, empty for the usual one.
	namespace string
	pool      *sql.DB // PostgreSQL: everything; SQLite: readers, which cannot write
	writer    *writer // SQLite only
	commits   commits // SQLite only

	bulkReads chan struct{} // holds one for each ReadSlowly that runs

	// damagedAt is when a table or index was last found damaged, in microseconds; 0: never.
	damagedAt atomic.Int64

	closing sync.Mutex // guards closed against work that begins
	closed  chan struct{}
	work    sync.WaitGroup // PostgreSQL: writes and tellers under way
}

type engine uint8

const (
	sqliteEngine engine = iota
	postgresEngine
)

// Options tunes [Open]. The zero value is right for a server.
type Options struct {
	Logger *slog.Logger // nil discards
	// MaxConns bounds the PostgreSQL connections; 0 means 24.
	MaxConns int
	// Namespace is the schema of a PostgreSQL database in which the tables are;
	// empty: the one that the URL or the server says. [DB.Migrate] makes it. On
	// SQLite it means nothing: there each database is a file.
	Namespace string

	limits limits // zero: usual
}

// Open opens the database that rawURL names: "sqlite:PATH" or
// "postgres://…" as understood by pgx. It neither creates nor checks tables;
// see [DB.Migrate]. The caller closes it.
func Open(ctx context.Context, rawURL string, o Options) (*DB, error) {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &DB{url: rawURL, log: log, bulkReads: make(chan struct{}, maxBulkReads), closed: make(chan struct{})}
	scheme, rest, _ := strings.Cut(rawURL, ":")
	switch scheme {
	case "sqlite":
		if err := d.openSQLite(ctx, rest, cmp.Or(o.limits, defaultLimits)); err != nil {
			return nil, err
		}
	case "postgres", "postgresql":
		if err := d.openPostgres(ctx, rawURL, o); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New(`database URL must start with "sqlite:" or "postgres:"`)
	}
	return d, nil
}

func (d *DB) openSQLite(ctx context.Context, path string, l limits) error {
	if path == "" || strings.Contains(path, ":memory:") {
		return errors.New("sqlite needs a file: sqlite:PATH")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("database path: %w", err)
	}
	if _, err := os.Stat(filepath.Dir(abs)); err != nil {
		return fmt.Errorf("folder of the database: %w", err)
	}
	d.engine = sqliteEngine
	d.writer, err = openWriter(ctx, abs, &d.commits.local)
	if err != nil {
		return fmt.Errorf("open database %s: %w", abs, err)
	}
	// Readers must not make the file: were it moved away, an empty one would
	// take its place and stay.
	// They read the file as memory, as far as SQLite maps one: a long read is not
	// a system call and a copy for each page. What is mapped is the system's cache
	// and no memory of ours.
	d.pool, err = openSQLitePool(sqliteDSN(abs, "query_only(1)", "mmap_size(2147418112)")+"&mode=rw", l)
	if err != nil {
		d.writer.close()
		return fmt.Errorf("open database %s for reading: %w", abs, err)
	}
	d.pool.SetMaxOpenConns(max(4, 2*runtime.NumCPU()) + maxBulkReads + 1) // one sees commits
	d.pool.SetMaxIdleConns(max(4, 2*runtime.NumCPU()))
	d.pool.SetConnMaxIdleTime(idleReader)
	return nil
}

func (d *DB) openPostgres(ctx context.Context, rawURL string, o Options) error {
	cfg, err := pgx.ParseConfig(rawURL)
	if err != nil {
		// pgx masks the password in its own text, but not in every form.
		return errors.New("the postgres database URL cannot be parsed")
	}
	maxConns := cmp.Or(o.MaxConns, 24)
	path := pgx.Identifier{o.Namespace}.Sanitize()
	if o.Namespace != "" {
		cfg.RuntimeParams["search_path"] = path
	}
	d.engine = postgresEngine
	d.namespace = o.Namespace
	d.pool = sql.OpenDB(newConnector(cfg, cmp.Or(o.limits, defaultLimits)))
	d.pool.SetMaxOpenConns(maxConns)
	d.pool.SetMaxIdleConns(maxConns)
	d.pool.SetConnMaxIdleTime(5 * time.Minute)
	if err := d.pool.PingContext(ctx); err != nil {
		d.pool.Close()
		return fmt.Errorf("connect to postgres at %s: %w", cfg.Host, err)
	}
	if o.Namespace == "" {
		return nil
	}
	// A pooler in front of the server may drop what it does not know of a connection:
	// then the tables of every namespace would be the same ones.
	var got string
	err = d.pool.QueryRowContext(ctx, "SELECT current_setting('search_path')").Scan(&got)
	if err == nil && got != path {
		err = fmt.Errorf("connections do not keep their search_path: it is %q, not %q", got, path)
	}
	if err != nil {
		d.pool.Close()
		return fmt.Errorf("use a schema of postgres at %s: %w", cfg.Host, err)
	}
	return nil
}

// Close waits for the writes under way and for what is being told, and closes
// every connection. Writes that come later fail, and [DB.Listen] returns. Closing
// twice is fine.
func (d *DB) Close() error {
	if !d.close() {
		return nil
	}
	d.work.Wait()
	// The writer goes last: the last connection to close merges SQLite's
	// write-ahead log into the file, which readers may not do.
	d.commits.close()
	err := d.pool.Close()
	if d.writer != nil {
		err = errors.Join(err, d.writer.close())
	}
	return err
}

func (d *DB) close() (first bool) {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.isClosed() {
		return false
	}
	close(d.closed)
	return true
}

// begin notes work that Close waits for, which calls d.work.Done at its end. It
// reports false when it is too late for that.
func (d *DB) begin() bool {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.isClosed() {
		return false
	}
	d.work.Add(1)
	return true
}

func (d *DB) isClosed() bool {
	select {
	case <-d.closed:
		return true
	default:
		return false
	}
}

// Postgres reports which of the two engines this is. Only tests, diagnosis and
// full-text search need to know.
func (d *DB) Postgres() bool { return d.engine == postgresEngine }

// Ping reports whether the database can be written, by writing nothing in a
// transaction of its own. A standby of PostgreSQL cannot.
func (d *DB) Ping(ctx context.Context) error {
	return d.Write(ctx, func(tx *Tx) error {
		if tx.engine == sqliteEngine {
			return nil
		}
		var readOnly bool
		if err := tx.QueryRow(ctx, "SELECT current_setting('transaction_read_only')::boolean").Scan(&readOnly); err != nil {
			return err
		}
		if readOnly {
			return problem.New(problem.Unavailable, "the database is read-only")
		}
		return nil
	})
}

// Querier reads. It is a [*DB] (each statement on its own) or a [*Tx].
// Rows must be read to the end or closed before the next statement of the same
// Tx; [All] and [One] take care of that.
type Querier interface {
	Query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) *sql.Row
}

var (
	_ Querier = (*DB)(nil)
	_ Querier = (*Tx)(nil)
)

// Query runs one reading statement outside of any transaction.
func (d *DB) Query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := d.pool.QueryContext(ctx, query, args...)
	return rows, d.classify(ctx, err)
}

// QueryRow runs one reading statement outside of any transaction. Errors come
// from Scan.
func (d *DB) QueryRow(ctx context.Context, query string, args ...any) *sql.Row {
	row := d.pool.QueryRowContext(ctx, query, args...)
	if err := row.Err(); err != nil {
		return errorRow(d.classify(ctx, err))
	}
	return row
}

// Lookup is [DB.QueryRow] for a row that is found by its key. On SQLite that is
// over sooner than the end of ctx could be noticed, and watching for it would
// take longer than the read: there ctx is only looked at before.
func (d *DB) Lookup(ctx context.Context, query string, args ...any) *sql.Row {
	if d.engine == sqliteEngine && ctx.Err() == nil {
		ctx = context.WithoutCancel(ctx)
	}
	return d.QueryRow(ctx, query, args...)
}

// Read runs fn over one consistent snapshot. Statements that write fail.
func (d *DB) Read(ctx context.Context, fn func(tx *Tx) error) error {
	opts := &sql.TxOptions{ReadOnly: true}
	if d.engine == postgresEngine {
		opts.Isolation = sql.LevelRepeatableRead
	}
	sqlTx, err := d.pool.BeginTx(ctx, opts)
	if err != nil {
		return d.classify(ctx, err)
	}
	defer sqlTx.Rollback()
	tx := &Tx{Now: now(), engine: d.engine, namespace: d.namespace, conn: poolTx{sqlTx}}
	if err = tx.setLongTimeouts(ctx); err == nil {
		err = fn(tx)
	}
	if failed := tx.end(); err == nil {
		err = failed
	}
	return d.classify(ctx, err)
}

// Bounds of [DB.ReadBulk].
const (
	maxBulkReads = 4
	slowWait     = 5 * time.Second
)

// ReadBulk is [DB.Read] for an fn that waits for somebody outside: a client who
// takes an export. Only a few run at a time, so that connections are left for
// everybody else. One more waits for its turn, and is [problem.Unavailable] when
// that does not come soon.
func (d *DB) ReadBulk(ctx context.Context, fn func(tx *Tx) error) error {
	turn, cancel := context.WithTimeout(ctx, slowWait)
	defer cancel()
	select {
	case d.bulkReads <- struct{}{}:
		defer func() { <-d.bulkReads }()
		return d.Read(LongRunning(ctx, "export"), fn)
	case <-turn.Done():
		if err := ctx.Err(); err != nil {
			return d.classify(ctx, err)
		}
		return problem.New(problem.Unavailable, "too many exports are running")
	}
}

// Write runs fn in a transaction and returns when it is durable, or has failed
// and changed nothing. See the package comment for what fn may do.
//
// An error of fn is returned as it is. When the store itself fails, the error
// is a [problem.Unavailable].
func (d *DB) Write(ctx context.Context, fn func(tx *Tx) error) error {
	if d.engine == sqliteEngine {
		return d.classify(ctx, d.writer.do(ctx, fn))
	}
	return d.classify(ctx, d.writePostgres(ctx, fn))
}

// classify turns the failures of the store into problem.Unavailable, once, so
// that no surface has to know the engines' codes.
func (d *DB) classify(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	// The caller's time was not over: ours was.
	if isContext(err) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errHangs, err)
	}
	if !isUnavailable(err) {
		return err
	}
	if isCorrupt(err) {
		d.damagedAt.Store(time.Now().UnixMicro())
	}
	if problem.Of(err) != problem.Internal {
		return err
	}
	return problem.New(problem.Unavailable, "the database cannot be used right now; try again").Because(err)
}

// now is the time a transaction gives to all its rows: microseconds, because
// that is what both engines keep.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// All runs query and scans every row. A failure of the store is a
// [problem.Unavailable], as from [DB.Query].
func All[T any](ctx context.Context, q Querier, scan func(Row) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	err = rows.Err()
	if d, ok := q.(*DB); ok {
		err = d.classify(ctx, err)
	}
	return out, err
}

// One runs query and scans its single row; [ErrNoRows] when there is none.
func One[T any](ctx context.Context, q Querier, scan func(Row) (T, error), query string, args ...any) (T, error) {
	return scan(q.QueryRow(ctx, query, args...))
}

// Row is what a scan function reads from: *sql.Row or *sql.Rows.
type Row interface{ Scan(dest ...any) error }
