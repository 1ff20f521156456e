package queue

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// notifyChannel carries news between processes:
// "instance kind microseconds lane".
const notifyChannel = "kickstand_queue"

// What one notification to the other processes may hold at most: PostgreSQL
// takes 8000 bytes. Lanes with longer names are found by walking.
const maxNotice = 4000

// notice says that a lane has work, at a time (0: now).
type notice struct {
	kind, lane string
	at         int64 // microseconds
}

// announceReady says that a lane has n more ready jobs, or an unknown number. The other
// processes hear of it only when this one cannot see to it at once.
func (q *Queue) announceReady(kind, lane string, n int) {
	if r := q.runners[kind]; r == nil || !r.addReady(lane, n) {
		q.notifyPeers(notice{kind: kind, lane: lane})
	}
}

// announceDue says that a job of a lane is due at a time.
func (q *Queue) announceDue(kind, lane string, at time.Time) {
	if r := q.runners[kind]; r == nil || !r.wakeAt(at) {
		q.notifyPeers(notice{kind, lane, at.UnixMicro()})
	}
}

// notifyPeers has the other processes told. It does not wait for that. What is not told
// is found by walking.
func (q *Queue) notifyPeers(n notice) {
	if q.db.Postgres() && len(n.kind)+len(n.lane) <= maxNotice {
		q.notifier.Notify(fmt.Sprintf("%s %s %d %s", q.instance, n.kind, n.at, n.lane))
	}
}

// onNotification takes what another process told. An empty payload means that some of it
// may have been missed.
func (q *Queue) onNotification(payload string) {
	if payload == "" {
		for _, r := range q.runners {
			r.requestScan()
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
		r.addReady(fields[3], unknownCount)
	default:
		r.wakeAt(time.UnixMicro(at))
	}
}
