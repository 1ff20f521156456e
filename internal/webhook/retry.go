package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// result is an attempt to record.
type result struct {
	job     *queue.Job
	attempt attempt

	state DeliveryState // new state of the delivery; Pending if it is deleted
	err   error
	done  chan struct{} // closed once written or failed
	lead  chan struct{} // closed to make this goroutine write the next batch
}

// recorder batches the results of attempts that end during a write, so that a busy dispatcher
// records many in one transaction.
type recorder struct {
	mu      sync.Mutex
	writing bool
	waiting []*result
}

// maxBatch bounds the results of one transaction, and so its duration.
const maxBatch = 128

// record writes an attempt, the new state of its delivery and the end or delay of its job, in
// one transaction. It ignores the end of ctx: a sent request must be recorded.
func (s *Service) record(ctx context.Context, r *result) error {
	r.done, r.lead = make(chan struct{}), make(chan struct{})
	rec := &s.recorder
	rec.mu.Lock()
	rec.waiting = append(rec.waiting, r)
	mine := !rec.writing
	rec.writing = true
	rec.mu.Unlock()
	if !mine {
		select {
		case <-r.done:
			return r.err
		case <-r.lead:
		}
	}
	rec.mu.Lock()
	batch := rec.waiting[:min(len(rec.waiting), maxBatch)]
	rec.waiting = slices.Clone(rec.waiting[len(batch):])
	rec.mu.Unlock()

	s.writeBatch(context.WithoutCancel(ctx), batch)

	rec.mu.Lock()
	if len(rec.waiting) > 0 {
		close(rec.waiting[0].lead)
	} else {
		rec.writing = false
	}
	rec.mu.Unlock()
	for _, r := range batch {
		close(r.done)
	}
	// The oldest waiting result leads, so it is in its own batch.
	return r.err
}

// writeBatch records a batch in one transaction. If that fails, it records each result in a
// separate one, so that only the faulty result fails.
func (s *Service) writeBatch(ctx context.Context, batch []*result) {
	slices.SortFunc(batch, func(a, b *result) int {
		return cmp.Or(cmp.Compare(a.job.Lane, b.job.Lane), cmp.Compare(a.job.ID, b.job.ID))
	})
	err := s.db.Write(ctx, func(tx *db.Tx) error { return s.recordResults(ctx, tx, batch) })
	if err != nil && len(batch) > 1 {
		for i, r := range batch {
			err := s.db.Write(ctx, func(tx *db.Tx) error { return s.recordResults(ctx, tx, batch[i:i+1]) })
			if err != nil {
				r.err = err
			}
		}
	} else if err != nil {
		batch[0].err = err
	}
	for i, r := range batch {
		if i == 0 || r.job.Lane != batch[i-1].job.Lane {
			s.turns.next(r.job.Lane)
			s.subjects.wake(r.job.Lane)
		}
	}
}

// recordResults records results sorted by webhook: rows are locked in the same order
// everywhere.
func (s *Service) recordResults(ctx context.Context, tx *db.Tx, batch []*result) error {
	var newest *result // of one webhook
	for i, r := range batch {
		r.err = s.finishOrRetry(ctx, tx, r)
		if r.err != nil && !errors.Is(r.err, queue.ErrLeaseLost) {
			return fmt.Errorf("record attempt: %w", r.err)
		}
		if r.err == nil && (newest == nil || !r.attempt.at.Before(newest.attempt.at)) {
			newest = r
		}
		if last := i == len(batch)-1; newest != nil && (last || batch[i+1].job.Lane != r.job.Lane) {
			if _, err := s.noteNewest(ctx, tx, r.job.Lane, &newest.attempt); err != nil {
				return err
			}
			newest = nil
		}
	}
	return addToCounts(ctx, tx, countDeltas(batch))
}

// noteNewest updates the newest attempt in a webhook's row. It reports whether the webhook
// exists.
func (s *Service) noteNewest(ctx context.Context, tx *db.Tx, id string, a *attempt) (bool, error) {
	var organizationID string
	err := tx.QueryRow(ctx, "UPDATE webhooks SET last_delivery_at = $2, last_error = $3 WHERE id = $1 RETURNING organization_id",
		id, a.at.UnixMicro(), db.Text(a.err)).Scan(&organizationID)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("note the newest attempt: %w", err)
	}
	s.changed(tx, organizationID, id)
	return true, nil
}

// finishOrRetry records one result. [queue.ErrLeaseLost] means that another process owns the
// delivery and nothing was written.
func (s *Service) finishOrRetry(ctx context.Context, tx *db.Tx, r *result) error {
	j, a := r.job, &r.attempt
	r.state = Pending
	if a.outcome != retryable {
		if err := j.FinishTx(ctx, tx); err != nil {
			return err
		}
		state := Delivered
		if a.outcome == rejected {
			state = DeliveryFailed
		}
		return s.storeAttempt(ctx, tx, r, state, time.Time{})
	}

	var attempts int // of the current schedule
	var schedule Schedule
	var ordered bool
	// The lock prevents a concurrent change to ordered delivery, which would not move this job:
	// it is not waiting yet.
	err := tx.QueryRow(ctx, `SELECT d.attempts - d.schedule_start, w.retry_schedule, w.ordered FROM deliveries d JOIN webhooks w ON w.id = d.webhook_id
		WHERE d.webhook_id = $1 AND d.id = $2 FOR UPDATE OF w`, j.Lane, j.ID).Scan(&attempts, &schedule, &ordered)
	if errors.Is(err, db.ErrNoRows) {
		return j.FinishTx(ctx, tx) // the webhook was deleted
	}
	if err != nil {
		return err
	}
	if delay, again := schedule.Delay(attempts+1, a.retryAfter); again {
		at := a.at.Add(a.latency).Add(withJitter(delay, s.scale, rand.Float64())).Truncate(time.Microsecond)
		if err := j.RetryTx(ctx, tx, at); err != nil {
			return err
		}
		if kind := kindOf(event.Helpdesk, ordered); kind != j.Kind && j.Kind != FleetKind { // changed during the attempt
			if _, err := s.queue.MoveLaneTx(ctx, tx, j.Kind, kind, j.Lane); err != nil {
				return err
			}
		}
		return s.storeAttempt(ctx, tx, r, Retrying, at)
	}
	if err := j.FinishTx(ctx, tx); err != nil {
		return err
	}
	if err := s.storeAttempt(ctx, tx, r, DeliveryFailed, time.Time{}); err != nil {
		return err
	}
	if err := tx.Queue(ctx, "UPDATE deliveries SET exhausted = $3 WHERE webhook_id = $1 AND id = $2", j.Lane, j.ID, j.Order()); err != nil {
		return err
	}
	return s.suspendFailed(ctx, tx, j.Lane, a.err)
}

// storeAttempt writes an attempt into its delivery; the previous attempt moves to the table of
// old ones.
func (s *Service) storeAttempt(ctx context.Context, tx *db.Tx, r *result, state DeliveryState, next time.Time) error {
	j, a := r.job, &r.attempt
	r.state = state
	if j.Attempt > 0 || decodePayload(j.Payload).recovered {
		if err := tx.Queue(ctx, `INSERT INTO delivery_attempts (webhook_id, delivery_id, attempt, attempted_at, status, latency, error, response, version, body_sum, signatures)
			SELECT webhook_id, id, attempts, attempted_at, status, latency, error, response, version, body_sum, signatures FROM deliveries
			WHERE webhook_id = $1 AND id = $2 AND attempts > 0`, j.Lane, j.ID); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `UPDATE deliveries SET state = $3, next_at = $4, attempts = attempts + 1,
		attempted_at = $5, status = $6, latency = $7, error = $8, response = $9, version = $10, body_sum = $11, signatures = $12
		WHERE webhook_id = $1 AND id = $2`,
		j.Lane, j.ID, int64(state), db.Time(next), a.at.UnixMicro(), orNil(a.status), a.latency.Microseconds(),
		db.Text(a.err), db.Text(a.response), orNil(a.sent.version), orNil(a.sent.sum), orNilBytes(a.sent.signatures))
	return err
}

// orNil returns the stored form of an optional number: NULL for 0.
func orNil[T int | int64](n T) any {
	if n == 0 {
		return nil
	}
	return int64(n)
}

// orNilBytes returns the stored form of optional bytes.
func orNilBytes(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}
