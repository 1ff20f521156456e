package rideindex

import (
	"context"
	"fmt"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"
)

// TestLevels: with inserts, changes, flushes and compaction, each ride has its current entry
// in one place.
func TestLevels(t *testing.T) {
	s := newRideSet(t, 11)
	ctx := t.Context()
	most := 0
	for range 60 {
		for range 10 {
			if err := s.add(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if err := s.change(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.index.Maintain(ctx, testOrg); err != nil {
			t.Fatal(err)
		}
		most = max(most, s.check(t))
	}
	if most < 3 {
		t.Errorf("got %d runs of level 1, want several", most)
	}
}

// TestLevel1Split: ids with the same high half stay in one run of level 1.
func TestLevel1Split(t *testing.T) {
	x := New(nil, smallSizes)
	var rides []Entry
	for i := range int64(10 * smallSizes.Level1Run) {
		rides = append(rides, Entry{id: joinHalves(7+i/40, i+1), revision: 1, cell: i})
	}
	var level1 []level1Run
	runOf := make(map[ulid.ULID]int)
	for n, r := range x.packLevel1(rides) {
		zoneMaps, err := parseZoneMaps(r.zoneMaps)
		if err != nil {
			t.Fatal(err)
		}
		level1 = append(level1, level1Run{r.run, idsOf(zoneMaps)})
		for _, packed := range r.segments {
			list, err := packed.unpack()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				runOf[e.id] = n
			}
		}
	}
	if len(level1) < 3 || len(runOf) != len(rides) {
		t.Fatalf("got %d runs of %d rides, want several of %d", len(level1), len(runOf), len(rides))
	}
	for id, want := range runOf {
		if got := x.runFor(level1, id); got != want {
			t.Fatalf("run of %s: got %d, want %d", id, got, want)
		}
	}
}

// TestConcurrentMaintenance: several processes maintain an index during changes and
// searches.
func TestConcurrentMaintenance(t *testing.T) {
	s := newRideSet(t, 12)
	for range 200 {
		if err := s.add(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	g, ctx := errgroup.WithContext(t.Context())
	changing, changed := context.WithCancel(ctx)
	for _, x := range []*Index{s.index, New(s.index.db, smallSizes), New(s.index.db, smallSizes)} {
		g.Go(func() error {
			for changing.Err() == nil {
				if err := x.Maintain(ctx, testOrg); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error { // each ride is found in every snapshot
		for changing.Err() == nil {
			found := make(map[string]bool)
			err := s.index.db.Read(ctx, func(tx *db.Tx) error {
				search, err := s.index.Search(ctx, tx, &ListSpec{OrganizationID: testOrg, Area: []geo.Rect{geo.World}})
				if err != nil {
					return err
				}
				hits, err := search.Next(ctx, noLimit, nil)
				for _, h := range hits {
					found[h.ID] = true
				}
				return err
			})
			if err != nil {
				return err
			}
			if len(found) != 200 {
				return fmt.Errorf("%d rides are found, want 200", len(found))
			}
		}
		return nil
	})
	g.Go(func() error {
		defer changed()
		for range 300 {
			if err := s.change(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // rides changed after the last check
		if err := s.index.Maintain(t.Context(), testOrg); err != nil {
			t.Fatal(err)
		}
	}
	s.check(t)
}
