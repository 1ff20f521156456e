package fleetapi

import (
	"context"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// priceLine is a line of an explained price.
var priceLine = &schema.Record{Name: "price_line", Doc: "A line of an explained price.", Members: []schema.Member{
	{Name: "code", Type: schema.Enum(tariff.LineCodes...), Example: "time", Doc: "cap is the reduction by the fare cap, floor the increase of an amount below 0."},
	{Name: "quantity", Type: schema.Integer(), Example: 12},
	{Name: "unit", Type: schema.Enum(tariff.Units...), Example: "minute", Doc: "The unit of quantity. once is a flat amount, interval a started interval of a segment, window a window of the fare cap."},
	{Name: "unit_amount", Type: schema.Integer(), Nullable: true, Example: 25, Doc: "amount divided by quantity; null if the line has no price per unit."},
	{Name: "amount", Type: schema.Integer(), Example: 300, Doc: "In the currency's minor unit; negative for a reduction."},
	{Name: "explanation", Type: schema.Text(), Example: "Riding: €0.25 a minute", Doc: "The rule, in English, as receipts show it."},
	{Name: "rounding", Type: schema.Text(), Nullable: true, Example: "11 min 15 s rounded up to 12 minutes", Doc: "How the quantity or the amount was rounded; null if it was not."},
}}

var lines = schema.Member{Name: "lines", Type: schema.Array(schema.Nested(priceLine), 1000), Doc: "They add up to total_amount exactly. Lines of amount 0 are omitted."}

// The records repeat the members of a price.
var (
	ridePriceRecord = &schema.Record{Name: "price_explanation", Doc: "The explained price of a ride. Amounts are in the currency's minor unit.", Members: slices.Concat([]schema.Member{
		{Name: "object", Type: schema.Enum("price_explanation")},
		{Name: "ride_id", Type: schema.ID(), Example: "ride_01KKNTQ6YAEDQRB018TR4SJM6R"},
		{Name: "subaccount_id", Type: schema.ID()},
		{Name: "pricing_plan_id", Type: schema.ID(), Nullable: true},
		{Name: "pricing_plan_version", Type: schema.Integer(), Nullable: true},
		{Name: "final", Type: schema.Bool(), Doc: "false for an open ride: the price as of now."},
	}, priceMembers, []schema.Member{lines})}

	quoteInput = &schema.Record{Name: "quote_request", Doc: "A ride whose price is asked for.", Members: []schema.Member{
		{Name: "subaccount_id", Type: schema.ID(), Access: schema.CreateOnly, Doc: "With vehicle_type_id; defaults to the only subaccount in the API key's scope."},
		{Name: "vehicle_id", Type: schema.ID(), Access: schema.CreateOnly, Nullable: true, Doc: "Required, unless vehicle_type_id is given."},
		{Name: "vehicle_type_id", Type: schema.ID(), Access: schema.CreateOnly, Nullable: true, Doc: "In place of a vehicle.", Example: "vt_01KKNTQ6YAEDQRB018TR4SJM6R"},
		{Name: "pricing_plan_id", Type: schema.ID(), Access: schema.CreateOnly, Nullable: true, Doc: "An active plan of the subaccount. Defaults to the plan that would apply."},
		{Name: "duration_seconds", Type: schema.Int(0, maxExact), Access: schema.Required, Example: 675, Doc: "Pauses included; at most the account's max_ride_minutes."},
		{Name: "distance_meters", Type: schema.Int(0, maxExact), Access: schema.CreateOnly, Example: 2140, Doc: "Defaults to 0."},
		{Name: "paused_seconds", Type: schema.Int(0, maxExact), Access: schema.CreateOnly, Doc: "Defaults to 0."},
		{Name: "reserved_seconds", Type: schema.Int(0, maxExact), Access: schema.CreateOnly, Nullable: true, Doc: "The reservation before the ride; null: none."},
		{Name: "out_of_zone", Type: schema.Bool(), Access: schema.CreateOnly, Doc: "The ride ends where a zone forbids it, for the plan's fee."},
	}}

	quoteRecord = &schema.Record{Name: "quote", Doc: "The explained price of a ride that was not ridden. Amounts are in the currency's minor unit.", Members: slices.Concat([]schema.Member{
		{Name: "object", Type: schema.Enum("quote")},
		{Name: "subaccount_id", Type: schema.ID()},
		{Name: "vehicle_type_id", Type: schema.ID()},
		{Name: "pricing_plan_id", Type: schema.ID()},
		{Name: "pricing_plan_version", Type: schema.Integer()},
	}, priceMembers, []schema.Member{lines})}
)

func (a *API) quoteRoutes() []rest.Route {
	return []rest.Route{{
		Method: "POST", Path: "/quotes", ID: "createQuote", Tag: "Pricing", Summary: "Compute the price of a ride",
		Doc: "Returns the price that a ride of this length would have now, with each line explained. Nothing is stored, so the request can be repeated at will.\n\n" +
			"Name a vehicle, or a vehicle type with its subaccount.",
		Needs: needs("pricing", apikey.Read), Input: quoteInput, Output: quoteRecord, Status: 200, Claim: true, Codes: []string{"no_pricing_plan"}, Handle: a.quote,
	}}
}

func (a *API) quote(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in fleet.QuoteRequest
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	// First the scope: a vehicle out of scope must not be revealed.
	if err := a.reaches(ctx, a.DB, r, fleet.NewRide{VehicleID: in.VehicleID}); err != nil {
		return rest.Response{}, err
	}
	if in.VehicleID == "" && in.SubaccountID == "" {
		ids := r.Subaccounts()
		if ids == nil {
			var err error
			if ids, err = a.Fleet.SubaccountIDs(ctx, a.DB, r.Key.OrganizationID); err != nil {
				return rest.Response{}, err
			}
		}
		if len(ids) == 1 {
			in.SubaccountID = ids[0]
		}
	}
	got, err := a.Fleet.Quote(ctx, a.DB, r.Key.OrganizationID, in)
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(struct {
		Object string `json:"object"`
		fleet.Quote
	}{"quote", got}).In(got.SubaccountID), nil
}

func (a *API) getRidePrice(ctx context.Context, r *rest.Request) (rest.Response, error) {
	ride, err := a.Fleet.Ride(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := r.Within(ride.SubaccountID); err != nil {
		return rest.Response{}, err
	}
	got, err := a.Fleet.ExplainRide(ctx, a.DB, r.Key.OrganizationID, &ride)
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(struct {
		Object string `json:"object"`
		fleet.RidePrice
	}{"price_explanation", got}), nil
}
