package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// Plan is a pricing plan (fleet-api.md 1.5): a [tariff.Tariff] with its description. A
// ride has the tariff of the version it started with.
type Plan struct {
	RecordHeader
	Name        string     `json:"name"`
	Description string     `json:"description"`
	URL         NullString `json:"url"`
	tariff.Tariff
	VehicleTypeIDs []string `json:"vehicle_type_ids"`
	Active         bool     `json:"active"`
	Version        int64    `json:"version"` // starts at 1; every update increments it
	Timestamps

	revision int64
}

// NewPlan has the fields of a plan to create.
type NewPlan struct {
	SubaccountID   string            `json:"subaccount_id"`
	ExternalID     NullString        `json:"external_id"`
	Name           string            `json:"name"`
	Description    string            `json:"description"`
	URL            NullString        `json:"url"`
	tariff.Tariff                    // an empty currency is the subaccount's
	VehicleTypeIDs []string          `json:"vehicle_type_ids"`
	Active         *bool             `json:"active"` // nil: true
	Metadata       map[string]string `json:"metadata"`
}

// PlanChange has the fields that a PUT sets. Absent fields remain.
type PlanChange struct {
	ExternalID             optional.Value[NullString]        `json:"external_id"`
	Name                   optional.Value[string]            `json:"name"`
	Description            optional.Value[string]            `json:"description"`
	URL                    optional.Value[NullString]        `json:"url"`
	UnlockAmount           optional.Value[int64]             `json:"unlock_amount"`
	PerMinute              optional.Value[[]tariff.Segment]  `json:"per_min_pricing"`
	PerKilometer           optional.Value[[]tariff.Segment]  `json:"per_km_pricing"`
	PausePerMinAmount      optional.Value[int64]             `json:"pause_per_min_amount"`
	ReservationPerMin      optional.Value[int64]             `json:"reservation_per_min_amount"`
	ReservationFlat        optional.Value[int64]             `json:"reservation_flat_amount"`
	ReservationFreeMinutes optional.Value[int64]             `json:"reservation_free_minutes"`
	FareCap                optional.Value[tariff.FareCap]    `json:"fare_cap"`
	OutOfZoneAmount        optional.Value[int64]             `json:"out_of_zone_amount"`
	Taxable                optional.Value[bool]              `json:"is_taxable"`
	TaxBasisPoints         optional.Value[int64]             `json:"tax_basis_points"`
	VehicleTypeIDs         optional.Value[[]string]          `json:"vehicle_type_ids"`
	Active                 optional.Value[bool]              `json:"active"`
	Metadata               optional.Value[map[string]string] `json:"metadata"` // the merged result
}

// plan returns the present version of a plan, read-only.
func (s *Service) plan(ctx context.Context, q db.Querier, organizationID, id string) (*Plan, error) {
	var revision, stamp int64
	err := q.QueryRow(ctx, "SELECT revision, stamp FROM plans WHERE organization_id = $1 AND id = $2", organizationID, id).Scan(&revision, &stamp)
	if err != nil {
		return nil, wrapReadError(err, "pricing plan")
	}
	return s.planAt(ctx, q, organizationID, id, revision, stamp)
}

// planAt is plan with revision and stamp already read.
func (s *Service) planAt(ctx context.Context, q db.Querier, organizationID, id string, revision, stamp int64) (*Plan, error) {
	plan, err := s.plans.get(id, stamp, func(into *Plan) error {
		into.revision = revision
		return q.QueryRow(ctx, "SELECT doc FROM plans WHERE organization_id = $1 AND id = $2", organizationID, id).Scan(db.IntoJSON(into))
	})
	if err != nil {
		return nil, fmt.Errorf("read a pricing plan: %w", err)
	}
	return plan, nil
}

// PlanTariff returns the tariff of a version of a plan, read-only. Error: NotFound.
func (s *Service) PlanTariff(ctx context.Context, q db.Querier, organizationID, planID string, version int64) (*tariff.Tariff, error) {
	now, err := s.plan(ctx, q, organizationID, planID)
	if err != nil {
		return nil, err
	}
	if now.Version == version {
		return &now.Tariff, nil
	}
	t := new(tariff.Tariff)
	err = q.QueryRow(ctx, "SELECT tariff FROM plan_versions WHERE organization_id = $1 AND plan_id = $2 AND version = $3",
		organizationID, planID, version).Scan(db.IntoJSON(t))
	if err != nil {
		return nil, fmt.Errorf("read version %d of a pricing plan: %w", version, err)
	}
	return t, nil
}

// Record returns the plan's stored form.
func (p *Plan) Record() (Record, error) {
	text, err := encode(p)
	return Record{ID: p.ID, SubaccountID: p.SubaccountID, Revision: p.revision, JSON: text, Distance: -1}, err
}

// Plans returns an organization's plans, the oldest first.
func (s *Service) Plans(ctx context.Context, q db.Querier, organizationID string) ([]Plan, error) {
	list, err := db.All(ctx, q, scanPlan, "SELECT revision, doc FROM plans WHERE organization_id = $1 ORDER BY id", organizationID)
	if err != nil {
		return nil, fmt.Errorf("list pricing plans: %w", err)
	}
	return list, nil
}

// plansOf returns a subaccount's plans, the oldest first.
func (s *Service) plansOf(ctx context.Context, q db.Querier, organizationID, subaccountID string) ([]Plan, error) {
	list, err := db.All(ctx, q, scanPlan, "SELECT revision, doc FROM plans WHERE organization_id = $1 AND subaccount_id = $2 ORDER BY id", organizationID, subaccountID)
	if err != nil {
		return nil, fmt.Errorf("list the pricing plans of a subaccount: %w", err)
	}
	return list, nil
}

// Plan returns the present version of a plan. Error: NotFound.
func (s *Service) Plan(ctx context.Context, q db.Querier, organizationID, id string) (Plan, error) {
	return readPlan(ctx, q, organizationID, id, "")
}

// LockPlanTx is Plan with a lock, for an update in the same transaction.
func (s *Service) LockPlanTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Plan, error) {
	return readPlan(ctx, tx, organizationID, id, " FOR UPDATE")
}

func readPlan(ctx context.Context, q db.Querier, organizationID, id, lock string) (Plan, error) {
	p, err := db.One(ctx, q, scanPlan, "SELECT revision, doc FROM plans WHERE organization_id = $1 AND id = $2"+lock, organizationID, id)
	return p, wrapReadError(err, "pricing plan")
}

func scanPlan(row db.Row) (p Plan, err error) {
	return p, row.Scan(&p.revision, db.IntoJSON(&p))
}

// CreatePlanTx creates a pricing plan in the caller's transaction. Rides cannot start
// with an inactive plan. Errors: Invalid; Conflict already_exists with the member
// external_id.
func (s *Service) CreatePlanTx(ctx context.Context, tx *db.Tx, organizationID string, n NewPlan) (Plan, error) {
	p, err := s.createPlan(ctx, tx, organizationID, n)
	if err != nil {
		return Plan{}, err
	}
	return p, s.record(ctx, tx, organizationID, PricingCreated, audit.Target{Type: "pricing_plan", ID: p.ID, Name: p.Name}, nil)
}

// createPlan is [Service.CreatePlanTx] without an audit entry.
func (s *Service) createPlan(ctx context.Context, tx *db.Tx, organizationID string, n NewPlan) (Plan, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Plan{}, err
	}
	var v problem.Validation
	sub, err := s.subaccountForNew(ctx, tx, &v, organizationID, n.SubaccountID)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{
		Name: n.Name, Description: n.Description, URL: n.URL, Tariff: n.Tariff, VehicleTypeIDs: n.VehicleTypeIDs,
		Active: n.Active == nil || *n.Active, Version: 1, revision: 1,
	}
	p.RecordHeader, p.Timestamps = s.newRecord(planPrefix, "pricing_plan", n.SubaccountID, a.now)
	p.ExternalID = n.ExternalID
	p.Metadata = metadataOf(n.Metadata)
	if sub != nil {
		if p.Currency == "" {
			p.Currency = sub.Currency
		}
		if p.Currency != sub.Currency {
			v.AddCode("conflict", "currency", "must be the subaccount's, %s", sub.Currency)
		}
	}
	p.check(&v, sub, a)
	if err := v.Err(); err != nil {
		return Plan{}, err
	}
	doc, err := encode(p)
	if err != nil {
		return Plan{}, err
	}
	made, err := tx.Exec(ctx, "INSERT INTO plans (organization_id, id, subaccount_id, revision, stamp, version, external_id, doc) VALUES ($1, $2, $3, 1, $4, 1, $5, $6) ON CONFLICT DO NOTHING",
		organizationID, p.ID, p.SubaccountID, newStamp(), db.Text(string(p.ExternalID)), string(doc))
	if err != nil {
		return Plan{}, fmt.Errorf("insert a pricing plan: %w", err)
	}
	if made == 0 {
		return Plan{}, alreadyExistsError("external_id")
	}
	s.notify(tx, organizationID, PlanKind, p.ID)
	return p, insertPlanVersion(ctx, tx, organizationID, &p)
}

// insertPlanVersion stores the tariff of the present version.
func insertPlanVersion(ctx context.Context, tx *db.Tx, organizationID string, p *Plan) error {
	text, err := encode(p.Tariff)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO plan_versions (organization_id, plan_id, version, tariff, created_at, active) VALUES ($1, $2, $3, $4, $5, $6)",
		organizationID, p.ID, p.Version, string(text), db.Time(p.UpdatedAt.Std()), p.Active)
	if err != nil {
		return fmt.Errorf("insert a version of a pricing plan: %w", err)
	}
	return nil
}

// planVersionAt returns the version of a plan that was in force at a time, and whether rides could start with
// it: the present one if the plan is newer.
func planVersionAt(ctx context.Context, q db.Querier, organizationID string, p *Plan, at time.Time) (version int64, active bool, err error) {
	if p.CreatedAt.Std().After(at) {
		return p.Version, p.Active, nil
	}
	err = q.QueryRow(ctx, `SELECT version, active FROM plan_versions WHERE organization_id = $1 AND plan_id = $2 AND (created_at IS NULL OR created_at <= $3)
		ORDER BY version DESC LIMIT 1`, organizationID, p.ID, db.Time(at)).Scan(&version, &active)
	if err != nil {
		return 0, false, fmt.Errorf("find the former version of a pricing plan: %w", err)
	}
	if version == p.Version {
		active = p.Active
	}
	return version, active, nil
}

// UpdatePlanTx updates a pricing plan that the caller's transaction has locked, and
// always creates a version. Rides retain theirs. Errors: Invalid; Conflict
// already_exists with the member external_id.
func (s *Service) UpdatePlanTx(ctx context.Context, tx *db.Tx, organizationID string, p Plan, c PlanChange) (Plan, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Plan{}, err
	}
	sub, _, err := s.subaccount(ctx, tx, organizationID, p.SubaccountID)
	if err != nil {
		return Plan{}, err
	}
	former := p
	c.ExternalID.Into(&p.ExternalID)
	c.Name.Into(&p.Name)
	c.Description.Into(&p.Description)
	c.URL.Into(&p.URL)
	c.UnlockAmount.Into(&p.UnlockAmount)
	c.PerMinute.Into(&p.PerMinute)
	c.PerKilometer.Into(&p.PerKilometer)
	c.PausePerMinAmount.IntoPointer(&p.PausePerMinAmount)
	c.ReservationPerMin.IntoPointer(&p.ReservationPerMin)
	c.ReservationFlat.IntoPointer(&p.ReservationFlat)
	c.ReservationFreeMinutes.Into(&p.ReservationFreeMinutes)
	c.FareCap.IntoPointer(&p.FareCap)
	c.OutOfZoneAmount.IntoPointer(&p.OutOfZoneAmount)
	c.Taxable.Into(&p.Taxable)
	c.TaxBasisPoints.Into(&p.TaxBasisPoints)
	c.VehicleTypeIDs.Into(&p.VehicleTypeIDs)
	c.Active.Into(&p.Active)
	if c.Metadata.Set {
		p.Metadata = metadataOf(c.Metadata.Value)
	}
	var v problem.Validation
	p.check(&v, sub, a)
	if err := v.Err(); err != nil {
		return Plan{}, err
	}
	if p.ExternalID != former.ExternalID {
		err := checkUnique(ctx, tx, "external_id", "plans WHERE organization_id = $1 AND subaccount_id = $2 AND external_id = $3 AND id <> $4",
			organizationID, p.SubaccountID, string(p.ExternalID), p.ID)
		if err != nil {
			return Plan{}, err
		}
	}
	p.Version++
	p.revision++
	p.UpdatedAt = nextUpdatedAt(p.UpdatedAt, a.now)
	doc, err := encode(p)
	if err != nil {
		return Plan{}, err
	}
	_, err = tx.Exec(ctx, "UPDATE plans SET revision = $3, stamp = $4, version = $5, external_id = $6, doc = $7 WHERE organization_id = $1 AND id = $2",
		organizationID, p.ID, p.revision, newStamp(), p.Version, db.Text(string(p.ExternalID)), string(doc))
	if db.IsUnique(err) { // by a concurrent transaction
		return Plan{}, alreadyExistsError("external_id")
	}
	if err != nil {
		return Plan{}, fmt.Errorf("update a pricing plan: %w", err)
	}
	s.notify(tx, organizationID, PlanKind, p.ID)
	if err := s.recordChange(ctx, tx, organizationID, PricingUpdated, audit.Target{Type: "pricing_plan", ID: p.ID, Name: p.Name}, former, p); err != nil {
		return Plan{}, err
	}
	return p, insertPlanVersion(ctx, tx, organizationID, &p)
}

// check adds issues of the plan and normalizes it. sub may be nil.
func (p *Plan) check(v *problem.Validation, sub *Subaccount, a orgContext) {
	checkLine(v, "name", p.Name, maxName)
	v.Length("description", p.Description, 0, maxText)
	checkURL(v, "url", p.URL)
	checkCommon(v, p.ExternalID, p.Metadata)
	if p.PerMinute == nil {
		p.PerMinute = []tariff.Segment{}
	}
	if p.PerKilometer == nil {
		p.PerKilometer = []tariff.Segment{}
	}
	if sub == nil {
		p.Tariff.Check(v, a.settings.MaxRideMinutes, 0)
		return
	}
	p.VehicleTypeIDs = checkTypes(v, "vehicle_type_ids", p.VehicleTypeIDs, sub)
	p.Tariff.Check(v, a.settings.MaxRideMinutes, sub.maxReservationMinutes())
}

// checkTariffs adds an issue if a ride of maxRideMinutes could exceed the range of
// amounts.
func (s *Service) checkTariffs(ctx context.Context, tx *db.Tx, v *problem.Validation, organizationID string, maxRideMinutes int64) error {
	subs, err := s.Subaccounts(ctx, tx, organizationID)
	if err != nil {
		return err
	}
	for _, sub := range subs {
		plans, err := s.plansOf(ctx, tx, organizationID, sub.ID)
		if err != nil {
			return err
		}
		for _, p := range plans {
			if !p.WithinLimits(maxRideMinutes, sub.maxReservationMinutes()) {
				v.AddCode("conflict", "max_ride_minutes", "would let the price of plan %s exceed the maximum amount", p.ID)
			}
		}
	}
	return nil
}
