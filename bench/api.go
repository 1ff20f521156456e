package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
)

// createKey creates an API key with a limit that no measurement reaches.
func (p *program) createKey(ctx context.Context, service apikey.ServiceName) (string, error) {
	if err := p.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE organizations SET plan = 'business', fleet_rate_limit = $2 WHERE id = $1", p.org, int64(1e9))
		return err
	}); err != nil {
		return "", err
	}
	_, token, err := p.Keys.Create(ctx, apikey.New{
		OrganizationID: p.org, Service: service, Environment: apikey.Live, Name: "Bench " + rand.Text(),
		Permissions: apikey.Permissions{Level: apikey.ReadWrite},
	})
	return token.Reveal(), err
}

// openKeyed opens the program over a new data folder, without a worker, and creates an
// API key.
func (b *bench) openKeyed(ctx context.Context, name string) (*program, string, error) {
	p, err := b.open(ctx, filepath.Join(b.dir, name), false)
	if err != nil {
		return nil, "", err
	}
	key, err := p.createKey(ctx, apikey.Helpdesk)
	if err != nil {
		return nil, "", errors.Join(err, p.stop())
	}
	return p, key, nil
}

// keyedRequest returns a request to read a path of the API.
func keyedRequest(ctx context.Context, base, key, path string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+deskapi.Base+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	return r, nil
}

// ticketRequest returns an integrator's request to create a ticket.
func ticketRequest(ctx context.Context, base, key string, customer int) (*http.Request, error) {
	body := `{"subject":"The scooter does not unlock","text":"It stands at the station and blinks.","priority":"high","tags":["unlock"],"customer":{"name":"Ana Client","email":"ana` +
		strconv.Itoa(customer) + `@client.example"}}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+deskapi.Base+"/tickets", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

// keyedGet measures reading one record with a key, including its limit. The ceiling is a
// handler that only writes the same response.
func keyedGet(ctx context.Context, b *bench, e engine) ([]row, error) {
	n := b.brief(40000)
	s, err := b.newStore(ctx, e, "keyed-get")
	if err != nil {
		return nil, err
	}
	defer b.remove(s)
	p, err := b.openOn(ctx, s, false)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	key, err := p.createKey(ctx, apikey.Helpdesk)
	if err != nil {
		return nil, err
	}
	create, err := ticketRequest(ctx, p.url, key, 1)
	if err != nil {
		return nil, err
	}
	body, _, err := exchange(http.DefaultClient, create)
	if err != nil {
		return nil, err
	}
	var made struct{ ID string }
	if err := json.Unmarshal(body, &made); err != nil {
		return nil, err
	}
	r, ceiling, err := besideBare(n, p.url, func(base string) (*http.Request, error) {
		return keyedRequest(ctx, base, key, "/tickets/"+made.ID)
	})
	if err != nil {
		return nil, err
	}
	return []row{besideCeiling("GET /api/v1/tickets/{id} with a key, 64 clients"+e.suffix(), r, ceiling, "≥ 0.75")}, p.stop()
}

// keyedPost measures creating tickets with a key, each with a message; every other
// customer exists.
func keyedPost(ctx context.Context, b *bench) ([]row, error) {
	const clients = 16
	n := b.scale(20000)
	p, key, err := b.openKeyed(ctx, "keyed-post")
	if err != nil {
		return nil, err
	}
	defer p.stop()
	took, latencies, err := load(n, clients, func(c *http.Client, i int) error {
		r, err := ticketRequest(ctx, p.url, key, i/2)
		if err != nil {
			return err
		}
		_, _, err = exchange(c, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	stored, err := count(ctx, p.DB, "SELECT count(*) FROM tickets")
	if err != nil {
		return nil, err
	}
	if stored != n {
		return nil, fmt.Errorf("%d of %d were stored", stored, n)
	}
	return []row{
		{What: "POST /api/v1/tickets with a key, 16 clients", Got: rate(perSecond(n, took)), Aim: "≥ 3,000/s"},
		latencyRow("… latency p50, p99", latencies, ""),
	}, p.stop()
}
