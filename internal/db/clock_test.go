package db_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// wrongClock is a wall clock that can be set.
type wrongClock struct{ offset atomic.Int64 }

func (c *wrongClock) now() time.Time           { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *wrongClock) set(offset time.Duration) { c.offset.Store(int64(offset)) }

// openWithClock opens a second handle on rawURL.
func openWithClock(t *testing.T, rawURL string, wall func() time.Time) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), rawURL, db.Options{MaxConns: 4, Wall: wall})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// times returns the times of d at one moment: of a write, of a read, and without a transaction.
func times(t *testing.T, d *db.DB) map[string]time.Time {
	t.Helper()
	now := make(map[string]time.Time)
	note := func(name string) func(tx *db.Tx) error {
		return func(tx *db.Tx) error { now[name] = tx.Now; return nil }
	}
	if err := errors.Join(d.Write(t.Context(), note("write")), d.Read(t.Context(), note("read"))); err != nil {
		t.Fatal(err)
	}
	now["now"] = d.Now()
	return now
}

// tolerance is far above a round trip on a busy machine, and far below the skews.
const tolerance = 400 * time.Millisecond

func TestWrongClocksDoNotShowOnPostgres(t *testing.T) {
	rawURL := dbtest.URL(t)
	if !dbtest.Open(t, rawURL).Postgres() {
		t.Skip("only on PostgreSQL")
	}
	for _, offset := range []time.Duration{0, time.Second, -15 * time.Second, 2 * time.Minute, -time.Hour} {
		var c wrongClock
		c.set(offset)
		d := openWithClock(t, rawURL, c.now)
		check := func(want time.Duration) {
			t.Helper()
			for name, got := range times(t, d) {
				if off := time.Until(got).Abs(); off > tolerance {
					t.Errorf("clock off by %s: the time of %s is off by %s", want, name, off)
				}
			}
			skew, known := d.ClockSkew()
			if !known || (skew-want).Abs() > tolerance {
				t.Errorf("clock off by %s: ClockSkew is %s, %v", want, skew, known)
			}
		}
		check(offset)
		for _, jump := range []time.Duration{time.Hour, -24 * time.Hour, 0} {
			c.set(jump)
			check(jump)
		}
	}
}

// The estimate never precedes the time of a transaction that has begun.
func TestNowFollowsTransactions(t *testing.T) {
	d := dbtest.New(t)
	for range 200 {
		var begun time.Time
		err := d.Write(t.Context(), func(tx *db.Tx) error { begun = tx.Now; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if now := d.Now(); now.Before(begun) {
			t.Fatalf("Now is %s before the time of a transaction", begun.Sub(now))
		}
	}
	if before := d.Now(); d.MeasureClock(t.Context()) != nil || time.Until(before).Abs() > tolerance {
		t.Errorf("Now is off by %s", time.Until(before))
	}
}

// A transaction begins on another connection if its own was lost meanwhile.
func TestBeginOnLostConnections(t *testing.T) {
	rawURL := dbtest.URL(t)
	d := openWithClock(t, rawURL, nil)
	if !d.Postgres() {
		t.Skip("only on PostgreSQL")
	}
	other := openWithClock(t, rawURL, nil)
	for range 5 {
		write(t, other, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		if err := d.Write(t.Context(), func(*db.Tx) error { return nil }); err != nil {
			t.Error(err)
		}
	}
}

func TestServerClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := db.NewServerClock()
		if _, known := c.Now(); known {
			t.Error("known before the first reading")
		}
		// measure reads a server's clock that is off by offset, there seconds before the answer.
		measure := func(offset, there, back time.Duration) {
			before := time.Now()
			time.Sleep(there)
			server := time.Now().Add(offset)
			time.Sleep(back)
			c.Note(before, server, time.Now())
		}
		check := func(offset, within time.Duration) {
			t.Helper()
			now, known := c.Now()
			if off := now.Sub(time.Now().Add(offset)).Abs(); !known || off > within {
				t.Errorf("off by %s (%v), want at most %s", off, known, within)
			}
		}
		const ms = time.Millisecond
		measure(time.Hour, 10*ms, 10*ms)
		check(time.Hour, time.Microsecond)
		measure(time.Hour, 0, 400*ms) // a slow answer does not spoil the estimate
		check(time.Hour, 10*ms)
		measure(time.Hour, 2*ms, 0)
		check(time.Hour, 2*ms)
		measure(time.Hour+3*ms, ms, ms) // drift beyond the bounds
		check(time.Hour+3*ms, 2*ms)
		measure(-time.Hour, ms, ms) // the server's clock was set, or another server answers
		check(-time.Hour, ms)
		time.Sleep(time.Hour) // the monotonic clock continues
		check(-time.Hour, ms)
		measure(-time.Hour, 0, time.Second)
		check(-time.Hour, time.Second)
	})
}

func TestLocalClockNeverRunsBackwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c wrongClock
		now := db.NewLocalClock(c.now)
		last := now()
		if !last.Equal(time.Now().Truncate(time.Microsecond)) {
			t.Errorf("%s, want the wall clock's time", last)
		}
		step := func(sleep, want time.Duration) {
			t.Helper()
			time.Sleep(sleep)
			got := now()
			if moved := got.Sub(last); moved != want {
				t.Errorf("after %s the clock moved by %s, want %s", sleep, moved, want)
			}
			last = got
		}
		step(time.Second, time.Second)
		c.set(-time.Minute)
		step(0, 0)
		step(10*time.Second, 5*time.Second)
		step(110*time.Second, 55*time.Second) // here the wall clock has caught up
		step(time.Second, time.Second)
		c.set(time.Hour)
		step(time.Second, time.Second+time.Minute+time.Hour)
	})
}
