package ops

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Progress is called from time to time with the work done so far, and all of it.
type Progress func(what string, done, total int64)

// source has the rows of a database that are copied into another.
type source interface {
	// id identifies the source, so that an interrupted copy of it can continue.
	id() string
	// describe returns the version of a database's schema, and its tables with their numbers
	// of rows.
	describe(ctx context.Context, database string) (version int64, tables []copiedTable, err error)
	// lines returns the lines of a table in the order of its key, without those copied already.
	lines(ctx context.Context, database string, t db.Table, from db.Copied) iter.Seq2[[]byte, error]
}

// copiedTable is a table of a source.
type copiedTable struct {
	db.Table
	rows int64
}

// load copies all rows of a source into databases, which are empty or have a part of the same
// copy, and compares each table afterwards. finish runs at the end of each database, in the
// transaction that makes it usable.
func load(ctx context.Context, from source, into []Database, progress Progress, files func(context.Context) error) error {
	total, done := int64(0), int64(0)
	type plan struct {
		Database
		tables   []copiedTable
		finished bool
	}
	plans := make([]plan, len(into))
	resumed := false
	for i, d := range into {
		version, tables, err := from.describe(ctx, d.Name)
		if err != nil {
			return err
		}
		plans[i] = plan{Database: d, tables: tables}
		for _, t := range tables {
			total += 2 * t.rows
		}
		copying, err := d.DB.Copying(ctx)
		if err != nil {
			return err
		}
		if i == 0 {
			resumed = copying
		} else if resumed && !copying {
			// The first database is finished last.
			state, err := d.DB.Inspect(ctx)
			if err != nil {
				return err
			}
			plans[i].finished = state.Version > 0
		}
		if !plans[i].finished {
			if err := d.DB.BeginCopy(ctx, d.Schema, version, from.id()); err != nil {
				return fmt.Errorf("copy into the database %s: %w", d.Name, err)
			}
		}
	}
	count := func(what string) func(int64) {
		return func(n int64) {
			done += n
			progress(what, done, total)
		}
	}
	for i := range plans {
		p := &plans[i]
		if p.finished {
			for _, t := range p.tables {
				done += 2 * t.rows
			}
			continue
		}
		for _, t := range p.tables {
			if err := p.check(ctx, t.Table); err != nil {
				return err
			}
			if t.rows == 0 {
				continue
			}
			if err := p.fill(ctx, from, t, count("copying "+p.Name+" "+t.Name)); err != nil {
				return fmt.Errorf("copy the table %s of %s: %w", t.Name, p.Name, err)
			}
		}
		for _, t := range p.tables {
			target := snapshotLines(ctx, p.DB, t.Table, "")
			if err := compare(from.lines(ctx, p.Name, t.Table, db.Copied{}), target, t.Table, count("comparing "+p.Name+" "+t.Name)); err != nil {
				return fmt.Errorf("the copy of the table %s of %s: %w", t.Name, p.Name, err)
			}
		}
	}
	if err := files(ctx); err != nil {
		return err
	}
	for i := len(plans) - 1; i >= 0; i-- {
		if p := &plans[i]; !p.finished {
			if err := p.DB.FinishCopy(ctx, p.Schema, func(tx *db.Tx) error {
				if p.AfterCopy == nil {
					return nil
				}
				return p.AfterCopy(ctx, tx)
			}); err != nil {
				return fmt.Errorf("finish the database %s: %w", p.Name, err)
			}
		}
	}
	return nil
}

// check returns an error unless the database has a table with the same columns.
func (d Database) check(ctx context.Context, t db.Table) error {
	tables, err := d.DB.Tables(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(tables, func(has db.Table) bool { return has.Name == t.Name })
	if i < 0 {
		return fmt.Errorf("the database %s has no table %s", d.Name, t.Name)
	}
	byName := func(a, b db.Column) int { return strings.Compare(a.Name, b.Name) }
	has, want := slices.SortedFunc(slices.Values(tables[i].Columns), byName), slices.SortedFunc(slices.Values(t.Columns), byName)
	if !slices.Equal(has, want) {
		return fmt.Errorf("the columns of the table %s of %s differ from those of the source", t.Name, d.Name)
	}
	return nil
}

// Bounds of a transaction that inserts rows.
const (
	batchRows  = 2000
	batchBytes = 8 << 20
)

// fill copies the rows of a table that are missing in the database.
func (d Database) fill(ctx context.Context, from source, t copiedTable, count func(int64)) error {
	state, err := d.DB.Copied(ctx, t.Name)
	if err != nil {
		return err
	}
	count(state.Rows)
	if state.Done {
		return nil
	}
	insert := newInserter(t.Table)
	var batch [][]any
	size := 0
	flush := func(done bool) error {
		next := db.Copied{Rows: state.Rows + int64(len(batch)), Last: state.Last, Done: done}
		if len(batch) > 0 {
			if next.Last, err = keyOf(t.Table, batch[len(batch)-1]); err != nil {
				return err
			}
		}
		err := d.DB.Write(ctx, func(tx *db.Tx) error {
			if err := insert.rows(ctx, tx, batch); err != nil {
				return err
			}
			return tx.SetCopied(ctx, t.Name, next)
		})
		if err != nil {
			return err
		}
		count(int64(len(batch)))
		state, batch, size = next, batch[:0], 0
		return nil
	}
	for line, err := range from.lines(ctx, d.Name, t.Table, state) {
		if err != nil {
			return err
		}
		values, err := parseLine(line, t.Columns)
		if err != nil {
			return err
		}
		batch, size = append(batch, values), size+len(line)
		if len(batch) == batchRows || size >= batchBytes {
			if err := flush(false); err != nil {
				return err
			}
		}
	}
	return flush(true)
}

// inserter inserts rows into a table, several by one statement.
type inserter struct {
	columns int
	sizes   []int    // numbers of rows, descending to 1
	texts   []string // statements by size
}

// maxArgs bounds the arguments of a statement: half of SQLite's limit.
const maxArgs = 16_000

func newInserter(t db.Table) inserter {
	in := inserter{columns: len(t.Columns)}
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = db.Quote(c.Name)
	}
	for _, size := range []int{64, 16, 4, 1} {
		if size > 1 && size*len(names) > maxArgs {
			continue
		}
		rows := make([]string, size)
		for row := range rows {
			places := make([]string, len(names))
			for i := range places {
				places[i] = fmt.Sprintf("$%d", row*len(names)+i+1)
			}
			rows[row] = "(" + strings.Join(places, ", ") + ")"
		}
		in.sizes = append(in.sizes, size)
		in.texts = append(in.texts, fmt.Sprintf("INSERT INTO %s (%s) VALUES %s", db.Quote(t.Name), strings.Join(names, ", "), strings.Join(rows, ", ")))
	}
	return in
}

func (in inserter) rows(ctx context.Context, tx *db.Tx, rows [][]any) error {
	args := make([]any, 0, in.sizes[0]*in.columns)
	for i, size := range in.sizes {
		for len(rows) >= size {
			args = args[:0]
			for _, row := range rows[:size] {
				args = append(args, row...)
			}
			if err := tx.Queue(ctx, in.texts[i], args...); err != nil {
				return err
			}
			rows = rows[size:]
		}
	}
	return nil
}

// compare returns an error at the first row that differs.
func compare(source, target iter.Seq2[[]byte, error], t db.Table, count func(int64)) error {
	next, stop := iter.Pull2(target)
	defer stop()
	var n int64
	differ := func(what string, line []byte) error {
		if values, err := parseLine(line, t.Columns); err == nil {
			if key, err := keyOf(t, values); err == nil {
				what += ": " + key
			}
		}
		return fmt.Errorf("row %d differs from the source; %s", n, what)
	}
	for want, err := range source {
		if err != nil {
			return err
		}
		n++
		got, err, ok := next()
		switch {
		case ok && err != nil:
			return err
		case !ok:
			return differ("it is missing", want)
		case !bytes.Equal(got, want):
			return differ("the source has another", want)
		}
		if n%pageRows == 0 {
			count(pageRows)
		}
	}
	if got, err, ok := next(); ok {
		n++
		if err != nil {
			return err
		}
		return differ("the source does not have it", got)
	}
	count(n % pageRows)
	return nil
}

// sumLines returns the number of lines, and the digest of all.
func sumLines(of iter.Seq2[[]byte, error]) (n int64, sum string, err error) {
	h := sha256.New()
	for line, err := range of {
		if err != nil {
			return 0, "", err
		}
		h.Write(line)
		h.Write([]byte{'\n'})
		n++
	}
	return n, hex.EncodeToString(h.Sum(nil)), nil
}
