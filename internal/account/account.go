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
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
)

// How often one e-mail address, or one IP address, may try each way to sign in
// (helpdesk.md 8), and one user to change the password.
const (
	signInLimit  = 5
	changeLimit  = 10
	signInWindow = time.Minute
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

// Limiter counts attempts: [ratelimit.Limiter] for one process, or
// [ratelimit.RedisLimiter] for several.
type Limiter interface {
	// Allow counts an attempt of key, or refuses it and returns how long it must
	// wait.
	Allow(ctx context.Context, key string) (ok bool, retryAfter time.Duration)
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

	Checkout Checkout // nil: there are no paid plans to choose
	Provider Provider // nil: nobody can sign in with one

	// NewLimiter makes the limit of a kind of attempt, which name tells from the
	// others. Nil for limits that this process keeps for itself.
	NewLimiter func(name string, limit int, window time.Duration) Limiter

	// OnRemove takes part in the removal of a member, who is one still when it
	// is called: for what else knows of them. Nil for nothing.
	OnRemove func(ctx context.Context, tx *db.Tx, organizationID, userID string) error

	// Tell tells who looks at an organization what has changed in it: "member" for
	// who belongs to it or is invited, "organization" for its name and plan. It is
	// called after the commit. Nil for nobody.
	Tell func(organizationID string, topics ...string)

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
	checkout    Checkout
	provider    Provider
	onRemove    func(ctx context.Context, tx *db.Tx, organizationID, userID string) error
	tell        func(organizationID string, topics ...string)
	log         *slog.Logger

	hashers chan struct{} // holds one value for each hash under way

	// One for each way to sign in, so that whoever uses up another's tries at
	// one leaves them the others.
	linkTries     Limiter // by e-mail
	signInTries   Limiter // by e-mail
	resetTries    Limiter // by e-mail
	providerTries Limiter // by IP
	inviteTries   Limiter // by e-mail
	inviteCounts  Limiter // by organization
	changeTries   Limiter // by user

	mu   sync.Mutex
	used map[string]struct{} // sessions whose last use is to be written
}

// New returns a service. Its error means that c is wrong.
func New(c Config) (*Service, error) {
	r, err := newRedirects(c.BaseURL, c.RedirectOrigins)
	if err != nil {
		return nil, err
	}
	if c.AccessLife < 0 || c.RefreshLife < 0 {
		return nil, errors.New("the life of a token must be positive")
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
		checkout:    c.Checkout,
		provider:    c.Provider,
		onRemove:    c.OnRemove,
		tell:        c.Tell,
		log:         c.Logger,

		linkTries:     c.NewLimiter("sign-in-link", signInLimit, signInWindow),
		signInTries:   c.NewLimiter("sign-in", signInLimit, signInWindow),
		resetTries:    c.NewLimiter("password-reset", signInLimit, signInWindow),
		providerTries: c.NewLimiter("sign-in-provider", signInLimit, signInWindow),
		inviteTries:   c.NewLimiter("invitation", signInLimit, signInWindow),
		inviteCounts:  c.NewLimiter("invitations", inviteLimit, time.Hour),
		changeTries:   c.NewLimiter("password-change", changeLimit, signInWindow),
		used:          make(map[string]struct{}),
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
	s.hashers = make(chan struct{}, c.Hashers)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// Client is what is known of the far side of a request.
type Client struct {
	IP        string
	UserAgent string
}

// told has who looks at an organization told, once tx has committed.
func (s *Service) told(tx *db.Tx, organizationID string, topics ...string) {
	if s.tell != nil {
		tx.AfterCommit(func() { s.tell(organizationID, topics...) })
	}
}

// allow returns the refusal of an attempt to sign in that comes too soon.
func allow(ctx context.Context, l Limiter, key string) error {
	return allowFew(ctx, l, key, "too many sign-in attempts")
}

// allowFew is allow for other things, which what names.
func allowFew(ctx context.Context, l Limiter, key, what string) error {
	ok, wait := l.Allow(ctx, key)
	if ok {
		return nil
	}
	return &problem.Error{
		Kind:       problem.RateLimited,
		Message:    fmt.Sprintf("%s, try again in %d seconds", what, ratelimit.Seconds(wait)),
		RetryAfter: wait,
	}
}
