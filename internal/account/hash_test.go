package account

import (
	"context"
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// waitingTurn is a slot for which a goroutine waits.
type waitingTurn struct {
	release func()
	err     error
}

func (w *waitingTurn) granted() bool { return w.release != nil }

func waitForSlot(ctx context.Context, h *hashers, party string) *waitingTurn {
	w := new(waitingTurn)
	go func() { w.release, w.err = h.acquire(ctx, party) }()
	synctest.Wait()
	return w
}

func TestDefaultHashers(t *testing.T) {
	for _, tt := range []struct {
		processors int
		limit      int64 // MiB
		want       int
	}{
		{1, 4096, 1}, {2, 4096, 2}, {16, 4096, 4}, // by processors
		{16, 64, 1}, {16, 400, 1}, {16, 500, 2}, // by memory
		{16, math.MaxInt64 >> 20, 4}, // no limit
	} {
		if got := defaultHashers(tt.processors, tt.limit<<20); got != tt.want {
			t.Errorf("defaultHashers(%d, %d MiB) = %d, want %d", tt.processors, tt.limit, got, tt.want)
		}
	}
}

// TestSuspectsShareLittle: parties with failed sign-ins hash one at a time, for a tenth
// of the time, however many they are; another party does not wait for them.
func TestSuspectsShareLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHashers(2)
		for _, party := range []string{"suspect", "another suspect"} {
			for range suspectLimit {
				if w := waitForSlot(t.Context(), h, party); !w.granted() {
					t.Fatal("a party without failures was held back")
				} else {
					w.release()
				}
				h.recordFailure(t.Context(), party)
			}
		}
		first := waitForSlot(t.Context(), h, "suspect")
		second := waitForSlot(t.Context(), h, "another suspect")
		other := waitForSlot(t.Context(), h, "other")
		if !first.granted() || second.granted() || !other.granted() {
			t.Fatalf("got %t, %t, %t, want the first and the other one served", first.granted(), second.granted(), other.granted())
		}
		other.release()
		time.Sleep(25 * time.Millisecond)
		first.release()
		time.Sleep(8 * 25 * time.Millisecond)
		synctest.Wait()
		if second.granted() {
			t.Error("suspects have more than their share")
		}
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		if !second.granted() {
			t.Fatal("a suspect waits for more than its share")
		}
		second.release()
	})
}

// TestAttackQueuedBeforeSuspicion: a party that becomes a suspect is limited including
// its waiting attempts; those over the limit are refused.
func TestAttackQueuedBeforeSuspicion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHashers(2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var waiting []*waitingTurn
		for range 2 + 1 + maxWaitingPerSuspect + 3 {
			waiting = append(waiting, waitForSlot(ctx, h, "greedy"))
		}
		for range suspectLimit {
			h.recordFailure(t.Context(), "greedy")
		}
		waiting[0].release()
		waiting[1].release()
		synctest.Wait()
		var granted, refused int
		for _, w := range waiting[2:] {
			if w.granted() {
				granted++
			}
			if limited := new(problem.Error); errors.As(w.err, &limited) && limited.Kind == problem.RateLimited && limited.RetryAfter > 0 {
				refused++
			}
		}
		if granted != 1 || refused != 3 {
			t.Errorf("%d run at once and %d are refused, want 1 and 3", granted, refused)
		}
		cancel()
		for _, w := range waiting {
			if w.granted() && w != waiting[0] && w != waiting[1] {
				w.release()
			}
		}
		synctest.Wait()
		if left := waitForSlot(t.Context(), h, "greedy"); !left.granted() {
			t.Error("a turn was lost")
		} else {
			left.release()
		}
	})
}

// TestCollectorStaysOn: hashes at once, some during a collection, leave its target as it was.
func TestCollectorStaysOn(t *testing.T) {
	before := debug.SetGCPercent(60)
	defer debug.SetGCPercent(before)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if i%4 == 0 {
				runtime.GC()
			}
			argon2id("password", hashParams{memory: 64, passes: 1, threads: 1}, make([]byte, saltSize), hashSize)
		})
	}
	all.Wait()
	if got := debug.SetGCPercent(60); got != 60 {
		t.Errorf("the target is %d %% after hashes, and was 60 %%", got)
	}
}

// TestCollector: the target of the garbage collector is lower while passwords are hashed.
func TestCollector(t *testing.T) {
	percent := func() int {
		now := debug.SetGCPercent(-1)
		debug.SetGCPercent(now)
		return now
	}
	usual := percent()
	defer debug.SetGCPercent(usual)
	for _, test := range []struct{ usual, during int }{{200, 100}, {100, 100}, {50, 50}, {-1, -1}} {
		debug.SetGCPercent(test.usual)
		first := startHash()
		second := startHash()
		first()
		if got := percent(); got != test.during {
			t.Errorf("during a hash: got a target of %d, want %d", got, test.during)
		}
		second()
		if got := percent(); got != test.usual {
			t.Errorf("after it: got a target of %d, want %d", got, test.usual)
		}
	}
}
