// Package mailbox reads existing mailboxes by IMAP, for the connections of the channel mailbox.
//
// A reader collects the raw mails of a mailbox and stores them as inbound events, which package
// inbound processes like the mails of every other mail channel. Mails stay in the mailbox.
//
// # Exactly once
//
// One transaction stores a batch of mails as events with their jobs, their digests, and the
// position in the folder: the UIDVALIDITY and the highest UID. So a crash repeats or loses no
// mail. When the position is void, because the UIDVALIDITY has changed or the folder was renamed
// or moved, the folder is read again from its beginning, and mails with a known digest are
// skipped. Two mails with one Message-ID differ in their bytes, and so in their digest.
//
// # Leases
//
// Each mailbox is read by the process with its lease, by the database's clock. A transaction of a
// reader checks the lease and its fencing token, so that a process that has lost a lease without
// noticing changes nothing.
package mailbox

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fairqueue"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"
)

// Journal stores collected mails; implemented by package inbound.
type Journal interface {
	// Collect stores requests and enqueues their jobs in one transaction with record, which
	// returns for each whether to store it.
	Collect(ctx context.Context, c *connection.Connection, requests []*channel.Request, record func(ctx context.Context, tx *db.Tx) (wanted []bool, err error)) error
}

// Config configures a [Service]. Required are DB, Connections, Journal, Box and Logger, and
// HTTP and BaseURL with OAuth.
type Config struct {
	DB          *db.DB
	Connections *connection.Service
	Journal     Journal
	Guard       netguard.Guard // of the servers, which organizations choose
	TLS         *tls.Config    // nil: the system's roots
	Box         *seal.Box
	// OAuth has the deployment's clients by the names of their providers.
	OAuth   map[string]OAuthClient
	HTTP    http.RoundTripper // for requests for tokens
	BaseURL string            // public address, without a trailing slash
	// RetryTimeScale multiplies the waits after failures and between readings, and the time after which
	// readers give way to mailboxes that wait; 0 means 1.
	RetryTimeScale float64
	MaxReaders     int // mailboxes that this process reads at the same time; 0: [DefaultReaders]
	// Observe is called after a batch with the numbers of collected mails, and of those that were
	// known. May be nil.
	Observe func(collected, known int)
	// Changed is called after the commit of a change of a mailbox's state. It must be quick. May
	// be nil.
	Changed func(organizationID, connectionID string)
	Logger  *slog.Logger
}

// Service reads mailboxes. It is safe for concurrent use.
type Service struct {
	db          *db.DB
	connections *connection.Service
	journal     Journal
	guard       netguard.Guard
	tls         *tls.Config
	box         *seal.Box
	providers   map[string]*oauthProvider // with a client
	http        http.RoundTripper
	scale       float64
	maxReaders  int
	observe     func(collected, known int)
	changed     func(organizationID, connectionID string)
	log         *slog.Logger
	instance    string // holder of this process's leases
	refreshing  singleflight.Group
	memory      *fairqueue.Queue // of large mails, fair between organizations
	wake        chan struct{}
	filing      *fairqueue.Queue // of copies of sent mails, fair between organizations
	life        context.Context  // ends with Run
	end         context.CancelFunc

	mu      sync.Mutex
	readers map[string]*reader     // by connection
	inexact map[string]bool        // connections whose next reader fetches mails singly
	probes  map[string][]time.Time // recent ones, by organization
	work    sync.WaitGroup
}

const (
	// leaseTime is how long a mailbox waits for another process after the death of its reader.
	leaseTime = 10 * time.Second
	// claimInterval is the interval of looking for mailboxes without a reader, and of renewing
	// leases.
	claimInterval = 2 * time.Second
	// DefaultReaders is the default of [Config.MaxReaders].
	DefaultReaders = 500
	// readingTime is how long a mailbox is read at least while others wait for a reader, and
	// maxRelieved the number of readers that end for them at a time.
	readingTime = time.Minute
	maxRelieved = 20
	// turnTime is the least time between readings of a mailbox: a server can report new mails without
	// end.
	turnTime = time.Second
	// maxPerOrganization bounds the mailboxes of an organization, each of which has a connection
	// to a server of its choice.
	maxPerOrganization = 50
)

// Large mails of all mailboxes together use maxMemory bytes, those of an organization
// maxMemoryEach.
const (
	maxMemory     = 256 << 20
	maxMemoryEach = 96 << 20
)

// Open returns the service, which reads mailboxes while [Service.Run] runs. It must be called
// before the connections are used.
func Open(c Config) *Service {
	maxReaders := cmp.Or(c.MaxReaders, DefaultReaders)
	s := &Service{
		db: c.DB, connections: c.Connections, journal: c.Journal, guard: c.Guard, tls: c.TLS, box: c.Box,
		providers: newProviders(c.OAuth, c.BaseURL), http: c.HTTP, scale: c.RetryTimeScale,
		observe: c.Observe, changed: c.Changed, log: c.Logger,
		instance: uuid.NewString(), wake: make(chan struct{}, 1), readers: make(map[string]*reader), inexact: make(map[string]bool), probes: make(map[string][]time.Time),
		memory: fairqueue.New(fairqueue.Config{Capacity: maxMemory, PerKey: maxReaders, Waiting: maxReaders}), maxReaders: maxReaders,
	}
	s.filing = fairqueue.New(fairqueue.Config{Capacity: maxFiling, PerKey: maxUnfiled, Waiting: 10 * maxUnfiled})
	s.life, s.end = context.WithCancel(context.Background())
	if s.scale == 0 {
		s.scale = 1
	}
	if s.observe == nil {
		s.observe = func(int, int) {}
	}
	if s.changed == nil {
		s.changed = func(string, string) {}
	}
	c.Connections.OnChange(s.connectionChanged)
	c.Connections.OnHealth(s.examine)
	return s
}

// connectionChanged follows a connection in the transaction of its change.
func (s *Service) connectionChanged(ctx context.Context, tx *db.Tx, c *connection.Connection, gone bool) error {
	if c.Channel != email.MailboxName {
		return nil
	}
	account, err := email.ParseAccount(c.Address, c.Settings, c.CredentialValues())
	if gone || err != nil || account.IMAP.Host == "" {
		tx.AfterCommit(s.signal)
		return deleteState(ctx, tx, c.ID)
	}
	since := tx.Now.AddDate(0, 0, -account.ImportDays).Truncate(time.Second)
	created, err := saveState(ctx, tx, c, since)
	if err != nil {
		return err
	}
	if created {
		var n int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM mailboxes WHERE organization_id = $1", c.OrganizationID).Scan(&n); err != nil {
			return fmt.Errorf("count mailboxes: %w", err)
		}
		if n > maxPerOrganization {
			return problem.New(problem.Precondition, "an organization can have at most %d mailboxes", maxPerOrganization)
		}
	}
	tx.AfterCommit(s.signal)
	return nil
}

// signal has [Service.Run] look for mailboxes to read.
func (s *Service) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

var (
	errLeaseLost = errors.New("the lease of the mailbox is lost")
	errChanged   = errors.New("the configuration of the mailbox has changed")
	errStopping  = errors.New("the process stops")
	errRelieved  = errors.New("another mailbox waits for a reader")
)

// Run reads mailboxes until ctx ends, and then releases their leases.
func (s *Service) Run(ctx context.Context) {
	if !s.db.Postgres() {
		// No other server runs on the database, so all leases are of dead processes.
		if err := releaseAll(ctx, s.db); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "the leases of mailboxes could not be released", "error", err)
		}
	}
	loop.EveryOr(ctx, claimInterval, s.wake, s.log, "reading mailboxes", s.turn)
	s.mu.Lock()
	for _, r := range s.readers {
		r.cancel(errStopping)
	}
	s.mu.Unlock()
	s.end()
	s.work.Wait()
}

// turn renews the leases of the readers and starts further ones.
func (s *Service) turn(ctx context.Context) error {
	if err := s.renew(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	free := s.maxReaders - len(s.readers)
	s.mu.Unlock()
	if free <= 0 {
		return s.relieve(ctx)
	}
	claimed, err := s.claim(ctx, free)
	for _, l := range claimed {
		s.start(ctx, l)
	}
	return err
}

// relieve ends those readers that have read longest if mailboxes wait that no process reads.
func (s *Service) relieve(ctx context.Context) error {
	now := s.db.Now()
	waiting, err := s.due(ctx, now, maxRelieved)
	if err != nil || len(waiting) == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	readers := slices.SortedFunc(maps.Values(s.readers), func(a, b *reader) int { return a.begun.Compare(b.begun) })
	for _, r := range readers[:min(len(readers), len(waiting))] {
		if now.Sub(r.begun) >= time.Duration(float64(readingTime)*s.scale) {
			r.cancel(errRelieved)
		}
	}
	return nil
}

// start runs a reader under a lease.
func (s *Service) start(ctx context.Context, l lease) {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &reader{Service: s, lease: l, cancel: cancel, begun: s.db.Now()}
	s.mu.Lock()
	r.singly = s.inexact[l.connectionID]
	if lost := s.readers[l.connectionID]; lost != nil {
		lost.cancel(errLeaseLost) // it has not noticed yet
	}
	s.readers[l.connectionID] = r
	s.mu.Unlock()
	s.work.Go(func() {
		defer cancel(nil)
		r.run(ctx)
		s.mu.Lock()
		if s.readers[l.connectionID] == r {
			delete(s.readers, l.connectionID)
		}
		s.mu.Unlock()
		if cause := context.Cause(ctx); errors.Is(cause, errChanged) || errors.Is(cause, errRelieved) {
			s.signal()
		}
	})
}

// renew extends the leases of this process, and stops readers that have lost theirs or run by an
// old configuration.
func (s *Service) renew(ctx context.Context) error {
	s.mu.Lock()
	readers := make(map[string]*reader, len(s.readers))
	maps.Copy(readers, s.readers)
	s.mu.Unlock()
	if len(readers) == 0 {
		return nil
	}
	held, err := s.extend(ctx, readers)
	if err != nil {
		return err
	}
	for id, r := range readers {
		switch l, ok := held[id]; {
		case !ok || l.fence != r.fence:
			r.cancel(errLeaseLost)
		case l.revision != r.revision:
			r.cancel(errChanged)
		}
	}
	return nil
}

// reader reads one mailbox.
type reader struct {
	*Service
	lease
	cancel context.CancelCauseFunc
	begun  time.Time

	account    email.Account
	connection *connection.Connection
	checked    atomic.Int64 // when all folders were last read to the end, in microseconds; 0: never
	stored     atomic.Int64 // the stored value of checked
	healthy    bool         // the stored state is that of a mailbox that works
	// singly means that mails are fetched one by one, up to the limit of their size: the server has
	// announced wrong sizes, or has left mails out.
	singly  bool
	refusal *Trouble // to mark or move mails, in this turn
}

// collectSingly sets reader.singly for this reader and the next one of the mailbox.
func (r *reader) collectSingly(singly bool) {
	if r.singly == singly {
		return
	}
	r.singly = singly
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inexact, r.connectionID)
	if singly {
		r.inexact[r.connectionID] = true
	}
}

// run reads the mailbox until an error or the end of ctx, and records the outcome.
func (r *reader) run(ctx context.Context) {
	err := r.recovered(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, errLeaseLost) {
		return
	}
	loop.Finish(ctx, r.log, "releasing a mailbox", func(ctx context.Context) error { return r.release(ctx, err) })
}

// recovered is [reader.read]. A panic, to which only an answer of the server can lead, is an error.
func (r *reader) recovered(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			r.log.ErrorContext(ctx, "panic while reading a mailbox", "connection", r.connectionID, "panic", v, "stack", string(debug.Stack()))
			err = &Trouble{Kind: TroubleServer, Text: "the mailbox cannot be read because of an error of this server, which its log describes"}
		}
	}()
	return r.read(ctx)
}

// read connects and reads until an error.
func (r *reader) read(ctx context.Context) error {
	c, err := r.connections.Find(ctx, r.connectionID)
	if errors.Is(err, db.ErrNoRows) || err == nil && !c.Enabled {
		return errChanged
	}
	if err != nil {
		return fmt.Errorf("load connection: %w", err)
	}
	r.connection = &c
	if r.account, err = email.ParseAccount(c.Address, c.Settings, c.CredentialValues()); err != nil {
		return &Trouble{Kind: TroubleSettings, Text: err.Error()}
	}
	session, err := r.connect(ctx, r.connectionID, &r.account)
	if err != nil {
		return err
	}
	defer session.close()
	for {
		begin := r.db.Now()
		if err := r.readAll(ctx, session); err != nil {
			return err
		}
		if err := session.wait(ctx, len(r.account.Folders) == 1); err != nil {
			return err
		}
		if early := time.Duration(float64(turnTime)*r.scale) - r.db.Now().Sub(begin); early > 0 {
			if err := loop.Pause(ctx, early); err != nil {
				return err
			}
		}
	}
}

// connect connects to the server of a connection's mailbox. A token that the server refuses is replaced
// once: the provider may have revoked it.
func (s *Service) connect(ctx context.Context, connectionID string, a *email.Account) (*session, error) {
	if a.Provider == "" {
		return s.open(ctx, a, "")
	}
	token, err := s.token(ctx, connectionID, a, "")
	if err != nil {
		return nil, err
	}
	c, err := s.open(ctx, a, token)
	if t, ok := errors.AsType[*Trouble](err); !ok || t.Kind != TroubleLogin {
		return c, err
	}
	if token, err = s.token(ctx, connectionID, a, token); err != nil {
		return nil, err
	}
	return s.open(ctx, a, token)
}

// Readers returns the number of mailboxes that this process reads.
func (s *Service) Readers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.readers)
}
