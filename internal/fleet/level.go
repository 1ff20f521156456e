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

// Every ride that began somewhere is as it is now in one of four places, from which
// it moves on:
//
//   - in indexes of its own as long as it is open;
//   - as a row of untiled_rides: when it has ended, and whenever it is changed
//     again, in the same transaction ([indexRide]);
//   - in a tile of a young layer, with others that had ended by some time
//     ([Service.flush]);
//   - in a tile of a home: homes are layers that have all rides from one id to
//     another, so that there is one for each ride ([Service.compact]).
//
// What it was before may be left in the last two: tiles that say an older revision
// of a ride are not believed. A home says the last one that it was told, so there is
// never more that is not to be believed than what young layers have.

// indexSizes is numbers of rides that the work is divided by.
type indexSizes struct {
	segment   int // of a tile, at most
	flush     int // of a young layer, at least
	round     int // that go into young layers before these are moved home
	level0    int // of young layers together, before they are
	level1Run int // of a home, about

	open   int // open in a box, of which on a list goes along its order instead of reading them all
	export int // of an export whose ids are gathered before it begins, at most
}

// defaultIndexSizes makes little work of what changes with each ride, and of a box on a
// map a few tiles of each of some dozen layers.
func defaultIndexSizes() indexSizes {
	return indexSizes{segment: 512, flush: 1024, round: 256 << 10, level0: 16 << 10, level1Run: 256 << 10, open: 1000, export: 200_000}
}

// flushRows bounds the rides that a transaction takes from untiled_rides.
const flushRows = 2 << 10

// run is tiles that were made together.
type run struct {
	id    int64
	level int
	rides int
}

// segmentCache keeps some of what was read of layers, which never change.
type segmentCache struct {
	zoneMaps stampedCache[[]zoneMap] // by layer; up to two hundred kilobytes each, of a home
	segments stampedCache[segment]   // by layer and number; some twenty kilobytes each
}

func newSegmentCache() *segmentCache {
	return &segmentCache{zoneMaps: newStampedCache[[]zoneMap](300), segments: newStampedCache[segment](3000)}
}

var pendingColumns = slices.Concat([]string{"start_cell", "id", "revision"}, textColumns[:], intColumns[:])

// upsertPending is the statement of placeRide.
var upsertPending = func() string {
	places, set := make([]string, len(pendingColumns)), make([]string, len(pendingColumns))
	for i, name := range pendingColumns {
		places[i], set[i] = "$"+strconv.Itoa(i+2), name+" = excluded."+name
	}
	return "INSERT INTO untiled_rides (organization_id, " + strings.Join(pendingColumns, ", ") + ") VALUES ($1, " + strings.Join(places, ", ") +
		") ON CONFLICT (organization_id, start_cell, id) DO UPDATE SET " + strings.Join(set[2:], ", ")
}()

// valueOf is a column of a row.
func valueOf(row []column, name string) any {
	return row[slices.IndexFunc(row, func(c column) bool { return c.name == name })].value
}

// indexable reports whether a ride with these columns is for a tile: it is over, and
// began somewhere.
func indexable(row []column) bool {
	return valueOf(row, "start_cell") != nil && !RideStatus(valueOf(row, "status").(string)).Open()
}

// indexRide notes where a ride began that is made or changed: its columns before,
// nil of a new one, and now.
func indexRide(ctx context.Context, tx *db.Tx, organizationID string, before, after []column) error {
	if before != nil && indexable(before) && (!indexable(after) || valueOf(before, "start_cell") != valueOf(after, "start_cell")) {
		_, err := tx.Exec(ctx, "DELETE FROM untiled_rides WHERE organization_id = $1 AND start_cell = $2 AND id = $3",
			organizationID, valueOf(before, "start_cell"), valueOf(before, "id"))
		if err != nil {
			return fmt.Errorf("forget where a ride began: %w", err)
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
		return fmt.Errorf("note where a ride began: %w", err)
	}
	return nil
}

// entryOf is what tiles have of a ride with these columns.
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

// scanEntry reads untiledColumns.
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

// rideIndexLock is the lock of whoever adds or deletes layers.
func rideIndexLock(organizationID string) string { return "fleet tiles " + organizationID }

// maintainRideIndex moves an organization's rides on, if there are enough of them.
func (s *Service) maintainRideIndex(ctx context.Context, organizationID string) error {
	for more := true; more; {
		var err error
		if more, err = s.flush(ctx, organizationID); err != nil {
			return fmt.Errorf("put rides into tiles: %w", err)
		}
		if err := s.compact(ctx, organizationID); err != nil {
			return fmt.Errorf("put tiles of rides together: %w", err)
		}
	}
	return nil
}

// flush moves an organization's rides into young layers, as long as there are enough
// of them, and reports whether there are more, for another turn.
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

// packedRun is a layer to be stored.
type packedRun struct {
	run
	segments []packedSegment
	zoneMaps []byte
}

// packRun packs rides in a new layer, and changes their order.
func packRun(rides []rideEntry, size, level int) *packedRun {
	segments, zoneMaps := packSegments(rides, size)
	return &packedRun{run{newStamp(), level, len(rides)}, segments, packZoneMaps(zoneMaps)}
}

func (l *packedRun) insert(ctx context.Context, tx *db.Tx, organizationID string) error {
	_, err := tx.Exec(ctx, "INSERT INTO ride_layers (organization_id, id, home, rides, extents) VALUES ($1, $2, $3, $4, $5)",
		organizationID, l.id, l.level, l.rides, l.zoneMaps)
	if err != nil {
		return fmt.Errorf("insert a layer of rides: %w", err)
	}
	for n, t := range l.segments {
		_, err := tx.Exec(ctx, "INSERT INTO ride_tiles (organization_id, layer_id, n, cells, facts, ids) VALUES ($1, $2, $3, $4, $5, $6)",
			organizationID, l.id, n, t.cells, t.facts, t.ids)
		if err != nil {
			return fmt.Errorf("insert a tile of rides: %w", err)
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
			return fmt.Errorf("delete layers of rides: %w", err)
		}
	}
	return nil
}

// runsOf returns the layers of an organization.
func runsOf(ctx context.Context, q db.Querier, organizationID string) ([]run, error) {
	return db.All(ctx, q, func(row db.Row) (l run, err error) {
		err = row.Scan(&l.id, &l.level, &l.rides)
		return l, err
	}, "SELECT id, home, rides FROM ride_layers WHERE organization_id = $1", organizationID)
}

// zoneMaps returns the extents of a layer's tiles, which nobody may change.
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
		return nil, fmt.Errorf("read a layer of rides: %w", err)
	}
	return *list, nil
}

// readRuns returns what layers say of their rides, which may be in several; none, and
// false, when one of the layers is gone.
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

// compact moves the rides of the young layers of an organization to their homes, if
// there are enough of them. Until the end they are in both, and in the end only if
// nobody else has changed the homes, or deleted a young layer, meanwhile.
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
	if errors.Is(err, db.ErrNoRows) { // others are at it
		return nil
	}
	if err != nil {
		return err
	}
	list, there, err := s.readRuns(ctx, organizationID, level0)
	if err != nil || !there {
		return err
	}
	moving := make(map[ulid.ULID]rideEntry, len(list)) // as of their last revisions
	for _, p := range list {
		if had, ok := moving[p.id]; !ok || had.revision < p.revision {
			moving[p.id] = p
		}
	}
	groups := make([][]rideEntry, len(level1)+1) // of each home, and of a new one
	for _, p := range moving {
		at := s.level1RunOf(level1, p.id)
		groups[at] = append(groups[at], p)
	}
	known := make(map[int64]bool) // the homes that there must be
	for _, h := range level1 {
		known[h.id] = true
	}
	for i, group := range groups {
		if len(group) == 0 {
			continue
		}
		var gone []int64
		if i < len(level1) {
			gone = []int64{level1[i].id}
			had, there, err := s.readRuns(ctx, organizationID, []run{level1[i].run})
			if err != nil || !there {
				return err
			}
			stay := slices.DeleteFunc(had, func(p rideEntry) bool {
				_, ok := moving[p.id]
				return ok
			})
			group = append(stay, group...)
		}
		added := s.packLevel1(group)
		alone, err := s.writeIfCurrent(ctx, organizationID, level0, known, func(tx *db.Tx) error {
			if err := deleteRuns(ctx, tx, organizationID, gone); err != nil {
				return err
			}
			for _, l := range added {
				if err := l.insert(ctx, tx, organizationID); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || !alone {
			return err
		}
		for _, id := range gone {
			delete(known, id)
		}
		for _, l := range added {
			known[l.id] = true
		}
	}
	_, err = s.writeIfCurrent(ctx, organizationID, level0, known, func(tx *db.Tx) error {
		return deleteRuns(ctx, tx, organizationID, runIDs(level0))
	})
	return err
}

// packLevel1 packs rides of one home, or of several when they are too many, and
// changes their order.
func (s *Service) packLevel1(rides []rideEntry) []*packedRun {
	var level1 []*packedRun
	if len(rides) > s.indexSizes.level1Run+s.indexSizes.level1Run/2 {
		slices.SortFunc(rides, func(a, b rideEntry) int { return a.id.Compare(b.id) })
	}
	for len(rides) > s.indexSizes.level1Run+s.indexSizes.level1Run/2 {
		n := s.indexSizes.level1Run
		for n < len(rides) && sameHighHalf(rides[n-1].id, rides[n].id) { // which homeOf does not tell apart
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

// writeIfCurrent runs fn in a transaction, unless the homes are others than those that are
// known or one of the young layers is gone: then it reports false.
func (s *Service) writeIfCurrent(ctx context.Context, organizationID string, level0 []run, known map[int64]bool, fn func(tx *db.Tx) error) (alone bool, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		alone = false
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
		for id := range known {
			if !there[id] {
				return nil
			}
		}
		if level1 != len(known) {
			return nil
		}
		alone = true
		return fn(tx)
	})
	return alone, err
}

func runIDs(runs []run) []int64 {
	ids := make([]int64, len(runs))
	for i := range runs {
		ids[i] = runs[i].id
	}
	return ids
}

// level1Run is a home, and the first halves of its rides' ids.
type level1Run struct {
	run
	ids interval
}

// level1Runs returns the homes among layers, in the order of their ids.
func (s *Service) level1Runs(ctx context.Context, organizationID string, runs []run) ([]level1Run, error) {
	var level1 []level1Run
	for _, l := range runs {
		if l.level == 0 {
			continue
		}
		zoneMaps, err := l.zoneMaps(ctx, s.db, organizationID, s.segments)
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

// level1RunOf returns which of some homes, in order, is that of a ride; one more when it
// is later than all and the last is full.
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
