package fleet

import (
	"cmp"
	"math/rand/v2"
	"sync"
)

// cache maps ids to values, each valid for a stamp, usually the row's. A reader
// first reads the stamp from the database, so no process ever uses an outdated
// value. Stamps are random, not sequential: a value read in a transaction that
// rolled back never matches a later one. Immutable values have stamp 0; values that
// may be outdated have a time. The zero cache is ready to use and safe for
// concurrent use.
type cache[T any] struct {
	most int // maximum number of values; 0: maxCached
	mu   sync.RWMutex
	by   map[string]cached[T]
}

type cached[T any] struct {
	stamp int64
	value *T
}

// maxCached is the default maximum. At the limit, an arbitrary value is evicted.
const maxCached = 1000

// get returns the value of id at a stamp, loading it if necessary. The result is
// shared and read-only.
func (c *cache[T]) get(id string, stamp int64, load func(*T) error) (*T, error) {
	if value := c.lookup(id, stamp); value != nil {
		return value, nil
	}
	value := new(T)
	if err := load(value); err != nil {
		return nil, err
	}
	c.put(id, stamp, value)
	return value, nil
}

// lookup returns the value of id at a stamp, or nil.
func (c *cache[T]) lookup(id string, stamp int64) *T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if got, ok := c.by[id]; ok && got.stamp == stamp {
		return got.value
	}
	return nil
}

// put stores the value of id at a stamp.
func (c *cache[T]) put(id string, stamp int64, value *T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = make(map[string]cached[T])
	}
	if _, ok := c.by[id]; !ok && len(c.by) >= cmp.Or(c.most, maxCached) {
		for other := range c.by {
			delete(c.by, other)
			break
		}
	}
	c.by[id] = cached[T]{stamp, value}
}

// last returns the value of id at any stamp, or nil. It is read-only.
func (c *cache[T]) last(id string) *T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.by[id].value
}

// newStamp returns a random stamp for a change.
func newStamp() int64 { return rand.Int64() }
