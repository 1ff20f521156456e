package fleetapi_test

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
)

// TestAnalytics counts rides.
func TestAnalytics(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	for range 3 {
		send(t, p.Client, "PUT", "/rides/"+p.ride().text("id"), `{"status":"completed","distance_meters":1500}`, 200)
	}
	p.created("/rides", fields{"vehicle_id": p.vehicle().text("id"), "trip_type": "rebalance"})
	now := time.Now().UTC()
	from, to := now.Add(-time.Hour).Truncate(time.Hour), now.Add(time.Hour).Truncate(time.Hour)
	query := "?from=" + url.QueryEscape(from.Format(time.RFC3339)) + "&to=" + url.QueryEscape(to.Format(time.RFC3339)) + "&timezone=Europe/Berlin&granularity=total&group_by=vehicle_type_id"

	revenue := p.Get("/analytics/revenue" + query)
	if got, want := names(t, revenue.Body), "object from to timezone granularity group_by date_basis generated_at data totals"; !slices.Equal(got, strings.Fields(want)) {
		t.Errorf("revenue has %q, want %q", got, want)
	}
	var f struct {
		Object, From, To, TimeZone, Granularity string
		Basis                                   string   `json:"date_basis"`
		GroupBy                                 []string `json:"group_by"`
		Data                                    []fields
		Totals                                  []fields
	}
	revenue.JSON(&f)
	if f.Object != "analytics.revenue" || f.From != from.Format("2006-01-02T15:04:05.000Z") || f.TimeZone != "Europe/Berlin" || f.Granularity != "total" || f.Basis != "ended_at" || fmt.Sprint(f.GroupBy) != "[vehicle_type_id]" {
		t.Errorf("revenue says of itself %+v", f)
	}
	if len(f.Data) != 1 || len(f.Totals) != 1 || f.Totals[0]["ride_count"] != 3.0 || f.Totals[0]["currency"] != "EUR" || f.Totals[0]["unlock_amount"] != 300.0 ||
		jsonOf(t, f.Data[0]["group"]) != `{"vehicle_type_id":"`+p.scooter+`"}` {
		t.Errorf("revenue is %s", revenue.Body)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.Data[0].text("period_start"), from.In(berlin).Format(time.RFC3339); got != want {
		t.Errorf("the period starts at %s, want %s", got, want)
	}
	rides := send(t, p.Client, "GET", "/analytics/rides"+query, "", 200)
	if totals, _ := rides["totals"].(map[string]any); totals["ride_count"] != 3.0 || totals["completed_count"] != 3.0 || totals["distance_meters"] != 4500.0 || totals["unique_vehicles"] != 3.0 || totals["average_distance_meters"] != 1500.0 {
		t.Errorf("rides are %v", rides)
	}
	if other := send(t, p.Client, "GET", "/analytics/rides"+query+"&trip_type=rebalance", "", 200); other["totals"].(map[string]any)["ride_count"] != 1.0 {
		t.Errorf("other trips are %v", other)
	}
	if none := send(t, p.Client, "GET", "/analytics/rides"+query+"&subaccount_id="+p.other.ID, "", 200); len(none["data"].([]any)) != 0 {
		t.Errorf("another subaccount has %v", none)
	}
	csv := p.Get("/analytics/revenue"+query, "Accept: text/csv")
	if csv.Status != 200 || !strings.HasPrefix(csv.Body, "period_start,period_end,group.subaccount_id,") || strings.Count(csv.Body, "\r\n") != 2 {
		t.Errorf("as CSV: %d %s", csv.Status, csv.Body)
	}
	// Dates are days of the account's time zone.
	send(t, p.Client, "PUT", "/settings", `{"timezone":"Europe/Berlin"}`, 200)
	days := send(t, p.Client, "GET", "/analytics/rides?from=2026-03-29&to=2026-03-30&granularity=hour", "", 200)
	if days.text("from") != "2026-03-28T23:00:00.000Z" || days.text("timezone") != "Europe/Berlin" || days.text("date_basis") != "started_at" || len(days["data"].([]any)) != 23 {
		t.Errorf("the day that clocks go forward: %v", days)
	}
	for query, want := range map[string][2]string{
		"":                               {"invalid_parameter", "from invalid_value"},
		"?from=2026-03-29&to=2026-03-29": {"invalid_parameter", "to invalid_value"},
		"?from=2026-03-29&to=2026-02-30": {"invalid_parameter", "to invalid_value"},
		"?from=yesterday&to=2026-03-29":  {"invalid_parameter", "from invalid_value"},
		"?from=2025-01-01&to=2026-01-01&granularity=hour":                        {"range_too_large", ""},
		"?from=2026-01-01&to=2026-01-02&timezone=Mars/Olympus":                   {"invalid_parameter", "timezone invalid_value"},
		"?from=2026-01-01&to=2026-01-02&group_by=status,trip_type,subaccount_id": {"invalid_parameter", "group_by invalid_value"},
		"?from=0000-01-01&to=0000-01-02&timezone=Asia/Tokyo":                     {"invalid_parameter", "from invalid_value"},
		"?from=9999-12-31&to=9999-12-31T23:59:59Z&timezone=Pacific/Kiritimati":   {"invalid_parameter", "to invalid_value"},
		"?from=9999-12-31&to=9999-12-31T23:59:59-23:00":                          {"invalid_parameter", "to invalid_value"},
		"?from=2026-01-01&to=2026-01-02&group_by=colour":                         {"invalid_parameter", "group_by invalid_value"},
	} {
		a := p.Get("/analytics/rides" + query)
		problem := a.Problem()
		at := ""
		if len(problem.Errors) > 0 {
			at = problem.Errors[0].Parameter + " " + problem.Errors[0].Code
		}
		if a.Status != 400 || problem.Code != want[0] || at != want[1] {
			t.Errorf("%s: got %d %s %q, want %q", query, a.Status, problem.Code, at, want)
		}
	}
}

// TestReset restores a sandbox to its initial state.
func TestReset(t *testing.T) {
	r := newSandbox(t)
	p := r.sandbox.Client
	list := func(path string) string {
		t.Helper()
		a := p.Get(path, "Accept: application/x-ndjson")
		var ids []string
		for line := range strings.Lines(a.Body) {
			ids = append(ids, line[:len(`{"id":"ride_01KKNTQ7XJEVR88Y42WDNGTN4V`)-4])
		}
		return fmt.Sprint(len(ids), ids)
	}
	before := map[string]string{}
	for path, n := range map[string]int{"/vehicles": 40, "/customers": 30, "/zones": 8, "/pricing": 3, "/rides": 500, "/settings/subaccounts": 2} {
		before[path] = list(path)
		if !strings.HasPrefix(before[path], fmt.Sprint(n)+" [") {
			t.Errorf("a new sandbox has %.60s of %s, want %d", before[path], path, n)
		}
	}
	send(t, p, "PUT", "/sandbox/clock", fmt.Sprintf(`{"now":%q}`, time.Now().Add(48*time.Hour).UTC().Format(time.RFC3339)), 200)
	send(t, p, "POST", "/sandbox/reset", "", 204)
	for path, want := range before {
		got := list(path)
		if path == "/rides" { // relative to the last 90 days
			got, want = got[:3], want[:3]
		}
		if got != want {
			t.Errorf("after the reset %s is %.200s, want %.200s", path, got, want)
		}
	}
	now, err := time.Parse(time.RFC3339, send(t, p, "GET", "/sandbox/clock", "", 200).text("now"))
	if err != nil || time.Since(now).Abs() > time.Minute {
		t.Errorf("after the reset it is %v, %v", now, err)
	}
	log := send(t, p, "GET", "/settings/audit-log?action=sandbox.reset", "", 200)
	if len(log["data"].([]any)) != 1 {
		t.Errorf("the log has %v", log)
	}
}

// TestParquetExports: the Parquet files of rides and of figures have the columns and the rows of the CSV.
func TestParquetExports(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	send(t, p.Client, "PUT", "/pricing/"+p.plan.ID, `{"per_min_pricing":[]}`, 200) // however long the test takes
	send(t, p.Client, "PUT", "/rides/"+p.ride().text("id"), `{"status":"completed","distance_meters":2140}`, 200)
	p.ride(fields{"metadata": fields{"k": "v"}})
	from := time.Now().UTC().AddDate(0, 0, -1)
	query := "from=" + from.Format(time.DateOnly) + "&to=" + from.AddDate(0, 0, 3).Format(time.DateOnly)
	for _, path := range []string{"/rides?trip_type=rider", "/analytics/rides?" + query, "/analytics/revenue?" + query, "/analytics/vehicles?" + query} {
		a := p.Get(path, "Accept: application/vnd.apache.parquet")
		if a.Status != 200 || a.Header.Get("Content-Type") != "application/vnd.apache.parquet" || a.Header.Get("Content-Disposition") != `attachment; filename="export.parquet"` {
			t.Fatalf("%s was answered %d %s", path, a.Status, a.Header)
		}
		file, err := parquet.OpenFile(strings.NewReader(a.Body), int64(len(a.Body)))
		if err != nil {
			t.Fatal(path, err)
		}
		var names []string
		for _, f := range file.Schema().Fields() {
			names = append(names, f.Name())
		}
		header, rest, _ := strings.Cut(p.Get(path, "Accept: text/csv").Body, "\r\n")
		if got := strings.Join(names, ","); got != header || file.NumRows() != int64(strings.Count(rest, "\r\n")) {
			t.Errorf("%s: %d rows of %s, want those of %s\n%s", path, file.NumRows(), got, header, rest)
		}
		at := slices.Index(names, "price.total_amount")
		if at < 0 {
			continue
		}
		rows := make([]parquet.Row, 3)
		reader := file.RowGroups()[0].Rows()
		n, err := reader.ReadRows(rows)
		if n != 2 || err != nil && err != io.EOF {
			t.Fatal(n, err)
		}
		if got := fmt.Sprint(rows[0][at], rows[1][at], rows[0][slices.Index(names, "metadata")]); got != `<null> 100 {"k":"v"}` {
			t.Errorf("the rides have the totals and metadata %s", got)
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, "expanded", p.Get("/rides?expand[]=vehicle", "Accept: application/vnd.apache.parquet"), 400, "invalid_parameter")
	refused(t, "another list", p.Get("/vehicles", "Accept: application/vnd.apache.parquet"), 406, "not_acceptable")
	if a := p.Get("/vehicles", "Accept: application/vnd.apache.parquet, text/csv;q=0.5"); a.Status != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/csv") {
		t.Errorf("a list without Parquet was answered %d %s", a.Status, a.Header.Get("Content-Type"))
	}
}
