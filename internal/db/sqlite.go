package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/kickstand-dev/kickstand/internal/loop"
)

// sqliteDSN returns a DSN with the pragmas of every connection. WAL allows reads beside the
// writer; synchronous FULL makes each commit durable.
func sqliteDSN(path string, pragmas ...string) string {
	q := url.Values{}
	q["_pragma"] = append([]string{
		"busy_timeout(10000)", // first, so that switching to WAL waits too
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"foreign_keys(1)",
		"temp_store(MEMORY)",
		"cache_size(-16000)",
	}, pragmas...)
	return sqliteFile(path) + "?" + q.Encode()
}

// sqliteFile returns a path as a DSN.
func sqliteFile(path string) string { return "file:" + (&url.URL{Path: path}).EscapedPath() }

// openSQLitePool returns a pool of connections that accept the common dialect.
func openSQLitePool(dsn string, l limits) (*sql.DB, error) {
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(sqliteConnector{c, l}), nil
}

type sqliteConnector struct {
	driver.Connector
	limits limits
}

// connectTimeout is how long a connection waits for others that create or recover the file.
const connectTimeout = 10 * time.Second

func isBusy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

func (c sqliteConnector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	// Connections that switch a new file to WAL at the same time fail at once, whatever the
	// busy timeout: one must retry.
	for deadline := time.Now().Add(connectTimeout); err != nil && isBusy(err) && time.Now().Before(deadline); {
		if ended := loop.Pause(ctx, time.Millisecond+rand.N(20*time.Millisecond)); ended != nil {
			return nil, ended
		}
		inner, err = c.Connector.Connect(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &sqliteConn{driverConn: inner.(driverConn), limits: c.limits, stmts: make(map[string]*sqliteStmt)}, nil
}

// driverConn is the part of the driver's connection that database/sql uses.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// maxStmts bounds the prepared statements cached by a connection. The program has a few hundred
// fixed ones; composed ones (list filters) could be more.
const maxStmts = 500

// sqliteConn is a driver connection that translates the common dialect (see [rewrite]) and
// caches prepared statements, because preparing one costs more than most take to run. Like any
// driver.Conn it is used by one goroutine at a time.
type sqliteConn struct {
	driverConn
	limits limits
	stmts  map[string]*sqliteStmt // by text before rewriting
	args   []driver.NamedValue    // scratch of exec
}

// sqliteStmt is a prepared statement. It has one cursor; [Tx] refuses statements while rows are
// open.
type sqliteStmt struct {
	driverStmt
	cached bool // in sqliteConn.stmts; otherwise closed after use
}

type driverStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

func (c *sqliteConn) prepare(ctx context.Context, query string) (*sqliteStmt, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	inner, err := c.driverConn.PrepareContext(ctx, rewrite(query))
	if err != nil {
		return nil, err
	}
	s := &sqliteStmt{inner.(driverStmt), len(c.stmts) < maxStmts}
	if s.cached {
		c.stmts[query] = s
	}
	return s, nil
}

func (s *sqliteStmt) release() error {
	if s.cached {
		return nil
	}
	return s.Close()
}

func (c *sqliteConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	res, err := s.ExecContext(ctx, args)
	return res, errors.Join(err, s.release())
}

func (c *sqliteConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	r := &sqliteRows{s: s, limits: c.limits, caller: ctx, limited: ctx, cancel: func() {}}
	if ctx.Done() != nil {
		r.limited, r.cancel = context.WithTimeout(ctx, c.limits.statementTimeout(ctx))
	}
	if r.Rows, err = s.QueryContext(r.limited, args); err != nil {
		err = r.timeoutOr(err)
		r.cancel()
		return nil, errors.Join(err, s.release())
	}
	return r, nil
}

// sqliteRows are the rows of a statement, bounded by its timeout.
type sqliteRows struct {
	driver.Rows
	s               *sqliteStmt
	limits          limits
	caller, limited context.Context
	cancel          context.CancelFunc
}

func (r *sqliteRows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err != nil && err != io.EOF {
		err = r.timeoutOr(err)
	}
	return err
}

// timeoutOr returns the timeout's error if the statement timed out, else err.
func (r *sqliteRows) timeoutOr(err error) error {
	if r.limited.Err() != nil && r.caller.Err() == nil {
		return r.limits.timeoutError(r.caller)
	}
	return err
}

func (r *sqliteRows) Close() error {
	defer r.cancel()
	return errors.Join(r.Rows.Close(), r.s.release())
}

// Close closes the statements first: SQLite does not close a connection with open statements,
// and only the last connection checkpoints the write-ahead log.
func (c *sqliteConn) Close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	clear(c.stmts)
	return errors.Join(append(errs, c.driverConn.Close())...)
}

// CheckNamedValue converts an argument: slices, for "= ANY", become JSON. It refuses a
// [time.Time], like PostgreSQL for BIGINT columns; use [Time].
func (c *sqliteConn) CheckNamedValue(v *driver.NamedValue) (err error) {
	switch x := v.Value.(type) {
	case string, int64, []byte, nil: // the frequent types, unchanged
	case []string:
		v.Value, err = jsonList(x)
	case []int64:
		v.Value, err = jsonList(x)
	case time.Time:
		err = errors.New("a time must be stored by db.Time")
	default:
		v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value)
	}
	return err
}

func jsonList[T any](list []T) (string, error) {
	if list == nil {
		return "[]", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// exec is ExecContext without database/sql, which doubles the cost of a small insert. It cannot
// be cancelled.
func (c *sqliteConn) exec(query string, args []any) (int64, error) {
	c.args = c.args[:0]
	defer func() { clear(c.args) }()
	for i, a := range args {
		v := driver.NamedValue{Ordinal: i + 1, Value: a}
		if err := c.CheckNamedValue(&v); err != nil {
			return 0, fmt.Errorf("argument $%d: %w", i+1, err)
		}
		c.args = append(c.args, v)
	}
	res, err := c.ExecContext(context.Background(), query, c.args)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
