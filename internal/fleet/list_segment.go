package fleet

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"

	"github.com/oklog/ulid/v2"
)

// Rides in a box are found in tiles: the tile that may have the first ones of a list
// is read first, then the next one, until what was found comes before whatever the
// others may have. The rides that no tile has are few, and are looked for by
// themselves. Where a box has so many rides that going along the index of what they
// are sorted by meets some soon, that is done first: it does not depend on how deep
// in the list a page is.

// usesSegments reports whether a list is found in tiles: rides in a box, with filters on
// what tiles have.
func (s *listQuery) usesSegments() bool {
	return s.segments != nil && s.spatial && !slices.ContainsFunc(s.filters, func(f filter) bool {
		return !slices.Contains(textColumns[:], f.column) && !slices.Contains(intColumns[:], f.column)
	})
}

// hit is a ride that meets the conditions of a list, if it is still as it was at a
// revision.
type hit struct {
	value    int64 // that it is sorted by, beside the id
	id       ulid.ULID
	revision int64 // sure: it is
}

const verified = math.MaxInt64

// predicate is the conditions of a list, as tiles are tested for them.
type predicate struct {
	key         int // of valueColumns; -1: ids
	descending  bool
	after       *hit
	first, last int64 // first halves of ids are from first on and before last
	rects       []geo.Rect
	areas       []bounds        // the same
	cellRanges  []geo.CellRange // with all cells of them, and few others
	texts       [len(textColumns)][]string
	intervals   [len(intColumns)]interval // if bound
	bounded     [len(intColumns)]bool
}

// bounds are a rect as the bits of cells compare: those that are of one coordinate
// do as that does.
type bounds struct{ lat, lng geo.CellRange }

func boundsOf(r geo.Rect) bounds {
	c := geo.CellRange{First: geo.CellAt(r.MinLat, r.MinLng), Last: geo.CellAt(r.MaxLat, r.MaxLng)}
	return bounds{geo.CellRange{First: c.First & geo.LatBits, Last: c.Last & geo.LatBits}, geo.CellRange{First: c.First & geo.LngBits, Last: c.Last & geo.LngBits}}
}

func (s *listQuery) predicate(at *scanPosition) (*predicate, error) {
	v := &predicate{key: -1, descending: s.descending, first: math.MinInt64, last: math.MaxInt64}
	if !s.orderedByID() {
		v.key = slices.Index(intColumns[:], s.key.column)
	}
	var err error
	if s.first != "" {
		if v.first, err = highHalf(s.first); err != nil {
			return nil, err
		}
	}
	if s.last != "" {
		if v.last, err = highHalf(s.last); err != nil {
			return nil, err
		}
	}
	for _, r := range s.rects {
		v.areas = append(v.areas, boundsOf(r))
	}
	v.rects, v.cellRanges = s.rects, geo.Cover(s.rects, ringRanges)
	for i := range s.filters {
		f := &s.filters[i]
		if c := slices.Index(textColumns[:], f.column); c >= 0 {
			v.texts[c] = slices.DeleteFunc(slices.Clone(f.values), func(word string) bool { return word == "" }) // as NULL is kept
			continue
		}
		c := slices.Index(intColumns[:], f.column)
		v.bounded[c], v.intervals[c] = true, interval{f.low, f.high}
	}
	if at != nil {
		if v.after, err = v.hit(at.id, at.value); err != nil {
			return nil, keyset.ErrCursor
		}
	}
	return v, nil
}

// highHalf is that of the ids from a bound on, see [idsFrom].
func highHalf(bound string) (int64, error) {
	switch bound {
	case ridePrefix + "_":
		return math.MinInt64, nil
	case ridePrefix + "_~":
		return math.MaxInt64, nil
	}
	id, err := parseRideID(bound)
	high, _ := idHalves(id)
	return high, err
}

// hit is a row that a query found, or where a page begins.
func (v *predicate) hit(id string, value any) (*hit, error) {
	h := &hit{revision: verified}
	var err error
	if h.id, err = parseRideID(id); err != nil {
		return nil, fmt.Errorf("%q: %w", id, err)
	}
	if v.key >= 0 {
		h.value, _ = value.(int64)
	}
	return h, nil
}

// compare is the order of the list.
func (v *predicate) compare(a, b *hit) int {
	order := cmp.Or(cmp.Compare(a.value, b.value), a.id.Compare(b.id))
	if v.descending {
		return -order
	}
	return order
}

// keyRange are before and after whatever a tile may have, in the order of the list.
func (v *predicate) keyRange(x *zoneMap) (first, last keyPrefix) {
	first, last = keyPrefix{id: x.ids.min}, keyPrefix{id: x.ids.max}
	if v.key >= 0 {
		first, last = x.values[v.key].first, x.values[v.key].last
	}
	if v.descending {
		return last, first
	}
	return first, last
}

func (h *hit) rank() keyPrefix {
	high, _ := idHalves(h.id)
	return keyPrefix{h.value, high}
}

func (v *predicate) precedes(a, b keyPrefix) bool {
	if v.descending {
		a, b = b, a
	}
	return a.compare(b) < 0
}

// mayMatch reports whether a tile may have something.
func (v *predicate) mayMatch(x *zoneMap) bool {
	if _, last := v.keyRange(x); v.after != nil && v.precedes(last, v.after.rank()) {
		return false
	}
	if x.ids.max < v.first || x.ids.min >= v.last ||
		!slices.ContainsFunc(v.rects, func(r geo.Rect) bool { _, ok := r.Intersect(x.rect); return ok }) ||
		!slices.ContainsFunc(v.cellRanges, func(r geo.CellRange) bool { return r.First <= x.cells.max && r.Last >= x.cells.min }) {
		return false
	}
	for c, words := range v.texts {
		if words != nil && !slices.ContainsFunc(words, func(word string) bool { return x.blooms[c]&bloomBit(word) != 0 }) {
			return false
		}
	}
	for c, bound := range v.bounded {
		if bound && (x.values[c].last.value < v.intervals[c].min || x.values[c].first.value > v.intervals[c].max) {
			return false
		}
	}
	return true
}

// matchArea returns which rides of a tile are in the box, in place of a list.
func (v *predicate) matchArea(list []int, t *segment, x *zoneMap) []int {
	list = list[:0]
	all := slices.ContainsFunc(v.rects, func(r geo.Rect) bool { c, _ := r.Intersect(x.rect); return c == x.rect })
	for i := range t.rides {
		cell := t.cells.At(i)
		if all || slices.ContainsFunc(v.areas, func(a bounds) bool {
			return cell&geo.LatBits >= a.lat.First && cell&geo.LatBits <= a.lat.Last && cell&geo.LngBits >= a.lng.First && cell&geo.LngBits <= a.lng.Last
		}) {
			list = append(list, i)
		}
	}
	return list
}

// matchFilters leaves of some rides those whose facts meet the conditions.
func (v *predicate) matchFilters(t *segment, list []int) []int {
	for c, words := range v.texts {
		if words == nil {
			continue
		}
		allowed := make([]bool, len(t.dictionaries[c]))
		for n, word := range t.dictionaries[c] {
			allowed[n] = slices.Contains(words, word)
		}
		list = slices.DeleteFunc(list, func(i int) bool {
			n := t.codes[c].At(i)
			return n < 0 || n >= int64(len(allowed)) || !allowed[n]
		})
	}
	for c, bound := range v.bounded {
		if bound {
			list = slices.DeleteFunc(list, func(i int) bool {
				value := t.values[c].At(i)
				return value < v.intervals[c].min || value > v.intervals[c].max
			})
		}
	}
	return list
}

// topHits keeps the first ones of hits.
type topHits struct {
	*predicate
	limit int
	hits  []hit
	full  bool // list[most-1] is the last that can be of use

	matches []int // of the rides of the tile at hand
}

func (b *topHits) add(h hit) {
	if b.full && b.compare(&h, &b.hits[b.limit-1]) > 0 {
		return
	}
	if b.hits = append(b.hits, h); len(b.hits) >= 2*b.limit && b.limit < noLimit {
		b.truncate()
	}
}

// truncate sorts the hits and drops those after the first most. Of a ride in several
// tiles, the hit of its last revision stays.
func (b *topHits) truncate() {
	slices.SortFunc(b.hits, func(x, y hit) int { return cmp.Or(b.compare(&x, &y), cmp.Compare(y.revision, x.revision)) })
	b.hits = slices.CompactFunc(b.hits, func(x, y hit) bool { return b.compare(&x, &y) == 0 })
	b.hits = b.hits[:min(len(b.hits), b.limit)]
	b.full = len(b.hits) == b.limit
}

// isPast reports whether what comes from some rank on is of no use.
func (b *topHits) isPast(first keyPrefix) bool {
	return b.full && b.precedes(b.hits[b.limit-1].rank(), first)
}

// runSet are the layers of an organization, with what is known of their tiles.
type runSet []struct {
	run
	zoneMaps []zoneMap
}

// segmentRef is a tile to be read.
type segmentRef struct {
	layer, n int32 // of tiled, of its tiles
	first    keyPrefix
}

// segmentRefLists are long, and of no use when a page is found.
var segmentRefLists = sync.Pool{New: func() any { return new([]segmentRef) }}

func (t runSet) zoneMap(v segmentRef) *zoneMap { return &t[v.layer].zoneMaps[v.n] }

// key is the name of a tile.
func (t runSet) key(v segmentRef) string { return fmt.Sprintf("%d/%d", t[v.layer].id, v.n) }

// segmentQueue are a heap of those that are not read yet, in the order of what they may
// have. What was taken from it stays behind its list.
type segmentQueue struct {
	list []segmentRef
	*predicate
}

func (v *segmentQueue) Len() int           { return len(v.list) }
func (v *segmentQueue) Less(i, j int) bool { return v.precedes(v.list[i].first, v.list[j].first) }
func (v *segmentQueue) Swap(i, j int)      { v.list[i], v.list[j] = v.list[j], v.list[i] }
func (v *segmentQueue) Push(x any)         { v.list = append(v.list, x.(segmentRef)) }
func (v *segmentQueue) Pop() any {
	last := v.list[len(v.list)-1]
	v.list = v.list[:len(v.list)-1]
	return last
}

// readRunSet reads the layers of the organization.
func (s *listQuery) readRunSet() (runSet, error) {
	runs, err := runsOf(s.ctx, s.q, s.organization)
	if err != nil {
		return nil, err
	}
	t := make(runSet, len(runs))
	for i, l := range runs {
		t[i].run = l
		if t[i].zoneMaps, err = l.zoneMaps(s.ctx, s.q, s.organization, s.segments); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// estimate is that of all tiles, for some rects.
func (t runSet) estimate(rects []geo.Rect) (w rowEstimate) {
	for i := range t {
		for n := range t[i].zoneMaps {
			w.add(rects, &t[i].zoneMaps[n])
		}
	}
	return w
}

// mayMatch returns the tiles that may have something, in place of a list.
func (t runSet) mayMatch(list []segmentRef, v *predicate) []segmentRef {
	list = list[:0]
	for i := range t {
		for n := range t[i].zoneMaps {
			if x := &t[i].zoneMaps[n]; v.mayMatch(x) {
				first, _ := v.keyRange(x)
				list = append(list, segmentRef{int32(i), int32(n), first})
			}
		}
	}
	return list
}

// findInSegments is findHere in tiles.
func (s *listQuery) findInSegments(want int) ([]candidate, error) {
	at, err := s.startPosition()
	if err != nil {
		return nil, err
	}
	v, err := s.predicate(at)
	if err != nil {
		return nil, err
	}
	var segments runSet
	var list []segmentRef
	if !s.nullPartition { // who has no value is open, and in no tile
		if segments, err = s.readRunSet(); err != nil {
			return nil, err
		}
		if s.canProbe(want) {
			if rows := probeRows(segments.estimate(v.rects), want); rows > 0 {
				found, err := s.probeIndex(at, rows, want)
				if err != nil || len(found) == want {
					return found, err
				}
			}
		}
		cache := segmentRefLists.Get().(*[]segmentRef)
		defer segmentRefLists.Put(cache)
		*cache = segments.mayMatch(*cache, v)
		list = *cache
	}
	var found []candidate
	for many := want; ; many *= 2 { // more again where many are not as they were
		hits, err := s.firstHits(v, segments, list, many)
		if err != nil {
			return nil, err
		}
		for part := range slices.Chunk(hits, maxPage+1) {
			current, err := s.dropStale(part, want)
			if err != nil {
				return nil, err
			}
			for _, h := range current {
				c := candidate{id: rideID(h.id)}
				if v.key >= 0 {
					c.value = h.value
				}
				if found = append(found, c); len(found) == want {
					return found, nil
				}
			}
		}
		if len(hits) < many {
			return found, nil
		}
		v.after = &hits[len(hits)-1]
	}
}

// maxProbeRows is how far it is gone along an index at most, and farther times as far
// as it should take.
const (
	maxProbeRows = 4096
	probeFactor  = 3
)

// rowEstimate is how many rides tiles have, and about how many of them are in the box.
type rowEstimate struct{ all, inside float64 }

func (w *rowEstimate) add(rects []geo.Rect, x *zoneMap) {
	w.all += float64(x.rides)
	for _, r := range rects {
		if c, ok := r.Intersect(x.rect); ok {
			w.inside += float64(x.rides) * c.Size() / x.rect.Size()
		}
	}
}

// canProbe reports whether the index of the sort has all that a list is filtered by.
func (s *listQuery) canProbe(want int) bool {
	return s.scanCost(nil) <= 1 && s.first == "" && !s.orderedByID() && want < noLimit
}

// probeRows returns how many rows along the index of the sort are worth a try; 0: none.
func probeRows(w rowEstimate, want int) int {
	rows := probeFactor * float64(want) * w.all / max(w.inside, 1)
	if w.all == 0 || rows > maxProbeRows {
		return 0
	}
	return 1 << bits.Len(uint(rows)) // of a few sizes, so that statements are the same
}

// probeIndex returns those in the area of so many rows along the index of the sort.
func (s *listQuery) probeIndex(at *scanPosition, rows, want int) ([]candidate, error) {
	var st keyset.Statement
	st.WriteString("SELECT id, value, NULL AS cell FROM (")
	s.writeIndexScan(&st, nil, "id, "+s.key.column+" AS value, "+s.cell, at, nil, false)
	st.Addf(" ORDER BY %s LIMIT %d) AS r WHERE %s ORDER BY %s", s.ordering(), rows, s.area(&st), s.ordering())
	return s.read(&st, want)
}

// firstHits returns the first hits, in order.
func (s *listQuery) firstHits(v *predicate, segments runSet, list []segmentRef, most int) ([]hit, error) {
	b := &topHits{predicate: v, limit: most}
	var err error
	var at *scanPosition
	if v.after != nil {
		at = &scanPosition{id: rideID(v.after.id)}
		if v.key >= 0 {
			at.value = v.after.value
		}
	}
	var rows []candidate
	if !s.nullPartition {
		pending := *s
		pending.table = "untiled_rides"
		if rows, err = pending.readSet(cellSet, at, most); err != nil {
			return nil, err
		}
	}
	if s.mayMatchOpen(v) {
		open, err := s.readOpen(at, most)
		if err != nil {
			return nil, err
		}
		rows = append(rows, open...)
	}
	for _, c := range rows {
		h, err := v.hit(c.id, c.value)
		if err != nil {
			return nil, err
		}
		b.add(*h)
	}
	b.truncate()
	order := &segmentQueue{list, v}
	heap.Init(order)
	for order.Len() > 0 {
		var next []segmentRef
		for order.Len() > 0 && len(next) < segmentsPerRead && !b.isPast(order.list[0].first) {
			next = append(next, heap.Pop(order).(segmentRef))
		}
		if len(next) == 0 {
			break
		}
		read, err := s.readSegments(segments, next)
		if err != nil {
			return nil, fmt.Errorf("read tiles of rides: %w", err)
		}
		for i, t := range read {
			b.addSegment(t, segments.zoneMap(next[i]))
		}
	}
	b.truncate()
	return b.hits, nil
}

// segmentsPerRead is how many tiles a statement reads.
const segmentsPerRead = 16

// readSegments returns the tiles of some visits, of which it reads those that are not in
// memory.
func (s *listQuery) readSegments(segments runSet, visits []segmentRef) ([]*segment, error) {
	list := make([]*segment, len(visits))
	var missing []int
	for i := range visits {
		if list[i] = s.segments.segments.lookup(segments.key(visits[i]), 0); list[i] == nil {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return list, nil
	}
	var st keyset.Statement
	st.WriteString("SELECT v.column1, cells, facts, ids FROM (VALUES ")
	for i := range segmentsPerRead { // always as many, so that the statement is the same
		which, layer, n := 0, int64(0), int32(-1)
		if i < len(missing) {
			which = missing[i]
			layer, n = segments[visits[which].layer].id, visits[which].n
		}
		if i > 0 {
			st.WriteString(", ")
		}
		st.Addf("(CAST(%s AS BIGINT), CAST(%s AS BIGINT), CAST(%s AS BIGINT))", st.Arg(which), st.Arg(layer), st.Arg(n))
	}
	st.Addf(") AS v CROSS JOIN ride_tiles WHERE organization_id = %s AND layer_id = v.column2 AND n = v.column3", st.Arg(s.organization))
	_, err := db.All(s.ctx, s.q, func(row db.Row) (struct{}, error) {
		var which int
		var p packedSegment
		if err := row.Scan(&which, &p.cells, &p.facts, &p.ids); err != nil {
			return struct{}{}, err
		}
		t, err := p.parse()
		if err == nil && t.rides != segments.zoneMap(visits[which]).rides {
			err = errSegment
		}
		if err == nil {
			s.segments.segments.put(segments.key(visits[which]), 0, t)
			list[which] = t
		}
		return struct{}{}, err
	}, st.String(), st.Args...)
	if err == nil && slices.Contains(list, nil) {
		err = errSegment
	}
	return list, err
}

// addSegment adds what meets the conditions in a tile.
func (b *topHits) addSegment(t *segment, x *zoneMap) {
	b.matches = b.matchArea(b.matches, t, x)
	for _, i := range b.matchFilters(t, b.matches) {
		at := keyPrefix{id: t.highs.At(i)}
		if b.key >= 0 {
			at.value = t.values[b.key].At(i)
		}
		if at.id < b.first || at.id >= b.last || b.isPast(at) {
			continue
		}
		h := hit{at.value, t.id(i), t.revisions.At(i)}
		if b.after == nil || b.compare(&h, b.after) > 0 {
			b.add(h)
		}
	}
}

// mayMatchOpen reports whether open rides can meet the conditions: nothing is due of
// them, and what they come to is not known.
func (s *listQuery) mayMatchOpen(v *predicate) bool {
	for c, column := range textColumns {
		words := v.texts[c]
		switch {
		case words == nil:
		case column == "status" && !slices.Contains(words, string(Active)) && !slices.Contains(words, string(Paused)),
			column == "payment_status" && !slices.Contains(words, "not_due"):
			return false
		}
	}
	for c, column := range intColumns {
		if (c == v.key || v.bounded[c]) && column != "started_at" && column != "updated_at" {
			return false
		}
	}
	return true
}

// readOpen returns the first of the rides that are going on.
func (s *listQuery) readOpen(at *scanPosition, most int) ([]candidate, error) {
	open := *s
	open.indexCondition = "status IN ('active', 'paused') AND start_cell IS NOT NULL"
	if most >= noLimit || s.key.column == "updated_at" { // of which there is no index
		return open.readSet(cellSet, at, most)
	}
	var st keyset.Statement
	st.WriteString("SELECT 1 AS one")
	open.writeSet(&st, cellSet, s.rects)
	st.Addf(" LIMIT 1 OFFSET %s", st.Arg(s.indexSizes.open-1))
	one := 0
	switch err := s.q.QueryRow(s.ctx, st.String(), st.Args...).Scan(&one); {
	case errors.Is(err, db.ErrNoRows):
		return open.readSet(cellSet, at, most)
	case err != nil:
		return nil, err
	}
	return open.scanIndex(nil, at, nil, most)
}

// dropStale returns the hits that are as rides are now. Where so many are wanted as a
// page has, it reads their documents with that.
func (s *listQuery) dropStale(hits []hit, want int) ([]hit, error) {
	var ids []string
	for i := range hits {
		if hits[i].revision != verified {
			ids = append(ids, rideID(hits[i].id))
		}
	}
	if len(ids) == 0 {
		return hits, nil
	}
	var err error
	now := make(map[string]int64, len(ids))
	if want <= maxPage+1 {
		err = s.readRecords(ids)
		for id, d := range s.docs {
			now[id] = d.Revision
		}
	} else {
		err = s.readRevisions(ids, now)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(hits), func(h hit) bool { return h.revision != verified && h.revision != now[rideID(h.id)] }), nil
}

// readRevisions adds the revisions that rides have.
func (s *listQuery) readRevisions(ids []string, now map[string]int64) error {
	_, err := db.All(s.ctx, s.q, func(row db.Row) (struct{}, error) {
		var id string
		var revision int64
		err := row.Scan(&id, &revision)
		now[strings.Clone(id)] = revision
		return struct{}{}, err
	}, "SELECT id, revision FROM rides WHERE organization_id = $1 AND id = ANY($2)", s.organization, ids)
	return err
}
