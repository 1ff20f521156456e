package queue

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// notifyChannel is the PostgreSQL channel on which processes announce lanes. Payload: "instance
// kind microseconds lane", where "/" and the tenant follow the instance, if it is known.
const notifyChannel = "kickstand_queue"

// maxNotice bounds kind and lane of a notification, in bytes: PostgreSQL accepts 8000. Walks
// find lanes with longer names.
const maxNotice = 4000

// notice announces that a lane has a job, ready or due at a time.
type notice struct {
	kind, lane string
	tenant     string // empty: unknown
	at         int64  // microseconds; 0: now
}

// announceReady adds n ready jobs to a lane of a tenant (empty: unknown), or [unknownCount]. It notifies other processes
// only if this one cannot claim them at once.
func (q *Queue) announceReady(kind, tenant, lane string, n int) {
	if r := q.runners[kind]; r == nil || !r.addReady(tenant, lane, n) {
		q.notifyPeers(notice{kind: kind, tenant: tenant, lane: lane})
	}
}

// announceDue schedules a look at the kind for when a job is due.
func (q *Queue) announceDue(kind, lane string, at time.Time) {
	if r := q.runners[kind]; r == nil || !r.wakeAt(at) {
		q.notifyPeers(notice{kind: kind, lane: lane, at: at.UnixMicro()})
	}
}

// notifyPeers queues a notification for the other processes and does not wait. Walks find the
// lanes of lost notifications.
func (q *Queue) notifyPeers(n notice) {
	if !q.db.Notifies() || len(n.kind)+len(n.tenant)+len(n.lane) > maxNotice {
		return
	}
	from := q.instance
	if n.tenant != "" && !strings.Contains(n.tenant, " ") {
		from += "/" + n.tenant
	}
	q.notifier.Notify(fmt.Sprintf("%s %s %d %s", from, n.kind, n.at, n.lane))
}

// onNotification handles a notification of another process. An empty payload means that
// notifications may be lost, so it requests a scan.
func (q *Queue) onNotification(payload string) {
	if payload == "" {
		for _, r := range q.runners {
			r.requestScan()
		}
		return
	}
	fields := strings.SplitN(payload, " ", 4)
	if len(fields) != 4 {
		return
	}
	from, tenant, _ := strings.Cut(fields[0], "/")
	if from == q.instance {
		return
	}
	r := q.runners[fields[1]]
	at, err := strconv.ParseInt(fields[2], 10, 64)
	switch {
	case r == nil || err != nil:
	case at == 0:
		r.addReady(tenant, fields[3], unknownCount)
	default:
		r.wakeAt(time.UnixMicro(at))
	}
}
