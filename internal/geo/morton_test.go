package geo

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestCell(t *testing.T) {
	for _, test := range []struct{ lat, lng, want int64 }{
		{-90_000_000, -180_000_000, 0},
		{-89_999_999, -180_000_000, 1},
		{-90_000_000, -179_999_999, 2},
		{-89_999_999, -179_999_999, 3},
		{-89_999_998, -179_999_997, 0b1110},
	} {
		if got := CellAt(test.lat, test.lng); got != test.want {
			t.Errorf("cell of %d, %d: got %b, want %b", test.lat, test.lng, got, test.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		lat, lng := rapid.Int64Range(-maxLat, maxLat).Draw(t, "lat"), rapid.Int64Range(-maxLng, maxLng).Draw(t, "lng")
		if gotLat, gotLng := CellPosition(CellAt(lat, lng)); gotLat != lat || gotLng != lng {
			t.Fatalf("there and back: got %d, %d, want %d, %d", gotLat, gotLng, lat, lng)
		}
	})
}

// someBox draws boxes of all sizes, often at the limits of coordinates.
func someBox(t *rapid.T) Box {
	edge := func(limit float64) *rapid.Generator[float64] {
		return rapid.OneOf(rapid.Float64Range(-limit, limit), rapid.SampledFrom([]float64{-limit, limit, 0, limit - 0.5e-6, 1e-6 - limit}))
	}
	lat, lng := edge(90).Draw(t, "lat"), edge(180).Draw(t, "lng")
	size := rapid.SampledFrom([]float64{0, 1e-6, 0.001, 0.1, 5, 90}).Draw(t, "size")
	b := Box{MinLng: lng, MinLat: lat, MaxLng: lng + size*rapid.Float64Range(0, 4).Draw(t, "wide"), MaxLat: min(90, lat+size)}
	if b.MaxLng > 180 {
		b.MaxLng = max(-180, b.MaxLng-360)
	}
	return b
}

// inBox is the specification of a box.
func inBox(b Box, lat, lng int64) bool {
	if d := Degrees(lat); d < b.MinLat || d > b.MaxLat {
		return false
	}
	in := func(d float64) bool {
		if b.MinLng <= b.MaxLng {
			return d >= b.MinLng && d <= b.MaxLng
		}
		return d >= b.MinLng || d <= b.MaxLng
	}
	d := Degrees(lng)
	return in(d) || math.Abs(d) == 180 && in(-d)
}

// somePosition draws positions near the edges of a box, or anywhere.
func somePosition(t *rapid.T, b Box) (lat, lng int64) {
	near := func(limit int64, edges ...float64) int64 {
		if rapid.Bool().Draw(t, "anywhere") {
			return rapid.Int64Range(-limit, limit).Draw(t, "degrees")
		}
		return min(limit, max(-limit, Millionths(rapid.SampledFrom(edges).Draw(t, "edge"))+rapid.Int64Range(-2, 2).Draw(t, "off")))
	}
	return near(maxLat, b.MinLat, b.MaxLat), near(maxLng, b.MinLng, b.MaxLng, 180, -180)
}

func TestCover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := someBox(t)
		rects := b.Rects()
		ranges := Cover(rects, 16)
		if len(ranges) > 16 {
			t.Fatalf("ranges: got %d, want at most 16", len(ranges))
		}
		for i := range len(ranges) - 1 {
			if ranges[i].Last >= ranges[i+1].First {
				t.Fatalf("ranges %v and %v are not in order", ranges[i], ranges[i+1])
			}
		}
		for range 50 {
			lat, lng := somePosition(t, b)
			want := inBox(b, lat, lng)
			if got := slices.ContainsFunc(rects, func(r Rect) bool { return r.Contains(lat, lng) }); got != want {
				t.Fatalf("%d, %d in %v: got %v, want %v", lat, lng, b, got, want)
			}
			cell := CellAt(lat, lng)
			if got := slices.ContainsFunc(rects, func(r Rect) bool { return CellRectOf(r).Contains(cell) }); got != want {
				t.Fatalf("the cell of %d, %d in %v: got %v, want %v", lat, lng, b, got, want)
			}
			if covered := slices.ContainsFunc(ranges, func(c CellRange) bool { return c.First <= cell && cell <= c.Last }); want && !covered {
				t.Fatalf("%d, %d is not covered in %v by %v", lat, lng, b, ranges)
			}
		}
	})
}

// TestRegions: every position of rects is in one of their regions.
func TestRegions(t *testing.T) {
	if got, ok := Regions([]Rect{{52_480_000, 13_330_000, 52_550_000, 13_460_000}}, 1); !ok || !slices.Equal(got, []int64{51861}) {
		t.Errorf("regions of a city: got %v, %v, want 51861", got, ok)
	}
	if got, ok := Regions([]Rect{World}, 16); ok {
		t.Errorf("regions of the world: got %v, want too many", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		b := Box{MinLng: rapid.Float64Range(-180, 179).Draw(t, "lng"), MinLat: rapid.Float64Range(-90, 89).Draw(t, "lat")}
		b.MaxLng, b.MaxLat = b.MinLng+rapid.Float64Range(0.001, 1).Draw(t, "width"), b.MinLat+rapid.Float64Range(0.001, 1).Draw(t, "height")
		rects := b.Rects()
		list, ok := Regions(rects, 16)
		if !ok {
			t.Fatalf("%v: more than 16 regions", b)
		}
		r := rects[0]
		lat, lng := rapid.Int64Range(r.MinLat, r.MaxLat).Draw(t, "y"), rapid.Int64Range(r.MinLng, r.MaxLng).Draw(t, "x")
		if region := CellAt(lat, lng) >> (2 * RegionBits); !slices.Contains(list, region) {
			t.Errorf("%d, %d of %v: got regions %v, want %d among them", lat, lng, b, list, region)
		}
	})
}

// TestCoverIsTight: a cover has few positions outside of its box.
func TestCoverIsTight(t *testing.T) {
	var worst, sum float64
	const boxes = 500
	for i := range int64(boxes) {
		r := Rect{MinLat: 52_300_000 + i*7_919, MinLng: 13_100_000 + i*15_485}
		r.MaxLat, r.MaxLng = r.MinLat+10_000+i*997, r.MinLng+20_000+i*499
		covered := 0.0
		for _, c := range Cover([]Rect{r}, 16) {
			covered += float64(c.Last - c.First + 1)
		}
		waste := covered / (float64(r.MaxLat-r.MinLat+1) * float64(r.MaxLng-r.MinLng+1))
		worst, sum = max(worst, waste), sum+waste
	}
	if mean := sum / boxes; mean > 1.5 || worst > 3 {
		t.Errorf("what is covered for a box of 1: got %.2f on average and %.2f at most, want 1.5 and 3", mean, worst)
	}
}

func TestNearRects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := Circle{
			Lat:          rapid.OneOf(rapid.Float64Range(-90, 90), rapid.SampledFrom([]float64{-90, 90, 89.9, -89.7, 0})).Draw(t, "lat"),
			Lng:          rapid.OneOf(rapid.Float64Range(-180, 180), rapid.SampledFrom([]float64{-180, 180, 179.999, 0})).Draw(t, "lng"),
			RadiusMeters: rapid.SampledFrom([]float64{0, 1, 50, 1000, 50_000}).Draw(t, "radius"),
		}
		rects := n.rects(n.RadiusMeters)
		low := n.RadiusMeters * rapid.SampledFrom([]float64{0, 0.1, 0.5, 0.999999, 1}).Draw(t, "low")
		ring := n.Ring(low, n.RadiusMeters)
		for range 100 {
			// About on the circle.
			bearing := rapid.Float64Range(0, 2*math.Pi).Draw(t, "bearing")
			angle := n.RadiusMeters / earthRadius * rapid.SampledFrom([]float64{0.1, 0.5, 0.999999, 1, 1.01}).Draw(t, "far")
			lat1, lng1 := n.Lat*math.Pi/180, n.Lng*math.Pi/180
			lat2 := math.Asin(min(1, max(-1, math.Sin(lat1)*math.Cos(angle)+math.Cos(lat1)*math.Sin(angle)*math.Cos(bearing))))
			lng2 := lng1 + math.Atan2(math.Sin(bearing)*math.Sin(angle)*math.Cos(lat1), math.Cos(angle)-math.Sin(lat1)*math.Sin(lat2))
			lat, lng := Millionths(lat2*180/math.Pi), Millionths(math.Remainder(lng2*180/math.Pi, 360))
			d := Distance(n.Lat, n.Lng, Degrees(lat), Degrees(lng))
			in := d <= n.RadiusMeters
			if in && d >= low && !slices.ContainsFunc(ring, func(r Rect) bool { return r.Contains(lat, lng) }) {
				t.Fatalf("%d, %d is %v m from %v, %v but not in the ring from %v to %v m, %v", lat, lng, d, n.Lat, n.Lng, low, n.RadiusMeters, ring)
			}
			if in && !slices.ContainsFunc(rects, func(r Rect) bool { return r.Contains(lat, lng) }) {
				t.Fatalf("%d, %d is within %v m of %v, %v but not in %v", lat, lng, n.RadiusMeters, n.Lat, n.Lng, rects)
			}
		}
	})
}

func TestCellArea(t *testing.T) {
	for _, lat := range []float64{0, 30, -52.5, 89} {
		const cells = 1000 // of each side of a square
		want := Distance(lat, 0, lat, cells*1e-6) * Distance(lat-cells/2*1e-6, 0, lat+cells/2*1e-6, 0)
		if got := CellArea(lat) * cells * cells; math.Abs(got-want) > 1e-4*want {
			t.Errorf("at %v: %v square meters, want %v", lat, got, want)
		}
	}
}
