package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/netguard/netguardtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

const (
	org      = "11111111-1111-7111-8111-111111111111"
	otherOrg = "22222222-2222-7222-8222-222222222222"
)

// rig is a process: a service with its queue, on a database and a network that
// other processes may share.
type rig struct {
	t     *testing.T
	db    *db.DB
	net   *network
	log   *event.Log
	queue *queue.Queue
	hooks *webhook.Service
	mails *mailbox
}

// key seals the secrets of all processes of all tests.
var key = seal.NewKey()

// newRig returns a process that is not started. Its queue polls seldom: nothing
// here may depend on that, and hours pass faster on a fake clock.
func newRig(t *testing.T, d *db.DB, n *network, change func(*webhook.Config)) *rig {
	t.Helper()
	return newPollingRig(t, d, n, time.Minute, change)
}

// newPollingRig is newRig with a queue that polls for jobs of other processes on the same
// SQLite file.
func newPollingRig(t *testing.T, d *db.DB, n *network, poll time.Duration, change func(*webhook.Config)) *rig {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	r := &rig{t: t, db: d, net: n, log: new(event.Log), queue: queue.Open(d, queue.Config{Logger: logger, Poll: poll}), mails: new(mailbox)}
	c := webhook.Config{
		DB: d, Queue: r.queue, Events: r.log, Box: seal.New(key), Admins: admins{}, Mailer: r.mails,
		Transport: n.transport(), BaseURL: "https://help.example.com/", Logger: logger,
	}
	if change != nil {
		change(&c)
	}
	r.hooks = webhook.Open(c)
	t.Cleanup(r.stop)
	return r
}

func (r *rig) start() {
	r.t.Helper()
	if err := r.queue.Start(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

// stop waits for deliveries under way and their records.
func (r *rig) stop() { r.queue.Stop(context.Background()) }

// kill stops without waiting.
func (r *rig) kill() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.queue.Stop(ctx)
}

func (r *rig) create(n webhook.New) webhook.Webhook {
	r.t.Helper()
	if n.URL == "" {
		n.URL = "https://receiver.example.com/hook"
	}
	if n.Events == nil {
		n.Events = []string{"*"}
	}
	w, err := r.hooks.Create(r.t.Context(), org, n)
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

func (r *rig) update(id string, c webhook.Change) webhook.Webhook {
	r.t.Helper()
	w, err := r.hooks.Update(r.t.Context(), org, id, c)
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

func (r *rig) find(id string) webhook.Webhook {
	r.t.Helper()
	w, err := r.hooks.Find(r.t.Context(), org, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

func (r *rig) deliveries(id string) []webhook.Delivery {
	r.t.Helper()
	page, err := r.hooks.Search(r.t.Context(), org, webhook.Query{WebhookID: id, Limit: webhook.MaxPage})
	if err != nil {
		r.t.Fatal(err)
	}
	return page.Deliveries
}

func (r *rig) attempts(delivery string) []webhook.Attempt {
	r.t.Helper()
	_, list, err := r.hooks.Delivery(r.t.Context(), org, delivery)
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

// emit writes ticket.created events for tickets with these numbers, one
// transaction for all.
func (r *rig) emit(numbers ...int) {
	r.t.Helper()
	events := make([]event.Event, len(numbers))
	for i, n := range numbers {
		events[i] = ticketCreated(n)
	}
	if err := r.db.Write(r.t.Context(), func(tx *db.Tx) error { return r.log.EmitTx(r.t.Context(), tx, events...) }); err != nil {
		r.t.Fatal(err)
	}
}

func ticketCreated(n int) event.Event {
	return event.Event{OrganizationID: org, Name: event.TicketCreated, Data: event.Data{Ticket: &event.Ticket{
		ID: fmt.Sprintf("0190c0de-0000-7000-8000-%012d", n), Number: int64(n), Subject: "Flat tyre", Status: "open", Priority: "normal", Channel: "sms",
	}}}
}

type admins struct{}

func (admins) AdminAddresses(ctx context.Context, q db.Querier, organizationID string) ([]mail.Address, error) {
	return []mail.Address{{Name: "Ada", Address: "ada@" + organizationID[:4] + ".example"}, {Address: "bob@" + organizationID[:4] + ".example"}}, nil
}

type mailbox struct {
	mu    sync.Mutex
	mails []mail.Message
}

func (b *mailbox) EnqueueMailTx(ctx context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.mails = append(b.mails, m)
	})
	return nil
}

func (b *mailbox) all() []mail.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mails
}

// network is an in-process network, so that tests can use the fake clock. Unserved hosts refuse
// connections.
type network struct {
	t     *testing.T
	mu    sync.Mutex
	hosts map[string]*netguardtest.Listener
}

func newNetwork(t *testing.T) *network {
	return &network{t: t, hosts: make(map[string]*netguardtest.Listener)}
}

func (n *network) transport() *http.Transport {
	tr := &http.Transport{
		MaxIdleConnsPerHost: 64,
		// Names are certain within the process; certificates are not under test.
		DialTLSContext:         n.dial,
		DialContext:            n.dial,
		MaxResponseHeaderBytes: 64 << 10,
	}
	n.t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	l := n.hosts[host]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("connection refused")}
	}
	conn, err := l.Dial(ctx, "192.0.2.1:443")
	if errors.Is(err, net.ErrClosed) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("connection refused")}
	}
	return conn, err
}

// serve answers requests to a host until the end of the test.
func (n *network) serve(host string, h http.HandlerFunc) {
	l := n.listen(host)
	srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	done := make(chan struct{})
	go func() { srv.Serve(l); close(done) }()
	n.t.Cleanup(func() { srv.Close(); <-done })
}

func (n *network) listen(host string) *netguardtest.Listener {
	l := netguardtest.NewListener()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = l
	return l
}

// post is one request that a receiver got.
type post struct {
	at     time.Time
	header http.Header
	body   string
	number int // of the ticket
}

// receiver stores the requests it received.
type receiver struct {
	mu     sync.Mutex
	posts  []post
	got    chan post
	answer func(n int, w http.ResponseWriter, r *http.Request) // n counts from 1
}

// receive has a receiver serve a host. answer may be nil: 200.
func (n *network) receive(host string, answer func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	rc := &receiver{got: make(chan post, 20_000), answer: answer}
	n.serve(host, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p := post{at: time.Now(), header: r.Header, body: string(body), number: ticketNumber(body)}
		rc.mu.Lock()
		rc.posts = append(rc.posts, p)
		count := len(rc.posts)
		rc.mu.Unlock()
		rc.got <- p
		if rc.answer != nil {
			rc.answer(count, w, r)
		}
	})
	return rc
}

func (rc *receiver) all() []post {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.posts
}

func (rc *receiver) wait(t *testing.T, n int) []post {
	t.Helper()
	var out []post
	timeout := time.After(time.Minute)
	for len(out) < n {
		select {
		case p := <-rc.got:
			out = append(out, p)
		case <-timeout:
			t.Fatalf("got %d posts within a minute, want %d", len(out), n)
		}
	}
	return out
}

func (rc *receiver) numbers() []int {
	var out []int
	for _, p := range rc.all() {
		out = append(out, p.number)
	}
	return out
}

// ticketNumber finds the number of the ticket in a body of either form.
func ticketNumber(body []byte) int {
	var b struct {
		Data struct {
			TicketNumber int `json:"ticketNumber"`
			Ticket       struct {
				Number int `json:"number"`
			} `json:"ticket"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &b) != nil {
		return -1
	}
	return max(b.Data.TicketNumber, b.Data.Ticket.Number)
}

// until waits for something that other goroutines do in their own time.
func (r *rig) until(met func() bool) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for !met() {
		select {
		case <-tick.C:
		case <-end:
			r.t.Fatal("not in time")
		}
	}
}
