package fleet

import (
	"cmp"
	"math/rand/v2"
	"sync"
)

// cache keeps what was read, by id, under a stamp: mostly that of its row. A reader
// asks the database for the stamp first, so what it gets is never out of date, on
// any node. These stamps are random, not counted: what was read in a transaction
// that came to nothing is never taken for what the next one makes. What never changes
// has 0, what may be out of date the time. The zero cache is ready. It is safe for
// concurrent use.
type cache[T any] struct {
	most int // values; 0: maxCached
	mu   sync.RWMutex
	by   map[string]cached[T]
}

type cached[T any] struct {
	stamp int64
	value *T
}

// maxCached bounds a cache. What one more displaces is any of them.
const maxCached = 1000

// get returns what id has under a stamp; load reads it when it is not here. Nobody
// may change what is returned.
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

// lookup returns what id has under a stamp, nil if it is not here.
func (c *cache[T]) lookup(id string, stamp int64) *T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if got, ok := c.by[id]; ok && got.stamp == stamp {
		return got.value
	}
	return nil
}

// put keeps what id has under a stamp.
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

// last returns what id has had, under whatever stamp; nil when nothing is here.
// Nobody may change it.
func (c *cache[T]) last(id string) *T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.by[id].value
}

// newStamp returns the stamp of a change.
func newStamp() int64 { return rand.Int64() }
