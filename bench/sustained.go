package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// sustained measures texts that are accepted while the same server processes them, for the
// given duration, from outside: 64 clients keep sending, each text from a new number, so that
// each becomes a ticket. The ceiling is a bare server, a process of its own, before and after.
func sustained(ctx context.Context, b *bench, e engine) ([]row, error) {
	bare, err := b.newStore(ctx, e, "sustained-bare")
	if err != nil {
		return nil, err
	}
	defer b.remove(bare)
	s, err := b.newStore(ctx, e, "sustained")
	if err != nil {
		return nil, err
	}
	defer b.remove(s)
	p, err := b.openOn(ctx, s, false) // creates the organization
	if err != nil {
		return nil, err
	}
	if err := p.stop(); err != nil {
		return nil, err
	}
	ceiling, err := startBare(ctx, bare)
	if err != nil {
		return nil, err
	}
	defer ceiling.stop()

	before, err := sendFor(ctx, ceiling.url, 0, b.duration/4)
	if err != nil {
		return nil, fmt.Errorf("ceiling: %w", err)
	}
	out, err := b.serve(ctx, s, "web,worker")
	if err != nil {
		return nil, err
	}
	defer out.stop()
	tickets, err := watchTickets(ctx, s)
	if err != nil {
		return nil, err
	}
	got, err := sendFor(ctx, out.url, 0, b.duration)
	made := tickets()
	if err != nil {
		return nil, err
	}
	if err := out.stop(); err != nil {
		return nil, err
	}
	after, err := sendFor(ctx, ceiling.url, before.n(), b.duration/4)
	if err != nil {
		return nil, fmt.Errorf("ceiling: %w", err)
	}
	stored, err := s.number(ctx, "SELECT count(*) FROM inbound_events")
	if err != nil {
		return nil, err
	}
	if int(stored) != got.n() {
		return nil, fmt.Errorf("%d texts were accepted and %d are stored", got.n(), stored)
	}
	last := made[len(made)-1]
	b.draw(got.figure(e, made))
	what := fmt.Sprintf("signed texts accepted while they are processed, from outside, 64 clients, %s", b.duration)
	return []row{
		besideCeiling(what+e.suffix(), got.rate(), perSecond(before.n()+after.n(), before.took+after.took), "≥ 0.45"),
		{What: "… latency p50, p99, p99.9", Got: ms(got.quantile(0.5)) + ", " + ms(got.quantile(0.99)) + ", " + ms(got.quantile(0.999))},
		{What: "… tickets made meanwhile", Got: rate(float64(last.n) / last.at.Seconds())},
	}, nil
}

// sent is the outcome of a load of texts.
type sent struct {
	took    time.Duration
	samples []sample
}

func (s sent) n() int        { return len(s.samples) }
func (s sent) rate() float64 { return perSecond(len(s.samples), s.took) }

func (s sent) quantile(q float64) time.Duration {
	latencies := make([]time.Duration, len(s.samples))
	for i, one := range s.samples {
		latencies[i] = one.took
	}
	return quantile(latencies, q)
}

// sendFor sends texts from 64 clients for a time, the first from the given number on.
func sendFor(ctx context.Context, base string, first int, d time.Duration) (sent, error) {
	end := time.Now().Add(d)
	took, samples, err := loadWhile(clients, func(int) bool { return time.Now().Before(end) }, func(c *http.Client, i int) error {
		return postOne(ctx, c, textOf(base, first+i, first+i))
	})
	return sent{took, samples}, err
}

// progress is a number of tickets at a time since the begin.
type progress struct {
	at time.Duration
	n  int
}

// watchTickets reads the number of tickets, at intervals of a second at most. The returned
// function stops it, and returns them with that at the end as the last.
func watchTickets(ctx context.Context, s *store) (stop func() []progress, err error) {
	d, err := s.open()
	if err != nil {
		return nil, err
	}
	var list []progress
	begin := time.Now()
	read := func() {
		var n int
		// A count that fails is one point less.
		if d.QueryRowContext(ctx, "SELECT count(*) FROM tickets").Scan(&n) == nil {
			list = append(list, progress{time.Since(begin), n})
		}
	}
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				read()
			case <-end:
				return
			}
		}
	})
	return func() []progress {
		close(end)
		wg.Wait()
		read()
		d.Close()
		return list
	}, nil
}

// figure draws the texts accepted and the tickets made, second by second.
func (s sent) figure(e engine, made []progress) figure {
	accepted := make([]point, max(int(s.took/time.Second), 1))
	for i := range accepted {
		accepted[i].Label = fmt.Sprintf("%d s", i+1)
	}
	for _, one := range s.samples {
		if i := int(one.at / time.Second); i < len(accepted) {
			accepted[i].Value++
		}
	}
	var tickets []point
	var last progress
	for _, p := range made {
		if p.at > last.at+100*time.Millisecond {
			tickets = append(tickets, point{Label: fmt.Sprintf("%.0f s", p.at.Seconds()), Value: float64(p.n-last.n) / (p.at - last.at).Seconds()})
		}
		last = p
	}
	name, title := "sustained", "64 clients keep sending, SQLite"
	if e == postgres {
		name, title = "sustained-postgres", "64 clients keep sending, PostgreSQL"
	}
	return figure{Name: name, Title: title, Panels: []panel{
		{Title: "Texts accepted per second", Unit: "/s", Line: true, Points: accepted},
		{Title: "Tickets made per second", Unit: "/s", Line: true, Points: tickets},
	}}
}
