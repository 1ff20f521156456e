package desk_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

func TestTicketAnalytics(t *testing.T) {
	w := newWorld(newFixture(t))
	berlin, err := period.Location("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	start := period.StartOf(2026, time.March, 28, berlin)
	w.write(func(tx *db.Tx) {
		for i, x := range []struct {
			status, channel   string
			hours             float64 // from the start
			respond, resolved float64 // hours later; 0: never
		}{
			{"open", "sms", -1, 0, 0},        // before
			{"resolved", "sms", -1, 1, 2},    // created before, resolved on the first day
			{"closed", "sms", 0, 1, 24},      // on the second
			{"closed", "email", 23.9, 2, 1},  // on the second too
			{"open", "email", 24, 4, 0},      // the first instant of the second
			{"open", "email", 46.9, 0.5, 0},  // the last hour of 23
			{"pending", "email", 47, 0.5, 0}, // after
		} {
			at := start.Add(time.Duration(x.hours * float64(time.Hour)))
			later := func(h float64) any {
				if h == 0 {
					return nil
				}
				return at.Add(time.Duration(h * float64(time.Hour))).UnixMicro()
			}
			id := uuid.Must(uuid.NewV7()).String()
			w.exec(tx, `INSERT INTO tickets (id, organization_id, number, subject, status, priority, channel, customer_id, created_at, updated_at, first_responded_at, resolved_at)
				VALUES ($1, $2, $3, '', $4, 'normal', $5, $6, $7, $7, $8, $9)`,
				id, w.org, i+1, x.status, x.channel, w.customers[0], at.UnixMicro(), later(x.respond), later(x.resolved))
			if i == 2 || i == 6 {
				w.exec(tx, "INSERT INTO sla_breaches (event_id, organization_id, ticket_id, breached_at) VALUES ($1, $2, $3, $4)",
					uuid.Must(uuid.NewV7()).String(), w.org, id, at.Add(30*time.Minute).UnixMicro())
			}
		}
	})
	to := start.Add(47 * time.Hour)
	get := func(g period.Granularity, groupBy ...string) string {
		t.Helper()
		a, err := w.desk.TicketAnalytics(t.Context(), w.db, w.org, desk.AnalyticsQuery{From: start, To: to, Granularity: g, Location: berlin, GroupBy: groupBy})
		if err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		for _, row := range a.Rows {
			lines.WriteString(row.Period.Start.Format("2 15:04 "))
			b, err := json.Marshal([]any{row.Group, figures(row.TicketFigures)})
			if err != nil {
				t.Fatal(err)
			}
			lines.WriteString(string(b) + "\n")
		}
		b, err := json.Marshal(figures(a.Totals))
		if err != nil {
			t.Fatal(err)
		}
		return lines.String() + string(b)
	}
	// created, resolved, responses, breached; average and median of the first
	// response and of the resolution, in minutes
	const day = `28 00:00 [null,[2,1,2,1,90,90,120,120]]
29 00:00 [null,[2,2,2,0,135,135,750,750]]
[4,3,4,1,113,90,540,120]`
	if got := get(period.Day); got != day {
		t.Errorf("by day:\n%s\nwant\n%s", got, day)
	}
	const total = `28 00:00 [["email","closed"],[1,1,1,0,120,120,60,60]]
28 00:00 [["email","open"],[2,0,2,0,135,135,null,null]]
28 00:00 [["sms","closed"],[1,1,1,1,60,60,1440,1440]]
28 00:00 [["sms","resolved"],[0,1,0,0,null,null,120,120]]
[4,3,4,1,113,90,540,120]`
	if got := get(period.Total, "channel", "status"); got != total {
		t.Errorf("in all, by channel and status:\n%s\nwant\n%s", got, total)
	}
	hours, err := w.desk.TicketAnalytics(t.Context(), w.db, w.org, desk.AnalyticsQuery{From: start, To: to, Granularity: period.Hour, Location: berlin})
	if err != nil || len(hours.Rows) != 47 {
		t.Errorf("by hour: %d rows, %v, want 47", len(hours.Rows), err)
	}
	for _, c := range []struct {
		to      time.Time
		g       period.Granularity
		groupBy []string
	}{
		{start, period.Day, nil}, {start.AddDate(20, 0, 0), period.Day, nil}, {to, "minute", nil},
		{to, period.Day, []string{"customer_id"}}, {to, period.Day, []string{"status", "status"}}, {to, period.Day, []string{"status", "priority", "channel"}},
	} {
		if _, err := w.desk.TicketAnalytics(t.Context(), w.db, w.org, desk.AnalyticsQuery{From: start, To: c.to, Granularity: c.g, Location: berlin, GroupBy: c.groupBy}); problem.Of(err) != problem.Invalid {
			t.Errorf("%+v: got %v, want invalid", c, err)
		}
	}
}

func figures(f desk.TicketFigures) []*int64 {
	minutes := func(seconds *int64) *int64 {
		if seconds == nil {
			return nil
		}
		return new((*seconds + 30) / 60)
	}
	return []*int64{
		&f.CreatedCount, &f.ResolvedCount, &f.FirstResponseCount, &f.SLABreachedCount,
		minutes(f.AverageFirstResponseSeconds), minutes(f.MedianFirstResponseSeconds),
		minutes(f.AverageResolutionSeconds), minutes(f.MedianResolutionSeconds),
	}
}
