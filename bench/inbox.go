package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// inboxPages measures the inbox for a signed-in browser: the first pages of each view,
// and their size with style sheet and scripts.
func inboxPages(ctx context.Context, b *bench) ([]row, error) {
	n := b.scale(1_000_000)
	if b.short {
		n = 2_000
	}
	p, err := b.open(ctx, filepath.Join(b.folder(), "inbox"), false)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if has, err := count(ctx, p.DB, "SELECT count(*) FROM ticket_reads"); err != nil {
		return nil, err
	} else if has == 0 {
		if err := p.fillInbox(ctx, n, false); err != nil {
			return nil, err
		}
	}
	cookies, err := p.call(ctx, http.DefaultClient, http.MethodPost, "auth.signInWithPassword", nil,
		`{"json":{"email":"first@example.com","password":"`+benchPassword+`"}}`)
	if err != nil {
		return nil, err
	}
	read := func(path string) (string, time.Duration, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
		if err != nil {
			return "", 0, err
		}
		for _, c := range cookies {
			r.AddCookie(c)
		}
		began := time.Now()
		body, _, err := exchange(http.DefaultClient, r)
		return string(body), time.Since(began), err
	}
	var slowest, middle time.Duration
	var name string
	heaviest := 0
	for _, view := range []string{
		"", "/mine", "/unassigned", "/due", "/all", "/status/pending", "/status/closed", "/priority/urgent", "/priority/normal", "/channel/voice", "/channel/email",
	} {
		latencies, weight, err := p.readView("/inbox"+view, read)
		if err != nil {
			return nil, err
		}
		heaviest = max(heaviest, weight)
		if d := quantile(latencies, 0.99); d > slowest {
			name, slowest = "/inbox"+view, d
		}
		middle = max(middle, quantile(latencies, 0.5))
	}
	return []row{
		{fmt.Sprintf("inbox in a browser, %d tickets stored: slowest view's p99 (%s)", n, name), ms(slowest), "", "", "≤ 30 ms"},
		{"… slowest view's median", ms(middle), "", "", ""},
		{"… heaviest page with style sheet and scripts", fmt.Sprintf("%d KB", (heaviest+999)/1000), "", "", "≤ 100 KB"},
	}, p.stop()
}

var (
	older   = regexp.MustCompile(`href="([^"]*)" rel="next"`)
	asset   = regexp.MustCompile(`(?:href|src)="(/static/[^"#]*\.(?:css|js))"`)
	imports = regexp.MustCompile(`(?:from|import) "\./([^"]*)"`)
)

// readView reads the pages of a view ten times, at most 200 in all, and returns their latencies
// and the weight of the heaviest.
func (p *program) readView(first string, read func(path string) (string, time.Duration, error)) (latencies []time.Duration, heaviest int, err error) {
	for range 10 {
		for path := first; path != "" && len(latencies) < 200; {
			page, took, err := read(path)
			if err != nil {
				return nil, 0, fmt.Errorf("%s: %w", path, err)
			}
			latencies = append(latencies, took)
			weight, err := p.weight(page, read)
			if err != nil {
				return nil, 0, err
			}
			heaviest = max(heaviest, weight)
			path = ""
			if m := older.FindStringSubmatch(page); m != nil {
				path = strings.ReplaceAll(m[1], "&amp;", "&")
			}
		}
	}
	return latencies, heaviest, nil
}

// weight returns the size of a page in bytes, with its style sheet and all modules that
// it loads.
func (p *program) weight(page string, read func(path string) (string, time.Duration, error)) (int, error) {
	var paths []string
	for _, m := range asset.FindAllStringSubmatch(page, -1) {
		paths = append(paths, m[1])
	}
	total := len(page)
	for i := 0; i < len(paths); i++ {
		content, ok := p.assets[paths[i]]
		if !ok {
			var err error
			if content, _, err = read(paths[i]); err != nil {
				return 0, err
			}
			if p.assets == nil {
				p.assets = make(map[string]string)
			}
			p.assets[paths[i]] = content
		}
		total += len(content)
		for _, m := range imports.FindAllStringSubmatch(content, -1) {
			if at := paths[i][:strings.LastIndex(paths[i], "/")+1] + m[1]; !slices.Contains(paths, at) {
				paths = append(paths, at)
			}
		}
	}
	return total, nil
}

// fillInbox writes n tickets with a message each, half of them read by the agent, with
// SLA targets for open ones, every ninth unassigned. See fillTickets for searched.
func (p *program) fillInbox(ctx context.Context, n int, searched bool) error {
	if _, err := p.createPeople(ctx, 20); err != nil {
		return err
	}
	if err := p.fillTickets(ctx, n, searched); err != nil {
		return err
	}
	const batch = 20_000
	for first := 1; first <= n; first += batch {
		if err := p.DB.Write(ctx, func(tx *db.Tx) error {
			for _, statement := range []string{
				`INSERT INTO messages (ticket_id, id, conversation_id, direction, author_type, author_id, author_name, channel, kind, body, placed_by, created_at)
					SELECT id, 'm' || substr(id, 2), '', 'inbound', 'customer', customer_id, 'Customer', channel, 'reply',
						'My scooter does not unlock, although the app says that it did. I have tried three times by now, and the ride is running. ' || number, 'new_ticket', created_at
					FROM tickets WHERE organization_id = $1 AND number >= $2 AND number <= $3`,
				`INSERT INTO ticket_reads (ticket_id, user_id, read_at) SELECT id, (SELECT id FROM users WHERE email_key = 'first@example.com'), updated_at
					FROM tickets WHERE organization_id = $1 AND number >= $2 AND number <= $3 AND number % 2 = 0`,
				`UPDATE tickets SET due_at = created_at + 100000000000,
						sla = '[{"metric":"resolution","policy":"none","minutes":1666,"since":' || created_at || ',"due":' || (created_at + 100000000000) || '}]'
					WHERE organization_id = $1 AND number >= $2 AND number <= $3 AND status = 'open'`,
				`UPDATE tickets SET assignee_id = CASE WHEN number % 9 = 0 THEN NULL ELSE (SELECT id FROM users WHERE email_key = 'first@example.com') END
					WHERE organization_id = $1 AND number >= $2 AND number <= $3 AND number % 9 < 2`,
			} {
				if _, err := tx.Exec(ctx, statement, p.org, int64(first), int64(first+batch-1)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
