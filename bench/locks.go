package main

import (
	"context"
	"sync"
	"time"
)

// lockShare is the share of PostgreSQL's active connections to a database that wait.
type lockShare struct {
	heavy float64 // for locks of rows, tables and transactions, and advisory locks
	light float64 // for the server's inner locks
}

// watchLocks samples the connections to a store's database, without its own. The returned
// function stops it.
func watchLocks(ctx context.Context, s *store) (stop func() lockShare, err error) {
	d, err := s.open()
	if err != nil {
		return nil, err
	}
	var active, heavy, light int
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-end:
				return
			}
			var a, h, l int
			// A sample that fails is one sample less.
			if d.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE wait_event_type = 'Lock'), count(*) FILTER (WHERE wait_event_type = 'LWLock')
				FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()`).Scan(&a, &h, &l) == nil {
				active, heavy, light = active+a, heavy+h, light+l
			}
		}
	})
	return func() lockShare {
		close(end)
		wg.Wait()
		d.Close()
		if active == 0 {
			return lockShare{}
		}
		return lockShare{float64(heavy) / float64(active), float64(light) / float64(active)}
	}, nil
}
