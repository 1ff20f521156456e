// Package keyset pages through sorted lists by the last sort key, and reads them from snapshots.
//
// A list is sorted by one field, with ties by id, so that each record has one position. A page
// ends with a [Cursor], the position of its last record, and the next page starts after it:
// however many pages precede it, a page costs the same, and a record that matches all the time
// is on exactly one page, unless its sort value changes.
package keyset

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Sort is the order of a list. The zero value is the list's default order. Ties are ordered by
// id, or by an equivalent field, in the same direction.
type Sort struct {
	Field      string // one of the list's fields; empty: the default order, and Descending is ignored
	Descending bool
}

// SQL returns the keyword of the direction, and the comparison that later rows satisfy.
func (s Sort) SQL() (order, later string) {
	if s.Descending {
		return "DESC", "<"
	}
	return "ASC", ">"
}

// Cursor is a position in a sorted list: after the record with these values, which may have
// changed or been deleted since. It is valid for the same list and sort only, and does not
// expire.
type Cursor struct {
	Value string `json:"value,omitempty"`
	Null  bool   `json:"null,omitempty"` // the record had no value
	ID    string `json:"id,omitempty"`
}

// ErrCursor reports a cursor of another list or sort.
var ErrCursor error = &problem.Error{Kind: problem.Invalid, Code: "invalid_cursor", Message: "the cursor is not valid for this list"}

// Integer returns Value as a number. Error: ErrCursor.
func (c *Cursor) Integer() (int64, error) {
	n, err := strconv.ParseInt(c.Value, 10, 64)
	if err != nil {
		return 0, ErrCursor
	}
	return n, nil
}

// CheckPage adds the issues of the parameters of a page. limit may be 0; fields are the sort
// fields of the list.
func CheckPage(v *problem.Validation, s Sort, after *Cursor, limit, maxLimit int, fields ...string) {
	if s.Field != "" && !slices.Contains(fields, s.Field) {
		v.Add("sort", "must be one of %s", strings.Join(fields, ", "))
	}
	if after != nil {
		v.Text("cursor", after.Value)
		v.Text("cursor", after.ID)
	}
	if limit < 0 || limit > maxLimit {
		v.Add("limit", "must be from 1 to %d", maxLimit)
	}
}

// MaxValues is the maximum number of values of a filter.
const MaxValues = 100

// CheckValues adds the issues of the values of a filter.
func CheckValues[T ~string](v *problem.Validation, path string, values []T) {
	if len(values) > MaxValues {
		v.AddCode("too_long", path, "must have at most %d values", MaxValues)
	}
	for _, value := range values {
		v.Text(path, string(value))
	}
}

// Statement is an SQL statement under construction, with its arguments. The zero value is
// empty.
type Statement struct {
	strings.Builder
	Args []any // the values of $1, $2, …
}

// Arg adds an argument and returns its placeholder.
func (st *Statement) Arg(v any) string {
	st.Args = append(st.Args, v)
	return "$" + strconv.Itoa(len(st.Args))
}

// Addf writes formatted SQL.
func (st *Statement) Addf(format string, args ...any) { fmt.Fprintf(st, format, args...) }

// Placeholders adds arguments and returns their placeholders, separated by commas.
func Placeholders[T ~string](st *Statement, values []T) string {
	places := make([]string, len(values))
	for i, v := range values {
		places[i] = st.Arg(string(v))
	}
	return strings.Join(places, ", ")
}

// Planner is how PostgreSQL plans the queries of a snapshot.
type Planner string

// The planners. Lists are written for their indexes: a plan may date from a time when a table
// was nearly empty, and the cost estimates for compiled queries are far off.
const (
	ByIndexes Planner = "SELECT set_config('enable_seqscan', 'off', true) || set_config('jit', 'off', true)"
	// ByValues also plans each query for its values, for lists with partial indexes.
	ByValues = ByIndexes + " || set_config('plan_cache_mode', 'force_custom_plan', true)"
)

// Snapshot runs fn in the snapshot of q, a transaction of d, or in a new one if q is d.
func Snapshot(ctx context.Context, d *db.DB, q db.Querier, p Planner, fn func(q db.Querier) error) error {
	if _, ok := q.(*db.DB); ok {
		return d.Read(ctx, func(tx *db.Tx) error { return Snapshot(ctx, d, tx, p, fn) })
	}
	if d.Postgres() {
		var set string
		if err := q.QueryRow(ctx, string(p)).Scan(&set); err != nil {
			return err
		}
	}
	return fn(q)
}

// MaxExport bounds the duration of an export. While it runs, its snapshot keeps SQLite from
// truncating the write-ahead log, and PostgreSQL from removing dead rows.
const MaxExport = time.Hour

// ExportPage is the page size of exports.
const ExportPage = 500

// Export runs fn in one snapshot, for at most [MaxExport]. See [db.DB.ReadBulk] for the number
// of simultaneous exports.
func Export(ctx context.Context, d *db.DB, fn func(ctx context.Context, tx *db.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, MaxExport)
	defer cancel()
	return d.ReadBulk(ctx, fn)
}

// EachPage calls fn with the records of all pages of a list. page returns the records after a
// position, and the position of the next page; its zero value is the start, and the end. The
// first error of fn ends the list and is returned; records is their name in errors of page.
func EachPage[T any, P comparable](records string, fn func(*T) error, page func(after P) ([]T, P, error)) error {
	var start, after P
	for {
		list, next, err := page(after)
		if err != nil {
			return fmt.Errorf("export %s: %w", records, err)
		}
		for i := range list {
			if err := fn(&list[i]); err != nil {
				return err
			}
		}
		if next == start {
			return nil
		}
		after = next
	}
}

// TrimPage returns the first limit rows, and the position of the last of them if there are more
// rows, else its zero value.
func TrimPage[T, P any](rows []T, limit int, position func(last *T) P) (page []T, next P) {
	if len(rows) > limit {
		rows = rows[:limit]
		next = position(&rows[limit-1])
	}
	return rows, next
}
