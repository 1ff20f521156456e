package fleet

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/optional"
)

// Plan is a pricing plan (fleet-api.md 1.5): a [Tariff], which rides keep in the
// version they began with, and what is told about it.
type Plan struct {
	Head
	Name        string `json:"name"`
	Description string `json:"description"`
	URL         Text   `json:"url"`
	Tariff
	VehicleTypeIDs []string `json:"vehicle_type_ids"`
	Active         bool     `json:"active"`
	Version        int64    `json:"version"` // from 1 on; grows with every change
	Tail

	revision int64
}

// NewPlan is what a plan is made of.
type NewPlan struct {
	SubaccountID   string            `json:"subaccount_id"`
	ExternalID     Text              `json:"external_id"`
	Name           string            `json:"name"`
	Description    string            `json:"description"`
	URL            Text              `json:"url"`
	Tariff                           // its currency empty: that of the subaccount
	VehicleTypeIDs []string          `json:"vehicle_type_ids"`
	Active         *bool             `json:"active"` // nil: true
	Metadata       map[string]string `json:"metadata"`
}

// PlanChange is what a PUT changes of a plan. What is absent stays.
type PlanChange struct {
	ExternalID             optional.Value[Text]              `json:"external_id"`
	Name                   optional.Value[string]            `json:"name"`
	Description            optional.Value[string]            `json:"description"`
	URL                    optional.Value[Text]              `json:"url"`
	UnlockAmount           optional.Value[int64]             `json:"unlock_amount"`
	PerMinute              optional.Value[[]Segment]         `json:"per_min_pricing"`
	PerKilometer           optional.Value[[]Segment]         `json:"per_km_pricing"`
	PausePerMinAmount      optional.Value[int64]             `json:"pause_per_min_amount"`
	ReservationPerMin      optional.Value[int64]             `json:"reservation_per_min_amount"`
	ReservationFlat        optional.Value[int64]             `json:"reservation_flat_amount"`
	ReservationFreeMinutes optional.Value[int64]             `json:"reservation_free_minutes"`
	FareCap                optional.Value[FareCap]           `json:"fare_cap"`
	OutOfZoneAmount        optional.Value[int64]             `json:"out_of_zone_amount"`
	Taxable                optional.Value[bool]              `json:"is_taxable"`
	TaxBasisPoints         optional.Value[int64]             `json:"tax_basis_points"`
	VehicleTypeIDs         optional.Value[[]string]          `json:"vehicle_type_ids"`
	Active                 optional.Value[bool]              `json:"active"`
	Metadata               optional.Value[map[string]string] `json:"metadata"` // the whole, merged already
}

// plan returns a plan in its present version. It must not be changed.
func (s *Service) plan(ctx context.Context, q db.Querier, organizationID, id string) (*Plan, error) {
	var revision, stamp int64
	err := q.QueryRow(ctx, "SELECT revision, stamp FROM plans WHERE organization_id = $1 AND id = $2", organizationID, id).Scan(&revision, &stamp)
	if err != nil {
		return nil, found(err, "pricing plan")
	}
	return s.plans.get(id, stamp, func(into *Plan) error {
		into.revision = revision
		return q.QueryRow(ctx, "SELECT doc FROM plans WHERE organization_id = $1 AND id = $2", organizationID, id).Scan(db.IntoJSON(into))
	})
}

// tariff returns what a plan charges in one of its versions. It must not be
// changed.
func (s *Service) tariff(ctx context.Context, q db.Querier, organizationID, planID string, version int64) (*Tariff, error) {
	now, err := s.plan(ctx, q, organizationID, planID)
	if err != nil {
		return nil, err
	}
	if now.Version == version {
		return &now.Tariff, nil
	}
	t := new(Tariff)
	err = q.QueryRow(ctx, "SELECT tariff FROM plan_versions WHERE organization_id = $1 AND plan_id = $2 AND version = $3",
		organizationID, planID, version).Scan(db.IntoJSON(t))
	if err != nil {
		return nil, fmt.Errorf("read version %d of a pricing plan: %w", version, err)
	}
	return t, nil
}
