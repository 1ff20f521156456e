package account

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestSuspectsLeaveAProcessor: a party with failed sign-ins does not hold every
// hasher, so that another's need not even wait for one.
func TestSuspectsLeaveAProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHashers(2)
		turn := func(party string) (release func(), ok bool) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				release, _ = h.turn(ctx, party)
			}()
			synctest.Wait()
			cancel()
			<-done
			return release, release != nil
		}
		for range suspectLimit {
			first, ok := turn("suspect")
			second, also := turn("suspect")
			if !ok || !also {
				t.Fatal("a party without failures was held back")
			}
			first()
			second()
			h.failed(t.Context(), "suspect")
		}
		first, ok := turn("suspect")
		if !ok {
			t.Fatal("a suspect has no turn at all")
		}
		if _, ok := turn("suspect"); ok {
			t.Error("a suspect holds every hasher")
		}
		other, ok := turn("other")
		if !ok {
			t.Error("another party waits")
		}
		first()
		other()

		one := newHashers(1)
		for range suspectLimit {
			one.failed(t.Context(), "suspect")
		}
		release, err := one.turn(t.Context(), "suspect")
		if err != nil {
			t.Fatal(err)
		}
		release()
	})
}
