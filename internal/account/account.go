// Package account has users, organizations, sign-in and sessions.
//
// A session is a row, and it lasts as long as the row. Two kinds of opaque token of 256
// random bits open it, of which only SHA-256 digests are stored: access tokens, which
// authenticate requests, and refresh tokens, each of which is exchanged once for a new
// pair. Nothing about a session is cached, so the next request after its end is refused
// on every node.
//
// The package knows no HTTP; its subpackage browser carries tokens in cookies. Errors for
// clients are [problem.Error] values; no response depends on whether an e-mail address
// has an account.
package account

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
)

// Checkout starts the payment of a paid plan.
type Checkout interface {
	// StartCheckout returns the URL of the payment page for c. It is called outside of
	// any transaction, before the organization is stored.
	StartCheckout(ctx context.Context, c CheckoutRequest) (url string, err error)
}

// CheckoutRequest is the buyer and the plan of a checkout.
type CheckoutRequest struct {
	OrganizationID   string
	OrganizationName string
	Plan             Plan
	UserID           string
	Email            string
}

// Config configures a [Service].
type Config struct {
	DB       *db.DB
	Mailer   mail.Enqueuer
	MailFrom mail.Address // sender of account mails
	BaseURL  string       // public address of the server

	// RedirectOrigins are origins ("https://app.example.com") to which a sign-in may
	// redirect besides that of BaseURL.
	RedirectOrigins []string

	AccessLife  time.Duration // lifetime of an access token; 0 means 1 hour
	RefreshLife time.Duration // lifetime of a session since its last use; 0 means 30 days
	SessionLife time.Duration // lifetime of a session since its sign-in, used or not; 0 means 90 days

	// FreshProof is the maximum age of a session's last proof of identity at which a
	// password set in it counts as a proof of identity later; 0: any age.
	FreshProof time.Duration

	// BrowserNotices mails users about sign-ins in browsers that are new to their
	// account.
	BrowserNotices bool

	SignUp   SignUpPolicy // zero value: open sign-up
	Checkout Checkout     // nil: no paid plans
	Provider Provider     // nil: no sign-in by identity provider

	// NewLimiter returns the limiter of one kind of attempt; name is unique per kind.
	// Nil: limits are counted in this process.
	NewLimiter func(name string, limit int, window time.Duration) Limiter

	// OnMemberRemoved is called in the transaction that removes a member, before the
	// membership ends, so that other packages can remove their references. With
	// credentials it also revokes the API keys that the member created in the
	// organization, and disables their webhooks. Nil: no call.
	OnMemberRemoved func(ctx context.Context, tx *db.Tx, organizationID, userID string, credentials bool) error

	// OnUserDeleted removes the data in other packages that identifies a deleted user, in
	// every organization. Nil: no call.
	OnUserDeleted func(ctx context.Context, tx *db.Tx, userID string) error

	// Notify tells open pages of an organization that data has changed: topic "member"
	// for members and invitations, "organization" for name, plan and rules. With the key
	// [SessionsTopic] it tells the open streams of a user that sessions have changed. It
	// is called after the commit. Nil: no call.
	Notify func(key string, topics ...string)

	// FirstIsDefault makes the first organization the default one if the operator has
	// neither named nor created one. For servers on a developer's machine only.
	FirstIsDefault bool

	Audit *audit.Log // nil: no audit log

	// Hashers is the number of passwords hashed at the same time. 0 means one per processor, at
	// most 4, and as many as a quarter of the process's memory limit allows.
	Hashers int

	// HashMemory is the memory of a new password hash in KiB. 0 means 19,456, the least that OWASP
	// recommends; tests that are about something else set less.
	HashMemory uint32

	Logger *slog.Logger // nil: no log
}

// Service manages the accounts of one database. It is safe for concurrent use.
type Service struct {
	db          *db.DB
	mailer      mail.Enqueuer
	from        mail.Address
	redirects   redirects
	accessLife  time.Duration
	refreshLife time.Duration
	sessionLife time.Duration

	decodingLogo sync.Mutex // one at a time, which bounds the memory of uploads

	freshProof      time.Duration
	browserNotices  bool
	signUp          atomic.Pointer[SignUpPolicy]
	checkout        Checkout
	provider        Provider
	onMemberRemoved func(ctx context.Context, tx *db.Tx, organizationID, userID string, credentials bool) error
	onUserDeleted   func(ctx context.Context, tx *db.Tx, userID string) error
	notify          func(key string, topics ...string)
	audit           *audit.Log
	firstIsDefault  bool
	log             *slog.Logger

	hashers    *hashers
	hashParams hashParams // of new hashes

	// One limit for each way to sign in, so that exhausting a user's attempts at one way
	// leaves the other ways open.
	linkAttempts     limit   // by mailbox
	signInAttempts   limit   // by e-mail
	resetAttempts    limit   // by mailbox
	providerAttempts limit   // by network
	failedSignIns    Limiter // failures with a wrong password, by network
	inviteAttempts   Limiter // by mailbox
	inviteCounts     Limiter // by organization
	changeAttempts   Limiter // by user

	mu   sync.Mutex
	used map[string]struct{} // sessions whose last use is not stored yet
}

// New returns a service. An error means that c is invalid.
func New(c Config) (*Service, error) {
	r, err := newRedirects(c.BaseURL, c.RedirectOrigins)
	if err != nil {
		return nil, err
	}
	if c.AccessLife < 0 || c.RefreshLife < 0 || c.SessionLife < 0 {
		return nil, errors.New("the lifetimes of tokens and sessions must be positive")
	}
	if c.FreshProof < 0 {
		return nil, errors.New("the maximum age of a fresh proof must be positive")
	}
	if c.NewLimiter == nil {
		c.NewLimiter = func(_ string, limit int, window time.Duration) Limiter {
			return ratelimit.New(limit, window)
		}
	}
	s := &Service{
		db:              c.DB,
		mailer:          c.Mailer,
		from:            c.MailFrom,
		redirects:       r,
		accessLife:      c.AccessLife,
		refreshLife:     c.RefreshLife,
		sessionLife:     cmp.Or(c.SessionLife, 90*24*time.Hour),
		checkout:        c.Checkout,
		provider:        c.Provider,
		onMemberRemoved: c.OnMemberRemoved,
		onUserDeleted:   c.OnUserDeleted,
		notify:          c.Notify,
		audit:           c.Audit, firstIsDefault: c.FirstIsDefault,
		log: c.Logger,

		linkAttempts:     newLimit(c.NewLimiter, "sign-in-link", true),
		signInAttempts:   newLimit(c.NewLimiter, "sign-in", false),
		resetAttempts:    newLimit(c.NewLimiter, "password-reset", true),
		providerAttempts: newLimit(c.NewLimiter, "sign-in-provider", false),
		failedSignIns:    c.NewLimiter("sign-in-failed", networkLimit, signInWindow),
		inviteAttempts:   c.NewLimiter("invitation", signInLimit, signInWindow),
		inviteCounts:     c.NewLimiter("invitations", inviteLimit, time.Hour),
		changeAttempts:   c.NewLimiter("password-change", changeLimit, signInWindow),
		freshProof:       c.FreshProof,
		browserNotices:   c.BrowserNotices,
		used:             make(map[string]struct{}),
	}
	s.SetSignUp(c.SignUp)
	if s.accessLife == 0 {
		s.accessLife = time.Hour
	}
	if s.refreshLife == 0 {
		s.refreshLife = 30 * 24 * time.Hour
	}
	if c.Hashers == 0 {
		c.Hashers = defaultHashers(runtime.GOMAXPROCS(0), debug.SetMemoryLimit(-1))
	}
	s.hashers = newHashers(c.Hashers)
	s.hashParams = leastParams
	s.hashParams.memory = cmp.Or(c.HashMemory, leastParams.memory)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// Client describes the client of a request.
type Client struct {
	IP        string
	UserAgent string
	Browser   string // value of the browser cookie, as from [Tokens]
}

// notifyAfterCommit calls [Config.Notify] for an organization once tx has committed.
func (s *Service) notifyAfterCommit(tx *db.Tx, organizationID string, topics ...string) {
	if s.notify != nil {
		tx.AfterCommit(func() { s.notify(organizationID, topics...) })
	}
}

// Now returns the present time by the database's clock.
func (s *Service) Now() time.Time { return s.db.Now() }
