package db

import (
	"context"
	"time"
)

// Internals for the tests of this package.

var (
	Rewrite     = rewrite
	StoreFailed = isUnavailable
)

const (
	MaxGroup = maxGroup
	MaxStmts = maxStmts
)

func RewriteForPostgres(script string) string { return postgresEngine.rewriteDDL(script) }

// Waiting returns the number of calls that wait for SQLite's writer.
func Waiting(d *DB) int { return len(d.writer.calls) }

// Closing reports whether SQLite's writer is closing.
func Closing(d *DB) bool {
	select {
	case <-d.writer.quit:
		return true
	default:
		return false
	}
}

// CommitCounter counts the commits of SQLite's writer from now on.
type CommitCounter struct {
	d     *DB
	begun int64
}

func Commits(d *DB) CommitCounter { return CommitCounter{d, d.commits.local.Load()} }

func (c CommitCounter) Load() int64 { return c.d.commits.local.Load() - c.begun }

// Compiled returns the number of statements cached by SQLite's writer.
func Compiled(d *DB) (n int) {
	must(d.Write(context.Background(), func(*Tx) error {
		n = len(d.writer.conn.stmts)
		return nil
	}))
	return n
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// MigrateScripts runs Migrate with the given scripts as versions 1, 2, ….
func MigrateScripts(ctx context.Context, d *DB, scripts ...string) ([]Applied, error) {
	var list []migration
	for i, s := range scripts {
		list = append(list, migration{Applied{int64(i + 1), "script"}, s})
	}
	return d.migrate(ctx, list)
}

// Scripts returns the text of the schema's migrations, in order.
func (s Schema) Scripts() ([]string, error) {
	list, err := s.load()
	var scripts []string
	for _, m := range list {
		scripts = append(scripts, m.script)
	}
	return scripts, err
}

// Hasty returns options with short limits for statements, locks and connections.
func Hasty() Options {
	return Options{limits: limits{
		statement: 200 * time.Millisecond, lock: 100 * time.Millisecond, long: time.Minute, dial: 200 * time.Millisecond, grace: 100 * time.Millisecond,
	}}
}

// ServerClock is the estimate of a server's clock.
type ServerClock struct{ c *serverClock }

func NewServerClock() ServerClock { return ServerClock{&serverClock{origin: time.Now()}} }

func (s ServerClock) Note(before, server, after time.Time) { s.c.note(before, server, after) }
func (s ServerClock) Now() (time.Time, bool)               { return s.c.now() }

// NewLocalClock returns the clock of a SQLite database with a wall clock.
func NewLocalClock(wall func() time.Time) func() time.Time { return (&localClock{wall: wall}).now }

// Wary returns options with long limits, under which a server that answers nothing is found
// early.
func Wary() Options {
	return Options{limits: limits{
		statement: time.Minute, lock: time.Minute, long: time.Minute, dial: 2 * time.Second, idle: time.Second, silence: time.Second, grace: time.Second,
	}}
}
