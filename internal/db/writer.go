package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// maxGroup bounds how many functions share one commit, and so how long the
// first of them waits for the last.
const maxGroup = 256

var errClosed = errors.New("database is closed")

// writer is SQLite's single writer: one goroutine, one connection.
type writer struct {
	log   *slog.Logger
	pool  *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt // by the statement as written; used by the goroutine only
	calls chan *call
	quit  chan struct{} // closed to stop taking calls
	done  chan struct{} // closed when the goroutine has ended
	stop  sync.Once
	begin, commit, rollback, savepoint, release, undo *sql.Stmt
}

// call is one function waiting for, or in, a group.
type call struct {
	ctx      context.Context
	fn       func(*Tx) error
	taken    atomic.Bool // set by whoever decides first: the writer, or a caller that gives up
	tx       *Tx
	err      error
	panicked any
	stack    []byte
	done     chan struct{}
}

func openWriter(ctx context.Context, dsn string, log *slog.Logger) (*writer, error) {
	pool, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1)
	conn, err := pool.Conn(ctx)
	if err != nil {
		pool.Close()
		return nil, err
	}
	w := &writer{
		log: log, pool: pool, conn: conn,
		stmts: make(map[string]*sql.Stmt),
		calls: make(chan *call, maxGroup),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	for _, s := range []struct {
		into *(*sql.Stmt)
		text string
	}{
		{&w.begin, "BEGIN IMMEDIATE"}, {&w.commit, "COMMIT"}, {&w.rollback, "ROLLBACK"},
		{&w.savepoint, "SAVEPOINT f"}, {&w.release, "RELEASE f"}, {&w.undo, "ROLLBACK TO f"},
	} {
		if *s.into, err = conn.PrepareContext(ctx, s.text); err != nil {
			conn.Close()
			pool.Close()
			return nil, err
		}
	}
	go w.loop()
	return w, nil
}

// close answers what is already waiting, then ends.
func (w *writer) close() error {
	w.stop.Do(func() { close(w.quit) })
	<-w.done
	// SQLite keeps a connection half alive while it has statements, and the
	// last one to go merges the log. database/sql leaves those to us.
	for _, s := range w.stmts {
		s.Close()
	}
	for _, s := range []*sql.Stmt{w.begin, w.commit, w.rollback, w.savepoint, w.release, w.undo} {
		s.Close()
	}
	return errors.Join(w.conn.Close(), w.pool.Close())
}

// do hands fn to the writer and waits for the outcome. A caller whose context
// ends before the writer took fn gets the context's error and fn never runs;
// after that the outcome decides, because it may already be on disk.
func (w *writer) do(ctx context.Context, fn func(*Tx) error) error {
	c := &call{ctx: ctx, fn: fn, done: make(chan struct{})}
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
		if c.taken.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		<-c.done
	case <-w.done:
		if c.taken.CompareAndSwap(false, true) {
			return errClosed
		}
		<-c.done
	}
	if c.panicked != nil {
		panic(fmt.Sprintf("%v\n\n%s", c.panicked, c.stack))
	}
	return c.err
}

func (w *writer) loop() {
	defer close(w.done)
	group := make([]*call, 0, maxGroup)
	for {
		select {
		case c := <-w.calls:
			group = w.gather(append(group[:0], c))
		case <-w.quit:
			// What was handed over before quit is still answered.
			select {
			case c := <-w.calls:
				group = w.gather(append(group[:0], c))
			default:
				return
			}
		}
		w.run(group)
		clear(group)
	}
}

// gather adds what is waiting already, without waiting for more: the time the
// last commit took was the time to gather in.
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

// run commits the group together. When the transaction as a whole is lost, each
// function is tried once more alone, so that one which upsets the engine (too
// big a row for a full disk, say) fails alone.
func (w *writer) run(group []*call) {
	live := group[:0:len(group)]
	for _, c := range group {
		if c.taken.CompareAndSwap(false, true) {
			live = append(live, c)
		}
	}
	if len(live) == 0 {
		return
	}
	err := w.transaction(live)
	if err != nil && len(live) > 1 {
		for _, c := range live {
			if err := w.transaction([]*call{c}); err != nil {
				c.err = err
			}
		}
	} else if err != nil {
		live[0].err = err
	}
	for _, c := range live {
		if c.err == nil && c.panicked == nil {
			c.tx.committed()
		}
		close(c.done)
	}
}

// transaction runs the functions in one transaction. A non-nil error means that
// the transaction was lost and nothing of any of them was kept.
func (w *writer) transaction(group []*call) error {
	ctx := context.Background()
	if _, err := w.begin.ExecContext(ctx); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	kept := 0
	solo := len(group) == 1 // needs no savepoint: the transaction is its own
	for _, c := range group {
		c.err, c.panicked = nil, nil
		c.tx = &Tx{Now: now(), engine: sqliteEngine, conn: w}
		if !solo {
			if _, err := w.savepoint.ExecContext(ctx); err != nil {
				w.rollback.ExecContext(ctx)
				return fmt.Errorf("savepoint: %w", err)
			}
		}
		c.call()
		failed := c.err != nil || c.panicked != nil
		if !failed {
			kept++
		}
		if solo {
			break
		}
		if failed {
			if _, err := w.undo.ExecContext(ctx); err != nil {
				// The engine has rolled everything back by itself, as it
				// does when the disk is full.
				w.rollback.ExecContext(ctx)
				return fmt.Errorf("rollback to savepoint: %w", errors.Join(err, c.err))
			}
		}
		if _, err := w.release.ExecContext(ctx); err != nil {
			w.rollback.ExecContext(ctx)
			return fmt.Errorf("release savepoint: %w", err)
		}
	}
	if kept == 0 {
		// Fails when the engine has rolled back by itself, which is as good.
		w.rollback.ExecContext(ctx)
		return nil
	}
	if _, err := w.commit.ExecContext(ctx); err != nil {
		w.rollback.ExecContext(ctx)
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// call runs the function, keeping a panic for the goroutine that asked.
func (c *call) call() {
	defer func() {
		if p := recover(); p != nil {
			c.panicked, c.stack = p, debug.Stack()
		}
	}()
	c.err = c.fn(c.tx)
}

// The writer's statements run without the caller's cancellation: interrupting
// one would roll back the transaction that others share.

func (w *writer) exec(ctx context.Context, query string, args []any) (sql.Result, error) {
	ctx = context.WithoutCancel(ctx)
	s, err := w.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, args...)
}

func (w *writer) query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	ctx = context.WithoutCancel(ctx)
	s, err := w.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

func (w *writer) queryRow(ctx context.Context, query string, args []any) *sql.Row {
	ctx = context.WithoutCancel(ctx)
	if s, err := w.stmt(ctx, query); err == nil {
		return s.QueryRowContext(ctx, args...)
	}
	// Run it unprepared for the sake of the error, which only a Row can carry.
	return w.conn.QueryRowContext(ctx, sqliteEngine.rewrite(query), args...)
}

func (w *writer) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := w.stmts[query]; ok {
		return s, nil
	}
	s, err := w.conn.PrepareContext(ctx, sqliteEngine.rewrite(query))
	if err != nil {
		return nil, err
	}
	w.stmts[query] = s
	return s, nil
}
