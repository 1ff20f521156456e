package bodypool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/netguard/netguardtest"
)

// house is a server in a synctest bubble that answers with the length of the body.
type house struct {
	pool     *Pool
	listener *netguardtest.Listener
}

func start(t *testing.T, total, perClient, limit int64) *house {
	t.Helper()
	h := &house{New(total, perClient), netguardtest.NewListener()}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := h.pool.Read(w, r, r.RemoteAddr, limit)
		defer b.Release()
		switch {
		case errors.Is(err, ErrSlow):
			w.WriteHeader(http.StatusRequestTimeout)
		case errors.Is(err, ErrCrowded):
			w.WriteHeader(http.StatusServiceUnavailable)
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
		default:
			fmt.Fprint(w, len(b.Bytes))
		}
	})}
	go srv.Serve(h.listener)
	t.Cleanup(func() { srv.Close(); <-time.After(time.Second) }) // the server lingers, in the bubble
	return h
}

// sender is a request in progress.
type sender struct {
	conn   net.Conn
	status int
	at     time.Duration // time of the answer since the start
	done   chan struct{}
}

// send starts a request with the body that write writes.
func (h *house) send(client string, length int64, write func(w io.Writer)) *sender {
	ours, err := h.listener.Dial(context.Background(), client)
	if err != nil {
		panic(err) // the test has ended
	}
	s := &sender{conn: ours, done: make(chan struct{})}
	start, wrote := time.Now(), make(chan struct{})
	go func() {
		defer close(wrote)
		fmt.Fprintf(ours, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", length)
		write(ours)
	}()
	go func() {
		defer close(s.done)
		resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
		s.at = time.Since(start)
		if err == nil {
			s.status = resp.StatusCode
		}
		ours.Close()
		<-wrote
	}()
	return s
}

func bytesOf(n int) func(io.Writer) {
	return func(w io.Writer) { w.Write(make([]byte, n)) }
}

func (h *house) wantFree(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if h.pool.used != 0 || len(h.pool.clients) != 0 || h.pool.complete != 0 {
		t.Errorf("got %d bytes, %d clients, %d bodies left", h.pool.used, len(h.pool.clients), h.pool.complete)
	}
}

// TestSlowBodyIsCutOff: a stalled sender gets a 408, a slow but steady one does not.
func TestSlowBodyIsCutOff(t *testing.T) {
	for _, tt := range []struct {
		name   string
		length int64
		write  func(w io.Writer)
		status int
		at     time.Duration
	}{
		{"nothing at all", 1000, func(io.Writer) {}, 408, 10 * time.Second},
		{"a byte each second", 1000, func(w io.Writer) {
			for range 1000 {
				w.Write([]byte{0})
				time.Sleep(time.Second)
			}
		}, 408, 10 * time.Second},
		{"70 KB of 35 MB", 35 << 20, bytesOf(70 << 10), 408, 10 * time.Second},
		{"a long pause", 8 << 20, func(w io.Writer) {
			w.Write(make([]byte, 7<<20))
			time.Sleep(11 * time.Second)
			w.Write(make([]byte, 1<<20))
		}, 408, 10 * time.Second},
		{"half the rate", 35 << 20, func(w io.Writer) {
			for range 280 {
				w.Write(make([]byte, 128<<10))
				time.Sleep(time.Second)
			}
		}, 408, 20 * time.Second},
		{"the rate", 8 << 20, func(w io.Writer) {
			for range 32 {
				w.Write(make([]byte, 256<<10))
				time.Sleep(time.Second)
			}
		}, 200, 31 * time.Second},
		{"9 seconds for little", 1000, func(w io.Writer) {
			time.Sleep(9 * time.Second)
			w.Write(make([]byte, 1000))
		}, 200, 9 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := start(t, 64<<20, 64<<20, 40<<20)
				s := h.send("a", tt.length, tt.write)
				<-s.done
				if s.status != tt.status || (s.at-tt.at).Abs() > time.Second {
					t.Errorf("answered %d after %v, want %d after %v", s.status, s.at, tt.status, tt.at)
				}
				h.wantFree(t)
			})
		})
	}
}

// TestSlowPool: a pool for slower bodies has its own rate.
func TestSlowPool(t *testing.T) {
	for rate, want := range map[int]int{64 << 10: 200, 32 << 10: 408} { // bytes per second
		synctest.Test(t, func(t *testing.T) {
			h := start(t, 40<<20, 40<<20, 10<<20)
			h.pool = NewSlow(40<<20, 40<<20, 64<<10)
			s := h.send("a", 2<<20, func(w io.Writer) {
				for range 2 << 20 / rate {
					w.Write(make([]byte, rate))
					time.Sleep(time.Second)
				}
			})
			if <-s.done; s.status != want {
				t.Errorf("%d bytes a second: %d after %s, want %d", rate, s.status, s.at, want)
			}
			h.wantFree(t)
		})
	}
}

// TestManyPartialBodiesMakeProgress: partial bodies that together need more memory than
// available do not block each other: the oldest completes, and as many as fit.
func TestManyPartialBodiesMakeProgress(t *testing.T) {
	for _, clients := range []int{1, 2, 16} {
		t.Run(fmt.Sprint(clients, " clients"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := start(t, 8<<20, 6<<20, 4<<20)
				more := make(chan struct{})
				var all []*sender
				for i := range 16 {
					all = append(all, h.send(fmt.Sprint("client ", i%clients), 4<<20, func(w io.Writer) {
						w.Write(make([]byte, 384<<10)) // of 512 KB reserved
						<-more
						w.Write(make([]byte, 4<<20-384<<10))
					}))
					synctest.Wait()
				}
				close(more)
				passed := 0
				for _, s := range all {
					<-s.done
					if s.status == 200 {
						passed++
					} else if s.status != 503 {
						t.Errorf("answered %d", s.status)
					}
				}
				if passed == 0 || all[0].at > maxWait {
					t.Errorf("%d of 16 arrived, the first answer after %v", passed, all[0].at)
				}
				h.wantFree(t)
			})
		})
	}
}

// used returns the memory of all bodies.
func (h *house) used() int64 {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	return h.pool.used
}

// wantBounds checks that neither a client nor all of them hold more than their bound.
func (h *house) wantBounds(t *testing.T, total, perClient int64) {
	t.Helper()
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	if h.pool.used > total {
		t.Errorf("all bodies hold %d bytes of %d", h.pool.used, total)
	}
	for name, c := range h.pool.clients {
		if c.used > perClient {
			t.Errorf("%s holds %d bytes of %d", name, c.used, perClient)
		}
	}
}

// TestMemoryIsBounded: partial bodies never hold more than perClient per client, and total
// together.
func TestMemoryIsBounded(t *testing.T) {
	for _, tt := range []struct {
		clients int
		want    int64
	}{
		{1, 3 << 20},
		{2, 6 << 20},
		{16, 8 << 20},
	} {
		t.Run(fmt.Sprint(tt.clients, " clients"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const total, perClient = 8 << 20, 3 << 20
				h := start(t, total, perClient, 2<<20)
				stop := make(chan struct{})
				var all []*sender
				for i := range 16 {
					all = append(all, h.send(fmt.Sprint("client ", i%tt.clients), 2<<20, func(w io.Writer) {
						w.Write(make([]byte, 1<<20)) // the whole reservation
						<-stop
					}))
					synctest.Wait()
					h.wantBounds(t, total, perClient)
				}
				if used := h.used(); used != tt.want {
					t.Errorf("all bodies hold %d bytes, want %d", used, tt.want)
				}
				close(stop)
				for _, s := range all {
					<-s.done
				}
				h.wantFree(t)
			})
		})
	}
}

// TestGreedyClientGivesWay: while one client holds all memory that it may, with active or
// stalled bodies, another client's body is not refused.
func TestGreedyClientGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 8<<20, 8<<20, 4<<20)
		stop := make(chan struct{})
		var greedy []*sender
		for range 4 {
			greedy = append(greedy, h.send("greedy", 4<<20, func(w io.Writer) {
				w.Write(make([]byte, 1<<20+1))
				<-stop
			}))
			synctest.Wait()
		}
		if h.pool.used != 8<<20 {
			t.Fatalf("%d bytes are in use, want all", h.pool.used)
		}
		other := h.send("other", 3<<20, bytesOf(3<<20))
		<-other.done
		if other.status != 200 || other.at != 0 {
			t.Errorf("another client was answered %d after %v", other.status, other.at)
		}
		// A body of the same client has priority over its stalled ones.
		time.Sleep(2 * time.Second)
		same := h.send("greedy", 4<<20, bytesOf(4<<20))
		<-same.done
		if same.status != 200 || same.at != 0 {
			t.Errorf("a body of the same client was answered %d after %v", same.status, same.at)
		}
		close(stop)
		for _, s := range greedy {
			<-s.done
			if s.status != 503 && s.status != 408 {
				t.Errorf("one that did not go on was answered %d", s.status)
			}
		}
		h.wantFree(t)
	})
}

func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 8<<20, 8<<20, 1<<20)
		for _, tt := range []struct {
			length int64
			sent   int
			status int
		}{
			{0, 0, 200}, {1, 1, 200}, {firstChunk, firstChunk, 200}, {firstChunk + 1, firstChunk + 1, 200},
			{1 << 20, 1 << 20, 200}, {1<<20 + 1, 0, 400},
		} {
			s := h.send("a", tt.length, bytesOf(tt.sent))
			<-s.done
			if s.status != tt.status {
				t.Errorf("%d bytes: answered %d, want %d", tt.length, s.status, tt.status)
			}
		}
		broken := h.send("a", 1000, func(w io.Writer) { w.Write([]byte("x")); w.(net.Conn).Close() })
		<-broken.done
		h.wantFree(t)
	})
}

// TestNoLeak: no memory leaks, however concurrent bodies end.
func TestNoLeak(t *testing.T) {
	p := New(1<<20, 1<<20)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for k := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				b := &Body{pool: p, key: fmt.Sprint(i % 3), conn: http.NewResponseController(nil), start: time.Now(), progress: time.Now()}
				p.enter(b)
				if k%3 == 0 {
					cancel()
				}
				if p.reserve(ctx, b, 64<<10) == nil {
					p.advance(b, 1)
					_ = p.reserve(ctx, b, 96<<10)
				}
				p.finish(b)
				b.Release()
				cancel()
			}
		})
	}
	wg.Wait()
	if p.used != 0 || len(p.clients) != 0 || p.complete != 0 {
		t.Errorf("got %d bytes, %d clients, %d bodies left", p.used, len(p.clients), p.complete)
	}
}
