package fleet

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// TestCountVehicles compares with a count of each vehicle, also across the
// antimeridian and at the poles.
func TestCountVehicles(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	m := newMaker(7)
	f := &filler{t: t, db: d}
	type standing struct {
		at    geo.Position
		state VehicleState
	}
	var all []standing
	places := []geo.Position{{Lat: 52.5, Lng: 13.4}, {Lat: 0, Lng: 180}, {Lat: 0, Lng: -180}, {Lat: 89.99, Lng: 20}, {Lat: -90, Lng: 0}, {Lat: 90, Lng: 180}}
	for i := range 1200 {
		v := &Vehicle{Code: fmt.Sprint("c", i), State: []VehicleState{Available, OnTrip, Missing}[i%3], VehicleTypeID: "vt_1"}
		p := places[i%len(places)]
		if i >= len(places) {
			p.Lat = min(90, max(-90, p.Lat+m.NormFloat64()*0.01))
			p.Lng = math.Remainder(p.Lng+m.NormFloat64()*0.01, 360)
		}
		p.Lat, p.Lng = geo.Degrees(geo.Millionths(p.Lat)), geo.Degrees(geo.Millionths(p.Lng))
		v.Location = &p
		v.RecordHeader = RecordHeader{ID: newID(vehiclePrefix, testNow.Add(time.Duration(i)*time.Second), &entropy{m.Uint64()}), SubaccountID: "sub_1"}
		v.UpdatedAt = rfc3339.Time(testNow)
		f.vehicle(v)
		all = append(all, standing{p, v.State})
	}
	f.flush()
	has := func(b geo.Box, p geo.Position) bool {
		return slices.ContainsFunc(b.Rects(), func(r geo.Rect) bool { return r.Contains(geo.Millionths(p.Lat), geo.Millionths(p.Lng)) })
	}
	for _, box := range []geo.Box{
		{MinLng: -180, MinLat: -90, MaxLng: 180, MaxLat: 90}, {MinLng: 13, MinLat: 52, MaxLng: 14, MaxLat: 53}, {MinLng: 13.39, MinLat: 52.49, MaxLng: 13.401, MaxLat: 52.511}, {MinLng: 179.99, MinLat: -0.02, MaxLng: -179.99, MaxLat: 0.01},
		{MinLng: 170, MinLat: -10, MaxLng: 180, MaxLat: 10}, {MinLng: -180, MinLat: 89.9, MaxLng: 180, MaxLat: 90}, {MinLng: -10, MinLat: -90, MaxLng: 10, MaxLat: -89.99}, {MinLng: 13.4, MinLat: 52.5, MaxLng: 13.4, MaxLat: 52.5}, {MinLng: 100, MinLat: 10, MaxLng: 101, MaxLat: 11},
	} {
		for _, most := range []int{1, 40, 700} {
			for _, states := range [][]VehicleState{nil, {OnTrip}, {Available, Missing}} {
				squares, err := s.CountVehicles(t.Context(), d, testOrg, box, VehicleFilter{State: states}, most)
				if err != nil {
					t.Fatal(err)
				}
				if len(squares) > most {
					t.Errorf("%v: %d squares, want %d at most", box, len(squares), most)
				}
				in := func(p geo.Position) int {
					n := 0
					for _, c := range squares {
						// The far edges belong to the next square.
						if p.Lng >= c.Box.MinLng && p.Lng < c.Box.MaxLng && p.Lat >= c.Box.MinLat && p.Lat < c.Box.MaxLat {
							n++
						}
					}
					return n
				}
				want, sum := int64(0), int64(0)
				for _, v := range all {
					wanted := states == nil || slices.Contains(states, v.state)
					switch n := in(v.at); {
					case n > 1:
						t.Fatalf("%v: %v is in %d squares", box, v.at, n)
					case wanted && has(box, v.at) && n == 0:
						t.Fatalf("%v %v: %v is in no square", box, states, v.at)
					case wanted && n == 1:
						want++
					}
				}
				for _, c := range squares {
					sum += c.Count
					if c.Count < 1 || c.ID == "" || c.Box.MaxLng-c.Box.MinLng <= 0 || math.Abs((c.Box.MaxLng-c.Box.MinLng)-(c.Box.MaxLat-c.Box.MinLat)) > 1e-9 {
						t.Errorf("%v: got %+v", box, c)
					}
				}
				if sum != want {
					t.Errorf("%v, %d squares, %v: counted %d, want %d", box, most, states, sum, want)
				}
			}
		}
	}
	if _, err := s.CountVehicles(t.Context(), d, testOrg, geo.Box{MinLng: 0, MinLat: 50, MaxLng: 10, MaxLat: 40}, VehicleFilter{}, 10); problem.Of(err) != problem.Invalid {
		t.Errorf("upside down: got %v", err)
	}
	if got, err := s.CountVehicles(t.Context(), d, "org_other", geo.Box{MinLng: -180, MinLat: -90, MaxLng: 180, MaxLat: 90}, VehicleFilter{}, 10); err != nil || len(got) != 0 {
		t.Errorf("another organization: got %v, %v", got, err)
	}
	counts, err := s.CountStates(t.Context(), d, testOrg)
	if err != nil || len(counts) != 3 || counts[OnTrip] != 400 {
		t.Errorf("got %v, %v", counts, err)
	}
}

// TestChanged: Config.Changed is called after the commit, and not after a rollback.
func TestChanged(t *testing.T) {
	d := dbtest.NewFleet(t)
	var told []string
	s := Open(Config{DB: d, Changed: func(organizationID, kind, id string) { told = append(told, organizationID+" "+kind+" "+id) }})
	if err := s.Provision(t.Context(), Organization{ID: testOrg, Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	subs, err := s.SubaccountIDs(t.Context(), d, testOrg)
	if err != nil {
		t.Fatal(err)
	}
	told = nil
	area := geo.Area{}
	if err := area.UnmarshalJSON([]byte(`{"type":"Polygon","coordinates":[[[1,1],[2,1],[2,2],[1,1]]]}`)); err != nil {
		t.Fatal(err)
	}
	var z Zone
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		z, err = s.CreateZoneTx(t.Context(), tx, testOrg, NewZone{SubaccountID: subs[0], Name: "Mitte", Type: Parking, Geometry: area})
		if len(told) != 0 {
			t.Errorf("told before the commit: %q", told)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{testOrg + " zone " + z.ID}; !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
	told = nil
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		if err := s.DeleteZoneTx(t.Context(), tx, testOrg, z.ID); err != nil {
			return err
		}
		return problem.New(problem.Conflict, "no")
	}); problem.Of(err) != problem.Conflict {
		t.Fatal(err)
	}
	if len(told) != 0 {
		t.Errorf("told of what was not done: %q", told)
	}
}

// BenchmarkCountVehicles counts a whole city.
func BenchmarkCountVehicles(b *testing.B) {
	s := cityService(b)
	box := geo.Box{MinLng: 13.2, MinLat: 52.4, MaxLng: 13.6, MaxLat: 52.6}
	for b.Loop() {
		if _, err := s.CountVehicles(b.Context(), s.db, testOrg, box, VehicleFilter{}, 700); err != nil {
			b.Fatal(err)
		}
	}
}
