// Package mapview computes the parts of maps in SVG: the part of the earth that a picture
// shows, its tiles, positions and shapes on it, and a scale bar. The projection is Web
// Mercator, north up; shapes on both sides of the antimeridian are drawn as one.
package mapview

import (
	"cmp"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/geo"
)

// Zoom range of a map that users move.
const minZoom, MaxZoom = 2.0, 20.0

// Margins around the boxes of [Fit]; wider at the sides, which narrow screens cut off.
const marginX, marginY = 132.0, 48.0

// earth is the circumference at the equator in meters.
const earth = 40_075_016.7

// View is a part of the earth on a picture.
type View struct {
	X, Y          float64 // the center, by [Project]
	Zoom          float64 // at 0 the earth is 256 units wide, at 1 512
	Width, Height float64 // of the picture in units (pixels on a wide screen)
}

// Project projects to a unit square: x eastward, y southward, from 0 to 1.
func Project(lat, lng float64) (x, y float64) {
	lat = min(85.05, max(-85.05, lat)) * math.Pi / 180
	return lng/360 + 0.5, 0.5 - math.Log(math.Tan(math.Pi/4+lat/2))/(2*math.Pi)
}

// unproject is the inverse of [Project].
func unproject(x, y float64) (lat, lng float64) {
	return (2*math.Atan(math.Exp((0.5-y)*2*math.Pi)) - math.Pi/2) * 180 / math.Pi, (x - 0.5) * 360
}

// Meter is the length of a meter at a latitude in units of the square of [Project].
func Meter(lat float64) float64 {
	return 1 / (earth * max(0.01, math.Cos(lat*math.Pi/180)))
}

// scale is the width of the earth in units.
func (v View) scale() float64 { return 256 * math.Exp2(v.Zoom) }

// At returns the position of a place on the picture, by the shorter way around the earth.
func (v View) At(lat, lng float64) (x, y float64) {
	x, y = Project(lat, lng)
	dx := x - v.X
	dx -= math.Round(dx)
	return v.Width/2 + dx*v.scale(), v.Height/2 + (y-v.Y)*v.scale()
}

// Pan returns the view moved by units and zoomed in, in range.
func (v View) Pan(dx, dy, nearer float64) View {
	v.X += dx / v.scale()
	v.Y += dy / v.scale()
	v.Zoom += nearer
	return v.inRange()
}

// inRange returns the view with center and zoom in range.
func (v View) inRange() View {
	v.X -= math.Floor(v.X)
	v.Zoom = min(MaxZoom, max(minZoom, v.Zoom))
	half := v.Height / 2 / v.scale()
	v.Y = min(1-half, max(half, v.Y))
	return v
}

// Box returns the bounds of the view. Latitudes beyond the projection count as its
// edge.
func (v View) Box() geo.Box {
	halfX, halfY := v.Width/2/v.scale(), v.Height/2/v.scale()
	north, west := unproject(v.X-halfX, v.Y-halfY)
	south, east := unproject(v.X+halfX, v.Y+halfY)
	b := geo.Box{MinLng: west, MinLat: south, MaxLng: east, MaxLat: north}
	if b.MaxLat > 85 {
		b.MaxLat = 90
	}
	if b.MinLat < -85 {
		b.MinLat = -90
	}
	switch {
	case 2*halfX >= 1:
		b.MinLng, b.MaxLng = -180, 180
	case b.MinLng < -180:
		b.MinLng += 360
	case b.MaxLng > 180:
		b.MaxLng -= 360
	}
	return b
}

// WriteQuery adds the view to URL parameters.
func (v View) WriteQuery(query url.Values) {
	lat, lng := unproject(v.X, v.Y)
	query.Set("z", strconv.FormatFloat(math.Round(v.Zoom*100)/100, 'f', -1, 64))
	query.Set("lat", strconv.FormatFloat(math.Round(lat*1e5)/1e5, 'f', -1, 64))
	query.Set("lng", strconv.FormatFloat(math.Round(lng*1e5)/1e5, 'f', -1, 64))
}

// Parse parses the view that [View.WriteQuery] wrote; false if there is none.
func Parse(width, height float64, query url.Values) (View, bool) {
	var n [3]float64
	for i, name := range []string{"z", "lat", "lng"} {
		var err error
		if n[i], err = strconv.ParseFloat(query.Get(name), 64); err != nil || !(math.Abs(n[i]) <= 360) {
			return View{}, false
		}
	}
	v := View{Zoom: n[0], Width: width, Height: height}
	v.X, v.Y = Project(n[1], n[2])
	return v.inRange(), true
}

// Fit returns the nearest view that contains all boxes, of the earth for none.
// Boxes may be on both sides of the antimeridian.
func Fit(width, height float64, boxes []geo.Box) View {
	if len(boxes) == 0 {
		return View{0.5, 0.42, minZoom, width, height}.inRange()
	}
	type span struct{ from, to float64 }
	var spans []span
	top, bottom := 1.0, 0.0
	for _, b := range boxes {
		x1, y1 := Project(b.MaxLat, b.MinLng)
		x2, y2 := Project(b.MinLat, b.MaxLng)
		spans = append(spans, span{x1, x2})
		top, bottom = min(top, y1), max(bottom, y2)
	}
	// Everything but the widest gap between them, around the earth.
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	left, right := spans[0].from, spans[0].to
	end, gap := spans[0].to, 0.0
	for _, s := range spans[1:] {
		if s.from-end > gap {
			gap, left, right = s.from-end, s.from, end+1
		}
		end = max(end, s.to)
	}
	if 1-(end-spans[0].from) >= gap {
		left, right = spans[0].from, end
	}
	zoom := min(math.Log2((width-2*marginX)/256/max(right-left, 1e-9)), math.Log2((height-2*marginY)/256/max(bottom-top, 1e-9)), 16)
	return View{(left + right) / 2, (top + bottom) / 2, math.Floor(zoom*4) / 4, width, height}.inRange()
}

// Bounds is the bounding box of polygons, as GeoJSON has them.
func Bounds(polygons [][][][2]float64) geo.Box {
	b := geo.Box{MinLng: 180, MinLat: 90, MaxLng: -180, MaxLat: -90}
	for _, polygon := range polygons {
		for _, at := range polygon[0] {
			b.MinLng, b.MaxLng = min(b.MinLng, at[0]), max(b.MaxLng, at[0])
			b.MinLat, b.MaxLat = min(b.MinLat, at[1]), max(b.MaxLat, at[1])
		}
	}
	return b
}

// Path draws the visible part of a shape in about room bytes at most. Finer details
// are omitted.
func (v View) Path(polygons [][][][2]float64, room int) string {
	for apart := 1.0; ; apart *= 2 {
		var b strings.Builder
		for _, polygon := range polygons {
			shift := v.shift(polygon)
			for _, ring := range polygon {
				v.ring(&b, ring, shift, apart)
			}
		}
		if b.Len() <= room || apart > v.Width {
			return b.String()
		}
	}
}

// shift is the number of turns around the earth that bring a polygon nearest to the
// view.
func (v View) shift(polygon [][][2]float64) float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, at := range polygon[0] {
		low, high = min(low, at[0]), max(high, at[0])
	}
	return -math.Round((low+high)/720 + 0.5 - v.X)
}

// ring draws one ring.
func (v View) ring(b *strings.Builder, ring [][2]float64, shift, apart float64) {
	points := make([][2]float64, 0, len(ring))
	for _, at := range ring {
		x, y := Project(at[1], at[0])
		points = append(points, [2]float64{v.Width/2 + (x+shift-v.X)*v.scale(), v.Height/2 + (y-v.Y)*v.scale()})
	}
	points = v.clip(points)
	var last [2]float64
	n := 0
	for _, at := range points {
		if n == 0 || math.Hypot(at[0]-last[0], at[1]-last[1]) >= apart {
			b.WriteByte("ML"[min(n, 1)])
			b.WriteString(Coordinate(at[0]) + " " + Coordinate(at[1]))
			last = at
			n++
		}
	}
	if n > 0 {
		b.WriteByte('Z')
	}
}

// clip clips a ring at edges slightly outside of the picture.
func (v View) clip(points [][2]float64) [][2]float64 {
	const out = 8
	for _, edge := range []struct {
		axis int
		at   float64
		sign float64 // 1: clips lower values
	}{{0, -out, 1}, {0, v.Width + out, -1}, {1, -out, 1}, {1, v.Height + out, -1}} {
		var kept [][2]float64
		for i, at := range points {
			before := points[(i+len(points)-1)%len(points)]
			a, b := edge.sign*(before[edge.axis]-edge.at), edge.sign*(at[edge.axis]-edge.at)
			if (a < 0) != (b < 0) {
				t := a / (a - b)
				kept = append(kept, [2]float64{before[0] + t*(at[0]-before[0]), before[1] + t*(at[1]-before[1])})
			}
			if b >= 0 {
				kept = append(kept, at)
			}
		}
		points = kept
	}
	return points
}

// Tile is a square of the grid of map tiles: at zoom 0 the earth, at each further one four
// in place of each.
type Tile struct {
	Zoom, Column, Row int
	Turn              int     // of the earth, around which the picture reaches: 0 mostly
	X, Y, Size        float64 // on the picture
}

// Tiles returns the tiles that cover the view, of a size in units at their own zoom, at most at
// zoom deepest. Large tiles have names and are rather enlarged than reduced.
func (v View) Tiles(size, deepest int) []Tile {
	bias := 0.0
	if size > 256 {
		bias = 0.25
	}
	zoom := int(math.Round(v.Zoom + math.Log2(256/float64(size)) - bias))
	zoom = min(deepest, max(0, zoom))
	count := 1 << zoom
	side := v.scale() / float64(count)
	left, top := v.Width/2-v.X*v.scale(), v.Height/2-v.Y*v.scale() // of column and row 0
	var list []Tile
	for row := max(0, int(math.Floor(-top/side))); row < count && top+float64(row)*side < v.Height; row++ {
		for column := int(math.Floor(-left / side)); left+float64(column)*side < v.Width; column++ {
			turn := int(math.Floor(float64(column) / float64(count)))
			list = append(list, Tile{zoom, column - turn*count, row, turn, left + float64(column)*side, top + float64(row)*side, side})
		}
	}
	return list
}

// ScaleBar returns a round length of about 80 units at the center, in units and in meters.
func (v View) ScaleBar() (units int, meters int64) {
	lat, _ := unproject(v.X, v.Y)
	meter := Meter(lat) * v.scale()
	for length := 1.0; ; length *= 10 {
		for _, round := range []float64{1, 2, 5} {
			if n := length * round; n*meter >= 80 || n > 1e8 {
				return int(n * meter), int64(n)
			}
		}
	}
}

// Coordinate formats a coordinate with one decimal.
func Coordinate(x float64) string {
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}
