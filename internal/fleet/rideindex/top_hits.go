package rideindex

import (
	"cmp"
	"slices"
)

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
	if b.hits = append(b.hits, h); len(b.hits)/2 >= b.limit {
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
