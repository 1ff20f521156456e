package webhook

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// turns are the deliveries in hand that wait for older ones of their webhook,
// by webhook, oldest first.
type turns struct {
	mu   sync.Mutex
	byID map[string][]*waiter
}

type waiter struct {
	delivery string
	wake     chan struct{} // capacity 1
}

func (ts *turns) enter(webhookID, delivery string) *waiter {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	w := &waiter{delivery, make(chan struct{}, 1)}
	if ts.byID == nil {
		ts.byID = make(map[string][]*waiter)
	}
	list := ts.byID[webhookID]
	i, _ := slices.BinarySearchFunc(list, delivery, func(w *waiter, id string) int { return cmp.Compare(w.delivery, id) })
	ts.byID[webhookID] = slices.Insert(list, i, w)
	return w
}

func (ts *turns) leave(webhookID string, w *waiter) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	list := ts.byID[webhookID]
	if i := slices.Index(list, w); len(list) == 1 {
		delete(ts.byID, webhookID)
	} else {
		ts.byID[webhookID] = slices.Delete(list, i, i+1)
	}
}

// next wakes the oldest that waits.
func (ts *turns) next(webhookID string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if list := ts.byID[webhookID]; len(list) > 0 {
		select {
		case list[0].wake <- struct{}{}:
		default:
		}
	}
}

// first reports whether w is the oldest that waits.
func (ts *turns) first(webhookID string, w *waiter) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.byID[webhookID][0] == w
}

const (
	// turnWait is how long a delivery waits for its turn before it makes room
	// for others of its lane: the one it waits for may be among them.
	turnWait = 10 * time.Second
	// turnPoll is how often the oldest looks for what other processes did.
	turnPoll = 250 * time.Millisecond
)

// turn waits until no older delivery of a webhook's backlog is untried. It
// reports false when that took too long. The backlog ends with the delivery
// called ordered.
func (s *Service) turn(ctx context.Context, j *queue.Job, ordered string) (bool, error) {
	w := s.turns.enter(j.Lane, j.ID)
	mine, err := s.waitTurn(ctx, w, j, min(j.ID, ordered+"\x01")) // up to ordered, but not itself
	s.turns.leave(j.Lane, w)
	if !mine || j.ID > ordered {
		// Those behind need not wait until this one is recorded.
		s.turns.next(j.Lane)
	}
	return mine, err
}

func (s *Service) waitTurn(ctx context.Context, w *waiter, j *queue.Job, before string) (bool, error) {
	end := time.Now().Add(turnWait)
	poll := time.NewTicker(turnPoll)
	defer poll.Stop()
	for {
		var wait bool
		err := s.db.QueryRow(context.WithoutCancel(ctx), `SELECT EXISTS (SELECT 1 FROM deliveries
			WHERE webhook_id = $1 AND state < 2 AND state = 0 AND id < $2)`, j.Lane, before).Scan(&wait)
		if err != nil {
			return false, fmt.Errorf("wait for turn: %w", err)
		}
		if !wait {
			return true, nil
		}
		if !time.Now().Before(end) {
			return false, nil
		}
		for look := false; !look; {
			select {
			case <-w.wake:
				look = true
			case <-poll.C:
				look = s.turns.first(j.Lane, w) || !time.Now().Before(end)
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		}
	}
}

// comeBack ends a job's run without an attempt, to come back later.
func (s *Service) comeBack(ctx context.Context, j *queue.Job) error {
	ctx = context.WithoutCancel(ctx)
	return s.db.Write(ctx, func(tx *db.Tx) error { return j.Delay(ctx, tx, tx.Now.Add(turnPoll)) })
}
