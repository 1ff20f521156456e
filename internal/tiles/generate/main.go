// Command generate writes the data of the built-in map of package tiles from data of Natural
// Earth (public domain): coastlines and borders as in world-atlas 2.0.2, a package of npm, and
// ne_10m_populated_places_simple.geojson, the populated places of naturalearthdata.com.
//
//	npm pack world-atlas@2.0.2   # unpack it
//	go run ./internal/tiles/generate WORLD-ATLAS PLACES.GEOJSON internal/tiles/data
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// step is the resolution of lines in degrees.
const step = 0.005

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: generate WORLD-ATLAS PLACES.GEOJSON TARGET")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(atlas, populated, target string) error {
	lines, err := world(filepath.Join(atlas, "countries-50m.json"))
	if err != nil {
		return err
	}
	if err := write(filepath.Join(target, "world.bin.gz"), lines); err != nil {
		return err
	}
	places, err := places(populated)
	if err != nil {
		return err
	}
	return write(filepath.Join(target, "places.tsv.gz"), places)
}

// write compresses a file, the same for the same content.
func write(name string, content []byte) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(content); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// topology is the part of a TopoJSON file that is read.
type topology struct {
	Transform struct{ Scale, Translate [2]float64 }
	Arcs      [][][2]int
	Objects   struct {
		Land, Countries struct {
			Geometries []struct {
				Type string
				Arcs json.RawMessage
			}
		}
	}
}

// point is a position in steps.
type point struct{ lng, lat int64 }

// world returns the rings of land, then the borders between countries.
func world(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var t topology
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	arcs := make([][]point, len(t.Arcs))
	for i, arc := range t.Arcs {
		var x, y int
		for _, d := range arc {
			x, y = x+d[0], y+d[1]
			degrees := func(axis, n int) int64 {
				return int64(math.Round((float64(n)*t.Transform.Scale[axis] + t.Transform.Translate[axis]) / step))
			}
			arcs[i] = append(arcs[i], point{degrees(0, x), degrees(1, y)})
		}
	}
	var rings [][]point
	for _, g := range t.Objects.Land.Geometries {
		list, err := ringsOf(g.Type, g.Arcs)
		if err != nil {
			return nil, err
		}
		for _, ring := range list {
			var line []point
			for _, n := range ring {
				part := slices.Clone(arcs[max(n, ^n)])
				if n < 0 {
					slices.Reverse(part)
				}
				line = append(line, part...)
			}
			rings = append(rings, line)
		}
	}
	// An arc of two countries is a border.
	uses := make(map[int]int)
	for _, g := range t.Objects.Countries.Geometries {
		if g.Arcs == nil {
			continue
		}
		list, err := ringsOf(g.Type, g.Arcs)
		if err != nil {
			return nil, err
		}
		for _, n := range slices.Concat(list...) {
			uses[max(n, ^n)]++
		}
	}
	var borders [][]point
	for i, arc := range arcs {
		if uses[i] > 1 {
			borders = append(borders, arc)
		}
	}
	var b []byte
	for _, list := range [][][]point{rings, borders} {
		var kept [][]point
		for _, line := range list {
			if line = slices.Compact(line); len(line) > 1 {
				kept = append(kept, line)
			}
		}
		b = binary.AppendUvarint(b, uint64(len(kept)))
		for _, line := range kept {
			b = binary.AppendUvarint(b, uint64(len(line)))
			var last point
			for _, p := range line {
				b = binary.AppendVarint(b, p.lng-last.lng)
				b = binary.AppendVarint(b, p.lat-last.lat)
				last = p
			}
		}
	}
	return b, nil
}

// ringsOf returns the rings of a geometry as numbers of arcs.
func ringsOf(kind string, arcs json.RawMessage) ([][]int, error) {
	var polygons [][][]int
	switch kind {
	case "Polygon":
		polygons = make([][][]int, 1)
		if err := json.Unmarshal(arcs, &polygons[0]); err != nil {
			return nil, err
		}
	case "MultiPolygon":
		if err := json.Unmarshal(arcs, &polygons); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("a geometry is a %s", kind)
	}
	return slices.Concat(polygons...), nil
}

// place is a populated place.
type place struct {
	name, country string
	others        []string // other names
	population    int
	lng, lat      float64
}

// collection is the part of a GeoJSON file of populated places that is read.
type collection struct {
	Features []struct {
		Properties struct {
			Name       string
			NamePar    string // the name in its own language, or nearly
			NameAlt    string // further names
			Country    string `json:"iso_a2"`
			Territory  string `json:"adm0_a3"`
			Population int    `json:"pop_max"` // with suburbs; 0 or less: deserted or unknown
		}
		Geometry struct{ Coordinates [2]float64 }
	}
}

// countries are ISO 3166 codes of territories for which the data has none; XK is in common use.
var countries = map[string]string{"CYN": "CY", "KOS": "XK", "SOL": "SO"}

// places returns the inhabited places by population, from the largest, as lines of name,
// country, latitude, longitude, population and other names, which "|" separates.
func places(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var c collection
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var list []place
	for _, f := range c.Features {
		of := f.Properties
		if of.Population <= 0 {
			continue
		}
		p := place{name: clean(of.Name), country: of.Country, population: of.Population, lng: f.Geometry.Coordinates[0], lat: f.Geometry.Coordinates[1]}
		if p.country == "-99" {
			p.country = countries[of.Territory]
		}
		if p.name == "" || len(p.country) != 2 {
			return nil, fmt.Errorf("%s: the place %q of %s has no name or no country", name, of.Name, of.Territory)
		}
		for _, other := range strings.FieldsFunc(of.NamePar+"|"+of.NameAlt, func(r rune) bool { return r == '|' || r == ',' }) {
			// Shorter ones are remains of names with lost letters.
			if other = clean(other); utf8.RuneCountInString(other) > 2 && other != p.name && !slices.Contains(p.others, other) {
				p.others = append(p.others, other)
			}
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.population, a.population), strings.Compare(a.name, b.name), cmp.Compare(a.lng, b.lng))
	})
	var b bytes.Buffer
	for _, p := range list {
		fmt.Fprintf(&b, "%s\t%s\t%.2f\t%.2f\t%d\t%s\n", p.name, p.country, p.lat, p.lng, p.population, strings.Join(p.others, "|"))
	}
	return b.Bytes(), nil
}

// clean returns a name without spaces and marks of direction around it.
func clean(name string) string {
	return strings.TrimFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
}
