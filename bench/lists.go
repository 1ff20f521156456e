package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// listOfTickets measures pages of lists and searches with a key, from one client.
func listOfTickets(ctx context.Context, b *bench) ([]row, error) {
	n := b.scale(1_000_000)
	p, err := b.open(ctx, filepath.Join(b.folder(), "lists"), false)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if has, err := count(ctx, p.DB, "SELECT count(*) FROM search_organizations"); err != nil {
		return nil, err
	} else if has == 0 {
		if err := p.fillTickets(ctx, n, true); err != nil {
			return nil, err
		}
	}
	key, err := p.createKey(ctx, apikey.Helpdesk)
	if err != nil {
		return nil, err
	}
	var first, last int64
	if err := p.DB.QueryRow(ctx, "SELECT min(created_at), max(created_at) FROM tickets").Scan(&first, &last); err != nil {
		return nil, err
	}
	at := func(part string) string {
		f, err := strconv.ParseFloat(part[1:], 64)
		if err != nil {
			panic(err)
		}
		return time.UnixMicro(first + int64(f*float64(last-first))).UTC().Format(time.RFC3339)
	}
	measure := func(what, aim string, filters, sorts []string, times int) (row, error) {
		var slowest time.Duration
		var name string
		for _, filter := range filters {
			for _, sort := range sorts {
				latencies, err := p.pages(ctx, key, share.ReplaceAllStringFunc(filter, at)+"&sort="+sort, times)
				if err != nil {
					return row{}, fmt.Errorf("%s, %s: %w", filter, sort, err)
				}
				if d := quantile(latencies, 0.99); d > slowest {
					name, slowest = filter+" by "+sort, d
				}
			}
		}
		return row{What: fmt.Sprintf("%s of 30 tickets, %d stored: slowest p99 (%s)", what, n, name), Got: ms(slowest), Aim: aim}, nil
	}
	var rows []row
	for _, m := range []struct {
		what, aim      string
		filters, sorts []string
		times          int
	}{
		{"view", "≤ 10 ms", views, []string{"-created_at", "-updated_at"}, 5},
		{"list by any filter and sort", "≤ 100 ms", slices.Concat(views, combinations), []string{"-created_at", "created_at", "-updated_at", "updated_at", "-priority", "priority"}, 2},
		{"search", "≤ 80 ms", searches, []string{"-created_at", "created_at", "-updated_at", "updated_at", "-priority", "priority"}, 2},
	} {
		r, err := measure(m.what, m.aim, m.filters, m.sorts, m.times)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	r, err := p.searchAll(ctx, key, n)
	if err != nil {
		return nil, err
	}
	return append(rows, r), p.stop()
}

// searchAll measures searches over records of all kinds.
func (p *program) searchAll(ctx context.Context, key string, stored int) (row, error) {
	var slowest time.Duration
	var name string
	for _, text := range everywhere {
		var latencies []time.Duration
		for range 20 {
			r, err := keyedRequest(ctx, p.url, key, "/search?q="+url.QueryEscape(text))
			if err != nil {
				return row{}, err
			}
			began := time.Now()
			if _, _, err := exchange(http.DefaultClient, r); err != nil && !strings.Contains(err.Error(), "range_too_large") {
				return row{}, fmt.Errorf("search for %s: %w", text, err)
			}
			latencies = append(latencies, time.Since(began))
		}
		if d := quantile(latencies, 0.99); d > slowest {
			name, slowest = text, d
		}
	}
	return row{What: fmt.Sprintf("search over all kinds, %d tickets stored: slowest p99 (%s)", stored, name), Got: ms(slowest), Aim: "≤ 150 ms"}, nil
}

// share matches a time in a filter: @0.5 is in the middle of the times of creation.
var share = regexp.MustCompile(`@[0-9.]+`)

var (
	// views are the filters of the pages.
	views = []string{
		"", "status=open", "status=pending", "status=closed", "priority=urgent", "priority=normal", "assignee_id=agent-7", "customer_id=customer-70000",
		"channel=voice", "channel=email", "tags=tag3", "status=open&assignee_id=agent-7", "status=open&channel=voice", "status=open&priority=urgent",
	}
	combinations = []string{
		"status=open,pending", "status=open,closed", "status=closed&priority=high", "status=closed&priority=high,urgent", "priority=low,urgent",
		"channel=voice,sms", "assignee_id=agent-7,agent-8", "tags=tag3,tag4", "status=closed&tags=tag3", "status=closed&assignee_id=agent-7",
		"status=closed&channel=voice&priority=high", "channel=voice&priority=urgent", "assignee_id=agent-7&tags=tag3", "channel=voice&tags=tag3,tag4&status=closed",
		"status=open&tags=tag3", "assignee_id=agent-7&channel=voice&priority=low&status=closed",
		"created_at[gte]=@0.3&created_at[lt]=@0.31", "created_at[lt]=@0.5&status=closed", "created_at[lt]=@0.5&channel=voice&priority=high",
		"updated_at[gte]=@0.6&updated_at[lt]=@0.61", "updated_at[gte]=@0.6&priority=urgent", "updated_at[lt]=@0.5&assignee_id=agent-7",
		"created_at[lt]=@0.5&updated_at[gte]=@0.6&status=closed",
	}
	searches = []string{
		"q=scooter+", "q=w7+", "q=w71+", "q=w7+w71+", "q=scooter+w71+", "q=w7", "q=scooter+&status=open", "q=w7+&status=open", "q=w71+&assignee_id=agent-7",
		"q=scooter+&assignee_id=agent-7", "q=w7+&priority=urgent", "q=scooter+&created_at[lt]=@0.5",
	}
	// everywhere are the texts of searches over records of all kinds.
	everywhere = []string{
		"scooter", "w7 ", "w71 ", "w7 w71", "scooter w71 ", "scooter status:open", "w71 assignee:agent-7", "+4915110000000", "0000000", "customer 70000", "#70000", "nothing-of-this",
	}
)

// pages reads 20 pages of a list, or all if it ends before, so many times. A refusal of a list that
// examines too many tickets is the last page.
func (p *program) pages(ctx context.Context, key, query string, times int) ([]time.Duration, error) {
	var latencies []time.Duration
	for range times {
		cursor := ""
		for range 20 {
			r, err := keyedRequest(ctx, p.url, key, "/tickets?limit=30&"+query+cursor)
			if err != nil {
				return nil, err
			}
			began := time.Now()
			body, _, err := exchange(http.DefaultClient, r)
			latencies = append(latencies, time.Since(began))
			if err != nil && strings.Contains(err.Error(), "range_too_large") {
				break
			}
			if err != nil {
				return nil, err
			}
			var page struct {
				Next *string `json:"next_cursor"`
			}
			if err := json.Unmarshal(body, &page); err != nil {
				return nil, err
			}
			if page.Next == nil {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(*page.Next)
		}
	}
	return latencies, nil
}

// fillTickets writes n tickets into the tables, the last fiftieth of them not closed, and
// has them indexed if searched is set. Half of the subjects contain one word, one in 30
// another, and one in 300 a third.
func (p *program) fillTickets(ctx context.Context, n int, searched bool) error {
	const batch = 10_000
	start := time.Now().AddDate(-1, 0, 0).UnixMicro()
	for first := 1; first <= n; first += batch {
		if err := p.DB.Write(ctx, func(tx *db.Tx) error {
			for _, q := range []struct{ into, columns string }{
				{"tickets (id, organization_id, number, subject, status, priority, channel, customer_id, assignee_id, tags, created_at, updated_at)", `
					printf('0190c0de-%04x-7000-8000-%012x', i >> 16, i), $1, i,
					CASE WHEN i % 2 = 0 THEN 'scooter ' ELSE 'car ' END || 'w' || (i * 7919 % 30) || ' w' || (i * 7919 % 300) || ' does not unlock',
					CASE WHEN i < $4 THEN 'closed' WHEN i % 3 = 0 THEN 'pending' ELSE 'open' END,
					CASE WHEN i % 50 = 0 THEN 'urgent' WHEN i % 10 = 0 THEN 'high' WHEN i % 11 = 0 THEN 'low' ELSE 'normal' END,
					CASE WHEN i % 8 = 0 THEN 'voice' WHEN i % 3 = 0 THEN 'sms' ELSE 'email' END,
					'customer-' || (i / 5), 'agent-' || (i * 31 % 47), '["tag' || (i * 17 % 59) || '"]',
					$5 + i * 1000000, $5 + i * 1000000 + i * 7919 % 100000 * 1000000`},
				{"ticket_tags (organization_id, tag, number, ticket_id)", `$1, 'tag' || (i * 17 % 59), i, printf('0190c0de-%04x-7000-8000-%012x', i >> 16, i)`},
				{"search_pending (id, ticket_id, organization_id, number)",
					`printf('0190c0de-%04x-7000-8000-%012x', i >> 16, i), printf('0190c0de-%04x-7000-8000-%012x', i >> 16, i), $1, i`},
			} {
				if !searched && strings.HasPrefix(q.into, "search") {
					continue
				}
				if _, err := tx.Exec(ctx, "INSERT INTO "+q.into+" WITH RECURSIVE numbers(i) AS (SELECT $2 UNION ALL SELECT i + 1 FROM numbers WHERE i < $3) SELECT "+
					q.columns+" FROM numbers WHERE $4 + $5 > 0", p.org, int64(first), int64(min(first+batch-1, n)), int64(n-n/50), start); err != nil {
					return err
				}
			}
			_, err := tx.Exec(ctx, `INSERT INTO customers (id, organization_id, name, email, phone, created_at, updated_at)
				WITH RECURSIVE numbers(i) AS (SELECT $2 UNION ALL SELECT i + 1 FROM numbers WHERE i < $3)
				SELECT 'customer-' || i, $1, 'Customer ' || i, '', '', $4, $4 FROM numbers`,
				p.org, int64(first/5+min(1, first/5)), int64(min(first+batch-1, n)/5), start)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `INSERT INTO ticket_numbers (organization_id, last, last_at) VALUES ($1, $2, $3)
				ON CONFLICT (organization_id) DO UPDATE SET last = excluded.last, last_at = excluded.last_at`,
				p.org, int64(min(first+batch-1, n)), start+int64(min(first+batch-1, n))*1_000_000)
			return err
		}); err != nil {
			return err
		}
	}
	for {
		if left, err := p.Desk.Index(ctx); err != nil || left == 0 {
			return err
		}
	}
}
