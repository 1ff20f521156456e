package rideindex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"

	"github.com/oklog/ulid/v2"
)

// Maintain flushes and compacts the index of an organization until it is within its size
// limits. Error: [ErrDamaged].
func (x *Index) Maintain(ctx context.Context, organizationID string) error {
	for more := true; more; {
		var err error
		if more, err = x.flush(ctx, organizationID); err != nil {
			return fmt.Errorf("flush the ride index: %w", err)
		}
		err = x.compact(ctx, organizationID)
		if err != nil && !errors.Is(err, errRunsChanged) { // then another process compacts
			return fmt.Errorf("compact the ride index: %w", err)
		}
	}
	return nil
}

// compact merges the runs of level 0 into level 1 once they have Sizes.Level0 rides. It
// rewrites one run of level 1 per transaction and deletes the merged runs of level 0 in
// the last one, so readers find each entry at any time, some of them twice. Error:
// errRunsChanged if another process changes level 1 or deletes one of the merged runs.
func (x *Index) compact(ctx context.Context, organizationID string) error {
	runs, err := runsOf(ctx, x.db, organizationID)
	if err != nil {
		return err
	}
	level0 := slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.level == 1 })
	if ridesIn(level0) < x.sizes.Level0 {
		return nil
	}
	c := &compaction{Index: x, organization: organizationID, level0: level0}
	if c.level1, err = x.level1Runs(ctx, organizationID, runs); err != nil {
		return err
	}
	if err := c.readLatest(ctx); err != nil {
		return err
	}
	for i, group := range c.groupByRun() {
		if len(group) == 0 {
			continue
		}
		if err := c.rewrite(ctx, i, group); err != nil {
			return err
		}
	}
	return c.writeTx(ctx, func(tx *db.Tx) error { return deleteRunsTx(ctx, tx, organizationID, runIDs(level0)) })
}

// compaction merges runs of level 0 into level 1.
type compaction struct {
	*Index
	organization string
	level0       []run // to be merged
	level1       []level1Run
	latest       map[ulid.ULID]Entry // of level0, by ride
	expected     map[int64]bool      // the runs of level 1 after the last transaction
}

// level1Run is a run of level 1 with the range of the high halves of its ids.
type level1Run struct {
	run
	ids interval
}

// level1Runs selects the runs of level 1, in the order of ids. Error: errRunsChanged.
func (x *Index) level1Runs(ctx context.Context, organizationID string, runs []run) ([]level1Run, error) {
	var level1 []level1Run
	for _, r := range runs {
		if r.level == 0 {
			continue
		}
		zoneMaps, err := x.zoneMapsOf(ctx, x.db, organizationID, r)
		if err != nil {
			return nil, err
		}
		level1 = append(level1, level1Run{r, idsOf(zoneMaps)})
	}
	slices.SortFunc(level1, func(a, b level1Run) int { return cmp.Compare(a.ids.min, b.ids.min) })
	return level1, nil
}

// idsOf returns the range of the high halves of ids.
func idsOf(zoneMaps []zoneMap) interval {
	ids := emptyInterval
	for i := range zoneMaps {
		ids = ids.with(zoneMaps[i].ids.min).with(zoneMaps[i].ids.max)
	}
	return ids
}

// readLatest reads the latest entry of each ride in level 0.
func (c *compaction) readLatest(ctx context.Context) error {
	list, err := c.readRuns(ctx, c.organization, c.level0)
	if err != nil {
		return err
	}
	c.latest = make(map[ulid.ULID]Entry, len(list))
	for _, e := range list {
		if other, ok := c.latest[e.id]; !ok || other.revision < e.revision {
			c.latest[e.id] = e
		}
	}
	c.expected = make(map[int64]bool, len(c.level1))
	for _, r := range c.level1 {
		c.expected[r.id] = true
	}
	return nil
}

// groupByRun groups the latest entries by the position of their run in level1; the last
// group is for a new run.
func (c *compaction) groupByRun() [][]Entry {
	groups := make([][]Entry, len(c.level1)+1)
	for _, e := range c.latest {
		at := c.runFor(c.level1, e.id)
		groups[at] = append(groups[at], e)
	}
	return groups
}

// runFor returns the position in level1 of the run for an id, or len(level1) for a new
// run: if there is none, or the id is greater than all ids and the last run is full.
func (x *Index) runFor(level1 []level1Run, id ulid.ULID) int {
	high, _ := idHalves(id)
	after, _ := slices.BinarySearchFunc(level1, high, func(r level1Run, high int64) int {
		if r.ids.min <= high {
			return -1
		}
		return 1
	})
	if after == 0 && len(level1) > 0 {
		return 0
	}
	last := after - 1
	if after == len(level1) && (last < 0 || level1[last].rides >= x.sizes.Level1Run && high > level1[last].ids.max) {
		return len(level1)
	}
	return last
}

// rewrite replaces run i of level1 by runs of its entries and those of the group, which
// supersede its entries of the same rides. i may be len(level1), for new runs.
func (c *compaction) rewrite(ctx context.Context, i int, group []Entry) error {
	var replaced []int64
	if i < len(c.level1) {
		old, err := c.readRuns(ctx, c.organization, []run{c.level1[i].run})
		if err != nil {
			return err
		}
		unchanged := slices.DeleteFunc(old, func(e Entry) bool {
			_, ok := c.latest[e.id]
			return ok
		})
		replaced, group = []int64{c.level1[i].id}, append(unchanged, group...)
	}
	added := c.packLevel1(group)
	err := c.writeTx(ctx, func(tx *db.Tx) error {
		if err := deleteRunsTx(ctx, tx, c.organization, replaced); err != nil {
			return err
		}
		for _, r := range added {
			if err := r.insertTx(ctx, tx, c.organization); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range replaced {
		delete(c.expected, id)
	}
	for _, r := range added {
		c.expected[r.id] = true
	}
	return nil
}

// packLevel1 encodes entries as one run, or splits them by id if they exceed one and a half
// times Sizes.Level1Run. It sorts rides.
func (x *Index) packLevel1(rides []Entry) []*packedRun {
	size := x.sizes.Level1Run
	if len(rides) > size+size/2 {
		slices.SortFunc(rides, func(a, b Entry) int { return a.id.Compare(b.id) })
	}
	var level1 []*packedRun
	for len(rides) > size+size/2 {
		n := size
		for n < len(rides) && sameHighHalf(rides[n-1].id, rides[n].id) { // runFor compares high halves only
			n++
		}
		if n == len(rides) {
			break
		}
		level1 = append(level1, packRun(rides[:n], x.sizes.Segment, 1))
		rides = rides[n:]
	}
	return append(level1, packRun(rides, x.sizes.Segment, 1))
}

func sameHighHalf(a, b ulid.ULID) bool {
	one, _ := idHalves(a)
	other, _ := idHalves(b)
	return one == other
}

// writeTx runs fn in a transaction under the lock of the organization, unless the runs of
// level 1 are not exactly the expected ones or a run of level0 was deleted; then it
// returns errRunsChanged.
func (c *compaction) writeTx(ctx context.Context, fn func(tx *db.Tx) error) error {
	return c.db.Write(ctx, func(tx *db.Tx) error {
		if err := c.LockTx(ctx, tx, c.organization); err != nil {
			return err
		}
		runs, err := runsOf(ctx, tx, c.organization)
		if err != nil {
			return err
		}
		remaining := len(c.level0)
		for _, r := range runs {
			if slices.Contains(c.level0, r) {
				remaining--
			}
		}
		level1 := slices.DeleteFunc(runs, func(r run) bool { return r.level == 0 })
		if remaining > 0 || len(level1) != len(c.expected) || slices.ContainsFunc(level1, func(r run) bool { return !c.expected[r.id] }) {
			return errRunsChanged
		}
		return fn(tx)
	})
}
