package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/bitpack"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/tariff"

	"pgregory.net/rapid"
)

const countedOrg = "counted"

// newCounted returns a service with an organization that has one subaccount per
// currency.
func newCounted(t testing.TB, d *db.DB, currencies ...string) *Service {
	t.Helper()
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO settings (organization_id, revision, stamp, clock_offset, doc) VALUES ($1, 1, 1, 0, '{}')", countedOrg)
		for i, currency := range currencies {
			if err != nil {
				break
			}
			id := fmt.Sprintf("sub_%d", i)
			_, err = tx.Exec(t.Context(), "INSERT INTO subaccounts (organization_id, id, revision, stamp, doc) VALUES ($1, $2, 1, 1, $3)",
				countedOrg, id, db.JSON(Subaccount{ID: id, Currency: currency}))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return Open(Config{DB: d})
}

// putRide writes a ride as the service does: with its rollups invalidated.
func putRide(ctx context.Context, s *Service, tx *db.Tx, before, r *Ride) error {
	doc, err := encode(r)
	if err != nil {
		return err
	}
	if before != nil {
		_, err = tx.Exec(ctx, `UPDATE rides SET subaccount_id = $3, status = $4, trip_type = $5, customer_id = $6, vehicle_id = $7, vehicle_type_id = $8,
			reserved_at = $9, started_at = $10, ended_at = $11, doc = $12 WHERE organization_id = $1 AND id = $2`,
			countedOrg, r.ID, r.SubaccountID, string(r.Status), string(r.TripType), db.Text(string(r.CustomerID)), r.VehicleID, r.vehicleTypeID,
			db.Time(r.ReservedAt.Std()), db.Time(r.StartedAt.Std()), db.Time(r.EndedAt.Std()), string(doc))
	} else {
		_, err = tx.Exec(ctx, `INSERT INTO rides (organization_id, id, subaccount_id, revision, status, trip_type, customer_id, vehicle_id, vehicle_type_id,
			payment_status, reserved_at, started_at, ended_at, updated_at, doc) VALUES ($1, $2, $3, 1, $4, $5, $6, $7, $8, 'due', $9, $10, $11, 0, $12)`,
			countedOrg, r.ID, r.SubaccountID, string(r.Status), string(r.TripType), db.Text(string(r.CustomerID)), r.VehicleID, r.vehicleTypeID,
			db.Time(r.ReservedAt.Std()), db.Time(r.StartedAt.Std()), db.Time(r.EndedAt.Std()), string(doc))
	}
	if err != nil {
		return err
	}
	if before != nil { // documents have times in milliseconds
		text, err := encode(before)
		if err != nil {
			return err
		}
		read := Ride{vehicleTypeID: before.vehicleTypeID}
		if err := json.Unmarshal(text, &read); err != nil {
			return err
		}
		before = &read
	}
	s.invalidateRollups(ctx, tx, countedOrg, before, r)
	return nil
}

func putRides(t testing.TB, s *Service, rides ...*Ride) {
	t.Helper()
	err := s.db.Write(t.Context(), func(tx *db.Tx) error {
		for _, r := range rides {
			if err := putRide(t.Context(), s, tx, nil, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// countedRide returns a completed ride of ten minutes and one kilometer.
func countedRide(id int, start time.Time) *Ride {
	r := &Ride{RecordHeader: RecordHeader{ID: fmt.Sprintf("ride_%d", id), Object: "ride", SubaccountID: "sub_0"}, Status: Completed, TripType: RiderTrip,
		CustomerID: NullString(fmt.Sprintf("cus_%d", id)), VehicleID: fmt.Sprintf("veh_%d", id), vehicleTypeID: "vt_0", StartedAt: rfc3339.Time(start),
		EndedAt: rfc3339.Time(start.Add(10 * time.Minute)), DurationSeconds: 600, DistanceMeters: new(int64(1000))}
	r.Price = &tariff.Price{Currency: "EUR", UnlockAmount: 100, TimeAmount: 250, FareAmount: 350, SubtotalAmount: 350, TaxAmount: 7, TotalAmount: 357}
	r.Metadata = map[string]string{"price": `{"currency":"USD"}`}
	return r
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	got, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return got.UTC()
}

// TestEdgesOfDays is the table of fleet-api.md 7: the first instant of a date
// counts on that date, a millisecond earlier on the day before.
func TestEdgesOfDays(t *testing.T) {
	for _, test := range []struct {
		zone, date, first string
		length            time.Duration
		hours             int
	}{
		{"Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00Z", 23 * time.Hour, 23},
		{"Europe/Berlin", "2026-10-25", "2026-10-24T22:00:00Z", 25 * time.Hour, 25},
		{"America/Santiago", "2026-09-06", "2026-09-06T04:00:00Z", 23 * time.Hour, 23},
		{"America/Havana", "2026-03-08", "2026-03-08T05:00:00Z", 23 * time.Hour, 23},
		{"America/Havana", "2026-11-01", "2026-11-01T04:00:00Z", 25 * time.Hour, 25},
		{"Australia/Lord_Howe", "2026-04-05", "2026-04-04T13:00:00Z", 24*time.Hour + 30*time.Minute, 24},
	} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprint(test.zone, test.date, packed), func(t *testing.T) {
				s := newCounted(t, dbtest.NewFleet(t))
				loc, err := period.Location(test.zone)
				if err != nil {
					t.Fatal(err)
				}
				first := at(t, test.first)
				next := first.Add(test.length)
				putRides(t, s,
					countedRide(1, first.Add(-time.Microsecond)), // .999 in milliseconds
					countedRide(2, first), countedRide(3, first.Add(time.Hour)), countedRide(4, next.Add(-time.Microsecond)),
					countedRide(5, next), countedRide(6, next.Add(time.Microsecond)))
				if packed {
					if err := s.PackRollups(t.Context(), countedOrg); err != nil {
						t.Fatal(err)
					}
				}
				q := AnalyticsQuery{From: first.Add(-24 * time.Hour), To: next.Add(24 * time.Hour), Granularity: period.Day, Location: loc}
				got, err := s.RideAnalytics(t.Context(), countedOrg, q)
				if err != nil {
					t.Fatal(err)
				}
				counts := map[string]int64{}
				for _, row := range got.Rows {
					counts[row.Period.Start.Format(time.DateOnly)] += row.RideCount
					if row.Period.Start.Format(time.DateOnly) == test.date && (!row.Period.Start.Equal(first) || !row.Period.End.Equal(next)) {
						t.Errorf("the day is %v to %v, want %v to %v", row.Period.Start, row.Period.End, first, next)
					}
				}
				day := at(t, test.date+"T00:00:00Z")
				want := map[string]int64{day.AddDate(0, 0, -1).Format(time.DateOnly): 1, test.date: 3, day.AddDate(0, 0, 1).Format(time.DateOnly): 2}
				for date, n := range want {
					if counts[date] != n {
						t.Errorf("%s: got %d rides, want %d (all: %v)", date, counts[date], n, counts)
					}
				}
				if got.Totals.RideCount != 6 || got.Totals.UniqueCustomers != 6 || got.Totals.DurationSeconds != 3600 {
					t.Errorf("totals: got %+v, want 6 rides of 6 customers, an hour", got.Totals)
				}
				q.From, q.To, q.Granularity = first, next, period.Hour
				if got, err = s.RideAnalytics(t.Context(), countedOrg, q); err != nil {
					t.Fatal(err)
				}
				if len(got.Rows) != test.hours || got.Rows[0].RideCount != 1 || got.Rows[test.hours-1].RideCount != 1 || got.Totals.RideCount != 3 {
					t.Errorf("got %d hours, %+v, want %d with a ride in the first and the last, 3 in all", len(got.Rows), got.Totals, test.hours)
				}
			})
		}
	}
}

func TestRideAnalytics(t *testing.T) {
	s := newCounted(t, dbtest.NewFleet(t), "EUR", "JPY", "EUR")
	day := at(t, "2026-03-14T00:00:00Z")
	reserved, expired, active, far, rebalance, odd := countedRide(1, time.Time{}), countedRide(2, time.Time{}), countedRide(3, day), countedRide(4, day), countedRide(5, day), countedRide(6, day.AddDate(0, 0, 1))
	reserved.Status, reserved.EndedAt, reserved.Price, reserved.ReservedAt = Reserved, rfc3339.Time{}, nil, rfc3339.Time(day)
	expired.Status, expired.EndedAt, expired.DistanceMeters, expired.ReservedAt = Cancelled, rfc3339.Time(day.Add(15*time.Minute)), nil, rfc3339.Time(day)
	expired.Price = &tariff.Price{Currency: "EUR", ReservationAmount: 150, SubtotalAmount: 150, TotalAmount: 50, AdjustmentAmount: -100}
	active.Status, active.EndedAt, active.Price, active.DistanceMeters = Active, rfc3339.Time{}, nil, nil
	far.DurationSeconds, far.DistanceMeters, far.CustomerID, far.StartZoneID = 601, nil, "cus_6", "zone_1"
	rebalance.TripType, rebalance.CustomerID, rebalance.Price = RebalanceTrip, "", &tariff.Price{Currency: "EUR"}
	odd.Price = &tariff.Price{Currency: "JPY", UnlockAmount: 130, FareAmount: 130, SubtotalAmount: 130, TaxAmount: 13, TotalAmount: 143}
	putRides(t, s, reserved, expired, active, far, rebalance, odd)

	q := AnalyticsQuery{From: day, To: day.AddDate(0, 0, 3), Granularity: period.Day, TripTypes: []TripType{RiderTrip}}
	rides, err := s.RideAnalytics(t.Context(), countedOrg, q)
	if err != nil {
		t.Fatal(err)
	}
	first := RideFigures{RideCount: 3, CompletedCount: 1, CancelledCount: 1, DurationSeconds: 601, AverageDurationSeconds: new(int64(601)), UniqueCustomers: 3, UniqueVehicles: 3}
	second := RideFigures{RideCount: 1, CompletedCount: 1, DurationSeconds: 600, DistanceMeters: 1000, AverageDurationSeconds: new(int64(600)), AverageDistanceMeters: new(int64(1000)), UniqueCustomers: 1, UniqueVehicles: 1}
	total := RideFigures{RideCount: 4, CompletedCount: 2, CancelledCount: 1, DurationSeconds: 1201, DistanceMeters: 1000,
		AverageDurationSeconds: new(int64(601)), AverageDistanceMeters: new(int64(1000)), UniqueCustomers: 3, UniqueVehicles: 4}
	if got, want := figures(rides.Rows), []RideFigures{first, second, {}}; !reflect.DeepEqual(got, want) {
		t.Errorf("rides:\n got %+v\nwant %+v", got, want)
	}
	if !reflect.DeepEqual(rides.Totals, total) {
		t.Errorf("totals:\n got %+v\nwant %+v", rides.Totals, total)
	}

	q.GroupBy = []string{"start_zone_id", "status"}
	if rides, err = s.RideAnalytics(t.Context(), countedOrg, q); err != nil {
		t.Fatal(err)
	}
	var groups [][]NullString
	for _, row := range rides.Rows {
		groups = append(groups, row.Group)
	}
	if want := [][]NullString{{"", "active"}, {"", "cancelled"}, {"zone_1", "completed"}, {"", "completed"}}; !reflect.DeepEqual(groups, want) {
		t.Errorf("groups: got %q, want %q", groups, want)
	}

	q.GroupBy = nil
	revenue, err := s.RevenueAnalytics(t.Context(), countedOrg, q)
	if err != nil {
		t.Fatal(err)
	}
	eur := RevenueFigures{Currency: "EUR", RideCount: 2, UnlockAmount: 100, TimeAmount: 250, FareAmount: 350, ReservationAmount: 150, SubtotalAmount: 500, TaxAmount: 7, AdjustmentAmount: -100, TotalAmount: 407, NetAmount: 400}
	jpy := RevenueFigures{Currency: "JPY", RideCount: 1, UnlockAmount: 130, FareAmount: 130, SubtotalAmount: 130, TaxAmount: 13, TotalAmount: 143, NetAmount: 130}
	var sums []RevenueFigures
	for _, row := range revenue.Rows {
		sums = append(sums, row.RevenueFigures)
	}
	if want := []RevenueFigures{eur, {Currency: "JPY"}, {Currency: "EUR"}, jpy, {Currency: "EUR"}, {Currency: "JPY"}}; !slices.Equal(sums, want) {
		t.Errorf("revenue:\n got %+v\nwant %+v", sums, want)
	}
	if want := []RevenueFigures{eur, jpy}; !slices.Equal(revenue.Totals, want) {
		t.Errorf("totals:\n got %+v\nwant %+v", revenue.Totals, want)
	}

	for _, test := range []struct {
		subaccounts []string
		want        []RevenueFigures
	}{
		{nil, []RevenueFigures{{Currency: "EUR"}, {Currency: "JPY"}}},
		{[]string{"sub_0", "sub_2"}, []RevenueFigures{{Currency: "EUR"}}},
		{[]string{}, []RevenueFigures{}},
	} {
		q := AnalyticsQuery{From: day.AddDate(1, 0, 0), To: day.AddDate(1, 0, 1), Granularity: period.Total, Subaccounts: test.subaccounts}
		if revenue, err = s.RevenueAnalytics(t.Context(), countedOrg, q); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(revenue.Totals, test.want) || len(revenue.Rows) != len(test.want) {
			t.Errorf("nothing, of %v: got %+v, want %+v", test.subaccounts, revenue, test.want)
		}
	}
}

func figures(rows []RideRow) (list []RideFigures) {
	for _, row := range rows {
		list = append(list, row.RideFigures)
	}
	return list
}

func TestAnalyticsRefuses(t *testing.T) {
	s := newCounted(t, dbtest.NewFleet(t))
	day := at(t, "2026-03-14T00:00:00Z")
	for name, test := range map[string]struct {
		change func(*AnalyticsQuery)
		want   string
	}{
		"empty":       {func(q *AnalyticsQuery) { q.To = q.From }, "to"},
		"backwards":   {func(q *AnalyticsQuery) { q.To = q.From.Add(-1) }, "to"},
		"too many":    {func(q *AnalyticsQuery) { q.To, q.Granularity = q.From.Add(5000*time.Hour+1), period.Hour }, "to"},
		"granularity": {func(q *AnalyticsQuery) { q.Granularity = "year" }, "granularity"},
		"member":      {func(q *AnalyticsQuery) { q.GroupBy = []string{"currency"} }, "group_by"},
		"three":       {func(q *AnalyticsQuery) { q.GroupBy = []string{"status", "trip_type", "subaccount_id"} }, "group_by"},
		"twice":       {func(q *AnalyticsQuery) { q.GroupBy = []string{"status", "status"} }, "group_by"},
		"basis":       {func(q *AnalyticsQuery) { q.DateBasis = "created_at" }, "date_basis"},
	} {
		q := AnalyticsQuery{From: day, To: day.AddDate(0, 0, 1), Granularity: period.Day}
		test.change(&q)
		_, err := s.RideAnalytics(t.Context(), countedOrg, q)
		_, other := s.RevenueAnalytics(t.Context(), countedOrg, q)
		for _, err := range []error{err, other} {
			if problem.Of(err) != problem.Invalid || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got %v, want Invalid for %s", name, err, test.want)
			}
		}
	}
	_, err := s.RideAnalytics(t.Context(), "nobody", AnalyticsQuery{From: day, To: day.AddDate(0, 0, 1), Granularity: period.Day})
	if problem.Of(err) != problem.NotFound {
		t.Errorf("an organization without a fleet: got %v, want NotFound", err)
	}
}

// naiveKey is a row of the naive count.
type naiveKey struct {
	period          int
	a, b, currency_ string
}

// naive computes both reports from a list of rides.
func naive(rides map[string]*Ride, q AnalyticsQuery, revenue bool) (rows map[naiveKey]string, totals map[string]string) {
	periods, err := period.Split(q.From, q.To, q.Granularity, q.Location)
	if err != nil {
		panic(err)
	}
	type bag struct{ list []*Ride }
	bags, all := map[naiveKey]*bag{}, map[string]*bag{}
	for _, r := range rides {
		basis := r.StartedAt.Std()
		if q.DateBasis == "ended_at" {
			basis = r.EndedAt.Std()
		} else if basis.IsZero() {
			basis = r.ReservedAt.Std()
		}
		shown := basis.Truncate(time.Millisecond)
		if basis.IsZero() || r.Status == Reserved || shown.Before(q.From) || !shown.Before(q.To) ||
			q.Subaccounts != nil && !slices.Contains(q.Subaccounts, r.SubaccountID) ||
			q.VehicleTypes != nil && !slices.Contains(q.VehicleTypes, r.vehicleTypeID) ||
			q.TripTypes != nil && !slices.Contains(q.TripTypes, r.TripType) ||
			revenue && (r.Price == nil || r.Status.Open()) {
			continue
		}
		var key naiveKey
		for key.period = range periods {
			if shown.Before(periods[key.period].End) {
				break
			}
		}
		for i, member := range q.GroupBy {
			value := map[string]string{"subaccount_id": r.SubaccountID, "vehicle_type_id": r.vehicleTypeID, "trip_type": string(r.TripType),
				"start_zone_id": string(r.StartZoneID), "pricing_plan_id": string(r.PricingPlanID), "status": string(r.Status)}[member]
			if i == 0 {
				key.a = value
			} else {
				key.b = value
			}
		}
		if revenue {
			key.currency_ = r.Price.Currency
		}
		for _, b := range []*bag{at2(bags, key), at2(all, key.currency_)} {
			b.list = append(b.list, r)
		}
	}
	show := func(b *bag, currency string) string {
		if revenue {
			f := RevenueFigures{Currency: currency, RideCount: int64(len(b.list))}
			for _, r := range b.list {
				f.UnlockAmount += r.Price.UnlockAmount
				f.TimeAmount += r.Price.TimeAmount
				f.PauseAmount += r.Price.PauseAmount
				f.DistanceAmount += r.Price.DistanceAmount
				f.FareAmount += r.Price.FareAmount
				f.ReservationAmount += r.Price.ReservationAmount
				f.OutOfZoneAmount += r.Price.OutOfZoneAmount
				f.SubtotalAmount += r.Price.SubtotalAmount
				f.TaxAmount += r.Price.TaxAmount
				f.AdjustmentAmount += r.Price.AdjustmentAmount
				f.TotalAmount += r.Price.TotalAmount
				f.NetAmount += r.Price.TotalAmount - r.Price.TaxAmount
			}
			return fmt.Sprintf("%+v", f)
		}
		f := RideFigures{RideCount: int64(len(b.list))}
		customers, vehicles, far := map[NullString]bool{}, map[string]bool{}, int64(0)
		for _, r := range b.list {
			if r.CustomerID != "" {
				customers[r.CustomerID] = true
			}
			vehicles[r.VehicleID] = true
			switch r.Status {
			case Completed:
				f.CompletedCount++
				f.DurationSeconds += r.DurationSeconds
				if r.DistanceMeters != nil {
					f.DistanceMeters += *r.DistanceMeters
					far++
				}
			case Cancelled:
				f.CancelledCount++
			}
		}
		f.UniqueCustomers, f.UniqueVehicles = int64(len(customers)), int64(len(vehicles))
		return showRides(f, half(f.DurationSeconds, f.CompletedCount), half(f.DistanceMeters, far))
	}
	rows, totals = map[naiveKey]string{}, map[string]string{}
	for key, b := range bags {
		rows[key] = show(b, key.currency_)
	}
	for currency, b := range all {
		totals[currency] = show(b, currency)
	}
	return rows, totals
}

func at2[K comparable, V any](m map[K]*V, key K) *V {
	if m[key] == nil {
		m[key] = new(V)
	}
	return m[key]
}

// half formats a mean rounded half up.
func half(sum, n int64) string {
	if n == 0 {
		return "nil"
	}
	return strconv.FormatInt((2*sum+n)/(2*n), 10)
}

func showRides(f RideFigures, duration, distance string) string {
	f.AverageDurationSeconds, f.AverageDistanceMeters = nil, nil
	return fmt.Sprintf("%+v %s %s", f, duration, distance)
}

func shown(f RideFigures) string {
	text := func(v *int64) string {
		if v == nil {
			return "nil"
		}
		return strconv.FormatInt(*v, 10)
	}
	return showRides(f, text(f.AverageDurationSeconds), text(f.AverageDistanceMeters))
}

// wantNaive compares both reports with the naive ones.
func wantNaive(t rapid.TB, s *Service, rides map[string]*Ride, q AnalyticsQuery) {
	t.Helper()
	periods, _ := period.Split(q.From, q.To, q.Granularity, q.Location)
	place := func(p period.Period) int { return slices.Index(periods, p) }
	group := func(key *naiveKey, values []NullString) {
		if len(values) > 0 {
			key.a = string(values[0])
		}
		if len(values) > 1 {
			key.b = string(values[1])
		}
	}
	inOrder := func(list []naiveKey) {
		if !slices.IsSortedFunc(list, func(x, y naiveKey) int {
			return cmp.Or(cmp.Compare(x.period, y.period), cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b), cmp.Compare(x.currency_, y.currency_))
		}) {
			t.Errorf("not in order: %v", list)
		}
	}
	counted, err := s.RideAnalytics(context.Background(), countedOrg, q)
	if err != nil {
		t.Fatal(err)
	}
	q.DateBasis = cmp.Or(q.DateBasis, "started_at")
	want, totals := naive(rides, q, false)
	got, order := map[naiveKey]string{}, []naiveKey{}
	for _, row := range counted.Rows {
		key := naiveKey{period: place(row.Period)}
		group(&key, row.Group)
		order = append(order, key)
		if row.RideCount != 0 || len(q.GroupBy) > 0 {
			got[key] = shown(row.RideFigures)
		}
	}
	inOrder(order)
	if !maps.Equal(got, want) {
		t.Fatalf("%+v\n got %v\nwant %v", q, got, want)
	}
	if total := cmp.Or(totals[""], shown(RideFigures{})); shown(counted.Totals) != total {
		t.Fatalf("%+v: totals\n got %v\nwant %v", q, shown(counted.Totals), total)
	}
	if len(q.GroupBy) == 0 && len(counted.Rows) != len(periods) {
		t.Fatalf("%+v: got %d rows, want %d", q, len(counted.Rows), len(periods))
	}

	revenue, err := s.RevenueAnalytics(context.Background(), countedOrg, q)
	if err != nil {
		t.Fatal(err)
	}
	want, totals = naive(rides, q, true)
	got, order = map[naiveKey]string{}, nil
	for _, row := range revenue.Rows {
		key := naiveKey{period: place(row.Period), currency_: row.Currency}
		group(&key, row.Group)
		order = append(order, key)
		if row.RideCount != 0 || len(q.GroupBy) > 0 {
			got[key] = fmt.Sprintf("%+v", row.RevenueFigures)
		}
	}
	inOrder(order)
	if !maps.Equal(got, want) {
		t.Fatalf("%+v: revenue\n got %v\nwant %v", q, got, want)
	}
	for _, total := range revenue.Totals {
		if total.RideCount != 0 && totals[total.Currency] != fmt.Sprintf("%+v", total) {
			t.Fatalf("%+v: revenue in total\n got %+v\nwant %v", q, total, totals[total.Currency])
		}
		delete(totals, total.Currency)
	}
	if len(totals) != 0 {
		t.Fatalf("%+v: not in the totals: %v", q, totals)
	}
}

// drawRide draws a ride of a few days around a daylight saving transition.
func drawRide(t *rapid.T, id string) *Ride {
	pick := func(what string, values ...string) string { return rapid.SampledFrom(values).Draw(t, what) }
	moment := func(what string) rfc3339.Time {
		micros := rapid.Int64Range(0, 5*24*3600*1_000_000).Draw(t, what)
		if rapid.Bool().Draw(t, what+" at an edge") {
			micros = micros/1_800_000_000*1_800_000_000 + rapid.Int64Range(-2, 1).Draw(t, "beside")*500
		}
		return rfc3339.Time(time.UnixMicro(1774569600_000_000 + micros).UTC()) // 2026-03-27
	}
	amount := rapid.OneOf(rapid.Int64Range(0, 500), rapid.Int64Range(-1<<40, 1<<40))
	r := &Ride{RecordHeader: RecordHeader{ID: id, Object: "ride", SubaccountID: pick("subaccount", "sub_0", "sub_1")}, TripType: TripType(pick("trip", "rider", "rider", "rebalance")),
		CustomerID: NullString(pick("customer", "", "cus_1", "cus_2", "cus_3")), VehicleID: pick("vehicle", "veh_1", "veh_2", "veh_3"), vehicleTypeID: pick("type", "vt_1", "vt_2"),
		StartZoneID: NullString(pick("zone", "", "zone_1", "zone_2")), PricingPlanID: NullString(pick("plan", "", "plan_1")),
		Status: RideStatus(pick("status", "completed", "completed", "cancelled", "active", "paused", "reserved"))}
	if r.Status == Reserved || r.Status == Cancelled && rapid.Bool().Draw(t, "never started") {
		r.ReservedAt = moment("reserved")
	} else {
		r.StartedAt = moment("started")
	}
	if !r.Status.Open() {
		r.EndedAt = moment("ended")
		r.DurationSeconds = rapid.Int64Range(0, 100_000).Draw(t, "duration")
		if rapid.Bool().Draw(t, "far") {
			r.DistanceMeters = new(rapid.Int64Range(0, 1<<45).Draw(t, "distance"))
		}
		if rapid.IntRange(0, 3).Draw(t, "priced") > 0 {
			n := func(what string) int64 { return amount.Draw(t, what) }
			r.Price = &tariff.Price{Currency: pick("currency", "EUR", "JPY"), UnlockAmount: n("unlock"), TimeAmount: n("time"), PauseAmount: n("pause"),
				DistanceAmount: n("distance amount"), FareAmount: n("fare"), ReservationAmount: n("reservation"), OutOfZoneAmount: n("out of zone"),
				SubtotalAmount: n("subtotal"), TaxAmount: n("tax"), AdjustmentAmount: n("adjustment"), TotalAmount: n("total")}
		}
	}
	r.AdjustmentReason = NullString(pick("reason", "", `sorry, "price":{`, "\\"))
	r.Metadata = map[string]string{}
	return r
}

func drawQuery(t *rapid.T) AnalyticsQuery {
	q := AnalyticsQuery{Granularity: rapid.SampledFrom(period.Granularities[:]).Draw(t, "granularity")}
	loc, err := period.Location(rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe"}).Draw(t, "zone"))
	if err != nil {
		t.Fatal(err)
	}
	q.Location = loc
	q.From = time.UnixMicro(1774569600_000_000 + rapid.Int64Range(-24, 100).Draw(t, "from")*3_600_000_000 + rapid.SampledFrom([]int64{0, 0, 0, -500, 1000}).Draw(t, "beside"))
	q.To = q.From.Add(time.Duration(rapid.Int64Range(1, 150*3600*1000).Draw(t, "milliseconds")) * time.Millisecond)
	subset := func(what string, values ...string) []string {
		list := rapid.SliceOfNDistinct(rapid.SampledFrom(values), 0, len(values), rapid.ID[string]).Draw(t, what)
		if len(list) == 0 {
			return nil
		}
		return list
	}
	q.Subaccounts, q.VehicleTypes = subset("subaccounts", "sub_0", "sub_1"), subset("types", "vt_1", "vt_2", "vt_3")
	for _, trip := range subset("trips", "rider", "rebalance", "maintenance") {
		q.TripTypes = append(q.TripTypes, TripType(trip))
	}
	q.GroupBy = rapid.SliceOfNDistinct(rapid.SampledFrom(RideGroupMembers[:]), 0, 2, rapid.ID[string]).Draw(t, "groups")
	q.DateBasis = rapid.SampledFrom([]string{"", "started_at", "ended_at"}).Draw(t, "basis")
	return q
}

// TestAnalyticsAreSums: reports agree with the rides, whether packed, changed or
// not.
func TestAnalyticsAreSums(t *testing.T) {
	s := newCounted(t, dbtest.NewFleet(t), "EUR", "JPY")
	ctx := t.Context()
	err := s.db.Write(ctx, func(tx *db.Tx) error { // also inconsistent rides
		_, err := tx.Exec(ctx, "DROP INDEX rides_open_vehicle")
		if err == nil {
			_, err = tx.Exec(ctx, "DROP INDEX rides_open_customer")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rounds := 4
	if s.db.Postgres() { // where statements take ten times as long
		rounds = 1
	}
	rapid.Check(t, func(t *rapid.T) {
		rides := map[string]*Ride{}
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(s.db.Write(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, "DELETE FROM rides"); err != nil {
				return err
			}
			return s.deleteRollups(ctx, tx, countedOrg)
		}))
		put := func() {
			id := "ride_" + strconv.Itoa(len(rides))
			before := rides[id]
			if len(rides) > 0 && rapid.Bool().Draw(t, "change") {
				id = rapid.SampledFrom(slices.Sorted(maps.Keys(rides))).Draw(t, "ride")
				before = rides[id]
			}
			r := drawRide(t, id)
			if before != nil && rapid.Bool().Draw(t, "only the price") {
				price := r.Price
				*r = *before
				if r.Price != nil && price != nil {
					r.Price = price
				}
			}
			must(s.db.Write(ctx, func(tx *db.Tx) error { return putRide(ctx, s, tx, before, r) }))
			rides[id] = r
		}
		// Small chunks behave like chunks of thousands.
		pack := func() {
			for _, b := range []basis{startedBasis(), endedBasis()} {
				for {
					end, err := lastChunkEnd(ctx, s.db, countedOrg, b)
					must(err)
					next, err := nextChunkEnd(ctx, s.db, chunk{organization: countedOrg, basis: b, start: end, end: 1 << 62}, rapid.IntRange(1, 8).Draw(t, "together"), rapid.Bool().Draw(t, "rest"))
					must(err)
					if next == 0 {
						break
					}
					must(s.db.Write(ctx, func(tx *db.Tx) error {
						return insertChunk(ctx, tx, chunk{countedOrg, b, end, next, newStamp()})
					}))
				}
			}
			more := true
			for range rapid.IntRange(0, 3).Draw(t, "packed") {
				if more {
					var err error
					more, err = s.packWhere(ctx, 8, "runs IS NULL")
					must(err)
				}
			}
		}
		for range rapid.IntRange(1, rounds).Draw(t, "rounds") {
			for range rapid.IntRange(1, 12).Draw(t, "rides") {
				put()
			}
			if rapid.IntRange(0, 3).Draw(t, "pack") > 0 {
				pack()
			}
			wantNaive(t, s, rides, drawQuery(t))
			wantNaive(t, s, rides, drawQuery(t))
		}
	})
}

// TestFactsOfRides: a ride and its document give the same fact.
func TestFactsOfRides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRide(t, "ride_1")
		doc, err := encode(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readFact(string(doc), r.vehicleTypeID, time.UnixMilli(5))
		if want := factOf(r, time.UnixMilli(5)); err != nil || got != want {
			t.Fatalf("%s:\n got %+v, %v\nwant %+v", doc, got, err, want)
		}
	})
}

// TestPackedFacts: facts survive a round trip.
func TestPackedFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Just(int64(7)), rapid.Int64Range(0, 100), rapid.Int64Range(-1<<55, 1<<55), rapid.Int64())
		facts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) encodedFact {
			f := encodedFact{at: number.Draw(t, "at"), group: rapid.Int64Range(0, 3).Draw(t, "group")}
			for i := range f.rides {
				f.rides[i] = number.Draw(t, "ride")
			}
			f.money[0], f.money[moneyColumns-1] = number.Draw(t, "money"), rapid.Int64().Draw(t, "money")
			return f
		}), 0, 50).Draw(t, "facts")
		packed := packFacts(facts) // sorts facts
		runs, n, err := parseRuns(packed.runs)
		if err != nil || n != len(facts) {
			t.Fatalf("got %d facts, %v, want %d", n, err, len(facts))
		}
		var rides [rideColumns]bitpack.Column
		var money [moneyColumns]bitpack.Column
		var times [1]bitpack.Column
		for text, to := range map[*[]byte][]bitpack.Column{&packed.rides: rides[:], &packed.money: money[:], &packed.times: times[:]} {
			if err := bitpack.Parse(*text, n, to); err != nil {
				t.Fatal(err)
			}
			if err := bitpack.Parse((*text)[:len(*text)-1], n, to); err == nil {
				t.Fatal("one byte less was taken")
			}
		}
		for _, r := range runs {
			sum := int64(0)
			for i := r.lo; i < r.hi; i++ {
				got := encodedFact{at: times[0].At(i), group: r.group}
				for c := range rides {
					got.rides[c] = rides[c].At(i)
				}
				for c := range money {
					got.money[c] = money[c].At(i)
				}
				if got != facts[i] {
					t.Fatalf("fact %d: got %+v, want %+v", i, got, facts[i])
				}
				sum += facts[i].money[0]
			}
			if got := money[0].Sum(r.lo, r.hi); got != sum {
				t.Fatalf("got the sum %d, want %d", got, sum)
			}
		}
	})
}

// TestPackBesideWriters: concurrent packing and changes leave only rollups that
// agree with the rides.
func TestPackBesideWriters(t *testing.T) {
	s := newCounted(t, dbtest.NewFleet(t))
	ctx := t.Context()
	day := at(t, "2026-03-14T00:00:00Z")
	const writers, each = 4, 60
	rides := make([]*Ride, 200)
	for i := range rides {
		rides[i] = countedRide(i, day.Add(time.Duration(i)*time.Minute))
	}
	putRides(t, s, rides...)
	for i := range 20 { // chunks of ten minutes
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			for _, b := range []basis{startedBasis(), endedBasis()} {
				start := day.Add(time.Duration(i) * 10 * time.Minute).UnixMicro()
				if err := insertChunk(ctx, tx, chunk{countedOrg, b, start, start + 600_000_000, newStamp()}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	q := AnalyticsQuery{From: day, To: day.AddDate(0, 0, 1), Granularity: period.Hour, Location: time.UTC, GroupBy: []string{"status"}}
	var writing, packing sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		packing.Go(func() {
			for {
				if _, err := s.packWhere(ctx, 8, "runs IS NULL"); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for range each {
				i := random.IntN(len(rides)/writers)*writers + w // a ride of this writer
				before, after := rides[i], *rides[i]
				after.Price = new(*before.Price)
				after.Price.TimeAmount = random.Int64N(1000)
				after.StartedAt = rfc3339.Time(day.Add(time.Duration(random.IntN(200)) * time.Minute))
				if err := s.db.Write(ctx, func(tx *db.Tx) error { return putRide(ctx, s, tx, before, &after) }); err != nil {
					t.Error(err)
					return
				}
				rides[i] = &after
			}
		})
	}
	writing.Wait()
	close(done)
	packing.Wait()
	all := map[string]*Ride{}
	for _, r := range rides {
		all[r.ID] = r
	}
	for _, q.DateBasis = range RideBases {
		wantNaive(t, s, all, q)
	}
	if err := s.PackRollups(ctx, countedOrg); err != nil {
		t.Fatal(err)
	}
	for _, q.DateBasis = range RideBases {
		wantNaive(t, s, all, q)
	}
}

// TestPack: packPending packs rides of sufficient age, splits large chunks, and
// repacks invalidated ones.
func TestPack(t *testing.T) {
	s := newCounted(t, dbtest.NewFleet(t))
	const few = 200
	s.packedRides = few
	ctx := t.Context()
	count := func(where string) (n int64) {
		t.Helper()
		if err := s.db.QueryRow(ctx, "SELECT count(*) FROM ride_facts WHERE basis = 'started_at' AND "+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	pack := func() {
		t.Helper()
		if err := s.packPending(ctx); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]*Ride{}
	put := func(first, n int, start time.Time) {
		t.Helper()
		list := make([]*Ride, n)
		for i := range list {
			list[i] = countedRide(first+i, start.Add(time.Duration(i)*time.Second))
			all[list[i].ID] = list[i]
		}
		putRides(t, s, list...)
	}
	now := time.Now().UTC().Truncate(time.Second)
	old := now.Add(-20 * time.Hour)
	put(0, few, old)
	pack()
	if got := count("true"); got != 0 {
		t.Errorf("too few rides: got %d stretches, want none", got)
	}
	put(few, 2*few, now.Add(-packDelay).Add(-few*time.Second))
	pack()
	pack()
	if got := count("runs IS NOT NULL"); got != 1 && got != 2 {
		t.Errorf("got %d packed stretches, want 1 or 2: what is new is left alone", got)
	}
	put(3*few, 5*few, old.Add(-time.Hour*48)) // into the first chunk
	for range 3 {
		pack()
	}
	if got := count("runs IS NOT NULL"); got < 5 || count("runs IS NULL") != 0 {
		t.Errorf("got %d packed stretches and %d others, want at least 5 and none", got, count("runs IS NULL"))
	}
	q := AnalyticsQuery{From: now.AddDate(0, 0, -5), To: now.AddDate(0, 0, 1), Granularity: period.Day, Location: time.UTC}
	wantNaive(t, s, all, q)

	changed := *all["ride_7"]
	change := func(alter func(*Ride)) {
		t.Helper()
		before := changed
		alter(&changed)
		if err := s.db.Write(ctx, func(tx *db.Tx) error { return putRide(ctx, s, tx, &before, &changed) }); err != nil {
			t.Fatal(err)
		}
		all["ride_7"] = &changed
	}
	change(func(r *Ride) { r.PaymentStatus = "paid" })
	if got := count("runs IS NULL"); got != 0 {
		t.Errorf("after a change that is not counted: got %d stretches forgotten, want none", got)
	}
	change(func(r *Ride) { r.DistanceMeters = new(int64(5)) })
	if got := count("runs IS NULL"); got != 1 {
		t.Errorf("after a change: got %d stretches forgotten, want 1", got)
	}
	wantNaive(t, s, all, q)
	pack()
	if got := count("runs IS NULL"); got != 0 {
		t.Errorf("packed again: got %d stretches that are not, want none", got)
	}
	wantNaive(t, s, all, q)
}

func BenchmarkForgetFacts(b *testing.B) {
	s := newCounted(b, dbtest.NewFleet(b))
	for i := range 10 {
		putRides(b, s, countedRide(i, time.Now().Add(-time.Hour)))
	}
	if err := s.PackRollups(b.Context(), countedOrg); err != nil {
		b.Fatal(err)
	}
	r := countedRide(100, time.Now())
	for b.Loop() {
		err := s.db.Write(b.Context(), func(tx *db.Tx) error {
			s.invalidateRollups(b.Context(), tx, countedOrg, nil, r)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// manyRides is the environment variable with the number of rides of
// BenchmarkAnalytics. The target is 5000000, which takes about 6 GB in the
// temporary directory.
const manyRides = "KICKSTAND_BENCH_RIDES"

func BenchmarkAnalytics(b *testing.B) {
	n := 20_000
	if text := os.Getenv(manyRides); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	s := newCounted(b, dbtest.NewFleet(b), "EUR")
	year := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	loadYear(b, s, n, year)
	began := time.Now()
	if err := s.PackRollups(b.Context(), countedOrg); err != nil {
		b.Fatal(err)
	}
	b.Logf("packed %d rides in %v", n, time.Since(began))
	loc, err := period.Location("Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	for _, granularity := range []period.Granularity{period.Day, period.Month, period.Total} {
		for _, groupBy := range [][]string{nil, {"vehicle_type_id"}, {"start_zone_id"}, {"start_zone_id", "pricing_plan_id"}} {
			q := AnalyticsQuery{From: year, To: year.AddDate(1, 0, 0), Granularity: granularity, Location: loc, GroupBy: groupBy, TripTypes: []TripType{RiderTrip}}
			name := string(granularity) + "/" + strings.Join(groupBy, ",")
			b.Run("rides/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					got, err := s.RideAnalytics(b.Context(), countedOrg, q)
					if err != nil || got.Totals.RideCount == 0 {
						b.Fatal(got.Totals, err)
					}
				}
			})
			b.Run("revenue/"+name, func(b *testing.B) {
				for b.Loop() {
					got, err := s.RevenueAnalytics(b.Context(), countedOrg, q)
					if err != nil || len(got.Totals) != 1 {
						b.Fatal(got.Totals, err)
					}
				}
			})
		}
	}
	q := AnalyticsQuery{From: year, To: year.AddDate(1, 0, 0), Granularity: period.Day, Location: loc}
	runtime.GC()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	highest := uint64(0)
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			runtime.ReadMemStats(&during)
			highest = max(highest, during.HeapAlloc)
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
	}()
	if _, err := s.RideAnalytics(b.Context(), countedOrg, q); err != nil {
		b.Fatal(err)
	}
	close(done)
	<-watched
	b.Logf("a year by day: heap at most %d MB more", (highest-before.HeapAlloc)>>20)
}

// loadYear writes rides evenly over a year, without indexes that analytics do not
// use.
func loadYear(b *testing.B, s *Service, n int, year time.Time) {
	b.Helper()
	ctx := b.Context()
	random := rand.New(rand.NewPCG(1, 2))
	began := time.Now()
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		for _, index := range []string{"rides_external", "rides_open_vehicle", "rides_open_customer", "rides_due", "rides_customer", "rides_vehicle", "rides_subaccount", "rides_zone",
			"rides_plan", "rides_payment", "rides_status", "rides_trip", "rides_updated", "rides_total", "rides_duration"} {
			if _, err := tx.Exec(ctx, "DROP INDEX "+index); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	const batch = 50_000
	for first := 0; first < n; first += batch {
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			for i := first; i < min(n, first+batch); i++ {
				start := year.Add(time.Duration(i) * (365 * 24 * time.Hour / time.Duration(n))).Add(time.Duration(random.IntN(1000)) * time.Millisecond)
				seconds := 60 + random.Int64N(1800)
				end := start.Add(time.Duration(seconds)*time.Second + 123*time.Millisecond)
				minutes := (seconds + 59) / 60
				sub, status, trip, tax := random.IntN(3), Completed, RiderTrip, int64(0)
				if random.IntN(30) == 0 {
					status = Cancelled
				}
				if random.IntN(40) == 0 {
					trip = RebalanceTrip
				}
				total := 100 + 25*minutes
				doc := fmt.Sprintf(`{"id":"ride_%026d","object":"ride","livemode":true,"subaccount_id":"sub_01KKNTQ222EMQ8K9W39QSAE%03d","external_id":null,"status":"%s","trip_type":"%s","customer_id":"cus_01KKNTQ4ZTE60TAK36%06d","vehicle_id":"veh_01KKNTQ40JE4MA4JZ4%06d","pricing_plan_id":"plan_01KKNTQ5Z2E3PT0YEKQQME4%03d","pricing_plan_version":3,"reserved_at":null,"reservation_expires_at":null,"started_at":"%s","ended_at":"%s","duration_seconds":%d,"paused_seconds":0,"distance_meters":%d,"start_location":{"lat":52.520008,"lng":13.404954},"end_location":{"lat":52.531677,"lng":13.381777,"accuracy_meters":6},"start_zone_id":"zone_01KKNTQ6YAEDQRB018TR4SJ%03d","end_zone_id":null,"end_reason":"rider","cancel_reason":null,"parking_verification_url":null,"parking_category":"rack","price":{"currency":"EUR","unlock_amount":100,"time_amount":%d,"pause_amount":0,"distance_amount":0,"fare_amount":%d,"reservation_amount":0,"out_of_zone_amount":0,"subtotal_amount":%d,"tax_amount":%d,"adjustment_amount":0,"total_amount":%d,"billed_minutes":%d,"billed_paused_minutes":0,"billed_kilometers":3,"billed_reservation_minutes":0},"adjustment_amount":0,"adjustment_reason":null,"payment_status":"due","metadata":{},"created_at":"2026-03-14T09:26:53.250Z","updated_at":"2026-03-14T09:38:08.250Z"}`,
					i, sub, status, trip, random.IntN(50_000), random.IntN(100_000), sub*3+random.IntN(3), start.Format(rfc3339.Layout), end.Format(rfc3339.Layout), seconds, random.Int64N(8000),
					sub*10+random.IntN(10), 25*minutes, total, total, tax, total, minutes)
				_, err := tx.Exec(ctx, `INSERT INTO rides (organization_id, id, subaccount_id, revision, status, trip_type, vehicle_id, vehicle_type_id, payment_status, started_at, ended_at, updated_at, doc)
					VALUES ($1, $2, '', 1, $3, $4, '', $5, 'due', $6, $7, 0, $8)`, countedOrg, fmt.Sprintf("ride_%026d", i), string(status), string(trip),
					fmt.Sprintf("vt_01KKNTQ31AES8R65RZYJKA7%03d", sub*2+random.IntN(2)), start.UnixMicro(), end.UnixMicro(), doc)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("loaded %d rides in %v", n, time.Since(began))
}
