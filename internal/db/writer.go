package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"
)

// maxGroup bounds the functions that share a commit, and so the time that the first waits for
// the last.
const maxGroup = 256

var (
	errClosed = errors.New("database is closed")
	errMoved  = errors.New("the database file was moved, removed or replaced")
	errLost   = errors.New("the engine has rolled the transaction back")
)

// writer is SQLite's single writer: one goroutine, one connection.
type writer struct {
	conn    *sqliteConn // only the goroutine uses it
	files   []openFile
	retries []*call // calls of failed groups, to run alone
	guarded int     // groups that still get savepoints because a function has failed
	calls   chan *call
	quit    chan struct{} // closed to stop accepting calls
	done    chan struct{} // closed when the goroutine has ended
	stop    sync.Once

	counters []counter // taken from by the running transaction

	commits  *atomic.Int64 // counts commits
	observer *Observer     // nil: none
	clock    *localClock
	ids      *ids
}

// openFile is a file as of its opening by SQLite.
type openFile struct {
	path string
	info os.FileInfo
}

// call is a function that waits for, or is in, a group.
type call struct {
	fn       func(*Tx) error
	claimed  atomic.Bool // set by the first to decide: the writer, or a caller that gives up
	ours     bool        // claimed by the writer
	tx       *Tx
	err      error
	panicked any
	stack    []byte
	exited   bool // fn called runtime.Goexit, as t.FailNow does
	done     chan struct{}
}

func openWriter(ctx context.Context, path string, commits *atomic.Int64, clock *localClock, ids *ids, observer *Observer) (*writer, error) {
	// Pages that change repeatedly are copied into the file once per checkpoint; 64 MB between
	// checkpoints cost a sixth less than 16 MB.
	conn, err := openSQLiteConn(ctx, path, sqlite.OpenCreate, "PRAGMA wal_autocheckpoint = 16000", defaultLimits)
	if err != nil {
		return nil, err
	}
	w := &writer{
		commits:  commits,
		observer: observer,
		clock:    clock,
		ids:      ids,
		conn:     conn,
		calls:    make(chan *call, maxGroup),
		quit:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	if err := w.readFiles(path); err != nil {
		return nil, errors.Join(err, conn.close())
	}
	go w.loop()
	return w, nil
}

// readFiles stores the identity of the database's files.
func (w *writer) readFiles(path string) error {
	// A first read makes SQLite open, or create, its log.
	if _, err := w.conn.exec("SELECT count(*) FROM sqlite_schema", nil); err != nil {
		return err
	}
	for _, p := range []string{path, path + "-wal"} {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		w.files = append(w.files, openFile{p, info})
	}
	return nil
}

// close runs the waiting calls, then ends the writer.
func (w *writer) close() error {
	w.stop.Do(func() { close(w.quit) })
	<-w.done
	return w.conn.close()
}

// do hands fn to the writer and waits for the outcome. If ctx ends before the writer claims fn,
// do returns the context's error and fn never runs; later the outcome decides, because it may
// be on disk already.
func (w *writer) do(ctx context.Context, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &call{fn: fn, done: make(chan struct{})}
	select {
	case w.calls <- c:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.quit:
		return errClosed
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if c.claim() {
			return ctx.Err()
		}
		<-c.done
	case <-w.done:
		if c.claim() {
			return errClosed
		}
		<-c.done
	}
	switch {
	case c.panicked != nil:
		panic(fmt.Sprintf("%v\n\n%s", c.panicked, c.stack))
	case c.exited:
		runtime.Goexit()
	case c.err == nil:
		c.tx.committed()
	}
	return c.err
}

// claim reports whether the caller may decide about c.
func (c *call) claim() bool { return c.claimed.CompareAndSwap(false, true) }

func (w *writer) loop() {
	ended := false
	defer func() {
		if ended {
			close(w.done)
		} else { // a function ended this goroutine
			go w.loop()
		}
	}()
	group := make([]*call, 0, maxGroup)
	for {
		if group = w.next(group[:0]); len(group) == 0 {
			ended = true
			return
		}
		w.run(group)
		clear(group)
	}
}

// next returns the calls of the next group, waiting for the first. It returns none once the
// writer is closed and all calls have run.
func (w *writer) next(group []*call) []*call {
	if len(w.retries) > 0 {
		group = append(group, w.retries[0])
		w.retries = w.retries[1:]
		return group
	}
	select {
	case c := <-w.calls:
		group = append(group, c)
	case <-w.quit:
	}
	// Add the waiting calls. Callers just answered are about to call again, so yield to them,
	// repeatedly while that adds calls. Waiting longer does not pay: the next group gathers
	// during the commit.
	group = w.gather(group)
	for size := 0; size < len(group) && len(group) < maxGroup; {
		size = len(group)
		runtime.Gosched()
		group = w.gather(group)
	}
	return group
}

func (w *writer) gather(group []*call) []*call {
	for len(group) < maxGroup {
		select {
		case c := <-w.calls:
			group = append(group, c)
		default:
			return group
		}
	}
	return group
}

// guardedGroups is the number of groups that get savepoints after a function has failed.
const guardedGroups = 64

// errFunctionFailed means that a function of a group without savepoints has failed.
var errFunctionFailed = errors.New("a function of the group has failed")

// run commits the group and answers its calls.
//
// Savepoints cost a tenth of a group's time, so a group has none while functions succeed. If one
// fails, the group runs again with them. If the whole transaction fails, each function runs once
// more alone, so that a function that breaks the engine (too large a row for a full disk) fails
// alone.
func (w *writer) run(group []*call) {
	err := w.begin()
	// Claim after begin, which may have waited for another process: callers may have given up.
	live := group[:0]
	for _, c := range group {
		if c.ours || c.claim() {
			c.ours = true
			live = append(live, c)
		}
	}
	if err == nil {
		guard := len(live) > 1 && w.guarded > 0
		w.guarded = max(w.guarded-1, 0)
		err = w.transaction(live, guard)
		if errors.Is(err, errFunctionFailed) {
			w.guarded = guardedGroups
			if err = w.begin(); err == nil {
				err = w.transaction(live, true)
			}
		}
		if err != nil && len(live) > 1 {
			w.retries = append(w.retries, live...)
			return
		}
	}
	for _, c := range live {
		if err != nil && c.err == nil && c.panicked == nil {
			c.err = err
		}
		close(c.done)
	}
}

// begin starts a transaction, unless the files were moved: writes to a removed file succeed and
// vanish with the process.
func (w *writer) begin() error {
	for _, f := range w.files {
		info, err := os.Stat(f.path)
		if err != nil || !os.SameFile(info, f.info) {
			return fmt.Errorf("%w: %s", errMoved, f.path)
		}
	}
	if err := w.control("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	w.counters = w.counters[:0]
	return nil
}

// transaction runs the functions in the open transaction and ends it. A non-nil error means
// that none of their changes was committed. With guard, each function has a savepoint, and one
// that fails affects no other; without, its failure is errFunctionFailed, unless it is alone.
func (w *writer) transaction(group []*call, guard bool) (err error) {
	start := time.Now()
	complete := false
	defer func() {
		if err != nil || !complete {
			// Fails if the engine has rolled back already, which is fine.
			w.control("ROLLBACK")
		}
		if complete {
			return
		}
		// A function called runtime.Goexit, which ends this goroutine. Its successor runs the
		// other calls.
		for _, c := range group {
			if c.exited {
				close(c.done)
			} else {
				w.retries = append(w.retries, c)
			}
		}
	}()
	committed := 0
	for _, c := range group {
		if err := w.perform(c, guard); err != nil {
			complete = true
			return err
		}
		if c.err == nil && c.panicked == nil {
			committed++
		} else if !guard && len(group) > 1 {
			complete = true
			return errFunctionFailed
		}
	}
	complete = true
	if committed == 0 {
		w.control("ROLLBACK")
		return nil
	}
	if err := w.storeCounters(); err != nil {
		return err
	}
	if err := w.control("COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	w.commits.Add(1)
	w.observer.committed(committed, start)
	return nil
}

// perform runs one function of a group, in a savepoint with guard. A non-nil error means that
// the transaction has failed.
func (w *writer) perform(c *call, guard bool) error {
	if guard {
		if err := w.control("SAVEPOINT f"); err != nil {
			return fmt.Errorf("savepoint: %w", err)
		}
	}
	c.tx = &Tx{Now: w.clock.now(), engine: sqliteEngine, ids: w.ids, session: w, observer: w.observer}
	c.err, c.panicked = nil, nil
	c.run()
	if err := c.tx.end(); c.err == nil {
		c.err = err
	}
	if err := w.usable(); err != nil {
		return errors.Join(err, c.err)
	}
	if !guard {
		return nil
	}
	if c.err != nil || c.panicked != nil {
		if err := w.control("ROLLBACK TO f"); err != nil {
			return fmt.Errorf("rollback to savepoint: %w", errors.Join(err, c.err))
		}
	}
	if err := w.control("RELEASE f"); err != nil {
		return fmt.Errorf("release savepoint: %w", err)
	}
	return nil
}

// run runs the function and stores a panic for the caller's goroutine.
func (c *call) run() {
	c.exited = true
	defer func() {
		if !c.exited {
			return
		}
		if p := recover(); p != nil {
			c.panicked, c.stack, c.exited = p, debug.Stack(), false
		}
	}()
	if c.err = c.fn(c.tx); c.err == nil {
		c.err = c.tx.runBefore()
	}
	c.exited = false
}

// control runs a transaction control statement.
func (w *writer) control(statement string) error {
	_, err := w.conn.exec(statement, nil)
	return err
}

// usable implements [session]. It stops a function after SQLite has rolled the transaction back:
// SQLite would commit each further statement on its own.
func (w *writer) usable() error {
	if w.conn.AutocommitEnabled() {
		return errLost
	}
	return nil
}

// The writer ignores the caller's cancellation: interrupting a statement would roll back the
// transaction that other calls share.

func (w *writer) exec(_ context.Context, query string, args []any) (int64, error) {
	return w.conn.exec(query, args)
}

func (w *writer) queue(_ context.Context, query string, args []any) error {
	_, err := w.conn.exec(query, args)
	return err
}

func (w *writer) query(ctx context.Context, query string, args []any) (cursor, error) {
	s, err := w.conn.query(context.WithoutCancel(ctx), query, args)
	if err != nil { // not an interface with a nil pointer
		return nil, err
	}
	return s, nil
}
