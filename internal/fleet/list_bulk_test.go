package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// testOrg is the organization of list tests.
const testOrg = "org_01KKNTQ222EMQ8K9W39QSAEKF4"

// testNow is the creation time of the first record.
var testNow = time.Date(2026, 3, 14, 9, 0, 0, 0, time.UTC)

// filler writes records in bulk without validation.
type filler struct {
	t     testing.TB
	db    *db.DB
	rows  map[string]*batch
	rides [][]column // rows for the ride index
}

type batch struct {
	columns string
	n       int // number of columns
	args    []any
}

// newService returns a service with testOrg's settings in its database.
func newService(t testing.TB, d *db.DB) *Service {
	t.Helper()
	mustWrite(t, d, "INSERT INTO settings (organization_id, revision, stamp, clock_offset, doc) VALUES ($1, 1, 1, 0, '{}')", testOrg)
	return Open(Config{DB: d})
}

func mustWrite(t testing.TB, d *db.DB, query string, args ...any) {
	t.Helper()
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), query, args...)
		return err
	}); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// add queues a row until the next flush.
func (f *filler) add(table, columns string, args ...any) {
	f.t.Helper()
	if f.rows == nil {
		f.rows = make(map[string]*batch)
	}
	b := f.rows[table]
	if b == nil {
		b = &batch{columns: columns, n: len(args)}
		f.rows[table] = b
	}
	b.args = append(b.args, args...)
	if len(b.args) >= 5000*b.n {
		f.flush()
	}
}

// atOnce is the number of rows per statement: binding takes quadratic time.
const atOnce = 10

// flush writes the queued rows.
func (f *filler) flush() {
	f.t.Helper()
	for table, b := range f.rows {
		err := f.db.Write(f.t.Context(), func(tx *db.Tx) error {
			for args := range slices.Chunk(b.args, atOnce*b.n) {
				if _, err := tx.Exec(f.t.Context(), insertion(table, b, len(args)), args...); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			f.t.Fatalf("fill %s: %v", table, err)
		}
		delete(f.rows, table)
	}
	s := Open(Config{DB: f.db})
	err := f.db.Write(f.t.Context(), func(tx *db.Tx) error {
		for _, row := range f.rides {
			if err := s.indexRide(f.t.Context(), tx, testOrg, nil, row); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.t.Fatalf("index rides: %v", err)
	}
	f.rides = nil
}

// insertion is the INSERT of a batch.
func insertion(table string, b *batch, values int) string {
	var q strings.Builder
	fmt.Fprintf(&q, "INSERT INTO %s (%s) VALUES ", table, b.columns)
	for i := range values {
		switch {
		case i == 0:
			q.WriteString("(")
		case i%b.n == 0:
			q.WriteString("), (")
		default:
			q.WriteString(", ")
		}
		fmt.Fprintf(&q, "$%d", i+1)
	}
	q.WriteString(")")
	return q.String()
}

func (f *filler) encode(v any) string {
	f.t.Helper()
	text, err := encode(v)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

func orNull[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func (f *filler) vehicle(v *Vehicle) {
	f.t.Helper()
	v.revision, v.doc = 1, f.encode(v)
	names, args := []string{"organization_id"}, []any{testOrg}
	for _, c := range v.columns() {
		names, args = append(names, c.name), append(args, c.value)
	}
	f.add("vehicles", strings.Join(names, ", "), args...)
}

func (f *filler) ride(r *Ride) {
	f.t.Helper()
	r.revision, r.vehicleTypeID = 1, "vt_1"
	row := f.row(r)
	names, args := []string{"organization_id"}, []any{testOrg}
	for _, c := range row {
		names, args = append(names, c.name), append(args, c.value)
	}
	f.rides = append(f.rides, row)
	f.add("rides", strings.Join(names, ", "), args...)
}

// row encodes a ride without a due time.
func (f *filler) row(r *Ride) []column {
	f.t.Helper()
	r.doc = []byte(f.encode(r))
	return r.columns()
}

// change replaces a ride.
func (f *filler) change(was, is *Ride) {
	f.t.Helper()
	is.RecordHeader, is.CreatedAt, is.revision, is.vehicleTypeID = was.RecordHeader, was.CreatedAt, was.revision+1, was.vehicleTypeID
	before, after := was.columns(), f.row(is)
	err := f.db.Write(f.t.Context(), func(tx *db.Tx) error {
		if err := updateRow(f.t.Context(), tx, "rides", testOrg, is.ID, before, after); err != nil {
			return err
		}
		return Open(Config{DB: f.db}).indexRide(f.t.Context(), tx, testOrg, before, after)
	})
	if err != nil {
		f.t.Fatalf("change a ride: %v", err)
	}
}

func (f *filler) customer(c *Customer) {
	f.t.Helper()
	f.add("customers", "organization_id, id, subaccount_id, revision, external_id, status, email, phone, name, last_ride_at, updated_at, doc",
		testOrg, c.ID, c.SubaccountID, 1, db.Text(string(c.ExternalID)), string(c.Status), db.Text(strings.ToLower(string(c.Email))), db.Text(string(c.Phone)),
		db.Text(string(c.Name)), db.Time(c.LastRideAt.Std()), db.Time(c.UpdatedAt.Std()), f.encode(c))
}

func (f *filler) zone(z *Zone) {
	f.t.Helper()
	minLng, minLat, maxLng, maxLat := z.Geometry.Bound()
	f.add("zones", "organization_id, id, subaccount_id, revision, external_id, type, name, priority, starts_at, ends_at, min_lng, min_lat, max_lng, max_lat, doc, stamp",
		testOrg, z.ID, z.SubaccountID, 1, db.Text(string(z.ExternalID)), string(z.Type), z.Name, z.Priority, db.Time(z.StartsAt.Std()), db.Time(z.EndsAt.Std()),
		minLng, minLat, maxLng, maxLat, f.encode(z), newStamp())
}

// maker generates deterministic records.
type maker struct {
	*rand.Rand
	made int
}

func newMaker(seed uint64) *maker { return &maker{Rand: rand.New(rand.NewPCG(seed, 7))} }

func pick[T any](m *maker, list ...T) T { return list[m.IntN(len(list))] }

// head returns the header and timestamps of a record, several per millisecond.
func (m *maker) head(prefix string) (RecordHeader, Timestamps) {
	m.made++
	at := testNow.Add(time.Duration(m.made/3) * time.Second)
	updated := at.Add(time.Duration(m.IntN(50)) * time.Hour)
	h := RecordHeader{ID: newID(prefix, at, &entropy{m.Uint64()}), SubaccountID: fmt.Sprintf("sub_%d", m.IntN(3))}
	if m.IntN(3) == 0 {
		h.ExternalID = NullString(fmt.Sprintf("x%d", m.made))
	}
	return h, Timestamps{Metadata: map[string]string{}, CreatedAt: rfc3339.Time(at), UpdatedAt: rfc3339.Time(updated)}
}

// anywhere returns a position: in a city, or at the limits of coordinates.
func (m *maker) anywhere() *geo.Position {
	p := &geo.Position{Lat: 52.5 + m.NormFloat64()*0.02, Lng: 13.4 + m.NormFloat64()*0.03}
	switch m.IntN(8) {
	case 0:
		return nil
	case 1:
		*p = geo.Position{Lat: pick(m, -90.0, 90, 89.9999, 0), Lng: pick(m, -180.0, 180, 179.9999, 0)}
	case 2:
		*p = geo.Position{Lat: m.NormFloat64() * 0.3, Lng: 180 - m.ExpFloat64()*0.3}
	case 3:
		*p = geo.Position{Lat: m.NormFloat64() * 0.3, Lng: -180 + m.ExpFloat64()*0.3}
	}
	p.Lat, p.Lng = geo.Degrees(geo.Millionths(p.Lat)), geo.Degrees(geo.Millionths(p.Lng))
	return p
}

func (m *maker) vehicle() *Vehicle {
	v := &Vehicle{}
	v.RecordHeader, v.Timestamps = m.head(vehiclePrefix)
	v.Code = fmt.Sprintf("K%x-%d", m.IntN(1000), m.made)
	v.VehicleTypeID = fmt.Sprintf("vt_%d", m.IntN(3))
	v.FormFactor = pick(m, "scooter", "scooter", "bicycle")
	v.State = pick(m, Available, Available, Available, OnTrip, NonOperational, Missing)
	v.Location = m.anywhere()
	if m.IntN(4) > 0 {
		v.BatteryPercent = new(int64(m.IntN(20) * 5))
		v.LastReportedAt = rfc3339.Time(testNow.Add(time.Duration(m.IntN(100)) * time.Minute))
	}
	if m.IntN(2) == 0 {
		v.DeviceID = NullString(fmt.Sprintf("d%d", m.made))
	}
	return v
}

func (m *maker) ride() *Ride {
	r := &Ride{}
	r.RecordHeader, r.Timestamps = m.head(ridePrefix)
	at := r.CreatedAt.Std()
	r.VehicleID = fmt.Sprintf("veh_%d", m.made) // a vehicle can have one open ride
	if m.IntN(3) == 0 {
		r.VehicleID = fmt.Sprintf("veh_%d", m.IntN(5))
	}
	r.TripType = pick(m, RiderTrip, RiderTrip, RiderTrip, RebalanceTrip)
	r.PaymentStatus = pick(m, "not_due", "due", "paid", "paid")
	r.Status = pick(m, Reserved, Active, Paused, Completed, Completed, Completed, Completed, Cancelled, Cancelled)
	if r.Status.Open() {
		r.VehicleID = fmt.Sprintf("veh_open_%d", m.made)
		r.PaymentStatus = "not_due"
	}
	if r.TripType == RiderTrip {
		r.CustomerID, r.PricingPlanID = NullString("cus_"+r.VehicleID), NullString(fmt.Sprintf("plan_%d", m.IntN(3)))
	}
	if r.Status != Reserved && (r.Status != Cancelled || m.IntN(2) == 0) {
		r.StartedAt = rfc3339.Time(at.Add(time.Duration(m.IntN(10)) * time.Minute))
		r.StartLocation = m.anywhere()
		if m.IntN(2) == 0 {
			r.StartZoneID = NullString(fmt.Sprintf("zone_%d", m.IntN(3)))
		}
	} else {
		r.ReservedAt = rfc3339.Time(at)
	}
	if r.Status == Paused {
		r.pauseAt = rfc3339.Time(r.StartedAt.Std().Add(time.Minute))
		r.PausedSeconds = 7
	}
	if !r.Status.Open() {
		r.EndedAt = rfc3339.Time(at.Add(time.Duration(m.IntN(30)) * time.Minute))
		r.DurationSeconds = int64(m.IntN(20) * 60)
		r.Price = &tariff.Price{Currency: "EUR", TotalAmount: int64(m.IntN(10) * 100)}
		r.EndLocation = r.StartLocation
	}
	return r
}

func (m *maker) customer() *Customer {
	c := &Customer{Status: pick(m, CustomerActive, CustomerActive, CustomerBlocked, CustomerAnonymised)}
	c.RecordHeader, c.Timestamps = m.head(customerPrefix)
	if m.IntN(4) > 0 {
		c.Name = NullString(pick(m, "Ada", "ada", "Éva", "Zoë", "Bob", "Bob "+fmt.Sprint(m.made)))
		c.Email = NullString(fmt.Sprintf("U%d@example.com", m.IntN(20)))
		c.Phone = NullString(fmt.Sprintf("+4930%d", m.IntN(20)))
	}
	if m.IntN(2) == 0 {
		c.LastRideAt = rfc3339.Time(testNow.Add(time.Duration(m.IntN(100)) * time.Minute))
	}
	return c
}
