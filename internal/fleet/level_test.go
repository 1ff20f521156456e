package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/tariff"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"
)

// randomEntries returns n entries with integers of every width.
func randomEntries(random *rand.Rand, n int) []rideEntry {
	rides := make([]rideEntry, n)
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

// TestRideIndexLevels: with inserts, changes, flushes and compaction, each ride has its
// entry in the right place.
func TestRideIndexLevels(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	small(s)
	f, m := &filler{t: t, db: d}, newMaker(11)
	var all []*Ride
	biggest := 0
	for range 60 {
		for range 10 {
			r := m.ride()
			all = append(all, r)
			f.ride(r)
		}
		f.flush()
		for range 3 {
			i := m.IntN(len(all))
			is := m.ride()
			f.change(all[i], is)
			all[i] = is
		}
		if err := s.maintainRideIndex(t.Context(), testOrg); err != nil {
			t.Fatal(err)
		}
		level1 := checkRideIndex(t, s, all)
		biggest = max(biggest, level1)
	}
	if biggest < 3 {
		t.Errorf("got %d runs of level 1, want several", biggest)
	}
}

// TestFarBounds: times and ids in queries can be greater than any of a ride.
func TestFarBounds(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	small(s)
	f, m := &filler{t: t, db: d}, newMaker(12)
	placed := 0
	for range 100 {
		r := m.ride()
		if f.ride(r); r.StartLocation != nil {
			placed++
		}
	}
	f.flush()
	if err := s.maintainRideIndex(t.Context(), testOrg); err != nil {
		t.Fatal(err)
	}
	count := func(q RideQuery) int {
		t.Helper()
		q.Box, q.Limit = &geo.Box{MinLng: -180, MinLat: -90, MaxLng: 180, MaxLat: 90}, 100
		docs, _, err := s.ListRides(t.Context(), d, testOrg, q)
		if err != nil {
			t.Fatal(err)
		}
		return len(docs)
	}
	for _, year := range []int{2100, 6500, 9999} {
		at := time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC)
		if got := count(RideQuery{CreatedAt: period.Range{High: &at}}); got != placed {
			t.Errorf("until %d: got %d rides, want %d", year, got, placed)
		}
		if got := count(RideQuery{CreatedAt: period.Range{Low: &at}}); got != 0 {
			t.Errorf("from %d on: got %d rides, want none", year, got)
		}
	}
	for _, id := range []string{"ride_40000000000000000000000000", "ride_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"} {
		if got := count(RideQuery{After: &keyset.Cursor{ID: id}}); got != placed {
			t.Errorf("after %s: got %d rides, want %d", id, got, placed)
		}
	}
}

// TestLevel1Split: ids with the same high half stay in one run of level 1.
func TestLevel1Split(t *testing.T) {
	s := Open(Config{})
	small(s)
	var rides []rideEntry
	for i := range int64(10 * s.indexSizes.level1Run) {
		rides = append(rides, rideEntry{id: joinHalves(7+i/40, i+1), revision: 1, cell: i})
	}
	var level1 []level1Run
	runOf := make(map[ulid.ULID]int)
	for n, l := range s.packLevel1(rides) {
		zoneMaps, err := parseZoneMaps(l.zoneMaps)
		if err != nil {
			t.Fatal(err)
		}
		h := level1Run{l.run, emptyInterval}
		for _, x := range zoneMaps {
			h.ids = h.ids.with(x.ids.min).with(x.ids.max)
		}
		level1 = append(level1, h)
		for _, packed := range l.segments {
			list, err := packed.unpack()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list {
				runOf[p.id] = n
			}
		}
	}
	if len(level1) < 3 || len(runOf) != len(rides) {
		t.Fatalf("got %d runs of %d rides, want several of %d", len(level1), len(runOf), len(rides))
	}
	for id, want := range runOf {
		if got := s.level1RunOf(level1, id); got != want {
			t.Fatalf("run of %s: got %d, want %d", id, got, want)
		}
	}
}

// checkRideIndex fails the test unless each ride has its entry in the right place. It
// returns the number of runs of level 1.
func checkRideIndex(t *testing.T, s *Service, all []*Ride) int {
	t.Helper()
	ctx := t.Context()
	pending, err := db.All(ctx, s.db, func(row db.Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, "SELECT id FROM untiled_rides WHERE organization_id = $1", testOrg)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := runsOf(ctx, s.db, testOrg)
	if err != nil {
		t.Fatal(err)
	}
	type version struct {
		id       string
		revision int64
	}
	places := make(map[version]int)
	indexed := make(map[string]int64) // latest revision
	inLevel1 := make(map[string]int)
	var level1 []interval
	level0 := 0
	for i, l := range runs {
		rides, there, err := s.readRuns(ctx, testOrg, runs[i:i+1])
		if err != nil || !there {
			t.Fatalf("rides of a run: %v, %v", there, err)
		}
		if l.level == 0 {
			level0 += l.rides
		}
		ids := emptyInterval
		for _, p := range rides {
			id := rideID(p.id)
			places[version{id, p.revision}]++
			indexed[id] = max(indexed[id], p.revision)
			if l.level == 1 {
				high, _ := idHalves(p.id)
				ids = ids.with(high)
				inLevel1[id]++
			}
		}
		if l.level == 1 {
			level1 = append(level1, ids)
		}
	}
	if level0 >= s.indexSizes.level0 {
		t.Errorf("%d rides are in level 0, want less than %d", level0, s.indexSizes.level0)
	}
	for id, n := range inLevel1 {
		if n != 1 {
			t.Errorf("%s is in %d runs of level 1", id, n)
		}
	}
	slices.SortFunc(level1, func(a, b interval) int { return int((a.min - b.min) >> 16) })
	for i := 1; i < len(level1); i++ {
		if level1[i].min <= level1[i-1].max {
			t.Errorf("runs of level 1 overlap: %v", level1)
		}
	}
	pendingCount := 0
	for _, r := range all {
		loose := slices.Contains(pending, r.ID)
		n := places[version{r.ID, r.revision}]
		switch {
		case !indexable(r.columns()):
			if loose || n > 0 {
				t.Errorf("%s is %s, at %v, and pending: %v, indexed: %d times", r.ID, r.Status, r.StartLocation, loose, n)
			}
		case loose:
			pendingCount++
			fallthrough
		default:
			if loose == (n == 1) || n > 1 || indexed[r.ID] > r.revision {
				t.Errorf("%s is closed at revision %d, and pending: %v, indexed: %d times, at revision %d", r.ID, r.revision, loose, n, indexed[r.ID])
			}
		}
	}
	if pendingCount >= s.indexSizes.flush {
		t.Errorf("%d rides are pending, want less than %d", pendingCount, s.indexSizes.flush)
	}
	return len(level1)
}

// TestConcurrentCompaction: several nodes maintain the index during changes and lists.
func TestConcurrentCompaction(t *testing.T) {
	d := dbtest.NewFleet(t)
	nodes := []*Service{newService(t, d), Open(Config{DB: d}), Open(Config{DB: d})}
	f, m := &filler{t: t, db: d}, newMaker(12)
	all := make([]*Ride, 200)
	stay := make(map[string]bool) // have a start position and do not change
	for i := range all {
		all[i] = m.ride()
		f.ride(all[i])
		if i%4 == 0 && valueOf(all[i].columns(), "start_cell") != nil {
			stay[all[i].ID] = true
		}
	}
	f.flush()
	box := geo.Box{MinLng: -180, MinLat: -90, MaxLng: 180, MaxLat: 90}
	g, ctx := errgroup.WithContext(t.Context())
	changing, changed := context.WithCancel(ctx)
	for _, s := range nodes {
		small(s)
		g.Go(func() error {
			for changing.Err() == nil {
				if err := s.maintainRideIndex(ctx, testOrg); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error { // each ride with a start is listed once
		for changing.Err() == nil {
			seen := make(map[string]bool)
			err := nodes[0].EachRide(ctx, testOrg, RideQuery{Box: &box}, func(d *Record) error {
				if seen[d.ID] {
					return fmt.Errorf("%s is listed twice", d.ID)
				}
				seen[d.ID] = true
				return nil
			})
			if err != nil {
				return err
			}
			for id := range stay {
				if !seen[id] {
					return fmt.Errorf("%s is not listed", id)
				}
			}
		}
		return nil
	})
	g.Go(func() error {
		defer changed()
		for range 300 {
			i := m.IntN(len(all))
			was, is := all[i], m.ride()
			if i%4 == 0 {
				continue
			}
			if is.StartLocation == nil && was.StartLocation != nil {
				continue // a start position is never removed
			}
			is.RecordHeader, is.CreatedAt, is.revision, is.vehicleTypeID = was.RecordHeader, was.CreatedAt, was.revision+1, was.vehicleTypeID
			var err error
			if is.doc, err = encode(is); err != nil {
				return err
			}
			err = d.Write(ctx, func(tx *db.Tx) error {
				if err := updateRow(ctx, tx, "rides", testOrg, is.ID, was.columns(), is.columns()); err != nil {
					return err
				}
				return indexRide(ctx, tx, testOrg, was.columns(), is.columns())
			})
			if err != nil {
				return err
			}
			all[i] = is
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // rides added after the last check
		if err := nodes[0].maintainRideIndex(t.Context(), testOrg); err != nil {
			t.Fatal(err)
		}
	}
	checkRideIndex(t, nodes[0], all)
}

// TestRideIndexDeleted: deleting the data of an organization deletes its index.
func TestRideIndexDeleted(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	small(s)
	f, m := &filler{t: t, db: d}, newMaker(13)
	for range 200 {
		f.ride(m.ride())
	}
	f.flush()
	if err := s.maintainRideIndex(t.Context(), testOrg); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return s.deleteAll(t.Context(), tx, testOrg) }); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"untiled_rides", "ride_layers", "ride_tiles"} {
		var n int
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d rows are left, %v", table, n, err)
		}
	}
	docs, _, err := s.ListRides(t.Context(), d, testOrg, RideQuery{Box: &geo.Box{MinLng: -180, MinLat: -90, MaxLng: 180, MaxLat: 90}})
	if err != nil || len(docs) > 0 {
		t.Errorf("got %d rides, %v; want none", len(docs), err)
	}
}

// TestDamagedSegment: lists and compaction report a damaged segment instead of omitting
// rides, and other organizations are still maintained.
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
			d := dbtest.NewFleet(t)
			s := newService(t, d)
			small(s)
			s.indexSizes.export = 1000 // so that exports use segments
			f, m := &filler{t: t, db: d}, newMaker(14)
			add := func(n int) {
				for range n {
					r := m.ride()
					r.Status, r.StartedAt, r.StartLocation = Completed, rfc3339.Time(testNow.Add(time.Minute)), &geo.Position{Lat: 52.5, Lng: 13.4}
					r.EndedAt, r.Price, r.PaymentStatus = r.StartedAt, &tariff.Price{Currency: "EUR"}, "paid"
					f.ride(r)
				}
				f.flush()
			}
			add(30) // segments of 8, 8, 8 and 6
			if err := s.maintainRideIndex(t.Context(), testOrg); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, d, damage)
			list := func() error {
				return s.EachRide(t.Context(), testOrg, RideQuery{Box: &geo.Box{MinLng: 13, MinLat: 52, MaxLng: 14, MaxLat: 53}}, func(*Record) error { return nil })
			}
			if err := list(); !errors.Is(err, errSegment) {
				t.Errorf("a list: got %v, want %v", err, errSegment)
			}
			add(30)
			mustWrite(t, d, "INSERT INTO settings (organization_id, revision, stamp, clock_offset, doc) VALUES ('zzz', 1, 1, 0, '{}')")
			mustWrite(t, d, "INSERT INTO untiled_rides SELECT 'zzz', start_cell, id, revision, subaccount_id, status, trip_type, pricing_plan_id, payment_status, start_zone_id, "+
				"updated_at, started_at, ended_at, total_amount, duration_seconds FROM untiled_rides")
			if err := s.packPending(t.Context()); !errors.Is(err, errSegment) {
				t.Errorf("moving rides: got %v, want %v", err, errSegment)
			}
			if err := list(); !errors.Is(err, errSegment) {
				t.Errorf("a list after others were moved: got %v, want %v", err, errSegment)
			}
			var left int
			if err := d.QueryRow(t.Context(), "SELECT count(*) FROM untiled_rides WHERE organization_id = 'zzz'").Scan(&left); err != nil || left > 0 {
				t.Errorf("another organization: got %d rides that were not moved, %v", left, err)
			}
		})
	}
}

// TestFreshLists: a list returns the current durations of open rides, and leaves metadata
// with the same names unchanged.
func TestFreshLists(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	f, m := &filler{t: t, db: d}, newMaker(15)
	started := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	rides := make(map[string]*Ride)
	for _, status := range []RideStatus{Reserved, Active, Paused, Completed} {
		r := m.ride()
		r.Status, r.StartedAt, r.pausedAt, r.DurationSeconds, r.PausedSeconds = status, rfc3339.Time(started), rfc3339.Time{}, 0, 7
		r.VehicleID, r.CustomerID = "veh_"+string(status), NullString("cus_"+status)
		r.Metadata = map[string]string{"duration_seconds": "1", "a": `,"paused_seconds":9,`, "paused_seconds": "3"}
		if status == Paused {
			r.pausedAt = rfc3339.Time(started.Add(time.Minute))
		}
		rides[r.ID] = r
		f.ride(r)
	}
	f.flush()
	check := func(doc *Record) error {
		var got Ride
		if err := json.Unmarshal(doc.JSON, &got); err != nil {
			return err
		}
		// The list was read within the last minute.
		r := rides[doc.ID]
		want := r.asOf(started.Add(time.Duration(got.DurationSeconds) * time.Second))
		if text, err := encode(&want); err != nil || string(text) != string(doc.JSON) {
			t.Errorf("%s: got %s, want %s, %v", r.Status, doc.JSON, text, err)
		}
		if open := r.Status == Active || r.Status == Paused; open && (got.DurationSeconds < 3600 || got.DurationSeconds > 3660) {
			t.Errorf("%s: it lasts %d seconds, want an hour", r.Status, got.DurationSeconds)
		}
		delete(rides, doc.ID)
		return nil
	}
	docs, _, err := s.ListRides(t.Context(), d, testOrg, RideQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range docs {
		if err := check(&docs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if len(rides) > 0 {
		t.Errorf("not listed: %v", rides)
	}
}
