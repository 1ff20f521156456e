package deskapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
)

func TestTicketAnalytics(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"one", "two"} {
		r.ticket(name, name+"@c.example")
	}
	send(t, r.Client, "PUT", "/tickets/"+r.ticket("three", "three@c.example").text("id"), `{"priority": "urgent", "status": "resolved"}`, 200)
	now := time.Now().UTC()
	from, to := now.Add(-24*time.Hour).Format(time.DateOnly), now.Add(24*time.Hour).Format(time.DateOnly)

	got := r.get("/analytics/tickets" + resttest.Query("from", from, "to", to))
	if got["object"] != "analytics.tickets" || got["timezone"] != "UTC" || got["granularity"] != "day" || got["from"] != from+"T00:00:00.000Z" || jsonOf(t, got["group_by"]) != "[]" {
		t.Errorf("got %v", got)
	}
	rows := got.list("data")
	totals := fields(got["totals"].(map[string]any))
	if len(rows) != 2 || rows[0]["created_count"] != 0.0 || rows[1]["created_count"] != 3.0 || rows[1]["resolved_count"] != 1.0 || jsonOf(t, rows[1]["group"]) != "{}" ||
		totals["created_count"] != 3.0 || totals["resolved_count"] != 1.0 || totals["average_first_response_seconds"] != nil {
		t.Errorf("the rows are %v, in all %v", rows, totals)
	}
	query := resttest.Query("from", from, "to", to, "granularity", "total", "group_by", "status,assignee_id")
	rows = r.get("/analytics/tickets" + query).list("data")
	if len(rows) != 2 || jsonOf(t, rows[0]["group"]) != `{"assignee_id":null,"status":"open"}` || rows[0]["created_count"] != 2.0 || jsonOf(t, rows[1]["group"]) != `{"assignee_id":null,"status":"resolved"}` {
		t.Errorf("grouped: %v", rows)
	}
	csv := strings.Split(r.Get("/analytics/tickets"+query, "Accept: text/csv").Body, "\r\n")
	want := from + "T00:00:00Z," + to + "T00:00:00Z,,,,open,2,0,0,0,,,,"
	if !strings.HasPrefix(csv[0], "period_start,period_end,group.assignee_id,group.channel,group.priority,group.status,created_count,") || len(csv) != 4 || csv[1] != want {
		t.Errorf("as CSV: %q, want %q", csv, want)
	}
	if lines := r.Get("/analytics/tickets"+query, "Accept: application/x-ndjson").Body; strings.Count(lines, "\n") != 2 || !strings.HasPrefix(lines, `{"period_start":"`+from+`T00:00:00Z",`) {
		t.Errorf("as NDJSON: %q", lines)
	}

	// A day of 23 hours, in local time.
	got = r.get("/analytics/tickets" + resttest.Query("from", "2026-03-29", "to", "2026-03-30", "timezone", "Europe/Berlin", "granularity", "hour"))
	rows = got.list("data")
	if got["from"] != "2026-03-28T23:00:00.000Z" || got["to"] != "2026-03-29T22:00:00.000Z" || len(rows) != 23 ||
		rows[0]["period_start"] != "2026-03-29T00:00:00+01:00" || rows[1]["period_end"] != "2026-03-29T03:00:00+02:00" {
		t.Errorf("hours: %v", got)
	}
	got = r.get("/analytics/tickets" + resttest.Query("from", "2026-03-29T10:00:00.500+05:00", "to", "2026-03-30"))
	if rows = got.list("data"); len(rows) != 1 || rows[0]["period_start"] != "2026-03-29T05:00:00.500Z" || rows[0]["period_end"] != "2026-03-30T00:00:00Z" {
		t.Errorf("clipped: %v", got)
	}
	if rows := send(t, r.other(), "GET", "/analytics/tickets"+query, "", 200).list("data"); len(rows) != 0 {
		t.Errorf("they see %v", rows)
	}
	for _, c := range []struct {
		query    string
		code     string
		pointers []string
	}{
		{"", "invalid_parameter", []string{"from invalid_value", "to invalid_value"}},
		{resttest.Query("from", "yesterday", "to", to), "invalid_parameter", []string{"from invalid_value"}},
		{resttest.Query("from", from, "to", from), "invalid_parameter", []string{"to invalid_value"}},
		{resttest.Query("from", from, "to", to, "timezone", "Mars/Olympus"), "invalid_parameter", []string{"timezone invalid_value"}},
		{resttest.Query("from", from, "to", to, "granularity", "minute"), "invalid_parameter", []string{"granularity invalid_value"}},
		{resttest.Query("from", from, "to", to, "group_by", "subject"), "invalid_parameter", []string{"group_by invalid_value"}},
		{resttest.Query("from", from, "to", to, "group_by", "status,priority,channel"), "invalid_parameter", []string{"group_by invalid_value"}},
		{resttest.Query("from", "2025-01-01", "to", "2026-01-01", "granularity", "hour"), "range_too_large", nil},
	} {
		refused(t, c.query, r.Get("/analytics/tickets"+c.query), 400, c.code, c.pointers...)
	}
}
