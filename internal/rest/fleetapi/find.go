package fleetapi

import (
	"context"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// integers returns an integer range of the request.
func integers(r *rest.Request, name string) fleet.Integers {
	low, high := r.Ints(name)
	return fleet.Integers{Low: low, High: high}
}

func (a *API) listRides(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := fleet.RideQuery{
		Subaccounts: r.Subaccounts(), Status: rest.Typed[fleet.RideStatus](r.Strings("status")), TripType: rest.Typed[fleet.TripType](r.Strings("trip_type")),
		CustomerID: r.Strings("customer_id"), VehicleID: r.Strings("vehicle_id"), PricingPlanID: r.Strings("pricing_plan_id"),
		PaymentStatus: r.Strings("payment_status"), ExternalID: r.Strings("external_id"), ZoneID: r.Strings("zone_id"),
		CreatedAt: r.Range("created_at"), UpdatedAt: r.Range("updated_at"), StartedAt: r.Range("started_at"), EndedAt: r.Range("ended_at"),
		TotalAmount: integers(r, "total_amount"), DurationSeconds: integers(r, "duration_seconds"), Sort: r.Sort(), Limit: r.Limit(),
	}
	var err error
	if q.Box, err = box(r); err != nil {
		return rest.Response{}, err
	}
	if r.Exporting() {
		return exported(ctx, r, func(fn func(*fleet.Record) error) error {
			return a.Fleet.EachRide(ctx, r.Key.OrganizationID, q, fn)
		}, a.expandRides, r.Expands()), nil
	}
	if q.After, err = r.After(); err != nil {
		return rest.Response{}, err
	}
	docs, after, err := a.Fleet.ListRides(ctx, a.DB, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, rest.AsCursorError(err)
	}
	return listed(ctx, r, docs, after, a.expandRides)
}

func (a *API) listVehicles(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := fleet.VehicleQuery{
		Subaccounts: r.Subaccounts(), State: rest.Typed[fleet.VehicleState](r.Strings("state")), VehicleTypeID: r.Strings("vehicle_type_id"),
		FormFactor: r.Strings("form_factor"), Code: r.Strings("code"), DeviceID: r.Strings("device_id"), ExternalID: r.Strings("external_id"), ZoneID: r.Strings("zone_id"),
		BatteryPercent: integers(r, "battery_percent"), LastReportedAt: r.Range("last_reported_at"), UpdatedAt: r.Range("updated_at"), Sort: r.Sort(), Limit: r.Limit(),
	}
	var err error
	if q.Box, err = box(r); err != nil {
		return rest.Response{}, err
	}
	if q.Near, err = near(r); err != nil {
		return rest.Response{}, err
	}
	if q.Near != nil && !r.Sorted() {
		q.Sort = keyset.Sort{Field: byDistance}
	}
	if r.Exporting() {
		return exported(ctx, r, func(fn func(*fleet.Record) error) error {
			return a.Fleet.EachVehicle(ctx, r.Key.OrganizationID, q, fn)
		}, a.expandVehicles, r.Expands()), nil
	}
	if q.After, err = r.After(); err != nil {
		return rest.Response{}, err
	}
	docs, after, err := a.Fleet.ListVehicles(ctx, a.DB, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, rest.AsCursorError(err)
	}
	return listed(ctx, r, docs, after, a.expandVehicles)
}

func (a *API) listCustomers(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := fleet.CustomerQuery{
		Subaccounts: r.Subaccounts(), Status: rest.Typed[fleet.CustomerStatus](r.Strings("status")), Email: r.Strings("email"), Phone: r.Strings("phone"),
		ExternalID: r.Strings("external_id"), CreatedAt: r.Range("created_at"), UpdatedAt: r.Range("updated_at"), LastRideAt: r.Range("last_ride_at"),
		Text: r.String("q"), Sort: r.Sort(), Limit: r.Limit(),
	}
	if q.Text != "" {
		if r.Sorted() {
			return rest.Response{}, rest.BadParameter("sort", "sort must not be given with q: the newest customers are first.")
		}
		q.Sort = keyset.Sort{}
	}
	for i, number := range q.Phone {
		// An unescaped + arrives as a space.
		if digits, ok := strings.CutPrefix(number, " "); ok {
			q.Phone[i] = "+" + digits
		}
	}
	if r.Exporting() {
		return exported(ctx, r, func(fn func(*fleet.Record) error) error {
			return a.Fleet.EachCustomer(ctx, r.Key.OrganizationID, q, fn)
		}, plain, false), nil
	}
	var err error
	if q.After, err = r.After(); err != nil {
		return rest.Response{}, err
	}
	docs, after, err := a.Fleet.ListCustomers(ctx, a.DB, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, rest.AsCursorError(err)
	}
	return listed(ctx, r, docs, after, plain)
}

func (a *API) listZones(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := fleet.ZoneQuery{
		Subaccounts: r.Subaccounts(), Type: rest.Typed[fleet.ZoneType](r.Strings("type")), Sort: r.Sort(), Limit: r.Limit(),
	}
	if in, ok := r.Bool("in_force"); ok {
		q.InForce = &in
	}
	var err error
	if q.Box, err = box(r); err != nil {
		return rest.Response{}, err
	}
	switch lat, lng, ok, err := point(r); {
	case err != nil:
		return rest.Response{}, err
	case ok:
		q.Point = &geo.Position{Lat: lat, Lng: lng}
	}
	if r.Exporting() {
		return exported(ctx, r, func(fn func(*fleet.Record) error) error {
			return a.Fleet.EachZone(ctx, r.Key.OrganizationID, q, fn)
		}, plain, false), nil
	}
	if q.After, err = r.After(); err != nil {
		return rest.Response{}, err
	}
	docs, after, err := a.Fleet.ListZones(ctx, a.DB, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, rest.AsCursorError(err)
	}
	return listed(ctx, r, docs, after, plain)
}
