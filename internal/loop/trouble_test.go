package loop

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Two minutes of failures ten times a second are two lines.
func TestTroubleIsTwoLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		trouble := NewTrouble(slog.New(slog.NewTextHandler(&out, nil)), "claiming jobs")
		lines := func() []string { return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") }
		trouble.Observe(t.Context(), nil)
		if out.Len() > 0 {
			t.Fatalf("a success without a failure is logged: %s", out.String())
		}
		for range 1200 {
			trouble.Observe(t.Context(), errors.New("no connection"), "kind", "inbound")
			time.Sleep(100 * time.Millisecond)
			trouble.Succeeded(t.Context()) // others succeed in between
		}
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], `level=ERROR msg="claiming jobs" error="no connection" kind=inbound`) {
			t.Fatalf("1200 failures are the lines %q", got)
		}
		time.Sleep(settled)
		for range 100 {
			trouble.Succeeded(t.Context())
		}
		if got := lines(); len(got) != 2 || !strings.Contains(got[1], `level=INFO msg="claiming jobs: recovered" failures=1200 lasted=1m59.9s`) {
			t.Fatalf("the end of 1200 failures is the lines %q", got)
		}
		trouble.Failed(t.Context(), errors.New("again"))
		if got := lines(); len(got) != 3 || !strings.Contains(got[2], "again") {
			t.Fatalf("the second trouble is the lines %q", got)
		}
	})
}

// Work that fails at each call is one line, and its recovery another.
func TestEveryLogsTroubleOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		calls := 0
		go Every(t.Context(), time.Minute, slog.New(slog.NewTextHandler(&out, nil)), "delete history", func(_ context.Context) error {
			if calls++; calls <= 50 {
				return errors.New("no connection")
			}
			return nil
		})
		time.Sleep(2 * time.Hour)
		got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(got) != 2 || !strings.Contains(got[0], "no connection") || !strings.Contains(got[1], "recovered") || !strings.Contains(got[1], "failures=50") {
			t.Errorf("%d calls, 50 of which failed, are the lines %q", calls, got)
		}
	})
}
