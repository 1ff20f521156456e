package audit

import (
	"context"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// CheckTampering describes database objects and rows that can hide or suppress entries:
// triggers, rules, row security and views on the audit tables, and rows stored under a
// type that comparisons skip. Kickstand creates none of them. Empty: none found. The
// schema must be current.
func CheckTampering(ctx context.Context, d *db.DB) (string, error) {
	query := interferenceSQLite
	if d.Postgres() {
		query = interferencePostgres
	}
	found, err := db.All(ctx, d, scanObject, query)
	if err != nil {
		return "", fmt.Errorf("look for triggers and views on the audit log: %w", err)
	}
	if len(found) > 0 {
		return "the database has " + strings.Join(found, ", ") + ", which can hide or suppress entries", nil
	}
	if d.Postgres() {
		return "", nil
	}
	var stored bool
	if err := d.QueryRow(ctx, untyped).Scan(&stored); err != nil {
		return "", fmt.Errorf("look at the types of the audit log: %w", err)
	}
	if stored {
		return "the log has rows whose organization_id is not text", nil
	}
	return "", nil
}

// scanObject quotes the names, which an attacker may have chosen.
func scanObject(r db.Row) (string, error) {
	var kind, name, table string
	if err := r.Scan(&kind, &name, &table); err != nil {
		return "", err
	}
	return fmt.Sprintf("the %s %q on %s", kind, name, table), nil
}

const (
	tables = `('audit_entries', 'audit_heads', 'audit_streams')`

	// A table created again with ON CONFLICT IGNORE also suppresses rows.
	interferenceSQLite = `SELECT type, name, tbl_name FROM sqlite_schema
		WHERE type = 'trigger' AND (lower(tbl_name) IN ` + tables + ` OR lower(sql) LIKE '%audit!_%' ESCAPE '!')
			OR type = 'view' AND lower(name) IN ` + tables + `
			OR type = 'table' AND lower(name) IN ` + tables + ` AND (lower(sql) LIKE '%conflict%' OR lower(sql) LIKE '%virtual%')
		ORDER BY type, name`

	// Internal triggers implement foreign keys.
	interferencePostgres = `WITH logs AS (
			SELECT oid, relname::text AS name, relkind FROM pg_class WHERE relname IN ` + tables + ` AND pg_table_is_visible(oid))
		SELECT 'trigger' AS kind, tgname::text AS name, logs.name AS log FROM pg_trigger JOIN logs ON tgrelid = logs.oid WHERE NOT tgisinternal
		UNION ALL SELECT 'rule', rulename::text, logs.name FROM pg_rewrite JOIN logs ON ev_class = logs.oid WHERE rulename <> '_RETURN'
		UNION ALL SELECT 'policy', polname::text, logs.name FROM pg_policy JOIN logs ON polrelid = logs.oid
		UNION ALL SELECT CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' ELSE 'relation' END, name, name FROM logs WHERE relkind <> 'r'
		ORDER BY kind, name`

	// SQLite sorts BLOBs after text, so the index finds them.
	untyped = `SELECT EXISTS (SELECT 1 FROM audit_entries WHERE organization_id >= x'')
		OR EXISTS (SELECT 1 FROM audit_heads WHERE organization_id >= x'')`

	// mistyped finds entries of a chain that are stored under other types: they read and
	// hash the same, and comparisons skip them.
	mistyped = `SELECT min(sequence) FROM audit_entries WHERE organization_id = $1 AND sequence > $2 AND sequence <= $3 AND (
		typeof(at) <> 'integer' OR typeof(previous) <> 'blob' OR typeof(hash) <> 'blob' OR
		typeof(id) <> 'text' OR typeof(action) <> 'text' OR typeof(outcome) <> 'text' OR typeof(service) <> 'text' OR
		typeof(environment) <> 'text' OR typeof(surface) <> 'text' OR typeof(actor_type) <> 'text' OR typeof(actor_id) <> 'text' OR
		typeof(actor_email) <> 'text' OR typeof(target_type) <> 'text' OR typeof(target_id) <> 'text' OR typeof(target_name) <> 'text' OR
		typeof(partial_key) <> 'text' OR typeof(address) <> 'text' OR typeof(user_agent) <> 'text' OR typeof(request_id) <> 'text' OR
		typeof(changes) <> 'text' OR typeof(details) <> 'text' OR typeof(key_id) <> 'text')`
)
