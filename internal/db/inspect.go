package db

import (
	"context"
	"fmt"
	"time"
)

// Inspection describes a database.
type Inspection struct {
	Engine  string // "SQLite 3.50.1"
	Release int    // major version of the engine
	Version int64  // of the schema; 0: not migrated
	Floor   int64  // the version that a program must know to run on it
	// FloorRaised is the database's time when Floor was raised: 1970 if it was never lower; zero:
	// unknown.
	FloorRaised time.Time
}

// Inspect describes the database. It changes nothing.
func (d *DB) Inspect(ctx context.Context) (Inspection, error) {
	var i Inspection
	var migrated, floors, raised bool
	var err error
	if d.engine == sqliteEngine {
		var release string
		err = d.QueryRow(ctx, "SELECT sqlite_version(), EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'schema_migrations'), EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'schema_floor'), EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'schema_floor_raised')").Scan(&release, &migrated, &floors, &raised)
		fmt.Sscanf(release, "%d", &i.Release)
		i.Engine = "SQLite " + release
	} else {
		var number int64
		err = d.QueryRow(ctx, `SELECT current_setting('server_version_num')::bigint,
			EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'schema_migrations'),
			EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'schema_floor'),
			EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'schema_floor_raised')`).Scan(&number, &migrated, &floors, &raised)
		i.Release = int(number / 10000)
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
	if floors {
		if err := d.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM schema_floor").Scan(&i.Floor); err != nil {
			return Inspection{}, fmt.Errorf("read the oldest version that may run: %w", err)
		}
	}
	if raised {
		if err := d.QueryRow(ctx, "SELECT max(at) FROM schema_floor_raised").Scan(IntoTime(&i.FloorRaised)); err != nil {
			return Inspection{}, fmt.Errorf("read when the oldest version that may run was raised: %w", err)
		}
	}
	return i, nil
}

// Excludes reports whether no program without the migration version can be running on the migrated
// database: its floor is above them, and has been for [FencePause].
func (d *DB) Excludes(ctx context.Context, q Querier, version int64) (bool, error) {
	var floor int64
	var raised time.Time
	if err := q.QueryRow(ctx, "SELECT coalesce((SELECT max(version) FROM schema_floor), 0), (SELECT max(at) FROM schema_floor_raised)").Scan(&floor, IntoTime(&raised)); err != nil {
		return false, fmt.Errorf("read the oldest version that may run: %w", err)
	}
	return floor >= version && !raised.IsZero() && d.Now().Sub(raised) >= FencePause, nil
}

// Newest returns the version of the schema's last migration.
func (s Schema) Newest() (int64, error) {
	list, err := s.load()
	if err != nil || len(list) == 0 {
		return 0, err
	}
	return list[len(list)-1].Version, nil
}
