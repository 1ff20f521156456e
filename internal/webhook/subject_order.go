package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Deliveries of fleets name a subject, the vehicle of a ride for instance. Of one webhook and
// subject, only the first waiting delivery in the order of the jobs is sent. The others wait while
// a process runs the first one. Otherwise they make room in their lane, since the first one may need it. So a
// receiver gets the events of a vehicle in order, and a delivery that is retried delays those of its
// vehicle only.

// subjectOrder wakes the claimed deliveries of a webhook that wait for others of their subjects.
type subjectOrder struct {
	mu   sync.Mutex
	byID map[string]chan struct{} // by webhook; closed when attempts were recorded
}

// recorded returns a channel that is closed when the next attempts of a webhook are recorded.
func (so *subjectOrder) recorded(webhookID string) <-chan struct{} {
	so.mu.Lock()
	defer so.mu.Unlock()
	c := so.byID[webhookID]
	if c == nil {
		c = make(chan struct{})
		if so.byID == nil {
			so.byID = make(map[string]chan struct{})
		}
		so.byID[webhookID] = c
	}
	return c
}

// wake wakes the waiting deliveries of a webhook.
func (so *subjectOrder) wake(webhookID string) {
	so.mu.Lock()
	defer so.mu.Unlock()
	if c := so.byID[webhookID]; c != nil {
		close(c)
		delete(so.byID, webhookID)
	}
}

// behindError is the error of a delivery behind another one of its subject.
type behindError struct {
	until time.Time // when the other one is due; zero: soon
}

func (*behindError) Error() string { return "an earlier delivery of the same subject waits" }

// sqlAhead selects whether a webhook is enabled, and the first waiting delivery among those of the
// same subject that precede another one: whether there is one, its due time, and whether a
// process runs it. Ids almost have the order of jobs, so only the first few are compared.
const sqlAhead = `SELECT w.state = 'enabled', a.id IS NOT NULL, a.next_at, coalesce(a.state, 0) = 2 FROM webhooks w LEFT JOIN (
		SELECT f.id, f.next_at, j.state FROM (
			SELECT o.id, o.next_at FROM deliveries d JOIN deliveries o ON o.webhook_id = d.webhook_id AND o.subject = d.subject AND o.state < 2 AND o.subject IS NOT NULL
			WHERE d.webhook_id = $1 AND d.id = $2 ORDER BY o.id LIMIT 16) AS f
		JOIN jobs j ON j.id = f.id WHERE j.seq < $3 ORDER BY j.seq LIMIT 1) AS a ON TRUE
	WHERE w.id = $1`

// awaitSubject waits until no earlier delivery of the same subject waits. It returns a behindError if
// no process runs the earlier one, and errLater if the webhook is not enabled: an earlier delivery may
// just have failed for the last time in another process.
func (s *Service) awaitSubject(ctx context.Context, j *queue.Job) error {
	for {
		recorded := s.subjects.recorded(j.Lane)
		var enabled, ahead, running bool
		var due time.Time
		err := s.db.QueryRow(context.WithoutCancel(ctx), sqlAhead, j.Lane, j.ID, j.Order()).Scan(&enabled, &ahead, db.IntoTime(&due), &running)
		switch {
		case errors.Is(err, db.ErrNoRows):
			return errDeleted
		case err != nil:
			return fmt.Errorf("wait for the subject: %w", err)
		case !enabled:
			return errLater
		case !ahead:
			return nil
		case !running:
			return &behindError{due}
		}
		select {
		case <-recorded:
		case <-time.After(turnPoll): // another process may have recorded it, or it has made room
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// parkBehind ends the run of a job without an attempt, until a time.
func (s *Service) parkBehind(ctx context.Context, j *queue.Job, until time.Time) error {
	ctx = context.WithoutCancel(ctx)
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if !until.After(tx.Now) { // it is about to run
			until = tx.Now.Add(turnPoll)
		}
		return j.RescheduleTx(ctx, tx, until)
	})
}
