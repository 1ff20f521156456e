package fleetpages

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/chart"
)

// analyticsPage is the body of the page about the use of vehicles.
type analyticsPage struct {
	Filters filters
	Zone    string // time zone of the days
	Compare string // label of the comparison period
	Export  string // address of the CSV; empty: nothing to export
	Parquet string // likewise of the same as Parquet
	Figures []figure
	Charts  []chart.Chart
	Empty   *web.Empty // in place of the figures
}

// useSelection is the selected range and the figures of it.
type useSelection struct {
	filters  filters
	query    fleet.UseQuery
	days     int
	currency string // of the selected areas; empty: several
}

// selectUse reads the filters of the page. Days are those of the selected area, or of the
// account if there are several.
func (p *pages) selectUse(ctx context.Context, r *web.Request) (useSelection, error) {
	settings, _, err := p.Fleet.Settings(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return useSelection{}, err
	}
	subs, fields, err := p.subaccountChoices(ctx, r)
	if err != nil {
		return useSelection{}, err
	}
	s := useSelection{days: 30, filters: filters{Fields: append(web.Fields{{Name: "days", Label: "Period", Type: "select", Options: spans[:]}},
		append(fields, web.Field{Name: "type", Label: "Vehicle type", Type: "select", Options: anyType(subs)})...)}}
	s.filters.parse(r)
	if n, err := strconv.Atoi(s.filters.get("days")); err == nil {
		s.days = n
	}
	chosen := s.filters.list("subaccount")
	zone, currency := ofAreas(subs, chosen, settings.TimeZone)
	s.currency = currency
	location, err := time.LoadLocation(zone)
	if err != nil {
		return s, err
	}
	now := r.Now.In(location)
	s.query = fleet.UseQuery{
		From: period.StartOf(now.Year(), now.Month(), now.Day()-s.days+1, location), To: now, Granularity: period.Day, Location: location,
		Subaccounts: chosen, VehicleTypes: s.filters.list("type"),
	}
	if s.days > 31 {
		s.query.Granularity = period.Week
	}
	return s, nil
}

// ofAreas returns the time zone and the currency of the chosen subaccounts, nil for all: of several the
// account's time zone, and an empty currency if they differ.
func ofAreas(subs []fleet.Subaccount, chosen []string, account string) (zone, currency string) {
	for i := range subs {
		switch {
		case chosen != nil && !slices.Contains(chosen, subs[i].ID):
		case zone == "":
			zone, currency = subs[i].TimeZone, subs[i].Currency
		default:
			zone = account
			if subs[i].Currency != currency {
				currency = ""
			}
		}
	}
	return cmp.Or(zone, account), currency
}

// daysBefore returns the start of the local day that is so many days before another one's.
func daysBefore(from time.Time, days int) time.Time {
	return period.StartOf(from.Year(), from.Month(), from.Day()-days, from.Location())
}

// before is the selection of the days before.
func (s *useSelection) before() fleet.UseQuery {
	q := s.query
	q.From, q.To, q.Granularity = daysBefore(q.From, s.days), q.To.AddDate(0, 0, -s.days), period.Total
	return q
}

// use has the figures of vehicles with the rides and the revenue of the same periods.
type use struct {
	vehicles fleet.UseReport
	rides    fleet.RideReport
	revenue  fleet.RevenueReport
}

// readUse reads the figures of a range.
func (p *pages) readUse(ctx context.Context, organizationID string, q fleet.UseQuery) (u use, err error) {
	if u.vehicles, err = p.Fleet.UseAnalytics(ctx, organizationID, q); err != nil {
		return u, err
	}
	rides := fleet.AnalyticsQuery{
		From: q.From, To: q.To, Granularity: q.Granularity, Location: q.Location, Subaccounts: q.Subaccounts, VehicleTypes: q.VehicleTypes,
		TripTypes: []fleet.TripType{fleet.RiderTrip},
	}
	if u.rides, err = p.Fleet.RideAnalytics(ctx, organizationID, rides); err != nil {
		return u, err
	}
	u.revenue, err = p.Fleet.RevenueAnalytics(ctx, organizationID, rides)
	return u, err
}

// perVehicleDay is n per vehicle and 24 hours deployed, rounded; false without any.
func perVehicleDay(n int64, f *fleet.UseFigures) (int64, bool) {
	if f.DeployedSeconds == 0 {
		return 0, false
	}
	const day = 24 * 60 * 60
	return int64(math.Round(float64(n) * day / float64(f.DeployedSeconds))), true
}

// analytics shows the use of vehicles, compared with the period before.
func (p *pages) analytics(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	s, err := p.selectUse(ctx, r)
	if err != nil {
		return err
	}
	b := analyticsPage{Filters: s.filters, Zone: s.query.Location.String(), Compare: web.Count(s.days, "Compared with the day before.", "Compared with the %d days before.")}
	now, err := p.readUse(ctx, r.OrganizationID, s.query)
	var before use
	if err == nil {
		before, err = p.readUse(ctx, r.OrganizationID, s.before())
	}
	switch e, _ := errors.AsType[*problem.Error](err); {
	case e != nil && e.Code == "range_too_large":
		b.Empty = &web.Empty{Text: "Vehicles changed their states too often in this period. Choose a shorter one."}
	case err != nil:
		return err
	case now.vehicles.Totals.DeployedSeconds == 0:
		b.Empty = &web.Empty{Text: "No vehicle was deployed in this period.", Path: p.base + "/vehicles", Label: "View vehicles"}
	default:
		b.Figures, b.Charts = useFigures(&s, &now, &before), useCharts(r, &s, &now)
		query := r.URL.Query()
		query.Del("format")
		b.Export = web.Address(p.base+"/analytics/export", query)
		query.Set("format", "parquet")
		b.Parquet = web.Address(p.base+"/analytics/export", query)
	}
	return p.Render(w, r, "analytics", p.page(r, "", "Utilization", b))
}

// useFigures are the figures of a period.
func useFigures(s *useSelection, now, before *use) []figure {
	f, then := &now.vehicles.Totals, &before.vehicles.Totals
	utilization := figure{Label: "Utilization", Values: []string{percentOf(*f.UtilizationBasisPoints)}, Note: "of the time in service"}
	idle := figure{Label: "Idle time per vehicle and day", Values: []string{formatDuration(*f.IdleSecondsPerDay)}}
	if then.DeployedSeconds > 0 {
		utilization.Change = changeOf(*f.UtilizationBasisPoints, *then.UtilizationBasisPoints)
		idle.Change = changeOf(*f.IdleSecondsPerDay, *then.IdleSecondsPerDay)
		switch idle.Change.Class { // less is better
		case "up":
			idle.Change.Class = "down"
		case "down":
			idle.Change.Class = "up"
		}
	}
	vehicles := figure{Label: "Vehicles deployed", Values: []string{web.Number(f.VehicleCount)}, Change: changeOf(f.VehicleCount, then.VehicleCount)}
	rides := figure{Label: "Rides per vehicle and day", Values: []string{perDayOf(now.rides.Totals.CompletedCount, f)}, Note: web.Count(now.rides.Totals.CompletedCount, "%d completed ride", "%d completed rides")}
	return []figure{utilization, idle, revenuePerVehicle(s, now, before), vehicles, rides}
}

// revenuePerVehicle is the revenue per vehicle and day of areas with one currency.
func revenuePerVehicle(s *useSelection, now, before *use) figure {
	f := figure{Label: "Revenue per vehicle and day", Values: []string{"–"}}
	if s.currency == "" {
		f.Note = "several currencies: select a subaccount"
		return f
	}
	amount, ok := perVehicleDay(totalIn(s.currency, now.revenue.Totals), &now.vehicles.Totals)
	if !ok {
		return f
	}
	f.Values[0] = web.Money(amount, s.currency)
	if then, ok := perVehicleDay(totalIn(s.currency, before.revenue.Totals), &before.vehicles.Totals); ok {
		f.Change = changeOf(amount, then)
	}
	return f
}

// totalIn is the total of a currency.
func totalIn(currency string, list []fleet.RevenueFigures) int64 {
	for _, t := range list {
		if t.Currency == currency {
			return t.TotalAmount
		}
	}
	return 0
}

// percentOf formats basis points with one decimal: "12.5%".
func percentOf(basisPoints int64) string {
	return strconv.FormatFloat(float64(basisPoints)/100, 'f', 1, 64) + "%"
}

// perDayOf formats a count per vehicle and day with one decimal.
func perDayOf(n int64, f *fleet.UseFigures) string {
	tenths, ok := perVehicleDay(10*n, f)
	if !ok {
		return "–"
	}
	return strconv.FormatFloat(float64(tenths)/10, 'f', 1, 64)
}

// useCharts draws the figures over time, each with a table.
func useCharts(r *web.Request, s *useSelection, u *use) []chart.Chart {
	var list []chart.Chart
	add := func(title, unit string, figure func(i int, f *fleet.UseFigures) int64, format func(n int64) string) {
		var values []chart.Value
		for i := range u.vehicles.Rows {
			row := &u.vehicles.Rows[i]
			v := chart.Value{Label: r.LongDate(row.Period.Start), Short: r.ShortDate(row.Period.Start), N: figure(i, &row.UseFigures)}
			if s.query.Granularity == period.Week {
				v.Label = "Week of " + v.Label
			}
			values = append(values, v)
		}
		c := chart.New(title, unit, true, values, format)
		c.Detail = true
		list = append(list, c)
	}
	add("Utilization", "Utilization", func(_ int, f *fleet.UseFigures) int64 { return orZero(f.UtilizationBasisPoints) }, percentOf)
	add("Idle time per vehicle and day", "Idle time", func(_ int, f *fleet.UseFigures) int64 { return orZero(f.IdleSecondsPerDay) }, formatDuration)
	if s.currency != "" {
		byPeriod := s.revenueByPeriod(u)
		add("Revenue per vehicle and day", "Revenue", func(i int, f *fleet.UseFigures) int64 {
			amount, _ := perVehicleDay(byPeriod[i], f)
			return amount
		}, func(n int64) string { return web.Money(n, s.currency) })
	}
	return list
}

// revenueByPeriod is the revenue of each period in the currency of the selection.
func (s *useSelection) revenueByPeriod(u *use) []int64 {
	sums := make([]int64, len(u.vehicles.Rows))
	for i := range sums {
		for _, row := range u.revenue.Rows {
			if row.Period.Start.Equal(u.vehicles.Rows[i].Period.Start) && row.Currency == s.currency {
				sums[i] += row.TotalAmount
			}
		}
	}
	return sums
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// exportAnalytics sends the figures of each period as CSV, or as Parquet with format=parquet. Amounts are in
// the currency's minor unit; without a single currency they are empty.
func (p *pages) exportAnalytics(w http.ResponseWriter, r *web.Request) error {
	s, err := p.selectUse(r.Context(), r)
	if err != nil {
		return err
	}
	u, err := p.readUse(r.Context(), r.OrganizationID, s.query)
	if err != nil {
		return err
	}
	byPeriod := s.revenueByPeriod(&u)
	rows := [][]string{{
		"period_start", "period_end", "vehicle_count", "deployed_seconds", "on_trip_seconds", "reserved_seconds", "idle_seconds", "unavailable_seconds",
		"utilization_basis_points", "idle_seconds_per_vehicle_day", "completed_count", "currency", "total_amount", "total_amount_per_vehicle_day",
	}}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	optional := func(n *int64) string {
		if n == nil {
			return ""
		}
		return number(*n)
	}
	for i := range u.vehicles.Rows {
		row := &u.vehicles.Rows[i]
		revenue, perDay := "", ""
		if s.currency != "" {
			revenue = number(byPeriod[i])
			if amount, ok := perVehicleDay(byPeriod[i], &row.UseFigures); ok {
				perDay = number(amount)
			}
		}
		rows = append(rows, []string{
			row.Period.Start.Format(time.RFC3339), row.Period.End.Format(time.RFC3339), number(row.VehicleCount), number(row.DeployedSeconds), number(row.OnTripSeconds),
			number(row.ReservedSeconds), number(row.IdleSeconds), number(row.UnavailableSeconds), optional(row.UtilizationBasisPoints), optional(row.IdleSecondsPerDay),
			number(u.rides.Rows[i].CompletedCount), s.currency, revenue, perDay,
		})
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if r.URL.Query().Get("format") == "parquet" {
		file, err := parquetOf(rows)
		if err != nil {
			return err
		}
		h.Set("Content-Type", "application/vnd.apache.parquet")
		h.Set("Content-Disposition", `attachment; filename="utilization.parquet"`)
		_, _ = w.Write(file) // fails only if the client has disconnected
		return nil
	}
	h.Set("Content-Type", "text/csv; charset=utf-8; header=present")
	h.Set("Content-Disposition", `attachment; filename="utilization.csv"`)
	out := csv.NewWriter(w)
	out.UseCRLF = true
	_ = out.WriteAll(rows) // fails only if the client has disconnected
	return nil
}

// parquetOf returns a table as a Parquet file. The first row has the names of the columns.
func parquetOf(rows [][]string) ([]byte, error) {
	record := &schema.Record{Name: "utilization"}
	for _, name := range rows[0] {
		kind := schema.Integer()
		switch name {
		case "period_start", "period_end":
			kind = schema.Formatted("date-time", 40)
		case "currency":
			kind = schema.Text()
		}
		record.Members = append(record.Members, schema.Member{Name: name, Type: kind, Nullable: true})
	}
	var out bytes.Buffer
	to := schema.NewParquetWriter(&out, record)
	for _, row := range rows[1:] {
		cells := make(map[string]any, len(row))
		for i, cell := range row {
			switch name := rows[0][i]; {
			case cell == "": // null
			case name == "period_start", name == "period_end", name == "currency":
				cells[name] = cell
			default:
				cells[name] = json.Number(cell)
			}
		}
		text, err := json.Marshal(cells)
		if err == nil {
			err = to.Write(text)
		}
		if err != nil {
			return nil, fmt.Errorf("write a row of figures: %w", err)
		}
	}
	if err := to.End(); err != nil {
		return nil, fmt.Errorf("write figures: %w", err)
	}
	return out.Bytes(), nil
}
