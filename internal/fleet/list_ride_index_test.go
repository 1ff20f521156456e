package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet/rideindex"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/tariff"

	"golang.org/x/sync/errgroup"
)

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
	if err := s.rideIndex.Maintain(t.Context(), testOrg); err != nil {
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

// TestListsDuringCompaction: several nodes maintain the index during changes and lists.
func TestListsDuringCompaction(t *testing.T) {
	d := dbtest.NewFleet(t)
	nodes := []*Service{newService(t, d), Open(Config{DB: d}), Open(Config{DB: d})}
	f, m := &filler{t: t, db: d}, newMaker(12)
	all := make([]*Ride, 200)
	stay := make(map[string]bool) // have a start position and do not change
	for i := range all {
		all[i] = m.ride()
		f.ride(all[i])
		if i%4 == 0 && all[i].StartLocation != nil {
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
				if err := s.rideIndex.Maintain(ctx, testOrg); err != nil {
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
				return nodes[0].indexRide(ctx, tx, testOrg, was.columns(), is.columns())
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
	if err := s.rideIndex.Maintain(t.Context(), testOrg); err != nil {
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
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	small(s)
	s.rideLists.export = 1000 // so that exports use segments
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
	if err := s.rideIndex.Maintain(t.Context(), testOrg); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, d, "DELETE FROM ride_tiles WHERE n = 0")
	list := func() error {
		return s.EachRide(t.Context(), testOrg, RideQuery{Box: &geo.Box{MinLng: 13, MinLat: 52, MaxLng: 14, MaxLat: 53}}, func(*Record) error { return nil })
	}
	if err := list(); !errors.Is(err, rideindex.ErrDamaged) {
		t.Errorf("a list: got %v, want %v", err, rideindex.ErrDamaged)
	}
	add(30)
	mustWrite(t, d, "INSERT INTO settings (organization_id, revision, stamp, clock_offset, doc) VALUES ('zzz', 1, 1, 0, '{}')")
	mustWrite(t, d, "INSERT INTO untiled_rides SELECT 'zzz', start_cell, id, revision, subaccount_id, status, trip_type, pricing_plan_id, payment_status, start_zone_id, "+
		"updated_at, started_at, ended_at, total_amount, duration_seconds FROM untiled_rides")
	if err := s.packPending(t.Context()); !errors.Is(err, rideindex.ErrDamaged) {
		t.Errorf("moving rides: got %v, want %v", err, rideindex.ErrDamaged)
	}
	if err := list(); !errors.Is(err, rideindex.ErrDamaged) {
		t.Errorf("a list after others were moved: got %v, want %v", err, rideindex.ErrDamaged)
	}
	var left int
	if err := d.QueryRow(t.Context(), "SELECT count(*) FROM untiled_rides WHERE organization_id = 'zzz'").Scan(&left); err != nil || left > 0 {
		t.Errorf("another organization: got %d rides that were not moved, %v", left, err)
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
		r.Status, r.StartedAt, r.pauseAt, r.DurationSeconds, r.PausedSeconds = status, rfc3339.Time(started), rfc3339.Time{}, 0, 7
		r.VehicleID, r.CustomerID = "veh_"+string(status), NullString("cus_"+status)
		r.Metadata = map[string]string{"duration_seconds": "1", "a": `,"paused_seconds":9,`, "paused_seconds": "3"}
		if status == Paused {
			r.pauseAt = rfc3339.Time(started.Add(time.Minute))
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
