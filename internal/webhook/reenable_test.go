package webhook_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// outage is a receiver with answers set by the test; it counts 2xx answers by ticket.
type outage struct {
	*receiver
	mu     sync.Mutex
	status func(number int) int
	ok     map[int]int
}

func (n *network) outage(status func(number int) int) *outage {
	o := &outage{status: status, ok: make(map[int]int)}
	o.receiver = n.receive("receiver.example.com", nil)
	o.answer = func(n int, w http.ResponseWriter, _ *http.Request) {
		o.receiver.mu.Lock()
		number := o.posts[n-1].number // of this post: others may have arrived since
		o.receiver.mu.Unlock()
		o.mu.Lock()
		status := o.status(number)
		if status == http.StatusOK {
			o.ok[number]++
		}
		o.mu.Unlock()
		w.WriteHeader(status)
	}
	return o
}

func (o *outage) become(status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status = func(int) int { return status }
}

// undelivered lists the tickets of deliveries that wait or ran out of attempts,
// oldest first.
func (r *rig) undelivered(webhookID string) (ids []string) {
	r.t.Helper()
	rows, err := db.All(r.t.Context(), r.db, func(row db.Row) (id string, err error) { return id, row.Scan(&id) },
		"SELECT id FROM deliveries WHERE webhook_id = $1 AND (state < 2 OR exhausted IS NOT NULL) ORDER BY id", webhookID)
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// tickets maps deliveries to the ticket that each was about.
func (r *rig) tickets(webhookID string) map[string]int {
	r.t.Helper()
	out := make(map[string]int)
	type pair struct{ id, data string }
	rows, err := db.All(r.t.Context(), r.db, func(row db.Row) (p pair, err error) { return p, row.Scan(&p.id, &p.data) },
		"SELECT d.id, e.ticket_id FROM deliveries d JOIN events e ON e.id = d.event_id WHERE d.webhook_id = $1", webhookID)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range rows {
		var number int
		if _, err := fmt.Sscanf(p.data[len(p.data)-12:], "%d", &number); err != nil {
			r.t.Fatal(err)
		}
		out[p.id] = number
	}
	return out
}

// A thousand events meet a receiver that answers at random for two days, and an
// admin that disables and enables the webhook. When the receiver works again,
// enabling sends everything undelivered at once, oldest first, and newer events
// after it.
func TestRecoveryAfterOutage(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		for _, last := range []webhook.State{webhook.Disabled, webhook.Failed} {
			if testing.Short() && ordered == (last == webhook.Disabled) {
				continue // each value once
			}
			t.Run(fmt.Sprintf("ordered=%t/%s", ordered, last), func(t *testing.T) {
				bubble(t, func(t *testing.T, d *db.DB, n *network) { recoverFromOutage(t, d, n, ordered, last, time.Sleep) })
			})
		}
	}
}

func recoverFromOutage(t *testing.T, d *db.DB, n *network, ordered bool, last webhook.State, sleep func(time.Duration)) {
	const seed, total = 7, 1000
	random := rand.New(rand.NewPCG(seed, total))
	r := newRig(t, d, n, nil)
	rc := n.outage(func(int) int {
		switch n := random.IntN(20); {
		case n < 2:
			return http.StatusOK
		case n < 3:
			return http.StatusGone
		case n < 4:
			return http.StatusTooManyRequests
		}
		return http.StatusServiceUnavailable
	})
	w := r.create(webhook.New{Ordered: ordered})
	r.start()
	const left = 150 // events emitted while the receiver does not answer
	for number := 1; number <= total-left; {
		some := min(1+random.IntN(40), total-left-number+1)
		for range some {
			r.emit(number)
			number++
		}
		sleep(time.Duration(random.IntN(int(2 * time.Hour))))
		switch state := r.find(w.ID).State; {
		case state != webhook.Enabled && random.IntN(2) == 0:
			r.update(w.ID, webhook.Change{Enabled: new(true)})
		case state == webhook.Enabled && random.IntN(8) == 0:
			r.update(w.ID, webhook.Change{Enabled: new(false)})
		}
	}
	// The receiver is down until the webhook is in the state to recover from.
	rc.become(http.StatusServiceUnavailable)
	if r.find(w.ID).State != webhook.Enabled {
		r.update(w.ID, webhook.Change{Enabled: new(true)})
	}
	for number := total - left + 1; number <= total; number++ {
		r.emit(number)
	}
	if last == webhook.Disabled {
		sleep(7 * time.Minute)
		r.update(w.ID, webhook.Change{Enabled: new(false)})
	}
	sleep(48 * time.Hour)
	if state := r.find(w.ID).State; state != last {
		t.Fatalf("the webhook is %s, want %s", state, last)
	}
	byState := make(map[string]int)
	tickets := r.tickets(w.ID)
	var want []int
	for _, id := range r.undelivered(w.ID) {
		want = append(want, tickets[id])
	}
	for _, d := range r.deliveries(w.ID) {
		byState[d.State.String()]++
	}
	t.Logf("%d undelivered; the newest by state: %v", len(want), byState)
	if len(want) < left || !slices.IsSorted(want) {
		t.Fatalf("the outage left %d undelivered, want at least %d, in order", len(want), left)
	}

	before := len(rc.all())
	rc.become(http.StatusOK)
	begin := time.Now()
	r.update(w.ID, webhook.Change{Enabled: new(true)})
	r.emit(total+1, total+2)
	sleep(time.Minute)
	after := rc.all()[before:]
	var got []int
	for _, p := range after {
		got = append(got, p.number)
		if late := p.at.Sub(begin); late > 10*time.Second {
			t.Errorf("ticket %d was sent %v after the webhook was enabled", p.number, late)
		}
	}
	if len(got) != len(want)+2 {
		t.Fatalf("got %d posts, want %d and the two new ones", len(got), len(want))
	}
	slices.Sort(got[len(want):])
	if want = append(want, total+1, total+2); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if left := r.undelivered(w.ID); len(left) != 0 {
		t.Errorf("%d deliveries are left", len(left))
	}
	for number, times := range rc.ok {
		if times != 1 {
			t.Errorf("ticket %d was accepted %d times", number, times)
		}
	}
}

// Recovery on both engines: one delivery exhausted its schedule, others wait for a retry or the
// first attempt. A receiver that is still down fails the webhook again only after a complete
// new schedule.
func TestRecoveryStartsNewSchedules(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, func(c *webhook.Config) { c.RetryTimeScale = 1e-6 })
	rc := n.outage(func(int) int { return http.StatusServiceUnavailable })
	w := r.create(webhook.New{})
	r.start()
	failed := func() bool { return r.find(w.ID).State == webhook.Failed }
	r.emit(1)
	r.until(failed)
	r.emit(2, 3)
	if got := len(rc.all()); got != 6 {
		t.Fatalf("got %d attempts, want the schedule's 6", got)
	}

	r.update(w.ID, webhook.Change{Enabled: new(true)})
	r.until(failed)
	r.stop()
	lost, partial := r.count("SELECT count(*) FROM deliveries WHERE exhausted IS NOT NULL"), r.count("SELECT count(*) FROM deliveries WHERE exhausted IS NOT NULL AND attempts % 6 <> 0")
	if lost == 0 || partial != 0 {
		t.Fatalf("%d deliveries are exhausted, %d of them after a part of their new schedule", lost, partial)
	}
	for _, d := range r.deliveries(w.ID) {
		list := r.attempts(d.ID)
		for i, a := range list {
			if a.Number != i+1 {
				t.Errorf("attempt %d of %s has the number %d", i+1, d.ID, a.Number)
			}
		}
		if len(list) != d.Attempts {
			t.Errorf("%d attempts of %s are stored, want %d", len(list), d.ID, d.Attempts)
		}
	}

	r = newRig(t, r.db, n, nil)
	rc.become(http.StatusOK)
	before := len(rc.all())
	r.update(w.ID, webhook.Change{Enabled: new(true)})
	r.start()
	r.until(func() bool { return len(rc.all()) >= before+3 && r.find(w.ID).QueuedEvents == 0 })
	r.stop()
	if got := rc.numbers()[before:]; !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("got %v, want 1, 2, 3", got)
	}
	if jobs := r.count("SELECT count(*) FROM jobs"); jobs != 0 {
		t.Errorf("%d jobs are left", jobs)
	}
}

// A delivery that waits for a retry and one that is exhausted have a complete schedule after each
// recovery. An exhausted delivery is not sent again if a replay delivered its event before.
func TestRecoveryAttempts(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, func(c *webhook.Config) { c.RetryTimeScale = 1e-2 })
		rc := n.outage(func(int) int { return http.StatusServiceUnavailable })
		w := r.create(webhook.New{})
		const half, complete = 5 * time.Second, 10 * time.Minute // half of the schedule's 6 attempts, and all
		after := func(what string, wait time.Duration, posts int, state webhook.State) {
			t.Helper()
			time.Sleep(wait)
			if got := r.find(w.ID).State; len(rc.all()) != posts || got != state {
				t.Fatalf("%s: %d attempts and the webhook is %s, want %d and %s", what, len(rc.all()), got, posts, state)
			}
		}
		enable := func(on bool) { t.Helper(); r.update(w.ID, webhook.Change{Enabled: &on}) }
		r.start()
		r.emit(1)
		after("the event", half, 3, webhook.Enabled)
		enable(false)
		enable(true)
		after("waiting", complete, 3+6, webhook.Failed)
		enable(true)
		after("exhausted", complete, 9+6, webhook.Failed)
		enable(true)
		after("exhausted again", half, 15+3, webhook.Enabled)
		rc.become(http.StatusOK)
		if _, err := r.hooks.Replay(t.Context(), org, []string{r.deliveries(w.ID)[0].ID}); err != nil {
			t.Fatal(err)
		}
		after("replayed", time.Second, 18+1, webhook.Enabled)
		rc.become(http.StatusServiceUnavailable)
		after("exhausted after the replay", complete, 19+3, webhook.Failed)
		rc.become(http.StatusOK)
		enable(true)
		after("delivered by the replay", complete, 22, webhook.Enabled)
	})
}

// An event with an exhausted delivery is not sent again if a replay delivered it, and neither
// is a refused delivery.
func TestRecoverySkipsDelivered(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		rc := n.outage(func(number int) int {
			if number == 2 {
				return http.StatusGone
			}
			return http.StatusServiceUnavailable
		})
		w := r.create(webhook.New{})
		r.start()
		r.emit(1, 2)
		time.Sleep(24 * time.Hour)
		if state := r.find(w.ID).State; state != webhook.Failed {
			t.Fatalf("the webhook is %s", state)
		}
		var lost string
		for _, d := range r.deliveries(w.ID) {
			if d.Attempts == 6 {
				lost = d.ID
			}
		}
		rc.become(http.StatusOK)
		if _, err := r.hooks.Replay(t.Context(), org, []string{lost}); err != nil {
			t.Fatal(err)
		}
		before := len(rc.all())
		r.update(w.ID, webhook.Change{Enabled: new(true)})
		time.Sleep(time.Minute)
		// The replay waited in the queue beside the delivery that it repeats.
		if got := rc.numbers()[before:]; len(got) == 0 || slices.Contains(got, 2) {
			t.Fatalf("got %v, want ticket 1 only", got)
		}
		r.update(w.ID, webhook.Change{Enabled: new(false)})
		before = len(rc.all())
		r.update(w.ID, webhook.Change{Enabled: new(true)})
		time.Sleep(time.Minute)
		if got := rc.numbers()[before:]; len(got) != 0 {
			t.Errorf("got %v again", got)
		}
	})
}

func TestFailedMailSaysRecovery(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		n.outage(func(int) int { return http.StatusServiceUnavailable })
		r.create(webhook.New{})
		r.start()
		r.emit(1)
		time.Sleep(24 * time.Hour)
		mails := r.mails.all()
		if len(mails) == 0 || !strings.Contains(mails[0].Text, "oldest first, with a new retry schedule") {
			t.Errorf("got the mails %+v", mails)
		}
	})
}
