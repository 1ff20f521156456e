package db

import (
	"context"
	"sync"
	"time"
)

// maxTold bounds what waits to be told.
const maxTold = 4096

// Teller tells the other processes something in batches, beside the work: a
// notification inside of each transaction would make PostgreSQL commit them one
// after the other. What is told twice before it is sent is sent once. Make it
// with [DB.NewTeller]; it is safe for concurrent use.
type Teller struct {
	db      *DB
	channel string

	mu      sync.Mutex
	waiting map[string]struct{}
	sender  chan struct{} // closed when the goroutine that sends has ended; nil when there is none
}

// NewTeller returns a teller for the channel that others listen to with [DB.Listen].
func (d *DB) NewTeller(channel string) *Teller { return &Teller{db: d, channel: channel} }

// Tell has the other processes told, as far as [DB.Notify] can. It does not wait
// for that. It reports false when too much waits already, and does not send it.
func (t *Teller) Tell(payload string) bool {
	if !t.db.Postgres() {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) >= maxTold {
		return false
	}
	if t.waiting == nil {
		t.waiting = make(map[string]struct{})
	}
	t.waiting[payload] = struct{}{}
	if t.sender == nil {
		t.sender = make(chan struct{})
		go t.send(t.sender)
	}
	return true
}

// send sends what waits until nothing does.
func (t *Teller) send(done chan struct{}) {
	defer close(done)
	for {
		t.mu.Lock()
		batch := t.waiting
		t.waiting = nil
		if len(batch) == 0 {
			t.sender = nil
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

// Wait returns when what was to be told has been, or could not be.
func (t *Teller) Wait() {
	t.mu.Lock()
	sender := t.sender
	t.mu.Unlock()
	if sender != nil {
		<-sender
	}
}
