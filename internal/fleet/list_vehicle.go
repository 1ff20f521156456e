package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// VehicleQuery selects vehicles; see [RideQuery]. Spatial filters exclude vehicles
// without a location.
type VehicleQuery struct {
	Subaccounts    []string // permitted subaccounts; nil: all
	Subaccount     []string // among the permitted
	State          []VehicleState
	VehicleTypeID  []string
	FormFactor     []string
	Code           []string // ignoring case
	DeviceID       []string
	ExternalID     []string
	ZoneID         []string    // zones that contain the location
	Box            *geo.Box    // nil: anywhere
	Near           *geo.Circle // nil: anywhere; otherwise records have a distance
	BatteryPercent Integers
	LastReportedAt period.Range
	UpdatedAt      period.Range
	Sort           keyset.Sort // by created_at, updated_at, code (in lower case), battery_percent or last_reported_at; with Near also distance, the default
	After          *keyset.Cursor
	Limit          int // 0: 20; at most 100
}

// Check implements [problem.Checker].
func (q *VehicleQuery) Check(v *problem.Validation) {
	members := []string{"created_at", "updated_at", "code", "battery_percent", "last_reported_at"}
	if q.Near != nil {
		members = append(members, "distance")
	}
	keyset.CheckPage(v, q.Sort, q.After, q.Limit, maxPage, members...)
	keyset.CheckValues(v, "subaccount_id", q.Subaccount)
	keyset.CheckValues(v, "state", q.State)
	keyset.CheckValues(v, "vehicle_type_id", q.VehicleTypeID)
	keyset.CheckValues(v, "form_factor", q.FormFactor)
	keyset.CheckValues(v, "code", q.Code)
	keyset.CheckValues(v, "device_id", q.DeviceID)
	keyset.CheckValues(v, "external_id", q.ExternalID)
	keyset.CheckValues(v, "zone_id", q.ZoneID)
	checkBox(v, q.Box)
	checkNear(v, q.Near)
}

// ListVehicles is [Service.ListRides] for vehicles.
func (s *Service) ListVehicles(ctx context.Context, q db.Querier, organizationID string, query VehicleQuery) ([]Record, *keyset.Cursor, error) {
	if err := problem.Check(&query); err != nil {
		return nil, nil, err
	}
	return s.listPage(ctx, q, query.Limit, func(q db.Querier) (*listQuery, error) { return vehicleListQuery(ctx, q, organizationID, &query) })
}

// EachVehicle is [Service.EachRide] for vehicles.
func (s *Service) EachVehicle(ctx context.Context, organizationID string, query VehicleQuery, fn func(*Record) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(&query); err != nil {
		return err
	}
	return s.eachRecord(ctx, func(ctx context.Context, q db.Querier) (*listQuery, error) {
		return vehicleListQuery(ctx, q, organizationID, &query)
	}, fn)
}

func vehicleListQuery(ctx context.Context, q db.Querier, organizationID string, query *VehicleQuery) (*listQuery, error) {
	f := &listQuery{
		ctx: ctx, q: q, organization: organizationID, table: "vehicles", cell: "cell", regionSortKeys: []string{"", "code"}, regionColumns: []string{"state", "vehicle_type_id", "form_factor", "subaccount_id", "battery_percent"},
		regionFilters:    []string{"vehicle_type_id", "form_factor", "subaccount_id", "battery_percent"},
		partialIndex:     partialIndex{"state", []string{string(Available), string(VehicleReserved), string(OnTrip)}, []string{"vehicle_type_id", "form_factor", "subaccount_id"}},
		columnsWithCell:  []string{"last_reported_at", "updated_at"},
		columnsWithPlace: []string{"state", "battery_percent", region},
		cellColumns:      []string{"state", "vehicle_type_id", "form_factor", "subaccount_id", "battery_percent", "last_reported_at", "updated_at", "code"},
		after:            query.After, descending: query.Sort.Descending,
	}
	switch query.Sort.Field {
	case "updated_at":
		f.key = sortKey{column: "updated_at", always: true}
	case "code":
		f.key = sortKey{column: "code", always: true, text: true}
	case "battery_percent", "last_reported_at":
		f.key = sortKey{column: query.Sort.Field}
	case "distance":
		f.byDistance = true
	case "":
		f.byDistance = query.Near != nil
		f.descending = query.Near == nil
	}
	codes := slices.Clone(query.Code)
	for i := range codes {
		codes[i] = strings.ToLower(codes[i])
	}
	f.whereEqual("code", codes, true, "")
	f.whereEqual("device_id", query.DeviceID, true, "")
	f.whereEqual("external_id", query.ExternalID, true, "")
	f.whereEqual("state", texts(query.State), true, "")
	f.whereEqual("vehicle_type_id", query.VehicleTypeID, true, "")
	f.whereEqual("form_factor", query.FormFactor, true, "")
	f.whereSubaccounts(query.Subaccounts, query.Subaccount)
	f.whereInteger("battery_percent", query.BatteryPercent, "")
	f.whereTime("last_reported_at", query.LastReportedAt, "")
	f.whereTime("updated_at", query.UpdatedAt, "")
	if query.Box != nil {
		f.whereWithin(query.Box.Rects())
	}
	if query.Near != nil {
		f.whereNear(query.Near)
	}
	if len(query.ZoneID) > 0 && !f.empty {
		areas, err := areasOf(ctx, q, organizationID, query.Subaccounts, query.ZoneID)
		if err != nil {
			return nil, err
		}
		f.whereInAreas(areas)
	}
	return f, nil
}

// areasOf returns the areas of the permitted zones among ids.
func areasOf(ctx context.Context, q db.Querier, organizationID string, may, ids []string) ([]geo.Area, error) {
	fences, err := db.All(ctx, q, func(row db.Row) (z Zone, err error) {
		err = row.Scan(db.IntoJSON(&z))
		return z, err
	}, "SELECT doc FROM zones WHERE organization_id = $1 AND id = ANY($2) ORDER BY id", organizationID, ids)
	if err != nil {
		return nil, fmt.Errorf("read the zones of a list: %w", err)
	}
	var areas []geo.Area
	for _, z := range fences {
		if may == nil || slices.Contains(may, z.SubaccountID) {
			areas = append(areas, z.Geometry)
		}
	}
	return areas, nil
}

// whereInAreas limits the list to positions in any of areas.
func (s *listQuery) whereInAreas(areas []geo.Area) {
	var rects []geo.Rect
	for _, a := range areas {
		for _, b := range a.Boxes() {
			rects = append(rects, b.Rect())
		}
	}
	if len(rects) > maxRanges {
		all := rects[0]
		for _, r := range rects {
			all = geo.Rect{MinLat: min(all.MinLat, r.MinLat), MinLng: min(all.MinLng, r.MinLng), MaxLat: max(all.MaxLat, r.MaxLat), MaxLng: max(all.MaxLng, r.MaxLng)}
		}
		rects = []geo.Rect{all}
	}
	s.whereWithin(rects)
	s.wherePosition(func(lat, lng int64) bool {
		return slices.ContainsFunc(areas, func(a geo.Area) bool { return a.Contains(geo.Degrees(lng), geo.Degrees(lat)) })
	})
}
