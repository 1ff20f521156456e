// Package inbound receives the requests of channel providers, stores them as events and
// processes them.
//
// The endpoint reads a request once, verifies it over the raw bytes, stores it and answers; a
// queue worker parses it afterwards. A 200 therefore means that the event is durable, and a
// provider never waits for a parser. A repeated event has the fingerprint of a stored one and
// is answered without a trace.
//
// Before a signature matches, nothing is stored and every refusal is the same 401. An event
// verified by the secret of one connection is processed for that connection only.
//
// Attachments that must be downloaded do not delay their message. Each is a job of its own, in
// the lane of its connection and host, and is added to the message when it arrives, so that a
// slow host delays only its own files.
//
// Events of one sender are processed in order. Processing passes the parsed event to the desk,
// to billing or to another domain in the transaction that finishes its job, so each event takes
// effect exactly once. Events that fail remain stored for review and replay: rejected
// (unreadable), unrouted (no connection has the address) or dead (failed eight times).
package inbound

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/bodypool"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fairqueue"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"

	"golang.org/x/sync/semaphore"
)

// Billing processes events of the payment provider.
type Billing interface {
	// IngestPaymentTx applies p in tx and returns a result for display. It is idempotent.
	IngestPaymentTx(ctx context.Context, tx *db.Tx, p *channel.Payment) (result any, err error)
}

// Calls processes phone call events; implemented by package call. A message may result from
// several call events, or from the absence of one, so Calls creates messages by its own jobs,
// which pass them to [Service.IngestMessageTx].
type Calls interface {
	// IngestCallTx applies c in tx and returns a result for display. Events may be repeated or
	// arrive out of order.
	IngestCallTx(ctx context.Context, tx *db.Tx, o channel.Source, c *channel.PhoneCall) (result any, err error)
}

// Shops processes customers, orders and privacy requests of shops, marketplaces and payment
// providers; implemented by package shop.
type Shops interface {
	// IngestRecordTx applies r in tx and returns a result for display. Events may be repeated or
	// arrive out of order. m is the message to place in the same transaction, or nil:
	// r.Message, which may be modified except for its attachments.
	IngestRecordTx(ctx context.Context, tx *db.Tx, o channel.Source, r *channel.Record) (result any, m *channel.Message, err error)
	// IngestPrivacyRequestTx stores p in tx and starts its execution. It is idempotent.
	IngestPrivacyRequestTx(ctx context.Context, tx *db.Tx, o channel.Source, p *channel.PrivacyRequest) (result any, err error)
}

// ConnectionIntake processes events about connections; implemented by package connection.
type ConnectionIntake interface {
	// IngestConnectionEventTx applies n in tx and returns a result for display. It is idempotent.
	IngestConnectionEventTx(ctx context.Context, tx *db.Tx, o channel.Source, n *channel.ConnectionEvent) (result any, err error)
}

// Config configures a [Service]. Required are all fields except Secrets, VerifyTokens,
// Credentials, API if no adapter calls its provider, and Billing, Calls, Shops and
// ConnectionEvents if no adapter produces their events.
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
	// Adapters are tried in this order if they share a path.
	Adapters []channel.Adapter
	// Secrets are the deployment's signing secrets by adapter name, newest first, for provider
	// accounts that all organizations share.
	Secrets map[string][]string
	// VerifyTokens are the deployment's handshake tokens by adapter name.
	VerifyTokens map[string][]string
	// Credentials are the deployment's API credentials by adapter name. They serve events that
	// are verified by the deployment's secret and have a connection without credentials.
	Credentials map[string]channel.Credentials
	// BaseURL is the public address, without a trailing slash. Some
	// signatures cover it.
	BaseURL string
	// DefaultOrganization returns the organization of events that no connection claims; ok is
	// false if there is none.
	DefaultOrganization func(ctx context.Context, q db.Querier) (id string, ok bool, err error)
	// FormerOwner returns the organization that last had an address, if there was exactly one.
	// It receives legally required requests for removed connections. May be nil.
	FormerOwner func(ctx context.Context, q db.Querier, address string) (id string, ok bool, err error)
	// Media downloads attachments. It must refuse private addresses.
	Media http.RoundTripper
	// API calls the providers' APIs at the operator's addresses. Calls to addresses that a
	// tenant chose use Media.
	API http.RoundTripper
	// TXT resolves TXT records within seconds, in the form of [channel.Request]. Nil disables
	// DNS, and mail is then never proven by it.
	TXT func(ctx context.Context, names []string) map[string][]string
	// Processed is called after the commit with each processed event of an organization. It
	// must be quick. May be nil.
	Processed func(organizationID, eventID string)
	// TrustedProxies are the networks with a trusted X-Forwarded-For. Body memory is shared
	// fairly between client addresses.
	TrustedProxies []netip.Prefix
	// Operator receives one mail a day by Mailer about new unrouted events. If zero, they are
	// only logged.
	Operator mail.Address
	Mailer   mail.Enqueuer
	// Admins finds the admins to notify of their organization's dead events. May be nil.
	Admins mail.Admins
	Quotas *quota.Service // nil: no limits
	Audit  *audit.Log     // nil records nothing
	Logger *slog.Logger
}

// Service receives requests and processes events. It is safe for concurrent use.
type Service struct {
	db                    *db.DB
	queue                 *queue.Queue
	blob                  blob.Store
	connections           *connection.Service
	desk                  *desk.Service
	billing               Billing
	calls                 Calls
	shops                 Shops
	connectionEvents      ConnectionIntake
	adapters              []channel.Adapter // in matching order
	byName                map[string]channel.Adapter
	secrets               map[string][]string
	secretEncodings       map[string][]string // forms of the deployment's secrets, by adapter
	verifyTokens          map[string][]string
	deploymentCredentials atomic.Pointer[map[string]channel.Credentials]
	baseURL               string
	formerOwner           func(ctx context.Context, q db.Querier, address string) (id string, ok bool, err error)
	defaultOrganization   func(ctx context.Context, q db.Querier) (id string, ok bool, err error)
	onProcessed           func(organizationID, eventID string)
	txt                   func(ctx context.Context, names []string) map[string][]string
	media                 http.RoundTripper
	api                   http.RoundTripper
	operator              mail.Address
	mailer                mail.Enqueuer
	admins                mail.Admins
	quotas                *quota.Service
	audit                 *audit.Log
	unrouted              unroutedCounts
	log                   *slog.Logger
	trustedProxies        []netip.Prefix

	counts map[string]*channelCounts // by adapter name; fixed

	// receiving and parsing bound the memory of large bodies: receiving while they are read,
	// parsing while adapters parse and copy them.
	receiving      *bodypool.Pool
	parsing        *fairqueue.Queue    // fair between clients, with the workers as one client
	responseMemory *semaphore.Weighted // bounds large provider responses
}

// concurrency is the number of events of one channel processed at a time in this process. On
// SQLite, workers and requests share one writer: doubling it hardly increases throughput and
// doubles the latency of requests.
const concurrency = 128

// deploymentConcurrency is the same for deployment channels, because their events contend for
// the same few records.
const deploymentConcurrency = 8

// SetCredentials replaces the deployment's API credentials. Calls that run use the former ones.
func (s *Service) SetCredentials(byChannel map[string]channel.Credentials) {
	s.deploymentCredentials.Store(&byChannel)
}

// Open returns the service and registers one queue worker per channel, so that failures of one
// channel do not delay others.
func Open(c Config) *Service {
	s := &Service{
		db: c.DB, queue: c.Queue, blob: c.Blob, connections: c.Connections, desk: c.Desk,
		billing: c.Billing, calls: c.Calls, shops: c.Shops, connectionEvents: c.ConnectionEvents,
		adapters: c.Adapters, byName: make(map[string]channel.Adapter), secrets: c.Secrets, verifyTokens: c.VerifyTokens, baseURL: c.BaseURL,
		defaultOrganization: c.DefaultOrganization, formerOwner: c.FormerOwner, onProcessed: c.Processed, txt: c.TXT, media: c.Media, api: c.API, operator: c.Operator, mailer: c.Mailer, admins: c.Admins, quotas: c.Quotas, audit: c.Audit, log: c.Logger,
		secretEncodings: make(map[string][]string),
		counts:          make(map[string]*channelCounts),
		receiving:       bodypool.New(maxReceiving, maxPerClient),
		parsing:         newParsing(),

		trustedProxies: c.TrustedProxies,
		responseMemory: semaphore.NewWeighted(maxResponseMemory),
	}
	s.SetCredentials(c.Credentials)
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
			Kind: jobKind(name), Ordered: true, Affinity: true, Concurrency: atOnce, Prepare: s.loadAll, Run: s.process, Retry: retry, Discard: s.discard,
		})
	}
	s.queue.Handle(queue.Worker{
		Kind: desk.FetchKind, PerLane: mediaPerLane, Concurrency: mediaAtOnce, Run: s.fetchFile, Retry: retryFile, Discard: s.failFile,
	})
	return s
}

// jobKind returns the job kind of a channel's events.
func jobKind(channel string) string { return "inbound/" + channel }

// Register adds the endpoints of all channels to mux.
func (s *Service) Register(mux *http.ServeMux) {
	byPath := make(map[string]*endpoint)
	for _, a := range s.adapters {
		info := a.Info()
		if info.Collected {
			continue
		}
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
