package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"

	"golang.org/x/sync/errgroup"
)

// BulkLoad is [Service.Seed] for load tests: of any size, without state changes of
// vehicles. It uses many transactions and, on SQLite, drops the indexes of rides
// meanwhile, so it needs the database to itself. If it fails, discard the
// organization.
func (s *Service) BulkLoad(ctx context.Context, o Organization, size SeedSize) error {
	if size.Vehicles < sandboxSize.Vehicles || size.Customers < sandboxSize.Customers || size.Days < 1 {
		return fmt.Errorf("load a fleet: must have at least %d vehicles, %d customers and a day", sandboxSize.Vehicles, sandboxSize.Customers)
	}
	var a orgContext
	err := s.db.Write(ctx, func(tx *db.Tx) (err error) {
		a, err = s.requireEmpty(ctx, tx, o)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.bulkLoad(ctx, a, o, size); err != nil {
		return fmt.Errorf("load a fleet: %w", err)
	}
	if err := s.PackRollups(ctx, o.ID); err != nil {
		return fmt.Errorf("load a fleet: %w", err)
	}
	s.provisioned.Store(o.ID, true)
	return nil
}

func (s *Service) bulkLoad(ctx context.Context, a orgContext, o Organization, size SeedSize) (err error) {
	restore, err := s.dropRideIndexes(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore(context.WithoutCancel(ctx))) }()
	f := newSimulator(o, s.live, a.settings, a.now, size)
	f.history = false
	if err := s.loadRides(ctx, a, f); err != nil {
		return err
	}
	for _, c := range f.cities {
		if err := s.loadCity(ctx, a, c); err != nil {
			return err
		}
	}
	return nil
}

const (
	ridesAtOnce = 1000 // per batch between stages
	ridesWrite  = 20   // batches per transaction
)

// loadRides generates, encodes and inserts rides in concurrent stages.
func (s *Service) loadRides(ctx context.Context, a orgContext, f *simulator) error {
	g, ctx := errgroup.WithContext(ctx)
	rides, rows := make(chan []*Ride, 2), make(chan [][]column, ridesWrite)
	g.Go(func() error { return generateRides(ctx, f, rides) })
	g.Go(func() error { return encodeRides(ctx, a.settings, rides, rows) })
	g.Go(func() error { return s.insertRides(ctx, a.id, rows) })
	return g.Wait()
}

// send sends a batch to the next stage. Its error is that of the context.
func send[T any](ctx context.Context, to chan<- T, batch T) error {
	select {
	case to <- batch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// generateRides sends the rides of a simulator in batches.
func generateRides(ctx context.Context, f *simulator, to chan<- []*Ride) error {
	defer close(to)
	batch := make([]*Ride, 0, ridesAtOnce)
	err := f.run(func(r *Ride, _ []StateChange) error {
		if r == nil {
			return nil
		}
		if batch = append(batch, r); len(batch) < ridesAtOnce {
			return nil
		}
		full := batch
		batch = make([]*Ride, 0, ridesAtOnce)
		return send(ctx, to, full)
	})
	if err != nil {
		return err
	}
	return send(ctx, to, batch)
}

// encodeRides sends the rows of rides.
func encodeRides(ctx context.Context, settings *Settings, from <-chan []*Ride, to chan<- [][]column) error {
	defer close(to)
	for batch := range from {
		rows := make([][]column, len(batch))
		for i, r := range batch {
			if err := r.encode(settings); err != nil {
				return err
			}
			rows[i] = r.columns()
		}
		if err := send(ctx, to, rows); err != nil {
			return err
		}
	}
	return nil
}

// insertRides inserts rows of rides, up to ridesWrite batches per transaction.
func (s *Service) insertRides(ctx context.Context, organizationID string, from <-chan [][]column) error {
	index := s.rideIndex.NewLoader(organizationID)
	for rows := range from {
		// Add the batches that are ready. They are received outside of the
		// transaction, which may be retried.
		group := [][][]column{rows}
		for len(group) < ridesWrite {
			more, ok := <-from
			if !ok {
				break
			}
			group = append(group, more)
		}
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			for _, row := range slices.Concat(group...) {
				if err := insertOne(ctx, tx, "rides", organizationID, row); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, row := range slices.Concat(group...) {
			e, err := indexEntry(row)
			if err != nil {
				return err
			}
			if e == nil {
				continue
			}
			if err := index.Add(ctx, *e); err != nil {
				return err
			}
		}
	}
	return index.Flush(ctx)
}

// loadCity writes a city in several transactions.
func (s *Service) loadCity(ctx context.Context, a orgContext, c *simCity) error {
	whole := *c
	c = &whole
	for first := true; first || len(c.customers) > 0 || len(c.vehicles) > 0; first = false {
		part := simCity{customers: c.customers[:min(ridesAtOnce, len(c.customers))], vehicles: c.vehicles[:min(ridesAtOnce, len(c.vehicles))]}
		c.customers, c.vehicles = c.customers[len(part.customers):], c.vehicles[len(part.vehicles):]
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			if first {
				if err := c.insertStatic(ctx, tx, a); err != nil {
					return err
				}
			}
			return part.insertCustomersAndVehicles(ctx, tx, a)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// dropRideIndexes drops the indexes of rides except the primary key, and returns a
// function that recreates them. On SQLite this takes a fifth of the time of
// maintaining them during a load of millions. On PostgreSQL it does nothing.
func (s *Service) dropRideIndexes(ctx context.Context) (restore func(context.Context) error, err error) {
	if s.db.Postgres() {
		return func(context.Context) error { return nil }, nil
	}
	type index struct{ name, definition string }
	list, err := db.All(ctx, s.db, func(row db.Row) (i index, err error) {
		err = row.Scan(&i.name, &i.definition)
		return i, err
	}, "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'rides' AND sql IS NOT NULL ORDER BY name")
	if err != nil {
		return nil, fmt.Errorf("list the indexes of rides: %w", err)
	}
	each := func(ctx context.Context, statement func(index) string) error {
		for _, i := range list {
			err := s.db.Write(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, statement(i))
				return err
			})
			if err != nil {
				return fmt.Errorf("index %s: %w", i.name, err)
			}
		}
		return nil
	}
	restore = func(ctx context.Context) error { return each(ctx, func(i index) string { return i.definition }) }
	return restore, each(ctx, func(i index) string { return "DROP INDEX " + i.name })
}
