package db

import (
	"context"
	"fmt"
)

// Connections are the connections of a PostgreSQL server.
type Connections struct {
	Limit  int // that the user of this database can have in total
	Ours   int // in use by Kickstand
	Others int
}

// applicationName is the name of our sessions, unless the URL sets another.
const applicationName = "kickstand"

// Connections counts the connections of the server; zero on SQLite.
func (d *DB) Connections(ctx context.Context) (Connections, error) {
	var c Connections
	if d.engine == sqliteEngine {
		return c, nil
	}
	// Every session has a database; the server's own processes have none. The name is visible
	// for sessions of other users, too.
	err := d.QueryRow(ctx, `SELECT least(
			current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint - coalesce(current_setting('reserved_connections', true), '0')::bigint,
			(SELECT CASE WHEN rolconnlimit >= 0 THEN rolconnlimit END FROM pg_roles WHERE rolname = current_user),
			(SELECT CASE WHEN datconnlimit >= 0 THEN datconnlimit END FROM pg_database WHERE datname = current_database())),
		count(*) FILTER (WHERE application_name = current_setting('application_name')),
		count(*) FILTER (WHERE application_name <> current_setting('application_name'))
		FROM pg_stat_activity WHERE datid IS NOT NULL`).Scan(&c.Limit, &c.Ours, &c.Others)
	if err != nil {
		return Connections{}, fmt.Errorf("count the connections of the database server: %w", err)
	}
	return c, nil
}
