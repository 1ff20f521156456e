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

// limits are the timeouts of database calls.
type limits struct {
	statement time.Duration // per statement
	lock      time.Duration // per lock wait
	long      time.Duration // per statement and lock of [LongRunning] work
	dial      time.Duration // per connection to PostgreSQL
	idle      time.Duration // idle time after which a PostgreSQL connection is checked before reuse
	// grace is added to the server's own timeout before the server counts as hanging.
	grace time.Duration
}

// defaultLimits are the timeouts documented in docs/operations.md.
var defaultLimits = limits{statement: 15 * time.Second, lock: 10 * time.Second, long: 10 * time.Minute, dial: 5 * time.Second, idle: time.Second, grace: 2 * time.Second}

// probePause is the time between probes of a hanging server.
const probePause = time.Second

type longRunningKey struct{}

// LongRunning returns a context in which statements may take ten minutes each, with a name for
// errors ("export", "migration"). On PostgreSQL this applies within transactions only.
func LongRunning(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, longRunningKey{}, name)
}

// longRunningName returns the name given to [LongRunning]; empty for other contexts.
func longRunningName(ctx context.Context) string {
	name, _ := ctx.Value(longRunningKey{}).(string)
	return name
}

// statementTimeout returns the timeout of a statement of ctx.
func (l limits) statementTimeout(ctx context.Context) time.Duration {
	if longRunningName(ctx) != "" {
		return l.long
	}
	return l.statement
}

// timeoutError is the error of a statement that exceeded its timeout.
func (l limits) timeoutError(ctx context.Context) error {
	if name := longRunningName(ctx); name != "" {
		return fmt.Errorf("%w: the %s took longer than %s", errSlow, name, l.long)
	}
	return fmt.Errorf("%w: longer than %s", errSlow, l.statement)
}

var errSlow = errors.New("a statement took too long")

// errHangs means that the server does not answer, not even by a timeout.
var errHangs = errors.New("the database server does not answer")

// guard bounds statements and connections to PostgreSQL, also if the server is frozen or the
// network drops packets. While the server hangs, statements fail at once, except one probe per
// second. It is a [pgx.QueryTracer], and safe for concurrent use.
type guard struct {
	limits
	mu    sync.Mutex
	hangs bool
	probe time.Time // time of the next probe
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

// note records whether the server has answered.
func (g *guard) note(answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hangs = !answered
	if g.hangs {
		g.probe = time.Now().Add(probePause)
	}
}

// queryContext is the context of a statement: the caller's, cancelled at the statement's
// deadline.
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

// connector opens connections to PostgreSQL and sets the server's timeouts.
type connector struct {
	driver.Connector
	guard *guard
}

func newConnector(cfg *pgx.ConnConfig, l limits) connector {
	if cfg.ConnectTimeout > 0 { // set in the URL
		l.dial = cfg.ConnectTimeout
	}
	g := &guard{limits: l}
	cfg.Tracer = g
	var set []string
	for name, limit := range map[string]time.Duration{"statement_timeout": l.statement, "lock_timeout": l.lock} {
		if _, given := cfg.RuntimeParams[name]; !given { // not set in the URL
			set = append(set, fmt.Sprintf("SET %s = %d", name, limit.Milliseconds()))
		}
	}
	// Set by statements: a pooler in front of the server may refuse them as connection
	// parameters.
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

// connectKey marks the context of the statements that open a connection.
type connectKey struct{}

// setLongTimeouts sets the timeouts of [LongRunning] for a PostgreSQL transaction, if ctx has
// them.
func (tx *Tx) setLongTimeouts(ctx context.Context) error {
	if longRunningName(ctx) == "" || tx.engine != postgresEngine {
		return nil
	}
	limit := fmt.Sprint(defaultLimits.long.Milliseconds())
	_, err := tx.Exec(ctx, "SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true)", limit)
	return err
}
