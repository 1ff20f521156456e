package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// backlogOrder holds, by webhook, the claimed deliveries that wait for older ones.
type backlogOrder struct {
	mu   sync.Mutex
	byID map[string]*orderQueue
}

// orderQueue is the queue of one webhook, guarded by the mutex of its backlogOrder.
type orderQueue struct {
	waiting []*waiter // oldest first
	busy    int       // deliveries with a turn, not recorded yet
	idle    time.Time // since when busy is 0
}

type waiter struct {
	order int64 // of the job
	since time.Time
	wake  chan struct{} // capacity 1
}

// line returns the queue of a webhook. ts.mu is held.
func (ts *backlogOrder) line(webhookID string) *orderQueue {
	l := ts.byID[webhookID]
	if l == nil {
		l = new(orderQueue)
		if ts.byID == nil {
			ts.byID = make(map[string]*orderQueue)
		}
		ts.byID[webhookID] = l
	}
	return l
}

// evict deletes an empty queue. ts.mu is held.
func (ts *backlogOrder) evict(webhookID string, l *orderQueue) {
	if len(l.waiting) == 0 && l.busy == 0 {
		delete(ts.byID, webhookID)
	}
}

func (ts *backlogOrder) enter(webhookID string, order int64) *waiter {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	w := &waiter{order, time.Now(), make(chan struct{}, 1)}
	l := ts.line(webhookID)
	i, _ := slices.BinarySearchFunc(l.waiting, order, func(w *waiter, order int64) int { return cmp.Compare(w.order, order) })
	l.waiting = slices.Insert(l.waiting, i, w)
	return w
}

// leave ends a wait. busy means that the delivery has its turn; [backlogOrder.done] must
// follow.
func (ts *backlogOrder) leave(webhookID string, w *waiter, busy bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := ts.byID[webhookID]
	i := slices.Index(l.waiting, w)
	l.waiting = slices.Delete(l.waiting, i, i+1)
	if busy {
		l.busy++
	}
	ts.evict(webhookID, l)
}

// done ends a turn.
func (ts *backlogOrder) done(webhookID string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := ts.byID[webhookID]
	l.busy--
	l.idle = time.Now()
	ts.evict(webhookID, l)
}

// next wakes the oldest waiter.
func (ts *backlogOrder) next(webhookID string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if l := ts.byID[webhookID]; l != nil && len(l.waiting) > 0 {
		select {
		case l.waiting[0].wake <- struct{}{}:
		default:
		}
	}
}

// state reports whether w is the oldest waiter, and whether it waits in vain.
func (ts *backlogOrder) state(webhookID string, w *waiter) (first, vain bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := ts.byID[webhookID]
	waits := time.Since(w.since)
	if !l.idle.IsZero() {
		waits = min(waits, time.Since(l.idle))
	}
	return l.waiting[0] == w, l.busy == 0 && waits >= turnWait
}

const (
	// turnWait is how long a delivery waits while this process handles no delivery of the
	// backlog. Then it makes room for others of its lane: it may be waiting for one of them.
	turnWait = 10 * time.Second
	// turnPoll is the interval at which the oldest waiter checks for the progress of other
	// processes.
	turnPoll = 250 * time.Millisecond
)

// awaitTurn waits until no older delivery of a webhook's backlog is untried. It reports false
// after a timeout. The backlog ends with the delivery of that id; a delivery of the backlog
// must call done at its end.
func (s *Service) awaitTurn(ctx context.Context, j *queue.Job, backlog string) (bool, error) {
	w := s.turns.enter(j.Lane, j.Order())
	mine, err := s.pollTurn(ctx, w, j, backlog)
	s.turns.leave(j.Lane, w, mine && j.ID <= backlog)
	if !mine || j.ID > backlog {
		// Later deliveries need not wait until this one is recorded.
		s.turns.next(j.Lane)
	}
	return mine, err
}

// sqlOlder reports whether a backlog has an untried delivery whose job is ready or leased and
// precedes another one in the order of the lane, which is that of claims. Ids have the order of
// the clocks of the processes that created them: two deliveries could wait for each other.
var sqlOlder = "SELECT " + sqlOlderIn(0) + " OR " + sqlOlderIn(2)

func sqlOlderIn(state int) string {
	return fmt.Sprintf(`EXISTS (SELECT 1 FROM jobs j JOIN deliveries d ON d.webhook_id = j.lane AND d.id = j.id
		WHERE j.kind = $1 AND j.state = %d AND j.lane = $2 AND j.seq < $3 AND d.state = 0 AND d.id <= $4)`, state)
}

func (s *Service) pollTurn(ctx context.Context, w *waiter, j *queue.Job, backlog string) (bool, error) {
	poll := time.NewTicker(turnPoll)
	defer poll.Stop()
	for {
		t, err := s.cached(ctx, j.Lane)
		if err != nil {
			return false, err
		}
		if t.ordered {
			return false, errOtherKind // its turn comes in the other lane
		}
		var wait bool
		err = s.db.QueryRow(context.WithoutCancel(ctx), sqlOlder, j.Kind, j.Lane, j.Order(), backlog).Scan(&wait)
		if err != nil {
			return false, fmt.Errorf("wait for turn: %w", err)
		}
		if !wait {
			return true, nil
		}
		if _, vain := s.turns.state(j.Lane, w); vain {
			return false, nil
		}
		for look := false; !look; {
			select {
			case <-w.wake:
				look = true
			case <-poll.C:
				first, vain := s.turns.state(j.Lane, w)
				look = first || vain
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		}
	}
}

// pace waits until the drain rate permits the next delivery of a webhook's backlog. Each call
// reserves a slot in the webhook's row, so that the rate holds over all processes.
func (s *Service) pace(ctx context.Context, webhookID string) error {
	t, err := s.cached(ctx, webhookID) // may have changed during the wait
	if errors.Is(err, errDeleted) {
		return nil // detected again below
	}
	if err != nil || !t.paced {
		return err
	}
	var start time.Time
	err = s.db.Write(context.WithoutCancel(ctx), func(tx *db.Tx) error {
		var rate *int64
		err := tx.QueryRow(ctx, "SELECT drain_rate, drain_at FROM webhooks WHERE id = $1 FOR UPDATE", webhookID).Scan(&rate, db.IntoTime(&start))
		if errors.Is(err, db.ErrNoRows) || err == nil && rate == nil {
			start = time.Time{}
			return nil
		}
		if err != nil {
			return err
		}
		if start.Before(tx.Now) {
			start = tx.Now
		}
		_, err = tx.Exec(ctx, "UPDATE webhooks SET drain_at = $2 WHERE id = $1",
			webhookID, start.Add(time.Second/time.Duration(*rate)).UnixMicro())
		return err
	})
	if err != nil {
		return fmt.Errorf("keep to the rate: %w", err)
	}
	return loop.Pause(ctx, time.Until(start))
}

// reschedule ends the run of a job without an attempt.
func (s *Service) reschedule(ctx context.Context, j *queue.Job) error {
	ctx = context.WithoutCancel(ctx)
	return s.db.Write(ctx, func(tx *db.Tx) error { return j.RetryTx(ctx, tx, tx.Now.Add(turnPoll)) })
}
