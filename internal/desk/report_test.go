package desk_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// history is a ticket as the tests count it.
type history struct {
	id                  string
	number              int64
	created             time.Time
	responded, resolved time.Time // zero: not
	reopened            []time.Time
	met, breached       []time.Time
	channel, assignee   string
	tags                []string
}

// values returns the groups of a ticket.
func (h *history) values(by desk.ReportBy) []string {
	switch by {
	case desk.ByChannel:
		return []string{h.channel}
	case desk.ByAssignee:
		return []string{h.assignee}
	case desk.ByTag:
		if len(h.tags) == 0 {
			return []string{""}
		}
		return h.tags
	}
	return nil
}

// localKey names the day, week or month of a time by the local date.
func localKey(t time.Time, g period.Granularity, zone *time.Location) string {
	t = t.In(zone)
	switch g {
	case period.Week:
		year, week := t.ISOWeek()
		return fmt.Sprintf("%d-W%02d", year, week)
	case period.Month:
		return t.Format("2006-01")
	}
	return t.Format("2006-01-02")
}

// countHistory counts the tickets whose times are in a set of times, and the backlog at its end.
func countHistory(tickets []*history, within, before func(time.Time) bool) desk.ReportFigures {
	var f desk.ReportFigures
	var responses, resolutions []int64
	among := func(list []time.Time) (n int64) {
		for _, at := range list {
			if within(at) {
				n++
			}
		}
		return n
	}
	for _, h := range tickets {
		if within(h.created) {
			f.Created++
			if !h.responded.IsZero() {
				responses = append(responses, h.responded.Unix()-h.created.Unix())
			}
		}
		if !h.resolved.IsZero() && within(h.resolved) {
			f.Resolved++
			resolutions = append(resolutions, h.resolved.Unix()-h.created.Unix())
		}
		if before(h.created) && (h.resolved.IsZero() || !before(h.resolved)) {
			f.Backlog++
		}
		f.Reopened += among(h.reopened)
		f.SLAMet += among(h.met)
		f.SLABreached += among(h.breached)
	}
	f.FirstResponse, f.Resolution = describe(responses), describe(resolutions)
	return f
}

func describe(list []int64) desk.Durations {
	if len(list) == 0 {
		return desk.Durations{}
	}
	slices.Sort(list)
	n := len(list)
	d := desk.Durations{Count: int64(n)}
	if n%2 == 1 {
		d.Median = list[n/2]
	} else {
		d.Median = (list[n/2-1] + list[n/2] + 1) / 2
	}
	for i, v := range list {
		if (i+1)*10 >= n*9 {
			d.Percentile90 = v
			break
		}
	}
	return d
}

// wantReport compares the report of local dates, the last one included, with a count of the tickets.
func (f *fixture) wantReport(tickets []*history, zone *time.Location, first, last time.Time, g period.Granularity, by desk.ReportBy) {
	f.Helper()
	day := func(t time.Time, days int) time.Time {
		return time.Date(t.Year(), t.Month(), t.Day()+days, 0, 0, 0, 0, zone)
	}
	from, to := day(first, 0), day(last, 1)
	length := int(last.Sub(first)/(24*time.Hour)) + 1 // both are in UTC
	previous := day(first, -length)
	got, err := f.desk.Report(f.Context(), orgA, desk.ReportQuery{From: from, To: to, Previous: previous, Granularity: g, Location: zone, By: by})
	if err != nil {
		f.Fatal(err)
	}
	name := fmt.Sprintf("%s, %s to %s by %s and %q", zone, first.Format(time.DateOnly), last.Format(time.DateOnly), g, by)
	compare := func(what string, got, want desk.ReportFigures) {
		f.Helper()
		if got != want {
			f.Fatalf("%s, %s:\ngot  %+v\nwant %+v", name, what, got, want)
		}
	}
	date := func(t time.Time) string { return localKey(t, period.Day, zone) }
	begins, ends := first.Format(time.DateOnly), last.Format(time.DateOnly)
	inside := func(t time.Time) bool { return date(t) >= begins && date(t) <= ends }
	until := func(t time.Time) bool { return date(t) <= ends }
	compare("in all", got.Totals, countHistory(tickets, inside, until))
	earlier := date(previous)
	compare("before", got.Previous, countHistory(tickets,
		func(t time.Time) bool { return date(t) >= earlier && date(t) < begins }, func(t time.Time) bool { return date(t) < begins }))
	var keys []string
	for at := from; at.Before(to); at = day(at.Add(12*time.Hour), 1) {
		if key := localKey(at, g, zone); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if len(keys) != len(got.Periods) {
		f.Fatalf("%s: got %d periods, want %d", name, len(got.Periods), len(keys))
	}
	for i, key := range keys {
		compare(key, got.Periods[i].ReportFigures, countHistory(tickets,
			func(t time.Time) bool { return inside(t) && localKey(t, g, zone) == key },
			func(t time.Time) bool { return until(t) && localKey(t, g, zone) <= key }))
	}
	groups := make(map[string][]*history)
	for _, h := range tickets {
		for _, value := range h.values(by) {
			groups[value] = append(groups[value], h)
		}
	}
	found := 0
	for value, list := range groups {
		want := countHistory(list, inside, until)
		if want == (desk.ReportFigures{}) {
			continue
		}
		found++
		i := slices.IndexFunc(got.Groups, func(g desk.ReportGroup) bool { return g.Value == value })
		if i < 0 {
			f.Fatalf("%s: no group %q", name, value)
		}
		compare("group "+value, got.Groups[i].ReportFigures, want)
	}
	if found != len(got.Groups) {
		f.Fatalf("%s: got %d groups, want %d", name, len(got.Groups), found)
	}
}

// TestReportOfRandomHistory: each figure equals a plain count by local dates, on days with a change
// of clocks too, before and after packing, and while packed tickets change.
func TestReportOfRandomHistory(t *testing.T) {
	f := newFixture(t)
	r := rand.New(rand.NewPCG(7, 2026))
	var zones []*time.Location
	for _, name := range []string{"Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"} {
		zone, err := period.Location(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, zone)
	}
	// Around the changes of clocks in Berlin and on Lord Howe, at edges of local hours often.
	clusters := []time.Time{
		time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 4, 4, 15, 0, 0, 0, time.UTC),
		time.Date(2026, 10, 3, 15, 30, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC),
	}
	moment := func(cluster int) time.Time {
		at := clusters[cluster].Add(time.Duration(r.IntN(8*48)-4*48) * 30 * time.Minute)
		switch r.IntN(3) {
		case 0:
			return at.Add(time.Duration(r.IntN(1800)) * time.Second).Add(time.Duration(r.IntN(1_000_000)) * time.Microsecond)
		case 1:
			return at.Add(-time.Microsecond)
		}
		return at
	}
	channels, agents, tags := []string{"email", "sms", "chat"}, []string{"", graceID, heidiID}, []string{"brake", "lock", "refund"}
	const count = 5000 // more than two chunks
	var times []time.Time
	for i := range count {
		times = append(times, moment(i*len(clusters)/count))
	}
	slices.SortFunc(times, time.Time.Compare)
	var tickets []*history
	after := func(h *history) time.Time {
		return h.created.Add(time.Duration(r.Int64N(int64(72 * time.Hour)))).Truncate(time.Microsecond)
	}
	change := func(h *history) {
		h.assignee, h.tags = pick(r, agents), some(r, tags)
		h.responded, h.resolved, h.met, h.breached = time.Time{}, time.Time{}, nil, nil
		if r.IntN(3) > 0 {
			h.responded = after(h)
		}
		if r.IntN(3) > 0 {
			h.resolved = after(h)
		}
		for range r.IntN(3) {
			if at := after(h); r.IntN(2) == 0 {
				h.met = append(h.met, at)
			} else {
				h.breached = append(h.breached, at)
			}
		}
	}
	micros := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UnixMicro()
	}
	clocks := func(h *history) any {
		var list []map[string]any
		for _, at := range h.met {
			list = append(list, map[string]any{"metric": "resolution", "minutes": 60, "met": at.UnixMicro()})
		}
		for _, at := range h.breached {
			list = append(list, map[string]any{"metric": "first_response", "minutes": 60, "breached": at.UnixMicro(), "met": at.Add(time.Hour).UnixMicro()})
		}
		if list == nil {
			return nil
		}
		return db.JSON(list)
	}
	status := func(h *history) string {
		if h.resolved.IsZero() {
			return "open"
		}
		return "resolved"
	}
	ctx := context.Background()
	exec := func(tx *db.Tx, query string, args ...any) {
		if _, err := tx.Exec(ctx, query, args...); err != nil {
			t.Fatal(err)
		}
	}
	tagsOf := func(h *history) any {
		if len(h.tags) == 0 {
			return nil
		}
		return db.JSON(h.tags)
	}
	for list := range slices.Chunk(times, 500) {
		f.write("tickets", func(tx *db.Tx) error {
			for _, at := range list {
				h := &history{id: benchTicket(len(tickets)), number: int64(len(tickets) + 1), created: at, channel: pick(r, channels)}
				change(h)
				tickets = append(tickets, h)
				exec(tx, `INSERT INTO tickets (id, organization_id, number, subject, status, priority, channel, customer_id, created_at, updated_at,
					assignee_id, tags, first_responded_at, resolved_at, sla) VALUES ($1, $2, $3, '', $4, 'normal', $5, '', $6, $6, $7, $8, $9, $10, $11)`,
					h.id, orgA, h.number, status(h), h.channel, h.created.UnixMicro(), db.Text(h.assignee), tagsOf(h), micros(h.responded), micros(h.resolved), clocks(h))
			}
			return nil
		})
	}
	// A stranger's tickets count nowhere.
	f.write("numbers", func(tx *db.Tx) error {
		exec(tx, "INSERT INTO ticket_numbers (organization_id, last) VALUES ($1, $2)", orgA, count)
		exec(tx, `INSERT INTO tickets (id, organization_id, number, subject, status, priority, channel, customer_id, created_at, updated_at)
			VALUES ('stranger', $1, 1, '', 'open', 'normal', 'email', '', $2, $2)`, orgB, times[count/2].UnixMicro())
		return nil
	})
	write := func(h *history, status string, at time.Time) {
		f.write("change", func(tx *db.Tx) error {
			exec(tx, "UPDATE tickets SET status = $2, assignee_id = $3, tags = $4, first_responded_at = $5, resolved_at = $6, sla = $7, updated_at = $8 WHERE id = $1",
				h.id, status, db.Text(h.assignee), tagsOf(h), micros(h.responded), micros(h.resolved), clocks(h), at.UnixMicro())
			return nil
		})
	}
	check := func(what string) {
		t.Helper()
		bys := []desk.ReportBy{"", desk.ByChannel, desk.ByTag, desk.ByAssignee}
		for i, zone := range zones {
			for j, cluster := range clusters {
				first := cluster.Truncate(24*time.Hour).AddDate(0, 0, -r.IntN(5))
				last := first.AddDate(0, 0, r.IntN(12))
				g := []period.Granularity{period.Day, period.Day, period.Week, period.Month}[r.IntN(4)]
				f.wantReport(tickets, zone, first, last, g, bys[(i+j)%len(bys)])
			}
		}
		if t.Failed() {
			t.Fatal(what)
		}
	}
	changes := func(n int) {
		for range n {
			i := r.IntN(len(tickets))
			h := tickets[i]
			switch r.IntN(4) {
			case 0: // deletion
				f.write("deletion", func(tx *db.Tx) error { exec(tx, "DELETE FROM tickets WHERE id = $1", h.id); return nil })
				tickets = slices.Delete(tickets, i, i+1)
			case 1: // reopening
				write(h, "closed", h.created)
				at := after(h)
				h.resolved = time.Time{}
				h.reopened = append(h.reopened, at)
				write(h, "open", at)
			default:
				change(h)
				was := "open"
				if err := f.db.QueryRow(ctx, "SELECT status FROM tickets WHERE id = $1", h.id).Scan(&was); err != nil {
					t.Fatal(err)
				}
				write(h, was, h.created)
			}
		}
	}
	pack := func() {
		t.Helper()
		if err := f.desk.PackReports(ctx); err != nil {
			t.Fatal(err)
		}
	}
	check("read from tickets")
	pack()
	if n := f.count("report_chunks"); n != 2 {
		t.Fatalf("%d chunks, want 2", n)
	}
	check("packed")
	changes(200)
	check("packed, then changed")
	f.desk.PackAll()
	pack()
	if n := f.count("report_changes"); n != 0 {
		t.Fatalf("%d changes left", n)
	}
	check("packed again")
	for range 3 { // packing while changes go on
		changes(20)
		check("changed")
		pack()
		check("packed")
	}
}

// TestReportFollowsTheRules: figures of tickets that change by the rules of the helpdesk.
func TestReportFollowsTheRules(t *testing.T) {
	f := newFixture(t)
	f.desk.PackAll()
	f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 60, ResolutionMinutes: 120})
	var ids []string
	for i := range 12 {
		ids = append(ids, f.intake(text(fmt.Sprintf("+49151000000%02d", i), "The brake squeaks")).TicketID)
	}
	reopened := 0
	f.setStatus(ids[0], desk.StatusResolved)
	f.setStatus(ids[1], desk.StatusClosed)
	f.setStatus(ids[1], desk.StatusOpen) // reopened by an agent
	f.setStatus(ids[2], desk.StatusResolved)
	f.intake(text("+4915100000002", "It still does")) // and by the customer
	reopened += 2
	for i, id := range ids[3:6] {
		if _, err := f.update(orgA, id, desk.Update{AssigneeID: new(graceID), Tags: &[]string{"brake", []string{"lock", "refund", "map"}[i]}}); err != nil {
			t.Fatal(err)
		}
	}
	f.intake(answer("+4915100000006", "On our way"))
	if _, err := f.merge(orgA, ids[7], ids[8]); err != nil {
		t.Fatal(err)
	}
	if _, err := f.merge(orgA, ids[9], ids[8]); err != nil {
		t.Fatal(err)
	}
	if _, err := f.unmerge(orgA, ids[9]); err != nil { // no reopening
		t.Fatal(err)
	}
	f.delete(ids[10])
	now := f.db.Now()
	today := now.UTC().Truncate(24 * time.Hour)
	for _, by := range []desk.ReportBy{desk.ByTag, desk.ByAssignee, desk.ByChannel} {
		list, _, err := f.desk.FindTickets(t.Context(), f.db, orgA, desk.TicketQuery{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var tickets []*history
		for _, k := range list {
			h := &history{created: k.CreatedAt, responded: k.FirstRespondedAt, resolved: k.ResolvedAt, channel: k.Channel, assignee: k.AssigneeID, tags: k.Tags}
			for _, s := range k.SLA {
				if s.State == desk.SLAMet {
					h.met = append(h.met, s.MetAt)
				}
			}
			tickets = append(tickets, h)
		}
		if len(tickets) != 11 {
			t.Fatalf("%d tickets, want 11", len(tickets))
		}
		tickets[0].reopened = slices.Repeat([]time.Time{now}, reopened)
		got, err := f.desk.Report(t.Context(), orgA, desk.ReportQuery{From: today, To: today.AddDate(0, 0, 2), Granularity: period.Total, Location: time.UTC, By: by})
		if err != nil {
			t.Fatal(err)
		}
		all := func(time.Time) bool { return true }
		if want := countHistory(tickets, all, all); got.Totals != want {
			t.Errorf("by %s:\ngot  %+v\nwant %+v", by, got.Totals, want)
		}
		if got.Totals.SLAMet == 0 || got.Totals.FirstResponse.Count != 1 || got.Totals.Created != 11 {
			t.Errorf("by %s: %+v", by, got.Totals)
		}
	}
	if n := f.count("ticket_reopenings"); n != reopened {
		t.Errorf("%d reopenings, want %d", n, reopened)
	}
	f.delete(ids[1])
	if n := f.count("ticket_reopenings"); n != reopened-1 {
		t.Errorf("%d reopenings after a deletion, want %d", n, reopened-1)
	}
}

// TestPackingBesideChanges: nothing that changes while it is packed is missed.
func TestPackingBesideChanges(t *testing.T) {
	f := newFixture(t)
	f.desk.PackAll()
	const tickets = 5000
	f.fillReports(tickets)
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 3))
			for range 150 {
				number := 2*r.IntN(tickets/2) + w // each ticket has one writer
				err := f.db.Write(context.Background(), func(tx *db.Tx) error {
					_, err := tx.Exec(context.Background(), "UPDATE tickets SET assignee_id = $2, first_responded_at = NULL WHERE id = $1", fmt.Sprint("ticket-", number), fmt.Sprint("writer-", r.IntN(4)))
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for busy := true; busy; {
		select {
		case <-done:
			busy = false
		default:
		}
		if err := f.desk.PackReports(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.count("report_changes"); n != 0 {
		t.Errorf("%d changes left", n)
	}
	report, err := f.desk.Report(t.Context(), orgA, desk.ReportQuery{
		From: benchStart, To: benchStart.AddDate(1, 0, 0), Granularity: period.Total, Location: time.UTC, By: desk.ByAssignee,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int64)
	for _, g := range report.Groups {
		got[g.Value] = g.Created*10_000 + g.FirstResponse.Count
	}
	rows, err := f.db.Query(t.Context(), "SELECT coalesce(assignee_id, ''), count(*) * 10000 + count(first_responded_at) FROM tickets GROUP BY 1")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	want := make(map[string]int64)
	for rows.Next() {
		var assignee string
		var n int64
		if err := rows.Scan(&assignee, &n); err != nil {
			t.Fatal(err)
		}
		want[assignee] = n
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReportRefuses(t *testing.T) {
	f := newFixture(t)
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, q := range []desk.ReportQuery{
		{From: from, To: from},
		{From: from, To: from.AddDate(20, 0, 0)},
		{From: from, To: from.AddDate(0, 0, 1), Previous: from},
		{From: from, To: from.AddDate(0, 0, 1), By: "status"},
		{From: from.Add(1), To: from.AddDate(0, 0, 1)},
		{From: from, To: from.AddDate(0, 0, 1), Granularity: "minute"},
	} {
		q.Granularity, q.Location = cmp.Or(q.Granularity, period.Day), time.UTC
		if _, err := f.desk.Report(t.Context(), orgA, q); problem.Of(err) != problem.Invalid {
			b, _ := json.Marshal(q.To)
			t.Errorf("%s to %s by %q: got %v, want invalid", q.From, b, q.By, err)
		}
	}
}

// fillReports creates tickets of which reports have all fields: a million in a year.
func (f *fixture) fillReports(tickets int) {
	f.Helper()
	const batch = 50_000
	for n := 0; n < tickets; n += batch {
		f.write("tickets", func(tx *db.Tx) error {
			_, err := tx.Exec(context.Background(), `INSERT INTO tickets (id, organization_id, number, subject, status, priority, channel, customer_id, assignee_id, tags,
					created_at, updated_at, first_responded_at, resolved_at)
				WITH RECURSIVE n(i) AS (SELECT CAST($2 AS BIGINT) + 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST($3 AS BIGINT))
				SELECT 'ticket-' || i, $1, i, '', CASE WHEN i * 7919 % 500 = 0 THEN 'open' ELSE 'closed' END, 'normal', 'channel-' || (i * 7907 % 8), 'customer-' || (i / 5),
					CASE WHEN i % 20 > 0 THEN 'agent-' || (i * 7901 % 50) END,
					CASE WHEN i % 5 < 2 THEN '["tag-' || (i * 7883 % 20) || '","tag-' || (20 + i * 7879 % 17) || '"]' END,
					CAST($4 AS BIGINT) + i * CAST($5 AS BIGINT), CAST($4 AS BIGINT) + i * CAST($5 AS BIGINT), CAST($4 AS BIGINT) + i * CAST($5 AS BIGINT) + i * 7919 % 18000 * 1000000,
					CASE WHEN i * 7919 % 500 > 0 THEN CAST($4 AS BIGINT) + i * CAST($5 AS BIGINT) + i * 104729 % 360000 * 1000000 END FROM n`,
				orgA, int64(n), int64(min(n+batch, tickets)), benchStart.UnixMicro(), benchStep.Microseconds())
			return err
		})
	}
	f.write("numbers", func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), "INSERT INTO ticket_numbers (organization_id, last) VALUES ($1, $2)", orgA, int64(tickets))
		return err
	})
}

// BenchmarkReport prints the duration of packing KICKSTAND_BENCH_TICKETS tickets, and of reports of
// several ranges.
func BenchmarkReport(b *testing.B) {
	tickets, _ := strconv.Atoi(os.Getenv(benchTickets))
	tickets = max(tickets, 10_000)
	f := newFixture(b)
	f.fillReports(tickets)
	began := time.Now()
	if err := f.desk.PackReports(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d tickets packed in %v", tickets, time.Since(began))
	zone, err := period.Location("Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	end := benchStart.Add(time.Duration(tickets) * benchStep).In(zone)
	to := period.StartOf(end.Year(), end.Month(), end.Day()+1, zone)
	for _, days := range []int{7, 30, 90, 365} {
		for _, by := range []desk.ReportBy{desk.ByChannel, desk.ByAssignee, desk.ByTag} {
			b.Run(fmt.Sprintf("%d days by %s", days, by), func(b *testing.B) {
				q := desk.ReportQuery{From: to.AddDate(0, 0, -days), To: to, Previous: to.AddDate(0, 0, -2*days), Granularity: period.Day, Location: zone, By: by}
				used := cpu()
				for b.Loop() {
					report, err := f.desk.Report(b.Context(), orgA, q)
					if err != nil || report.Waiting > 0 || report.Totals.Created == 0 {
						b.Fatal(report.Totals, err)
					}
				}
				b.ReportMetric(float64((cpu()-used).Milliseconds())/float64(b.N), "ms-processor/op")
			})
		}
	}
}

// TestPackedFactsOfDeletedTickets: they go at the next packing, without that of other changes.
func TestPackedFactsOfDeletedTickets(t *testing.T) {
	f := newFixture(t)
	f.fillReports(3000)
	pack := func() []byte {
		t.Helper()
		if err := f.desk.PackReports(t.Context()); err != nil {
			t.Fatal(err)
		}
		var facts []byte
		if err := f.db.QueryRow(t.Context(), "SELECT facts FROM report_chunks WHERE organization_id = $1 AND first = 1", orgA).Scan(&facts); err != nil {
			t.Fatal(err)
		}
		return facts
	}
	f.exec("DELETE FROM report_changes")
	before := pack()
	f.exec("UPDATE tickets SET assignee_id = 'other' WHERE id = 'ticket-7'")
	if !bytes.Equal(pack(), before) {
		t.Error("one change is packed at once")
	}
	f.exec("DELETE FROM tickets WHERE id = 'ticket-5'")
	if n := f.count("report_changes WHERE gone"); n != 1 {
		t.Fatalf("%d deletions, want 1", n)
	}
	if bytes.Equal(pack(), before) {
		t.Error("the facts of the deleted ticket are still packed")
	}
	if n := f.count("report_changes"); n != 1 {
		t.Errorf("%d changes are left, want that of the other ticket", n)
	}
}
