package fleet

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// RidePrice is the explained price of a ride. Its lines add up to the total.
type RidePrice struct {
	RideID             string     `json:"ride_id"`
	SubaccountID       string     `json:"subaccount_id"`
	PricingPlanID      NullString `json:"pricing_plan_id"`
	PricingPlanVersion *int64     `json:"pricing_plan_version"`
	// Final is false for an open ride: the price is the one of now, without distance
	// and without a fee for its end.
	Final bool `json:"final"`
	tariff.Explanation
}

// ExplainRide explains the price of a ride by the version of the plan that it has.
func (s *Service) ExplainRide(ctx context.Context, q db.Querier, organizationID string, r *Ride) (RidePrice, error) {
	p := RidePrice{RideID: r.ID, SubaccountID: r.SubaccountID, PricingPlanID: r.PricingPlanID, PricingPlanVersion: r.PricingPlanVersion, Final: r.Price != nil}
	if r.PricingPlanID == "" || r.PricingPlanVersion == nil {
		price := tariff.Price{}
		if r.Price != nil {
			price = *r.Price
		} else {
			sub, _, err := s.subaccount(ctx, q, organizationID, r.SubaccountID)
			if err != nil {
				return RidePrice{}, err
			}
			price.Currency = sub.Currency
		}
		p.Explanation = tariff.ExplainAmounts(price)
		return p, nil
	}
	terms, err := s.PlanTariff(ctx, q, organizationID, string(r.PricingPlanID), *r.PricingPlanVersion)
	if err != nil {
		return RidePrice{}, err
	}
	if r.Price == nil {
		p.Explanation = terms.Explain(r.usageSoFar())
		return p, nil
	}
	p.Explanation = terms.Explain(r.Usage()).Adjusted(r.AdjustmentAmount, string(r.AdjustmentReason))
	if p.Price != *r.Price { // from elsewhere, with another usage
		p.Explanation = tariff.ExplainAmounts(*r.Price)
	}
	return p, nil
}

// usageSoFar is the billable use of an open ride as of the time it was read.
func (r *Ride) usageSoFar() tariff.Usage {
	shown := *r
	if !r.org.now.IsZero() {
		shown = r.asOf(r.org.now)
	}
	u := shown.reservationUsage()
	if r.Status != Reserved {
		u.Ridden, u.Seconds, u.PausedSeconds = true, shown.DurationSeconds, shown.PausedSeconds
	} else if !r.org.now.IsZero() {
		u.ReservedSeconds = seconds(r.ReservedAt, r.org.now)
	}
	return u
}

// QuoteRequest describes a ride whose price is asked for.
type QuoteRequest struct {
	SubaccountID    string     `json:"subaccount_id"` // the vehicle's; empty: not checked
	VehicleID       NullString `json:"vehicle_id"`
	VehicleTypeID   NullString `json:"vehicle_type_id"` // in place of the vehicle, with the subaccount
	PricingPlanID   NullString `json:"pricing_plan_id"` // empty: the one that applies
	DurationSeconds int64      `json:"duration_seconds"`
	DistanceMeters  int64      `json:"distance_meters"`
	PausedSeconds   int64      `json:"paused_seconds"`
	ReservedSeconds *int64     `json:"reserved_seconds"` // nil: without a reservation
	OutOfZone       bool       `json:"out_of_zone"`
}

// Quote is the explained price of a ride that was not ridden.
type Quote struct {
	SubaccountID       string `json:"subaccount_id"`
	VehicleTypeID      string `json:"vehicle_type_id"`
	PricingPlanID      string `json:"pricing_plan_id"`
	PricingPlanVersion int64  `json:"pricing_plan_version"`
	tariff.Explanation
}

// Quote computes the price of a ride without storing anything. Errors: Invalid;
// Conflict no_pricing_plan.
func (s *Service) Quote(ctx context.Context, q db.Querier, organizationID string, n QuoteRequest) (Quote, error) {
	a, err := s.orgContext(ctx, q, s.db.Now(), organizationID)
	if err != nil {
		return Quote{}, err
	}
	var v problem.Validation
	sub, kind, planID, err := s.quoted(ctx, q, organizationID, n, &v)
	if err != nil {
		return Quote{}, err
	}
	n.check(&v, a.settings, kind)
	if err := v.Err(); err != nil {
		return Quote{}, err
	}
	plan, err := s.quotedPlan(ctx, q, organizationID, sub, planID, n.PricingPlanID)
	if err != nil {
		return Quote{}, err
	}
	if n.OutOfZone && plan.OutOfZoneAmount == nil {
		v.AddCode("conflict", "out_of_zone", "is not possible with this pricing plan, which has no fee for it")
		return Quote{}, v.Err()
	}
	u := tariff.Usage{Ridden: true, Seconds: n.DurationSeconds, PausedSeconds: n.PausedSeconds, Meters: n.DistanceMeters, OutOfZone: n.OutOfZone}
	if n.ReservedSeconds != nil {
		u.Reserved, u.ReservedSeconds, u.ReservationMinutes = true, *n.ReservedSeconds, kind.ReservationMinutes
	}
	return Quote{sub.ID, kind.ID, plan.ID, plan.Version, plan.Explain(u)}, nil
}

// check adds the issues of a quote's ride. kind may be nil, which is an issue already.
func (n *QuoteRequest) check(v *problem.Validation, settings *Settings, kind *VehicleType) {
	longest := settings.MaxRideMinutes * 60
	checkRange(v, "duration_seconds", n.DurationSeconds, 0, longest)
	checkRange(v, "distance_meters", n.DistanceMeters, 0, tariff.MaxMeters)
	checkRange(v, "paused_seconds", n.PausedSeconds, 0, max(0, n.DurationSeconds))
	checkOptional(v, "reserved_seconds", n.ReservedSeconds, 0, longest)
	if kind != nil && kind.ReservationMinutes == 0 && n.ReservedSeconds != nil {
		v.Add("reserved_seconds", "must be absent: vehicles of this type allow no reservations")
	}
}

// quoted returns the subaccount and the type of the vehicle of a quote, and the plan
// that applies; empty: none. It adds issues for missing records; the type may then be nil.
func (s *Service) quoted(ctx context.Context, q db.Querier, organizationID string, n QuoteRequest, v *problem.Validation) (*Subaccount, *VehicleType, NullString, error) {
	subID, typeID, planID := n.SubaccountID, string(n.VehicleTypeID), NullString("")
	member := "vehicle_type_id"
	switch {
	case n.VehicleID != "" && n.VehicleTypeID != "":
		v.AddCode("conflict", "vehicle_type_id", "must not be given with vehicle_id")
		return nil, nil, "", nil
	case n.VehicleID == "" && n.VehicleTypeID == "":
		v.AddCode("required", "vehicle_id", "is required, or vehicle_type_id")
		return nil, nil, "", nil
	case n.VehicleID == "" && subID == "":
		v.AddCode("required", "subaccount_id", "is required with vehicle_type_id")
		return nil, nil, "", nil
	case n.VehicleID != "":
		member = "vehicle_id"
		vehicle, err := s.Vehicle(ctx, q, organizationID, string(n.VehicleID))
		if problem.Of(err) == problem.NotFound || err == nil && subID != "" && vehicle.SubaccountID != subID {
			v.AddCode("not_found", member, "does not exist")
			return nil, nil, "", nil
		}
		if err != nil {
			return nil, nil, "", err
		}
		subID, typeID, planID = vehicle.SubaccountID, vehicle.VehicleTypeID, vehicle.PricingPlanID
	}
	sub, _, err := s.subaccount(ctx, q, organizationID, subID)
	if err != nil {
		return nil, nil, "", err
	}
	kind := sub.vehicleType(typeID)
	if kind == nil {
		v.AddCode("not_found", member, "does not exist in the subaccount")
		return sub, nil, "", nil
	}
	return sub, kind, applicablePlan(planID, kind, sub), nil
}

// applicablePlan returns the id of the plan of a ride: the vehicle's, else the type's, else
// the subaccount's; empty: none.
func applicablePlan(vehicles NullString, kind *VehicleType, sub *Subaccount) NullString {
	id := vehicles
	if id == "" {
		id = kind.DefaultPricingPlanID
	}
	if id == "" {
		id = sub.DefaultPricingPlanID
	}
	return id
}

// quotedPlan returns the plan of a quote: the requested one, else the one that applies. It
// is read-only.
func (s *Service) quotedPlan(ctx context.Context, q db.Querier, organizationID string, sub *Subaccount, applies, requested NullString) (*Plan, error) {
	id := applies
	if requested != "" {
		id = requested
	}
	if id == "" {
		return nil, conflict("no_pricing_plan", "the vehicle, its type and its subaccount have no pricing plan")
	}
	plan, err := s.plan(ctx, q, organizationID, string(id))
	if requested != "" && (problem.Of(err) == problem.NotFound || err == nil && plan.SubaccountID != sub.ID) {
		var v problem.Validation
		v.AddCode("not_found", "pricing_plan_id", "does not exist in the subaccount")
		return nil, v.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("read the plan of a quote: %w", err)
	}
	if !plan.Active {
		return nil, conflict("no_pricing_plan", "the applicable pricing plan is not active")
	}
	return plan, nil
}
