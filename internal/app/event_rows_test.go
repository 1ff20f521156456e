package app

import (
	"path/filepath"
	"testing"
	"time"
)

// TestEventRows: a new database has rows of several events at once, and so has one that has refused
// older programs for a while. Otherwise such a program may not have noticed yet.
func TestEventRows(t *testing.T) {
	c := Config{}
	a := deployment(t, "http://127.0.0.1:8080", quiet, func(given *Config) { c = *given })
	separate := func() bool {
		t.Helper()
		again, err := Open(t.Context(), c, quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		return again.events.SeparateRows.Load()
	}
	execute(t, a.DB, "UPDATE schema_floor_raised SET at = $1", a.DB.Now().Add(-time.Minute).UnixMicro())
	if separate() {
		t.Error("separate rows a minute after older programs were refused")
	}
	execute(t, a.DB, "UPDATE schema_floor_raised SET at = $1", a.DB.Now().UnixMicro())
	if !separate() {
		t.Error("shared rows just after older programs were refused")
	}
	execute(t, a.DB, "DELETE FROM schema_floor_raised")
	if !separate() {
		t.Error("shared rows, and the time since when older programs are refused is unknown")
	}
	execute(t, a.DB, "DELETE FROM schema_floor")
	if !separate() {
		t.Error("shared rows beside older programs")
	}
	if !a.DB.Postgres() {
		c.Data = t.TempDir()
		c.DatabaseURL = "sqlite:" + filepath.Join(c.Data, "new.db")
		if separate() {
			t.Error("separate rows in a new database")
		}
	}
}
