package fleet

import (
	"cmp"
	"math"
	"slices"
)

// A cell is a position as its Morton code: the interleaved bits of longitude and
// latitude. Near positions mostly have near codes, so a box is a few ranges of
// codes, which an index can scan. Each position, to the millionth of a degree, has
// its own cell.

// cellOf returns the cell of a position in millionths of a degree.
func cellOf(lat, lng int64) int64 {
	return int64(spreadBits(uint64(lng+maxLng))<<1 | spreadBits(uint64(lat+maxLat)))
}

// positionOf is the inverse of cellOf.
func positionOf(cell int64) (lat, lng int64) {
	return int64(gatherBits(uint64(cell))) - maxLat, int64(gatherBits(uint64(cell)>>1)) - maxLng
}

// A region is the common prefix of the cells of a square of 1<<regionBits
// millionths, about one degree.
const regionBits = 20

// regions returns the regions that intersect rects, in order; false if they are
// more than most.
func regions(rects []rect, most int) (list []int64, ok bool) {
	for _, r := range rects {
		r, ok := r.intersect(world)
		if !ok {
			continue
		}
		const size = 1 << regionBits
		for lat := (r.minLat + maxLat) / size; lat <= (r.maxLat+maxLat)/size; lat++ {
			for lng := (r.minLng + maxLng) / size; lng <= (r.maxLng+maxLng)/size; lng++ {
				region := cellOf(lat*size-maxLat, lng*size-maxLng) >> (2 * regionBits)
				if list = append(list, region); len(list) > 4*most {
					return nil, false
				}
			}
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return list, len(list) <= most
}

// Bounds of positions, in millionths of a degree.
const (
	maxLat = 90_000_000
	maxLng = 180_000_000
)

// spreadBits inserts a zero before each of 32 bits.
func spreadBits(x uint64) uint64 {
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
	x = (x | x<<2) & 0x3333333333333333
	return (x | x<<1) & 0x5555555555555555
}

// gatherBits is the inverse of spreadBits.
func gatherBits(x uint64) uint64 {
	x &= 0x5555555555555555
	x = (x | x>>1) & 0x3333333333333333
	x = (x | x>>2) & 0x0f0f0f0f0f0f0f0f
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return (x | x>>16) & 0x00000000ffffffff
}

// rect is a rectangle in millionths of a degree, edges inclusive.
type rect struct{ minLat, minLng, maxLat, maxLng int64 }

func (r rect) has(lat, lng int64) bool {
	return lat >= r.minLat && lat <= r.maxLat && lng >= r.minLng && lng <= r.maxLng
}

// intersect returns the intersection of two rects, false if it is empty.
func (r rect) intersect(o rect) (rect, bool) {
	c := rect{max(r.minLat, o.minLat), max(r.minLng, o.minLng), min(r.maxLat, o.maxLat), min(r.maxLng, o.maxLng)}
	return c, c.minLat <= c.maxLat && c.minLng <= c.maxLng
}

// subtract returns the parts of r outside of o.
func (r rect) subtract(o rect) []rect {
	c, ok := r.intersect(o)
	if !ok {
		return []rect{r}
	}
	return slices.DeleteFunc([]rect{
		{r.minLat, r.minLng, c.minLat - 1, r.maxLng},
		{c.maxLat + 1, r.minLng, r.maxLat, r.maxLng},
		{c.minLat, r.minLng, c.maxLat, c.minLng - 1},
		{c.minLat, c.maxLng + 1, c.maxLat, r.maxLng},
	}, func(p rect) bool { return p.minLat > p.maxLat || p.minLng > p.maxLng })
}

// world has all positions.
var world = rect{-maxLat, -maxLng, maxLat, maxLng}

// The bits of a cell that are of one coordinate.
const (
	latBits = 0x0555_5555_5555_5555
	lngBits = latBits << 1
)

// cellRange is an inclusive range of cells.
type cellRange struct{ first, last int64 }

// square is 1<<level by 1<<level positions, which form one range of cells.
type square struct {
	first int64 // the least cell
	level int
	part  rect // the part to cover
}

// whole reports whether all of the square is to be covered.
func (s square) whole() bool {
	return s.part.maxLat-s.part.minLat == 1<<s.level-1 && s.part.maxLng-s.part.minLng == 1<<s.level-1
}

// cells is the range from the least to the greatest cell to cover.
func (s square) cells() cellRange {
	return cellRange{cellOf(s.part.minLat, s.part.minLng), cellOf(s.part.maxLat, s.part.maxLng)}
}

// cover returns at most most disjoint ranges of cells in order that contain all
// positions of rects and few others. With more than most rects it returns one range
// per rect.
func cover(rects []rect, most int) []cellRange {
	var squares []square
	for _, r := range rects {
		if r, ok := r.intersect(world); ok {
			squares = append(squares, square{0, 29, r})
		}
	}
	var next []square
	var list []cellRange
	for level := 29; level > 0; level-- {
		// Quarter the squares that are partly covered: all of a level, or as many
		// as the limit allows.
		next = next[:0]
		for _, s := range squares {
			if s.level < level || s.whole() {
				next = append(next, s)
			} else {
				next = s.split(next)
			}
		}
		if list = mergedRanges(list, next); len(list) <= most {
			squares, next = next, squares
			continue
		}
		for i := len(squares) - 1; i >= 0; i-- {
			if s := squares[i]; s.level == level && !s.whole() {
				next = append(s.split(append(next[:0], squares[:i]...)), squares[i+1:]...)
				if list = mergedRanges(list, next); len(list) > most {
					return mergedRanges(list, squares)
				}
				squares, next = next, squares
			}
		}
	}
	return mergedRanges(list, squares)
}

// split appends the quarters of s with a part to cover.
func (s square) split(list []square) []square {
	for i := range int64(4) {
		q := square{first: s.first + i<<(2*(s.level-1)), level: s.level - 1}
		lat, lng := positionOf(q.first)
		size := int64(1)<<q.level - 1
		var ok bool
		if q.part, ok = s.part.intersect(rect{lat, lng, lat + size, lng + size}); ok {
			list = append(list, q)
		}
	}
	return list
}

// mergedRanges returns the ranges of squares, adjacent ones merged. It reuses list.
func mergedRanges(list []cellRange, squares []square) []cellRange {
	list = list[:0]
	for _, s := range squares {
		list = append(list, s.cells())
	}
	slices.SortFunc(list, func(a, b cellRange) int { return cmp.Compare(a.first, b.first) })
	n := 0
	for _, c := range list {
		if n > 0 && c.first <= list[n-1].last+1 {
			list[n-1].last = max(list[n-1].last, c.last)
			continue
		}
		list[n] = c
		n++
	}
	return list[:n]
}

// Box is a bounding box in degrees, edges inclusive (RFC 7946, 5). If MinLng is
// greater than MaxLng, it crosses the antimeridian.
type Box struct{ MinLng, MinLat, MaxLng, MaxLat float64 }

// parts divides the box at the antimeridian. A box that touches the meridian of 180
// degrees also contains that of -180, and conversely.
func (b Box) parts() []Box {
	parts := []Box{b}
	if b.MinLng > b.MaxLng {
		parts = []Box{{b.MinLng, b.MinLat, 180, b.MaxLat}, {-180, b.MinLat, b.MaxLng, b.MaxLat}}
	}
	east := slices.ContainsFunc(parts, func(p Box) bool { return p.MaxLng >= 180 })
	west := slices.ContainsFunc(parts, func(p Box) bool { return p.MinLng <= -180 })
	switch {
	case east && !west:
		parts = append(parts, Box{-180, b.MinLat, -180, b.MaxLat})
	case west && !east:
		parts = append(parts, Box{180, b.MinLat, 180, b.MaxLat})
	}
	return parts
}

// rects returns the positions of the box.
func (b Box) rects() []rect {
	var rects []rect
	for _, p := range b.parts() {
		rects = append(rects, rect{ceilMillionths(p.MinLat), ceilMillionths(p.MinLng), floorMillionths(p.MaxLat), floorMillionths(p.MaxLng)})
	}
	return rects
}

// ceilMillionths returns the least number of millionths that is at least d degrees.
func ceilMillionths(d float64) int64 {
	n := int64(math.Ceil(d * 1e6))
	for degrees(n-1) >= d {
		n--
	}
	for degrees(n) < d {
		n++
	}
	return n
}

// floorMillionths returns the greatest number of millionths that is at most d
// degrees.
func floorMillionths(d float64) int64 { return -ceilMillionths(-d) }

// Near is a circle on the earth's surface, by great-circle distance.
type Near struct{ Lat, Lng, RadiusMeters float64 }

// rects contain all positions within radius meters of the center, and others.
func (n Near) rects(radius float64) []rect {
	const slack = 1e-6 // degrees; more than rounding errors
	angle := radius / earthRadius
	lat := angle*180/math.Pi + slack
	low, high := n.Lat-lat, n.Lat+lat
	if low <= -90 || high >= 90 {
		return []rect{{ceilMillionths(max(low, -90)), -maxLng, floorMillionths(min(high, 90)), maxLng}}
	}
	// The circle's extreme longitudes are not at the latitude of its center.
	lng := 180.0
	if s := math.Sin(angle) / math.Cos(n.Lat*math.Pi/180); s < 1 && angle < math.Pi/2 {
		lng = math.Asin(s)*180/math.Pi*(1+1e-9) + slack
	}
	if lng >= 180 {
		return []rect{{ceilMillionths(low), -maxLng, floorMillionths(high), maxLng}}
	}
	return Box{MinLng: wrapLongitude(n.Lng - lng), MinLat: low, MaxLng: wrapLongitude(n.Lng + lng), MaxLat: high}.rects()
}

// wrapLongitude maps a longitude from -540 to 540 to -180 to 180.
func wrapLongitude(lng float64) float64 {
	switch {
	case lng < -180:
		return lng + 360
	case lng > 180:
		return lng - 360
	}
	return lng
}
