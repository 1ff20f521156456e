package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// notifyChannel carries news between processes:
// "instance kind microseconds lane".
const notifyChannel = "kickstand_queue"

// What one notification to the other processes may hold at most: PostgreSQL
// takes 8000 bytes. Lanes with longer names are found by walking.
const maxNotice = 4000

// maxNews bounds the notices that wait to be sent. What is beyond is found by
// walking.
const maxNews = 4096

// notice says that a lane has work, at a time (0: now).
type notice struct {
	kind, lane string
	at         int64 // microseconds
}

// news is what this process has to tell the others that share the database. It
// is sent in batches beside the work, since a notification inside of each
// transaction would make PostgreSQL commit them one after the other.
type news struct {
	mu      sync.Mutex
	waiting map[notice]struct{}
	sender  chan struct{} // closed when the goroutine that sends has ended; nil when there is none
}

// wake says that a lane has n more ready jobs, or an unknown number. The other
// processes hear of it only when this one cannot see to it at once.
func (q *Queue) wake(kind, lane string, n int) {
	if r := q.runners[kind]; r == nil || !r.wake(lane, n) {
		q.tell(notice{kind: kind, lane: lane})
	}
}

// wakeAt says that a job of a lane is due at a time.
func (q *Queue) wakeAt(kind, lane string, at time.Time) {
	if r := q.runners[kind]; r == nil || !r.wakeAt(at) {
		q.tell(notice{kind, lane, at.UnixMicro()})
	}
}

// tell has the other processes told. It does not wait for that.
func (q *Queue) tell(n notice) {
	if !q.db.Postgres() || len(n.kind)+len(n.lane) > maxNotice {
		return
	}
	q.news.mu.Lock()
	defer q.news.mu.Unlock()
	if len(q.news.waiting) >= maxNews {
		return
	}
	if q.news.waiting == nil {
		q.news.waiting = make(map[notice]struct{})
	}
	q.news.waiting[n] = struct{}{}
	if q.news.sender == nil {
		q.news.sender = make(chan struct{})
		go q.send(q.news.sender)
	}
}

// send sends what waits until nothing does.
func (q *Queue) send(done chan struct{}) {
	defer close(done)
	for {
		q.news.mu.Lock()
		batch := q.news.waiting
		q.news.waiting = nil
		if len(batch) == 0 {
			q.news.sender = nil
			q.news.mu.Unlock()
			return
		}
		q.news.mu.Unlock()
		payloads := make([]string, 0, len(batch))
		for n := range batch {
			payloads = append(payloads, fmt.Sprintf("%s %s %d %s", q.instance, n.kind, n.at, n.lane))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := q.db.Notify(ctx, notifyChannel, payloads); err != nil {
			q.log.Warn("telling other processes about work", "error", err)
		}
		cancel()
	}
}

// wait returns when what was to be told has been.
func (n *news) wait() {
	n.mu.Lock()
	sender := n.sender
	n.mu.Unlock()
	if sender != nil {
		<-sender
	}
}

// hear takes what another process told. An empty payload means that some of it
// may have been missed.
func (q *Queue) hear(payload string) {
	if payload == "" {
		for _, r := range q.runners {
			r.look()
		}
		return
	}
	fields := strings.SplitN(payload, " ", 4)
	if len(fields) != 4 || fields[0] == q.instance {
		return
	}
	r := q.runners[fields[1]]
	at, err := strconv.ParseInt(fields[2], 10, 64)
	switch {
	case r == nil || err != nil:
	case at == 0:
		r.wake(fields[3], unknown)
	default:
		r.wakeAt(time.UnixMicro(at))
	}
}
