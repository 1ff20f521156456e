package fleet

import (
	"math/rand/v2"

	"github.com/kickstand-dev/kickstand/internal/cache"
)

// stampedCache maps ids to values, each valid for a stamp, usually the row's. A reader
// first reads the stamp from the database, so no process ever uses an outdated
// value. Stamps are random, not sequential: a value read in a transaction that
// rolled back never matches a later one. Immutable values have stamp 0; values that
// may be outdated have a time. Values are shared and read-only.
type stampedCache[T any] struct {
	values *cache.Cache[string, stamped[T]]
}

type stamped[T any] struct {
	stamp int64
	value *T
}

// maxCached is the maximum of the caches of records.
const maxCached = 1000

func newStampedCache[T any](maxCount int) stampedCache[T] {
	return stampedCache[T]{cache.New[string, stamped[T]](maxCount, 0)}
}

// get returns the value of id at a stamp, loading it if necessary.
func (c stampedCache[T]) get(id string, stamp int64, load func(*T) error) (*T, error) {
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
func (c stampedCache[T]) lookup(id string, stamp int64) *T {
	if got, _ := c.values.Get(id); got.stamp == stamp {
		return got.value
	}
	return nil
}

// put stores the value of id at a stamp.
func (c stampedCache[T]) put(id string, stamp int64, value *T) {
	c.values.Put(id, stamped[T]{stamp, value}, c.values.Start())
}

// last returns the value of id at any stamp, or nil.
func (c stampedCache[T]) last(id string) *T {
	got, _ := c.values.Get(id)
	return got.value
}

// newStamp returns a random stamp for a change.
func newStamp() int64 { return rand.Int64() }
