package account

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fair"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"

	"golang.org/x/crypto/argon2"
)

const (
	// Hashes that wait, of one party and in all. A waiting request holds little
	// memory; a hash takes some 25 ms.
	waitingHashes    = 1000
	allWaitingHashes = 3000
	crowdedWait      = 5 * time.Second // until a party with too many may try again
)

// hashers run argon2id, so many at once, in turns between the parties that ask.
type hashers struct {
	queue    *fair.Queue
	suspects *ratelimit.Limiter // failed sign-ins, by party
}

func newHashers(n int) *hashers {
	h := &hashers{suspects: ratelimit.New(suspectLimit, signInWindow)}
	h.queue = fair.New(fair.Config{Capacity: int64(n), PerKey: waitingHashes, Waiting: allWaitingHashes, Most: func(party string) int64 {
		if n > 1 && h.suspects.Wait(context.Background(), party) > 0 {
			return int64(n) - 1
		}
		return int64(n)
	}})
	return h
}

// turn waits for one on behalf of a party: a network, a known browser, a user. Each
// has as many turns as any other, and one with failed sign-ins leaves a processor to
// the others, also with those attempts that wait already. The caller calls release.
func (h *hashers) turn(ctx context.Context, party string) (release func(), err error) {
	release, err = h.queue.Acquire(ctx, party, 1, 0)
	if errors.Is(err, fair.ErrCrowded) {
		return nil, &problem.Error{
			Kind: problem.RateLimited, RetryAfter: crowdedWait, Cause: err,
			Message: fmt.Sprintf("too many sign-in attempts, try again in %d seconds", ratelimit.Seconds(crowdedWait)),
		}
	}
	if err != nil {
		return nil, fmt.Errorf("wait to hash a password: %w", err)
	}
	return release, nil
}

// failed notes a failed sign-in of a party.
func (h *hashers) failed(ctx context.Context, party string) { h.suspects.Allow(ctx, party) }

// argon2id returns the key of a password. The caller has a turn.
func argon2id(password string, p hashParams, salt []byte, size int) []byte {
	return argon2.IDKey([]byte(password), salt, p.passes, p.memory, p.threads, uint32(size))
}
