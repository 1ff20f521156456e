package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// storeFormerPlan stores the pricing plan that a vehicle, a vehicle type or a subaccount had until a time, and
// the type of a vehicle, for rides of apps that were offline. The times of a record must never decrease.
func storeFormerPlan(ctx context.Context, tx *db.Tx, organizationID, subjectID string, until rfc3339.Time, former NullString, vehicleTypeID string) error {
	err := tx.Queue(ctx, `INSERT INTO former_plans (organization_id, subject_id, replaced_at, pricing_plan_id, vehicle_type_id) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT DO NOTHING`, organizationID, subjectID, db.Time(until.Std()), db.Text(string(former)), db.Text(vehicleTypeID))
	if err != nil {
		return fmt.Errorf("store a former pricing plan: %w", err)
	}
	return nil
}

// storeFormerPlans is storeFormerPlan for a subaccount and its vehicle types, as stored and as changed.
func storeFormerPlans(ctx context.Context, tx *db.Tx, organizationID string, former, sub *Subaccount) error {
	if sub.DefaultPricingPlanID != former.DefaultPricingPlanID {
		if err := storeFormerPlan(ctx, tx, organizationID, sub.ID, sub.UpdatedAt, former.DefaultPricingPlanID, ""); err != nil {
			return err
		}
	}
	for i := range former.VehicleTypes {
		was := &former.VehicleTypes[i]
		if kind := sub.vehicleType(was.ID); kind != nil && kind.DefaultPricingPlanID != was.DefaultPricingPlanID {
			if err := storeFormerPlan(ctx, tx, organizationID, was.ID, sub.UpdatedAt, was.DefaultPricingPlanID, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// applicablePlanAt is [applicablePlan] as of a time within [maxOfflineRideHours]; empty: none.
func applicablePlanAt(ctx context.Context, q db.Querier, organizationID string, v *Vehicle, kind *VehicleType, sub *Subaccount, at time.Time) (NullString, error) {
	subjects := []string{v.ID, sub.ID}
	for i := range sub.VehicleTypes {
		subjects = append(subjects, sub.VehicleTypes[i].ID)
	}
	type formerPlan struct{ subjectID, id, typeID string }
	first := make(map[string]formerPlan) // the first one replaced after the time, by subject
	_, err := db.All(ctx, q, func(row db.Row) (p formerPlan, err error) {
		if err = row.Scan(&p.subjectID, db.IntoText(&p.id), db.IntoText(&p.typeID)); err == nil {
			first[p.subjectID] = p
		}
		return p, err
	}, "SELECT subject_id, pricing_plan_id, vehicle_type_id FROM former_plans WHERE organization_id = $1 AND subject_id = ANY($2) AND replaced_at > $3 ORDER BY replaced_at DESC",
		organizationID, subjects, db.Time(at))
	if err != nil {
		return "", fmt.Errorf("look up former pricing plans: %w", err)
	}
	vehicles, defaults := v.PricingPlanID, *sub
	if p, is := first[v.ID]; is {
		vehicles = NullString(p.id)
		if was := sub.vehicleType(p.typeID); was != nil {
			kind = was
		}
	}
	types := *kind
	if p, is := first[kind.ID]; is {
		types.DefaultPricingPlanID = NullString(p.id)
	}
	if p, is := first[sub.ID]; is {
		defaults.DefaultPricingPlanID = NullString(p.id)
	}
	return applicablePlan(vehicles, &types, &defaults), nil
}

// pruneFormerPlans deletes the former plans that no ride can have any more, in small steps.
func (s *Service) pruneFormerPlans(ctx context.Context) error {
	return s.eachFleet(ctx, func(a orgContext) error {
		before := a.now.Add(-maxOfflineRideHours * time.Hour).UnixMicro()
		err := s.deleteInSteps(ctx, pruneBatch, `DELETE FROM former_plans WHERE (organization_id, subject_id, replaced_at) IN
			(SELECT organization_id, subject_id, replaced_at FROM former_plans WHERE organization_id = $1 AND replaced_at < $2 LIMIT $3)`, a.id, before)
		if err != nil {
			return fmt.Errorf("delete old former pricing plans: %w", err)
		}
		return nil
	})
}
