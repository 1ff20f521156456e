package tiles

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/encoding/mvt"
	"github.com/paulmach/orb/geojson"
)

// TestHilbert has the examples of the PMTiles specification.
func TestHilbert(t *testing.T) {
	for id, want := range map[ID]uint64{
		{}: 0, {1, 0, 0}: 1, {1, 0, 1}: 2, {1, 1, 1}: 3, {1, 1, 0}: 4, {2, 0, 0}: 5, {12, 3423, 1763}: 19078479,
	} {
		if got := Hilbert(id); got != want {
			t.Errorf("%v: got %d, want %d", id, got, want)
		}
	}
}

func TestParseDirectory(t *testing.T) {
	// Two tiles in a row, then a leaf.
	text := []byte{2, 5, 3, 2, 0, 10, 20, 1, 0}
	got, err := parseDirectory(text)
	want := []pmEntry{{5, 2, 10, 0}, {8, 0, 20, 10}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for id, want := range map[uint64]bool{4: false, 5: true, 6: true, 7: false, 8: true, 99: true} {
		if _, ok := findEntry(got, id); ok != want {
			t.Errorf("%d: got %v", id, ok)
		}
	}
	for n := range text {
		if _, err := parseDirectory(text[:n]); err == nil {
			t.Errorf("%d bytes are a directory", n)
		}
	}
}

func FuzzDirectory(f *testing.F) {
	f.Add([]byte{2, 5, 3, 2, 0, 10, 20, 1, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parseDirectory(text)
		if err == nil && len(list) > len(text) {
			t.Errorf("%d bytes have %d entries", len(text), len(list))
		}
	})
}

// FuzzVector: no tile crashes the drawing, and its output is bounded.
func FuzzVector(f *testing.F) {
	street := geojson.NewFeature(orb.LineString{{0, 0}, {4000, 4000}})
	street.Properties = geojson.Properties{"class": "primary", "name": "Main <Street>"}
	lake := geojson.NewFeature(orb.Polygon{{{0, 0}, {900, 0}, {900, 900}, {0, 0}}})
	town := geojson.NewFeature(orb.Point{100, 100})
	town.Properties = geojson.Properties{"class": "city", "name": "Town", "rank": 2}
	text, err := mvt.Marshal(mvt.Layers{
		{Name: "transportation", Version: 2, Extent: 4096, Features: []*geojson.Feature{street}},
		{Name: "water", Version: 2, Extent: 4096, Features: []*geojson.Feature{lake}},
		{Name: "place", Version: 2, Extent: 4096, Features: []*geojson.Feature{town}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte{0x1f, 0x8b})
	// A point whose first command closes a path 2^29-1 times.
	f.Add([]byte{0x1a, 0x1a, 0x0a, 0x05, 'p', 'l', 'a', 'c', 'e', 0x12, 0x0b, 0x18, 0x01, 0x22, 0x07, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x00, 0x28, 0x80, 0x20, 0x78, 0x02, 0x00})
	for _, text := range withoutGeometry {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		svg, err := drawVector(text, ID{14, 5, 5}, ID{14, 5, 5})
		if err == nil && (!bytes.HasPrefix(svg, []byte("<svg ")) || bytes.Contains(svg, []byte("NaN"))) {
			t.Errorf("got %s", svg)
		}
	})
}

// withoutGeometry are layers whose last feature has no geometry: alone, and after one that has a
// point and more than 2^29 ends of a path.
var withoutGeometry = [][]byte{
	{0x1a, 0x0b, 0x0a, 0x05, 'p', 'l', 'a', 'c', 'e', 0x12, 0x02, 0x18, 0x01},
	{0x1a, 0x1b, 0x0a, 0x05, 'p', 'l', 'a', 'c', 'e', 0x12, 0x0c, 0x18, 0x01, 0x22, 0x08, 0x09, 0x02, 0x02, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x12, 0x04, 0x18, 0x01, 0x08, 0x01},
}

// TestFeaturesWithoutGeometry: they are refused before the decoder, which panics, or reserves 8 GB.
func TestFeaturesWithoutGeometry(t *testing.T) {
	for _, text := range withoutGeometry {
		if _, err := drawVector(text, ID{14, 5, 5}, ID{14, 5, 5}); !errors.Is(err, errDecode) {
			t.Errorf("%x: got %v", text, err)
		}
	}
}
