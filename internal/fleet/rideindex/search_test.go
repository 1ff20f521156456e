package rideindex

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"

	"github.com/oklog/ulid/v2"
)

// spec returns a list of about half of the rides.
func (s *rideSet) spec() *ListSpec {
	l := &ListSpec{OrganizationID: testOrg, Descending: s.IntN(2) == 0}
	half := s.Int64N(20_000)
	l.Area = []geo.Rect{{MinLat: 52_510_000 - half, MinLng: 13_410_000 - half, MaxLat: 52_510_000 + half, MaxLng: 13_410_000 + half}}
	if s.IntN(3) == 0 {
		l.Area = append(l.Area, geo.Rect{MinLat: 0, MinLng: 0, MaxLat: 90_000_000, MaxLng: 13_300_000})
	}
	if c := s.IntN(2 * len(intColumns)); c < len(intColumns) {
		l.SortBy = intColumns[c]
	}
	if s.IntN(3) == 0 {
		l.Filters = append(l.Filters, Filter{Column: textColumns[s.IntN(len(textColumns))], Values: []string{"a", "c"}[:1+s.IntN(2)]})
	}
	if s.IntN(3) == 0 {
		low := s.Int64N(15)
		l.Filters = append(l.Filters, Filter{Column: intColumns[s.IntN(len(intColumns))], Low: low, High: low + s.Int64N(10)})
	}
	if s.IntN(3) == 0 {
		l.FirstID, l.LastID = s.idBound(), s.idBound()
	}
	return l
}

// idBound returns a bound of ids: the least id with a high half, or one beyond all ids.
func (s *rideSet) idBound() string {
	switch s.IntN(5) {
	case 0:
		return idPrefix
	case 1:
		return idPrefix + "~"
	}
	return formatID(joinHalves(int64(7+s.IntN(len(s.all)/5+1)), 0))
}

// matches returns the hits of a list by checking every entry.
func (s *rideSet) matches(l *ListSpec) []Hit {
	var hits []Hit
	for _, e := range s.all {
		if id := formatID(e.id); l.matches(&e) && (l.FirstID == "" || id >= l.FirstID && id < l.LastID) {
			h := Hit{ID: id, Revision: e.revision}
			if l.SortBy != "" {
				h.Value = e.values[slices.Index(intColumns[:], l.SortBy)]
			}
			hits = append(hits, h)
		}
	}
	slices.SortFunc(hits, func(a, b Hit) int {
		order := cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.ID, b.ID))
		if l.Descending {
			return -order
		}
		return order
	})
	return hits
}

func (l *ListSpec) matches(e *Entry) bool {
	lat, lng := geo.CellPosition(e.cell)
	return slices.ContainsFunc(l.Area, func(r geo.Rect) bool { return r.Contains(lat, lng) }) && !slices.ContainsFunc(l.Filters, func(f Filter) bool {
		if c := slices.Index(textColumns[:], f.Column); c >= 0 {
			return !slices.Contains(f.Values, e.texts[c])
		}
		value := e.values[slices.Index(intColumns[:], f.Column)]
		return value < f.Low || value > f.High
	})
}

// TestSearch: a search returns the rides of a list in order, and besides them only stale
// hits, with any number of hits at a time and from any position.
func TestSearch(t *testing.T) {
	s := newRideSet(t, 21)
	ctx := t.Context()
	current := make(map[string]int64) // revisions
	for n := range 300 {
		for range 3 {
			if err := s.add(ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.change(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if n%3 == 0 {
			if err := s.index.Maintain(ctx, testOrg); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range s.all {
			current[formatID(e.id)] = e.revision
		}
		l := s.spec()
		want := s.matches(l)
		// Rides that are not in the index are merged in.
		var others []Hit
		want = slices.DeleteFunc(want, func(h Hit) bool {
			if s.IntN(50) > 0 {
				return false
			}
			h.Revision = Current
			others = append(others, h)
			return false
		})
		if len(want) > 1 && s.IntN(2) == 0 {
			at := s.IntN(len(want))
			l.After = &Hit{ID: want[at].ID, Value: want[at].Value}
			others = slices.DeleteFunc(others, func(h Hit) bool { return slices.ContainsFunc(want[:at+1], func(w Hit) bool { return w.ID == h.ID }) })
			want = want[at+1:]
		}
		limit := []int{1, 3, 50, noLimit}[s.IntN(4)]
		got, err := s.readAll(t, l, limit, others, current)
		if err != nil {
			t.Fatal(err)
		}
		ids := func(hits []Hit) (list []string) {
			for _, h := range hits {
				list = append(list, fmt.Sprintf("%d %s", h.Value, h.ID))
			}
			return list
		}
		if !slices.Equal(ids(got), ids(want)) {
			t.Fatalf("%+v, %d at a time: got %d rides\n%v\nwant %d\n%v", l, limit, len(got), ids(got), len(want), ids(want))
		}
	}
}

// readAll returns the hits of a list that are not stale.
func (s *rideSet) readAll(t *testing.T, l *ListSpec, limit int, others []Hit, current map[string]int64) ([]Hit, error) {
	var got []Hit
	err := s.index.db.Read(t.Context(), func(tx *db.Tx) error {
		search, err := s.index.Search(t.Context(), tx, l)
		if err != nil {
			return err
		}
		for {
			hits, err := search.Next(t.Context(), limit, others[:min(limit, len(others))])
			if err != nil {
				return err
			}
			for _, h := range hits {
				others = slices.DeleteFunc(others, func(o Hit) bool { return o.ID == h.ID })
				if h.Revision == Current || h.Revision == current[h.ID] {
					got = append(got, h)
				}
			}
			if len(hits) < limit {
				return nil
			}
		}
	})
	return got, err
}

func TestSearchPosition(t *testing.T) {
	x := newRideSet(t, 1).index
	for _, after := range []string{"", "veh_01KKNTQ222EMQ8K9W39QSAEKF4", "ride_", "ride_1"} {
		_, err := x.Search(t.Context(), x.db, &ListSpec{OrganizationID: testOrg, Area: []geo.Rect{geo.World}, After: &Hit{ID: after}})
		if !errors.Is(err, keyset.ErrCursor) {
			t.Errorf("after %q: got %v, want %v", after, err, keyset.ErrCursor)
		}
	}
}

func TestEstimate(t *testing.T) {
	s := newRideSet(t, 3)
	load := s.index.NewLoader(testOrg)
	for lat := range int64(8) { // the rows of a square, in one segment
		e := Entry{id: ulid.ULID{15: byte(lat)}, revision: 1, cell: geo.CellAt(lat, 0)}
		if err := load.Add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := load.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	search, err := s.index.Search(t.Context(), s.index.db, &ListSpec{OrganizationID: testOrg, Area: []geo.Rect{{MinLat: 2, MinLng: -5, MaxLat: 3, MaxLng: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	if all, inArea := search.Estimate(); all != 8 || inArea != 2 {
		t.Errorf("got %v of %v rides, want 2 of 8", inArea, all)
	}
}

// TestDamagedSegment: searches and compaction report a damaged segment instead of omitting
// rides.
func TestDamagedSegment(t *testing.T) {
	for name, damage := range map[string]string{
		"facts":   "UPDATE ride_tiles SET facts = ids",
		"ids":     "UPDATE ride_tiles SET ids = cells",
		"cells":   "UPDATE ride_tiles SET cells = ids",
		"missing": "DELETE FROM ride_tiles WHERE n = 0",
		"other":   "UPDATE ride_tiles SET cells = t.cells, facts = t.facts, ids = t.ids FROM ride_tiles t WHERE t.n = 0 AND ride_tiles.n = (SELECT max(n) FROM ride_tiles)",
		"extents": "UPDATE ride_layers SET rides = rides + 1",
	} {
		t.Run(name, func(t *testing.T) {
			s := newRideSet(t, 14)
			ctx := t.Context()
			add := func() {
				for range 30 { // segments of 8, 8, 8 and 6
					if err := s.add(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			add()
			if err := s.index.Maintain(ctx, testOrg); err != nil {
				t.Fatal(err)
			}
			if err := s.index.db.Write(ctx, func(tx *db.Tx) error { _, err := tx.Exec(ctx, damage); return err }); err != nil {
				t.Fatal(err)
			}
			_, err := s.readAll(t, &ListSpec{OrganizationID: testOrg, Area: []geo.Rect{geo.World}}, 100, nil, nil)
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("a search: got %v, want %v", err, ErrDamaged)
			}
			add()
			if err := s.index.Maintain(ctx, testOrg); !errors.Is(err, ErrDamaged) {
				t.Errorf("compaction: got %v, want %v", err, ErrDamaged)
			}
		})
	}
}
