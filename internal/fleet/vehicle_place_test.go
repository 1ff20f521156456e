package fleet

import (
	"context"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/geo"
)

// TestPlacesOfPreviousVersion moves a vehicle as a program without places does.
func TestPlacesOfPreviousVersion(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	f, m := &filler{t: t, db: d}, newMaker(1)
	v := m.vehicle()
	v.Location, v.State = &geo.Position{Lat: 52.5, Lng: 13.4}, Available
	f.vehicle(v)
	f.flush()
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE vehicles SET cell = $1", geo.CellAt(48_100_000, 11_500_000))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.placeVehicles(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := func(lat, lng float64) int {
		t.Helper()
		list, _, err := s.ListVehicles(t.Context(), d, testOrg, VehicleQuery{Box: &geo.Box{MinLng: lng - 0.01, MinLat: lat - 0.01, MaxLng: lng + 0.01, MaxLat: lat + 0.01}})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if got := found(52.5, 13.4); got != 0 {
		t.Errorf("vehicles at the old place: got %d, want 0", got)
	}
	if got := found(48.1, 11.5); got != 1 {
		t.Errorf("vehicles at the new place: got %d, want 1", got)
	}
}

// TestMisplacedVehiclesAreFoundByIndex checks that a start does not read all vehicles.
func TestMisplacedVehiclesAreFoundByIndex(t *testing.T) {
	d := dbtest.NewFleetSQLite(t)
	detail, err := db.One(context.Background(), d, func(row db.Row) (detail string, err error) {
		var id, parent, unused int64
		err = row.Scan(&id, &parent, &unused, &detail)
		return detail, err
	}, "EXPLAIN QUERY PLAN SELECT 1 FROM vehicles WHERE "+misplaced)
	if err != nil || !strings.Contains(detail, "vehicles_misplaced") {
		t.Errorf("got %q, %v", detail, err)
	}
}
