package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// benchSizes returns the numbers of vehicles and rides of benchmarks: small, or by
// KICKSTAND_BENCH_VEHICLES and KICKSTAND_BENCH_RIDES.
func benchSizes(b *testing.B) (vehicles, rides int) {
	size := func(variable string, usual int) int {
		if text := os.Getenv(variable); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				b.Fatalf("%s: %v", variable, err)
			}
			return n
		}
		return usual
	}
	return size("KICKSTAND_BENCH_VEHICLES", 2000), size("KICKSTAND_BENCH_RIDES", 10_000)
}

// city returns a position in one city, the worst case for spatial lists.
func (m *maker) city() *geo.Position {
	// Most are near a few squares.
	square := m.IntN(40)
	lat, lng := 52.5+float64(square%7-3)*0.02, 13.4+float64(square/7-3)*0.035
	p := geo.Position{Lat: lat + m.NormFloat64()*0.008, Lng: lng + m.NormFloat64()*0.012}
	return &geo.Position{Lat: geo.Degrees(geo.Millionths(p.Lat)), Lng: geo.Degrees(geo.Millionths(p.Lng)), AccuracyMeters: new(5.0)}
}

// fillCity creates a fleet in one city, with rides over two years.
func fillCity(b *testing.B, d *db.DB, vehicles, rides int) {
	m := newMaker(1)
	f := &filler{t: b, db: d}
	start := testNow.AddDate(-2, 0, 0)
	for i := range vehicles {
		v := &Vehicle{Code: fmt.Sprintf("K%06d", i), VehicleTypeID: "vt_" + pick(m, "scooter", "scooter", "scooter", "bicycle"), FormFactor: "scooter_standing",
			PropulsionType: "electric", State: Available, LastEvent: "trip_end", Location: m.city(), BatteryPercent: new(int64(m.IntN(101))), PublicVehicleID: "0190f6b0-1111-7222-8333-444455556666"}
		at := start.Add(time.Duration(i) * time.Second)
		switch n := m.IntN(1000); {
		case n < 80:
			v.State = OnTrip
		case n < 120:
			v.State = NonOperational
		case n < 122:
			v.State = Missing
		}
		if m.IntN(2000) == 0 {
			v.VehicleTypeID = "vt_cargo"
		}
		v.RecordHeader = RecordHeader{ID: newID(vehiclePrefix, at, &entropy{m.Uint64()}), Object: "vehicle", SubaccountID: "sub_01KKNTQ222EMQ8K9W39QSAEKF4"}
		v.Timestamps = Timestamps{Metadata: map[string]string{}, CreatedAt: rfc3339.Time(at), UpdatedAt: rfc3339.Time(testNow.Add(-time.Duration(m.IntN(1e9)) * time.Microsecond))}
		v.LastReportedAt = v.UpdatedAt
		f.vehicle(v)
	}
	step := 2 * 365 * 24 * time.Hour / time.Duration(max(rides, 1))
	for i := range rides {
		at := start.Add(time.Duration(i) * step).Truncate(time.Millisecond)
		n := m.IntN(1000)
		r := &Ride{Status: Completed, TripType: RiderTrip, CustomerID: NullString(fmt.Sprintf("cus_%022d", m.IntN(rides/20+1))), VehicleID: fmt.Sprintf("veh_%022d", m.IntN(vehicles+1)),
			PricingPlanID: "plan_01KKNTQ5Z2E3PT0YEKQQME4QCM", PricingPlanVersion: new(int64(3)), StartedAt: rfc3339.Time(at.Add(time.Second)), StartLocation: m.city(), EndLocation: m.city(),
			StartZoneID: NullString(fmt.Sprintf("zone_%021d", m.IntN(100))), EndReason: "rider", ParkingCategory: "rack", PaymentStatus: "paid", DistanceMeters: new(int64(m.IntN(9000))),
			DurationSeconds: int64(60 + m.IntN(3600))}
		r.RecordHeader = RecordHeader{ID: newID(ridePrefix, at, &entropy{m.Uint64()}), Object: "ride", SubaccountID: "sub_01KKNTQ222EMQ8K9W39QSAEKF4"}
		ended := at.Add(time.Duration(r.DurationSeconds) * time.Second)
		r.EndedAt = rfc3339.Time(ended)
		r.Price = &tariff.Price{Currency: "EUR", UnlockAmount: 100, TimeAmount: r.DurationSeconds / 2, TotalAmount: 100 + r.DurationSeconds/2}
		switch {
		case n < 20:
			r.Status = Cancelled
		case n < 30:
			r.TripType, r.CustomerID, r.PricingPlanID = RebalanceTrip, "", ""
		case n < 40:
			r.PaymentStatus = "refunded"
		}
		if n == 999 {
			r.PaymentStatus = "waived"
		}
		if i >= rides-rides/1000 {
			r.Status, r.Price, r.EndedAt, r.VehicleID, r.CustomerID = Active, nil, rfc3339.Time{}, fmt.Sprintf("veh_open_%d", i), NullString(fmt.Sprintf("cus_open_%d", i))
		}
		r.Timestamps = Timestamps{Metadata: map[string]string{}, CreatedAt: rfc3339.Time(at), UpdatedAt: rfc3339.Time(ended)}
		f.ride(r)
	}
	f.flush()
}

// cityService returns a service with the fleet of fillCity, its ride index maintained.
// KICKSTAND_BENCH_DB names a file to reuse.
func cityService(b *testing.B) *Service {
	s := filledService(b)
	if err := s.rideIndex.Maintain(b.Context(), testOrg); err != nil {
		b.Fatal(err)
	}
	return s
}

func filledService(b *testing.B) *Service {
	vehicles, rides := benchSizes(b)
	path := os.Getenv("KICKSTAND_BENCH_DB")
	if path == "" {
		d := dbtest.NewFleet(b)
		s := newService(b, d)
		fillCity(b, d, vehicles, rides)
		return s
	}
	path, err := filepath.Abs(path)
	if err != nil {
		b.Fatal(err)
	}
	_, missing := os.Stat(path)
	d := dbtest.Open(b, "sqlite:"+path)
	if missing == nil {
		return Open(Config{DB: d})
	}
	if _, err := d.Migrate(b.Context(), db.Fleet); err != nil {
		b.Fatal(err)
	}
	s := newService(b, d)
	// Indexes are faster to create than to maintain.
	indexes, err := db.All(b.Context(), d, func(row db.Row) (index [2]string, err error) {
		err = row.Scan(&index[0], &index[1])
		return index, err
	}, "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name IN ('vehicles', 'rides') AND sql IS NOT NULL")
	if err != nil {
		b.Fatal(err)
	}
	for _, index := range indexes {
		mustWrite(b, d, "DROP INDEX "+index[0])
	}
	fillCity(b, d, vehicles, rides)
	for _, index := range indexes {
		mustWrite(b, d, index[1])
	}
	return s
}

// listShape is a kind of list; find reads a page of its nth example.
type listShape struct {
	name string
	find func(n int, after *keyset.Cursor) (*keyset.Cursor, error)
}

// BenchmarkLists measures pages of many kinds of lists: first and later pages
// equally.
func BenchmarkLists(b *testing.B) {
	s := cityService(b)
	ctx := b.Context()
	m := newMaker(9)
	boxes := make(map[string][]*geo.Box)
	for _, size := range []struct {
		name string
		lat  float64
	}{{"50m", 0.0005}, {"500m", 0.005}, {"5km", 0.05}, {"city", 0.5}} {
		for range 200 {
			p := m.city()
			boxes[size.name] = append(boxes[size.name], &geo.Box{MinLng: p.Lng - size.lat, MinLat: p.Lat - size.lat/2, MaxLng: p.Lng + size.lat, MaxLat: p.Lat + size.lat/2})
		}
	}
	boxes["world"] = []*geo.Box{{MinLng: -180, MinLat: -90, MaxLng: 180, MaxLat: 90}}
	boxes["nowhere"] = []*geo.Box{{MinLng: 20, MinLat: 20, MaxLng: 21, MaxLat: 21}}
	at := func(list []*geo.Box, n int) *geo.Box { return list[n%len(list)] }
	battery := Integers{Low: new(int64(1)), High: new(int64(3))}
	var shapes []listShape
	vehicles := func(name string, query func(n int) VehicleQuery) {
		shapes = append(shapes, listShape{"vehicles " + name, func(n int, after *keyset.Cursor) (*keyset.Cursor, error) {
			q := query(n)
			q.After = after
			_, next, err := s.ListVehicles(ctx, s.db, testOrg, q)
			return next, err
		}})
	}
	rides := func(name string, query func(n int) RideQuery) {
		shapes = append(shapes, listShape{"rides " + name, func(n int, after *keyset.Cursor) (*keyset.Cursor, error) {
			q := query(n)
			q.After = after
			_, next, err := s.ListRides(ctx, s.db, testOrg, q)
			return next, err
		}})
	}
	for _, size := range []string{"50m", "500m", "5km", "city", "world", "nowhere"} {
		list := boxes[size]
		for _, sort := range []string{"", "updated_at", "code", "battery_percent", "last_reported_at"} {
			vehicles("box "+size+" by "+sort, func(n int) VehicleQuery { return VehicleQuery{Box: at(list, n), Sort: keyset.Sort{Field: sort}} })
			vehicles("box "+size+" missing by "+sort, func(n int) VehicleQuery {
				return VehicleQuery{Box: at(list, n), State: []VehicleState{Missing}, Sort: keyset.Sort{Field: sort, Descending: true}}
			})
			vehicles("box "+size+" on trip, battery 1-3 by "+sort, func(n int) VehicleQuery {
				return VehicleQuery{Box: at(list, n), State: []VehicleState{OnTrip}, BatteryPercent: battery, Sort: keyset.Sort{Field: sort}}
			})
			vehicles("box "+size+" cargo by "+sort, func(n int) VehicleQuery {
				return VehicleQuery{Box: at(list, n), VehicleTypeID: []string{"vt_cargo"}, Sort: keyset.Sort{Field: sort}}
			})
		}
		for _, sort := range []string{"", "updated_at", "started_at", "total_amount", "duration_seconds"} {
			rides("box "+size+" by "+sort, func(n int) RideQuery {
				low := testNow.AddDate(0, 0, -92-n%600)
				high := low.AddDate(0, 0, 92)
				return RideQuery{Box: at(list, n), StartedAt: period.Range{Low: &low, High: &high}, Sort: keyset.Sort{Field: sort, Descending: true}}
			})
		}
		rides("box "+size+" waived", func(n int) RideQuery {
			return RideQuery{Box: at(list, n), PaymentStatus: []string{"waived"}}
		})
		rides("box "+size+" of a day by amount", func(n int) RideQuery {
			low := testNow.AddDate(0, 0, -1-n%700)
			high := low.AddDate(0, 0, 1)
			return RideQuery{Box: at(list, n), StartedAt: period.Range{Low: &low, High: &high}, Sort: keyset.Sort{Field: "total_amount", Descending: true}}
		})
	}
	for _, radius := range []float64{50, 500, 1000, 5000, 50_000} {
		near := func(n int) *geo.Circle {
			box := at(boxes["50m"], n)
			return &geo.Circle{Lat: box.MinLat, Lng: box.MinLng, RadiusMeters: radius}
		}
		name := fmt.Sprintf("near %v m", radius)
		vehicles(name, func(n int) VehicleQuery { return VehicleQuery{Near: near(n)} })
		vehicles(name+" far first", func(n int) VehicleQuery {
			return VehicleQuery{Near: near(n), Sort: keyset.Sort{Field: "distance", Descending: true}}
		})
		vehicles(name+" by battery", func(n int) VehicleQuery {
			return VehicleQuery{Near: near(n), Sort: keyset.Sort{Field: "battery_percent", Descending: false}}
		})
		vehicles(name+" missing", func(n int) VehicleQuery { return VehicleQuery{Near: near(n), State: []VehicleState{Missing}} })
		vehicles(name+" on trip, battery 1-3", func(n int) VehicleQuery {
			return VehicleQuery{Near: near(n), State: []VehicleState{OnTrip}, BatteryPercent: battery}
		})
		vehicles(name+" cargo", func(n int) VehicleQuery { return VehicleQuery{Near: near(n), VehicleTypeID: []string{"vt_cargo"}} })
	}
	for _, sort := range []string{"", "updated_at", "started_at", "ended_at", "total_amount", "duration_seconds"} {
		for _, descending := range []bool{false, true} {
			o := keyset.Sort{Field: sort, Descending: descending}
			rides(fmt.Sprintf("by %s %v", sort, descending), func(int) RideQuery { return RideQuery{Sort: o} })
			rides(fmt.Sprintf("of a customer by %s %v", sort, descending), func(n int) RideQuery {
				return RideQuery{CustomerID: []string{fmt.Sprintf("cus_%022d", n)}, Sort: o}
			})
			rides(fmt.Sprintf("of a vehicle by %s %v", sort, descending), func(n int) RideQuery {
				return RideQuery{VehicleID: []string{fmt.Sprintf("veh_%022d", n)}, Sort: o}
			})
			rides(fmt.Sprintf("of a zone by %s %v", sort, descending), func(n int) RideQuery {
				return RideQuery{ZoneID: []string{fmt.Sprintf("zone_%021d", n%100)}, Sort: o}
			})
			rides(fmt.Sprintf("active by %s %v", sort, descending), func(int) RideQuery { return RideQuery{Status: []RideStatus{Active}, Sort: o} })
			rides(fmt.Sprintf("cancelled or active by %s %v", sort, descending), func(int) RideQuery {
				return RideQuery{Status: []RideStatus{Active, Cancelled}, Sort: o}
			})
			rides(fmt.Sprintf("refunded rebalances by %s %v", sort, descending), func(int) RideQuery {
				return RideQuery{PaymentStatus: []string{"refunded"}, TripType: []TripType{RebalanceTrip}, Sort: o}
			})
			rides(fmt.Sprintf("waived in a zone by %s %v", sort, descending), func(n int) RideQuery {
				return RideQuery{PaymentStatus: []string{"waived"}, ZoneID: []string{fmt.Sprintf("zone_%021d", n%100)}, Sort: o}
			})
		}
	}
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			var took []time.Duration
			for n := 0; b.Loop(); n++ {
				var next *keyset.Cursor
				for range 2 {
					begin := time.Now()
					var err error
					if next, err = shape.find(n, next); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(begin))
					if next == nil {
						break
					}
				}
			}
			slices.Sort(took)
			ms := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))]) / float64(time.Millisecond) }
			b.ReportMetric(ms(0.5), "p50-ms")
			b.ReportMetric(ms(0.99), "p99-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkExport measures the rides per second of an export.
func BenchmarkExport(b *testing.B) {
	s := cityService(b)
	for _, sort := range []keyset.Sort{{}, {Field: "created_at", Descending: false}, {Field: "updated_at", Descending: false}, {Field: "total_amount", Descending: true}} {
		b.Run(fmt.Sprintf("by %s %v", sort.Field, sort.Descending), func(b *testing.B) {
			rides, bytes := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				if err := s.EachRide(b.Context(), testOrg, RideQuery{Sort: sort}, func(d *Record) error {
					rides++
					bytes += len(d.JSON)
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rides)/b.Elapsed().Seconds(), "rides/s")
			b.ReportMetric(float64(bytes)/float64(rides), "bytes/ride")
		})
	}
}
