package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

var rideRecord = record("ride", "A trip, or the reservation of one.",
	schema.Member{Name: "status", Type: schema.Enum(rideStatuses...), Access: schema.Writable, OnCreate: []string{"active", "reserved"}, OnUpdate: []string{"active", "paused", "completed", "cancelled"}, Doc: "A ride is created active or reserved; a PUT changes the status. The current status is accepted without a change, so that a request can be repeated after a lost answer."},
	schema.Member{Name: "trip_type", Type: schema.Enum(tripTypes...), Access: schema.CreateOnly, Doc: "Defaults to rider. Other trips have no customer and cost nothing."},
	schema.Member{Name: "customer_id", Type: schema.ID(), Access: schema.CreateOnly, Nullable: true, Doc: "Required for a rider's trip.", Example: "cus_01KKNTQ6YAEDQRB018TR4SJM6R"},
	schema.Member{Name: "vehicle_id", Type: schema.ID(), Access: schema.CreateOnly, Doc: "Required, unless vehicle_code is given."},
	schema.Member{Name: "vehicle_code", Type: schema.String(1, 32), Access: schema.CreateOnly, WriteOnly: true, Doc: "The code that a rider scans, in place of vehicle_id.", Example: "B-0417"},
	schema.Member{Name: "pricing_plan_id", Type: schema.ID(), Access: schema.CreateOnly, Nullable: true, Doc: "An assertion: 409 pricing_changed if another plan would apply."},
	schema.Member{Name: "pricing_plan_version", Type: schema.Int(1, maxExact), Access: schema.CreateOnly, Nullable: true, Doc: "Likewise, of its version."},
	schema.Member{Name: "reserved_at", Type: schema.Timestamp(), Nullable: true},
	schema.Member{Name: "reservation_expires_at", Type: schema.Timestamp(), Nullable: true},
	schema.Member{Name: "started_at", Type: schema.Timestamp(), Access: schema.CreateOnly, Nullable: true, Doc: "Given for an active ride of an app that was offline: in the last offline_ride_hours, and not before the end of another ride of the vehicle or customer."},
	schema.Member{Name: "ended_at", Type: schema.Timestamp(), Access: schema.UpdateOnly, Nullable: true, Doc: "When it was completed or cancelled. Given with completion by an app that was offline; likewise."},
	schema.Member{Name: "duration_seconds", Type: schema.Integer(), Doc: "From start to end, or to now, pauses included."},
	schema.Member{Name: "paused_seconds", Type: schema.Integer()},
	schema.Member{Name: "distance_meters", Type: schema.Int(0, maxExact), Access: schema.UpdateOnly, Nullable: true, Doc: "Given with completion; else by the odometer, if it was reported at the start or during the ride, and at its end; else along the positions that the vehicle reported; else the straight line from start to end. Later reports correct a measured distance, and the price, until the ride is paid for."},
	schema.Member{Name: "start_location", Type: position(), Access: schema.CreateOnly, Nullable: true, Doc: "Defaults to the vehicle's location."},
	schema.Member{Name: "end_location", Type: position(), Access: schema.UpdateOnly, Nullable: true, Doc: "Likewise."},
	schema.Member{Name: "start_zone_id", Type: schema.ID(), Nullable: true, Doc: "The zone whose rule applied."},
	schema.Member{Name: "end_zone_id", Type: schema.ID(), Nullable: true},
	schema.Member{Name: "end_reason", Type: schema.Enum("rider", "operator", "max_duration"), Access: schema.UpdateOnly, OnUpdate: []string{"rider", "operator"}, Nullable: true, Doc: "Defaults to rider. operator skips the check of zones and the fee."},
	schema.Member{Name: "cancel_reason", Type: schema.Enum("rider", "operator", "reservation_expired"), Access: schema.UpdateOnly, OnUpdate: []string{"rider", "operator"}, Nullable: true, Doc: "Defaults to rider."},
	schema.Member{Name: "accept_out_of_zone_fee", Type: schema.Bool(), Access: schema.UpdateOnly, WriteOnly: true, Doc: "With completion: the rider pays for ending where a zone forbids it."},
	schema.Member{Name: "parking_verification_url", Type: schema.Formatted("uri", 2048), Access: schema.UpdateOnly, Nullable: true},
	schema.Member{Name: "parking_category", Type: schema.Enum("corral", "curb", "rack", "other_valid", "invalid"), Access: schema.UpdateOnly, Nullable: true},
	schema.Member{Name: "price", Type: price, Nullable: true, Doc: "null until the ride is completed or cancelled. Amounts are in the currency's minor unit."},
	schema.Member{Name: "adjustment_amount", Type: schema.Int(-maxExact, maxExact), Access: schema.UpdateOnly, Doc: "Goodwill or a refund, signed, once the ride is over. The total is never below 0."},
	schema.Member{Name: "adjustment_reason", Type: schema.String(0, 500), Access: schema.UpdateOnly, Nullable: true},
	schema.Member{Name: "payment_status", Type: schema.Enum(paymentStatuses...), Access: schema.UpdateOnly, Doc: "Your own bookkeeping: the service takes no money. due at the end of a ride that costs something."},
)

// priceMembers are the members of a price.
var priceMembers = []schema.Member{
	{Name: "currency", Type: schema.Text(), Example: "EUR"},
	{Name: "unlock_amount", Type: schema.Integer(), Doc: "This and the next three are as charged, before cap and floor."},
	{Name: "time_amount", Type: schema.Integer()},
	{Name: "pause_amount", Type: schema.Integer()},
	{Name: "distance_amount", Type: schema.Integer()},
	{Name: "fare_amount", Type: schema.Integer(), Doc: "After cap and floor."},
	{Name: "reservation_amount", Type: schema.Integer()},
	{Name: "out_of_zone_amount", Type: schema.Integer()},
	{Name: "subtotal_amount", Type: schema.Integer()},
	{Name: "tax_amount", Type: schema.Integer()},
	{Name: "adjustment_amount", Type: schema.Integer()},
	{Name: "total_amount", Type: schema.Integer()},
	{Name: "billed_minutes", Type: schema.Integer()},
	{Name: "billed_paused_minutes", Type: schema.Integer()},
	{Name: "billed_kilometers", Type: schema.Integer()},
	{Name: "billed_reservation_minutes", Type: schema.Integer()},
}

var price = schema.Object(priceMembers...)

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
			boxParam("Where they began. With a sort other than created_at or started_at it needs a range of one of these, of at most 92 days."),
			{Name: "created_at", Kind: rest.TimeRange},
			{Name: "updated_at", Kind: rest.TimeRange},
			{Name: "started_at", Kind: rest.TimeRange},
			{Name: "ended_at", Kind: rest.TimeRange},
			{Name: "total_amount", Kind: rest.IntRange},
			{Name: "duration_seconds", Kind: rest.IntRange},
		},
		Sort:   []string{"created_at", "updated_at", "started_at", "ended_at", "total_amount", "duration_seconds"},
		Expand: expand, Export: true, Parquet: true, Output: rideRecord, List: true, Codes: []string{"range_too_large"}, Handle: a.listRides,
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
		Method: "GET", Path: "/rides/{id}/price", ID: "getRidePrice", Tag: "Rides", Summary: "Explain the price of a ride",
		Doc: "Returns each line of the price with its rule, quantity, amount and rounding. The lines add up to `total_amount` exactly, and their texts are those of the receipt in the dashboard.\n\n" +
			"Of an open ride it is the price as of now, without distance and without a fee for its end; `final` is then false.",
		Needs: needs("rides", apikey.Read), Output: ridePriceRecord, Handle: a.getRidePrice,
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
func (a *API) reaches(ctx context.Context, q db.Querier, r *rest.Request, n fleet.NewRide) error {
	if r.Subaccounts() == nil {
		return nil
	}
	var docs []fleet.Record
	var err error
	switch {
	case n.VehicleID != "":
		docs, err = a.Fleet.VehiclesByID(ctx, q, r.Key.OrganizationID, []string{string(n.VehicleID)})
	case n.VehicleCode != "":
		docs, _, err = a.Fleet.ListVehicles(ctx, q, r.Key.OrganizationID, fleet.VehicleQuery{Code: []string{string(n.VehicleCode)}})
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
		current, err := reached(r, ride.SubaccountID, &ride)
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
