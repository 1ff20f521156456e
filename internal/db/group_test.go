package db_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// A function leaves its group while that waits for a connection. One that ends the group's goroutine
// ends its own caller's only.
func TestGroupEnds(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip(dbtest.Variable + " is not set")
	}
	d, err := db.Open(t.Context(), dbtest.URL(t), db.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Read(t.Context(), func(*db.Tx) error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := d.WriteGrouped(ctx, "key", func(*db.Tx) error {
			t.Error("the function runs")
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		err := d.WriteGrouped(t.Context(), "key", func(tx *db.Tx) error {
			tx.BeforeCommit("", func() error { runtime.Goexit(); return nil })
			return nil
		})
		t.Errorf("got %v, want the end of the goroutine", err)
	}()
	<-done
	if err := d.WriteGrouped(t.Context(), "key", func(*db.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
}
