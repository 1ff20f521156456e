package fleet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
)

// TestNearLists compares lists by distance with a model where vehicles are spread unevenly: a town,
// a depot of a few meters, a stack at one position, and single vehicles in the country and at the
// pole. Points are in them, beside them and far away.
func TestNearLists(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	m := newMaker(5)
	f := &filler{t: t, db: d}
	var all []*Vehicle
	spread := func(count int, lat, lng, degrees float64) {
		for range count {
			v := m.vehicle()
			if v.State == Missing && m.IntN(10) > 0 {
				v.State = Available
			}
			at := geo.Position{Lat: max(-90, min(90, lat+m.NormFloat64()*degrees)), Lng: lng + m.NormFloat64()*degrees}
			v.Location = &geo.Position{Lat: geo.Degrees(geo.Millionths(at.Lat)), Lng: geo.Degrees(geo.Millionths(at.Lng))}
			all = append(all, v)
			f.vehicle(v)
		}
	}
	spread(900, 52.5, 13.4, 0.005)   // the town
	spread(600, 52.52, 13.43, 5e-5)  // the depot
	spread(500, 52.49, 13.38, 0)     // the stack
	spread(150, 52.5, 13.4, 0.2)     // the country
	spread(60, 89.9999, 0, 0.01)     // the pole
	spread(60, 0, 179.999_5, 0.0001) // the antimeridian, on one side
	spread(60, 0, -179.999_5, 0.0001)
	f.flush()
	points := []geo.Circle{
		{Lat: 52.5, Lng: 13.4}, {Lat: 52.503, Lng: 13.396}, {Lat: 52.513, Lng: 13.41}, {Lat: 52.48, Lng: 13.45}, // in and around the town
		{Lat: 52.52, Lng: 13.43}, {Lat: 52.5203, Lng: 13.43}, {Lat: 52.53, Lng: 13.46}, // depot
		{Lat: 52.49, Lng: 13.38}, {Lat: 52.4901, Lng: 13.3801}, {Lat: 52.47, Lng: 13.35}, // stack
		{Lat: 52.3, Lng: 13.1}, {Lat: 52.8, Lng: 13.9}, {Lat: 48.1, Lng: 11.6},
		{Lat: 90, Lng: 0}, {Lat: 89.99, Lng: 120}, {Lat: 0, Lng: 180}, {Lat: 0.0001, Lng: -179.9999},
	}
	count := 170
	if testing.Short() {
		count = 51
	}
	for n := range count {
		near := points[n%len(points)]
		near.RadiusMeters = pick(m, 20.0, 200, 2000, 50_000, 50_000)
		q := VehicleQuery{
			Near: &near, State: pick(m, nil, nil, nil, []VehicleState{Missing}, []VehicleState{Available, OnTrip}),
			Sort: keyset.Sort{Field: "distance", Descending: m.IntN(4) == 0}, Limit: pick(m, 1, 20, 100, 100),
		}
		l := listing{
			name: fmt.Sprintf("%+v of %v, by %+v, pages of %d", near, q.State, q.Sort, q.Limit), descending: q.Sort.Descending, limit: q.Limit,
			items: func() (items []item) {
				for _, v := range all {
					distance := geo.Distance(near.Lat, near.Lng, v.Location.Lat, v.Location.Lng)
					if distance <= near.RadiusMeters && (q.State == nil || slices.Contains(q.State, v.State)) {
						items = append(items, item{id: v.ID, value: distance, distance: distance})
					}
				}
				return items
			},
			page: func(after *keyset.Cursor) ([]Record, *keyset.Cursor, error) {
				q := q
				q.After = after
				return s.ListVehicles(t.Context(), d, testOrg, q)
			},
			each: func(fn func(*Record) error) error { return s.EachVehicle(t.Context(), testOrg, q, fn) },
		}
		l.check(t, func() {})
	}
}
