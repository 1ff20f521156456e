package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// cost measures what a text, a delivery and a request cost. CPU, bytes and allocations are
// those of a server, a process of its own; statements are counted in this process, over the
// same work. On PostgreSQL, the bytes are those of its write-ahead log, and the round trips are
// those between the server and PostgreSQL.
func cost(ctx context.Context, b *bench, e engine) ([]row, error) {
	var rows []row
	for _, roles := range []string{"web", "web,worker"} {
		n := b.scale(20000)
		measured, err := b.costOutside(ctx, e, roles, n)
		if err != nil {
			return nil, err
		}
		statements, err := b.costInside(ctx, e, roles, min(n, 2000))
		if err != nil {
			return nil, err
		}
		for i, m := range measured {
			rows = append(rows, m.rows(e, statements[i])...)
			if m.listed {
				b.tables = append(b.tables, m.table(e, statements[i]))
			}
		}
	}
	return rows, nil
}

// operation is work whose cost is measured.
type operation struct {
	what   string
	n      int // units of the work
	listed bool
	run    func(base string) error
}

// costStore is a store for operations.
type costStore struct {
	*store
	key      string
	receiver *receiver
}

// newCostStore returns a store with an organization, an API key and a webhook whose deliveries
// wait. The caller closes it.
func (b *bench) newCostStore(ctx context.Context, e engine, name string) (*costStore, error) {
	s, err := b.newStore(ctx, e, name)
	if err != nil {
		return nil, err
	}
	c := &costStore{store: s, receiver: newReceiver()}
	p, err := b.openOn(ctx, s, false)
	if err != nil {
		return nil, errors.Join(err, b.close(c))
	}
	defer p.stop()
	if c.key, err = p.createKey(ctx, apikey.Helpdesk); err != nil {
		return nil, errors.Join(err, b.close(c))
	}
	w, err := p.Webhooks.Create(ctx, p.org, webhook.New{URL: c.receiver.URL, Events: []string{"ticket.created"}, Secret: new(secret)})
	if err == nil {
		err = p.holdLanes(ctx, w.ID)
	}
	return c, errors.Join(err, p.stop())
}

func (b *bench) close(c *costStore) error {
	c.receiver.Close()
	b.remove(c.store)
	return nil
}

// operations returns what a server with the given roles is measured by, in order.
func (c *costStore) operations(ctx context.Context, roles string, n int) []operation {
	send := func(base string) error {
		_, _, err := post(ctx, texts(base, n, n), clients)
		return err
	}
	if roles == "web" {
		var mu sync.Mutex
		var id string // of a ticket
		return []operation{
			{what: "text accepted", n: n, run: send},
			{what: "POST /api/v1/tickets", n: n / 4, run: func(base string) error {
				_, _, err := load(n/4, 16, func(client *http.Client, i int) error {
					made, err := c.createTicket(ctx, client, base, i)
					mu.Lock()
					defer mu.Unlock()
					id = cmp.Or(id, made)
					return err
				})
				return err
			}},
			{what: "GET /api/v1/tickets/{id}", n: n, run: func(base string) error {
				_, _, err := load(n, clients, func(client *http.Client, _ int) error {
					return c.get(ctx, client, base, "/tickets/"+id)
				})
				return err
			}},
		}
	}
	return []operation{
		{what: "text → ticket, one delivery written", n: n, listed: true, run: func(base string) error {
			if err := send(base); err != nil {
				return err
			}
			return c.untilIdle(ctx)
		}},
		{what: "delivery sent", n: n, listed: true, run: func(string) error {
			if err := c.exec(ctx, "DELETE FROM held_lanes"); err != nil {
				return err
			}
			if err := until(ctx, 5*time.Minute, func() (bool, error) { return c.receiver.n.Load() >= int64(n), nil }); err != nil {
				return fmt.Errorf("%d of %d arrived: %w", c.receiver.n.Load(), n, err)
			}
			return c.untilNone(ctx, "jobs WHERE kind = 'webhook'")
		}},
	}
}

// createTicket creates a ticket by the API and returns its id.
func (c *costStore) createTicket(ctx context.Context, client *http.Client, base string, i int) (string, error) {
	r, err := ticketRequest(ctx, base, c.key, i)
	if err != nil {
		return "", err
	}
	body, _, err := exchange(client, r)
	if err != nil {
		return "", err
	}
	var made struct{ ID string }
	err = json.Unmarshal(body, &made)
	return made.ID, err
}

// get reads a path of the API.
func (c *costStore) get(ctx context.Context, client *http.Client, base, path string) error {
	r, err := keyedRequest(ctx, base, c.key, path)
	if err != nil {
		return err
	}
	_, _, err = exchange(client, r)
	return err
}

// untilIdle waits until all accepted texts are processed and searchable.
func (s *store) untilIdle(ctx context.Context) error {
	if err := s.untilNone(ctx, "jobs WHERE kind = 'inbound/sms'"); err != nil {
		return err
	}
	return s.untilNone(ctx, "search_pending")
}

// untilNone waits until there are no such rows.
func (s *store) untilNone(ctx context.Context, rows string) error {
	return s.untilTrue(ctx, "SELECT NOT EXISTS (SELECT 1 FROM "+rows+")")
}

// untilAny waits until there is such a row.
func (s *store) untilAny(ctx context.Context, rows string) error {
	return s.untilTrue(ctx, "SELECT EXISTS (SELECT 1 FROM "+rows+")")
}

func (s *store) untilTrue(ctx context.Context, query string) error {
	d, err := s.open()
	if err != nil {
		return err
	}
	defer d.Close()
	return until(ctx, 10*time.Minute, func() (yes bool, err error) {
		err = d.QueryRowContext(ctx, query).Scan(&yes)
		return yes, err
	})
}

// unitCost is what an operation has used.
type unitCost struct {
	operation
	spent
	trips int64
}

// costOutside measures the operations of a server.
func (b *bench) costOutside(ctx context.Context, e engine, roles string, n int) ([]unitCost, error) {
	c, err := b.newCostStore(ctx, e, "cost-outside")
	if err != nil {
		return nil, err
	}
	defer b.close(c)
	served, through := *c.store, new(proxy)
	if e == postgres {
		if through, served.url, err = startProxy(ctx, c.url, 0); err != nil {
			return nil, err
		}
		defer through.close()
	}
	p, err := b.serve(ctx, &served, roles)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if err := b.afterStart(ctx); err != nil {
		return nil, err
	}
	var list []unitCost
	for _, o := range c.operations(ctx, roles, n) {
		trips, log := through.trips.Load(), int64(0)
		if e == postgres {
			if log, err = c.logged(ctx); err != nil {
				return nil, err
			}
		}
		used, err := p.spend(ctx, func() error { return o.run(p.url) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.what, err)
		}
		if e == postgres {
			end, err := c.logged(ctx)
			if err != nil {
				return nil, err
			}
			used.written = end - log
		}
		list = append(list, unitCost{o, used, through.trips.Load() - trips})
	}
	return list, p.stop()
}

// afterStart waits for the background work of a start.
func (b *bench) afterStart(ctx context.Context) error {
	if b.short {
		return pause(ctx, 250*time.Millisecond)
	}
	return pause(ctx, 2*time.Second)
}

// logged returns the position in PostgreSQL's write-ahead log in bytes.
func (s *store) logged(ctx context.Context) (int64, error) {
	return s.number(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
}

// spend returns what the server uses for work.
func (p *server) spend(ctx context.Context, work func() error) (spent, error) {
	first, err := p.spent(ctx)
	if err != nil {
		return spent{}, err
	}
	before, err := p.spent(ctx)
	if err != nil {
		return spent{}, err
	}
	if err := work(); err != nil {
		return spent{}, err
	}
	after, err := p.spent(ctx)
	// What is used between two readings is that of the readings.
	used, reading := after.since(before), before.since(first)
	used.mallocs -= reading.mallocs
	used.cpu -= reading.cpu
	return used, err
}

// costInside counts the statements of the same operations, by text, in this process.
func (b *bench) costInside(ctx context.Context, e engine, roles string, n int) ([]map[string]float64, error) {
	c, err := b.newCostStore(ctx, e, "cost-inside")
	if err != nil {
		return nil, err
	}
	defer b.close(c)
	p, err := b.openOn(ctx, c.store, roles == "web,worker")
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if err := b.afterStart(ctx); err != nil {
		return nil, err
	}
	var list []map[string]float64
	for _, o := range c.operations(ctx, roles, n) {
		var mu sync.Mutex
		texts := map[string]int{}
		p.DB.Observer().OnStatement(func(query string) {
			mu.Lock()
			texts[query]++
			mu.Unlock()
		})
		err := o.run(p.url)
		p.DB.Observer().OnStatement(nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.what, err)
		}
		mu.Lock()
		perUnit := map[string]float64{}
		for text, times := range texts {
			perUnit[shorten(text)] += float64(times) / float64(o.n)
		}
		mu.Unlock()
		list = append(list, perUnit)
	}
	return list, p.stop()
}

var (
	spaces = regexp.MustCompile(`\s+`)
	values = regexp.MustCompile(`(\([^()]*\$\d+[^()]*\))(, \([^()]*\$\d+[^()]*\))+`)
)

// shorten returns a statement on one line, alike for any number of rows of values.
func shorten(query string) string {
	query = spaces.ReplaceAllString(strings.TrimSpace(query), " ")
	return values.ReplaceAllString(query, "$1, …")
}

// rows are the rows of a unit's cost.
func (u unitCost) rows(e engine, statements map[string]float64) []row {
	each := func(total float64) float64 { return total / float64(u.n) }
	sum := 0.0
	for _, n := range statements {
		sum += n
	}
	rows := []row{{What: "cost of a " + u.what + e.suffix() + ": CPU of the server", Got: fmt.Sprintf("%.0f µs", each(float64(u.cpu.Microseconds())))}}
	if u.written > 0 { // on tmpfs the system does not count
		rows = append(rows, row{What: "… written", Got: fmt.Sprintf("%.1f KB", each(float64(u.written)/1000))})
	}
	rows = append(rows,
		row{What: "… statements", Got: fmt.Sprintf("%.1f statements", sum)},
		row{What: "… allocations", Got: fmt.Sprintf("%.0f allocations", each(float64(u.mallocs)))})
	if e == postgres {
		rows = append(rows, row{What: "… round trips to PostgreSQL", Got: fmt.Sprintf("%.1f round trips", each(float64(u.trips)))})
	}
	return rows
}

// table lists the statements of a unit, the most frequent first.
func (u unitCost) table(e engine, statements map[string]float64) table {
	list := slices.SortedFunc(maps.Keys(statements), func(a, b string) int {
		return cmp.Or(cmp.Compare(statements[b], statements[a]), cmp.Compare(a, b))
	})
	t := table{Title: "Statements of a " + u.what + e.suffix(), Head: []string{"Each", "Statement"}}
	for _, text := range list {
		if statements[text] >= 0.05 {
			t.Rows = append(t.Rows, []string{fmt.Sprintf("%.2f", statements[text]), text})
		}
	}
	return t
}
