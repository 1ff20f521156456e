package fleet

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/planar"
	"github.com/tidwall/rtree"
)

// Area is the shape of a zone: polygons with holes on the plane of longitude and
// latitude, WGS 84. Outer rings run counter-clockwise and holes clockwise, every
// ring is closed and neither crosses nor touches itself, and no edge is longer
// than 180 degrees: a shape across the antimeridian is two polygons (RFC 7946,
// 3.1.9).
type Area struct{ shape orb.MultiPolygon }

// maxPositions bounds an [Area] (fleet-api.md 1.4).
const maxPositions = 10_000

// Contains reports whether a point is inside. One on an outer edge is, one on
// the edge of a hole is not.
func (a Area) Contains(lng, lat float64) bool {
	return planar.MultiPolygonContains(a.shape, orb.Point{lng, lat})
}

// Bound returns the least and the greatest coordinates.
func (a Area) Bound() (minLng, minLat, maxLng, maxLat float64) {
	b := a.shape.Bound()
	return b.Min[0], b.Min[1], b.Max[0], b.Max[1]
}

// MarshalJSON implements [json.Marshaler]: a GeoJSON MultiPolygon.
func (a Area) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type        string           `json:"type"`
		Coordinates orb.MultiPolygon `json:"coordinates"`
	}{"MultiPolygon", a.shape})
}

// UnmarshalJSON implements [json.Unmarshaler]: a GeoJSON Polygon or MultiPolygon,
// put into the form above as far as that changes nothing: repeated positions are
// dropped, rings turned, altitudes ignored. An error says what is wrong with the
// shape.
func (a *Area) UnmarshalJSON(text []byte) error {
	var g struct {
		Type        string          `json:"type"`
		Coordinates json.RawMessage `json:"coordinates"`
	}
	if err := json.Unmarshal(text, &g); err != nil {
		return fmt.Errorf("must be a GeoJSON Polygon or MultiPolygon")
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
		return fmt.Errorf("must be a GeoJSON Polygon or MultiPolygon")
	}
	if err != nil {
		return fmt.Errorf("coordinates must be those of a %s: positions are [longitude, latitude]", g.Type)
	}
	shape, err := areaOf(polygons)
	if err != nil {
		return err
	}
	a.shape = shape
	return nil
}

func areaOf(polygons [][][][]float64) (orb.MultiPolygon, error) {
	if len(polygons) == 0 {
		return nil, fmt.Errorf("has no polygon")
	}
	positions := 0
	shape := make(orb.MultiPolygon, len(polygons))
	for i, rings := range polygons {
		if len(rings) == 0 {
			return nil, fmt.Errorf("polygon %d has no ring", i)
		}
		for j, ring := range rings {
			if positions += len(ring); positions > maxPositions {
				return nil, fmt.Errorf("has more than %d positions", maxPositions)
			}
			r, err := ringOf(ring)
			if err != nil {
				return nil, fmt.Errorf("ring %d of polygon %d %w", j, i, err)
			}
			outer := j == 0
			if orientation := r.Orientation(); outer && orientation == orb.CW || !outer && orientation == orb.CCW {
				r.Reverse()
			}
			shape[i] = append(shape[i], r)
		}
		if err := checkCrossings(shape[i]); err != nil {
			return nil, fmt.Errorf("polygon %d %w", i, err)
		}
	}
	return shape, nil
}

func ringOf(positions [][]float64) (orb.Ring, error) {
	var r orb.Ring
	for i, p := range positions {
		if len(p) < 2 {
			return nil, fmt.Errorf("has a position, the one at %d, that is not [longitude, latitude]", i)
		}
		// Written so that NaN is refused.
		if !(math.Abs(p[0]) <= 180 && math.Abs(p[1]) <= 90) {
			return nil, fmt.Errorf("leaves the world at position %d: longitudes are from -180 to 180, latitudes from -90 to 90", i)
		}
		at := orb.Point{p[0], p[1]}
		if len(r) > 0 && r[len(r)-1] == at {
			continue
		}
		if len(r) > 0 && math.Abs(r[len(r)-1][0]-at[0]) > 180 {
			return nil, fmt.Errorf("has an edge longer than 180 degrees at position %d: cut it at the antimeridian into two polygons", i)
		}
		r = append(r, at)
	}
	switch {
	case len(r) < 2 || r[0] != r[len(r)-1]:
		return nil, fmt.Errorf("is not closed: its last position must be its first")
	case len(r) < 4:
		return nil, fmt.Errorf("has fewer than 4 different positions, the first counted twice")
	}
	return r, nil
}

// edge is a side of a ring.
type edge struct {
	ring, index int
	from, to    orb.Point
}

// checkCrossings looks for edges that meet where they must not: within a ring
// only neighbours meet, and only at their common end; those of different rings
// may touch, but not cross; and holes are inside.
func checkCrossings(p orb.Polygon) error {
	var edges rtree.RTreeG[edge]
	for i, ring := range p {
		for j := range len(ring) - 1 {
			e := edge{i, j, ring[j], ring[j+1]}
			low, high := e.box()
			var wrong error
			edges.Search(low, high, func(_, _ [2]float64, other edge) bool {
				wrong = e.against(other, len(ring)-1)
				return wrong == nil
			})
			if wrong != nil {
				return wrong
			}
			edges.Insert(low, high, e)
		}
	}
	for i, hole := range p[1:] {
		for _, at := range hole {
			if !planar.RingContains(p[0], at) {
				return fmt.Errorf("has a hole, ring %d, that leaves it at [%v, %v]", i+1, at[0], at[1])
			}
		}
	}
	return nil
}

func (e edge) box() (low, high [2]float64) {
	return [2]float64{min(e.from[0], e.to[0]), min(e.from[1], e.to[1])}, [2]float64{max(e.from[0], e.to[0]), max(e.from[1], e.to[1])}
}

// against returns what is wrong between two edges. size is how many edges the
// ring of e has.
func (e edge) against(other edge, size int) error {
	side := func(a, b, c orb.Point) float64 { return (b[0]-a[0])*(c[1]-a[1]) - (b[1]-a[1])*(c[0]-a[0]) }
	s1, s2 := side(e.from, e.to, other.from), side(e.from, e.to, other.to)
	s3, s4 := side(other.from, other.to, e.from), side(other.from, other.to, e.to)
	crosses := s1*s2 < 0 && s3*s4 < 0
	if e.ring != other.ring {
		if crosses {
			return fmt.Errorf("has rings, %d and %d, that cross near [%v, %v]", other.ring, e.ring, e.from[0], e.from[1])
		}
		return nil
	}
	at := e.from
	touches := s1 == 0 && e.reaches(other.from) || s2 == 0 && e.reaches(other.to) || s3 == 0 && other.reaches(e.from) || s4 == 0 && other.reaches(e.to)
	if after := (other.index + 1) % size; after == e.index || (e.index+1)%size == other.index {
		// They share one end, and must go different ways from there.
		far, near := e.to, other.from
		if after != e.index {
			far, near = e.from, other.to
		}
		touches = s1 == 0 && s2 == 0 && (other.reaches(far) || e.reaches(near))
	}
	if crosses || touches {
		return fmt.Errorf("has a ring, %d, that crosses or touches itself near [%v, %v]", e.ring, at[0], at[1])
	}
	return nil
}

// reaches reports whether a point on the line through e is on e.
func (e edge) reaches(p orb.Point) bool {
	low, high := e.box()
	return p[0] >= low[0] && p[0] <= high[0] && p[1] >= low[1] && p[1] <= high[1]
}
