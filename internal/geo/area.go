package geo

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/paulmach/orb"
)

// Area is the shape of a zone: polygons with holes in longitude and latitude, WGS
// 84. Outer rings run counter-clockwise, holes clockwise. Every ring is closed and
// simple. Rings meet in single points at most, each hole is inside its polygon and
// outside of its other holes, and polygons do not overlap. No edge is longer than
// 180 degrees: a shape across the antimeridian is two polygons (RFC 7946, 3.1.9).
//
// Comparisons round positions to a billionth of a degree, a tenth of a millimeter,
// and are exact. Stored positions are as given.
type Area struct {
	shape    orb.MultiPolygon
	polygons []polygon
}

// maxPositions is the maximum number of positions of an [Area] (fleet-api.md 1.4).
const maxPositions = 10_000

// Contains reports whether the area contains a point. Outer edges belong to it,
// edges of holes do not.
func (a Area) Contains(lng, lat float64) bool {
	p := toGrid(lng, lat)
	return slices.ContainsFunc(a.polygons, func(rings polygon) bool {
		if !rings[0].contains(p) {
			return false
		}
		for i := range rings[1:] {
			if rings[1+i].contains(p) {
				return false
			}
		}
		return true
	})
}

// Bound returns the bounding box.
func (a Area) Bound() (minLng, minLat, maxLng, maxLat float64) {
	b := a.shape.Bound()
	return b.Min[0], b.Min[1], b.Max[0], b.Max[1]
}

// IsEmpty reports whether the area has no polygon.
func (a Area) IsEmpty() bool { return len(a.shape) == 0 }

// Slack exceeds, in degrees, the rounding of a point or an edge of an [Area].
const Slack = 2e-9

// Boxes returns the bounding box of each polygon, enlarged by [Slack]: a position
// outside of them is not in the area.
func (a Area) Boxes() []Box {
	boxes := make([]Box, len(a.shape))
	for i, p := range a.shape {
		b := p.Bound()
		boxes[i] = Box{b.Min[0] - Slack, b.Min[1] - Slack, b.Max[0] + Slack, b.Max[1] + Slack}
	}
	return boxes
}

// Intersects reports whether the area, edges and edges of holes included,
// intersects a box that does not cross the antimeridian.
func (a Area) Intersects(b Box) bool {
	for _, polygon := range a.shape {
		for _, ring := range polygon {
			for i := range len(ring) - 1 {
				if b.intersectsSegment(ring[i], ring[i+1]) {
					return true
				}
			}
		}
	}
	// No edge crosses the box, so it is inside or outside as a whole.
	return a.Contains(b.MinLng, b.MinLat)
}

// intersectsSegment reports whether the segment between two points intersects b.
func (b Box) intersectsSegment(from, to orb.Point) bool {
	if max(from[0], to[0]) < b.MinLng || min(from[0], to[0]) > b.MaxLng || max(from[1], to[1]) < b.MinLat || min(from[1], to[1]) > b.MaxLat {
		return false
	}
	// The corners are on both sides of the line, or on it.
	left, right := 0, 0
	for _, c := range [4]orb.Point{{b.MinLng, b.MinLat}, {b.MinLng, b.MaxLat}, {b.MaxLng, b.MinLat}, {b.MaxLng, b.MaxLat}} {
		switch side := (to[0]-from[0])*(c[1]-from[1]) - (to[1]-from[1])*(c[0]-from[0]); {
		case side > 0:
			left++
		case side < 0:
			right++
		}
	}
	return left < 4 && right < 4
}

// MarshalJSON implements [json.Marshaler]: a GeoJSON MultiPolygon.
func (a Area) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type        string           `json:"type"`
		Coordinates orb.MultiPolygon `json:"coordinates"`
	}{"MultiPolygon", a.shape})
}

// UnmarshalJSON implements [json.Unmarshaler] for a GeoJSON Polygon or
// MultiPolygon. It normalizes the shape: it drops repeated positions and altitudes
// and turns rings. The error is Invalid, with one issue invalid_geometry at
// geometry.
func (a *Area) UnmarshalJSON(text []byte) error {
	made, err := ParseArea(text)
	if err != nil {
		var v problem.Validation
		v.AddCode("invalid_geometry", "geometry", "%v", err)
		return v.Err()
	}
	*a = made
	return nil
}

// ShapeError describes why polygons are not a valid [Area].
type ShapeError struct {
	message string
	// Drawn is the description for forms and maps: without numbers of polygons, rings and
	// positions, and with places as latitude and longitude.
	Drawn string
}

// Error returns the description in the terms of GeoJSON.
func (e *ShapeError) Error() string { return e.message }

// ParseArea returns the area of a GeoJSON Polygon or MultiPolygon, normalized as
// [Area.UnmarshalJSON] does. The error of polygons that are not an area is a [*ShapeError].
func ParseArea(text []byte) (Area, error) {
	var g struct {
		Type        string          `json:"type"`
		Coordinates json.RawMessage `json:"coordinates"`
	}
	if err := json.Unmarshal(text, &g); err != nil {
		return Area{}, fmt.Errorf("must be a GeoJSON Polygon or MultiPolygon")
	}
	var polygons [][][][]float64
	var err error
	switch g.Type {
	case "Polygon":
		polygons = make([][][][]float64, 1)
		err = json.Unmarshal(g.Coordinates, &polygons[0])
	case "MultiPolygon":
		err = json.Unmarshal(g.Coordinates, &polygons)
	default:
		return Area{}, fmt.Errorf("must be a GeoJSON Polygon or MultiPolygon")
	}
	if err != nil {
		return Area{}, fmt.Errorf("must have the coordinates of a %s; positions are [longitude, latitude]", g.Type)
	}
	return NewArea(polygons)
}

// NewArea returns the area of polygons in the form of GeoJSON: lists of rings, which
// are lists of positions [longitude, latitude]. It normalizes them like
// [Area.UnmarshalJSON]. The error is a [*ShapeError].
func NewArea(polygons [][][][]float64) (Area, error) {
	if len(polygons) == 0 {
		return Area{}, &ShapeError{"has no polygon", "has no corners"}
	}
	positions := 0
	a := Area{shape: make(orb.MultiPolygon, len(polygons)), polygons: make([]polygon, len(polygons))}
	for i, rings := range polygons {
		if len(rings) == 0 {
			return Area{}, &ShapeError{fmt.Sprintf("polygon %d has no ring", i), "has a part without corners"}
		}
		for j, given := range rings {
			if positions += len(given); positions > maxPositions {
				return Area{}, &ShapeError{fmt.Sprintf("has more than %d positions", maxPositions), fmt.Sprintf("has more than %d corners", maxPositions)}
			}
			line, r, fault := ringOf(given)
			if fault != nil {
				fault.message = fmt.Sprintf("ring %d of polygon %d %s", j, i, fault.message)
				return Area{}, fault
			}
			a.shape[i] = append(a.shape[i], line)
			a.polygons[i] = append(a.polygons[i], r)
		}
	}
	turned, err := checkRings(a.polygons)
	if err != nil {
		return Area{}, err
	}
	for i, p := range a.shape {
		for j := range p {
			if (j == 0) == turned[0] {
				p[j].Reverse()
				slices.Reverse(a.polygons[i][j].points)
			}
			turned = turned[1:]
		}
	}
	return a, nil
}

// ringOf returns a ring in stored form and on the grid.
func ringOf(positions [][]float64) (orb.Ring, ring, *ShapeError) {
	var line orb.Ring
	var r ring
	for i, p := range positions {
		if len(p) < 2 {
			return nil, r, &ShapeError{fmt.Sprintf("has an invalid position %d: must be [longitude, latitude]", i), "has a position that is not [longitude, latitude]"}
		}
		// Also refuses NaN.
		if !(math.Abs(p[0]) <= 180 && math.Abs(p[1]) <= 90) {
			const ranges = "longitudes are from -180 to 180, latitudes from -90 to 90"
			return nil, r, &ShapeError{fmt.Sprintf("is out of range at position %d: %s", i, ranges), "has a corner out of range: " + ranges}
		}
		at := toGrid(p[0], p[1])
		if n := len(r.points); n > 0 {
			if r.points[n-1] == at {
				continue
			}
			if dx := r.points[n-1].x - at.x; max(dx, -dx) > 180*perDegree {
				return nil, r, &ShapeError{
					fmt.Sprintf("has an edge longer than 180 degrees at position %d: cut it at the antimeridian into two polygons", i),
					"has an edge longer than 180 degrees: draw one part on each side of the antimeridian",
				}
			}
		}
		line, r.points = append(line, orb.Point{p[0], p[1]}), append(r.points, at)
	}
	last := len(r.points) - 1
	switch {
	case last < 1:
		return nil, r, &ShapeError{"is not closed: the last position must equal the first", "must have at least 3 different corners"}
	case r.points[0] != r.points[last]:
		return nil, r, &ShapeError{"is not closed: the last position must equal the first", "has an outline that does not end where it starts"}
	case last < 3:
		return nil, r, &ShapeError{"has fewer than 3 distinct positions", "must have at least 3 different corners"}
	}
	line[last] = line[0]
	r.low, r.high = r.points[0], r.points[0]
	for _, p := range r.points {
		r.low = point{min(r.low.x, p.x), min(r.low.y, p.y)}
		r.high = point{max(r.high.x, p.x), max(r.high.y, p.y)}
	}
	return line, r, nil
}
