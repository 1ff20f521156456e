package fleet

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// RideQuery selects rides. A filter matches any of its values. An empty filter
// matches all rides, except Subaccounts.
type RideQuery struct {
	Subaccounts     []string // permitted subaccounts; nil: all
	Subaccount      []string // among the permitted
	Status          []RideStatus
	TripType        []TripType
	CustomerID      []string
	VehicleID       []string
	PricingPlanID   []string
	PaymentStatus   []string
	ExternalID      []string
	ZoneID          []string // of the start
	Box             *geo.Box // of the start; nil: anywhere
	CreatedAt       period.Range
	UpdatedAt       period.Range
	StartedAt       period.Range
	EndedAt         period.Range
	TotalAmount     Integers // open rides have no amount and, in filters, no duration
	DurationSeconds Integers
	Sort            keyset.Sort // by created_at, updated_at, started_at, ended_at, total_amount or duration_seconds
	After           *keyset.Cursor
	Limit           int // 0: 20; at most 100
}

// Check implements [problem.Checker].
func (q *RideQuery) Check(v *problem.Validation) {
	keyset.CheckPage(v, q.Sort, q.After, q.Limit, maxPage, "created_at", "updated_at", "started_at", "ended_at", "total_amount", "duration_seconds")
	keyset.CheckValues(v, "subaccount_id", q.Subaccount)
	keyset.CheckValues(v, "status", q.Status)
	keyset.CheckValues(v, "trip_type", q.TripType)
	keyset.CheckValues(v, "customer_id", q.CustomerID)
	keyset.CheckValues(v, "vehicle_id", q.VehicleID)
	keyset.CheckValues(v, "pricing_plan_id", q.PricingPlanID)
	keyset.CheckValues(v, "payment_status", q.PaymentStatus)
	keyset.CheckValues(v, "external_id", q.ExternalID)
	keyset.CheckValues(v, "zone_id", q.ZoneID)
	checkBox(v, q.Box)
}

// maxBoxRange bounds the time of rides in a box by a sort key other than time
// (fleet-api.md 12): 92 days, the longest quarter, and the hour that the end of
// summer time adds to it.
const maxBoxRange = 92*24*time.Hour + time.Hour

// checkRange returns Unparseable with code range_too_large for a list in a box by a
// sort key other than time without a range of StartedAt or CreatedAt of at most 92
// days.
func (q *RideQuery) checkRange() error {
	bounded := func(r period.Range) bool {
		return r.Low != nil && r.High != nil && r.High.Sub(*r.Low) <= maxBoxRange
	}
	if q.Box == nil || slices.Contains([]string{"", "created_at", "started_at"}, q.Sort.Field) || bounded(q.StartedAt) || bounded(q.CreatedAt) {
		return nil
	}
	e := problem.New(problem.Unparseable, "a list in a box by %s needs a range of started_at or created_at of at most 92 days", q.Sort.Field)
	e.Code = "range_too_large"
	return e
}

// ListRides returns a page of rides and the cursor of the next page, nil after the
// last one. Each page is a snapshot: q's, or its own. A ride that matches
// throughout is on exactly one page, unless its sort key changes. Errors: Invalid;
// Unparseable with code range_too_large.
func (s *Service) ListRides(ctx context.Context, q db.Querier, organizationID string, query RideQuery) ([]Record, *keyset.Cursor, error) {
	if err := cmp.Or(problem.Check(&query), query.checkRange()); err != nil {
		return nil, nil, err
	}
	return s.listPage(ctx, q, query.Limit, func(q db.Querier) (*listQuery, error) { return s.rideListQuery(ctx, q, organizationID, &query) })
}

// maxSample is the maximum length of [Service.RideSample].
const maxSample = 1000

// RideSample returns the first rides of a list in one page, up to 1,000, and whether there are
// more. It ignores After and Limit. Errors: those of [Service.ListRides].
func (s *Service) RideSample(ctx context.Context, q db.Querier, organizationID string, query RideQuery) (rides []Record, more bool, err error) {
	query.After, query.Limit = nil, 0
	if err := cmp.Or(problem.Check(&query), query.checkRange()); err != nil {
		return nil, false, err
	}
	rides, next, err := s.listPage(ctx, q, maxSample, func(q db.Querier) (*listQuery, error) { return s.rideListQuery(ctx, q, organizationID, &query) })
	return rides, next != nil, err
}

// EachRide calls fn with every ride of a list, in order, from one snapshot. fn must
// not retain the record. It ignores After and Limit, stops at an error of fn and
// returns it, and takes an hour at most. Errors: those of [Service.ListRides].
func (s *Service) EachRide(ctx context.Context, organizationID string, query RideQuery, fn func(*Record) error) error {
	query.After, query.Limit = nil, 0
	if err := cmp.Or(problem.Check(&query), query.checkRange()); err != nil {
		return err
	}
	return s.eachRecord(ctx, func(ctx context.Context, q db.Querier) (*listQuery, error) {
		return s.rideListQuery(ctx, q, organizationID, &query)
	}, fn)
}

func (s *Service) rideListQuery(ctx context.Context, q db.Querier, organizationID string, query *RideQuery) (*listQuery, error) {
	a, err := s.orgContext(ctx, q, s.db.Now(), organizationID)
	if err != nil {
		return nil, err
	}
	f := &listQuery{
		ctx: ctx, q: q, organization: organizationID, table: "rides", cell: "start_cell", rides: true, rideIndex: s.rideIndex, limits: s.rideLists,
		columnsWithCell: []string{"status", "payment_status", "updated_at", "started_at", "ended_at", "total_amount", "duration_seconds"},
		now:             a.now, after: query.After, descending: query.Sort.Descending,
	}
	// The status determines whether a ride has a value, so some partitions are
	// known to be empty.
	nulls := func(some, all []RideStatus) *filter {
		among := func(list []RideStatus) func(RideStatus) bool {
			return func(s RideStatus) bool { return !slices.Contains(list, s) }
		}
		if len(query.Status) > 0 {
			f.allNull = !slices.ContainsFunc(query.Status, among(all))
			some = slices.DeleteFunc(slices.Clone(some), among(query.Status))
		}
		return &filter{column: "status", values: texts(some), index: true, where: "status <> 'completed'"}
	}
	open := []RideStatus{Reserved, Active, Paused}
	switch query.Sort.Field {
	case "updated_at":
		f.key = sortKey{column: "updated_at", always: true}
	case "started_at":
		f.key = sortKey{column: "started_at", nulls: nulls([]RideStatus{Reserved, Cancelled}, []RideStatus{Reserved})}
	case "ended_at", "total_amount", "duration_seconds":
		f.key = sortKey{column: query.Sort.Field, nulls: nulls(open, open)}
	case "":
		f.descending = true
	}
	f.whereEqual("customer_id", query.CustomerID, true, "")
	f.whereEqual("vehicle_id", query.VehicleID, true, "")
	f.whereEqual("external_id", query.ExternalID, true, "")
	f.whereEqual("start_zone_id", query.ZoneID, true, "")
	f.whereEqual("pricing_plan_id", query.PricingPlanID, true, "")
	f.whereEqual("status", texts(query.Status), !slices.Contains(query.Status, Completed), "status <> 'completed'")
	f.whereEqual("trip_type", texts(query.TripType), !slices.Contains(query.TripType, RiderTrip), "trip_type <> 'rider'")
	f.whereEqual("payment_status", query.PaymentStatus, !slices.Contains(query.PaymentStatus, "not_due"), "payment_status <> 'not_due'")
	f.whereSubaccounts(query.Subaccounts, query.Subaccount)
	f.whereCreated(ridePrefix, query.CreatedAt)
	f.whereTime("updated_at", query.UpdatedAt, "")
	f.whereTime("started_at", query.StartedAt, "")
	f.whereTime("ended_at", query.EndedAt, "")
	f.whereInteger("total_amount", query.TotalAmount, "")
	f.whereInteger("duration_seconds", query.DurationSeconds, "")
	if query.Box != nil {
		f.whereWithin(query.Box.Rects())
	}
	return f, nil
}
