package fleet

import (
	"math/rand/v2"
	"sync"
)

// cache keeps what was decoded, by id, under the stamp that its row had. A reader
// asks the database for the stamp first, so what it gets is never out of date, on
// any node. Stamps are random, not counted: what was read in a transaction that
// came to nothing is never taken for what the next one makes. The zero cache is
// ready. It is safe for concurrent use.
type cache[T any] struct {
	mu sync.RWMutex
	by map[string]cached[T]
}

type cached[T any] struct {
	stamp int64
	value *T
}

// maxCached bounds each cache. What one more displaces is any of them.
const maxCached = 1000

// get returns what id has under a stamp; load reads it when it is not here. Nobody
// may change what is returned.
func (c *cache[T]) get(id string, stamp int64, load func(*T) error) (*T, error) {
	c.mu.RLock()
	got, ok := c.by[id]
	c.mu.RUnlock()
	if ok && got.stamp == stamp {
		return got.value, nil
	}
	value := new(T)
	if err := load(value); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = make(map[string]cached[T])
	}
	if _, ok := c.by[id]; !ok && len(c.by) >= maxCached {
		for other := range c.by {
			delete(c.by, other)
			break
		}
	}
	c.by[id] = cached[T]{stamp, value}
	return value, nil
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
