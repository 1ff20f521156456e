package fleetapi

import (
	"context"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

var planRecord = record("pricing_plan", "The prices of rides (GBFS system_pricing_plans). Plans are created and retired in the dashboard. Amounts are in the currency's minor unit.",
	schema.Member{Name: "name", Type: schema.String(1, 256), Access: schema.Writable, Example: "Standard"},
	schema.Member{Name: "description", Type: schema.String(0, 5000), Access: schema.Writable, Example: "1 € to unlock, 0.25 € a minute."},
	schema.Member{Name: "url", Type: schema.Formatted("uri", 2048), Access: schema.Writable, Nullable: true},
	schema.Member{Name: "currency", Type: schema.Text(), Doc: "ISO 4217.", Example: "EUR"},
	schema.Member{Name: "unlock_amount", Type: amount(), Access: schema.Writable},
	schema.Member{Name: "per_min_pricing", Type: segments(), Access: schema.Writable, Doc: "By minutes. Segments that overlap add up."},
	schema.Member{Name: "per_km_pricing", Type: segments(), Access: schema.Writable, Doc: "By kilometers."},
	schema.Member{Name: "pause_per_min_amount", Type: amount(), Access: schema.Writable, Nullable: true, Doc: "null: pauses cost the same as riding."},
	schema.Member{Name: "reservation_per_min_amount", Type: amount(), Access: schema.Writable, Nullable: true},
	schema.Member{Name: "reservation_flat_amount", Type: amount(), Access: schema.Writable, Nullable: true, Doc: "In place of the price by minutes."},
	schema.Member{Name: "reservation_free_minutes", Type: schema.Int(0, maxExact), Access: schema.Writable},
	schema.Member{Name: "fare_cap", Access: schema.Writable, Nullable: true, Doc: "The maximum charge for riding within each window of minutes.", Type: schema.Object(
		schema.Member{Name: "duration_minutes", Type: schema.Int(1, maxExact), Access: schema.Required},
		schema.Member{Name: "amount", Type: amount(), Access: schema.Required},
	)},
	schema.Member{Name: "out_of_zone_amount", Type: amount(), Access: schema.Writable, Nullable: true, Doc: "Fee for ending where a zone forbids it; null: not possible."},
	schema.Member{Name: "is_taxable", Type: schema.Bool(), Access: schema.Writable, Doc: "true: tax comes on top. false: amounts include it."},
	schema.Member{Name: "tax_basis_points", Type: schema.Int(0, 10_000), Access: schema.Writable, Doc: "Hundredths of a percent."},
	schema.Member{Name: "vehicle_type_ids", Type: schema.Array(schema.ID(), 100), Access: schema.Writable},
	schema.Member{Name: "active", Type: schema.Bool(), Access: schema.Writable},
	schema.Member{Name: "version", Type: schema.Integer(), Doc: "Increases with every PUT. Rides keep the version they started with."},
)

// segments are the charges of a plan by distance or time.
func segments() schema.Type {
	return schema.Array(schema.Object(
		schema.Member{Name: "start", Type: schema.Int(0, maxExact), Access: schema.Required, Doc: "The first minute or kilometer that is charged, counted from 0."},
		schema.Member{Name: "rate_amount", Type: schema.Int(-maxExact, maxExact), Access: schema.Required},
		schema.Member{Name: "interval", Type: schema.Int(0, maxExact), Access: schema.Required, Doc: "How often; 0: once, at the start."},
		schema.Member{Name: "end", Type: schema.Int(0, maxExact), Access: schema.Writable, Nullable: true, Doc: "The first that is no longer charged."},
	), 100)
}

func (a *API) pricingRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/pricing", ID: "listPricingPlans", Tag: "Pricing", Summary: "List pricing plans",
		Needs: needs("pricing", apikey.Read),
		Query: []rest.Param{
			{Name: "active", Kind: rest.BoolParam},
			{Name: "currency", Kind: rest.StringsParam},
			{Name: "vehicle_type_id", Kind: rest.StringsParam},
			{Name: "subaccount_id", Kind: rest.StringsParam},
		},
		Sort: []string{"created_at", "name"}, Export: true, Output: planRecord, List: true, Handle: a.listPlans,
	}, {
		Method: "GET", Path: "/pricing/{id}", ID: "getPricingPlan", Tag: "Pricing", Summary: "Read a pricing plan",
		Needs: needs("pricing", apikey.Read), Output: planRecord, Handle: a.getPlan,
	}, {
		Method: "PUT", Path: "/pricing/{id}", ID: "updatePricingPlan", Tag: "Pricing", Summary: "Change a pricing plan",
		Doc:   "Creates a new version, for rides that start from now on.",
		Needs: needs("pricing", apikey.Update), Input: planRecord, Output: planRecord, Codes: []string{"already_exists"}, Handle: a.updatePlan,
	}}
}

func (a *API) listPlans(ctx context.Context, r *rest.Request) (rest.Response, error) {
	plans, err := a.Fleet.Plans(ctx, a.DB, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	active, asked := r.Bool("active")
	currencies, types := r.Strings("currency"), r.Strings("vehicle_type_id")
	var list []*fleet.Plan
	for i := range plans {
		p := &plans[i]
		if r.Covers(p.SubaccountID) && (!asked || p.Active == active) && (currencies == nil || slices.Contains(currencies, p.Currency)) &&
			(types == nil || slices.ContainsFunc(types, func(id string) bool { return slices.Contains(p.VehicleTypeIDs, id) })) {
			list = append(list, p)
		}
	}
	return whole(r, list, func(p *fleet.Plan) listPosition {
		if r.Sort().Field == "name" {
			return listPosition{p.Name, p.ID}
		}
		return listPosition{"", p.ID}
	})
}

func (a *API) getPlan(ctx context.Context, r *rest.Request) (rest.Response, error) {
	p, err := a.Fleet.Plan(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := r.Within(p.SubaccountID); err != nil {
		return rest.Response{}, err
	}
	return ok(&p)
}

func (a *API) updatePlan(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		p, err := a.Fleet.LockPlanTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		before, err := reached(r, p.SubaccountID, &p)
		if err != nil {
			return rest.Response{}, err
		}
		var in fleet.PlanChange
		if err := r.Update(before, &in); err != nil {
			return rest.Response{}, err
		}
		if p, err = a.Fleet.UpdatePlanTx(ctx, tx, r.Key.OrganizationID, p, in); err != nil {
			return rest.Response{}, err
		}
		return changed(p.SubaccountID, &p)
	})
}
