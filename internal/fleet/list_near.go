package fleet

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
)

// Sizes of the rings that [listQuery.nearest] reads.
const (
	ringRows  = 1000 // target number of rows of a ring
	ringsRows = 6000 // rows of all rings before a filter set is tried
	maxRings  = 8    // rings before a filter set is tried; after twice as many, the rest is read at once
	mostRows  = 50_000
	maxWider  = 8 // maximum growth of the first ring's area
)

// nearest is findCandidates by distance. It reads concentric rings of about
// ringRows rows. If few rows match a filter, it reads the filter set instead.
func (s *listQuery) nearest(want int) ([]candidate, error) {
	inner, outer := 0.0, s.near.RadiusMeters
	after := candidate{distance: -1}
	if s.descending {
		after.distance = math.Inf(1)
	}
	if s.after != nil {
		d, err := strconv.ParseFloat(s.after.Value, 64)
		if err != nil || !(d >= 0 && d <= 2*maxRadius) {
			return nil, keyset.ErrCursor
		}
		after = candidate{id: s.after.ID, distance: d}
		if s.descending {
			outer = min(outer, d)
		} else {
			inner = d
		}
	}
	s.counted = make(map[int]rowCount)
	compare := func(a, b candidate) int {
		order := cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.id, b.id))
		if s.descending {
			return -order
		}
		return order
	}
	var found []candidate
	passed, rings := 0, 0
	size, guess := ringRows, 0.0 // rows of a ring, and the area of the next one
	if len(s.filters) == 0 {
		size = min(size, 2*want+50)
	}
	if inner == 0 && !s.descending {
		var err error
		if guess, err = s.estimateArea(size); err != nil {
			return nil, err
		}
	}
	// Try a very small filter set first, a larger one after some rings.
	for last := false; ; last = true {
		budget := s.budget[0].set
		if last {
			budget = s.budget[2].set
		}
		least, small, err := s.cheapestSet(budget)
		if err != nil {
			return nil, err
		}
		if small {
			if found, err = s.readSet(least, nil, math.MaxInt); err != nil {
				return nil, err
			}
			found = slices.DeleteFunc(found, func(c candidate) bool { return compare(c, after) <= 0 })
			break
		}
		for inner <= outer && len(found) < want && (last || passed < ringsRows && rings < maxRings) {
			low, high, rows := inner, outer, mostRows
			if rings++; rings <= 2*maxRings {
				if low, high, rows, err = s.nextRing(inner, outer, size, guess); err != nil {
					return nil, err
				}
			}
			guess = (high*high - low*low) * float64(size) / float64(max(rows, size/8))
			some, err := s.readRing(low, high)
			if err != nil {
				return nil, err
			}
			passed += rows
			gather := func(some []candidate) {
				for _, c := range some {
					if c.distance >= low && c.distance <= high && compare(c, after) > 0 {
						found = append(found, c)
					}
				}
			}
			gather(some)
			if rings == 1 && low == 0 && len(found) < want && high < outer {
				// Few rows match. A wider circle costs less than the ring around
				// this one.
				wider := min(maxWider, max(2, 1.5*float64(want)/float64(max(1, len(found)))))
				high, passed = min(outer, high*math.Sqrt(wider)), passed+int(float64(rows)*wider)
				if some, err = s.readRing(low, high); err != nil {
					return nil, err
				}
				found = nil
				gather(some)
			}
			// The edge is done.
			if s.descending {
				outer = math.Nextafter(low, -1)
			} else {
				inner = math.Nextafter(high, math.Inf(1))
			}
		}
		if inner > outer || len(found) >= want || last {
			break
		}
	}
	slices.SortFunc(found, compare)
	return found[:min(want, len(found))], nil
}

// estimateArea returns the area divided by pi of a circle around the point with
// about size rows, 0 if unknown. Its radius is the distance of the row size/2 cells
// away in Morton order.
func (s *listQuery) estimateArea(size int) (float64, error) {
	cell := geo.CellAt(geo.Millionths(s.near.Lat), geo.Millionths(s.near.Lng))
	area := 0.0
	for _, way := range [...]string{"cell >= $2 ORDER BY cell", "cell <= $2 ORDER BY cell DESC"} {
		var at int64
		err := s.q.QueryRow(s.ctx, "SELECT cell FROM vehicles WHERE organization_id = $1 AND cell IS NOT NULL AND "+way+" LIMIT 1 OFFSET $3",
			s.organization, cell, size/2).Scan(&at)
		if errors.Is(err, db.ErrNoRows) {
			continue
		}
		if err != nil {
			return 0, err
		}
		d := s.near.Distance(geo.CellPosition(at))
		if area == 0 || d*d < area {
			area = d * d
		}
	}
	return area, nil
}

// nextRing returns the next ring to read between two distances and its number of
// rows: about size, or more where cell ranges approximate the ring badly. guess is
// the expected area divided by pi, 0 if unknown.
func (s *listQuery) nextRing(inner, outer float64, size int, guess float64) (low, high float64, rows int, err error) {
	count := func(low, high float64, bound int) (int, error) {
		var st keyset.Statement
		st.WriteString("SELECT count(*) FROM (SELECT 1 AS one")
		s.writeSet(&st, cellSet, s.ringRects(low, high))
		st.Addf(" LIMIT %s) AS c", st.Arg(bound))
		var n int
		err := s.q.QueryRow(s.ctx, st.String(), st.Args...).Scan(&n)
		return n, err
	}
	edge := inner
	if s.descending {
		edge = outer
	}
	vain := 0
	if edge > 0 {
		if vain, err = count(edge, edge, mostRows); err != nil {
			return 0, 0, 0, err
		}
	}
	bound := min(size+2*vain, mostRows)
	if rows, err = count(inner, outer, bound); err != nil || rows < bound || bound == mostRows {
		return inner, outer, rows, err
	}
	// Rows are proportional to the area.
	all := outer*outer - inner*inner
	part := func(area float64) (low, high float64) {
		if s.descending {
			return math.Sqrt(max(inner*inner, outer*outer-area)), outer
		}
		return inner, min(outer, math.Sqrt(inner*inner+area))
	}
	few, many := 0.0, all
	for range 24 {
		area := many / 32
		switch {
		case few > 0:
			area = math.Sqrt(few * many)
		case guess > 0 && guess < many:
			area = guess
		case guess > 0:
			area = many / 4
		}
		low, high = part(area)
		if rows, err = count(low, high, bound); err != nil {
			return 0, 0, 0, err
		}
		switch {
		case rows < bound && rows >= vain+size/4:
			return low, high, rows, nil
		case rows < bound:
			few = area
		default:
			many = area
		}
		if few > 0 && many < 1.2*few || many < 1e-4 { // square meters
			break
		}
	}
	// Many rows are at one distance.
	low, high = part(many)
	return low, high, bound, nil
}

// readRing returns the matches in and near a ring, unordered.
func (s *listQuery) readRing(low, high float64) ([]candidate, error) {
	var st keyset.Statement
	st.Addf("SELECT id, NULL, %s", s.cell)
	s.writeSet(&st, cellSet, s.ringRects(low, high))
	s.writeResidual(&st, nil, s.cellColumns, false, false)
	inside := s.inside
	s.inside = func(lat, lng int64) bool {
		return slices.ContainsFunc(s.rects, func(r geo.Rect) bool { return r.Contains(lat, lng) }) && inside(lat, lng)
	}
	defer func() { s.inside = inside }()
	return s.read(&st, math.MaxInt)
}

// ringRects returns rects with all positions of the list between two distances.
func (s *listQuery) ringRects(low, high float64) []geo.Rect {
	ring := s.near.Ring(low, high)
	if len(s.rects) > 3 { // too many to intersect
		return ring
	}
	var list []geo.Rect
	for _, a := range ring {
		for _, b := range s.rects {
			if c, ok := a.Intersect(b); ok {
				list = append(list, c)
			}
		}
	}
	return list
}
