package geo

import (
	"math"
	"slices"
)

// Bounds of positions, in millionths of a degree.
const (
	maxLat = 90_000_000
	maxLng = 180_000_000
)

// Rect is a rectangle in millionths of a degree, edges inclusive.
type Rect struct{ MinLat, MinLng, MaxLat, MaxLng int64 }

// Contains reports whether r contains a position.
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

// Size is the number of positions of r.
func (r Rect) Size() float64 {
	return float64(r.MaxLat-r.MinLat+1) * float64(r.MaxLng-r.MinLng+1)
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
		rects = append(rects, p.Rect())
	}
	return rects
}

// Rect returns the positions of a box that does not cross the antimeridian.
func (b Box) Rect() Rect {
	return Rect{ceilMillionths(b.MinLat), ceilMillionths(b.MinLng), floorMillionths(b.MaxLat), floorMillionths(b.MaxLng)}
}

// Squares rounds the box to whole cells with sides of 1<<level millionths, of the
// least level with at most most cells.
func (b Box) Squares(most int) (rects []Rect, level int) {
	rects = b.Rects()
	for ; level < 29; level++ {
		n := int64(0)
		for _, r := range rects {
			n += ((r.MaxLat+maxLat)>>level - (r.MinLat+maxLat)>>level + 1) * ((r.MaxLng+maxLng)>>level - (r.MinLng+maxLng)>>level + 1)
		}
		if n <= int64(most) {
			break
		}
	}
	for i := range rects {
		r := &rects[i]
		r.MinLat, r.MinLng = (r.MinLat+maxLat)>>level<<level-maxLat, (r.MinLng+maxLng)>>level<<level-maxLng
		r.MaxLat, r.MaxLng = ((r.MaxLat+maxLat)>>level+1)<<level-1-maxLat, ((r.MaxLng+maxLng)>>level+1)<<level-1-maxLng
	}
	return rects, level
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
func (c Circle) rects(radius float64) []Rect {
	const slack = 1e-6 // degrees; more than rounding errors
	angle := radius / earthRadius
	lat := angle*180/math.Pi + slack
	low, high := c.Lat-lat, c.Lat+lat
	if low <= -90 || high >= 90 {
		return []Rect{{ceilMillionths(max(low, -90)), -maxLng, floorMillionths(min(high, 90)), maxLng}}
	}
	// The circle's extreme longitudes are not at the latitude of its center.
	lng := 180.0
	if s := math.Sin(angle) / math.Cos(c.Lat*math.Pi/180); s < 1 && angle < math.Pi/2 {
		lng = math.Asin(s)*180/math.Pi*(1+1e-9) + slack
	}
	if lng >= 180 {
		return []Rect{{ceilMillionths(low), -maxLng, floorMillionths(high), maxLng}}
	}
	return Box{MinLng: wrapLongitude(c.Lng - lng), MinLat: low, MaxLng: wrapLongitude(c.Lng + lng), MaxLat: high}.Rects()
}

// Distance returns the distance in meters of a position from the center.
func (c Circle) Distance(lat, lng int64) float64 {
	return Distance(c.Lat, c.Lng, Degrees(lat), Degrees(lng))
}

// Ring returns rects that contain all positions between two distances from the
// center, in meters, and others.
func (c Circle) Ring(low, high float64) []Rect {
	rects := c.rects(high)
	// Exclude an inner box. Away from the poles, its corners are its farthest
	// points.
	lat := low / earthRadius * 180 / math.Pi * 0.7
	lng := lat / math.Cos((math.Abs(c.Lat)+lat)*math.Pi/180)
	if lat < 1e-5 || math.Abs(c.Lat)+lat > 80 ||
		max(Distance(c.Lat, 0, c.Lat-lat, lng), Distance(c.Lat, 0, c.Lat+lat, lng)) >= low*(1-1e-9) {
		return rects
	}
	const rounding = 2e-6
	lat, lng = lat-rounding, lng-rounding
	for _, hole := range (Box{wrapLongitude(c.Lng - lng), c.Lat - lat, wrapLongitude(c.Lng + lng), c.Lat + lat}).Rects() {
		var left []Rect
		for _, r := range rects {
			left = append(left, r.subtract(hole)...)
		}
		rects = left
	}
	return rects
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
