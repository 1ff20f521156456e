package outbound_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/outbound"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

const (
	org     = "0190c0de-0000-7000-8000-00000000000a"
	graceID = "0190c0de-0000-7000-8000-0000000000d1"

	ourNumber = "+14155550100"
	anasPhone = "+14155550111"
	ourMail   = "support@a.example"
	anasMail  = "ana@c.example"
)

var credentials = map[string]string{"account_sid": "AC1", "auth_token": "token of AC1"}

// staff has one member.
type staff struct{}

func (staff) Agent(_ context.Context, _ db.Querier, _, id string) (event.Person, bool, error) {
	return event.Person{ID: graceID, Name: "Grace", Email: "grace@a.example"}, id == graceID, nil
}

func (staff) AgentByEmail(_ context.Context, _ db.Querier, _, address string) (event.Person, bool, error) {
	return event.Person{ID: graceID, Name: "Grace", Email: "grace@a.example"}, strings.EqualFold(address, "grace@a.example"), nil
}

func (staff) Agents(context.Context, db.Querier, string) ([]event.Person, error) { return nil, nil }

// Preferences has a signature of Ada.
func (staff) Preferences(_ context.Context, _ db.Querier, _ string, ids []string) (map[string]json.RawMessage, error) {
	if slices.Contains(ids, adaID) {
		return map[string]json.RawMessage{adaID: json.RawMessage(`{"signature":"**{{agent.name}}**"}`)}, nil
	}
	return nil, nil
}

// adaID is a member with a signature.
const adaID = "01890000-0000-7000-8000-00000000ada0"

// rig is the service over a database, with SMS and mail.
type rig struct {
	testing.TB
	*outbound.Service
	db          *db.DB
	queue       *queue.Queue
	desk        *desk.Service
	connections *connection.Service
	box         *seal.Box
	parser      *email.Parser

	// Before open: the state of the neighbours.
	apiURL string
	http   http.RoundTripper
	mail   mail.TrackedSender
	open   func(_ *connection.Connection, credentials channel.Credentials) (mail.TrackedSender, error)
	more   []channel.Adapter
	scale  float64
	poll   time.Duration // of the queue; 0: never
	lease  time.Duration // of the queue; 0: its default
	before func()        // called before each attempt
	brand  mail.Brand    // of replies

	connection connection.Connection // of tests with a single one

	*record
	news chan struct{} // signalled by each line of the log
}

// record has the desk's events, and the failures to simulate while messages are
// sent.
type record struct {
	mu      sync.Mutex
	events  []event.Event
	trouble error
}

// fails makes our own database fail with err while messages are sent; nil ends it.
func (r *record) fails(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trouble = err
}

// noServer is an unreachable mail server.
type noServer struct{}

func (n noServer) Send(ctx context.Context, m mail.Message) error {
	_, err := n.SendTracked(ctx, m, nil)
	return err
}

func (noServer) SendTracked(context.Context, mail.Message, func() error) (string, error) {
	return "", &mail.Error{Op: mail.OpConnect, Server: "mail.test:587", Temporary: true, Err: io.EOF}
}

func newRig(t testing.TB, change ...func(*rig)) *rig {
	t.Helper()
	return rigOn(t, dbtest.New(t), change...)
}

func rigOn(t testing.TB, d *db.DB, change ...func(*rig)) *rig {
	t.Helper()
	r := &rig{TB: t, db: d, news: make(chan struct{}, 1), record: new(record), mail: noServer{}, http: netguard.NewTransport(netguard.Guard{AllowPrivate: true})}
	for _, f := range change {
		f(r)
	}
	files, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	if r.box == nil {
		key, err := seal.LoadOrCreateKeys(filepath.Join(t.TempDir(), "key"))
		if err != nil {
			t.Fatal(err)
		}
		r.box = seal.New(key[0])
	}
	r.parser = email.NewParser(email.Config{})
	adapters := []channel.Adapter{sms.New(sms.Config{APIURL: r.apiURL}), email.NewRaw(email.Config{}), chat.New(chat.Config{APIURL: r.apiURL})}
	adapters = append(adapters, meta.NewBusiness(meta.Config{}), meta.NewMessenger(meta.Config{}))
	adapters = append(adapters, r.more...)
	log := slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.queue = queue.Open(d, queue.Config{Logger: log, Poll: cmp.Or(r.poll, time.Hour), Lease: r.lease})
	r.connections = connection.Open(d, r.box, adapters)
	r.Service = outbound.Open(outbound.Config{
		DB: d, Blob: files, Connections: r.connections, Adapters: adapters, Box: r.box, Mail: r.mail, OpenMail: r.open, HTTP: r.http,
		BaseURL: "https://help.example", RetryTimeScale: r.scale, Logger: log,
		Brand: func(context.Context, string) (mail.Brand, error) { return r.brand, nil },
		OrganizationName: func(context.Context, string) (string, error) {
			if r.before != nil {
				r.before()
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			return "Acme Wheels", r.trouble
		},
	})
	events := new(event.Log)
	r.desk = desk.Open(desk.Config{
		DB: d, Queue: r.queue, Events: events, Blob: files, Directory: staff{}, Addresses: r.connections, BaseURL: "https://help.example",
		Dispatcher: r.Service, CopyMAC: r.VerifyCopyHeader, Box: r.box,
	})
	events.AfterCommit(func(list []event.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, list...)
	})
	r.RegisterWorkers(r.queue, r.desk)
	return r
}

// run starts the queue, until the end of the test.
func (r *rig) run() {
	r.Helper()
	if err := r.queue.Start(r.Context()); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { r.queue.Stop(context.Background()) })
}

// connect creates a connection of the organization.
func (r *rig) connect(adapter, address string, change ...func(*connection.New)) connection.Connection {
	r.Helper()
	n := connection.New{OrganizationID: org, Channel: adapter, Address: address, ByOperator: true}
	if adapter == "sms" {
		n.Credentials = credentials
	}
	for _, f := range change {
		f(&n)
	}
	c, _, err := r.connections.Connect(r.Context(), n)
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// crashDuringSubmission leaves a message like a process that dies during its submission.
func (r *rig) crashDuringSubmission(m desk.Message, by string) {
	r.Helper()
	err := r.db.Write(r.Context(), func(tx *db.Tx) error {
		w, err := r.desk.OutboxMessage(r.Context(), tx, m.ID)
		if err != nil {
			return err
		}
		return r.desk.RecordSubmissionTx(r.Context(), tx, &w, by)
	})
	if err != nil {
		r.Fatal(err)
	}
}

// intake processes an event at the desk.
func (r *rig) intake(c connection.Connection, ticketChannel string, e channel.Event) desk.Result {
	r.Helper()
	var res desk.Result
	err := r.db.Write(r.Context(), func(tx *db.Tx) (err error) {
		res, err = r.desk.IngestTx(r.Context(), tx, desk.InboundEvent{OrganizationID: org, ConnectionID: c.ID, Channel: ticketChannel, Event: e})
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return res
}

// texts receives a customer's text.
func (r *rig) texts(c connection.Connection, sid, from, text string) desk.Result {
	r.Helper()
	return r.intake(c, "sms", channel.Event{Message: &channel.Message{
		ExternalID: sid, ThreadKey: from, From: channel.Party{Phone: from}, Text: text,
	}})
}

// mails receives a raw mail.
func (r *rig) mails(c connection.Connection, raw string) desk.Result {
	r.Helper()
	m, err := r.parser.ParseRaw([]byte(strings.ReplaceAll(raw, "\n", "\r\n")), email.Envelope{Recipient: c.Address, Received: time.Now()})
	if err != nil {
		r.Fatal(err)
	}
	return r.intake(c, "email", channel.Event{Message: m})
}

// reply replies to a ticket as Grace.
func (r *rig) reply(ticketID, text string, change ...func(*desk.Reply)) desk.Message {
	r.Helper()
	m, err := r.tryReply(ticketID, text, change...)
	if err != nil {
		r.Fatal(err)
	}
	return m
}

func (r *rig) tryReply(ticketID, text string, change ...func(*desk.Reply)) (desk.Message, error) {
	says, err := r.desk.Compose(r.Context(), "", desk.Draft{Text: text})
	if err != nil {
		return desk.Message{}, err
	}
	reply := desk.Reply{By: desk.Actor{ID: graceID, Name: "Grace"}, Content: says}
	for _, f := range change {
		f(&reply)
	}
	var m desk.Message
	err = r.db.Write(r.Context(), func(tx *db.Tx) (err error) {
		m, err = r.desk.ReplyTx(r.Context(), tx, org, ticketID, reply)
		return err
	})
	return m, err
}

// message returns the present state of a message.
func (r *rig) message(m desk.Message) desk.Message {
	r.Helper()
	list, err := r.desk.Messages(r.Context(), r.db, org, m.TicketID)
	if err != nil {
		r.Fatal(err)
	}
	for _, now := range list {
		if now.ID == m.ID {
			return now
		}
	}
	r.Fatalf("message %s is gone", m.ID)
	return m
}

// split moves a message into a ticket of its own.
func (r *rig) split(m desk.Message) error {
	return r.db.Write(r.Context(), func(tx *db.Tx) error {
		_, err := r.desk.SplitTx(r.Context(), tx, org, m.TicketID, []string{m.ID})
		return err
	})
}

// ticketOf returns the present ticket of a message.
func (r *rig) ticketOf(m desk.Message) string {
	r.Helper()
	var id string
	if err := r.db.QueryRow(r.Context(), "SELECT ticket_id FROM messages WHERE id = $1", m.ID).Scan(&id); err != nil {
		r.Fatal(err)
	}
	return id
}

// until waits for a message's delivery state and reason.
func (r *rig) until(m desk.Message, state channel.ReceiptState, reason string) {
	r.Helper()
	want := desk.Delivery{State: state, Error: reason}
	patience := time.After(30 * time.Second)
	for {
		got := r.message(m).Delivery
		if got == want {
			return
		}
		select {
		case <-r.news:
		case <-patience:
			r.Fatalf("delivery is %+v, want %+v", got, want)
		}
	}
}

// Write signals a line of the log.
func (r *rig) Write(line []byte) (int, error) {
	select {
	case r.news <- struct{}{}:
	default:
	}
	return r.Output().Write(line)
}

// provider is an SMS provider's API, in memory.
type provider struct {
	*httptest.Server

	mu    sync.Mutex
	texts []text
	// refuse answers a request instead, if it returns true.
	refuse func(w http.ResponseWriter, r *http.Request) bool
}

// text is a message accepted by the provider.
type text struct {
	SID, Body, To, From, Service, Callback string
	Media                                  string // links, each on a line
	at                                     time.Time
}

func newProvider(t testing.TB) *provider {
	p := new(provider)
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	refuse := p.refuse
	p.mu.Unlock()
	if refuse != nil && refuse(w, r) {
		return
	}
	p.accept(w, r)
}

// answer makes f answer requests for which it returns true.
func (p *provider) answer(f func(w http.ResponseWriter, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = f
}

// trace calls the hooks of a real transport.
func trace(r *http.Request) {
	if t := httptrace.ContextClientTrace(r.Context()); t != nil && t.WroteHeaders != nil {
		t.WroteHeaders()
	}
}

func (r *rig) delete(ticketID string) {
	r.Helper()
	if err := r.db.Write(r.Context(), func(tx *db.Tx) error { return r.desk.DeleteTx(r.Context(), tx, org, ticketID) }); err != nil {
		r.Fatal(err)
	}
}

// accept is the provider's ordinary response.
func (p *provider) accept(w http.ResponseWriter, r *http.Request) {
	token := base64.StdEncoding.EncodeToString([]byte("AC1:token of AC1"))
	if r.URL.Path != "/2010-04-01/Accounts/AC1/Messages.json" || r.Header.Get("Authorization") != "Basic "+token {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"code":20003,"message":"Authenticate","status":401}`)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodGet {
		list := []map[string]any{}
		for i := len(p.texts) - 1; i >= 0; i-- {
			m := p.texts[i]
			if m.To == r.FormValue("To") && (r.FormValue("From") == "" || m.From == r.FormValue("From")) {
				list = append(list, map[string]any{
					"sid": m.SID, "body": m.Body, "to": m.To, "from": m.From, "direction": "outbound-api", "status": "queued",
					"date_created": m.at.Format(time.RFC1123Z), "error_code": nil, "num_media": strconv.Itoa(len(strings.Fields(m.Media))),
				})
			}
		}
		json.NewEncoder(w).Encode(map[string]any{"messages": list, "next_page_uri": nil})
		return
	}
	m := text{
		SID: fmt.Sprintf("SM%032d", len(p.texts)+1), Body: r.FormValue("Body"), To: r.FormValue("To"), From: r.FormValue("From"),
		Service: r.FormValue("MessagingServiceSid"), Callback: r.FormValue("StatusCallback"), Media: strings.Join(r.Form["MediaUrl"], "\n"), at: time.Now(),
	}
	p.texts = append(p.texts, m)
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(map[string]any{"sid": m.SID, "status": "queued", "error_code": nil})
}

func (p *provider) taken() []text {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]text(nil), p.texts...)
}

// receipt is the provider's report on a text, parsed by the adapter.
func (r *rig) receipt(c connection.Connection, callback, sid, state, code string) desk.Result {
	r.Helper()
	form := url.Values{"MessageSid": {sid}, "MessageStatus": {state}, "From": {ourNumber}, "To": {anasPhone}}
	if code != "" {
		form.Set("ErrorCode", code)
	}
	req := &channel.Request{
		Method: "POST", URL: callback, Body: []byte(form.Encode()),
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
	}
	e, err := sms.New(sms.Config{}).Parse(req, channel.Part{})
	if err != nil {
		r.Fatal(err)
	}
	return r.intake(c, "sms", e)
}
