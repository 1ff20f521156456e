package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// waiting is a request under way.
type waiting struct {
	release func()
	err     error
	done    bool
}

// acquire calls Acquire and returns once it waits or has an answer. It is called in a
// synctest bubble.
func acquire(ctx context.Context, q *Queue, key string, n, most int64) *waiting {
	w := new(waiting)
	go func() {
		w.release, w.err = q.Acquire(ctx, key, n, most)
		w.done = true
	}()
	synctest.Wait()
	return w
}

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{Capacity: 1, PerKey: 10, Waiting: 100})
		holder := acquire(t.Context(), q, "greedy", 1, 0)
		var order []string
		var wg sync.WaitGroup
		for _, key := range []string{"greedy", "greedy", "greedy", "a", "a", "b"} {
			wg.Go(func() {
				release, err := q.Acquire(t.Context(), key, 1, 0)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, key) // one at a time
				release()
			})
			synctest.Wait()
		}
		holder.release()
		wg.Wait()
		if got, want := strings.Join(order, " "), "greedy a b greedy a greedy"; got != want {
			t.Errorf("got turns %s, want %s", got, want)
		}
		if len(q.parties) != 0 || q.turns.Len() != 0 || q.free != 1 || q.waiting != 0 {
			t.Errorf("got %d parties, %d turns, %d free, %d waiting at the end", len(q.parties), q.turns.Len(), q.free, q.waiting)
		}
	})
}

// A party at its own limit leaves the remaining capacity to the rest.
func TestMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{Capacity: 2, PerKey: 10, Waiting: 100})
		first, second := acquire(t.Context(), q, "greedy", 1, 1), acquire(t.Context(), q, "greedy", 1, 1)
		other := acquire(t.Context(), q, "other", 1, 0)
		if !first.done || second.done || !other.done {
			t.Fatalf("got %t, %t, %t, want the first and the other one served", first.done, second.done, other.done)
		}
		other.release()
		synctest.Wait()
		if second.done {
			t.Error("it holds more than its limit")
		}
		first.release()
		synctest.Wait()
		if !second.done || second.err != nil {
			t.Error("it was not served when it held nothing")
		}
		second.release()
	})
}

// Large requests are not starved by small ones.
func TestLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{Capacity: 10, PerKey: 10, Waiting: 100})
		small := acquire(t.Context(), q, "a", 4, 0)
		large := acquire(t.Context(), q, "b", 10, 0)
		after := acquire(t.Context(), q, "a", 4, 0)
		if large.done || after.done {
			t.Fatal("a request overtook a large one")
		}
		small.release()
		synctest.Wait()
		if !large.done || after.done {
			t.Fatal("the large one was not served")
		}
		large.release()
		synctest.Wait()
		if !after.done {
			t.Fatal("the last one was not served")
		}
		after.release()
	})
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{Capacity: 1, PerKey: 3, Waiting: 4})
		holder := acquire(t.Context(), q, "greedy", 1, 0)
		var greedy []*waiting
		for range 4 {
			greedy = append(greedy, acquire(t.Context(), q, "greedy", 1, 0))
		}
		if !errors.Is(greedy[3].err, ErrCrowded) {
			t.Errorf("got %v beyond the bound of one party, want ErrCrowded", greedy[3].err)
		}
		a := acquire(t.Context(), q, "a", 1, 0)
		b := acquire(t.Context(), q, "b", 1, 0) // the queues are full: the longest loses one
		if !errors.Is(greedy[2].err, ErrCrowded) || greedy[1].done || a.done || b.done {
			t.Errorf("the newest of the longest queue was not dropped: %v", greedy[2].err)
		}
		c := acquire(t.Context(), q, "c", 1, 0)
		if !errors.Is(greedy[1].err, ErrCrowded) || c.done {
			t.Error("the longest queue did not give way again")
		}
		if late := acquire(t.Context(), q, "greedy", 1, 0); !errors.Is(late.err, ErrCrowded) {
			t.Errorf("got %v for one more of what waits already, want ErrCrowded", late.err)
		}
		holder.release()
		for _, w := range []*waiting{greedy[0], a, b, c} {
			synctest.Wait()
			if !w.done || w.err != nil {
				t.Fatal("who had room was not served in turn")
			}
			w.release()
		}
	})
}

func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{Capacity: 2, PerKey: 10, Waiting: 100})
		holder := acquire(t.Context(), q, "a", 1, 0)
		ctx, cancel := context.WithCancel(t.Context())
		large := acquire(ctx, q, "b", 2, 0)
		small := acquire(t.Context(), q, "c", 1, 0)
		cancel()
		synctest.Wait()
		if !errors.Is(large.err, context.Canceled) || !small.done || small.err != nil {
			t.Errorf("got %v and %v after the large one went away", large.err, small.err)
		}
		if _, err := q.Acquire(ctx, "b", 1, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v for who is gone already", err)
		}
		holder.release()
		small.release()
		if len(q.parties) != 0 || q.free != 2 {
			t.Errorf("got %d parties, %d free at the end", len(q.parties), q.free)
		}
	})
}

// TestNoOveruse: under concurrency the capacity is never exceeded, and no request waits for
// ever.
func TestNoOveruse(t *testing.T) {
	q := New(Config{Capacity: 7, PerKey: 1000, Waiting: 1000})
	var held atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	served := make(map[string]int)
	for i := range 16 {
		key := fmt.Sprint(i % 5)
		wg.Go(func() {
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(4) == 0 {
					go cancel()
				}
				n := 1 + rand.Int64N(7)
				release, err := q.Acquire(ctx, key, n, 0)
				if err == nil {
					if held.Add(n) > 7 {
						t.Error("more is held than there is")
					}
					mu.Lock()
					served[key]++
					mu.Unlock()
					held.Add(-n)
					release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if q.free != 7 || q.waiting != 0 || len(q.parties) != 0 || len(served) != 5 {
		t.Errorf("got %d free, %d waiting, %d parties, %v served", q.free, q.waiting, len(q.parties), slices.Sorted(func(yield func(string) bool) {
			for k := range served {
				if !yield(k) {
					return
				}
			}
		}))
	}
}
