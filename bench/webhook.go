package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// receiver counts deliveries.
type receiver struct {
	*httptest.Server
	n    atomic.Int64
	body atomic.Pointer[[]byte] // of the last delivery
}

func newReceiver() *receiver {
	r := new(receiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		r.body.Store(&body)
		r.n.Add(1)
	}))
	return r
}

// deliveries measures the rate of waiting deliveries to one receiver and to ten, against
// a bare client that posts the same bytes.
func deliveries(ctx context.Context, b *bench) ([]row, error) { return deliveriesOn(ctx, b, sqlite) }

func deliveriesOn(ctx context.Context, b *bench, e engine) ([]row, error) {
	var rows []row
	for _, receivers := range []int{1, 10} {
		n := b.brief(20000) / receivers * receivers
		got, bare, err := deliver(ctx, b, e, receivers, n)
		if err != nil {
			return nil, err
		}
		rows = append(rows, besideCeiling(fmt.Sprintf("deliveries to %d receiver(s)", receivers)+e.suffix(), got, bare, "≥ 8,000/s, ≥ 0.5"))
	}
	return rows, nil
}

func deliver(ctx context.Context, b *bench, e engine, receivers, n int) (got, bare float64, err error) {
	s, err := b.newStore(ctx, e, fmt.Sprintf("deliver%d", receivers))
	if err != nil {
		return 0, 0, err
	}
	defer b.remove(s)
	p, err := b.openOn(ctx, s, true)
	if err != nil {
		return 0, 0, err
	}
	defer func() { p.stop() }()
	var all []*receiver
	for range receivers {
		r := newReceiver()
		defer r.Close()
		all = append(all, r)
		w, err := p.Webhooks.Create(ctx, p.org, webhook.New{URL: r.URL, Events: []string{"ticket.created"}, Secret: new(secret)})
		if err != nil {
			return 0, 0, err
		}
		if err := p.holdLanes(ctx, w.ID); err != nil {
			return 0, 0, err
		}
	}
	if _, _, err := post(ctx, texts(p.url, n/receivers, n), clients); err != nil {
		return 0, 0, err
	}
	if err := p.untilProcessed(ctx); err != nil {
		return 0, 0, err
	}
	if err := p.releaseLanes(ctx); err != nil {
		return 0, 0, err
	}
	if err := p.stop(); err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if p, err = b.openOn(ctx, s, true); err != nil {
		return 0, 0, err
	}
	arrived := func() (sum int64) {
		for _, r := range all {
			sum += r.n.Load()
		}
		return sum
	}
	if err := until(ctx, 5*time.Minute, func() (bool, error) { return arrived() >= int64(n), nil }); err != nil {
		return 0, 0, fmt.Errorf("%d of %d arrived: %w", arrived(), n, err)
	}
	got = perSecond(n, time.Since(start))
	if err := p.stop(); err != nil {
		return 0, 0, err
	}
	bare, err = ceilingPost(ctx, all, n)
	return got, bare, err
}

// ceilingPost posts the same bytes to the same receivers with a bare client, with the
// concurrency of a webhook.
func ceilingPost(ctx context.Context, to []*receiver, n int) (float64, error) {
	body := *to[0].body.Load()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	start := time.Now()
	for range 16 {
		wg.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				resp, err := client.Post(to[i%len(to)].URL, "application/json", bytes.NewReader(body))
				if err != nil {
					failed.Store(&err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return perSecond(n, time.Since(start)), nil
}

// slowReceivers measures the latency from event to arrival, at 200 deliveries a second in
// total, without and with receivers that hold every request for 30 s: one of ten, and 100
// of 200.
func slowReceivers(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for _, c := range []struct {
		healthy, hanging int
		aim              string // without slow receivers; none for a burst of 50
	}{{9, 1, "≤ 3 ms, ≤ 15 ms"}, {100, 100, ""}} {
		name := fmt.Sprint("healthy-", c.healthy)
		without, err := arrivals(ctx, b, name, c.healthy, 0)
		if err != nil {
			return nil, err
		}
		with, err := arrivals(ctx, b, name+"-hanging", c.healthy, c.hanging)
		if err != nil {
			return nil, err
		}
		p50, p99 := quantile(without, 0.5), quantile(without, 0.99)
		h50, h99 := quantile(with, 0.5), quantile(with, 0.99)
		rows = append(rows,
			row{fmt.Sprintf("event → received at 200/s, %d receivers: p50, p99", c.healthy), ms(p50) + ", " + ms(p99), "", "", c.aim},
			row{
				fmt.Sprintf("… beside %d that hang 30 s (ceiling: without)", c.hanging), ms(h50) + ", " + ms(h99), ms(p50) + ", " + ms(p99),
				fmt.Sprintf("%.2f of p99", float64(h99)/float64(p99)), "≤ 1.2",
			})
	}
	return rows, nil
}

// arrivals returns the latency of each delivery to the healthy receivers. All must
// arrive.
func arrivals(ctx context.Context, b *bench, name string, healthy, hanging int) ([]time.Duration, error) {
	p, err := b.open(ctx, filepath.Join(b.dir, name), true)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	// An organization has at most 100 webhooks, so more need several.
	orgs := []string{p.org}
	for healthy+hanging > len(orgs)*webhook.MaxPerOrganization {
		o, err := p.Accounts.CreateOrganization(ctx, account.NewOrganization{Name: "More"})
		if err != nil {
			return nil, err
		}
		if _, _, err := p.Connections.Connect(ctx, connection.New{
			OrganizationID: o.ID, Channel: "sms", Address: numberOf(len(orgs)), Secrets: []string{secret}, ByOperator: true,
		}); err != nil {
			return nil, err
		}
		orgs = append(orgs, o.ID)
	}

	var mu sync.Mutex
	var took []time.Duration
	note := func(w http.ResponseWriter, r *http.Request) {
		now := time.Now()
		var body struct {
			CreatedAt time.Time `json:"created_at"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return
		}
		mu.Lock()
		took = append(took, now.Sub(body.CreatedAt))
		mu.Unlock()
	}
	release := make(chan struct{})
	hang := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		case <-time.After(30 * time.Second):
		}
	}
	for i := range healthy + hanging {
		handler := note
		if i >= healthy {
			handler = hang
		}
		s := httptest.NewServer(http.HandlerFunc(handler))
		defer s.Close()
		if _, err := p.Webhooks.Create(ctx, orgs[i%len(orgs)], webhook.New{URL: s.URL, Events: []string{"message.created"}, Secret: new(secret)}); err != nil {
			return nil, err
		}
	}
	defer close(release)

	each := healthy / len(orgs)     // deliveries per event
	n := max(b.scale(4000)/each, 5) // twenty seconds
	list := texts(p.url, n, 50)
	for i := range list {
		if k := i % len(orgs); k > 0 {
			list[i] = list[i].to(numberOf(k))
		}
	}
	client := &http.Client{}
	defer client.CloseIdleConnections()
	pace := time.NewTicker(time.Second * time.Duration(each) / 200)
	defer pace.Stop()
	for _, t := range list {
		<-pace.C
		if err := postOne(ctx, client, t); err != nil {
			return nil, err
		}
	}
	err = until(ctx, 10*time.Second, func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return len(took) >= n*each, nil
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%d of %d arrived: %w", len(took), n*each, err)
	}
	return took, nil
}

// backlog is the number of deliveries that wait for a slow receiver.
const backlog = 1_000_000

// besideBacklog measures the first delivery to a new webhook next to one with a million
// waiting.
func besideBacklog(ctx context.Context, b *bench) ([]row, error) {
	waiting := b.scale(backlog)
	p, err := b.open(ctx, filepath.Join(b.dir, "backlog"), true)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer hanging.Close()
	defer close(release)
	w, err := p.Webhooks.Create(ctx, p.org, webhook.New{URL: hanging.URL, Events: []string{"ticket.created"}})
	if err != nil {
		return nil, err
	}
	// One real delivery, copied a million times: as if its events had occurred during the
	// outage.
	if err := post1(ctx, p, 0); err != nil {
		return nil, err
	}
	if err := until(ctx, 10*time.Second, func() (bool, error) {
		n, err := count(ctx, p.DB, "SELECT count(*) FROM deliveries")
		return n > 0, err
	}); err != nil {
		return nil, err
	}
	for from := 0; from < waiting; from += 20_000 {
		err := p.DB.Write(ctx, func(tx *db.Tx) error {
			for _, copied := range []string{
				`INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at)
					SELECT d.webhook_id, substr(d.id, 1, 24) || printf('%012x', n.value), d.event_id, d.event, 0, d.created_at FROM `,
				`INSERT INTO jobs (id, kind, lane, state, payload, run_at, created_at)
					SELECT substr(d.id, 1, 24) || printf('%012x', n.value), 'webhook', d.webhook_id, 0, CAST(d.event_id || ' ' || d.event AS BLOB), 0, d.created_at FROM `,
			} {
				if _, err := tx.Exec(ctx, copied+`(SELECT * FROM deliveries WHERE webhook_id = $1 ORDER BY id LIMIT 1) AS d,
					(WITH RECURSIVE n (value) AS (SELECT $2 UNION ALL SELECT value + 1 FROM n WHERE value + 1 < $3) SELECT value FROM n) AS n`,
					w.ID, from, min(from+20_000, waiting)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var worst time.Duration
	for i := range 20 {
		arrived := make(chan time.Time, 1)
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			select {
			case arrived <- time.Now():
			default:
			}
		}))
		fresh, err := p.Webhooks.Create(ctx, p.org, webhook.New{URL: s.URL, Events: []string{"ticket.created"}})
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if err := post1(ctx, p, i+1); err != nil {
			return nil, err
		}
		select {
		case at := <-arrived:
			worst = max(worst, at.Sub(began))
		case <-time.After(10 * time.Second):
			return nil, errors.New("the new webhook's delivery did not arrive")
		}
		if err := p.Webhooks.Delete(ctx, p.org, fresh.ID); err != nil {
			return nil, err
		}
		s.Close()
	}
	return []row{{
		fmt.Sprintf("text sent → received by a new webhook, beside one with %d waiting: slowest of 20", waiting), ms(worst), "", "", "≤ 50 ms",
	}}, nil
}

// post1 posts the first SMS of number i.
func post1(ctx context.Context, p *program, i int) error {
	return postOne(ctx, http.DefaultClient, texts(p.url, i+1, i+1)[i])
}
