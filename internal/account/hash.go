package account

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fairqueue"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"

	"golang.org/x/crypto/argon2"
)

const (
	// Waiting hashes per party and in total. A waiting request holds little memory; a
	// hash takes about 25 ms.
	maxWaitingPerParty = 1000
	maxWaiting         = 3000
	// maxWaitingPerSuspect is the limit for one suspect; its last hash waits several
	// seconds.
	maxWaitingPerSuspect = 20
	// suspectShare is the reciprocal of the share of one processor that all suspects have
	// together: a tenth. Two concurrent hashes slow each other down, since each fills its
	// 19 MiB several times.
	suspectShare  = 10
	queueFullWait = 5 * time.Second // Retry-After of a party at its limit
)

// hashers bounds the number of concurrent argon2id computations and shares them fairly
// between parties: networks, known browsers, users.
type hashers struct {
	all      *fairqueue.Queue
	suspects *fairqueue.Queue   // entered one at a time, before all
	failures *ratelimit.Limiter // failed sign-ins by party; a party at the limit is a suspect
}

func newHashers(n int) *hashers {
	return &hashers{
		all:      fairqueue.New(fairqueue.Config{Capacity: int64(n), PerKey: maxWaitingPerParty, Waiting: maxWaiting}),
		suspects: fairqueue.New(fairqueue.Config{Capacity: 1, PerKey: maxWaitingPerSuspect, Waiting: maxWaiting}),
		failures: ratelimit.New(suspectLimit, signInWindow),
	}
}

// hasherMemory is what a hash takes in bytes, with the memory of earlier ones that the garbage
// collector has not freed yet.
const hasherMemory = 3 * 19 << 20

// defaultHashers returns the number of concurrent hashes for processors and a memory limit in
// bytes.
func defaultHashers(processors int, limit int64) int {
	return int(max(1, min(int64(processors), 4, limit/4/hasherMemory)))
}

// acquire waits for a slot on behalf of a party. Parties take turns; suspects, which have
// failed sign-ins, share a tenth of one processor, including attempts that already wait.
// The caller must call release.
func (h *hashers) acquire(ctx context.Context, party string) (release func(), err error) {
	if !h.isSuspect(ctx, party) {
		release, err = acquireSlot(ctx, h.all, party)
		if err != nil || !h.isSuspect(ctx, party) {
			return release, err
		}
		release() // became a suspect while waiting
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

func acquireSlot(ctx context.Context, q *fairqueue.Queue, party string) (release func(), err error) {
	release, err = q.Acquire(ctx, party, 1, 0)
	if errors.Is(err, fairqueue.ErrCrowded) {
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

// recordFailure counts a failed sign-in of a party.
func (h *hashers) recordFailure(ctx context.Context, party string) { h.failures.Allow(ctx, party) }

// startHash limits the heap to twice its live size until end is called, because the library
// allocates 19 MiB anew for each hash. It first waits for a running collection to end: blocks
// allocated during a collection count as live, and raise the target of the next one. The lock
// belongs to the process, as the target does.
var startHash = func() func() (end func()) {
	var mu sync.Mutex
	var hashes, usual int // usual is the target without hashes
	return func() func() {
		mu.Lock()
		defer mu.Unlock()
		percent := debug.SetGCPercent(-1) // waits for the end of a collection
		if hashes++; hashes == 1 {
			usual = percent
			percent = min(percent, 100)
		}
		debug.SetGCPercent(percent)
		return func() {
			mu.Lock()
			defer mu.Unlock()
			if hashes--; hashes == 0 {
				debug.SetGCPercent(usual)
			}
		}
	}
}()

// argon2id returns the key derived from password. The caller holds a slot of [hashers].
func argon2id(password string, p hashParams, salt []byte, size int) []byte {
	end := startHash()
	defer end()
	return argon2.IDKey([]byte(password), salt, p.passes, p.memory, p.threads, uint32(size))
}
