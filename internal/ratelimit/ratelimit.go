// Package ratelimit limits actions per key, such as "5 per minute per e-mail" and "300 per
// minute per API key".
//
// There are two kinds of limit. Both are exact: of any number of parallel calls exactly the
// limit pass. A refused call changes nothing, so retrying early does not extend the wait.
//
//   - A [Limiter] is a sliding window: the times of a key's last passes are kept,
//     and an act passes if fewer than the limit of them lie within the window
//     before it. There is no bucket edge to exploit and no rounding. Sign-ins
//     are limited so.
//   - [Memory] gives each key windows of its own, one after the other: the first
//     counted act opens one, which ends after a fixed time, and the next act
//     after that opens another. The limit comes with each call, because it may
//     change while a window is open: earlier counts stay. The REST surfaces
//     promise this one to their callers (fleet-api.md section 5).
//
// Both hold for one process. [Redis] makes the same of a server that several processes share
// ([RedisLimiter], [RedisWindows]): each call is one script, which Redis runs alone, by the
// clock of Redis, so that the processes' own clocks do not matter.
//
// While Redis is unavailable, limits fall back to memory: requests are neither refused because
// of it nor uncounted. Each process then counts from zero, so up to the limit pass per process.
// A call waits at most 250 ms for Redis. After a failure Redis is not called for a second, then
// probed by one call at a time; the rest use memory. So a dead Redis delays one call a second.
// The start and the end of an outage are logged once each. Counts from before the outage apply
// again afterwards.
//
// Memory is bounded to [MaxKeys] keys; beyond that, the key with the oldest last pass or the
// oldest window is evicted early. Calls evict expired keys, so nothing runs in the background.
// In Redis, keys expire. User input is stored as a digest of fixed size.
package ratelimit

import (
	"container/list"
	"context"
	"crypto/sha256"
	"sync"
	"time"
)

// MaxKeys bounds the keys of a [Limiter] or a [Memory]: about 30 MB with a limit of 5, and 20
// MB.
const MaxKeys = 100_000

// Limiter is a sliding-window limit per key, in this process only. It is safe for concurrent
// use.
type Limiter struct {
	limit   int
	window  time.Duration
	maxKeys int
	start   time.Time // reference of pass times, on the monotonic clock

	mu   sync.Mutex
	keys map[digest]*list.Element // values are *passes
	age  list.List                // the same, the oldest last pass first
}

type digest [sha256.Size]byte

// passes are the times of a key's last passes, at most the limit. Once full it is a ring with
// the oldest time at next.
type passes struct {
	key   digest
	times []time.Duration // since Limiter.start
	next  int
}

// New returns a limiter that lets each key pass limit times in any period of length window. It
// panics unless both are positive.
func New(limit int, window time.Duration) *Limiter {
	if limit < 1 || window <= 0 {
		panic("ratelimit: limit and window must be positive")
	}
	return &Limiter{
		limit:   limit,
		window:  window,
		maxKeys: MaxKeys,
		start:   time.Now(),
		keys:    make(map[digest]*list.Element),
	}
}

// Allow reports whether key may act now, and counts the action if so. Otherwise retryAfter is
// the exact time until it may, if no other call uses the key first.
func (l *Limiter) Allow(_ context.Context, key string) (ok bool, retryAfter time.Duration) {
	k := digest(sha256.Sum256([]byte(key)))

	l.mu.Lock()
	defer l.mu.Unlock()
	// Read under the lock, so that a key's times never go backwards.
	now := time.Since(l.start)
	l.evictExpired(now)

	elem := l.keys[k]
	if elem == nil {
		if len(l.keys) >= l.maxKeys {
			l.evict(l.age.Front())
		}
		elem = l.age.PushBack(&passes{key: k})
		l.keys[k] = elem
	}
	p := elem.Value.(*passes)
	if len(p.times) < l.limit {
		p.times = append(p.times, now)
	} else {
		if wait := p.times[p.next] + l.window - now; wait > 0 {
			return false, wait
		}
		p.times[p.next] = now
		p.next = (p.next + 1) % l.limit
	}
	l.age.MoveToBack(elem)
	return true, 0
}

// Wait returns the time until key may act, 0 for now. It counts nothing.
func (l *Limiter) Wait(_ context.Context, key string) time.Duration {
	k := digest(sha256.Sum256([]byte(key)))

	l.mu.Lock()
	defer l.mu.Unlock()
	elem := l.keys[k]
	if elem == nil {
		return 0
	}
	p := elem.Value.(*passes)
	if len(p.times) < l.limit {
		return 0
	}
	return max(0, p.times[p.next]+l.window-time.Since(l.start))
}

// evictExpired evicts keys without passes in the window, at most two: each call adds at most
// one, so that suffices, and no call evicts many at once.
func (l *Limiter) evictExpired(now time.Duration) {
	for range 2 {
		front := l.age.Front()
		if front == nil || front.Value.(*passes).last()+l.window > now {
			return
		}
		l.evict(front)
	}
}

func (l *Limiter) evict(elem *list.Element) {
	l.age.Remove(elem)
	delete(l.keys, elem.Value.(*passes).key)
}

func (p *passes) last() time.Duration {
	return p.times[(p.next+len(p.times)-1)%len(p.times)]
}

// Seconds returns d in whole seconds, rounded up, at least 1, for Retry-After headers and
// messages.
func Seconds(d time.Duration) int {
	return int(max(1, (d+time.Second-1)/time.Second))
}
