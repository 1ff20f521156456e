package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/outbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

const (
	organization = "0190c0de-0000-7000-8000-00000000000a"
	agentID      = "0190c0de-0000-7000-8000-0000000000d1"
	baseURL      = "https://help.example"
	ourNumber    = "+14155550100"
	ourMail      = "support@a.example"
)

// node is a process of the cluster, from its start to its end. A restarted process is another
// node.
type node struct {
	w    *world
	name string
	skew time.Duration // of its wall clock

	dead      bool      // it has ended: nothing that it does has an effect
	paused    bool      // it is stopped, as by SIGSTOP
	resumedAt time.Time // end of the last pause
	ctx       context.Context
	kill      context.CancelFunc
	up        chan struct{} // closed when the start has ended
	lastID    int64         // the time of the node's last UUID

	listeners   map[string]chan string
	db          *db.DB
	queue       *queue.Queue
	desk        *desk.Service
	hooks       *webhook.Service
	connections *connection.Service
	mux         *http.ServeMux
}

// start starts a process with the parts that package app composes.
func (w *world) start(name string, skew time.Duration) *node {
	n := &node{w: w, name: name, skew: skew, listeners: make(map[string]chan string), mux: http.NewServeMux(), up: make(chan struct{})}
	n.ctx, n.kill = context.WithCancel(context.Background())
	n.db = w.db.Simulated(connectionTo{n})
	n.open()
	w.nodes = append(w.nodes, n)
	w.spawn(func() {
		defer close(n.up)
		for n.ctx.Err() == nil {
			if n.queue.Start(n.ctx) == nil {
				return
			}
			wait := time.NewTimer(time.Second)
			select {
			case <-wait.C:
			case <-n.ctx.Done():
			}
		}
	})
	return n
}

func (n *node) open() {
	w := n.w
	log := slog.New(slog.DiscardHandler)
	if w.verbose != nil {
		log = slog.New(slog.NewTextHandler(w.verbose, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", n.name)
	}
	files := &store{n}
	api := &network{n}
	adapters := []channel.Adapter{sms.New(sms.Config{}), email.NewRaw(email.Config{})}
	n.queue = queue.Open(n.db, queue.Config{Logger: log, Poll: w.poll, Lease: w.lease})
	n.connections = connection.Open(n.db, w.box, adapters)
	sender := outbound.Open(outbound.Config{
		DB: n.db, Blob: files, Connections: n.connections, Adapters: adapters, Box: w.box, Mail: &mailClient{n}, HTTP: api, PublicHTTP: api,
		BaseURL: baseURL, Logger: log,
		OrganizationName: func(context.Context, string) (string, error) { return "Acme", nil },
	})
	events := new(event.Log)
	n.desk = desk.Open(desk.Config{
		DB: n.db, Queue: n.queue, Events: events, Blob: files, Directory: staff{}, Addresses: n.connections, BaseURL: baseURL,
		Dispatcher: sender, CopyMAC: sender.VerifyCopyHeader, Box: w.box, Logger: log,
	})
	sender.RegisterWorkers(n.queue, n.desk)
	n.hooks = webhook.Open(webhook.Config{
		DB: n.db, Queue: n.queue, Events: events, Box: w.box, Admins: staff{}, Mailer: staff{}, Transport: api, BaseURL: baseURL,
		RetryTimeScale: w.scale, PerLane: perLane, Logger: log,
	})
	in := inbound.Open(inbound.Config{
		DB: n.db, Queue: n.queue, Blob: files, Connections: n.connections, Desk: n.desk, ConnectionEvents: n.connections, Adapters: adapters,
		BaseURL: baseURL, Mailer: staff{}, Admins: staff{}, Media: api, API: api, Logger: log,
		DefaultOrganization: func(context.Context, db.Querier) (string, bool, error) { return "", false, nil },
	})
	in.Register(n.mux)
}

// crash ends the process at once. What it has sent may still arrive.
func (n *node) crash() {
	n.dead, n.paused = true, false
	n.kill()
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	n.w.spawn(func() { <-n.up; n.queue.Stop(stopped); n.db.Close() })
	n.w.remove(n)
}

// stop ends the process as SIGTERM does.
func (n *node) stop(limit time.Duration) {
	n.w.spawn(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		<-n.up // Stop would wait for Start by a mutex, which stops the virtual time
		n.queue.Stop(ctx)
		n.db.Close()
		n.dead = true
		n.kill()
	})
	n.w.remove(n)
}

// post has the node serve a request from the outside. It returns 0 if no response arrives in
// time.
func (n *node) post(r *http.Request, limit time.Duration) int {
	ctx, cancel := context.WithTimeout(n.ctx, limit)
	defer cancel()
	done := make(chan int, 1)
	n.w.spawn(func() {
		if n.enter(ctx, "request") != nil {
			return
		}
		rec := httptest.NewRecorder()
		n.mux.ServeHTTP(rec, r.WithContext(ctx))
		n.w.sched.park(n, "response")
		if !n.dead {
			done <- rec.Code
		}
	})
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
		return 0
	}
}

// staff is the organization's only member, who gets no mail.
type staff struct{}

var agent = event.Person{ID: agentID, Name: "Grace", Email: "grace@a.example"}

func (staff) Agent(_ context.Context, _ db.Querier, _, id string) (event.Person, bool, error) {
	return agent, id == agentID, nil
}

func (staff) AgentByEmail(_ context.Context, _ db.Querier, _, address string) (event.Person, bool, error) {
	return agent, strings.EqualFold(address, agent.Email), nil
}

func (staff) Agents(context.Context, db.Querier, string) ([]event.Person, error) {
	return []event.Person{agent}, nil
}

func (staff) Preferences(context.Context, db.Querier, string, []string) (map[string]json.RawMessage, error) {
	return nil, nil
}

func (staff) AdminAddresses(context.Context, db.Querier, string) ([]mail.Address, error) {
	return []mail.Address{{Address: agent.Email}}, nil
}

func (staff) EnqueueMailTx(context.Context, *db.Tx, mail.Message) error { return nil }

// store is a node's access to the shared store of files.
type store struct{ n *node }

func (s *store) enter(ctx context.Context, name string) error {
	w := s.n.w
	if err := s.n.enter(ctx, name); err != nil {
		return err
	}
	if w.sched.chance(w.weather.failBlob) {
		return problem.New(problem.Unavailable, "the simulated store of files fails")
	}
	return nil
}

func (s *store) Put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return blob.Ref{}, err
	}
	if err := s.enter(ctx, "put"); err != nil {
		return blob.Ref{}, err
	}
	sum := sha256.Sum256(data)
	ref := blob.Ref{Key: hex.EncodeToString(sum[:]), Size: int64(len(data))}
	s.n.w.files[ref.Key] = data
	if s.n.w.sched.chance(s.n.w.weather.failBlob) {
		return blob.Ref{}, problem.New(problem.Unavailable, "the simulated store of files lost its answer")
	}
	return ref, nil
}

func (s *store) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := s.enter(ctx, "open"); err != nil {
		return nil, err
	}
	data, ok := s.n.w.files[key]
	if !ok {
		return nil, blob.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (s *store) Delete(ctx context.Context, key string) error {
	if err := s.enter(ctx, "delete"); err != nil {
		return err
	}
	delete(s.n.w.files, key)
	return nil
}

// network is a node's way to receivers and providers.
type network struct{ n *node }

// fate is what happens to a call.
type fate struct {
	unreachable bool
	processed   bool          // the far side does the work
	after       time.Duration // until it does
	status      int           // of its response; 0: none
	until       time.Duration // until the response; without one: until the connection breaks, or for ever
}

func (t *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n, w, ctx := t.n, t.n.w, r.Context()
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	if err := n.enter(ctx, "call "+r.URL.Host); err != nil {
		return nil, err
	}
	to := w.hosts[r.URL.Host]
	if to == nil {
		return nil, fmt.Errorf("no such host: %s", r.URL.Host)
	}
	w.model.called(n, r)
	f := to.fate()
	if f.unreachable {
		return nil, errors.New("connection refused")
	}
	wroteHeaders(ctx)
	var response []byte
	answered := make(chan struct{})
	work := func() {
		if f.processed {
			f.status, response = to.serve(r, body, f.status)
		}
		if f.status != 0 {
			w.sched.in(f.until, "response of "+r.URL.Host, func() { close(answered) })
		}
	}
	// Arrived, the request needs its sender no longer.
	if f.after == 0 {
		work()
	} else {
		w.sched.in(f.after, "late at "+r.URL.Host, work)
	}
	var broken <-chan time.Time
	if f.status == 0 && f.until > 0 {
		timer := time.NewTimer(f.until)
		defer timer.Stop()
		broken = timer.C
	}
	var failure error
	select {
	case <-answered:
	case <-broken:
		failure = errors.New("connection reset")
	case <-ctx.Done():
		failure = ctx.Err()
	}
	w.sched.park(n, "answer of "+r.URL.Host)
	if n.dead {
		return nil, errGone
	}
	w.running = n
	if failure != nil {
		return nil, failure
	}
	if ctx.Err() != nil { // it came while the node was paused
		return nil, ctx.Err()
	}
	return &http.Response{
		StatusCode: f.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(response)), Request: r,
	}, nil
}
