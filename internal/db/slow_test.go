package db_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestSlowReadersLeaveRoom: slow clients of exports delay no other reads.
func TestSlowReadersLeaveRoom(t *testing.T) {
	dbtest.OnlySQLite(t)
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		leave := make(chan struct{})
		var held, refused int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				err := d.ReadBulk(t.Context(), func(context.Context, *db.Tx) error {
					mu.Lock()
					held++
					mu.Unlock()
					<-leave
					return nil
				})
				if err != nil && problem.Of(err) != problem.Unavailable {
					t.Errorf("got %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					refused++
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		for range 4 {
			wg.Go(func() {
				err := d.Read(t.Context(), func(tx *db.Tx) error {
					var one int
					return tx.QueryRow(t.Context(), "SELECT 1").Scan(&one)
				})
				if err != nil || time.Since(began) > time.Second {
					t.Errorf("beside slow readers: %v after %v", err, time.Since(began))
				}
			})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		mu.Lock()
		if held != 4 || refused != 16 {
			t.Errorf("%d hold a connection and %d were refused, want 4 and 16", held, refused)
		}
		mu.Unlock()
		close(leave)
		wg.Wait()
		if err := d.ReadBulk(t.Context(), func(context.Context, *db.Tx) error { return nil }); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
