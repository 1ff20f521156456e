package ratelimit

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAllow(t *testing.T) {
	type call struct {
		at   time.Duration // since the start
		ok   bool
		wait time.Duration
	}
	tests := []struct {
		name   string
		limit  int
		window time.Duration
		calls  []call
	}{
		{"one a minute", 1, time.Minute, []call{
			{0, true, 0},
			{0, false, time.Minute},
			{59*time.Second + 999*time.Millisecond, false, time.Millisecond},
			{time.Minute, true, 0},
			{time.Minute, false, time.Minute},
		}},
		{"the window slides", 3, time.Minute, []call{
			{0, true, 0},
			{20 * time.Second, true, 0},
			{50 * time.Second, true, 0},
			{55 * time.Second, false, 5 * time.Second},
			{60 * time.Second, true, 0},
			// No fresh three at the full minute: 20, 50 and 60 s are within it.
			{60 * time.Second, false, 20 * time.Second},
			{80 * time.Second, true, 0},
			{81 * time.Second, false, 29 * time.Second},
			{110 * time.Second, true, 0},
			{110 * time.Second, false, 10 * time.Second},
		}},
		{"refused calls lengthen nothing", 2, time.Minute, []call{
			{0, true, 0},
			{0, true, 0},
			{10 * time.Second, false, 50 * time.Second},
			{30 * time.Second, false, 30 * time.Second},
			{59 * time.Second, false, time.Second},
			{60 * time.Second, true, 0},
			{60 * time.Second, true, 0},
			{60 * time.Second, false, time.Minute},
		}},
		{"long silence", 2, time.Minute, []call{
			{0, true, 0},
			{0, true, 0},
			{100 * time.Hour, true, 0},
			{100 * time.Hour, true, 0},
			{100 * time.Hour, false, time.Minute},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(tt.limit, tt.window)
				start := time.Now()
				for i, c := range tt.calls {
					time.Sleep(c.at - time.Since(start))
					if ok, wait := l.Allow(t.Context(), "ana@client.example"); ok != c.ok || wait != c.wait {
						t.Errorf("call %d at %v = %t, %v, want %t, %v", i, c.at, ok, wait, c.ok, c.wait)
					}
				}
			})
		})
	}
}

func TestKeysAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, time.Minute)
		for _, key := range []string{"", "a", "b", "A"} {
			if ok, _ := l.Allow(t.Context(), key); !ok {
				t.Errorf("first call for %q refused", key)
			}
			if ok, _ := l.Allow(t.Context(), key); ok {
				t.Errorf("second call for %q allowed", key)
			}
		}
	})
}

// Sleeping for exactly the wait is enough, and a nanosecond less is not.
func TestRetryAfterIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(3, 61*time.Second+7*time.Nanosecond)
		l.Allow(t.Context(), "k")
		time.Sleep(time.Second)
		l.Allow(t.Context(), "k")
		l.Allow(t.Context(), "k")
		_, wait := l.Allow(t.Context(), "k")
		time.Sleep(wait - 1)
		if ok, rest := l.Allow(t.Context(), "k"); ok || rest != 1 {
			t.Errorf("just before the wait is over: %t, %v, want false, 1ns", ok, rest)
		}
		time.Sleep(time.Nanosecond)
		if ok, _ := l.Allow(t.Context(), "k"); !ok {
			t.Error("refused after the wait")
		}
	})
}

// Wait agrees with Allow, and counts nothing.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(2, time.Minute)
		look := func(want time.Duration) {
			t.Helper()
			for range 3 {
				if got := l.Wait(t.Context(), "k"); got != want {
					t.Errorf("after %v: got wait %v, want %v", time.Since(l.start), got, want)
				}
			}
		}
		look(0)
		l.Allow(t.Context(), "k")
		look(0)
		time.Sleep(20 * time.Second)
		l.Allow(t.Context(), "k")
		look(40 * time.Second)
		time.Sleep(40*time.Second - 1)
		look(1)
		time.Sleep(time.Nanosecond)
		look(0)
		if len(l.keys) != 1 || l.Wait(t.Context(), "another") != 0 || len(l.keys) != 1 {
			t.Error("a look added a key")
		}
	})
}

func TestParallelCallsPassExactlyTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, keys, callers = 5, 3, 64
		l := New(limit, time.Minute)
		for round := range 3 {
			var passed [keys]atomic.Int32
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range 4 {
						for k := range keys {
							if ok, _ := l.Allow(t.Context(), strconv.Itoa(k)); ok {
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

func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(2, time.Minute)
		l.maxKeys = 100
		held := func() int {
			if len(l.keys) != l.age.Len() {
				t.Fatalf("%d keys in the map, %d in the list", len(l.keys), l.age.Len())
			}
			return len(l.keys)
		}
		for i := range 250 {
			l.Allow(t.Context(), fmt.Sprint("flood ", i))
			time.Sleep(time.Millisecond)
		}
		if got := held(); got != 100 {
			t.Errorf("held %d keys under a flood, want 100", got)
		}
		// The oldest were evicted; the newest are still limited.
		l.Allow(t.Context(), "flood 249")
		if ok, _ := l.Allow(t.Context(), "flood 249"); ok {
			t.Error("the newest key was forgotten")
		}
		// Once expired, each call clears two away and adds at most one.
		time.Sleep(time.Minute)
		for range 50 {
			l.Allow(t.Context(), "someone")
		}
		if got := held(); got != 1 {
			t.Errorf("held %d keys after the flood expired, want 1", got)
		}
	})
}

func TestSeconds(t *testing.T) {
	tests := []struct {
		d    time.Duration
		want int
	}{
		{-time.Second, 1},
		{0, 1},
		{1, 1},
		{time.Second, 1},
		{time.Second + 1, 2},
		{59*time.Second + 500*time.Millisecond, 60},
		{time.Minute, 60},
	}
	for _, tt := range tests {
		if got := Seconds(tt.d); got != tt.want {
			t.Errorf("Seconds(%v) = %d, want %d", tt.d, got, tt.want)
		}
	}
}

func BenchmarkAllow(b *testing.B) {
	l := New(5, time.Minute)
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("user%d@client.example", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.Allow(b.Context(), keys[i%len(keys)])
	}
}
