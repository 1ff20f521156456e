// Package shop keeps what shops, marketplaces and payment providers say of
// customers and orders, and carries out what the law has them ask for.
//
// # Records
//
// A provider's ids mean something in one place: a connection, or, where an
// organization has none, its medium there. An order is known by its place and id, a
// customer likewise, and who that is at the desk is looked up once: by the id, then
// the address, then the number. Whoever they are at the desk, they stay.
//
// News comes in any order and more than once. Of two states of a record, the newer
// by the provider's clock stays; what the older one knows beside is added where
// nothing is known. So whatever the order, the end is the same. An order is shown
// beside its customer; it starts no ticket, but what the customer wants of it, a
// return or a cancellation, comes as a message of theirs.
//
// # The law's requests
//
// A request is written down with the day by which it must be done, and done by a
// job of the queue, in steps that can be taken again: a process that stops in the
// middle leaves a job that goes on. To show what is known of somebody, it is put
// into an archive and mailed to the organization's administrators. To forget
// somebody, the desk and every [Redactor] take what is theirs out of what they have,
// and what is written down of the request itself ends up naming nobody. What was
// forgotten does not come back by news that is older.
//
// A request is carried out for whom the shop's id names in that shop; only for whom
// it names nobody is the address looked up, in the same organization.
//
// # Subscriptions
//
// A shop tells only who has subscribed, and drops subscriptions that failed for
// some hours. So each connection has a job that makes them right when something of
// the connection changes, and once a day.
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

// Desk keeps the customers, and what was said with them.
type Desk interface {
	// MatchCustomer finds the customer whom the id, the address or the number of p belongs
	// to, in this order, or makes one, and emits what that changes. What of p is
	// not known of them is added; where they have still what was says, p's comes in
	// its place. made says that nobody was known.
	MatchCustomer(ctx context.Context, tx *db.Tx, o channel.Source, p, was channel.Party) (customerID string, made bool, err error)
	// CustomerByContact returns whose the address or the number of p is; empty: nobody's.
	CustomerByContact(ctx context.Context, q db.Querier, organizationID string, p channel.Party) (customerID string, err error)
	// Dossier returns all that there is of a customer, or a NotFound problem.
	Dossier(ctx context.Context, q db.Querier, organizationID, customerID string) (*Dossier, error)
	// Redact takes everything personal from a customer and all that was said with
	// them, for good, and their files. Somebody who is not there is no error.
	Redact(ctx context.Context, organizationID, customerID string) error
	// RemoveIdentities takes from a customer what they are known by on one connection only.
	RemoveIdentities(ctx context.Context, tx *db.Tx, organizationID, connectionID, customerID string) error
}

// Dossier is what the desk has of a customer.
type Dossier struct {
	// Record is the customer, the tickets and the messages, as JSON.
	Record json.RawMessage
	Person Person
	Files  []File
}

// File is a file of a message.
type File struct {
	Name    string // within an archive, with the id of the attachment as its folder
	BlobKey string
}

// Person is who is to be forgotten.
type Person struct {
	OrganizationID string   `json:"organization_id"`
	CustomerID     string   `json:"customer_id"`       // empty: the desk knows nobody
	TicketIDs      []string `json:"tickets,omitempty"` // in which something was said with them
	// Places are where Names have their meaning: connections.
	Places []string `json:"places,omitempty"`
	// Names are the ids that providers in those places have for the person and
	// their orders.
	Names []string `json:"names,omitempty"`
	// Contacts are what they are known by anywhere in the organization: addresses,
	// numbers, ids of channels.
	Contacts []string `json:"contacts,omitempty"`
}

// Redactor keeps, beside the desk, what customers have said or what tells of them:
// requests as they came in, events, calls.
type Redactor interface {
	// RedactPerson takes what is the person's out of what it keeps. It works in bounded
	// steps and may be called again.
	RedactPerson(ctx context.Context, p *Person) error
	// RedactPlace takes out everything that came by a connection.
	RedactPlace(ctx context.Context, organizationID, connectionID string) error
}

// Admins are the people that an organization's notices go to.
type Admins interface {
	AdminAddresses(ctx context.Context, q db.Querier, organizationID string) ([]mail.Address, error)
}

// Connection is as much of a connection as subscriptions need.
type Connection struct {
	ID             string
	OrganizationID string
	Channel        string
	Address        string
	Enabled        bool
	Proven         bool // the shop is proven to be the organization's
	Credentials    map[string]string
	Settings       map[string]string
}

// Connections are those of the organizations.
type Connections interface {
	// Connection returns one by id; [db.ErrNoRows] when there is none.
	Connection(ctx context.Context, id string) (Connection, error)
	// Notice shows an administrator, on the connection, what is wrong with it;
	// empty: nothing any more.
	Notice(ctx context.Context, tx *db.Tx, c *Connection, text string) error
	// Retire switches a connection off and drops its credentials, if it is still
	// there.
	Retire(ctx context.Context, tx *db.Tx, organizationID, id string) error
}

// Config is what a [Service] needs. All is required but Keepers, APIURL, Version and
// Logger.
type Config struct {
	DB          *db.DB
	Queue       *queue.Queue
	Blob        blob.Store
	Box         *seal.Box
	Desk        Desk
	Redactors   []Redactor
	Connections Connections
	Admins      Admins
	Mail        mail.Sender
	MailFrom    mail.Address
	BaseURL     string // public address, without a trailing slash
	// HTTP calls the shops' API.
	HTTP http.RoundTripper
	// APIURL is where that is, without a trailing slash; {shop} stands for the
	// shop's domain. Empty: at the shop.
	APIURL  string
	Version string       // of the API; empty: [DefaultVersion]
	Audit   *audit.Log   // nil records nothing
	Logger  *slog.Logger // nil discards
}

// Service keeps records, and carries out requests. It is safe for concurrent use.
type Service struct {
	db          *db.DB
	queue       *queue.Queue
	blob        blob.Store
	box         *seal.Box
	desk        Desk
	redactors   []Redactor
	connections Connections
	admins      Admins
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
	// What the law asks for is never given up, and a shop that is not heard is asked
	// again tomorrow in any case.
	forever := func(attempt int, _ error) (time.Duration, bool) {
		return min(queue.Backoff(attempt)*time.Duration(max(attempt-6, 1)), time.Hour), true
	}
	c.Queue.Handle(queue.Worker{Kind: privacyKind, Concurrency: 4, Run: s.runRequest, Retry: forever})
	c.Queue.Handle(queue.Worker{Kind: expiryKind, Concurrency: 1, Run: s.expire, Retry: forever})
	c.Queue.Handle(queue.Worker{Kind: subscriptionKind, Concurrency: 4, Run: s.runSubscriptions, Retry: forever})
	return s
}

// placeKey is where the ids of what came in have their meaning.
func placeKey(o channel.Source) string {
	if o.ConnectionID != "" {
		return o.ConnectionID
	}
	return o.OrganizationID + "/" + o.Medium
}

func scanText(row db.Row) (s string, err error) {
	err = row.Scan(&s)
	return s, err
}

// clean removes what neither engine could store: NUL and invalid UTF-8.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}
