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
	// Hashes that wait, of one party and of all. A waiting request holds little
	// memory; a hash takes some 25 ms.
	maxWaitingPerParty = 1000
	maxWaiting         = 3000
	// The same of one suspect: the last of them waits for some seconds.
	maxWaitingPerSuspect = 20
	// suspectShare is the part of one processor that all suspects have together: a
	// tenth. Two hashes at the same time slow each other down, since each fills its
	// 19 MiB several times over.
	suspectShare  = 10
	queueFullWait = 5 * time.Second // until a party with too many may try again
)

// hashers run argon2id, so many at once, in turns between the parties that ask.
type hashers struct {
	all      *fair.Queue
	suspects *fair.Queue        // those of suspects, before they enter all: one at a time
	failures *ratelimit.Limiter // failed sign-ins, by party; who is at the limit is a suspect
}

func newHashers(n int) *hashers {
	return &hashers{
		all:      fair.New(fair.Config{Capacity: int64(n), PerKey: maxWaitingPerParty, Waiting: maxWaiting}),
		suspects: fair.New(fair.Config{Capacity: 1, PerKey: maxWaitingPerSuspect, Waiting: maxWaiting}),
		failures: ratelimit.New(suspectLimit, signInWindow),
	}
}

// acquire waits for one on behalf of a party: a network, a known browser, a user. Each
// has as many turns as any other, and those with failed sign-ins share a small part of
// one processor, also with the attempts that wait already. The caller calls release.
func (h *hashers) acquire(ctx context.Context, party string) (release func(), err error) {
	if !h.isSuspect(ctx, party) {
		release, err = acquireSlot(ctx, h.all, party)
		if err != nil || !h.isSuspect(ctx, party) {
			return release, err
		}
		release() // it has become one while it waited
	}
	next, err := acquireSlot(ctx, h.suspects, party)
	if err != nil {
		return nil, err
	}
	done, err := acquireSlot(ctx, h.all, party)
	if err != nil {
		next()
		return nil, err
	}
	began := time.Now()
	return func() {
		done()
		time.AfterFunc((suspectShare-1)*time.Since(began), next)
	}, nil
}

func (h *hashers) isSuspect(ctx context.Context, party string) bool {
	return h.failures.Wait(ctx, party) > 0
}

func acquireSlot(ctx context.Context, q *fair.Queue, party string) (release func(), err error) {
	release, err = q.Acquire(ctx, party, 1, 0)
	if errors.Is(err, fair.ErrCrowded) {
		return nil, &problem.Error{
			Kind: problem.RateLimited, RetryAfter: queueFullWait, Cause: err,
			Message: fmt.Sprintf("too many sign-in attempts, try again in %d seconds", ratelimit.Seconds(queueFullWait)),
		}
	}
	if err != nil {
		return nil, fmt.Errorf("wait to hash a password: %w", err)
	}
	return release, nil
}

// recordFailure notes a failed sign-in of a party.
func (h *hashers) recordFailure(ctx context.Context, party string) { h.failures.Allow(ctx, party) }

// argon2id returns the key of a password. The caller has a turn.
func argon2id(password string, p hashParams, salt []byte, size int) []byte {
	return argon2.IDKey([]byte(password), salt, p.passes, p.memory, p.threads, uint32(size))
}
