package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
)

const (
	secret = "bench-secret-0123456789"
	number = "+14155550100"
)

// program is a running Kickstand with one organization and one SMS connection.
type program struct {
	*app.App
	url  string
	org  string
	stop func() error
}

// open opens the program over a data folder with SQLite; with worker, its queue runs.
func (b *bench) open(ctx context.Context, data string, worker bool) (*program, error) {
	return b.openOn(ctx, &store{data: data}, worker)
}

// openOn opens the program over a store; with worker, its queue runs.
func (b *bench) openOn(ctx context.Context, s *store, worker bool) (*program, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a, err := app.Open(ctx, app.Config{
		BaseURL: "http://" + ln.Addr().String(), Data: s.data, DatabaseURL: s.url, MailFrom: "bench@localhost",
		AllowPrivateReceivers: true, RetryTimeScale: 1, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Web: true, Worker: worker, StopTimeout: time.Second,
	}, errorLogger())
	if err != nil {
		ln.Close()
		return nil, err
	}
	p := &program{App: a, url: a.BaseURL}
	serving, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	ready := make(chan struct{})
	go func() { ended <- a.Serve(serving, ln, func() error { close(ready); return nil }) }()
	p.stop = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, a.Close())
	})
	select {
	case <-ready:
	case err := <-ended:
		return nil, err
	}
	o, err := a.Accounts.OrganizationBySlug(ctx, "bench")
	if err == nil {
		p.org = o.ID
		return p, nil
	}
	p.org, err = p.createOrganization(ctx, "Bench", number)
	return p, err
}

// createOrganization creates an organization with an SMS connection and returns its id.
func (p *program) createOrganization(ctx context.Context, name, number string) (string, error) {
	o, err := p.Accounts.CreateOrganization(ctx, account.NewOrganization{Name: name, Plan: account.Free})
	if err != nil {
		return "", err
	}
	_, _, err = p.Connections.Connect(ctx, connection.New{OrganizationID: o.ID, Channel: "sms", Address: number, Secrets: []string{secret}, ByOperator: true})
	return o.ID, err
}

// holdLanes stops the deliveries of webhooks until releaseLanes.
func (p *program) holdLanes(ctx context.Context, webhooks ...string) error {
	return p.DB.Write(ctx, func(tx *db.Tx) error {
		for _, id := range webhooks {
			if _, err := tx.Exec(ctx, "INSERT INTO held_lanes (kind, lane) VALUES ('webhook', $1)", id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *program) releaseLanes(ctx context.Context) error {
	return p.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM held_lanes")
		return err
	})
}

// texts returns n signed SMS requests for a base URL from the given number of senders.
func texts(base string, n, numbers int) []text {
	out := make([]text, n)
	for i := range out {
		out[i] = textOf(base, i, i%numbers)
	}
	return out
}

// textOf returns the i-th SMS for a base URL, from a sender by number.
func textOf(base string, i, sender int) text {
	return sign(base+"/api/webhooks/sms", url.Values{
		"MessageSid": {fmt.Sprintf("SM%032x", i)}, "AccountSid": {"AC" + strings.Repeat("0", 32)}, "NumMedia": {"0"},
		"From": {fmt.Sprintf("+1415%07d", 2000000+sender)}, "To": {number}, "Body": {"The scooter at the station does not unlock."},
	})
}

type text struct {
	url, body, signature string
	form                 url.Values
}

func sign(target string, form url.Values) text {
	return text{target, form.Encode(), sms.Sign(target, form, secret), form}
}

// to returns the SMS for another number.
func (t text) to(number string) text {
	t.form.Set("To", number)
	return sign(t.url, t.form)
}

// numberOf returns the number of the i-th organization.
func numberOf(i int) string { return fmt.Sprintf("+141555501%02d", i) }

// post sends the requests from a number of clients and returns the total time and each
// latency. A status other than 200 is an error.
func post(ctx context.Context, list []text, clients int) (time.Duration, []time.Duration, error) {
	return load(len(list), clients, func(c *http.Client, i int) error { return postOne(ctx, c, list[i]) })
}

// load makes n requests from a number of clients, each sequential on its own connection,
// and returns the total time and each latency. It ends with the first error.
func load(n, clients int, request func(c *http.Client, i int) error) (time.Duration, []time.Duration, error) {
	took, samples, err := loadWhile(clients, func(i int) bool { return i < n }, request)
	latencies := make([]time.Duration, len(samples))
	for i, s := range samples {
		latencies[i] = s.took
	}
	return took, latencies, err
}

// sample is a request: when it ended, since the begin of the load, and its latency.
type sample struct{ at, took time.Duration }

// loadWhile is [load] as long as more reports true for the next request.
func loadWhile(clients int, more func(i int) bool, request func(c *http.Client, i int) error) (time.Duration, []sample, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	samples := make([][]sample, clients)
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	start := time.Now()
	for n := range clients {
		wg.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if !more(i) {
					return
				}
				began := time.Now()
				if err := request(client, i); err != nil {
					failed.Store(&err)
					return
				}
				samples[n] = append(samples[n], sample{time.Since(start), time.Since(began)})
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, nil, *err
	}
	return time.Since(start), slices.Concat(samples...), nil
}

func postOne(ctx context.Context, c *http.Client, t text) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, strings.NewReader(t.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-Twilio-Signature", t.signature)
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

// until waits for a condition that takes seconds.
func until(ctx context.Context, limit time.Duration, met func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for {
		ok, err := met()
		if ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-end:
			return errors.New("not done in time")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
