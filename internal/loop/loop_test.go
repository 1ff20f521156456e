package loop_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/loop"
)

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		var out bytes.Buffer
		var calls []time.Duration
		begin := time.Now()
		loop.Every(ctx, time.Minute, slog.New(slog.NewTextHandler(&out, nil)), "count", func(context.Context) error {
			calls = append(calls, time.Since(begin))
			if len(calls) == 1 {
				return errors.New("no database")
			}
			time.Sleep(time.Second) // the interval begins after it
			return nil
		})
		if want := []time.Duration{0, 60 * time.Second, 121 * time.Second}; !slices.Equal(calls, want) {
			t.Errorf("calls at %v, want %v", calls, want)
		}
		if got := time.Since(begin); got != 150*time.Second {
			t.Errorf("returned after %s", got)
		}
		if text := out.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, `level=ERROR msg=count error="no database"`) || !strings.Contains(text, `msg="count: recovered" failures=1`) {
			t.Errorf("log %q", text)
		}
	})
}

func TestEveryDoesNothingAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	loop.Every(ctx, time.Minute, slog.New(slog.DiscardHandler), "count", func(context.Context) error {
		t.Error("called")
		return nil
	})
}

func TestEveryOrIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		wake := make(chan struct{}, 1)
		var calls []time.Duration
		begin := time.Now()
		time.AfterFunc(30*time.Second, func() { wake <- struct{}{} })
		time.AfterFunc(100*time.Second, cancel)
		loop.EveryOr(ctx, time.Minute, wake, slog.New(slog.DiscardHandler), "count", func(context.Context) error {
			if calls = append(calls, time.Since(begin)); len(calls) == 2 {
				wake <- struct{}{} // during a call
			}
			return nil
		})
		if want := []time.Duration{0, 30 * time.Second, 30 * time.Second, 90 * time.Second}; !slices.Equal(calls, want) {
			t.Errorf("calls at %v, want %v", calls, want)
		}
	})
}

func TestFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		loop.Finish(ctx, slog.New(slog.DiscardHandler), "flush", func(ctx context.Context) error {
			if ctx.Err() != nil {
				t.Error("the context has ended already")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if got := time.Since(begin); got != 5*time.Second {
			t.Errorf("it took %s", got)
		}
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, lost := time.Now(), errors.New("lease lost")
		if err := loop.Pause(t.Context(), time.Minute); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(lost) })
		if err := loop.Pause(ctx, time.Minute); !errors.Is(err, lost) || time.Since(begin) != 61*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	})
}
