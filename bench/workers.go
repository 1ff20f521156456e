package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// workersOnMachine measures the curves on the cores that there are.
func workersOnMachine(ctx context.Context, b *bench) ([]row, error) {
	return workers(ctx, b, 0, b.scale(20000))
}

// workersApart measures the curves with a delay per round trip, see [proxy].
func workersApart(ctx context.Context, b *bench) ([]row, error) {
	return workers(ctx, b, b.delay, b.scale(20000))
}

// workers measures how fast 1, 2 and 4 worker processes make tickets of n accepted texts, for
// one organization and for 100, and the share of PostgreSQL's active connections that wait for
// locks meanwhile. The ceiling writes as many rows by one connection, many per commit.
func workers(ctx context.Context, b *bench, delay time.Duration, n int) ([]row, error) {
	suffix, drawn := "", figure{
		Name: "workers", Title: "Worker processes on one PostgreSQL: tickets per second",
		Note: "Below each bar: active connections of PostgreSQL that wait for locks.",
	}
	if delay > 0 {
		suffix = fmt.Sprintf(", each round trip %s (simulated)", delay)
		drawn.Name, drawn.Title = "workers-apart", fmt.Sprintf("Simulated cores of their own, each round trip %s: tickets per second", delay)
	}
	var rows []row
	for _, organizations := range []int{1, 100} {
		organizationsName := "1 organization"
		if organizations > 1 {
			organizationsName = fmt.Sprintf("%d organizations", organizations)
		}
		backlog, bare, err := b.preparedBacklog(ctx, n, organizations)
		if err != nil {
			return nil, err
		}
		defer b.remove(backlog)
		bars := panel{Title: organizationsName, Unit: "/s"}
		for _, processes := range []int{1, 2, 4} {
			got, locks, err := b.process(ctx, backlog, n, processes, delay)
			if err != nil {
				return nil, fmt.Errorf("%s, %d processes: %w", organizationsName, processes, err)
			}
			what := fmt.Sprintf("texts → tickets, %s, %d worker processes%s", organizationsName, processes, suffix)
			if processes == 1 {
				what = fmt.Sprintf("texts → tickets, %s, 1 worker process%s", organizationsName, suffix)
			}
			waits := fmt.Sprintf("%.1f %%, %.1f %%", 100*locks.heavy, 100*locks.light)
			rows = append(rows, besideCeiling(what, got, bare, ""), row{What: "… active connections that wait for locks, for light ones", Got: waits})
			bars.Points = append(bars.Points, point{Label: plural(processes, "process", "processes"), Value: got, Note: fmt.Sprintf("%.1f %% wait", 100*locks.heavy)})
		}
		drawn.Panels = append(drawn.Panels, bars)
	}
	b.draw(drawn)
	return rows, nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// preparedBacklog returns a store with n accepted texts, and the rate of the ceiling.
func (b *bench) preparedBacklog(ctx context.Context, n, organizations int) (s *store, bare float64, err error) {
	other, err := b.newStore(ctx, postgres, "workers-bare")
	if err != nil {
		return nil, 0, err
	}
	defer b.remove(other)
	if bare, err = ceilingRows(ctx, other, n, 12); err != nil {
		return nil, 0, fmt.Errorf("ceiling: %w", err)
	}
	if s, err = b.newStore(ctx, postgres, fmt.Sprintf("backlog-%d", organizations)); err != nil {
		return nil, 0, err
	}
	if err := errors.Join(b.acceptBacklog(ctx, s, n, organizations), s.exec(ctx, "VACUUM ANALYZE")); err != nil {
		b.remove(s)
		return nil, 0, err
	}
	return s, bare, nil
}

// process returns the rate at which a number of processes make tickets of a copy of a backlog,
// from the first ticket to the last, or to the end of the run's duration.
func (b *bench) process(ctx context.Context, backlog *store, n, processes int, delay time.Duration) (perSecond float64, share lockShare, err error) {
	s, err := b.copyDatabase(ctx, backlog)
	if err != nil {
		return 0, share, err
	}
	defer b.drop(s)
	served := *s
	if delay > 0 {
		through, at, err := startProxy(ctx, s.url, delay)
		if err != nil {
			return 0, share, err
		}
		defer through.close()
		served.url = at
	}
	locks, err := watchLocks(ctx, s)
	if err != nil {
		return 0, share, err
	}
	defer func() { share = locks() }()
	begun := make(chan error, 1)
	var first time.Time
	go func() {
		err := s.untilAny(ctx, "tickets")
		first = time.Now()
		begun <- err
	}()
	stop, err := b.serveMany(ctx, &served, processes)
	defer stop()
	if err := errors.Join(err, <-begun); err != nil {
		return 0, share, err
	}
	limited, cancel := context.WithDeadline(ctx, first.Add(b.duration))
	defer cancel()
	err = s.untilNone(limited, "jobs WHERE kind = 'inbound/sms'")
	took := time.Since(first)
	if err != nil && limited.Err() == nil {
		return 0, share, err
	}
	made, failed := s.number(ctx, "SELECT count(*) FROM tickets")
	if failed == nil && err == nil && int(made) != n {
		failed = fmt.Errorf("%d of %d texts became tickets", made, n)
	}
	return float64(made) / took.Seconds(), share, failed
}

// serveMany starts worker processes at once. The caller calls stop, also after an error.
func (b *bench) serveMany(ctx context.Context, s *store, processes int) (stop func(), err error) {
	if _, err := b.build(ctx); err != nil {
		return func() {}, err
	}
	all, failed := make([]*server, processes), make([]error, processes)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i], failed[i] = b.serve(ctx, s, "worker") })
	}
	wg.Wait()
	return func() {
		for i, p := range all {
			if failed[i] == nil {
				p.stop()
			}
		}
	}, errors.Join(failed...)
}
