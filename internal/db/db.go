// Package db is the access to Kickstand's database on either engine: embedded SQLite or a
// PostgreSQL server.
//
// # Statements
//
// Statements are written once, in the subset of SQL that both engines share, with PostgreSQL's
// placeholders. [rewrite] adapts the differences for SQLite: placeholders, row-lock suffixes,
// "= ANY($n)" over a slice, and two type names in migrations. The time is always an argument
// taken from [Tx.Now], never now().
//
// # Time
//
// [Tx.Now] and [DB.Now] are the database's time: on PostgreSQL by the server's clock, on which
// all processes agree. Everything shared (leases, due times, expiries, windows, stored times)
// uses them. [time.Now] is for measured durations and log lines.
//
// # Writing
//
// [DB.Write] runs a function in a transaction. On SQLite a single writer groups the waiting
// functions: it runs them in one transaction, commits once, and then returns to the callers. So
// many callers share one flush to disk. A failing function affects no other: the group then runs
// again, each function in a savepoint. On PostgreSQL each function is a separate transaction, retried after serialization
// failures and deadlocks.
//
// So a function may run more than once. It must wait only for the database and have no side
// effects outside of it; actions that follow a durable change belong into [Tx.AfterCommit].
//
// If Write returns nil, the change is on disk. If it returns an error, nothing has changed,
// with one unavoidable exception: a server that is lost during the commit may have committed.
//
// SQLite is made to refuse the same as PostgreSQL, so that tests on one engine are valid for
// the other: a statement after a failed one, a statement while rows are open, a time as an
// argument.
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

	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// idleReader is the time after which an unused SQLite reader is closed, except for one: each holds
// a copy of the schema in memory, which takes milliseconds to parse.
const idleReader = 15 * time.Second

// ErrNoRows is the error of a single-row scan without a row.
var ErrNoRows = sql.ErrNoRows // so that code of the standard library knows it

// DB is an open database. It is safe for concurrent use.
type DB struct {
	engine engine
	url    string
	log    *slog.Logger
	// namespace is the PostgreSQL schema; empty: the server's default.
	namespace string
	wall      func() time.Time
	local     *localClock
	ids       *ids

	// SQLite only.
	readers *pool[*sqliteConn]
	writer  *writer

	// PostgreSQL only.
	connections *pool[*postgresConn]
	server      *serverClock
	connector   *connector
	direct      *connector // without a pooler; nil: not configured
	groups      groups

	commits   commits   // SQLite only
	simulator Simulator // nil but in simulations
	observer  *Observer // nil: none
	trouble   *loop.Trouble

	bulkReads chan struct{} // holds one value per running ReadBulk

	// damagedAt is the last time a damaged table or index was found, in microseconds; 0: never.
	damagedAt atomic.Int64
	// fullAt is the last time a statement found no space on the disk, in microseconds; 0: never,
	// or a probe has found some since.
	fullAt atomic.Int64

	newest atomic.Int64 // the last migration that this program knows; 0: it has not migrated
	fenced atomic.Bool  // see [DB.CheckFence]

	closing sync.Mutex // guards closed against beginning work
	closed  chan struct{}
	work    sync.WaitGroup // PostgreSQL: running writes and notifiers
}

type engine uint8

const (
	sqliteEngine engine = iota
	postgresEngine
)

// Options configures [Open]. The zero value is right for a server.
type Options struct {
	Logger *slog.Logger // nil discards
	// MaxConns bounds the PostgreSQL connections; 0 means 24.
	MaxConns int
	// DirectURL leads to the same PostgreSQL database without a pooler, for [DB.Listen]. Empty:
	// the URL of the database, or polling if that leads to a pooler.
	DirectURL string
	// Namespace is the PostgreSQL schema of the tables, which [DB.Migrate] creates; empty: the
	// default of the URL or the server. SQLite ignores it.
	Namespace string
	// Wall is the process's wall clock, nil: [time.Now]. Tests set it wrong.
	Wall func() time.Time
	// Observer measures the database; nil: nothing does.
	Observer *Observer

	limits limits // zero: defaultLimits
}

// Open opens the database at rawURL: "sqlite:PATH" or "postgres://…" as understood by pgx. It
// neither creates nor checks tables; see [DB.Migrate]. The caller closes it.
func Open(ctx context.Context, rawURL string, o Options) (*DB, error) {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &DB{url: rawURL, log: log, bulkReads: make(chan struct{}, maxBulkReads), closed: make(chan struct{}), wall: o.Wall,
		ids: new(ids), observer: o.Observer, trouble: loop.NewTrouble(log, "the database is unavailable")}
	if d.wall == nil {
		d.wall = time.Now
	}
	d.local = &localClock{wall: d.wall}
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
	d.writer, err = openWriter(ctx, abs, &d.commits.local, d.local, d.ids, d.observer)
	if err != nil {
		return fmt.Errorf("open database %s: %w", abs, err)
	}
	// Readers must not create the file: if it were moved away, an empty one would take its
	// place.
	//
	// They read the file by mmap, as far as SQLite maps it, which saves a system call and a
	// copy per page. Mapped pages belong to the system's cache, not to the process.
	const pragmas = "PRAGMA query_only = 1; PRAGMA mmap_size = 2147418112"
	most := max(4, 2*runtime.NumCPU()) + maxBulkReads + 1 // one detects commits
	d.readers = newPool(most, 1, idleReader, func(ctx context.Context) (*sqliteConn, error) {
		c, err := openSQLiteConn(ctx, abs, 0, pragmas, l)
		if err != nil {
			return nil, fmt.Errorf("open database %s for reading: %w", abs, err)
		}
		return c, nil
	}, func(c *sqliteConn) {
		if err := c.close(); err != nil {
			d.log.Warn("closing a connection", "error", err)
		}
	})
	return nil
}

// Close waits for running writes and pending notifications, then closes all connections. Later
// writes fail, and [DB.Listen] returns. It is idempotent.
func (d *DB) Close() error {
	if !d.close() {
		return nil
	}
	d.work.Wait()
	if d.simulator != nil {
		return nil
	}
	// The writer closes last: the last connection checkpoints the write-ahead log into the
	// file, which read-only connections cannot.
	if d.engine == postgresEngine {
		d.connections.Close()
		return nil
	}
	d.commits.close()
	d.readers.Close()
	return d.writer.close()
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

// begin registers work that Close waits for; the caller calls d.work.Done at its end. It
// returns false after Close.
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

// Postgres reports whether the engine is PostgreSQL. Only tests, diagnosis and full-text search
// depend on it.
func (d *DB) Postgres() bool { return d.engine == postgresEngine }

// Ping reports whether the database accepts writes, by an empty write transaction. A PostgreSQL
// standby does not.
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

// Querier runs reading statements: a [*DB] (each statement on its own) or a [*Tx]. Rows must be
// read to the end or closed before the next statement of the same Tx, as [All] and [One] do.
type Querier interface {
	Query(ctx context.Context, query string, args ...any) (*Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) Row
}

var (
	_ Querier = (*DB)(nil)
	_ Querier = (*Tx)(nil)
)

// Query runs one reading statement outside of any transaction.
func (d *DB) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	if err := d.fence(); err != nil {
		return nil, err
	}
	if d.simulator != nil {
		if err := d.simulator.Read(ctx); err != nil {
			return nil, err
		}
	}
	defer d.observe("query", time.Now())
	d.observer.run(query)
	var rows *Rows
	var err error
	if d.engine == sqliteEngine {
		rows, err = d.querySQLite(ctx, query, args)
	} else {
		rows, err = d.queryPostgres(ctx, query, args)
	}
	return rows, d.classify(ctx, err)
}

func (d *DB) querySQLite(ctx context.Context, query string, args []any) (*Rows, error) {
	r, err := d.readers.acquire(ctx)
	if err != nil {
		return nil, err
	}
	s, err := r.Value().query(ctx, query, args)
	if err != nil {
		d.readers.release(r, false)
		return nil, err
	}
	return newRows(s, func(err error) error {
		d.readers.release(r, false)
		return d.classify(ctx, err)
	}), nil
}

// QueryRow runs one reading statement outside of any transaction. Errors come
// from Scan.
func (d *DB) QueryRow(ctx context.Context, query string, args ...any) Row {
	return firstOf(d.Query(ctx, query, args...))
}

// Lookup is [DB.QueryRow] for a row found by its key. On SQLite such a read is faster than
// watching ctx, so ctx is checked only before.
func (d *DB) Lookup(ctx context.Context, query string, args ...any) Row {
	if d.engine == sqliteEngine && ctx.Err() == nil {
		ctx = context.WithoutCancel(ctx)
	}
	return d.QueryRow(ctx, query, args...)
}

// Read runs fn over one consistent snapshot. Statements that write fail.
func (d *DB) Read(ctx context.Context, fn func(tx *Tx) error) error {
	if err := d.fence(); err != nil {
		return err
	}
	if d.simulator != nil {
		if err := d.simulator.Read(ctx); err != nil {
			return err
		}
	}
	defer d.observe("read", time.Now())
	if d.engine == sqliteEngine {
		return d.classify(ctx, d.readSQLite(ctx, fn))
	}
	return d.classify(ctx, d.readPostgres(ctx, fn))
}

func (d *DB) readSQLite(ctx context.Context, fn func(tx *Tx) error) (err error) {
	r, err := d.readers.acquire(ctx)
	if err != nil {
		return err
	}
	c := r.Value()
	defer func() {
		broken := false
		if !c.AutocommitEnabled() {
			_, failed := c.exec("ROLLBACK", nil)
			broken = failed != nil
		}
		d.readers.release(r, broken)
	}()
	if _, err := c.exec("BEGIN", nil); err != nil {
		return err
	}
	tx := &Tx{Now: d.Now(), engine: sqliteEngine, ids: d.ids, session: reader{c}, observer: d.observer}
	defer tx.end() // also after a panic
	err = fn(tx)
	if failed := tx.end(); err == nil {
		err = failed
	}
	return err
}

// reader is the [session] of a transaction that reads from SQLite.
type reader struct{ *sqliteConn }

func (r reader) usable() error { return nil }

func (r reader) exec(_ context.Context, query string, args []any) (int64, error) {
	return r.sqliteConn.exec(query, args)
}

func (r reader) queue(_ context.Context, query string, args []any) error {
	_, err := r.sqliteConn.exec(query, args)
	return err
}

func (r reader) query(ctx context.Context, query string, args []any) (cursor, error) {
	s, err := r.sqliteConn.query(ctx, query, args)
	if err != nil { // not an interface with a nil pointer
		return nil, err
	}
	return s, nil
}

// Bounds of [DB.ReadBulk].
const (
	maxBulkReads = 4
	slowWait     = 5 * time.Second
)

// ReadBulk is [DB.Read] for an fn that waits for an outside party, such as the client of an
// export. Few run at a time, so that connections remain for other reads. A further call waits
// for its turn, and fails with [problem.Unavailable] after a while. The statements of fn must have its
// ctx, with which they may take as long as those of [LongRunning]: rows are read at the pace of
// the outside party.
func (d *DB) ReadBulk(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	turn, cancel := context.WithTimeout(ctx, slowWait)
	defer cancel()
	select {
	case d.bulkReads <- struct{}{}:
		defer func() { <-d.bulkReads }()
		ctx = LongRunning(ctx, "export")
		return d.Read(ctx, func(tx *Tx) error { return fn(ctx, tx) })
	case <-turn.Done():
		if err := ctx.Err(); err != nil {
			return d.classify(ctx, err)
		}
		return problem.New(problem.Unavailable, "too many exports are running")
	}
}

// Write runs fn in a transaction and returns once it is durable, or has failed without changes.
// See the package comment for the rules of fn.
//
// It returns fn's error unchanged. If the store fails, the error is a [problem.Unavailable].
func (d *DB) Write(ctx context.Context, fn func(tx *Tx) error) error {
	if err := d.fence(); err != nil {
		return err
	}
	if d.simulator != nil {
		return d.classify(ctx, d.writeSimulated(ctx, fn))
	}
	defer d.observe("write", time.Now())
	if d.engine == sqliteEngine {
		return d.classify(ctx, d.writer.do(ctx, fn))
	}
	return d.classify(ctx, d.writePostgres(ctx, fn))
}

const (
	firstPause = 100 * time.Millisecond
	maxPause   = time.Second
)

// WriteUntilDone writes the outcome of work that cannot be repeated, also after work has ended.
// While the database or a store of files is unavailable it retries, until work ends.
func (d *DB) WriteUntilDone(work context.Context, fn func(tx *Tx) error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		last := work.Err() != nil
		err := d.Write(context.WithoutCancel(work), fn)
		if last || problem.Of(err) != problem.Unavailable {
			return err
		}
		loop.Pause(work, pause) // its end allows one more try
	}
}

// classify turns failures of the store into [problem.Unavailable], so that callers need not
// know the engines' error codes.
func (d *DB) classify(ctx context.Context, err error) error {
	if err == nil {
		d.note(ctx, nil)
		return nil
	}
	// Not the caller's deadline, but one of our limits.
	if isContext(err) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errHangs, err)
	}
	if !isUnavailable(err) {
		return err
	}
	d.note(ctx, err)
	if isCorrupt(err) {
		d.damagedAt.Store(time.Now().UnixMicro())
	}
	if isFull(err) {
		d.fullAt.Store(time.Now().UnixMicro())
	}
	if problem.Of(err) != problem.Internal {
		return err
	}
	return problem.New(problem.Unavailable, "the database cannot be used right now; try again").Because(err)
}

// All runs query and scans every row. If the store fails, the error is a [problem.Unavailable].
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
	return out, rows.Err()
}

// One runs query and scans its single row; the error is [ErrNoRows] without a row.
func One[T any](ctx context.Context, q Querier, scan func(Row) (T, error), query string, args ...any) (T, error) {
	return scan(q.QueryRow(ctx, query, args...))
}
