// Package inbound is where other systems' requests come in.
//
// A request is read once, verified over the raw bytes, stored, and answered;
// what it means is worked out afterwards by a queue worker. So a 200 says that
// the event is on disk, whatever happens next, and a provider never waits for a
// parser. The same event sent again finds its fingerprint taken and is answered
// without a trace.
//
// Nothing is stored, and nothing told apart in the answer, before a signature
// has matched: every refusal is the same 401. What the secret of one connection
// verified is processed for that connection only.
//
// A message does not wait for files that have to be fetched: each is a job of its own, in
// the lane of its connection and host, and the file is added to the message when it is
// there. A host that hangs holds up its own files only.
//
// Events of one sender are processed in order. Processing hands the parsed
// event to the desk, or to billing, in one transaction with the end of its job,
// so each event takes effect exactly once. What cannot be processed stays to be seen and
// replayed: rejected (unreadable), unrouted (nobody's address) or dead (failed
// eight times).
package inbound

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fair"
	"github.com/kickstand-dev/kickstand/internal/intake"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/queue"

	"golang.org/x/sync/semaphore"
)

// Billing takes what the payment provider says.
type Billing interface {
	// Intake gives p its effect, in tx, and returns what that was, for people
	// to look at. It may be given the same news again.
	Intake(ctx context.Context, tx *db.Tx, p *channel.Payment) (result any, err error)
}

// Calls takes what a telephone provider says of calls; package call. What a call
// comes to may depend on several events, or on one that does not come, so messages
// that come of it have work of their own, which hands them to [Service.Place].
type Calls interface {
	// IntakeCall gives c its effect, in tx, and returns what that was, for people
	// to look at. It may be given the same news again, and older news after newer.
	IntakeCall(ctx context.Context, tx *db.Tx, o channel.Source, c *channel.PhoneCall) (result any, err error)
}

// Shops takes what shops, marketplaces and payment providers say of customers and
// orders, and what the law has them ask for; package shop.
type Shops interface {
	// IntakeRecord gives r its effect, in tx, and returns what that was, for
	// people to look at. It may be given the same news again, and older news after
	// newer. m is a message that comes of it: r.Message, which may be changed but
	// for its attachments, or nil; the desk places it in the same transaction.
	IntakeRecord(ctx context.Context, tx *db.Tx, o channel.Source, r *channel.Record) (result any, m *channel.Message, err error)
	// IntakePrivacy records p, in tx, and has it done. It may be given the same
	// request again.
	IntakePrivacy(ctx context.Context, tx *db.Tx, o channel.Source, p *channel.PrivacyRequest) (result any, err error)
}

// ConnectionIntake takes news about connections themselves; package connection.
type ConnectionIntake interface {
	// IntakeConnectionEvent gives n its effect, in tx, and returns what that was, for people
	// to look at. It may be given the same news again.
	IntakeConnectionEvent(ctx context.Context, tx *db.Tx, o channel.Source, n *channel.ConnectionEvent) (result any, err error)
}

// Config is what a [Service] needs. All is required but Secrets, VerifyTokens, Credentials, API
// where no adapter asks its provider, and whatever takes what no adapter brings:
// Billing, Calls, Shops and News.
type Config struct {
	DB               *db.DB
	Queue            *queue.Queue
	Blob             blob.Store
	Connections      *connection.Service
	Desk             *desk.Service
	Billing          Billing
	Calls            Calls
	Shops            Shops
	ConnectionEvents ConnectionIntake
	// Adapters are asked in this order where they share a path.
	Adapters []channel.Adapter
	// Secrets are the deployment-wide signing secrets by adapter name, newest
	// first, for provider accounts that all organizations share.
	Secrets map[string][]string
	// VerifyTokens are the deployment-wide tokens of handshakes by adapter name.
	VerifyTokens map[string][]string
	// Credentials are the deployment's own for providers' APIs by adapter name, for
	// events that its secret verified, of connections without any.
	Credentials map[string]channel.Credentials
	// BaseURL is the public address, without a trailing slash. Some
	// signatures cover it.
	BaseURL string
	// DefaultOrganization returns the organization that gets what no connection
	// claims; ok is false where there is none.
	DefaultOrganization func(ctx context.Context, q db.Querier) (id string, ok bool, err error)
	// FormerOwner returns whose an address was by a connection that is gone, if it was
	// only one organization's: it gets what the law asks for. nil knows of none.
	FormerOwner func(ctx context.Context, q db.Querier, address string) (id string, ok bool, err error)
	// Media fetches attachments; it must connect to public addresses only.
	Media http.RoundTripper
	// API calls the providers' APIs, wherever the operator says that they are. Calls
	// to addresses that a tenant chose take Media.
	API http.RoundTripper
	// TXT returns the DNS records of some names, within seconds, in the form of
	// [channel.Request]; nil: nobody asks the DNS, and what is proven by it is not.
	TXT func(ctx context.Context, names []string) map[string][]string
	// Processed is told, after the commit, of an organization's event that was dealt
	// with. It must be quick. nil: nobody is.
	Processed func(organizationID, eventID string)
	// TrustedProxies are the networks whose X-Forwarded-For is believed: memory for
	// bodies is shared between clients.
	TrustedProxies []netip.Prefix
	// Operator gets a mail a day by Mailer about events without an organization, if
	// there are new ones; zero: only the log says so.
	Operator mail.Address
	Mailer   Mailer
	// Admins are mailed about events of their organization that died, as the operator is;
	// nil: they are not.
	Admins Admins
	Audit  *audit.Log // nil records nothing
	Logger *slog.Logger
}

// Service takes requests and processes events. It is safe for concurrent use.
type Service struct {
	db                    *db.DB
	queue                 *queue.Queue
	blob                  blob.Store
	connections           *connection.Service
	desk                  *desk.Service
	billing               Billing
	calls                 Calls
	shops                 Shops
	connectionEvents                  ConnectionIntake
	adapters              []channel.Adapter // in the order in which they are asked
	byName                map[string]channel.Adapter
	secrets               map[string][]string
	secretEncodings             map[string][]string // of the deployment's secrets, by adapter
	verifyTokens          map[string][]string
	deploymentCredentials map[string]channel.Credentials
	baseURL               string
	formerOwner           func(ctx context.Context, q db.Querier, address string) (id string, ok bool, err error)
	defaultOrganization   func(ctx context.Context, q db.Querier) (id string, ok bool, err error)
	onProcessed           func(organizationID, eventID string)
	txt                   func(ctx context.Context, names []string) map[string][]string
	media                 http.RoundTripper
	api                   http.RoundTripper
	operator              mail.Address
	mailer                Mailer
	admins                Admins
	audit                 *audit.Log
	unrouted              unroutedCounts
	log                   *slog.Logger
	trustedProxies        []netip.Prefix

	counts map[string]*channelCounts // by adapter name; fixed

	// receiving and parsing bound the memory for large bodies: those that are
	// read or wait, and those that adapters, which make copies, have in hand.
	receiving *intake.Pool
	parsing   *fair.Queue         // in turns between clients, and the workers
	responseMemory *semaphore.Weighted // the same for what providers tell when they are asked
}

// concurrency is how many events of one channel are processed at once in this
// process. On SQLite they and the requests that come in wait in one line to write:
// twice as many process hardly more a second, and keep providers waiting twice as
// long.
const concurrency = 128

// deploymentConcurrency is the same for a channel whose events are all about
// the same few records: more would only hold connections while they wait.
const deploymentConcurrency = 8

// Open returns the service and registers its workers with the queue, one per
// channel, so that trouble with one holds up no other.
func Open(c Config) *Service {
	s := &Service{
		db: c.DB, queue: c.Queue, blob: c.Blob, connections: c.Connections, desk: c.Desk,
		billing: c.Billing, calls: c.Calls, shops: c.Shops, connectionEvents: c.ConnectionEvents,
		adapters: c.Adapters, byName: make(map[string]channel.Adapter), secrets: c.Secrets, verifyTokens: c.VerifyTokens, deploymentCredentials: c.Credentials, baseURL: c.BaseURL,
		defaultOrganization: c.DefaultOrganization, formerOwner: c.FormerOwner, onProcessed: c.Processed, txt: c.TXT, media: c.Media, api: c.API, operator: c.Operator, mailer: c.Mailer, admins: c.Admins, audit: c.Audit, log: c.Logger,
		secretEncodings: make(map[string][]string),
		counts:    make(map[string]*channelCounts),
		receiving: intake.New(maxReceiving, maxPerClient),
		parsing:   newParsing(),

		trustedProxies: c.TrustedProxies,
		responseMemory:      semaphore.NewWeighted(maxResponseMemory),
	}
	for _, a := range c.Adapters {
		info := a.Info()
		name, atOnce := info.Name, concurrency
		if info.Deployment {
			atOnce = deploymentConcurrency
		}
		s.byName[name] = a
		s.counts[name] = new(channelCounts)
		s.secretEncodings[name] = secretEncodings(c.Secrets[name])
		s.queue.Handle(queue.Worker{
			Kind: jobKind(name), Ordered: true, Concurrency: atOnce, Run: s.process, Retry: retry, Discard: s.discard,
		})
	}
	s.queue.Handle(queue.Worker{
		Kind: desk.FetchKind, PerLane: mediaPerLane, Concurrency: mediaAtOnce, Run: s.fetchFile, Retry: retryFile, Discard: s.failFile,
	})
	return s
}

// jobKind is what the queue calls the processing of a channel's events.
func jobKind(channel string) string { return "inbound/" + channel }

// Register adds every channel's paths to mux.
func (s *Service) Register(mux *http.ServeMux) {
	byPath := make(map[string]*endpoint)
	for _, a := range s.adapters {
		info := a.Info()
		for _, path := range append([]string{info.Path}, info.Aliases...) {
			e := byPath[path]
			if e == nil {
				e = &endpoint{Service: s}
				byPath[path] = e
				mux.Handle(path, e)
			}
			e.adapters = append(e.adapters, a)
			e.limit = max(e.limit, info.MaxBody)
			if _, ok := a.(channel.Handshaker); ok {
				e.handshakes = true
			}
		}
	}
}
