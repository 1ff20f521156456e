package fleetpages_test

import (
	"encoding/csv"
	"strconv"
	"strings"
	"testing"
)

// TestAnalyticsPage looks at the figures and charts, and reads the CSV.
func TestAnalyticsPage(t *testing.T) {
	y := newYard(t)
	y.agent.Page("/fleet/analytics").Want("No vehicle was deployed")
	d := y.agent.Page("/sandbox/fleet/analytics")
	d.Want("Utilization", "Idle time per vehicle and day", "several currencies: select a subaccount", "30 days before", "Table of Utilization")
	if n := len(d.All("table")); n != 2 {
		t.Errorf("%d tables, want one of each chart", n)
	}
	if n := len(d.All("title")); n < 60 {
		t.Errorf("%d titles, want one for each value of the charts", n)
	}
	y.agent.Page("/sandbox/fleet").Want("Utilization and idle time")
	subs, err := y.sandbox.Subaccounts(t.Context(), y.sandbox.db, y.Organization.ID)
	if err != nil {
		t.Fatal(err)
	}
	tokyo := subs[0]
	for _, s := range subs {
		if s.Currency == "JPY" {
			tokyo = s
		}
	}
	d = y.agent.Page("/sandbox/fleet/analytics?days=90&subaccount=" + tokyo.ID)
	d.Want("Week of", "time zone "+tokyo.TimeZone, "¥", "Table of Revenue per vehicle and day")

	a := y.agent.Get("/sandbox/fleet/analytics/export?days=7&subaccount=" + tokyo.ID)
	rows, err := csv.NewReader(a.Body).ReadAll()
	if err != nil || a.Code != 200 || len(rows) != 8 || !strings.HasPrefix(a.Header().Get("Content-Type"), "text/csv") {
		t.Fatalf("got %d, %d rows, %v", a.Code, len(rows), err)
	}
	for _, row := range rows[1:] {
		n := make([]int64, len(row))
		for i := 2; i < 8; i++ {
			if n[i], err = strconv.ParseInt(row[i], 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		if n[3] != n[4]+n[5]+n[6]+n[7] || !strings.HasSuffix(row[0], "+09:00") || row[11] != "JPY" {
			t.Errorf("row %v", row)
		}
	}
}
