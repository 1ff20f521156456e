package inbound_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/quota/quotatest"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

const (
	baseURL  = "https://help.example"
	smsPath  = "/api/webhooks/sms"
	mailPath = "/api/webhooks/inbound-email"

	ours   = "+14155550100" // a number of org-1
	theirs = "+14155550111" // a customer's
)

// house is a service with its database, SMS and mail.
type house struct {
	*inbound.Service
	db          *db.DB
	queue       *queue.Queue
	desk        *desk.Service
	blobs       string // the folder
	connections *connection.Service
	mux         *http.ServeMux
	fallback    atomic.Pointer[string]         // the default organization
	committed   func(events []event.Event)     // called with the desk's events
	log         bytes.Buffer                   // of the service
	logging     sync.Mutex                     // guards log
	secrets     map[string][]string            // the deployment's
	key         seal.Key                       // of the connections
	adapters    []channel.Adapter              // default: the real ones
	billing     inbound.Billing                // default: none
	calls       inbound.Calls                  // default: none
	shops       inbound.Shops                  // default: none
	news        inbound.ConnectionIntake       // default: none
	tokens      map[string][]string            // the deployment's verify tokens
	credentials map[string]channel.Credentials // the deployment's
	api         http.RoundTripper              // default: unreachable
	operator    mail.Address                   // default: none
	mailed      enqueuedMails                  // mails to the operator
	dispatcher  desk.Dispatcher                // default: sends nothing
	directory   desk.Directory                 // default: no members
	notices     mail.Enqueuer                  // mails to members; default: none
	media       http.RoundTripper              // default: unreachable
	store       func(blob.Store) blob.Store    // wraps the blob store
	limits      quota.Limits                   // of all organizations; default: none
	txt         func(context.Context, []string) map[string][]string
}

// nobody has no members.
type nobody struct{}

func (nobody) Agent(context.Context, db.Querier, string, string) (event.Person, bool, error) {
	return event.Person{}, false, nil
}

func (nobody) AgentByEmail(context.Context, db.Querier, string, string) (event.Person, bool, error) {
	return event.Person{}, false, nil
}

func (nobody) Agents(context.Context, db.Querier, string) ([]event.Person, error) { return nil, nil }

func (nobody) Preferences(context.Context, db.Querier, string, []string) (map[string]json.RawMessage, error) {
	return nil, nil
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// start creates the service without running its queue.
func start(t testing.TB, change ...func(*house)) *house {
	t.Helper()
	return startOn(t, dbtest.New(t), change...)
}

// startSQLite is start for tests in a bubble, which allows no sockets.
func startSQLite(t testing.TB, change ...func(*house)) *house {
	t.Helper()
	return startOn(t, dbtest.NewSQLite(t), change...)
}

func startOn(t testing.TB, d *db.DB, change ...func(*house)) *house {
	t.Helper()
	h := &house{db: d, blobs: t.TempDir(), mux: http.NewServeMux()}
	key, err := seal.LoadOrCreateKeys(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	h.key = key[0]
	h.adapters = []channel.Adapter{sms.New(sms.Config{}), email.NewRaw(email.Config{})}
	h.media = transport(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("no route to %s", r.URL.Host)
	})
	h.api = h.media
	h.directory = nobody{}
	for _, f := range change {
		f(h)
	}
	dir, err := blob.OpenDir(h.blobs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	var store blob.Store = dir
	if h.store != nil {
		store = h.store(dir)
	}
	log := slog.New(slog.NewTextHandler(h, nil))
	h.queue = queue.Open(d, queue.Config{Logger: log})
	events := new(event.Log)
	events.AfterCommit(func(list []event.Event) {
		if h.committed != nil {
			h.committed(list)
		}
	})
	h.connections = connection.Open(d, seal.New(h.key), h.adapters)
	quotas := quotatest.Open(d, h.queue, h.limits)
	h.desk = desk.Open(desk.Config{
		DB: d, Queue: h.queue, Events: events, Blob: store, Directory: h.directory, Addresses: h.connections, BaseURL: baseURL,
		Dispatcher: h.dispatcher, Mailer: h.notices, Box: seal.New(h.key), Quotas: quotas,
	})
	h.Service = inbound.Open(inbound.Config{
		DB: d, Queue: h.queue, Blob: store, Connections: h.connections, Desk: h.desk,
		Billing: h.billing, Calls: h.calls, Shops: h.shops, ConnectionEvents: h.news, Adapters: h.adapters,
		Secrets: h.secrets, VerifyTokens: h.tokens, Credentials: h.credentials, BaseURL: baseURL, Operator: h.operator, Mailer: &h.mailed, Admins: boss{}, Quotas: quotas, Media: h.media, API: h.api, TXT: h.txt, Logger: log,
		Audit: audit.Open(audit.Config{DB: d, Box: seal.New(h.key), Ledger: "helpdesk", Logger: log}),
		DefaultOrganization: func(context.Context, db.Querier) (string, bool, error) {
			if id := h.fallback.Load(); id != nil {
				return *id, true, nil
			}
			return "", false, nil
		},
	})
	h.Register(h.mux)
	return h
}

// Write records a log line.
func (h *house) Write(p []byte) (int, error) {
	h.logging.Lock()
	defer h.logging.Unlock()
	return h.log.Write(p)
}

func (h *house) logged() string {
	h.logging.Lock()
	defer h.logging.Unlock()
	return h.log.String()
}

// run runs the queue until the end of the test.
func (h *house) run(t testing.TB) {
	t.Helper()
	if err := h.queue.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.queue.Stop(context.Background()) })
}

// until runs the queue until the desk has emitted n events of a name.
func (h *house) until(t testing.TB, name event.Name, n int) {
	t.Helper()
	var seen atomic.Int64
	done := make(chan struct{})
	h.committed = func(list []event.Event) {
		for _, e := range list {
			if e.Name == name && seen.Add(1) == int64(n) {
				close(done)
			}
		}
	}
	h.run(t)
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%d %s events, want %d\n%s", seen.Load(), name, n, h.logged())
	}
}

// connect creates a connection, by default of org-1.
func (h *house) connect(t testing.TB, channel, address string, change ...func(*connection.New)) connection.Connection {
	t.Helper()
	n := connection.New{OrganizationID: "org-1", Channel: channel, Address: address, Secrets: []string{secretOf(address)}, ByOperator: true}
	for _, f := range change {
		f(&n)
	}
	c, _, err := h.connections.Connect(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// secretOf is the secret that connect sets for an address.
func secretOf(address string) string { return "secret of " + address }

// text returns a text message to ours.
func text(sid, from, body string) url.Values {
	return url.Values{"MessageSid": {sid}, "AccountSid": {"AC1"}, "From": {from}, "To": {ours}, "Body": {body}, "NumMedia": {"0"}}
}

// smsRequest returns a signed request of the provider.
func smsRequest(form url.Values, secret string) *http.Request {
	r := httptest.NewRequest("POST", smsPath, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Twilio-Signature", sms.Sign(baseURL+smsPath, form, secret))
	return r
}

func mailText(id, from, to, body string) string {
	return "From: " + from + "\r\nTo: " + to + "\r\nSubject: Help\r\nMessage-ID: <" + id + ">\r\n\r\n" + body + "\r\n"
}

// mailRequest returns a converter's request with a mail delivered to the recipients.
func mailRequest(mail, secret string, recipients ...string) *http.Request {
	r := httptest.NewRequest("POST", mailPath, strings.NewReader(mail))
	r.Header.Set("Content-Type", "message/rfc822")
	for _, to := range recipients {
		r.Header.Add("X-Envelope-To", to)
	}
	signature, timestamp := email.SignRaw([]byte(mail), time.Now(), secret)
	r.Header.Set("X-Webhook-Signature", signature)
	r.Header.Set("X-Webhook-Timestamp", timestamp)
	return r
}

// do serves a request.
func (h *house) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.mux.ServeHTTP(w, r)
	return w
}

const (
	twiml  = `<?xml version="1.0" encoding="UTF-8"?><Response></Response>`
	denied = `{"error":"the request has no valid signature"}` + "\n"
)

// wantAnswer serves a request and checks status and body.
func (h *house) wantAnswer(t testing.TB, r *http.Request, status int, body string) {
	t.Helper()
	w := h.do(r)
	if w.Code != status || w.Body.String() != body {
		t.Errorf("%s %s: answered %d %q, want %d %q", r.Method, r.URL, w.Code, w.Body, status, body)
	}
}

// exec changes the database directly.
func (h *house) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if err := h.db.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), query, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// count queries a single number.
func (h *house) count(t testing.TB, query string, args ...any) int {
	t.Helper()
	var n int
	if err := h.db.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// rows returns the number of rows of every table.
func (h *house) rows(t testing.TB) map[string]int {
	t.Helper()
	query := "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1"
	if h.db.Postgres() {
		query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
	}
	names, err := db.All(t.Context(), h.db, func(row db.Row) (name string, err error) {
		err = row.Scan(&name)
		return name, err
	}, query)
	if err != nil || !slices.Contains(names, "inbound_events") || !slices.Contains(names, "jobs") {
		t.Fatalf("tables %v, %v", names, err)
	}
	counts := make(map[string]int)
	for _, name := range names {
		counts[name] = h.count(t, "SELECT count(*) FROM "+name)
	}
	return counts
}

// wantUntouched checks that no table's row count has changed.
func (h *house) wantUntouched(t testing.TB, before map[string]int) {
	t.Helper()
	if after := h.rows(t); !maps.Equal(after, before) {
		t.Errorf("rows by table %v, want %v", after, before)
	}
}

// list returns the events in the given states, newest first.
func (h *house) list(t testing.TB, states ...inbound.State) []*inbound.StoredEvent {
	t.Helper()
	list, err := h.List(t.Context(), inbound.Filter{States: states})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// tickets returns the message texts of an organization's tickets, oldest first.
func (h *house) tickets(t testing.TB, organization string) [][]string {
	t.Helper()
	list, _, err := h.desk.FindTickets(t.Context(), h.db, organization, desk.TicketQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for _, ticket := range slices.Backward(list) {
		messages, err := h.desk.Messages(t.Context(), h.db, organization, ticket.ID)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, m := range messages {
			texts = append(texts, strings.TrimSpace(m.Text))
		}
		all = append(all, texts)
	}
	return all
}

func (h *house) wantTickets(t testing.TB, organization string, want ...[]string) {
	t.Helper()
	if got := h.tickets(t, organization); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("tickets of %s: %q, want %q", organization, got, want)
	}
}

// settled waits, in a bubble, until every event is processed or failed and every file is stored
// or failed.
func (h *house) settled(t testing.TB) {
	t.Helper()
	h.taken(t)
	for ; h.count(t, "SELECT count(*) FROM jobs WHERE kind = $1", desk.FetchKind) > 0; synctest.Wait() {
		time.Sleep(time.Second)
	}
}

// taken waits, in a bubble, until every event is processed or failed.
func (h *house) taken(t testing.TB) {
	t.Helper()
	for synctest.Wait(); len(h.list(t, inbound.Accepted)) > 0; synctest.Wait() {
		time.Sleep(time.Second)
	}
}

// result returns the stored result.
func result(t testing.TB, e *inbound.StoredEvent) desk.Result {
	t.Helper()
	var r desk.Result
	if err := json.Unmarshal(e.Result, &r); err != nil {
		t.Fatalf("result %q: %v", e.Result, err)
	}
	return r
}

// files returns the number of files in the blob store.
func (h *house) files(t testing.TB) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(h.blobs, "??", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// endless returns a body of size bytes.
func endless(size int64) io.Reader { return io.LimitReader(zeros{}, size) }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
