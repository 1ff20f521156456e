package db

import (
	"context"
	"errors"
	"fmt"
)

// copyTable holds the progress of a copy into the database. While it exists the database is
// incomplete, and no server uses it.
const copyTable = "unfinished_copy"

// ErrUnfinishedCopy is returned for a database into which a restore or a move was not finished.
var ErrUnfinishedCopy = errors.New("the database is incomplete: a restore or a move into it did not finish; run it again, or start with an empty database")

// Copied is the progress of the copy of a table.
type Copied struct {
	Rows int64
	Last string // the last copied row's key, in the form of the caller
	Done bool
}

// BeginCopy marks the database as incomplete until [DB.FinishCopy], and migrates it to a version
// of its schema. source identifies what is copied: a further call with the same source continues
// its copy. Otherwise the database must not have any table.
func (d *DB) BeginCopy(ctx context.Context, s Schema, version int64, source string) error {
	list, err := s.load()
	if err != nil {
		return err
	}
	if version > list[len(list)-1].Version {
		return ErrNewerSchema
	}
	var until []migration
	for _, m := range list {
		if m.Version <= version {
			until = append(until, m)
		}
	}
	begun, err := d.hasTable(ctx, copyTable)
	if err != nil {
		return err
	}
	if begun {
		var earlier string
		if err := d.QueryRow(ctx, "SELECT last FROM "+copyTable+" WHERE name = ''").Scan(&earlier); err != nil {
			return fmt.Errorf("read the progress: %w", err)
		}
		if earlier != source {
			return fmt.Errorf("%w: it was of %s", ErrUnfinishedCopy, earlier)
		}
	} else {
		tables, err := d.Tables(ctx)
		if err == nil && len(tables) > 0 {
			err = fmt.Errorf("the database is not empty (it has a table %s); rows are copied into an empty one only", tables[0].Name)
		}
		if err != nil {
			return err
		}
		err = d.Write(ctx, func(tx *Tx) error {
			if err := tx.createNamespace(ctx); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "CREATE TABLE "+copyTable+" (name TEXT PRIMARY KEY, copied BIGINT NOT NULL, last TEXT NOT NULL, done BOOLEAN NOT NULL)"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO "+copyTable+" (name, copied, last, done) VALUES ('', 0, $1, FALSE)", source)
			return err
		})
		if err != nil {
			return fmt.Errorf("mark the database as incomplete: %w", err)
		}
	}
	_, err = d.migrate(ctx, until)
	return err
}

// Copying reports whether a copy into the database was begun and not finished.
func (d *DB) Copying(ctx context.Context) (bool, error) { return d.hasTable(ctx, copyTable) }

func (d *DB) hasTable(ctx context.Context, name string) (has bool, err error) {
	query := "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = $1)"
	if d.Postgres() {
		query = "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = $1)"
	}
	err = d.QueryRow(ctx, query, name).Scan(&has)
	return has, err
}

// Copied returns the progress of the copy of a table.
func (d *DB) Copied(ctx context.Context, table string) (c Copied, err error) {
	err = d.QueryRow(ctx, "SELECT copied, last, done FROM "+copyTable+" WHERE name = $1", table).Scan(&c.Rows, &c.Last, &c.Done)
	if errors.Is(err, ErrNoRows) {
		return Copied{}, nil
	}
	return c, err
}

// SetCopied stores the progress of the copy of a table, in the transaction that copies rows.
func (tx *Tx) SetCopied(ctx context.Context, table string, c Copied) error {
	_, err := tx.Exec(ctx, "INSERT INTO "+copyTable+` (name, copied, last, done) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET copied = excluded.copied, last = excluded.last, done = excluded.done`, table, c.Rows, c.Last, c.Done)
	return err
}

// FinishCopy migrates the database to the latest schema and makes it usable. fn runs in the
// transaction that does.
func (d *DB) FinishCopy(ctx context.Context, s Schema, fn func(tx *Tx) error) error {
	list, err := s.load()
	if err != nil {
		return err
	}
	if _, err := d.migrate(ctx, list); err != nil {
		return err
	}
	return d.Write(LongRunning(ctx, "copy"), func(tx *Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		if err := tx.advanceSequences(ctx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DROP TABLE "+copyTable)
		return err
	})
}

// OtherSessions describes the sessions of the same user in the database that have another
// application_name than this one: servers that may write. It finds none on SQLite.
func (d *DB) OtherSessions(ctx context.Context) ([]string, error) {
	if !d.Postgres() {
		return nil, nil
	}
	return All(ctx, d, func(row Row) (text string, err error) {
		err = row.Scan(&text)
		return text, err
	}, `SELECT 'process ' || pid || ' from ' || coalesce(client_addr::text, 'this machine') || coalesce(' (' || nullif(application_name, '') || ')', '')
		FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user AND backend_type = 'client backend'
		AND application_name <> current_setting('application_name')`)
}
