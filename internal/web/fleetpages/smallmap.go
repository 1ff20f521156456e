package fleetpages

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// smallMap is a few places and the zones around them, as a picture (Web Mercator,
// north up). Its template is "small-map".
type smallMap struct {
	What  string // what it shows, in words
	Zones []shape
	Line  string // a path from the first place to the last; empty for none
	Marks []mark
	Scale string // how long the bar is: "200 m"
	Bar   int    // in units of the picture
	Grid  string // lines as far apart as the bar is long
}

// shape is a zone on it.
type shape struct {
	Name string
	Type string
	Path string
}

// mark is a place on it.
type mark struct {
	X, Y  string
	Class string // "from", "to" or "at"
	Name  string
}

// spot is a place that a small map shows.
type spot struct {
	At    *fleet.Position
	Class string
	Name  string
}

// Size of the picture, and how much of it is kept free around the places.
const (
	smallWidth, smallHeight = 640, 320
	smallMargin             = 56.0
	// smallSpan is how many meters of the ground it shows at least.
	smallSpan = 600.0
	// smallZones and smallPoints bound what is drawn of the zones.
	smallZones  = 20
	smallPoints = 400
)

// earth is the length of the equator, in meters.
const earth = 40_075_016.7

// mercator is a place on a square whose sides are the earth's circumference: x from
// 0 to 1 eastward, y southward.
func mercator(lat, lng float64) (x, y float64) {
	lat = min(85.05, max(-85.05, lat)) * math.Pi / 180
	return lng/360 + 0.5, 0.5 - math.Log(math.Tan(math.Pi/4+lat/2))/(2*math.Pi)
}

// smallMap draws places, and the zones of a subaccount that are there; nil when no
// place is known.
func (p *pages) smallMap(ctx context.Context, r *web.Request, subaccountID, what string, spots ...spot) (*smallMap, error) {
	var known []spot
	for _, s := range spots {
		if s.At != nil {
			known = append(known, s)
		}
	}
	if len(known) == 0 {
		return nil, nil
	}
	minX, minY, maxX, maxY := math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, s := range known {
		x, y := mercator(s.At.Lat, s.At.Lng)
		minX, maxX, minY, maxY = min(minX, x), max(maxX, x), min(minY, y), max(maxY, y)
	}
	// How long a meter is there, in units of the square.
	meter := 1 / (earth * max(0.01, math.Cos(known[0].At.Lat*math.Pi/180)))
	width := max(maxX-minX, smallSpan*meter, (maxY-minY)*(smallWidth-2*smallMargin)/(smallHeight-2*smallMargin))
	scale := (smallWidth - 2*smallMargin) / width
	left, top := (minX+maxX)/2-smallWidth/2/scale, (minY+maxY)/2-smallHeight/2/scale
	to := func(lat, lng float64) (x, y float64) {
		x, y = mercator(lat, lng)
		return (x - left) * scale, (y - top) * scale
	}
	m := &smallMap{What: what}
	for i, s := range known {
		x, y := to(s.At.Lat, s.At.Lng)
		m.Marks = append(m.Marks, mark{tenth(x), tenth(y), s.Class, s.Name})
		m.Line += string("ML"[min(i, 1)]) + tenth(x) + " " + tenth(y)
	}
	if len(known) < 2 {
		m.Line = ""
	}
	m.Bar, m.Scale = scaleBar(scale * meter)
	for x := 16 + m.Bar; x < smallWidth; x += m.Bar {
		m.Grid += "M" + strconv.Itoa(x) + " 0V" + strconv.Itoa(smallHeight)
	}
	for y := smallHeight - 12; y > 0; y -= m.Bar {
		m.Grid += "M0 " + strconv.Itoa(y) + "H" + strconv.Itoa(smallWidth)
	}
	degrees := func(x, y float64) (lat, lng float64) {
		return (2*math.Atan(math.Exp((0.5-y)*2*math.Pi)) - math.Pi/2) * 180 / math.Pi, min(180, max(-180, (x-0.5)*360))
	}
	box := fleet.Box{}
	box.MaxLat, box.MinLng = degrees(left, top)
	box.MinLat, box.MaxLng = degrees(left+smallWidth/scale, top+smallHeight/scale)
	docs, _, err := p.Fleet.ListZones(ctx, p.DB, r.OrganizationID, fleet.ZoneQuery{Subaccount: []string{subaccountID}, Box: &box, Limit: smallZones})
	if err != nil {
		return nil, err
	}
	for _, d := range docs {
		var z struct {
			Name     string `json:"name"`
			Type     string `json:"type"`
			Geometry struct {
				Coordinates [][][][2]float64 `json:"coordinates"`
			} `json:"geometry"`
		}
		if err := json.Unmarshal(d.JSON, &z); err != nil {
			return nil, fmt.Errorf("read the shape of a zone: %w", err)
		}
		if path := outline(z.Geometry.Coordinates, to); path != "" {
			m.Zones = append(m.Zones, shape{z.Name, z.Type, path})
		}
	}
	return m, nil
}

// outline is a shape as a path. What is finer than the picture is left out, and
// what is far away is near its edge.
func outline(polygons [][][][2]float64, to func(lat, lng float64) (x, y float64)) string {
	var b strings.Builder
	for _, rings := range polygons {
		for _, ring := range rings {
			// The further apart, the fewer.
			apart := 1.5
			var points [][2]float64
			for {
				points = points[:0]
				for _, at := range ring {
					x, y := to(at[1], at[0])
					x, y = min(2*smallWidth, max(-smallWidth, x)), min(2*smallHeight, max(-smallHeight, y))
					if n := len(points); n == 0 || math.Hypot(x-points[n-1][0], y-points[n-1][1]) >= apart {
						points = append(points, [2]float64{x, y})
					}
				}
				if len(points) <= smallPoints {
					break
				}
				apart *= 2
			}
			if len(points) < 3 {
				continue
			}
			for i, at := range points {
				b.WriteByte("ML"[min(i, 1)])
				b.WriteString(tenth(at[0]) + " " + tenth(at[1]))
			}
			b.WriteByte('Z')
		}
	}
	return b.String()
}

// tenth is a coordinate of a picture.
func tenth(x float64) string {
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}

// scaleBar is a round length that is about a sixth of the picture, given what a
// meter is on it.
func scaleBar(meter float64) (bar int, text string) {
	for length := 1.0; ; length *= 10 {
		for _, round := range []float64{1, 2, 5} {
			if n := length * round; n*meter >= smallWidth/8 || n > 1e8 {
				return int(n * meter), distance(int64(n))
			}
		}
	}
}
