package db

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed migrations
var migrations embed.FS

// Schema names a set of migrations: forward-only files "0001_name.sql", applied in order, each
// in one transaction.
type Schema string

// The schemas of the helpdesk's database, and of the fleet's databases, one per environment.
const (
	Helpdesk Schema = "helpdesk"
	Fleet    Schema = "fleet"
)

// ErrNewerSchema is returned for a database that a later version of the program has migrated.
var ErrNewerSchema = errors.New("the database belongs to a newer version of kickstand; upgrade the program")

// Applied is one migration that [DB.Migrate] ran.
type Applied struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
}

type migration struct {
	Applied
	script string
}

func (s Schema) load() ([]migration, error) {
	dir := path.Join("migrations", string(s))
	entries, err := fs.ReadDir(migrations, dir)
	if err != nil {
		return nil, fmt.Errorf("schema %q: %w", s, err)
	}
	var out []migration
	for _, e := range entries {
		number, name, ok := strings.Cut(strings.TrimSuffix(e.Name(), ".sql"), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || (len(out) > 0 && version <= out[len(out)-1].Version) {
			return nil, fmt.Errorf("schema %q: misnamed migration %q", s, e.Name())
		}
		text, err := fs.ReadFile(migrations, path.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, migration{Applied{version, name}, string(text)})
	}
	return out, nil
}

// Migrate applies the missing migrations under a lock, so that several starting processes apply
// each once. It returns the applied ones. [ErrNewerSchema] means that nothing was changed.
func (d *DB) Migrate(ctx context.Context, s Schema) ([]Applied, error) {
	list, err := s.load()
	if err != nil {
		return nil, err
	}
	return d.migrate(ctx, list)
}

func (d *DB) migrate(ctx context.Context, list []migration) ([]Applied, error) {
	ctx = LongRunning(ctx, "migration")
	var done []Applied
	for {
		var ran *migration
		err := d.Write(ctx, func(tx *Tx) error {
			var err error
			ran, err = tx.migrateNext(ctx, list)
			return err
		})
		if err != nil {
			return done, err
		}
		if ran == nil {
			return done, nil
		}
		done = append(done, ran.Applied)
	}
}

// migrateNext applies the first missing migration; nil if none is missing.
func (tx *Tx) migrateNext(ctx context.Context, list []migration) (*migration, error) {
	if err := tx.Lock(ctx, "migrate"); err != nil {
		return nil, err
	}
	if tx.namespace != "" {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{tx.namespace}.Sanitize()); err != nil {
			return nil, err
		}
	}
	if _, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS schema_migrations (
		version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)`); err != nil {
		return nil, err
	}
	var version int64
	if err := tx.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM schema_migrations").Scan(&version); err != nil {
		return nil, err
	}
	if len(list) > 0 && version > list[len(list)-1].Version {
		return nil, ErrNewerSchema
	}
	for i := range list {
		m := &list[i]
		if m.Version <= version {
			continue
		}
		if err := tx.script(ctx, tx.engine.rewriteDDL(m.script)); err != nil {
			return nil, fmt.Errorf("migration %04d_%s: %w", m.Version, m.Name, err)
		}
		_, err := tx.Exec(ctx, "INSERT INTO schema_migrations (version, name, applied_at) VALUES ($1, $2, $3)",
			m.Version, m.Name, tx.Now.UnixMicro())
		return m, err
	}
	return nil, nil
}

// script runs several statements at once, unprepared.
func (tx *Tx) script(ctx context.Context, text string) error {
	var err error
	switch c := tx.conn.(type) {
	case poolTx:
		_, err = c.tx.ExecContext(ctx, text, pgx.QueryExecModeSimpleProtocol)
	case *writer:
		_, err = c.raw.driverConn.ExecContext(context.WithoutCancel(ctx), text, nil)
	}
	return tx.note(err)
}

// Digest identifies the text of a schema's migrations.
func (s Schema) Digest() (string, error) {
	list, err := s.load()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, m := range list {
		fmt.Fprintf(h, "%d %s %d\n%s", m.Version, m.Name, len(m.script), m.script)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
