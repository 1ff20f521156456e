package fleet

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// CustomersByID returns the customers with these ids, in any order. Missing ones
// are omitted.
func (s *Service) CustomersByID(ctx context.Context, q db.Querier, organizationID string, ids []string) ([]Record, error) {
	return recordsByID(ctx, q, "customers", organizationID, ids)
}

// VehiclesByID returns the vehicles with these ids, in any order. Missing ones are
// omitted.
func (s *Service) VehiclesByID(ctx context.Context, q db.Querier, organizationID string, ids []string) ([]Record, error) {
	return recordsByID(ctx, q, "vehicles", organizationID, ids)
}

// RidesByID returns the rides with these ids, in any order. Missing ones are omitted. Open
// rides have no current durations.
func (s *Service) RidesByID(ctx context.Context, q db.Querier, organizationID string, ids []string) ([]Record, error) {
	return recordsByID(ctx, q, "rides", organizationID, ids)
}

func recordsByID(ctx context.Context, q db.Querier, table, organizationID string, ids []string) ([]Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := db.All(ctx, q, scanRecord, "SELECT id, subaccount_id, revision, doc FROM "+table+" WHERE organization_id = $1 AND id = ANY($2)", organizationID, ids)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", table, err)
	}
	return list, nil
}

func scanRecord(row db.Row) (Record, error) {
	d := Record{Distance: -1}
	err := row.Scan(&d.ID, &d.SubaccountID, &d.Revision, &d.JSON)
	return d, err
}
