package db

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// ids creates the UUIDs of a [DB]. It is safe for concurrent use.
type ids struct {
	last atomic.Int64 // the time of the last one, in the form of an id: milliseconds, and 12 bits of their fraction
}

// at returns a UUID of version 7 with a time, or a later one that follows the last UUID.
func (s *ids) at(t time.Time) string {
	next := t.UnixMilli()<<12 | int64(t.Nanosecond()%1e6)<<12/1e6
	for {
		last := s.last.Load()
		next = max(next, last+1)
		if s.last.CompareAndSwap(last, next) {
			break
		}
	}
	id := uuid.New()
	binary.BigEndian.PutUint64(id[:8], uint64(next)>>12<<16|7<<12|uint64(next)&0xfff)
	return id.String()
}

// NewID returns a UUID of version 7 for a row that lists find by the time in its id: it has the
// time of [DB.Now], so that the clocks of processes do not matter. The ids of one DB increase.
func (d *DB) NewID() string { return d.ids.at(d.Now()) }

// NewID is [DB.NewID] with the time of [Tx.Now].
func (tx *Tx) NewID() string { return tx.ids.at(tx.Now) }
