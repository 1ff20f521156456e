package db

import (
	"context"
	"time"

	"github.com/kickstand-dev/kickstand/internal/loop"
)

// waitPoll is the interval between checks of [DB.WaitForWrites].
const waitPoll = 5 * time.Millisecond

// WaitForWrites waits until all transactions have ended that had changed or locked a row at the
// time of the call. After it, every later writer sees the changes committed before the call,
// and the changes of every earlier writer are readable. On SQLite, with its single writer, it
// returns at once.
func (d *DB) WaitForWrites(ctx context.Context) error {
	if d.engine == sqliteEngine {
		return nil
	}
	// Transaction ids are assigned to writers in order: this one exceeds all that are in use.
	var until int64
	err := d.QueryRow(ctx, "SELECT pg_current_xact_id()::text::bigint").Scan(&until)
	for err == nil {
		var over bool
		err = d.QueryRow(ctx, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= $1", until).Scan(&over)
		if over || err != nil {
			break
		}
		err = loop.Pause(ctx, waitPoll)
	}
	return d.classify(ctx, err)
}
