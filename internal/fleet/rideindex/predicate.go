package rideindex

import (
	"cmp"
	"math"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/geo"

	"github.com/oklog/ulid/v2"
)

// hit is a matching ride, unless its revision is stale.
type hit struct {
	value    int64 // sort value; 0 if the order is by id
	id       ulid.ULID
	revision int64 // of the entry, or Current
}

func (h *hit) keyPrefix() keyPrefix {
	high, _ := idHalves(h.id)
	return keyPrefix{h.value, high}
}

// predicate is the filter and order of a search, for zone maps and columns of segments.
type predicate struct {
	key         int // sort key, of intColumns; -1: id
	descending  bool
	after       *hit
	first, last int64 // high halves of ids: from first, before last
	rects       []geo.Rect
	areas       []geo.CellRect  // of rects
	cellRanges  []geo.CellRange // cover rects, with few further cells
	texts       [len(textColumns)][]string
	intervals   [len(intColumns)]interval // if bounded
	bounded     [len(intColumns)]bool
}

// maxCellRanges limits the cell ranges of a predicate.
const maxCellRanges = 64

// newPredicate returns the predicate of a list from its start.
func newPredicate(spec *ListSpec) (*predicate, error) {
	v := &predicate{key: -1, descending: spec.Descending, first: math.MinInt64, last: math.MaxInt64}
	if spec.SortBy != "" {
		v.key = slices.Index(intColumns[:], spec.SortBy)
	}
	var err error
	if spec.FirstID != "" {
		if v.first, err = highHalf(spec.FirstID); err != nil {
			return nil, err
		}
	}
	if spec.LastID != "" {
		if v.last, err = highHalf(spec.LastID); err != nil {
			return nil, err
		}
	}
	for _, r := range spec.Area {
		v.areas = append(v.areas, geo.CellRectOf(r))
	}
	v.rects, v.cellRanges = spec.Area, geo.Cover(spec.Area, maxCellRanges)
	for i := range spec.Filters {
		f := &spec.Filters[i]
		if c := slices.Index(textColumns[:], f.Column); c >= 0 {
			v.texts[c] = slices.DeleteFunc(slices.Clone(f.Values), func(word string) bool { return word == "" }) // the code of NULL
			continue
		}
		c := slices.Index(intColumns[:], f.Column)
		v.bounded[c], v.intervals[c] = true, interval{f.Low, f.High}
	}
	return v, nil
}

// highHalf returns the high half of a bound of ids. A bound can be less or greater than all
// ids.
func highHalf(bound string) (int64, error) {
	switch bound {
	case idPrefix:
		return math.MinInt64, nil
	case idPrefix + "~":
		return math.MaxInt64, nil
	}
	id, err := parseID(bound)
	high, _ := idHalves(id)
	return high, err
}

// hit returns the internal form of h.
func (v *predicate) hit(h Hit) (hit, error) {
	id, err := parseID(h.ID)
	internal := hit{id: id, revision: h.Revision}
	if v.key >= 0 {
		internal.value = h.Value
	}
	return internal, err
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

func (v *predicate) precedes(a, b keyPrefix) bool {
	if v.descending {
		a, b = b, a
	}
	return a.compare(b) < 0
}

// mayMatch returns false if the zone map excludes matches after v.after.
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
		if all || slices.ContainsFunc(v.areas, func(a geo.CellRect) bool { return a.Contains(cell) }) {
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
