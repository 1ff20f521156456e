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

// smallMap is a picture of places and the zones around them (Web Mercator, north
// up). Its template is "small-map".
type smallMap struct {
	What  string // text alternative
	Zones []shape
	Line  string // path from the first to the last place; empty for none
	Marks []mark
	Scale string // label of the scale bar: "200 m"
	Bar   int    // length in units of the picture
	Grid  string // lines at the distance of the bar
}

// shape is a zone on the map.
type shape struct {
	Name string
	Type string
	Path string
}

// mark is a place on the map.
type mark struct {
	X, Y  string
	Class string // "from", "to" or "at"
	Name  string
}

// spot is a place to show.
type spot struct {
	At    *fleet.Position
	Class string
	Name  string
}

// Size of the picture and its margin.
const (
	smallWidth, smallHeight = 640, 320
	smallMargin             = 56.0
	// smallSpan is the minimum extent in meters.
	smallSpan = 600.0
	// smallZones and smallPoints limit the zones and their points.
	smallZones  = 20
	smallPoints = 400
)

// earth is the circumference at the equator in meters.
const earth = 40_075_016.7

// mercator projects to a unit square: x eastward, y southward, from 0 to 1.
func mercator(lat, lng float64) (x, y float64) {
	lat = min(85.05, max(-85.05, lat)) * math.Pi / 180
	return lng/360 + 0.5, 0.5 - math.Log(math.Tan(math.Pi/4+lat/2))/(2*math.Pi)
}

// smallMap draws places and nearby zones of a subaccount; nil if no place is known.
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
	// A meter in units of the square, at this latitude.
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

// outline draws a shape as a path. Details below the resolution are omitted,
// distant points are moved to near the edge.
func outline(polygons [][][][2]float64, to func(lat, lng float64) (x, y float64)) string {
	var b strings.Builder
	for _, rings := range polygons {
		for _, ring := range rings {
			// More points need a larger distance.
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

// tenth formats a coordinate.
func tenth(x float64) string {
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}

// scaleBar returns a round length of about a sixth of the picture. meter is the
// length of a meter in units.
func scaleBar(meter float64) (bar int, text string) {
	for length := 1.0; ; length *= 10 {
		for _, round := range []float64{1, 2, 5} {
			if n := length * round; n*meter >= smallWidth/8 || n > 1e8 {
				return int(n * meter), distance(int64(n))
			}
		}
	}
}
