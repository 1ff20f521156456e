package webhook

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// enterAll opens the limit for n deliveries and acquires slots in order; acquired ones are sent
// to entered.
func enterAll(t *testing.T, ws *concurrencyLimits, n int) (w *concurrencyLimit, entered chan int) {
	t.Helper()
	entered = make(chan int, n)
	for i := range n {
		w = ws.open("hook")
		go func() {
			if ws.acquire(t.Context(), w) == nil {
				entered <- i
			}
		}()
		synctest.Wait()
	}
	return w, entered
}

func TestWindowGrowsAndShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ws concurrencyLimits
		w, entered := enterAll(t, &ws, 20)
		want := func(n int) {
			t.Helper()
			synctest.Wait()
			if len(entered) != n {
				t.Errorf("entered: got %d, want %d", len(entered), n)
			}
		}
		want(4)
		ws.release(w, true) // its place and one more
		want(6)
		ws.release(w, true)
		want(8)
		ws.release(w, false) // 6 left, room for 3
		want(8)
		for range 3 {
			ws.release(w, false)
		}
		want(8) // 2 left, room for 1
		ws.release(w, false)
		want(8)
		ws.release(w, false)
		want(9)
		var first []int
		for range 9 {
			first = append(first, <-entered)
		}
		slices.Sort(first) // two released together continue in any order
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8}; !slices.Equal(first, want) {
			t.Errorf("entered: got %v, want %v", first, want)
		}
		for len(w.waiting) > 0 || w.posting > 0 {
			ws.release(w, true)
			synctest.Wait()
		}
		for range 20 {
			ws.close(w)
		}
		if len(ws.byID) != 0 {
			t.Error("the window is kept without users")
		}
	})
}

func TestWindowIsLeftByThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ws concurrencyLimits
		w, _ := enterAll(t, &ws, 4)
		errGone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		ws.open("hook")
		done := make(chan error, 1)
		go func() { done <- ws.acquire(ctx, w) }()
		synctest.Wait()
		cancel(errGone)
		if err := <-done; !errors.Is(err, errGone) || len(w.waiting) != 0 || w.posting != 4 {
			t.Errorf("got %v with %d waiting and %d posting, want gone, 0 and 4", err, len(w.waiting), w.posting)
		}
	})
}
