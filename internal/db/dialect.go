package db

import (
	"errors"
	"io"
	"net"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"zombiezen.com/go/sqlite"
)

var (
	placeholder = regexp.MustCompile(`\$(\d+)`)
	anyOf       = regexp.MustCompile(`= ANY\((\$\d+)\)`)
	noneOf      = regexp.MustCompile(`<> ALL\((\$\d+)\)`)
	elements    = regexp.MustCompile(`unnest\((\$\d+)::(?:text|bigint)\[\]\) AS (\w+)\(value\)`)
	limit       = regexp.MustCompile(`\bLIMIT (\$\d+)`)
	rowLock     = regexp.MustCompile(`\s+FOR (NO KEY UPDATE|UPDATE|KEY SHARE)( OF \w+)?( SKIP LOCKED)?`)
	typeText    = regexp.MustCompile(`\bTEXT\b`)
	typeBlob    = regexp.MustCompile(`\bBLOB\b`)
	noRowID     = regexp.MustCompile(`\)\s*WITHOUT ROWID`)
)

// rewrite translates a statement from the common form, PostgreSQL's, to SQLite's:
//
//	$1                      ?1
//	= ANY($1), <> ALL($1)   (NOT) IN over the elements of a JSON array
//	unnest($1::text[]) AS l(value)  the elements of a JSON array, as l.value
//	LIMIT $1                LIMIT +?1: SQLite plans for the value of a bare parameter, so it would
//	                        compile the statement again at each use
//	FOR UPDATE …            nothing: there is only one writer
//
// It works on the text alone, so literals must not contain these.
func rewrite(query string) string {
	query = anyOf.ReplaceAllString(query, "IN (SELECT value FROM json_each($1))")
	query = noneOf.ReplaceAllString(query, "NOT IN (SELECT value FROM json_each($1))")
	query = elements.ReplaceAllString(query, "json_each($1) AS $2")
	query = limit.ReplaceAllString(query, "LIMIT +$1")
	query = rowLock.ReplaceAllString(query, "")
	return placeholder.ReplaceAllString(query, "?$1")
}

// rewriteDDL adapts a migration, which is written for SQLite, to PostgreSQL: BLOB becomes
// BYTEA, and WITHOUT ROWID (rows stored in the primary key's tree) is removed. Text columns
// compare by bytes, as in SQLite, so that indexes have the same order on both engines. Parts
// for one engine follow a line "-- [sqlite]" or "-- [postgres]", up to a line "-- [both]".
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
		_, after, _ := strings.Cut(rest, "-- [") // the next part
		script = before + "-- [" + after
	}
	if e == sqliteEngine {
		return script
	}
	script = noRowID.ReplaceAllString(script, ")")
	script = typeBlob.ReplaceAllString(script, "BYTEA")
	return typeText.ReplaceAllString(script, `TEXT COLLATE "C"`)
}

// IsUnique reports whether err is a violation of a unique constraint by the statement that
// returned it, not by one that [Tx.Queue] had queued before.
func IsUnique(err error) bool {
	if _, earlier := errors.AsType[*queuedError](err); earlier {
		return false
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == "23505"
	}
	switch sqliteCode(err) {
	case sqlite.ResultConstraintUnique, sqlite.ResultConstraintPrimaryKey, sqlite.ResultConstraintRowID:
		return true
	}
	return false
}

// mustRetry reports whether PostgreSQL asks to retry the transaction.
func mustRetry(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	// The last is a statement that was prepared before a migration.
	return ok && (e.Code == "40001" || e.Code == "40P01" || e.Code == "0A000" && strings.Contains(e.Message, "cached plan"))
}

// isLockTimeout reports whether err means that a lock of PostgreSQL was held for too long.
func isLockTimeout(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "55P03"
}

// isUnavailable reports whether err is a failure of the store rather than of the statement:
// disk full or missing, lock timeout, server lost.
func isUnavailable(err error) bool {
	switch sqliteCode(err).ToPrimary() {
	case sqlite.ResultFull, sqlite.ResultIOErr, sqlite.ResultReadOnly, sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultCantOpen,
		sqlite.ResultCorrupt, sqlite.ResultNotADB, sqlite.ResultNoMem, sqlite.ResultProtocol, sqlite.ResultPerm:
		return true
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch class := e.Code[:min(2, len(e.Code))]; class {
		case "08", "40", "53", "57", "58", "XX":
			return true
		}
		// Read-only: a standby, or a full disk's safety stop. Or a lock timeout.
		return e.Code == "25006" || e.Code == "55P03"
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if errors.Is(err, errNotReplicated) || errors.Is(err, pgconn.ErrReadOnlyConnection) {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok && !isContext(err) {
		return true
	}
	return errors.Is(err, errClosed) || errors.Is(err, errMoved) || errors.Is(err, errLost) || errors.Is(err, errHangs) || errors.Is(err, errSlow) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed")
}

// errNotReplicated means that a transaction was committed but a synchronous standby did not
// confirm it.
var errNotReplicated = errors.New("the standby server did not confirm the transaction")

// isFull reports whether err means that the disk has no space.
func isFull(err error) bool {
	if sqliteCode(err).ToPrimary() == sqlite.ResultFull {
		return true
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "53100"
}

// isCorrupt reports whether err means a damaged table or index.
func isCorrupt(err error) bool {
	if code := sqliteCode(err).ToPrimary(); code == sqlite.ResultCorrupt || code == sqlite.ResultNotADB {
		return true
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "XX001" || e.Code == "XX002")
}
