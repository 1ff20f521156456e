package fleet

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
)

// explainer fails the test if a statement scans a table, sorts all records of an
// organization, or scans regions by another index.
type explainer struct {
	db.Querier
	t    *testing.T
	n    int
	rare int // scans of the partial index of vehicles
	seen []string
}

var (
	wholeTable = regexp.MustCompile(`^SCAN (rides|vehicles|customers|untiled_rides|ride_layers|ride_tiles)\b`)
	// The bounds of ids, and of a sort key with or without the id.
	lowerBound        = regexp.MustCompile(`AND \(?(?:id|started_at|updated_at)(?:, id\))? >=? `)
	upperBound        = regexp.MustCompile(`AND \(?(?:id|started_at|updated_at)(?:, id\))? <=? `)
	wholeOrganization = regexp.MustCompile(`^SEARCH (rides|vehicles|customers) .*\(organization_id=\?\)$`)
)

func (e *explainer) explain(ctx context.Context, query string, args []any) {
	e.t.Helper()
	lines, err := db.All(ctx, e.Querier, func(row db.Row) (string, error) {
		var id, parent, unused int64
		var detail string
		err := row.Scan(&id, &parent, &unused, &detail)
		return detail, err
	}, "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		e.t.Fatalf("%s: %v", query, err)
	}
	e.n++
	e.seen = append(e.seen, lines...)
	for part := range strings.SplitSeq(query, "UNION ALL ") {
		part, _, _ = strings.Cut(part, " AND CASE ")
		for _, bound := range []*regexp.Regexp{lowerBound, upperBound} {
			if found := bound.FindAllString(part, -1); len(found) > 1 {
				e.t.Errorf("%s: SQLite seeks to one of the bounds %q", query, found)
			}
		}
	}
	sorts := strings.Contains(strings.Join(lines, "\n"), "USE TEMP B-TREE")
	for _, line := range lines {
		if strings.Contains(query, "AND region = ") && strings.HasPrefix(line, "SEARCH vehicles") && !strings.Contains(line, "_region") {
			e.t.Errorf("%s\n%s: %q", query, line, lines)
		}
		if strings.Contains(query, "state NOT IN") && strings.Contains(line, "vehicles_region") {
			if e.rare++; !strings.Contains(line, "vehicles_region_state (organization_id=? AND region=? AND state=?") {
				e.t.Errorf("%s\n%s: %q", query, line, lines)
			}
		}
		if wholeTable.MatchString(line) || sorts && wholeOrganization.MatchString(line) {
			e.t.Errorf("%s\n%s: %q", query, line, lines)
		}
	}
}

func (e *explainer) Query(ctx context.Context, query string, args ...any) (*db.Rows, error) {
	e.explain(ctx, query, args)
	return e.Querier.Query(ctx, query, args...)
}

func (e *explainer) QueryRow(ctx context.Context, query string, args ...any) db.Row {
	e.explain(ctx, query, args)
	return e.Querier.QueryRow(ctx, query, args...)
}

// TestListsGoByIndexes checks SQLite's query plan of every statement of many lists.
func TestListsGoByIndexes(t *testing.T) {
	d := dbtest.NewFleetSQLite(t)
	s := newService(t, d)
	small(s)
	f, m := &filler{t: t, db: d}, newMaker(1)
	for range 100 {
		f.ride(m.ride())
		f.vehicle(m.vehicle())
		f.customer(m.customer())
	}
	f.flush()
	if err := s.rideIndex.Maintain(t.Context(), testOrg); err != nil {
		t.Fatal(err)
	}
	e := &explainer{Querier: d, t: t}
	pages := func(name string, find func(after *keyset.Cursor) (*keyset.Cursor, error)) {
		t.Helper()
		var next *keyset.Cursor
		for range 2 {
			var err error
			if next, err = find(next); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if next == nil {
				return
			}
		}
	}
	quarter := period.Range{Low: new(testNow.AddDate(0, 0, -30)), High: new(testNow.AddDate(0, 0, 60))}
	for _, descending := range []bool{false, true} {
		for _, member := range []string{"created_at", "updated_at", "started_at", "ended_at", "total_amount", "duration_seconds"} {
			for name, q := range map[string]RideQuery{
				"all": {}, "created": {CreatedAt: quarter}, "started": {StartedAt: quarter}, "box": {Box: &geo.Box{MinLng: 13.38, MinLat: 52.49, MaxLng: 13.42, MaxLat: 52.52}, StartedAt: quarter}, "customer": {CustomerID: []string{"cus_veh_1"}},
				"vehicles": {VehicleID: []string{"veh_1", "veh_2"}}, "open": {Status: []RideStatus{Active, Paused}}, "cancelled": {Status: []RideStatus{Cancelled}},
				"completed": {Status: []RideStatus{Completed}}, "rebalance": {TripType: []TripType{RebalanceTrip}}, "external": {ExternalID: []string{"x1", "x2"}},
				"subaccount": {Subaccounts: []string{"sub_1"}, PaymentStatus: []string{"paid"}}, "zone": {ZoneID: []string{"zone_1"}, PricingPlanID: []string{"plan_1"}},
				"amount": {TotalAmount: Integers{Low: new(int64(100)), High: new(int64(300))}},
			} {
				pages(name+" by "+member, func(after *keyset.Cursor) (*keyset.Cursor, error) {
					q.Sort, q.After, q.Limit = keyset.Sort{Field: member, Descending: descending}, after, 5
					_, next, err := s.ListRides(t.Context(), e, testOrg, q)
					return next, err
				})
			}
		}
		for _, member := range []string{"created_at", "updated_at", "code", "battery_percent", "last_reported_at"} {
			for name, q := range map[string]VehicleQuery{
				"all": {}, "box": {Box: &geo.Box{MinLng: 13.38, MinLat: 52.49, MaxLng: 13.42, MaxLat: 52.52}}, "near": {Near: &geo.Circle{Lat: 52.5, Lng: 13.4, RadiusMeters: 5000}}, "state": {State: []VehicleState{Missing}},
				"missing": {Box: &geo.Box{MinLng: 13.38, MinLat: 52.49, MaxLng: 13.42, MaxLat: 52.52}, State: []VehicleState{Missing}}, "gone": {Box: &geo.Box{MinLng: 13.38, MinLat: 52.49, MaxLng: 13.42, MaxLat: 52.52}, State: []VehicleState{Missing, Removed}, Subaccounts: []string{"sub_1"}},
				"type": {VehicleTypeID: []string{"vt_1"}, FormFactor: []string{"bicycle"}}, "battery": {BatteryPercent: Integers{High: new(int64(20))}},
				"code": {Code: []string{"k1"}}, "device": {DeviceID: []string{"d1"}}, "external": {ExternalID: []string{"x1"}},
			} {
				pages(name+" by "+member, func(after *keyset.Cursor) (*keyset.Cursor, error) {
					q.Sort, q.After, q.Limit = keyset.Sort{Field: member, Descending: descending}, after, 5
					_, next, err := s.ListVehicles(t.Context(), e, testOrg, q)
					return next, err
				})
			}
		}
		pages("by distance", func(after *keyset.Cursor) (*keyset.Cursor, error) {
			_, next, err := s.ListVehicles(t.Context(), e, testOrg, VehicleQuery{Near: &geo.Circle{Lat: 52.5, Lng: 13.4, RadiusMeters: 5000}, Sort: keyset.Sort{Field: "distance", Descending: descending}, After: after, Limit: 5})
			return next, err
		})
		for _, member := range []string{"created_at", "updated_at", "name"} {
			for name, q := range map[string]CustomerQuery{
				"all": {}, "status": {Status: []CustomerStatus{CustomerBlocked}}, "email": {Email: []string{"u1@example.com"}}, "phone": {Phone: []string{"+49301"}},
			} {
				pages(name+" by "+member, func(after *keyset.Cursor) (*keyset.Cursor, error) {
					q.Sort, q.After, q.Limit = keyset.Sort{Field: member, Descending: descending}, after, 5
					_, next, err := s.ListCustomers(t.Context(), e, testOrg, q)
					return next, err
				})
			}
		}
	}
	if e.n < 500 {
		t.Errorf("statements that were looked at: got %d, want more", e.n)
	}
}

// TestPointsReadFewRides: an hour of points for agencies reads the rides of its time, not all later ones.
func TestPointsReadFewRides(t *testing.T) {
	d := dbtest.NewFleetSQLite(t)
	f, m := &filler{t: t, db: d}, newMaker(1)
	for range 100 {
		f.ride(m.ride())
		f.vehicle(m.vehicle())
	}
	f.flush()
	e := &explainer{Querier: d, t: t}
	of := &MDSArea{OrganizationID: testOrg, Subaccount: Subaccount{ID: "sub_1"}, Now: testNow}
	g := mdsGroup{of: of, from: testNow.Add(-time.Hour), to: testNow, rides: make(map[string][]mdsRide), changes: make(map[string][]MDSPoint), segments: make(map[string][]mdsSegment)}
	if err := g.read(t.Context(), e, ""); err != nil || len(g.vehicles) == 0 {
		t.Fatalf("%d vehicles, %v", len(g.vehicles), err)
	}
	if want := "SEARCH rides USING INDEX rides_vehicle (organization_id=? AND vehicle_id=? AND id>? AND id<?)"; !slices.Contains(e.seen, want) {
		t.Errorf("got %q, want %q", e.seen, want)
	}
}

// TestCustomerSearchPlan: SQLite reads the customers of a search from their index alone.
func TestCustomerSearchPlan(t *testing.T) {
	d := dbtest.NewFleetSQLite(t)
	plan, err := db.All(t.Context(), d, func(row db.Row) (string, error) {
		var id, parent, unused int64
		var detail string
		err := row.Scan(&id, &parent, &unused, &detail)
		return detail, err
	}, "EXPLAIN QUERY PLAN "+selectSearched, testOrg, "cus_x", searchBatch)
	if err != nil || len(plan) != 1 || plan[0] != "SEARCH customers USING COVERING INDEX customers_search (organization_id=? AND id<?)" {
		t.Errorf("got %q, %v", plan, err)
	}
}
