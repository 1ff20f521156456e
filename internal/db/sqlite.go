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
)

// sqliteDSN spells the settings that every connection gets. WAL lets readers
// work beside the writer; FULL makes each commit wait for the disk.
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

// sqliteFile names a file in a DSN.
func sqliteFile(path string) string { return "file:" + (&url.URL{Path: path}).EscapedPath() }

// openSQLitePool returns a pool of connections that speak the common dialect.
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

// connectTimeout is how long a connection waits for others that make or recover
// the file at the same time.
const connectTimeout = 10 * time.Second

func isBusy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

func (c sqliteConnector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	// Two that switch a new file to WAL at once are told so at once, whatever
	// the busy timeout: one of them must let go.
	for deadline := time.Now().Add(connectTimeout); err != nil && isBusy(err) && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond + rand.N(20*time.Millisecond)):
		}
		inner, err = c.Connector.Connect(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &sqliteConn{driverConn: inner.(driverConn), limits: c.limits, stmts: make(map[string]*sqliteStmt)}, nil
}

// driverConn is what the driver's connection can do and database/sql uses.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// maxStmts bounds the statements that a connection keeps compiled. There are
// a few hundred in the program; those that are put together from parts (a
// list's filters) could be more.
const maxStmts = 500

// sqliteConn is the driver's connection, taught what the common dialect has
// and SQLite has not (see [rewrite]), and keeping its statements
// compiled, because compiling one costs more than most take to run. Like any
// driver.Conn it is used by one goroutine at a time.
type sqliteConn struct {
	driverConn
	limits limits
	stmts  map[string]*sqliteStmt // by the statement as written
	args   []driver.NamedValue    // of exec, kept to be used again
}

// sqliteStmt is a compiled statement. It has one cursor; [Tx] sees to it that
// no statement runs beside rows that are still open.
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

// sqliteRows are the rows of a statement, as long as its time lasts.
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

// timeoutOr returns err, or that the statement took too long if that is why.
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

// Close ends the statements first: SQLite keeps a connection whose statements
// are not all ended, and only the last one to go merges the write-ahead log.
func (c *sqliteConn) Close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	clear(c.stmts)
	return errors.Join(append(errs, c.driverConn.Close())...)
}

// CheckNamedValue adapts an argument: slices, for "= ANY", become JSON. A time
// is refused, as PostgreSQL refuses it for the BIGINT that [Time] makes of it.
func (c *sqliteConn) CheckNamedValue(v *driver.NamedValue) (err error) {
	switch x := v.Value.(type) {
	case string, int64, []byte, nil: // the frequent ones, as they are
	case []string:
		v.Value, err = jsonList(x)
	case []int64:
		v.Value, err = jsonList(x)
	case time.Time:
		err = errors.New("a time is stored as what db.Time makes of it")
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

// exec is ExecContext with arguments as they come and nothing in between;
// database/sql doubles the cost of a small insert. It cannot be cancelled.
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
