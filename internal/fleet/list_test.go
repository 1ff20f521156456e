package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet/rideindex"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// item is a record of the naive list.
type item struct {
	id       string
	value    any // int64, float64 or string; nil: NULL
	distance float64
}

// inOrder is the order of a list.
func inOrder(descending bool) func(a, b item) int {
	return func(a, b item) int {
		if (a.value == nil) != (b.value == nil) {
			if a.value == nil {
				return 1
			}
			return -1
		}
		order := 0
		switch v := a.value.(type) {
		case int64:
			order = cmp.Compare(v, b.value.(int64))
		case float64:
			order = cmp.Compare(v, b.value.(float64))
		case string:
			order = strings.Compare(v, b.value.(string))
		}
		order = cmp.Or(order, strings.Compare(a.id, b.id))
		if descending {
			return -order
		}
		return order
	}
}

// listing is a list with its expected items.
type listing struct {
	name       string
	descending bool
	limit      int
	items      func() []item // matches in any order
	page       func(after *keyset.Cursor) ([]Record, *keyset.Cursor, error)
	each       func(fn func(*Record) error) error
}

// check reads all pages of a list, with changes in between.
func (l *listing) check(t *testing.T, change func()) {
	t.Helper()
	sorted := func() []item {
		items := l.items()
		slices.SortFunc(items, inOrder(l.descending))
		return items
	}
	var got []item
	if err := l.each(func(d *Record) error {
		got = append(got, item{id: d.ID, distance: d.Distance})
		return nil
	}); err != nil {
		t.Fatalf("%s: %v", l.name, err)
	}
	compareItems(t, l.name+", exported", got, sorted())
	var after *keyset.Cursor
	var last *item
	for n := 0; ; n++ {
		want := sorted()
		if last != nil {
			want = slices.DeleteFunc(want, func(i item) bool { return inOrder(l.descending)(i, *last) <= 0 })
		}
		more := len(want) > l.limit
		want = want[:min(len(want), l.limit)]
		docs, next, err := l.page(after)
		if err != nil {
			t.Fatalf("%s, page %d: %v", l.name, n, err)
		}
		got := make([]item, len(docs))
		for i, d := range docs {
			got[i] = item{id: d.ID, distance: d.Distance}
			var said struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal(d.JSON, &said); err != nil || said.ID != d.ID {
				t.Fatalf("%s: document of %s: got %s, %v", l.name, d.ID, d.JSON, err)
			}
		}
		compareItems(t, fmt.Sprintf("%s, page %d", l.name, n), got, want)
		if (next != nil) != more {
			t.Fatalf("%s, page %d: got a next page %v, want %v", l.name, n, next != nil, more)
		}
		if next == nil || n > 8 {
			return
		}
		text, err := json.Marshal(next)
		if err != nil {
			t.Fatal(err)
		}
		after = new(keyset.Cursor)
		if err := json.Unmarshal(text, after); err != nil {
			t.Fatal(err)
		}
		last = &want[len(want)-1]
		change()
	}
}

func compareItems(t *testing.T, what string, got, want []item) {
	t.Helper()
	if slices.EqualFunc(got, want, func(a, b item) bool { return a.id == b.id && a.distance == b.distance }) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i].id != want[i].id || got[i].distance != want[i].distance {
			t.Fatalf("%s: got %d records, want %d; first difference at %d:\ngot  %v\nwant %v", what, len(got), len(want), i, got[i:min(len(got), i+3)], want[i:min(len(want), i+3)])
		}
	}
}

// optionally returns a subset of values, mostly empty.
func optionally[T any](m *maker, values ...T) []T {
	if m.IntN(4) > 0 {
		return nil
	}
	m.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	return values[:1+m.IntN(min(3, len(values)))]
}

func (m *maker) during() period.Range {
	if m.IntN(5) > 0 {
		return period.Range{}
	}
	low := testNow.Add(time.Duration(m.IntN(3600*40)) * time.Millisecond * 500)
	high := low.Add(time.Duration(m.IntN(200)) * time.Minute)
	if m.IntN(4) == 0 { // an extreme bound
		high = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		low = pick(m, low, high.AddDate(-3000, 0, 0))
	}
	r := period.Range{Low: &low, High: &high, LowOpen: m.IntN(2) == 0, HighOpen: m.IntN(2) == 0}
	switch m.IntN(3) {
	case 0:
		r.Low = nil
	case 1:
		r.High = nil
	}
	return r
}

func (m *maker) among(most int64) Integers {
	if m.IntN(5) > 0 {
		return Integers{}
	}
	r := Integers{Low: new(m.Int64N(most)), High: new(m.Int64N(most * 2))}
	if m.IntN(3) == 0 {
		r.Low = nil
	}
	return r
}

func (m *maker) box() *geo.Box {
	return pick(m, nil, nil, nil, &geo.Box{MinLng: 13.38, MinLat: 52.49, MaxLng: 13.42, MaxLat: 52.52}, &geo.Box{MinLng: 13.4000001, MinLat: 52.5000001, MaxLng: 13.4000002, MaxLat: 52.5000002}, &geo.Box{MinLng: -180, MinLat: -90, MaxLng: 180, MaxLat: 90}, &geo.Box{MinLng: 179.9, MinLat: -1, MaxLng: -179.8, MaxLat: 1}, &geo.Box{MinLng: -180, MinLat: -1, MaxLng: -179.9, MaxLat: 1},
		&geo.Box{MinLng: 170, MinLat: -90, MaxLng: 180, MaxLat: -90}, &geo.Box{MinLng: 13.4, MinLat: 52.5, MaxLng: 13.4, MaxLat: 52.5}, &geo.Box{MinLng: 13, MinLat: 52, MaxLng: 13.4, MaxLat: 53}, &geo.Box{MinLng: 0, MinLat: 89, MaxLng: 20, MaxLat: 90}, &geo.Box{MinLng: 13.5, MinLat: 52, MaxLng: 13.4, MaxLat: 53})
}

func (m *maker) near() *geo.Circle {
	return pick(m, nil, nil, &geo.Circle{Lat: 52.5, Lng: 13.4, RadiusMeters: 1000}, &geo.Circle{Lat: 52.51, Lng: 13.42, RadiusMeters: 5000}, &geo.Circle{Lat: 52.5, Lng: 13.4, RadiusMeters: 50_000}, &geo.Circle{Lat: 0.1, Lng: 179.95, RadiusMeters: 50_000}, &geo.Circle{Lat: 0, Lng: -180, RadiusMeters: 20_000},
		&geo.Circle{Lat: 90, Lng: 0, RadiusMeters: 1000}, &geo.Circle{Lat: -89.99, Lng: 77, RadiusMeters: 50_000}, &geo.Circle{Lat: 52.5, Lng: 13.4, RadiusMeters: 0}, &geo.Circle{Lat: 0, Lng: 0, RadiusMeters: 50_000})
}

// small sets budgets and sizes of the ride index so small that every path is taken.
func small(s *Service) {
	s.budget = scanBudget{{5, 20}, {10, 40}, {40, 100}, {80, 240}}
	s.rideIndex = rideindex.New(s.db, rideindex.Sizes{Segment: 8, Flush: 10, Round: 80, Level0: 40, Level1Run: 64})
	s.rideLists = rideListLimits{open: 3, export: 20}
}

func has[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

func in(r period.Range, t rfc3339.Time) bool {
	return r.Whole() || !t.Std().IsZero() && r.Contains(t.Std())
}

func inIntegers(r Integers, n *int64) bool {
	return r.Low == nil && r.High == nil || n != nil && (r.Low == nil || *n >= *r.Low) && (r.High == nil || *n <= *r.High)
}

func inBoxOf(b *geo.Box, p *geo.Position) bool {
	return b == nil || p != nil && slices.ContainsFunc(b.Rects(), func(r geo.Rect) bool { return r.Contains(geo.Millionths(p.Lat), geo.Millionths(p.Lng)) })
}

func micros(t rfc3339.Time) any {
	if t.Std().IsZero() {
		return nil
	}
	return t.Std().UnixMicro()
}

func lists(t *testing.T, run func(t *testing.T, s *Service, d *db.DB, m *maker)) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := dbtest.NewFleet(t)
			s := newService(t, d)
			if seed > 0 {
				small(s)
			}
			run(t, s, d, newMaker(seed))
		})
	}
}

// rounds is the number of random lists per database.
const rounds = 60

func TestVehicleLists(t *testing.T) {
	lists(t, func(t *testing.T, s *Service, d *db.DB, m *maker) {
		f := &filler{t: t, db: d}
		square, err := areaFrom(`{"type":"Polygon","coordinates":[[[13.38,52.48],[13.42,52.48],[13.4,52.53],[13.38,52.48]],[[13.395,52.49],[13.40,52.50],[13.405,52.49],[13.395,52.49]]]}`)
		if err != nil {
			t.Fatal(err)
		}
		across, err := areaFrom(`{"type":"MultiPolygon","coordinates":[[[[179.8,-0.5],[180,-0.5],[180,0.5],[179.8,0.5],[179.8,-0.5]]],[[[-180,-0.5],[-179.9,-0.5],[-179.9,0.5],[-180,0.5],[-180,-0.5]]]]}`)
		if err != nil {
			t.Fatal(err)
		}
		areas := map[string]geo.Area{"zone_a": square, "zone_b": across}
		for id, a := range areas {
			z := &Zone{RecordHeader: RecordHeader{ID: id, SubaccountID: "sub_0"}, Name: id, Type: Parking, Geometry: a}
			f.zone(z)
		}
		var all []*Vehicle
		add := func() {
			v := m.vehicle()
			all = append(all, v)
			f.vehicle(v)
		}
		for range 300 {
			add()
		}
		f.flush()
		change := func() {
			switch m.IntN(3) {
			case 0:
				add()
				f.flush()
			case 1:
				at := m.IntN(len(all))
				mustWrite(t, d, "DELETE FROM vehicles WHERE organization_id = $1 AND id = $2", testOrg, all[at].ID)
				all = slices.Delete(all, at, at+1)
			}
		}
		for range rounds {
			q := VehicleQuery{
				Subaccount: optionally(m, "sub_0", "sub_1", "sub_9"), State: optionally(m, Available, OnTrip, Missing, Removed),
				VehicleTypeID: optionally(m, "vt_0", "vt_1"), FormFactor: optionally(m, "scooter", "bicycle", "moped"),
				ZoneID: optionally(m, "zone_a", "zone_b", "zone_none"), Box: m.box(), Near: m.near(), BatteryPercent: m.among(100),
				LastReportedAt: m.during(), UpdatedAt: m.during(), Limit: pick(m, 0, 1, 5, 100),
				Sort: keyset.Sort{Field: pick(m, "", "created_at", "updated_at", "code", "battery_percent", "last_reported_at", "distance"), Descending: m.IntN(2) == 0},
			}
			q.Subaccounts = pick(m, nil, nil, []string{"sub_0", "sub_2"}, []string{})
			for _, v := range all {
				if m.IntN(100) == 0 {
					q.Code = append(q.Code, strings.ToUpper(v.Code))
				}
				if m.IntN(2000) == 0 && v.ExternalID != "" {
					q.ExternalID = append(q.ExternalID, string(v.ExternalID))
				}
				if m.IntN(2000) == 0 && v.DeviceID != "" {
					q.DeviceID = append(q.DeviceID, string(v.DeviceID))
				}
			}
			if m.IntN(20) > 0 {
				q.Code = nil
			}
			if q.Near == nil && q.Sort.Field == "distance" {
				if _, _, err := s.ListVehicles(t.Context(), d, testOrg, q); problem.Of(err) != problem.Invalid {
					t.Fatalf("by distance from nowhere: got %v, want it to be invalid", err)
				}
				q.Sort.Field = "code"
			}
			l := listing{name: fmt.Sprintf("%+v box %v near %v", q, q.Box, q.Near), descending: q.Sort.Descending, limit: cmp.Or(q.Limit, 20)}
			if q.Sort.Field == "" {
				l.descending = q.Near == nil
			}
			l.items = func() []item {
				var items []item
				for _, v := range all {
					inZone := len(q.ZoneID) == 0
					for _, id := range q.ZoneID {
						a, ok := areas[id]
						inZone = inZone || ok && (q.Subaccounts == nil || slices.Contains(q.Subaccounts, "sub_0")) && v.Location != nil && a.Contains(v.Location.Lng, v.Location.Lat)
					}
					i := item{id: v.ID, distance: -1}
					if q.Near != nil && v.Location != nil {
						i.distance = geo.Distance(q.Near.Lat, q.Near.Lng, v.Location.Lat, v.Location.Lng)
					}
					if !inZone || q.Near != nil && (v.Location == nil || i.distance > q.Near.RadiusMeters) || !inBoxOf(q.Box, v.Location) ||
						q.Subaccounts != nil && !slices.Contains(q.Subaccounts, v.SubaccountID) || !has(q.Subaccount, v.SubaccountID) || !has(q.State, v.State) ||
						!has(q.VehicleTypeID, v.VehicleTypeID) || !has(q.FormFactor, v.FormFactor) || !has(q.Code, strings.ToUpper(v.Code)) ||
						!has(q.ExternalID, string(v.ExternalID)) || !has(q.DeviceID, string(v.DeviceID)) || !inIntegers(q.BatteryPercent, v.BatteryPercent) ||
						!in(q.LastReportedAt, v.LastReportedAt) || !in(q.UpdatedAt, v.UpdatedAt) {
						continue
					}
					switch q.Sort.Field {
					case "updated_at":
						i.value = micros(v.UpdatedAt)
					case "code":
						i.value = strings.ToLower(v.Code)
					case "battery_percent":
						i.value = orNull(v.BatteryPercent)
					case "last_reported_at":
						i.value = micros(v.LastReportedAt)
					case "distance":
						i.value = i.distance
					case "":
						if q.Near != nil {
							i.value = i.distance
						}
					}
					items = append(items, i)
				}
				return items
			}
			l.page = func(after *keyset.Cursor) ([]Record, *keyset.Cursor, error) {
				q.After = after
				return s.ListVehicles(t.Context(), d, testOrg, q)
			}
			l.each = func(fn func(*Record) error) error { return s.EachVehicle(t.Context(), testOrg, q, fn) }
			l.check(t, change)
		}
	})
}

func areaFrom(text string) (a geo.Area, err error) {
	err = json.Unmarshal([]byte(text), &a)
	return a, err
}

func TestRideLists(t *testing.T) {
	lists(t, func(t *testing.T, s *Service, d *db.DB, m *maker) {
		f := &filler{t: t, db: d}
		var all []*Ride
		add := func() {
			r := m.ride()
			all = append(all, r)
			f.ride(r)
		}
		for range 300 {
			add()
		}
		f.flush()
		change := func() {
			switch m.IntN(5) {
			case 0:
				add()
				f.flush()
			case 1, 2:
				at, is := m.IntN(len(all)), m.ride()
				if is.StartLocation != nil && m.IntN(2) == 0 { // like real rides
					is.StartLocation = all[at].StartLocation
				}
				f.change(all[at], is)
				all[at] = is
			case 3:
				if err := s.rideIndex.Maintain(t.Context(), testOrg); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 300 { // for runs of both levels
			change()
		}
		for n := range 2 * rounds {
			q := RideQuery{
				Subaccount: optionally(m, "sub_0", "sub_1", "sub_9"), Status: optionally(m, Reserved, Active, Paused, Completed, Cancelled),
				TripType: optionally(m, RiderTrip, RebalanceTrip, MaintenanceTrip), CustomerID: optionally(m, "cus_veh_1", "cus_veh_2", "cus_veh_3", "cus_none"),
				VehicleID: optionally(m, "veh_1", "veh_2", "veh_3", "veh_none"), PricingPlanID: optionally(m, "plan_0", "plan_1"),
				PaymentStatus: optionally(m, "due", "paid", "waived"), ZoneID: optionally(m, "zone_0", "zone_1"), Box: m.box(),
				CreatedAt: m.during(), UpdatedAt: m.during(), StartedAt: m.during(), EndedAt: m.during(), TotalAmount: m.among(900), DurationSeconds: m.among(1200),
				Limit: pick(m, 0, 1, 5, 100),
				Sort:  keyset.Sort{Field: pick(m, "", "created_at", "updated_at", "started_at", "ended_at", "total_amount", "duration_seconds"), Descending: m.IntN(2) == 0},
			}
			q.Subaccounts = pick(m, nil, nil, []string{"sub_0", "sub_2"}, []string{})
			if n%2 == 0 { // in a box, with few filters
				q = RideQuery{
					Status: q.Status, PaymentStatus: q.PaymentStatus, ZoneID: q.ZoneID, CreatedAt: q.CreatedAt, TotalAmount: q.TotalAmount, Limit: q.Limit, Sort: q.Sort,
					Box: pick(m, &geo.Box{MinLng: 13.38, MinLat: 52.49, MaxLng: 13.42, MaxLat: 52.52}, &geo.Box{MinLng: -180, MinLat: -90, MaxLng: 180, MaxLat: 90}, &geo.Box{MinLng: 13, MinLat: 52, MaxLng: 13.4, MaxLat: 53}, &geo.Box{MinLng: 13.3, MinLat: 52.4, MaxLng: 13.5, MaxLat: 52.6}),
				}
				if m.IntN(2) == 0 {
					q.Status, q.PaymentStatus, q.ZoneID = nil, nil, nil
				}
			}
			// Most filters combined match nothing.
			for _, drop := range []func(){
				func() { q.CustomerID = nil }, func() { q.VehicleID = nil }, func() { q.PricingPlanID = nil }, func() { q.PaymentStatus = nil },
				func() { q.ZoneID = nil }, func() { q.Box = nil }, func() { q.CreatedAt, q.StartedAt = period.Range{}, period.Range{} },
			} {
				if n%2 == 1 && m.IntN(2) == 0 {
					drop()
				}
			}
			if q.checkRange() != nil {
				low := testNow.Add(time.Duration(m.IntN(150)-50) * time.Second)
				high := low.AddDate(0, 0, 92)
				*pick(m, &q.CreatedAt, &q.StartedAt) = period.Range{Low: &low, High: &high, HighOpen: true}
			}
			l := listing{name: fmt.Sprintf("%+v box %v", q, q.Box), descending: q.Sort.Descending || q.Sort.Field == "", limit: cmp.Or(q.Limit, 20)}
			l.items = func() []item {
				var items []item
				for _, r := range all {
					i := item{id: r.ID, distance: -1}
					var total, duration *int64
					if r.Price != nil {
						total, duration = &r.Price.TotalAmount, &r.DurationSeconds
					}
					if q.Subaccounts != nil && !slices.Contains(q.Subaccounts, r.SubaccountID) || !has(q.Subaccount, r.SubaccountID) || !has(q.Status, r.Status) ||
						!has(q.TripType, r.TripType) || !has(q.CustomerID, string(r.CustomerID)) || !has(q.VehicleID, r.VehicleID) ||
						!has(q.PricingPlanID, string(r.PricingPlanID)) || !has(q.PaymentStatus, r.PaymentStatus) || !has(q.ZoneID, string(r.StartZoneID)) ||
						!inBoxOf(q.Box, r.StartLocation) || !in(q.CreatedAt, r.CreatedAt) || !in(q.UpdatedAt, r.UpdatedAt) || !in(q.StartedAt, r.StartedAt) ||
						!in(q.EndedAt, r.EndedAt) || !inIntegers(q.TotalAmount, total) || !inIntegers(q.DurationSeconds, duration) {
						continue
					}
					switch q.Sort.Field {
					case "updated_at":
						i.value = micros(r.UpdatedAt)
					case "started_at":
						i.value = micros(r.StartedAt)
					case "ended_at":
						i.value = micros(r.EndedAt)
					case "total_amount":
						i.value = orNull(total)
					case "duration_seconds":
						i.value = orNull(duration)
					}
					items = append(items, i)
				}
				return items
			}
			l.page = func(after *keyset.Cursor) ([]Record, *keyset.Cursor, error) {
				q.After = after
				return s.ListRides(t.Context(), d, testOrg, q)
			}
			l.each = func(fn func(*Record) error) error { return s.EachRide(t.Context(), testOrg, q, fn) }
			l.check(t, change)
		}
	})
}

func TestCustomerLists(t *testing.T) {
	lists(t, func(t *testing.T, s *Service, d *db.DB, m *maker) {
		f := &filler{t: t, db: d}
		all := make(map[string]*Customer)
		for range 200 {
			c := m.customer()
			all[c.ID] = c
			f.customer(c)
		}
		f.flush()
		change := func() {
			c := m.customer()
			all[c.ID] = c
			f.customer(c)
			f.flush()
		}
		for range rounds {
			q := CustomerQuery{
				Subaccounts: pick(m, nil, nil, []string{"sub_0", "sub_2"}), Subaccount: optionally(m, "sub_0", "sub_1"),
				Status: optionally(m, CustomerActive, CustomerBlocked, CustomerAnonymised), Email: optionally(m, "u1@example.com", "U2@Example.com", "u3@example.com"),
				Phone: optionally(m, "+49301", "+49302"), CreatedAt: m.during(), UpdatedAt: m.during(), LastRideAt: m.during(),
				Limit: pick(m, 0, 1, 5, 100), Sort: keyset.Sort{Field: pick(m, "", "created_at", "updated_at", "name"), Descending: m.IntN(2) == 0},
			}
			l := listing{name: fmt.Sprintf("%+v", q), descending: q.Sort.Descending || q.Sort.Field == "", limit: cmp.Or(q.Limit, 20)}
			l.items = func() []item {
				var items []item
				for _, c := range all {
					email := slices.ContainsFunc(q.Email, func(e string) bool { return strings.EqualFold(e, string(c.Email)) })
					if q.Subaccounts != nil && !slices.Contains(q.Subaccounts, c.SubaccountID) || !has(q.Subaccount, c.SubaccountID) || !has(q.Status, c.Status) ||
						len(q.Email) > 0 && !email || !has(q.Phone, string(c.Phone)) || !in(q.CreatedAt, c.CreatedAt) || !in(q.UpdatedAt, c.UpdatedAt) || !in(q.LastRideAt, c.LastRideAt) {
						continue
					}
					i := item{id: c.ID, distance: -1}
					switch q.Sort.Field {
					case "updated_at":
						i.value = micros(c.UpdatedAt)
					case "name":
						if c.Name != "" {
							i.value = string(c.Name)
						}
					}
					items = append(items, i)
				}
				return items
			}
			l.page = func(after *keyset.Cursor) ([]Record, *keyset.Cursor, error) {
				q.After = after
				return s.ListCustomers(t.Context(), d, testOrg, q)
			}
			l.each = func(fn func(*Record) error) error { return s.EachCustomer(t.Context(), testOrg, q, fn) }
			l.check(t, change)
		}
	})
}

func TestZoneLists(t *testing.T) {
	lists(t, func(t *testing.T, s *Service, d *db.DB, m *maker) {
		f := &filler{t: t, db: d}
		all := make(map[string]*Zone)
		type plain struct{ minLng, minLat, maxLng, maxLat float64 }
		bounds := make(map[string]plain)
		add := func() {
			z := &Zone{Type: pick(m, Parking, NoParking, Slow), Priority: int64(m.IntN(5)), Name: fmt.Sprintf("z%d", m.IntN(20))}
			z.RecordHeader, z.Timestamps = m.head(zonePrefix)
			b := plain{pick(m, -180, 13.3, 13.4, 179.9), pick(m, -1.0, 52.4, 52.5), 0, 0}
			b.maxLng, b.maxLat = min(180, b.minLng+m.Float64()*0.2), b.minLat+m.Float64()*0.2
			var err error
			z.Geometry, err = areaFrom(fmt.Sprintf(`{"type":"Polygon","coordinates":[[[%[1]v,%[2]v],[%[3]v,%[2]v],[%[3]v,%[4]v],[%[1]v,%[4]v],[%[1]v,%[2]v]]]}`, b.minLng, b.minLat, b.maxLng, b.maxLat))
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			z.StartsAt = pick(m, rfc3339.Time{}, rfc3339.Time(now.Add(-time.Hour)), rfc3339.Time(now.Add(time.Hour)))
			z.EndsAt = pick(m, rfc3339.Time{}, rfc3339.Time(now.Add(-time.Hour/2)), rfc3339.Time(now.Add(2*time.Hour)))
			all[z.ID], bounds[z.ID] = z, b
			f.zone(z)
		}
		for range 120 {
			add()
		}
		f.flush()
		for range rounds {
			q := ZoneQuery{
				Subaccounts: pick(m, nil, nil, []string{"sub_0", "sub_2"}), Subaccount: optionally(m, "sub_0", "sub_1"), Type: optionally(m, Parking, Slow),
				InForce: pick(m, nil, nil, new(true), new(false)), Box: m.box(),
				Point: pick(m, nil, nil, &geo.Position{Lat: 52.45, Lng: 13.42}, &geo.Position{Lat: 52.5, Lng: 13.4}, &geo.Position{Lat: -0.95, Lng: 180}, &geo.Position{Lat: -0.95, Lng: -180}),
				Limit: pick(m, 0, 1, 5, 100), Sort: keyset.Sort{Field: pick(m, "", "created_at", "priority", "name"), Descending: m.IntN(2) == 0},
			}
			l := listing{name: fmt.Sprintf("%+v box %v point %v", q, q.Box, q.Point), descending: q.Sort.Descending || q.Sort.Field == "", limit: cmp.Or(q.Limit, 20)}
			l.items = func() []item {
				var items []item
				for id, z := range all {
					b := bounds[id]
					overlaps := func(minLng, maxLng float64) bool { return b.minLng <= maxLng && b.maxLng >= minLng }
					box := q.Box == nil
					if !box && b.minLat <= q.Box.MaxLat && b.maxLat >= q.Box.MinLat {
						if q.Box.MinLng <= q.Box.MaxLng {
							box = overlaps(q.Box.MinLng, q.Box.MaxLng)
						} else {
							box = overlaps(q.Box.MinLng, 180) || overlaps(-180, q.Box.MaxLng)
						}
						line := q.Box.MinLng == -180 || q.Box.MaxLng == 180 || q.Box.MinLng > q.Box.MaxLng
						box = box || line && (b.minLng == -180 || b.maxLng == 180)
					}
					has2 := q.Point == nil
					if !has2 && q.Point.Lat >= b.minLat && q.Point.Lat <= b.maxLat {
						in := func(lng float64) bool { return lng >= b.minLng && lng <= b.maxLng }
						has2 = in(q.Point.Lng) || math.Abs(q.Point.Lng) == 180 && in(-q.Point.Lng)
					}
					now := time.Now()
					force := !now.Before(z.StartsAt.Std()) && (z.EndsAt.Std().IsZero() || now.Before(z.EndsAt.Std()))
					if !box || !has2 || q.InForce != nil && *q.InForce != force || q.Subaccounts != nil && !slices.Contains(q.Subaccounts, z.SubaccountID) ||
						!has(q.Subaccount, z.SubaccountID) || !has(q.Type, z.Type) {
						continue
					}
					i := item{id: id, distance: -1}
					switch q.Sort.Field {
					case "priority":
						i.value = z.Priority
					case "name":
						i.value = z.Name
					}
					items = append(items, i)
				}
				return items
			}
			l.page = func(after *keyset.Cursor) ([]Record, *keyset.Cursor, error) {
				q.After = after
				return s.ListZones(t.Context(), d, testOrg, q)
			}
			l.each = func(fn func(*Record) error) error { return s.EachZone(t.Context(), testOrg, q, fn) }
			l.check(t, func() { add(); f.flush() })
		}
	})
}

// TestOpenRidesGoOn: open rides have durations as of now, by the organization's
// clock.
func TestOpenRidesGoOn(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	f := &filler{t: t, db: d}
	began := time.Now().UTC().Truncate(time.Millisecond).Add(-time.Hour)
	for i, status := range []RideStatus{Active, Paused, Completed} {
		r := &Ride{Status: status, TripType: RebalanceTrip, VehicleID: fmt.Sprint(i), PaymentStatus: "not_due", StartedAt: rfc3339.Time(began), DurationSeconds: 5, PausedSeconds: 10}
		r.ID, r.UpdatedAt = fmt.Sprintf("ride_%d", i), rfc3339.Time(began)
		if status == Paused {
			r.pauseAt = rfc3339.Time(began.Add(50 * time.Minute))
		}
		f.ride(r)
	}
	f.flush()
	mustWrite(t, d, "UPDATE settings SET clock_offset = $1", (24 * time.Hour).Microseconds())
	check := func(what string, docs []Record) {
		t.Helper()
		for i, want := range []struct{ duration, paused int64 }{{90_000, 10}, {90_000, 87_010}, {5, 10}} {
			var r Ride
			if err := json.Unmarshal(docs[i].JSON, &r); err != nil {
				t.Fatal(err)
			}
			if late := r.DurationSeconds - want.duration; late < 0 || late > 60 || i == 2 && late != 0 {
				t.Errorf("%s: duration of a ride that is %s: got %d, want %d", what, r.Status, r.DurationSeconds, want.duration)
			}
			if late := r.PausedSeconds - want.paused; late < 0 || late > 60 || i != 1 && late != 0 {
				t.Errorf("%s: pauses of a ride that is %s: got %d, want %d", what, r.Status, r.PausedSeconds, want.paused)
			}
		}
	}
	query := RideQuery{Sort: keyset.Sort{Field: "created_at"}}
	docs, _, err := s.ListRides(t.Context(), d, testOrg, query)
	if err != nil || len(docs) != 3 {
		t.Fatalf("rides: got %d, %v, want 3", len(docs), err)
	}
	check("a page", docs)
	docs = nil
	if err := s.EachRide(t.Context(), testOrg, query, func(d *Record) error {
		docs = append(docs, Record{JSON: slices.Clone(d.JSON)})
		return nil
	}); err != nil || len(docs) != 3 {
		t.Fatalf("export: got %d, %v, want 3", len(docs), err)
	}
	check("an export", docs)
}

func TestListErrors(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	for name, find := range map[string]func(ctx context.Context) error{
		"sort": func(ctx context.Context) error {
			_, _, err := s.ListRides(ctx, d, testOrg, RideQuery{Sort: keyset.Sort{Field: "distance"}})
			return err
		},
		"limit": func(ctx context.Context) error {
			_, _, err := s.ListCustomers(ctx, d, testOrg, CustomerQuery{Limit: 101})
			return err
		},
		"bbox": func(ctx context.Context) error {
			_, _, err := s.ListRides(ctx, d, testOrg, RideQuery{Box: &geo.Box{MinLng: 0, MinLat: 10, MaxLng: 0, MaxLat: 9}})
			return err
		},
		"not a number": func(ctx context.Context) error {
			_, _, err := s.ListVehicles(ctx, d, testOrg, VehicleQuery{Near: &geo.Circle{Lat: math.NaN(), Lng: 0, RadiusMeters: 10}})
			return err
		},
		"radius": func(ctx context.Context) error {
			_, _, err := s.ListVehicles(ctx, d, testOrg, VehicleQuery{Near: &geo.Circle{Lat: 0, Lng: 0, RadiusMeters: 50_001}})
			return err
		},
		"cursor": func(ctx context.Context) error {
			_, _, err := s.ListRides(ctx, d, testOrg, RideQuery{Sort: keyset.Sort{Field: "updated_at"}, After: &keyset.Cursor{Value: "x", ID: "ride_1"}})
			return err
		},
		"cursor that is no text": func(ctx context.Context) error {
			_, _, err := s.ListCustomers(ctx, d, testOrg, CustomerQuery{After: &keyset.Cursor{ID: "cus_\x00"}})
			return err
		},
		"value of a cursor that is no text": func(ctx context.Context) error {
			_, _, err := s.ListCustomers(ctx, d, testOrg, CustomerQuery{Sort: keyset.Sort{Field: "name"}, After: &keyset.Cursor{Value: "\x00", ID: "cus_1"}})
			return err
		},
		"cursor of a distance": func(ctx context.Context) error {
			_, _, err := s.ListVehicles(ctx, d, testOrg, VehicleQuery{Near: &geo.Circle{Lat: 0, Lng: 0, RadiusMeters: 50}, After: &keyset.Cursor{Value: "NaN", ID: "ride_1"}})
			return err
		},
	} {
		if err := find(t.Context()); problem.Of(err) != problem.Invalid {
			t.Errorf("%s: got %v, want it to be invalid", name, err)
		}
	}
}

// TestZonesBesideTheirBounds: zones whose bounds match, but not their area, make no
// empty page.
func TestZonesBesideTheirBounds(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	m := newMaker(11)
	f := &filler{t: t, db: d}
	var inside []string
	for i := range 60 {
		z := &Zone{Type: Parking, Name: fmt.Sprint(i)}
		z.RecordHeader, z.Timestamps = m.head(zonePrefix)
		corner := "1,0" // of a triangle; the other triangle does not contain the point
		if m.IntN(3) == 0 {
			corner = "0,1"
			inside = append(inside, z.ID)
		}
		var err error
		if z.Geometry, err = areaFrom(`{"type":"Polygon","coordinates":[[[0,0],[1,1],[` + corner + `],[0,0]]]}`); err != nil {
			t.Fatal(err)
		}
		f.zone(z)
	}
	f.flush()
	slices.Sort(inside)
	for limit := 1; limit <= len(inside)+1; limit++ {
		for what, q := range map[string]ZoneQuery{"point": {Point: &geo.Position{Lat: 0.9, Lng: 0.1}}, "box": {Box: &geo.Box{MinLng: 0.1, MinLat: 0.8, MaxLng: 0.2, MaxLat: 0.9}}} {
			q.Limit, q.Sort.Field = limit, "created_at"
			var got []string
			for more := true; more; {
				docs, next, err := s.ListZones(t.Context(), d, testOrg, q)
				if err != nil {
					t.Fatal(err)
				}
				if next != nil && len(docs) != limit || len(docs) == 0 {
					t.Fatalf("%s, limit %d: got a page of %d", what, limit, len(docs))
				}
				for i := range docs {
					got = append(got, docs[i].ID)
				}
				q.After, more = next, next != nil
			}
			if !slices.Equal(got, inside) {
				t.Errorf("%s, limit %d: got %v, want %v", what, limit, got, inside)
			}
		}
	}
}

// TestListsAtTheEdgeOfAreas: lists include positions that rounding puts into an
// area.
func TestListsAtTheEdgeOfAreas(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	f := &filler{t: t, db: d}
	z := &Zone{RecordHeader: RecordHeader{ID: "zone_1", SubaccountID: "sub_0"}, Type: Parking, Name: "one"}
	var err error
	z.Geometry, err = areaFrom(`{"type":"Polygon","coordinates":[[[13.4000000004,52.5000000004],[13.5,52.5000000004],[13.5,52.6],[13.4000000004,52.6],[13.4000000004,52.5000000004]]]}`)
	if err != nil {
		t.Fatal(err)
	}
	f.zone(z)
	v := newMaker(1).vehicle()
	v.Location = &geo.Position{Lat: 52.5, Lng: 13.4}
	f.vehicle(v)
	f.flush()
	if !z.Geometry.Contains(13.4, 52.5) {
		t.Fatal("the corner is outside")
	}
	if docs, _, err := s.ListVehicles(t.Context(), d, testOrg, VehicleQuery{ZoneID: []string{z.ID}}); err != nil || len(docs) != 1 {
		t.Errorf("got %d vehicles in the zone, %v, want 1", len(docs), err)
	}
	if docs, _, err := s.ListZones(t.Context(), d, testOrg, ZoneQuery{Point: &geo.Position{Lat: 52.5, Lng: 13.4}}); err != nil || len(docs) != 1 {
		t.Errorf("got %d zones at the corner, %v, want 1", len(docs), err)
	}
}
