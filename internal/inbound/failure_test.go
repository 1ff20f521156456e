package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const unavailable = `{"error":"the event could not be stored; send it again"}` + "\n"

// wantUnavailable checks that a request is answered with a retryable error.
func (h *house) wantUnavailable(t testing.TB, r *http.Request) {
	t.Helper()
	w := h.do(r)
	if w.Code != 503 || w.Body.String() != unavailable || w.Header().Get("Retry-After") != "5" {
		t.Errorf("answered %d %q, Retry-After %q; want 503 %q, 5", w.Code, w.Body, w.Header().Get("Retry-After"), unavailable)
	}
}

func TestDiskFull(t *testing.T) {
	h := startSQLite(t)
	h.connect(t, "sms", ours)
	h.connect(t, "email-raw", "help@acme.example")
	h.exec(t, fmt.Sprintf("PRAGMA max_page_count = %d", h.count(t, "PRAGMA page_count")+2))
	long := strings.Repeat("very long ", 2000)
	var stored []string
	failed := 0
	for i := range 10 {
		body := fmt.Sprint(i, " ", long)
		w := h.do(smsRequest(text(fmt.Sprintf("SM%d", i), theirs, body), secretOf(ours)))
		switch {
		case w.Code == 200 && w.Body.String() == twiml:
			stored = append(stored, strings.TrimSpace(body))
		case w.Code == 503 && w.Header().Get("Retry-After") == "5":
			failed++
		default:
			t.Errorf("answered %d %q", w.Code, w.Body)
		}
	}
	if failed < 9 {
		t.Errorf("%d of 10 requests failed on a full disk, want 9 at least", failed)
	}
	// An unreadable signed request is not answered with a 400 before it is stored.
	h.wantUnavailable(t, smsRequest(text("", "", long), secretOf(ours)))
	if n := h.count(t, "SELECT count(*) FROM inbound_events"); n != len(stored) {
		t.Errorf("%d events, want the %d that were accepted", n, len(stored))
	}
	h.exec(t, "PRAGMA max_page_count = 1000000")
	h.wantAnswer(t, smsRequest(text("SM9", theirs, "there is room again"), secretOf(ours)), 200, twiml)
	h.until(t, event.MessageCreated, len(stored)+1)
	h.wantTickets(t, "org-1", append(stored, "there is room again"))
}

func TestReadOnly(t *testing.T) {
	h := startSQLite(t)
	h.connect(t, "sms", ours)
	before := h.rows(t)
	h.exec(t, "PRAGMA query_only = 1")
	h.wantUnavailable(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)))
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "hello"), "not the secret"), 401, denied)
	h.wantUntouched(t, before)
}

func TestDatabaseMovedAway(t *testing.T) {
	url := dbtest.SQLiteURL(t)
	h := startOn(t, dbtest.Open(t, url))
	h.connect(t, "sms", ours)
	h.wantAnswer(t, smsRequest(text("SM0", theirs, "before"), secretOf(ours)), 200, twiml)
	path := strings.TrimPrefix(url, "sqlite:")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	h.wantUnavailable(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)))
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)), 200, twiml)
}

func TestDatabaseClosed(t *testing.T) {
	h := start(t)
	h.connect(t, "sms", ours)
	if err := h.db.Close(); err != nil {
		t.Fatal(err)
	}
	h.wantUnavailable(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)))
	// Also if the signature cannot be checked.
	h.wantUnavailable(t, smsRequest(text("SM1", theirs, "hello"), "not the secret"))
}

// TestServerLost cuts the connection to PostgreSQL.
func TestServerLost(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("needs PostgreSQL")
	}
	rawURL := dbtest.URL(t)
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	line := newLine(t, u.Host)
	u.Host = line.address
	d := dbtest.Open(t, u.String())
	h := startOn(t, d)
	h.connect(t, "sms", ours)
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "before"), secretOf(ours)), 200, twiml)
	line.cut()
	h.wantUnavailable(t, smsRequest(text("SM2", theirs, "meanwhile"), secretOf(ours)))
	h.wantUnavailable(t, smsRequest(text("SM2", theirs, "meanwhile"), secretOf(ours)))
	line.mend()
	h.wantAnswer(t, smsRequest(text("SM2", theirs, "meanwhile"), secretOf(ours)), 200, twiml)
	h.until(t, event.MessageCreated, 2)
	h.wantTickets(t, "org-1", []string{"before", "meanwhile"})
}

// line proxies connections to a server until it is cut.
type line struct {
	address string
	mu      sync.Mutex
	broken  bool
	conns   []net.Conn
}

func newLine(t *testing.T, target string) *line {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{address: ln.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			l.mu.Lock()
			if l.broken || err != nil {
				near.Close()
				if far != nil {
					far.Close()
				}
			} else {
				l.conns = append(l.conns, near, far)
				wg.Go(func() { io.Copy(near, far); near.Close() })
				wg.Go(func() { io.Copy(far, near); far.Close() })
			}
			l.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		ln.Close()
		l.cut()
		wg.Wait()
	})
	return l
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = false
}

// brokenStore is a blob store that fails on demand.
type brokenStore struct {
	blob.Store
	broken atomic.Bool
}

func (s *brokenStore) Put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	if s.broken.Load() {
		io.CopyN(io.Discard, r, 100)
		return blob.Ref{}, problem.New(problem.Unavailable, "no space left on device")
	}
	return s.Store.Put(ctx, r)
}

func (s *brokenStore) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if s.broken.Load() {
		return nil, problem.New(problem.Unavailable, "input/output error")
	}
	return s.Store.Open(ctx, key)
}

// TestOutage: mails received during an outage of our storage are processed afterwards, once and
// in order, however long it lasts.
func TestOutage(t *testing.T) {
	long := strings.Repeat("a line of a very long mail\r\n", 20_000) // is stored as a file
	var store brokenStore
	for name, outage := range map[string]struct{ begin, end func(path string) error }{
		"files": {
			func(string) error { return nil },
			func(string) error { store.broken.Store(false); return nil },
		},
		"database": {
			func(path string) error { store.broken.Store(false); return os.Rename(path, path+".away") },
			func(path string) error { return os.Rename(path+".away", path) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				url := dbtest.SQLiteURL(t)
				path := strings.TrimPrefix(url, "sqlite:")
				h := startOn(t, dbtest.Open(t, url), func(h *house) {
					h.store = func(s blob.Store) blob.Store { store.Store = s; return &store }
					h.secrets = map[string][]string{"email-raw": {"the deployment's"}}
				})
				h.connect(t, "email-raw", "help@acme.example")
				for i := range 3 {
					text := fmt.Sprintf("m%d %s", i, long)
					mail := mailText(fmt.Sprintf("m%d@client.example", i), "ana@client.example", "help@acme.example", text)
					h.wantAnswer(t, mailRequest(mail, "the deployment's", "help@acme.example"), 200, `{"status":"accepted"}`+"\n")
				}
				store.broken.Store(true)
				h.run(t)
				time.Sleep(10 * time.Second)
				if err := outage.begin(path); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour) // eight attempts take half an hour
				synctest.Wait()
				if n := len(h.list(t, inbound.Accepted)); n != 3 {
					t.Errorf("%d events wait during the outage, want all 3", n)
				}
				if err := outage.end(path); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if n := len(h.list(t, inbound.Processed)); n != 3 {
					t.Errorf("%d events are processed two minutes after the outage, want all 3", n)
				}
				var order []string
				for _, ticket := range h.tickets(t, "org-1") {
					for _, text := range ticket {
						order = append(order, text[:2])
					}
				}
				if want := []string{"m0", "m1", "m2"}; !slices.Equal(order, want) {
					t.Errorf("messages %q, want %q", order, want)
				}
			})
		})
	}
}

func TestLargeMail(t *testing.T) {
	var store brokenStore
	h := start(t, func(h *house) {
		h.store = func(s blob.Store) blob.Store { store.Store = s; return &store }
		h.secrets = map[string][]string{"email-raw": {"the deployment's"}}
	})
	h.connect(t, "email-raw", "help@acme.example")
	h.connect(t, "email-raw", "sales@acme.example", func(n *connection.New) { n.OrganizationID = "org-2" })
	body := strings.Repeat("a line of a very long mail\r\n", 100_000)
	mail := mailText("m1@client.example", "ana@client.example", "help@acme.example", body)
	request := func() *http.Request {
		return mailRequest(mail, "the deployment's", "help@acme.example", "sales@acme.example")
	}
	before := h.rows(t)
	store.broken.Store(true)
	h.wantUnavailable(t, request())
	h.wantUntouched(t, before)

	store.broken.Store(false)
	h.wantAnswer(t, request(), 200, `{"status":"accepted"}`+"\n")
	if n := h.files(t); n != 1 {
		t.Errorf("%d files, want one for both events", n)
	}
	h.wantAnswer(t, request(), 200, `{"status":"duplicate"}`+"\n")
	if n := h.files(t); n != 1 {
		t.Errorf("%d files after a repetition, want one", n)
	}
	if n := h.count(t, "SELECT count(*) FROM inbound_events WHERE body IS NULL AND body_size = $1", len(mail)); n != 2 {
		t.Errorf("%d events without a body in their row, want 2", n)
	}
	list := h.list(t, inbound.Accepted)
	e, err := h.Find(t.Context(), list[0].ID)
	if err != nil || string(e.Body) != mail {
		t.Errorf("Find() gives a body of %d bytes, %v; want the mail's %d", len(e.Body), err, len(mail))
	}
	h.until(t, event.MessageCreated, 2)
	for _, org := range []string{"org-1", "org-2"} {
		if got := h.tickets(t, org); len(got) != 1 || len(got[0]) != 1 || !strings.HasPrefix(got[0][0], "a line of a very long mail") {
			t.Errorf("%d tickets of %s, want one with the mail", len(got), org)
		}
	}

	// The body is deleted with the last event that refers to it; the desk's copies stay.
	files := h.files(t)
	if n, err := h.Purge(t.Context(), time.Now().Add(time.Hour)); n != 2 || err != nil {
		t.Errorf("Purge() = %d, %v; want 2", n, err)
	}
	if n := h.files(t); n != files-1 {
		t.Errorf("%d files after all events are gone, want one less than %d", n, files)
	}
}

func TestBodyOfManyEvents(t *testing.T) {
	h := start(t, func(h *house) { h.secrets = map[string][]string{"email-raw": {"the deployment's"}} })
	var to []string
	for i := range 90 {
		to = append(to, fmt.Sprintf("box%d@acme.example", i))
	}
	// Small for one row, but not for ninety.
	mail := mailText("m1@client.example", "ana@client.example", "all@acme.example", strings.Repeat("0123456789", 200))
	h.wantAnswer(t, mailRequest(mail, "the deployment's", to...), 200, `{"status":"ignored"}`+"\n")
	if n := h.count(t, "SELECT count(*) FROM inbound_events WHERE body IS NULL"); n != 90 || h.files(t) != 1 {
		t.Errorf("%d events without a body in their row, and %d files; want 90 and 1", n, h.files(t))
	}
}

// slowBody returns the first part of a body, and the rest on demand.
type slowBody struct {
	first, rest io.Reader
	passed      func() // called when the first part is used up
	more        <-chan struct{}
}

func (b *slowBody) Read(p []byte) (int, error) {
	n, err := b.first.Read(p)
	if err != io.EOF {
		return n, err
	}
	if b.passed != nil {
		b.passed()
		b.passed = nil
	}
	<-b.more
	return b.rest.Read(p)
}

// TestMemoryOfLargeBodies: 40 clients begin to send 35 MB each at once. They hold only the
// memory of the received bytes; there is no room for all of it.
func TestMemoryOfLargeBodies(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint("length known ", known), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startSQLite(t)
				h.connect(t, "email-raw", "help@acme.example")
				const size = 35 << 20
				var beyond atomic.Int64
				more := make(chan struct{})
				var mu sync.Mutex
				answers := make(map[int]int)
				var wg sync.WaitGroup
				for i := range 40 {
					r := httptest.NewRequest("POST", mailPath, &slowBody{
						first: endless(100 << 10), rest: endless(size - 100<<10), passed: func() { beyond.Add(1) }, more: more,
					})
					r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1234", i%2)
					r.Header.Set("Content-Type", "message/rfc822")
					r.Header.Set("X-Webhook-Signature", strings.Repeat("0", 64))
					r.ContentLength = -1
					if known {
						r.ContentLength = size
					}
					wg.Go(func() {
						w := h.do(r)
						mu.Lock()
						defer mu.Unlock()
						answers[w.Code]++
					})
				}
				synctest.Wait()
				if n := beyond.Load(); n != 40 {
					t.Errorf("%d bodies are read at once, want all 40", n)
				}
				// Neither a text nor a large mail waits for any of them.
				h.wantAnswer(t, smsRequest(text("SM1", theirs, "hello"), "not the secret"), 401, denied)
				large := func() *http.Request {
					r := httptest.NewRequest("POST", mailPath, endless(size))
					r.Header.Set("Content-Type", "message/rfc822")
					r.Header.Set("X-Webhook-Signature", strings.Repeat("0", 64))
					return r
				}
				h.wantAnswer(t, large(), 401, denied)
				close(more)
				wg.Wait()
				if answers[401] == 0 || answers[503] == 0 || answers[401]+answers[503] != 40 {
					t.Errorf("answers %v, want 401 for those that fit and 503 for the others", answers)
				}
				// And all memory is free again.
				h.wantAnswer(t, large(), 401, denied)
			})
		})
	}
}

// readSignal closes a channel once a number of bytes have been read.
type readSignal struct {
	io.ReadCloser
	left int
	told chan<- struct{}
}

func (b *readSignal) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 && b.left <= n {
		b.told <- struct{}{}
	}
	b.left -= n
	return n, err
}

// TestAnnouncedBodiesHoldNobodyUp: four sockets that announce 35 MB each and send 70 KB do not
// delay a signed mail of 4 MB, not even from the same address.
func TestAnnouncedBodiesHoldNobodyUp(t *testing.T) {
	h := start(t)
	h.connect(t, "email-raw", "help@acme.example")
	reached := make(chan struct{}, 4)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 35<<20 {
			r.Body = &readSignal{r.Body, 70 << 10, reached}
		}
		h.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	for range 4 {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() }) // before the server, which waits for it
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: message/rfc822\r\nContent-Length: %d\r\n"+
			"X-Webhook-Timestamp: %d\r\nX-Webhook-Signature: %064x\r\n\r\n", mailPath, 35<<20, time.Now().Unix(), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(conn, endless(70<<10)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		select {
		case <-reached:
		case <-time.After(5 * time.Second):
			t.Fatalf("only %d of the sockets are read", i)
		}
	}
	mail := mailText("m1@client.example", "ana@client.example", "help@acme.example", strings.Repeat("a line of a very long mail\r\n", 150_000))
	r := mailRequest(mail, secretOf("help@acme.example"), "help@acme.example")
	// Shorter than a request waits for memory.
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, "POST", server.URL+mailPath, strings.NewReader(mail))
	if err != nil {
		t.Fatal(err)
	}
	out.Header = r.Header
	began := time.Now()
	resp, err := http.DefaultClient.Do(out)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	t.Logf("a signed mail of %d bytes was answered after %v", len(mail), time.Since(began).Round(time.Millisecond))
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the mail was answered %d %s", resp.StatusCode, answer)
	}
}

// loose is an SMS channel that panics or fails on demand.
type loose struct {
	*sms.Adapter
	verify func()
	split  func() error
	parse  func(p channel.Part) error
	media  http.Header // of requests for media
}

func (l *loose) MediaRequest(at channel.Attachment, credentials channel.Credentials) channel.MediaRequest {
	m := l.Adapter.MediaRequest(at, credentials)
	if l.media != nil {
		m.Header = l.media
	}
	return m
}

func (l *loose) Verify(r *channel.Request, secret string) bool {
	if l.verify != nil {
		l.verify()
	}
	return l.Adapter.Verify(r, secret)
}

func (l *loose) Split(r *channel.Request) ([]channel.Part, error) {
	if l.split != nil {
		if err := l.split(); err != nil {
			return nil, err
		}
	}
	return l.Adapter.Split(r)
}

func (l *loose) Parse(r *channel.Request, p channel.Part) (channel.Event, error) {
	if l.parse != nil {
		if err := l.parse(p); err != nil {
			return channel.Event{}, err
		}
	}
	return l.Adapter.Parse(r, p)
}

func with(a *loose) func(*house) {
	if a.Adapter == nil {
		a.Adapter = sms.New(sms.Config{})
	}
	return func(h *house) { h.adapters = []channel.Adapter{a, email.NewRaw(email.Config{})} }
}

func TestAdapterPanics(t *testing.T) {
	a := new(loose)
	h := start(t, with(a))
	h.connect(t, "sms", ours)
	before := h.rows(t)
	a.verify = func() { panic("in verify") }
	h.wantUnavailable(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)))
	a.verify = nil
	a.split = func() error { panic("in split") }
	h.wantUnavailable(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)))
	a.split = func() error { return errors.New("in split") }
	h.wantUnavailable(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)))
	h.wantUntouched(t, before)
	a.split = nil
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)), 200, twiml)
	if log := h.logged(); !strings.Contains(log, "in verify") || !strings.Contains(log, "endpoint.go") {
		t.Errorf("the panic is not logged with where it was:\n%s", log)
	}
}

// TestBodiesOfABatchThatGrew: a repeated event in a batch with a new one leaves no second copy
// of its body.
func TestBodiesOfABatchThatGrew(t *testing.T) {
	h := start(t, withParcels(newParcels("parcels")))
	h.connect(t, "parcels", "a")
	batch := parcel{To: []string{"a"}}
	for i, key := range []string{"1", "2"} {
		batch.Parts = append(batch.Parts, parcelItem{Key: key, Sender: "ana", Address: "a", Text: strings.Repeat(key, 40<<10)})
		h.wantAnswer(t, parcelRequest(parcelPath, batch.bytes(), secretOf("a")), 200, accepted)
		if n := h.files(t); n != i+1 {
			t.Errorf("%d files of %d events", n, i+1)
		}
	}
}
