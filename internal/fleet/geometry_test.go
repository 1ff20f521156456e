package fleet_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/fleet"
)

func area(t testing.TB, text string) fleet.Area {
	t.Helper()
	var a fleet.Area
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

func TestAreaRefused(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"a point":                 {`{"type":"Point","coordinates":[0,0]}`, "must be a GeoJSON Polygon or MultiPolygon"},
		"no object":               {`[1,2]`, "must be a GeoJSON Polygon or MultiPolygon"},
		"null":                    {`{"type":"Polygon","coordinates":null}`, "has no ring"},
		"too deep":                {`{"type":"Polygon","coordinates":[` + strings.Repeat("[", 50) + strings.Repeat("]", 50) + `]}`, "positions are [longitude, latitude]"},
		"text for a number":       {`{"type":"Polygon","coordinates":[[["0",0],[1,0],[1,1],[0,0]]]}`, "positions are [longitude, latitude]"},
		"nothing":                 {`{"type":"MultiPolygon","coordinates":[]}`, "has no polygon"},
		"no ring":                 {`{"type":"MultiPolygon","coordinates":[[]]}`, "has no ring"},
		"one number":              {`{"type":"Polygon","coordinates":[[[0],[1,0],[1,1],[0,0]]]}`, "is not [longitude, latitude]"},
		"open":                    {`{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,10],[0,10]]]}`, "is not closed"},
		"two corners":             {`{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,0],[0,0]]]}`, "fewer than 4"},
		"beyond the pole":         {`{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,90.1],[0,0]]]}`, "leaves the world"},
		"beyond 180":              {`{"type":"Polygon","coordinates":[[[170,0],[181,0],[181,10],[170,0]]]}`, "leaves the world"},
		"10^308":                  {`{"type":"Polygon","coordinates":[[[0,0],[1e308,0],[1,1],[0,0]]]}`, "leaves the world"},
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
		"too many positions":      {`{"type":"Polygon","coordinates":[` + ring(10_000) + `]}`, "more than 10000 positions"},
	} {
		var a fleet.Area
		if err := json.Unmarshal([]byte(tt.in), &a); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
	area(t, `{"type":"Polygon","coordinates":[`+ring(9_999)+`]}`)
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
		var a fleet.Area
		if json.Unmarshal([]byte(text), &a) != nil {
			return
		}
		stored, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var again fleet.Area
		if err := json.Unmarshal(stored, &again); err != nil {
			t.Fatalf("%s was taken, its stored form %s is not: %v", text, stored, err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(stored) {
			t.Fatalf("stored as %s, then as %s: %v", stored, twice, err)
		}
	})
}
