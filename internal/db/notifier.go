package db

import (
	"context"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// maxPending bounds the pending payloads of a notifier.
const maxPending = 4096

// Notifier sends notifications to other processes in batches, outside of transactions:
// PostgreSQL serializes the commits of transactions that notify. Equal pending payloads are
// sent once. Create it with [DB.NewNotifier]; it is safe for concurrent use.
type Notifier struct {
	db      *DB
	channel string

	mu      sync.Mutex
	pending map[string]struct{}
	sending bool // send is running
}

// NewNotifier returns a notifier for a channel of [DB.Listen].
func (d *DB) NewNotifier(channel string) *Notifier { return &Notifier{db: d, channel: channel} }

// Notify queues a payload for [DB.Notify] without waiting; [DB.Close] waits for pending ones.
// It returns false, and drops the payload, if too many are pending or the database is closed.
func (t *Notifier) Notify(payload string) bool {
	if !t.db.Notifies() {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) >= maxPending {
		return false
	}
	if !t.sending {
		if !t.db.begin() {
			return false
		}
		t.sending = true
		go t.send()
	}
	if t.pending == nil {
		t.pending = make(map[string]struct{})
	}
	t.pending[payload] = struct{}{}
	return true
}

// send sends pending payloads until there are none.
func (t *Notifier) send() {
	defer t.db.work.Done()
	for {
		t.mu.Lock()
		batch := t.pending
		t.pending = nil
		if len(batch) == 0 {
			t.sending = false
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		payloads := make([]string, 0, len(batch))
		for p := range batch {
			payloads = append(payloads, p)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := t.db.Notify(ctx, t.channel, payloads); err != nil && problem.Of(err) != problem.Unavailable { // which Notify logs
			t.db.log.Warn("notifying other processes", "channel", t.channel, "error", err)
		}
		cancel()
	}
}
