package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// limits are what the database is given, so that nobody waits without end for one that
// hangs.
type limits struct {
	statement time.Duration // for each statement
	lock      time.Duration // for each lock that it waits for
	long      time.Duration // for each statement and lock of work named by [LongRunning]
	dial      time.Duration // for a connection to PostgreSQL
	idle      time.Duration // of a connection to PostgreSQL that is tried before it is used again
	// grace is how much longer than the server's own limit we wait for its answer.
	// After that it hangs.
	grace time.Duration
}

// defaultLimits are the limits that docs/operations.md documents.
var defaultLimits = limits{statement: 15 * time.Second, lock: 10 * time.Second, long: 10 * time.Minute, dial: 5 * time.Second, idle: time.Second, grace: 2 * time.Second}

// probePause is the time between two tries of a server that hangs.
const probePause = time.Second

type longRunningKey struct{}

// LongRunning returns a context for work of a name ("export", "migration") whose statements may
// take ten minutes each. On PostgreSQL that counts for transactions only.
func LongRunning(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, longRunningKey{}, name)
}

// longRunningName returns the name of the work that [LongRunning] put into ctx; empty for none.
func longRunningName(ctx context.Context) string {
	name, _ := ctx.Value(longRunningKey{}).(string)
	return name
}

// statementTimeout returns how long a statement of ctx may take.
func (l limits) statementTimeout(ctx context.Context) time.Duration {
	if longRunningName(ctx) != "" {
		return l.long
	}
	return l.statement
}

// timeoutError is the error of a statement that took longer than its time.
func (l limits) timeoutError(ctx context.Context) error {
	if name := longRunningName(ctx); name != "" {
		return fmt.Errorf("%w: the %s took longer than %s", errSlow, name, l.long)
	}
	return fmt.Errorf("%w: longer than %s", errSlow, l.statement)
}

var errSlow = errors.New("a statement took too long")

// errHangs says that the server does not answer: neither a result, nor that the
// statement took too long.
var errHangs = errors.New("the database server does not answer")

// guard bounds what PostgreSQL may take for a statement or a connection, also when the
// server is frozen or the network passes nothing on. Once the server hangs, statements
// fail at once, but for one a second that tries whether it answers again. It is a
// [pgx.QueryTracer], and safe for concurrent use.
type guard struct {
	limits
	mu    sync.Mutex
	hangs bool
	probe time.Time // when the next statement may try
}

// admit reports whether a statement may be sent.
func (g *guard) admit() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.hangs {
		return true
	}
	now := time.Now()
	if now.Before(g.probe) {
		return false
	}
	g.probe = now.Add(probePause)
	return true
}

// note records whether the server answered.
func (g *guard) note(answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hangs = !answered
	if g.hangs {
		g.probe = time.Now().Add(probePause)
	}
}

// queryContext is the context of a statement: that of its caller, until the server should have
// answered.
type queryContext struct {
	context.Context
	caller context.Context
	cancel context.CancelFunc
}

// TraceQueryStart implements [pgx.QueryTracer].
func (g *guard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	limited, cancel := context.WithTimeout(ctx, g.statementTimeout(ctx)+g.grace)
	if ctx.Value(connectKey{}) == nil && !g.admit() {
		cancel()
	}
	return &queryContext{limited, ctx, cancel}
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (g *guard) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	w, ok := ctx.(*queryContext)
	if !ok {
		return
	}
	switch late := errors.Is(w.Err(), context.DeadlineExceeded) && w.caller.Err() == nil; {
	case late && isContext(data.Err):
		g.note(false)
	case w.Err() == nil:
		g.note(true)
	}
	w.cancel()
}

// connector makes connections to PostgreSQL, with the limits set at the server.
type connector struct {
	driver.Connector
	guard *guard
}

func newConnector(cfg *pgx.ConnConfig, l limits) connector {
	if cfg.ConnectTimeout > 0 { // in the URL
		l.dial = cfg.ConnectTimeout
	}
	g := &guard{limits: l}
	cfg.Tracer = g
	var set []string
	for name, limit := range map[string]time.Duration{"statement_timeout": l.statement, "lock_timeout": l.lock} {
		if _, given := cfg.RuntimeParams[name]; !given { // in the URL
			set = append(set, fmt.Sprintf("SET %s = %d", name, limit.Milliseconds()))
		}
	}
	// A pooler in front of the server may refuse them as parameters of a connection.
	given := stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		if len(set) == 0 {
			return nil
		}
		_, err := c.Exec(ctx, strings.Join(set, ";"), pgx.QueryExecModeSimpleProtocol)
		return err
	})
	return connector{stdlib.GetConnector(*cfg, given, stdlib.OptionShouldPing(g.check), stdlib.OptionResetSession(reset)), g}
}

// check tries a connection that was idle, within the time of a statement; the driver's own
// ping has no limit, so check always reports false. A connection that does not answer is
// closed.
func (g *guard) check(ctx context.Context, p stdlib.ShouldPingParams) bool {
	if p.IdleDuration > g.idle {
		_, _ = p.Conn.Exec(ctx, "-- ping", pgx.QueryExecModeSimpleProtocol) // see reset
	}
	return false
}

// reset refuses a connection that [guard.check] found closed.
func reset(_ context.Context, c *pgx.Conn) error {
	if c.IsClosed() {
		return driver.ErrBadConn
	}
	return nil
}

// Connect implements [driver.Connector].
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if !c.guard.admit() {
		return nil, errHangs
	}
	limited, cancel := context.WithTimeout(context.WithValue(ctx, connectKey{}, true), c.guard.dial)
	defer cancel()
	conn, err := c.Connector.Connect(limited)
	switch {
	case err == nil:
		c.guard.note(true)
	case limited.Err() != nil && ctx.Err() == nil:
		c.guard.note(false)
		err = fmt.Errorf("%w: %w", errHangs, err)
	}
	return conn, err
}

// connectKey marks the context of statements that are part of connecting.
type connectKey struct{}

// setLongTimeouts gives the statements of a transaction of PostgreSQL the time of work that
// [LongRunning] named, if ctx is of such.
func (tx *Tx) setLongTimeouts(ctx context.Context) error {
	if longRunningName(ctx) == "" || tx.engine != postgresEngine {
		return nil
	}
	limit := fmt.Sprint(defaultLimits.long.Milliseconds())
	_, err := tx.Exec(ctx, "SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true)", limit)
	return err
}
