package tiles

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/paulmach/orb"
)

// dataVersion changes with the embedded data and with the way in which tiles are drawn.
const dataVersion = "2"

//go:generate go run ./generate ../../../world-atlas ../../../ne_10m_populated_places_simple.geojson data

//go:embed data/world.bin.gz
var worldFile []byte

//go:embed data/places.tsv.gz
var placesFile []byte

// worldStep is the resolution of the lines in degrees.
const worldStep = 0.005

// line is a line or ring on the square of Web Mercator, from 0 to 1.
type line struct {
	points []orb.Point
	bound  orb.Bound
}

// world is the data of the built-in map.
type world struct{ land, borders []line }

// readWorld decodes the lines. They are embedded and tested, so an error is a programming error.
var readWorld = sync.OnceValue(func() *world {
	text := mustUnzip(worldFile)
	next := func() int64 {
		v, n := binary.Varint(text)
		text = text[n:]
		return v
	}
	count := func() int {
		v, n := binary.Uvarint(text)
		text = text[n:]
		return int(v)
	}
	var w world
	for _, list := range []*[]line{&w.land, &w.borders} {
		*list = make([]line, count())
		for i := range *list {
			points := make([]orb.Point, count())
			var lng, lat int64
			for j := range points {
				lng, lat = lng+next(), lat+next()
				points[j] = mercator(float64(lat)*worldStep, float64(lng)*worldStep)
			}
			(*list)[i] = line{points, orb.LineString(points).Bound()}
		}
	}
	return &w
})

// mustUnzip decompresses an embedded file.
func mustUnzip(file []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		panic(fmt.Sprintf("tiles: embedded data: %v", err))
	}
	text, err := io.ReadAll(z)
	if err != nil {
		panic(fmt.Sprintf("tiles: embedded data: %v", err))
	}
	return text
}

// mercator projects to the unit square, x eastward and y southward.
func mercator(lat, lng float64) orb.Point {
	lat = min(85.05, max(-85.05, lat)) * math.Pi / 180
	return orb.Point{lng/360 + 0.5, 0.5 - math.Log(math.Tan(math.Pi/4+lat/2))/(2*math.Pi)}
}

// drawWorld draws a tile of the built-in map.
func drawWorld(id ID) []byte {
	scale := gridSize * math.Exp2(float64(id.Z))
	left, top := float64(id.X)*gridSize, float64(id.Y)*gridSize
	move := func(p orb.Point) orb.Point { return orb.Point{p[0]*scale - left, p[1]*scale - top} }
	view := orb.Bound{
		Min: orb.Point{(left - outside) / scale, (top - outside) / scale},
		Max: orb.Point{(left + gridSize + outside) / scale, (top + gridSize + outside) / scale},
	}
	c := &canvas{zoom: id.Z + 1}
	w := readWorld()
	const apart = 1.5 * grid
	for _, l := range w.land {
		// Islands smaller than a dot are omitted.
		if l.bound.Intersects(view) && (l.bound.Max[0]-l.bound.Min[0])*scale > apart {
			c.area(land, []orb.Ring{orb.Ring(moved(l.points, move))}, apart)
		}
	}
	for _, l := range w.borders {
		if l.bound.Intersects(view) {
			c.lines(border, []orb.LineString{moved(l.points, move)}, apart)
		}
	}
	for _, p := range readPlaces().on(view, minShown(c.zoom)) {
		l := label{text: p.Name, size: 13, rank: -float64(p.Population), marker: true, strong: p.Population >= 1_000_000}
		at := move(p.at)
		l.x, l.y = at[0], at[1]
		c.labels = append(c.labels, l)
	}
	return c.svg(waterColor)
}

// minShown is the population from which the built-in map names a place.
func minShown(zoom int) int {
	switch {
	case zoom < 4:
		return 5_000_000
	case zoom < 5:
		return 2_000_000
	case zoom < 6:
		return 1_000_000
	case zoom < 7:
		return 400_000
	case zoom < 8:
		return 150_000
	case zoom < 9:
		return 70_000
	}
	return 0
}
