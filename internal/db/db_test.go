package db_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

func TestConformance(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		dbtest.Run(t, func(t *testing.T) *db.DB { return dbtest.NewSQLite(t) })
	})
	t.Run("postgres", func(t *testing.T) {
		needPostgres(t)
		dbtest.Run(t, func(t *testing.T) *db.DB { return dbtest.New(t) })
	})
}

func needPostgres(t *testing.T) {
	t.Helper()
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("set " + dbtest.Variable + " to test on PostgreSQL")
	}
}

// write runs one statement in a transaction.
func write(t testing.TB, d *db.DB, query string, args ...any) {
	t.Helper()
	if err := tryWrite(d, query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func tryWrite(d *db.DB, query string, args ...any) error {
	return d.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), query, args...)
		return err
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, limit time.Duration, what string, met func() bool) time.Duration {
	t.Helper()
	for begun := time.Now(); ; <-time.After(5 * time.Millisecond) {
		if met() {
			return time.Since(begun)
		}
		if time.Since(begun) > limit {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
