package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
)

// growth measures the CPU that the main operations cost a server with 10^4, 10^5 and 10^6
// tickets stored, and fits an exponent: an operation of n^0.1 costs a quarter more with ten times
// the tickets. Texts, lists and searches are from outside.
func growth(ctx context.Context, b *bench) ([]row, error) {
	var sizes []int
	var costs [][]float64 // by operation and size, in µs
	var names []string
	for _, full := range []int{10_000, 100_000, 1_000_000} {
		n := b.scale(full)
		sizes = append(sizes, n)
		measured, err := b.grown(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("%d tickets: %w", n, err)
		}
		for i, m := range measured {
			if len(costs) <= i {
				costs, names = append(costs, nil), append(names, m.what)
			}
			costs[i] = append(costs[i], float64(m.cpu.Microseconds())/float64(m.n))
		}
	}
	drawn := figure{Name: "growth", Title: "CPU per operation, by stored tickets", Note: "Both scales are logarithmic.", Sizes: sizes}
	var rows []row
	for i, name := range names {
		var got []string
		line := panel{Title: name, Unit: "µs"}
		for j, c := range costs[i] {
			got = append(got, fmt.Sprintf("%.0f µs", c))
			line.Points = append(line.Points, point{Label: fmt.Sprint(sizes[j]), Value: c})
		}
		drawn.Panels = append(drawn.Panels, line)
		rows = append(rows, row{
			What: fmt.Sprintf("%s, CPU with %s, %s and %s tickets", name, grouped(int64(sizes[0])), grouped(int64(sizes[1])), grouped(int64(sizes[2]))),
			Got:  strings.Join(got, ", "), Ratio: fmt.Sprintf("n^%.2f", exponent(sizes, costs[i])), Aim: "≤ n^0.1",
		})
	}
	b.draw(drawn)
	return rows, nil
}

// exponent fits cost = c · size^x by least squares of the logarithms, and returns x.
func exponent(sizes []int, costs []float64) float64 {
	var x, y, xx, xy float64
	n := float64(len(sizes))
	for i, size := range sizes {
		lx, ly := math.Log(float64(size)), math.Log(costs[i])
		x, y, xx, xy = x+lx, y+ly, xx+lx*lx, xy+lx*ly
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

// grown measures the operations of a server with n tickets.
func (b *bench) grown(ctx context.Context, n int) ([]unitCost, error) {
	s := &store{data: filepath.Join(b.folder(), fmt.Sprintf("growth-%d", n))}
	if err := b.fillGrown(ctx, s, n); err != nil {
		return nil, err
	}
	p, err := b.openOn(ctx, s, false)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	key, err := p.createKey(ctx, apikey.Helpdesk)
	if err != nil {
		return nil, err
	}
	if err := p.stop(); err != nil {
		return nil, err
	}
	out, err := b.serve(ctx, s, "web,worker")
	if err != nil {
		return nil, err
	}
	defer out.stop()
	cookies, err := (&program{url: out.url}).call(ctx, http.DefaultClient, http.MethodPost, "auth.signInWithPassword", nil,
		`{"json":{"email":"first@example.com","password":"`+benchPassword+`"}}`)
	if err != nil {
		return nil, err
	}
	var list []unitCost
	for _, o := range b.grownOperations(ctx, &costStore{store: s, key: key}, cookies, n) {
		// As many requests before, to fill caches.
		if err := o.run(out.url); err != nil {
			return nil, fmt.Errorf("%s: %w", o.what, err)
		}
		used, err := out.spend(ctx, func() error { return o.run(out.url) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.what, err)
		}
		list = append(list, unitCost{operation: o, spent: used})
	}
	return list, out.stop()
}

// fillGrown writes n tickets with messages into a store, unless an earlier run did.
func (b *bench) fillGrown(ctx context.Context, s *store, n int) error {
	done := filepath.Join(s.data, "filled")
	if _, err := os.Stat(done); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(s.data); err != nil { // a part, of a run that was stopped
		return err
	}
	p, err := b.openOn(ctx, s, false)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := p.fillInbox(ctx, n, true); err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return err
	}
	return os.WriteFile(done, nil, 0o600)
}

// grownOperations returns the operations of a server with n tickets.
func (b *bench) grownOperations(ctx context.Context, c *costStore, cookies []*http.Cookie, n int) []operation {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	read := func(what string, units int, path func() string) operation {
		paths := make([]string, units)
		for i := range paths {
			paths[i] = path()
		}
		return operation{what: what, n: units, run: func(base string) error {
			_, _, err := load(units, 8, func(client *http.Client, i int) error { return c.get(ctx, client, base, paths[i]) })
			return err
		}}
	}
	sent, made := 0, 0
	textsEach, ticketsEach, pagesEach := b.scale(4000), b.scale(4000), b.scale(1000)
	return []operation{
		{what: "text → ticket", n: textsEach, run: func(base string) error {
			first := sent
			sent += textsEach
			_, _, err := load(textsEach, clients, func(client *http.Client, i int) error {
				return postOne(ctx, client, textOf(base, first+i, first+i))
			})
			return errors.Join(err, c.untilIdle(ctx))
		}},
		{what: "POST /api/v1/tickets", n: ticketsEach, run: func(base string) error {
			first := made
			made += ticketsEach
			_, _, err := load(ticketsEach, 16, func(client *http.Client, i int) error {
				_, err := c.createTicket(ctx, client, base, n+first+i)
				return err
			})
			return errors.Join(err, c.untilIdle(ctx))
		}},
		read("GET /api/v1/tickets/{id}", 4*ticketsEach, func() string {
			i := 1 + random.IntN(n)
			return fmt.Sprintf("/tickets/0190c0de-%04x-7000-8000-%012x", i>>16, i)
		}),
		read("list of open tickets", pagesEach, func() string { return "/tickets?limit=30&status=open" }),
		read("list by tag and priority", pagesEach, func() string {
			return fmt.Sprintf("/tickets?limit=30&tags=tag%d&sort=-priority", random.IntN(59))
		}),
		read("search for a rare word", pagesEach, func() string { return fmt.Sprintf("/tickets?limit=30&q=w%d+", 30+random.IntN(270)) }),
		read("search for a frequent word", pagesEach, func() string { return "/tickets?limit=30&q=scooter+" }),
		{what: "inbox page", n: pagesEach, run: func(base string) error {
			_, _, err := load(pagesEach, 8, func(client *http.Client, _ int) error {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/inbox", nil)
				if err != nil {
					return err
				}
				for _, cookie := range cookies {
					r.AddCookie(cookie)
				}
				_, _, err = exchange(client, r)
				return err
			})
			return err
		}},
	}
}
