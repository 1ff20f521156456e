package fleetpages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// Size of the map in units (pixels on a wide screen), and zoom range: at zoom 0 the
// earth is 256 units wide.
const (
	mapWidth, mapHeight = 960.0, 600.0
	minZoom, maxZoom    = 2.0, 20.0
	// Margins around the extent; wider at the sides, which narrow screens cut off.
	mapMarginX, mapMarginY = 132.0, 48.0
)

// view is a part of the earth in Web Mercator: the center, by [mercator], and the
// zoom.
type view struct{ x, y, zoom float64 }

// scale is the width of the earth in units.
func (v view) scale() float64 { return 256 * math.Exp2(v.zoom) }

// at returns the map coordinates of a place, by the shorter way around the earth.
func (v view) at(lat, lng float64) (x, y float64) {
	x, y = mercator(lat, lng)
	dx := x - v.x
	dx -= math.Round(dx)
	return mapWidth/2 + dx*v.scale(), mapHeight/2 + (y-v.y)*v.scale()
}

// panned returns a view moved by units and zoomed in.
func (v view) panned(dx, dy, nearer float64) view {
	v.x += dx / v.scale()
	v.y += dy / v.scale()
	v.zoom += nearer
	return v.usual()
}

// usual returns the view with center and zoom in range.
func (v view) usual() view {
	v.x -= math.Floor(v.x)
	v.zoom = min(maxZoom, max(minZoom, v.zoom))
	half := mapHeight / 2 / v.scale()
	v.y = min(1-half, max(half, v.y))
	return v
}

// unmercator is the inverse of [mercator].
func unmercator(x, y float64) (lat, lng float64) {
	return (2*math.Atan(math.Exp((0.5-y)*2*math.Pi)) - math.Pi/2) * 180 / math.Pi, (x - 0.5) * 360
}

// box returns the bounds of the view. Latitudes beyond the projection count as its
// edge.
func (v view) box() fleet.Box {
	halfX, halfY := mapWidth/2/v.scale(), mapHeight/2/v.scale()
	north, west := unmercator(v.x-halfX, v.y-halfY)
	south, east := unmercator(v.x+halfX, v.y+halfY)
	b := fleet.Box{MinLng: west, MinLat: south, MaxLng: east, MaxLat: north}
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

// writeQuery adds the view to URL parameters.
func (v view) writeQuery(query url.Values) {
	lat, lng := unmercator(v.x, v.y)
	query.Set("z", strconv.FormatFloat(math.Round(v.zoom*100)/100, 'f', -1, 64))
	query.Set("lat", strconv.FormatFloat(math.Round(lat*1e5)/1e5, 'f', -1, 64))
	query.Set("lng", strconv.FormatFloat(math.Round(lng*1e5)/1e5, 'f', -1, 64))
}

// viewOf parses a view from URL parameters; false if there is none.
func viewOf(query url.Values) (view, bool) {
	var n [3]float64
	for i, name := range []string{"z", "lat", "lng"} {
		var err error
		if n[i], err = strconv.ParseFloat(query.Get(name), 64); err != nil || !(math.Abs(n[i]) <= 360) {
			return view{}, false
		}
	}
	v := view{zoom: n[0]}
	v.x, v.y = mercator(n[1], n[2])
	return v.usual(), true
}

// fit returns the nearest view that contains all boxes, of the earth for none.
// Boxes may be on both sides of the antimeridian.
func fit(boxes []fleet.Box) view {
	if len(boxes) == 0 {
		return view{0.5, 0.42, minZoom}.usual()
	}
	type span struct{ from, to float64 }
	var spans []span
	top, bottom := 1.0, 0.0
	for _, b := range boxes {
		x1, y1 := mercator(b.MaxLat, b.MinLng)
		x2, y2 := mercator(b.MinLat, b.MaxLng)
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
	zoom := min(math.Log2((mapWidth-2*mapMarginX)/256/max(right-left, 1e-9)), math.Log2((mapHeight-2*mapMarginY)/256/max(bottom-top, 1e-9)), 16)
	return view{(left + right) / 2, (top + bottom) / 2, math.Floor(zoom*4) / 4}.usual()
}

// outlined is a listed zone with its geometry.
type outlined struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	Type     fleet.ZoneType `json:"type"`
	Geometry struct {
		Coordinates [][][][2]float64 `json:"coordinates"`
	} `json:"geometry"`
}

func readOutlined(d *fleet.Record) (z outlined, err error) {
	if err = json.Unmarshal(d.JSON, &z); err != nil {
		err = fmt.Errorf("read the shape of a zone: %w", err)
	}
	return z, err
}

// box is the bounding box of a zone.
func (z *outlined) box() fleet.Box {
	b := fleet.Box{MinLng: 180, MinLat: 90, MaxLng: -180, MaxLat: -90}
	for _, polygon := range z.Geometry.Coordinates {
		for _, at := range polygon[0] {
			b.MinLng, b.MaxLng = min(b.MinLng, at[0]), max(b.MaxLng, at[0])
			b.MinLat, b.MaxLat = min(b.MinLat, at[1]), max(b.MaxLat, at[1])
		}
	}
	return b
}

// path draws the visible part of a shape in about room bytes at most. Finer details
// are omitted.
func (v view) path(polygons [][][][2]float64, room int) string {
	for apart := 1.0; ; apart *= 2 {
		var b strings.Builder
		for _, polygon := range polygons {
			shift := v.shift(polygon)
			for _, ring := range polygon {
				v.ring(&b, ring, shift, apart)
			}
		}
		if b.Len() <= room || apart > mapWidth {
			return b.String()
		}
	}
}

// shift is the number of turns around the earth that bring a polygon nearest to the
// view.
func (v view) shift(polygon [][][2]float64) float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, at := range polygon[0] {
		low, high = min(low, at[0]), max(high, at[0])
	}
	return -math.Round((low+high)/720 + 0.5 - v.x)
}

// ring draws one ring.
func (v view) ring(b *strings.Builder, ring [][2]float64, shift, apart float64) {
	points := make([][2]float64, 0, len(ring))
	for _, at := range ring {
		x, y := mercator(at[1], at[0])
		points = append(points, [2]float64{mapWidth/2 + (x+shift-v.x)*v.scale(), mapHeight/2 + (y-v.y)*v.scale()})
	}
	points = clip(points)
	var last [2]float64
	n := 0
	for _, at := range points {
		if n == 0 || math.Hypot(at[0]-last[0], at[1]-last[1]) >= apart {
			b.WriteByte("ML"[min(n, 1)])
			b.WriteString(tenth(at[0]) + " " + tenth(at[1]))
			last = at
			n++
		}
	}
	if n > 0 {
		b.WriteByte('Z')
	}
}

// clip clips a ring at edges slightly outside of the map.
func clip(points [][2]float64) [][2]float64 {
	const out = 8
	for _, edge := range []struct {
		axis int
		at   float64
		sign float64 // 1: clips lower values
	}{{0, -out, 1}, {0, mapWidth + out, -1}, {1, -out, 1}, {1, mapHeight + out, -1}} {
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

// rule is a line of the graticule with its label.
type rule struct {
	Path, X, Y, Name string
}

// graticule returns some meridians and parallels.
func (v view) graticule() []rule {
	const apart = 140 // minimum distance in units
	step := 0.0
	for _, s := range []float64{30, 20, 10, 5, 2, 1, .5, .2, .1, .05, .02, .01, .005, .002, .001, .0005, .0002, .0001} {
		if s/360*v.scale() >= apart || step == 0 {
			step = s
		}
	}
	decimals := max(0, int(math.Ceil(-math.Log10(step))))
	name := func(n float64, positive, negative string) string {
		side := positive
		if n < 0 {
			side = negative
		}
		return strconv.FormatFloat(math.Abs(n), 'f', decimals, 64) + "°" + side
	}
	var rules []rule
	halfX, halfY := mapWidth/2/v.scale(), mapHeight/2/v.scale()
	north, west := unmercator(v.x-halfX, v.y-halfY)
	south, east := unmercator(v.x+halfX, v.y+halfY)
	for n := math.Ceil(west / step); n*step <= east && len(rules) < 24; n++ {
		lng := n * step
		x := mapWidth/2 + (lng/360+0.5-v.x)*v.scale()
		lng -= 360 * math.Round(lng/360)
		rules = append(rules, rule{"M" + tenth(x) + " 0V" + tenth(mapHeight), tenth(x + 4), "12", name(lng, "E", "W")})
	}
	for n := math.Ceil(south / step); n*step <= north && len(rules) < 48; n++ {
		_, y := mercator(n*step, 0)
		py := mapHeight/2 + (y-v.y)*v.scale()
		rules = append(rules, rule{"M0 " + tenth(py) + "H" + tenth(mapWidth), "4", tenth(py - 4), name(n*step, "N", "S")})
	}
	return rules
}

// bar is a round length and its units at the center of the map.
func (v view) bar() (length int, text string) {
	lat, _ := unmercator(v.x, v.y)
	return scaleBar(v.scale() / (earth * max(0.01, math.Cos(lat*math.Pi/180))))
}
