package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// inboxPages measures the inbox for a signed-in browser: the first pages of each view, and
// their size and a ticket's with style sheets and scripts, as a first visit loads them.
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
	v := &visitor{ctx: ctx, url: p.url, cookies: cookies, assets: make(map[string]assetWeight)}
	var slowest, middle time.Duration
	var name, first string
	var heaviest weight
	for _, view := range []string{
		"", "/mine", "/unassigned", "/due", "/all", "/status/pending", "/status/closed", "/priority/urgent", "/priority/normal", "/channel/voice", "/channel/email",
	} {
		latencies, page, most, err := v.readView("/inbox" + view)
		if err != nil {
			return nil, err
		}
		if first == "" {
			first = page
		}
		heaviest = weight{max(heaviest.plain, most.plain), max(heaviest.wire, most.wire)}
		if d := quantile(latencies, 0.99); d > slowest {
			name, slowest = "/inbox"+view, d
		}
		middle = max(middle, quantile(latencies, 0.5))
	}
	m := ticketLink.FindStringSubmatch(first)
	if m == nil {
		return nil, errors.New("the inbox has no link to a ticket")
	}
	page, _, err := v.read(m[1])
	if err != nil {
		return nil, err
	}
	ticket, err := v.weigh(page)
	if err != nil {
		return nil, err
	}
	return []row{
		{fmt.Sprintf("inbox in a browser, %d tickets stored: slowest view's p99 (%s)", n, name), ms(slowest), "", "", "≤ 15 ms"},
		{"… slowest view's median", ms(middle), "", "", ""},
		{"… heaviest page with style sheet and scripts", kb(heaviest.plain), "", "", "≤ 100 KB"},
		{"… heaviest page with style sheet and scripts, compressed", kb(heaviest.wire), "", "", "≤ 40 KB"},
		{"… a ticket with style sheet and scripts", kb(ticket.plain), "", "", ""},
		{"… a ticket with style sheet and scripts, compressed", kb(ticket.wire), "", "", "≤ 40 KB"},
	}, p.stop()
}

func kb(bytes int) string { return fmt.Sprintf("%d KB", (bytes+999)/1000) }

var (
	older      = regexp.MustCompile(`href="([^"]*)" rel="next"`)
	ticketLink = regexp.MustCompile(`href="(/tickets/[0-9]+)[^"]*"`)
	asset      = regexp.MustCompile(`(?:href|src)="(/static/[^"#]*\.(?:css|js))"`)
	imports    = regexp.MustCompile(`(?:from|import) ?"\./([^"]*)"`)
)

// visitor is a signed-in browser that accepts compressed responses.
type visitor struct {
	ctx     context.Context
	url     string
	cookies []*http.Cookie
	assets  map[string]assetWeight // by path: browsers load each once
}

// part is one response: its decoded body, and its length as sent.
type part struct {
	text string
	wire int
}

// weight is a size in bytes without and with compression.
type weight struct{ plain, wire int }

// assetWeight is the size of a style sheet or module, and the paths that it imports.
type assetWeight struct {
	weight
	imports []string
}

func (v *visitor) read(path string) (part, time.Duration, error) {
	r, err := http.NewRequestWithContext(v.ctx, http.MethodGet, v.url+path, nil)
	if err != nil {
		return part{}, 0, err
	}
	r.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, c := range v.cookies {
		r.AddCookie(c)
	}
	began := time.Now()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return part{}, 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s was answered %s", path, resp.Status)
	}
	if err != nil {
		return part{}, 0, err
	}
	text, err := decoded(resp.Header.Get("Content-Encoding"), body)
	return part{string(text), len(body)}, took, err
}

// decoded returns a body without its coding.
func decoded(coding string, body []byte) ([]byte, error) {
	switch coding {
	case "":
		return body, nil
	case "gzip":
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case "zstd":
		r, err := zstd.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	return nil, fmt.Errorf("unknown content coding %q", coding)
}

// readView reads the pages of a view ten times, at most 200 in all. It returns their
// latencies, the first page, and the weights of the heaviest.
func (v *visitor) readView(path string) (latencies []time.Duration, first string, heaviest weight, err error) {
	for range 10 {
		for at := path; at != "" && len(latencies) < 200; {
			page, took, err := v.read(at)
			if err != nil {
				return nil, "", weight{}, err
			}
			latencies = append(latencies, took)
			if first == "" {
				first = page.text
			}
			w, err := v.weigh(page)
			if err != nil {
				return nil, "", weight{}, err
			}
			heaviest = weight{max(heaviest.plain, w.plain), max(heaviest.wire, w.wire)}
			at = ""
			if m := older.FindStringSubmatch(page.text); m != nil {
				at = strings.ReplaceAll(m[1], "&amp;", "&")
			}
		}
	}
	return latencies, first, heaviest, nil
}

// weigh returns the size of a page with its style sheets and all modules that it loads.
func (v *visitor) weigh(page part) (weight, error) {
	var paths []string
	for _, m := range asset.FindAllStringSubmatch(page.text, -1) {
		if !slices.Contains(paths, m[1]) {
			paths = append(paths, m[1])
		}
	}
	total := weight{len(page.text), page.wire}
	for i := 0; i < len(paths); i++ { // grows by the modules that a module imports
		a, err := v.asset(paths[i])
		if err != nil {
			return weight{}, err
		}
		total = weight{total.plain + a.plain, total.wire + a.wire}
		for _, path := range a.imports {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return total, nil
}

// asset returns a style sheet or module, which it reads once.
func (v *visitor) asset(path string) (assetWeight, error) {
	if a, ok := v.assets[path]; ok {
		return a, nil
	}
	content, _, err := v.read(path)
	if err != nil {
		return assetWeight{}, err
	}
	a := assetWeight{weight: weight{len(content.text), content.wire}}
	for _, m := range imports.FindAllStringSubmatch(content.text, -1) {
		a.imports = append(a.imports, path[:strings.LastIndex(path, "/")+1]+m[1])
	}
	v.assets[path] = a
	return a, nil
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
