package tiles

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/encoding/mvt"
	"github.com/paulmach/orb/geojson"
	"github.com/paulmach/protoscan"
)

// drawVector draws a vector tile: all of the tile from, or the part of it that the deeper tile
// id covers. It knows the layers of OpenMapTiles, Protomaps and Shortbread.
func drawVector(text []byte, from, id ID) ([]byte, error) {
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		var err error
		if text, err = unpack(text, 2, maxUnpacked); err != nil {
			return nil, fmt.Errorf("%w: %w", errDecode, err)
		}
	}
	if err := checkPoints(text); err != nil {
		return nil, fmt.Errorf("%w: %w", errDecode, err)
	}
	layers, err := mvt.Unmarshal(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDecode, err)
	}
	// A drawn tile is twice as wide as the tiles by which zooms are counted.
	for detail := 0; ; detail++ {
		c := &canvas{zoom: id.Z + 1}
		for _, layer := range layers {
			c.layer(layer, from, id, detail)
		}
		if c.size() <= maxSVG || detail == 4 {
			return c.svg(landColor), nil
		}
	}
}

// checkPoints checks what the decoder does not: that each feature has a geometry, without which it
// panics or continues with that of another one, and that points begin with a command to move. Other
// commands have no coordinates, but a count by which it would reserve memory.
func checkPoints(text []byte) error {
	tile := protoscan.New(text)
	for tile.Next() {
		if tile.FieldNumber() != 3 {
			tile.Skip()
			continue
		}
		layer, err := tile.Message(nil)
		if err != nil {
			return err
		}
		for layer.Next() {
			if layer.FieldNumber() != 2 {
				layer.Skip()
				continue
			}
			feature, err := layer.Message(nil)
			if err != nil {
				return err
			}
			if err := checkFeature(feature); err != nil {
				return err
			}
		}
		if err := layer.Err(); err != nil {
			return err
		}
	}
	return tile.Err()
}

func checkFeature(feature *protoscan.Message) error {
	whole := false
	for feature.Next() {
		if feature.FieldNumber() != 4 {
			feature.Skip()
			continue
		}
		whole = true
		commands, err := feature.Iterator(nil)
		if err != nil {
			return err
		}
		if !commands.HasNext() {
			continue
		}
		first, err := commands.Uint32()
		if err != nil {
			return err
		}
		if first&7 != 1 {
			return fmt.Errorf("a geometry begins with command %d", first&7)
		}
	}
	if !whole && feature.Err() == nil {
		return errors.New("a feature has no geometry")
	}
	return feature.Err()
}

// layer draws a layer. The higher detail, the less is drawn.
func (c *canvas) layer(l *mvt.Layer, from, id ID, detail int) {
	over := id.Z - from.Z
	scale := gridSize * float64(int(1)<<over) / float64(cmp.Or(l.Extent, mvt.DefaultExtent))
	left, top := float64(id.X-from.X<<over)*gridSize, float64(id.Y-from.Y<<over)*gridSize
	move := func(p orb.Point) orb.Point { return orb.Point{p[0]*scale - left, p[1]*scale - top} }
	apart := float64(int(2) << detail)
	for _, f := range l.Features {
		s := style(l.Name, feature{f, c.zoom})
		if detail > 1 && (s.paint == building || s.paint == footway) || detail > 2 && s.paint == minor {
			s.paint = noPaint
		}
		if s.paint == noPaint && s.label.text == "" {
			continue
		}
		c.geometry(f.Geometry, s, move, apart)
	}
}

// noPaint marks features that have at most a name.
const noPaint paint = -1

// styled is how a feature is drawn.
type styled struct {
	paint paint
	label label // without a position
}

// geometry draws a feature.
func (c *canvas) geometry(g orb.Geometry, s styled, move func(orb.Point) orb.Point, apart float64) {
	switch g := g.(type) {
	case orb.Point:
		c.name(s.label, move(g), 0)
	case orb.MultiPoint:
		if len(g) > 0 {
			c.name(s.label, move(g[0]), 0)
		}
	case orb.LineString:
		c.way(moved(g, move), s, apart)
	case orb.MultiLineString:
		for _, line := range g {
			c.way(moved(line, move), s, apart)
		}
	case orb.Polygon:
		c.polygon(g, s, move, apart)
	case orb.MultiPolygon:
		for _, polygon := range g {
			c.polygon(polygon, s, move, apart)
		}
	}
}

func moved(line []orb.Point, move func(orb.Point) orb.Point) orb.LineString {
	out := make(orb.LineString, len(line))
	for i, p := range line {
		out[i] = move(p)
	}
	return out
}

func (c *canvas) polygon(g orb.Polygon, s styled, move func(orb.Point) orb.Point, apart float64) {
	if s.paint == noPaint || !s.paint.fills() {
		return
	}
	rings := make([]orb.Ring, len(g))
	for i, ring := range g {
		rings[i] = orb.Ring(moved(ring, move))
	}
	c.area(s.paint, rings, apart)
}

// way draws a line, roads with their edge, and its name along the longest straight part.
func (c *canvas) way(line orb.LineString, s styled, apart float64) {
	if s.paint != noPaint && !s.paint.fills() {
		list := []orb.LineString{line}
		switch s.paint {
		case minor:
			c.lines(minorEdge, list, apart)
		case medium:
			c.lines(mediumEdge, list, apart)
		case mainRoad:
			c.lines(mainEdge, list, apart)
		}
		c.lines(s.paint, list, apart)
	}
	if s.label.text == "" {
		return
	}
	var best, from, to float64
	var at orb.Point
	for i := 1; i < len(line); i++ {
		a, b := line[i-1], line[i]
		if d := math.Hypot(b[0]-a[0], b[1]-a[1]); d > best {
			best, at, from, to = d, orb.Point{(a[0] + b[0]) / 2, (a[1] + b[1]) / 2}, b[0]-a[0], b[1]-a[1]
		}
	}
	if width := float64(len([]rune(s.label.text))) * s.label.size * .5 * grid; best < width*.6 {
		return
	}
	turn := math.Atan2(to, from) * 180 / math.Pi
	if turn > 90 {
		turn -= 180
	} else if turn < -90 {
		turn += 180
	}
	c.name(s.label, at, turn)
}

// name adds a label.
func (c *canvas) name(l label, at orb.Point, turn float64) {
	if l.text == "" {
		return
	}
	l.x, l.y, l.turn = at[0], at[1], turn
	c.labels = append(c.labels, l)
}

// feature reads the properties of a feature.
type feature struct {
	*geojson.Feature
	zoom int // of the map
}

// text returns the first of properties that is a text.
func (f feature) text(names ...string) string {
	for _, name := range names {
		if v, ok := f.Properties[name].(string); ok && v != "" {
			return v
		}
	}
	return ""
}

// number returns a property; 0 if it is no number.
func (f feature) number(name string) float64 {
	n, _ := f.Properties[name].(float64)
	return n
}

// style returns how a feature of a layer is drawn. Names of layers and kinds are those of
// OpenMapTiles (class, subclass), Protomaps (kind, kind_detail) and Shortbread (kind).
func style(layer string, f feature) styled {
	kind := f.text("class", "kind", "kind_detail", "subclass")
	none := styled{paint: noPaint}
	switch layer {
	case "earth":
		return none
	case "water", "ocean", "water_polygons":
		if f.text("brunnel") == "tunnel" {
			return none
		}
		if _, line := f.Geometry.(orb.LineString); line {
			return styled{paint: stream}
		}
		return styled{paint: water}
	case "waterway", "water_lines", "physical_line":
		return styled{paint: stream}
	case "landcover", "landuse", "park", "land", "natural":
		if isGreen(kind) || layer == "park" || isGreen(f.text("subclass")) {
			return styled{paint: green}
		}
		return none
	case "building", "buildings":
		if f.zoom < 14 {
			return none
		}
		return styled{paint: building}
	case "transportation", "roads", "streets", "street":
		return road(f, kind)
	case "transportation_name", "street_labels", "streets_labels":
		return styled{paint: noPaint, label: roadName(f, kind)}
	case "boundary", "boundaries":
		if level := cmp.Or(f.number("admin_level"), f.number("kind_detail")); level > 4 || f.number("maritime") != 0 {
			return none
		}
		return styled{paint: border}
	case "place", "places", "place_labels":
		return styled{paint: noPaint, label: placeName(f, kind)}
	}
	return none
}

func isGreen(kind string) bool {
	switch kind {
	case "wood", "forest", "grass", "park", "nature_reserve", "national_park", "garden", "meadow", "grassland", "scrub", "cemetery", "pitch",
		"golf_course", "recreation_ground", "village_green", "allotments", "farmland", "orchard", "vineyard", "protected_area", "playground", "zoo":
		return true
	}
	return false
}

// road returns the style of a street, path or railway.
func road(f feature, kind string) styled {
	class := kind
	if detail := f.text("kind_detail"); detail != "" {
		class = detail // of Protomaps
	}
	s := styled{paint: noPaint, label: roadName(f, class)}
	switch strings.TrimSuffix(strings.TrimSuffix(class, "_link"), "_construction") {
	case "motorway", "trunk", "highway", "primary":
		s.paint = mainRoad
	case "secondary", "tertiary", "major_road", "medium_road":
		s.paint = medium
	case "rail", "transit", "tram", "light_rail", "subway", "narrow_gauge":
		s.paint = rail
	case "path", "footway", "cycleway", "steps", "pedestrian", "track", "bridleway":
		if s.paint = footway; f.zoom < 14 {
			s.paint = noPaint
		}
	case "minor", "minor_road", "residential", "unclassified", "service", "living_street", "busway", "raceway":
		if s.paint = minor; f.zoom < 12 {
			s.paint = noPaint
		}
	}
	return s
}

// roadName is the label of a street.
func roadName(f feature, class string) label {
	if f.zoom < 14 {
		return label{}
	}
	rank := 30.0
	switch class {
	case "motorway", "trunk", "primary", "highway":
		rank = 20
	case "secondary", "tertiary", "major_road", "medium_road":
		rank = 25
	}
	return label{text: f.text("name:latin", "name", "name:en"), size: 12, rank: rank}
}

// placeName is the label of a country, city or quarter.
func placeName(f feature, kind string) label {
	detail := f.text("kind_detail", "class", "kind")
	l := label{text: f.text("name:latin", "name", "name:en"), rank: 5 - cmp.Or(f.number("population_rank"), 0)/10 + f.number("rank")/10}
	switch {
	case kind == "country":
		l.size, l.strong = 17, true
	case detail == "city":
		l.size, l.strong = 17, true
	case detail == "town" || kind == "locality":
		l.size = 15
		l.rank += 1
	case detail == "village" || detail == "suburb" || kind == "macrohood":
		l.size = 14
		l.rank += 2
	case f.zoom >= 13:
		l.size = 12
		l.rank += 3
	default:
		return label{}
	}
	return l
}
