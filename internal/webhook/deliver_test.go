package webhook_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// bubble runs a test on a fake clock, with a database and a network.
func bubble(t *testing.T, test func(t *testing.T, d *db.DB, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, dbtest.NewSQLite(t), newNetwork(t)) })
}

func fails(status int) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// wantGaps compares the times between posts with a schedule: each at least as
// long, and at most a tenth longer.
func wantGaps(t *testing.T, posts []post, want ...time.Duration) {
	t.Helper()
	if len(posts) != len(want)+1 {
		t.Fatalf("got %d posts, want %d", len(posts), len(want)+1)
	}
	for i, want := range want {
		if got := posts[i+1].at.Sub(posts[i].at); got < want || got > want+want/10 {
			t.Errorf("after post %d: got %v, want from %v to %v", i+1, got, want, want+want/10)
		}
	}
}

func TestSchedules(t *testing.T) {
	for schedule, want := range map[webhook.Schedule][]time.Duration{
		webhook.LongSchedule:  {time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 24 * time.Hour},
		webhook.ShortSchedule: {time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 8 * time.Hour},
	} {
		t.Run(string(schedule), func(t *testing.T) {
			bubble(t, func(t *testing.T, d *db.DB, n *network) {
				r := newRig(t, d, n, nil)
				rc := n.receive("receiver.example.com", fails(http.StatusBadGateway))
				w := r.create(webhook.New{RetrySchedule: schedule})
				r.start()
				r.emit(1)
				time.Sleep(48 * time.Hour)
				posts := rc.all()
				wantGaps(t, posts, want...)
				for _, p := range posts[1:] {
					if p.header.Get("X-Service-Delivery") != posts[0].header.Get("X-Service-Delivery") || p.body != posts[0].body {
						t.Errorf("got another delivery or body: %+v, want as in %+v", p, posts[0])
					}
				}
				if got := r.find(w.ID); got.State != webhook.Failed || len(r.mails.all()) != 2 {
					t.Errorf("got %s and %d mails, want it failed and a mail to each of 2 admins", got.State, len(r.mails.all()))
				}
			})
		})
	}
}

func TestTimeScale(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, func(c *webhook.Config) { c.RetryTimeScale = 0.5 })
		rc := n.receive("receiver.example.com", func(count int, w http.ResponseWriter, _ *http.Request) {
			if count == 2 {
				w.Header().Set("Retry-After", "1200")
			}
			if count < 4 {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		r.create(webhook.New{})
		r.start()
		r.emit(1)
		time.Sleep(24 * time.Hour)
		wantGaps(t, rc.all(), 30*time.Second, 10*time.Minute, 15*time.Minute)
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		rc := n.receive("receiver.example.com", func(count int, w http.ResponseWriter, _ *http.Request) {
			switch count {
			case 1: // longer than the schedule
				w.Header().Set("Retry-After", "7200")
				w.WriteHeader(http.StatusServiceUnavailable)
			case 2: // shorter
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			case 3: // not where it counts
				w.Header().Set("Retry-After", "7200")
				w.WriteHeader(http.StatusInternalServerError)
			case 4: // longer than attemptTimeout
				w.Header().Set("Retry-After", "604800")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		r.create(webhook.New{})
		r.start()
		r.emit(1)
		time.Sleep(7 * 24 * time.Hour)
		wantGaps(t, rc.all(), 2*time.Hour, 5*time.Minute, 30*time.Minute, 24*time.Hour)
	})
}

// A hanging receiver delays no other webhook and holds few connections.
func TestHangingReceiver(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		hanging := n.receive("hanging.example.com", func(_ int, _ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		r.create(webhook.New{URL: "https://hanging.example.com/"})
		var healthy []*receiver
		for i := range 9 {
			host := fmt.Sprintf("healthy%d.example.com", i)
			healthy = append(healthy, n.receive(host, nil))
			r.create(webhook.New{URL: "https://" + host + "/"})
		}
		r.start()
		var emitted []time.Time
		for i := range 100 {
			emitted = append(emitted, time.Now())
			r.emit(i + 1)
			time.Sleep(50 * time.Millisecond)
		}
		for i, rc := range healthy {
			posts := rc.all()
			if len(posts) != 100 {
				t.Errorf("receiver %d got %d events, want 100", i, len(posts))
			}
			for _, p := range posts {
				// On the fake clock only waiting takes time.
				if late := p.at.Sub(emitted[p.number-1]); late > 0 {
					t.Errorf("receiver %d got event %d late, by %v", i, p.number, late)
				}
			}
		}
		if got := len(hanging.all()); got != 4 {
			t.Errorf("posts to the receiver that hangs: got %d at once, want 4", got)
		}
		time.Sleep(30 * time.Second)
		if got := len(hanging.all()); got != 5 {
			t.Errorf("after its first were given up: got %d posts, want one more than 4", got)
		}
	})
}

func TestDelayCountsFromEndOfAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		rc := n.receive("receiver.example.com", func(_ int, _ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		w := r.create(webhook.New{})
		r.start()
		r.emit(1)
		time.Sleep(10 * time.Minute)
		wantGaps(t, rc.all(), 30*time.Second+time.Minute, 30*time.Second+5*time.Minute)
		if got := r.find(w.ID); got.LastError != "no answer within 30 seconds" || got.State != webhook.Enabled {
			t.Errorf("got %+v", got)
		}
	})
}

// For any behaviour of a receiver, an attempt ends with the right outcome.
func TestReceivers(t *testing.T) {
	answer := func(text string) func(io.Writer) { return func(w io.Writer) { io.WriteString(w, text) } }
	drip := func(head string) func(io.Writer) {
		return func(w io.Writer) {
			io.WriteString(w, head)
			for {
				time.Sleep(4 * time.Second)
				if _, err := io.WriteString(w, "."); err != nil {
					return
				}
			}
		}
	}
	tests := map[string]struct {
		answer   func(w io.Writer) // nil: TLS
		state    webhook.DeliveryState
		status   int
		err      string
		response string
		latency  time.Duration
	}{
		"ok":               {answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), webhook.Delivered, 200, "", "hello", 0},
		"no content":       {answer("HTTP/1.1 204 No Content\r\n\r\n"), webhook.Delivered, 204, "", "", 0},
		"not storable":     {answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na\x00\xff"), webhook.Delivered, 200, "", "a\uFFFD\uFFFD", 0},
		"redirect":         {answer("HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example.com/\r\nContent-Length: 0\r\n\r\n"), webhook.DeliveryFailed, 302, "the receiver answered 302 Found, and redirects are not followed", "", 0},
		"permanent":        {answer("HTTP/1.1 308 Permanent Redirect\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), webhook.DeliveryFailed, 308, "the receiver answered 308 Permanent Redirect, and redirects are not followed", "", 0},
		"gone":             {answer("HTTP/1.1 410 Gone\r\nContent-Length: 3\r\n\r\nbye"), webhook.DeliveryFailed, 410, "the receiver answered 410 Gone", "bye", 0},
		"busy":             {answer("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"), webhook.Retrying, 429, "the receiver answered 429 Too Many Requests", "", 0},
		"broken":           {answer("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"), webhook.Retrying, 503, "the receiver answered 503 Service Unavailable", "", 0},
		"no name":          {answer("HTTP/1.1 599 \r\nContent-Length: 0\r\n\r\n"), webhook.Retrying, 599, "the receiver answered 599", "", 0},
		"hangs up":         {answer(""), webhook.Retrying, 0, "EOF", "", 0},
		"no HTTP":          {answer("SSH-2.0-OpenSSH\r\n\r\n"), webhook.Retrying, 0, `net/http: HTTP/1.x transport connection broken: malformed HTTP response "SSH-2.0-OpenSSH"`, "", 0},
		"slow head":        {drip("HTTP/1.1 200 OK\r\nX-Slow: "), webhook.Retrying, 0, "no answer within 30 seconds", "", 30 * time.Second},
		"slow body":        {drip("HTTP/1.1 200 OK\r\n\r\n"), webhook.Delivered, 200, "", ".......", 30 * time.Second},
		"slow failure":     {drip("HTTP/1.1 500 Internal Server Error\r\n\r\n"), webhook.Retrying, 500, "the receiver answered 500 Internal Server Error", ".......", 30 * time.Second},
		"cut short":        {answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), webhook.Delivered, 200, "", "half", 0},
		"1000 headers":     {answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + strings.Repeat("X-Filler: something\r\n", 1000) + "\r\n"), webhook.Delivered, 200, "", "", 0},
		"too many headers": {answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + strings.Repeat("X-Filler: something\r\n", 10000) + "\r\n"), webhook.Retrying, 0, "net/http: HTTP/1.x transport connection broken: net/http: server response headers exceeded 65536 bytes; aborted", "", 0},
		"endless body": {func(w io.Writer) {
			io.WriteString(w, "HTTP/1.1 200 OK\r\n\r\n")
			chunk := bytes.Repeat([]byte("0123456789abcdef"), 64)
			for total := 0; ; total += len(chunk) {
				if _, err := w.Write(chunk); err != nil {
					if total > 128<<10 {
						t.Errorf("%d bytes of an answer were read", total)
					}
					return
				}
			}
		}, webhook.Delivered, 200, "", strings.Repeat("0123456789abcdef", 256), 0},
		"no TLS": {nil, webhook.Retrying, 0, "tls: first record does not look like a TLS handshake", "", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *db.DB, n *network) {
				l := n.listen("receiver.example.com")
				t.Cleanup(func() { l.Close() })
				go func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						go func() {
							defer conn.Close()
							if test.answer == nil {
								conn.Read(make([]byte, 1))
								go io.Copy(io.Discard, conn)
								io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
								return
							}
							q, err := http.ReadRequest(bufio.NewReader(conn))
							if err != nil {
								return
							}
							io.Copy(io.Discard, q.Body)
							test.answer(conn)
						}()
					}
				}()
				r := newRig(t, d, n, func(c *webhook.Config) {
					if test.answer == nil {
						tr := n.transport()
						tr.DialTLSContext = nil
						tr.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
						c.Transport = tr
					}
				})
				w := r.create(webhook.New{})
				r.start()
				r.emit(1)
				time.Sleep(40 * time.Second)
				got := r.deliveries(w.ID)[0]
				if got.State != test.state || got.Last.Status != test.status || got.Last.Error != test.err ||
					got.Last.Response != test.response || got.Last.Latency != test.latency || got.Attempts != 1 {
					t.Errorf("got %s, %d, %q, %q, %v, %d attempts\nwant %s, %d, %q, %q, %v, 1", got.State, got.Last.Status, got.Last.Error, got.Last.Response, got.Last.Latency, got.Attempts,
						test.state, test.status, test.err, test.response, test.latency)
				}
				if hook := r.find(w.ID); hook.State != webhook.Enabled || hook.LastError != test.err {
					t.Errorf("got %s, %q, want enabled and %q", hook.State, hook.LastError, test.err)
				}
			})
		})
	}
}

func TestNobodyListens(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		w := r.create(webhook.New{})
		r.start()
		r.emit(1)
		time.Sleep(30 * time.Second)
		if got := r.deliveries(w.ID)[0]; got.State != webhook.Retrying || got.Last.Error != "dial tcp: connection refused" ||
			got.NextAt.Sub(got.Last.At) < time.Minute || got.NextAt.Sub(got.Last.At) > 66*time.Second {
			t.Errorf("got %+v", got)
		}
		rc := n.receive("receiver.example.com", nil)
		time.Sleep(time.Minute)
		if got := r.deliveries(w.ID)[0]; got.State != webhook.Delivered || got.Attempts != 2 || len(rc.all()) != 1 {
			t.Errorf("got %+v", got)
		}
		attempts := r.attempts(r.deliveries(w.ID)[0].ID)
		if len(attempts) != 2 || attempts[0].Number != 1 || attempts[0].Status != 0 || attempts[0].Error == "" ||
			attempts[1].Number != 2 || attempts[1].Status != 200 || attempts[1].Error != "" {
			t.Errorf("got %+v", attempts)
		}
	})
}

// A private address behind a public name is refused when it is dialled.
func TestGuardedAddress(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), func(c *webhook.Config) { c.Transport = nil })
	w := r.create(webhook.New{})
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE webhooks SET url = 'https://127.0.0.1:1/' WHERE id = $1", w.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	got, err := r.hooks.Test(t.Context(), org, w.ID)
	if err != nil || !strings.Contains(got.Error, "127.0.0.1 is not a public address (loopback)") {
		t.Errorf("got %+v, %v, want it refused", got, err)
	}
}

// A retry that is due is not lost with the process, nor early or twice.
func TestRestartBetweenAttempts(t *testing.T) {
	for name, test := range map[string]struct {
		down time.Duration // from the first attempt on
		want time.Duration // from the first attempt to the second
	}{
		"before it is due": {20 * time.Second, time.Minute},
		"while it is due":  {10 * time.Minute, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *db.DB, n *network) {
				rc := n.receive("receiver.example.com", func(count int, w http.ResponseWriter, _ *http.Request) {
					if count == 1 {
						w.WriteHeader(http.StatusInternalServerError)
					}
				})
				first := newRig(t, d, n, nil)
				w := first.create(webhook.New{})
				first.start()
				first.emit(1)
				time.Sleep(time.Second)
				first.stop()
				time.Sleep(test.down - time.Second)
				second := newRig(t, d, n, nil)
				second.start()
				time.Sleep(time.Hour)
				wantGaps(t, rc.all(), test.want)
				if got := second.deliveries(w.ID)[0]; got.State != webhook.Delivered || got.Attempts != 2 {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

// Our own shutdown is not the receiver's failure.
func TestShutdownDuringAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		rc := n.receive("receiver.example.com", func(count int, _ http.ResponseWriter, q *http.Request) {
			if count == 1 {
				<-q.Context().Done()
			}
		})
		first := newRig(t, d, n, nil)
		w := first.create(webhook.New{})
		first.start()
		first.emit(1)
		time.Sleep(time.Second)
		first.kill()
		if got := first.deliveries(w.ID)[0]; got.Attempts != 0 || got.State != webhook.Pending {
			t.Errorf("after the stop: got %+v, want no attempt", got)
		}
		second := newRig(t, d, n, nil)
		second.start()
		time.Sleep(time.Second)
		posts := rc.all()
		if len(posts) != 2 || posts[0].header.Get("X-Service-Delivery") != posts[1].header.Get("X-Service-Delivery") {
			t.Fatalf("got %d posts, want the same delivery twice", len(posts))
		}
		if got := second.deliveries(w.ID)[0]; got.Attempts != 1 || got.State != webhook.Delivered {
			t.Errorf("got %+v, want one attempt", got)
		}
	})
}

// A process that dies in an attempt leaves it to another, once its lease is
// over, under the same delivery id.
func TestDeadProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := "sqlite:" + filepath.Join(t.TempDir(), "shared.db")
		open := func() *db.DB {
			d, err := db.Open(t.Context(), url, db.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			return d
		}
		alive := open()
		if _, err := alive.Migrate(t.Context(), db.Helpdesk); err != nil {
			t.Fatal(err)
		}
		n := newNetwork(t)
		rc := n.receive("receiver.example.com", func(count int, _ http.ResponseWriter, q *http.Request) {
			if count == 1 {
				<-q.Context().Done()
			}
		})
		dying := newRig(t, open(), n, nil)
		w := dying.create(webhook.New{})
		dying.start()
		dying.emit(1)
		time.Sleep(time.Second)
		dying.db.Close() // it can neither extend its lease nor record anything

		second := newPollingRig(t, alive, n, 0, nil)
		second.start()
		time.Sleep(5 * time.Second)
		if got := len(rc.all()); got != 1 {
			t.Errorf("while the lease holds: got %d posts, want 1", got)
		}
		time.Sleep(15 * time.Second)
		posts := rc.all()
		if len(posts) != 2 || posts[0].header.Get("X-Service-Delivery") != posts[1].header.Get("X-Service-Delivery") || posts[0].body != posts[1].body {
			t.Fatalf("got %d posts, want the same delivery twice", len(posts))
		}
		if got := second.deliveries(w.ID)[0]; got.Attempts != 1 || got.State != webhook.Delivered {
			t.Errorf("got %+v, want one attempt on record", got)
		}
	})
}

// After a secret is replaced, the old one signs too for a day.
func TestSecretRotation(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		rc := n.receive("receiver.example.com", nil)
		w := r.create(webhook.New{})
		r.start()
		verify := func(want map[string]bool) {
			t.Helper()
			before := len(rc.all())
			r.emit(1)
			time.Sleep(time.Second)
			posts := rc.all()
			if len(posts) != before+1 {
				t.Fatalf("got %d posts, want one more than %d", len(posts), before)
			}
			p := posts[before]
			for secret, want := range want {
				if _, err := payload.Verify(p.header, []byte(p.body), secret, time.Now()); (err == nil) != want {
					t.Errorf("verified with %q: got %v, want %t", secret, err, want)
				}
			}
			if count := len(strings.Fields(p.header.Get("Webhook-Signature"))); count != valid(want) {
				t.Errorf("got %d signatures, want %d", count, valid(want))
			}
		}
		verify(map[string]bool{"the first secret": false})
		r.update(w.ID, webhook.Change{Secret: new("the first secret")})
		verify(map[string]bool{"the first secret": true, "the second secret": false})
		r.update(w.ID, webhook.Change{Secret: new("the first secret")}) // replaces nothing
		verify(map[string]bool{"the first secret": true, "the second secret": false})
		r.update(w.ID, webhook.Change{Secret: new("the second secret")})
		verify(map[string]bool{"the first secret": true, "the second secret": true})
		time.Sleep(24*time.Hour - 5*time.Second)
		verify(map[string]bool{"the first secret": true, "the second secret": true})
		time.Sleep(10 * time.Second)
		verify(map[string]bool{"the first secret": false, "the second secret": true})
		r.update(w.ID, webhook.Change{Secret: new("the third secret")})
		r.update(w.ID, webhook.Change{Secret: new("the fourth secret")})
		verify(map[string]bool{"the second secret": false, "the third secret": true, "the fourth secret": true})
		r.update(w.ID, webhook.Change{Unsigned: true})
		verify(map[string]bool{"the third secret": false, "the fourth secret": false})
	})
}

func valid(want map[string]bool) int {
	n := 0
	for _, ok := range want {
		if ok {
			n++
		}
	}
	return n
}

// A change by another process is seen within a second, without a word from it.
func TestChangeElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		old, moved := n.receive("old.example.com", nil), n.receive("new.example.com", nil)
		r := newPollingRig(t, d, n, 0, nil)
		w := r.create(webhook.New{URL: "https://old.example.com/"})
		r.start()
		r.emit(1)
		time.Sleep(time.Second / 2)
		elsewhere := newRig(t, d, n, nil)
		elsewhere.update(w.ID, webhook.Change{URL: new("https://new.example.com/")})
		time.Sleep(time.Second)
		r.emit(2)
		time.Sleep(time.Second)
		if a, b := old.numbers(), moved.numbers(); !slices.Equal(a, []int{1}) || !slices.Equal(b, []int{2}) {
			t.Errorf("got %v and %v, want [1] and [2]", a, b)
		}
		elsewhere.update(w.ID, webhook.Change{Enabled: new(false)})
		r.emit(3)
		time.Sleep(time.Minute)
		elsewhere.update(w.ID, webhook.Change{Enabled: new(true)})
		time.Sleep(time.Minute)
		if got := moved.numbers(); !slices.Equal(got, []int{2, 3}) {
			t.Errorf("got %v, want [2 3]", got)
		}
		if err := elsewhere.hooks.Delete(t.Context(), org, w.ID); err != nil {
			t.Fatal(err)
		}
		r.emit(4)
		time.Sleep(time.Minute)
		if got := moved.numbers(); !slices.Equal(got, []int{2, 3}) {
			t.Errorf("after deleting: got %v, want [2 3]", got)
		}
	})
}

// A backlog keeps its order with a slow receiver, refused deliveries and retries.
func TestOrderOfBacklog(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		rc := n.receive("receiver.example.com", func(count int, w http.ResponseWriter, _ *http.Request) {
			time.Sleep(3 * time.Second)
			switch count {
			case 2:
				w.WriteHeader(http.StatusBadRequest)
			case 3:
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		w := r.create(webhook.New{Disabled: true})
		var want []int
		for i := 1; i <= 100; i++ {
			r.emit(i)
			want = append(want, i)
		}
		r.start()
		time.Sleep(time.Minute)
		r.update(w.ID, webhook.Change{Enabled: new(true)})
		time.Sleep(time.Second)
		for i := 101; i <= 110; i++ { // newer ones come after, in any order
			r.emit(i)
		}
		time.Sleep(20 * time.Minute)
		got := rc.numbers()
		again := slices.Index(got[3:], 3)
		if again < 0 {
			t.Fatalf("got %v, want 3 twice", got)
		}
		got = slices.Delete(got, again+3, again+4)
		if len(got) != 110 || !slices.Equal(got[:100], want) {
			t.Errorf("got %v, want 1 to 100 in order and then 101 to 110", got)
		}
	})
}

// Deliveries claimed but not yet posted when a webhook is disabled wait too.
func TestDisabledWithDeliveriesInHand(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		rc := n.receive("receiver.example.com", func(int, http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Second) })
		w := r.create(webhook.New{})
		r.start()
		var all []int
		for i := 1; i <= 20; i++ {
			all = append(all, i)
		}
		r.emit(all...)
		time.Sleep(time.Second)
		r.update(w.ID, webhook.Change{Enabled: new(false)})
		time.Sleep(time.Hour)
		if got := len(rc.all()); got != 4 {
			t.Errorf("while disabled: got %d posts, want the 4 that were under way", got)
		}
		if got := r.find(w.ID); got.QueuedEvents != 16 {
			t.Errorf("queued: got %d, want 16", got.QueuedEvents)
		}
		r.update(w.ID, webhook.Change{Enabled: new(true)})
		time.Sleep(time.Hour)
		if got := rc.numbers(); len(got) != 20 || !slices.IsSorted(got[4:]) {
			t.Errorf("got %v, want those that waited in order", got)
		}
	})
}
