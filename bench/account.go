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
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/argon2"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/rpc"
)

const benchPassword = "seventeen wet bicycles"

// passwordSignIns measures sign-ins over HTTP, each by another user since the limit is by
// address, and the memory of the serving process; the clients run in another one. The
// ceiling is argon2id with the parameters of the stored hashes, by one worker per
// processor.
func passwordSignIns(ctx context.Context, b *bench) ([]row, error) {
	n := b.scale(900)
	p, err := b.open(ctx, filepath.Join(b.dir, "sign-ins"), false)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	stored, err := p.createPeople(ctx, n)
	if err != nil {
		return nil, err
	}
	// Half before and half after, since a machine's speed drifts.
	before, err := bareHashes(stored, n/6)
	if err != nil {
		return nil, err
	}
	debug.FreeOSMemory() // frees memory of earlier measurements
	peak := watchMemory()
	got, err := signInElsewhere(ctx, crowdOrder{URL: p.url, Clients: 500, N: n})
	used := peak()
	if err != nil {
		return nil, err
	}
	after, err := bareHashes(stored, n/6)
	if err != nil {
		return nil, err
	}
	sessions, err := count(ctx, p.DB, "SELECT count(*) FROM sessions")
	if err != nil {
		return nil, err
	}
	if sessions != n {
		return nil, fmt.Errorf("%d of %d have a session", sessions, n)
	}
	r, bare := perSecond(n, got.Took), perSecond(n/6+n/6, before+after)
	return []row{
		besideCeiling("password sign-ins, 500 clients", r, bare, "≥ 0.9"),
		latencyRow("… latency p50, p99", got.Latencies, ""),
		{"… peak memory of the server", fmt.Sprintf("%d MB", used/1_000_000), "", "", "≤ 160 MB"},
	}, p.stop()
}

// crowdOrder is the input of the client process: users of createPeople that sign in, one
// after the other per client.
type crowdOrder struct {
	URL        string
	Clients, N int
	// Wrong is the client address of sign-ins with wrong passwords and unknown users;
	// empty: correct sign-ins.
	Wrong string
}

// crowdResult is the total time of a crowd and the latency of each sign-in.
type crowdResult struct {
	Took      time.Duration
	Latencies []time.Duration
}

// signInElsewhere runs the clients in a second process: 500 of them need as much memory
// as the server.
func signInElsewhere(ctx context.Context, c crowdOrder) (crowdResult, error) {
	cmd, order, err := actor(ctx, crowdRole, c)
	if err != nil {
		return crowdResult{}, err
	}
	cmd.Stdin = bytes.NewReader(order)
	text, err := cmd.Output()
	if err != nil {
		return crowdResult{}, fmt.Errorf("clients: %w", err)
	}
	var out crowdResult
	err = json.Unmarshal(text, &out)
	return out, err
}

// runCrowd is the client process. It writes its result to out.
func runCrowd(ctx context.Context, order []byte, out io.Writer) error {
	var c crowdOrder
	if err := json.Unmarshal(order, &c); err != nil {
		return err
	}
	p := &program{url: c.URL}
	took, latencies, err := load(c.N, c.Clients, func(client *http.Client, i int) error {
		if c.Wrong != "" {
			return p.signInWrongly(ctx, client, c.Wrong, i)
		}
		_, err := p.call(ctx, client, http.MethodPost, "auth.signInWithPassword", nil,
			fmt.Sprintf(`{"json":{"email":"person-%d@example.com","password":"%s"}}`, i, benchPassword))
		return err
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(crowdResult{took, latencies})
}

// createPeople creates n users with the same password, and returns its hash.
func (p *program) createPeople(ctx context.Context, n int) (string, error) {
	_, err := p.Accounts.CreateUser(ctx, account.NewUser{Email: "first@example.com", Password: benchPassword, Organization: "bench", Role: account.Agent})
	if err != nil {
		return "", err
	}
	var stored string
	err = p.DB.Write(ctx, func(tx *db.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT password_hash FROM users WHERE email_key = 'first@example.com'").Scan(&stored); err != nil {
			return err
		}
		for i := range n {
			id, err := uuid.NewV7()
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `
				INSERT INTO users (id, email, email_key, name, password_hash, preferences, organization_id, role, created_at, updated_at)
				VALUES ($1, $2, $2, 'Person', $3, '{}', $4, 'agent', $5, $5)`,
				id.String(), fmt.Sprintf("person-%d@example.com", i), stored, p.org, tx.Now.UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	})
	return stored, err
}

// call calls a procedure and returns the cookies that it set. A status other than 200 is
// an error.
func (p *program) call(ctx context.Context, c *http.Client, method, procedure string, cookies []*http.Cookie, body string) ([]*http.Cookie, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.url+rpc.Prefix+procedure, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, cookie := range cookies {
		req.AddCookie(cookie)
	}
	_, set, err := exchange(c, req)
	return set, err
}

// exchange sends a request and reads the response. A status other than 200 is an error.
func exchange(c *http.Client, req *http.Request) ([]byte, []*http.Cookie, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	body.Grow(int(max(resp.ContentLength, 0)) + bytes.MinRead)
	_, err = body.ReadFrom(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("answered %s: %s", resp.Status, body.Bytes())
	}
	return body.Bytes(), resp.Cookies(), err
}

// bareHashes returns the time for n hashes with the parameters of stored.
func bareHashes(stored string, n int) (time.Duration, error) {
	var version int
	var memory, passes uint32
	var threads uint8
	if _, err := fmt.Sscanf(stored, "$argon2id$v=%d$m=%d,t=%d,p=%d$", &version, &memory, &passes, &threads); err != nil {
		return 0, errors.New("the stored hash is not of argon2id")
	}
	salt := make([]byte, 16)
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	var wg sync.WaitGroup
	start := time.Now()
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for range work {
				argon2.IDKey([]byte(benchPassword), salt, passes, memory, threads, 32)
			}
		})
	}
	wg.Wait()
	return time.Since(start), nil
}

// watchMemory samples the memory of the runtime, several times per hash. The returned
// function stops it and returns the maximum in bytes.
func watchMemory() func() uint64 {
	end, peak := make(chan struct{}), make(chan uint64)
	go func() {
		samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var most uint64
		for {
			metrics.Read(samples)
			most = max(most, samples[0].Value.Uint64()-samples[1].Value.Uint64())
			select {
			case <-tick.C:
			case <-end:
				peak <- most
				return
			}
		}
	}()
	return func() uint64 {
		close(end)
		return <-peak
	}
}

// getUser measures the cheapest procedure that needs a session. The ceiling is a handler
// that writes the same response.
func getUser(ctx context.Context, b *bench) ([]row, error) {
	n := b.brief(40000)
	p, err := b.open(ctx, filepath.Join(b.dir, "get-user"), false)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if _, err := p.createPeople(ctx, 1); err != nil {
		return nil, err
	}
	cookies, err := p.call(ctx, http.DefaultClient, http.MethodPost, "auth.signInWithPassword", nil,
		`{"json":{"email":"first@example.com","password":"`+benchPassword+`"}}`)
	if err != nil {
		return nil, err
	}
	request := func(base string) (*http.Request, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+rpc.Prefix+"auth.getUser", nil)
		if err != nil {
			return nil, err
		}
		for _, cookie := range cookies {
			r.AddCookie(cookie)
		}
		return r, nil
	}
	r, ceiling, err := besideBare(n, p.url, request)
	if err != nil {
		return nil, err
	}
	return []row{besideCeiling("auth.getUser, 64 clients", r, ceiling, "≥ 0.6")}, p.stop()
}

// besideBare repeats a request to Kickstand and to a handler that only writes the same
// response, and returns the rate of each per second.
func besideBare(n int, url string, request func(base string) (*http.Request, error)) (ours, ceiling float64, err error) {
	first, err := request(url)
	if err != nil {
		return 0, 0, err
	}
	body, _, err := exchange(http.DefaultClient, first)
	if err != nil {
		return 0, 0, err
	}
	bare := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
	}))
	bare.Config.ReadTimeout, bare.Config.WriteTimeout, bare.Config.IdleTimeout = 2*time.Minute, 3*time.Minute, 2*time.Minute // as in package app
	bare.Start()
	defer bare.Close()

	const rounds = 4 // alternating, since a machine's speed drifts
	took := map[string]time.Duration{}
	for range rounds {
		for _, base := range []string{bare.URL, url} {
			t, _, err := load(n/rounds, clients, func(c *http.Client, _ int) error {
				r, err := request(base)
				if err != nil {
					return err
				}
				got, _, err := exchange(c, r)
				if err == nil && !bytes.Equal(got, body) {
					err = fmt.Errorf("got %s", got)
				}
				return err
			})
			if err != nil {
				return 0, 0, err
			}
			took[base] += t
		}
	}
	return perSecond(n/rounds*rounds, took[url]), perSecond(n/rounds*rounds, took[bare.URL]), nil
}
