package queue_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// receive waits for a value.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("it did not come")
		panic("unreachable")
	}
}

// noPoll polls only at start: later jobs run because of notifications.
var noPoll = queue.Config{Poll: time.Hour}

// listening returns once q receives notifications: it enqueues jobs from another process until
// one has run.
func listening(t *testing.T, rawURL string, kind string, ran <-chan *queue.Job) {
	t.Helper()
	d := dbtest.Open(t, rawURL)
	q := queue.Open(d, noPoll)
	for sent := 0; ; sent++ {
		enqueue(t, d, q, queue.New{Kind: kind, Lane: "is anybody there?"})
		select {
		case <-ran:
			for range sent {
				receive(t, ran)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestNotify(t *testing.T) {
	needPostgres(t)
	rawURL := dbtest.URL(t)
	open := func() (*queue.Queue, func(jobs ...queue.New)) {
		d := dbtest.Open(t, rawURL)
		q := queue.Open(d, noPoll)
		t.Cleanup(func() { stop(q) })
		return q, func(jobs ...queue.New) { t.Helper(); enqueue(t, d, q, jobs...) }
	}
	ran := make(chan *queue.Job, 100)
	worker, _ := open()
	start(t, worker, queue.Worker{Kind: "k", Run: func(_ context.Context, j *queue.Job) error {
		ran <- j
		return nil
	}})
	listening(t, rawURL, "k", ran)

	t.Run("from a process that only enqueues", func(t *testing.T) {
		_, enqueue := open()
		for _, lane := range []string{"l", "", "with spaces in it", "1 2 3", "\u00e9"} {
			enqueue(queue.New{Kind: "k", Lane: lane})
			if j := receive(t, ran); j.Lane != lane {
				t.Errorf("got lane %q, want %q", j.Lane, lane)
			}
		}
	})
	t.Run("for later", func(t *testing.T) {
		_, enqueue := open()
		due := time.Now().Add(50 * time.Millisecond)
		enqueue(queue.New{Kind: "k", Lane: "l", RunAt: due})
		receive(t, ran)
		if time.Now().Before(due) {
			t.Error("it ran too early")
		}
	})
	t.Run("from a process that is full", func(t *testing.T) {
		full, enqueue := open()
		entered := make(chan *queue.Job, 100)
		start(t, full, queue.Worker{Kind: "k", Concurrency: 1, Run: func(ctx context.Context, j *queue.Job) error {
			entered <- j
			<-ctx.Done()
			return ctx.Err()
		}})
		enqueue(queue.New{Kind: "k", Lane: "a"})
		receive(t, entered)
		enqueue(queue.New{Kind: "k", Lane: "b"}, queue.New{Kind: "k", Lane: "c"})
		receive(t, ran)
		receive(t, ran)
		// A stopping process announces the jobs it releases.
		stop(full)
		if j := receive(t, ran); j.Lane != "a" {
			t.Errorf("got lane %q, want what was given back", j.Lane)
		}
	})
	t.Run("to the process that holds the lane", func(t *testing.T) {
		entered, release := make(chan *queue.Job, 100), make(chan struct{})
		var released atomic.Bool
		holder, enqueue := open()
		start(t, holder, queue.Worker{Kind: "held", Run: func(ctx context.Context, j *queue.Job) error {
			entered <- j
			if j.Lane == "l" {
				<-release
			}
			return nil
		}})
		listening(t, rawURL, "held", entered)
		enqueue(queue.New{Kind: "held", Lane: "l"})
		receive(t, entered)
		// This process has room and accepts the job, but the lane is full.
		other, enqueueOther := open()
		asked := make(chan struct{})
		start(t, other, queue.Worker{Kind: "held", Run: func(_ context.Context, j *queue.Job) error {
			switch {
			case j.Lane != "l":
				close(asked)
			case released.Load():
				// It walked the lanes again when its connection was established, and found this
				// job.
				entered <- j
			default:
				t.Error("a second job ran in the lane")
			}
			return nil
		}})
		enqueueOther(queue.New{Kind: "held", Lane: "l"}, queue.New{Kind: "held", Lane: "asked with it"})
		receive(t, asked)
		released.Store(true)
		close(release)
		if j := receive(t, entered); j.Lane != "l" {
			t.Errorf("got lane %q, want %q", j.Lane, "l")
		}
	})
}

// proxy stands between a process and the server and can cut the connection.
type proxy struct {
	listener net.Listener
	server   string
	tries    chan time.Time // of connections while it is cut

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newProxy(t *testing.T, rawURL string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, server: u.Host, tries: make(chan time.Time, 1000), conns: make(map[net.Conn]struct{})}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.setCut(true)
		serving.Wait()
	})
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	if !p.add(c) {
		p.tries <- time.Now()
		return
	}
	s, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer s.Close()
	if !p.add(s) {
		return
	}
	go func() {
		io.Copy(s, c)
		s.Close()
	}()
	io.Copy(c, s)
}

func (p *proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cut {
		p.conns[c] = struct{}{}
	}
	return !p.cut
}

func (p *proxy) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

// The server fails while a job runs. The outcome is recorded once the server is back, so the
// job does not run again; retries are spaced meanwhile.
func TestServerLost(t *testing.T) {
	needPostgres(t)
	rawURL := dbtest.URL(t)
	direct := dbtest.Open(t, rawURL)
	p, through := newProxy(t, rawURL)
	d := dbtest.Open(t, through)
	q := queue.Open(d, queue.Config{Poll: 50 * time.Millisecond})
	entered, release := make(chan *queue.Job, 10), make(chan struct{})
	start(t, q, queue.Worker{Kind: "k", Run: func(ctx context.Context, j *queue.Job) error {
		entered <- j
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	elsewhere := queue.Open(direct, queue.Config{})
	for i := range 3 {
		enqueue(t, direct, elsewhere, queue.New{Kind: "k", Lane: fmt.Sprint(i)})
		receive(t, entered)
	}
	p.setCut(true)
	close(release)
	enqueue(t, direct, elsewhere, queue.New{Kind: "k", Lane: "waits"})
	var tries []time.Time
	for range 40 {
		tries = append(tries, receive(t, p.tries))
	}
	// The first come at once, from the connections that were cut. The waits between the others
	// are random; without them 30 attempts take a few milliseconds.
	if took := tries[39].Sub(tries[9]); took < 250*time.Millisecond {
		t.Errorf("got 30 attempts to connect in %v, want them to take their time", took)
	}
	if len(entered) != 0 {
		t.Error("a job ran without a database")
	}
	p.setCut(false)
	if j := receive(t, entered); j.Lane != "waits" {
		t.Errorf("got a job of lane %q, want the one that came meanwhile", j.Lane)
	}
	q.Stop(t.Context())
	if n := count(t, direct, "1 = 1"); n != 0 || len(entered) != 0 {
		t.Errorf("got %d jobs left and %d more runs, want none", n, len(entered))
	}
}

// A process that stops leaves its tenants to others, although its last jobs still run.
func TestAffinityEndsWithClaims(t *testing.T) {
	needPostgres(t)
	rawURL := dbtest.URL(t)
	ran, leave := make(chan string, 100), make(chan struct{})
	open := func() *queue.Queue {
		q := queue.Open(dbtest.Open(t, rawURL), queue.Config{Poll: 20 * time.Millisecond, Lease: time.Second})
		t.Cleanup(func() { stop(q) })
		start(t, q, queue.Worker{Kind: "k", Affinity: true, Run: func(ctx context.Context, j *queue.Job) error {
			ran <- j.Lane
			if j.Lane == "slow" {
				select {
				case <-leave:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}})
		return q
	}
	first := open()
	d := dbtest.Open(t, rawURL)
	other := queue.Open(d, queue.Config{})
	enqueue(t, d, other, queue.New{Kind: "k", Lane: "slow", Tenant: "t"})
	receive(t, ran)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		first.Stop(context.Background())
	}()
	open()
	enqueue(t, d, other, queue.New{Kind: "k", Lane: "quick", Tenant: "t"})
	if lane := receive(t, ran); lane != "quick" {
		t.Errorf("got lane %s, want quick", lane)
	}
	close(leave)
	<-stopped
}

// With affinity a process runs no jobs of a tenant that another one serves, until that process has
// ended them, or has stopped extending its leases.
func TestAffinity(t *testing.T) {
	needPostgres(t)
	rawURL := dbtest.URL(t)
	type run struct {
		process string
		lane    string
		end     chan struct{}
	}
	ran := make(chan run, 100)
	open := func(name string, concurrency int) *queue.Queue {
		q := queue.Open(dbtest.Open(t, rawURL), queue.Config{Poll: 20 * time.Millisecond})
		t.Cleanup(func() { stop(q) })
		start(t, q, queue.Worker{Kind: "k", Affinity: true, Concurrency: concurrency, Run: func(ctx context.Context, j *queue.Job) error {
			r := run{name, j.Lane, make(chan struct{})}
			ran <- r
			select {
			case <-r.end:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		return q
	}
	d := dbtest.Open(t, rawURL)
	other := queue.Open(d, queue.Config{})
	add := func(tenant, lane string) {
		t.Helper()
		enqueue(t, d, other, queue.New{Kind: "k", Lane: lane, Tenant: tenant})
	}
	want := func(process, lane string) run {
		t.Helper()
		r := receive(t, ran)
		if process != "" && r.process != process || r.lane != lane {
			t.Fatalf("process %s runs lane %s, want %s, %s", r.process, r.lane, process, lane)
		}
		return r
	}
	open("a", 2)
	add("one", "one/1")
	first := want("a", "one/1")
	open("b", 20)
	add("one", "one/2")
	second := want("a", "one/2")
	// No place is left in a. Both jobs are found together; b runs only that of another tenant.
	add("one", "one/3")
	for i := range 3 {
		add("two", fmt.Sprintf("two/%d", i))
		close(want("b", fmt.Sprintf("two/%d", i)).end)
	}
	close(first.end)
	close(want("a", "one/3").end)
	close(second.end)

	// The process of these leases stands still.
	add("three", "three/1")
	lost := want("", "three/1")
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE jobs SET lease = 'gone/1', lease_until = $1 WHERE tenant = 'three'", tx.Now.Add(5*time.Second).UnixMicro())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	add("three", "three/2")
	next := want("", "three/2")
	close(next.end)
	close(lost.end)
}
