// Package shop stores the customers and orders of shops, marketplaces and payment
// providers, and performs the data protection requests that they forward.
//
// # Records
//
// A provider's ids are valid in one place: a connection, or, without one, the
// organization's ticket channel. An order is identified by its place and id, and so is a
// customer, matched with the desk's customers once: by id, then e-mail
// address, then number.
//
// Records arrive in any order and repeatedly. Of two states of a record, the newer
// by the provider's clock wins; the older one only fills its empty fields. So the
// result does not depend on the order. An order is shown beside its customer; it
// starts no ticket, but a customer's request for a return or a cancellation arrives
// as a message.
//
// # Data protection requests
//
// A request is stored with its legal due date, and performed by a job of the queue
// in idempotent steps, so that it continues after a crash. A request for access
// collects the person's data in an archive and mails it to the organization's
// administrators. A request for erasure redacts the person in the desk and in every
// [Redactor], and finally in the request itself. Older events do not restore
// redacted data.
//
// A request concerns the person with the shop's id in that shop; only for an
// unknown id is the address matched, in the same organization.
//
// # Subscriptions
//
// A shop posts events to subscribers only, and drops subscriptions that fail for
// some hours. So each connection has a job that reconciles its subscriptions after
// a change of the connection, and once a day.
package shop

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// Desk stores customers and their messages.
type Desk interface {
	// MatchCustomerTx returns the customer that p identifies, and creates one if none
	// matches, in the order of id, e-mail address, number. Empty fields are filled
	// from p; a field that still equals the one of was is replaced. made is true for a
	// new customer. It emits the events of the change.
	MatchCustomerTx(ctx context.Context, tx *db.Tx, o channel.Source, p, was channel.Party) (customerID string, made bool, err error)
	// CustomerByContact returns the customer with p's e-mail address or number; empty
	// if there is none.
	CustomerByContact(ctx context.Context, q db.Querier, organizationID string, p channel.Party) (customerID string, err error)
	// ExportCustomer returns all data of a customer. Error: NotFound.
	ExportCustomer(ctx context.Context, q db.Querier, organizationID, customerID string) (*CustomerExport, error)
	// Redact removes a customer's personal data, messages and files for good. An
	// unknown customer is no error.
	Redact(ctx context.Context, organizationID, customerID string) error
	// RemoveIdentitiesTx removes a customer's identities of one connection.
	RemoveIdentitiesTx(ctx context.Context, tx *db.Tx, organizationID, connectionID, customerID string) error
}

// CustomerExport is the desk's data of a customer.
type CustomerExport struct {
	// Record has the customer, the tickets and the messages, as JSON.
	Record json.RawMessage
	Person Person
	Files  []File
}

// File is a file of a message.
type File struct {
	Name    string // within an archive, with the attachment's id as its folder
	BlobKey string
}

// Person is a person to redact.
type Person struct {
	OrganizationID string   `json:"organization_id"`
	CustomerID     string   `json:"customer_id"`       // empty: unknown to the desk
	TicketIDs      []string `json:"tickets,omitempty"` // with the customer's messages
	// EventIDs are the customers, and EventTicketIDs the tickets, whose stored events may have the
	// person's data: also those of merged customers.
	EventIDs       []string `json:"event_customers,omitempty"`
	EventTicketIDs []string `json:"event_tickets,omitempty"`
	// Places are the scopes of Names: connections.
	Places []string `json:"places,omitempty"`
	// Names are the ids of the person and their orders at those places.
	Names []string `json:"names,omitempty"`
	// Contacts are the person's addresses, numbers and channel ids in the
	// organization.
	Contacts []string `json:"contacts,omitempty"`
}

// Redactor redacts customers' data stored outside the desk: raw requests, events,
// calls.
type Redactor interface {
	// RedactPerson removes the person's data. It works in bounded steps and is
	// idempotent.
	RedactPerson(ctx context.Context, p *Person) error
	// RedactPlace removes all data received by a connection.
	RedactPlace(ctx context.Context, organizationID, connectionID string) error
}

// Connection has the fields of a connection that subscriptions need.
type Connection struct {
	ID             string
	OrganizationID string
	Channel        string
	Address        string
	Enabled        bool
	Proven         bool // the organization has proven that the shop is its own
	Credentials    map[string]string
	Settings       map[string]string
}

// Connections has the connections of all organizations.
type Connections interface {
	// Connection returns a connection by id; [db.ErrNoRows] if there is none.
	Connection(ctx context.Context, id string) (Connection, error)
	// NoticeTx shows a problem of a connection to its administrators; an empty text
	// removes it.
	NoticeTx(ctx context.Context, tx *db.Tx, c *Connection, text string) error
	// RetireTx disables a connection and deletes its credentials, if it exists.
	RetireTx(ctx context.Context, tx *db.Tx, organizationID, id string) error
}

// Config has the parts of a [Service]. All are required but Redactors, APIURL,
// Version, Audit and Logger.
type Config struct {
	DB          *db.DB
	Queue       *queue.Queue
	Blob        blob.Store
	Box         *seal.Box
	Desk        Desk
	Redactors   []Redactor
	Connections Connections
	Admins      mail.Admins
	Mail        mail.Sender
	MailFrom    mail.Address
	BaseURL     string // public address, without a trailing slash
	// HTTP calls the shops' API.
	HTTP http.RoundTripper
	// APIURL is the API's URL, without a trailing slash; {shop} stands for the shop's
	// domain. Empty: at the shop.
	APIURL  string
	Version string       // of the API; empty: [DefaultVersion]
	Audit   *audit.Log   // nil records nothing
	Logger  *slog.Logger // nil discards
}

// Service stores shop records and performs data protection requests. It is safe for
// concurrent use.
type Service struct {
	db          *db.DB
	queue       *queue.Queue
	blob        blob.Store
	box         *seal.Box
	desk        Desk
	redactors   []Redactor
	connections Connections
	admins      mail.Admins
	mail        mail.Sender
	mailFrom    mail.Address
	baseURL     string
	http        http.RoundTripper
	apiURL      string
	version     string
	audit       *audit.Log
	log         *slog.Logger
}

// Open returns the service and registers its workers with the queue.
func Open(c Config) *Service {
	s := &Service{
		db: c.DB, queue: c.Queue, blob: c.Blob, box: c.Box, desk: c.Desk, redactors: c.Redactors, connections: c.Connections,
		admins: c.Admins, mail: c.Mail, mailFrom: c.MailFrom, baseURL: strings.TrimRight(c.BaseURL, "/"),
		http: c.HTTP, apiURL: c.APIURL, version: c.Version, audit: c.Audit, log: c.Logger,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.apiURL == "" {
		s.apiURL = "https://{shop}"
	}
	if s.version == "" {
		s.version = DefaultVersion
	}
	// Legal requests are never given up, and subscriptions are checked daily in any
	// case.
	forever := func(attempt int, _ error) (time.Duration, bool) {
		return min(queue.Backoff(attempt)*time.Duration(max(attempt-6, 1)), time.Hour), true
	}
	c.Queue.Handle(queue.Worker{Kind: privacyKind, Concurrency: 4, Run: s.runRequest, Retry: forever})
	c.Queue.Handle(queue.Worker{Kind: expiryKind, Concurrency: 1, Run: s.expire, Retry: forever})
	c.Queue.Handle(queue.Worker{Kind: subscriptionKind, Outgoing: true, Concurrency: 4, Run: s.runSubscriptions, Retry: forever})
	return s
}

// placeKey returns the scope of the ids of a source.
func placeKey(o channel.Source) string {
	if o.ConnectionID != "" {
		return o.ConnectionID
	}
	return o.OrganizationID + "/" + o.TicketChannel
}

func scanText(row db.Row) (s string, err error) {
	err = row.Scan(&s)
	return s, err
}

// clean removes bytes that an engine cannot store: NUL and invalid UTF-8.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}
