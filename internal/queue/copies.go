package queue

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// DerivedTables number jobs, by other means on each engine. They are not copied.
var DerivedTables = []string{"job_numbers"}

// RenumberTx continues the numbers of jobs and claims after those of a database whose rows were
// copied into this one, also after fencing tokens that other packages keep. There are fewer
// numbers than microseconds, so it continues at the time.
func RenumberTx(ctx context.Context, tx *db.Tx, postgres bool) error {
	query := "UPDATE job_numbers SET last = max(last, $1, (SELECT coalesce(max(seq), 0) FROM jobs))"
	if postgres {
		query = "SELECT setval('jobs_seq', greatest(nextval('jobs_seq'), $1, (SELECT max(seq) FROM jobs)))"
	}
	if err := tx.Queue(ctx, query, tx.Now.UnixMicro()); err != nil {
		return fmt.Errorf("continue the numbers of jobs: %w", err)
	}
	return nil
}
