package deskapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// figureMembers are the fields of [desk.TicketFigures].
func figureMembers() []schema.Member {
	return []schema.Member{
		{Name: "created_count", Type: schema.Integer(), Doc: "Tickets created in the period."},
		{Name: "resolved_count", Type: schema.Integer(), Doc: "Tickets resolved in the period and not reopened since, whenever they were created."},
		{Name: "first_response_count", Type: schema.Integer(), Doc: "Tickets created in the period that have a first reply by now."},
		{Name: "sla_breached_count", Type: schema.Integer(), Doc: "SLA targets breached in the period."},
		{Name: "average_first_response_seconds", Type: schema.Integer(), Nullable: true, Doc: "From creation to the first reply; null without any."},
		{Name: "median_first_response_seconds", Type: schema.Integer(), Nullable: true},
		{Name: "average_resolution_seconds", Type: schema.Integer(), Nullable: true, Doc: "From creation to resolution, including pauses; null without any."},
		{Name: "median_resolution_seconds", Type: schema.Integer(), Nullable: true},
	}
}

var analyticsRow = &schema.Record{Name: "analytics.tickets_row", Doc: "The figures of a period, or of one group of its tickets.", Members: append([]schema.Member{
	{Name: "period_start", Type: schema.Formatted("date-time", 40), Doc: "In the time zone of the request.", Example: "2026-03-29T00:00:00+01:00"},
	{Name: "period_end", Type: schema.Formatted("date-time", 40), Example: "2026-03-30T00:00:00+02:00"},
	{Name: "group", Doc: "The values of the group_by fields.", Type: schema.Object(
		schema.Member{Name: "assignee_id", Type: schema.Text(), Nullable: true, Sometimes: true},
		schema.Member{Name: "channel", Type: schema.Text(), Sometimes: true},
		schema.Member{Name: "priority", Type: schema.Enum(priorities...), Sometimes: true},
		schema.Member{Name: "status", Type: schema.Enum(statuses...), Sometimes: true},
	)},
}, figureMembers()...)}

var analyticsRecord = &schema.Record{Name: "analytics.tickets", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("analytics.tickets")},
	{Name: "from", Type: schema.Timestamp()},
	{Name: "to", Type: schema.Timestamp()},
	{Name: "timezone", Type: schema.Text(), Example: "Europe/Berlin"},
	{Name: "granularity", Type: schema.Enum(words(period.Granularities[:])...)},
	{Name: "group_by", Type: schema.Array(schema.Enum(desk.GroupFields[:]...), rest.MaxGroupBy)},
	{Name: "generated_at", Type: schema.Timestamp()},
	{Name: "data", Type: schema.Array(schema.Nested(analyticsRow), 1<<30), Doc: "Sorted by period, then by group. Without group_by, empty periods are included."},
	{Name: "totals", Type: schema.Object(figureMembers()...), Doc: "Totals of the whole range."},
}}

type wireAnalytics struct {
	Object      string             `json:"object"`
	From        rfc3339.Time       `json:"from"`
	To          rfc3339.Time       `json:"to"`
	TimeZone    string             `json:"timezone"`
	Granularity period.Granularity `json:"granularity"`
	GroupBy     []string           `json:"group_by"`
	GeneratedAt rfc3339.Time       `json:"generated_at"`
	Data        []wireRow          `json:"data"`
	Totals      desk.TicketFigures `json:"totals"`
}

type wireRow struct {
	PeriodStart string             `json:"period_start"`
	PeriodEnd   string             `json:"period_end"`
	Group       map[string]*string `json:"group"`
	desk.TicketFigures
}

func (a *API) analyticsRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/analytics/tickets", ID: "getTicketAnalytics", Tag: "Analytics", Summary: "Count tickets",
		Doc: "By periods of a time zone, and in each by up to two members of the tickets as they are now. Read from live data. " +
			"An export has the rows.",
		Query: rest.IntervalParams("UTC", desk.GroupFields[:], "something"),
		Needs: needs("analytics", apikey.Read), Export: true, Output: analyticsRecord, Rows: analyticsRow,
		Codes: []string{"range_too_large"}, Handle: a.ticketAnalytics,
	}}
}

func (a *API) ticketAnalytics(ctx context.Context, r *rest.Request) (rest.Response, error) {
	in, err := r.Interval("UTC")
	if err != nil {
		return rest.Response{}, err
	}
	ctx = db.LongRunning(ctx, "analytics")
	var got desk.TicketAnalytics
	err = a.DB.Read(ctx, func(tx *db.Tx) (err error) {
		got, err = a.Desk.TicketAnalytics(ctx, tx, r.Key.OrganizationID, desk.AnalyticsQuery{
			From: in.From, To: in.To, Granularity: in.Granularity, Location: in.Location, GroupBy: in.GroupBy,
		})
		return err
	})
	if err != nil {
		return rest.Response{}, err
	}
	rows := wired(got.Rows, func(row *desk.TicketRow) wireRow {
		w := wireRow{rest.Local(row.Period.Start), rest.Local(row.Period.End), map[string]*string{}, row.TicketFigures}
		for i, name := range in.GroupBy {
			w.Group[name] = orNull(row.Group[i])
		}
		return w
	})
	if r.Exporting() {
		return rest.Export(rest.All(rows)), nil
	}
	return rest.OK(wireAnalytics{
		Object: "analytics.tickets", From: rfc3339.Time(in.From), To: rfc3339.Time(in.To), TimeZone: in.TimeZone, Granularity: in.Granularity, GroupBy: in.GroupBy,
		GeneratedAt: rfc3339.Time(got.GeneratedAt), Data: rows, Totals: got.Totals,
	}), nil
}
