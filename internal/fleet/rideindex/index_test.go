package rideindex

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/geo"

	"github.com/oklog/ulid/v2"
)

const testOrg = "org_01KKNTQ222EMQ8K9W39QSAEKF4"

// smallSizes are so small that every path is taken.
var smallSizes = Sizes{Segment: 8, Flush: 10, Round: 80, Level0: 40, Level1Run: 64}

// rideSet has the current entries of an index under test.
type rideSet struct {
	*rand.Rand
	index *Index
	all   []Entry
}

func newRideSet(t *testing.T, seed uint64) *rideSet {
	return &rideSet{rand.New(rand.NewPCG(seed, 7)), New(dbtest.NewFleet(t), smallSizes), nil}
}

// entry returns a new entry, in a city or anywhere, with ids in ascending order, some of
// them with the same high half.
func (s *rideSet) entry() Entry {
	e := Entry{id: joinHalves(int64(7+len(s.all)/5), int64(len(s.all))), revision: 1}
	lat, lng := 52_500_000+s.Int64N(20_000), 13_400_000+s.Int64N(20_000)
	if s.IntN(8) == 0 {
		lat, lng = s.Int64N(180_000_001)-90_000_000, s.Int64N(360_000_001)-180_000_000
	}
	e.cell = geo.CellAt(lat, lng)
	for c := range e.texts {
		e.texts[c] = []string{"a", "b", "c"}[s.IntN(3)]
	}
	if s.IntN(3) == 0 {
		e.texts[len(e.texts)-1] = "" // NULL
	}
	for c := range e.values {
		e.values[c] = s.Int64N(20) // many rides share a value
	}
	return e
}

// add adds a ride.
func (s *rideSet) add(ctx context.Context) error {
	e := s.entry()
	s.all = append(s.all, e)
	return s.update(ctx, nil, &e)
}

// change changes a ride, in most cases without its place.
func (s *rideSet) change(ctx context.Context) error {
	i := s.IntN(len(s.all))
	before, after := s.all[i], s.entry()
	after.id, after.revision = before.id, before.revision+1
	if s.IntN(4) > 0 {
		after.cell = before.cell
	}
	s.all[i] = after
	return s.update(ctx, &before, &after)
}

func (s *rideSet) update(ctx context.Context, before, after *Entry) error {
	return s.index.db.Write(ctx, func(tx *db.Tx) error { return s.index.UpdateTx(ctx, tx, testOrg, before, after) })
}

// check fails the test unless each ride has its current entry in one place, within the size
// limits. It returns the number of runs of level 1.
func (s *rideSet) check(t *testing.T) int {
	t.Helper()
	ctx := t.Context()
	pending, err := db.All(ctx, s.index.db, scanEntry, "SELECT start_cell, id, revision, subaccount_id, status, trip_type, pricing_plan_id, payment_status, start_zone_id, "+
		"updated_at, started_at, ended_at, total_amount, duration_seconds FROM untiled_rides WHERE organization_id = $1", testOrg)
	if err != nil {
		t.Fatal(err)
	}
	if len(pending) >= s.index.sizes.Flush {
		t.Errorf("%d rides are pending, want less than %d", len(pending), s.index.sizes.Flush)
	}
	runs, err := runsOf(ctx, s.index.db, testOrg)
	if err != nil {
		t.Fatal(err)
	}
	entries := slices.Clone(pending)
	var level0 []run
	var level1 []interval
	inLevel1 := make(map[ulid.ULID]bool)
	for _, r := range runs {
		rides, err := s.index.readRuns(ctx, testOrg, []run{r})
		if err != nil {
			t.Fatalf("entries of a run: %v", err)
		}
		entries = append(entries, rides...)
		if r.level == 0 {
			level0 = append(level0, r)
			continue
		}
		ids := emptyInterval
		for _, e := range rides {
			high, _ := idHalves(e.id)
			ids = ids.with(high)
			if inLevel1[e.id] {
				t.Errorf("%s has two entries in level 1", e.id)
			}
			inLevel1[e.id] = true
		}
		level1 = append(level1, ids)
	}
	if n := ridesIn(level0); n >= s.index.sizes.Level0 {
		t.Errorf("%d rides are in level 0, want less than %d", n, s.index.sizes.Level0)
	}
	slices.SortFunc(level1, func(a, b interval) int { return int(a.min - b.min) })
	for i := 1; i < len(level1); i++ {
		if level1[i].min <= level1[i-1].max {
			t.Errorf("runs of level 1 overlap: %v", level1)
		}
	}
	latest := make(map[ulid.ULID][]Entry) // entries with the highest revision
	for _, e := range entries {
		if old := latest[e.id]; len(old) == 0 || old[0].revision < e.revision {
			latest[e.id] = []Entry{e}
		} else if old[0].revision == e.revision {
			latest[e.id] = append(old, e)
		}
	}
	for _, want := range s.all {
		if got := latest[want.id]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: got the latest entries %v, want %v", want.id, got, want)
		}
	}
	return len(level1)
}

func TestNewEntry(t *testing.T) {
	columns := map[string]any{
		"id": "ride_01KKNTQ222EMQ8K9W39QSAEKF4", "revision": int64(3), "start_cell": int64(77), "subaccount_id": "sub", "status": "completed", "trip_type": "rider",
		"pricing_plan_id": nil, "payment_status": "paid", "start_zone_id": "zone", "updated_at": int64(5), "started_at": int64(1), "ended_at": int64(4), "total_amount": int64(0), "duration_seconds": int64(9),
	}
	got, err := NewEntry(func(column string) any {
		v, ok := columns[column]
		if !ok {
			t.Errorf("NewEntry asks for %s", column)
		}
		return v
	})
	want := Entry{ulid.MustParse("01KKNTQ222EMQ8K9W39QSAEKF4"), 3, 77, [...]string{"sub", "completed", "rider", "", "paid", "zone"}, [...]int64{5, 1, 4, 0, 9}}
	if err != nil || got != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	columns["id"] = "veh_01KKNTQ222EMQ8K9W39QSAEKF4"
	if _, err := NewEntry(func(column string) any { return columns[column] }); err == nil {
		t.Error("the id of a vehicle is accepted")
	}
}

// TestDeleteTx: deleting an organization's index leaves nothing of it, and other
// organizations' as they are.
func TestDeleteTx(t *testing.T) {
	s := newRideSet(t, 13)
	ctx := t.Context()
	for i := range 200 {
		if err := s.add(ctx); err != nil {
			t.Fatal(err)
		}
		if i == 100 {
			if err := s.index.Maintain(ctx, testOrg); err != nil {
				t.Fatal(err)
			}
		}
	}
	e := s.entry()
	err := s.index.db.Write(ctx, func(tx *db.Tx) error {
		if err := s.index.UpdateTx(ctx, tx, "org_2", nil, &e); err != nil {
			return err
		}
		if err := s.index.LockTx(ctx, tx, testOrg); err != nil {
			return err
		}
		return s.index.DeleteTx(ctx, tx, testOrg)
	})
	if err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]int{"untiled_rides": 1, "ride_layers": 0, "ride_tiles": 0} {
		var n int
		if err := s.index.db.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != want {
			t.Errorf("%s: got %d rows, %v; want %d", table, n, err, want)
		}
	}
}

// TestLoader: loaded rides are in level 1, in runs of the right size.
func TestLoader(t *testing.T) {
	s := newRideSet(t, 16)
	ctx := t.Context()
	load := s.index.NewLoader(testOrg)
	for range 2*smallSizes.Level1Run + 5 {
		e := s.entry()
		s.all = append(s.all, e)
		if err := load.Add(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := load.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	runs, err := runsOf(ctx, s.index.db, testOrg)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		got = append(got, fmt.Sprintf("%d in level %d", r.rides, r.level))
	}
	slices.Sort(got)
	if want := []string{"5 in level 1", "64 in level 1", "64 in level 1"}; !slices.Equal(got, want) {
		t.Errorf("got runs of %v, want %v", got, want)
	}
}
