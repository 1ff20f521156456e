package fleet

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The sizes of the rings that [search.nearest] reads.
const (
	ringRows  = 1000
	ringsRows = 5000 // in all, before a filter's set is read instead
	maxRings  = 8    // likewise; and after as many more the rest is read at once
)

// nearest is find in the order of distance: ring by ring of the circle, each as
// wide as it takes to have some rows in it. Where few meet a filter, it is those
// that are measured.
func (s *search) nearest(want int) ([]candidate, error) {
	inner, outer := 0.0, s.near.RadiusMeters
	after := candidate{distance: -1}
	if s.descending {
		after.distance = math.Inf(1)
	}
	if s.after != nil {
		d, err := strconv.ParseFloat(s.after.Value, 64)
		if err != nil || !(d >= 0 && d <= 2*maxRadius) {
			return nil, errCursor
		}
		after = candidate{id: s.after.ID, distance: d}
		if s.descending {
			outer = min(outer, d)
		} else {
			inner = d
		}
	}
	s.counted = make(map[int]size)
	compare := func(a, b candidate) int {
		order := cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.id, b.id))
		if s.descending {
			return -order
		}
		return order
	}
	var found []candidate
	passed, rings := 0, 0
	for bound := s.pace[0].set; ; bound = s.pace[1].set {
		least, err := s.count(bound)
		if err != nil {
			return nil, err
		}
		if least != noSet && s.counted[least].rows < bound {
			if found, err = s.set(least, nil, math.MaxInt); err != nil {
				return nil, err
			}
			found = slices.DeleteFunc(found, func(c candidate) bool { return compare(c, after) <= 0 })
			break
		}
		for inner <= outer && len(found) < want && (bound == s.pace[1].set || passed < ringsRows && rings < maxRings) {
			low, high := inner, outer
			if rings++; rings <= 2*maxRings {
				if low, high, err = s.ring(inner, outer, rings-1); err != nil {
					return nil, err
				}
			}
			rows, some, err := s.inRing(low, high)
			if err != nil {
				return nil, err
			}
			passed += rows
			for _, c := range some {
				if c.distance >= low && c.distance <= high && compare(c, after) > 0 {
					found = append(found, c)
				}
			}
			// What is on the edge was found.
			if s.descending {
				outer = math.Nextafter(low, -1)
			} else {
				inner = math.Nextafter(high, math.Inf(1))
			}
		}
		if inner > outer || len(found) >= want || bound == s.pace[1].set {
			break
		}
	}
	slices.SortFunc(found, compare)
	return found[:min(want, len(found))], nil
}

// ring returns the part of the ring between two distances to be read next, the nth
// from 0 on: about as wide as it takes for it to have ringRows rows.
func (s *search) ring(inner, outer float64, nth int) (low, high float64, err error) {
	count := func(low, high float64) (int, error) {
		var st statement
		st.WriteString("SELECT count(*) FROM (SELECT 1 AS one")
		s.from(&st, cellSet, s.near.between(low, high))
		st.addf(" LIMIT %d) AS c", ringRows+1)
		var n int
		err := s.q.QueryRow(s.ctx, st.String(), st.args...).Scan(&n)
		return n, err
	}
	if n, err := count(inner, outer); n <= ringRows || err != nil {
		return inner, outer, err
	}
	// By area, because that is what rows go by.
	all := outer*outer - inner*inner
	least, most := 0.0, all
	for range 6 {
		area := (least + most) / 2
		if least == 0 {
			area = most / 8
		}
		low, high = inner, math.Sqrt(inner*inner+area)
		if s.descending {
			low, high = math.Sqrt(max(inner*inner, outer*outer-area)), outer
		}
		n, err := count(low, high)
		switch {
		case err != nil:
			return 0, 0, err
		case n <= ringRows && n >= ringRows/8:
			return low, high, nil
		case n <= ringRows:
			least = area
		default:
			most = area
		}
	}
	if least == 0 {
		// Many are in one place, or the ring is too thin to be covered by a few
		// ranges: rather some that is wide, and more each time.
		least = min(all, all/32*float64(int(1)<<nth))
	}
	if s.descending {
		return math.Sqrt(max(inner*inner, outer*outer-least)), outer, nil
	}
	return inner, math.Sqrt(inner*inner + least), nil
}

// inRing returns how many rows there are about a ring, and those that meet the
// conditions, in no order; some are nearer or farther.
func (s *search) inRing(low, high float64) (rows int, found []candidate, err error) {
	rects := s.near.between(low, high)
	var st statement
	st.addf("SELECT id, NULL, %s, %s", s.where[0], s.where[1])
	s.from(&st, cellSet, rects)
	if condition := s.near.roughly(&st, low, high, s.where); condition != "" {
		st.addf(" AND coalesce(%s, FALSE)", condition)
	}
	s.test(&st, nil, false, 0)
	inside := s.inside
	s.inside = func(lat, lng int64) bool { rows++; return inside(lat, lng) }
	defer func() { s.inside = inside }()
	found, err = s.read(&st, math.MaxInt)
	return rows, found, err
}

// between are rects that hold every position whose distance is between two.
func (n *Near) between(low, high float64) []rect {
	rects := n.rects(high)
	// What is surely nearer is left out: a box whose corners are. Away from the
	// poles they are what is farthest of it.
	lat := low / earthRadius * 180 / math.Pi * 0.7
	lng := lat / math.Cos((math.Abs(n.Lat)+lat)*math.Pi/180)
	if lat < 1e-5 || math.Abs(n.Lat)+lat > 80 ||
		max(distance(n.Lat, 0, n.Lat-lat, lng), distance(n.Lat, 0, n.Lat+lat, lng)) >= low*(1-1e-9) {
		return rects
	}
	const rounding = 2e-6
	lat, lng = lat-rounding, lng-rounding
	for _, hole := range (Box{wrapped(n.Lng - lng), n.Lat - lat, wrapped(n.Lng + lng), n.Lat + lat}).rects() {
		var left []rect
		for _, r := range rects {
			left = append(left, r.without(hole)...)
		}
		rects = left
	}
	return rects
}

// roughly is a condition that all positions meet whose distance is between two, and
// few others: as if the earth were flat. It is empty where that is far from true.
func (n *Near) roughly(st *statement, low, high float64, where [3]string) string {
	const micro = math.Pi / 180 / 1e6 * earthRadius // meters of latitude
	rad := n.Lat * math.Pi / 180
	if rects := n.rects(high); math.Abs(n.Lat) > 80 || len(rects) != 1 {
		return ""
	}
	// Off by what a degree of longitude is shorter at the other latitude.
	off := 1.2*math.Tan(math.Abs(rad))*high/earthRadius + 1e-4
	least, most := low/micro, high/micro+2
	least, most = max(0, least-2)*(1-off), most*(1+off)
	lat, lng, narrow := st.arg(millionths(n.Lat)), st.arg(millionths(n.Lng)), st.arg(math.Cos(rad)*math.Cos(rad))
	square := fmt.Sprintf("(%[1]s - %[3]s) * (%[1]s - %[3]s) + (%[2]s - %[4]s) * (%[2]s - %[4]s) * CAST(%[5]s AS DOUBLE PRECISION)", where[0], where[1], lat, lng, narrow)
	return fmt.Sprintf("%s BETWEEN %s AND %s", square, st.arg(least*least), st.arg(most*most))
}
