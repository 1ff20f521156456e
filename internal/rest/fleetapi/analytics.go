package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// rideFigures and revenueFigures are the fields of [fleet.RideFigures] and
// [fleet.RevenueFigures].
var (
	rideFigures = []schema.Member{
		{Name: "ride_count", Type: schema.Integer(), Doc: "Of every status but reserved."},
		{Name: "completed_count", Type: schema.Integer()},
		{Name: "cancelled_count", Type: schema.Integer()},
		{Name: "duration_seconds", Type: schema.Integer(), Doc: "Of completed rides, as the next three."},
		{Name: "distance_meters", Type: schema.Integer()},
		{Name: "average_duration_seconds", Type: schema.Integer(), Nullable: true, Doc: "Rounded half up; null when there is none."},
		{Name: "average_distance_meters", Type: schema.Integer(), Nullable: true},
		{Name: "unique_customers", Type: schema.Integer()},
		{Name: "unique_vehicles", Type: schema.Integer()},
	}
	revenueFigures = []schema.Member{
		{Name: "currency", Type: schema.Text(), Example: "EUR"},
		{Name: "ride_count", Type: schema.Integer(), Doc: "Completed and cancelled rides that have a price."},
		{Name: "unlock_amount", Type: schema.Integer(), Doc: "Sums of the members of the prices, in the currency's minor unit."},
		{Name: "time_amount", Type: schema.Integer()},
		{Name: "pause_amount", Type: schema.Integer()},
		{Name: "distance_amount", Type: schema.Integer()},
		{Name: "fare_amount", Type: schema.Integer()},
		{Name: "reservation_amount", Type: schema.Integer()},
		{Name: "out_of_zone_amount", Type: schema.Integer()},
		{Name: "subtotal_amount", Type: schema.Integer()},
		{Name: "tax_amount", Type: schema.Integer()},
		{Name: "adjustment_amount", Type: schema.Integer()},
		{Name: "total_amount", Type: schema.Integer()},
		{Name: "net_amount", Type: schema.Integer(), Doc: "The total less tax."},
	}
)

// useFigures are the fields of [fleet.UseFigures].
var useFigures = []schema.Member{
	{Name: "vehicle_count", Type: schema.Integer(), Doc: "Vehicles that were deployed at any time: neither removed nor missing."},
	{Name: "deployed_seconds", Type: schema.Integer(), Doc: "The time of all vehicles; the sum of the next four."},
	{Name: "on_trip_seconds", Type: schema.Integer(), Doc: "Pauses included."},
	{Name: "reserved_seconds", Type: schema.Integer()},
	{Name: "idle_seconds", Type: schema.Integer(), Doc: "Available."},
	{Name: "unavailable_seconds", Type: schema.Integer(), Doc: "Out of service or out of contact, also during a ride."},
	{Name: "utilization_basis_points", Type: schema.Integer(), Nullable: true, Doc: "Time on trips, in hundredths of a percent of the deployed time; null without any."},
	{Name: "idle_seconds_per_vehicle_day", Type: schema.Integer(), Nullable: true, Doc: "Idle time per 24 hours deployed."},
}

var (
	rideRow      = analyticsRow("analytics.rides_row", fleet.RideGroupMembers[:], rideFigures)
	revenueRow   = analyticsRow("analytics.revenue_row", fleet.RideGroupMembers[:], revenueFigures)
	useRow       = analyticsRow("analytics.vehicles_row", fleet.UseGroupMembers[:], useFigures)
	rideReport   = analyticsReport("analytics.rides", rideRow, schema.Object(rideFigures...), "Totals of the whole range: a customer or vehicle of several periods counts once.")
	revenueTotal = analyticsReport("analytics.revenue", revenueRow, schema.Array(schema.Object(revenueFigures...), 1<<30), "Of the whole range, by currency.")
	useReport    = &schema.Record{Name: "analytics.vehicles", Members: []schema.Member{
		{Name: "object", Type: schema.Enum("analytics.vehicles")},
		{Name: "from", Type: schema.Timestamp()},
		{Name: "to", Type: schema.Timestamp()},
		{Name: "timezone", Type: schema.Text(), Example: "Europe/Berlin"},
		{Name: "granularity", Type: schema.Enum(words(period.Granularities[:])...)},
		{Name: "group_by", Type: schema.Array(schema.Enum(fleet.UseGroupMembers[:]...), rest.MaxGroupBy)},
		{Name: "generated_at", Type: schema.Timestamp(), Doc: "By the sandbox's clock, there. Later time does not count."},
		{Name: "data", Type: schema.Array(schema.Nested(useRow), 1<<30), Doc: "In the order of periods, then of groups. Without group_by a period without vehicles is there too."},
		{Name: "totals", Type: schema.Object(useFigures...), Doc: "Of the whole range: a vehicle of several periods counts once."},
	}}
)

func analyticsRow(name string, members []string, figures []schema.Member) *schema.Record {
	group := make([]schema.Member, len(members))
	for i, member := range members {
		group[i] = schema.Member{Name: member, Type: schema.Text(), Nullable: true, Sometimes: true}
	}
	return &schema.Record{Name: name, Doc: "The figures of a period, or of one group in it.", Members: append([]schema.Member{
		{Name: "period_start", Type: schema.Formatted("date-time", 40), Doc: "In the time zone of the request.", Example: "2026-03-29T00:00:00+01:00"},
		{Name: "period_end", Type: schema.Formatted("date-time", 40), Example: "2026-03-30T00:00:00+02:00"},
		{Name: "group", Type: schema.Object(group...), Doc: "The values of the group_by fields."},
	}, figures...)}
}

func analyticsReport(name string, row *schema.Record, totals schema.Type, doc string) *schema.Record {
	return &schema.Record{Name: name, Members: []schema.Member{
		{Name: "object", Type: schema.Enum(name)},
		{Name: "from", Type: schema.Timestamp()},
		{Name: "to", Type: schema.Timestamp()},
		{Name: "timezone", Type: schema.Text(), Example: "Europe/Berlin"},
		{Name: "granularity", Type: schema.Enum(words(period.Granularities[:])...)},
		{Name: "group_by", Type: schema.Array(schema.Enum(fleet.RideGroupMembers[:]...), rest.MaxGroupBy)},
		{Name: "date_basis", Type: schema.Enum(fleet.RideBases[:]...)},
		{Name: "generated_at", Type: schema.Timestamp(), Doc: "By the sandbox's clock, there."},
		{Name: "data", Type: schema.Array(schema.Nested(row), 1<<30), Doc: "In the order of periods, then of groups. Without group_by a period without rides is there too."},
		{Name: "totals", Type: totals, Doc: doc},
	}}
}

func words[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = string(w)
	}
	return out
}

// report is an analytics answer: the parameters and the rows.
type report[R, T any] struct {
	Object      string             `json:"object"`
	From        rfc3339.Time       `json:"from"`
	To          rfc3339.Time       `json:"to"`
	TimeZone    string             `json:"timezone"`
	Granularity period.Granularity `json:"granularity"`
	GroupBy     []string           `json:"group_by"`
	DateBasis   string             `json:"date_basis"`
	GeneratedAt rfc3339.Time       `json:"generated_at"`
	Data        []R                `json:"data"`
	Totals      T                  `json:"totals"`
}

// span is the period and group of a row.
type span struct {
	PeriodStart string                      `json:"period_start"`
	PeriodEnd   string                      `json:"period_end"`
	Group       map[string]fleet.NullString `json:"group"`
}

type rideLine struct {
	span
	fleet.RideFigures
}

type revenueLine struct {
	span
	fleet.RevenueFigures
}

func (a *API) analyticsRoutes() []rest.Route {
	query := func(basis string) []rest.Param {
		return append(rest.IntervalParams("the account's", fleet.RideGroupMembers[:], "rides"),
			rest.Param{Name: "date_basis", Kind: rest.EnumParam, Values: fleet.RideBases[:], Doc: "The time by which a ride belongs to a period, whole; " + basis + " unless said otherwise. That a reservation was made stands in for a start that never was."},
			rest.Param{Name: "subaccount_id", Kind: rest.StringsParam},
			rest.Param{Name: "vehicle_type_id", Kind: rest.StringsParam},
			rest.Param{Name: "trip_type", Kind: rest.EnumsParam, Values: tripTypes, Doc: "Defaults to rider."},
		)
	}
	const doc = "By periods of a time zone, and in each by up to two members of the rides. Read from live data. An export has the rows."
	return []rest.Route{{
		Method: "GET", Path: "/analytics/rides", ID: "getRideAnalytics", Tag: "Analytics", Summary: "Count rides", Doc: doc,
		Query: query("started_at"), Needs: needs("analytics", apikey.Read), Export: true, Parquet: true, Output: rideReport, Rows: rideRow,
		Codes: []string{"range_too_large"}, Handle: a.rideAnalytics,
	}, {
		Method: "GET", Path: "/analytics/revenue", ID: "getRevenueAnalytics", Tag: "Analytics", Summary: "Sum up revenue", Doc: doc + " Currencies are never added up: each has rows of its own.",
		Query: query("ended_at"), Needs: needs("analytics", apikey.Read), Export: true, Parquet: true, Output: revenueTotal, Rows: revenueRow,
		Codes: []string{"range_too_large"}, Handle: a.revenueAnalytics,
	}, {
		Method: "GET", Path: "/analytics/vehicles", ID: "getVehicleAnalytics", Tag: "Analytics", Summary: "Measure the use of vehicles",
		Doc: "The time of vehicles by state, from their stored state changes, and with it their utilization and idle time. By periods of a time zone, and in each by subaccount and vehicle type. An export has the rows.\n\n" +
			"A deleted vehicle has the type that it had at last; null if it was deleted by an earlier version and had no ride. A range of more than 1,000,000 state changes is 400 range_too_large.",
		Query: append(rest.IntervalParams("the account's", fleet.UseGroupMembers[:], "vehicles"),
			rest.Param{Name: "subaccount_id", Kind: rest.StringsParam}, rest.Param{Name: "vehicle_type_id", Kind: rest.StringsParam}),
		Needs: needs("analytics", apikey.Read), Export: true, Parquet: true, Output: useReport, Rows: useRow, Codes: []string{"range_too_large"}, Handle: a.useAnalytics,
	}}
}

type useLine struct {
	span
	fleet.UseFigures
}

// useAnswer is the answer of the use of vehicles.
type useAnswer struct {
	Object      string             `json:"object"`
	From        rfc3339.Time       `json:"from"`
	To          rfc3339.Time       `json:"to"`
	TimeZone    string             `json:"timezone"`
	Granularity period.Granularity `json:"granularity"`
	GroupBy     []string           `json:"group_by"`
	GeneratedAt rfc3339.Time       `json:"generated_at"`
	Data        []useLine          `json:"data"`
	Totals      fleet.UseFigures   `json:"totals"`
}

func (a *API) useAnalytics(ctx context.Context, r *rest.Request) (rest.Response, error) {
	in, err := a.interval(ctx, r)
	if err != nil {
		return rest.Response{}, err
	}
	got, err := a.Fleet.UseAnalytics(ctx, r.Key.OrganizationID, fleet.UseQuery{
		From: in.From, To: in.To, Location: in.Location, Granularity: in.Granularity, GroupBy: in.GroupBy,
		Subaccounts: r.Subaccounts(), VehicleTypes: r.Strings("vehicle_type_id"),
	})
	if err != nil {
		return rest.Response{}, err
	}
	rows := make([]useLine, len(got.Rows))
	for i, row := range got.Rows {
		rows[i] = useLine{wireSpan(row.Period, in.GroupBy, row.Group), row.UseFigures}
	}
	if r.Exporting() {
		return rest.Export(rest.All(rows)), nil
	}
	return rest.OK(useAnswer{
		"analytics.vehicles", rfc3339.Time(in.From), rfc3339.Time(in.To), in.TimeZone, in.Granularity, in.GroupBy, rfc3339.Time(got.GeneratedAt), rows, got.Totals,
	}), nil
}

// interval reads the parameters of time, with the account's time zone as the default.
func (a *API) interval(ctx context.Context, r *rest.Request) (rest.Interval, error) {
	zone := ""
	if !r.Has("timezone") {
		s, _, err := a.Fleet.Settings(ctx, a.DB, r.Key.OrganizationID)
		if err != nil {
			return rest.Interval{}, err
		}
		zone = s.TimeZone
	}
	return r.Interval(zone)
}

// analyticsQuery reads the parameters and the account's time zone.
func (a *API) analyticsQuery(ctx context.Context, r *rest.Request) (q fleet.AnalyticsQuery, zone string, err error) {
	in, err := a.interval(ctx, r)
	if err != nil {
		return q, "", err
	}
	q = fleet.AnalyticsQuery{
		From: in.From, To: in.To, Location: in.Location, Granularity: in.Granularity, GroupBy: in.GroupBy,
		DateBasis: r.String("date_basis"), Subaccounts: r.Subaccounts(), VehicleTypes: r.Strings("vehicle_type_id"), TripTypes: rest.Typed[fleet.TripType](r.Strings("trip_type")),
	}
	if q.TripTypes == nil {
		q.TripTypes = []fleet.TripType{fleet.RiderTrip}
	}
	return q, in.TimeZone, nil
}

// wireSpan returns the period and group of a row in wire format.
func wireSpan(p period.Period, groupBy []string, values []fleet.NullString) span {
	s := span{rest.Local(p.Start), rest.Local(p.End), make(map[string]fleet.NullString, len(groupBy))}
	for i, name := range groupBy {
		s.Group[name] = values[i]
	}
	return s
}

func (a *API) rideAnalytics(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q, zone, err := a.analyticsQuery(ctx, r)
	if err != nil {
		return rest.Response{}, err
	}
	got, err := a.Fleet.RideAnalytics(ctx, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, err
	}
	rows := make([]rideLine, len(got.Rows))
	for i, row := range got.Rows {
		rows[i] = rideLine{wireSpan(row.Period, q.GroupBy, row.Group), row.RideFigures}
	}
	return reportResponse(r, q, report[rideLine, fleet.RideFigures]{
		Object: "analytics.rides", TimeZone: zone, DateBasis: got.DateBasis, GeneratedAt: rfc3339.Time(got.GeneratedAt), Data: rows, Totals: got.Totals,
	}), nil
}

func (a *API) revenueAnalytics(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q, zone, err := a.analyticsQuery(ctx, r)
	if err != nil {
		return rest.Response{}, err
	}
	got, err := a.Fleet.RevenueAnalytics(ctx, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, err
	}
	rows := make([]revenueLine, len(got.Rows))
	for i, row := range got.Rows {
		rows[i] = revenueLine{wireSpan(row.Period, q.GroupBy, row.Group), row.RevenueFigures}
	}
	return reportResponse(r, q, report[revenueLine, []fleet.RevenueFigures]{
		Object: "analytics.revenue", TimeZone: zone, DateBasis: got.DateBasis, GeneratedAt: rfc3339.Time(got.GeneratedAt), Data: rows,
		Totals: append([]fleet.RevenueFigures{}, got.Totals...),
	}), nil
}

// reportResponse answers with a report, or with an export of its rows.
func reportResponse[R, T any](r *rest.Request, q fleet.AnalyticsQuery, w report[R, T]) rest.Response {
	if r.Exporting() {
		return rest.Export(rest.All(w.Data))
	}
	w.From, w.To, w.Granularity, w.GroupBy = rfc3339.Time(q.From), rfc3339.Time(q.To), q.Granularity, q.GroupBy
	return rest.OK(w)
}
