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
// subject, only the first waiting delivery in the order of the jobs is sent. The others wait, in this
// process for a moment, else until the first one is due again. So a receiver gets the events of a
// vehicle in order, and a delivery that is retried delays those of its vehicle only.

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

// sqlAhead selects the due time of a waiting delivery of the same webhook and subject that precedes
// another one. Ids almost have the order of jobs, so only the first few are compared.
const sqlAhead = `SELECT a.next_at FROM (
		SELECT o.id, o.next_at FROM deliveries d JOIN deliveries o ON o.webhook_id = d.webhook_id AND o.subject = d.subject AND o.state < 2 AND o.subject IS NOT NULL
		WHERE d.webhook_id = $1 AND d.id = $2 ORDER BY o.id LIMIT 16) AS a
	JOIN jobs j ON j.id = a.id WHERE j.seq < $3 ORDER BY j.seq LIMIT 1`

// awaitSubject waits until no earlier delivery of the same subject waits. It returns a behindError
// after a timeout, and if the earlier one is not due.
func (s *Service) awaitSubject(ctx context.Context, j *queue.Job) error {
	timeout := time.NewTimer(turnWait)
	defer timeout.Stop()
	for {
		recorded := s.subjects.recorded(j.Lane)
		var due time.Time
		err := s.db.QueryRow(context.WithoutCancel(ctx), sqlAhead, j.Lane, j.ID, j.Order()).Scan(db.IntoTime(&due))
		if errors.Is(err, db.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for the subject: %w", err)
		}
		if due.After(s.db.Now()) {
			return &behindError{due}
		}
		select {
		case <-recorded:
		case <-time.After(turnPoll): // another process may send the earlier one
		case <-timeout.C:
			return &behindError{}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// parkBehind ends the run of a job without an attempt, until a time.
func (s *Service) parkBehind(ctx context.Context, j *queue.Job, until time.Time) error {
	ctx = context.WithoutCancel(ctx)
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if soon := tx.Now.Add(turnPoll); until.Before(soon) {
			until = soon
		}
		return j.RescheduleTx(ctx, tx, until)
	})
}
