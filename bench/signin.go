package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/rpc"
)

// signInBesideWrong measures correct sign-ins of one address in sequence, while another
// address makes 1,000 wrong ones as fast as 100 clients can. The ceiling is the same
// without the other address.
func signInBesideWrong(ctx context.Context, b *bench) ([]row, error) {
	rounds, wrong, clients := 6, 1000, 100
	if b.short {
		rounds, wrong, clients = 1, 12, 10
	}
	p, err := b.open(ctx, filepath.Join(b.dir, "sign-ins-beside"), false)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if _, err := p.createPeople(ctx, 1000*rounds); err != nil {
		return nil, err
	}
	var idle, beside []time.Duration
	next := 0
	for round := range rounds { // alternating, since a machine's speed drifts
		ended := make(chan error, 1)
		attacker := fmt.Sprintf("203.0.113.%d", round+1)
		go func() {
			_, err := signInElsewhere(ctx, crowdOrder{URL: p.url, Clients: clients, N: wrong, Wrong: attacker})
			ended <- err
		}()
		before := len(beside)
		for over := false; !over; {
			took, err := p.signInRightly(ctx, next)
			if err != nil {
				return nil, err
			}
			next++
			select {
			case err := <-ended:
				if err != nil {
					return nil, err
				}
				over = true
			default:
				beside = append(beside, took)
			}
		}
		for range len(beside) - before {
			took, err := p.signInRightly(ctx, next)
			if err != nil {
				return nil, err
			}
			next++
			idle = append(idle, took)
		}
	}
	quiet, busy := quantile(idle, 0.99), quantile(beside, 0.99)
	return []row{
		{fmt.Sprintf("sign-in beside %d wrong ones of another address, p99 of %d (ceiling: without)", wrong, len(beside)),
			ms(busy), ms(quiet), fmt.Sprintf("%.2f of p99", float64(busy)/float64(quiet)), "≤ 2"},
		{"… p50", ms(quantile(beside, 0.5)), ms(quantile(idle, 0.5)), "", ""},
	}, p.stop()
}

// signInRightly signs in a user from an address of its own, and returns the latency.
func (p *program) signInRightly(ctx context.Context, person int) (time.Duration, error) {
	began := time.Now()
	status, err := p.signInFrom(ctx, http.DefaultClient, "198.51.100.7", fmt.Sprintf("person-%d@example.com", person), benchPassword)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("a right sign-in was answered %d", status)
	}
	return time.Since(began), err
}

// signInWrongly makes a wrong sign-in and fails unless it is refused.
func (p *program) signInWrongly(ctx context.Context, c *http.Client, from string, i int) error {
	status, err := p.signInFrom(ctx, c, from, fmt.Sprintf("nobody-%d@example.com", i), "not "+benchPassword)
	if err == nil && status != http.StatusUnauthorized && status != http.StatusTooManyRequests {
		err = fmt.Errorf("a wrong sign-in was answered %d", status)
	}
	return err
}

func (p *program) signInFrom(ctx context.Context, c *http.Client, from, email, password string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+rpc.Prefix+"auth.signInWithPassword",
		strings.NewReader(fmt.Sprintf(`{"json":{"email":"%s","password":"%s"}}`, email, password)))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forwarded-For", from)
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
