package db_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestOnStatement: statements of queries, reads and writes are observed, and no others.
func TestOnStatement(t *testing.T) {
	o := &db.Observer{Operation: func(string, time.Duration) {}, Commit: func(int, time.Duration) {}}
	d, err := db.Open(t.Context(), dbtest.URL(t), db.Options{Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var mu sync.Mutex
	var got []string
	d.Observer().OnStatement(func(query string) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, query)
	})
	read := func(query string) func(tx *db.Tx) error {
		return func(tx *db.Tx) error { return tx.QueryRow(t.Context(), query).Scan(new(int64)) }
	}
	for _, run := range []func() error{
		func() error { return d.QueryRow(t.Context(), "SELECT 1").Scan(new(int64)) },
		func() error { return d.Lookup(t.Context(), "SELECT 2").Scan(new(int64)) },
		func() error { return d.Read(t.Context(), read("SELECT 3")) },
		func() error { return d.Write(t.Context(), read("SELECT 4")) },
		func() error {
			_, err := db.All(t.Context(), d, func(r db.Row) (n int64, err error) { err = r.Scan(&n); return }, "SELECT 5")
			return err
		},
		func() error {
			return d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), "CREATE TABLE things (id BIGINT)")
				return err
			})
		},
	} {
		if err := run(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"SELECT 1", "SELECT 2", "SELECT 3", "SELECT 4", "SELECT 5", "CREATE TABLE things (id BIGINT)"}
	if !slices.Equal(got, want) {
		t.Errorf("observed %q, want %q", got, want)
	}
	d.Observer().OnStatement(nil)
	if err := d.Read(t.Context(), read("SELECT 6")); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Errorf("observed %q after the end", got[len(want):])
	}
}
