package event

import (
	"context"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// purgeStep bounds the rows that one transaction of [Purge] examines, and so the
// time it delays other writes.
const purgeStep = 500

// Purge deletes the events written before a time, except events with stored
// deliveries, which may be sent or resent and show the sent content, and those that share
// their rows. It works in small steps, oldest first, and returns the number of deleted rows.
func Purge(ctx context.Context, d *db.DB, before time.Time) (int, error) {
	total := 0
	for _, some := range []func(context.Context, *db.DB, string, time.Time) (int, string, error){purgeSome, purgeFleetSome} {
		after := ""
		err := db.Steps(ctx, func() (more bool, err error) {
			n, last, err := some(ctx, d, after, before)
			total, after = total+n, last
			return last != "", err
		})
		if err != nil {
			return total, fmt.Errorf("delete old events: %w", err)
		}
	}
	return total, nil
}

// purgeSome deletes a step of events after an id. It returns the id of the last
// event examined; empty at the end.
func purgeSome(ctx context.Context, d *db.DB, after string, before time.Time) (n int, last string, err error) {
	err = d.Write(ctx, func(tx *db.Tx) error {
		n, last = 0, ""
		ids, err := db.All(ctx, tx, func(row db.Row) (id string, err error) {
			err = row.Scan(&id)
			return id, err
		}, "SELECT id FROM events WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3", after, FirstID(before), purgeStep)
		if err != nil || len(ids) == 0 {
			return err
		}
		deleted, err := tx.Exec(ctx, `DELETE FROM events WHERE id = ANY($1) AND created_at < $2
			AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id >= events.id
				AND d.event_id <= CASE WHEN members IS NULL THEN events.id ELSE substr(events.id, 1, 35) || 'f' END)`, ids, before.UnixMicro())
		if n = int(deleted); len(ids) == purgeStep {
			last = ids[purgeStep-1]
		}
		return err
	})
	if err != nil {
		return 0, "", err
	}
	return n, last, nil
}
