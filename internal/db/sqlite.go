package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/kickstand-dev/kickstand/internal/loop"
)

// sqlitePragmas are the settings of every connection. WAL allows reads beside the writer;
// synchronous FULL makes each commit durable.
const sqlitePragmas = `
	PRAGMA journal_mode = WAL;
	PRAGMA synchronous = FULL;
	PRAGMA foreign_keys = 1;
	PRAGMA temp_store = MEMORY;
	PRAGMA cache_size = -16000;`

const (
	// busyTimeout is how long a statement waits for the locks of other processes.
	busyTimeout = 10 * time.Second
	// connectTimeout is how long a connection waits for others that create or recover the file.
	connectTimeout = 10 * time.Second
)

// sqliteCode returns the extended result code of SQLite in err. Other errors have
// [sqlite.ResultError], the code of errors in statements.
func sqliteCode(err error) sqlite.ResultCode { return sqlite.ErrCode(err) }

// maxStmts bounds the prepared statements cached by a connection. The program has a few hundred
// fixed ones; composed ones (list filters) could be more.
const maxStmts = 500

// sqliteConn is a connection to SQLite that translates the common dialect (see [rewrite]) and
// caches prepared statements, because preparing one costs more than most take to run. It is
// used by one goroutine at a time.
type sqliteConn struct {
	*sqlite.Conn
	limits limits
	stmts  map[string]*sqliteStmt // by text before rewriting

	// A watched statement is interrupted by closing the channel.
	mu        sync.Mutex
	interrupt chan struct{}
	watch     int64       // number of the running watch; 0: none
	watches   int64       // so far
	deadline  time.Time   // of the watch
	reason    error       // of the interrupt; nil: none
	timer     *time.Timer // of all watches
}

// openSQLiteConn opens a connection with further pragmas.
func openSQLiteConn(ctx context.Context, path string, flags sqlite.OpenFlags, pragmas string, l limits) (*sqliteConn, error) {
	for deadline := time.Now().Add(connectTimeout); ; {
		c, err := trySQLiteConn(path, flags, pragmas, l)
		// Connections that switch a new file to WAL at the same time fail at once, whatever the
		// busy timeout: one must retry.
		if err == nil || sqliteCode(err).ToPrimary() != sqlite.ResultBusy || time.Now().After(deadline) {
			return c, err
		}
		if ended := loop.Pause(ctx, time.Millisecond+rand.N(20*time.Millisecond)); ended != nil {
			return nil, ended
		}
	}
}

func trySQLiteConn(path string, flags sqlite.OpenFlags, pragmas string, l limits) (*sqliteConn, error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|flags)
	if err != nil {
		return nil, err
	}
	conn.SetBusyTimeout(busyTimeout)
	c := &sqliteConn{Conn: conn, limits: l, stmts: make(map[string]*sqliteStmt)}
	if err := c.script(sqlitePragmas + pragmas); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// close closes the connection with its statements. Only the last connection checkpoints the
// write-ahead log.
func (c *sqliteConn) close() error {
	if c.timer != nil {
		c.timer.Stop()
	}
	return c.Conn.Close()
}

// script runs several statements without arguments.
func (c *sqliteConn) script(text string) error {
	for text = statementOf(text); text != ""; {
		s, rest, err := c.PrepareTransient(text)
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			more, err = s.Step()
		}
		if closed := s.Finalize(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
		text = statementOf(text[len(text)-rest:])
	}
	return nil
}

// statementOf returns text without the space and the line comments before its first statement.
func statementOf(text string) string {
	for {
		text = strings.TrimLeft(text, " \t\r\n;")
		if !strings.HasPrefix(text, "--") {
			return text
		}
		_, text, _ = strings.Cut(text, "\n")
	}
}

// sqliteStmt is a prepared statement and the cursor over its rows: it has one, and [Tx] refuses
// statements while rows are open.
type sqliteStmt struct {
	*sqlite.Stmt
	conn   *sqliteConn
	params int
	cached bool // in sqliteConn.stmts; otherwise finalized after use
	large  bool // an argument holds much memory until it is replaced

	ahead bool // the first row was read and next has not returned it
	ended bool // there are no more rows
	err   error
	stop  func() error // of the watch; nil: none
}

// largeArguments is the size of arguments from which a statement releases them after use, in
// bytes.
const largeArguments = 64 << 10

func (c *sqliteConn) prepare(query string) (*sqliteStmt, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	s := &sqliteStmt{conn: c, cached: len(c.stmts) < maxStmts}
	var err error
	if s.cached {
		s.Stmt, err = c.Conn.Prepare(rewrite(query))
	} else {
		s.Stmt, _, err = c.PrepareTransient(rewrite(query))
	}
	if err != nil {
		return nil, err
	}
	s.params = s.BindParamCount()
	if s.cached {
		c.stmts[query] = s
	}
	return s, nil
}

// release ends the use of a statement.
func (s *sqliteStmt) release() error {
	if !s.cached {
		return s.Finalize()
	}
	err := s.Reset()
	if s.large {
		s.large = false
		err = errors.Join(err, s.ClearBindings())
	}
	return err
}

// start prepares a statement and binds its arguments.
func (c *sqliteConn) start(query string, args []any) (*sqliteStmt, error) {
	s, err := c.prepare(query)
	if err != nil {
		return nil, err
	}
	if len(args) != s.params {
		return nil, errors.Join(fmt.Errorf("the statement has %d parameters, got %d arguments: %s", s.params, len(args), query), s.release())
	}
	for i, arg := range args {
		if err := s.bind(i+1, arg); err != nil {
			return nil, errors.Join(fmt.Errorf("argument $%d: %w", i+1, err), s.release())
		}
	}
	return s, nil
}

// exec runs a statement to its end and returns the number of changed rows. It cannot be
// cancelled.
func (c *sqliteConn) exec(query string, args []any) (int64, error) {
	if len(args) == 0 && strings.Contains(query, ";") {
		err := c.script(rewrite(query))
		return int64(c.Changes()), err
	}
	s, err := c.start(query, args)
	if err != nil {
		return 0, err
	}
	for more := true; more && err == nil; {
		more, err = s.Step()
	}
	n := int64(c.Changes())
	if released := s.release(); err == nil {
		err = released
	}
	return n, err
}

// query runs a statement up to its first row. It ends with ctx, or by the limit of ctx's
// statements, unless ctx cannot be cancelled.
func (c *sqliteConn) query(ctx context.Context, query string, args []any) (*sqliteStmt, error) {
	var stop func() error
	if ctx.Done() != nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		stop = c.begin(ctx)
	}
	s, err := c.start(query, args)
	if err != nil {
		if stop != nil {
			err = cmp.Or(stop(), err)
		}
		return nil, err
	}
	s.stop = stop
	s.ended, s.ahead, s.err = false, true, nil
	if s.step(); s.err != nil {
		return nil, s.close()
	}
	return s, nil
}

func (s *sqliteStmt) step() {
	var more bool
	more, s.err = s.Step()
	s.ended = !more
}

// next implements [cursor].
func (s *sqliteStmt) next() bool {
	if s.ahead {
		s.ahead = false
	} else if !s.ended {
		s.step()
	}
	return !s.ended
}

// columns implements [cursor].
func (s *sqliteStmt) columns() []string {
	names := make([]string, s.ColumnCount())
	for i := range names {
		names[i] = s.ColumnName(i)
	}
	return names
}

// close implements [cursor].
func (s *sqliteStmt) close() error {
	err := s.err
	if released := s.release(); err == nil {
		err = released
	}
	if s.stop != nil {
		err = cmp.Or(s.stop(), err)
		s.stop = nil
	}
	return err
}

// begin interrupts the running statement when ctx ends or the statement exceeds its limit. end,
// which the connection's goroutine calls, ends that and returns the reason of an interrupt.
func (c *sqliteConn) begin(ctx context.Context) (end func() error) {
	if c.interrupt == nil {
		c.interrupt = make(chan struct{})
		c.SetInterrupt(c.interrupt)
	}
	limit := c.limits.statementTimeout(ctx)
	c.mu.Lock()
	c.watches++
	n := c.watches
	c.watch, c.deadline, c.reason = n, time.Now().Add(limit), nil
	c.mu.Unlock()
	if c.timer == nil {
		c.timer = time.AfterFunc(limit, c.expire)
	} else {
		c.timer.Reset(limit)
	}
	release := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.watch == n {
			c.stopStatement(ctx.Err())
		}
	})
	return func() error {
		release()
		c.timer.Stop()
		c.mu.Lock()
		c.watch = 0
		reason := c.reason
		c.mu.Unlock()
		if reason == nil {
			return nil
		}
		c.interrupt = nil
		c.SetInterrupt(nil)
		if reason == errSlow {
			return c.limits.timeoutError(ctx)
		}
		return reason
	}
}

// expire interrupts a statement that exceeds its limit. The timer may have been set for an
// earlier one.
func (c *sqliteConn) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watch != 0 && !time.Now().Before(c.deadline) {
		c.stopStatement(errSlow)
	}
}

// stopStatement interrupts the watched statement. c.mu is held.
func (c *sqliteConn) stopStatement(reason error) {
	if c.reason == nil {
		c.reason = reason
		close(c.interrupt)
	}
}
