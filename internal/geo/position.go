// Package geo is geometry on the earth's surface, in WGS 84: positions, areas (GeoJSON
// polygons), boxes and circles, and the Morton codes by which an ordinary index finds the
// positions of a box.
//
// Degrees are float64. Positions are stored and compared in millionths of a degree, about
// 11 cm, as int64, so two equal positions have equal codes. [Area] computes in billionths, by
// exact integer arithmetic: whether a position is inside never depends on rounding. A [Rect]
// never crosses the antimeridian; a [Box] can, and has several rects then.
package geo

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Position is a location in WGS 84 (fleet-api.md 0). Degrees have 6 decimals.
type Position struct {
	Lat            float64  `json:"lat"`
	Lng            float64  `json:"lng"`
	AccuracyMeters *float64 `json:"accuracy_meters,omitempty"`
	Heading        *float64 `json:"heading,omitempty"`   // degrees clockwise from north, from 0 and below 360
	SpeedMPS       *float64 `json:"speed_mps,omitempty"` // meters per second
}

// UnmarshalJSON implements [json.Unmarshaler]. It rounds to 6 decimals.
func (p *Position) UnmarshalJSON(text []byte) error {
	type plain Position
	*p = Position{}
	if err := json.Unmarshal(text, (*plain)(p)); err != nil {
		return err
	}
	p.Lat, p.Lng = rounded(p.Lat), rounded(p.Lng)
	return nil
}

// Equal reports whether two positions are the same. Both may be nil.
func (p *Position) Equal(o *Position) bool {
	if p == nil || o == nil {
		return p == o
	}
	same := func(a, b *float64) bool { return a == b || a != nil && b != nil && *a == *b }
	return p.Lat == o.Lat && p.Lng == o.Lng && same(p.AccuracyMeters, o.AccuracyMeters) && same(p.Heading, o.Heading) && same(p.SpeedMPS, o.SpeedMPS)
}

// Check adds issues of a position, at its fields below path. p may be nil.
func (p *Position) Check(v *problem.Validation, path string) {
	if p == nil {
		return
	}
	between := func(name string, value *float64, low, high float64) {
		switch {
		case value == nil:
		case !(*value >= low): // also refuses NaN
			v.AddCode("too_small", path+"."+name, "must be at least %s", strconv.FormatFloat(low, 'f', -1, 64))
		case !(*value <= high):
			v.AddCode("too_large", path+"."+name, "must be at most %s", strconv.FormatFloat(high, 'f', -1, 64))
		}
	}
	between("lat", &p.Lat, -90, 90)
	between("lng", &p.Lng, -180, 180)
	between("accuracy_meters", p.AccuracyMeters, 0, 1e7)
	between("heading", p.Heading, 0, 360)
	between("speed_mps", p.SpeedMPS, 0, 1000)
}

// Millionths converts degrees to their stored form.
func Millionths(degrees float64) int64 { return int64(math.Round(degrees * 1e6)) }

// rounded rounds degrees to 6 decimals. Values out of range are returned unchanged,
// to be refused later.
func rounded(d float64) float64 {
	if !(math.Abs(d) <= 360) {
		return d
	}
	return Degrees(Millionths(d))
}

// Degrees converts millionths to the nearest float64.
func Degrees(millionths int64) float64 { return float64(millionths) / 1e6 }

// earthRadius is the mean radius in meters (fleet-api.md 4).
const earthRadius = 6_371_008.8

// Distance returns the length of the great circle between two points, in meters.
func Distance(lat1, lng1, lat2, lng2 float64) float64 {
	const rad = math.Pi / 180
	sinLat, sinLng := math.Sin((lat2-lat1)*rad/2), math.Sin((lng2-lng1)*rad/2)
	h := sinLat*sinLat + math.Cos(lat1*rad)*math.Cos(lat2*rad)*sinLng*sinLng
	return 2 * earthRadius * math.Asin(math.Sqrt(min(1, h)))
}
