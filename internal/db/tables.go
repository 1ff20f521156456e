package db

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Type is the type of a column, the same on both engines.
type Type string

// The types of columns.
const (
	TextType    Type = "text"
	IntegerType Type = "integer"
	FloatType   Type = "float"
	BooleanType Type = "boolean"
	BytesType   Type = "bytes"
)

// Column is a column of a [Table].
type Column struct {
	Name     string `json:"name"`
	Type     Type   `json:"type"`
	Nullable bool   `json:"nullable,omitempty"`
}

// Table is a table with rows that can be copied between databases.
type Table struct {
	Name    string   `json:"name"`
	Columns []Column `json:"columns"`
	Key     []string `json:"key"` // columns of the primary key
}

// ownTables are tables of this package, which each database fills itself.
var ownTables = []string{"schema_migrations", "schema_floor", "schema_floor_raised", "heartbeat", copyTable}

// catalogueRow is a column as the engine describes it.
type catalogueRow struct {
	table, column, kind string
	nullable            bool
	key                 int // position in the primary key, from 1; 0: not in it
}

// sqliteColumns leaves out the two tables that Litestream adds to each database it replicates.
const sqliteColumns = `SELECT t.name, c.name, upper(c.type), c."notnull" = 0 AND c.pk = 0, c.pk
	FROM pragma_table_list AS t, pragma_table_xinfo(t.name) AS c
	WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite\_%' ESCAPE '\'
		AND t.name NOT IN ('_litestream_seq', '_litestream_lock') AND c.hidden = 0 ORDER BY t.name, c.cid`

const postgresColumns = `SELECT t.relname, c.attname, upper(format_type(c.atttypid, NULL)), NOT c.attnotnull,
		coalesce(array_position(i.indkey::smallint[], c.attnum), -1) + 1
	FROM pg_class t
	JOIN pg_attribute c ON c.attrelid = t.oid AND c.attnum > 0 AND NOT c.attisdropped AND c.attgenerated = ''
	LEFT JOIN pg_index i ON i.indrelid = t.oid AND i.indisprimary
	WHERE t.relnamespace = current_schema()::regnamespace AND t.relkind IN ('r', 'p') AND NOT t.relispartition
	ORDER BY t.relname COLLATE "C", c.attnum`

const sqliteReferences = `SELECT t.name, f."table" FROM pragma_table_list AS t, pragma_foreign_key_list(t.name) AS f
	WHERE t.schema = 'main' AND t.type = 'table'`

const postgresReferences = `SELECT t.relname, r.relname FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid JOIN pg_class r ON r.oid = c.confrelid
	WHERE c.contype = 'f' AND t.relnamespace = current_schema()::regnamespace`

// Tables returns the tables of the database, referenced ones before those that refer to them.
// Tables that the engine keeps itself, such as those behind a full-text index, those of this
// package and those of Litestream are left out.
func (d *DB) Tables(ctx context.Context) ([]Table, error) {
	columns, references := sqliteColumns, sqliteReferences
	if d.Postgres() {
		columns, references = postgresColumns, postgresReferences
	}
	rows, err := All(ctx, d, func(row Row) (c catalogueRow, err error) {
		err = row.Scan(&c.table, &c.column, &c.kind, &c.nullable, &c.key)
		return c, err
	}, columns)
	if err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	tables := make(map[string]*Table)
	var names []string
	for _, c := range rows {
		if slices.Contains(ownTables, c.table) {
			continue
		}
		t := tables[c.table]
		if t == nil {
			t = &Table{Name: c.table}
			tables[c.table] = t
			names = append(names, c.table)
		}
		t.Columns = append(t.Columns, Column{c.column, columnType(c.kind), c.nullable})
		if c.key > 0 {
			t.Key = append(t.Key, make([]string, max(0, c.key-len(t.Key)))...)
			t.Key[c.key-1] = c.column
		}
	}
	refers := make(map[string][]string)
	pairs, err := All(ctx, d, func(row Row) (pair [2]string, err error) {
		err = row.Scan(&pair[0], &pair[1])
		return pair, err
	}, references)
	if err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	for _, pair := range pairs {
		refers[pair[0]] = append(refers[pair[0]], pair[1])
	}
	return sortTables(names, tables, refers)
}

// sortTables puts referenced tables first, else sorts by name.
func sortTables(names []string, tables map[string]*Table, refers map[string][]string) ([]Table, error) {
	var sorted []Table
	slices.Sort(names)
	for len(names) > 0 {
		i := slices.IndexFunc(names, func(name string) bool {
			return !slices.ContainsFunc(refers[name], func(to string) bool { return slices.Contains(names, to) })
		})
		if i < 0 {
			return nil, fmt.Errorf("the tables %s refer to each other, so none can be filled first", strings.Join(names, ", "))
		}
		sorted = append(sorted, *tables[names[i]])
		names = slices.Delete(names, i, i+1)
	}
	return sorted, nil
}

// columnType returns the type for an engine's name of it; another name is returned in lower
// case, and cannot be copied.
func columnType(name string) Type {
	switch name {
	case "TEXT":
		return TextType
	case "BIGINT", "INTEGER":
		return IntegerType
	case "DOUBLE PRECISION":
		return FloatType
	case "BOOLEAN":
		return BooleanType
	case "BLOB", "BYTEA":
		return BytesType
	}
	return Type(strings.ToLower(name))
}

// advanceSequences sets the sequences behind columns to their greatest values, after rows were
// copied. SQLite needs none.
func (tx *Tx) advanceSequences(ctx context.Context) error {
	if tx.engine == sqliteEngine {
		return nil
	}
	type sequence struct{ name, table, column string }
	list, err := All(ctx, tx, func(row Row) (s sequence, err error) {
		err = row.Scan(&s.name, &s.table, &s.column)
		return s, err
	}, `SELECT s.oid::regclass::text, quote_ident(t.relname), quote_ident(a.attname)
		FROM pg_class s
		JOIN pg_depend d ON d.refobjid = s.oid AND d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_attrdef'::regclass
		JOIN pg_attrdef f ON f.oid = d.objid
		JOIN pg_class t ON t.oid = f.adrelid
		JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = f.adnum
		WHERE s.relkind = 'S' AND s.relnamespace = current_schema()::regnamespace
		UNION
		SELECT s.oid::regclass::text, quote_ident(t.relname), quote_ident(a.attname)
		FROM pg_class s
		JOIN pg_depend d ON d.objid = s.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') AND d.refobjsubid > 0
		JOIN pg_class t ON t.oid = d.refobjid
		JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
		WHERE s.relkind = 'S' AND s.relnamespace = current_schema()::regnamespace`)
	if err != nil {
		return fmt.Errorf("list sequences: %w", err)
	}
	for _, s := range list {
		query := fmt.Sprintf("SELECT setval($1::text::regclass, greatest((SELECT max(%s) FROM %s), nextval($1::text::regclass)))", s.column, s.table)
		var value int64
		if err := tx.QueryRow(ctx, query, s.name).Scan(&value); err != nil {
			return fmt.Errorf("advance the sequence %s: %w", s.name, err)
		}
	}
	return nil
}

// Quote returns a name of the catalogue for use in a statement.
func Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
