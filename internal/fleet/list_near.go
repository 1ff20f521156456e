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
	s.counted = make(map[int]rowCount)
	scan, err := s.startRings(want)
	if err != nil {
		return nil, err
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
			if err := scan.readFilterSet(least); err != nil {
				return nil, err
			}
			break
		}
		for !scan.isDone(want) && (last || scan.rows < ringsRows && scan.rings < maxRings) {
			if err := scan.readNext(want); err != nil {
				return nil, err
			}
		}
		if scan.isDone(want) || last {
			break
		}
	}
	slices.SortFunc(scan.found, scan.compare)
	return scan.found[:min(want, len(scan.found))], nil
}

// ringScan reads a list by distance in rings.
type ringScan struct {
	*listQuery
	position     candidate // the list starts after it
	inner, outer float64   // the distances that remain
	size         int       // target number of rows of a ring
	first        int       // that of the first ring if it is read without counting; 0: it is counted
	guess        float64   // expected area of the next ring divided by pi; 0: unknown
	rings, rows  int       // read until now, about
	found        []candidate
}

// startRings returns the scan of the list for want records.
func (s *listQuery) startRings(want int) (*ringScan, error) {
	r := &ringScan{listQuery: s, position: candidate{distance: -1}, outer: s.near.RadiusMeters, size: ringRows}
	if s.descending {
		r.position.distance = math.Inf(1)
	}
	if s.after != nil {
		d, err := strconv.ParseFloat(s.after.Value, 64)
		if err != nil || !(d >= 0 && d <= 2*maxRadius) {
			return nil, keyset.ErrCursor
		}
		r.position = candidate{id: s.after.ID, distance: d}
		if s.descending {
			r.outer = min(r.outer, d)
		} else {
			r.inner = d
		}
	}
	if len(s.filters) == 0 {
		r.size = min(r.size, 2*want+50)
	}
	if r.inner > 0 || s.descending {
		return r, nil
	}
	if s.onlyNear() {
		r.first = want + 50
	}
	var err error
	r.guess, err = s.estimateArea(cmp.Or(r.first, r.size))
	return r, err
}

// onlyNear reports whether the circle is the only condition of the list.
func (s *listQuery) onlyNear() bool {
	return len(s.filters) == 0 && len(s.unindexed) == 0 && s.first == "" && slices.Equal(s.rects, s.near.Ring(0, s.near.RadiusMeters))
}

// compare orders candidates as the list does.
func (r *ringScan) compare(a, b candidate) int {
	order := cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.id, b.id))
	if r.descending {
		return -order
	}
	return order
}

// isDone reports whether the scan has found want records or all.
func (r *ringScan) isDone(want int) bool { return r.inner > r.outer || len(r.found) >= want }

// readFilterSet reads the list from a filter set.
func (r *ringScan) readFilterSet(set int) error {
	found, err := r.readSet(set, nil, math.MaxInt)
	r.found = slices.DeleteFunc(found, func(c candidate) bool { return r.compare(c, r.position) <= 0 })
	return err
}

// readNext reads the next ring.
func (r *ringScan) readNext(want int) (err error) {
	low, high, rows := r.inner, r.outer, mostRows
	complete := false
	if r.rings++; r.rings == 1 && r.guess > 0 && r.first > 0 {
		// Most rows that are read are in the list, so the ring is counted only if it has far more rows
		// than expected.
		low, high = r.ringOfArea(r.guess)
		most := 3 * r.first
		if rows, err = r.readRing(low, high, most); err != nil {
			return err
		}
		if complete = rows < most; !complete {
			r.found, r.guess = nil, r.guess/4
		}
	}
	if !complete {
		if r.rings <= 2*maxRings {
			if low, high, rows, err = r.nextRing(); err != nil {
				return err
			}
		}
		if _, err := r.readRing(low, high, noLimit); err != nil {
			return err
		}
	}
	r.guess = (high*high - low*low) * float64(r.size) / float64(max(rows, r.size/8))
	r.rows += rows
	if r.rings == 1 && low == 0 && len(r.found) < want && high < r.outer {
		// Few rows match. A wider circle costs less than the ring around this one.
		wider := min(maxWider, max(2, 1.5*float64(want)/float64(max(1, len(r.found)))))
		high = min(r.outer, high*math.Sqrt(wider))
		r.rows += int(float64(rows) * wider)
		r.found = nil
		if _, err := r.readRing(low, high, noLimit); err != nil {
			return err
		}
	}
	if r.descending {
		r.outer = math.Nextafter(low, -1)
	} else {
		r.inner = math.Nextafter(high, math.Inf(1))
	}
	return nil
}

// estimateArea returns the area divided by pi of a circle around the point with about size rows, 0 if
// unknown: twice the area of the cells from the point to the row size/2 places away in Morton order.
// Of the two directions the smaller area counts, because at the edge of a town one of them crosses
// empty land.
func (s *listQuery) estimateArea(size int) (float64, error) {
	cell := geo.CellAt(geo.Millionths(s.near.Lat), geo.Millionths(s.near.Lng))
	var cells int64
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
		if n := max(at-cell, cell-at); cells == 0 || n < cells {
			cells = n
		}
	}
	return 2 * float64(cells) * geo.CellArea(s.near.Lat) / math.Pi, nil
}

// nextRing returns the next ring to read and its number of rows: about size, or more
// where cell ranges approximate the ring badly.
func (r *ringScan) nextRing() (low, high float64, rows int, err error) {
	edge := r.inner
	if r.descending {
		edge = r.outer
	}
	edgeRows := 0
	if edge > 0 {
		if edgeRows, err = r.countRing(edge, edge, mostRows); err != nil {
			return 0, 0, 0, err
		}
	}
	bound := min(r.size+2*edgeRows, mostRows)
	if rows, err = r.countRing(r.inner, r.outer, bound); err != nil || rows < bound || bound == mostRows {
		return r.inner, r.outer, rows, err
	}
	few, many := 0.0, r.outer*r.outer-r.inner*r.inner // areas with too few and too many rows
	for range 24 {
		area := many / 32
		switch {
		case few > 0:
			area = math.Sqrt(few * many)
		case r.guess > 0 && r.guess < many:
			area = r.guess
		case r.guess > 0:
			area = many / 4
		}
		low, high = r.ringOfArea(area)
		if rows, err = r.countRing(low, high, bound); err != nil {
			return 0, 0, 0, err
		}
		switch {
		case rows < bound && rows >= edgeRows+r.size/4:
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
	low, high = r.ringOfArea(many)
	return low, high, bound, nil
}

// ringOfArea returns the ring at the edge with an area, divided by pi. Rows are
// proportional to the area.
func (r *ringScan) ringOfArea(area float64) (low, high float64) {
	if r.descending {
		return math.Sqrt(max(r.inner*r.inner, r.outer*r.outer-area)), r.outer
	}
	return r.inner, min(r.outer, math.Sqrt(r.inner*r.inner+area))
}

// countRing counts the rows in and near a ring, up to bound.
func (r *ringScan) countRing(low, high float64, bound int) (int, error) {
	var st keyset.Statement
	st.WriteString("SELECT count(*) FROM (SELECT 1 AS one")
	r.writeSet(&st, cellSet, r.ringRects(low, high))
	st.Addf(" LIMIT %s) AS c", st.Arg(bound))
	var n int
	err := r.q.QueryRow(r.ctx, st.String(), st.Args...).Scan(&n)
	return n, err
}

// readRing adds the records of the list in a ring. It returns the number of rows that it has read: at
// most bound, and then perhaps not all.
func (r *ringScan) readRing(low, high float64, bound int) (rows int, err error) {
	var st keyset.Statement
	st.Addf("SELECT id, NULL, %s, %s", r.cell, r.rowNumber())
	r.writeSet(&st, cellSet, r.ringRects(low, high))
	r.writeResidual(&st, nil, r.cellColumns, false, "")
	if bound < noLimit {
		st.Addf(" LIMIT %s", st.Arg(bound))
	}
	found, rows, err := r.readInside(&st, math.MaxInt, func(lat, lng int64, distance float64) bool {
		return distance >= low && distance <= high &&
			slices.ContainsFunc(r.rects, func(rect geo.Rect) bool { return rect.Contains(lat, lng) }) && r.inside(lat, lng)
	})
	for _, c := range found {
		if r.compare(c, r.position) > 0 {
			r.found = append(r.found, c)
		}
	}
	return rows, err
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
