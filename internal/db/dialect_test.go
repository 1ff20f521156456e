package db_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestRewrite(t *testing.T) {
	for _, test := range []struct{ query, want string }{
		{"SELECT 1", "SELECT 1"},
		{"SELECT a FROM b WHERE c = $1 AND d = $12 AND e = $1", "SELECT a FROM b WHERE c = ?1 AND d = ?12 AND e = ?1"},
		{"SELECT a FROM b WHERE c = ANY($2)", "SELECT a FROM b WHERE c IN (SELECT value FROM json_each(?2))"},
		{"DELETE FROM b WHERE c <> ALL($1)", "DELETE FROM b WHERE c NOT IN (SELECT value FROM json_each(?1))"},
		{"SELECT a FROM b FOR UPDATE", "SELECT a FROM b"},
		{"SELECT a FROM b\n\tLIMIT $1\n\tFOR UPDATE SKIP LOCKED", "SELECT a FROM b\n\tLIMIT +?1"},
		{"SELECT a FROM b FOR NO KEY UPDATE OF b SKIP LOCKED", "SELECT a FROM b"},
		{"UPDATE a SET b = (SELECT c FROM d FOR UPDATE) WHERE e = $1", "UPDATE a SET b = (SELECT c FROM d) WHERE e = ?1"},
		{"INSERT INTO a VALUES ($1) ON CONFLICT (b) DO UPDATE SET b = $1", "INSERT INTO a VALUES (?1) ON CONFLICT (b) DO UPDATE SET b = ?1"},
		{"SELECT a -> '$.b' FROM c", "SELECT a -> '$.b' FROM c"},
	} {
		if got := db.Rewrite(test.query); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.query, got, test.want)
		}
	}
}

func TestRewriteForPostgres(t *testing.T) {
	for _, test := range []struct{ script, want string }{
		{"CREATE TABLE a (b TEXT NOT NULL, c BIGINT)", `CREATE TABLE a (b TEXT COLLATE "C" NOT NULL, c BIGINT)`},
		{"CREATE TABLE a (b BLOB, blobs BIGINT, TEXTS BIGINT)", "CREATE TABLE a (b BYTEA, blobs BIGINT, TEXTS BIGINT)"},
		{"CREATE TABLE a (b BIGINT PRIMARY KEY\n) WITHOUT ROWID;", "CREATE TABLE a (b BIGINT PRIMARY KEY\n);"},
	} {
		if got := db.RewriteForPostgres(test.script); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.script, got, test.want)
		}
	}
}

func TestStoreFailed(t *testing.T) {
	pg := func(code string) error { return &pgconn.PgError{Code: code} }
	for _, test := range []struct {
		err  error
		want bool
	}{
		{errors.New("some rule"), false},
		{sql.ErrNoRows, false},
		{context.Canceled, false},
		{context.DeadlineExceeded, false},
		{problem.New(problem.Conflict, "No."), false},
		{pg("23505"), false}, // unique_violation
		{pg("42P01"), false}, // undefined_table
		{pg("22P02"), false}, // invalid_text_representation
		{pg("08006"), true},  // connection_failure
		{pg("25006"), true},  // read_only_sql_transaction
		{pg("40P01"), true},  // deadlock_detected, again and again
		{pg("53100"), true},  // disk_full
		{pg("53300"), true},  // too_many_connections
		{pg("57P01"), true},  // admin_shutdown
		{pg("58030"), true},  // io_error
		{pg("XX001"), true},  // data_corrupted
		{pg(""), false},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, true},
		{io.ErrUnexpectedEOF, true},
	} {
		if got := db.StoreFailed(fmt.Errorf("wrapped: %w", test.err)); got != test.want {
			t.Errorf("%v: got %v, want %v", test.err, got, test.want)
		}
	}
}
