package fleetpages

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/chart"
)

// overviewPage is the body of the overview.
type overviewPage struct {
	Topics  string
	Filters filters
	Zone    string // time zone of the days
	Compare string // label of the comparison period
	Figures []figure
	Charts  []chart.Chart
	Switch  string // link between tables and charts
	Tables  bool
	Use     string            // address of the analytics of vehicles
	Alerts  []vehicleAlertRow // the newest raised ones
	Needs   []attentionItem
	Empty   *web.Empty // in place of the figures while there are none
}

// figure is a key figure.
type figure struct {
	Label  string
	Values []string // one per currency
	Change change
	Note   string
}

// Many reports whether there are several values.
func (f figure) Many() bool { return len(f.Values) > 1 }

// attentionItem is a problem to look at.
type attentionItem struct {
	Icon  string
	Text  string
	Path  string
	Count string
}

// spans are the selectable periods, in days.
var spans = [...]web.Option{{Value: "7", Label: "7 days"}, {Value: "", Label: "30 days"}, {Value: "90", Label: "90 days"}, {Value: "365", Label: "A year"}}

// overview shows the fleet's figures and open problems.
func (p *pages) overview(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	settings, _, err := p.Fleet.Settings(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	subs, fields, err := p.subaccountChoices(ctx, r)
	if err != nil {
		return err
	}
	b := overviewPage{
		Topics: p.topic(fleet.RideKind) + " " + p.topic(fleet.VehicleKind) + " " + p.topic(fleet.AlertRecordKind),
		Filters: filters{Fields: append(web.Fields{{Name: "days", Label: "Period", Type: "select", Options: spans[:]}},
			append(fields, web.Field{Name: "type", Label: "Vehicle type", Type: "select", Options: anyType(subs)})...)},
	}
	b.Filters.parse(r)
	b.Zone, _ = ofAreas(subs, b.Filters.list("subaccount"), settings.TimeZone)
	zone, err := time.LoadLocation(b.Zone)
	if err != nil {
		return err
	}
	days := 30
	if n, err := strconv.Atoi(b.Filters.get("days")); err == nil {
		days = n
	}
	now := r.Now.In(zone)
	q := fleet.AnalyticsQuery{
		From: period.StartOf(now.Year(), now.Month(), now.Day()-days+1, zone), To: now, Granularity: period.Day, Location: zone,
		Subaccounts: b.Filters.list("subaccount"), VehicleTypes: b.Filters.list("type"), TripTypes: []fleet.TripType{fleet.RiderTrip},
	}
	if days > 31 {
		q.Granularity = period.Week
	}
	before := q
	before.From, before.To, before.Granularity = daysBefore(q.From, days), q.To.AddDate(0, 0, -days), period.Total
	b.Compare = web.Count(days, "Compared with the day before.", "Compared with the %d days before.")
	states, err := p.Fleet.CountStates(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	if err := p.figures(ctx, r, &b, q, before, states); err != nil {
		return err
	}
	view := "table"
	if b.Tables = r.URL.Query().Get("view") == view; b.Tables {
		view = ""
	}
	b.Switch, b.Use = with(r, "view", view), p.base+"/analytics"
	for i := range b.Charts {
		b.Charts[i].Table = b.Tables
	}
	if b.Needs, err = p.attentionItems(ctx, r, subs, settings, states); err != nil {
		return err
	}
	if b.Alerts, err = p.raisedAlerts(ctx, r); err != nil {
		return err
	}
	return p.Render(w, r, "overview", p.page(r, "", "Overview", b))
}

// figures fills in the figures of rides.
func (p *pages) figures(ctx context.Context, r *web.Request, b *overviewPage, q, before fleet.AnalyticsQuery, states map[fleet.VehicleState]int64) error {
	rides, err := p.Fleet.RideAnalytics(ctx, r.OrganizationID, q)
	if err != nil {
		return err
	}
	ridesBefore, err := p.Fleet.RideAnalytics(ctx, r.OrganizationID, before)
	if err != nil {
		return err
	}
	revenue, err := p.Fleet.RevenueAnalytics(ctx, r.OrganizationID, q)
	if err != nil {
		return err
	}
	revenueBefore, err := p.Fleet.RevenueAnalytics(ctx, r.OrganizationID, before)
	if err != nil {
		return err
	}
	total := int64(0)
	for state, n := range states {
		if state != fleet.Removed {
			total += n
		}
	}
	now, then := rides.Totals, ridesBefore.Totals
	if total == 0 && now.RideCount == 0 && then.RideCount == 0 && b.Filters.All == "" {
		b.Empty = &web.Empty{Text: "No vehicles or rides yet.", Path: p.base + "/vehicles", Label: "View vehicles"}
		return nil
	}
	ridden := figure{Label: "Vehicles ridden", Values: []string{web.Number(now.UniqueVehicles)}, Change: changeOf(now.UniqueVehicles, then.UniqueVehicles)}
	// Vehicles with rides may have been deleted.
	if now.UniqueVehicles <= total && q.Subaccounts == nil && q.VehicleTypes == nil {
		ridden.Note = web.Sprintf("%d%% of %d in the fleet", (now.UniqueVehicles*100+total/2)/max(total, 1), total)
	}
	b.Figures = []figure{
		{Label: "Rides", Values: []string{web.Number(now.RideCount)}, Change: changeOf(now.RideCount, then.RideCount), Note: web.Count(now.UniqueCustomers, "%d rider", "%d riders")},
		revenueFigure(revenue.Totals, revenueBefore.Totals), ridden, averageFigure(&now, &then),
	}
	b.Charts = charts(r, q.Granularity, rides.Rows, &revenue)
	return nil
}

// averageFigure is the average ride of a period, compared with the period before.
func averageFigure(now, before *fleet.RideFigures) figure {
	f := figure{Label: "Average ride", Values: []string{"–"}}
	if now.AverageDurationSeconds == nil {
		return f
	}
	f.Values[0] = formatDuration(*now.AverageDurationSeconds)
	if before.AverageDurationSeconds != nil {
		f.Change = changeOf(*now.AverageDurationSeconds, *before.AverageDurationSeconds)
		f.Change.Class = "" // longer is neither better nor worse
	}
	if now.AverageDistanceMeters != nil {
		f.Note = distance(*now.AverageDistanceMeters)
	}
	return f
}

// revenueFigure is the revenue of a period by currency. That of a single currency is compared
// with the period before.
func revenueFigure(now, before []fleet.RevenueFigures) figure {
	f := figure{Label: "Revenue"}
	for _, t := range now {
		f.Values = append(f.Values, web.Money(t.TotalAmount, t.Currency))
	}
	switch len(now) {
	case 0:
		f.Values = []string{"–"}
	case 1:
		f.Note = web.Money(now[0].NetAmount, now[0].Currency) + " before tax"
		for _, t := range before {
			if t.Currency == now[0].Currency {
				f.Change = changeOf(now[0].TotalAmount, t.TotalAmount)
			}
		}
	}
	return f
}

// charts draws rides, and revenue with one chart per currency.
func charts(r *web.Request, granularity period.Granularity, rides []fleet.RideRow, revenue *fleet.RevenueReport) []chart.Chart {
	at := func(of period.Period, n int64) chart.Value {
		v := chart.Value{Label: r.LongDate(of.Start), Short: r.ShortDate(of.Start), N: n}
		if granularity == period.Week {
			v.Label = "Week of " + v.Label
		}
		return v
	}
	var counts []chart.Value
	for _, row := range rides {
		counts = append(counts, at(row.Period, row.RideCount))
	}
	list := []chart.Chart{chart.New("Rides", "Rides", false, counts, web.Number)}
	for _, t := range revenue.Totals {
		var amounts []chart.Value
		for _, row := range revenue.Rows {
			if row.Currency == t.Currency {
				amounts = append(amounts, at(row.Period, row.TotalAmount))
			}
		}
		title := "Revenue"
		if len(revenue.Totals) > 1 {
			title += " in " + t.Currency
		}
		list = append(list, chart.New(title, title, true, amounts, func(n int64) string { return web.Money(n, t.Currency) }))
	}
	return list
}

// attentionItems lists problems of the whole fleet.
func (p *pages) attentionItems(ctx context.Context, r *web.Request, subs []fleet.Subaccount, settings fleet.Settings, states map[fleet.VehicleState]int64) ([]attentionItem, error) {
	var list []attentionItem
	add := func(icon, text, path string, query url.Values, count string) {
		list = append(list, attentionItem{icon, text, web.Address(p.base+path, query), count})
	}
	for _, s := range subs {
		for _, a := range s.Alerts {
			if !a.StartsAt.Std().After(r.Now) && (a.EndsAt.Std().IsZero() || a.EndsAt.Std().After(r.Now)) {
				add("info", s.Name+": "+a.Summary, "/subaccounts/"+s.ID, nil, "")
			}
		}
	}
	for _, s := range []struct {
		state      fleet.VehicleState
		icon       string
		one, other string
	}{
		{fleet.Missing, "alert", "%d vehicle missing", "%d vehicles missing"},
		{fleet.NonContactable, "plug", "%d vehicle out of contact", "%d vehicles out of contact"},
		{fleet.NonOperational, "pause", "%d vehicle out of service", "%d vehicles out of service"},
	} {
		if n := states[s.state]; n > 0 {
			add(s.icon, web.Count(n, s.one, s.other), "/vehicles", url.Values{"state": {string(s.state)}}, "")
		}
	}
	low, err := p.countUpTo(ctx, func(ctx context.Context) ([]fleet.Record, *keyset.Cursor, error) {
		return p.Fleet.ListVehicles(ctx, p.DB, r.OrganizationID, fleet.VehicleQuery{
			State: []fleet.VehicleState{fleet.Available}, BatteryPercent: fleet.Integers{High: new(settings.BatteryReadyPercent)},
			Sort: keyset.Sort{Field: "battery_percent"}, Limit: 100,
		})
	})
	if err != nil {
		return nil, err
	}
	if low != "" {
		add("battery", web.Sprintf("%s available with %d%% battery or less", low, settings.BatteryReadyPercent), "/vehicles", url.Values{"state": {string(fleet.Available)}, "battery": {strconv.FormatInt(settings.BatteryReadyPercent, 10)}}, "")
	}
	day := r.Now.Add(-24 * time.Hour)
	due, err := p.countUpTo(ctx, func(ctx context.Context) ([]fleet.Record, *keyset.Cursor, error) {
		return p.Fleet.ListRides(ctx, p.DB, r.OrganizationID, fleet.RideQuery{
			PaymentStatus: []string{"due"}, EndedAt: period.Range{High: &day}, Limit: 100,
		})
	})
	if err != nil {
		return nil, err
	}
	if due != "" {
		add("card", "Rides with a payment overdue by more than a day", "/rides", url.Values{"payment": {"due"}}, due)
	}
	return list, nil
}

// countUpTo formats the number of records of a list up to one page: "3", "more than
// 100"; empty for none.
func (p *pages) countUpTo(ctx context.Context, find func(ctx context.Context) ([]fleet.Record, *keyset.Cursor, error)) (string, error) {
	docs, next, err := find(ctx)
	switch {
	case err != nil || len(docs) == 0:
		return "", err
	case next != nil:
		return "More than " + strconv.Itoa(len(docs)), nil
	}
	return strconv.Itoa(len(docs)), nil
}

// change compares a figure with the previous period.
type change struct {
	Text  string
	Class string // "up", "down" or empty
}

func changeOf(now, before int64) change {
	switch {
	case before == 0 && now == 0:
		return change{Text: "no change"}
	case before == 0:
		return change{"from zero", "up"}
	}
	percent := int64(math.Round(float64(now-before) / math.Abs(float64(before)) * 100))
	switch {
	case percent > 0:
		return change{"↑ " + web.Number(percent) + "%", "up"}
	case percent < 0:
		return change{"↓ " + web.Number(-percent) + "%", "down"}
	}
	return change{Text: "no change"}
}
