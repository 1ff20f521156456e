package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Notify sends payloads to the other processes on the same PostgreSQL database. Delivery is not
// guaranteed, so listeners must also poll. On SQLite it does nothing.
func (d *DB) Notify(ctx context.Context, channel string, payloads []string) error {
	if !d.Notifies() || len(payloads) == 0 {
		return nil
	}
	if d.simulator != nil {
		return d.simulator.Notify(ctx, channel, payloads)
	}
	rows, err := d.Query(ctx, "SELECT pg_notify($1, p) FROM unnest($2::text[]) AS p", channel, payloads)
	if err != nil {
		return err
	}
	return rows.Close()
}

// listenCheck is the interval of checks of a listening connection, and of polling.
const listenCheck = 5 * time.Second

// Listen calls hear for every payload that any process sends to channel, until ctx ends or d is
// closed. It reconnects after errors. After each (re)connection it calls hear with an empty
// payload, because notifications may be lost. Through a pooler, which passes no notifications
// on, it calls hear with an empty payload every five seconds, unless there is a direct URL. On
// SQLite it only waits.
func (d *DB) Listen(ctx context.Context, channel string, hear func(payload string)) {
	if !d.Notifies() {
		select {
		case <-d.closed:
		case <-ctx.Done():
		}
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-d.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	if d.simulator != nil {
		d.simulator.Listen(ctx, channel, hear)
		return
	}
	if d.Pooled() && d.direct == nil {
		for ctx.Err() == nil {
			hear("")
			loop.Pause(ctx, listenCheck)
		}
		return
	}
	for ctx.Err() == nil {
		err := d.listenOnce(ctx, channel, hear)
		if ctx.Err() != nil {
			return
		}
		if err = d.classify(ctx, err); problem.Of(err) != problem.Unavailable { // which classify logs
			d.log.WarnContext(ctx, "listening to the database was interrupted", "channel", channel, "error", err)
		}
		loop.Pause(ctx, time.Second)
	}
}

func (d *DB) listenOnce(ctx context.Context, channel string, hear func(string)) error {
	if d.direct != nil {
		c, err := d.direct.connectAdmitted(ctx)
		if err != nil {
			return err
		}
		return c.listen(ctx, channel, hear)
	}
	r, err := d.acquirePostgres(ctx)
	if err != nil {
		return err
	}
	defer r.Destroy()
	return r.Value().listen(ctx, channel, hear)
}

// listen calls hear for notifications until the connection fails, and closes the connection,
// which must not return to a pool.
func (c *postgresConn) listen(ctx context.Context, channel string, hear func(string)) error {
	defer c.close()
	if _, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	hear("")
	for c.valid() {
		limited, cancel := context.WithTimeout(ctx, listenCheck)
		n, err := c.WaitForNotification(limited)
		quiet := limited.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			hear(n.Payload)
		case quiet: // a server may vanish without a word
			_, err = c.Exec(ctx, "-- ping", pgx.QueryExecModeSimpleProtocol)
		}
		if err != nil {
			return err
		}
	}
	return errReplaced
}

var errReplaced = errors.New("the server was lost, or became read-only")
