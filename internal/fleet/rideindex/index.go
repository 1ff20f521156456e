// Package rideindex finds rides that started in an area, filtered and sorted by any
// indexed column.
//
// The index is an LSM tree (ADR 0017; measured against B-trees in ADR 0033) in the database
// of the rides:
//
//   - Pending rows (untiled_rides) are its write buffer: a transaction that ends a ride
//     or changes a closed one writes one.
//   - A segment (ride_tiles) has up to 512 rides with starts close to each other, as
//     bit-packed columns. Segments are immutable.
//   - A run (ride_layers) is a set of segments written together. Level 0 has recent
//     runs, which overlap; the runs of level 1 partition the ride ids.
//   - Flushing moves pending rows to level 0; compaction moves level 0 to level 1.
//   - A zone map has the number of rides of a segment and the range of each column. A
//     search skips segments by zone map without reading them.
//
// It has the rides that are closed and have a start position. The current entry of a ride
// is in one place, except during compaction, and moves on: from the pending rows
// ([Index.UpdateTx]) to a run of level 0 and to the run of level 1 for its id
// ([Index.Maintain]). A change of the ride leaves its earlier entries in both levels. They
// are stale: the revision of the ride is higher. Level 1 has one entry of a ride, the
// latest compacted. Stale entries remain until compaction, and a [Search] returns them.
//
// The index can be rebuilt from the table rides. Any number of processes may maintain it:
// each transaction that flushes or compacts holds the lock of the organization.
package rideindex

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/cache"
	"github.com/kickstand-dev/kickstand/internal/db"

	"github.com/oklog/ulid/v2"
)

// Index is the ride index of a database. It is safe for concurrent use.
type Index struct {
	db    *db.DB
	sizes Sizes

	// Zone maps and segments are immutable, so they are never invalidated.
	zoneMaps *cache.Cache[int64, []zoneMap]     // by id of the run; up to 200 kB each
	segments *cache.Cache[segmentKey, *segment] // about 20 kB each
}

// segmentKey identifies a segment.
type segmentKey struct {
	runID  int64
	number int32 // in the run
}

// Sizes are the size limits of an index, in rides.
type Sizes struct {
	Segment   int // maximum of a segment
	Flush     int // pending rows that trigger a flush
	Round     int // flushed before compaction is checked again
	Level0    int // size of level 0 that triggers compaction
	Level1Run int // target of a run of level 1; with half as many more it is split
}

// DefaultSizes keep write amplification low, and a box on a map within a few segments of
// each of about a dozen runs.
func DefaultSizes() Sizes {
	return Sizes{Segment: 512, Flush: 1024, Round: 256 << 10, Level0: 16 << 10, Level1Run: 256 << 10}
}

// New returns the index of a database, migrated to [db.Fleet].
func New(d *db.DB, sizes Sizes) *Index {
	return &Index{d, sizes, cache.New[int64, []zoneMap](300, 0), cache.New[segmentKey, *segment](3000, 0)}
}

// textColumns are the columns for filters by equality, intColumns those for range
// filters and sort keys. The intColumns of a closed ride are not NULL.
var (
	textColumns = [...]string{"subaccount_id", "status", "trip_type", "pricing_plan_id", "payment_status", "start_zone_id"}
	intColumns  = [...]string{"updated_at", "started_at", "ended_at", "total_amount", "duration_seconds"}
)

// HasColumn reports whether the index has a column, for filters.
func HasColumn(name string) bool {
	return slices.Contains(textColumns[:], name) || slices.Contains(intColumns[:], name)
}

// Entry is a ride in the index.
type Entry struct {
	id       ulid.ULID // without the prefix
	revision int64
	cell     int64
	texts    [len(textColumns)]string // empty for NULL
	values   [len(intColumns)]int64
}

// NewEntry returns the entry of a closed ride with a start position. value returns a column of
// the table rides: nil, a string or an int64.
func NewEntry(value func(column string) any) (Entry, error) {
	text := func(column string) string { v, _ := value(column).(string); return v }
	integer := func(column string) int64 { v, _ := value(column).(int64); return v }
	e := Entry{revision: integer("revision"), cell: integer("start_cell")}
	for c, column := range textColumns {
		e.texts[c] = text(column)
	}
	for c, column := range intColumns {
		e.values[c] = integer(column)
	}
	var err error
	e.id, err = parseID(text("id"))
	return e, err
}

// idPrefix is the prefix of ride ids.
const idPrefix = "ride_"

// parseID returns the ULID of a ride id.
func parseID(id string) (ulid.ULID, error) {
	text, ok := strings.CutPrefix(id, idPrefix)
	if !ok {
		return ulid.ULID{}, fmt.Errorf("%q is not the id of a ride", id)
	}
	return ulid.ParseStrict(text)
}

func formatID(id ulid.ULID) string { return idPrefix + id.String() }

// idHalves splits an id into two 64-bit numbers. The high halves sort as the ids do.
func idHalves(id ulid.ULID) (high, low int64) {
	return int64(binary.BigEndian.Uint64(id[:8]) ^ signBit), int64(binary.BigEndian.Uint64(id[8:]))
}

const signBit = 1 << 63

func joinHalves(high, low int64) (id ulid.ULID) {
	binary.BigEndian.PutUint64(id[:8], uint64(high)^signBit)
	binary.BigEndian.PutUint64(id[8:], uint64(low))
	return id
}

// ErrDamaged reports that a segment or a run is damaged or incomplete.
var ErrDamaged = errors.New("a segment of the ride index is damaged")

// LockTx waits for concurrent maintenance of an organization's index and locks it out
// until the end of the transaction.
func (x *Index) LockTx(ctx context.Context, tx *db.Tx, organizationID string) error {
	return tx.Lock(ctx, "fleet tiles "+organizationID)
}

// DeleteTx deletes the index of an organization, whose rides are deleted in the same
// transaction, after [Index.LockTx].
func (x *Index) DeleteTx(ctx context.Context, tx *db.Tx, organizationID string) error {
	for _, table := range [...]string{"untiled_rides", "ride_layers", "ride_tiles"} {
		if err := tx.Queue(ctx, "DELETE FROM "+table+" WHERE organization_id = $1", organizationID); err != nil {
			return fmt.Errorf("delete the ride index: %w", err)
		}
	}
	return nil
}
