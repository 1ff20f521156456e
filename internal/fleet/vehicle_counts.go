package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// VehicleFilter has the filters of [VehicleQuery] that counts support.
type VehicleFilter struct {
	Subaccount    []string
	State         []VehicleState
	VehicleTypeID []string
}

func (f *VehicleFilter) check(v *problem.Validation) {
	keyset.CheckValues(v, "subaccount_id", f.Subaccount)
	keyset.CheckValues(v, "state", f.State)
	keyset.CheckValues(v, "vehicle_type_id", f.VehicleTypeID)
}

// where returns the SQL condition on vehicles.
func (f *VehicleFilter) where(st *keyset.Statement) string {
	var s listQuery
	s.whereEqual("subaccount_id", f.Subaccount, false, "")
	s.whereEqual("state", texts(f.State), false, "")
	s.whereEqual("vehicle_type_id", f.VehicleTypeID, false, "")
	var b strings.Builder
	for i := range s.filters {
		b.WriteString(" AND v.")
		b.WriteString(s.filters[i].text(st))
	}
	return b.String()
}

// MapCluster is a square of the map in degrees with the number of its vehicles.
type MapCluster struct {
	Box   geo.Box
	Count int64
	ID    string // of one of its vehicles
}

// maxSquares is the maximum number of squares of [Service.CountVehicles].
const maxSquares = 2048

// CountVehicles counts the vehicles of a box by squares of a grid, the finest with
// at most most squares (up to 2,048). Squares across the edge of the box are
// counted whole. Empty squares are omitted. The cost grows with the squares and
// vehicles found, read from an index alone. Errors: Invalid.
func (s *Service) CountVehicles(ctx context.Context, q db.Querier, organizationID string, box geo.Box, f VehicleFilter, most int) ([]MapCluster, error) {
	var v problem.Validation
	checkBox(&v, &box)
	f.check(&v)
	if err := v.Err(); err != nil {
		return nil, err
	}
	rects, level := box.Squares(min(most, maxSquares))
	var squares []MapCluster
	seen := make(map[int64]bool)
	err := s.snapshot(ctx, q, func(q db.Querier) error {
		for _, r := range geo.Cover(rects, maxRanges) {
			var st keyset.Statement
			org, first, last := st.Arg(organizationID), st.Arg(r.First), st.Arg(r.Last)
			// Skip from one non-empty square to the next.
			next := func(from string) string {
				return fmt.Sprintf("(SELECT v.cell >> %d FROM vehicles v WHERE v.organization_id = %s AND v.cell >= %s AND v.cell <= %s ORDER BY v.cell LIMIT 1)",
					2*level, org, from, last)
			}
			in := fmt.Sprintf("FROM vehicles v WHERE v.organization_id = %s AND v.cell >= s.square << %d AND v.cell < (s.square + 1) << %d", org, 2*level, 2*level) + f.where(&st)
			st.Addf("WITH RECURSIVE s(square) AS (SELECT %s UNION ALL SELECT %s FROM s WHERE s.square IS NOT NULL) "+
				"SELECT s.square, (SELECT count(*) %s), (SELECT v.id %s LIMIT 1) FROM s WHERE s.square IS NOT NULL",
				next(first), next(fmt.Sprintf("(s.square + 1) << %d", 2*level)), in, in)
			_, err := db.All(ctx, q, func(row db.Row) (struct{}, error) {
				var n, count int64
				var id string
				if err := row.Scan(&n, &count, db.IntoText(&id)); err != nil || count == 0 || seen[n] {
					return struct{}{}, err
				}
				seen[n] = true // at the antimeridian, two ranges can share a square
				lat, lng := geo.CellPosition(n << (2 * level))
				size := int64(1) << level
				// A range may have squares outside of the box.
				if slices.ContainsFunc(rects, func(r geo.Rect) bool { return r.Contains(lat, lng) }) {
					squares = append(squares, MapCluster{geo.Box{MinLng: geo.Degrees(lng), MinLat: geo.Degrees(lat), MaxLng: geo.Degrees(lng + size), MaxLat: geo.Degrees(lat + size)}, count, id})
				}
				return struct{}{}, nil
			}, st.String(), st.Args...)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count vehicles: %w", err)
	}
	return squares, nil
}

// CountStates counts an organization's vehicles by state.
func (s *Service) CountStates(ctx context.Context, q db.Querier, organizationID string) (map[VehicleState]int64, error) {
	counts := make(map[VehicleState]int64)
	_, err := db.All(ctx, q, func(row db.Row) (struct{}, error) {
		var state VehicleState
		var n int64
		err := row.Scan(&state, &n)
		counts[state] = n
		return struct{}{}, err
	}, "SELECT state, count(*) FROM vehicles WHERE organization_id = $1 GROUP BY state", organizationID)
	if err != nil {
		return nil, fmt.Errorf("count vehicles by state: %w", err)
	}
	return counts, nil
}
