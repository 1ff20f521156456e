package shop_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

// fixture is the service with in-memory neighbours: desk, redactors, connections
// and mail server.
type fixture struct {
	t  *testing.T
	db *db.DB
	*shop.Service
	queue *queue.Queue
	blob  blob.Store

	mu          sync.Mutex
	customers   map[string]*customer // by id
	tickets     map[string][]string  // by customer
	files       map[string][]shop.File
	forgotten   []shop.Person
	places      []string
	retired     []string
	connections map[string]shop.Connection
	notices     map[string]string
	mails       []mail.Message
	refuse      error // the error of redactors and the mail server
	far         func(*http.Request) (*http.Response, error)
}

// customer is a customer of the fixture's desk.
type customer struct {
	name, email, phone string
	others             []string // further addresses
	ids                []string // place and id
	redacted           bool
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	f := &fixture{
		t: t, db: d, queue: queue.Open(d, queue.Config{Poll: 12 * time.Hour}), customers: map[string]*customer{}, tickets: map[string][]string{},
		files: map[string][]shop.File{}, connections: map[string]shop.Connection{}, notices: map[string]string{},
	}
	store, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	f.blob = store
	key, err := seal.ParseKeys(strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	f.Service = shop.Open(shop.Config{
		DB: d, Queue: f.queue, Blob: store, Box: seal.New(key[0]), Desk: f, Redactors: []shop.Redactor{f}, Connections: f, Admins: f, Mail: f,
		MailFrom: mail.Address{Address: "no-reply@help.example"}, BaseURL: "https://help.example", HTTP: f,
	})
	return f
}

func open(t *testing.T) *fixture { return newFixture(t, dbtest.New(t)) }

// RoundTrip implements [http.RoundTripper].
func (f *fixture) RoundTrip(r *http.Request) (*http.Response, error) { return f.far(r) }

// MatchCustomerTx implements [shop.Desk].
func (f *fixture) MatchCustomerTx(_ context.Context, _ *db.Tx, o channel.Source, p, was channel.Party) (string, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	point := o.ConnectionID + " " + p.ID
	find := func(match func(*customer) bool) string {
		for id, c := range f.customers {
			if match(c) && !c.redacted {
				return id
			}
		}
		return ""
	}
	id := ""
	if p.ID != "" {
		id = find(func(c *customer) bool { return slices.Contains(c.ids, point) })
	}
	if id == "" && p.Email != "" {
		id = find(func(c *customer) bool { return c.email == p.Email || slices.Contains(c.others, p.Email) })
	}
	if id == "" && p.Phone != "" {
		id = find(func(c *customer) bool { return c.phone == p.Phone })
	}
	made := id == ""
	if made {
		id = "customer-" + strconv.Itoa(len(f.customers)+1)
		f.customers[id] = &customer{}
	}
	c := f.customers[id]
	if p.ID != "" && !slices.Contains(c.ids, point) {
		c.ids = append(c.ids, point)
	}
	if p.Name != "" && (c.name == "" || c.name == was.Name) {
		c.name = p.Name
	}
	if p.Phone != "" && (c.phone == "" || c.phone == was.Phone) {
		c.phone = p.Phone
	}
	switch {
	case p.Email == "" || p.Email == c.email || slices.Contains(c.others, p.Email):
	case c.email == "":
		c.email = p.Email
	case c.email == was.Email:
		c.others = append(c.others, c.email)
		c.email = p.Email
	default:
		c.others = append(c.others, p.Email)
	}
	slices.Sort(c.others)
	return id, made, nil
}

// CustomerByContact implements [shop.Desk].
func (f *fixture) CustomerByContact(_ context.Context, _ db.Querier, _ string, p channel.Party) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, c := range f.customers {
		if !c.redacted && (p.Email != "" && c.email == p.Email || p.Phone != "" && c.phone == p.Phone) {
			return id, nil
		}
	}
	return "", nil
}

// ExportCustomer implements [shop.Desk].
func (f *fixture) ExportCustomer(_ context.Context, _ db.Querier, organizationID, id string) (*shop.CustomerExport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.customers[id]
	if c == nil || c.redacted {
		return nil, problem.New(problem.NotFound, "no such customer")
	}
	record, err := json.Marshal(map[string]any{"name": c.name, "email": c.email, "tickets": f.tickets[id]})
	contacts := append([]string{}, c.others...)
	for _, contact := range []string{c.email, c.phone} {
		if contact != "" {
			contacts = append(contacts, contact)
		}
	}
	return &shop.CustomerExport{
		Record: record, Files: f.files[id],
		Person: shop.Person{OrganizationID: organizationID, CustomerID: id, TicketIDs: f.tickets[id], Contacts: contacts},
	}, err
}

// Redact implements [shop.Desk].
func (f *fixture) Redact(_ context.Context, _, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.customers[id]; c != nil {
		*c = customer{redacted: true}
	}
	return nil
}

// RemoveIdentitiesTx implements [shop.Desk].
func (f *fixture) RemoveIdentitiesTx(_ context.Context, _ *db.Tx, _, connectionID, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.customers[id]; c != nil {
		c.ids = slices.DeleteFunc(c.ids, func(point string) bool { return strings.HasPrefix(point, connectionID+" ") })
	}
	return nil
}

// RedactPerson implements [shop.Redactor].
func (f *fixture) RedactPerson(_ context.Context, p *shop.Person) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgotten = append(f.forgotten, *p)
	return f.refuse
}

// RedactPlace implements [shop.Redactor].
func (f *fixture) RedactPlace(_ context.Context, _, connectionID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.places = append(f.places, connectionID)
	return f.refuse
}

// Connection implements [shop.Connections].
func (f *fixture) Connection(_ context.Context, id string) (shop.Connection, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.connections[id]
	if !ok {
		return c, db.ErrNoRows
	}
	return c, nil
}

// NoticeTx implements [shop.Connections].
func (f *fixture) NoticeTx(_ context.Context, _ *db.Tx, c *shop.Connection, text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notices[c.ID] = text
	return nil
}

// RetireTx implements [shop.Connections].
func (f *fixture) RetireTx(_ context.Context, _ *db.Tx, _, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retired = append(f.retired, id)
	return nil
}

// AdminAddresses implements [mail.Admins].
func (f *fixture) AdminAddresses(_ context.Context, _ db.Querier, organizationID string) ([]mail.Address, error) {
	if organizationID == "nobody" {
		return nil, nil
	}
	return []mail.Address{{Address: "admin@" + organizationID + ".example"}, {Address: "other@" + organizationID + ".example"}}, nil
}

// Send implements [mail.Sender].
func (f *fixture) Send(_ context.Context, m mail.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	f.mails = append(f.mails, m)
	return nil
}

var errFar = errors.New("the far side is down")

// write runs fn in a transaction that must not fail.
func (f *fixture) write(fn func(ctx context.Context, tx *db.Tx) error) {
	f.t.Helper()
	if err := f.db.Write(f.t.Context(), func(tx *db.Tx) error { return fn(f.t.Context(), tx) }); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) intake(o channel.Source, r channel.Record) (result shop.Result, m *channel.Message) {
	f.t.Helper()
	f.write(func(ctx context.Context, tx *db.Tx) error {
		if r.Message != nil {
			r.Message = new(*r.Message)
		}
		got, message, err := f.IngestRecordTx(ctx, tx, o, &r)
		if err == nil {
			result, m = got.(shop.Result), message
		}
		return err
	})
	return result, m
}

// intakeRequest receives a data protection request and returns its id.
func (f *fixture) intakeRequest(o channel.Source, p channel.PrivacyRequest) string {
	f.t.Helper()
	var result struct {
		RequestID string `json:"request_id"`
	}
	f.write(func(ctx context.Context, tx *db.Tx) error {
		got, err := f.IngestPrivacyRequestTx(ctx, tx, o, &p)
		if err != nil {
			return err
		}
		text, err := json.Marshal(got)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &result)
	})
	return result.RequestID
}

func (f *fixture) request(id string) *shop.Request {
	f.t.Helper()
	list, err := f.Requests(f.t.Context(), shop.Filter{})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range list {
		if r.ID == id {
			return r
		}
	}
	f.t.Fatalf("there is no request %s among %d", id, len(list))
	return nil
}

func (f *fixture) count(query string, args ...any) int {
	f.t.Helper()
	var n int
	if err := f.db.QueryRow(f.t.Context(), query, args...).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// at is the source of a connection's events, a minute after the last change of the
// tests.
func at(organization, connection string) channel.Source {
	return channel.Source{OrganizationID: organization, ConnectionID: connection, TicketChannel: "storefront", ReceivedAt: noon.Add(time.Hour)}
}
