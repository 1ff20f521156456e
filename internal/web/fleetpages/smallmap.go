package fleetpages

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/mapview"
)

// smallMap is a picture of places and the zones around them (Web Mercator, north
// up). Its template is "small-map".
type smallMap struct {
	What  string // text alternative
	Zones []shape
	Line  string // path from the first to the last place; empty for none
	Track string // path of a track, in place of Line; empty for none
	Marks []mark
	Scale string // label of the scale bar: "200 m"
	Bar   int    // length in units of the picture
	Back  background
}

// shape is a zone on the map.
type shape struct {
	Name string
	Type fleet.ZoneType
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
	At    *geo.Position
	Class string
	Name  string
}

// Size of the picture and its margin.
const (
	smallWidth, smallHeight = 640, 320
	smallMargin             = 56.0
	// smallSpan is the minimum extent in meters.
	smallSpan = 600.0
	// smallZones is the maximum number of zones.
	smallZones = 20
)

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

// smallMap draws places and nearby zones of a subaccount; nil if no place is known.
func (p *pages) smallMap(ctx context.Context, r *web.Request, subaccountID, what string, spots ...spot) (*smallMap, error) {
	m, _, err := p.trackMap(ctx, r, subaccountID, what, nil, spots...)
	return m, err
}

// trackMap is smallMap with a track. It also returns the view.
func (p *pages) trackMap(ctx context.Context, r *web.Request, subaccountID, what string, line []geo.Position, spots ...spot) (*smallMap, mapview.View, error) {
	var known []spot
	for _, s := range spots {
		if s.At != nil {
			known = append(known, s)
		}
	}
	if len(known) == 0 {
		return nil, mapview.View{}, nil
	}
	minX, minY, maxX, maxY := math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	include := func(at *geo.Position) {
		x, y := mapview.Project(at.Lat, at.Lng)
		minX, maxX, minY, maxY = min(minX, x), max(maxX, x), min(minY, y), max(maxY, y)
	}
	for _, s := range known {
		include(s.At)
	}
	for i := range line {
		include(&line[i])
	}
	width := max(maxX-minX, smallSpan*mapview.Meter(known[0].At.Lat), (maxY-minY)*(smallWidth-2*smallMargin)/(smallHeight-2*smallMargin))
	v := mapview.View{
		X: (minX + maxX) / 2, Y: (minY + maxY) / 2, Zoom: math.Log2((smallWidth - 2*smallMargin) / width / 256),
		Width: smallWidth, Height: smallHeight,
	}
	m := &smallMap{What: what}
	for i, s := range known {
		px, py := v.At(s.At.Lat, s.At.Lng)
		x, y := mapview.Coordinate(px), mapview.Coordinate(py)
		m.Marks = append(m.Marks, mark{x, y, s.Class, s.Name})
		m.Line += string("ML"[min(i, 1)]) + x + " " + y
	}
	for i := range line {
		x, y := v.At(line[i].Lat, line[i].Lng)
		m.Track += string("ML"[min(i, 1)]) + mapview.Coordinate(x) + " " + mapview.Coordinate(y)
	}
	if len(known) < 2 || m.Track != "" {
		m.Line = ""
	}
	bar, meters := v.ScaleBar()
	m.Bar, m.Scale, m.Back = bar, distance(meters), p.background(v)
	box := v.Box()
	docs, _, err := p.Fleet.ListZones(ctx, p.DB, r.OrganizationID, fleet.ZoneQuery{Subaccount: []string{subaccountID}, Box: &box, Limit: smallZones})
	if err != nil {
		return nil, v, err
	}
	for i := range docs {
		z, err := readOutlined(&docs[i])
		if err != nil {
			return nil, v, err
		}
		if path := v.Path(z.Geometry.Coordinates, mapShapes/len(docs)); path != "" {
			m.Zones = append(m.Zones, shape{z.Name, z.Type, path})
		}
	}
	return m, v, nil
}
