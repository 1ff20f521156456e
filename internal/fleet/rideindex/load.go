package rideindex

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Loader adds the entries of many new rides of an organization. It writes runs of level 1
// at once, in transactions of its own, instead of pending rows. It is not safe for
// concurrent use.
//
// It does not hold the lock of the organization. A compaction by another process that
// commits meanwhile loses no entry: each of its transactions deletes only runs that it has
// read. The lock would not prevent overlapping runs of level 1 either, since a loader does
// not read the others. In such runs, earlier entries of a ride may remain; as all stale
// entries, they have no effect but their space. Rides that are loaded in the order of ids
// into an organization without other rides have runs that do not overlap.
type Loader struct {
	index        *Index
	organization string
	entries      []Entry
}

// NewLoader returns a loader. Call [Loader.Flush] at the end.
func (x *Index) NewLoader(organizationID string) *Loader {
	return &Loader{index: x, organization: organizationID}
}

// Add adds an entry. It writes a run when there are enough.
func (l *Loader) Add(ctx context.Context, e Entry) error {
	l.entries = append(l.entries, e)
	if len(l.entries) < l.index.sizes.Level1Run {
		return nil
	}
	return l.Flush(ctx)
}

// Flush writes the remaining entries.
func (l *Loader) Flush(ctx context.Context) error {
	if len(l.entries) == 0 {
		return nil
	}
	r := packRun(l.entries, l.index.sizes.Segment, 1)
	l.entries = l.entries[:0]
	return l.index.db.Write(ctx, func(tx *db.Tx) error { return r.insertTx(ctx, tx, l.organization) })
}
