package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

var rideRecord = record("ride", "A trip, or the reservation of one.",
	rest.Member{Name: "status", Type: rest.Enum(rideStatuses...), Access: rest.Writable, Doc: "A ride is created active or reserved; a PUT changes the status. The current status is accepted without a change, so that a request can be repeated after a lost answer."},
	rest.Member{Name: "trip_type", Type: rest.Enum(tripTypes...), Access: rest.CreateOnly, Doc: "Defaults to rider. Other trips have no customer and cost nothing."},
	rest.Member{Name: "customer_id", Type: rest.ID(), Access: rest.CreateOnly, Nullable: true, Doc: "Required for a rider's trip."},
	rest.Member{Name: "vehicle_id", Type: rest.ID(), Access: rest.CreateOnly, Doc: "Required, unless vehicle_code is given."},
	rest.Member{Name: "vehicle_code", Type: rest.String(1, 32), Access: rest.CreateOnly, WriteOnly: true, Doc: "The code that a rider scans, in place of vehicle_id.", Example: "B-0417"},
	rest.Member{Name: "pricing_plan_id", Type: rest.ID(), Access: rest.CreateOnly, Nullable: true, Doc: "An assertion: 409 pricing_changed if another plan would apply."},
	rest.Member{Name: "pricing_plan_version", Type: rest.Int(1, maxExact), Access: rest.CreateOnly, Nullable: true, Doc: "Likewise, of its version."},
	rest.Member{Name: "reserved_at", Type: rest.Timestamp(), Nullable: true},
	rest.Member{Name: "reservation_expires_at", Type: rest.Timestamp(), Nullable: true},
	rest.Member{Name: "started_at", Type: rest.Timestamp(), Nullable: true},
	rest.Member{Name: "ended_at", Type: rest.Timestamp(), Nullable: true, Doc: "When it was completed or cancelled."},
	rest.Member{Name: "duration_seconds", Type: rest.Integer(), Doc: "From start to end, or to now, pauses included."},
	rest.Member{Name: "paused_seconds", Type: rest.Integer()},
	rest.Member{Name: "distance_meters", Type: rest.Int(0, maxExact), Access: rest.UpdateOnly, Nullable: true, Doc: "Given with completion; else by the odometer, if it was reported since the start; else the straight line from start to end."},
	rest.Member{Name: "start_location", Type: position(), Access: rest.CreateOnly, Nullable: true, Doc: "Defaults to the vehicle's location."},
	rest.Member{Name: "end_location", Type: position(), Access: rest.UpdateOnly, Nullable: true, Doc: "Likewise."},
	rest.Member{Name: "start_zone_id", Type: rest.ID(), Nullable: true, Doc: "The zone whose rule applied."},
	rest.Member{Name: "end_zone_id", Type: rest.ID(), Nullable: true},
	rest.Member{Name: "end_reason", Type: rest.Enum("rider", "operator", "max_duration"), Access: rest.UpdateOnly, Nullable: true, Doc: "Defaults to rider. operator skips the check of zones and the fee."},
	rest.Member{Name: "cancel_reason", Type: rest.Enum("rider", "operator", "reservation_expired"), Access: rest.UpdateOnly, Nullable: true, Doc: "Defaults to rider."},
	rest.Member{Name: "accept_out_of_zone_fee", Type: rest.Bool(), Access: rest.UpdateOnly, WriteOnly: true, Doc: "With completion: the rider pays for ending where a zone forbids it."},
	rest.Member{Name: "parking_verification_url", Type: rest.Formatted("uri", 2048), Access: rest.UpdateOnly, Nullable: true},
	rest.Member{Name: "parking_category", Type: rest.Enum("corral", "curb", "rack", "other_valid", "invalid"), Access: rest.UpdateOnly, Nullable: true},
	rest.Member{Name: "price", Type: price, Nullable: true, Doc: "null until the ride is completed or cancelled. Amounts are in the currency's minor unit."},
	rest.Member{Name: "adjustment_amount", Type: rest.Int(-maxExact, maxExact), Access: rest.UpdateOnly, Doc: "Goodwill or a refund, signed, once the ride is over. The total is never below 0."},
	rest.Member{Name: "adjustment_reason", Type: rest.String(0, 500), Access: rest.UpdateOnly, Nullable: true},
	rest.Member{Name: "payment_status", Type: rest.Enum(paymentStatuses...), Access: rest.UpdateOnly, Doc: "Your own bookkeeping: the service takes no money. due at the end of a ride that costs something."},
)

var price = rest.Object(
	rest.Member{Name: "currency", Type: rest.Text(), Example: "EUR"},
	rest.Member{Name: "unlock_amount", Type: rest.Integer(), Doc: "This and the next three are as charged, before cap and floor."},
	rest.Member{Name: "time_amount", Type: rest.Integer()},
	rest.Member{Name: "pause_amount", Type: rest.Integer()},
	rest.Member{Name: "distance_amount", Type: rest.Integer()},
	rest.Member{Name: "fare_amount", Type: rest.Integer(), Doc: "After cap and floor."},
	rest.Member{Name: "reservation_amount", Type: rest.Integer()},
	rest.Member{Name: "out_of_zone_amount", Type: rest.Integer()},
	rest.Member{Name: "subtotal_amount", Type: rest.Integer()},
	rest.Member{Name: "tax_amount", Type: rest.Integer()},
	rest.Member{Name: "adjustment_amount", Type: rest.Integer()},
	rest.Member{Name: "total_amount", Type: rest.Integer()},
	rest.Member{Name: "billed_minutes", Type: rest.Integer()},
	rest.Member{Name: "billed_paused_minutes", Type: rest.Integer()},
	rest.Member{Name: "billed_kilometers", Type: rest.Integer()},
	rest.Member{Name: "billed_reservation_minutes", Type: rest.Integer()},
)

func (a *API) rideRoutes() []rest.Route {
	expand := []rest.Expansion{
		{Name: "customer", Needs: needs("customers", apikey.Read), Record: customerRecord},
		{Name: "vehicle", Needs: needs("vehicles", apikey.Read), Record: ridden},
		{Name: "pricing_plan", Needs: needs("pricing", apikey.Read), Record: planRecord},
	}
	return []rest.Route{{
		Method: "GET", Path: "/rides", ID: "listRides", Tag: "Rides", Summary: "List rides",
		Needs: needs("rides", apikey.Read),
		Query: []rest.Param{
			{Name: "status", Kind: rest.EnumsParam, Values: rideStatuses},
			{Name: "trip_type", Kind: rest.EnumsParam, Values: tripTypes},
			{Name: "customer_id", Kind: rest.StringsParam},
			{Name: "vehicle_id", Kind: rest.StringsParam},
			{Name: "pricing_plan_id", Kind: rest.StringsParam},
			{Name: "payment_status", Kind: rest.EnumsParam, Values: paymentStatuses},
			{Name: "external_id", Kind: rest.StringsParam},
			{Name: "subaccount_id", Kind: rest.StringsParam},
			{Name: "zone_id", Kind: rest.StringsParam, Doc: "The zone whose rule applied at the start."},
			boxParam("Where they began."),
			{Name: "created_at", Kind: rest.TimeRange},
			{Name: "updated_at", Kind: rest.TimeRange},
			{Name: "started_at", Kind: rest.TimeRange},
			{Name: "ended_at", Kind: rest.TimeRange},
			{Name: "total_amount", Kind: rest.IntRange},
			{Name: "duration_seconds", Kind: rest.IntRange},
		},
		Sort:   []string{"created_at", "updated_at", "started_at", "ended_at", "total_amount", "duration_seconds"},
		Expand: expand, Export: true, Output: rideRecord, List: true, Handle: a.listRides,
	}, {
		Method: "POST", Path: "/rides", ID: "createRide", Tag: "Rides", Summary: "Start or reserve a ride",
		Doc:   "The ride belongs to the subaccount of its vehicle. Its price follows the current version of the applicable plan, regardless of later changes.",
		Needs: needs("rides", apikey.Create), Input: rideRecord, Output: rideRecord,
		Codes: []string{"subaccount_out_of_scope", "vehicle_unavailable", "vehicle_low_battery", "customer_has_open_ride", "customer_blocked", "license_required", "age_required",
			"ride_start_not_allowed", "pricing_changed", "no_pricing_plan", "already_exists"},
		Handle: a.createRide,
	}, {
		Method: "GET", Path: "/rides/{id}", ID: "getRide", Tag: "Rides", Summary: "Read a ride",
		Needs: needs("rides", apikey.Read), Expand: expand, Output: rideRecord, Handle: a.getRide,
	}, {
		Method: "PUT", Path: "/rides/{id}", ID: "updateRide", Tag: "Rides", Summary: "Move a ride on, or change it",
		Doc:   "A new status starts, pauses, completes or cancels the ride. Fields of the end are sent together with it.",
		Needs: needs("rides", apikey.Update), Input: rideRecord, Output: rideRecord,
		Codes: []string{"invalid_transition", "vehicle_unavailable", "vehicle_low_battery", "customer_blocked", "license_required", "age_required", "ride_start_not_allowed",
			"ride_end_not_allowed", "out_of_zone_fee_required", "ride_not_cancellable", "already_exists"},
		Handle: a.updateRide,
	}}
}

func (a *API) getRide(ctx context.Context, r *rest.Request) (rest.Response, error) {
	ride, err := a.Fleet.Ride(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := r.Within(ride.SubaccountID); err != nil {
		return rest.Response{}, err
	}
	return expanded(ctx, r, &ride, a.expandRides)
}

func (a *API) createRide(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in fleet.NewRide
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		// First the scope: the state of a vehicle out of scope must not be revealed.
		if err := a.reaches(ctx, tx, r, in); err != nil {
			return rest.Response{}, err
		}
		ride, err := a.Fleet.StartRideTx(ctx, tx, r.Key.OrganizationID, in, actorOf(r))
		if err != nil {
			return rest.Response{}, err
		}
		return created("/rides/", ride.ID, ride.SubaccountID, &ride)
	})
}

// reaches returns nil if the vehicle of a new ride is in scope, or does not exist, which is
// reported later.
func (a *API) reaches(ctx context.Context, tx *db.Tx, r *rest.Request, n fleet.NewRide) error {
	if r.Subaccounts() == nil {
		return nil
	}
	var docs []fleet.Record
	var err error
	switch {
	case n.VehicleID != "":
		docs, err = a.Fleet.VehiclesByID(ctx, tx, r.Key.OrganizationID, []string{string(n.VehicleID)})
	case n.VehicleCode != "":
		docs, _, err = a.Fleet.ListVehicles(ctx, tx, r.Key.OrganizationID, fleet.VehicleQuery{Code: []string{string(n.VehicleCode)}})
	}
	for i := range docs {
		if err := r.Within(docs[i].SubaccountID); err != nil {
			return err
		}
	}
	return err
}

func (a *API) updateRide(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		ride, err := a.Fleet.LockRideTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Within(ride.SubaccountID); err != nil {
			return rest.Response{}, err
		}
		current, err := document(&ride)
		if err != nil {
			return rest.Response{}, err
		}
		var passing []string
		if ride.Status.Open() {
			passing = []string{"duration_seconds", "paused_seconds"}
		}
		var in fleet.RideChange
		if err := r.Update(current, &in, passing...); err != nil {
			return rest.Response{}, err
		}
		ride, err = a.Fleet.UpdateRideTx(ctx, tx, r.Key.OrganizationID, ride, in, actorOf(r))
		if err != nil {
			return rest.Response{}, err
		}
		return changed(ride.SubaccountID, &ride)
	})
}
