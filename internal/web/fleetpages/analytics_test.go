package fleetpages_test

import (
	"bytes"
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
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
	y.agent.Page("/sandbox/fleet?subaccount=" + tokyo.ID).Want("time zone " + tokyo.TimeZone)
	d = y.agent.Page("/sandbox/fleet/analytics?days=90&subaccount=" + tokyo.ID)
	d.Want("Week of", "time zone "+tokyo.TimeZone, "¥", "Table of Revenue per vehicle and day")

	a := y.agent.Get("/sandbox/fleet/analytics/export?days=7&subaccount=" + tokyo.ID)
	if text := a.Body.String(); strings.Count(text, "\r\n") != 8 || strings.Count(text, "\n") != 8 {
		t.Errorf("lines do not end in CRLF: %q", text)
	}
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

	d.Want("Export CSV", "Export Parquet")
	a = y.agent.Get("/sandbox/fleet/analytics/export?days=7&format=parquet&subaccount=" + tokyo.ID)
	file, err := parquet.OpenFile(bytes.NewReader(a.Body.Bytes()), int64(a.Body.Len()))
	if err != nil || a.Header().Get("Content-Type") != "application/vnd.apache.parquet" {
		t.Fatal(a.Code, a.Header(), err)
	}
	got := make([]parquet.Row, 7)
	if n, err := file.RowGroups()[0].Rows().ReadRows(got); n != 7 || err != nil && err != io.EOF {
		t.Fatal(n, err)
	}
	start, err := time.Parse(time.RFC3339, rows[3][0])
	if err != nil {
		t.Fatal(err)
	}
	if row := got[2]; row[0].Int64() != start.UnixMilli() || row[3].String() != rows[3][3] || row[11].String() != "JPY" {
		t.Errorf("got %v, want %v", row, rows[3])
	}
}
