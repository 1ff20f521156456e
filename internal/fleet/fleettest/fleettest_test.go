package fleettest

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIndependent: the model shares no code with the service, only the standard library.
func TestIndependent(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			if strings.Contains(spec.Path.Value, ".") {
				t.Errorf("%s imports %s", name, spec.Path.Value)
			}
		}
	}
}

// TestWorkedExamples compares prices with examples of fleet-api.md 8.
func TestWorkedExamples(t *testing.T) {
	minutes := func(rate int64) []Segment { return []Segment{{Rate: rate, Interval: 1}} }
	a := Plan{Unlock: 100, PerMinute: minutes(25)}
	f := a
	f.PausePerMinute = new(int64(10))
	g := a
	g.ReservePerMin, g.ReserveFreeMins, g.OutOfZone, g.Taxable, g.BasisPoints = new(int64(15)), 5, new(int64(1500)), true, 1900
	c := Plan{Unlock: 300, PerMinute: minutes(50), PerKilometer: minutes(25), Cap: &Cap{720, 1500}}
	d := Plan{Unlock: 130, PerMinute: []Segment{{30, 100, 15, nil}}, Cap: &Cap{720, 1800}}
	i := Plan{PerMinute: []Segment{{0, 20, 1, new(int64(60))}, {60, 300, 30, nil}}, PerKilometer: []Segment{{10, 100, 1, new(int64(25))}, {25, 50, 1, nil}, {25, 300, 5, nil}}}
	l := Plan{Unlock: 50, PerMinute: []Segment{{0, -100, 0, nil}, {0, 5, 1, nil}}}
	ridden := func(seconds, meters int64) Use { return Use{Ridden: true, Seconds: seconds, Meters: meters} }
	for n, tt := range []struct {
		plan Plan
		use  Use
		want int64
	}{
		{a, ridden(0, 0), 100}, {a, ridden(60, 0), 125}, {a, ridden(61, 0), 150}, {a, ridden(675, 0), 400},
		{c, ridden(1200, 4200), 1425}, {c, ridden(3600, 9000), 1500}, {c, ridden(1200, 30_000), 1500}, {c, ridden(750*60, 12_500), 3000},
		{d, ridden(1800, 0), 130}, {d, ridden(36_000, 0), 1800}, {d, ridden(13*3600, 0), 2200}, {d, ridden(720*60, 0), 1800}, {d, ridden(720*60+1, 0), 1900},
		{f, Use{Ridden: true, Seconds: 1500, Paused: 430}, 630}, {a, Use{Ridden: true, Seconds: 1500, Paused: 430}, 725},
		{g, Use{Ridden: true, Seconds: 600, Reserved: true, ReservedSeconds: 240, ReservableMinutes: 15}, 417},
		{g, Use{Ridden: true, Seconds: 600, Reserved: true, ReservedSeconds: 750, ReservableMinutes: 15}, 559},
		{g, Use{Reserved: true, ReservedSeconds: 900, ReservableMinutes: 15}, 179},
		{g, Use{Ridden: true, Seconds: 600, Outside: true}, 2202},
		{i, ridden(91*60, 26_000), 3650}, {i, ridden(61*60, 10_000), 1500}, {i, ridden(60, 10_001), 120}, {i, ridden(3600, 36_200), 4200},
		{l, ridden(300, 0), 0}, {l, ridden(1800, 0), 100},
	} {
		if got := tt.plan.PriceOf(tt.use); got.Total != tt.want {
			t.Errorf("example %d: got %+v, want %d", n, got, tt.want)
		}
	}
}
