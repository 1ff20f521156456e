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

// A query of the ride index is a top-k search. It reads segments in the order of the
// smallest sort key of their zone maps, and stops when k hits precede all remaining
// segments. Pending rows and open rides are queried in the tables. If the sort index is
// likely to reach a page of hits within a few thousand rows, it is scanned first; the cost
// does not depend on the position of the page in the list.

// usesSegments reports whether the query uses the ride index: rides in an area, with
// filters on indexed columns only.
func (s *listQuery) usesSegments() bool {
	return s.segmentCache != nil && s.spatial && !slices.ContainsFunc(s.filters, func(f filter) bool {
		return !slices.Contains(textColumns[:], f.column) && !slices.Contains(intColumns[:], f.column)
	})
}

// hit is a matching ride, unless its revision is stale.
type hit struct {
	value    int64 // sort value; 0 if the order is by id
	id       ulid.ULID
	revision int64 // of the entry, or verified
}

// verified is the revision of a hit from a table in the same snapshot.
const verified = math.MaxInt64

// predicate is the filter and order of a query, for zone maps and columns of segments.
type predicate struct {
	key         int // sort key, of intColumns; -1: id
	descending  bool
	after       *hit
	first, last int64 // high halves of ids: from first, before last
	rects       []geo.Rect
	areas       []bounds        // of rects
	cellRanges  []geo.CellRange // cover rects, with few further cells
	texts       [len(textColumns)][]string
	intervals   [len(intColumns)]interval // if bounded
	bounded     [len(intColumns)]bool
}

// bounds is a rect in Morton codes. The bits of one coordinate, masked from a cell,
// compare as the coordinate does.
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
			v.texts[c] = slices.DeleteFunc(slices.Clone(f.values), func(word string) bool { return word == "" }) // the code of NULL
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

// highHalf returns the high half of a bound of ids, see [idsFrom].
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

// hit returns the hit of a row of a table, or of the cursor.
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

// compare orders hits as the list does.
func (v *predicate) compare(a, b *hit) int {
	order := cmp.Or(cmp.Compare(a.value, b.value), a.id.Compare(b.id))
	if v.descending {
		return -order
	}
	return order
}

// keyRange returns lower and upper bounds of the sort keys of a segment, in list order.
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

func (h *hit) keyPrefix() keyPrefix {
	high, _ := idHalves(h.id)
	return keyPrefix{h.value, high}
}

func (v *predicate) precedes(a, b keyPrefix) bool {
	if v.descending {
		a, b = b, a
	}
	return a.compare(b) < 0
}

// mayMatch returns false if the zone map excludes matches after the cursor.
func (v *predicate) mayMatch(x *zoneMap) bool {
	if _, last := v.keyRange(x); v.after != nil && v.precedes(last, v.after.keyPrefix()) {
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

// matchArea returns the positions of the entries in the area. It reuses list.
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

// matchFilters removes the positions of entries that do not match the filters from list.
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

// topHits collects the first limit hits in list order. It buffers up to twice as many.
type topHits struct {
	*predicate
	limit int
	hits  []hit
	full  bool // hits[limit-1] is an upper bound of the result

	matches []int // buffer of addSegment
}

func (b *topHits) add(h hit) {
	if b.full && b.compare(&h, &b.hits[b.limit-1]) > 0 {
		return
	}
	if b.hits = append(b.hits, h); len(b.hits) >= 2*b.limit && b.limit < noLimit {
		b.truncate()
	}
}

// truncate sorts the hits and drops those after the first limit. Of hits with equal keys
// it retains the one with the latest revision.
func (b *topHits) truncate() {
	slices.SortFunc(b.hits, func(x, y hit) int { return cmp.Or(b.compare(&x, &y), cmp.Compare(y.revision, x.revision)) })
	b.hits = slices.CompactFunc(b.hits, func(x, y hit) bool { return b.compare(&x, &y) == 0 })
	b.hits = b.hits[:min(len(b.hits), b.limit)]
	b.full = len(b.hits) == b.limit
}

// isPast reports whether hits from a key on are not part of the result.
func (b *topHits) isPast(first keyPrefix) bool {
	return b.full && b.precedes(b.hits[b.limit-1].keyPrefix(), first)
}

// runSet is the runs of an organization with their zone maps.
type runSet []struct {
	run
	zoneMaps []zoneMap
}

// segmentRef is a segment to be read.
type segmentRef struct {
	run, segment int32 // positions in the runSet and its run
	first        keyPrefix
}

// segmentRefLists reuses lists of segments between queries.
var segmentRefLists = sync.Pool{New: func() any { return new([]segmentRef) }}

func (t runSet) zoneMap(ref segmentRef) *zoneMap { return &t[ref.run].zoneMaps[ref.segment] }

// cacheKey is the key of a segment in segmentCache.
func (t runSet) cacheKey(ref segmentRef) string {
	return fmt.Sprintf("%d/%d", t[ref.run].id, ref.segment)
}

// segmentQueue is a heap of unread segments by their first key. Popped elements remain
// in the array behind list, for the next search.
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

// readRunSet reads the runs of the organization.
func (s *listQuery) readRunSet() (runSet, error) {
	runs, err := runsOf(s.ctx, s.q, s.organization)
	if err != nil {
		return nil, err
	}
	t := make(runSet, len(runs))
	for i, l := range runs {
		t[i].run = l
		if t[i].zoneMaps, err = l.zoneMaps(s.ctx, s.q, s.organization, s.segmentCache); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// estimate estimates the entries in rects from the zone maps.
func (t runSet) estimate(rects []geo.Rect) (w rowEstimate) {
	for i := range t {
		for n := range t[i].zoneMaps {
			w.add(rects, &t[i].zoneMaps[n])
		}
	}
	return w
}

// mayMatch returns the segments that the zone maps do not exclude. It reuses list.
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

// findInSegments is findInPartition by the ride index.
func (s *listQuery) findInSegments(want int) ([]candidate, error) {
	at, err := s.startPosition()
	if err != nil {
		return nil, err
	}
	v, err := s.predicate(at)
	if err != nil {
		return nil, err
	}
	var runs runSet
	var list []segmentRef
	if !s.nullPartition { // a ride without a sort value is open and has no entry
		if runs, err = s.readRunSet(); err != nil {
			return nil, err
		}
		if s.canProbe(want) {
			if rows := probeRows(runs.estimate(v.rects), want); rows > 0 {
				found, err := s.probeIndex(at, rows, want)
				if err != nil || len(found) == want {
					return found, err
				}
			}
		}
		cache := segmentRefLists.Get().(*[]segmentRef)
		defer segmentRefLists.Put(cache)
		*cache = runs.mayMatch(*cache, v)
		list = *cache
	}
	var found []candidate
	for many := want; ; many *= 2 { // hits may be stale
		hits, err := s.firstHits(v, runs, list, many)
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

// A probe scans up to maxProbeRows rows of the sort index, and probeFactor times as many
// as are expected to suffice.
const (
	maxProbeRows = 4096
	probeFactor  = 3
)

// rowEstimate has the number of all entries and an estimate of those in the area, which
// assumes that starts are distributed evenly within a segment.
type rowEstimate struct{ all, inside float64 }

func (w *rowEstimate) add(rects []geo.Rect, x *zoneMap) {
	w.all += float64(x.rides)
	for _, r := range rects {
		if c, ok := r.Intersect(x.rect); ok {
			w.inside += float64(x.rides) * c.Size() / x.rect.Size()
		}
	}
}

// canProbe reports whether the sort index covers all filters.
func (s *listQuery) canProbe(want int) bool {
	return s.scanCost(nil) <= 1 && s.first == "" && !s.orderedByID() && want < noLimit
}

// probeRows returns the number of rows to probe; 0 if a probe is unlikely to suffice.
func probeRows(w rowEstimate, want int) int {
	rows := probeFactor * float64(want) * w.all / max(w.inside, 1)
	if w.all == 0 || rows > maxProbeRows {
		return 0
	}
	return 1 << bits.Len(uint(rows)) // powers of two, so that few statements differ
}

// probeIndex scans rows rows of the sort index and returns the matches among them.
func (s *listQuery) probeIndex(at *scanPosition, rows, want int) ([]candidate, error) {
	var st keyset.Statement
	st.WriteString("SELECT id, value, NULL AS cell FROM (")
	s.writeIndexScan(&st, nil, "id, "+s.key.column+" AS value, "+s.cell, at, nil, false)
	st.Addf(" ORDER BY %s LIMIT %d) AS r WHERE %s ORDER BY %s", s.ordering(), rows, s.area(&st), s.ordering())
	return s.read(&st, want)
}

// firstHits returns up to most hits after v.after, in list order. Some may be stale.
func (s *listQuery) firstHits(v *predicate, runs runSet, list []segmentRef, most int) ([]hit, error) {
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
		read, err := s.readSegments(runs, next)
		if err != nil {
			return nil, fmt.Errorf("read segments of the ride index: %w", err)
		}
		for i, t := range read {
			b.addSegment(t, runs.zoneMap(next[i]))
		}
	}
	b.truncate()
	return b.hits, nil
}

// segmentsPerRead is the number of segments that a statement reads.
const segmentsPerRead = 16

// readSegments returns segments in the order of refs, from the cache or the database.
// Error: errSegment if one is damaged or missing.
func (s *listQuery) readSegments(runs runSet, refs []segmentRef) ([]*segment, error) {
	list := make([]*segment, len(refs))
	var missing []int
	for i := range refs {
		if list[i] = s.segmentCache.segments.lookup(runs.cacheKey(refs[i]), 0); list[i] == nil {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return list, nil
	}
	var st keyset.Statement
	st.WriteString("SELECT v.column1, cells, facts, ids FROM (VALUES ")
	for i := range segmentsPerRead { // a constant number, so that the statement can be reused
		at, runID, n := 0, int64(0), int32(-1)
		if i < len(missing) {
			at = missing[i]
			runID, n = runs[refs[at].run].id, refs[at].segment
		}
		if i > 0 {
			st.WriteString(", ")
		}
		st.Addf("(CAST(%s AS BIGINT), CAST(%s AS BIGINT), CAST(%s AS BIGINT))", st.Arg(at), st.Arg(runID), st.Arg(n))
	}
	st.Addf(") AS v CROSS JOIN ride_tiles WHERE organization_id = %s AND layer_id = v.column2 AND n = v.column3", st.Arg(s.organization))
	_, err := db.All(s.ctx, s.q, func(row db.Row) (struct{}, error) {
		var at int
		var p packedSegment
		if err := row.Scan(&at, &p.cells, &p.facts, &p.ids); err != nil {
			return struct{}{}, err
		}
		t, err := p.parse()
		if err == nil && t.rides != runs.zoneMap(refs[at]).rides {
			err = errSegment
		}
		if err == nil {
			s.segmentCache.segments.put(runs.cacheKey(refs[at]), 0, t)
			list[at] = t
		}
		return struct{}{}, err
	}, st.String(), st.Args...)
	if err == nil && slices.Contains(list, nil) {
		err = errSegment
	}
	return list, err
}

// addSegment adds the matches in a segment.
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

// mayMatchOpen reports whether open rides can match. They have payment status not_due
// and no final amount, duration or end.
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

// readOpen returns the first matching open rides.
func (s *listQuery) readOpen(at *scanPosition, most int) ([]candidate, error) {
	open := *s
	open.indexCondition = "status IN ('active', 'paused') AND start_cell IS NOT NULL"
	if most >= noLimit || s.key.column == "updated_at" { // without a partial index
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

// dropStale returns the hits with the current revision of their ride. For a page it also
// reads the documents into s.docs.
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

// readRevisions adds the current revisions of rides to now.
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
