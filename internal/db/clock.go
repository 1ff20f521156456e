package db

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Differences between the clocks of a process and its database.
const (
	// SkewWarn is the skew from which operators are warned. Nothing depends on the process's
	// clock, but log lines and certificates do.
	SkewWarn = 500 * time.Millisecond
	// SkewRefuse is the skew above which a process serves nothing: one of the two clocks is
	// wrong, and nobody can tell which.
	SkewRefuse = 5 * time.Minute
)

// Now returns the database's time: UTC, whole microseconds. On PostgreSQL it is estimated,
// without a query, from the clock readings of the transactions and the monotonic clock, so that
// processes on one database agree to a fraction of a round trip and the process's clock has no
// influence. On SQLite it is the process's clock, which never runs backwards here.
//
// Now is not before the [Tx.Now] of transactions that this process has begun, unless the
// server's clock was set back meanwhile.
func (d *DB) Now() time.Time {
	if d.simulator != nil {
		return d.simulator.Now()
	}
	if d.server != nil {
		if now, known := d.server.now(); known {
			return now
		}
	}
	return d.local.now()
}

// ClockSkew returns how far the process's clock is ahead of the database's. It reports false on
// SQLite, which has no clock of its own.
func (d *DB) ClockSkew() (skew time.Duration, known bool) {
	if d.server == nil {
		return 0, false
	}
	now, known := d.server.now()
	if !known {
		return 0, false
	}
	return d.wall().Sub(now), true
}

// CheckClock returns a [problem.Unavailable] while [DB.ClockSkew] exceeds [SkewRefuse]: a server
// then answers no requests and claims no jobs. It is cheap.
func (d *DB) CheckClock() error {
	skew, _ := d.ClockSkew()
	if skew.Abs() <= SkewRefuse {
		return nil
	}
	return problem.New(problem.Unavailable, "the clock of this server is wrong by %s; try again", skew.Abs().Round(time.Second)).
		Because(fmt.Errorf("the process's clock is ahead of the database's by %s, and may be by %s", skew.Round(time.Millisecond), SkewRefuse))
}

// MeasureClock reads the database's clock for [DB.Now]. Transactions do so too; this is for a
// process without any. On SQLite it does nothing.
func (d *DB) MeasureClock(ctx context.Context) error {
	if d.server == nil {
		return nil
	}
	return d.classify(ctx, d.readClock(ctx))
}

func (d *DB) readClock(ctx context.Context) error {
	r, err := d.acquirePostgres(ctx)
	if err != nil {
		return err
	}
	c := r.Value()
	_, err = c.readClock(ctx, selectClock)
	d.connections.release(r, c.IsClosed())
	return err
}

// maxDrift is the assumed drift of monotonic clocks: 200 ppm, more than hardware has.
const maxDrift = 5000

// serverClock estimates the clock of a PostgreSQL server. It is safe for concurrent use.
//
// A reading between two moments of the monotonic clock bounds the difference of the two clocks.
// The bounds of many readings intersect, and widen over time by the drift. A reading outside
// the bounds means that a clock was set, or another server answers: then only that reading
// counts.
type serverClock struct {
	origin time.Time // of the monotonic clock

	mu        sync.Mutex
	known     bool
	low, high time.Duration // bounds of the server's time, since 1970, minus the time since origin
	at        time.Duration // of the last reading, since origin
}

// note records a reading of the server's clock between two moments.
func (c *serverClock) note(before time.Time, server time.Time, after time.Time) {
	sent, received, read := before.Sub(c.origin), after.Sub(c.origin), time.Duration(server.UnixNano())
	low, high := read-received, read+time.Microsecond-sent // the server rounds down
	c.mu.Lock()
	defer c.mu.Unlock()
	drift := max(received-c.at, 0) / maxDrift
	c.low, c.high, c.at = max(c.low-drift, low), min(c.high+drift, high), max(c.at, received)
	if !c.known || c.low > c.high {
		c.known, c.low, c.high = true, low, high
	}
}

func (c *serverClock) now() (now time.Time, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Time{}, false
	}
	difference := c.low + (c.high-c.low)/2
	return time.Unix(0, int64(time.Since(c.origin)+difference)).UTC().Truncate(time.Microsecond), true
}

// localClock is the process's clock, never running backwards: after the wall clock was set
// back, it runs at half speed until the wall clock has caught up. It is safe for concurrent
// use.
type localClock struct {
	wall func() time.Time

	mu   sync.Mutex
	last time.Time // as returned
	at   time.Time // of last, by the monotonic clock
}

func (c *localClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, now := time.Now(), c.wall().Round(0)
	if least := c.last.Add(max(at.Sub(c.at), 0) / 2); !c.at.IsZero() && now.Before(least) {
		now = least
	}
	c.last, c.at = now, at
	return now.UTC().Truncate(time.Microsecond)
}

// selectClock reads the server's clock in microseconds since 1970.
const selectClock = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"

// readClock runs statements by the simple protocol, under the guard. The last one is
// [selectClock].
func (c *postgresConn) readClock(ctx context.Context, statements string) (time.Time, error) {
	trace := tracer{c.guard, c.connector}
	limited := trace.TraceQueryStart(ctx, c.Conn, pgx.TraceQueryStartData{SQL: statements})
	before := time.Now()
	results, err := c.PgConn().Exec(limited, statements).ReadAll()
	after := time.Now()
	trace.TraceQueryEnd(limited, c.Conn, pgx.TraceQueryEndData{Err: err})
	if err != nil {
		return time.Time{}, err
	}
	rows := results[len(results)-1].Rows
	if len(rows) != 1 || len(rows[0]) != 1 {
		return time.Time{}, errors.New("the server's clock cannot be read")
	}
	micros, err := strconv.ParseInt(string(rows[0][0]), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the server's clock cannot be read: %w", err)
	}
	now := time.UnixMicro(micros).UTC()
	c.clock.note(before, now, after)
	return now, nil
}
