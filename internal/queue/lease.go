package queue

import (
	"context"
	"errors"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// CheckLeaseTx returns [ErrLeaseLost] unless the claim's lease is valid by the database's clock.
// Until the end of the transaction no other process can claim the job.
func (j *Job) CheckLeaseTx(ctx context.Context, tx *db.Tx) error {
	var id string
	err := tx.QueryRow(ctx, "SELECT id FROM jobs WHERE id = $1 AND lease = $2 AND lease_until > $3 FOR UPDATE", j.ID, j.lease, tx.Now.UnixMicro()).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return ErrLeaseLost
	}
	return err
}

// CheckLease returns [ErrLeaseLost] if the claim's lease may have ended, by the monotonic clock of
// this process. A process that stood still learns it here at once.
func (j *Job) CheckLease() error {
	r := j.queue.runners[j.Kind]
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Until(j.until) <= 0 {
		return ErrLeaseLost
	}
	return nil
}
