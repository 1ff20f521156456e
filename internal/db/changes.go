package db

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// remoteCommitDelay is how late a commit of another process may be noticed.
const remoteCommitDelay = 2 * time.Second

// Changes lets something that looks for work now and then do so only after a commit. It
// is for one goroutine; each has its own, from [DB.Changes].
type Changes struct {
	d    *DB
	last version
}

// Changes returns a view of the commits to the database from now on.
func (d *DB) Changes() *Changes { return &Changes{d: d} }

// Any reports whether there may have been a commit since the last call, and true at
// the first. On SQLite it costs next to nothing, knows each commit of this process, and
// those of others after at most two seconds. On PostgreSQL, and when the database fails,
// it is always true.
func (c *Changes) Any(ctx context.Context) bool {
	if c.d.engine != sqliteEngine {
		return true
	}
	v, err := c.d.commits.version(ctx, c.d)
	if err != nil {
		c.last = version{}
		return true
	}
	changed := v != c.last
	c.last = v
	return changed
}

// version is a state of a SQLite database. The zero value is none.
type version struct{ local, remote int64 }

// commits counts the commits to a SQLite database.
type commits struct {
	local atomic.Int64 // of this process

	mu     sync.Mutex
	conn   *sql.Conn // sees those of others
	nth    int64     // how many such connections there were; each has numbers of its own
	remote int64     // as of at
	at     time.Time
}

func (c *commits) version(ctx context.Context, d *DB) (version, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ours := c.local.Load()
	if c.conn != nil && time.Since(c.at) < remoteCommitDelay {
		return version{ours, c.remote}, nil
	}
	if d.isClosed() {
		return version{}, errClosed
	}
	if c.conn == nil {
		conn, err := d.pool.Conn(ctx)
		if err != nil {
			return version{}, fmt.Errorf("connect to see commits: %w", err)
		}
		c.conn = conn
		c.nth++
	}
	var number int64
	if err := c.conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&number); err != nil {
		c.release()
		return version{}, fmt.Errorf("look for commits: %w", err)
	}
	c.remote, c.at = c.nth<<32+number, time.Now()
	return version{ours, c.remote}, nil
}

// release gives the connection back to the pool. The lock is held.
func (c *commits) release() {
	if c.conn != nil {
		c.conn.Close() // the pool finds out whether it still works
		c.conn = nil
	}
}

func (c *commits) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
}
