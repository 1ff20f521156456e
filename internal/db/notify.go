package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/kickstand-dev/kickstand/internal/loop"
)

// Notify sends payloads to the other processes on the same PostgreSQL database. Delivery is not
// guaranteed, so listeners must also poll. On SQLite it does nothing.
func (d *DB) Notify(ctx context.Context, channel string, payloads []string) error {
	if d.engine == sqliteEngine || len(payloads) == 0 {
		return nil
	}
	_, err := d.pool.ExecContext(ctx, "SELECT pg_notify($1, p) FROM unnest($2::text[]) AS p", channel, payloads)
	return d.classify(ctx, err)
}

// Listen calls hear for every payload that any process sends to channel, until ctx ends or d is
// closed. It reconnects after errors. After each (re)connection it calls hear with an empty
// payload, because notifications may be lost. On SQLite it only waits.
func (d *DB) Listen(ctx context.Context, channel string, hear func(payload string)) {
	if d.engine == sqliteEngine {
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
	for ctx.Err() == nil {
		err := d.listenOnce(ctx, channel, hear)
		if ctx.Err() != nil {
			return
		}
		d.log.WarnContext(ctx, "listening to the database was interrupted", "channel", channel, "error", err)
		loop.Pause(ctx, time.Second)
	}
}

func (d *DB) listenOnce(ctx context.Context, channel string, hear func(string)) error {
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driverConn any) error {
		pg := driverConn.(*stdlib.Conn).Conn()
		// A listening connection must not return to the pool.
		defer pg.Close(context.WithoutCancel(ctx))
		if _, err := pg.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
		hear("")
		for {
			n, err := pg.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			hear(n.Payload)
		}
	})
}
