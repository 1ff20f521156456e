package deskapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/outbound"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/quota/quotatest"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/search"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"

	"github.com/google/uuid"
)

const origin = "http://api.example.com"

// rig is the whole API over a database, with all services.
type rig struct {
	testing.TB
	*resttest.Client // with a key for everything but settings

	db          *db.DB
	queue       *queue.Queue
	keys        *apikey.Service
	audit       *audit.Log
	accounts    *account.Service
	desk        *desk.Service
	connections *connection.Service
	webhooks    *webhook.Service
	inbound     *inbound.Service
	parser      *email.Parser
	mux         *http.ServeMux // serves the providers' endpoints
	routes      []rest.Route
	api         *rest.API

	log    *event.Log
	mail   mail.TrackedSender // mail server; set before open
	limits quota.Limits       // of all organizations; set before open

	sent    []string // challenges, "address: text"
	records []string // DNS answers for every name

	ours, theirs   account.Organization
	grace, mallory account.User // members of the two organizations

	mu     sync.Mutex
	events []event.Event
}

// allResources are the resources and actions of a key, as in app's catalogue.
func allResources() map[string][]apikey.Action {
	all := []apikey.Action{apikey.Read, apikey.Create, apikey.Update, apikey.Delete}
	return map[string][]apikey.Action{
		"tickets": all, "messages": {apikey.Read, apikey.Create}, "customers": all, "webhooks": all, "channels": all,
		"events": {apikey.Read, apikey.Create}, "analytics": {apikey.Read},
	}
}

func catalogue() apikey.Catalogue {
	var c apikey.Catalogue
	for name, actions := range allResources() {
		c.Resources = append(c.Resources, apikey.Resource{Name: name, Actions: actions})
	}
	c.Resources = append(c.Resources, apikey.Resource{Name: "settings", Actions: []apikey.Action{apikey.Read, apikey.Update}, Settings: true})
	return c
}

// noMail is a missing mail server.
type noMail struct{}

var errNoMail = &mail.Error{Op: mail.OpConnect, Server: "mail.test:587", Temporary: true, Err: context.DeadlineExceeded}

func (noMail) Send(context.Context, mail.Message) error {
	return errNoMail
}
func (noMail) SendTracked(context.Context, mail.Message, func() error) (string, error) {
	return "", errNoMail
}
func (noMail) EnqueueMailTx(context.Context, *db.Tx, mail.Message) error { return nil }
func (noMail) AdminAddresses(context.Context, db.Querier, string) ([]mail.Address, error) {
	return nil, nil
}

func newRig(t testing.TB, change ...func(*rig)) *rig {
	t.Helper()
	return rigOn(t, dbtest.New(t), change...)
}

func rigOn(t testing.TB, d *db.DB, change ...func(*rig)) *rig {
	t.Helper()
	r := &rig{TB: t, db: d, mail: noMail{}}
	for _, f := range change {
		f(r)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	files, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	key, err := seal.LoadOrCreateKeys(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	box := seal.New(key[0])
	r.queue = queue.Open(d, queue.Config{Logger: log})
	events := new(event.Log)
	r.log = events
	r.accounts, err = account.New(account.Config{DB: d, HashMemory: 8, Mailer: noMail{}, MailFrom: mail.Address{Address: "kickstand@a.example"}, BaseURL: origin, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	r.audit = audittest.Open(d)
	r.keys = apikey.Open(apikey.Config{
		DB: d, Audit: r.audit, Catalogues: map[apikey.ServiceName]apikey.Catalogue{apikey.Helpdesk: catalogue(), apikey.Fleet: {Test: true, Resources: catalogue().Resources}},
		PlanLimit: func(context.Context, string) (int64, error) { return 1_000_000, nil }, Logger: log,
	})
	adapters := []channel.Adapter{sms.New(sms.Config{APIURL: "http://127.0.0.1:1"}), email.NewRaw(email.Config{}), api.New()}
	r.parser = email.NewParser(email.Config{})
	r.connections = connection.Open(d, box, adapters)
	r.connections.UseProofs(connection.Proofs{
		Mailer: r, BaseURL: origin, Shared: map[string]bool{"sms": true, "email-raw": true},
		Text: func(_ context.Context, number, text string) error {
			r.sent = append(r.sent, number+": "+text)
			return nil
		},
		LookupTXT: r.LookupTXT,
	})
	r.connections.SetAuditLog(r.audit)
	sender := outbound.Open(outbound.Config{
		DB: d, Blob: files, Connections: r.connections, Adapters: adapters, Box: box, Mail: r.mail,
		HTTP: netguard.NewTransport(netguard.Guard{AllowPrivate: true}), BaseURL: origin, Logger: log,
		OrganizationName: func(context.Context, string) (string, error) { return "Acme Wheels", nil },
	})
	quotas := quotatest.Open(d, r.queue, r.limits)
	r.desk = desk.Open(desk.Config{
		DB: d, Queue: r.queue, Events: events, Blob: files, Directory: r.accounts, Addresses: r.connections, BaseURL: origin,
		Dispatcher: sender, CopyMAC: sender.VerifyCopyHeader, Quotas: quotas, Audit: r.audit,
	})
	sender.RegisterWorkers(r.queue, r.desk)
	r.webhooks = webhook.Open(webhook.Config{
		DB: d, Queue: r.queue, Events: events, Box: box, AllowPrivate: true, Admins: noMail{}, Mailer: noMail{}, BaseURL: origin, Quotas: quotas, Audit: r.audit, Logger: log,
	})
	r.inbound = inbound.Open(inbound.Config{
		DB: d, Queue: r.queue, Blob: files, Connections: r.connections, Desk: r.desk, Adapters: adapters, BaseURL: origin,
		DefaultOrganization: r.accounts.DefaultOrganization, Media: netguard.NewTransport(netguard.Guard{}), Audit: r.audit, Logger: log,
	})
	r.mux = http.NewServeMux()
	r.inbound.Register(r.mux)
	events.AfterCommit(func(list []event.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, list...)
	})
	r.routes = (&deskapi.API{
		DB: d, BaseURL: origin, Desk: r.desk, Webhooks: r.webhooks, Connections: r.connections, Inbound: r.inbound, Accounts: r.accounts, Keys: r.keys, Audit: r.audit,
		Search: &search.Service{DB: d, Desk: r.desk},
	}).Routes()
	deliveries, err := deskapi.Deliveries(origin)
	if err != nil {
		t.Fatal(err)
	}
	r.api, err = rest.New(rest.Config{
		Base: deskapi.Base, Origin: origin, Service: apikey.Helpdesk, Environment: apikey.Live, Realm: "helpdesk",
		Title: "Helpdesk", Description: "Tickets.", Version: "1.0",
		Keys: r.keys, KeyLimiter: ratelimit.NewMemory(time.Minute), AddressLimiter: ratelimit.NewMemory(time.Minute), DB: d, Box: box,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix(resttest.Peer + "/32")}, Audit: r.audit, Log: log, Routes: r.routes, Webhooks: deliveries,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.ours, r.grace = r.organization("Acme Wheels", "grace@a.example")
	r.theirs, r.mallory = r.organization("Other", "mallory@b.example")
	r.Client = resttest.New(t, r.api, deskapi.Base).As(r.key(r.ours, apikey.Permissions{Level: apikey.ReadWrite}))
	t.Cleanup(r.checkEvents)
	return r
}

// checkEvents validates the bodies of all events that a test has caused.
func (r *rig) checkEvents() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.events {
		r.checkBodies(&r.events[i])
	}
}

func (r *rig) checkBodies(e *event.Event) {
	for form, suffix := range map[payload.Form]string{payload.Nested: "", payload.Flat: ".a"} {
		body, err := payload.Render(form, e)
		if err != nil {
			r.Fatal(err)
		}
		r.Client.CheckWebhook(string(e.Name)+suffix, body)
	}
}

// organization creates an organization with a member.
func (r *rig) organization(name, member string) (account.Organization, account.User) {
	r.Helper()
	o, err := r.accounts.CreateOrganization(r.Context(), account.NewOrganization{Name: name})
	if err != nil {
		r.Fatal(err)
	}
	return o, r.member(o, member)
}

func (r *rig) member(o account.Organization, address string) account.User {
	r.Helper()
	u, err := r.accounts.CreateUser(r.Context(), account.NewUser{Email: address, Organization: o.Slug, Role: account.Admin})
	if err != nil {
		r.Fatal(err)
	}
	return u
}

// key creates a live helpdesk key and returns its token.
func (r *rig) key(o account.Organization, p apikey.Permissions) string {
	r.Helper()
	_, token := r.makeKey(apikey.New{OrganizationID: o.ID, Permissions: p})
	return token
}

func (r *rig) makeKey(n apikey.New) (apikey.Key, string) {
	r.Helper()
	n.Name = uuid.NewString()
	if n.Service == "" {
		n.Service, n.Environment = apikey.Helpdesk, apikey.Live
	}
	k, token, err := r.keys.Create(r.Context(), n)
	if err != nil {
		r.Fatal(err)
	}
	return k, token.Reveal()
}

// expiredKey returns an expired key for everything.
func (r *rig) expiredKey() string {
	r.Helper()
	k, token := r.makeKey(apikey.New{OrganizationID: r.ours.ID, Permissions: apikey.Permissions{Level: apikey.Admin}, ExpiresAt: time.Now().Add(time.Hour)})
	err := r.db.Write(r.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(r.Context(), "UPDATE api_keys SET expires_at = $2 WHERE id = $1", k.ID, tx.Now.Add(-time.Second).UnixMicro())
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return token
}

// other returns a client with a key of the other organization.
func (r *rig) other() *resttest.Client {
	r.Helper()
	return r.As(r.key(r.theirs, apikey.Permissions{Level: apikey.ReadWrite}))
}

// fields is an answered record.
type fields map[string]any

// text returns a string field, empty if null.
func (f fields) text(name string) string {
	s, _ := f[name].(string)
	return s
}

// send sends a request and returns the answered record.
func send(t testing.TB, c *resttest.Client, method, path, body string, want int, headers ...string) fields {
	t.Helper()
	a := c.Do(method, path, body, headers...)
	if a.Status != want {
		t.Fatalf("%s %s %.300s: got %d %s, want %d", method, path, body, a.Status, a.Body, want)
	}
	if a.Body == "" {
		return nil
	}
	var f fields
	a.JSON(&f)
	return f
}

// get reads a record.
func (r *rig) get(path string) fields {
	r.Helper()
	return send(r, r.Client, "GET", path, "", 200)
}

// post creates a record.
func (r *rig) post(path string, body any) fields {
	r.Helper()
	return send(r, r.Client, "POST", path, jsonOf(r, body), 201)
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ticket creates a ticket with a first message.
func (r *rig) ticket(subject, address string) fields {
	r.Helper()
	return r.post("/tickets", fields{"subject": subject, "text": "Text of " + subject, "customer": fields{"email": address}})
}

// refused checks that an answer is a problem.
func refused(t testing.TB, what string, a resttest.Answer, status int, code string, pointers ...string) {
	t.Helper()
	p := a.Problem()
	var at []string
	for _, e := range p.Errors {
		at = append(at, e.Pointer+e.Parameter+" "+e.Code)
	}
	if a.Status != status || p.Code != code || pointers != nil && fmt.Sprint(at) != fmt.Sprint(pointers) {
		t.Errorf("%s: got %d %s %q, want %d %s %q\n%s", what, a.Status, p.Code, at, status, code, pointers, a.Body)
	}
}

// mails delivers a raw inbound mail.
func (r *rig) mails(c connection.Connection, raw string) desk.Result {
	r.Helper()
	m, err := r.parser.ParseRaw([]byte(strings.ReplaceAll(raw, "\n", "\r\n")), email.Envelope{Recipient: c.Address, Received: time.Now()})
	if err != nil {
		r.Fatal(err)
	}
	var res desk.Result
	err = r.db.Write(r.Context(), func(tx *db.Tx) (err error) {
		res, err = r.desk.IngestTx(r.Context(), tx, desk.InboundEvent{
			OrganizationID: c.OrganizationID, ConnectionID: c.ID, Channel: "email", Event: channel.Event{Message: m},
		})
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return res
}

// emitted returns the names of the events since its last call.
func (r *rig) emitted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := []string{}
	for i := range r.events {
		r.checkBodies(&r.events[i])
		names = append(names, string(r.events[i].Name))
	}
	r.events = nil
	return names
}
