package db

import (
	"context"
	"time"
)

// waitPoll is how often [DB.WaitForWrites] looks again.
const waitPoll = 5 * time.Millisecond

// WaitForWrites waits until every transaction is over that had changed or locked a row
// when it was called. So whoever has committed something that writers must heed
// knows that from here on all of them do, and that what those did who did not
// can be read. On SQLite, where one writer follows the other, that is always so.
func (d *DB) WaitForWrites(ctx context.Context) error {
	if d.engine == sqliteEngine {
		return nil
	}
	// Numbers are given out in order, to whoever writes: ours is higher than that of
	// everybody who has one.
	var until int64
	err := d.QueryRow(ctx, "SELECT pg_current_xact_id()::text::bigint").Scan(&until)
	for err == nil {
		var over bool
		err = d.QueryRow(ctx, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= $1", until).Scan(&over)
		if over || err != nil {
			break
		}
		select {
		case <-time.After(waitPoll):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return d.classify(ctx, err)
}
