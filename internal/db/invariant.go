package db

import (
	"context"
	"fmt"
)

// Invariant is a rule that stored records satisfy after every commit. The package that owns the
// records states it.
type Invariant struct {
	Name  string // "messages are in tickets"
	Table string // that has the records
	// Broken is a statement that returns a text for each record that breaks the rule: its id.
	Broken string
	Args   []any
}

// FileColumn is a column that refers to files in the store of attachments, by their digest.
type FileColumn struct {
	Table, Key string
	Size       string // SQL expression of the file's size in bytes; empty: unknown
}

// Damage reports damaged pages and indexes, and rows that refer to missing rows. It reads the
// whole file on SQLite. On PostgreSQL it reports nothing: the server enforces references, and
// checks pages itself.
func (d *DB) Damage(ctx context.Context) ([]string, error) {
	if d.engine == postgresEngine {
		return nil, nil
	}
	ctx = LongRunning(ctx, "check")
	found, err := All(ctx, d, func(row Row) (text string, err error) {
		err = row.Scan(&text)
		return text, err
	}, "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'")
	if err != nil {
		return nil, fmt.Errorf("check the file: %w", err)
	}
	orphans, err := All(ctx, d, func(row Row) (text string, err error) {
		err = row.Scan(&text)
		return text, err
	}, `SELECT "table" || ' refers to missing rows of ' || parent || ': ' || count(*) FROM pragma_foreign_key_check GROUP BY "table", parent`)
	if err != nil {
		return nil, fmt.Errorf("check references: %w", err)
	}
	return append(found, orphans...), nil
}
