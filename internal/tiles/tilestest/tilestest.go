// Package tilestest makes files of map tiles for tests: a small town of straight streets with a
// river, a park and houses, as vector tiles in the layers of OpenMapTiles.
package tilestest

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/encoding/mvt"
	"github.com/paulmach/orb/geojson"
	"github.com/paulmach/orb/maptile"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/kickstand-dev/kickstand/internal/tiles"
)

// Attribution is the credit of the files, as they have it.
const Attribution = `<a href="https://example.com">Survey of Testburg</a>`

// Town returns the gzipped vector tiles of a town around a position, for zooms from to.
func Town(t testing.TB, lat, lng float64, from, to int) map[tiles.ID][]byte {
	t.Helper()
	list := make(map[tiles.ID][]byte)
	const half = 0.026
	for z := from; z <= to; z++ {
		nw := maptile.At(orb.Point{lng - half, lat + half}, maptile.Zoom(z))
		se := maptile.At(orb.Point{lng + half, lat - half}, maptile.Zoom(z))
		for x := nw.X; x <= se.X; x++ {
			for y := nw.Y; y <= se.Y; y++ {
				layers := mvt.NewLayers(town(lat, lng))
				layers.ProjectToTile(maptile.New(x, y, maptile.Zoom(z)))
				layers.Clip(mvt.MapboxGLDefaultExtentBound)
				text, err := mvt.Marshal(layers)
				if err != nil {
					t.Fatal(err)
				}
				list[tiles.ID{Z: z, X: int(x), Y: int(y)}] = zip(t, text)
			}
		}
	}
	return list
}

// town returns the features by layer.
func town(lat, lng float64) map[string]*geojson.FeatureCollection {
	layers := make(map[string]*geojson.FeatureCollection)
	add := func(layer string, g orb.Geometry, properties geojson.Properties) {
		if layers[layer] == nil {
			layers[layer] = geojson.NewFeatureCollection()
		}
		f := geojson.NewFeature(orb.Clone(g)) // projected in place
		f.Properties = properties
		layers[layer].Append(f)
	}
	box := func(x, y, width, height float64) orb.Polygon {
		return orb.Polygon{orb.Ring{{lng + x, lat + y}, {lng + x + width, lat + y}, {lng + x + width, lat + y + height}, {lng + x, lat + y + height}, {lng + x, lat + y}}}
	}
	add("water", box(-.05, -.011, .1, .003), geojson.Properties{"class": "river"})
	add("park", box(.006, .003, .008, .005), geojson.Properties{"class": "park"})
	names := []string{"Mill Lane", "Station Road", "Harbour Street", "Long Acre", "Fox Hill", "Market Row", "Orchard Way", "King’s Parade", "Dock <Side>"}
	for i := -8; i <= 8; i++ {
		class := "minor"
		switch {
		case i == 0:
			class = "primary"
		case i%4 == 0:
			class = "secondary"
		}
		at := float64(i) * .003
		for j, street := range []orb.LineString{{{lng - .028, lat + at}, {lng + .028, lat + at}}, {{lng + at, lat - .028}, {lng + at, lat + .028}}} {
			add("transportation", street, geojson.Properties{"class": class})
			add("transportation_name", street, geojson.Properties{"class": class, "name": names[(i+8+4*j)%len(names)]})
		}
		for j := -8; j < 8; j++ {
			if (i+j)%3 != 0 {
				add("building", box(at+.0005, float64(j)*.003+.0006, .0018, .0013), geojson.Properties{})
			}
		}
	}
	add("place", orb.Point{lng, lat}, geojson.Properties{"class": "city", "name": "Testburg"})
	return layers
}

// Raster returns a PNG tile with a colour and a frame.
func Raster(t testing.TB) []byte {
	t.Helper()
	m := image.NewPaletted(image.Rect(0, 0, tiles.RasterSize, tiles.RasterSize), color.Palette{color.RGBA{222, 232, 210, 255}, color.RGBA{120, 150, 200, 255}})
	for i := range tiles.RasterSize {
		for _, at := range [][2]int{{i, 0}, {0, i}, {i, i}} {
			m.SetColorIndex(at[0], at[1], 1)
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zip(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// WriteMBTiles writes an MBTiles file of a format: pbf or png.
func WriteMBTiles(t testing.TB, path, format string, list map[tiles.ID][]byte) {
	t.Helper()
	conn, err := sqlite.OpenConn(path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run := func(statement string, args ...any) {
		t.Helper()
		if err := sqlitex.Execute(conn, statement, &sqlitex.ExecOptions{Args: args}); err != nil {
			t.Fatal(err)
		}
	}
	run("CREATE TABLE metadata (name TEXT, value TEXT)")
	run("CREATE TABLE tiles (zoom_level INTEGER, tile_column INTEGER, tile_row INTEGER, tile_data BLOB)")
	run("INSERT INTO metadata VALUES ('format', ?), ('attribution', ?)", format, Attribution)
	for id, body := range list {
		run("INSERT INTO tiles VALUES (?, ?, ?, ?)", id.Z, id.X, 1<<id.Z-1-id.Y, body)
	}
}

// WritePMTiles writes a PMTiles file: see [PMTiles].
func WritePMTiles(t testing.TB, path string, list map[tiles.ID][]byte, perLeaf int) {
	t.Helper()
	if err := os.WriteFile(path, PMTiles(t, list, perLeaf), 0o600); err != nil {
		t.Fatal(err)
	}
}

// PMTiles returns a PMTiles file of gzipped vector tiles or of PNG tiles. Each leaf directory has at
// most perLeaf entries; 0: the root has all.
func PMTiles(t testing.TB, list map[tiles.ID][]byte, perLeaf int) []byte {
	t.Helper()
	type entry struct{ id, run, length, offset uint64 }
	var entries []entry
	var data []byte
	zoom := 0
	byNumber := make(map[uint64]tiles.ID)
	for id := range list {
		byNumber[tiles.Hilbert(id)] = id
		zoom = max(zoom, id.Z)
	}
	for _, n := range slices.SortedFunc(maps.Keys(byNumber), cmp.Compare) {
		body := list[byNumber[n]]
		entries = append(entries, entry{n, 1, uint64(len(body)), uint64(len(data))})
		data = append(data, body...)
	}
	directory := func(list []entry) []byte {
		b := binary.AppendUvarint(nil, uint64(len(list)))
		var last uint64
		for _, e := range list {
			b = binary.AppendUvarint(b, e.id-last)
			last = e.id
		}
		for _, e := range list {
			b = binary.AppendUvarint(b, e.run)
		}
		for _, e := range list {
			b = binary.AppendUvarint(b, e.length)
		}
		for i, e := range list {
			if i > 0 && e.offset == list[i-1].offset+list[i-1].length {
				b = append(b, 0)
			} else {
				b = binary.AppendUvarint(b, e.offset+1)
			}
		}
		return zip(t, b)
	}
	var leaves []byte
	root := entries
	if perLeaf > 0 {
		root = nil
		for part := range slices.Chunk(entries, perLeaf) {
			leaf := directory(part)
			root = append(root, entry{part[0].id, 0, uint64(len(leaf)), uint64(len(leaves))})
			leaves = append(leaves, leaf...)
		}
	}
	packed := directory(root)
	metadata := zip(t, []byte(`{"attribution":`+quoted(Attribution)+`}`))
	header := make([]byte, 127)
	copy(header, "PMTiles\x03")
	at := uint64(len(header))
	for i, part := range [][]byte{packed, metadata, leaves, data} {
		binary.LittleEndian.PutUint64(header[8+16*i:], at)
		binary.LittleEndian.PutUint64(header[16+16*i:], uint64(len(part)))
		at += uint64(len(part))
	}
	header[96], header[97], header[98], header[99], header[101] = 1, 2, 2, 1, byte(zoom)
	if bytes.HasPrefix(data, []byte("\x89PNG")) {
		header[98], header[99] = 1, 2
	}
	for i, degrees := range []float64{-180, -85, 180, 85} {
		binary.LittleEndian.PutUint32(header[102+4*i:], uint32(int32(math.Round(degrees*1e7))))
	}
	return slices.Concat(header, packed, metadata, leaves, data)
}

func quoted(text string) string {
	return `"` + string(bytes.ReplaceAll([]byte(text), []byte(`"`), []byte(`\"`))) + `"`
}
