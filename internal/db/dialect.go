package db

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	placeholder = regexp.MustCompile(`\$(\d+)`)
	anyOf       = regexp.MustCompile(`= ANY\((\$\d+)\)`)
	noneOf      = regexp.MustCompile(`<> ALL\((\$\d+)\)`)
	elements    = regexp.MustCompile(`unnest\((\$\d+)::(?:text|bigint)\[\]\) AS (\w+)\(value\)`)
	rowLock     = regexp.MustCompile(`\s+FOR (NO KEY )?UPDATE( OF \w+)?( SKIP LOCKED)?`)
	typeText    = regexp.MustCompile(`\bTEXT\b`)
	typeBlob    = regexp.MustCompile(`\bBLOB\b`)
	noRowID     = regexp.MustCompile(`\)\s*WITHOUT ROWID`)
)

// rewrite turns a statement of the common form, which is PostgreSQL's, into
// SQLite's:
//
//	$1                      ?1
//	= ANY($1), <> ALL($1)   (NOT) IN over the elements of a JSON array
//	unnest($1::text[]) AS l(value)  the elements of a JSON array, as l.value
//	FOR UPDATE …            nothing: there is only one writer
//
// It looks at the text alone, so a literal must not contain these.
func rewrite(query string) string {
	query = anyOf.ReplaceAllString(query, "IN (SELECT value FROM json_each($1))")
	query = noneOf.ReplaceAllString(query, "NOT IN (SELECT value FROM json_each($1))")
	query = elements.ReplaceAllString(query, "json_each($1) AS $2")
	query = rowLock.ReplaceAllString(query, "")
	return placeholder.ReplaceAllString(query, "?$1")
}

// rewriteDDL adapts a migration, which is written for SQLite: BLOB is BYTEA on
// PostgreSQL, and WITHOUT ROWID (rows live in their primary key's tree) goes.
// There text compares by bytes, as it does in SQLite, so that both engines walk an
// index in the same order. What cannot be said for both stands after a line
// "-- [sqlite]" or "-- [postgres]", up to a line "-- [both]".
func (e engine) rewriteDDL(script string) string {
	other := "-- [postgres]\n"
	if e == postgresEngine {
		other = "-- [sqlite]\n"
	}
	for {
		before, rest, found := strings.Cut(script, other)
		if !found {
			break
		}
		_, after, _ := strings.Cut(rest, "-- [") // where the next part begins
		script = before + "-- [" + after
	}
	if e == sqliteEngine {
		return script
	}
	script = noRowID.ReplaceAllString(script, ")")
	script = typeBlob.ReplaceAllString(script, "BYTEA")
	return typeText.ReplaceAllString(script, `TEXT COLLATE "C"`)
}

// IsUnique reports whether err says that a row with the same key exists.
func IsUnique(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == "23505"
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY ||
			e.Code() == sqlite3.SQLITE_CONSTRAINT_ROWID
	}
	return false
}

// mustRetry reports whether PostgreSQL asks for the transaction again.
func mustRetry(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01")
}

// isUnavailable reports whether err is the store's failure rather than the
// statement's: disk full or gone, file locked for too long, server lost.
func isUnavailable(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY,
			sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
			sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_PERM:
			return true
		}
		return false
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch class := e.Code[:min(2, len(e.Code))]; class {
		case "08", "40", "53", "57", "58", "XX":
			return true
		}
		// Read-only: a standby, or a full disk's emergency brake. Or a lock that
		// somebody holds for too long.
		return e.Code == "25006" || e.Code == "55P03"
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok && !isContext(err) {
		return true
	}
	return errors.Is(err, errClosed) || errors.Is(err, errMoved) || errors.Is(err, errLost) || errors.Is(err, errHangs) || errors.Is(err, errSlow) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "sql: database is closed") || strings.Contains(err.Error(), "conn closed")
}

// isCorrupt reports whether err says that a table or an index cannot be read any more.
func isCorrupt(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		code := e.Code() & 0xff
		return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "XX001" || e.Code == "XX002")
}
