package db

import (
	"context"
	"sync"
	"time"
)

// Simulator stands between a handle of [DB.Simulated] and its SQLite database. It gives the
// handle a process of its own in front of a shared server: the server's clock, notifications,
// and failures of the connection. Package sim implements it for tests.
type Simulator interface {
	// Now returns the server's clock.
	Now() time.Time
	// Read is called before every reading call, which an error refuses.
	Read(ctx context.Context) error
	// Write runs a writing call: run runs it and commits, unless it or end returns an error.
	// end is called last in the transaction. answer must follow a commit if the process hears
	// of it. Write returns the result that the process gets.
	Write(ctx context.Context, run func(end func(tx *Tx) error) error, answer func()) error
	// Notify sends payloads to the listeners of other handles.
	Notify(ctx context.Context, channel string, payloads []string) error
	// Listen is [DB.Listen].
	Listen(ctx context.Context, channel string, hear func(payload string))
}

// Simulated returns a handle of a SQLite database that passes every call through s, as if the
// handle belonged to one of several processes. Closing it leaves d open. It is for tests.
func (d *DB) Simulated(s Simulator) *DB {
	d.readers.forever.Store(true) // hours pass quickly
	return &DB{
		engine: d.engine, url: d.url, log: d.log, readers: d.readers, writer: d.writer, wall: d.wall, local: d.local, ids: new(ids), simulator: s,
		bulkReads: make(chan struct{}, maxBulkReads), closed: make(chan struct{}),
	}
}

// Notifies reports whether notifications reach other processes.
func (d *DB) Notifies() bool { return d.engine == postgresEngine || d.simulator != nil }

func (d *DB) writeSimulated(ctx context.Context, fn func(*Tx) error) error {
	if !d.begin() {
		return errClosed
	}
	defer d.work.Done()
	var after []func()
	run := func(end func(*Tx) error) error {
		return d.writer.do(ctx, func(tx *Tx) error {
			tx.Now, tx.ids = d.simulator.Now(), d.ids
			if err := fn(tx); err != nil {
				return err
			}
			if err := tx.runBefore(); err != nil {
				return err
			}
			after, tx.after = tx.after, nil
			return end(tx)
		})
	}
	var once sync.Once
	return d.simulator.Write(ctx, run, func() {
		once.Do(func() {
			for _, fn := range after {
				fn()
			}
		})
	})
}
