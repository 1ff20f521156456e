package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"

	"github.com/oklog/ulid/v2"
)

// An open ride with a start position is found by partial indexes of the table rides. The
// current entry of a closed one is in one place, except during compaction, and moves on:
//
//   - in the pending rows, written in the transaction of each change ([indexRide]);
//   - in a run of level 0 ([Service.flush]);
//   - in the run of level 1 for its id ([Service.compact]).
//
// A change leaves the entries of earlier revisions in both levels. They are stale: the
// revision of the ride is higher. Level 1 has one entry of a ride, the latest compacted.
//
// Nodes may flush and compact concurrently: each transaction that does holds the
// [rideIndexLock] of the organization.

// indexSizes are the size limits of the ride index, in rides.
type indexSizes struct {
	segment   int // maximum of a segment
	flush     int // pending rows that trigger a flush
	round     int // flushed before compaction is checked again
	level0    int // size of level 0 that triggers compaction
	level1Run int // target of a run of level 1; with half as many more it is split

	open   int // open rides in a box from which a page scans their sort index instead of reading all
	export int // estimated rides in the box up to which an export collects all ids first
}

// defaultIndexSizes keeps write amplification low, and a box on a map within a few
// segments of each of about a dozen runs.
func defaultIndexSizes() indexSizes {
	return indexSizes{segment: 512, flush: 1024, round: 256 << 10, level0: 16 << 10, level1Run: 256 << 10, open: 1000, export: 200_000}
}

// flushRows limits the pending rows of a transaction of flush, unless indexSizes.flush is
// greater.
const flushRows = 2 << 10

// run is the row of an immutable set of segments.
type run struct {
	id    int64
	level int // 0 or 1
	rides int
}

// segmentCache caches decoded zone maps and segments. They are immutable, so entries are
// never invalidated. Safe for concurrent use.
type segmentCache struct {
	zoneMaps stampedCache[[]zoneMap] // by run; up to 200 kB each
	segments stampedCache[segment]   // by run and number; about 20 kB each
}

func newSegmentCache() *segmentCache {
	return &segmentCache{zoneMaps: newStampedCache[[]zoneMap](300), segments: newStampedCache[segment](3000)}
}

var pendingColumns = slices.Concat([]string{"start_cell", "id", "revision"}, textColumns[:], intColumns[:])

// upsertPending is the statement of indexRide that writes a pending row.
var upsertPending = func() string {
	places, set := make([]string, len(pendingColumns)), make([]string, len(pendingColumns))
	for i, name := range pendingColumns {
		places[i], set[i] = "$"+strconv.Itoa(i+2), name+" = excluded."+name
	}
	return "INSERT INTO untiled_rides (organization_id, " + strings.Join(pendingColumns, ", ") + ") VALUES ($1, " + strings.Join(places, ", ") +
		") ON CONFLICT (organization_id, start_cell, id) DO UPDATE SET " + strings.Join(set[2:], ", ")
}()

// valueOf returns the value of a column.
func valueOf(row []column, name string) any {
	return row[slices.IndexFunc(row, func(c column) bool { return c.name == name })].value
}

// indexable reports whether the index has an entry for a ride with these columns: it is
// closed and has a start position.
func indexable(row []column) bool {
	return valueOf(row, "start_cell") != nil && !RideStatus(valueOf(row, "status").(string)).Open()
}

// indexRide writes the pending row of a ride, or deletes it if the ride is no longer
// indexable. It must run in the transaction of the change. before is nil for a new ride.
func indexRide(ctx context.Context, tx *db.Tx, organizationID string, before, after []column) error {
	if before != nil && indexable(before) && (!indexable(after) || valueOf(before, "start_cell") != valueOf(after, "start_cell")) {
		_, err := tx.Exec(ctx, "DELETE FROM untiled_rides WHERE organization_id = $1 AND start_cell = $2 AND id = $3",
			organizationID, valueOf(before, "start_cell"), valueOf(before, "id"))
		if err != nil {
			return fmt.Errorf("delete a pending row of the ride index: %w", err)
		}
	}
	if !indexable(after) {
		return nil
	}
	args := append(make([]any, 0, 1+len(pendingColumns)), organizationID)
	for _, name := range pendingColumns {
		args = append(args, valueOf(after, name))
	}
	if _, err := tx.Exec(ctx, upsertPending, args...); err != nil {
		return fmt.Errorf("write a pending row of the ride index: %w", err)
	}
	return nil
}

// entryOf returns the entry of an indexable ride with these columns.
func entryOf(row []column) (p rideEntry, err error) {
	for _, c := range row {
		switch v := c.value.(type) {
		case string:
			if i := slices.Index(textColumns[:], c.name); i >= 0 {
				p.texts[i] = v
			} else if c.name == "id" {
				p.id, err = parseRideID(v)
			}
		case int64:
			if i := slices.Index(intColumns[:], c.name); i >= 0 {
				p.values[i] = v
			} else if c.name == "start_cell" {
				p.cell = v
			} else if c.name == "revision" {
				p.revision = v
			}
		}
	}
	return p, err
}

// scanEntry scans a row of pendingColumns.
func scanEntry(row db.Row) (p rideEntry, err error) {
	var id string
	into := []any{&p.cell, &id, &p.revision}
	for c := range p.texts {
		into = append(into, db.IntoText(&p.texts[c]))
	}
	for c := range p.values {
		into = append(into, &p.values[c])
	}
	if err := row.Scan(into...); err != nil {
		return p, err
	}
	p.id, err = parseRideID(id)
	return p, err
}

// rideIndexLock names the lock of flush, compact and the deletion of an organization.
func rideIndexLock(organizationID string) string { return "fleet tiles " + organizationID }

// maintainRideIndex flushes and compacts the ride index of an organization until it is
// within its size limits.
func (s *Service) maintainRideIndex(ctx context.Context, organizationID string) error {
	for more := true; more; {
		var err error
		if more, err = s.flush(ctx, organizationID); err != nil {
			return fmt.Errorf("flush the ride index: %w", err)
		}
		if err := s.compact(ctx, organizationID); err != nil {
			return fmt.Errorf("compact the ride index: %w", err)
		}
	}
	return nil
}

// flush moves pending rows to runs of level 0, one per transaction, while there are at
// least indexSizes.flush of them. It stops after indexSizes.round rides; then more is
// true.
func (s *Service) flush(ctx context.Context, organizationID string) (more bool, err error) {
	for moved := 0; moved < s.indexSizes.round; {
		n := 0
		err := s.db.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 AS one FROM untiled_rides WHERE organization_id = $1 LIMIT $2) AS r",
			organizationID, s.indexSizes.flush).Scan(&n)
		if err != nil || n < s.indexSizes.flush {
			return false, err
		}
		err = s.db.Write(ctx, func(tx *db.Tx) error {
			n = 0
			if err := tx.Lock(ctx, rideIndexLock(organizationID)); err != nil {
				return err
			}
			cell, id := int64(math.MaxInt64), ""
			err := tx.QueryRow(ctx, "SELECT start_cell, id FROM untiled_rides WHERE organization_id = $1 ORDER BY start_cell, id LIMIT 1 OFFSET $2",
				organizationID, max(flushRows, s.indexSizes.flush)).Scan(&cell, &id)
			if err != nil && !errors.Is(err, db.ErrNoRows) {
				return err
			}
			rides, err := db.All(ctx, tx, scanEntry, "DELETE FROM untiled_rides WHERE organization_id = $1 AND (start_cell, id) < ($2, $3) RETURNING "+strings.Join(pendingColumns, ", "), organizationID, cell, id)
			if n = len(rides); err != nil || n == 0 {
				return err
			}
			return packRun(rides, s.indexSizes.segment, 0).insert(ctx, tx, organizationID)
		})
		if err != nil {
			return false, err
		}
		moved += max(n, 1)
	}
	return true, nil
}

// packedRun is an encoded run.
type packedRun struct {
	run
	segments []packedSegment
	zoneMaps []byte
}

// packRun encodes entries as a new run, with segments of up to size. It sorts rides.
func packRun(rides []rideEntry, size, level int) *packedRun {
	segments, zoneMaps := packSegments(rides, size)
	return &packedRun{run{newStamp(), level, len(rides)}, segments, packZoneMaps(zoneMaps)}
}

func (l *packedRun) insert(ctx context.Context, tx *db.Tx, organizationID string) error {
	_, err := tx.Exec(ctx, "INSERT INTO ride_layers (organization_id, id, home, rides, extents) VALUES ($1, $2, $3, $4, $5)",
		organizationID, l.id, l.level, l.rides, l.zoneMaps)
	if err != nil {
		return fmt.Errorf("insert a run of the ride index: %w", err)
	}
	for n, t := range l.segments {
		_, err := tx.Exec(ctx, "INSERT INTO ride_tiles (organization_id, layer_id, n, cells, facts, ids) VALUES ($1, $2, $3, $4, $5, $6)",
			organizationID, l.id, n, t.cells, t.facts, t.ids)
		if err != nil {
			return fmt.Errorf("insert a segment of the ride index: %w", err)
		}
	}
	return nil
}

func deleteRuns(ctx context.Context, tx *db.Tx, organizationID string, ids []int64) error {
	for _, statement := range [...]string{
		"DELETE FROM ride_tiles WHERE organization_id = $1 AND layer_id = ANY($2)",
		"DELETE FROM ride_layers WHERE organization_id = $1 AND id = ANY($2)",
	} {
		if _, err := tx.Exec(ctx, statement, organizationID, ids); err != nil {
			return fmt.Errorf("delete runs of the ride index: %w", err)
		}
	}
	return nil
}

// runsOf returns the runs of an organization.
func runsOf(ctx context.Context, q db.Querier, organizationID string) ([]run, error) {
	return db.All(ctx, q, func(row db.Row) (l run, err error) {
		err = row.Scan(&l.id, &l.level, &l.rides)
		return l, err
	}, "SELECT id, home, rides FROM ride_layers WHERE organization_id = $1", organizationID)
}

// zoneMaps returns the zone maps of the segments of a run. They are cached and must not be
// modified. Errors: db.ErrNoRows if the run was deleted, errSegment.
func (l *run) zoneMaps(ctx context.Context, q db.Querier, organizationID string, cache *segmentCache) ([]zoneMap, error) {
	list, err := cache.zoneMaps.get(strconv.FormatInt(l.id, 10), 0, func(list *[]zoneMap) error {
		var text []byte
		err := q.QueryRow(ctx, "SELECT extents FROM ride_layers WHERE organization_id = $1 AND id = $2", organizationID, l.id).Scan(&text)
		if err == nil {
			*list, err = parseZoneMaps(text)
		}
		if err != nil {
			return err
		}
		n := 0
		for i := range *list {
			n += (*list)[i].rides
		}
		if n != l.rides {
			return errSegment
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the zone maps of a run: %w", err)
	}
	return *list, nil
}

// readRuns returns the entries of runs, unordered; a ride may have several. there is
// false, and rides empty, if a run was deleted. Error: errSegment if a segment is damaged
// or missing.
func (s *Service) readRuns(ctx context.Context, organizationID string, runs []run) (rides []rideEntry, there bool, err error) {
	n := 0
	for _, l := range runs {
		n += l.rides
	}
	err = s.db.Read(ctx, func(tx *db.Tx) error {
		now, err := runsOf(ctx, tx, organizationID)
		if err != nil {
			return err
		}
		if there = !slices.ContainsFunc(runs, func(l run) bool { return !slices.Contains(now, l) }); !there {
			return nil
		}
		rides = make([]rideEntry, 0, n)
		_, err = db.All(ctx, tx, func(row db.Row) (struct{}, error) {
			var p packedSegment
			if err := row.Scan(&p.cells, &p.facts, &p.ids); err != nil {
				return struct{}{}, err
			}
			some, err := p.unpack()
			rides = append(rides, some...)
			return struct{}{}, err
		}, "SELECT cells, facts, ids FROM ride_tiles WHERE organization_id = $1 AND layer_id = ANY($2)", organizationID, runIDs(runs))
		if err == nil && len(rides) != n {
			err = errSegment
		}
		return err
	})
	return rides, there, err
}

// compact merges the runs of level 0 into level 1 once they have indexSizes.level0 rides.
// It rewrites one run of level 1 per transaction and deletes the merged runs of level 0 in
// the last one, so readers find each entry at any time, some of them twice. It stops
// without error if another node changes level 1 or deletes one of the merged runs.
func (s *Service) compact(ctx context.Context, organizationID string) error {
	runs, err := runsOf(ctx, s.db, organizationID)
	if err != nil {
		return err
	}
	n := 0
	level0 := slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.level == 1 })
	for _, l := range level0 {
		n += l.rides
	}
	if n < s.indexSizes.level0 {
		return nil
	}
	level1, err := s.level1Runs(ctx, organizationID, runs)
	if errors.Is(err, db.ErrNoRows) { // another node compacts
		return nil
	}
	if err != nil {
		return err
	}
	list, there, err := s.readRuns(ctx, organizationID, level0)
	if err != nil || !there {
		return err
	}
	latest := make(map[ulid.ULID]rideEntry, len(list)) // entry by ride
	for _, p := range list {
		if other, ok := latest[p.id]; !ok || other.revision < p.revision {
			latest[p.id] = p
		}
	}
	groups := make([][]rideEntry, len(level1)+1) // by run of level 1, then for a new run
	for _, p := range latest {
		at := s.level1RunOf(level1, p.id)
		groups[at] = append(groups[at], p)
	}
	expected := make(map[int64]bool) // runs of level 1
	for _, h := range level1 {
		expected[h.id] = true
	}
	for i, group := range groups {
		if len(group) == 0 {
			continue
		}
		var replaced []int64
		if i < len(level1) {
			replaced = []int64{level1[i].id}
			old, there, err := s.readRuns(ctx, organizationID, []run{level1[i].run})
			if err != nil || !there {
				return err
			}
			unchanged := slices.DeleteFunc(old, func(p rideEntry) bool {
				_, ok := latest[p.id]
				return ok
			})
			group = append(unchanged, group...)
		}
		added := s.packLevel1(group)
		current, err := s.writeIfCurrent(ctx, organizationID, level0, expected, func(tx *db.Tx) error {
			if err := deleteRuns(ctx, tx, organizationID, replaced); err != nil {
				return err
			}
			for _, l := range added {
				if err := l.insert(ctx, tx, organizationID); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || !current {
			return err
		}
		for _, id := range replaced {
			delete(expected, id)
		}
		for _, l := range added {
			expected[l.id] = true
		}
	}
	_, err = s.writeIfCurrent(ctx, organizationID, level0, expected, func(tx *db.Tx) error {
		return deleteRuns(ctx, tx, organizationID, runIDs(level0))
	})
	return err
}

// packLevel1 encodes entries as one run, or splits them by id if they exceed one and a half
// times indexSizes.level1Run. It sorts rides.
func (s *Service) packLevel1(rides []rideEntry) []*packedRun {
	var level1 []*packedRun
	if len(rides) > s.indexSizes.level1Run+s.indexSizes.level1Run/2 {
		slices.SortFunc(rides, func(a, b rideEntry) int { return a.id.Compare(b.id) })
	}
	for len(rides) > s.indexSizes.level1Run+s.indexSizes.level1Run/2 {
		n := s.indexSizes.level1Run
		for n < len(rides) && sameHighHalf(rides[n-1].id, rides[n].id) { // level1RunOf compares high halves only
			n++
		}
		if n == len(rides) {
			break
		}
		level1 = append(level1, packRun(rides[:n], s.indexSizes.segment, 1))
		rides = rides[n:]
	}
	return append(level1, packRun(rides, s.indexSizes.segment, 1))
}

func sameHighHalf(a, b ulid.ULID) bool {
	one, _ := idHalves(a)
	other, _ := idHalves(b)
	return one == other
}

// writeIfCurrent runs fn in a transaction under the rideIndexLock. It returns false,
// without a call of fn, if the runs of level 1 are not exactly the expected ones or a run of
// level0 was deleted.
func (s *Service) writeIfCurrent(ctx context.Context, organizationID string, level0 []run, expected map[int64]bool, fn func(tx *db.Tx) error) (current bool, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		current = false
		if err := tx.Lock(ctx, rideIndexLock(organizationID)); err != nil {
			return err
		}
		runs, err := runsOf(ctx, tx, organizationID)
		if err != nil {
			return err
		}
		level1 := 0
		there := make(map[int64]bool)
		for _, l := range runs {
			there[l.id] = true
			if l.level == 1 {
				level1++
			}
		}
		for _, l := range level0 {
			if !there[l.id] {
				return nil
			}
		}
		for id := range expected {
			if !there[id] {
				return nil
			}
		}
		if level1 != len(expected) {
			return nil
		}
		current = true
		return fn(tx)
	})
	return current, err
}

func runIDs(runs []run) []int64 {
	ids := make([]int64, len(runs))
	for i := range runs {
		ids[i] = runs[i].id
	}
	return ids
}

// level1Run is a run of level 1 with the range of the high halves of its ids.
type level1Run struct {
	run
	ids interval
}

// level1Runs selects the runs of level 1, in the order of ids. Error: db.ErrNoRows if one
// was deleted.
func (s *Service) level1Runs(ctx context.Context, organizationID string, runs []run) ([]level1Run, error) {
	var level1 []level1Run
	for _, l := range runs {
		if l.level == 0 {
			continue
		}
		zoneMaps, err := l.zoneMaps(ctx, s.db, organizationID, s.segmentCache)
		if err != nil {
			return nil, err
		}
		h := level1Run{l, emptyInterval}
		for i := range zoneMaps {
			h.ids = h.ids.with(zoneMaps[i].ids.min).with(zoneMaps[i].ids.max)
		}
		level1 = append(level1, h)
	}
	slices.SortFunc(level1, func(a, b level1Run) int { return cmp.Compare(a.ids.min, b.ids.min) })
	return level1, nil
}

// level1RunOf returns the position in level1 of the run for an id, or len(level1) for a
// new run: if there is none, or the id is greater than all ids and the last run is full.
func (s *Service) level1RunOf(level1 []level1Run, id ulid.ULID) int {
	high, _ := idHalves(id)
	after, _ := slices.BinarySearchFunc(level1, high, func(h level1Run, high int64) int {
		if h.ids.min <= high {
			return -1
		}
		return 1
	})
	if after == 0 && len(level1) > 0 {
		return 0
	}
	last := after - 1
	if after == len(level1) && (last < 0 || level1[last].rides >= s.indexSizes.level1Run && high > level1[last].ids.max) {
		return len(level1)
	}
	return last
}
