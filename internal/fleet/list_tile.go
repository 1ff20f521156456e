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

// inTiles reports whether a list is found in tiles: rides in a box, with filters on
// what tiles have.
func (s *listQuery) inTiles() bool {
	return s.layers != nil && s.spatial && !slices.ContainsFunc(s.filters, func(f filter) bool {
		return !slices.Contains(wordColumns[:], f.column) && !slices.Contains(valueColumns[:], f.column)
	})
}

// hit is a ride that meets the conditions of a list, if it is still as it was at a
// revision.
type hit struct {
	value    int64 // that it is sorted by, beside the id
	id       ulid.ULID
	revision int64 // sure: it is
}

const sure = math.MaxInt64

// sieve is the conditions of a list, as tiles are tested for them.
type sieve struct {
	key         int // of valueColumns; -1: ids
	descending  bool
	after       *hit
	first, last int64 // first halves of ids are from first on and before last
	rects       []geo.Rect
	areas       []bounds        // the same
	ranges      []geo.CellRange // with all cells of them, and few others
	words       [len(wordColumns)][]string
	limits      [len(valueColumns)]reach // if bound
	bound       [len(valueColumns)]bool
}

// bounds are a rect as the bits of cells compare: those that are of one coordinate
// do as that does.
type bounds struct{ lat, lng geo.CellRange }

func boundsOf(r geo.Rect) bounds {
	c := geo.CellRange{First: geo.CellAt(r.MinLat, r.MinLng), Last: geo.CellAt(r.MaxLat, r.MaxLng)}
	return bounds{geo.CellRange{First: c.First & geo.LatBits, Last: c.Last & geo.LatBits}, geo.CellRange{First: c.First & geo.LngBits, Last: c.Last & geo.LngBits}}
}

func (s *listQuery) sieve(at *scanPosition) (*sieve, error) {
	v := &sieve{key: -1, descending: s.descending, first: math.MinInt64, last: math.MaxInt64}
	if !s.orderedByID() {
		v.key = slices.Index(valueColumns[:], s.key.column)
	}
	var err error
	if s.first != "" {
		if v.first, err = firstHalf(s.first); err != nil {
			return nil, err
		}
	}
	if s.last != "" {
		if v.last, err = firstHalf(s.last); err != nil {
			return nil, err
		}
	}
	for _, r := range s.rects {
		v.areas = append(v.areas, boundsOf(r))
	}
	v.rects, v.ranges = s.rects, geo.Cover(s.rects, ringRanges)
	for i := range s.filters {
		f := &s.filters[i]
		if c := slices.Index(wordColumns[:], f.column); c >= 0 {
			v.words[c] = slices.DeleteFunc(slices.Clone(f.values), func(word string) bool { return word == "" }) // as NULL is kept
			continue
		}
		c := slices.Index(valueColumns[:], f.column)
		v.bound[c], v.limits[c] = true, reach{f.low, f.high}
	}
	if at != nil {
		if v.after, err = v.hit(at.id, at.value); err != nil {
			return nil, keyset.ErrCursor
		}
	}
	return v, nil
}

// firstHalf is that of the ids from a bound on, see [idsFrom].
func firstHalf(bound string) (int64, error) {
	switch bound {
	case ridePrefix + "_":
		return math.MinInt64, nil
	case ridePrefix + "_~":
		return math.MaxInt64, nil
	}
	id, err := parseRideID(bound)
	high, _ := halves(id)
	return high, err
}

// hit is a row that a query found, or where a page begins.
func (v *sieve) hit(id string, value any) (*hit, error) {
	h := &hit{revision: sure}
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
func (v *sieve) compare(a, b *hit) int {
	order := cmp.Or(cmp.Compare(a.value, b.value), a.id.Compare(b.id))
	if v.descending {
		return -order
	}
	return order
}

// ends are before and after whatever a tile may have, in the order of the list.
func (v *sieve) ends(x *extent) (first, last rank) {
	first, last = rank{id: x.ids.least}, rank{id: x.ids.greatest}
	if v.key >= 0 {
		first, last = x.values[v.key].first, x.values[v.key].last
	}
	if v.descending {
		return last, first
	}
	return first, last
}

func (h *hit) rank() rank {
	high, _ := halves(h.id)
	return rank{h.value, high}
}

func (v *sieve) before(a, b rank) bool {
	if v.descending {
		a, b = b, a
	}
	return a.compare(b) < 0
}

// may reports whether a tile may have something.
func (v *sieve) may(x *extent) bool {
	if _, last := v.ends(x); v.after != nil && v.before(last, v.after.rank()) {
		return false
	}
	if x.ids.greatest < v.first || x.ids.least >= v.last ||
		!slices.ContainsFunc(v.rects, func(r geo.Rect) bool { _, ok := r.Intersect(x.part); return ok }) ||
		!slices.ContainsFunc(v.ranges, func(r geo.CellRange) bool { return r.First <= x.cells.greatest && r.Last >= x.cells.least }) {
		return false
	}
	for c, words := range v.words {
		if words != nil && !slices.ContainsFunc(words, func(word string) bool { return x.words[c]&wordBit(word) != 0 }) {
			return false
		}
	}
	for c, bound := range v.bound {
		if bound && (x.values[c].last.value < v.limits[c].least || x.values[c].first.value > v.limits[c].greatest) {
			return false
		}
	}
	return true
}

// located returns which rides of a tile are in the box, in place of a list.
func (v *sieve) located(list []int, t *tile, x *extent) []int {
	list = list[:0]
	all := slices.ContainsFunc(v.rects, func(r geo.Rect) bool { c, _ := r.Intersect(x.part); return c == x.part })
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

// choose leaves of some rides those whose facts meet the conditions.
func (v *sieve) choose(t *tile, list []int) []int {
	for c, words := range v.words {
		if words == nil {
			continue
		}
		allowed := make([]bool, len(t.words[c]))
		for n, word := range t.words[c] {
			allowed[n] = slices.Contains(words, word)
		}
		list = slices.DeleteFunc(list, func(i int) bool {
			n := t.wordAt[c].At(i)
			return n < 0 || n >= int64(len(allowed)) || !allowed[n]
		})
	}
	for c, bound := range v.bound {
		if bound {
			list = slices.DeleteFunc(list, func(i int) bool {
				value := t.values[c].At(i)
				return value < v.limits[c].least || value > v.limits[c].greatest
			})
		}
	}
	return list
}

// best keeps the first ones of hits.
type best struct {
	*sieve
	most int
	list []hit
	full bool // list[most-1] is the last that can be of use

	which []int // of the rides of the tile at hand
}

func (b *best) add(h hit) {
	if b.full && b.compare(&h, &b.list[b.most-1]) > 0 {
		return
	}
	if b.list = append(b.list, h); len(b.list) >= 2*b.most && b.most < noLimit {
		b.truncate()
	}
}

// truncate sorts the hits and drops those after the first most. Of a ride in several
// tiles, the hit of its last revision stays.
func (b *best) truncate() {
	slices.SortFunc(b.list, func(x, y hit) int { return cmp.Or(b.compare(&x, &y), cmp.Compare(y.revision, x.revision)) })
	b.list = slices.CompactFunc(b.list, func(x, y hit) bool { return b.compare(&x, &y) == 0 })
	b.list = b.list[:min(len(b.list), b.most)]
	b.full = len(b.list) == b.most
}

// beyond reports whether what comes from some rank on is of no use.
func (b *best) beyond(first rank) bool {
	return b.full && b.before(b.list[b.most-1].rank(), first)
}

// tiled are the layers of an organization, with what is known of their tiles.
type tiled []struct {
	layer
	extents []extent
}

// visit is a tile to be read.
type visit struct {
	layer, n int32 // of tiled, of its tiles
	first    rank
}

// visitLists are long, and of no use when a page is found.
var visitLists = sync.Pool{New: func() any { return new([]visit) }}

func (t tiled) extent(v visit) *extent { return &t[v.layer].extents[v.n] }

// key is the name of a tile.
func (t tiled) key(v visit) string { return fmt.Sprintf("%d/%d", t[v.layer].id, v.n) }

// visits are a heap of those that are not read yet, in the order of what they may
// have. What was taken from it stays behind its list.
type visits struct {
	list []visit
	*sieve
}

func (v *visits) Len() int           { return len(v.list) }
func (v *visits) Less(i, j int) bool { return v.before(v.list[i].first, v.list[j].first) }
func (v *visits) Swap(i, j int)      { v.list[i], v.list[j] = v.list[j], v.list[i] }
func (v *visits) Push(x any)         { v.list = append(v.list, x.(visit)) }
func (v *visits) Pop() any {
	last := v.list[len(v.list)-1]
	v.list = v.list[:len(v.list)-1]
	return last
}

// tiled reads the layers of the organization.
func (s *listQuery) tiled() (tiled, error) {
	layers, err := layersOf(s.ctx, s.q, s.organization)
	if err != nil {
		return nil, err
	}
	t := make(tiled, len(layers))
	for i, l := range layers {
		t[i].layer = l
		if t[i].extents, err = l.extents(s.ctx, s.q, s.organization, s.layers); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// weight is that of all tiles, for some rects.
func (t tiled) weight(rects []geo.Rect) (w weight) {
	for i := range t {
		for n := range t[i].extents {
			w.add(rects, &t[i].extents[n])
		}
	}
	return w
}

// toVisit returns the tiles that may have something, in place of a list.
func (t tiled) toVisit(list []visit, v *sieve) []visit {
	list = list[:0]
	for i := range t {
		for n := range t[i].extents {
			if x := &t[i].extents[n]; v.may(x) {
				first, _ := v.ends(x)
				list = append(list, visit{int32(i), int32(n), first})
			}
		}
	}
	return list
}

// findTiled is findHere in tiles.
func (s *listQuery) findTiled(want int) ([]candidate, error) {
	at, err := s.startPosition()
	if err != nil {
		return nil, err
	}
	v, err := s.sieve(at)
	if err != nil {
		return nil, err
	}
	var tiles tiled
	var list []visit
	if !s.nullPartition { // who has no value is open, and in no tile
		if tiles, err = s.tiled(); err != nil {
			return nil, err
		}
		if s.maySoon(want) {
			if rows := soon(tiles.weight(v.rects), want); rows > 0 {
				found, err := s.inRows(at, rows, want)
				if err != nil || len(found) == want {
					return found, err
				}
			}
		}
		kept := visitLists.Get().(*[]visit)
		defer visitLists.Put(kept)
		*kept = tiles.toVisit(*kept, v)
		list = *kept
	}
	var found []candidate
	for many := want; ; many *= 2 { // more again where many are not as they were
		hits, err := s.firstHits(v, tiles, list, many)
		if err != nil {
			return nil, err
		}
		for part := range slices.Chunk(hits, maxPage+1) {
			believed, err := s.believed(part, want)
			if err != nil {
				return nil, err
			}
			for _, h := range believed {
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

// soonRows is how far it is gone along an index at most, and farther times as far
// as it should take.
const (
	soonRows = 4096
	farther  = 3
)

// weight is how many rides tiles have, and about how many of them are in the box.
type weight struct{ all, inside float64 }

func (w *weight) add(rects []geo.Rect, x *extent) {
	w.all += float64(x.rides)
	for _, r := range rects {
		if c, ok := r.Intersect(x.part); ok {
			w.inside += float64(x.rides) * c.Size() / x.part.Size()
		}
	}
}

// maySoon reports whether the index of the sort has all that a list is filtered by.
func (s *listQuery) maySoon(want int) bool {
	return s.scanCost(nil) <= 1 && s.first == "" && !s.orderedByID() && want < noLimit
}

// soon returns how many rows along the index of the sort are worth a try; 0: none.
func soon(w weight, want int) int {
	rows := farther * float64(want) * w.all / max(w.inside, 1)
	if w.all == 0 || rows > soonRows {
		return 0
	}
	return 1 << bits.Len(uint(rows)) // of a few sizes, so that statements are the same
}

// inRows returns those in the area of so many rows along the index of the sort.
func (s *listQuery) inRows(at *scanPosition, rows, want int) ([]candidate, error) {
	var st keyset.Statement
	st.WriteString("SELECT id, value, NULL AS cell FROM (")
	s.writeIndexScan(&st, nil, "id, "+s.key.column+" AS value, "+s.cell, at, nil, false)
	st.Addf(" ORDER BY %s LIMIT %d) AS r WHERE %s ORDER BY %s", s.ordering(), rows, s.area(&st), s.ordering())
	return s.read(&st, want)
}

// firstHits returns the first hits, in order.
func (s *listQuery) firstHits(v *sieve, tiles tiled, list []visit, most int) ([]hit, error) {
	b := &best{sieve: v, most: most}
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
		untiled := *s
		untiled.table = "untiled_rides"
		if rows, err = untiled.readSet(cellSet, at, most); err != nil {
			return nil, err
		}
	}
	if s.mayBeOpen(v) {
		open, err := s.firstOpen(at, most)
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
	order := &visits{list, v}
	heap.Init(order)
	for order.Len() > 0 {
		var next []visit
		for order.Len() > 0 && len(next) < tilesAtOnce && !b.beyond(order.list[0].first) {
			next = append(next, heap.Pop(order).(visit))
		}
		if len(next) == 0 {
			break
		}
		read, err := s.fetch(tiles, next)
		if err != nil {
			return nil, fmt.Errorf("read tiles of rides: %w", err)
		}
		for i, t := range read {
			b.sift(t, tiles.extent(next[i]))
		}
	}
	b.truncate()
	return b.list, nil
}

// tilesAtOnce is how many tiles a statement reads.
const tilesAtOnce = 16

// fetch returns the tiles of some visits, of which it reads those that are not in
// memory.
func (s *listQuery) fetch(tiles tiled, visits []visit) ([]*tile, error) {
	list := make([]*tile, len(visits))
	var missing []int
	for i := range visits {
		if list[i] = s.layers.tiles.lookup(tiles.key(visits[i]), 0); list[i] == nil {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return list, nil
	}
	var st keyset.Statement
	st.WriteString("SELECT v.column1, cells, facts, ids FROM (VALUES ")
	for i := range tilesAtOnce { // always as many, so that the statement is the same
		which, layer, n := 0, int64(0), int32(-1)
		if i < len(missing) {
			which = missing[i]
			layer, n = tiles[visits[which].layer].id, visits[which].n
		}
		if i > 0 {
			st.WriteString(", ")
		}
		st.Addf("(CAST(%s AS BIGINT), CAST(%s AS BIGINT), CAST(%s AS BIGINT))", st.Arg(which), st.Arg(layer), st.Arg(n))
	}
	st.Addf(") AS v CROSS JOIN ride_tiles WHERE organization_id = %s AND layer_id = v.column2 AND n = v.column3", st.Arg(s.organization))
	_, err := db.All(s.ctx, s.q, func(row db.Row) (struct{}, error) {
		var which int
		var p packedTile
		if err := row.Scan(&which, &p.cells, &p.facts, &p.ids); err != nil {
			return struct{}{}, err
		}
		t, err := p.parse()
		if err == nil && t.rides != tiles.extent(visits[which]).rides {
			err = errTile
		}
		if err == nil {
			s.layers.tiles.put(tiles.key(visits[which]), 0, t)
			list[which] = t
		}
		return struct{}{}, err
	}, st.String(), st.Args...)
	if err == nil && slices.Contains(list, nil) {
		err = errTile
	}
	return list, err
}

// sift adds what meets the conditions in a tile.
func (b *best) sift(t *tile, x *extent) {
	b.which = b.located(b.which, t, x)
	for _, i := range b.choose(t, b.which) {
		at := rank{id: t.highs.At(i)}
		if b.key >= 0 {
			at.value = t.values[b.key].At(i)
		}
		if at.id < b.first || at.id >= b.last || b.beyond(at) {
			continue
		}
		h := hit{at.value, t.id(i), t.revisions.At(i)}
		if b.after == nil || b.compare(&h, b.after) > 0 {
			b.add(h)
		}
	}
}

// mayBeOpen reports whether open rides can meet the conditions: nothing is due of
// them, and what they come to is not known.
func (s *listQuery) mayBeOpen(v *sieve) bool {
	for c, column := range wordColumns {
		words := v.words[c]
		switch {
		case words == nil:
		case column == "status" && !slices.Contains(words, string(Active)) && !slices.Contains(words, string(Paused)),
			column == "payment_status" && !slices.Contains(words, "not_due"):
			return false
		}
	}
	for c, column := range valueColumns {
		if (c == v.key || v.bound[c]) && column != "started_at" && column != "updated_at" {
			return false
		}
	}
	return true
}

// firstOpen returns the first of the rides that are going on.
func (s *listQuery) firstOpen(at *scanPosition, most int) ([]candidate, error) {
	open := *s
	open.indexCondition = "status IN ('active', 'paused') AND start_cell IS NOT NULL"
	if most >= noLimit || s.key.column == "updated_at" { // of which there is no index
		return open.readSet(cellSet, at, most)
	}
	var st keyset.Statement
	st.WriteString("SELECT 1 AS one")
	open.writeSet(&st, cellSet, s.rects)
	st.Addf(" LIMIT 1 OFFSET %s", st.Arg(s.tiling.open-1))
	one := 0
	switch err := s.q.QueryRow(s.ctx, st.String(), st.Args...).Scan(&one); {
	case errors.Is(err, db.ErrNoRows):
		return open.readSet(cellSet, at, most)
	case err != nil:
		return nil, err
	}
	return open.scanIndex(nil, at, nil, most)
}

// believed returns the hits that are as rides are now. Where so many are wanted as a
// page has, it reads their documents with that.
func (s *listQuery) believed(hits []hit, want int) ([]hit, error) {
	var ids []string
	for i := range hits {
		if hits[i].revision != sure {
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
	return slices.DeleteFunc(slices.Clone(hits), func(h hit) bool { return h.revision != sure && h.revision != now[rideID(h.id)] }), nil
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
