// Package account knows who people are: users, the organizations they belong
// to, how they sign in, and the sessions that follow from it.
//
// A session is a row, and it holds as long as the row does. It is reached
// through two kinds of opaque token of 256 random bits, of which only SHA-256
// digests are stored: access tokens, which say who asks, and refresh tokens,
// each of which is exchanged once for a new pair. Nothing about a session is
// cached, so one that ended is refused by the very next request on any node.
//
// The package knows no HTTP; package browser, below it, carries tokens in
// cookies. Whatever a person may be told comes back as a [problem.Error];
// nothing that is told depends on whether an e-mail address is known.
package account

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
)

// Mailer sends mail in time.
type Mailer interface {
	// EnqueueMail takes responsibility for m if and when tx commits.
	EnqueueMail(ctx context.Context, tx *db.Tx, m mail.Message) error
}

// Checkout is where a paid plan is paid for.
type Checkout interface {
	// StartCheckout returns the URL of a page on which c can be paid. It runs
	// before the organization is stored, outside of any transaction.
	StartCheckout(ctx context.Context, c CheckoutRequest) (url string, err error)
}

// CheckoutRequest says who wants to pay for what.
type CheckoutRequest struct {
	OrganizationID   string
	OrganizationName string
	Plan             Plan
	UserID           string
	Email            string
}

// Config is what a [Service] is made of.
type Config struct {
	DB       *db.DB
	Mailer   Mailer
	MailFrom mail.Address // sender of account mails
	BaseURL  string       // the public address

	// RedirectOrigins are origins ("https://app.example.com") besides the base
	// URL's to which a sign-in may lead.
	RedirectOrigins []string

	AccessLife  time.Duration // of an access token; 0 means 1 hour
	RefreshLife time.Duration // of a session after its last use; 0 means 30 days
	SessionLife time.Duration // of a session after its sign-in, however much it is used; 0 means 90 days

	// FreshProof is how old the proof of identity of a session may be for a
	// password that is set in it to prove identity later; 0: any age will do.
	FreshProof time.Duration

	// BrowserNotices mails people about sign-ins in browsers that are new to their
	// account.
	BrowserNotices bool

	SignUp   SignUpPolicy // the zero value admits everybody
	Checkout Checkout     // nil: there are no paid plans to choose
	Provider Provider     // nil: nobody can sign in with one

	// NewLimiter makes the limit of a kind of attempt, which name tells from the
	// others. Nil for limits that this process keeps for itself.
	NewLimiter func(name string, limit int, window time.Duration) Limiter

	// OnRemove takes part in the removal of a member, who is one still when it
	// is called: for what else knows of them. Nil for nothing.
	OnRemove func(ctx context.Context, tx *db.Tx, organizationID, userID string) error

	// OnRevoke revokes the API keys that a member created in an organization and
	// disables their webhooks, when somebody asks for that with the removal. Nil
	// for nothing.
	OnRevoke func(ctx context.Context, tx *db.Tx, organizationID, userID string) error

	// OnDelete removes what else identifies a user who is deleted, in any
	// organization. Nil for nothing.
	OnDelete func(ctx context.Context, tx *db.Tx, userID string) error

	// Notify announces a change to open pages of an organization: "member" for its
	// members and invitations, "organization" for its name, plan and rules. Under the
	// key [SessionsTopic] it announces to open streams of a user, in place of an
	// organization, that sessions have changed. It is called after the commit. Nil
	// announces nothing.
	Notify func(key string, topics ...string)

	// FirstIsDefault makes the first organization of all the default one, where the
	// operator neither named nor created any. Only for servers of one's own machine.
	FirstIsDefault bool

	Audit *audit.Log // nil records nothing

	// Hashers is how many passwords are hashed at once, each with 19 MiB of
	// memory and as much again until it is collected; 0 means one for each
	// processor, at most 4.
	Hashers int

	Logger *slog.Logger // nil discards
}

// Service is the accounts of one database. It is safe for concurrent use.
type Service struct {
	db          *db.DB
	mailer      Mailer
	from        mail.Address
	redirects   redirects
	accessLife  time.Duration
	refreshLife time.Duration
	sessionLife time.Duration

	freshProof     time.Duration
	browserNotices bool
	signUp         SignUpPolicy
	checkout       Checkout
	provider       Provider
	onRemove       func(ctx context.Context, tx *db.Tx, organizationID, userID string) error
	onRevoke       func(ctx context.Context, tx *db.Tx, organizationID, userID string) error
	onDelete       func(ctx context.Context, tx *db.Tx, userID string) error
	notify         func(key string, topics ...string)
	audit          *audit.Log
	firstIsDefault bool
	log            *slog.Logger

	hashers *hashers

	// One for each way to sign in, so that whoever uses up another's tries at
	// one leaves them the others.
	linkAttempts     limit   // by mailbox
	signInAttempts   limit   // by e-mail
	resetAttempts    limit   // by mailbox
	providerAttempts limit   // by network
	failedSignIns    Limiter // by network: with a wrong password
	inviteAttempts   Limiter // by mailbox
	inviteCounts     Limiter // by organization
	changeAttempts   Limiter // by user

	mu   sync.Mutex
	used map[string]struct{} // sessions whose last use is to be written
}

// New returns a service. Its error means that c is wrong.
func New(c Config) (*Service, error) {
	r, err := newRedirects(c.BaseURL, c.RedirectOrigins)
	if err != nil {
		return nil, err
	}
	if c.AccessLife < 0 || c.RefreshLife < 0 || c.SessionLife < 0 {
		return nil, errors.New("the life of a token or session must be positive")
	}
	if c.FreshProof < 0 {
		return nil, errors.New("the age of a fresh proof must be positive")
	}
	if c.NewLimiter == nil {
		c.NewLimiter = func(_ string, limit int, window time.Duration) Limiter {
			return ratelimit.New(limit, window)
		}
	}
	s := &Service{
		db:          c.DB,
		mailer:      c.Mailer,
		from:        c.MailFrom,
		redirects:   r,
		accessLife:  c.AccessLife,
		refreshLife: c.RefreshLife,
		sessionLife: cmp.Or(c.SessionLife, 90*24*time.Hour),
		signUp:      c.SignUp,
		checkout:    c.Checkout,
		provider:    c.Provider,
		onRemove:    c.OnRemove,
		onRevoke:    c.OnRevoke,
		onDelete:    c.OnDelete,
		notify:      c.Notify,
		audit:       c.Audit, firstIsDefault: c.FirstIsDefault,
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
	if s.accessLife == 0 {
		s.accessLife = time.Hour
	}
	if s.refreshLife == 0 {
		s.refreshLife = 30 * 24 * time.Hour
	}
	if c.Hashers == 0 {
		c.Hashers = min(runtime.GOMAXPROCS(0), 4)
	}
	s.hashers = newHashers(c.Hashers)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// Client is what is known of the far side of a request.
type Client struct {
	IP        string
	UserAgent string
	Browser   string // what the browser keeps of earlier sign-ins, as from [Tokens]
}

// notifyAfterCommit has who looks at an organization told, once tx has committed.
func (s *Service) notifyAfterCommit(tx *db.Tx, organizationID string, topics ...string) {
	if s.notify != nil {
		tx.AfterCommit(func() { s.notify(organizationID, topics...) })
	}
}
