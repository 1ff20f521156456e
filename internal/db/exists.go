package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"zombiezen.com/go/sqlite"
)

// Exists reports whether the database at rawURL has been migrated, to any version. It changes
// nothing.
func Exists(ctx context.Context, rawURL string, o Options) (bool, error) {
	if path, ok := strings.CutPrefix(rawURL, "sqlite:"); ok {
		return sqliteExists(ctx, path)
	}
	o.MaxConns = 1
	d, err := Open(ctx, rawURL, o)
	if err != nil {
		return false, err
	}
	state, err := d.Inspect(ctx)
	return state.Version > 0, errors.Join(err, d.Close())
}

func sqliteExists(ctx context.Context, path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a database: %w", err)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return false, fmt.Errorf("database path: %w", err)
	}
	// Without the settings of a working connection, which would change the file.
	conn, err := sqlite.OpenConn(abs, sqlite.OpenReadWrite)
	if err != nil {
		return false, fmt.Errorf("open database %s: %w", abs, err)
	}
	conn.SetBusyTimeout(busyTimeout)
	c := &sqliteConn{Conn: conn, limits: defaultLimits, stmts: make(map[string]*sqliteStmt)}
	var ours bool
	rows, err := c.query(ctx, "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'schema_migrations')", nil)
	if err == nil {
		rows.next()
		err = cmp.Or(rows.scan([]any{&ours}), rows.close())
	}
	if err = errors.Join(err, c.close()); err != nil {
		return false, fmt.Errorf("look for tables in %s: %w", abs, err)
	}
	return ours, nil
}
