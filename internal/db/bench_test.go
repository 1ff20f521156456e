package db_test

import (
	"context"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// The benchmarks compare with BenchmarkCeiling: the same driver and the same
// insert, prepared, in transactions of as many rows as a group may hold, with
// nothing of ours around it.

const (
	benchTable  = `CREATE TABLE bench (id TEXT PRIMARY KEY, lane TEXT NOT NULL, body BLOB NOT NULL, at BIGINT NOT NULL)`
	benchInsert = `INSERT INTO bench (id, lane, body, at) VALUES ($1, $2, $3, $4)`
)

var benchBody = make([]byte, 200)

func benchDB(b *testing.B) *db.DB {
	b.Helper()
	d := dbtest.Open(b, "sqlite:"+filepath.Join(b.TempDir(), "bench.db"))
	write(b, d, benchTable)
	return d
}

// benchID is ascending, as the ids of records are.
func benchID(n int64) string {
	return "0190c0de-0000-7000-8000-" + strconv.FormatInt(100_000_000_000+n, 10)
}

func benchWrite(b *testing.B, d *db.DB, n int64) {
	err := d.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), benchInsert, benchID(n), "lane", benchBody, tx.Now.UnixMicro())
		return err
	})
	if err != nil {
		b.Error(err)
	}
}

func BenchmarkCeiling(b *testing.B) {
	conn, err := sqlite.OpenConn(filepath.Join(b.TempDir(), "bench.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	if err := sqlitex.ExecuteTransient(conn, "PRAGMA synchronous = FULL", nil); err != nil {
		b.Fatal(err)
	}
	if err := sqlitex.ExecuteTransient(conn, benchTable, nil); err != nil {
		b.Fatal(err)
	}
	insert, begin, commit := conn.Prep(benchInsert), conn.Prep("BEGIN"), conn.Prep("COMMIT")
	run := func(stmt *sqlite.Stmt) {
		if _, err := stmt.Step(); err != nil {
			b.Fatal(err)
		}
		if err := stmt.Reset(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	run(begin)
	var n int64
	for b.Loop() {
		insert.BindText(1, benchID(n))
		insert.BindText(2, "lane")
		insert.BindBytes(3, benchBody)
		insert.BindInt64(4, n)
		run(insert)
		if n++; n%256 == 0 {
			run(commit)
			run(begin)
		}
	}
	run(commit)
	perSecond(b)
}

func BenchmarkWriteSingle(b *testing.B) {
	d := benchDB(b)
	b.ReportAllocs()
	var n int64
	for b.Loop() {
		benchWrite(b, d, n)
		n++
	}
	perSecond(b)
}

func BenchmarkWriteGrouped64(b *testing.B)  { benchGrouped(b, 64) }
func BenchmarkWriteGrouped256(b *testing.B) { benchGrouped(b, 256) }

// benchGrouped has writers goroutines write at once, each its next row as soon
// as the last is durable.
func benchGrouped(b *testing.B, writers int) {
	d := benchDB(b)
	b.ReportAllocs()
	work := make(chan int64, writers)
	done := make(chan struct{})
	var running atomic.Int64
	running.Store(int64(writers))
	for range writers {
		go func() {
			for n := range work {
				benchWrite(b, d, n)
			}
			if running.Add(-1) == 0 {
				close(done)
			}
		}()
	}
	var n int64
	for b.Loop() {
		work <- n
		n++
	}
	close(work)
	<-done
	perSecond(b)
}

func BenchmarkReadPoint(b *testing.B) {
	d := benchDB(b)
	ctx := b.Context()
	const rows = 10_000
	err := d.Write(ctx, func(tx *db.Tx) error {
		for n := range int64(rows) {
			if _, err := tx.Exec(ctx, benchInsert, benchID(n), "lane", benchBody, n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var n, at int64
	for b.Loop() {
		want := n % rows
		if err := d.QueryRow(ctx, "SELECT at FROM bench WHERE id = $1", benchID(want)).Scan(&at); err != nil || at != want {
			b.Fatalf("row %d: got %d, %v", want, at, err)
		}
		n++
	}
	perSecond(b)
}

func perSecond(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
