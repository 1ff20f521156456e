// Package cache holds values in memory that are expensive to read or compute.
//
// A [Cache] has a maximum and evicts the least recently used values. A value read before an
// invalidation is never stored after it: readers mark the start of a read, and [Cache.Put]
// drops the value if the cache was invalidated since. Invalidations do not reach other
// processes; values that another process may change need a time to live, or callers that compare
// a version with the database.
package cache

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache maps keys to shared, read-only values. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	max  int
	size func(V) int
	ttl  time.Duration // 0: unlimited

	mu      sync.Mutex
	lru     *simplelru.LRU[K, entry[V]]
	used    int // sum of sizes
	changes int // number of invalidations
}

type entry[V any] struct {
	value V
	size  int
	read  time.Time
}

// New returns a cache of at most maxCount values, each used for ttl from the start of its read;
// 0: until it is evicted.
func New[K comparable, V any](maxCount int, ttl time.Duration) *Cache[K, V] {
	return open[K](maxCount, ttl, func(V) int { return 1 })
}

// NewSized returns a cache of values with at most maxBytes in total, with a ttl like that of [New].
// size returns the bytes of a value, at least 1.
func NewSized[K comparable, V any](maxBytes int, ttl time.Duration, size func(V) int) *Cache[K, V] {
	return open[K](maxBytes, ttl, size)
}

func open[K comparable, V any](maximum int, ttl time.Duration, size func(V) int) *Cache[K, V] {
	c := &Cache[K, V]{max: maximum, ttl: ttl, size: size}
	var err error
	c.lru, err = simplelru.NewLRU(maximum, func(_ K, e entry[V]) { c.used -= e.size })
	if err != nil {
		panic(err) // the maximum is not positive
	}
	return c
}

// Mark is the start of a read.
type Mark struct {
	time    time.Time
	changes int
}

// Start marks the start of a read, for [Cache.Put].
func (c *Cache[K, V]) Start() Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Mark{time.Now(), c.changes}
}

// Get returns a value; false if there is none or it is too old.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get(key)
}

func (c *Cache[K, V]) get(key K) (value V, ok bool) {
	e, ok := c.lru.Get(key)
	if !ok || c.ttl > 0 && time.Since(e.read) >= c.ttl {
		return value, false
	}
	return e.value, true
}

// Put stores a value read since start, unless the cache has been invalidated since or the value
// exceeds the maximum.
func (c *Cache[K, V]) Put(key K, value V, start Mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes == start.changes {
		c.put(key, value, start.time)
	}
}

func (c *Cache[K, V]) put(key K, value V, read time.Time) {
	c.lru.Remove(key)
	e := entry[V]{value, c.size(value), read}
	if e.size > c.max {
		return
	}
	c.used += e.size
	for c.used > c.max {
		c.lru.RemoveOldest()
	}
	c.lru.Add(key, e)
}

// GetOrPut returns the value of a key, storing value if there is none; stored reports which.
func (c *Cache[K, V]) GetOrPut(key K, value V) (_ V, stored bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.get(key); ok {
		return old, false
	}
	c.put(key, value, time.Now())
	return value, true
}

// Load returns the value of a key, reading and storing it if there is none. Concurrent callers
// may read it at the same time. An error of read is not stored.
func (c *Cache[K, V]) Load(key K, read func() (V, error)) (V, error) {
	if value, ok := c.Get(key); ok {
		return value, nil
	}
	start := c.Start()
	value, err := read()
	if err == nil {
		c.Put(key, value, start)
	}
	return value, err
}

// Delete invalidates the value of a key, and every read that has started.
func (c *Cache[K, V]) Delete(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.lru.Remove(key)
}

// Clear invalidates all values, and every read that has started.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.lru.Purge()
}
