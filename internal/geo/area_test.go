package geo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/geo"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/planar"
	"pgregory.net/rapid"
)

func area(t testing.TB, text string) geo.Area {
	t.Helper()
	var a geo.Area
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return a
}

const square = `[[0,0],[10,0],[10,10],[0,10],[0,0]]`

// ring returns a closed regular polygon.
func ring(corners int) string {
	var b strings.Builder
	for i := range corners {
		angle := 2 * math.Pi * float64(i) / float64(corners)
		fmt.Fprintf(&b, "[%.9f,%.9f],", math.Cos(angle), math.Sin(angle))
	}
	return "[" + b.String() + "[1.000000000,0.000000000]]"
}

// line runs from west to east and back.
func line(positions int) string {
	var b strings.Builder
	for i := range positions - 1 {
		x := i
		if x > positions/2 {
			x = positions - 1 - i
		}
		fmt.Fprintf(&b, "[%d.5,%d.5],", x%90, x%90)
	}
	return "[" + b.String() + "[0.5,0.5]]"
}

// star is a ring in which nearly every two edges cross.
func star(corners int) string {
	var b strings.Builder
	for i := range corners {
		angle := 2 * math.Pi * float64(i*(corners/2)) / float64(corners)
		fmt.Fprintf(&b, "[%.9f,%.9f],", math.Cos(angle), math.Sin(angle))
	}
	return "[" + b.String() + "[1.000000000,0.000000000]]"
}

// comb has slanted teeth: no edges cross, but all their bounding boxes do.
func comb(positions int) string {
	teeth := (positions - 3) / 2
	var b strings.Builder
	b.WriteString("[-1,0]")
	for i := range teeth {
		x := float64(i) / float64(teeth)
		fmt.Fprintf(&b, ",[%.9f,0],[%.9f,50]", x, x+50)
	}
	b.WriteString(",[60,-1],[-1,0]")
	return "[" + b.String() + "]"
}

// holes is a square with square holes.
func holes(count int) string {
	var b strings.Builder
	b.WriteString("[[0,0],[180,0],[180,90],[0,90],[0,0]]")
	for i := range count {
		fmt.Fprintf(&b, ",[[%[1]d.1,%[2]d.1],[%[1]d.1,%[2]d.6],[%[1]d.6,%[2]d.6],[%[1]d.6,%[2]d.1],[%[1]d.1,%[2]d.1]]", i%170, i/170)
	}
	return b.String()
}

// around has nested rings.
func around(count int) string {
	list := make([]string, count)
	for i := range list {
		w := 80 - float64(i)/100
		list[i] = fmt.Sprintf("[[%[1]f,%[1]f],[%[2]f,%[1]f],[%[2]f,%[2]f],[%[1]f,%[2]f],[%[1]f,%[1]f]]", -w, w)
	}
	return "[" + strings.Join(list, "],[") + "]"
}

// hard has shapes of about 10,000 positions that take quadratic time to check by
// pairs, with the expected errors.
func hard() map[string][2]string {
	polygon := func(rings string) string { return `{"type":"Polygon","coordinates":[` + rings + `]}` }
	return map[string][2]string{
		"a round":     {polygon(ring(9_999)), ""},
		"a comb":      {polygon(comb(9_999)), ""},
		"a star":      {polygon(star(9_999)), "crosses or touches itself"},
		"a line":      {polygon(line(9_999)), "crosses or touches itself"},
		"many holes":  {polygon(holes(1_999)), ""},
		"many around": {`{"type":"MultiPolygon","coordinates":[` + around(2_000) + `]}`, "polygons, 0 and 1, that overlap"},
	}
}

// TestAreaHard checks the results for hard shapes.
func TestAreaHard(t *testing.T) {
	for name, shape := range hard() {
		var a geo.Area
		if err := json.Unmarshal([]byte(shape[0]), &a); (err == nil) != (shape[1] == "") || err != nil && !strings.Contains(err.Error(), shape[1]) {
			t.Errorf("%s: got %v, want %q", name, err, shape[1])
		}
	}
}

// BenchmarkArea validates hard shapes, in n log n steps.
func BenchmarkArea(b *testing.B) {
	for name, shape := range hard() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var a geo.Area
				if err := json.Unmarshal([]byte(shape[0]), &a); (err == nil) != (shape[1] == "") {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAreaRings compares the sweep with a check of all pairs of edges, on a tiny
// grid.
func TestAreaRings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		corners := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]int {
			return [2]int{rapid.IntRange(0, 6).Draw(t, "x"), rapid.IntRange(0, 6).Draw(t, "y")}
		}), 3, 8).Draw(t, "corners")
		distinct := slices.Compact(slices.Clone(corners))
		for len(distinct) > 1 && distinct[len(distinct)-1] == distinct[0] {
			distinct = distinct[:len(distinct)-1]
		}
		want := len(distinct) >= 3 && simple(distinct)
		text, _ := json.Marshal(append(slices.Clone(corners), corners[0]))
		var a geo.Area
		err := json.Unmarshal([]byte(`{"type":"Polygon","coordinates":[`+string(text)+`]}`), &a)
		if (err == nil) != want {
			t.Fatalf("%s: got %v, want simple %v", text, err, want)
		}
		if err != nil {
			return
		}
		// The library decides inside and outside.
		var line orb.Ring
		for _, c := range append(distinct, distinct[0]) {
			line = append(line, orb.Point{float64(c[0]), float64(c[1])})
		}
		for x := -1.0; x <= 7; x += 0.5 {
			for y := -1.0; y <= 7; y += 0.5 {
				if got, want := a.Contains(x, y), planar.RingContains(line, orb.Point{x, y}); got != want {
					t.Fatalf("%s contains %v, %v: got %v, want %v", text, x, y, got, want)
				}
			}
		}
	})
}

// simple reports whether edges meet only in corners of neighbours.
func simple(c [][2]int) bool {
	n := len(c)
	side := func(a, b, p [2]int) int { return (b[0]-a[0])*(p[1]-a[1]) - (b[1]-a[1])*(p[0]-a[0]) }
	on := func(a, b, p [2]int) bool {
		return side(a, b, p) == 0 && p[0] >= min(a[0], b[0]) && p[0] <= max(a[0], b[0]) && p[1] >= min(a[1], b[1]) && p[1] <= max(a[1], b[1])
	}
	for i := range n {
		for j := range i {
			a, b, p, q := c[i], c[(i+1)%n], c[j], c[(j+1)%n]
			switch {
			case a == q && on(a, b, p), a == q && on(p, q, b), b == p && on(a, b, q), b == p && on(p, q, a):
				return false
			case a == q && j == i-1, b == p && j == 0 && i == n-1:
			case on(a, b, p), on(a, b, q), on(p, q, a), on(p, q, b):
				return false
			case side(a, b, p)*side(a, b, q) < 0 && side(p, q, a)*side(p, q, b) < 0:
				return false
			}
		}
	}
	return true
}

func BenchmarkAreaContains(b *testing.B) {
	a := area(b, `{"type":"Polygon","coordinates":[`+ring(9_999)+`]}`)
	for b.Loop() {
		if !a.Contains(0.3, 0.4) {
			b.Fatal("outside")
		}
	}
}

func TestAreaForm(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"a polygon becomes several": {`{"type":"Polygon","coordinates":[` + square + `]}`, `{"type":"MultiPolygon","coordinates":[[` + square + `]]}`},
		"a clockwise ring is turned": {
			`{"type":"Polygon","coordinates":[[[0,0],[0,10],[10,10],[10,0],[0,0]]]}`, `{"type":"MultiPolygon","coordinates":[[` + square + `]]}`,
		},
		"so is a hole the other way": {
			`{"type":"Polygon","coordinates":[` + square + `,[[2,2],[8,2],[8,8],[2,8],[2,2]]]}`,
			`{"type":"MultiPolygon","coordinates":[[` + square + `,[[2,2],[2,8],[8,8],[8,2],[2,2]]]]}`,
		},
		"repeated positions and altitudes go": {
			`{"type":"Polygon","coordinates":[[[0,0,5],[0,0],[10,0],[10,10],[10,10],[0,10],[0,0]]]}`, `{"type":"MultiPolygon","coordinates":[[` + square + `]]}`,
		},
		"two beside each other": {
			`{"type":"MultiPolygon","coordinates":[[` + square + `],[[[10,10],[20,10],[20,20],[10,10]]]]}`,
			`{"type":"MultiPolygon","coordinates":[[` + square + `],[[[10,10],[20,10],[20,20],[10,10]]]]}`,
		},
		"the poles and the antimeridian": {
			`{"type":"Polygon","coordinates":[[[-180,-90],[0,-90],[0,90],[-180,90],[-180,-90]]]}`,
			`{"type":"MultiPolygon","coordinates":[[[[-180,-90],[0,-90],[0,90],[-180,90],[-180,-90]]]]}`,
		},
		"rings that touch in a point": {
			`{"type":"Polygon","coordinates":[` + square + `,[[2,2],[2,5],[5,5],[5,2],[2,2]],[[5,5],[5,8],[8,8],[8,5],[5,5]]]}`,
			`{"type":"MultiPolygon","coordinates":[[` + square + `,[[2,2],[2,5],[5,5],[5,2],[2,2]],[[5,5],[5,8],[8,8],[8,5],[5,5]]]]}`,
		},
		"an island in a hole": {
			`{"type":"MultiPolygon","coordinates":[[[[4,4],[6,4],[6,6],[4,4]]],[` + square + `,[[2,2],[2,8],[8,8],[8,2],[2,2]]]]}`,
			`{"type":"MultiPolygon","coordinates":[[[[4,4],[6,4],[6,6],[4,4]]],[` + square + `,[[2,2],[2,8],[8,8],[8,2],[2,2]]]]}`,
		},
		"a hole that touches the edge": {
			`{"type":"Polygon","coordinates":[` + square + `,[[0,5],[5,6],[5,4],[0,5]]]}`,
			`{"type":"MultiPolygon","coordinates":[[` + square + `,[[0,5],[5,6],[5,4],[0,5]]]]}`,
		},
	} {
		got, err := json.Marshal(area(t, tt.in))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s:\n got %s %v\nwant %s", name, got, err, tt.want)
		}
	}
}

// numbered matches the parts of shapes that only GeoJSON numbers.
var numbered = regexp.MustCompile(`\b(polygons?|rings?) |, [0-9]+,`)

func TestAreaRefused(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"a point":                 {`{"type":"Point","coordinates":[0,0]}`, "must be a GeoJSON Polygon or MultiPolygon"},
		"no object":               {`[1,2]`, "must be a GeoJSON Polygon or MultiPolygon"},
		"null":                    {`{"type":"Polygon","coordinates":null}`, "has no ring"},
		"too deep":                {`{"type":"Polygon","coordinates":[` + strings.Repeat("[", 50) + strings.Repeat("]", 50) + `]}`, "positions are [longitude, latitude]"},
		"text for a number":       {`{"type":"Polygon","coordinates":[[["0",0],[1,0],[1,1],[0,0]]]}`, "positions are [longitude, latitude]"},
		"nothing":                 {`{"type":"MultiPolygon","coordinates":[]}`, "has no polygon"},
		"no ring":                 {`{"type":"MultiPolygon","coordinates":[[]]}`, "has no ring"},
		"one number":              {`{"type":"Polygon","coordinates":[[[0],[1,0],[1,1],[0,0]]]}`, "must be [longitude, latitude]"},
		"open":                    {`{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,10],[0,10]]]}`, "is not closed"},
		"two corners":             {`{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,0],[0,0]]]}`, "fewer than 3"},
		"beyond the pole":         {`{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,90.1],[0,0]]]}`, "is out of range"},
		"beyond 180":              {`{"type":"Polygon","coordinates":[[[170,0],[181,0],[181,10],[170,0]]]}`, "is out of range"},
		"10^308":                  {`{"type":"Polygon","coordinates":[[[0,0],[1e308,0],[1,1],[0,0]]]}`, "is out of range"},
		"10^400":                  {`{"type":"Polygon","coordinates":[[[0,0],[1e400,0],[1,1],[0,0]]]}`, "positions are [longitude, latitude]"},
		"across the antimeridian": {`{"type":"Polygon","coordinates":[[[170,0],[-170,0],[-170,10],[170,10],[170,0]]]}`, "cut it at the antimeridian"},
		"a bow tie":               {`{"type":"Polygon","coordinates":[[[0,0],[10,10],[10,0],[0,10],[0,0]]]}`, "crosses or touches itself"},
		"an eight":                {`{"type":"Polygon","coordinates":[[[0,0],[5,5],[10,0],[10,10],[5,5],[0,10],[0,0]]]}`, "crosses or touches itself"},
		"a corner on an edge":     {`{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,10],[5,0],[0,10],[0,0]]]}`, "crosses or touches itself"},
		"a spike":                 {`{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,10],[10,20],[10,10],[0,10],[0,0]]]}`, "crosses or touches itself"},
		"a spike back on itself":  {`{"type":"Polygon","coordinates":[[[0,0],[20,0],[10,0],[10,10],[0,10],[0,0]]]}`, "crosses or touches itself"},
		"flat":                    {`{"type":"Polygon","coordinates":[[[0,0],[5,0],[10,0],[0,0]]]}`, "crosses or touches itself"},
		"a hole outside":          {`{"type":"Polygon","coordinates":[` + square + `,[[12,2],[18,2],[18,8],[12,2]]]}`, "leaves it"},
		"a hole across":           {`{"type":"Polygon","coordinates":[` + square + `,[[5,5],[15,6],[15,4],[5,5]]]}`, "that cross"},
		"a hole on an edge":       {`{"type":"Polygon","coordinates":[` + square + `,[[0,2],[5,5],[0,8],[0,2]]]}`, "rings, 0 and 1, that run along each other"},
		"a hole around":           {`{"type":"Polygon","coordinates":[` + square + `,[[-1,-1],[11,-1],[11,11],[-1,11],[-1,-1]]]}`, "a hole, ring 1, that leaves it"},
		"a hole twice":            {`{"type":"Polygon","coordinates":[` + square + `,[[2,2],[8,2],[8,8],[2,2]],[[2,2],[8,2],[8,8],[2,2]]]}`, "rings, 1 and 2, that run along each other"},
		"holes that cross":        {`{"type":"Polygon","coordinates":[` + square + `,[[2,2],[8,2],[8,8],[2,2]],[[3,1],[9,1],[7,7],[3,1]]]}`, "rings, 1 and 2, that cross"},
		"a hole in a hole":        {`{"type":"Polygon","coordinates":[` + square + `,[[2,2],[8,2],[8,8],[2,8],[2,2]],[[4,4],[6,4],[6,6],[4,4]]]}`, "a hole, ring 2, in another, ring 1"},
		"so in another order":     {`{"type":"Polygon","coordinates":[` + square + `,[[4,4],[6,4],[6,6],[4,4]],[[2,2],[8,2],[8,8],[2,8],[2,2]]]}`, "a hole, ring 1, in another, ring 2"},
		"out through corners":     {`{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,10],[6,10],[5,4],[4,10],[0,10],[0,0]],[[4,10],[6,10],[5,2],[4,10]]]}`, "rings, 0 and 1, that cross"},
		"across in a corner":      {`{"type":"Polygon","coordinates":[` + square + `,[[5,5],[10,0],[15,5],[10,10],[5,5]]]}`, "rings, 0 and 1, that cross"},
		"the same twice":          {`{"type":"MultiPolygon","coordinates":[[` + square + `],[` + square + `]]}`, "polygons, 0 and 1, that run along each other"},
		"one in another":          {`{"type":"MultiPolygon","coordinates":[[` + square + `],[[[2,2],[8,2],[8,8],[2,2]]]]}`, "polygons, 0 and 1, that overlap"},
		"polygons that cross":     {`{"type":"MultiPolygon","coordinates":[[` + square + `],[[[5,5],[15,5],[15,15],[5,15],[5,5]]]]}`, "polygons, 0 and 1, that cross"},
		"polygons on an edge":     {`{"type":"MultiPolygon","coordinates":[[` + square + `],[[[10,2],[20,2],[20,8],[10,8],[10,2]]]]}`, "polygons, 0 and 1, that run along each other"},
		"another one's hole":      {`{"type":"MultiPolygon","coordinates":[[` + square + `],[[[20,0],[30,0],[30,10],[20,0]],[[2,2],[8,2],[8,8],[2,2]]]]}`, "polygon 1 has a hole, ring 1, that leaves it"},
		"nearly the same":         {`{"type":"Polygon","coordinates":[[[0,0],[1e-10,0],[0,1e-10],[0,0]]]}`, "is not closed"},
		"crossing by a hair":      {`{"type":"Polygon","coordinates":[[[0,0],[180,0.000000001],[180,1],[0,-0.000000001],[0,0]]]}`, "crosses or touches itself"},
		"all along one line":      {`{"type":"Polygon","coordinates":[` + line(9_999) + `]}`, "crosses or touches itself"},
		"a star":                  {`{"type":"Polygon","coordinates":[` + star(9_999) + `]}`, "crosses or touches itself"},
		"too many positions":      {`{"type":"Polygon","coordinates":[` + ring(10_000) + `]}`, "more than 10000 positions"},
	} {
		var a geo.Area
		if err := json.Unmarshal([]byte(tt.in), &a); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		_, err := geo.ParseArea([]byte(tt.in))
		if e, ok := errors.AsType[*geo.ShapeError](err); ok && (e.Drawn == "" || numbered.MatchString(e.Drawn)) {
			t.Errorf("%s: the description for forms is %q", name, e.Drawn)
		}
	}
	area(t, `{"type":"Polygon","coordinates":[`+ring(9_999)+`]}`)
	for in, want := range map[string]string{
		`[[[0,0],[10,20],[10,0],[0,20],[0,0]]]`:        "has an outline that crosses or touches itself near 20, 0",
		`[[[0,0],[10,0],[10,90.1],[0,0]]]`:             "has a corner out of range: longitudes are from -180 to 180, latitudes from -90 to 90",
		`[` + square + `,[[5,5],[15,6],[15,4],[5,5]]]`: "has an outline and a hole, or two holes, that cross near 0, 10",
	} {
		_, err := geo.ParseArea([]byte(`{"type":"Polygon","coordinates":` + in + `}`))
		if e, ok := errors.AsType[*geo.ShapeError](err); !ok || e.Drawn != want {
			t.Errorf("%s: got %+v, want %q", in, err, want)
		}
	}
}

func TestAreaContains(t *testing.T) {
	a := area(t, `{"type":"MultiPolygon","coordinates":[[`+square+`,[[2,2],[2,8],[8,8],[8,2],[2,2]]],[[[20,20],[30,20],[30,30],[20,20]]]]}`)
	for _, tt := range []struct {
		name     string
		lng, lat float64
		want     bool
	}{
		{"inside", 1, 1, true},
		{"on an edge", 0, 5, true},
		{"on a corner", 10, 10, true},
		{"outside", 11, 5, false},
		{"in the hole", 5, 5, false},
		{"on the edge of the hole", 2, 5, false},
		{"on a corner of the hole", 8, 8, false},
		{"in the second", 29, 25, true},
		{"beside the second", 21, 29, false},
	} {
		if got := a.Contains(tt.lng, tt.lat); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func FuzzArea(f *testing.F) {
	f.Add(`{"type":"Polygon","coordinates":[` + square + `]}`)
	f.Add(`{"type":"MultiPolygon","coordinates":[[` + square + `,[[2,2],[2,8],[8,8],[8,2],[2,2]]]]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var a geo.Area
		if json.Unmarshal([]byte(text), &a) != nil {
			return
		}
		stored, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var again geo.Area
		if err := json.Unmarshal(stored, &again); err != nil {
			t.Fatalf("%s was taken, its stored form %s is not: %v", text, stored, err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(stored) {
			t.Fatalf("stored as %s, then as %s: %v", stored, twice, err)
		}
	})
}
