package geo

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// point is a grid position in billionths of a degree, ordered by x, then y.
type point struct{ x, y int64 }

const perDegree = 1_000_000_000

// toGrid returns the nearest grid point; for an invalid position, a point far from
// all.
func toGrid(lng, lat float64) point {
	if !(math.Abs(lng) <= 1000 && math.Abs(lat) <= 1000) {
		return point{math.MaxInt64 / 4, math.MaxInt64 / 4}
	}
	return point{int64(math.Round(lng * perDegree)), int64(math.Round(lat * perDegree))}
}

func (p point) compare(q point) int {
	return cmp.Or(cmp.Compare(p.x, q.x), cmp.Compare(p.y, q.y))
}

// side returns 1 if p is to the left of the line from a to b, -1 to the right, 0 on
// it. It is exact.
func side(a, b, p point) int {
	return crossSign(point{b.x - a.x, b.y - a.y}, point{p.x - a.x, p.y - a.y})
}

// crossSign is the sign of the cross product of u and v: 1 if v is to the left of
// u, -1 to the right, 0 if parallel. It is exact.
func crossSign(u, v point) int {
	// Up to 2^40 each, so floats are exact before multiplication.
	left, right := float64(u.x)*float64(v.y), float64(u.y)*float64(v.x)
	if d := left - right; math.Abs(d) > (math.Abs(left)+math.Abs(right))*1e-15 {
		if d > 0 {
			return 1
		}
		return -1
	}
	high1, low1 := product(u.x, v.y)
	high2, low2 := product(u.y, v.x)
	return cmp.Or(cmp.Compare(high1, high2), cmp.Compare(low1, low2))
}

// product returns a times b in 128 bits.
func product(a, b int64) (high int64, low uint64) {
	h, low := bits.Mul64(uint64(a), uint64(b))
	return int64(h) - a>>63&b - b>>63&a, low
}

// polygon is an outer ring followed by its holes.
type polygon []ring

// ring is a closed line: the last point equals the first.
type ring struct {
	points    []point
	low, high point // bounds
}

// contains reports whether a point is inside a ring or on it.
func (r *ring) contains(p point) bool {
	if p.x < r.low.x || p.x > r.high.x || p.y < r.low.y || p.y > r.high.y {
		return false
	}
	inside := false
	for i, b := range r.points[1:] {
		a := r.points[i]
		if a.y < p.y && b.y < p.y || a.y > p.y && b.y > p.y {
			continue
		}
		s := side(a, b, p)
		if s == 0 && p.x >= min(a.x, b.x) && p.x <= max(a.x, b.x) {
			return true
		}
		// A ray to the east crosses the edges east of p.
		if (a.y > p.y) != (b.y > p.y) && (s > 0) == (b.y > a.y) {
			inside = !inside
		}
	}
	return inside
}

// checkRings validates the rings of polygons by the rules of [Area]. It returns
// whether each ring, polygon by polygon, runs clockwise, or the first violation.
//
// It is the sweep of Shamos and Hoey, from the least point to the greatest:
// crossing edges become neighbours before they cross. So it takes n log n steps.
// Edges that meet in permitted points, which that algorithm and Bentley and
// Ottmann's exclude, are checked at these points.
func checkRings(polygons []polygon) (clockwise []bool, err error) {
	var s sweep
	for i, p := range polygons {
		for j, r := range p {
			s.rings = append(s.rings, swept{polygon: i, ring: j, parent: -1})
			for k, b := range r.points[1:] {
				e := edge{left: r.points[k], right: b, ring: len(s.rings) - 1, forward: true}
				if e.right.compare(e.left) < 0 {
					e.left, e.right, e.forward = e.right, e.left, false
				}
				s.edges = append(s.edges, e)
			}
		}
	}
	if err := s.run(); err != nil {
		return nil, err
	}
	for _, r := range s.rings {
		if err := s.placementError(r); err != nil {
			return nil, err
		}
		clockwise = append(clockwise, !r.counter)
	}
	return clockwise, nil
}

// sweep is the state of checkRings.
type sweep struct {
	rings []swept
	edges []edge
	// active has the indexes of the edges at the sweep line, from bottom to top.
	active   []int
	branches []branch // at the current point
	open     []int    // of checkContact
}

// swept is a ring with the findings of the sweep.
type swept struct {
	polygon, ring int
	seen          bool
	counter       bool // runs counter-clockwise
	parent        int  // the innermost ring around it; -1: none
}

// edge is a side of a ring.
type edge struct {
	left, right point
	ring        int
	forward     bool // the ring runs from left to right
}

// branch is the part of an edge on one side of a point.
type branch struct {
	to    point // direction
	edge  int
	ring  int
	right bool // not yet swept
}

func (s *sweep) run() error {
	starts := make([]int, len(s.edges))
	points := make([]point, 0, len(s.edges))
	for i, e := range s.edges {
		starts[i] = i
		points = append(points, e.left, e.right)
	}
	slices.SortFunc(starts, func(i, j int) int { return s.edges[i].left.compare(s.edges[j].left) })
	slices.SortFunc(points, point.compare)
	for _, at := range slices.Compact(points) {
		n := 0
		for n < len(starts) && s.edges[starts[n]].left == at {
			n++
		}
		if err := s.visit(at, starts[:n]); err != nil {
			return err
		}
		starts = starts[n:]
	}
	return nil
}

// visit moves the sweep to a point at which edges may start.
func (s *sweep) visit(at point, starts []int) error {
	// Edges that end here or pass through are adjacent.
	from := sort.Search(len(s.active), func(i int) bool {
		e := &s.edges[s.active[i]]
		return side(e.left, e.right, at) <= 0
	})
	to := from
	s.branches = s.branches[:0]
	add := func(i int, end point) {
		right := end.compare(at) > 0
		s.branches = append(s.branches, branch{point{end.x - at.x, end.y - at.y}, i, s.edges[i].ring, right})
	}
	for ; to < len(s.active); to++ {
		i := s.active[to]
		e := &s.edges[i]
		if side(e.left, e.right, at) != 0 {
			break
		}
		add(i, e.left)
		if e.right != at {
			add(i, e.right)
		}
	}
	for _, i := range starts {
		add(i, s.edges[i].right)
	}
	// Edges to the right from bottom to top, then those to the left: a full turn.
	slices.SortFunc(s.branches, func(a, b branch) int {
		if a.right != b.right {
			if a.right {
				return -1
			}
			return 1
		}
		return crossSign(b.to, a.to)
	})
	if err := s.checkContact(at); err != nil {
		return err
	}
	var coming []int
	for _, b := range s.branches {
		if b.right {
			coming = append(coming, b.edge)
		}
	}
	s.active = slices.Replace(s.active, from, to, coming...)
	for i := from; i < from+len(coming); i++ {
		s.locateRing(i)
	}
	if err := s.neighbours(from-1, from); err != nil || len(coming) == 0 {
		return err
	}
	return s.neighbours(from+len(coming)-1, from+len(coming))
}

// checkContact checks the edges at a point: a ring may pass once, and rings that meet must
// not cross.
func (s *sweep) checkContact(at point) error {
	for i, b := range s.branches[1:] {
		if a := s.branches[i]; a.right == b.right && crossSign(a.to, b.to) == 0 {
			return s.contactError(a.ring, b.ring, "run along each other", at)
		}
	}
	if len(s.branches) == 2 {
		return nil // of one ring, since rings are closed
	}
	// In a full turn, rings nest like parentheses.
	s.open = s.open[:0]
	for _, b := range s.branches {
		if n := len(s.open); n > 0 && s.open[n-1] == b.ring {
			s.open = s.open[:n-1]
		} else {
			s.open = append(s.open, b.ring)
		}
	}
	if len(s.open) > 0 {
		return s.contactError(s.open[0], s.open[1], "cross", at)
	}
	for _, b := range s.branches {
		s.open = append(s.open, b.ring)
	}
	slices.Sort(s.open)
	for i := range s.open[2:] {
		if s.open[i] == s.open[i+2] {
			return s.contactError(s.open[i], s.open[i], "", at)
		}
	}
	return nil
}

// locateRing determines direction and parent of a ring at its first active edge.
func (s *sweep) locateRing(i int) {
	e := &s.edges[s.active[i]]
	r := &s.rings[e.ring]
	if r.seen {
		return
	}
	r.seen, r.counter = true, e.forward // since the inside is above the lower edge
	if i == 0 {
		return
	}
	below := &s.edges[s.active[i-1]]
	if other := &s.rings[below.ring]; below.forward == other.counter {
		r.parent = below.ring
	} else {
		r.parent = other.parent
	}
}

// neighbours checks two active edges that became adjacent.
func (s *sweep) neighbours(i, j int) error {
	if i < 0 || j >= len(s.active) {
		return nil
	}
	a, b := &s.edges[s.active[i]], &s.edges[s.active[j]]
	if side(a.left, a.right, b.left)*side(a.left, a.right, b.right) < 0 && side(b.left, b.right, a.left)*side(b.left, b.right, a.right) < 0 {
		near := a.left
		if b.left.compare(near) > 0 {
			near = b.left
		}
		return s.contactError(a.ring, b.ring, "cross", near)
	}
	return nil
}

// contactError is the error of rings, or one ring, that meet illegally.
func (s *sweep) contactError(a, b int, how string, at point) error {
	one, other := s.rings[min(a, b)], s.rings[max(a, b)]
	lng, lat := float64(at.x)/perDegree, float64(at.y)/perDegree
	near, place := fmt.Sprintf("near [%v, %v]", lng, lat), fmt.Sprintf("near %v, %v", lat, lng)
	switch {
	case a == b:
		return &ShapeError{fmt.Sprintf("polygon %d has a ring, %d, that crosses or touches itself %s", one.polygon, one.ring, near), "has an outline that crosses or touches itself " + place}
	case one.polygon == other.polygon:
		return &ShapeError{fmt.Sprintf("polygon %d has rings, %d and %d, that %s %s", one.polygon, one.ring, other.ring, how, near), "has an outline and a hole, or two holes, that " + how + " " + place}
	}
	return &ShapeError{fmt.Sprintf("has polygons, %d and %d, that %s %s", one.polygon, other.polygon, how, near), "has two parts that " + how + " " + place}
}

// placementError returns the error of a ring in a wrong place.
func (s *sweep) placementError(r swept) error {
	var in swept
	if r.parent >= 0 {
		in = s.rings[r.parent]
	}
	switch {
	case r.ring == 0 && r.parent >= 0 && in.ring == 0:
		return &ShapeError{fmt.Sprintf("has polygons, %d and %d, that overlap", in.polygon, r.polygon), "has two parts that overlap"}
	case r.ring > 0 && (r.parent < 0 || in.polygon != r.polygon):
		return &ShapeError{fmt.Sprintf("polygon %d has a hole, ring %d, that leaves it", r.polygon, r.ring), "has a hole outside of its outline"}
	case r.ring > 0 && in.ring > 0:
		return &ShapeError{fmt.Sprintf("polygon %d has a hole, ring %d, in another, ring %d", r.polygon, r.ring, in.ring), "has a hole in another hole"}
	}
	return nil
}
