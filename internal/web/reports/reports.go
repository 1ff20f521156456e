// Package reports has the dashboard page of figures about tickets: volume, backlog, first response,
// resolution and SLA targets, over time and by channel, tag or agent, and their export as CSV.
//
// All members see it. Days, weeks and months are those of the organization's time zone.
package reports

import (
	"cmp"
	"context"
	"embed"
	"encoding/csv"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/chart"
)

//go:embed all:templates
var templates embed.FS

const (
	path       = "/reports"
	exportPath = "/reports/export"
)

// Config configures [Register].
type Config struct {
	Accounts *account.Service
	Desk     *desk.Service
}

type pages struct {
	*web.Section
	Config
}

// Register adds the page to a site.
func Register(s *web.Site, c Config) {
	p := &pages{s.Section(templates, "records.css", "map.css"), c}
	p.Handle(path, web.Route{Get: p.report})
	p.Handle(exportPath, web.Route{Get: p.export})
}

const (
	maxDays   = 1100 // of a report
	maxGroups = 50   // on the page
)

// selection is the form above the figures. Its values are in the URL.
type selection struct {
	Fields web.Fields
	days   int // of the range
	query  desk.ReportQuery
}

// newSelection reads the form from the URL. Unknown values are the default ones.
func newSelection(r *web.Request) *selection {
	values := r.URL.Query()
	s := &selection{Fields: web.Fields{
		{Name: "days", Label: "Period", Type: "select", Options: []web.Option{{Value: "7", Label: "7 days"}, {Value: "", Label: "30 days"}, {Value: "90", Label: "90 days"}, {Value: "365", Label: "A year"}, {Value: "dates", Label: "From and to"}}},
		{Name: "from", Label: "From", Type: "date", Optional: true},
		{Name: "to", Label: "To", Type: "date", Optional: true},
		{Name: "per", Label: "Figures per", Type: "select", Options: []web.Option{{Value: "", Label: "Automatic"}, {Value: "day", Label: "Day"}, {Value: "week", Label: "Week"}, {Value: "month", Label: "Month"}}},
		{Name: "by", Label: "Table by", Type: "select", Options: []web.Option{{Value: "", Label: "Channel"}, {Value: "tag", Label: "Tag"}, {Value: "assignee", Label: "Agent"}}},
	}}
	for i := range s.Fields {
		f := &s.Fields[i]
		f.Value = strings.TrimSpace(values.Get(f.Name))
		if f.Type == "select" && !isOption(f) {
			f.Value = ""
		}
	}
	zone := r.Organization.Location()
	now := r.Now.In(zone)
	s.days = 30
	if n, err := strconv.Atoi(s.value("days")); err == nil {
		s.days = n
	}
	first, last := day(now, 1-s.days), day(now, 0)
	if s.value("days") == "dates" {
		first, last = s.dates(last)
	}
	s.query = desk.ReportQuery{
		From: start(first, 0, zone), To: start(last, 1, zone), Previous: start(first, -s.days, zone),
		Granularity: period.Granularity(s.value("per")), Location: zone, By: cmp.Or(desk.ReportBy(s.value("by")), desk.ByChannel),
	}
	if s.query.Granularity == "" {
		s.query.Granularity = s.finest()
	}
	return s
}

// steps are the selectable granularities, from the finest.
var steps = []period.Granularity{period.Day, period.Week, period.Month}

// finest returns the finest granularity for the page: it has about 30 periods at most, so that it
// stays small.
func (s *selection) finest() period.Granularity {
	switch {
	case s.days <= 31:
		return period.Day
	case s.days <= 217:
		return period.Week
	}
	return period.Month
}

func isOption(f *web.Field) bool {
	for _, o := range f.Options {
		if o.Value == f.Value {
			return true
		}
	}
	return false
}

func (s *selection) value(name string) string { return s.Fields.Field(name).Value }

// day returns the date of t, some days later, at midnight in UTC.
func day(t time.Time, later int) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day()+later, 0, 0, 0, 0, time.UTC)
}

// start returns the first instant of a date, some days later, in a zone.
func start(date time.Time, later int, zone *time.Location) time.Time {
	return period.StartOf(date.Year(), date.Month(), date.Day()+later, zone)
}

// dates returns the entered dates, and sets the number of days. If they are invalid, a field has the
// error, and the dates are those of the last 30 days.
func (s *selection) dates(today time.Time) (first, last time.Time) {
	read := func(name string) time.Time {
		d, err := time.Parse(time.DateOnly, s.value(name))
		if err != nil || d.Year() < 1970 || d.Year() > 9000 {
			s.Fields.Field(name).Error = "Must be a date such as 2026-11-21."
		}
		return d
	}
	first, last = read("from"), read("to")
	if len(s.Fields.Wrong()) == 0 {
		switch days := int(last.Sub(first)/(24*time.Hour)) + 1; {
		case days < 1:
			s.Fields.Field("to").Error = "Must not be before the first date."
		case days > maxDays:
			s.Fields.Field("to").Error = web.Sprintf("Must be at most %d days after the first date.", maxDays)
		default:
			s.days = days
			return first, last
		}
	}
	return day(today, 1-s.days), today
}

// reportPage is the body of the page.
type reportPage struct {
	Filters   web.Filters
	Waiting   string // the number of tickets that must be packed first; empty: none
	At        web.Time
	Zone      string
	Admin     bool
	Compare   string
	Figures   []figure
	Charts    []chart.Chart
	Switch    string // link between tables and charts
	Tables    bool
	By        string // heading of the groups
	Overlap   bool   // a ticket can be in several groups
	Groups    []groupRow
	More      string // the number of groups that are not shown; empty: none
	Periods   string // link to the export
	GroupFile string
	Empty     *web.Empty
}

// figure is a figure of the range.
type figure struct {
	Label, Value, Note string
	Change             string // against the comparison; empty: none
}

// groupRow is a row of the groups.
type groupRow struct {
	Name                                                                string
	Created, Resolved, Reopened, Backlog, Response, Resolution, Percent string
}

// report shows the figures.
func (p *pages) report(w http.ResponseWriter, r *web.Request) error {
	s := newSelection(r)
	pg := web.Page{Title: "Reports", At: path, Class: "lists"}
	b := reportPage{Filters: web.Filters{Fields: s.Fields}, Zone: s.query.Location.String(), Admin: r.Admin(), Compare: web.Count(s.days, "Compared with the day before.", "Compared with the %d days before.")}
	if len(s.Fields.Wrong()) > 0 {
		pg.Status, pg.Fields, pg.Body = http.StatusUnprocessableEntity, s.Fields, b
		return p.Render(w, r, "reports", pg)
	}
	if finest := s.finest(); slices.Index(steps, s.query.Granularity) < slices.Index(steps, finest) {
		s.query.Granularity = finest
	}
	report, err := p.Desk.Report(r.Context(), r.OrganizationID, s.query)
	if err != nil {
		return err
	}
	b.At = r.Time(report.At)
	switch {
	case report.Waiting > 0:
		b.Waiting = web.Number(report.Waiting)
	case report.Totals.Created+report.Totals.Backlog+report.Totals.Resolved+report.Previous.Created == 0:
		b.Empty = &web.Empty{Text: "No tickets in this period.", Path: "/inbox", Label: "View inbox"}
	default:
		if err := p.fill(r, &b, s, &report); err != nil {
			return err
		}
	}
	pg.Body = b
	return p.Render(w, r, "reports", pg)
}

// fill adds the figures of a report to the page.
func (p *pages) fill(r *web.Request, b *reportPage, s *selection, report *desk.Report) error {
	b.Figures = figures(&report.Totals, &report.Previous)
	b.Tables = r.URL.Query().Get("view") == "table"
	b.Charts = charts(r, report.Periods, s.query.Granularity, b.Tables)
	values := r.URL.Query()
	b.Periods, b.GroupFile = web.Address(exportPath, values), ""
	values.Set("rows", "groups")
	b.GroupFile = web.Address(exportPath, values)
	values.Del("rows")
	values.Del("view")
	if !b.Tables {
		values.Set("view", "table")
	}
	b.Switch = web.Address(path, values)
	b.By, b.Overlap = heading(s.query.By), s.query.By == desk.ByTag
	name, err := p.groupNames(r.Context(), r.OrganizationID, s.query.By)
	if err != nil {
		return err
	}
	for i, g := range report.Groups {
		if i == maxGroups {
			b.More = web.Number(int64(len(report.Groups) - maxGroups))
			break
		}
		b.Groups = append(b.Groups, groupRow{
			Name: name(g.Value), Created: web.Number(g.Created), Resolved: web.Number(g.Resolved), Reopened: web.Number(g.Reopened), Backlog: web.Number(g.Backlog),
			Response: median(g.FirstResponse), Resolution: median(g.Resolution), Percent: percentMet(&g.ReportFigures),
		})
	}
	return nil
}

// heading returns the label of a field of groups.
func heading(by desk.ReportBy) string {
	switch by {
	case desk.ByTag:
		return "Tag"
	case desk.ByAssignee:
		return "Agent"
	}
	return "Channel"
}

// groupNames returns the function of the names of groups.
func (p *pages) groupNames(ctx context.Context, organizationID string, by desk.ReportBy) (func(value string) string, error) {
	switch by {
	case desk.ByChannel:
		return web.ChannelLabel, nil
	case desk.ByTag:
		return func(tag string) string { return cmp.Or(tag, "No tag") }, nil
	}
	members, err := p.Accounts.Members(ctx, organizationID)
	if err != nil {
		return nil, err
	}
	names := map[string]string{"": "Unassigned"}
	for _, m := range members {
		names[m.ID] = cmp.Or(m.Name, m.Email)
	}
	return func(id string) string { return cmp.Or(names[id], "Former member "+id) }, nil
}

// figures returns the figures of the range, compared with those before.
func figures(now, before *desk.ReportFigures) []figure {
	return []figure{
		{Label: "New tickets", Value: web.Number(now.Created), Change: change(now.Created, before.Created)},
		{Label: "Resolved", Value: web.Number(now.Resolved), Change: change(now.Resolved, before.Resolved), Note: web.Count(now.Reopened, "%d reopening", "%d reopenings")},
		{Label: "Backlog", Value: web.Number(now.Backlog), Change: change(now.Backlog, before.Backlog), Note: "at the end"},
		{Label: "First response", Value: median(now.FirstResponse), Change: change(now.FirstResponse.Median, before.FirstResponse.Median), Note: percentile(now.FirstResponse)},
		{Label: "Resolution time", Value: median(now.Resolution), Change: change(now.Resolution.Median, before.Resolution.Median), Note: percentile(now.Resolution)},
		{Label: "SLA met", Value: percentMet(now), Note: web.Sprintf("%d met, %d breached", now.SLAMet, now.SLABreached)},
	}
}

// median formats the median of durations.
func median(d desk.Durations) string {
	if d.Count == 0 {
		return "–"
	}
	return duration(d.Median)
}

// percentile formats the 90th percentile of durations; empty without any.
func percentile(d desk.Durations) string {
	if d.Count == 0 {
		return ""
	}
	return "90% within " + duration(d.Percentile90)
}

// percentMet formats the share of SLA targets that were met.
func percentMet(f *desk.ReportFigures) string {
	n := f.SLAMet + f.SLABreached
	if n == 0 {
		return "–"
	}
	return web.Number(f.SLAMet*100/n) + "%"
}

// duration formats seconds with up to two units, below ten minutes to the second: "5 s", "44 min",
// "2 h 5 min", "6 h".
func duration(seconds int64) string {
	units := func(first int64, unit string, second int64, smaller string) string {
		if second == 0 {
			return web.Number(first) + " " + unit
		}
		return fmt.Sprintf("%s %s %d %s", web.Number(first), unit, second, smaller)
	}
	switch {
	case seconds < 60:
		return fmt.Sprintf("%d s", seconds)
	case seconds < 600:
		return units(seconds/60, "min", seconds%60, "s")
	case seconds < 3600:
		return fmt.Sprintf("%d min", seconds/60)
	case seconds < 86400:
		return units(seconds/3600, "h", seconds/60%60, "min")
	}
	return units(seconds/86400, "d", seconds/3600%24, "h")
}

// change describes a figure against that of the comparison; empty without one.
func change(now, before int64) string {
	if before == 0 {
		return ""
	}
	switch percent := int64(math.Round(float64(now-before) / float64(before) * 100)); {
	case percent >= 1000: // of a small figure
		return "↑ " + web.Number(int64(math.Round(float64(now)/float64(before)))) + "-fold"
	case percent > 0:
		return "↑ " + web.Number(percent) + "%"
	case percent < 0:
		return "↓ " + web.Number(-percent) + "%"
	}
	return "no change"
}

// charts draws the figures over time.
func charts(r *web.Request, periods []desk.ReportPeriod, g period.Granularity, tables bool) []chart.Chart {
	var list []chart.Chart
	add := func(figure func(f *desk.ReportFigures) int64, draw func(values []chart.Value) chart.Chart) {
		values := make([]chart.Value, len(periods))
		for i := range periods {
			at := periods[i].Start
			v := chart.Value{Label: r.LongDate(at), Short: r.ShortDate(at), N: figure(&periods[i].ReportFigures)}
			switch g {
			case period.Week:
				v.Label = "Week of " + v.Label
			case period.Month:
				v.Label, v.Short = at.Format("January 2006"), at.Format("Jan 2006")
			}
			values[i] = v
		}
		c := draw(values)
		c.Table = tables
		list = append(list, c)
	}
	counts := func(title, unit string, bars bool, figure func(f *desk.ReportFigures) int64) {
		add(figure, func(values []chart.Value) chart.Chart { return chart.New(title, unit, bars, values, web.Number) })
	}
	times := func(title string, figure func(f *desk.ReportFigures) int64) {
		add(figure, func(values []chart.Value) chart.Chart { return chart.NewDurations(title, "Time", values, duration) })
	}
	counts("New tickets", "Tickets", true, func(f *desk.ReportFigures) int64 { return f.Created })
	counts("Resolved tickets", "Tickets", true, func(f *desk.ReportFigures) int64 { return f.Resolved })
	counts("Backlog", "Tickets", false, func(f *desk.ReportFigures) int64 { return f.Backlog })
	times("First response, median", func(f *desk.ReportFigures) int64 { return f.FirstResponse.Median })
	times("Resolution time, median", func(f *desk.ReportFigures) int64 { return f.Resolution.Median })
	counts("SLA targets breached", "Targets", true, func(f *desk.ReportFigures) int64 { return f.SLABreached })
	return list
}

// export sends the figures as CSV: of each period or, with rows=groups, of each group. Durations are
// in seconds.
func (p *pages) export(w http.ResponseWriter, r *web.Request) error {
	s := newSelection(r)
	report, err := p.Desk.Report(r.Context(), r.OrganizationID, s.query)
	if err != nil {
		return err
	}
	if len(s.Fields.Wrong()) > 0 || report.Waiting > 0 {
		return p.report(w, r)
	}
	figures := func(f *desk.ReportFigures) []string {
		row := []string{number(f.Created), number(f.Resolved), number(f.Reopened), number(f.Backlog)}
		for _, d := range [...]desk.Durations{f.FirstResponse, f.Resolution} {
			if d.Count == 0 {
				row = append(row, "0", "", "")
			} else {
				row = append(row, number(d.Count), number(d.Median), number(d.Percentile90))
			}
		}
		return append(row, number(f.SLAMet), number(f.SLABreached))
	}
	names := []string{"created", "resolved", "reopened", "backlog", "first_response_count", "first_response_median_seconds", "first_response_p90_seconds",
		"resolution_count", "resolution_median_seconds", "resolution_p90_seconds", "sla_met", "sla_breached"}
	var rows [][]string
	if r.URL.Query().Get("rows") == "groups" {
		name, err := p.groupNames(r.Context(), r.OrganizationID, s.query.By)
		if err != nil {
			return err
		}
		rows = append(rows, append([]string{strings.ToLower(heading(s.query.By))}, names...))
		for i := range report.Groups {
			g := &report.Groups[i]
			rows = append(rows, append([]string{cell(name(g.Value))}, figures(&g.ReportFigures)...))
		}
	} else {
		rows = append(rows, append([]string{"from", "to"}, names...))
		for i := range report.Periods {
			o := &report.Periods[i]
			rows = append(rows, append([]string{o.Start.Format(time.RFC3339), o.End.Format(time.RFC3339)}, figures(&o.ReportFigures)...))
		}
	}
	h := w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8; header=present")
	h.Set("Content-Disposition", `attachment; filename="report.csv"`)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	out := csv.NewWriter(w)
	out.UseCRLF = true
	_ = out.WriteAll(rows) // fails only if the client has disconnected
	return nil
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// cell returns a text as a cell. A formula gets a leading apostrophe, so that spreadsheets do not
// evaluate it.
func cell(text string) string {
	if text != "" && strings.IndexByte("=+-@\t\r", text[0]) >= 0 {
		return "'" + text
	}
	return text
}
