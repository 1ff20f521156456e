package ratelimit

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// windows is the common interface of both kinds of window.
type windows interface {
	Acquire(ctx context.Context, key string, limit int64) (State, bool, error)
	Peek(ctx context.Context, key string, limit int64) (State, error)
}

func acquire(t *testing.T, w windows, key string, limit int64) (State, bool) {
	t.Helper()
	state, ok, err := w.Acquire(t.Context(), key, limit)
	if err != nil {
		t.Fatal(err)
	}
	return state, ok
}

func peek(t *testing.T, w windows, key string, limit int64) State {
	t.Helper()
	state, err := w.Peek(t.Context(), key, limit)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestTake(t *testing.T) {
	type call struct {
		at        time.Duration // since the start
		peek      bool
		limit     int64
		ok        bool
		remaining int64
		reset     time.Duration // since the start
	}
	const s = time.Second
	tests := []struct {
		name  string
		calls []call
	}{
		{"the first request opens the window", []call{
			{at: 30 * s, limit: 2, ok: true, remaining: 1, reset: 90 * s},
			{at: 60 * s, limit: 2, ok: true, remaining: 0, reset: 90 * s},
			{at: 89 * s, limit: 2, ok: false, remaining: 0, reset: 90 * s},
		}},
		{"the next one after its end opens another", []call{
			{at: 0, limit: 1, ok: true, remaining: 0, reset: 60 * s},
			{at: 60*s - 1, limit: 1, ok: false, remaining: 0, reset: 60 * s},
			{at: 60 * s, limit: 1, ok: true, remaining: 0, reset: 120 * s},
			{at: 500 * s, limit: 1, ok: true, remaining: 0, reset: 560 * s},
		}},
		{"refused requests lengthen nothing", []call{
			{at: 0, limit: 2, ok: true, remaining: 1, reset: 60 * s},
			{at: 0, limit: 2, ok: true, remaining: 0, reset: 60 * s},
			{at: 20 * s, limit: 2, ok: false, remaining: 0, reset: 60 * s},
			{at: 59 * s, limit: 2, ok: false, remaining: 0, reset: 60 * s},
			{at: 60 * s, limit: 2, ok: true, remaining: 1, reset: 120 * s},
			{at: 60 * s, limit: 2, ok: true, remaining: 0, reset: 120 * s},
			{at: 60 * s, limit: 2, ok: false, remaining: 0, reset: 120 * s},
		}},
		{"a changed limit holds at once, the count stays", []call{
			{at: 0, limit: 3, ok: true, remaining: 2, reset: 60 * s},
			{at: 1 * s, limit: 3, ok: true, remaining: 1, reset: 60 * s},
			{at: 2 * s, limit: 1, ok: false, remaining: 0, reset: 60 * s},
			{at: 3 * s, limit: 5, ok: true, remaining: 2, reset: 60 * s},
			{at: 4 * s, limit: 3, ok: false, remaining: 0, reset: 60 * s},
		}},
		{"looking spends nothing", []call{
			{at: 0, peek: true, limit: 2, remaining: 2, reset: 60 * s},
			{at: 10 * s, peek: true, limit: 2, remaining: 2, reset: 70 * s},
			{at: 20 * s, limit: 2, ok: true, remaining: 1, reset: 80 * s},
			{at: 30 * s, peek: true, limit: 2, remaining: 1, reset: 80 * s},
			{at: 30 * s, peek: true, limit: 9, remaining: 8, reset: 80 * s},
			{at: 40 * s, limit: 2, ok: true, remaining: 0, reset: 80 * s},
			{at: 40 * s, peek: true, limit: 1, remaining: 0, reset: 80 * s},
			{at: 80 * s, peek: true, limit: 2, remaining: 2, reset: 140 * s},
		}},
		{"a limit of nothing opens no window", []call{
			{at: 0, limit: 0, ok: false, remaining: 0, reset: 60 * s},
			{at: 1 * s, limit: 1, ok: true, remaining: 0, reset: 61 * s},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := NewMemory(time.Minute)
				start := time.Now()
				for i, c := range tt.calls {
					time.Sleep(c.at - time.Since(start))
					var state State
					var ok bool
					if c.peek {
						state = peek(t, m, "k", c.limit)
					} else {
						state, ok = acquire(t, m, "k", c.limit)
					}
					if ok != c.ok || state.Limit != c.limit || state.Remaining != c.remaining || !state.Reset.Equal(start.Add(c.reset)) {
						t.Errorf("call %d at %v = %t, %d of %d until %v, want %t, %d of %d until %v", i, c.at,
							ok, state.Remaining, state.Limit, state.Reset.Sub(start), c.ok, c.remaining, c.limit, c.reset)
					}
				}
			})
		})
	}
}

func TestParallelTakesPassExactlyTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, keys, callers = 50, 3, 50
		m := NewMemory(time.Minute)
		for round := range 3 {
			var passed [keys]atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range 4 * limit / callers {
						for k := range keys {
							if _, ok, _ := m.Acquire(t.Context(), strconv.Itoa(k), limit); ok {
								passed[k].Add(1)
							}
						}
					}
				})
			}
			wg.Wait()
			for k := range keys {
				if got := passed[k].Load(); got != limit {
					t.Errorf("round %d, key %d: %d passed, want %d", round, k, got, limit)
				}
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestWindowsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(time.Minute)
		m.maxKeys = 100
		held := func() int {
			if len(m.keys) != m.age.Len() {
				t.Fatalf("%d keys in the map, %d in the list", len(m.keys), m.age.Len())
			}
			return len(m.keys)
		}
		for i := range 250 {
			acquire(t, m, fmt.Sprint("flood ", i), 1)
			peek(t, m, fmt.Sprint("looked at ", i), 1)
			time.Sleep(time.Millisecond)
		}
		if got := held(); got != 100 {
			t.Errorf("held %d keys under a flood, want 100", got)
		}
		// The oldest were evicted; the newest are still limited.
		if _, ok := acquire(t, m, "flood 249", 1); ok {
			t.Error("the newest key was forgotten")
		}
		// Once they are over, each window that is opened clears two away.
		time.Sleep(time.Minute)
		for i := range 100 {
			acquire(t, m, fmt.Sprint("someone ", i%10), 100)
		}
		if got := held(); got != 90 {
			t.Errorf("held %d keys after ten opened windows, want 100 - 20 + 10", got)
		}
		for i := range 90 {
			acquire(t, m, fmt.Sprint("other ", i), 1)
		}
		if got := held(); got != 100 {
			t.Errorf("held %d keys after the flood is over, want the 100 that opened a window", got)
		}
	})
}

// The age of a key is that of its last window.
func TestReopenedWindowIsNotForgottenEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(time.Minute)
		m.maxKeys = 2
		acquire(t, m, "a", 1)
		time.Sleep(30 * time.Second)
		acquire(t, m, "b", 1)
		time.Sleep(30 * time.Second)
		acquire(t, m, "a", 1) // another window
		acquire(t, m, "c", 1) // no room: b is the oldest now
		if _, ok := acquire(t, m, "a", 1); ok {
			t.Error("the window that was opened last but one was forgotten")
		}
		if got := peek(t, m, "b", 1); got.Remaining != 1 {
			t.Error("the oldest window was not forgotten")
		}
	})
}

func BenchmarkTake(b *testing.B) {
	m := NewMemory(time.Minute)
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("0199a7c2-3f10-7000-8000-%012d", i)
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			m.Acquire(b.Context(), keys[i%len(keys)], 300)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				m.Acquire(b.Context(), keys[i%len(keys)], 300)
			}
		})
	})
}
