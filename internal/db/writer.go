package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"
)

// maxGroup bounds how many functions share one commit, and so how long the
// first of them waits for the last.
const maxGroup = 256

var (
	errClosed = errors.New("database is closed")
	errMoved  = errors.New("the database file was moved, removed or replaced")
	errLost   = errors.New("the engine has rolled the transaction back")
)

// writer is SQLite's single writer: one goroutine, one connection.
type writer struct {
	pool    *sql.DB
	conn    *sql.Conn
	raw     *sqliteConn // what conn wraps; only the goroutine uses either
	files   []openFile
	lost    bool    // SQLite has rolled the transaction back, by itself or because we said so
	retries []*call // of groups that were lost, to run alone
	calls   chan *call
	quit    chan struct{} // closed to stop taking calls
	done    chan struct{} // closed when the goroutine has ended
	stop    sync.Once

	commits *atomic.Int64 // counted
}

// openFile is a file as it was when SQLite opened it.
type openFile struct {
	path string
	info os.FileInfo
}

// call is one function waiting for, or in, a group.
type call struct {
	fn       func(*Tx) error
	claimed  atomic.Bool // set by whoever decides first: the writer, or a caller that gives up
	ours     bool        // taken by the writer
	tx       *Tx
	err      error
	panicked any
	stack    []byte
	exited   bool // fn called runtime.Goexit, as t.FailNow does
	done     chan struct{}
}

func openWriter(ctx context.Context, path string, commits *atomic.Int64) (*writer, error) {
	// A page that is changed again and again is copied into the file once a
	// checkpoint; 64 MB between them cost a sixth less than 16 MB did.
	pool, err := openSQLitePool(sqliteDSN(path, "wal_autocheckpoint(16000)"), defaultLimits)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1)
	w := &writer{
		commits: commits,
		pool:    pool,
		calls:   make(chan *call, maxGroup),
		quit:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	if err := w.connect(ctx, path); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	go w.loop()
	return w, nil
}

func (w *writer) connect(ctx context.Context, path string) (err error) {
	if w.conn, err = w.pool.Conn(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.conn.Close()
		}
	}()
	// database/sql touches the driver's connection only in calls made on
	// w.conn, all of which are made by the writer's goroutine and none of
	// which can be cancelled, so that goroutine may use it beside.
	err = w.conn.Raw(func(c any) error {
		w.raw = c.(*sqliteConn)
		w.raw.driverConn.(sqlite.HookRegisterer).RegisterRollbackHook(func() { w.lost = true })
		return nil
	})
	if err != nil {
		return err
	}
	// A first look into the file makes SQLite open, or create, its log.
	if _, err := w.raw.exec("SELECT count(*) FROM sqlite_schema", nil); err != nil {
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

// close answers what is already waiting, then ends.
func (w *writer) close() error {
	w.stop.Do(func() { close(w.quit) })
	<-w.done
	return errors.Join(w.conn.Close(), w.pool.Close())
}

// do hands fn to the writer and waits for the outcome. A caller whose context
// ends before the writer took fn gets the context's error and fn never runs;
// after that the outcome decides, because it may already be on disk.
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

// claim reports whether c is the taker's to decide.
func (c *call) claim() bool { return c.claimed.CompareAndSwap(false, true) }

func (w *writer) loop() {
	ended := false
	defer func() {
		if ended {
			close(w.done)
		} else { // a function has ended this goroutine
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

// next returns the calls to run together, waiting for the first; none when the
// writer shall end, after what was handed over before that.
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
	// Adds what is waiting already. Those who were just answered are about to
	// ask again, so they get a turn first, and once more as long as that
	// brings any. Waiting longer would not pay: the time that a commit takes
	// is the time for the next group to come together.
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

// run commits the group together and answers it. When the transaction as a
// whole is lost, each function is tried once more alone, so that one which
// upsets the engine (too big a row for a full disk, say) fails alone.
func (w *writer) run(group []*call) {
	err := w.begin()
	// Only now, because beginning may have waited for another process, and
	// callers may have given up meanwhile.
	live := group[:0]
	for _, c := range group {
		if c.ours || c.claim() {
			c.ours = true
			live = append(live, c)
		}
	}
	if err == nil {
		err = w.transaction(live)
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

// begin starts a transaction, unless the files are no longer where they were:
// writing to a removed file succeeds and is gone with the process.
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
	w.lost = false
	return nil
}

// transaction runs the functions in the transaction that has begun, and ends
// it. A non-nil error means that nothing of any of them was kept.
func (w *writer) transaction(group []*call) (err error) {
	complete := false
	defer func() {
		if err != nil || !complete {
			// Fails when the engine has rolled back by itself, which is as good.
			w.control("ROLLBACK")
		}
		if complete {
			return
		}
		// A function has called runtime.Goexit, which runs what is deferred
		// and ends the goroutine. Its successor takes care of the others.
		for _, c := range group {
			if c.exited {
				close(c.done)
			} else {
				w.retries = append(w.retries, c)
			}
		}
	}()
	kept := 0
	for _, c := range group {
		if err := w.perform(c, len(group) > 1); err != nil {
			complete = true
			return err
		}
		if c.err == nil && c.panicked == nil {
			kept++
		}
	}
	complete = true
	if kept == 0 {
		w.control("ROLLBACK")
		return nil
	}
	if err := w.control("COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	w.commits.Add(1)
	return nil
}

// perform runs one function of a group, in a savepoint unless it is the only
// one. A non-nil error means that the transaction is lost.
func (w *writer) perform(c *call, shared bool) error {
	if shared {
		if err := w.control("SAVEPOINT f"); err != nil {
			return fmt.Errorf("savepoint: %w", err)
		}
	}
	c.tx = &Tx{Now: now(), engine: sqliteEngine, conn: w}
	c.err, c.panicked = nil, nil
	c.run()
	if err := c.tx.end(); c.err == nil {
		c.err = err
	}
	if w.lost {
		return errors.Join(errLost, c.err)
	}
	if !shared {
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

// run runs the function, keeping a panic for the goroutine that asked.
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

// control runs one of the statements that steer the transaction.
func (w *writer) control(statement string) error {
	_, err := w.raw.exec(statement, nil)
	return err
}

// usable keeps a function from going on when its transaction is gone: SQLite
// would commit each further statement on its own.
func (w *writer) usable() error {
	if w.lost {
		return errLost
	}
	return nil
}

// The writer's statements run without the caller's cancellation: interrupting
// one would roll back the transaction that others share.

func (w *writer) exec(_ context.Context, query string, args []any) (int64, error) {
	return w.raw.exec(query, args)
}

func (w *writer) query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	return w.conn.QueryContext(context.WithoutCancel(ctx), query, args...)
}

func (w *writer) queryRow(ctx context.Context, query string, args []any) *sql.Row {
	return w.conn.QueryRowContext(context.WithoutCancel(ctx), query, args...)
}
