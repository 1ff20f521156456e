package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
)

// listOfTickets measures pages of lists and searches with a key, from one client.
func listOfTickets(ctx context.Context, b *bench) ([]row, error) {
	n := b.scale(300_000)
	p, key, err := b.openKeyed(ctx, "lists")
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if err := p.fillTickets(ctx, n, true); err != nil {
		return nil, err
	}
	measure := func(filters []string) (name string, slowest time.Duration, err error) {
		for _, filter := range filters {
			for _, sort := range []string{"-created_at", "created_at", "-updated_at", "updated_at", "-priority"} {
				latencies, err := p.pages(ctx, key, filter+"&sort="+sort)
				if err != nil {
					return "", 0, fmt.Errorf("%s, %s: %w", filter, sort, err)
				}
				if d := quantile(latencies, 0.99); d > slowest {
					name, slowest = filter+" by "+sort, d
				}
			}
		}
		return name, slowest, nil
	}
	list, listed, err := measure([]string{
		"status=open", "status=open,pending", "status=closed", "priority=urgent", "assignee_id=agent-7", "channel=voice",
		"tags=tag3", "status=open&assignee_id=agent-7", "status=closed&priority=high",
	})
	if err != nil {
		return nil, err
	}
	search, searched, err := measure([]string{
		"q=scooter+", "q=w7+", "q=w71+", "q=w7+w71+", "q=scooter+&status=open", "q=w7+&status=open", "q=w71+&assignee_id=agent-7",
	})
	if err != nil {
		return nil, err
	}
	return []row{
		{fmt.Sprintf("list of 30 tickets, %d stored: slowest filter's p99 (%s)", n, list), ms(listed), "", "", "≤ 10 ms"},
		{fmt.Sprintf("search for 30 tickets, %d stored: slowest words' p99 (%s)", n, search), ms(searched), "", "", "≤ 50 ms"},
	}, p.stop()
}

// pages reads 20 pages of a list, or all if it ends before, twice.
func (p *program) pages(ctx context.Context, key, query string) ([]time.Duration, error) {
	var latencies []time.Duration
	for range 2 {
		cursor := ""
		for range 20 {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+deskapi.Base+"/tickets?limit=30&"+query+cursor, nil)
			if err != nil {
				return nil, err
			}
			r.Header.Set("Authorization", "Bearer "+key)
			began := time.Now()
			body, _, err := exchange(http.DefaultClient, r)
			if err != nil {
				return nil, err
			}
			latencies = append(latencies, time.Since(began))
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
