package db

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// limits are the timeouts of database calls.
type limits struct {
	statement time.Duration // per statement
	lock      time.Duration // per lock wait
	long      time.Duration // per statement and lock of [LongRunning] work
	dial      time.Duration // per connection to PostgreSQL
	idle      time.Duration // idle time after which a PostgreSQL connection is checked before reuse
	// silence is the time without an answer after which a server is suspected to hang, and the
	// time that it has to accept a connection then. 0: it is never suspected.
	silence time.Duration
	// grace is added to the server's own timeout before the server counts as hanging.
	grace time.Duration
}

// defaultLimits are the timeouts documented in docs/operations.md.
var defaultLimits = limits{statement: 15 * time.Second, lock: 10 * time.Second, long: 10 * time.Minute, dial: 5 * time.Second, idle: time.Second, silence: 3 * time.Second, grace: 2 * time.Second}

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
//
// A server hangs if a statement exceeds its limit, or if for a while there was no answer to any
// statement and a new connection is not answered either. Then all waiting statements fail,
// except those of [LongRunning] work, which one unanswered connection must not waste.
type guard struct {
	limits
	answers func(limit time.Duration) bool // whether the server answers a new connection

	mu       sync.Mutex
	hangs    bool
	probe    time.Time // time of the next probe
	heard    time.Time // time of the last answer
	waiting  map[*queryContext]struct{}
	watching bool
}

func newGuard(l limits, answers func(time.Duration) bool) *guard {
	return &guard{limits: l, answers: answers, waiting: make(map[*queryContext]struct{})}
}

// admit reports whether a statement may be sent.
func (g *guard) admit() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.admitted()
}

// admitted is admit. g.mu is held.
func (g *guard) admitted() bool {
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
	g.noted(answered)
}

// noted is note. g.mu is held.
func (g *guard) noted(answered bool) {
	g.hangs = !answered
	if g.hangs {
		g.probe = time.Now().Add(probePause)
	} else {
		g.heard = time.Now()
	}
}

// queryContext is the context of a statement: the caller's, cancelled at the statement's
// deadline.
type queryContext struct {
	context.Context
	caller context.Context
	cancel context.CancelFunc
	begun  time.Time
	long   bool
}

// TraceQueryStart implements [pgx.QueryTracer].
func (g *guard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	limited, cancel := context.WithTimeout(ctx, g.statementTimeout(ctx)+g.grace)
	w := &queryContext{limited, ctx, cancel, time.Now(), longRunningName(ctx) != ""}
	connecting := ctx.Value(connectKey{}) != nil
	g.mu.Lock()
	defer g.mu.Unlock()
	if !connecting && !g.admitted() {
		cancel()
		return w
	}
	if !connecting && g.silence > 0 {
		g.waiting[w] = struct{}{}
		if !g.watching {
			g.watching = true
			time.AfterFunc(g.silence, g.watch)
		}
	}
	return w
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (g *guard) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	w, ok := ctx.(*queryContext)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiting, w)
	switch late := errors.Is(w.Err(), context.DeadlineExceeded) && w.caller.Err() == nil; {
	case late && isContext(data.Err):
		g.noted(false)
	case w.Err() == nil:
		g.noted(true)
	}
	w.cancel()
}

// watch looks for a server that does not answer, while statements wait.
func (g *guard) watch() {
	again := g.suspect(time.Now().Add(-g.silence))
	if again == 0 {
		if !g.answers(g.silence) {
			g.fail(time.Now().Add(-g.silence))
		} else {
			g.note(true)
		}
		again = g.silence
	}
	if again > 0 {
		time.AfterFunc(again, g.watch)
	}
}

// suspect returns 0 if a statement has waited since before, without any answer of the server
// since. Otherwise it returns the time until the next look, below 0 if no statement waits.
func (g *guard) suspect(before time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.watching = false
		return -1
	}
	last := time.Now()
	for w := range g.waiting {
		if w.begun.Before(last) {
			last = w.begun
		}
	}
	if g.heard.After(last) {
		last = g.heard
	}
	return max(last.Sub(before), 0)
}

// fail ends the statements that wait since before the given time, unless the server has
// answered since.
func (g *guard) fail(before time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.heard.After(before) {
		return
	}
	g.noted(false)
	for w := range g.waiting {
		if w.begun.Before(before) && !w.long {
			w.cancel()
		}
	}
}

// TraceBatchStart implements [pgx.BatchTracer].
func (g *guard) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return g.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{})
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (g *guard) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// connectKey marks the context of the statements that open a connection.
type connectKey struct{}

// setLongTimeouts sets the timeouts of [LongRunning] for a PostgreSQL transaction, if ctx has
// them.
func (tx *Tx) setLongTimeouts(ctx context.Context) error {
	if longRunningName(ctx) == "" || tx.engine != postgresEngine {
		return nil
	}
	limit := fmt.Sprint(defaultLimits.long.Milliseconds())
	return tx.Queue(ctx, "SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true)", limit)
}
