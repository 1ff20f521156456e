package db

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"
)

// remoteCommitDelay bounds the delay until a commit of another process is noticed.
const remoteCommitDelay = 2 * time.Second

// Changes detects commits, so that a poller can skip the database while nothing has changed. It
// belongs to one goroutine; create it with [DB.Changes].
type Changes struct {
	d    *DB
	last version
}

// Changes returns a detector of commits from now on.
func (d *DB) Changes() *Changes { return &Changes{d: d} }

// Any reports whether there may have been a commit since the last call; the first call returns
// true. On SQLite it is nearly free and sees commits of this process at once, of other
// processes within two seconds. On PostgreSQL, and after a database error, it always returns
// true.
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
	conn   *puddle.Resource[*sqliteConn] // sees commits of other processes
	nth    int64                         // number of such connections so far; each counts differently
	remote int64                         // commits of other processes, as of at
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
		conn, err := d.readers.acquire(ctx)
		if err != nil {
			return version{}, fmt.Errorf("connect to watch commits: %w", err)
		}
		c.conn = conn
		c.nth++
	}
	var number int64
	s, err := c.conn.Value().query(context.WithoutCancel(ctx), "PRAGMA data_version", nil)
	if err == nil {
		s.next()
		err = cmp.Or(s.scan([]any{&number}), s.close())
	}
	if err != nil {
		c.release()
		return version{}, fmt.Errorf("read data_version: %w", err)
	}
	c.remote, c.at = c.nth<<32+number, time.Now()
	return version{ours, c.remote}, nil
}

// release closes the connection. c.mu is held.
func (c *commits) release() {
	if c.conn != nil {
		c.conn.Destroy()
		c.conn = nil
	}
}

func (c *commits) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
}
