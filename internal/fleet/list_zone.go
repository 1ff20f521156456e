package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ZoneQuery selects zones; see [RideQuery].
type ZoneQuery struct {
	Subaccounts []string // permitted subaccounts; nil: all
	Subaccount  []string // among the permitted
	Type        []ZoneType
	InForce     *bool         // now, by the organization's clock
	Box         *geo.Box      // that the zone intersects
	Point       *geo.Position // that the zone contains
	Sort        keyset.Sort   // by priority, created_at or name
	After       *keyset.Cursor
	Limit       int // 0: 20; at most 100
}

// Check implements [problem.Checker].
func (q *ZoneQuery) Check(v *problem.Validation) {
	keyset.CheckPage(v, q.Sort, q.After, q.Limit, maxPage, "priority", "created_at", "name")
	keyset.CheckValues(v, "subaccount_id", q.Subaccount)
	keyset.CheckValues(v, "type", q.Type)
	checkBox(v, q.Box)
	if q.Point != nil {
		checkPoint(v, q.Point.Lat, q.Point.Lng)
	}
}

// ListZones is [Service.ListRides] for zones.
func (s *Service) ListZones(ctx context.Context, q db.Querier, organizationID string, query ZoneQuery) ([]Record, *keyset.Cursor, error) {
	if err := problem.Check(&query); err != nil {
		return nil, nil, err
	}
	return s.listPage(ctx, q, query.Limit, func(q db.Querier) (*listQuery, error) { return s.zoneListQuery(ctx, q, organizationID, &query) })
}

// EachZone is [Service.EachRide] for zones.
func (s *Service) EachZone(ctx context.Context, organizationID string, query ZoneQuery, fn func(*Record) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(&query); err != nil {
		return err
	}
	return s.eachRecord(ctx, func(ctx context.Context, q db.Querier) (*listQuery, error) {
		return s.zoneListQuery(ctx, q, organizationID, &query)
	}, fn)
}

func (s *Service) zoneListQuery(ctx context.Context, q db.Querier, organizationID string, query *ZoneQuery) (*listQuery, error) {
	f := &listQuery{
		ctx: ctx, q: q, organization: organizationID, table: "zones", after: query.After, descending: query.Sort.Descending,
	}
	switch query.Sort.Field {
	case "priority":
		f.key = sortKey{column: "priority", always: true}
	case "name":
		f.key = sortKey{column: "name", always: true, text: true}
	case "":
		f.descending = true
	}
	f.whereEqual("type", texts(query.Type), false, "")
	// The index has the bounds before the id, so it is only used for few zones.
	f.whereSubaccounts(query.Subaccounts, query.Subaccount)
	for i := range f.filters {
		f.filters[i].index = false
	}
	if query.InForce != nil {
		a, err := s.orgContext(ctx, q, s.db.Now(), organizationID)
		if err != nil {
			return nil, err
		}
		now, want := a.now.UnixMicro(), *query.InForce
		f.unindexed = append(f.unindexed, func(st *keyset.Statement) string {
			if want {
				return fmt.Sprintf("coalesce(starts_at <= %s, TRUE) AND coalesce(ends_at > %s, TRUE)", st.Arg(now), st.Arg(now))
			}
			return fmt.Sprintf("coalesce(starts_at > %s, FALSE) OR coalesce(ends_at <= %s, FALSE)", st.Arg(now), st.Arg(now))
		})
	}
	var boxes []geo.Box
	if query.Box != nil {
		boxes = query.Box.Parts()
		f.unindexed = append(f.unindexed, boundsIntersect(boxes))
	}
	var points []geo.Box
	if query.Point != nil {
		at := query.Point
		points = geo.Box{MinLng: at.Lng, MinLat: at.Lat, MaxLng: at.Lng, MaxLat: at.Lat}.Parts()
		f.unindexed = append(f.unindexed, boundsIntersect(points))
	}
	if boxes != nil || points != nil {
		f.accept = func(d *Record) (bool, error) {
			var z struct {
				Geometry geo.Area `json:"geometry"`
			}
			if err := json.Unmarshal(d.JSON, &z); err != nil {
				return false, fmt.Errorf("decode a zone: %w", err)
			}
			meets := boxes == nil || slices.ContainsFunc(boxes, z.Geometry.Intersects)
			has := points == nil || slices.ContainsFunc(points, func(p geo.Box) bool { return z.Geometry.Contains(p.MinLng, p.MinLat) })
			return meets && has, nil
		}
	}
	return f, nil
}

// boundsIntersect is the predicate that a zone's bounds intersect one of boxes,
// with slack.
func boundsIntersect(boxes []geo.Box) func(st *keyset.Statement) string {
	return func(st *keyset.Statement) string {
		parts := make([]string, len(boxes))
		for i, b := range boxes {
			parts[i] = fmt.Sprintf("min_lng <= %s AND max_lng >= %s AND min_lat <= %s AND max_lat >= %s",
				st.Arg(b.MaxLng+geo.Slack), st.Arg(b.MinLng-geo.Slack), st.Arg(b.MaxLat+geo.Slack), st.Arg(b.MinLat-geo.Slack))
		}
		return strings.Join(parts, " OR ")
	}
}
