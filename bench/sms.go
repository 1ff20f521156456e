package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/webhook"
)

const clients = 64

// acceptSMS measures the rate of durably accepted SMS, without processing. The ceiling
// verifies and stores with plain means.
func acceptSMS(ctx context.Context, b *bench) ([]row, error) { return acceptOn(ctx, b, sqlite) }

func acceptOn(ctx context.Context, b *bench, e engine) ([]row, error) {
	n := b.brief(40000)
	s, err := b.newStore(ctx, e, "accept")
	if err != nil {
		return nil, err
	}
	defer b.remove(s)
	bare, err := ceilingAccept(ctx, s, n)
	if err != nil {
		return nil, fmt.Errorf("ceiling: %w", err)
	}
	p, err := b.openOn(ctx, s, false)
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
	return []row{
		besideCeiling("signed SMS posts accepted durably, 64 clients"+e.suffix(), perSecond(n, took), bare, "≥ 0.5"),
		latencyRow("… latency p50, p99", latencies, "≤ 10 ms, ≤ 60 ms"),
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
	return []row{latencyRow(fmt.Sprintf("signed SMS posts accepted while the worker has %d to do, p50, p99", backlog), latencies, "p99 ≤ 100 ms")}, p.stop()
}

// busyClients is the number of concurrent requests of a provider to a busy server.
const busyClients = 8

// ceilingAccept is the rate of a [bareHandler].
func ceilingAccept(ctx context.Context, s *store, n int) (float64, error) {
	d, err := s.openBare()
	if err != nil {
		return 0, err
	}
	defer d.Close()
	handler, stop, err := bareHandler(ctx, d, s.url != "")
	if err != nil {
		return 0, err
	}
	defer stop()
	bare := httptest.NewServer(handler)
	defer bare.Close()
	took, _, err := post(ctx, texts(bare.URL, n, n/4), clients)
	return perSecond(n, took), err
}

// bareHandler is a handler with an HMAC and an insert, many per commit. The caller stops it.
func bareHandler(ctx context.Context, d *sql.DB, postgres bool) (handler http.Handler, stop func(), err error) {
	insert := insertEach
	if postgres {
		insert = insertArrays
	}
	group, err := insert(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	inserts := make(chan rawInsert, 256)
	go insertInGroups(inserts, group)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "", http.StatusBadRequest)
			return
		}
		form, err := url.ParseQuery(string(body))
		if err != nil || !signed("http://"+r.Host+r.RequestURI, form, r.Header.Get("X-Twilio-Signature")) {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		i := rawInsert{form.Get("MessageSid"), body, make(chan error, 1)}
		inserts <- i
		if err := <-i.done; err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}), func() { close(inserts) }, nil
}

// bareOrder is the input of a bare server: its store.
type bareOrder struct{ Data, URL string }

// runBareServer is a process with a [bareHandler]. It writes its URL and serves until the
// end of in.
func runBareServer(ctx context.Context, order []byte, in io.Reader, out io.Writer) error {
	var o bareOrder
	if err := json.Unmarshal(order, &o); err != nil {
		return err
	}
	s := &store{data: o.Data, url: o.URL}
	d, err := s.openBare()
	if err != nil {
		return err
	}
	defer d.Close()
	handler, stop, err := bareHandler(ctx, d, o.URL != "")
	if err != nil {
		return err
	}
	defer stop()
	bare := httptest.NewServer(handler)
	defer bare.Close()
	if _, err := fmt.Fprintln(out, bare.URL); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// rawInsert is a row to insert; done receives the outcome.
type rawInsert struct {
	key  string
	body []byte
	done chan error
}

// insertInGroups inserts rows until the channel is closed, up to 256 per commit.
func insertInGroups(inserts <-chan rawInsert, insert func(group []rawInsert) error) {
	for first := range inserts {
		group := []rawInsert{first}
		for len(group) < 256 && len(inserts) > 0 {
			group = append(group, <-inserts)
		}
		err := insert(group)
		for _, i := range group {
			i.done <- err
		}
	}
}

// insertEach creates the table, and returns a function that inserts rows in a transaction, each
// by a prepared statement.
func insertEach(ctx context.Context, d *sql.DB) (func(group []rawInsert) error, error) {
	if _, err := d.ExecContext(ctx, "CREATE TABLE raw (key TEXT PRIMARY KEY, headers TEXT, body BLOB, at BIGINT) WITHOUT ROWID"); err != nil {
		return nil, err
	}
	stmt, err := d.PrepareContext(ctx, "INSERT INTO raw VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING")
	return func(group []rawInsert) error {
		tx, err := d.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for _, i := range group {
			if _, err := tx.StmtContext(ctx, stmt).ExecContext(ctx, i.key, "{}", i.body, time.Now().UnixMicro()); err != nil {
				return err
			}
		}
		return tx.Commit()
	}, err
}

// insertArrays is insertEach on PostgreSQL, by one statement for all rows.
func insertArrays(ctx context.Context, d *sql.DB) (func(group []rawInsert) error, error) {
	if _, err := d.ExecContext(ctx, "CREATE TABLE raw (key TEXT PRIMARY KEY, headers TEXT, body BYTEA, at BIGINT)"); err != nil {
		return nil, err
	}
	stmt, err := d.PrepareContext(ctx, "INSERT INTO raw SELECT key, '{}', body, $3 FROM unnest($1::text[], $2::bytea[]) AS g (key, body) ON CONFLICT DO NOTHING")
	return func(group []rawInsert) error {
		keys, bodies := make([]string, len(group)), make([][]byte, len(group))
		for i, g := range group {
			keys[i], bodies[i] = g.key, g.body
		}
		_, err := stmt.ExecContext(ctx, keys, bodies, time.Now().UnixMicro())
		return err
	}, err
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
// with one delivery each. The ceiling writes as many rows, many per commit.
func smsToTicket(ctx context.Context, b *bench) ([]row, error) {
	n := b.brief(20000)
	s, err := b.newStore(ctx, sqlite, "tickets")
	if err != nil {
		return nil, err
	}
	defer b.remove(s)
	if err := b.acceptBacklog(ctx, s, n, 1); err != nil {
		return nil, err
	}
	p, err := b.openOn(ctx, s, true)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	start := time.Now()
	if err := p.untilProcessed(ctx); err != nil {
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
	fmt.Fprintln(os.Stderr, "  ", strings.Join(got, ", "))
	bare, err := ceilingRows(ctx, s, n, 12)
	if err != nil {
		return nil, fmt.Errorf("ceiling: %w", err)
	}
	return []row{besideCeiling("accepted SMS → ticket, message, event, one delivery written", perSecond(n, took), bare, "≥ 5,000/s")}, p.stop()
}

// acceptBacklog accepts n SMS of n senders for a number of organizations in turn, without
// processing them. Each organization has a webhook whose deliveries will be written and wait:
// sending is measured separately.
func (b *bench) acceptBacklog(ctx context.Context, s *store, n, organizations int) error {
	p, err := b.openOn(ctx, s, false)
	if err != nil {
		return err
	}
	defer p.stop()
	for i := range organizations {
		org := p.org
		if i > 0 {
			if org, err = p.createOrganization(ctx, fmt.Sprintf("Bench %d", i), numberOf(i)); err != nil {
				return err
			}
		}
		if err := p.createWaitingWebhook(ctx, org); err != nil {
			return err
		}
	}
	list := texts(p.url, n, n)
	for i := range list {
		if k := i % organizations; k > 0 {
			list[i] = list[i].to(numberOf(k))
		}
	}
	if _, _, err := post(ctx, list, clients); err != nil {
		return err
	}
	return p.stop()
}

// createWaitingWebhook creates a webhook whose deliveries wait.
func (p *program) createWaitingWebhook(ctx context.Context, org string) error {
	w, err := p.Webhooks.Create(ctx, org, webhook.New{URL: "http://127.0.0.1:9/", Events: []string{"ticket.created"}, Secret: new(secret)})
	if err != nil {
		return err
	}
	return p.holdLanes(ctx, w.ID)
}

// leftToProcess counts, up to 1, the accepted SMS that wait for a worker.
const leftToProcess = "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE kind = 'inbound/sms' LIMIT 1) AS one"

// untilProcessed waits until no accepted SMS waits for a worker.
func (p *program) untilProcessed(ctx context.Context) error {
	return until(ctx, 5*time.Minute, func() (bool, error) {
		left, err := count(ctx, p.DB, leftToProcess)
		return left == 0, err
	})
}

// ceilingRows writes rows of 300 bytes, 256 events per commit.
func ceilingRows(ctx context.Context, s *store, events, rows int) (float64, error) {
	d, err := s.openBare()
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if _, err := d.ExecContext(ctx, "CREATE TABLE plain (id BIGINT PRIMARY KEY, data TEXT)"); err != nil {
		return 0, err
	}
	write := rowsEach
	if s.url != "" {
		write = rowsArrays
	}
	first, data := 1, strings.Repeat("x", 300)
	start := time.Now()
	for done := 0; done < events; done += 256 {
		if err := write(ctx, d, first, 256*rows, data); err != nil {
			return 0, err
		}
		first += 256 * rows
	}
	return perSecond(events, time.Since(start)), nil
}

// rowsEach writes n rows in a transaction, each by a prepared statement.
func rowsEach(ctx context.Context, d *sql.DB, first, n int, data string) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	stmt, err := tx.PrepareContext(ctx, "INSERT INTO plain VALUES (?1, ?2)")
	if err != nil {
		return err
	}
	for id := first; id < first+n; id++ {
		if _, err := stmt.ExecContext(ctx, id, data); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// rowsArrays is rowsEach on PostgreSQL, by one statement for all rows.
func rowsArrays(ctx context.Context, d *sql.DB, first, n int, data string) error {
	ids, texts := make([]int64, n), make([]string, n)
	for i := range ids {
		ids[i], texts[i] = int64(first+i), data
	}
	_, err := d.ExecContext(ctx, "INSERT INTO plain SELECT * FROM unnest($1::bigint[], $2::text[])", ids, texts)
	return err
}
