package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// receiver counts what arrives.
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

// deliveries measures how fast waiting deliveries reach one receiver and ten,
// against a bare client that posts the same bytes.
func deliveries(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for _, receivers := range []int{1, 10} {
		n := b.scale(20000) / receivers * receivers
		got, bare, err := deliver(ctx, b, receivers, n)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{fmt.Sprintf("deliveries to %d receiver(s)", receivers), rate(got), rate(bare), fmt.Sprintf("%.2f", got/bare), "≥ 8,000/s, ≥ 0.5"})
	}
	return rows, nil
}

func deliver(ctx context.Context, b *bench, receivers, n int) (got, bare float64, err error) {
	data := filepath.Join(b.dir, fmt.Sprintf("deliver%d", receivers))
	p, err := b.open(ctx, data, true)
	if err != nil {
		return 0, 0, err
	}
	defer func() { p.stop() }()
	var all []*receiver
	for range receivers {
		r := newReceiver()
		defer r.Close()
		all = append(all, r)
		w, err := p.Webhooks.Create(ctx, p.org, webhook.New{URL: r.URL, Events: []string{"ticket.created"}, Secret: secret})
		if err != nil {
			return 0, 0, err
		}
		if err := p.hold(ctx, w.ID); err != nil {
			return 0, 0, err
		}
	}
	if _, _, err := post(ctx, texts(p.url, n/receivers, n), clients); err != nil {
		return 0, 0, err
	}
	if err := until(ctx, 5*time.Minute, func() (bool, error) {
		left, err := count(ctx, p.DB, "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE kind = 'inbound/sms' LIMIT 1) AS one")
		return left == 0, err
	}); err != nil {
		return 0, 0, err
	}
	if err := p.release(ctx); err != nil {
		return 0, 0, err
	}
	if err := p.stop(); err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if p, err = b.open(ctx, data, true); err != nil {
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

// ceilingPost posts the same bytes to the same receivers with a bare client,
// as many at once as a webhook may have under way.
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

// hangingReceiver measures the time from an event to its arrival at nine
// receivers, at 200 deliveries a second in all, without and with a tenth that
// holds every request for 30 s.
func hangingReceiver(ctx context.Context, b *bench) ([]row, error) {
	without, n, err := arrivals(ctx, b, "healthy", false)
	if err != nil {
		return nil, err
	}
	with, m, err := arrivals(ctx, b, "hanging", true)
	if err != nil {
		return nil, err
	}
	if n != m {
		return nil, fmt.Errorf("%d deliveries arrived without, %d with the hanging receiver", n, m)
	}
	p50, p99 := quantile(without, 0.5), quantile(without, 0.99)
	h50, h99 := quantile(with, 0.5), quantile(with, 0.99)
	return []row{
		{"event → received at 200/s, nine receivers: p50, p99", ms(p50) + ", " + ms(p99), "", "", "≤ 3 ms, ≤ 15 ms"},
		{"… beside one that hangs 30 s (ceiling: without it)", ms(h50) + ", " + ms(h99), ms(p50) + ", " + ms(p99), fmt.Sprintf("%.2f of p99", float64(h99)/float64(p99)), "≤ 1.2"},
	}, nil
}

func arrivals(ctx context.Context, b *bench, name string, hanging bool) ([]time.Duration, int, error) {
	p, err := b.open(ctx, filepath.Join(b.dir, name), true)
	if err != nil {
		return nil, 0, err
	}
	defer p.stop()
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
	for i := range 10 {
		handler := note
		if i == 9 {
			if !hanging {
				break
			}
			handler = hang
		}
		s := httptest.NewServer(http.HandlerFunc(handler))
		defer s.Close()
		if _, err := p.Webhooks.Create(ctx, p.org, webhook.New{URL: s.URL, Events: []string{"message.created"}, Secret: secret}); err != nil {
			return nil, 0, err
		}
	}
	defer close(release)
	// 200 deliveries a second over nine receivers.
	n := b.scale(450)
	list := texts(p.url, n, 50)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	pace := time.NewTicker(time.Second * 9 / 200)
	defer pace.Stop()
	for _, t := range list {
		<-pace.C
		if err := postOne(ctx, client, t); err != nil {
			return nil, 0, err
		}
	}
	if err := until(ctx, 10*time.Second, func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return len(took) >= 9*n, nil
	}); err != nil {
		return nil, 0, fmt.Errorf("%d of %d arrived: %w", len(took), 9*n, err)
	}
	mu.Lock()
	defer mu.Unlock()
	return took, len(took), nil
}
