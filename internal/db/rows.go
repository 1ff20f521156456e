package db

import "errors"

// cursor reads the rows of a running statement. The connection's goroutine uses it.
type cursor interface {
	// next moves to the next row. It returns false after the last one and after an error, which
	// close returns.
	next() bool
	scan(dest []any) error
	columns() []string
	// close ends the statement and returns its error. It is called once.
	close() error
}

// Rows are the rows of a statement. Next and Scan read them as in [database/sql]. Rows belong to
// one goroutine, and hold a connection until they are read to the end or closed.
type Rows struct {
	cursor cursor
	ended  func(err error) error // called once at the end; returns the error to report
	open   bool
	single bool // only the first row is read; the rest is skipped
	err    error
}

var errNoRow = errors.New("Scan was called without a row")

// newRows returns the rows of a statement. ended is called once, when they end, with the
// statement's error, and returns the error to report.
func newRows(c cursor, ended func(err error) error) *Rows {
	return &Rows{cursor: c, ended: ended, open: true}
}

// Next moves to the next row. It returns false, and closes the rows, after the last one and
// after an error.
func (r *Rows) Next() bool {
	if r.open && r.cursor.next() {
		return true
	}
	r.Close()
	return false
}

// Scan copies the columns of the current row into the values that dest points to.
func (r *Rows) Scan(dest ...any) error {
	if !r.open {
		return errNoRow
	}
	return r.cursor.scan(dest)
}

// Columns returns the names of the columns, in order.
func (r *Rows) Columns() []string { return r.cursor.columns() }

// Err returns the error that ended the rows, nil after the last row.
func (r *Rows) Err() error { return r.err }

// Close ends the statement. Closing rows again does nothing.
func (r *Rows) Close() error {
	if !r.open {
		return nil
	}
	r.open = false
	r.err = r.ended(r.cursor.close())
	return r.err
}

// Row is the row of a statement. [DB.QueryRow] and [Tx.QueryRow] return one, and scan functions
// get one.
type Row interface{ Scan(dest ...any) error }

// singleRow is the result of QueryRow: the first of the rows, or an error.
type singleRow struct {
	rows *Rows
	err  error
}

// firstOf returns the first row of a query, whose error Scan returns.
func firstOf(rows *Rows, err error) Row { return &singleRow{rows, err} }

// Scan implements [Row]. Without a row it returns [ErrNoRows].
func (r *singleRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	if !r.rows.Next() {
		if r.rows.err != nil {
			return r.rows.err
		}
		return ErrNoRows
	}
	err := r.rows.Scan(dest...)
	if closed := r.rows.Close(); err == nil {
		err = closed
	}
	return err
}
