package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver of the ceilings

	"github.com/kickstand-dev/kickstand/internal/webhook"
)

const clients = 64

// acceptSMS measures the rate of durably accepted SMS, without processing. The ceiling
// verifies and stores with plain means.
func acceptSMS(ctx context.Context, b *bench) ([]row, error) {
	n := b.scale(40000)
	bare, err := ceilingAccept(ctx, b, n)
	if err != nil {
		return nil, fmt.Errorf("ceiling: %w", err)
	}
	p, err := b.open(ctx, filepath.Join(b.dir, "accept"), false)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	took, latencies, err := post(ctx, texts(p.url, n, n/4), clients)
	if err != nil {
		return nil, err
	}
	stored, err := count(ctx, p.DB, "SELECT count(*) FROM inbound_events")
	if err != nil {
		return nil, err
	}
	if stored != n {
		return nil, fmt.Errorf("%d of %d were stored", stored, n)
	}
	r := perSecond(n, took)
	return []row{
		{"signed SMS posts accepted durably, 64 clients", rate(r), rate(bare), fmt.Sprintf("%.2f", r/bare), "≥ 0.5"},
		{"… latency p50, p99", ms(quantile(latencies, 0.5)) + ", " + ms(quantile(latencies, 0.99)), "", "", "≤ 10 ms, ≤ 60 ms"},
	}, p.stop()
}

// acceptWhileBusy measures the latency of accepting SMS while the worker of the same
// process processes a backlog.
func acceptWhileBusy(ctx context.Context, b *bench) ([]row, error) {
	backlog, n := b.scale(10000), b.scale(2000)
	data := filepath.Join(b.dir, "busy")
	p, err := b.open(ctx, data, false)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if _, _, err := post(ctx, texts(p.url, backlog, backlog), clients); err != nil {
		return nil, err
	}
	if err := p.stop(); err != nil {
		return nil, err
	}
	if p, err = b.open(ctx, data, true); err != nil {
		return nil, err
	}
	defer p.stop()
	// From other numbers, so that they do not queue behind the backlog.
	_, latencies, err := post(ctx, texts(p.url, backlog+n, backlog+n)[backlog:], busyClients)
	if err != nil {
		return nil, err
	}
	left, err := count(ctx, p.DB, "SELECT count(*) FROM jobs WHERE kind = 'inbound/sms'")
	if err != nil {
		return nil, err
	}
	if left == 0 && !b.short {
		return nil, errors.New("the worker was done before the last post")
	}
	return []row{{
		fmt.Sprintf("signed SMS posts accepted while the worker has %d to do, p50, p99", backlog),
		ms(quantile(latencies, 0.5)) + ", " + ms(quantile(latencies, 0.99)), "", "", "p99 ≤ 100 ms",
	}}, p.stop()
}

// busyClients is the number of concurrent requests of a provider to a busy server.
const busyClients = 8

// ceilingAccept is a handler with an HMAC and an insert, many per commit.
func ceilingAccept(ctx context.Context, b *bench, n int) (float64, error) {
	d, err := sql.Open("sqlite", "file:"+filepath.Join(b.dir, "ceiling.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return 0, err
	}
	defer d.Close()
	d.SetMaxOpenConns(1)
	if _, err := d.ExecContext(ctx, "CREATE TABLE raw (key TEXT PRIMARY KEY, headers TEXT, body BLOB, at BIGINT) WITHOUT ROWID"); err != nil {
		return 0, err
	}
	inserts := make(chan rawInsert, 256)
	go insertInGroups(ctx, d, inserts)
	var base string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "", http.StatusBadRequest)
			return
		}
		form, err := url.ParseQuery(string(body))
		if err != nil || !signed(base+r.RequestURI, form, r.Header.Get("X-Twilio-Signature")) {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		i := rawInsert{form.Get("MessageSid"), body, make(chan error, 1)}
		inserts <- i
		if err := <-i.done; err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	defer close(inserts)
	defer s.Close()
	base = s.URL
	took, _, err := post(ctx, texts(s.URL, n, n/4), clients)
	return perSecond(n, took), err
}

// rawInsert is a row to insert; done receives the outcome.
type rawInsert struct {
	key  string
	body []byte
	done chan error
}

// insertInGroups inserts rows until the channel is closed, up to 256 per commit.
func insertInGroups(ctx context.Context, d *sql.DB, inserts <-chan rawInsert) {
	stmt, err := d.PrepareContext(ctx, "INSERT INTO raw VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING")
	for first := range inserts {
		group := []rawInsert{first}
		for len(group) < 256 && len(inserts) > 0 {
			group = append(group, <-inserts)
		}
		var tx *sql.Tx
		if err == nil {
			tx, err = d.BeginTx(ctx, nil)
		}
		for _, i := range group {
			if err == nil {
				_, err = tx.StmtContext(ctx, stmt).ExecContext(ctx, i.key, "{}", i.body, time.Now().UnixMicro())
			}
		}
		if err == nil {
			err = tx.Commit()
		}
		for _, i := range group {
			i.done <- err
		}
	}
}

func signed(target string, form url.Values, signature string) bool {
	mac := hmac.New(sha1.New, []byte(secret))
	io.WriteString(mac, target)
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		io.WriteString(mac, name+form.Get(name))
	}
	given, err := base64.StdEncoding.DecodeString(signature)
	return err == nil && hmac.Equal(mac.Sum(nil), given)
}

// smsToTicket measures the rate at which accepted SMS become tickets, messages and events
// with one delivery each, with no tickets and, in a full run, next to many. The ceiling
// writes as many rows, many per commit.
func smsToTicket(ctx context.Context, b *bench) ([]row, error) {
	n := b.scale(20000)
	data := filepath.Join(b.dir, "tickets")
	p, err := b.open(ctx, data, false)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	// The deliveries are written and wait: sending is measured separately.
	w, err := p.Webhooks.Create(ctx, p.org, webhook.New{URL: "http://127.0.0.1:9/", Events: []string{"ticket.created"}, Secret: new(secret)})
	if err != nil {
		return nil, err
	}
	if err := p.holdLanes(ctx, w.ID); err != nil {
		return nil, err
	}
	if _, _, err := post(ctx, texts(p.url, n, n), clients); err != nil {
		return nil, err
	}
	if err := p.stop(); err != nil {
		return nil, err
	}
	if p, err = b.open(ctx, data, true); err != nil {
		return nil, err
	}
	defer p.stop()
	start := time.Now()
	if err := until(ctx, 5*time.Minute, func() (bool, error) {
		left, err := count(ctx, p.DB, "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE kind = 'inbound/sms' LIMIT 1) AS one")
		return left == 0, err
	}); err != nil {
		return nil, err
	}
	took := time.Since(start)
	var got []string
	for _, table := range []string{"tickets", "messages", "events", "deliveries"} {
		rows, err := count(ctx, p.DB, "SELECT count(*) FROM "+table)
		if err != nil {
			return nil, err
		}
		got = append(got, fmt.Sprintf("%d %s", rows, table))
	}
	fmt.Println("  ", strings.Join(got, ", "))
	r := perSecond(n, took)
	bare, err := ceilingRows(ctx, b, n, 12)
	if err != nil {
		return nil, fmt.Errorf("ceiling: %w", err)
	}
	return []row{{"accepted SMS → ticket, message, event, one delivery written", rate(r), rate(bare), fmt.Sprintf("%.2f", r/bare), "≥ 5,000/s"}}, p.stop()
}

// ceilingRows writes rows of 300 bytes, 256 events per commit.
func ceilingRows(ctx context.Context, b *bench, events, rows int) (float64, error) {
	d, err := sql.Open("sqlite", "file:"+filepath.Join(b.dir, "rows.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return 0, err
	}
	defer d.Close()
	d.SetMaxOpenConns(1)
	if _, err := d.ExecContext(ctx, "CREATE TABLE plain (id BIGINT PRIMARY KEY, data TEXT)"); err != nil {
		return 0, err
	}
	stmt, err := d.PrepareContext(ctx, "INSERT INTO plain VALUES (?1, ?2)")
	if err != nil {
		return 0, err
	}
	data := strings.Repeat("x", 300)
	start := time.Now()
	id := 0
	for done := 0; done < events; done += 256 {
		tx, err := d.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		for range 256 * rows {
			id++
			if _, err := tx.StmtContext(ctx, stmt).ExecContext(ctx, id, data); err != nil {
				return 0, err
			}
		}
		if err := tx.Commit(); err != nil {
			return 0, err
		}
	}
	return perSecond(events, time.Since(start)), nil
}
