package webhook_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// uuidAgo returns an id created the given number of minutes ago.
func uuidAgo(minutes int) string {
	ms := time.Now().Add(-time.Duration(minutes) * time.Minute).UnixMilli()
	return fmt.Sprintf("%08x-%04x-7000-8000-%012d", ms>>16, ms&0xffff, minutes)
}

// An ordered webhook gets one delivery at a time. A retry blocks later deliveries, a refusal
// does not.
func TestOrdered(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		attempts := make(map[int]int)
		rc := n.receive("receiver.example.com", nil)
		rc.answer = func(n int, w http.ResponseWriter, _ *http.Request) {
			number := rc.all()[n-1].number
			attempts[number]++ // one at a time
			time.Sleep(time.Second)
			switch {
			case number == 2 && attempts[2] < 3:
				w.WriteHeader(http.StatusServiceUnavailable)
			case number == 4:
				w.WriteHeader(http.StatusGone)
			}
		}
		other := n.receive("other.example.com", nil)
		w := r.create(webhook.New{Ordered: true})
		r.create(webhook.New{URL: "https://other.example.com/"})
		if !w.Ordered {
			t.Error("the record does not say that it is ordered")
		}
		r.start()
		begin := time.Now()
		r.emit(1, 2, 3)
		r.emit(4)
		r.emit(5)
		time.Sleep(time.Second)
		if got := len(other.all()); got != 5 {
			t.Errorf("the other webhook got %d at once, want 5", got)
		}
		time.Sleep(time.Hour)
		if got, want := rc.numbers(), []int{1, 2, 2, 2, 3, 4, 5}; !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		posts := rc.all()
		wantGaps(t, posts[1:4], time.Minute+time.Second, 5*time.Minute+time.Second)
		for _, i := range []int{1, 4, 5, 6} {
			if gap := posts[i].at.Sub(posts[i-1].at); gap != time.Second {
				t.Errorf("post %d came after %v, want right after the one before", i+1, gap)
			}
		}
		if posts[0].at != begin {
			t.Errorf("the first came after %v", posts[0].at.Sub(begin))
		}
	})
}

// Switching a webhook to ordered and back loses nothing: waiting deliveries follow the new
// rule, and deliveries under way follow it from their first retry.
func TestOrderedSwitch(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, func(c *webhook.Config) { c.RetryTimeScale = 1e-4 })
	var mu sync.Mutex
	under, most := 0, 0
	broken := true
	arrived, release := make(chan int, 100), make(chan struct{})
	n.serve("receiver.example.com", func(w http.ResponseWriter, q *http.Request) {
		body := make([]byte, q.ContentLength)
		q.Body.Read(body)
		mu.Lock()
		under++
		most = max(most, under)
		fail := broken
		mu.Unlock()
		arrived <- ticketNumber(body)
		<-release
		mu.Lock()
		under--
		mu.Unlock()
		if fail {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	w := r.create(webhook.New{})
	r.start()
	for i := range 8 {
		r.emit(i + 1)
	}
	for range 4 { // as many as a receiver gets that has not answered yet
		<-arrived
	}
	r.update(w.ID, webhook.Change{Ordered: new(true)})
	mu.Lock()
	broken, most = false, 0
	mu.Unlock()
	close(release) // the four fail, and come into the ordered lane
	var got []int
	for range 8 {
		got = append(got, <-arrived)
	}
	r.stop()
	if most > 5 { // the four, and the one that ran beside them
		t.Errorf("%d were under way at once, want the ordered one only", most)
	}
	seen := make(map[int]bool)
	for _, number := range got {
		seen[number] = true
	}
	if len(seen) != 8 {
		t.Errorf("got %v, want all 8 once", got)
	}
	if jobs := r.count("SELECT count(*) FROM jobs"); jobs != 0 {
		t.Errorf("got %d jobs left", jobs)
	}
	if done := r.count("SELECT count(*) FROM deliveries WHERE state = 2"); done != 8 {
		t.Errorf("got %d delivered, want 8", done)
	}

	// A job that was enqueued while the kind changed.
	r = newRig(t, r.db, n, nil)
	for _, kind := range []string{webhook.JobKind, webhook.OrderedKind} {
		w = r.update(w.ID, webhook.Change{Ordered: new(kind == webhook.JobKind), Enabled: new(false)})
		r.emit(9, 10)
		if n := r.count("SELECT count(*) FROM jobs WHERE kind = '" + kind + "'"); n != 0 {
			t.Errorf("got %d jobs of kind %s, want them in the other", n, kind)
		}
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE jobs SET kind = $1", kind)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		r.update(w.ID, webhook.Change{Enabled: new(true)})
	}
	if held := r.count("SELECT count(*) FROM held_lanes"); held != 0 {
		t.Errorf("got %d lanes held, want none", held)
	}
	r.start()
	for _, want := range []int{9, 10, 9, 10} {
		if got := <-arrived; got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	r.stop()
	if jobs := r.count("SELECT count(*) FROM jobs"); jobs != 0 {
		t.Errorf("got %d jobs left", jobs)
	}
	if err := r.hooks.Delete(t.Context(), org, w.ID); err != nil {
		t.Fatal(err)
	}
}

// slowly makes a host answer after ten seconds. The function returns the highest number of
// concurrent requests since its last call.
func slowly(n *network, host string) (*receiver, func() int) {
	var mu sync.Mutex
	under, most := 0, 0
	rc := n.receive(host, func(int, http.ResponseWriter, *http.Request) {
		mu.Lock()
		under++
		most = max(most, under)
		mu.Unlock()
		<-time.After(10 * time.Second)
		mu.Lock()
		under--
		mu.Unlock()
	})
	return rc, func() int {
		mu.Lock()
		defer mu.Unlock()
		was := most
		most = under
		return was
	}
}

// Deliveries in hand that have not been posted yet when their webhook becomes
// ordered go one at a time, too, whether they waited for a place or their turn.
func TestOrderedWhileInHand(t *testing.T) {
	for name, drained := range map[string]bool{"for a place": false, "for their turn": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *db.DB, n *network) {
				r := newRig(t, d, n, nil)
				rc, most := slowly(n, "receiver.example.com")
				w := r.create(webhook.New{Disabled: drained})
				r.start()
				for i := range 20 {
					r.emit(i + 1)
				}
				r.update(w.ID, webhook.Change{Enabled: new(true)})
				time.Sleep(time.Second)
				r.update(w.ID, webhook.Change{Ordered: new(true)})
				time.Sleep(12 * time.Second) // requests under way have ended
				most()
				time.Sleep(5 * time.Minute)
				if got := most(); got != 1 {
					t.Errorf("%d were under way at once, want 1", got)
				}
				seen := make(map[int]bool)
				for _, number := range rc.numbers() {
					seen[number] = true
				}
				if got := rc.numbers(); len(got) != 20 || len(seen) != 20 {
					t.Errorf("got %v, want all 20 once", got)
				}
				if got := rc.numbers(); !slices.IsSorted(got[9:]) {
					t.Errorf("got %v, want those after what was in hand in order", got)
				}
			})
		})
	}
}

// Deliveries claimed but not posted when a webhook is disabled are sent in order, one by one,
// if it is enabled again at once.
func TestEnabledWhileInHand(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		rc, most := slowly(n, "receiver.example.com")
		w := r.create(webhook.New{})
		r.start()
		for i := range 20 {
			r.emit(i + 1)
		}
		time.Sleep(time.Second)
		r.update(w.ID, webhook.Change{Enabled: new(false)})
		r.update(w.ID, webhook.Change{Enabled: new(true)})
		time.Sleep(11 * time.Second) // the four that were under way have ended
		most()
		time.Sleep(160 * time.Second) // the rest, without a pause
		if got := most(); got != 1 {
			t.Errorf("%d were under way at once, want 1", got)
		}
		if got := rc.numbers(); len(got) != 20 || !slices.IsSorted(got[4:]) {
			t.Errorf("got %v, want all 20, those after the first four in order", got)
		}
	})
}

// If an attempt fails while its webhook becomes ordered, it moves to the ordered
// lane and blocks later deliveries.
func TestOrderedWhileRecorded(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	arrived, answer := make(chan struct{}), make(chan struct{})
	n.receive("receiver.example.com", func(_ int, w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-answer
		w.WriteHeader(http.StatusInternalServerError)
	})
	w := r.create(webhook.New{})
	r.start()
	r.emit(1)
	<-arrived
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE webhooks SET ordered = TRUE WHERE id = $1", w.ID)
		close(answer)
		if r.db.Postgres() { // on SQLite there is one writer, and it is this
			r.until(func() bool { // the record is written, or waits for this
				return r.count(`SELECT (SELECT count(*) FROM deliveries WHERE attempts > 0)
					+ (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`) > 0
			})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if got := r.count("SELECT count(*) FROM jobs WHERE kind = 'webhook-ordered'"); got != 1 {
		t.Errorf("got %d ordered jobs, want the one that will be tried again", got)
	}
}

// A long lane changes its kind in several steps.
func TestOrderedSwitchOfMany(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	w := r.create(webhook.New{Disabled: true})
	var numbers []int
	for i := range 2*queue.MoveMax + 1 {
		numbers = append(numbers, i+1)
	}
	r.emit(numbers...)
	for _, ordered := range []bool{true, false} {
		r.update(w.ID, webhook.Change{Ordered: &ordered})
		kind := webhook.JobKind
		if ordered {
			kind = webhook.OrderedKind
		}
		if got := r.count("SELECT count(*) FROM jobs WHERE kind = '" + kind + "'"); got != len(numbers) {
			t.Errorf("ordered %t: got %d jobs of kind %s, want %d", ordered, got, kind, len(numbers))
		}
	}
}

// A webhook disabled before ordered ones existed has one lane held. The other is held when
// needed; otherwise its jobs would be claimed without end.
func TestOrderedOfOld(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	w := r.create(webhook.New{Disabled: true})
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "DELETE FROM held_lanes WHERE kind = $1", webhook.OrderedKind)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.update(w.ID, webhook.Change{Ordered: new(true)})
	if held := r.count("SELECT count(*) FROM held_lanes"); held != 3 {
		t.Errorf("got %d lanes held, want 3", held)
	}
}

func TestDeleteOrdered(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	arrived, gone := make(chan struct{}), make(chan struct{})
	n.serve("receiver.example.com", func(w http.ResponseWriter, q *http.Request) {
		q.Body.Read(make([]byte, q.ContentLength+1))
		close(arrived)
		<-q.Context().Done()
		close(gone)
	})
	w := r.create(webhook.New{Ordered: true})
	r.start()
	r.emit(1, 2)
	<-arrived
	if err := r.hooks.Delete(t.Context(), org, w.ID); err != nil {
		t.Fatal(err)
	}
	<-gone
	r.stop()
	if jobs := r.count("SELECT count(*) FROM jobs"); jobs != 0 {
		t.Errorf("got %d jobs left", jobs)
	}
}

// gaps are the times between posts.
func gaps(posts []post) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(posts); i++ {
		out = append(out, posts[i].at.Sub(posts[i-1].at))
	}
	return out
}

func TestDrainRate(t *testing.T) {
	for name, ordered := range map[string]bool{"side by side": false, "ordered": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *db.DB, n *network) {
				r := newRig(t, d, n, nil)
				rc := n.receive("receiver.example.com", nil)
				w := r.create(webhook.New{Disabled: true, Ordered: ordered})
				r.start()
				for i := range 100 { // more than are in hand at once
					r.emit(i + 1)
				}
				if got := r.update(w.ID, webhook.Change{Enabled: new(true), DrainRate: new(2)}); got.DrainRate != 2 {
					t.Errorf("got rate %d, want 2", got.DrainRate)
				}
				r.emit(101, 102)
				begin := time.Now()
				time.Sleep(20*time.Second + time.Millisecond)
				if got := len(rc.all()); got != 41 {
					t.Errorf("after 20 s: got %d, want 41", got)
				}
				if got := r.find(w.ID); got.DrainRate != 2 || got.QueuedEvents != 61 {
					t.Errorf("after 20 s: got rate %d with %d queued, want 2 with 61", got.DrainRate, got.QueuedEvents)
				}
				// Another rate, for the rest.
				r.update(w.ID, webhook.Change{Enabled: new(true), DrainRate: new(10)})
				time.Sleep(7 * time.Second)
				posts := rc.all()
				if len(posts) != 102 {
					t.Fatalf("got %d posts, want all 102", len(posts))
				}
				for i, gap := range gaps(posts[:100]) {
					want := 500 * time.Millisecond
					if i > 41 { // the next one had its time already
						want = 100 * time.Millisecond
					}
					if gap != want || posts[i+1].number != i+2 {
						t.Errorf("post %d is %d after %v, want after %v", i+2, posts[i+1].number, gap, want)
					}
				}
				if posts[0].at != begin {
					t.Errorf("the first came after %v, want at once", posts[0].at.Sub(begin))
				}
				// Newer ones follow, and not at the rate.
				if last := posts[101].at.Sub(posts[99].at); last != 0 {
					t.Errorf("newer ones came %v after the backlog, want at once", last)
				}
				if got := r.find(w.ID); got.DrainRate != 0 || got.QueuedEvents != 0 {
					t.Errorf("at the end: got rate %d with %d queued, want none", got.DrainRate, got.QueuedEvents)
				}
			})
		})
	}
}

// A receiver slower than the drain rate, and slower per delivery than turnWait, gets deliveries
// back to back.
func TestDrainSlowReceiver(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		rc := n.receive("receiver.example.com", func(int, http.ResponseWriter, *http.Request) { time.Sleep(12 * time.Second) })
		w := r.create(webhook.New{Disabled: true})
		r.start()
		for i := range 80 {
			r.emit(i + 1)
		}
		r.update(w.ID, webhook.Change{Enabled: new(true), DrainRate: new(5)})
		time.Sleep(80 * 12 * time.Second)
		for i, gap := range gaps(rc.all()) {
			if gap != 12*time.Second {
				t.Errorf("post %d came after %v, want 12s", i+2, gap)
			}
		}
		if got := len(rc.all()); got != 80 {
			t.Errorf("got %d, want 80", got)
		}
	})
}

// The rate is one over all processes.
func TestDrainRateOfTwoProcesses(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		a := newPollingRig(t, d, n, 100*time.Millisecond, func(c *webhook.Config) { c.PerLane = 4 })
		b := newPollingRig(t, d, n, 100*time.Millisecond, func(c *webhook.Config) { c.PerLane = 4 })
		rc := n.receive("receiver.example.com", func(count int, w http.ResponseWriter, _ *http.Request) {
			if count == 5 {
				w.WriteHeader(http.StatusBadGateway) // comes again, and counts
			}
		})
		w := a.create(webhook.New{Disabled: true})
		a.start()
		b.start()
		for i := range 200 {
			a.emit(i + 1)
		}
		b.update(w.ID, webhook.Change{Enabled: new(true), DrainRate: new(1)})
		time.Sleep(240 * time.Second)
		posts := rc.all()
		if len(posts) != 201 {
			t.Fatalf("got %d posts, want 201", len(posts))
		}
		for i, gap := range gaps(posts) {
			if gap < time.Second || gap > 1500*time.Millisecond {
				t.Errorf("post %d came after %v, want about a second", i+2, gap)
			}
		}
	})
}

// On either engine: in order, and not faster.
func TestDrainRateIsKept(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	rc := n.receive("receiver.example.com", nil)
	w := r.create(webhook.New{Disabled: true})
	for i := range 20 {
		r.emit(i + 1)
	}
	r.start()
	w = r.update(w.ID, webhook.Change{Enabled: new(true), DrainRate: new(200)})
	posts := rc.wait(t, 20)
	r.stop()
	list := r.deliveries(w.ID)
	slices.Reverse(list)
	for i, d := range list {
		if posts[i].number != i+1 {
			t.Errorf("post %d is %d", i+1, posts[i].number)
		}
		if after := d.Last.At.Sub(w.UpdatedAt); after < time.Duration(i)*5*time.Millisecond {
			t.Errorf("delivery %d started after %v, want at least %d times 5ms", i+1, after, i)
		}
	}
}

// Disabling a webhook ends its rate; the next time is another.
func TestDrainInterrupted(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		rc := n.receive("receiver.example.com", nil)
		w := r.create(webhook.New{Disabled: true})
		r.start()
		for i := range 20 {
			r.emit(i + 1)
		}
		r.update(w.ID, webhook.Change{Enabled: new(true), DrainRate: new(1)})
		time.Sleep(4500 * time.Millisecond)
		if got := r.update(w.ID, webhook.Change{Enabled: new(false)}); got.DrainRate != 0 {
			t.Errorf("got rate %d while disabled, want none", got.DrainRate)
		}
		time.Sleep(time.Hour)
		if got := len(rc.all()); got != 5 {
			t.Errorf("got %d before it was disabled, want 5", got)
		}
		r.update(w.ID, webhook.Change{Enabled: new(true)})
		time.Sleep(10 * time.Second)
		numbers := rc.numbers()
		for i, number := range numbers {
			if number != i+1 {
				t.Fatalf("got %v, want them in order", numbers)
			}
		}
		if len(numbers) != 20 {
			t.Errorf("got %d, want all 20", len(numbers))
		}
	})
}

// To enable a webhook that is enabled without a rate lifts the rate.
func TestDrainRateLifted(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		rc := n.receive("receiver.example.com", nil)
		w := r.create(webhook.New{Disabled: true})
		r.start()
		for i := range 60 {
			r.emit(i + 1)
		}
		r.update(w.ID, webhook.Change{Enabled: new(true), DrainRate: new(1)})
		time.Sleep(3 * time.Second)
		if got := r.update(w.ID, webhook.Change{URL: &w.URL}); got.DrainRate != 1 {
			t.Errorf("after another change: got rate %d, want 1", got.DrainRate)
		}
		if got := r.update(w.ID, webhook.Change{Enabled: new(true)}); got.DrainRate != 0 {
			t.Errorf("got rate %d, want none", got.DrainRate)
		}
		time.Sleep(5 * time.Second)
		if got := len(rc.all()); got != 60 {
			t.Errorf("got %d, want all 60", got)
		}
	})
}

func TestDrainRateRefused(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	w := r.create(webhook.New{})
	for want, c := range map[string]webhook.Change{
		"drainRate must be from 1 to 1000, or 0 for no limit": {Enabled: new(true), DrainRate: new(1001)},
		"drainRate needs enabled to be true":                  {DrainRate: new(5)},
	} {
		if _, err := r.hooks.Update(t.Context(), org, w.ID, c); issues(err) != want {
			t.Errorf("%+v: got %v, want %s", c, err, want)
		}
	}
	if _, err := r.hooks.Update(t.Context(), org, w.ID, webhook.Change{Enabled: new(true), DrainRate: new(-1)}); issues(err) == "" {
		t.Error("a negative rate was taken")
	}
	for _, rate := range []int{0, 1000} {
		if got := r.update(w.ID, webhook.Change{Enabled: new(true), DrainRate: &rate}); got.DrainRate != 0 {
			t.Errorf("without a backlog: got rate %d, want none", got.DrainRate)
		}
	}
}

// A backlog is sent in the order in which the database accepted its deliveries. Their ids are made
// by processes whose clocks differ, and are in another order.
func TestBacklogInOrderOfAcceptance(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, func(c *webhook.Config) { c.PerLane = 2 })
		rc := n.receive("receiver.example.com", nil)
		w := r.create(webhook.New{})
		r.update(w.ID, webhook.Change{Enabled: new(false)})
		var want []int
		for i := range 20 {
			r.emit(i + 1)
			want = append(want, 20-i)
		}
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE jobs SET seq = 2000000000 - seq")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		r.start()
		r.update(w.ID, webhook.Change{Enabled: new(true)})
		time.Sleep(time.Minute)
		if got := rc.numbers(); !slices.Equal(got, want) {
			t.Errorf("received %v, want %v", got, want)
		}
	})
}
