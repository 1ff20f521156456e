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
	url    string
	org    string
	stop   func() error
	assets map[string]string // assets of the pages, by path
}

// open opens the program over a data folder; with worker, its queue runs.
func (b *bench) open(ctx context.Context, data string, worker bool) (*program, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a, err := app.Open(ctx, app.Config{
		BaseURL: "http://" + ln.Addr().String(), Data: data, MailFrom: "bench@localhost",
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
	o, err = a.Accounts.CreateOrganization(ctx, account.NewOrganization{Name: "Bench", Plan: account.Free})
	if err != nil {
		return nil, err
	}
	p.org = o.ID
	_, _, err = a.Connections.Connect(ctx, connection.New{OrganizationID: o.ID, Channel: "sms", Address: number, Secrets: []string{secret}, ByOperator: true})
	return p, err
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
	target := base + "/api/webhooks/sms"
	out := make([]text, n)
	for i := range out {
		out[i] = sign(target, url.Values{
			"MessageSid": {fmt.Sprintf("SM%032x", i)}, "AccountSid": {"AC" + strings.Repeat("0", 32)}, "NumMedia": {"0"},
			"From": {fmt.Sprintf("+1415%07d", 2000000+i%numbers)}, "To": {number}, "Body": {"The scooter at the station does not unlock."},
		})
	}
	return out
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
	transport := &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	latencies := make([]time.Duration, n)
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	start := time.Now()
	for range clients {
		wg.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				began := time.Now()
				if err := request(client, i); err != nil {
					failed.Store(&err)
					return
				}
				latencies[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, nil, *err
	}
	return time.Since(start), latencies, nil
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
