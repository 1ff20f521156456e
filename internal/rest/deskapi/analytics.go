package deskapi

import (
	"context"
	"errors"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// figureMembers are the members of [desk.TicketFigures].
func figureMembers() []rest.Member {
	return []rest.Member{
		{Name: "created_count", Type: rest.Integer(), Doc: "Tickets made in the time."},
		{Name: "resolved_count", Type: rest.Integer(), Doc: "Tickets resolved in the time and not reopened since, whenever they were made."},
		{Name: "first_response_count", Type: rest.Integer(), Doc: "Tickets made in the time and answered by now."},
		{Name: "sla_breached_count", Type: rest.Integer(), Doc: "Promises that were broken in the time."},
		{Name: "average_first_response_seconds", Type: rest.Integer(), Nullable: true, Doc: "From creation to the first answer; null when there was none."},
		{Name: "median_first_response_seconds", Type: rest.Integer(), Nullable: true},
		{Name: "average_resolution_seconds", Type: rest.Integer(), Nullable: true, Doc: "From creation to resolution, pauses included; null when there was none."},
		{Name: "median_resolution_seconds", Type: rest.Integer(), Nullable: true},
	}
}

var analyticsRow = &rest.Record{Name: "analytics.tickets_row", Doc: "The figures of a period, or of one group of its tickets.", Members: append([]rest.Member{
	{Name: "period_start", Type: rest.Formatted("date-time", 40), Doc: "As the clocks of the time zone show it.", Example: "2026-03-29T00:00:00+01:00"},
	{Name: "period_end", Type: rest.Formatted("date-time", 40), Example: "2026-03-30T00:00:00+02:00"},
	{Name: "group", Doc: "The values of the members it is grouped by.", Type: rest.Object(
		rest.Member{Name: "assignee_id", Type: rest.Text(), Nullable: true, Sometimes: true},
		rest.Member{Name: "channel", Type: rest.Text(), Sometimes: true},
		rest.Member{Name: "priority", Type: rest.Enum(priorities...), Sometimes: true},
		rest.Member{Name: "status", Type: rest.Enum(statuses...), Sometimes: true},
	)},
}, figureMembers()...)}

var analyticsRecord = &rest.Record{Name: "analytics.tickets", Members: []rest.Member{
	{Name: "object", Type: rest.Enum("analytics.tickets")},
	{Name: "from", Type: rest.Timestamp()},
	{Name: "to", Type: rest.Timestamp()},
	{Name: "timezone", Type: rest.Text()},
	{Name: "granularity", Type: rest.Enum(words(period.Granularities[:])...)},
	{Name: "group_by", Type: rest.Array(rest.Enum(desk.GroupMembers[:]...), maxGroupBy)},
	{Name: "generated_at", Type: rest.Timestamp()},
	{Name: "data", Type: rest.Array(rest.Nested(analyticsRow), 1<<30), Doc: "In the order of periods, then of groups. Without group_by a period in which nothing happened is there too."},
	{Name: "totals", Type: rest.Object(figureMembers()...), Doc: "Of the whole range."},
}}

// maxGroupBy is by how many members at once figures are grouped.
const maxGroupBy = 2

type wireAnalytics struct {
	Object      string             `json:"object"`
	From        rest.Time          `json:"from"`
	To          rest.Time          `json:"to"`
	TimeZone    string             `json:"timezone"`
	Granularity period.Granularity `json:"granularity"`
	GroupBy     []string           `json:"group_by"`
	GeneratedAt rest.Time          `json:"generated_at"`
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
		Query: []rest.Param{
			{Name: "from", Kind: rest.StringParam, Required: true, Doc: "Included: a date, which begins at its first instant in the time zone, or an RFC 3339 time.", Example: "2026-03-01"},
			{Name: "to", Kind: rest.StringParam, Required: true, Doc: "Excluded; likewise.", Example: "2026-04-01"},
			{Name: "granularity", Kind: rest.EnumParam, Values: words(period.Granularities[:]), Doc: "day unless said otherwise. Weeks begin on Monday. At most 5,000 periods."},
			{Name: "timezone", Kind: rest.StringParam, Doc: "IANA; UTC unless said otherwise.", Example: "Europe/Berlin"},
			{Name: "group_by", Kind: rest.EnumsParam, Values: desk.GroupMembers[:], Doc: "Up to two; then there are rows only for groups that have something."},
		},
		Needs: needs("analytics", apikey.Read), Export: true, Output: analyticsRecord, Rows: analyticsRow,
		Codes: []string{"range_too_large"}, Handle: a.ticketAnalytics,
	}}
}

func (a *API) ticketAnalytics(ctx context.Context, r *rest.Request) (rest.Response, error) {
	zone := r.String("timezone")
	if zone == "" {
		zone = "UTC"
	}
	loc, err := period.Location(zone)
	if err != nil {
		return rest.Response{}, rest.BadParameter("timezone", "timezone %v.", err)
	}
	from, err := instant(r, "from", loc)
	if err != nil {
		return rest.Response{}, err
	}
	to, err := instant(r, "to", loc)
	if err != nil {
		return rest.Response{}, err
	}
	granularity := period.Granularity(r.String("granularity"))
	if granularity == "" {
		granularity = period.Day
	}
	groupBy := append([]string{}, r.Strings("group_by")...)
	if len(groupBy) > maxGroupBy {
		return rest.Response{}, rest.BadParameter("group_by", "group_by takes at most %d members.", maxGroupBy)
	}
	switch _, err := period.Split(from, to, granularity, loc); {
	case errors.Is(err, period.ErrTooMany):
		e := problem.New(problem.Unparseable, "%v", err)
		e.Code = "range_too_large"
		return rest.Response{}, e
	case err != nil:
		return rest.Response{}, rest.BadParameter("to", "to must be after from.")
	}
	got, err := a.Desk.TicketAnalytics(ctx, a.DB, r.Key.OrganizationID, from, to, granularity, loc, groupBy)
	if err != nil {
		return rest.Response{}, err
	}
	rows := wired(got.Rows, func(row *desk.TicketRow) wireRow {
		w := wireRow{local(row.Period.Start), local(row.Period.End), map[string]*string{}, row.TicketFigures}
		for i, name := range groupBy {
			w.Group[name] = orNull(row.Group[i])
		}
		return w
	})
	if r.Exporting() {
		return rest.Export(sure(rows)), nil
	}
	return rest.OK(wireAnalytics{
		Object: "analytics.tickets", From: rest.Time(from), To: rest.Time(to), TimeZone: zone, Granularity: granularity, GroupBy: groupBy,
		GeneratedAt: rest.Time(got.GeneratedAt), Data: rows, Totals: got.Totals,
	}), nil
}

// instant reads a parameter that is a date or a time. Times count to the
// millisecond, as they are answered.
func instant(r *rest.Request, name string, loc *time.Location) (time.Time, error) {
	text := r.String(name)
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return period.StartOf(day.Year(), day.Month(), day.Day(), loc), nil
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil {
		return t, rest.BadParameter(name, "%s must be a date or an RFC 3339 time, such as 2026-03-14 or 2026-03-14T09:26:53Z; a + is written %%2B.", name)
	}
	return t.Truncate(time.Millisecond), nil
}

// local writes a time as the clocks of its zone show it.
func local(t time.Time) string {
	if t.Nanosecond() != 0 {
		return t.Format("2006-01-02T15:04:05.000Z07:00")
	}
	return t.Format(time.RFC3339)
}
