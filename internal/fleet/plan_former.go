package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// storeFormerPlan stores the pricing plan that a vehicle, a vehicle type or a subaccount had until now, for
// rides of apps that were offline.
func storeFormerPlan(ctx context.Context, tx *db.Tx, a orgContext, subjectID string, former NullString) error {
	err := tx.Queue(ctx, "INSERT INTO former_plans (organization_id, subject_id, replaced_at, pricing_plan_id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
		a.id, subjectID, db.Time(a.now), db.Text(string(former)))
	if err != nil {
		return fmt.Errorf("store a former pricing plan: %w", err)
	}
	return nil
}

// storeFormerPlans is storeFormerPlan for a subaccount and its vehicle types, as stored and as changed.
func storeFormerPlans(ctx context.Context, tx *db.Tx, a orgContext, former, sub *Subaccount) error {
	if sub.DefaultPricingPlanID != former.DefaultPricingPlanID {
		if err := storeFormerPlan(ctx, tx, a, sub.ID, former.DefaultPricingPlanID); err != nil {
			return err
		}
	}
	for i := range former.VehicleTypes {
		was := &former.VehicleTypes[i]
		if kind := sub.vehicleType(was.ID); kind != nil && kind.DefaultPricingPlanID != was.DefaultPricingPlanID {
			if err := storeFormerPlan(ctx, tx, a, was.ID, was.DefaultPricingPlanID); err != nil {
				return err
			}
		}
	}
	return nil
}

// applicablePlanAt is [applicablePlan] as of a time within [maxOfflineRideHours], or the present one if there
// was none.
func applicablePlanAt(ctx context.Context, q db.Querier, organizationID string, v *Vehicle, kind *VehicleType, sub *Subaccount, at time.Time) (NullString, error) {
	type formerPlan struct{ subjectID, id string }
	list, err := db.All(ctx, q, func(row db.Row) (p formerPlan, err error) {
		err = row.Scan(&p.subjectID, db.IntoText(&p.id))
		return p, err
	}, "SELECT subject_id, pricing_plan_id FROM former_plans WHERE organization_id = $1 AND subject_id IN ($2, $3, $4) AND replaced_at > $5 ORDER BY replaced_at DESC",
		organizationID, v.ID, kind.ID, sub.ID, db.Time(at))
	if err != nil {
		return "", fmt.Errorf("look up former pricing plans: %w", err)
	}
	vehicles, types, defaults := v.PricingPlanID, *kind, *sub
	for _, p := range list { // the first one replaced after the time comes last
		switch p.subjectID {
		case v.ID:
			vehicles = NullString(p.id)
		case kind.ID:
			types.DefaultPricingPlanID = NullString(p.id)
		default:
			defaults.DefaultPricingPlanID = NullString(p.id)
		}
	}
	if id := applicablePlan(vehicles, &types, &defaults); id != "" {
		return id, nil
	}
	return applicablePlan(v.PricingPlanID, kind, sub), nil
}

// pruneFormerPlans deletes the former plans that no ride can have any more, in small steps.
func (s *Service) pruneFormerPlans(ctx context.Context) error {
	return s.eachFleet(ctx, func(a orgContext) error {
		before := a.now.Add(-maxOfflineRideHours * time.Hour).UnixMicro()
		err := db.Steps(ctx, func() (more bool, err error) {
			err = s.db.Write(ctx, func(tx *db.Tx) error {
				n, err := tx.Exec(ctx, `DELETE FROM former_plans WHERE (organization_id, subject_id, replaced_at) IN
					(SELECT organization_id, subject_id, replaced_at FROM former_plans WHERE organization_id = $1 AND replaced_at < $2 LIMIT $3)`, a.id, before, pruneBatch)
				more = n == pruneBatch
				return err
			})
			return more, err
		})
		if err != nil {
			return fmt.Errorf("delete old former pricing plans: %w", err)
		}
		return nil
	})
}
