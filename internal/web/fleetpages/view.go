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

// Size of the map, in its own units, which are pixels on a wide screen, and how far
// it zooms: at 0 the earth is 256 units wide.
const (
	mapWidth, mapHeight = 960.0, 600.0
	minZoom, maxZoom    = 2.0, 20.0
	// What is kept free around what the map is to show: at the sides more, which
	// narrow screens do not have.
	mapMarginX, mapMarginY = 132.0, 48.0
)

// view is a part of the earth in Web Mercator: what is in the middle, as
// [mercator] has it, and how near.
type view struct{ x, y, zoom float64 }

// scale is how many units the earth is wide.
func (v view) scale() float64 { return 256 * math.Exp2(v.zoom) }

// at returns where on the map a place is. The earth is round: a place is where it
// is nearest to the middle.
func (v view) at(lat, lng float64) (x, y float64) {
	x, y = mercator(lat, lng)
	dx := x - v.x
	dx -= math.Round(dx)
	return mapWidth/2 + dx*v.scale(), mapHeight/2 + (y-v.y)*v.scale()
}

// panned returns a view some units away, and nearer by some zoom.
func (v view) panned(dx, dy, nearer float64) view {
	v.x += dx / v.scale()
	v.y += dy / v.scale()
	v.zoom += nearer
	return v.usual()
}

// usual is the same view with the middle on earth and a zoom that there is.
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

// box is what of the earth the view shows. What is nearer to a pole than the map
// goes is at its edge.
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

// writeQuery adds the view to the parameters of an address.
func (v view) writeQuery(query url.Values) {
	lat, lng := unmercator(v.x, v.y)
	query.Set("z", strconv.FormatFloat(math.Round(v.zoom*100)/100, 'f', -1, 64))
	query.Set("lat", strconv.FormatFloat(math.Round(lat*1e5)/1e5, 'f', -1, 64))
	query.Set("lng", strconv.FormatFloat(math.Round(lng*1e5)/1e5, 'f', -1, 64))
}

// viewOf reads a view from the parameters of an address; false when it is none.
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

// fit returns the nearest view that shows all of some boxes; of the earth when
// there are none. They may be on both sides of the antimeridian.
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
	// All but the widest gap between them, around the earth.
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

// outlined is a zone with its shape, as a list has it.
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

// box is the bounds of a zone.
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

// path draws what of a shape is on the map, in at most so many bytes or so: what
// is finer than the map, or than there is room for, is left out.
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

// shift is how many times around the earth a polygon is to be moved so that its
// middle is where it is nearest to the view's.
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

// clip cuts a ring at edges a little outside of the map.
func clip(points [][2]float64) [][2]float64 {
	const out = 8
	for _, edge := range []struct {
		axis int
		at   float64
		sign float64 // 1: what is less is cut away
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

// rule is a line of the graticule, with its name.
type rule struct {
	Path, X, Y, Name string
}

// graticule is a few meridians and parallels.
func (v view) graticule() []rule {
	const apart = 140 // units, at least
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

// bar is a length and how many units it has in the middle of the map.
func (v view) bar() (length int, text string) {
	lat, _ := unmercator(v.x, v.y)
	return scaleBar(v.scale() / (earth * max(0.01, math.Cos(lat*math.Pi/180))))
}
