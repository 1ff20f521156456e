package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// perLane is the limit of running deliveries of a webhook.
const perLane = 2

// model follows the committed changes and what reaches the outside, and notes what must never
// happen.
type model struct {
	w         *world
	committed []change // not applied yet

	jobs    map[string]*job
	orders  map[string]int       // of acceptance, by id, also of ended jobs
	lanes   map[[2]string][]*job // by kind and lane, in the order of acceptance
	taken   map[[2]string]int    // leased jobs
	tickets map[string]bool      // numbers in use

	sent     map[string]int       // by sender: messages accepted with 200
	stored   map[string][]int     // by sender: messages in the order of their rows
	byTicket map[string][]int     // inbound messages of a ticket
	senderOf map[string]string    // by ticket
	replies  map[string]*outgoing // by text
	requests map[string]bool      // keys of inbound events
	refused  []string             // inbound events that ended other than processed

	webhooks   []string
	deliveries map[string]*delivery // by id
	perHook    map[string][]*delivery
	suspended  map[string]bool
	told       []string // replies that the agent knows to be stored

	violations []string
}

// change has the rows of one transaction.
type change struct {
	n    *node
	at   time.Time // the database's clock
	rows []row
}

type job struct {
	id, kind, lane string
	order          int // in its lane: that of acceptance
	state          int // 0 ready, 1 scheduled, 2 leased
	holder         *node
	since          time.Time // of the lease
	until          time.Time
}

type outgoing struct {
	state string
	taken int // how often a provider or mail server accepted it
}

type delivery struct {
	id, webhook, event string
	state              int // 0 untried, 1 retrying, 2 delivered, 3 failed, 4 dropped
	body               []byte
	accepted           bool
}

func newModel(w *world) *model {
	return &model{
		w: w, jobs: map[string]*job{}, orders: map[string]int{}, lanes: map[[2]string][]*job{}, taken: map[[2]string]int{}, tickets: map[string]bool{}, requests: map[string]bool{},
		sent: map[string]int{}, stored: map[string][]int{}, byTicket: map[string][]int{}, senderOf: map[string]string{}, replies: map[string]*outgoing{},
		deliveries: map[string]*delivery{}, perHook: map[string][]*delivery{}, suspended: map[string]bool{},
	}
}

func (m *model) violate(format string, args ...any) {
	text := time.Now().Format("02 15:04:05.000000 ") + fmt.Sprintf(format, args...)
	m.violations = append(m.violations, text)
	if m.w.sched.log != nil {
		m.w.sched.log("VIOLATION %s", text)
	}
}

// commit receives the rows of a committed transaction.
func (m *model) commit(n *node, rows []row) {
	m.committed = append(m.committed, change{n, m.w.databaseNow(), rows})
}

// apply applies the committed transactions, in order. The scheduler calls it after each step.
func (m *model) apply() {
	if len(m.committed) == 0 {
		return
	}
	list := m.committed
	m.committed = nil
	slices.SortFunc(list, func(a, b change) int { return cmp.Compare(a.rows[0].id, b.rows[0].id) })
	for _, c := range list {
		m.transaction(c)
	}
}

func (m *model) transaction(c change) {
	var events []string
	fanned := map[string]bool{}
	for _, r := range c.rows {
		switch r.table {
		case "jobs":
			m.job(c, r)
		case "tickets":
			if key := r.f[1] + " " + r.f[2]; m.tickets[key] {
				m.violate("ticket number %s was given twice", r.f[2])
			} else {
				m.tickets[key] = true
			}
		case "messages":
			m.message(r)
		case "events":
			events = append(events, event.IDs(r.f[0], r.f[3], "")...)
		case "deliveries":
			d := m.deliveries[r.f[1]]
			if d == nil {
				d = &delivery{id: r.f[1], webhook: r.f[0], event: r.f[2]}
				m.deliveries[d.id] = d
				m.perHook[d.webhook] = append(m.perHook[d.webhook], d)
				fanned[d.webhook+d.event] = true
				if m.jobs[d.id] == nil && !slices.ContainsFunc(c.rows, func(r row) bool { return r.table == "jobs" && r.f[0] == d.id }) {
					m.violate("delivery %s was written without its job", d.id)
				}
			}
			d.state, _ = strconv.Atoi(r.f[3])
			if d.state == 2 && !d.accepted {
				m.violate("delivery %s counts as delivered, and its receiver did not accept it", d.id)
			}
		case "webhooks":
			m.suspended[r.f[0]] = r.f[1] != "enabled"
		case "inbound_events":
			if r.op == "insert" && m.requests[r.f[1]] {
				m.violate("inbound event %s was stored twice", r.f[1])
			}
			m.requests[r.f[1]] = true
			if s := r.f[2]; s != "accepted" && s != "processed" {
				m.refused = append(m.refused, r.f[1]+" "+s+" "+r.f[3])
			}
		}
	}
	for _, e := range events {
		for _, h := range m.webhooks {
			if !fanned[h+e] {
				m.violate("event %s was written without its delivery to webhook %s", e, h)
			}
		}
	}
}

// enter adds a job to a lane.
func (m *model) enter(lane [2]string, j *job) {
	i, _ := slices.BinarySearchFunc(m.lanes[lane], j, func(a, b *job) int { return cmp.Compare(a.order, b.order) })
	m.lanes[lane] = slices.Insert(m.lanes[lane], i, j)
}

// job follows a change of a job.
func (m *model) job(c change, r row) {
	id, lane := r.f[0], [2]string{r.f[1], r.f[2]}
	j := m.jobs[id]
	if r.op == "insert" {
		j = &job{id: id, kind: lane[0], lane: lane[1]}
		j.state, _ = strconv.Atoi(r.f[4])
		// A delivery that is tried again after it failed keeps its place.
		if m.orders[id] == 0 {
			m.orders[id] = len(m.orders) + 1
		}
		j.order = m.orders[id]
		m.jobs[id] = j
		m.enter(lane, j)
		return
	}
	if j == nil {
		m.violate("unknown job %s", id)
		return
	}
	wasLeased := j.state == 2
	if wasLeased {
		m.taken[[2]string{j.kind, j.lane}]--
	}
	expired := wasLeased && j.until.Before(c.at)
	if was := [2]string{j.kind, j.lane}; was != lane || r.op == "delete" {
		m.lanes[was] = slices.DeleteFunc(m.lanes[was], func(x *job) bool { return x == j })
		if r.op != "delete" {
			m.enter(lane, j)
			j.kind, j.lane = lane[0], lane[1]
		}
	}
	if r.op == "delete" {
		delete(m.jobs, id)
		if wasLeased && j.holder != c.n {
			m.violate("job %s %s was finished by node %s under the lease of node %s", j.kind, id, c.n.name, j.holder.name)
		}
		if !wasLeased {
			m.violate("job %s %s was finished by node %s without a lease", j.kind, id, c.n.name)
		}
		return
	}
	state, _ := strconv.Atoi(r.f[4])
	switch {
	case state == 2 && wasLeased && r.f[5] == r.f[6]: // extended
		if j.holder != c.n {
			m.violate("node %s extended the lease of node %s on job %s", c.n.name, j.holder.name, id)
		}
	case state == 2:
		if wasLeased {
			m.violate("node %s leased job %s %s under the lease of node %s (until %s)", c.n.name, j.kind, id, j.holder.name, j.until)
		}
		if j.state == 1 {
			m.violate("node %s leased job %s %s before it was due", c.n.name, j.kind, id)
		}
		if ordered(j.kind) {
			if first := m.lanes[lane][0]; first != j {
				m.violate("node %s leased job %s %s of lane %s before the older %s", c.n.name, j.kind, id, j.lane, first.id)
			}
		}
		j.holder, j.since = c.n, c.at
	case wasLeased && state == 0 && j.holder != c.n && !expired:
		m.violate("node %s took the lease of node %s on job %s %s, which held until %s", c.n.name, j.holder.name, j.kind, id, j.until)
	case wasLeased && state == 1 && j.holder != c.n:
		m.violate("job %s %s was delayed by node %s under the lease of node %s", j.kind, id, c.n.name, j.holder.name)
	}
	j.state = state
	if state != 2 {
		j.holder = nil
		return
	}
	micros, _ := strconv.ParseInt(r.f[7], 10, 64)
	j.until = time.UnixMicro(micros)
	if left := j.until.Sub(c.at); left <= 0 || left > m.w.lease {
		m.violate("node %s leased job %s %s for %s by the clock of the database", c.n.name, j.kind, id, left)
	}
	if m.taken[lane]++; m.taken[lane] > laneLimit(j.kind) {
		m.violate("lane %s %s has %d running jobs", j.kind, j.lane, m.taken[lane])
	}
}

func laneLimit(kind string) int {
	switch kind {
	case webhook.JobKind:
		return perLane
	case desk.FetchKind:
		return 2
	}
	return 1
}

func ordered(kind string) bool {
	return strings.HasPrefix(kind, "inbound/") || strings.HasPrefix(kind, "outbound/") || kind == webhook.OrderedKind
}

// message follows a message. The text of an inbound one is "SENDER NUMBER".
func (m *model) message(r row) {
	if r.f[5] == "note" {
		return
	}
	if r.f[2] == "outbound" {
		o := m.replies[r.f[4]]
		if o == nil {
			o = new(outgoing)
			m.replies[r.f[4]] = o
		}
		if r.op == "update" {
			o.state = r.f[5]
			if o.state == "sent" && o.taken == 0 {
				m.violate("%q counts as sent, and nobody accepted it", r.f[4])
			}
		}
		return
	}
	if r.op != "insert" {
		return
	}
	sender, number, _ := strings.Cut(strings.TrimSpace(r.f[4]), " ")
	i, err := strconv.Atoi(number)
	if err != nil {
		m.violate("unexpected message %q", r.f[4])
		return
	}
	if last := len(m.stored[sender]); i != last+1 {
		m.violate("message %d of %s was stored after %d of its messages", i, sender, last)
	}
	m.stored[sender] = append(m.stored[sender], i)
	m.byTicket[r.f[1]] = append(m.byTicket[r.f[1]], i)
	m.senderOf[r.f[1]] = sender
}

// handedOver notes that a provider or mail server accepted a reply.
func (m *model) handedOver(text string) {
	m.apply()
	o := m.replies[text]
	if o == nil {
		m.violate("%q was handed over, and is not stored", text)
		return
	}
	if o.taken++; o.taken > 1 {
		m.violate("%q was handed over %d times", text, o.taken)
	}
}

// called notes that a node calls the outside.
func (m *model) called(n *node, r *http.Request) {
	m.apply()
	id := r.Header.Get("X-Service-Delivery")
	if id == "" {
		return
	}
	j := m.jobs[id]
	if n.stalled() {
		return // it cannot know what happened meanwhile
	}
	if j == nil || j.state != 2 || j.holder != n {
		m.violate("node %s posts delivery %s without holding its lease", n.name, id)
	}
}

// received notes a delivery that a receiver got.
func (m *model) received(rc *receiver, r *http.Request, body []byte, accepted bool) {
	m.apply()
	d := m.deliveries[r.Header.Get("X-Service-Delivery")]
	if d == nil || d.webhook != rc.id || d.event != r.Header.Get("Webhook-Id") {
		m.violate("webhook %s received an unknown delivery %v", rc.id, r.Header)
		return
	}
	if d.body == nil {
		d.body = body
	} else if !bytes.Equal(d.body, body) {
		m.violate("delivery %s was repeated with another body", d.id)
	}
	if rc.ordered && !d.accepted && accepted {
		for _, earlier := range m.perHook[rc.id] {
			if earlier == d {
				break
			}
			if !earlier.accepted && earlier.state < 3 {
				m.violate("webhook %s accepted delivery %s before the older %s", rc.id, d.id, earlier.id)
				break
			}
		}
	}
	d.accepted = d.accepted || accepted
}

// pending describes work that is left.
func (m *model) pending() string {
	if len(m.jobs) > 0 {
		for _, j := range m.jobs {
			return fmt.Sprintf("%d jobs, such as %s %s in state %d", len(m.jobs), j.kind, j.id, j.state)
		}
	}
	for sender, n := range m.sent {
		if got := len(m.stored[sender]); got < n {
			return fmt.Sprintf("%d of %d messages of %s", n-got, n, sender)
		}
	}
	return ""
}

// finish checks what must hold once all is drained.
func (m *model) finish() {
	for sender, n := range m.sent {
		if got := len(m.stored[sender]); got != n {
			m.violate("%d messages of %s were accepted, and %d are stored", n, sender, got)
		}
	}
	for text, o := range m.replies {
		if o.state != "sent" && o.state != "failed" {
			m.violate("%q ended in state %q", text, o.state)
		}
	}
	for _, d := range m.deliveries {
		if d.state < 2 {
			m.violate("delivery %s ended in state %d", d.id, d.state)
		}
	}
	for _, text := range m.told {
		if m.replies[text] == nil {
			m.violate("%q was confirmed, and is not stored", text)
		}
	}
	for _, r := range m.refused {
		m.violate("inbound event %s", r)
	}
}
