package rideindex

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// randomEntries returns n entries with integers of every width.
func randomEntries(random *rand.Rand, n int) []Entry {
	rides := make([]Entry, n)
	for i := range rides {
		p := &rides[i]
		for b := range p.id {
			p.id[b] = byte(random.Uint32())
		}
		p.revision, p.cell = 1+random.Int64N(9), random.Int64N(1<<58)
		for c := range p.texts {
			p.texts[c] = []string{"", "paid", "zone_01KKNTQ222EMQ8K9W39QSAEKF4", "Ü"}[random.IntN(4)]
		}
		for c := range p.values {
			p.values[c] = []int64{0, -5, 100, 1 << 62, random.Int64() - 1<<62}[random.IntN(5)]
		}
	}
	return rides
}

func TestSegment(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 2))
	for n := range 40 {
		rides := randomEntries(random, n)
		if n%3 == 1 { // all alike, but for the id
			for i := range rides {
				rides[i].cell, rides[i].texts, rides[i].values = rides[0].cell, rides[0].texts, rides[0].values
			}
		}
		packed := packSegment(rides)
		got, err := packed.unpack()
		if err != nil || !slices.Equal(got, rides) {
			t.Fatalf("%d rides: got %v, %v; want %v", n, got, err, rides)
		}
		segments, zoneMaps := packSegments(rides, 7)
		if want := (n + 6) / 7; len(segments) != want || len(zoneMaps) != want {
			t.Fatalf("%d rides: got %d segments of 7, want %d", n, len(segments), want)
		}
		again, err := parseZoneMaps(packZoneMaps(zoneMaps))
		if err != nil || len(again) != len(zoneMaps) || n > 0 && !reflect.DeepEqual(again, zoneMaps) {
			t.Fatalf("%d rides: zone maps: got %v, %v; want %v", n, again, err, zoneMaps)
		}
	}
}

// FuzzSegment: decoding a damaged segment returns an error or valid entries.
func FuzzSegment(f *testing.F) {
	random := rand.New(rand.NewPCG(4, 2))
	for _, n := range []int{0, 1, 20} {
		rides := randomEntries(random, n)
		_, zoneMaps := packSegments(rides, 3)
		p := packSegment(rides)
		f.Add(p.cells, p.facts, p.ids, packZoneMaps(zoneMaps))
	}
	f.Fuzz(func(t *testing.T, cells, facts, ids, text []byte) {
		packed := packedSegment{cells, facts, ids}
		if rides, err := packed.unpack(); err == nil {
			packed = packSegment(rides)
			if got, err := packed.unpack(); err != nil || !slices.Equal(got, rides) {
				t.Fatalf("got %v, %v; want %v", got, err, rides)
			}
		}
		if parsed, err := packed.parse(); err == nil {
			var v predicate
			v.texts[0] = []string{"sub"}
			v.matchFilters(parsed, v.matchArea(nil, parsed, &zoneMap{}))
		}
		if zoneMaps, err := parseZoneMaps(text); err == nil {
			if again, err := parseZoneMaps(packZoneMaps(zoneMaps)); err != nil || !slices.Equal(again, zoneMaps) {
				t.Fatalf("got %v, %v; want %v", again, err, zoneMaps)
			}
		}
	})
}
