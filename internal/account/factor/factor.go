// Package factor adds proofs of identity to package account: passkeys (WebAuthn Level 3),
// authenticator apps (TOTP, RFC 6238) and recovery codes.
//
// A passkey with user verification counts as two factors and signs in alone. A code of an
// authenticator app is the second factor after a password, a mailed link or an identity
// provider; a recovery code replaces it once. [Service.Complete] checks the second
// factor: until it succeeds there is no session, only an [account.PendingSignIn] sign-in.
//
// Sensitive changes need a fresh proof of identity: [Service.Prove] records it,
// [Service.RequireFresh] checks its age. The surfaces decide which changes are sensitive;
// changes of a user's own factors are checked here too.
//
// WebAuthn challenges are stateless: a challenge has its purpose, subject and expiry
// under a MAC. The first valid assertion stores its digest under a unique key, so that a
// second one is refused on every node. TOTP secrets are sealed; codes are stored as
// digests.
package factor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
	"golang.org/x/net/idna"
)

// Attempts per user. A code of six digits is one of a million, and three are valid at a
// time: 20 attempts an hour guess one within a day with a probability of 0.15 %, and the
// user is warned by mail.
const (
	minuteAttempts = 5
	hourAttempts   = 20
	// addressAttempts limits sign-ins by passkey per network and minute. Passkeys cannot
	// be guessed; the limit bounds the work.
	addressAttempts = 60
)

// Config is the configuration of a [Service].
type Config struct {
	DB       *db.DB
	Accounts *account.Service
	Box      *seal.Box
	BaseURL  string // public address; its host is the relying party of passkeys

	// FreshProof is the maximum age of the proof of identity for a sensitive change; 0:
	// no proof is required.
	FreshProof time.Duration

	// NewLimiter returns the limiter of one kind of attempt. Nil: limits are counted in
	// this process.
	NewLimiter func(name string, limit int, window time.Duration) account.Limiter

	Audit  *audit.Log   // nil: no audit log
	Logger *slog.Logger // nil: no log
}

// Service manages the factors of the users of one database. It is safe for concurrent
// use.
type Service struct {
	db       *db.DB
	accounts *account.Service
	box      *seal.Box
	relying  *webauthn.WebAuthn // nil: no passkeys under the base URL
	fresh    time.Duration
	audit    *audit.Log
	log      *slog.Logger

	// Guessable answers, by user.
	minute, hour account.Limiter
	warnings     account.Limiter // mails about failed attempts, by user
	mails        account.Limiter // mailed codes, by user
	addresses    account.Limiter // sign-ins by passkey, by address
}

// Open returns a service. An error means that c is invalid.
func Open(c Config) (*Service, error) {
	if c.NewLimiter == nil {
		c.NewLimiter = func(_ string, limit int, window time.Duration) account.Limiter { return ratelimit.New(limit, window) }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.FreshProof < 0 {
		return nil, fmt.Errorf("the maximum age of a fresh proof must not be negative")
	}
	relying, err := newRelyingParty(c.BaseURL)
	if err != nil {
		return nil, err
	}
	return &Service{
		db: c.DB, accounts: c.Accounts, box: c.Box, relying: relying, fresh: c.FreshProof, audit: c.Audit, log: c.Logger,
		minute:    c.NewLimiter("factor-minute", minuteAttempts, time.Minute),
		hour:      c.NewLimiter("factor-hour", hourAttempts, time.Hour),
		warnings:  c.NewLimiter("factor-warning", 1, 24*time.Hour),
		mails:     c.NewLimiter("factor-mail", minuteAttempts, time.Minute),
		addresses: c.NewLimiter("passkey-address", addressAttempts, time.Minute),
	}, nil
}

// newRelyingParty returns nil if browsers have no passkeys under base: at an IP address,
// and without TLS at a host other than localhost.
func newRelyingParty(base string) (*webauthn.WebAuthn, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("base URL %q must be like https://help.example.com", base)
	}
	host, err := idna.Lookup.ToASCII(u.Hostname()) // as browsers spell it
	if err != nil {
		host = strings.ToLower(u.Hostname())
	}
	if net.ParseIP(host) != nil || u.Scheme != "https" && host != "localhost" && !strings.HasSuffix(host, ".localhost") {
		return nil, nil
	}
	origin := u.Scheme + "://" + host
	if port := u.Port(); port != "" && (u.Scheme != "https" || port != "443") && (u.Scheme != "http" || port != "80") {
		origin += ":" + port
	}
	w, err := webauthn.New(&webauthn.Config{
		RPID: host, RPDisplayName: "Kickstand", RPOrigins: []string{origin},
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification: protocol.VerificationRequired,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("passkeys at %s: %w", base, err)
	}
	return w, nil
}

// HasPasskeys reports whether browsers can use passkeys at the base URL.
func (s *Service) HasPasskeys() bool { return s.relying != nil }

// State lists a user's factors.
type State struct {
	Passkeys      []Passkey // oldest first
	TOTP          bool
	TOTPSince     time.Time
	RecoveryCodes int // unused ones
	Password      bool
	Proves        bool // the password is a proof of identity
}

// Second reports whether the user has a second factor.
func (st *State) Second() bool { return st.TOTP || len(st.Passkeys) > 0 }

// State returns a user's factors.
func (s *Service) State(ctx context.Context, userID string) (State, error) {
	var st State
	var err error
	if st.Passkeys, err = s.Passkeys(ctx, userID); err != nil {
		return State{}, err
	}
	if err := s.db.QueryRow(ctx, `SELECT (SELECT created_at FROM totp_secrets WHERE user_id = $1),
		(SELECT count(*) FROM recovery_codes WHERE user_id = $1 AND used_at IS NULL)`, userID).
		Scan(db.IntoTime(&st.TOTPSince), &st.RecoveryCodes); err != nil {
		return State{}, fmt.Errorf("find factors: %w", err)
	}
	st.TOTP = !st.TOTPSince.IsZero()
	st.Password, st.Proves, err = s.accounts.ProvingPassword(ctx, userID)
	return st, err
}

// Secured returns which of an organization's members have a second factor.
func (s *Service) Secured(ctx context.Context, organizationID string) (map[string]bool, error) {
	ids, err := db.All(ctx, s.db, func(row db.Row) (string, error) {
		var id string
		err := row.Scan(&id)
		return id, err
	}, `SELECT u.id FROM users u WHERE u.organization_id = $1 AND (
		EXISTS (SELECT 1 FROM totp_secrets t WHERE t.user_id = u.id) OR EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = u.id))`, organizationID)
	if err != nil {
		return nil, fmt.Errorf("list members with a second factor: %w", err)
	}
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set, nil
}

// allow limits a user's attempts at guessable answers. It warns the user by mail when the
// attempts of an hour are used up.
func (s *Service) allow(ctx context.Context, u account.User) error {
	ok, wait := s.minute.Allow(ctx, u.ID)
	if ok {
		if ok, wait = s.hour.Allow(ctx, u.ID); !ok {
			s.warnUser(ctx, u)
		}
	}
	if ok {
		return nil
	}
	return errTooMany("attempts", wait)
}

func errTooMany(what string, wait time.Duration) error {
	return &problem.Error{
		Kind: problem.RateLimited, Message: fmt.Sprintf("too many %s, try again in %d seconds", what, ratelimit.Seconds(wait)), RetryAfter: wait,
	}
}

// warnUser mails a user about failed attempts, at most once a day.
func (s *Service) warnUser(ctx context.Context, u account.User) {
	if ok, _ := s.warnings.Allow(ctx, u.ID); !ok {
		return
	}
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		return s.accounts.SendMailTx(ctx, tx, u.Email, notice(fmt.Sprintf(
			"%d codes in one hour were wrong when somebody tried to sign in as you or to confirm a change.", hourAttempts),
			"If this was not you, somebody knows your password or reads your mail. Change the password, and look at your sessions in the settings."))
	})
	if err != nil {
		s.log.ErrorContext(ctx, "warning about failed second factors not mailed", "user", u.ID, "error", err)
	}
}

// notice returns a mail about a change of the recipient's factors.
func notice(text, advice string) mail.Notification {
	return mail.Notification{Subject: "The security of your Kickstand account", Before: []string{text}, After: []string{advice}}
}

const notYouHint = "If this was not you, change your password and look at your sessions and passkeys in the settings at once, and write to an admin of your organization."

// recordChangeTx records a change of a user's factors in the audit log and mails the
// user.
func (s *Service) recordChangeTx(ctx context.Context, tx *db.Tx, u account.User, action audit.Action, details map[string]any, text string) error {
	e := audit.Entry{
		OrganizationID: u.OrganizationID, Action: action, Details: details,
		Target: audit.Target{Type: "user", ID: u.ID, Name: u.Email},
	}
	if err := s.audit.RecordTx(ctx, tx, e); err != nil {
		return err
	}
	return s.accounts.SendMailTx(ctx, tx, u.Email, notice(text, notYouHint))
}

// recordRefusal records a wrong answer for a user.
func (s *Service) recordRefusal(ctx context.Context, u account.User, method string) {
	s.audit.Refuse(ctx, audit.Entry{
		OrganizationID: u.OrganizationID, Action: "second_factor.refused",
		Target: audit.Target{Type: "user", ID: u.ID, Name: u.Email}, Details: map[string]any{"method": method},
	})
}

// requireChangeAllowed checks that the caller may change their own factors: the proof of
// identity must be fresh and, if a sign-in would need two factors, the session must have
// two.
func (s *Service) requireChangeAllowed(ctx context.Context, q db.Querier, id account.Identity) error {
	if err := s.RequireFresh(id); err != nil {
		return err
	}
	if id.SecondFactor {
		return nil
	}
	due, err := s.accounts.SecondFactorDue(ctx, q, id.UserID)
	if err == nil && due {
		err = errSecondFactorDue()
	}
	return err
}

func errSecondFactorDue() error {
	return &problem.Error{
		Kind: problem.Precondition, Code: account.FreshProofRequired,
		Message: "confirm with a passkey, a code of your authenticator app or a recovery code first",
	}
}

// requireFactorLeft returns a [problem.Conflict] if the user has only one second factor
// and their organization requires one.
func requireFactorLeft(ctx context.Context, tx *db.Tx, userID string) error {
	var factors int64
	var required bool
	err := tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM passkeys WHERE user_id = $1) + (SELECT count(*) FROM totp_secrets WHERE user_id = $1),
		EXISTS (SELECT 1 FROM users u JOIN organizations o ON o.id = u.organization_id WHERE u.id = $1 AND o.second_factor_required)`, userID).
		Scan(&factors, &required)
	if err != nil {
		return fmt.Errorf("count factors: %w", err)
	}
	if factors <= 1 && required {
		return problem.New(problem.Conflict, "your organization requires a second factor, and this is your last; add another one first")
	}
	return nil
}

// endFactorSessions ends the caller's other sessions after the removal of a factor: the
// factor's holder may have opened them. After the last second factor it deletes the
// recovery codes and downgrades the caller's session to one factor, so that an
// organization that requires two later asks for a second.
func (s *Service) endFactorSessions(ctx context.Context, tx *db.Tx, id account.Identity) error {
	if err := s.accounts.EndSessionsTx(ctx, tx, id.UserID, id.SessionID); err != nil {
		return err
	}
	const none = ` AND NOT EXISTS (SELECT 1 FROM passkeys WHERE user_id = $1) AND NOT EXISTS (SELECT 1 FROM totp_secrets WHERE user_id = $1)`
	for _, statement := range []string{"DELETE FROM recovery_codes WHERE user_id = $1", "UPDATE sessions SET second_factor = FALSE WHERE user_id = $1"} {
		if err := tx.Queue(ctx, statement+none, id.UserID); err != nil {
			return fmt.Errorf("%.30s…: %w", statement, err)
		}
	}
	return nil
}

// Run deletes expired challenges and codes every hour until ctx ends.
func (s *Service) Run(ctx context.Context) {
	loop.Every(ctx, time.Hour, s.log, "delete expired challenges", s.deleteExpired)
}

func (s *Service) deleteExpired(ctx context.Context) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Queue(ctx, "DELETE FROM passkey_challenges WHERE used_at < $1", tx.Now.Add(-challengeLife).UnixMicro()); err != nil {
			return fmt.Errorf("delete challenges: %w", err)
		}
		if err := tx.Queue(ctx, "DELETE FROM proof_codes WHERE created_at < $1", tx.Now.Add(-mailedLife).UnixMicro()); err != nil {
			return fmt.Errorf("delete mailed codes: %w", err)
		}
		return nil
	})
}
