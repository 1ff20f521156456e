// Package app composes the program from its configuration.
//
// [Open] constructs everything once, in order, and passes it as arguments. [App.Serve]
// runs the program; commands that read or change records use its parts without running
// it, next to a server on the same database.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/account/oidc"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/app/doctor"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/channel/storefront"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/importer"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/outbound"
	"github.com/kickstand-dev/kickstand/internal/push"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/remoteimage"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rpc"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/setting"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/smtpd"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
	"github.com/kickstand-dev/kickstand/internal/tiles"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/fleetpages"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// Config has the configured values. The command line documents each.
type Config struct {
	BaseURL string // without a trailing slash
	// Base URLs of the fleet's API, production and sandbox: absolute, ending in /v1.
	// Empty: /v1 and /sandbox/v1 below BaseURL.
	FleetBaseURL   string
	SandboxBaseURL string

	Data        string
	DatabaseURL string // empty: SQLite in Data
	// DatabaseDirectURL is for notifications if DatabaseURL leads to a pooler; empty: none.
	DatabaseDirectURL string
	// DatabaseConnections bounds the PostgreSQL connections of all databases; 0 means
	// [DefaultDatabaseConnections].
	DatabaseConnections int
	BlobURL             string // empty: a folder in Data
	BlobAccess          blob.Credentials
	RedisURL            string // empty: limits are counted in this process
	SecretKey           string // empty: generated and stored in Data
	// The source of SecretKey, and Listen, are for diagnosis only; empty: unknown.
	SecretKeyFile string
	Listen        string

	SMTPURL  string // empty: mail is sent by the delivery provider's API
	MailFrom string
	// OperatorMail receives notices for the operator; empty: no notices.
	OperatorMail string
	// EmailDeliveryAPIKey is the key of the delivery provider. If it and SMTPURL are
	// empty, mails are stored in Data and shown if the base URL is this machine, and
	// cannot be sent otherwise.
	EmailDeliveryAPIKey string
	AllowNoMail         bool // serve a public base URL without a way to send mail
	MailReceiver        MailReceiver

	AccessLifetime  time.Duration
	RefreshLifetime time.Duration
	SessionLifetime time.Duration // 0: 90 days
	RedirectOrigins []string
	// SignUp is a policy for [account.ParseSignUpPolicy]. Empty: open if the base URL is
	// this machine, else invited.
	SignUp string
	// SignInBrand is the slug of the organization whose name, logo and color the pages outside of the dashboard
	// have. Empty: none.
	SignInBrand string
	// FreshProof is the maximum age of a proof of identity for a sensitive change. 0: no
	// proof if the base URL is this machine, else 10 minutes. Negative: no proof.
	FreshProof time.Duration

	MailboxClients map[string]mailbox.OAuthClient // by provider, for mailboxes
	MailboxTLS     *tls.Config                    // of the servers of mailboxes; nil: the system's roots

	OIDCIssuer       string // empty: no identity provider
	OIDCClientID     string
	OIDCClientSecret string // empty: a public client

	PaymentsAPIKey string // empty: the built-in checkout
	PaymentsAPIURL string // empty: the provider's
	PaymentsPrices map[account.Plan]string

	Secrets            map[string][]string // deployment-wide channel secrets by adapter; for the marketplace, a key accepted in addition to its own
	VerifyTokens       map[string][]string // verify tokens of webhook subscriptions, by adapter
	APIURLs            map[string]string   // base URLs of the providers' APIs, by adapter; empty: the provider's
	MarketplaceTopics  []string            // accepted topics; none: any with a valid signature
	TrustedAuthServers []string
	LookupTXT          mailauth.Lookup // nil: the system's resolver
	// Certificates fetches certificates of the marketplace's notification service. nil: from public
	// addresses only.
	Certificates http.RoundTripper
	// MailRecords looks up the MX records of channels. nil: the system's resolver.
	MailRecords doctor.MailResolver
	// Pictures fetches remote pictures of mails. nil: from public addresses only.
	Pictures         http.RoundTripper
	AllowedAddresses []string // [MEDIUM:]ADDRESS=SLUG, @DOMAIN=SLUG: see [connection.ParseAllowed]
	TextAccount      TextAccount

	AllowPrivateReceivers bool
	RetryTimeScale        float64
	Retention             Retention
	Quotas                quota.Plans

	// ExtraHosts are accepted Host names besides those of the configured base URLs.
	ExtraHosts     []string
	TrustedProxies []netip.Prefix
	Web, Worker    bool
	StopTimeout    time.Duration

	// MapTiles is the source of maps' tiles, and MapAttribution its copyright notice: see [tiles.Config].
	MapTiles       string
	MapAttribution string

	// MetricsListen is the private address of the metrics and of profiles; empty: none.
	MetricsListen string
	// Operators are the mail addresses of users who see and change the server's settings. None: nobody,
	// or admins of the default organization if the base URL is this machine.
	Operators []string
	// Settings are the values as configured, in the order of their display, for the page.
	Settings  []setting.Setting
	Traces    bool      // export traces by OTLP
	AccessLog io.Writer // nil: none
}

// App has the parts of the program. Call Close when done.
type App struct {
	BaseURL     string
	DB          *db.DB
	Accounts    *account.Service
	Factors     *factor.Service
	Billing     *billing.Service
	Connections *connection.Service
	Desk        *desk.Service
	Imports     *importer.Service
	Webhooks    *webhook.Service
	Calls       *call.Service
	Shop        *shop.Service
	Inbound     *inbound.Service
	Mailboxes   *mailbox.Service
	pictures    *remoteimage.Service
	mapTiles    *tiles.Map
	sender      *outbound.Service
	Keys        *apikey.Service
	Quotas      *quota.Service
	Requests    *requestlog.Log
	Push        *push.Service
	Audit       *audit.Log // of the helpdesk; each fleet has its own
	Fleet       Fleet      // production
	Sandbox     Fleet

	given   Config // without the settings of the page
	config  Config // as of the start
	current atomic.Pointer[Config]
	base    *url.URL // BaseURL
	log     *slog.Logger
	metrics *telemetry.Metrics
	tracer  *telemetry.Tracer // nil: no traces
	access  *telemetry.AccessLog
	box     *seal.Box
	redis   *ratelimit.Redis // nil: not configured
	// rateLimiter returns a limiter of the REST APIs; name is unique per use.
	rateLimiter func(name string) rest.RateLimiter

	// newLimiter returns limits of accounts. nil: in this process.
	newLimiter func(name string, limit int, window time.Duration) account.Limiter

	queue  *queue.Queue
	events event.Log
	files  blob.Store // of blobs, not measured
	blobs  blob.Store
	live   *live.Hub
	// alertRaised starts the relay of alerts; of capacity 1.
	alertRaised chan struct{}
	adapters    []channel.Adapter
	site        *web.Site
	procedures  *rpc.Router
	handler     http.Handler  // nil before openHandler
	ready       *readiness    // likewise
	mailbox     *mail.Mailbox // nil if mail can be sent
	// receiver receives mail at mailAddress; nil: not configured, or before Serve.
	receiver    *smtpd.Service
	mailAddress string
	mailSwitch  *mail.Switch
	letters     email.Config
	settings    *setting.Store
	reloading   sync.Mutex
	providers   http.RoundTripper // to URLs of the operator, which may be private
	closers     []func() error
}

// shareEventRows lets events share rows unless an older program, which does not know such rows, can be
// running: when programs that the database refuses must have noticed.
func (a *App) shareEventRows(ctx context.Context) error {
	a.events.SeparateRows.Store(true)
	state, err := a.DB.Inspect(ctx)
	if err != nil || state.Floor < event.MembersSince {
		return err
	}
	wait := db.FencePause
	if !state.FloorRaised.IsZero() {
		wait -= a.DB.Now().Sub(state.FloorRaised)
	}
	if wait <= 0 {
		a.events.SeparateRows.Store(false)
		return nil
	}
	timer := time.AfterFunc(wait, func() { a.events.SeparateRows.Store(false) })
	a.closers = append(a.closers, func() error { timer.Stop(); return nil })
	return nil
}

// databaseURL returns the URL of the helpdesk's database.
func (c *Config) databaseURL() string {
	if c.DatabaseURL != "" {
		return c.DatabaseURL
	}
	return "sqlite:" + filepath.Join(c.Data, "kickstand.db")
}

// openDatabase opens a database and migrates it to the latest schema. name is for the
// log.
func openDatabase(ctx context.Context, url string, o db.Options, schema db.Schema, name string) (*db.DB, []Migrated, error) {
	d, err := db.Open(ctx, url, o)
	if err != nil {
		return nil, nil, err
	}
	applied, err := d.Migrate(ctx, schema)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("migrate the database %s: %w", name, err), d.Close())
	}
	var done []Migrated
	created := len(applied) > 0 && applied[0].Version == 1
	if created {
		o.Logger.InfoContext(ctx, "created the database", "version", applied[len(applied)-1].Version)
	}
	for _, m := range applied {
		if !created {
			o.Logger.InfoContext(ctx, "migrated the database", "version", m.Version, "name", m.Name)
		}
		done = append(done, Migrated{name, m})
	}
	return d, done, nil
}

// NoDatabaseError is returned by [OpenExisting] if there is no database.
type NoDatabaseError struct{ Where string } // path of a file, or address of a server with the database

func (e *NoDatabaseError) Error() string { return "there is no Kickstand database at " + e.Where }

// OpenExisting is [Open] for an existing deployment: without a database it creates
// nothing and returns a [NoDatabaseError].
func OpenExisting(ctx context.Context, c Config, log *slog.Logger) (*App, error) {
	at, o := databases[0].at(&c)
	exists, err := db.Exists(ctx, at, o)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, &NoDatabaseError{databaseName(at)}
	}
	// The database may exist without the data folder. A new key would not open its
	// secrets.
	if _, err := os.Stat(c.Data); c.SecretKey == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the data folder %s of the database at %s does not exist, nor the secret key in it", c.Data, databaseName(at))
	}
	return Open(ctx, c, log)
}

// databaseName returns a database's URL without credentials.
func databaseName(rawURL string) string {
	if path, ok := strings.CutPrefix(rawURL, "sqlite:"); ok {
		return path
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return "the PostgreSQL server"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// openDatabases is [openObservedDatabases] without observers.
func openDatabases(ctx context.Context, c Config, log *slog.Logger) (opened [3]*db.DB, applied []Migrated, err error) {
	return openObservedDatabases(ctx, c, log, func(string) *db.Observer { return nil })
}

// openObservedDatabases opens the three databases in the order of [databases]. On an error none
// stays open.
func openObservedDatabases(ctx context.Context, c Config, log *slog.Logger, observer func(name string) *db.Observer) (opened [3]*db.DB, applied []Migrated, err error) {
	if err := c.protectFiles(ctx, log); err != nil {
		return opened, nil, err
	}
	for i, of := range databases {
		at, o := of.at(&c)
		o.Logger, o.Observer = log.With("database", of.name), observer(of.name)
		d, done, err := openDatabase(ctx, at, o, of.schema, of.name)
		if err != nil {
			for _, d := range opened[:i] {
				err = errors.Join(err, d.Close())
			}
			return opened, nil, err
		}
		opened[i] = d
		applied = append(applied, done...)
	}
	return opened, applied, nil
}

// Migrated is a migration applied to a database.
type Migrated struct {
	Database string `json:"database"`
	db.Applied
}

// Migrate migrates the databases to the latest schema and returns the applied migrations. finish also
// fences older versions of the program off the helpdesk's.
func Migrate(ctx context.Context, c Config, finish bool, log *slog.Logger) ([]Migrated, error) {
	opened, applied, err := openDatabases(ctx, c, log)
	if err != nil {
		return nil, err
	}
	if finish {
		err = opened[0].FinishUpgrade(ctx, db.Helpdesk)
	}
	for _, d := range opened {
		err = errors.Join(err, d.Close())
	}
	return applied, err
}

// Open constructs the program over its databases, which it migrates first.
func Open(ctx context.Context, c Config, log *slog.Logger) (_ *App, err error) {
	base, err := url.Parse(c.BaseURL)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("base-url %q is not an address such as https://help.example.com", c.BaseURL)
	}
	a := &App{BaseURL: c.BaseURL, base: base, given: c, config: c}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if err := a.openTelemetry(ctx, log); err != nil {
		return nil, err
	}
	log = a.log
	if err := a.openStorage(ctx); err != nil {
		return nil, err
	}
	out, err := a.openOutgoing()
	if err != nil {
		return nil, err
	}
	in, err := a.openChannels()
	if err != nil {
		return nil, err
	}
	if err := a.openAccounts(out, in); err != nil {
		return nil, err
	}
	a.alertRaised = make(chan struct{}, 1)
	a.Fleet.Service = fleet.Open(fleet.Config{DB: a.Fleet.DB, Live: true, Audit: a.Fleet.Audit, Logger: log, Changed: a.fleetNotifier(fleetpages.Production), Emitted: a.eventEmitted, Relayed: a.eventsRelayed})
	a.Sandbox.Service = fleet.Open(fleet.Config{DB: a.Sandbox.DB, Audit: a.Sandbox.Audit, Logger: log, Changed: a.fleetNotifier(fleetpages.Sandbox), Emitted: a.eventEmitted, Relayed: a.eventsRelayed})
	if err := a.openHelpdesk(out, in); err != nil {
		return nil, err
	}
	if err := a.openMap(out.providers); err != nil {
		return nil, err
	}
	return a, nil
}

// openStorage opens the databases, the stores over them and the counters of limits.
func (a *App) openStorage(ctx context.Context) error {
	opened, _, err := openObservedDatabases(ctx, a.config, a.log, a.observer)
	if err != nil {
		return err
	}
	for _, d := range opened {
		a.closers = append(a.closers, d.Close)
	}
	a.DB, a.Fleet.DB, a.Sandbox.DB = opened[0], opened[1], opened[2]
	if err := a.shareEventRows(ctx); err != nil {
		return err
	}
	if a.box, err = openBox(a.config); err != nil {
		return err
	}
	a.openAudit()
	if err := a.openSettings(ctx); err != nil {
		return err
	}
	if a.files, err = a.openBlobs(); err != nil {
		return err
	}
	a.blobs = a.measuredBlobs(a.files)
	a.queue = queue.Open(a.DB, queue.Config{Logger: a.log, Observe: a.metrics.Job, Tracer: a.tracer})
	// Other processes are notified of enqueued jobs before the database closes.
	a.closers = append(a.closers, func() error { a.queue.Stop(context.Background()); return nil })
	a.live = live.Open(a.DB)
	a.events.AfterCommit(a.publishLiveUpdates)
	a.newLimiter, err = a.openLimits()
	return err
}

// outgoing has the ways to send mail and to call other servers.
type outgoing struct {
	server    *mail.Switch
	outbox    *outbox
	providers http.RoundTripper // to URLs of the operator, which may be private
	guard     netguard.Guard    // of URLs that organizations configure
	public    http.RoundTripper // to these
}

func (a *App) openOutgoing() (out outgoing, err error) {
	from, err := mail.ParseAddress(a.config.MailFrom)
	if err != nil {
		return out, fmt.Errorf("mail-from: %w", err)
	}
	out.providers = a.metrics.ProviderTransport(netguard.NewTransport(netguard.Guard{AllowPrivate: true}))
	out.guard = netguard.Guard{AllowPrivate: a.config.AllowPrivateReceivers}
	out.public = a.metrics.ProviderTransport(netguard.NewTransport(out.guard))
	if err := a.openMailbox(); err != nil {
		return out, err
	}
	sender, err := a.openMail(&a.config, out.providers)
	if err != nil {
		return out, err
	}
	out.server = mail.NewSwitch(sender, from)
	a.mailSwitch, a.providers = out.server, out.providers
	out.outbox = a.openOutbox(out.server, a.box)
	return out, nil
}

// incoming has the deployment's settings of channels.
type incoming struct {
	secrets map[string][]string // by adapter
	letters email.Config
}

// openChannels constructs the adapters.
func (a *App) openChannels() (in incoming, err error) {
	c := a.config
	in.secrets = channelSecrets(c, a.box)
	smsAPI, err := netguard.ParseAPIURL(c.APIURLs["sms"], sms.DefaultAPIURL)
	if err != nil {
		return in, fmt.Errorf("sms-api-url: %w", err)
	}
	businessAPI, err := netguard.ParseAPIURL(c.APIURLs["business-messaging"], meta.DefaultAPIURL)
	if err != nil {
		return in, fmt.Errorf("business-messaging-api-url: %w", err)
	}
	socialAPI, err := netguard.ParseAPIURL(c.APIURLs["social-messenger"], meta.DefaultAPIURL)
	if err != nil {
		return in, fmt.Errorf("social-messenger-api-url: %w", err)
	}
	chatAPI, err := netguard.ParseAPIURL(c.APIURLs["chat"], chat.DefaultAPIURL)
	if err != nil {
		return in, fmt.Errorf("chat-api-url: %w", err)
	}
	market, err := openMarketplace(c)
	if err != nil {
		return in, err
	}
	telephone, err := openVoice(c)
	if err != nil {
		return in, err
	}
	in.letters, err = openLetters(c)
	a.letters = in.letters
	if err != nil {
		return in, err
	}
	a.adapters = []channel.Adapter{
		sms.New(sms.Config{APIURL: smsAPI.String(), MediaHosts: []string{smsAPI.Host}}),
		telephone,
		email.NewForm(in.letters), email.NewParsed(in.letters), email.NewJSON(in.letters), email.NewRaw(in.letters),
		email.NewMailbox(in.letters), email.NewDirect(in.letters), email.NewDelivery(in.letters),
		meta.NewBusiness(meta.Config{APIURL: businessAPI.String()}), meta.NewMessenger(meta.Config{APIURL: socialAPI.String()}),
		chat.New(chat.Config{APIURL: chatAPI.String(), MediaHosts: []string{chatAPI.Host}}),
		api.New(),
		market,
		payments.New(), payments.NewConnect(),
		storefront.New(storefront.Config{APIURL: strings.TrimRight(c.APIURLs["storefront"], "/")}), storefront.NewPrivacy(),
	}
	return in, nil
}

// openAccounts opens accounts, keys and billing.
func (a *App) openAccounts(out outgoing, in incoming) error {
	c := a.config
	provider, err := openProvider(c, a.DB.Now, a.log)
	if err != nil {
		return err
	}
	signUp, err := c.signUpPolicy()
	if err != nil {
		return err
	}
	checkout, err := a.openCheckout(a.box)
	if err != nil {
		return err
	}
	a.Accounts, err = account.New(account.Config{
		DB: a.DB, Mailer: accountOutbox{out.outbox}, BaseURL: c.BaseURL, RedirectOrigins: c.RedirectOrigins,
		AccessLife: c.AccessLifetime, RefreshLife: c.RefreshLifetime, SessionLife: c.SessionLifetime, FreshProof: c.freshProof(), BrowserNotices: !c.Loopback(), SignUp: signUp, Provider: provider,
		Checkout: checkout, NewLimiter: a.newLimiter, FirstIsDefault: c.Loopback(),
		OnMemberRemoved: func(ctx context.Context, tx *db.Tx, organizationID, userID string, credentials bool) error {
			if err := a.Desk.UnassignTx(ctx, tx, organizationID, userID); err != nil {
				return err
			}
			if err := a.Push.DeleteMemberTx(ctx, tx, organizationID, userID); err != nil || !credentials {
				return err
			}
			if _, err := a.Keys.RevokeCreatedTx(ctx, tx, organizationID, userID); err != nil {
				return err
			}
			return a.Webhooks.DisableCreatedTx(ctx, tx, organizationID, userID)
		},
		OnUserDeleted: func(ctx context.Context, tx *db.Tx, userID string) error {
			if err := a.Desk.DeleteDraftsTx(ctx, tx, userID); err != nil {
				return err
			}
			return a.Keys.RedactUserTx(ctx, tx, userID)
		},
		Notify: a.live.Publish, Audit: a.Audit, Logger: a.log,
	})
	if err != nil {
		return err
	}
	a.Factors, err = factor.Open(factor.Config{
		DB: a.DB, Accounts: a.Accounts, Box: a.box, BaseURL: c.BaseURL, FreshProof: c.freshProof(), NewLimiter: a.newLimiter, Audit: a.Audit, Logger: a.log,
	})
	if err != nil {
		return err
	}
	a.Keys = apikey.Open(apikey.Config{DB: a.DB, Catalogues: catalogues(), PlanLimit: a.planLimit, Audit: a.Audit, Logger: a.log})
	a.Requests = requestlog.Open(requestlog.Config{
		DB: a.DB, Recorded: func(organizationID, keyID string) { a.live.PublishCoalesced(organizationID, "key:"+keyID) }, Logger: a.log,
	})
	a.Billing = billing.Open(billing.Config{
		DB: a.DB, Accounts: a.Accounts, Checkout: checkout, Mailer: out.outbox, BaseURL: c.BaseURL,
		Post: a.paymentPoster(in.secrets["payments"]), Audit: a.Audit, Logger: a.log,
	})
	return nil
}

// openHelpdesk opens the domains and workers of the helpdesk.
func (a *App) openHelpdesk(out outgoing, in incoming) error {
	c := a.config
	a.Connections = connection.Open(a.DB, a.box, connectable(a.adapters))
	a.Connections.SetAuditLog(a.Audit)
	a.Connections.EnableAdminMail(admins{a.Accounts}, out.outbox, c.BaseURL)
	if err := a.openProofs(in.secrets, out.outbox, out.providers); err != nil {
		return err
	}
	sender := outbound.Open(outbound.Config{
		DB: a.DB, Blob: a.blobs, Connections: a.Connections, Adapters: a.adapters, Box: a.box,
		Mail: out.server, OpenMail: a.ownMail(out.guard, out.public, out.providers),
		HTTP: out.providers, PublicHTTP: out.public,
		BaseURL: c.BaseURL, OrganizationName: a.organizationName, Brand: a.Accounts.ReplyBrand, RetryTimeScale: c.RetryTimeScale, Observe: a.metrics.Reply, Logger: a.log,
	})
	a.Quotas = a.openQuotas(out.outbox)
	operator, err := c.operator()
	if err != nil {
		return err
	}
	a.Push = a.openPush(out, operator)
	a.Desk = desk.Open(desk.Config{
		DB: a.DB, Queue: a.queue, Events: &a.events, Blob: a.blobs, Directory: a.Accounts,
		Addresses: a.Connections, BaseURL: c.BaseURL,
		Dispatcher: sender, Mailer: out.outbox, Pusher: a.Push, CopyMAC: sender.VerifyCopyHeader, Box: a.box, Quotas: a.Quotas, Audit: a.Audit, Logger: a.log,
		Changed: func(organizationID, ticketID string) { a.live.PublishCoalesced(organizationID, "ticket:"+ticketID) },
		Noticed: func(organizationID, userID string) { a.live.PublishCoalesced(organizationID, "notices:"+userID) },
	})
	a.Imports = importer.Open(importer.Config{
		DB: a.DB, Desk: a.Desk, Blob: a.blobs, Queue: a.queue, Audit: a.Audit, Public: netguard.NewTransport(netguard.Guard{}), Folder: c.Data,
		Changed: func(organizationID string) { a.live.PublishCoalesced(organizationID, "imports") }, Logger: a.log,
	})
	sender.RegisterWorkers(a.queue, a.Desk)
	a.sender = sender
	a.Webhooks = webhook.Open(webhook.Config{
		DB: a.DB, Queue: a.queue, Events: &a.events, Box: a.box, AllowPrivate: c.AllowPrivateReceivers,
		Transport:      a.metrics.WebhookTransport(netguard.NewTransport(netguard.Guard{AllowPrivate: c.AllowPrivateReceivers})),
		RetryTimeScale: c.RetryTimeScale, Admins: admins{a.Accounts}, Mailer: out.outbox, BaseURL: c.BaseURL, Quotas: a.Quotas, Audit: a.Audit, AuditLogs: a.AuditLogs(), Logger: a.log,
		Sources: []webhook.Source{a.Fleet.Service, a.Sandbox.Service},
		Changed: func(organizationID, id string) { a.live.PublishCoalesced(organizationID, "webhook:"+id) },
	})
	a.Calls = a.openCalls()
	if a.Shop, err = a.openShop(a.blobs, out.server, out.providers); err != nil {
		return err
	}
	a.Inbound = inbound.Open(inbound.Config{
		DB: a.DB, Queue: a.queue, Blob: a.blobs, Connections: a.Connections, Desk: a.Desk, Billing: a.Billing, Calls: a.Calls, Shops: a.Shop, ConnectionEvents: a.Connections,
		Adapters: a.adapters, Secrets: in.secrets, VerifyTokens: c.VerifyTokens, BaseURL: c.BaseURL,
		Credentials:         deploymentCredentials(c, in.letters),
		DefaultOrganization: a.Accounts.DefaultOrganization, FormerOwner: a.Shop.FormerOwner,
		Media: netguard.NewTransport(netguard.Guard{}), API: out.providers, TXT: mailauth.NewResolver(c.lookupTXT()).TXT,
		Processed:      func(organizationID, eventID string) { a.live.PublishCoalesced(organizationID, "inbound:"+eventID) },
		TrustedProxies: c.TrustedProxies,
		Operator:       operator, Mailer: out.outbox, Admins: admins{a.Accounts},
		Quotas: a.Quotas, Audit: a.Audit, Logger: a.log,
	})
	a.Calls.RegisterWorkers(a.Inbound)
	a.Mailboxes = mailbox.Open(mailbox.Config{
		DB: a.DB, Connections: a.Connections, Journal: a.Inbound, Guard: out.guard, TLS: c.MailboxTLS, Box: a.box,
		OAuth: c.MailboxClients, HTTP: out.providers, BaseURL: c.BaseURL,
		RetryTimeScale: c.RetryTimeScale, Observe: a.metrics.Mails, Logger: a.log,
		Changed: func(organizationID, connectionID string) {
			a.live.PublishCoalesced(organizationID, "channel:"+connectionID)
		},
	})
	a.pictures = a.openPictures(a.blobs, a.box)
	return nil
}

// openAudit opens the audit log of each database.
func (a *App) openAudit() {
	for i, of := range []struct {
		log         **audit.Log
		db          *db.DB
		service     apikey.ServiceName
		environment apikey.Environment
		required    string
	}{
		{&a.Audit, a.DB, apikey.Helpdesk, apikey.Live, account.AuditedOrganizations},
		{&a.Fleet.Audit, a.Fleet.DB, apikey.Fleet, apikey.Live, ""},
		{&a.Sandbox.Audit, a.Sandbox.DB, apikey.Fleet, apikey.Test, ""},
	} {
		*of.log = audit.Open(audit.Config{
			DB: of.db, Box: a.box, Ledger: databases[i].name, Service: string(of.service), Environment: string(of.environment), Logger: a.log,
			Required: of.required,
			Recorded: func(organizationID string) {
				if organizationID != "" && a.Webhooks != nil {
					a.Webhooks.WakeAudit()
				}
			},
		})
	}
}

// AuditLogs returns the audit log of each database.
func (a *App) AuditLogs() []*audit.Log { return []*audit.Log{a.Audit, a.Fleet.Audit, a.Sandbox.Audit} }

// operator returns the address for notices to the operator; zero: none.
func (c Config) operator() (mail.Address, error) {
	if c.OperatorMail == "" {
		return mail.Address{}, nil
	}
	to, err := mail.ParseAddress(c.OperatorMail)
	if err != nil {
		return mail.Address{}, fmt.Errorf("operator-mail: %w", err)
	}
	return to, nil
}

// openLimits returns the constructor of limiters for accounts; nil: in this process.
func (a *App) openLimits() (func(name string, limit int, window time.Duration) account.Limiter, error) {
	if a.config.RedisURL == "" {
		a.rateLimiter = func(string) rest.RateLimiter { return ratelimit.NewMemory(time.Minute) }
		return nil, nil
	}
	r, err := ratelimit.OpenRedis(a.config.RedisURL, a.log)
	if err != nil {
		return nil, fmt.Errorf("redis-url: it %w", err)
	}
	a.closers = append(a.closers, r.Close)
	a.redis = r
	a.rateLimiter = func(name string) rest.RateLimiter { return r.Windows(name, time.Minute) }
	return func(name string, limit int, window time.Duration) account.Limiter {
		return r.Limiter(name, limit, window)
	}, nil
}

// limiter returns a limiter that all processes share, if they have Redis; name is unique per use.
func (a *App) limiter(name string, limit int, window time.Duration) account.Limiter {
	if a.newLimiter == nil {
		return ratelimit.New(limit, window)
	}
	return a.newLimiter(name, limit, window)
}

// signUpPolicy returns the configured policy or the default.
func (c Config) signUpPolicy() (account.SignUpPolicy, error) {
	switch {
	case c.SignUp != "":
		p, err := account.ParseSignUpPolicy(c.SignUp)
		if err != nil {
			return p, fmt.Errorf("sign-up: %w", err)
		}
		return p, nil
	case c.Loopback():
		return account.OpenSignUp, nil
	}
	return account.InvitedSignUp, nil
}

// freshProof returns the maximum age of a proof of identity; 0: no proof is required.
func (c Config) freshProof() time.Duration {
	switch {
	case c.FreshProof < 0, c.FreshProof == 0 && c.Loopback():
		return 0
	case c.FreshProof == 0:
		return 10 * time.Minute
	}
	return c.FreshProof
}

// openProvider returns nil if no identity provider is configured.
func openProvider(c Config, now func() time.Time, log *slog.Logger) (account.Provider, error) {
	if c.OIDCIssuer == "" {
		return nil, nil
	}
	return oidc.New(oidc.Config{
		Issuer: c.OIDCIssuer, ClientID: c.OIDCClientID, ClientSecret: c.OIDCClientSecret,
		RedirectURL: c.BaseURL + account.ProviderCallbackPath, Logger: log, Now: now,
	})
}

// organizationName returns the sender name of an organization's mails.
func (a *App) organizationName(ctx context.Context, id string) (string, error) {
	o, err := a.Accounts.Organization(ctx, id)
	return o.Name, err
}

// admins looks up the recipients of notices to an organization.
type admins struct{ accounts *account.Service }

// AdminAddresses implements [mail.Admins].
func (a admins) AdminAddresses(ctx context.Context, q db.Querier, organizationID string) ([]mail.Address, error) {
	emails, err := a.accounts.AdminEmails(ctx, q, organizationID)
	if err != nil {
		return nil, err
	}
	out := make([]mail.Address, len(emails))
	for i, e := range emails {
		out[i] = mail.Address{Address: e}
	}
	return out, nil
}

func openBox(c Config) (*seal.Box, error) {
	keys, err := c.secretKeys()
	if err != nil {
		return nil, err
	}
	return seal.New(keys[0], keys[1:]...), nil
}

// secretKeys returns the secret keys, newest first. If none is configured or stored, it creates
// one.
func (c Config) secretKeys() (keys []seal.Key, err error) {
	if c.SecretKey != "" {
		keys, err = seal.ParseKeys(c.SecretKey)
	} else {
		keys, err = seal.LoadOrCreateKeys(c.keyPath())
	}
	if err != nil {
		return nil, fmt.Errorf("secret key: %w", err)
	}
	return keys, nil
}

func (a *App) openBlobs() (blob.Store, error) {
	s, err := blob.Open(a.config.blobURL(), a.config.BlobAccess)
	if err != nil {
		return nil, fmt.Errorf("attachments: %w", err)
	}
	if c, ok := s.(interface{ Close() error }); ok {
		a.closers = append(a.closers, c.Close)
	}
	return s, nil
}

// InboundURL returns the URL to which a channel's provider posts.
func (a *App) InboundURL(adapter string) string {
	for _, ad := range a.adapters {
		if info := ad.Info(); info.Name == adapter && !info.Collected {
			return a.BaseURL + info.Path
		}
	}
	return ""
}

// Close releases all resources. The program must not be serving.
func (a *App) Close() error {
	var errs []error
	for _, c := range slices.Backward(a.closers) {
		errs = append(errs, c())
	}
	a.closers = nil
	return errors.Join(errs...)
}
