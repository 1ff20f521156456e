package rideindex

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
)

// ListSpec is a list of the rides of an organization.
type ListSpec struct {
	OrganizationID  string
	Area            []geo.Rect // the start is in any of these
	Filters         []Filter   // all of these match
	FirstID, LastID string     // ids from FirstID (inclusive) to LastID (exclusive); empty: unbounded
	SortBy          string     // an integer column; empty: the id. Ties are ordered by id
	Descending      bool
	After           *Hit // the start of the list is after this position; nil: none. Its Revision is ignored
}

// Filter is a condition on a column, see [HasColumn].
type Filter struct {
	Column    string
	Values    []string // of a text column: any of these
	Low, High int64    // of an integer column: from Low to High
}

// Hit is a matching ride, unless it is stale: its revision is not that of the ride.
type Hit struct {
	ID       string
	Value    int64 // of SortBy; 0 if the order is by id
	Revision int64 // of the entry, or [Current]
}

// Current is the revision of a hit that is not stale: it is from a table, in the same
// snapshot.
const Current = math.MaxInt64

// Search reads a list in order, a part at a time. It is a top-k search: it reads segments
// in the order of the smallest sort key of their zone maps, and stops when k hits precede
// all remaining segments. It is not safe for concurrent use.
type Search struct {
	*predicate
	index        *Index
	q            db.Querier
	organization string
	spec         *ListSpec
	runs         []mappedRun
}

// mappedRun is a run with its zone maps.
type mappedRun struct {
	run
	zoneMaps []zoneMap
}

// Search starts a search in the snapshot of q, a transaction. Errors: [keyset.ErrCursor] if
// spec.After is not a position; [ErrDamaged].
func (x *Index) Search(ctx context.Context, q db.Querier, spec *ListSpec) (*Search, error) {
	v, err := newPredicate(spec)
	if err != nil {
		return nil, err
	}
	if spec.After != nil {
		after, err := v.hit(*spec.After)
		if err != nil {
			return nil, keyset.ErrCursor
		}
		v.after = &after
	}
	runs, err := runsOf(ctx, q, spec.OrganizationID)
	if err != nil {
		return nil, err
	}
	s := &Search{predicate: v, index: x, q: q, organization: spec.OrganizationID, spec: spec, runs: make([]mappedRun, len(runs))}
	for i, r := range runs {
		s.runs[i].run = r
		if s.runs[i].zoneMaps, err = x.zoneMapsOf(ctx, q, spec.OrganizationID, r); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Estimate returns the number of entries in segments, and an estimate of those in the area,
// which assumes that starts are distributed evenly within a segment.
func (s *Search) Estimate() (all, inArea float64) {
	for i := range s.runs {
		for n := range s.runs[i].zoneMaps {
			x := &s.runs[i].zoneMaps[n]
			all += float64(x.rides)
			for _, r := range s.rects {
				if c, ok := r.Intersect(x.rect); ok {
					inArea += float64(x.rides) * c.Size() / x.rect.Size()
				}
			}
		}
	}
	return all, inArea
}

// Next returns up to limit hits after those that it has returned, in list order. Some may be
// stale. Fewer than limit hits are the last ones. others are rides that are not in the
// index; Next merges them into the list. They match, and are the first limit ones after the
// hits that Next has returned. Error: [ErrDamaged].
func (s *Search) Next(ctx context.Context, limit int, others []Hit) ([]Hit, error) {
	b := &topHits{predicate: s.predicate, limit: limit}
	var err error
	if b.hits, err = s.pendingHits(ctx, limit); err != nil {
		return nil, err
	}
	for _, other := range others {
		h, err := s.hit(other)
		if err != nil {
			return nil, err
		}
		b.hits = append(b.hits, h)
	}
	b.truncate()
	if err := s.readHits(ctx, b); err != nil {
		return nil, fmt.Errorf("read segments of the ride index: %w", err)
	}
	b.truncate()
	hits := make([]Hit, len(b.hits))
	for i, h := range b.hits {
		hits[i] = Hit{formatID(h.id), h.value, h.revision}
	}
	if len(b.hits) > 0 {
		s.after = &b.hits[len(b.hits)-1]
	}
	return hits, nil
}

// segmentRef is a segment to be read.
type segmentRef struct {
	run, segment int32 // positions in the runs of the search and in the run
	first        keyPrefix
}

// segmentRefLists reuses lists of segments between searches.
var segmentRefLists = sync.Pool{New: func() any { return new([]segmentRef) }}

func (s *Search) zoneMap(ref segmentRef) *zoneMap { return &s.runs[ref.run].zoneMaps[ref.segment] }

// cacheKey is the key of a segment in Index.segments.
func (s *Search) cacheKey(ref segmentRef) segmentKey {
	return segmentKey{s.runs[ref.run].id, ref.segment}
}

// segmentQueue is a heap of unread segments by their first key.
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

// readHits adds the hits of the segments that may have some of the first b.limit hits.
func (s *Search) readHits(ctx context.Context, b *topHits) error {
	list := segmentRefLists.Get().(*[]segmentRef)
	defer segmentRefLists.Put(list)
	*list = s.appendMatches((*list)[:0])
	queue := &segmentQueue{*list, s.predicate}
	heap.Init(queue)
	for queue.Len() > 0 {
		var next []segmentRef
		for queue.Len() > 0 && len(next) < segmentsPerRead && !b.isPast(queue.list[0].first) {
			next = append(next, heap.Pop(queue).(segmentRef))
		}
		if len(next) == 0 {
			break
		}
		read, err := s.readSegments(ctx, next)
		if err != nil {
			return err
		}
		for i, t := range read {
			b.addSegment(t, s.zoneMap(next[i]))
		}
	}
	return nil
}

// appendMatches appends the segments that the zone maps do not exclude.
func (s *Search) appendMatches(list []segmentRef) []segmentRef {
	for i := range s.runs {
		for n := range s.runs[i].zoneMaps {
			if x := &s.runs[i].zoneMaps[n]; s.mayMatch(x) {
				first, _ := s.keyRange(x)
				list = append(list, segmentRef{int32(i), int32(n), first})
			}
		}
	}
	return list
}

// segmentsPerRead is the number of segments that a statement reads.
const segmentsPerRead = 16

// readSegments returns segments in the order of refs, from the cache or the database.
// Error: ErrDamaged if one is damaged or missing.
func (s *Search) readSegments(ctx context.Context, refs []segmentRef) ([]*segment, error) {
	list := make([]*segment, len(refs))
	var missing []int
	for i := range refs {
		if list[i], _ = s.index.segments.Get(s.cacheKey(refs[i])); list[i] == nil {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return list, nil
	}
	var st keyset.Statement
	st.WriteString("SELECT v.column1, cells, facts, ids FROM (VALUES ")
	for i := range segmentsPerRead { // a constant number, so that the statement can be reused
		at, key := 0, segmentKey{number: -1}
		if i < len(missing) {
			at = missing[i]
			key = s.cacheKey(refs[at])
		}
		if i > 0 {
			st.WriteString(", ")
		}
		st.Addf("(CAST(%s AS BIGINT), CAST(%s AS BIGINT), CAST(%s AS BIGINT))", st.Arg(at), st.Arg(key.runID), st.Arg(key.number))
	}
	st.Addf(") AS v CROSS JOIN ride_tiles WHERE organization_id = %s AND layer_id = v.column2 AND n = v.column3", st.Arg(s.organization))
	start := s.index.segments.Start()
	_, err := db.All(ctx, s.q, func(row db.Row) (struct{}, error) {
		var at int
		var p packedSegment
		if err := row.Scan(&at, &p.cells, &p.facts, &p.ids); err != nil {
			return struct{}{}, err
		}
		t, err := p.parse()
		if err == nil && t.rides != s.zoneMap(refs[at]).rides {
			err = ErrDamaged
		}
		if err == nil {
			s.index.segments.Put(s.cacheKey(refs[at]), t, start)
			list[at] = t
		}
		return struct{}{}, err
	}, st.String(), st.Args...)
	if err == nil && slices.Contains(list, nil) {
		err = ErrDamaged
	}
	return list, err
}
