package geo

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

// CellPosition is the inverse of [CellAt].
func CellPosition(cell int64) (lat, lng int64) {
	return int64(gatherBits(uint64(cell))) - maxLat, int64(gatherBits(uint64(cell)>>1)) - maxLng
}

// CellArea returns the area of a cell at a latitude in degrees, in square meters.
func CellArea(lat float64) float64 {
	const side = earthRadius * math.Pi / 180 / 1e6
	return side * side * math.Cos(lat*math.Pi/180)
}

// RegionBits is the size of a region: the common prefix of the cells of a square of
// 1<<RegionBits millionths, about one degree.
const RegionBits = 20

// PlaceBits is the size of a place: the common prefix of the cells of a square of
// 1<<PlaceBits millionths, some 200 meters.
const PlaceBits = 11

// RegionOf returns the region of a cell.
func RegionOf(cell int64) int64 { return cell >> (2 * RegionBits) }

// PlaceOf returns the place of a cell.
func PlaceOf(cell int64) int64 { return cell >> (2 * PlaceBits) }

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
				region := RegionOf(CellAt(lat*size-maxLat, lng*size-maxLng))
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

// The bits of a cell that are of one coordinate.
const (
	LatBits = 0x0555_5555_5555_5555
	LngBits = LatBits << 1
)

// CellRange is an inclusive range of cells.
type CellRange struct{ First, Last int64 }

// CellRect is a rectangle as ranges of masked cells: the bits of one coordinate,
// [LatBits] or [LngBits] of a cell, compare as the coordinate does.
type CellRect struct{ Lat, Lng CellRange }

// CellRectOf returns r as ranges of masked cells.
func CellRectOf(r Rect) CellRect {
	first, last := CellAt(r.MinLat, r.MinLng), CellAt(r.MaxLat, r.MaxLng)
	return CellRect{CellRange{first & LatBits, last & LatBits}, CellRange{first & LngBits, last & LngBits}}
}

// Places returns the ranges of the places that intersect r: masked places compare as masked cells.
func (r CellRect) Places() CellRect {
	places := func(c CellRange) CellRange { return CellRange{PlaceOf(c.First), PlaceOf(c.Last)} }
	return CellRect{places(r.Lat), places(r.Lng)}
}

// Contains reports whether r contains the position of a cell.
func (r CellRect) Contains(cell int64) bool {
	lat, lng := cell&LatBits, cell&LngBits
	return lat >= r.Lat.First && lat <= r.Lat.Last && lng >= r.Lng.First && lng <= r.Lng.Last
}

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

// FixedCover is [Cover] with exactly n ranges, empty ones at the end, so that a statement with these
// ranges always has the same text. It has more only if there are more than n rects.
func FixedCover(rects []Rect, n int) []CellRange {
	list := Cover(rects, n)
	for len(list) < n {
		// Neither bound is 0 or 1: SQLite compiles a statement again when an argument changes to
		// or from these.
		list = append(list, CellRange{First: 3, Last: 2})
	}
	return list
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
