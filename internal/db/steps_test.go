package db_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// TestSteps: others have as much of the database as the steps, but for a second at most
// each time, and after ten minutes all of it.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name       string
			step       time.Duration
			wanted     int // steps
			made       int
			takes      time.Duration
			cancelled  time.Duration // zero: never
			fails, err error
		}{
			{name: "short steps", step: 100 * time.Millisecond, wanted: 5, made: 5, takes: 900 * time.Millisecond},
			{name: "long steps", step: 4 * time.Second, wanted: 3, made: 3, takes: 14 * time.Second},
			{name: "without end", step: time.Second, wanted: 10_000, made: 300, takes: 10 * time.Minute},
			{name: "cancelled at rest", step: time.Second, wanted: 5, made: 2, takes: 3500 * time.Millisecond, cancelled: 3500 * time.Millisecond, err: context.Canceled},
			{name: "failed", step: time.Second, wanted: 5, made: 1, takes: time.Second, fails: errors.ErrUnsupported, err: errors.ErrUnsupported},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			if tt.cancelled > 0 {
				time.AfterFunc(tt.cancelled, cancel)
			}
			made, began := 0, time.Now()
			err := db.Steps(ctx, func() (bool, error) {
				made++
				time.Sleep(tt.step)
				return made < tt.wanted, tt.fails
			})
			if took := time.Since(began); made != tt.made || took != tt.takes || !errors.Is(err, tt.err) {
				t.Errorf("%s: %d steps in %v, %v; want %d in %v, %v", tt.name, made, took, err, tt.made, tt.takes, tt.err)
			}
			cancel()
		}
	})
}
