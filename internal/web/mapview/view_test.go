package mapview

import (
	"math"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/geo"
)

const width, height = 960, 600

// TestFit: the view contains all boxes, anywhere on earth.
func TestFit(t *testing.T) {
	tests := []struct {
		name  string
		boxes []geo.Box
		near  float64 // minimum zoom
	}{
		{"a city", []geo.Box{{MinLng: 13.2, MinLat: 52.4, MaxLng: 13.6, MaxLat: 52.6}}, 9},
		{"a place", []geo.Box{{MinLng: 13.2, MinLat: 52.4, MaxLng: 13.2, MaxLat: 52.4}}, 16},
		{"across the antimeridian", []geo.Box{{MinLng: 179.8, MinLat: -17, MaxLng: 180, MaxLat: -16.8}, {MinLng: -180, MinLat: -17, MaxLng: -179.7, MaxLat: -16.8}}, 9},
		{"at the north pole", []geo.Box{{MinLng: 10, MinLat: 89, MaxLng: 11, MaxLat: 90}}, 2},
		{"at the south pole", []geo.Box{{MinLng: -180, MinLat: -90, MaxLng: 180, MaxLat: -84}}, 2},
		{"two continents", []geo.Box{{MinLng: 139, MinLat: 35, MaxLng: 140, MaxLat: 36}, {MinLng: -74, MinLat: 40, MaxLng: -73, MaxLat: 41}}, 2},
		{"the earth", []geo.Box{{MinLng: -180, MinLat: -90, MaxLng: 180, MaxLat: 90}}, 2},
	}
	for _, tt := range tests {
		v := Fit(width, height, tt.boxes)
		if v.Zoom < tt.near || v.Zoom > MaxZoom {
			t.Errorf("%s: got zoom %v", tt.name, v.Zoom)
		}
		for _, b := range tt.boxes {
			if b.MaxLng-b.MinLng > 180 {
				continue
			}
			for _, at := range [][2]float64{{b.MinLat, b.MinLng}, {b.MaxLat, b.MaxLng}} {
				x, y := v.At(at[0], at[1])
				if x < 0 || x > width || y < -1 || y > height+1 {
					t.Errorf("%s: %v is at %v, %v", tt.name, at, x, y)
				}
			}
		}
		checkTiles(t, v)
		box := v.Box()
		if math.Abs(box.MinLng) > 180 || math.Abs(box.MaxLng) > 180 || box.MinLat < -90 || box.MaxLat > 90 || box.MinLat >= box.MaxLat {
			t.Errorf("%s: got box %+v", tt.name, box)
		}
		q := url.Values{}
		v.WriteQuery(q)
		again, ok := Parse(width, height, q)
		if !ok || math.Abs(again.X-v.X)*v.scale() > 2*math.Exp2(v.Zoom-16) || math.Abs(again.Zoom-v.Zoom) > .01 {
			t.Errorf("%s: %+v came back as %+v", tt.name, v, again)
		}
	}
	if box := Fit(width, height, tests[2].boxes).Box(); box.MinLng < box.MaxLng {
		t.Errorf("across the antimeridian: got box %+v", box)
	}
	for _, wrong := range []string{"z=NaN&lat=1&lng=1", "z=5&lat=1", "", "z=x&lat=1&lng=1", "z=1e99&lat=0&lng=0", "z=5&lat=Inf&lng=0"} {
		q, err := url.ParseQuery(wrong)
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := Parse(width, height, q); ok {
			t.Errorf("%s is a view: %+v", wrong, v)
		}
	}
}

// TestPath: paths are clipped to the map and limited in size.
func TestPath(t *testing.T) {
	v := Fit(width, height, []geo.Box{{MinLng: 13.2, MinLat: 52.4, MaxLng: 13.6, MaxLat: 52.6}})
	around := [][][][2]float64{{{{-170, -80}, {170, -80}, {170, 80}, {-170, 80}, {-170, -80}}}}
	if got, want := v.Path(around, 1000), "M968 608L968 -8L-8 -8L-8 608Z"; len(got) != len(want) {
		t.Errorf("all around: got %s", got)
	}
	if got := v.Path([][][][2]float64{{{{100, 10}, {101, 10}, {101, 11}, {100, 10}}}}, 1000); got != "" {
		t.Errorf("far away: got %s", got)
	}
	var many [][2]float64
	for i := range 10_000 {
		turn := float64(i) / 10_000 * 2 * math.Pi
		many = append(many, [2]float64{13.4 + 0.15*math.Cos(turn), 52.5 + 0.08*math.Sin(turn)})
	}
	if got := v.Path([][][][2]float64{{many}}, 2000); len(got) > 2000 || strings.Count(got, "L") < 20 {
		t.Errorf("10,000 corners: got %d bytes, %d lines", len(got), strings.Count(got, "L"))
	}
}

// checkTiles checks that tiles cover the picture, each about as large as its source has it.
func checkTiles(t *testing.T, v View) {
	t.Helper()
	for _, size := range []int{256, 512} {
		list := v.Tiles(size, 19)
		if len(list) == 0 || len(list) > 48 {
			t.Errorf("%+v has %d tiles", v, len(list))
		}
		covered := 0.0
		for _, tile := range list {
			if tile.Column < 0 || tile.Row < 0 || tile.Column >= 1<<tile.Zoom || tile.Row >= 1<<tile.Zoom || tile.Size < float64(size)*.7 || tile.Zoom < 19 && tile.Size > float64(size)*1.7 {
				t.Errorf("%+v has %+v", v, tile)
			}
			covered += max(0, min(width, tile.X+tile.Size)-max(0, tile.X)) * max(0, min(height, tile.Y+tile.Size)-max(0, tile.Y))
		}
		if math.Abs(covered-width*height) > 1 {
			t.Errorf("%+v: %d tiles cover %v of %v", v, len(list), covered, width*height)
		}
	}
	if list := v.Tiles(512, 3); list[0].Zoom > 3 {
		t.Errorf("%+v has a tile of zoom %d", v, list[0].Zoom)
	}
}
