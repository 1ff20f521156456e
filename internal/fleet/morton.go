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

// CellAt returns the cell of a position in millionths of a degree.
func CellAt(lat, lng int64) int64 {
	return int64(spreadBits(uint64(lng+maxLng))<<1 | spreadBits(uint64(lat+maxLat)))
}

// CellPosition is the inverse of cellOf.
func CellPosition(cell int64) (lat, lng int64) {
	return int64(gatherBits(uint64(cell))) - maxLat, int64(gatherBits(uint64(cell)>>1)) - maxLng
}

// A region is the common prefix of the cells of a square of 1<<regionBits
// millionths, about one degree.
const RegionBits = 20

// Regions returns the regions that intersect rects, in order; false if they are
// more than most.
func Regions(rects []Rect, most int) (list []int64, ok bool) {
	for _, r := range rects {
		r, ok := r.Intersect(World)
		if !ok {
			continue
		}
		const size = 1 << RegionBits
		for lat := (r.MinLat + maxLat) / size; lat <= (r.MaxLat+maxLat)/size; lat++ {
			for lng := (r.MinLng + maxLng) / size; lng <= (r.MaxLng+maxLng)/size; lng++ {
				region := CellAt(lat*size-maxLat, lng*size-maxLng) >> (2 * RegionBits)
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

// Rect is a rectangle in millionths of a degree, edges inclusive.
type Rect struct{ MinLat, MinLng, MaxLat, MaxLng int64 }

func (r Rect) Contains(lat, lng int64) bool {
	return lat >= r.MinLat && lat <= r.MaxLat && lng >= r.MinLng && lng <= r.MaxLng
}

// Intersect returns the intersection of two rects, false if it is empty.
func (r Rect) Intersect(o Rect) (Rect, bool) {
	c := Rect{max(r.MinLat, o.MinLat), max(r.MinLng, o.MinLng), min(r.MaxLat, o.MaxLat), min(r.MaxLng, o.MaxLng)}
	return c, c.MinLat <= c.MaxLat && c.MinLng <= c.MaxLng
}

// subtract returns the parts of r outside of o.
func (r Rect) subtract(o Rect) []Rect {
	c, ok := r.Intersect(o)
	if !ok {
		return []Rect{r}
	}
	return slices.DeleteFunc([]Rect{
		{r.MinLat, r.MinLng, c.MinLat - 1, r.MaxLng},
		{c.MaxLat + 1, r.MinLng, r.MaxLat, r.MaxLng},
		{c.MinLat, r.MinLng, c.MaxLat, c.MinLng - 1},
		{c.MinLat, c.MaxLng + 1, c.MaxLat, r.MaxLng},
	}, func(p Rect) bool { return p.MinLat > p.MaxLat || p.MinLng > p.MaxLng })
}

// World has all positions.
var World = Rect{-maxLat, -maxLng, maxLat, maxLng}

// The bits of a cell that are of one coordinate.
const (
	LatBits = 0x0555_5555_5555_5555
	LngBits = LatBits << 1
)

// CellRange is an inclusive range of cells.
type CellRange struct{ First, Last int64 }

// square is 1<<level by 1<<level positions, which form one range of cells.
type square struct {
	first int64 // the least cell
	level int
	part  Rect // the part to cover
}

// whole reports whether all of the square is to be covered.
func (s square) whole() bool {
	return s.part.MaxLat-s.part.MinLat == 1<<s.level-1 && s.part.MaxLng-s.part.MinLng == 1<<s.level-1
}

// cells is the range from the least to the greatest cell to cover.
func (s square) cells() CellRange {
	return CellRange{CellAt(s.part.MinLat, s.part.MinLng), CellAt(s.part.MaxLat, s.part.MaxLng)}
}

// Cover returns at most most disjoint ranges of cells in order that contain all
// positions of rects and few others. With more than most rects it returns one range
// per rect.
func Cover(rects []Rect, most int) []CellRange {
	var squares []square
	for _, r := range rects {
		if r, ok := r.Intersect(World); ok {
			squares = append(squares, square{0, 29, r})
		}
	}
	var next []square
	var list []CellRange
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
		lat, lng := CellPosition(q.first)
		size := int64(1)<<q.level - 1
		var ok bool
		if q.part, ok = s.part.Intersect(Rect{lat, lng, lat + size, lng + size}); ok {
			list = append(list, q)
		}
	}
	return list
}

// mergedRanges returns the ranges of squares, adjacent ones merged. It reuses list.
func mergedRanges(list []CellRange, squares []square) []CellRange {
	list = list[:0]
	for _, s := range squares {
		list = append(list, s.cells())
	}
	slices.SortFunc(list, func(a, b CellRange) int { return cmp.Compare(a.First, b.First) })
	n := 0
	for _, c := range list {
		if n > 0 && c.First <= list[n-1].Last+1 {
			list[n-1].Last = max(list[n-1].Last, c.Last)
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

// Parts divides the box at the antimeridian. A box that touches the meridian of 180
// degrees also contains that of -180, and conversely.
func (b Box) Parts() []Box {
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

// Rects returns the positions of the box.
func (b Box) Rects() []Rect {
	var rects []Rect
	for _, p := range b.Parts() {
		rects = append(rects, Rect{ceilMillionths(p.MinLat), ceilMillionths(p.MinLng), floorMillionths(p.MaxLat), floorMillionths(p.MaxLng)})
	}
	return rects
}

// ceilMillionths returns the least number of millionths that is at least d degrees.
func ceilMillionths(d float64) int64 {
	n := int64(math.Ceil(d * 1e6))
	for Degrees(n-1) >= d {
		n--
	}
	for Degrees(n) < d {
		n++
	}
	return n
}

// floorMillionths returns the greatest number of millionths that is at most d
// degrees.
func floorMillionths(d float64) int64 { return -ceilMillionths(-d) }

// Circle is a circle on the earth's surface, by great-circle distance.
type Circle struct{ Lat, Lng, RadiusMeters float64 }

// rects contain all positions within radius meters of the center, and others.
func (n Circle) rects(radius float64) []Rect {
	const slack = 1e-6 // degrees; more than rounding errors
	angle := radius / earthRadius
	lat := angle*180/math.Pi + slack
	low, high := n.Lat-lat, n.Lat+lat
	if low <= -90 || high >= 90 {
		return []Rect{{ceilMillionths(max(low, -90)), -maxLng, floorMillionths(min(high, 90)), maxLng}}
	}
	// The circle's extreme longitudes are not at the latitude of its center.
	lng := 180.0
	if s := math.Sin(angle) / math.Cos(n.Lat*math.Pi/180); s < 1 && angle < math.Pi/2 {
		lng = math.Asin(s)*180/math.Pi*(1+1e-9) + slack
	}
	if lng >= 180 {
		return []Rect{{ceilMillionths(low), -maxLng, floorMillionths(high), maxLng}}
	}
	return Box{MinLng: wrapLongitude(n.Lng - lng), MinLat: low, MaxLng: wrapLongitude(n.Lng + lng), MaxLat: high}.Rects()
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
