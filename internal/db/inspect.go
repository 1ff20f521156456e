package db

import (
	"context"
	"fmt"
	"time"
)

// Inspection describes a database.
type Inspection struct {
	Engine  string    // "SQLite 3.50.1"
	Release int       // major version of the engine
	Version int64     // of the schema; 0: not migrated
	Clock   time.Time // of the server; zero on SQLite
}

// Inspect describes the database. It changes nothing.
func (d *DB) Inspect(ctx context.Context) (Inspection, error) {
	var i Inspection
	var migrated bool
	var err error
	if d.engine == sqliteEngine {
		var release string
		err = d.QueryRow(ctx, "SELECT sqlite_version(), EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'schema_migrations')").Scan(&release, &migrated)
		fmt.Sscanf(release, "%d", &i.Release)
		i.Engine = "SQLite " + release
	} else {
		var number, clock int64
		err = d.QueryRow(ctx, `SELECT current_setting('server_version_num')::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
			EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'schema_migrations')`).Scan(&number, &clock, &migrated)
		i.Release, i.Clock = int(number/10000), time.UnixMicro(clock)
		i.Engine = fmt.Sprintf("PostgreSQL %d.%d", i.Release, number%10000)
	}
	if err != nil {
		return Inspection{}, fmt.Errorf("inspect the database: %w", err)
	}
	if migrated {
		if err := d.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM schema_migrations").Scan(&i.Version); err != nil {
			return Inspection{}, fmt.Errorf("read the version of the schema: %w", err)
		}
	}
	return i, nil
}

// Newest returns the version of the schema's last migration.
func (s Schema) Newest() (int64, error) {
	list, err := s.load()
	if err != nil || len(list) == 0 {
		return 0, err
	}
	return list[len(list)-1].Version, nil
}
