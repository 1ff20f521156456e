package db

import (
	"context"
	"sync"
	"time"
)

// maxPending bounds what waits to be told.
const maxPending = 4096

// Notifier tells the other processes something in batches, beside the work: a
// notification inside of each transaction would make PostgreSQL commit them one
// after the other. What is told twice before it is sent is sent once. Make it
// with [DB.NewNotifier]; it is safe for concurrent use.
type Notifier struct {
	db      *DB
	channel string

	mu      sync.Mutex
	pending map[string]struct{}
	sending bool // a goroutine is at it
}

// NewNotifier returns a teller for the channel that others listen to with [DB.Listen].
func (d *DB) NewNotifier(channel string) *Notifier { return &Notifier{db: d, channel: channel} }

// Notify has the other processes told, as far as [DB.Notify] can. It does not wait
// for that; [DB.Close] does. It reports false when too much waits already or the
// database is closed, and does not send it.
func (t *Notifier) Notify(payload string) bool {
	if !t.db.Postgres() {
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

// send sends what waits until nothing does.
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
		if err := t.db.Notify(ctx, t.channel, payloads); err != nil {
			t.db.log.Warn("telling other processes", "channel", t.channel, "error", err)
		}
		cancel()
	}
}
