package track_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/fleet/track"
)

const noon = int64(1_770_000_000_000)

// random returns a report with some of the fields, at a time of the segment of noon.
func random(r *rand.Rand) track.Report {
	p := track.Report{At: track.Start(noon) + r.Int64N(track.Period.Milliseconds())}
	for f := track.Lat; f <= track.Shift; f++ {
		if r.IntN(3) > 0 {
			p.Set(f, r.Int64N(1000)-500)
		}
	}
	if r.IntN(20) == 0 {
		p.Set(track.Shift, math.MinInt64/4)
	}
	return p
}

// TestSegments: a segment holds the inserted reports, in order and once, also after encoding.
func TestSegments(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var s track.Segment
		var model []track.Report
		for range r.IntN(60) {
			p := random(r)
			if len(model) > 0 && r.IntN(4) == 0 {
				p = model[r.IntN(len(model))] // a duplicate
				if r.IntN(2) == 0 {
					p.Set(track.Battery, r.Int64N(5)) // another one at the same time, perhaps
				}
			}
			known := slices.Contains(model, p)
			if s.Has(&p) != known {
				t.Fatalf("has a known report (%v): got %v", known, !known)
			}
			if got := s.Insert(p); got == known {
				t.Fatalf("insert of a known report (%v): got %v", known, got)
			}
			if !known {
				model = append(model, p)
			}
		}
		slices.SortStableFunc(model, func(a, b track.Report) int { return int(a.At - b.At) })
		if !slices.Equal(s, model) {
			t.Fatalf("got %v\nwant %v", s, model)
		}
		encoded := s.Append(nil, track.Start(noon))
		got, err := track.Segment(nil).Decode(encoded, track.Start(noon))
		if err != nil || !slices.Equal(got, model) {
			t.Fatalf("decoded %v, %v\nwant %v", got, err, model)
		}
		for n := range encoded {
			if _, err := track.Segment(nil).Decode(encoded[:n], track.Start(noon)); err == nil {
				t.Fatalf("the first %d of %d bytes are a segment", n, len(encoded))
			}
		}
	}
}

// TestCorrected: a report is a duplicate also if the correction of the tracker's clock has changed.
func TestCorrected(t *testing.T) {
	by := func(ahead, battery int64) *track.Report {
		p := &track.Report{At: noon - ahead}
		p.Set(track.Battery, battery)
		if ahead != 0 {
			p.Set(track.Shift, ahead)
		}
		return p
	}
	for _, stored := range []int64{0, 3000, 5000} {
		s := track.Segment{*by(stored, 70)}
		if !s.Has(by(4000, 70)) {
			t.Errorf("corrected by %d ms, then by 4000: two reports", stored)
		}
		if s.Has(by(4000, 71)) {
			t.Errorf("corrected by %d ms, then by 4000: one report of two levels", stored)
		}
		later := by(4000, 70)
		if later.At++; s.Has(later) {
			t.Errorf("corrected by %d ms, then by 4000: one report of two times", stored)
		}
	}
}

// TestSize: the bytes per report of a scooter that rides, and of one that stands.
func TestSize(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for name, c := range map[string]struct{ step, most int64 }{"riding": {25_000, 10}, "standing": {0, 4}} {
		var s track.Segment
		lat, lng := int64(52_520_008), int64(13_404_954)
		for i := range int64(180) {
			p := track.Report{At: track.Start(noon) + i*5000}
			if c.step > 0 {
				lat, lng = lat+r.Int64N(300), lng+r.Int64N(300)
				p.Set(track.Speed, 180+r.Int64N(20))
			}
			p.Set(track.Lat, lat)
			p.Set(track.Lng, lng)
			p.Set(track.Battery, 80)
			s.Insert(p)
		}
		if n := int64(len(s.Append(nil, track.Start(noon)))) / int64(len(s)); n > c.most {
			t.Errorf("%s: got %d bytes a report, want at most %d", name, n, c.most)
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	var s track.Segment
	for range 5 {
		s.Insert(random(r))
	}
	f.Add(s.Append(nil, 0))
	f.Add([]byte{1, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := track.Segment(nil).Decode(text, 0); err == nil && len(got) > len(text) {
			t.Errorf("%d reports in %d bytes", len(got), len(text))
		}
	})
}

// at returns a report at a second and a position in meters north and east of the equator's zero.
func at(second int64, north, east float64) track.Report {
	const millionths = 1e6 / 111_195.08
	p := track.Report{At: second * 1000}
	p.Set(track.Lat, int64(math.Round(north*millionths)))
	p.Set(track.Lng, int64(math.Round(east*millionths)))
	return p
}

func TestPath(t *testing.T) {
	inaccurate := at(20, 900, 0)
	inaccurate.Set(track.Accuracy, 2000)
	for name, c := range map[string]struct {
		reports []track.Report
		want    int64
		known   bool
	}{
		"away and back":                {[]track.Report{at(0, 0, 0), at(5, 3, 0), at(10, 300, 0), at(15, 2, 0), at(20, 100, 0)}, 100, true},
		"away and back, slowly":        {[]track.Report{at(0, 0, 0), at(120, 300, 0), at(240, 2, 0)}, 598, true},
		"away at the end":              {[]track.Report{at(0, 0, 0), at(10, 100, 0), at(15, 400, 0)}, 400, true},
		"out of reach after a stop":    {[]track.Report{at(0, 0, 0), at(300, 3, 0), at(305, 5000, 0), at(310, 3, 0)}, 0, true},
		"first out of reach":           {[]track.Report{at(0, 8000, 0), at(5, 0, 0), at(15, 100, 0), at(25, 200, 0)}, 200, true},
		"first out of reach, standing": {[]track.Report{at(0, 8000, 0), at(5, 0, 0), at(15, 2, 0), at(2000, 0, 0)}, 0, true},
		"second out of reach":          {[]track.Report{at(0, 0, 0), at(5, 8000, 0), at(15, 100, 0), at(25, 200, 0)}, 200, true},
		"the first two out of reach":   {[]track.Report{at(0, 8000, 0), at(5, -8000, 0), at(15, 0, 0), at(25, 100, 0)}, 100, true},
		"all out of reach":             {[]track.Report{at(0, 8000, 0), at(5, 0, 0)}, 0, false},
		"nothing":                      {nil, 0, false},
		"one position":                 {[]track.Report{at(0, 0, 0)}, 0, false},
		"around a corner":              {[]track.Report{at(0, 0, 0), at(10, 100, 0), at(20, 100, 200)}, 300, true},
		"scatter":                      {[]track.Report{at(0, 0, 0), at(10, 3, 0), at(20, -3, 0), at(30, 2, 2)}, 0, true},
		"slowly":                       {[]track.Report{at(0, 0, 0), at(10, 6, 0), at(20, 12, 0), at(30, 18, 0), at(40, 24, 0)}, 24, true},
		"a jump":                       {[]track.Report{at(0, 0, 0), at(10, 100, 0), at(15, 90_000, 0), at(20, 200, 0)}, 200, true},
		"an inaccurate one":            {[]track.Report{at(0, 0, 0), at(10, 100, 0), inaccurate, at(30, 200, 0)}, 200, true},
		"without position":             {[]track.Report{at(0, 0, 0), {At: 5000}, at(10, 100, 0)}, 100, true},
	} {
		var p track.Path
		for i := range c.reports {
			p.Add(&c.reports[i])
		}
		if got, known := p.Meters(); got != c.want || known != c.known {
			t.Errorf("%s: got %d, %v; want %d, %v", name, got, known, c.want, c.known)
		}
	}
}

// TestPathSpeed: a vehicle reaches what its speed allows.
func TestPathSpeed(t *testing.T) {
	for speed, want := range map[float64]int64{0: 1200, 60: 1200, 30: 600, 9: 300} {
		p := track.Path{MaxSpeed: speed}
		for _, r := range []track.Report{at(0, 0, 0), at(40, 300, 0), at(50, 600, 0), at(60, 1200, 0)} {
			p.Add(&r)
		}
		if got, known := p.Meters(); got != want || !known {
			t.Errorf("%.0f meters per second: got %d, %v; want %d", speed, got, known, want)
		}
	}
}

func TestSimplify(t *testing.T) {
	list := []track.Report{at(0, 0, 0), at(1, 50, 2), at(2, 100, 0), {At: 2500}, at(3, 100, 60), at(4, 99, 100), at(5, 100, 200)}
	var seconds []int64
	for _, p := range track.Simplify(list, 5) {
		seconds = append(seconds, p.At/1000)
	}
	if !slices.Equal(seconds, []int64{0, 2, 5}) {
		t.Errorf("got the reports of the seconds %v", seconds)
	}
	if got := track.Simplify(list, 0); len(got) != 6 {
		t.Errorf("0 meters: got %d reports, want all 6 with a position", len(got))
	}
}

// TestSimplifyMany: a long line is simplified in pieces, whose ends stay.
func TestSimplifyMany(t *testing.T) {
	var list []track.Report
	for i := range int64(4500) {
		list = append(list, at(i, 0, float64(i)))
	}
	var seconds []int64
	for _, p := range track.Simplify(list, 5) {
		seconds = append(seconds, p.At/1000)
	}
	if !slices.Equal(seconds, []int64{0, 1000, 2000, 3000, 4000, 4499}) {
		t.Errorf("got the reports of the seconds %v", seconds)
	}
}
